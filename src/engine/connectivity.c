/*
 * connectivity.c
 *		Make every linked row reachable: find the rows that no path from the
 *		seeds reaches, and give each an incoming edge.
 *
 * A breadth-first walk over all edges records from which row each row was first
 * reached; these edges form a tree. Each unreached row gets an edge from the
 * nearest reached row, and the walk continues from it. An edge replaced for
 * this is never an edge of the tree, so rows reached before stay reachable.
 *
 * The seeds themselves are reached without an edge, which is enough for
 * searches that start from them. Those of the CUDA engine start from entry
 * points near the query, so at last each of these seeds that a search from the
 * others does not find gets an edge from a row that was found.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/connectivity.h"

#define A_SEED			(NO_SLOT - 1)	/* reached from no row */

typedef struct Reach
{
	const ReachAccess *access;
	const ReachGraph *graph;
	uint32_t   *from;			/* per slot: the row it was reached from; A_SEED; or NO_SLOT while
								 * unreached */
	uint32_t   *queue;			/* reached slots; those from `head` on are not read yet. Start of
								 * the allocation of all three arrays */
	uint32_t	head;
	uint32_t	tail;
	uint32_t	attached;		/* the slot attached last, or NO_SLOT */
	uint32_t	neighbours[ENGINE_MAX_DEGREE];
	uint32_t   *piece;			/* up to REACH_PIECE rows read together, and their lengths */
	uint32_t	counts[REACH_PIECE];
} Reach;

size_t
graph_connect_bytes(const ReachGraph *graph)
{
	return (2 * (size_t) graph->rows + (size_t) REACH_PIECE * graph->degree) * sizeof(uint32_t);
}

/*
 * Mark a slot as reached from a row, unless it was reached before, and queue
 * it.
 */
static void
connectivity_mark(Reach *reach, uint32_t slot, uint32_t from)
{
	if (slot >= reach->graph->rows || reach->from[slot] != NO_SLOT)
		return;
	reach->from[slot] = from;
	reach->queue[reach->tail++] = slot;
}

/* Read the graph rows of slots. */
static void
read_rows(Reach *reach, const uint32_t *slots, uint32_t count)
{
	const ReachAccess *access = reach->access;

	if (access->rows != NULL && count > 1)
		access->rows(access->context, slots, count, reach->piece, reach->counts);
	else
		for (uint32_t i = 0; i < count; i++)
			reach->counts[i] = access->row(access->context, slots[i],
										   reach->piece + (size_t) i * reach->graph->degree);
}

/* Walk breadth first until the queue is empty. Returns false if interrupted. */
static bool
connectivity_walk(Reach *reach)
{
	while (reach->head < reach->tail)
	{
		const uint32_t *slots = reach->queue + reach->head;
		uint32_t	count = reach->tail - reach->head;

		if (count > REACH_PIECE)
			count = REACH_PIECE;
		read_rows(reach, slots, count);
		reach->head += count;
		for (uint32_t i = 0; i < count; i++)
			for (uint32_t n = 0; n < reach->counts[i]; n++)
				connectivity_mark(reach, reach->piece[(size_t) i * reach->graph->degree + n],
								  slots[i]);
		if (count > 1 && reach->access->interrupted(reach->access->context))
			return false;
	}
	return true;
}

/*
 * Whether the edge from a row to a neighbour has to stay: it is in the tree, or
 * leads to a seed, which may have no other.
 */
static bool
is_kept(const Reach *reach, uint32_t row, uint32_t neighbour)
{
	return neighbour < reach->graph->rows &&
		   (reach->from[neighbour] == row || reach->from[neighbour] == A_SEED);
}

/*
 * Add an edge to slot to a row: at its end, or in place of the last edge of its
 * farther half that need not stay, unless it names the slot already. Returns
 * false if there is no place. The nearer half of a row is kept.
 */
static bool
add_edge(Reach *reach, uint32_t row, uint32_t slot)
{
	uint32_t	count = reach->access->row(reach->access->context, row, reach->neighbours);
	uint32_t	place = count;

	for (uint32_t i = 0; i < count; i++)
		if (reach->neighbours[i] == slot)
			return true;		/* a seed, not found for the many equal rows */
	if (count == reach->graph->degree)
	{
		while (place > count / 2 && is_kept(reach, row, reach->neighbours[place - 1]))
			place--;
		if (place == count / 2)
			return false;
		place--;
	}
	else
		count++;
	reach->neighbours[place] = slot;
	reach->access->set(reach->access->context, row, reach->neighbours, count);
	connectivity_mark(reach, slot, row);
	return true;
}

/*
 * Attach a slot by an edge from the nearest reached row found that has a place
 * for it. Returns false if none has.
 */
static bool
attach_to_found(Reach *reach, uint32_t slot, const SearchResult *found, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (found[i].slot != slot && found[i].slot < reach->graph->rows &&
			reach->from[found[i].slot] != NO_SLOT && add_edge(reach, found[i].slot, slot))
			return true;
	return false;
}

/*
 * Attach a slot by an edge from the nearest reached row that has a place for
 * it, or else from the slot attached last. Returns false if neither has a
 * place.
 */
static bool
connectivity_attach(Reach *reach, uint32_t slot)
{
	const SearchResult *found;
	uint32_t	count = reach->access->near(reach->access->context, slot, &found);
	bool		attached = attach_to_found(reach, slot, found, count);

	if (!attached && reach->attached != NO_SLOT)
		attached = add_edge(reach, reach->attached, slot);
	if (attached)
		reach->attached = slot;
	return attached;
}

/*
 * Attach a seed, unless a search from the others finds it. It stays a seed if
 * no row found has a place for it.
 */
static void
connect_seed(Reach *reach, uint32_t slot)
{
	const SearchResult *found;
	uint32_t	count = reach->access->near(reach->access->context, slot, &found);

	for (uint32_t i = 0; i < count; i++)
		if (found[i].slot == slot)
			return;
	(void) attach_to_found(reach, slot, found, count);
}

/*
 * Walk from the seeds, then attach unreached slots, then seeds. *left is how
 * many of the unreached could not be attached. Returns false if interrupted.
 */
static bool
connect_all(Reach *reach, uint32_t *left)
{
	memset(reach->from, 0xFF, reach->graph->rows * sizeof(uint32_t));
	for (uint32_t i = 0; i < reach->graph->nseeds && i < REACH_SEEDS; i++)
		connectivity_mark(reach, reach->graph->seeds[i], A_SEED);
	if (!connectivity_walk(reach))
		return false;
	for (uint32_t slot = 0; slot < reach->graph->rows; slot++)
	{
		if (reach->from[slot] != NO_SLOT || !reach->access->wanted(reach->access->context, slot))
			continue;
		*left += !connectivity_attach(reach, slot);
		if (!connectivity_walk(reach) || reach->access->interrupted(reach->access->context))
			return false;
	}
	for (uint32_t i = 0; i < reach->graph->nseeds && i < REACH_SEEDS; i++)
	{
		uint32_t	slot = reach->graph->seeds[i];

		if (slot < reach->graph->rows && reach->access->wanted(reach->access->context, slot))
			connect_seed(reach, slot);
		if (reach->access->interrupted(reach->access->context))
			return false;
	}
	return true;
}

/* Give every wanted slot that is not reachable an incoming edge. */
EngineStatus
graph_connect(const ReachAccess *access, const ReachGraph *graph, const ScratchAllocator *allocator,
			  uint32_t *left)
{
	Reach		reach = {.access = access, .graph = graph, .attached = NO_SLOT};
	EngineStatus status;

	*left = 0;
	if (graph->rows == 0 || graph->nseeds == 0)
		return ENGINE_OK;
	reach.queue = allocator->resize(allocator->context, NULL, graph_connect_bytes(graph));
	if (reach.queue == NULL)
		return ENGINE_NO_MEMORY;
	reach.from = reach.queue + graph->rows;
	reach.piece = reach.from + graph->rows;
	status = connect_all(&reach, left) ? ENGINE_OK : ENGINE_CANCELLED;
	(void) allocator->resize(allocator->context, reach.queue, 0);
	return status;
}
