/*
 * lists_scan.cu
 *		Scanning codes: a list's for all queries of a part that probe it.
 *
 * In phases (phase_begin()), of ever more blocks of each list; after each one
 * the k-th upper bound found so far (by estimate: number `rerank`) becomes the
 * query's limit, and what is above it is dropped. So few rows reach the
 * buffers, whatever the order of codes.
 *
 * scan: a persistent grid of 256 threads takes items: up to 64 blocks of a
 * list, and up to 16 pairs (8 where few queries probe a list, or tables are
 * long; pq: 4). Of small batches, where hardly any two queries probe the same
 * list, a block takes one pair and 8 blocks of codes or more. A warp takes a
 * block of codes at a time, a lane a code.
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
 * Bytes read: codes once for each 16 queries that probe their list, tables once
 * an item. Bound: of groups estimates and bounds, some 40 instructions a code
 * and query; of pairs alone dp4a and waiting for codes, of which a lane asks
 * for 32 words at a time; pq by shared memory.
 */
#include "cuda/lists/lists_products.cuh"

#define THREADS (LIST_WARPS * WARP)
#define MOST_GROUP 16u
#define AGAIN NO_SLOT	 /* a phase: queries whose buffers did not suffice, */
#define AGAIN_SLICES 64u /* whose lists are cut into so many slices at most */
#define FULL_GROUP 12u	 /* pairs of a list, on average, for which groups are of 16 */

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
 * Take a slice of a list that a query probes which is scanned again. First
 * thread.
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

		if (probe / part.most_probes >= part.again->queries)
			return;
		query = part.queries_again[probe / part.most_probes];
		probe %= part.most_probes;
		if (probe >= part.query[query].probes)
			continue;
		pair = part.probes[(size_t) query * part.most_probes + probe];
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

/* Bring an item's pairs. After a barrier; one is to follow. */
template <int G>
__device__ static inline void
bring_pairs(const ListsPart &part, bool sorted, ScanShared *shared)
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

/* A lane's code, and whose it is. */
struct ScannedCode
{
	uint32_t slot;
	CodeTerms terms;
};

/* Compare a warp's codes to pair g of an item, by their sums. Whole warps. */
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
	/* an estimate that is no number says nothing: the row is measured */
	chosen = (query.choice == LISTS_BY_ESTIMATE ? !(estimate > query.limit)
												: lower <= query.limit) &&
			 code.slot != NO_SLOT;
	if (chosen)
		chosen = consider_row<KIND>(mirror, batch, lists, part.asked[shared.number[g]], query,
									shared.base[g], code.slot, estimate, lower, code.terms, &found);
	append_found(part, shared.number[g], found, chosen);
}

/*
 * Scan a block of codes for an item's pairs. PRODUCTS: by tensor cores, sums
 * lie in a warp's shared memory. One warp.
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

/* Where tables are that an item's codes are compared by. */
enum ScanTables
{
	TABLES_SHARED,	 /* brought side by side */
	TABLES_FAR,		 /* of one pair, read where they are: there is no room for them */
	TABLES_PRODUCTS, /* as products want them, behind sums of warps */
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
		bring_pairs<G>(part, !part.direct && phase != AGAIN, &shared);
		if constexpr (PRODUCTS)
			bring_product_tables<G>(lists.shape, part.tables, part.table_words, shared.number,
									shared.pairs, tables);
		else if (TABLES == TABLES_SHARED)
			bring_tables<KIND, G>(part.tables, part.table_words, shared.number, shared.pairs,
								  tables);
		__syncthreads();
		for (uint32_t i = shared.begin + threadIdx.x / WARP; i < shared.end; i += LIST_WARPS)
			scan_block<KIND, G, PRODUCTS>(
				mirror, batch, lists, part,
				TABLES == TABLES_FAR
					? part.tables + (size_t) shared.number[0] * part.table_words
					: tables,
				of_warp, shared, lists.blocks[i]);
		__syncthreads();
	} while (!part.direct || phase == AGAIN);
}

typedef void (*ScanKernel)(const MirrorView, const BatchView, const ListsView, const ListsPart,
						   uint32_t);

/*
 * The kernels of a kind of codes: of a group of pairs, of half of one where
 * that has no room, of one pair, and of one whose tables are far.
 */
struct ScanKernels
{
	ScanKernel group;
	ScanKernel half;
	ScanKernel one;
	ScanKernel far;
};

static const ScanKernels scan_kernels[] = {
	{lists_scan_kernel<CODE_INT8, 16, TABLES_PRODUCTS>,
	 lists_scan_kernel<CODE_INT8, 8, TABLES_PRODUCTS>,
	 lists_scan_kernel<CODE_INT8, 1, TABLES_SHARED>, NULL},
	{lists_scan_kernel<CODE_RABITQ, 16, TABLES_PRODUCTS>,
	 lists_scan_kernel<CODE_RABITQ, 8, TABLES_PRODUCTS>,
	 lists_scan_kernel<CODE_RABITQ, 1, TABLES_SHARED>, NULL},
	{lists_scan_kernel<CODE_PQ8, 4, TABLES_SHARED>, NULL,
	 lists_scan_kernel<CODE_PQ8, 1, TABLES_SHARED>, lists_scan_kernel<CODE_PQ8, 1, TABLES_FAR>},
	{lists_scan_kernel<CODE_PQ4, 4, TABLES_SHARED>, NULL,
	 lists_scan_kernel<CODE_PQ4, 1, TABLES_SHARED>, NULL}};

#define TABLES_MOST 98304u /* bytes of shared memory for tables: two blocks of a multiprocessor */

/* Bytes of shared memory for the tables of a group, and sums. */
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
	uint32_t group = shape->kind == QUANTIZER_PQ ? 4 : MOST_GROUP;

	if (group == MOST_GROUP && (pairs < FULL_GROUP || group_bytes(shape, group) > TABLES_MOST))
		group = MOST_GROUP / 2;
	return group_bytes(shape, group) <= TABLES_MOST ? group : 1;
}

/* The kernel of a part. */
static ScanKernel
scan_kernel(const ScanKernels &kernels, const ListsPart &part, bool far)
{
	if (part.group == 1)
		return far ? kernels.far : kernels.one;
	return part.group == MOST_GROUP / 2 ? kernels.half : kernels.group;
}

/* Items that a phase makes of one pair, at most. */
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

/* Scan again for queries whose buffers did not suffice, as a rule for none. */
static cudaError_t
launch_again(const ListsStep *step, const ScanKernels &kernels)
{
	const ListsLaunch *launch = step->launch;
	uint32_t bytes = group_bytes(&launch->lists.shape, 1);
	bool far = bytes > TABLES_MOST;
	cudaError_t error = lists_limit_launch(step, true);

	if (error == cudaSuccess)
		LAUNCH((far ? kernels.far : kernels.one), launch->processors * 2, THREADS, far ? 0 : bytes,
			   launch->stream, launch->mirror, launch->batch, launch->lists, step->part, AGAIN);
	return error == cudaSuccess ? cudaGetLastError() : error;
}

cudaError_t
lists_scan_launch(const ListsStep *step)
{
	const ListsLaunch *launch = step->launch;
	const ListsPart &part = step->part;
	const ScanKernels &kernels = scan_kernels[code_kind(launch->lists.shape)];
	uint32_t bytes = group_bytes(&launch->lists.shape, part.group);
	bool far = bytes > TABLES_MOST;
	ScanKernel kernel = scan_kernel(kernels, part, far);
	uint32_t blocks = far ? 4 : TABLES_MOST * 2 / (bytes + 4096);
	cudaError_t error = cudaSuccess;

	blocks = launch->processors * (blocks < 1 ? 1 : blocks > 6 ? 6 : blocks);
	for (uint32_t phase = 0; phase < part.phases && error == cudaSuccess; phase++)
	{
		dim3 grid(blocks);

		if (part.direct)
			grid = dim3(pair_items(launch->lists, part, phase), part.queries * part.most_probes);
		LAUNCH(kernel, grid, THREADS, far ? 0 : bytes, launch->stream, launch->mirror,
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
				error = allow_shared(kernel, TABLES_MOST);
	return error;
}
