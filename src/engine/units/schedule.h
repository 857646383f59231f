/*
 * schedule.h
 *		Which unit scans which list for which query of a batch. (MemANNS,
 *		algorithm 2)
 */
#ifndef GPUANN_SCHEDULE_H
#define GPUANN_SCHEDULE_H

#include "engine/units/placement.h"

/* A query probes a list. */
typedef struct UnitPair
{
	uint32_t	query;
	uint32_t	list;
} UnitPair;

typedef struct Schedule
{
	uint32_t	units;
	uint32_t	npairs;
	uint32_t   *begins;			/* of each unit's pairs, and the end */
	UnitPair   *pairs;			/* of a unit: by list, those of a list in the order given, so that a
								 * list is read once for all its queries */
	double	   *load;			/* of each unit: the costs of its pairs */
	uint64_t	partials;		/* (query, unit) with a pair: so many partial answers come back */
} Schedule;

/*
 * Give every pair to a unit that holds its list: first the pairs whose list is
 * on one unit, then the other lists, the costliest first, each pair on the unit
 * of least load, of equal ones the lowest number. NULL: out of memory, or a pair
 * names a list that is not placed.
 */
extern Schedule *schedule_create(const UnitPlacement *placement, const ListLoad *lists,
								 const UnitPair *pairs, uint32_t npairs, EngineError *error);
extern void schedule_free(Schedule *schedule);

/* The greatest load over the mean; 1 if there is none. */
extern double schedule_balance(const Schedule *schedule);

#endif							/* GPUANN_SCHEDULE_H */
