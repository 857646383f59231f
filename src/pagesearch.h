/*
 * pagesearch.h
 *		The page path: searches over relation pages, in the backend, through the buffer manager.
 */
#ifndef GPUANN_PAGESEARCH_H
#define GPUANN_PAGESEARCH_H

#include "engine/distance.h"
#include "pages.h"
#include "pending.h"

/* A place in the order of answers: (distance, slot). */
typedef struct SearchBound
{
	bool		set;
	double		distance;
	uint32		slot;
} SearchBound;

/* A set of slots: what a scan has emitted. */
typedef struct SlotSet
{
	uint32	   *places;			/* open addressing; NO_SLOT is empty */
	uint32		mask;			/* places - 1 */
	uint32		count;
	MemoryContext memory;
} SlotSet;

extern SlotSet *slot_set_create(MemoryContext memory);
extern void slot_set_add(SlotSet *set, uint32 slot);
extern bool slot_set_has(const SlotSet *set, uint32 slot);

typedef struct PageQuery
{
	Relation	index;
	const IndexFormat *format;
	const void *vector;			/* the query's elements */
	MetaPage   *meta;			/* as captured at the start of the scan, after its snapshot ... */
	ListBounds *bounds;			/* ... both renewed if trimming overtakes them */
	MemoryContext memory;		/* results and scratch live here */
} PageQuery;

/* Which answers an exact search wants. */
typedef struct ExactRange
{
	SearchBound beyond;			/* only after this */
	SearchBound until;			/* only up to this, itself included */
	const SlotSet *skip;		/* not these; or NULL */
	uint32		room;			/* the nearest so many */
} ExactRange;

typedef struct PageAnswer
{
	SearchResult *results;		/* palloc'd, ordered by (distance, slot) */
	uint32		count;
	uint32		visited;		/* slots whose distance was computed */
	uint32		pending;		/* of them, list entries searched exactly */
	bool		more;			/* there were more than room; graph: the list was full */
	uint32		before;			/* exact: live slots at or before range->beyond that skip does not have */
} PageAnswer;

/* The distance kernels of an index; chosen once per process. */
extern const DistanceKernels *page_kernels(const IndexFormat *format);

/* The graph search over buffers, and unlinked list entries exactly. ef results at most. */
extern void page_graph_search(const PageQuery *query, uint32 ef, PageAnswer *answer);

/* The nearest live slots of a range, exactly. With a range->skip, slots at or before range->beyond that it does not have are counted. */
extern void page_exact_search(const PageQuery *query, const ExactRange *range, PageAnswer *answer);

/*
 * Exact distances of the list entries [from, end) that are live: what a mirror that covers `from` has not seen. False: trimmed.
 */
extern bool page_pending_search(const PageQuery *query, uint64 from, const ExactRange *range, PageAnswer *answer);

/* Live slots after after_slot (NO_SLOT: from the first) in slot order, at distance 0: the answer to a NULL query. */
extern void page_any_order(const PageQuery *query, uint32 after_slot, uint32 room, PageAnswer *answer);

#endif							/* GPUANN_PAGESEARCH_H */
