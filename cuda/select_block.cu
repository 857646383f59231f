/*
 * select_block.cu
 *		Selection by a queue of the whole block (thesis.md T18): k up to 2,048.
 *
 * The block's K best (a power of two, k or more) are in its registers, sorted; what is before the k-th of them goes to a queue of K items in
 * shared memory. When that is full it is sorted and merged in: so every merge is of K new items, and the k-th is what all must beat.
 *
 * Map: grid rows x parts, 128 threads (K <= 512) or 256. A tile of 16 numbers per thread is read before any of it is looked at; tiles come in an
 * order that no simple order of the numbers makes the worst. Items that find the queue full wait in their thread's registers, and are shown again
 * behind the merge. Parts of one row share the least k-th.
 *		registers	K / threads of the best, as many of the queue while it is merged, 16 numbers
 *		shared		the queue, 8 K bytes; 16 bytes a thread for what the network exchanges
 * Reads each number once, one barrier per tile, writes k items per part. Bound: memory.
 * block_sort_kernel sorts rows of up to 2,048 items with the same network. Launched by select.cu.
 */
#include <math.h>

#include "select_block.cuh"

#define READS 4
#define LOOK_EACH 4u /* tiles between two looks at what other parts have found */

/* What the threads of a block share. */
template <int BLOCK, int ITEMS>
struct BlockQueue
{
	Item queue[BLOCK * ITEMS];
	Item exchange[2 * BLOCK];
	Item kth;
	uint32_t queued; /* may be more than there is room for, until the merge */
};

/* Merge the queue into the best. All threads, after a barrier; ends with one. Returns the k-th. */
template <int BLOCK, int ITEMS>
__device__ static INLINE Item
merge_queue(Item (&best)[ITEMS], BlockQueue<BLOCK, ITEMS> *shared, uint32_t k, SelectEvents *events)
{
	const uint32_t K = BLOCK * ITEMS;
	uint32_t first = threadIdx.x * ITEMS;
	uint32_t n = shared->queued < K ? shared->queued : K;
	Item taken[ITEMS];

	if (threadIdx.x == 0)
	{
		COUNT(events, merges, 1);
		COUNT(events, inserts, n);
	}
#pragma unroll
	for (uint32_t i = 0; i < ITEMS; i++)
		taken[i] = first + i < n ? shared->queue[first + i] : NO_ITEM;
	block_sort_items<BLOCK>(taken, shared->exchange);
	__syncthreads();
#pragma unroll
	for (uint32_t i = 0; i < ITEMS; i++)
		shared->queue[first + i] = taken[i];
	__syncthreads();
#pragma unroll
	for (uint32_t i = 0; i < ITEMS; i++)
		best[i] = keep_item(best[i], shared->queue[K - 1 - first - i], true);
	block_clean_items<BLOCK>(best, shared->exchange);
#pragma unroll
	for (uint32_t i = 0; i < ITEMS; i++)
		if (first + i == k - 1)
			shared->kth = best[i];
	if (threadIdx.x == 0)
		shared->queued = 0;
	__syncthreads();
	return shared->kth;
}

/* Put what of a tile is before an item into the queue, as far as there is room. Whole warps. Returns what had no room. */
template <class Rows, int BLOCK, int ITEMS>
__device__ static INLINE uint32_t
queue_tile(BlockQueue<BLOCK, ITEMS> *shared, typename Rows::Four (&four)[READS], uint32_t first, uint32_t passing, Item before)
{
	uint32_t lane = threadIdx.x % WARP;

#pragma unroll 1
	for (uint32_t turn = 0; turn < READS * AT_A_TIME; turn++)
	{
		uint32_t ballot = __ballot_sync(FULL_WARP, (passing >> turn & 1) != 0);

		if (ballot != 0)
		{
			Item item = Rows::item(four[0], 0, first + turn / AT_A_TIME * BLOCK * AT_A_TIME + turn % AT_A_TIME);
			bool enters = (passing >> turn & 1) != 0 && item < before;
			uint32_t place = 0;

			ballot = __ballot_sync(FULL_WARP, enters);
			if (lane == 0 && ballot != 0)
				place = atomicAdd(&shared->queued, (uint32_t) __popc(ballot));
			place = __shfl_sync(FULL_WARP, place, 0) + (uint32_t) __popc(ballot & ((1u << lane) - 1));
			if (enters && place < BLOCK * ITEMS)
				shared->queue[place] = item;
			if (!enters || place < BLOCK * ITEMS)
				passing &= ~(1u << turn);
		}
		move_on(four);
	}
	return passing;
}

template <class Rows, int BLOCK, int ITEMS>
__global__ void __launch_bounds__(BLOCK, (ITEMS > 4 ? 512 : ITEMS > 2 ? 768 : 1024) / BLOCK) block_queue_kernel(const Rows rows, const QueuePlan plan)
{
	const uint32_t TILE = BLOCK * AT_A_TIME * READS;
	__shared__ BlockQueue<BLOCK, ITEMS> shared;
	uint32_t row = blockIdx.x / plan.parts;
	Part part = part_of(plan, TILE);
	uint32_t tile = 0;
	Item kth = NO_ITEM,
		 bound = NO_ITEM;
	Item best[ITEMS];

#pragma unroll
	for (int i = 0; i < ITEMS; i++)
		best[i] = NO_ITEM;
	if (threadIdx.x == 0)
		shared.queued = 0;
	__syncthreads();
#pragma unroll 1
	for (uint32_t turn = 0; turn < part.tiles; turn++)
	{
		uint32_t first = (part.first + tile) * TILE + threadIdx.x * AT_A_TIME;
		typename Rows::Four four[READS];
		uint32_t passing = 0;

#pragma unroll
		for (uint32_t r = 0; r < READS; r++)
			four[r] = rows.read(row, first + r * BLOCK * AT_A_TIME, plan.n);
		if (plan.bounds != NULL && turn % LOOK_EACH == 0)
			bound = *(volatile Item *) &plan.bounds[row];

		Item before = kth < bound ? kth : bound;
		float limit = select_value(before);

#pragma unroll
		for (uint32_t r = 0; r < READS; r++)
#pragma unroll
			for (uint32_t j = 0; j < AT_A_TIME; j++)
				if (Rows::may_enter(four[r], j, before, limit) && first + r * BLOCK * AT_A_TIME + j < plan.n)
					passing |= 1u << (r * AT_A_TIME + j);
#pragma unroll 1
		while (__syncthreads_or(passing != 0))
		{
			passing = queue_tile<Rows>(&shared, four, first, passing, before);
			__syncthreads();
			if (shared.queued < BLOCK * ITEMS)
				break;
			kth = merge_queue(best, &shared, plan.k, plan.events);
			before = kth < bound ? kth : bound;
			if (plan.bounds != NULL && threadIdx.x == 0 && kth != NO_ITEM)
				atomicMin(&plan.bounds[row], kth);
		}
		tile += part.step;
		tile = tile >= part.tiles ? tile - part.tiles : tile;
	}
	__syncthreads();
	if (shared.queued > 0)
		kth = merge_queue(best, &shared, plan.k, plan.events);
#pragma unroll
	for (uint32_t i = 0; i < ITEMS; i++)
		if (threadIdx.x * ITEMS + i < plan.k)
			part_out(plan)[threadIdx.x * ITEMS + i] = best[i];
}

template <int BLOCK, int ITEMS>
__global__ void __launch_bounds__(BLOCK, 2) block_sort_kernel(Item *items, uint32_t n)
{
	__shared__ Item exchange[2 * BLOCK];
	Item *row = items + (size_t) blockIdx.x * n;
	uint32_t first = threadIdx.x * ITEMS;
	Item x[ITEMS];

#pragma unroll
	for (uint32_t i = 0; i < ITEMS; i++)
		x[i] = first + i < n ? row[first + i] : NO_ITEM;
	block_sort_items<BLOCK>(x, exchange);
#pragma unroll
	for (uint32_t i = 0; i < ITEMS; i++)
		if (first + i < n)
			row[first + i] = x[i];
}

/* --- launching ---------------------------------------------------------------------------------------------------- */

template <int BLOCK, int ITEMS>
static cudaError_t
queue_launch(const SelectLaunch *launch, const Item *items, const QueuePlan *plan)
{
	NumberRows numbers = {launch->values, launch->stride};
	ItemRows rows = {items, plan->n};

	if (items == NULL)
		LAUNCH((block_queue_kernel<NumberRows, BLOCK, ITEMS>), launch->rows * plan->parts, BLOCK, 0, launch->stream, numbers, *plan);
	else
		LAUNCH((block_queue_kernel<ItemRows, BLOCK, ITEMS>), launch->rows * plan->parts, BLOCK, 0, launch->stream, rows, *plan);
	return cudaGetLastError();
}

cudaError_t
block_queues_launch(const SelectLaunch *launch, const Item *items, const QueuePlan *plan)
{
	if (plan->k <= 128)
		return queue_launch<128, 1>(launch, items, plan);
	if (plan->k <= 256)
		return queue_launch<128, 2>(launch, items, plan);
	if (plan->k <= 512)
		return queue_launch<128, 4>(launch, items, plan);
	if (plan->k <= 1024)
		return queue_launch<256, 4>(launch, items, plan);
	return queue_launch<256, 8>(launch, items, plan);
}

cudaError_t
block_sort_launch(Item *items, uint32_t rows, uint32_t n, cudaStream_t stream)
{
	if (n <= 256)
		LAUNCH((block_sort_kernel<128, 2>), rows, 128, 0, stream, items, n);
	else if (n <= 1024)
		LAUNCH((block_sort_kernel<128, 8>), rows, 128, 0, stream, items, n);
	else
		LAUNCH((block_sort_kernel<256, 8>), rows, 256, 0, stream, items, n);
	return cudaGetLastError();
}
