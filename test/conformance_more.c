/*
 * conformance_more.c
 *		Cases of many things at once, of large numbers, and of work that is cut
 *		short.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance.h"

#define PATIENCE		120.0	/* seconds */

/* Version v of slot s holds the vector of variant s * 1000 + v. */
#define VARIANT(slot, version) ((uint64_t) (slot) * 1000 + (version))

/* ---- batches under changes ---- */

#define BATCHES			7		/* in flight: more than an engine runs at once */
#define BATCH			120		/* queries of each, at most */
#define ROUNDS			14		/* changes */
#define GONE			0xFFFFFFFFu

/*
 * Batches that are sent again as soon as they are back, and what each slot was
 * after each change.
 */
typedef struct Storm
{
	World	   *world;
	EngineQuery *queries[BATCHES];
	uint32_t	batch;			/* queries of each batch */
	bool		reference;		/* the engine has reference mode */
	uint32_t	left[BATCHES];
	uint32_t	started[BATCHES];	/* changes completed at submit */
	uint32_t	changes;
	uint32_t   *history[ROUNDS + 2];	/* versions after so many changes; GONE: dead, or not yet
										 * there */
	uint32_t	finished;
} Storm;

/*
 * Send a batch: exact and graph searches of several k, each by the vector that
 * some slot has now or had.
 */
static void
storm_send(Storm *storm, uint32_t batch)
{
	World	   *world = storm->world;

	for (uint32_t i = 0; i < storm->batch; i++)
	{
		EngineQuery *query = &storm->queries[batch][i];
		uint32_t	slot = random_below(world->room);

		query->method = i % 4 == 0 ? METHOD_EXACT : METHOD_GRAPH;
		query->reference = storm->reference && i % 16 == 1;
		query->ef = i % 8 == 2 ? 200 : 40;
		make_vector(world, VARIANT(slot, 1 + random_below(3)), (void *) query->vector);
	}
	storm->left[batch] = storm->batch;
	storm->started[batch] = storm->changes;
	queries_submit(storm->queries[batch], storm->batch);
}

/*
 * An answer names what was there when its query was sent, or became so later,
 * with the vector of that version.
 */
static void
storm_check(const Storm *storm, uint32_t batch, const EngineQuery *query)
{
	const World *world = storm->world;
	const uint32_t *before = storm->history[storm->started[batch]];
	char	   *vector = malloc(world->vector_bytes);
	const char *problem =
		query->count < query->k && query->method == METHOD_EXACT ? "too few results" : NULL;

	for (uint32_t i = 0; i < query->count && problem == NULL; i++)
	{
		const SearchResult *result = &query->results[i];

		make_vector(world, VARIANT(result->slot, result->version), vector);
		if (result->slot >= world->room)
			problem = "a slot that is not there";
		else if (before[result->slot] != GONE && result->version < before[result->slot])
			problem = "a version that was gone";
		else if (model_distance(world, query->vector, vector) != result->distance)
			problem = "one version with another's vector";
		else if (i > 0 && !engine_before(result[-1].distance, result[-1].slot, result->distance,
										 result->slot))
			problem = "results out of order";
		for (uint32_t j = 0; j < i; j++)
			if (query->results[j].slot == result->slot)
				problem = "a slot twice";
	}
	free(vector);
	CHECK(problem == NULL, "an answer has %s", problem);
}

/* Take what is back, check it, and send whole batches again. */
static void
storm_turn(Storm *storm, bool again)
{
	EngineQuery *completed[BATCH];
	uint32_t	count = queries_poll(completed, BATCH);

	if (count == 0)
		usleep(50);
	for (uint32_t i = 0; i < count; i++)
	{
		uint32_t	batch = 0;

		must(completed[i]->status, &completed[i]->error, "query in a storm");
		while (completed[i] < storm->queries[batch] ||
			   completed[i] >= storm->queries[batch] + storm->batch)
			batch++;
		storm_check(storm, batch, completed[i]);
		storm->finished++;
		if (--storm->left[batch] == 0 && again)
			storm_send(storm, batch);
	}
}

static Storm *
storm_begin(World *world)
{
	Storm	   *storm = allocate(sizeof(*storm));

	storm->world = world;
	storm->batch = options.quick ? BATCH / 4 : BATCH;
	storm->reference = has_reference(world);
	for (uint32_t i = 0; i < ROUNDS + 2; i++)
	{
		storm->history[i] = allocate(world->room * sizeof(uint32_t));
		memset(storm->history[i], 0xFF, world->room * sizeof(uint32_t));
	}
	for (uint32_t slot = 0; slot < world->rows; slot++)
		storm->history[0][slot] = 1;
	for (uint32_t batch = 0; batch < BATCHES; batch++)
	{
		storm->queries[batch] = allocate(storm->batch * sizeof(EngineQuery));
		for (uint32_t i = 0; i < storm->batch; i++)
			query_init(&storm->queries[batch][i], world, METHOD_GRAPH, 1 + i % 12, 40,
					   allocate(world->vector_bytes));
		storm_send(storm, batch);
	}
	return storm;
}

/* One change of the storm: rows are added, overwritten, die, or are linked. */
static void
storm_change(Storm *storm, uint32_t round)
{
	World	   *world = storm->world;
	uint32_t   *now = storm->history[storm->changes + 1];
	uint32_t	count = round % 4 == 3 ? 0 : 40 + random_below(60);
	uint32_t	first = random_below(world->rows - count);
	uint32_t   *slots = allocate((count + 1) * sizeof(uint32_t));
	uint32_t   *versions = allocate((count + 1) * sizeof(uint32_t));
	char	   *vectors = allocate((count + 1) * world->vector_bytes);
	EngineJob job = {.mirror = world->mirror,
					 .count = count,
					 .slots = slots,
					 .versions = versions,
					 .vectors = vectors,
					 .ef_construction = 24};
	double		start = clock_seconds();
	JobProgress progress;
	JobId		id;

	job.kind = round % 4 == 0	? JOB_APPEND
			   : round % 4 == 1 ? JOB_OVERWRITE
			   : round % 4 == 2 ? JOB_DEAD
								: JOB_LINK;
	if (job.kind == JOB_APPEND)
		first = job.first_slot = world->rows;
	if (job.kind == JOB_LINK)
		job.slots = NULL;
	memcpy(now, storm->history[storm->changes], world->room * sizeof(uint32_t));
	for (uint32_t i = 0; i < count; i++)
	{
		slots[i] = first + i;
		versions[i] = world->versions[first + i] += job.kind != JOB_APPEND;
		now[first + i] = job.kind == JOB_DEAD ? GONE : versions[i];
		make_vector(world, VARIANT(first + i, versions[i]), vectors + i * world->vector_bytes);
	}
	if (job.kind == JOB_APPEND)
		world->rows += count;
	id = start_job(&job);
	do
	{
		storm_turn(storm, true);
		CHECK(ops->job_poll(engine, id, &progress) == ENGINE_OK, "job_poll does not know a job");
		CHECK(clock_seconds() - start < PATIENCE, "a job hangs in a storm");
	} while (!progress.completed);
	must(progress.status, &progress.error, "job in a storm");
	ops->job_release(engine, id);
	storm->changes++;
}

/*
 * Changes of every kind under more batches than an engine runs at once: no
 * answer mixes states.
 */
static void
batches_under_changes(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 24, 2500, 1000, SHAPE_UNIFORM);
	double		start = clock_seconds();
	Storm	   *storm;
	uint32_t	left = BATCHES;

	for (uint32_t slot = 0; slot < world->room; slot++)
		world_set_vector(world, slot, VARIANT(slot, 1));
	world_append(world, 1500);
	world_link(world);
	world_append(world, 200);
	storm = storm_begin(world);
	for (uint32_t round = 0; round < (options.quick ? 6 : ROUNDS); round++)
		storm_change(storm, round);
	while (left > 0)
	{
		storm_turn(storm, false);
		left = 0;
		for (uint32_t batch = 0; batch < BATCHES; batch++)
			left += storm->left[batch] > 0;
		CHECK(clock_seconds() - start < 2 * PATIENCE, "%u batches hang", left);
	}
	CHECK(storm->finished >= BATCHES * storm->batch, "%u queries finished", storm->finished);
}

/* ---- large numbers ---- */

/*
 * More pending rows than one search scans by itself: as exact as few, alone and
 * in batches, under filters and bounds.
 */
static void
many_pending(void)
{
	static const uint32_t batches[] = {1, 5, 60};
	uint32_t	rows = 6000;
	World	   *world = world_create(ELEMENT_HALF, METRIC_COSINE, 12, rows, 10, SHAPE_SMALL);
	uint64_t   *filter = allocate(rows / 8 + 8);
	SearchResult expected[100];

	world_append(world, rows);
	for (uint32_t slot = 0; slot < rows; slot += 5)
		filter[slot / 64] |= UINT64_C(1) << (slot % 64);
	for (uint32_t slot = 0; slot < rows; slot += 611)
		world_kill(world, slot);
	for (uint32_t size = 0; size < 3; size++)
	{
		EngineQuery *queries = allocate(batches[size] * sizeof(EngineQuery));

		for (uint32_t i = 0; i < batches[size]; i++)
		{
			query_init(&queries[i], world, METHOD_GRAPH, i % 3 == 0 ? 100 : 10, 20,
					   world_vector(world, i * 91 + size));
			if (i % 4 == 1)
			{
				queries[i].filter = filter;
				queries[i].filter_slots = rows;
			}
			queries[i].has_beyond = i % 5 == 2;
			queries[i].beyond_distance = 0.5;
			queries[i].beyond_slot = 1000;
		}
		queries_run(queries, batches[size]);
		for (uint32_t i = 0; i < batches[size]; i++)
			check_equal("many pending", &queries[i], expected,
						model_exact(world, &queries[i], rows, expected));
	}
}

/* A search list of thousands, in batches, plain and with a filter. */
static void
wide_list(void)
{
	uint32_t	rows = options.quick ? 3500 : 12000;
	uint32_t	ef = options.quick ? 3000 : ENGINE_MAX_EF;
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 4, rows, rows, SHAPE_UNIFORM);
	uint64_t   *filter = allocate(rows / 8 + 8);
	EngineQuery queries[4];

	world_append(world, rows);
	world_ring(world, 8);
	for (uint32_t slot = 0; slot < rows; slot += 2)
		filter[slot / 64] |= UINT64_C(1) << (slot % 64);
	for (uint32_t i = 0; i < 4; i++)
	{
		query_init(&queries[i], world, METHOD_GRAPH, i == 0 ? ef : ef / 4, ef,
				   world_vector(world, i * 17));
		if (i >= 2)
		{
			queries[i].filter = filter;
			queries[i].filter_slots = rows;
		}
	}
	queries_run(queries, 4);
	for (uint32_t i = 0; i < 4; i++)
	{
		must(queries[i].status, &queries[i].error, "query");
		check_sound(world, &queries[i]);
		CHECK(queries[i].count == queries[i].k, "%u results, not %u", queries[i].count,
			  queries[i].k);
		CHECK(recall_of(world, &queries[i]) >= 0.99, "recall %.3f of query %u",
			  recall_of(world, &queries[i]), i);
	}
}

/*
 * Hundreds of thousands of results; others are answered meanwhile, and a change
 * waits or is seen whole.
 */
static void
huge_k(void)
{
	uint32_t	rows = 300000;
	uint32_t	k = 270000;
	World	   *world = world_create(ELEMENT_HALF, METRIC_L2, 2, rows, rows, SHAPE_UNIFORM);
	SearchResult *expected = allocate((size_t) k * sizeof(SearchResult));
	uint8_t    *seen = allocate(rows);
	uint32_t	slots[2] = {5, 250000};
	uint32_t	versions[2] = {2, 2};
	EngineJob job = {.kind = JOB_OVERWRITE,
					 .mirror = world->mirror,
					 .count = 2,
					 .slots = slots,
					 .versions = versions};
	EngineQuery queries[6];
	EngineQuery *completed[6];
	JobProgress progress;
	JobId		id;

	world_append(world, rows);
	for (uint32_t i = 0; i < 6; i++)
		query_init(&queries[i], world, METHOD_EXACT, i < 2 ? k : 10 + i, 0, world_vector(world, i));
	queries_run(queries, 6);
	for (uint32_t i = 0; i < 6; i++)
		check_equal("huge k", &queries[i], expected,
					model_exact(world, &queries[i], rows, expected));
	job.vectors = world_vector(world, 0);
	queries_submit(queries, 1);
	id = start_job(&job);
	while (queries_poll(completed, 6) == 0)
		usleep(100);
	must(queries[0].status, &queries[0].error, "query");
	CHECK(queries[0].count == k, "%u results, not %u", queries[0].count, k);
	for (uint32_t i = 0; i < k; i++)
		CHECK(seen[queries[0].results[i].slot]++ == 0, "slot %u is in the answer twice",
			  queries[0].results[i].slot);
	must(end_job(id, &progress), &progress.error, "overwrite");
	ops->job_release(engine, id);
	world_set_vector(world, 5, 0);
	world->versions[5] = 2;
	world_set_vector(world, 250000, 1);
	world->versions[250000] = 2;
	query_init(&queries[1], world, METHOD_EXACT, 10, 0, world_vector(world, 1));
	query_run(&queries[1]);
	check_equal("after the change", &queries[1], expected,
				model_exact(world, &queries[1], rows, expected));
}

/* ---- cut short ---- */

static bool
is_poisoned(const EngineQuery *query)
{
	const unsigned char *bytes = (const unsigned char *) query->results;

	for (size_t i = 0; i < query->k * sizeof(SearchResult); i++)
		if (bytes[i] != bytes[query->k * sizeof(SearchResult)])
			return false;
	return (int) query->status == -1;
}

/*
 * Queries are written to by poll alone, whatever else is called meanwhile, the
 * release of a running job above all.
 */
static void
written_by_poll_alone(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 48, 4000, 4000, SHAPE_CLUSTERED);
	EngineJob	link = {.kind = JOB_LINK, .mirror = world->mirror, .ef_construction = 100};
	EngineJob	drop = {.kind = JOB_DROP, .mirror = world->mirror};
	EngineQuery queries[60];
	SearchResult expected[50];
	uint32_t	done = 0;
	JobProgress progress;
	JobId		id;

	world_append(world, 4000);
	for (uint32_t i = 0; i < 60; i++)
		query_init(&queries[i], world, i % 2 ? METHOD_GRAPH : METHOD_EXACT, 1 + i % 50, 60,
				   world_vector(world, i * 7));
	id = start_job(&link);
	queries_submit(queries, 60);
	CHECK(ops->job_poll(engine, id, &progress) == ENGINE_OK, "job_poll does not know a job");
	usleep(20000);
	ops->job_release(engine, id);
	id = start_job(&drop);
	ops->job_release(engine, id);	/* waits for the queries */
	for (uint32_t i = 0; i < 60; i++)
		CHECK(is_poisoned(&queries[i]), "query %u was written to before poll", i);
	while (done < 60)
	{
		EngineQuery *completed[60];
		uint32_t	count = queries_poll(completed, 60);

		CHECK(count > 0, "a drop has completed before its queries");
		done += count;
	}
	for (uint32_t i = 0; i < 60; i += 2)
		check_equal("after a drop", &queries[i], expected,
					model_exact(world, &queries[i], 4000, expected));
}

/* Cancelled jobs in a queue: they do nothing, and those behind them run. */
static void
cancel_in_queue(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 32, 3000, 3000, SHAPE_CLUSTERED);
	EngineJob	link = {.kind = JOB_LINK, .mirror = world->mirror, .ef_construction = 100};
	EngineJob append = {
		.kind = JOB_APPEND, .mirror = world->mirror, .count = 100, .first_slot = 2500};
	JobProgress progress;
	JobId		ids[3];
	MirrorInfo	info;

	world_append(world, 2500);
	append.versions = world->versions + 2500;
	append.vectors = world_vector(world, 2500);
	append.has_position = true;
	append.position = 5;
	ids[0] = start_job(&link);
	ids[1] = start_job(&append);
	ids[2] = start_job(&append);
	CHECK(ops->job_cancel(engine, ids[1]) == ENGINE_OK, "job_cancel does not know a job");
	CHECK(ops->job_cancel(engine, ids[0]) == ENGINE_OK, "job_cancel does not know a job");
	CHECK(end_job(ids[1], &progress) == ENGINE_CANCELLED && progress.error.text[0] != 0,
		  "status %d of a cancelled job", (int) progress.status);
	must(end_job(ids[2], &progress), &progress.error, "append behind cancelled jobs");
	for (int i = 0; i < 3; i++)
		ops->job_release(engine, ids[i]);
	info = world_info(world);
	CHECK(info.rows == 2600 && info.position == 5 && info.linked + info.pending == 2600,
		  "%u rows, position %llu, %u linked, %u pending", info.rows,
		  (unsigned long long) info.position, info.linked, info.pending);
}

/*
 * A query without company is answered as any other, whatever its caller does
 * next: poll, submit other queries or a job.
 */
static void
lone_queries(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 16, 300, 300, SHAPE_UNIFORM);
	EngineQuery lone,
				other;
	EngineQuery *completed[2];
	EngineJob job = {.kind = JOB_APPEND,
					 .mirror = world->mirror,
					 .first_slot = 300,
					 .has_position = true,
					 .position = 7};
	uint32_t	back;
	double		start;

	world_append(world, 300);
	world_link(world);
	for (uint32_t turn = 0; turn < (options.quick ? 6u : 30u); turn++)
	{
		bool		with_job = turn % 3 == 1;
		bool		with_query = turn % 3 == 2;
		JobProgress progress;
		JobId		id = 0;

		query_init(&lone, world, METHOD_GRAPH, 10, 40, world_vector(world, turn * 7));
		query_init(&other, world, METHOD_GRAPH, 10, 40, world_vector(world, turn * 7));
		lone.lone = true;
		other.lone = turn % 2 == 0;
		queries_submit(&lone, 1);
		if (with_job)
			id = start_job(&job);
		if (with_query)
			queries_submit(&other, 1);
		start = clock_seconds();
		for (back = queries_poll(completed, 2); back < 1u + with_query;
			 back += queries_poll(completed, 2))
		{
			CHECK(clock_seconds() - start < PATIENCE, "a lone query hangs");
			usleep(50);
		}
		if (with_job)
		{
			must(end_job(id, &progress), &progress.error, "a job beside a lone query");
			ops->job_release(engine, id);
		}
		must(lone.status, &lone.error, "a lone query");
		check_sound(world, &lone);
		if (!with_query)
			query_run(&other);
		CHECK(other.count == lone.count &&
				  memcmp(other.results, lone.results, lone.count * sizeof(SearchResult)) == 0,
			  "a lone query is answered otherwise");
	}
}

/*
 * Link until some rows are linked, then cut it short; returns how many slots
 * the result calls linked.
 */
static uint32_t
cut_short(const World *world, uint8_t *linked)
{
	EngineJob	link = {.kind = JOB_LINK, .mirror = world->mirror, .ef_construction = 60};
	JobId		id = start_job(&link);
	JobProgress progress = {0};
	LinkResult	result;
	uint32_t	count = 0;
	double		start = clock_seconds();

	while (!progress.completed && progress.done < 300)
	{
		CHECK(ops->job_poll(engine, id, &progress) == ENGINE_OK, "job_poll does not know a job");
		CHECK(clock_seconds() - start < PATIENCE, "a link hangs");
		usleep(100);
	}
	CHECK(ops->job_cancel(engine, id) == ENGINE_OK, "job_cancel does not know a job");
	(void) end_job(id, &progress);
	CHECK(ops->job_link_result(engine, id, &result) == ENGINE_OK, "no result of what was linked");
	for (uint32_t i = 0; i < result.count; i++)
		if (result.linked[i / 64] >> (i % 64) & 1)
		{
			CHECK(result.slots[i] < world->rows, "slot %u is linked", result.slots[i]);
			count += linked[result.slots[i]] == 0;
			linked[result.slots[i]] = 1;
		}
	ops->job_release(engine, id);
	return count;
}

/*
 * A link cut short says what it linked; the rest is pending, is found, and is
 * linked later.
 */
static void
cut_short_link(void)
{
	uint32_t	rows = 3000;
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 32, rows, rows, SHAPE_UNIFORM);
	uint8_t    *linked = allocate(rows);
	uint32_t	count;
	EngineQuery query;
	MirrorInfo	info;

	world_append(world, rows);
	count = cut_short(world, linked);
	info = world_info(world);
	CHECK(info.linked == count && info.pending == rows - count,
		  "%u linked, %u pending; the result says %u of %u", info.linked, info.pending, count,
		  rows);
	for (uint32_t slot = 3; slot < rows; slot += 97)
	{
		query_init(&query, world, METHOD_GRAPH, 5, 40, world_vector(world, slot));
		query_run(&query);
		check_sound(world, &query);
		CHECK(query.counters.pending == info.pending, "%u pending rows searched, not %u",
			  query.counters.pending, info.pending);
		CHECK(linked[slot] || query.results[0].slot == slot, "pending slot %u is missed", slot);
	}
	world_kill(world, 17);
	count += cut_short(world, linked);
	world_link(world);
	info = world_info(world);
	CHECK(info.linked >= rows - 1 && info.pending == 0 && count <= rows,
		  "%u linked, %u pending after all", info.linked, info.pending);
	query_init(&query, world, METHOD_GRAPH, 10, 200, world_vector(world, 99));
	query_run(&query);
	check_sound(world, &query);
	CHECK(recall_of(world, &query) >= 0.8, "recall %.2f after links cut short",
		  recall_of(world, &query));
}

/* ---- a device that fails ---- */

/* Work on an engine whose device fails at some time. */
static void
work_until_failure(World *world)
{
	EngineJob append = {.kind = JOB_APPEND,
						.mirror = world->mirror,
						.count = 1000,
						.versions = world->versions,
						.vectors = world->vectors};
	EngineQuery queries[20];
	EngineQuery *pointers[20];
	EngineStatus status = ENGINE_OK;
	EngineError error = {0};
	double		start = clock_seconds();
	JobProgress progress = {0};
	JobId		id = 0;

	status = ops->job_submit(engine, &append, &id, &error);
	for (uint32_t i = 0; i < 20; i++)
		query_init(&queries[i], world, i % 2 ? METHOD_GRAPH : METHOD_EXACT, 10, 40, world->vectors);
	while (status == ENGINE_OK)
	{
		uint32_t	count;
		uint32_t	left = 20;

		for (uint32_t i = 0; i < 20; i++)
			pointers[i] = &queries[i];
		status = ops->submit(engine, pointers, 20, &error);
		while (status == ENGINE_OK && left > 0)
		{
			status = ops->poll(engine, pointers, 20, &count, &error);
			left -= status == ENGINE_OK ? count : 0;
			CHECK(clock_seconds() - start < PATIENCE, "nobody notices that the device has failed");
		}
	}
	CHECK(status == ENGINE_FAILED && error.text[0] != 0, "status %d: %s", (int) status, error.text);
	CHECK(ops->submit(engine, pointers, 1, &error) == ENGINE_FAILED,
		  "a failed engine takes queries");
	CHECK(ops->job_submit(engine, &append, &id, &error) == ENGINE_FAILED,
		  "a failed engine takes jobs");
	if (id != 0 && ops->job_poll(engine, id, &progress) == ENGINE_OK)
		CHECK(progress.completed, "a job of a failed engine is said to run");
}

/*
 * A device error is not survived: everything says so, nothing hangs, closing
 * works.
 */
static void
device_failure(void)
{
	EngineInfo	info;

	ops->info(engine, &info);
	if (strncmp(info.device, "emulated", 8) != 0)
		skip("only an emulated device fails when it is told to");
	ops->close(engine);
	engine = NULL;
	for (uint32_t after = 3; after < 400; after = after * (options.quick ? 3 : 2) + 1)
	{
		EngineConfig config = {.device = options.device};
		EngineError error = {0};
		EngineStatus status;
		char		number[16];

		snprintf(number, sizeof(number), "%u", after);
		setenv("GPUANN_EMULATE_FAILURE", number, 1);
		status = ops->open(&config, &engine, &error);
		unsetenv("GPUANN_EMULATE_FAILURE");
		/* the first pieces of work are those of opening */
		if (status != ENGINE_OK)
		{
			CHECK(status == ENGINE_FAILED && after < 20, "open after %u pieces: status %d: %s", after,
				  (int) status, error.text);
			continue;
		}
		work_until_failure(world_create(ELEMENT_FLOAT, METRIC_COSINE, 8, 1000, 100, SHAPE_UNIFORM));
		ops->close(engine);
		engine = NULL;
	}
}

const Case more_cases[] = {
	{"batches_under_changes", batches_under_changes, false},
	{"many_pending", many_pending, false},
	{"wide_list", wide_list, false},
	{"huge_k", huge_k, true},
	{"written_by_poll_alone", written_by_poll_alone, false},
	{"cancel_in_queue", cancel_in_queue, false},
	{"cut_short_link", cut_short_link, false},
	{"lone_queries", lone_queries, false},
	{"device_failure", device_failure, false},
	{NULL, NULL, false}
};
