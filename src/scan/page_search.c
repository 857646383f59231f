/*
 * page_search.c
 *		The graph search over relation pages: graph_search() of the engine,
 *		reaching rows and vectors through the buffer manager.
 *
 * While walking, distances are computed in single precision, in place, without
 * pin and lock (buffer_hints.h); the survivors are ranked again by the exact
 * distance, under both. Graph rows are read under pin and share lock, one at a
 * time.
 */
#include "postgres.h"

#include <math.h>

#include "scan/page_search.h"

#include "engine/equal_rows.h"
#include "engine/search.h"
#include "engine/seeds.h"
#include "engine/select.h"
#include "page/unpinned_vectors.h"
#include "miscadmin.h"
#include "base/scratch.h"
#include "base/sorts.h"
#include "utils/memutils.h"

#define PINS			UNPINNED_MAX	/* vectors read at once, or buffers pinned */
#define CACHE_LINE		64

/* A graph search under way. */
struct PageGraph
{
	const PageQuery *query;
	const DistanceKernels *kernels;
	void	   *wide_memory;
	float	   *wide;			/* the query as fast distances want it, in wide_memory */
	float		inverse_norm;	/* cosine: of the query */
	uint32		next_fresh;		/* slots below it exist; rises during the search */
	void	   *vector;			/* a copy of one */
	void	   *other;			/* and of another that it is compared with; NULL: none yet */
	BufferHints hints;
};

/*
 * Whether a slot exists. Others may have appended and linked since the bounds
 * were read.
 */
static bool
slot_exists(PageGraph *graph, uint32 slot)
{
	MetaPage	meta;
	PendingBounds bounds;

	if (slot < graph->next_fresh)
		return true;
	pending_bounds(graph->query->index, graph->query->format, &meta, &bounds);
	graph->next_fresh = bounds.next_fresh;
	return slot < graph->next_fresh;
}

/* A seed is a slot that exists. */
static void
check_seed(PageGraph *graph, uint32 seed)
{
	if (!slot_exists(graph, seed))
		report_corrupt(graph->query->index, 1, "a seed is a slot that does not exist");
}

/*
 * Read a slot's graph row. Only a linked slot that is not free has one.
 */
static uint32_t
row_of_slot(void *context, uint32_t slot, uint32_t *neighbours, SlotState *state)
{
	PageGraph  *graph = context;
	const IndexFormat *format = graph->query->format;
	BlockNumber block = node_block(format, slot);
	Buffer		buffer = hints_pin(&graph->hints, block);
	Page		page = BufferGetPage(buffer);
	const NodeRecord *node = node_record(format, page, slot);
	uint32		count = 0;

	state->live = false;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	check_page(graph->query->index, buffer, PAGE_NODE, true);
	if (!PageIsNew(page))
	{
		state->live = NodeState(node) == NODE_LIVE;
		state->version = node->version;
		if ((node->flags & NODE_LINKED) != 0 && NodeState(node) != NODE_ABSENT &&
			NodeState(node) != NODE_FREE)
		{
			const uint32 *row = graph_row(format, page, slot);

			while (count < format->degree && row[count] != NO_SLOT)
			{
				neighbours[count] = row[count];
				count++;
			}
		}
	}
	UnlockReleaseBuffer(buffer);

	for (uint32 i = 0; i < count; i++)
	{
		if (!slot_exists(graph, neighbours[i]))
			report_corrupt(graph->query->index, block,
						   "an edge leads to a slot that does not exist");
	}
	return count;
}

/*
 * The walking distance of a vector in memory.
 */
static inline double
walk_distance(const PageGraph *graph, const void *vector)
{
	uint32		dims = graph->query->format->dims;
	float		scale = 0;

	if (graph->query->format->metric == METRIC_COSINE)
	{
		float		norm = graph->kernels->squared_norm(vector, dims);

		if (!(norm > 0))
			return INFINITY;
		scale = graph->inverse_norm / sqrtf(norm);
	}
	return graph->kernels->fast(graph->wide, vector, dims, scale);
}

/*
 * The distance of a vector in memory: exact, or while walking.
 */
static inline double
distance_of(const PageGraph *graph, const void *vector, bool exact)
{
	double		distance;

	if (exact)
		return graph->kernels->exact(graph->query->vector, vector, graph->query->format->dims);
	distance = walk_distance(graph, vector);
	return isnan(distance) ? INFINITY : distance;
}

/*
 * Prefetch what check_page reads.
 */
static inline void
prefetch_ends(const char *page)
{
	__builtin_prefetch(page);
	__builtin_prefetch(page + BLCKSZ - MAXALIGN(sizeof(PageTail)));
}

/*
 * Distances of at most PINS slots.
 *
 * While walking, vector pages are not checked: header and tail lie on other
 * memory pages than the vector, and fetching them costs a quarter of the
 * search. A damaged vector can only misdirect the walk; what becomes an answer
 * is checked.
 */
static void
distances_of_few(PageGraph *graph, const uint32 *slots, uint32 count, bool exact, double *out)
{
	const IndexFormat *format = graph->query->format;
	Relation	index = graph->query->index;
	VectorPlace places[PINS];
	Buffer		buffers[PINS];

	for (uint32 i = 0; i < count; i++)
	{
		places[i] = vector_place(format, slots[i]);
		hints_prefetch(&graph->hints, places[i].block);
	}
	for (uint32 i = 0; i < count; i++)
	{
		buffers[i] = InvalidBuffer;
		if (places[i].offset + format->vector_bytes > GPUANN_PAYLOAD)
			continue;
		buffers[i] = hints_pin(&graph->hints, places[i].block);
		if (exact)
			prefetch_ends(BufferGetPage(buffers[i]));
		unpinned_prefetch(buffers[i], places[i].offset, format->vector_bytes);
	}
	for (uint32 i = 0; i < count; i++)
	{
		if (!BufferIsValid(buffers[i]))
		{
			read_vector(index, format, slots[i], graph->vector);
			out[i] = distance_of(graph, graph->vector, exact);
			continue;
		}
		LockBuffer(buffers[i], BUFFER_LOCK_SHARE);
		if (exact)
			check_page(index, buffers[i], PAGE_VECTOR, false);
		out[i] =
			distance_of(graph, VectorBytesOf(BufferGetPage(buffers[i])) + places[i].offset, exact);
		UnlockReleaseBuffer(buffers[i]);
	}
}

/*
 * Copy a vector that crosses pages without pins; false if that cannot be.
 */
static bool
peek_crossing(PageGraph *graph, VectorPlace place)
{
	uint32		left = graph->query->format->vector_bytes;
	char	   *out = graph->vector;

	while (left > 0)
	{
		uint32		part = Min(left, (uint32) GPUANN_PAYLOAD - place.offset);
		Buffer		hint = hint_of(&graph->hints, place.block);
		const char *page = hints_peek(&graph->hints, place.block, hint);

		if (page == NULL)
			return false;
		memcpy(out, VectorBytesOf((Page) page) + place.offset, part);
		if (!hints_peeked(&graph->hints, place.block, hint))
			return false;
		out += part;
		left -= part;
		vector_place_next(graph->query->format, &place);
	}
	return true;
}

/*
 * The walking distance of a slot, read without a pin; false if that cannot be.
 */
static inline bool
peek_distance(PageGraph *graph, const UnpinnedVector *at, double *distance)
{
	if (at->page == NULL)
		return false;
	if (!hints_vector_is_whole(graph->query->format, at))
	{
		if (!peek_crossing(graph, at->place))
			return false;
		*distance = distance_of(graph, graph->vector, false);
		return true;
	}
	*distance = distance_of(graph, hints_vector_elements(at), false);
	return hints_peeked(&graph->hints, at->place.block, at->hint);
}

/*
 * Walking distances of at most PINS slots: first without pins, of those whose
 * buffers are known, then the others.
 */
static void
walk_few(PageGraph *graph, const uint32 *slots, uint32 count, double *out)
{
	UnpinnedVector places[PINS];
	uint32		unknown[PINS];
	uint32		where[PINS];
	double		distances[PINS];
	uint32		unknowns = 0;

	unpinned_find(&graph->hints, graph->query->format, slots, count, places);
	for (uint32 i = 0; i < count; i++)
	{
		if (peek_distance(graph, &places[i], &out[i]))
			continue;
		unknown[unknowns] = slots[i];
		where[unknowns++] = i;
	}
	if (unknowns == 0)
		return;
	distances_of_few(graph, unknown, unknowns, false, distances);
	for (uint32 i = 0; i < unknowns; i++)
		out[where[i]] = distances[i];
}

static void
walk_distances(void *context, const uint32_t *slots, uint32_t count, double *out)
{
	for (uint32 done = 0; done < count; done += PINS)
		walk_few(context, slots + done, Min(count - done, PINS), out + done);
}

/*
 * Prefetch a graph row that may be read next: descriptor, header, record and
 * tail.
 */
static void
expect_row(void *context, uint32_t slot)
{
	PageGraph  *graph = context;
	const IndexFormat *format = graph->query->format;
	Buffer		hint = hint_of(&graph->hints, node_block(format, slot));
	const char *page;
	const char *row;

	if (hint == InvalidBuffer)
		return;
	page = BufferBlocks + (Size) (hint - 1) * BLCKSZ;
	row = (const char *) graph_row(format, (Page) page, slot);
	__builtin_prefetch(GetBufferDescriptor(hint - 1));
	prefetch_ends(page);
	__builtin_prefetch(node_record(format, (Page) page, slot));
	for (uint32 line = 0; line < graph_row_bytes(format); line += CACHE_LINE)
		__builtin_prefetch(row + line);
}

/*
 * Read the seeds listed with one of those tried. They may have been replaced
 * since the metapage was read; its count says where a list lies.
 */
static uint32_t
read_seed_list(void *context, uint32_t i, uint32_t *slots)
{
	PageGraph  *graph = context;
	uint32		nseeds = graph->query->meta->seeds;
	uint32		length = seed_list_length(nseeds);

	if (length == 0)
		return 0;
	read_some_seeds(graph->query->index, seed_list_start(i, nseeds), length, slots);
	for (uint32 j = 0; j < length; j++)
		check_seed(graph, slots[j]);
	return length;
}

static void
exact_distances(void *context, const uint32_t *slots, uint32_t count, double *out)
{
	for (uint32 done = 0; done < count; done += PINS)
		distances_of_few(context, slots + done, Min(count - done, PINS), true, out + done);
}

/*
 * The vector of a slot, valid until the next call.
 */
static const char *
copy_of_vector(PageGraph *graph, uint32 slot)
{
	UnpinnedVector at;

	unpinned_find(&graph->hints, graph->query->format, &slot, 1, &at);
	if (at.page == NULL || !peek_crossing(graph, at.place))
		read_vector(graph->query->index, graph->query->format, slot, graph->vector);
	return graph->vector;
}

/*
 * Whether two slots have the same vector.
 */
static bool
equal_vectors(void *context, uint32_t slot_a, uint32_t slot_b)
{
	PageGraph  *graph = context;
	uint32		bytes = graph->query->format->vector_bytes;

	if (graph->other == NULL)
		graph->other = MemoryContextAlloc(graph->query->memory, bytes);
	memcpy(graph->other, copy_of_vector(graph, slot_a), bytes);
	return memcmp(graph->other, copy_of_vector(graph, slot_b), bytes) == 0;
}

/*
 * A sketch of a slot's vector (equal_rows.h).
 */
static uint32_t
sketch_vector(void *context, uint32_t slot)
{
	PageGraph  *graph = context;

	return vector_sketch(copy_of_vector(graph, slot), graph->query->format->vector_bytes);
}

/*
 * Called once per expansion, with no lock held: a cancel leaves from here.
 */
static bool
serve_interrupts(void *context)
{
	CHECK_FOR_INTERRUPTS();
	return false;
}

/*
 * Widen the query and begin.
 */
static void
graph_begin(PageGraph *graph, const PageQuery *query)
{
	const IndexFormat *format = query->format;

	graph->query = query;
	graph->next_fresh = query->bounds->next_fresh;
	graph->kernels = page_kernels(format);
	hints_begin(&graph->hints, query->index);
	graph->vector = MemoryContextAlloc(query->memory, format->vector_bytes);
	graph->other = NULL;
	graph->wide_memory =
		MemoryContextAlloc(query->memory, sizeof(float) * format->dims + WIDE_ALIGNMENT);
	graph->wide = (float *) TYPEALIGN(WIDE_ALIGNMENT, graph->wide_memory);
	graph->inverse_norm = 0;
	graph->kernels->widen(query->vector, format->dims, graph->wide);
	if (format->metric == METRIC_COSINE)
		graph->inverse_norm = 1 / sqrtf(graph->kernels->squared_norm(query->vector, format->dims));
}

/*
 * End: free everything.
 */
static void
graph_end(PageGraph *graph)
{
	hints_end(&graph->hints);
	pfree(graph->vector);
	if (graph->other != NULL)
		pfree(graph->other);
	pfree(graph->wide_memory);
}

PageGraph *
page_ranker_begin(const PageQuery *query)
{
	PageGraph  *ranker = MemoryContextAllocZero(query->memory, sizeof(PageGraph));

	graph_begin(ranker, query);
	return ranker;
}

void
page_rank(PageGraph *ranker, const uint32 *slots, uint32 count, double *out)
{
	for (uint32 i = 0; i < count; i++)
		if (!slot_exists(ranker, slots[i]))
			report_corrupt(ranker->query->index, node_block(ranker->query->format, slots[i]),
						   "a list has a slot that does not exist");
	exact_distances(ranker, slots, count, out);
}

void
page_ranker_end(PageGraph *ranker)
{
	graph_end(ranker);
	pfree(ranker);
}

/*
 * Search the graph, or continue a search; results are in the walk's scratch.
 */
static void
search_linked(PageGraph *graph, PageWalk *walk, const WalkRound *round, GraphAnswer *found)
{
	const PageQuery *query = graph->query;
	GraphAccess access = {
		.context = graph,
		.row = row_of_slot,
		.walk_distances = walk_distances,
		.exact_distances = exact_distances,
		.interrupted = serve_interrupts,
		.expect = expect_row,
		.seed_list = read_seed_list,
		.equal = equal_vectors,
		.sketch = sketch_vector,
		.often_tied = query->format->type == ELEMENT_BIT
	};
	GraphQuery	wanted = {.ef = round->ef, .resumable = round->go_on};
	ScratchAllocator allocator = scratch_in(query->memory);
	EngineStatus status;

	if (round->most > 0)
		wanted.max_distances = round->most - Min(walk->visited, round->most - 1);
	if (walk->scratch != NULL)
		status = graph_search_resume(&access, &wanted, walk->scratch, found);
	else
	{
		MemoryContext old = MemoryContextSwitchTo(query->memory);
		uint32	   *seeds;

		wanted.nseeds =
			read_seeds(query->index, query->meta, ENGINE_SEEDS_TRIED, &seeds);
		MemoryContextSwitchTo(old);
		for (uint32 i = 0; i < wanted.nseeds; i++)
			check_seed(graph, seeds[i]);
		wanted.seeds = seeds;
		walk->scratch = search_scratch_create(&allocator);
		status = graph_search(&access, &wanted, walk->scratch, found);
		pfree(seeds);
	}
	if (status != ENGINE_OK)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory in a search of index \"%s\"",
														RelationGetRelationName(query->index))));
}

bool
merge_results(const SearchResult *a, uint32 na, const SearchResult *b, uint32 nb, uint32 room,
			  SearchResult *merged, uint32 *count)
{
	uint32		i = 0,
				j = 0;

	*count = 0;
	while ((i < na || j < nb) && *count < room)
	{
		bool		first = j >= nb || (i < na && result_before(&a[i], &b[j]));
		const SearchResult *next = first ? &a[i++] : &b[j++];
		const SearchResult *last = *count > 0 ? &merged[*count - 1] : NULL;

		if (last == NULL || last->slot != next->slot || last->version != next->version)
			merged[(*count)++] = *next;
	}
	return i == na && j == nb;
}

/*
 * Read the list entries that are not linked when a walk begins. The walk keeps
 * them: once it has passed the neighbours of such a row it may not meet the row
 * again, if it is linked and its entry trimmed meanwhile.
 */
static void
read_list(const PageQuery *query, PageWalk *walk)
{
	while (!page_pending_slots(query, query->bounds->linked, &walk->listed, &walk->listed_count))
	{
		/*
		 * Trimmed meanwhile: when the list is read again the same rows are in
		 * the graph.
		 */
		CHECK_FOR_INTERRUPTS();
		pending_bounds(query->index, query->format, query->meta, query->bounds);
	}
}

static void
forget_list(PageWalk *walk)
{
	if (walk->listed != NULL)
		pfree(walk->listed);
	walk->listed = NULL;
	walk->listed_count = 0;
}

/*
 * Forget what a walk has visited.
 */
void
page_walk_end(PageWalk *walk)
{
	search_scratch_free(walk->scratch);
	forget_list(walk);
	if (walk->seen != NULL)
		pfree(walk->seen);
	memset(walk, 0, sizeof(*walk));
}

/*
 * A round of the graph search over buffers, and of list entries, exactly.
 *
 * The list is read first: a row that is no longer in it by then is in the
 * graph.
 */
void
page_walk_round(const PageQuery *query, PageWalk *walk, const WalkRound *round, PageAnswer *answer)
{
	ExactRange	range = {.room = round->ef};
	PageGraph	graph;
	PageAnswer	pending;
	GraphAnswer found;

	if (walk->scratch == NULL)
		read_list(query, walk);
	page_listed_search(query, walk->listed, walk->listed_count, &range, &pending);
	if (walk->scratch == NULL)
		walk->visited = pending.visited;
	graph_begin(&graph, query);
	search_linked(&graph, walk, round, &found);
	graph_end(&graph);

	walk->visited += found.counters.distances;
	memset(answer, 0, sizeof(*answer));
	answer->results = MemoryContextAllocHuge(
		query->memory, sizeof(SearchResult) * ((Size) found.count + pending.count + 1));
	answer->visited = (uint32) Min(walk->visited, PG_UINT32_MAX);
	answer->pending = pending.pending;
	(void) merge_results(found.results, found.count, pending.results, pending.count, round->ef,
						 answer->results, &answer->count);
	/* Dead slots fill a list too. */
	answer->more = found.full || answer->count == round->ef;
	if (!round->go_on)
		page_walk_end(walk);
	if (pending.results != NULL)
		pfree(pending.results);
}

/*
 * Rows of the list that the rest of a walk may have: what a quarter of work_mem
 * holds.
 */
static uint32
pending_room(void)
{
	return (uint32) Min((uint64) work_mem * 1024 / 4 / sizeof(SearchResult), ENGINE_MAX_SLOTS);
}

/*
 * End the search of a walk: collect what it has visited, and its list entries,
 * in the order of their walking distances.
 */
SlotSet *
page_walk_collect(const PageQuery *query, PageWalk *walk, const SlotSet *skip)
{
	uint32		count = graph_search_seen_count(walk->scratch);
	SlotSet    *known = slot_set_create(query->memory);
	ExactRange	range = {.room = pending_room(), .skip = known};
	PageAnswer	pending;

	slot_set_add_all(known, skip);
	walk->seen = MemoryContextAllocHuge(query->memory, sizeof(SearchResult) * ((Size) count + 1));
	graph_search_seen(walk->scratch, walk->seen);
	search_scratch_free(walk->scratch);
	walk->scratch = NULL;
	for (uint32 i = 0; i < count; i++)
	{
		slot_set_add(known, walk->seen[i].slot);
		if (!slot_set_has(skip, walk->seen[i].slot))
			walk->seen[walk->seen_count++] = walk->seen[i];
	}
	page_listed_search(query, walk->listed, walk->listed_count, &range, &pending);
	forget_list(walk);
	page_walk_add(walk, pending.results, pending.count);
	for (uint32 i = 0; i < pending.count; i++)
		slot_set_add(known, pending.results[i].slot);
	if (pending.results != NULL)
		pfree(pending.results);
	walk->visited = known->count;
	return known;
}

/*
 * Give others too.
 */
void
page_walk_add(PageWalk *walk, const SearchResult *results, uint32 count)
{
	walk->seen =
		repalloc_huge(walk->seen, sizeof(SearchResult) * ((Size) walk->seen_count + count + 1));
	if (count > 0)
		memcpy(walk->seen + walk->seen_count, results, sizeof(SearchResult) * count);
	walk->seen_count += count;
	sort_answer(walk->seen, walk->seen_count);
}

/*
 * The version of a slot's row; false if there is none that lives.
 */
static bool
find_version(PageGraph *graph, SearchResult *result)
{
	uint32		neighbours[ENGINE_MAX_DEGREE];
	SlotState	state = {0, false};

	(void) row_of_slot(graph, result->slot, neighbours, &state);
	result->version = state.version;
	return state.live;
}

/*
 * What a walk has visited, ranked exactly, a part at a time.
 */
void
page_walk_rest(const PageQuery *query, PageWalk *walk, const SlotSet *skip, uint32 room,
			   PageAnswer *answer)
{
	uint32		slots[PINS];
	double		distances[PINS];
	PageGraph	graph;

	memset(answer, 0, sizeof(*answer));
	answer->results = MemoryContextAllocHuge(query->memory, sizeof(SearchResult) * (Size) room);
	answer->visited = (uint32) Min(walk->visited, PG_UINT32_MAX);
	graph_begin(&graph, query);
	for (; walk->seen_next < walk->seen_count && answer->count < room; walk->seen_next++)
	{
		SearchResult result = walk->seen[walk->seen_next];

		CHECK_FOR_INTERRUPTS();
		if (!slot_set_has(skip, result.slot) && find_version(&graph, &result))
			answer->results[answer->count++] = result;
	}
	for (uint32 done = 0; done < answer->count; done += PINS)
	{
		uint32		count = Min(answer->count - done, PINS);

		CHECK_FOR_INTERRUPTS();
		for (uint32 i = 0; i < count; i++)
			slots[i] = answer->results[done + i].slot;
		exact_distances(&graph, slots, count, distances);
		for (uint32 i = 0; i < count; i++)
			answer->results[done + i].distance = distances[i];
	}
	graph_end(&graph);
	sort_answer(answer->results, answer->count);
	answer->more = walk->seen_next < walk->seen_count;
}
