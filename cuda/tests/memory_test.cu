/*
 * memory_test.cu
 *		Compares the device memory that the engine reports, by part, with what
 *		the driver reports, while mirrors are created, grow, are linked and are
 *		dropped.
 *
 * Linked with the engine. On the emulator the driver's figure is exactly what
 * is mapped; on a device it includes the context, which this program shares
 * with the engine, so there differences are compared.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

extern "C"
{
#include "engine/engine.h"
}

#define PERCENT 5 /* tolerance */
#define MIRRORS 4
#define ROWS 6000u
#define DIMS 96u

extern "C" const EngineOps *gpuann_engine_ops(void);

static const EngineOps *ops;
static Engine *engine;
static uint64_t driver_before;
static int failures;
static int checks;

static uint64_t
driver_bytes(void)
{
	size_t available = 0,
		   total = 0;

	if (cudaMemGetInfo(&available, &total) != cudaSuccess)
		abort();
	return total - available;
}

/* Compare both figures. */
static void
check(const char *when, uint64_t said_before)
{
	EngineMemory memory;
	uint64_t parts,
			 said,
			 counted = driver_bytes() - driver_before;

	ops->memory(engine, &memory);
	parts = memory.context + memory.vectors + memory.graph + memory.norms + memory.state;
	said = memory.used - memory.context - said_before;
	checks++;
	if (parts == memory.used && said * 100 <= counted * (100 + PERCENT) &&
		said * 100 >= counted * (100 - PERCENT))
		printf("ok %d - %s: %llu bytes said, %llu counted\n", checks, when,
			   (unsigned long long) said, (unsigned long long) counted);
	else
	{
		printf("not ok %d - %s: %llu bytes said, %llu counted; parts %llu, sum %llu\n", checks,
			   when, (unsigned long long) said, (unsigned long long) counted,
			   (unsigned long long) parts, (unsigned long long) memory.used);
		failures++;
	}
}

/* Run a job to its end. */
static void
run(EngineJob job)
{
	JobProgress progress;
	EngineError error;
	JobId id;

	if (ops->job_submit(engine, &job, &id, &error) != ENGINE_OK)
		abort();
	do
		ops->job_poll(engine, id, &progress);
	while (!progress.completed);
	if (progress.status != ENGINE_OK)
		abort();
	ops->job_release(engine, id);
}

/* Create, train, link and drop a mirror with lists. */
static void
check_lists(const float *vectors, const uint32_t *versions, uint64_t said_before)
{
	MirrorSpec spec;
	EngineJob job;
	EngineError error;

	memset(&spec, 0, sizeof(spec));
	memset(&job, 0, sizeof(job));
	spec.dims = DIMS;
	spec.type = ELEMENT_FLOAT;
	spec.metric = METRIC_L2;
	spec.method = METHOD_IVFPQ;
	spec.degree = 1;
	spec.capacity = 100;
	spec.residency = RESIDENCY_FULL;
	spec.placement = PLACEMENT_SINGLE;
	spec.device = -1;
	spec.lists.lists = 16;
	spec.lists.quantizer = QUANTIZER_INT8;
	spec.lists.bits = 8;
	if (ops->mirror_create(engine, &spec, &job.mirror, &error) != ENGINE_OK)
		abort();
	job.kind = JOB_APPEND;
	job.count = ROWS / 2;
	job.vectors = vectors;
	job.versions = versions;
	run(job);
	check("a mirror with lists", said_before);
	job.kind = JOB_TRAIN;
	job.count = 500;
	job.rounds = 1;
	run(job);
	check("a training of lists", said_before);
	job.kind = JOB_LINK;
	run(job);
	check("a link of lists", said_before);
	job.kind = JOB_DROP;
	run(job);
	check("a drop of lists", said_before);
}

int
main()
{
	static float vectors[ROWS * DIMS];
	static uint32_t versions[ROWS];
	EngineConfig config;
	EngineError error;
	EngineMemory memory;
	MirrorId mirrors[MIRRORS];
	uint64_t said_before = 0;

	memset(&config, 0, sizeof(config));
	config.device = -1;
	config.host_rows_limit = (uint64_t) 64 << 20;
	ops = gpuann_engine_ops();
#ifdef EMULATED
	driver_before = driver_bytes();
#endif
	if (ops->open(&config, &engine, &error) != ENGINE_OK)
	{
		printf("1..0 # skip %s\n", error.text);
		return 0;
	}
#ifdef EMULATED
	check("lanes and pieces", 0);
#else
	driver_before = driver_bytes();
	ops->memory(engine, &memory);
	said_before = memory.used - memory.context;
#endif
	for (uint32_t i = 0; i < ROWS * DIMS; i++)
		vectors[i] = (float) (i * 2654435761u % 1000);
	for (uint32_t i = 0; i < MIRRORS; i++)
	{
		MirrorSpec spec = {DIMS,
						   ELEMENT_FLOAT,
						   i % 2 ? METRIC_L1 : METRIC_COSINE,
						   METHOD_GRAPH,
						   32,
						   i < 2 ? ROWS : 100,
						   i == 3 ? RESIDENCY_COMPRESSED : RESIDENCY_FULL,
						   PLACEMENT_SINGLE,
						   -1,
						   {},
						   0,
						   {}};
		EngineJob job;

		if (ops->mirror_create(engine, &spec, &mirrors[i], &error) != ENGINE_OK)
			abort();
		memset(&job, 0, sizeof(job));
		job.kind = JOB_APPEND;
		job.mirror = mirrors[i];
		job.count = ROWS / 2;
		job.vectors = vectors;
		job.versions = versions;
		run(job);
		job.first_slot = ROWS / 2;
		run(job);
		check(i < 2 ? "a mirror" : "a mirror that grew", said_before);
	}
	for (uint32_t i = 0; i < MIRRORS; i++)
	{
		EngineJob job;

		memset(&job, 0, sizeof(job));
		job.kind = i == 0 ? JOB_LINK : JOB_DROP;
		job.ef_construction = 16;
		job.mirror = mirrors[i];
		run(job);
		check(i == 0 ? "a link" : "a drop", said_before);
	}
	check_lists(vectors, versions, said_before);
	ops->memory(engine, &memory);
	ops->close(engine);
#ifdef EMULATED
	checks++;
	if (driver_bytes() != driver_before)
		failures++;
	printf("%s %d - nothing is left when the engine is closed\n",
		   driver_bytes() == driver_before ? "ok" : "not ok", checks);
#endif
	printf("1..%d\n", checks);
	return failures > 0;
}
