/*
 * lists_seeds.cu
 *		Seeds of k-means (k-means++): each a row of a sample, drawn with a
 *		probability in proportion to its squared distance from the seeds before.
 *
 * The draw is a race: a row at squared distance d has a random time that is
 * exponentially distributed with rate d, and the first row wins. So it takes no
 * sum over rows, only the least of their times.
 *
 * seed_kernel, one launch for each seed
 *		grid	(rows of the sample / 32, sub-spaces), 256 threads
 *		work	eight lanes measure a row's distance from the last seed in
 *				double; one of them enters it into the race for the next
 *		global	reads the sample, of 4,096 lists of 128 dimensions 8 MB, from L2
 * Bound: latency of a launch; for 768 dimensions L2.
 */
#include "cuda/lists/lists_means.h"

#define THREADS 256u
#define TEAMS (THREADS / ENCODE_TEAM)
#define NO_WINNER 0xFFFFFFFFFFFFFFFFull

/*
 * The row at a place of the sample: a random one of each of as many ranges of
 * rows as the sample has.
 */
__device__ static inline uint32_t
sampled_row(const MeansView &view, uint32_t at, uint32_t place)
{
	uint32_t begin = (uint32_t) ((uint64_t) place * view.count / view.sampled);
	uint32_t end = (uint32_t) ((uint64_t) (place + 1) * view.count / view.sampled);

	return begin + means_below(view, at, place, end - begin);
}

/*
 * A row's time, its place behind it: they order as times do. What is compared
 * is the logarithm, which is above -1,024 for every positive double.
 */
__device__ static inline unsigned long long
race_key(const MeansView &view, uint32_t at, uint32_t seed, uint32_t place, double distance)
{
	unsigned long long random = means_random(view, at, (seed + 1ull) << 32 | place);
	double time = -log(((double) (random >> 12) + 0.5) * 0x1p-52);
	float key = (float) (log(time) - log(distance < 1e300 ? distance : 1e300) + 1024);

	return (unsigned long long) __float_as_uint(key) << 32 | place;
}

__global__ void __launch_bounds__(THREADS) seed_kernel(const MeansView view, uint32_t seeds)
{
	uint32_t at = blockIdx.y;
	MeansPart part = means_part(view, at);
	unsigned long long *winner = view.winners + (size_t) at * view.lists + seeds;
	/* nobody wins where all rows are seeds */
	uint32_t won = *winner == NO_WINNER ? seeds % view.sampled : (uint32_t) *winner;
	const float *seed = view.rows + sampled_row(view, at, won) * view.stride + part.begin;
	uint32_t place = blockIdx.x * TEAMS + threadIdx.x / ENCODE_TEAM;
	bool there = place < view.sampled;
	const float *other =
		view.rows + sampled_row(view, at, there ? place : 0) * view.stride + part.begin;
	double *nearness = view.nearness + (size_t) at * view.sampled + place;
	double distance = exact_team_sum(part.dims, [&](double *sum, uint32_t j) {
		add_term<TERM_SQUARE>(sum, other[j], seed[j]);
	});
	double before;

	if (blockIdx.x == 0)
		for (uint32_t i = threadIdx.x; i < part.dims; i += THREADS)
			part.centroids[(size_t) seeds * part.dims + i] = seed[i];
	if (!there || threadIdx.x % ENCODE_TEAM != 0)
		return;
	before = seeds == 0 ? HUGE_VAL : *nearness;
	distance = distance < before ? distance : before;
	*nearness = distance;
	if (distance > 0 && seeds + 1 < view.lists)
		atomicMin(winner + 1, race_key(view, at, seeds, place, distance));
}

cudaError_t
seeds_launch(const MeansView *view, uint32_t from, uint32_t to, cudaStream_t stream)
{
	cudaError_t error = cudaSuccess;

	if (from == 0)
		error = cudaMemsetAsync(view->winners, 0xFF,
								(size_t) view->some * view->lists * sizeof(*view->winners), stream);
	/* each seed is drawn by the launch before it */
	for (uint32_t seed = from; seed < to && error == cudaSuccess; seed++)
	{
		LAUNCH(seed_kernel, dim3((view->sampled + TEAMS - 1) / TEAMS, view->some), THREADS, 0,
			   stream, *view, seed);
		error = cudaGetLastError();
	}
	return error;
}
