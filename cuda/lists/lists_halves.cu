/*
 * lists_halves.cu
 *		Centroids in half precision, shifted to their mean (lists_halves.cuh).
 *
 * lists_mean_kernel	blocks of 32 dimensions, 256 threads: the mean
 * list_halves_kernel	a warp per centroid, 256 threads: reads 4 bytes an
 *						element twice, writes 2
 */
#include "cuda/lists/lists_halves.cuh"

#define THREADS 256u
#define WARPS (THREADS / WARP)
#define MEAN_DIMS 32u

__global__ void __launch_bounds__(THREADS) lists_mean_kernel(const ListsView lists, float *mean)
{
	__shared__ float sums[WARPS][MEAN_DIMS];
	uint32_t dims = lists.shape.dims;
	uint32_t i = blockIdx.x * MEAN_DIMS + threadIdx.x % MEAN_DIMS;
	float sum = 0;

	if (i < dims)
#pragma unroll 4
		for (uint32_t list = threadIdx.x / MEAN_DIMS; list < lists.lists; list += WARPS)
			sum += lists.centroids[(size_t) list * dims + i];
	sums[threadIdx.x / MEAN_DIMS][threadIdx.x % MEAN_DIMS] = sum;
	__syncthreads();
	if (threadIdx.x >= MEAN_DIMS || i >= dims)
		return;
	for (uint32_t warp = 1; warp < WARPS; warp++)
		sum += sums[warp][threadIdx.x];
	mean[i] = sum / (float) lists.lists;
}

__global__ void __launch_bounds__(THREADS)
	list_halves_kernel(const ListsView lists, const ListHalves halves)
{
	uint32_t list = blockIdx.x * WARPS + threadIdx.x / WARP;
	uint32_t dims = lists.shape.dims;
	const float *centroid = lists.centroids + (size_t) list * dims,
				*mean = halves.mean;
	double product = 0,
		   square = 0;
	MovedVector moved;
	float part,
		error,
		length;

	if (list >= lists.lists)
		return;
	moved = make_halves(halves, dims, centroid, halves.elements + (size_t) list * halves.pitch);
	if (lists.shape.metric == METRIC_IP)
		for (uint32_t i = threadIdx.x % WARP; i < dims; i += WARP)
		{
			product += (double) mean[i] * (centroid[i] - mean[i]);
			square += (double) mean[i] * mean[i];
		}
	product = sum_of_lanes(product);
	square = sum_of_lanes(square);
	if (threadIdx.x % WARP != 0)
		return;
	length = length_of(moved);
	part = (float) (lists.shape.metric == METRIC_IP ? -product : moved.square / 2);
	/*
	 * products with the mean have the rounding errors of shifted elements; half
	 * norms are rounded in the values to which lists_probe.cu compares
	 */
	error = fabsf(part) * 0x1p-20f + (float) sqrt(square) * length * 0x1p-23f + SMALLEST_SPAN;
	if (lists.half_norms != NULL)
		error += lists.half_norms[list] * 0x1p-22f;
	halves.spans[list] = {moved.usable ? part - error : NAN, moved.usable ? part + error : NAN,
						  power_of(moved.exponent), length};
}

static ListHalves
take_halves(unsigned char **at, uint32_t lists, uint32_t dims)
{
	ListHalves halves;

	halves.pitch = (uint32_t) round_up(dims, TILE_HALVES);
	halves.elements = carve<__half>(at, (size_t) lists * halves.pitch);
	halves.spans = carve<ListSpan>(at, lists);
	halves.mean = carve<float>(at, dims);
	return halves;
}

size_t
lists_halves_bytes(uint32_t lists, uint32_t dims)
{
	unsigned char *at = NULL;

	(void) take_halves(&at, lists, dims);
	return (size_t) at;
}

ListHalves
lists_halves_at(void *memory, uint32_t lists, uint32_t dims)
{
	unsigned char *at = (unsigned char *) memory;

	return take_halves(&at, lists, dims);
}

cudaError_t
lists_make_halves(const ListsView *lists, const ListHalves *halves, cudaStream_t stream)
{
	if (lists->lists == 0)
		return cudaSuccess;
	LAUNCH(lists_mean_kernel, (lists->shape.dims + MEAN_DIMS - 1) / MEAN_DIMS, THREADS, 0, stream,
		   *lists, halves->mean);
	LAUNCH(list_halves_kernel, (lists->lists + WARPS - 1) / WARPS, THREADS, 0, stream, *lists,
		   *halves);
	return cudaGetLastError();
}
