/*
 * quantizer_private.h
 *		What the kinds of quantizers share: their parts, and the numbers beside
 *		codes.
 *
 * A row's code begins with its bytes, filled up to a multiple of 4; CodeNumbers
 * end it.
 */
#ifndef GPUANN_QUANTIZER_PRIVATE_H
#define GPUANN_QUANTIZER_PRIVATE_H

#include <math.h>
#include <string.h>

#include "engine/quantizer/block_sums.h"
#include "engine/quantizer/nearest.h"
#include "engine/quantizer/quantizer.h"
#include "engine/quantizer/sums.h"

/* Numbers behind a code. pq has no scale. */
typedef struct CodeNumbers
{
	float		term;			/* L2: |decoded|^2 (rabitq: |r|^2) + 2<c,decoded>; else 0 */
	float		error;			/* int8, pq: not below |x - c - decoded|; rabitq: the length of
								 * decoded - r over sqrt(dims - 1). Infinity: no code */
	float		scale;			/* of the integers that the code consists of */
} CodeNumbers;

#define PQ_NUMBERS_BYTES	(2 * sizeof(float))

struct Quantizer
{
	QuantizerShape shape;
	size_t		code_bytes;
	const DistanceKernels *squares; /* of L2 */
	const DistanceKernels *products;	/* exact is the negative product */
	const SumKernels *sums;
	const BlockKernels *blocks;
	uint32_t   *rotation;		/* int8, rabitq: rotations, one after another */
	Centroids  *parts;			/* pq: the codewords of each sub-space */
};

/* Squared distances and products, as I10 defines them. */
static inline double
exact_square(const Quantizer *quantizer, const float *a, const float *b)
{
	return quantizer->squares->exact(a, b, quantizer->shape.dims);
}

static inline double
exact_product(const Quantizer *quantizer, const float *a, const float *b)
{
	return -quantizer->products->exact(a, b, quantizer->shape.dims);
}

/* A number in single precision that is not below a double. */
static inline float
not_below(double x)
{
	return nextafterf((float) x, INFINITY);
}

/* Bytes of a code without its numbers. */
static inline size_t
padded_bytes(size_t bytes)
{
	return (bytes + 3) / 4 * 4;
}

/*
 * What roundings can make of an estimate's parts: eight, at 2^-24 each.
 */
#define ESTIMATE_ROUNDING	0x1p-21f

/*
 * The lower bound of a distance whose estimate is that of a decoded row no
 * farther than `error` from the row, and itself `slack` too large at most:
 * the triangle inequality, or Cauchy and Schwarz's.
 */
static inline float
lower_bound(Metric metric, float estimate, float slack, float error, float query_length)
{
	float		least = estimate - slack;
	float		root;

	if (metric != METRIC_L2)
	{
		least -= query_length * error * (1 + ESTIMATE_ROUNDING);
		return isnan(least) ? -INFINITY : least - fabsf(least) * ESTIMATE_ROUNDING;
	}
	root = sqrtf(least) * (1 - ESTIMATE_ROUNDING) - error;
	return least > 0 && root > 0 ? root * root * (1 - ESTIMATE_ROUNDING) : 0;
}

/*
 * The upper bound likewise. NaN is infinity: nothing is known.
 */
static inline float
upper_bound(Metric metric, float estimate, float slack, float error, float query_length)
{
	float		most = estimate + slack;
	float		root;

	if (metric == METRIC_L2)
	{
		root = sqrtf(most > 0 ? most : 0) + error;
		most = root * root;
	}
	else
		most += query_length * error;
	most += fabsf(most) * 2 * ESTIMATE_ROUNDING;
	return isnan(most) || isnan(estimate) ? INFINITY : most;
}

/* Roundings of an estimate whose parts are these, at most. */
static inline float
estimate_rounding(float estimate, float base, float term)
{
	return 2 * ESTIMATE_ROUNDING * (fabsf(estimate) + fabsf(base) + fabsf(term));
}

/* Bytes of a code's numbers. */
static inline size_t
numbers_bytes(const QuantizerShape *shape)
{
	return shape->kind == QUANTIZER_PQ ? PQ_NUMBERS_BYTES : sizeof(CodeNumbers);
}

/* pq.c */
extern EngineStatus pq_train(const QuantizerShape *shape, const float *residuals, uint32_t count,
							 const TrainControl *control, float *codebook);
extern size_t pq_train_bytes(const QuantizerShape *shape, uint32_t count);
extern size_t pq_open_bytes(const QuantizerShape *shape);
extern void pq_open(Quantizer *quantizer, const float *codebook, void *memory);
extern size_t pq_table_bytes(const QuantizerShape *shape);
extern void pq_encode(const Quantizer *quantizer, const float *centroid, const float *rows,
					  size_t count, unsigned char *codes);
extern void pq_prepare(const Quantizer *quantizer, const float *query, void *tables);
extern void pq_estimate(const Quantizer *quantizer, const void *tables, float base,
						const unsigned char *codes, size_t count, float *estimates, float *lower);
extern float pq_upper(const Quantizer *quantizer, const void *tables, float base,
					  const CodeNumbers *numbers, float estimate);

/* scalar.c: int8 and rabitq */
extern size_t scalar_code_bytes(const QuantizerShape *shape);
extern size_t scalar_open_bytes(const QuantizerShape *shape);
extern void scalar_open(Quantizer *quantizer, void *memory);
extern size_t scalar_table_bytes(const QuantizerShape *shape);
extern void scalar_encode(const Quantizer *quantizer, const float *centroid, const float *rows,
						  size_t count, unsigned char *codes);
extern void scalar_prepare(const Quantizer *quantizer, const float *query, void *tables);
extern void scalar_estimate(const Quantizer *quantizer, const void *tables, float base,
							const unsigned char *codes, size_t count, float *estimates,
							float *lower);
extern float scalar_upper(const Quantizer *quantizer, const void *tables, float base,
						  const CodeNumbers *numbers, float estimate);

#endif							/* GPUANN_QUANTIZER_PRIVATE_H */
