/*
 * graph_search.cuh
 *		The general graph search: device routines. See graph_search.cu for the
 *		map.
 *
 * It shares the list, the visited set and the rounds with
 * graph_search_codes.cuh. Differences: the distance is a policy; candidates are
 * sorted before the merge, because lists are long; answers of a query with a
 * bitmap or a bound are kept in a list of their own.
 */
#ifndef GPUANN_CUDA_GRAPH_SEARCH_CUH
#define GPUANN_CUDA_GRAPH_SEARCH_CUH

#include "cuda/graph/answers.cuh"
#include "cuda/graph/equal_rows.cuh"

#define CODE_LANES 8u /* per row of codes */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ > 900
#define ROWS_BLOCKS 2 /* per SM, over stored rows: 80 registers per thread would not suffice */
#else
#define ROWS_BLOCKS 3
#endif

/* What distances are computed from during the walk. */
enum GraphMeasure
{
	MEASURE_CODES = 0,
	MEASURE_ROWS = 1,
	MEASURE_ROTATED = 2, /* as MEASURE_CODES, with rotation and scales */
	MEASURE_EXACT = 3	 /* reference mode (cuda/tests/reference.cu) */
};

__host__ __device__ static inline bool
is_coded(GraphMeasure measure)
{
	return measure == MEASURE_CODES || measure == MEASURE_ROTATED;
}

/*
 * Memory layout: offsets in bytes from the start of shared memory, or of the
 * query's state.
 */
struct GraphLayout
{
	uint32_t codes; /* offsets in shared memory */
	uint32_t candidates;
	uint32_t admitted;
	uint32_t fresh;
	uint32_t tile_answers;
	uint32_t shared_bytes; /* excluding the state */
	uint32_t list;		   /* offsets in the state: the list, double-buffered */
	uint32_t list_bytes;   /* of one buffer */
	uint32_t answers;	   /* list of answers kept apart, double-buffered */
	uint32_t table;		   /* visited set; at the end the reranked answers */
	uint32_t state_bytes;
	uint32_t tile;	 /* maximum number of slots of a round */
	uint32_t sorted; /* `tile` rounded up to a power of two */
	uint32_t places;
	uint32_t half; /* entries of one buffer of the reranked answers */
	uint32_t width;
	bool state_shared;
};

/* A block's shared variables besides the large arrays. */
struct GraphShared
{
	WalkShared walk;
	DeviceQuery asked;
	uint32_t admitted; /* admitted slots of a round */
	uint32_t staying;  /* of these, after the query's bound */
};

/* A walk and its separate list of answers. */
template <class E>
struct GraphWalk
{
	WalkOf<E> walk;
	E *admitted; /* of a round */
	E *answers;	 /* list of answers, double-buffered */
	E *other_answers;
	uint32_t nanswers;
	bool apart;
};

/* A query in the formats that walks measure it in. */
struct MeasuredQuery
{
	QueryVector vector;
	const uint4 *codes;
	float step; /* of rotated codes, as in WalkOf */
	float factor;
};

/*
 * Sort n entries of an array whose capacity is a power of two; few entries by
 * counting the lower ones. All threads, after a barrier; ends with one.
 */
template <class E>
__device__ static inline void
sort_entries(E *entries, uint32_t n)
{
	uint32_t sorted = power_of_two(n);

	if (n <= SORT_BY_COUNTING)
	{
		E entry = threadIdx.x < n ? entries[threadIdx.x] : 0;
		uint32_t place = 0;

		/* entries before the bound were all set to the same value */
		for (uint32_t i = 0; threadIdx.x < n && i < n; i++)
			place += entries[i] < entry || (entries[i] == entry && i < threadIdx.x);
		__syncthreads();
		if (threadIdx.x < n)
			entries[place] = entry;
		__syncthreads();
		return;
	}
	for (uint32_t i = n + threadIdx.x; i < sorted; i += blockDim.x)
		entries[i] = ~(E) 0;
	__syncthreads();
	for (uint32_t size = 2; size <= sorted; size <<= 1)
		for (uint32_t stride = size >> 1; stride > 0; stride >>= 1)
		{
			for (uint32_t i = threadIdx.x; i < sorted / 2; i += blockDim.x)
			{
				uint32_t a = 2 * i - (i & (stride - 1));
				E first = entries[a],
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

/* The number of entries of a sorted list that are before `entry`. */
template <class E>
__device__ static inline uint32_t
sorted_before(const E *list, uint32_t count, E entry)
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
 * Merge n sorted entries into a sorted list of `count`, and keep `room` of them
 * in `to`; returns the number kept. All threads; no barrier at the end.
 */
template <class E>
__device__ static inline uint32_t
merge_sorted(const E *from, uint32_t count, const E *add, uint32_t n, E *to, uint32_t room)
{
	for (uint32_t i = threadIdx.x; i < count; i += blockDim.x)
	{
		E entry = from[i];
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

/* sum + the absolute differences of sixteen pairs of codes. */
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
 * The key that orders slots during the walk: an integer, or the bits of a
 * non-negative float. The lanes of a team split the row's codes; every lane
 * gets the key. Whole warps.
 */
template <int TERM>
__device__ static inline uint32_t
code_key(const MirrorView &mirror, int scale, const uint4 *query, const signed char *codes,
		 uint32_t slot, bool active)
{
	const uint4 *row = (const uint4 *) (codes + (size_t) (active ? slot : 0) * mirror.code_stride);
	uint32_t chunks = mirror.code_stride / 16;
	int sum = 0,
		both = 0;

	if (active)
#pragma unroll 4
		for (uint32_t chunk = threadIdx.x % CODE_LANES; chunk < chunks; chunk += CODE_LANES)
		{
			uint4 x = __ldcg(row + chunk);
			uint4 q = query[chunk];

			if (TERM == TERM_BITS)
			{
				CudaBitCounts counts = {0, 0};

				count_bits(&counts, q, x);
				sum += (int) counts.one;
				both += (int) counts.both;
			}
			else if (TERM == TERM_ABSOLUTE)
				sum = absolute16(q, x, sum);
			else if (TERM == TERM_SQUARE)
				sum += dot16(x, x, 0) - scale * dot16(x, q, 0);
			else
				sum -= dot16(x, q, 0);
		}
#pragma unroll
	for (uint32_t distance = CODE_LANES / 2; distance > 0; distance >>= 1)
	{
		sum += __shfl_xor_sync(FULL_WARP, sum, (int) distance);
		if (TERM == TERM_BITS)
			both += __shfl_xor_sync(FULL_WARP, both, (int) distance);
	}
	if (TERM == TERM_BITS && mirror.metric == METRIC_JACCARD)
		return __float_as_uint(both == 0 ? 1.0f : 1.0f - (float) both / (float) (both + sum));
	return (uint32_t) sum ^ 0x80000000u;
}

/* The same for rotated codes. */
template <int TERM>
__device__ static inline uint32_t
rotated_code_key(const MirrorView &mirror, float step, float factor, const uint4 *query,
				 const signed char *codes, const float2 *scales, uint32_t slot, bool active)
{
	const uint4 *row = (const uint4 *) (codes + (size_t) (active ? slot : 0) * mirror.code_stride);
	float2 scale = __ldcg(scales + (active ? slot : 0));
	int sum = 0;

	if (active)
#pragma unroll 4
		for (uint32_t chunk = threadIdx.x % CODE_LANES; chunk < mirror.code_stride / 16;
			 chunk += CODE_LANES)
			sum = dot16(__ldcg(row + chunk), query[chunk], sum);
#pragma unroll
	for (uint32_t distance = CODE_LANES / 2; distance > 0; distance >>= 1)
		sum += __shfl_xor_sync(FULL_WARP, sum, (int) distance);
	return rotated_key<TERM>(step, factor, scale, sum);
}

/*
 * A measure as a policy: the type of list entries, whose keys have its width;
 * the blocks per SM to compile for; the lanes per slot; a slot's key, in all of
 * these lanes. Whole warps. That of reference mode also cuts the list after a
 * round.
 */

/* By codes. */
template <typename T, int TERM>
struct ByCodes
{
	typedef Entry Listed;
	static const GraphMeasure MEASURE = MEASURE_CODES;
	static const int BLOCKS = 2;

	__device__ static inline uint32_t
	lanes(const MirrorView &)
	{
		return CODE_LANES;
	}

	__device__ static inline uint32_t
	key(const MirrorView &mirror, const MeasuredQuery &query, int scale, bool pivots, uint32_t slot,
		bool active)
	{
		return code_key<TERM>(mirror, scale, query.codes,
							  pivots ? mirror.pivot_codes : mirror.codes, slot, active);
	}
};

/* By rotated codes. */
template <typename T, int TERM>
struct ByRotated
{
	typedef Entry Listed;
	static const GraphMeasure MEASURE = MEASURE_ROTATED;
	static const int BLOCKS = 2;

	__device__ static inline uint32_t
	lanes(const MirrorView &)
	{
		return CODE_LANES;
	}

	__device__ static inline uint32_t
	key(const MirrorView &mirror, const MeasuredQuery &query, int, bool pivots, uint32_t slot,
		bool active)
	{
		return rotated_code_key<TERM>(mirror, query.step, query.factor, query.codes,
									  pivots ? mirror.pivot_codes : mirror.codes,
									  pivots ? mirror.pivot_scales : mirror.code_scales, slot,
									  active);
	}
};

/* By stored rows in single precision. */
template <typename T, int TERM>
struct ByRows
{
	typedef Entry Listed;
	static const GraphMeasure MEASURE = MEASURE_ROWS;
	static const int BLOCKS = ROWS_BLOCKS;

	__device__ static inline uint32_t
	lanes(const MirrorView &mirror)
	{
		return fast_team(mirror.stride);
	}

	__device__ static inline uint32_t
	key(const MirrorView &mirror, const MeasuredQuery &query, int, bool, uint32_t slot, bool active)
	{
		return fast_key(
			fast_distance<T, TERM>(mirror, query.vector, slot, active, fast_team(mirror.stride)));
	}
};

/* --- a round -------------------------------------------------------------- */

/*
 * Append measured slots that may be answers to the round's admitted entries.
 * One slot per lane that has one; whole warps.
 */
template <class E>
__device__ static inline void
offer_apart(const MirrorView &mirror, const BatchView &batch, const GraphWalk<E> &graph,
			GraphShared *shared, bool has, E entry)
{
	bool enters = has &&
				  (graph.nanswers < graph.walk.ef || entry < graph.answers[graph.walk.ef - 1]) &&
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
		graph.admitted[place] = entry;
}

/* Measure the n slots in this warp's `fresh` (pivots: numbers of pivots). */
template <class By>
__device__ static inline void
measure_fresh(const MirrorView &mirror, const BatchView &batch,
			  const GraphWalk<typename By::Listed> &graph, GraphShared *shared,
			  const MeasuredQuery &query, bool pivots, uint32_t n)
{
	const uint32_t lanes = By::lanes(mirror);
	uint32_t lane = threadIdx.x % WARP;

#pragma unroll 1
	for (uint32_t base = 0; base < n; base += WARP / lanes)
	{
		uint32_t i = base + lane / lanes;
		bool active = i < n;
		uint32_t slot = active ? graph.walk.fresh[i] : 0;
		auto key = By::key(mirror, query, graph.walk.scale, pivots, slot, active);
		bool offers = active && lane % lanes == 0;

		codes_offer(mirror, graph.walk, &shared->walk, offers, key, slot, false);
		if (graph.apart && !pivots)
			offer_apart(mirror, batch, graph, shared, offers, entry_of(key, slot));
	}
}

/*
 * Process `total` neighbours, from slot numbers to candidates: an equal share
 * per warp.
 */
template <class By>
__device__ static inline void
graph_expand(const MirrorView &mirror, const BatchView &batch,
			 const GraphWalk<typename By::Listed> &graph, GraphShared *shared,
			 const MeasuredQuery &query, const Parents &parents, uint32_t total)
{
	uint32_t n =
		gather_fresh(mirror, graph.walk, &shared->walk, parents.pivots, total,
					 [&](uint32_t i, bool has) { return neighbour(mirror, parents, i, has); });

	measure_fresh<By>(mirror, batch, graph, shared, query, parents.pivots, n);
	__syncwarp();
}

/*
 * Exclude admitted entries of a round that are not after the query's bound. The
 * bound is exact, so they are measured exactly. Excluded entries are set to the
 * greatest value and sort last. All threads, after a barrier; ends with one.
 */
template <typename T, int TERM, class E>
__device__ static inline void
check_bound(const MirrorView &mirror, const GraphWalk<E> &graph, GraphShared *shared,
			const QueryVector &query, uint32_t n)
{
	uint32_t lane = threadIdx.x % WARP;

	for (uint32_t base = threadIdx.x / WARP * (WARP / EXACT_TEAM); base < n;
		 base += blockDim.x / EXACT_TEAM)
	{
		uint32_t i = base + lane / EXACT_TEAM;
		bool active = i < n;
		uint32_t slot = active ? slot_of(graph.admitted[i]) : 0;
		Key key = exact_key<T, TERM>(mirror, query, slot, active);

		__syncwarp();
		if (active && lane % EXACT_TEAM == 0)
		{
			if (is_beyond(shared->asked, key, slot))
				atomicAdd(&shared->staying, 1u);
			else
				graph.admitted[i] = ~(E) 0;
		}
	}
	__syncthreads();
}

/*
 * Merge a round's admitted entries into the separate list of answers. All
 * threads, after a barrier; ends with one.
 */
template <typename T, int TERM, class E>
__device__ static inline void
merge_apart(const MirrorView &mirror, GraphWalk<E> *graph, GraphShared *shared,
			const QueryVector &query)
{
	uint32_t n = shared->admitted,
			 staying = n;
	E *from = graph->answers;

	if (n == 0)
		return;
	if (shared->asked.has_beyond)
	{
		check_bound<T, TERM>(mirror, *graph, shared, query, n);
		staying = shared->staying;
	}
	sort_entries(graph->admitted, n);
	graph->nanswers = merge_sorted(from, graph->nanswers, graph->admitted, staying,
								   graph->other_answers, graph->walk.ef);
	graph->answers = graph->other_answers;
	graph->other_answers = from;
	__syncthreads();
}

/*
 * Merge a round's candidates into a list of `room` entries at most, and mark
 * the parents expanded. All threads, after a barrier; ends with one.
 */
template <class E>
__device__ static inline void
merge_candidates(WalkOf<E> *walk, WalkShared *shared, const Parents &parents, uint32_t room)
{
	uint32_t n = shared->found[walk->round & 1];
	E *from = walk->list;

	walk->measured = shared->fresh;
	if (threadIdx.x < parents.count)
		from[parents.place] |= 1;
	sort_entries(walk->candidates, n);
	if (threadIdx.x == 0)
	{
		/* entries before the nearest new one keep their places */
		uint32_t before =
			n > 0 ? sorted_before(from, walk->count, walk->candidates[0]) : walk->count;

		shared->open_from = before < parents.open_from ? before : parents.open_from;
		shared->found[(walk->round & 1) ^ 1] = 0;
	}
	if (n > 0)
	{
		walk->count = merge_sorted(from, walk->count, walk->candidates, n, walk->other, room);
		walk->list = walk->other;
		walk->other = from;
	}
	__syncthreads();
}

/*
 * After a refill from the list, insert the answers into the visited set. All
 * threads.
 */
template <class E>
__device__ static inline void
visit_answers(GraphWalk<E> *graph)
{
	for (uint32_t i = threadIdx.x; i < graph->nanswers; i += blockDim.x)
		visit_slot(graph->walk, slot_of(graph->answers[i]));
	graph->walk.forgotten -= graph->nanswers;
}

/*
 * Make room for `more` slots in the visited set, which keeps the slots of list
 * and answers. All threads.
 */
template <class E>
__device__ static inline void
make_room_for(GraphWalk<E> *graph, uint32_t more)
{
	WalkOf<E> *walk = &graph->walk;

	if (list_make_room(walk, more))
		visit_answers(graph);
}

/* The rows by which duplicates are detected. */
template <class By>
__device__ static inline ComparedRows
compared_rows(const MirrorView &mirror)
{
	return is_coded(By::MEASURE) ? coded_rows(mirror) : stored_rows(mirror);
}

/*
 * Whether a walk whose list is fully expanded continues with another part
 * (equal_rows.cuh): not in reference mode, which keeps duplicates apart from
 * the start, nor with an iteration limit.
 */
template <class By>
__device__ static inline bool
walk_continues(const MirrorView &mirror, GraphWalk<typename By::Listed> *graph,
			   GraphShared *shared, uint32_t *seeded)
{
	const DeviceQuery &asked = shared->asked;

	if (By::MEASURE == MEASURE_EXACT || asked.max_iterations != 0 ||
		!begin_next_part(compared_rows<By>(mirror), &graph->walk, &shared->walk,
						 mirror.rows, ranked_entries(asked.k, asked.ef), seeded))
		return false;
	visit_answers(graph);
	return true;
}

/* The whole walk. */
template <typename T, int TERM, class By>
__device__ static inline void
graph_walk_all(const MirrorView &mirror, const BatchView &batch, const GraphLayout &layout,
			   const MeasuredQuery &query, GraphWalk<typename By::Listed> *graph,
			   GraphShared *shared)
{
	auto *walk = &graph->walk;
	uint32_t seeded = 0;

#pragma unroll 1
	for (;;)
	{
		Parents parents;
		uint32_t total;

		if (!next_round(mirror, shared->asked, &shared->walk, layout.width, walk, &seeded, &parents,
						&total))
		{
			if (!walk_continues<By>(mirror, graph, shared, &seeded))
				return;
			continue;
		}
		if (threadIdx.x == 0)
			shared->admitted = shared->staying = 0;
		make_room_for(graph, total);
		__syncthreads();
		graph_expand<By>(mirror, batch, *graph, shared, query, parents, total);
		__syncthreads();
		if (graph->apart)
			merge_apart<T, TERM>(mirror, graph, shared, query.vector);
		if (shared->walk.part == WALK_DISTINCT && !parents.pivots)
			drop_copies(compared_rows<By>(mirror), walk->list, walk->count, walk->candidates,
						&shared->walk.found[walk->round & 1]);
		merge_candidates(walk, &shared->walk, parents,
						 By::MEASURE == MEASURE_EXACT ? ~0u : walk->ef);
		if constexpr (By::MEASURE == MEASURE_EXACT)
			By::keep(compared_rows<By>(mirror), walk, &shared->walk);
		walk->round++;
	}
}

/*
 * The number of answers within the distance that the list has reached. Any
 * thread, after a barrier.
 */
template <class E>
__device__ static inline uint32_t
count_reached(const GraphWalk<E> &graph)
{
	if (!graph.apart || graph.walk.count < graph.walk.ef)
		return graph.nanswers;
	return sorted_before(graph.answers, graph.nanswers, graph.walk.list[graph.walk.count - 1]);
}

#endif /* GPUANN_CUDA_GRAPH_SEARCH_CUH */
