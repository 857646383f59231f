/*
 * lists_select.cuh
 *		k-selection by radix: the k-th least of keys that a block generates.
 *
 * A pass counts the keys by their next digit of 8 bits and continues with the
 * digit that contains the k-th; at most eight passes, fewer if all keys of a
 * digit are among the k least. Keys are generated again in each pass, so they
 * are not stored.
 */
#ifndef GPUANN_CUDA_LISTS_SELECT_CUH
#define GPUANN_CUDA_LISTS_SELECT_CUH

#include "cuda/common/order.cuh"
#include "cuda/lists/lists_state.cuh"

#define SELECT_DIGITS 256u
#define SELECT_ALL 0xFFFFFFFFu

/* Shared memory of a selection. */
struct SelectShared
{
	uint32_t counts[SELECT_DIGITS];
	uint32_t digit;
	uint32_t before;
	uint32_t of_digit;
};

/* The k least keys are those below `key`, and `ties` of those equal to it. */
struct SelectedKey
{
	Key key;
	uint32_t ties; /* SELECT_ALL: all */
};

/*
 * Find the digit that contains the key of rank `need` (from 1). One warp; digit
 * is SELECT_DIGITS if there are fewer keys.
 */
__device__ static inline void
find_digit(SelectShared *shared, uint32_t need)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t own = 0,
			 before;

	for (uint32_t i = 0; i < SELECT_DIGITS / WARP; i++)
		own += shared->counts[lane * (SELECT_DIGITS / WARP) + i];
	before = own;
	for (uint32_t distance = 1; distance < WARP; distance <<= 1)
	{
		uint32_t other = __shfl_sync(FULL_WARP, before, (int) (lane - distance) & 31);

		if (lane >= distance)
			before += other;
	}
	before -= own;
	if (lane == 0)
		shared->digit = SELECT_DIGITS;
	__syncwarp();
	if (before >= need || before + own < need)
		return;
	for (uint32_t i = 0;; i++)
	{
		uint32_t count = shared->counts[lane * (SELECT_DIGITS / WARP) + i];

		if (before + count >= need)
		{
			shared->digit = lane * (SELECT_DIGITS / WARP) + i;
			shared->before = before;
			shared->of_digit = count;
			return;
		}
		before += count;
	}
}

/*
 * Count one key per lane, if it has one, by its digit. Usually most lanes of a
 * warp have the same digit, which is counted by one atomic. Whole warps.
 */
__device__ static inline void
count_digit(SelectShared *shared, bool has, uint32_t digit)
{
	uint32_t all = __ballot_sync(FULL_WARP, has);
	uint32_t first = all != 0 ? (uint32_t) __ffs((int) all) - 1 : 0;
	uint32_t of_first = __shfl_sync(FULL_WARP, digit, (int) first);
	uint32_t same = __ballot_sync(FULL_WARP, has && digit == of_first);

	if (all != 0 && threadIdx.x % WARP == first)
		(void) atomicAdd(&shared->counts[digit], (uint32_t) __popc(same));
	else if (has && digit != of_first)
		(void) atomicAdd(&shared->counts[digit], 1u);
}

/*
 * Select the `need` least of n keys. make(i, &key) generates a key, or returns
 * false. All threads of a block; ends with a barrier. If there are fewer keys
 * all are selected. KTH: `key` is the one of rank `need`; else it may be any
 * value that separates them from the others.
 */
template <bool KTH = false, class Make>
__device__ static inline SelectedKey
block_select(uint32_t n, uint32_t need, uint32_t bits, SelectShared *shared, Make make)
{
	SelectedKey selected = {0, SELECT_ALL};
	Key mask = 0;

	if (need == 0)
		return {0, 0};
#pragma unroll 1
	for (int shift = 56; shift >= 64 - (int) bits; shift -= 8)
	{
		for (uint32_t i = threadIdx.x; i < SELECT_DIGITS; i += blockDim.x)
			shared->counts[i] = 0;
		__syncthreads();
		for (uint32_t base = 0; base < n; base += blockDim.x)
		{
			uint32_t i = base + threadIdx.x;
			Key key = 0;
			bool has = i < n && make(i, &key) && (key & mask) == selected.key;

			count_digit(shared, has, (uint32_t) (key >> shift) & 255);
		}
		__syncthreads();
		if (threadIdx.x < WARP)
			find_digit(shared, need);
		__syncthreads();
		if (shared->digit == SELECT_DIGITS)
		{
			__syncthreads();
			return {NO_KEY, SELECT_ALL}; /* fewer than `need` keys */
		}
		selected.key |= (Key) shared->digit << shift;
		mask |= (Key) 255 << shift;
		need -= shared->before;
		if (!KTH && need == shared->of_digit)
		{
			__syncthreads();
			selected.key |= ~mask;
			return selected;
		}
		__syncthreads();
	}
	selected.key |= bits < 64 ? ((Key) 1 << (64 - bits)) - 1 : 0;
	selected.ties = need;
	return selected;
}

/*
 * As block_select(), preferring lower indexes among equal keys; calls chosen(i)
 * for each index selected.
 */
template <class Make, class Chosen>
__device__ static inline void
block_choose(uint32_t n, uint32_t need, SelectShared *shared, Make make, Chosen chosen)
{
	SelectedKey selected = block_select(n, need, 64, shared, make);
	SelectedKey last = {NO_KEY, SELECT_ALL};

	if (need == 0)
		return;
	if (selected.ties != SELECT_ALL)
		last = block_select(n, selected.ties, 64, shared, [&](uint32_t i, Key *key) {
			Key own;

			if (!make(i, &own) || own != selected.key)
				return false;
			*key = i;
			return true;
		});
	for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
	{
		Key key;

		if (make(i, &key) && (key < selected.key || (key == selected.key && i <= last.key)))
			chosen(i);
	}
	__syncthreads();
}

/*
 * The k-th of the upper bounds (by_bound) or estimates in a buffer, or
 * infinity.
 */
__device__ static inline float
kth_found(const ListsFound *found, uint32_t n, uint32_t k, bool by_bound, SelectShared *select)
{
	Key key = block_select<true>(n, k, 32, select,
								 [&](uint32_t i, Key *key) {
									 float rank = by_bound ? found[i].other : found[i].rank;

									 *key = (Key) fast_key(rank) << 32;
									 return rank < HUGE_VALF;
								 })
				  .key;
	float limit = distance_of_key((uint32_t) (key >> 32));

	return limit < HUGE_VALF ? limit : HUGE_VALF;
}

#endif /* GPUANN_CUDA_LISTS_SELECT_CUH */
