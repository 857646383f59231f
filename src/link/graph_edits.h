/*
 * graph_edits.h
 *		Graph rows under change in memory: what linking over pages and VACUUM's
 *		repair share.
 *
 * Pages are read, never written: the changed rows are taken out at the end and
 * written by link_write_rows(). The caller holds the linker lock, so no row of
 * the pages changes underneath.
 */
#ifndef GPUANN_GRAPH_EDITS_H
#define GPUANN_GRAPH_EDITS_H

#include "link/link.h"
#include "link/row_vectors.h"
#include "engine/prune.h"
#include "engine/search.h"

typedef struct GraphEdits GraphEdits;

/*
 * Start with no changes. memory bounds rows and cached vectors together;
 * everything lives in a context of its own.
 */
extern GraphEdits *graph_edits_begin(Relation index, const IndexFormat *format, uint32 next_fresh,
									 Size memory);
extern void graph_edits_end(GraphEdits *edits);

extern const IndexFormat *graph_edits_format(const GraphEdits *edits);
extern RowVectors *graph_edits_vectors(GraphEdits *edits);

/* Slots there are, and the seeds set. */
extern uint32 graph_edits_slots(const GraphEdits *edits, const uint32 **seeds, uint32 *nseeds);

/* Changed rows that fit in that memory, and whether so many more fit still. */
extern uint32 graph_edits_capacity(const IndexFormat *format, Size memory);
extern bool graph_edits_have_room(const GraphEdits *edits, uint32 more);

/*
 * The row of a slot as it is now, with the changes; returns how many
 * neighbours.
 */
extern uint32 graph_edits_get(GraphEdits *edits, uint32 slot, uint32 *neighbours, SlotState *state);

/* It is read soon. */
extern void graph_edits_expect(const GraphEdits *edits, uint32 slot);

/* Its neighbours, where the caller has a linked row of its page at hand. */
extern uint32 graph_edits_get_from(const GraphEdits *edits, uint32 slot, const uint32 *page_row,
								   uint32 *neighbours);

/*
 * Change a row; distances of the neighbours where the caller has them, else
 * NULL.
 */
extern void graph_edits_set(GraphEdits *edits, uint32 slot, const uint32 *neighbours,
							const float *distances, uint32 count);

/*
 * The same for a slot that is known to be live: its page is not read. Rows that
 * come ascending by slot cost least.
 */
extern void graph_edits_set_live(GraphEdits *edits, uint32 slot, const uint32 *neighbours,
								 uint32 count);

/* Slots from which searches start. The array is the caller's. */
extern void graph_edits_seeds(GraphEdits *edits, const uint32 *seeds, uint32 count);

/*
 * The live slots that a graph search of breadth ef for a slot expands, nearest
 * first, duplicates of it limited. Appends to candidates, which has room for
 * ROW_EDITS_FOUND(ef) more; returns how many it added.
 */
#define ROW_EDITS_FOUND(ef)	(2 * (ef) + SEARCH_MAX_EQUAL)
extern uint32 graph_edits_search(GraphEdits *edits, uint32 slot, uint32 ef, Candidate *candidates);

/*
 * The same, of inner products too those that differ least, which need not be
 * the nearest.
 */
extern uint32 graph_edits_search_alike(GraphEdits *edits, uint32 slot, uint32 ef,
									   Candidate *candidates);

/* Whether two slots have the same vector; context: the GraphEdits. */
extern bool graph_edits_equal(void *context, uint32 slot_a, uint32 slot_b);

/* Distances between slots, in single precision. */
extern void graph_edits_distances(GraphEdits *edits, uint32 from, const uint32 *slots, uint32 count,
								  double *out);
extern double graph_edits_distance(GraphEdits *edits, uint32 slot_a, uint32 slot_b);

/*
 * prune_choose() by the rule of the index: candidates have slot, index (the
 * slot too) and distance set; chosen has room for degree.
 */
extern uint32 graph_edits_choose(GraphEdits *edits, uint32 slot, Candidate *candidates,
								 uint32 count, Candidate *chosen, uint32 *kept);

/*
 * Set a row that was chosen so, in its order, and offer the reverse edges of
 * those it did not have.
 */
extern void graph_edits_set_chosen(GraphEdits *edits, uint32 slot, const Candidate *chosen,
								   uint32 count);

/* Reverse edges offered and not yet given. */
extern uint32 graph_edits_offered(const GraphEdits *edits);

/*
 * Give targets the reverse edges offered since the last call, pruning where a
 * row overflows.
 */
extern void graph_edits_apply_offers(GraphEdits *edits);

/*
 * Give every live row of the graph that no walk from the seeds reaches an edge
 * in, if `linked`, the rows just linked or lost, are no small part of the graph
 * and a quarter of memory suffices. After all offers were applied.
 */
extern void graph_edits_connect(GraphEdits *edits, uint32 linked, Size memory);

/*
 * The changed rows, ascending by slot. nseeds is 0. Forgets the changes.
 * palloc'd in the current context, but for those of graph_edits_set_live(),
 * which go with the edits.
 */
extern void graph_edits_take(GraphEdits *edits, LinkedRows *rows);

/*
 * What a linker or VACUUM may use: maintenance_work_mem, or autovacuum_work_mem
 * in an autovacuum worker.
 */
extern Size link_memory(void);

/*
 * Be interrupted, and sleep as the vacuum cost delay says (only VACUUM has
 * one).
 */
extern void link_pause(void);

#endif							/* GPUANN_GRAPH_EDITS_H */
