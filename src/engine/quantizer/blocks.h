/*
 * blocks.h
 *		Codes of 32 rows of a list together, estimated at once.
 *
 * Whoever scans lists keeps codes so. What is estimated of a block is, to the
 * bit, what quantizer_estimate() says of each code.
 */
#ifndef GPUANN_BLOCKS_H
#define GPUANN_BLOCKS_H

#include "engine/distance.h"
#include "engine/quantizer/quantizer.h"

#define QUANTIZER_BLOCK	32		/* codes */

/* Bytes of a block: a multiple of 64, to which it is aligned. */
extern size_t block_bytes(const QuantizerShape *shape);

/* Store the code at a place of a block; all of an empty block is zero. */
extern void block_set(const Quantizer *quantizer, void *block, uint32_t place,
					  const unsigned char *code);

/*
 * Estimates and lower bounds of all places, as quantizer_estimate() makes them;
 * arrays are aligned to 64.
 */
extern void block_estimate(const Quantizer *quantizer, const void *tables, float base,
						   const void *block, float *estimates, float *lower);

/*
 * The same, with the sums made from co-occurrence codes of the block (cooc.h),
 * of the same rows.
 */
typedef struct BlockWords
{
	const uint32_t *extended;	/* the query's table with the sums of the list's sets */
	const uint16_t *words;
	uint32_t	length;			/* words of each row */
} BlockWords;

extern void block_estimate_words(const Quantizer *quantizer, const void *tables, float base,
								 const void *block, const BlockWords *words, float *estimates,
								 float *lower);

/* Bytes from a code to the next in a block whose codes lie one after the other. */
extern size_t block_code_stride(const QuantizerShape *shape);

/* The places whose numbers are not above a limit, as bits. */
extern uint32_t block_within(const Quantizer *quantizer, const float *numbers, float limit);

/*
 * What the distance of the row at a place, whose estimate this is, does not
 * exceed: as certain as lower bounds are.
 */
extern float block_upper(const Quantizer *quantizer, const void *tables, float base,
						 const void *block, uint32_t place, float estimate);

#endif							/* GPUANN_BLOCKS_H */
