/*
 * conformance_batches.c
 *		Conformance cases: many queries at once, most of them alike.
 *
 * An engine may take queries that differ in their vectors only another way than
 * others, or several threads may take them. None of it shows.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "conformance.h"

#define MANY	300u
#define ROWS	1000u
#define ROOM	7u
#define ALONE	50u				/* vectors that are asked alone */

/* What each of some vectors finds when it is asked alone. */
static EngineQuery *
ask_alone(const World *world, uint32_t k, uint32_t ef)
{
	EngineQuery *single = allocate(MANY * sizeof(EngineQuery));

	for (uint32_t i = 0; i < MANY; i++)
	{
		query_init(&single[i], world, METHOD_GRAPH, k, ef, world_vector(world, ROWS + i % ALONE));
		if (i < ALONE)
			query_run(&single[i]);
		else
			single[i] = single[i % ALONE];
	}
	return single;
}

/* Take some back, a few at a time. */
static void
take_back(uint32_t count)
{
	double		start = clock_seconds();
	EngineQuery *completed[ROOM];

	for (uint32_t done = 0; done < count;)
	{
		uint32_t	some = queries_poll(completed, ROOM);

		done += some;
		CHECK(some > 0 || clock_seconds() - start < 120, "%u of %u queries hang", count - done,
			  count);
		if (some == 0)
			usleep(50);
	}
}

/*
 * Make a query another than those around it, in one of several ways; returns
 * what becomes of it.
 */
static EngineStatus
make_odd(EngineQuery *query, uint32_t way, const uint64_t *filter)
{
	if (way == 0)
		query->k = 0;
	else if (way == 1)
		query->vector = NULL;
	else if (way == 2)
		query->mirror += 1000;
	else if (way == 3)
		query->ef = 20;
	else if (way == 4)
		query->method = METHOD_EXACT;
	else
	{
		query->filter = filter;
		query->filter_slots = ROWS;
	}
	return way == 2 ? ENGINE_NOT_FOUND : way < 2 ? ENGINE_INVALID : ENGINE_OK;
}

/*
 * Wherever one stands that is not as the others, or is not valid, all are
 * answered, each for itself.
 */
static void
like_and_odd(void)
{
	World *world = world_create(ELEMENT_FLOAT, METRIC_L2, 40, ROWS + ALONE, ROWS, SHAPE_CLUSTERED);
	uint64_t   *filter = allocate(ROWS / 8 + 8);
	EngineQuery *queries = allocate(MANY * sizeof(EngineQuery));
	EngineQuery *single;

	memset(filter, 0x55, ROWS / 8 + 8);
	world_append(world, ROWS - 50);
	world_link(world);
	world_append(world, 50);
	single = ask_alone(world, 10, 50);
	for (uint32_t round = 0; round < 12; round++)
	{
		uint32_t	odd = round % 2 == 0 ? random_below(MANY) : round * 3;
		EngineStatus status;

		for (uint32_t i = 0; i < MANY; i++)
			query_init(&queries[i], world, METHOD_GRAPH, 10, 50, single[i].vector);
		status = make_odd(&queries[odd], round / 2, filter);
		queries_submit(queries, MANY);
		take_back(MANY);
		for (uint32_t i = 0; i < MANY; i++)
		{
			CHECK(queries[i].status == (i == odd ? status : ENGINE_OK), "status %d of query %u",
				  (int) queries[i].status, i);
			if (i != odd)
				check_equal("beside an odd one", &queries[i], single[i].results, single[i].count);
			else if (status == ENGINE_OK)
				check_sound(world, &queries[i]);
			CHECK(i == odd || queries[i].rows == ROWS, "%u rows seen", queries[i].rows);
		}
	}
}

/*
 * Answers that nobody has taken yet outlive their mirror, and other queries are
 * answered meanwhile.
 */
static void
outlive_a_mirror(void)
{
	World *other =
		world_create(ELEMENT_HALF, METRIC_COSINE, 24, ROWS + ALONE, ROWS, SHAPE_CLUSTERED);
	World *world = world_create(ELEMENT_FLOAT, METRIC_L2, 40, ROWS + ALONE, ROWS, SHAPE_CLUSTERED);
	EngineJob	drop = {.kind = JOB_DROP, .mirror = world->mirror};
	EngineQuery *queries = allocate(MANY * sizeof(EngineQuery));
	EngineQuery more;
	EngineQuery *single;
	JobId		id;

	world_append(world, ROWS);
	world_link(world);
	world_append(other, ROWS);
	world_link(other);
	single = ask_alone(world, 5, 40);
	for (uint32_t i = 0; i < MANY; i++)
		query_init(&queries[i], world, METHOD_GRAPH, 5, 40, single[i].vector);
	query_init(&more, other, METHOD_GRAPH, 10, 60, world_vector(other, 3));
	queries_submit(queries, MANY);
	id = start_job(&drop);
	ops->job_release(engine, id);	/* waits for the queries */
	queries_submit(&more, 1);
	take_back(MANY + 1);
	check_sound(other, &more);
	for (uint32_t i = 0; i < MANY; i++)
		check_equal("after a drop", &queries[i], single[i].results, single[i].count);
}

#define FLAT_ROWS	4000u
#define FLAT_MAX	256u		/* queries of a batch */
#define FLAT_K		1500u		/* results of a query, at most */
#define FLAT_GROWTH	(16u << 20) /* of the process, which has more than the engine's memory */

/*
 * What is in use: by the engine as it counts, on devices and of the host by
 * this process. What is free on the device is no measure: other programs may
 * use it.
 */
typedef struct InUse
{
	EngineMemory engine;
	bool		device_known;
	uint64_t	device;
	uint64_t	process;
} InUse;

static InUse
look_at_memory(void)
{
	InUse		now = {.device = 0};
	unsigned long long size = 0;
	unsigned long long resident = 0;
	FILE	   *file = fopen("/proc/self/statm", "r");

	ops->memory(engine, &now.engine);
	now.device_known = process_bytes_used(&now.device);
	CHECK(file != NULL && fscanf(file, "%llu %llu", &size, &resident) == 2,
		  "/proc/self/statm cannot be read");
	fclose(file);
	now.process = resident * (uint64_t) sysconf(_SC_PAGESIZE);
	return now;
}

/* Make a query of some kind; what is rare here takes long. */
static void
make_any(EngineQuery *query, const World *world, uint32_t kind, const uint64_t *bits,
		 SearchResult *results, bool reference)
{
	static const uint32_t ks[] = {1, 3, 10, 10, 10, 64, 100, 300};
	static const uint32_t efs[] = {8, 16, 20, 40, 40, 64, 100, 400};

	memset(query, 0, sizeof(*query));
	query->mirror = world->mirror;
	query->method = kind % 8 == 1 ? METHOD_EXACT : METHOD_GRAPH;
	query->k = kind % 64 == 9 ? FLAT_K : ks[random_below(8)];
	query->ef = kind % 128 == 7 ? 2000 : efs[random_below(8)];
	query->vector = world_vector(world, FLAT_ROWS + random_below(world->room - FLAT_ROWS));
	query->results = results;
	if (kind % 8 == 2 || kind % 8 == 3)
	{
		query->filter = kind % 8 == 2 ? bits : NULL;
		query->exclude = kind % 8 == 3 ? bits : NULL;
		query->filter_slots = query->exclude_slots = 1 + random_below(FLAT_ROWS);
	}
	query->has_beyond = kind % 16 == 4;
	query->beyond_distance =
		query->has_beyond
			? model_distance(world, query->vector, world_vector(world, random_below(FLAT_ROWS)))
			: 0;
	query->reference = reference && kind % 64 == 5;
	query->max_iterations = kind % 16 == 6 ? 1 + random_below(50) : 0;
}

/*
 * Batches of every size and kind, a hundred thousand on a device: in the end
 * there is no more memory in use than when each kind had been there.
 */
static void
memory_is_flat(void)
{
	World *world =
		world_create(ELEMENT_FLOAT, METRIC_L2, 24, FLAT_ROWS + 500, FLAT_ROWS, SHAPE_CLUSTERED);
	EngineQuery *queries = allocate(FLAT_MAX * sizeof(EngineQuery));
	SearchResult *results = allocate((size_t) FLAT_MAX * (FLAT_K + 1) * sizeof(SearchResult));
	uint64_t   *bits = allocate(FLAT_ROWS / 8 + 8);
	bool on_device = strcmp(options.engine, "cpu") != 0 && driver_bytes_used(&(uint64_t){0});
	uint32_t	rounds = options.quick ? 60 : on_device ? 100000 : 2000;
	uint32_t	warm = rounds / 10;
	InUse		before = {.device = 0};
	InUse		after;
	bool		reference;

	for (uint32_t slot = 0; slot < FLAT_ROWS; slot++)
		bits[slot / 64] |= (uint64_t) (slot % 3 != 0) << slot % 64;
	world_append(world, FLAT_ROWS - 100);
	world_ring(world, 300);
	world_append(world, 100);	/* these stay pending */
	reference = has_reference(world);
	for (uint32_t round = 0; round < rounds; round++)
	{
		uint32_t	count = 1 + random_below(round % 16 != 15 ? 6 : options.quick ? 40 : FLAT_MAX);
		uint32_t	kind = random_below(256);
		bool		alike = random_below(2) == 0;

		for (uint32_t i = 0; i < count; i++)
			make_any(&queries[i], world, alike || options.quick ? kind : random_below(256), bits,
					 results + (size_t) i * (FLAT_K + 1), reference);
		queries_run(queries, count);
		for (uint32_t i = 0; i < count; i++)
			must(queries[i].status, &queries[i].error, "query");
		if (round % 500 == 0)
			check_sound(world, &queries[0]);
		if (round == warm)
			before = look_at_memory();
	}
	after = look_at_memory();
	CHECK(after.engine.used == before.engine.used &&
			  after.engine.host_used == before.engine.host_used,
		  "after %u batches the engine uses %lld bytes more, and %lld of the host", rounds,
		  (long long) (after.engine.used - before.engine.used),
		  (long long) (after.engine.host_used - before.engine.host_used));
	CHECK(!before.device_known || !after.device_known || after.device == before.device,
		  "after %u batches this process holds %lld bytes of the device more", rounds,
		  (long long) (after.device - before.device));
	CHECK(after.process <= before.process + FLAT_GROWTH,
		  "after %u batches the process has %lld bytes more", rounds,
		  (long long) (after.process - before.process));
	world_drop(world);
}

const Case batch_cases[] = {
	{"batches_of_like_and_odd", like_and_odd, false},
	{"batches_outlive_a_mirror", outlive_a_mirror, false},
	{"batches_leave_no_memory_behind", memory_is_flat, false},
	{NULL, NULL, false}
};
