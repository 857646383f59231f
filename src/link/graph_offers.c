/*
 * graph_offers.c
 *		Reverse edges: collect those that new rows offer to their neighbours,
 *		and add them to the neighbours' rows.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "link/graph_edits_private.h"

/* Offer target an edge to source. */
static void
offer_edge(GraphEdits *edits, uint32 target, uint32 source, double distance)
{
	if (edits->noffers == edits->offer_room)
	{
		Size		room = Max((Size) edits->offer_room * 2, 4096);

		edits->offers = edits->offers ? repalloc_huge(edits->offers, room * sizeof(EdgeOffer))
			: MemoryContextAllocHuge(edits->memory, room * sizeof(EdgeOffer));
		edits->offer_room = room;
	}
	edits->offers[edits->noffers].target = target;
	edits->offers[edits->noffers].source = source;
	edits->offers[edits->noffers].distance = distance;
	edits->noffers++;
}

/*
 * Set a row that was chosen, and offer the reverse edges of those it did not
 * have.
 */
void
graph_edits_set_chosen(GraphEdits *edits, uint32 slot, const Candidate *chosen, uint32 count)
{
	uint32		old[ENGINE_MAX_DEGREE];
	uint32		row[ENGINE_MAX_DEGREE];
	float		distances[ENGINE_MAX_DEGREE];
	SlotState	state;
	uint32		nold = graph_edits_get(edits, slot, old, &state);

	for (uint32 i = 0; i < count; i++)
	{
		row[i] = chosen[i].slot;
		distances[i] = (float) chosen[i].distance;
	}
	graph_edits_set(edits, slot, row, distances, count);
	for (uint32 i = 0; i < count; i++)
		if (!slot_is_among(old, nold, row[i]))
			offer_edge(edits, row[i], slot, chosen[i].distance);
}

uint32
graph_edits_offered(const GraphEdits *edits)
{
	return edits->noffers;
}

static int
compare_offers(const void *left, const void *right)
{
	const EdgeOffer *a = left;
	const EdgeOffer *b = right;

	if (a->target != b->target)
		return a->target < b->target ? -1 : 1;
	return a->source < b->source ? -1 : a->source > b->source;
}

/*
 * Add the reverse edges offered to their targets. Each target's row is set
 * before the next one is computed. The order does not matter: pruning a row
 * reads vectors, and no other target's row.
 */
void
graph_edits_apply_offers(GraphEdits *edits)
{
	uint32		row[ENGINE_MAX_DEGREE];
	float		distances[ENGINE_MAX_DEGREE];
	uint32		end;

	qsort(edits->offers, edits->noffers, sizeof(EdgeOffer), compare_offers);
	for (uint32 start = 0; start < edits->noffers; start = end)
	{
		uint32		target = edits->offers[start].target;
		uint32		count;

		CHECK_FOR_INTERRUPTS();
		for (end = start; end < edits->noffers && edits->offers[end].target == target; end++)
			continue;
		count = graph_edits_accept(edits, edits->offers + start, end - start, row, distances);
		if (count != NO_CHANGE)
			graph_edits_set(edits, target, row, distances, count);
	}
	edits->noffers = 0;
}
