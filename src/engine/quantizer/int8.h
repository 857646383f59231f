/*
 * int8.h
 *		Codes of a signed byte an element after a rotation, with a scale for
 *		each row: the reference of what engines compute.
 *
 * A row is rotated and the offsets are taken off; what is left is divided by
 * the row's step, so that the farthest element is at 127, and rounded. So a few
 * large elements, or rows of very different lengths, take no precision from
 * others. Distances of codes only choose which rows are looked at. Given the
 * same codebook every engine makes the same codes and estimates, to the bit.
 *
 * Squared distances are estimated from the codes of both, offsets taken off:
 * their error is in proportion to the distance. A product of a query q and a row
 * x is, with o the offsets and any f, f <o, x - o> + <q - f o, x - o> and what
 * all rows have in common. The first is known exactly of every row, the second
 * is estimated, with the f that leaves least of the query. So what rows have in
 * common costs nothing here either.
 *
 * Under cosine the caller divides rows by their lengths first.
 */
#ifndef GPUANN_INT8_H
#define GPUANN_INT8_H

#include <stdbool.h>

#include "engine/quantizer/rotation.h"

#define INT8_SAMPLE		256u	/* rows that offsets are made of, at most */
#define INT8_FAR_SHARE	20u		/* of these, one in so many may be much shorter than the offsets */
#define INT8_FAR		1e15f	/* a row with an element this far from its offset has no code, and is
								 * far from all */
#define INT8_NEAR		1e-15f	/* one with none this far lies on the offsets */

/* What rows are encoded by. The arrays are the caller's. */
typedef struct Int8Codebook
{
	uint32_t	dims;			/* at most ROTATION_MOST_DIMS */
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
 * Make offsets: the median of each rotated element over a sample of count rows
 * of dims elements, which are overwritten. A mean would be drawn along by a few
 * long rows. Where many rows are much shorter than the medians, and would be
 * lost beside them, offsets are 0. room: for dims and for count floats.
 */
extern void int8_train(const uint32_t *rotation, uint32_t dims, float *sample, uint32_t count,
					   float *offsets, float *room);

/* Encode a row of dims elements, which are overwritten. room: for dims floats. */
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

#endif							/* GPUANN_INT8_H */
