/*
 * halves.h
 *		Half precision on the host, for models of tests.
 */
#ifndef GPUANN_CUDA_TESTS_HALVES_H
#define GPUANN_CUDA_TESTS_HALVES_H

#include <stdint.h>
#include <string.h>

/*
 * Conversion of half-precision bits to float and back; only for values whose
 * half is not denormal, rounded towards 0.
 */
static inline float
float_of_half(uint16_t half)
{
	uint32_t bits = (half & 0x7C00) == 0 ? 0
										 : (uint32_t) (half & 0x8000) << 16 |
											   ((((uint32_t) half & 0x7FFF) << 13) + (112u << 23));
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint16_t
half_of_float(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (bits >> 23 & 0xFF) <= 112
			   ? 0
			   : (uint16_t) ((bits >> 16 & 0x8000) | ((bits & 0x7FFFFFFF) - (112u << 23)) >> 13);
}

#endif /* GPUANN_CUDA_TESTS_HALVES_H */
