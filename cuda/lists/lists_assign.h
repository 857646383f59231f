/*
 * lists_assign.h
 *		Shared by the two parts of assignment (lists_assign.cu, lists_near.cu):
 *		rows that are left to be compared with all centroids.
 */
#ifndef GPUANN_CUDA_LISTS_ASSIGN_H
#define GPUANN_CUDA_LISTS_ASSIGN_H

#include "cuda/lists/lists_code.h"
#include "cuda/quantizer/encode.cuh"

#define ASSIGN_ROWS 128u /* of a block, */
#define ASSIGN_BLOCKS 2u /* and blocks of an SM */

/* Which rows of an assignment; as kernels see it. */
struct NearRows
{
	const float *centroids;
	uint32_t lists;
	uint32_t dims;
	const float *rows;
	const uint32_t *open; /* numbers of rows */
	const uint32_t *nopen;
	uint32_t *nearest;
	double *distances; /* or NULL */
};

/* A centroid, and its exact squared distance. */
struct NearList
{
	double distance;
	uint32_t list;
};

/* Whether a is nearer than b, or the first of those equally near. */
__device__ static inline bool
nearer_list(const NearList &a, const NearList &b)
{
	return a.distance < b.distance || (a.distance == b.distance && a.list < b.list);
}

/*
 * The exact squared distance of a row and a centroid; each team of eight lanes
 * may have another. What is not a number is farther than all. Whole warps.
 */
__device__ static inline double
list_distance(const float *row, const float *centroid, uint32_t dims)
{
	double distance = exact_team_sum(dims, [&](double *sum, uint32_t i) {
		add_term<TERM_SQUARE>(sum, row[i], centroid[i]);
	});

	return distance == distance ? distance : HUGE_VAL;
}

/* lists_near.cu: compare rows with all centroids. */
extern cudaError_t near_launch(const NearRows *rows, uint32_t processors, cudaStream_t stream);

#endif /* GPUANN_CUDA_LISTS_ASSIGN_H */
