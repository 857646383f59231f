/*
 * decode.c
 *		Rows from codes: codewords of pq; whole numbers of int8 and rabitq,
 *		whose rotations are undone.
 */
#include "decode.h"
#include "engine/quantizer/scalar.h"

/* A whole number of a code. */
static int
get_number(const QuantizerShape *shape, const unsigned char *code, uint32_t i)
{
	int			bits = 0;

	if (shape->kind == QUANTIZER_INT8)
		return (int8_t) code[i];
	for (uint32_t plane = 0; plane < shape->bits; plane++)
	{
		uint32_t	word;

		memcpy(&word, code + ((size_t) plane * plane_words(shape) + i / SUMS_LANES) *
			   sizeof(word), sizeof(word));
		bits = 2 * bits + (int) (word >> i % SUMS_LANES & 1);
	}
	return 2 * bits - (int) most_number(shape);
}

/* Undo a rotation: its second round, then its first. */
static void
undo_rotation(const uint32_t *rotation, uint32_t dims, float *values)
{
	bool		blocks = rotation_block(dims) != dims;
	uint32_t	back[QUANTIZER_MAX_DIMS] = {0};
	float		room[QUANTIZER_MAX_DIMS];

	for (uint32_t i = 0; i < dims; i++)
		back[blocks ? rotation[i] & ROTATION_PLACE : i] = i | (rotation[i] & ROTATION_SECOND_SIGN);
	rotation_apply(back, dims, values, room);
	for (uint32_t i = 0; i < dims; i++)
		if (rotation[i] & ROTATION_FIRST_SIGN)
			values[i] = -values[i];
}

/* Of rabitq there are two rotations, and elements were dealt out between. */
static void
rotate_back(const Quantizer *quantizer, float *values)
{
	uint32_t	dims = quantizer->shape.dims;
	float		room[QUANTIZER_MAX_DIMS];

	if (quantizer->shape.kind == QUANTIZER_RABITQ)
	{
		undo_rotation(quantizer->rotation + dims, dims, values);
		memcpy(room, values, dims * sizeof(float));
		for (uint32_t i = 0; i < dims; i++)
			values[i] = room[i % 2 == 0 ? i / 2 : (dims + 1) / 2 + i / 2];
	}
	undo_rotation(quantizer->rotation, dims, values);
}

static void
decode_scalar(const Quantizer *quantizer, const unsigned char *code, float *residual)
{
	CodeNumbers numbers;

	memcpy(&numbers, code + quantizer->code_bytes - sizeof(numbers), sizeof(numbers));
	for (uint32_t i = 0; i < quantizer->shape.dims; i++)
		residual[i] = numbers.scale * (float) get_number(&quantizer->shape, code, i);
	rotate_back(quantizer, residual);
}

static void
decode_pq(const Quantizer *quantizer, const unsigned char *code, float *residual)
{
	const QuantizerShape *shape = &quantizer->shape;

	for (uint32_t part = 0; part < shape->parts; part++)
	{
		const Centroids *words = &quantizer->parts[part];
		uint32_t	word = shape->bits == 8 ? code[part] : code[part / 2] >> part % 2 * 4 & 15;

		memcpy(residual, words->centroids + (size_t) word * words->dims,
			   words->dims * sizeof(float));
		residual += words->dims;
	}
}

void
decode_code(const Quantizer *quantizer, const unsigned char *code, float *residual)
{
	if (quantizer->shape.kind == QUANTIZER_PQ)
		decode_pq(quantizer, code, residual);
	else
		decode_scalar(quantizer, code, residual);
}
