/*
 * rowreader.c
 *		Reading the graph that is under change. See rowreader.h.
 *
 * The linker lock keeps graph rows, states and the vectors of the graph as they are, so a page may be read without pin and lock where it is known to be;
 * that it was there all the while is asked afterwards. Distances are single precision: they choose edges, not answers.
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/memutils.h"

#include "hotblocks.h"
#include "rowreader.h"
#include "scratch.h"

#define EXPECTED_KEPT	4		/* kept neighbours whose vectors are fetched before a newcomer meets the first */

struct RowReader
{
	RowEdits   *edits;
	Relation	index;
	const IndexFormat *format;
	uint32		next_fresh;
	RowVectors *vectors;
	SearchScratch *scratch;
	NodeCopy   *node;			/* scratch copy of a node record and its row */
	atomic_bool *stop;			/* a thread's: NULL for the process's own */
	bool		failed;
};

RowReader *
row_reader_create(RowEdits *edits, uint32 next_fresh, Size memory)
{
	RowReader  *reader = palloc0(sizeof(RowReader));
	ScratchAllocator allocator = scratch_in(CurrentMemoryContext);

	reader->edits = edits;
	reader->index = row_edits_index(edits);
	reader->format = row_edits_format(edits);
	reader->next_fresh = next_fresh;
	reader->vectors = row_vectors_begin(reader->index, reader->format, next_fresh, memory);
	reader->scratch = search_scratch_create(&allocator);
	reader->node = palloc(reader->format->node_bytes);
	return reader;
}

RowReader *
row_reader_create_for_thread(const RowReader *own, atomic_bool *stop)
{
	RowReader  *reader = palloc(sizeof(RowReader));

	*reader = *own;
	reader->vectors = row_vectors_begin_peeking(own->vectors);
	reader->scratch = search_scratch_create(NULL);
	if (reader->scratch == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory while linking rows")));
	reader->node = palloc(own->format->node_bytes);
	reader->stop = stop;
	reader->failed = false;
	return reader;
}

void
row_reader_end(RowReader *reader)
{
	row_vectors_end(reader->vectors);
	row_reader_free(reader);
}

void
row_reader_free(RowReader *reader)
{
	if (reader->stop != NULL)
		search_scratch_free(reader->scratch);
}

RowVectors *
row_reader_vectors(const RowReader *reader)
{
	return reader->vectors;
}

bool
row_reader_failed(RowReader *reader)
{
	bool		failed = row_vectors_failed(reader->vectors) || reader->failed;

	reader->failed = false;
	return failed;
}

void
row_reader_pause(const RowReader *reader)
{
	if (reader->stop == NULL)
		link_pause();
}

/* Serve interrupts: threads have none. */
static inline void
breathe(const RowReader *reader)
{
	if (reader->stop == NULL)
		CHECK_FOR_INTERRUPTS();
}

/* ---- rows and vectors ---- */

/* Copy a slot's record and row without a pin; false if that cannot be. */
static bool
peek_node(RowReader *reader, uint32 slot)
{
	HotBlocks  *hot = row_vectors_hot(reader->vectors);
	BlockNumber block = node_block(reader->format, slot);
	Buffer		hint = hot_hint(hot, block);
	const char *page = hot_peek(hot, block, hint);

	if (page == NULL || PageIsNew((Page) page) || page_fault((Page) page, PAGE_NODE) != NULL)
		return false;
	copy_node(reader->format, (Page) page, slot, reader->node);
	return hot_peeked(hot, block, hint);
}

/* Read a row from its page into neighbours; returns how many there are. */
static uint32
page_row(RowReader *reader, uint32 slot, uint32 *neighbours, SlotState *state)
{
	const IndexFormat *format = reader->format;
	NodeCopy   *node = reader->node;
	uint32		count = 0;

	state->live = false;
	state->version = 0;
	if (!peek_node(reader, slot))
	{
		if (reader->stop != NULL)
			reader->failed = true;
		if (reader->stop != NULL || !read_node(reader->index, format, slot, node))
			return 0;
	}
	state->live = NodeState(node) == NODE_LIVE;
	state->version = node->version;
	if ((node->flags & NODE_LINKED) == 0)
		return 0;
	while (count < format->degree && node->neighbours[count] != NO_SLOT)
	{
		if (node->neighbours[count] >= reader->next_fresh)
		{
			if (reader->stop == NULL)
				report_corrupt(reader->index, node_block(format, slot), "a graph row names a slot that does not exist");
			reader->failed = true;
			return 0;
		}
		neighbours[count] = node->neighbours[count];
		count++;
	}
	return count;
}

uint32
row_reader_get(RowReader *reader, uint32 slot, uint32 *neighbours, SlotState *state)
{
	ChangedRow	row;

	if (!row_edits_changed(reader->edits, slot, &row))
		return page_row(reader, slot, neighbours, state);
	state->live = row.live;
	state->version = 0;
	memcpy(neighbours, row.neighbours, row.count * sizeof(uint32));
	return row.count;
}

void
row_reader_distances(RowReader *reader, uint32 from, const uint32 *slots, uint32 count, double *out)
{
	row_vectors_from(reader->vectors, from);
	row_vectors_distances(reader->vectors, slots, count, out);
}

double
row_reader_distance(RowReader *reader, uint32 slot_a, uint32 slot_b)
{
	double		distance;

	row_reader_distances(reader, slot_a, &slot_b, 1, &distance);
	return distance;
}

/* ---- search ---- */

static uint32_t
search_row(void *context, uint32_t slot, uint32_t *neighbours, SlotState *state)
{
	breathe(context);
	return row_reader_get(context, slot, neighbours, state);
}

static void
search_distances(void *context, const uint32_t *slots, uint32_t count, double *out)
{
	row_vectors_distances(((RowReader *) context)->vectors, slots, count, out);
}

/* Squared differences, less the square of the vector searched for. */
static void
search_differences(void *context, const uint32_t *slots, uint32_t count, double *out)
{
	RowVectors *vectors = ((RowReader *) context)->vectors;

	row_vectors_distances(vectors, slots, count, out);
	for (uint32 i = 0; i < count; i++)
	{
		out[i] = 2 * out[i] + row_vectors_square(vectors, slots[i]);
		if (isnan(out[i]))
			out[i] = INFINITY;
	}
}

/* A thread that has failed, or is to stop, need not go on. */
static bool
search_is_over(void *context)
{
	const RowReader *reader = context;

	return reader->failed || (reader->stop != NULL && atomic_load_explicit(reader->stop, memory_order_relaxed));
}

uint32
row_reader_search(RowReader *reader, uint32 slot, uint32 ef, bool alike, Candidate *candidates)
{
	GraphAccess access = {
		.context = reader,
		.row = search_row,
		.walk_distances = alike && reader->format->metric == METRIC_IP ? search_differences : search_distances,
		.interrupted = search_is_over
	};
	GraphQuery	query;
	GraphAnswer answer;
	const uint32 *seeds;
	uint32		nseeds;
	uint32		found;

	(void) row_edits_slots(reader->edits, &seeds, &nseeds);
	if (nseeds == 0)
		return 0;
	memset(&query, 0, sizeof(query));
	query.ef = ef;
	query.seeds = seeds;
	query.nseeds = Min(nseeds, ENGINE_SEEDS_TRIED);
	query.max_equal = Min(PRUNE_MAX_EQUAL(reader->format->degree), SEARCH_MAX_EQUAL);
	query.salt = slot;
	query.all_expanded = true;
	query.equal_distance = row_reader_distance(reader, slot, slot);
	if (graph_search(&access, &query, reader->scratch, &answer) != ENGINE_OK)
	{
		if (reader->stop == NULL)
			ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory while linking rows")));
		reader->failed = true;
		return 0;
	}
	found = Min(answer.count, ROW_EDITS_FOUND(ef));
	for (uint32 i = 0; i < found; i++)
	{
		candidates[i].distance = answer.results[i].distance;
		candidates[i].slot = answer.results[i].slot;
		candidates[i].index = answer.results[i].slot;
	}
	return found;
}

/* ---- choosing ---- */

/* PairDistance: a candidate's index is its slot, and the first one stays while it meets the others. */
static double
pair_distance(void *context, uint32_t index_a, uint32_t index_b)
{
	breathe(context);
	return row_reader_distance(context, index_a, index_b);
}

/* PairSquare */
static double
square(void *context, uint32_t index)
{
	return row_vectors_square(((RowReader *) context)->vectors, index);
}

/* How a slot's row is chosen. */
static PruneRule
prune_rule(RowReader *reader, uint32 slot)
{
	return (PruneRule) {
		.degree = reader->format->degree,
		.self = slot,
		.equal_distance = row_reader_distance(reader, slot, slot),
		.max_equal = PRUNE_MAX_EQUAL(reader->format->degree),
		.metric = reader->format->metric,
		.square = square
	};
}

uint32
row_reader_choose(RowReader *reader, uint32 slot, Candidate *candidates, uint32 count, Candidate *chosen, uint32 *kept)
{
	PruneRule	rule = prune_rule(reader, slot);

	return prune_choose(&rule, candidates, count, pair_distance, reader, chosen, kept);
}

/* Open a target's row; false if it is not live. */
static bool
open_row(RowReader *reader, uint32 target, OpenRow *row)
{
	uint32		neighbours[ENGINE_MAX_DEGREE];
	double		distances[ENGINE_MAX_DEGREE];
	SlotState	state;
	ChangedRow	changed;
	uint32		count;

	if (row_edits_changed(reader->edits, target, &changed) && changed.distances != NULL)
	{
		row_vectors_expect(reader->vectors, changed.neighbours, Min(changed.count, EXPECTED_KEPT));
		for (uint32 i = 0; i < changed.count; i++)
			distances[i] = changed.distances[i];
		open_row_read(row, changed.neighbours, distances, changed.count, row_kept(distances, changed.count));
		return changed.live;
	}
	count = row_reader_get(reader, target, neighbours, &state);
	if (!state.live)
		return false;
	row_reader_distances(reader, target, neighbours, count, distances);
	open_row_read(row, neighbours, distances, count, row_kept(distances, count));
	return true;
}

uint32
row_reader_accept(RowReader *reader, const EdgeOffer *offers, uint32 count, uint32 *neighbours, float *distances)
{
	uint32		target = offers[0].target;
	PruneRule	rule = prune_rule(reader, target);
	OpenRow		row;

	if (!open_row(reader, target, &row))
		return NO_CHANGE;
	for (uint32 i = 0; i < count; i++)
	{
		if (!open_row_has(&row, offers[i].source))
			open_row_take(&rule, &row, (SearchResult) {offers[i].distance, offers[i].source, 0}, pair_distance, reader);
	}
	return open_row_write(&row, neighbours, distances);
}
