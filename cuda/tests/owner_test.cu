/*
 * owner_test.cu
 *		The owner's thread must never block: it waits for no copy from pageable
 *		memory, and gives a hanging device up after its time limit.
 *
 * Linked with the engine on the emulator, which counts such copies and hangs on
 * request.
 */
#include <string.h>
#include <time.h>
#include <vector>

#include "cuda/query/cuda_engine.h"
#include "cuda/query/patience.h"
#include "cuda/tests/testing.cuh"

#define DIMS 32u
#define ROWS 1200u
#define LISTS 16u
#define QUERIES 40u
#define K 5u
#define HANG_SECONDS 60.0

extern "C" const EngineOps *gpuann_engine_ops(void);

static const EngineOps *ops;
static Engine *engine;
static MirrorId mirror_id;
static float rows[ROWS][DIMS];
static uint32_t versions[ROWS];

static const CudaEngine *
within(void)
{
	return (const CudaEngine *) (const void *) engine;
}

/* Exit if a precondition of all tests fails. */
static void
need(EngineStatus status, const EngineError *error)
{
	if (status == ENGINE_OK)
		return;
	printf("Bail out! %s\n", error->text);
	exit(1);
}

static double
seconds(void)
{
	return (double) clock_us() / 1e6;
}

/* Run a job of the mirror. */
static void
run(EngineJob job)
{
	struct timespec nap = {0, 50 * 1000};
	JobProgress progress = {};
	EngineError error = {};
	JobId id;

	job.mirror = mirror_id;
	need(ops->job_submit(engine, &job, &id, &error), &error);
	for (;;)
	{
		need(ops->job_poll(engine, id, &progress), &error);
		if (progress.completed)
			break;
		nanosleep(&nap, NULL);
	}
	need(progress.status, &progress.error);
	ops->job_release(engine, id);
}

static void
run_kind(JobKind kind, uint32_t count)
{
	EngineJob job = {};

	job.kind = kind;
	job.count = count;
	job.versions = versions;
	job.vectors = kind == JOB_APPEND ? (const void *) rows : NULL;
	job.rounds = 1;
	job.ef_construction = 16;
	run(job);
}

/*
 * Open an engine with a mirror of all rows, linked or pending. Rows with one
 * outlying element have rotated codes.
 */
static void
begin(SearchMethod method, bool linked)
{
	EngineConfig config = {};
	MirrorSpec spec = {};
	EngineError error = {};

	for (uint32_t i = 0; i < ROWS; i++)
		for (uint32_t j = 0; j < DIMS; j++)
			rows[i][j] = (float) random_below(1000) / 1000 * (j == 0 ? 1000 : 1);
	config.device = -1;
	need(ops->open(&config, &engine, &error), &error);
	spec.dims = DIMS;
	spec.type = ELEMENT_FLOAT;
	spec.metric = METRIC_L2;
	spec.method = method;
	spec.degree = method == METHOD_GRAPH ? 16 : 1;
	spec.capacity = ROWS;
	spec.residency = RESIDENCY_FULL;
	spec.placement = PLACEMENT_SINGLE;
	spec.device = -1;
	if (method == METHOD_IVFPQ)
	{
		spec.lists.lists = LISTS;
		spec.lists.quantizer = QUANTIZER_INT8;
		spec.lists.bits = 8;
	}
	need(ops->mirror_create(engine, &spec, &mirror_id, &error), &error);
	run_kind(JOB_APPEND, ROWS);
	if (method == METHOD_IVFPQ)
		run_kind(JOB_TRAIN, 0);
	if (linked)
		run_kind(JOB_LINK, 0);
}

/* Queries for rows, with space for their answers. */
struct Asked
{
	EngineQuery queries[QUERIES];
	SearchResult results[QUERIES][K];
};

static void
submit(Asked *asked, SearchMethod method, const uint64_t *filter)
{
	EngineQuery *all[QUERIES];
	EngineError error = {};

	memset(asked, 0, sizeof(*asked));
	for (uint32_t i = 0; i < QUERIES; i++)
	{
		EngineQuery *query = all[i] = &asked->queries[i];

		query->mirror = mirror_id;
		query->method = method;
		query->k = K;
		query->ef = 20;
		query->probes = 2;
		query->vector = rows[i * 7];
		query->results = asked->results[i];
		query->filter = filter;
		query->filter_slots = filter != NULL ? ROWS : 0;
	}
	need(ops->submit(engine, all, QUERIES, &error), &error);
}

/* Poll until all queries are answered or the engine fails. */
static EngineStatus
await_answers(EngineError *error)
{
	EngineQuery *completed[QUERIES];
	EngineStatus status = ENGINE_OK;
	double until = seconds() + HANG_SECONDS;
	uint32_t answered = 0;
	uint32_t count;

	while (answered < QUERIES && status == ENGINE_OK && seconds() < until)
	{
		status = ops->poll(engine, completed, QUERIES, &count, error);
		answered += count;
	}
	return answered < QUERIES && status == ENGINE_OK ? ENGINE_BUSY : status;
}

/* Time limit of the work in flight, in microseconds. */
static uint64_t
explained_us(void)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < BATCH_STREAMS; i++)
		if (within()->streams[i].busy)
			sum += within()->streams[i].work_us;
	return sum;
}

/*
 * Let the device hang with a batch in flight; returns the time limit of its
 * work.
 */
static uint64_t
test_stall(const char *what, SearchMethod method, bool lists)
{
	static Asked asked;
	EngineError error = {};
	EngineStatus status;
	uint64_t explained;
	double began;
	char text[128];

	begin(lists ? METHOD_IVFPQ : METHOD_GRAPH, lists);
	setenv("GPUANN_EMULATE_PATIENCE", "100", 1);
	emulate_stall();
	began = seconds();
	submit(&asked, method, NULL);
	explained = explained_us();
	status = await_answers(&error);
	snprintf(text, sizeof(text), "a device that hangs with %s is given up", what);
	say(status == ENGINE_FAILED && strstr(error.text, "a batch that does not end") != NULL, text);
	snprintf(text, sizeof(text), "%s have the time that their work explains", what);
	say((seconds() - began) * 1e6 >= (double) explained, text);
	unsetenv("GPUANN_EMULATE_PATIENCE");
	ops->close(engine);
	return explained / TIMES_SLOWER;
}

static void
test_patience(void)
{
	uint64_t exact = test_stall("exact searches", METHOD_EXACT, false);
	uint64_t listed = test_stall("searches of lists", METHOD_IVFPQ, true);
	/* 2,560 searches of a million rows, and of 32 of their 4,096 lists */
	BatchWork large = {UINT64_C(2560) * 1000000 * 768, 0, 0};
	BatchWork probed = {UINT64_C(2560) * 8 * 32 * 245 * 768, 0, 0};

	(void) test_stall("walks", METHOD_GRAPH, false);
	say(exact == (uint64_t) ROWS * DIMS * QUERIES / ELEMENTS_PER_US,
		"an exact search compares its query with every row");
	say(listed > 0 && listed <= exact, "a search of some lists does not have the time of an exact one");
	say(batch_work_us(&large) / TIMES_SLOWER < 30 * 1000000,
		"the largest batch over a million rows has half a minute, not ten");
	say(batch_work_us(&probed) / TIMES_SLOWER < 5 * 1000000, "and one of lists seconds");
	say(batch_work_us(&large) / TIMES_SLOWER > 10 * 1000000,
		"which is ten times what a small device takes");
}

/* Whether the answers equal those of a loop over all rows. */
static bool
answers_are_right(const Asked *asked, const uint64_t *filter)
{
	for (uint32_t i = 0; i < QUERIES; i++)
	{
		const float *query = rows[i * 7];
		double least = 1e300;
		uint32_t nearest = 0;

		for (uint32_t slot = 0; slot < ROWS; slot++)
		{
			double sum = 0;

			for (uint32_t j = 0; j < DIMS; j++)
				sum += ((double) query[j] - rows[slot][j]) * ((double) query[j] - rows[slot][j]);
			if ((filter[slot / 64] >> (slot % 64) & 1) && sum < least)
			{
				least = sum;
				nearest = slot;
			}
		}
		if (asked->queries[i].status != ENGINE_OK || asked->queries[i].count != K ||
			asked->results[i][0].slot != nearest)
			return false;
	}
	return true;
}

static void
test_copies(void)
{
	static Asked asked;
	std::vector<uint64_t> filter(ROWS / 64 + 1);
	EngineError error = {};
	unsigned long before = emulate_pageable;

	for (uint64_t &word : filter)
		word = (uint64_t) random_bits() << 32 | random_bits();
	begin(METHOD_GRAPH, true);
	say(ROWS / 8 * QUERIES > BITMAP_STAGED, "bitmaps are more than are staged at once");
	submit(&asked, METHOD_EXACT, filter.data());
	need(await_answers(&error), &error);
	say(answers_are_right(&asked, filter.data()), "and searches see all of them");
	say(within()->device.mirrors->codes_rotated, "codes were made from a sample of the rows");
	ops->close(engine);
	begin(METHOD_IVFPQ, true);
	submit(&asked, METHOD_IVFPQ, filter.data());
	need(await_answers(&error), &error);
	ops->close(engine);
	say(emulate_pageable == before, "jobs and searches copy from pinned memory only");
}

int
main()
{
	ops = gpuann_engine_ops();
	test_copies();
	test_patience();
	printf("1..%u\n", tests);
	return failures > 0;
}
