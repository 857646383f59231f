/*
 * select_block.cuh
 *		A sorting network over the registers of a block, and the queue of a
 *		block (both of Hanák 2023, 4; select_block.cu says how it works).
 *
 * BLOCK threads with ITEMS items each, both powers of two: thread x holds the
 * consecutive items x ITEMS ... x ITEMS + ITEMS - 1, because the smallest
 * strides are the commonest. Strides within a thread take no exchange, those
 * within a warp take shuffles, larger ones shared memory: two rows (item i of
 * every thread) at a time, so 2 x BLOCK items of it whatever ITEMS is. Without
 * conflicts of banks.
 */
#ifndef GPUANN_SELECT_BLOCK_CUH
#define GPUANN_SELECT_BLOCK_CUH

#include "bench/kernels/select.cuh"

/*
 * The stages of threads' distance `from` and above 31, of all rows, through
 * shared memory. The first is mirrored if `mirrored`.
 */
template <int BLOCK, int ITEMS>
__device__ static INLINE void
far_stages(Item (&x)[ITEMS], Item *shared, uint32_t from, bool mirrored)
{
	constexpr uint32_t ROWS = ITEMS > 1 ? 2 : 1;
	uint32_t me = threadIdx.x;

#pragma unroll
	for (uint32_t i = 0; i < ITEMS; i += ROWS)
	{
#pragma unroll
		for (uint32_t r = 0; r < ROWS; r++)
			shared[r * BLOCK + me] = x[i + r];
		__syncthreads();
#pragma unroll 1
		for (uint32_t j = from; j >= WARP; j /= 2)
		{
			/* one comparison per thread: a zero bit goes where j's is */
			uint32_t low = (me & ~(j - 1)) << 1 | (me & (j - 1));
			uint32_t high = mirrored && j == from ? low ^ (2 * j - 1) : low + j;

			if (low < ROWS * BLOCK)
				order_items(shared[low], shared[high]);
			__syncthreads();
		}
#pragma unroll
		for (uint32_t r = 0; r < ROWS; r++)
			x[i + r] = shared[r * BLOCK + me];
		__syncthreads();
	}
}

/* All stages of threads' distances from `from` down to 1. */
template <int BLOCK, int ITEMS>
__device__ static INLINE void
thread_stages(Item (&x)[ITEMS], Item *shared, uint32_t from, bool mirrored)
{
	if (from >= WARP)
		far_stages<BLOCK>(x, shared, from, mirrored);
#pragma unroll
	for (uint32_t j = WARP / 2; j > 0; j /= 2)
	{
		if (j > from)
			continue;

		uint32_t distance = mirrored && j == from ? 2 * j - 1 : j;

#pragma unroll
		for (int i = 0; i < ITEMS; i++)
			x[i] = keep_item(x[i], __shfl_xor_sync(FULL_WARP, x[i], (int) distance),
							 (threadIdx.x & j) == 0);
	}
}

/* The stages within a thread. */
template <int ITEMS>
__device__ static INLINE void
near_stages(Item (&x)[ITEMS], int from)
{
#pragma unroll
	for (int j = ITEMS / 2; j > 0; j /= 2)
	{
#pragma unroll
		for (int i = 0; i < ITEMS; i++)
			if (j <= from && (i & j) == 0)
				order_items(x[i], x[i + j]);
	}
}

template <int ITEMS>
__device__ static INLINE void
reverse_items(Item (&x)[ITEMS], bool wanted)
{
#pragma unroll
	for (int i = 0; i < ITEMS / 2; i++)
	{
		Item first = x[i];

		x[i] = wanted ? x[ITEMS - 1 - i] : first;
		x[ITEMS - 1 - i] = wanted ? first : x[ITEMS - 1 - i];
	}
}

/* Sort a bitonic array. All threads. */
template <int BLOCK, int ITEMS>
__device__ static INLINE void
block_clean_items(Item (&x)[ITEMS], Item *shared)
{
	thread_stages<BLOCK>(x, shared, BLOCK / 2, false);
	near_stages(x, ITEMS / 2);
}

/* Sort an array. All threads. */
template <int BLOCK, int ITEMS>
__device__ static INLINE void
block_sort_items(Item (&x)[ITEMS], Item *shared)
{
#pragma unroll
	for (int s = 1; s < ITEMS; s *= 2)
	{
#pragma unroll
		for (int i = 0; i < ITEMS; i++)
			if ((i & s) == 0)
				order_items(x[i], x[i ^ (2 * s - 1)]);
		near_stages(x, s / 2);
	}
#pragma unroll 1
	for (uint32_t s = 1; s < BLOCK; s *= 2)
	{
		/*
		 * Mirrored items of a pair of threads stand side by side when one of
		 * the two is reversed; the stages that follow are between threads that
		 * are reversed alike.
		 */
		reverse_items(x, (threadIdx.x & s) != 0);
		thread_stages<BLOCK>(x, shared, s, true);
		reverse_items(x, (threadIdx.x & s) != 0);
		near_stages(x, ITEMS / 2);
	}
}

/* --- queues --------------------------------------------------------------- */

#define BLOCK_READS 4
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

/*
 * Merge the queue into the best. All threads, after a barrier; ends with one.
 * Returns the k-th.
 */
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

/*
 * Put what of a tile is before an item into the queue, as far as there is room.
 * Whole warps. Returns what had no room.
 */
template <class Rows, int BLOCK, int ITEMS>
__device__ static INLINE uint32_t
queue_tile(BlockQueue<BLOCK, ITEMS> *shared, typename Rows::Four (&four)[BLOCK_READS],
		   uint32_t first, uint32_t passing, Item before)
{
	uint32_t lane = threadIdx.x % WARP;

#pragma unroll 1
	for (uint32_t turn = 0; turn < BLOCK_READS * AT_A_TIME; turn++)
	{
		uint32_t ballot = __ballot_sync(FULL_WARP, (passing >> turn & 1) != 0);

		if (ballot != 0)
		{
			Item item = Rows::item(four[0], 0,
								   first + turn / AT_A_TIME * BLOCK * AT_A_TIME + turn % AT_A_TIME);
			bool enters = (passing >> turn & 1) != 0 && item < before;
			uint32_t place = 0;

			ballot = __ballot_sync(FULL_WARP, enters);
			if (lane == 0 && ballot != 0)
				place = atomicAdd(&shared->queued, (uint32_t) __popc(ballot));
			place =
				__shfl_sync(FULL_WARP, place, 0) + (uint32_t) __popc(ballot & ((1u << lane) - 1));
			if (enters && place < BLOCK * ITEMS)
				shared->queue[place] = item;
			if (!enters || place < BLOCK * ITEMS)
				passing &= ~(1u << turn);
		}
		select_move_on(four);
	}
	return passing;
}

/*
 * Select from a part of a row by a queue of the block: the k least go to out.
 * bound, if there is one, is shared by all parts of the row. All threads.
 */
template <class Rows, int BLOCK, int ITEMS>
__device__ static INLINE void
block_queue_part(const Rows &rows, const QueuePlan &plan, uint32_t row, Item *row_bound, Item *out,
				 BlockQueue<BLOCK, ITEMS> *shared)
{
	const uint32_t TILE = BLOCK * AT_A_TIME * BLOCK_READS;
	Part part = part_of(plan, TILE);
	uint32_t tile = 0;
	Item kth = NO_ITEM,
		 bound = NO_ITEM;
	Item best[ITEMS];

#pragma unroll
	for (int i = 0; i < ITEMS; i++)
		best[i] = NO_ITEM;
	if (threadIdx.x == 0)
		shared->queued = 0;
	__syncthreads();
#pragma unroll 1
	for (uint32_t turn = 0; turn < part.tiles; turn++)
	{
		uint32_t first = (part.first + tile) * TILE + threadIdx.x * AT_A_TIME;
		typename Rows::Four four[BLOCK_READS];
		uint32_t passing = 0;

#pragma unroll
		for (uint32_t r = 0; r < BLOCK_READS; r++)
			four[r] = rows.read(row, first + r * BLOCK * AT_A_TIME, plan.n);
		if (row_bound != NULL && turn % LOOK_EACH == 0)
			bound = *(volatile Item *) row_bound;

		Item before = kth < bound ? kth : bound;
		float limit = select_value(before);

#pragma unroll
		for (uint32_t r = 0; r < BLOCK_READS; r++)
#pragma unroll
			for (uint32_t j = 0; j < AT_A_TIME; j++)
				if (Rows::may_enter(four[r], j, before, limit) &&
					first + r * BLOCK * AT_A_TIME + j < plan.n)
					passing |= 1u << (r * AT_A_TIME + j);
#pragma unroll 1
		while (__syncthreads_or(passing != 0))
		{
			passing = queue_tile<Rows>(shared, four, first, passing, before);
			__syncthreads();
			if (shared->queued < BLOCK * ITEMS)
				break;
			kth = merge_queue(best, shared, plan.k, plan.events);
			before = kth < bound ? kth : bound;
			if (row_bound != NULL && threadIdx.x == 0 && kth != NO_ITEM)
				atomicMin(row_bound, kth);
		}
		tile += part.step;
		tile = tile >= part.tiles ? tile - part.tiles : tile;
	}
	__syncthreads();
	if (shared->queued > 0)
		merge_queue(best, shared, plan.k, plan.events);
#pragma unroll
	for (uint32_t i = 0; i < ITEMS; i++)
		if (threadIdx.x * ITEMS + i < plan.k)
			out[threadIdx.x * ITEMS + i] = best[i];
}

#endif /* GPUANN_SELECT_BLOCK_CUH */
