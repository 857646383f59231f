/*
 * block_sums.h
 *		Sums of table entries that the codes of a block select, by look-ups in
 *		registers. (Andre, Kermarrec, Le Scouarnec 2015)
 *
 * A group of a block is 16 bytes: of byte i, the lower half is the number of
 * code i, the upper half that of code i + 16. Its table has 16 entries, of a byte
 * or of two: 16 lower bytes, then 16 upper ones.
 */
#ifndef GPUANN_BLOCK_SUMS_H
#define GPUANN_BLOCK_SUMS_H

#include <stdint.h>

#include "engine/distance.h"

#define BLOCK_GROUP_BYTES	16

typedef struct BlockKernels
{
	SimdLevel	level;
	/* Sums of 32 codes over groups, with entries of one and two bytes. */
	void		(*lookups1) (const unsigned char *table, const unsigned char *groups,
							 uint32_t count, uint32_t *sums);
	void		(*lookups2) (const unsigned char *table, const unsigned char *groups,
							 uint32_t count, uint32_t *sums);
	/* Which of 32 numbers are not above a limit; NaN is not. */
	uint32_t	(*within) (const float *numbers, float limit);
} BlockKernels;

/* Kernels of a level; of the best there is if the processor lacks it. */
extern const BlockKernels *block_kernels(SimdLevel level);

#endif							/* GPUANN_BLOCK_SUMS_H */
