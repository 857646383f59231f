/*
 * exact_scan.cu
 *		Scans of rows for few queries, or for queries that tiles gave up. Each
 *		row is read once for up to four queries.
 *
 * exact_scan_kernel
 *     grid    (ranges of rows, groups of 1 or 4 queries), 256 threads
 *     work    A team of 8, 16 or 32 threads reads two rows at a time, 16 bytes
 *             per load, and sums in single precision. Slots that pass a
 *             query's limit are appended to its list, up to CHUNK rows between
 *             barriers. When a list has 64 slots, they are measured exactly
 *             (two threads per row) and merged into the best k of the range,
 *             whose k-th is the new bound. The least bound of all ranges is
 *             shared in device memory.
 *     shared  queries; per query the best k in two halves, and its list of
 *             slots; one buffer for merging
 *     global  rows (once per group), norms (products only), bounds; writes k
 *             entries per range and query
 *     bound   memory, for groups of 1 to 4 (about 10 instructions per 16 bytes
 *             and query); exact arithmetic if all rows pass, as with equal
 *             distances
 *
 * Launched by exact.cu; by exact_tiles.cu for a sample of the rows, and for
 * queries left over; by batch.cu for pending rows. State: bounds and lists.
 */
#include <math.h>

#include "cuda/exact/exact_cheap.cuh"

#define CHUNK 512u		  /* rows between two barriers; the first chunks are smaller, until there is
						   * a limit */
#define FIRST_CHUNK 64u
#define MEASURE_AT 64u	  /* slots in a list that are worth measuring */
#define SLOTS (CHUNK + MEASURE_AT)
#define AT_ONCE 2u		  /* rows per team that are in flight */
#define GROUP 4u		  /* queries that share row reads */
#define GROUP_SHARED 65536u /* maximum shared memory of a block with a group, in bytes: three blocks
							 * per SM */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
#define SCAN_BLOCKS 2 /* minimum per SM; more would spill registers */
#else
#define SCAN_BLOCKS 3
#endif
#define MIN_RANGE 256u  /* minimum rows of a block */

/* State of a block's queries. */
template <int G>
struct Scanning
{
	DeviceQuery asked[G];
	double norm[G];
	Key bound[G];
	Limit limit[G];
	uint32_t query[G]; /* number in the batch */
	uint32_t slots[G]; /* length of the list of slots that passed */
	uint32_t best[G];  /* number of best entries */
	uint32_t side[G];  /* the half of the list that contains them */
	uint32_t seen[G];
	uint32_t buffered;
};

/* Shared memory of a block. */
struct ScanMemory
{
	unsigned char *queries;
	unsigned char *lists;
	unsigned char *buffer;
	uint32_t *slots;
};

__host__ __device__ static inline ScanMemory
lay_out(const MirrorView &mirror, uint32_t k, uint32_t group, unsigned char *at, size_t *bytes)
{
	ScanMemory memory;
	size_t lists = group * query_bytes(mirror);
	size_t buffer = lists + group * 2 * entries_bytes(list_room(k));
	size_t slots = buffer + entries_bytes(BUFFER);

	memory.queries = at;
	memory.lists = at + lists;
	memory.buffer = at + buffer;
	memory.slots = (uint32_t *) (at + slots);
	*bytes = slots + group * SLOTS * sizeof(uint32_t);
	return memory;
}

/* A query in the format of exact distances. */
template <int G>
__device__ static inline QueryVector
query_vector(const MirrorView &mirror, const Scanning<G> &scanning, const ScanMemory &memory,
			 uint32_t g)
{
	QueryVector query = {(const float *) (memory.queries + g * query_bytes(mirror)),
						 scanning.norm[g], 0};

	return query;
}

/* Lower the bound of a query. Called by one thread. */
template <typename T, int TERM, int G>
__device__ static inline void
scan_tighten(const MirrorView &mirror, const ScanPlan &plan, Scanning<G> *scanning, uint32_t g,
			 Key bound)
{
	if (bound >= scanning->bound[g])
		return;
	scanning->bound[g] = bound;
	scanning->limit[g] = Cheap<T, TERM>::limit(mirror, scanning->norm[g], bound, plan.error);
}

/*
 * Load a group of queries. Called by all threads. If there are fewer than G,
 * the rest repeats the first.
 */
template <typename T, int TERM, int G>
__device__ static inline void
begin_group(const MirrorView &mirror, const BatchView &batch, const ScanPlan &plan,
			Scanning<G> *scanning, const ScanMemory &memory, uint32_t first, uint32_t group)
{
	if (threadIdx.x < G)
	{
		uint32_t g = threadIdx.x;
		uint32_t number = first + (g < group ? g : 0);

		scanning->query[g] = plan.only != NULL ? plan.only[1 + number] : number;
		scanning->asked[g] = batch.queries[scanning->query[g]];
		scanning->bound[g] = NO_KEY;
		scanning->limit[g] = no_limit();
		scanning->slots[g] = scanning->best[g] = scanning->side[g] = scanning->seen[g] = 0;
		scanning->buffered = 0;
	}
	__syncthreads();
	for (uint32_t g = 0; g < G; g++)
		widen_query(mirror, (const T *) (batch.vectors + scanning->asked[g].vector),
					(float *) (memory.queries + g * query_bytes(mirror)));
	__syncthreads();
	for (uint32_t g = threadIdx.x / WARP; g < G; g += THREADS / WARP)
	{
		double norm = Cheap<T, TERM>::norm(
			mirror, (const float *) (memory.queries + g * query_bytes(mirror)));

		if (threadIdx.x % WARP == 0)
			scanning->norm[g] = norm;
	}
	__syncthreads();
}

/*
 * Measure the listed slots exactly, and merge them into a query's best. Called
 * by all threads.
 */
template <typename T, int TERM, int G>
__device__ static inline void
scan_measure(const MirrorView &mirror, const ScanPlan &plan, Scanning<G> *scanning,
			 const ScanMemory &memory, uint32_t g)
{
	uint32_t k = plan.lists.length;
	unsigned char *at = memory.lists + g * 2 * entries_bytes(list_room(k));
	Entries half[2];
	Selection selection;
	unsigned char *buffer = memory.buffer;
	uint32_t side = scanning->side[g];

	half[0] = entries_at(&at, list_room(k));
	half[1] = entries_at(&at, list_room(k));
	selection.best.now = side ? half[1] : half[0];
	selection.best.next = side ? half[0] : half[1];
	selection.best.count = scanning->best[g];
	selection.best.room = k;
	selection.buffer = entries_at(&buffer, BUFFER);
	selection.buffered = &scanning->buffered;
	measure_rows<T, TERM>(mirror, scanning->asked[g], query_vector(mirror, *scanning, memory, g),
						  memory.slots + g * SLOTS, scanning->slots[g], scanning->bound[g],
						  &selection);
	if (threadIdx.x == 0)
	{
		Key bound = selection_bound(selection.best);

		scanning->best[g] = selection.best.count;
		scanning->side[g] = selection.best.now.key == half[0].key ? 0 : 1;
		scanning->slots[g] = 0;
		if (bound != NO_KEY)
		{
			Key least = atomicMin(&plan.bounds[scanning->query[g]], bound);

			scan_tighten<T, TERM>(mirror, plan, scanning, g, least < bound ? least : bound);
		}
	}
	__syncthreads();
}

/* Bit mask of a group's queries that admit a slot. */
template <int G>
__device__ static inline uint32_t
admitting_queries(const MirrorView &mirror, const BatchView &batch, const Scanning<G> &scanning,
				  uint32_t group, uint32_t slot)
{
	uint32_t admitting = 0;

	for (uint32_t g = 0; g < group; g++)
		admitting |= (uint32_t) may_answer(mirror, batch, scanning.asked[g], slot) << g;
	return admitting;
}

/*
 * Append a row to the lists of the queries whose limits it passes. Called by
 * one thread.
 */
template <typename T, int TERM, int G>
__device__ static inline void
append_row(const MirrorView &mirror, const BatchView &batch, Scanning<G> *scanning,
		   const ScanMemory &memory, bool early, uint32_t slot, uint32_t admitting,
		   const typename Cheap<T, TERM>::Sum *sums)
{
	RowSide side = {0, 0};

	if (TERM == TERM_PRODUCT)
	{
		side = row_side(mirror.metric, mirror.norms[slot]);
		side.height = 0;
	}
#pragma unroll
	for (uint32_t g = 0; g < G; g++)
	{
		if (!((admitting >> g) & 1))
			continue;
		if (early)
			atomicAdd(&scanning->seen[g], 1);
		if (Cheap<T, TERM>::passes(mirror, scanning->limit[g], side, sums[g]) &&
			(early || may_answer(mirror, batch, scanning->asked[g], slot)))
			memory.slots[g * SLOTS + atomicAdd(&scanning->slots[g], 1)] = slot;
	}
}

/*
 * Filter rows [from, end) of a range: append slots that pass limits to the
 * lists. A team processes two rows at a time.
 */
template <typename T, int TERM, int G>
__device__ static inline void
filter_rows(const MirrorView &mirror, const BatchView &batch, const ScanPlan &plan,
			Scanning<G> *scanning, const ScanMemory &memory, uint32_t group, bool early,
			uint32_t from, uint32_t end)
{
	typedef Cheap<T, TERM> Way;
	uint32_t team = scan_team(mirror.stride);
	uint32_t lane = threadIdx.x & (team - 1);
	uint32_t teams = THREADS / team;
	uint32_t bytes = query_bytes(mirror);
	uint32_t chunks = mirror.stride / 16;

	/* all threads of a warp make the same number of iterations */
	for (uint32_t base = from; base < end; base += teams * AT_ONCE)
	{
		typename Way::Sum sums[AT_ONCE][G];
		const uint4 *rows[AT_ONCE];
		uint32_t slots[AT_ONCE];
		uint32_t admitting[AT_ONCE];

#pragma unroll
		for (uint32_t r = 0; r < AT_ONCE; r++)
		{
			uint32_t i = base + r * teams + threadIdx.x / team;
			uint32_t slot = i >= end			? NO_SLOT
							: plan.pending_only ? mirror.pending[i]
												: plan.first + i * plan.step;

			admitting[r] =
				slot >= mirror.rows ? 0
				: early				? admitting_queries(mirror, batch, *scanning, group, slot)
									: (1u << group) - 1;
			slots[r] = admitting[r] != 0 ? slot : plan.first;
			rows[r] = (const uint4 *) row_of<T>(mirror, slots[r]);
			for (uint32_t g = 0; g < G; g++)
				memset(&sums[r][g], 0, sizeof(sums[r][g]));
		}
		if (admitting[0] | admitting[AT_ONCE - 1])
		{
#pragma unroll(G > 1 && sizeof(T) == 2 ? 2 : 4)
			for (uint32_t chunk = lane; chunk < chunks; chunk += team)
			{
				uint4 raw[AT_ONCE];

#pragma unroll
				for (uint32_t r = 0; r < AT_ONCE; r++)
					raw[r] = __ldg(rows[r] + chunk);
#pragma unroll
				for (uint32_t g = 0; g < G; g++)
#pragma unroll
					for (uint32_t r = 0; r < AT_ONCE; r++)
						Way::add(&sums[r][g], memory.queries + g * bytes, chunk, raw[r]);
			}
		}
#pragma unroll
		for (uint32_t r = 0; r < AT_ONCE; r++)
		{
			for (uint32_t distance = team / 2; distance > 0; distance >>= 1)
#pragma unroll
				for (uint32_t g = 0; g < G; g++)
					Way::join(&sums[r][g], distance);
			if (lane == 0 && admitting[r] != 0)
				append_row<T, TERM>(mirror, batch, scanning, memory, early, slots[r], admitting[r],
									sums[r]);
		}
	}
}

/* Write a group's best of a range to the lists. Called by all threads. */
template <int G>
__device__ static inline void
end_group(const BatchView &batch, const ScanPlan &plan, const Scanning<G> &scanning,
		  const ScanMemory &memory, uint32_t first, uint32_t group, bool early, uint32_t rows)
{
	uint32_t k = plan.lists.length;

	for (uint32_t g = 0; g < group; g++)
	{
		size_t out = ((size_t) (first + g) * plan.lists.lists + blockIdx.x) * k;
		unsigned char *at = memory.lists + (2 * g + scanning.side[g]) * entries_bytes(list_room(k));
		Entries best = entries_at(&at, list_room(k));

		for (uint32_t i = threadIdx.x; i < k; i += THREADS)
		{
			bool there = i < scanning.best[g];

			plan.lists.keys[out + i] = there ? best.key[i] : NO_KEY;
			plan.lists.slots[out + i] = there ? best.slot[i] : NO_SLOT;
		}
		if (threadIdx.x == 0)
		{
			DeviceHead *head = &batch.heads[scanning.query[g]];

			atomicAdd(plan.pending_only ? &head->pending : &head->distances,
					  early ? scanning.seen[g] : rows);
		}
	}
	__syncthreads();
}

template <typename T, int TERM, int G>
__global__ void __launch_bounds__(THREADS, G == 1 ? SCAN_BLOCKS + 1 : SCAN_BLOCKS)
	exact_scan_kernel(const MirrorView mirror, const BatchView batch, const ScanPlan plan)
{
	__shared__ Scanning<G> scanning;
	DYNAMIC_SHARED(at);
	size_t bytes;
	ScanMemory memory = lay_out(mirror, plan.lists.length, G, at, &bytes);
	uint32_t queries = plan.only != NULL ? plan.only[0] : plan.queries;
	uint32_t total = plan.pending_only ? mirror.npending
									   : (mirror.rows - plan.first + plan.step - 1) / plan.step;
	uint32_t range = (total + gridDim.x - 1) / gridDim.x;
	uint32_t from = range * blockIdx.x < total ? range * blockIdx.x : total;
	uint32_t end = range < total - from ? from + range : total;

	for (uint32_t first = blockIdx.y * G; first < queries; first += gridDim.y * G)
	{
		uint32_t group = queries - first < G ? queries - first : G;
		uint32_t chunk = FIRST_CHUNK;
		bool early = plan.pending_only;

		begin_group<T, TERM>(mirror, batch, plan, &scanning, memory, first, group);
		for (uint32_t g = 0; g < group; g++)
			early = early || scanning.asked[g].has_admitted;
		for (uint32_t base = from; base < end;
			 base += chunk, chunk = chunk < CHUNK ? chunk * 2 : CHUNK)
		{
			uint32_t until = chunk < end - base ? base + chunk : end;

			/* poll the bounds of other ranges; once per chunk is cheap */
			if (threadIdx.x < group)
				scan_tighten<T, TERM>(mirror, plan, &scanning, threadIdx.x,
								 *(volatile Key *) &plan.bounds[scanning.query[threadIdx.x]]);
			__syncthreads();
			filter_rows<T, TERM>(mirror, batch, plan, &scanning, memory, group, early, base, until);
			__syncthreads();
			for (uint32_t g = 0; g < group; g++)
				if (scanning.slots[g] >= MEASURE_AT || (until == end && scanning.slots[g] > 0))
					scan_measure<T, TERM>(mirror, plan, &scanning, memory, g);
		}
		end_group(batch, plan, scanning, memory, first, group, early, end - from);
	}
}

typedef void (*ScanKernel)(const MirrorView, const BatchView, const ScanPlan);

#define ALONE_KERNEL(T, TERM) exact_scan_kernel<T, TERM, 1>
#define GROUP_KERNEL(T, TERM) exact_scan_kernel<T, TERM, GROUP>

static const ScanKernel alone_kernels[TYPES_AND_TERMS_COUNT] = TYPES_AND_TERMS(ALONE_KERNEL);
static const ScanKernel group_kernels[TYPES_AND_TERMS_COUNT] = TYPES_AND_TERMS(GROUP_KERNEL);

cudaError_t
scan_prepare(int bytes)
{
	cudaError_t error = allow_shared(alone_kernels, (size_t) bytes);

	return error == cudaSuccess ? allow_shared(group_kernels, (size_t) bytes) : error;
}

/* Number of queries in a group, and the shared memory of a block. */
static uint32_t
scan_group(const ExactLaunch *launch, size_t *bytes)
{
	lay_out(launch->mirror, launch->max_k, GROUP, NULL, bytes);
	if (launch->queries > 1 && *bytes <= GROUP_SHARED)
		return GROUP;
	lay_out(launch->mirror, launch->max_k, 1, NULL, bytes);
	return 1;
}

/* Number of blocks that run concurrently, with groups of this size. */
static uint32_t
scan_blocks(const ExactLaunch *launch, uint32_t group)
{
	return group > 1 ? launch->blocks / 2 / 4 * 3 : launch->blocks / 2;
}

uint32_t
scan_ranges(const ExactLaunch *launch, uint32_t rows)
{
	uint32_t useful = (rows + MIN_RANGE - 1) / MIN_RANGE;
	size_t bytes;
	uint32_t group = scan_group(launch, &bytes);
	uint32_t ranges = scan_blocks(launch, group) / ((launch->queries + group - 1) / group);

	ranges = ranges > 0 ? ranges : 1;
	return ranges < useful ? ranges : useful;
}

cudaError_t
scan_launch(const ExactLaunch *launch, ScanPlan *plan, unsigned char *state, size_t state_bytes)
{
	const MirrorView &mirror = launch->mirror;
	int pair = type_and_term(launch->type, mirror.metric);
	uint32_t total = plan->pending_only ? mirror.npending
										: (mirror.rows - plan->first + plan->step - 1) / plan->step;
	size_t bounds = plan->bounds == NULL ? round_up(launch->queries * sizeof(Key), 16) : 0;
	uint32_t room = exact_scan_queries(state_bytes - bounds, launch->max_k) / launch->queries;
	size_t bytes;
	uint32_t group = scan_group(launch, &bytes);
	uint32_t blocks = scan_blocks(launch, group);
	uint32_t groups = (launch->queries + group - 1) / group;
	uint32_t ranges = plan->ranges > 0 ? plan->ranges : scan_ranges(launch, total);
	cudaError_t error = cudaSuccess;

	if (plan->only != NULL)
	{
		uint32_t useful = (total + MIN_RANGE - 1) / MIN_RANGE;

		/* the number of queries is only known on the device */
		ranges = blocks < useful ? blocks : useful;
		groups = blocks / (ranges < room ? ranges : room) + 1;
	}
	plan->error = (mirror.dims + 16.0) / 16777216 * 1.1;
	plan->queries = launch->queries;
	if (plan->ranges == 0)
	{
		ranges = ranges < room ? ranges : room;
		ranges = ranges > 0 ? ranges : 1;
		plan->lists.lists = ranges;
		plan->lists.length = launch->max_k;
		plan->lists.keys = (Key *) (state + bounds);
		plan->lists.slots =
			(uint32_t *) (plan->lists.keys + (size_t) launch->queries * ranges * launch->max_k);
	}
	if (plan->bounds == NULL)
	{
		plan->bounds = (Key *) state;
		error = cudaMemsetAsync(plan->bounds, 0xFF, launch->queries * sizeof(Key), launch->stream);
	}
	if (error != cudaSuccess)
		return error;
	LAUNCH((group > 1 ? group_kernels : alone_kernels)[pair], dim3(ranges, groups), THREADS, bytes,
		   launch->stream, mirror, launch->batch, *plan);
	return cudaGetLastError();
}
