/*
 * engine_lists.c
 *		What mirrors with lists find, and how fast: a plain program over
 *		engine.h.
 *
 *	engine_lists --base base.f32 --query query.f32 -n ROWS -d DIMS [-q QUERIES]
 *		[--lists N] [--probes MOST] [--threads N] [--metric l2|ip|cosine]
 *		[--only KIND] [--near ROWS] [--fine yes] [--engine-library FILE]
 *
 * For each quantizer the rows are appended, trained on, linked; then all
 * queries are asked at once with more and more probes. Columns: rows re-ranked
 * at most (0: by bounds); share of the 10 nearest that is found; codes
 * estimated and rows measured for a query; thousands of queries a second of the
 * wall's clock and, because the machine may do other work too, of a
 * processor's; microseconds of a query that is alone, and of batches of 64,
 * 256, 1,024 and 10,000, from submit to the last answer. Markdown. With --near
 * the other rows become near-duplicates of so many first ones: 0.98 of those
 * and 0.02 of themselves. With --fine probes do not only double: 4, 6, 8, 12.
 */
#include <math.h>
#include <string.h>

#include "program.h"

#define K			10
#define ALONE		200			/* queries that are asked one after another */
#define REPEATS		20			/* of a batch, of which the median counts */
#define BATCHES		4

static const uint32_t batches[BATCHES] = {64, 256, 1024, 10000};

typedef struct Quantizing
{
	const char *name;
	ListSpec	spec;
	uint32_t	rerank;			/* beside 0, if not 0; pq's bounds exclude little */
} Quantizing;

static const EngineOps *ops;
static Engine *engine;
static MirrorId mirror;
static const char *base_path;
static const char *query_path;
static const char *only;
static const char *library;
static uint32_t rows;
static uint32_t dims;
static uint32_t queries = 10000;
static uint32_t lists = 1000;
static uint32_t near;			/* rows that the others are near to; 0: they stay */
static uint32_t max_list_probes = UINT32_MAX;
static bool fine;				/* one number of probes between two powers of two */
static int	threads = 2;
static Metric metric = METRIC_L2;
static float *base;
static float *query;
static SearchResult *truth;

/* Seconds that this process has been on processors. */
static double
processor_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

static float *
read_vectors(const char *path, uint32_t count)
{
	FILE	   *file = fopen(path, "rb");
	float	   *vectors = need(malloc((size_t) count * dims * sizeof(float)));

	if (file == NULL || fread(vectors, (size_t) dims * sizeof(float), count, file) != count)
	{
		fprintf(stderr, "%s: has no %u vectors of %u elements\n", path, count, dims);
		exit(1);
	}
	fclose(file);
	return vectors;
}

/* Run a job; returns the seconds of wall clock and processors. */
static void
run_job(EngineJob *job, double *wall, double *processor)
{
	struct timespec pause = {0, 200000};
	EngineError error = {0};
	JobProgress progress = {0};
	double		begun = now();
	double		used = processor_seconds();
	JobId		id;

	job->mirror = mirror;
	must(ops->job_submit(engine, job, &id, &error), &error, "job");
	while (!progress.completed)
	{
		(void) ops->job_poll(engine, id, &progress);
		nanosleep(&pause, NULL);
	}
	must(progress.status, &progress.error, "job");
	ops->job_release(engine, id);
	*wall = now() - begun;
	*processor = processor_seconds() - used;
}

/* Ask count queries at once; results lie K apart. */
static void
ask(EngineQuery *asked, uint32_t count)
{
	EngineQuery **all = need(calloc(count, sizeof(*all)));
	EngineQuery *completed[1024];
	struct timespec pause = {0, 20000};
	EngineError error = {0};
	uint32_t	done = 0;

	for (uint32_t i = 0; i < count; i++)
		all[i] = &asked[i];
	must(ops->submit(engine, all, count, &error), &error, "submit");
	while (done < count)
	{
		uint32_t	some;

		must(ops->poll(engine, completed, 1024, &some, &error), &error, "poll");
		for (uint32_t i = 0; i < some; i++)
			must(completed[i]->status, &completed[i]->error, "query");
		done += some;
		/* a GPU's engine leaves the processor to this thread */
		if (some == 0 && count > 1 && library == NULL)
			nanosleep(&pause, NULL);
	}
	free(all);
}

/* Queries of a method. */
static EngineQuery *
make_queries(SearchMethod method, uint32_t probes, uint32_t rerank, SearchResult *results)
{
	EngineQuery *made = need(calloc(queries, sizeof(EngineQuery)));

	for (uint32_t i = 0; i < queries; i++)
	{
		made[i].mirror = mirror;
		made[i].method = method;
		made[i].k = K;
		made[i].ef = K;
		made[i].probes = probes;
		made[i].rerank = rerank;
		made[i].vector = query + (size_t) i * dims;
		made[i].results = results + (size_t) i * K;
	}
	return made;
}

/* Microseconds of a query that is alone: the median. */
static double
measure_alone(EngineQuery *made)
{
	double		times[ALONE];

	for (uint32_t i = 0; i < ALONE; i++)
	{
		double		begun = now();
		uint32_t	at = i;

		made[i % queries].lone = true;
		ask(&made[i % queries], 1);
		begun = now() - begun;
		for (; at > 0 && times[at - 1] > begun; at--)
			times[at] = times[at - 1];
		times[at] = begun;
	}
	return times[ALONE / 2] * 1e6;
}

/* Microseconds of a batch: the median. */
static double
measure_batch(EngineQuery *made, uint32_t count)
{
	double		times[REPEATS];

	for (uint32_t i = 0; i < REPEATS; i++)
	{
		uint32_t	first = queries > count ? i * count % (queries - count) : 0;
		double		begun = now();
		uint32_t	at = i;

		ask(made + first, count < queries ? count : queries);
		begun = now() - begun;
		for (; at > 0 && times[at - 1] > begun; at--)
			times[at] = times[at - 1];
		times[at] = begun;
	}
	return times[REPEATS / 2] * 1e6;
}

/* Ask with a number of probes; returns the recall. */
static double
measure(const Quantizing *by, uint32_t probes, uint32_t rerank)
{
	SearchResult *results = need(malloc((size_t) queries * K * sizeof(SearchResult)));
	EngineQuery *made = make_queries(METHOD_IVFPQ, probes, rerank, results);
	double		wall = INFINITY;
	double		processor = INFINITY;
	uint64_t	hits = 0;
	uint64_t	codes = 0;
	uint64_t	measured = 0;

	for (int run = 0; run < 3; run++)
	{
		double		begun = now();
		double		used = processor_seconds();

		ask(made, queries);
		used = processor_seconds() - used;
		begun = now() - begun;
		wall = begun < wall ? begun : wall;
		processor = used < processor ? used : processor;
	}
	for (uint32_t i = 0; i < queries; i++)
	{
		for (uint32_t j = 0; j < made[i].count; j++)
			hits += made[i].results[j].distance <= truth[(size_t) i * K + K - 1].distance;
		codes += made[i].counters.iterations;
		measured += made[i].counters.distances;
	}
	printf("| %s | %u | %u | %.4f | %.0f | %.1f | %.1f | %.1f |", by->name, probes, rerank,
		   (double) hits / queries / K, (double) codes / queries, (double) measured / queries,
		   queries / wall / 1e3, queries / processor / 1e3);
	for (uint32_t i = 0; i < BATCHES; i++)
		printf(" %.0f |", measure_batch(made, batches[i]));
	printf(" %.0f |\n", measure_alone(made));
	fflush(stdout);
	free(results);
	free(made);
	return (double) hits / queries / K;
}

/* Make a mirror and load it. */
static void
load(const ListSpec *spec)
{
	MirrorSpec	made = {.dims = dims, .type = ELEMENT_FLOAT, .metric = metric,
		.method = METHOD_IVFPQ, .degree = 1, .capacity = rows, .residency = RESIDENCY_FULL,
		.placement = PLACEMENT_SINGLE, .device = -1, .lists = *spec};
	uint32_t   *versions = need(calloc(rows, sizeof(uint32_t)));
	EngineJob	append = {.kind = JOB_APPEND, .count = rows, .versions = versions, .vectors = base};
	EngineError error = {0};
	double		wall,
				processor;

	made.lists.lists = lists;
	made.lists.seed = 1;
	must(ops->mirror_create(engine, &made, &mirror, &error), &error, "mirror");
	run_job(&append, &wall, &processor);
	free(versions);
}

/* Make rows near-duplicates of the first ones. */
static void
bring_near(void)
{
	for (uint32_t i = near; near > 0 && i < rows; i++)
		for (uint32_t j = 0; j < dims; j++)
		{
			float	   *at = &base[(size_t) i * dims + j];

			*at = 0.98f * base[(size_t) (i % near) * dims + j] + 0.02f * *at;
		}
}

static void
find_truth(void)
{
	EngineQuery *made;

	truth = need(malloc((size_t) queries * K * sizeof(SearchResult)));
	made = make_queries(METHOD_EXACT, 0, 0, truth);
	ask(made, queries);
	free(made);
}

/* The number of probes after this one. */
static uint32_t
next_probes(uint32_t probes)
{
	if (fine && probes >= 4)
		return (probes & (probes - 1)) == 0 ? probes / 2 * 3 : probes / 3 * 4;
	return probes * 2;
}

static void
measure_quantizer(const Quantizing *by)
{
	EngineJob	train = {.kind = JOB_TRAIN};
	EngineJob	link = {.kind = JOB_LINK};
	EngineJob	drop = {.kind = JOB_DROP};
	EngineError error = {0};
	MirrorInfo	info;
	double		wall[2],
				processor[2];

	load(&by->spec);
	if (truth == NULL)
		find_truth();
	run_job(&train, &wall[0], &processor[0]);
	run_job(&link, &wall[1], &processor[1]);
	must(ops->mirror_info(engine, mirror, &info, &error), &error, "mirror");
	printf("\n%s: trained in %.2f s (%.2f s of processors), linked in %.2f s (%.2f), %.1f MB with "
		   "the rows' %.1f\n\n", by->name, wall[0], processor[0], wall[1], processor[1],
		   (double) info.bytes / 1e6, (double) rows * dims * 4 / 1e6);
	printf("| codes | probes | re-rank | recall@10 | codes a query | measured | k/s | k/s of a "
		   "processor | 64, us | 256, us | 1,024, us | 10,000, us | alone, us |\n"
		   "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
	for (uint32_t probes = 1; probes <= lists && probes <= max_list_probes;
		 probes = next_probes(probes))
		if (measure(by, probes, by->rerank) > 0.995)
			break;
	run_job(&drop, &wall[0], &processor[0]);
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
		else if (strcmp(argv[i], "--threads") == 0)
			threads = atoi(value);
		else if (strcmp(argv[i], "--probes") == 0)
			max_list_probes = (uint32_t) atoi(value);
		else if (strcmp(argv[i], "--only") == 0)
			only = value;
		else if (strcmp(argv[i], "--engine-library") == 0)
			library = value;
		else if (strcmp(argv[i], "--fine") == 0)
			fine = strcmp(value, "yes") == 0;
		else if (strcmp(argv[i], "--near") == 0)
			near = (uint32_t) atoi(value);
		else if (strcmp(argv[i], "--metric") == 0)
			metric = strcmp(value, "ip") == 0 ? METRIC_IP
				: strcmp(value, "cosine") == 0 ? METRIC_COSINE : METRIC_L2;
	}
	if (base_path == NULL || query_path == NULL || rows == 0 || dims == 0)
	{
		fprintf(stderr, "usage: engine_lists --base FILE --query FILE -n ROWS -d DIMS [-q QUERIES] "
				"[--lists N] [--probes MOST] [--threads N] [--metric l2|ip|cosine] [--only KIND] "
				"[--near ROWS] [--fine yes] [--engine-library FILE]\n");
		exit(2);
	}
}

int
main(int argc, char **argv)
{
	EngineConfig config = {.device = -1};
	EngineError error = {0};
	EngineInfo	info;

	read_arguments(argc, argv);
	ops = engine_of(library);
	config.threads = threads;
	config.memory_limit = library == NULL ? UINT64_C(1) << 40 : 0;
	must(ops->open(&config, &engine, &error), &error, "open");
	ops->info(engine, &info);
	base = read_vectors(base_path, rows);
	bring_near();
	query = read_vectors(query_path, queries);
	printf("%s; %d threads; %u x %u, metric %d, %u lists, %u queries\n", info.device, threads, rows,
		   dims, (int) metric, lists, queries);
	{
		const Quantizing all[] = {
			{"rabitq, 1 bit", {.quantizer = QUANTIZER_RABITQ, .bits = 1}, 0},
			{"rabitq, 4 bits", {.quantizer = QUANTIZER_RABITQ, .bits = 4}, 0},
			{"int8", {.quantizer = QUANTIZER_INT8, .bits = 8}, 0},
			{"pq, 4 bits", {.quantizer = QUANTIZER_PQ, .bits = 4, .parts = (dims + 1) / 2}, 100},
			{"pq, 8 bits", {.quantizer = QUANTIZER_PQ, .bits = 8, .parts = (dims + 3) / 4}, 100},
			{"pq, 16 bytes, cooc off",
				{.quantizer = QUANTIZER_PQ, .bits = 8, .parts = dims < 16 ? dims : 16,
				 .cooc = COOC_OFF}, 100},
			{"pq, 16 bytes, cooc auto",
				{.quantizer = QUANTIZER_PQ, .bits = 8, .parts = dims < 16 ? dims : 16}, 100}};

		for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
			if (only == NULL || strncmp(all[i].name, only, strlen(only)) == 0)
				measure_quantizer(&all[i]);
	}
	ops->close(engine);
	return 0;
}
