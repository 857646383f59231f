/*
 * quantizer_test.c
 *		Quantizers and k-means: codes decode to what estimates measure, lower
 *		bounds are below, more bits find more, and the same rows give the same
 *		bytes.
 *
 * Distances that estimates are compared with are computed here, in double and
 * from the definition. Rows are clustered; worlds also have rows far from the
 * origin, of very different lengths, with few large elements, and equal ones.
 */
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quantizer/kmeans.h"
#include "engine/quantizer/nearest.h"
#include "engine/quantizer/quantizer.h"
#include "engine/quantizer/random.h"
#include "engine/quantizer/sums.h"

static int	number;
static bool all = true;
static char failure[256];

/* Remember the first thing that fails in a test. */
#define FAIL(...) \
	do \
	{ \
		if (failure[0] == '\0') \
			snprintf(failure, sizeof(failure), __VA_ARGS__); \
	} while (0)

#define CHECK(condition) \
	do \
	{ \
		if (!(condition)) \
			FAIL("line %d: %s", __LINE__, #condition); \
	} while (0)

/* End a test. */
static void
report(const char *promise)
{
	bool		right = failure[0] == '\0';

	printf("%sok %d - quantizers: %s\n", right ? "" : "not ", ++number, promise);
	if (!right)
		printf("# %s\n", failure);
	all &= right;
	failure[0] = '\0';
}

static void *
need(size_t bytes)
{
	void	   *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);

	if (memory == NULL)
		exit(2);
	return memory;
}

static uint64_t state = 1;

/* About normal. */
static double
normal(void)
{
	double		sum = -6;

	for (int i = 0; i < 12; i++)
		sum += random_fraction(&state);
	return sum;
}

static double
square_of(const float *a, const float *b, uint32_t dims)
{
	double		sum = 0;

	for (uint32_t i = 0; i < dims; i++)
		sum += ((double) a[i] - b[i]) * ((double) a[i] - b[i]);
	return sum;
}

static double
product_of(const float *a, const float *b, uint32_t dims)
{
	double		sum = 0;

	for (uint32_t i = 0; i < dims; i++)
		sum += (double) a[i] * b[i];
	return sum;
}

/* What estimates stand for. */
static double
distance_of(Metric metric, const float *a, const float *b, uint32_t dims)
{
	return metric == METRIC_L2 ? square_of(a, b, dims) : -product_of(a, b, dims);
}

/* ---- nearest centroids ---- */

static void
check_nearest(uint32_t dims, uint32_t count, uint32_t rows, double grid)
{
	float	   *centroids = need((size_t) count * dims * sizeof(float));
	float	   *row = need((size_t) rows * (dims + 3) * sizeof(float));
	void	   *memory = need(centroids_bytes(count, dims));
	uint32_t   *nearest = need(rows * sizeof(uint32_t));
	double	   *distances = need(rows * sizeof(double));
	const DistanceKernels *kernels = distance_kernels(ELEMENT_FLOAT, METRIC_L2, SIMD_PORTABLE);
	Centroids	set;

	for (size_t i = 0; i < (size_t) count * dims; i++)
		centroids[i] = (float) (grid > 0 ? rint(normal()) * grid : normal());
	for (size_t i = 0; i < (size_t) rows * (dims + 3); i++)
		row[i] = (float) (grid > 0 ? rint(normal() * 2) / 2 * grid : normal());
	centroids_init(&set, centroids, count, dims, memory);
	for (SimdLevel level = SIMD_PORTABLE; level <= SIMD_AVX512; level++)
	{
		if (!simd_available(level))
			continue;
		set.level = level;
		centroids_nearest(&set, row, dims + 3, rows, nearest, distances);
		for (uint32_t i = 0; i < rows; i++)
		{
			uint32_t	best = 0;
			double		least = INFINITY;

			for (uint32_t c = 0; c < count; c++)
			{
				double		d = kernels->exact(row + i * (dims + 3), centroids + c * dims, dims);

				best = d < least ? c : best;
				least = d < least ? d : least;
			}
			if (nearest[i] != best || !(distances[i] == least))
				FAIL("level %d, %u dimensions, %u centroids, row %u: %u at %g, not %u at %g",
					 (int) level, dims, count, i, nearest[i], distances[i], best, least);
		}
	}
	free(centroids);
	free(row);
	free(memory);
	free(nearest);
	free(distances);
}

static void
test_nearest(void)
{
	static const uint32_t dims[] = {1, 3, 8, 64, 127, 128, 768};
	static const uint32_t counts[] = {1, 31, 33, 256};

	for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
		for (size_t j = 0; j < sizeof(counts) / sizeof(counts[0]); j++)
		{
			check_nearest(dims[i], counts[j], 1 + (uint32_t) (37 * i + j), 0);
			check_nearest(dims[i], counts[j], 40, 1);
			check_nearest(dims[i], counts[j], 3, 1e19);
			check_nearest(dims[i], counts[j], 3, 1e38);
			check_nearest(dims[i], counts[j], 3, 1e-40);
		}
	report("the nearest centroid is the one of least exact distance, at every level");
}

/* ---- k-means ---- */

#define KMEANS_ROWS		3000
#define KMEANS_DIMS		16
#define KMEANS_LISTS	60
#define KMEANS_ROUNDS	12

static float kmeans_rows[KMEANS_ROWS * KMEANS_DIMS];
static float kmeans_found[2][KMEANS_LISTS * KMEANS_DIMS];

/* Rows in clusters, whose sizes differ by far. */
static void
make_clusters(float *rows, uint32_t count, uint32_t dims, uint32_t clusters, double width)
{
	float	   *centres = need((size_t) clusters * dims * sizeof(float));

	for (size_t i = 0; i < (size_t) clusters * dims; i++)
		centres[i] = (float) normal();
	for (uint32_t row = 0; row < count; row++)
	{
		double		skewed = random_fraction(&state);
		uint32_t	cluster = (uint32_t) (skewed * skewed * clusters);

		for (uint32_t i = 0; i < dims; i++)
			rows[(size_t) row * dims + i] =
				centres[(size_t) cluster * dims + i] + (float) (normal() * width);
	}
	free(centres);
}

static KmeansTask
kmeans_task(void)
{
	return (KmeansTask) {.rows = kmeans_rows,
						 .stride = KMEANS_DIMS,
						 .count = KMEANS_ROWS,
						 .dims = KMEANS_DIMS,
						 .lists = KMEANS_LISTS,
						 .rounds = KMEANS_ROUNDS,
						 .seed = 42};
}

/* Work shared by threads. */
typedef struct Share
{
	void		(*work) (void *argument, uint32_t item);
	void	   *argument;
	uint32_t	count;
	_Atomic uint32_t next;
} Share;

static void *
take_items(void *context)
{
	Share	   *share = context;
	uint32_t	item;

	while ((item = share->next++) < share->count)
		share->work(share->argument, item);
	return NULL;
}

static void
spread_over_threads(void *context, void (*work) (void *argument, uint32_t item), void *argument,
					uint32_t count)
{
	Share		share = {work, argument, count, 0};
	pthread_t	threads[3];

	for (int i = 0; i < 3; i++)
		if (pthread_create(&threads[i], NULL, take_items, &share) != 0)
			exit(2);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
}

static void
spread_backwards(void *context, void (*work) (void *argument, uint32_t item), void *argument,
				 uint32_t count)
{
	while (count-- > 0)
		work(argument, count);
}

static void
check_inertia(const double *inertia, uint32_t rounds)
{
	for (uint32_t i = 1; i < rounds; i++)
		if (!(inertia[i] <= inertia[i - 1] * (1 + 1e-7)))
			FAIL("round %u: %.17g after %.17g", i, inertia[i], inertia[i - 1]);
}

static void
test_kmeans_inertia(void)
{
	double		inertia[KMEANS_ROUNDS];
	KmeansTask	task = kmeans_task();

	task.inertia = inertia;
	for (uint64_t seed = 1; seed <= 10; seed++)
	{
		task.seed = seed;
		task.lists = seed % 2 ? KMEANS_LISTS : 7;
		CHECK(kmeans_run(&task, kmeans_found[0]) == ENGINE_OK);
		check_inertia(inertia, KMEANS_ROUNDS);
		CHECK(inertia[KMEANS_ROUNDS - 1] < inertia[0]);
	}
	report("the inertia does not rise from round to round");
}

/* Few different rows: every list that can has a row of its own. */
static void
test_kmeans_equal_rows(void)
{
	static float rows[500 * 4];
	float		found[40 * 4];
	double		inertia[KMEANS_ROUNDS];
	KmeansTask	task = {.rows = rows, .stride = 4, .count = 500, .dims = 4, .lists = 40,
						.rounds = KMEANS_ROUNDS, .seed = 3, .inertia = inertia};

	for (uint32_t i = 0; i < 500 * 4; i++)
		rows[i] = (float) ((i / 4) % 20 * (i % 4 + 1));
	CHECK(kmeans_run(&task, found) == ENGINE_OK);
	check_inertia(inertia, KMEANS_ROUNDS);
	CHECK(inertia[KMEANS_ROUNDS - 1] == 0);
	task.count = 7;
	CHECK(kmeans_run(&task, found) == ENGINE_OK);
	CHECK(inertia[KMEANS_ROUNDS - 1] == 0);
	task.count = task.lists = 1;
	CHECK(kmeans_run(&task, found) == ENGINE_OK);
	CHECK(memcmp(found, rows, sizeof(float) * 4) == 0);
	report("k-means of equal rows, of fewer rows than lists, of one row");
}

static void
test_kmeans_threads(void)
{
	TrainControl threads = {.spread = spread_over_threads};
	TrainControl backwards = {.spread = spread_backwards};
	KmeansTask	task = kmeans_task();

	for (int balance = 0; balance <= 1; balance++)
	{
		task.balance = balance;
		task.control = NULL;
		CHECK(kmeans_run(&task, kmeans_found[0]) == ENGINE_OK);
		CHECK(kmeans_run(&task, kmeans_found[1]) == ENGINE_OK);
		CHECK(memcmp(kmeans_found[0], kmeans_found[1], sizeof(kmeans_found[0])) == 0);
		task.control = &threads;
		CHECK(kmeans_run(&task, kmeans_found[1]) == ENGINE_OK);
		CHECK(memcmp(kmeans_found[0], kmeans_found[1], sizeof(kmeans_found[0])) == 0);
		task.control = &backwards;
		CHECK(kmeans_run(&task, kmeans_found[1]) == ENGINE_OK);
		CHECK(memcmp(kmeans_found[0], kmeans_found[1], sizeof(kmeans_found[0])) == 0);
	}
	task.seed++;
	CHECK(kmeans_run(&task, kmeans_found[1]) == ENGINE_OK);
	CHECK(memcmp(kmeans_found[0], kmeans_found[1], sizeof(kmeans_found[0])) != 0);
	report("k-means finds the same centroids with any threads, others with another seed");
}

/* What probes of one list read, over what they would if all were equal. */
static double
imbalance(const float *centroids)
{
	void	   *memory = need(centroids_bytes(KMEANS_LISTS, KMEANS_DIMS));
	static uint32_t list[KMEANS_ROWS];
	double		sizes[KMEANS_LISTS] = {0};
	double		sum = 0;
	Centroids	set;

	centroids_init(&set, centroids, KMEANS_LISTS, KMEANS_DIMS, memory);
	centroids_nearest(&set, kmeans_rows, KMEANS_DIMS, KMEANS_ROWS, list, NULL);
	for (uint32_t row = 0; row < KMEANS_ROWS; row++)
		sizes[list[row]]++;
	for (uint32_t i = 0; i < KMEANS_LISTS; i++)
		sum += sizes[i] * sizes[i];
	free(memory);
	return sum * KMEANS_LISTS / KMEANS_ROWS / KMEANS_ROWS;
}

static void
test_kmeans_balance(void)
{
	KmeansTask	task = kmeans_task();
	double		before = 0;
	double		after = 0;

	for (task.seed = 1; task.seed <= 5; task.seed++)
	{
		task.balance = false;
		CHECK(kmeans_run(&task, kmeans_found[0]) == ENGINE_OK);
		before += imbalance(kmeans_found[0]) / 5;
		task.balance = true;
		CHECK(kmeans_run(&task, kmeans_found[0]) == ENGINE_OK);
		after += imbalance(kmeans_found[0]) / 5;
	}
	printf("# imbalance %.3f, with balance %.3f\n", before, after);
	CHECK(after < before);
	report("balance makes lists more equal");
}

static bool
count_down(void *context)
{
	return --*(int *) context < 0;
}

static void
test_kmeans_interrupt(void)
{
	int			left;
	TrainControl control = {.interrupted = count_down, .context = &left};
	KmeansTask	task = kmeans_task();

	task.control = &control;
	for (int calls = 0; calls < 80; calls += 7)
	{
		left = calls;
		CHECK(kmeans_run(&task, kmeans_found[0]) == ENGINE_CANCELLED);
		CHECK(left == -1);
	}
	left = 1000000;
	CHECK(kmeans_run(&task, kmeans_found[0]) == ENGINE_OK);
	CHECK(kmeans_bytes(&task) >= (size_t) KMEANS_ROWS * 16);
	report("k-means ends at once when it is interrupted");
}

/* Four points, two lists, by hand. */
static void
test_kmeans_golden(void)
{
	static const float rows[] = {0, 0, 0, 2, 10, 0, 10, 4};
	float		found[4];
	double		inertia[4];
	KmeansTask	task = {.rows = rows, .stride = 2, .count = 4, .dims = 2, .lists = 2, .rounds = 4,
						.seed = 1, .inertia = inertia};

	CHECK(kmeans_run(&task, found) == ENGINE_OK);
	CHECK(inertia[3] == 10);
	CHECK((found[0] == 0 && found[1] == 1 && found[2] == 10 && found[3] == 2) ||
		  (found[0] == 10 && found[1] == 2 && found[2] == 0 && found[3] == 1));
	report("k-means of four points");
}

/* ---- integer sums ---- */

static void
test_sums(void)
{
	static int16_t query[4096];
	static uint32_t code[8 * 128];

	for (size_t i = 0; i < sizeof(code) / sizeof(code[0]); i++)
		code[i] = (uint32_t) random_next(&state);
	for (uint32_t dims = 1; dims <= 4096; dims += 1 + dims / 7)
		for (uint32_t bits = 1; bits <= 8; bits++)
		{
			uint32_t	words = (dims + 31) / 32;
			int32_t		bytes = sum_kernels(SIMD_PORTABLE)->bytes(query, (int8_t *) code, dims);
			int32_t		planes;

			memset(query, 0, sizeof(query));
			for (uint32_t i = 0; i < dims; i++)
				query[i] = (int16_t) (random_below(&state, 4001) - 2000);
			bytes = sum_kernels(SIMD_PORTABLE)->bytes(query, (int8_t *) code, dims);
			planes = sum_kernels(SIMD_PORTABLE)->planes(query, code, words, bits);
			for (SimdLevel level = SIMD_AVX2; level <= SIMD_AVX512; level++)
			{
				CHECK(sum_kernels(level)->bytes(query, (int8_t *) code, dims) == bytes);
				CHECK(sum_kernels(level)->planes(query, code, words, bits) == planes);
			}
		}
	report("integer sums are equal at every level");
}

/* ---- worlds of rows, lists and queries ---- */

#define MOST_LISTS	8
#define MOST_ROWS	64			/* of a list */
#define QUERIES		8

typedef enum Kind
{
	ORDINARY,
	FAR,						/* from the origin */
	LONG,						/* lengths from 10^-3 to 10^3 */
	SPIKES,						/* few large elements */
	EQUAL,						/* rows that lie on their centroids */
	HUGE_ROWS,					/* whose squares overflow */
	KINDS
} Kind;

typedef struct World
{
	QuantizerShape shape;
	Kind		kind;
	uint32_t	lists;
	uint32_t	rows;			/* of a list */
	float	   *centroids;
	float	   *row;			/* lists x rows x dims */
	float	   *queries;
	void	   *codebook;
	Quantizer  *quantizer;
	unsigned char *codes;
	size_t		code_bytes;
	void	   *tables;
	float		estimates[MOST_ROWS];
	float		lower[MOST_ROWS];
} World;

static float *
row_of(const World *world, uint32_t list, uint32_t i)
{
	return world->row + ((size_t) list * world->rows + i) * world->shape.dims;
}

static unsigned char *
codes_of(const World *world, uint32_t list)
{
	return world->codes + (size_t) list * world->rows * world->code_bytes;
}

/* Element i of a vector of a kind; length is the vector's. */
static float
element(Kind kind, uint32_t i, double length)
{
	switch (kind)
	{
		case FAR:
			return (float) (normal() + 30);
		case LONG:
			return (float) (normal() * length);
		case SPIKES:
			return (float) (normal() * (i % 97 == 0 ? 60 : 1));
		case HUGE_ROWS:
			return (float) (normal() * 1e19);
		default:
			return (float) normal();
	}
}

static void
make_rows(World *world)
{
	uint32_t	dims = world->shape.dims;

	for (uint32_t list = 0; list < world->lists; list++)
	{
		for (uint32_t i = 0; i < dims; i++)
			world->centroids[list * dims + i] = element(world->kind, i, 1);
		for (uint32_t at = 0; at < world->rows; at++)
		{
			double		length = pow(10, 6 * random_fraction(&state) - 3);

			for (uint32_t i = 0; i < dims; i++)
				row_of(world, list, at)[i] =
					(world->kind == LONG ? 0 : world->centroids[list * dims + i]) +
					(world->kind == EQUAL ? 0 : element(world->kind == FAR ? ORDINARY : world->kind,
														i, length)) * 0.5f;
		}
	}
	for (uint32_t query = 0; query < QUERIES; query++)
	{
		const float *near = row_of(world, query % world->lists, query % world->rows);

		for (uint32_t i = 0; i < dims; i++)
			world->queries[query * dims + i] =
				near[i] + (query % 4 == 0 ? 0 : (float) normal() * 0.3f);
	}
}

/* Train on the residuals of all rows. */
static void
train(World *world)
{
	uint32_t	dims = world->shape.dims;
	uint32_t	count = world->lists * world->rows;
	float	   *residuals = need((size_t) count * dims * sizeof(float));

	for (uint32_t row = 0; row < count; row++)
		for (uint32_t i = 0; i < dims; i++)
			residuals[(size_t) row * dims + i] = world->row[(size_t) row * dims + i] -
				world->centroids[row / world->rows * dims + i];
	world->codebook = need(quantizer_codebook_bytes(&world->shape));
	CHECK(quantizer_train(&world->shape, residuals, count, NULL, world->codebook) == ENGINE_OK);
	free(residuals);
}

static void
make_world(World *world, QuantizerShape shape, Kind kind, uint32_t lists, uint32_t rows)
{
	uint32_t	dims = shape.dims;

	memset(world, 0, sizeof(*world));
	world->shape = shape;
	world->kind = kind;
	world->lists = lists;
	world->rows = rows;
	world->centroids = need((size_t) lists * dims * sizeof(float));
	world->row = need((size_t) lists * rows * dims * sizeof(float));
	world->queries = need((size_t) QUERIES * dims * sizeof(float));
	make_rows(world);
	train(world);
	world->code_bytes = quantizer_code_bytes(&shape);
	world->codes = need((size_t) lists * rows * world->code_bytes);
	world->tables = need(quantizer_table_bytes(&shape));
	world->quantizer = quantizer_open(&shape, world->codebook);
	if (world->quantizer == NULL)
		exit(2);
	for (uint32_t list = 0; list < lists; list++)
		quantizer_encode(world->quantizer, world->centroids + list * dims, row_of(world, list, 0),
						 rows, codes_of(world, list));
}

static void
free_world(World *world)
{
	quantizer_close(world->quantizer);
	free(world->centroids);
	free(world->row);
	free(world->queries);
	free(world->codebook);
	free(world->codes);
	free(world->tables);
}

/* Estimate the rows of a list for the query whose tables there are. */
static double
estimate_list(World *world, uint32_t query, uint32_t list)
{
	uint32_t	dims = world->shape.dims;
	double		base = distance_of(world->shape.metric, world->queries + query * dims,
								   world->centroids + list * dims, dims);

	quantizer_estimate(world->quantizer, world->tables, (float) base, codes_of(world, list),
					   world->rows, world->estimates, world->lower);
	return base;
}

/*
 * What an estimate is of: for int8 and pq the distance to the decoded row; for
 * rabitq the same with |r| in place of the decoded residual's length.
 */
static double
estimated(const World *world, uint32_t query, uint32_t list, uint32_t at)
{
	uint32_t	dims = world->shape.dims;
	const float *centroid = world->centroids + list * dims;
	const float *q = world->queries + query * dims;
	float	   *decoded = need(dims * sizeof(float));
	double		square = 0;
	double		distance = 0;

	quantizer_decode(world->quantizer, codes_of(world, list) + at * world->code_bytes, decoded);
	for (uint32_t i = 0; i < dims; i++)
	{
		double		x = (double) centroid[i] + decoded[i];

		distance += world->shape.metric == METRIC_L2 ? (q[i] - x) * (q[i] - x) : -q[i] * x;
		square += (double) decoded[i] * decoded[i];
	}
	if (world->shape.kind == QUANTIZER_RABITQ && world->shape.metric == METRIC_L2)
		distance += square_of(row_of(world, list, at), centroid, dims) - square;
	free(decoded);
	return distance;
}

/* ---- what estimates promise ---- */

static const QuantizerShape shapes[] = {
	{QUANTIZER_INT8, METRIC_L2, 0, 8, 0, 5},   {QUANTIZER_RABITQ, METRIC_L2, 0, 1, 0, 5},
	{QUANTIZER_RABITQ, METRIC_L2, 0, 3, 0, 5}, {QUANTIZER_RABITQ, METRIC_L2, 0, 8, 0, 5},
	{QUANTIZER_PQ, METRIC_L2, 0, 4, 16, 5},	   {QUANTIZER_PQ, METRIC_L2, 0, 8, 12, 5},
};

#define SHAPES	(sizeof(shapes) / sizeof(shapes[0]))

static const uint32_t all_dims[] = {1, 3, 64, 127, 128, 384, 768, 1536, 2000};

#define DIMS	(sizeof(all_dims) / sizeof(all_dims[0]))

/* A shape for so many dimensions. */
static QuantizerShape
shape_of(size_t i, Metric metric, uint32_t dims)
{
	QuantizerShape shape = shapes[i];

	shape.metric = metric;
	shape.dims = dims;
	if (shape.kind == QUANTIZER_PQ && shape.parts > dims)
		shape.parts = dims;
	return shape;
}

/*
 * Rounding that is no fault: of single precision in sums of such size, and what
 * tables of 8 bits leave over.
 */
static double
tolerance(const World *world, uint32_t query, uint32_t list, double base)
{
	uint32_t	dims = world->shape.dims;
	const float *q = world->queries + query * dims;
	const float *c = world->centroids + list * dims;
	double		lengths = sqrt(product_of(q, q, dims)) + sqrt(product_of(c, c, dims));
	double		size = fabs(base) + lengths * lengths;
	bool		coarse = world->shape.kind == QUANTIZER_PQ && world->shape.bits == 4;

	for (uint32_t at = 0; at < world->lists * world->rows; at++)
		size = fmax(size, product_of(row_of(world, 0, at), row_of(world, 0, at), dims));
	return size * (coarse ? 0x1p-5 : 0x1p-14);
}

static void
check_identity(World *world)
{
	for (uint32_t query = 0; query < QUERIES; query++)
	{
		quantizer_prepare(world->quantizer, world->queries + query * world->shape.dims,
						  world->tables);
		for (uint32_t list = 0; list < world->lists; list++)
		{
			double		base = estimate_list(world, query, list);
			double		slack = tolerance(world, query, list, base);

			for (uint32_t at = 0; at < world->rows; at++)
			{
				double		wanted = estimated(world, query, list, at);

				if (!(fabs(world->estimates[at] - wanted) <= slack))
					FAIL("kind %d bits %u metric %d dims %u rows %d: %g, not %g within %g",
						 (int) world->shape.kind, world->shape.bits, (int) world->shape.metric,
						 world->shape.dims, (int) world->kind, world->estimates[at], wanted, slack);
				if (world->kind == ORDINARY && world->shape.bits == 8 && wanted > base / 10 &&
					world->shape.metric == METRIC_L2 && world->shape.dims >= 64 &&
					!(fabs(world->estimates[at] - wanted) <= 1e-3 * wanted))
					FAIL("kind %d dims %u: %g, not %g within 1e-3", (int) world->shape.kind,
						 world->shape.dims, world->estimates[at], wanted);
			}
		}
	}
}

/* FC12, FC13. */
static void
test_identity(void)
{
	World		world;

	for (size_t i = 0; i < SHAPES; i++)
		for (size_t d = 0; d < DIMS; d++)
			for (int kind = ORDINARY; kind < HUGE_ROWS; kind++)
				for (int metric = METRIC_L2; metric <= METRIC_COSINE; metric++)
				{
					uint32_t	rows = all_dims[d] > 200 ? 8 : 20;

					if (all_dims[d] > 200 && (metric == METRIC_COSINE || kind > FAR))
						continue;
					make_world(&world, shape_of(i, (Metric) metric, all_dims[d]), (Kind) kind, 3,
							   rows);
					check_identity(&world);
					free_world(&world);
				}
	report("estimates are the distances to what codes decode to, for every query and list");
}

/* How many lower bounds are above the distances. */
static uint32_t
count_above(World *world)
{
	uint32_t	dims = world->shape.dims;
	uint32_t	above = 0;

	for (uint32_t query = 0; query < QUERIES; query++)
	{
		quantizer_prepare(world->quantizer, world->queries + query * dims, world->tables);
		for (uint32_t list = 0; list < world->lists; list++)
		{
			estimate_list(world, query, list);
			for (uint32_t at = 0; at < world->rows; at++)
				above += !(world->lower[at] <= distance_of(world->shape.metric,
														   world->queries + query * dims,
														   row_of(world, list, at), dims));
		}
	}
	return above;
}

static void
test_bounds(void)
{
	World		world;

	for (size_t i = 0; i < SHAPES; i++)
		for (size_t d = 0; d < DIMS; d++)
			for (int kind = ORDINARY; kind < KINDS; kind++)
				for (int metric = METRIC_L2; metric <= METRIC_IP; metric++)
				{
					uint32_t	above;

					if (shapes[i].kind == QUANTIZER_RABITQ &&
						(kind != HUGE_ROWS || metric != METRIC_L2 || all_dims[d] < 64))
						continue;
					if (all_dims[d] > 400 && kind > FAR && kind < HUGE_ROWS)
						continue;
					make_world(&world, shape_of(i, (Metric) metric, all_dims[d]), (Kind) kind, 3,
							   all_dims[d] > 200 ? 8 : 40);
					above = count_above(&world);
					if (above > 0)
						FAIL("kind %d bits %u metric %d dims %u rows %d: %u bounds above",
							 (int) world.shape.kind, world.shape.bits, metric, all_dims[d], kind,
							 above);
					free_world(&world);
				}
	report("lower bounds of int8 and pq are never above the distances, nor those of rows without a code");
}

/* The probability of 1.9 standard deviations is 2.9 in 100. */
static void
test_probable_bounds(void)
{
	World		world;

	for (uint32_t bits = 1; bits <= 8; bits++)
		for (int metric = METRIC_L2; metric <= METRIC_IP; metric++)
		{
			uint32_t	above = 0;
			uint32_t	count = 0;

			for (int kind = ORDINARY; kind < EQUAL; kind++)
				for (size_t d = 0; d < 7; d++)
				{
					QuantizerShape shape = {QUANTIZER_RABITQ, (Metric) metric, all_dims[d],
											bits, 0, d + 1};

					make_world(&world, shape, (Kind) kind, 4, 50);
					above += count_above(&world);
					count += QUERIES * 4 * 50;
					free_world(&world);
				}
			if (above > count / 25)
				FAIL("%u bits, metric %d: %u of %u bounds above", bits, metric, above, count);
		}
	report("lower bounds of rabitq are above 4 in 100 distances at most");
}

/* A bound that says nothing is of no use: int8's is within 3 parts in 100. */
static void
test_bounds_are_near(void)
{
	World		world;
	double		sum = 0;

	make_world(&world, shape_of(0, METRIC_L2, 128), ORDINARY, 4, 50);
	for (uint32_t query = 0; query < QUERIES; query++)
	{
		quantizer_prepare(world.quantizer, world.queries + query * 128, world.tables);
		for (uint32_t list = 0; list < world.lists; list++)
		{
			estimate_list(&world, query, list);
			for (uint32_t at = 0; at < world.rows; at++)
				sum += world.lower[at] / fmax(world.estimates[at], 1e-3);
		}
	}
	CHECK(sum > QUERIES * 4 * 50 * 0.95);
	free_world(&world);
	report("lower bounds of int8 are near the distances");
}

static void
test_repetition(void)
{
	World		world;

	for (size_t i = 0; i < SHAPES; i++)
		for (size_t d = 0; d < DIMS; d++)
		{
			QuantizerShape shape = shape_of(i, METRIC_L2, all_dims[d]);
			uint32_t	dims = shape.dims;
			unsigned char *again;
			void	   *tables;
			Quantizer  *other;

			make_world(&world, shape, ORDINARY, 2, 30);
			again = need(world.code_bytes);
			tables = need(quantizer_table_bytes(&shape));
			other = quantizer_open(&shape, world.codebook);
			for (uint32_t row = 0; row < 60; row++)
			{
				quantizer_encode(other, world.centroids + row / 30 * dims,
								 world.row + (size_t) row * dims, 1, again);
				CHECK(memcmp(again, world.codes + row * world.code_bytes, world.code_bytes) == 0);
			}
			quantizer_prepare(world.quantizer, world.queries, world.tables);
			quantizer_prepare(other, world.queries, tables);
			CHECK(memcmp(tables, world.tables, quantizer_table_bytes(&shape)) == 0);
			quantizer_close(other);
			free(again);
			free(tables);
			again = world.codebook;
			train(&world);
			CHECK(memcmp(again, world.codebook, quantizer_codebook_bytes(&shape)) == 0);
			free(again);
			free_world(&world);
		}
	report("the same rows give the same codebook, codes and tables, alone or with others");
}

static void
test_zero_residuals(void)
{
	for (size_t i = 0; i < SHAPES; i++)
		for (size_t d = 0; d < DIMS; d++)
		{
			World		world;
			float		decoded[2000];

			make_world(&world, shape_of(i, METRIC_L2, all_dims[d]), EQUAL, 2, 10);
			quantizer_prepare(world.quantizer, world.queries, world.tables);
			for (uint32_t list = 0; list < 2; list++)
			{
				double		base = estimate_list(&world, 0, list);

				for (uint32_t at = 0; at < 10; at++)
				{
					CHECK(world.estimates[at] == (float) base);
					CHECK(world.lower[at] <= (float) base);
				}
				quantizer_decode(world.quantizer, codes_of(&world, list), decoded);
				for (uint32_t j = 0; j < all_dims[d]; j++)
					CHECK(decoded[j] == 0);
			}
			free_world(&world);
		}
	report("a row that lies on its centroid has the centroid's distance");
}

/* ---- recall ---- */

#define RECALL_ROWS		1900
#define RECALL_DIMS		96
#define RECALL_QUERIES	40
#define RECALL_K		10
#define RECALL_LISTS	20

static float recall_rows[RECALL_ROWS * RECALL_DIMS];
static float recall_queries[RECALL_QUERIES * RECALL_DIMS];

/* How many distances are less than one: the rank of a row. */
static uint32_t
rank_of(const double *distances, double distance)
{
	uint32_t	rank = 0;

	for (uint32_t row = 0; row < RECALL_ROWS; row++)
		rank += distances[row] < distance;
	return rank;
}

/* Rows by list, the lists' centroids, and where each begins. */
static float recall_centroids[RECALL_LISTS * RECALL_DIMS];
static uint32_t recall_first[RECALL_LISTS + 1];
static float recall_residuals[RECALL_ROWS * RECALL_DIMS];

/* Make clustered rows, sorted by list, and queries near some of them. */
static void
make_recall(void)
{
	float	   *rows = need(sizeof(recall_rows));
	uint32_t   *list = need(RECALL_ROWS * sizeof(uint32_t));
	void	   *memory = need(centroids_bytes(RECALL_LISTS, RECALL_DIMS));
	KmeansTask	task = {.rows = rows, .stride = RECALL_DIMS, .count = RECALL_ROWS,
						.dims = RECALL_DIMS, .lists = RECALL_LISTS, .rounds = 10, .seed = 1};
	uint32_t	at = 0;
	Centroids	set;

	make_clusters(rows, RECALL_ROWS, RECALL_DIMS, 20, 0.5);
	CHECK(kmeans_run(&task, recall_centroids) == ENGINE_OK);
	centroids_init(&set, recall_centroids, RECALL_LISTS, RECALL_DIMS, memory);
	centroids_nearest(&set, rows, RECALL_DIMS, RECALL_ROWS, list, NULL);
	for (uint32_t l = 0; l < RECALL_LISTS; l++)
	{
		recall_first[l] = at;
		for (uint32_t row = 0; row < RECALL_ROWS; row++)
		{
			if (list[row] != l)
				continue;
			for (uint32_t i = 0; i < RECALL_DIMS; i++)
			{
				float		x = rows[row * RECALL_DIMS + i];

				recall_rows[at * RECALL_DIMS + i] = x;
				recall_residuals[at * RECALL_DIMS + i] =
					x - recall_centroids[l * RECALL_DIMS + i];
			}
			at++;
		}
	}
	recall_first[RECALL_LISTS] = at;
	for (uint32_t i = 0; i < RECALL_QUERIES; i++)
		for (uint32_t j = 0; j < RECALL_DIMS; j++)
			recall_queries[i * RECALL_DIMS + j] =
				rows[i * 47 * RECALL_DIMS + j] + (float) (normal() * 0.3);
	free(rows);
	free(list);
	free(memory);
}

/* The share of the ten nearest rows among the ten nearest by estimate. */
static double
recall_of(QuantizerShape shape)
{
	static double exact[RECALL_ROWS];
	static double guessed[RECALL_ROWS];
	static float estimates[RECALL_ROWS];
	size_t		code_bytes = quantizer_code_bytes(&shape);
	void	   *codebook = need(quantizer_codebook_bytes(&shape));
	unsigned char *codes = need(RECALL_ROWS * code_bytes);
	void	   *tables = need(quantizer_table_bytes(&shape));
	Quantizer  *quantizer;
	uint32_t	found = 0;

	CHECK(quantizer_train(&shape, recall_residuals, RECALL_ROWS, NULL, codebook) == ENGINE_OK);
	quantizer = quantizer_open(&shape, codebook);
	for (uint32_t list = 0; list < RECALL_LISTS; list++)
		quantizer_encode(quantizer, recall_centroids + list * RECALL_DIMS,
						 recall_rows + recall_first[list] * RECALL_DIMS,
						 recall_first[list + 1] - recall_first[list],
						 codes + recall_first[list] * code_bytes);
	for (uint32_t query = 0; query < RECALL_QUERIES; query++)
	{
		const float *q = recall_queries + query * RECALL_DIMS;

		quantizer_prepare(quantizer, q, tables);
		for (uint32_t list = 0; list < RECALL_LISTS; list++)
			quantizer_estimate(quantizer, tables,
							   (float) distance_of(shape.metric, q,
												   recall_centroids + list * RECALL_DIMS,
												   RECALL_DIMS),
							   codes + recall_first[list] * code_bytes,
							   recall_first[list + 1] - recall_first[list],
							   estimates + recall_first[list], NULL);
		for (uint32_t row = 0; row < RECALL_ROWS; row++)
		{
			exact[row] =
				distance_of(shape.metric, q, recall_rows + row * RECALL_DIMS, RECALL_DIMS);
			guessed[row] = estimates[row];
		}
		for (uint32_t row = 0; row < RECALL_ROWS; row++)
			if (rank_of(exact, exact[row]) < RECALL_K && rank_of(guessed, guessed[row]) < RECALL_K)
				found++;
	}
	quantizer_close(quantizer);
	free(codebook);
	free(codes);
	free(tables);
	return found / (double) (RECALL_QUERIES * RECALL_K);
}

static void
test_recall(void)
{
	make_recall();
	for (int metric = METRIC_L2; metric <= METRIC_IP; metric++)
	{
		double		before = 0;

		for (uint32_t bits = 1; bits <= 8; bits++)
		{
			double		recall = recall_of((QuantizerShape) {QUANTIZER_RABITQ, (Metric) metric,
															 RECALL_DIMS, bits, 0, 1});

			printf("# rabitq, %u bits, metric %d: %.3f\n", bits, metric, recall);
			if (recall < before - 0.02 || (bits == 8 && recall < 0.98) ||
				(bits == 1 && recall < 0.3))
				FAIL("rabitq, %u bits: %.3f after %.3f", bits, recall, before);
			before = recall;
		}
		before =
			recall_of((QuantizerShape) {QUANTIZER_INT8, (Metric) metric, RECALL_DIMS, 8, 0, 1});
		printf("# int8, metric %d: %.3f\n", metric, before);
		CHECK(before > 0.97);
	}
	for (uint32_t bits = 4; bits <= 8; bits += 4)
	{
		double		before = 0;

		for (uint32_t parts = 12; parts <= 48 * 8 / bits; parts *= 2)
		{
			double		recall = recall_of((QuantizerShape) {QUANTIZER_PQ, METRIC_L2, RECALL_DIMS,
															 bits, parts, 1});

			printf("# pq, %u bits, %u parts: %.3f\n", bits, parts, recall);
			if (recall < before)
				FAIL("pq, %u bits, %u parts: %.3f after %.3f", bits, parts, recall, before);
			before = recall;
		}
		CHECK(before > 0.8);
	}
	report("more bits find more of the nearest rows, eight find nearly all");
}

/* ---- golden values ---- */

/* A codebook written by hand: two sub-spaces of 2 and 1 dimensions. */
static void
test_pq_golden(void)
{
	QuantizerShape shape = {QUANTIZER_PQ, METRIC_L2, 3, 4, 2, 0};
	static float codebook[16 * 3];
	static const float centroid[] = {10, 20, 30};
	static const float row[] = {12.9f, 24.2f, 25};
	static const float query[] = {13, 23, 31};
	unsigned char code[12];
	float		numbers[2];
	char		tables[64] __attribute__((aligned(4)));
	float		estimate,
				lower,
				decoded[3];
	Quantizer  *quantizer;

	CHECK(quantizer_code_bytes(&shape) == sizeof(code));
	CHECK(quantizer_codebook_bytes(&shape) == sizeof(codebook));
	CHECK(quantizer_table_bytes(&shape) <= sizeof(tables));
	for (int i = 0; i < 16; i++)
	{
		codebook[2 * i] = (float) (i % 4);	/* words (i % 4, 2 (i / 4)) */
		codebook[2 * i + 1] = (float) (2 * (i / 4));
		codebook[32 + i] = (float) (i - 8);
	}
	quantizer = quantizer_open(&shape, codebook);
	quantizer_encode(quantizer, centroid, row, 1, code);

	/* the residual is (2.9, 4.2, -5): words (3, 4), which is 11, and -5: 3 */
	CHECK(code[0] == (3 << 4 | 11));
	quantizer_decode(quantizer, code, decoded);
	CHECK(decoded[0] == 3 && decoded[1] == 4 && decoded[2] == -5);

	/* |d|^2 = 50, 2<c,d> = 60 + 160 - 300; |x - c - d|^2 = .01 + .04 */
	memcpy(numbers, code + 4, sizeof(numbers));
	CHECK(numbers[0] == -30);
	CHECK(numbers[1] >= sqrt(0.05) * 0.99999 && numbers[1] < sqrt(0.05) * 1.0001);

	/*
	 * |q - c|^2 = 9 + 9 + 1; |q - c - d|^2 = 0 + 1 + 36. Products reach from 0
	 * to -6 13 - 12 23 = -354 and from -14 31 to 16 31, 930 apart: steps of
	 * 930 / 255 = 3.65, half of which may be wrong twice.
	 */
	quantizer_prepare(quantizer, query, tables);
	quantizer_estimate(quantizer, tables, 19, code, 1, &estimate, &lower);
	CHECK(fabs(estimate - 37) <= 3.65);
	CHECK(lower <= square_of(query, row, 3));
	quantizer_close(quantizer);
	report("a pq code, its numbers and estimate, by hand");
}

/*
 * Of two dimensions one rotation leaves (3, 4) at sizes 7 / sqrt 2 and 1 / sqrt
 * 2, two at 3 and 4.
 */
static void
test_scalar_golden(void)
{
	static const float row[] = {3, 4};
	unsigned char code[16];
	char		tables[128] __attribute__((aligned(4)));
	float		numbers[3];
	float		estimate,
				lower,
				decoded[2];

	for (uint32_t bits = 1; bits <= 9; bits++)
	{
		bool		int8 = bits == 9;
		QuantizerShape shape = {int8 ? QUANTIZER_INT8 : QUANTIZER_RABITQ, METRIC_L2, 2,
								int8 ? 8 : bits, 0, 7};
		Quantizer  *quantizer = quantizer_open(&shape, NULL);
		unsigned char *bytes = need(quantizer_code_bytes(&shape));

		CHECK(quantizer_code_bytes(&shape) == (int8 ? 1 : bits) * 4 + 12);
		CHECK(quantizer_table_bytes(&shape) <= sizeof(tables));
		quantizer_encode(quantizer, NULL, row, 1, bytes);
		memcpy(code, bytes, 4);
		memcpy(numbers, bytes + quantizer_code_bytes(&shape) - 12, sizeof(numbers));
		quantizer_decode(quantizer, bytes, decoded);
		quantizer_prepare(quantizer, row, tables);
		quantizer_estimate(quantizer, tables, 25, bytes, 1, &estimate, &lower);
		if (int8)
		{
			CHECK(abs((int8_t) code[0]) + abs((int8_t) code[1]) == 127 + 18);	/* 127 / 7 = 18.1 */
			CHECK(fabs(numbers[2] - 7 / sqrt(2) / 127) < 1e-6);
			CHECK(fabs(decoded[0] - 3) < 0.02 && fabs(decoded[1] - 4) < 0.02);
		}
		else
			CHECK(fabs(numbers[0] - 25) < 1e-5);	/* |r|^2 */
		if (bits == 1)
		{
			/* w = (+-1, +-1): f = 25 / 7, error = sqrt(2 f^2 - 25) = 5 / 7 */
			CHECK(fabs(numbers[2] - 25.0 / 7) < 1e-5);
			CHECK(fabs(numbers[1] - 5.0 / 7) < 1e-5);
		}
		CHECK(fabs(estimate) < 0.01);	/* the query is the row */
		CHECK(lower == 0);
		free(bytes);
		quantizer_close(quantizer);
	}
	report("int8 and rabitq codes of two dimensions, their numbers and estimates, by hand");
}

/* FNV-1a. */
static uint64_t
hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		hash = (hash ^ ((const unsigned char *) bytes)[i]) * UINT64_C(0x100000001B3);
	return hash;
}

/* Of all that one shape makes of a world's rows and queries. */
static uint64_t
hash_world(QuantizerShape shape)
{
	uint64_t	hash = UINT64_C(0xCBF29CE484222325);
	World		world;

	state = 99;
	make_world(&world, shape, ORDINARY, 3, 20);
	hash = hash_bytes(hash, world.codebook, quantizer_codebook_bytes(&shape));
	hash = hash_bytes(hash, world.codes, 60 * world.code_bytes);
	for (uint32_t query = 0; query < QUERIES; query++)
	{
		quantizer_prepare(world.quantizer, world.queries + query * shape.dims, world.tables);
		hash = hash_bytes(hash, world.tables, quantizer_table_bytes(&shape));
		for (uint32_t list = 0; list < world.lists; list++)
		{
			estimate_list(&world, query, list);
			hash = hash_bytes(hash, world.estimates, world.rows * sizeof(float));
			hash = hash_bytes(hash, world.lower, world.rows * sizeof(float));
		}
	}
	free_world(&world);
	return hash;
}

/*
 * Codes are kept: a hash that changes means that those of older indexes are not
 * understood any more.
 */
static void
test_golden_bytes(void)
{
	static const uint64_t hashes[] = {
		UINT64_C(0x10DFF0A7EF13EED3), UINT64_C(0x1CCD369DC2E4DBC1),
		UINT64_C(0xCB8094EF965BDF8C), UINT64_C(0xF3E88456D4AC9A0E),
		UINT64_C(0x32B3D7A39E3C7929), UINT64_C(0x8FDF5A9C2200C861),
		UINT64_C(0x053EF5FBD671680C), UINT64_C(0x0CCC7A3A15310DA4),
		UINT64_C(0x5F2AF240A854FE29), UINT64_C(0x2637AAE8A8977C2D),
		UINT64_C(0x3D07FDDAE938EE47), UINT64_C(0x3BE3535C107A89FF),
	};

	for (size_t i = 0; i < SHAPES; i++)
		for (int metric = METRIC_L2; metric <= METRIC_IP; metric++)
		{
			uint64_t	hash = hash_world(shape_of(i, (Metric) metric, 127));
			uint64_t	wanted = hashes[2 * i + (metric == METRIC_IP)];

			if (hash != wanted)
				FAIL("kind %d, %u bits, metric %d: 0x%016llX, not 0x%016llX",
					 (int) shapes[i].kind, shapes[i].bits, metric, (unsigned long long) hash,
					 (unsigned long long) wanted);
		}
	report("codebooks, codes, tables and estimates are the same bytes on every processor");
}

static void
test_shapes(void)
{
	static const QuantizerShape wrong[] = {
		{QUANTIZER_INT8, METRIC_L2, 0, 8, 0, 0},	{QUANTIZER_INT8, METRIC_L2, 4097, 8, 0, 0},
		{QUANTIZER_INT8, METRIC_L1, 8, 8, 0, 0},	{QUANTIZER_INT8, METRIC_L2, 8, 4, 0, 0},
		{QUANTIZER_RABITQ, METRIC_L2, 8, 0, 0, 0},	{QUANTIZER_RABITQ, METRIC_L2, 8, 9, 0, 0},
		{QUANTIZER_PQ, METRIC_L2, 8, 5, 2, 0},		{QUANTIZER_PQ, METRIC_L2, 8, 8, 0, 0},
		{QUANTIZER_PQ, METRIC_L2, 8, 8, 9, 0},		{QUANTIZER_PQ, METRIC_HAMMING, 8, 8, 2, 0},
		{(QuantizerKind) 4, METRIC_L2, 8, 8, 0, 0},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(!quantizer_shape_valid(&wrong[i]));
	for (size_t i = 0; i < SHAPES; i++)
		for (size_t d = 0; d < DIMS; d++)
		{
			QuantizerShape shape = shape_of(i, METRIC_L2, all_dims[d]);

			CHECK(quantizer_shape_valid(&shape));
			CHECK(quantizer_code_bytes(&shape) % 4 == 0);
		}
	report("shapes that there are, and those that there are not");
}

/* Under the thread sanitizer only what threads share is of interest. */
#ifdef __SANITIZE_THREAD__
#define SEVERAL_THREADS_ONLY true
#else
#define SEVERAL_THREADS_ONLY false
#endif

int
main(void)
{
	static void (*const tests[]) (void) = {
		test_shapes, test_nearest, test_kmeans_golden, test_kmeans_inertia,
		test_kmeans_equal_rows, test_kmeans_balance, test_kmeans_interrupt, test_sums,
		test_pq_golden, test_scalar_golden, test_identity, test_zero_residuals,
		test_repetition, test_bounds, test_probable_bounds, test_bounds_are_near, test_recall,
		test_golden_bytes,
	};

	make_clusters(kmeans_rows, KMEANS_ROWS, KMEANS_DIMS, 25, 0.3);
	test_kmeans_threads();
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]) && !SEVERAL_THREADS_ONLY; i++)
		tests[i]();
	printf("1..%d\n", number);
	return all ? 0 : 1;
}
