/*
 * device.h
 *		One device: its properties, the limits of its kernels, its memory,
 *		streams and mirrors. An engine of several devices would have one of
 *		these each.
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
	/* bytes of host memory: pinned, and the arrays of mirrors and jobs */
	uint64_t host_pinned;
	uint64_t host_arrays;

	/* what kernels may use on this device, and which variants run */
	ExactLimits exact_limits;
	GraphLimits graph_limits;
	ListsLimits lists_limits;

	cudaStream_t job_stream;
	cudaStream_t counts_stream; /* copies counts of probes only, so that waiting for it waits for no
								 * batch and no job */
	cudaStream_t job_callbacks; /* runs the host callback behind an applied piece, so that
								 * job_stream does not wait for the callback */

	CudaMirror *mirrors;
	MirrorId last_mirror;
};

/*
 * Open the device that the configuration names, or the first usable one, into
 * *device, which is zero. ENGINE_NO_DEVICE says why none is usable.
 * device_close() frees what was taken, after an error too; the caller has freed
 * all mirrors by then.
 */
extern EngineStatus device_open(CudaDevice *device, const EngineConfig *config,
								EngineError *error);
extern void device_close(CudaDevice *device);
/* The mirror with this number, or NULL. */
extern CudaMirror *device_mirror(CudaDevice *device, MirrorId id);

#endif /* GPUANN_CUDA_DEVICE_H */
