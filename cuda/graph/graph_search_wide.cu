/*
 * graph_search_wide.cu
 *		Graph search over codes for queries with a bitmap or a bound, of long
 *		lists, by L1, and of bits: what graph_search_codes.cu leaves.
 *
 * The routine is that of src/engine/search.h, as in graph_search_codes.cu: per
 * round the nearest unexpanded slots of the list are expanded, as many as the
 * degree allows (WIDE_TILE neighbours), whatever the batch. A query with a
 * bitmap or a bound keeps its answers apart from the list: a slot is tested
 * when it is measured, so what is filtered out routes all the same; the bound
 * is exact, so what may enter the answers is measured exactly before it does.
 * Rows of bits are codes themselves; of L1 codes have one scale and offsets, as
 * of L2.
 *
 * Map: grid = queries, block = 256 threads, a warp an equal share of a round's
 * neighbours.
 *		shared		the query as stored and as codes; one round's candidates,
 *					those admitted (8 bytes each, a power of two), slots to
 *					measure (4)
 *		shared up to STATE_SHARED, else the lane's state
 *					the list twice (8 bytes an entry), with a bitmap or bound
 *					the answers twice, and the set of slots seen (4 bytes a
 *					place, emptied and refilled from both when 5/8 full) in
 *					whose place the ranked answers come at the end
 * Bytes of state: 16 ef (32 ef with answers apart) + max(4 x 2^q, 24 x 2^p + 16
 * x TILE_EXACT), 2^q >= 2 (ef (twice with answers apart) + WIDE_TILE), 2^p >=
 * max(2 k, 32). Reads as graph_search_codes.cu; with a bound also the rows of
 * what is admitted. Bound: latency of a round; candidates are sorted and merged
 * by binary search, about twenty barriers. Launched by batch.cu.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/graph/graph_search_wide.cuh"
#include "cuda/graph/graph_search_wide.h"

#define THREADS 256u
#define WIDE_TILE 512u /* neighbours of a round, about */
#define LEAST_PLACES 1024u
#define RANKED_LEAST 32u
#define STATE_SHARED (48u * 1024) /* of one query */

/* Entries that are ranked exactly. */
__host__ __device__ static inline uint32_t
ranked_entries(uint32_t k, uint32_t ef)
{
	uint32_t n = 2 * k < RANKED_LEAST ? RANKED_LEAST : 2 * k;

	return n < ef ? n : ef;
}

/*
 * Codes of a query by L1: on the rows' scale. Values beyond it are as far from
 * all rows more, so clamping them changes no order.
 */
__device__ static inline void
encode_absolute(const MirrorView &mirror, const float *elements, signed char *codes)
{
	for (uint32_t i = threadIdx.x; i < mirror.code_stride; i += blockDim.x)
		codes[i] =
			i < mirror.dims
				? (signed char) code_of((elements[i] - mirror.code_offsets[i]) * mirror.code_steps)
				: (signed char) 0;
	__syncthreads();
}

/* Lay out a walk and its answers. */
__device__ static inline void
wide_lay_out(const BatchView &batch, const WideLayout &layout, unsigned char *memory,
			 WideWalk *wide, Answers *answers)
{
	uint32_t share = (layout.tile + blockDim.x / WARP - 1) / (blockDim.x / WARP);
	unsigned char *state = layout.state_shared
							   ? memory + layout.shared_bytes
							   : batch.state + (size_t) blockIdx.x * batch.state_stride;
	unsigned char *at = state + layout.table;
	Walk *walk = &wide->walk;

	walk->list = (Entry *) (state + layout.list);
	walk->other = (Entry *) (state + layout.list + layout.list_bytes);
	wide->answers = (Entry *) (state + layout.answers);
	wide->other_answers = (Entry *) (state + layout.answers + layout.list_bytes);
	walk->candidates = (Entry *) (memory + layout.candidates);
	wide->admitted = (Entry *) (memory + layout.admitted);
	walk->fresh = (uint32_t *) (memory + layout.fresh) + threadIdx.x / WARP * share;
	walk->table = (uint32_t *) at;
	walk->places = layout.places;
	walk->count = walk->measured = walk->forgotten = walk->round = walk->expanded =
		walk->iterations = 0;
	walk->scale = 1;
	wide->nanswers = 0;
	answers->best.now = entries_at(&at, layout.half);
	answers->best.next = entries_at(&at, layout.half);
	at = memory + layout.tile_answers;
	answers->found = entries_at(&at, TILE_EXACT);
	answers->gathered = (uint32_t *) at;
}

/* Write answers and counters. */
__device__ static inline void
write_answers(const MirrorView &mirror, const BatchView &batch, const Walk &walk,
			  const BestList &best, uint32_t scanned, uint32_t reached, const WideShared *shared)
{
	write_best(mirror, batch.results + shared->asked.results, best);
	if (threadIdx.x == 0)
	{
		DeviceHead *head = &batch.heads[blockIdx.x];

		head->count = best.count;
		head->traced = 0;
		head->expanded = walk.expanded;
		head->distances = shared->walk.fresh + scanned;
		head->iterations = walk.iterations;
		head->pending = scanned;
		head->reached = reached;
	}
}

template <typename T, int TERM>
__global__ void
__launch_bounds__(THREADS, 2) wide_kernel(const MirrorView mirror, const BatchView batch,
										  const PendingLists pending, const WideLayout layout)
{
	__shared__ WideShared shared;
	DYNAMIC_SHARED(memory);
	const DeviceQuery &asked = shared.asked;
	const uint4 *codes = (const uint4 *) (memory + layout.codes);
	QueryVector query;
	WideWalk wide;
	Answers answers;
	uint32_t scanned,
		reached;

	bring_query(batch, &shared.asked);
	wide_lay_out(batch, layout, memory, &wide, &answers);
	for (uint32_t i = threadIdx.x; i < wide.walk.places; i += THREADS)
		wide.walk.table[i] = NO_SLOT;
	if (threadIdx.x == 0)
	{
		shared.walk.found[0] = shared.walk.found[1] = shared.walk.fresh = shared.walk.most = 0;
		shared.walk.open_from = 0;
	}
	__syncthreads();
	wide.walk.ef = asked.ef;
	wide.apart = asked.has_admitted || asked.has_beyond;
	query =
		load_query<T>(mirror, batch.vectors + asked.vector, (float *) memory, &shared.walk.norm);
	if constexpr (TERM == TERM_ABSOLUTE)
		encode_absolute(mirror, query.elements, (signed char *) memory + layout.codes);
	else if constexpr (TERM != TERM_BITS)
		encode_query<TERM>(mirror, query.elements, (signed char *) memory + layout.codes,
						   &wide.walk, &shared.walk);
	wide_walk_all<T, TERM>(mirror, batch, layout, query, codes, &wide, &shared);
	reached = count_reached(wide);
	rank_wide<T, TERM>(mirror, query, &wide, &answers, ranked_entries(asked.k, asked.ef), &shared);
	if (pending.keys != NULL)
	{
		merge_lists(pending, &answers, &shared.walk);
		scanned = pending.heads[blockIdx.x].pending;
	}
	else
		scanned = merge_pending<T, TERM, true>(mirror, batch, asked, query, &answers, &shared.walk);
	__syncthreads();
	write_answers(mirror, batch, wide.walk, answers.best, scanned, reached, &shared);
	end_query(batch, gridDim.x);
}

/* --- the host's part ------------------------------------------------------ */

typedef void (*WideKernel)(const MirrorView, const BatchView, const PendingLists, const WideLayout);

#define WIDE_KERNEL(T, TERM) wide_kernel<T, TERM>

static const WideKernel wide_kernels[TYPES_AND_TERMS_COUNT] = TYPES_AND_TERMS(WIDE_KERNEL);

static uint32_t shared_most; /* of a block, as wide_prepare was told */
static bool rows_only;		 /* the environment wants stored rows walked */

/* Take `bytes` from *at on, in whole 16. */
static uint32_t
wide_carve(uint32_t *at, size_t bytes)
{
	uint32_t place = *at;

	*at += (uint32_t) round_up(bytes, 16);
	return place;
}

/* Lay out a launch's memory. */
static WideLayout
lay_out_wide(const MirrorView *mirror, uint32_t max_k, uint32_t max_ef, bool apart)
{
	uint32_t width = WIDE_TILE / mirror->degree;
	uint32_t ranked = power_of_two(ranked_entries(max_k, max_ef));
	bool bits = mirror->type == ELEMENT_BIT;
	WideLayout layout;
	uint32_t at = 0;
	size_t places,
		ending;

	layout.width = width < 1 ? 1 : width > WALK_MOST_WIDTH ? WALK_MOST_WIDTH : width;
	layout.tile = (layout.width * mirror->degree + 31) / 32 * 32;
	layout.tile = layout.tile < 256 ? 256 : layout.tile;
	layout.sorted = power_of_two(layout.tile);
	layout.places = power_of_two(2 * (max_ef * (apart ? 2 : 1) + layout.tile));
	layout.places = layout.places < LEAST_PLACES ? LEAST_PLACES : layout.places;
	layout.half = ranked < power_of_two(max_k) ? power_of_two(max_k) : ranked;
	layout.half = layout.half < 2 ? 2 : layout.half;
	/* rows of bits are their own codes, and so is the query */
	layout.codes = wide_carve(&at, query_bytes(*mirror));
	if (!bits)
		layout.codes = wide_carve(&at, mirror->code_stride);
	layout.candidates = wide_carve(&at, layout.sorted * sizeof(Entry));
	layout.admitted = wide_carve(&at, layout.sorted * sizeof(Entry));
	layout.fresh = wide_carve(&at, (layout.tile + WARP) * sizeof(uint32_t));
	layout.tile_answers =
		wide_carve(&at, entries_bytes(TILE_EXACT) + TILE_EXACT * sizeof(uint32_t));
	layout.shared_bytes = at;
	at = 0;
	layout.list_bytes = (uint32_t) round_up(max_ef * sizeof(Entry), 16);
	layout.list = wide_carve(&at, 2 * (size_t) layout.list_bytes);
	layout.answers = apart ? wide_carve(&at, 2 * (size_t) layout.list_bytes) : layout.list;
	places = layout.places * sizeof(uint32_t);
	ending = 2 * entries_bytes(layout.half);
	layout.table = wide_carve(&at, places > ending ? places : ending);
	layout.state_bytes = at;
	layout.state_shared = at <= STATE_SHARED && layout.shared_bytes + at <= shared_most;
	return layout;
}

/* The mirror as this walk sees it. */
static MirrorView
coded_view(const MirrorView *mirror)
{
	MirrorView view = *mirror;

	if (view.type == ELEMENT_BIT)
	{
		view.codes = (const signed char *) view.vectors;
		view.code_stride = view.stride;
	}
	return view;
}

bool
wide_takes(const MirrorView *mirror)
{
	return !rows_only && (mirror->codes != NULL || mirror->type == ELEMENT_BIT) &&
		   lay_out_wide(mirror, 1, 1, true).shared_bytes <= shared_most;
}

size_t
wide_state_bytes(const MirrorView *mirror, uint32_t max_k, uint32_t max_ef, bool apart)
{
	WideLayout layout = lay_out_wide(mirror, max_k, max_ef, apart);

	return layout.state_shared ? 0 : round_up(layout.state_bytes, 256);
}

cudaError_t
wide_prepare(const cudaDeviceProp *device)
{
	const char *wanted = getenv("GPUANN_GRAPH");
	cudaError_t error = cudaSuccess;

	rows_only = wanted != NULL && strcmp(wanted, "rows") == 0;
	shared_most = (uint32_t) device->sharedMemPerBlockOptin - (uint32_t) sizeof(WideShared) - 64;
	for (int i = 0; i < TYPES_AND_TERMS_COUNT && error == cudaSuccess; i++)
		error =
			cudaFuncSetAttribute((const void *) wide_kernels[i],
								 cudaFuncAttributeMaxDynamicSharedMemorySize, (int) shared_most);
	return error;
}

cudaError_t
wide_launch(const GraphLaunch *launch)
{
	MirrorView mirror = coded_view(&launch->mirror);
	WideLayout layout = lay_out_wide(&mirror, launch->max_k, launch->max_ef, launch->any_admitted);
	size_t bytes = layout.shared_bytes + (layout.state_shared ? layout.state_bytes : 0);

	LAUNCH(wide_kernels[type_and_term(launch->type, mirror.metric)], launch->queries, THREADS,
		   bytes, launch->stream, mirror, launch->batch, launch->pending, layout);
	return cudaGetLastError();
}
