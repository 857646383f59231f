/*
 * repair_row.h
 *		A graph row that names dead slots is chosen anew: for the engine's
 *		repair and the page path's.
 */
#ifndef GPUANN_ENGINE_REPAIR_ROW_H
#define GPUANN_ENGINE_REPAIR_ROW_H

#include "engine/prune.h"
#include "engine/search.h"

#define REPAIR_AROUND		2048	/* most live slots looked at around the dead neighbours of one
									 * row */
#define REPAIR_SEARCHED(ef) (2 * (ef) + SEARCH_MAX_EQUAL)	/* most that a search adds */

/*
 * How the routine reaches a graph, about the row under way. Callbacks may leave
 * by longjmp.
 */
typedef struct RepairAccess
{
	void	   *context;
	/*
	 * Read a slot's graph row into neighbours (room for ENGINE_MAX_DEGREE);
	 * returns how many.
	 */
	uint32_t	(*row) (void *context, uint32_t slot, uint32_t *neighbours);
	bool		(*dead) (void *context, uint32_t slot);
	/* Distances of the row's slot to others, as linking measures them. */
	void		(*distances) (void *context, const uint32_t *slots, uint32_t count, double *out);
	/*
	 * What a graph search for the row's slot finds: live slots, at most
	 * REPAIR_SEARCHED(ef); returns how many.
	 */
	uint32_t	(*search) (void *context, Candidate *candidates);
	/* prune_choose() by the caller's rule and distances. */
	uint32_t (*choose)(void *context, Candidate *candidates, uint32_t count, Candidate *chosen,
					   uint32_t *kept);
} RepairAccess;

/*
 * Memory of the routine, reused from row to row: the caller's,
 * repair_scratch_bytes() of it.
 */
typedef struct RepairScratch
{
	uint32_t	degree;
	uint32_t	ef;
	uint32_t	near_room;		/* entries of `near` */
	Candidate  *candidates;
	SearchResult *near;			/* a heap: the nearest of those around the row */
	double	   *distances;
	uint32_t   *found;			/* live slots around it, each once */
	uint32_t	nfound;
	uint32_t   *seen;			/* the same as a hash table, and where each is in it */
	uint32_t   *seen_places;
	uint32_t   *expanded;		/* dead ones whose neighbours were taken */
} RepairScratch;

extern size_t repair_scratch_bytes(uint32_t degree, uint32_t ef);
extern void repair_scratch_init(RepairScratch *scratch, void *memory, uint32_t degree, uint32_t ef);

/* Whether a row names dead slots. */
extern bool repair_needed(const RepairAccess *access, const uint32_t *row, uint32_t count);

/*
 * Choose a slot's row again: among its own live neighbours, with an heir for
 * each dead one, and the nearest `ef` (2 x degree at least) of those reached
 * over dead slots only; if these, or the row's places, are few, among what a
 * search finds too. equal_distance is the slot's to itself. The row is written
 * as prune_choose does, *kept first; returns how many. chosen has room for
 * degree + 1.
 */
extern uint32_t repair_row(const RepairAccess *access, RepairScratch *scratch, uint32_t slot,
						   double equal_distance, Candidate *chosen, uint32_t *kept);

#endif							/* GPUANN_ENGINE_REPAIR_ROW_H */
