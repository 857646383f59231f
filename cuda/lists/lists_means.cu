/*
 * lists_means.cu
 *		A round of k-means after the assignment: inertia, means, lists without
 *		rows.
 *
 * keys_kernel, first_kernel
 *		a thread per row, 256 threads: keys by which rows are sorted, and where
 *		the lists begin among the sorted
 * runs_kernel, inertia_kernel
 *		a thread per run of 64 distances; one block per sub-space, whose first
 *		thread adds up the runs, 1,024 at a time in shared memory
 * move_kernel		whole rows
 *		grid	(lists, dimensions / 128), 128 threads: a thread per dimension
 *				adds its list's rows up in their order, 8 loads ahead
 *		global	reads all rows once. Bound: memory, or the largest list's length
 * words_kernel		sub-spaces
 *		grid	(codewords / 8, sub-spaces), 256 threads: a warp per codeword
 *				looks through all rows' numbers and adds up its own, a lane per
 *				dimension, up to 128 at a time
 *		global	reads the numbers once for each codeword, from L1 and L2, and
 *				pieces once. Bound: latency of a row after the other
 * seed_lists_kernel
 *		one block of 512 threads per sub-space: list after list, the largest
 *		one is looked for by all
 * residuals_kernel
 *		a warp per row, 256 threads
 */
#include "cuda/lists/lists_means.h"

#define THREADS 256u
#define WARPS (THREADS / WARP)
#define MOVE_THREADS 128u
#define WORD_DIMS 4u /* of a lane */
#define SEED_THREADS 512u
#define RUNS_AT_ONCE 1024u

/* Whether a sub-space has ended before a round. */
__device__ static inline bool
has_ended(const MeansView &view, uint32_t at, uint32_t round)
{
	return view.last_round[at] < round;
}

/* ---- inertia ------------------------------------------------------------- */

__global__ void __launch_bounds__(THREADS) runs_kernel(const MeansView view)
{
	uint32_t run = blockIdx.x * THREADS + threadIdx.x;

	if ((uint64_t) run * KMEANS_RUN < view.count)
		view.runs[(size_t) blockIdx.y * view.run_room + run] =
			run_sum(view.distances + (size_t) blockIdx.y * view.count, run, view.count);
}

__global__ void __launch_bounds__(THREADS) inertia_kernel(const MeansView view, uint32_t round)
{
	__shared__ double some[RUNS_AT_ONCE];
	uint32_t at = blockIdx.x;
	const double *runs = view.runs + (size_t) at * view.run_room;
	uint32_t count = (view.count + KMEANS_RUN - 1) / KMEANS_RUN;
	double sum = 0;

	if (has_ended(view, at, round))
		return;
	for (uint32_t from = 0; from < count; from += RUNS_AT_ONCE)
	{
		uint32_t n = count - from < RUNS_AT_ONCE ? count - from : RUNS_AT_ONCE;

		__syncthreads();
		for (uint32_t i = threadIdx.x; i < n; i += THREADS)
			some[i] = runs[from + i];
		__syncthreads();
		if (threadIdx.x == 0)
#pragma unroll 8
			for (uint32_t i = 0; i < n; i++)
				sum = __dadd_rn(sum, some[i]);
	}
	if (threadIdx.x != 0)
		return;
	if (round > 0 && sum == view.inertia[at])
		view.last_round[at] = round;
	view.inertia[at] = sum;
}

cudaError_t
means_inertia(const MeansView *view, uint32_t round, cudaStream_t stream)
{
	uint32_t runs = (view->count + KMEANS_RUN - 1) / KMEANS_RUN;
	cudaError_t error;

	LAUNCH(runs_kernel, dim3((runs + THREADS - 1) / THREADS, view->some), THREADS, 0, stream,
		   *view);
	error = cudaGetLastError();
	if (error != cudaSuccess)
		return error;
	LAUNCH(inertia_kernel, view->some, THREADS, 0, stream, *view, round);
	return cudaGetLastError();
}

/* ---- means --------------------------------------------------------------- */

__global__ void __launch_bounds__(THREADS)
	keys_kernel(const uint32_t *nearest, uint32_t count, Key *keys, uint32_t *slots)
{
	uint32_t row = blockIdx.x * THREADS + threadIdx.x;

	if (row >= count)
		return;
	keys[row] = nearest[row];
	slots[row] = row;
}

cudaError_t
means_keys(const MeansView *view, Key *keys, uint32_t *slots, cudaStream_t stream)
{
	LAUNCH(keys_kernel, (view->count + THREADS - 1) / THREADS, THREADS, 0, stream, view->nearest,
		   view->count, keys, slots);
	return cudaGetLastError();
}

/* A list begins where the sorted numbers reach it. */
__global__ void __launch_bounds__(THREADS) first_kernel(const MeansView view, const Key *keys)
{
	uint32_t row = blockIdx.x * THREADS + threadIdx.x;
	uint32_t from,
		to;

	if (row > view.count)
		return;
	from = row == 0 ? 0 : (uint32_t) keys[row - 1] + 1;
	to = row == view.count ? view.lists : (uint32_t) keys[row];
	for (uint32_t list = from; list <= to; list++)
		view.first[list] = row;
}

__global__ void __launch_bounds__(MOVE_THREADS) move_kernel(const MeansView view)
{
	uint32_t list = blockIdx.x;
	uint32_t i = blockIdx.y * MOVE_THREADS + threadIdx.x;
	uint32_t begin = view.first[list],
			 end = view.first[list + 1];
	double sum = 0;

	if (i == 0)
		view.sizes[list] = end - begin;
	if (i >= view.dims || begin == end)
		return;
#pragma unroll 8
	for (uint32_t at = begin; at < end; at++)
		sum = __dadd_rn(sum, (double) __ldg(view.rows + view.members[at] * view.stride + i));
	view.centroids[(size_t) list * view.dims + i] = (float) (sum / (double) (end - begin));
}

__global__ void __launch_bounds__(THREADS) words_kernel(const MeansView view, uint32_t round)
{
	MeansPart part = means_part(view, blockIdx.y);
	const uint32_t *nearest = view.nearest + (size_t) blockIdx.y * view.count;
	uint32_t word = blockIdx.x * WARPS + threadIdx.x / WARP;
	uint32_t lane = threadIdx.x % WARP;

	if (has_ended(view, blockIdx.y, round))
		return;
	for (uint32_t from = 0; from < part.dims; from += WORD_DIMS * WARP)
	{
		double sum[WORD_DIMS] = {};
		uint32_t size = 0;

#pragma unroll 4
		for (uint32_t first = 0; first < view.count; first += WARP)
		{
			bool mine = first + lane < view.count && nearest[first + lane] == word;
			uint32_t rows = __ballot_sync(FULL_WARP, mine);

			size += (uint32_t) __popc(rows);
			for (; rows != 0; rows &= rows - 1)
			{
				const float *row = view.rows +
								   (first + (uint32_t) __ffs((int) rows) - 1) * view.stride +
								   part.begin + from;

#pragma unroll
				for (uint32_t j = 0; j < WORD_DIMS; j++)
					if (from + j * WARP + lane < part.dims)
						sum[j] = __dadd_rn(sum[j], (double) __ldg(row + j * WARP + lane));
			}
		}
		if (lane == 0)
			view.sizes[(size_t) blockIdx.y * view.lists + word] = size;
#pragma unroll
		for (uint32_t j = 0; j < WORD_DIMS; j++)
			if (size > 0 && from + j * WARP + lane < part.dims)
				part.centroids[(size_t) word * part.dims + from + j * WARP + lane] =
					(float) (sum[j] / (double) size);
	}
}

cudaError_t
means_move(const MeansView *view, const Key *keys, uint32_t round, cudaStream_t stream)
{
	cudaError_t error;

	if (view->first == NULL)
	{
		LAUNCH(words_kernel, dim3(view->lists / WARPS, view->some), THREADS, 0, stream, *view,
			   round);
		return cudaGetLastError();
	}
	LAUNCH(first_kernel, view->count / THREADS + 1, THREADS, 0, stream, *view, keys);
	error = cudaGetLastError();
	if (error != cudaSuccess)
		return error;
	LAUNCH(move_kernel, dim3(view->lists, (view->dims + MOVE_THREADS - 1) / MOVE_THREADS),
		   MOVE_THREADS, 0, stream, *view);
	return cudaGetLastError();
}

/* ---- lists without rows -------------------------------------------------- */

/* What a block that seeds lists shares. */
struct SeedingMemory
{
	unsigned long long largest[SEED_THREADS / WARP];
	uint32_t counts[SEED_THREADS / WARP];
	uint32_t from;
	uint32_t found;
	uint32_t before; /* found before `from` */
};

/* The list of greatest weight, the first of those; its weight in *weight. */
__device__ static inline uint32_t
largest_list(const MeansView &view, const uint32_t *weights, SeedingMemory *memory,
			 uint32_t *weight)
{
	unsigned long long most = 0;

	for (uint32_t list = threadIdx.x; list < view.lists; list += SEED_THREADS)
	{
		unsigned long long key = (unsigned long long) weights[list] << 32 | (0xFFFFFFFFu - list);

		most = key > most ? key : most;
	}
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
	{
		unsigned long long other = __shfl_xor_sync(FULL_WARP, most, (int) distance);

		most = other > most ? other : most;
	}
	__syncthreads();
	if (threadIdx.x % WARP == 0)
		memory->largest[threadIdx.x / WARP] = most;
	__syncthreads();
	for (uint32_t warp = 0; warp < SEED_THREADS / WARP; warp++)
		most = memory->largest[warp] > most ? memory->largest[warp] : most;
	*weight = (uint32_t) (most >> 32);
	return 0xFFFFFFFFu - (uint32_t) most;
}

/* Of sorted rows: the first one apart of a list's, from a place on. */
__device__ static inline uint32_t
apart_of_members(const MeansView &view, uint32_t list, uint32_t size, SeedingMemory *memory)
{
	uint32_t begin = view.first[list];

	for (uint32_t i = 0; i < size; i += SEED_THREADS)
	{
		uint32_t at = i + threadIdx.x;
		bool apart =
			at < size &&
			view.distances[view.members[begin + (uint32_t) (((uint64_t) memory->from + at) %
															size)]] > 0;

		if (apart)
			atomicMin(&memory->found, at);
		if (__syncthreads_or(apart))
			break;
	}
	return memory->found == NO_SLOT
			   ? NO_SLOT
			   : view.members[begin +
							  (uint32_t) (((uint64_t) memory->from + memory->found) % size)];
}

/*
 * The same of rows as they lie: how many of the list are before each is
 * counted.
 */
__device__ static inline uint32_t
apart_of_rows(const MeansView &view, uint32_t at, uint32_t list, SeedingMemory *memory)
{
	const uint32_t *nearest = view.nearest + (size_t) at * view.count;
	const double *distances = view.distances + (size_t) at * view.count;
	uint32_t passed = 0;

	for (uint32_t first = 0; first < view.count; first += SEED_THREADS)
	{
		uint32_t row = first + threadIdx.x;
		bool mine = row < view.count && nearest[row] == list;
		uint32_t warp = __ballot_sync(FULL_WARP, mine);
		uint32_t rank = passed + __popc(warp & ((1u << threadIdx.x % WARP) - 1));
		bool good;

		__syncthreads();
		if (threadIdx.x % WARP == 0)
			memory->counts[threadIdx.x / WARP] = (uint32_t) __popc(warp);
		__syncthreads();
		for (uint32_t w = 0; w < SEED_THREADS / WARP; w++)
		{
			rank += w < threadIdx.x / WARP ? memory->counts[w] : 0;
			passed += memory->counts[w];
		}
		good = mine && distances[row] > 0;
		if (good)
			atomicMin(rank >= memory->from ? &memory->found : &memory->before, row);
		if (__syncthreads_or(good && rank >= memory->from))
			break;
	}
	return memory->found != NO_SLOT ? memory->found : memory->before;
}

/* Give a list a new centroid in the largest one (seed_list() of kmeans.c). */
__device__ static inline void
seed_list(const MeansView &view, uint32_t at, uint32_t list, SeedingMemory *memory)
{
	MeansPart part = means_part(view, at);
	uint32_t *weights = view.weights + (size_t) at * view.lists;

	for (;;)
	{
		uint32_t weight;
		uint32_t largest = largest_list(view, weights, memory, &weight);
		uint32_t size = view.sizes[(size_t) at * view.lists + largest];
		uint32_t row;

		if (weight < 2)
			return;
		if (threadIdx.x == 0)
		{
			unsigned long long z = (view.random[at] += 0x9E3779B97F4A7C15ull);

			z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
			z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
			z ^= z >> 31;
			memory->from = (uint32_t) (((z >> 32) * size) >> 32);
			memory->found = memory->before = NO_SLOT;
		}
		__syncthreads();
		row = view.members != NULL ? apart_of_members(view, largest, size, memory)
								   : apart_of_rows(view, at, largest, memory);
		__syncthreads();
		if (threadIdx.x == 0)
			weights[largest] = row != NO_SLOT ? weight / 2 : 0;
		if (row != NO_SLOT)
			for (uint32_t i = threadIdx.x; i < part.dims; i += SEED_THREADS)
				part.centroids[(size_t) list * part.dims + i] =
					view.rows[row * view.stride + part.begin + i];
		__syncthreads();
		if (row != NO_SLOT)
			return;
	}
}

__global__ void __launch_bounds__(SEED_THREADS)
	seed_lists_kernel(const MeansView view, uint32_t round, uint32_t enough)
{
	__shared__ SeedingMemory memory;
	uint32_t at = blockIdx.x;
	const uint32_t *sizes = view.sizes + (size_t) at * view.lists;
	uint32_t *weights = view.weights + (size_t) at * view.lists;

	if (has_ended(view, at, round))
		return;
	for (uint32_t list = threadIdx.x; list < view.lists; list += SEED_THREADS)
		weights[list] = sizes[list];
	__syncthreads();
	for (uint32_t first = 0; first < view.lists; first += SEED_THREADS)
	{
		uint32_t list = first + threadIdx.x;

		if (!__syncthreads_or(list < view.lists && sizes[list] < enough))
			continue;
		for (list = first; list < first + SEED_THREADS && list < view.lists; list++)
			if (sizes[list] < enough)
				seed_list(view, at, list, &memory);
	}
}

cudaError_t
means_seed_lists(const MeansView *view, uint32_t round, bool last, cudaStream_t stream)
{
	uint32_t enough = 1;

	if (view->lists > view->count)
		return cudaSuccess;
	if (view->balance && !last && view->count / view->lists / KMEANS_SMALL_LIST > 1)
		enough = view->count / view->lists / KMEANS_SMALL_LIST;
	LAUNCH(seed_lists_kernel, view->some, SEED_THREADS, 0, stream, *view, round, enough);
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
