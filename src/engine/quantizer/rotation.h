/*
 * rotation.h
 *		A random rotation of vectors, in place and in n log n additions: what is
 *		large in a few elements is spread over all of them, and distances and
 *		inner products stay as they are, but for rounding.
 *
 * Elements are cut into blocks of powers of two, the largest first: 384 are 256
 * and 128, and none is added. A round gives every element a random sign and
 * takes each block through a Walsh-Hadamard transform, scaled to keep lengths.
 * Where there are several blocks a permutation follows that mixes them, and a
 * second round.
 *
 * Every engine computes the same bits: butterflies are single additions in
 * single precision, in steps of 1, 2, 4, ... elements; signs are exact; then the
 * elements of a block are multiplied by 1 / sqrt(block), rounded twice.
 */
#ifndef GPUANN_ROTATION_H
#define GPUANN_ROTATION_H

#include <stdint.h>

#define ROTATION_MAX_DIMS	4096	/* engines have room for two such rows on the chip */
#define ROTATION_SEED		UINT64_C(0x67707561)	/* of all rotations: nothing of an index
													 * depends on it */

/*
 * A rotation is a word for each element i: whether it changes its sign in the
 * first round, and in the second; and which element of the first round's the
 * second has in place i.
 */
#define ROTATION_FIRST_SIGN		UINT32_C(0x80000000)
#define ROTATION_SECOND_SIGN	UINT32_C(0x40000000)
#define ROTATION_PLACE			UINT32_C(0x0000FFFF)

/* Elements of the first block. */
static inline uint32_t
rotation_block(uint32_t dims)
{
	uint32_t	block = 1;

	while (block <= dims / 2)
		block *= 2;
	return block;
}

/* Make a rotation of dims elements: so many words. */
extern void rotation_make(uint64_t seed, uint32_t dims, uint32_t *rotation);

/* Rotate dims values. room: for as many. */
extern void rotation_apply(const uint32_t *rotation, uint32_t dims, float *values, float *room);

#endif							/* GPUANN_ROTATION_H */
