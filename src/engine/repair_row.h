/*
 * repair_row.h
 *		Choose new neighbours for a graph row that names dead slots. Used by the
 *		engine's repair and by the page path.
 */
#ifndef GPUANN_ENGINE_REPAIR_ROW_H
#define GPUANN_ENGINE_REPAIR_ROW_H

#include "engine/prune.h"
#include "engine/search.h"

#define REPAIR_AROUND		2048	/* limit of the live slots collected around one row */
#define REPAIR_SEARCHED(ef) (2 * (ef) + SEARCH_MAX_EQUAL)	/* limit of the candidates that a graph
															 * search adds */

/* Access to the graph, for the row being repaired. Callbacks may longjmp. */
typedef struct RepairAccess
{
	void	   *context;
	/*
	 * Read a slot's graph row into neighbours (room for ENGINE_MAX_DEGREE);
	 * returns how many.
	 */
	uint32_t	(*row) (void *context, uint32_t slot, uint32_t *neighbours);
	bool		(*dead) (void *context, uint32_t slot);
	/* Distances of the row's slot to others, as used by linking. */
	void		(*distances) (void *context, const uint32_t *slots, uint32_t count, double *out);
	/*
	 * Graph search for the row's slot. Writes live slots, at most
	 * REPAIR_SEARCHED(ef); returns how many.
	 */
	uint32_t	(*search) (void *context, Candidate *candidates);
	/* prune_choose() with the caller's rule and distances. */
	uint32_t (*choose)(void *context, Candidate *candidates, uint32_t count, Candidate *chosen,
					   uint32_t *kept);
} RepairAccess;

/*
 * Working memory, reused from row to row; repair_scratch_bytes() of memory,
 * owned by the caller.
 */
typedef struct RepairScratch
{
	uint32_t	degree;
	uint32_t	ef;
	uint32_t	near_room;		/* entries of `near` */
	Candidate  *candidates;
	SearchResult *near;			/* heap: the nearest of the slots around the row */
	double	   *distances;
	uint32_t   *found;			/* live slots around it, each once */
	uint32_t	nfound;
	uint32_t   *seen;			/* hash table of found[], and the place of each in it */
	uint32_t   *seen_places;
	uint32_t   *expanded;		/* dead slots whose neighbours were collected */
} RepairScratch;

extern size_t repair_scratch_bytes(uint32_t degree, uint32_t ef);
extern void repair_scratch_init(RepairScratch *scratch, void *memory, uint32_t degree, uint32_t ef);

/* Whether a row names dead slots. */
extern bool repair_needed(const RepairAccess *access, const uint32_t *row, uint32_t count);

/*
 * Choose new neighbours for a slot. Candidates are its live neighbours, the
 * nearest live neighbour of each dead one, and the nearest ef (at least 2 x
 * degree) of the live slots reached through dead slots only; if these, or the
 * degree, are few, the results of a graph search too. equal_distance is the
 * slot's distance to itself. The row is written in the order of prune_choose(),
 * the first *kept of them kept; returns how many. chosen has room for degree +
 * 1.
 */
extern uint32_t repair_row(const RepairAccess *access, RepairScratch *scratch, uint32_t slot,
						   double equal_distance, Candidate *chosen, uint32_t *kept);

#endif							/* GPUANN_ENGINE_REPAIR_ROW_H */
