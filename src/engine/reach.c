/*
 * reach.c
 *		Every linked row can be reached: finds those to which no walk from the seeds leads, and gives them a way in.
 *
 * A walk over all edges marks what is reached and counts edges in (of reached rows). Each row left out gets an edge from the nearest row
 * that is reached, and the walk goes on from there. An edge given up leads to a row with other edges in; as these
 * may come from what only that row leads to, the walk is repeated until it finds nothing more to do.
 */
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "reach.h"

#define MOST_WALKS		4
#define MOST_EDGES_IN	255

typedef struct Reach
{
	const ReachAccess *access;
	const ReachGraph *graph;
	unsigned char *reached;		/* bit per slot */
	uint8_t    *edges_in;		/* per slot, from reached rows; MOST_EDGES_IN is that or more */
	uint32_t   *queue;			/* reached, row not read yet from `head` on; its memory is that of all four arrays */
	uint32_t	head;
	uint32_t	tail;
	uint32_t	attached;		/* the last slot that got a way in, or NO_SLOT */
	uint32_t	neighbours[ENGINE_MAX_DEGREE];
	uint32_t   *piece;			/* REACH_PIECE rows read at once, and how long each is */
	uint32_t	counts[REACH_PIECE];
} Reach;

size_t
graph_connect_bytes(const ReachGraph *graph)
{
	return (graph->rows + (size_t) REACH_PIECE * graph->degree) * sizeof(uint32_t) + graph->rows + graph->rows / 8 + 1;
}

/* Mark a slot; its row is to be read. */
static void
mark(Reach *reach, uint32_t slot)
{
	if (slot >= reach->graph->rows || bit_is_set(reach->reached, slot))
		return;
	bit_set(reach->reached, slot);
	reach->queue[reach->tail++] = slot;
}

static void
count_in(Reach *reach, uint32_t slot)
{
	if (slot < reach->graph->rows && reach->edges_in[slot] < MOST_EDGES_IN)
		reach->edges_in[slot]++;
}

/* Read the rows of slots. */
static void
read_rows(Reach *reach, const uint32_t *slots, uint32_t count)
{
	const ReachAccess *access = reach->access;

	if (access->rows != NULL && count > 1)
		access->rows(access->context, slots, count, reach->piece, reach->counts);
	else
		for (uint32_t i = 0; i < count; i++)
			reach->counts[i] = access->row(access->context, slots[i], reach->piece + (size_t) i * reach->graph->degree);
}

/* Read the rows of the queue until it is empty: in its order, however many at once. False: interrupted. */
static bool
walk(Reach *reach)
{
	while (reach->head < reach->tail)
	{
		uint32_t	count = reach->tail - reach->head;

		if (count > REACH_PIECE)
			count = REACH_PIECE;
		read_rows(reach, reach->queue + reach->head, count);
		reach->head += count;
		for (uint32_t i = 0; i < count; i++)
			for (uint32_t n = 0; n < reach->counts[i]; n++)
			{
				uint32_t	slot = reach->piece[(size_t) i * reach->graph->degree + n];

				count_in(reach, slot);
				mark(reach, slot);
			}
		if (count > 1 && reach->access->interrupted(reach->access->context))
			return false;
	}
	return true;
}

/* Walk from the seeds. */
static bool
start_over(Reach *reach)
{
	memset(reach->reached, 0, reach->graph->rows / 8 + 1);
	memset(reach->edges_in, 0, reach->graph->rows);
	reach->head = reach->tail = 0;
	for (uint32_t i = 0; i < reach->graph->nseeds && i < REACH_SEEDS; i++)
		mark(reach, reach->graph->seeds[i]);
	return walk(reach);
}

/*
 * Put an edge to slot into a row: at its end or in the place of the last that can be spared. False if there is none. The nearer half of a
 * row is kept: under inner product a few rows are near to all, and would lose all that makes them hubs.
 */
static bool
put_edge(Reach *reach, uint32_t row, uint32_t slot)
{
	uint32_t	count = reach->access->row(reach->access->context, row, reach->neighbours);
	uint32_t	place = count;

	if (count == reach->graph->degree)
	{
		for (; place > count / 2; place--)
		{
			uint32_t	target = reach->neighbours[place - 1];

			if (target < reach->graph->rows && reach->edges_in[target] > 1)
				break;
		}
		if (place == count / 2)
			return false;
		place--;
		if (reach->edges_in[reach->neighbours[place]] < MOST_EDGES_IN)
			reach->edges_in[reach->neighbours[place]]--;
	}
	else
		count++;
	reach->neighbours[place] = slot;
	reach->access->set(reach->access->context, row, reach->neighbours, count);
	count_in(reach, slot);
	return true;
}

/* Give a slot an edge in from the nearest reached row that has a place for it; if none has, from the slot that got the last one. */
static void
attach(Reach *reach, uint32_t slot)
{
	const SearchResult *found;
	uint32_t	count = reach->access->near(reach->access->context, slot, &found);
	bool		attached = false;

	for (uint32_t i = 0; i < count && !attached; i++)
	{
		if (found[i].slot != slot && found[i].slot < reach->graph->rows && bit_is_set(reach->reached, found[i].slot))
			attached = put_edge(reach, found[i].slot, slot);
	}
	if (!attached && reach->attached != NO_SLOT)
		attached = put_edge(reach, reach->attached, slot);
	if (!attached)
		return;
	mark(reach, slot);
	reach->attached = slot;
}

/* One walk, attaching what it leaves out; *left is how many that were. False: interrupted. */
static bool
connect_once(Reach *reach, bool last, uint32_t *left)
{
	*left = 0;
	if (!start_over(reach))
		return false;
	for (uint32_t slot = 0; slot < reach->graph->rows; slot++)
	{
		if (bit_is_set(reach->reached, slot) || !reach->access->wanted(reach->access->context, slot))
			continue;
		(*left)++;
		if (last)
			continue;
		attach(reach, slot);
		if (!walk(reach) || reach->access->interrupted(reach->access->context))
			return false;
	}
	return true;
}

/* Give every wanted slot that is not reached a way in. */
EngineStatus
graph_connect(const ReachAccess *access, const ReachGraph *graph, const ScratchAllocator *allocator, uint32_t *left)
{
	Reach		reach = {.access = access, .graph = graph, .attached = NO_SLOT};
	EngineStatus status = ENGINE_OK;

	*left = 0;
	if (graph->rows == 0 || graph->nseeds == 0)
		return ENGINE_OK;
	reach.queue = allocator->resize(allocator->context, NULL, graph_connect_bytes(graph));
	if (reach.queue == NULL)
		return ENGINE_NO_MEMORY;
	reach.piece = reach.queue + graph->rows;
	reach.edges_in = (uint8_t *) (reach.piece + (size_t) REACH_PIECE * graph->degree);
	reach.reached = reach.edges_in + graph->rows;
	for (int walks = 1; walks <= MOST_WALKS && status == ENGINE_OK; walks++)
	{
		if (!connect_once(&reach, walks == MOST_WALKS, left))
			status = ENGINE_CANCELLED;
		else if (*left == 0)
			break;
	}
	(void) allocator->resize(allocator->context, reach.queue, 0);
	return status;
}
