/*
 * lists_assign.h
 *		Shared by the two steps of assignment (lists_assign.cu, lists_near.cu):
 *		rows that must be compared with all centroids.
 */
#ifndef GPUANN_CUDA_LISTS_ASSIGN_H
#define GPUANN_CUDA_LISTS_ASSIGN_H

#include "cuda/lists/lists_code.h"
#include "cuda/quantizer/encode.cuh"

#define ASSIGN_ROWS 128u /* rows per block, */
#define ASSIGN_BLOCKS 2u /* and blocks per SM */

/*
 * Kernel argument: the rows that are left open by products, in terms of an
 * assignment's rows.
 */
struct NearRows
{
	const float *centroids;
	uint32_t lists;
	uint32_t dims;
	const float *rows;
	const uint32_t *open; /* numbers of the open rows */
	const uint32_t *nopen;
	uint32_t *nearest;
	double *distances; /* or NULL */
};

/* A centroid and its exact squared distance. */
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
 * The exact squared distance of a row and a centroid, by teams of eight lanes;
 * each team may have another pair. NaN becomes infinity. Whole warps.
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
