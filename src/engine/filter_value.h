/*
 * filter_value.h
 *		What evaluations of programs share, on processors and on GPUs: the
 *		order of floats, and the search in a sorted list.
 *
 * Plain C that is C++ too. FILTER_INLINE may be defined before, as what an
 * inline function is to be.
 */
#ifndef GPUANN_FILTER_VALUE_H
#define GPUANN_FILTER_VALUE_H

#include "engine/filter.h"

#include <string.h>

#ifndef FILTER_INLINE
#define FILTER_INLINE static inline
#endif

/* A double as the number that it is compared as. */
FILTER_INLINE int64_t
filter_ordered(double value)
{
	int64_t		bits;

	if (value != value)
		return INT64_MAX;		/* NaN */
	value += 0.0;				/* -0 becomes 0 */
	memcpy(&bits, &value, sizeof(bits));
	/* Negative numbers have their order reversed. */
	return bits < 0 ? bits ^ INT64_MAX : bits;
}

/* The first of sorted values that is not before a number. */
FILTER_INLINE uint32_t
filter_first_from(const FilterValue *values, uint32_t count, int64_t number)
{
	uint32_t	least = 0;

	while (least < count)
	{
		uint32_t	middle = least + (count - least) / 2;

		if (values[middle].high < number)
			least = middle + 1;
		else
			count = middle;
	}
	return least;
}

#endif							/* GPUANN_FILTER_VALUE_H */
