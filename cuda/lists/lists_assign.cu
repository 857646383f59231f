/*
 * lists_assign.cu
 *		The nearest centroid of each row: products by tensor cores exclude most
 *		centroids; exact distances decide among the rest.
 *
 * The value of a row and a centroid has an error interval (lists_halves.cuh); a
 * centroid whose interval begins above the least upper end cannot be the
 * nearest.
 *
 * halves_kernel	a warp per row, 256 threads: reads 4 bytes an element twice,
 *					writes 2
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
#include "cuda/lists/lists_halves.cuh"

#define THREADS TILE_THREADS
#define WARPS (THREADS / WARP)
#define NOTES 64u		  /* centroids noted per row */
#define PIECE_ROWS_MIN 40960u /* minimum rows per launch, unless they are long: one wave of
							   * blocks */

static_assert(ASSIGN_ROWS == TILE, "a block takes a tile of rows");

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
	uint32_t count; /* rows of the piece */
	ListHalves halves;
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

__global__ void __launch_bounds__(THREADS) halves_kernel(const AssignTables tables)
{
	uint32_t at = blockIdx.x * WARPS + threadIdx.x / WARP;
	MovedVector moved;
	float scale,
		length;

	if (at >= tables.count)
		return;
	moved = make_halves(tables.halves, tables.dims, tables.rows + (size_t) at * tables.dims,
						tables.row_halves + (size_t) at * tables.halves.pitch);
	if (threadIdx.x % WARP != 0)
		return;
	scale = power_of(-moved.exponent);
	length = length_of(moved);
	tables.row_spans[at] = {moved.usable ? scale : NAN, tables.error * (length * scale),
							SMALLEST_SPAN + tables.rounding * (length * scale) * length};
}

/* ---- tiles --------------------------------------------------------------- */

/* Shared memory of a block. */
struct AssignMemory
{
	HalfTiles tiles;
	uint32_t *bounds;
	uint32_t *counts;
};

__host__ __device__ static inline AssignMemory
lay_out(uint32_t stages, unsigned char *at, size_t *bytes)
{
	AssignMemory memory;

	memory.tiles = half_tiles(stages, at, bytes);
	memory.bounds = (uint32_t *) (at + *bytes);
	*bytes += TILE * sizeof(uint32_t);
	memory.counts = (uint32_t *) (at + *bytes);
	*bytes += TILE * sizeof(uint32_t);
	return memory;
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
			 const ListSpan *spans, const RowSpan (&rows)[4], const float (&sums)[2][8][4])
{
	uint32_t first_row = warp_row(),
			 first_list = warp_list();
	uint32_t lane = threadIdx.x % WARP;
	float least[4] = {HUGE_VALF, HUGE_VALF, HUGE_VALF, HUGE_VALF};

#pragma unroll
	for (uint32_t j = 0; j < 16; j++)
	{
		uint32_t at = j / 2 * 8 + lane % 4 * 2 + j % 2;
		ListSpan list = spans[first_list + at];

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
		least[r] = distance_of_key(
			*(volatile const uint32_t *) &memory.bounds[first_row + r * 8 + lane / 4]);
#pragma unroll
	for (uint32_t j = 0; j < 16; j++)
	{
		uint32_t at = j / 2 * 8 + lane % 4 * 2 + j % 2;
		ListSpan list = spans[first_list + at];

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
	HalfRows operand = {tables.row_halves, tables.count};
	RowSpan rows[4];

	if (threadIdx.x < TILE)
	{
		memory.bounds[threadIdx.x] = fast_key(HUGE_VALF);
		memory.counts[threadIdx.x] = 0;
	}
#pragma unroll
	for (uint32_t r = 0; r < 4; r++)
	{
		uint32_t row = blockIdx.x * TILE + warp_row() + r * 8 + threadIdx.x % WARP / 4;

		rows[r] = row < tables.count ? tables.row_spans[row] : RowSpan{0, 0, 0};
	}
	multiply_halves<STAGES>(tables.halves, tables.lists, operand, memory.tiles, 0,
							(tables.lists + TILE - 1) / TILE,
							[&](uint32_t tile, const ListSpan *spans, const float(&sums)[2][8][4]) {
								compare_tile(tables, memory, tile, spans, rows, sums);
							});
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
	bound = distance_of_key(tables.bounds[row]);
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
	unsigned char *at = scratch + lists_halves_bytes(lists, dims);

	tables->halves = lists_halves_at(scratch, lists, dims);
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

	LAUNCH(halves_kernel, warps, THREADS, 0, stream, *tables);
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

cudaError_t
lists_assign(const ListsAssign *assign)
{
	AssignTables tables = {};
	ListsView view = {};
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
	view.shape.dims = assign->dims;
	view.shape.metric = METRIC_L2;
	view.lists = assign->lists;
	view.centroids = assign->centroids;
	error = lists_make_halves(&view, &tables.halves, assign->stream);
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
