/*
 * engine.c
 *		How fast an engine answers, host to host: a plain program over engine.h.
 *
 * Loads vectors, links them (or takes a graph linked before from a file), takes
 * the true nearest rows from the engine's exact search, then for each ef and
 * batch size: 10 warm-ups, at least 10 runs, median and spread from submit
 * until poll has returned the last answer. All of a run is in the figure:
 * copying queries in and answers out, clearing, waking. Prints markdown.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine_run/run.h"

#define MAX_QUERIES	10000u	/* of the file */
#define BATCH_QUERIES_MAX		100000u	/* queries at once: those of the file, again and again */
#define WARM_UPS		10
#define MIN_RUNS		10
#define MAX_RUNS		200
#define RUN_SECONDS		0.3		/* of one figure: more runs than MIN_RUNS as long as they take
								 * less */

Settings	set = {
	NULL, NULL, NULL, NULL, ELEMENT_FLOAT, METRIC_L2, 1000000, 128, 32, 100, 10, 0, 2000,
	0, 0, false, 0, 0, 0, false, false, 0, 0, {32, 48, 64, 96, 128}, 5,
	{1, 16, 64, 256, 1024, 10000}, 6
};
const EngineOps *ops;
Engine	   *engine;
MirrorId	mirror;
volatile uint32_t wakes;

static void
count_wake(void *arg)
{
	__atomic_fetch_add(&wakes, 1, __ATOMIC_SEQ_CST);
}

/*
 * Submit queries and poll until all are back; returns the seconds from submit
 * on.
 */
static double
run_batch(EngineQuery *queries, uint32_t count)
{
	static EngineQuery *all[BATCH_QUERIES_MAX];
	static EngineQuery *done[BATCH_QUERIES_MAX];
	EngineError error = {0};
	uint32_t	left = count;
	double		start;

	for (uint32_t i = 0; i < count; i++)
		all[i] = &queries[i];
	start = now();
	must(ops->submit(engine, all, count, &error), &error, "submit");
	while (left > 0)
	{
		uint32_t	n;

		must(ops->poll(engine, done, BATCH_QUERIES_MAX, &n, &error), &error, "poll");
		left -= n;
	}
	return now() - start;
}

static int
compare_counts(const void *left, const void *right)
{
	uint32_t	a = *(const uint32_t *) left;
	uint32_t	b = *(const uint32_t *) right;

	return a < b ? -1 : a > b;
}

/* Read all rows, so that no cache has what queries read before. */
static void
read_all_rows(const EngineQuery *like)
{
	SearchResult *nearest = need(malloc(set.k * sizeof(SearchResult)));
	EngineQuery query = *like;

	query.method = METHOD_EXACT;
	query.results = nearest;
	run_batch(&query, 1);
	free(nearest);
}

/* Seconds of a batch over several runs. */
typedef struct Spread
{
	double		least;
	double		median;
	double		most;			/* of nine in ten */
	double		engine;			/* what the engine counts of the first query: from start to end, the
								 * median */
	double		queued;			/* and from submit to start */
	uint32_t	runs;
} Spread;

static Spread
measure(EngineQuery *queries, uint32_t batch)
{
	static double seconds[MAX_RUNS];
	static double inside[MAX_RUNS];
	static double queued[MAX_RUNS];
	uint32_t	at = 0;
	double		total = 0;
	Spread		spread = {0};

	for (uint32_t run = 0; run < WARM_UPS + MAX_RUNS; run++)
	{
		double		taken;

		if (at + batch > BATCH_QUERIES_MAX)
			at = 0;
		if (set.cold)
			read_all_rows(&queries[at]);
		taken = run_batch(queries + at, batch);
		if (run >= WARM_UPS)
		{
			inside[spread.runs] = queries[at + batch - 1].counters.engine_us * 1e-6;
			queued[spread.runs] = queries[at + batch - 1].counters.queue_us * 1e-6;
			seconds[spread.runs++] = taken;
			total += taken;
		}
		at += batch;
		if (spread.runs >= MIN_RUNS && total > RUN_SECONDS)
			break;
	}
	qsort(seconds, spread.runs, sizeof(double), compare_doubles);
	qsort(inside, spread.runs, sizeof(double), compare_doubles);
	qsort(queued, spread.runs, sizeof(double), compare_doubles);
	spread.least = seconds[0];
	spread.median = seconds[spread.runs / 2];
	spread.most = seconds[spread.runs * 9 / 10];
	spread.engine = inside[spread.runs / 2];
	spread.queued = queued[spread.runs / 2];
	return spread;
}

/*
 * Share of the first r answers that are among the true nearest r rows, or as
 * near as the last of these.
 */
static double
recall_at(const EngineQuery *queries, const SearchResult *truth, uint32_t most, uint32_t r)
{
	uint64_t	found = 0;

	for (uint32_t i = 0; i < set.truths; i++)
	{
		const SearchResult *nearest = truth + (size_t) i * most;

		for (uint32_t m = 0; m < r && m < queries[i].count; m++)
		{
			bool		hit = queries[i].results[m].distance <= nearest[r - 1].distance;

			for (uint32_t j = 0; j < r && !hit; j++)
				hit = nearest[j].slot == queries[i].results[m].slot;
			found += hit;
		}
	}
	return (double) found / ((double) set.truths * r);
}

/* How long after submit an owner that does not poll is woken. */
static double
until_woken(EngineQuery *queries)
{
	double		seconds[100];

	for (int i = 0; i < 100; i++)
	{
		EngineQuery *query = &queries[i];
		EngineError error = {0};
		struct timespec pause = {0, 2000000};
		uint32_t	before;
		uint32_t	count = 0;
		double		start;

		nanosleep(&pause, NULL);
		before = wakes;
		start = now();
		must(ops->submit(engine, &query, 1, &error), &error, "submit");
		while (wakes == before)
			;
		seconds[i] = now() - start;
		while (count == 0)
			must(ops->poll(engine, &query, 1, &count, &error), &error, "poll");
	}
	qsort(seconds, 100, sizeof(double), compare_doubles);
	return seconds[50];
}

/* Ask every query and print what it found and what it cost. */
static void
report_ef(EngineQuery *queries, const SearchResult *truth, uint32_t ef)
{
	static uint32_t rounds[MAX_QUERIES];
	double		expanded = 0,
				distances = 0,
				iterations = 0;

	for (uint32_t i = 0; i < BATCH_QUERIES_MAX; i++)
	{
		queries[i].method = METHOD_GRAPH;
		queries[i].ef = ef;
		queries[i].seeds = set.seeds;
	}
	run_batch(queries, MAX_QUERIES);
	for (uint32_t i = 0; i < MAX_QUERIES; i++)
	{
		expanded += queries[i].counters.expanded;
		distances += queries[i].counters.distances;
		iterations += queries[i].counters.iterations;
		rounds[i] = queries[i].counters.iterations;
	}
	qsort(rounds, MAX_QUERIES, sizeof(uint32_t), compare_counts);
	printf(
		"\nef %u: recall@1 %.4f, recall@%u %.4f; rows expanded %.1f, rounds %.1f, distances %.0f a query; woken after %.0f us\n\n",
		ef, recall_at(queries, truth, set.k, 1), set.k, recall_at(queries, truth, set.k, set.k),
		expanded / MAX_QUERIES, iterations / MAX_QUERIES, distances / MAX_QUERIES,
		until_woken(queries) * 1e6);
	printf("rounds of the least query, of 1, 10, 50, 90, 99 and 99.9 in 100, and of the last: %u, %u, %u, %u, %u, %u, %u, %u\n\n",
		   rounds[0], rounds[MAX_QUERIES / 100], rounds[MAX_QUERIES / 10],
		   rounds[MAX_QUERIES / 2], rounds[MAX_QUERIES / 10 * 9], rounds[MAX_QUERIES / 100 * 99],
		   rounds[MAX_QUERIES / 1000 * 999], rounds[MAX_QUERIES - 1]);
	printf(
		"| batch | median us | least | nine in ten | queued | in the engine | queries/s | runs |\n|---|---|---|---|---|---|---|---|\n");
	for (uint32_t i = 0; i < set.nbatches; i++)
	{
		Spread		spread = measure(queries, set.batches[i]);

		printf("| %u | %.1f | %.1f | %.1f | %.0f | %.0f | %.0f | %u |\n", set.batches[i],
			   spread.median * 1e6, spread.least * 1e6, spread.most * 1e6, spread.queued * 1e6,
			   spread.engine * 1e6, set.batches[i] / spread.median, spread.runs);
	}
}

/* Read a list of numbers. */
static uint32_t
numbers(char *text, uint32_t *out)
{
	uint32_t	count = 0;

	for (char *word = strtok(text, ","); word != NULL && count < MAX_LIST;
		 word = strtok(NULL, ","))
		out[count++] = (uint32_t) atoi(word);
	return count;
}

static void
usage(void)
{
	fprintf(
		stderr,
		"usage: engine --base FILE --query FILE -n ROWS -d DIMS [--engine-library FILE] [--type float|half|bit] [--metric l2|ip|cosine|l1|hamming|jaccard]\n"
		"       [--degree N] [--ef-construction N] [-k N] [--graph FILE] [--ef LIST] [--batch LIST] [--truths N] [--seeds N]\n"
		"       [--more ROWS] [--beside] [--candidates ROWS] [--dead PERCENT] [--repair JOBS] [--filter PERCENT] [--search-by-rows]\n"
		"       [--memory-limit MB] [--host-rows MB] [--cold]\n");
	exit(2);
}

static void
parse(int argc, char **argv)
{
	static const struct option options[] = {{"base", 1, NULL, 'b'},
											{"query", 1, NULL, 'q'},
											{"engine-library", 1, NULL, 'l'},
											{"type", 1, NULL, 't'},
											{"metric", 1, NULL, 'm'},
											{"degree", 1, NULL, 'D'},
											{"ef-construction", 1, NULL, 'c'},
											{"graph", 1, NULL, 'g'},
											{"ef", 1, NULL, 'e'},
											{"batch", 1, NULL, 'B'},
											{"truths", 1, NULL, 'T'},
											{"seeds", 1, NULL, 's'},
											{"more", 1, NULL, 'M'},
											{"beside", 0, NULL, 'S'},
											{"candidates", 1, NULL, 'C'},
											{"filter", 1, NULL, 'f'},
											{"dead", 1, NULL, 'x'},
											{"repair", 1, NULL, 'r'},
											{"search-by-rows", 0, NULL, 'R'},
											{"memory-limit", 1, NULL, 'L'},
											{"host-rows", 1, NULL, 'H'},
											{"cold", 0, NULL, 'F'},
											{NULL, 0, NULL, 0}};
	int			option;

	while ((option = getopt_long(argc, argv, "n:d:k:", options, NULL)) != -1)
		switch (option)
		{
			case 'b': set.base = optarg; break;
			case 'q': set.query = optarg; break;
			case 'l': set.library = optarg; break;
			case 't': set.type = optarg[0] == 'h' ? ELEMENT_HALF : optarg[0] == 'b' ? ELEMENT_BIT :
					ELEMENT_FLOAT; break;
			case 'm': set.metric = optarg[0] == 'i' ? METRIC_IP : optarg[0] == 'c' ? METRIC_COSINE :
					optarg[0] == 'h' ? METRIC_HAMMING : optarg[0] == 'j' ? METRIC_JACCARD :
					optarg[0] == 'l' && optarg[1] == '1' ? METRIC_L1 : METRIC_L2; break;
			case 'D': set.degree = (uint32_t) atoi(optarg); break;
			case 'c': set.ef_construction = (uint32_t) atoi(optarg); break;
			case 'g': set.graph = optarg; break;
			case 'e': set.nefs = numbers(optarg, set.efs); break;
			case 'B': set.nbatches = numbers(optarg, set.batches); break;
			case 'T': set.truths = (uint32_t) atoi(optarg); break;
			case 'M': set.more = (uint32_t) atoi(optarg); break;
			case 'S': set.beside = true; break;
			case 'C': set.candidates = (uint32_t) atoi(optarg); break;
			case 's': set.seeds = (uint32_t) atoi(optarg); break;
			case 'x': set.dead = (uint32_t) atoi(optarg); break;
			case 'r': set.repair = (uint32_t) atoi(optarg); break;
			case 'f': set.filter = (uint32_t) atoi(optarg); break;
			case 'R': set.by_rows = true; break;
			case 'L': set.memory_limit = (uint64_t) atol(optarg) << 20; break;
			case 'F': set.cold = true; break;
			case 'H': set.host_rows = (uint64_t) atol(optarg) << 20; break;
			case 'n': set.rows = (uint32_t) atoi(optarg); break;
			case 'd': set.dims = (uint32_t) atoi(optarg); break;
			case 'k': set.k = (uint32_t) atoi(optarg); break;
			default: usage();
		}
	if (set.base == NULL || set.query == NULL || set.truths > MAX_QUERIES ||
		set.more >= set.rows || set.candidates > set.rows || set.dead > 100)
		usage();
	for (uint32_t i = 0; i < set.nbatches; i++)
		if (set.batches[i] == 0 || set.batches[i] > BATCH_QUERIES_MAX)
			usage();
}

/* A filter that so many rows in a hundred pass, at random. */
static uint64_t *
make_filter(void)
{
	uint64_t   *filter = need(calloc(set.rows / 64 + 1, sizeof(uint64_t)));
	uint64_t	state = 1;

	for (uint32_t row = 0; row < set.rows; row++)
	{
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		filter[row / 64] |= (uint64_t) ((state >> 33) % 100 < set.filter) << (row % 64);
	}
	return filter;
}

int
main(int argc, char **argv)
{
	EngineConfig config = {.device = -1, .wake = count_wake};
	EngineQuery *queries = need(calloc(BATCH_QUERIES_MAX, sizeof(EngineQuery)));
	EngineError error = {0};
	EngineMemory memory;
	EngineInfo	info;
	SearchResult *results,
			   *truth;
	uint64_t   *filter = NULL;
	char	   *vectors;
	size_t		bytes;

	setvbuf(stdout, NULL, _IOLBF, 0);
	parse(argc, argv);
	config.forced.search_by_rows = set.by_rows;
	config.memory_limit = set.memory_limit;
	config.host_rows_limit = set.host_rows;
	ops = engine_of(set.library);
	must(ops->open(&config, &engine, &error), &error, "open");
	ops->info(engine, &info);
	printf("* engine %s on %s; %u x %u, degree %u, ef_construction %u, k %u\n", info.name,
		   info.device, set.rows, set.dims, set.degree, set.ef_construction, set.k);
	load();
	ops->memory(engine, &memory);
	printf("* memory, MiB: context %.0f, vectors %.0f, graph %.0f, norms %.0f, state %.0f\n",
		   memory.context / 1048576.0, memory.vectors / 1048576.0, memory.graph / 1048576.0,
		   memory.norms / 1048576.0, memory.state / 1048576.0);
	bytes = engine_vector_bytes(set.type, set.dims);
	vectors = read_file(set.query, bytes * MAX_QUERIES);
	results = need(calloc((size_t) BATCH_QUERIES_MAX * set.k, sizeof(SearchResult)));
	truth = need(calloc((size_t) MAX_QUERIES * set.k, sizeof(SearchResult)));
	if (set.filter > 0)
		filter = make_filter();
	for (uint32_t i = 0; i < BATCH_QUERIES_MAX; i++)
	{
		queries[i].mirror = mirror;
		queries[i].method = METHOD_EXACT;
		queries[i].k = set.k;
		queries[i].vector = vectors + i % MAX_QUERIES * bytes;
		queries[i].results = truth + (size_t) (i % MAX_QUERIES) * set.k;
		queries[i].filter = filter;
		queries[i].filter_slots = filter != NULL ? set.rows : 0;
	}
	printf("* true nearest rows of %u queries: %.2f s\n", set.truths,
		   run_batch(queries, set.truths));
	for (uint32_t i = 0; i < BATCH_QUERIES_MAX; i++)
		queries[i].results = results + (size_t) i * set.k;
	for (uint32_t i = 0; i < set.nefs; i++)
		report_ef(queries, truth, set.efs[i]);
	ops->close(engine);
	return 0;
}
