/*
 * lists_seeds.cu
 *		Seeds of k-means: each a row of a sample, drawn with a probability that
 *		grows with its squared distance from the seeds before.
 *
 * seed_kernel, one launch for each seed
 *		grid	(runs of 64 rows, sub-spaces), 256 threads
 *		work	eight lanes measure a row's distance from the last seed in
 *				double; a thread adds up the run. The last block adds up the
 *				runs, draws the next seed and finds its row
 *		global	reads the sample, of 4,096 lists of 128 dimensions 8 MB, from L2
 * Bound: latency of a launch and of sums in order, some 5 µs; for 768
 * dimensions L2.
 */
#include "cuda/lists/lists_means.h"

#define THREADS 256u
#define TEAMS (THREADS / ENCODE_TEAM)
#define RUNS_AT_ONCE 1024u

/* The next number of SplitMix64 (engine/quantizer/random.h). */
__device__ static inline unsigned long long
next_random(unsigned long long *state)
{
	unsigned long long z = (*state += 0x9E3779B97F4A7C15ull);

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
	return z ^ (z >> 31);
}

/* Shared memory of a block. */
struct SeedMemory
{
	double distances[KMEANS_RUN];
	double runs[RUNS_AT_ONCE];
	double mark;
	uint32_t run;
	bool last;
};

/*
 * Add up the sums of runs in their order, or (find) take them off the mark
 * until one is greater. All threads; what is found is memory->run, else
 * NO_SLOT.
 */
__device__ static inline double
over_runs(const double *runs, uint32_t count, bool find, SeedMemory *memory)
{
	double sum = 0;

	if (threadIdx.x == 0)
		memory->run = NO_SLOT;
	for (uint32_t from = 0; from < count; from += RUNS_AT_ONCE)
	{
		uint32_t n = count - from < RUNS_AT_ONCE ? count - from : RUNS_AT_ONCE;

		__syncthreads();
		for (uint32_t i = threadIdx.x; i < n; i += THREADS)
			memory->runs[i] = __ldcg(runs + from + i);
		__syncthreads();
		if (threadIdx.x != 0 || memory->run != NO_SLOT)
			continue;
		if (!find)
#pragma unroll 8
			for (uint32_t i = 0; i < n; i++)
				sum = __dadd_rn(sum, memory->runs[i]);
		else
			for (uint32_t i = 0; i < n && memory->run == NO_SLOT; i++)
				if (memory->mark < memory->runs[i])
					memory->run = from + i;
				else
					memory->mark = __dsub_rn(memory->mark, memory->runs[i]);
	}
	return sum;
}

/* Draw the next seed, of which there are `seeds` (draw_seed() of kmeans.c). */
__device__ static inline void
draw_seed(const MeansView &view, uint32_t at, uint32_t seeds, SeedMemory *memory)
{
	const uint32_t *sample = view.sample + (size_t) at * view.sampled;
	const double *nearness = view.nearness + (size_t) at * view.sampled;
	const double *runs = view.runs + (size_t) at * view.run_room;
	uint32_t nruns = gridDim.x;
	double sum = over_runs(runs, nruns, false, memory);
	uint32_t begin,
		place;

	if (threadIdx.x == 0)
	{
		bool draws = sum > 0 && sum < HUGE_VAL;

		memory->last = draws;
		if (draws)
			memory->mark = __dmul_rn((double) (next_random(&view.random[at]) >> 11) * 0x1p-53, sum);
		else
			view.chosen[at] = sample[seeds % view.sampled];
	}
	__syncthreads();
	if (!memory->last)
		return;
	(void) over_runs(runs, nruns, true, memory);
	__syncthreads();
	if (memory->run == NO_SLOT)
	{
		if (threadIdx.x == 0)
			view.chosen[at] = sample[view.sampled - 1];
		return;
	}
	begin = memory->run * KMEANS_RUN;
	if (threadIdx.x < KMEANS_RUN)
		memory->distances[threadIdx.x] =
			begin + threadIdx.x < view.sampled ? __ldcg(nearness + begin + threadIdx.x) : 0;
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	place = begin;
	for (uint32_t i = 0; i < KMEANS_RUN && begin + i < view.sampled && memory->mark >= 0; i++)
	{
		memory->mark = __dsub_rn(memory->mark, memory->distances[i]);
		place = memory->distances[i] > 0 ? begin + i : place;
	}
	view.chosen[at] = sample[place];
}

__global__ void __launch_bounds__(THREADS) seed_kernel(const MeansView view, uint32_t seeds)
{
	__shared__ SeedMemory memory;
	uint32_t at = blockIdx.y;
	MeansPart part = means_part(view, at);
	const uint32_t *sample = view.sample + (size_t) at * view.sampled;
	double *nearness = view.nearness + (size_t) at * view.sampled;
	uint32_t row = seeds == 0 ? sample[0] : view.chosen[at];
	const float *seed = view.rows + row * view.stride + part.begin;
	uint32_t team = threadIdx.x / ENCODE_TEAM;

	if (blockIdx.x == 0)
		for (uint32_t i = threadIdx.x; i < part.dims; i += THREADS)
			part.centroids[(size_t) seeds * part.dims + i] = seed[i];
	for (uint32_t i = team; i < KMEANS_RUN; i += TEAMS)
	{
		uint32_t place = blockIdx.x * KMEANS_RUN + i;
		bool there = place < view.sampled;
		const float *other = view.rows + sample[there ? place : 0] * view.stride + part.begin;
		double distance = exact_team_sum(part.dims, [&](double *sum, uint32_t j) {
			add_term<TERM_SQUARE>(sum, other[j], seed[j]);
		});

		if (!there || threadIdx.x % ENCODE_TEAM != 0)
			continue;
		if (seeds == 0)
			distance = distance < HUGE_VAL ? distance : HUGE_VAL;
		else
			distance = distance < nearness[place] ? distance : nearness[place];
		nearness[place] = distance;
		memory.distances[i] = distance;
	}
	__syncthreads();
	if (threadIdx.x == 0)
	{
		uint32_t left = view.sampled - blockIdx.x * KMEANS_RUN;
		double sum = 0;

#pragma unroll 8
		for (uint32_t i = 0; i < (left < KMEANS_RUN ? left : KMEANS_RUN); i++)
			sum = __dadd_rn(sum, memory.distances[i]);
		view.runs[(size_t) at * view.run_room + blockIdx.x] = sum;
	}
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0)
		memory.last = atomicAdd(&view.ended[at], 1u) == gridDim.x - 1;
	__syncthreads();
	if (!memory.last)
		return;
	if (threadIdx.x == 0)
		view.ended[at] = 0;
	__threadfence();
	if (seeds + 1 < view.lists)
		draw_seed(view, at, seeds + 1, &memory);
}

cudaError_t
seeds_launch(const MeansView *view, uint32_t from, uint32_t to, cudaStream_t stream)
{
	uint32_t runs = (view->sampled + KMEANS_RUN - 1) / KMEANS_RUN;
	cudaError_t error = cudaSuccess;

	/* each seed is drawn by the launch before it */
	for (uint32_t seed = from; seed < to && error == cudaSuccess; seed++)
	{
		LAUNCH(seed_kernel, dim3(runs, view->some), THREADS, 0, stream, *view, seed);
		error = cudaGetLastError();
	}
	return error;
}
