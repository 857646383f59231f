/*
 * int8.c
 *		Codes of a signed byte an element after a rotation.
 */
#include <math.h>
#include <stdlib.h>

#include "engine/quantizer/int8.h"

static int
compare_floats(const void *left, const void *right)
{
	float		a = *(const float *) left;
	float		b = *(const float *) right;

	return a < b ? -1 : a > b;
}

void
int8_train(const uint32_t *rotation, uint32_t dims, float *sample, uint32_t count, float *offsets,
		   float *room)
{
	for (uint32_t row = 0; row < count; row++)
		rotation_apply(rotation, dims, sample + (size_t) row * dims, room);
	for (uint32_t i = 0; i < dims; i++)
	{
		for (uint32_t row = 0; row < count; row++)
			room[row] = sample[(size_t) row * dims + i];
		qsort(room, count, sizeof(float), compare_floats);
		offsets[i] = count > 0 ? room[count / 2] : 0;
	}
}

/* Round values to codes; returns the step, infinity where they are too far. */
static float
encode_values(uint32_t dims, const float *values, signed char *codes)
{
	float		most = 0;
	float		factor;

	for (uint32_t i = 0; i < dims; i++)
	{
		float		size = fabsf(values[i]) < INT8_FAR ? fabsf(values[i]) : HUGE_VALF;

		most = size > most ? size : most;
	}
	factor = most >= INT8_NEAR && most < INT8_FAR ? 127.0f / most : 0;
	for (uint32_t i = 0; i < dims; i++)
	{
		float		value = factor > 0 ? rintf(values[i] * factor) : 0;

		codes[i] = (signed char) (value > 127 ? 127 : value < -127 ? -127 : value);
	}
	return most < INT8_NEAR ? 0 : most < INT8_FAR ? most / 127.0f : HUGE_VALF;
}

static int
dot(const signed char *a, const signed char *b, uint32_t dims)
{
	int			sum = 0;

	for (uint32_t i = 0; i < dims; i++)
		sum += a[i] * b[i];
	return sum;
}

Int8Scale
int8_encode(const Int8Codebook *codebook, float *elements, float *room, signed char *codes)
{
	Int8Scale	scale;

	rotation_apply(codebook->rotation, codebook->dims, elements, room);
	for (uint32_t i = 0; i < codebook->dims; i++)
		elements[i] -= codebook->offsets[i];
	scale.steps = encode_values(codebook->dims, elements, codes);
	scale.term = HUGE_VALF;
	if (scale.steps < HUGE_VALF)
		scale.term = scale.steps * scale.steps * (float) dot(codes, codes, codebook->dims);
	else
		scale.steps = 0;
	return scale;
}

float
int8_prepare(const Int8Codebook *codebook, bool square, float *elements, float *room,
			 signed char *codes)
{
	float		steps;

	rotation_apply(codebook->rotation, codebook->dims, elements, room);
	for (uint32_t i = 0; square && i < codebook->dims; i++)
		elements[i] -= codebook->offsets[i];
	steps = encode_values(codebook->dims, elements, codes);
	return steps < HUGE_VALF ? steps : 0;
}

float
int8_estimate(bool square, const signed char *query, float query_steps, const signed char *codes,
			  Int8Scale scale, uint32_t dims)
{
	float		product = query_steps * scale.steps * (float) dot(query, codes, dims);

	return square ? scale.term - 2 * product : -product;
}
