/*
 * outliers.c
 *		What a few large elements, or rows of very different lengths, cost a
 *		graph search: latency, throughput and recall at equal ef, beside a
 *		search by stored rows of the same graph.
 *
 * For each kind of rows the base vectors are changed, appended to an engine and
 * linked; a second engine, which measures stored rows, gets the same rows and
 * the same graph. The true nearest rows are those of the first engine's exact
 * search. All times are from submit until poll has returned the last answer:
 * medians after ten warm-ups. Prints markdown.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "program.h"

#define QUERIES			1024u
#define BATCH			256u
#define K				10u
#define DEGREE			32u
#define MAX_LIST		8
#define WARM_UPS		10
#define MAX_RUNS		1000

typedef struct Settings
{
	const char *library;
	const char *base;
	const char *query;
	Metric		metric;
	uint32_t	rows;
	uint32_t	dims;
	uint32_t	ef;
	uint32_t	large[MAX_LIST];
	uint32_t	nlarge;
	uint32_t	factors[MAX_LIST];
	uint32_t	nfactors;
	uint32_t	runs;			/* of a figure */
	double		seconds;		/* no further kind of rows is begun after these */
} Settings;

/* A kind of rows. */
typedef struct Kind
{
	uint32_t	large;			/* elements */
	uint32_t	factor;
	bool		lengths;		/* from 10^-3 to 10^3 */
} Kind;

/* What was measured of it with one engine. */
typedef struct Figures
{
	double		linked;			/* seconds */
	double		alone;			/* of one query */
	double		batch;			/* of BATCH */
	double		recall;			/* at ef */
	double		recall_twice;	/* at twice that */
} Figures;

static Settings set = {
	NULL, NULL, NULL, METRIC_L2, 200000, 128, 32, {2, 4, 8}, 3, {20, 60, 200}, 3, 100, 90
};
static const EngineOps *ops;
static float *base;				/* as they were read */
static float *rows;				/* as the kind has them */
static float *asked;
static float *queries;

static float *
read_vectors(const char *path, size_t count)
{
	float	   *vectors = need(malloc(count * set.dims * sizeof(float)));
	FILE	   *file = fopen(path, "rb");

	if (file == NULL || fread(vectors, sizeof(float) * set.dims, count, file) != count)
	{
		fprintf(stderr, "cannot read %zu vectors of %s\n", count, path);
		exit(1);
	}
	fclose(file);
	return vectors;
}

/* Change vectors to what a kind has. */
static void
change(const Kind *kind, const float *from, float *to, uint32_t count, uint64_t state)
{
	for (uint32_t row = 0; row < count; row++)
	{
		const float *in = from + (size_t) row * set.dims;
		float	   *out = to + (size_t) row * set.dims;
		float		length = 1;

		state = state * 6364136223846793005ull + 1442695040888963407ull;
		if (kind->lengths)
			length = powf(10, (float) (state >> 40) / (1 << 24) * 6 - 3);
		for (uint32_t i = 0; i < set.dims; i++)
			out[i] = in[i] * length;
		for (uint32_t j = 0; j < kind->large; j++)
			out[(2 * j + 1) * set.dims / (2 * kind->large)] *= (float) kind->factor;
	}
}

/* Run a job to its end; the caller releases it. */
static JobId
run_job(Engine *engine, const EngineJob *job, const char *what)
{
	const struct timespec pause = {0, 200000};
	EngineError error = {0};
	JobProgress progress;
	EngineQuery *none[1];
	uint32_t	count;
	JobId		id;

	must(ops->job_submit(engine, job, &id, &error), &error, what);
	for (;;)
	{
		must(ops->poll(engine, none, 0, &count, &error), &error, what);
		ops->job_poll(engine, id, &progress);
		if (progress.completed)
			break;
		(void) nanosleep(&pause, NULL);
	}
	must(progress.status, &progress.error, what);
	return id;
}

/* A mirror with the rows of a kind. */
static MirrorId
append(Engine *engine)
{
	MirrorSpec	spec = {.dims = set.dims, .type = ELEMENT_FLOAT, .metric = set.metric,
		.method = METHOD_GRAPH, .degree = DEGREE, .capacity = set.rows,
		.residency = RESIDENCY_FULL, .placement = PLACEMENT_SINGLE, .device = -1};
	EngineJob	job = {.kind = JOB_APPEND, .count = set.rows, .vectors = rows};
	EngineError error = {0};

	must(ops->mirror_create(engine, &spec, &job.mirror, &error), &error, "mirror");
	job.versions = need(calloc(set.rows, sizeof(uint32_t)));
	ops->job_release(engine, run_job(engine, &job, "append"));
	free((void *) job.versions);
	return job.mirror;
}

static void
drop(Engine *engine, MirrorId mirror)
{
	EngineJob	job = {.kind = JOB_DROP, .mirror = mirror};

	ops->job_release(engine, run_job(engine, &job, "drop"));
}

/* Give a mirror the graph that another engine's link made. */
static void
set_graph(Engine *engine, MirrorId mirror, const LinkResult *result)
{
	EngineJob	graph = {.kind = JOB_GRAPH, .mirror = mirror, .count = result->count,
		.slots = result->slots, .rows = result->rows};
	EngineJob	seeds = {.kind = JOB_SEEDS, .mirror = mirror, .count = result->nseeds,
		.slots = result->seeds};

	ops->job_release(engine, run_job(engine, &graph, "graph"));
	ops->job_release(engine, run_job(engine, &seeds, "seeds"));
}

/* Ask count queries from `first` on together; returns the seconds. */
static double
ask(Engine *engine, MirrorId mirror, SearchMethod method, uint32_t ef, uint32_t first,
	uint32_t count, SearchResult *results)
{
	static EngineQuery all[QUERIES];
	static EngineQuery *pointers[QUERIES];
	EngineError error = {0};
	uint32_t	left = count;
	double		start;

	memset(all, 0, count * sizeof(EngineQuery));
	for (uint32_t i = 0; i < count; i++)
	{
		all[i].mirror = mirror;
		all[i].method = method;
		all[i].k = K;
		all[i].ef = ef;
		all[i].vector = queries + (size_t) (first + i) * set.dims;
		all[i].results = results + (size_t) (first + i) * K;
		pointers[i] = &all[i];
	}
	start = now();
	must(ops->submit(engine, pointers, count, &error), &error, "submit");
	while (left > 0)
	{
		static EngineQuery *done[QUERIES];
		uint32_t	n;

		must(ops->poll(engine, done, QUERIES, &n, &error), &error, "poll");
		for (uint32_t i = 0; i < n; i++)
			must(done[i]->status, &done[i]->error, "query");
		left -= n;
	}
	return now() - start;
}

/* The median of several batches. */
static double
measure(Engine *engine, MirrorId mirror, uint32_t batch)
{
	static SearchResult results[QUERIES * K];
	double		seconds[MAX_RUNS];

	for (int run = -WARM_UPS; run < (int) set.runs; run++)
	{
		double		taken = ask(engine, mirror, METHOD_GRAPH, set.ef,
								(uint32_t) (run + WARM_UPS) * batch % QUERIES, batch, results);

		if (run >= 0)
			seconds[run] = taken;
	}
	qsort(seconds, set.runs, sizeof(double), compare_doubles);
	return seconds[set.runs / 2];
}

/* Share of the true nearest, or as near ones, that are found. */
static double
recall(Engine *engine, MirrorId mirror, uint32_t ef, const SearchResult *truth)
{
	static SearchResult results[QUERIES * K];
	uint32_t	found = 0;

	for (uint32_t i = 0; i < QUERIES * K; i++)
		results[i].distance = INFINITY;
	(void) ask(engine, mirror, METHOD_GRAPH, ef, 0, QUERIES, results);
	for (uint32_t i = 0; i < QUERIES * K; i++)
		found += results[i].distance <= truth[i / K * K + K - 1].distance;
	return (double) found / (QUERIES * K);
}

static Figures
measure_all(Engine *engine, MirrorId mirror, const SearchResult *truth)
{
	Figures		figures = {0};

	figures.recall = recall(engine, mirror, set.ef, truth);
	figures.recall_twice = recall(engine, mirror, 2 * set.ef, truth);
	figures.alone = measure(engine, mirror, 1);
	figures.batch = measure(engine, mirror, BATCH);
	return figures;
}

static void
print_figures(const Figures *figures)
{
	printf(" %.3f | %.3f | %.1f | %.3f |", figures->recall, figures->recall_twice,
		   figures->alone * 1e6, BATCH / figures->batch / 1e6);
}

/* Measure a kind with both engines, and print a line. */
static void
report(Engine *engine, Engine *by_rows, const Kind *kind)
{
	static SearchResult truth[QUERIES * K];
	EngineJob	job = {.kind = JOB_LINK, .ef_construction = 100};
	LinkResult	result;
	Figures		coded,
				stored;
	MirrorId	other;
	JobId		link;
	double		start;

	change(kind, base, rows, set.rows, 1);
	change(kind, asked, queries, QUERIES, 2);
	job.mirror = append(engine);
	start = now();
	link = run_job(engine, &job, "link");
	start = now() - start;
	(void) ask(engine, job.mirror, METHOD_EXACT, 0, 0, QUERIES, truth);
	coded = measure_all(engine, job.mirror, truth);
	other = append(by_rows);
	must(ops->job_link_result(engine, link, &result), &(EngineError) {0}, "result");
	set_graph(by_rows, other, &result);
	stored = measure_all(by_rows, other, truth);
	printf("| %u | %u | %u | %s | %.2f |", set.dims, kind->large, kind->factor,
		   kind->lengths ? "10^-3 to 10^3" : "alike", start);
	print_figures(&coded);
	print_figures(&stored);
	printf("\n");
	ops->job_release(engine, link);
	drop(engine, job.mirror);
	drop(by_rows, other);
}

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
	fprintf(stderr,
			"usage: outliers --base FILE --query FILE -n ROWS -d DIMS [--engine-library FILE] [--metric l2|ip|cosine] [--ef N]\n"
			"       [--large LIST] [--factors LIST] [--seconds N] [--runs N]\n");
	exit(2);
}

static void
parse(int argc, char **argv)
{
	static const struct option options[] = {
		{"base", 1, NULL, 'b'}, {"query", 1, NULL, 'q'}, {"engine-library", 1, NULL, 'l'},
		{"metric", 1, NULL, 'm'}, {"ef", 1, NULL, 'e'}, {"large", 1, NULL, 'L'},
		{"factors", 1, NULL, 'f'}, {"seconds", 1, NULL, 's'}, {"runs", 1, NULL, 'r'},
		{NULL, 0, NULL, 0}};
	int			option;

	while ((option = getopt_long(argc, argv, "n:d:", options, NULL)) != -1)
		switch (option)
		{
			case 'b': set.base = optarg; break;
			case 'q': set.query = optarg; break;
			case 'l': set.library = optarg; break;
			case 'm': set.metric = optarg[0] == 'i' ? METRIC_IP : optarg[0] == 'c' ? METRIC_COSINE :
					METRIC_L2; break;
			case 'e': set.ef = (uint32_t) atoi(optarg); break;
			case 'L': set.nlarge = numbers(optarg, set.large); break;
			case 'f': set.nfactors = numbers(optarg, set.factors); break;
			case 's': set.seconds = atof(optarg); break;
			case 'r': set.runs = (uint32_t) atoi(optarg); break;
			case 'n': set.rows = (uint32_t) atoi(optarg); break;
			case 'd': set.dims = (uint32_t) atoi(optarg); break;
			default: usage();
		}
	if (set.base == NULL || set.query == NULL || set.runs == 0 || set.runs > MAX_RUNS)
		usage();
}

/* Open an engine that measures codes, or stored rows. */
static Engine *
open_engine(bool by_rows)
{
	EngineConfig config = {.device = -1, .memory_limit = (uint64_t) 8 << 30};
	EngineError error = {0};
	Engine	   *engine;

	config.forced.search_by_rows = by_rows;
	must(ops->open(&config, &engine, &error), &error, "open");
	return engine;
}

int
main(int argc, char **argv)
{
	static const char *const metrics[] = {"", "l2", "ip", "cosine"};
	Engine	   *engine,
			   *by_rows;
	double		start = now();

	setvbuf(stdout, NULL, _IOLBF, 0);
	parse(argc, argv);
	ops = engine_of(set.library);
	base = read_vectors(set.base, set.rows);
	asked = read_vectors(set.query, QUERIES);
	rows = need(malloc((size_t) set.rows * set.dims * sizeof(float)));
	queries = need(malloc((size_t) QUERIES * set.dims * sizeof(float)));
	engine = open_engine(false);
	by_rows = open_engine(true);
	printf("\n%u rows, %s, ef %u and %u; then the same by stored rows\n\n", set.rows,
		   metrics[set.metric], set.ef, 2 * set.ef);
	printf(
		"| dimensions | large | factor | lengths | linked, s | recall@10 | at twice ef | alone, us | M queries/s of %u | recall@10 | at twice ef | alone, us | M queries/s of %u |\n"
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
		BATCH, BATCH);
	report(engine, by_rows, &(Kind) {0, 1, false});
	report(engine, by_rows, &(Kind) {0, 1, true});
	for (uint32_t f = set.nfactors; f-- > 0;)
		for (uint32_t i = 0; i < set.nlarge; i++)
			if (now() - start < set.seconds)
				report(engine, by_rows, &(Kind) {set.large[i], set.factors[f], false});
			else
				printf("* %u elements, factor %u: left out for want of time\n", set.large[i],
					   set.factors[f]);
	ops->close(engine);
	ops->close(by_rows);
	return 0;
}
