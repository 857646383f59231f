/*
 * gpu.h
 *		Wrappers around the CUDA runtime: launches, checked calls, shared memory
 *		sizes, carving arrays out of one allocation.
 *
 * The same sources compile with nvcc, and as plain C++ against cuda/emulate,
 * which runs kernels on the processor for tests on machines without a GPU.
 * EMULATED marks the few places that differ.
 */
#ifndef GPUANN_CUDA_GPU_H
#define GPUANN_CUDA_GPU_H

#include <cuda.h>
#include <cuda_runtime.h>

#include <stdint.h>
#include <stddef.h>

extern "C"
{
#include "engine/engine.h"
}

#ifdef EMULATED
#define LAUNCH(kernel, grid, block, shared, stream, ...) \
	emulate_launch((kernel), (grid), (block), (shared), (stream), __VA_ARGS__)
#define DYNAMIC_SHARED(name) unsigned char *name = emulate_dynamic_shared()
#else
#define LAUNCH(kernel, grid, block, shared, stream, ...) \
	(kernel)<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

#define FULL_WARP 0xFFFFFFFFu
#define WARP 32u

/*
 * The first CUDA error of a device. Device errors are sticky: from then on
 * every function of the engine returns ENGINE_FAILED, and the process should
 * exit.
 */
struct Failure
{
	bool failed;
	bool hangs; /* the device does not end what it runs, and is not waited for */
	char text[200];
};

/*
 * Check the result of a CUDA call: true on success; false if it, or any call
 * before it on this device, failed. The first error is recorded.
 */
extern bool gpu_check(Failure *failure, cudaError_t error, const char *what);
/* Write the recorded error to *error and return ENGINE_FAILED. */
extern EngineStatus gpu_failed(const Failure *failure, EngineError *error);

#define GPU(failure, call) gpu_check((failure), (call), #call)

/* Microseconds of the monotonic clock. */
extern uint64_t clock_us(void);

/*
 * Raise a kernel's limit of dynamic shared memory to `bytes`; NULL: no kernel.
 */
template <typename... Arguments>
static inline cudaError_t
allow_shared(void (*kernel)(Arguments...), size_t bytes)
{
	return kernel == NULL
			   ? cudaSuccess
			   : cudaFuncSetAttribute((const void *) kernel,
									  cudaFuncAttributeMaxDynamicSharedMemorySize, (int) bytes);
}

/* The same for every kernel of a table. */
template <typename Kernels, size_t COUNT>
static inline cudaError_t
allow_shared(Kernels (&kernels)[COUNT], size_t bytes)
{
	cudaError_t error = cudaSuccess;

	for (size_t i = 0; i < COUNT && error == cudaSuccess; i++)
		error = allow_shared(kernels[i], bytes);
	return error;
}

/* Smallest power of two that is at least n (and at least 1). */
__host__ __device__ static inline uint32_t
power_of_two(uint32_t n)
{
	uint32_t power = 1;

	while (power < n)
		power <<= 1;
	return power;
}

static inline uint32_t
at_most(uint32_t n, uint32_t most)
{
	return n < most ? n : most;
}

static inline size_t
round_up(size_t n, size_t unit)
{
	return (n + unit - 1) / unit * unit;
}

/*
 * Carve an array of `count` elements out of the memory at *at, and advance *at
 * to the next multiple of 256 bytes. With *at starting at a dummy address it
 * measures a layout.
 */
template <typename T = unsigned char>
static inline T *
carve(unsigned char **at, size_t count)
{
	T *place = (T *) *at;

	*at += round_up(count * sizeof(T), 256);
	return place;
}

#endif /* GPUANN_CUDA_GPU_H */
