/*
 * pq.c
 *		Product quantization: a residual is cut into sub-spaces, and each piece
 *		named by the nearest of 16 or 256 codewords of its sub-space.
 *		(Jegou, Douze, Schmid 2011)
 *
 * Codebook: the sub-spaces one after the other, of each its codewords. Code:
 * a byte for each sub-space, or half a byte, the lower half first; then `term`
 * and `error` (CodeNumbers).
 *
 * Tables: PqTables, then for each sub-space the products of the query's piece
 * with the codewords, times -2 for L2 and -1 otherwise, as integers: 16 bits
 * for 256 codewords, 8 for 16, since those fit into registers. The integer is
 * the product less the sub-space's least, in steps that are the same for all
 * sub-spaces. What the steps leave over is known, and goes into lower bounds.
 */
#include <stdlib.h>

#include "engine/quantizer/pq.h"
#include "engine/quantizer/random.h"

#define TRAIN_ROUNDS	16
#define TRAIN_ROWS		256		/* of a codeword, at most: more do not help */
#define BLOCK_FLOATS	16384	/* of residuals that are encoded at once */
#define MAX_WORDS		256		/* codewords of a sub-space */

static uint32_t
words_of(const QuantizerShape *shape)
{
	return 1u << shape->bits;
}

/* Where a sub-space begins. */
static uint32_t
part_begin(const QuantizerShape *shape, uint32_t part)
{
	uint32_t	longer = shape->dims % shape->parts;

	return part * (shape->dims / shape->parts) + (part < longer ? part : longer);
}

static uint32_t
part_dims(const QuantizerShape *shape, uint32_t part)
{
	return part_begin(shape, part + 1) - part_begin(shape, part);
}

/* ---- training ---- */

/* k-means of a sub-space. Rows beyond a sample are passed over evenly. */
static KmeansTask
part_task(const QuantizerShape *shape, const float *residuals, uint32_t count, uint32_t part,
		  const TrainControl *control)
{
	uint32_t	most = words_of(shape) * TRAIN_ROWS;
	uint32_t	step = count / most > 1 ? count / most : 1;
	KmeansTask	task = {.rows = residuals != NULL ? residuals + part_begin(shape, part) : NULL,
						.stride = (size_t) shape->dims * step,
						.count = count / step,
						.dims = part_dims(shape, part),
						.lists = words_of(shape),
						.rounds = TRAIN_ROUNDS,
						.seed = shape->seed + part,
						.control = control};

	return task;
}

size_t
pq_train_bytes(const QuantizerShape *shape, uint32_t count)
{
	KmeansTask	task = part_task(shape, NULL, count, 0, NULL);

	return kmeans_bytes(&task);
}

EngineStatus
pq_train(const QuantizerShape *shape, const float *residuals, uint32_t count,
		 const TrainControl *control, float *codebook)
{
	for (uint32_t part = 0; part < shape->parts; part++)
	{
		KmeansTask	task = part_task(shape, residuals, count, part, control);
		EngineStatus status =
			kmeans_run(&task, codebook + (size_t) words_of(shape) * part_begin(shape, part));

		if (status != ENGINE_OK)
			return status;
	}
	return ENGINE_OK;
}

/* ---- an open quantizer ---- */

/* Bytes of the structures of all sub-spaces. */
static size_t
parts_bytes(const QuantizerShape *shape)
{
	return (shape->parts * sizeof(Centroids) + 63) / 64 * 64;
}

/* Bytes of the tiles of a sub-space, which begin at a cache line. */
static size_t
tiles_bytes(const QuantizerShape *shape, uint32_t part)
{
	return (centroids_bytes(words_of(shape), part_dims(shape, part)) + 63) / 64 * 64;
}

size_t
pq_open_bytes(const QuantizerShape *shape)
{
	size_t		bytes = parts_bytes(shape);

	for (uint32_t part = 0; part < shape->parts; part++)
		bytes += tiles_bytes(shape, part);
	return bytes;
}

void
pq_open(Quantizer *quantizer, const float *codebook, void *memory)
{
	const QuantizerShape *shape = &quantizer->shape;
	char	   *at = (char *) memory + parts_bytes(shape);

	quantizer->parts = memory;
	for (uint32_t part = 0; part < shape->parts; part++)
	{
		centroids_init(&quantizer->parts[part],
					   codebook + (size_t) words_of(shape) * part_begin(shape, part),
					   words_of(shape), part_dims(shape, part), at);
		at += tiles_bytes(shape, part);
	}
}

/* ---- rows ---- */

/* The codeword that a code names for a sub-space. */
static uint32_t
get_word(const QuantizerShape *shape, const unsigned char *code, uint32_t part)
{
	return shape->bits == 8 ? code[part] : code[part / 2] >> (part % 2 * 4) & 15;
}

static void
set_word(const QuantizerShape *shape, unsigned char *code, uint32_t part, uint32_t word)
{
	if (shape->bits == 8)
		code[part] = (unsigned char) word;
	else
		code[part / 2] |= (unsigned char) (word << (part % 2 * 4));
}

/* Where the numbers of a code begin. */
static size_t
pq_numbers_at(const Quantizer *quantizer)
{
	return quantizer->code_bytes - PQ_NUMBERS_BYTES;
}

/* The codewords that a code names, one after another. */
static void
pq_decode(const Quantizer *quantizer, const unsigned char *code, float *residual)
{
	for (uint32_t part = 0; part < quantizer->shape.parts; part++)
	{
		const Centroids *words = &quantizer->parts[part];

		memcpy(residual, words->centroids +
			   (size_t) get_word(&quantizer->shape, code, part) * words->dims,
			   words->dims * sizeof(float));
		residual += words->dims;
	}
}

/* Set the numbers of a code whose words are set. */
static void
finish_code(const Quantizer *quantizer, const float *centroid, const float *residual,
			unsigned char *code)
{
	float		decoded[QUANTIZER_MAX_DIMS];
	CodeNumbers numbers = {0};
	double		error;

	pq_decode(quantizer, code, decoded);
	if (quantizer->shape.metric == METRIC_L2)
	{
		double		term = exact_product(quantizer, decoded, decoded);

		if (centroid != NULL)
			term += 2 * exact_product(quantizer, centroid, decoded);
		numbers.term = (float) term;
	}
	/* the second part: the residual was rounded */
	error = sqrt(exact_square(quantizer, residual, decoded)) +
		sqrt(exact_product(quantizer, residual, residual)) * 0x1p-23;
	numbers.error = not_below(error * (1 + 0x1p-20));
	if (!isfinite(numbers.error) || !isfinite(numbers.term))
		numbers = (CodeNumbers) {.error = INFINITY};
	memcpy(code + pq_numbers_at(quantizer), &numbers, PQ_NUMBERS_BYTES);
}

/* Encode rows whose residuals fit into a block. */
static void
encode_block(const Quantizer *quantizer, const float *centroid, const float *rows, uint32_t count,
			 unsigned char *codes)
{
	const QuantizerShape *shape = &quantizer->shape;
	float		residuals[BLOCK_FLOATS];
	uint32_t	nearest[NEAREST_ROWS];

	for (uint32_t row = 0; row < count; row++)
		for (uint32_t i = 0; i < shape->dims; i++)
			residuals[row * shape->dims + i] =
				rows[(size_t) row * shape->dims + i] - (centroid != NULL ? centroid[i] : 0);
	memset(codes, 0, count * quantizer->code_bytes);
	for (uint32_t part = 0; part < shape->parts; part++)
	{
		centroids_nearest(&quantizer->parts[part], residuals + part_begin(shape, part),
						  shape->dims, count, nearest, NULL);
		for (uint32_t row = 0; row < count; row++)
			set_word(shape, codes + row * quantizer->code_bytes, part, nearest[row]);
	}
	for (uint32_t row = 0; row < count; row++)
		finish_code(quantizer, centroid, residuals + row * shape->dims,
					codes + row * quantizer->code_bytes);
}

void
pq_encode(const Quantizer *quantizer, const float *centroid, const float *rows, size_t count,
		  unsigned char *codes)
{
	size_t		most = BLOCK_FLOATS / quantizer->shape.dims;
	size_t		block;

	most = most < NEAREST_ROWS ? most : NEAREST_ROWS;
	for (size_t at = 0; at < count; at += block)
	{
		block = count - at < most ? count - at : most;
		encode_block(quantizer, centroid, rows + at * quantizer->shape.dims, (uint32_t) block,
					 codes + at * quantizer->code_bytes);
	}
}

/* ---- queries ---- */

size_t
pq_table_bytes(const QuantizerShape *shape)
{
	return sizeof(PqTables) +
		(size_t) shape->parts * words_of(shape) * (shape->bits == 8 ? sizeof(uint16_t) : 1);
}

typedef float FloatLanes __attribute__((vector_size(32), aligned(4), may_alias));
typedef double DoubleLanes __attribute__((vector_size(64)));

#define LANES		8
#define REGISTERS	(NEAREST_TILE / LANES)

/*
 * Products of a query's piece with the codewords of its sub-space, times
 * factor. Registers are those of the level that it is compiled for; products
 * and sums round one by one.
 */
static inline __attribute__((always_inline)) void
make_products(const Centroids *words, const float *piece, double factor, double *products)
{
	for (uint32_t word = 0; word < words->count; word += NEAREST_TILE)
	{
		const float *tile = words->tiles + (size_t) word * words->dims;
		DoubleLanes sum[REGISTERS] = {{0}};

		for (uint32_t i = 0; i < words->dims; i++, tile += NEAREST_TILE)
			for (int r = 0; r < REGISTERS; r++)
				sum[r] += (double) piece[i] *
					__builtin_convertvector(*(const FloatLanes *) (tile + r * LANES), DoubleLanes);
		for (uint32_t at = 0; at < NEAREST_TILE && word + at < words->count; at++)
			products[word + at] = factor * sum[at / LANES][at % LANES];
	}
}

static void
products_portable(const Centroids *words, const float *piece, double factor, double *products)
{
	make_products(words, piece, factor, products);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void
products_avx2(const Centroids *words, const float *piece, double factor, double *products)
{
	make_products(words, piece, factor, products);
}

__attribute__((target("avx512f"))) static void
products_avx512(const Centroids *words, const float *piece, double factor, double *products)
{
	make_products(words, piece, factor, products);
}
#endif

static void
word_products(const Centroids *words, const float *piece, double factor, double *products)
{
#if defined(__x86_64__)
	if (words->level == SIMD_AVX512)
		products_avx512(words, piece, factor, products);
	else if (words->level == SIMD_AVX2)
		products_avx2(words, piece, factor, products);
	else
#endif
		products_portable(words, piece, factor, products);
}

/* The least and the greatest of count numbers, a multiple of 4. */
static void
pq_find_range(const double *products, uint32_t count, double *least, double *most)
{
	double		low[4];			/* so that four chains of minima run at once */
	double		high[4];

	memcpy(low, products, sizeof(low));
	memcpy(high, products, sizeof(high));
	for (uint32_t i = 4; i < count; i += 4)
		for (int j = 0; j < 4; j++)
		{
			low[j] = products[i + j] < low[j] ? products[i + j] : low[j];
			high[j] = products[i + j] > high[j] ? products[i + j] : high[j];
		}
	*least = fmin(fmin(low[0], low[1]), fmin(low[2], low[3]));
	*most = fmax(fmax(high[0], high[1]), fmax(high[2], high[3]));
}

/* Set the integers of a sub-space; returns the most that one of them leaves over. */
static double
pq_set_integers(const QuantizerShape *shape, PqTables *tables, uint32_t part, const double *products)
{
	uint32_t	words = words_of(shape);
	double		limit = shape->bits == 8 ? UINT16_MAX : UINT8_MAX;
	double		scale = tables->scale;
	double		factor = scale > 0 ? 1 / scale : 0;
	double		error = 0;
	double		least,
				most;

	pq_find_range(products, words, &least, &most);
	for (uint32_t word = 0; word < words; word++)
	{
		double		above = products[word] - least;
		double		steps = above * factor + 0.5;
		uint16_t	integer = (uint16_t) (steps < limit ? steps : limit);
		double		left = fabs(above - integer * scale);

		error = left > error ? left : error;
		if (shape->bits == 8)
			((uint16_t *) (tables + 1))[(size_t) part * words + word] = integer;
		else
			((uint8_t *) (tables + 1))[(size_t) part * words + word] = (uint8_t) integer;
	}
	return error;
}

/*
 * Products are made twice, for the range and for the integers: they are few,
 * and a place for all of them is not.
 */
void
pq_prepare(const Quantizer *quantizer, const float *query, void *place)
{
	const QuantizerShape *shape = &quantizer->shape;
	PqTables   *tables = place;
	double		factor = shape->metric == METRIC_L2 ? -2 : -1;
	double		limit = shape->bits == 8 ? UINT16_MAX : UINT8_MAX;
	double		products[MAX_WORDS];
	double		widest = 0;
	double		offset = 0;
	double		error = 0;

	for (uint32_t part = 0; part < shape->parts; part++)
	{
		double		least,
					most;

		word_products(&quantizer->parts[part], query + part_begin(shape, part), factor, products);
		pq_find_range(products, words_of(shape), &least, &most);
		widest = most - least > widest ? most - least : widest;
		offset += least;
	}
	tables->scale = widest > 0 ? not_below(widest / limit) : 0;
	tables->offset = (float) offset;
	for (uint32_t part = 0; part < shape->parts; part++)
	{
		word_products(&quantizer->parts[part], query + part_begin(shape, part), factor, products);
		error += pq_set_integers(shape, tables, part, products);
	}
	tables->error = not_below(error + fabs(offset - tables->offset));
	tables->length = not_below(sqrt(exact_product(quantizer, query, query)));
}

void
pq_estimate(const Quantizer *quantizer, const void *place, float base, const unsigned char *codes,
			size_t count, float *estimates, float *lower)
{
	const QuantizerShape *shape = &quantizer->shape;
	const PqTables *tables = place;

	for (size_t row = 0; row < count; row++, codes += quantizer->code_bytes)
	{
		CodeNumbers numbers;
		float		unused;
		int32_t		sum = shape->bits == 8
			? sum_lookups8((const uint16_t *) (tables + 1), codes, shape->parts)
			: sum_lookups4((const uint8_t *) (tables + 1), codes, shape->parts);

		memcpy(&numbers, codes + pq_numbers_at(quantizer), PQ_NUMBERS_BYTES);
		estimates[row] = pq_estimate_one(shape, tables, base, sum, &numbers,
										 lower != NULL ? &lower[row] : &unused);
	}
}

float
pq_upper(const Quantizer *quantizer, const void *place, float base, const CodeNumbers *numbers,
		 float estimate)
{
	const PqTables *tables = place;

	return upper_bound(quantizer->shape.metric, estimate,
					   tables->error + fabsf(tables->offset) * ESTIMATE_ROUNDING +
					   estimate_rounding(estimate, base, numbers->term),
					   numbers->error, tables->length);
}
