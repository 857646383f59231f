/*
 * conformance_few.c
 *		Cases of exact search of one to sixteen queries, which an engine may
 *		answer in one pass over the rows: whatever the order of rows, the same
 *		bits.
 *
 * A pass that turns away what is behind a bound goes wrong, or slow, where no
 * bound holds: rows that come from far to near, equal distances, more results
 * than a bound is known for. Ways are forced when the engine is opened; one
 * that has only one ignores it.
 */
#include <stdlib.h>
#include <string.h>

#include "conformance.h"

static const ExactWay ways[] = {EXACT_FUSED, EXACT_SCAN, EXACT_CHOSEN};

#define WAYS	3
#define FEW_QUERIES 16			/* as many as share a pass */

/* Ways that a long case goes: the first of them where everything is slow. */
static int
some_ways(void)
{
	return options.quick ? 1 : WAYS;
}

/* Run queries together and compare each with brute force. */
static void
check_few(const World *world, const char *what, EngineQuery *queries, uint32_t count)
{
	queries_run(queries, count);
	for (uint32_t i = 0; i < count; i++)
	{
		SearchResult *expected = malloc(((size_t) queries[i].k + 1) * sizeof(SearchResult));

		check_equal(what, &queries[i], expected,
					model_exact(world, &queries[i], world->rows, expected));
		CHECK(queries[i].rows == world->rows, "%s: saw %u rows of %u", what, queries[i].rows,
			  world->rows);
		free(expected);
	}
}

/* Queries of a table, each with its own k. */
static void
few_of(const World *world, const char *what, const uint32_t *ks, uint32_t count)
{
	EngineQuery queries[FEW_QUERIES];
	char	   *vectors = allocate(count * world->vector_bytes);

	for (uint32_t i = 0; i < count; i++)
	{
		make_vector(world, 2000000 + i, vectors + i * world->vector_bytes);
		query_init(&queries[i], world, METHOD_EXACT, ks[i], 0, vectors + i * world->vector_bytes);
	}
	check_few(world, what, queries, count);
}

/*
 * Give every row one value in all elements, so that distances from zero rise or
 * fall with the slot.
 */
static void
fill_rows(World *world, bool falling)
{
	for (uint32_t slot = 0; slot < world->room; slot++)
	{
		float	   *row = (float *) (world->vectors + slot * world->vector_bytes);

		for (uint32_t i = 0; i < world->dims; i++)
			row[i] = (float) (falling ? world->room - slot : slot + 1);
	}
}

/*
 * Rows from far to near: each is nearer than all before it, so none is turned
 * away while bounds are old. And from near to far.
 */
static void
far_to_near(void)
{
	static const uint32_t ks[] = {1, 10, 900};
	EngineConfig config = {.device = options.device, .simd = options.simd};
	uint32_t	rows = options.quick ? 20000 : 300000;
	float		zeros[5] = {0};

	for (int way = 0; way < some_ways(); way++)
	{
		config.forced.exact = ways[way];
		reopen(&config);
		for (int falling = 1; falling >= 0; falling--)
		{
			World *world = world_create(ELEMENT_FLOAT, METRIC_L2, 5, rows, rows, SHAPE_UNIFORM);
			EngineQuery queries[FEW_QUERIES];

			fill_rows(world, falling);
			world_append(world, rows);
			for (size_t i = 0; i < sizeof(ks) / sizeof(ks[0]); i++)
			{
				query_init(&queries[0], world, METHOD_EXACT, ks[i], 0, zeros);
				check_few(world, "from far to near, or near to far", queries, 1);
			}
			for (uint32_t i = 0; i < FEW_QUERIES; i++)
				query_init(&queries[i], world, METHOD_EXACT, i == 3 ? 200 : 10, 0,
						   i % 2 == 1 ? world_vector(world, rows / (i + 2)) : zeros);
			queries[2].has_beyond = true;
			queries[2].beyond_slot = rows / 2;
			queries[2].beyond_distance =
				model_distance(world, zeros, world_vector(world, rows / 2));
			check_few(world, "four, from far to near or near to far", queries, 4);
			check_few(world, "seven, from far to near or near to far", queries, 7);
			check_few(world, "all, from far to near or near to far", queries, FEW_QUERIES);
			world_drop(world);
		}
	}
}

/*
 * One query at a time and up to sixteen together, of k from one to more than
 * there are rows, on one table; dead rows, and some overwritten.
 */
static void
mixed_k(void)
{
	static const uint32_t lone[] = {1, 2, 31, 10, 100, 1000, 1024, 1025, 7};
	static const uint32_t together[] = {3, 1024, 1, 129};
	static const uint32_t more[FEW_QUERIES] = {10, 256, 1, 3,	9,	100, 128, 2,
											   5,  31,	7, 200, 64, 10,	 12,  1};
	EngineConfig config = {.device = options.device, .simd = options.simd};
	uint32_t	rows = options.quick ? 1300 : 2500;

	for (int way = 0; way < some_ways(); way++)
	{
		config.forced.exact = ways[way];
		reopen(&config);
		for (int pair = 0; pair < PAIRS; pair++)
		{
			uint32_t	dims = 8 + (uint32_t) pair * 37;
			World *world = world_create(pairs[pair].type, pairs[pair].metric, dims, rows, rows,
										pair % 2 ? SHAPE_CLUSTERED : SHAPE_UNIFORM);

			world_append(world, rows);
			for (uint32_t slot = 3; slot < rows; slot += 17)
				world_kill(world, slot);
			for (size_t i = 0; i < sizeof(lone) / sizeof(lone[0]); i++)
				few_of(world, "a lone query", &lone[i], 1);
			for (uint32_t count = 2; count <= 4; count++)
				few_of(world, "a few of mixed k", together, count);
			for (uint32_t count = 5; count <= FEW_QUERIES; count += pair % 2 ? 3 : 11)
				few_of(world, "more of mixed k", more, count);
			world_drop(world);
		}
	}
}

/*
 * Equal distances, all of them or most: every row is as near as the k-th, and
 * slots decide.
 */
static void
ties(void)
{
	static const uint32_t ks[FEW_QUERIES] = {10, 1000, 1, 64};
	static const uint32_t more[FEW_QUERIES] = {10, 256, 1, 64, 2, 10, 10, 10,
											   10, 1,	1, 10, 3, 10, 10, 100};
	static const Shape shapes[] = {SHAPE_EQUAL, SHAPE_SMALL};
	EngineConfig config = {.device = options.device, .simd = options.simd};
	uint32_t	rows = options.quick ? 6000 : 200000;

	for (int way = 0; way < some_ways(); way++)
	{
		config.forced.exact = ways[way];
		reopen(&config);
		for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
			for (int pair = 0; pair < PAIRS; pair += 3)
			{
				World *world =
					world_create(pairs[pair].type, pairs[pair].metric, 3, rows, rows, shapes[i]);

				world_append(world, rows);
				world_kill(world, 0);
				few_of(world, "ties, alone", ks, 1);
				few_of(world, "ties, alone, many", ks + 1, 1);
				few_of(world, "ties, four", ks, 4);
				few_of(world, "ties, eight", more, 8);
				few_of(world, "ties, sixteen", more, 16);
				world_drop(world);
			}
	}
}

/*
 * Rows on either side of what a warp reads at once, a block, and all blocks of
 * a device; rows of any length.
 */
static void
sizes(void)
{
	static const uint32_t rows[] = {1, 2, 9, 63, 129, 1056, 2113, 8449};
	static const uint32_t dims[] = {1, 33, 129, 513, 1537, 2047, 2049};
	static const uint32_t ks[FEW_QUERIES] = {10, 11, 3,	200, 10, 1, 10, 10,
											 10, 12, 10, 10, 64, 10, 1, 30};
	EngineConfig config = {.device = options.device, .simd = options.simd};

	config.forced.exact = EXACT_FUSED;
	reopen(&config);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		World *world = world_create(ELEMENT_FLOAT, METRIC_L2, 24, rows[i], rows[i], SHAPE_UNIFORM);

		world_append(world, rows[i]);
		few_of(world, "sizes, alone", ks, 1);
		few_of(world, "sizes, three", ks, 3);
		few_of(world, "sizes, six", ks, 6);
		few_of(world, "sizes, fifteen", ks, 15);
		world_drop(world);
	}
	for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
		for (int half = 0; half < 2; half++)
		{
			World *world =
				world_create(half ? ELEMENT_HALF : ELEMENT_FLOAT, half ? METRIC_IP : METRIC_COSINE,
							 dims[i], 400, 400, SHAPE_CLUSTERED);

			world_append(world, 400);
			few_of(world, "dimensions, alone", ks, 1);
			few_of(world, "dimensions, two", ks, 2);
			few_of(world, "dimensions, four", ks, 4);
			few_of(world, "dimensions, eight", ks, 8);
			few_of(world, "dimensions, sixteen", ks, 16);
			world_drop(world);
		}
}

/*
 * Which way a search of a few queries went is forced by EngineConfig, and the
 * answer's counters tell it.
 */
static void
said_way(void)
{
	EngineConfig config = {.device = options.device, .simd = options.simd};

	for (int way = 0; way < WAYS; way++)
	{
		World	   *world;
		EngineQuery query;
		EngineQuery queries[FEW_QUERIES];
		EngineInfo	info;

		config.forced.exact = ways[way];
		reopen(&config);
		ops->info(engine, &info);
		world = world_create(ELEMENT_FLOAT, METRIC_L2, 16, 500, 500, SHAPE_UNIFORM);
		world_append(world, 500);
		query_init(&query, world, METHOD_EXACT, 10, 0, world_vector(world, 3));
		check_few(world, "a way", &query, 1);
		if (strcmp(info.name, "cuda") == 0 && ways[way] != EXACT_CHOSEN)
			CHECK(query.counters.iterations == (ways[way] == EXACT_FUSED), "way %d: %u phases",
				  (int) ways[way], query.counters.iterations);
		CHECK(query.counters.distances == 500, "%u distances of 500 rows",
			  query.counters.distances);
		for (uint32_t i = 0; i < FEW_QUERIES; i++)
			query_init(&queries[i], world, METHOD_EXACT, 10, 0, world_vector(world, i));
		check_few(world, "all on a way", queries, FEW_QUERIES);
		if (strcmp(info.name, "cuda") == 0 && ways[way] != EXACT_CHOSEN)
			CHECK(queries[0].counters.iterations == (ways[way] == EXACT_FUSED),
				  "way %d: %u phases of %u queries", (int) ways[way],
				  queries[0].counters.iterations, FEW_QUERIES);
		world_drop(world);
	}
}

/*
 * All that a pass does, on as little as it can be done on, so that tools which
 * follow every access end: a block and a part of one, and rows so long that
 * warps fill their rings more than once, the last of them not full.
 */
static void
small(void)
{
	static const uint32_t ks[FEW_QUERIES] = {10, 3, 40, 1, 10, 10, 10, 10, 10, 2};
	EngineConfig config = {.device = options.device, .simd = options.simd};
	World	   *world;

	config.forced.exact = EXACT_FUSED;
	reopen(&config);
	for (int pair = 0; pair < PAIRS; pair++)
	{
		world = world_create(pairs[pair].type, pairs[pair].metric, 20, 260, 260, SHAPE_UNIFORM);
		world_append(world, 259);
		world_kill(world, 5);
		few_of(world, "little, alone", ks, 1);
		if (pair % 3 == 0)
		{
			few_of(world, "little, two", ks, 2);
			few_of(world, "little, three", ks, 3);
			few_of(world, "little, five", ks, 5);
			few_of(world, "little, ten", ks, 10);
		}
		world_drop(world);
	}
	world = world_create(ELEMENT_FLOAT, METRIC_L2, 2000, 2100, 2100, SHAPE_CLUSTERED);
	world_append(world, 2099);
	few_of(world, "a few turns, alone", ks, 1);
	few_of(world, "a few turns, two", ks, 2);
	world_drop(world);
}

const Case few_cases[] = {
	{"exact_few_far_to_near", far_to_near, false},
	{"exact_few_mixed_k", mixed_k, false},
	{"exact_few_ties", ties, false},
	{"exact_few_sizes", sizes, false},
	{"exact_few_say_which_way", said_way, false},
	{"exact_few_small", small, false},
	{NULL}
};
