/*
 * quantizer_test.c
 *		Rotations keep lengths and products and spread what is large; codes and
 *		their estimates are as near to the truth as int8.h promises, whatever
 *		the dimensions, large elements and lengths.
 */
#include <math.h>
#include <string.h>

#include "promises.h"
#include "quantizer_test_int8.h"

#define DIMS_MAX	800
#define ROWS		64

static uint64_t state = 1;

/* About normal, of variance 1. */
static float
random_value(void)
{
	float		sum = 0;

	for (int i = 0; i < 12; i++)
	{
		state = state * 6364136223846793005u + 1442695040888963407u;
		sum += (float) (state >> 40) / (1 << 24);
	}
	return sum - 6;
}

static double
product(const float *a, const float *b, uint32_t dims)
{
	double		sum = 0;

	for (uint32_t i = 0; i < dims; i++)
		sum += (double) a[i] * b[i];
	return sum;
}

/* Rotated vectors have the same lengths and products, in all dimensions. */
static bool
rotations_keep_products(void)
{
	static float a[DIMS_MAX],
				b[DIMS_MAX],
				room[DIMS_MAX];
	uint32_t	rotation[DIMS_MAX];

	for (uint32_t dims = 1; dims <= DIMS_MAX; dims += dims < 70 ? 1 : 61)
	{
		double		before,
					aa,
					bb;

		for (uint32_t i = 0; i < dims; i++)
		{
			a[i] = random_value() * (i % 7 == 3 ? 100 : 1);
			b[i] = random_value();
		}
		before = product(a, b, dims);
		aa = product(a, a, dims);
		bb = product(b, b, dims);
		rotation_make(dims, dims, rotation);
		rotation_apply(rotation, dims, a, room);
		rotation_apply(rotation, dims, b, room);
		if (fabs(product(a, a, dims) - aa) > 1e-5 * aa ||
			fabs(product(b, b, dims) - bb) > 1e-5 * bb ||
			fabs(product(a, b, dims) - before) > 1e-5 * sqrt(aa * bb))
			return false;
	}
	return true;
}

/* Each place of the second round takes another element of the first. */
static bool
rotations_permute(void)
{
	uint32_t	rotation[DIMS_MAX];

	for (uint32_t dims = 1; dims <= DIMS_MAX; dims++)
	{
		bool		taken[DIMS_MAX] = {false};

		rotation_make(ROTATION_SEED, dims, rotation);
		for (uint32_t i = 0; i < dims; i++)
		{
			uint32_t	place = rotation[i] & ROTATION_PLACE;

			if (place >= dims || taken[place])
				return false;
			taken[place] = true;
		}
	}
	return true;
}

/* Nothing is left of a large element in one place but half of it. */
static bool
rotations_spread(void)
{
	static const uint32_t dims[] = {64, 100, 128, 129, 200, 255, 300, 384, 768};
	static float value[DIMS_MAX],
				room[DIMS_MAX];
	uint32_t	rotation[DIMS_MAX];

	for (size_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++)
	{
		rotation_make(ROTATION_SEED, dims[d], rotation);
		for (uint32_t large = 0; large < dims[d]; large++)
		{
			memset(value, 0, sizeof(value));
			value[large] = 1;
			rotation_apply(rotation, dims[d], value, room);
			for (uint32_t i = 0; i < dims[d]; i++)
				if (fabsf(value[i]) > 0.51f)
					return false;
		}
	}
	return true;
}

/*
 * Rows with large elements that are partly alike in all, and of many lengths:
 * the error of an estimate is small beside what is estimated.
 */
static bool
estimates_hold(bool square, uint32_t dims, uint32_t large, float factor, float shared, bool lengths)
{
	static float rows[ROWS][DIMS_MAX],
				copies[ROWS][DIMS_MAX],
				room[DIMS_MAX + INT8_SAMPLE];
	static signed char codes[ROWS][DIMS_MAX],
				query_codes[DIMS_MAX];
	uint32_t	rotation[DIMS_MAX];
	float		offsets[DIMS_MAX];
	Int8Codebook codebook = {dims, square, rotation, offsets};
	Int8Scale	scales[ROWS];
	double		bias = 0,
				errors = 0,
				sizes = 0;

	for (int row = 0; row < ROWS; row++)
	{
		float		length = lengths ? powf(10, (float) (row % 7) - 3) : 1;

		for (uint32_t i = 0; i < dims; i++)
			rows[row][i] = random_value() * length;
		for (uint32_t j = 0; j < large; j++)
			rows[row][(2 * j + 1) * dims / (2 * large)] +=
				shared + random_value() * factor * length;
	}
	rotation_make(ROTATION_SEED, dims, rotation);
	memcpy(copies, rows, sizeof(rows));
	for (int row = 0; row < ROWS; row++)
		memcpy(&copies[0][0] + row * dims, rows[row], dims * sizeof(float));
	int8_train(rotation, dims, &copies[0][0], ROWS, offsets, room);
	memcpy(copies, rows, sizeof(rows));
	for (int row = 0; row < ROWS; row++)
		scales[row] = int8_encode(&codebook, copies[row], room, codes[row]);
	for (int asked = 0; asked < ROWS; asked++)
	{
		Int8Query	query;
		double		differences[ROWS];

		memcpy(copies[0], rows[asked], sizeof(copies[0]));
		query = int8_prepare(&codebook, copies[0], room, query_codes);
		bias = 0;
		for (int row = 0; row < ROWS; row++)
		{
			double		estimate =
				int8_estimate(&codebook, query_codes, query, codes[row], scales[row]);
			double		own = product(rows[asked], rows[asked], dims);
			double		other = product(rows[row], rows[row], dims);
			double		both = product(rows[asked], rows[row], dims);

			differences[row] = estimate - (square ? other - 2 * both : -both);
			bias += differences[row] / ROWS;
			sizes += square ? own + other : sqrt(own * other);
		}
		for (int row = 0; row < ROWS; row++)
			errors += fabs(differences[row] - bias);
	}
	return errors < 0.01 * sizes;
}

static void
check_estimates(bool square)
{
	char		text[100];

	for (uint32_t dims = 24; dims <= 768; dims = dims == 24 ? 100 : dims == 100 ? 128 : dims + 320)
	{
		CHECK(estimates_hold(square, dims, 0, 0, 0, false));
		CHECK(estimates_hold(square, dims, 1, 200, 0, false));
		CHECK(estimates_hold(square, dims, 4, 20, 0, false));
		CHECK(estimates_hold(square, dims, 8, 4, 0, false));
		CHECK(estimates_hold(square, dims, 2, 1, 100, false));
		CHECK(estimates_hold(square, dims, 0, 0, 0, true));
		CHECK(estimates_hold(square, dims, 3, 50, 0, true));
		snprintf(text, sizeof(text), "estimates of %s, %u dimensions",
				 square ? "squared distances" : "products", dims);
		report(text);
	}
}

/* Rows on the offsets, and too far from them. */
static bool
limits_hold(void)
{
	uint32_t	rotation[16];
	float		offsets[16] = {0},
				room[16],
				row[16] = {0};
	signed char codes[16],
				query_codes[16];
	Int8Codebook codebook = {16, true, rotation, offsets};
	Int8Scale	scale;
	Int8Query	query;

	rotation_make(ROTATION_SEED, 16, rotation);
	scale = int8_encode(&codebook, row, room, codes);
	if (scale.step != 0 || scale.term != 0)
		return false;
	row[3] = 1;
	query = int8_prepare(&codebook, row, room, query_codes);
	memset(row, 0, sizeof(row));
	row[5] = 3e38f;
	scale = int8_encode(&codebook, row, room, codes);
	return int8_estimate(&codebook, query_codes, query, codes, scale) == HUGE_VALF;
}

int
main(void)
{
	promises_of = "quantizer";
	CHECK(rotations_keep_products());
	report("rotations keep lengths and products");
	CHECK(rotations_permute());
	report("places are a permutation");
	CHECK(rotations_spread());
	report("a large element is spread");
	check_estimates(true);
	check_estimates(false);
	CHECK(limits_hold());
	report("rows at the offsets and rows far away");
	return promises_end();
}
