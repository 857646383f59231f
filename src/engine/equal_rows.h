/*
 * equal_rows.h
 *		The representatives of a graph search: of the slots that it took into
 *		its list, one for each distinct row.
 *
 * A hash table by walking distance and sketch; rows are compared only where
 * both agree. Sketches are made from where many rows at one distance turned out
 * to differ on, or, where vectors are often tied, from the start: of others the
 * distance says enough. Slots that left the list stay: they are farther than
 * all that enters later.
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
	uint32_t	unequal;		/* slots compared that had the same tag, and another vector */
	bool		sketched;		/* tags are of sketches too */
} EqualRows;

/* Where a slot's representative is, or would be. */
typedef struct EqualPlace
{
	uint32_t	tag;
	uint32_t	place;
	uint32_t	slot;			/* the representative; NO_SLOT: none */
} EqualPlace;

#define SKETCH_LANES	4

/*
 * A sketch of a vector in memory: a hash of all its bytes, in lanes that do not
 * wait for each other.
 */
static inline uint32_t
vector_sketch(const void *vector, size_t bytes)
{
	const char *at = vector;
	uint64_t	lanes[SKETCH_LANES] = {0};
	uint64_t	sketch = 0;

	for (size_t lane = 0; bytes > 0; lane = (lane + 1) % SKETCH_LANES)
	{
		size_t		some = bytes < sizeof(uint64_t) ? bytes : sizeof(uint64_t);
		uint64_t	word = 0;

		memcpy(&word, at, some);
		lanes[lane] = ((lanes[lane] << 29 | lanes[lane] >> 35) ^ word) *
					  UINT64_C(0x9E3779B97F4A7C15);
		at += some;
		bytes -= some;
	}
	for (size_t lane = 0; lane < SKETCH_LANES; lane++)
		sketch = ((sketch << 29 | sketch >> 35) ^ lanes[lane]) * UINT64_C(0x9E3779B97F4A7C15);
	return (uint32_t) (sketch >> 32);
}

/*
 * Empty the table, and give it room for a list of ef slots. Returns false if
 * out of memory.
 */
extern bool equal_rows_reset(EqualRows *rows, const GraphAccess *access,
							 const ScratchAllocator *allocator, uint32_t ef);

/* Look for a slot's representative. */
extern EqualPlace equal_rows_find(EqualRows *rows, const GraphAccess *access, uint32_t slot,
								  double distance);

/*
 * Make a slot the representative at a place that was found since the last one
 * was made. Returns false if out of memory.
 */
extern bool equal_rows_put(EqualRows *rows, const GraphAccess *access,
						   const ScratchAllocator *allocator, EqualPlace at, uint32_t slot);

#endif							/* GPUANN_EQUAL_ROWS_H */
