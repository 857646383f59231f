/*
 * equal_rows.cuh
 *		Duplicate rows in a walk: device routines that keep them from filling
 *		its list.
 *
 * A walk starts without regard to duplicates. If many entries of its final list
 * have the same vector as their predecessor, it restarts and excludes
 * duplicates: a candidate with the key and vector of a listed slot, or of a
 * lower candidate, is dropped before the merge. At the end the nearest entries
 * are expanded once more, with a visited set that holds only the list, and
 * duplicates are admitted like any slot, so the answer contains them. A walk
 * with few duplicates thus only pays for one pass over its final list.
 * (src/engine/search.c keeps duplicates in a heap of its own instead, and
 * reference mode behind the list.)
 *
 * Rows are compared as the walk measures them: by codes, or as stored.
 * Different rows may have equal codes; they are not lost, because the last part
 * of the walk admits them.
 *
 * A list that has room for all that the walk met lacks nothing, and is final:
 * to start again would lose the duplicates that only far rows name.
 */
#ifndef GPUANN_CUDA_EQUAL_ROWS_CUH
#define GPUANN_CUDA_EQUAL_ROWS_CUH

#include "cuda/graph/graph_search_codes.cuh"

#define MANY_COPIES 8u /* a list has many duplicates if more than ef / 8 entries equal their
					    * predecessor */

/*
 * The rows by which duplicates are detected: `stride` bytes each, padded with
 * zeros.
 */
struct ComparedRows
{
	const unsigned char *rows;
	uint32_t stride; /* a multiple of 16 */
};

__device__ static inline ComparedRows
stored_rows(const MirrorView &mirror)
{
	return {mirror.vectors, mirror.stride};
}

__device__ static inline ComparedRows
coded_rows(const MirrorView &mirror)
{
	return {(const unsigned char *) mirror.codes, mirror.code_stride};
}

__device__ static inline bool
is_same_key(Entry a, Entry b)
{
	return (a ^ b) >> 32 == 0;
}

__device__ static inline bool
is_same_key(ExactEntry a, ExactEntry b)
{
	return (a ^ b) >> 64 == 0;
}

/* Whether two slots have the same row. One thread. */
__device__ static inline bool
is_same_row(const ComparedRows &compared, uint32_t slot_a, uint32_t slot_b)
{
	const uint4 *a = (const uint4 *) (compared.rows + (size_t) slot_a * compared.stride);
	const uint4 *b = (const uint4 *) (compared.rows + (size_t) slot_b * compared.stride);

#pragma unroll 1
	for (uint32_t i = 0; i < compared.stride / 16; i++)
	{
		uint4 x = __ldcg(a + i);
		uint4 y = __ldcg(b + i);

		if (x.x != y.x || x.y != y.y || x.z != y.z || x.w != y.w)
			return false;
	}
	return true;
}

/*
 * Whether many entries of the list are duplicates of their predecessors. All
 * threads, after a barrier, with shared->gathered 0; contains a barrier.
 */
template <class E>
__device__ static inline bool
has_many_copies(const ComparedRows &compared, const WalkOf<E> &walk, WalkShared *shared)
{
#pragma unroll 1
	for (uint32_t i = threadIdx.x + 1; i < walk.count; i += blockDim.x)
		if (is_same_key(walk.list[i], walk.list[i - 1]) &&
			is_same_row(compared, slot_of(walk.list[i]), slot_of(walk.list[i - 1])))
			atomicAdd(&shared->gathered, 1u);
	__syncthreads();
	return shared->gathered * MANY_COPIES > walk.ef;
}

/*
 * Whether an entry has a duplicate in the list, or a lower one among n
 * candidates.
 */
template <class E>
__device__ static inline bool
is_copy(const ComparedRows &compared, const E *list, uint32_t count, const E *candidates,
		uint32_t n, E entry)
{
	uint32_t low = 0,
			 high = count;

	/* lower bound: the first entry with this key */
	while (low < high)
	{
		uint32_t middle = (low + high) / 2;

		if (list[middle] < entry && !is_same_key(list[middle], entry))
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < count && is_same_key(list[low], entry); low++)
		if (is_same_row(compared, slot_of(list[low]), slot_of(entry)))
			return true;
	for (uint32_t i = 0; i < n; i++)
		if (candidates[i] < entry && is_same_key(candidates[i], entry) &&
			is_same_row(compared, slot_of(candidates[i]), slot_of(entry)))
			return true;
	return false;
}

/*
 * Drop those of a round's *found candidates that are duplicates. All threads,
 * after a barrier; ends with one. A thread has at most 32 candidates: a bit
 * each. Duplicates are first marked, behind a barrier, because candidates are
 * compared with each other, then removed by the first warp. Inline: a call
 * costs the walk eight registers, and an SM two of its fourteen walks.
 */
template <class E>
__device__ static inline void
drop_copies(ComparedRows compared, const E *list, uint32_t count, E *candidates, uint32_t *found)
{
	const E none = ~(E) 0;
	uint32_t n = *found;
	uint32_t copies = 0;
	uint32_t kept = 0;

	for (uint32_t i = threadIdx.x, bit = 1; i < n; i += blockDim.x, bit <<= 1)
		if (is_copy(compared, list, count, candidates, n, candidates[i]))
			copies |= bit;
	__syncthreads();
	for (uint32_t i = threadIdx.x; copies != 0; i += blockDim.x, copies >>= 1)
		if (copies & 1)
			candidates[i] = none;
	__syncthreads();
	for (uint32_t base = 0; threadIdx.x < WARP && base < n; base += WARP)
	{
		uint32_t i = base + threadIdx.x;
		E entry = i < n ? candidates[i] : none;
		uint32_t ballot = __ballot_sync(FULL_WARP, entry != none);

		if (entry != none)
			candidates[kept + (uint32_t) __popc(ballot & ((1u << threadIdx.x) - 1))] = entry;
		kept += (uint32_t) __popc(ballot);
		__syncwarp();
	}
	if (threadIdx.x == 0)
		*found = kept;
	__syncthreads();
}

/* Whether no slot that the walk met was left out of the list for its length. */
template <class E>
__device__ static inline bool
list_has_all(const WalkOf<E> &walk, uint32_t rows)
{
	return walk.count < walk.ef || walk.ef >= rows;
}

/*
 * At the end of a part of the walk: start the next part, if it has one. Returns
 * whether it does. `rows` is the number of rows of the mirror, *seeded is as in
 * next_round(); in the last part `most` entries are expanded again. All
 * threads; ends with a barrier if the walk continues.
 */
template <class E>
__device__ static inline bool
begin_next_part(const ComparedRows &compared, WalkOf<E> *walk, WalkShared *shared, uint32_t rows,
				uint32_t most, uint32_t *seeded)
{
	WalkPart ended = shared->part;

	if (ended == WALK_COPIES ||
		(ended == WALK_PLAIN &&
		 (list_has_all(*walk, rows) || !has_many_copies(compared, *walk, shared))))
		return false;
	/*
	 * all threads have read the part, and found no unexpanded slot, before
	 * either changes
	 */
	__syncthreads();
	if (threadIdx.x == 0)
	{
		shared->open_from = 0;
		shared->part = ended == WALK_PLAIN ? WALK_DISTINCT : WALK_COPIES;
	}
	if (ended == WALK_PLAIN)
	{
		walk->count = 0;
		*seeded = 0;
	}
	else
	{
		for (uint32_t i = threadIdx.x; i < walk->count && i < most; i += blockDim.x)
			walk->list[i] &= ~(E) 1;
		__syncthreads();
	}
	list_refill_set(walk);
	return true;
}

#endif /* GPUANN_CUDA_EQUAL_ROWS_CUH */
