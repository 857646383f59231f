/*
 * select_block.cuh
 *		A sorting network over the registers of a block (thesis.md T19).
 *
 * BLOCK threads with ITEMS items each, both powers of two: thread x holds the consecutive items x ITEMS ... x ITEMS + ITEMS - 1, because the
 * smallest strides are the commonest. Strides within a thread take no exchange, those within a warp take shuffles, larger ones shared memory: two
 * rows (item i of every thread) at a time, so 2 x BLOCK items of it whatever ITEMS is. Without conflicts of banks.
 */
#ifndef GPUANN_CUDA_SELECT_BLOCK_CUH
#define GPUANN_CUDA_SELECT_BLOCK_CUH

#include "select.cuh"

/* The stages of threads' distance `from` and above 31, of all rows, through shared memory. The first is mirrored if `mirrored`. */
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
			x[i] = keep_item(x[i], __shfl_xor_sync(FULL_WARP, x[i], (int) distance), (threadIdx.x & j) == 0);
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
		 * Mirrored items of a pair of threads stand side by side when one of the two is reversed; the stages that follow are between threads that are
		 * reversed alike.
		 */
		reverse_items(x, (threadIdx.x & s) != 0);
		thread_stages<BLOCK>(x, shared, s, true);
		reverse_items(x, (threadIdx.x & s) != 0);
		near_stages(x, ITEMS / 2);
	}
}

#endif /* GPUANN_CUDA_SELECT_BLOCK_CUH */
