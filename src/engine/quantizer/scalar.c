/*
 * scalar.c
 *		Codes of whole numbers, one for each dimension of a rotated residual:
 *		int8 and rabitq.
 *
 * The rotation (rotation.h) makes every element of about the same size and turns
 * errors in all directions alike. Of the rotated residual r a code keeps whole
 * numbers w and a scale f; f w is the decoded residual. Products with queries
 * are f times a sum of integers, since queries become integers of 16 bits.
 *
 * int8: w from -127 to 127, f the largest element over 127. f w is next to r,
 * and its distance from it is stored, so that lower bounds always hold.
 *
 * rabitq (Gao, Long 2024; Gao et al. 2025): w = 2 u - (2^bits -
 * 1), u of `bits` bits in steps of a normal variable's best uniform quantizer,
 * or smaller ones if these reach all elements; one bit is the sign. f = |r|^2 / <r,w>, so f w is not next to r but r plus
 * something perpendicular: f w - r, which in a random rotation is perpendicular
 * in a random direction. Its product with a vector v is about normal, with a
 * standard deviation of |v| |f w - r| / sqrt(dims - 1); that divided by |v| is
 * what `error` has. For L2 v is q - c: |q - x|^2 = |q - c|^2 + |r|^2 -
 * 2<q - c,r>, which is why the stored term has <c, f w> and not <c, r>.
 *
 * Code: int8: a byte a dimension. rabitq: planes of words of 32 bits, the
 * highest bits of all dimensions first; element i is bit i % 32 of word i / 32.
 * CodeNumbers follow.
 */
#include "engine/quantizer/scalar.h"

/* Steps of the best uniform quantizers of a normal variable (Max 1960). */
static const double normal_steps[] = {0,	  1.5958, 0.9957, 0.5860, 0.3352,
									  0.1881, 0.1041, 0.0569, 0.0308};

size_t
scalar_code_bytes(const QuantizerShape *shape)
{
	return shape->kind == QUANTIZER_INT8 ? padded_bytes(shape->dims)
		: (size_t) shape->bits * plane_words(shape) * sizeof(uint32_t);
}

size_t
scalar_table_bytes(const QuantizerShape *shape)
{
	size_t		lookups = (size_t) scalar_groups(shape) * 32 + sizeof(int32_t);

	return scalar_lookups_at(shape) + (shape->kind == QUANTIZER_RABITQ ? lookups : 0);
}

/*
 * How many rotations follow each other. One spreads large elements; errors in
 * random directions take two: of a vector with two large elements among 128
 * dimensions one round makes four different sizes only, and more than a third of
 * rabitq's lower bounds were wrong where queries had the same two.
 *
 * Between them the elements are dealt out, the even ones and then the odd: a
 * rotation of 127 dimensions only exchanges its halves, and two of them alone
 * left a quarter of the bounds wrong.
 */
static uint32_t
rotations(const QuantizerShape *shape)
{
	return shape->kind == QUANTIZER_RABITQ ? 2 : 1;
}

/* Where element i lies when the even ones and then the odd ones are dealt out. */
static uint32_t
dealt(uint32_t i, uint32_t dims)
{
	return i % 2 == 0 ? i / 2 : (dims + 1) / 2 + i / 2;
}

size_t
scalar_open_bytes(const QuantizerShape *shape)
{
	return (size_t) rotations(shape) * shape->dims * sizeof(uint32_t);
}

void
scalar_open(Quantizer *quantizer, void *memory)
{
	uint32_t	dims = quantizer->shape.dims;

	quantizer->rotation = memory;
	for (uint32_t at = 0; at < rotations(&quantizer->shape); at++)
		rotation_make(quantizer->shape.seed + at, dims, quantizer->rotation + (size_t) at * dims);
}

static void
scalar_rotate(const Quantizer *quantizer, float *values)
{
	uint32_t	dims = quantizer->shape.dims;
	float		room[QUANTIZER_MAX_DIMS];

	for (uint32_t at = 0; at < rotations(&quantizer->shape); at++)
	{
		if (at > 0)
		{
			memcpy(room, values, dims * sizeof(float));
			for (uint32_t i = 0; i < dims; i++)
				values[dealt(i, dims)] = room[i];
		}
		rotation_apply(quantizer->rotation + (size_t) at * dims, dims, values, room);
	}
}

/* The nearest whole number, the even one of two, of a small number. */
static inline float
whole(float x)
{
	return x + 0x1.8p23f - 0x1.8p23f;
}

/* The largest element's size. */
static float
largest_size(const float *values, uint32_t dims)
{
	float		most = 0;

	for (uint32_t i = 0; i < dims; i++)
		most = fabsf(values[i]) > most ? fabsf(values[i]) : most;
	return most;
}

/* ---- rows ---- */

/* What is computed of a row on its way to its code; all rotated. */
typedef struct ScalarRow
{
	const float *centroid;		/* NULL: the origin */
	double		square;			/* of the residual's length */
	float		residual[QUANTIZER_MAX_DIMS];
	float		numbers[QUANTIZER_MAX_DIMS];	/* w */
	float		decoded[QUANTIZER_MAX_DIMS];
} ScalarRow;

/* Set the whole numbers of a row's int8 code; returns the scale. */
static float
int8_numbers(const Quantizer *quantizer, ScalarRow *row, unsigned char *code)
{
	uint32_t	dims = quantizer->shape.dims;
	float		most = largest_size(row->residual, dims);
	float		factor = most < TINY ? 0 : INT8_CODE_MAX / most;

	for (uint32_t i = 0; i < dims; i++)
	{
		float		number = whole(row->residual[i] * factor);

		number = number > INT8_CODE_MAX ? INT8_CODE_MAX : number < -INT8_CODE_MAX ? -INT8_CODE_MAX : number;
		row->numbers[i] = number;
		code[i] = (unsigned char) (int8_t) number;
	}
	return factor > 0 ? most / INT8_CODE_MAX : 0;
}

/*
 * Set word w of all planes from the numbers of its dimensions, as far as there
 * are some.
 *
 * Eight numbers at a time lie in the bytes of a word of 64 bits; the factor
 * moves bit 8 k to bit 56 + k.
 */
static void
set_planes(const QuantizerShape *shape, const unsigned char *numbers, uint32_t w,
		   unsigned char *code)
{
	uint64_t	eight[SUMS_LANES / 8] = {0};

	for (uint32_t i = 0; i < SUMS_LANES; i++)
		eight[i / 8] |= (uint64_t) numbers[i] << i % 8 * 8;
	for (uint32_t plane = 0; plane < shape->bits; plane++)
	{
		uint32_t	word = 0;

		for (uint32_t i = 0; i < SUMS_LANES / 8; i++)
		{
			uint64_t	bits = eight[i] >> (shape->bits - 1 - plane) &
				UINT64_C(0x0101010101010101);

			word |= (uint32_t) ((bits * UINT64_C(0x0102040810204080)) >> 56) << i * 8;
		}
		memcpy(code + ((size_t) plane * plane_words(shape) + w) * sizeof(word), &word,
			   sizeof(word));
	}
}

/* Set the whole numbers of a row's rabitq code; returns the scale. */
static float
rabitq_numbers(const Quantizer *quantizer, ScalarRow *row, unsigned char *code)
{
	const QuantizerShape *shape = &quantizer->shape;
	float		middle = (float) (1 << (shape->bits - 1));
	float		last = (float) most_number(shape);
	float		most = largest_size(row->residual, shape->dims);
	float		factor;
	double		product;

	if (most < TINY)
	{
		memset(row->numbers, 0, sizeof(row->numbers));
		return 0;
	}
	factor = (float) (sqrt(shape->dims / row->square) / normal_steps[shape->bits]);
	if (factor < middle / most)
		factor = middle / most;	/* smaller steps reach the largest element too */
	for (uint32_t w = 0; w < plane_words(shape); w++)
	{
		unsigned char bits[SUMS_LANES] = {0};

		for (uint32_t i = w * SUMS_LANES; i < shape->dims && i < (w + 1) * SUMS_LANES; i++)
		{
			float		number = row->residual[i] * factor + middle;

			number = number < 0 ? 0 : number > last ? last : number;
			bits[i % SUMS_LANES] = (unsigned char) number;
			row->numbers[i] = (float) (2 * bits[i % SUMS_LANES]) - last;
		}
		set_planes(shape, bits, w, code);
	}
	product = exact_product(quantizer, row->residual, row->numbers);
	return product > 0 ? (float) (row->square / product) : 0;
}

/* Set the numbers of a code from its whole numbers and scale. */
static CodeNumbers
row_numbers(const Quantizer *quantizer, ScalarRow *row, float scale)
{
	const QuantizerShape *shape = &quantizer->shape;
	CodeNumbers numbers = {.scale = scale};
	double		square = (double) scale * scale *
		exact_product(quantizer, row->numbers, row->numbers);

	if (shape->metric == METRIC_L2)
	{
		double		term = shape->kind == QUANTIZER_INT8 ? square : row->square;

		if (row->centroid != NULL)
			term += 2 * (double) scale * exact_product(quantizer, row->centroid, row->numbers);
		numbers.term = (float) term;
	}
	for (uint32_t i = 0; i < shape->dims; i++)
		row->decoded[i] = scale * row->numbers[i];
	numbers.error = not_below(sqrt(exact_square(quantizer, row->residual, row->decoded)));
	if (shape->kind == QUANTIZER_INT8)
		numbers.error = not_below(numbers.error * (1 + 0x1p-20) +
								  sqrt(row->square) * (ROTATION_ROUNDING + RESIDUAL_ROUNDING));
	else
		numbers.error = not_below(numbers.error / sqrt(shape->dims > 1 ? shape->dims - 1 : 1));
	if (row->square == 0)
		numbers.error = 0;
	if (!isfinite(numbers.error) || !isfinite(numbers.term) || !isfinite(numbers.scale) ||
		!isfinite(row->square))
		numbers = (CodeNumbers) {.error = INFINITY};
	return numbers;
}

/* Encode the row whose residual is set, not yet rotated. */
static void
encode_row(const Quantizer *quantizer, ScalarRow *row, unsigned char *code)
{
	CodeNumbers numbers;
	float		scale;

	memset(code, 0, quantizer->code_bytes);
	scalar_rotate(quantizer, row->residual);
	row->square = exact_product(quantizer, row->residual, row->residual);
	if (!isfinite(row->square))
		memset(row->residual, 0, quantizer->shape.dims * sizeof(float));
	scale = quantizer->shape.kind == QUANTIZER_INT8 ? int8_numbers(quantizer, row, code)
		: rabitq_numbers(quantizer, row, code);
	numbers = row_numbers(quantizer, row, scale);
	memcpy(code + quantizer->code_bytes - sizeof(numbers), &numbers, sizeof(numbers));
}

void
scalar_encode(const Quantizer *quantizer, const float *centroid, const float *rows, size_t count,
			  unsigned char *codes)
{
	uint32_t	dims = quantizer->shape.dims;
	float		rotated[QUANTIZER_MAX_DIMS];
	ScalarRow	row;

	row.centroid = centroid != NULL ? rotated : NULL;
	if (centroid != NULL)
	{
		memcpy(rotated, centroid, dims * sizeof(float));
		scalar_rotate(quantizer, rotated);
	}
	for (size_t at = 0; at < count; at++)
	{
		for (uint32_t i = 0; i < dims; i++)
			row.residual[i] = rows[at * dims + i] - (centroid != NULL ? centroid[i] : 0);
		encode_row(quantizer, &row, codes + at * quantizer->code_bytes);
	}
}

/* ---- queries ---- */

#define LEFT_SUMS	8			/* in which what integers leave over is added up */

/* The sum of eight sums, in the order of a device's lanes. */
static double
sum_of_left(const double *sums)
{
	return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
		((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/* Make a rotated query whole numbers. */
static void
scalar_set_integers(const QuantizerShape *shape, const float *query, ScalarTables *tables)
{
	int16_t    *integers = (int16_t *) (tables + 1);
	uint32_t	steps = INT32_MAX / (most_number(shape) * shape->dims);
	float		most = largest_size(query, shape->dims);
	float		factor,
				step;
	double		sums[LEFT_SUMS] = {0};
	double		squares[LEFT_SUMS] = {0};
	double		sum,
				square;

	steps = steps < query_steps(shape) ? steps : query_steps(shape);
	factor = most < TINY ? 0 : (float) steps / most;
	step = most < TINY ? 0 : most / (float) steps;
	for (uint32_t i = 0; i < shape->dims; i++)
	{
		float		integer = whole(query[i] * factor);
		double		left;

		integer = integer > (float) steps ? (float) steps
			: integer >= -(float) steps ? integer : -(float) steps;
		integers[i] = (int16_t) integer;
		tables->sum += (int32_t) integer;
		left = fabs(query[i] - (double) step * integer);
		sums[i % LEFT_SUMS] += left;
		squares[i % LEFT_SUMS] += left * left;
	}
	sum = sum_of_left(sums);
	square = sum_of_left(squares);
	tables->scale = shape->metric == METRIC_L2 ? -2 * step : -step;
	tables->sum_error = not_below(isnan(sum) ? INFINITY : sum);
	tables->length_error = not_below(isnan(square) ? INFINITY : sqrt(square));
}

/*
 * Set what blocks look up for four dimensions: the sum of the integers of those
 * whose bits are set, less that of the negative ones, as two planes of bytes.
 */
static void
set_lookups(const QuantizerShape *shape, ScalarTables *tables)
{
	const int16_t *integers = (const int16_t *) (tables + 1);
	unsigned char *lookups = (unsigned char *) scalar_lookups(shape, tables);

	for (uint32_t group = 0; group < scalar_groups(shape); group++, integers += 4, lookups += 32)
	{
		int32_t		sums[16];
		int32_t		negative = 0;

		sums[0] = 0;
		for (int i = 0; i < 4; i++)
		{
			negative += integers[i] < 0 ? integers[i] : 0;
			for (int j = 0; j < 1 << i; j++)
				sums[(1 << i) + j] = sums[j] + integers[i];
		}
		for (int i = 0; i < 16; i++)
		{
			lookups[i] = (unsigned char) (sums[i] - negative);
			lookups[16 + i] = (unsigned char) ((sums[i] - negative) >> 8);
		}
		*scalar_negative(shape, tables) += negative;
	}
}

void
scalar_prepare(const Quantizer *quantizer, const float *query, void *tables)
{
	uint32_t	dims = quantizer->shape.dims;
	float		rotated[QUANTIZER_MAX_DIMS];

	memset(tables, 0, scalar_table_bytes(&quantizer->shape));
	memcpy(rotated, query, dims * sizeof(float));
	scalar_rotate(quantizer, rotated);
	scalar_set_integers(&quantizer->shape, rotated, tables);
	((ScalarTables *) tables)->length = not_below(sqrt(exact_product(quantizer, query, query)));
	if (quantizer->shape.kind == QUANTIZER_RABITQ)
		set_lookups(&quantizer->shape, tables);
}

/* The sum of products of the integers of a query and a code. */
static int32_t
integer_sum(const Quantizer *quantizer, const ScalarTables *tables, const unsigned char *code)
{
	const QuantizerShape *shape = &quantizer->shape;
	const int16_t *query = (const int16_t *) (tables + 1);
	int64_t		sum;

	if (shape->kind == QUANTIZER_INT8)
		return quantizer->sums->bytes(query, (const int8_t *) code, shape->dims);
	sum = quantizer->sums->planes(query, (const uint32_t *) (const void *) code,
								  plane_words(shape), shape->bits);
	return (int32_t) (2 * sum - (int64_t) most_number(shape) * tables->sum);
}

void
scalar_estimate(const Quantizer *quantizer, const void *place, float base,
				const unsigned char *codes, size_t count, float *estimates, float *lower)
{
	const ScalarTables *tables = place;

	for (size_t row = 0; row < count; row++, codes += quantizer->code_bytes)
	{
		CodeNumbers numbers;
		float		unused;

		memcpy(&numbers, codes + quantizer->code_bytes - sizeof(numbers), sizeof(numbers));
		estimates[row] = scalar_estimate_one(&quantizer->shape, tables, base,
											 integer_sum(quantizer, tables, codes), &numbers,
											 lower != NULL ? &lower[row] : &unused);
	}
}

float
scalar_upper(const Quantizer *quantizer, const void *tables, float base,
			 const CodeNumbers *numbers, float estimate)
{
	const QuantizerShape *shape = &quantizer->shape;
	float		slack = estimate_rounding(estimate, base, numbers->term) +
		scalar_slack(shape, tables, base, numbers);

	return upper_bound(shape->metric, estimate, slack,
					   shape->kind == QUANTIZER_INT8 ? numbers->error : 0,
					   ((const ScalarTables *) tables)->length);
}
