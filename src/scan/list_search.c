/*
 * list_search.c
 *		The search of lists over relation pages: the lists nearest to the query
 *		are read, their codes estimated, and rows compared exactly as long as
 *		the codes leave open whether they are among the nearest.
 *
 * Centroids are read under a pin, posting pages under their lock, one at a time
 * (src/lists). What is returned has exact distances (architecture.md, I10).
 */
#include "postgres.h"

#include <math.h>

#include "scan/page_search.h"

#include "engine/select.h"
#include "lists/list_codes.h"
#include "lists/postings.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#define RANKED_AT_ONCE	16
#define PQ_RERANK		20		/* rows compared for each wanted, by estimates: bounds of pq exclude
								 * few (bench/results/lists-2-cores.md) */
#define PQ_TRAINED		16		/* with fewer rows per codeword these are not meaningful */
#define FIRST_ROOM		1024	/* rows that memory is allocated for at first */
#define PAGE_ENTRIES	(GPUANN_PAYLOAD / sizeof(PostingEntry))
#define COSINE_SLACK	1e-6	/* of vectors normalised in single precision */

typedef struct ListSearch
{
	const PageQuery *query;
	const WalkRound *round;
	ListFormat	lists;
	ListsPlan	plan;
	const Quantizer *quantizer;
	float	   *wide;			/* the query; of length one under cosine */
	void	   *tables;
	float		base;			/* of the list being read */
	PageGraph  *ranker;

	SearchResult *candidates;	/* a heap, the least first: by a number that no distance is below,
								 * or by the estimate */
	uint32		count;
	uint32		allocated;
	uint32		room;			/* ranked when it has this many */
	uint32		most_ranked;	/* of those, by their estimates; 0: as many as their bounds leave
								 * open */

	SearchResult *nearest;		/* round->ef of them at most, the farthest first */
	uint32		kept;
	uint32		kept_room;
	SlotSet    *ranked;
	uint64		visited;		/* rows compared exactly */
} ListSearch;

/* ---- which lists ---- */

/*
 * The lists nearest to the query, in order. By inner product these are those
 * of the largest products; else those of the nearest centroids, as rows were
 * assigned.
 */
static SearchResult *
nearest_lists(ListSearch *search, CentroidReader *reader, uint32 probes)
{
	const IndexFormat *format = search->query->format;
	Metric		metric = format->metric == METRIC_IP ? METRIC_IP : METRIC_L2;
	const DistanceKernels *kernels = distance_kernels(ELEMENT_FLOAT, metric, SIMD_BEST);
	SearchResult *lists = palloc(sizeof(SearchResult) * probes);
	uint32		count = 0;

	for (uint32 list = 0; list < search->lists.lists; list++)
	{
		float		distance =
			kernels->fast(search->wide, centroid_of(reader, list), format->dims, 0);
		SearchResult entry = {isnan(distance) ? INFINITY : distance, list, 0};

		(void) farthest_offer(lists, &count, probes, entry);
	}
	sort_results(lists, count);
	return lists;
}

/*
 * The part of estimates that is the list's: the squared distance of the query
 * from its centroid, or their negated product.
 */
static float
base_of_list(const ListSearch *search, CentroidReader *reader, const SearchResult *list)
{
	const DistanceKernels *kernels;

	if (search->query->format->metric != METRIC_COSINE)
		return (float) list->distance;
	kernels = distance_kernels(ELEMENT_FLOAT, METRIC_IP, SIMD_BEST);
	return kernels->fast(search->wide, centroid_of(reader, list->slot), search->query->format->dims,
						 0);
}

/* ---- candidates ---- */

/*
 * The distance from which on candidates are none of the nearest, on the scale
 * of estimates.
 */
static double
key_limit(const ListSearch *search)
{
	double		farthest;

	if (search->kept < search->round->ef)
		return INFINITY;
	farthest = search->nearest[0].distance;
	return search->query->format->metric == METRIC_COSINE ? farthest - 1 + COSINE_SLACK : farthest;
}

/* Take the entries of a posting page. */
static void
take_entries(void *context, const PostingEntry *entries, const unsigned char *codes, uint32 count)
{
	ListSearch *search = context;
	float		estimates[PAGE_ENTRIES];
	float		bounds[PAGE_ENTRIES];
	const float *keys = search->most_ranked > 0 ? estimates : bounds;
	double		limit = search->most_ranked > 0 ? INFINITY : key_limit(search);

	if (search->count + count > search->allocated)
	{
		search->allocated = Max(search->count + count, 2 * search->allocated);
		search->candidates = repalloc_huge(search->candidates,
										   sizeof(SearchResult) * (Size) search->allocated);
	}
	quantizer_estimate(search->quantizer, search->tables, search->base, codes, count, estimates,
					   search->most_ranked > 0 ? NULL : bounds);
	for (uint32 i = 0; i < count; i++)
		if (!(keys[i] > limit))
			nearest_push(search->candidates, &search->count,
						 (SearchResult) {keys[i], entries[i].slot, entries[i].version});
}

/* Whether the round may compare no more rows. */
static bool
is_exhausted(const ListSearch *search)
{
	return search->round->most > 0 && search->visited >= search->round->most;
}

/*
 * Take the next few candidates to be ranked off the heap. 0: there are none.
 */
static uint32
next_few(ListSearch *search, uint32 left, SearchResult *few)
{
	double		limit = search->most_ranked > 0 ? INFINITY : key_limit(search);
	uint32		count = 0;

	while (search->count > 0 && count < Min(left, RANKED_AT_ONCE))
	{
		SearchResult first = nearest_pop(search->candidates, &search->count);

		if (first.distance > limit)
		{
			search->count = 0;
			break;
		}
		if (!slot_set_has(search->ranked, first.slot))
		{
			slot_set_add(search->ranked, first.slot);
			few[count++] = first;
		}
	}
	return count;
}

/* Offer a row that was compared. */
static void
offer_measured(ListSearch *search, SearchResult row)
{
	if (search->kept == search->kept_room && search->kept_room < search->round->ef)
	{
		search->kept_room = Min(search->kept_room * 2, search->round->ef);
		search->nearest =
			repalloc_huge(search->nearest, sizeof(SearchResult) * (Size) search->kept_room);
	}
	(void) farthest_offer(search->nearest, &search->kept, search->round->ef, row);
}

/* Compare candidates exactly, and drop the others. */
static void
rank_candidates(ListSearch *search)
{
	uint32		left = search->most_ranked > 0 ? search->most_ranked : PG_UINT32_MAX;
	SearchResult few[RANKED_AT_ONCE];
	uint32		slots[RANKED_AT_ONCE];
	double		distances[RANKED_AT_ONCE];
	uint32		count;

	while (!is_exhausted(search) && (count = next_few(search, left, few)) > 0)
	{
		CHECK_FOR_INTERRUPTS();
		for (uint32 i = 0; i < count; i++)
			slots[i] = few[i].slot;
		page_rank(search->ranker, slots, count, distances);
		for (uint32 i = 0; i < count; i++)
			offer_measured(search, (SearchResult) {distances[i], slots[i], few[i].version});
		search->visited += count;
		left -= count;
	}
	search->count = 0;
}

/* After a posting page. */
static void
entries_taken(void *context)
{
	ListSearch *search = context;

	if (search->count >= search->room)
		rank_candidates(search);
}

/* ---- a round ---- */

/*
 * The pending rows, exactly. They are searched first: a row that is no longer
 * pending by then is in a list.
 */
static void
take_pending(ListSearch *search, PageAnswer *answer)
{
	const PageQuery *query = search->query;
	ExactRange	range = {.room = search->round->ef};
	PageAnswer	pending;

	while (!page_pending_search(query, query->bounds->linked, &range, &pending))
	{
		/* trimming has overtaken us */
		CHECK_FOR_INTERRUPTS();
		pending_bounds(query->index, query->format, query->meta, query->bounds);
	}
	answer->pending = pending.pending;
	search->visited = pending.visited;
	for (uint32 i = 0; i < pending.count; i++)
	{
		slot_set_add(search->ranked, pending.results[i].slot);
		offer_measured(search, pending.results[i]);
	}
}

/*
 * How many rows are compared for each row wanted. 0: as many as the bounds of
 * their codes leave open.
 */
static uint32
rerank_factor(const ListFormat *lists)
{
	if (gpuann_rerank != GPUANN_UNSET)
		return (uint32) gpuann_rerank;
	if (lists->quantizer != QUANTIZER_PQ || lists->built_rows < (uint64) PQ_TRAINED << lists->bits)
		return 0;
	return PQ_RERANK;
}

/* How lists are read for ef rows. */
static void
plan_lists(Relation index, const ListFormat *lists, uint32 ef, ListsPlan *plan)
{
	plan->lists = lists->lists;
	plan->probes = gpuann_effective_probes(index, lists->lists, ef);
	plan->rerank = (uint32) Min((uint64) rerank_factor(lists) * ef, ENGINE_MAX_SLOTS);
}

void
page_lists_plan(Relation index, const IndexFormat *format, uint32 ef, ListsPlan *plan)
{
	ListFormat	lists;

	list_format_read(index, format, &lists);
	plan_lists(index, &lists, ef, plan);
}

static void
search_begin(ListSearch *search, const PageQuery *query, const WalkRound *round)
{
	const IndexFormat *format = query->format;
	QuantizerShape shape;

	memset(search, 0, sizeof(*search));
	search->query = query;
	search->round = round;
	list_format_read(query->index, format, &search->lists);
	shape = list_shape(format, &search->lists);
	search->wide = palloc(sizeof(float) * format->dims + WIDE_ALIGNMENT);
	search->wide = (float *) TYPEALIGN(WIDE_ALIGNMENT, search->wide);
	list_widen(format, query->vector, search->wide);
	search->tables = palloc(quantizer_table_bytes(&shape));
	search->quantizer = list_quantizer(query->index, format, &search->lists);
	quantizer_prepare(search->quantizer, search->wide, search->tables);
	search->ranker = page_ranker_begin(query);
	plan_lists(query->index, &search->lists, round->ef, &search->plan);
	search->most_ranked = search->plan.rerank;
	search->room = (uint32) Max((Size) work_mem * 1024 / 8 / sizeof(SearchResult), 1024);
	search->allocated = PAGE_ENTRIES;
	search->candidates = palloc(sizeof(SearchResult) * search->allocated);
	search->kept_room = Min(round->ef, FIRST_ROOM);
	search->nearest = palloc(sizeof(SearchResult) * search->kept_room);
	search->ranked = slot_set_create(CurrentMemoryContext);
}

/* Read the lists nearest to the query; returns whether there are others. */
static bool
search_lists(ListSearch *search, PageAnswer *answer)
{
	const PageQuery *query = search->query;
	ListVisitor visitor = {.take = take_entries, .taken = entries_taken, .context = search};
	uint32		probes = search->plan.probes;
	CentroidReader reader;
	SearchResult *lists;

	centroid_reader_begin(&reader, query->index, query->format, &search->lists);
	lists = nearest_lists(search, &reader, probes);
	for (uint32 i = 0; i < probes && !is_exhausted(search); i++)
	{
		search->base = base_of_list(search, &reader, &lists[i]);
		list_visit(query->index, query->format, &search->lists, lists[i].slot, &visitor);
		answer->probes++;
	}
	centroid_reader_end(&reader);
	rank_candidates(search);
	return probes < search->lists.lists;
}

void
page_lists_round(const PageQuery *query, const WalkRound *round, PageAnswer *answer)
{
	MemoryContext memory =
		AllocSetContextCreate(query->memory, "gpuann list search", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(memory);
	ListSearch	search;
	bool		others;

	memset(answer, 0, sizeof(*answer));
	search_begin(&search, query, round);
	take_pending(&search, answer);
	others = search_lists(&search, answer);
	page_ranker_end(search.ranker);
	sort_results(search.nearest, search.kept);
	answer->results = MemoryContextAllocHuge(query->memory,
											 sizeof(SearchResult) * ((Size) search.kept + 1));
	memcpy(answer->results, search.nearest, sizeof(SearchResult) * search.kept);
	answer->count = search.kept;
	answer->visited = (uint32) Min(search.visited, PG_UINT32_MAX);
	answer->more = (others || search.kept == round->ef) && !is_exhausted(&search);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(memory);
}
