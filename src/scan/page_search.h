/*
 * page_search.h
 *		The page path: searches over relation pages, in the backend, through the
 *		buffer manager.
 */
#ifndef GPUANN_PAGE_SEARCH_H
#define GPUANN_PAGE_SEARCH_H

#include "engine/distance.h"
#include "page/pages.h"
#include "page/pending.h"

/* A set of slots: what a scan has emitted. */
typedef struct SlotSet
{
	uint32	   *places;			/* open addressing; NO_SLOT is empty */
	uint32		mask;			/* places - 1 */
	uint32		count;
	MemoryContext memory;
} SlotSet;

extern SlotSet *slot_set_create(MemoryContext memory);
extern void slot_set_add_all(SlotSet *set, const SlotSet *others);
extern void slot_set_add(SlotSet *set, uint32 slot);
extern bool slot_set_has(const SlotSet *set, uint32 slot);
extern void slot_set_free(SlotSet *set);

typedef struct PageQuery
{
	Relation	index;
	const IndexFormat *format;
	const void *vector;			/* the query's elements */
	MetaPage   *meta;			/* as captured at the start of the scan, after its snapshot ... */
	PendingBounds *bounds;			/* ... both renewed if trimming overtakes them */
	MemoryContext memory;		/* results and scratch live here */
} PageQuery;

/* Which answers an exact search wants. */
typedef struct ExactRange
{
	SearchBound beyond;			/* only after this */
	SearchBound until;			/* only up to this, itself included */
	const SlotSet *skip;		/* not these; or NULL */
	uint32		room;			/* results at most */
	uint32		from_slot;		/* only slots from this on, ... */
	uint32		most;			/* ... until this many rows were compared that are not in skip;
								 * 0: no limit */
} ExactRange;

typedef struct PageAnswer
{
	SearchResult *results;		/* palloc'd, ordered by (distance, slot) */
	uint32		count;
	uint32		visited;		/* slots whose distance was computed */
	uint32		pending;		/* of them, list entries searched exactly */
	uint32		probes;			/* lists that were searched */
	bool		more;			/* there were more than room; graph: the list was full */
	uint32		before;			/* exact: live slots at or before range->beyond that skip does not
								 * have */
	uint32		end_slot;		/* exact: the slot at which the range ended, and ... */
	uint32		added;			/* ... with range->most, how many rows of it skip does not have */
} PageAnswer;

struct SearchScratch;

/*
 * A graph search over pages that can be continued: it keeps what it has visited
 * from one round to the next. All zero: not begun. It lives in the memory of
 * its query, and ends with that.
 */
typedef struct PageWalk
{
	struct SearchScratch *scratch;	/* candidates and visited slots; NULL: not begun, or over */
	uint64		visited;		/* rows whose distance was computed, each counted once (but see
								 * page_walk_collect) */
	uint32	   *listed;			/* the list entries that its first round read, sorted; ... */
	uint32		listed_count;	/* ... these are compared in each round, linked meanwhile or not */
	SearchResult *seen;			/* visited and not yet returned, nearest first by walking
								 * distance */
	uint32		seen_count;
	uint32		seen_next;		/* the next one to return */
} PageWalk;

/* What a round of a walk is to do. */
typedef struct WalkRound
{
	uint32		ef;				/* results at most; more than in the round before */
	uint64		most;			/* stop when the walk has visited this many rows; 0: no limit */
	bool		go_on;			/* there may be a further round */
} WalkRound;

/* The distance kernels of an index; chosen once per process. */
extern const DistanceKernels *page_kernels(const IndexFormat *format);

/*
 * The next round of a walk, or its first: the nearest ef of what the graph
 * search over buffers has found so far, and of unlinked list entries, exactly.
 * The answer's count of visited rows is that of the whole walk.
 */
extern void page_walk_round(const PageQuery *query, PageWalk *walk, const WalkRound *round,
							PageAnswer *answer);

/*
 * The nearest round->ef of the rows of the lists nearest to the query, and of
 * pending rows, exactly (list_search.c). Each round starts again, with more
 * lists.
 */
/* How a round that searches for ef rows reads lists. */
typedef struct ListsPlan
{
	uint32		lists;			/* there are */
	uint32		probes;
	uint32		rerank;			/* rows compared, the nearest by estimate; 0: as many as the bounds
								 * of their codes leave open */
} ListsPlan;

extern void page_lists_plan(Relation index, const IndexFormat *format, uint32 ef,
							ListsPlan *plan);

extern void page_lists_round(const PageQuery *query, const WalkRound *round, PageAnswer *answer);

/* Ranks slots by their exact distances. */
typedef struct PageGraph PageGraph;

extern PageGraph *page_ranker_begin(const PageQuery *query);
extern void page_rank(PageGraph *ranker, const uint32 *slots, uint32 count, double *out);
extern void page_ranker_end(PageGraph *ranker);

/* Forget what a walk has visited. */
extern void page_walk_end(PageWalk *walk);

/*
 * End the search of a walk that was begun: from here on it returns what it has
 * visited, and its list entries, without those in skip. Returns the slots of
 * skip and those that it will return. Rows that it has visited in the list and,
 * linked meanwhile, in the graph count once from here on, and list entries that
 * there is no memory for do not count; ...
 */
extern SlotSet *page_walk_collect(const PageQuery *query, PageWalk *walk, const SlotSet *skip);

/* ... with others, that it has not visited; */
extern void page_walk_add(PageWalk *walk, const SearchResult *results, uint32 count);

/*
 * ... the nearest `room` that were not returned yet and are not in skip. They
 * are ordered within the answer; from one answer to the next they are in the
 * order of their walking distances.
 */
extern void page_walk_rest(const PageQuery *query, PageWalk *walk, const SlotSet *skip, uint32 room,
						   PageAnswer *answer);

/*
 * Merge two ordered results into one of at most room, each row once. False:
 * some are left.
 */
extern bool merge_results(const SearchResult *a, uint32 na, const SearchResult *b, uint32 nb,
						  uint32 room, SearchResult *merged, uint32 *count);

/*
 * The nearest live slots of a range, exactly. With a range->skip, slots at or
 * before range->beyond that it does not have are counted.
 */
extern void page_exact_search(const PageQuery *query, const ExactRange *range, PageAnswer *answer);

/*
 * Exact distances of the list entries [from, end) that are live: what a mirror
 * that covers `from` has not seen. False: trimmed.
 */
extern bool page_pending_search(const PageQuery *query, uint64 from, const ExactRange *range,
								PageAnswer *answer);

/*
 * The slots of the list entries from a position on, sorted, in the query's
 * memory; NULL: there are none. False: trimmed.
 */
extern bool page_pending_slots(const PageQuery *query, uint64 from, uint32 **slots, uint32 *count);

/* Exact distances of such slots that are live. */
extern void page_listed_search(const PageQuery *query, const uint32 *slots, uint32 count,
							   const ExactRange *range, PageAnswer *answer);

/* A live slot and its row. */
typedef struct PageRow
{
	uint32		slot;
	uint32		version;
	ItemPointerData tid;
} PageRow;

/* Has the live rows of a node page shown, with no page locked. */
typedef void (*TakeRows) (void *state, const PageRow *rows, uint32 count);

/* Have all live rows shown, in slot order. */
extern void page_live_rows(const PageQuery *query, TakeRows take, void *state);

/* The nearest of a range among such slots that are live, exactly. */
extern void page_chosen_search(const PageQuery *query, NextSlots next, void *state,
							   const ExactRange *range, PageAnswer *answer);

/*
 * Live slots after after_slot (NO_SLOT: from the first) in slot order, at
 * distance 0: the answer to a NULL query.
 */
extern void page_any_order(const PageQuery *query, uint32 after_slot, uint32 room,
						   PageAnswer *answer);

#endif							/* GPUANN_PAGE_SEARCH_H */
