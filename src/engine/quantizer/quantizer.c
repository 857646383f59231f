/*
 * quantizer.c
 *		Shapes of quantizers, and which kind does the work.
 */
#include <stdlib.h>

#include "engine/quantizer/quantizer_private.h"

_Static_assert(QUANTIZER_MAX_DIMS >= ENGINE_MAX_LIST_DIMS, "rows of lists have codes");

bool
quantizer_shape_valid(const QuantizerShape *shape)
{
	if (shape->dims < 1 || shape->dims > QUANTIZER_MAX_DIMS ||
		(shape->metric != METRIC_L2 && shape->metric != METRIC_IP &&
		 shape->metric != METRIC_COSINE))
		return false;
	switch (shape->kind)
	{
		case QUANTIZER_INT8:
			return shape->bits == 8 && shape->parts == 0;
		case QUANTIZER_RABITQ:
			return shape->bits >= 1 && shape->bits <= 8 && shape->parts == 0;
		case QUANTIZER_PQ:
			return (shape->bits == 4 || shape->bits == 8) && shape->parts >= 1 &&
				shape->parts <= shape->dims;
	}
	return false;
}

EngineStatus
quantizer_check_spec(const MirrorSpec *spec, EngineError *error)
{
	EngineStatus status = engine_check_spec(spec, error);
	QuantizerShape shape = quantizer_shape_of(spec);

	if (status != ENGINE_OK || spec->method != METHOD_IVFPQ || quantizer_shape_valid(&shape))
		return status;
	return engine_error(error, ENGINE_INVALID,
						"no quantizer is of kind %d with %u bits and %u parts", (int) shape.kind,
						shape.bits, shape.parts);
}

size_t
quantizer_codebook_bytes(const QuantizerShape *shape)
{
	return shape->kind == QUANTIZER_PQ
		? ((size_t) 1 << shape->bits) * shape->dims * sizeof(float) : 0;
}

size_t
quantizer_code_bytes(const QuantizerShape *shape)
{
	if (shape->kind == QUANTIZER_PQ)
		return padded_bytes(((size_t) shape->parts * shape->bits + 7) / 8) + PQ_NUMBERS_BYTES;
	return scalar_code_bytes(shape) + sizeof(CodeNumbers);
}

size_t
quantizer_table_bytes(const QuantizerShape *shape)
{
	return shape->kind == QUANTIZER_PQ ? pq_table_bytes(shape) : scalar_table_bytes(shape);
}

size_t
quantizer_train_bytes(const QuantizerShape *shape, uint32_t count)
{
	return shape->kind == QUANTIZER_PQ ? pq_train_bytes(shape, count) : 0;
}

EngineStatus
quantizer_train(const QuantizerShape *shape, const float *residuals, uint32_t count,
				const TrainControl *control, void *codebook)
{
	return shape->kind == QUANTIZER_PQ ? pq_train(shape, residuals, count, control, codebook)
		: ENGINE_OK;
}

/* Bytes of a Quantizer; what its kind needs lies behind it. */
static size_t
head_bytes(void)
{
	return (sizeof(Quantizer) + 63) / 64 * 64;
}

size_t
quantizer_open_bytes(const QuantizerShape *shape)
{
	size_t		bytes = shape->kind == QUANTIZER_PQ ? pq_open_bytes(shape)
		: scalar_open_bytes(shape);

	return head_bytes() + (bytes + 63) / 64 * 64;
}

Quantizer *
quantizer_open(const QuantizerShape *shape, const void *codebook)
{
	Quantizer  *quantizer = aligned_alloc(64, quantizer_open_bytes(shape));
	void	   *memory = (char *) quantizer + head_bytes();

	if (quantizer == NULL)
		return NULL;
	memset(quantizer, 0, sizeof(*quantizer));
	quantizer->shape = *shape;
	quantizer->code_bytes = quantizer_code_bytes(shape);
	quantizer->squares = distance_kernels(ELEMENT_FLOAT, METRIC_L2, SIMD_BEST);
	quantizer->products = distance_kernels(ELEMENT_FLOAT, METRIC_IP, SIMD_BEST);
	quantizer->sums = sum_kernels(SIMD_BEST);
	quantizer->blocks = block_kernels(SIMD_BEST);
	if (shape->kind == QUANTIZER_PQ)
		pq_open(quantizer, codebook, memory);
	else
		scalar_open(quantizer, memory);
	return quantizer;
}

void
quantizer_close(Quantizer *quantizer)
{
	free(quantizer);
}

void
quantizer_encode(const Quantizer *quantizer, const float *centroid, const float *rows,
				 size_t count, unsigned char *codes)
{
	if (quantizer->shape.kind == QUANTIZER_PQ)
		pq_encode(quantizer, centroid, rows, count, codes);
	else
		scalar_encode(quantizer, centroid, rows, count, codes);
}

/* The error is infinite where a row has no code. */
static bool
numbers_valid(const CodeNumbers *numbers)
{
	return numbers->error >= 0 && isfinite(numbers->term) && isfinite(numbers->scale) &&
		numbers->scale >= 0;
}

bool
quantizer_codes_valid(const QuantizerShape *shape, const unsigned char *codes, size_t count)
{
	size_t		code_bytes = quantizer_code_bytes(shape);
	size_t		at = code_bytes - numbers_bytes(shape);

	for (size_t row = 0; row < count; row++, codes += code_bytes)
	{
		CodeNumbers numbers = {0};

		memcpy(&numbers, codes + at, numbers_bytes(shape));
		if (!numbers_valid(&numbers))
			return false;
	}
	return true;
}

void
quantizer_prepare(const Quantizer *quantizer, const float *query, void *tables)
{
	if (quantizer->shape.kind == QUANTIZER_PQ)
		pq_prepare(quantizer, query, tables);
	else
		scalar_prepare(quantizer, query, tables);
}

void
quantizer_estimate(const Quantizer *quantizer, const void *tables, float base,
				   const unsigned char *codes, size_t count, float *estimates, float *lower)
{
	if (quantizer->shape.kind == QUANTIZER_PQ)
		pq_estimate(quantizer, tables, base, codes, count, estimates, lower);
	else
		scalar_estimate(quantizer, tables, base, codes, count, estimates, lower);
}

/*
 * The length is the square root of the exact product, and each quotient is
 * rounded once: every engine makes the same row.
 */
void
quantizer_make_unit(float *row, uint32_t dims)
{
	const DistanceKernels *products = distance_kernels(ELEMENT_FLOAT, METRIC_IP, SIMD_BEST);
	double		length = sqrt(-products->exact(row, row, dims));

	if (length > 0 && isfinite(length))
		for (uint32_t i = 0; i < dims; i++)
			row[i] = (float) (row[i] / length);
}
