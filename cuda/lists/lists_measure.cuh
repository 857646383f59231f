/*
 * lists_measure.cuh
 *		Exact sums by eight lanes with deep prefetching.
 *
 * Few rows are measured per query, so latency counts: a lane has 24 loads in
 * flight before it adds the first element.
 */
#ifndef GPUANN_CUDA_LISTS_MEASURE_CUH
#define GPUANN_CUDA_LISTS_MEASURE_CUH

#include "cuda/common/distance.cuh"

#define AHEAD_LONG 24u
#define AHEAD_SHORT 16u

/* Add elements first, first + 8, ... to a lane's sum, AHEAD of them at most. */
template <uint32_t AHEAD, int TERM, typename T>
__device__ static inline void
add_ahead(const float *query, const T *row, uint32_t first, uint32_t dims, double *sum)
{
	float some[AHEAD];

#pragma unroll
	for (uint32_t i = 0; i < AHEAD; i++)
		some[i] = first + i * EXACT_LANES < dims ? (float) row[first + i * EXACT_LANES] : 0.0f;
#pragma unroll
	for (uint32_t i = 0; i < AHEAD; i++)
		if (first + i * EXACT_LANES < dims)
			add_term<TERM>(sum, query[first + i * EXACT_LANES], some[i]);
}

/*
 * The sum of terms of a query in shared memory and a row, as I10 defines it;
 * each of the eight lanes gets it. Whole warps.
 */
template <int TERM, typename T>
__device__ static inline double
lanes_sum(const float *query, const T *row, uint32_t dims, bool active)
{
	uint32_t at = threadIdx.x % EXACT_LANES;
	double sum = 0;

	if (active)
	{
		for (; at + (AHEAD_LONG - 1) * EXACT_LANES < dims; at += AHEAD_LONG * EXACT_LANES)
			add_ahead<AHEAD_LONG, TERM>(query, row, at, dims, &sum);
		for (; at < dims; at += AHEAD_SHORT * EXACT_LANES)
			add_ahead<AHEAD_SHORT, TERM>(query, row, at, dims, &sum);
	}
	return sum_of_eight(sum);
}

/* The key of a slot's row; each of the eight lanes gets it. Whole warps. */
template <typename T, int TERM>
__device__ static inline Key
lanes_key(const MirrorView &mirror, const QueryVector &query, uint32_t slot, bool active)
{
	double sum = lanes_sum<TERM>(query.elements, row_of<T>(mirror, slot), mirror.dims, active);

	if (TERM == TERM_PRODUCT)
		sum = exact_finish(mirror.metric, sum, query.norm,
						   active && mirror.metric == METRIC_COSINE ? mirror.norms[slot] : 0);
	return key_of(sum);
}

#endif /* GPUANN_CUDA_LISTS_MEASURE_CUH */
