/*
 * arena.h
 *		Device memory: reserved address ranges, into which physical memory is
 *		mapped as they grow.
 *
 * A range keeps its addresses, so arrays grow in place under running kernels.
 * The arena counts every mapped byte by its use and refuses growth beyond the
 * limit, which includes the context. The driver's functions are looked up at
 * run time, so this library loads on machines without a driver. Used by the
 * engine's owner thread only.
 *
 * Beyond the device's limit a range may continue in pinned host memory, mapped
 * right behind its device memory, so that kernels and copies see one array at
 * consecutive addresses. Host memory has a limit of its own.
 */
#ifndef GPUANN_CUDA_ARENA_H
#define GPUANN_CUDA_ARENA_H

#include "cuda/common/gpu.h"

typedef enum MemoryPart
{
	PART_VECTORS,
	PART_GRAPH,
	PART_NORMS,
	PART_STATE,
	MEMORY_PARTS
} MemoryPart;

/* The driver's virtual memory functions. */
struct DriverMemory
{
	CUresult (*address_reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
	CUresult (*address_free)(CUdeviceptr, size_t);
	CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
					   unsigned long long);
	CUresult (*release)(CUmemGenericAllocationHandle);
	CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
	CUresult (*unmap)(CUdeviceptr, size_t);
	CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
	CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
							CUmemAllocationGranularity_flags);
};

struct Arena
{
	DriverMemory driver;
	int device;
	size_t unit; /* granularity: physical memory is mapped in multiples of this */
	uint64_t limit;
	uint64_t context;
	uint64_t used[MEMORY_PARTS];
	CUmemLocation host; /* location of host mappings; type 0: the driver supports none */
	uint64_t host_limit;
	uint64_t host_used;
};

struct Range
{
	CUdeviceptr base;
	size_t reserved;
	size_t mapped;
	size_t device_bytes; /* of these, device memory; what is mapped behind it is host memory */
	size_t *pieces; /* bytes of each mapping, by address */
	uint32_t npieces;
	MemoryPart part;
};

/*
 * Look up the driver's functions and the granularity; ENGINE_NO_DEVICE where
 * one is missing.
 */
extern EngineStatus arena_open(Arena *arena, int device, EngineError *error);
extern uint64_t arena_used(const Arena *arena);

/* Reserve addresses for `bytes`; maps nothing. */
extern EngineStatus range_reserve(Arena *arena, Range *range, MemoryPart part, uint64_t bytes,
								  EngineError *error);
/*
 * Map device memory so that the first `bytes` are usable. ENGINE_NO_MEMORY
 * leaves the range unchanged.
 */
extern EngineStatus range_grow(Arena *arena, Range *range, uint64_t bytes, EngineError *error);
/* The same with host memory; from then on the range grows only there. */
extern EngineStatus range_grow_host(Arena *arena, Range *range, uint64_t bytes, EngineError *error);
/*
 * Reserve addresses for `bytes` and map all of them. A failure leaves the range
 * without memory and addresses.
 */
extern EngineStatus range_take(Arena *arena, Range *range, MemoryPart part, uint64_t bytes,
							   EngineError *error);
/*
 * Probe whether the driver can map host memory into ranges; if so, allow them
 * `limit` bytes of it.
 */
extern void arena_open_host(Arena *arena, uint64_t limit);
/* Bytes that range_grow() would map. */
extern uint64_t range_grow_cost(const Arena *arena, const Range *range, uint64_t bytes);
/*
 * Unmap the memory and free the addresses, if there are any. The caller has
 * waited for everything that may access them.
 */
extern void range_release(Arena *arena, Range *range);

#endif /* GPUANN_CUDA_ARENA_H */
