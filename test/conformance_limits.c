/*
 * conformance_limits.c
 *		Cases at the edges: memory limits, cancels, wrong arguments, dropped
 *		mirrors, waking.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance.h"

/*
 * Open an engine whose limit leaves so many bytes for mirrors, in place of the
 * case's own.
 */
static void
limit_engine(uint64_t bytes)
{
	EngineConfig config = {.device = options.device, .simd = options.simd};
	EngineMemory memory;

	ops->memory(engine, &memory);
	CHECK(memory.used ==
			  memory.context + memory.vectors + memory.graph + memory.norms + memory.state,
		  "memory figures do not add up");
	CHECK(memory.used <= memory.limit, "more is used than the limit allows");
	config.memory_limit = memory.used + bytes;
	ops->close(engine);
	engine = NULL;
	engine = open_engine(&config, ENGINE_OK);
}

/*
 * Append a world's rows to its mirror again and again, until that is refused,
 * before it has `most` rows: with figures, and nothing has changed.
 */
static void
append_until_refused(const World *world, uint32_t most)
{
	EngineJob job = {.kind = JOB_APPEND,
					 .mirror = world->mirror,
					 .count = world->rows,
					 .versions = world->versions,
					 .vectors = world->vectors};
	EngineMemory memory;
	JobProgress progress;
	EngineStatus status = ENGINE_OK;

	for (uint32_t rows = world->rows; rows < most && status == ENGINE_OK; rows += world->rows)
	{
		job.first_slot = rows;
		status = run_job(&job, &progress);
		ops->memory(engine, &memory);
		CHECK(memory.used <= memory.limit, "%llu bytes used of %llu",
			  (unsigned long long) memory.used, (unsigned long long) memory.limit);
		if (status != ENGINE_OK)
			CHECK(world_info(world).rows == rows, "a refused append left %u rows of %u",
				  world_info(world).rows, rows);
	}
	CHECK(status == ENGINE_NO_MEMORY, "status %d when the limit is reached", (int) status);
	CHECK(strpbrk(progress.error.text, "0123456789") != NULL, "the refusal has no figures: %s",
		  progress.error.text);
}

/*
 * A mirror that does not fit is refused with figures; one that outgrows the
 * limit fails its job and stays as it was.
 */
static void
memory_limit(void)
{
	MirrorSpec spec = {.dims = 1000,
					   .type = ELEMENT_FLOAT,
					   .metric = METRIC_L2,
					   .method = METHOD_GRAPH,
					   .degree = 32,
					   .capacity = 100000000,
					   .residency = RESIDENCY_FULL,
					   .placement = PLACEMENT_SINGLE,
					   .device = -1};
	MirrorId	id = 0;
	EngineError error = {0};
	World	   *world;
	EngineQuery query;

	limit_engine(UINT64_C(64) << 20);
	CHECK(ops->mirror_create(engine, &spec, &id, &error) == ENGINE_NO_MEMORY,
		  "100,000,000 rows fit into 64 MB");
	CHECK(strpbrk(error.text, "0123456789") != NULL, "the refusal has no figures: %s", error.text);
	world = world_create(ELEMENT_FLOAT, METRIC_L2, 2000, 500, 500, SHAPE_UNIFORM);
	world_append(world, 500);
	append_until_refused(world, 50000);
	query_init(&query, world, METHOD_EXACT, 3, 0, world_vector(world, 77));
	query_run(&query);
	CHECK(query.count == 3 && query.results[0].slot == 77,
		  "the mirror does not answer after a refusal");
	world_drop(world);
	world_append(world_create(ELEMENT_FLOAT, METRIC_L2, 2000, 500, 500, SHAPE_UNIFORM), 500);
}

/* Leave no memory: another mirror has what there was. */
static void
take_all_memory(void)
{
	World	   *greedy = world_create(ELEMENT_FLOAT, METRIC_L2, 2000, 20, 20, SHAPE_UNIFORM);

	world_append(greedy, 20);
	/*
	 * of a device's context an engine that is opened again may have counted
	 * less than the one before
	 */
	append_until_refused(greedy, 200000);
}

/*
 * A link that its engine has no memory for is refused, and the graph can be
 * told all the same; or it adds to what was linked: as good a graph, and no row
 * is linked twice.
 */
static void
link_without_memory(void)
{
	World	   *world;
	EngineJob	link = {.kind = JOB_LINK, .ef_construction = 100};
	uint32_t	found = 0;

	limit_engine(UINT64_C(64) << 20);
	world = world_create(ELEMENT_FLOAT, METRIC_L2, 32, 2500, 2500, SHAPE_CLUSTERED);
	world_append(world, 2000);
	world_link(world);
	take_all_memory();
	world_append(world, 500);
	if (!links_or_refuses(world, &link))
		world_link_by_cpu(world);
	CHECK(world_info(world).linked == 2500, "%u of 2500 rows are linked", world_info(world).linked);
	for (uint32_t i = 0; i < 250; i++)
	{
		EngineQuery query;

		query_init(&query, world, METHOD_GRAPH, 1, 40, world_vector(world, i * 10));
		query_run(&query);
		check_sound(world, &query);
		found += query.count == 1 && query.results[0].distance == 0;
	}
	CHECK(found >= 248, "%u of 250 rows are found", found);
}

/* Likewise a repair. */
static void
repair_without_memory(void)
{
	World	   *world;
	EngineJob	repair = {.kind = JOB_REPAIR, .ef_construction = 64};

	limit_engine(UINT64_C(64) << 20);
	world = world_create(ELEMENT_FLOAT, METRIC_L2, 32, 1500, 1500, SHAPE_CLUSTERED);
	world_append(world, 1500);
	world_link(world);
	take_all_memory();
	for (uint32_t slot = 0; slot < 1500; slot += 3)
		world_kill(world, slot);
	if (links_or_refuses(world, &repair))
		(void) world_repair(world, NULL, 0);
	else
		world_link_by_cpu(world);
	check_repaired(world);
}

/*
 * A cancelled link ends soon and leaves a mirror that answers and can be linked
 * later.
 */
static void
cancel_link(void)
{
	uint32_t	rows = options.quick ? 8000 : 20000;
	World	   *world = world_create(ELEMENT_HALF, METRIC_L2, 128, rows, rows, SHAPE_CLUSTERED);
	EngineJob	link = {.kind = JOB_LINK, .mirror = world->mirror, .ef_construction = 200};
	JobProgress progress;
	MirrorInfo	info;
	EngineQuery query;
	double		start;
	JobId		id;
	LinkResult	result;

	world_append(world, rows);
	id = start_job(&link);
	usleep(100000);
	start = clock_seconds();
	CHECK(ops->job_cancel(engine, id) == ENGINE_OK, "job_cancel does not know a job");
	(void) end_job(id, &progress);
	CHECK(clock_seconds() - start < 30.0, "the cancelled link took %.2f s",
		  clock_seconds() - start);
	CHECK(progress.status == ENGINE_CANCELLED || progress.status == ENGINE_OK, "status %d",
		  (int) progress.status);
	CHECK(ops->job_link_result(engine, id, &result) == ENGINE_OK, "no result of what was linked");
	info = world_info(world);
	CHECK(info.linked + info.pending == rows, "%u linked and %u pending of %u", info.linked,
		  info.pending, rows);
	CHECK(result.count >= info.linked, "%u rows linked, %u in the result", info.linked,
		  result.count);
	ops->job_release(engine, id);
	query_init(&query, world, METHOD_GRAPH, 10, 100, world_vector(world, 7));
	query_run(&query);
	check_sound(world, &query);
	CHECK(query.count == 10, "%u answers after a cancel", query.count);
	start = clock_seconds();
	id = start_job(&link);
	usleep(20000);
	ops->job_release(engine, id);	/* cancels and waits */
	CHECK(clock_seconds() - start < 30.0, "releasing a running link took %.2f s",
		  clock_seconds() - start);
	CHECK(ops->job_poll(engine, id, &progress) == ENGINE_NOT_FOUND,
		  "a released job is still known");
	world->room = world->rows = rows;
	if (!options.quick)
	{
		link.ef_construction = 16;
		CHECK(run_job(&link, NULL) == ENGINE_OK && world_info(world).pending == 0,
			  "linking does not go on after a cancel");
		query_run(&query);
		check_sound(world, &query);
		CHECK(recall_of(world, &query) >= 0.5, "recall %.2f after a cancel",
			  recall_of(world, &query));
	}
}

/*
 * Invalid queries come back, once each, with their status, and do not disturb
 * others of their batch.
 */
static void
invalid_queries(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 4, 50, 50, SHAPE_UNIFORM);
	EngineQuery queries[8];

	world_append(world, 50);
	for (int i = 0; i < 8; i++)
		query_init(&queries[i], world, METHOD_GRAPH, 5, 10, world_vector(world, 0));
	queries[1].k = 0;
	queries[2].ef = 0;
	queries[3].ef = ENGINE_MAX_EF + 1;
	queries[4].mirror = 999999;
	queries[5].method = METHOD_IVFPQ;
	queries[6].vector = NULL;
	queries_run(queries, 8);
	for (int i = 0; i < 8; i++)
	{
		bool		valid = i == 0 || i == 7;

		CHECK((queries[i].status == ENGINE_OK) == valid, "query %d has status %d", i,
			  (int) queries[i].status);
		CHECK(valid || queries[i].error.text[0] != 0, "query %d has no error text", i);
		CHECK(queries[i].count == (valid ? 5 : 0), "query %d has %u results", i, queries[i].count);
	}
	CHECK(queries[4].status == ENGINE_NOT_FOUND, "an unknown mirror is status %d",
		  (int) queries[4].status);
}

/* Jobs with wrong slots fail and change nothing. */
static void
invalid_jobs(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 4, 60, 50, SHAPE_UNIFORM);
	uint32_t	slots[2] = {1, 50};
	uint32_t	versions[2] = {9, 9};
	uint32_t	rows[64];
	EngineJob	jobs[] = {
		{.kind = JOB_APPEND, .count = 2, .first_slot = 49},
		{.kind = JOB_APPEND, .count = 2, .first_slot = ENGINE_MAX_SLOTS - 1},
		{.kind = JOB_OVERWRITE, .count = 2, .slots = slots},
		{.kind = JOB_DEAD, .count = 2, .slots = slots},
		{.kind = JOB_GRAPH, .count = 2, .slots = slots},
		{.kind = JOB_LINK, .ef_construction = 0},
		{.kind = JOB_REPAIR, .ef_construction = 1001},
		{.kind = (JobKind) 99}
	};
	JobProgress progress;
	EngineError error;
	EngineQuery query;
	MirrorInfo	before;
	MirrorInfo	after;
	JobId		id;

	memset(rows, 0xFF, sizeof(rows));
	world_append(world, 50);
	before = world_info(world);
	for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++)
	{
		jobs[i].mirror = world->mirror;
		jobs[i].versions = versions;
		jobs[i].vectors = world->vectors;
		jobs[i].rows = rows;
		jobs[i].has_position = true;
		jobs[i].position = 77;
		memset(&error, 0, sizeof(error));
		if (ops->job_submit(engine, &jobs[i], &id, &error) == ENGINE_OK)
		{
			CHECK(end_job(id, &progress) != ENGINE_OK, "wrong job %zu succeeded", i);
			error = progress.error;
			ops->job_release(engine, id);
		}
		CHECK(error.text[0] != 0, "wrong job %zu has no error text", i);
		after = world_info(world);
		CHECK(memcmp(&before, &after, sizeof(before)) == 0, "wrong job %zu changed the mirror", i);
	}
	jobs[0].mirror = 12345;
	jobs[0].first_slot = 50;
	CHECK(ops->job_submit(engine, &jobs[0], &id, &error) == ENGINE_NOT_FOUND,
		  "a job for no mirror was taken");
	CHECK(ops->job_poll(engine, 12345, &progress) == ENGINE_NOT_FOUND, "an unknown job is known");
	CHECK(ops->job_cancel(engine, 12345) == ENGINE_NOT_FOUND, "an unknown job can be cancelled");
	query_init(&query, world, METHOD_EXACT, 50, 0, world_vector(world, 3));
	query_run(&query);
	check_sound(world, &query);
	CHECK(query.count == 50, "%u of 50 rows left", query.count);
}

/*
 * A mirror is dropped when its queries have finished; then it is gone, and its
 * memory too.
 */
static void
drop(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 64, 5000, 5000, SHAPE_UNIFORM);
	EngineJob	job = {.kind = JOB_DROP, .mirror = world->mirror};
	EngineQuery queries[40];
	EngineQuery late;
	EngineQuery *completed[40];
	EngineMemory memory;
	EngineError error;
	JobProgress progress;
	JobId		id;
	uint32_t	done = 0;
	double		start = clock_seconds();

	world_append(world, 5000);
	for (int i = 0; i < 40; i++)
		query_init(&queries[i], world, METHOD_EXACT, 10, 0, world_vector(world, (uint32_t) i));
	queries_submit(queries, 40);
	must(ops->job_submit(engine, &job, &id, &error), &error, "drop");
	while (done < 40)
	{
		done += queries_poll(completed, 40);
		CHECK(clock_seconds() - start < 60, "queries hang at a drop");
	}
	for (int i = 0; i < 40; i++)
	{
		must(queries[i].status, &queries[i].error, "query before a drop");
		check_sound(world, &queries[i]);
	}
	must(end_job(id, &progress), &progress.error, "drop");
	ops->job_release(engine, id);
	query_init(&late, world, METHOD_EXACT, 10, 0, world_vector(world, 0));
	queries_run(&late, 1);
	CHECK(late.status == ENGINE_NOT_FOUND, "a dropped mirror answers with status %d",
		  (int) late.status);
	ops->memory(engine, &memory);
	CHECK(memory.vectors == 0 && memory.graph == 0, "%llu bytes of vectors are left",
		  (unsigned long long) memory.vectors);
}

/* Several mirrors of one engine do not mix. */
static void
many_mirrors(void)
{
	World	   *worlds[20];
	EngineQuery queries[20];

	for (uint32_t i = 0; i < 20; i++)
	{
		worlds[i] = world_create(i % 2 ? ELEMENT_HALF : ELEMENT_FLOAT, METRIC_L2, 4 + i, 200 + i,
								 10, SHAPE_UNIFORM);
		world_append(worlds[i], 200 + i);
		if (i % 3 == 0)
			world_link(worlds[i]);
	}
	for (uint32_t i = 0; i < 20; i++)
	{
		query_init(&queries[i], worlds[i], METHOD_GRAPH, 10, 250, world_vector(worlds[i], i));
		queries_submit(&queries[i], 1);
	}
	for (uint32_t done = 0; done < 20;)
	{
		EngineQuery *completed[20];

		done += queries_poll(completed, 20);
	}
	for (uint32_t i = 0; i < 20; i++)
	{
		must(queries[i].status, &queries[i].error, "query");
		check_sound(worlds[i], &queries[i]);
		CHECK(queries[i].results[0].slot == i, "mirror %u answers slot %u", i,
			  queries[i].results[0].slot);
	}
}

static void
count_wake(void *argument)
{
	atomic_fetch_add((_Atomic uint32_t *) argument, 1);
}

/* Wait for a wake-up after `before`. */
static void
wait_for_wake(_Atomic uint32_t *wakes, uint32_t before, const char *what)
{
	double		start = clock_seconds();

	while (atomic_load(wakes) == before)
	{
		CHECK(clock_seconds() - start < 30, "nobody was woken by %s", what);
		usleep(100);
	}
}

/* The owner is woken when something can be polled. */
static void
wake(void)
{
	static _Atomic uint32_t wakes;
	EngineConfig config = {.device = options.device,
						   .simd = options.simd,
						   .wake = count_wake,
						   .wake_arg = (void *) &wakes};
	World	   *world;
	EngineQuery query;
	uint32_t	before;

	ops->close(engine);
	engine = NULL;
	engine = open_engine(&config, ENGINE_OK);
	world = world_create(ELEMENT_FLOAT, METRIC_L2, 8, 100, 100, SHAPE_UNIFORM);
	before = atomic_load(&wakes);
	world_append(world, 100);
	wait_for_wake(&wakes, before, "a job");
	for (int i = 0; i < 20; i++)
	{
		EngineQuery *completed[1];

		query_init(&query, world, METHOD_EXACT, 10, 0, world_vector(world, 0));
		usleep(1000);
		before = atomic_load(&wakes);
		queries_submit(&query, 1);
		/* An engine may wake for nothing, but not sleep on something. */
		do
		{
			wait_for_wake(&wakes, before, "a query");
			before = atomic_load(&wakes);
		} while (queries_poll(completed, 1) == 0);
	}
}

/*
 * Closing with work in flight waits for it and frees everything (the sanitizers
 * look).
 */
static void
close_in_flight(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 64, 3000, 3000, SHAPE_CLUSTERED);
	EngineJob	link = {.kind = JOB_LINK, .mirror = world->mirror, .ef_construction = 64};
	EngineQuery queries[20];

	world_append(world, 3000);
	for (int i = 0; i < 20; i++)
		query_init(&queries[i], world, METHOD_EXACT, 100, 0, world_vector(world, (uint32_t) i));
	(void) start_job(&link);
	queries_submit(queries, 20);
	ops->close(engine);
	engine = NULL;
}

const Case limit_cases[] = {
	{"memory_limit", memory_limit, false},
	{"link_without_memory", link_without_memory, false},
	{"repair_without_memory", repair_without_memory, false},
	{"cancel_link", cancel_link, false},
	{"invalid_queries", invalid_queries, false},
	{"invalid_jobs", invalid_jobs, false},
	{"drop", drop, false},
	{"many_mirrors", many_mirrors, false},
	{"wake", wake, false},
	{"close_in_flight", close_in_flight, false},
	{NULL, NULL, false}
};
