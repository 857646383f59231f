/*
 * conformance_cycles.c
 *		Cases of coming and going: mirrors made, filled, linked, searched and
 *		dropped leave nothing behind.
 *
 * GPUANN_LONG=1 goes round 100,000 times.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance.h"

#define CYCLES			2000
#define LONG_CYCLES		100000
#define ROWS			192
#define RESULTS			10
/*
 * An allocator keeps some of what was freed; what leaks with every cycle is
 * more than this long before the end.
 */
#define ROOM_KB			4096

/* What this process uses. */
typedef struct Usage
{
	uint64_t	engine;			/* bytes of mirrors, by the engine's own count */
	long		resident_kb;
	long		mappings;
	long		descriptors;
	long		threads;
} Usage;

/* Entries of a directory. */
static long
count_entries(const char *path)
{
	DIR		   *directory = opendir(path);
	long		count = 0;

	CHECK(directory != NULL, "%s cannot be read", path);
	while (readdir(directory) != NULL)
		count++;
	closedir(directory);
	return count;
}

/* Lines of a file. */
static long
count_lines(const char *path)
{
	FILE	   *file = fopen(path, "r");
	long		count = 0;

	CHECK(file != NULL, "%s cannot be read", path);
	for (int c; (c = getc(file)) != EOF;)
		count += c == '\n';
	fclose(file);
	return count;
}

static Usage
usage_now(void)
{
	Usage		usage = {0};
	EngineMemory memory = {0};
	FILE	   *file = fopen("/proc/self/statm", "r");
	long		pages = 0;

	CHECK(file != NULL && fscanf(file, "%*s %ld", &pages) == 1, "/proc/self/statm cannot be read");
	fclose(file);
	ops->memory(engine, &memory);
	usage.engine = memory.used;
	usage.resident_kb = pages * (sysconf(_SC_PAGESIZE) / 1024);
	usage.mappings = count_lines("/proc/self/maps");
	usage.descriptors = count_entries("/proc/self/fd");
	usage.threads = count_entries("/proc/self/task");
	return usage;
}

/* Link all rows; the result is only looked at. */
static void
link_rows(const World *world)
{
	EngineJob	job = {.kind = JOB_LINK, .mirror = world->mirror, .ef_construction = 32};
	JobProgress progress;
	LinkResult	result;
	JobId		id = start_job(&job);

	must(end_job(id, &progress), &progress.error, "link");
	CHECK(ops->job_link_result(engine, id, &result) == ENGINE_OK, "no result of a completed link");
	ops->job_release(engine, id);
}

/*
 * A mirror from its making to its end; every third is dropped half loaded,
 * every seventh unlinked.
 */
static void
cycle(World *world, uint32_t number, SearchResult *results)
{
	MirrorSpec spec = {.dims = world->dims,
					   .type = world->type,
					   .metric = world->metric,
					   .method = METHOD_GRAPH,
					   .degree = world->degree,
					   .capacity = ROWS,
					   .residency = RESIDENCY_FULL,
					   .placement = PLACEMENT_SINGLE,
					   .device = -1};
	EngineError error = {0};
	EngineQuery query = {
		.method = number % 2 ? METHOD_GRAPH : METHOD_EXACT, .k = RESULTS, .ef = 40};

	must(ops->mirror_create(engine, &spec, &world->mirror, &error), &error, "mirror_create");
	world->rows = 0;
	world_append(world, ROWS / 2);
	if (number % 3 != 0)
	{
		if (number % 7 != 0)
			link_rows(world);
		world_append(world, ROWS / 2);
	}
	query.mirror = world->mirror;
	query.vector = world_vector(world, number % world->rows);
	query.results = results;
	query_run(&query);
	must(query.status, &query.error, "query");
	CHECK(query.count == RESULTS && query.results[0].distance == 0.0,
		  "cycle %u: a row does not find itself", number);
	world_drop(world);
}

/* After a first part that fills caches, nothing grows. */
static void
cycles_leave_nothing(void)
{
	uint32_t	cycles = getenv("GPUANN_LONG") != NULL ? LONG_CYCLES : CYCLES;
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 16, ROWS, ROWS, SHAPE_UNIFORM);
	SearchResult *results = allocate((RESULTS + 1) * sizeof(SearchResult));
	Usage		before = {0};
	Usage		after;

	world_drop(world);
	for (uint32_t number = 0; number < cycles; number++)
	{
		if (number == cycles / 5)
			before = usage_now();
		cycle(world, number, results);
	}
	after = usage_now();
	printf("# %u cycles: %ld kB resident, then %ld; %ld mappings, then %ld\n", cycles - cycles / 5,
		   before.resident_kb, after.resident_kb, before.mappings, after.mappings);
	CHECK(after.engine == before.engine, "the engine counts %llu bytes, then %llu",
		  (unsigned long long) before.engine, (unsigned long long) after.engine);
	CHECK(after.descriptors == before.descriptors, "%ld descriptors, then %ld", before.descriptors,
		  after.descriptors);
	CHECK(after.threads == before.threads, "%ld threads, then %ld", before.threads, after.threads);
	CHECK(after.mappings <= before.mappings + 8, "%ld mappings, then %ld", before.mappings,
		  after.mappings);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	CHECK(after.resident_kb <= before.resident_kb + ROOM_KB, "%ld kB resident, then %ld",
		  before.resident_kb, after.resident_kb);
#endif
}

const Case cycle_cases[] = {
	{"cycles_leave_nothing", cycles_leave_nothing, true},
	{NULL, NULL, false}
};
