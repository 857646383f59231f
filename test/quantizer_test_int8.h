/*
 * quantizer_test_int8.h
 *		The model of codes of a signed byte an element after a rotation, with a
 *		scale for each row (engine/quantizer/int8.h): what engines must compute,
 *		to the bit.
 */
#ifndef GPUANN_QUANTIZER_TEST_INT8_H
#define GPUANN_QUANTIZER_TEST_INT8_H

#include <stdbool.h>

#include "engine/quantizer/int8.h"

/* What rows are encoded by. The arrays are the caller's. */
typedef struct Int8Codebook
{
	uint32_t	dims;			/* at most ROTATION_MAX_DIMS */
	bool		square;			/* estimates are of squared distances, else of products */
	const uint32_t *rotation;	/* dims words: rotation_make() */
	const float *offsets;		/* dims, of rotated elements: int8_train() */
} Int8Codebook;

/* Beside a row's codes. */
typedef struct Int8Scale
{
	float		step;			/* of the codes, in units of the elements */
	float		term;			/* the squared length of the codes in such units; of products the
								 * negated one of the offsets and what is left of the row */
} Int8Scale;

/* Beside a query's codes. */
typedef struct Int8Query
{
	float		step;
	float		factor;			/* of the rows' terms */
} Int8Query;

/*
 * Encode a row of dims elements, which are overwritten. room: for dims floats.
 */
extern Int8Scale int8_encode(const Int8Codebook *codebook, float *elements, float *room,
							 signed char *codes);

/* Encode a query, likewise. */
extern Int8Query int8_prepare(const Int8Codebook *codebook, float *elements, float *room,
							  signed char *codes);

/*
 * Estimate a distance, but for what all rows have in common: squared, or the
 * negated product.
 */
extern float int8_estimate(const Int8Codebook *codebook, const signed char *query_codes,
						   Int8Query query, const signed char *codes, Int8Scale scale);

#endif							/* GPUANN_QUANTIZER_TEST_INT8_H */
