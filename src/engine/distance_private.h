/*
 * distance_private.h
 *		Shared by distance.c and its SIMD levels: tables of kernels, and the
 *		scalar parts of the definitions.
 */
#ifndef GPUANN_DISTANCE_PRIVATE_H
#define GPUANN_DISTANCE_PRIVATE_H

#include <math.h>
#include <string.h>

#include "engine/distance.h"

#define DISTANCE_INLINE static inline __attribute__((always_inline))

#define EXACT_LANES		8		/* accumulators of the exact definition */

/* Size and index of a kernel table, by (type, metric). */
#define DISTANCE_TYPES		3
#define DISTANCE_METRICS	6
#define DISTANCE_INDEX(type, metric) \
	(((type) - ELEMENT_FLOAT) * DISTANCE_METRICS + ((metric) - METRIC_L2))

/* Entries of pairs without kernels are zero. */
typedef struct KernelTable
{
	DistanceKernels kernels[DISTANCE_TYPES * DISTANCE_METRICS];
} KernelTable;

extern const KernelTable distance_portable_table;
#if defined(__x86_64__)
#define DISTANCE_HAVE_X86 1
extern const KernelTable distance_avx2_table;
extern const KernelTable distance_avx512_table;
#endif

/*
 * Accumulators of an exact distance, a row of lanes per sum. Cosine needs three
 * sums.
 */
typedef struct ExactSums
{
	double		cross[EXACT_LANES]; /* sum of squared or absolute differences, or of products */
	double		self_a[EXACT_LANES];
	double		self_b[EXACT_LANES];
} ExactSums;

/* Add the lanes in the order of the definition. */
DISTANCE_INLINE double
exact_fold(const double *lane)
{
	return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
		((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/*
 * Add one pair of elements to its lane. Products and sums round separately:
 * users of this file are compiled with -ffp-contract=off.
 */
DISTANCE_INLINE void
exact_add(ExactSums *sums, uint32_t lane, double a, double b, Metric metric)
{
	if (metric == METRIC_L2)
	{
		double		difference = a - b;

		sums->cross[lane] += difference * difference;
		return;
	}
	if (metric == METRIC_L1)
	{
		sums->cross[lane] += fabs(a - b);
		return;
	}
	sums->cross[lane] += a * b;
	if (metric == METRIC_COSINE)
	{
		sums->self_a[lane] += a * a;
		sums->self_b[lane] += b * b;
	}
}

/* The distance from complete sums. */
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

/* The fast distance from a single precision sum. */
DISTANCE_INLINE float
fast_finish(float sum, float scale, Metric metric)
{
	if (metric == METRIC_IP)
		sum = -sum;
	else if (metric == METRIC_COSINE)
		sum = 1.0f - sum * scale;
	return isnan(sum) ? INFINITY : sum;
}

/* Add the contribution of one pair of elements to a fast distance. */
DISTANCE_INLINE float
fast_add(float sum, float q, float r, Metric metric)
{
	if (metric == METRIC_L2)
		return sum + (q - r) * (q - r);
	if (metric == METRIC_L1)
		return sum + fabsf(q - r);
	return sum + q * r;
}

/*
 * Counts from which distances of bit vectors are computed: bits set in both,
 * and bits set in one only.
 */
typedef struct BitCounts
{
	uint64_t	both;
	uint64_t	one;
} BitCounts;

/* Load eight bytes of a bit vector, which may be unaligned. */
DISTANCE_INLINE uint64_t
bit_word(const void *vector, size_t at)
{
	uint64_t	word;

	memcpy(&word, (const char *) vector + at, sizeof(word));
	return word;
}

/*
 * Load the last bytes of a bit vector, at most seven, in an arbitrary but fixed
 * order. (A memcpy of variable length would be a call.)
 */
DISTANCE_INLINE uint64_t
bit_rest(const void *vector, size_t at, size_t bytes)
{
	const unsigned char *rest = (const unsigned char *) vector + at;
	uint64_t	word = 0;
	uint32_t	four;
	uint16_t	two;

	if (bytes & 4)
	{
		memcpy(&four, rest, sizeof(four));
		word = four;
		rest += sizeof(four);
	}
	if (bytes & 2)
	{
		memcpy(&two, rest, sizeof(two));
		word = word << 16 | two;
		rest += sizeof(two);
	}
	if (bytes & 1)
		word = word << 8 | *rest;
	return word;
}

/* Count the contribution of a pair of words. */
DISTANCE_INLINE void
bit_count(BitCounts *counts, uint64_t a, uint64_t b, Metric metric)
{
	counts->one += (uint64_t) __builtin_popcountll(a ^ b);
	if (metric == METRIC_JACCARD)
		counts->both += (uint64_t) __builtin_popcountll(a & b);
}

/* Count over two vectors word by word, starting at byte `at`. */
DISTANCE_INLINE void
bit_count_words(BitCounts *counts, const void *a, const void *b, size_t bytes, Metric metric)
{
	size_t		at = 0;

	for (; metric == METRIC_HAMMING && at + 4 * sizeof(uint64_t) <= bytes;
		 at += 4 * sizeof(uint64_t))
		for (size_t i = at; i < at + 4 * sizeof(uint64_t); i += sizeof(uint64_t))
			bit_count(counts, bit_word(a, i), bit_word(b, i), metric);
	for (; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t))
		bit_count(counts, bit_word(a, at), bit_word(b, at), metric);
	if (at < bytes)
		bit_count(counts, bit_rest(a, at, bytes - at), bit_rest(b, at, bytes - at), metric);
}

/* Count the set bits of a vector. */
DISTANCE_INLINE uint64_t
bit_ones(const void *vector, size_t bytes)
{
	uint64_t	ones = 0;
	size_t		at = 0;

	for (; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t))
		ones += (uint64_t) __builtin_popcountll(bit_word(vector, at));
	if (at < bytes)
		ones += (uint64_t) __builtin_popcountll(bit_rest(vector, at, bytes - at));
	return ones;
}

/* The distance from counts. */
DISTANCE_INLINE double
bit_finish(BitCounts counts, Metric metric)
{
	if (metric == METRIC_HAMMING)
		return (double) counts.one;
	if (counts.both == 0)
		return 1.0;
	return 1.0 - (double) counts.both / (double) (counts.both + counts.one);
}

/* Define the bit kernels of a level, from count_LEVEL(a, b, dims, metric). */
#define BIT_KERNELS(level, target) \
	target static double exact_bit_hamming_##level(const void *a, const void *b, uint32_t dims) \
	{ \
		return bit_finish(count_##level(a, b, dims, METRIC_HAMMING), METRIC_HAMMING); \
	} \
	target static double exact_bit_jaccard_##level(const void *a, const void *b, uint32_t dims) \
	{ \
		return bit_finish(count_##level(a, b, dims, METRIC_JACCARD), METRIC_JACCARD); \
	} \
	target static float fast_bit_hamming_##level(const float *query, const void *row, \
		uint32_t dims, float scale) \
	{ \
		return (float) exact_bit_hamming_##level(query, row, dims); \
	} \
	target static float fast_bit_jaccard_##level(const float *query, const void *row, \
		uint32_t dims, float scale) \
	{ \
		return (float) exact_bit_jaccard_##level(query, row, dims); \
	} \
	target static float squared_norm_bit_##level(const void *row, uint32_t dims) \
	{ \
		return (float) bit_ones(row, ((size_t) dims + 7) / 8); \
	} \
	static void widen_bit_##level(const void *row, uint32_t dims, float *out) \
	{ \
		memcpy(out, row, ((size_t) dims + 7) / 8); \
	}

#define BIT_ENTRIES(level, simd) \
	[DISTANCE_INDEX(ELEMENT_BIT, METRIC_HAMMING)] = {simd, exact_bit_hamming_##level, \
		fast_bit_hamming_##level, squared_norm_bit_##level, widen_bit_##level}, \
	[DISTANCE_INDEX(ELEMENT_BIT, METRIC_JACCARD)] = {simd, exact_bit_jaccard_##level, \
		fast_bit_jaccard_##level, squared_norm_bit_##level, widen_bit_##level}

/*
 * The kernels of vectors of numbers at a level, from its exact_generic,
 * fast_generic, squared_norm_generic and widen_generic. Only exact distances
 * must not be computed with fused operations.
 */
#define VECTOR_PAIR(exact_target, fast_target, name, type, metric) \
	exact_target static double exact_##name(const void *a, const void *b, uint32_t dims) \
	{ \
		return exact_generic(a, b, dims, type, metric); \
	} \
	fast_target static float fast_##name(const float *query, const void *row, uint32_t dims, \
		float scale) \
	{ \
		return fast_generic(query, row, dims, scale, type, metric); \
	}

#define VECTOR_TYPE(exact_target, fast_target, name, type) \
	fast_target static float squared_norm_##name(const void *row, uint32_t dims) \
	{ \
		return squared_norm_generic(row, dims, type); \
	} \
	fast_target static void widen_##name(const void *row, uint32_t dims, float *out) \
	{ \
		widen_generic(row, dims, out, type); \
	} \
	VECTOR_PAIR(exact_target, fast_target, name##_l2, type, METRIC_L2) \
	VECTOR_PAIR(exact_target, fast_target, name##_ip, type, METRIC_IP) \
	VECTOR_PAIR(exact_target, fast_target, name##_cosine, type, METRIC_COSINE) \
	VECTOR_PAIR(exact_target, fast_target, name##_l1, type, METRIC_L1)

#define VECTOR_KERNELS(exact_target, fast_target) \
	VECTOR_TYPE(exact_target, fast_target, float, ELEMENT_FLOAT) \
	VECTOR_TYPE(exact_target, fast_target, half, ELEMENT_HALF)

#define VECTOR_ENTRY(simd, name, type, metric_name, metric) \
	[DISTANCE_INDEX(type, metric)] = {simd, exact_##name##_##metric_name, \
		fast_##name##_##metric_name, squared_norm_##name, widen_##name}

#define VECTOR_ENTRIES(simd, name, type) \
	VECTOR_ENTRY(simd, name, type, l2, METRIC_L2), \
	VECTOR_ENTRY(simd, name, type, ip, METRIC_IP), \
	VECTOR_ENTRY(simd, name, type, cosine, METRIC_COSINE), \
	VECTOR_ENTRY(simd, name, type, l1, METRIC_L1)

/* All kernels of a level. */
#define KERNEL_TABLE(level, simd) \
	{{ \
		VECTOR_ENTRIES(simd, float, ELEMENT_FLOAT), \
		VECTOR_ENTRIES(simd, half, ELEMENT_HALF), \
		BIT_ENTRIES(level, simd) \
	}}

#endif							/* GPUANN_DISTANCE_PRIVATE_H */
