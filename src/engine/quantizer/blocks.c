/*
 * blocks.c
 *		Blocks of codes: their layout and their estimates.
 *
 * A block begins with its codes. Those of 4 bits a sub-space lie as look-ups in
 * registers want them, group by group (block_sums.h): a group is a sub-space of
 * pq, or four dimensions of a plane of rabitq. Other codes lie one after the
 * other. Behind them are their numbers: all terms, all errors, all scales, so
 * that estimates are made in registers too.
 */
#include "engine/quantizer/block_sums.h"
#include "engine/quantizer/blocks.h"
#include "engine/quantizer/cooc.h"
#include "engine/quantizer/pq.h"
#include "engine/quantizer/scalar.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Whether codes are looked up group by group. */
static bool
is_grouped(const QuantizerShape *shape)
{
	return shape->kind == QUANTIZER_RABITQ || (shape->kind == QUANTIZER_PQ && shape->bits == 4);
}

/* Groups of a block; of a plane of rabitq. */
static uint32_t
groups_of(const QuantizerShape *shape)
{
	return shape->kind == QUANTIZER_PQ ? shape->parts : scalar_groups(shape);
}

static uint32_t
planes_of(const QuantizerShape *shape)
{
	return shape->kind == QUANTIZER_RABITQ ? shape->bits : 1;
}

/* Bytes of a code without its numbers, and of those of a block. */
static size_t
plain_bytes(const QuantizerShape *shape)
{
	return quantizer_code_bytes(shape) - numbers_bytes(shape);
}

static size_t
codes_bytes(const QuantizerShape *shape)
{
	if (is_grouped(shape))
		return (size_t) planes_of(shape) * groups_of(shape) * BLOCK_GROUP_BYTES;
	return QUANTIZER_BLOCK * plain_bytes(shape);
}

/* Where a block's numbers begin. */
static size_t
block_numbers_at(const QuantizerShape *shape)
{
	return (codes_bytes(shape) + 63) / 64 * 64;
}

size_t
block_code_stride(const QuantizerShape *shape)
{
	return plain_bytes(shape);
}

size_t
block_bytes(const QuantizerShape *shape)
{
	return block_numbers_at(shape) + QUANTIZER_BLOCK * numbers_bytes(shape);
}

/* Which byte of a code has a group, and where in it. */
static size_t
group_byte(const QuantizerShape *shape, uint32_t group, uint32_t *shift)
{
	*shift = group % 2 * 4;
	return group / 2;
}

void
block_set(const Quantizer *quantizer, void *block, uint32_t place, const unsigned char *code)
{
	const QuantizerShape *shape = &quantizer->shape;
	unsigned char *bytes = block;
	float	   *numbers = (float *) (void *) (bytes + block_numbers_at(shape));
	uint32_t	groups = planes_of(shape) * groups_of(shape);

	if (!is_grouped(shape))
		memcpy(bytes + place * plain_bytes(shape), code, plain_bytes(shape));
	for (uint32_t group = 0; is_grouped(shape) && group < groups; group++)
	{
		unsigned char *byte = bytes + group * BLOCK_GROUP_BYTES + place % 16;
		uint32_t	shift;
		uint32_t	number = code[group_byte(shape, group, &shift)];

		number = (number >> shift & 15) << place / 16 * 4;
		*byte = (unsigned char) ((*byte & (place < 16 ? 0xF0 : 0x0F)) | number);
	}
	for (size_t i = 0; i < numbers_bytes(shape) / sizeof(float); i++)
		memcpy(&numbers[i * QUANTIZER_BLOCK + place], code + plain_bytes(shape) + i * sizeof(float),
			   sizeof(float));
}

/* The numbers of the code at a place. */
static CodeNumbers
get_numbers(const float *numbers, uint32_t place, bool scaled)
{
	return (CodeNumbers) {numbers[place], numbers[QUANTIZER_BLOCK + place],
		scaled ? numbers[2 * QUANTIZER_BLOCK + place] : 0};
}

/* ---- sums of integers ---- */

static void
block_pq_sums(const Quantizer *quantizer, const PqTables *tables, const unsigned char *codes,
			  int32_t *sums)
{
	const QuantizerShape *shape = &quantizer->shape;

	if (shape->bits == 4)
		quantizer->blocks->lookups1((const unsigned char *) (tables + 1), codes, shape->parts,
									(uint32_t *) sums);
	else
		for (uint32_t i = 0; i < QUANTIZER_BLOCK; i++)
			sums[i] = sum_lookups8((const uint16_t *) (tables + 1), codes + i * plain_bytes(shape),
								   shape->parts);
}

/*
 * What look-ups add up is the sum of products less that of the query's negative
 * integers, for each plane by its weight.
 */
static void
block_rabitq_sums(const Quantizer *quantizer, const ScalarTables *tables, const unsigned char *codes,
				  int32_t *sums)
{
	const QuantizerShape *shape = &quantizer->shape;
	const unsigned char *lookups = scalar_lookups(shape, tables);
	uint32_t	most = most_number(shape);
	uint32_t	of_plane[QUANTIZER_BLOCK] __attribute__((aligned(64)));
	uint32_t	groups = groups_of(shape);
	uint32_t	rest;

	quantizer->blocks->lookups2(lookups, codes, groups, (uint32_t *) sums);
	for (uint32_t plane = 1; plane < shape->bits; plane++)
	{
		quantizer->blocks->lookups2(lookups, codes + (size_t) plane * groups * BLOCK_GROUP_BYTES,
									groups, of_plane);
		for (uint32_t i = 0; i < QUANTIZER_BLOCK; i++)
			sums[i] = (int32_t) (2 * (uint32_t) sums[i] + of_plane[i]);
	}
	/* modulo 2^32, as the result fits into 31 bits */
	rest = most * (2 * (uint32_t) *scalar_negative(shape, tables) - (uint32_t) tables->sum);
	for (uint32_t i = 0; i < QUANTIZER_BLOCK; i++)
		sums[i] = (int32_t) (2 * (uint32_t) sums[i] + rest);
}

static void
block_int8_sums(const Quantizer *quantizer, const ScalarTables *tables, const unsigned char *codes,
				int32_t *sums)
{
	const int16_t *query = (const int16_t *) (tables + 1);
	size_t		stride = plain_bytes(&quantizer->shape);

	for (uint32_t i = 0; i < QUANTIZER_BLOCK; i++)
		sums[i] = quantizer->sums->bytes(query, (const int8_t *) codes + i * stride,
										 quantizer->shape.dims);
}

/* ---- estimates ---- */

/* What a block's estimates are made from. */
typedef struct BlockSums
{
	const void *tables;
	float		base;
	const float *numbers;
	int32_t		sums[QUANTIZER_BLOCK] __attribute__((aligned(64)));
} BlockSums;

#define BLOCKS_INLINE	static inline __attribute__((always_inline))

/* Of four lanes, one by one. */
typedef float FourFloats __attribute__((vector_size(16), aligned(4), may_alias));

static inline FourFloats
four_roots(FourFloats x)
{
	return (FourFloats) {sqrtf(x[0]), sqrtf(x[1]), sqrtf(x[2]), sqrtf(x[3])};
}

#define LEVEL(name)		name##_portable
#define TARGET
#define LANES			4
#define ROOT(x)			((Floats_portable) four_roots((FourFloats) (x)))
#include "engine/quantizer/block_lanes.h"

#if defined(__x86_64__)
#define LEVEL(name)		name##_avx2
#define TARGET			__attribute__((target("avx2")))
#define LANES			8
#define ROOT(x)			((Floats_avx2) _mm256_sqrt_ps((__m256) (x)))
#include "engine/quantizer/block_lanes.h"

#define LEVEL(name)		name##_avx512
#define TARGET			__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define LANES			16
#define ROOT(x)			((Floats_avx512) _mm512_sqrt_ps((__m512) (x)))
#include "engine/quantizer/block_lanes.h"
#endif

/* Make estimates from sums, at the quantizer's level. */
static void
estimate_from(const Quantizer *quantizer, const BlockSums *sums, float *estimates, float *lower)
{
	const QuantizerShape *shape = &quantizer->shape;

#if defined(__x86_64__)
	if (quantizer->blocks->level == SIMD_AVX512)
		estimate_avx512(sums, shape, estimates, lower);
	else if (quantizer->blocks->level == SIMD_AVX2)
		estimate_avx2(sums, shape, estimates, lower);
	else
#endif
		estimate_portable(sums, shape, estimates, lower);
}

/* What estimates are made from, but for the sums. */
static void
begin_sums(const Quantizer *quantizer, const void *tables, float base, const void *block,
		   BlockSums *sums)
{
	sums->tables = tables;
	sums->base = base;
	sums->numbers = (const float *) (const void *) ((const char *) block +
													block_numbers_at(&quantizer->shape));
}

void
block_estimate(const Quantizer *quantizer, const void *tables, float base, const void *block,
			   float *estimates, float *lower)
{
	BlockSums	sums;

	begin_sums(quantizer, tables, base, block, &sums);
	if (quantizer->shape.kind == QUANTIZER_PQ)
		block_pq_sums(quantizer, tables, block, sums.sums);
	else if (quantizer->shape.kind == QUANTIZER_RABITQ)
		block_rabitq_sums(quantizer, tables, block, sums.sums);
	else
		block_int8_sums(quantizer, tables, block, sums.sums);
	estimate_from(quantizer, &sums, estimates, lower);
}

void
block_estimate_words(const Quantizer *quantizer, const void *tables, float base, const void *block,
					 const BlockWords *words, float *estimates, float *lower)
{
	BlockSums	sums;

	begin_sums(quantizer, tables, base, block, &sums);
	cooc_block_sums(words->extended, words->words, words->length, (uint32_t *) sums.sums);
	estimate_from(quantizer, &sums, estimates, lower);
}

uint32_t
block_within(const Quantizer *quantizer, const float *numbers, float limit)
{
	return quantizer->blocks->within(numbers, limit);
}

float
block_upper(const Quantizer *quantizer, const void *tables, float base, const void *block,
			uint32_t place, float estimate)
{
	const QuantizerShape *shape = &quantizer->shape;
	bool		pq = shape->kind == QUANTIZER_PQ;
	CodeNumbers numbers = get_numbers(
		(const float *) (const void *) ((const char *) block + block_numbers_at(shape)), place, !pq);

	if (pq)
		return pq_upper(quantizer, tables, base, &numbers, estimate);
	return scalar_upper(quantizer, tables, base, &numbers, estimate);
}
