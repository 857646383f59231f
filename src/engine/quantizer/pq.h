/*
 * pq.h
 *		Tables of queries and estimates of pq, of single codes (pq.c) and of
 *		blocks (blocks.c) alike.
 */
#ifndef GPUANN_PQ_H
#define GPUANN_PQ_H

#include "engine/quantizer/quantizer_private.h"

/* The integers follow. */
typedef struct PqTables
{
	float		scale;			/* a step of the integers */
	float		offset;			/* the sum of the least products */
	float		error;			/* not below what steps and offset leave over of a sum */
	float		length;			/* not below the query's */
} PqTables;

/* The estimate and lower bound of a code whose sum of integers this is. */
static inline float
pq_estimate_one(const QuantizerShape *shape, const PqTables *tables, float base, int32_t integers,
				const CodeNumbers *numbers, float *lower)
{
	float		sum = (float) integers * tables->scale;
	float		estimate = (base + numbers->term) + (sum + tables->offset);

	*lower = lower_bound(shape->metric, estimate,
						 tables->error + ESTIMATE_ROUNDING *
						 (fabsf(base) + fabsf(numbers->term) + sum + fabsf(tables->offset)),
						 numbers->error, tables->length);
	return estimate;
}

#endif							/* GPUANN_PQ_H */
