/*
 * connectivity.h
 *		Every linked row can be reached: finds those to which no walk from the
 *		seeds leads, and gives them a way in.
 *
 * Used by the engine's linking and by the page path's. Pruning may take a row's
 * last edge in; a search then never meets it.
 */
#ifndef GPUANN_ENGINE_CONNECTIVITY_H
#define GPUANN_ENGINE_CONNECTIVITY_H

#include "engine/search.h"

#define REACH_SEEDS		16		/* seeds that all rows shall be reached from; searches start from
								 * more */
#define REACH_SHARE		128		/* a link of less than this part of the graph does not look */
#define REACH_PIECE		1024	/* rows read at once, and between two looks at interrupts */

/*
 * How the routine reaches and changes a graph. Callbacks may leave by longjmp,
 * as graph_search's.
 */
typedef struct ReachAccess
{
	void	   *context;
	/* Read a slot's graph row into neighbours; returns how many. */
	uint32_t	(*row) (void *context, uint32_t slot, uint32_t *neighbours);
	/*
	 * Optional: read the rows of count slots (at most REACH_PIECE), side by
	 * side. Slot i's is to begin at neighbours[i * degree].
	 */
	void (*rows)(void *context, const uint32_t *slots, uint32_t count, uint32_t *neighbours,
				 uint32_t *counts);
	/* Whether a slot shall be reached: it is live and linked. */
	bool		(*wanted) (void *context, uint32_t slot);
	/*
	 * Search for slots near to this one; they are reached then. Returns how
	 * many, nearest first, valid until the next call. By inner product, near is
	 * what differs little: else a few long rows would take in all rows that
	 * have no edge in, and lose the edges by which searches get from one long
	 * row to the next.
	 */
	uint32_t	(*near) (void *context, uint32_t slot, const SearchResult **found);
	/* Replace a graph row. */
	void		(*set) (void *context, uint32_t slot, const uint32_t *neighbours, uint32_t count);
	/* Called now and then; true: stop. */
	bool		(*interrupted) (void *context);
} ReachAccess;

typedef struct ReachGraph
{
	uint32_t	rows;			/* slots are below this */
	uint32_t	degree;
	const uint32_t *seeds;
	uint32_t	nseeds;
} ReachGraph;

/* Bytes that it needs. */
extern size_t graph_connect_bytes(const ReachGraph *graph);

/*
 * Give every wanted slot that is not reached an edge from the nearest that is,
 * in place of one that nothing is reached by alone. *left is how many could not
 * be reached (0, unless rows of duplicates leave no place). ENGINE_CANCELLED
 * when interrupted.
 */
extern EngineStatus graph_connect(const ReachAccess *access, const ReachGraph *graph,
								  const ScratchAllocator *allocator, uint32_t *left);

#endif							/* GPUANN_ENGINE_CONNECTIVITY_H */
