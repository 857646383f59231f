/*
 * sums.h
 *		Integer sums of which estimates are made: of a query's tables and a
 *		row's code. Integers, so every SIMD level and engine has the same ones.
 *
 * Queries are whole numbers of 16 bits, filled up with zeros to a multiple of
 * SUMS_LANES, and codes are so limited that sums fit into 32 bits.
 */
#ifndef GPUANN_SUMS_H
#define GPUANN_SUMS_H

#include <stddef.h>
#include <stdint.h>

#include "engine/distance.h"

#define SUMS_LANES		32

typedef struct SumKernels
{
	/* Of query[i] and code[i], dims elements. */
	int32_t		(*bytes) (const int16_t *query, const int8_t *code, uint32_t dims);

	/*
	 * Of query[i] and an unsigned number of so many bits, which lie in planes of
	 * words words each, the highest first; element i is bit i % 32 of word i /
	 * 32.
	 */
	int32_t		(*planes) (const int16_t *query, const uint32_t *code, uint32_t words,
						   uint32_t bits);
} SumKernels;

/* Kernels of a level; of the best there is if the processor lacks it. */
extern const SumKernels *sum_kernels(SimdLevel level);

/* Of table entries that a code selects, one for each part. */
extern int32_t sum_lookups8(const uint16_t *table, const unsigned char *code, uint32_t parts);
extern int32_t sum_lookups4(const uint8_t *table, const unsigned char *code, uint32_t parts);

#endif							/* GPUANN_SUMS_H */
