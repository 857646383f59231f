/*
 * graph_search.cuh
 *		The graph search for every kind of query: device routines. See
 *		graph_search.cu for the map.
 *
 * It has the list, the set and the rounds of graph_search_codes.cuh. What
 * differs: what a slot is measured by is a policy; candidates are sorted before
 * they are merged, because lists are long; answers of a query with a bitmap or
 * a bound are kept apart.
 */
#ifndef GPUANN_CUDA_GRAPH_SEARCH_CUH
#define GPUANN_CUDA_GRAPH_SEARCH_CUH

#include "cuda/graph/answers.cuh"
#include "cuda/graph/equal_rows.cuh"

#define CODE_LANES 8u /* that measure a row of codes */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ > 900
#define ROWS_BLOCKS 2 /* of an SM, by stored rows: 80 registers a thread would not do */
#else
#define ROWS_BLOCKS 3
#endif

/* What slots are measured by on the way. */
enum GraphMeasure
{
	MEASURE_CODES = 0,
	MEASURE_ROWS = 1,
	MEASURE_EXACT = 2,
	MEASURE_ROTATED = 3 /* codes too */
};

__host__ __device__ static inline bool
is_coded(GraphMeasure measure)
{
	return measure == MEASURE_CODES || measure == MEASURE_ROTATED;
}

/*
 * Where things are, in bytes from the start of shared memory, or of the query's
 * state.
 */
struct GraphLayout
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
struct GraphShared
{
	WalkShared walk;
	DeviceQuery asked;
	uint32_t admitted; /* of a round */
	uint32_t staying;  /* of these, behind the bound */
};

/* A walk and its answers. */
template <class E>
struct GraphWalk
{
	WalkOf<E> walk;
	E *admitted; /* of a round */
	E *answers;	 /* kept apart */
	E *other_answers;
	uint32_t nanswers;
	bool apart;
};

/* A query as walks measure it. */
struct MeasuredQuery
{
	QueryVector vector;
	const uint4 *codes;
	float step; /* of rotated codes, as the walk's */
	float factor;
};

/*
 * Sort n entries, of a list with room for a power of two of them: few by
 * counting what is before each. All threads, after a barrier; ends with one.
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

		/* what is not behind the bound is there more than once */
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

/* How many of a sorted list's entries are before another. */
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
 * Merge n sorted entries into a list of `count` that keeps `room`; returns how
 * many it has in `to`. All threads; no barrier at the end.
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
				BitCounts counts = {0, 0};

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

/* The same of rotated codes. */
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
 * A measure as a policy: the entries of its lists, which have keys of its
 * width; blocks that an SM is to hold; the lanes that measure a slot; its key,
 * in all of these. Whole warps.
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

/* By stored rows exactly: reference mode. */
template <typename T, int TERM>
struct ByExact
{
	typedef ExactEntry Listed;
	static const GraphMeasure MEASURE = MEASURE_EXACT;
	static const int BLOCKS = ROWS_BLOCKS;

	__device__ static inline uint32_t
	lanes(const MirrorView &)
	{
		return EXACT_TEAM;
	}

	__device__ static inline Key
	key(const MirrorView &mirror, const MeasuredQuery &query, int, bool, uint32_t slot, bool active)
	{
		return exact_key<T, TERM>(mirror, query.vector, slot, active);
	}
};

/* --- a round -------------------------------------------------------------- */

/* Offer a measured slot to the answers kept apart. Whole warps. */
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

/* Measure n slots of this warp's list, or pivots. */
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
		bool speaks = active && lane % lanes == 0;

		codes_offer(mirror, graph.walk, &shared->walk, speaks, key, slot, false);
		if (graph.apart && !pivots)
			offer_apart(mirror, batch, graph, shared, speaks, entry_of(key, slot));
	}
}

/*
 * Take `total` neighbours from slot numbers to candidates: every warp an equal
 * share.
 */
template <class By>
__device__ static inline void
look_at_neighbours(const MirrorView &mirror, const BatchView &batch,
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
 * Leave out of a round's admitted entries those that are not behind the bound,
 * which is exact: so they are measured exactly. They become the greatest entry,
 * and are behind all others when they are sorted. All threads, after a barrier;
 * ends with one.
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
 * Merge a round's admitted entries into the answers kept apart. All threads,
 * after a barrier; ends with one.
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
 * Merge a round's candidates into a list that keeps `room`, and mark the
 * parents expanded. All threads, after a barrier; ends with one.
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
		/* what stands before the nearest newcomer stays where it is */
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

/* Put the answers into a set that was refilled from the list. All threads. */
template <class E>
__device__ static inline void
see_answers(GraphWalk<E> *graph)
{
	for (uint32_t i = threadIdx.x; i < graph->nanswers; i += blockDim.x)
		codes_see(graph->walk, slot_of(graph->answers[i]));
	graph->walk.forgotten -= graph->nanswers;
}

/*
 * Make sure that the set of slots seen has room for `more`, and holds the list
 * and the answers. All threads.
 */
template <class E>
__device__ static inline void
make_room_for(GraphWalk<E> *graph, uint32_t more)
{
	WalkOf<E> *walk = &graph->walk;

	if (list_make_room(walk, more))
		see_answers(graph);
}

/* Note the slot that a search in reference mode expands. */
template <class E>
__device__ static inline void
note_trace(const BatchView &batch, const DeviceQuery &asked, const WalkOf<E> &walk,
		   const Parents &parents)
{
	if (threadIdx.x == 0 && parents.place != NO_SLOT && walk.expanded <= asked.trace_room)
		batch.traces[asked.trace + walk.expanded - 1] = slot_of(walk.list[parents.place]);
}

/* What copies of a row are told by. */
template <class By>
__device__ static inline ComparedRows
compared_rows(const MirrorView &mirror)
{
	return is_coded(By::MEASURE) ? coded_rows(mirror) : stored_rows(mirror);
}

/*
 * Whether a walk that has come to its end goes on (equal_rows.cuh): not in
 * reference mode, which keeps copies apart from the start, nor if the query
 * said when to stop.
 */
template <class By>
__device__ static inline bool
goes_on(const MirrorView &mirror, GraphWalk<typename By::Listed> *graph, GraphShared *shared,
		uint32_t *seeded)
{
	const DeviceQuery &asked = shared->asked;

	if (By::MEASURE == MEASURE_EXACT || asked.max_iterations != 0 ||
		!begin_next_part(compared_rows<By>(mirror), &graph->walk, &shared->walk,
						 ranked_entries(asked.k, asked.ef), seeded))
		return false;
	see_answers(graph);
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
			if (!goes_on<By>(mirror, graph, shared, &seeded))
				return;
			continue;
		}
		if (By::MEASURE == MEASURE_EXACT)
			note_trace(batch, shared->asked, *walk, parents);
		if (threadIdx.x == 0)
			shared->admitted = shared->staying = 0;
		make_room_for(graph, total);
		__syncthreads();
		look_at_neighbours<By>(mirror, batch, *graph, shared, query, parents, total);
		__syncthreads();
		if (graph->apart)
			merge_apart<T, TERM>(mirror, graph, shared, query.vector);
		if (walk->part == WALK_DISTINCT && !parents.pivots)
			drop_copies(compared_rows<By>(mirror), walk->list, walk->count, walk->candidates,
						&shared->walk.found[walk->round & 1]);
		merge_candidates(walk, &shared->walk, parents,
						 By::MEASURE == MEASURE_EXACT ? ~0u : walk->ef);
		if (By::MEASURE == MEASURE_EXACT)
			keep_rows_and_copies(compared_rows<By>(mirror), walk, &shared->walk);
		walk->round++;
	}
}

/*
 * How many answers lie within what the list has reached. Any thread, after a
 * barrier.
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
