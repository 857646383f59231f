/*
 * operator_test.c
 *		The bounds of engine/operator_bounds.h enclose what pgvector's operators
 *		compute: whatever the order of summation, with and without fused
 *		operations and subnormal numbers.
 *
 * The operators' sums are made here term by term in the orders that a compiler
 * may choose. Vectors are ordinary, nearly equal, cancelling, and at the limits
 * of single precision.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/distance.h"
#include "engine/operator_bounds.h"
#include "promises.h"

#define MAX_DIMS	2000
#define ROWS		12			/* rows of a world */
#define WORLDS		400			/* of each type and metric */

/* ---- arithmetic of single precision as a processor may do it ---- */

/* How a sum is made. */
typedef struct SumWay
{
	int			lanes;			/* partial sums; 0: pairwise */
	bool		fused;
	bool		flush;			/* subnormal operands and results become zero */
	bool		backwards;
} SumWay;

static const SumWay ways[] = {
	{1, false, false, false}, {1, true, false, false}, {1, false, true, false},
	{4, false, false, false}, {8, true, false, false}, {8, true, true, false},
	{16, false, false, true}, {32, true, false, true}, {0, false, false, false},
	{0, false, true, true},
};

static float
flushed(float x, bool flush)
{
	return flush && fabsf(x) < FLT_MIN ? 0 : x;
}

static float
plus(const SumWay *way, float a, float b)
{
	return flushed(flushed(a, way->flush) + flushed(b, way->flush), way->flush);
}

static float
times(const SumWay *way, float a, float b)
{
	return flushed(flushed(a, way->flush) * flushed(b, way->flush), way->flush);
}

/* sum + a * b */
static float
times_plus(const SumWay *way, float a, float b, float sum)
{
	if (!way->fused)
		return plus(way, times(way, a, b), sum);
	return flushed(
		fmaf(flushed(a, way->flush), flushed(b, way->flush), flushed(sum, way->flush)), way->flush);
}

/* The sum of the products of two arrays. */
static float
sum_products(const SumWay *way, const float *a, const float *b, int n)
{
	float		partial[32] = {0};
	float		sum = 0;

	if (way->lanes == 0 && n > 4)
		return plus(way, sum_products(way, a, b, n / 2),
					sum_products(way, a + n / 2, b + n / 2, n - n / 2));
	if (way->lanes == 0)
	{
		for (int i = 0; i < n; i++)
			sum = times_plus(way, a[i], b[i], sum);
		return sum;
	}
	for (int i = 0; i < n; i++)
	{
		int			at = way->backwards ? n - 1 - i : i;
		float	   *lane = &partial[i % way->lanes];

		*lane = times_plus(way, a[at], b[at], *lane);
	}
	for (int i = 0; i < way->lanes; i++)
		sum = plus(way, sum, partial[i]);
	return sum;
}

/* ---- the operators ---- */

static double
operator_l2(const SumWay *way, const float *a, const float *b, int n)
{
	float		difference[MAX_DIMS];

	for (int i = 0; i < n; i++)
		difference[i] = plus(way, a[i], -b[i]);
	return sqrt((double) sum_products(way, difference, difference, n));
}

static double
operator_l1(const SumWay *way, const float *a, const float *b, int n)
{
	float		difference[MAX_DIMS];
	float		one[MAX_DIMS];

	for (int i = 0; i < n; i++)
	{
		difference[i] = fabsf(plus(way, a[i], -b[i]));
		one[i] = 1;
	}
	return (double) sum_products(way, difference, one, n);
}

static double
operator_ip(const SumWay *way, const float *a, const float *b, int n)
{
	return (double) -sum_products(way, a, b, n);
}

static double
operator_cosine(const SumWay *way, const float *a, const float *b, int n)
{
	double		ab = sum_products(way, a, b, n);
	double		aa = sum_products(way, a, a, n);
	double		bb = sum_products(way, b, b, n);
	double		similarity = ab / sqrt(aa * bb);

	if (similarity > 1)
		similarity = 1;
	else if (similarity < -1)
		similarity = -1;
	return 1 - similarity;
}

/* Of bits there is one way; vectors are bytes. */
static double
operator_bits(Metric metric, const unsigned char *a, const unsigned char *b, int bytes)
{
	uint64_t	ab = 0,
				aa = 0,
				bb = 0,
				one = 0;

	for (int i = 0; i < bytes; i++)
	{
		ab += (uint64_t) __builtin_popcount(a[i] & b[i]);
		aa += (uint64_t) __builtin_popcount(a[i]);
		bb += (uint64_t) __builtin_popcount(b[i]);
		one += (uint64_t) __builtin_popcount(a[i] ^ b[i]);
	}
	if (metric == METRIC_HAMMING)
		return (double) one;
	return ab == 0 ? 1 : 1 - ((double) ab / (double) (aa + bb - ab));
}

static double
operator_value(Metric metric, const SumWay *way, const float *a, const float *b, int n)
{
	switch (metric)
	{
		case METRIC_L2:
			return operator_l2(way, a, b, n);
		case METRIC_L1:
			return operator_l1(way, a, b, n);
		case METRIC_IP:
			return operator_ip(way, a, b, n);
		default:
			return operator_cosine(way, a, b, n);
	}
}

/* ---- vectors ---- */

/* Between -1 and 1. */
static double
random_double(void)
{
	return (double) (int64_t) random_next(&random_state) * 0x1p-63;
}

typedef enum Kind
{
	ORDINARY,
	NEARLY_EQUAL,				/* to the query */
	CANCELLING,					/* products with the query that cancel */
	OPPOSITE,
	SPARSE,
	CONSTANT,					/* equal terms, which round in one direction */
	MIXED,						/* all exponents there are */
	HUGE_ELEMENTS,
	TINY_ELEMENTS,
	SUBNORMAL,
	SQUARES_NEAR_OVERFLOW,
	SQUARES_NEAR_UNDERFLOW,
	KINDS
} Kind;

/* Element i of a row. */
static double
random_element(Kind kind, const float *query, int i)
{
	static double constant;
	double		x = random_double();

	switch (kind)
	{
		case CONSTANT:
			constant = i == 0 ? x : constant;
			return constant;
		case NEARLY_EQUAL:
			return query[i] * (1 + x * 0x1p-20);
		case CANCELLING:		/* pairs (q1, q2) and (q2, -q1) */
			return (i % 2 == 0 ? query[i + 1] : -query[i - 1]) * (1 + x * 0x1p-22);
		case OPPOSITE:
			return -query[i] * (1 + x * 0x1p-20);
		case SPARSE:
			return below(20) == 0 ? x : 0;
		case MIXED:
			return ldexp(x, (int) below(276) - 148);
		case HUGE_ELEMENTS:
			return x * FLT_MAX;
		case TINY_ELEMENTS:
			return x * 1e-25;
		case SUBNORMAL:
			return x * 0x1p-127;
		case SQUARES_NEAR_OVERFLOW:
			return x * 0x1p63;
		case SQUARES_NEAR_UNDERFLOW:
			return x * 0x1p-58;
		default:
			return x;
	}
}

/* The nearest half to a number within the range of halves. */
static uint16_t
half_of(double x)
{
	uint16_t	sign = x < 0 ? 0x8000 : 0;
	int			exponent;
	long		mantissa;

	x = fmin(fabs(x), 65504);
	(void) frexp(x, &exponent);
	if (x < 0x1p-14)
		return sign | (uint16_t) lrint(x * 0x1p24);
	mantissa = lrint(ldexp(x, 11 - exponent));	/* 1024 .. 2048 */
	return sign | (uint16_t) (((exponent + 13) << 10) + mantissa);
}

/* Store an element; its exponent is scaled to the range of halves. */
static void
store_element(ElementType type, void *vector, int i, double x)
{
	if (type == ELEMENT_HALF)
		((uint16_t *) vector)[i] = half_of(fabs(x) > 65504 ? ldexp(x, -112) : x);
	else
		((float *) vector)[i] = (float) fmax(fmin(x, FLT_MAX), -FLT_MAX);
}

/* A query and its rows. */
typedef struct World
{
	ElementType type;
	Metric		metric;
	const DistanceKernels *kernels;
	int			dims;
	Kind		kind;
	bool		several;		/* rows of other kinds */
	float		query[MAX_DIMS];	/* as stored */
	float		rows[ROWS][MAX_DIMS];
	float		wide_query[MAX_DIMS];
	float		wide_rows[ROWS][MAX_DIMS];
	OperatorBounds bounds;
	double		least[ROWS];
	double		most[ROWS];
	double		distances[ROWS];
} World;

/* Fill a vector, stored and widened. */
static void
fill_vector(World *world, Kind kind, float *stored, float *wide)
{
	for (int i = 0; i < world->dims; i++)
		store_element(world->type, stored, i, random_element(kind, world->wide_query, i));
	world->kernels->widen(stored, (uint32_t) world->dims, wide);
}

static void
fill_bits(float *stored, int dims)
{
	unsigned char *bytes = (unsigned char *) stored;
	int			sparse = (int) below(4);

	for (int i = 0; i < (dims + 7) / 8; i++)
	{
		bytes[i] = (unsigned char) random_next(&random_state);
		for (int j = 0; j < sparse; j++)
			bytes[i] &= (unsigned char) random_next(&random_state);
	}
	if (dims % 8 != 0)
		bytes[dims / 8] &= (unsigned char) (0xFF << (8 - dims % 8));
}

/* The norms' range, rounded outward as an index keeps it. */
static void
widen_norms(const World *world, const float *wide, float *least, float *most)
{
	double		squares = 0;
	float		norm;

	if (world->type == ELEMENT_BIT)
		return;
	for (int i = 0; i < world->dims; i++)
		squares += (double) wide[i] * wide[i];
	norm = (float) sqrt(squares);
	*least = fminf(*least, nextafterf(norm, 0));
	*most = fmaxf(*most, nextafterf(norm, INFINITY));
}

static int
random_dims(void)
{
	switch (below(4))
	{
		case 0:
			return 1 + (int) below(4);
		case 1:
			return 1 + (int) below(64);
		default:
			return 1 + (int) below(below(8) == 0 ? MAX_DIMS : 300);
	}
}

/* Make a query and rows of one kind, or now and then of several. */
static void
make_world(World *world, ElementType type, Metric metric, int number)
{
	float		least = INFINITY,
				most = 0;

	memset(world, 0, sizeof(*world));
	world->several = below(4) == 0;
	world->type = type;
	world->metric = metric;
	world->kernels = distance_kernels(type, metric, SIMD_PORTABLE);
	world->dims = random_dims() * (type == ELEMENT_BIT ? 8 : 1);
	world->kind = (Kind) (number % KINDS);
	if (world->kind == CANCELLING)
		world->dims += world->dims % 2;
	if (type == ELEMENT_BIT)
		fill_bits(world->query, world->dims -= (int) below(8));
	else
		fill_vector(world, world->kind < SPARSE ? ORDINARY : world->kind, world->query,
					world->wide_query);
	for (int i = 0; i < ROWS; i++)
	{
		Kind		kind = world->several && i > 0 ? (Kind) below(KINDS) : world->kind;

		if (kind == CANCELLING && world->dims % 2 != 0)
			kind = ORDINARY;
		if (type == ELEMENT_BIT)
			fill_bits(world->rows[i], world->dims);
		else
			fill_vector(world, kind, world->rows[i], world->wide_rows[i]);
		widen_norms(world, world->wide_rows[i], &least, &most);
	}
	operator_bounds_init(&world->bounds, type, metric, (uint32_t) world->dims, world->query, least,
						 most);
	for (int i = 0; i < ROWS; i++)
	{
		world->distances[i] =
			world->kernels->exact(world->query, world->rows[i], (uint32_t) world->dims);
		world->least[i] = operator_least(&world->bounds, world->distances[i]);
		world->most[i] = operator_most(&world->bounds, world->distances[i]);
	}
}

/* ---- promises ---- */

static void
fails(const World *world, int row, double value, const char *what)
{
	case_fails("%s: kind %d, %d dimensions, distance %.17g: %.17g not in [%.17g, %.17g]", what,
			   world->kind, world->dims, world->distances[row], value, world->least[row],
			   world->most[row]);
}

/* One value of a row. */
static void
check_value(const World *world, int row, double value)
{
	if (!value_not_after(world->least[row], value))
		fails(world, row, value, "below the lower bound");
	if (!value_not_after(value, world->most[row]))
		fails(world, row, value, "above the upper bound");
	if (!(world->distances[row] <= operator_distance_most(&world->bounds, value)))
		fails(world, row, value, "farther than the value allows");
}

static void
check_row(const World *world, int row)
{
	int			n = world->dims;

	if (isnan(world->least[row]))
		fails(world, row, NAN, "the lower bound is NaN");
	for (int other = 0; other < ROWS; other++)
		if (world->distances[row] <= world->distances[other] &&
			(!value_not_after(world->least[row], world->least[other]) ||
			 !value_not_after(world->most[row], world->most[other])))
			fails(world, row, world->distances[other], "the bounds do not rise");
	if (world->type == ELEMENT_BIT)
	{
		check_value(world, row,
					operator_bits(world->metric, (const unsigned char *) world->query,
								  (const unsigned char *) world->rows[row], (n + 7) / 8));
		return;
	}
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		check_value(world, row,
					operator_value(world->metric, &ways[i], world->wide_query,
								   world->wide_rows[row], n));
}

/*
 * Bounds that say little are of no use: of ordinary vectors they are a few n u
 * apart, relative to the distance or to the norms; of bits they are equal.
 */
static void
check_width(const World *world, int row)
{
	double		width = world->most[row] - world->least[row];
	double		scale = 1;

	if (world->type == ELEMENT_BIT && width != 0)
		fails(world, row, width, "bits have bounds apart");
	if (world->type == ELEMENT_BIT || world->kind != ORDINARY || world->several)
		return;
	if (world->metric == METRIC_IP)
		scale = world->dims;	/* at least |a| |b| */
	else if (world->metric != METRIC_COSINE)
		scale = world->most[row];
	if (!(width <= scale * (world->dims + 32) * 0x1p-21))
		fails(world, row, width, "the bounds are far apart");
}

/* All promises for a type and metric. */
static void
run_pair(ElementType type, Metric metric)
{
	static World world;
	int			bounded = 0;

	for (int number = 0; number < WORLDS && !case_failed(); number++)
	{
		make_world(&world, type, metric, number);
		for (int row = 0; row < ROWS; row++)
		{
			check_row(&world, row);
			check_width(&world, row);
		}
		bounded += !world.bounds.unbounded;
	}
	if (bounded < WORLDS / 4)
		case_fails("only %d worlds of %d have bounds", bounded, WORLDS);
}

/* The order of float8. */
static bool
run_order(void)
{
	return value_not_after(1, 1) && value_not_after(-0.0, 0.0) && value_not_after(0.0, -0.0) &&
		   value_not_after(-INFINITY, 1) && value_not_after(INFINITY, NAN) &&
		   value_not_after(NAN, NAN) && !value_not_after(NAN, INFINITY) && !value_not_after(2, 1);
}

int
main(void)
{
	static const char *types[] = {"", "vector", "halfvec", "bit"};
	static const char *metrics[] = {"",   "L2",		 "inner product", "cosine",
									"L1", "Hamming", "Jaccard"};
	char		promise[100];

	promises_of = "operator bounds";
	CHECK(run_order());
	report("NaN comes last");
	for (int type = ELEMENT_FLOAT; type <= ELEMENT_BIT; type++)
		for (int metric = METRIC_L2; metric <= METRIC_JACCARD; metric++)
		{
			if (!engine_has_distance((ElementType) type, (Metric) metric))
				continue;
			run_pair((ElementType) type, (Metric) metric);
			snprintf(promise, sizeof(promise), "%s, %s: every value lies within", types[type],
					 metrics[metric]);
			report(promise);
		}
	return promises_end();
}
