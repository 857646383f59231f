/*
 * graph_edits_private.h
 *		What these share: graph_edits.c keeps the changed rows, graph_read.c
 *		searches the graph with them, graph_offers.c gives reverse edges.
 */
#ifndef GPUANN_GRAPH_EDITS_PRIVATE_H
#define GPUANN_GRAPH_EDITS_PRIVATE_H

#include "link/graph_edits.h"

/* An edge that target may take in. */
typedef struct EdgeOffer
{
	uint32		target;
	uint32		source;
	double		distance;		/* between them */
} EdgeOffer;

struct edited_hash;

/*
 * Changed rows that came ascending by slot, as many of the server's do. They
 * are written as they lie, and found by their slots without a hash.
 */
typedef struct OrderedRows
{
	uint32		count;
	uint32		room;			/* 0: slots and rows are not allocated */
	uint32	   *slots;
	uint32	   *rows;			/* degree each, NO_SLOT after the last */
	uint32	   *places;			/* by slot: where among them its row is, or NO_SLOT; NULL: not yet
								 * allocated */
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

	MemoryContext row_memory;	/* the changes: emptied when they are taken out */
	struct edited_hash *rows;
	char	   *block;			/* where the next row is cut from */
	Size		block_left;
	OrderedRows ordered;		/* further changes, of other slots */

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
	const float *distances;		/* of the neighbours; NULL: not known */
	bool		live;
} ChangedRow;

/* False if the slot's row is as on its page. */
extern bool graph_edits_changed(const GraphEdits *edits, uint32 slot, ChangedRow *row);

/*
 * The row that a target has when it has taken in the edges offered, which are
 * all its own, and the distances of its neighbours; returns how many, or
 * NO_CHANGE.
 */
#define NO_CHANGE	PG_UINT32_MAX
extern uint32 graph_edits_accept(GraphEdits *edits, const EdgeOffer *offers, uint32 count,
								 uint32 *neighbours, float *distances);

#endif							/* GPUANN_GRAPH_EDITS_PRIVATE_H */
