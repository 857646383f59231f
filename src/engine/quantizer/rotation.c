/*
 * rotation.c
 *		Random rotations by Walsh-Hadamard transforms in blocks.
 */
#include <math.h>
#include <string.h>

#include "engine/quantizer/random.h"
#include "engine/quantizer/rotation.h"

/* Put the numbers from `from` up to `to` into `places`, in random order. */
static void
shuffle(uint64_t *state, uint32_t from, uint32_t to, uint32_t *places)
{
	for (uint32_t i = 0; i < to - from; i++)
	{
		uint32_t	at = (uint32_t) (random_next(state) % (i + 1));

		places[i] = places[at];
		places[at] = from + i;
	}
}

/*
 * Of the first round the small blocks come first in the second, and so into its
 * largest block, as far as that goes: nothing stays in small blocks only.
 */
void
rotation_make(uint64_t seed, uint32_t dims, uint32_t *rotation)
{
	uint32_t	first = rotation_block(dims);
	uint64_t	state = seed;

	shuffle(&state, first, dims, rotation);
	shuffle(&state, 0, first, rotation + (dims - first));
	for (uint32_t i = 0; i < dims; i++)
	{
		uint64_t	random = random_next(&state);

		rotation[i] |= (random & 1 ? ROTATION_FIRST_SIGN : 0) |
			(random & 2 ? ROTATION_SECOND_SIGN : 0);
	}
}

/* Four values in a register; they may lie anywhere. */
typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));

/* Transform a block of a power of two, scaled. */
static void
transform_block(uint32_t block, float *values)
{
	float		factor = 1.0f / sqrtf((float) block);

	for (uint32_t step = 1; step < 4 && step < block; step *= 2)
		for (uint32_t i = 0; i < block / 2; i++)
		{
			float	   *a = values + 2 * i - (i & (step - 1));
			float		sum = *a + a[step];

			a[step] = *a - a[step];
			*a = sum;
		}
	for (uint32_t step = 4; step < block; step *= 2)
		for (uint32_t at = 0; at < block; at += 2 * step)
			for (uint32_t i = at; i < at + step; i += 4)
			{
				Four	   *a = (Four *) (values + i);
				Four	   *b = (Four *) (values + i + step);
				Four		sum = *a + *b;

				*b = *a - *b;
				*a = sum;
			}
	for (uint32_t i = 0; i < block; i++)
		values[i] *= factor;
}

/* Transform all blocks, the largest first. */
static void
rotation_transform_blocks(uint32_t dims, float *values)
{
	while (dims > 0)
	{
		uint32_t	block = rotation_block(dims);

		transform_block(block, values);
		values += block;
		dims -= block;
	}
}

/* A value whose sign changes if the highest bit of a word is set. */
static inline float
change_sign(float value, uint32_t word)
{
	uint32_t	bits;

	memcpy(&bits, &value, sizeof(bits));
	bits ^= word & ROTATION_FIRST_SIGN;
	memcpy(&value, &bits, sizeof(bits));
	return value;
}

void
rotation_apply(const uint32_t *rotation, uint32_t dims, float *values, float *room)
{
	for (uint32_t i = 0; i < dims; i++)
		values[i] = change_sign(values[i], rotation[i]);
	rotation_transform_blocks(dims, values);
	if (rotation_block(dims) == dims)
		return;
	memcpy(room, values, dims * sizeof(float));
	for (uint32_t i = 0; i < dims; i++)
		values[i] = change_sign(room[rotation[i] & ROTATION_PLACE],
								rotation[i] * (ROTATION_FIRST_SIGN / ROTATION_SECOND_SIGN));
	rotation_transform_blocks(dims, values);
}
