/*
 * int8.h
 *		Codes of a signed byte an element after a rotation: what engines that
 *		walk by them agree on.
 *
 * A row is rotated and the offsets are taken off; what is left is divided by
 * the row's step, so that the farthest element is at 127, and rounded. So a few
 * large elements, or rows of very different lengths, take no precision from
 * others. Distances of codes only choose which rows are looked at.
 *
 * Squared distances are estimated from the codes of both, offsets taken off:
 * their error is in proportion to the distance. A product of a query q and a row
 * x is, with o the offsets and any f, f <o, x - o> + <q - f o, x - o> and what
 * all rows have in common. The first is known exactly of every row, the second
 * is estimated, with the f that leaves least of the query. So what rows have in
 * common costs nothing here either.
 *
 * Under cosine the caller divides rows by their lengths first. The model of all
 * this is test/quantizer_test_int8.c: an engine makes the same codes and
 * estimates, to the bit.
 */
#ifndef GPUANN_INT8_H
#define GPUANN_INT8_H

#include <stdint.h>

#include "engine/quantizer/rotation.h"

#define INT8_SAMPLE		256u	/* rows that offsets are made of, at most */
#define INT8_FAR_DIVISOR	20u		/* 1 / this of these may be much shorter than the offsets */
#define INT8_FAR		1e15f	/* a row with an element this far from its offset has no code, and is
								 * far from all */
#define INT8_NEAR		1e-15f	/* one with none this far lies on the offsets */

/*
 * Make offsets: the median of each rotated element over a sample of count rows
 * of dims elements, which are overwritten. A mean would be drawn along by a few
 * long rows. Where many rows are much shorter than the medians, and would be
 * lost beside them, offsets are 0. room: for dims and for count floats.
 */
extern void int8_train(const uint32_t *rotation, uint32_t dims, float *sample, uint32_t count,
					   float *offsets, float *room);

#endif							/* GPUANN_INT8_H */
