/*
 * conformance_exact.c
 *		Cases of exact search: equal to brute force in every bit, for every
 *		type, metric and dimension.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"
#include "engine/distance.h"

/* Run one exact query and compare it with brute force. */
static void
check_exact(const World *world, const char *what, EngineQuery *query)
{
	SearchResult *expected = malloc(((size_t) query->k + 1) * sizeof(SearchResult));
	uint32_t	count = model_exact(world, query, world->rows, expected);

	query_run(query);
	if (query->count == count &&
		memcmp(query->results, expected, count * sizeof(SearchResult)) == 0)
		free(expected);
	else
		check_equal(what, query, expected, count);
	CHECK(query->rows == world->rows, "%s: saw %u rows of %u", what, query->rows, world->rows);
}

/* Some exact queries of a table, by outside vectors and by one of its own. */
static void
check_world(World *world, const char *what, uint32_t k)
{
	void	   *vector = allocate(world->vector_bytes);
	EngineQuery query;

	for (uint32_t i = 0; i < 3; i++)
	{
		make_vector(world, 1000000 + i, vector);
		query_init(&query, world, METHOD_EXACT, k, 0,
				   i == 2 && world->rows > 0 ? world_vector(world, world->rows / 2) : vector);
		check_exact(world, what, &query);
	}
}

/* One type and metric, in a dimension. */
static void
one_pair(const Pair *pair, uint32_t dims, uint32_t rows)
{
	World	   *world = world_create(pair->type, pair->metric, dims, rows, rows, SHAPE_UNIFORM);

	world_append(world, rows);
	check_world(world, "exact", 1);
	check_world(world, "exact", 10);
	check_world(world, "exact, all rows", rows);
	check_world(world, "exact, more than all", rows + 5);
	world_drop(world);
}

/* Every type, metric and dimension; large dimensions with few rows. */
static void
every_pair(uint32_t dims, uint32_t rows)
{
	for (int i = 0; i < PAIRS; i++)
		one_pair(&pairs[i], dims, rows);
}

static void
dims_1(void)
{
	every_pair(1, 300);
}

static void
dims_3(void)
{
	every_pair(3, 300);
}

static void
dims_128(void)
{
	every_pair(128, 300);
}

static void
dims_384(void)
{
	every_pair(384, 200);
}

static void
dims_2000(void)
{
	every_pair(2000, 60);
}

static void
dims_16000(void)
{
	every_pair(16000, 12);
}

/*
 * Bits in every number from 1 to beyond what a register holds, and as many as
 * there may be.
 */
static void
dims_of_bits(void)
{
	for (int i = 0; i < PAIRS; i++)
	{
		if (pairs[i].type != ELEMENT_BIT)
			continue;
		for (uint32_t dims = 1; dims <= 140; dims++)
			one_pair(&pairs[i], dims, 20);
		one_pair(&pairs[i], 511, 40);
		one_pair(&pairs[i], 513, 40);
		one_pair(&pairs[i], 1536, 40);
		one_pair(&pairs[i], 16001, 12);
		one_pair(&pairs[i], ENGINE_MAX_BIT_DIMS, 12);
	}
}

/*
 * Few distinct elements: many equal distances, zero vectors, -0; ties go by
 * slot.
 */
static void
ties_by_slot(void)
{
	for (int i = 0; i < PAIRS; i++)
		for (uint32_t dims = 1; dims <= 3; dims += 2)
		{
			World *world =
				world_create(pairs[i].type, pairs[i].metric, dims, 1000, 10, SHAPE_SMALL);

			world_append(world, 1000);
			check_world(world, "ties", 10);
			check_world(world, "ties", 500);
			check_world(world, "ties", 1000);
			world_drop(world);
		}
}

/* Sizes around k, and large ones. */
static void
sizes(void)
{
	static const uint32_t rows[] = {0, 1, 9, 10, 11, 33, 10000};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		World *world =
			world_create(ELEMENT_FLOAT, METRIC_L2, 8, rows[i] + 1, rows[i], SHAPE_UNIFORM);

		world_append(world, rows[i]);
		check_world(world, "sizes", 10);
		world_drop(world);
	}
}

/* Results in the tens of thousands. */
static void
large_k(void)
{
	World	   *world = world_create(ELEMENT_HALF, METRIC_L2, 16, 20000, 20000, SHAPE_CLUSTERED);

	world_append(world, 20000);
	check_world(world, "large k", 5000);
	check_world(world, "large k", 20000);
}

/* Page after page beyond the last answer: everything comes, once, in order. */
static void
beyond(void)
{
	for (int i = 0; i < PAIRS; i++)
		for (int shape = 0; shape < 2; shape++)
		{
			World *world = world_create(pairs[i].type, pairs[i].metric, 3, 500, 500,
										shape == 0 ? SHAPE_UNIFORM : SHAPE_SMALL);
			EngineQuery query;
			uint32_t	seen = 0;

			world_append(world, 500);
			query_init(&query, world, METHOD_EXACT, 37, 0, world_vector(world, 11));
			do
			{
				check_exact(world, "beyond", &query);
				if (query.count == 0)
					break;
				seen += query.count;
				query.has_beyond = true;
				query.beyond_distance = query.results[query.count - 1].distance;
				query.beyond_slot = query.results[query.count - 1].slot;
			} while (query.count > 0);
			CHECK(seen == 500, "%u of 500 rows came", seen);
			world_drop(world);
		}
}

static uint64_t *
random_bits(uint32_t bits)
{
	uint64_t   *map = allocate(((size_t) bits + 63) / 64 * sizeof(uint64_t) + sizeof(uint64_t));

	for (uint32_t i = 0; i < bits; i++)
		map[i / 64] |= (uint64_t) random_below(2) << (i % 64);
	return map;
}

/* Exclusion bitmaps and filters, shorter and longer than the table. */
static void
exclude_and_filter(void)
{
	static const uint32_t bits[] = {0, 1, 63, 64, 500, 1000, 2000};
	World	   *world = world_create(ELEMENT_HALF, METRIC_COSINE, 8, 1000, 1000, SHAPE_UNIFORM);

	world_append(world, 1000);
	for (int mode = 1; mode < 4; mode++)
		for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++)
		{
			EngineQuery query;

			query_init(&query, world, METHOD_EXACT, 20, 0, world_vector(world, 5));
			if (mode & 1)
			{
				query.exclude = random_bits(bits[i]);
				query.exclude_slots = bits[i];
			}
			if (mode & 2)
			{
				query.filter = random_bits(bits[i]);
				query.filter_slots = bits[i];
			}
			check_exact(world, "exclude and filter", &query);
		}
}

/* Sets of rows as they are made: the slots of each row that a step reaches. */
static uint64_t *
stepped_bits(uint32_t first, uint32_t step, uint32_t bits)
{
	uint64_t   *map = allocate(((size_t) bits + 63) / 64 * sizeof(uint64_t) + sizeof(uint64_t));

	for (uint64_t i = first; i < bits; i += step)
		map[i / 64] |= UINT64_C(1) << (i % 64);
	return map;
}

/*
 * Sets of no row, one, few, all; with dead rows among them, and slots that the
 * mirror does not have; fewer rows than results, and more.
 */
static void
sets_of_rows(void)
{
	static const struct
	{
		uint32_t	first;
		uint32_t	step;
		uint32_t	bits;
	}			sets[] = {{2000, 1, 2000}, {0, 2000, 700}, {63, 2000, 64}, {64, 2000, 65},
						  {699, 2000, 700}, {5, 90, 700}, {62, 1, 130}, {3, 7, 2000},
						  {0, 1, 700}, {0, 1, 1999}, {701, 3, 2000}};
	static const uint32_t results[] = {1, 20, 800, 1500};

	for (int i = 0; i < PAIRS; i++)
	{
		World	   *world = world_create(pairs[i].type, pairs[i].metric,
										 pairs[i].type == ELEMENT_BIT ? 64 : 12, 710, 700,
										 i % 2 == 0 ? SHAPE_CLUSTERED : SHAPE_SMALL);

		world_append(world, 700);
		for (uint32_t slot = 5; slot < 700; slot += 30)
			world_kill(world, slot);
		for (size_t s = 0; s < sizeof(sets) / sizeof(sets[0]); s++)
		{
			EngineQuery query;

			query_init(&query, world, METHOD_EXACT, results[s % 4], 0, world_vector(world, 701));
			query.filter = stepped_bits(sets[s].first, sets[s].step, sets[s].bits);
			query.filter_slots = sets[s].bits;
			check_exact(world, "set of rows", &query);
			if (query.count < 2)
				continue;
			query.has_beyond = true;
			query.beyond_distance = query.results[query.count / 2].distance;
			query.beyond_slot = query.results[query.count / 2].slot;
			check_exact(world, "set of rows, beyond", &query);
		}
		world_drop(world);
	}
}

/*
 * Dead and absent rows are no answers; an append may leave a gap and bring dead
 * rows.
 */
static void
dead_and_absent(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 8, 400, 400, SHAPE_UNIFORM);
	uint64_t   *dead = random_bits(200);
	EngineJob job = {
		.kind = JOB_APPEND, .mirror = world->mirror, .count = 200, .first_slot = 200, .dead = dead};
	MirrorInfo	info;
	uint32_t	dead_rows = 50;

	world_append(world, 150);
	job.versions = world->versions + 200;
	job.vectors = world_vector(world, 200);
	CHECK(run_job(&job, NULL) == ENGINE_OK, "append with a gap failed");
	world->rows = 400;
	for (uint32_t slot = 150; slot < 400; slot++)
		if (slot < 200 || (dead[(slot - 200) / 64] >> ((slot - 200) % 64) & 1))
		{
			world->live[slot] = false;
			dead_rows += slot >= 200;
		}
	check_world(world, "dead and absent", 400);
	info = world_info(world);
	CHECK(info.rows == 400 && info.dead == dead_rows && info.pending == 400 - dead_rows &&
			  info.linked == 0,
		  "%u rows, %u dead, %u pending, %u linked", info.rows, info.dead, info.pending,
		  info.linked);
	for (uint32_t slot = 0; slot < 400; slot += 7)
		if (world->live[slot])
			world_kill(world, slot);
	check_world(world, "killed", 400);
}

/* Batches of 1 to 300 answer as single queries do. */
static void
batches(void)
{
	static const uint32_t sizes_of[] = {1, 2, 3, 17, 64, 300};
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 32, 3300, 3000, SHAPE_CLUSTERED);
	SearchResult expected[10];

	world_append(world, 3000);
	for (size_t i = 0; i < sizeof(sizes_of) / sizeof(sizes_of[0]); i++)
	{
		EngineQuery *queries = allocate(sizes_of[i] * sizeof(EngineQuery));

		for (uint32_t j = 0; j < sizes_of[i]; j++)
			query_init(&queries[j], world, METHOD_EXACT, 10, 0, world_vector(world, 3000 + j));
		queries_run(queries, sizes_of[i]);
		for (uint32_t j = 0; j < sizes_of[i]; j++)
			check_equal("batch", &queries[j], expected,
						model_exact(world, &queries[j], world->rows, expected));
	}
}

const Case exact_cases[] = {
	{"exact_dims_1", dims_1, false},
	{"exact_dims_3", dims_3, false},
	{"exact_dims_128", dims_128, false},
	{"exact_dims_384", dims_384, false},
	{"exact_dims_2000", dims_2000, false},
	{"exact_dims_16000", dims_16000, false},
	{"exact_dims_of_bits", dims_of_bits, false},
	{"exact_ties_by_slot", ties_by_slot, false},
	{"exact_sizes", sizes, false},
	{"exact_large_k", large_k, true},
	{"exact_beyond", beyond, false},
	{"exact_exclude_and_filter", exclude_and_filter, false},
	{"exact_sets_of_rows", sets_of_rows, false},
	{"exact_dead_and_absent", dead_and_absent, false},
	{"exact_batches", batches, false},
	{NULL, NULL, false}
};

/* ---- the order and the kernels of this build ---- */

/*
 * engine_before is a total order: by distance, -0 as 0, infinity last, then by
 * slot.
 */
static void
order_is_total(void)
{
	static const double values[] = {-INFINITY, -1e300, -1.5, -0.0,	0.0,
									1e-320,	   1.0,	   1.5,	 1e300, INFINITY};
	const uint32_t n = sizeof(values) / sizeof(values[0]);

	for (uint32_t round = 0; round < 200000; round++)
	{
		double		d[3];
		uint32_t	s[3];

		for (int i = 0; i < 3; i++)
		{
			d[i] = values[random_below(n)];
			s[i] = random_below(4);
		}
		CHECK(engine_before(d[0], s[0], d[1], s[1]) + engine_before(d[1], s[1], d[0], s[0]) ==
				  !(d[0] == d[1] && s[0] == s[1]),
			  "neither or both of two different answers come first");
		CHECK(!(engine_before(d[0], s[0], d[1], s[1]) && engine_before(d[1], s[1], d[2], s[2])) ||
			  engine_before(d[0], s[0], d[2], s[2]), "the order is not transitive");
		CHECK(!(d[0] < d[1]) || engine_before(d[0], s[0], d[1], s[1]),
			  "the nearer does not come first");
	}
	CHECK(engine_before(-0.0, 1, 0.0, 2) && !engine_before(0.0, 2, -0.0, 1), "-0 does not equal 0");
}

/*
 * How far a fast distance may be from the exact one: 1e-5 of the sizes that it
 * sums.
 */
static double
fast_tolerance(const DistanceKernels *kernels, const Pair *pair, const void *a, const void *b,
			   uint32_t dims, double exact)
{
	switch (pair->metric)
	{
		case METRIC_IP:
			return 1e-5 * (1 + sqrt((double) kernels->squared_norm(a, dims) *
									kernels->squared_norm(b, dims)));
		case METRIC_L2:
		case METRIC_L1:
			return 1e-5 * exact;
		case METRIC_HAMMING:
			return 0;
		default:
			return 1e-5;
	}
}

/*
 * One pair of vectors at some alignment: the exact kernel gives the
 * definition's bits, the fast one is near.
 */
static void
kernels_of(const DistanceKernels *kernels, const Pair *pair, uint32_t dims)
{
	World		world = {.type = pair->type, .metric = pair->metric, .dims = dims};
	uint32_t	shape = SHAPE_UNIFORM;
	size_t		bytes = engine_vector_bytes(pair->type, dims);
	char	   *a = (char *) allocate(bytes + 64) + dims % 4;
	char	   *b = (char *) allocate(bytes + 64) + dims / 4 % 2;
	char	   *aligned = allocate(bytes);
	float	   *wide = allocate(dims * sizeof(float));
	float		scale;
	double		exact;
	double		difference;

	world.versions = &shape;
	make_vector(&world, 1, aligned);
	memcpy(a, aligned, bytes);
	make_vector(&world, 2, aligned);
	memcpy(b, aligned, bytes);
	/* what lies behind a vector does not count */
	memset(a + bytes, 0x5A, 32);
	memset(b + bytes, 0xA5, 32);
	exact = kernels->exact(a, b, dims);
	CHECK(exact == model_distance(&world, a, b),
		  "exact kernel, type %d, metric %d, %u dimensions: %.17g, not %.17g", pair->type,
		  pair->metric, dims, exact, model_distance(&world, a, b));
	kernels->widen(a, dims, wide);
	scale = 1 / sqrtf(kernels->squared_norm(a, dims) * kernels->squared_norm(b, dims));
	difference = fabs(kernels->fast(wide, b, dims, scale) - exact);
	CHECK(difference <= fast_tolerance(kernels, pair, a, b, dims, exact),
		  "fast kernel, type %d, metric %d, %u dimensions is off by %g", pair->type, pair->metric,
		  dims, difference);
}

/*
 * Kernels of one level equal the definition in every bit, whatever the
 * alignment; fast ones are near it.
 */
static void
kernels_at(SimdLevel level)
{
	static const uint32_t large[] = {384, 511, 512, 513, 1001, 1536, 2000, 2001, 3072, 4095, 16000};

	if (!simd_available(level))
		skip("this processor lacks SIMD level %s", simd_name(level));
	for (int i = 0; i < PAIRS; i++)
	{
		const DistanceKernels *kernels = distance_kernels(pairs[i].type, pairs[i].metric, level);

		CHECK(kernels != NULL && kernels->level <= level, "no kernels");
		for (uint32_t dims = 1; dims <= 272; dims++)
			kernels_of(kernels, &pairs[i], dims);
		for (size_t j = 0; j < sizeof(large) / sizeof(large[0]); j++)
			kernels_of(kernels, &pairs[i], large[j]);
		kernels_of(kernels, &pairs[i], engine_max_dims(pairs[i].type));
	}
	CHECK(distance_kernels(ELEMENT_BIT, METRIC_L2, level) == NULL &&
			  distance_kernels(ELEMENT_FLOAT, METRIC_HAMMING, level) == NULL,
		  "there are kernels for pairs that have no distance");
}

static void
kernels_portable(void)
{
	kernels_at(SIMD_PORTABLE);
}

static void
kernels_avx2(void)
{
	kernels_at(SIMD_AVX2);
}

static void
kernels_avx512(void)
{
	kernels_at(SIMD_AVX512);
}

/* The CPU engine, forced to a level, answers as the model does. */
static void
engine_at(const char *level)
{
	EngineConfig config = {.simd = level, .device = options.device};
	EngineError error = {0};
	Engine	   *forced = NULL;
	EngineStatus status;

	if (strcmp(options.engine, "cpu") != 0)
		skip("only the CPU engine has SIMD levels");
	if (options.simd != NULL)
		skip("level %s was asked for", options.simd);
	status = ops->open(&config, &forced, &error);
	if (status == ENGINE_UNSUPPORTED)
		skip("%s", error.text);
	must(status, &error, "open");
	ops->close(engine);
	engine = forced;
	every_pair(77, 200);
	for (int i = 0; i < PAIRS; i++)
	{
		World *world =
			world_create(pairs[i].type, pairs[i].metric, 77, 1000, 1000, SHAPE_CLUSTERED);
		EngineQuery query;

		world_append(world, 1000);
		world_link(world);
		query_init(&query, world, METHOD_GRAPH, 10, 100, world_vector(world, 77));
		query_run(&query);
		check_sound(world, &query);
		CHECK(recall_of(world, &query) >= 0.9, "recall %.3f", recall_of(world, &query));
		world_drop(world);
	}
}

static void
engine_portable(void)
{
	engine_at("portable");
}

static void
engine_avx2(void)
{
	engine_at("avx2");
}

static void
engine_avx512(void)
{
	engine_at("avx512");
}

const Case kernel_cases[] = {
	{"order_is_total", order_is_total, false},
	{"kernels_portable", kernels_portable, false},
	{"kernels_avx2", kernels_avx2, false},
	{"kernels_avx512", kernels_avx512, false},
	{"engine_forced_portable", engine_portable, false},
	{"engine_forced_avx2", engine_avx2, false},
	{"engine_forced_avx512", engine_avx512, false},
	{NULL, NULL, false}
};
