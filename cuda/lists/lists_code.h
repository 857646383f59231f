/*
 * lists_code.h
 *		Adding rows to lists: conversion to single precision, assignment to the
 *		nearest centroid, encoding, placement in blocks.
 *
 * All pointers are device memory; everything is launched on a stream and
 * nothing waits. A launch occupies the device for a few milliseconds at most,
 * if the caller passes at most LISTS_PIECE floats of rows.
 */
#ifndef GPUANN_CUDA_LISTS_CODE_H
#define GPUANN_CUDA_LISTS_CODE_H

#include "cuda/common/view.h"
#include "cuda/lists/lists_view.h"

#define LISTS_PIECE ((size_t) 16 << 20) /* floats of the rows of one call */

/*
 * Convert a mirror's rows to single precision, as lists_read_row() of the CPU
 * engine does: for cosine normalised to length one. Rows are those of `slots`,
 * or (NULL) from `first` on; `rows` receives count x dims floats.
 */
extern cudaError_t lists_widen(const MirrorView *mirror, const uint32_t *slots, uint32_t first,
							   uint32_t count, float *rows, cudaStream_t stream);

/* Half the squared norms of centroids, as nearest.h rounds them. */
extern cudaError_t lists_half_norms(const float *centroids, uint32_t lists, uint32_t dims,
									float *half_norms, cudaStream_t stream);

/*
 * Bytes of centroids in half precision, and their place in memory, aligned to
 * 16.
 */
extern size_t lists_halves_bytes(uint32_t lists, uint32_t dims);
extern ListHalves lists_halves_at(void *memory, uint32_t lists, uint32_t dims);

/*
 * Write halves from the lists' shape, centroids and, unless NULL, half_norms:
 * with these the error intervals of values include the rounding of the same
 * values in single precision.
 */
extern cudaError_t lists_make_halves(const ListsView *lists, const ListHalves *halves,
									 cudaStream_t stream);

/*
 * Limits of a device for assignment and training, determined once by
 * lists_code_prepare().
 */
struct ListsLimits
{
	uint32_t processors;
	uint32_t stages; /* copy stages that fit into a block's shared memory: 2 or 3 */
};

/*
 * The nearest centroid of each row: the one with the least exact squared
 * distance (I10), of equal ones the first, as centroids_nearest() finds it.
 */
struct ListsAssign
{
	const float *centroids; /* lists x dims */
	uint32_t lists;
	uint32_t dims;
	const float *rows; /* count x dims */
	uint32_t count;
	uint32_t *nearest; /* output: numbers of lists */
	double *distances; /* output: exact squared distances; NULL: not wanted */
	void *scratch;	   /* of lists_assign_bytes(), aligned to 16 */
	const ListsLimits *limits;
	cudaStream_t stream;
};

extern size_t lists_assign_bytes(uint32_t lists, uint32_t dims, uint32_t count);
extern cudaError_t lists_assign(const ListsAssign *assign);

/*
 * Encode rows of the lists `numbers` (NO_SLOT: skipped, its code is undefined)
 * to the bytes of quantizer_encode(); `codes` receives count x code_words
 * words, row by row.
 */
extern cudaError_t lists_encode(const ListsView *lists, const float *rows, const uint32_t *numbers,
								uint32_t count, uint32_t *codes, cudaStream_t stream);

/*
 * Write slots and codes to places of blocks: place p of block b has number b *
 * LIST_PLACES + p; NO_SLOT: skipped. `memory` is the view's, writable.
 */
extern cudaError_t lists_place(const ListsView *lists, uint32_t *memory, const uint32_t *codes,
							   const uint32_t *slots, const uint32_t *places, uint32_t count,
							   cudaStream_t stream);

/* Free places: their slot becomes NO_SLOT. */
extern cudaError_t lists_clear_places(const ListsView *lists, uint32_t *memory,
									  const uint32_t *places, uint32_t count, cudaStream_t stream);

/*
 * Raise the shared memory limits of the kernels of this header and of
 * lists_learn.h; once, before they run.
 */
extern cudaError_t lists_code_prepare(const cudaDeviceProp *device, ListsLimits *limits);

#endif /* GPUANN_CUDA_LISTS_CODE_H */
