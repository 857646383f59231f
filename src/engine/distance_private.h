/*
 * distance_private.h
 *		What distance.c and its SIMD levels share: tables of kernels, and the ends of the exact definition.
 */
#ifndef GPUANN_DISTANCE_PRIVATE_H
#define GPUANN_DISTANCE_PRIVATE_H

#include <math.h>

#include "distance.h"

#define DISTANCE_INLINE static inline __attribute__((always_inline))

#define EXACT_LANES		8		/* accumulators of the exact definition */

/* Types and metrics with kernels: index a table by (type, metric). */
#define DISTANCE_TYPES		2
#define DISTANCE_METRICS	3
#define DISTANCE_INDEX(type, metric) (((type) - ELEMENT_FLOAT) * DISTANCE_METRICS + ((metric) - METRIC_L2))

typedef struct KernelTable
{
	DistanceKernels kernels[DISTANCE_TYPES * DISTANCE_METRICS];
} KernelTable;

extern const KernelTable distance_portable_table;
#if defined(__x86_64__)
#define DISTANCE_HAVE_AVX2 1
extern const KernelTable distance_avx2_table;
#endif

/* What an exact distance sums: one row of lanes per sum. Cosine needs three. */
typedef struct ExactSums
{
	double		cross[EXACT_LANES]; /* of squared differences, or of products */
	double		self_a[EXACT_LANES];
	double		self_b[EXACT_LANES];
} ExactSums;

/* Add the lanes in the order of the definition. */
DISTANCE_INLINE double
exact_fold(const double *lane)
{
	return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* Add one pair of elements to its lane: products and sums rounded separately (this file's users see -ffp-contract=off). */
DISTANCE_INLINE void
exact_add(ExactSums *sums, uint32_t lane, double a, double b, Metric metric)
{
	if (metric == METRIC_L2)
	{
		double		difference = a - b;

		sums->cross[lane] += difference * difference;
		return;
	}
	sums->cross[lane] += a * b;
	if (metric == METRIC_COSINE)
	{
		sums->self_a[lane] += a * a;
		sums->self_b[lane] += b * b;
	}
}

/* The distance that complete sums stand for. */
DISTANCE_INLINE double
exact_finish(const ExactSums *sums, Metric metric)
{
	double		cross = exact_fold(sums->cross);

	if (metric == METRIC_IP)
		cross = -cross;
	else if (metric == METRIC_COSINE)
	{
		double		norms = sqrt(exact_fold(sums->self_a) * exact_fold(sums->self_b));

		if (norms == 0)
			return INFINITY;
		cross = 1.0 - cross / norms;
	}
	return isnan(cross) ? (double) INFINITY : cross;
}

/* The fast distance that a single precision sum stands for. */
DISTANCE_INLINE float
fast_finish(float sum, float scale, Metric metric)
{
	if (metric == METRIC_IP)
		sum = -sum;
	else if (metric == METRIC_COSINE)
		sum = 1.0f - sum * scale;
	return isnan(sum) ? INFINITY : sum;
}

#endif							/* GPUANN_DISTANCE_PRIVATE_H */
