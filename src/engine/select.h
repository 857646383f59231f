/*
 * select.h
 *		Heaps of (distance, slot, version) in the one order of answers: the k
 *		nearest so far, and a queue of nearest first.
 */
#ifndef GPUANN_SELECT_H
#define GPUANN_SELECT_H

#include "engine/engine.h"

/*
 * Whether answer a comes before b: engine_before, without branches, which heaps
 * could not foretell.
 */
static inline bool
result_before(const SearchResult *a, const SearchResult *b)
{
	return (a->distance < b->distance) | ((a->distance == b->distance) & (a->slot < b->slot));
}

/*
 * A pseudo-random rank of a duplicate, different for each slot that chooses
 * among its duplicates.
 */
static inline uint32_t
equal_rank(uint32_t slot, uint32_t self)
{
	uint32_t	x = slot * UINT32_C(0x85EBCA77) + self * UINT32_C(0x9E3779B1);

	x ^= x >> 16;
	x *= UINT32_C(0x7FEB352D);
	x ^= x >> 15;
	return x;
}

/*
 * Put entry where it belongs on the way from place down; the root is the
 * farthest.
 */
extern void farthest_sift_down(SearchResult *heap, uint32_t count, uint32_t place,
							   SearchResult entry);

/*
 * Add an entry to a heap whose root is the farthest; heap has room for one
 * more.
 */
extern void farthest_push(SearchResult *heap, uint32_t *count, SearchResult entry);

/* Add an entry to a heap whose root is the nearest, and take that root out. */
extern void nearest_push(SearchResult *heap, uint32_t *count, SearchResult entry);
extern SearchResult nearest_pop(SearchResult *heap, uint32_t *count);

/* Sort answers into their order, in place and without further memory. */
extern void sort_results(SearchResult *results, uint32_t count);

/*
 * Keep an entry if it is among the room nearest so far; root farthest. Returns
 * whether it was kept.
 */
static inline bool
farthest_offer(SearchResult *heap, uint32_t *count, uint32_t room, SearchResult entry)
{
	if (*count < room)
	{
		farthest_push(heap, count, entry);
		return true;
	}
	if (room == 0 || !result_before(&entry, &heap[0]))
		return false;
	farthest_sift_down(heap, *count, 0, entry);
	return true;
}

#endif							/* GPUANN_SELECT_H */
