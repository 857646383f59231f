/*
 * grow.c
 *		What growing costs a graph: recall of one that grew batch by batch
 *		beside one linked at once, by an engine alone.
 *
 * grow [-n ROWS] [-d DIMS] [-c CLUSTERS] [-s START] [-b BATCH] [-q QUERIES] [-t
 * THREADS] [-o random|cluster] [-p fresh|grown] [-r ROOM] [-e LIBRARY] [EF
 * ...]: makes rows as t/132_growing_keeps_quality.pl does (clusters of rows of
 * low dimension), in random order or cluster by cluster; links all at once;
 * then, in another mirror, START of them and the others in batches. With -r the
 * mirror keeps no more seeds than that between two links, as pages that were
 * made for fewer rows do. Prints, for each ef, recall@10 and how many queries
 * found none of their ten: those whose cluster the search did not come to.
 * Markdown.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

#define K			10
#define MAX_EFS	8
#define DIRECTIONS	14			/* of a cluster's rows; the other noise is half as large */

static uint32_t rows = 200000,
			dims = 64,
			clusters = 1000,
			start = 20000,
			batch = 2000,
			nqueries = 2000,
			room;
static uint32_t efs[MAX_EFS] = {10, 20, 40},
			nefs = 3;
static bool by_cluster = true;
static const char *part = "";	/* all */
static int	threads = 1;
static const char *library;
static const EngineOps *ops;
static Engine *engine;
static MirrorId mirror;
static float *vectors;			/* rows, then queries */
static uint32_t *cluster_of;	/* of rows and queries, by number */
static SearchResult *truth;

/* A number from 0 to 1 that two others stand for. */
static float
noise(uint64_t a, uint64_t b)
{
	uint64_t	z = (a * 1000003 + b) * UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return (float) ((z ^ (z >> 31)) & 1048575) / 1048576;
}

static int
compare_clusters(const void *left, const void *right)
{
	uint32_t	a = *(const uint32_t *) left;
	uint32_t	b = *(const uint32_t *) right;

	if (cluster_of[a] != cluster_of[b])
		return cluster_of[a] < cluster_of[b] ? -1 : 1;
	return a < b ? -1 : a > b;
}

/* Make rows, in the order wanted, and queries behind them. */
static void
make_vectors(void)
{
	uint32_t   *numbers = need(calloc(1, rows * sizeof(uint32_t)));

	vectors = need(calloc(1, ((size_t) rows + nqueries) * dims * sizeof(float)));
	cluster_of = need(calloc(1, ((size_t) rows + nqueries) * sizeof(uint32_t)));
	for (uint32_t i = 0; i < rows + nqueries; i++)
		cluster_of[i] = (uint32_t) (noise(i + 1, 7777) * (float) clusters);
	for (uint32_t i = 0; i < rows; i++)
		numbers[i] = i;
	if (by_cluster)
		qsort(numbers, rows, sizeof(uint32_t), compare_clusters);
	for (uint32_t i = 0; i < rows + nqueries; i++)
	{
		uint32_t	number = i < rows ? numbers[i] : i;

		for (uint32_t d = 1; d <= dims; d++)
			vectors[(size_t) i * dims + d - 1] = noise(cluster_of[number], d) * 4 +
												 noise(number + 1, d) +
												 noise(number + 1, d % DIRECTIONS) * 2;
	}
	free(numbers);
}

/* Run a job to its end. */
static void
run_job(EngineJob job, const char *what)
{
	EngineError error = {0};
	JobProgress progress;
	uint32_t	count;
	JobId		id;

	job.mirror = mirror;
	must(ops->job_submit(engine, &job, &id, &error), &error, what);
	do
	{
		struct timespec pause = {0, 50000};

		nanosleep(&pause, NULL);
		must(ops->poll(engine, NULL, 0, &count, &error), &error, what);
		ops->job_poll(engine, id, &progress);
	} while (!progress.completed);
	must(progress.status, &progress.error, what);
	if (job.kind == JOB_LINK && room > 0)
	{
		LinkResult	result;
		EngineJob	seeds = {.kind = JOB_SEEDS};

		must(ops->job_link_result(engine, id, &result), &error, "result");
		seeds.slots = result.seeds;
		seeds.count = result.nseeds < room ? result.nseeds : room;
		if (seeds.count < result.nseeds)
			run_job(seeds, "seeds");
	}
	ops->job_release(engine, id);
}

/* Append rows, and link them. */
static void
grow(uint32_t first, uint32_t count)
{
	uint32_t   *versions = need(calloc(1, count * sizeof(uint32_t)));
	EngineJob append = {.kind = JOB_APPEND,
						.first_slot = first,
						.count = count,
						.versions = versions,
						.vectors = vectors + (size_t) first * dims};
	EngineJob	link = {.kind = JOB_LINK, .ef_construction = 64};

	for (uint32_t i = 0; i < count; i++)
		versions[i] = 1;
	run_job(append, "append");
	run_job(link, "link");
	free(versions);
}

/* Ask all queries; returns the distances measured for one. */
static double
ask(SearchMethod method, uint32_t ef, SearchResult *results)
{
	EngineQuery *queries = need(calloc(1, nqueries * sizeof(EngineQuery)));
	EngineQuery **all = need(calloc(1, nqueries * sizeof(EngineQuery *)));
	EngineError error = {0};
	double		distances = 0;

	for (uint32_t i = 0; i < nqueries; i++)
	{
		queries[i] = (EngineQuery){.mirror = mirror,
								   .method = method,
								   .k = K,
								   .ef = ef,
								   .vector = vectors + ((size_t) rows + i) * dims,
								   .results = results + (size_t) i * K};
		all[i] = &queries[i];
	}
	must(ops->submit(engine, all, nqueries, &error), &error, "submit");
	for (uint32_t left = nqueries, count; left > 0; left -= count)
		must(ops->poll(engine, all, nqueries, &count, &error), &error, "poll");
	for (uint32_t i = 0; i < nqueries; i++)
		distances += queries[i].counters.distances;
	free(queries);
	free(all);
	return distances / nqueries;
}

/* Compare answers with the true ones; prints a row of the table. */
static void
report(const char *what, double seconds)
{
	SearchResult *results = need(calloc(1, (size_t) nqueries * K * sizeof(SearchResult)));

	if (truth == NULL)
	{
		truth = need(calloc(1, (size_t) nqueries * K * sizeof(SearchResult)));
		(void) ask(METHOD_EXACT, 0, truth);
	}
	for (uint32_t e = 0; e < nefs; e++)
	{
		double		distances = ask(METHOD_GRAPH, efs[e], results);
		uint32_t	hits = 0;
		uint32_t	lost = 0;

		for (uint32_t i = 0; i < nqueries; i++)
		{
			uint32_t	before = hits;

			for (uint32_t m = 0; m < K; m++)
				hits += results[i * K + m].distance <= truth[i * K + K - 1].distance;
			lost += hits == before;
		}
		printf("| %s | %u | %.4f | %u | %.0f | %.1f |\n", what, efs[e],
			   (double) hits / nqueries / K, lost, distances, seconds);
	}
	free(results);
}

/*
 * A mirror linked in pieces: one of `first` rows, the others of `piece` rows
 * each.
 */
static void
build(const char *what, uint32_t first, uint32_t piece)
{
	MirrorSpec spec = {dims,		   ELEMENT_FLOAT,	 METRIC_L2, METHOD_GRAPH, 32, rows,
					   RESIDENCY_FULL, PLACEMENT_SINGLE, -1,			 {0},		   0,  {0}};
	EngineJob	drop = {.kind = JOB_DROP};
	EngineError error = {0};
	double		begun = now();

	must(ops->mirror_create(engine, &spec, &mirror, &error), &error, "mirror");
	grow(0, first);
	for (uint32_t next = first; next < rows; next += piece)
		grow(next, rows - next < piece ? rows - next : piece);
	report(what, now() - begun);
	run_job(drop, "drop");
}

static void
parse(int argc, char **argv)
{
	int			option;

	while ((option = getopt(argc, argv, "n:d:c:s:b:q:t:o:p:r:e:")) != -1)
		switch (option)
		{
			case 'n': rows = (uint32_t) atoi(optarg); break;
			case 'd': dims = (uint32_t) atoi(optarg); break;
			case 'c': clusters = (uint32_t) atoi(optarg); break;
			case 's': start = (uint32_t) atoi(optarg); break;
			case 'b': batch = (uint32_t) atoi(optarg); break;
			case 'q': nqueries = (uint32_t) atoi(optarg); break;
			case 't': threads = atoi(optarg); break;
			case 'o': by_cluster = optarg[0] == 'c'; break;
			case 'p': part = optarg; break;
			case 'r': room = (uint32_t) atoi(optarg); break;
			case 'e': library = optarg; break;
			default: exit(2);
		}
	if (optind < argc)
		nefs = 0;
	for (; optind < argc && nefs < MAX_EFS; optind++)
		efs[nefs++] = (uint32_t) atoi(argv[optind]);
	if (start == 0 || start > rows || batch == 0 || nqueries == 0 || clusters == 0)
	{
		fprintf(stderr, "grow: more rows than at first, in batches of at least one\n");
		exit(2);
	}
}

int
main(int argc, char **argv)
{
	EngineConfig config = {.device = -1};
	EngineError error = {0};
	EngineInfo	info;

	setvbuf(stdout, NULL, _IOLBF, 0);
	parse(argc, argv);
	config.threads = threads;
	ops = engine_of(library);
	must(ops->open(&config, &engine, &error), &error, "open");
	ops->info(engine, &info);
	printf("engine %s on %s: %u x %u, %u clusters, %s; %u grown by %u%s; %u queries\n\n", info.name,
		   info.device, rows, dims, clusters, by_cluster ? "cluster by cluster" : "in random order",
		   start, batch, room > 0 ? ", few seeds kept" : "", nqueries);
	printf(
		"| graph | ef | recall@10 | queries that found nothing | distances a query | seconds |\n|---|---|---|---|---|---|\n");
	make_vectors();
	if (part[0] != 'g')
		build("linked at once", rows, rows);
	if (part[0] != 'f')
		build("grown", start, batch);
	ops->close(engine);
	return 0;
}
