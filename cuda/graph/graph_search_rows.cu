/*
 * graph_search_rows.cu
 *		Graph search: one block of 128 threads per query, from seeds to answers
 *		in one launch.
 *
 * The routine is that of src/engine/search.h: one list of ef slots ordered by
 * (distance, slot), the nearest SEARCH_WIDTH unexpanded expanded per round,
 * until none is left. In reference mode one per round, with exact distances:
 * the same sequence as the CPU's. Results depend on the mirror and the query
 * alone: whatever enters the list in one round is sorted first.
 *
 * Where things live
 *		shared		the query in single precision; one round's candidates (a
 *					power of two >= width x degree, at least 256)
 *		shared, or global where it does not fit
 *					the list in two halves of 2^p >= ef entries (12 bytes each);
 *					with a bitmap the same again for the answers; the set of
 *					slots seen: open addressing, 4 bytes a place, at most half
 *					full. When it would be fuller it is emptied and what the
 *					lists hold is put back: a slot that has left the list cannot
 *					return, so forgetting it costs a distance, never an answer.
 *		global		rows, graph rows, norms (read only); answers, counters,
 *					trace (written once)
 *
 * Reads per query: expanded x degree x 4 bytes of graph, distances x row bytes,
 * ef x row bytes for the exact ranking, pending x row bytes. Bound: latency of
 * a round (about ten barriers) for few queries, random row reads for many.
 * Launched by batch.cu.
 */
#include <math.h>

#include "cuda/common/distance.cuh"
#include "cuda/graph/graph_search.h"

#define THREADS 128u
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
#define BLOCKS_LEAST 5 /* per SM: 96 registers a thread */
#else
#define BLOCKS_LEAST 6 /* 80 registers; nothing is spilled in either case */
#endif

/*
 * Largest share of an SM's shared memory that lists and set of one query may
 * take: more go to global memory.
 */
#define STATE_SHARED_MOST (96u * 1024)

/* What the threads of a block share besides the large arrays. */
struct SearchShared
{
	DeviceQuery asked; /* here it takes no registers */
	double norm;
	uint32_t gathered;
	uint32_t entered;
	uint32_t parents[SEARCH_WIDTH];
	uint32_t nparents;
	uint32_t open_from; /* every entry of the list before it is expanded */
	uint32_t reached;	/* answers kept apart that lie within what the list has reached */
};

/* A search in progress: what all threads of its block agree on. */
struct Walk
{
	BestList list;
	BestList answers; /* with a bitmap or a bound only */
	Entries found;	  /* one round's candidates, sorted */
	Entries admitted; /* of them, those that may be answers */
	uint32_t *gathered; /* slots of one round */
	uint32_t room;		/* of these three */
	uint32_t *table;
	uint32_t places;
	uint32_t seen;
	uint32_t expanded;
	uint32_t distances;
	uint32_t iterations;
	uint32_t team;
	bool apart; /* answers are kept apart from the list */
};

/* Candidates of one round. */
__host__ __device__ static inline uint32_t
round_room(uint32_t degree, bool reference)
{
	uint32_t n = power_of_two(degree * (reference ? 1 : SEARCH_WIDTH));

	return n < 256 ? 256 : n;
}

/* Put a slot into the set of slots seen: true if it was not there. */
__device__ static inline bool
rows_see(uint32_t *table, uint32_t places, uint32_t slot)
{
	uint32_t at = (slot * 2654435761u) >> 7;

	for (;; at++)
	{
		uint32_t old = atomicCAS(&table[at & (places - 1)], NO_SLOT, slot);

		if (old == NO_SLOT)
			return true;
		if (old == slot)
			return false;
	}
}

/*
 * Empty the set of slots seen, then put back what the lists hold, if more
 * entries may come than leave it half empty.
 */
__device__ static inline void
rows_make_room(Walk *walk, uint32_t more)
{
	if (walk->seen + more <= walk->places / 2)
		return;
	for (uint32_t i = threadIdx.x; i < walk->places; i += blockDim.x)
		walk->table[i] = NO_SLOT;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < walk->list.count; i += blockDim.x)
		rows_see(walk->table, walk->places, walk->list.now.slot[i] & SLOT_MASK);
	if (walk->apart)
		for (uint32_t i = threadIdx.x; i < walk->answers.count; i += blockDim.x)
			rows_see(walk->table, walk->places, walk->answers.now.slot[i]);
	__syncthreads();
	walk->seen = walk->list.count + (walk->apart ? walk->answers.count : 0);
}

/* Take a slot into this round if it is published and was not seen before. */
__device__ static inline void
rows_gather(const MirrorView &mirror, Walk *walk, SearchShared *shared, uint32_t slot)
{
	if (slot < mirror.rows && rows_see(walk->table, walk->places, slot))
		walk->gathered[atomicAdd(&shared->gathered, 1)] = slot;
}

/* Whether an entry is worth keeping in this round. */
__device__ static inline bool
worth_keeping(const Walk *walk, Key key, uint32_t slot)
{
	return walk->apart || walk->list.takes(key, slot);
}

/*
 * Compute the walking distances of the gathered slots, and keep those that may
 * enter in walk->found, unsorted.
 */
template <typename T, int TERM, bool REFERENCE>
__device__ static inline void
rows_measure(const MirrorView &mirror, const QueryVector &query, Walk *walk, SearchShared *shared)
{
	uint32_t n = shared->gathered;
	uint32_t team = REFERENCE ? EXACT_TEAM : walk->team;
	uint32_t per_warp = WARP / team;
	uint32_t lane = threadIdx.x % WARP;

	for (uint32_t base = threadIdx.x / WARP * per_warp; base < n; base += THREADS / team)
	{
		uint32_t i = base + lane / team;
		bool active = i < n;
		uint32_t slot = active ? walk->gathered[i] : 0;
		Key key;

		if (REFERENCE)
			key = exact_key<T, TERM>(mirror, query, slot, active);
		else
			key = key_of((double) fast_distance<T, TERM>(mirror, query, slot, active, team));
		if (active && lane % team == 0 && worth_keeping(walk, key, slot))
		{
			uint32_t place = atomicAdd(&shared->entered, 1);

			walk->found.key[place] = key;
			walk->found.slot[place] = slot;
		}
	}
	__syncthreads();
}

/* Empty the round. */
__device__ static inline void
rows_begin_round(SearchShared *shared)
{
	__syncthreads();
	if (threadIdx.x == 0)
	{
		shared->gathered = 0;
		shared->entered = 0;
	}
	__syncthreads();
}

/*
 * Replace the fast keys of walk->admitted by exact ones, drop what is not
 * behind the bound or would not enter, and count the rest in shared->entered.
 * The bound is exact: a fast distance may lie on its wrong side.
 */
template <typename T, int TERM>
__device__ static inline void
bound_admitted(const MirrorView &mirror, const DeviceQuery &asked, const QueryVector &query,
			   Walk *walk, SearchShared *shared)
{
	uint32_t n = shared->gathered;
	uint32_t lane = threadIdx.x % WARP;

	for (uint32_t base = threadIdx.x / WARP * (WARP / EXACT_TEAM); base < n;
		 base += THREADS / EXACT_TEAM)
	{
		uint32_t i = base + lane / EXACT_TEAM;
		bool active = i < n;
		uint32_t slot = active ? walk->admitted.slot[i] : 0;
		Key key = exact_key<T, TERM>(mirror, query, slot, active);

		if (active && lane % EXACT_TEAM == 0)
		{
			bool enters = is_beyond(asked, key, slot) && walk->answers.takes(key, slot);

			walk->admitted.key[i] = enters ? key : NO_KEY;
			if (enters)
				atomicAdd(&shared->entered, 1);
		}
	}
	__syncthreads();
}

/*
 * Offer what walk->found holds (n entries) to the answers kept apart. Ends the
 * round: the counts in shared are used up.
 */
template <typename T, int TERM, bool REFERENCE>
__device__ static inline void
offer_answers(const MirrorView &mirror, const BatchView &batch, const DeviceQuery &asked,
			  const QueryVector &query, Walk *walk, SearchShared *shared, uint32_t n)
{
	bool by_fast = !REFERENCE && asked.has_beyond;
	uint32_t sorted,
			 entered;

	rows_begin_round(shared);
	for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
	{
		Key key = walk->found.key[i];
		uint32_t slot = walk->found.slot[i];

		if (may_answer(mirror, batch, asked, slot) &&
			(by_fast || (is_beyond(asked, key, slot) && walk->answers.takes(key, slot))))
		{
			uint32_t place = atomicAdd(&shared->gathered, 1);

			walk->admitted.key[place] = key;
			walk->admitted.slot[place] = slot;
		}
	}
	__syncthreads();
	if (by_fast)
		bound_admitted<T, TERM>(mirror, asked, query, walk, shared);
	entered = by_fast ? shared->entered : shared->gathered;
	sorted = power_of_two(shared->gathered);
	block_fill(walk->admitted, shared->gathered, sorted);
	__syncthreads();
	block_sort(walk->admitted, sorted);
	walk->answers.merge(walk->admitted, entered);
}

/*
 * One round's end: the gathered slots get distances, and enter the list (and
 * the answers).
 */
template <typename T, int TERM, bool REFERENCE>
__device__ static inline void
enter_round(const MirrorView &mirror, const BatchView &batch, const DeviceQuery &asked,
			const QueryVector &query, Walk *walk, SearchShared *shared)
{
	uint32_t n,
			 sorted;

	rows_measure<T, TERM, REFERENCE>(mirror, query, walk, shared);
	walk->distances += shared->gathered;
	walk->seen += shared->gathered;
	n = shared->entered;
	if (n == 0)
		return;
	sorted = power_of_two(n);
	block_fill(walk->found, n, sorted);
	__syncthreads();
	block_sort(walk->found, sorted);
	if (threadIdx.x == 0)
	{
		/* what stands before the nearest newcomer stays where it is */
		uint32_t at = entries_before(walk->list.now, walk->list.count, walk->found.key[0],
									 walk->found.slot[0]);

		if (at < shared->open_from)
			shared->open_from = at;
	}
	walk->list.merge(walk->found, n);
	if (walk->apart)
		offer_answers<T, TERM, REFERENCE>(mirror, batch, asked, query, walk, shared, n);
	__syncthreads();
}

/* Start from the seeds, in rounds. */
template <typename T, int TERM, bool REFERENCE>
__device__ static inline void
enter_seeds(const MirrorView &mirror, const BatchView &batch, const DeviceQuery &asked,
			const QueryVector &query, Walk *walk, SearchShared *shared)
{
	uint32_t nseeds = asked.seeds < mirror.nseeds ? asked.seeds : mirror.nseeds;

	for (uint32_t base = 0; base < nseeds; base += walk->room)
	{
		uint32_t end = nseeds - base < walk->room ? nseeds : base + walk->room;

		rows_begin_round(shared);
		rows_make_room(walk, end - base);
		for (uint32_t i = base + threadIdx.x; i < end; i += blockDim.x)
			rows_gather(mirror, walk, shared, mirror.seeds[i]);
		__syncthreads();
		enter_round<T, TERM, REFERENCE>(mirror, batch, asked, query, walk, shared);
	}
}

/*
 * Choose the nearest unexpanded slots of the list, at most `most`, and mark
 * them. One warp.
 */
__device__ static inline void
choose_parents(Walk *walk, SearchShared *shared, uint32_t most)
{
	const Entries &list = walk->list.now;
	uint32_t chosen = 0;
	uint32_t from = shared->open_from;

	for (uint32_t base = from; base < walk->list.count && chosen < most; base += WARP)
	{
		uint32_t i = base + threadIdx.x;
		bool open = i < walk->list.count && !(list.slot[i] & EXPANDED);
		uint32_t ballot = __ballot_sync(FULL_WARP, open);
		uint32_t rank = chosen + __popc(ballot & ((1u << threadIdx.x) - 1));

		if (open && rank < most)
		{
			shared->parents[rank] = list.slot[i];
			list.slot[i] |= EXPANDED;
			if (rank == 0)
				shared->open_from = i;
		}
		chosen += __popc(ballot);
	}
	if (threadIdx.x == 0)
		shared->nparents = chosen < most ? chosen : most;
	__syncwarp();
}

/*
 * Expand until every slot of the list is expanded, or the query's iterations
 * are used up.
 */
template <typename T, int TERM, bool REFERENCE>
__device__ static inline void
expand_all(const MirrorView &mirror, const BatchView &batch, const DeviceQuery &asked,
		   const QueryVector &query, Walk *walk, SearchShared *shared)
{
	for (;;)
	{
		uint32_t width = REFERENCE ? 1 : SEARCH_WIDTH;
		uint32_t total;

		if (asked.max_iterations != 0 && asked.max_iterations - walk->expanded < width)
			width = asked.max_iterations - walk->expanded;
		rows_begin_round(shared);
		if (threadIdx.x < WARP)
			choose_parents(walk, shared, width);
		__syncthreads();
		if (shared->nparents == 0)
			return;
		total = shared->nparents * mirror.degree;
		if (REFERENCE && threadIdx.x == 0 && walk->expanded < asked.trace_room)
			batch.traces[asked.trace + walk->expanded] = shared->parents[0];
		walk->expanded += shared->nparents;
		walk->iterations++;
		rows_make_room(walk, total);
		for (uint32_t i = threadIdx.x; i < total; i += blockDim.x)
			rows_gather(mirror, walk, shared,
						mirror.graph[(size_t) shared->parents[i / mirror.degree] * mirror.degree +
									 i % mirror.degree]);
		__syncthreads();
		enter_round<T, TERM, REFERENCE>(mirror, batch, asked, query, walk, shared);
	}
}

/*
 * Turn what the walk found into answers: the live entries behind the bound,
 * with exact distances, sorted, in the half that the list uses now. Returns the
 * list.
 */
template <typename T, int TERM, bool REFERENCE>
__device__ static inline BestList
rank_exactly(const MirrorView &mirror, const BatchView &batch, const DeviceQuery &asked,
			 const QueryVector &query, Walk *walk, SearchShared *shared)
{
	BestList best = walk->apart ? walk->answers : walk->list;
	const Entries &entries = best.now;
	uint32_t sorted = power_of_two(best.count);
	uint32_t lane = threadIdx.x % WARP;

	rows_begin_round(shared);
	for (uint32_t base = threadIdx.x / WARP * (WARP / EXACT_TEAM); base < best.count;
		 base += THREADS / EXACT_TEAM)
	{
		uint32_t i = base + lane / EXACT_TEAM;
		bool active = i < best.count;
		uint32_t slot = active ? entries.slot[i] & SLOT_MASK : 0;
		Key key = REFERENCE ? (active ? entries.key[i] : 0)
							: exact_key<T, TERM>(mirror, query, slot, active);

		__syncwarp();
		if (active && lane % EXACT_TEAM == 0)
		{
			bool answer = is_beyond(asked, key, slot) && may_answer(mirror, batch, asked, slot);

			entries.key[i] = answer ? key : NO_KEY;
			entries.slot[i] = answer ? slot : NO_SLOT;
			if (answer)
				atomicAdd(&shared->entered, 1);
		}
	}
	block_fill(entries, best.count, sorted);
	__syncthreads();
	block_sort(entries, sorted);
	best.count = shared->entered < asked.k ? shared->entered : asked.k;
	best.room = asked.k;
	return best;
}

/*
 * Merge what walk->found holds (n entries, unsorted, with exact keys) into the
 * answers, but for those that are in already.
 */
__device__ static inline void
merge_exact(BestList *best, Walk *walk, SearchShared *shared, uint32_t n)
{
	uint32_t sorted = power_of_two(n);

	if (n == 0)
		return;
	block_fill(walk->found, n, sorted);
	__syncthreads();
	block_sort(walk->found, sorted);
	best->merge(walk->found, n);
}

/*
 * How many answers kept apart lie within what the list has reached. One thread,
 * between barriers.
 */
__device__ static inline uint32_t
count_reached(const Walk &walk)
{
	uint32_t last = walk.list.count - 1;

	if (walk.list.count < walk.list.room)
		return walk.answers.count;
	return entries_before(walk.answers.now, walk.answers.count, walk.list.now.key[last],
						  walk.list.now.slot[last] & SLOT_MASK);
}

/* Keep an exactly measured entry for merge_exact. */
__device__ static inline void
keep_exact(const BestList &best, Walk *walk, SearchShared *shared, Key key, uint32_t slot)
{
	uint32_t at;

	if (!best.takes(key, slot))
		return;
	/* a slot that the walk reached too has the same key there */
	at = entries_before(best.now, best.count, key, slot);
	if (at < best.count && best.now.key[at] == key && best.now.slot[at] == slot)
		return;
	at = atomicAdd(&shared->entered, 1);
	walk->found.key[at] = key;
	walk->found.slot[at] = slot;
}

/*
 * Scan the pending rows exactly and merge them into the answers. Returns how
 * many there were.
 */
template <typename T, int TERM>
__device__ static inline uint32_t
merge_pending(const MirrorView &mirror, const BatchView &batch, const DeviceQuery &asked,
			  const QueryVector &query, BestList *best, Walk *walk, SearchShared *shared)
{
	uint32_t scanned = 0;
	uint32_t lane = threadIdx.x % WARP;

	for (uint32_t tile = 0; tile < mirror.npending; tile += walk->room)
	{
		uint32_t end = mirror.npending - tile < walk->room ? mirror.npending : tile + walk->room;

		rows_begin_round(shared);
		for (uint32_t i = tile + threadIdx.x; i < end; i += blockDim.x)
		{
			uint32_t slot = mirror.pending[i];

			if (slot < mirror.rows && may_answer(mirror, batch, asked, slot))
				walk->gathered[atomicAdd(&shared->gathered, 1)] = slot;
		}
		__syncthreads();
		for (uint32_t base = threadIdx.x / WARP * (WARP / EXACT_TEAM); base < shared->gathered;
			 base += THREADS / EXACT_TEAM)
		{
			uint32_t i = base + lane / EXACT_TEAM;
			bool active = i < shared->gathered;
			uint32_t slot = active ? walk->gathered[i] : 0;
			Key key = exact_key<T, TERM>(mirror, query, slot, active);

			if (active && lane % EXACT_TEAM == 0 && is_beyond(asked, key, slot))
				keep_exact(*best, walk, shared, key, slot);
		}
		__syncthreads();
		scanned += shared->gathered;
		merge_exact(best, walk, shared, shared->entered);
	}
	return scanned;
}

/*
 * Merge lists that an exact search of the pending rows made into the answers.
 */
__device__ static inline void
merge_lists(const PendingLists &pending, BestList *best, Walk *walk, SearchShared *shared)
{
	size_t first = (size_t) blockIdx.x * pending.lists * pending.length;
	uint32_t total = pending.lists * pending.length;

	for (uint32_t tile = 0; tile < total; tile += walk->room)
	{
		uint32_t end = total - tile < walk->room ? total : tile + walk->room;

		rows_begin_round(shared);
		for (uint32_t i = tile + threadIdx.x; i < end; i += blockDim.x)
			keep_exact(*best, walk, shared, pending.keys[first + i], pending.slots[first + i]);
		__syncthreads();
		merge_exact(best, walk, shared, shared->entered);
	}
}

/* Lay out a search's memory. */
template <bool REFERENCE>
__device__ static inline void
rows_lay_out(const MirrorView &mirror, const BatchView &batch, const DeviceQuery &asked,
			 unsigned char *at, bool state_shared, Walk *walk)
{
	uint32_t half = power_of_two(asked.ef) < 2 ? 2 : power_of_two(asked.ef);
	uint32_t room = round_room(mirror.degree, REFERENCE);

	walk->room = room;
	walk->found = entries_at(&at, room);
	walk->admitted = entries_at(&at, room);
	walk->gathered = (uint32_t *) at;
	at += (size_t) room * sizeof(uint32_t);
	if (!state_shared)
		at = batch.state + (size_t) blockIdx.x * batch.state_stride;
	walk->apart = asked.has_admitted || asked.has_beyond;
	walk->list.now = entries_at(&at, half);
	walk->list.next = entries_at(&at, half);
	walk->list.count = 0;
	walk->list.room = asked.ef;
	walk->answers = walk->list;
	if (walk->apart)
	{
		walk->answers.now = entries_at(&at, half);
		walk->answers.next = entries_at(&at, half);
	}
	walk->table = (uint32_t *) at;
	walk->places = asked.table;
	walk->seen = 0;
	walk->expanded = walk->distances = walk->iterations = 0;
	walk->team = fast_team(mirror.stride);
}

template <typename T, int TERM, bool REFERENCE>
__global__ void
__launch_bounds__(THREADS, BLOCKS_LEAST)
	graph_search_kernel(const MirrorView mirror, const BatchView batch, const PendingLists pending,
						bool state_shared)
{
	__shared__ SearchShared shared;
	DYNAMIC_SHARED(memory);
	const DeviceQuery &asked = shared.asked;
	QueryVector query;
	Walk walk;
	BestList best;
	uint32_t scanned = 0;

	bring_query(batch, &shared.asked);
	if (threadIdx.x == 0)
		shared.open_from = 0;
	__syncthreads();
	rows_lay_out<REFERENCE>(mirror, batch, asked, memory + query_bytes(mirror), state_shared,
							&walk);
	for (uint32_t i = threadIdx.x; i < walk.places; i += blockDim.x)
		walk.table[i] = NO_SLOT;
	query = load_query<T>(mirror, batch.vectors + asked.vector, (float *) memory, &shared.norm);
	enter_seeds<T, TERM, REFERENCE>(mirror, batch, asked, query, &walk, &shared);
	expand_all<T, TERM, REFERENCE>(mirror, batch, asked, query, &walk, &shared);
	if (threadIdx.x == 0)
		shared.reached = walk.apart ? count_reached(walk) : 0;
	best = rank_exactly<T, TERM, REFERENCE>(mirror, batch, asked, query, &walk, &shared);
	if (pending.keys != NULL)
	{
		merge_lists(pending, &best, &walk, &shared);
		scanned = pending.heads[blockIdx.x].pending;
	}
	else
		scanned = merge_pending<T, TERM>(mirror, batch, asked, query, &best, &walk, &shared);
	__syncthreads();
	write_best(mirror, batch.results + asked.results, best);
	if (threadIdx.x == 0)
	{
		DeviceHead *head = &batch.heads[blockIdx.x];

		head->count = best.count;
		head->traced = REFERENCE ? walk.expanded : 0;
		head->expanded = walk.expanded;
		head->distances = walk.distances + scanned;
		head->iterations = walk.iterations;
		head->pending = scanned;
		head->reached = shared.reached;
	}
	end_query(batch, gridDim.x);
}

typedef void (*GraphKernel)(const MirrorView, const BatchView, const PendingLists, bool);

#define WALK_KERNEL(T, TERM) graph_search_kernel<T, TERM, false>
#define REFERENCE_KERNEL(T, TERM) graph_search_kernel<T, TERM, true>

/* The kernels of both modes. */
static const GraphKernel graph_kernels[2][TYPES_AND_TERMS_COUNT] = {
	TYPES_AND_TERMS(WALK_KERNEL), TYPES_AND_TERMS(REFERENCE_KERNEL)};

/* Shared memory of a block without lists and set. */
static size_t
round_bytes(const MirrorView *mirror, bool reference)
{
	uint32_t room = round_room(mirror->degree, reference);

	return query_bytes(*mirror) + 2 * entries_bytes(room) + (size_t) room * sizeof(uint32_t);
}

size_t
graph_state_bytes(uint32_t ef, uint32_t table, bool admitted)
{
	uint32_t half = power_of_two(ef) < 2 ? 2 : power_of_two(ef);

	return entries_bytes(half) * (admitted ? 4 : 2) + (size_t) table * sizeof(uint32_t);
}

/* Shared memory that one block may have, as graph_search_prepare was told. */
static size_t shared_most;

bool
graph_state_shared(const MirrorView *mirror, size_t state_bytes, bool reference)
{
	return state_bytes <= STATE_SHARED_MOST &&
		   round_bytes(mirror, reference) + state_bytes + sizeof(SearchShared) <= shared_most;
}

uint32_t
graph_table_places(uint32_t ef, uint32_t degree, bool admitted)
{
	uint32_t places = power_of_two(4 * (ef * (admitted ? 2 : 1) + round_room(degree, false)));

	return places < 4096 ? 4096 : places;
}

cudaError_t
graph_search_prepare(size_t shared_room)
{
	shared_most = shared_room;
	for (int i = 0; i < 2 * TYPES_AND_TERMS_COUNT; i++)
	{
		GraphKernel kernel = graph_kernels[i & 1][i / 2];
		cudaError_t error =
			cudaFuncSetAttribute((const void *) kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
								 (int) (shared_room - sizeof(SearchShared) - 64));

		if (error != cudaSuccess)
			return error;
	}
	return cudaSuccess;
}

cudaError_t
graph_search_launch(const GraphLaunch *launch)
{
	size_t state = graph_state_bytes(launch->max_ef, launch->max_table, launch->any_admitted);
	bool state_shared = graph_state_shared(&launch->mirror, state, launch->reference);
	size_t bytes = round_bytes(&launch->mirror, launch->reference) + (state_shared ? state : 0);
	GraphKernel kernel =
		graph_kernels[launch->reference][type_and_term(launch->type, launch->mirror.metric)];

	LAUNCH(kernel, launch->queries, THREADS, bytes, launch->stream, launch->mirror, launch->batch,
		   launch->pending, state_shared);
	return cudaGetLastError();
}
