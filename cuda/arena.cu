/*
 * arena.cu
 *		Reserving, mapping and counting device memory.
 */
#include <stdlib.h>
#include <string.h>

#include "arena.h"

#define DRIVER_VERSION 11020 /* all of these functions are older */

static bool
find_function(const char *name, void **function)
{
	cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
	cudaError_t error = cudaGetDriverEntryPointByVersion(name, function, DRIVER_VERSION, cudaEnableDefault, &result);
#else
	cudaError_t error = cudaGetDriverEntryPoint(name, function, cudaEnableDefault, &result);
#endif

	return error == cudaSuccess && result == cudaDriverEntryPointSuccess && *function != NULL;
}

static CUmemAllocationProp
allocation_kind(const Arena *arena)
{
	CUmemAllocationProp kind;

	memset(&kind, 0, sizeof(kind));
	kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	kind.location.id = arena->device;
	return kind;
}

EngineStatus
arena_open(Arena *arena, int device, EngineError *error)
{
	DriverMemory *driver = &arena->driver;
	CUmemAllocationProp kind;

	memset(arena, 0, sizeof(*arena));
	arena->device = device;
	if (!find_function("cuMemAddressReserve", (void **) &driver->address_reserve) ||
		!find_function("cuMemAddressFree", (void **) &driver->address_free) ||
		!find_function("cuMemCreate", (void **) &driver->create) ||
		!find_function("cuMemRelease", (void **) &driver->release) ||
		!find_function("cuMemMap", (void **) &driver->map) || !find_function("cuMemUnmap", (void **) &driver->unmap) ||
		!find_function("cuMemSetAccess", (void **) &driver->set_access) ||
		!find_function("cuMemGetAllocationGranularity", (void **) &driver->granularity))
	{
		engine_error(error, ENGINE_NO_DEVICE, "the driver of device %d lacks virtual memory management", device);
		return ENGINE_NO_DEVICE;
	}
	kind = allocation_kind(arena);
	if (driver->granularity(&arena->unit, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS || arena->unit == 0)
	{
		engine_error(error, ENGINE_NO_DEVICE, "device %d does not support virtual memory management", device);
		return ENGINE_NO_DEVICE;
	}
	return ENGINE_OK;
}

uint64_t
arena_used(const Arena *arena)
{
	uint64_t used = arena->context;

	for (int part = 0; part < MEMORY_PARTS; part++)
		used += arena->used[part];
	return used;
}

EngineStatus
range_reserve(Arena *arena, Range *range, MemoryPart part, uint64_t bytes, EngineError *error)
{
	CUresult result;

	memset(range, 0, sizeof(*range));
	range->part = part;
	range->reserved = round_up(bytes > 0 ? bytes : 1, arena->unit);
	result = arena->driver.address_reserve(&range->base, range->reserved, 0, 0, 0);
	if (result == CUDA_SUCCESS)
		return ENGINE_OK;
	memset(range, 0, sizeof(*range));
	engine_error(error, ENGINE_NO_MEMORY, "no %llu bytes of device addresses are free (driver error %d)",
				 (unsigned long long) bytes, (int) result);
	return ENGINE_NO_MEMORY;
}

uint64_t
range_grow_cost(const Arena *arena, const Range *range, uint64_t bytes)
{
	uint64_t wanted = round_up(bytes, arena->unit);

	return wanted > range->mapped ? wanted - range->mapped : 0;
}

/* Map `bytes` (whole units) of new physical memory behind what is mapped. */
static CUresult
map_more(Arena *arena, Range *range, size_t bytes)
{
	CUmemAllocationProp kind = allocation_kind(arena);
	CUmemAccessDesc access;
	CUmemGenericAllocationHandle handle;
	CUresult result = arena->driver.create(&handle, bytes, &kind, 0);

	if (result != CUDA_SUCCESS)
		return result;
	result = arena->driver.map(range->base + range->mapped, bytes, 0, handle, 0);
	if (result == CUDA_SUCCESS)
	{
		memset(&access, 0, sizeof(access));
		access.location = kind.location;
		access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		result = arena->driver.set_access(range->base + range->mapped, bytes, &access, 1);
		if (result != CUDA_SUCCESS)
			arena->driver.unmap(range->base + range->mapped, bytes);
	}
	/* the mapping keeps the memory; without one it is free again */
	arena->driver.release(handle);
	return result;
}

EngineStatus
range_grow(Arena *arena, Range *range, uint64_t bytes, EngineError *error)
{
	uint64_t more = range_grow_cost(arena, range, bytes);
	size_t *pieces;
	CUresult result;

	if (more == 0)
		return ENGINE_OK;
	if (range->mapped + more > range->reserved || arena_used(arena) + more > arena->limit)
	{
		engine_error(error, ENGINE_NO_MEMORY, "%llu more bytes of device memory do not fit: %llu of %llu are in use",
					 (unsigned long long) more, (unsigned long long) arena_used(arena),
					 (unsigned long long) arena->limit);
		return ENGINE_NO_MEMORY;
	}
	pieces = (size_t *) realloc(range->pieces, (range->npieces + 1) * sizeof(*pieces));
	if (pieces == NULL)
	{
		engine_error(error, ENGINE_NO_MEMORY, "out of memory");
		return ENGINE_NO_MEMORY;
	}
	range->pieces = pieces;
	result = map_more(arena, range, more);
	if (result != CUDA_SUCCESS)
	{
		engine_error(error, ENGINE_NO_MEMORY, "the device has no %llu bytes left (driver error %d), %llu are in use here",
					 (unsigned long long) more, (int) result, (unsigned long long) arena_used(arena));
		return ENGINE_NO_MEMORY;
	}
	range->pieces[range->npieces++] = more;
	range->mapped += more;
	arena->used[range->part] += more;
	return ENGINE_OK;
}

void
range_release(Arena *arena, Range *range)
{
	size_t at = 0;

	for (uint32_t i = 0; i < range->npieces; i++)
	{
		arena->driver.unmap(range->base + at, range->pieces[i]);
		at += range->pieces[i];
	}
	if (range->base != 0)
		arena->driver.address_free(range->base, range->reserved);
	arena->used[range->part] -= range->mapped;
	free(range->pieces);
	memset(range, 0, sizeof(*range));
}
