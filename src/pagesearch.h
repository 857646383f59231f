/*
 * pagesearch.h
 *		The page path: searches over relation pages, in the backend, through the buffer manager.
 */
#ifndef GPUANN_PAGESEARCH_H
#define GPUANN_PAGESEARCH_H

#include "pages.h"
#include "pending.h"

/* Only answers after this (distance, slot). */
typedef struct SearchBound
{
	bool		set;
	double		distance;
	uint32		slot;
} SearchBound;

typedef struct PageQuery
{
	Relation	index;
	const IndexFormat *format;
	const void *vector;			/* the query's elements */
	MemoryContext memory;		/* results and scratch live here */
} PageQuery;

typedef struct PageAnswer
{
	SearchResult *results;		/* palloc'd, ordered by (distance, slot) */
	uint32		count;
	uint32		visited;		/* slots whose distance was computed */
	uint32		pending;		/* of them, list entries searched exactly */
	bool		more;			/* exact: there were more than room */
} PageAnswer;

/*
 * The graph search over buffers, and unlinked entries exactly. ef results at most. Works on a bounds captured by the caller at the start
 * of its scan (after its snapshot); rereads the bounds if trimming overtakes it.
 */
extern void page_graph_search(const PageQuery *query, uint32 ef, const SearchBound *beyond, PageAnswer *answer);

/* The nearest `room` live slots after the bound, exactly; skip (optional bitmap over slots) are left out. */
extern void page_exact_search(const PageQuery *query, uint32 room, const SearchBound *beyond, const Bitmapset *skip,
							  PageAnswer *answer);

/* Exact distances of the list entries [from, to) that are live: what a mirror that covers `from` has not seen. False: trimmed. */
extern bool page_pending_search(const PageQuery *query, const ListBounds *bounds, uint64 from, uint64 to,
								uint32 room, PageAnswer *answer);

/* Every live slot in slot order at distance 0: the answer to a NULL query. */
extern void page_any_order(const PageQuery *query, uint32 after_slot, uint32 room, PageAnswer *answer);

#endif							/* GPUANN_PAGESEARCH_H */
