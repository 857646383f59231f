/*
 * graph_read.c
 *		Read the graph with its unwritten changes: distances, searches, and
 *		pruning.
 *
 * Under the linker lock graph rows, states and vectors of the graph do not
 * change. Distances are single precision, because they select edges, not
 * answers.
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"

#include "link/graph_edits_private.h"
#include "engine/equal_rows.h"
#include "engine/prune_incremental.h"

#define EXPECTED_KEPT	4		/* kept neighbours whose vectors are prefetched before a candidate
								 * is compared with the first */

/* ---- vectors ---- */

void
graph_edits_distances(GraphEdits *edits, uint32 from, const uint32 *slots, uint32 count,
					  double *out)
{
	row_vectors_from(edits->vectors, from);
	row_vectors_distances(edits->vectors, slots, count, out);
}

double
graph_edits_distance(GraphEdits *edits, uint32 slot_a, uint32 slot_b)
{
	double		distance;

	graph_edits_distances(edits, slot_a, &slot_b, 1, &distance);
	return distance;
}

/* ---- search ---- */

static uint32_t
search_row(void *context, uint32_t slot, uint32_t *neighbours, SlotState *state)
{
	CHECK_FOR_INTERRUPTS();
	return graph_edits_get(context, slot, neighbours, state);
}

static void
search_distances(void *context, const uint32_t *slots, uint32_t count, double *out)
{
	row_vectors_distances(((GraphEdits *) context)->vectors, slots, count, out);
}

bool
graph_edits_equal(void *context, uint32 slot_a, uint32 slot_b)
{
	return row_vectors_equal(((GraphEdits *) context)->vectors, slot_a, slot_b);
}

/* A sketch of a slot's vector (equal_rows.h). */
static uint32_t
search_sketch(void *context, uint32_t slot)
{
	GraphEdits *edits = context;
	float		norm;

	return vector_sketch(row_vectors_get(edits->vectors, slot, &norm),
						 edits->format->vector_bytes);
}

/*
 * Squared Euclidean distances, less the square of the vector searched for,
 * which is constant.
 */
static void
search_differences(void *context, const uint32_t *slots, uint32_t count, double *out)
{
	RowVectors *vectors = ((GraphEdits *) context)->vectors;

	row_vectors_distances(vectors, slots, count, out);
	for (uint32 i = 0; i < count; i++)
	{
		out[i] = 2 * out[i] + row_vectors_square(vectors, slots[i]);
		if (isnan(out[i]))
			out[i] = INFINITY;
	}
}

uint32
graph_edits_search(GraphEdits *edits, uint32 slot, uint32 ef, bool alike, Candidate *candidates)
{
	GraphAccess access = {.context = edits,
						  .row = search_row,
						  .walk_distances = alike && edits->format->metric == METRIC_IP
												? search_differences
												: search_distances,
						  .equal = graph_edits_equal,
						  .sketch = search_sketch,
						  .often_tied = edits->format->type == ELEMENT_BIT};
	uint32		seeds[ENGINE_SEEDS_TRIED];
	GraphQuery	query;
	GraphAnswer answer;
	uint32		found;

	if (edits->nseeds == 0)
		return 0;
	query = (GraphQuery) {
		.ef = ef,
		.seeds = seeds,
		.max_equal = Min(PRUNE_MAX_EQUAL(edits->format->degree), SEARCH_MAX_EQUAL),
		.salt = slot,
		.all_expanded = true,
		.equal_distance = graph_edits_distance(edits, slot, slot),
	};
	for (uint32 i = 0; i < Min(edits->nseeds, ENGINE_SEEDS_TRIED); i++)
		if (!alike || edits->seeds[i] != slot)
			seeds[query.nseeds++] = edits->seeds[i];
	if (graph_search(&access, &query, edits->scratch, &answer) != ENGINE_OK)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory while linking rows")));
	found = Min(answer.count, ROW_EDITS_FOUND(ef));
	for (uint32 i = 0; i < found; i++)
		candidates[i] = (Candidate) {
			answer.results[i].distance, answer.results[i].slot, answer.results[i].slot};
	return found;
}

/* ---- choosing ---- */

/*
 * PairDistance: a candidate's index is its slot. The first one stays widened
 * while it is compared with others.
 */
static double
pair_distance(void *context, uint32_t index_a, uint32_t index_b)
{
	CHECK_FOR_INTERRUPTS();
	return graph_edits_distance(context, index_a, index_b);
}

/* PairSquare */
static double
graph_edits_square(void *context, uint32_t index)
{
	return row_vectors_square(((GraphEdits *) context)->vectors, index);
}

/* The rule by which a slot's row is pruned. */
static PruneRule
prune_rule(GraphEdits *edits, uint32 slot)
{
	return (PruneRule) {
		.degree = edits->format->degree,
		.self = slot,
		.equal_distance = graph_edits_distance(edits, slot, slot),
		.max_equal = PRUNE_MAX_EQUAL(edits->format->degree),
		.metric = edits->format->metric,
		.square = graph_edits_square
	};
}

uint32
graph_edits_choose(GraphEdits *edits, uint32 slot, Candidate *candidates, uint32 count,
				   Candidate *chosen, uint32 *kept)
{
	PruneRule	rule = prune_rule(edits, slot);

	return prune_choose(&rule, candidates, count, pair_distance, edits, chosen, kept);
}

/* Open a target's row; false if it is not live. */
static bool
open_row(GraphEdits *edits, uint32 target, IncrementalRow *row)
{
	uint32		neighbours[ENGINE_MAX_DEGREE];
	double		distances[ENGINE_MAX_DEGREE];
	SlotState	state;
	ChangedRow	changed;
	uint32		count;

	if (graph_edits_changed(edits, target, &changed) && changed.distances != NULL)
	{
		row_vectors_expect(edits->vectors, changed.neighbours, Min(changed.count, EXPECTED_KEPT));
		for (uint32 i = 0; i < changed.count; i++)
			distances[i] = changed.distances[i];
		incremental_read(row, changed.neighbours, distances, changed.count,
						 row_kept(distances, changed.count));
		return changed.live;
	}
	count = graph_edits_get(edits, target, neighbours, &state);
	if (!state.live)
		return false;
	graph_edits_distances(edits, target, neighbours, count, distances);
	incremental_read(row, neighbours, distances, count, row_kept(distances, count));
	return true;
}

uint32
graph_edits_accept(GraphEdits *edits, const EdgeOffer *offers, uint32 count, uint32 *neighbours,
				   float *distances)
{
	uint32		target = offers[0].target;
	PruneRule	rule = prune_rule(edits, target);
	IncrementalRow row;

	if (!open_row(edits, target, &row))
		return NO_CHANGE;
	for (uint32 i = 0; i < count; i++)
	{
		if (!incremental_has(&row, offers[i].source))
			incremental_take(&rule, &row, (SearchResult){offers[i].distance, offers[i].source, 0},
							 pair_distance, edits);
	}
	return incremental_write(&row, neighbours, distances);
}
