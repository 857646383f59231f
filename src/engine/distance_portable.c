/*
 * distance_portable.c
 *		Distance kernels in plain C, for other processors and as the reference
 *		for tests.
 *
 * One generic body per purpose is instantiated for every type and metric; the
 * compiler removes what a pair does not need.
 */
#include <string.h>

#include "engine/distance_private.h"

/* Convert a half to single precision. */
DISTANCE_INLINE float
half_to_float(uint16_t half)
{
	uint32_t	sign = (uint32_t) (half & 0x8000) << 16;
	uint32_t	magnitude = half & 0x7FFF;
	uint32_t	bits;
	float		value;

	if (magnitude < 0x0400)		/* zero and subnormals: multiples of 2^-24 */
	{
		value = (float) magnitude * 0x1p-24f;
		return sign ? -value : value;
	}
	if (magnitude >= 0x7C00)
		bits = sign | 0x7F800000 | (magnitude & 0x03FF) << 13;
	else
		bits = sign | ((magnitude << 13) + ((127u - 15u) << 23));
	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* Element i of a stored vector, which may be unaligned. */
DISTANCE_INLINE float
element(const void *vector, uint32_t i, ElementType type)
{
	float		value;
	uint16_t	half;

	if (type == ELEMENT_FLOAT)
	{
		memcpy(&value, (const char *) vector + (size_t) i * sizeof(value), sizeof(value));
		return value;
	}
	memcpy(&half, (const char *) vector + (size_t) i * sizeof(half), sizeof(half));
	return half_to_float(half);
}

/* The exact distance, literally by its definition. */
DISTANCE_INLINE double
exact_generic(const void *a, const void *b, uint32_t dims, ElementType type, Metric metric)
{
	ExactSums	sums = {{0}, {0}, {0}};
	uint32_t	i = 0;

	for (; i + EXACT_LANES <= dims; i += EXACT_LANES)
		for (uint32_t lane = 0; lane < EXACT_LANES; lane++)
			exact_add(&sums, lane, element(a, i + lane, type), element(b, i + lane, type), metric);
	for (uint32_t lane = 0; i < dims; i++, lane++)
		exact_add(&sums, lane, element(a, i, type), element(b, i, type), metric);
	return exact_finish(&sums, metric);
}

/*
 * The fast distance, with eight sums that the compiler can keep in one vector
 * register.
 */
DISTANCE_INLINE float
fast_generic(const float *query, const void *row, uint32_t dims, float scale, ElementType type,
			 Metric metric)
{
	float		sum[8] = {0};
	uint32_t	i = 0;

	for (; i < dims; i++)
	{
		float	   *lane = &sum[i & 7];

		*lane = fast_add(*lane, query[i], element(row, i, type), metric);
	}
	return fast_finish(((sum[0] + sum[4]) + (sum[2] + sum[6])) +
						   ((sum[1] + sum[5]) + (sum[3] + sum[7])),
					   scale, metric);
}

DISTANCE_INLINE float
squared_norm_generic(const void *row, uint32_t dims, ElementType type)
{
	float		sum[8] = {0};

	for (uint32_t i = 0; i < dims; i++)
	{
		float		r = element(row, i, type);

		sum[i & 7] += r * r;
	}
	return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

DISTANCE_INLINE void
widen_generic(const void *row, uint32_t dims, float *out, ElementType type)
{
	for (uint32_t i = 0; i < dims; i++)
		out[i] = element(row, i, type);
}

/* Counts of two vectors of bits. */
DISTANCE_INLINE BitCounts
count_portable(const void *a, const void *b, uint32_t dims, Metric metric)
{
	BitCounts	counts = {0, 0};

	bit_count_words(&counts, a, b, ((size_t) dims + 7) / 8, metric);
	return counts;
}

BIT_KERNELS(portable,)

VECTOR_KERNELS(,)

const KernelTable distance_portable_table = KERNEL_TABLE(portable, SIMD_PORTABLE);
