/*
 * int8.h
 *		Codes of a signed byte an element after a rotation, with a scale for
 *		each row: the reference of what engines compute.
 *
 * A row is rotated and the offsets are taken off; what is left is divided by
 * the row's scale, so that the farthest element is at 127, and rounded. So a
 * few large elements, or rows of very different lengths, take no precision from
 * others. Distances of codes only choose which rows are looked at. Given the
 * same codebook every engine makes the same codes and estimates, to the bit.
 *
 * Under cosine the caller divides rows by their lengths first.
 */
#ifndef GPUANN_INT8_H
#define GPUANN_INT8_H

#include <stdbool.h>

#include "engine/quantizer/rotation.h"

#define INT8_SAMPLE		256u	/* rows that offsets are made of, at most */
#define INT8_FAR		1e15f	/* a row with an element this far from its offset has no code, and is
								 * far from all */
#define INT8_NEAR		1e-15f	/* one with none this far lies on the offsets */

/* What rows are encoded by. The arrays are the caller's. */
typedef struct Int8Codebook
{
	uint32_t	dims;			/* at most ROTATION_MOST_DIMS */
	const uint32_t *rotation;	/* dims words: rotation_make() */
	const float *offsets;		/* dims, of rotated elements: int8_train() */
} Int8Codebook;

/* Beside a row's codes. */
typedef struct Int8Scale
{
	float		steps;			/* a step of the codes, in units of the elements */
	float		term;			/* the squared length of the codes in such units */
} Int8Scale;

/*
 * Make offsets: the median of each rotated element over a sample of count rows
 * of dims elements, which are overwritten. A mean would be drawn along by a few
 * long rows. room: for dims and for count floats.
 */
extern void int8_train(const uint32_t *rotation, uint32_t dims, float *sample, uint32_t count,
					   float *offsets, float *room);

/* Encode a row of dims elements, which are overwritten. room: for dims floats. */
extern Int8Scale int8_encode(const Int8Codebook *codebook, float *elements, float *room,
							 signed char *codes);

/*
 * Encode a query, likewise: for squared distances as a row, for products
 * without the offsets. Returns what int8_estimate() takes.
 */
extern float int8_prepare(const Int8Codebook *codebook, bool square, float *elements, float *room,
						  signed char *codes);

/*
 * Estimate a distance, but for what all rows have in common: squared (of L2),
 * or the negated product.
 */
extern float int8_estimate(bool square, const signed char *query, float query_steps,
						   const signed char *codes, Int8Scale scale, uint32_t dims);

#endif							/* GPUANN_INT8_H */
