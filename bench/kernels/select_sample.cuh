/*
 * select_sample.cuh
 *		The end of a row that is selected from by a sample (select_sample.cu):
 *		what was kept is cut down to little more than k by bins, and ranked.
 */
#ifndef GPUANN_SELECT_SAMPLE_CUH
#define GPUANN_SELECT_SAMPLE_CUH

#include "bench/kernels/select.cuh"

#define THREADS 256u /* of a block of the pass */
#define QUEUE 1536u	 /* items that it keeps */
#define OWN 6u		 /* kept items of a thread that its registers hold */

/* The state of a row. */
struct SampleRow
{
	Item bound; /* of the rescue */
	uint32_t kept;
	uint32_t ended; /* blocks of the pass */
	uint32_t failed;
	uint32_t rescued; /* blocks of the rescue that have ended */
};

/* A launch. */
struct SamplePlan
{
	NumberRows rows;
	uint32_t n;
	uint32_t k;
	Item *out;
	Item *votes;	  /* rows x VOTES */
	uint32_t members; /* threads to a vote: a power of two */
	uint32_t units;	  /* of a thread */
	uint32_t rank;
	Item *kept; /* rows x room */
	uint32_t room;
	uint32_t parts;
	Item *lists; /* rows x rescue_parts x k */
	uint32_t rescue_parts;
	SampleRow *state;
	SelectEvents *events;
};

/* What the threads of a block of the pass share. */
struct PassShared
{
	Item queue[QUEUE];
	uint32_t bins[THREADS];
	Item least[THREADS / WARP];
	Item threshold;
	uint32_t queued;
	uint32_t base;
	uint32_t bin;
	uint32_t before;
	bool last;
};

/*
 * Kept items of a row, shared by a block's threads: most in registers, the rest
 * where they are.
 */
struct KeptItems
{
	Item own[OWN];
	const Item *more;
	uint32_t n;

	__device__ INLINE
	KeptItems(const Item *kept, uint32_t count) : more(kept), n(count)
	{
#pragma unroll
		for (uint32_t i = 0; i < OWN; i++)
			own[i] =
				i * THREADS + threadIdx.x < n ? __ldcg(&kept[i * THREADS + threadIdx.x]) : NO_ITEM;
	}

	template <class Act>
	__device__ INLINE void
	each(const Act &act) const
	{
#pragma unroll
		for (uint32_t i = 0; i < OWN; i++)
			if (own[i] != NO_ITEM)
				act(own[i]);
#pragma unroll 1
		for (uint32_t i = OWN * THREADS + threadIdx.x; i < n; i += THREADS)
			act(__ldcg(&more[i]));
	}
};

/* The least of a block's items. All threads; ends with a barrier. */
__device__ static INLINE Item
least_of_block(Item least, PassShared *shared)
{
#pragma unroll
	for (int distance = WARP / 2; distance > 0; distance >>= 1)
		least = keep_item(least, __shfl_xor_sync(FULL_WARP, least, distance), true);
	if (threadIdx.x % WARP == 0)
		shared->least[threadIdx.x / WARP] = least;
	__syncthreads();
	for (uint32_t i = 0; i < THREADS / WARP; i++)
		least = keep_item(least, shared->least[i], true);
	return least;
}

/*
 * Find the bin with the wanted-th item, and how many are before it. The first
 * warp, after a barrier.
 */
__device__ static INLINE void
find_bin(uint32_t wanted, PassShared *shared)
{
	const uint32_t EACH = THREADS / WARP;
	uint32_t lane = threadIdx.x;
	uint32_t sum = 0,
			 all;

	for (uint32_t i = 0; i < EACH; i++)
		sum += shared->bins[lane * EACH + i];
	all = sum;
#pragma unroll
	for (uint32_t distance = 1; distance < WARP; distance *= 2)
	{
		uint32_t more = __shfl_sync(FULL_WARP, all, (int) (lane - distance));

		all += lane >= distance ? more : 0;
	}
	if (all < wanted || all - sum >= wanted)
		return;
	all -= sum;
	for (uint32_t i = 0; i < EACH; i++)
	{
		if (all + shared->bins[lane * EACH + i] >= wanted)
		{
			shared->bin = lane * EACH + i;
			shared->before = all;
			return;
		}
		all += shared->bins[lane * EACH + i];
	}
}

/* Bits of a number that is not zero. */
__device__ static INLINE uint32_t
bits_of(Item item)
{
#ifdef EMULATED
	return 64 - (uint32_t) __builtin_clzll(item);
#else
	return 64 - (uint32_t) __clzll((long long) item);
#endif
}

/*
 * An item that at least k items are not behind, and not many more: found by
 * bins between the least and the greatest, then between the edges of the bin
 * with the k-th. A bin of one item ends it, if nothing does before. All
 * threads.
 */
__device__ static INLINE Item
narrow(const KeptItems &items, uint32_t k, Item low, Item high, uint32_t enough, PassShared *shared,
	   SelectEvents *events)
{
	uint32_t before = 0; /* items below low */

	for (;;)
	{
		uint32_t bits = high > low ? bits_of(high - low) : 0;
		uint32_t shift = bits > 8 ? bits - 8 : 0;
		uint32_t found;

		shared->bins[threadIdx.x] = 0;
		__syncthreads();
		items.each([&](Item item) {
			if (item >= low && item <= high)
				atomicAdd(&shared->bins[(uint32_t) ((item - low) >> shift)], 1u);
		});
		__syncthreads();
		if (threadIdx.x < WARP)
			find_bin(k - before, shared);
		__syncthreads();
		found = shared->bins[shared->bin];
		before += shared->before;
		low += (Item) shared->bin << shift;
		if (high - low > ((Item) 1 << shift) - 1)
			high = low + (((Item) 1 << shift) - 1);
		if (threadIdx.x == 0)
			COUNT(events, merges, 1);
		if (before + found <= enough || shift == 0)
			return high;
		__syncthreads();
	}
}

/* The k least of a row's kept items, ordered. All threads of its last block. */
__device__ static INLINE void
finish_row(const SamplePlan &plan, uint32_t row, Item threshold, PassShared *shared)
{
	uint32_t kept = *(volatile uint32_t *) &plan.state[row].kept;
	Item least = NO_ITEM;
	Item last;
	uint32_t n;

	if (kept < plan.k || kept > plan.room)
	{
		if (threadIdx.x == 0)
			plan.state[row].failed = 1;
		return;
	}

	const KeptItems items(plan.kept + (size_t) row * plan.room, kept);

	if (threadIdx.x == 0)
	{
		shared->queued = 0;
		COUNT(plan.events, inserts, kept);
	}
	items.each([&](Item item) { least = keep_item(least, item, true); });
	least = least_of_block(least, shared);
	last = narrow(items, plan.k, least, threshold, plan.k + plan.k / 8 + WARP, shared, plan.events);
	items.each([&](Item item) {
		if (item <= last)
			shared->queue[atomicAdd(&shared->queued, 1u)] = item;
	});
	__syncthreads();
	n = shared->queued;
	for (uint32_t i = threadIdx.x; i < n; i += THREADS)
	{
		Item mine = shared->queue[i];
		uint32_t rank = 0;

#pragma unroll 8
		for (uint32_t j = 0; j < n; j++)
			rank += shared->queue[j] < mine;
		if (rank < plan.k)
			plan.out[(size_t) row * plan.k + rank] = mine;
	}
}

#endif /* GPUANN_SELECT_SAMPLE_CUH */
