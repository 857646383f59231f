/*
 * graph_search_codes.cu
 *		Graph search over codes: one block per query, of two warps with many
 *		queries in flight, of eight or more with few.
 *
 * The algorithm is that of src/engine/search.h, except that it starts from more
 * than the seeds (entry_points.h). In each round the nearest WALK_WIDTH
 * unexpanded slots of the list are expanded: their graph rows are read,
 * unvisited slots are measured by their codes (integers: exact in any order of
 * summation), and those that may enter the list are merged into it by rank.
 * List and rounds have a total order, so an answer depends on query and mirror
 * only, not on the batch or the number of warps. At the end the first live
 * entries of the list are reranked exactly (I10), pending rows are scanned
 * exactly, and the two are merged.
 *
 * Map: grid = queries, block = 32 x warps.
 *		registers	this round's parents, a few rows' partial sums (ROWS loads
 *					of 16 bytes in flight per lane and chunk)
 *		shared		the query as stored and as codes; the list twice (8 bytes an
 *					entry: code distance, slot, expanded), one is merged into
 *					the other; one round's candidates (8 bytes); slots to
 *					measure; the set of slots seen (4 bytes a place, emptied and
 *					refilled from the list when 5/8 full: what has left the list
 *					cannot come back). The answers take the set's place at the
 *					end.
 *		L2, HBM		codes, graph rows, bypassing L1; stored rows of the entries
 *					ranked exactly
 * A round has two barriers, and two more where many candidates are left out
 * before the merge (nearest_candidates.cuh). Every warp finds the parents
 * itself and processes an equal share of their neighbours, from graph row to
 * candidate, without synchronising with the others.
 *
 * Bytes per query: 16 ef + 8 tile + 4 (fresh + 32) + max(4 places, 24 x 2^p +
 * 16 x TILE_EXACT) of shared memory, tile = 8 x degree, fresh = tile with each
 * warp's share rounded up to 32. Reads: expanded x degree x 4, distances x code
 * stride, ranked and pending rows. Bound: latency of a round for few queries;
 * random reads of 32 bytes and more for many. Launched by batch.cu.
 */
#include <math.h>

#include "cuda/graph/answers.cuh"
#include "cuda/graph/equal_rows.cuh"
#include "cuda/graph/nearest_candidates.cuh"

#define MIN_TILE (WALK_MAX_WARPS * WALK_MAX_WIDTH) /* every warp notes its parents in its share
													    * of `fresh` */
#define MIN_PLACES 1024u
#define MAX_SPARE_PLACES 4096u
#define LONG_CODE 512u /* code bytes from which a query that has an SM to itself gets the maximum of
					    * warps */
#define WALK_SHARED_MAX (64u * 1024) /* per query; queries that need more go to graph_search.cu */

/*
 * The whole walk, from the seeds to a fully expanded list. All threads, after a
 * barrier.
 */
template <int TERM, uint32_t TEAM, uint32_t ROWS, bool ROTATED>
__device__ static inline void
walk_all(const MirrorView &mirror, const WalkLayout &layout, const DeviceQuery &asked,
		 const uint4 *query, Walk *walk, WalkShared *shared)
{
	uint32_t seeded = 0;

#pragma unroll 1
	for (;;)
	{
		Parents parents;
		uint32_t total,
			keep = walk->ef;

		if (!next_round(mirror, asked, shared, layout.width, walk, &seeded, &parents, &total))
		{
			if (asked.max_iterations != 0 ||
				!begin_next_part(coded_rows(mirror), walk, shared, mirror.rows,
								 ranked_entries(asked.k, asked.ef), &seeded))
				return;
			continue;
		}
		list_make_room(walk, total);
		codes_expand<TERM, TEAM, ROWS, ROTATED>(mirror, layout, *walk, shared, query, parents,
												total);
		__syncthreads();
		if (shared->part == WALK_DISTINCT && !parents.pivots)
			drop_copies(coded_rows(mirror), walk->list, walk->count, walk->candidates,
						&shared->found[walk->round & 1]);
		if (parents.pivots && layout.width < keep)
			keep = layout.width;
		merge_round(walk, shared, parents, nearest_candidates(layout, *walk, shared, keep));
		walk->round++;
		__syncthreads();
	}
}

/* Lay out a walk and its answers in a block's shared memory. */
__device__ static inline void
codes_lay_out(const WalkLayout &layout, unsigned char *memory, Walk *walk, Answers *answers)
{
	uint32_t share = fresh_share(layout.tile, blockDim.x / WARP);
	unsigned char *at = memory + layout.table;

	walk->list = (Entry *) (memory + layout.list);
	walk->other = (Entry *) (memory + layout.list + layout.list_bytes);
	walk->candidates = (Entry *) (memory + layout.candidates);
	walk->fresh = (uint32_t *) (memory + layout.fresh) + threadIdx.x / WARP * share;
	walk->table = (uint32_t *) at;
	walk->places = layout.places;
	walk->count = walk->measured = walk->forgotten = walk->round = walk->expanded =
		walk->iterations = 0;
	answers->best.now = entries_at(&at, layout.half);
	answers->best.next = entries_at(&at, layout.half);
	answers->found = entries_at(&at, TILE_EXACT);
	answers->gathered = (uint32_t *) at;
}

/* Clear the visited set. All threads; the caller synchronises. */
__device__ static inline void
clear_table(const Walk &walk)
{
	for (uint32_t i = threadIdx.x; i < walk.places / 4; i += blockDim.x)
		((uint4 *) walk.table)[i] = make_uint4(NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT);
}

/*
 * Walks of two warps whose registers an SM has: 16 of 64 registers a thread, or
 * 14 of 72 or 12 of 80 where with fewer more than a few would be spilled.
 */
template <int TERM, uint32_t TEAM, bool ROTATED>
__host__ __device__ constexpr uint32_t
walks_of_sm()
{
	return TEAM == 16 && (ROTATED || TERM == TERM_PRODUCT) ? 12 : ROTATED ? 14 : 16;
}

/* One query per block, from pinned memory to answers in pinned memory. */
template <typename T, int TERM, uint32_t TEAM, uint32_t ROWS, bool ROTATED>
__global__ void
__launch_bounds__(2 * WARP * walks_of_sm<TERM, TEAM, ROTATED>(), 1)
	walk_kernel(const MirrorView mirror, const BatchView batch, const PendingLists pending,
				const WalkLayout layout)
{
	__shared__ WalkShared shared;
	DYNAMIC_SHARED(memory);
	const DeviceQuery &asked = *(const DeviceQuery *) shared.asked;
	QueryVector query;
	Walk walk;
	Answers answers;
	uint32_t scanned;

	for (uint32_t i = threadIdx.x; i < sizeof(DeviceQuery) / 16; i += blockDim.x)
		shared.asked[i] = ((const uint4 *) &batch.queries[blockIdx.x])[i];
	codes_lay_out(layout, memory, &walk, &answers);
	if (!ROTATED)
		clear_table(walk);
	if (threadIdx.x == 0)
	{
		shared.found[0] = shared.found[1] = shared.fresh = shared.bound = shared.most = 0;
		shared.open_from = shared.gathered = 0;
		shared.part = WALK_PLAIN;
	}
	query = load_query<T>(mirror, batch.vectors + (size_t) blockIdx.x * mirror.stride,
						  (float *) memory, &shared.norm);
	walk.ef = walk.room = asked.ef;
	if constexpr (ROTATED)
	{
		/* rotation uses the memory of list and visited set as scratch */
		encode_rotated_query<TERM>(mirror, query.elements, (float *) (memory + layout.list),
								   (signed char *) memory + layout.codes, &walk, &shared);
		clear_table(walk);
		__syncthreads();
	}
	else
		encode_query<TERM>(mirror, query.elements, (signed char *) memory + layout.codes, &walk,
						   &shared);
	walk_all<TERM, TEAM, ROWS, ROTATED>(
		mirror, layout, asked, (const uint4 *) (memory + layout.codes), &walk, &shared);
	rank_exactly<T, TERM, EXACT_LANES>(mirror, asked, query, walk, &answers,
									   ranked_entries(asked.k, asked.ef), &shared);
	if (pending.keys != NULL)
	{
		merge_lists(pending, &answers, &shared);
		scanned = pending.heads[blockIdx.x].pending;
	}
	else
		scanned = merge_pending<T, TERM, false>(mirror, batch, asked, query, &answers, &shared);
	__syncthreads();
	write_answers(mirror, batch, asked, walk, answers.best, scanned, answers.best.count, &shared);
	end_query(batch, gridDim.x);
}

/* --- the host's part ------------------------------------------------------ */

typedef void (*WalkKernel)(const MirrorView, const BatchView, const PendingLists, const WalkLayout);

#define TEAMS 4

/*
 * The kernels for a type and a term, by lanes per row, and for rotated codes.
 */
template <typename T, int TERM>
static WalkKernel
kernel_of_team(int team, bool rotated)
{
	static const WalkKernel kernels[2][TEAMS] = {
		{walk_kernel<T, TERM, 4, 4, false>, walk_kernel<T, TERM, 8, 4, false>,
		 walk_kernel<T, TERM, 16, 2, false>, walk_kernel<T, TERM, 32, 2, false>},
		{walk_kernel<T, TERM, 4, 4, true>, walk_kernel<T, TERM, 8, 4, true>,
		 walk_kernel<T, TERM, 16, 2, true>, walk_kernel<T, TERM, 32, 2, true>}};

	return kernels[rotated][team];
}

static WalkKernel
walk_kernel_of(ElementType type, bool is_square, int team, bool rotated)
{
	if (type == ELEMENT_HALF)
		return is_square ? kernel_of_team<__half, TERM_SQUARE>(team, rotated)
						 : kernel_of_team<__half, TERM_PRODUCT>(team, rotated);
	return is_square ? kernel_of_team<float, TERM_SQUARE>(team, rotated)
					 : kernel_of_team<float, TERM_PRODUCT>(team, rotated);
}

/* Lanes per row: a lane reads one to six chunks of 16 bytes. */
static int
team_of(uint32_t code_stride)
{
	return code_stride <= 64 ? 0 : code_stride <= 256 ? 1 : code_stride <= 1024 ? 2 : 3;
}

/* Lay out a launch's shared memory. */
static WalkLayout
lay_out_walk(const MirrorView *mirror, uint32_t max_k, uint32_t max_ef, uint32_t warps)
{
	WalkLayout layout;
	uint32_t width = TUNED("WIDTH", WALK_WIDTH);
	uint32_t tile = (width * mirror->degree + 31) / 32 * 32;
	uint32_t answers;

	layout.width = width;
	layout.tile = tile < MIN_TILE ? MIN_TILE : tile;
	layout.places = power_of_two(2 * (max_ef + layout.tile));
	layout.places = layout.places < MIN_PLACES ? MIN_PLACES : layout.places;
	/* few queries leave room for a larger table, with fewer collisions */
	if (warps > 2 && layout.places < MAX_SPARE_PLACES)
		layout.places = MAX_SPARE_PLACES;
	layout.places = TUNED("PLACES", layout.places);
	layout.half = power_of_two(ranked_entries(max_k, max_ef));
	layout.half = layout.half < power_of_two(max_k) ? power_of_two(max_k) : layout.half;
	layout.codes = query_bytes(*mirror);
	layout.list = layout.codes + mirror->code_stride;
	layout.list_bytes = (max_ef + 1) / 2 * 2 * (uint32_t) sizeof(Entry);
	layout.candidates = layout.list + 2 * layout.list_bytes;
	layout.fresh = layout.candidates + layout.tile * (uint32_t) sizeof(Entry);
	layout.table = layout.fresh +
				   (warps * fresh_share(layout.tile, warps) + WARP) * (uint32_t) sizeof(uint32_t);
	answers = (uint32_t) (2 * entries_bytes(layout.half) + entries_bytes(TILE_EXACT) +
						  TILE_EXACT * sizeof(uint32_t));
	layout.bytes = layout.places * (uint32_t) sizeof(uint32_t);
	layout.bytes = layout.table + (layout.bytes > answers ? layout.bytes : answers);
	if (mirror->code_scales != NULL && layout.bytes < layout.list + rotating_bytes(mirror))
		layout.bytes = layout.list + rotating_bytes(mirror);
	layout.prefetch = false;
	return layout;
}

bool
walk_takes(const GraphLimits *limits, const MirrorView *mirror, uint32_t k, uint32_t ef)
{
	return mirror->codes != NULL && mirror->metric != METRIC_L1 &&
		   lay_out_walk(mirror, k, ef, WALK_MAX_WARPS).bytes <=
			   at_most(WALK_SHARED_MAX, limits->walk_shared);
}

cudaError_t
walk_prepare(const cudaDeviceProp *device, GraphLimits *limits)
{
	limits->processors = (uint32_t) device->multiProcessorCount;
	limits->walk_shared = (uint32_t) device->sharedMemPerBlockOptin - sizeof(WalkShared) - 64;
	for (int i = 0; i < 8 * TEAMS; i++)
	{
		WalkKernel kernel =
			walk_kernel_of((i & 1) ? ELEMENT_HALF : ELEMENT_FLOAT, (i & 2) != 0, i / 8, (i & 4));
		cudaError_t error = allow_shared(kernel, WALK_SHARED_MAX);

		if (error != cudaSuccess)
			return error;
	}
	return cudaSuccess;
}

cudaError_t
walk_launch(const GraphLaunch *launch, uint32_t in_flight)
{
	const MirrorView *mirror = &launch->mirror;
	uint32_t processors = launch->limits->processors;
	WalkLayout layout;
	WalkKernel kernel =
		walk_kernel_of(launch->type, mirror->metric == METRIC_L2, team_of(mirror->code_stride),
					   mirror->code_scales != NULL);
	uint32_t warps = in_flight <= 2 * processors ? 8 : in_flight <= 4 * processors ? 4 : 2;

	if (in_flight <= processors && mirror->code_stride >= LONG_CODE)
		warps = WALK_MAX_WARPS;
	warps = TUNED("WARPS", warps);
	layout = lay_out_walk(mirror, launch->max_k, launch->max_ef, warps);
	layout.prefetch = TUNED("PREFETCH", warps > 2) != 0;
	LAUNCH(kernel, launch->queries, warps * WARP, layout.bytes, launch->stream, *mirror,
		   launch->batch, launch->pending, layout);
	return cudaGetLastError();
}
