/*
 * graph_edits.h
 *		Changed graph rows in memory, not yet written: shared by linking over
 *		pages and VACUUM's repair.
 *
 * Pages are only read; the changed rows are returned at the end, and written by
 * link_write_rows(). The caller holds the linker lock, so no graph row of the
 * pages changes concurrently.
 */
#ifndef GPUANN_GRAPH_EDITS_H
#define GPUANN_GRAPH_EDITS_H

#include "link/link.h"
#include "link/row_vectors.h"
#include "engine/prune.h"
#include "engine/search.h"

typedef struct GraphEdits GraphEdits;

/*
 * Start without changes. `memory` limits rows and cached vectors together;
 * everything is in a memory context of its own.
 */
extern GraphEdits *graph_edits_begin(Relation index, const IndexFormat *format, uint32 next_fresh,
									 Size memory);
extern void graph_edits_end(GraphEdits *edits);

extern const IndexFormat *graph_edits_format(const GraphEdits *edits);
extern RowVectors *graph_edits_vectors(GraphEdits *edits);

/* Number of slots, and the seeds set. */
extern uint32 graph_edits_slots(const GraphEdits *edits, const uint32 **seeds, uint32 *nseeds);

/*
 * Number of changed rows that fit in that memory, and whether this many more
 * still fit.
 */
extern uint32 graph_edits_capacity(const IndexFormat *format, Size memory);
extern bool graph_edits_have_room(const GraphEdits *edits, uint32 more);

/*
 * A slot's current row, changes included; returns the number of neighbours.
 */
extern uint32 graph_edits_get(GraphEdits *edits, uint32 slot, uint32 *neighbours, SlotState *state);

/* Prefetch it. */
extern void graph_edits_expect(const GraphEdits *edits, uint32 slot);

/*
 * Its neighbours, for a caller that has a copy of the linked row on its page.
 */
extern uint32 graph_edits_get_from(const GraphEdits *edits, uint32 slot, const uint32 *page_row,
								   uint32 *neighbours);

/*
 * Change a row. distances: those of the neighbours, or NULL if the caller has
 * not computed them.
 */
extern void graph_edits_set(GraphEdits *edits, uint32 slot, const uint32 *neighbours,
							const float *distances, uint32 count);

/*
 * The same for a slot that is known to be live: its page is not read. Cheapest
 * if slots ascend.
 */
extern void graph_edits_set_live(GraphEdits *edits, uint32 slot, const uint32 *neighbours,
								 uint32 count);

/* Set the slots from which searches start. The array remains the caller's. */
extern void graph_edits_seeds(GraphEdits *edits, const uint32 *seeds, uint32 count);

/*
 * The live slots that a graph search of breadth ef for a slot expands, nearest
 * first, duplicates of it limited. Alike: with inner product the rows of
 * smallest Euclidean distance, which need not be the nearest, and a slot that
 * is a seed is not started from. candidates has room for ROW_EDITS_FOUND(ef);
 * returns how many there are.
 */
#define ROW_EDITS_FOUND(ef)	(2 * (ef) + SEARCH_MAX_EQUAL)
extern uint32 graph_edits_search(GraphEdits *edits, uint32 slot, uint32 ef, bool alike,
								 Candidate *candidates);

/* Whether two slots have the same vector; context: the GraphEdits. */
extern bool graph_edits_equal(void *context, uint32 slot_a, uint32 slot_b);

/* Distances between slots, in single precision. */
extern void graph_edits_distances(GraphEdits *edits, uint32 from, const uint32 *slots, uint32 count,
								  double *out);
extern double graph_edits_distance(GraphEdits *edits, uint32 slot_a, uint32 slot_b);

/*
 * prune_choose() with the index's rule. Candidates have slot, index (also the
 * slot) and distance set; chosen has room for `degree`.
 */
extern uint32 graph_edits_choose(GraphEdits *edits, uint32 slot, Candidate *candidates,
								 uint32 count, Candidate *chosen, uint32 *kept);

/*
 * Set a row to chosen neighbours, in their order, and offer reverse edges to
 * those that are new in it.
 */
extern void graph_edits_set_chosen(GraphEdits *edits, uint32 slot, const Candidate *chosen,
								   uint32 count);

/* Number of reverse edges offered and not yet applied. */
extern uint32 graph_edits_offered(const GraphEdits *edits);

/*
 * Add the reverse edges offered since the last call to their targets; a row
 * that overflows is pruned.
 */
extern void graph_edits_apply_offers(GraphEdits *edits);

/*
 * Attach every live row of the graph that no walk from the seeds reaches,
 * provided that `linked`, the number of rows just linked or lost, is no small
 * part of the graph, and a quarter of memory suffices. Call after all offers
 * were applied.
 */
extern void graph_edits_connect(GraphEdits *edits, uint32 linked, Size memory);

/*
 * Return the changed rows, ascending by slot, with nseeds 0, and forget them.
 * palloc'd in the current context, except for rows of graph_edits_set_live(),
 * which are freed with the edits.
 */
extern void graph_edits_take(GraphEdits *edits, LinkedRows *rows);

/*
 * Memory limit of a linker or VACUUM in bytes: maintenance_work_mem, or
 * autovacuum_work_mem in an autovacuum worker.
 */
extern Size link_memory(void);

/*
 * Process interrupts, and sleep for the vacuum cost delay (only VACUUM has
 * one).
 */
extern void link_pause(void);

#endif							/* GPUANN_GRAPH_EDITS_H */
