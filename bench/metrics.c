/*
 * metrics.c
 *		Recall by metric on data whose rows differ in length: an engine alone,
 *		and the files and the count for bench/metrics, which asks pages and
 *		pgvector the same.
 *
 * metrics list                            names of the data sets, with
 * dimensions and operator class
 * metrics rows|queries|others NAME        a data set as text, for COPY; others:
 *                                         half as many rows again that are not
 *                                         in it
 * metrics count NAME                      reads "query id" lines, k of each
 * query together; prints recall@10 and @20 metrics engine [-e LIBRARY] [-t
 * THREADS] [-g] NAME ...    links and searches; -g: grown by 500 rows instead
 * of at once
 *
 * Random numbers are of integers and the same everywhere; what is computed from
 * them by libm may differ in its last bit.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program.h"
#include "engine/distance.h"

#define QUERIES		1000u
#define K_MAX		20u
#define DEGREE		32			/* m 16 */
#define EF_CONSTRUCTION 64
#define GROWN_START	2000u
#define GROWN_BATCH	500u

typedef enum Lengths
{
	LENGTHS_AS_DRAWN,
	LENGTHS_LOGNORMAL,			/* each row times e^N(0, spread) */
	LENGTHS_PARETO				/* each row times u^(-spread) */
} Lengths;

typedef enum Drawn
{
	DRAWN_UNIFORM,				/* elements from 0 to 1 */
	DRAWN_PRODUCT,				/* products of two of these */
	DRAWN_GAUSS,
	DRAWN_POSITIVE,				/* absolute values of Gaussian ones */
	DRAWN_CLUSTERED,			/* around 100 centres, in 12 directions of each */
	DRAWN_BITS,
	DRAWN_BIT_CLUSTERS			/* centres with a quarter of their bits drawn anew */
} Drawn;

typedef struct DataSet
{
	const char *name;
	Drawn		drawn;
	Lengths		lengths;
	double		spread;
	uint32_t	rows;
	uint32_t	dims;
	Metric		metric;
} DataSet;

static const DataSet sets[] = {
	{"ip-uniform-3", DRAWN_UNIFORM, LENGTHS_AS_DRAWN, 0, 10000, 3, METRIC_IP},
	{"ip-product-3", DRAWN_PRODUCT, LENGTHS_AS_DRAWN, 0, 10000, 3, METRIC_IP},
	{"ip-pareto-8", DRAWN_GAUSS, LENGTHS_PARETO, 0.5, 10000, 8, METRIC_IP},
	{"ip-positive-32", DRAWN_POSITIVE, LENGTHS_LOGNORMAL, 0.3, 10000, 32, METRIC_IP},
	{"ip-gauss-64", DRAWN_GAUSS, LENGTHS_AS_DRAWN, 0, 20000, 64, METRIC_IP},
	{"ip-lognormal-64", DRAWN_GAUSS, LENGTHS_LOGNORMAL, 0.5, 20000, 64, METRIC_IP},
	{"ip-clusters-128", DRAWN_CLUSTERED, LENGTHS_AS_DRAWN, 0, 10000, 128, METRIC_IP},
	{"ip-long-clusters-128", DRAWN_CLUSTERED, LENGTHS_LOGNORMAL, 0.5, 10000, 128, METRIC_IP},
	{"ip-clusters-768", DRAWN_CLUSTERED, LENGTHS_LOGNORMAL, 0.2, 5000, 768, METRIC_IP},
	{"ip-gauss-768", DRAWN_GAUSS, LENGTHS_LOGNORMAL, 0.3, 5000, 768, METRIC_IP},
	{"l2-uniform-3", DRAWN_UNIFORM, LENGTHS_AS_DRAWN, 0, 10000, 3, METRIC_L2},
	{"l2-gauss-64", DRAWN_GAUSS, LENGTHS_AS_DRAWN, 0, 10000, 64, METRIC_L2},
	{"l2-lognormal-64", DRAWN_GAUSS, LENGTHS_LOGNORMAL, 0.5, 10000, 64, METRIC_L2},
	{"l2-clusters-128", DRAWN_CLUSTERED, LENGTHS_AS_DRAWN, 0, 10000, 128, METRIC_L2},
	{"cosine-product-3", DRAWN_PRODUCT, LENGTHS_AS_DRAWN, 0, 10000, 3, METRIC_COSINE},
	{"cosine-gauss-64", DRAWN_GAUSS, LENGTHS_LOGNORMAL, 0.5, 10000, 64, METRIC_COSINE},
	{"cosine-clusters-128", DRAWN_CLUSTERED, LENGTHS_LOGNORMAL, 0.5, 10000, 128, METRIC_COSINE},
	{"l1-uniform-3", DRAWN_UNIFORM, LENGTHS_AS_DRAWN, 0, 10000, 3, METRIC_L1},
	{"l1-gauss-64", DRAWN_GAUSS, LENGTHS_AS_DRAWN, 0, 10000, 64, METRIC_L1},
	{"l1-clusters-128", DRAWN_CLUSTERED, LENGTHS_LOGNORMAL, 0.5, 10000, 128, METRIC_L1},
	{"hamming-bits-64", DRAWN_BITS, LENGTHS_AS_DRAWN, 0, 10000, 64, METRIC_HAMMING},
	{"hamming-clusters-256", DRAWN_BIT_CLUSTERS, LENGTHS_AS_DRAWN, 0, 10000, 256, METRIC_HAMMING},
	{"jaccard-bits-64", DRAWN_BITS, LENGTHS_AS_DRAWN, 0, 10000, 64, METRIC_JACCARD},
	{"jaccard-clusters-256", DRAWN_BIT_CLUSTERS, LENGTHS_AS_DRAWN, 0, 10000, 256, METRIC_JACCARD},
};

#define SETS (sizeof(sets) / sizeof(sets[0]))
#define CLUSTERS	100u
#define DIRECTIONS	12u

static const struct
{
	Metric		metric;
	const char *type;
	const char *class;
	const char *operator;
} classes[] = {
	{METRIC_L2, "vector", "vector_l2_ops", "<->"},
	{METRIC_IP, "vector", "vector_ip_ops", "<#>"},
	{METRIC_COSINE, "vector", "vector_cosine_ops", "<=>"},
	{METRIC_L1, "vector", "vector_l1_ops", "<+>"},
	{METRIC_HAMMING, "bit", "bit_hamming_ops", "<~>"},
	{METRIC_JACCARD, "bit", "bit_jaccard_ops", "<%>"},
};

static const uint32_t efs[] = {20, 40, 100};
static const EngineOps *ops;
static Engine *engine;
static MirrorId mirror;

/* A number from 0 to 1 that three others stand for; never 0. */
static double
noise(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t	z = ((a * 1000003 + b) * 1000003 + c) * UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return (double) (((z ^ (z >> 31)) & 0xFFFFFFFF) + 1) / 4294967297.0;
}

static double
gauss(uint64_t a, uint64_t b, uint64_t c)
{
	return sqrt(-2 * log(noise(a, b, c))) * cos(6.283185307179586 * noise(a, b, c + 500000));
}

/* What a row is multiplied by. */
static double
length_of(const DataSet *set, uint32_t row)
{
	if (set->lengths == LENGTHS_LOGNORMAL)
		return exp(set->spread * gauss(row, 900001, 1));
	return set->lengths == LENGTHS_PARETO ? pow(noise(row, 900001, 1), -set->spread) : 1;
}

/* Make a row of bits. */
static void
make_bits(const DataSet *set, uint32_t row, unsigned char *bits)
{
	uint32_t	centre = (uint32_t) (noise(row, 900000, 1) * CLUSTERS);

	for (uint32_t d = 0; d < set->dims; d++)
	{
		bool		own = set->drawn == DRAWN_BITS || noise(row, d, 2) < 0.25;
		bool		bit = (own ? noise(row, d, 1) : noise(centre + 1000000000, d, 1)) < 0.5;

		bits[d / 8] |= (unsigned char) (bit << (7 - d % 8));
	}
}

/* Make a row of floats. */
static void
make_floats(const DataSet *set, uint32_t row, float *elements)
{
	uint32_t	centre = (uint32_t) (noise(row, 900000, 1) * CLUSTERS) + 1000000000;
	double		length = length_of(set, row);

	for (uint32_t d = 0; d < set->dims; d++)
	{
		double		value = 0;

		switch (set->drawn)
		{
			case DRAWN_UNIFORM: value = noise(row, d, 1); break;
			case DRAWN_PRODUCT: value = noise(row, d, 1) * noise(row, d, 2); break;
			case DRAWN_GAUSS: value = gauss(row, d, 1); break;
			case DRAWN_POSITIVE: value = fabs(gauss(row, d, 1)); break;
			default:
				value = gauss(centre, d, 1) + 0.2 * gauss(row, d, 1);
				for (uint32_t i = 0; i < DIRECTIONS; i++)
					value += 0.3 * gauss(row, 800000 + i, 1) * (noise(centre, d, 3 + i) * 2 - 1);
		}
		elements[d] = (float) (value * length);
	}
}

static ElementType
set_type(const DataSet *set)
{
	return set->drawn == DRAWN_BITS || set->drawn == DRAWN_BIT_CLUSTERS ? ELEMENT_BIT
																		: ELEMENT_FLOAT;
}

static size_t
row_bytes(const DataSet *set)
{
	return engine_vector_bytes(set_type(set), set->dims);
}

/* Make the rows, the queries behind them, and the others behind these. */
static char *
make_set(const DataSet *set)
{
	size_t		bytes = row_bytes(set);
	uint32_t	count = set->rows + QUERIES + set->rows / 2;
	char	   *vectors = need(calloc(1, count * bytes));

	for (uint32_t i = 0; i < count; i++)
		if (set_type(set) == ELEMENT_BIT)
			make_bits(set, i, (unsigned char *) vectors + i * bytes);
		else
			make_floats(set, i, (float *) (vectors + i * bytes));
	return vectors;
}

static const DataSet *
find_set(const char *name)
{
	for (size_t i = 0; i < SETS; i++)
		if (strcmp(sets[i].name, name) == 0)
			return &sets[i];
	fprintf(stderr, "metrics: no data set is named %s\n", name);
	exit(2);
}

static void
list_sets(void)
{
	for (size_t i = 0; i < SETS; i++)
		for (size_t j = 0; j < sizeof(classes) / sizeof(classes[0]); j++)
			if (classes[j].metric == sets[i].metric)
				printf("%s %u %u %s %s %s\n", sets[i].name, sets[i].rows, sets[i].dims,
					   classes[j].type, classes[j].class, classes[j].operator);
}

/* Print rows from first on as COPY reads them, with ids from `id` on. */
static void
print_rows(const DataSet *set, uint32_t first, uint32_t count, uint32_t id)
{
	char	   *vectors = make_set(set);
	size_t		bytes = row_bytes(set);

	for (uint32_t i = 0; i < count; i++)
	{
		const void *vector = vectors + (first + i) * bytes;

		printf("%u\t", id + i);
		for (uint32_t d = 0; d < set->dims; d++)
			if (set_type(set) == ELEMENT_BIT)
				putchar('0' + (((const unsigned char *) vector)[d / 8] >> (7 - d % 8) & 1));
			else
				printf("%c%.9g", d == 0 ? '[' : ',', ((const float *) vector)[d]);
		printf(set_type(set) == ELEMENT_BIT ? "\n" : "]\n");
	}
	free(vectors);
}

/* Run a job to its end. */
static void
run_job(EngineJob job, const char *what)
{
	const struct timespec pause = {0, 1000000};
	EngineError error = {0};
	JobProgress progress;
	uint32_t	count;
	JobId		id;

	job.mirror = mirror;
	must(ops->job_submit(engine, &job, &id, &error), &error, what);
	do
	{
		nanosleep(&pause, NULL);
		must(ops->poll(engine, NULL, 0, &count, &error), &error, what);
		ops->job_poll(engine, id, &progress);
	} while (!progress.completed);
	must(progress.status, &progress.error, what);
	ops->job_release(engine, id);
}

/* Ask all queries; returns the distances measured for one. */
static double
ask(const DataSet *set, const char *vectors, SearchMethod method, uint32_t ef,
	SearchResult *results)
{
	static EngineQuery queries[QUERIES];
	static EngineQuery *all[QUERIES];
	EngineError error = {0};
	double		distances = 0;

	for (uint32_t i = 0; i < QUERIES; i++)
	{
		queries[i] = (EngineQuery){.mirror = mirror,
								   .method = method,
								   .k = K_MAX,
								   .ef = ef,
								   .vector = vectors + (size_t) (set->rows + i) * row_bytes(set),
								   .results = results + (size_t) i * K_MAX};
		all[i] = &queries[i];
	}
	must(ops->submit(engine, all, QUERIES, &error), &error, "submit");
	for (uint32_t left = QUERIES, count; left > 0; left -= count)
		must(ops->poll(engine, all, QUERIES, &count, &error), &error, "poll");
	for (uint32_t i = 0; i < QUERIES; i++)
		distances += queries[i].counters.distances;
	return distances / QUERIES;
}

/* Append rows. */
static void
append(const DataSet *set, const char *vectors, uint32_t first, uint32_t count)
{
	uint32_t   *versions = need(calloc(1, count * sizeof(uint32_t)));

	for (uint32_t i = 0; i < count; i++)
		versions[i] = 1;
	run_job((EngineJob){.kind = JOB_APPEND,
						.first_slot = first,
						.count = count,
						.versions = versions,
						.vectors = vectors + (size_t) first * row_bytes(set)},
			"append");
	free(versions);
}

static void
open_mirror(const DataSet *set)
{
	MirrorSpec	spec = {
		set->dims, set_type(set), set->metric,
		METHOD_GRAPH, DEGREE, set->rows, RESIDENCY_FULL, PLACEMENT_SINGLE, -1, {0}, 0, {0}
	};
	EngineError error = {0};

	must(ops->mirror_create(engine, &spec, &mirror, &error), &error, "mirror");
}

/*
 * Share of the first k of answers that are no farther than the k-th true one.
 */
static double
recall_at(const SearchResult *results, const SearchResult *truth, uint32_t k)
{
	uint32_t	hits = 0;

	for (uint32_t i = 0; i < QUERIES; i++)
		for (uint32_t m = 0; m < k; m++)
		{
			const SearchResult *result = &results[i * K_MAX + m];

			hits += result->slot != UINT32_MAX &&
					result->distance <= truth[i * K_MAX + k - 1].distance;
		}
	return (double) hits / QUERIES / k;
}

/* Link one data set and search it; a row of the table for each ef. */
static void
measure_engine(const DataSet *set, bool grown)
{
	char	   *vectors = make_set(set);
	SearchResult *truth = need(calloc(1, QUERIES * K_MAX * sizeof(SearchResult)));
	SearchResult *results = need(calloc(1, QUERIES * K_MAX * sizeof(SearchResult)));
	double		begun;

	open_mirror(set);
	begun = now();
	for (uint32_t first = 0, count; first < set->rows; first += count)
	{
		count = !grown ? set->rows : first == 0 ? GROWN_START : GROWN_BATCH;
		append(set, vectors, first, count);
		run_job((EngineJob) {.kind = JOB_LINK, .ef_construction = EF_CONSTRUCTION}, "link");
	}
	begun = now() - begun;
	(void) ask(set, vectors, METHOD_EXACT, 0, truth);
	for (size_t e = 0; e < sizeof(efs) / sizeof(efs[0]); e++)
	{
		double		start = now();
		double		distances = ask(set, vectors, METHOD_GRAPH, efs[e], results);
		double		seconds = now() - start;

		printf("%s %u %.4f %.4f %.0f %.0f %.1f\n", set->name, efs[e], recall_at(results, truth, 10),
			   recall_at(results, truth, K_MAX), distances, QUERIES / seconds, begun);
	}
	run_job((EngineJob) {.kind = JOB_DROP}, "drop");
	free(vectors);
	free(truth);
	free(results);
}

/*
 * Recall of answers that are read as lines: the number of the query, the row's
 * id.
 */
static void
count_answers(const DataSet *set)
{
	char	   *vectors = make_set(set);
	SearchResult *truth = need(calloc(1, QUERIES * K_MAX * sizeof(SearchResult)));
	SearchResult *results = need(calloc(1, QUERIES * K_MAX * sizeof(SearchResult)));
	uint32_t   *counts = need(calloc(1, QUERIES * sizeof(uint32_t)));
	const DistanceKernels *kernels = distance_kernels(set_type(set), set->metric, SIMD_BEST);
	size_t		bytes = engine_vector_bytes(set_type(set), set->dims);
	uint32_t	query,
				row;

	open_mirror(set);
	append(set, vectors, 0, set->rows);
	(void) ask(set, vectors, METHOD_EXACT, 0, truth);
	for (uint32_t i = 0; i < QUERIES * K_MAX; i++)
		results[i].distance = INFINITY;
	while (scanf("%u %u", &query, &row) == 2)
		if (query < QUERIES && row < set->rows && counts[query] < K_MAX)
			results[query * K_MAX + counts[query]++].distance = kernels->exact(
				vectors + (set->rows + query) * bytes, vectors + row * bytes, set->dims);
	printf("%.4f %.4f\n", recall_at(results, truth, 10), recall_at(results, truth, K_MAX));
	free(vectors);
	free(truth);
	free(results);
	free(counts);
}

/* Open the engine of a library, or the CPU engine. */
static void
open_engine(const char *library, int threads)
{
	EngineConfig config = {.device = -1, .threads = threads};
	EngineError error = {0};

	ops = engine_of(library);
	must(ops->open(&config, &engine, &error), &error, "open");
}

int
main(int argc, char **argv)
{
	const char *action = argc > 1 ? argv[1] : "";
	const char *library = NULL;
	bool		grown = false;
	int			threads = 1;
	int			option;

	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	optind = 2;
	while ((option = getopt(argc, argv, "e:t:g")) != -1)
		switch (option)
		{
			case 'e': library = optarg; break;
			case 't': threads = atoi(optarg); break;
			case 'g': grown = true; break;
			default: return 2;
		}
	if (strcmp(action, "list") == 0)
		list_sets();
	else if (optind >= argc)
	{
		fprintf(
			stderr,
			"usage: metrics list | metrics rows|queries|others|count|engine [-e LIBRARY] [-t THREADS] [-g] NAME ...\n");
		return 2;
	}
	else if (strcmp(action, "rows") == 0 || strcmp(action, "queries") == 0 ||
			 strcmp(action, "others") == 0)
	{
		const DataSet *set = find_set(argv[optind]);

		print_rows(set, action[0] == 'r' ? 0 : set->rows + (action[0] == 'o' ? QUERIES : 0),
				   action[0] == 'r'	  ? set->rows
				   : action[0] == 'q' ? QUERIES
									  : set->rows / 2,
				   action[0] == 'o' ? set->rows : 0);
	}
	else
	{
		open_engine(library, threads);
		for (; optind < argc; optind++)
		{
			if (strcmp(action, "count") == 0)
				count_answers(find_set(argv[optind]));
			else
				measure_engine(find_set(argv[optind]), grown);
			fflush(stdout);
		}
		ops->close(engine);
	}
	return 0;
}
