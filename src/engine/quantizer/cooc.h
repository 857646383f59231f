/*
 * cooc.h
 *		Co-occurrence codes: pq codes of a list in fewer words. (MemANNS, section
 *		4.3)
 *
 * Some codewords of different sub-spaces occur together in many rows of a list.
 * Sets of three such items (column, code) are mined; a row then has one word for
 * the two or three items of a set that it has, and one for each of the others.
 * A word is the address of a table entry: column * 256 + code, or parts * 256 +
 * (set * 8 + mask), mask bit j for the j-th item. Behind a query's table lie the
 * sums of entries that masks stand for, so that the sum over a row's words is
 * that over its codes, to the bit.
 *
 * Codes are of pq with 8 bits a sub-space.
 */
#ifndef GPUANN_COOC_H
#define GPUANN_COOC_H

#include "engine/quantizer/blocks.h"

#define COOC_SETS			256		/* of a list, unless it is said otherwise */
#define COOC_LENGTH			3		/* items of a set */
#define COOC_MAX_PARTS		64
#define COOC_MAX_SETS		4096	/* 64 * 256 + 4096 * 8 words are below 2^16 */
#define COOC_MIN_ROWS		4000	/* of a list that `auto` encodes, */
#define COOC_MIN_GAIN		0.30	/* the share of its words that is saved */
#define COOC_AUTO_PARTS		16		/* sub-spaces of codes that `auto` looks at */
#define COOC_MINED_BLOCKS	256		/* of a list, at most, from which sets are mined */

typedef struct CoocSet
{
	uint8_t		columns[COOC_LENGTH];	/* ascending */
	uint8_t		codes[COOC_LENGTH];
} CoocSet;

typedef struct CoocSets
{
	uint32_t	parts;
	uint32_t	count;
	CoocSet		sets[];
} CoocSets;

typedef struct CoocMining
{
	const unsigned char *codes; /* of rows, parts bytes each */
	size_t		stride;			/* from one row to the next */
	uint32_t	rows;
	uint32_t	parts;			/* 3 .. COOC_MAX_PARTS */
	uint32_t	most;			/* sets; 0: COOC_SETS */
	uint64_t	seed;			/* of the sample, if there are many rows */
	bool		(*stop) (void *context);	/* asked every few milliseconds: give up; or NULL */
	void	   *context;
} CoocMining;

/*
 * Mine sets; there may be none. The same rows and seed give the same sets. NULL:
 * out of memory (cooc_mine_bytes: what is allocated), or stopped, after which
 * it can be called again. Many sub-spaces take seconds. Freed by free().
 */
extern CoocSets *cooc_mine(const CoocMining *mining);
extern size_t cooc_mine_bytes(const CoocMining *mining);

/* Words of a row whose codes are all by themselves, with the word of length. */
#define COOC_MAX_WORDS		(COOC_MAX_PARTS + 1)

/*
 * Encode a row: the number of words that follow, columns by themselves, then
 * combinations. Returns how many words there are, that one included.
 */
extern uint32_t cooc_encode(const CoocSets *sets, const unsigned char *code, uint16_t *words);

/* Entries of the table that words address, and making it of a query's table. */
extern size_t cooc_table_entries(const CoocSets *sets);
extern void cooc_extend(const CoocSets *sets, const uint16_t *table, uint32_t *extended);

/* The same of what quantizer_prepare() has made for a query. */
extern void cooc_prepare(const CoocSets *sets, const void *tables, uint32_t *extended);

/*
 * Blocks: as many words for each of 32 rows as the longest has, the first words
 * of all rows, then the second ones. Filled up with COOC_NOTHING, whose entry is
 * zero: no combination has an empty mask. `length` is that of a row.
 */
#define COOC_NOTHING(sets)	((uint16_t) ((sets)->parts * 256))

extern uint32_t cooc_block_length(const CoocSets *sets, const unsigned char *codes, size_t stride);
extern void cooc_block_set(const CoocSets *sets, const unsigned char *codes, size_t stride,
						   uint32_t length, uint16_t *words);

/* Sums of all rows of a block. */
extern void cooc_block_sums(const uint32_t *extended, const uint16_t *words, uint32_t length,
							uint32_t *sums);

/* Whether codes of so many sub-spaces can be encoded in a mode at all. */
static inline bool
cooc_takes(CoocMode mode, uint32_t parts)
{
	return mode != COOC_OFF && parts >= COOC_LENGTH && parts <= COOC_MAX_PARTS &&
		(mode == COOC_ON || parts == COOC_AUTO_PARTS);
}

/* Places that a list must have before it is encoded. */
static inline uint32_t
cooc_least_rows(CoocMode mode)
{
	return mode == COOC_ON ? QUANTIZER_BLOCK : COOC_MIN_ROWS;
}

/* Sets are mined from every so many of a list's blocks. */
static inline uint32_t
cooc_mined_step(uint32_t blocks)
{
	return (blocks + COOC_MINED_BLOCKS - 1) / COOC_MINED_BLOCKS;
}

/* What encoding a list would give. */
typedef struct CoocGain
{
	uint64_t	rows;
	uint64_t	words;			/* of all rows, without words of length */
	uint64_t	padded;			/* with what fills blocks */
	double		gain;			/* the part of words that is saved, of padded ones */
} CoocGain;

/* Whether a list is encoded by `auto`. */
static inline bool
cooc_pays(const CoocGain *gain)
{
	return gain->rows >= COOC_MIN_ROWS && gain->gain >= COOC_MIN_GAIN;
}

/* Of rows in the order given. */
extern CoocGain cooc_gain(const CoocSets *sets, const unsigned char *codes, size_t stride,
						  uint32_t rows);

#endif							/* GPUANN_COOC_H */
