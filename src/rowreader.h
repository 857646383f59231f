/*
 * rowreader.h
 *		Reading the graph that is under change: rows, vectors, searches, and the choice of neighbours. One per thread.
 *
 * The process's own reader may do everything. Readers of other threads (rowthreads.h) know nothing of PostgreSQL: they take pages that this
 * process knows the buffers of, without pins, and where that fails they say so; the process then does the same work itself. The changes
 * themselves (rowedits.h) stand still while several readers are at work.
 */
#ifndef GPUANN_ROWREADER_H
#define GPUANN_ROWREADER_H

#include <stdatomic.h>

#include "rowedits.h"
#include "rowvectors.h"
#include "engine/openrow.h"

typedef struct RowReader RowReader;

/* An edge that target may take in. */
typedef struct EdgeOffer
{
	uint32		target;
	uint32		source;
	double		distance;		/* between them */
} EdgeOffer;

/* The process's own, with a cache of so many bytes; and one for a thread, which stops when *stop says so. In the current context. */
extern RowReader *row_reader_create(RowEdits *edits, uint32 next_fresh, Size memory);
extern RowReader *row_reader_create_for_thread(const RowReader *own, atomic_bool *stop);

/* Count what was read, and free a thread's working memory; or, after an error, do the latter only. The rest goes with its context. */
extern void row_reader_end(RowReader *reader);
extern void row_reader_free(RowReader *reader);

/* Whether something could not be done since this was asked last, by a thread's reader: then nothing that it said since counts. */
extern bool row_reader_failed(RowReader *reader);

/* Be interrupted, and sleep as VACUUM's cost delay says: the process's own reader only. */
extern void row_reader_pause(const RowReader *reader);

extern RowVectors *row_reader_vectors(const RowReader *reader);

/* The row of a slot as it is now, with the changes; returns how many neighbours. */
extern uint32 row_reader_get(RowReader *reader, uint32 slot, uint32 *neighbours, SlotState *state);

/* Distances from a slot, in single precision. */
extern void row_reader_distances(RowReader *reader, uint32 from, const uint32 *slots, uint32 count, double *out);
extern double row_reader_distance(RowReader *reader, uint32 slot_a, uint32 slot_b);

/* As row_edits_search() and row_edits_search_alike(). */
extern uint32 row_reader_search(RowReader *reader, uint32 slot, uint32 ef, bool alike, Candidate *candidates);

/* Choose a slot's row among candidates (slot and distance set); chosen has room for degree. Returns how many; the first *kept do not just fill it. */
extern uint32 row_reader_choose(RowReader *reader, uint32 slot, Candidate *candidates, uint32 count, Candidate *chosen, uint32 *kept);

/*
 * The row that a target has when it has taken in the edges offered, which are all its own, and the distances of its neighbours; returns how many,
 * or NO_CHANGE.
 */
#define NO_CHANGE	PG_UINT32_MAX
extern uint32 row_reader_accept(RowReader *reader, const EdgeOffer *offers, uint32 count, uint32 *row, float *distances);

#endif							/* GPUANN_ROWREADER_H */
