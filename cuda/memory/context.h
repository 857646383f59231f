/*
 * context.h
 *		How much of a device's memory the context takes.
 */
#ifndef GPUANN_CUDA_CONTEXT_H
#define GPUANN_CUDA_CONTEXT_H

#include "cuda/common/gpu.h"

/*
 * Bytes in use of a device, and of these by this process; what the context has
 * taken since. 0: not told.
 */
extern void device_bytes_used(const cudaDeviceProp *device, uint64_t *all, uint64_t *own);
extern uint64_t context_bytes(const cudaDeviceProp *device, int number, uint64_t all_before,
							  uint64_t own_before);

#endif /* GPUANN_CUDA_CONTEXT_H */
