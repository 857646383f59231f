/*
 * graph_search_codes.cuh
 *		The walk over codes, device routines: from a query's codes to a list
 *		whose entries are all expanded. See graph_search_codes.cu for the map.
 */
#ifndef GPUANN_CUDA_GRAPH_SEARCH_CODES_CUH
#define GPUANN_CUDA_GRAPH_SEARCH_CODES_CUH

#include "cuda/quantizer/rotated.cuh"
#include "cuda/graph/graph_search_codes.h"

typedef unsigned long long Entry; /* code distance << 32 | slot << 1 | expanded */
__extension__ typedef unsigned __int128 ExactEntry; /* the same with distance << 64 */

/*
 * Layout of shared memory: offsets in bytes, the same for all queries of a
 * launch.
 */
struct WalkLayout
{
	uint32_t codes;
	uint32_t list;
	uint32_t list_bytes; /* of one of its two buffers */
	uint32_t candidates;
	uint32_t fresh;
	uint32_t table; /* visited set; at the end the answers */
	uint32_t bytes;
	uint32_t tile;	 /* maximum number of slots of a round */
	uint32_t places; /* capacity of the visited set, a power of two */
	uint32_t half;	 /* entries of one buffer of the answers */
	uint32_t width;	 /* maximum number of parents of a round */
	bool prefetch; /* prefetch graph rows of candidates: with few queries bandwidth is left for
				    * it */
};

/*
 * Places of a warp in `fresh`: its share of a round, rounded up to WARP.
 */
__host__ __device__ static inline uint32_t
fresh_share(uint32_t tile, uint32_t warps)
{
	return ((tile + warps - 1) / warps + WARP - 1) / WARP * WARP;
}

/* Parts of a walk; see equal_rows.cuh. */
enum WalkPart
{
	WALK_PLAIN,	   /* without regard to duplicates */
	WALK_DISTINCT, /* restarted, excluding duplicates */
	WALK_COPIES	   /* continued, admitting duplicates of the nearest */
};

/* A block's shared variables besides the large arrays. */
struct WalkShared
{
	uint4 asked[(sizeof(DeviceQuery) + 15) / 16];
	double norm;
	uint32_t found[2]; /* number of candidates of a round, alternating: one is reset while the other
					    * is counted */
	uint32_t fresh;	   /* slots measured so far */
	uint32_t bound;	   /* highest key of candidates that are merged; 0 between rounds */
	uint32_t nearest;  /* candidates within the bound */
	uint32_t open_from;
	uint32_t gathered; /* pending rows of a tile; before that, duplicates in the list */
	uint32_t entered;
	uint32_t live;
	uint32_t most; /* maximum of the query's elements, as the bits of a float */
	WalkPart part; /* here and not in registers, which bound how many walks an SM holds */
};

/*
 * State of a walk, the same in all threads of the block. E is Entry or
 * ExactEntry.
 */
template <class E>
struct WalkOf
{
	E *list;
	E *other;
	E *candidates;
	uint32_t *fresh; /* slots that this warp has to measure */
	uint32_t *table;
	uint32_t places;
	uint32_t count;	 /* entries in the list */
	uint32_t ef;
	uint32_t room; /* capacity of the list: ef, except in reference mode */
	uint32_t measured;	/* slots measured up to the last round */
	uint32_t forgotten; /* of these, slots no longer counted in the visited set; may wrap around */
	uint32_t round;
	uint32_t expanded;
	uint32_t iterations;
	int scale; /* L2: twice the ratio of the query's step to the rows' step */
	float step;	  /* rotated codes: step of the query, */
	float factor; /* and for products the factor of the rows' terms */
};

typedef WalkOf<Entry> Walk;

template <class E>
__device__ static inline uint32_t
slot_of(E entry)
{
	return (uint32_t) entry >> 1;
}

/* The entry of an unexpanded slot. */
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

/* Insert a slot into the visited set; returns true if it was not there. */
template <class E>
__device__ static inline bool
visit_slot(const WalkOf<E> &walk, uint32_t slot)
{
	uint32_t at = (slot * 2654435761u) >> 15;
	uint32_t old;

	do
		old = atomicCAS(&walk.table[at++ & (walk.places - 1)], NO_SLOT, slot);
	while (old != NO_SLOT && old != slot);
	return old == NO_SLOT;
}

/*
 * Clear the visited set and insert the list's slots. All threads, after a
 * barrier; ends with one.
 */
template <class E>
__device__ static inline void
list_refill_set(WalkOf<E> *walk)
{
	for (uint32_t i = threadIdx.x; i < walk->places / 4; i += blockDim.x)
		((uint4 *) walk->table)[i] = make_uint4(NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT);
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < walk->count; i += blockDim.x)
		visit_slot(*walk, slot_of(walk->list[i]));
	__syncthreads();
	walk->forgotten = walk->measured - walk->count;
}

/*
 * Make room for `more` slots in the visited set, refilling it at a load of 5/8;
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

/* Prefetch a graph row that may be expanded next. */
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
 * The place behind *count that a lane's entry takes, if it has one; *count, in
 * shared memory, grows by these. Whole warps.
 */
__device__ static inline uint32_t
append_place(uint32_t *count, bool has)
{
	uint32_t ballot = __ballot_sync(FULL_WARP, has);
	uint32_t lane = threadIdx.x % WARP;
	uint32_t place = 0;

	if (ballot == 0)
		return 0;
	if (lane == 0)
		place = atomicAdd(count, (uint32_t) __popc(ballot));
	return __shfl_sync(FULL_WARP, place, 0) + (uint32_t) __popc(ballot & ((1u << lane) - 1));
}

/*
 * Append measured slots, one per lane that has one, that may enter the list to
 * the round's candidates. Whole warps.
 */
template <class E, class K>
__device__ static inline void
codes_offer(const MirrorView &mirror, const WalkOf<E> &walk, WalkShared *shared, bool has, K key,
			uint32_t slot, bool prefetch)
{
	E entry = entry_of(key, slot);
	bool enters = has && (walk.count < walk.room || entry < walk.list[walk.room - 1]);
	uint32_t place = append_place(&shared->found[walk.round & 1], enters);

	if (enters)
	{
		walk.candidates[place] = entry;
		if (prefetch)
			prefetch_row(mirror, slot);
	}
}

/* sum + the products of sixteen pairs of codes. */
__device__ static inline int
dot16(const uint4 &a, const uint4 &b, int sum)
{
	sum = __dp4a((int) a.x, (int) b.x, sum);
	sum = __dp4a((int) a.y, (int) b.y, sum);
	sum = __dp4a((int) a.z, (int) b.z, sum);
	return __dp4a((int) a.w, (int) b.w, sum);
}

/*
 * The sum over one of a team's ROWS rows of codes and a query, in each of the
 * team / ROWS lanes that are the row's: `add` takes a sum, 16 bytes of a row
 * and 16 of the query. UNROLL chunks per row and lane are in flight.
 */
template <uint32_t ROWS, uint32_t UNROLL, class Add>
__device__ static inline int
sum_of_own_row(const uint4 *const *row, const uint4 *query, uint32_t chunks, uint32_t team,
			   const Add &add)
{
	uint32_t lane = threadIdx.x % WARP % team;
	uint32_t distance = team / 2;
	int sum[ROWS];

#pragma unroll
	for (uint32_t r = 0; r < ROWS; r++)
		sum[r] = 0;
#pragma unroll(UNROLL)
	for (uint32_t chunk = lane; chunk < chunks; chunk += team)
	{
		uint4 q = query[chunk];
		uint4 x[ROWS];

#pragma unroll
		for (uint32_t r = 0; r < ROWS; r++)
			x[r] = __ldcg(row[r] + chunk);
#pragma unroll
		for (uint32_t r = 0; r < ROWS; r++)
			sum[r] = add(sum[r], x[r], q);
	}
	/* half of the lanes keep half of the rows, and so on */
#pragma unroll
	for (uint32_t rows = ROWS / 2; rows > 0; rows /= 2, distance /= 2)
#pragma unroll
		for (uint32_t r = 0; r < rows; r++)
		{
			int given = (lane & distance) != 0 ? sum[r] : sum[r + rows];
			int kept = (lane & distance) != 0 ? sum[r + rows] : sum[r];

			sum[r] = kept + __shfl_xor_sync(FULL_WARP, given, (int) distance);
		}
#pragma unroll
	for (; distance > 0; distance /= 2)
		sum[0] += __shfl_xor_sync(FULL_WARP, sum[0], (int) distance);
	return sum[0];
}

/*
 * Repeat the last of n > 0 slots in walk.fresh up to a multiple of WARP: a team
 * measures ROWS rows without asking whether they are there. Whole warps, after
 * a barrier behind the writes of slots.
 */
__device__ static inline void
pad_fresh(const Walk &walk, uint32_t n)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t last = walk.fresh[n - 1];

	if (n % WARP + lane < WARP && n % WARP > 0)
		walk.fresh[n + lane] = last;
	__syncwarp();
}

/*
 * Measure the n slots (or numbers of pivots) in walk.fresh, whose codes are at
 * `codes`, by one warp: TEAM lanes per row, ROWS rows per team at a time. L2
 * orders by rr - 2 qr, other metrics by -qr, in integers; the offset makes them
 * unsigned. ROTATED: codes have scales, and estimates are floats. The slots are
 * padded (pad_fresh).
 */
template <int TERM, uint32_t TEAM, uint32_t ROWS, bool ROTATED>
__device__ static inline void
codes_measure(const MirrorView &mirror, const WalkLayout &layout, const Walk &walk,
			  WalkShared *shared, const uint4 *query, const signed char *codes,
			  const float2 *scales, uint32_t n)
{
	const uint32_t lanes = TEAM / ROWS; /* per row, once summed */
	uint32_t lane = threadIdx.x % WARP;
	uint32_t chunks = mirror.code_stride / 16;
	int scale_down = -walk.scale;

#pragma unroll 1
	for (uint32_t base = 0; base < n; base += WARP / lanes)
	{
		const uint32_t *slots = walk.fresh + base;
		uint32_t slot = slots[lane / lanes];
		bool has = lane % lanes == 0 && base + lane / lanes < n;
		const uint4 *row[ROWS];
		float2 scale;
		int own;

		/* loaded while the codes are in flight */
		if (ROTATED)
			scale = __ldcg(scales + slot);
#pragma unroll
		for (uint32_t r = 0; r < ROWS; r++)
			row[r] = (const uint4 *) (codes + (size_t) slots[lane / TEAM * ROWS + r] *
												  mirror.code_stride);
		own = sum_of_own_row<ROWS, TEAM <= 8 ? 1 : TEAM == 16 ? 3 : 2>(
			row, query, chunks, TEAM,
			[&](int before, const uint4 &x, const uint4 &q)
			{
				return ROTATED ? dot16(x, q, before)
					   : TERM == TERM_SQUARE
						   ? dot16(x, x, before) + scale_down * dot16(x, q, 0)
						   : before - dot16(x, q, 0);
			});
		codes_offer(mirror, walk, shared, has,
					ROTATED ? rotated_key<TERM>(walk.step, walk.factor, scale, own)
							: (uint32_t) own ^ 0x80000000u,
					slot, layout.prefetch);
	}
}

/*
 * Parents of a round: lane j of every warp holds the j-th. Blocks of seeds and
 * numbers of pivots are treated like the graph rows of parents.
 */
struct Parents
{
	uint32_t count;
	const uint32_t *row;
	uint32_t place;		/* index in the list; NO_SLOT: not in the list */
	uint32_t open_from; /* index after the last parent */
	bool pivots;		/* a round of pivots: all are new, and have codes of their own */
};

/*
 * Choose the nearest unexpanded slots of the list, at most `most`. All warps
 * compute the same.
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

/* Neighbour i of a round. Whole warps. */
__device__ static inline uint32_t
neighbour(const MirrorView &mirror, const Parents &parents, uint32_t i, bool has)
{
	uint32_t parent = 0;
	const uint32_t *row;

#pragma unroll
	for (uint32_t j = 1; j < WALK_MAX_WIDTH; j++)
		parent += i >= j * mirror.degree;
	row = (const uint32_t *) __shfl_sync(FULL_WARP, (unsigned long long) parents.row, (int) parent);
	return has ? __ldcg(row + (i - parent * mirror.degree)) : NO_SLOT;
}

/*
 * Gather the unvisited ones of a round's `total` slots in walk.fresh, an equal
 * share per warp; returns the number of this warp. source(i, has) is the i-th
 * slot, or an invalid one; called by whole warps. (codes_expand does the same
 * with the next slots prefetched.)
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
		bool fresh = slot < mirror.rows && (pivots || visit_slot(walk, slot));
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
 * Process `total` neighbours, from slot numbers to candidates: an equal share
 * per warp.
 */
template <int TERM, uint32_t TEAM, uint32_t ROWS, bool ROTATED>
__device__ static inline void
codes_expand(const MirrorView &mirror, const WalkLayout &layout, const Walk &walk,
			 WalkShared *shared, const uint4 *query, const Parents &parents, uint32_t total)
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
		/* load the next slots while these are processed */
		uint32_t next = neighbour(mirror, parents, i + WARP, i + WARP < to);
		bool fresh = slot < mirror.rows && (parents.pivots || visit_slot(walk, slot));
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
	pad_fresh(walk, n);
	codes_measure<TERM, TEAM, ROWS, ROTATED>(
		mirror, layout, walk, shared, query, parents.pivots ? mirror.pivot_codes : mirror.codes,
		parents.pivots ? mirror.pivot_scales : mirror.code_scales, n);
	__syncwarp();
}

/*
 * The number of entries of a list that are before `entry`: an eight-way search,
 * so that the loads of a step are independent.
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

/* Candidates of a round, in shared memory, in any order. */
struct Candidates
{
	const Entry *entries;
	uint32_t count;
};

/*
 * Merge the candidates into the list by rank, and mark the parents expanded.
 * All threads, between two barriers.
 */
__device__ static inline void
merge_round(Walk *walk, WalkShared *shared, const Parents &parents, const Candidates &candidates)
{
	uint32_t n = candidates.count;
	uint32_t open_from = parents.open_from;
	uint32_t expanded[WALK_MAX_WIDTH];
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
	for (uint32_t j = 0; j < WALK_MAX_WIDTH; j++)
		expanded[j] = __shfl_sync(FULL_WARP, parents.place, (int) j);
#pragma unroll 1
	for (uint32_t i = threadIdx.x; i < walk->count + n; i += blockDim.x)
	{
		bool listed = i < walk->count;
		Entry entry = listed ? from[i] : candidates.entries[i - walk->count];
		uint32_t place = listed ? i : 0;

#pragma unroll 4
		for (uint32_t j = 0; j < n; j++)
			place += candidates.entries[j] < entry;
		if (listed)
		{
#pragma unroll
			for (uint32_t j = 0; j < WALK_MAX_WIDTH; j++)
				entry |= i == expanded[j];
		}
		else
		{
			uint32_t before = list_before(from, walk->count, entry);

			/* the nearest candidate: entries before it keep their places */
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
 * The lists of the nearest pivots, at most `most`, as if they were graph rows
 * of parents. Until now the walk's list holds numbers of pivots only, which are
 * not slots; it is emptied. All warps compute the same.
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
 * The slots of the next round, *total of them: seeds until none is left, or,
 * with lists of entry points, all pivots and then, in one round, the lists of
 * the nearest; after that the graph rows of the nearest unexpanded slots. At
 * most `most` rows, or as many seeds. *seeded counts seeds or pivots, plus one
 * for the round of lists. Returns false if nothing is left. All warps compute
 * the same.
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
		/* pivots are not in the visited set */
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
 * Encode the query, with the same scale in all warps. After a barrier, with
 * shared->most 0; ends with one.
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
	/* the bits of non-negative floats order like the floats */
	if (threadIdx.x % WARP == 0)
		atomicMax(&shared->most, __float_as_uint(most));
	__syncthreads();
	most = __uint_as_float(shared->most);
	if (TERM == TERM_SQUARE)
	{
		/*
		 * a power of two, so that sums stay integers; limited, so that they
		 * stay below 2^31
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
 * The same for rotated codes; room: space for two rows of floats. The elements
 * are not changed.
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

		/* all warps compute the same */
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
	/* the bits of non-negative floats order like the floats */
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
