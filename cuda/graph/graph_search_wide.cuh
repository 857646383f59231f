/*
 * graph_search_wide.cuh
 *		The walk over codes where answers are not simply the list's first:
 *		device routines. See graph_search_wide.cu for the map.
 *
 * It has the list, the set and the rounds of graph_search_codes.cuh. What
 * differs: candidates are sorted before they are merged, because lists are
 * long; answers of a query with a bitmap or a bound are kept apart; and codes
 * of L1 and rows of bits are measured too.
 */
#ifndef GPUANN_CUDA_GRAPH_SEARCH_WIDECUH
#define GPUANN_CUDA_GRAPH_SEARCH_WIDECUH

#include "cuda/graph/answers.cuh"

#define WIDE_LANES 8u /* that measure a row of codes */

/*
 * Where things are, in bytes from the start of shared memory, or of the query's
 * state.
 */
struct WideLayout
{
	uint32_t codes; /* shared */
	uint32_t candidates;
	uint32_t admitted;
	uint32_t fresh;
	uint32_t tile_answers;
	uint32_t shared_bytes; /* without the state */
	uint32_t list;		   /* state: the list twice */
	uint32_t list_bytes;   /* of one */
	uint32_t answers;	   /* those kept apart, twice */
	uint32_t table;		   /* the set; at the end the answers ranked exactly */
	uint32_t state_bytes;
	uint32_t tile;	 /* slots of one round, at most */
	uint32_t sorted; /* the same, rounded up to a power of two */
	uint32_t places;
	uint32_t half; /* entries of one half of the ranked answers */
	uint32_t width;
	bool state_shared;
};

/* What the threads of a block share besides the large arrays. */
struct WideShared
{
	WalkShared walk;
	DeviceQuery asked;
	uint32_t admitted; /* of a round */
	uint32_t staying;  /* of these, behind the bound */
};

/* A walk and its answers. */
struct WideWalk
{
	Walk walk;
	Entry *admitted;	 /* of a round */
	Entry *answers;		 /* kept apart */
	Entry *other_answers;
	uint32_t nanswers;
	bool apart;
};

/*
 * Sort n entries, of a list with room for a power of two of them. All threads,
 * after a barrier; ends with one.
 */
__device__ static inline void
sort_entries(Entry *entries, uint32_t n)
{
	uint32_t sorted = power_of_two(n);

	for (uint32_t i = n + threadIdx.x; i < sorted; i += blockDim.x)
		entries[i] = ~0ull;
	__syncthreads();
	for (uint32_t size = 2; size <= sorted; size <<= 1)
		for (uint32_t stride = size >> 1; stride > 0; stride >>= 1)
		{
			for (uint32_t i = threadIdx.x; i < sorted / 2; i += blockDim.x)
			{
				uint32_t a = 2 * i - (i & (stride - 1));
				Entry first = entries[a],
					  second = entries[a + stride];

				if ((second < first) == ((a & size) == 0))
				{
					entries[a] = second;
					entries[a + stride] = first;
				}
			}
			__syncthreads();
		}
}

/* How many of a sorted list's entries are before another. */
__device__ static inline uint32_t
sorted_before(const Entry *list, uint32_t count, Entry entry)
{
	uint32_t low = 0,
			 high = count;

	while (low < high)
	{
		uint32_t middle = (low + high) / 2;

		if (list[middle] < entry)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * Merge n sorted entries into a list of `count` that keeps `room`; returns how
 * many it has in `to`. All threads; no barrier at the end.
 */
__device__ static inline uint32_t
merge_sorted(const Entry *from, uint32_t count, const Entry *add, uint32_t n, Entry *to,
			 uint32_t room)
{
	for (uint32_t i = threadIdx.x; i < count; i += blockDim.x)
	{
		Entry entry = from[i];
		uint32_t place = i + sorted_before(add, n, entry);

		if (place < room)
			to[place] = entry;
	}
	for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
	{
		uint32_t place = i + sorted_before(from, count, add[i]);

		if (place < room)
			to[place] = add[i];
	}
	return count + n < room ? count + n : room;
}

/* --- distances ------------------------------------------------------------ */

/* The sum of absolute differences of sixteen codes each. */
__device__ static inline int
absolute16(const uint4 &a, const uint4 &b, int sum)
{
	const uint32_t x[4] = {a.x, a.y, a.z, a.w};
	const uint32_t y[4] = {b.x, b.y, b.z, b.w};

#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int shift = 0; shift < 32; shift += 8)
		{
			int difference =
				(int) (signed char) (x[i] >> shift) - (int) (signed char) (y[i] >> shift);

			sum += difference < 0 ? -difference : difference;
		}
	return sum;
}

/*
 * The key that ranks a slot on the way: whole numbers, or bits of a float that
 * is not negative. Lanes of a team each have their part.
 */
template <int TERM>
__device__ static inline uint32_t
wide_key(const MirrorView &mirror, const Walk &walk, const uint4 *query, const signed char *codes,
		 uint32_t slot, bool active)
{
	const uint4 *row = (const uint4 *) (codes + (size_t) (active ? slot : 0) * mirror.code_stride);
	uint32_t chunks = mirror.code_stride / 16;
	int sum = 0,
		both = 0;

	if (active)
#pragma unroll 4
		for (uint32_t chunk = threadIdx.x % WIDE_LANES; chunk < chunks; chunk += WIDE_LANES)
		{
			uint4 x = __ldcg(row + chunk);
			uint4 q = query[chunk];

			if (TERM == TERM_BITS)
			{
				BitCounts counts = {0, 0};

				count_bits(&counts, q, x);
				sum += (int) counts.one;
				both += (int) counts.both;
			}
			else if (TERM == TERM_ABSOLUTE)
				sum = absolute16(q, x, sum);
			else if (TERM == TERM_SQUARE)
				sum += dot16(x, x, 0) - walk.scale * dot16(x, q, 0);
			else
				sum -= dot16(x, q, 0);
		}
#pragma unroll
	for (uint32_t distance = WIDE_LANES / 2; distance > 0; distance >>= 1)
	{
		sum += __shfl_xor_sync(FULL_WARP, sum, (int) distance);
		if (TERM == TERM_BITS)
			both += __shfl_xor_sync(FULL_WARP, both, (int) distance);
	}
	if (TERM == TERM_BITS && mirror.metric == METRIC_JACCARD)
		return __float_as_uint(both == 0 ? 1.0f : 1.0f - (float) both / (float) (both + sum));
	return (uint32_t) sum ^ 0x80000000u;
}

/* --- a round -------------------------------------------------------------- */

/* Offer a measured slot to the answers kept apart. Whole warps. */
__device__ static inline void
offer_apart(const MirrorView &mirror, const BatchView &batch, const WideWalk &wide,
			WideShared *shared, bool has, Entry entry)
{
	bool enters = has && (wide.nanswers < wide.walk.ef || entry < wide.answers[wide.walk.ef - 1]) &&
				  may_answer(mirror, batch, shared->asked, slot_of(entry));
	uint32_t ballot = __ballot_sync(FULL_WARP, enters);
	uint32_t lane = threadIdx.x % WARP;
	uint32_t place = 0;

	if (ballot == 0)
		return;
	if (lane == 0)
		place = atomicAdd(&shared->admitted, (uint32_t) __popc(ballot));
	place = __shfl_sync(FULL_WARP, place, 0) + (uint32_t) __popc(ballot & ((1u << lane) - 1));
	if (enters)
		wide.admitted[place] = entry;
}

/* Measure n slots of this warp's list, or pivots. */
template <int TERM>
__device__ static inline void
measure_wide(const MirrorView &mirror, const BatchView &batch, const WideWalk &wide,
			 WideShared *shared, const uint4 *query, bool pivots, uint32_t n)
{
	uint32_t lane = threadIdx.x % WARP;
	const signed char *codes = pivots ? mirror.pivot_codes : mirror.codes;

#pragma unroll 1
	for (uint32_t base = 0; base < n; base += WARP / WIDE_LANES)
	{
		uint32_t i = base + lane / WIDE_LANES;
		bool active = i < n;
		uint32_t slot = active ? wide.walk.fresh[i] : 0;
		uint32_t key = wide_key<TERM>(mirror, wide.walk, query, codes, slot, active);
		bool speaks = active && lane % WIDE_LANES == 0;

		codes_offer(mirror, wide.walk, &shared->walk, speaks, key, slot, false);
		if (wide.apart && !pivots)
			offer_apart(mirror, batch, wide, shared, speaks,
						(Entry) key << 32 | (Entry) (slot << 1));
	}
}

/*
 * Take `total` neighbours from slot numbers to candidates: every warp an equal
 * share.
 */
template <int TERM>
__device__ static inline void
look_wide(const MirrorView &mirror, const BatchView &batch, const WideWalk &wide,
		  WideShared *shared, const uint4 *query, const Parents &parents, uint32_t total)
{
	uint32_t n =
		gather_fresh(mirror, wide.walk, &shared->walk, parents.pivots, total,
					 [&](uint32_t i, bool has) { return neighbour(mirror, parents, i, has); });

	measure_wide<TERM>(mirror, batch, wide, shared, query, parents.pivots, n);
	__syncwarp();
}

/*
 * Leave out of a round's admitted entries those that are not behind the bound,
 * which is exact: so they are measured exactly. They become ~0, and are behind
 * all others when they are sorted. All threads, after a barrier; ends with one.
 */
template <typename T, int TERM>
__device__ static inline void
check_bound(const MirrorView &mirror, const WideWalk &wide, WideShared *shared,
			const QueryVector &query, uint32_t n)
{
	uint32_t lane = threadIdx.x % WARP;

	for (uint32_t base = threadIdx.x / WARP * (WARP / EXACT_TEAM); base < n;
		 base += blockDim.x / EXACT_TEAM)
	{
		uint32_t i = base + lane / EXACT_TEAM;
		bool active = i < n;
		uint32_t slot = active ? slot_of(wide.admitted[i]) : 0;
		Key key = exact_key<T, TERM>(mirror, query, slot, active);

		__syncwarp();
		if (active && lane % EXACT_TEAM == 0)
		{
			if (is_beyond(shared->asked, key, slot))
				atomicAdd(&shared->staying, 1u);
			else
				wide.admitted[i] = ~0ull;
		}
	}
	__syncthreads();
}

/*
 * Merge a round's admitted entries into the answers kept apart. All threads,
 * after a barrier; ends with one.
 */
template <typename T, int TERM>
__device__ static inline void
merge_apart(const MirrorView &mirror, WideWalk *wide, WideShared *shared, const QueryVector &query)
{
	uint32_t n = shared->admitted,
			 staying = n;
	Entry *from = wide->answers;

	if (n == 0)
		return;
	if (shared->asked.has_beyond)
	{
		check_bound<T, TERM>(mirror, *wide, shared, query, n);
		staying = shared->staying;
	}
	sort_entries(wide->admitted, n);
	wide->nanswers = merge_sorted(from, wide->nanswers, wide->admitted, staying,
								  wide->other_answers, wide->walk.ef);
	wide->answers = wide->other_answers;
	wide->other_answers = from;
	__syncthreads();
}

/*
 * Merge a round's candidates into the list, and mark the parents expanded. All
 * threads, after a barrier; ends with one.
 */
__device__ static inline void
merge_wide(Walk *walk, WideShared *shared, const Parents &parents)
{
	uint32_t n = shared->walk.found[walk->round & 1];
	Entry *from = walk->list;

	walk->measured = shared->walk.fresh;
	if (threadIdx.x < parents.count)
		from[parents.place] |= 1;
	sort_entries(walk->candidates, n);
	if (threadIdx.x == 0)
	{
		/* what stands before the nearest newcomer stays where it is */
		uint32_t before =
			n > 0 ? sorted_before(from, walk->count, walk->candidates[0]) : walk->count;

		shared->walk.open_from = before < parents.open_from ? before : parents.open_from;
		shared->walk.found[(walk->round & 1) ^ 1] = 0;
	}
	if (n > 0)
	{
		walk->count = merge_sorted(from, walk->count, walk->candidates, n, walk->other, walk->ef);
		walk->list = walk->other;
		walk->other = from;
	}
	__syncthreads();
}

/*
 * Empty the set of slots seen and put back what the list and the answers hold,
 * if `more` may come than it has room for. All threads.
 */
__device__ static inline void
make_wide_room(WideWalk *wide, uint32_t more)
{
	Walk *walk = &wide->walk;

	if (walk->measured - walk->forgotten + more <= walk->places / 8 * 5)
		return;
	for (uint32_t i = threadIdx.x; i < walk->places; i += blockDim.x)
		walk->table[i] = NO_SLOT;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < walk->count; i += blockDim.x)
		codes_see(*walk, slot_of(walk->list[i]));
	for (uint32_t i = threadIdx.x; i < wide->nanswers; i += blockDim.x)
		codes_see(*walk, slot_of(wide->answers[i]));
	walk->forgotten = walk->measured - walk->count - wide->nanswers;
}

/* The whole walk. */
template <typename T, int TERM>
__device__ static inline void
wide_walk_all(const MirrorView &mirror, const BatchView &batch, const WideLayout &layout,
			  const QueryVector &query, const uint4 *codes, WideWalk *wide, WideShared *shared)
{
	const DeviceQuery &asked = shared->asked;
	Walk *walk = &wide->walk;
	uint32_t seeded = 0;

#pragma unroll 1
	for (;;)
	{
		Parents parents;
		uint32_t total;

		if (!next_round(mirror, asked, &shared->walk, layout.width, walk, &seeded, &parents,
						&total))
			return;
		if (threadIdx.x == 0)
			shared->admitted = shared->staying = 0;
		make_wide_room(wide, total);
		__syncthreads();
		look_wide<TERM>(mirror, batch, *wide, shared, codes, parents, total);
		__syncthreads();
		if (wide->apart)
			merge_apart<T, TERM>(mirror, wide, shared, query);
		merge_wide(walk, shared, parents);
		walk->round++;
	}
}

/*
 * How many answers lie within what the list has reached. Any thread, after a
 * barrier.
 */
__device__ static inline uint32_t
count_reached(const WideWalk &wide)
{
	if (!wide.apart || wide.walk.count < wide.walk.ef)
		return wide.nanswers;
	return sorted_before(wide.answers, wide.nanswers, wide.walk.list[wide.walk.count - 1]);
}

/* --- answers -------------------------------------------------------------- */

/*
 * Rank the first entries exactly: of the answers kept apart, or of the list
 * those that are alive. All threads.
 */
template <typename T, int TERM>
__device__ static inline void
rank_wide(const MirrorView &mirror, const QueryVector &query, WideWalk *wide, Answers *answers,
		  uint32_t most, WideShared *shared)
{
	BestList *best = &answers->best;
	Walk *walk = &wide->walk;
	uint32_t n,
			 sorted;

	if (wide->apart)
	{
		walk->list = wide->answers;
		walk->other = wide->other_answers;
		walk->count = wide->nanswers;
	}
	note_dead(mirror, *walk, most);
	__syncthreads();
	if (threadIdx.x < WARP)
		collect_live(*walk, best->now, most, &shared->walk);
	__syncthreads();
	n = shared->walk.live;
	sorted = power_of_two(n);
	exact_keys<T, TERM, EXACT_TEAM>(mirror, query, best->now.slot, best->now.key, n);
	block_fill(best->now, n, sorted);
	__syncthreads();
	block_sort(best->now, sorted);
	best->count = n < shared->asked.k ? n : shared->asked.k;
	best->room = shared->asked.k;
}

#endif /* GPUANN_CUDA_GRAPH_SEARCH_WIDECUH */
