/*
 * conformance_degrees.c
 *		Graphs of every degree, from the least to the most that an index may
 *		have: linking, walks, repair.
 */
#include <stdlib.h>
#include <string.h>

#include "conformance.h"

#define FIRST_QUERY		5000000 /* variants of queries, apart from those of rows */
#define QUERIES			30
#define BROAD			1100	/* more than a list on the chip */

static const Pair kinds[] = {
	{ELEMENT_FLOAT, METRIC_L2}, {ELEMENT_HALF, METRIC_COSINE}, {ELEMENT_BIT, METRIC_HAMMING}};

typedef struct Degree
{
	uint32_t	degree;
	double		recall;			/* at least, of the ten nearest, at ef 100 */
} Degree;

/* Few edges lead astray; what they find is held to less. */
static const Degree degrees[] = {
	{4, 0.60}, {6, 0.80}, {10, 0.95}, {36, 0.97}, {64, 0.97}, {128, 0.97}, {ENGINE_MAX_DEGREE, 0.97}
};

#define DEGREES		(sizeof(degrees) / sizeof(degrees[0]))

/* Queries of all ways that a walk may go: plain, filtered, bounded, broad. */
static void
make_queries(const World *world, EngineQuery *queries, const uint64_t *filter)
{
	for (uint32_t i = 0; i < QUERIES; i++)
	{
		void	   *vector = allocate(world->vector_bytes);

		make_vector(world, FIRST_QUERY + i, vector);
		query_init(&queries[i], world, METHOD_GRAPH, 10, i % 10 == 9 ? BROAD : 100, vector);
		if (i % 10 == 7)
		{
			queries[i].filter = filter;
			queries[i].filter_slots = world->rows;
		}
		if (i % 10 == 8)
		{
			queries[i].has_beyond = true;
			queries[i].beyond_slot = i;
			queries[i].beyond_distance = model_distance(world, vector, world_vector(world, i)) / 2;
		}
	}
}

/*
 * The mean recall of queries that are run together, each of which has the same
 * answer by itself.
 */
static double
walked(const World *world)
{
	EngineQuery *queries = allocate(QUERIES * sizeof(EngineQuery));
	SearchResult *together = allocate(QUERIES * 10 * sizeof(SearchResult));
	uint64_t   *filter = allocate(world->rows / 8 + 8);
	uint32_t	counts[QUERIES];
	double		recall;

	for (uint32_t slot = 0; slot < world->rows; slot += 2)
		filter[slot / 64] |= UINT64_C(1) << (slot % 64);
	make_queries(world, queries, filter);
	recall = sound_recall(world, queries, QUERIES);
	for (uint32_t i = 0; i < QUERIES; i++)
	{
		counts[i] = queries[i].count;
		memcpy(together + i * 10, queries[i].results, counts[i] * sizeof(SearchResult));
	}
	for (uint32_t i = 0; i < QUERIES; i++)
	{
		query_run(&queries[i]);
		check_equal("by itself", &queries[i], together + i * 10, counts[i]);
	}
	return recall;
}

/* Linked, walked, repaired when a third has died, and walked again. */
static void
of_every_degree(void)
{
	uint32_t	rows = options.quick ? 400 : 2500;

	for (size_t d = 0; d < DEGREES; d++)
	{
		const Pair *kind = &kinds[d % (sizeof(kinds) / sizeof(kinds[0]))];
		World *world = world_create_of_degree(degrees[d].degree, kind->type, kind->metric, 32, rows,
											  rows, SHAPE_CLUSTERED);
		double		recall;

		world_append(world, rows / 2);
		world_link(world);
		world_append(world, rows - rows / 2);
		world_link(world);
		check_linked(world);
		recall = walked(world);
		CHECK(recall >= degrees[d].recall, "degree %u: recall %.3f", degrees[d].degree, recall);
		for (uint32_t slot = 0; slot < rows; slot += 3)
			world_kill(world, slot);
		(void) world_repair(world, NULL, 0);
		check_repaired(world);
		recall = walked(world);
		CHECK(recall >= degrees[d].recall - 0.02, "degree %u, repaired: recall %.3f",
			  degrees[d].degree, recall);
		world_drop(world);
	}
}

/* The reference walk over graphs of every degree, step for step. */
static void
reference_of_every_degree(void)
{
	for (size_t d = 0; d < DEGREES; d++)
	{
		World *world = world_create_of_degree(degrees[d].degree, ELEMENT_FLOAT, METRIC_L2, 10, 400,
											  400, SHAPE_UNIFORM);

		world_append(world, 400);
		world_ring(world, 20);
		for (uint32_t slot = 0; slot < 400; slot += 9)
			world_kill(world, slot);
		reference_variations(world, 12);
		world_drop(world);
	}
}

/* Degrees that no index has are refused. */
static void
other_degrees(void)
{
	static const uint32_t others[] = {0, 1, 3, ENGINE_MAX_DEGREE + 1, UINT32_MAX};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
	{
		MirrorSpec spec = {.dims = 8,
						   .type = ELEMENT_FLOAT,
						   .metric = METRIC_L2,
						   .method = METHOD_GRAPH,
						   .degree = others[i],
						   .capacity = 10,
						   .residency = RESIDENCY_FULL,
						   .placement = PLACEMENT_SINGLE,
						   .device = -1};
		EngineError error = {0};
		MirrorId	mirror = 0;

		CHECK(ops->mirror_create(engine, &spec, &mirror, &error) == ENGINE_INVALID,
			  "degree %u is taken", others[i]);
		CHECK(error.text[0] != '\0', "degree %u is refused without a word", others[i]);
	}
}

const Case degree_cases[] = {
	{"degrees_walk_and_repair", of_every_degree, false},
	{"degrees_reference", reference_of_every_degree, false},
	{"degrees_that_no_index_has", other_degrees, false},
	{NULL, NULL, false}
};
