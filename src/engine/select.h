/*
 * select.h
 *		Heaps of results (distance, slot, version) in the order of
 *		engine_before(): the k nearest so far, and a queue with the nearest
 *		first.
 */
#ifndef GPUANN_SELECT_H
#define GPUANN_SELECT_H

#include "engine/engine.h"

/*
 * Whether result a comes before b: engine_before() without branches, which
 * would be mispredicted in heaps.
 */
static inline bool
result_before(const SearchResult *a, const SearchResult *b)
{
	return (a->distance < b->distance) | ((a->distance == b->distance) & (a->slot < b->slot));
}

/* qsort() and bsearch(): numbers of 32 bits, ascending. */
static inline int
compare_numbers(const void *left, const void *right)
{
	uint32_t	a = *(const uint32_t *) left;
	uint32_t	b = *(const uint32_t *) right;

	return a < b ? -1 : a > b;
}

/*
 * Pseudo-random rank of a duplicate. It depends on the slot that chooses too,
 * so that duplicates choose differently among each other.
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

/* Sift entry down from place, in a heap whose root is the farthest. */
extern void farthest_sift_down(SearchResult *heap, uint32_t count, uint32_t place,
							   SearchResult entry);

/* Add an entry to a heap whose root is the farthest, which has room for it. */
extern void farthest_push(SearchResult *heap, uint32_t *count, SearchResult entry);

/* Add an entry to a heap whose root is the nearest; remove that root. */
extern void nearest_push(SearchResult *heap, uint32_t *count, SearchResult entry);
extern SearchResult nearest_pop(SearchResult *heap, uint32_t *count);

/* Sort results, in place. */
extern void sort_results(SearchResult *results, uint32_t count);

/*
 * Add an entry if it is among the `room` nearest so far; the heap's root is the
 * farthest. Returns whether it was added.
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

/* Whether two slots have the same vector. */
typedef bool (*SlotsEqual) (void *context, uint32_t slot_a, uint32_t slot_b);

/*
 * The same, unless the heap has a slot with the same vector, so that copies of
 * a row cannot take all the places. Vectors are compared only where distances
 * are the same.
 */
extern bool farthest_offer_distinct(SearchResult *heap, uint32_t *count, uint32_t room,
									SearchResult entry, SlotsEqual equal, void *context);

#endif							/* GPUANN_SELECT_H */
