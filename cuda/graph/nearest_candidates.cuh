/*
 * nearest_candidates.cuh
 *		Which of a round's candidates are merged into a walk's list.
 *
 * A merge compares each candidate with each, and while the list is empty every
 * slot that was measured is a candidate: of some 256 pivots eight are needed,
 * of as many entry points ef. So where many more than are needed were found, a
 * bound is put before the merge. Every warp sorts the keys of its share of the
 * candidates in registers, the lowest 32 of them; with w warps and k needed,
 * its key number k / w, rounded up, has as many candidates of its share at or
 * below it. The bound is the highest of these keys, so at least k candidates
 * are within it, few more as shares are alike. All that equal the bound are
 * within: the order of equal keys, by slots, is left to the merge, and lists
 * are the same as without a bound.
 *
 * A sort of 32 keys has 15 steps of three instructions, and 6 more steps add
 * the next 32; a merge takes 25 instructions for 32 entries and 4 candidates.
 */
#ifndef GPUANN_CUDA_NEAREST_CANDIDATES_CUH
#define GPUANN_CUDA_NEAREST_CANDIDATES_CUH

#include "cuda/graph/graph_search_codes.cuh"

/*
 * Candidates beyond half as many again as are needed, for each warp, from which
 * on a bound is found: with many warps a merge is short, and its latency binds.
 */
#define SPARE_CANDIDATES 8u

/*
 * A comparator of a sorting network: a lane exchanges keys with the lane whose
 * number is `across` away (by exclusive or), and of the two the one without
 * `bit` in its number keeps the lower. Whole warps.
 */
__device__ static inline uint32_t
exchange_keys(uint32_t key, uint32_t across, uint32_t bit)
{
	uint32_t other = __shfl_xor_sync(FULL_WARP, key, (int) across);
	uint32_t lower = key < other ? key : other;
	uint32_t higher = key < other ? other : key;

	return (threadIdx.x & bit) == 0 ? lower : higher;
}

/* Sort a bitonic sequence of keys, one a lane, ascending. Whole warps. */
template <uint32_t SIZE>
__device__ static inline uint32_t
sort_bitonic(uint32_t key)
{
#pragma unroll
	for (uint32_t distance = SIZE / 2; distance > 0; distance /= 2)
		key = exchange_keys(key, distance, distance);
	return key;
}

/* Sort keys, one a lane, ascending. Whole warps. (bitonic sort) */
__device__ static inline uint32_t
sort_keys(uint32_t key)
{
	key = exchange_keys(key, 1, 1);
	key = sort_bitonic<2>(exchange_keys(key, 3, 2));
	key = sort_bitonic<4>(exchange_keys(key, 7, 4));
	key = sort_bitonic<8>(exchange_keys(key, 15, 8));
	return sort_bitonic<16>(exchange_keys(key, 31, 16));
}

/*
 * The lowest WARP keys of this warp's share of the candidates, ascending by
 * lane, the highest of all where it has fewer. Shares differ by one candidate
 * at most.
 */
__device__ static inline uint32_t
lowest_keys(const Candidates &candidates)
{
	const uint32_t none = ~0u;
	uint32_t warps = blockDim.x / WARP;
	uint32_t i = threadIdx.x % WARP * warps + threadIdx.x / WARP;
	uint32_t lowest =
		sort_keys(i < candidates.count ? (uint32_t) (candidates.entries[i] >> 32) : none);

#pragma unroll 1
	for (uint32_t base = blockDim.x; base < candidates.count; base += blockDim.x)
	{
		uint32_t key;

		i += blockDim.x;
		key = sort_keys(i < candidates.count ? (uint32_t) (candidates.entries[i] >> 32) : none);
		/* reversed, so that the lower of each pair are the lowest WARP */
		key = __shfl_xor_sync(FULL_WARP, key, WARP - 1);
		lowest = sort_bitonic<WARP>(key < lowest ? key : lowest);
	}
	return lowest;
}

/*
 * A round's candidates, without most of those that are not among its nearest
 * `keep` if these are many. Those that stay are in the memory of `fresh` then,
 * behind the candidates, whose slots have been measured. All threads, after a
 * barrier; the caller's next barrier is behind its reads of them.
 */
__device__ static inline Candidates
nearest_candidates(const WalkLayout &layout, const Walk &walk, WalkShared *shared, uint32_t keep)
{
	const Candidates all = {walk.candidates, shared->found[walk.round & 1]};
	Entry *to = walk.candidates + layout.tile;
	uint32_t room = (layout.tile + WARP) / 2;
	uint32_t lane = threadIdx.x % WARP;
	uint32_t warps = blockDim.x / WARP;
	uint32_t key,
		bound;

	if (keep > blockDim.x || all.count < keep + keep / 2 + SPARE_CANDIDATES * warps)
		return all;
	key = lowest_keys(all);
	/* the key number keep / warps, rounded up */
	if (lane * warps < keep && keep <= (lane + 1) * warps)
		atomicMax(&shared->bound, key);
	if (threadIdx.x == 0)
		shared->nearest = 0;
	__syncthreads();
	bound = shared->bound;
#pragma unroll 1
	for (uint32_t i = threadIdx.x; i - lane < all.count; i += blockDim.x)
	{
		Entry entry = i < all.count ? all.entries[i] : ~(Entry) 0;
		bool near = i < all.count && (uint32_t) (entry >> 32) <= bound;
		uint32_t place = append_place(&shared->nearest, near);

		if (near && place < room)
			to[place] = entry;
	}
	__syncthreads();
	if (threadIdx.x == 0)
		shared->bound = 0;
	/* more than fit have equal keys */
	return shared->nearest <= room ? Candidates{to, shared->nearest} : all;
}

#endif /* GPUANN_CUDA_NEAREST_CANDIDATES_CUH */
