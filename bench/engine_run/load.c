/*
 * load.c
 *		Fill the mirror that is measured: append, link or take a graph from a
 *		file, and what is asked for on the way (rows linked later, rows that die,
 *		repairs).
 */
#include <sys/stat.h>

#include "run.h"

#define GRAPH_SLICE		65536u	/* rows of a graph file per job */
#define JOB_POLL_US		1000	/* between looks at a job that wakes nobody: polling all the time
								 * takes a processor, and the engine's lock */
#define WAKE_POLL_US	10

static uint32_t seen_wakes;		/* before the last poll of a job */

/* Read a file of exactly so many bytes, or its beginning. */
void *
read_file(const char *path, size_t bytes)
{
	void	   *memory = need(malloc(bytes + 1));
	FILE	   *file = fopen(path, "rb");

	if (file == NULL || fread(memory, 1, bytes, file) != bytes)
	{
		fprintf(stderr, "cannot read %zu bytes of %s\n", bytes, path);
		exit(1);
	}
	fclose(file);
	return memory;
}

/* Wait until the engine calls, or for a while. */
static void
await_wake(void)
{
	const struct timespec pause = {0, WAKE_POLL_US * 1000};

	for (uint32_t i = 0; wakes == seen_wakes && i < JOB_POLL_US / WAKE_POLL_US; i++)
		(void) nanosleep(&pause, NULL);
}

/* Run a job to its end; keep: the caller releases it. */
JobId
run_job(EngineJob job, const char *what, bool keep)
{
	EngineError error = {0};
	JobProgress progress;
	EngineQuery *none[1];
	uint32_t	count;
	double		start = now();
	JobId		id;

	job.mirror = mirror;
	must(ops->job_submit(engine, &job, &id, &error), &error, what);
	for (;;)
	{
		seen_wakes = wakes;
		must(ops->poll(engine, none, 0, &count, &error), &error, what);
		ops->job_poll(engine, id, &progress);
		if (progress.completed)
			break;
		await_wake();
	}
	must(progress.status, &progress.error, what);
	if (what[0] != 0)
		printf("* %s: %u rows in %.2f s\n", what, progress.total, now() - start);
	if (!keep)
		ops->job_release(engine, id);
	return id;
}

/* Link, and write graph and seeds to the graph file. */
static void
link_rows(void)
{
	EngineJob	job = {.kind = JOB_LINK, .ef_construction = set.ef_construction};
	JobId		id = run_job(job, "linked", true);
	LinkResult	result;
	FILE	   *file;

	if (ops->job_link_result(engine, id, &result) == ENGINE_OK && set.graph != NULL &&
		result.count == set.rows && set.more == 0)
	{
		file = fopen(set.graph, "wb");
		if (file == NULL || fwrite(&result.nseeds, sizeof(uint32_t), 1, file) != 1 ||
			fwrite(result.seeds, sizeof(uint32_t), result.nseeds, file) != result.nseeds ||
			fwrite(result.rows, sizeof(uint32_t) * set.degree, result.count, file) !=
				result.count ||
			fclose(file) != 0)
		{
			fprintf(stderr, "cannot write %s\n", set.graph);
			exit(1);
		}
	}
	ops->job_release(engine, id);
}

/* Take graph and seeds from the graph file. */
static void
load_graph(void)
{
	uint32_t   *slots = need(malloc(sizeof(uint32_t) * GRAPH_SLICE));
	uint32_t   *rows = need(malloc(sizeof(uint32_t) * GRAPH_SLICE * set.degree));
	uint32_t   *seeds = need(malloc(sizeof(uint32_t) * 65536));
	EngineJob	job = {.kind = JOB_SEEDS, .slots = seeds};
	FILE	   *file = fopen(set.graph, "rb");
	double		start = now();

	if (file == NULL || fread(&job.count, sizeof(uint32_t), 1, file) != 1 || job.count > 65536 ||
		fread(seeds, sizeof(uint32_t), job.count, file) != job.count)
	{
		fprintf(stderr, "cannot read %s\n", set.graph);
		exit(1);
	}
	run_job(job, "", false);
	for (uint32_t first = 0; first < set.rows; first += GRAPH_SLICE)
	{
		uint32_t	count = set.rows - first < GRAPH_SLICE ? set.rows - first : GRAPH_SLICE;
		EngineJob	graph = {.kind = JOB_GRAPH, .count = count, .slots = slots, .rows = rows};

		if (fread(rows, sizeof(uint32_t) * set.degree, count, file) != count)
		{
			fprintf(stderr, "%s is too short\n", set.graph);
			exit(1);
		}
		for (uint32_t i = 0; i < count; i++)
			slots[i] = first + i;
		run_job(graph, "", false);
	}
	printf("* graph from %s in %.2f s\n", set.graph, now() - start);
	fclose(file);
	free(slots);
	free(rows);
	free(seeds);
}

/* Link the rows that were held back; beside it, if wanted, lone queries. */
static void
link_more(const char *vectors)
{
	EngineJob	job = {.kind = JOB_LINK, .ef_construction = set.ef_construction, .mirror = mirror};
	EngineError error = {0};
	JobId		id;

	if (!set.beside)
	{
		run_job(job, "linked more", false);
		return;
	}
	lone_queries(vectors, 0, "alone");
	must(ops->job_submit(engine, &job, &id, &error), &error, "link");
	lone_queries(vectors, id, "beside a link");
	ops->job_release(engine, id);
	run_job(job, "linked the rest", false);
}

/*
 * How many of the nearest 10 rows of a row are among the candidates that
 * linking it anew would find: before pruning.
 */
static void
compare_candidates(const char *vectors)
{
	size_t		bytes = engine_vector_bytes(set.type, set.dims);
	static SearchResult truth[11];
	static SearchResult found[11];
	uint64_t	hits = 0;
	uint64_t	all = 0;

	for (uint32_t i = 0; i < set.candidates; i++)
	{
		const char *vector = vectors + (size_t) ((uint64_t) i * set.rows / set.candidates) * bytes;
		SearchCounters counters;
		uint32_t	ntruth;
		uint32_t	nfound;

		ask_row(vector, METHOD_EXACT, 0, truth, 11, &ntruth, &counters);
		ask_row(vector, METHOD_GRAPH, set.ef_construction, found, 11, &nfound, &counters);
		for (uint32_t j = 1; j < ntruth; j++, all++)
			for (uint32_t m = 0; m < nfound; m++)
				hits += truth[j].slot == found[m].slot;
	}
	printf("* candidates before pruning: recall@10 %.4f over %u rows\n",
		   all > 0 ? (double) hits / (double) all : 0, set.candidates);
}

/* Let rows die at random. */
static void
kill_rows(void)
{
	uint32_t   *slots = need(malloc(sizeof(uint32_t) * set.rows));
	uint32_t   *versions = need(malloc(sizeof(uint32_t) * set.rows));
	EngineJob	job = {.kind = JOB_DEAD, .slots = slots, .versions = versions};
	uint64_t	state = 3;

	for (uint32_t row = 0; row < set.rows; row++)
	{
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		if ((state >> 33) % 100 >= set.dead)
			continue;
		versions[job.count] = 1;
		slots[job.count++] = row;
	}
	run_job(job, "died", false);
	free(slots);
	free(versions);
}

/*
 * Repair what is left: by ranges of slots, then all that is still to do. Times
 * of jobs and of copying results out are in the figure.
 */
static void
repair_rows(void)
{
	uint32_t   *slots = need(malloc(sizeof(uint32_t) * set.rows));
	double		start = now();
	double		longest = 0;
	uint64_t	changed = 0;

	for (uint32_t row = 0; row < set.rows; row++)
		slots[row] = row;
	for (uint32_t i = set.repair == 1 ? 1 : 0; i <= set.repair; i++)
	{
		uint32_t	first = (uint32_t) ((uint64_t) set.rows * i / set.repair);
		uint32_t	end = (uint32_t) ((uint64_t) set.rows * (i + 1) / set.repair);
		EngineJob job = {.kind = JOB_REPAIR,
						 .ef_construction = set.ef_construction,
						 .slots = i < set.repair ? slots + first : NULL,
						 .count = i < set.repair ? end - first : 0};
		double		begun = now();
		JobId		id = run_job(job, i == set.repair ? "repaired, the last job" : "", true);
		LinkResult	result;

		must(ops->job_link_result(engine, id, &result), &(EngineError) {0}, "result");
		changed += result.count;
		ops->job_release(engine, id);
		longest = now() - begun > longest ? now() - begun : longest;
	}
	printf("* repaired in %.2f s: %llu changed rows came back, the longest job took %.3f s\n",
		   now() - start, (unsigned long long) changed, longest);
	free(slots);
}

/* Fill a mirror. */
void
load(void)
{
	size_t		bytes = engine_vector_bytes(set.type, set.dims);
	MirrorSpec spec = {set.dims,	   set.type,		 set.metric,
					   METHOD_GRAPH,   set.degree,		 set.rows,
					   RESIDENCY_FULL, PLACEMENT_SINGLE, -1,			 {0}};
	MirrorInfo	info;
	EngineJob	job = {.kind = JOB_APPEND, .count = set.rows - set.more};
	EngineError error = {0};
	struct stat found;
	void	   *vectors = read_file(set.base, bytes * set.rows);
	uint32_t   *versions = need(calloc(set.rows, sizeof(uint32_t)));

	if (set.host_rows > 0)
		spec.residency = RESIDENCY_COMPRESSED;
	must(ops->mirror_create(engine, &spec, &mirror, &error), &error, "mirror");
	job.vectors = vectors;
	job.versions = versions;
	run_job(job, "appended", false);
	must(ops->mirror_info(engine, mirror, &info, &error), &error, "info");
	if (set.host_rows > 0)
		printf("* of the rows %.0f MiB are in host memory\n", info.host_bytes / 1048576.0);
	if (set.graph != NULL && stat(set.graph, &found) == 0)
		load_graph();
	else
		link_rows();
	if (set.more > 0)
	{
		job.first_slot = job.count;
		job.count = set.more;
		job.vectors = (const char *) vectors + bytes * job.first_slot;
		run_job(job, "appended more", false);
		link_more((const char *) vectors);
	}
	if (set.candidates > 0)
		compare_candidates(vectors);
	if (set.dead > 0)
		kill_rows();
	if (set.repair > 0)
		repair_rows();
	free(vectors);
	free(versions);
}
