/*
 * testing.cuh
 *		Shared by tests of kernels: TAP, checking CUDA calls, random numbers
 *		from a seed.
 */
#ifndef GPUANN_CUDA_TESTING_H
#define GPUANN_CUDA_TESTING_H

#include <stdio.h>
#include <stdlib.h>

#include "cuda/common/gpu.h"

static uint32_t tests,
	failures;
static uint64_t random_state = 1;

/* Report a test in TAP. */
static inline void
say(bool good, const char *what)
{
	tests++;
	failures += !good;
	printf("%s %u - %s\n", good ? "ok" : "not ok", tests, what);
	fflush(stdout);
}

/* Exit if a CUDA call fails. */
static inline void
must(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	printf("Bail out! %s: %s\n", what, cudaGetErrorString(error));
	exit(1);
}

static inline uint32_t
random_bits()
{
	uint64_t x = random_state += UINT64_C(0x9E3779B97F4A7C15);

	x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
	x ^= x >> 31;
	return (uint32_t) (x >> 32);
}

static inline uint32_t
random_below(uint32_t limit)
{
	return (uint32_t) ((uint64_t) random_bits() * limit >> 32);
}

#endif /* GPUANN_CUDA_TESTING_H */
