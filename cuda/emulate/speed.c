/*
 * speed.c
 *		How fast a CUDA engine answers, roughly: build on host threads, then
 *		recall and time for several batch sizes.
 *
 * Usage: speed LIBRARY [rows [dims [ef]]]. Clustered synthetic vectors of
 * float, L2, degree 32. The benchmarks (bench/) measure properly; this tells
 * within a minute whether something is badly wrong.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/engine.h"

#define DEGREE 32
#define K 10
#define MOST_BATCH 10000u

static uint64_t random_state = 42;

static float
next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (float) (random_state >> 40) / 16777216.0f - 0.5f;
}

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

static const EngineOps *ops;
static Engine *engine;
static MirrorId mirror;

static void
run_job(EngineJob job)
{
	EngineError error = {0};
	JobProgress progress;
	EngineQuery *none[1];
	uint32_t count;
	double start = now();
	JobId id;

	job.mirror = mirror;
	if (ops->job_submit(engine, &job, &id, &error) != ENGINE_OK)
	{
		printf("job: %s\n", error.text);
		exit(1);
	}
	do
	{
		if (ops->poll(engine, none, 0, &count, &error) != ENGINE_OK)
		{
			printf("poll: %s\n", error.text);
			exit(1);
		}
		ops->job_poll(engine, id, &progress);
	} while (!progress.completed);
	printf("job %d of %u rows: status %d, %.3f s %s\n", (int) job.kind, job.count,
		   (int) progress.status, now() - start, progress.error.text);
	ops->job_release(engine, id);
}

/* Times of batches, in µs: medians. */
typedef struct Times
{
	double whole;  /* from submit until poll has returned the last query */
	double submit; /* of it, in submit */
	double engine; /* what the engine counts for the batch's first query */
} Times;

static int
compare_times(const void *left, const void *right)
{
	double a = *(const double *) left,
		   b = *(const double *) right;

	return a < b ? -1 : a > b;
}

/* Run queries in batches. */
static Times
run_batches(EngineQuery *queries, uint32_t total, uint32_t batch)
{
	static EngineQuery *all[MOST_BATCH];
	static EngineQuery *done[MOST_BATCH];
	double times[3][256];
	uint32_t runs = total / batch < 256 ? total / batch : 256;
	Times medians;

	for (uint32_t run = 0; run < runs; run++)
	{
		EngineError error = {0};
		uint32_t left = batch,
				 count;
		double start;

		for (uint32_t i = 0; i < batch; i++)
			all[i] = &queries[run * batch + i];
		start = now();
		if (ops->submit(engine, all, batch, &error) != ENGINE_OK)
			exit(1);
		times[1][run] = (now() - start) * 1e6;
		while (left > 0)
		{
			if (ops->poll(engine, done, MOST_BATCH, &count, &error) != ENGINE_OK)
			{
				printf("poll: %s\n", error.text);
				exit(1);
			}
			left -= count;
		}
		times[0][run] = (now() - start) * 1e6;
		times[2][run] = queries[run * batch].counters.engine_us;
	}
	for (int i = 0; i < 3; i++)
		qsort(times[i], runs, sizeof(double), compare_times);
	medians.whole = times[0][runs / 2];
	medians.submit = times[1][runs / 2];
	medians.engine = times[2][runs / 2];
	return medians;
}

static volatile uint32_t wakes;

static void
count_wake(void *arg)
{
	__atomic_fetch_add(&wakes, 1, __ATOMIC_SEQ_CST);
}

/*
 * How long after submit an owner that does not poll is woken, in µs: the median
 * of lone queries.
 */
static double
time_until_woken(EngineQuery *queries)
{
	double times[200];

	for (int i = 0; i < 200; i++)
	{
		EngineQuery *query = &queries[i];
		EngineError error = {0};
		struct timespec pause = {0, 2000000};
		uint32_t before,
				 count = 0;
		double start;

		nanosleep(&pause, NULL);
		before = wakes;
		start = now();
		if (ops->submit(engine, &query, 1, &error) != ENGINE_OK)
			exit(1);
		while (wakes == before)
			;
		times[i] = (now() - start) * 1e6;
		while (count == 0)
			if (ops->poll(engine, &query, 1, &count, &error) != ENGINE_OK)
				exit(1);
	}
	qsort(times, 200, sizeof(double), compare_times);
	return times[100];
}

int
main(int argc, char **argv)
{
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	EngineEntry entry = library != NULL ? (EngineEntry) dlsym(library, ENGINE_ENTRY_SYMBOL) : NULL;
	uint32_t rows = argc > 2 ? (uint32_t) atoi(argv[2]) : 200000;
	uint32_t dims = argc > 3 ? (uint32_t) atoi(argv[3]) : 128;
	uint32_t ef = argc > 4 ? (uint32_t) atoi(argv[4]) : 64;
	uint32_t batches[] = {1, 16, 64, 256, 1024, 10000};
	float *vectors = malloc((size_t) rows * dims * sizeof(float));
	float *asked = malloc((size_t) MOST_BATCH * dims * sizeof(float));
	float *centres = malloc((size_t) 1000 * dims * sizeof(float));
	uint32_t *versions = calloc(rows, sizeof(uint32_t));
	EngineQuery *queries = calloc(MOST_BATCH, sizeof(EngineQuery));
	SearchResult *results = malloc(MOST_BATCH * K * sizeof(SearchResult));
	SearchResult *truth = malloc(MOST_BATCH * K * sizeof(SearchResult));
	MirrorSpec spec = {dims,		   ELEMENT_FLOAT,	 METRIC_L2, METHOD_GRAPH, DEGREE, rows,
					   RESIDENCY_FULL, PLACEMENT_SINGLE, -1,			 {0}};
	EngineConfig config = {0};
	EngineError error = {0};
	EngineMemory memory;
	EngineJob job = {0};
	uint64_t found = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	config.device = -1;
	config.wake = count_wake;
	ops = entry != NULL ? entry() : NULL;
	if (ops == NULL || ops->open(&config, &engine, &error) != ENGINE_OK ||
		ops->mirror_create(engine, &spec, &mirror, &error) != ENGINE_OK)
	{
		printf("%s\n", error.text);
		return 2;
	}
	for (uint32_t i = 0; i < 1000 * dims; i++)
		centres[i] = next_random() * 2;
	for (uint64_t i = 0; i < (uint64_t) (rows + MOST_BATCH) * dims; i++)
	{
		uint64_t row = i / dims;
		float value = centres[row * 7919 % 1000 * dims + i % dims] + next_random();

		if (row < rows)
			vectors[i] = value;
		else
			asked[i - (uint64_t) rows * dims] = value;
	}
	job.kind = JOB_APPEND;
	job.count = rows;
	job.vectors = vectors;
	job.versions = versions;
	run_job(job);
	memset(&job, 0, sizeof(job));
	job.kind = JOB_LINK;
	job.ef_construction = 100;
	run_job(job);
	ops->memory(engine, &memory);
	printf("memory: limit %.0f used %.0f context %.0f vectors %.0f graph %.0f state %.0f MiB\n",
		   memory.limit / 1048576.0, memory.used / 1048576.0, memory.context / 1048576.0,
		   memory.vectors / 1048576.0, memory.graph / 1048576.0, memory.state / 1048576.0);
	for (uint32_t i = 0; i < MOST_BATCH; i++)
	{
		queries[i].mirror = mirror;
		queries[i].method = METHOD_EXACT;
		queries[i].k = K;
		queries[i].ef = ef;
		queries[i].vector = asked + (size_t) i * dims;
		queries[i].results = truth + i * K;
	}
	printf("exact, batch 1: %.0f us\n", run_batches(queries, 20, 1).whole);
	printf("exact, batch 64: %.0f us\n", run_batches(queries, 640, 64).whole);
	printf("exact, batch 2000: %.0f us\n", run_batches(queries, 2000, 2000).whole);
	for (uint32_t i = 0; i < MOST_BATCH; i++)
	{
		queries[i].method = METHOD_GRAPH;
		queries[i].results = results + i * K;
	}
	for (uint32_t b = 0; b < sizeof(batches) / sizeof(batches[0]); b++)
	{
		Times time;

		run_batches(queries, batches[b] * 3 < MOST_BATCH ? batches[b] * 3 : MOST_BATCH, batches[b]);
		time = run_batches(queries, MOST_BATCH, batches[b]);
		printf(
			"graph, ef %u, batch %5u: %8.0f us (submit %.0f us, engine %.0f us), %9.0f queries/s\n",
			ef, batches[b], time.whole, time.submit, time.engine, batches[b] / time.whole * 1e6);
	}
	printf("a lone query wakes its owner after %.0f us\n", time_until_woken(queries));
	for (uint32_t i = 0; i < 2000; i++)
		for (uint32_t j = 0; j < K; j++)
			for (uint32_t m = 0; m < queries[i].count; m++)
				found += truth[i * K + j].slot == results[i * K + m].slot;
	printf("recall@%d %.4f, expanded %u, iterations %u, distances %u\n", K,
		   (double) found / (2000.0 * K), queries[0].counters.expanded,
		   queries[0].counters.iterations, queries[0].counters.distances);
	ops->close(engine);
	return 0;
}
