/*
 * cooc.c
 *		Co-occurrence codes: encoding, tables, sums of blocks. (MemANNS, sections
 *		4.3.2 and 4.3.3)
 */
#include <stdlib.h>
#include <string.h>

#include "engine/quantizer/cooc.h"
#include "engine/quantizer/pq.h"

/* The items of a set that a code has, as a mask. */
static uint32_t
cooc_items_of(const CoocSet *set, const unsigned char *code)
{
	uint32_t	mask = 0;

	for (int i = 0; i < COOC_LENGTH; i++)
		mask |= (uint32_t) (code[set->columns[i]] == set->codes[i]) << i;
	return mask;
}

/* Of these items those whose columns are not covered. */
static uint32_t
uncovered(const CoocSet *set, uint32_t mask, uint64_t covered)
{
	for (int i = 0; i < COOC_LENGTH; i++)
		if (covered >> set->columns[i] & 1)
			mask &= ~(1u << i);
	return mask;
}

static uint64_t
columns_of(const CoocSet *set, uint32_t mask)
{
	uint64_t	columns = 0;

	for (int i = 0; i < COOC_LENGTH; i++)
		if (mask >> i & 1)
			columns |= UINT64_C(1) << set->columns[i];
	return columns;
}

/*
 * Whole sets first, in the order in which they were mined, then pairs of what is
 * left.
 */
uint32_t
cooc_encode(const CoocSets *sets, const unsigned char *code, uint16_t *words)
{
	uint16_t	combinations[COOC_MAX_PARTS / 2];
	uint64_t	covered = 0;
	uint32_t	ncombinations = 0;
	uint32_t	count = 1;

	for (int wanted = COOC_LENGTH; wanted >= 2; wanted--)
		for (uint32_t i = 0; i < sets->count; i++)
		{
			const CoocSet *set = &sets->sets[i];
			uint32_t	mask = cooc_items_of(set, code);

			if (__builtin_popcount(mask) < wanted)
				continue;
			mask = uncovered(set, mask, covered);
			if (__builtin_popcount(mask) != wanted)
				continue;
			combinations[ncombinations++] = (uint16_t) (sets->parts * 256 + (i << 3 | mask));
			covered |= columns_of(set, mask);
		}
	for (uint32_t column = 0; column < sets->parts; column++)
		if (!(covered >> column & 1))
			words[count++] = (uint16_t) (column * 256 + code[column]);
	memcpy(words + count, combinations, ncombinations * sizeof(uint16_t));
	count += ncombinations;
	words[0] = (uint16_t) (count - 1);
	return count;
}

size_t
cooc_table_entries(const CoocSets *sets)
{
	/* one more set, so that COOC_NOTHING has an entry where there is none */
	return (size_t) sets->parts * 256 + ((size_t) sets->count + 1) * 8;
}

/* Four sums a set, each by one addition. */
void
cooc_extend(const CoocSets *sets, const uint16_t *table, uint32_t *extended)
{
	uint32_t   *sums = extended + sets->parts * 256;

	for (uint32_t i = 0; i < sets->parts * 256; i++)
		extended[i] = table[i];
	memset(sums, 0, 8 * sizeof(uint32_t));
	for (uint32_t i = 0; i < sets->count; i++, sums += 8)
	{
		const CoocSet *set = &sets->sets[i];
		uint32_t	first = table[set->columns[0] * 256 + set->codes[0]];
		uint32_t	second = table[set->columns[1] * 256 + set->codes[1]];
		uint32_t	third = table[set->columns[2] * 256 + set->codes[2]];

		sums[0] = 0;
		sums[1] = first;
		sums[2] = second;
		sums[3] = first + second;
		sums[4] = third;
		sums[5] = first + third;
		sums[6] = second + third;
		sums[7] = sums[3] + third;
	}
}

void
cooc_prepare(const CoocSets *sets, const void *tables, uint32_t *extended)
{
	cooc_extend(sets, (const uint16_t *) ((const PqTables *) tables + 1), extended);
}

/* ---- blocks ---- */

uint32_t
cooc_block_length(const CoocSets *sets, const unsigned char *codes, size_t stride)
{
	uint16_t	words[COOC_MAX_WORDS];
	uint32_t	most = 0;

	for (uint32_t i = 0; i < QUANTIZER_BLOCK; i++)
	{
		uint32_t	length = cooc_encode(sets, codes + i * stride, words) - 1;

		most = length > most ? length : most;
	}
	return most;
}

void
cooc_block_set(const CoocSets *sets, const unsigned char *codes, size_t stride, uint32_t length,
			   uint16_t *words)
{
	uint16_t	row[COOC_MAX_WORDS];

	for (uint32_t i = 0; i < QUANTIZER_BLOCK; i++)
	{
		(void) cooc_encode(sets, codes + i * stride, row);
		for (uint32_t j = 0; j < length; j++)
			words[j * QUANTIZER_BLOCK + i] = j < row[0] ? row[j + 1] : COOC_NOTHING(sets);
	}
}

/*
 * Look-ups do not wait for each other. Gathers of AVX2 and AVX-512 were slower: 291 and 362 million rows a second instead of
 * 383. (bench/results/cooc-2-cores.md)
 */
void
cooc_block_sums(const uint32_t *extended, const uint16_t *words, uint32_t length, uint32_t *sums)
{
	memset(sums, 0, QUANTIZER_BLOCK * sizeof(uint32_t));
	for (uint32_t j = 0; j < length; j++, words += QUANTIZER_BLOCK)
		for (uint32_t i = 0; i < QUANTIZER_BLOCK; i++)
			sums[i] += extended[words[i]];
}

/* ---- the gate ---- */

CoocGain
cooc_gain(const CoocSets *sets, const unsigned char *codes, size_t stride, uint32_t rows)
{
	CoocGain	gain = {.rows = rows};
	uint32_t	longest = 0;
	uint16_t	words[COOC_MAX_WORDS];

	for (uint32_t i = 0; i < rows; i++)
	{
		uint32_t	length = cooc_encode(sets, codes + i * stride, words) - 1;

		gain.words += length;
		longest = length > longest ? length : longest;
		if (i % QUANTIZER_BLOCK == QUANTIZER_BLOCK - 1 || i == rows - 1)
		{
			gain.padded += (uint64_t) longest * (i % QUANTIZER_BLOCK + 1);
			longest = 0;
		}
	}
	if (rows > 0)
		gain.gain = 1 - (double) gain.padded / ((double) rows * sets->parts);
	return gain;
}
