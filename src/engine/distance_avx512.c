/*
 * distance_avx512.c
 *		Distance kernels for x86-64 with AVX-512 (F, BW, DQ, VL; for bits,
 *		VPOPCNTDQ).
 *
 * The eight accumulators of the exact definition are one register. The elements
 * beyond the last multiple of eight are loaded and added under a mask, so that
 * other lanes do not change. Exact kernels are compiled without FMA, like those
 * of AVX2. Fast kernels use four single precision accumulators of sixteen lanes
 * and FMA. Measured by bench/distance.
 */
#include "engine/distance_private.h"

#ifdef DISTANCE_HAVE_X86

#include <immintrin.h>

#define TARGET_EXACT	__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c")))
#define TARGET_FAST		__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,fma")))
#define TARGET_BITS		__attribute__((target("avx512f,avx512bw,avx512vpopcntdq,popcnt")))

#define FEW_BYTES		32		/* of bits: up to here 64-bit words are faster */

/* Masks: all lanes (loads are then unmasked), and the first n, n < 16. */
#define ALL8			0xFF
#define ALL16			0xFFFF
#define FIRST_LANES(n)	((1u << (n)) - 1)

/*
 * Load up to eight elements from i on, widened to double. Masked lanes are
 * zero. Vectors may be unaligned.
 */
TARGET_EXACT DISTANCE_INLINE __m512d
load8(const void *vector, size_t i, __mmask8 mask, ElementType type)
{
	const char *at =
		(const char *) vector + i * (type == ELEMENT_FLOAT ? sizeof(float) : sizeof(uint16_t));

	if (type == ELEMENT_FLOAT)
		return _mm512_cvtps_pd(mask == ALL8 ? _mm256_loadu_ps((const void *) at)
											: _mm256_maskz_loadu_ps(mask, at));
	return _mm512_cvtps_pd(_mm256_cvtph_ps(mask == ALL8 ? _mm_loadu_si128((const void *) at)
														: _mm_maskz_loadu_epi16(mask, at)));
}

/* Add the products of eight lanes to their sums. */
TARGET_EXACT DISTANCE_INLINE __m512d
add_product(__m512d sum, __mmask8 mask, __m512d a, __m512d b)
{
	return _mm512_mask_add_pd(sum, mask, sum, _mm512_mul_pd(a, b));
}

/* The sums of an exact distance, one register of lanes each. */
typedef struct Registers
{
	__m512d		cross;
	__m512d		self_a;
	__m512d		self_b;
} Registers;

/* Add up to eight pairs of elements to their lanes. */
TARGET_EXACT DISTANCE_INLINE void
exact_step(Registers *sums, const void *a, const void *b, size_t i, __mmask8 mask, ElementType type,
		   Metric metric)
{
	__m512d		x = load8(a, i, mask, type);
	__m512d		y = load8(b, i, mask, type);

	if (metric == METRIC_L1)
	{
		sums->cross =
			_mm512_mask_add_pd(sums->cross, mask, sums->cross, _mm512_abs_pd(_mm512_sub_pd(x, y)));
		return;
	}
	if (metric == METRIC_L2)
		x = y = _mm512_sub_pd(x, y);
	sums->cross = add_product(sums->cross, mask, x, y);
	if (metric == METRIC_COSINE)
	{
		sums->self_a = add_product(sums->self_a, mask, x, x);
		sums->self_b = add_product(sums->self_b, mask, y, y);
	}
}

TARGET_EXACT DISTANCE_INLINE double
exact_generic(const void *a, const void *b, uint32_t dims, ElementType type, Metric metric)
{
	Registers	registers = {_mm512_setzero_pd(), _mm512_setzero_pd(), _mm512_setzero_pd()};
	ExactSums	sums;
	uint32_t	i = 0;

	for (; i + EXACT_LANES <= dims; i += EXACT_LANES)
		exact_step(&registers, a, b, i, ALL8, type, metric);
	if (i < dims)
		exact_step(&registers, a, b, i, (__mmask8) FIRST_LANES(dims - i), type, metric);
	_mm512_storeu_pd(sums.cross, registers.cross);
	_mm512_storeu_pd(sums.self_a, registers.self_a);
	_mm512_storeu_pd(sums.self_b, registers.self_b);
	return exact_finish(&sums, metric);
}

/*
 * Load up to sixteen elements from i on, in single precision. Masked lanes are
 * zero.
 */
TARGET_FAST DISTANCE_INLINE __m512
load16(const void *vector, size_t i, __mmask16 mask, ElementType type)
{
	const char *at =
		(const char *) vector + i * (type == ELEMENT_FLOAT ? sizeof(float) : sizeof(uint16_t));

	if (type == ELEMENT_FLOAT)
		return mask == ALL16 ? _mm512_loadu_ps(at) : _mm512_maskz_loadu_ps(mask, at);
	return _mm512_cvtph_ps(mask == ALL16 ? _mm256_loadu_si256((const void *) at)
										 : _mm256_maskz_loadu_epi16(mask, at));
}

/*
 * Add the contribution of sixteen pairs of elements; pairs of zeros contribute
 * nothing. Halves are subtracted by FMA, because their conversion occupies the
 * add units (10 % on Zen 4).
 */
TARGET_FAST DISTANCE_INLINE __m512
fast_step(__m512 sum, __m512 q, __m512 r, ElementType type, Metric metric)
{
	if (metric == METRIC_L1)
		return _mm512_add_ps(sum, _mm512_abs_ps(_mm512_sub_ps(q, r)));
	if (metric == METRIC_L2)
		q = r = type == ELEMENT_HALF ? _mm512_fnmadd_ps(r, _mm512_set1_ps(1.0f), q)
									 : _mm512_sub_ps(q, r);
	return _mm512_fmadd_ps(q, r, sum);
}

/* The fast sum over two vectors, of element types query_type and type. */
TARGET_FAST DISTANCE_INLINE float
fast_sum(const void *query, ElementType query_type, const void *row, ElementType type,
		 uint32_t dims, Metric metric)
{
	__m512		s0 = _mm512_setzero_ps(),
				s1 = s0,
				s2 = s0,
				s3 = s0;
	uint32_t	i = 0;

#define STEP(sum, at, mask) \
	sum = fast_step(sum, load16(query, at, mask, query_type), load16(row, at, mask, type), type, \
					metric)

	if (dims >= 64)
	{
		for (; i + 64 <= dims; i += 64)
		{
			STEP(s0, i, ALL16);
			STEP(s1, i + 16, ALL16);
			STEP(s2, i + 32, ALL16);
			STEP(s3, i + 48, ALL16);
		}
		s0 = _mm512_add_ps(_mm512_add_ps(s0, s1), _mm512_add_ps(s2, s3));
	}
	for (; i + 16 <= dims; i += 16)
		STEP(s0, i, ALL16);
	if (i < dims)
		STEP(s0, i, (__mmask16) FIRST_LANES(dims - i));
#undef STEP
	return _mm512_reduce_add_ps(s0);
}

TARGET_FAST DISTANCE_INLINE float
fast_generic(const float *query, const void *row, uint32_t dims, float scale, ElementType type,
			 Metric metric)
{
	return fast_finish(fast_sum(query, ELEMENT_FLOAT, row, type, dims, metric), scale, metric);
}

TARGET_FAST DISTANCE_INLINE float
squared_norm_generic(const void *row, uint32_t dims, ElementType type)
{
	return fast_sum(row, type, row, type, dims, METRIC_IP);
}

TARGET_FAST DISTANCE_INLINE void
widen_generic(const void *row, uint32_t dims, float *out, ElementType type)
{
	uint32_t	i = 0;

	for (; i + 16 <= dims; i += 16)
		_mm512_storeu_ps(out + i, load16(row, i, ALL16, type));
	if (i < dims)
		_mm512_mask_storeu_ps(out + i, (__mmask16) FIRST_LANES(dims - i),
							  load16(row, i, (__mmask16) FIRST_LANES(dims - i), type));
}

/* Load up to 64 bytes of a bit vector. Masked bytes are zero. */
TARGET_BITS DISTANCE_INLINE __m512i
load_bits(const void *vector, size_t at, __mmask64 mask)
{
	return _mm512_maskz_loadu_epi8(mask, (const char *) vector + at);
}

/* Counts of two bit vectors, 64 bytes at a time. */
TARGET_BITS DISTANCE_INLINE BitCounts
count_avx512(const void *a, const void *b, uint32_t dims, Metric metric)
{
	size_t		bytes = ((size_t) dims + 7) / 8;
	__m512i		one = _mm512_setzero_si512(),
				both = one;

	if (bytes <= FEW_BYTES)
	{
		BitCounts	counts = {0, 0};

		bit_count_words(&counts, a, b, bytes, metric);
		return counts;
	}
	for (size_t at = 0; at < bytes; at += 64)
	{
		__mmask64	mask = bytes - at >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << (bytes - at)) - 1;
		__m512i		x = load_bits(a, at, mask);
		__m512i		y = load_bits(b, at, mask);

		one = _mm512_add_epi64(one, _mm512_popcnt_epi64(_mm512_xor_si512(x, y)));
		if (metric == METRIC_JACCARD)
			both = _mm512_add_epi64(both, _mm512_popcnt_epi64(_mm512_and_si512(x, y)));
	}
	return (BitCounts) {
		.both = metric == METRIC_JACCARD ? (uint64_t) _mm512_reduce_add_epi64(both) : 0,
		.one = (uint64_t) _mm512_reduce_add_epi64(one)
	};
}

BIT_KERNELS(avx512, TARGET_BITS)

VECTOR_KERNELS(TARGET_EXACT, TARGET_FAST)

const KernelTable distance_avx512_table = KERNEL_TABLE(avx512, SIMD_AVX512);

#else

/* ISO C forbids an empty translation unit. */
typedef int DistanceAvx512NotHere;

#endif							/* DISTANCE_HAVE_X86 */
