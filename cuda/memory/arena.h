/*
 * arena.h
 *		Device memory: reserved address ranges into which physical memory is
 *		mapped as they grow.
 *
 * A range's addresses never change, so what it holds grows in place under
 * running kernels. The arena counts every byte by what it is for and refuses
 * what would exceed the limit, which includes the context. The driver's
 * functions are looked up at run time, so that this library loads on machines
 * without a driver. Used by the engine's owner thread only.
 *
 * A range may go on in the host's memory where the device's ends: pinned,
 * mapped behind the rest, so that kernels and copies find all of it at
 * consecutive addresses. That memory has a limit of its own.
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
	size_t unit; /* physical memory comes in multiples of this */
	uint64_t limit;
	uint64_t context;
	uint64_t used[MEMORY_PARTS];
	CUmemLocation host; /* where the host's memory comes from; type 0: the driver maps none */
	uint64_t host_limit;
	uint64_t host_used;
};

struct Range
{
	CUdeviceptr base;
	size_t reserved;
	size_t mapped;
	size_t near; /* of these, bytes on the device; the rest, behind them, is the host's memory */
	size_t *pieces; /* bytes of each mapping, in order */
	uint32_t npieces;
	MemoryPart part;
};

/* Look the driver's functions up. */
extern EngineStatus arena_open(Arena *arena, int device, EngineError *error);
extern uint64_t arena_used(const Arena *arena);

/* Reserve addresses; nothing is mapped yet. */
extern EngineStatus range_reserve(Arena *arena, Range *range, MemoryPart part, uint64_t bytes,
								  EngineError *error);
/*
 * Map memory so that at least the first `bytes` are usable. ENGINE_NO_MEMORY
 * leaves the range as it was.
 */
extern EngineStatus range_grow(Arena *arena, Range *range, uint64_t bytes, EngineError *error);
/* The same with the host's memory; from then on the range grows there only. */
extern EngineStatus range_grow_host(Arena *arena, Range *range, uint64_t bytes, EngineError *error);
/*
 * Find out whether the driver maps the host's memory, and let ranges have so
 * much of it.
 */
extern void arena_open_host(Arena *arena, uint64_t limit);
/* How many bytes range_grow would take from the limit. */
extern uint64_t range_grow_cost(const Arena *arena, const Range *range, uint64_t bytes);
/* Unmap and give the addresses back. Nothing may be using them. */
extern void range_release(Arena *arena, Range *range);

#endif /* GPUANN_CUDA_ARENA_H */
