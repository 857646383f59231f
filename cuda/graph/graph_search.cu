/*
 * graph_search.cu
 *		Graph search for queries that graph_search_codes.cu does not take:
 *		bitmaps, bounds, long lists, L1 and bits over codes; stored rows, where
 *		codes are unsuitable; reference mode.
 *
 * The algorithm is that of src/engine/search.h, as in graph_search_codes.cu: in
 * each round the nearest unexpanded slots of the list are expanded, whatever
 * the batch. The kernel is instantiated for a policy, by which slots are
 * measured:
 *		codes		of one byte an element; of L1 they have one scale and
 *					offsets, as of L2; rows of bits are codes themselves
 *		rows		as stored, in single precision
 *		exact		the distance that ranks answers, in keys of 64 bits: in
 *					reference mode, which expands one slot a round, the same
 *					slots in the same sequence as the CPU engine, and has no
 *					lists of entry points, as it has not
 * A query with a bitmap or a bound (a property of each query of a batch) keeps
 * its answers apart from the list: slots are tested when they are measured, so
 * those filtered out still route the walk; the bound is exact, so slots are
 * measured exactly before they enter the answers.
 *
 * Map: grid = queries, block = 256 threads, a warp an equal share of a round's
 * neighbours.
 *		shared		the query as stored and as codes; one round's candidates,
 *					those admitted (8 bytes each, 16 in reference mode; a power
 *					of two), slots to measure (4)
 *		shared up to STATE_SHARED, else the batch's state
 *					the list twice (8 or 16 bytes an entry), with a bitmap or
 *					bound the answers twice, and the set of slots seen (4 bytes
 *					a place, emptied and refilled from both when 5/8 full: what
 *					has left the list cannot return, so forgetting it costs a
 *					distance, never an answer) in whose place the ranked answers
 *					come at the end
 * Bytes of state: 16 ef (32 ef with answers apart; four times that and a round
 * in reference mode) + max(4 x 2^q, 24 x 2^p), 2^q >= 2 (ef (twice with answers
 * apart or in reference mode) + tile), 2^p >= what is ranked exactly: of codes
 * max(2 k, 32), of rows ef.
 * Reads as graph_search_codes.cu, of rows instead of codes their bytes; with a
 * bound also the rows of what is admitted. Bound: latency of a round;
 * candidates are sorted and merged by binary search. Launched by batch.cu.
 */
#include <math.h>
#include <type_traits>

#include "cuda/graph/graph_search.cuh"

#define THREADS 256u
#define MIN_TILE 256u
#define MIN_PLACES 1024u
#define STATE_SHARED (48u * 1024) /* of one query */

/* Approximate number of neighbours of a round, by measure. */
#define CODES_TILE 512u
#define ROWS_TILE 128u

/* Number of entries that are reranked exactly. */
__host__ __device__ static inline uint32_t
entries_to_rank(GraphMeasure measure, uint32_t k, uint32_t ef)
{
	return is_coded(measure) ? ranked_entries(k, ef) : ef;
}

/*
 * Encode a query for L1, on the rows' scale. An element beyond the range adds
 * the same to the distance of all rows, so clamping it changes no order.
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
template <class E>
__device__ static inline void
graph_lay_out(const BatchView &batch, const GraphLayout &layout, unsigned char *memory,
			  GraphWalk<E> *graph, Answers *answers)
{
	uint32_t share = (layout.tile + blockDim.x / WARP - 1) / (blockDim.x / WARP);
	unsigned char *state = layout.state_shared
							   ? memory + layout.shared_bytes
							   : batch.state + (size_t) blockIdx.x * batch.state_stride;
	unsigned char *at = state + layout.table;
	WalkOf<E> *walk = &graph->walk;

	walk->list = (E *) (state + layout.list);
	walk->other = (E *) (state + layout.list + layout.list_bytes);
	graph->answers = (E *) (state + layout.answers);
	graph->other_answers = (E *) (state + layout.answers + layout.list_bytes);
	walk->candidates = (E *) (memory + layout.candidates);
	graph->admitted = (E *) (memory + layout.admitted);
	walk->fresh = (uint32_t *) (memory + layout.fresh) + threadIdx.x / WARP * share;
	walk->table = (uint32_t *) at;
	walk->places = layout.places;
	walk->count = walk->measured = walk->forgotten = walk->round = walk->expanded =
		walk->iterations = 0;
	walk->scale = 1;
	graph->nanswers = 0;
	answers->best.now = entries_at(&at, layout.half);
	answers->best.next = entries_at(&at, layout.half);
	at = memory + layout.tile_answers;
	answers->found = entries_at(&at, TILE_EXACT);
	answers->gathered = (uint32_t *) at;
}

/* One query per block, from pinned memory to answers in pinned memory. */
template <typename T, int TERM, class By>
__global__ void
__launch_bounds__(THREADS, By::BLOCKS) graph_search_kernel(const MirrorView mirror,
														   const BatchView batch,
														   const PendingLists pending,
														   const GraphLayout layout)
{
	__shared__ GraphShared shared;
	DYNAMIC_SHARED(memory);
	const DeviceQuery &asked = shared.asked;
	signed char *codes = (signed char *) memory + layout.codes;
	MeasuredQuery query;
	GraphWalk<typename By::Listed> graph;
	Answers answers;
	uint32_t scanned,
		reached;

	load_device_query(batch, &shared.asked);
	graph_lay_out(batch, layout, memory, &graph, &answers);
	for (uint32_t i = threadIdx.x; i < graph.walk.places; i += THREADS)
		graph.walk.table[i] = NO_SLOT;
	if (threadIdx.x == 0)
	{
		shared.walk.found[0] = shared.walk.found[1] = shared.walk.fresh = shared.walk.most = 0;
		shared.walk.open_from = shared.walk.gathered = 0;
		shared.walk.part = WALK_PLAIN;
	}
	__syncthreads();
	graph.walk.ef = asked.ef;
	graph.walk.room = By::MEASURE == MEASURE_EXACT ? ~0u : asked.ef;
	graph.apart = asked.has_admitted || asked.has_beyond;
	query.codes = (const uint4 *) codes;
	query.vector =
		load_query<T>(mirror, batch.vectors + asked.vector, (float *) memory, &shared.walk.norm);
	if constexpr (By::MEASURE == MEASURE_ROTATED)
	{
		/* rotation uses the memory of the candidates as scratch */
		encode_rotated_query<TERM>(mirror, query.vector.elements,
								   (float *) (memory + layout.candidates), codes, &graph.walk,
								   &shared.walk);
		query.step = graph.walk.step;
		query.factor = graph.walk.factor;
	}
	else if constexpr (By::MEASURE == MEASURE_CODES && TERM == TERM_ABSOLUTE)
		encode_absolute(mirror, query.vector.elements, codes);
	else if constexpr (By::MEASURE == MEASURE_CODES && TERM != TERM_BITS)
		encode_query<TERM>(mirror, query.vector.elements, codes, &graph.walk, &shared.walk);
	graph_walk_all<T, TERM, By>(mirror, batch, layout, query, &graph, &shared);
	if (By::MEASURE == MEASURE_EXACT && graph.walk.count > graph.walk.ef)
		graph.walk.count = graph.walk.ef;
	reached = count_reached(graph);
	if (graph.apart)
	{
		graph.walk.list = graph.answers;
		graph.walk.other = graph.other_answers;
		graph.walk.count = graph.nanswers;
	}
	rank_exactly<T, TERM, EXACT_TEAM>(mirror, asked, query.vector, graph.walk, &answers,
									  entries_to_rank(By::MEASURE, asked.k, asked.ef),
									  &shared.walk);
	if (pending.keys != NULL)
	{
		merge_lists(pending, &answers, &shared.walk);
		scanned = pending.heads[blockIdx.x].pending;
	}
	else
		scanned = merge_pending<T, TERM, true>(mirror, batch, asked, query.vector, &answers,
											   &shared.walk);
	__syncthreads();
	write_answers(mirror, batch, asked, graph.walk, answers.best, scanned, reached,
				  By::MEASURE == MEASURE_EXACT ? graph.walk.expanded : 0, &shared.walk);
	end_query(batch, gridDim.x);
}

/* --- the host's part ------------------------------------------------------ */

typedef void (*GraphKernel)(const MirrorView, const BatchView, const PendingLists,
							const GraphLayout);

#define CODES_KERNEL(T, TERM) graph_search_kernel<T, TERM, ByCodes<T, TERM>>
#define EXACT_KERNEL(T, TERM) graph_search_kernel<T, TERM, ByExact<T, TERM>>
/* rows of bits are their own codes */
#define ROWS_KERNEL(T, TERM) \
	graph_search_kernel<T, TERM, \
						std::conditional_t<TERM == TERM_BITS, ByCodes<T, TERM>, ByRows<T, TERM>>>

/* neither L1 nor bits have rotated codes */
#define ROTATED_KERNEL(T, TERM) \
	graph_search_kernel<T, TERM, \
						std::conditional_t<TERM == TERM_SQUARE || TERM == TERM_PRODUCT, \
										   ByRotated<T, TERM>, ByCodes<T, TERM>>>

#define MEASURES 4

/* The kernels of each measure. */
static const GraphKernel graph_kernels[MEASURES][TYPES_AND_TERMS_COUNT] = {
	TYPES_AND_TERMS(CODES_KERNEL), TYPES_AND_TERMS(ROWS_KERNEL), TYPES_AND_TERMS(EXACT_KERNEL),
	TYPES_AND_TERMS(ROTATED_KERNEL)};

/* The measure of a mirror's queries. */
static GraphMeasure
graph_measure(const MirrorView *mirror, bool reference)
{
	if (reference)
		return MEASURE_EXACT;
	if (mirror->codes != NULL && mirror->code_scales != NULL)
		return MEASURE_ROTATED;
	return mirror->codes != NULL || mirror->type == ELEMENT_BIT ? MEASURE_CODES : MEASURE_ROWS;
}

/* Graph rows expanded per round. */
static uint32_t
graph_breadth(GraphMeasure measure, uint32_t degree)
{
	uint32_t width = (is_coded(measure) ? CODES_TILE : ROWS_TILE) / degree;

	if (measure == MEASURE_EXACT || width < 1)
		return 1;
	return width < WALK_MAX_WIDTH ? width : WALK_MAX_WIDTH;
}

/* Reserve `bytes`, rounded up to 16, at *at, which advances. */
static uint32_t
graph_carve(uint32_t *at, size_t bytes)
{
	uint32_t place = *at;

	*at += (uint32_t) round_up(bytes, 16);
	return place;
}

/*
 * Lay out a launch's memory. Every supported device has enough shared memory
 * for the longest vectors (MIN_SHARED in device.cu).
 */
static GraphLayout
lay_out_graph(const GraphLimits *limits, const MirrorView *mirror, GraphMeasure measure,
			  uint32_t max_k, uint32_t max_ef, bool apart)
{
	size_t entry = measure == MEASURE_EXACT ? sizeof(ExactEntry) : sizeof(Entry);
	uint32_t ranked = power_of_two(entries_to_rank(measure, max_k, max_ef));
	uint32_t listed = measure == MEASURE_EXACT ? 2 * max_ef : max_ef;
	GraphLayout layout;
	uint32_t at = 0;
	size_t places,
		ending;

	layout.width = graph_breadth(measure, mirror->degree);
	layout.tile = (layout.width * mirror->degree + 31) / 32 * 32;
	layout.tile = layout.tile < MIN_TILE ? MIN_TILE : layout.tile;
	layout.sorted = power_of_two(layout.tile);
	layout.places = power_of_two(2 * (listed + (apart ? max_ef : 0) + layout.tile));
	layout.places = layout.places < MIN_PLACES ? MIN_PLACES : layout.places;
	layout.half = ranked < power_of_two(max_k) ? power_of_two(max_k) : ranked;
	layout.half = layout.half < 2 ? 2 : layout.half;
	/* rows of bits are their own codes, and so is the query */
	layout.codes = graph_carve(&at, query_bytes(*mirror));
	if (is_coded(measure) && mirror->type != ELEMENT_BIT)
		layout.codes = graph_carve(&at, mirror->code_stride);
	layout.candidates = graph_carve(&at, layout.sorted * entry);
	layout.admitted = graph_carve(&at, layout.sorted * entry);
	layout.fresh = graph_carve(&at, (layout.tile + WARP) * sizeof(uint32_t));
	layout.tile_answers =
		graph_carve(&at, entries_bytes(TILE_EXACT) + TILE_EXACT * sizeof(uint32_t));
	if (measure == MEASURE_ROTATED && at < layout.candidates + rotating_bytes(mirror))
		at = (uint32_t) round_up(layout.candidates + rotating_bytes(mirror), 16);
	layout.shared_bytes = at;
	at = 0;
	/* in reference mode the list is cut only after a round was merged */
	layout.list_bytes = (uint32_t) round_up(
		(listed + (measure == MEASURE_EXACT ? layout.tile : 0)) * entry, 16);
	layout.list = graph_carve(&at, 2 * (size_t) layout.list_bytes);
	layout.answers = apart ? graph_carve(&at, 2 * (size_t) layout.list_bytes) : layout.list;
	places = layout.places * sizeof(uint32_t);
	ending = 2 * entries_bytes(layout.half);
	layout.table = graph_carve(&at, places > ending ? places : ending);
	layout.state_bytes = at;
	layout.state_shared = at <= STATE_SHARED && layout.shared_bytes + at <= limits->search_shared;
	return layout;
}

/*
 * The mirror as walks see it: bits are their own codes; pivots have only codes,
 * so other measures start from seeds.
 */
static MirrorView
measured_view(const MirrorView *mirror, GraphMeasure measure)
{
	MirrorView view = *mirror;

	if (!is_coded(measure))
		view.npivots = 0;
	else if (view.type == ELEMENT_BIT)
	{
		view.codes = (const signed char *) view.vectors;
		view.code_stride = view.stride;
	}
	return view;
}

size_t
graph_search_state_bytes(const GraphLimits *limits, const MirrorView *mirror, bool reference,
						 uint32_t max_k, uint32_t max_ef, bool apart)
{
	GraphLayout layout =
		lay_out_graph(limits, mirror, graph_measure(mirror, reference), max_k, max_ef, apart);

	return layout.state_shared ? 0 : round_up(layout.state_bytes, 256);
}

cudaError_t
graph_search_prepare(const cudaDeviceProp *device, GraphLimits *limits)
{
	limits->search_shared =
		(uint32_t) device->sharedMemPerBlockOptin - (uint32_t) sizeof(GraphShared) - 64;
	return allow_shared(graph_kernels, limits->search_shared);
}

cudaError_t
graph_search_launch(const GraphLaunch *launch)
{
	GraphMeasure measure = graph_measure(&launch->mirror, launch->reference);
	MirrorView mirror = measured_view(&launch->mirror, measure);
	GraphLayout layout =
		lay_out_graph(launch->limits, &mirror, measure, launch->max_k, launch->max_ef,
					  launch->any_admitted);
	size_t bytes = layout.shared_bytes + (layout.state_shared ? layout.state_bytes : 0);
	GraphKernel kernel = graph_kernels[measure][type_and_term(launch->type, mirror.metric)];

	LAUNCH(kernel, launch->queries, THREADS, bytes, launch->stream, mirror, launch->batch,
		   launch->pending, layout);
	return cudaGetLastError();
}
