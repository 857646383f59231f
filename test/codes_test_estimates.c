/*
 * codes_test_estimates.c
 *		What estimates, lower bounds and codes promise, for every kind, metric
 *		and sort of rows; and that they are the same bytes everywhere.
 */
#include "codes_test.h"
#include "decode.h"

/* ---- worlds of rows, lists and queries ---- */

#define MAX_LISTS	8
#define ROWS_MAX	64			/* of a list */
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
	float		estimates[ROWS_MAX];
	float		lower[ROWS_MAX];
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
			double		length = pow(10, 6 * random_fraction(&random_state) - 3);

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

	decode_code(world->quantizer, codes_of(world, list) + at * world->code_bytes, decoded);
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
					case_fails("kind %d bits %u metric %d dims %u rows %d: %g, not %g within %g",
						 (int) world->shape.kind, world->shape.bits, (int) world->shape.metric,
						 world->shape.dims, (int) world->kind, world->estimates[at], wanted, slack);
				if (world->kind == ORDINARY && world->shape.bits == 8 && wanted > base / 10 &&
					world->shape.metric == METRIC_L2 && world->shape.dims >= 64 &&
					!(fabs(world->estimates[at] - wanted) <= 1e-3 * wanted))
					case_fails("kind %d dims %u: %g, not %g within 1e-3", (int) world->shape.kind,
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

/* Whether codes are valid if the last one has this number in such a place. */
static bool
valid_with(const World *world, size_t place, float number)
{
	size_t		bytes = (size_t) world->lists * world->rows * world->code_bytes;
	unsigned char *codes = need(bytes);
	bool		valid;

	memcpy(codes, world->codes, bytes);
	memcpy(codes + bytes - place * sizeof(float), &number, sizeof(float));
	valid = quantizer_codes_valid(&world->shape, codes, (size_t) world->lists * world->rows);
	free(codes);
	return valid;
}

static void
check_validity(const World *world)
{
	bool		pq = world->shape.kind == QUANTIZER_PQ;
	size_t		error = pq ? 1 : 2;	/* from the end; the term is before it, a scale behind */

	CHECK(quantizer_codes_valid(&world->shape, world->codes,
								(size_t) world->lists * world->rows));
	CHECK(valid_with(world, error, 0) && valid_with(world, error, INFINITY));
	CHECK(!valid_with(world, error, -1) && !valid_with(world, error, NAN));
	CHECK(valid_with(world, error + 1, -1));
	CHECK(!valid_with(world, error + 1, NAN) && !valid_with(world, error + 1, -INFINITY));
	if (!pq)
		CHECK(valid_with(world, 1, 1) && !valid_with(world, 1, NAN) &&
			  !valid_with(world, 1, INFINITY) && !valid_with(world, 1, -1));
}

static void
test_validity(void)
{
	World		world;

	for (size_t i = 0; i < SHAPES; i++)
		for (int kind = ORDINARY; kind < KINDS; kind++)
			for (int metric = METRIC_L2; metric <= METRIC_COSINE; metric++)
			{
				make_world(&world, shape_of(i, (Metric) metric, 64), (Kind) kind, 3, 20);
				check_validity(&world);
				free_world(&world);
			}
	report("codes are valid as encoders write them, and not with numbers that bounds cannot have");
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
						case_fails("kind %d bits %u metric %d dims %u rows %d: %u bounds above",
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
				case_fails("%u bits, metric %d: %u of %u bounds above", bits, metric, above, count);
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
				decode_code(world.quantizer, codes_of(&world, list), decoded);
				for (uint32_t j = 0; j < all_dims[d]; j++)
					CHECK(decoded[j] == 0);
			}
			free_world(&world);
		}
	report("a row that lies on its centroid has the centroid's distance");
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

	random_state = 99;
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
		UINT64_C(0x87D6F56F2052FC51), UINT64_C(0x46E544DB142A9756),
		UINT64_C(0x8D79E61210466D6B), UINT64_C(0x74C44D96100A2199),
		UINT64_C(0xBB94D56312225868), UINT64_C(0x52988CAC4F750D97),
		UINT64_C(0x5F2AF240A854FE29), UINT64_C(0x2637AAE8A8977C2D),
		UINT64_C(0x3D07FDDAE938EE47), UINT64_C(0x3BE3535C107A89FF),
	};

	for (size_t i = 0; i < SHAPES; i++)
		for (int metric = METRIC_L2; metric <= METRIC_IP; metric++)
		{
			uint64_t	hash = hash_world(shape_of(i, (Metric) metric, 127));
			uint64_t	wanted = hashes[2 * i + (metric == METRIC_IP)];

			if (hash != wanted)
				case_fails("kind %d, %u bits, metric %d: 0x%016llX, not 0x%016llX",
					 (int) shapes[i].kind, shapes[i].bits, metric, (unsigned long long) hash,
					 (unsigned long long) wanted);
		}
	report("codebooks, codes, tables and estimates are the same bytes on every processor");
}

void
test_estimates(void)
{
	test_identity();
	test_validity();
	test_zero_residuals();
	test_repetition();
	test_bounds();
	test_probable_bounds();
	test_bounds_are_near();
	test_golden_bytes();
}
