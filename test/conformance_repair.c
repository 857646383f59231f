/*
 * conformance_repair.c
 *		Cases of repair: after deletes no live row names a dead slot, every live
 *		row is reached, and the graph answers as a fresh one.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance.h"

#define QUERIES			100
#define QUERY_VARIANT	UINT64_C(5000000)
#define PATIENCE		600.0

/* Let slots die, all at once. */
static void
kill_slots(World *world, const uint32_t *slots, uint32_t count)
{
	uint32_t   *versions = allocate(count * sizeof(uint32_t));
	EngineJob job = {.kind = JOB_DEAD,
					 .mirror = world->mirror,
					 .count = count,
					 .slots = slots,
					 .versions = versions};

	for (uint32_t i = 0; i < count; i++)
	{
		versions[i] = ++world->versions[slots[i]];
		world->live[slots[i]] = false;
	}
	CHECK(run_job(&job, NULL) == ENGINE_OK, "slots cannot be killed");
}

/* Let a share of the rows die at random. */
static void
kill_share(World *world, uint32_t percent)
{
	uint32_t   *slots = allocate(world->rows * sizeof(uint32_t));
	uint32_t	count = 0;

	random_seed(11);
	for (uint32_t slot = 0; slot < world->rows; slot++)
		if (random_below(100) < percent)
			slots[count++] = slot;
	kill_slots(world, slots, count);
}

/*
 * The mean recall of the same queries, from a generator of this world's kind.
 */
static double
mean_recall(const World *world, uint32_t ef)
{
	EngineQuery *queries = allocate(QUERIES * sizeof(EngineQuery));
	char	   *vectors = allocate(QUERIES * world->vector_bytes);

	for (uint32_t i = 0; i < QUERIES; i++)
	{
		make_vector(world, QUERY_VARIANT + i, vectors + i * world->vector_bytes);
		query_init(&queries[i], world, METHOD_GRAPH, 10, ef, vectors + i * world->vector_bytes);
	}
	return sound_recall(world, queries, QUERIES);
}

/* A world of the live rows of another, linked afresh. */
static World *
fresh_of(const World *world, Shape shape)
{
	World	   *fresh;
	uint32_t	live = 0;

	for (uint32_t slot = 0; slot < world->rows; slot++)
		live += world->live[slot];
	fresh = world_create(world->type, world->metric, world->dims, live, live, shape);
	live = 0;
	for (uint32_t slot = 0; slot < world->rows; slot++)
		if (world->live[slot])
			memcpy(fresh->vectors + live++ * world->vector_bytes, world_vector(world, slot),
				   world->vector_bytes);
	world_append(fresh, live);
	world_link(fresh);
	return fresh;
}

/* Whether a repaired world answers as a fresh one of its live rows. */
static void
compare_with_fresh(World *world, Shape shape, uint32_t ef, const char *what)
{
	World	   *fresh = fresh_of(world, shape);
	double		kept = mean_recall(world, ef);
	double		wanted = mean_recall(fresh, ef);

	CHECK(kept >= wanted - 0.01, "%s: recall %.3f, of a fresh graph %.3f", what, kept, wanted);
	world_drop(fresh);
}

/* Half of the rows die, anywhere. */
static void
half(void)
{
	static const Pair kinds[] = {{ELEMENT_FLOAT, METRIC_L2},
								 {ELEMENT_HALF, METRIC_COSINE},
								 {ELEMENT_BIT, METRIC_HAMMING},
								 {ELEMENT_FLOAT, METRIC_IP}};
	uint32_t	rows = options.quick ? 700 : 4000;

	for (int i = 0; i < (options.quick ? 2 : 4); i++)
	{
		World *world =
			world_create(kinds[i].type, kinds[i].metric, 32, rows, rows, SHAPE_CLUSTERED);

		world_append(world, rows);
		world_link(world);
		kill_share(world, 50);
		(void) world_repair(world, NULL, 0);
		check_repaired(world);
		compare_with_fresh(world, SHAPE_CLUSTERED, 40, "half of the rows are dead");
		CHECK(world_repair(world, NULL, 0) == 0, "a second repair changes rows");
		world_drop(world);
	}
}

typedef struct Near
{
	double		distance;
	uint32_t	slot;
} Near;

static int
compare_near(const void *left, const void *right)
{
	const Near *a = left;
	const Near *b = right;

	return a->distance < b->distance ? -1 : a->distance > b->distance;
}

/*
 * Of the rows around a place the nearest die: all that its rows knew is dead,
 * but for the far ones.
 */
static void
nearest(void)
{
	uint32_t	rows = options.quick ? 700 : 6000;
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 16, rows, rows, SHAPE_CLUSTERED);
	Near	   *near = allocate(rows * sizeof(Near));
	uint32_t   *slots = allocate(rows * sizeof(uint32_t));
	char	   *place = allocate(world->vector_bytes);

	world_append(world, rows);
	world_link(world);
	for (uint32_t round = 0; round < 3; round++)
	{
		uint32_t	count = 0;

		make_vector(world, QUERY_VARIANT + round, place);
		for (uint32_t slot = 0; slot < rows; slot++)
			near[slot] = (Near) {model_distance(world, place, world_vector(world, slot)), slot};
		qsort(near, rows, sizeof(Near), compare_near);
		for (uint32_t i = 0; i < rows / 20; i++)
			if (world->live[near[i].slot])
				slots[count++] = near[i].slot;
		kill_slots(world, slots, count);
		(void) world_repair(world, NULL, 0);
		check_repaired(world);
	}
	compare_with_fresh(world, SHAPE_CLUSTERED, 40, "the nearest are dead");
}

/* Nearly all rows die: most of what is left knows nobody who lives. */
static void
few_left(void)
{
	uint32_t	rows = options.quick ? 800 : 3000;
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 16, rows, rows, SHAPE_UNIFORM);

	world_append(world, rows);
	world_link(world);
	kill_share(world, 96);
	(void) world_repair(world, NULL, 0);
	check_repaired(world);
	CHECK(mean_recall(world, 60) >= 0.95, "recall %.3f among the few that are left",
		  mean_recall(world, 60));
}

/*
 * Equal vectors: all, and all but a few. Small whole numbers: equal distances
 * everywhere.
 */
static void
equals(void)
{
	for (int i = 0; i < 3; i++)
	{
		World *world = world_create(ELEMENT_FLOAT, i == 2 ? METRIC_COSINE : METRIC_L2, 8, 600, 600,
									i == 2 ? SHAPE_SMALL : SHAPE_UNIFORM);
		EngineQuery query;

		for (uint32_t slot = 0; slot < 600 && i < 2; slot++)
			if (i == 0 || slot % 50 != 7)
				world_set_vector(world, slot, 1);
		world_append(world, 600);
		world_link(world);
		kill_share(world, 50);
		(void) world_repair(world, NULL, 0);
		check_repaired(world);
		for (uint32_t slot = 7; slot < 600; slot += 50)
		{
			query_init(&query, world, METHOD_GRAPH, 5, 60, world_vector(world, slot));
			query_run(&query);
			check_sound(world, &query);
			CHECK(query.count == 5 &&
					  (!world->live[slot] || i == 2 || query.results[0].distance == 0),
				  "slot %u is not found among equal rows", slot);
		}
		world_drop(world);
	}
}

/* Graphs of a few rows, some of them dead, or all. */
static void
tiny(void)
{
	for (uint32_t rows = 0; rows <= 6; rows++)
		for (uint32_t dead = 0; dead <= rows; dead++)
		{
			World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 4, 8, 8, SHAPE_UNIFORM);
			EngineQuery query;

			if (rows > 0)
				world_append(world, rows);
			world_link(world);
			for (uint32_t slot = 0; slot < dead; slot++)
				world_kill(world, slot);
			(void) world_repair(world, NULL, 0);
			check_repaired(world);
			query_init(&query, world, METHOD_GRAPH, 6, 10, world_vector(world, 0));
			query_run(&query);
			check_sound(world, &query);
			CHECK(query.count == rows - dead, "%u of %u rows are found", query.count, rows - dead);
			world_drop(world);
		}
}

/*
 * Only the slots named are repaired; a result names exactly the rows that
 * changed, ascending, as they are. Pieces add up to a repaired graph.
 */
static void
in_pieces(void)
{
	uint32_t	rows = 700;
	World *world =
		world_create(ELEMENT_FLOAT, METRIC_L2, 16, rows + 100, rows + 100, SHAPE_CLUSTERED);
	uint32_t   *slots = allocate((rows + 101) * sizeof(uint32_t));
	size_t		row_bytes = world->degree * sizeof(uint32_t);

	world_append(world, rows);
	world_link(world);
	world_append(world, 100);	/* these stay pending */
	kill_share(world, 40);
	for (uint32_t first = 0; first < rows + 100; first += 233)
	{
		uint32_t	count = 0;
		uint32_t	at = 0;
		uint32_t   *before = world_graph(world);
		uint32_t   *after;
		EngineJob job = {
			.kind = JOB_REPAIR, .mirror = world->mirror, .ef_construction = 48, .slots = slots};
		JobProgress progress;
		LinkResult	result;
		JobId		id;

		for (uint32_t slot = first; slot < first + 233 && slot < rows + 100; slot++)
			slots[count++] = slot;
		slots[count++] = first;
		slots[count++] = 0x7FFFFFF0;	/* does not exist, and is passed over */
		job.count = count;
		id = start_job(&job);
		must(end_job(id, &progress), &progress.error, "repair");
		CHECK(ops->job_link_result(engine, id, &result) == ENGINE_OK, "no result");
		after = world_graph(world);
		check_rows(world, after);
		for (uint32_t slot = 0; slot < world->rows; slot++)
		{
			bool		listed = at < result.count && result.slots[at] == slot;
			const uint32_t *row = after + (size_t) slot * world->degree;

			if (listed)
			{
				CHECK(memcmp(result.rows + (size_t) at * world->degree, row, row_bytes) == 0,
					  "slot %u is not as the result says", slot);
				CHECK((result.linked[at / 64] >> (at % 64) & 1) != 0, "slot %u is not linked",
					  slot);
				at++;
			}
			else
				CHECK(memcmp(before + (size_t) slot * world->degree, row, row_bytes) == 0,
					  "slot %u changed, but is not in the result", slot);
			for (uint32_t i = 0; i < world->degree && slot >= first && slot < first + 233 &&
								 slot < rows && world->live[slot];
				 i++)
				CHECK(row[i] == NO_SLOT || world->live[row[i]], "slot %u names dead slot %u", slot,
					  row[i]);
		}
		CHECK(at == result.count, "the result is not in slot order");
		ops->job_release(engine, id);
	}
	CHECK(world_info(world).pending > 0, "a repair links");
	(void) world_repair(world, NULL, 0);
	world_link(world);
	check_repaired(world);
}

/*
 * Repairs that defer their results: the first one that does not has the rows
 * that any of them changed, as they are then. Rows that are appended between
 * them do no harm.
 */
static void
deferred(void)
{
	uint32_t	rows = 700;
	World *world =
		world_create(ELEMENT_FLOAT, METRIC_L2, 16, rows + 100, rows + 100, SHAPE_CLUSTERED);
	uint32_t   *slots = allocate(rows * sizeof(uint32_t));
	size_t		row_bytes = world->degree * sizeof(uint32_t);
	uint32_t   *before;
	uint32_t   *after;
	uint32_t	at = 0;
	EngineJob	job = {.kind = JOB_REPAIR, .mirror = world->mirror, .ef_construction = 48};
	JobProgress progress;
	LinkResult	result;
	JobId		id;

	world_append(world, rows);
	world_link(world);
	kill_share(world, 40);
	for (uint32_t slot = 0; slot < rows; slot++)
		slots[slot] = slot;
	before = world_graph(world);
	for (uint32_t first = 0; first < rows; first += 100)
	{
		if (first == 300)
			world_append(world, 100);
		job.slots = slots + first;
		job.count = 100;
		job.defers = true;
		id = start_job(&job);
		must(end_job(id, &progress), &progress.error, "repair");
		CHECK(ops->job_link_result(engine, id, &result) == ENGINE_OK, "no result");
		CHECK(result.count == 0, "%u rows in a deferred result", result.count);
		ops->job_release(engine, id);
	}
	job.slots = NULL;
	job.count = 0;
	job.defers = false;
	id = start_job(&job);
	must(end_job(id, &progress), &progress.error, "repair");
	CHECK(ops->job_link_result(engine, id, &result) == ENGINE_OK, "no result");
	after = world_graph(world);
	check_rows(world, after);
	for (uint32_t slot = 0; slot < rows; slot++)
	{
		const uint32_t *row = after + (size_t) slot * world->degree;
		bool		listed = at < result.count && result.slots[at] == slot;

		CHECK(memcmp(listed ? result.rows + (size_t) at * world->degree
							: before + (size_t) slot * world->degree,
					 row, row_bytes) == 0,
			  "slot %u is not as the result says", slot);
		at += listed;
	}
	CHECK(at == result.count && at > 0, "the result is not in slot order, or empty");
	ops->job_release(engine, id);
	CHECK(world_repair(world, NULL, 0) == 0, "rows come back twice");
	world_link(world);
	check_repaired(world);
}

/*
 * Queries go on beside a repair: each answer is sound, and what they find is
 * near.
 */
static void
beside_searches(void)
{
	uint32_t	rows = options.quick ? 700 : 8000;
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 24, rows, rows, SHAPE_CLUSTERED);
	EngineJob	job = {.kind = JOB_REPAIR, .mirror = world->mirror, .ef_construction = 64};
	JobProgress progress = {0};
	JobId		id;
	double		sum = 0;
	uint32_t	asked = 0;
	double		start = clock_seconds();

	world_append(world, rows);
	world_link(world);
	kill_share(world, 50);
	id = start_job(&job);
	while (!progress.completed || asked < 20)
	{
		EngineQuery query;

		query_init(&query, world, METHOD_GRAPH, 10, 80, world_vector(world, random_below(rows)));
		query_run(&query);
		check_sound(world, &query);
		sum += recall_of(world, &query);
		asked++;
		CHECK(ops->job_poll(engine, id, &progress) == ENGINE_OK, "job_poll does not know a job");
		CHECK(clock_seconds() - start < PATIENCE, "a repair hangs");
	}
	CHECK(progress.status == ENGINE_OK, "%s", progress.error.text);
	CHECK(sum / asked >= 0.9, "recall %.3f of %u queries beside a repair", sum / asked, asked);
	ops->job_release(engine, id);
	(void) world_repair(world, NULL, 0);
	check_repaired(world);
}

/* A repair that is cut short has done a part; the next one does the rest. */
static void
cut_short(void)
{
	uint32_t	rows = options.quick ? 1100 : 8000;
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 24, rows, rows, SHAPE_CLUSTERED);
	EngineJob	job = {.kind = JOB_REPAIR, .mirror = world->mirror, .ef_construction = 64};

	world_append(world, rows);
	world_link(world);
	kill_share(world, 50);
	for (uint32_t round = 0; round < 3; round++)
	{
		JobId		id = start_job(&job);
		JobProgress progress = {0};
		LinkResult	result;
		double		start = clock_seconds();

		while (!progress.completed && progress.done < 100 * round)
		{
			CHECK(ops->job_poll(engine, id, &progress) == ENGINE_OK,
				  "job_poll does not know a job");
			CHECK(clock_seconds() - start < PATIENCE, "a repair hangs");
			usleep(100);
		}
		CHECK(ops->job_cancel(engine, id) == ENGINE_OK, "job_cancel does not know a job");
		(void) end_job(id, &progress);
		CHECK(progress.status == ENGINE_OK || progress.status == ENGINE_CANCELLED,
			  "a repair that was cancelled ends with %d: %s", (int) progress.status,
			  progress.error.text);
		CHECK(ops->job_link_result(engine, id, &result) == ENGINE_OK,
			  "no result of what was repaired");
		ops->job_release(engine, id);
		check_rows(world, world_graph(world));
		CHECK(world_info(world).pending == 0,
			  "a repair that was cut short takes rows out of the graph");
	}
	(void) world_repair(world, NULL, 0);
	check_repaired(world);
}

/* The graph does not depend on the number of threads. */
static void
deterministic(void)
{
	uint32_t   *rows[2];
	uint32_t	n = 500;

	for (int i = 0; i < 2; i++)
	{
		World	   *world = world_create(ELEMENT_FLOAT, METRIC_COSINE, 16, n, n, SHAPE_CLUSTERED);
		EngineJob job = {.kind = JOB_REPAIR,
						 .mirror = world->mirror,
						 .ef_construction = 48,
						 .threads = i == 0 ? 1 : 0};

		world_append(world, n);
		world_link(world);
		kill_share(world, 50);
		CHECK(run_job(&job, NULL) == ENGINE_OK, "repair failed");
		rows[i] = world_graph(world);
	}
	CHECK(memcmp(rows[0], rows[1], n * 32 * sizeof(uint32_t)) == 0,
		  "one thread and several repair differently");
}

/*
 * Rows come, die and are repaired over and over, and linking goes on from
 * there.
 */
static void
rounds(void)
{
	uint32_t	step = options.quick ? 250 : 2000;
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 24, 4 * step, step, SHAPE_CLUSTERED);

	for (uint32_t round = 0; round < 4; round++)
	{
		uint32_t   *slots = allocate(world->room * sizeof(uint32_t));
		uint32_t	count = 0;

		world_append(world, step);
		world_link(world);
		for (uint32_t slot = 0; slot < world->rows; slot++)
			if (world->live[slot] && random_below(10) < 3)
				slots[count++] = slot;
		kill_slots(world, slots, count);
		(void) world_repair(world, NULL, 0);
		check_repaired(world);
	}
	compare_with_fresh(world, SHAPE_CLUSTERED, 40, "after four rounds");
}

const Case repair_cases[] = {
	{"repair_half", half, false},
	{"repair_nearest", nearest, false},
	{"repair_few_left", few_left, false},
	{"repair_equals", equals, false},
	{"repair_tiny", tiny, false},
	{"repair_in_pieces", in_pieces, false},
	{"repair_deferred", deferred, false},
	{"repair_beside_searches", beside_searches, false},
	{"repair_cut_short", cut_short, false},
	{"repair_deterministic", deterministic, false},
	{"repair_rounds", rounds, false},
	{NULL, NULL, false}
};
