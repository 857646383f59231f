/*
 * gpu.h
 *		CUDA as this zone uses it: one way to launch, one way to check.
 *
 * The same sources compile with nvcc, and with a C++ compiler against emulate/,
 * where kernels run on the processor one block after another: that is how
 * kernels are tested on machines without a GPU. EMULATED tells the few places
 * that differ.
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
 * The first CUDA error of an engine. After it the engine answers ENGINE_FAILED
 * to everything: a device error is sticky, and the process that met one is to
 * end.
 */
struct Failure
{
	bool failed;
	char text[200];
};

/* Check a CUDA call: true when it succeeded, else the failure is recorded. */
extern bool gpu_check(Failure *failure, cudaError_t error, const char *what);
/* Say why an engine failed, and return ENGINE_FAILED. */
extern EngineStatus gpu_failed(const Failure *failure, EngineError *error);

#define GPU(failure, call) gpu_check((failure), (call), #call)

/* Microseconds of the monotonic clock. */
extern uint64_t clock_us(void);

/* Let a kernel (NULL: none) have so much dynamic shared memory. */
template <typename... Arguments>
static inline cudaError_t
allow_shared(void (*kernel)(Arguments...), size_t bytes)
{
	return kernel == NULL
			   ? cudaSuccess
			   : cudaFuncSetAttribute((const void *) kernel,
									  cudaFuncAttributeMaxDynamicSharedMemorySize, (int) bytes);
}

/* Likewise all kernels of a table. */
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

/* Take an array of `count` from *at on, which moves to the next 256 bytes. */
template <typename T = unsigned char>
static inline T *
carve(unsigned char **at, size_t count)
{
	T *place = (T *) *at;

	*at += round_up(count * sizeof(T), 256);
	return place;
}

#endif /* GPUANN_CUDA_GPU_H */
