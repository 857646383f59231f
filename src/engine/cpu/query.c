/*
 * query.c
 *		A graph query on the CPU engine: an exact scan of the pending rows, a
 *		graph search, and the merge of both.
 *
 * Pending rows are scanned first. A row that is linked meanwhile has its edges
 * before it leaves the pending map, so one of the two finds it. At the end
 * every result's version is checked again: a slot that was overwritten
 * meanwhile is dropped, because its old row was dead, and its new row is beyond
 * the position that the query covers.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu.h"
#include "engine/seeds.h"
#include "engine/select.h"

/* GraphAccess: read a row and the slot's state. */
static uint32_t
query_access_row(void *context, uint32_t slot, uint32_t *neighbours, SlotState *state)
{
	const QueryTask *task = context;
	const Mirror *mirror = task->entry->mirror;
	uint64_t	word = mirror_word(mirror, slot);

	state->version = WORD_VERSION(word);
	state->live = !(word & WORD_DEAD);
	return mirror_read_row(mirror, slot, task->in.rows, neighbours);
}

/* GraphAccess: fast distances. */
static void
query_access_fast(void *context, const uint32_t *slots, uint32_t count, double *out)
{
	const QueryTask *task = context;

	mirror_fast_many(task->entry->mirror, &task->wide, slots, count, out);
}

/* GraphAccess: exact distances. */
static void
query_access_exact(void *context, const uint32_t *slots, uint32_t count, double *out)
{
	const QueryTask *task = context;
	uint64_t	word;

	for (uint32_t i = 0; i < count; i++)
		out[i] = mirror_exact(task->entry->mirror, task->in.vector, slots[i], &word);
}

/* GraphAccess: whether a slot may be an answer. */
static bool
query_access_admit(void *context, uint32_t slot, uint32_t *version)
{
	const QueryTask *task = context;
	uint64_t	word = mirror_word(task->entry->mirror, slot);

	*version = WORD_VERSION(word);
	return query_admits(&task->in, slot, word);
}

/* GraphAccess: prefetch a slot's row and state word. */
static void
query_access_expect(void *context, uint32_t slot)
{
	const QueryTask *task = context;

	mirror_prefetch_row(task->entry->mirror, slot);
}

/*
 * GraphAccess. Seeds may be replaced concurrently, in which case a list may
 * contain seeds of another one.
 */
static uint32_t
query_access_seed_list(void *context, uint32_t i, uint32_t *slots)
{
	const QueryTask *task = context;
	const Mirror *mirror = task->entry->mirror;
	uint32_t	nseeds = atomic_load_explicit(&mirror->nseeds, memory_order_acquire);
	uint32_t	start = seed_list_start(i, nseeds);
	uint32_t	count = 0;

	for (uint32_t j = start; j < start + seed_list_length(nseeds); j++)
	{
		uint32_t	seed = atomic_load_explicit(&mirror->seeds[j], memory_order_relaxed);

		if (seed < task->in.rows)
			slots[count++] = seed;
	}
	return count;
}

/* GraphAccess: whether two slots have the same vector. */
static bool
query_access_equal(void *context, uint32_t slot_a, uint32_t slot_b)
{
	return mirror_equal(((const QueryTask *) context)->entry->mirror, slot_a, slot_b);
}

/* GraphAccess: a sketch of a slot's vector. */
static uint32_t
query_access_sketch(void *context, uint32_t slot)
{
	return mirror_sketch(((const QueryTask *) context)->entry->mirror, slot);
}

/* Search the graph; the results are in the worker's scratch. */
static EngineStatus
search_graph(QueryTask *task, CpuWorker *worker, GraphAnswer *answer)
{
	const Mirror *mirror = task->entry->mirror;
	const EngineQuery *in = &task->in;
	uint32_t	tried = in->seeds > 0 ? in->seeds : ENGINE_SEEDS_TRIED;
	uint32_t	nseeds = atomic_load_explicit(&mirror->nseeds, memory_order_acquire);
	uint32_t   *seeds;
	GraphAccess access = {.context = task,
						  .row = query_access_row,
						  .walk_distances = query_access_fast,
						  .exact_distances = query_access_exact,
						  .expect = query_access_expect,
						  .equal = query_access_equal,
						  .sketch = query_access_sketch,
						  .often_tied = mirror->spec.type == ELEMENT_BIT};
	GraphQuery	query = {0};
	EngineStatus status;

	/*
	 * Results are measured once more at the end: a slot may have been
	 * overwritten after its distance was computed and before its version was
	 * read with its row.
	 */
	if (in->reference)
		access.walk_distances = query_access_exact;
	else if (tried == ENGINE_SEEDS_TRIED)
		access.seed_list = query_access_seed_list;
	if (in->has_beyond || in->exclude != NULL || in->filter != NULL)
		access.admit = query_access_admit;
	seeds = malloc((tried < nseeds ? tried : nseeds) * sizeof(uint32_t) + 1);
	if (seeds == NULL)
		return ENGINE_NO_MEMORY;
	for (uint32_t i = 0; i < nseeds && query.nseeds < tried; i++)
	{
		uint32_t	seed = atomic_load_explicit(&mirror->seeds[i], memory_order_relaxed);

		if (seed < in->rows)
			seeds[query.nseeds++] = seed;
	}
	query.ef = query_breadth(task);
	query.max_iterations = in->max_iterations;
	query.seeds = seeds;
	query.has_beyond = in->has_beyond;
	query.beyond_distance = in->beyond_distance;
	query.beyond_slot = in->beyond_slot;
	query.ties_by_slot = in->reference;
	status = graph_search(&access, &query, worker->search, answer);
	free(seeds);
	return status;
}

/*
 * Merge the results of pending rows, which come first in task->results, and
 * others.
 */
void
query_merge(QueryTask *task, const SearchResult *others, uint32_t nothers, uint32_t npending)
{
	const Mirror *mirror = task->entry->mirror;
	SearchResult *results = task->results;
	uint32_t	count = npending;
	uint32_t	kept = 0;

	for (uint32_t i = 0; i < nothers; i++)
		if (!(mirror_word(mirror, others[i].slot) & WORD_PENDING))
			results[count++] = others[i];
	sort_results(results, count);
	for (uint32_t i = 0; i < count && kept < task->in.k; i++)
	{
		uint64_t	word = mirror_word(mirror, results[i].slot);

		if (WORD_VERSION(word) != results[i].version || (word & (WORD_DEAD | WORD_WRITING)))
			continue;
		if (kept > 0 && results[kept - 1].slot == results[i].slot)
			continue;
		results[kept++] = results[i];
	}
	task->count = kept;
}

/*
 * Whether a filter left a graph query with fewer than k results, or with most
 * of them farther away than the search has explored. Rows that pass may then be
 * anywhere, so all rows are scanned. A query with max_iterations gets what it
 * asked for.
 */
static bool
filter_left_few(const QueryTask *task, const GraphAnswer *graph)
{
	const EngineQuery *in = &task->in;

	return in->filter != NULL && !in->reference && in->max_iterations == 0 &&
		(task->count < in->k || (uint64_t) graph->reached * FILTER_TRUST < in->k);
}

/* Run a graph query. */
void
query_run_graph(QueryTask *task, CpuWorker *worker)
{
	const EngineQuery *in = &task->in;
	GraphAnswer answer = {0};
	ExactScan	scan;
	uint32_t	found;

	if (in->filter != NULL && task->row_filter == NULL)
		query_count_admitted(task);
	if (query_admits_few(task))
	{
		query_run_few(task);
		return;
	}
	task->status = ENGINE_NO_MEMORY;
	/*
	 * up to k pending rows, and k + pending results of the graph, because some
	 * of these may have been pending
	 */
	task->results = malloc((size_t) in->k * 3 * sizeof(SearchResult));
	if (task->results != NULL)
	{
		exact_begin(&scan, task, task->results, in->k);
		mirror_visit_pending(scan.mirror, in->rows, exact_consider, &scan);
		task->status = search_graph(task, worker, &answer);
	}
	if (task->status != ENGINE_OK)
	{
		engine_error(&task->error, task->status, "out of memory for a search with ef %u", in->ef);
		return;
	}
	found = answer.count < in->k + scan.count ? answer.count : in->k + scan.count;
	query_merge(task, answer.results, found, scan.count);
	task->counters = answer.counters;
	task->counters.pending = scan.distances;
	task->counters.distances += scan.distances;
	if (filter_left_few(task, &answer))
		query_scan_all(task);
}
