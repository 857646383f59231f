/*
 * context.h
 *		How much device memory the CUDA context takes.
 */
#ifndef GPUANN_CUDA_CONTEXT_H
#define GPUANN_CUDA_CONTEXT_H

#include "cuda/common/gpu.h"

/*
 * Bytes of a device that are in use by all processes, and by this one; 0:
 * unknown. And the bytes of the context, from these figures before it was
 * created and what they are now.
 */
extern void device_bytes_used(const cudaDeviceProp *device, uint64_t *all, uint64_t *own);
extern uint64_t context_bytes(const cudaDeviceProp *device, int number, uint64_t all_before,
							  uint64_t own_before);

#endif /* GPUANN_CUDA_CONTEXT_H */
