/*
 * device.h
 *		One device: what it has, what kernels may have of it, its memory,
 *		streams and mirrors. An engine of several devices would have one each.
 */
#ifndef GPUANN_CUDA_DEVICE_H
#define GPUANN_CUDA_DEVICE_H

#include "cuda/exact/exact.h"
#include "cuda/graph/graph_search_codes.h"
#include "cuda/lists/lists_code.h"
#include "cuda/memory/mirror.h"

struct CudaDevice
{
	cudaDeviceProp properties;
	Failure failure;
	Arena arena;
	/* the host's memory: what is pinned, and the mirrors' arrays */
	uint64_t host_pinned;
	uint64_t host_arrays;

	/* what kernels may have, and which are chosen */
	ExactLimits exact_limits;
	GraphLimits graph_limits;
	ListsLimits lists_limits;

	cudaStream_t job_stream;
	cudaStream_t counts_stream; /* counts of probes: nothing else is waited for */
	cudaStream_t job_bell; /* as a batch stream's */

	CudaMirror *mirrors;
	MirrorId last_mirror;
};

/*
 * Take the device that the configuration names, or the first that can be used;
 * *device is zero. ENGINE_NO_DEVICE says why there is none. What was taken is
 * given back by device_close, after an error too; mirrors are gone by then.
 */
extern EngineStatus device_open(CudaDevice *device, const EngineConfig *config,
								EngineError *error);
extern void device_close(CudaDevice *device);
/* The mirror of a number; NULL: there is none. */
extern CudaMirror *device_mirror(CudaDevice *device, MirrorId id);

#endif /* GPUANN_CUDA_DEVICE_H */
