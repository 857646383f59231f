/*
 * conformance_crowd.c
 *		Cases of exact search in crowds: many queries at once, which engines
 *		answer in other ways than one, give the same bits.
 *
 * The tables are what a shortlist by cheap arithmetic goes wrong on: distances
 * that rise or fall with the slot, repeat in step with a power of two, are all
 * equal or nearly so; elements so large or small that single precision
 * overflows or loses them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"

#define CROWD	70

/*
 * Rows of a table: of an engine that may search in several ways enough for any
 * of them.
 */
static uint32_t
crowd_rows(void)
{
	return options.quick || strcmp(options.engine, "cpu") == 0 ? 1300 : 33000;
}

/* Run queries together and compare each with brute force. */
static void
check_crowd(const World *world, const char *what, EngineQuery *queries, uint32_t count)
{
	queries_run(queries, count);
	for (uint32_t i = 0; i < count; i++)
	{
		SearchResult *expected = malloc(((size_t) queries[i].k + 1) * sizeof(SearchResult));

		check_equal(what, &queries[i], expected,
					model_exact(world, &queries[i], world->rows, expected));
		free(expected);
	}
}

/* Crowds of several sizes, by outside vectors and by some of the table. */
static void
crowds_of(const World *world, const char *what, uint32_t k)
{
	static const uint32_t sizes_of[] = {3, 7, CROWD};

	for (size_t i = 0; i < sizeof(sizes_of) / sizeof(sizes_of[0]); i++)
	{
		EngineQuery *queries = allocate(sizes_of[i] * sizeof(EngineQuery));
		char	   *vectors = allocate(sizes_of[i] * world->vector_bytes);

		for (uint32_t j = 0; j < sizes_of[i]; j++)
		{
			make_vector(world, 1000000 + j, vectors + j * world->vector_bytes);
			query_init(&queries[j], world, METHOD_EXACT, k, 0,
					   j % 3 == 2 ? world_vector(world, j * 31 % world->rows)
								  : vectors + j * world->vector_bytes);
		}
		check_crowd(world, what, queries, sizes_of[i]);
	}
}

/* Every type and metric. */
static void
pairs_in_crowds(void)
{
	for (int i = 0; i < PAIRS; i++)
	{
		World *world = world_create(pairs[i].type, pairs[i].metric, 40, crowd_rows(), crowd_rows(),
									SHAPE_CLUSTERED);

		world_append(world, crowd_rows());
		crowds_of(world, "a crowd", 10);
		world_drop(world);
	}
}

/*
 * Vectors that stay on the chip and vectors that do not, and every number of
 * results there is a way for.
 */
static void
dims_and_k(void)
{
	static const uint32_t dims[] = {1, 31, 33, 128, 300};
	static const uint32_t ks[] = {1, 100, 256, 257};

	for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
	{
		World *world =
			world_create(i % 2 ? ELEMENT_HALF : ELEMENT_FLOAT, i % 2 ? METRIC_COSINE : METRIC_L2,
						 dims[i], crowd_rows(), crowd_rows(), SHAPE_UNIFORM);

		world_append(world, crowd_rows());
		crowds_of(world, "dimensions", ks[i % 4]);
		world_drop(world);
	}
}

/*
 * Give every row the value that `value` says for its slot, in all elements but
 * the first, which is 1.
 */
static void
fill_rows(World *world, float (*value) (uint32_t slot))
{
	for (uint32_t slot = 0; slot < world->room; slot++)
	{
		float	   *row = (float *) (world->vectors + slot * world->vector_bytes);

		for (uint32_t i = 0; i < world->dims; i++)
			row[i] = i == 0 ? 1 : value(slot);
	}
}

static float
falling(uint32_t slot)
{
	return (float) (1000000 - slot);
}

static float
rising(uint32_t slot)
{
	return (float) slot;
}

/* The best rows are where no sample by a power of two looks. */
static float
in_step(uint32_t slot)
{
	return slot % 64 == 0 ? 1e6f : (float) (slot % 1000);
}

static float
equal(uint32_t slot)
{
	return 3;
}

static float
nearly_equal(uint32_t slot)
{
	return 3 + (float) (slot * 2654435761u >> 20) * 3e-7f;
}

static float
huge(uint32_t slot)
{
	return slot % 5 == 0 ? 3e38f : slot % 7 == 0 ? -2e30f : (float) (slot * 2654435761u >> 8);
}

static float
tiny(uint32_t slot)
{
	return slot % 5 == 0 ? 0 : (float) (slot * 2654435761u >> 12) * 1e-42f;
}

static float
far_from_the_origin(uint32_t slot)
{
	return 1e7f + (float) (slot * 2654435761u >> 22);
}

/* Orders and sizes that a shortlist must not be wrong about. */
static void
hard_tables(void)
{
	static float (*const values[])(uint32_t) = {falling,	  rising, in_step, equal,
												nearly_equal, huge,	  tiny,	   far_from_the_origin};
	static const Metric metrics[] = {METRIC_L2, METRIC_IP, METRIC_COSINE, METRIC_L1};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		for (int m = 0; m < 4; m++)
		{
			World *world = world_create(ELEMENT_FLOAT, metrics[m], 5, crowd_rows(), crowd_rows(),
										SHAPE_UNIFORM);
			EngineQuery queries[CROWD];

			fill_rows(world, values[i]);
			world_append(world, crowd_rows());
			crowds_of(world, "a hard table", 10);
			/* all of its own */
			for (uint32_t j = 0; j < CROWD; j++)
				query_init(&queries[j], world, METHOD_EXACT, 10, 0,
						   world_vector(world, j * 97 % world->rows));
			check_crowd(world, "a hard table", queries, CROWD);
			world_drop(world);
		}
}

/*
 * Queries that differ in k, bounds, filters and exclusions run together, over
 * dead rows too.
 */
static void
mixed_crowds(void)
{
	for (int i = 0; i < PAIRS; i++)
	{
		World *world = world_create(pairs[i].type, pairs[i].metric, 24, crowd_rows(), crowd_rows(),
									SHAPE_UNIFORM);
		uint64_t   *few = allocate(world->room / 8 + 16);
		uint64_t   *most = allocate(world->room / 8 + 16);
		EngineQuery queries[CROWD];

		world_append(world, crowd_rows());
		for (uint32_t slot = 0; slot < world->rows; slot += 301)
			world_kill(world, slot);
		for (uint32_t slot = 0; slot < world->rows; slot++)
		{
			few[slot / 64] |= (uint64_t) (slot % 401 == 3) << slot % 64;
			most[slot / 64] |= (uint64_t) (slot % 10 != 3) << slot % 64;
		}
		for (uint32_t j = 0; j < CROWD; j++)
		{
			EngineQuery *query = &queries[j];

			query_init(query, world, METHOD_EXACT, 1 + j % 13, 0,
					   world_vector(world, j * 13 % world->rows));
			query->filter = j % 5 == 1 ? few : j % 5 == 2 ? most : NULL;
			query->filter_slots = query->filter != NULL ? world->rows - j : 0;
			query->exclude = j % 5 == 3 ? most : NULL;
			query->exclude_slots = query->exclude != NULL ? world->rows - j : 0;
			query->has_beyond = j % 7 == 4;
			query->beyond_distance =
				query->has_beyond ? model_distance(world, query->vector, world_vector(world, 11))
								  : 0;
			query->beyond_slot = 11;
		}
		check_crowd(world, "a mixed crowd", queries, CROWD);
		world_drop(world);
	}
}

const Case crowd_cases[] = {
	{"exact_pairs_in_crowds", pairs_in_crowds, false},
	{"exact_crowd_dims_and_k", dims_and_k, false},
	{"exact_crowd_hard_tables", hard_tables, false},
	{"exact_crowd_mixed", mixed_crowds, false},
	{NULL, NULL, false}
};
