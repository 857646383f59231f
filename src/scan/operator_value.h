/*
 * operator_value.h
 *		What is known of the operator's value (a float8) for an index's exact
 *		distance: engine/operator_bounds.h, with the index's type.
 *
 * A scan fills OperatorBounds once, with the range of norms that covers the
 * rows it may return (PendingBounds).
 */
#ifndef GPUANN_OPERATOR_VALUE_H
#define GPUANN_OPERATOR_VALUE_H

#include "base/base.h"

#include "engine/operator_bounds.h"

/* Set the bounds for a query, of which these are the elements. */
static inline void
operator_bounds_set(OperatorBounds *bounds, const GpuannTypeInfo *type, uint32 dims,
					const void *query, float least_norm, float most_norm)
{
	operator_bounds_init(bounds, type->type, type->metric, dims, query, least_norm, most_norm);
}

#endif							/* GPUANN_OPERATOR_VALUE_H */
