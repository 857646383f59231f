/*
 * exact_tiles.cu
 *		Exact search of many queries: tensor cores multiply tiles of queries and
 *		rows to preselect candidates, which are measured exactly.
 *
 * 1. exact_begin_kernel: norms of the queries, and their elements in the
 *    format of the tensor cores.
 * 2. exact_scan_kernel (exact_scan.cu) over a sample, every 2^n-th row, and
 *    exact_merge_kernel: a first bound for each query.
 * 3. Phases. Each has the rows whose number is a multiple of a smaller power
 *    of two and which have not been seen:
 *    exact_tiles_kernel
 *        grid    (tiles of 128 or 32 queries, ranges), 256 threads, two
 *                blocks per SM (sm_90, sm_100)
 *        work    128 rows per tile, 128 bytes of each at a time, in three
 *                stages of asynchronous copies. Sums stay in registers and
 *                are compared with the limit of the query; slots that pass
 *                are appended to the query's candidates.
 *        shared  stages; queries if they have up to 512 bytes each, else they
 *                are staged too
 *        global  reads rows and queries, writes candidates only
 *    On devices with wgmma (sm_90), exact_wgmma.cu does this instead.
 *    exact_rank_kernel
 *        grid    queries, 256 threads
 *        work    measures the candidates exactly (two threads per row), merges
 *                them into the best, computes the next limits
 * 4. exact_scan_kernel over all rows, for queries with more candidates than
 *    there is room for, or with a bound (beyond).
 *
 * Bound: tensor cores (tf32 by mma.sync) for 64 and more queries of 128
 * dimensions, memory for fewer. Rows are read once per tile of queries, by
 * blocks that run concurrently, so mostly from L2. A phase multiplies the
 * number of rows seen by at most 32 (the first phase by the remaining factor),
 * and lets about that factor times k candidates pass, in any order of the rows;
 * data with a period of a power of two overflows and is scanned. State: see
 * lay_out_tables().
 */
#include <math.h>
#include <string.h>

#include "cuda/exact/exact_tiles.h"
#include "cuda/exact/tensor.cuh"

#define TILE_ROWS 128u
#define STAGES 3u
#define NORM_SIDES 4u		/* tiles whose norms are kept, more than STAGES */
#define RESIDENT_BYTES 65536u /* a tile of queries up to this size stays in shared memory */
#define CANDIDATES 4096u	/* per query and phase */
#define MAX_GROWTH 32u		/* maximum factor by which a phase increases the rows seen */
#define MAX_K 256u
#define MIN_QUERIES 6u		/* from this many queries on tiles are faster than a scan */
#ifdef EMULATED /* small, so that tests of small tables use tiles too */
#define MIN_ROWS 1024u
#define SAMPLE 64u
#else
#define MIN_ROWS 32768u
#define SAMPLE 2048u /* approximate number of rows; more for a large k */
#endif
#define FORCED_SAMPLE 64u	/* if tiles are forced */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900 && __CUDA_ARCH__ != 1000
#define TILE_BLOCKS 1 /* per SM, limited by shared memory */
#else
#define TILE_BLOCKS 2
#endif
#define MANY 64u			/* queries from which on tiles are large */

/*
 * Rows of a phase: multiples of step that are not multiples of step * growth.
 */
struct TilePhase
{
	uint32_t step;
	uint32_t growth;
	uint32_t rows;
	bool resident; /* queries stay in shared memory */
};

/* The slot of a phase's i-th row. */
__device__ static inline uint32_t
phase_slot(const TilePhase &phase, uint32_t i)
{
	uint32_t each = phase.growth - 1;

	return (i / each * phase.growth + 1 + i % each) * phase.step;
}

/* Bytes of a vector in whole tiles. */
__host__ __device__ static inline uint32_t
tiled_bytes(uint32_t stride)
{
	return (stride + TILE_BYTES - 1) / TILE_BYTES * TILE_BYTES;
}

__device__ static inline uint32_t
prepared_word(const float *elements, uint32_t i, uint32_t dims, const float *)
{
	return i < dims ? (__float_as_uint(elements[i]) + 0x1000u) & 0xFFFFE000u : 0;
}

__device__ static inline uint32_t
prepared_word(const __half *elements, uint32_t i, uint32_t dims, const __half *)
{
	uint32_t word = 0;

	for (uint32_t j = 0; j < 2; j++)
		if (2 * i + j < dims)
			word |= (uint32_t) ((const uint16_t *) elements)[2 * i + j] << (16 * j);
	return word;
}

template <typename T>
__global__ void __launch_bounds__(128)
	exact_begin_kernel(const MirrorView mirror, const BatchView batch, const TileTables tables)
{
	DYNAMIC_SHARED(memory);
	uint32_t query = blockIdx.x;
	const T *stored = (const T *) (batch.vectors + batch.queries[query].vector);
	uint32_t *prepared = (uint32_t *) (tables.prepared + (size_t) query * tables.prepared_stride);
	float *elements = (float *) memory;

	widen_query(mirror, stored, elements);
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < tables.prepared_stride / 4; i += blockDim.x)
		prepared[i] = prepared_word(stored, i, mirror.dims, (const T *) 0);
	if (threadIdx.x >= WARP)
		return;

	double norm =
		exact_sum<float, TERM_PRODUCT>(elements, elements, mirror.dims, threadIdx.x < EXACT_TEAM);

	if (threadIdx.x == 0)
	{
		tables.norms[query] = norm;
		tables.bounds[query] = NO_KEY;
		tables.counts[query] = 0;
		tables.spilled[query] = batch.queries[query].has_beyond;
		/* queries that are left to the scan: no row passes */
		tables.limits[query].scale = 0;
		tables.limits[query].shift = -HUGE_VALF;
		if (query == 0)
			tables.only[0] = 0;
	}
}

/* Shared memory of a block of exact_tiles_kernel. */
struct TileMemory
{
	unsigned char *queries; /* whole tiles, or stages */
	unsigned char *rows;	/* stages */
	double *norms;			/* NORM_SIDES x TILE_ROWS */
	Limit *limits;
};

__host__ __device__ static inline TileMemory
lay_out(const MirrorView &mirror, uint32_t queries, bool resident, unsigned char *at, size_t *bytes)
{
	uint32_t chunks = tiled_bytes(mirror.stride) / TILE_BYTES;
	TileMemory memory;
	size_t taken = 0;

	memory.queries = at;
	taken += (size_t) queries * TILE_BYTES * (resident ? chunks : STAGES);
	memory.rows = at + taken;
	taken += STAGES * TILE_ROWS * TILE_BYTES;
	memory.norms = (double *) (at + taken);
	taken += NORM_SIDES * TILE_ROWS * sizeof(double);
	memory.limits = (Limit *) (at + taken);
	*bytes = taken + queries * sizeof(Limit);
	return memory;
}

/*
 * Start copying 128 bytes of each of a block's queries. Queries beyond the last
 * repeat it.
 */
template <uint32_t QUERIES>
__device__ static inline void
copy_queries(const TileTables &tables, uint32_t first, uint32_t chunk, unsigned char *to)
{
	for (uint32_t i = threadIdx.x; i < QUERIES * 8; i += THREADS)
	{
		uint32_t query = first + i / 8 < tables.queries ? first + i / 8 : tables.queries - 1;

		copy_unit(to + tile_place(i / 8, i % 8),
				  tables.prepared + (size_t) query * tables.prepared_stride + chunk * TILE_BYTES +
					  i % 8 * TILE_UNIT,
				  true);
	}
}

/* The next stage to copy. */
struct Feed
{
	uint32_t tile; /* of rows */
	uint32_t chunk;
	uint32_t stage;
	uint32_t side;							/* of the norms */
	uint32_t slot[TILE_ROWS * 8 / THREADS]; /* of this thread; NO_SLOT beyond the last */
};

/*
 * Start copying the next stage, if there is one, and close the group of copies
 * in any case.
 */
template <uint32_t QUERIES>
__device__ static inline void
feed_stage(const MirrorView &mirror, const TileTables &tables, const TilePhase &phase,
		   const TileMemory &memory, bool resident, Feed *feed)
{
	if (feed->tile * TILE_ROWS < phase.rows)
	{
		unsigned char *to = memory.rows + feed->stage * TILE_ROWS * TILE_BYTES;
		uint32_t at = feed->chunk * TILE_BYTES + threadIdx.x % 8 * TILE_UNIT;

#pragma unroll
		for (uint32_t i = 0; i < TILE_ROWS * 8 / THREADS; i++)
		{
			uint32_t row = i * (THREADS / 8) + threadIdx.x / 8;

			if (feed->chunk == 0)
			{
				uint32_t number = feed->tile * TILE_ROWS + row;

				feed->slot[i] = number < phase.rows ? phase_slot(phase, number) : NO_SLOT;
			}
			bool there = feed->slot[i] != NO_SLOT && at < mirror.stride;

			copy_unit(to + tile_place(row, threadIdx.x % 8),
					  there ? mirror.vectors + (size_t) feed->slot[i] * mirror.stride + at
							: mirror.vectors,
					  there);
		}
		if (feed->chunk == 0 && threadIdx.x < TILE_ROWS)
		{
			uint32_t number = feed->tile * TILE_ROWS + threadIdx.x;
			bool there = number < phase.rows;

			copy_double(memory.norms + feed->side * TILE_ROWS + threadIdx.x,
						mirror.norms + (there ? phase_slot(phase, number) : 0), there);
		}
		if (!resident)
			copy_queries<QUERIES>(tables, blockIdx.x * QUERIES, feed->chunk,
								  memory.queries + feed->stage * QUERIES * TILE_BYTES);
		feed->stage = feed->stage + 1 < STAGES ? feed->stage + 1 : 0;
		if (++feed->chunk * TILE_BYTES >= mirror.stride)
		{
			feed->chunk = 0;
			feed->tile += gridDim.y;
			feed->side = (feed->side + 1) % NORM_SIDES;
		}
	}
	copies_close();
}

/*
 * Compare a warp's sums with the limits, append the slots that pass, and clear
 * the sums: M x 16 rows from first_row on (counted from the tile's first), N x
 * 8 queries from first_query on (counted from the block's).
 */
template <int M, int N>
__device__ static inline void
filter_sums(const MirrorView &mirror, const BatchView &batch, const TileTables &tables,
			const TilePhase &phase, const Limit *limits, const double *norms, float (*sums)[N][4],
			uint32_t tile, uint32_t first_row, uint32_t first_query, uint32_t block_query)
{
	uint32_t lane = threadIdx.x % WARP;
	RowSide sides[M * 2];
	uint64_t passed = 0;

#pragma unroll
	for (int i = 0; i < M * 2; i++)
	{
		uint32_t row = first_row + i * 8 + lane / 4;

		sides[i] = row_side(mirror.metric, norms[row]);
		if (tile * TILE_ROWS + row >= phase.rows)
		{
			sides[i].length = 0;
			sides[i].height = HUGE_VALF;
		}
	}
#pragma unroll
	for (int n = 0; n < N; n++)
#pragma unroll
		for (int c = 0; c < 2; c++)
		{
			Limit limit = limits[first_query + n * 8 + lane % 4 * 2 + c];

#pragma unroll
			for (int i = 0; i < M * 2; i++)
			{
				if (product_passes(limit, sides[i], sums[i / 2][n][i % 2 * 2 + c]))
					passed |= 1ull << ((n * 2 + c) * (M * 2) + i);
				sums[i / 2][n][i % 2 * 2 + c] = 0;
			}
		}
	while (passed != 0)
	{
		uint32_t bit = (uint32_t) __ffsll((long long) passed) - 1;
		uint32_t column = bit / (M * 2);
		uint32_t number = tile * TILE_ROWS + first_row + bit % (M * 2) * 8 + lane / 4;
		uint32_t query = block_query + first_query + column / 2 * 8 + lane % 4 * 2 + column % 2;

		passed &= passed - 1;
		if (number < phase.rows)
			append(mirror, batch, tables, query, phase_slot(phase, number));
	}
}

template <typename T, uint32_t QUERIES>
__global__ void
__launch_bounds__(THREADS, TILE_BLOCKS)
	exact_tiles_kernel(const MirrorView mirror, const BatchView batch, const TileTables tables,
					   const TilePhase phase)
{
	/* 4 warps along the rows and 2 along many queries, or 8 along the rows */
	constexpr int M = QUERIES > 32 ? 2 : 1;
	constexpr int N = QUERIES > 32 ? (int) QUERIES / 16 : (int) QUERIES / 8;
	constexpr uint32_t ALONG = QUERIES > 32 ? 4 : 8;
	DYNAMIC_SHARED(at);
	const bool resident = phase.resident;
	size_t bytes;
	TileMemory memory = lay_out(mirror, QUERIES, resident, at, &bytes);
	uint32_t chunks = tiled_bytes(mirror.stride) / TILE_BYTES;
	uint32_t first_row = threadIdx.x / WARP % ALONG * (M * 16);
	uint32_t first_query = threadIdx.x / WARP / ALONG * (N * 8);
	float sums[M][N][4];
	Feed feed;
	uint32_t tile = blockIdx.y,
			 chunk = 0,
			 stage = 0,
			 side = 0;

	memset(sums, 0, sizeof(sums));
	feed.tile = tile;
	feed.chunk = feed.stage = feed.side = 0;
	for (uint32_t i = threadIdx.x; i < QUERIES; i += THREADS)
	{
		uint32_t query = blockIdx.x * QUERIES + i;
		Limit limit = {0, -HUGE_VALF};

		memory.limits[i] = query < tables.queries ? tables.limits[query] : limit;
	}
	for (uint32_t i = 0; resident && i < chunks; i++)
		copy_queries<QUERIES>(tables, blockIdx.x * QUERIES, i,
							  memory.queries + i * QUERIES * TILE_BYTES);
	for (uint32_t i = 0; i < STAGES - 1; i++)
		feed_stage<QUERIES>(mirror, tables, phase, memory, resident, &feed);
	while (tile * TILE_ROWS < phase.rows)
	{
		copies_wait<STAGES - 2>();
		__syncthreads();
		feed_stage<QUERIES>(mirror, tables, phase, memory, resident, &feed);
		multiply_tiles<T, M, N>(sums, memory.rows + stage * TILE_ROWS * TILE_BYTES, first_row,
								memory.queries + (resident ? chunk : stage) * QUERIES * TILE_BYTES,
								first_query);
		stage = stage + 1 < STAGES ? stage + 1 : 0;
		if (++chunk == chunks)
		{
			filter_sums<M, N>(mirror, batch, tables, phase, memory.limits,
							  memory.norms + side * TILE_ROWS, sums, tile, first_row, first_query,
							  blockIdx.x * QUERIES);
			chunk = 0;
			tile += gridDim.y;
			side = (side + 1) % NORM_SIDES;
		}
	}
	copies_wait<0>();
}

/* Load the best of a query from the tables into a selection. */
__device__ static inline void
take_best(const TileTables &tables, uint32_t query, BestList *best)
{
	best->count = tables.nbest[query];
	for (uint32_t i = threadIdx.x; i < best->count; i += THREADS)
	{
		best->now.key[i] = tables.best.key[(size_t) query * tables.length + i];
		best->now.slot[i] = tables.best.slot[(size_t) query * tables.length + i];
	}
	__syncthreads();
}

/*
 * Update the tables for the next phase. Called by one thread of
 * exact_rank_kernel.
 */
__device__ static inline void
end_phase(const MirrorView &mirror, const TileTables &tables, uint32_t query, Key bound,
		  bool spilled)
{
	tables.counts[query] = 0;
	if (bound < tables.bounds[query])
		tables.bounds[query] = bound;
	if (spilled)
	{
		tables.spilled[query] = 1;
		tables.limits[query].scale = 0;
		tables.limits[query].shift = -HUGE_VALF;
	}
	else
		tables.limits[query] =
			product_limit(mirror.metric, tables.norms[query], tables.bounds[query], tables.error);
}

template <typename T, int TERM>
__global__ void
__launch_bounds__(THREADS) exact_rank_kernel(const MirrorView mirror, const BatchView batch,
											 const TileTables tables, bool last)
{
	__shared__ uint32_t buffered;
	DYNAMIC_SHARED(memory);
	uint32_t number = blockIdx.x;
	const DeviceQuery asked = batch.queries[number];
	QueryVector query = {(float *) memory, tables.norms[number], 0};
	uint32_t candidates = tables.counts[number];
	bool spilled = tables.spilled[number] || candidates > tables.room;
	Selection selection;

	widen_query(mirror, (const T *) (batch.vectors + asked.vector), (float *) memory);
	selection_begin(&selection, memory + query_bytes(mirror), asked.k, &buffered);
	take_best(tables, number, &selection.best);
	measure_rows<T, TERM>(mirror, asked, query, tables.candidates + (size_t) number * tables.room,
						  candidates < tables.room ? candidates : tables.room,
						  tables.bounds[number], &selection);
	if (last && !spilled)
		write_best(mirror, batch.results + asked.results, selection.best);
	else
		for (uint32_t i = threadIdx.x; i < selection.best.count; i += THREADS)
		{
			tables.best.key[(size_t) number * tables.length + i] = selection.best.now.key[i];
			tables.best.slot[(size_t) number * tables.length + i] = selection.best.now.slot[i];
		}
	if (threadIdx.x != 0)
		return;
	tables.nbest[number] = selection.best.count;
	end_phase(mirror, tables, number, selection_bound(selection.best), spilled);
	if (!last)
		return;
	batch.heads[number].distances = mirror.rows;
	batch.heads[number].iterations = tables.phases;
	batch.heads[number].count = selection.best.count;
	if (spilled)
		tables.only[1 + atomicAdd(&tables.only[0], 1u)] = number;
}

/* --- launching ------------------------------------------------------------ */

typedef void (*TilesKernel)(const MirrorView, const BatchView, const TileTables, const TilePhase);
typedef void (*RankKernel)(const MirrorView, const BatchView, const TileTables, bool);
typedef void (*BeginKernel)(const MirrorView, const BatchView, const TileTables);

/* By type, then by tile size. */
static const TilesKernel tiles_kernels[2][2] = {
	{exact_tiles_kernel<float, 32>, exact_tiles_kernel<float, 128>},
	{exact_tiles_kernel<__half, 32>, exact_tiles_kernel<__half, 128>}};
static const BeginKernel begin_kernels[2] = {exact_begin_kernel<float>, exact_begin_kernel<__half>};
/* By type, then by whether the term is the square. */
static const RankKernel rank_kernels[2][2] = {
	{exact_rank_kernel<float, TERM_PRODUCT>, exact_rank_kernel<float, TERM_SQUARE>},
	{exact_rank_kernel<__half, TERM_PRODUCT>, exact_rank_kernel<__half, TERM_SQUARE>}};

cudaError_t
tiles_prepare(int bytes, const EngineForced *forced, ExactLimits *limits)
{
	cudaError_t error = allow_shared(tiles_kernels, (size_t) bytes);

	limits->tiles_shared = (size_t) bytes;
	/* measured on an H200 (bench/calibrate), or forced */
	limits->least_queries = forced->tiles_queries > 0 ? forced->tiles_queries : MIN_QUERIES;
	limits->least_rows = forced->tiles_queries > 0 ? forced->tiles_rows : MIN_ROWS;
	if (error == cudaSuccess)
		error = allow_shared(rank_kernels, (size_t) bytes);
	if (error == cudaSuccess)
		error = allow_shared(begin_kernels, (size_t) bytes);
	return error == cudaSuccess ? wgmma_prepare(bytes, forced->tiles_products, limits) : error;
}

/*
 * Distance between the rows of the sample: the largest power of two with which
 * the sample is large enough.
 */
static uint32_t
sample_step(const ExactLaunch *launch, bool forced)
{
	uint32_t least = forced ? FORCED_SAMPLE : SAMPLE;
	uint32_t step = 1;

	least = least > 16 * launch->max_k || forced ? least : 16 * launch->max_k;
	while (launch->mirror.rows / (2 * step) >= least)
		step *= 2;
	return step;
}

bool
tiles_can(const ExactLaunch *launch, bool forced)
{
	bool possible = has_norms(launch->type, launch->mirror.metric) && !launch->pending_only &&
					launch->max_k <= MAX_K && sample_step(launch, forced) > 1;

	return possible &&
		   (forced || (launch->queries >= launch->limits->least_queries &&
					   launch->mirror.rows >= launch->limits->least_rows));
}

/*
 * Lay out the tables in the batch's state; *at is advanced to the remaining
 * memory.
 */
static TileTables
lay_out_tables(const ExactLaunch *launch, unsigned char **at)
{
	size_t n = launch->queries;
	TileTables tables;

	memset(&tables, 0, sizeof(tables));
	tables.queries = launch->queries;
	tables.length = launch->max_k;
	tables.room = CANDIDATES;
	tables.error = tensor_error(launch->type, launch->mirror.dims);
	tables.prepared_stride = tiled_bytes(launch->mirror.stride);
	tables.bounds = carve<Key>(at, n);
	tables.norms = carve<double>(at, n);
	tables.limits = carve<Limit>(at, n);
	tables.counts = carve<uint32_t>(at, n);
	tables.spilled = carve<uint32_t>(at, n);
	tables.only = carve<uint32_t>(at, n + 1);
	tables.nbest = carve<uint32_t>(at, n);
	tables.best.key = carve<Key>(at, n * launch->max_k);
	tables.best.slot = carve<uint32_t>(at, n * launch->max_k);
	tables.candidates = carve<uint32_t>(at, n * CANDIDATES);
	tables.prepared = carve(at, n * tables.prepared_stride);
	return tables;
}

/*
 * Shared memory of a block; whether it has room for large tiles, and for all of
 * their queries.
 */
static size_t
tile_bytes(const ExactLaunch *launch, bool *large, bool *resident)
{
	uint32_t bytes_of_query = tiled_bytes(launch->mirror.stride);
	size_t bytes;

	*large = launch->queries >= MANY;
	for (;;)
	{
		uint32_t queries = *large ? 128 : 32;

		*resident = queries * bytes_of_query <= RESIDENT_BYTES;
		lay_out(launch->mirror, queries, *resident, NULL, &bytes);
		if (bytes > launch->limits->tiles_shared && *resident)
		{
			*resident = false;
			lay_out(launch->mirror, queries, false, NULL, &bytes);
		}
		if (bytes <= launch->limits->tiles_shared || !*large)
			return bytes;
		*large = false;
	}
}

/* Launch one phase: tiles, then ranking of the candidates. */
static cudaError_t
phase_launch(const ExactLaunch *launch, const TileTables &tables, TilePhase phase, bool last)
{
	const MirrorView &mirror = launch->mirror;
	int half = launch->type == ELEMENT_HALF;
	bool large;
	size_t bytes = tile_bytes(launch, &large, &phase.resident);
	uint32_t queries = large ? 128 : 32;
	uint32_t across = (launch->queries + queries - 1) / queries;
	uint32_t tiles = (phase.rows + TILE_ROWS - 1) / TILE_ROWS;
	uint32_t ranges = launch->blocks / 4 / across; /* two blocks per SM */

	ranges = ranges < tiles ? ranges : tiles;
	ranges = ranges > 0 ? ranges : 1;
	if (wgmma_takes(launch))
	{
		cudaError_t error = wgmma_launch(launch, tables, phase.step, phase.growth);

		if (error != cudaSuccess)
			return error;
	}
	else if (phase.rows > 0)
		LAUNCH(tiles_kernels[half][large], dim3(across, ranges), THREADS, bytes, launch->stream,
			   mirror, launch->batch, tables, phase);
	LAUNCH(rank_kernels[half][mirror.metric == METRIC_L2], launch->queries, THREADS,
		   query_bytes(mirror) + selection_bytes(launch->max_k), launch->stream, mirror,
		   launch->batch, tables, last);
	return cudaGetLastError();
}

/*
 * Factor by which the next phase increases the rows seen, so that its
 * candidates, allowing for some more than expected, fit. The first phase takes
 * the remainder, because a phase with a large factor skips little of what it
 * reads.
 */
static uint32_t
growth_of(uint32_t step, uint32_t k)
{
	uint32_t most = MAX_GROWTH;

	while (most > 2 && most * k * 3 > CANDIDATES)
		most /= 2;
	while (step > most)
		step /= most;
	return step;
}

cudaError_t
tiles_launch(const ExactLaunch *launch, bool forced)
{
	const MirrorView &mirror = launch->mirror;
	unsigned char *left = launch->batch.state;
	MergeTo to;
	ScanPlan plan;
	TilePhase phase;
	uint32_t step = sample_step(launch, forced);
	size_t left_bytes;
	cudaError_t error;

	memset(&to, 0, sizeof(to));
	to.tables = lay_out_tables(launch, &left);
	left_bytes = launch->state_bytes - (size_t) (left - launch->batch.state);
	for (uint32_t s = step; s > 1; s /= growth_of(s, launch->max_k))
		to.tables.phases++;
	LAUNCH(begin_kernels[launch->type == ELEMENT_HALF], launch->queries, 128, query_bytes(mirror),
		   launch->stream, mirror, launch->batch, to.tables);
	memset(&plan, 0, sizeof(plan));
	plan.bounds = to.tables.bounds;
	plan.step = step;
	error = scan_launch(launch, &plan, left, left_bytes);
	if (error == cudaSuccess)
		error = merge_launch(launch, &plan.lists, &to);
	while (step > 1 && error == cudaSuccess)
	{
		uint32_t before = (mirror.rows + step - 1) / step;

		phase.growth = growth_of(step, launch->max_k);
		step /= phase.growth;
		phase.step = step;
		phase.rows = (mirror.rows + step - 1) / step - before;
		error = phase_launch(launch, to.tables, phase, step == 1);
	}
	if (error != cudaSuccess)
		return error;
	/* queries left over; if there are none the blocks exit immediately */
	plan.only = to.tables.only;
	plan.step = 1;
	to.results = to.only = true;
	error = scan_launch(launch, &plan, left, left_bytes);
	return error == cudaSuccess ? merge_launch(launch, &plan.lists, &to) : error;
}
