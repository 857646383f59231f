/*
 * search_units.h
 *		A batch on its units: every unit keeps one partial answer for a query,
 *		and these are merged. (MemANNS, sections 3.2 and 4.4)
 */
#ifndef GPUANN_SEARCH_UNITS_H
#define GPUANN_SEARCH_UNITS_H

#include "engine/units/merge.h"
#include "engine/units/schedule.h"

/* How lists are scanned. */
typedef struct UnitScan
{
	/* Offer the rows of a list to the nearest k of a query on a unit. */
	void		(*scan) (void *context, uint32_t unit, const UnitPair *pair, TopK *nearest);
	void	   *context;
	uint32_t	queries;
	uint32_t	k;
} UnitScan;

/* What a batch's merge cost. */
typedef struct UnitCounters
{
	uint64_t	partials;		/* partial answers that units gave */
	uint64_t	returned;		/* their entries */
	MergeCounters merge;
} UnitCounters;

/*
 * Search. results has k places for each query, ordered by (distance, slot);
 * counts says how many are used. The answer does not depend on the placement.
 * False: out of memory.
 */
extern bool units_search(const Schedule *schedule, const UnitScan *scan, SearchResult *results,
						 uint32_t *counts, UnitCounters *counters);

#endif							/* GPUANN_SEARCH_UNITS_H */
