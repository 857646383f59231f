/*
 * equal_rows_test.c
 *		The representatives of a search: copies are found, and rows that only
 *		share their distance are compared few times.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/equal_rows.h"
#include "promises.h"

#define ROWS			5000
#define DIMS			64

/* Vectors that are mostly zeros; those of ROWS and beyond are copies. */
typedef struct Rows
{
	float		vectors[2 * ROWS][DIMS];
	uint64_t	compared;
	uint64_t	sketched;
} Rows;

static bool
rows_equal(void *context, uint32_t slot_a, uint32_t slot_b)
{
	Rows	   *rows = context;

	rows->compared++;
	return memcmp(rows->vectors[slot_a], rows->vectors[slot_b], sizeof(rows->vectors[0])) == 0;
}

static uint32_t
rows_sketch(void *context, uint32_t slot)
{
	Rows	   *rows = context;

	rows->sketched++;
	return vector_sketch(rows->vectors[slot], sizeof(rows->vectors[0]));
}

static void *
resize(void *context, void *old, size_t size)
{
	if (size > 0)
		return realloc(old, size);
	free(old);
	return NULL;
}

/*
 * Take in all rows and then their copies; returns how many copies have the
 * right representative.
 */
static uint32_t
take_all(Rows *rows, bool often_tied, bool one_distance)
{
	const GraphAccess access = {.context = rows,
								.equal = rows_equal,
								.sketch = rows_sketch,
								.often_tied = often_tied};
	const ScratchAllocator allocator = {resize, NULL};
	EqualRows	found = {0};
	uint32_t	right = 0;

	rows->compared = rows->sketched = 0;
	CHECK(equal_rows_reset(&found, &access, &allocator, 40));
	for (uint32_t slot = 0; slot < 2 * ROWS; slot++)
	{
		EqualPlace	at = equal_rows_find(&found, &access, slot,
										 one_distance ? 2 : 2 + slot % ROWS / 1e6);

		if (slot >= ROWS)
			right += at.slot == slot - ROWS;
		else
		{
			CHECK(at.slot == NO_SLOT);
			CHECK(equal_rows_put(&found, &access, &allocator, at, slot));
		}
	}
	free(found.places);
	return right;
}

int
main(void)
{
	Rows	   *rows = need(sizeof(Rows));

	promises_of = "equal_rows";
	for (uint32_t slot = 0; slot < 2 * ROWS; slot++)
	{
		rows->vectors[slot][slot % ROWS % DIMS] += 1;
		rows->vectors[slot][slot % ROWS / DIMS % DIMS] += 1;
		rows->vectors[slot][0] += (float) (slot % ROWS / (DIMS * DIMS));
		rows->vectors[slot][DIMS - 1] += (float) (slot % ROWS) / ROWS;
	}
	CHECK(take_all(rows, false, false) == ROWS);
	CHECK(rows->sketched == 0);
	report("where distances differ no sketch is made");
	CHECK(take_all(rows, false, true) == ROWS);
	CHECK(rows->compared < 2 * ROWS);
	report("many rows at one distance are compared few times, and copies are found");
	CHECK(take_all(rows, true, true) == ROWS);
	CHECK(rows->compared < 2 * ROWS);
	report("rows that are often tied have sketches from the start");
	free(rows);
	return promises_end();
}
