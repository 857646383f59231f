/*
 * lists_scan.cu
 *		Scans codes: a list's codes for all queries of a part that probe it.
 *
 * Scans run in phases (phase_begin()), over ever more blocks of each list;
 * after each phase the k-th upper bound found so far (by estimate: the estimate
 * of rank `rerank`) becomes the query's limit, and rows above it are dropped.
 * So few rows reach the buffers, whatever the order of codes.
 *
 * scan: a persistent grid of blocks of 256 threads that take items from a
 * ticket counter: up to 64 blocks of a list, and up to 16 pairs (8 where few
 * queries probe a list, or tables are long; pq: 4). With small batches, where
 * hardly any two queries probe the same list, a thread block scans one pair,
 * for 8 blocks of codes or more. A warp scans one block of codes at a time, one
 * code per lane.
 *
 *		registers	sums of all pairs
 *		shared		the pairs' tables: int8 and rabitq as tensor cores want
 *					them (lists_products.cuh), 32 bytes a dimension of 16
 *					queries, and sums of each warp; pq side by side
 *					(lists_estimate.cuh), 2,048 or 64 bytes a sub-space of 4
 *		L2, HBM		codes, once for each item; the buffers of what may be
 *					chosen,
 *					appended to by one atomic a warp and pair
 *
 * Bytes read: codes once per 16 queries that probe their list, tables once per
 * item. Bound: for groups the estimates and bounds, some 40 instructions per
 * code and query; for single pairs dp4a and latency of codes, of which a lane
 * has 32 words in flight; for pq shared memory.
 */
#include "cuda/lists/lists_products.cuh"

#define THREADS (LIST_WARPS * WARP)
#define MAX_GROUP 16u
#define AGAIN NO_SLOT	 /* pseudo-phase: queries whose buffers overflowed, */
#define AGAIN_SLICES 64u /* whose lists are cut into at most this many slices */
#define FULL_GROUP 12u	 /* mean number of pairs per list from which groups have 16 */

/* Shared memory of a block besides tables. */
struct ScanShared
{
	uint32_t item;
	uint32_t at; /* the item's class and list */
	uint32_t pair;
	uint32_t pairs;
	uint32_t begin; /* range in lists.blocks */
	uint32_t end;
	uint32_t number[MAX_GROUP];
	float base[MAX_GROUP];
	ListsQuery query[MAX_GROUP];
};

/*
 * The largest i with numbers[i] <= number, of n + 1 ascending numbers; number
 * is below numbers[n]. One warp.
 */
__device__ static inline uint32_t
warp_search(const uint32_t *numbers, uint32_t n, uint32_t number)
{
	uint32_t low = 0,
			 width = n;

	/* a 32-way search: each lane compares one number per step */
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
 * Take the next item of a phase from the ticket counter. First warp. pairs = 0:
 * none is left.
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
		uint32_t end = phase_end(part, phase, other, lists.first[list + 1] - first);
		uint32_t groups = (part.counts[at] + part.group - 1) / part.group;
		uint32_t group = (item - items[at]) % groups;
		uint32_t begin =
			phase_begin(part, phase, other) + (item - items[at]) / groups * part.item_blocks;
		uint32_t left = part.counts[at] - group * part.group;

		shared->pair = part.starts[at] + group * part.group;
		shared->pairs = left < part.group ? left : part.group;
		shared->begin = first + begin;
		shared->end = first + (begin + part.item_blocks < end ? begin + part.item_blocks : end);
	}
}

/*
 * The item of a thread block where pairs are scanned one by one: blockIdx.y is
 * the pair, blockIdx.x selects a range of its list's blocks. One thread.
 */
__device__ static inline void
take_pair(const ListsView &lists, const ListsPart &part, uint32_t phase, ScanShared *shared)
{
	uint32_t query = blockIdx.y / part.max_list_probes;
	ListsPair pair;
	uint32_t other,
		first,
		begin,
		end;

	shared->pairs = 0;
	if (blockIdx.y % part.max_list_probes >= part.query[query].probes ||
		part.query[query].choice == LISTS_ALL)
		return;
	pair = part.probes[blockIdx.y];
	other = part.ranks[blockIdx.y] != 0;
	first = lists.first[pair.number];
	begin = phase_begin(part, phase, other) + blockIdx.x * part.item_blocks;
	end = phase_end(part, phase, other, lists.first[pair.number + 1] - first);
	if (begin >= end)
		return;
	shared->pairs = 1;
	shared->begin = first + begin;
	shared->end = first + (begin + part.item_blocks < end ? begin + part.item_blocks : end);
	shared->number[0] = query;
	shared->base[0] = pair.base;
}

/*
 * Take the next slice of a list of a query that is scanned again. First thread.
 */
__device__ static inline void
take_again(const ListsView &lists, const ListsPart &part, ScanShared *shared)
{
	uint32_t blocks = (lists.longest + AGAIN_SLICES - 1) / AGAIN_SLICES;
	uint32_t slices;

	blocks = blocks < LIST_WARPS ? LIST_WARPS : blocks;
	slices = (lists.longest + blocks - 1) / blocks;
	shared->pairs = 0;
	for (;;)
	{
		uint64_t taken = atomicAdd(&part.again->taken, 1ull);
		uint32_t first = (uint32_t) (taken % slices) * blocks;
		uint64_t probe = taken / slices;
		uint32_t query;
		ListsPair pair;

		if (probe / part.max_list_probes >= part.again->queries)
			return;
		query = part.queries_again[probe / part.max_list_probes];
		probe %= part.max_list_probes;
		if (probe >= part.query[query].probes)
			continue;
		pair = part.probes[(size_t) query * part.max_list_probes + probe];
		shared->begin = lists.first[pair.number] + first;
		shared->end = lists.first[pair.number + 1];
		if (shared->begin >= shared->end)
			continue;
		if (shared->end - shared->begin > blocks)
			shared->end = shared->begin + blocks;
		shared->number[0] = query;
		shared->base[0] = pair.base;
		shared->pairs = 1;
		return;
	}
}

/*
 * Load an item's pairs and their queries. After a barrier; the caller
 * synchronises before reading them.
 */
template <int G>
__device__ static inline void
load_pairs(const ListsPart &part, bool sorted, ScanShared *shared)
{
	if (threadIdx.x < G && sorted)
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

/*
 * Append rows to a query's buffer: one atomic per warp. Rows beyond its
 * capacity are counted but not stored. Whole warps.
 */
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

/* A lane's code: its slot and terms. */
struct ScannedCode
{
	uint32_t slot;
	CodeTerms terms;
};

/*
 * Compare a warp's codes with pair g of an item, given their sums. Whole warps.
 */
template <int KIND>
__device__ static inline void
scan_pair(const MirrorView &mirror, const BatchView &batch, const ListsView &lists,
		  const ListsPart &part, const ScanShared &shared, uint32_t g, const ScannedCode &code,
		  int sum)
{
	const ListsQuery &query = shared.query[g];
	ListsFound found;
	float estimate,
		lower;
	bool chosen;

	if (query.found >= FOUND_TOO_MANY)
		return;
	estimate = code_estimate<KIND>(lists.shape, query, shared.base[g], sum, code.terms, &lower);
	/* a NaN estimate excludes nothing: the row is measured */
	chosen = (query.choice == LISTS_BY_ESTIMATE ? !(estimate > query.limit)
												: lower <= query.limit) &&
			 code.slot != NO_SLOT;
	if (chosen)
		chosen = consider_row<KIND>(mirror, batch, lists, part.asked[shared.number[g]], query,
									shared.base[g], code.slot, estimate, lower, code.terms, &found);
	append_found(part, shared.number[g], found, chosen);
}

/*
 * Scan a block of codes for an item's pairs. PRODUCTS: sums are computed by
 * tensor cores and lie in the warp's shared memory. One warp.
 */
template <int KIND, int G, bool PRODUCTS>
__device__ static inline void
scan_block(const MirrorView &mirror, const BatchView &batch, const ListsView &lists,
		   const ListsPart &part, const uint32_t *tables, int *of_warp, const ScanShared &shared,
		   uint32_t block)
{
	uint32_t lane = threadIdx.x % WARP;
	const uint32_t *codes = list_codes(lists, block);
	ScannedCode code = {list_slot(lists, block, lane), code_terms<KIND>(lists, codes + lane)};

	if constexpr (PRODUCTS)
	{
		product_sums<KIND, G>(lists, codes, tables, of_warp);
#pragma unroll 1
		for (uint32_t g = 0; g < shared.pairs; g++)
			scan_pair<KIND>(mirror, batch, lists, part, shared, g, code,
							of_warp[lane * (G + 1) + g]);
	}
	else
	{
		int sums[G];

		code_sums<KIND, G>(lists, codes + lane, tables, sums);
#pragma unroll
		for (int g = 0; g < G; g++)
			if (g < (int) shared.pairs)
				scan_pair<KIND>(mirror, batch, lists, part, shared, (uint32_t) g, code, sums[g]);
	}
}

/* Where an item's tables are. */
enum ScanTables
{
	TABLES_SHARED,	 /* copied to shared memory, interleaved */
	TABLES_GLOBAL,		 /* of a single pair, read from global memory, because shared memory is too
					  * small */
	TABLES_PRODUCTS, /* laid out for tensor cores in shared memory, behind the warps' sums */
};

template <int KIND, int G, ScanTables TABLES>
__global__ void __launch_bounds__(THREADS, 3)
	lists_scan_kernel(const MirrorView mirror, const BatchView batch, const ListsView lists,
					  const ListsPart part, uint32_t phase)
{
	const bool PRODUCTS = TABLES == TABLES_PRODUCTS;
	DYNAMIC_SHARED(memory);
	__shared__ ScanShared shared;
	uint32_t *tables = (uint32_t *) memory + (PRODUCTS ? LIST_WARPS * WARP * (G + 1) : 0);
	int *of_warp = (int *) memory + threadIdx.x / WARP * WARP * (G + 1);

	do
	{
		if (phase == AGAIN)
		{
			if (threadIdx.x == 0)
				take_again(lists, part, &shared);
		}
		else if (part.direct && threadIdx.x == 0)
			take_pair(lists, part, phase, &shared);
		else if (!part.direct && threadIdx.x < WARP)
			take_item(lists, part, phase, &shared);
		__syncthreads();
		if (shared.pairs == 0)
			return;
		load_pairs<G>(part, !part.direct && phase != AGAIN, &shared);
		if constexpr (PRODUCTS)
			load_product_tables<G>(lists.shape, part.tables, part.table_words, shared.number,
									shared.pairs, tables);
		else if (TABLES == TABLES_SHARED)
			load_tables<KIND, G>(part.tables, part.table_words, shared.number, shared.pairs,
								  tables);
		__syncthreads();
		for (uint32_t i = shared.begin + threadIdx.x / WARP; i < shared.end; i += LIST_WARPS)
			scan_block<KIND, G, PRODUCTS>(
				mirror, batch, lists, part,
				TABLES == TABLES_GLOBAL
					? part.tables + (size_t) shared.number[0] * part.table_words
					: tables,
				of_warp, shared, lists.blocks[i]);
		__syncthreads();
	} while (!part.direct || phase == AGAIN);
}

typedef void (*ScanKernel)(const MirrorView, const BatchView, const ListsView, const ListsPart,
						   uint32_t);

/*
 * The kernels of a kind of codes: for a group of pairs, for half a group where
 * that does not fit or fill, for one pair, and for one pair whose tables stay
 * in global memory.
 */
struct ScanKernels
{
	ScanKernel group;
	ScanKernel half;
	ScanKernel one;
	ScanKernel global_tables;
};

static const ScanKernels scan_kernels[] = {
	{lists_scan_kernel<CODE_INT8, 16, TABLES_PRODUCTS>,
	 lists_scan_kernel<CODE_INT8, 8, TABLES_PRODUCTS>,
	 lists_scan_kernel<CODE_INT8, 1, TABLES_SHARED>, NULL},
	{lists_scan_kernel<CODE_RABITQ, 16, TABLES_PRODUCTS>,
	 lists_scan_kernel<CODE_RABITQ, 8, TABLES_PRODUCTS>,
	 lists_scan_kernel<CODE_RABITQ, 1, TABLES_SHARED>, NULL},
	{lists_scan_kernel<CODE_PQ8, 4, TABLES_SHARED>, NULL,
	 lists_scan_kernel<CODE_PQ8, 1, TABLES_SHARED>, lists_scan_kernel<CODE_PQ8, 1, TABLES_GLOBAL>},
	{lists_scan_kernel<CODE_PQ4, 4, TABLES_SHARED>, NULL,
	 lists_scan_kernel<CODE_PQ4, 1, TABLES_SHARED>, NULL}};

#define TABLES_MAX 98304u /* bytes of shared memory for tables: allows two blocks per SM */

/* Bytes of shared memory for the tables and sums of a group. */
static uint32_t
group_bytes(const QuantizerShape *shape, uint32_t group)
{
	if (shape->kind == QUANTIZER_PQ || group == 1)
		return (lists_table_words(shape) + 3) / 4 * 16 * group;
	return product_words(*shape, group) * 4 + LIST_WARPS * WARP * (group + 1) * 4;
}

uint32_t
lists_scan_group(const QuantizerShape *shape, uint32_t pairs)
{
	uint32_t group = shape->kind == QUANTIZER_PQ ? 4 : MAX_GROUP;

	if (group == MAX_GROUP && (pairs < FULL_GROUP || group_bytes(shape, group) > TABLES_MAX))
		group = MAX_GROUP / 2;
	return group_bytes(shape, group) <= TABLES_MAX ? group : 1;
}

/* The kernel for a part. */
static ScanKernel
scan_kernel(const ScanKernels &kernels, const ListsPart &part, bool global_tables)
{
	if (part.group == 1)
		return global_tables ? kernels.global_tables : kernels.one;
	return part.group == MAX_GROUP / 2 ? kernels.half : kernels.group;
}

/* Maximum number of items of one pair in a phase. */
static uint32_t
pair_items(const ListsView &lists, const ListsPart &part, uint32_t phase)
{
	uint32_t most = 1;

	for (uint32_t other = 0; other < 2; other++)
	{
		uint32_t begin = phase_begin(part, phase, other),
				 end = phase_end(part, phase, other, lists.longest);

		if (begin < end && (end - begin + part.item_blocks - 1) / part.item_blocks > most)
			most = (end - begin + part.item_blocks - 1) / part.item_blocks;
	}
	return most;
}

/* Scan again for queries whose buffers overflowed; usually there are none. */
static cudaError_t
launch_again(const ListsStep *step, const ScanKernels &kernels)
{
	const ListsLaunch *launch = step->launch;
	uint32_t bytes = group_bytes(&launch->lists.shape, 1);
	bool global_tables = bytes > TABLES_MAX;
	cudaError_t error = lists_limit_launch(step, true);

	if (error == cudaSuccess)
		LAUNCH((global_tables ? kernels.global_tables : kernels.one), launch->processors * 2,
			   THREADS, global_tables ? 0 : bytes, launch->stream, launch->mirror, launch->batch,
			   launch->lists, step->part, AGAIN);
	return error == cudaSuccess ? cudaGetLastError() : error;
}

cudaError_t
lists_scan_launch(const ListsStep *step)
{
	const ListsLaunch *launch = step->launch;
	const ListsPart &part = step->part;
	const ScanKernels &kernels = scan_kernels[code_kind(launch->lists.shape)];
	uint32_t bytes = group_bytes(&launch->lists.shape, part.group);
	bool global_tables = bytes > TABLES_MAX;
	ScanKernel kernel = scan_kernel(kernels, part, global_tables);
	uint32_t blocks = global_tables ? 4 : TABLES_MAX * 2 / (bytes + 4096);
	cudaError_t error = cudaSuccess;

	blocks = launch->processors * (blocks < 1 ? 1 : blocks > 6 ? 6 : blocks);
	for (uint32_t phase = 0; phase < part.phases && error == cudaSuccess; phase++)
	{
		dim3 grid(blocks);

		if (part.direct)
			grid =
				dim3(pair_items(launch->lists, part, phase), part.queries * part.max_list_probes);
		LAUNCH(kernel, grid, THREADS, global_tables ? 0 : bytes, launch->stream, launch->mirror,
			   launch->batch, launch->lists, part, phase);
		if (phase + 1 < part.phases)
			error = lists_limit_launch(step, false);
	}
	if (part.overflows && error == cudaSuccess)
		error = launch_again(step, kernels);
	return error == cudaSuccess ? cudaGetLastError() : error;
}

cudaError_t
lists_scan_allow(const cudaDeviceProp *device)
{
	cudaError_t error = cudaSuccess;

	(void) device;
	for (const ScanKernels &kernels : scan_kernels)
		for (ScanKernel kernel : {kernels.group, kernels.half, kernels.one})
			if (error == cudaSuccess)
				error = allow_shared(kernel, TABLES_MAX);
	return error;
}
