/*
 * device.cu
 *		Opening a device: context, limits of kernels, memory limits, streams.
 */
#include <stdio.h>
#include <unistd.h>

#include "cuda/link/link.h"
#include "cuda/lists/lists_search.h"
#include "cuda/memory/context.h"
#include "cuda/memory/device.h"

#define LIMIT_PERCENT 80		 /* of the device's memory, unless the configuration sets a limit */
#define MIN_SHARED (96u << 10) /* shared memory per block that the longest vectors need */

static EngineStatus
no_device(EngineError *error, const char *what, cudaError_t reason)
{
	return engine_error(error, ENGINE_NO_DEVICE, "%s: %s", what, cudaGetErrorString(reason));
}

/*
 * Open one device: create its context, load the code, check that these kernels
 * run on it, measure the context.
 */
static EngineStatus
take_device(CudaDevice *device, const EngineConfig *config, int number, EngineError *error)
{
	uint64_t before,
			 own;
	cudaError_t result = cudaGetDeviceProperties(&device->properties, number);
	char what[96];

	snprintf(what, sizeof(what), "device %d cannot be used", number);
	if (result != cudaSuccess)
		return no_device(error, what, result);
	if (device->properties.sharedMemPerBlockOptin < MIN_SHARED)
		return engine_error(error, ENGINE_NO_DEVICE,
							"device %d has architecture %d.%d: this engine needs 8.0 or newer",
							number, device->properties.major, device->properties.minor);
	device_bytes_used(&device->properties, &before, &own);
	result = cudaSetDevice(number);
	if (result == cudaSuccess)
		result = cudaFree(NULL);
	if (result == cudaSuccess)
		result = graph_search_prepare(&device->properties, &device->graph_limits);
	if (result == cudaSuccess)
		result = walk_prepare(&device->properties, &device->graph_limits);
	if (result == cudaSuccess)
		result = exact_prepare(device->properties.sharedMemPerBlockOptin, &config->forced,
							   &device->exact_limits);
	if (result == cudaSuccess)
		result = link_walk_prepare(device->properties.sharedMemPerBlockOptin);
	if (result == cudaSuccess)
		result = link_rows_prepare(device->properties.sharedMemPerBlockOptin);
	if (result == cudaSuccess)
		result = link_repair_prepare(device->properties.sharedMemPerBlockOptin);
	if (result == cudaSuccess)
		result = link_codes_prepare(device->properties.sharedMemPerBlockOptin);
	if (result == cudaSuccess)
		result = lists_code_prepare(&device->properties, &device->lists_limits);
	if (result == cudaSuccess)
		result = lists_search_prepare(&device->properties);
	if (result == cudaErrorNoKernelImageForDevice || result == cudaErrorInvalidDeviceFunction)
	{
		(void) cudaGetLastError();
		return engine_error(error, ENGINE_NO_DEVICE,
							"device %d has architecture %d.%d, which this engine was not built for",
							number, device->properties.major, device->properties.minor);
	}
	if (result != cudaSuccess)
		return no_device(error, what, result);
	if (arena_open(&device->arena, number, error) != ENGINE_OK)
		return ENGINE_NO_DEVICE;
	device->arena.context = context_bytes(&device->properties, number, before, own);
	return ENGINE_OK;
}

/* Open the device asked for, or the first that is usable. */
static EngineStatus
choose_device(CudaDevice *device, const EngineConfig *config, EngineError *error)
{
	int count = 0,
		driver = 0;
	EngineStatus status = ENGINE_NO_DEVICE;
	cudaError_t result = cudaDriverGetVersion(&driver);

	if (result == cudaSuccess && driver == 0)
		return engine_error(error, ENGINE_NO_DEVICE, "there is no CUDA driver");
	result = cudaGetDeviceCount(&count);
	if (result != cudaSuccess)
		return no_device(error, "no CUDA device can be used", result);
	if (count == 0 || config->device >= count)
		return engine_error(error, ENGINE_NO_DEVICE, "there is no CUDA device %d: %d were found",
							config->device, count);
	if (config->device >= 0)
		return take_device(device, config, config->device, error);
	for (int i = 0; i < count && status != ENGINE_OK; i++)
		status = take_device(device, config, i, error);
	return status;
}

/* Physical memory of the host, in bytes. */
static uint64_t
host_bytes(void)
{
	return (uint64_t) sysconf(_SC_PHYS_PAGES) * (uint64_t) sysconf(_SC_PAGESIZE);
}

/*
 * Allow mirrors as much host memory for rows as the configuration says, but at
 * most a quarter of the machine's: pinned pages are not available to any other
 * process.
 */
static void
open_host_rows(CudaDevice *device, const EngineConfig *config)
{
	uint64_t most = host_bytes() / 4;
	uint64_t wanted = config->host_rows_limit;

	arena_open_host(&device->arena, wanted < most ? wanted : most);
}

EngineStatus
device_open(CudaDevice *device, const EngineConfig *config, EngineError *error)
{
	cudaStream_t *const streams[] = {&device->job_stream, &device->counts_stream,
									 &device->job_callbacks};
	EngineStatus status = choose_device(device, config, error);

	if (status != ENGINE_OK)
		return status;
	device->arena.limit = config->memory_limit > 0
							  ? config->memory_limit
							  : device->properties.totalGlobalMem / 100 * LIMIT_PERCENT;
	open_host_rows(device, config);
	for (cudaStream_t *stream : streams)
		if (!GPU(&device->failure, cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking)))
			return gpu_failed(&device->failure, error);
	return ENGINE_OK;
}

void
device_close(CudaDevice *device)
{
	const cudaStream_t streams[] = {device->job_stream, device->counts_stream,
									device->job_callbacks};

	for (cudaStream_t stream : streams)
		if (stream != NULL)
			GPU(&device->failure, cudaStreamDestroy(stream));
}

CudaMirror *
device_mirror(CudaDevice *device, MirrorId id)
{
	CudaMirror *mirror = device->mirrors;

	while (mirror != NULL && mirror->id != id)
		mirror = mirror->next;
	return mirror;
}
