/*
 * graph_edits_private.h
 *		Shared by graph_edits.c, which keeps the changed rows, graph_read.c,
 *		which searches the graph with them, and graph_offers.c, which adds
 *		reverse edges.
 */
#ifndef GPUANN_GRAPH_EDITS_PRIVATE_H
#define GPUANN_GRAPH_EDITS_PRIVATE_H

#include "link/graph_edits.h"

/* A reverse edge offered to target. */
typedef struct EdgeOffer
{
	uint32		target;
	uint32		source;
	double		distance;		/* between them */
} EdgeOffer;

struct edited_hash;

/*
 * Changed rows that were set in ascending order of slots, as many of the
 * server's are. They are written from here without a copy, and found by slot
 * without a hash table.
 */
typedef struct OrderedRows
{
	uint32		count;
	uint32		room;			/* 0: slots and rows are not allocated */
	uint32	   *slots;
	uint32	   *rows;			/* degree each, NO_SLOT after the last */
	uint32	   *places;			/* by slot: index of its row, or NO_SLOT; NULL: not yet allocated */
} OrderedRows;

struct GraphEdits
{
	MemoryContext memory;
	Relation	index;
	const IndexFormat *format;
	uint32		next_fresh;
	uint32		max_rows;

	/* reading */
	RowVectors *vectors;
	SearchScratch *scratch;
	NodeCopy   *node;			/* scratch copy of a node record and its row */

	MemoryContext row_memory;	/* of the changed rows; reset when they are returned */
	struct edited_hash *rows;
	char	   *block;			/* the next row is allocated from here */
	Size		block_left;
	OrderedRows ordered;		/* changed rows of other slots than the hash table's */

	EdgeOffer  *offers;
	uint32		noffers;
	uint32		offer_room;

	const uint32 *seeds;
	uint32		nseeds;
};

/* A changed row. */
typedef struct ChangedRow
{
	const uint32 *neighbours;
	uint32		count;
	const float *distances;		/* of the neighbours; NULL: not computed */
	bool		live;
} ChangedRow;

/* Look up a slot's changed row. False if its row is as on its page. */
extern bool graph_edits_changed(const GraphEdits *edits, uint32 slot, ChangedRow *row);

/*
 * Compute a target's row after adding the edges offered, which are all to this
 * target, and the distances of its neighbours; returns the number of
 * neighbours, or NO_CHANGE.
 */
#define NO_CHANGE	PG_UINT32_MAX
extern uint32 graph_edits_accept(GraphEdits *edits, const EdgeOffer *offers, uint32 count,
								 uint32 *neighbours, float *distances);

#endif							/* GPUANN_GRAPH_EDITS_PRIVATE_H */
