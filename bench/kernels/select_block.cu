/*
 * select_block.cu
 *		Selection by a queue of the whole block: k up to 2,048. (Bitonic Select:
 *		Hanák 2023, 4)
 *
 * The block's K best (a power of two, k or more) are in its registers, sorted;
 * what is before the k-th of them goes to a queue of K items in shared memory.
 * When that is full it is sorted and merged in: so every merge is of K new
 * items, and the k-th is what all must beat.
 *
 * Map: grid rows x parts, 128 threads (K <= 512) or 256. A tile of 16 numbers
 * per thread is read before any of it is looked at; tiles come in an order that
 * no simple order of the numbers makes the worst. Items that find the queue
 * full wait in their thread's registers, and are shown again behind the merge.
 * Parts of one row share the least k-th.
 *		registers	K / threads of the best, as many of the queue while it is
 *					merged, 16 numbers
 *		shared		the queue, 8 K bytes; 16 bytes a thread for what the network
 *					exchanges
 * Reads each number once, one barrier per tile, writes k items per part. Bound:
 * memory. block_sort_kernel sorts rows of up to 2,048 items with the same
 * network. Launched by select_ways.cu.
 */
#include <math.h>

#include "select_block.cuh"

template <class Rows, int BLOCK, int ITEMS>
__global__ void
__launch_bounds__(BLOCK, (ITEMS > 4	  ? 512
						  : ITEMS > 2 ? 768
									  : 1024) /
							 BLOCK) block_queue_kernel(const Rows rows, const QueuePlan plan)
{
	__shared__ BlockQueue<BLOCK, ITEMS> shared;
	uint32_t row = blockIdx.x / plan.parts;

	block_queue_part(rows, plan, row, plan.bounds != NULL ? plan.bounds + row : NULL,
					 part_out(plan), &shared);
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

/* --- launching ------------------------------------------------------------ */

template <int BLOCK, int ITEMS>
static cudaError_t
queue_launch(const SelectLaunch *launch, const Item *items, const QueuePlan *plan)
{
	NumberRows numbers = {launch->values, launch->stride};
	ItemRows rows = {items, plan->n};

	if (items == NULL)
		LAUNCH((block_queue_kernel<NumberRows, BLOCK, ITEMS>), launch->rows * plan->parts, BLOCK, 0,
			   launch->stream, numbers, *plan);
	else
		LAUNCH((block_queue_kernel<ItemRows, BLOCK, ITEMS>), launch->rows * plan->parts, BLOCK, 0,
			   launch->stream, rows, *plan);
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
