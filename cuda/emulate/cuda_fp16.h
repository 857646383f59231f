/*
 * cuda_fp16.h
 *		Half precision as kernels use it: conversion from and to float.
 */
#ifndef GPUANN_EMULATE_CUDA_FP16_H
#define GPUANN_EMULATE_CUDA_FP16_H

#include <stdint.h>
#include <string.h>

#include <cuda_runtime.h>

/* The float with these bits. */
static inline float
float_with_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/*
 * Kernels of products spend most of their emulated time in conversions, hence
 * bits and no ldexpf().
 */
struct __half
{
	uint16_t bits;

	/* Exact: the product moves the exponent, of subnormals too. */
	operator float() const
	{
		uint32_t size = (uint32_t) (bits & 0x7FFF) << 13;
		float value = size < 0x0F800000 ? float_with_bits(size) * 0x1p112f
										: float_with_bits(size | 0x7F800000);

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
	uint32_t bits, sign, size;

	memcpy(&bits, &value, sizeof(bits));
	sign = bits >> 16 & 0x8000;
	size = bits & 0x7FFFFFFF;
	if (size >= 0x477FF000) /* 65520 */
		size = size <= 0x7F800000 ? 0x7C00 : 0x7E00;
	else if (size < 0x38800000) /* 2^-14: in the sum the last bit is 2^-24 */
	{
		float sum = float_with_bits(size) + 0.5f;

		memcpy(&size, &sum, sizeof(size));
		size -= 0x3F000000;
	}
	else
		size = ((size + 0xFFF + (size >> 13 & 1)) >> 13) - (112 << 10);
	return {(uint16_t) (sign | size)};
}

static inline float2
__half22float2(const __half2 pair)
{
	return make_float2((float) pair.x, (float) pair.y);
}

#endif /* GPUANN_EMULATE_CUDA_FP16_H */
