/*
 * lists_means.cu
 *		A round of k-means after the assignment: means, lists without rows; the
 *		inertia of the last one.
 *
 * keys_kernel, first_kernel
 *		a thread per row, 256 threads: keys by which the rows of all sub-spaces
 *		are sorted, and where their lists begin among the sorted
 * move_kernel
 *		grid	(lists of all sub-spaces, dimensions / 128), up to 128
 *				threads: a thread per dimension adds its list's rows up in
 *				their order, 8 loads ahead
 *		global	reads all rows once. Bound: memory, or the largest list's length
 * seed_lists_kernel
 *		one block of 512 threads per sub-space: list after list, the largest
 *		one is looked for by all
 * inertia_kernel
 *		one block of 1,024 threads, once in a training
 * residuals_kernel
 *		a warp per row, 256 threads
 */
#include "cuda/lists/lists_means.h"

#define THREADS 256u
#define WARPS (THREADS / WARP)
#define MOVE_THREADS 128u
#define SEED_THREADS 512u
#define SUM_THREADS 1024u

/* ---- means --------------------------------------------------------------- */

__global__ void __launch_bounds__(THREADS)
	keys_kernel(const MeansView view, Key *keys, uint32_t *slots)
{
	uint32_t row = blockIdx.x * THREADS + threadIdx.x;
	size_t at = (size_t) blockIdx.y * view.count + row;

	if (row >= view.count)
		return;
	keys[at] = (Key) blockIdx.y * view.lists + view.nearest[at];
	slots[at] = row;
}

/* A list begins where the sorted numbers reach it. */
__global__ void __launch_bounds__(THREADS)
	first_kernel(const Key *keys, uint32_t count, uint32_t lists, uint32_t *first)
{
	uint32_t at = blockIdx.x * THREADS + threadIdx.x;
	uint32_t from,
		to;

	if (at > count)
		return;
	from = at == 0 ? 0 : (uint32_t) keys[at - 1] + 1;
	to = at == count ? lists : (uint32_t) keys[at];
	for (uint32_t list = from; list <= to; list++)
		first[list] = at;
}

__global__ void __launch_bounds__(MOVE_THREADS) move_kernel(const MeansView view)
{
	MeansPart part = means_part(view, blockIdx.x / view.lists);
	uint32_t i = blockIdx.y * blockDim.x + threadIdx.x;
	uint32_t begin = view.first[blockIdx.x],
			 end = view.first[blockIdx.x + 1];
	double sum = 0;

	if (i >= part.dims || begin == end)
		return;
#pragma unroll 8
	for (uint32_t at = begin; at < end; at++)
		sum += (double) __ldg(view.rows + view.members[at] * view.stride + part.begin + i);
	part.centroids[(size_t) (blockIdx.x % view.lists) * part.dims + i] =
		(float) (sum / (double) (end - begin));
}

/* ---- lists without rows -------------------------------------------------- */

/* What a block that seeds lists shares. */
struct SeedingMemory
{
	unsigned long long largest;
	uint32_t found;
};

/* The list of greatest weight, the first of those; its weight in *weight. */
__device__ static inline uint32_t
largest_list(const uint32_t *weights, uint32_t lists, SeedingMemory *memory, uint32_t *weight)
{
	unsigned long long most = 0;

	for (uint32_t list = threadIdx.x; list < lists; list += SEED_THREADS)
	{
		unsigned long long key = (unsigned long long) weights[list] << 32 | (0xFFFFFFFFu - list);

		most = key > most ? key : most;
	}
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
	{
		unsigned long long other = __shfl_xor_sync(FULL_WARP, most, (int) distance);

		most = other > most ? other : most;
	}
	/* all have read what the list before found */
	__syncthreads();
	if (threadIdx.x == 0)
	{
		memory->largest = 0;
		memory->found = NO_SLOT;
	}
	__syncthreads();
	if (threadIdx.x % WARP == 0)
		atomicMax(&memory->largest, most);
	__syncthreads();
	most = memory->largest;
	*weight = (uint32_t) (most >> 32);
	return 0xFFFFFFFFu - (uint32_t) most;
}

/* A list's row apart from its centroid, from a random one on, or NO_SLOT. */
__device__ static inline uint32_t
row_apart(const MeansView &view, uint32_t at, uint32_t list, uint32_t random,
		  SeedingMemory *memory)
{
	const double *distances = view.distances + (size_t) at * view.count;
	const uint32_t *first = view.first + (size_t) at * view.lists + list;
	const uint32_t *members = view.members + first[0];
	uint32_t size = first[1] - first[0];

	for (uint32_t i = 0; i < size; i += SEED_THREADS)
	{
		uint32_t tried = i + threadIdx.x;
		bool apart = tried < size && distances[members[((uint64_t) random + tried) % size]] > 0;

		if (apart)
			atomicMin(&memory->found, tried);
		if (__syncthreads_or(apart))
			return members[((uint64_t) random + memory->found) % size];
	}
	return NO_SLOT;
}

/* Give a list a new centroid in the largest one (seed_list() of kmeans.c). */
__device__ static inline void
seed_list(const MeansView &view, uint32_t at, uint32_t list, uint32_t random,
		  SeedingMemory *memory)
{
	MeansPart part = means_part(view, at);
	uint32_t *weights = view.weights + (size_t) at * view.lists;
	uint32_t row = NO_SLOT;

	while (row == NO_SLOT)
	{
		uint32_t weight;
		uint32_t largest = largest_list(weights, view.lists, memory, &weight);

		if (weight < 2)
			return;
		row = row_apart(view, at, largest, random, memory);
		if (threadIdx.x == 0)
			weights[largest] = row != NO_SLOT ? weight / 2 : 0;
		__syncthreads();
	}
	for (uint32_t i = threadIdx.x; i < part.dims; i += SEED_THREADS)
		part.centroids[(size_t) list * part.dims + i] =
			view.rows[row * view.stride + part.begin + i];
}

__global__ void __launch_bounds__(SEED_THREADS)
	seed_lists_kernel(const MeansView view, uint32_t round, uint32_t enough)
{
	__shared__ SeedingMemory memory;
	uint32_t at = blockIdx.x;
	const uint32_t *first = view.first + (size_t) at * view.lists;

	for (uint32_t list = threadIdx.x; list < view.lists; list += SEED_THREADS)
		view.weights[(size_t) at * view.lists + list] = first[list + 1] - first[list];
	__syncthreads();
	for (uint32_t list = 0; list < view.lists; list++)
		if (first[list + 1] - first[list] < enough)
			seed_list(view, at, list,
					  (uint32_t) means_random(view, at, (round + 1ull) << 48 | list), &memory);
}

/* Lists with fewer rows than `enough` are seeded anew; 0: none. */
static uint32_t
rows_enough(const MeansView *view, bool last)
{
	uint32_t small = view->count / view->lists / KMEANS_SMALL_LIST;

	if (view->lists > view->count)
		return 0;
	return view->balance && !last && small > 1 ? small : 1;
}

cudaError_t
means_move(MeansView *view, EntrySort *sort, uint32_t round, bool last, cudaStream_t stream)
{
	uint32_t count = view->some * view->count;
	uint32_t lists = view->some * view->lists;
	uint32_t dims = (view->dims + view->parts - 1) / view->parts;
	uint32_t threads = dims < MOVE_THREADS ? (uint32_t) round_up(dims, WARP) : MOVE_THREADS;
	uint32_t enough = rows_enough(view, last);
	cudaError_t error;

	sort->current = 0;
	LAUNCH(keys_kernel, dim3((view->count + THREADS - 1) / THREADS, view->some), THREADS, 0, stream,
		   *view, sort->side[0].key, sort->side[0].slot);
	error = cudaGetLastError();
	if (error == cudaSuccess)
		error = entry_sort(sort, count, stream);
	if (error != cudaSuccess)
		return error;
	view->members = sort->side[sort->current].slot;
	LAUNCH(first_kernel, count / THREADS + 1, THREADS, 0, stream, sort->side[sort->current].key,
		   count, lists, view->first);
	error = cudaGetLastError();
	if (error != cudaSuccess)
		return error;
	LAUNCH(move_kernel, dim3(lists, (dims + threads - 1) / threads), threads, 0, stream, *view);
	error = cudaGetLastError();
	if (error != cudaSuccess || enough == 0)
		return error;
	LAUNCH(seed_lists_kernel, view->some, SEED_THREADS, 0, stream, *view, round, enough);
	return cudaGetLastError();
}

/* ---- inertia ------------------------------------------------------------- */

__global__ void __launch_bounds__(SUM_THREADS)
	inertia_kernel(const double *distances, uint32_t count, double *inertia)
{
	__shared__ double sums[SUM_THREADS];
	double sum = 0;

	for (uint32_t i = threadIdx.x; i < count; i += SUM_THREADS)
		sum += distances[i];
	sums[threadIdx.x] = sum;
	for (uint32_t half = SUM_THREADS / 2; half > 0; half /= 2)
	{
		__syncthreads();
		if (threadIdx.x < half)
			sums[threadIdx.x] += sums[threadIdx.x + half];
	}
	if (threadIdx.x == 0)
		*inertia = sums[0];
}

cudaError_t
means_inertia(const MeansView *view, double *inertia, cudaStream_t stream)
{
	LAUNCH(inertia_kernel, 1, SUM_THREADS, 0, stream, view->distances, view->count, inertia);
	return cudaGetLastError();
}

/* ---- residuals ----------------------------------------------------------- */

__global__ void __launch_bounds__(THREADS)
	residuals_kernel(float *rows, const float *centroids, const uint32_t *nearest, uint32_t count,
					 uint32_t dims)
{
	uint32_t at = blockIdx.x * WARPS + threadIdx.x / WARP;
	float *row = rows + (size_t) at * dims;
	const float *centroid;
	bool finite = true;

	if (at >= count)
		return;
	centroid = centroids + (size_t) nearest[at] * dims;
	for (uint32_t i = threadIdx.x % WARP; i < dims; i += WARP)
	{
		row[i] -= centroid[i];
		finite &= is_finite(row[i]);
	}
	if (__ballot_sync(FULL_WARP, finite) != FULL_WARP)
		for (uint32_t i = threadIdx.x % WARP; i < dims; i += WARP)
			row[i] = 0;
}

cudaError_t
means_residuals(float *rows, const float *centroids, const uint32_t *nearest, uint32_t count,
				uint32_t dims, cudaStream_t stream)
{
	LAUNCH(residuals_kernel, (count + WARPS - 1) / WARPS, THREADS, 0, stream, rows, centroids,
		   nearest, count, dims);
	return cudaGetLastError();
}
