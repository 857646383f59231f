/*
 * exact.c
 *		Exact search: the k nearest live rows of a range, by the exact distance.
 *
 * Most rows are rejected by the fast distance, which costs a fraction of the
 * exact one: if even the lower bound of the exact distance (fast distance less
 * its error bound, see distance.h) is beyond the k-th result so far, the row is
 * rejected. Where the bound does not hold (overflow, scales out of range) the
 * exact distance is computed.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bits.h"
#include "engine/cpu/cpu.h"
#include "engine/select.h"

#define FETCHED_AHEAD		8		/* rows of a filter; a power of two */
#define MIN_SCALE			1e-15f	/* with norms outside this range precision may have been lost */
#define MAX_SCALE			1e15f

/* Whether a bitmap of count slots contains a slot. */
static inline bool
has_slot(const uint64_t *bits, uint32_t count, uint32_t slot)
{
	return slot < count && bit64_is_set(bits, slot);
}

/* Whether a slot with this state word may be a result of a query. */
bool
query_admits(const EngineQuery *query, uint32_t slot, uint64_t word)
{
	if (word & WORD_DEAD)
		return false;
	if (query->exclude != NULL && has_slot(query->exclude, query->exclude_slots, slot))
		return false;
	return query->filter == NULL || has_slot(query->filter, query->filter_slots, slot);
}

/* Begin a scan. results has room for `room` answers. */
void
exact_begin(ExactScan *scan, const QueryTask *task, SearchResult *results, uint32_t room)
{
	uint32_t	dims = task->entry->mirror->spec.dims;

	*scan = (ExactScan) {
		.mirror = task->entry->mirror,
		.query = &task->in,
		.wide = task->wide,
		.results = results,
		.room = room,
		.relative = fast_error_relative(dims),
		.absolute = fast_error_absolute(dims),
	};
}

/*
 * Bound of the difference between the exact distance and a fast one; infinity
 * if unknown.
 */
static double
exact_margin(const ExactScan *scan, float fast, float scale)
{
	switch (scan->mirror->spec.metric)
	{
		case METRIC_L2:
		case METRIC_L1:
			return scan->relative * fast + scan->absolute;	/* relative to the sum itself: no term
															 * is negative */
		case METRIC_IP:
			return scan->relative * scale + scan->absolute; /* relative to the product of the
															 * norms */
		case METRIC_COSINE:
			if (!(scan->wide.scale > MIN_SCALE && scan->wide.scale < MAX_SCALE) ||
				!(scale > scan->wide.scale * MIN_SCALE && scale < scan->wide.scale * MAX_SCALE))
				return INFINITY;
			return scan->relative * 2;	/* the products' magnitudes sum to at most the product of
										 * the norms, by which they are divided */
		case METRIC_HAMMING:
			return 0;			/* integers below 2^24 */
		case METRIC_JACCARD:
			return 2 * FAST_UNIT_ROUNDOFF;
	}
	return INFINITY;
}

/* Whether a slot's fast distance alone proves that it is not a result. */
static bool
fast_distance_rejects(const ExactScan *scan, uint32_t slot)
{
	const EngineQuery *query = scan->query;
	float		scale = scan->wide.scale * mirror_scale(scan->mirror, slot);
	float fast = scan->mirror->kernels->fast(scan->wide.elements, mirror_vector(scan->mirror, slot),
											 scan->mirror->spec.dims, scale);
	double		error;

	if (!isfinite(fast))
		return false;
	error = exact_margin(scan, fast, scale);
	if (!isfinite(error))
		return false;
	return (scan->count == scan->room && fast - error > scan->results[0].distance) ||
		(query->has_beyond && fast + error < query->beyond_distance);
}

/* Add a published slot to the results if it is near enough. */
void
exact_consider(void *context, uint32_t slot)
{
	ExactScan  *scan = context;
	const EngineQuery *query = scan->query;
	uint64_t	word = mirror_word(scan->mirror, slot);
	SearchResult entry;

	if (!query_admits(query, slot, word))
		return;
	scan->distances++;
	if ((scan->count == scan->room || query->has_beyond) && fast_distance_rejects(scan, slot) &&
		mirror_unchanged(scan->mirror, slot, word))
		return;
	entry.slot = slot;
	entry.distance = mirror_exact(scan->mirror, query->vector, slot, &word);
	entry.version = WORD_VERSION(word);
	if (word & WORD_DEAD)
		return;
	if (query->has_beyond &&
		!engine_before(query->beyond_distance, query->beyond_slot, entry.distance, slot))
		return;
	(void) farthest_offer(scan->results, &scan->count, scan->room, entry);
}

/*
 * The first slot of [slot, end) that the filter, if there is one, has; or end.
 * A filter may have few rows of many: words without any are skipped.
 */
static inline uint32_t
next_admitted(const EngineQuery *query, uint32_t slot, uint32_t end)
{
	uint32_t	most = end < query->filter_slots ? end : query->filter_slots;

	if (query->filter == NULL)
		return slot;
	while (slot < most)
	{
		uint64_t	word = query->filter[slot / 64] >> (slot % 64);

		if (word != 0)
		{
			slot += (uint32_t) __builtin_ctzll(word);
			return slot < most ? slot : end;
		}
		slot = (slot / 64 + 1) * 64;
	}
	return end;
}

/*
 * Rows without a filter lie one behind another, and the processor fetches them
 * ahead itself; those that a filter has are prefetched.
 */
void
exact_scan(ExactScan *scan, uint32_t first, uint32_t end)
{
	uint32_t	fetched[FETCHED_AHEAD];
	uint32_t	begun = 0;
	uint32_t	done = 0;
	uint32_t	next = next_admitted(scan->query, first, end);

	for (; scan->query->filter == NULL && next < end; next++)
		exact_consider(scan, next);
	for (;;)
	{
		for (; begun - done < FETCHED_AHEAD && next < end; begun++)
		{
			fetched[begun % FETCHED_AHEAD] = next;
			mirror_prefetch_word(scan->mirror, next);
			mirror_prefetch(scan->mirror, next);
			next = next_admitted(scan->query, next + 1, end);
		}
		if (begun == done)
			return;
		exact_consider(scan, fetched[done++ % FETCHED_AHEAD]);
	}
}

/* Answer a query by an exact scan of all rows, or all that its filter has. */
void
query_scan_all(QueryTask *task)
{
	ExactScan	scan;

	exact_begin(&scan, task, task->results, task->in.k);
	exact_scan(&scan, 0, task->in.rows);
	task->count = scan.count;
	sort_results(task->results, task->count);
	task->counters.distances += scan.distances;
}

/* Search one range of the rows. */
void
query_run_exact(QueryTask *task, uint32_t part)
{
	uint32_t	first = (uint32_t) ((uint64_t) task->in.rows * part / task->nparts);
	uint32_t	end = (uint32_t) ((uint64_t) task->in.rows * (part + 1) / task->nparts);
	uint32_t	room = task->in.k < end - first ? task->in.k : end - first;
	SearchResult *results = malloc((room > 0 ? room : 1) * sizeof(SearchResult));
	ExactScan	scan;

	if (results == NULL)
	{
		atomic_store(&task->no_memory, true);
		return;
	}
	exact_begin(&scan, task, results, room);
	exact_scan(&scan, first, end);
	task->parts[part] = (PartAnswer) {results, scan.count, scan.distances};
}

/* Merge the results of a query's parts. */
void
query_merge_exact(QueryTask *task)
{
	uint64_t	total = 0;

	for (uint32_t i = 0; i < task->nparts; i++)
	{
		total += task->parts[i].count;
		task->counters.distances += task->parts[i].distances;
	}
	task->results = malloc((total > 0 ? total : 1) * sizeof(SearchResult));
	if (task->results == NULL || atomic_load(&task->no_memory))
	{
		task->status = ENGINE_NO_MEMORY;
		engine_error(&task->error, ENGINE_NO_MEMORY, "out of memory for %u results", task->in.k);
		return;
	}
	for (uint32_t i = 0; i < task->nparts; i++)
	{
		if (task->parts[i].count > 0)
			memcpy(task->results + task->count, task->parts[i].results,
				   task->parts[i].count * sizeof(SearchResult));
		task->count += task->parts[i].count;
	}
	sort_results(task->results, task->count);
	if (task->count > task->in.k)
		task->count = task->in.k;
	task->status = ENGINE_OK;
}
