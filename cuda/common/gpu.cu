/*
 * gpu.cu
 *		Checking calls of CUDA, and the monotonic clock.
 */
#include <stdio.h>
#include <time.h>

#include "cuda/common/gpu.h"

bool
gpu_check(Failure *failure, cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return !failure->failed;
	if (!failure->failed)
		snprintf(failure->text, sizeof(failure->text), "%s: %s (%.120s)", cudaGetErrorName(error),
				 cudaGetErrorString(error), what);
	failure->failed = true;
	return false;
}

EngineStatus
gpu_failed(const Failure *failure, EngineError *error)
{
	return engine_error(error, ENGINE_FAILED, "the device failed: %s", failure->text);
}

uint64_t
clock_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000000 + (uint64_t) now.tv_nsec / 1000;
}
