/*
 * codes_test.c
 *		Quantizers and k-means: codes decode to what estimates measure, lower
 *		bounds are below, more bits find more, and the same rows give the same
 *		bytes.
 *
 * Distances that estimates are compared with are computed here, in double and
 * from the definition. Rows are clustered; worlds also have rows far from the
 * origin, of very different lengths, with few large elements, and equal ones.
 */
#include "codes_test.h"
#include "engine/quantizer/sums.h"

/* About normal. */
double
normal(void)
{
	double		sum = -6;

	for (int i = 0; i < 12; i++)
		sum += random_fraction(&random_state);
	return sum;
}

double
square_of(const float *a, const float *b, uint32_t dims)
{
	double		sum = 0;

	for (uint32_t i = 0; i < dims; i++)
		sum += ((double) a[i] - b[i]) * ((double) a[i] - b[i]);
	return sum;
}

double
product_of(const float *a, const float *b, uint32_t dims)
{
	double		sum = 0;

	for (uint32_t i = 0; i < dims; i++)
		sum += (double) a[i] * b[i];
	return sum;
}

/* What estimates stand for. */
double
distance_of(Metric metric, const float *a, const float *b, uint32_t dims)
{
	return metric == METRIC_L2 ? square_of(a, b, dims) : -product_of(a, b, dims);
}

/* Rows in clusters, whose sizes differ by far. */
void
make_clusters(float *rows, uint32_t count, uint32_t dims, uint32_t clusters, double width)
{
	float	   *centres = need((size_t) clusters * dims * sizeof(float));

	for (size_t i = 0; i < (size_t) clusters * dims; i++)
		centres[i] = (float) normal();
	for (uint32_t row = 0; row < count; row++)
	{
		double		skewed = random_fraction(&random_state);
		uint32_t	cluster = (uint32_t) (skewed * skewed * clusters);

		for (uint32_t i = 0; i < dims; i++)
			rows[(size_t) row * dims + i] =
				centres[(size_t) cluster * dims + i] + (float) (normal() * width);
	}
	free(centres);
}

/* ---- integer sums ---- */

static void
test_sums(void)
{
	static int16_t query[4096];
	static uint32_t code[8 * 128];

	for (size_t i = 0; i < sizeof(code) / sizeof(code[0]); i++)
		code[i] = (uint32_t) random_next(&random_state);
	for (uint32_t dims = 1; dims <= 4096; dims += 1 + dims / 7)
		for (uint32_t bits = 1; bits <= 8; bits++)
		{
			uint32_t	words = (dims + 31) / 32;
			int32_t		bytes = sum_kernels(SIMD_PORTABLE)->bytes(query, (int8_t *) code, dims);
			int32_t		planes;

			memset(query, 0, sizeof(query));
			for (uint32_t i = 0; i < dims; i++)
				query[i] = (int16_t) (random_below(&random_state, 4001) - 2000);
			bytes = sum_kernels(SIMD_PORTABLE)->bytes(query, (int8_t *) code, dims);
			planes = sum_kernels(SIMD_PORTABLE)->planes(query, code, words, bits);
			for (SimdLevel level = SIMD_AVX2; level <= SIMD_AVX512; level++)
			{
				CHECK(sum_kernels(level)->bytes(query, (int8_t *) code, dims) == bytes);
				CHECK(sum_kernels(level)->planes(query, code, words, bits) == planes);
			}
		}
	report("integer sums are equal at every level");
}

static void
test_shapes(void)
{
	static const QuantizerShape wrong[] = {
		{QUANTIZER_INT8, METRIC_L2, 0, 8, 0, 0},	{QUANTIZER_INT8, METRIC_L2, 4097, 8, 0, 0},
		{QUANTIZER_INT8, METRIC_L1, 8, 8, 0, 0},	{QUANTIZER_INT8, METRIC_L2, 8, 4, 0, 0},
		{QUANTIZER_RABITQ, METRIC_L2, 8, 0, 0, 0},	{QUANTIZER_RABITQ, METRIC_L2, 8, 9, 0, 0},
		{QUANTIZER_PQ, METRIC_L2, 8, 5, 2, 0},		{QUANTIZER_PQ, METRIC_L2, 8, 8, 0, 0},
		{QUANTIZER_PQ, METRIC_L2, 8, 8, 9, 0},		{QUANTIZER_PQ, METRIC_HAMMING, 8, 8, 2, 0},
		{(QuantizerKind) 4, METRIC_L2, 8, 8, 0, 0},
	};
	static const QuantizerShape right[] = {
		{QUANTIZER_INT8, METRIC_L2, 1, 8, 0, 0},	 {QUANTIZER_INT8, METRIC_IP, 4096, 8, 0, 0},
		{QUANTIZER_RABITQ, METRIC_L2, 768, 1, 0, 0}, {QUANTIZER_RABITQ, METRIC_L2, 100, 8, 0, 0},
		{QUANTIZER_PQ, METRIC_COSINE, 8, 8, 8, 0},	 {QUANTIZER_PQ, METRIC_L2, 100, 4, 33, 0},
	};
	static const size_t bytes[] = {4 + 12, 4096 + 12, 96 + 12, 8 * 16 + 12, 8 + 8, 20 + 8};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(!quantizer_shape_valid(&wrong[i]));
	for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++)
	{
		CHECK(quantizer_shape_valid(&right[i]));
		CHECK(quantizer_code_bytes(&right[i]) == bytes[i]);
	}
	report("shapes that there are, and those that there are not");
}

/* Under the thread sanitizer only what threads share is of interest. */
#ifdef __SANITIZE_THREAD__
#define SEVERAL_THREADS_ONLY	true
#else
#define SEVERAL_THREADS_ONLY	false
#endif

int
main(void)
{
	promises_of = "codes";
	test_kmeans_threads();
	if (!SEVERAL_THREADS_ONLY)
	{
		test_shapes();
		test_sums();
		test_kmeans();
		test_blocks();
		test_golden();
		test_cooc();
		test_estimates();
		test_recall();
	}
	return promises_end();
}
