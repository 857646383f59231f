/*
 * processors_test.c
 *		The quota of control groups of both versions, in files as the kernel
 *		shows them, and that no more processors are used than there are.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/processors.h"
#include "promises.h"

static char root[] = "/tmp/processors-XXXXXX";

/* Make a file below the root, and the directories that lead to it. */
static void
make_file(const char *name, const char *text)
{
	char		path[512];
	FILE	   *file;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++)
	{
		*at = '\0';
		(void) mkdir(path, 0700);
		*at = '/';
	}
	file = fopen(path, "w");
	if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0)
		abort();
}

/* The quota of a process in these groups. */
static double
quota_for(const char *groups)
{
	char		path[512];

	make_file("groups", groups);
	snprintf(path, sizeof(path), "%s/groups", root);
	return processors_quota(path, root);
}

static bool
version_2_is_read(void)
{
	make_file("a/cpu.max", "max 100000\n");
	make_file("a/b/cpu.max", "250000 100000\n");
	make_file("a/b/c/cpu.max", "max 100000\n");
	make_file("a/b/d/cpu.max", "50000 100000\n");
	return quota_for("0::/a\n") == 0 && quota_for("0::/a/b\n") == 2.5 &&
		   quota_for("0::/a/b/d\n") == 0.5;
}

static bool
groups_above_count(void)
{
	return quota_for("0::/a/b/c\n") == 2.5 && quota_for("0::/a/b/not/here\n") == 2.5;
}

static bool
version_1_is_read(void)
{
	make_file("cpu,cpuacct/x/cpu.cfs_quota_us", "400000\n");
	make_file("cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
	make_file("cpu,cpuacct/x/y/cpu.cfs_quota_us", "-1\n");
	make_file("cpu,cpuacct/x/y/cpu.cfs_period_us", "100000\n");
	make_file("cpuset/x/cpu.cfs_quota_us", "100000\n");
	make_file("cpuset/x/cpu.cfs_period_us", "100000\n");
	return quota_for("5:cpuset:/x\n4:memory:/x\n3:cpu,cpuacct:/x/y\n0::/\n") == 4 &&
		   quota_for("5:cpuset:/x\n") == 0;
}

/* Its own group is what is mounted, whatever path is shown. */
static bool
a_container_sees_its_own(void)
{
	make_file("cpu/cpu.cfs_quota_us", "150000\n");
	make_file("cpu/cpu.cfs_period_us", "100000\n");
	return quota_for("1:cpu:/docker/0123456789\n") == 1.5;
}

static bool
what_is_damaged_is_none(void)
{
	make_file("bad/cpu.max", "\n");
	make_file("worse/cpu.max", "100000 0\n");
	return quota_for("") == 0 && quota_for("nonsense\n0:\n::\n") == 0 &&
		   quota_for("0::/bad\n") == 0 && quota_for("0::/worse\n") == 0 &&
		   processors_quota("/not/there", root) == 0;
}

static bool
processors_are_at_most_those_it_runs_on(void)
{
	cpu_set_t	one,
				all;
	long		before = processors_usable();
	bool		fine;

	if (sched_getaffinity(0, sizeof(all), &all) != 0)
		return before >= 1;
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &one);
	fine = before >= 1 && before <= CPU_COUNT(&all) &&
		sched_setaffinity(0, sizeof(one), &one) == 0 && processors_usable() == 1;
	(void) sched_setaffinity(0, sizeof(all), &all);
	return fine;
}

int
main(void)
{
	char		command[64];

	promises_of = "processors";
	if (mkdtemp(root) == NULL)
		abort();
	CHECK(version_2_is_read());
	report("a quota of version 2 is read");
	CHECK(groups_above_count());
	report("so is that of a group above, and of one that is not shown");
	CHECK(version_1_is_read());
	report("a quota of version 1 is read, of the processors' hierarchy");
	CHECK(a_container_sees_its_own());
	report("in a container what is mounted counts");
	CHECK(what_is_damaged_is_none());
	report("what cannot be read is no quota");
	CHECK(processors_are_at_most_those_it_runs_on());
	report("processors are at least one, at most those that the process may run on");
	snprintf(command, sizeof(command), "rm -rf %s", root);
	if (system(command) != 0)
		CHECK(false);
	return promises_end();
}
