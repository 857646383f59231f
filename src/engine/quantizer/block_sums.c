/*
 * block_sums.c
 *		Look-ups of a block's codes, at each SIMD level.
 *
 * A shuffle looks up 32 codes of a group at once, or 64 of two. Bytes are added
 * up in lanes of 16 bits: a lane's two bytes together, and its upper one by
 * itself, which is taken off at the end.
 */
#include "engine/quantizer/block_sums.h"

#if defined(__x86_64__)
#define BLOCK_SUMS_HAVE_X86 1
#include <immintrin.h>
#endif

#define BLOCK_SUMS_INLINE	static inline __attribute__((always_inline))
#define MAX_GROUPS			256		/* whose bytes add up to less than 2^16 */

BLOCK_SUMS_INLINE void
lookups_portable(const unsigned char *table, const unsigned char *groups, uint32_t count,
				 uint32_t *sums, const int planes)
{
	for (int i = 0; i < 32; i++)
		sums[i] = 0;
	for (uint32_t group = 0; group < count; group++, groups += 16, table += 16 * planes)
		for (int i = 0; i < 16; i++)
			for (int plane = 0; plane < planes; plane++)
			{
				sums[i] += (uint32_t) table[16 * plane + (groups[i] & 15)] << 8 * plane;
				sums[16 + i] += (uint32_t) table[16 * plane + (groups[i] >> 4)] << 8 * plane;
			}
}

static uint32_t
within_portable(const float *numbers, float limit)
{
	uint32_t	bits = 0;

	for (int i = 0; i < 32; i++)
		bits |= (uint32_t) !(numbers[i] > limit) << i;
	return bits;
}

/* The functions of a level, and its table. */
#define BLOCK_KERNELS(name, simd, target) \
	target static void \
	lookups1_##name(const unsigned char *table, const unsigned char *groups, uint32_t count, \
					uint32_t *sums) \
	{ \
		lookups_##name(table, groups, count, sums, 1); \
	} \
	target static void \
	lookups2_##name(const unsigned char *table, const unsigned char *groups, uint32_t count, \
					uint32_t *sums) \
	{ \
		lookups_##name(table, groups, count, sums, 2); \
	} \
	static const BlockKernels kernels_##name = {simd, lookups1_##name, lookups2_##name, \
		within_##name};

BLOCK_KERNELS(portable, SIMD_PORTABLE,)

#ifdef BLOCK_SUMS_HAVE_X86

#define TARGET_AVX2		__attribute__((target("avx2")))
#define TARGET_AVX512	__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

#define LOAD128(at)	_mm_loadu_si128((const __m128i *) (const void *) (at))
#define LOAD256(at)	_mm256_loadu_si256((const __m256i *) (const void *) (at))

/* Add what lanes have gathered of a plane to the sums of 32 codes. */
TARGET_AVX2 BLOCK_SUMS_INLINE void
fold_avx2(__m256i both, __m256i upper, int plane, __m256i *total)
{
	__m256i		lower = _mm256_sub_epi16(both, _mm256_slli_epi16(upper, 8));
	__m256i		first = _mm256_unpacklo_epi16(lower, upper);	/* codes 0 to 7 and 16 to 23 */
	__m256i		second = _mm256_unpackhi_epi16(lower, upper);
	__m128i		parts[4] = {_mm256_castsi256_si128(first), _mm256_castsi256_si128(second),
		_mm256_extracti128_si256(first, 1), _mm256_extracti128_si256(second, 1)};

	for (int i = 0; i < 4; i++)
		total[i] = _mm256_add_epi32(total[i],
									_mm256_slli_epi32(_mm256_cvtepu16_epi32(parts[i]), 8 * plane));
}

TARGET_AVX2 BLOCK_SUMS_INLINE void
store_avx2(const __m256i *total, uint32_t *sums)
{
	for (int i = 0; i < 4; i++)
		_mm256_storeu_si256((__m256i *) (void *) (sums + 8 * i), total[i]);
}

/* Look up a group. */
TARGET_AVX2 BLOCK_SUMS_INLINE void
group_avx2(const unsigned char *table, const unsigned char *group, const int planes, __m256i *both,
		   __m256i *upper)
{
	__m128i		bytes = LOAD128(group);
	__m256i		numbers = _mm256_and_si256(
		_mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1),
		_mm256_set1_epi8(15));

	for (int plane = 0; plane < planes; plane++)
	{
		__m256i		entries = _mm256_shuffle_epi8(
			_mm256_broadcastsi128_si256(LOAD128(table + 16 * plane)), numbers);

		both[plane] = _mm256_add_epi16(both[plane], entries);
		upper[plane] = _mm256_add_epi16(upper[plane], _mm256_srli_epi16(entries, 8));
	}
}

TARGET_AVX2 BLOCK_SUMS_INLINE void
lookups_avx2(const unsigned char *table, const unsigned char *groups, uint32_t count,
			 uint32_t *sums, const int planes)
{
	__m256i		total[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(),
		_mm256_setzero_si256(), _mm256_setzero_si256()};

	for (uint32_t begin = 0; begin < count; begin += MAX_GROUPS)
	{
		uint32_t	end = count - begin < MAX_GROUPS ? count : begin + MAX_GROUPS;
		__m256i		both[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
		__m256i		upper[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};

		for (uint32_t group = begin; group < end; group++)
			group_avx2(table + (size_t) group * 16 * planes, groups + (size_t) group * 16, planes,
					   both, upper);
		for (int plane = 0; plane < planes; plane++)
			fold_avx2(both[plane], upper[plane], plane, total);
	}
	store_avx2(total, sums);
}

TARGET_AVX2 static uint32_t
within_avx2(const float *numbers, float limit)
{
	__m256		limits = _mm256_set1_ps(limit);
	uint32_t	bits = 0;

	for (int i = 0; i < 4; i++)
		bits |= (uint32_t) _mm256_movemask_ps(
			_mm256_cmp_ps(_mm256_loadu_ps(numbers + 8 * i), limits, _CMP_NGT_UQ)) << 8 * i;
	return bits;
}

BLOCK_KERNELS(avx2, SIMD_AVX2, TARGET_AVX2)

/* Two groups at once; both halves of a register add up in the end. */
TARGET_AVX512 BLOCK_SUMS_INLINE void
lookups_avx512(const unsigned char *table, const unsigned char *groups, uint32_t count,
			   uint32_t *sums, const int planes)
{
	__m512i		shifts = _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0);
	__m256i		total[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(),
		_mm256_setzero_si256(), _mm256_setzero_si256()};

	for (uint32_t begin = 0; begin < count; begin += MAX_GROUPS)
	{
		uint32_t	end = count - begin < MAX_GROUPS ? count : begin + MAX_GROUPS;
		uint32_t	group = begin;
		__m512i		both[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
		__m512i		upper[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
		__m256i		both_half[2];
		__m256i		upper_half[2];

		for (; group + 2 <= end; group += 2)
		{
			__m512i		bytes = _mm512_castsi256_si512(LOAD256(groups + (size_t) group * 16));
			__m512i		numbers = _mm512_and_si512(
				_mm512_srlv_epi64(_mm512_shuffle_i64x2(bytes, bytes, 0x50), shifts),
				_mm512_set1_epi8(15));

			for (int plane = 0; plane < planes; plane++)
			{
				const unsigned char *at = table + ((size_t) group * planes + plane) * 16;
				__m512i		lookup = _mm512_castsi128_si512(LOAD128(at));
				__m512i		entries;

				lookup = _mm512_inserti64x2(lookup, LOAD128(at + 16 * planes), 1);
				entries = _mm512_shuffle_epi8(_mm512_shuffle_i64x2(lookup, lookup, 0x50), numbers);
				both[plane] = _mm512_add_epi16(both[plane], entries);
				upper[plane] = _mm512_add_epi16(upper[plane], _mm512_srli_epi16(entries, 8));
			}
		}
		for (int plane = 0; plane < planes; plane++)
		{
			both_half[plane] = _mm256_add_epi16(_mm512_castsi512_si256(both[plane]),
												_mm512_extracti64x4_epi64(both[plane], 1));
			upper_half[plane] = _mm256_add_epi16(_mm512_castsi512_si256(upper[plane]),
												 _mm512_extracti64x4_epi64(upper[plane], 1));
		}
		if (group < end)
			group_avx2(table + (size_t) group * 16 * planes, groups + (size_t) group * 16, planes,
					   both_half, upper_half);
		for (int plane = 0; plane < planes; plane++)
			fold_avx2(both_half[plane], upper_half[plane], plane, total);
	}
	store_avx2(total, sums);
}

TARGET_AVX512 static uint32_t
within_avx512(const float *numbers, float limit)
{
	__m512		limits = _mm512_set1_ps(limit);

	return (uint32_t) _mm512_cmp_ps_mask(_mm512_loadu_ps(numbers), limits, _CMP_NGT_UQ) |
		(uint32_t) _mm512_cmp_ps_mask(_mm512_loadu_ps(numbers + 16), limits, _CMP_NGT_UQ) << 16;
}

BLOCK_KERNELS(avx512, SIMD_AVX512, TARGET_AVX512)

#endif

const BlockKernels *
block_kernels(SimdLevel level)
{
#ifdef BLOCK_SUMS_HAVE_X86
	level = simd_within(level);
	if (level != SIMD_PORTABLE)
		return level == SIMD_AVX512 ? &kernels_avx512 : &kernels_avx2;
#endif
	return &kernels_portable;
}
