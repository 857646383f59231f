/*
 * exact_fused_warps.cuh
 *		Shared by the kernels of fused searches (exact_fused.cu,
 *		exact_fused_products.cu): queries, pieces of rows, bounds, exact
 *		measurement.
 */
#ifndef GPUANN_CUDA_EXACT_FUSED_WARPS_CUH
#define GPUANN_CUDA_EXACT_FUSED_WARPS_CUH

#include <string.h>

#include "cuda/exact/exact_fused_end.cuh"
#include "cuda/exact/products.cuh"

#define PAUSE_NS 100u /* ns */
#define SAMPLE_POLLS 200u /* polls for samples, at a fifth of that interval */
#define ALL_TURNS 0xFFFFFFFFu

/* Whether the kernel for G queries multiplies by tensor cores. */
template <int G>
__host__ __device__ constexpr bool
by_products()
{
	return G > FUSED_SUMS;
}

/* A query in shared memory, whose elements are query_step() places apart. */
template <int G>
__device__ static inline float *
query_at(const FusedPlan &plan, const FusedMemory &memory, uint32_t g)
{
	return by_products<G>() ? product_query_at(memory.queries, plan.query_stride, g)
							: (float *) (memory.queries + g * plan.query_stride);
}

template <int G>
__host__ __device__ constexpr uint32_t
query_step()
{
	return by_products<G>() ? PRODUCT_STEP : 1;
}

/* The limit that follows from a bound. */
template <typename T, int TERM, int G>
__device__ static inline Limit
fused_limit(const MirrorView &mirror, double query_norm, Key bound, double error)
{
	return by_products<G>() ? product_limit(mirror.metric, query_norm, bound, error)
							: Cheap<T, TERM>::limit(mirror, query_norm, bound, error);
}

/* A row that a group of lanes samples for a query. */
struct FusedSample
{
	uint32_t row;
	uint32_t query;
	uint32_t number;
	bool active;
};

/*
 * Measure the rows that have passed limits, and append them as candidates.
 * Called by a warp. Each bit of `passed` is a row and a query: row_of(lane,
 * bit, &query) returns the row, counted from that at `at`, which is slot
 * `from`.
 */
template <typename T, int TERM, int G, typename RowOf>
__device__ static inline void
measure_passed_rows(const MirrorView &mirror, const FusedPlan &plan, FusedBlock<G> *block,
					const FusedMemory &memory, const unsigned char *at, uint32_t from,
					uint32_t passed, const RowOf &row_of)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t leaders;

	while ((leaders = __ballot_sync(FULL_WARP, passed != 0)) != 0)
	{
		uint32_t left = leaders;

		for (uint32_t i = 0; i < lane / EXACT_LANES; i++)
			left &= left - 1;

		bool active = left != 0;
		uint32_t leader = active ? (uint32_t) __ffs((int) left) - 1 : 0;
		uint32_t bits = __shfl_sync(FULL_WARP, passed, (int) leader);
		uint32_t g = 0;
		uint32_t measured = active ? row_of(leader, (uint32_t) __ffs((int) bits) - 1, &g) : 0;
		uint32_t slot = from + measured;
		QueryVector query = {query_at<G>(plan, memory, g), block->norm[g], 0};
		bool dead = bit_of(mirror.dead, slot); /* loaded early, used late */
		Key key = WideMeasure<T, TERM, true, query_step<G>()>::key(
			mirror, query, at + (size_t) measured * mirror.stride, slot, active);
		bool wanted = active && !dead && lane % EXACT_LANES == 0 &&
					  key <= *(volatile Key *) &block->bound[g] &&
					  is_beyond(block->asked[g], key, slot);

		if (wanted)
			atomicMin(&plan.table->marks[g][slot & (plan.marks - 1)], (uint32_t) (key >> 32));
		fused_append(plan, block, memory, wanted, g, key, slot);
		if ((uint32_t) __popc(leaders & ((1u << lane) - 1)) < WARP / EXACT_LANES)
			passed &= passed - 1; /* 0 stays 0 */
	}
}

/* Read and write a limit atomically, as one word. */
__device__ static inline void
publish_limit(volatile uint64_t *to, const Limit &limit)
{
	uint64_t bits;

	memcpy(&bits, &limit, sizeof(bits));
	*to = bits;
}

__device__ static inline Limit
published_limit(const volatile uint64_t *from)
{
	uint64_t bits = *from;
	Limit limit;

	memcpy(&limit, &bits, sizeof(limit));
	return limit;
}

/*
 * Load the words with the dead bits of a warp's first piece, one per lane. This
 * must come before the rows: after them it would take as long as filling all
 * rings. Called by a warp.
 */
__device__ static inline uint32_t
load_dead_words(const MirrorView &mirror, const FusedPlan &plan, uint32_t piece)
{
	uint32_t word = piece * plan.rows / 32 + threadIdx.x % WARP;

	return threadIdx.x % WARP < (MAX_ROWS + 31) / 32 && word * 32 < mirror.rows
			   ? *((const volatile uint32_t *) mirror.dead + word)
			   : 0;
}

/*
 * Measure a sampled row of each group of lanes that is active, and set its
 * marks: that of its class, and mark `number` of the block. Called by a warp.
 */
template <typename T, int TERM, int G>
__device__ static inline void
sample_row(const MirrorView &mirror, const FusedPlan &plan, FusedBlock<G> *block,
		   const FusedMemory &memory, const unsigned char *at, uint32_t from,
		   const FusedSample &sample, uint32_t dead)
{
	uint32_t row = sample.active ? sample.row : 0;
	uint32_t g = sample.query;
	QueryVector query = {query_at<G>(plan, memory, g), block->norm[g], 0};
	Key key = WideMeasure<T, TERM, true, query_step<G>()>::key(
		mirror, query, at + (size_t) row * mirror.stride, from + row, sample.active);

	dead = __shfl_sync(FULL_WARP, dead, (from % 32 + row) / 32) >> (from + row) % 32 & 1;
	if (threadIdx.x % EXACT_LANES == 0 && sample.active && dead == 0 &&
		is_beyond(block->asked[g], key, from + row))
	{
		*(volatile uint32_t *) &block->sampled_marks[g][sample.number] = (uint32_t) (key >> 32);
		atomicMin(&plan.table->marks[g][(from + row) & (plan.marks - 1)], (uint32_t) (key >> 32));
	}
}

/* Count a warp that has sampled. Called by a warp. */
template <int G>
__device__ static inline void
samples_end(FusedBlock<G> *block)
{
	if (threadIdx.x % EXACT_LANES == 0)
		__threadfence_block();
	__syncwarp();
	if (threadIdx.x % WARP == 0)
		atomicAdd(&block->sampled_warps, 1u);
}

/* The consecutive pieces of rows of a block. */
struct Pieces
{
	uint32_t first;
	uint32_t end;
};

__device__ static inline Pieces
pieces_of(const MirrorView &mirror, const FusedPlan &plan)
{
	uint32_t pieces = (mirror.rows + plan.rows - 1) / plan.rows;
	uint32_t range = (pieces + gridDim.x - 1) / gridDim.x;
	uint32_t first = blockIdx.x * range < pieces ? blockIdx.x * range : pieces;
	Pieces block = {first, first + range < pieces ? first + range : pieces};

	return block;
}

/* Number of rows in the piece that begins with row `from`. */
__device__ static inline uint32_t
piece_rows(const MirrorView &mirror, const FusedPlan &plan, uint32_t from)
{
	return mirror.rows - from < plan.rows ? mirror.rows - from : plan.rows;
}

/*
 * Widen all queries, so that their elements are loaded together and not one
 * query after the other. Called by all threads.
 */
template <typename T, int G>
__device__ static inline void
widen_queries(const MirrorView &mirror, const FusedPlan &plan, const FusedBlock<G> *block,
			  const FusedMemory &memory, const unsigned char *vectors)
{
	uint32_t each = query_bytes(mirror) / sizeof(float);

#pragma unroll 8
	for (uint32_t i = threadIdx.x; i < G * each; i += blockDim.x)
	{
		uint32_t g = i / each,
				 element = i % each;
		const T *stored = (const T *) (vectors + block->asked[g].vector);

		query_at<G>(plan, memory, g)[element * query_step<G>()] =
			element < mirror.dims ? (float) stored[element] : 0.0f;
	}
}

/* Sum the squared norms of queries, as I10 does. Called by all threads. */
template <int G>
__device__ static inline void
sum_norms(const MirrorView &mirror, const FusedPlan &plan, FusedBlock<G> *block,
		  const FusedMemory &memory)
{
	for (uint32_t first = 0; first < G; first += blockDim.x / EXACT_LANES)
	{
		uint32_t g = first + threadIdx.x / EXACT_LANES;
		const float *query = query_at<G>(plan, memory, g < G ? g : 0);
		double norm = wide_sum<TERM_PRODUCT, query_step<G>(), query_step<G>(), 4>(
			query, query, mirror.dims, g < G);

		if (threadIdx.x % EXACT_LANES == 0 && g < G)
			block->norm[g] = norm;
	}
}

/*
 * Load the queries. Called by all threads. If there are fewer than G, the rest
 * repeats the first.
 */
template <typename T, int TERM, int G>
__device__ static inline void
begin_queries(const MirrorView &mirror, const BatchView &batch, const FusedPlan &plan,
			  const FusedQueries &carried, FusedBlock<G> *block, const FusedMemory &memory)
{
	const unsigned char *vectors = batch.vectors;

	if (threadIdx.x < G)
	{
		uint32_t g = threadIdx.x;
		uint32_t number = g < plan.queries ? g : 0;

		block->asked[g] = plan.carried ? carried.asked[number] : batch.queries[number];
		block->buffered[g] = block->written[g] = block->found[g] = 0;
		block->norm[g] = 0;
		block->bound[g] = NO_KEY;
		publish_limit(&block->limit[g], no_limit());
		block->sampled_warps = block->progress = 0;
		block->taken = plan.dealt;
	}
	for (uint32_t i = threadIdx.x; i < G * MAX_WARPS * samples_of<G>(); i += blockDim.x)
		(&block->sampled_marks[0][0])[i] = 0xFFFFFFFFu;
	if (plan.carried)
	{
		uint32_t *staged = (uint32_t *) memory.candidates;

		for (uint32_t i = threadIdx.x; i < (plan.carried + 3) / 4; i += blockDim.x)
			staged[i] = carried.words[i];
		vectors = memory.candidates;
	}
	__syncthreads();
	if constexpr (by_products<G>())
		widen_queries<T, G>(mirror, plan, block, memory, vectors);
	else
		for (uint32_t g = 0; g < G; g++)
			widen_query(mirror, (const T *) (vectors + block->asked[g].vector),
						query_at<G>(plan, memory, g));
	__syncthreads();
	if (TERM == TERM_PRODUCT || by_products<G>())
	{
		sum_norms(mirror, plan, block, memory);
		__syncthreads();
	}
}

/*
 * Compute the first bound of each query from the samples of the block's own
 * warps, because that of all blocks takes several times as long to arrive.
 * Called by the serving warp. Returns the bound of the query that a lane
 * serves.
 */
template <typename T, int TERM, int G>
__device__ static inline Key
serve_first_bounds(const MirrorView &mirror, const FusedPlan &plan, FusedBlock<G> *block,
				   const Pieces &pieces)
{
	const uint32_t EACH = samples_of<G>();
	uint32_t lane = threadIdx.x % WARP;
	/* number of warps that sample */
	uint32_t warps = plan.served_turns == 0 ? 0 : pieces.end - pieces.first;
	uint32_t seen = 0;
	Key known = NO_KEY;

	warps = warps < plan.warps ? warps : plan.warps;
	for (uint32_t i = 0; i < SAMPLE_POLLS && seen < warps && warps * EACH >= plan.k; i++)
	{
		uint32_t sampled_warps =
			__shfl_sync(FULL_WARP, *(volatile uint32_t *) &block->sampled_warps, 0);

		/*
		 * few samples give a poor bound, and waiting costs nothing while the
		 * rings fill
		 */
		if (sampled_warps == seen || (sampled_warps * EACH < 2 * plan.k && sampled_warps < warps))
		{
			PAUSE(PAUSE_NS / 5);
			continue;
		}
		seen = sampled_warps;
		for (uint32_t g = 0; g < plan.queries; g++)
		{
			Key bound = bound_from_few_marks(block->sampled_marks[g], plan.warps * EACH, plan.k);

			if (lane != g || bound >= known)
				continue;
			known = bound;
			*(volatile Key *) &block->bound[g] = bound;
			publish_limit(&block->limit[g],
						  fused_limit<T, TERM, G>(mirror, block->norm[g], bound, plan.error));
		}
		__syncwarp();
	}
	return known;
}

/*
 * Update a block's bounds while its warps search, and compute bounds from marks
 * if the block is one that does. Called by the serving warp.
 */
template <typename T, int TERM, int G>
__device__ static inline void
serve_bounds(const MirrorView &mirror, const FusedPlan &plan, FusedBlock<G> *block,
			 const FusedMemory &memory, const Pieces &pieces)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t looked = blockIdx.x % plan.queries;
	Key known = NO_KEY;

	/*
	 * with many queries a block's own samples are too few; its warps wait for
	 * bounds from all blocks
	 */
	if (!by_products<G>() || plan.bound_polls == 0)
		known = serve_first_bounds<T, TERM>(mirror, plan, block, pieces);

	while (__ballot_sync(FULL_WARP,
						 *(volatile uint32_t *) &block->progress < plan.served_turns) != 0)
	{
		Key fresh = NO_KEY;

		if (blockIdx.x < plan.mark_readers)
			bound_from_marks(plan.table->marks[looked], plan.marks, plan.k, memory.marks,
							 &plan.table->bounds[looked]);
		if (lane < plan.queries)
			fresh = *(volatile Key *) &plan.table->bounds[lane];
		if (fresh < known)
		{
			known = fresh;
			*(volatile Key *) &block->bound[lane] = fresh;
			publish_limit(&block->limit[lane],
						  fused_limit<T, TERM, G>(mirror, block->norm[lane], fresh, plan.error));
		}
		PAUSE(blockIdx.x < plan.mark_readers ? PAUSE_NS : 3 * PAUSE_NS);
	}
}

/* Wait for a short time until every query has a bound. Called by a warp. */
template <int G>
__device__ static inline void
wait_for_bounds(const FusedPlan &plan, const FusedBlock<G> &block)
{
	uint32_t lane = threadIdx.x % WARP;

	for (uint32_t i = 0; i < plan.bound_polls; i++)
	{
		bool none = lane < plan.queries && *(const volatile Key *) &block.bound[lane] == NO_KEY;

		if (__ballot_sync(FULL_WARP, none) == 0)
			break;
		PAUSE(PAUSE_NS);
	}
}

/*
 * The body of both kernels: one warp serves bounds, the others search pieces.
 * fill(pieces, ring, stage) starts the first fill of a stage of the warp's
 * ring; search(memory, pieces, ring, dead) searches the pieces that arrive.
 */
template <typename T, int TERM, int G, typename Fill, typename Search>
__device__ static inline void
run_fused_block(const MirrorView &mirror, const BatchView &batch, const FusedPlan &plan,
				const FusedQueries &carried, FusedBlock<G> *block, unsigned char *at,
				const Fill &fill, const Search &search)
{
	size_t bytes;
	FusedMemory memory = lay_out(plan, G, at, &bytes);
	uint32_t warp = threadIdx.x / WARP;
	unsigned char *ring = memory.ring + warp * plan.stages * plan.stage_bytes;
	Pieces pieces = pieces_of(mirror, plan);
	uint32_t dead = 0;

	if (warp < plan.warps)
	{
		dead = load_dead_words(mirror, plan, pieces.first + warp);
		ring_init(block->filled[warp], plan.stages);
		fill(pieces, ring, 0);
	}
	begin_queries<T, TERM>(mirror, batch, plan, carried, block, memory);
	/*
	 * after the queries and the first stages were requested, so that these
	 * arrive first
	 */
	for (uint32_t i = 1; warp < plan.warps && i < plan.stages; i++)
		fill(pieces, ring, i);
	__syncwarp();
	if (warp < plan.warps)
		search(memory, pieces, ring, dead);
	else
		serve_bounds<T, TERM>(mirror, plan, block, memory, pieces);
	if (write_candidates(plan, block, memory))
		fused_answer(mirror, batch, plan, block, memory);
}

#endif /* GPUANN_CUDA_EXACT_FUSED_WARPS_CUH */
