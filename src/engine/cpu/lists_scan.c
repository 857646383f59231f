/*
 * lists_scan.c
 *		Estimate codes, choose rows, re-rank them.
 *
 * By bound: while codes are scanned, the k least upper bounds are kept. A row
 * whose lower bound is above the k-th of them is not an answer. Rows chosen
 * before that number fell are dropped later, so in the end exactly those rows
 * are left whose lower bounds are not above the final one, whatever the order.
 * Exact distances, which are less than upper bounds, then exclude most of
 * these.
 */
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/lists_scan.h"
#include "engine/select.h"
#include "engine/units/merge.h"

#define CHOSEN_FIRST	256		/* initial room for chosen rows */

/*
 * Under cosine, estimates are of rows and a query normalised with rounding.
 */
#define UNIT_ROUNDING	0x1p-20

/* The distance that a bound stands for. */
static double
bound_distance(const ListScan *scan, float bound)
{
	if (scan->task->entry->mirror->spec.metric != METRIC_COSINE)
		return bound;
	return 1 + (double) bound - UNIT_ROUNDING;
}

static float
float_of_bits(uint32_t bits)
{
	float		value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint32_t
bits_of_float(float value)
{
	uint32_t	bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

bool
list_scan_begin(ListScan *scan, QueryTask *task, const void *tables, uint64_t places,
				_Atomic float *shared)
{
	const EngineQuery *in = &task->in;
	QuantizerKind kind = task->entry->mirror->lists->shape.kind;

	memset(scan, 0, sizeof(*scan));
	scan->task = task;
	scan->tables = tables;
	scan->shared = shared;
	scan->limit = INFINITY;
	scan->near_room = in->k;
	if (in->rerank == 0 || (in->rerank == ENGINE_RERANK_ALL && quantizer_bounds_hold(kind)))
		scan->choice = CHOOSE_BY_BOUND;
	else if (in->rerank == ENGINE_RERANK_ALL)
		scan->choice = CHOOSE_ALL;
	else
	{
		scan->choice = CHOOSE_BY_ESTIMATE;
		scan->near_room = in->rerank;
	}
	if (scan->near_room > places)
		scan->near_room = (uint32_t) places;
	scan->near = malloc((size_t) scan->near_room * sizeof(SearchResult) + 1);
	return scan->near != NULL;
}

void
list_scan_end(ListScan *scan)
{
	free(scan->near);
	free(scan->chosen);
}

/* Store a row that may be an answer. */
static void
choose(ListScan *scan, uint32_t slot, float lower)
{
	if (scan->nchosen == scan->chosen_room)
	{
		uint32_t	room = scan->chosen_room > 0 ? scan->chosen_room * 2 : CHOSEN_FIRST;
		SearchResult *more = realloc(scan->chosen, (size_t) room * sizeof(SearchResult));

		if (more == NULL)
		{
			scan->no_memory = true;
			return;
		}
		scan->chosen = more;
		scan->chosen_room = room;
	}
	scan->chosen[scan->nchosen++] = (SearchResult) {.distance = lower, .slot = slot};
}

/* Offer an upper bound, or estimate, to the heap that sets the limit. */
static void
offer_bound(ListScan *scan, double number, uint32_t slot, uint32_t bits)
{
	SearchResult entry = {.distance = number, .slot = slot, .version = bits};
	float		shared;

	(void) farthest_offer(scan->near, &scan->nnear, scan->near_room, entry);
	if (scan->nnear < scan->near_room)
		return;
	scan->limit = (float) scan->near[0].distance;
	if (scan->shared == NULL)
		return;
	shared = atomic_load_explicit(scan->shared, memory_order_relaxed);
	while (scan->limit < shared &&
		   !atomic_compare_exchange_weak(scan->shared, &shared, scan->limit))
		;
}

/*
 * Whether a query and a row have a distance, so that the bounds hold: under
 * cosine, neither is a zero vector.
 */
static bool
have_distance(const QueryTask *task, uint32_t slot)
{
	const Mirror *mirror = task->entry->mirror;
	float		scale = mirror_scale(mirror, slot);

	return mirror->spec.metric != METRIC_COSINE ||
		(scale > 0 && isfinite(scale) && task->wide.scale > 0 && isfinite(task->wide.scale));
}

/* Consider the row at a place, unless it has been moved. */
static void
consider(ListScan *scan, const ListBlock *block, uint32_t place, uint32_t slot, float base,
		 float estimate, float lower)
{
	const QueryTask *task = scan->task;
	const EngineQuery *in = &task->in;
	const Mirror *mirror = task->entry->mirror;
	uint64_t	word;
	float		upper = INFINITY;

	if (slot == NO_SLOT || slot >= in->rows)
		return;
	word = mirror_word(mirror, slot);
	if ((word & (WORD_PENDING | WORD_WRITING)) || !query_admits(in, slot, word) ||
		atomic_load_explicit(&block->slots[place], memory_order_relaxed) != slot)
		return;
	if (have_distance(task, slot) && scan->choice != CHOOSE_ALL &&
		(scan->choice == CHOOSE_BY_BOUND || in->has_beyond))
		upper = block_upper(mirror->lists->quantizer, scan->tables, base, list_codes(block), place,
							estimate) +
			(mirror->spec.metric == METRIC_COSINE ? (float) (2 * UNIT_ROUNDING) : 0);
	if (in->has_beyond && bound_distance(scan, upper) < in->beyond_distance)
		return;
	if (scan->choice == CHOOSE_BY_ESTIMATE)
	{
		/*
		 * bounds that may be wrong exclude none of the rows that the caller set
		 * the number of
		 */
		if (!quantizer_bounds_hold(mirror->lists->shape.kind))
			lower = -INFINITY;
		offer_bound(scan, isnan(estimate) ? -INFINITY : (double) estimate, slot, bits_of_float(lower));
		return;
	}
	choose(scan, slot, lower);
	if (scan->choice == CHOOSE_BY_BOUND && isfinite(upper) &&
		(!in->has_beyond || bound_distance(scan, lower) > in->beyond_distance))
		offer_bound(scan, upper, slot, 0);
}

void
list_scan_block(ListScan *scan, const ListBlock *block, uint32_t places, float base,
				const BlockWords *words, uint32_t words_changes)
{
	const Lists *lists = scan->task->entry->mirror->lists;
	float		estimates[QUANTIZER_BLOCK] __attribute__((aligned(64)));
	float		lower[QUANTIZER_BLOCK] __attribute__((aligned(64)));
	uint32_t	slots[QUANTIZER_BLOCK];
	uint32_t	changes;
	uint32_t	bits;

	if (scan->shared != NULL)
	{
		float		shared = atomic_load_explicit(scan->shared, memory_order_relaxed);

		scan->limit = shared < scan->limit ? shared : scan->limit;
	}
	for (;;)
	{
		changes = atomic_load_explicit(&block->changes, memory_order_acquire);
		if (words != NULL && words_changes == changes)
			block_estimate_words(lists->quantizer, scan->tables, base, list_codes(block), words,
								 estimates, lower);
		else
			block_estimate(lists->quantizer, scan->tables, base, list_codes(block), estimates,
						   lower);
		bits = block_within(lists->quantizer,
							scan->choice == CHOOSE_BY_ESTIMATE ? estimates : lower, scan->limit);
		if (places < QUANTIZER_BLOCK)
			bits &= (1u << places) - 1;
		for (uint32_t left = bits; left != 0; left &= left - 1)
		{
			int			place = __builtin_ctz(left);

			slots[place] = atomic_load_explicit(&block->slots[place], memory_order_relaxed);
		}
		read_fence();
		if (changes % 2 == 0 &&
			atomic_load_explicit(&block->changes, memory_order_relaxed) == changes)
			break;
		sched_yield();			/* a row is being added */
	}
	scan->estimated += places;
	for (; bits != 0; bits &= bits - 1)
	{
		uint32_t	place = (uint32_t) __builtin_ctz(bits);

		consider(scan, block, place, slots[place], base, estimates[place], lower[place]);
	}
}

void
list_scan_merge(ListScan *scan, ListScan *other)
{
	TopK		near = {.heap = scan->near, .count = scan->nnear, .k = scan->near_room};
	TopK		part = {.heap = other->near, .count = other->nnear, .k = other->near_room};
	MergeCounters counters = {0};

	merge_one(&near, &part, &counters);
	scan->nnear = near.count;
	other->nnear = 0;
	for (uint32_t i = 0; i < other->nchosen; i++)
		choose(scan, other->chosen[i].slot, (float) other->chosen[i].distance);
	scan->estimated += other->estimated;
	scan->no_memory |= other->no_memory;
}

/* The rows to re-rank, by their lower bounds; returns how many. */
static uint32_t
collect(ListScan *scan, SearchResult **rows)
{
	double		limit = INFINITY;
	uint32_t	count = 0;

	if (scan->choice == CHOOSE_BY_ESTIMATE)
	{
		for (uint32_t i = 0; i < scan->nnear; i++)
			scan->near[i].distance = float_of_bits(scan->near[i].version);
		*rows = scan->near;
		return scan->nnear;
	}
	if (scan->choice == CHOOSE_BY_BOUND && scan->nnear > 0 && scan->nnear == scan->near_room)
		limit = scan->near[0].distance;
	for (uint32_t i = 0; i < scan->nchosen; i++)
		if (scan->chosen[i].distance <= limit)
			scan->chosen[count++] = scan->chosen[i];
	*rows = scan->chosen;
	return count;
}

uint32_t
list_scan_rerank(ListScan *scan, uint32_t npending)
{
	QueryTask  *task = scan->task;
	const Mirror *mirror = task->entry->mirror;
	uint32_t	k = task->in.k;
	SearchResult *rows;
	uint32_t	count = collect(scan, &rows);
	uint32_t	heaped = 0;
	ExactScan	exact;

	while (heaped < count)
	{
		SearchResult row = rows[heaped];

		nearest_push(rows, &heaped, row);
	}
	exact_begin(&exact, task, task->results + k, k);
	while (heaped > 0)
	{
		double		least = bound_distance(scan, (float) rows[0].distance);

		if (scan->choice != CHOOSE_ALL &&
			((exact.count == k && least > exact.results[0].distance) ||
			 (npending == k && least > task->results[0].distance)))
			break;
		/* the next is one of these */
		for (uint32_t i = 1; i < 3 && i < heaped; i++)
			mirror_prefetch(mirror, rows[i].slot);
		exact_consider(&exact, nearest_pop(rows, &heaped).slot);
	}
	task->counters.distances += exact.distances;
	return exact.count;
}
