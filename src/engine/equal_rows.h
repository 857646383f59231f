/*
 * equal_rows.h
 *		The representatives of a graph search: of the slots that it took into
 *		its list, one for each distinct row.
 *
 * A hash table by walking distance and, where rows have one, sketch; rows are
 * compared only where both agree. Slots that left the list stay: they are
 * farther than all that enters later.
 */
#ifndef GPUANN_EQUAL_ROWS_H
#define GPUANN_EQUAL_ROWS_H

#include <string.h>

#include "engine/search.h"

typedef struct EqualRows
{
	uint64_t   *places;			/* tag << 32 | slot; all ones: free */
	size_t		room;			/* allocated places */
	uint32_t	shift;			/* from a tag to a place */
	uint32_t	mask;			/* places in use - 1 */
	uint32_t	count;
} EqualRows;

/* Where a slot's representative is, or would be. */
typedef struct EqualPlace
{
	uint32_t	tag;
	uint32_t	place;
	uint32_t	slot;			/* the representative; NO_SLOT: none */
} EqualPlace;

/*
 * A sketch of a vector in memory: some of its bytes. For bits, many of which
 * are equally distant from a query.
 */
static inline uint32_t
vector_sketch(const void *vector, size_t bytes)
{
	const char *at = vector;
	uint64_t	words[3] = {0, 0, 0};

	if (bytes < sizeof(uint64_t))
		memcpy(&words[0], at, bytes);
	else
	{
		memcpy(&words[0], at, sizeof(uint64_t));
		memcpy(&words[1], at + (bytes - sizeof(uint64_t)) / 2, sizeof(uint64_t));
		memcpy(&words[2], at + bytes - sizeof(uint64_t), sizeof(uint64_t));
	}
	return (uint32_t) ((words[0] * UINT64_C(0x9E3779B97F4A7C15) +
						words[1] * UINT64_C(0xC2B2AE3D27D4EB4F) +
						words[2] * UINT64_C(0x165667B19E3779F9)) >> 32);
}

/*
 * Empty the table, and give it room for a list of ef slots. Returns false if
 * out of memory.
 */
extern bool equal_rows_reset(EqualRows *rows, const ScratchAllocator *allocator, uint32_t ef);

/* Look for a slot's representative. */
extern EqualPlace equal_rows_find(const EqualRows *rows, const GraphAccess *access, uint32_t slot,
								  double distance);

/*
 * Make a slot the representative at a place that was found since the last one
 * was made. Returns false if out of memory.
 */
extern bool equal_rows_put(EqualRows *rows, const ScratchAllocator *allocator, EqualPlace at,
						   uint32_t slot);

#endif							/* GPUANN_EQUAL_ROWS_H */
