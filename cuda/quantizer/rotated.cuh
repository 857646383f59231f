/*
 * rotated.cuh
 *		Rotated codes on the device (quantizer.h): the same rotations, codes and
 *		estimates as src/engine/quantizer, to the bit.
 *
 * Vectors are rotated in shared memory, by a warp or a block: about log2(dims)
 * steps a round, a barrier after each, 8 bytes read and written per addition.
 */
#ifndef GPUANN_CUDA_ROTATED_CUH
#define GPUANN_CUDA_ROTATED_CUH

#include "cuda/quantizer/quantizer.h"
#include "cuda/common/distance.cuh"

/* Bytes of shared memory that a query is rotated in. */
static inline uint32_t
rotating_bytes(const MirrorView *mirror)
{
	return 2 * mirror->dims * (uint32_t) sizeof(float);
}

/* The threads that rotate a vector together. */
struct RotatingWarp
{
	__device__ static inline uint32_t
	thread()
	{
		return threadIdx.x % WARP;
	}

	__device__ static inline uint32_t
	threads()
	{
		return WARP;
	}

	__device__ static inline void
	barrier()
	{
		__syncwarp();
	}
};

struct RotatingBlock
{
	__device__ static inline uint32_t
	thread()
	{
		return threadIdx.x;
	}

	__device__ static inline uint32_t
	threads()
	{
		return blockDim.x;
	}

	__device__ static inline void
	barrier()
	{
		__syncthreads();
	}
};

/* The highest bit of a number that is not 0. */
__device__ static inline uint32_t
highest_bit(uint32_t number)
{
	return 0x80000000u >> __clz((int) number);
}

/*
 * Transform each block, scaled (transform_blocks() of rotation.c). After a
 * barrier; without one at the end: thread t has written elements t, t +
 * threads, ...
 */
template <class By>
__device__ static inline void
transform_blocks(uint32_t dims, float *values)
{
	uint32_t log = 0;

#pragma unroll 1
	for (uint32_t step = 1; step <= dims / 2; step *= 2, log++)
	{
#pragma unroll 1
		for (uint32_t i = By::thread(); i < dims >> (log + 1) << log; i += By::threads())
		{
			float *a = values + 2 * i - (i & (step - 1));
			float low = *a,
				  high = a[step];

			*a = low + high;
			a[step] = low - high;
		}
		By::barrier();
	}
#pragma unroll 1
	for (uint32_t i = By::thread(); i < dims; i += By::threads())
		values[i] *= 1.0f / sqrtf((float) highest_bit(dims ^ i));
}

/*
 * Rotate dims values, of which thread t has written t, t + threads, ...; room
 * is for as many. Returns where they are then: one of the two, by the same
 * threads; no barrier at the end.
 */
template <class By>
__device__ static inline float *
rotate(const uint32_t *rotation, uint32_t dims, float *values, float *room)
{
#pragma unroll 1
	for (uint32_t i = By::thread(); i < dims; i += By::threads())
		if (__ldg(rotation + i) & ROTATION_FIRST_SIGN)
			values[i] = -values[i];
	By::barrier();
	transform_blocks<By>(dims, values);
	if (highest_bit(dims) == dims)
		return values;
	By::barrier();
#pragma unroll 1
	for (uint32_t i = By::thread(); i < dims; i += By::threads())
	{
		uint32_t word = __ldg(rotation + i);
		float value = values[word & ROTATION_PLACE];

		room[i] = word & ROTATION_SECOND_SIGN ? -value : value;
	}
	By::barrier();
	transform_blocks<By>(dims, room);
	return room;
}

/* How far a value is from its offset, infinite where that is too far. */
__device__ static inline float
rotated_size(float value)
{
	value = fabsf(value);
	return value < INT8_FAR ? value : HUGE_VALF;
}

/* Codes to a unit, of a row whose farthest value is at `most`; and the step. */
__device__ static inline float
rotated_factor(float most)
{
	return most >= INT8_NEAR && most < INT8_FAR ? 127.0f / most : 0;
}

__device__ static inline float
rotated_step(float most)
{
	return most >= INT8_NEAR && most < INT8_FAR ? most / 127.0f : 0;
}

/*
 * The product of the offsets with other values, and with themselves, in every
 * lane: product_of() of int8.c. One warp.
 */
struct OffsetProducts
{
	float other;
	float own;
};

__device__ static inline OffsetProducts
offset_products(const float *offsets, const float *values, uint32_t dims)
{
	OffsetProducts sums = {0, 0};

#pragma unroll 4
	for (uint32_t i = threadIdx.x % WARP; i < dims; i += WARP)
	{
		float offset = __ldg(offsets + i);

		sums.other += offset * values[i];
		sums.own += offset * offset;
	}
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
	{
		sums.other += __shfl_xor_sync(FULL_WARP, sums.other, (int) distance);
		sums.own += __shfl_xor_sync(FULL_WARP, sums.own, (int) distance);
	}
	return sums;
}

/*
 * The key of an estimate (int8_estimate()) from the product of a query's codes
 * and a row's, the query's step and factor and the row's scale.
 */
template <int TERM>
__device__ static inline uint32_t
rotated_key(float step, float factor, const float2 &scale, int product)
{
	float estimate = step * scale.x * (float) product;

	return fast_key(TERM == TERM_SQUARE ? scale.y - 2 * estimate : factor * scale.y - estimate);
}

#endif /* GPUANN_CUDA_ROTATED_CUH */
