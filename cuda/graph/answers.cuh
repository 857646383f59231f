/*
 * answers.cuh
 *		From a walk's list to answers: the nearest live entries are reranked
 *		exactly and merged with an exact scan of the pending rows.
 */
#ifndef GPUANN_CUDA_ANSWERS_CUH
#define GPUANN_CUDA_ANSWERS_CUH

#include "cuda/graph/graph_search_codes.cuh"

#define TILE_EXACT 64u	/* pending rows per merge */
#define RANKED_MIN 32u /* entries reranked exactly: twice k, at least this many */

/* Memory of the answers; it reuses that of the set of visited slots. */
struct Answers
{
	BestList best;
	Entries found;
	uint32_t *gathered;
};

/*
 * Number of entries of a walk over codes that are reranked exactly, because
 * order by codes is only close to order by distance.
 */
__host__ __device__ static inline uint32_t
ranked_entries(uint32_t k, uint32_t ef)
{
	uint32_t n = 2 * k < RANKED_MIN ? RANKED_MIN : 2 * k;

	return n < ef ? n : ef;
}

/* Prefetch a cache line to L2. */
__device__ static inline void
prefetch_line(const void *at)
{
#if defined(__CUDA_ARCH__)
	asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#endif
}

/*
 * Write to walk.other, for each entry, its slot and, in place of the expanded
 * bit, whether it is dead; prefetch the rows and versions of the first `most`
 * meanwhile. All threads; the caller synchronises.
 */
template <class E>
__device__ static inline void
mark_dead_entries(const MirrorView &mirror, const WalkOf<E> &walk, uint32_t most)
{
	uint32_t lines = (mirror.stride + 127) / 128;
	uint32_t nearest = walk.count < most ? walk.count : most;

	for (uint32_t i = threadIdx.x; i < nearest * lines; i += blockDim.x)
		prefetch_line(mirror.vectors + (size_t) slot_of(walk.list[i / lines]) * mirror.stride +
					  i % lines * 128);
	for (uint32_t i = threadIdx.x; i < walk.count; i += blockDim.x)
	{
		uint32_t slot = slot_of(walk.list[i]);

		walk.other[i] = (E) (slot << 1 | bit_of(mirror.dead, slot));
		if (i < nearest)
			prefetch_line(mirror.versions + slot);
	}
}

/*
 * Collect the slots of the first `most` live entries. Called by the first warp;
 * the caller synchronises before others read shared->live.
 */
template <class E>
__device__ static inline void
collect_live(const WalkOf<E> &walk, const Entries &to, uint32_t most, WalkShared *shared)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t n = 0;

#pragma unroll 1
	for (uint32_t base = 0; base < walk.count && n < most; base += WARP)
	{
		uint32_t i = base + lane;
		bool live = i < walk.count && !(walk.other[i] & 1);
		uint32_t ballot = __ballot_sync(FULL_WARP, live);
		uint32_t place = n + (uint32_t) __popc(ballot & ((1u << lane) - 1));

		if (live && place < most)
			to.slot[place] = slot_of(walk.other[i]);
		n += (uint32_t) __popc(ballot);
	}
	if (lane == 0)
		shared->live = n < most ? n : most;
}

/*
 * The exact key of a slot's row, by eight lanes; every lane gets it. Whole
 * warps.
 */
template <typename T, int TERM>
__device__ inline Key
wide_exact_key(const MirrorView &mirror, const QueryVector &query, uint32_t slot, bool active)
{
	return WideMeasure<T, TERM, false>::key(
		mirror, query, (const unsigned char *) row_of<T>(mirror, slot), slot, active);
}

/*
 * Exact keys of n slots. TEAM: EXACT_TEAM for throughput, EXACT_LANES for
 * latency with few rows.
 */
template <typename T, int TERM, uint32_t TEAM>
__device__ static inline void
exact_keys(const MirrorView &mirror, const QueryVector &query, const uint32_t *slots, Key *keys,
		   uint32_t n)
{
	uint32_t lane = threadIdx.x % WARP;

#pragma unroll 1
	for (uint32_t base = threadIdx.x / WARP * (WARP / TEAM); base < n; base += blockDim.x / TEAM)
	{
		uint32_t i = base + lane / TEAM;
		bool active = i < n;
		uint32_t slot = active ? slots[i] : 0;
		Key key = TEAM == EXACT_TEAM ? exact_key<T, TERM>(mirror, query, slot, active)
									 : wide_exact_key<T, TERM>(mirror, query, slot, active);

		if (active && lane % TEAM == 0)
			keys[i] = key;
	}
}

/*
 * Rerank the first `most` live entries of the list exactly, with TEAM lanes per
 * row. All threads; ends with a barrier.
 */
template <typename T, int TERM, uint32_t TEAM, class E>
__device__ static inline void
rank_exactly(const MirrorView &mirror, const DeviceQuery &asked, const QueryVector &query,
			 const WalkOf<E> &walk, Answers *answers, uint32_t most, WalkShared *shared)
{
	BestList *best = &answers->best;
	uint32_t n,
			 sorted;

	mark_dead_entries(mirror, walk, most);
	__syncthreads();
	if (threadIdx.x < WARP)
		collect_live(walk, best->now, most, shared);
	__syncthreads();
	n = shared->live;
	sorted = power_of_two(n);
	exact_keys<T, TERM, TEAM>(mirror, query, best->now.slot, best->now.key, n);
	block_fill(best->now, n, sorted);
	__syncthreads();
	block_sort(best->now, sorted);
	best->count = n < asked.k ? n : asked.k;
	best->room = asked.k;
}

/*
 * Keep an exactly measured entry for merge_found(), unless it is among the
 * answers already: a slot that the walk has reached too has the same key there.
 */
__device__ static inline void
keep_exact(const Answers &answers, WalkShared *shared, Key key, uint32_t slot)
{
	uint32_t at;

	if (!answers.best.takes(key, slot))
		return;
	at = entries_before(answers.best.now, answers.best.count, key, slot);
	if (at < answers.best.count && answers.best.now.key[at] == key &&
		answers.best.now.slot[at] == slot)
		return;
	at = atomicAdd(&shared->entered, 1u);
	answers.found.key[at] = key;
	answers.found.slot[at] = slot;
}

/* Begin the next tile of entries to merge. */
__device__ static inline void
begin_tile(WalkShared *shared)
{
	__syncthreads();
	if (threadIdx.x == 0)
		shared->gathered = shared->entered = 0;
	__syncthreads();
}

/*
 * Merge the entries kept since begin_tile() into the answers. All threads,
 * after a barrier.
 */
__device__ static inline void
merge_found(Answers *answers, WalkShared *shared)
{
	uint32_t n = shared->entered;
	uint32_t sorted = power_of_two(n);

	if (n == 0)
		return;
	block_fill(answers->found, n, sorted);
	__syncthreads();
	block_sort(answers->found, sorted);
	answers->best.merge(answers->found, n);
}

/*
 * Scan the pending rows exactly and merge them into the answers; with BOUND,
 * only those after the query's bound. Returns the number of rows scanned. All
 * threads.
 */
template <typename T, int TERM, bool BOUND>
__device__ static inline uint32_t
merge_pending(const MirrorView &mirror, const BatchView &batch, const DeviceQuery &asked,
			  const QueryVector &query, Answers *answers, WalkShared *shared)
{
	uint32_t scanned = 0;

	for (uint32_t tile = 0; tile < mirror.npending; tile += TILE_EXACT)
	{
		uint32_t end = mirror.npending - tile < TILE_EXACT ? mirror.npending : tile + TILE_EXACT;
		uint32_t n;

		begin_tile(shared);
		for (uint32_t i = tile + threadIdx.x; i < end; i += blockDim.x)
		{
			uint32_t slot = mirror.pending[i];

			if (slot < mirror.rows && may_answer(mirror, batch, asked, slot))
				answers->gathered[atomicAdd(&shared->gathered, 1u)] = slot;
		}
		__syncthreads();
		n = shared->gathered;
#pragma unroll 1
		for (uint32_t base = threadIdx.x / WARP * (WARP / EXACT_LANES); base < n;
			 base += blockDim.x / EXACT_LANES)
		{
			uint32_t i = base + threadIdx.x % WARP / EXACT_LANES;
			bool active = i < n;
			uint32_t slot = active ? answers->gathered[i] : 0;
			Key key = wide_exact_key<T, TERM>(mirror, query, slot, active);

			if (active && threadIdx.x % EXACT_LANES == 0 && (!BOUND || is_beyond(asked, key, slot)))
				keep_exact(*answers, shared, key, slot);
		}
		__syncthreads();
		scanned += n;
		merge_found(answers, shared);
	}
	return scanned;
}

/*
 * Merge the lists that an exact scan of the pending rows has left. All threads.
 */
__device__ static inline void
merge_lists(const PendingLists &pending, Answers *answers, WalkShared *shared)
{
	size_t first = (size_t) blockIdx.x * pending.lists * pending.length;
	uint32_t total = pending.lists * pending.length;

	for (uint32_t tile = 0; tile < total; tile += TILE_EXACT)
	{
		uint32_t end = total - tile < TILE_EXACT ? total : tile + TILE_EXACT;

		begin_tile(shared);
		for (uint32_t i = tile + threadIdx.x; i < end; i += blockDim.x)
			keep_exact(*answers, shared, pending.keys[first + i], pending.slots[first + i]);
		__syncthreads();
		merge_found(answers, shared);
	}
}

/*
 * Write answers and counters. reached: number of answers within the distance
 * that the list has reached.
 */
template <class E>
__device__ static inline void
write_answers(const MirrorView &mirror, const BatchView &batch, const DeviceQuery &asked,
			  const WalkOf<E> &walk, const BestList &best, uint32_t scanned, uint32_t reached,
			  const WalkShared *shared)
{
	for (uint32_t i = threadIdx.x; i < best.count; i += blockDim.x)
	{
		SearchResult result;

		result.distance = distance_of(best.now.key[i]);
		result.slot = best.now.slot[i];
		result.version = mirror.versions[result.slot];
		batch.results[asked.results + i] = result;
	}
	if (threadIdx.x == 0)
	{
		DeviceHead head;

		head.count = best.count;
		head.expanded = walk.expanded;
		head.distances = shared->fresh + scanned;
		head.iterations = walk.iterations;
		head.pending = scanned;
		head.reached = reached;
		batch.heads[blockIdx.x] = head;
	}
}

#endif /* GPUANN_CUDA_ANSWERS_CUH */
