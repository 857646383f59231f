/*
 * select.c
 *		Heaps of search results.
 */
#include "engine/select.h"

/* Sift entry down from place, in a heap whose root is the farthest. */
void
farthest_sift_down(SearchResult *heap, uint32_t count, uint32_t place, SearchResult entry)
{
	for (;;)
	{
		uint64_t	child = (uint64_t) place * 2 + 1;

		if (child >= count)
			break;
		if (child + 1 < count)
			child += result_before(&heap[child], &heap[child + 1]);
		if (!result_before(&entry, &heap[child]))
			break;
		heap[place] = heap[child];
		place = (uint32_t) child;
	}
	heap[place] = entry;
}

/* Add an entry to a heap whose root is the farthest. */
void
farthest_push(SearchResult *heap, uint32_t *count, SearchResult entry)
{
	uint32_t	place = (*count)++;

	while (place > 0)
	{
		uint32_t	parent = (place - 1) / 2;

		if (!result_before(&heap[parent], &entry))
			break;
		heap[place] = heap[parent];
		place = parent;
	}
	heap[place] = entry;
}

/* Add an entry to those nearest so far, unless its vector is there. */
bool
farthest_offer_distinct(SearchResult *heap, uint32_t *count, uint32_t room, SearchResult entry,
						SlotsEqual equal, void *context)
{
	if (*count == room && (room == 0 || !result_before(&entry, &heap[0])))
		return false;
	for (uint32_t i = 0; i < *count; i++)
		if (heap[i].distance == entry.distance && equal(context, heap[i].slot, entry.slot))
			return false;
	return farthest_offer(heap, count, room, entry);
}

/* Add an entry to a heap whose root is the nearest. */
void
nearest_push(SearchResult *heap, uint32_t *count, SearchResult entry)
{
	uint32_t	place = (*count)++;

	while (place > 0)
	{
		uint32_t	parent = (place - 1) / 2;

		if (!result_before(&entry, &heap[parent]))
			break;
		heap[place] = heap[parent];
		place = parent;
	}
	heap[place] = entry;
}

/* Remove the nearest entry; the heap is not empty. */
SearchResult
nearest_pop(SearchResult *heap, uint32_t *count)
{
	SearchResult nearest = heap[0];
	SearchResult entry = heap[--(*count)];
	uint32_t	place = 0;

	for (;;)
	{
		uint64_t	child = (uint64_t) place * 2 + 1;

		if (child >= *count)
			break;
		if (child + 1 < *count)
			child += result_before(&heap[child + 1], &heap[child]);
		if (!result_before(&heap[child], &entry))
			break;
		heap[place] = heap[child];
		place = (uint32_t) child;
	}
	if (*count > 0)
		heap[place] = entry;
	return nearest;
}

/* Sort results (heapsort: in place, no recursion, no bad worst case). */
void
sort_results(SearchResult *results, uint32_t count)
{
	for (uint32_t place = count / 2; place-- > 0;)
		farthest_sift_down(results, count, place, results[place]);
	while (count > 1)
	{
		SearchResult last = results[--count];

		results[count] = results[0];
		farthest_sift_down(results, count, 0, last);
	}
}
