/*
 * lists_means.h
 *		The parts of k-means on the device (lists_seeds.cu, lists_means.cu),
 *		which lists_learn.cu puts together.
 *
 * A training has one k-means over whole rows, and one for each sub-space of pq.
 * Those of several sub-spaces go on together: each has its arrays one after the
 * other, and blockIdx.y says which it is. The method is that of
 * src/engine/quantizer/kmeans.c; random numbers and the sample that seeds are
 * drawn from are not, so that the floats differ from the CPU engine's. The same
 * sample and seed give the same floats on a device.
 */
#ifndef GPUANN_CUDA_LISTS_MEANS_H
#define GPUANN_CUDA_LISTS_MEANS_H

#include "cuda/common/sort.h"
#include "cuda/lists/lists_code.h"
#include "cuda/quantizer/encode.cuh"

extern "C"
{
#include "engine/quantizer/kmeans.h"
}

/* k-means of some sub-spaces, as kernels see it. Device memory. */
struct MeansView
{
	const float *rows;
	size_t stride; /* floats from one row to the next */
	uint32_t count;
	uint32_t dims;		 /* of whole rows */
	uint32_t parts;		 /* sub-spaces of a row; 1: whole rows */
	uint32_t first_part; /* the sub-space of blockIdx.y = 0 */
	uint32_t some;		 /* sub-spaces that go on together */
	uint32_t lists;		 /* of each */
	float *centroids;	 /* of all sub-spaces */
	uint64_t seed;
	bool balance;

	/* of each sub-space */
	uint32_t sampled;			 /* rows that seeds are chosen from */
	double *nearness;			 /* sampled: distances to the nearest seed */
	unsigned long long *winners; /* lists: places of seeds in the sample */
	uint32_t *nearest;			 /* count */
	double *distances;			 /* count */
	uint32_t *weights;			 /* lists */

	/* of all sub-spaces: rows sorted by lists, and where lists begin */
	const uint32_t *members;
	uint32_t *first; /* some * lists + 1 */
};

/* A sub-space of whole rows: where it begins, and its dimensions. */
struct MeansPart
{
	uint32_t begin;
	uint32_t dims;
	float *centroids;
};

__device__ static inline MeansPart
means_part(const MeansView &view, uint32_t at)
{
	uint32_t part = view.first_part + at;
	uint32_t begin = pq_part_begin(view.dims, view.parts, part);

	return {begin, pq_part_begin(view.dims, view.parts, part + 1) - begin,
			view.centroids + (size_t) begin * view.lists};
}

/* A sub-space's n-th number of SplitMix64 (engine/quantizer/random.h). */
__device__ static inline unsigned long long
means_random(const MeansView &view, uint32_t at, unsigned long long n)
{
	unsigned long long z = view.seed + view.first_part + at + n * 0x9E3779B97F4A7C15ull;

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
	return z ^ (z >> 31);
}

/* The same as a number below a limit. */
__device__ static inline uint32_t
means_below(const MeansView &view, uint32_t at, unsigned long long n, uint32_t limit)
{
	return (uint32_t) (((means_random(view, at, n) >> 32) * limit) >> 32);
}

/* lists_seeds.cu: the seeds from `from` up to before `to`. */
extern cudaError_t seeds_launch(const MeansView *view, uint32_t from, uint32_t to,
								cudaStream_t stream);

/*
 * lists_means.cu: what follows the assignment of a round: centroids move to the
 * means of their rows, and lists without rows are seeded anew. `sort` has room
 * for some * count entries.
 */
extern cudaError_t means_move(MeansView *view, EntrySort *sort, uint32_t round, bool last,
							  cudaStream_t stream);

/* The sum of the distances of an assignment of whole rows. */
extern cudaError_t means_inertia(const MeansView *view, double *inertia, cudaStream_t stream);

/* Take their nearest centroids off rows; one that overflows becomes zero. */
extern cudaError_t means_residuals(float *rows, const float *centroids, const uint32_t *nearest,
								   uint32_t count, uint32_t dims, cudaStream_t stream);

#endif /* GPUANN_CUDA_LISTS_MEANS_H */
