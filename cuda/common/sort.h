/*
 * sort.h
 *		Sorting entries in device memory: the one place that includes CUB's
 *		radix sort, which is slow to compile.
 */
#ifndef GPUANN_CUDA_SORT_H
#define GPUANN_CUDA_SORT_H

#include "cuda/common/order.cuh"

/*
 * Two sides of entries, the current one and one to move them to, and memory of
 * entry_sort_bytes to work in.
 */
struct EntrySort
{
	Entries side[2];
	uint32_t current;
	void *work;
	size_t work_bytes;
};

/*
 * Sort the first n entries of the current side by key; what is sorted is then
 * the current side. Stable.
 */
extern cudaError_t entry_sort(EntrySort *sort, uint32_t n, cudaStream_t stream);
/* Bytes that sorting so many entries wants. */
extern cudaError_t entry_sort_bytes(uint32_t n, size_t *bytes);

#endif /* GPUANN_CUDA_SORT_H */
