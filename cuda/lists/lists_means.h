/*
 * lists_means.h
 *		The parts of k-means on the device (lists_seeds.cu, lists_means.cu),
 *		which lists_learn.cu puts together.
 *
 * A training has one k-means over whole rows, and one for each sub-space of pq.
 * Those of several sub-spaces go on together: each has its arrays one after the
 * other, and blockIdx.y says which it is. What is computed is what
 * src/engine/quantizer/kmeans.c computes, sum by sum.
 */
#ifndef GPUANN_CUDA_LISTS_MEANS_H
#define GPUANN_CUDA_LISTS_MEANS_H

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
	bool balance;

	/* of each sub-space */
	const uint32_t *sample; /* sampled: rows that seeds are chosen from */
	uint32_t sampled;
	double *nearness;		   /* sampled: distances to the nearest seed */
	double *runs;			   /* sums of runs: of the sample, or of all rows */
	uint32_t run_room;
	unsigned long long *random;
	uint32_t *ended;	   /* blocks, 0 between launches */
	uint32_t *chosen;	   /* the next seed's row */
	uint32_t *nearest;	   /* count */
	double *distances;	   /* count */
	uint32_t *sizes;	   /* lists */
	uint32_t *weights;	   /* lists */
	double *inertia;
	uint32_t *last_round;  /* after which nothing moves any more */

	/*
	 * of whole rows only: their numbers, sorted by lists, and where lists begin
	 */
	const uint32_t *members;
	uint32_t *first;
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

/* The sum of a run of distances; one thread. */
__device__ static inline double
run_sum(const double *distances, uint32_t run, uint32_t count)
{
	uint32_t end = (run + 1) * KMEANS_RUN < count ? (run + 1) * KMEANS_RUN : count;
	double sum = 0;

#pragma unroll 8
	for (uint32_t i = run * KMEANS_RUN; i < end; i++)
		sum = __dadd_rn(sum, __ldcg(distances + i));
	return sum;
}

/* lists_seeds.cu: the seeds from `from` up to before `to`. */
extern cudaError_t seeds_launch(const MeansView *view, uint32_t from, uint32_t to,
								cudaStream_t stream);

/*
 * lists_means.cu: after an assignment, in this order. The keys and slots that
 * whole rows are sorted by; the inertia; centroids and sizes; lists without
 * rows.
 */
extern cudaError_t means_keys(const MeansView *view, Key *keys, uint32_t *slots,
							  cudaStream_t stream);
extern cudaError_t means_inertia(const MeansView *view, uint32_t round, cudaStream_t stream);
extern cudaError_t means_move(const MeansView *view, const Key *keys, uint32_t round,
							  cudaStream_t stream);
extern cudaError_t means_seed_lists(const MeansView *view, uint32_t round, bool last,
									cudaStream_t stream);

/* Take their nearest centroids off rows; one that overflows becomes zero. */
extern cudaError_t means_residuals(float *rows, const float *centroids, const uint32_t *nearest,
								   uint32_t count, uint32_t dims, cudaStream_t stream);

#endif /* GPUANN_CUDA_LISTS_MEANS_H */
