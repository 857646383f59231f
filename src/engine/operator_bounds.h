/*
 * operator_bounds.h
 *		The interval in which the value of pgvector's operator lies, given the
 *		exact distance.
 *
 * The operators compute in single precision, in an order of summation that the
 * compiler chooses, so two rows may have the reverse order by their values. The
 * bounds hold for any order, with and without fused operations, and where the
 * processor takes subnormal numbers for zero.
 *
 * Values have float8's order: NaN, which cosine and inner product give where
 * single precision overflows, comes after infinity.
 */
#ifndef GPUANN_OPERATOR_BOUNDS_H
#define GPUANN_OPERATOR_BOUNDS_H

#include <math.h>
#include <stdbool.h>

#include "engine/engine.h"

typedef struct OperatorBounds
{
	Metric		metric;
	double		relative;		/* L2, L1: error relative to the sum */
	double		absolute;		/* L2, L1: error of the sum by underflow; inner product, cosine:
								 * error of the value */
	bool		unbounded;		/* inner product, cosine: the value may be anything */
} OperatorBounds;

/*
 * Set the bounds for a query of stored elements and rows whose Euclidean norms
 * are within a range.
 */
extern void operator_bounds_init(OperatorBounds *bounds, ElementType type, Metric metric,
								 uint32_t dims, const void *query, float least_norm,
								 float most_norm);

/*
 * The bounds of the value for a distance. Both rise with the distance, in
 * float8's order; the lower one is never NaN, the upper one is where the value
 * may be.
 */
extern double operator_least(const OperatorBounds *bounds, double distance);
extern double operator_most(const OperatorBounds *bounds, double distance);

/*
 * The greatest distance that a row can have whose value is at most this;
 * infinity if there is no bound.
 */
extern double operator_distance_most(const OperatorBounds *bounds, double value);

/* Whether a <= b in float8's order. */
static inline bool
value_not_after(double a, double b)
{
	return isnan(b) || a <= b;
}

#endif							/* GPUANN_OPERATOR_BOUNDS_H */
