/*
 * prune_incremental.h
 *		A graph row that takes in new neighbours one at a time: for the engine's
 *		edges back and the page path's.
 */
#ifndef GPUANN_ENGINE_PRUNE_INCREMENTAL_H
#define GPUANN_ENGINE_PRUNE_INCREMENTAL_H

#include "engine/prune.h"

/*
 * Kept ones are hidden by no nearer kept one; the others fill the row. Both
 * nearest first.
 */
typedef struct IncrementalRow
{
	SearchResult kept[ENGINE_MAX_DEGREE + 1];
	uint32_t	nkept;
	SearchResult fill[ENGINE_MAX_DEGREE + 1];
	uint32_t	nfill;
} IncrementalRow;

/*
 * Open a row: its neighbours in their order, how far they are, and how many of
 * them are kept (as remembered, or row_kept()).
 */
extern void incremental_read(IncrementalRow *row, const uint32_t *neighbours,
							 const double *distances, uint32_t count, uint32_t kept);

extern bool incremental_has(const IncrementalRow *row, uint32_t slot);

/*
 * Take in one more neighbour, dropping another where the row overflows. The
 * rule is prune_choose's, but only what the newcomer changes is computed: is it
 * hidden by a kept one, and which kept ones does it hide.
 */
extern void incremental_take(const PruneRule *rule, IncrementalRow *row, SearchResult entry,
							 PairDistance pair, void *context);

/*
 * Write the neighbours down in the order of prune.h, and their distances
 * (unless NULL); returns how many they are.
 */
extern uint32_t incremental_write(const IncrementalRow *row, uint32_t *neighbours,
								  float *distances);

#endif							/* GPUANN_ENGINE_PRUNE_INCREMENTAL_H */
