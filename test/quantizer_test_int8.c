/*
 * quantizer_test_int8.c
 *		Codes of a signed byte an element after a rotation, as a lane of a warp
 *		makes them.
 */
#include <math.h>

#include "quantizer_test_int8.h"

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

/*
 * The product of two vectors, in 32 sums that are then added in pairs: as the
 * lanes of a warp do it.
 */
static float
product_of(const float *a, const float *b, uint32_t dims)
{
	float		sums[32] = {0};

	for (uint32_t i = 0; i < dims; i++)
		sums[i % 32] += a[i] * b[i];
	for (int apart = 16; apart > 0; apart /= 2)
		for (int i = 0; i < apart; i++)
			sums[i] += sums[i + apart];
	return sums[0];
}

Int8Scale
int8_encode(const Int8Codebook *codebook, float *elements, float *room, signed char *codes)
{
	uint32_t	dims = codebook->dims;
	Int8Scale	scale;

	rotation_apply(codebook->rotation, dims, elements, room);
	for (uint32_t i = 0; i < dims; i++)
		elements[i] -= codebook->offsets[i];
	scale.step = encode_values(dims, elements, codes);
	if (scale.step == HUGE_VALF)
		return (Int8Scale) {0, codebook->square ? HUGE_VALF : 0};
	scale.term = codebook->square ? scale.step * scale.step * (float) dot(codes, codes, dims)
		: -product_of(codebook->offsets, elements, dims);
	return scale;
}

Int8Query
int8_prepare(const Int8Codebook *codebook, float *elements, float *room, signed char *codes)
{
	const float *offsets = codebook->offsets;
	uint32_t	dims = codebook->dims;
	Int8Query	query = {0, 1};

	rotation_apply(codebook->rotation, dims, elements, room);
	if (!codebook->square)
	{
		float		length = product_of(offsets, offsets, dims);

		query.factor = length > 0 ? product_of(offsets, elements, dims) / length : 0;
	}
	for (uint32_t i = 0; i < dims; i++)
		elements[i] -= query.factor * offsets[i];
	query.step = encode_values(dims, elements, codes);
	if (query.step == HUGE_VALF)
		query.step = 0;
	return query;
}

float
int8_estimate(const Int8Codebook *codebook, const signed char *query_codes, Int8Query query,
			  const signed char *codes, Int8Scale scale)
{
	float		product = query.step * scale.step * (float) dot(query_codes, codes, codebook->dims);

	return codebook->square ? scale.term - 2 * product : query.factor * scale.term - product;
}
