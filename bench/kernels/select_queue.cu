/*
 * select_queue.cu
 *		Selection by queues of a warp: the k best in its registers, what may
 *		enter them in queues that are merged when they are full.
 *
 * thread queues	(WarpSelect and BlockSelect; k <= 1,024) Each
 *					lane keeps the T items it saw that are nearest to entering,
 *					in registers. When some lane's queue is full of items before
 *					the k-th, the 32 queues are sorted and merged. No shared
 *					memory. (Johnson, Douze, Jégou 2017, 4.2)
 * warp queues		(k <= 256) What is before the k-th goes to a list of 32 x T
 *					items in shared memory, which is sorted and merged when it
 *					is full. So a merge is always worth its network, and the
 *					k-th is what an item must beat from the first merge on.
 *
 * Map: grid rows x parts, 128 threads. A warp takes tiles of 512 numbers of its
 * block's part in turn, in an order that no simple order of the numbers makes
 * the worst one. All of a tile is read (four loads of 16 bytes per lane) before
 * any of it is looked at, and compared to the limit as it is; keys are made of
 * what passes only. The four warps' best are merged through shared memory,
 * parts by a launch over their items. Parts of one row share the least k-th.
 *		registers	2 K / 32 of the best + 2 T of the queue + 16 of a tile, no
 *					array with a number known at run time only
 *		shared		16 K / 32 x 32 bytes for merging warps; warp queues 8 x 32 T
 *					per warp
 * Reads each number once, writes k items per part. Bound: memory. A merge costs
 * about 15 T + 12 K / 32 exchanges between lanes. Launched by select_ways.cu.
 */
#include <math.h>

#include "bench/kernels/select.cuh"

#define WARPS 4
#define READS 4 /* loads of a lane in flight */
#define TILE (WARP * AT_A_TIME * READS)
#define LOOK_EACH 8u /* tiles between two looks at what other parts have found */

/* Queues in registers, one per lane. K and T in registers. */
template <int K, int T>
struct ThreadQueues
{
	static const int BEST = K;
	static const int SHARED_ITEMS = 0;

	Item best[K];
	Item queue[T]; /* descending */
	Item kth;
	Item bound; /* of other parts */
	uint32_t k;

	__device__ INLINE void
	begin(Item *, uint32_t wanted)
	{
#pragma unroll
		for (int i = 0; i < K; i++)
			best[i] = NO_ITEM;
#pragma unroll
		for (int i = 0; i < T; i++)
			queue[i] = NO_ITEM;
		kth = bound = NO_ITEM;
		k = wanted;
	}

	/* What an item must be before to matter to this lane. */
	__device__ INLINE Item
	before() const
	{
		return queue[0] < bound ? queue[0] : bound;
	}

	/* Show an item each. Whole warps. */
	__device__ INLINE void
	offer(Item item, SelectEvents *events)
	{
		bool enters = item < before();

		if (enters)
		{
#pragma unroll
			for (int i = 0; i + 1 < T; i++)
			{
				Item next = queue[i + 1];

				queue[i] = item < next ? next : item;
				item = item < next ? item : next;
			}
			queue[T - 1] = item;
		}
#ifdef GPUANN_COUNTING
		enters = __ballot_sync(FULL_WARP, enters) != 0;
		if (enters && threadIdx.x % WARP == 0)
			COUNT(events, inserts, 1);
#endif
		if (__ballot_sync(FULL_WARP, queue[0] < kth) != 0)
			merge(events);
	}

	__device__ INLINE void
	merge(SelectEvents *events)
	{
		if (threadIdx.x % WARP == 0)
			COUNT(events, merges, 1);
		sort_items<0, T>(queue);
		merge_items(best, queue);
#pragma unroll
		for (int i = 0; i < T / 2; i++)
		{
			Item first = queue[i];

			queue[i] = queue[T - 1 - i];
			queue[T - 1 - i] = first;
		}
		kth = item_at(best, k - 1);
	}

	__device__ INLINE void
	end(SelectEvents *events)
	{
		merge(events);
	}
};

/* A queue of 32 x T items in shared memory. */
template <int K, int T>
struct WarpQueue
{
	static const int BEST = K;
	static const int SHARED_ITEMS = 32 * T;

	Item best[K];
	Item kth;
	Item bound;
	Item *queue;
	uint32_t queued;
	uint32_t k;

	__device__ INLINE void
	begin(Item *shared, uint32_t wanted)
	{
#pragma unroll
		for (int i = 0; i < K; i++)
			best[i] = NO_ITEM;
		kth = bound = NO_ITEM;
		queue = shared;
		queued = 0;
		k = wanted;
	}

	__device__ INLINE Item
	before() const
	{
		return kth < bound ? kth : bound;
	}

	/*
	 * Show an item each; those that find the queue full are shown again behind
	 * the merge. Whole warps.
	 */
	__device__ INLINE void
	offer(Item item, SelectEvents *events)
	{
		uint32_t lane = threadIdx.x % WARP;
		uint32_t entering = __ballot_sync(FULL_WARP, item < before());

#pragma unroll 1
		while (entering != 0)
		{
			uint32_t room = SHARED_ITEMS - queued;
			uint32_t rank = (uint32_t) __popc(entering & ((1u << lane) - 1));
			uint32_t n = (uint32_t) __popc(entering);
			bool mine = (entering >> lane & 1) != 0 && rank < room;

			if (mine)
			{
				queue[queued + rank] = item;
				item = NO_ITEM;
			}
			n = n < room ? n : room;
			queued += n;
			if (lane == 0)
				COUNT(events, inserts, n);
			if (queued < SHARED_ITEMS)
				break;
			merge(events);
			entering = __ballot_sync(FULL_WARP, item < before());
		}
	}

	__device__ INLINE void
	merge(SelectEvents *events)
	{
		uint32_t lane = threadIdx.x % WARP;
		Item taken[T];

		if (lane == 0)
			COUNT(events, merges, 1);
		__syncwarp();
#pragma unroll
		for (int i = 0; i < T; i++)
			taken[i] = i * WARP + lane < queued ? queue[i * WARP + lane] : NO_ITEM;
		__syncwarp();
		sort_items<0, T>(taken);
		take_items(best, taken);
		kth = item_at(best, k - 1);
		queued = 0;
	}

	__device__ INLINE void
	end(SelectEvents *events)
	{
		if (queued > 0)
			merge(events);
	}
};

/* Show what of a tile may enter to a warp's queue. */
template <class Rows, class Queue>
__device__ static INLINE void
show_tile(Queue &queue, typename Rows::Four (&four)[READS], uint32_t first, uint32_t end,
		  SelectEvents *events)
{
	Item before = queue.before();
	float limit = select_value(before);
	uint32_t passing = 0;

#pragma unroll
	for (uint32_t r = 0; r < READS; r++)
#pragma unroll
		for (uint32_t j = 0; j < AT_A_TIME; j++)
			if (Rows::may_enter(four[r], j, before, limit) &&
				first + r * WARP * AT_A_TIME + j < end)
				passing |= 1u << (r * AT_A_TIME + j);
	if (__ballot_sync(FULL_WARP, passing != 0) == 0)
		return;
	/* one copy of the queue's code: the numbers move through the first place */
#pragma unroll 1
	for (uint32_t turn = 0; turn < READS * AT_A_TIME; turn++)
	{
		uint32_t i = first + turn / AT_A_TIME * WARP * AT_A_TIME;
		Item item = Rows::item(four[0], 0, i + turn % AT_A_TIME);

		if (__ballot_sync(FULL_WARP, (passing >> turn & 1) != 0) != 0)
			queue.offer((passing >> turn & 1) != 0 ? item : NO_ITEM, events);
		select_move_on(four);
	}
}

/* Merge the best of a block's warps into the first one's. */
template <class Queue>
__device__ static INLINE void
join_warps(Queue &queue, Item *memory)
{
	const int K = Queue::BEST;
	uint32_t warp = threadIdx.x / WARP,
			 lane = threadIdx.x % WARP;

#pragma unroll 1
	for (uint32_t half = WARPS / 2; half > 0; half /= 2)
	{
		__syncthreads();
		if (warp >= half && warp < 2 * half)
		{
#pragma unroll
			for (int i = 0; i < K; i++)
				memory[(warp - half) * K * WARP + i * WARP + lane] = queue.best[i];
		}
		__syncthreads();
		if (warp < half)
		{
			Item other[K];

#pragma unroll
			for (int i = 0; i < K; i++)
				other[i] = memory[warp * K * WARP + i * WARP + lane];
			take_items(queue.best, other);
		}
	}
}

template <class Rows, class Queue>
__global__ void
__launch_bounds__(WARPS *WARP, Queue::BEST <= 4	  ? 5
							   : Queue::BEST <= 8 ? 4
												  : 2)
	queues_kernel(const Rows rows, const QueuePlan plan)
{
	const int K = Queue::BEST;
	const int JOINING = WARPS / 2 * K * 32;
	const int QUEUED = WARPS * Queue::SHARED_ITEMS;
	__shared__ Item memory[JOINING > QUEUED ? JOINING : QUEUED];
	uint32_t warp = threadIdx.x / WARP,
			 lane = threadIdx.x % WARP;
	uint32_t row = blockIdx.x / plan.parts;
	Part part = part_of(plan, TILE);
	uint32_t stride = (uint32_t) ((uint64_t) part.step * WARPS % (part.tiles > 0 ? part.tiles : 1));
	uint32_t tile = (uint32_t) ((uint64_t) part.step * warp % (part.tiles > 0 ? part.tiles : 1));
	Queue queue;

	queue.begin(memory + warp * Queue::SHARED_ITEMS, plan.k);
#pragma unroll 1
	for (uint32_t turn = warp; turn < part.tiles; turn += WARPS)
	{
		uint32_t first = (part.first + tile) * TILE + lane * AT_A_TIME;
		typename Rows::Four four[READS];

#pragma unroll
		for (uint32_t r = 0; r < READS; r++)
			four[r] = rows.read(row, first + r * WARP * AT_A_TIME, plan.n);
		if (plan.bounds != NULL && turn / WARPS % LOOK_EACH == 0)
		{
			Item known = *(volatile Item *) &plan.bounds[row];

			queue.bound = known < queue.bound ? known : queue.bound;
		}
		if (lane == 0)
			COUNT(plan.events, groups,
				  (plan.n - (part.first + tile) * TILE < TILE ? plan.n - (part.first + tile) * TILE
															  : TILE) /
					  WARP);

		Item before = queue.kth;

		show_tile<Rows>(queue, four, first, plan.n, plan.events);
		if (plan.bounds != NULL && lane == 0 && queue.kth < before)
			atomicMin(&plan.bounds[row], queue.kth);
		tile += stride;
		tile = tile >= part.tiles ? tile - part.tiles : tile;
	}
	queue.end(plan.events);
	join_warps(queue, memory);
	if (warp > 0)
		return;
#pragma unroll
	for (int i = 0; i < K; i++)
		if (i * WARP + lane < plan.k)
			part_out(plan)[i * WARP + lane] = queue.best[i];
}

/*
 * k = 1: the least item of a part, into that of the row, which begins as
 * NO_ITEM.
 */
__global__ void
__launch_bounds__(WARPS *WARP) argmin_kernel(const NumberRows rows, const QueuePlan plan)
{
	uint32_t row = blockIdx.x / plan.parts;
	Part part = part_of(plan, TILE * WARPS);
	Item least = NO_ITEM;

#pragma unroll 1
	for (uint32_t tile = 0; tile < part.tiles; tile++)
	{
		uint32_t first = (part.first + tile) * TILE * WARPS + threadIdx.x * AT_A_TIME;
		NumberRows::Four four[READS];

#pragma unroll
		for (uint32_t r = 0; r < READS; r++)
			four[r] = rows.read(row, first + r * WARPS * WARP * AT_A_TIME, plan.n);

		float limit = select_value(least);

#pragma unroll
		for (uint32_t r = 0; r < READS; r++)
#pragma unroll
			for (uint32_t j = 0; j < AT_A_TIME; j++)
			{
				uint32_t i = first + r * WARPS * WARP * AT_A_TIME;

				if (NumberRows::may_enter(four[r], j, least, limit) && i + j < plan.n)
				{
					Item item = NumberRows::item(four[r], j, i);

					least = item < least ? item : least;
				}
			}
	}
#pragma unroll
	for (int distance = 16; distance > 0; distance >>= 1)
		least = keep_item(least, __shfl_xor_sync(FULL_WARP, least, distance), true);
	if (threadIdx.x % WARP == 0 && least != NO_ITEM)
		atomicMin(&plan.out[row], least);
}

/* --- launching ------------------------------------------------------------ */

cudaError_t
argmin_launch(const SelectLaunch *launch, uint32_t parts)
{
	NumberRows rows = {launch->values, launch->stride};
	QueuePlan plan = {launch->n, 1, parts, launch->out, NULL, launch->events};
	cudaError_t error =
		cudaMemsetAsync(launch->out, 0xFF, launch->rows * sizeof(Item), launch->stream);

	if (error != cudaSuccess)
		return error;
	LAUNCH(argmin_kernel, launch->rows * parts, WARPS * WARP, 0, launch->stream, rows, plan);
	return cudaGetLastError();
}

/* Launch a kind of queue over numbers. */
template <class Queue>
static cudaError_t
numbers_launch(const SelectLaunch *launch, const QueuePlan *plan)
{
	NumberRows rows = {launch->values, launch->stride};

	LAUNCH((queues_kernel<NumberRows, Queue>), launch->rows * plan->parts, WARPS * WARP, 0,
		   launch->stream, rows, *plan);
	return cudaGetLastError();
}

/* The same over items, if there are any. */
template <class Queue>
static cudaError_t
items_launch(const SelectLaunch *launch, const Item *items, const QueuePlan *plan)
{
	ItemRows rows = {items, plan->n};

	if (items == NULL)
		return numbers_launch<Queue>(launch, plan);
	LAUNCH((queues_kernel<ItemRows, Queue>), launch->rows * plan->parts, WARPS * WARP, 0,
		   launch->stream, rows, *plan);
	return cudaGetLastError();
}

/* The lengths of lanes' queues, by k (Johnson, Douze, Jégou 2017, 4.3). */
cudaError_t
thread_queues_launch(const SelectLaunch *launch, const QueuePlan *plan)
{
	if (plan->k <= 32)
		return numbers_launch<ThreadQueues<1, 2>>(launch, plan);
	if (plan->k <= 64)
		return numbers_launch<ThreadQueues<2, 3>>(launch, plan);
	if (plan->k <= 128)
		return numbers_launch<ThreadQueues<4, 3>>(launch, plan);
	if (plan->k <= 256)
		return numbers_launch<ThreadQueues<8, 4>>(launch, plan);
	if (plan->k <= 512)
		return numbers_launch<ThreadQueues<16, 8>>(launch, plan);
	return numbers_launch<ThreadQueues<32, 8>>(launch, plan);
}

cudaError_t
warp_queues_launch(const SelectLaunch *launch, const Item *items, const QueuePlan *plan)
{
	if (plan->k <= 32)
		return items_launch<WarpQueue<1, 2>>(launch, items, plan);
	if (plan->k <= 64)
		return items_launch<WarpQueue<2, 2>>(launch, items, plan);
	if (plan->k <= 128)
		return items_launch<WarpQueue<4, 4>>(launch, items, plan);
	return items_launch<WarpQueue<8, 8>>(launch, items, plan);
}
