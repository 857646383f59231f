/*
 * lists_search.c
 *		Searches of mirrors with lists: the nearest lists, and their codes,
 *		for a group of queries or for one in parts.
 *
 * Queries of one submit are searched in groups, each by one thread: pairs of
 * query and list are sorted by list, so that codes are read once for all
 * queries of the group that probe it. Every query's nearest list comes first,
 * because then few rows of the others are chosen. A single query with long
 * lists is split into parts: ranges of blocks, which share the least limit.
 * Neither changes the result.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/lists_scan.h"
#include "engine/cpu/lists_search.h"
#include "engine/select.h"

#define COARSE_QUERIES	64		/* queries whose distances to all centroids are computed together */
#define PART_BLOCKS		512		/* fewest blocks of codes for a thread */
#define EXTENDED_BYTES	((size_t) 2 << 20)	/* bytes of the extended tables of one list; of a
											 * single one, if it is larger */

/* A list that a query probes. */
typedef struct ListPair
{
	uint32_t	query;
	uint32_t	list;
	float		base;			/* the query's part of estimates */
	uint32_t	places;			/* of the list, when the search began */
} ListPair;

struct CpuListSearch
{
	Mirror	   *mirror;
	Lists	   *lists;
	bool		open;			/* there were centroids once pending rows had been searched */
	QueryTask **tasks;
	uint32_t	count;			/* of queries */
	float	   *vectors;		/* count * dims */
	char	   *tables;
	size_t		table_stride;
	uint32_t   *npending;		/* answers among pending rows, of each query */
	ListScan   *scans;			/* of each query; or of each part */
	uint32_t	nscans;
	ListPair   *pairs;			/* of one query: the nearest list first; else sorted by list, but
								 * that those nearest to a query come first */
	uint32_t	npairs;
	_Atomic float shared;		/* of parts */
};

static uint32_t
probed_blocks(uint32_t places)
{
	return (places + QUANTIZER_BLOCK - 1) / QUANTIZER_BLOCK;
}

static void
search_free(CpuListSearch *search)
{
	for (uint32_t i = 0; search->scans != NULL && i < search->nscans; i++)
		list_scan_end(&search->scans[i]);
	free(search->tasks);
	free(search->vectors);
	free(search->tables);
	free(search->npending);
	free(search->scans);
	free(search->pairs);
	free(search);
}

/* Begin the search of a leader and its group. */
static CpuListSearch *
search_create(QueryTask *leader)
{
	CpuListSearch *search = calloc(1, sizeof(*search));
	uint64_t	pairs = 0;

	if (search == NULL)
		return NULL;
	search->mirror = leader->entry->mirror;
	search->lists = search->mirror->lists;
	atomic_store(&search->shared, INFINITY);
	for (QueryTask *task = leader; task != NULL; task = task->group)
	{
		search->count++;
		pairs += lists_probed(task);
	}
	search->table_stride = align_up(quantizer_table_bytes(&search->lists->shape));
	search->tasks = malloc(search->count * sizeof(*search->tasks));
	search->vectors = malloc((size_t) search->count * search->mirror->spec.dims * sizeof(float));
	search->tables = aligned_alloc(ALIGNMENT, search->count * search->table_stride);
	search->npending = calloc(search->count, sizeof(uint32_t));
	search->pairs = malloc(pairs * sizeof(ListPair));
	if (search->tasks != NULL && search->vectors != NULL && search->tables != NULL &&
		search->npending != NULL && search->pairs != NULL)
		return search;
	search_free(search);
	return NULL;
}

/* Allocate scans: one for each query, or parts of the first. */
static bool
scans_begin(CpuListSearch *search, uint32_t parts)
{
	uint32_t	count = parts > 1 ? parts : search->count;
	uint64_t   *places = calloc(search->count, sizeof(uint64_t));
	bool		begun;

	search->scans = calloc(count, sizeof(ListScan));
	begun = places != NULL && search->scans != NULL;
	for (uint32_t i = 0; begun && i < search->npairs; i++)
		places[search->pairs[i].query] += search->pairs[i].places;
	while (begun && search->nscans < count)
	{
		uint32_t	query = parts > 1 ? 0 : search->nscans;

		begun = list_scan_begin(&search->scans[search->nscans++], search->tasks[query],
								search->tables + query * search->table_stride, places[query],
								parts > 1 ? &search->shared : NULL);
	}
	free(places);
	return begun;
}

/* Search the pending rows for a query. */
static bool
search_pending(CpuListSearch *search, QueryTask *task, uint32_t number)
{
	ExactScan	pending;

	search->tasks[number] = task;
	task->results = malloc((size_t) task->in.k * 2 * sizeof(SearchResult));
	if (task->results == NULL)
		return false;
	exact_begin(&pending, task, task->results, task->in.k);
	mirror_visit_pending(search->mirror, task->in.rows, exact_consider, &pending);
	search->npending[number] = pending.count;
	task->counters.pending = task->counters.distances = pending.distances;
	return true;
}

/* Compute the tables of a query. */
static void
prepare_query(CpuListSearch *search, uint32_t number)
{
	uint32_t	dims = search->mirror->spec.dims;
	float	   *vector = search->vectors + (size_t) number * dims;

	memcpy(vector, search->tasks[number]->wide.elements, dims * sizeof(float));
	if (search->mirror->spec.metric == METRIC_COSINE)
		quantizer_make_unit(vector, dims);
	quantizer_prepare(search->lists->quantizer, vector,
					  search->tables + number * search->table_stride);
}

/*
 * Choose the lists that a query probes, the nearest first: by distance, or for
 * inner products by product.
 */
static void
choose_lists(CpuListSearch *search, uint32_t number, const float *values, SearchResult *heap)
{
	const Lists *lists = search->lists;
	const float *vector = search->vectors + (size_t) number * lists->shape.dims;
	uint32_t	probes = lists_probed(search->tasks[number]);
	uint32_t	count = 0;

	for (uint32_t i = 0; i < lists->count; i++)
	{
		double		value = values[i];

		if (lists->shape.metric == METRIC_IP)
			value -= lists->set.half_norms[i];
		(void) farthest_offer(heap, &count, probes,
							  (SearchResult) {.distance = isnan(value) ? INFINITY : value,
											  .slot = i});
	}
	sort_results(heap, count);
	for (uint32_t i = 0; i < count; i++)
	{
		ListPair   *pair = &search->pairs[search->npairs++];
		const float *centroid = lists->floats + (size_t) heap[i].slot * lists->shape.dims;
		const DistanceKernels *kernels =
			lists->shape.metric == METRIC_L2 ? lists->squares : lists->products;

		pair->query = number;
		pair->list = heap[i].slot;
		pair->places = atomic_load_explicit(&lists->lists[pair->list].count, memory_order_acquire);
		pair->base = (float) kernels->exact(vector, centroid, lists->shape.dims);
	}
}

/* Find the lists of all queries. */
static bool
choose_all_lists(CpuListSearch *search)
{
	const Centroids *set = &search->lists->set;
	size_t		stride = centroids_stride(set);
	uint32_t	most = search->count < COARSE_QUERIES ? search->count : COARSE_QUERIES;
	float	   *values = aligned_alloc(ALIGNMENT, align_up(most * stride * sizeof(float)));
	SearchResult *heap = malloc(search->lists->count * sizeof(SearchResult));
	const float *rows[COARSE_QUERIES];

	for (uint32_t first = 0; values != NULL && heap != NULL && first < search->count; first += most)
	{
		uint32_t	left = search->count - first;
		uint32_t	count = left < most ? left : most;

		for (uint32_t i = 0; i < count; i++)
			rows[i] = search->vectors + (size_t) (first + i) * set->dims;
		centroids_values(set, rows, count, values);
		for (uint32_t i = 0; i < count; i++)
			choose_lists(search, first + i, values + i * stride, heap);
	}
	free(values);
	free(heap);
	return values != NULL && heap != NULL;
}

/*
 * Sort pairs by list, each query's nearest list before all others; they lie by
 * query.
 */
static bool
sort_pairs(CpuListSearch *search)
{
	uint32_t	lists = search->lists->count;
	uint32_t   *begins = calloc((size_t) 2 * lists + 1, sizeof(uint32_t));
	ListPair   *sorted = malloc((size_t) search->npairs * sizeof(ListPair) + 1);
	const ListPair *pairs = search->pairs;

	if (begins == NULL || sorted == NULL)
	{
		free(begins);
		free(sorted);
		return false;
	}
	for (uint32_t pass = 0; pass < 2; pass++)
	{
		for (uint32_t i = 0; i < search->npairs; i++)
		{
			bool		other = i > 0 && pairs[i - 1].query == pairs[i].query;
			uint32_t   *place = &begins[other * lists + pairs[i].list + (pass == 0)];

			if (pass == 1)
				sorted[*place] = pairs[i];
			++*place;
		}
		for (uint32_t i = 1; pass == 0 && i <= 2 * lists; i++)
			begins[i] += begins[i - 1];
	}
	free(begins);
	free(search->pairs);
	search->pairs = sorted;
	return true;
}

/* Count the probes of each list, those of a group at once. */
static void
count_probes(const CpuListSearch *search)
{
	uint32_t	end;

	for (uint32_t begin = 0; begin < search->npairs; begin = end)
	{
		uint32_t	list = search->pairs[begin].list;

		for (end = begin + 1; end < search->npairs && search->pairs[end].list == list;)
			end++;
		atomic_fetch_add_explicit(&search->lists->probed[list], end - begin, memory_order_relaxed);
	}
}

static void
prefetch_block(const Lists *lists, const ListSegment *segment, uint32_t number)
{
	prefetch_bytes((const char *) list_block(lists, segment, number), lists->block_stride);
}

/* One scan of a list. */
typedef struct ListPass
{
	CpuListSearch *search;
	const ListPair *pairs;		/* with the list */
	uint32_t	npairs;
	ListScan   *only;			/* of all pairs; or NULL: each by the scan of its query */
	uint32_t   *extended;		/* a table for each pair, if the list has sets; or NULL */
	size_t		entries;		/* of each table */
} ListPass;

/*
 * Pairs with a list that are scanned together: as many as have extended tables.
 */
static uint32_t
pairs_at_once(const CoocSets *sets, uint32_t npairs)
{
	size_t		most = sets == NULL ? npairs
		: EXTENDED_BYTES / (cooc_table_entries(sets) * sizeof(uint32_t));

	return most == 0 ? 1 : most < npairs ? (uint32_t) most : npairs;
}

/*
 * Compute the tables that the words of a list address. Without memory for them
 * plain codes are scanned.
 */
static void
extend_tables(ListPass *pass, const CoocSets *sets)
{
	const CpuListSearch *search = pass->search;

	if (sets == NULL)
		return;
	pass->entries = cooc_table_entries(sets);
	pass->extended = malloc(pass->npairs * pass->entries * sizeof(uint32_t));
	for (uint32_t p = 0; pass->extended != NULL && p < pass->npairs; p++)
		cooc_prepare(sets, search->tables + pass->pairs[p].query * search->table_stride,
					 pass->extended + p * pass->entries);
}

/* Scan a block, whose first place is `before` of the list, for all pairs. */
static void
scan_block(const ListPass *pass, const ListBlock *block, uint32_t before,
		   const SegmentWords *segment_words, const CodedBlock *coded)
{
	BlockWords	words = {0};

	if (coded != NULL && coded->length > 0)
	{
		words.words = segment_words->words + coded->at;
		words.length = coded->length;
	}
	for (uint32_t p = 0; p < pass->npairs; p++)
	{
		const ListPair *pair = &pass->pairs[p];
		uint32_t	left = pair->places > before ? pair->places - before : 0;

		if (left == 0)
			continue;
		words.extended = words.length > 0 ? pass->extended + p * pass->entries : NULL;
		list_scan_block(pass->only != NULL ? pass->only : &pass->search->scans[pair->query], block,
						left < QUANTIZER_BLOCK ? left : QUANTIZER_BLOCK, pair->base,
						words.length > 0 ? &words : NULL, words.length > 0 ? coded->changes : 0);
	}
}

/* Scan blocks [first, end) of a list for the pairs of a pass. */
static void
scan_pass(const ListPass *pass, uint32_t first, uint32_t end)
{
	const Lists *lists = pass->search->lists;
	const List *list = &lists->lists[pass->pairs->list];
	const ListSegment *segment = atomic_load_explicit(&list->first, memory_order_acquire);
	const ListSegment *next;
	uint32_t	number = 0;

	for (; segment != NULL && number < end; segment = next)
	{
		uint32_t	i = first > number ? first - number : 0;
		uint32_t	blocks = end - number < segment->blocks ? end - number : segment->blocks;
		const SegmentWords *words = pass->extended == NULL ? NULL
			: atomic_load_explicit(&segment->words, memory_order_acquire);

		next = atomic_load_explicit(&segment->next, memory_order_acquire);
		for (; i < blocks; i++)
		{
			if (i + 1 < segment->blocks)
				prefetch_block(lists, segment, i + 1);
			else if (next != NULL)
				prefetch_block(lists, next, 0);
			scan_block(pass, list_block(lists, segment, i), (number + i) * QUANTIZER_BLOCK, words,
					   words != NULL ? &words->blocks[i] : NULL);
		}
		number += segment->blocks;
	}
}

/*
 * The same for pairs with a list, each by the scan of its query, or by one scan.
 */
static void
scan_list(CpuListSearch *search, const ListPair *pairs, uint32_t npairs, uint32_t first, uint32_t end,
		  ListScan *only)
{
	const CoocSets *sets =
		atomic_load_explicit(&search->lists->lists[pairs->list].sets, memory_order_acquire);
	uint32_t	most = pairs_at_once(sets, npairs);

	for (uint32_t p = 0; p < npairs; p += most)
	{
		ListPass	pass = {search, pairs + p, npairs - p < most ? npairs - p : most, only, NULL, 0};

		extend_tables(&pass, sets);
		scan_pass(&pass, first, end);
		free(pass.extended);
	}
}

/* Scan all lists. */
static void
scan_pairs(CpuListSearch *search)
{
	uint32_t	end;

	for (uint32_t begin = 0; begin < search->npairs; begin = end)
	{
		uint32_t	places = 0;

		for (end = begin; end < search->npairs && search->pairs[end].list ==
			 search->pairs[begin].list; end++)
			if (search->pairs[end].places > places)
				places = search->pairs[end].places;
		scan_list(search, search->pairs + begin, end - begin, 0, probed_blocks(places), NULL);
	}
}

/* Rank what a query's scan has chosen. */
static void
finish_query(CpuListSearch *search, uint32_t query, ListScan *scan)
{
	QueryTask  *task = search->tasks[query];
	uint32_t	probes = lists_probed(task);
	uint32_t	found = list_scan_rerank(scan, search->npending[query]);

	query_merge(task, task->results + task->in.k, found, search->npending[query]);
	task->counters.expanded = probes;
	task->counters.iterations = scan->estimated;
	task->status = scan->no_memory ? ENGINE_NO_MEMORY : ENGINE_OK;
	if (task->in.filter != NULL && task->count < task->in.k && probes < search->lists->count)
		query_scan_all(task);
}

/*
 * Set the errors of a group's queries, which failed for lack of memory.
 */
static void
end_group(QueryTask *leader, bool failed)
{
	for (QueryTask *task = leader; task != NULL; task = task->group)
	{
		if (failed)
			task->status = ENGINE_NO_MEMORY;
		if (task->status != ENGINE_OK)
			engine_error(&task->error, task->status, "out of memory for a search of %u lists",
						 task->in.probes);
	}
}

/* Threads worth using for the first query. */
static uint32_t
parts_of(const CpuListSearch *search, uint32_t threads)
{
	uint64_t	blocks = 0;

	if (search->count > 1)
		return 1;
	for (uint32_t i = 0; i < search->npairs; i++)
		blocks += probed_blocks(search->pairs[i].places);
	blocks /= PART_BLOCKS;
	return blocks < 2 ? 1 : blocks < threads ? (uint32_t) blocks : threads;
}

uint32_t
query_run_lists(QueryTask *leader, uint32_t threads)
{
	CpuListSearch *search = search_create(leader);
	uint32_t	number = 0;
	uint32_t	parts;
	bool		ready = search != NULL;

	for (QueryTask *task = leader; task != NULL && ready; task = task->group)
		ready = search_pending(search, task, number++);
	/*
	 * Only now: rows that a first training and link take from the pending map
	 * are in lists by then. If read before the pending rows, a search could
	 * find them in neither.
	 */
	if (ready)
		search->open = atomic_load_explicit(&search->lists->open, memory_order_acquire);
	if (ready && search->open)
	{
		for (number = 0; number < search->count; number++)
			prepare_query(search, number);
		ready = choose_all_lists(search) && (search->count == 1 || sort_pairs(search));
	}
	if (ready)
		count_probes(search);
	parts = ready ? parts_of(search, threads) : 1;
	ready = ready && scans_begin(search, parts);
	if (ready && parts > 1)
	{
		leader->lists = search;
		return parts;
	}
	if (ready)
		scan_pairs(search);
	for (uint32_t i = 0; ready && i < search->count; i++)
		finish_query(search, i, &search->scans[i]);
	end_group(leader, !ready);
	if (search != NULL)
		search_free(search);
	return 0;
}

void
query_run_lists_part(QueryTask *task, uint32_t part)
{
	CpuListSearch *search = task->lists;
	uint64_t	total = 0;
	uint64_t	begin;
	uint64_t	end;

	for (uint32_t i = 0; i < search->npairs; i++)
		total += probed_blocks(search->pairs[i].places);
	begin = total * part / search->nscans;
	end = total * (part + 1) / search->nscans;
	total = 0;
	for (uint32_t i = 0; i < search->npairs && total < end; i++)
	{
		uint32_t	blocks = probed_blocks(search->pairs[i].places);

		if (total + blocks > begin)
			scan_list(search, &search->pairs[i], 1,
					  begin > total ? (uint32_t) (begin - total) : 0,
					  end - total < blocks ? (uint32_t) (end - total) : blocks,
					  &search->scans[part]);
		total += blocks;
	}
}

void
query_merge_lists(QueryTask *task)
{
	CpuListSearch *search = task->lists;

	for (uint32_t part = 1; part < search->nscans; part++)
		list_scan_merge(&search->scans[0], &search->scans[part]);
	finish_query(search, 0, &search->scans[0]);
	end_group(task, false);
	search_free(search);
	task->lists = NULL;
}
