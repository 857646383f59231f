/*
 * link_measure.cuh
 *		Distances between two stored rows, as linking compares them: single
 *		precision, the same in either order to the bit.
 *
 * A team of 8, 16 or 32 threads per pair, 16 bytes of each row per load. Bound:
 * memory and L2; a row that is compared with many stays in L1.
 */
#ifndef GPUANN_CUDA_LINK_MEASURE_CUH
#define GPUANN_CUDA_LINK_MEASURE_CUH

#include "cuda/common/distance.cuh"
#include "cuda/link/link.h"

__device__ static inline uint32_t
link_slot(LinkEntry entry)
{
	return (uint32_t) entry >> 1;
}

__device__ static inline uint32_t
link_key_of(LinkEntry entry)
{
	return (uint32_t) (entry >> 32);
}

/* A pseudo-random rank of a duplicate: that of src/engine/select.h. */
__device__ static inline uint32_t
link_equal_rank(uint32_t slot, uint32_t self)
{
	uint32_t x = slot * 0x85EBCA77u + self * 0x9E3779B1u;

	x ^= x >> 16;
	x *= 0x7FEB352Du;
	x ^= x >> 15;
	return x;
}

template <int TERM>
__device__ static inline float
pair_chunk(float sum, const uint4 &a, const uint4 &b, const float *)
{
	sum = fast_term<TERM>(sum, __uint_as_float(a.x), __uint_as_float(b.x));
	sum = fast_term<TERM>(sum, __uint_as_float(a.y), __uint_as_float(b.y));
	sum = fast_term<TERM>(sum, __uint_as_float(a.z), __uint_as_float(b.z));
	return fast_term<TERM>(sum, __uint_as_float(a.w), __uint_as_float(b.w));
}

template <int TERM>
__device__ static inline float
pair_halves(float sum, uint32_t a, uint32_t b)
{
	float2 wide = __half22float2(*(const __half2 *) &a);

	return fast_pair<TERM>(sum, wide.x, wide.y, b);
}

template <int TERM>
__device__ static inline float
pair_chunk(float sum, const uint4 &a, const uint4 &b, const __half *)
{
	sum = pair_halves<TERM>(sum, a.x, b.x);
	sum = pair_halves<TERM>(sum, a.y, b.y);
	sum = pair_halves<TERM>(sum, a.z, b.z);
	return pair_halves<TERM>(sum, a.w, b.w);
}

/* Distances of a row to PAIRS others: their loads are in flight together. */
template <typename T, int TERM>
struct PairMeasure
{
	template <uint32_t PAIRS>
	__device__ static inline void distances(const MirrorView &mirror, uint32_t a, const uint32_t *b,
											const bool *active, uint32_t team, float *out)
	{
		const uint4 *row_a = (const uint4 *) (mirror.vectors + (size_t) a * mirror.stride);
		const uint4 *row_b[PAIRS];
		bool any = false;

#pragma unroll
		for (uint32_t i = 0; i < PAIRS; i++)
		{
			any = any || active[i];
			row_b[i] = (const uint4 *) (mirror.vectors + (size_t) b[i] * mirror.stride);
			out[i] = 0;
		}
		if (any)
		{
#pragma unroll(PAIRS == 1 ? 4 : 2)
			for (uint32_t chunk = threadIdx.x & (team - 1); chunk < mirror.stride / 16;
				 chunk += team)
			{
				uint4 chunk_a = __ldg(row_a + chunk);
				uint4 chunk_b[PAIRS];

#pragma unroll
				for (uint32_t i = 0; i < PAIRS; i++)
					chunk_b[i] = __ldg(row_b[i] + chunk);
#pragma unroll
				for (uint32_t i = 0; i < PAIRS; i++)
					out[i] = pair_chunk<TERM>(out[i], chunk_a, chunk_b[i], (const T *) 0);
			}
		}
#pragma unroll
		for (uint32_t i = 0; i < PAIRS; i++)
		{
			for (uint32_t distance = team / 2; distance > 0; distance >>= 1)
				out[i] += __shfl_xor_sync(FULL_WARP, out[i], (int) distance);
			if (TERM == TERM_PRODUCT)
				out[i] = mirror.metric != METRIC_COSINE || !active[i]
							 ? -out[i]
							 : 1.0f - out[i] * (rsqrtf((float) mirror.norms[a]) *
												rsqrtf((float) mirror.norms[b[i]]));
		}
	}
};

/* The same of rows of bits. */
template <>
struct PairMeasure<Bits, TERM_BITS>
{
	template <uint32_t PAIRS>
	__device__ static inline void distances(const MirrorView &mirror, uint32_t a, const uint32_t *b,
											const bool *active, uint32_t team, float *out)
	{
#pragma unroll
		for (uint32_t i = 0; i < PAIRS; i++)
		{
			CudaBitCounts counts =
				team_counts((const uint4 *) (mirror.vectors + (size_t) a * mirror.stride),
							(const uint4 *) (mirror.vectors + (size_t) b[i] * mirror.stride),
							mirror.stride, active[i], team);

			if (mirror.metric == METRIC_HAMMING)
				out[i] = (float) counts.one;
			else
				out[i] = counts.both == 0
							 ? 1.0f
							 : 1.0f - (float) counts.both / (float) (counts.both + counts.one);
		}
	}
};

/*
 * Keys of the distances between a slot's row and those of PAIRS others, in
 * every thread of a team, which agrees on what is active; what is not has a key
 * without a meaning. Called by whole warps.
 */
template <typename T, int TERM, uint32_t PAIRS>
__device__ static inline void
pair_keys(const MirrorView &mirror, uint32_t a, const uint32_t *b, const bool *active,
		  uint32_t team, uint32_t *keys)
{
	uint32_t others[PAIRS];
	float distances[PAIRS];

#pragma unroll
	for (uint32_t i = 0; i < PAIRS; i++)
		others[i] = active[i] ? b[i] : 0;
	PairMeasure<T, TERM>::template distances<PAIRS>(mirror, a, others, active, team, distances);
#pragma unroll
	for (uint32_t i = 0; i < PAIRS; i++)
		keys[i] = fast_key(distances[i]);
}

/*
 * The key of the distance between two slots' rows, in every thread of a team.
 * Called by whole warps.
 */
template <typename T, int TERM>
__device__ static inline uint32_t
pair_key(const MirrorView &mirror, uint32_t a, uint32_t b, bool active, uint32_t team)
{
	uint32_t key;

	pair_keys<T, TERM, 1>(mirror, active ? a : 0, &b, &active, team, &key);
	return key;
}

/*
 * The key to compare with that between a candidate and the row `self`, for
 * whether a neighbour of the row hides the candidate: that between the two, and
 * for inner products a margin (prune_margin() of src/engine/prune.h).
 */
template <int TERM>
__device__ static inline uint32_t
hiding_key(const MirrorView &mirror, uint32_t self, uint32_t neighbour, uint32_t key)
{
	if (TERM != TERM_PRODUCT || mirror.metric != METRIC_IP)
		return key;
	return fast_key(distance_of_key(key) +
					(float) fmax(0.5 * (mirror.norms[neighbour] - mirror.norms[self]), 0.0));
}

#endif /* GPUANN_CUDA_LINK_MEASURE_CUH */
