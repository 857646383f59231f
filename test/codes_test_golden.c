/*
 * codes_test_golden.c
 *		Codes, their numbers and estimates of small examples, by hand.
 */
#include "codes_test.h"
#include "decode.h"

/* A codebook written by hand: two sub-spaces of 2 and 1 dimensions. */
static void
test_pq_golden(void)
{
	QuantizerShape shape = {QUANTIZER_PQ, METRIC_L2, 3, 4, 2, 0};
	static float codebook[16 * 3];
	static const float centroid[] = {10, 20, 30};
	static const float row[] = {12.9f, 24.2f, 25};
	static const float query[] = {13, 23, 31};
	unsigned char code[12];
	float		numbers[2];
	char		tables[64] __attribute__((aligned(4)));
	float		estimate,
				lower,
				decoded[3];
	Quantizer  *quantizer;

	CHECK(quantizer_code_bytes(&shape) == sizeof(code));
	CHECK(quantizer_codebook_bytes(&shape) == sizeof(codebook));
	CHECK(quantizer_table_bytes(&shape) <= sizeof(tables));
	for (int i = 0; i < 16; i++)
	{
		codebook[2 * i] = (float) (i % 4);	/* words (i % 4, 2 (i / 4)) */
		codebook[2 * i + 1] = (float) (2 * (i / 4));
		codebook[32 + i] = (float) (i - 8);
	}
	quantizer = quantizer_open(&shape, codebook);
	quantizer_encode(quantizer, centroid, row, 1, code);

	/* the residual is (2.9, 4.2, -5): words (3, 4), which is 11, and -5: 3 */
	CHECK(code[0] == (3 << 4 | 11));
	decode_code(quantizer, code, decoded);
	CHECK(decoded[0] == 3 && decoded[1] == 4 && decoded[2] == -5);

	/* |d|^2 = 50, 2<c,d> = 60 + 160 - 300; |x - c - d|^2 = .01 + .04 */
	memcpy(numbers, code + 4, sizeof(numbers));
	CHECK(numbers[0] == -30);
	CHECK(numbers[1] >= sqrt(0.05) * 0.99999 && numbers[1] < sqrt(0.05) * 1.0001);

	/*
	 * |q - c|^2 = 9 + 9 + 1; |q - c - d|^2 = 0 + 1 + 36. Products reach from 0
	 * to -6 13 - 12 23 = -354 and from -14 31 to 16 31, 930 apart: steps of
	 * 930 / 255 = 3.65, half of which may be wrong twice.
	 */
	quantizer_prepare(quantizer, query, tables);
	quantizer_estimate(quantizer, tables, 19, code, 1, &estimate, &lower);
	CHECK(fabs(estimate - 37) <= 3.65);
	CHECK(lower <= square_of(query, row, 3));
	quantizer_close(quantizer);
	report("a pq code, its numbers and estimate, by hand");
}

/*
 * Of two dimensions one rotation leaves (3, 4) at sizes 7 / sqrt 2 and 1 / sqrt
 * 2, two at 3 and 4.
 */
static void
test_scalar_golden(void)
{
	static const float row[] = {3, 4};
	unsigned char code[16];
	char		tables[512] __attribute__((aligned(4)));
	float		numbers[3];
	float		estimate,
				lower,
				decoded[2];

	for (uint32_t bits = 1; bits <= 9; bits++)
	{
		bool		int8 = bits == 9;
		QuantizerShape shape = {int8 ? QUANTIZER_INT8 : QUANTIZER_RABITQ, METRIC_L2, 2,
								int8 ? 8 : bits, 0, 7};
		Quantizer  *quantizer = quantizer_open(&shape, NULL);
		unsigned char *bytes = need(quantizer_code_bytes(&shape));

		CHECK(quantizer_code_bytes(&shape) == (int8 ? 1 : bits) * 4 + 12);
		CHECK(quantizer_table_bytes(&shape) <= sizeof(tables));
		quantizer_encode(quantizer, NULL, row, 1, bytes);
		memcpy(code, bytes, 4);
		memcpy(numbers, bytes + quantizer_code_bytes(&shape) - 12, sizeof(numbers));
		decode_code(quantizer, bytes, decoded);
		quantizer_prepare(quantizer, row, tables);
		quantizer_estimate(quantizer, tables, 25, bytes, 1, &estimate, &lower);
		if (int8)
		{
			CHECK(abs((int8_t) code[0]) + abs((int8_t) code[1]) == 127 + 18);	/* 127 / 7 = 18.1 */
			CHECK(fabs(numbers[2] - 7 / sqrt(2) / 127) < 1e-6);
			CHECK(fabs(decoded[0] - 3) < 0.02 && fabs(decoded[1] - 4) < 0.02);
		}
		else
			CHECK(fabs(numbers[0] - 25) < 1e-5);	/* |r|^2 */
		if (bits == 1)
		{
			/* w = (+-1, +-1): f = 25 / 7, error = sqrt(2 f^2 - 25) = 5 / 7 */
			CHECK(fabs(numbers[2] - 25.0 / 7) < 1e-5);
			CHECK(fabs(numbers[1] - 5.0 / 7) < 1e-5);
		}
		CHECK(fabs(estimate) < 0.01);	/* the query is the row */
		CHECK(lower == 0);
		free(bytes);
		quantizer_close(quantizer);
	}
	report("int8 and rabitq codes of two dimensions, their numbers and estimates, by hand");
}

void
test_golden(void)
{
	test_pq_golden();
	test_scalar_golden();
}
