/*
 * lists_code.cu
 *		Adding rows to lists: conversion to single precision, encoding,
 *		placement in blocks; norms of centroids.
 *
 * widen_kernel
 *		grid	rows / 8, 256 threads: a warp per row, which is read twice under
 *				cosine
 * half_norms_kernel
 *		grid	centroids / 128, 128 threads: a thread per centroid, since the
 *				sum has one order
 * encode_kernel (int8, rabitq)
 *		grid	rows / warps of a block, up to 8 warps, so that they have 48 KB
 *		work	a warp per row: rotates the centroid (L2) and the residual,
 *				then makes numbers and sums (cuda/quantizer/encode.cuh)
 *		shared	three vectors in single precision for each warp
 *		bound	latency of sums in double and of the steps of rotations; 12,000
 *				cycles a row of 768 dimensions, 20 and more warps an SM
 * pq_nearest_kernel (cuda/quantizer/pq_nearest.cuh), then
 * pq_numbers_kernel
 *		grid	as encode_kernel
 *		work	a warp per row: the four sums of its code at once
 *		shared	three vectors for each warp
 * place_kernel, clear_kernel
 *		grid	rows / 256, 256 threads: a thread per row, so that rows at
 *				neighbouring places write 128 bytes together
 *
 * Each reads rows and centroids once and writes codes once.
 */
#include "cuda/lists/lists_code.h"
#include "cuda/quantizer/encode.cuh"
#include "cuda/quantizer/pq_nearest.cuh"

#define THREADS 256u
#define WARPS (THREADS / WARP)
#define NORM_THREADS 128u
#define VECTORS_BYTES 49152u /* of shared memory, for a block's vectors */
#define VECTORS 3u			 /* of a warp */

static_assert(VECTORS * QUANTIZER_MAX_DIMS * sizeof(float) <= VECTORS_BYTES,
			  "a block has room for one warp's vectors");

/* ---- rows ---------------------------------------------------------------- */

template <typename T>
__global__ void __launch_bounds__(THREADS)
	widen_kernel(const MirrorView mirror, const uint32_t *slots, uint32_t first, uint32_t count,
				 float *rows)
{
	uint32_t at = blockIdx.x * WARPS + threadIdx.x / WARP;
	const T *row;
	float *to = rows + (size_t) at * mirror.dims;
	double length = 0;

	if (at >= count)
		return;
	row = row_of<T>(mirror, slots != NULL ? slots[at] : first + at);
	if (mirror.metric == METRIC_COSINE)
		length = sqrt(exact_team_sum(mirror.dims, [&](double *sum, uint32_t i) {
			add_term<TERM_PRODUCT>(sum, (float) row[i], (float) row[i]);
		}));
	for (uint32_t i = threadIdx.x % WARP; i < mirror.dims; i += WARP)
	{
		float value = (float) row[i];

		to[i] = length > 0 && length < HUGE_VAL ? (float) ((double) value / length) : value;
	}
}

cudaError_t
lists_widen(const MirrorView *mirror, const uint32_t *slots, uint32_t first, uint32_t count,
			float *rows, cudaStream_t stream)
{
	uint32_t blocks = (count + WARPS - 1) / WARPS;

	if (count == 0)
		return cudaSuccess;
	if (mirror->type == ELEMENT_HALF)
		LAUNCH(widen_kernel<__half>, blocks, THREADS, 0, stream, *mirror, slots, first, count,
			   rows);
	else if (mirror->type == ELEMENT_FLOAT)
		LAUNCH(widen_kernel<float>, blocks, THREADS, 0, stream, *mirror, slots, first, count, rows);
	else
		return cudaErrorInvalidValue;
	return cudaGetLastError();
}

__global__ void __launch_bounds__(NORM_THREADS)
	half_norms_kernel(const float *centroids, uint32_t lists, uint32_t dims, float *half_norms)
{
	uint32_t list = blockIdx.x * NORM_THREADS + threadIdx.x;
	const float *centroid = centroids + (size_t) list * dims;
	double square = 0;

	if (list >= lists)
		return;
#pragma unroll 8
	for (uint32_t i = 0; i < dims; i++)
		square = add_product(square, (double) centroid[i], (double) centroid[i]);
	half_norms[list] = (float) (square / 2);
}

cudaError_t
lists_half_norms(const float *centroids, uint32_t lists, uint32_t dims, float *half_norms,
				 cudaStream_t stream)
{
	if (lists == 0)
		return cudaSuccess;
	LAUNCH(half_norms_kernel, (lists + NORM_THREADS - 1) / NORM_THREADS, NORM_THREADS, 0, stream,
		   centroids, lists, dims, half_norms);
	return cudaGetLastError();
}

/* ---- codes --------------------------------------------------------------- */

/*
 * Warps of a block, limited by the shared memory for their vectors, and its
 * bytes.
 */
static uint32_t
vector_warps(uint32_t dims, size_t *bytes)
{
	uint32_t each = VECTORS * dims * (uint32_t) sizeof(float);
	uint32_t warps = VECTORS_BYTES / each;

	warps = warps < WARPS ? warps : WARPS;
	*bytes = (size_t) warps * each;
	return warps;
}

template <bool RABITQ>
__global__ void __launch_bounds__(THREADS)
	encode_kernel(const ListsView lists, const float *rows, const uint32_t *numbers,
				  uint32_t count, uint32_t *codes)
{
	DYNAMIC_SHARED(memory);
	uint32_t at = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
	uint32_t dims = lists.shape.dims;
	float *first = (float *) memory + (size_t) VECTORS * dims * (threadIdx.x / WARP);
	float *free = first;
	float *rotated = NULL;
	float *residual;
	const float *row,
		*centroid;

	if (at >= count || numbers[at] == NO_SLOT)
		return;
	row = rows + (size_t) at * dims;
	centroid = lists.centroids + (size_t) numbers[at] * dims;
	if (lists.shape.metric == METRIC_L2)
	{
		for (uint32_t i = threadIdx.x % WARP; i < dims; i += WARP)
			first[i] = centroid[i];
		rotated = rotate_coded(lists.rotation, RABITQ, dims, first, first + dims);
		free = rotated == first ? first + dims : first;
	}
	residual = first + 2 * dims;
	for (uint32_t i = threadIdx.x % WARP; i < dims; i += WARP)
		residual[i] = row[i] - centroid[i];
	residual = rotate_coded(lists.rotation, RABITQ, dims, residual, free);
	encode_rotated<RABITQ>(lists.shape, residual, rotated, codes + (size_t) at * lists.code_words,
						   lists.code_words);
}

__global__ void __launch_bounds__(THREADS)
	pq_numbers_kernel(const ListsView lists, const float *rows, const uint32_t *numbers,
					  uint32_t count, uint32_t *codes)
{
	DYNAMIC_SHARED(memory);
	uint32_t at = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
	uint32_t dims = lists.shape.dims;
	float *residual = (float *) memory + (size_t) VECTORS * dims * (threadIdx.x / WARP);
	float *decoded = residual + dims,
		  *centroid = decoded + dims;
	uint32_t *code = codes + (size_t) at * lists.code_words;
	CodeNumbers made;

	if (at >= count || numbers[at] == NO_SLOT)
		return;
	for (uint32_t i = threadIdx.x % WARP; i < dims; i += WARP)
	{
		centroid[i] = lists.centroids[(size_t) numbers[at] * dims + i];
		residual[i] = rows[(size_t) at * dims + i] - centroid[i];
		decoded[i] = pq_decoded(lists.shape, lists.codebook, code, i);
	}
	__syncwarp();
	made = pq_code_numbers(lists.shape, residual, decoded, centroid);
	if (threadIdx.x % WARP == 0)
	{
		code[lists.code_words - 2] = __float_as_uint(made.term);
		code[lists.code_words - 1] = __float_as_uint(made.error);
	}
}

/*
 * Encode by pq: the codewords of all sub-spaces, then the code's term and
 * error.
 */
static cudaError_t
encode_pieces(const ListsView *lists, const float *rows, const uint32_t *numbers, uint32_t count,
			  uint32_t *codes, cudaStream_t stream)
{
	PqPieces pieces = {};
	size_t bytes;
	uint32_t warps = vector_warps(lists->shape.dims, &bytes);
	cudaError_t error = cudaMemsetAsync(
		codes, 0, (size_t) count * lists->code_words * sizeof(uint32_t), stream);

	pieces.rows = rows;
	pieces.stride = lists->shape.dims;
	pieces.numbers = numbers;
	pieces.centroids = lists->centroids;
	pieces.codebook = lists->codebook;
	pieces.dims = lists->shape.dims;
	pieces.parts = lists->shape.parts;
	pieces.bits = lists->shape.bits;
	pieces.count = count;
	pieces.codes = codes;
	pieces.code_words = lists->code_words;
	if (error == cudaSuccess)
		error = pq_nearest(&pieces, lists->shape.parts, stream);
	if (error != cudaSuccess)
		return error;
	LAUNCH(pq_numbers_kernel, (count + warps - 1) / warps, warps * WARP, bytes, stream, *lists,
		   rows, numbers, count, codes);
	return cudaGetLastError();
}

cudaError_t
lists_encode(const ListsView *lists, const float *rows, const uint32_t *numbers, uint32_t count,
			 uint32_t *codes, cudaStream_t stream)
{
	size_t bytes;
	uint32_t warps = vector_warps(lists->shape.dims, &bytes);

	if (count == 0)
		return cudaSuccess;
	if (lists->shape.kind == QUANTIZER_PQ)
		return encode_pieces(lists, rows, numbers, count, codes, stream);
	if (lists->shape.kind == QUANTIZER_RABITQ)
		LAUNCH(encode_kernel<true>, (count + warps - 1) / warps, warps * WARP, bytes, stream,
			   *lists, rows, numbers, count, codes);
	else
		LAUNCH(encode_kernel<false>, (count + warps - 1) / warps, warps * WARP, bytes, stream,
			   *lists, rows, numbers, count, codes);
	return cudaGetLastError();
}

/* ---- blocks -------------------------------------------------------------- */

__global__ void __launch_bounds__(THREADS)
	place_kernel(const ListsView lists, uint32_t *memory, const uint32_t *codes,
				 const uint32_t *slots, const uint32_t *places, uint32_t count)
{
	uint32_t at = blockIdx.x * THREADS + threadIdx.x;
	const uint32_t *code = codes + (size_t) at * lists.code_words;
	uint32_t *block;

	if (at >= count || places[at] == NO_SLOT)
		return;
	block = memory + (size_t) (places[at] / LIST_PLACES) * lists.block_words +
			places[at] % LIST_PLACES;
	for (uint32_t word = 0; word < lists.code_words; word++)
		block[(word + 1) * LIST_PLACES] = code[word];
	block[0] = slots[at];
}

cudaError_t
lists_place(const ListsView *lists, uint32_t *memory, const uint32_t *codes,
			const uint32_t *slots, const uint32_t *places, uint32_t count, cudaStream_t stream)
{
	if (count == 0)
		return cudaSuccess;
	LAUNCH(place_kernel, (count + THREADS - 1) / THREADS, THREADS, 0, stream, *lists, memory,
		   codes, slots, places, count);
	return cudaGetLastError();
}

__global__ void __launch_bounds__(THREADS)
	clear_kernel(const ListsView lists, uint32_t *memory, const uint32_t *places, uint32_t count)
{
	uint32_t at = blockIdx.x * THREADS + threadIdx.x;

	if (at < count && places[at] != NO_SLOT)
		memory[(size_t) (places[at] / LIST_PLACES) * lists.block_words +
			   places[at] % LIST_PLACES] = NO_SLOT;
}

cudaError_t
lists_clear_places(const ListsView *lists, uint32_t *memory, const uint32_t *places,
				   uint32_t count, cudaStream_t stream)
{
	if (count == 0)
		return cudaSuccess;
	LAUNCH(clear_kernel, (count + THREADS - 1) / THREADS, THREADS, 0, stream, *lists, memory,
		   places, count);
	return cudaGetLastError();
}
