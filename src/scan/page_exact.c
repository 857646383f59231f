/*
 * page_exact.c
 *		Exact searches over pages: of the whole index or of a part of the
 *		pending list; and all rows in any order.
 *
 * Node pages say which slots are live; their vectors are then read in physical
 * order, each page once, and distances are computed in place. One content lock
 * is held at a time. A slot that dies or is reused in between is detected by
 * its version when its row is emitted. Most rows are rejected by their fast
 * distance, as in the engine's exact search.
 */
#include "postgres.h"

#include "scan/page_search.h"
#include "page/read_ahead.h"

#include "engine/select.h"
#include "miscadmin.h"
#include "base/sorts.h"
#include "storage/bufmgr.h"

#define FIRST_ROOM	1024
#define CHOSEN_SLOTS 4096		/* slots of a search of chosen ones that are collected at a time */
#define MIN_AHEAD	64			/* fewest slots whose vectors are read ahead */

/* An exact search under way. */
typedef struct ExactSearch
{
	const PageQuery *query;
	const ExactRange *range;
	const DistanceKernels *kernels;
	BufferAccessStrategy strategy;
	uint32	   *slots;			/* live slots whose vectors are next, ascending */
	uint32	   *versions;
	uint32		count;
	void	   *vector;			/* a copy of one that crosses pages */
	ReadAhead  *ahead;			/* of their pages; NULL: they are read one by one */
	uint32		ahead_next;		/* slots[ahead_next ..) are to be read ahead, */
	uint32		ahead_left;		/* and this many bytes of the one before, */
	VectorPlace ahead_place;	/* which are here */
	BlockNumber ahead_last;		/* the block named last */
	Buffer		buffer;			/* the vector page that is locked, ... */
	BlockNumber locked;			/* ... and its block */
	float	   *wide;			/* the query in single precision; NULL: fast distances reject
								 * nothing */
	double		relative;		/* their error */
	double		absolute;
	SearchResult *heap;			/* the nearest so far, farthest first */
	uint32		allocated;
	uint32		kept;
	PageAnswer *answer;
} ExactSearch;

/*
 * The distance kernels of an index. CPUID is slow on virtual machines, so it is
 * executed once.
 */
const DistanceKernels *
page_kernels(const IndexFormat *format)
{
	static const DistanceKernels *known[ELEMENT_BIT + 1][METRIC_JACCARD + 1];
	const DistanceKernels **kernels = &known[format->type][format->metric];

	if (*kernels == NULL)
		*kernels = distance_kernels((ElementType) format->type, (Metric) format->metric, SIMD_BEST);
	if (*kernels == NULL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("gpuann has no distance for type %d and metric %d", format->type,
							   format->metric)));
	return *kernels;
}

/*
 * Whether a place in the order is at or before a bound.
 */
static inline bool
not_after(double distance, uint32 slot, const SearchBound *bound)
{
	return !engine_before(bound->distance, bound->slot, distance, slot);
}

/*
 * Offer a live slot whose distance is known.
 */
static void
exact_offer(ExactSearch *search, uint32 slot, uint32 version, double distance)
{
	const ExactRange *range = search->range;
	SearchResult entry = {distance, slot, version};

	search->answer->visited++;
	if (range->beyond.set && not_after(distance, slot, &range->beyond))
	{
		if (range->skip != NULL && !slot_set_has(range->skip, slot))
			search->answer->before++;
		return;
	}
	if (range->until.set && !not_after(distance, slot, &range->until))
		return;
	if (range->skip != NULL && slot_set_has(range->skip, slot))
		return;
	if (search->kept == range->room)
	{
		search->answer->more = true;
		if (result_before(&entry, &search->heap[0]))
			farthest_sift_down(search->heap, search->kept, 0, entry);
		return;
	}
	if (search->kept == search->allocated)
	{
		search->allocated = Min(search->allocated * 2, range->room);
		search->heap = repalloc_huge(search->heap, sizeof(SearchResult) * (Size) search->allocated);
	}
	farthest_push(search->heap, &search->kept, entry);
}

/*
 * Whether the fast distance of a slot suffices to reject it: it is after the
 * upper bound, or not among the nearest. Counts it as visited. A row slightly
 * after the bound may set `more`.
 */
static inline bool
turned_away(ExactSearch *search, uint32 slot, const void *vector)
{
	const ExactRange *range = search->range;
	bool		full = search->kept == range->room && range->room > 0;
	float		fast;
	double		least;

	if (search->wide == NULL || !(full || range->until.set))
		return false;
	fast = search->kernels->fast(search->wide, vector, search->query->format->dims, 0);
	least = fast - (search->relative * fast + search->absolute);
	if (range->until.set && least > range->until.distance)
	{
		search->answer->visited++;
		return true;
	}
	if (!full || !(least > search->heap[0].distance))
		return false;
	search->answer->visited++;
	if (range->skip == NULL || !slot_set_has(range->skip, slot))
		search->answer->more = true;
	return true;
}

/*
 * Lock a vector page instead of the one before.
 */
static void
lock_vector_page(ExactSearch *search, BlockNumber block)
{
	if (BufferIsValid(search->buffer))
	{
		if (search->locked == block)
			return;
		UnlockReleaseBuffer(search->buffer);
		search->buffer = InvalidBuffer;
	}
	CHECK_FOR_INTERRUPTS();
	if (search->ahead != NULL)
		search->buffer = read_ahead_page(search->ahead, block, PAGE_VECTOR, false);
	else
		search->buffer = read_page_in_bulk(search->query->index, block, PAGE_VECTOR,
										   BUFFER_LOCK_SHARE, false, search->strategy);
	search->locked = block;
}

/*
 * The next page that vectors of the slots collected are on: each page once.
 */
static BlockNumber
next_vector_block(void *state)
{
	ExactSearch *search = state;
	const IndexFormat *format = search->query->format;

	for (;;)
	{
		BlockNumber block;

		if (search->ahead_left == 0)
		{
			if (search->ahead_next == search->count)
				return InvalidBlockNumber;
			search->ahead_place = vector_place(format, search->slots[search->ahead_next++]);
			search->ahead_left = format->vector_bytes;
		}
		block = search->ahead_place.block;
		search->ahead_left -=
			Min(search->ahead_left, (uint32) GPUANN_PAYLOAD - search->ahead_place.offset);
		if (search->ahead_left > 0)
			vector_place_next(format, &search->ahead_place);
		if (block != search->ahead_last)
			return search->ahead_last = block;
	}
}

/*
 * Begin to read the vectors of the slots collected.
 */
static void
begin_vectors(ExactSearch *search)
{
	if (search->count < MIN_AHEAD)
		return;
	search->ahead_next = search->ahead_left = 0;
	search->ahead_last = InvalidBlockNumber;
	search->ahead =
		read_ahead_begin(search->query->index, search->strategy, next_vector_block, search);
}

static void
end_vectors(ExactSearch *search)
{
	if (BufferIsValid(search->buffer))
		UnlockReleaseBuffer(search->buffer);
	search->buffer = InvalidBuffer;
	if (search->ahead != NULL)
		read_ahead_end(search->ahead);
	search->ahead = NULL;
}

/*
 * A slot's vector: on its locked page, or a copy if it crosses pages.
 */
static const void *
vector_of(ExactSearch *search, uint32 slot)
{
	const IndexFormat *format = search->query->format;
	VectorPlace place = vector_place(format, slot);
	uint32		left = format->vector_bytes;
	char	   *out = search->vector;

	lock_vector_page(search, place.block);
	if (place.offset + left <= GPUANN_PAYLOAD)
		return VectorBytesOf(BufferGetPage(search->buffer)) + place.offset;
	for (;;)
	{
		uint32		part = Min(left, (uint32) GPUANN_PAYLOAD - place.offset);

		memcpy(out, VectorBytesOf(BufferGetPage(search->buffer)) + place.offset, part);
		out += part;
		left -= part;
		if (left == 0)
			return search->vector;
		vector_place_next(format, &place);
		lock_vector_page(search, place.block);
	}
}

/*
 * Compute and offer the distances of the slots collected.
 */
static void
offer_collected(ExactSearch *search)
{
	const PageQuery *query = search->query;

	begin_vectors(search);
	for (uint32 i = 0; i < search->count; i++)
	{
		const void *vector = vector_of(search, search->slots[i]);

		if (!turned_away(search, search->slots[i], vector))
			exact_offer(search, search->slots[i], search->versions[i],
				  search->kernels->exact(query->vector, vector, query->format->dims));
	}
	end_vectors(search);
	search->count = 0;
}

/*
 * Begin: room slots can be collected at a time.
 */
static void
exact_begin(ExactSearch *search, const PageQuery *query, const ExactRange *range, uint32 collect,
			PageAnswer *answer)
{
	const IndexFormat *format = query->format;

	memset(answer, 0, sizeof(*answer));
	memset(search, 0, sizeof(*search));
	search->query = query;
	search->range = range;
	search->answer = answer;
	search->kernels = page_kernels(format);
	if (RelationGetNumberOfBlocks(query->index) > (BlockNumber) NBuffers / 4)
		search->strategy = GetAccessStrategy(BAS_BULKREAD);
	search->slots = MemoryContextAllocHuge(query->memory, sizeof(uint32) * (Size) Max(collect, 1));
	search->versions =
		MemoryContextAllocHuge(query->memory, sizeof(uint32) * (Size) Max(collect, 1));
	search->vector = MemoryContextAlloc(query->memory, format->vector_bytes);
	if (format->metric == METRIC_L2 || format->metric == METRIC_L1)
	{
		search->wide = MemoryContextAlloc(query->memory, sizeof(float) * format->dims);
		search->kernels->widen(query->vector, format->dims, search->wide);
		search->relative = fast_error_relative(format->dims);
		search->absolute = fast_error_absolute(format->dims);
	}
	search->allocated = Max(Min(range->room, FIRST_ROOM), 1);
	search->heap = MemoryContextAlloc(query->memory, sizeof(SearchResult) * search->allocated);
}

/*
 * End: make the answer of the rows kept.
 */
static void
exact_end(ExactSearch *search)
{
	sort_answer(search->heap, search->kept);
	search->answer->results = search->heap;
	search->answer->count = search->kept;
	pfree(search->slots);
	pfree(search->versions);
	pfree(search->vector);
	if (search->wide != NULL)
		pfree(search->wide);
	if (search->strategy != NULL)
		FreeAccessStrategy(search->strategy);
}

/* Node pages in slot order, and the live rows of the last one read. */
typedef struct NodePages
{
	const PageQuery *query;
	ReadAhead  *ahead;
	uint32		asked;			/* the first slot of the page that is read ahead next, */
	uint32		next;			/* and of the one read next */
	PageRow    *rows;
	uint32		count;
} NodePages;

static BlockNumber
next_node_block(void *state)
{
	NodePages  *pages = state;
	uint32		slot = pages->asked;

	if (slot >= pages->query->bounds->next_fresh)
		return InvalidBlockNumber;
	pages->asked =
		node_page_end(pages->query->format, slot, pages->query->bounds->next_fresh);
	return node_block(pages->query->format, slot);
}

static void
node_pages_begin(NodePages *pages, const PageQuery *query, uint32 first,
				 BufferAccessStrategy strategy)
{
	*pages = (NodePages) {.query = query, .asked = first, .next = first};
	pages->rows =
		MemoryContextAlloc(query->memory, sizeof(PageRow) * query->format->nodes_per_page);
	pages->ahead = read_ahead_begin(query->index, strategy, next_node_block, pages);
}

/*
 * Read the next page. False: there is none.
 */
static bool
node_pages_next(NodePages *pages)
{
	const IndexFormat *format = pages->query->format;
	uint32		last = pages->query->bounds->next_fresh;
	uint32		slot = pages->next;
	Buffer		buffer;
	Page		page;

	if (slot >= last)
		return false;
	CHECK_FOR_INTERRUPTS();
	buffer = read_ahead_page(pages->ahead, node_block(format, slot), PAGE_NODE, true);
	page = BufferGetPage(buffer);
	pages->count = 0;
	pages->next = node_page_end(format, slot, last);
	for (; slot < pages->next && !PageIsNew(page); slot++)
	{
		const NodeRecord *node = node_record(format, page, slot);

		if (NodeState(node) == NODE_LIVE)
			pages->rows[pages->count++] = (PageRow) {slot, node->version, node->tid};
	}
	UnlockReleaseBuffer(buffer);
	return true;
}

static void
node_pages_end(NodePages *pages)
{
	read_ahead_end(pages->ahead);
	pfree(pages->rows);
}

/*
 * Of the slots collected from this one on, count those that the range does not
 * skip, and end the search where there are enough. Returns where it ends.
 */
static uint32
end_of_range(ExactSearch *search, uint32 from, uint32 end)
{
	const ExactRange *range = search->range;

	for (uint32 i = from; i < search->count && range->most > 0; i++)
	{
		if (range->skip != NULL && slot_set_has(range->skip, search->slots[i]))
			continue;
		if (search->answer->added == range->most)
		{
			end = search->slots[i];
			search->count = i;
			break;
		}
		search->answer->added++;
	}
	return end;
}

/*
 * The nearest live slots of a range, exactly.
 */
void
page_exact_search(const PageQuery *query, const ExactRange *range, PageAnswer *answer)
{
	const IndexFormat *format = query->format;
	uint32		last = query->bounds->next_fresh;
	uint32		end = range->from_slot;
	ExactSearch search;
	NodePages	pages;

	exact_begin(&search, query, range, format->superblock_slots + format->nodes_per_page, answer);
	node_pages_begin(&pages, query, end, search.strategy);
	while (end < last && node_pages_next(&pages))
	{
		uint32		collected = search.count;

		for (uint32 i = 0; i < pages.count; i++)
		{
			search.slots[search.count] = pages.rows[i].slot;
			search.versions[search.count++] = pages.rows[i].version;
		}
		end = end_of_range(&search, collected, pages.next);
		if (end < pages.next)
			last = end;
		if (end % format->superblock_slots == 0 || end == last)
			offer_collected(&search);
	}
	answer->end_slot = end;
	node_pages_end(&pages);
	exact_end(&search);
}

/*
 * Collect those of the listed slots, which are sorted, that are live.
 */
static void
collect_listed(ExactSearch *search, const uint32 *listed, uint32 count)
{
	const PageQuery *query = search->query;
	const IndexFormat *format = query->format;

	for (uint32 i = 0; i < count;)
	{
		BlockNumber block = node_block(format, listed[i]);
		Buffer		buffer;
		Page		page;

		CHECK_FOR_INTERRUPTS();
		buffer = read_page(query->index, block, PAGE_NODE, BUFFER_LOCK_SHARE, false);
		page = BufferGetPage(buffer);
		for (; i < count && node_block(format, listed[i]) == block; i++)
		{
			const NodeRecord *node = node_record(format, page, listed[i]);

			if (NodeState(node) != NODE_LIVE || (i > 0 && listed[i] == listed[i - 1]))
				continue;
			search->slots[search->count] = listed[i];
			search->versions[search->count++] = node->version;
		}
		UnlockReleaseBuffer(buffer);
	}
}

/*
 * The slots of the list entries from a position on, sorted.
 */
bool
page_pending_slots(const PageQuery *query, uint64 from, uint32 **slots, uint32 *count)
{
	MemoryContext old;
	bool		there;

	*slots = NULL;
	*count = 0;
	if (from >= query->bounds->end)
		return true;
	old = MemoryContextSwitchTo(query->memory);
	there = pending_read(query->index, query->format, query->bounds, from, query->bounds->end,
						 slots, count);
	MemoryContextSwitchTo(old);
	if (there)
		sort_slots(*slots, *count);
	return there;
}

/*
 * Exact distances of such slots.
 */
void
page_listed_search(const PageQuery *query, const uint32 *slots, uint32 count,
				   const ExactRange *range, PageAnswer *answer)
{
	ExactSearch search;

	memset(answer, 0, sizeof(*answer));
	if (count == 0)
		return;
	exact_begin(&search, query, range, count, answer);
	collect_listed(&search, slots, count);
	offer_collected(&search);
	exact_end(&search);
	answer->pending = answer->visited;
}

/*
 * Exact distances of slots that the caller chose.
 */
void
page_chosen_search(const PageQuery *query, NextSlots next, void *state, const ExactRange *range,
				   PageAnswer *answer)
{
	uint32	   *chosen = MemoryContextAlloc(query->memory, sizeof(uint32) * CHOSEN_SLOTS);
	uint32		count;
	ExactSearch search;

	exact_begin(&search, query, range, CHOSEN_SLOTS, answer);
	while ((count = next(state, chosen, CHOSEN_SLOTS)) > 0)
	{
		collect_listed(&search, chosen, count);
		offer_collected(&search);
	}
	exact_end(&search);
	pfree(chosen);
}

/*
 * Exact distances of the list entries from a position on.
 */
bool
page_pending_search(const PageQuery *query, uint64 from, const ExactRange *range,
					PageAnswer *answer)
{
	uint32	   *slots;
	uint32		count;

	memset(answer, 0, sizeof(*answer));
	if (!page_pending_slots(query, from, &slots, &count))
		return false;
	page_listed_search(query, slots, count, range, answer);
	if (slots != NULL)
		pfree(slots);
	return true;
}

/*
 * Live slots in slot order, at distance 0.
 */
void
page_any_order(const PageQuery *query, uint32 after_slot, uint32 room, PageAnswer *answer)
{
	NodePages	pages;

	memset(answer, 0, sizeof(*answer));
	answer->results = MemoryContextAllocHuge(
		query->memory, sizeof(SearchResult) * ((Size) room + query->format->nodes_per_page));
	node_pages_begin(&pages, query, after_slot == NO_SLOT ? 0 : after_slot + 1, NULL);
	while (answer->count < room && node_pages_next(&pages))
		for (uint32 i = 0; i < pages.count; i++)
			answer->results[answer->count++] =
				(SearchResult) {0, pages.rows[i].slot, pages.rows[i].version};
	answer->more = pages.next < query->bounds->next_fresh;
	node_pages_end(&pages);
}

/*
 * Show the live slots of node pages, with their rows.
 */
void
page_live_rows(const PageQuery *query, TakeRows take, void *state)
{
	NodePages	pages;

	node_pages_begin(&pages, query, 0, NULL);
	while (node_pages_next(&pages))
		take(state, pages.rows, pages.count);
	node_pages_end(&pages);
}
