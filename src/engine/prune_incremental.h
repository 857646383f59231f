/*
 * prune_incremental.h
 *		Add neighbours to a graph row one at a time: for reverse edges, in the
 *		engine and on the page path.
 */
#ifndef GPUANN_ENGINE_PRUNE_INCREMENTAL_H
#define GPUANN_ENGINE_PRUNE_INCREMENTAL_H

#include "engine/prune.h"

/*
 * A row split into kept neighbours, none of which is hidden by a nearer kept
 * one, and the fill. Both are ordered by distance.
 */
typedef struct IncrementalRow
{
	SearchResult kept[ENGINE_MAX_DEGREE + 1];
	uint32_t	nkept;
	SearchResult fill[ENGINE_MAX_DEGREE + 1];
	uint32_t	nfill;
} IncrementalRow;

/*
 * Split a row: its neighbours in their order, their distances, and how many of
 * them are kept (cached, or row_kept()).
 */
extern void incremental_read(IncrementalRow *row, const uint32_t *neighbours,
							 const double *distances, uint32_t count, uint32_t kept);

extern bool incremental_has(const IncrementalRow *row, uint32_t slot);

/*
 * Add one neighbour; another is dropped if the row overflows. Same rule as
 * prune_choose(), but only the effect of the new neighbour is computed: whether
 * a kept one hides it, and which kept ones it hides. A copy of a neighbour, if
 * it is not one of the row's slot, is not added.
 */
extern void incremental_take(const PruneRule *rule, IncrementalRow *row, SearchResult entry,
							 PairDistance pair, void *context);

/*
 * Write the neighbours in the order of prune.h, and their distances unless
 * NULL. Returns how many.
 */
extern uint32_t incremental_write(const IncrementalRow *row, uint32_t *neighbours,
								  float *distances);

#endif							/* GPUANN_ENGINE_PRUNE_INCREMENTAL_H */
