/*
 * graph_search_kernel.cuh
 *		The kernel of the general graph search, a template: graph_search.cu has
 *		the map and the kernels that are shipped, cuda/tests/reference.cu those
 *		of reference mode.
 */
#ifndef GPUANN_CUDA_GRAPH_SEARCH_KERNEL_CUH
#define GPUANN_CUDA_GRAPH_SEARCH_KERNEL_CUH

#include "cuda/graph/graph_search.cuh"

#define GRAPH_THREADS 256u

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
__launch_bounds__(GRAPH_THREADS, By::BLOCKS) graph_search_kernel(const MirrorView mirror,
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
	for (uint32_t i = threadIdx.x; i < graph.walk.places; i += GRAPH_THREADS)
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
	write_answers(mirror, batch, asked, graph.walk, answers.best, scanned, reached, &shared.walk);
	end_query(batch, gridDim.x);
}

typedef void (*GraphKernel)(const MirrorView, const BatchView, const PendingLists,
							const GraphLayout);

/*
 * The kernels of reference mode, for TYPES_AND_TERMS; NULL where none are
 * linked.
 */
extern const GraphKernel *graph_reference_kernels;

#endif /* GPUANN_CUDA_GRAPH_SEARCH_KERNEL_CUH */
