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
 *					lists of entry points, as it has not. Only tests have these
 *					kernels (cuda/tests/reference.cu)
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
#include <type_traits>

#include "cuda/graph/graph_search_kernel.cuh"

#define MIN_TILE 256u
#define MIN_PLACES 1024u
#define STATE_SHARED (48u * 1024) /* of one query */

/* Approximate number of neighbours of a round, by measure. */
#define CODES_TILE 512u
#define ROWS_TILE 128u

/* --- the host's part ------------------------------------------------------ */

#define CODES_KERNEL(T, TERM) graph_search_kernel<T, TERM, ByCodes<T, TERM>>
/* rows of bits are their own codes */
#define ROWS_KERNEL(T, TERM) \
	graph_search_kernel<T, TERM, \
						std::conditional_t<TERM == TERM_BITS, ByCodes<T, TERM>, ByRows<T, TERM>>>

/* neither L1 nor bits have rotated codes */
#define ROTATED_KERNEL(T, TERM) \
	graph_search_kernel<T, TERM, \
						std::conditional_t<TERM == TERM_SQUARE || TERM == TERM_PRODUCT, \
										   ByRotated<T, TERM>, ByCodes<T, TERM>>>

/* The kernels of each measure but MEASURE_EXACT. */
static const GraphKernel graph_kernels[MEASURE_EXACT][TYPES_AND_TERMS_COUNT] = {
	TYPES_AND_TERMS(CODES_KERNEL), TYPES_AND_TERMS(ROWS_KERNEL), TYPES_AND_TERMS(ROTATED_KERNEL)};

const GraphKernel *graph_reference_kernels;

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
	cudaError_t error;

	limits->search_shared =
		(uint32_t) device->sharedMemPerBlockOptin - (uint32_t) sizeof(GraphShared) - 64;
	error = allow_shared(graph_kernels, limits->search_shared);
	for (int i = 0; graph_has_reference() && i < TYPES_AND_TERMS_COUNT && error == cudaSuccess; i++)
		error = allow_shared(graph_reference_kernels[i], limits->search_shared);
	return error;
}

bool
graph_has_reference(void)
{
	return graph_reference_kernels != NULL;
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
	const GraphKernel *kernels =
		measure == MEASURE_EXACT ? graph_reference_kernels : graph_kernels[measure];
	GraphKernel kernel = kernels[type_and_term(launch->type, mirror.metric)];

	LAUNCH(kernel, launch->queries, GRAPH_THREADS, bytes, launch->stream, mirror, launch->batch,
		   launch->pending, layout);
	return cudaGetLastError();
}
