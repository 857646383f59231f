/*
 * sums.c
 *		Integer sums of queries and codes, at each SIMD level.
 *
 * Numbers in planes are put together lane by lane before they are multiplied,
 * so a plane costs one or three instructions for a register of dimensions.
 */
#include <string.h>

#include "engine/quantizer/sums.h"

#if defined(__x86_64__)
#define SUMS_HAVE_X86 1
#include <immintrin.h>
#endif

#define SUMS_INLINE		static inline __attribute__((always_inline))

/* One function for each number of bits, so that loops over planes vanish. */
#define PLANES_BY_BITS(level, target) \
	target static int32_t planes_##level(const int16_t *query, const uint32_t *code, \
										 uint32_t words, uint32_t bits) \
	{ \
		switch (bits) \
		{ \
			case 1: \
				return planes_generic_##level(query, code, words, 1); \
			case 2: \
				return planes_generic_##level(query, code, words, 2); \
			case 3: \
				return planes_generic_##level(query, code, words, 3); \
			case 4: \
				return planes_generic_##level(query, code, words, 4); \
			case 5: \
				return planes_generic_##level(query, code, words, 5); \
			case 6: \
				return planes_generic_##level(query, code, words, 6); \
			case 7: \
				return planes_generic_##level(query, code, words, 7); \
			default: \
				return planes_generic_##level(query, code, words, 8); \
		} \
	} \
	static const SumKernels kernels_##level = {bytes_##level, planes_##level};

static int32_t
bytes_portable(const int16_t *query, const int8_t *code, uint32_t dims)
{
	int32_t		sum = 0;

	for (uint32_t i = 0; i < dims; i++)
		sum += query[i] * code[i];
	return sum;
}

SUMS_INLINE int32_t
planes_generic_portable(const int16_t *query, const uint32_t *code, uint32_t words, uint32_t bits)
{
	int32_t		sum = 0;

	for (uint32_t w = 0; w < words; w++)
		for (uint32_t i = 0; i < 32; i++)
		{
			int32_t		number = 0;

			for (uint32_t b = 0; b < bits; b++)
				number = 2 * number + (int32_t) (code[b * words + w] >> i & 1);
			sum += query[w * 32 + i] * number;
		}
	return sum;
}

PLANES_BY_BITS(portable,)

#ifdef SUMS_HAVE_X86

#define TARGET_AVX2		__attribute__((target("avx2")))
#define TARGET_AVX512	__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

/* Add the lanes. */
TARGET_AVX2 SUMS_INLINE int32_t
fold_avx2(__m256i sum)
{
	__m128i		half = _mm_add_epi32(_mm256_castsi256_si128(sum),
									 _mm256_extracti128_si256(sum, 1));

	half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4E));
	half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xB1));
	return _mm_cvtsi128_si32(half);
}

TARGET_AVX2 static int32_t
bytes_avx2(const int16_t *query, const int8_t *code, uint32_t dims)
{
	__m256i		sum = _mm256_setzero_si256();
	uint32_t	i = 0;

	for (; i + 16 <= dims; i += 16)
	{
		__m256i		q = _mm256_loadu_si256((const __m256i *) (const void *) &query[i]);
		__m256i		c = _mm256_cvtepi8_epi16(
			_mm_loadu_si128((const __m128i *) (const void *) &code[i]));

		sum = _mm256_add_epi32(sum, _mm256_madd_epi16(q, c));
	}
	return fold_avx2(sum) + bytes_portable(query + i, code + i, dims - i);
}

/* A lane's bit of a plane, times the plane's weight. */
TARGET_AVX2 SUMS_INLINE __m256i
plane_avx2(uint32_t word, uint32_t half, int16_t weight)
{
	__m256i		lanes = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096,
										  8192, 16384, INT16_MIN);
	__m256i		plane = _mm256_set1_epi16((int16_t) (word >> (16 * half)));

	plane = _mm256_cmpeq_epi16(_mm256_and_si256(plane, lanes), lanes);
	return _mm256_and_si256(plane, _mm256_set1_epi16(weight));
}

TARGET_AVX2 SUMS_INLINE int32_t
planes_generic_avx2(const int16_t *query, const uint32_t *code, uint32_t words, uint32_t bits)
{
	__m256i		sum = _mm256_setzero_si256();

	for (uint32_t w = 0; w < words; w++)
		for (uint32_t half = 0; half < 2; half++)
		{
			const int16_t *at = query + w * 32 + half * 16;
			__m256i		number = _mm256_setzero_si256();

#pragma GCC unroll 8
			for (uint32_t b = 0; b < bits; b++)
				number = _mm256_or_si256(number, plane_avx2(code[b * words + w], half,
															(int16_t) (1 << (bits - 1 - b))));
			sum = _mm256_add_epi32(sum, _mm256_madd_epi16(number, _mm256_loadu_si256(
				(const __m256i *) (const void *) at)));
		}
	return fold_avx2(sum);
}

PLANES_BY_BITS(avx2, TARGET_AVX2)

TARGET_AVX512 static int32_t
bytes_avx512(const int16_t *query, const int8_t *code, uint32_t dims)
{
	__m512i		sum = _mm512_setzero_si512();

	for (uint32_t i = 0; i < dims; i += 32)
	{
		__mmask32	mask = dims - i >= 32 ? 0xFFFFFFFF : (1u << (dims - i)) - 1;
		__m512i		q = _mm512_maskz_loadu_epi16(mask, &query[i]);

		sum = _mm512_add_epi32(sum, _mm512_madd_epi16(q, _mm512_cvtepi8_epi16(
			_mm256_maskz_loadu_epi8(mask, &code[i]))));
	}
	return _mm512_reduce_add_epi32(sum);
}

TARGET_AVX512 SUMS_INLINE int32_t
planes_generic_avx512(const int16_t *query, const uint32_t *code, uint32_t words, uint32_t bits)
{
	__m512i		sum = _mm512_setzero_si512();

	for (uint32_t w = 0; w < words; w++)
	{
		__m512i		number = _mm512_setzero_si512();

#pragma GCC unroll 8
		for (uint32_t b = 0; b < bits; b++)
			number = _mm512_mask_add_epi16(number, code[b * words + w], number,
										   _mm512_set1_epi16((int16_t) (1 << (bits - 1 - b))));
		sum = _mm512_add_epi32(sum, _mm512_madd_epi16(number, _mm512_loadu_si512(
			(const void *) (query + (size_t) w * 32))));
	}
	return _mm512_reduce_add_epi32(sum);
}

PLANES_BY_BITS(avx512, TARGET_AVX512)
#endif

const SumKernels *
sum_kernels(SimdLevel level)
{
#ifdef SUMS_HAVE_X86
	level = simd_within(level);
	if (level != SIMD_PORTABLE)
		return level == SIMD_AVX512 ? &kernels_avx512 : &kernels_avx2;
#endif
	return &kernels_portable;
}

int32_t
sum_lookups8(const uint16_t *table, const unsigned char *code, uint32_t parts)
{
	uint32_t	sum[4] = {0};
	uint32_t	part = 0;

	for (; part + 4 <= parts; part += 4, table += 4 * 256)
	{
		sum[0] += table[code[part]];
		sum[1] += table[256 + code[part + 1]];
		sum[2] += table[512 + code[part + 2]];
		sum[3] += table[768 + code[part + 3]];
	}
	for (; part < parts; part++, table += 256)
		sum[0] += table[code[part]];
	return (int32_t) (sum[0] + sum[1] + sum[2] + sum[3]);
}

int32_t
sum_lookups4(const uint8_t *table, const unsigned char *code, uint32_t parts)
{
	uint32_t	sum = 0;
	uint32_t	other = 0;
	uint32_t	part = 0;

	for (; part + 2 <= parts; part += 2, table += 2 * 16)
	{
		sum += table[code[part / 2] & 15];
		other += table[16 + (code[part / 2] >> 4)];
	}
	if (part < parts)
		sum += table[code[part / 2] & 15];
	return (int32_t) (sum + other);
}
