/*
 * merge.h
 *		Merge several lists of k nearest results into the k nearest, with
 *		pruning. (MemANNS, section 4.4)
 *
 * Of each list the nearest is offered first. Once it is not nearer than the
 * farthest of a full result, the rest of its list cannot be either, and is
 * dropped. Order is (distance, slot), so the result depends on no order of
 * lists, units or threads.
 */
#ifndef GPUANN_MERGE_H
#define GPUANN_MERGE_H

#include "engine/select.h"

/* Statistics of merges. */
typedef struct MergeCounters
{
	uint64_t	entries;		/* of all lists */
	uint64_t	pushes;			/* entries that entered a result */
	uint64_t	dropped;		/* entries skipped */
} MergeCounters;

/* k entries, the farthest at the root of a heap. */
typedef struct TopK
{
	SearchResult *heap;			/* room for k */
	uint32_t	count;
	uint32_t	k;
} TopK;

/* Add the entries of one list, a heap or not, whose order is lost. */
extern void merge_one(TopK *result, TopK *part, MergeCounters *counters);

/*
 * Add the entries of several lists, round robin: after the nearest entry of
 * each list the bound is almost final.
 */
extern void merge_parts(TopK *result, TopK *parts, uint32_t nparts, MergeCounters *counters);

#endif							/* GPUANN_MERGE_H */
