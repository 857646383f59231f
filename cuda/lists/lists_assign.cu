/*
 * lists_assign.cu
 *		The nearest centroid of each row: products by tensor cores exclude most
 *		centroids; exact distances decide among the rest.
 *
 * Vectors are shifted so that the centroids' mean is the origin, scaled by a
 * power of two so that the largest element is below 1, and rounded to half
 * precision. The value of a row and a centroid, half the centroid's squared
 * norm minus the product, orders centroids as the distance does. Its error is
 * proportional to both lengths (value_error()), so each value has an error
 * interval; a centroid whose interval begins above the least upper end cannot
 * be the nearest.
 *
 * mean_kernel		blocks of 32 dimensions, 256 threads: the centroids' mean
 * halves_kernel	a warp per vector, 256 threads: reads 4 bytes an element
 *					twice, writes 2
 * assign_kernel
 *		grid	blocks of 128 rows, 256 threads, two blocks an SM
 *		work	tiles of 128 rows and 128 centroids, 64 dimensions of each at a
 *				time, in 3 stages of asynchronous copies; a warp multiplies 32 x
 *				64, with its 64 sums a thread in registers. After each tile of
 *				centroids the rows' bounds fall to the least end of a range, and
 *				centroids that begin before it are noted
 *		shared	stages (32 KB each), numbers of four tiles of centroids, bounds
 *		global	reads rows and centroids from L2, writes notes
 *		bound	tensor cores and shared memory: 96 KB read and 32 KB written for
 *				2^20 multiplications
 * decide_kernel
 *		a warp per row, 256 threads: of the centroids noted those that still
 *		begin before the bound are measured, four at a time
 *
 * Rows with more notes than NOTES, and rows with elements that are too large or
 * NaN, are compared with all centroids (lists_near.cu).
 */
#include "cuda/lists/lists_assign.h"
#include "cuda/exact/tensor.cuh"

#define THREADS 256u
#define WARPS (THREADS / WARP)
#define TILE ASSIGN_ROWS  /* rows, and centroids */
#define WARP_ROWS 32u
#define WARP_LISTS 64u
#define TILE_HALVES 64u	  /* of a vector, per stage */
#define SIDE_BYTES (TILE * TILE_BYTES)
#define STAGE_BYTES (2 * SIDE_BYTES)
#define SPAN_SIDES 4u	  /* tiles of centroids whose spans stay in shared memory */
#define NOTES 64u		  /* centroids noted per row */
#define PIECE_ROWS_MIN 40960u /* minimum rows per launch, unless they are long: one wave of
							   * blocks */
#define LARGE_ELEMENT 1e15f /* vectors with larger elements are compared exactly only */
#define SMALLEST_SPAN 0x1p-140f
#define MEAN_DIMS 32u

/* A centroid's contribution to an error interval; aligned for one load. */
struct alignas(16) ListSpan
{
	float low;	  /* half the squared norm, minus its error */
	float high;	  /* plus its error */
	float scale;  /* of its half-precision elements, a power of two */
	float length; /* upper bound of its length */
};

/* A row's contribution. */
struct RowSpan
{
	float scale; /* reciprocal scale of its half-precision elements; NaN: the row is left open */
	float error; /* upper bound of the error of values: length of the scaled row x relative error */
	float slack; /* rounding of the exact distances, which decide */
};

struct Note
{
	uint32_t list;
	float low; /* lower end of its interval */
};

/* Kernel argument: the scratch memory of an assignment. */
struct AssignTables
{
	const float *centroids;
	const float *rows;
	uint32_t lists;
	uint32_t dims;
	uint32_t pitch; /* elements from one half-precision vector to the next, whole tiles */
	uint32_t count; /* rows of the piece */
	float *mean;
	__half *list_halves;
	ListSpan *list_spans;
	__half *row_halves;
	RowSpan *row_spans;
	Note *notes;
	uint32_t *counts; /* number of notes, may exceed NOTES */
	uint32_t *bounds;
	uint32_t *open; /* rows left to lists_near.cu */
	uint32_t *nopen;
	uint32_t *nearest;
	double *distances; /* or NULL */
	float error;	   /* value_error() */
	float rounding;	   /* relative, of exact distances */
};

/*
 * Upper bound of the error of a value, relative to the lengths of both vectors.
 * Rounding to half precision has a relative error of 2^-11, or an absolute one
 * of 2^-25 with the largest element at least 1/2; plus the error of tensor
 * cores; plus rounding of shifted elements and of intervals.
 */
static inline float
value_error(uint32_t dims)
{
	double halves = 0x1p-11 + 0x1p-24 * sqrt((double) dims);

	return (float) (1.002 * (2 * halves + halves * halves +
							 tensor_error(ELEMENT_HALF, dims + TILE_HALVES)) +
					0x1p-20);
}

/* The inverse of fast_key(). */
__device__ static inline float
of_fast_key(uint32_t key)
{
	return __uint_as_float(key >> 31 ? key & 0x7FFFFFFFu : ~key);
}

__global__ void __launch_bounds__(THREADS) mean_kernel(const AssignTables tables)
{
	__shared__ float sums[WARPS][MEAN_DIMS];
	uint32_t i = blockIdx.x * MEAN_DIMS + threadIdx.x % MEAN_DIMS;
	float sum = 0;

	if (i < tables.dims)
#pragma unroll 4
		for (uint32_t list = threadIdx.x / MEAN_DIMS; list < tables.lists; list += WARPS)
			sum += tables.centroids[(size_t) list * tables.dims + i];
	sums[threadIdx.x / MEAN_DIMS][threadIdx.x % MEAN_DIMS] = sum;
	__syncthreads();
	if (threadIdx.x >= MEAN_DIMS || i >= tables.dims)
		return;
	for (uint32_t warp = 1; warp < WARPS; warp++)
		sum += sums[warp][threadIdx.x];
	tables.mean[i] = sum / (float) tables.lists;
}

/* The exponent to divide elements by, so that `most` becomes less than 1. */
__device__ static inline int
exponent_of(float most)
{
	int exponent = (int) (__float_as_uint(most) >> 23 & 0xFF) - 126;

	return exponent < -100 ? -100 : exponent > 100 ? 100 : exponent;
}

__device__ static inline float
power_of(int exponent)
{
	return __uint_as_float((uint32_t) (127 + exponent) << 23);
}

/*
 * Shift, scale and round a vector. All lanes get its squared length (shifted)
 * and its exponent. Returns false if an element is too large. One warp.
 */
__device__ static inline bool
make_halves(const AssignTables &tables, const float *vector, __half *halves, double *square,
			int *exponent)
{
	float most = 0;
	double sum = 0;
	bool large = false;

	for (uint32_t i = threadIdx.x % WARP; i < tables.dims; i += WARP)
	{
		float moved = vector[i] - tables.mean[i];

		most = fmaxf(most, fabsf(moved));
		large |= !(fabsf(moved) < LARGE_ELEMENT);
		sum += (double) moved * moved;
	}
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
	{
		most = fmaxf(most, __shfl_xor_sync(FULL_WARP, most, (int) distance));
		sum += __shfl_xor_sync(FULL_WARP, sum, (int) distance);
	}
	large = __ballot_sync(FULL_WARP, large) != 0;
	*exponent = large ? 0 : exponent_of(most);
	*square = sum;
	for (uint32_t i = threadIdx.x % WARP; i < tables.pitch; i += WARP)
	{
		float moved = !large && i < tables.dims ? vector[i] - tables.mean[i] : 0;

		halves[i] = __float2half_rn(moved * power_of(-*exponent));
	}
	return !large;
}

template <bool LISTS>
__global__ void __launch_bounds__(THREADS) halves_kernel(const AssignTables tables)
{
	uint32_t at = blockIdx.x * WARPS + threadIdx.x / WARP;
	double square;
	int exponent;
	bool usable;

	if (at >= (LISTS ? tables.lists : tables.count))
		return;
	usable = make_halves(tables,
					   (LISTS ? tables.centroids : tables.rows) + (size_t) at * tables.dims,
					   (LISTS ? tables.list_halves : tables.row_halves) +
						   (size_t) at * tables.pitch,
					   &square, &exponent);
	if (threadIdx.x % WARP != 0)
		return;

	float scale = power_of(exponent);
	float length = fmaxf((float) sqrt(square) * 1.001f, scale / 2);

	if (LISTS)
	{
		float half = (float) (square / 2);

		/* a centroid with too large elements is noted by every row */
		tables.list_spans[at] = {usable ? half - half * 0x1p-20f - SMALLEST_SPAN : NAN,
								 usable ? half + half * 0x1p-20f + SMALLEST_SPAN : NAN, scale,
								 length};
	}
	else
		tables.row_spans[at] = {usable ? power_of(-exponent) : NAN,
								tables.error * (length * power_of(-exponent)),
								SMALLEST_SPAN + tables.rounding * (length * power_of(-exponent)) *
													length};
}

/* ---- tiles --------------------------------------------------------------- */

/* Shared memory of a block. */
struct AssignMemory
{
	unsigned char *stages;
	ListSpan *spans; /* SPAN_SIDES x TILE */
	uint32_t *bounds;
	uint32_t *counts;
};

__host__ __device__ static inline AssignMemory
lay_out(uint32_t stages, unsigned char *at, size_t *bytes)
{
	AssignMemory memory;
	size_t taken = (size_t) stages * STAGE_BYTES;

	memory.stages = at;
	memory.spans = (ListSpan *) (at + taken);
	taken += SPAN_SIDES * TILE * sizeof(ListSpan);
	memory.bounds = (uint32_t *) (at + taken);
	taken += TILE * sizeof(uint32_t);
	memory.counts = (uint32_t *) (at + taken);
	*bytes = taken + TILE * sizeof(uint32_t);
	return memory;
}

/* A block's position: tile of centroids, chunk of 64 dimensions. */
struct AssignStep
{
	uint32_t tile;
	uint32_t chunk;

	__device__ inline void
	next(uint32_t chunks)
	{
		if (++chunk == chunks)
		{
			chunk = 0;
			tile++;
		}
	}
};

/* Issue the copies of a stage, as one group. */
__device__ static inline void
copy_stage(const AssignTables &tables, const AssignMemory &memory, const AssignStep &step,
		   uint32_t stage)
{
	unsigned char *to = memory.stages + stage * STAGE_BYTES;
	uint32_t first_row = blockIdx.x * TILE;
	uint32_t first_list = step.tile * TILE;

	if (first_list < tables.lists)
	{
#pragma unroll
		for (uint32_t at = threadIdx.x; at < TILE * 8; at += THREADS)
		{
			uint32_t vector = at / 8;
			size_t from = step.chunk * TILE_HALVES + at % 8 * 8;
			bool row = first_row + vector < tables.count;
			bool list = first_list + vector < tables.lists;

			copy_unit(to + tile_place(vector, at % 8),
					  tables.row_halves +
						  (size_t) (first_row + (row ? vector : 0)) * tables.pitch + from,
					  row);
			copy_unit(to + SIDE_BYTES + tile_place(vector, at % 8),
					  tables.list_halves +
						  (size_t) (first_list + (list ? vector : 0)) * tables.pitch + from,
					  list);
		}
		if (step.chunk == 0 && threadIdx.x < TILE)
		{
			bool list = first_list + threadIdx.x < tables.lists;

			copy_unit(&memory.spans[step.tile % SPAN_SIDES * TILE + threadIdx.x],
					  tables.list_spans + first_list + (list ? threadIdx.x : 0), list);
		}
	}
	copies_close();
}

/* The error interval of a value. */
struct Interval
{
	float low;
	float high;
};

__device__ static inline Interval
interval_of(const RowSpan &row, const ListSpan &list, float product)
{
	float error = fmaf(row.error, list.length, row.slack);

	return {fmaf(list.low, row.scale, fmaf(-product, list.scale, -error)),
			fmaf(list.high, row.scale, fmaf(-product, list.scale, error))};
}

/* Note a centroid for a row of the block. */
__device__ static inline void
note_list(const AssignTables &tables, const AssignMemory &memory, uint32_t row, uint32_t list,
		  float low)
{
	uint32_t place;

	if (list >= tables.lists || blockIdx.x * TILE + row >= tables.count)
		return;
	place = atomicAdd(&memory.counts[row], 1u);
	if (place < NOTES)
		tables.notes[(size_t) (blockIdx.x * TILE + row) * NOTES + place] = {list, low};
}

/*
 * Compare a tile of centroids: lower the rows' bounds to the least upper end,
 * then note the centroids whose intervals begin at or below. Bounds are shared
 * by the warps without a barrier: a stale bound is looser, so it notes too many
 * centroids, never too few.
 */
__device__ static inline void
compare_tile(const AssignTables &tables, const AssignMemory &memory, uint32_t tile,
			 uint32_t first_row, uint32_t first_list, const RowSpan (&rows)[4],
			 const float (&sums)[2][8][4])
{
	const ListSpan *spans = memory.spans + tile % SPAN_SIDES * TILE + first_list;
	uint32_t lane = threadIdx.x % WARP;
	float least[4] = {HUGE_VALF, HUGE_VALF, HUGE_VALF, HUGE_VALF};

#pragma unroll
	for (uint32_t j = 0; j < 16; j++)
	{
		uint32_t at = j / 2 * 8 + lane % 4 * 2 + j % 2;
		ListSpan list = spans[at];

		if (tile * TILE + first_list + at >= tables.lists)
			continue;
#pragma unroll
		for (uint32_t r = 0; r < 4; r++)
			least[r] =
				fminf(least[r],
					  interval_of(rows[r], list, sums[r / 2][j / 2][r % 2 * 2 + j % 2]).high);
	}
#pragma unroll
	for (uint32_t r = 0; r < 4; r++)
	{
		uint32_t row = first_row + r * 8 + lane / 4;

		least[r] = fminf(least[r], __shfl_xor_sync(FULL_WARP, least[r], 1));
		least[r] = fminf(least[r], __shfl_xor_sync(FULL_WARP, least[r], 2));
		if (lane % 4 == 0)
			atomicMin(&memory.bounds[row], fast_key(least[r]));
	}
	__syncwarp();
#pragma unroll
	for (uint32_t r = 0; r < 4; r++)
		least[r] = of_fast_key(
			*(volatile const uint32_t *) &memory.bounds[first_row + r * 8 + lane / 4]);
#pragma unroll
	for (uint32_t j = 0; j < 16; j++)
	{
		uint32_t at = j / 2 * 8 + lane % 4 * 2 + j % 2;
		ListSpan list = spans[at];

#pragma unroll
		for (uint32_t r = 0; r < 4; r++)
		{
			float low = interval_of(rows[r], list, sums[r / 2][j / 2][r % 2 * 2 + j % 2]).low;

			if (!(low > least[r]))
				note_list(tables, memory, first_row + r * 8 + lane / 4,
						  tile * TILE + first_list + at, low);
		}
	}
}

template <uint32_t STAGES>
__global__ void __launch_bounds__(THREADS, ASSIGN_BLOCKS) assign_kernel(const AssignTables tables)
{
	DYNAMIC_SHARED(dynamic);
	size_t bytes;
	AssignMemory memory = lay_out(STAGES, dynamic, &bytes);
	uint32_t chunks = tables.pitch / TILE_HALVES;
	uint32_t steps = (tables.lists + TILE - 1) / TILE * chunks;
	uint32_t first_row = threadIdx.x / WARP % (TILE / WARP_ROWS) * WARP_ROWS;
	uint32_t first_list = threadIdx.x / WARP / (TILE / WARP_ROWS) * WARP_LISTS;
	AssignStep now = {0, 0},
			   ahead = {0, 0};
	RowSpan rows[4];
	float sums[2][8][4] = {};

	if (threadIdx.x < TILE)
	{
		memory.bounds[threadIdx.x] = fast_key(HUGE_VALF);
		memory.counts[threadIdx.x] = 0;
	}
#pragma unroll
	for (uint32_t r = 0; r < 4; r++)
	{
		uint32_t row = blockIdx.x * TILE + first_row + r * 8 + threadIdx.x % WARP / 4;

		rows[r] = row < tables.count ? tables.row_spans[row] : RowSpan{0, 0, 0};
	}
	for (uint32_t stage = 0; stage + 1 < STAGES; stage++, ahead.next(chunks))
		copy_stage(tables, memory, ahead, stage);
	for (uint32_t step = 0; step < steps; step++, now.next(chunks), ahead.next(chunks))
	{
		const unsigned char *stage = memory.stages + step % STAGES * STAGE_BYTES;

		copies_wait<STAGES - 2>();
		__syncthreads();
		copy_stage(tables, memory, ahead, (step + STAGES - 1) % STAGES);
		multiply_tiles<__half, 2, 8>(sums, stage, first_row, stage + SIDE_BYTES, first_list);
		if (now.chunk + 1 < chunks)
			continue;
		compare_tile(tables, memory, now.tile, first_row, first_list, rows, sums);
#pragma unroll
		for (uint32_t i = 0; i < 64; i++)
			sums[i / 32][i / 4 % 8][i % 4] = 0;
	}
	__syncthreads();
	if (threadIdx.x < TILE && blockIdx.x * TILE + threadIdx.x < tables.count)
	{
		tables.counts[blockIdx.x * TILE + threadIdx.x] = memory.counts[threadIdx.x];
		tables.bounds[blockIdx.x * TILE + threadIdx.x] = memory.bounds[threadIdx.x];
	}
}

/* ---- exact distances ----------------------------------------------------- */

__global__ void __launch_bounds__(THREADS) decide_kernel(const AssignTables tables)
{
	uint32_t row = blockIdx.x * WARPS + threadIdx.x / WARP;
	uint32_t lane = threadIdx.x % WARP;
	uint32_t count,
		list[2];
	unsigned long long left = 0;
	float bound;
	NearList best = {HUGE_VAL, NO_SLOT};

	if (row >= tables.count)
		return;
	count = tables.counts[row];
	if (count > NOTES || count == 0)
	{
		if (lane == 0)
			tables.open[atomicAdd(tables.nopen, 1u)] = row;
		return;
	}
	bound = of_fast_key(tables.bounds[row]);
	for (uint32_t half = 0; half < 2; half++)
	{
		uint32_t at = half * WARP + lane;
		Note note = {0, 0};

		if (at < count)
			note = tables.notes[(size_t) row * NOTES + at];
		list[half] = note.list;
		left |= (unsigned long long) __ballot_sync(FULL_WARP, at < count && !(note.low > bound))
				<< (half * WARP);
	}
	while (left != 0)
	{
		uint32_t mine = 0,
				 low,
				 high;
		bool there = false;
		NearList other;

		for (uint32_t team = 0; team < WARP / ENCODE_TEAM && left != 0; team++, left &= left - 1)
			if (team == 0 || team == lane / ENCODE_TEAM)
			{
				mine = (uint32_t) __ffsll((long long) left) - 1;
				there = team == lane / ENCODE_TEAM;
			}
		low = __shfl_sync(FULL_WARP, list[0], (int) (mine % WARP));
		high = __shfl_sync(FULL_WARP, list[1], (int) (mine % WARP));
		other.list = mine < WARP ? low : high;
		other.distance =
			list_distance(tables.rows + (size_t) row * tables.dims,
						  tables.centroids + (size_t) other.list * tables.dims, tables.dims);
		if (there && nearer_list(other, best))
			best = other;
	}
	for (uint32_t distance = ENCODE_TEAM; distance < WARP; distance *= 2)
	{
		NearList other = {__shfl_xor_sync(FULL_WARP, best.distance, (int) distance),
						  __shfl_xor_sync(FULL_WARP, best.list, (int) distance)};

		if (nearer_list(other, best))
			best = other;
	}
	if (lane != 0)
		return;
	tables.nearest[row] = best.list;
	if (tables.distances != NULL)
		tables.distances[row] = best.distance;
}

/* ---- launches ------------------------------------------------------------ */

cudaError_t
lists_code_prepare(const cudaDeviceProp *device, ListsLimits *limits)
{
	size_t bytes[2];
	cudaError_t error;

	lay_out(2, NULL, &bytes[0]);
	lay_out(3, NULL, &bytes[1]);
	limits->processors = (uint32_t) device->multiProcessorCount;
	limits->stages = 2 * (bytes[1] + 1024) <= device->sharedMemPerMultiprocessor ? 3 : 2;
	error = allow_shared(assign_kernel<2>, bytes[0]);
	if (error == cudaSuccess && limits->stages == 3)
		error = allow_shared(assign_kernel<3>, bytes[1]);
	return error;
}

/* Maximum rows of a piece. */
static uint32_t
piece_rows(uint32_t dims, uint32_t count)
{
	size_t rows = LISTS_PIECE / dims;
	size_t more = 2 * rows < PIECE_ROWS_MIN ? 2 * rows : PIECE_ROWS_MIN;

	rows = rows > more ? rows : more;
	return count < rows ? count : (uint32_t) rows;
}

/* Lay out tables in scratch memory; returns the bytes. */
static size_t
lay_out_tables(AssignTables *tables, uint32_t lists, uint32_t dims, uint32_t rows,
			   unsigned char *scratch)
{
	size_t pitch = round_up(dims, TILE_HALVES);
	unsigned char *at = scratch;

	tables->pitch = (uint32_t) pitch;
	tables->mean = carve<float>(&at, dims);
	tables->list_halves = carve<__half>(&at, lists * pitch);
	tables->list_spans = carve<ListSpan>(&at, lists);
	tables->row_halves = carve<__half>(&at, rows * pitch);
	tables->row_spans = carve<RowSpan>(&at, rows);
	tables->notes = carve<Note>(&at, (size_t) rows * NOTES);
	tables->counts = carve<uint32_t>(&at, rows);
	tables->bounds = carve<uint32_t>(&at, rows);
	tables->open = carve<uint32_t>(&at, rows);
	tables->nopen = carve<uint32_t>(&at, 1);
	return (size_t) (at - scratch);
}

size_t
lists_assign_bytes(uint32_t lists, uint32_t dims, uint32_t count)
{
	AssignTables tables = {};

	return lay_out_tables(&tables, lists, dims, piece_rows(dims, count), NULL);
}

/* Launch the assignment of a piece of rows. */
static cudaError_t
launch_assignment(const AssignTables *tables, uint32_t stages, cudaStream_t stream)
{
	uint32_t blocks = (tables->count + TILE - 1) / TILE;
	uint32_t warps = (tables->count + WARPS - 1) / WARPS;
	cudaError_t error;
	size_t bytes;

	LAUNCH(halves_kernel<false>, warps, THREADS, 0, stream, *tables);
	error = cudaGetLastError();
	if (error != cudaSuccess)
		return error;
	lay_out(stages, NULL, &bytes);
	if (stages == 3)
		LAUNCH(assign_kernel<3>, blocks, THREADS, bytes, stream, *tables);
	else
		LAUNCH(assign_kernel<2>, blocks, THREADS, bytes, stream, *tables);
	error = cudaGetLastError();
	if (error != cudaSuccess)
		return error;
	LAUNCH(decide_kernel, warps, THREADS, 0, stream, *tables);
	return cudaGetLastError();
}

/*
 * Assign a piece of rows; the centroids' half-precision copies exist already.
 */
static cudaError_t
assign_piece(const AssignTables *tables, const ListsAssign *assign)
{
	NearRows near = {tables->centroids, tables->lists,	 tables->dims,	   tables->rows,
					 tables->open,		tables->nopen,	 tables->nearest, tables->distances};
	cudaError_t error =
		cudaMemsetAsync(tables->nopen, 0, sizeof(uint32_t), assign->stream);

	if (error == cudaSuccess)
		error = launch_assignment(tables, assign->limits->stages, assign->stream);
	return error != cudaSuccess ? error
								: near_launch(&near, assign->limits->processors, assign->stream);
}

/* Launch the conversion of the centroids to half precision. */
static cudaError_t
launch_halves(const AssignTables *tables, cudaStream_t stream)
{
	cudaError_t error;

	LAUNCH(mean_kernel, (tables->dims + MEAN_DIMS - 1) / MEAN_DIMS, THREADS, 0, stream, *tables);
	error = cudaGetLastError();
	if (error != cudaSuccess)
		return error;
	LAUNCH(halves_kernel<true>, (tables->lists + WARPS - 1) / WARPS, THREADS, 0, stream, *tables);
	return cudaGetLastError();
}

cudaError_t
lists_assign(const ListsAssign *assign)
{
	AssignTables tables = {};
	uint32_t most = piece_rows(assign->dims, assign->count);
	uint32_t wave =
		assign->limits->processors * ASSIGN_BLOCKS * TILE; /* in whole waves, if it fills one */
	uint32_t piece = most > wave ? most / wave * wave : most;
	cudaError_t error = cudaSuccess;

	if (assign->count == 0)
		return cudaSuccess;
	lay_out_tables(&tables, assign->lists, assign->dims, most, (unsigned char *) assign->scratch);
	tables.centroids = assign->centroids;
	tables.lists = assign->lists;
	tables.dims = assign->dims;
	tables.error = value_error(assign->dims);
	tables.rounding = (float) (assign->dims + 16) * 0x1p-52f;
	error = launch_halves(&tables, assign->stream);
	for (uint32_t done = 0; done < assign->count && error == cudaSuccess; done += piece)
	{
		tables.rows = assign->rows + (size_t) done * assign->dims;
		tables.count = assign->count - done < piece ? assign->count - done : piece;
		tables.nearest = assign->nearest + done;
		tables.distances = assign->distances != NULL ? assign->distances + done : NULL;
		error = assign_piece(&tables, assign);
	}
	return error;
}
