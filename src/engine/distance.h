/*
 * distance.h
 *		Distances between vectors: the exact one that ranks, and fast ones for
 *		shortlists.
 *
 * The exact distance is one definition (design, I10): elements widen to double;
 * element i goes to accumulator i mod 8; multiply and add are rounded
 * separately; the sum is ((0+4)+(2+6))+((1+5)+(3+7)). Every SIMD level and
 * every engine gives the same bits. A NaN (which no stored vector can cause but
 * an overflow might) is returned as infinity. Distances of bits come from
 * counts, which are exact. The fast distance is single precision in any order
 * of summation: it makes shortlists only. Of bits it is the exact distance,
 * rounded to single precision.
 *
 * What the processor has is asked once per process: nothing; AVX2 with FMA,
 * F16C and POPCNT; or AVX-512 (F, BW, DQ, VL). Only pairs that gain by it have
 * AVX-512 kernels, and bits only where VPOPCNTDQ is there; the others keep
 * those of AVX2.
 */
#ifndef GPUANN_DISTANCE_H
#define GPUANN_DISTANCE_H

#include "engine/engine.h"

typedef enum SimdLevel
{
	SIMD_BEST = 0,				/* the best this processor has */
	SIMD_PORTABLE = 1,
	SIMD_AVX2 = 2,				/* with FMA, F16C and POPCNT */
	SIMD_AVX512 = 3				/* F, BW, DQ, VL */
} SimdLevel;

/* The exact distance of two stored vectors of dims elements. */
typedef double (*ExactDistance) (const void *a, const void *b, uint32_t dims);

/*
 * The fast distance of a prepared query (what widen makes of a vector) and a
 * stored row. Both may be unaligned; a query that begins with a cache line, as
 * wide_alloc gives it, is read a tenth to a quarter faster. Cosine takes the
 * factor scale = 1 / (|query| |row|); others ignore it.
 */
typedef float (*FastDistance) (const float *query, const void *row, uint32_t dims, float scale);

/* The fast inner product of a stored row with itself. */
typedef float (*SquaredNorm) (const void *row, uint32_t dims);

typedef struct DistanceKernels
{
	SimdLevel	level;			/* what it was written for: the level asked for, or a lower one */
	ExactDistance exact;
	FastDistance fast;
	SquaredNorm squared_norm;
	/*
	 * Stored elements to single precision; bits stay bits. out has room for
	 * dims floats.
	 */
	void		(*widen) (const void *row, uint32_t dims, float *out);
} DistanceKernels;

/*
 * Kernels for a type and metric, at a level; NULL if the pair (or the level on
 * this processor) is not there.
 */
extern const DistanceKernels *distance_kernels(ElementType type, Metric metric, SimdLevel level);

/* Where prepared queries should begin. */
#define WIDE_ALIGNMENT	64

/* Room for a prepared query, to be freed with free(); NULL: no memory. */
extern float *wide_alloc(uint32_t dims);

/* Whether this processor has a level, and its name. */
extern bool simd_available(SimdLevel level);
extern const char *simd_name(SimdLevel level);	/* of SIMD_BEST: the one it stands for */

/*
 * Whether a metric wants the norms of vectors: scales of fast distances, bounds
 * of their error.
 */
static inline bool
metric_has_norms(Metric metric)
{
	return metric == METRIC_IP || metric == METRIC_COSINE;
}

/*
 * How far the exact distance may be from a fast one that sums terms of one sign
 * (L2, L1): relative * fast + absolute.
 *
 * A sum of n products in single precision, in any order, with FMA or not, errs
 * by at most n u / (1 - n u) times the sum of the products' sizes, u = 2^-24;
 * some roundings more are for differences, norms, scales; the result is doubled
 * to be generous.
 */
#define FAST_UNIT_ROUNDOFF		0x1p-24
#define FAST_EXTRA_ROUNDINGS	16
#define FAST_SMALLEST			0x1p-149

static inline double
fast_error_relative(uint32_t dims)
{
	double		error = ((double) dims + FAST_EXTRA_ROUNDINGS) * FAST_UNIT_ROUNDOFF;

	return 2 * error / (1 - error);
}

static inline double
fast_error_absolute(uint32_t dims)
{
	return ((double) dims + FAST_EXTRA_ROUNDINGS) * FAST_SMALLEST;
}

#endif							/* GPUANN_DISTANCE_H */
