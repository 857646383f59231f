/*
 * arena.cu
 *		Reserving, mapping and counting device memory, and host memory mapped
 *		behind it.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/memory/arena.h"

#define DRIVER_VERSION 11020 /* newer than all of these functions */

static bool
find_function(const char *name, void **function)
{
	cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
	cudaError_t error = cudaGetDriverEntryPointByVersion(name, function, DRIVER_VERSION,
														 cudaEnableDefault, &result);
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
		!find_function("cuMemMap", (void **) &driver->map) ||
		!find_function("cuMemUnmap", (void **) &driver->unmap) ||
		!find_function("cuMemSetAccess", (void **) &driver->set_access) ||
		!find_function("cuMemGetAllocationGranularity", (void **) &driver->granularity))
		return engine_error(error, ENGINE_NO_DEVICE,
							"the driver of device %d lacks virtual memory management", device);
	kind = allocation_kind(arena);
	if (driver->granularity(&arena->unit, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
			CUDA_SUCCESS ||
		arena->unit == 0)
		return engine_error(error, ENGINE_NO_DEVICE,
							"device %d does not support virtual memory management", device);
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
	return engine_error(error, ENGINE_NO_MEMORY,
						"no %llu bytes of device addresses are free (driver error %d)",
						(unsigned long long) bytes, (int) result);
}

uint64_t
range_grow_cost(const Arena *arena, const Range *range, uint64_t bytes)
{
	uint64_t wanted = round_up(bytes, arena->unit);

	return wanted > range->mapped ? wanted - range->mapped : 0;
}

/*
 * Map `bytes` (a multiple of the granularity) of new physical memory behind
 * what is mapped, with read and write access for the device.
 */
static CUresult
map_more(Arena *arena, Range *range, const CUmemAllocationProp *from, size_t bytes)
{
	CUmemAllocationProp device = allocation_kind(arena);
	CUmemAccessDesc access;
	CUmemGenericAllocationHandle handle;
	CUresult result = arena->driver.create(&handle, bytes, from, 0);

	if (result != CUDA_SUCCESS)
		return result;
	result = arena->driver.map(range->base + range->mapped, bytes, 0, handle, 0);
	if (result == CUDA_SUCCESS)
	{
		memset(&access, 0, sizeof(access));
		access.location = device.location;
		access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		result = arena->driver.set_access(range->base + range->mapped, bytes, &access, 1);
		if (result != CUDA_SUCCESS)
			arena->driver.unmap(range->base + range->mapped, bytes);
	}
	/*
	 * a mapping holds a reference: releasing the handle frees the memory only
	 * if it was not mapped
	 */
	arena->driver.release(handle);
	return result;
}

/*
 * Append a mapping of `more` bytes, from device or host memory by *from. The
 * caller has checked both limits.
 */
static EngineStatus
grow_range(Arena *arena, Range *range, const CUmemAllocationProp *from, uint64_t more,
		   EngineError *error)
{
	bool host = from->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
	size_t *pieces = (size_t *) realloc(range->pieces, (range->npieces + 1) * sizeof(*pieces));
	CUresult result;

	if (pieces == NULL)
		return engine_error(error, ENGINE_NO_MEMORY, "out of memory");
	range->pieces = pieces;
	result = map_more(arena, range, from, more);
	if (result != CUDA_SUCCESS)
		return engine_error(error, ENGINE_NO_MEMORY,
							"the %s has no %llu bytes left (driver error %d), %llu are in use here",
							host ? "host" : "device", (unsigned long long) more, (int) result,
							(unsigned long long) (host ? arena->host_used : arena_used(arena)));
	range->pieces[range->npieces++] = more;
	range->mapped += more;
	if (host)
		arena->host_used += more;
	else
	{
		range->device_bytes += more;
		arena->used[range->part] += more;
	}
	return ENGINE_OK;
}

EngineStatus
range_grow(Arena *arena, Range *range, uint64_t bytes, EngineError *error)
{
	uint64_t more = range_grow_cost(arena, range, bytes);
	CUmemAllocationProp kind = allocation_kind(arena);

	if (more == 0)
		return ENGINE_OK;
	if (range->mapped + more > range->reserved || arena_used(arena) + more > arena->limit)
		return engine_error(error, ENGINE_NO_MEMORY,
							"%llu more bytes of device memory do not fit: %llu of %llu are in use",
							(unsigned long long) more, (unsigned long long) arena_used(arena),
							(unsigned long long) arena->limit);
	return grow_range(arena, range, &kind, more, error);
}

EngineStatus
range_grow_host(Arena *arena, Range *range, uint64_t bytes, EngineError *error)
{
	uint64_t more = range_grow_cost(arena, range, bytes);
	CUmemAllocationProp kind = allocation_kind(arena);

	if (more == 0)
		return ENGINE_OK;
	if (range->mapped + more > range->reserved || arena->host_used + more > arena->host_limit)
		return engine_error(error, ENGINE_NO_MEMORY,
							"%llu more bytes of rows do not fit in host memory: %llu of %llu are in use",
							(unsigned long long) more, (unsigned long long) arena->host_used,
							(unsigned long long) arena->host_limit);
	kind.location = arena->host;
	return grow_range(arena, range, &kind, more, error);
}

EngineStatus
range_take(Arena *arena, Range *range, MemoryPart part, uint64_t bytes, EngineError *error)
{
	EngineStatus status = range_reserve(arena, range, part, bytes, error);

	if (status == ENGINE_OK)
		status = range_grow(arena, range, bytes, error);
	if (status != ENGINE_OK)
		range_release(arena, range);
	return status;
}

/*
 * Whether the driver maps host memory of this location into a range: maps one
 * granule to find out, because containers may forbid what the device's
 * attributes promise.
 */
static bool
maps_host(Arena *arena, CUmemLocation location)
{
	CUmemAllocationProp kind = allocation_kind(arena);
	EngineError ignored;
	Range range;
	size_t unit;
	bool maps;

	kind.location = location;
	if (arena->driver.granularity(&unit, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
		unit == 0)
		return false;
	/*
	 * device and host mappings follow each other in a range, so both use the
	 * larger granularity
	 */
	unit = unit > arena->unit ? unit : arena->unit;
	if (range_reserve(arena, &range, PART_VECTORS, unit, &ignored) != ENGINE_OK)
		return false;
	maps = grow_range(arena, &range, &kind, unit, &ignored) == ENGINE_OK;
	range_release(arena, &range);
	if (maps)
		arena->unit = unit;
	return maps;
}

void
arena_open_host(Arena *arena, uint64_t limit)
{
	/*
	 * CU_MEM_LOCATION_TYPE_HOST, else HOST_NUMA of node 0, for drivers without
	 * the first; as numbers, because older headers lack the names
	 */
	static const CUmemLocation locations[] = {{(CUmemLocationType) 2, 0},
											  {(CUmemLocationType) 3, 0}};

	for (size_t i = 0;
		 limit > 0 && arena->host_limit == 0 && i < sizeof(locations) / sizeof(locations[0]); i++)
		if (maps_host(arena, locations[i]))
		{
			arena->host = locations[i];
			arena->host_limit = limit;
		}
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
	arena->used[range->part] -= range->device_bytes;
	arena->host_used -= range->mapped - range->device_bytes;
	free(range->pieces);
	memset(range, 0, sizeof(*range));
}
