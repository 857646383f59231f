/*
 * merge.h
 *		The k nearest of several lists of the k nearest, pruned. (MemANNS, section
 *		4.4)
 *
 * Of each list the nearest is offered first. Once it is not nearer than the
 * farthest of a full result, the rest of its list cannot be either, and is
 * dropped. Order is (distance, slot), so the result depends on no order of
 * lists, units or threads.
 */
#ifndef GPUANN_MERGE_H
#define GPUANN_MERGE_H

#include "engine/select.h"

/* What merges did. */
typedef struct MergeCounters
{
	uint64_t	entries;		/* of all lists */
	uint64_t	pushes;			/* that entered a result */
	uint64_t	dropped;		/* never looked at */
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
 * Add those of several, in turns: after the nearest of each the bound is near
 * its end already.
 */
extern void merge_parts(TopK *result, TopK *parts, uint32_t nparts, MergeCounters *counters);

#endif							/* GPUANN_MERGE_H */
