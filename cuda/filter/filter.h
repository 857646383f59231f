/*
 * filter.h
 *		Which rows of a mirror may pass a program: a bitmap over slots.
 */
#ifndef GPUANN_CUDA_FILTER_H
#define GPUANN_CUDA_FILTER_H

#include "cuda/common/gpu.h"

/*
 * What is evaluated: the records of a mirror's columns, a program, and where
 * the outcome goes. All pointers are device memory. Passed to kernels by value.
 */
struct FilterView
{
	const uint32_t *records; /* by slot, record_words each (src/engine/filter.h) */
	const FilterStep *steps;
	const FilterValue *values;
	uint32_t *bits; /* bit s: slot s may pass; of whole words, 0 from `rows` on */
	uint32_t *passing; /* bits set */
	uint32_t nsteps;
	uint32_t rows;
	uint32_t record_words;
	uint8_t kinds[FILTER_MAX_COLUMNS];
	uint8_t widths[FILTER_MAX_COLUMNS]; /* of values, in bytes, */
	uint16_t offsets[FILTER_MAX_COLUMNS]; /* and where in a record they are */
};

/* Describe the columns of a mirror. */
extern void filter_columns(FilterView *view, const MirrorSpec *spec);
/* Evaluate a program for all rows. */
extern cudaError_t filter_launch(const FilterView *view, cudaStream_t stream);
/* Clear the bits of `words` that are not set in `bits`. */
extern cudaError_t filter_and_launch(uint32_t *words, const uint32_t *bits, uint32_t count,
									 cudaStream_t stream);

#endif /* GPUANN_CUDA_FILTER_H */
