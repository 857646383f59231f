/*
 * cuda_fp16.h
 *		Half precision as kernels use it: reading only.
 */
#ifndef GPUANN_EMULATE_CUDA_FP16_H
#define GPUANN_EMULATE_CUDA_FP16_H

#include <math.h>
#include <stdint.h>

#include <cuda_runtime.h>

struct __half
{
	uint16_t bits;

	operator float() const
	{
		int exponent = (bits >> 10) & 31;
		float fraction = (float) (bits & 0x3FF);
		float value = exponent == 0	   ? ldexpf(fraction, -24)
					  : exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
									   : ldexpf(fraction + 1024, exponent - 25);

		return (bits & 0x8000) ? -value : value;
	}
};

struct __half2
{
	__half x, y;
};

static inline float2
__half22float2(const __half2 pair)
{
	return make_float2((float) pair.x, (float) pair.y);
}

#endif /* GPUANN_EMULATE_CUDA_FP16_H */
