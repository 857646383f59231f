/*
 * lists_scan.cu
 *		Scanning codes: a list's for all queries of a part that probe it, and
 *		the limits that follow.
 *
 * In phases (phase_begin()), of ever more blocks of each list; after each one
 * the k-th upper bound found so far (by estimate: number `rerank`) becomes the
 * query's limit, and what is above it is dropped. So few rows reach the
 * buffers, whatever the order of codes.
 *
 * scan: a persistent grid of 256 threads takes items: up to 64 blocks of a
 * list, and up to 8 pairs (pq: 4). Of small batches, where few queries probe
 * the same list, a block takes one pair and 8 blocks of codes or more. A warp
 * takes a block of codes at a time, a lane a code.
 *
 *		registers	sums of all pairs
 *		shared		the pairs' tables side by side (lists_estimate.cuh): 16
 *					bytes a dimension of 8 queries; pq 2,048 or 64 bytes a
 *					sub-space of 4
 *		L2, HBM		codes, once for each item; the buffers of what may be
 *					chosen,
 *					appended to by one atomic a warp and pair
 *
 * Bytes read: codes once for each 8 queries that probe their list, tables once
 * an item. Bound: dp4a, two for each word of a code and query, at half rate:
 * 0.4 ms for 10,000 queries x 8,000 codes x 128 dimensions; pq by shared
 * memory.
 *
 * limit: a block of 256 threads per query selects by digits, in the buffer, and
 * compacts it in place.
 */
#include "cuda/lists/lists_estimate.cuh"
#include "cuda/lists/lists_select.cuh"

#define THREADS (LIST_WARPS * WARP)
#define MOST_GROUP 8u

/* What a block shares beside tables. */
struct ScanShared
{
	uint32_t item;
	uint32_t at; /* the item's list and class */
	uint32_t pair;
	uint32_t pairs;
	uint32_t begin; /* blocks, of all lists' */
	uint32_t end;
	uint32_t number[MOST_GROUP];
	float base[MOST_GROUP];
	ListsQuery query[MOST_GROUP];
};

/*
 * The last of n + 1 ascending numbers that is not above a number below the
 * last.
 */
__device__ static inline uint32_t
warp_search(const uint32_t *numbers, uint32_t n, uint32_t number)
{
	uint32_t low = 0,
			 width = n;

	/* all lanes look at once: 32 numbers a step */
	while (width > 1)
	{
		uint32_t step = (width + WARP - 1) / WARP;
		uint32_t at = low + threadIdx.x % WARP * step;
		bool below = at < low + width && numbers[at] <= number;
		uint32_t count = (uint32_t) __popc(__ballot_sync(FULL_WARP, below));
		uint32_t next = low + (count - 1) * step;

		width = low + width - next < step ? low + width - next : step;
		low = next;
	}
	return low;
}

/*
 * Take the next item of a phase: first warp. Sets pairs = 0 where there is
 * none.
 */
__device__ static inline void
take_item(const ListsView &lists, const ListsPart &part, uint32_t phase, ScanShared *shared)
{
	uint32_t n = 2 * lists.lists;
	const uint32_t *items = part.items + (size_t) phase * (n + 1);
	uint32_t item = 0;

	if (threadIdx.x == 0)
		item = atomicAdd(&part.tickets[phase], 1u);
	item = __shfl_sync(FULL_WARP, item, 0);
	if (item >= items[n])
	{
		if (threadIdx.x == 0)
			shared->pairs = 0;
		return;
	}
	uint32_t at = warp_search(items, n, item);

	if (threadIdx.x == 0)
	{
		uint32_t other = at >= lists.lists;
		uint32_t list = other ? at - lists.lists : at;
		uint32_t first = lists.first[list];
		uint32_t end = phase_end(phase, other, lists.first[list + 1] - first);
		uint32_t groups = (part.counts[at] + part.group - 1) / part.group;
		uint32_t group = (item - items[at]) % groups;
		uint32_t begin =
			phase_begin(phase, other) + (item - items[at]) / groups * part.item_blocks;
		uint32_t left = part.counts[at] - group * part.group;

		shared->pair = part.starts[at] + group * part.group;
		shared->pairs = left < part.group ? left : part.group;
		shared->begin = first + begin;
		shared->end = first + (begin + part.item_blocks < end ? begin + part.item_blocks : end);
	}
}

/*
 * The item of a block where pairs are scanned as they are: blockIdx.y is the
 * pair, blockIdx.x which of its list's blocks. One thread.
 */
__device__ static inline void
take_pair(const ListsView &lists, const ListsPart &part, uint32_t phase, ScanShared *shared)
{
	uint32_t query = blockIdx.y / part.most_probes;
	ListsPair pair;
	uint32_t other,
		first,
		begin,
		end;

	shared->pairs = 0;
	if (blockIdx.y % part.most_probes >= part.query[query].probes ||
		part.query[query].choice == LISTS_ALL)
		return;
	pair = part.probes[blockIdx.y];
	other = part.ranks[blockIdx.y] != 0;
	first = lists.first[pair.number];
	begin = phase_begin(phase, other) + blockIdx.x * part.item_blocks;
	end = phase_end(phase, other, lists.first[pair.number + 1] - first);
	if (begin >= end)
		return;
	shared->pairs = 1;
	shared->begin = first + begin;
	shared->end = first + (begin + part.item_blocks < end ? begin + part.item_blocks : end);
	shared->number[0] = query;
	shared->base[0] = pair.base;
}

/* Bring an item's pairs. After a barrier; one is to follow. */
template <int G>
__device__ static inline void
bring_pairs(const ListsPart &part, ScanShared *shared)
{
	if (threadIdx.x < G && !part.direct)
	{
		bool there = threadIdx.x < shared->pairs;
		ListsPair pair = part.sorted[shared->pair + (there ? threadIdx.x : 0)];

		shared->number[threadIdx.x] = pair.number;
		shared->base[threadIdx.x] = pair.base;
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < G * (sizeof(ListsQuery) / sizeof(uint32_t));
		 i += blockDim.x)
	{
		uint32_t words = sizeof(ListsQuery) / sizeof(uint32_t);

		((uint32_t *) shared->query)[i] =
			((const uint32_t *) &part.query[shared->number[i / words]])[i % words];
	}
}

/* Append a warp's rows to a query's buffer. Whole warps. */
__device__ static inline void
append_found(const ListsPart &part, uint32_t number, const ListsFound &found, bool chosen)
{
	uint32_t votes = __ballot_sync(FULL_WARP, chosen);
	uint32_t lane = threadIdx.x % WARP;
	uint32_t place = 0;

	if (votes == 0)
		return;
	if (lane == 0)
		place = atomicAdd(&part.query[number].found, (uint32_t) __popc(votes));
	place = __shfl_sync(FULL_WARP, place, 0) + (uint32_t) __popc(votes & ((1u << lane) - 1));
	if (chosen && place < part.room)
		part.found[(size_t) number * part.room + place] = found;
}

/* Scan a block of codes for an item's pairs. One warp. */
template <int KIND, int G>
__device__ static inline void
scan_block(const MirrorView &mirror, const BatchView &batch, const ListsView &lists,
		   const ListsPart &part, const uint32_t *tables, const ScanShared &shared, uint32_t block)
{
	uint32_t lane = threadIdx.x % WARP;
	const uint32_t *words = list_codes(lists, block) + lane;
	uint32_t slot = list_slot(lists, block, lane);
	CodeTerms terms = code_terms<KIND>(lists, words);
	int sums[G];

	code_sums<KIND, G>(lists, words, tables, sums);
#pragma unroll
	for (int g = 0; g < G; g++)
	{
		const ListsQuery &query = shared.query[g];
		ListsFound found;
		float estimate,
			lower;
		bool chosen;

		if (g >= (int) shared.pairs)
			break;
		if (query.found >= FOUND_TOO_MANY)
			continue;
		estimate = code_estimate<KIND>(lists.shape, query, shared.base[g], sums[g], terms, &lower);
		/* an estimate that is no number says nothing: the row is measured */
		chosen = (query.choice == LISTS_BY_ESTIMATE ? !(estimate > query.limit)
													: lower <= query.limit) &&
				 slot != NO_SLOT;
		if (chosen)
			chosen = consider_row<KIND>(mirror, batch, lists,
										part.asked[shared.number[g]], query,
										shared.base[g], slot, estimate, lower, terms, &found);
		append_found(part, shared.number[g], found, chosen);
	}
}

/* FAR: tables are read where they are, for there is no room for them. */
template <int KIND, int G, bool FAR>
__global__ void __launch_bounds__(THREADS, KIND == CODE_RABITQ ? 2 : 3)
	lists_scan_kernel(const MirrorView mirror, const BatchView batch, const ListsView lists,
					  const ListsPart part, uint32_t phase)
{
	DYNAMIC_SHARED(memory);
	__shared__ ScanShared shared;
	uint32_t *tables = (uint32_t *) memory;

	do
	{
		if (part.direct && threadIdx.x == 0)
			take_pair(lists, part, phase, &shared);
		else if (!part.direct && threadIdx.x < WARP)
			take_item(lists, part, phase, &shared);
		__syncthreads();
		if (shared.pairs == 0)
			return;
		bring_pairs<G>(part, &shared);
		if (!FAR)
			bring_tables<KIND, G>(part.tables, part.table_words, shared.number, shared.pairs,
								  tables);
		__syncthreads();
		for (uint32_t i = shared.begin + threadIdx.x / WARP; i < shared.end; i += LIST_WARPS)
			scan_block<KIND, G>(
				mirror, batch, lists, part,
				FAR ? part.tables + (size_t) shared.number[0] * part.table_words : tables, shared,
				lists.blocks[i]);
		__syncthreads();
	} while (!part.direct);
}

/*
 * Take what may have been found since into account: the limit, and what it
 * excludes goes.
 */
__global__ void __launch_bounds__(THREADS) lists_limit_kernel(const ListsPart part)
{
	__shared__ SelectShared select;
	__shared__ uint32_t of_warps[LIST_WARPS];
	ListsQuery *query = &part.query[blockIdx.x];
	ListsFound *found = part.found + (size_t) blockIdx.x * part.room;
	uint32_t n = query->found;
	bool by_bound = query->choice == LISTS_BY_BOUND;
	uint32_t kept = 0;
	float limit;

	if (n >= FOUND_TOO_MANY)
		return;
	__syncthreads();
	if (n > part.room)
	{
		if (threadIdx.x == 0)
			query->found = FOUND_TOO_MANY;
		return;
	}
	limit = float_of_key((uint32_t) (block_select(n, query->need, 32, &select,
												  [&](uint32_t i, Key *key) {
													  float rank = by_bound ? found[i].other
																			: found[i].rank;

													  *key = (Key) fast_key(rank) << 32;
													  return rank < HUGE_VALF;
												  })
										 .key >>
									 32));
	if (!(limit < HUGE_VALF))
		return;
	for (uint32_t base = 0; base < n; base += THREADS)
	{
		uint32_t i = base + threadIdx.x;
		ListsFound row = {};
		bool keeps = false;
		uint32_t votes,
			place = kept;

		if (i < n)
		{
			row = found[i];
			keeps = row.rank <= limit;
		}
		votes = __ballot_sync(FULL_WARP, keeps);
		if (threadIdx.x % WARP == 0)
			of_warps[threadIdx.x / WARP] = (uint32_t) __popc(votes);
		__syncthreads();
		for (uint32_t warp = 0; warp < LIST_WARPS; warp++)
		{
			place += warp < threadIdx.x / WARP ? of_warps[warp] : 0;
			kept += of_warps[warp];
		}
		if (keeps)
			found[place + (uint32_t) __popc(votes & ((1u << threadIdx.x % WARP) - 1))] = row;
		__syncthreads();
	}
	if (threadIdx.x == 0)
	{
		query->found = kept;
		query->limit = limit;
	}
}

typedef void (*ScanKernel)(const MirrorView, const BatchView, const ListsView, const ListsPart,
						   uint32_t);

/*
 * The kernels of a kind of codes: of a group of pairs, of one, and of one whose
 * tables are far.
 */
struct ScanKernels
{
	ScanKernel group;
	ScanKernel one;
	ScanKernel far;
};

static const ScanKernels scan_kernels[] = {
	{lists_scan_kernel<CODE_INT8, 8, false>, lists_scan_kernel<CODE_INT8, 1, false>, NULL},
	{lists_scan_kernel<CODE_RABITQ, 8, false>, lists_scan_kernel<CODE_RABITQ, 1, false>, NULL},
	{lists_scan_kernel<CODE_PQ8, 4, false>, lists_scan_kernel<CODE_PQ8, 1, false>,
	 lists_scan_kernel<CODE_PQ8, 1, true>},
	{lists_scan_kernel<CODE_PQ4, 4, false>, lists_scan_kernel<CODE_PQ4, 1, false>, NULL}};

#define TABLES_MOST 98304u /* bytes of shared memory for tables: two blocks of a multiprocessor */

uint32_t
lists_scan_group(const QuantizerShape *shape)
{
	uint32_t group = shape->kind == QUANTIZER_PQ ? 4 : 8;

	return lists_table_words(shape) * 4 * group <= TABLES_MOST ? group : 1;
}

/* Items that a phase makes of one pair, at most. */
static uint32_t
pair_items(const ListsView &lists, const ListsPart &part, uint32_t phase)
{
	uint32_t most = 1;

	for (uint32_t other = 0; other < 2; other++)
	{
		uint32_t begin = phase_begin(phase, other),
				 end = phase_end(phase, other, lists.longest);

		if (begin < end && (end - begin + part.item_blocks - 1) / part.item_blocks > most)
			most = (end - begin + part.item_blocks - 1) / part.item_blocks;
	}
	return most;
}

cudaError_t
lists_scan_launch(const ListsStep *step)
{
	const ListsLaunch *launch = step->launch;
	const ListsPart &part = step->part;
	const ScanKernels &kernels = scan_kernels[code_kind(launch->lists.shape)];
	uint32_t bytes = part.table_words * 4 * part.group;
	bool far = bytes > TABLES_MOST;
	ScanKernel kernel = far ? kernels.far : part.group > 1 ? kernels.group : kernels.one;
	uint32_t blocks = far ? 4 : TABLES_MOST * 2 / (bytes + 4096);

	blocks = launch->processors * (blocks < 1 ? 1 : blocks > 6 ? 6 : blocks);
	for (uint32_t phase = 0; phase < part.phases; phase++)
	{
		dim3 grid(blocks);

		if (part.direct)
			grid = dim3(pair_items(launch->lists, part, phase), part.queries * part.most_probes);
		LAUNCH(kernel, grid, THREADS, far ? 0 : bytes, launch->stream, launch->mirror,
			   launch->batch, launch->lists, part, phase);
		if (phase + 1 < part.phases)
			LAUNCH(lists_limit_kernel, part.queries, THREADS, 0, launch->stream, part);
	}
	return cudaGetLastError();
}

cudaError_t
lists_scan_allow(const cudaDeviceProp *device)
{
	cudaError_t error = cudaSuccess;

	(void) device;
	for (const ScanKernels &kernels : scan_kernels)
		for (ScanKernel kernel : {kernels.group, kernels.one})
			if (error == cudaSuccess)
				error = cudaFuncSetAttribute((const void *) kernel,
											 cudaFuncAttributeMaxDynamicSharedMemorySize,
											 (int) TABLES_MOST);
	return error;
}
