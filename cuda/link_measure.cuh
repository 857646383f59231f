/*
 * link_measure.cuh
 *		Distances between two stored rows, as linking compares them: single precision, the same in either order to the bit.
 *
 * A team of 8, 16 or 32 threads per pair, 16 bytes of each row per load. Bound: memory and L2; a row that is compared with many stays in L1.
 */
#ifndef GPUANN_CUDA_LINK_MEASURE_CUH
#define GPUANN_CUDA_LINK_MEASURE_CUH

#include "distance.cuh"
#include "link.h"

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

/* A distance as an unsigned number of the same order: -0 is +0, NaN is infinity. */
__device__ static inline uint32_t
link_key(float distance)
{
	uint32_t bits;

	distance = distance != distance ? HUGE_VALF : distance == 0 ? 0.0f : distance;
	bits = __float_as_uint(distance);
	return bits >> 31 ? ~bits : bits | 0x80000000u;
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

/* The distance of two rows of numbers. */
template <typename T, int TERM>
struct PairMeasure
{
	__device__ static inline float
	distance(const MirrorView &mirror, uint32_t a, uint32_t b, bool active, uint32_t team)
	{
		const uint4 *row_a = (const uint4 *) (mirror.vectors + (size_t) a * mirror.stride);
		const uint4 *row_b = (const uint4 *) (mirror.vectors + (size_t) b * mirror.stride);
		float sum = 0;

		if (active)
		{
#pragma unroll 4
			for (uint32_t chunk = threadIdx.x & (team - 1); chunk < mirror.stride / 16; chunk += team)
				sum = pair_chunk<TERM>(sum, __ldg(row_a + chunk), __ldg(row_b + chunk), (const T *) 0);
		}
		for (uint32_t distance = team / 2; distance > 0; distance >>= 1)
			sum += __shfl_xor_sync(FULL_WARP, sum, (int) distance);
		if (TERM != TERM_PRODUCT)
			return sum;
		if (mirror.metric != METRIC_COSINE || !active)
			return -sum;
		return 1.0f - sum * (rsqrtf((float) mirror.norms[a]) * rsqrtf((float) mirror.norms[b]));
	}
};

/* The distance of two rows of bits. */
template <>
struct PairMeasure<Bits, TERM_BITS>
{
	__device__ static inline float
	distance(const MirrorView &mirror, uint32_t a, uint32_t b, bool active, uint32_t team)
	{
		BitCounts counts = team_counts((const uint4 *) (mirror.vectors + (size_t) a * mirror.stride),
									   (const uint4 *) (mirror.vectors + (size_t) b * mirror.stride), mirror.stride, active, team);

		if (mirror.metric == METRIC_HAMMING)
			return (float) counts.one;
		return counts.both == 0 ? 1.0f : 1.0f - (float) counts.both / (float) (counts.both + counts.one);
	}
};

/* The key of the distance between two slots' rows, in every thread of a team. Called by whole warps. */
template <typename T, int TERM>
__device__ static inline uint32_t
pair_key(const MirrorView &mirror, uint32_t a, uint32_t b, bool active, uint32_t team)
{
	return link_key(PairMeasure<T, TERM>::distance(mirror, active ? a : 0, active ? b : 0, active, team));
}

#endif /* GPUANN_CUDA_LINK_MEASURE_CUH */
