/*
 * int8.c
 *		Offsets of rotated codes.
 */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "engine/quantizer/int8.h"

static int
compare_floats(const void *left, const void *right)
{
	float		a = *(const float *) left;
	float		b = *(const float *) right;

	return a < b ? -1 : a > b;
}

/* Whether offsets leave more than twice its length of a rotated row. */
static bool
is_far(const float *row, const float *offsets, uint32_t dims)
{
	double		length = 0,
				left = 0;

	for (uint32_t i = 0; i < dims; i++)
	{
		double		value = (double) row[i] - offsets[i];

		length += (double) row[i] * row[i];
		left += value * value;
	}
	return left > 4 * length;
}

void
int8_train(const uint32_t *rotation, uint32_t dims, float *sample, uint32_t count, float *offsets,
		   float *room)
{
	uint32_t	far = 0;

	for (uint32_t row = 0; row < count; row++)
		rotation_apply(rotation, dims, sample + (size_t) row * dims, room);
	for (uint32_t i = 0; i < dims; i++)
	{
		for (uint32_t row = 0; row < count; row++)
			room[row] = sample[(size_t) row * dims + i];
		qsort(room, count, sizeof(float), compare_floats);
		offsets[i] = count > 0 ? room[count / 2] : 0;
	}
	for (uint32_t row = 0; row < count; row++)
		far += is_far(sample + (size_t) row * dims, offsets, dims);
	for (uint32_t i = 0; i < dims && far > count / INT8_FAR_DIVISOR; i++)
		offsets[i] = 0;
}
