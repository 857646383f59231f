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

/* Counts of two bit vectors. */
DISTANCE_INLINE BitCounts
count_portable(const void *a, const void *b, uint32_t dims, Metric metric)
{
	BitCounts	counts = {0, 0};

	bit_count_words(&counts, a, b, 0, ((size_t) dims + 7) / 8, metric);
	return counts;
}

BIT_KERNELS(portable,)

#define PORTABLE_PAIR(name, type, metric) \
	static double exact_##name(const void *a, const void *b, uint32_t dims) \
	{ \
		return exact_generic(a, b, dims, type, metric); \
	} \
	static float fast_##name(const float *query, const void *row, uint32_t dims, float scale) \
	{ \
		return fast_generic(query, row, dims, scale, type, metric); \
	}

#define PORTABLE_TYPE(name, type) \
	static float squared_norm_##name(const void *row, uint32_t dims) \
	{ \
		return squared_norm_generic(row, dims, type); \
	} \
	static void widen_##name(const void *row, uint32_t dims, float *out) \
	{ \
		for (uint32_t i = 0; i < dims; i++) \
			out[i] = element(row, i, type); \
	} \
	PORTABLE_PAIR(name##_l2, type, METRIC_L2) \
	PORTABLE_PAIR(name##_ip, type, METRIC_IP) \
	PORTABLE_PAIR(name##_cosine, type, METRIC_COSINE) \
	PORTABLE_PAIR(name##_l1, type, METRIC_L1)

PORTABLE_TYPE(float, ELEMENT_FLOAT)
PORTABLE_TYPE(half, ELEMENT_HALF)

#define PORTABLE_ENTRY(name, type, metric, metric_name)                                 \
	[DISTANCE_INDEX(type, metric)] = {SIMD_PORTABLE, exact_##name##_##metric_name,      \
									  fast_##name##_##metric_name, squared_norm_##name, \
									  widen_##name}

const KernelTable distance_portable_table = {{
	PORTABLE_ENTRY(float, ELEMENT_FLOAT, METRIC_L2, l2),
	PORTABLE_ENTRY(float, ELEMENT_FLOAT, METRIC_IP, ip),
	PORTABLE_ENTRY(float, ELEMENT_FLOAT, METRIC_COSINE, cosine),
	PORTABLE_ENTRY(float, ELEMENT_FLOAT, METRIC_L1, l1),
	PORTABLE_ENTRY(half, ELEMENT_HALF, METRIC_L2, l2),
	PORTABLE_ENTRY(half, ELEMENT_HALF, METRIC_IP, ip),
	PORTABLE_ENTRY(half, ELEMENT_HALF, METRIC_COSINE, cosine),
	PORTABLE_ENTRY(half, ELEMENT_HALF, METRIC_L1, l1),
	BIT_ENTRIES(portable, SIMD_PORTABLE)
}};
