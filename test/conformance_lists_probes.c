/*
 * conformance_lists_probes.c
 *		Counts of how often lists are probed equal a recount, whatever the
 *		engine and however queries come to it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "conformance_lists.h"
#include "engine/quantizer/nearest.h"
#include "engine/quantizer/quantizer.h"

#define LISTS	40
#define ROWS	1500
#define DIMS	12
#define QUERIES	60

/* What a world's queries are expected to have counted. */
typedef struct Recount
{
	const World *world;
	Centroids	set;
	float	   *values;
	uint64_t	probes[LISTS];
} Recount;

/* A world whose rows are in lists, and a recount of it. */
static World *
counted_world(uint32_t number, Metric metric, Recount *recount)
{
	ListSpec	spec = lists_of(number, LISTS, DIMS);
	World	   *world = world_create_lists(&spec, ELEMENT_FLOAT, metric, DIMS, ROWS, ROWS / 4,
										   SHAPE_CLUSTERED);
	float	   *centroids = allocate(LISTS * DIMS * sizeof(float));
	char	   *memory = allocate(centroids_bytes(LISTS, DIMS) + 64);
	LinkResult	trained;

	world_append(world, ROWS - 200);
	world_train(world, &trained);
	world_link_lists(world);
	memcpy(centroids, trained.floats, LISTS * DIMS * sizeof(float));
	memset(recount, 0, sizeof(*recount));
	recount->world = world;
	centroids_init(&recount->set, centroids, LISTS, DIMS,
				   memory + (64 - (uintptr_t) memory % 64) % 64);
	recount->values = allocate(centroids_stride(&recount->set) * sizeof(float));
	return world;
}

/* Count the lists that a query probes. */
static void
recount_query(Recount *recount, const EngineQuery *query)
{
	float		vector[DIMS];
	const float *row = vector;
	double		values[LISTS];
	uint32_t	probes = query->probes < LISTS ? query->probes : LISTS;

	memcpy(vector, query->vector, sizeof(vector));
	if (recount->world->metric == METRIC_COSINE)
		quantizer_make_unit(vector, DIMS);
	centroids_values(&recount->set, &row, 1, recount->values);
	for (uint32_t i = 0; i < LISTS; i++)
		values[i] = (double) recount->values[i] -
			(recount->world->metric == METRIC_IP ? recount->set.half_norms[i] : 0);
	while (probes-- > 0)
	{
		uint32_t	nearest = LISTS;

		for (uint32_t i = 0; i < LISTS; i++)
			if (!isnan(values[i]) && (nearest == LISTS || values[i] < values[nearest]))
				nearest = i;
		recount->probes[nearest]++;
		values[nearest] = NAN;
	}
}

/* The engine's counts are those of the recount. */
static void
check_counts(const Recount *recount, const char *what)
{
	uint64_t	counts[LISTS];
	EngineError error = {ENGINE_OK, ""};

	must(ops->list_probes(engine, recount->world->mirror, counts, LISTS, &error), &error, what);
	for (uint32_t i = 0; i < LISTS; i++)
		CHECK(counts[i] == recount->probes[i], "%s: list %u was probed %llu times, not %llu", what,
			  i, (unsigned long long) counts[i], (unsigned long long) recount->probes[i]);
}

/* Run queries, one by one or together, and count what they probe. */
static void
run_counted(Recount *recount, uint32_t max_list_probes, uint32_t rerank, bool together)
{
	const World *world = recount->world;
	EngineQuery *queries = allocate(QUERIES * sizeof(EngineQuery));

	for (uint32_t i = 0; i < QUERIES; i++)
	{
		float	   *vector = allocate(DIMS * sizeof(float));

		make_vector(world, 1000000 + i, vector);
		list_query_init(&queries[i], world, 1 + i % 20, 1 + i % max_list_probes, rerank,
						i % 2 == 0 ? world_vector(world, i * 7) : vector);
		if (together && i % 5 == 0)
		{
			queries[i].method = METHOD_EXACT;
			continue;
		}
		queries[i].lone = !together && i % 2 == 0;
		recount_query(recount, &queries[i]);
	}
	if (together)
		queries_run(queries, QUERIES);
	for (uint32_t i = 0; i < QUERIES; i++)
	{
		if (!together)
			queries_run(&queries[i], 1);
		must(queries[i].status, &queries[i].error, "query");
	}
}

/* Changes of the mirror, none of which probes a list. */
static void
change_world(World *world)
{
	world_append(world, 100);
	world_link_lists(world);
	for (uint32_t i = 0; i < 50; i++)
		if (world->live[i * 25])
			world_kill(world, i * 25);
	world_append(world, 100);
}

static void
lists_count_their_probes(void)
{
	for (uint32_t number = 0; number < CODES; number++)
	{
		Recount		recount;
		World	   *world;
		char		what[40];

		if (options.quick && number % 3 != 0)
			continue;
		world = counted_world(number, (Metric) (1 + number % 3), &recount);
		snprintf(what, sizeof(what), "codes %u", number);
		check_counts(&recount, "a mirror without queries");
		run_counted(&recount, 9, 0, false);
		check_counts(&recount, what);
		change_world(world);
		check_counts(&recount, "changes alone");
		run_counted(&recount, 9, 100, true);
		run_counted(&recount, LISTS + 5, ENGINE_RERANK_ALL, true);
		check_counts(&recount, what);
		world_drop(world);
	}
}

/* Counts of a mirror that is not there, or has other lists, are refused. */
static void
lists_refuse_wrong_counts(void)
{
	Recount		recount;
	World	   *world = counted_world(0, METRIC_L2, &recount);
	World	   *graph = world_create(ELEMENT_FLOAT, METRIC_L2, DIMS, 100, 100, SHAPE_UNIFORM);
	MirrorId	gone = world->mirror;
	uint64_t	counts[LISTS + 1];
	EngineError error;

	CHECK(ops->list_probes(engine, gone, counts, LISTS + 1, &error) == ENGINE_INVALID,
		  "counts of more lists");
	CHECK(ops->list_probes(engine, gone, counts, 0, &error) == ENGINE_INVALID,
		  "counts of no lists");
	CHECK(ops->list_probes(engine, graph->mirror, counts, 0, &error) == ENGINE_INVALID,
		  "counts of a graph");
	world_drop(world);
	CHECK(ops->list_probes(engine, gone, counts, LISTS, &error) == ENGINE_NOT_FOUND,
		  "counts of a dropped mirror");
	world_drop(graph);
}

const Case list_probe_cases[] = {
	{"lists_count_their_probes", lists_count_their_probes, false},
	{"lists_refuse_wrong_counts", lists_refuse_wrong_counts, false},
	{NULL, NULL, false}};
