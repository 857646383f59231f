/*
 * codes_test_recall.c
 *		How many of the nearest rows are among the nearest by estimate, by kind
 *		and bits.
 */
#include "codes_test.h"

#define RECALL_ROWS		1900
#define RECALL_DIMS		96
#define RECALL_QUERIES	40
#define RECALL_K		10
#define RECALL_LISTS	20

static float recall_rows[RECALL_ROWS * RECALL_DIMS];
static float recall_queries[RECALL_QUERIES * RECALL_DIMS];

/* How many distances are less than one: the rank of a row. */
static uint32_t
rank_of(const double *distances, double distance)
{
	uint32_t	rank = 0;

	for (uint32_t row = 0; row < RECALL_ROWS; row++)
		rank += distances[row] < distance;
	return rank;
}

/* Rows by list, the lists' centroids, and where each begins. */
static float recall_centroids[RECALL_LISTS * RECALL_DIMS];
static uint32_t recall_first[RECALL_LISTS + 1];
static float recall_residuals[RECALL_ROWS * RECALL_DIMS];

/* Make clustered rows, sorted by list, and queries near some of them. */
static void
make_recall(void)
{
	float	   *rows = need(sizeof(recall_rows));
	uint32_t   *list = need(RECALL_ROWS * sizeof(uint32_t));
	void	   *memory = need(centroids_bytes(RECALL_LISTS, RECALL_DIMS));
	KmeansTask	task = {.rows = rows, .stride = RECALL_DIMS, .count = RECALL_ROWS,
						.dims = RECALL_DIMS, .lists = RECALL_LISTS, .rounds = 10, .seed = 1};
	uint32_t	at = 0;
	Centroids	set;

	make_clusters(rows, RECALL_ROWS, RECALL_DIMS, 20, 0.5);
	CHECK(kmeans_run(&task, recall_centroids) == ENGINE_OK);
	centroids_init(&set, recall_centroids, RECALL_LISTS, RECALL_DIMS, memory);
	centroids_nearest(&set, rows, RECALL_DIMS, RECALL_ROWS, list, NULL);
	for (uint32_t l = 0; l < RECALL_LISTS; l++)
	{
		recall_first[l] = at;
		for (uint32_t row = 0; row < RECALL_ROWS; row++)
		{
			if (list[row] != l)
				continue;
			for (uint32_t i = 0; i < RECALL_DIMS; i++)
			{
				float		x = rows[row * RECALL_DIMS + i];

				recall_rows[at * RECALL_DIMS + i] = x;
				recall_residuals[at * RECALL_DIMS + i] =
					x - recall_centroids[l * RECALL_DIMS + i];
			}
			at++;
		}
	}
	recall_first[RECALL_LISTS] = at;
	for (uint32_t i = 0; i < RECALL_QUERIES; i++)
		for (uint32_t j = 0; j < RECALL_DIMS; j++)
			recall_queries[i * RECALL_DIMS + j] =
				rows[i * 47 * RECALL_DIMS + j] + (float) (normal() * 0.3);
	free(rows);
	free(list);
	free(memory);
}

/* The share of the ten nearest rows among the ten nearest by estimate. */
static double
recall_of(QuantizerShape shape)
{
	static double exact[RECALL_ROWS];
	static double guessed[RECALL_ROWS];
	static float estimates[RECALL_ROWS];
	size_t		code_bytes = quantizer_code_bytes(&shape);
	void	   *codebook = need(quantizer_codebook_bytes(&shape));
	unsigned char *codes = need(RECALL_ROWS * code_bytes);
	void	   *tables = need(quantizer_table_bytes(&shape));
	Quantizer  *quantizer;
	uint32_t	found = 0;

	CHECK(quantizer_train(&shape, recall_residuals, RECALL_ROWS, NULL, codebook) == ENGINE_OK);
	quantizer = quantizer_open(&shape, codebook);
	for (uint32_t list = 0; list < RECALL_LISTS; list++)
		quantizer_encode(quantizer, recall_centroids + list * RECALL_DIMS,
						 recall_rows + recall_first[list] * RECALL_DIMS,
						 recall_first[list + 1] - recall_first[list],
						 codes + recall_first[list] * code_bytes);
	for (uint32_t query = 0; query < RECALL_QUERIES; query++)
	{
		const float *q = recall_queries + query * RECALL_DIMS;

		quantizer_prepare(quantizer, q, tables);
		for (uint32_t list = 0; list < RECALL_LISTS; list++)
			quantizer_estimate(quantizer, tables,
							   (float) distance_of(shape.metric, q,
												   recall_centroids + list * RECALL_DIMS,
												   RECALL_DIMS),
							   codes + recall_first[list] * code_bytes,
							   recall_first[list + 1] - recall_first[list],
							   estimates + recall_first[list], NULL);
		for (uint32_t row = 0; row < RECALL_ROWS; row++)
		{
			exact[row] =
				distance_of(shape.metric, q, recall_rows + row * RECALL_DIMS, RECALL_DIMS);
			guessed[row] = estimates[row];
		}
		for (uint32_t row = 0; row < RECALL_ROWS; row++)
			if (rank_of(exact, exact[row]) < RECALL_K && rank_of(guessed, guessed[row]) < RECALL_K)
				found++;
	}
	quantizer_close(quantizer);
	free(codebook);
	free(codes);
	free(tables);
	return found / (double) (RECALL_QUERIES * RECALL_K);
}

void
test_recall(void)
{
	make_recall();
	for (int metric = METRIC_L2; metric <= METRIC_IP; metric++)
	{
		double		before = 0;

		for (uint32_t bits = 1; bits <= 8; bits++)
		{
			double		recall = recall_of((QuantizerShape) {QUANTIZER_RABITQ, (Metric) metric,
															 RECALL_DIMS, bits, 0, 1});

			printf("# rabitq, %u bits, metric %d: %.3f\n", bits, metric, recall);
			if (recall < before - 0.02 || (bits == 8 && recall < 0.98) ||
				(bits == 1 && recall < 0.3))
				case_fails("rabitq, %u bits: %.3f after %.3f", bits, recall, before);
			before = recall;
		}
		before =
			recall_of((QuantizerShape) {QUANTIZER_INT8, (Metric) metric, RECALL_DIMS, 8, 0, 1});
		printf("# int8, metric %d: %.3f\n", metric, before);
		CHECK(before > 0.97);
	}
	for (uint32_t bits = 4; bits <= 8; bits += 4)
	{
		double		before = 0;

		for (uint32_t parts = 12; parts <= 48 * 8 / bits; parts *= 2)
		{
			double		recall = recall_of((QuantizerShape) {QUANTIZER_PQ, METRIC_L2, RECALL_DIMS,
															 bits, parts, 1});

			printf("# pq, %u bits, %u parts: %.3f\n", bits, parts, recall);
			if (recall < before)
				case_fails("pq, %u bits, %u parts: %.3f after %.3f", bits, parts, recall, before);
			before = recall;
		}
		CHECK(before > 0.8);
	}
	report("more bits find more of the nearest rows, eight find nearly all");
}
