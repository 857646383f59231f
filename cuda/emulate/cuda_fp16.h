/*
 * cuda_fp16.h
 *		Half precision as kernels use it: conversion from and to float.
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

/* Round to the nearest half, ties to even. */
static inline __half
__float2half_rn(float value)
{
	float size = fabsf(value);
	uint16_t sign = signbit(value) ? 0x8000 : 0;
	int exponent = 0;

	if (!(size < 65520))
		return {(uint16_t) (sign | (size == size ? 0x7C00 : 0x7E00))};
	(void) frexpf(size, &exponent);
	if (size < 0x1p-14f)
		return {(uint16_t) (sign | (uint16_t) rintf(ldexpf(size, 24)))};
	return {(uint16_t) (sign | (((exponent + 14) << 10) +
								(int) rintf(ldexpf(size, 11 - exponent)) - 1024))};
}

static inline float2
__half22float2(const __half2 pair)
{
	return make_float2((float) pair.x, (float) pair.y);
}

#endif /* GPUANN_EMULATE_CUDA_FP16_H */
