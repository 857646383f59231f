/*
 * lists_answer.cu
 *		The last step of a search of lists: measures the rows found by scans
 *		that may be answers, and merges them with pending rows.
 *
 * A block of 256 threads per query.
 *		1. The pending rows are scanned exactly (or lists that an exact search
 *		   made of them are merged): their best k.
 *		2. The final limit: the k-th upper bound among those found, by digits;
 *		   by estimate number `rerank`. What it excludes is left out.
 *		3. The rest, least lower bound first, is measured in tiles of 64, until
 *		   the k-th distance excludes what is left.
 *		4. Both merged, written to the batch's results (pinned memory).
 * If a query's buffer has overflowed twice, its codes are read again here: once
 * to derive the limit and once to measure. The same code measures all rows of
 * LISTS_ALL.
 *
 * The order in which rows are measured does not matter. The CPU engine measures
 * rows by ascending bound while the bound is not above the k-th distance so
 * far; it thus measures a row if and only if its bound is not above the k-th
 * least of max(bound, distance) over all rows. Where bounds may be wrong, the
 * list of answers is therefore ordered by max(bound, distance).
 *
 * Shared memory: query, both lists twice, 1,024 rows sorted by bound: 14 KB and
 * 48 bytes a result. Bytes read: the buffer three to five times (L2), stored
 * rows that are measured. Bound: latency of rows, some 1.5 µs a tile.
 */
#include "cuda/lists/lists_estimate.cuh"
#include "cuda/lists/lists_measure.cuh"
#include "cuda/lists/lists_select.cuh"

#define THREADS (LIST_WARPS * WARP)
#define TILE 64u		/* rows measured and merged at a time */
#define SORTED 1024u	/* rows sorted by bound at a time */

/* Shared memory of a block besides its arrays. */
struct AnswerShared
{
	DeviceQuery asked;
	ListsQuery query;
	double norm;
	uint32_t gathered;
	uint32_t entered;
	uint32_t found;
	SelectShared select;
	Key tile[TILE];
};

/* State of a block's query. */
struct Answer
{
	QueryVector vector;
	BestList pending; /* best pending rows */
	BestList best;	  /* best rows of lists */
	Entries sorted;	  /* SORTED places: keys of bounds (32 bits), slots */
	Entries entering; /* TILE places: entries to be merged */
	bool uncertain;	  /* bounds may be wrong, and rows are chosen by bound */
	uint32_t measured;
	uint32_t scanned;
};

/*
 * Measure up to TILE slots exactly; keys are in shared->tile afterwards. Ends
 * with a barrier.
 */
template <typename T, int TERM>
__device__ static inline void
measure_tile(const MirrorView &mirror, const Answer &answer, const uint32_t *slots, uint32_t n,
			 AnswerShared *shared)
{
	uint32_t lane = threadIdx.x % WARP;

#pragma unroll 1
	for (uint32_t base = threadIdx.x / WARP * (WARP / EXACT_LANES); base < n;
		 base += THREADS / EXACT_LANES)
	{
		uint32_t i = base + lane / EXACT_LANES;
		bool active = i < n;
		uint32_t slot = slots[active ? i : 0];
		Key key = lanes_key<T, TERM>(mirror, answer.vector, slot, active);

		if (active && lane % EXACT_LANES == 0)
			shared->tile[i] = key;
	}
	__syncthreads();
}

/* Whether a sorted list contains an entry. */
__device__ static inline bool
has_entry(const BestList &list, Key key, uint32_t slot)
{
	uint32_t at = entries_before(list.now, list.count, key, slot);

	return at < list.count && list.now.key[at] == key && list.now.slot[at] == slot;
}

/* Add an entry to those to be merged into a list, if it is good enough. */
__device__ static inline void
enter(const BestList &list, const Entries &entering, AnswerShared *shared, Key key, uint32_t slot)
{
	uint32_t at;

	if (!list.takes(key, slot) || has_entry(list, key, slot))
		return;
	at = atomicAdd(&shared->entered, 1u);
	entering.key[at] = key;
	entering.slot[at] = slot;
}

/*
 * Merge the entries collected since begin_tile() into a list. After a barrier.
 */
__device__ static inline void
merge_entering(BestList *list, const Entries &entering, AnswerShared *shared)
{
	uint32_t n = shared->entered;

	if (n == 0)
		return;
	block_fill(entering, n, power_of_two(n));
	__syncthreads();
	block_sort(entering, power_of_two(n));
	list->merge(entering, n);
}

/* Reset the counters of gathered and entering rows. Contains barriers. */
__device__ static inline void
begin_tile(AnswerShared *shared)
{
	__syncthreads();
	if (threadIdx.x == 0)
		shared->gathered = shared->entered = 0;
	__syncthreads();
}

/* ---- pending rows ---- */

template <typename T, int TERM>
__device__ static inline void
scan_pending(const MirrorView &mirror, const BatchView &batch, Answer *answer,
			 AnswerShared *shared)
{
	const DeviceQuery &asked = shared->asked;
	uint32_t *slots = answer->sorted.slot;

	for (uint32_t tile = 0; tile < mirror.npending; tile += TILE)
	{
		uint32_t end = mirror.npending - tile < TILE ? mirror.npending : tile + TILE;
		uint32_t n;

		begin_tile(shared);
		for (uint32_t i = tile + threadIdx.x; i < end; i += THREADS)
		{
			uint32_t slot = mirror.pending[i];

			if (slot < mirror.rows && may_answer(mirror, batch, asked, slot))
				slots[atomicAdd(&shared->gathered, 1u)] = slot;
		}
		__syncthreads();
		n = shared->gathered;
		measure_tile<T, TERM>(mirror, *answer, slots, n, shared);
		if (threadIdx.x < n && is_beyond(asked, shared->tile[threadIdx.x], slots[threadIdx.x]))
			enter(answer->pending, answer->entering, shared, shared->tile[threadIdx.x],
				  slots[threadIdx.x]);
		__syncthreads();
		answer->scanned += n;
		merge_entering(&answer->pending, answer->entering, shared);
	}
}

/* Merge the lists that an exact scan of the pending rows has left. */
__device__ static inline void
merge_pending(const PendingLists &pending, uint32_t number, Answer *answer, AnswerShared *shared)
{
	size_t first = (size_t) number * pending.lists * pending.length;
	uint32_t total = pending.lists * pending.length;

	for (uint32_t tile = 0; tile < total; tile += TILE)
	{
		begin_tile(shared);
		if (threadIdx.x < TILE && tile + threadIdx.x < total)
			enter(answer->pending, answer->entering, shared,
				  pending.keys[first + tile + threadIdx.x],
				  pending.slots[first + tile + threadIdx.x]);
		__syncthreads();
		merge_entering(&answer->pending, answer->entering, shared);
	}
	answer->scanned = pending.heads[number].pending;
}

/* ---- rows of lists ---- */

/* The key above which bounds exclude a row from the answers. */
__device__ static inline Key
stop_key(const Answer &answer)
{
	Key key = NO_KEY;

	if (answer.pending.count > 0 && answer.pending.count == answer.pending.room)
		key = answer.pending.now.key[answer.pending.count - 1];
	if (answer.best.count > 0 && answer.best.count == answer.best.room &&
		answer.best.now.key[answer.best.count - 1] < key)
		key = answer.best.now.key[answer.best.count - 1];
	return key;
}

/* The key of the distance implied by the bound of a sorted row. */
__device__ static inline Key
sorted_bound(const MirrorView &mirror, const Answer &answer, uint32_t i)
{
	return bound_key(mirror.metric, distance_of_key((uint32_t) answer.sorted.key[i]));
}

/*
 * Measure the n rows gathered in `sorted`, least bound first, until the best so
 * far exclude the rest. After a barrier.
 */
template <typename T, int TERM>
__device__ static inline void
measure_sorted(const MirrorView &mirror, Answer *answer, uint32_t n, AnswerShared *shared)
{
	const Entries &sorted = answer->sorted;

	block_fill(sorted, n, power_of_two(n));
	__syncthreads();
	block_sort(sorted, power_of_two(n));
	for (uint32_t tile = 0; tile < n; tile += TILE)
	{
		uint32_t rows = n - tile < TILE ? n - tile : TILE;

		if (sorted_bound(mirror, *answer, tile) > stop_key(*answer))
			break;
		begin_tile(shared);
		measure_tile<T, TERM>(mirror, *answer, sorted.slot + tile, rows, shared);
		if (threadIdx.x < rows)
		{
			Key key = shared->tile[threadIdx.x];
			uint32_t slot = sorted.slot[tile + threadIdx.x];
			Key bound = sorted_bound(mirror, *answer, tile + threadIdx.x);

			if (is_beyond(shared->asked, key, slot) && !has_entry(answer->pending, key, slot))
				enter(answer->best, answer->entering, shared,
					  answer->uncertain && bound > key ? bound : key, slot);
		}
		__syncthreads();
		answer->measured += rows;
		merge_entering(&answer->best, answer->entering, shared);
	}
	__syncthreads();
}

/*
 * A composite of bound or estimate (by_bound: the upper bound) and slot, for
 * selection.
 */
__device__ static inline Key
found_key(const ListsFound &found, bool by_bound)
{
	return (Key) fast_key(by_bound ? found.other : found.rank) << 32 | found.slot;
}

/* Measure the n rows in the query's buffer that its limit does not exclude. */
template <typename T, int TERM>
__device__ static inline void
measure_found(const MirrorView &mirror, const ListsFound *found, uint32_t n, Answer *answer,
			  AnswerShared *shared)
{
	bool by_bound = shared->query.choice == LISTS_BY_BOUND;
	auto make = [&](uint32_t i, Key *key) {
		*key = found_key(found[i], by_bound);
		return !by_bound || found[i].other < HUGE_VALF;
	};
	Key limit =
		by_bound ? block_select<true>(n, shared->query.need, 32, &shared->select, make).key
				 : block_select(n, shared->query.need, 64, &shared->select, make).key;

	for (uint32_t base = 0; base < n; base += SORTED)
	{
		uint32_t end = n - base < SORTED ? n : base + SORTED;
		Key stop = stop_key(*answer);

		begin_tile(shared);
		for (uint32_t i = base + threadIdx.x; i < end; i += THREADS)
		{
			ListsFound row = found[i];
			float bound = by_bound ? row.rank : row.other;
			bool chosen = by_bound ? fast_key(row.rank) <= (uint32_t) (limit >> 32)
								   : found_key(row, false) <= limit;

			if (chosen && bound_key(mirror.metric, bound) <= stop)
			{
				uint32_t place = atomicAdd(&shared->gathered, 1u);

				answer->sorted.key[place] = fast_key(bound);
				answer->sorted.slot[place] = row.slot;
			}
		}
		__syncthreads();
		measure_sorted<T, TERM>(mirror, answer, shared->gathered, shared);
	}
}

/* ---- without a buffer ---- */

/* A code that is read again. */
struct ReadCode
{
	ListsFound found;
	float lower;
	bool chosen;
};

template <int KIND>
__device__ static inline ReadCode
read_code_of(const MirrorView &mirror, const BatchView &batch, const ListsView &lists,
			 const uint32_t *table, const AnswerShared &shared, float base, uint32_t block)
{
	uint32_t lane = threadIdx.x % WARP;
	const uint32_t *words = list_codes(lists, block) + lane;
	uint32_t slot = list_slot(lists, block, lane);
	CodeTerms terms = code_terms<KIND>(lists, words);
	ReadCode code = {};
	int sum;
	float estimate;

	code_sums<KIND, 1>(lists, words, table, &sum);
	estimate = code_estimate<KIND>(lists.shape, shared.query, base, sum, terms, &code.lower);
	code.chosen =
		slot != NO_SLOT &&
		(shared.query.choice == LISTS_BY_ESTIMATE || code.lower <= HUGE_VALF) &&
		consider_row<KIND>(mirror, batch, lists, shared.asked, shared.query, base, slot, estimate,
						   code.lower, terms, &code.found);
	return code;
}

/* Read a lane's code of a block again. */
__device__ static inline ReadCode
read_code(const MirrorView &mirror, const BatchView &batch, const ListsView &lists,
		  const uint32_t *table, const AnswerShared &shared, float base, uint32_t block)
{
	switch (code_kind(lists.shape))
	{
		case CODE_INT8:
			return read_code_of<CODE_INT8>(mirror, batch, lists, table, shared, base, block);
		case CODE_RABITQ:
			return read_code_of<CODE_RABITQ>(mirror, batch, lists, table, shared, base, block);
		case CODE_PQ8:
			return read_code_of<CODE_PQ8>(mirror, batch, lists, table, shared, base, block);
		default:
			return read_code_of<CODE_PQ4>(mirror, batch, lists, table, shared, base, block);
	}
}

/*
 * Read all codes of a query's lists. each(code) is called by all threads, with
 * one block of codes per warp, and may contain barriers.
 */
template <class Each>
__device__ static inline void
read_lists(const MirrorView &mirror, const BatchView &batch, const ListsView &lists,
		   const ListsPart &part, const AnswerShared &shared, Each each)
{
	const ListsPair *probes = part.probes + (size_t) blockIdx.x * part.max_list_probes;
	const uint32_t *table = part.tables + (size_t) blockIdx.x * part.table_words;

#pragma unroll 1
	for (uint32_t probe = 0; probe < shared.query.probes; probe++)
	{
		uint32_t list = probes[probe].number;
		uint32_t end = lists.first[list + 1];

#pragma unroll 1
		for (uint32_t i = lists.first[list]; i < end; i += LIST_WARPS)
		{
			uint32_t at = i + threadIdx.x / WARP;
			ReadCode code = {};

			if (at < end)
				code = read_code(mirror, batch, lists, table, shared, probes[probe].base,
								 lists.blocks[at]);
			each(code);
		}
	}
}

/*
 * Reduce a buffer to the `need` least of its n rows, in place; returns their
 * number. All threads.
 */
__device__ static inline uint32_t
keep_least(ListsFound *found, uint32_t n, bool by_bound, AnswerShared *shared)
{
	Key limit = block_select(n, shared->query.need, 64, &shared->select,
							 [&](uint32_t i, Key *key) {
								 *key = found_key(found[i], by_bound);
								 return true;
							 })
					.key;

	if (threadIdx.x == 0)
		shared->found = 0;
	__syncthreads();
	for (uint32_t base = 0; base < n; base += THREADS)
	{
		uint32_t i = base + threadIdx.x;
		ListsFound row = {};

		if (i < n)
			row = found[i];
		__syncthreads();
		if (i < n && found_key(row, by_bound) <= limit)
			found[atomicAdd(&shared->found, 1u)] = row;
		__syncthreads();
	}
	return shared->found;
}

/*
 * Collect the rows with the least upper bounds, or estimates, in the query's
 * buffer, reducing it whenever it is full. Returns their number.
 */
__device__ static inline uint32_t
find_least(const MirrorView &mirror, const BatchView &batch, const ListsView &lists,
		   const ListsPart &part, ListsFound *found, AnswerShared *shared)
{
	bool by_bound = shared->query.choice == LISTS_BY_BOUND;

	if (threadIdx.x == 0)
		shared->found = 0;
	__syncthreads();
	read_lists(mirror, batch, lists, part, *shared, [&](const ReadCode &code) {
		if (code.chosen && (!by_bound || code.found.other < HUGE_VALF))
			found[atomicAdd(&shared->found, 1u)] = code.found;
		__syncthreads();
		if (shared->found + THREADS > part.room)
		{
			uint32_t n = shared->found;

			__syncthreads();
			(void) keep_least(found, n, by_bound, shared);
		}
		__syncthreads();
	});
	return shared->found;
}

/*
 * Measure all rows that their bounds do not exclude, while their codes are
 * read.
 */
template <typename T, int TERM>
__device__ static inline void
measure_lists(const MirrorView &mirror, const BatchView &batch, const ListsView &lists,
			  const ListsPart &part, float limit, Answer *answer, AnswerShared *shared)
{
	bool all = shared->query.choice == LISTS_ALL;

	begin_tile(shared);
	read_lists(mirror, batch, lists, part, *shared, [&](const ReadCode &code) {
		if (code.chosen &&
			(all || (code.lower <= limit &&
					 bound_key(mirror.metric, code.lower) <= stop_key(*answer))))
		{
			uint32_t place = atomicAdd(&shared->gathered, 1u);

			answer->sorted.key[place] = fast_key(all ? -HUGE_VALF : code.lower);
			answer->sorted.slot[place] = code.found.slot;
		}
		__syncthreads();
		if (shared->gathered + THREADS > SORTED)
		{
			measure_sorted<T, TERM>(mirror, answer, shared->gathered, shared);
			begin_tile(shared);
		}
		__syncthreads();
	});
	measure_sorted<T, TERM>(mirror, answer, shared->gathered, shared);
}

/*
 * Search without a buffer, for LISTS_ALL and for queries whose buffer has
 * overflowed.
 */
template <typename T, int TERM>
__device__ static inline void
search_again(const MirrorView &mirror, const BatchView &batch, const ListsView &lists,
			 const ListsPart &part, ListsFound *found, Answer *answer, AnswerShared *shared)
{
	float limit = HUGE_VALF;
	uint32_t n;

	if (shared->query.choice != LISTS_ALL)
	{
		n = find_least(mirror, batch, lists, part, found, shared);
		if (shared->query.choice == LISTS_BY_ESTIMATE)
		{
			measure_found<T, TERM>(mirror, found, n, answer, shared);
			return;
		}
		limit = kth_found(found, n, shared->query.need, true, &shared->select);
	}
	measure_lists<T, TERM>(mirror, batch, lists, part, limit, answer, shared);
}

/* ---- the kernel ---- */

/* Lay out a block's arrays; k: maximum number of results, a power of two. */
__device__ static inline void
begin_answer(const MirrorView &mirror, uint32_t k, unsigned char *memory, Answer *answer)
{
	unsigned char *at = memory + query_bytes(mirror);

	answer->sorted = entries_at(&at, SORTED);
	answer->entering = entries_at(&at, TILE);
	for (BestList *list : {&answer->pending, &answer->best})
	{
		list->now = entries_at(&at, k);
		list->next = entries_at(&at, k);
		list->count = 0;
	}
	answer->measured = answer->scanned = 0;
}

/*
 * Sort the answers among the rows of lists by exact distance, where they are
 * ordered by max(bound, distance).
 */
template <typename T, int TERM>
__device__ static inline void
order_exactly(const MirrorView &mirror, Answer *answer, AnswerShared *shared)
{
	const Entries &best = answer->best.now;
	uint32_t n = answer->best.count;

	for (uint32_t tile = 0; tile < n; tile += TILE)
	{
		uint32_t rows = n - tile < TILE ? n - tile : TILE;

		__syncthreads();
		measure_tile<T, TERM>(mirror, *answer, best.slot + tile, rows, shared);
		if (threadIdx.x < rows)
			best.key[tile + threadIdx.x] = shared->tile[threadIdx.x];
	}
	__syncthreads();
	block_fill(best, n, power_of_two(n));
	__syncthreads();
	block_sort(best, power_of_two(n));
}

/* Merge pending rows and rows of lists, and write the answers. */
__device__ static inline void
write_answer(const MirrorView &mirror, const BatchView &batch, const Answer &answer,
			 uint32_t number, const AnswerShared &shared)
{
	BestList merged = answer.pending;

	merged.merge(answer.best.now, answer.best.count);
	for (uint32_t i = threadIdx.x; i < merged.count; i += THREADS)
	{
		SearchResult result;

		result.distance = distance_of(merged.now.key[i]);
		result.slot = merged.now.slot[i];
		result.version = mirror.versions[result.slot];
		batch.results[shared.asked.results + i] = result;
	}
	if (threadIdx.x == 0)
	{
		DeviceHead head = {};

		head.count = merged.count;
		head.expanded = shared.query.probes;
		head.distances = answer.measured + answer.scanned;
		head.iterations = shared.query.estimated;
		head.pending = answer.scanned;
		head.reached = merged.count;
		batch.heads[number] = head;
	}
}

/*
 * Load a block's query: from the part's copy, which lists_prepare.cu has
 * written, or from the batch if there are no lists. Ends with a barrier.
 */
template <typename T>
__device__ static inline void
load_asked(const MirrorView &mirror, const BatchView &batch, const ListsView &lists,
			const ListsPart &part, float *elements, AnswerShared *shared)
{
	const DeviceQuery *asked =
		lists.lists > 0 ? &part.asked[blockIdx.x] : &batch.queries[part.first + blockIdx.x];
	const float *raw = part.raw + (size_t) blockIdx.x * part.vector_stride;

	for (uint32_t i = threadIdx.x; i < sizeof(DeviceQuery) / sizeof(uint32_t); i += THREADS)
		((uint32_t *) &shared->asked)[i] = ((const uint32_t *) asked)[i];
	if (threadIdx.x == 0)
		shared->query = lists.lists > 0 ? part.query[blockIdx.x] : ListsQuery{};
	if (lists.lists > 0)
		for (uint32_t i = threadIdx.x; i < part.vector_stride; i += THREADS)
			elements[i] = raw[i];
	__syncthreads();
	if (lists.lists == 0)
		widen_query(mirror, (const T *) (batch.vectors + shared->asked.vector), elements);
	__syncthreads();
}

template <typename T, int TERM>
__global__ void __launch_bounds__(THREADS, 3)
	lists_answer_kernel(const MirrorView mirror, const BatchView batch, const ListsView lists,
						const ListsPart part, const PendingLists pending, uint32_t most_k,
						uint32_t queries)
{
	DYNAMIC_SHARED(memory);
	__shared__ AnswerShared shared;
	uint32_t number = part.first + blockIdx.x;
	Answer answer;

	load_asked<T>(mirror, batch, lists, part, (float *) memory, &shared);
	begin_answer(mirror, most_k, memory, &answer);
	answer.vector = query_of(mirror, (const float *) memory, &shared.norm);
	answer.pending.room = answer.best.room = shared.asked.k;
	answer.uncertain =
		lists.shape.kind == QUANTIZER_RABITQ && shared.query.choice == LISTS_BY_BOUND;
	if (pending.keys != NULL)
		merge_pending(pending, number, &answer, &shared);
	else
		scan_pending<T, TERM>(mirror, batch, &answer, &shared);
	__syncthreads();
	if (shared.asked.k > 0 && lists.lists > 0)
	{
		ListsFound *found = part.found + (size_t) blockIdx.x * part.room;

		if (shared.query.found <= part.room)
			measure_found<T, TERM>(mirror, found, shared.query.found, &answer, &shared);
		else
			search_again<T, TERM>(mirror, batch, lists, part, found, &answer, &shared);
		if (answer.uncertain)
			order_exactly<T, TERM>(mirror, &answer, &shared);
	}
	__syncthreads();
	write_answer(mirror, batch, answer, number, shared);
	if (batch.flag != NULL)
		end_query(batch, queries);
}

typedef void (*AnswerKernel)(const MirrorView, const BatchView, const ListsView, const ListsPart,
							 const PendingLists, uint32_t, uint32_t);

static const AnswerKernel answer_kernels[] = {
	lists_answer_kernel<float, TERM_PRODUCT>, lists_answer_kernel<float, TERM_SQUARE>,
	lists_answer_kernel<__half, TERM_PRODUCT>, lists_answer_kernel<__half, TERM_SQUARE>};

cudaError_t
lists_answer_launch(const ListsStep *step)
{
	const ListsLaunch *launch = step->launch;
	uint32_t k = power_of_two(launch->max_k < 2 ? 2 : launch->max_k);
	size_t bytes = query_bytes(launch->mirror) + entries_bytes(SORTED) + entries_bytes(TILE) +
				   4 * entries_bytes(k);
	AnswerKernel kernel = answer_kernels[(launch->mirror.type == ELEMENT_HALF) * 2 +
										 (launch->mirror.metric == METRIC_L2)];

	LAUNCH(kernel, step->part.queries, THREADS, bytes, launch->stream, launch->mirror,
		   launch->batch, launch->lists, step->part, launch->pending, k, launch->queries);
	return cudaGetLastError();
}

cudaError_t
lists_answer_allow(const cudaDeviceProp *device)
{
	(void) device;
	return allow_shared(answer_kernels, 90 * 1024);
}
