/*
 * exact_fused_products.cu
 *		Exact search of up to sixteen queries over all rows in one kernel
 *		launch: the fused search (exact_fused.cu), with products of rows and
 *		queries by tensor cores in place of sums.
 *
 * exact_products_kernel
 *     grid    one block per SM; up to 11 warps that read rows, and one that
 *             serves bounds
 *     work    As exact_fused_kernel. A warp multiplies 16 rows of a stage by 16
 *             queries (products.cuh). Rows of more than 512 bytes come in
 *             chunks: a stage has one of 16 rows, and sums stay in registers
 *             until the last.
 *     shared  rings, whose stages end with the norms of their rows; queries;
 *             candidates, k + 192 per query
 *     global  rows and norms, once; rows in chunks once more if they pass
 *     bound   memory
 *
 * Bounds. As in exact_fused.cu, but warps wait until the samples of all blocks
 * have given one: a block's own, one per warp and query, are too few.
 */
#include "cuda/exact/exact_fused_warps.cuh"
#include "cuda/exact/products.cuh"

#define FROM_QUERIES 5u /* with fewer, sums are as fast */
#define STAGE_BYTES 8192u
#define CHUNK (STAGE_BYTES / PRODUCT_ROWS) /* of longer rows */
#define MIN_STAGES 2u
#define POLLS 400u /* for bounds, before rows are measured without */

/*
 * From sm_90 on, where stages are filled by several copies. For older
 * architectures the kernel is empty, and nothing below is compiled, because
 * unused functions cause warnings.
 */
#if defined(EMULATED) || !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define HAS_COPIES
#endif

#ifdef HAS_COPIES

/* Values of the rows of a lane's products. */
struct ProductSides
{
	RowSide side[PRODUCT_ROWS / 8][2];
};

/*
 * Each lane computes the values of one row and shares them. Called by a warp.
 */
__device__ static inline ProductSides
product_sides(Metric metric, const double *norms)
{
	uint32_t lane = threadIdx.x % WARP;
	RowSide own = row_side(metric, norms[lane % PRODUCT_ROWS]);
	ProductSides sides;

#pragma unroll
	for (uint32_t i = 0; i < PRODUCT_ROWS / 4; i++)
	{
		uint32_t row = product_row(lane, i / 2, i % 2);

		sides.side[i / 2][i % 2].length = __shfl_sync(FULL_WARP, own.length, row);
		sides.side[i / 2][i % 2].height = __shfl_sync(FULL_WARP, own.height, row);
	}
	return sides;
}

/*
 * Find the row nearest by products to each of a lane's two queries, among
 * `rows` of the group; NO_SLOT if there is none. Called by a warp.
 */
__device__ static inline void
nearest_by_products(const MirrorView &mirror, const Products &sums, const ProductSides &sides,
					uint32_t rows, uint32_t (&nearest)[2])
{
	uint32_t lane = threadIdx.x % WARP;

#pragma unroll
	for (uint32_t h = 0; h < 2; h++)
	{
		float score = HUGE_VALF;

		nearest[h] = NO_SLOT;
#pragma unroll
		for (uint32_t i = 0; i < PRODUCT_ROWS / 4; i++)
		{
			const RowSide &side = sides.side[i / 2][i % 2];
			uint32_t row = product_row(lane, i / 2, i % 2);
			float product = sums.whole[i / 2][h * 2 + i % 2];
			float its = mirror.metric == METRIC_COSINE ? -product / side.length
													   : side.height - product;

			if (row < rows && (nearest[h] == NO_SLOT || its < score))
			{
				nearest[h] = row;
				score = its;
			}
		}
		for (uint32_t distance = 1; distance < 4; distance <<= 1)
		{
			float other = __shfl_xor_sync(FULL_WARP, score, distance);
			uint32_t row = __shfl_xor_sync(FULL_WARP, nearest[h], distance);

			if (row != NO_SLOT && (nearest[h] == NO_SLOT || other < score ||
								   (other == score && row < nearest[h])))
			{
				score = other;
				nearest[h] = row;
			}
		}
	}
}

/*
 * Measure the row nearest to each query, and set its marks, so that there is a
 * bound before rows are filtered. Called by a warp; `dead` is the result of
 * load_dead_words().
 */
template <typename T, int TERM, int G>
__device__ static inline void
sample_group(const MirrorView &mirror, const FusedPlan &plan, FusedBlock<G> *block,
			 const FusedMemory &memory, const uint32_t (&nearest)[2], const unsigned char *at,
			 uint32_t from, uint32_t dead)
{
#pragma unroll
	for (uint32_t first = 0; first < G; first += MEASURED)
	{
		uint32_t query = first + threadIdx.x % WARP / EXACT_LANES;
		uint32_t row = __shfl_sync(FULL_WARP, nearest[first / 8], query % 8 * 4);
		FusedSample sample = {row, query, threadIdx.x / WARP,
							  query < plan.queries && row != NO_SLOT};

		sample_row<T, TERM>(mirror, plan, block, memory, at, from, sample, dead);
	}
	samples_end(block);
}

/*
 * Measure the rows of a group that pass the limits. Called by a warp; the first
 * of `rows` rows is at `at`, and slot `from`.
 */
template <typename T, int TERM, int G>
__device__ static inline void
filter_products(const MirrorView &mirror, const FusedPlan &plan, FusedBlock<G> *block,
				const FusedMemory &memory, const Products &sums, const ProductSides &sides,
				const unsigned char *at, uint32_t from, uint32_t rows)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t passed = 0;

#pragma unroll
	for (uint32_t h = 0; h < 2; h++)
	{
		uint32_t query = product_query(lane, h);
		Limit limit = published_limit(&block->limit[query]);

#pragma unroll
		for (uint32_t i = 0; i < PRODUCT_ROWS / 4; i++)
		{
			uint32_t n = i / 2,
					 c = i % 2;

			if (query < plan.queries && product_row(lane, n, c) < rows &&
				product_passes(limit, sides.side[n][c],
							   sums.whole[n][h * 2 + c] + sums.rest[n][h * 2 + c]))
				passed |= 1u << (n * 4 + h * 2 + c);
		}
	}
	if (__ballot_sync(FULL_WARP, passed != 0) != 0)
		measure_passed_rows<T, TERM>(mirror, plan, block, memory, at, from, passed,
									 [](uint32_t leader, uint32_t bit, uint32_t *query) {
										 *query = product_query(leader, bit / 2 % 2);
										 return product_row(leader, bit / 4, bit % 2);
									 });
}

/* A group of rows that a warp has multiplied. */
struct ProductGroup
{
	const unsigned char *at; /* the first row, */
	const double *norms;
	uint32_t from;			 /* and its slot */
	uint32_t rows;
	bool first; /* of the warp's */
};

/*
 * Measure those of a group's rows that may be among the best, and clear the
 * products. Called by a warp.
 */
template <typename T, int TERM, int G>
__device__ static inline void
end_group(const MirrorView &mirror, const FusedPlan &plan, FusedBlock<G> *block,
		  const FusedMemory &memory, const ProductGroup &group, uint32_t dead, Products *sums)
{
	ProductSides sides = product_sides(mirror.metric, group.norms);

	if (group.first && plan.served_turns > 0)
	{
		uint32_t nearest[2];

		nearest_by_products(mirror, *sums, sides, group.rows, nearest);
		sample_group<T, TERM>(mirror, plan, block, memory, nearest, group.at, group.from, dead);
	}
	if (group.first)
		wait_for_bounds(plan, *block);
	filter_products<T, TERM>(mirror, plan, block, memory, *sums, sides, group.at, group.from,
							 group.rows);
	memset(sums, 0, sizeof(*sums));
}

/* Position of the next copy of a warp. */
struct ProductsFeed
{
	uint32_t piece;
	uint32_t chunk;
};

/*
 * Start filling a stage with the next chunk of a piece, or with the first of
 * the block's next free piece. Called by a warp.
 */
template <int G>
__device__ static inline void
feed_stage(const MirrorView &mirror, const FusedPlan &plan, FusedBlock<G> *block,
		   const Pieces &pieces, unsigned char *ring, uint32_t stage, ProductsFeed *feed)
{
	uint32_t warp = threadIdx.x / WARP,
			 lane = threadIdx.x % WARP;
	uint64_t *filled = &block->filled[warp][stage];
	unsigned char *to = ring + stage * plan.stage_bytes;

	if (feed->chunk == plan.chunks)
	{
		uint32_t number = lane == 0 ? atomicAdd(&block->taken, 1u) : 0;

		feed->piece = pieces.first + __shfl_sync(FULL_WARP, number, 0);
		feed->chunk = 0;
	}
	if (lane == 0)
		block->piece[warp][stage] = feed->piece < pieces.end ? feed->piece : NO_PIECE;
	if (feed->piece < pieces.end)
	{
		uint32_t from = feed->piece * plan.rows;
		uint32_t rows = piece_rows(mirror, plan, from);
		const unsigned char *vectors =
			mirror.vectors + (size_t) from * mirror.stride + feed->chunk * plan.chunk;
		uint32_t left = mirror.stride - feed->chunk * plan.chunk;
		uint32_t bytes = left < plan.chunk ? left : plan.chunk;
		/* copies are of 16 bytes and more; memory is mapped in larger units */
		uint32_t norms = feed->chunk + 1 == plan.chunks ? (rows + 1) / 2 * TILE_UNIT : 0;

		if (lane == 0)
			ring_expect(filled, rows * bytes + norms);
		__syncwarp();
		if (plan.chunks == 1 && lane == 0)
			ring_copy(filled, to, vectors, rows * bytes);
		if (plan.chunks > 1 && lane < rows)
			ring_copy(filled, to + lane * plan.chunk, vectors + (size_t) lane * mirror.stride,
					  bytes);
		if (norms > 0 && lane == 0)
			ring_copy(filled, to + plan.rows * plan.chunk, mirror.norms + from, norms);
	}
	feed->chunk++;
}

/*
 * Search the pieces of a warp, and append what it finds to the block's
 * candidates. The first stages of `feed` are being filled.
 */
template <typename T, int TERM, int G>
__device__ static inline void
search_products(const MirrorView &mirror, const FusedPlan &plan, FusedBlock<G> *block,
				const FusedMemory &memory, const Pieces &pieces, unsigned char *ring,
				ProductsFeed *feed, uint32_t dead)
{
	uint32_t warp = threadIdx.x / WARP,
			 stage = 0,
			 parity = 0,
			 turn = 0,
			 chunk = 0,
			 piece;
	Products sums;

	memset(&sums, 0, sizeof(sums));
	while ((piece = *(volatile uint32_t *) &block->piece[warp][stage]) != NO_PIECE)
	{
		const unsigned char *at = ring + stage * plan.stage_bytes;
		uint32_t from = piece * plan.rows;
		uint32_t rows = piece_rows(mirror, plan, from);
		uint32_t left = mirror.stride - chunk * plan.chunk;
		uint32_t units = (left < plan.chunk ? left : plan.chunk) / TILE_UNIT;
		const unsigned char *queries =
			memory.queries + chunk * plan.chunk / sizeof(T) * PRODUCT_STEP * sizeof(float);

		ring_wait(&block->filled[warp][stage], parity);
		chunk = chunk + 1 < plan.chunks ? chunk + 1 : 0;
		for (uint32_t base = 0; base < rows; base += PRODUCT_ROWS)
		{
			const unsigned char *some = at + base * plan.chunk;
			ProductGroup group = {
				plan.chunks == 1 ? some : mirror.vectors + (size_t) from * mirror.stride,
				(const double *) (at + plan.rows * plan.chunk) + base, from + base, rows - base,
				turn == 0 && base == 0};

			multiply_units<T>(&sums, {some, queries, plan.chunk, plan.query_stride}, units);
			if (chunk == 0) /* a piece in chunks is one group */
				end_group<T, TERM>(mirror, plan, block, memory, group, dead, &sums);
		}
		__syncwarp();
		feed_stage(mirror, plan, block, pieces, ring, stage, feed);
		turn += chunk == 0;
		if (threadIdx.x == 0)
			*(volatile uint32_t *) &block->progress = turn;
		if (++stage == plan.stages)
		{
			stage = 0;
			parity ^= 1;
		}
	}
	if (threadIdx.x == 0)
		*(volatile uint32_t *) &block->progress = ALL_TURNS;
}

#endif /* HAS_COPIES */

template <typename T, int TERM, int G>
__global__ void
__launch_bounds__(MAX_THREADS, 1)
	exact_products_kernel(const MirrorView mirror, const BatchView batch, const FusedPlan plan,
						  const FusedQueries carried)
{
#ifdef HAS_COPIES
	__shared__ FusedBlock<G> block;
	DYNAMIC_SHARED(at);
	ProductsFeed feed = {pieces_of(mirror, plan).first + threadIdx.x / WARP, 0};

	run_fused_block<T, TERM>(
		mirror, batch, plan, carried, &block, at,
		[&](const Pieces &pieces, unsigned char *ring, uint32_t stage) {
			feed_stage(mirror, plan, &block, pieces, ring, stage, &feed);
		},
		[&](const FusedMemory &memory, const Pieces &pieces, unsigned char *ring, uint32_t dead) {
			search_products<T, TERM>(mirror, plan, &block, memory, pieces, ring, &feed, dead);
		});
#endif
}

/* --- launching ------------------------------------------------------------ */

/* By type, then by whether the term is the square. */
static const FusedKernel products_kernels[2][2] = {
	{exact_products_kernel<float, TERM_PRODUCT, FUSED_QUERIES>,
	 exact_products_kernel<float, TERM_SQUARE, FUSED_QUERIES>},
	{exact_products_kernel<__half, TERM_PRODUCT, FUSED_QUERIES>,
	 exact_products_kernel<__half, TERM_SQUARE, FUSED_QUERIES>}};

cudaError_t
products_prepare(size_t room)
{
	return allow_shared(products_kernels, room);
}

FusedKernel
products_kernel(const ExactLaunch *launch)
{
	return products_kernels[launch->type == ELEMENT_HALF][launch->mirror.metric == METRIC_L2];
}

bool
products_take(const ExactLaunch *launch)
{
	return launch->queries >= FROM_QUERIES &&
		   has_norms(launch->type, launch->mirror.metric);
}

bool
products_plan(const ExactLaunch *launch, size_t room, FusedPlan *plan, size_t *bytes)
{
	uint32_t stride = launch->mirror.stride;
	uint32_t ring;

	plan->query_stride = product_query_stride(plan->query_stride);
	plan->error = products_error(launch->type, launch->mirror.dims);
	plan->bound_polls = POLLS;
	plan->chunks = (stride + CHUNK - 1) / CHUNK;
	plan->chunk = stride;
	if (plan->chunks > 1)
		plan->chunk = ((stride + plan->chunks - 1) / plan->chunks + 127) / 128 * 128;
	plan->rows = PRODUCT_ROWS;
	while (plan->rows * 2 * stride <= STAGE_BYTES && plan->rows * 2 <= MAX_ROWS)
		plan->rows *= 2;
	plan->stage_bytes = plan->rows * (plan->chunk + (uint32_t) sizeof(double));
	plan->stage_bytes = (plan->stage_bytes + RING_ALIGNED - 1) / RING_ALIGNED * RING_ALIGNED;
	lay_out(*plan, FUSED_QUERIES, NULL, bytes);
	if (*bytes + MIN_RING > room)
		return false;
	ring = (uint32_t) (room - *bytes);
	plan->warps = ring / (MIN_STAGES * plan->stage_bytes);
	plan->warps = plan->warps < MAX_WARPS ? plan->warps : MAX_WARPS;
	plan->stages = ring / plan->warps / plan->stage_bytes;
	plan->stages = plan->stages < MAX_STAGES ? plan->stages : MAX_STAGES;
	plan->dealt = plan->warps;
	plan->ring_bytes = plan->warps * plan->stages * plan->stage_bytes;
	plan->ring_bytes = plan->ring_bytes < MIN_RING ? MIN_RING : plan->ring_bytes;
	lay_out(*plan, FUSED_QUERIES, NULL, bytes);
	return true;
}
