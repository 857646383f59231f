/*
 * codes_test_blocks.c
 *		Blocks of codes: what is estimated of them is what is estimated of their
 *		codes, to the bit, at every SIMD level.
 */
#include "codes_test.h"
#include "engine/quantizer/blocks.h"
#include "engine/quantizer/quantizer_private.h"

#define ROWS	QUANTIZER_BLOCK

/* Compare a block's estimates with those of its codes, at a level. */
static void
compare_level(Quantizer *quantizer, const QuantizerShape *shape, SimdLevel level,
			  const unsigned char *codes, const void *block, const float *query)
{
	void	   *tables = need(quantizer_table_bytes(shape));
	float		expected[2][ROWS];
	float	   *found = need(2 * ROWS * sizeof(float));

	quantizer->blocks = block_kernels(level);
	quantizer->sums = sum_kernels(level);
	quantizer_prepare(quantizer, query, tables);
	for (int i = 0; i < 3; i++)
	{
		float		base = (float) (i * 17.5 - (shape->metric == METRIC_L2 ? 0 : 20));
		float		limit;
		uint32_t	within = 0;

		quantizer_estimate(quantizer, tables, base, codes, ROWS, expected[0], expected[1]);
		block_estimate(quantizer, tables, base, block, found, found + ROWS);
		CHECK(memcmp(found, expected, sizeof(expected)) == 0);
		limit = expected[0][7];
		for (int row = 0; row < ROWS; row++)
		{
			within |= (uint32_t) !(expected[0][row] > limit) << row;
			CHECK(!(block_upper(quantizer, tables, base, block, (uint32_t) row,
								expected[0][row]) < expected[0][row]));
		}
		CHECK(block_within(quantizer, found, limit) == within);
	}
	free(tables);
	free(found);
}

/* Make a block, one code at a time and some of them twice, and compare it. */
static void
test_shape(QuantizerShape shape)
{
	float	   *rows = need(ROWS * shape.dims * sizeof(float));
	float	   *codebook = need(quantizer_codebook_bytes(&shape) + 4);
	size_t		bytes = quantizer_code_bytes(&shape);
	unsigned char *codes = need(ROWS * bytes);
	void	   *block = need(block_bytes(&shape));
	Quantizer  *quantizer;

	for (uint32_t i = 0; i < ROWS * shape.dims; i++)
		rows[i] = (float) normal() * (i / shape.dims == 3 ? 1e25f : 1);
	for (uint32_t i = 0; i < quantizer_codebook_bytes(&shape) / sizeof(float); i++)
		codebook[i] = (float) normal();
	quantizer = quantizer_open(&shape, codebook);
	CHECK(quantizer != NULL && block_bytes(&shape) % 64 == 0);
	quantizer_encode(quantizer, NULL, rows, ROWS, codes);
	memset(block, 0, block_bytes(&shape));
	for (uint32_t i = 0; i < ROWS; i++)
		block_set(quantizer, block, i, codes + (31 - i) * bytes);
	for (uint32_t i = 0; i < ROWS; i++)
		block_set(quantizer, block, i, codes + i * bytes);
	for (SimdLevel level = SIMD_PORTABLE; level <= SIMD_AVX512; level++)
		if (simd_available(level))
			compare_level(quantizer, &shape, level, codes, block, rows + 9 * shape.dims);
	quantizer_close(quantizer);
	free(rows);
	free(codebook);
	free(codes);
	free(block);
}

void
test_blocks(void)
{
	static const uint32_t dims[] = {1, 5, 32, 127, 768, 2051};

	for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
		for (Metric metric = METRIC_L2; metric <= METRIC_COSINE; metric++)
		{
			uint32_t	d = dims[i];

			test_shape((QuantizerShape) {QUANTIZER_INT8, metric, d, 8, 0, 3});
			for (uint32_t bits = 1; bits <= 8; bits++)
				test_shape((QuantizerShape) {QUANTIZER_RABITQ, metric, d, bits, 0, 3});
			for (uint32_t bits = 4; bits <= 8; bits += 4)
			{
				test_shape((QuantizerShape) {QUANTIZER_PQ, metric, d, bits, d, 3});
				test_shape((QuantizerShape) {QUANTIZER_PQ, metric, d, bits, (d + 2) / 3, 3});
			}
		}
	report("blocks of codes are estimated as their codes are, to the bit");
}
