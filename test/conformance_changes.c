/*
 * conformance_changes.c
 *		Cases of change: append, overwrite, death, linking and growth while
 *		searches are in flight.
 *
 * The interface has one owner, so these cases keep queries in flight and feed
 * jobs from one loop, as the server does.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance.h"

#define IN_FLIGHT		12		/* queries kept in flight */
#define LONGEST			60.0	/* seconds */

/* Queries that are submitted again as soon as they come back. */
typedef struct Flight
{
	World	   *world;
	EngineQuery queries[IN_FLIGHT];
	char	   *vectors;
	uint32_t	finished;
	/* Called with each completed query; the world is as the case keeps it. */
	void		(*check) (World *world, const EngineQuery *query);
} Flight;

/* Choose a query's vector and method. */
static void
prepare(Flight *flight, EngineQuery *query)
{
	uint32_t	number = (uint32_t) (query - flight->queries);
	char	   *vector = flight->vectors + number * flight->world->vector_bytes;

	make_vector(flight->world, 9000000 + random_below(100000), vector);
	query->method = number % 3 == 0 ? METHOD_EXACT : METHOD_GRAPH;
}

/* Send all queries at once. */
static void
launch_all(Flight *flight)
{
	for (int i = 0; i < IN_FLIGHT; i++)
		prepare(flight, &flight->queries[i]);
	queries_submit(flight->queries, IN_FLIGHT);
}

static Flight *
flight_begin(World *world, uint32_t k, void (*check) (World *world, const EngineQuery *query))
{
	Flight	   *flight = allocate(sizeof(*flight));

	flight->world = world;
	flight->check = check;
	flight->vectors = allocate(IN_FLIGHT * world->vector_bytes);
	for (int i = 0; i < IN_FLIGHT; i++)
		query_init(&flight->queries[i], world, METHOD_GRAPH, k, 60,
				   flight->vectors + (size_t) i * world->vector_bytes);
	launch_all(flight);
	return flight;
}

/* Take what has come back, check it, and send it again (or not, at the end). */
static void
flight_turn(Flight *flight, bool again)
{
	EngineQuery *completed[IN_FLIGHT];
	uint32_t	count = queries_poll(completed, IN_FLIGHT);

	if (count == 0)
		usleep(50);
	for (uint32_t i = 0; i < count; i++)
	{
		must(completed[i]->status, &completed[i]->error, "query in flight");
		flight->check(flight->world, completed[i]);
		flight->finished++;
		if (again)
		{
			prepare(flight, completed[i]);
			queries_submit(completed[i], 1);
		}
	}
}

/* Wait for the queries in flight. */
static void
flight_end(Flight *flight)
{
	uint32_t	goal = flight->finished + IN_FLIGHT;
	double		start = clock_seconds();

	while (flight->finished < goal)
	{
		flight_turn(flight, false);
		CHECK(clock_seconds() - start < LONGEST, "queries hang");
	}
}

/*
 * Run a job in the midst of queries: begun right after all of them, so that
 * they meet, and released when it has completed.
 */
static void
flight_job(Flight *flight, const EngineJob *job)
{
	JobProgress progress;
	double		start = clock_seconds();
	JobId		id;

	flight_end(flight);
	launch_all(flight);
	id = start_job(job);
	do
	{
		flight_turn(flight, true);
		CHECK(ops->job_poll(engine, id, &progress) == ENGINE_OK, "job_poll does not know a job");
		CHECK(clock_seconds() - start < LONGEST, "a job hangs under queries at %u of %u",
			  progress.done, progress.total);
	} while (!progress.completed);
	must(progress.status, &progress.error, "job under queries");
	ops->job_release(engine, id);
}

/*
 * An answer while rows are appended: exact ones are those of the rows they saw.
 */
static void
check_appending(World *world, const EngineQuery *query)
{
	SearchResult expected[10];

	CHECK(query->rows <= world->room, "%u rows seen, %u is all there is", query->rows, world->room);
	CHECK(query->position <= query->rows, "position %llu covered, with %u rows",
		  (unsigned long long) query->position, query->rows);
	check_sound(world, query);
	if (query->method == METHOD_EXACT)
		check_equal("exact while appending", query, expected,
					model_exact(world, query, query->rows, expected));
}

/* Append in pieces, far beyond the first capacity, position = rows. */
static void
grow_in_flight(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 24, 4000, 16, SHAPE_UNIFORM);
	uint32_t	room = world->room;
	uint32_t	published = 0;
	Flight	   *flight = flight_begin(world, 10, check_appending);

	world->rows = room;			/* for check_sound: any row of the table may be met */
	while (published < room)
	{
		uint32_t	count = 1 + random_below(300);
		EngineJob job = {.kind = JOB_APPEND,
						 .mirror = world->mirror,
						 .first_slot = published,
						 .has_position = true};

		if (count > room - published)
			count = room - published;
		job.count = count;
		job.versions = world->versions + published;
		job.vectors = world_vector(world, published);
		job.position = published + count;
		flight_job(flight, &job);
		published += count;
		CHECK(world_info(world).rows == published && world_info(world).position == published,
			  "%u rows and position %llu after %u", world_info(world).rows,
			  (unsigned long long) world_info(world).position, published);
	}
	flight_end(flight);
}

/* Every query that starts after an append has completed sees its rows. */
static void
append_is_seen_at_once(void)
{
	World	   *world = world_create(ELEMENT_HALF, METRIC_COSINE, 16, 2000, 100, SHAPE_UNIFORM);

	world_append(world, 500);
	world_link(world);
	while (world->rows < world->room)
	{
		EngineQuery query;

		world_append(world, 1 + random_below(20) % (world->room - world->rows));
		query_init(&query, world, METHOD_GRAPH, 1, 20, world_vector(world, world->rows - 1));
		query_run(&query);
		check_sound(world, &query);
		CHECK(query.count == 1 && query.results[0].distance <=
			  model_distance(world, query.vector, query.vector), "the newest row is missed");
		if (random_below(30) == 0)
			world_link(world);
	}
}

/* Version v of slot s holds the vector of variant s * 1000 + v. */
#define VARIANT(slot, version) ((uint64_t) (slot) * 1000 + (version))

/* Whatever version an answer names, its distance is that version's. */
static void
check_overwriting(World *world, const EngineQuery *query)
{
	char	   *vector = malloc(world->vector_bytes);
	const char *problem = NULL;

	for (uint32_t i = 0; i < query->count && problem == NULL; i++)
	{
		const SearchResult *result = &query->results[i];

		make_vector(world, VARIANT(result->slot, result->version), vector);
		if (result->slot >= world->rows)
			problem = "a slot that is not there";
		else if (result->version > world->versions[result->slot] + 1)
			problem = "a version that never was";
		else if (model_distance(world, query->vector, vector) != result->distance)
			problem = "one version with another's vector";
		for (uint32_t j = 0; j < i; j++)
			if (query->results[j].slot == result->slot)
				problem = "a slot twice";
	}
	free(vector);
	CHECK(problem == NULL, "an answer has %s", problem);
}

#define OVERWRITTEN		100		/* few slots of large vectors: reads often meet writes */

/* Overwrite linked and pending slots again and again. */
static void
overwrite_in_flight(void)
{
	World *world =
		world_create(ELEMENT_FLOAT, METRIC_L2, 1500, OVERWRITTEN, OVERWRITTEN, SHAPE_UNIFORM);
	char	   *vectors = allocate(OVERWRITTEN * world->vector_bytes);
	uint32_t   *slots = allocate(OVERWRITTEN * sizeof(uint32_t));
	uint32_t   *versions = allocate(OVERWRITTEN * sizeof(uint32_t));
	Flight	   *flight;

	for (uint32_t slot = 0; slot < OVERWRITTEN; slot++)
		world_set_vector(world, slot, VARIANT(slot, 1));
	world_append(world, OVERWRITTEN);
	world_link(world);
	flight = flight_begin(world, 50, check_overwriting);
	for (int round = 0; round < (options.quick ? 20 : 100); round++)
	{
		uint32_t	count = 1 + random_below(OVERWRITTEN / 2);
		uint32_t	first = random_below(OVERWRITTEN / 2);
		EngineJob job = {.kind = JOB_OVERWRITE,
						 .mirror = world->mirror,
						 .count = count,
						 .slots = slots,
						 .versions = versions,
						 .vectors = vectors,
						 .has_position = true,
						 .position = (uint64_t) round + 1};
		EngineJob	link = {.kind = JOB_LINK, .mirror = world->mirror, .ef_construction = 32};

		for (uint32_t i = 0; i < count; i++)
		{
			slots[i] = first + i;
			versions[i] = world->versions[first + i] + 1;
			make_vector(world, VARIANT(first + i, versions[i]), vectors + i * world->vector_bytes);
		}
		flight_job(flight, &job);
		CHECK(world_info(world).position == job.position,
			  "an overwritten row's position did not come with it");
		for (uint32_t i = 0; i < count; i++)
		{
			world->versions[first + i] = versions[i];
			memcpy(world->vectors + (first + i) * world->vector_bytes,
				   vectors + i * world->vector_bytes, world->vector_bytes);
		}
		if (round % 10 == 9)
			flight_job(flight, &link);
	}
	flight_end(flight);
	for (uint32_t slot = 0; slot < OVERWRITTEN; slot += 7)
	{
		EngineQuery query;

		query_init(&query, world, METHOD_EXACT, 5, 0, world_vector(world, slot));
		query_run(&query);
		check_sound(world, &query);
		CHECK(query.results[0].slot == slot, "slot %u does not hold its newest vector", slot);
	}
}

/* Live or dying rows, with their only vector, in one of two versions. */
static void
check_dying(World *world, const EngineQuery *query)
{
	for (uint32_t i = 0; i < query->count; i++)
	{
		const SearchResult *result = &query->results[i];

		CHECK(result->slot < world->rows && result->version == 1, "slot %u in version %u",
			  result->slot, result->version);
		CHECK(model_distance(world, query->vector, world_vector(world, result->slot)) ==
				  result->distance,
			  "slot %u has a wrong distance", result->slot);
	}
}

/* Rows die under queries; a query that starts later never names them. */
static void
dead_in_flight(void)
{
	World	   *world = world_create(ELEMENT_HALF, METRIC_L2, 32, 1500, 1500, SHAPE_CLUSTERED);
	Flight	   *flight;

	world_append(world, 1000);
	world_link(world);
	world_append(world, 500);
	flight = flight_begin(world, 10, check_dying);
	for (int round = 0; round < 40; round++)
	{
		uint32_t	slot = random_below(1500);
		uint32_t	version = 2;
		EngineJob job = {.kind = JOB_DEAD,
						 .mirror = world->mirror,
						 .count = 1,
						 .slots = &slot,
						 .versions = &version,
						 .has_position = true,
						 .position = (uint64_t) round + 1};
		EngineQuery query;

		flight_job(flight, &job);
		CHECK(world_info(world).position == job.position,
			  "a death's position did not come with it");
		world->live[slot] = false;
		flight_end(flight);
		query_init(&query, world, METHOD_GRAPH, 10, 60, world_vector(world, slot));
		query_run(&query);
		check_sound(world, &query);
		query_init(&query, world, METHOD_EXACT, 10, 0, world_vector(world, slot));
		query_run(&query);
		check_sound(world, &query);
		launch_all(flight);
	}
	flight_end(flight);
}

/* While rows are linked, exact answers stay exact and graph answers sound. */
static void
check_linking(World *world, const EngineQuery *query)
{
	SearchResult expected[10];

	check_sound(world, query);
	CHECK(query->count == 10, "%u of 10 answers while linking", query->count);
	if (query->method == METHOD_EXACT)
		check_equal("exact while linking", query, expected,
					model_exact(world, query, query->rows, expected));
	else
		CHECK(recall_of(world, query) >= 0.3, "recall of a query while linking is %.2f",
			  recall_of(world, query));
}

static void
link_in_flight(void)
{
	uint32_t	rows = options.quick ? 1500 : 6000;
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 64, rows, rows, SHAPE_CLUSTERED);
	EngineJob	link = {.kind = JOB_LINK, .mirror = world->mirror, .ef_construction = 64};
	Flight	   *flight;

	world_append(world, rows);
	flight = flight_begin(world, 10, check_linking);
	/* under queries an emulated device links a row in a second */
	if (options.cpu_graphs)
	{
		flight_end(flight);
		launch_all(flight);
		world_link(world);
	}
	else
		flight_job(flight, &link);
	flight_end(flight);
	CHECK(world_info(world).linked == rows && world_info(world).pending == 0,
		  "%u linked, %u pending", world_info(world).linked, world_info(world).pending);
}

/*
 * Links the job's slots only; a result names exactly the rows that changed,
 * ascending, as they are.
 */
static void
link_result_is_the_change(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 16, 1200, 1200, SHAPE_CLUSTERED);
	uint32_t   *slots = allocate(1200 * sizeof(uint32_t));
	uint32_t   *before = allocate(1200 * world->degree * sizeof(uint32_t));
	uint32_t   *after = allocate(1200 * world->degree * sizeof(uint32_t));
	uint32_t   *versions = allocate(1200 * sizeof(uint32_t));
	uint32_t	wanted[] = {1100, 3, 1000, 1001, 1100, 1199};
	EngineJob link = {.kind = JOB_LINK,
					  .mirror = world->mirror,
					  .ef_construction = 32,
					  .slots = wanted,
					  .count = 6};
	size_t		row_bytes = world->degree * sizeof(uint32_t);
	JobProgress progress;
	LinkResult	result;
	EngineError error;
	JobId		id;
	uint32_t	at = 0;

	world_append(world, 1000);
	world_link(world);
	world_append(world, 200);
	for (uint32_t slot = 0; slot < 1200; slot++)
		slots[slot] = slot;
	must(ops->mirror_rows(engine, world->mirror, slots, 1200, before, versions, &error), &error,
		 "mirror_rows");
	id = start_job(&link);
	must(end_job(id, &progress), &progress.error, "link");
	must(ops->mirror_rows(engine, world->mirror, slots, 1200, after, versions, &error), &error,
		 "mirror_rows");
	CHECK(ops->job_link_result(engine, id, &result) == ENGINE_OK, "no result");
	for (uint32_t slot = 0; slot < 1200; slot++)
	{
		bool		listed = at < result.count && result.slots[at] == slot;

		if (listed)
			CHECK(memcmp(result.rows + at++ * world->degree, after + slot * world->degree,
						 row_bytes) == 0,
				  "slot %u is not as the result says", slot);
		else
			CHECK(memcmp(before + slot * world->degree, after + slot * world->degree, row_bytes) ==
					  0,
				  "slot %u changed, but is not in the result", slot);
		for (uint32_t i = 0; i < world->degree && after[slot * world->degree + i] != NO_SLOT; i++)
			CHECK(after[slot * world->degree + i] < 1200 && after[slot * world->degree + i] != slot,
				  "slot %u has neighbour %u", slot, after[slot * world->degree + i]);
	}
	CHECK(at == result.count, "the result is not in slot order");
	ops->job_release(engine, id);
	CHECK(world_info(world).linked == 1004 && world_info(world).pending == 196,
		  "%u linked, %u pending", world_info(world).linked, world_info(world).pending);
}

/* The graph does not depend on the number of threads. */
static void
link_is_deterministic(void)
{
	uint32_t   *rows[2];
	uint32_t	n = options.quick ? 700 : 2500;

	for (int i = 0; i < 2; i++)
	{
		World	   *world = world_create(ELEMENT_FLOAT, METRIC_COSINE, 32, n, n, SHAPE_CLUSTERED);
		EngineJob link = {.kind = JOB_LINK,
						  .mirror = world->mirror,
						  .ef_construction = 48,
						  .threads = i == 0 ? 1 : 0};
		uint32_t   *slots = allocate(n * sizeof(uint32_t));
		uint32_t   *versions = allocate(n * sizeof(uint32_t));
		EngineError error;

		rows[i] = allocate(n * world->degree * sizeof(uint32_t));
		for (uint32_t slot = 0; slot < n; slot++)
			slots[slot] = slot;
		world_append(world, n);
		CHECK(run_job(&link, NULL) == ENGINE_OK, "link failed");
		must(ops->mirror_rows(engine, world->mirror, slots, n, rows[i], versions, &error), &error,
			 "mirror_rows");
	}
	CHECK(memcmp(rows[0], rows[1], n * 32 * sizeof(uint32_t)) == 0,
		  "one thread and several link differently");
}

/* Links in many small steps give a graph about as good as one link does. */
static void
link_in_steps(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 48, 3000, 3000, SHAPE_CLUSTERED);
	double		sum = 0;

	while (world->rows < 3000)
	{
		world_append(world, 100);
		world_link(world);
	}
	for (uint32_t i = 0; i < 50; i++)
	{
		void	   *vector = allocate(world->vector_bytes);
		EngineQuery query;

		make_vector(world, 8000000 + i, vector);
		query_init(&query, world, METHOD_GRAPH, 10, 100, vector);
		query_run(&query);
		check_sound(world, &query);
		sum += recall_of(world, &query) / 50;
	}
	CHECK(sum >= 0.93, "recall %.3f", sum);
}

const Case change_cases[] = {
	{"append_is_seen_at_once", append_is_seen_at_once, false},
	{"grow_in_flight", grow_in_flight, false},
	{"overwrite_in_flight", overwrite_in_flight, false},
	{"dead_in_flight", dead_in_flight, false},
	{"link_in_flight", link_in_flight, false},
	{"link_result_is_the_change", link_result_is_the_change, false},
	{"link_is_deterministic", link_is_deterministic, false},
	{"link_in_steps", link_in_steps, true},
	{NULL, NULL, false}
};
