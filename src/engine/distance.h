/*
 * distance.h
 *		Distances between vectors: the exact one that ranks, and fast ones for shortlists.
 *
 * The exact distance is one definition (design, I10): elements widen to double; element i goes to accumulator
 * i mod 8; multiply and add are rounded separately; the sum is ((0+4)+(2+6))+((1+5)+(3+7)). Every SIMD level and every
 * engine gives the same bits. A NaN (which no stored vector can cause but an overflow might) is returned as infinity.
 * The fast distance is single precision in any order of summation: it makes shortlists only.
 *
 * Kernels are chosen once per process by what the processor has: portable, or AVX2 + FMA + F16C.
 */
#ifndef GPUANN_DISTANCE_H
#define GPUANN_DISTANCE_H

#include "engine.h"

typedef enum SimdLevel
{
	SIMD_BEST = 0,				/* the best this processor has */
	SIMD_PORTABLE = 1,
	SIMD_AVX2 = 2				/* with FMA and F16C */
} SimdLevel;

/* The exact distance of two stored vectors of dims elements. */
typedef double (*ExactDistance) (const void *a, const void *b, uint32_t dims);

/*
 * The fast distance of a prepared query (dims floats, 32-byte aligned or not) and a stored row.
 * Cosine takes the factor scale = 1 / (|query| |row|); others ignore it.
 */
typedef float (*FastDistance) (const float *query, const void *row, uint32_t dims, float scale);

/* The fast inner product of a stored row with itself. */
typedef float (*SquaredNorm) (const void *row, uint32_t dims);

typedef struct DistanceKernels
{
	SimdLevel	level;
	ExactDistance exact;
	FastDistance fast;
	SquaredNorm squared_norm;
	void		(*widen) (const void *row, uint32_t dims, float *out);	/* stored elements to single precision */
} DistanceKernels;

/* Kernels for a type and metric; NULL if the pair (or the level on this processor) is not there. */
extern const DistanceKernels *distance_kernels(ElementType type, Metric metric, SimdLevel level);

/* Whether this processor has a level, and its name. */
extern bool simd_available(SimdLevel level);
extern const char *simd_name(SimdLevel level);	/* of SIMD_BEST: the one it stands for */

#endif							/* GPUANN_DISTANCE_H */
