/*
 * connectivity.h
 *		Make every linked row reachable: find the rows that no path from the
 *		seeds reaches, and give each an incoming edge.
 *
 * Used when an engine links and by the page path. Pruning may remove the last
 * edge to a row; searches would never find it again.
 */
#ifndef GPUANN_ENGINE_CONNECTIVITY_H
#define GPUANN_ENGINE_CONNECTIVITY_H

#include "engine/search.h"

#define REACH_SEEDS		16		/* every row is to be reachable from the first seeds; searches start
								 * from more of them */
#define REACH_DIVISOR	128		/* a link of less than this part of the graph skips the check */
#define REACH_PIECE		1024	/* rows read together, and between two checks for interrupts */

/* Access to the graph. Callbacks may longjmp, as those of graph_search(). */
typedef struct ReachAccess
{
	void	   *context;
	/* Read a slot's graph row into neighbours; returns how many. */
	uint32_t	(*row) (void *context, uint32_t slot, uint32_t *neighbours);
	/*
	 * Optional: read the rows of count slots (at most REACH_PIECE). Slot i's
	 * neighbours go to neighbours[i * degree].
	 */
	void (*rows)(void *context, const uint32_t *slots, uint32_t count, uint32_t *neighbours,
				 uint32_t *counts);
	/* Whether a slot must be reachable: it is live and linked. */
	bool		(*wanted) (void *context, uint32_t slot);
	/*
	 * Search for the nearest slots to this one, which may be among them, but
	 * not from it if it is a seed. Returns how many, nearest first; *found is
	 * valid until the next call.
	 *
	 * For METRIC_IP nearness is by squared difference. By inner product a few
	 * long vectors would attract the edges to all unreachable rows, and lose
	 * the edges that connect long rows to each other.
	 */
	uint32_t	(*near) (void *context, uint32_t slot, const SearchResult **found);
	/* Replace a graph row. */
	void		(*set) (void *context, uint32_t slot, const uint32_t *neighbours, uint32_t count);
	/* Called now and then; returns true to stop. */
	bool		(*interrupted) (void *context);
} ReachAccess;

typedef struct ReachGraph
{
	uint32_t	rows;			/* slots are below this */
	uint32_t	degree;
	const uint32_t *seeds;
	uint32_t	nseeds;
} ReachGraph;

/* Bytes of memory that graph_connect() allocates. */
extern size_t graph_connect_bytes(const ReachGraph *graph);

/*
 * Give every wanted slot that is not reachable an edge from the nearest
 * reachable one, replacing an edge that is not the only path to its target.
 * *left is how many stay unreachable: 0, unless rows full of duplicates leave
 * no place. Returns ENGINE_CANCELLED when interrupted, ENGINE_NO_MEMORY.
 */
extern EngineStatus graph_connect(const ReachAccess *access, const ReachGraph *graph,
								  const ScratchAllocator *allocator, uint32_t *left);

#endif							/* GPUANN_ENGINE_CONNECTIVITY_H */
