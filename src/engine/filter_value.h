/*
 * filter_value.h
 *		What evaluations of programs share, on processors and on GPUs: the
 *		order of floats, the search in a sorted list, texts and sets as they
 *		are stored.
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

#define FILTER_LONG_TEXT	255		/* in place of a text's length */

#define FILTER_TAG_WORDS	8		/* of a set: how many tags, then they or the signature */
#define FILTER_NULL_TAG		0x100	/* beside the number: an element is NULL */
#define FILTER_SIGNATURE_BITS	(32 * (FILTER_TAG_WORDS - 1))

/* The two bits of a tag in a signature. */
FILTER_INLINE void
filter_signature_bits(uint32_t tag, uint32_t bits[2])
{
	uint64_t	mixed = ((uint64_t) tag + 1) * UINT64_C(0x9E3779B97F4A7C15);

	bits[0] = (uint32_t) (mixed >> 40) % FILTER_SIGNATURE_BITS;
	bits[1] = (uint32_t) (mixed >> 8) % FILTER_SIGNATURE_BITS;
}

/* Whether a set may have a tag. */
FILTER_INLINE bool
filter_may_have(const uint32_t *words, uint32_t tag)
{
	uint32_t	count = words[0] & ~(uint32_t) FILTER_NULL_TAG;
	uint32_t	bits[2];

	if (count <= FILTER_TAGS_WHOLE)
	{
		for (uint32_t i = 1; i <= count; i++)
			if (words[i] == tag)
				return true;
		return false;
	}
	filter_signature_bits(tag, bits);
	return (words[1 + bits[0] / 32] >> bits[0] % 32 & 1) != 0 &&
		   (words[1 + bits[1] / 32] >> bits[1] % 32 & 1) != 0;
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
