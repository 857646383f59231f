/*
 * graph_connectivity.c
 *		Last step of linking over pages, and of VACUUM's repair: attach rows
 *		that no walk from the seeds reaches. See engine/connectivity.h.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "link/graph_edits.h"
#include "base/scratch.h"
#include "engine/connectivity.h"

#define ROWS_AHEAD	8			/* prefetch distance, in rows */

/* Context of the callbacks. */
typedef struct RowReach
{
	GraphEdits *edits;
	uint32		ef;
	Candidate  *candidates;
	SearchResult *found;
} RowReach;

static uint32_t
reach_read_row(void *context, uint32_t slot, uint32_t *neighbours)
{
	SlotState	state;

	return graph_edits_get(((RowReach *) context)->edits, slot, neighbours, &state);
}

/*
 * Read the rows of slots, prefetching ROWS_AHEAD rows in advance so that their
 * cache misses overlap.
 */
static void
reach_read_rows(void *context, const uint32_t *slots, uint32_t count, uint32_t *neighbours,
				uint32_t *counts)
{
	GraphEdits *edits = ((RowReach *) context)->edits;
	uint32_t	degree = graph_edits_format(edits)->degree;

	for (uint32_t i = 0; i < count; i++)
	{
		if (i + ROWS_AHEAD < count)
			graph_edits_expect(edits, slots[i + ROWS_AHEAD]);
		counts[i] = reach_read_row(context, slots[i], neighbours + (size_t) i * degree);
	}
}

static bool
reach_is_wanted(void *context, uint32_t slot)
{
	uint32		row[ENGINE_MAX_DEGREE];
	SlotState	state;

	/*
	 * Dead slots are skipped without any other work, so a long run of them
	 * would not be interruptible.
	 */
	CHECK_FOR_INTERRUPTS();
	return graph_edits_get(((RowReach *) context)->edits, slot, row, &state) > 0 && state.live;
}

static uint32_t
reach_find_near(void *context, uint32_t slot, const SearchResult **found)
{
	RowReach   *reach = context;
	uint32		count =
		graph_edits_search(reach->edits, slot, reach->ef, true, reach->candidates);

	link_pause();
	for (uint32 i = 0; i < count; i++)
		reach->found[i] =
			(SearchResult){reach->candidates[i].distance, reach->candidates[i].slot, 0};
	*found = reach->found;
	return count;
}

static void
reach_write_row(void *context, uint32_t slot, const uint32_t *neighbours, uint32_t count)
{
	graph_edits_set(((RowReach *) context)->edits, slot, neighbours, NULL, count);
}

/*
 * ReachAccess: process interrupts, and stop when the memory for changed rows is
 * used up.
 */
static bool
connectivity_interrupted(void *context)
{
	link_pause();
	return !graph_edits_have_room(((RowReach *) context)->edits, 1);
}

void
graph_edits_connect(GraphEdits *edits, uint32 linked, Size memory)
{
	const IndexFormat *format = graph_edits_format(edits);
	RowReach	reach = {.edits = edits, .ef = format->ef_construction};
	ReachAccess access = {.context = &reach,
						  .row = reach_read_row,
						  .rows = reach_read_rows,
						  .wanted = reach_is_wanted,
						  .near = reach_find_near,
						  .set = reach_write_row,
						  .interrupted = connectivity_interrupted};
	ReachGraph	graph = {.degree = format->degree};
	ScratchAllocator allocator = scratch_in(CurrentMemoryContext);
	uint32		left;

	graph.rows = graph_edits_slots(edits, &graph.seeds, &graph.nseeds);
	if ((uint64) linked * REACH_DIVISOR < graph.rows || graph_connect_bytes(&graph) > memory / 4)
		return;
	reach.candidates = palloc(sizeof(Candidate) * ROW_EDITS_FOUND(reach.ef));
	reach.found = palloc(sizeof(SearchResult) * ROW_EDITS_FOUND(reach.ef));
	if (graph_connect(&access, &graph, &allocator, &left) == ENGINE_OK && left > 0)
		ereport(DEBUG1, (errmsg_internal("%u rows of the graph cannot be reached", left)));
	pfree(reach.candidates);
	pfree(reach.found);
}
