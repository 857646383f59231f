/*
 * random.h
 *		Pseudo-random numbers that are the same everywhere: SplitMix64.
 */
#ifndef GPUANN_RANDOM_H
#define GPUANN_RANDOM_H

#include <stdint.h>

/* The next number of a sequence. */
static inline uint64_t
random_next(uint64_t *state)
{
	uint64_t	z = (*state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

/* A number below `limit`. */
static inline uint32_t
random_below(uint64_t *state, uint32_t limit)
{
	return (uint32_t) (((random_next(state) >> 32) * limit) >> 32);
}

/* A number from 0 to before 1. */
static inline double
random_fraction(uint64_t *state)
{
	return (double) (random_next(state) >> 11) * 0x1p-53;
}

/*
 * Draw some of `count` numbers without repetition, and put them where `order`,
 * which has all numbers below `count`, begins.
 */
static inline void
random_draw(uint64_t *state, uint32_t *order, uint32_t count, uint32_t drawn)
{
	for (uint32_t i = 0; i < drawn; i++)
	{
		uint32_t	at = i + random_below(state, count - i);
		uint32_t	number = order[at];

		order[at] = order[i];
		order[i] = number;
	}
}

#endif							/* GPUANN_RANDOM_H */
