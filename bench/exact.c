/*
 * exact.c
 *		How fast an engine's exact search is, host to host: a plain program over
 *		engine.h.
 *
 * exact [--way scan|fused|tiles] [--borders QUERIES,ROWS] LIBRARY ROWS
 * DIMS [TYPE [METRIC [K [QUERIES [FROM [DEVICE_MB HOST_MB]]]]]]: makes
 * clustered vectors, appends them, then for each number of queries at once,
 * FROM to QUERIES: 10 warm-ups, at least 10 runs, median and spread from
 * submit until poll has returned the last answer, the share of the bandwidth
 * that reading every row once per call stands for, and a sum of the answers,
 * which is the same whatever the engine and the way it went. A way is forced
 * where it is possible, borders say from how many queries and rows on tiles
 * are chosen. With limits of the device's and of the host's memory: what does
 * not fit on the device is in host memory, and comes from there with every
 * call, at a rate that is printed. Markdown.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "program.h"

#define WARM_UPS	10
#define MIN_RUNS	10
#define MAX_RUNS	200
#define RUN_SECONDS 0.4
#define CENTRES		1000
#define SLICE		65536u
#define READ_RATE	4.39e12		/* bytes per second, measured on one H200 */

static const EngineOps *ops;
static Engine *engine;
static MirrorId mirror;
static uint32_t rows,
			dims,
			k = 10,
			queries = 10000,
			least = 1;
static ElementType type = ELEMENT_FLOAT;
static Metric metric = METRIC_L2;
static uint64_t seed = 1;
static const char *way;			/* of the searches */
static uint64_t far_bytes;		/* of the vectors, those in host memory */

/* Nearly normal: the sum of four bytes, centred. */
static float
noise(void)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	uint32_t	bits = (uint32_t) (seed >> 32);

	return ((float) (bits & 255) + (float) (bits >> 8 & 255) + (float) (bits >> 16 & 255) +
			(float) (bits >> 24) - 510) /
		   148;
}

/* Half precision of a value of ordinary size. */
static uint16_t
half_of(float value)
{
	union
	{
		float		value;
		uint32_t	bits;
	}			as = {value};
	int			exponent = (int) (as.bits >> 23 & 255) - 112;

	if (exponent <= 0)
		return 0;
	return (uint16_t) ((as.bits >> 16 & 0x8000) | (uint32_t) exponent << 10 |
					   (as.bits >> 13 & 0x3FF));
}

/* Make `count` vectors around the centres. */
static void
make_vectors(char *out, uint32_t count, const float *centres)
{
	size_t		bytes = engine_vector_bytes(type, dims);

	for (uint32_t i = 0; i < count; i++)
	{
		const float *centre;

		noise();
		centre = centres + (size_t) (seed >> 33) % CENTRES * dims;
		for (uint32_t j = 0; j < dims; j++)
		{
			float		value = centre[j] + noise() / 2;

			if (type == ELEMENT_FLOAT)
				((float *) (out + i * bytes))[j] = value;
			else if (type == ELEMENT_HALF)
				((uint16_t *) (out + i * bytes))[j] = half_of(value);
			else if (value > 0)
				out[i * bytes + j / 8] |= (char) (128 >> j % 8);
		}
	}
}

/* Append all rows, slice by slice. */
static void
load(const float *centres)
{
	size_t		bytes = engine_vector_bytes(type, dims);
	char	   *slice = malloc(SLICE * bytes);
	uint32_t   *versions = malloc(SLICE * sizeof(uint32_t));
	EngineError error;

	for (uint32_t i = 0; i < SLICE; i++)
		versions[i] = 1;
	for (uint32_t first = 0; first < rows; first += SLICE)
	{
		EngineJob job = {.kind = JOB_APPEND,
						 .mirror = mirror,
						 .first_slot = first,
						 .versions = versions,
						 .vectors = slice};
		JobProgress progress = {.completed = false};
		uint32_t	count;
		JobId		id;

		job.count = rows - first < SLICE ? rows - first : SLICE;
		memset(slice, 0, SLICE * bytes);
		make_vectors(slice, job.count, centres);
		must(ops->job_submit(engine, &job, &id, &error), &error, "append");
		while (!progress.completed)
		{
			must(ops->poll(engine, NULL, 0, &count, &error), &error, "poll");
			must(ops->job_poll(engine, id, &progress), &error, "append");
		}
		must(progress.status, &progress.error, "append");
		ops->job_release(engine, id);
	}
	free(slice);
	free(versions);
}

/* One call with `count` queries, in seconds. */
static double
call(EngineQuery **all, uint32_t count)
{
	double		start = now();
	uint32_t	ended = 0;
	EngineQuery *done[256];
	EngineError error;

	must(ops->submit(engine, all, count, &error), &error, "submit");
	while (ended < count)
	{
		uint32_t	some;

		must(ops->poll(engine, done, 256, &some, &error), &error, "poll");
		for (uint32_t i = 0; i < some; i++)
			must(done[i]->status, &done[i]->error, "query");
		ended += some;
	}
	return now() - start;
}

static int
by_size(const void *a, const void *b)
{
	double		x = *(const double *) a,
				y = *(const double *) b;

	return (x > y) - (x < y);
}

/* A sum of the answers' bits. */
static uint64_t
sum_of(EngineQuery *const *all, uint32_t count)
{
	uint64_t	sum = 0;

	for (uint32_t i = 0; i < count; i++)
		for (uint32_t j = 0; j < all[i]->count; j++)
		{
			uint64_t	bits;

			memcpy(&bits, &all[i]->results[j].distance, sizeof(bits));
			sum = (sum ^ bits ^ all[i]->results[j].slot) * 1099511628211ull + 1;
		}
	return sum;
}

static void
measure(EngineQuery **all, uint32_t count)
{
	double		times[MAX_RUNS];
	uint32_t	runs = 0;
	double		spent = 0,
				middle;

	for (int i = 0; i < WARM_UPS; i++)
		call(all, count);
	while (runs < MIN_RUNS || (runs < MAX_RUNS && spent < RUN_SECONDS))
	{
		times[runs] = call(all, count);
		spent += times[runs++];
	}
	qsort(times, runs, sizeof(double), by_size);
	middle = times[runs / 2];
	printf("| %u | %.1f | %.1f – %.1f | %.0f | %.1f %% | %u | %u | %016llx |", count, middle * 1e6,
		   times[0] * 1e6, times[runs - 1] * 1e6, count / middle,
		   (double) rows * engine_vector_bytes(type, dims) / middle / READ_RATE * 100,
		   all[0]->counters.iterations, all[0]->counters.engine_us,
		   (unsigned long long) sum_of(all, count));
	if (far_bytes > 0)
		printf(" %.1f |", (double) far_bytes / middle / 1e9);
	printf("\n");
	fflush(stdout);
}

/* Take the options before the other arguments; returns how many these were. */
static int
read_options(int argc, char **argv, EngineForced *forced)
{
	static const char *const ways[] = {"chosen", "scan", "fused", "tiles"};
	int			read = 0;

	for (; read + 2 < argc && strncmp(argv[read + 1], "--", 2) == 0; read += 2)
	{
		const char *value = argv[read + 2];

		if (strcmp(argv[read + 1], "--way") == 0)
			for (int i = EXACT_CHOSEN; i <= EXACT_TILES; i++)
				if (strcmp(value, ways[i]) == 0)
					forced->exact = (ExactWay) i;
		if (strcmp(argv[read + 1], "--borders") == 0)
			(void) sscanf(value, "%u,%u", &forced->tiles_queries, &forced->tiles_rows);
	}
	way = ways[forced->exact];
	return read;
}

int
main(int argc, char **argv)
{
	static const uint32_t batches[] = {1, 2, 4, 8, 16, 64, 128, 1024, 10000};
	EngineConfig config = {.device = -1};
	MirrorSpec spec = {.method = METHOD_GRAPH,
					   .degree = 32,
					   .residency = RESIDENCY_FULL,
					   .placement = PLACEMENT_SINGLE,
					   .device = -1};
	EngineError error;
	MirrorInfo	info;
	float	   *centres;
	char	   *vectors;
	EngineQuery *query;
	EngineQuery **all;

	int			options = read_options(argc, argv, &config.forced);

	argc -= options;
	argv += options;
	if (argc < 4)
	{
		fprintf(
			stderr,
			"usage: exact [--way WAY] [--borders QUERIES,ROWS] LIBRARY ROWS DIMS [TYPE [METRIC [K [QUERIES [FROM [DEVICE_MB HOST_MB]]]]]]\n");
		return 1;
	}
	ops = engine_of(argv[1]);
	rows = (uint32_t) atol(argv[2]);
	dims = (uint32_t) atol(argv[3]);
	type = argc > 4 ? (ElementType) atoi(argv[4]) : type;
	metric = argc > 5 ? (Metric) atoi(argv[5]) : metric;
	k = argc > 6 ? (uint32_t) atol(argv[6]) : k;
	queries = argc > 7 ? (uint32_t) atol(argv[7]) : queries;
	least = argc > 8 ? (uint32_t) atol(argv[8]) : least;
	if (argc > 10)
	{
		config.memory_limit = (uint64_t) atol(argv[9]) << 20;
		config.host_rows_limit = (uint64_t) atol(argv[10]) << 20;
		spec.residency = RESIDENCY_COMPRESSED;
	}
	must(ops->open(&config, &engine, &error), &error, "open");
	spec.dims = dims;
	spec.type = type;
	spec.metric = metric;
	spec.capacity = rows;
	must(ops->mirror_create(engine, &spec, &mirror, &error), &error, "mirror");
	centres = malloc((size_t) CENTRES * dims * sizeof(float));
	for (size_t i = 0; i < (size_t) CENTRES * dims; i++)
		centres[i] = noise();
	load(centres);
	must(ops->mirror_info(engine, mirror, &info, &error), &error, "mirror");
	far_bytes = info.host_bytes;
	vectors = calloc(queries, engine_vector_bytes(type, dims));
	make_vectors(vectors, queries, centres);
	query = calloc(queries, sizeof(EngineQuery));
	all = calloc(queries, sizeof(EngineQuery *));
	for (uint32_t i = 0; i < queries; i++)
	{
		query[i].mirror = mirror;
		query[i].method = METHOD_EXACT;
		query[i].k = k;
		query[i].vector = vectors + i * engine_vector_bytes(type, dims);
		query[i].results = malloc(k * sizeof(SearchResult));
		all[i] = &query[i];
	}
	printf("\n%u x %u, type %d, metric %d, k = %u, way: %s\n\n", rows, dims, type, metric, k, way);
	if (far_bytes > 0)
		printf("%.0f MB of the vectors are in host memory.\n\n", (double) far_bytes / 1e6);
	printf(
		"| queries | µs | from – to | per second | of %.2f TB/s | phases | engine µs | answers |%s\n|---|---|---|---|---|---|---|---|%s\n",
		READ_RATE / 1e12, far_bytes > 0 ? " from host memory, GB/s |" : "",
		far_bytes > 0 ? "---|" : "");
	for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++)
		if (batches[i] >= least && batches[i] <= queries)
			measure(all, batches[i]);
	ops->close(engine);
	return 0;
}
