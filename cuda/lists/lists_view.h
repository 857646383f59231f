/*
 * lists_view.h
 *		Lists of codes as kernel arguments.
 *
 * A block has 32 places: their slots, then the codes as words. Word w of the
 * code at place p is words[w * 32 + p], so a warp that reads one word of each
 * of its codes reads 128 consecutive bytes. A code is the output of
 * quantizer_encode() (src/engine/quantizer), in words of 4 bytes.
 */
#ifndef GPUANN_CUDA_LISTS_VIEW_H
#define GPUANN_CUDA_LISTS_VIEW_H

#include <cuda_fp16.h>
#include <stdint.h>

extern "C"
{
#include "engine/quantizer/quantizer.h"
}

#define LIST_PLACES 32u

struct ListSpan;

/*
 * Centroids in half precision, by which tensor cores multiply them
 * (lists_halves.cuh). Written by lists_make_halves(), of lists_halves_bytes().
 */
struct ListHalves
{
	float *mean;		/* dims: the centroids' mean */
	__half *elements;	/* lists x pitch: shifted by the mean and scaled; zeros behind dims */
	ListSpan *spans;	/* lists */
	uint32_t pitch;		/* elements from one centroid to the next */
};

/*
 * Lists as one batch sees them. All pointers are device memory. Passed to
 * kernels by value.
 */
struct ListsView
{
	QuantizerShape shape;
	uint32_t lists;			  /* number of lists; 0: there is no codebook yet, and no row is in a
							   * list */
	uint32_t code_words;	  /* quantizer_code_bytes / 4 */
	uint32_t block_words;	  /* of a block: 32 + 32 x code_words */
	const float *centroids;	  /* lists x dims */
	const float *half_norms;  /* lists: half the squared norms, as nearest.h rounds them */
	const float *codebook;	  /* pq */
	const uint32_t *rotation; /* int8: rotation_make(); rabitq: two of them, dims words each */
	const uint32_t *first;	  /* lists + 1: where the blocks of a list begin in `blocks` */
	const uint32_t *blocks;	  /* numbers of blocks, list by list */
	const uint32_t *memory;	  /* block b begins at word b x block_words */
	uint32_t longest;		  /* blocks of the longest list, */
	uint32_t all_blocks;	  /* and of all */
	unsigned long long *probed; /* lists: number of probes of each, counted by searches; NULL: not
								 * counted */
};

#if defined(__CUDACC__) || defined(EMULATED)

/* The slot at a place; NO_SLOT: the place is free. */
__device__ static inline uint32_t
list_slot(const ListsView &lists, uint32_t block, uint32_t place)
{
	return lists.memory[(size_t) block * lists.block_words + place];
}

/* The words of a block's codes. */
__device__ static inline const uint32_t *
list_codes(const ListsView &lists, uint32_t block)
{
	return lists.memory + (size_t) block * lists.block_words + LIST_PLACES;
}

#endif /* device */

#endif /* GPUANN_CUDA_LISTS_VIEW_H */
