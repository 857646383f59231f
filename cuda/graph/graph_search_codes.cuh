/*
 * graph_search_codes.cuh
 *		The walk itself, on the device: from a query's codes to a list without
 *		unexpanded slots. See graph_search_codes.cu for the map.
 */
#ifndef GPUANN_CUDA_GRAPH_SEARCH_CODES_CUH
#define GPUANN_CUDA_GRAPH_SEARCH_CODES_CUH

#include "cuda/quantizer/rotated.cuh"
#include "cuda/graph/graph_search_codes.h"

typedef unsigned long long Entry; /* distance << 32 | slot << 1 | expanded */
__extension__ typedef unsigned __int128 ExactEntry; /* likewise, distance << 64 */

/*
 * Where things are in shared memory, in bytes from its start; the same for all
 * queries of a launch.
 */
struct WalkLayout
{
	uint32_t codes;
	uint32_t list;
	uint32_t list_bytes; /* of one of the two */
	uint32_t candidates;
	uint32_t fresh;
	uint32_t table; /* and at the end the answers */
	uint32_t bytes;
	uint32_t tile;	 /* slots of one round, at most */
	uint32_t places; /* of the table, a power of two */
	uint32_t half;	 /* entries of one half of the answers */
	uint32_t width;	 /* parents of a round, at most */
	bool prefetch; /* graph rows of candidates: few queries leave bandwidth for it */
};

/* What the threads of a block share besides the large arrays. */
struct WalkShared
{
	uint4 asked[(sizeof(DeviceQuery) + 15) / 16];
	double norm;
	uint32_t found[2]; /* candidates of a round; rounds alternate */
	uint32_t fresh;	   /* slots measured so far */
	uint32_t open_from;
	uint32_t gathered; /* pending rows of a tile; before, copies in the list */
	uint32_t entered;
	uint32_t live;
	uint32_t most; /* of the query's elements, as the bits of a float */
};

/* Parts of a walk; equal_rows.cuh has the rules. */
enum WalkPart
{
	WALK_PLAIN,	   /* as if there were no copies of rows */
	WALK_DISTINCT, /* anew, without copies */
	WALK_COPIES	   /* on from there, with copies of the nearest */
};

/*
 * A walk in progress: what all threads of its block agree on. E is Entry or
 * ExactEntry.
 */
template <class E>
struct WalkOf
{
	E *list;
	E *other;
	E *candidates;
	uint32_t *fresh; /* this warp's slots to measure */
	uint32_t *table;
	uint32_t places;
	uint32_t count;	 /* entries of the list */
	uint32_t ef;
	uint32_t room; /* entries of a full list: ef, but in reference mode */
	WalkPart part;
	uint32_t measured;	/* slots, up to the last round */
	uint32_t forgotten; /* of them, those that the set no longer counts; may wrap */
	uint32_t round;
	uint32_t expanded;
	uint32_t iterations;
	int scale; /* L2: twice the query's steps in steps of the rows */
	float step;	  /* of rotated codes: the query's, */
	float factor; /* and of products the factor of the rows' terms */
};

typedef WalkOf<Entry> Walk;

template <class E>
__device__ static inline uint32_t
slot_of(E entry)
{
	return (uint32_t) entry >> 1;
}

/* The entry of a slot that is not expanded. */
__device__ static inline Entry
entry_of(uint32_t key, uint32_t slot)
{
	return (Entry) key << 32 | (Entry) (slot << 1);
}

__device__ static inline ExactEntry
entry_of(Key key, uint32_t slot)
{
	return (ExactEntry) key << 64 | (ExactEntry) (slot << 1);
}

/* Put a slot into the set of slots seen: true if it was not there. */
template <class E>
__device__ static inline bool
codes_see(const WalkOf<E> &walk, uint32_t slot)
{
	uint32_t at = (slot * 2654435761u) >> 15;
	uint32_t old;

	do
		old = atomicCAS(&walk.table[at++ & (walk.places - 1)], NO_SLOT, slot);
	while (old != NO_SLOT && old != slot);
	return old == NO_SLOT;
}

/*
 * Empty the set and put the list back. All threads, after a barrier; ends with
 * one.
 */
template <class E>
__device__ static inline void
list_refill_set(WalkOf<E> *walk)
{
	for (uint32_t i = threadIdx.x; i < walk->places / 4; i += blockDim.x)
		((uint4 *) walk->table)[i] = make_uint4(NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT);
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < walk->count; i += blockDim.x)
		codes_see(*walk, slot_of(walk->list[i]));
	__syncthreads();
	walk->forgotten = walk->measured - walk->count;
}

/*
 * Make sure that the set has room for `more` slots: refill it if it has not;
 * returns whether it was refilled. All threads, after a barrier; ends with one
 * if it was.
 */
template <class E>
__device__ static inline bool
list_make_room(WalkOf<E> *walk, uint32_t more)
{
	if (walk->measured - walk->forgotten + more <= walk->places / 8 * 5)
		return false;
	list_refill_set(walk);
	return true;
}

/* Bring a graph row nearer that may be needed next. */
__device__ static inline void
prefetch_row(const MirrorView &mirror, uint32_t slot)
{
#if defined(__CUDA_ARCH__)
	const uint32_t *row = mirror.graph + (size_t) slot * mirror.degree;

	asm volatile("prefetch.global.L2 [%0];" ::"l"(row));
	if (mirror.degree > 32)
		asm volatile("prefetch.global.L2 [%0];" ::"l"(row + 32));
#endif
}

/*
 * Offer measured slots (one per lane that has one) to the list: those that may
 * enter become candidates of the round. Whole warps.
 */
template <class E, class K>
__device__ static inline void
codes_offer(const MirrorView &mirror, const WalkOf<E> &walk, WalkShared *shared, bool has, K key,
			uint32_t slot, bool prefetch)
{
	E entry = entry_of(key, slot);
	bool enters = has && (walk.count < walk.room || entry < walk.list[walk.room - 1]);
	uint32_t ballot = __ballot_sync(FULL_WARP, enters);
	uint32_t lane = threadIdx.x % WARP;
	uint32_t place = 0;

	if (ballot == 0)
		return;
	if (lane == 0)
		place = atomicAdd(&shared->found[walk.round & 1], (uint32_t) __popc(ballot));
	place = __shfl_sync(FULL_WARP, place, 0) + (uint32_t) __popc(ballot & ((1u << lane) - 1));
	if (enters)
	{
		walk.candidates[place] = entry;
		if (prefetch)
			prefetch_row(mirror, slot);
	}
}

/* The sum of products of sixteen codes each. */
__device__ static inline int
dot16(const uint4 &a, const uint4 &b, int sum)
{
	sum = __dp4a((int) a.x, (int) b.x, sum);
	sum = __dp4a((int) a.y, (int) b.y, sum);
	sum = __dp4a((int) a.z, (int) b.z, sum);
	return __dp4a((int) a.w, (int) b.w, sum);
}

/*
 * Sums over a team's rows of codes and a query's, in each of its lanes: `add`
 * takes a sum, 16 bytes of a row and the query's. A row may be NULL. Of each
 * row UNROLL chunks a lane are on their way at a time.
 */
template <uint32_t ROWS, uint32_t UNROLL, class Add>
__device__ static inline void
team_sums(const uint4 *const *row, const uint4 *query, uint32_t chunks, uint32_t team, int *sum,
		  const Add &add)
{
#pragma unroll
	for (uint32_t r = 0; r < ROWS; r++)
		sum[r] = 0;
#pragma unroll(UNROLL)
	for (uint32_t chunk = threadIdx.x % WARP % team; chunk < chunks; chunk += team)
	{
		uint4 q = query[chunk];
		uint4 x[ROWS];

#pragma unroll
		for (uint32_t r = 0; r < ROWS; r++)
			x[r] = row[r] != NULL ? __ldcg(row[r] + chunk) : make_uint4(0, 0, 0, 0);
#pragma unroll
		for (uint32_t r = 0; r < ROWS; r++)
			sum[r] = add(sum[r], x[r], q);
	}
#pragma unroll
	for (uint32_t r = 0; r < ROWS; r++)
#pragma unroll
		for (uint32_t distance = team / 2; distance > 0; distance >>= 1)
			sum[r] += __shfl_xor_sync(FULL_WARP, sum[r], (int) distance);
}

/* Of a team's sums, that of its row r. */
template <uint32_t ROWS>
__device__ static inline int
sum_of_row(const int *sum, uint32_t r)
{
	int own = sum[0];

#pragma unroll
	for (uint32_t i = 1; i < ROWS; i++)
		own = r == i ? sum[i] : own;
	return own;
}

/*
 * Measure n slots of walk.fresh (of pivots: numbers), whose codes are at
 * `codes`, one warp: TEAM lanes per row, ROWS rows per team at a time. L2 ranks
 * by rr - 2 qr, the others by -qr, in whole numbers; the offset makes them
 * unsigned. ROTATED: codes have scales, and estimates are floats.
 */
template <int TERM, uint32_t TEAM, uint32_t ROWS, bool ROTATED>
__device__ static inline void
codes_measure(const MirrorView &mirror, const WalkLayout &layout, const Walk &walk,
			  WalkShared *shared, const uint4 *query, const signed char *codes,
			  const float2 *scales, uint32_t n)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t chunks = mirror.code_stride / 16;

	for (uint32_t base = 0; base < n; base += WARP / TEAM * ROWS)
	{
		const uint4 *row[ROWS];
		int sum[ROWS];
		uint32_t first = base + lane / TEAM;
		/* lane r of a team speaks for its row r */
		uint32_t i = first + lane % TEAM * (WARP / TEAM);
		bool has = lane % TEAM < ROWS && i < n;
		float2 scale;

		/* on its way with the codes */
		if (ROTATED)
			scale = has ? __ldcg(scales + walk.fresh[i]) : make_float2(0, 0);
#pragma unroll
		for (uint32_t r = 0; r < ROWS; r++)
		{
			uint32_t j = first + r * (WARP / TEAM);

			row[r] = j < n ? (const uint4 *) (codes + (size_t) walk.fresh[j] * mirror.code_stride)
						   : NULL;
		}
		team_sums<ROWS, TEAM <= 8	 ? 1
						: TEAM == 16 ? 3
									 : 2>(row, query, chunks, TEAM, sum,
										  [&](int before, const uint4 &x, const uint4 &q)
										  {
											  return ROTATED ? dot16(x, q, before)
													 : TERM == TERM_SQUARE
														 ? before + dot16(x, x, 0) -
															   walk.scale * dot16(x, q, 0)
														 : before - dot16(x, q, 0);
										  });

		int own = sum_of_row<ROWS>(sum, lane % TEAM);

		codes_offer(mirror, walk, shared, has,
					ROTATED ? rotated_key<TERM>(walk.step, walk.factor, scale, own)
							: (uint32_t) own ^ 0x80000000u,
					has ? walk.fresh[i] : 0, layout.prefetch);
	}
}

/*
 * This round's parents: lane j of every warp holds the j-th. Seeds and pivots'
 * numbers come as if they were the graph rows of parents.
 */
struct Parents
{
	uint32_t count;
	const uint32_t *row;
	uint32_t place;		/* in the list; NO_SLOT: in none */
	uint32_t open_from; /* behind the last */
	bool pivots;		/* the round is of pivots: each is new, and has codes of its own */
};

/*
 * Choose the nearest unexpanded slots of the list, at most `most`. Every warp
 * comes to the same.
 */
template <class E>
__device__ static inline Parents
choose_parents(const MirrorView &mirror, const WalkOf<E> &walk, uint32_t open_from, uint32_t most)
{
	Parents parents = {0, NULL, NO_SLOT, 0, false};
	uint32_t lane = threadIdx.x % WARP;
	uint32_t chosen = 0;

#pragma unroll 1
	for (uint32_t base = open_from; base < walk.count && chosen < most; base += WARP)
	{
		bool open = base + lane < walk.count && !(walk.list[base + lane] & 1);
		uint32_t ballot = __ballot_sync(FULL_WARP, open);
		uint32_t rank = chosen + (uint32_t) __popc(ballot & ((1u << lane) - 1));

		if (open && rank < most)
			walk.fresh[rank] = base + lane;
		chosen += (uint32_t) __popc(ballot);
	}
	__syncwarp();
	parents.count = chosen < most ? chosen : most;
	if (lane < parents.count)
	{
		parents.place = walk.fresh[lane];
		parents.row = mirror.graph + (size_t) slot_of(walk.list[parents.place]) * mirror.degree;
	}
	parents.open_from = parents.count > 0
							? __shfl_sync(FULL_WARP, parents.place, (int) parents.count - 1) + 1
							: open_from;
	__syncwarp();
	return parents;
}

/* Neighbour i of this round. Whole warps. */
__device__ static inline uint32_t
neighbour(const MirrorView &mirror, const Parents &parents, uint32_t i, bool has)
{
	uint32_t parent = 0;
	const uint32_t *row;

#pragma unroll
	for (uint32_t j = 1; j < WALK_MOST_WIDTH; j++)
		parent += i >= j * mirror.degree;
	row = (const uint32_t *) __shfl_sync(FULL_WARP, (unsigned long long) parents.row, (int) parent);
	return has ? __ldcg(row + (i - parent * mirror.degree)) : NO_SLOT;
}

/*
 * Bring what was not seen before of a round's `total` slots into walk.fresh: of
 * every warp an equal share, returned is how many. source(i, has) is the i-th
 * slot, or what is none; whole warps call it. (look_at has this with the next
 * slots on their way.)
 */
template <class E, class Source>
__device__ static inline uint32_t
gather_fresh(const MirrorView &mirror, const WalkOf<E> &walk, WalkShared *shared, bool pivots,
			 uint32_t total, const Source &source)
{
	uint32_t warps = blockDim.x / WARP;
	uint32_t share = (total + warps - 1) / warps;
	uint32_t from = threadIdx.x / WARP * share;
	uint32_t to = from + share < total ? from + share : total;
	uint32_t lane = threadIdx.x % WARP;
	uint32_t n = 0;

#pragma unroll 1
	for (uint32_t i = from + lane; i - lane < to; i += WARP)
	{
		uint32_t slot = source(i, i < to);
		bool fresh = slot < mirror.rows && (pivots || codes_see(walk, slot));
		uint32_t ballot = __ballot_sync(FULL_WARP, fresh);

		if (fresh)
			walk.fresh[n + (uint32_t) __popc(ballot & ((1u << lane) - 1))] = slot;
		n += (uint32_t) __popc(ballot);
	}
	if (n > 0 && lane == 0)
		atomicAdd(&shared->fresh, n);
	__syncwarp();
	return n;
}

/*
 * Take `total` neighbours from slot numbers to candidates: every warp an equal
 * share.
 */
template <int TERM, uint32_t TEAM, uint32_t ROWS, bool ROTATED>
__device__ static inline void
look_at(const MirrorView &mirror, const WalkLayout &layout, const Walk &walk, WalkShared *shared,
		const uint4 *query, const Parents &parents, uint32_t total)
{
	uint32_t warps = blockDim.x / WARP;
	uint32_t share = (total + warps - 1) / warps;
	uint32_t from = threadIdx.x / WARP * share;
	uint32_t to = from + share < total ? from + share : total;
	uint32_t lane = threadIdx.x % WARP;
	uint32_t n = 0;
	uint32_t slot = neighbour(mirror, parents, from + lane, from + lane < to);

#pragma unroll 1
	for (uint32_t i = from + lane; i - lane < to; i += WARP)
	{
		/* the next ones are on their way meanwhile */
		uint32_t next = neighbour(mirror, parents, i + WARP, i + WARP < to);
		bool fresh = slot < mirror.rows && (parents.pivots || codes_see(walk, slot));
		uint32_t ballot = __ballot_sync(FULL_WARP, fresh);

		if (fresh)
			walk.fresh[n + (uint32_t) __popc(ballot & ((1u << lane) - 1))] = slot;
		n += (uint32_t) __popc(ballot);
		slot = next;
	}
	if (n == 0)
		return;
	if (lane == 0)
		atomicAdd(&shared->fresh, n);
	__syncwarp();
	codes_measure<TERM, TEAM, ROWS, ROTATED>(
		mirror, layout, walk, shared, query, parents.pivots ? mirror.pivot_codes : mirror.codes,
		parents.pivots ? mirror.pivot_scales : mirror.code_scales, n);
	__syncwarp();
}

/*
 * How many of a list's entries are before another entry: eight parts at a time,
 * for the loads of a step do not wait for each other.
 */
__device__ static inline uint32_t
list_before(const Entry *list, uint32_t count, Entry entry)
{
	uint32_t low = 0;

#pragma unroll 1
	while (count > 0)
	{
		uint32_t step = (count + 7) / 8;
		uint32_t before = 0;

#pragma unroll
		for (uint32_t j = 1; j < 8; j++)
			before += j * step <= count && list[low + j * step - 1] < entry;
		low += before * step;
		count -= before * step;
		if (before < 7 && count > step - 1)
			count = step - 1;
	}
	return low;
}

/*
 * Merge the candidates into the list by rank, and mark the parents expanded.
 * All threads, between two barriers.
 */
__device__ static inline void
merge_round(Walk *walk, WalkShared *shared, const Parents &parents)
{
	uint32_t n = shared->found[walk->round & 1];
	uint32_t open_from = parents.open_from;
	uint32_t expanded[WALK_MOST_WIDTH];
	Entry *from = walk->list,
		  *to = walk->other;

	walk->measured = shared->fresh;
	if (threadIdx.x == 0)
		shared->found[(walk->round & 1) ^ 1] = 0;
	if (n == 0)
	{
		if (threadIdx.x < parents.count)
			from[parents.place] |= 1;
		if (threadIdx.x == 0)
			shared->open_from = open_from;
		return;
	}
#pragma unroll
	for (uint32_t j = 0; j < WALK_MOST_WIDTH; j++)
		expanded[j] = __shfl_sync(FULL_WARP, parents.place, (int) j);
#pragma unroll 1
	for (uint32_t i = threadIdx.x; i < walk->count + n; i += blockDim.x)
	{
		bool listed = i < walk->count;
		Entry entry = listed ? from[i] : walk->candidates[i - walk->count];
		uint32_t place = listed ? i : 0;

#pragma unroll 4
		for (uint32_t j = 0; j < n; j++)
			place += walk->candidates[j] < entry;
		if (listed)
		{
#pragma unroll
			for (uint32_t j = 0; j < WALK_MOST_WIDTH; j++)
				entry |= i == expanded[j];
		}
		else
		{
			uint32_t before = list_before(from, walk->count, entry);

			/*
			 * of the nearest candidate: what stands before it stays where it is
			 */
			if (place == 0)
				shared->open_from = before < open_from ? before : open_from;
			place += before;
		}
		if (place < walk->ef)
			to[place] = entry;
	}
	walk->count = walk->count + n < walk->ef ? walk->count + n : walk->ef;
	walk->list = to;
	walk->other = from;
}

/*
 * Lists of the nearest pivots, at most `most`, as if they were the graph rows
 * of parents. Before them the walk's list holds nothing but pivots (their
 * numbers), which are no slots: it is empty afterwards. Every warp comes to the
 * same.
 */
template <class E>
__device__ static inline Parents
choose_lists(const MirrorView &mirror, WalkOf<E> *walk, uint32_t most, uint32_t *total)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t count = walk->count < most ? walk->count : most;
	Parents parents = {0, NULL, NO_SLOT, 0, false};

	if (lane < count)
		parents.row =
			mirror.pivots + mirror.npivots + (size_t) slot_of(walk->list[lane]) * mirror.degree;
	*total = count * mirror.degree;
	walk->count = 0;
	walk->forgotten = walk->measured;
	__syncwarp();
	return parents;
}

/*
 * What a round looks at, *total slots: seeds until all have been, or where
 * there are lists all pivots, then, in one round, the lists of the nearest;
 * then the graph rows of the nearest unexpanded slots; `most` rows or as many
 * seeds at most. *seeded counts seeds or pivots, and one more behind the lists.
 * Returns false where nothing is left. Every warp comes to the same.
 */
template <class E>
__device__ static inline bool
next_round(const MirrorView &mirror, const DeviceQuery &asked, const WalkShared *shared,
		   uint32_t most, WalkOf<E> *walk, uint32_t *seeded, Parents *parents, uint32_t *total)
{
	const bool lists = mirror.npivots > 0 && asked.seeds == ENGINE_SEEDS_TRIED;
	const uint32_t nseeds = lists						  ? mirror.npivots
							: asked.seeds < mirror.nseeds ? asked.seeds
														  : mirror.nseeds;

	if (*seeded < nseeds)
	{
		*parents = {0,
					(lists ? mirror.pivots : mirror.seeds) + *seeded +
						threadIdx.x % WARP * mirror.degree,
					NO_SLOT, 0, lists};
		/* pivots are not in the set */
		if (lists)
			walk->forgotten = walk->measured;
		*total = nseeds - *seeded;
		*total = *total < most * mirror.degree ? *total : most * mirror.degree;
		*seeded += *total;
	}
	else if (lists && *seeded == nseeds)
	{
		*parents = choose_lists(mirror, walk, most, total);
		*seeded += 1;
	}
	else
	{
		uint32_t width = most;

		if (asked.max_iterations != 0 && asked.max_iterations - walk->expanded < width)
			width = asked.max_iterations - walk->expanded;
		*parents = choose_parents(mirror, *walk, shared->open_from, width);
		if (parents->count == 0)
			return false;
		walk->expanded += parents->count;
		walk->iterations++;
		*total = parents->count * mirror.degree;
	}
	return true;
}

/*
 * Make the query's codes, for all warps on the same scale. After a barrier,
 * with shared->most 0; ends with one.
 */
template <int TERM>
__device__ static inline void
encode_query(const MirrorView &mirror, const float *elements, signed char *codes, Walk *walk,
			 WalkShared *shared)
{
	float most = 0,
		  factor = TERM == TERM_SQUARE ? mirror.code_steps : 1;
	int doubled = 1;

	for (uint32_t i = threadIdx.x; i < mirror.dims; i += blockDim.x)
	{
		float value =
			fabsf((elements[i] - (TERM == TERM_SQUARE ? mirror.code_offsets[i] : 0)) * factor);

		most = value > most ? value : most;
	}
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
	{
		float other = __shfl_xor_sync(FULL_WARP, most, (int) distance);

		most = other > most ? other : most;
	}
	/* floats that are not negative have the order of their bits */
	if (threadIdx.x % WARP == 0)
		atomicMax(&shared->most, __float_as_uint(most));
	__syncthreads();
	most = __uint_as_float(shared->most);
	if (TERM == TERM_SQUARE)
	{
		/*
		 * a power of two, so that sums stay whole numbers; bounded, so that
		 * they stay below 2^31
		 */
		while (most > 63.5f * (float) doubled &&
			   (uint64_t) doubled * mirror.dims * 127 * 127 < (1u << 29))
			doubled *= 2;
		factor *= 2.0f / (float) doubled;
	}
	else
		factor = most > 0 ? 127.0f / most : 0;
	walk->scale = doubled;
	for (uint32_t i = threadIdx.x; i < mirror.code_stride; i += blockDim.x)
		codes[i] =
			i < mirror.dims
				? (signed char) code_of(
					  (elements[i] - (TERM == TERM_SQUARE ? mirror.code_offsets[i] : 0)) * factor)
				: (signed char) 0;
	__syncthreads();
}

/*
 * The same where codes are rotated; room: for two rows of floats. The elements
 * stay as they are.
 */
template <int TERM, class E>
__device__ static inline void
encode_rotated_query(const MirrorView &mirror, const float *elements, float *room,
					 signed char *codes, WalkOf<E> *walk, WalkShared *shared)
{
	float *values = room;
	float most = 0,
		  factor;

	for (uint32_t i = threadIdx.x; i < mirror.dims; i += blockDim.x)
		values[i] = elements[i];
	values = rotate<RotatingBlock>(mirror.rotation, mirror.dims, values, room + mirror.dims);
	walk->factor = 1;
	if (TERM != TERM_SQUARE)
	{
		OffsetProducts products;

		/* every warp comes to the same */
		__syncthreads();
		products = offset_products(mirror.code_offsets, values, mirror.dims);
		walk->factor = products.own > 0 ? products.other / products.own : 0;
		__syncthreads();
	}
	for (uint32_t i = threadIdx.x; i < mirror.dims; i += blockDim.x)
	{
		values[i] -= walk->factor * __ldg(mirror.code_offsets + i);
		most = fmaxf(most, rotated_size(values[i]));
	}
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		most = fmaxf(most, __shfl_xor_sync(FULL_WARP, most, (int) distance));
	/* floats that are not negative have the order of their bits */
	if (threadIdx.x % WARP == 0)
		atomicMax(&shared->most, __float_as_uint(most));
	__syncthreads();
	most = __uint_as_float(shared->most);
	factor = rotated_factor(most);
	walk->scale = 1;
	walk->step = rotated_step(most);
	for (uint32_t i = threadIdx.x; i < mirror.code_stride; i += blockDim.x)
		codes[i] = i < mirror.dims && factor > 0 ? (signed char) code_of(values[i] * factor)
												 : (signed char) 0;
	__syncthreads();
}

#endif /* GPUANN_CUDA_GRAPH_SEARCH_CODES_CUH */
