/*
 * lists_halves.cuh
 *		Products of vectors and centroids by tensor cores, with error intervals.
 *
 * Vectors are shifted so that the centroids' mean is the origin, scaled by a
 * power of two so that the largest element is below 1, and rounded to half
 * precision. The value of a vector and a centroid orders centroids as the
 * distance does: half the centroid's squared norm, or for products the product
 * of mean and shifted centroid, negative; minus the product of both shifted
 * vectors. Values are in terms of the scaled vector. Their error is
 * proportional to both lengths (value_error()), so each has an error interval.
 *
 * A block of 256 threads multiplies tiles of 128 vectors and 128 centroids, 64
 * dimensions of each at a time, in stages of asynchronous copies (32 KB each);
 * a warp multiplies 32 x 64, with its 64 sums a thread in registers.
 */
#ifndef GPUANN_CUDA_LISTS_HALVES_CUH
#define GPUANN_CUDA_LISTS_HALVES_CUH

#include "cuda/exact/tensor.cuh"
#include "cuda/lists/lists_code.h"

#define TILE 128u /* vectors, and centroids */
#define TILE_THREADS 256u
#define TILE_BLOCKS 2u /* per SM */
#define WARP_ROWS 32u
#define WARP_LISTS 64u
#define TILE_HALVES 64u /* of a vector, per stage */
#define SIDE_BYTES (TILE * TILE_BYTES)
#define STAGE_BYTES (2 * SIDE_BYTES)
#define SPAN_SIDES 4u /* tiles of centroids whose spans stay in shared memory */
#define LARGE_ELEMENT 1e15f /* vectors with larger elements are compared exactly only */
#define SMALLEST_SPAN 0x1p-140f

/* A centroid's contribution to an error interval; aligned for one load. */
struct alignas(16) ListSpan
{
	float low;	  /* its part of values, minus the error of that part */
	float high;	  /* plus its error; both NaN: every interval is undefined */
	float scale;  /* of its half-precision elements, a power of two */
	float length; /* upper bound of its length */
};

/* A vector's contribution. */
struct RowSpan
{
	float scale; /* reciprocal scale of its half-precision elements; NaN: its intervals are
				  * undefined */
	float error; /* upper bound of the error of values: length of the scaled row x relative error */
	float slack; /* error that does not depend on the centroid */
};

/* The error interval of a value. */
struct Interval
{
	float low;
	float high;
};

/* A vector that was converted. */
struct MovedVector
{
	double square; /* of the shifted vector's length */
	int exponent;  /* elements were divided by 2^exponent */
	bool usable;   /* false: an element is too large, or NaN */
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

/* The sum over all lanes. */
__device__ static inline double
sum_of_lanes(double sum)
{
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		sum += __shfl_xor_sync(FULL_WARP, sum, (int) distance);
	return sum;
}

/* Shift, scale and round a vector. One warp; all lanes get the result. */
__device__ static inline MovedVector
make_halves(const ListHalves &lists, uint32_t dims, const float *vector, __half *halves)
{
	MovedVector made = {0, 0, true};
	float most = 0;
	double sum = 0;
	bool large = false;

	for (uint32_t i = threadIdx.x % WARP; i < dims; i += WARP)
	{
		float moved = vector[i] - lists.mean[i];

		most = fmaxf(most, fabsf(moved));
		large |= !(fabsf(moved) < LARGE_ELEMENT);
		sum += (double) moved * moved;
	}
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		most = fmaxf(most, __shfl_xor_sync(FULL_WARP, most, (int) distance));
	made.usable = __ballot_sync(FULL_WARP, large) == 0;
	made.exponent = made.usable ? exponent_of(most) : 0;
	made.square = sum_of_lanes(sum);
	for (uint32_t i = threadIdx.x % WARP; i < lists.pitch; i += WARP)
	{
		float moved = made.usable && i < dims ? vector[i] - lists.mean[i] : 0;

		halves[i] = __float2half_rn(moved * power_of(-made.exponent));
	}
	return made;
}

/* Upper bound of a shifted vector's length. */
__device__ static inline float
length_of(const MovedVector &moved)
{
	return fmaxf((float) sqrt(moved.square) * 1.001f, power_of(moved.exponent) / 2);
}

__device__ static inline Interval
interval_of(const RowSpan &row, const ListSpan &list, float product)
{
	float error = fmaf(row.error, list.length, row.slack);

	return {fmaf(list.low, row.scale, fmaf(-product, list.scale, -error)),
			fmaf(list.high, row.scale, fmaf(-product, list.scale, error))};
}

/* ---- tiles --------------------------------------------------------------- */

/* Shared memory of a block's tiles. */
struct HalfTiles
{
	unsigned char *stages;
	ListSpan *spans; /* SPAN_SIDES x TILE */
};

__host__ __device__ static inline HalfTiles
half_tiles(uint32_t stages, unsigned char *at, size_t *bytes)
{
	size_t taken = (size_t) stages * STAGE_BYTES;
	HalfTiles tiles = {at, (ListSpan *) (at + taken)};

	*bytes = taken + SPAN_SIDES * TILE * sizeof(ListSpan);
	return tiles;
}

/* Vectors in half precision, in rows of the centroids' pitch. */
struct HalfRows
{
	const __half *elements;
	uint32_t count;
};

/* The first row of a warp, and the first centroid, in a tile. */
__device__ static inline uint32_t
warp_row()
{
	return threadIdx.x / WARP % (TILE / WARP_ROWS) * WARP_ROWS;
}

__device__ static inline uint32_t
warp_list()
{
	return threadIdx.x / WARP / (TILE / WARP_ROWS) * WARP_LISTS;
}

/* A block's position: tile of centroids, chunk of 64 dimensions. */
struct TileStep
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
copy_stage(const ListHalves &lists, uint32_t nlists, const HalfRows &rows, const HalfTiles &tiles,
		   const TileStep &step, uint32_t end, uint32_t stage)
{
	unsigned char *to = tiles.stages + stage * STAGE_BYTES;
	uint32_t first_row = blockIdx.x * TILE;
	uint32_t first_list = step.tile * TILE;

	if (step.tile < end)
	{
#pragma unroll
		for (uint32_t at = threadIdx.x; at < TILE * 8; at += TILE_THREADS)
		{
			uint32_t vector = at / 8;
			size_t from = step.chunk * TILE_HALVES + at % 8 * 8;
			bool row = first_row + vector < rows.count;
			bool list = first_list + vector < nlists;

			copy_unit(to + tile_place(vector, at % 8),
					  rows.elements + (size_t) (first_row + (row ? vector : 0)) * lists.pitch +
						  from,
					  row);
			copy_unit(to + SIDE_BYTES + tile_place(vector, at % 8),
					  lists.elements + (size_t) (first_list + (list ? vector : 0)) * lists.pitch +
						  from,
					  list);
		}
		if (step.chunk == 0 && threadIdx.x < TILE)
		{
			bool list = first_list + threadIdx.x < nlists;

			copy_unit(&tiles.spans[step.tile % SPAN_SIDES * TILE + threadIdx.x],
					  lists.spans + first_list + (list ? threadIdx.x : 0), list);
		}
	}
	copies_close();
}

/*
 * Multiply 128 rows, from blockIdx.x x 128 on, and the tiles [begin, end) of
 * centroids. After each tile compare(tile, spans, sums) gets the spans of its
 * centroids and the products: sums[r / 2][j / 2][r % 2 * 2 + j % 2] of row
 * warp_row() + 8 r + lane / 4 and of centroid warp_list() + j / 2 * 8 + lane %
 * 4 * 2 + j % 2 of the tile, r < 4, j < 16. All threads; no barrier at the end.
 */
template <uint32_t STAGES, class Compare>
__device__ static inline void
multiply_halves(const ListHalves &lists, uint32_t nlists, const HalfRows &rows,
				const HalfTiles &tiles, uint32_t begin, uint32_t end, Compare compare)
{
	uint32_t chunks = lists.pitch / TILE_HALVES;
	uint32_t steps = (end - begin) * chunks;
	TileStep now = {begin, 0},
			 ahead = {begin, 0};
	float sums[2][8][4] = {};

	for (uint32_t stage = 0; stage + 1 < STAGES; stage++, ahead.next(chunks))
		copy_stage(lists, nlists, rows, tiles, ahead, end, stage);
	for (uint32_t step = 0; step < steps; step++, now.next(chunks), ahead.next(chunks))
	{
		const unsigned char *stage = tiles.stages + step % STAGES * STAGE_BYTES;

		copies_wait<STAGES - 2>();
		__syncthreads();
		copy_stage(lists, nlists, rows, tiles, ahead, end, (step + STAGES - 1) % STAGES);
		multiply_tiles<__half, 2, 8>(sums, stage, warp_row(), stage + SIDE_BYTES, warp_list());
		if (now.chunk + 1 < chunks)
			continue;
		compare(now.tile, tiles.spans + now.tile % SPAN_SIDES * TILE, sums);
#pragma unroll
		for (uint32_t i = 0; i < 64; i++)
			sums[i / 32][i / 4 % 8][i % 4] = 0;
	}
}

#endif /* GPUANN_CUDA_LISTS_HALVES_CUH */
