/*
 * lists_coarse.cu
 *		Values of all lists for each query, by which the nearest are chosen
 *		(lists_probe.cu): half the centroids' squared norms less their products
 *		with queries.
 *
 * Kernels:
 *		coarse	values in single precision, for few queries: tiles of 32
 *				centroids x 8 queries; 32 x 32 where these leave most of the
 *				device idle; 128 x 64 for more queries that products cannot
 *				choose lists for. 256 threads, sums in registers, elements in
 *				shared memory, 16 (128, 64) of a vector at a time, the next
 *				prefetched meanwhile. Elements are added in their order, fused,
 *				as the host's processors do. Bound: arithmetic (single
 *				precision); of few queries reading centroids once
 *		halves	a warp per query: half precision, and its error
 *		products	for many queries: the lower ends of values' error intervals
 *				by tensor cores (lists_halves.cuh). A block multiplies 128
 *				queries and a range of tiles of 128 centroids, so that the
 *				launch has about as many blocks as run at once. Bound: tensor
 *				cores and shared memory, and 4 bytes written per value
 */
#include "cuda/lists/lists_estimate.cuh"
#include "cuda/lists/lists_halves.cuh"

#define THREADS TILE_THREADS
#define WARPS (THREADS / WARP)
#define FEW_QUERIES 16u	  /* up to this many the small tiles are used, which give more blocks */

/* ---- in single precision ------------------------------------------------- */

/* Shared memory of the coarse kernel. */
template <uint32_t ACROSS, uint32_t M, uint32_t N, uint32_t DEPTH>
struct CoarseTile
{
	static const uint32_t lists = ACROSS * M;
	static const uint32_t queries = THREADS / ACROSS * N;
	static const uint32_t pad = M > 1 ? 4 : 1;
	float centroids[DEPTH][lists + pad];
	float vectors[DEPTH][queries + pad];
};

/*
 * Elements [from, from + DEPTH) of a tile's rows, loaded by all threads: the
 * next ones are prefetched to registers while the current ones are processed.
 */
template <uint32_t DEPTH, uint32_t WIDTH>
struct Columns
{
	static const uint32_t each = DEPTH * WIDTH / THREADS;
	float next[each];

	__device__ inline void
	ask(const float *rows, size_t stride, uint32_t count, uint32_t dims, uint32_t from)
	{
#pragma unroll
		for (uint32_t j = 0; j < each; j++)
		{
			uint32_t i = threadIdx.x + j * THREADS;
			uint32_t row = i / DEPTH,
					 element = from + i % DEPTH;

			next[j] = row < count && element < dims ? __ldg(rows + row * stride + element) : 0.0f;
		}
	}

	template <uint32_t STRIDE>
	__device__ inline void
	put(float (*to)[STRIDE]) const
	{
#pragma unroll
		for (uint32_t j = 0; j < each; j++)
		{
			uint32_t i = threadIdx.x + j * THREADS;

			to[i % DEPTH][i / DEPTH] = next[j];
		}
	}
};

template <uint32_t ACROSS, uint32_t M, uint32_t N, uint32_t DEPTH>
__global__ void __launch_bounds__(THREADS)
	lists_coarse_kernel(const ListsView lists, const ListsPart part)
{
	typedef CoarseTile<ACROSS, M, N, DEPTH> Tile;
	__shared__ Tile tile;
	uint32_t dims = lists.shape.dims;
	uint32_t list = blockIdx.x * Tile::lists,
			 query = blockIdx.y * Tile::queries;
	uint32_t x = threadIdx.x % ACROSS * M,
			 y = threadIdx.x / ACROSS * N;
	const float *centroids = lists.centroids + (size_t) list * dims,
				*vectors = part.vectors + (size_t) query * part.vector_stride;
	float sums[M][N] = {};
	Columns<DEPTH, Tile::lists> of_lists;
	Columns<DEPTH, Tile::queries> of_queries;

	of_lists.ask(centroids, dims, lists.lists - list, dims, 0);
	of_queries.ask(vectors, part.vector_stride, part.queries - query, dims, 0);
	for (uint32_t from = 0; from < dims; from += DEPTH)
	{
		uint32_t depth = dims - from < DEPTH ? dims - from : DEPTH;

		of_lists.put(tile.centroids);
		of_queries.put(tile.vectors);
		__syncthreads();
		of_lists.ask(centroids, dims, lists.lists - list, dims, from + DEPTH);
		of_queries.ask(vectors, part.vector_stride, part.queries - query, dims, from + DEPTH);
		/*
		 * in small tiles, warps whose query does not exist have nothing to add
		 */
		if (query + y >= part.queries)
			depth = 0;
#pragma unroll 4
		for (uint32_t i = 0; i < depth; i++)
		{
			float a[M],
				b[N];

#pragma unroll
			for (uint32_t m = 0; m < M; m++)
				a[m] = tile.centroids[i][x + m];
#pragma unroll
			for (uint32_t n = 0; n < N; n++)
				b[n] = tile.vectors[i][y + n];
#pragma unroll
			for (uint32_t m = 0; m < M; m++)
#pragma unroll
				for (uint32_t n = 0; n < N; n++)
					sums[m][n] = fmaf(b[n], a[m], sums[m][n]);
		}
		__syncthreads();
	}
#pragma unroll
	for (uint32_t n = 0; n < N; n++)
#pragma unroll
		for (uint32_t m = 0; m < M; m++)
			if (list + x + m < lists.lists && query + y + n < part.queries)
				part.values[(size_t) (query + y + n) * lists.lists + list + x + m] =
					lists.half_norms[list + x + m] - sums[m][n];
}

/* Launch the coarse kernel with one tile size. */
template <uint32_t ACROSS, uint32_t M, uint32_t N, uint32_t DEPTH>
static void
launch_coarse(const ListsView &lists, const ListsPart &part, cudaStream_t stream)
{
	typedef CoarseTile<ACROSS, M, N, DEPTH> Tile;

	LAUNCH((lists_coarse_kernel<ACROSS, M, N, DEPTH>),
		   dim3((lists.lists + Tile::lists - 1) / Tile::lists,
				(part.queries + Tile::queries - 1) / Tile::queries),
		   THREADS, 0, stream, lists, part);
}

/* Number of blocks with the largest tiles. */
static uint32_t
large_tiles(const ListsView &lists, const ListsPart &part)
{
	typedef CoarseTile<16, 8, 4, 16> Tile;

	return (lists.lists + Tile::lists - 1) / Tile::lists *
		   ((part.queries + Tile::queries - 1) / Tile::queries);
}

/* ---- by tensor cores ----------------------------------------------------- */

/*
 * The relative error of sums in single precision, added one after the other,
 * and of the values made of them.
 */
static float
single_error(uint32_t dims)
{
	return (float) (dims + 4) * 1.01f * 0x1p-24f;
}

/*
 * Convert queries. Intervals hold the values in single precision: these have
 * errors in proportion to the lengths before the shift, of which a centroid's
 * is at most its length after it plus the mean's.
 */
__global__ void __launch_bounds__(THREADS)
	lists_query_halves_kernel(const ListsView lists, const ListsPart part,
							  const ListsProducts products, float error, float single)
{
	uint32_t query = blockIdx.x * WARPS + threadIdx.x / WARP;
	uint32_t dims = lists.shape.dims;
	double square = 0;
	MovedVector moved;
	float scale,
		length;

	if (query >= part.queries)
		return;
	moved = make_halves(products.lists, dims, part.vectors + (size_t) query * part.vector_stride,
						products.halves + (size_t) query * products.lists.pitch);
	for (uint32_t i = threadIdx.x % WARP; i < dims; i += WARP)
		square += (double) products.lists.mean[i] * products.lists.mean[i];
	square = sum_of_lanes(square);
	if (threadIdx.x % WARP != 0)
		return;
	scale = power_of(-moved.exponent);
	length = single * (part.query[query].length * scale);
	/* the last term is underflow in single precision */
	products.spans[query] = {moved.usable ? scale : NAN,
							 error * (length_of(moved) * scale) + length,
							 length * ((float) sqrt(square) * 1.001f) + SMALLEST_SPAN +
								 (float) dims * 0x1p-147f * scale};
}

template <uint32_t STAGES>
__global__ void __launch_bounds__(THREADS, TILE_BLOCKS)
	lists_products_kernel(const ListsView lists, const ListsPart part,
						  const ListsProducts products, uint32_t tiles)
{
	DYNAMIC_SHARED(dynamic);
	size_t bytes;
	HalfTiles memory = half_tiles(STAGES, dynamic, &bytes);
	HalfRows queries = {products.halves, part.queries};
	uint32_t all = (lists.lists + TILE - 1) / TILE,
			 begin = blockIdx.y * tiles,
			 end = begin + tiles < all ? begin + tiles : all;
	uint32_t lane = threadIdx.x % WARP,
			 first = blockIdx.x * TILE + warp_row() + lane / 4;
	RowSpan rows[4];

#pragma unroll
	for (uint32_t r = 0; r < 4; r++)
		rows[r] = first + r * 8 < part.queries ? products.spans[first + r * 8] : RowSpan{0, 0, 0};
	multiply_halves<STAGES>(
		products.lists, lists.lists, queries, memory, begin, end,
		[&](uint32_t tile, const ListSpan *spans, const float(&sums)[2][8][4]) {
#pragma unroll
			for (uint32_t j = 0; j < 16; j += 2)
			{
				uint32_t at = warp_list() + j / 2 * 8 + lane % 4 * 2;
				uint32_t list = tile * TILE + at;
				ListSpan spans_of[2] = {spans[at], spans[at + 1]};

				/*
				 * rows of values are padded, so both have a place if the first
				 * has
				 */
				if (list >= lists.lists)
					continue;
#pragma unroll
				for (uint32_t r = 0; r < 4; r++)
				{
					const float *sum = &sums[r / 2][j / 2][r % 2 * 2];

					if (first + r * 8 < part.queries)
						*(float2 *) &part.values[(size_t) (first + r * 8) * products.value_stride +
												 list] =
							make_float2(interval_of(rows[r], spans_of[0], sum[0]).low,
										interval_of(rows[r], spans_of[1], sum[1]).low);
				}
			}
		});
}

/* Launch the products of queries and centroids. */
static cudaError_t
launch_products(const ListsStep *step, cudaStream_t stream)
{
	const ListsView &lists = step->launch->lists;
	const ListsPart &part = step->part;
	uint32_t across = (part.queries + TILE - 1) / TILE,
			 all = (lists.lists + TILE - 1) / TILE,
			 blocks = step->launch->processors * TILE_BLOCKS;
	uint32_t ranges = across < blocks ? blocks / across : 1;
	uint32_t tiles = (all + ranges - 1) / ranges;
	auto products =
		step->launch->stages == 3 ? lists_products_kernel<3> : lists_products_kernel<2>;
	size_t bytes;

	LAUNCH(lists_query_halves_kernel, (part.queries + WARPS - 1) / WARPS, THREADS, 0, stream, lists,
		   part, step->products, value_error(lists.shape.dims), single_error(lists.shape.dims));
	half_tiles(step->launch->stages, NULL, &bytes);
	LAUNCH(products, dim3(across, (all + tiles - 1) / tiles), THREADS, bytes, stream, lists, part,
		   step->products, tiles);
	return cudaGetLastError();
}

cudaError_t
lists_coarse_launch(const ListsStep *step)
{
	const ListsView &lists = step->launch->lists;
	const ListsPart &part = step->part;
	cudaStream_t stream = step->launch->stream;

	if (step->products.used)
		return launch_products(step, stream);
	if (part.queries <= FEW_QUERIES)
		launch_coarse<32, 1, 1, 128>(lists, part, stream);
	else if (large_tiles(lists, part) * 2 <= step->launch->processors)
		launch_coarse<16, 2, 2, 64>(lists, part, stream);
	else
		launch_coarse<16, 8, 4, 16>(lists, part, stream);
	return cudaGetLastError();
}

cudaError_t
lists_coarse_allow(const cudaDeviceProp *device)
{
	size_t bytes[2];
	cudaError_t error;

	half_tiles(2, NULL, &bytes[0]);
	half_tiles(3, NULL, &bytes[1]);
	error = allow_shared(lists_products_kernel<2>, bytes[0]);
	if (error == cudaSuccess && bytes[1] <= device->sharedMemPerBlockOptin)
		error = allow_shared(lists_products_kernel<3>, bytes[1]);
	return error;
}
