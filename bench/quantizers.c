/*
 * quantizers.c
 *		What quantizers cost and find: k-means, rows encoded and estimated a
 *		second, recall by kind and bits. One thread.
 *
 *	quantizers --base base.f32 --query query.f32 -n ROWS -d DIMS [-q QUERIES]
 *		[--lists N] [--sample N] [--rounds N] [--metric l2|ip]
 *
 * Rows are assigned to lists and encoded by their residuals; then all of them
 * are estimated for every query. Columns: bytes of a code; seconds of training;
 * thousands of rows encoded, and millions estimated, a second, one by one and
 * in blocks; which share of the 10 nearest rows is among the 10 and the 100
 * nearest by estimate; the mean error of estimates over the distance, of the
 * 100; the share of lower bounds above their distances; and the share of all
 * rows whose lower bound is not above the distance of the tenth nearest, which
 * would be re-ranked.
 */
#include <math.h>
#include <string.h>

#include "program.h"
#include "engine/distance.h"
#include "engine/quantizer/blocks.h"
#include "engine/quantizer/nearest.h"
#include "engine/quantizer/quantizer.h"

#define NEAREST		10
#define SHORTLIST	100

typedef struct Near
{
	double		distance;
	uint32_t	row;
} Near;

static const char *base_path;
static const char *query_path;
static uint32_t rows;
static uint32_t dims;
static uint32_t queries = 100;
static uint32_t lists = 1000;
static uint32_t sample;
static uint32_t rounds = 10;
static Metric metric = METRIC_L2;

static float *base;				/* sorted by list */
static float *query;
static float *centroids;
static uint32_t *first;			/* of each list, and behind the last */
static Near *truth;				/* queries x NEAREST */
static double *exact;			/* queries x rows */

/* Of this thread on a processor: the machine may do other work too. */
static double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

static float *
read_vectors(const char *path, uint32_t count)
{
	FILE	   *file = fopen(path, "rb");
	float	   *vectors = need(aligned_alloc(64, ((size_t) count * dims * 4 + 63) / 64 * 64));

	if (file == NULL || fread(vectors, (size_t) dims * 4, count, file) != count)
	{
		fprintf(stderr, "%s: has no %u vectors of %u elements\n", path, count, dims);
		exit(1);
	}
	fclose(file);
	return vectors;
}

static int
compare_near(const void *a, const void *b)
{
	const Near *left = a;
	const Near *right = b;

	if (left->distance != right->distance)
		return left->distance < right->distance ? -1 : 1;
	return left->row < right->row ? -1 : left->row > right->row;
}

/* Keep the nearest of all rows, in order. */
static void
keep_nearest(Near *near, uint32_t most, uint32_t *count, Near new)
{
	uint32_t	at = *count;

	if (at == most && compare_near(&new, &near[most - 1]) >= 0)
		return;
	at = at == most ? most - 1 : (*count)++;
	for (; at > 0 && compare_near(&new, &near[at - 1]) < 0; at--)
		near[at] = near[at - 1];
	near[at] = new;
}

/* Find lists and sort rows by them. */
static void
make_lists(void)
{
	double		inertia[100];
	KmeansTask	task = {.rows = base, .stride = dims, .count = sample, .dims = dims,
						.lists = lists, .rounds = rounds, .seed = 1, .inertia = inertia};
	float	   *sorted = need(malloc((size_t) rows * dims * sizeof(float)));
	uint32_t   *list = need(malloc(rows * sizeof(uint32_t)));
	uint32_t	at = 0;
	Centroids	set;
	double		start;
	size_t		undecided;

	centroids = need(malloc((size_t) lists * dims * sizeof(float)));
	first = need(calloc(lists + 1, sizeof(uint32_t)));
	task.rounds = 0;
	start = seconds();
	if (kmeans_run(&task, centroids) != ENGINE_OK)
		exit(1);
	printf("seeds: %.2f s\n", seconds() - start);
	task.rounds = rounds;
	start = seconds();
	if (kmeans_run(&task, centroids) != ENGINE_OK)
		exit(1);
	start = seconds() - start;
	printf("k-means: %u of %u rows, %u dimensions, %u lists, %u rounds: %.2f s, %.1f GFlop/s, "
		   "%.0f MB; inertia a row %.4f, then %.4f\n", sample, rows, dims, lists, rounds, start,
		   2e-9 * sample * lists * dims * rounds / start, kmeans_bytes(&task) / 1e6,
		   inertia[0] / sample, inertia[rounds - 1] / sample);
	centroids_init(&set, centroids, lists, dims,
				   need(aligned_alloc(64, (centroids_bytes(lists, dims) + 63) / 64 * 64)));
	start = seconds();
	undecided = centroids_nearest(&set, base, dims, rows, list, NULL);
	start = seconds() - start;
	printf("assignment: %.0f thousand rows/s, %.1f GFlop/s; exact distances decided for %.5f\n",
		   rows / start / 1e3, 2e-9 * rows * lists * dims / start, (double) undecided / rows);
	for (uint32_t l = 0; l < lists; l++)
	{
		first[l] = at;
		for (uint32_t row = 0; row < rows; row++)
			if (list[row] == l)
				memcpy(sorted + (size_t) at++ * dims, base + (size_t) row * dims,
					   dims * sizeof(float));
	}
	first[lists] = at;
	free(base);
	free(list);
	free(set.tiles);
	base = sorted;
}

static void
find_truth(void)
{
	const DistanceKernels *kernels = distance_kernels(ELEMENT_FLOAT, metric, SIMD_BEST);

	exact = need(malloc((size_t) queries * rows * sizeof(double)));
	truth = need(malloc((size_t) queries * NEAREST * sizeof(Near)));
	for (uint32_t q = 0; q < queries; q++)
	{
		uint32_t	count = 0;

		for (uint32_t row = 0; row < rows; row++)
		{
			double		distance = kernels->exact(query + (size_t) q * dims,
												  base + (size_t) row * dims, dims);

			exact[(size_t) q * rows + row] = distance;
			keep_nearest(truth + q * NEAREST, NEAREST, &count, (Near) {distance, row});
		}
	}
}

/* What is counted over all queries. */
typedef struct Found
{
	double		seconds;		/* of estimates */
	double		block_seconds;	/* of the same in blocks */
	double		error;
	uint64_t	ten;
	uint64_t	hundred;
	uint64_t	above;
	uint64_t	left;			/* to re-rank */
} Found;

static void
count_query(uint32_t q, const float *estimates, const float *lower, Found *found)
{
	const double *distances = exact + (size_t) q * rows;
	const Near *nearest = truth + q * NEAREST;
	Near		shortlist[SHORTLIST];
	uint32_t	count = 0;

	for (uint32_t row = 0; row < rows; row++)
	{
		found->above += !(lower[row] <= distances[row]);
		found->left += lower[row] <= nearest[NEAREST - 1].distance;
		keep_nearest(shortlist, SHORTLIST, &count, (Near) {estimates[row], row});
	}
	for (uint32_t i = 0; i < count; i++)
	{
		double		distance = distances[shortlist[i].row];

		found->error += fabs(shortlist[i].distance - distance) / fabs(distance) / count;
		for (int j = 0; j < NEAREST; j++)
		{
			found->hundred += nearest[j].row == shortlist[i].row;
			found->ten += i < NEAREST && nearest[j].row == shortlist[i].row;
		}
	}
}

/* Put codes into blocks, list after list; returns where each list begins. */
static size_t *
make_blocks(const Quantizer *quantizer, const QuantizerShape *shape, const unsigned char *codes,
			char **blocks)
{
	size_t	   *begins = need(calloc(lists + 1, sizeof(size_t)));
	size_t		bytes = block_bytes(shape);

	for (uint32_t l = 0; l < lists; l++)
		begins[l + 1] = begins[l] +
			(first[l + 1] - first[l] + QUANTIZER_BLOCK - 1) / QUANTIZER_BLOCK * bytes;
	*blocks = need(aligned_alloc(64, begins[lists] + 64));
	memset(*blocks, 0, begins[lists]);
	for (uint32_t l = 0; l < lists; l++)
		for (uint32_t row = first[l]; row < first[l + 1]; row++)
			block_set(quantizer, *blocks + begins[l] + (row - first[l]) / QUANTIZER_BLOCK * bytes,
					  (row - first[l]) % QUANTIZER_BLOCK,
					  codes + (size_t) row * quantizer_code_bytes(shape));
	return begins;
}

/* Seconds that all queries take in blocks. */
static double
ask_blocks(const Quantizer *quantizer, const QuantizerShape *shape, const unsigned char *codes)
{
	const DistanceKernels *kernels = distance_kernels(ELEMENT_FLOAT, metric, SIMD_BEST);
	void	   *tables = need(aligned_alloc(64, (quantizer_table_bytes(shape) + 63) / 64 * 64));
	float		estimates[QUANTIZER_BLOCK] __attribute__((aligned(64)));
	float		lower[QUANTIZER_BLOCK] __attribute__((aligned(64)));
	char	   *blocks;
	size_t	   *begins = make_blocks(quantizer, shape, codes, &blocks);
	double		taken = 0;

	for (uint32_t q = 0; q < queries; q++)
	{
		const float *vector = query + (size_t) q * dims;
		double		start;

		quantizer_prepare(quantizer, vector, tables);
		start = seconds();
		for (uint32_t l = 0; l < lists; l++)
		{
			float		base_of_list = (float) kernels->exact(vector, centroids + (size_t) l * dims,
															  dims);

			for (size_t at = begins[l]; at < begins[l + 1]; at += block_bytes(shape))
				block_estimate(quantizer, tables, base_of_list, blocks + at, estimates, lower);
		}
		taken += seconds() - start;
	}
	free(tables);
	free(blocks);
	free(begins);
	return taken;
}

/* Estimate all rows for all queries. */
static Found
ask(const Quantizer *quantizer, const QuantizerShape *shape, const unsigned char *codes)
{
	const DistanceKernels *kernels = distance_kernels(ELEMENT_FLOAT, metric, SIMD_BEST);
	float	   *estimates = need(malloc(rows * sizeof(float)));
	float	   *lower = need(malloc(rows * sizeof(float)));
	void	   *tables = need(malloc(quantizer_table_bytes(shape)));
	Found		found = {0};

	for (uint32_t q = 0; q < queries; q++)
	{
		const float *vector = query + (size_t) q * dims;
		double		start;

		quantizer_prepare(quantizer, vector, tables);
		start = seconds();
		for (uint32_t l = 0; l < lists; l++)
			quantizer_estimate(quantizer, tables,
							   (float) kernels->exact(vector, centroids + (size_t) l * dims, dims),
							   codes + first[l] * quantizer_code_bytes(shape),
							   first[l + 1] - first[l], estimates + first[l], lower + first[l]);
		found.seconds += seconds() - start;
		count_query(q, estimates, lower, &found);
	}
	free(estimates);
	free(lower);
	free(tables);
	return found;
}

/* Residuals of evenly spread rows, as many as the sample has. */
static float *
make_residuals(uint32_t count)
{
	float	   *residuals = need(malloc((size_t) count * dims * sizeof(float)));
	uint32_t	list = 0;

	for (uint32_t i = 0; i < count; i++)
	{
		uint32_t	row = (uint32_t) ((uint64_t) i * rows / count);

		while (row >= first[list + 1])
			list++;
		for (uint32_t d = 0; d < dims; d++)
			residuals[(size_t) i * dims + d] =
				base[(size_t) row * dims + d] - centroids[(size_t) list * dims + d];
	}
	return residuals;
}

static void
measure(QuantizerShape shape)
{
	static const char *const names[] = {"", "int8", "rabitq", "pq"};
	uint32_t	count = rows < 65536 ? rows : 65536;
	float	   *residuals = make_residuals(count);
	void	   *codebook = need(malloc(quantizer_codebook_bytes(&shape) + 1));
	unsigned char *codes = need(malloc(rows * quantizer_code_bytes(&shape)));
	double		training = seconds();
	double		encoding;
	double		asked = (double) queries * rows;
	Quantizer  *quantizer;
	Found		found;

	if (quantizer_train(&shape, residuals, count, NULL, codebook) != ENGINE_OK)
		exit(1);
	training = seconds() - training;
	quantizer = need(quantizer_open(&shape, codebook));
	encoding = seconds();
	for (uint32_t l = 0; l < lists; l++)
		quantizer_encode(quantizer, centroids + (size_t) l * dims, base + (size_t) first[l] * dims,
						 first[l + 1] - first[l], codes + first[l] * quantizer_code_bytes(&shape));
	encoding = seconds() - encoding;
	found = ask(quantizer, &shape, codes);
	found.block_seconds = ask_blocks(quantizer, &shape, codes);
	printf("%-6s %4u %5u %6zu %9.2f %9.0f %9.1f %9.1f %8.3f %8.3f %9.5f %9.5f %9.5f\n",
		   names[shape.kind], shape.bits, shape.parts, quantizer_code_bytes(&shape), training,
		   rows / encoding / 1e3, asked / found.seconds / 1e6, asked / found.block_seconds / 1e6,
		   (double) found.ten / queries / NEAREST, (double) found.hundred / queries / NEAREST,
		   found.error / queries, found.above / asked, found.left / asked);
	fflush(stdout);
	quantizer_close(quantizer);
	free(residuals);
	free(codebook);
	free(codes);
}

static void
read_arguments(int argc, char **argv)
{
	for (int i = 1; i + 1 < argc; i += 2)
	{
		const char *value = argv[i + 1];

		if (strcmp(argv[i], "--base") == 0)
			base_path = value;
		else if (strcmp(argv[i], "--query") == 0)
			query_path = value;
		else if (strcmp(argv[i], "-n") == 0)
			rows = (uint32_t) atoi(value);
		else if (strcmp(argv[i], "-d") == 0)
			dims = (uint32_t) atoi(value);
		else if (strcmp(argv[i], "-q") == 0)
			queries = (uint32_t) atoi(value);
		else if (strcmp(argv[i], "--lists") == 0)
			lists = (uint32_t) atoi(value);
		else if (strcmp(argv[i], "--sample") == 0)
			sample = (uint32_t) atoi(value);
		else if (strcmp(argv[i], "--rounds") == 0)
			rounds = (uint32_t) atoi(value);
		else if (strcmp(argv[i], "--metric") == 0)
			metric = strcmp(value, "ip") == 0 ? METRIC_IP : METRIC_L2;
	}
	if (base_path == NULL || query_path == NULL || rows == 0 || dims == 0 || rounds < 1 ||
		rounds > 100)
	{
		fprintf(stderr, "usage: quantizers --base FILE --query FILE -n ROWS -d DIMS [-q QUERIES] "
				"[--lists N] [--sample N] [--rounds N] [--metric l2|ip]\n");
		exit(2);
	}
	sample = sample == 0 || sample > rows ? rows : sample;
}

int
main(int argc, char **argv)
{
	static const uint32_t dims_of_part[] = {16, 8, 4, 2};

	read_arguments(argc, argv);
	base = read_vectors(base_path, rows);
	query = read_vectors(query_path, queries);
	make_lists();
	find_truth();
	printf("%-6s %4s %5s %6s %9s %9s %9s %9s %8s %8s %9s %9s %9s\n", "kind", "bits", "parts", "bytes",
		   "train s", "enc k/s", "est M/s", "block M/s", "R@10", "10of100", "error", "above", "re-rank");
	for (uint32_t bits = 1; bits <= 8; bits++)
		measure((QuantizerShape) {QUANTIZER_RABITQ, metric, dims, bits, 0, 1});
	measure((QuantizerShape) {QUANTIZER_INT8, metric, dims, 8, 0, 1});
	for (uint32_t bits = 4; bits <= 8; bits += 4)
		for (size_t i = 0; i < sizeof(dims_of_part) / sizeof(dims_of_part[0]); i++)
			if (dims / dims_of_part[i] > 0)
				measure((QuantizerShape) {QUANTIZER_PQ, metric, dims, bits, dims / dims_of_part[i],
										  1});
	return 0;
}
