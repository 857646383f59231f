/*
 * merge.c
 *		Pruned merges.
 */
#include "engine/units/merge.h"

/* Sift an entry down, in a heap whose root is the nearest. */
static void
nearest_sift_down(SearchResult *heap, uint32_t count, uint32_t place, SearchResult entry)
{
	for (;;)
	{
		uint32_t	child = 2 * place + 1;

		if (child >= count)
			break;
		if (child + 1 < count && result_before(&heap[child + 1], &heap[child]))
			child++;
		if (!result_before(&heap[child], &entry))
			break;
		heap[place] = heap[child];
		place = child;
	}
	heap[place] = entry;
}

/* Build a heap whose root is the nearest, in linear time. */
static void
turn_heap(TopK *part, MergeCounters *counters)
{
	for (uint32_t i = part->count / 2; i-- > 0;)
		nearest_sift_down(part->heap, part->count, i, part->heap[i]);
	counters->entries += part->count;
}

/*
 * Offer the nearest remaining entry of a list; false if the list's rest is
 * skipped.
 */
static bool
offer_nearest(TopK *result, TopK *part, MergeCounters *counters)
{
	if (!farthest_offer(result->heap, &result->count, result->k, part->heap[0]))
	{
		counters->dropped += part->count - 1;
		part->count = 0;
		return false;
	}
	counters->pushes++;
	part->count--;
	if (part->count > 0)
		nearest_sift_down(part->heap, part->count, 0, part->heap[part->count]);
	return part->count > 0;
}

void
merge_one(TopK *result, TopK *part, MergeCounters *counters)
{
	turn_heap(part, counters);
	while (part->count > 0 && offer_nearest(result, part, counters))
		;
}

void
merge_parts(TopK *result, TopK *parts, uint32_t nparts, MergeCounters *counters)
{
	bool		left = true;

	for (uint32_t i = 0; i < nparts; i++)
		turn_heap(&parts[i], counters);
	while (left)
	{
		left = false;
		for (uint32_t i = 0; i < nparts; i++)
			if (parts[i].count > 0)
				left |= offer_nearest(result, &parts[i], counters);
	}
}
