/*
 * distance_avx2.c
 *		Distance kernels for x86-64 with AVX2, FMA, F16C and POPCNT.
 *
 * Exact kernels are compiled without FMA, so that multiplication and addition
 * cannot be contracted; lanes 0-3 and 4-7 of the definition are the elements of
 * two registers. Fast kernels use four single precision accumulators and FMA.
 */
#include "engine/distance_private.h"

#ifdef DISTANCE_HAVE_X86

#include <immintrin.h>

#define TARGET_EXACT	__attribute__((target("avx2,f16c")))
#define TARGET_FAST		__attribute__((target("avx2,f16c,fma")))
#define TARGET_BITS		__attribute__((target("avx2,popcnt")))

/*
 * Load eight elements from i on, in single precision. Vectors may be unaligned.
 */
TARGET_EXACT DISTANCE_INLINE __m256
load8(const void *vector, size_t i, ElementType type)
{
	if (type == ELEMENT_FLOAT)
		return _mm256_loadu_ps(
			(const float *) (const void *) ((const char *) vector + i * sizeof(float)));
	return _mm256_cvtph_ps(_mm_loadu_si128(
		(const __m128i *) (const void *) ((const char *) vector + i * sizeof(uint16_t))));
}

/* Load one element in single precision. */
TARGET_EXACT DISTANCE_INLINE float
load1(const void *vector, size_t i, ElementType type)
{
	float		single;
	uint16_t	half;

	if (type == ELEMENT_FLOAT)
	{
		memcpy(&single, (const char *) vector + i * sizeof(single), sizeof(single));
		return single;
	}
	memcpy(&half, (const char *) vector + i * sizeof(half), sizeof(half));
	return _cvtsh_ss(half);
}

TARGET_EXACT DISTANCE_INLINE __m256d
add_product(__m256d sum, __m256d a, __m256d b)
{
	return _mm256_add_pd(sum, _mm256_mul_pd(a, b));
}

/* Absolute values of four doubles. */
TARGET_EXACT DISTANCE_INLINE __m256d
magnitude4(__m256d v)
{
	return _mm256_andnot_pd(_mm256_set1_pd(-0.0), v);
}

TARGET_EXACT DISTANCE_INLINE double
exact_generic(const void *a, const void *b, uint32_t dims, ElementType type, Metric metric)
{
	__m256d		cross_lo = _mm256_setzero_pd(),
				cross_hi = cross_lo,
				a_lo = cross_lo,
				a_hi = cross_lo,
				b_lo = cross_lo,
				b_hi = cross_lo;
	ExactSums	sums;
	uint32_t	i = 0;

	for (; i + EXACT_LANES <= dims; i += EXACT_LANES)
	{
		__m256		x = load8(a, i, type);
		__m256		y = load8(b, i, type);
		__m256d		x_lo = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
		__m256d		x_hi = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
		__m256d		y_lo = _mm256_cvtps_pd(_mm256_castps256_ps128(y));
		__m256d		y_hi = _mm256_cvtps_pd(_mm256_extractf128_ps(y, 1));

		if (metric == METRIC_L1)
		{
			cross_lo = _mm256_add_pd(cross_lo, magnitude4(_mm256_sub_pd(x_lo, y_lo)));
			cross_hi = _mm256_add_pd(cross_hi, magnitude4(_mm256_sub_pd(x_hi, y_hi)));
			continue;
		}
		if (metric == METRIC_L2)
		{
			x_lo = y_lo = _mm256_sub_pd(x_lo, y_lo);
			x_hi = y_hi = _mm256_sub_pd(x_hi, y_hi);
		}
		cross_lo = add_product(cross_lo, x_lo, y_lo);
		cross_hi = add_product(cross_hi, x_hi, y_hi);
		if (metric == METRIC_COSINE)
		{
			a_lo = add_product(a_lo, x_lo, x_lo);
			a_hi = add_product(a_hi, x_hi, x_hi);
			b_lo = add_product(b_lo, y_lo, y_lo);
			b_hi = add_product(b_hi, y_hi, y_hi);
		}
	}
	_mm256_storeu_pd(sums.cross, cross_lo);
	_mm256_storeu_pd(sums.cross + 4, cross_hi);
	_mm256_storeu_pd(sums.self_a, a_lo);
	_mm256_storeu_pd(sums.self_a + 4, a_hi);
	_mm256_storeu_pd(sums.self_b, b_lo);
	_mm256_storeu_pd(sums.self_b + 4, b_hi);
	for (uint32_t lane = 0; i < dims; i++, lane++)
		exact_add(&sums, lane, load1(a, i, type), load1(b, i, type), metric);
	return exact_finish(&sums, metric);
}

/* Sum of the eight elements. */
TARGET_FAST DISTANCE_INLINE float
sum8(__m256 v)
{
	__m128		s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

	s = _mm_add_ps(s, _mm_movehl_ps(s, s));
	s = _mm_add_ss(s, _mm_shuffle_ps(s, s, 1));
	return _mm_cvtss_f32(s);
}

/* Add the contribution of eight elements. */
TARGET_FAST DISTANCE_INLINE __m256
fast_step(__m256 sum, __m256 q, __m256 r, Metric metric)
{
	if (metric == METRIC_L1)
		return _mm256_add_ps(sum, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), _mm256_sub_ps(q, r)));
	if (metric == METRIC_L2)
		q = r = _mm256_sub_ps(q, r);
	return _mm256_fmadd_ps(q, r, sum);
}

TARGET_FAST DISTANCE_INLINE float
fast_generic(const float *query, const void *row, uint32_t dims, float scale, ElementType type,
			 Metric metric)
{
	__m256		s0 = _mm256_setzero_ps(),
				s1 = s0,
				s2 = s0,
				s3 = s0;
	float		sum;
	uint32_t	i = 0;

	for (; i + 32 <= dims; i += 32)
	{
		s0 = fast_step(s0, _mm256_loadu_ps(query + i), load8(row, i, type), metric);
		s1 = fast_step(s1, _mm256_loadu_ps(query + i + 8), load8(row, i + 8, type), metric);
		s2 = fast_step(s2, _mm256_loadu_ps(query + i + 16), load8(row, i + 16, type), metric);
		s3 = fast_step(s3, _mm256_loadu_ps(query + i + 24), load8(row, i + 24, type), metric);
	}
	for (; i + 8 <= dims; i += 8)
		s0 = fast_step(s0, _mm256_loadu_ps(query + i), load8(row, i, type), metric);
	sum = sum8(_mm256_add_ps(_mm256_add_ps(s0, s1), _mm256_add_ps(s2, s3)));
	for (; i < dims; i++)
		sum = fast_add(sum, query[i], load1(row, i, type), metric);
	return fast_finish(sum, scale, metric);
}

TARGET_FAST DISTANCE_INLINE __m256
norm_step(__m256 sum, __m256 r)
{
	return _mm256_fmadd_ps(r, r, sum);
}

TARGET_FAST DISTANCE_INLINE float
squared_norm_generic(const void *row, uint32_t dims, ElementType type)
{
	__m256		s0 = _mm256_setzero_ps(),
				s1 = s0,
				s2 = s0,
				s3 = s0;
	float		sum;
	uint32_t	i = 0;

	for (; i + 32 <= dims; i += 32)
	{
		s0 = norm_step(s0, load8(row, i, type));
		s1 = norm_step(s1, load8(row, i + 8, type));
		s2 = norm_step(s2, load8(row, i + 16, type));
		s3 = norm_step(s3, load8(row, i + 24, type));
	}
	for (; i + 8 <= dims; i += 8)
		s0 = norm_step(s0, load8(row, i, type));
	sum = sum8(_mm256_add_ps(_mm256_add_ps(s0, s1), _mm256_add_ps(s2, s3)));
	for (; i < dims; i++)
		sum += load1(row, i, type) * load1(row, i, type);
	return sum;
}

TARGET_FAST DISTANCE_INLINE void
widen_generic(const void *row, uint32_t dims, float *out, ElementType type)
{
	uint32_t	i = 0;

	for (; i + 8 <= dims; i += 8)
		_mm256_storeu_ps(out + i, load8(row, i, type));
	for (; i < dims; i++)
		out[i] = load1(row, i, type);
}

/* Counts of two bit vectors, by 64-bit words. */
TARGET_BITS DISTANCE_INLINE BitCounts
count_avx2(const void *a, const void *b, uint32_t dims, Metric metric)
{
	BitCounts	counts = {0, 0};

	bit_count_words(&counts, a, b, ((size_t) dims + 7) / 8, metric);
	return counts;
}

BIT_KERNELS(avx2, TARGET_BITS)

VECTOR_KERNELS(TARGET_EXACT, TARGET_FAST)

const KernelTable distance_avx2_table = KERNEL_TABLE(avx2, SIMD_AVX2);

#else

/* ISO C forbids an empty translation unit. */
typedef int DistanceAvx2NotHere;

#endif							/* DISTANCE_HAVE_X86 */
