/*
 * conformance_tiles.c
 *		Many results, and tables that go through the device in tiles: any size
 *		of tile gives the same answer.
 *
 * Sizes of tiles are forced by EngineConfig; an engine that has no tiles
 * ignores that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"

/* Exact searches of one world, compared to the oracle. */
static void
check_many(const char *what, const World *world, uint32_t k, bool apart)
{
	SearchResult *expected = allocate((k + 1) * sizeof(SearchResult));
	EngineQuery query;

	query_init(&query, world, METHOD_EXACT, k, 0, world_vector(world, 7));
	if (apart)
	{
		uint64_t   *bits = allocate(((size_t) world->rows / 64 + 1) * sizeof(uint64_t));

		for (uint32_t i = 0; i < world->rows; i++)
			bits[i / 64] |= (uint64_t) (random_below(4) != 0) << (i % 64);
		query.filter = bits;
		query.filter_slots = world->rows;
		query.has_beyond = true;
		query.beyond_distance =
			model_distance(world, world_vector(world, 7), world_vector(world, 100));
		query.beyond_slot = 100;
	}
	query_run(&query);
	check_equal(what, &query, expected, model_exact(world, &query, world->rows, expected));
}

/*
 * More results than a block keeps, fewer and more than a third of the rows,
 * ties across the last of them.
 */
static void
many_results(void)
{
	static const Shape shapes[] = {SHAPE_UNIFORM, SHAPE_SMALL, SHAPE_EQUAL};
	static const uint32_t tiles[] = {0, 4096, 1700};
	EngineConfig config = {.device = options.device, .simd = options.simd};

	for (size_t tile = 0; tile < sizeof(tiles) / sizeof(tiles[0]); tile++)
	{
		config.forced.exact_tile = tiles[tile];
		reopen(&config);
		for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		{
			World *world = world_create(ELEMENT_FLOAT, i == 1 ? METRIC_L1 : METRIC_L2, 3, 5000,
										5000, shapes[i]);

			world_append(world, 5000);
			for (uint32_t slot = 0; slot < 5000; slot += 13)
				world_kill(world, slot);
			check_many("1,030 of 5,000", world, 1030, false);
			check_many("1,300 of 5,000, with a filter and a bound", world, 1300, true);
			check_many("1,800 of 5,000", world, 1800, false);
			check_many("5,000 of 5,000", world, 5000, true);
			world_drop(world);
		}
	}
}

/*
 * Which way a batch of a few queries goes is for the borders to say, and
 * changes none of its answers.
 */
static void
borders(void)
{
	static const struct
	{
		uint32_t	from_queries;
		uint32_t	from_rows;
		uint32_t	queries;
		bool		tiles;
	}			asked[] = {{2, 4096, 4, true}, {2, 6000, 16, false}, {17, 1, 16, false}};
	EngineConfig config = {.device = options.device, .simd = options.simd};

	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++)
	{
		SearchResult *expected = allocate(10 * sizeof(SearchResult));
		EngineQuery queries[16];
		EngineInfo	info;
		World	   *world;

		config.forced.tiles_queries = asked[i].from_queries;
		config.forced.tiles_rows = asked[i].from_rows;
		reopen(&config);
		ops->info(engine, &info);
		world = world_create(ELEMENT_FLOAT, METRIC_L2, 5, 5000, 5000, SHAPE_UNIFORM);
		world_append(world, 5000);
		for (uint32_t q = 0; q < asked[i].queries; q++)
			query_init(&queries[q], world, METHOD_EXACT, 10, 0, world_vector(world, q));
		queries_run(queries, asked[i].queries);
		for (uint32_t q = 0; q < asked[i].queries; q++)
		{
			check_equal("5,000 rows", &queries[q], expected,
						model_exact(world, &queries[q], world->rows, expected));
			if (strcmp(info.name, "cuda") == 0)
				CHECK((queries[q].counters.iterations > 0) == asked[i].tiles,
					  "borders %u, %u, %u queries: %u phases", asked[i].from_queries,
					  asked[i].from_rows, asked[i].queries, queries[q].counters.iterations);
		}
		world_drop(world);
	}
}

/* A crowd of `count` in a world of its own, compared to the oracle. */
static void
check_products(uint32_t products, ElementType type, Metric metric, uint32_t dims, uint32_t k,
			   uint32_t rows, uint32_t count)
{
	World	   *world = world_create(type, metric, dims, rows, rows, SHAPE_CLUSTERED);
	EngineQuery *queries = allocate(count * sizeof(EngineQuery));
	char	   *vectors = allocate(count * world->vector_bytes);
	SearchResult *expected = allocate((k + 1) * sizeof(SearchResult));
	char		what[64];

	snprintf(what, sizeof(what), "products: %u, %u dimensions, k = %u", products, dims, k);
	world_append(world, rows);
	for (uint32_t slot = 0; slot < rows; slot += 97)
		world_kill(world, slot);
	for (uint32_t q = 0; q < count; q++)
	{
		make_vector(world, 1000000 + q, vectors + q * world->vector_bytes);
		query_init(&queries[q], world, METHOD_EXACT, k, 0, vectors + q * world->vector_bytes);
	}
	queries_run(queries, count);
	for (uint32_t q = 0; q < count; q++)
		check_equal(what, &queries[q], expected,
					model_exact(world, &queries[q], world->rows, expected));
	world_drop(world);
}

/*
 * Check what `check` does with tiles wherever they can be, however tensor cores
 * multiply, and whatever the size of their tiles.
 */
static void
each_products(void (*check) (uint32_t products))
{
	static const uint32_t ways[] = {0, 1, 64, 128, 256};
	EngineConfig config = {.device = options.device, .simd = options.simd};
	size_t		count = 1;
	EngineInfo	info;

	config.forced.exact = EXACT_TILES;
	for (size_t i = 0; i < count; i++)
	{
		config.forced.tiles_products = ways[i];
		reopen(&config);
		ops->info(engine, &info);
		count = strcmp(info.name, "cuda") == 0 ? sizeof(ways) / sizeof(ways[0]) : 1;
		check(ways[i]);
	}
}

static void
check_of_any_tile(uint32_t products)
{
	check_products(products, ELEMENT_FLOAT, METRIC_L2, 33, 10, 2100, 260);
	check_products(products, ELEMENT_HALF, METRIC_COSINE, 300, 100, 600, 66);
	check_products(products, ELEMENT_FLOAT, METRIC_IP, 140, 200, 1100, 20);
	check_products(products, ELEMENT_FLOAT, METRIC_L2, 1, 1, 1100, 7);
}

/* Vectors that stay on the chip, and longer ones. */
static void
any_products(void)
{
	each_products(check_of_any_tile);
}

static void
check_small(uint32_t products)
{
	check_products(products, ELEMENT_FLOAT, METRIC_L2, 33, 5, 330, 70);
	check_products(products, ELEMENT_HALF, METRIC_COSINE, 150, 5, 330, 9);
}

/*
 * The same on as little as it can be done on, so that tools which follow every
 * access end: two tiles of queries, a few of rows, and what is left over.
 */
static void
small_products(void)
{
	each_products(check_small);
}

const Case tile_cases[] = {
	{"exact_borders_say_which_way", borders, false},
	{"exact_products_of_any_tile", any_products, false},
	{"exact_products_small", small_products, false},
	{"exact_many_results_in_tiles", many_results, false},
	{NULL}
};
