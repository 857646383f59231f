/*
 * cuda_runtime.h
 *		Enough of CUDA to run these kernels and their host code on a processor,
 *		for tests on machines without a GPU.
 *
 * A launch runs its blocks one after another, on one thread that stands for the
 * device. The threads of a block are coroutines: each runs until it reaches a
 * barrier or a warp exchange, then the next one runs. So a kernel's results are
 * computed, and divergent barriers are detected (the scheduler finds no
 * runnable thread, and aborts), but races between barriers may go undetected,
 * fewer of them with another order of threads (GPUANN_EMULATE_ORDER):
 * compute-sanitizer finds those. Streams execute one item at a time, those of
 * different streams in random order (streams.cpp). Warp exchanges require whole
 * warps.
 */
#ifndef GPUANN_EMULATE_CUDA_RUNTIME_H
#define GPUANN_EMULATE_CUDA_RUNTIME_H

#include <atomic>
#include <functional>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tuple>

#include <cuda.h>

#define CUDART_VERSION 13000
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3
{
	unsigned int x, y, z;

	dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z)
	{
	}
};

/* --- kernels -------------------------------------------------------------- */

struct EmulatedThread
{
	dim3 thread_index;
	dim3 block_index;
};
extern EmulatedThread *emulate_current;
extern dim3 emulate_grid;
extern dim3 emulate_block;

#define threadIdx (emulate_current->thread_index)
#define blockIdx (emulate_current->block_index)
#define gridDim emulate_grid
#define blockDim emulate_block

/* Run a kernel now, on the device's thread. */
extern void emulate_run(dim3 grid, dim3 block, size_t shared, const std::function<void()> &kernel);
extern unsigned char *emulate_dynamic_shared();
extern void emulate_block_barrier();
extern void emulate_warp_barrier();
extern uint64_t emulate_exchange(uint64_t value, unsigned int from);
extern uint32_t emulate_ballot(bool vote);
extern bool emulate_any_of_block(bool vote);
/*
 * Busy waiting: a thread that waits for others to change memory calls the first
 * in its loop, and the thread that changes it the second.
 */
extern void emulate_pause();
extern void emulate_changed();

static inline void
__syncthreads()
{
	emulate_block_barrier();
}

static inline void
__syncwarp()
{
	emulate_warp_barrier();
}

template <typename T>
static inline T
__shfl_xor_sync(unsigned int, T value, int distance)
{
	uint64_t bits = 0;

	memcpy(&bits, &value, sizeof(T));
	bits = emulate_exchange(bits, (emulate_current->thread_index.x % 32) ^ (unsigned int) distance);
	memcpy(&value, &bits, sizeof(T));
	return value;
}

template <typename T>
static inline T
__shfl_sync(unsigned int, T value, int from)
{
	uint64_t bits = 0;

	memcpy(&bits, &value, sizeof(T));
	bits = emulate_exchange(bits, (unsigned int) from % 32);
	memcpy(&value, &bits, sizeof(T));
	return value;
}

static inline uint32_t
__ballot_sync(unsigned int, bool vote)
{
	return emulate_ballot(vote);
}

static inline int
__syncthreads_or(int vote)
{
	return emulate_any_of_block(vote != 0);
}

static inline int
__popc(uint32_t bits)
{
	return __builtin_popcount(bits);
}

static inline uint32_t
__brev(uint32_t bits)
{
	uint32_t reversed = 0;

	for (int i = 0; i < 32; i++)
		reversed |= (bits >> i & 1) << (31 - i);
	return reversed;
}

static inline int
__ffs(int bits)
{
	return __builtin_ffs(bits);
}

static inline int
__clz(int bits)
{
	return bits == 0 ? 32 : __builtin_clz((unsigned int) bits);
}

/* sum + the four products of signed bytes. */
static inline int
__dp4a(int a, int b, int sum)
{
	for (int i = 0; i < 32; i += 8)
		sum += (int) (signed char) (a >> i) * (int) (signed char) (b >> i);
	return sum;
}

static inline void
__threadfence()
{
}

static inline void
__threadfence_block()
{
}

static inline void
__threadfence_system()
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

template <typename T>
static inline T
atomicAdd(T *at, T value)
{
	T old = *at;

	*at = old + value;
	return old;
}
static inline uint32_t
atomicAdd(uint32_t *at, int value)
{
	return atomicAdd(at, (uint32_t) value);
}
static inline uint32_t
atomicCAS(uint32_t *at, uint32_t compare, uint32_t value)
{
	uint32_t old = *at;

	if (old == compare)
		*at = value;
	return old;
}
static inline uint32_t
atomicMin(uint32_t *at, uint32_t value)
{
	uint32_t old = *at;

	*at = value < old ? value : old;
	return old;
}
static inline uint32_t
atomicMax(uint32_t *at, uint32_t value)
{
	uint32_t old = *at;

	*at = value > old ? value : old;
	return old;
}
static inline uint32_t
atomicOr(uint32_t *at, uint32_t value)
{
	uint32_t old = *at;

	*at |= value;
	return old;
}
static inline unsigned long long
atomicMin(unsigned long long *at, unsigned long long value)
{
	unsigned long long old = *at;

	*at = value < old ? value : old;
	return old;
}
static inline unsigned long long
atomicMax(unsigned long long *at, unsigned long long value)
{
	unsigned long long old = *at;

	*at = value > old ? value : old;
	return old;
}
static inline uint32_t
atomicAnd(uint32_t *at, uint32_t value)
{
	uint32_t old = *at;

	*at &= value;
	return old;
}

static inline int
__ffsll(long long bits)
{
	return __builtin_ffsll(bits);
}

/* contraction to fma is disabled by the compiler's options */
#define __dadd_rn(a, b) ((a) + (b))
#define __dsub_rn(a, b) ((a) - (b))
#define __dmul_rn(a, b) ((a) * (b))
#define __ddiv_rn(a, b) ((a) / (b))
#define __dsqrt_rn(a) sqrt(a)
#define rsqrtf(a) (1.0f / sqrtf(a))
#define __ldg(pointer) (*(pointer))
#define __ldcg(pointer) (*(pointer))

struct float2
{
	float x, y;
};
struct alignas(16) float4
{
	float x, y, z, w;
};
struct alignas(8) uint2
{
	uint32_t x, y;
};
struct alignas(16) uint4
{
	uint32_t x, y, z, w;
};

static inline float2
make_float2(float x, float y)
{
	return {x, y};
}
static inline float4
make_float4(float x, float y, float z, float w)
{
	return {x, y, z, w};
}
static inline uint4
make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
	return {x, y, z, w};
}
static inline uint32_t
__float_as_uint(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}
static inline float
__uint_as_float(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* --- the runtime ---------------------------------------------------------- */

typedef enum cudaError_t
{
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorInsufficientDriver = 35,
	cudaErrorNoDevice = 100,
	cudaErrorInvalidDeviceFunction = 98,
	cudaErrorNoKernelImageForDevice = 209,
	cudaErrorNotReady = 600,
	cudaErrorUnknown = 999
} cudaError_t;

typedef struct EmulatedStream *cudaStream_t;
typedef struct EmulatedEvent *cudaEvent_t;
typedef void (*cudaHostFn_t)(void *);

enum
{
	cudaStreamNonBlocking = 1,
	cudaEventDisableTiming = 2,
	cudaHostAllocDefault = 0,
	cudaHostAllocMapped = 2,
	cudaEnableDefault = 0
};
typedef enum cudaMemcpyKind
{
	cudaMemcpyHostToDevice = 1,
	cudaMemcpyDeviceToHost = 2,
	cudaMemcpyDeviceToDevice = 3,
	cudaMemcpyDefault = 4
} cudaMemcpyKind;
typedef enum cudaFuncAttribute
{
	cudaFuncAttributeMaxDynamicSharedMemorySize = 8
} cudaFuncAttribute;
typedef enum cudaDriverEntryPointQueryResult
{
	cudaDriverEntryPointSuccess = 0
} cudaDriverEntryPointQueryResult;

struct cudaFuncAttributes
{
	int ptxVersion;
};

struct cudaDeviceProp
{
	char name[256];
	int major, minor;
	int multiProcessorCount;
	size_t sharedMemPerBlockOptin;
	size_t sharedMemPerMultiprocessor;
	size_t totalGlobalMem;
	int pciDomainID, pciBusID, pciDeviceID;
};

/* Append a work item to a stream. */
extern void emulate_enqueue(cudaStream_t stream, std::function<void()> act);

/* Check that a kernel may be launched with this much dynamic shared memory. */
extern void emulate_share(const void *kernel, size_t shared);

/*
 * Make the device hang from now on; number of copies from or to pageable memory
 * so far.
 */
extern void emulate_stall();
extern std::atomic<unsigned long> emulate_pageable;
extern bool emulate_is_pageable(const void *memory);

/* Launch a kernel: arguments are copied at the call, as on a device. */
template <typename... P, typename... A>
static inline void
emulate_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
			   A &&...arguments)
{
	std::tuple<P...> copies(arguments...);

	emulate_share((const void *) kernel, shared);
	emulate_enqueue(stream,
					[=] { emulate_run(grid, block, shared, [&] { std::apply(kernel, copies); }); });
}

extern cudaError_t cudaGetDeviceCount(int *count);
extern cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
extern cudaError_t cudaSetDevice(int device);
extern cudaError_t cudaMalloc(void **memory, size_t bytes);
extern cudaError_t cudaFree(void *memory);
extern cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
extern cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);
extern cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned int flags);
extern cudaError_t cudaFreeHost(void *memory);
extern cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags);
extern cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags,
												int priority);
extern cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
extern cudaError_t cudaStreamDestroy(cudaStream_t stream);
extern cudaError_t cudaStreamQuery(cudaStream_t stream);
extern cudaError_t cudaStreamSynchronize(cudaStream_t stream);
extern cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
									   unsigned int flags = 0);
extern cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags);
extern cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
extern cudaError_t cudaEventQuery(cudaEvent_t event);
extern cudaError_t cudaEventDestroy(cudaEvent_t event);
extern cudaError_t cudaDeviceSynchronize();
static inline cudaError_t
cudaEventSynchronize(cudaEvent_t)
{
	return cudaDeviceSynchronize();
}
extern cudaError_t cudaMemset(void *to, int value, size_t bytes);
extern cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
								   cudaStream_t stream);
extern cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);
extern cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *arg);
extern cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *function);
extern cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute,
										int value);
extern cudaError_t cudaGetLastError();
extern const char *cudaGetErrorString(cudaError_t error);
extern const char *cudaGetErrorName(cudaError_t error);
extern cudaError_t cudaDriverGetVersion(int *version);
extern cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
													unsigned int version, unsigned long long flags,
													cudaDriverEntryPointQueryResult *result);

#endif /* GPUANN_EMULATE_CUDA_RUNTIME_H */
