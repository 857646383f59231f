/*
 * select.cuh
 *		Shared by the kernels of k-selection: access to rows, and sorting
 *		networks over the registers of a warp.
 *
 * An array of 32 x N items is distributed over a warp: item i is in register i
 * / 32 of lane i % 32. Register numbers are constants, so all networks are
 * unrolled; lanes exchange items by shuffles. Sizes need not be powers of two:
 * comparators with missing items are left out (Johnson, Douze, Jégou 2017,
 * 4.1).
 */
#ifndef GPUANN_BENCH_SELECT_CUH
#define GPUANN_BENCH_SELECT_CUH

#include "bench/kernels/select.h"

#ifdef EMULATED
#define INLINE inline
#else
#define INLINE __forceinline__
#endif

#ifdef GPUANN_COUNTING
#define COUNT(events, what, n) \
	do \
	{ \
		if ((events) != NULL) \
			atomicAdd(&(events)->what, (unsigned long long) (n)); \
	} while (0)
#else
#define COUNT(events, what, n) ((void) (events))
#endif

/* --- networks ------------------------------------------------------------- */

/* The lesser or the greater of two items. */
__device__ static INLINE Item
keep_item(Item mine, Item other, bool lesser)
{
	return (other < mine) == lesser ? other : mine;
}

__device__ static INLINE void
order_items(Item &first, Item &second)
{
	Item least = first < second ? first : second;

	second = first < second ? second : first;
	first = least;
}

/* The greatest power of two below n. */
__host__ __device__ constexpr int
power_below(int n)
{
	int power = 1;

	while (power * 2 < n)
		power *= 2;
	return power;
}

/*
 * Sort LENGTH registers from FROM on, which are bitonic with missing items
 * before the first if LEFT, else after the last.
 */
template <int FROM, int LENGTH, bool LEFT, int N>
__device__ static INLINE void
clean_items(Item (&x)[N])
{
	if constexpr (LENGTH == 1)
	{
#pragma unroll
		for (int distance = 16; distance > 0; distance >>= 1)
			x[FROM] = keep_item(x[FROM], __shfl_xor_sync(FULL_WARP, x[FROM], distance),
								(threadIdx.x & distance) == 0);
	}
	else if constexpr (LENGTH > 1)
	{
		constexpr int HALF = power_below(LENGTH);

#pragma unroll
		for (int i = 0; i < LENGTH - HALF; i++)
			order_items(x[FROM + i], x[FROM + i + HALF]);
		if constexpr (LEFT)
		{
			clean_items<FROM, LENGTH - HALF, true>(x);
			clean_items<FROM + LENGTH - HALF, HALF, false>(x);
		}
		else
		{
			clean_items<FROM, HALF, true>(x);
			clean_items<FROM + HALF, LENGTH - HALF, false>(x);
		}
	}
}

/*
 * The first step of a merge: compare register `left` with the reverse of
 * register `right`.
 */
__device__ static INLINE void
mirror_items(Item &left, Item &right)
{
	Item from_right = __shfl_xor_sync(FULL_WARP, right, 31);
	Item from_left = __shfl_xor_sync(FULL_WARP, left, 31);

	left = keep_item(left, from_right, true);
	right = keep_item(right, from_left, false);
}

/* Sort LENGTH registers from FROM on. */
template <int FROM, int LENGTH, int N>
__device__ static INLINE void
sort_items(Item (&x)[N])
{
	if constexpr (LENGTH == 1)
	{
#pragma unroll
		for (int size = 1; size < 32; size <<= 1)
		{
			x[FROM] = keep_item(x[FROM], __shfl_xor_sync(FULL_WARP, x[FROM], 2 * size - 1),
								(threadIdx.x & size) == 0);
#pragma unroll
			for (int distance = size / 2; distance > 0; distance >>= 1)
				x[FROM] = keep_item(x[FROM], __shfl_xor_sync(FULL_WARP, x[FROM], distance),
									(threadIdx.x & distance) == 0);
		}
	}
	else
	{
		constexpr int A = LENGTH / 2,
					  B = LENGTH - A;

		sort_items<FROM, A>(x);
		sort_items<FROM + A, B>(x);
#pragma unroll
		for (int i = 0; i < (A < B ? A : B); i++)
			mirror_items(x[FROM + A - 1 - i], x[FROM + A + i]);
		clean_items<FROM, A, true>(x);
		clean_items<FROM + A, B, false>(x);
	}
}

/*
 * Merge two sorted arrays: the least items go to x, the rest to y, both sorted.
 */
template <int N, int M>
__device__ static INLINE void
merge_items(Item (&x)[N], Item (&y)[M])
{
#pragma unroll
	for (int i = 0; i < (N < M ? N : M); i++)
		mirror_items(x[N - 1 - i], y[i]);
	clean_items<0, N, true>(x);
	clean_items<0, M, false>(y);
}

/* The same, without computing the rest. */
template <int N, int M>
__device__ static INLINE void
take_items(Item (&x)[N], const Item (&y)[M])
{
#pragma unroll
	for (int i = 0; i < (N < M ? N : M); i++)
		x[N - 1 - i] = keep_item(x[N - 1 - i], __shfl_xor_sync(FULL_WARP, y[i], 31), true);
	clean_items<0, N, true>(x);
}

/*
 * Item i of an array, in all lanes. Selected by masks: indexing would make the
 * compiler put the registers into local memory.
 */
template <int N>
__device__ static INLINE Item
item_at(const Item (&x)[N], uint32_t i)
{
	Item item = 0;

#pragma unroll
	for (int j = 0; j < N; j++)
		item |= x[j] & (Item) - (long long) ((uint32_t) j == i / WARP);
	return __shfl_sync(FULL_WARP, item, (int) (i % WARP));
}

/* --- rows ----------------------------------------------------------------- */

#define AT_A_TIME 4u /* numbers or items that a thread reads together */

template <typename Value>
struct FourOf
{
	Value value[AT_A_TIME];
};

/* Rotate the values by one place. */
template <typename Value, int N>
__device__ static INLINE void
select_move_on(FourOf<Value> (&four)[N])
{
	Value first = four[0].value[0];

#pragma unroll
	for (int i = 0; i < N * 4 - 1; i++)
		four[i / 4].value[i % 4] = four[(i + 1) / 4].value[(i + 1) % 4];
	four[N - 1].value[3] = first;
}

/* Rows of numbers; an item's place is the index of its number. */
struct NumberRows
{
	const float *values;
	size_t stride;

	typedef FourOf<float> Four;

	/* Read numbers i to i + 3 of a row. Those from `end` on are not read. */
	__device__ INLINE Four
	read(uint32_t row, uint32_t i, uint32_t end) const
	{
		const float *at = values + row * stride + i;
		Four four = {{NAN, NAN, NAN, NAN}};

		if (i + AT_A_TIME <= end && ((size_t) at & 15) == 0)
		{
			float4 raw = __ldg((const float4 *) at);

			four.value[0] = raw.x;
			four.value[1] = raw.y;
			four.value[2] = raw.z;
			four.value[3] = raw.w;
			return four;
		}
#pragma unroll
		for (uint32_t j = 0; j < AT_A_TIME; j++)
			if (i + j < end)
				four.value[j] = __ldg(at + j);
		return four;
	}

	__device__ static INLINE Item
	item(const Four &four, uint32_t j, uint32_t i)
	{
		return select_item(four.value[j], i + j);
	}

	/*
	 * Whether a number may be before an item: a cheap test without false
	 * negatives.
	 */
	__device__ static INLINE bool
	may_enter(const Four &four, uint32_t j, Item, float limit)
	{
		return !(four.value[j] > limit);
	}
};

/* Rows of items, the results of parts. */
struct ItemRows
{
	const Item *items;
	size_t stride;

	typedef FourOf<Item> Four;

	__device__ INLINE Four
	read(uint32_t row, uint32_t i, uint32_t end) const
	{
		const Item *at = items + row * stride + i;
		Four four;

#pragma unroll
		for (uint32_t j = 0; j < AT_A_TIME; j++)
			/* other blocks may have written them */
			four.value[j] = i + j < end ? __ldcg(at + j) : NO_ITEM;
		return four;
	}

	__device__ static INLINE Item
	item(const Four &four, uint32_t j, uint32_t)
	{
		return four.value[j];
	}

	__device__ static INLINE bool
	may_enter(const Four &four, uint32_t j, Item before, float)
	{
		return four.value[j] < before;
	}
};

/* The work of a queue kernel. Block b has part b % parts of row b / parts. */
struct QueuePlan
{
	uint32_t n;
	uint32_t k;
	uint32_t parts;
	Item *out;	  /* rows x parts x k */
	Item *bounds; /* per row: an upper bound of the k-th; NULL: one part */
	SelectEvents *events;
};

/* A part of a row, in tiles. */
struct Part
{
	uint32_t first; /* tiles */
	uint32_t tiles;
	uint32_t step; /* odd or 1: tiles are visited in the order 0, step, 2 step ... (mod tiles), so
				    * that no common order of the data is the worst case */
};

__host__ __device__ static inline uint32_t
common_divisor(uint32_t a, uint32_t b)
{
	while (b != 0)
	{
		uint32_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/*
 * The tiles of a part, and a step, coprime to their number and near the golden
 * section, so that early tiles are spread over the part.
 */
__device__ static inline Part
part_of(const QueuePlan &plan, uint32_t tile_size)
{
	uint32_t total = (uint32_t) (((uint64_t) plan.n + tile_size - 1) / tile_size);
	uint32_t each = (total + plan.parts - 1) / plan.parts;
	Part part;

	part.first = blockIdx.x % plan.parts * each;
	part.first = part.first < total ? part.first : total;
	part.tiles = each < total - part.first ? each : total - part.first;
	part.step = (uint32_t) ((uint64_t) part.tiles * 2654435769u >> 32);
	part.step = part.step > 0 ? part.step : 1;
	while (common_divisor(part.step, part.tiles) > 1)
		part.step++;
	return part;
}

/* Output of the k least items of a block's part. */
__device__ static INLINE Item *
part_out(const QueuePlan &plan)
{
	return plan.out + (size_t) blockIdx.x * plan.k;
}

/* --- launching ------------------------------------------------------------ */

extern cudaError_t argmin_launch(const SelectLaunch *launch, uint32_t parts);
extern cudaError_t thread_queues_launch(const SelectLaunch *launch, const QueuePlan *plan);
/*
 * For the launch's rows of numbers, or, if not NULL, for `items`, the results
 * of parts: plan->n per row.
 */
extern cudaError_t warp_queues_launch(const SelectLaunch *launch, const Item *items,
									  const QueuePlan *plan);
extern cudaError_t block_queues_launch(const SelectLaunch *launch, const Item *items,
									   const QueuePlan *plan);
/* Sort rows of items in place, each of at most SELECT_BLOCK_MAX. */
extern cudaError_t block_sort_launch(Item *items, uint32_t rows, uint32_t n, cudaStream_t stream);
extern cudaError_t radix_launch(const SelectLaunch *launch, uint32_t parts);
extern size_t radix_bytes(const SelectLaunch *launch);
extern cudaError_t sample_prepare();
/* Whether a row is long enough for a sample to leave few of it. */
extern bool sample_serves(uint32_t n, uint32_t k);
extern uint32_t sample_parts(uint32_t rows, uint32_t n, uint32_t processors);
extern size_t sample_bytes(const SelectLaunch *launch, uint32_t rescue_parts);
extern cudaError_t sample_launch(const SelectLaunch *launch, uint32_t rescue_parts);
/* Sort one row of items. With work NULL, only sets *bytes. */
extern cudaError_t item_sort(unsigned char *work, size_t *bytes, Item *items, Item *other,
							 uint32_t n, Item **sorted, cudaStream_t stream);

#endif /* GPUANN_BENCH_SELECT_CUH */
