/*
 * protocol_test_cycles.c
 *		Mirrors come and go by the thousand, with their clients: the server's
 *		memory, descriptors and threads stay as they are.
 *
 * GPUANN_LONG=1 goes round 100,000 times.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol_test.h"

#define CYCLES		2000
#define LONG_CYCLES 100000
#define ENTRIES		61			/* of the mirror table, in turns */
#define ROWS		128
#define ROOM_KB		16384		/* what the allocator of several threads may keep of what was freed,
								 * now more, now less */

/* What the server uses. */
typedef struct Usage
{
	uint64_t	mirrors;		/* bytes, by its own count */
	long		resident_kb;
	long		descriptors;
	long		threads;
} Usage;

/* Entries of a directory of the server's in /proc; -1: it cannot be read. */
static long
count_entries(const World *world, const char *name)
{
	char		path[64];
	DIR		   *directory;
	long		count = 0;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int) world->server, name);
	directory = opendir(path);
	if (directory == NULL)
		return -1;
	while (readdir(directory) != NULL)
		count++;
	closedir(directory);
	return count;
}

static Usage
usage_now(World *world)
{
	Usage		usage = {0};
	char		path[64];
	FILE	   *file;
	long		pages = 0;
	long		shared = 0;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int) world->server);
	file = fopen(path, "r");
	if (file == NULL || fscanf(file, "%*s %ld %ld", &pages, &shared) != 2)
		case_fails("%s cannot be read", path);
	if (file != NULL)
		fclose(file);
	/* What is shared is the area, of which ever more pages are met. */
	usage.resident_kb = (pages - shared) * (sysconf(_SC_PAGESIZE) / 1024);
	usage.mirrors = atomic_load(&world->area->memory_used);
	usage.descriptors = count_entries(world, "fd");
	usage.threads = count_entries(world, "task");
	return usage;
}

/* Search an entry and compare. */
static void
search_entry(World *world, uint32_t entry, uint64_t *random)
{
	Client		client;
	Search		search;
	Answer		answer;
	const char *wrong;

	client_begin(&client, world->area, 0);
	search_random(&search, world->area, entry, random);
	REQUIRE(client_search(&client, &search, LONG_MS * 1000, &answer) == OUTCOME_ANSWERED,
			"a request is not answered");
	REQUIRE(answer.status == ENGINE_OK, "a request is refused: %s", answer.error);
	if ((wrong = answer_wrong(&search, &answer)) != NULL)
		case_fails("wrong answer: %s", wrong);
}

/*
 * A mirror from its making to its end: dropped by name, replaced by the next of
 * its entry, or left for the server to find.
 */
static void
cycle(World *world, uint32_t number, uint64_t *random)
{
	uint32_t	entry = number % ENTRIES;
	int			channel;

	if (!entry_load(world->area, entry, ROWS))
		return;
	channel = channel_claim(world->area);
	REQUIRE(channel >= 0, "no channel is free");
	if (number % 5 == 0)
	{
		channel_prepare(world->area, channel, CHANNEL_LINK, entry)->request.ef_construction = 32;
		if (channel_call(world->area, channel) != ENGINE_OK)
			case_fails("link: %.100s", area_channel(world->area, (uint32_t) channel)->error);
	}
	search_entry(world, entry, random);
	if (number % 3 == 0)
	{
		channel_prepare(world->area, channel, CHANNEL_DROP, entry);
		if (channel_call(world->area, channel) != ENGINE_OK)
			case_fails("drop: %.100s", area_channel(world->area, (uint32_t) channel)->error);
	}
	else if (number % 3 == 1)
		entry_claim(world->area, entry);
	channel_release(world->area, channel);
}

/*
 * Drop what is left, and wait until the server counts no mirror: its own memory
 * is all that it has.
 */
static Usage
settle(World *world, uint64_t none)
{
	for (uint32_t entry = 0; entry < ENTRIES; entry++)
		entry_claim(world->area, entry);
	for (int64_t until = now_us() + LONG_MS * 1000; now_us() < until; pause_us(10000))
		if (atomic_load(&world->area->memory_used) <= none)
			break;
	return usage_now(world);
}

static void
cycles_leave_nothing(void)
{
	uint32_t	cycles = getenv("GPUANN_LONG") != NULL ? LONG_CYCLES : CYCLES;
	World	   *world = world_make(4, 2);
	uint64_t	random = 12345;
	uint64_t	none;
	Usage		before = {0};
	Usage		after = {0};

	if (server_up(world, NULL))
	{
		none = atomic_load(&world->area->memory_used);
		for (uint32_t number = 0; number < cycles && !case_failed(); number++)
		{
			if (number == cycles / 5)
				before = settle(world, none);
			cycle(world, number, &random);
		}
		if (!case_failed())
		{
			after = settle(world, none);
			printf("# %u cycles: %ld kB resident, then %ld\n", cycles - cycles / 5,
				   before.resident_kb, after.resident_kb);
			if (after.mirrors != none || before.mirrors != none)
				case_fails("%llu bytes of mirrors are counted, then %llu, then %llu",
						   (unsigned long long) none, (unsigned long long) before.mirrors,
						   (unsigned long long) after.mirrors);
			if (after.descriptors != before.descriptors || after.descriptors < 0)
				case_fails("%ld descriptors, then %ld", before.descriptors, after.descriptors);
			if (after.threads != before.threads)
				case_fails("%ld threads, then %ld", before.threads, after.threads);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
			if (after.resident_kb > before.resident_kb + ROOM_KB)
				case_fails("%ld kB resident, then %ld", before.resident_kb, after.resident_kb);
#endif
		}
	}
	world_free(world);
}

const TestCase cycle_cases[] = {
	{"cycles_leave_nothing", cycles_leave_nothing},
	{NULL, NULL}
};
