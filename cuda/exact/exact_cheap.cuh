/*
 * exact_cheap.cuh
 *		Cheap (single precision) sums of a row and a query, and the test whether
 *		a row passes a query's limit. Filter of exact_scan.cu and
 *		exact_fused.cu.
 */
#ifndef GPUANN_CUDA_EXACT_CHEAP_CUH
#define GPUANN_CUDA_EXACT_CHEAP_CUH

#include "cuda/exact/exact_parts.h"

/* Cheap sums by term: single precision, or bit counts. */
template <typename T, int TERM>
struct Cheap
{
	typedef float Sum;

	__device__ static inline void
	add(Sum *sum, const unsigned char *query, uint32_t chunk, const uint4 &raw)
	{
		*sum = fast_chunk<TERM>(*sum, (const float *) query + chunk * (16 / sizeof(T)), raw,
								(const T *) 0);
	}

	__device__ static inline void
	join(Sum *sum, uint32_t distance)
	{
		*sum += __shfl_xor_sync(FULL_WARP, *sum, distance);
	}

	__device__ static inline bool
	passes(const MirrorView &, const Limit &limit, const RowSide &row, Sum sum)
	{
		return TERM == TERM_PRODUCT ? product_passes(limit, row, sum) : !(sum > limit.shift);
	}

	/*
	 * A score that orders rows approximately by distance; norm is the row's
	 * squared norm.
	 */
	__device__ static inline float
	score(const MirrorView &mirror, Sum sum, double norm)
	{
		if (TERM != TERM_PRODUCT)
			return sum;
		return mirror.metric == METRIC_COSINE ? -sum * rsqrtf((float) norm) : -sum;
	}

	__device__ static inline Limit
	limit(const MirrorView &mirror, double query_norm, Key bound, double error)
	{
		return TERM == TERM_PRODUCT ? product_limit(mirror.metric, query_norm, bound, error)
									: sum_limit(bound, error);
	}

	/* A query's squared norm, returned in the first lane of a warp. */
	__device__ static inline double
	norm(const MirrorView &mirror, const float *query)
	{
		return exact_sum<float, TERM_PRODUCT>(query, query, mirror.dims,
											  threadIdx.x % WARP < EXACT_TEAM);
	}
};

template <>
struct Cheap<Bits, TERM_BITS>
{
	typedef CudaBitCounts Sum;

	__device__ static inline void
	add(Sum *sum, const unsigned char *query, uint32_t chunk, const uint4 &raw)
	{
		count_bits(sum, ((const uint4 *) query)[chunk], raw);
	}

	__device__ static inline void
	join(Sum *sum, uint32_t distance)
	{
		sum->both += __shfl_xor_sync(FULL_WARP, sum->both, distance);
		sum->one += __shfl_xor_sync(FULL_WARP, sum->one, distance);
	}

	__device__ static inline bool
	passes(const MirrorView &mirror, const Limit &limit, const RowSide &, const Sum &sum)
	{
		if (mirror.metric == METRIC_HAMMING)
			return !((float) sum.one > limit.shift);
		return sum.both == 0
				   ? !(1.0f > limit.shift)
				   : !(1.0f - (float) sum.both / (float) (sum.both + sum.one) > limit.shift);
	}

	__device__ static inline float
	score(const MirrorView &mirror, const Sum &sum, double)
	{
		return mirror.metric == METRIC_HAMMING ? (float) sum.one
											   : -(float) sum.both / (float) (sum.both + sum.one);
	}

	__device__ static inline Limit
	limit(const MirrorView &, double, Key bound, double)
	{
		Limit limit = sum_limit(bound, 0);

		limit.shift += 1e-5f; /* Jaccard: the difference is subject to cancellation */
		return limit;
	}

	__device__ static inline double
	norm(const MirrorView &, const float *)
	{
		return 0;
	}
};

/*
 * Number of threads per row: that of fast_team(), but each reads at least 16
 * bytes.
 */
__host__ __device__ static inline uint32_t
scan_team(uint32_t row_bytes)
{
	uint32_t team = fast_team(row_bytes);

	while (team > 1 && team * 16 > row_bytes)
		team >>= 1;
	return team;
}

#endif /* GPUANN_CUDA_EXACT_CHEAP_CUH */
