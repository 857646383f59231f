/*
 * operator_bounds.c
 *		Forward error bounds of pgvector's operators.
 *
 * The operators of bit are exact: Hamming distances are counts, and Jaccard
 * distances come from equal counts by the same operations in double precision.
 * The others are sums in single precision of n terms:
 *
 *	<->		sqrt(sum (a - b)^2), the root in double precision
 *	<#>		-(sum a b)
 *	<=>		1 - sum a b / sqrt(sum a a * sum b b), in double precision from the
 *			sums on, the quotient limited to [-1, 1]
 *	<+>		sum |a - b|
 *
 * Rounding: a sum of n terms, in any order, with or without fused operations,
 * has an error of at most g times the sum of the terms' magnitudes, g = k u /
 * (1 - k u), u = 2^-24, where k is the number of roundings that a term goes
 * through: at most n - 1 additions, one multiplication, and for L2 two
 * differences. k = n + EXTRA_ROUNDINGS leaves at least ten u for what is in
 * double precision: the exact distance, these functions and the operators'
 * last steps, whose errors are below 2^-38 of the same magnitudes.
 *
 * Underflow: where subnormal operands and results become zero, each operand,
 * term and partial sum is off by up to 2^-126. UNDERFLOW for each term covers
 * that; a product's factor turns such an error of an operand into one relative
 * to the other, and for squares of differences above 2^-100 it is below 2 u of
 * the square.
 *
 * Overflow: partial sums do not exceed (1 + g) times the sum of magnitudes, so
 * none becomes infinite if that is at most FLT_MAX.
 */
#include "engine/operator_bounds.h"

#include <float.h>

#include "engine/distance.h"

#define UNIT_ROUNDOFF		0x1p-24
#define EXTRA_ROUNDINGS		16
#define UNDERFLOW_OF_TERM	0x1p-124

/*
 * Inner product. The magnitudes sum to at most |a| |b| (Cauchy-Schwarz), and
 * flushed operands add 2^-126 (|a|_1 + |b|_1).
 */
static void
init_inner_product(OperatorBounds *bounds, double query_norm, double most_norm)
{
	double		magnitudes = query_norm * most_norm;

	bounds->absolute =
		bounds->relative * magnitudes + bounds->absolute * (1 + query_norm + most_norm);
	bounds->unbounded = !(magnitudes + bounds->absolute <= FLT_MAX);
}

/*
 * Cosine. Relative to |a| |b|, |a|^2 and |b|^2, each of the three sums has an
 * error of at most e = g + underflow / (the lesser norm)^2. Then the quotient
 * has one of at most (1 + e) / (1 - e) - 1 = 2 e / (1 - e), which the limits
 * only make less. If e is large, squares may vanish, which makes the quotient
 * NaN or anything; if squares exceed FLT_MAX, likewise.
 */
static void
init_cosine(OperatorBounds *bounds, double query_norm, double least_norm, double most_norm)
{
	double		least = fmin(query_norm, least_norm);
	double		most = fmax(query_norm, most_norm);
	double		error = bounds->relative + bounds->absolute / (least * least);

	bounds->unbounded = !(error < 0.25 && most * most * (1 + error) <= FLT_MAX);
	bounds->absolute = 2 * error / (1 - error);
}

/* Set the bounds for a query. */
void
operator_bounds_init(OperatorBounds *bounds, ElementType type, Metric metric, uint32_t dims,
					 const void *query, float least_norm, float most_norm)
{
	double		roundings = ((double) dims + EXTRA_ROUNDINGS) * UNIT_ROUNDOFF;
	double		query_norm;

	bounds->metric = metric;
	bounds->relative = 0;
	bounds->absolute = 0;
	bounds->unbounded = false;
	if (type == ELEMENT_BIT)
		return;
	bounds->relative = roundings / (1 - roundings);
	bounds->absolute = ((double) dims + EXTRA_ROUNDINGS) * UNDERFLOW_OF_TERM;
	query_norm = sqrt(-distance_kernels(type, METRIC_IP, SIMD_BEST)->exact(query, query, dims));
	if (metric == METRIC_IP)	/* infinity says no more than this */
		init_inner_product(bounds, query_norm, fmin(most_norm, FLT_MAX * sqrt(dims)));
	else if (metric == METRIC_COSINE)
		init_cosine(bounds, query_norm, least_norm, most_norm);
}

/*
 * The least sum in single precision of terms that are not negative; infinity if
 * no finite one is possible.
 */
static double
least_sum(const OperatorBounds *bounds, double sum)
{
	double		least = sum * (1 - bounds->relative) - bounds->absolute;

	return least > FLT_MAX ? (double) INFINITY : fmax(least, 0);
}

/* The greatest, which is infinite if a partial sum may exceed FLT_MAX. */
static double
most_sum(const OperatorBounds *bounds, double sum)
{
	double		most = sum * (1 + bounds->relative) + bounds->absolute;

	return most > FLT_MAX ? (double) INFINITY : most;
}

/* The greatest exact sum whose least sum in single precision is this. */
static double
sum_from_least(const OperatorBounds *bounds, double least)
{
	return (least + bounds->absolute) / (1 - bounds->relative);
}

/* The lower bound of the value. */
double
operator_least(const OperatorBounds *bounds, double distance)
{
	switch (bounds->metric)
	{
		case METRIC_L2:
			return sqrt(least_sum(bounds, distance));
		case METRIC_L1:
			return least_sum(bounds, distance);
		case METRIC_IP:
			return bounds->unbounded ? (double) -INFINITY : distance - bounds->absolute;
		case METRIC_COSINE:
			return bounds->unbounded ? 0 : fmax(distance - bounds->absolute, 0);
		default:
			return distance;
	}
}

/* The upper bound of the value. */
double
operator_most(const OperatorBounds *bounds, double distance)
{
	if (bounds->unbounded)
		return NAN;
	switch (bounds->metric)
	{
		case METRIC_L2:
			return sqrt(most_sum(bounds, distance));
		case METRIC_L1:
			return most_sum(bounds, distance);
		case METRIC_IP:
			return distance + bounds->absolute;
		case METRIC_COSINE:
			return fmin(distance + bounds->absolute, 2);
		default:
			return distance;
	}
}

/* The greatest distance whose value may be at most this. */
double
operator_distance_most(const OperatorBounds *bounds, double value)
{
	if (bounds->unbounded || isnan(value))
		return INFINITY;
	switch (bounds->metric)
	{
		case METRIC_L2:
			value = fmax(value, 0);
			return sum_from_least(bounds, value * value);
		case METRIC_L1:
			return sum_from_least(bounds, fmax(value, 0));
		case METRIC_IP:
		case METRIC_COSINE:
			return value + bounds->absolute;
		default:
			return value;
	}
}
