/*
 * conformance_halves.c
 *		Cases of the CPU engine's long links, which walk over copies of the rows
 *		as halves: what it links must not show it.
 *
 * Whether there are copies is seen by what the engine holds while it links.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "conformance.h"

#define DIMS	72

static uint32_t
table_rows(void)
{
	return options.quick ? 1500 : 4000;
}

static float *
element_of(World *world, uint32_t slot, uint32_t i)
{
	return (float *) (void *) (world->vectors + slot * world->vector_bytes) + i;
}

/*
 * A table whose elements no half holds exactly (those of other cases are such
 * that it does), times a factor, plus an offset.
 */
static World *
make_table(Metric metric, float factor, float offset)
{
	World	   *world;

	if (strcmp(options.engine, "cpu") != 0)
		skip("no copies: not the CPU engine");
	world = world_create(ELEMENT_FLOAT, metric, DIMS, table_rows(), table_rows(), SHAPE_CLUSTERED);
	for (uint32_t slot = 0; slot < world->room; slot++)
		for (uint32_t i = 0; i < DIMS; i++)
			*element_of(world, slot, i) =
				(*element_of(world, slot, i) + (float) (slot * 31 + i * 17) * 1e-7f) * factor +
				offset;
	return world;
}

static uint64_t
bytes_used(void)
{
	EngineMemory memory;

	ops->memory(engine, &memory);
	return memory.used;
}

/*
 * What the engine takes for the copies, and for the distances that it remembers
 * beside.
 */
static uint64_t
copy_bytes(const World *world)
{
	return (uint64_t) world->room * ((DIMS * 2 + 63) / 64 * 64);
}

static uint64_t
other_bytes(const World *world)
{
	return (uint64_t) world->room * (world->degree * sizeof(float) + 1);
}

/*
 * Append all rows and link them; returns whether the engine held copies between
 * batches.
 */
static bool
link_table(World *world, int threads)
{
	EngineJob job = {
		.kind = JOB_LINK, .mirror = world->mirror, .ef_construction = 64, .threads = threads};
	JobProgress progress = {0};
	uint64_t	before;
	uint64_t	held = 0;
	JobId		id;

	world_append(world, world->room);
	before = bytes_used();
	id = start_job(&job);
	while (!progress.completed)
	{
		uint64_t	now = bytes_used() - before;

		/* before the first batch there may be copies that are given up */
		if (progress.done > 0 && now > held)
			held = now;
		usleep(100);
		CHECK(ops->job_poll(engine, id, &progress) == ENGINE_OK, "job_poll does not know a job");
	}
	must(end_job(id, &progress), &progress.error, "link");
	ops->job_release(engine, id);
	CHECK(bytes_used() == before, "a link keeps %lld bytes", (long long) (bytes_used() - before));
	return held >= copy_bytes(world) + other_bytes(world);
}

static void
check_held(bool held, bool expected, const char *what)
{
	CHECK(held == expected, "%s: linked %s", what, held ? "over copies" : "without copies");
}

/*
 * The graph is sound, and searches from rows spread over the table find their
 * neighbours.
 */
static void
check_recall(World *world, double least, const char *what)
{
	EngineQuery *queries = allocate(60 * sizeof(EngineQuery));
	double		recall;

	world_link(world);			/* what is left; and it tells the seeds */
	check_linked(world);
	for (uint32_t i = 0; i < 60; i++)
		query_init(&queries[i], world, METHOD_GRAPH, 10, 80,
				   world_vector(world, i * (world->rows / 60)));
	recall = sound_recall(world, queries, 60);
	CHECK(recall >= least, "%s: recall %.3f", what, recall);
}

/* Metrics of floats, over copies. */
static void
metrics_over_halves(void)
{
	static const Metric metrics[] = {METRIC_L2, METRIC_IP, METRIC_COSINE, METRIC_L1};

	for (int i = 0; i < 4; i++)
	{
		World	   *world = make_table(metrics[i], 1, 0);

		check_held(link_table(world, 0), true, "a table");
		check_recall(world, metrics[i] == METRIC_IP ? 0.8 : 0.95, "a table");
		world_drop(world);
	}
}

#define GROUP	50				/* rows, the first 40 of them nearly equal */

/*
 * Whether a row knows one of the two rows beside it in its group, which are its
 * nearest.
 */
static bool
knows_nearest(const uint32_t *row, uint32_t degree, uint32_t slot)
{
	for (uint32_t i = 0; i < degree && row[i] != NO_SLOT; i++)
		if (row[i] == slot + 1 || row[i] + 1 == slot)
			return true;
	return false;
}

/*
 * Groups of rows whose copies are the same or nearly so, along a line in each:
 * they find each other, and rows know their nearest.
 */
static void
near_equals(void)
{
	static const float steps[] = {1e-6f, 1e-5f, 1e-4f};

	for (int i = 0; i < 3; i++)
	{
		World	   *world = make_table(i == 1 ? METRIC_L1 : METRIC_L2, 1, 0);
		uint32_t   *graph;
		uint32_t	know = 0;

		for (uint32_t slot = 0; slot < world->room; slot++)
			if (slot % GROUP > 0 && slot % GROUP < 40)
			{
				memcpy(element_of(world, slot, 0), world_vector(world, slot - slot % GROUP),
					   world->vector_bytes);
				*element_of(world, slot, 0) += steps[i] * (float) (slot % GROUP);
			}
		check_held(link_table(world, 0), true, "groups of rows nearly equal");
		check_recall(world, 0.9, "groups of rows nearly equal");
		graph = world_graph(world);
		for (uint32_t slot = 10; slot < world->room; slot += GROUP)
			know += knows_nearest(graph + (size_t) slot * world->degree, world->degree, slot);
		CHECK(know >= world->room / GROUP * 8 / 10, "%u of %u rows know their nearest", know,
			  world->room / GROUP);
		world_drop(world);
	}
}

/*
 * Most rows are one vector, which no half holds, some very nearly: the others
 * are found, and so are the many.
 */
static void
crowd(void)
{
	World	   *world = make_table(METRIC_L2, 1, 0);
	uint32_t	others = 0;
	uint32_t   *graph;

	for (uint32_t slot = 0; slot < world->room; slot++)
		if (slot % 50 > 7)
		{
			memcpy(element_of(world, slot, 0), world_vector(world, 7), world->vector_bytes);
			*element_of(world, slot, 0) += 1;
			*element_of(world, slot, 1) += slot % 50 == 8 ? 1e-5f : 0;
		}
	(void) link_table(world, 0);
	check_recall(world, 0.9, "a crowd");
	graph = world_graph(world);
	for (uint32_t slot = 9; slot < world->room; slot += 50)
		for (uint32_t i = 0; i < world->degree && graph[slot * world->degree + i] != NO_SLOT; i++)
			others += graph[slot * world->degree + i] % 50 <= 7;
	CHECK(others >= world->room / 50 * (world->degree / 4), "%u rows of a crowd know %u others",
		  world->room / 50, others);
	check_equals_found(world);
}

/*
 * Rows beyond the range of halves, or alike as halves, are walked over as they
 * are. One row of that kind suffices.
 */
static void
unfit_rows(void)
{
	static const Metric metrics[] = {METRIC_L2, METRIC_IP, METRIC_L1};
	static const float factors[] = {1e6f, 1e-7f, 0.1f};
	static const float offsets[] = {0, 0, 1000};

	for (int metric = 0; metric < 3; metric++)
		for (int i = 0; i < 4; i++)
		{
			World *world =
				make_table(metrics[metric], i < 3 ? factors[i] : 1, i < 3 ? offsets[i] : 0);

			if (i == 3)
				*element_of(world, world->room / 2, 3) = 70000;
			check_held(link_table(world, 0), false,
					   i == 0	? "large elements"
					   : i == 1 ? "small elements"
					   : i == 2 ? "far from the origin"
								: "a large element");
			/*
			 * as inner products go, rows far from the origin are equal but for
			 * single precision's rounding: the graph is what it is
			 */
			if (metrics[metric] != METRIC_IP || i != 2)
				check_recall(world, metrics[metric] == METRIC_IP ? 0.8 : 0.95,
							 "rows that halves do not hold");
			world_drop(world);
		}
	/*
	 * directions are held whatever the lengths, but not of rows that all point
	 * one way
	 */
	for (int i = 0; i < 3; i++)
	{
		World	   *world = make_table(METRIC_COSINE, factors[i], offsets[i]);

		check_held(link_table(world, 0), i < 2, "directions");
		if (i < 2)
			check_recall(world, 0.95, "directions");
		world_drop(world);
	}
}

/* Where there is no memory for copies rows are linked without. */
static void
no_room(void)
{
	World	   *world = make_table(METRIC_L2, 1, 0);
	EngineConfig config = {.device = options.device, .simd = options.simd};

	config.memory_limit = bytes_used() + other_bytes(world) + copy_bytes(world) / 2;
	reopen(&config);
	world = make_table(METRIC_L2, 1, 0);
	check_held(link_table(world, 0), false, "no room");
	check_recall(world, 0.95, "no room");
	world_drop(world);
}

/*
 * A link that is cut short, at the first batch at the earliest or while it
 * copies, gives the copies back; the rest is linked later.
 */
static void
cut_short(void)
{
	for (int i = 0; i < 2; i++)
	{
		World	   *world = make_table(METRIC_COSINE, 1, 0);
		EngineJob	job = {.kind = JOB_LINK, .mirror = world->mirror, .ef_construction = 64};
		JobProgress progress = {0};
		uint64_t	before;
		JobId		id;

		world_append(world, world->room);
		before = bytes_used();
		id = start_job(&job);
		while (i == 0 && progress.done == 0 && !progress.completed)
			CHECK(ops->job_poll(engine, id, &progress) == ENGINE_OK,
				  "job_poll does not know a job");
		CHECK(ops->job_cancel(engine, id) == ENGINE_OK, "job_cancel does not know a job");
		(void) end_job(id, &progress);
		CHECK(progress.status == ENGINE_CANCELLED || progress.status == ENGINE_OK,
			  "a cancelled link ends with status %d", (int) progress.status);
		ops->job_release(engine, id);
		CHECK(bytes_used() == before, "a link that was cut short keeps %lld bytes",
			  (long long) (bytes_used() - before));
		check_recall(world, 0.95, "what was cut short");
		world_drop(world);
	}
}

/* The graph does not depend on the number of threads. */
static void
threads(void)
{
	static const Metric metrics[] = {METRIC_L2, METRIC_COSINE};

	for (int m = 0; m < 2; m++)
	{
		uint32_t   *graphs[2];
		size_t		bytes = 0;

		for (int i = 0; i < 2; i++)
		{
			World	   *world = make_table(metrics[m], 1, 0);

			for (uint32_t slot = 1; slot < world->room; slot += 9)
				memcpy(element_of(world, slot, 0), world_vector(world, 0), world->vector_bytes);
			check_held(link_table(world, i == 0 ? 1 : 0), true, "a table with a crowd");
			graphs[i] = world_graph(world);
			bytes = (size_t) world->rows * world->degree * sizeof(uint32_t);
			world_drop(world);
		}
		CHECK(memcmp(graphs[0], graphs[1], bytes) == 0, "one thread and several link differently");
	}
}

const Case halves_cases[] = {
	{"halves_metrics", metrics_over_halves, false},
	{"halves_near_equals", near_equals, false},
	{"halves_crowd", crowd, false},
	{"halves_unfit_rows", unfit_rows, false},
	{"halves_no_room", no_room, false},
	{"halves_cut_short", cut_short, false},
	{"halves_threads", threads, false},
	{NULL, NULL, false}
};
