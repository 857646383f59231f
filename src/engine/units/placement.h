/*
 * placement.h
 *		Assign lists to units. (MemANNS, section 4.1)
 *
 * A unit owns memory and scans lists: a GPU of several, a node, or a virtual
 * one, since all of this is arithmetic. A list is never cut, so that a query has
 * one partial answer of each unit. Given the same numbers every function here
 * gives the same result.
 */
#ifndef GPUANN_PLACEMENT_H
#define GPUANN_PLACEMENT_H

#include "engine/engine.h"

#define UNITS_MAX			1024
#define NO_UNIT				0xFFFFFFFFu
#define PLACEMENT_STEP		0.02	/* by which the threshold is raised */

/* Load and size of a list. */
typedef struct ListLoad
{
	double		probes;			/* expected, in any period that is the same for all lists */
	double		cost;			/* of one probe (list_probe_cost) */
	uint64_t	bytes;			/* of one copy */
} ListLoad;

/*
 * What a probe of a list costs, in rows: a pair has a fixed part, which a scan
 * of a list without rows takes too (tables, sums, the start of a scan).
 */
#define PROBE_ROWS			256

static inline double
list_probe_cost(uint64_t rows)
{
	return PROBE_ROWS + (double) rows;
}

typedef enum CopyRule
{
	COPIES_ONE = 1,				/* of each list */
	COPIES_BY_WORK,				/* ceil(work / mean work of a unit): the paper's */
	COPIES_SPARE,				/* then more, of the lists with most work for a byte, while a unit has
								 * room for one; without a capacity every unit has every list */
	COPIES_SCATTERED			/* one, on a unit drawn by the list's number: what placement gains
								 * is measured against this */
} CopyRule;

typedef struct PlacementSpec
{
	const ListLoad *lists;
	uint32_t	nlists;
	uint32_t	units;			/* 1 .. UNITS_MAX */
	uint64_t	capacity;		/* bytes of a unit; 0: no limit */
	CopyRule	copies;
	bool		(*interrupted) (void *context); /* polled at least once per list: true cancels; or
												 * NULL */
	void	   *context;
} PlacementSpec;

/* The units that hold a list, in the order of assignment. */
typedef struct ListUnits
{
	uint32_t   *units;
	uint32_t	count;
	uint32_t	room;
} ListUnits;

typedef struct UnitPlacement
{
	uint32_t	nlists;
	uint32_t	units;
	uint64_t	capacity;
	CopyRule	copies;
	ListUnits  *lists;
	double	   *load;			/* predicted, of each unit: a list's work in equal shares; with
								 * COPIES_SPARE shared out so that loads are even */
	uint64_t   *stored;			/* bytes of each unit */
	double		mean;			/* of load */
	double		threshold;		/* no load is above this times the mean */
	bool		(*interrupted) (void *context); /* as in the spec */
	void	   *context;
	bool		stopped;		/* it was interrupted */
} UnitPlacement;

/*
 * Place lists, those of most work first. NULL and ENGINE_UNSUPPORTED if a list
 * fits on no unit, ENGINE_NO_MEMORY if memory is short, ENGINE_INVALID for
 * numbers that make no sense, ENGINE_CANCELLED if interrupted.
 */
extern UnitPlacement *placement_create(const PlacementSpec *spec, EngineError *error);
extern void placement_free(UnitPlacement *placement);

/* Whether a unit holds a list. */
extern bool placement_holds(const UnitPlacement *placement, uint32_t list, uint32_t unit);

/* The greatest load over the mean; 1 if there is none. */
extern double placement_balance(const UnitPlacement *placement);

/*
 * One change of a placement: the list is copied to a unit, unless that is
 * NO_UNIT, and after that removed from another, unless that is.
 */
typedef struct UnitMove
{
	uint32_t	list;
	uint32_t	to;
	uint32_t	from;
} UnitMove;

/*
 * Mend a placement whose lists are probed otherwise than expected: copies that
 * the rule asks for are added, and those that it asks for no more removed; then,
 * but with COPIES_SPARE, where the choice among copies does it, lists leave the
 * unit of the greatest load, until no load is above limit times the mean, no
 * move makes the greatest one less, or there are `room` moves. Each move leaves
 * every list on some unit. Returns the number of moves; the placement is as
 * after all of them.
 */
extern uint32_t placement_mend(UnitPlacement *placement, const ListLoad *lists, double limit,
							   UnitMove *moves, uint32_t room);

/* placement.c, for placement_mend.c */

/*
 * Predict loads and their mean anew, and count bytes; false: out of memory, or
 * interrupted.
 */
extern bool placement_predict(UnitPlacement *placement, const ListLoad *lists);
extern uint32_t placement_copies(const UnitPlacement *placement, const ListLoad *list);
extern bool placement_room(const UnitPlacement *placement, uint32_t unit, const ListLoad *list);
extern bool placement_add(UnitPlacement *placement, uint32_t list, uint32_t unit);

/* The unit of the least load that has room for a list and not the list, or NO_UNIT. */
extern uint32_t placement_least(const UnitPlacement *placement, uint32_t list, const ListLoad *load);

#endif							/* GPUANN_PLACEMENT_H */
