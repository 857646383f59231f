/*
 * distance.h
 *		Distances between vectors: the exact one, which orders results, and fast
 *		approximations for preselection.
 *
 * The exact distance has one definition (I10): elements are widened to double;
 * element i is added to accumulator i mod 8; multiplication and addition round
 * separately; the sum is ((0+4)+(2+6))+((1+5)+(3+7)). Every SIMD level and
 * every engine returns the same bits. A NaN (impossible for stored vectors
 * except by overflow) becomes infinity. Distances of bit vectors are computed
 * from integer counts.
 *
 * The fast distance is single precision, in any order of summation, and only
 * preselects. For bit vectors it is the exact distance rounded to single
 * precision.
 *
 * Levels: portable; AVX2 with FMA, F16C and POPCNT; AVX-512 (F, BW, DQ, VL).
 * Only pairs of type and metric that gain have AVX-512 kernels, and bits only
 * with VPOPCNTDQ; the others use those of AVX2.
 */
#ifndef GPUANN_DISTANCE_H
#define GPUANN_DISTANCE_H

#include "engine/engine.h"

typedef enum SimdLevel
{
	SIMD_BEST = 0,				/* the best level supported */
	SIMD_PORTABLE = 1,
	SIMD_AVX2 = 2,				/* with FMA, F16C and POPCNT */
	SIMD_AVX512 = 3				/* F, BW, DQ, VL */
} SimdLevel;

/* The exact distance of two stored vectors of dims elements. */
typedef double (*ExactDistance) (const void *a, const void *b, uint32_t dims);

/*
 * The fast distance of a widened query vector and a stored row. Both may be
 * unaligned; a query aligned to a cache line, as from wide_alloc(), is 10 to 25
 * % faster. For cosine, scale is 1 / (|query| |row|); other metrics ignore it.
 */
typedef float (*FastDistance) (const float *query, const void *row, uint32_t dims, float scale);

/* The fast inner product of a stored row with itself. */
typedef float (*SquaredNorm) (const void *row, uint32_t dims);

typedef struct DistanceKernels
{
	SimdLevel	level;			/* the level it was written for: the one requested, or a lower
								 * one */
	ExactDistance exact;
	FastDistance fast;
	SquaredNorm squared_norm;
	/*
	 * Convert stored elements to single precision; bits are copied. out has
	 * room for dims floats.
	 */
	void		(*widen) (const void *row, uint32_t dims, float *out);
} DistanceKernels;

/*
 * Kernels for a type and metric at a level; NULL if the pair does not exist or
 * the processor lacks the level.
 */
extern const DistanceKernels *distance_kernels(ElementType type, Metric metric, SimdLevel level);

/* Alignment of widened vectors. */
#define WIDE_ALIGNMENT	64

/* Allocate a widened vector, to be freed with free(); NULL if out of memory. */
extern float *wide_alloc(uint32_t dims);

/* Whether the processor supports a level, and the level's name. */
extern bool simd_available(SimdLevel level);
extern const char *simd_name(SimdLevel level);	/* SIMD_BEST: name of the level it selects */

/* The best level up to this one that the processor supports. */
extern SimdLevel simd_within(SimdLevel level);

/*
 * Whether a metric needs the norms of vectors: to scale fast distances, or to
 * bound their error.
 */
static inline bool
metric_has_norms(Metric metric)
{
	return metric == METRIC_IP || metric == METRIC_COSINE;
}

/*
 * Bound of the difference between the exact distance and a fast one that sums
 * terms of one sign (L2, L1): relative * fast + absolute.
 *
 * A sum of n products in single precision, in any order, with or without FMA,
 * has an error of at most n u / (1 - n u) times the sum of their magnitudes, u
 * = 2^-24. FAST_EXTRA_ROUNDINGS allows for differences, norms and scales; the
 * result is doubled as a safety margin.
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
