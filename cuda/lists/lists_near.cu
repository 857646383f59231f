/*
 * lists_near.cu
 *		Nearest centroids of rows that products leave open too widely: by
 *		comparing them with every centroid.
 *
 * near_kernel
 *		grid	two blocks an SM, 256 threads; blocks take groups of rows in
 *				turn
 *		work	up to 8 rows are in shared memory; a warp reads every 8th
 *				centroid, once for all of them. A squared distance in single
 *				precision, of differences, says whether a centroid may be nearer
 *				than the best that the warp knows; then it is measured in double
 *		shared	8 rows, of more than 1,536 dimensions fewer
 *		global	reads all centroids for a group of rows, from L2
 * Bound: L2, 4 x dims x lists / 8 bytes a row.
 */
#include "cuda/lists/lists_assign.h"

extern "C"
{
#include "engine/distance.h"
}

#define THREADS 256u
#define WARPS (THREADS / WARP)
#define NEAR_ROWS 8u
#define ROWS_BYTES 47104u /* of shared memory, for a group of rows */
#define NEAR_BLOCKS 2u	/* per SM */

static_assert(ROWS_BYTES >= QUANTIZER_MAX_DIMS * sizeof(float), "a block has room for a row");

/* Maximum error of distances in single precision. */
struct FastError
{
	double relative;
	double absolute;
};

/* Compare a centroid with a group of rows. One warp. */
__device__ static inline void
compare_list(const NearRows &rows, const float *group, uint32_t count, uint32_t list,
			 const FastError &error, NearList (&best)[NEAR_ROWS])
{
	const float *centroid = rows.centroids + (size_t) list * rows.dims;
	float fast[NEAR_ROWS];

#pragma unroll
	for (uint32_t r = 0; r < NEAR_ROWS; r++)
		fast[r] = 0;
	for (uint32_t i = threadIdx.x % WARP; i < rows.dims; i += WARP)
	{
		float c = centroid[i];

#pragma unroll
		for (uint32_t r = 0; r < NEAR_ROWS; r++)
			if (r < count)
			{
				float difference = group[r * rows.dims + i] - c;

				fast[r] = fmaf(difference, difference, fast[r]);
			}
	}
#pragma unroll
	for (uint32_t r = 0; r < NEAR_ROWS; r++)
	{
		if (r >= count)
			continue;
		for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
			fast[r] += __shfl_xor_sync(FULL_WARP, fast[r], (int) distance);
		if (fast[r] < HUGE_VALF &&
			fast[r] * (1 - error.relative) - error.absolute > best[r].distance)
			continue;

		NearList other = {list_distance(group + r * rows.dims, centroid, rows.dims), list};

		if (nearer_list(other, best[r]))
			best[r] = other;
	}
}

__global__ void __launch_bounds__(THREADS) near_kernel(const NearRows rows, uint32_t of_group)
{
	DYNAMIC_SHARED(memory);
	__shared__ NearList found[WARPS][NEAR_ROWS];
	float *group = (float *) memory;
	uint32_t open = *rows.nopen;
	double rounding = ((double) rows.dims + FAST_EXTRA_ROUNDINGS) * FAST_UNIT_ROUNDOFF;
	FastError error = {2 * rounding / (1 - rounding),
					   ((double) rows.dims + FAST_EXTRA_ROUNDINGS) * FAST_SMALLEST};

	for (uint32_t first = blockIdx.x * of_group; first < open; first += gridDim.x * of_group)
	{
		uint32_t count = open - first < of_group ? open - first : of_group;
		NearList best[NEAR_ROWS];

		__syncthreads();
		for (uint32_t r = 0; r < count; r++)
			for (uint32_t i = threadIdx.x; i < rows.dims; i += THREADS)
				group[r * rows.dims + i] =
					rows.rows[(size_t) rows.open[first + r] * rows.dims + i];
		__syncthreads();
#pragma unroll
		for (uint32_t r = 0; r < NEAR_ROWS; r++)
			best[r] = {HUGE_VAL, 0};
		for (uint32_t list = threadIdx.x / WARP; list < rows.lists; list += WARPS)
			compare_list(rows, group, count, list, error, best);
		if (threadIdx.x % WARP == 0)
		{
#pragma unroll
			for (uint32_t r = 0; r < NEAR_ROWS; r++)
				found[threadIdx.x / WARP][r] = best[r];
		}
		__syncthreads();
		if (threadIdx.x < count)
		{
			uint32_t row = rows.open[first + threadIdx.x];
			NearList least = found[0][threadIdx.x];

			for (uint32_t warp = 1; warp < WARPS; warp++)
				if (nearer_list(found[warp][threadIdx.x], least))
					least = found[warp][threadIdx.x];
			rows.nearest[row] = least.list;
			if (rows.distances != NULL)
				rows.distances[row] = least.distance;
		}
	}
}

cudaError_t
near_launch(const NearRows *rows, uint32_t processors, cudaStream_t stream)
{
	uint32_t each = rows->dims * (uint32_t) sizeof(float);
	uint32_t of_group = ROWS_BYTES / each < NEAR_ROWS ? ROWS_BYTES / each : NEAR_ROWS;

	LAUNCH(near_kernel, processors * NEAR_BLOCKS, THREADS, (size_t) of_group * each, stream, *rows,
		   of_group);
	return cudaGetLastError();
}
