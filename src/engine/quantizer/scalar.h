/*
 * scalar.h
 *		Tables of queries and estimates of int8 and rabitq, of single codes
 *		(scalar.c) and of blocks (blocks.c) alike.
 */
#ifndef GPUANN_SCALAR_H
#define GPUANN_SCALAR_H

#include "engine/quantizer/quantizer_private.h"

#define INT8_CODE_MAX		127
#define TINY			1e-30f	/* elements below it are taken for 0 */

/*
 * Steps of a query's integers, to each side, at most. Blocks look up the sums of
 * four integers of rabitq, which are to fit into 16 bits.
 */
static inline uint32_t
query_steps(const QuantizerShape *shape)
{
	return shape->kind == QUANTIZER_RABITQ ? 16383 : 32767;
}

/*
 * Roundings of a rotation: two rounds of at most 13 additions, a factor and a
 * product, relative to the length; and of the residual and its decoding.
 */
#define ROTATION_ROUNDING	0x1p-19
#define RESIDUAL_ROUNDING	0x1p-22

/* The integers follow, then for rabitq what blocks look up. */
typedef struct ScalarTables
{
	float		scale;			/* of the integers, times -2 for L2 and -1 otherwise */
	float		length;			/* not below the query's */
	float		sum_error;		/* not below the sum of what the integers leave over of elements */
	float		length_error;	/* not below the length of that */
	int32_t		sum;			/* of the integers */
} ScalarTables;

/* The largest number of a code. */
static inline uint32_t
most_number(const QuantizerShape *shape)
{
	return shape->kind == QUANTIZER_INT8 ? INT8_CODE_MAX : (1u << shape->bits) - 1;
}

/* Words of a plane. */
static inline uint32_t
plane_words(const QuantizerShape *shape)
{
	return (shape->dims + SUMS_LANES - 1) / SUMS_LANES;
}

/* Groups of four dimensions that blocks look up. */
static inline uint32_t
scalar_groups(const QuantizerShape *shape)
{
	return plane_words(shape) * SUMS_LANES / 4;
}

static inline size_t
scalar_lookups_at(const QuantizerShape *shape)
{
	return sizeof(ScalarTables) + (size_t) plane_words(shape) * SUMS_LANES * sizeof(int16_t);
}

static inline const unsigned char *
scalar_lookups(const QuantizerShape *shape, const ScalarTables *tables)
{
	return (const unsigned char *) tables + scalar_lookups_at(shape);
}

/* The sum of the query's negative integers; rabitq only. */
static inline int32_t *
scalar_negative(const QuantizerShape *shape, const ScalarTables *tables)
{
	return (int32_t *) (uintptr_t) (scalar_lookups(shape, tables) +
									(size_t) scalar_groups(shape) * 32);
}

/*
 * How much an int8 estimate may be above the distance to the decoded row: by
 * the query's integers and the rotation's roundings.
 *
 * For L2 both query and centroid were rotated, and the centroid is no longer
 * than the query and what lies between them.
 */
static inline float
int8_slack(const QuantizerShape *shape, const ScalarTables *tables, float base, float scale)
{
	float		most = scale * INT8_CODE_MAX;	/* the decoded row's largest element */
	float		lengths = tables->length;
	float		slack;

	if (shape->metric == METRIC_L2)
		lengths += tables->length + sqrtf(base > 0 ? base : 0);
	slack = most * tables->sum_error +
		(float) ROTATION_ROUNDING * lengths * most * sqrtf((float) shape->dims);
	return shape->metric == METRIC_L2 ? 2 * slack : slack;
}

/* The same of a rabitq estimate, and the distance itself: with a probability. */
static inline float
rabitq_slack(const QuantizerShape *shape, const ScalarTables *tables, float base,
			 const CodeNumbers *numbers)
{
	float		length = shape->metric == METRIC_L2 ? sqrtf(base > 0 ? base : 0) : tables->length;
	float		most = numbers->scale * (float) most_number(shape);
	float		slack = QUANTIZER_RABITQ_SURE *
		(numbers->error * length + most * tables->length_error);

	if (isinf(numbers->error))
		return INFINITY;
	return shape->metric == METRIC_L2 ? 2 * slack : slack;
}

static inline float
scalar_slack(const QuantizerShape *shape, const ScalarTables *tables, float base,
			 const CodeNumbers *numbers)
{
	return shape->kind == QUANTIZER_INT8 ? int8_slack(shape, tables, base, numbers->scale)
		: rabitq_slack(shape, tables, base, numbers);
}

/* The estimate and lower bound of a code whose sum of integers this is. */
static inline float
scalar_estimate_one(const QuantizerShape *shape, const ScalarTables *tables, float base,
					int32_t sum, const CodeNumbers *numbers, float *lower)
{
	float		product = tables->scale * numbers->scale * (float) sum;
	float		estimate = base + numbers->term + product;
	float		slack = ESTIMATE_ROUNDING * (fabsf(base) + fabsf(numbers->term) + fabsf(product));

	*lower = lower_bound(shape->metric, estimate,
						 slack + scalar_slack(shape, tables, base, numbers),
						 shape->kind == QUANTIZER_INT8 ? numbers->error : 0, tables->length);
	return estimate;
}

#endif							/* GPUANN_SCALAR_H */
