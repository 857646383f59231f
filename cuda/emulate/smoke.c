/*
 * smoke.c
 *		A first look at a CUDA engine beside the CPU engine: the same mirror in both, the same questions, compared.
 *
 * Usage: smoke LIBRARY [rows [queries]]. LIBRARY is gpuann_cuda.so or its emulation. The conformance suite (test/) proves more; this
 * takes seconds, also under emulation.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../src/engine/engine.h"

#define DEGREE 16
#define MOST_K 3000

static int failures;
static uint64_t random_state = 88172645463325252u;

static uint32_t
next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t) (random_state >> 16);
}

static void
expect(bool good, const char *what)
{
	if (good)
		return;
	failures++;
	if (failures < 50)
		printf("FAILED: %s\n", what);
}

/* One engine with one mirror. */
typedef struct Side
{
	const EngineOps *ops;
	Engine *engine;
	MirrorId mirror;
} Side;

static void
run_job(Side *side, EngineJob job, LinkResult *link)
{
	JobProgress progress;
	EngineError error = {0};
	EngineQuery *done[1];
	uint32_t count;
	JobId id;

	job.mirror = side->mirror;
	if (side->ops->job_submit(side->engine, &job, &id, &error) != ENGINE_OK)
	{
		printf("job %d: %s\n", (int) job.kind, error.text);
		exit(1);
	}
	do
	{
		struct timespec nap = {0, 20000};

		if (side->ops->poll(side->engine, done, 0, &count, &error) != ENGINE_OK)
		{
			printf("poll: %s\n", error.text);
			exit(1);
		}
		side->ops->job_poll(side->engine, id, &progress);
		nanosleep(&nap, NULL);
	} while (!progress.completed);
	if (progress.status != ENGINE_OK)
	{
		printf("job %d failed: %s\n", (int) job.kind, progress.error.text);
		exit(1);
	}
	if (link != NULL)
		side->ops->job_link_result(side->engine, id, link); /* job stays until close */
	else
		side->ops->job_release(side->engine, id);
}

static void
run_queries(Side *side, EngineQuery *queries, uint32_t n)
{
	EngineQuery **all = malloc(n * sizeof(*all));
	EngineError error = {0};
	uint32_t left = n;

	for (uint32_t i = 0; i < n; i++)
	{
		queries[i].mirror = side->mirror;
		all[i] = &queries[i];
	}
	if (side->ops->submit(side->engine, all, n, &error) != ENGINE_OK)
	{
		printf("submit: %s\n", error.text);
		exit(1);
	}
	while (left > 0)
	{
		uint32_t count;

		if (side->ops->poll(side->engine, all, n, &count, &error) != ENGINE_OK)
		{
			printf("poll: %s\n", error.text);
			exit(1);
		}
		left -= count;
		for (uint32_t i = 0; i < count; i++)
			if (all[i]->status != ENGINE_OK)
				printf("query: %s\n", all[i]->error.text), failures++;
	}
	free(all);
}

/* Random vectors; every eighth of small integers, so that distances tie. */
static void *
make_vectors(ElementType type, uint32_t dims, uint32_t n)
{
	size_t bytes = engine_vector_bytes(type, dims);
	char *vectors = malloc(n * bytes);

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j < dims; j++)
		{
			bool coarse = i % 8 == 0;
			uint32_t r = next_random();

			if (type == ELEMENT_FLOAT)
				((float *) (vectors + i * bytes))[j] = coarse ? (float) (r % 3) : (float) (r % 65536) / 65536.0f - 0.5f;
			else
				((uint16_t *) (vectors + i * bytes))[j] =
					coarse ? (uint16_t) (r % 3 * 0x3C00 / 2) : (uint16_t) (0x3800 | (r & 0x83FF));
		}
	return vectors;
}

static void
open_side(Side *side, const EngineOps *ops, const MirrorSpec *spec)
{
	EngineConfig config = {0};
	EngineError error = {0};
	EngineInfo info;

	config.device = -1;
	config.threads = 2;
	side->ops = ops;
	if (ops->open(&config, &side->engine, &error) != ENGINE_OK ||
		ops->mirror_create(side->engine, spec, &side->mirror, &error) != ENGINE_OK)
	{
		printf("open: %d %s\n", (int) error.status, error.text);
		exit(1);
	}
	ops->info(side->engine, &info);
	(void) info;
}

static void
compare(Side *cpu, Side *cuda, EngineQuery *pattern, const char *vectors, size_t bytes, uint32_t n, const char *what,
		bool equal)
{
	EngineQuery *queries[2];
	SearchResult *results[2];
	uint32_t *traces[2];
	uint64_t same = 0,
			 total = 0;

	for (int s = 0; s < 2; s++)
	{
		queries[s] = calloc(n, sizeof(EngineQuery));
		results[s] = malloc((size_t) n * pattern->k * sizeof(SearchResult));
		traces[s] = malloc((size_t) n * 4096 * sizeof(uint32_t));
		memset(results[s], 0xEE, (size_t) n * pattern->k * sizeof(SearchResult));
		for (uint32_t i = 0; i < n; i++)
		{
			queries[s][i] = *pattern;
			queries[s][i].vector = vectors + i * bytes;
			queries[s][i].results = results[s] + (size_t) i * pattern->k;
			queries[s][i].trace = traces[s] + i * 4096;
			queries[s][i].trace_room = 4096;
		}
		run_queries(s == 0 ? cpu : cuda, queries[s], n);
	}
	for (uint32_t i = 0; i < n; i++)
	{
		EngineQuery *a = &queries[0][i],
					*b = &queries[1][i];

		total += a->count;
		if (equal)
		{
			char text[200];

			snprintf(text, sizeof(text), "%s: query %u: %u and %u results, traced %u and %u", what, i, a->count, b->count,
					 a->traced, b->traced);
			expect(a->count == b->count && a->traced == b->traced && a->rows == b->rows && a->position == b->position,
				   text);
			expect(memcmp(a->trace, b->trace, (a->traced < 4096 ? a->traced : 4096) * sizeof(uint32_t)) == 0, text);
			for (uint32_t j = 0; j < a->count && j < b->count; j++)
				if (a->results[j].slot != b->results[j].slot || a->results[j].version != b->results[j].version ||
					a->results[j].distance != b->results[j].distance)
				{
					printf("%s: query %u result %u: (%.17g, %u, %u) and (%.17g, %u, %u)\n", what, i, j,
						   a->results[j].distance, a->results[j].slot, a->results[j].version, b->results[j].distance,
						   b->results[j].slot, b->results[j].version);
					failures++;
					break;
				}
		}
		for (uint32_t j = 0; j < a->count; j++)
			for (uint32_t m = 0; m < b->count; m++)
				same += a->results[j].slot == b->results[m].slot;
		for (uint32_t j = 1; j < b->count; j++)
			expect(engine_before(b->results[j - 1].distance, b->results[j - 1].slot, b->results[j].distance,
								 b->results[j].slot),
				   "results in order, no slot twice");
	}
	printf("%-44s agreement %.4f  (expanded %u and %u, distances %u and %u)\n", what,
		   total > 0 ? (double) same / (double) total : 1.0, queries[0][0].counters.expanded,
		   queries[1][0].counters.expanded, queries[0][0].counters.distances, queries[1][0].counters.distances);
	expect(total == 0 || (double) same / (double) total > 0.9, what);
	for (int s = 0; s < 2; s++)
	{
		free(queries[s]);
		free(results[s]);
		free(traces[s]);
	}
}

/* All kinds of questions to both. */
static void
ask(Side *cpu, Side *cuda, const char *queries, size_t bytes, uint32_t n, uint32_t rows, const char *state)
{
	EngineQuery pattern = {0};
	uint64_t *bits = calloc(rows / 64 + 1, sizeof(uint64_t));
	char what[128];

#define ASK(name, equal) \
	snprintf(what, sizeof(what), "%s, %s", state, name); \
	compare(cpu, cuda, &pattern, queries, bytes, n, what, equal)

	for (uint32_t i = 0; i < rows; i++)
		if (next_random() % 3 == 0)
			bits[i / 64] |= UINT64_C(1) << (i % 64);
	pattern.method = METHOD_EXACT;
	pattern.k = 10;
	ASK("exact k 10", true);
	pattern.k = 1;
	ASK("exact k 1", true);
	pattern.k = 200;
	pattern.exclude = bits;
	pattern.exclude_slots = rows - 5;
	ASK("exact k 200 exclude", true);
	pattern.filter = bits;
	pattern.filter_slots = rows - 5;
	pattern.exclude = NULL;
	pattern.has_beyond = true;
	pattern.beyond_distance = 4.0;
	pattern.beyond_slot = 17;
	ASK("exact k 200 filter beyond", true);
	pattern.filter = NULL;
	pattern.k = MOST_K;
	ASK("exact k 3000 beyond", true);
	memset(&pattern, 0, sizeof(pattern));
	pattern.method = METHOD_GRAPH;
	pattern.k = 10;
	pattern.ef = 60;
	pattern.reference = true;
	ASK("reference", true);
	pattern.max_iterations = 7;
	ASK("reference, 7 iterations", true);
	pattern.max_iterations = 0;
	pattern.filter = bits;
	pattern.filter_slots = rows - 5;
	ASK("reference filter", true);
	pattern.has_beyond = true;
	pattern.beyond_distance = 4.0;
	ASK("reference filter beyond", true);
	pattern.filter = NULL;
	pattern.ef = 400;
	ASK("reference beyond ef 400", true);
	pattern.reference = false;
	ASK("graph beyond ef 400", false);
	pattern.has_beyond = false;
	ASK("graph ef 400", false);
	pattern.ef = 2000;
	pattern.k = 2000;
	ASK("graph ef 2000 k 2000", false);
	pattern.k = 10;
	pattern.ef = 60;
	ASK("graph ef 60", false);
	pattern.filter = bits;
	pattern.filter_slots = rows - 5;
	ASK("graph ef 60 filter", false);
	free(bits);
}

static void
change(Side *cpu, Side *cuda, EngineJob job)
{
	run_job(cpu, job, NULL);
	run_job(cuda, job, NULL);
}

static void
compare_info(Side *cpu, Side *cuda, const char *what)
{
	MirrorInfo a,
		b;

	cpu->ops->mirror_info(cpu->engine, cpu->mirror, &a, NULL);
	cuda->ops->mirror_info(cuda->engine, cuda->mirror, &b, NULL);
	if (a.rows != b.rows || a.linked != b.linked || a.pending != b.pending || a.dead != b.dead || a.seeds != b.seeds ||
		a.position != b.position)
	{
		printf("%s: rows %u %u linked %u %u pending %u %u dead %u %u seeds %u %u\n", what, a.rows, b.rows, a.linked,
			   b.linked, a.pending, b.pending, a.dead, b.dead, a.seeds, b.seeds);
		failures++;
	}
}

/* Load both sides with one graph, change it, and ask at every step. */
static void
run_case(const EngineOps *cpu_ops, const EngineOps *cuda_ops, ElementType type, Metric metric, uint32_t dims,
		 uint32_t rows, uint32_t nqueries)
{
	MirrorSpec spec = {dims, type, metric, METHOD_GRAPH, DEGREE, rows / 2, RESIDENCY_FULL, PLACEMENT_SINGLE, -1};
	size_t bytes = engine_vector_bytes(type, dims);
	char *vectors = make_vectors(type, dims, rows);
	char *queries = make_vectors(type, dims, nqueries);
	uint32_t *versions = malloc(rows * sizeof(uint32_t));
	uint32_t *slots = malloc(rows * sizeof(uint32_t));
	uint64_t *dead = calloc(rows / 64 + 1, sizeof(uint64_t));
	uint32_t part = rows / 10;
	LinkResult link;
	EngineJob job;
	Side cpu,
		cuda;

	printf("-- type %d metric %d dims %u\n", (int) type, (int) metric, dims);
	open_side(&cpu, cpu_ops, &spec);
	open_side(&cuda, cuda_ops, &spec);
	for (uint32_t i = 0; i < rows; i++)
		versions[i] = i * 3 + 1;
	dead[0] = 0x10;
	memset(&job, 0, sizeof(job));
	job.kind = JOB_APPEND;
	job.count = rows - part;
	job.versions = versions;
	job.vectors = vectors;
	job.dead = dead;
	job.has_position = true;
	job.position = 7;
	change(&cpu, &cuda, job);
	compare_info(&cpu, &cuda, "appended");
	ask(&cpu, &cuda, queries, bytes, nqueries < 8 ? nqueries : 8, rows - part, "all pending");

	/* link on the CPU; the same graph goes to the other side */
	memset(&job, 0, sizeof(job));
	job.kind = JOB_LINK;
	job.ef_construction = 64;
	run_job(&cpu, job, &link);
	memset(&job, 0, sizeof(job));
	job.kind = JOB_GRAPH;
	job.count = link.count;
	job.slots = link.slots;
	job.rows = link.rows;
	run_job(&cuda, job, NULL);
	job.kind = JOB_SEEDS;
	job.slots = link.seeds;
	job.count = link.nseeds;
	run_job(&cuda, job, NULL);
	compare_info(&cpu, &cuda, "linked");
	ask(&cpu, &cuda, queries, bytes, nqueries, rows - part, "linked");

	/* dead, overwritten and appended rows, after a gap */
	for (uint32_t i = 0; i < part; i++)
		slots[i] = i * 7;
	memset(&job, 0, sizeof(job));
	job.kind = JOB_DEAD;
	job.count = part;
	job.slots = slots;
	job.versions = versions + part;
	change(&cpu, &cuda, job);
	job.kind = JOB_OVERWRITE;
	job.slots = slots + part / 2;
	job.count = part / 4;
	job.vectors = vectors + (rows - part) * bytes;
	change(&cpu, &cuda, job);
	memset(&job, 0, sizeof(job));
	job.kind = JOB_APPEND;
	job.first_slot = rows - part + 40;
	job.count = part - 40;
	job.versions = versions;
	job.vectors = vectors + (rows - part + 40) * bytes;
	job.has_position = true;
	job.position = 9;
	change(&cpu, &cuda, job);
	compare_info(&cpu, &cuda, "changed");
	ask(&cpu, &cuda, queries, bytes, nqueries, rows, "changed");

	/* each links by itself */
	memset(&job, 0, sizeof(job));
	job.kind = JOB_LINK;
	job.ef_construction = 64;
	change(&cpu, &cuda, job);
	compare_info(&cpu, &cuda, "linked again");
	{
		uint32_t *row_a = malloc(DEGREE * rows * sizeof(uint32_t)),
				 *row_b = malloc(DEGREE * rows * sizeof(uint32_t));
		uint32_t *version_a = malloc(rows * sizeof(uint32_t)),
				 *version_b = malloc(rows * sizeof(uint32_t));

		for (uint32_t i = 0; i < rows; i++)
			slots[i] = i;
		expect(cpu.ops->mirror_rows(cpu.engine, cpu.mirror, slots, rows, row_a, version_a, NULL) == ENGINE_OK, "rows");
		expect(cuda.ops->mirror_rows(cuda.engine, cuda.mirror, slots, rows, row_b, version_b, NULL) == ENGINE_OK, "rows");
		expect(memcmp(version_a, version_b, rows * sizeof(uint32_t)) == 0, "equal versions");
		free(row_a);
		free(row_b);
		free(version_a);
		free(version_b);
	}
	memset(&job, 0, sizeof(job));
	job.kind = JOB_DROP;
	change(&cpu, &cuda, job);
	cpu.ops->close(cpu.engine);
	cuda.ops->close(cuda.engine);
	free(vectors);
	free(queries);
	free(versions);
	free(slots);
	free(dead);
}

int
main(int argc, char **argv)
{
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	EngineEntry entry = library != NULL ? (EngineEntry) dlsym(library, ENGINE_ENTRY_SYMBOL) : NULL;
	uint32_t rows = argc > 2 ? (uint32_t) atoi(argv[2]) : 2000;
	uint32_t queries = argc > 3 ? (uint32_t) atoi(argv[3]) : 20;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (entry == NULL)
	{
		printf("%s\n", argc > 1 ? dlerror() : "usage: smoke LIBRARY [rows [queries]]");
		return 2;
	}
	run_case(cpu_engine_ops(), entry(), ELEMENT_FLOAT, METRIC_L2, 17, rows, queries);
	run_case(cpu_engine_ops(), entry(), ELEMENT_FLOAT, METRIC_COSINE, 128, rows, queries);
	run_case(cpu_engine_ops(), entry(), ELEMENT_HALF, METRIC_IP, 40, rows, queries);
	run_case(cpu_engine_ops(), entry(), ELEMENT_HALF, METRIC_L2, 9, rows, queries);
	printf("%d failures\n", failures);
	return failures > 0;
}
