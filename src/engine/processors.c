/*
 * processors.c
 *		Number of processors that this process may use.
 *
 * Containers usually limit processors by a time quota, which the affinity mask
 * does not show. More threads than the quota exhaust it early in each period,
 * and then all are stopped, also those that others wait for.
 */
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/processors.h"

#define PATH_ROOM	(2 * PATH_MAX)

/* Read a file's first two words; those that are not there are empty. */
static bool
read_words(const char *directory, const char *file, char words[2][32])
{
	char		path[PATH_ROOM + 32];
	FILE	   *stream;

	words[0][0] = words[1][0] = '\0';
	snprintf(path, sizeof(path), "%s/%s", directory, file);
	stream = fopen(path, "re");
	if (stream == NULL)
		return false;
	if (fscanf(stream, "%31s %31s", words[0], words[1]) < 1)
		words[0][0] = '\0';
	fclose(stream);
	return true;
}

/* A quota out of two numbers of microseconds; "max" and -1 are none. */
static double
quota_of(const char *time, const char *period)
{
	double		used = 0;
	double		of = 0;

	if (sscanf(time, "%lf", &used) != 1 || sscanf(period, "%lf", &of) != 1)
		return 0;
	return used > 0 && of > 0 ? used / of : 0;
}

/* The quota of the group in a directory, of version 2 or 1; 0: none. */
static double
quota_in(const char *directory)
{
	char		words[2][32];
	char		period[2][32];

	if (read_words(directory, "cpu.max", words))
		return quota_of(words[0], words[1]);
	if (read_words(directory, "cpu.cfs_quota_us", words) &&
		read_words(directory, "cpu.cfs_period_us", period))
		return quota_of(words[0], period[0]);
	return 0;
}

/*
 * The least quota of a group and those above it. Missing files are skipped: in
 * a container the path may be one of the host, and the container's own group is
 * the mounted root.
 */
static double
least_quota(const char *root, const char *controllers, const char *group)
{
	char		path[PATH_ROOM];
	size_t		top = (size_t) snprintf(path, sizeof(path), "%s/%s", root, controllers);
	size_t		length;
	double		least = 0;

	if (top + strlen(group) >= sizeof(path))
		return 0;
	strcpy(path + top, group);
	for (length = strlen(path);; path[length] = '\0')
	{
		double		quota = quota_in(path);

		if (quota > 0 && (least == 0 || quota < least))
			least = quota;
		if (length <= top)
			return least;
		do
			length--;
		while (length > top && path[length] != '/');
	}
}

/* Whether a list with commas has a word. */
static bool
has_word(const char *list, const char *word)
{
	size_t		length = strlen(word);

	for (;; list++)
	{
		if (strncmp(list, word, length) == 0 && (list[length] == ',' || list[length] == '\0'))
			return true;
		list = strchr(list, ',');
		if (list == NULL)
			return false;
	}
}

double
processors_quota(const char *groups, const char *root)
{
	char		line[PATH_MAX + 256];
	FILE	   *stream = fopen(groups, "re");
	double		least = 0;

	/* ID:CONTROLLERS:GROUP, without controllers in version 2 */
	while (stream != NULL && fgets(line, sizeof(line), stream) != NULL)
	{
		char	   *controllers = strchr(line, ':');
		char	   *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
		double		quota;

		if (group == NULL)
			continue;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		controllers++;
		if (*controllers != '\0' && !has_word(controllers, "cpu"))
			continue;
		quota = least_quota(root, controllers, group);
		if (quota > 0 && (least == 0 || quota < least))
			least = quota;
	}
	if (stream != NULL)
		fclose(stream);
	return least;
}

long
processors_usable(void)
{
	cpu_set_t	usable;
	long		count = sched_getaffinity(0, sizeof(usable), &usable) == 0
		? CPU_COUNT(&usable)
		: sysconf(_SC_NPROCESSORS_ONLN);	/* more processors than a cpu_set_t holds */
	double		quota = processors_quota("/proc/self/cgroup", "/sys/fs/cgroup");

	if (quota > 0 && ceil(quota) < (double) count)
		count = (long) ceil(quota);
	return count > 0 ? count : 1;
}
