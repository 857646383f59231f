/*
 * lists_jobs_test.cu
 *		Jobs of mirrors with lists, tested from inside the engine: which slots
 *		are listed as pending; and calls to the device that run out of memory,
 *		in a training, while the engine opens, while rows are read.
 *
 * Linked with the engine: for the emulator, which alone can refuse memory at
 * the n-th call, or for a device. Behaviour visible from outside is tested in
 * test/conformance_lists*.c.
 */
#include <string.h>
#include <time.h>

#include "cuda/jobs/job.h"
#include "cuda/tests/testing.cuh"

#define DIMS 16u
#define ROWS 900u
#define LISTS 4u
#define FEW_ROWS 150u /* rows of trainings that are repeated many times */

extern "C" const EngineOps *gpuann_engine_ops(void);

static const EngineOps *ops;
static Engine *engine;
static MirrorId mirror_id;
static float rows[ROWS][DIMS];
static uint32_t versions[ROWS];

static CudaMirror *
mirror_within(void)
{
	return device_mirror(&((CudaEngine *) (void *) engine)->device, mirror_id);
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

/* Open an engine with an empty mirror. */
static void
begin(QuantizerKind quantizer)
{
	EngineConfig config = {};
	MirrorSpec spec = {};
	EngineError error = {};

	config.device = -1;
	need(ops->open(&config, &engine, &error), &error);
	spec.dims = DIMS;
	spec.type = ELEMENT_FLOAT;
	spec.metric = METRIC_L2;
	spec.method = METHOD_IVFPQ;
	spec.degree = 1;
	spec.capacity = ROWS;
	spec.residency = RESIDENCY_FULL;
	spec.placement = PLACEMENT_SINGLE;
	spec.device = -1;
	spec.lists.lists = LISTS;
	spec.lists.quantizer = quantizer;
	spec.lists.bits = quantizer == QUANTIZER_PQ ? 4 : 8;
	spec.lists.parts = quantizer == QUANTIZER_PQ ? 4 : 0;
	spec.lists.seed = 7;
	need(ops->mirror_create(engine, &spec, &mirror_id, &error), &error);
}

/* Run a job of the mirror; returns its status, also if the device fails. */
static EngineStatus
run(EngineJob job)
{
	struct timespec nap = {0, 50 * 1000};
	JobProgress progress = {};
	EngineError error = {};
	EngineStatus status;
	JobId id;

	job.mirror = mirror_id;
	status = ops->job_submit(engine, &job, &id, &error);
	if (status != ENGINE_OK)
		return status;
	for (;;)
	{
		need(ops->job_poll(engine, id, &progress), &error);
		if (progress.completed)
			break;
		nanosleep(&nap, NULL);
	}
	ops->job_release(engine, id);
	return progress.status;
}

static EngineStatus
append(uint32_t first, uint32_t count)
{
	EngineJob job = {};

	job.kind = JOB_APPEND;
	job.first_slot = first;
	job.count = count;
	job.versions = versions + first;
	job.vectors = rows[first];
	return run(job);
}

static EngineStatus
run_kind(JobKind kind)
{
	EngineJob job = {};

	job.kind = kind;
	job.rounds = 2; /* of a training */
	return run(job);
}

/* Delete or overwrite every seventh slot of a range, each named twice. */
static EngineStatus
change(JobKind kind, uint32_t first, uint32_t end)
{
	static float vectors[2 * ROWS][DIMS];
	uint32_t slots[2 * ROWS];
	EngineJob job = {};

	for (uint32_t slot = first; slot < end; slot += 7)
		for (int i = 0; i < 2; i++, job.count++)
		{
			slots[job.count] = slot;
			memcpy(vectors[job.count], rows[slot], sizeof(rows[slot]));
		}
	job.kind = kind;
	job.slots = slots;
	job.versions = versions;
	job.vectors = vectors;
	return run(job);
}

/*
 * Whether the list of pending slots contains exactly the pending slots, on the
 * host and on the device.
 */
static bool
lists_pending_only(void)
{
	const CudaMirror *mirror = mirror_within();
	static uint32_t there[ROWS];
	bool right = mirror->nlisted == mirror->npending;

	must(cudaDeviceSynchronize(), "waiting for the device");
	must(cudaMemcpy(there, (const void *) mirror->pending[mirror->pending_side].base,
					mirror->nlisted * sizeof(*there), cudaMemcpyDeviceToHost),
		 "copying the list");
	for (uint32_t i = 0; i < mirror->nlisted; i++)
	{
		uint32_t slot = mirror->listed[i];

		right &= there[i] == slot && mirror->lists->where[slot] == i &&
				 (mirror->states[slot] & (SLOT_PENDING | SLOT_LISTED | SLOT_DEAD)) ==
					 (SLOT_PENDING | SLOT_LISTED);
	}
	return right;
}

static void
test_pending(void)
{
	EngineError error = {};

	begin(QUANTIZER_INT8);
	need(append(0, 600), &error);
	need(run_kind(JOB_TRAIN), &error);
	need(change(JOB_DEAD, 3, 600), &error);
	say(mirror_within()->npending > 0 && lists_pending_only(), "rows that die before a link");
	need(run_kind(JOB_LINK), &error);
	say(mirror_within()->nlisted == 0 && lists_pending_only(), "nothing is listed after a link");
	need(append(600, 300), &error);
	need(change(JOB_DEAD, 500, 900), &error);
	say(mirror_within()->npending > 0 && lists_pending_only(), "linked and pending rows that die");
	need(change(JOB_OVERWRITE, 490, 800), &error);
	say(lists_pending_only(), "dead and linked rows that are overwritten");
	need(change(JOB_DEAD, 0, 900), &error);
	say(lists_pending_only(), "and that die again");
	need(run_kind(JOB_LINK), &error);
	say(mirror_within()->npending == 0 && lists_pending_only(), "and a link of the rest");
	ops->close(engine);
}

#ifdef EMULATED

/*
 * Let the call to the device after `calls` others run out of memory. Until then
 * the device is late, so that memory freed too early is still in use.
 */
static void
begin_scarcity(uint32_t calls)
{
	char number[16];

	snprintf(number, sizeof(number), "%u", calls);
	setenv("GPUANN_EMULATE_SCARCE", number, 1);
}

/* Whether all calls found memory. */
static bool
end_scarcity(void)
{
	bool all = getenv("GPUANN_EMULATE_SCARCE") != NULL;

	unsetenv("GPUANN_EMULATE_SCARCE");
	return all;
}

/* A training in which one call to the device runs out of memory. */
static EngineStatus
train_scarcely(QuantizerKind quantizer, uint32_t calls, bool *over)
{
	EngineMemory before;
	EngineMemory after;
	EngineError error = {};
	EngineStatus status;

	begin(quantizer);
	need(append(0, FEW_ROWS), &error);
	ops->memory(engine, &before);
	begin_scarcity(calls);
	status = run_kind(JOB_TRAIN);
	*over = end_scarcity();
	if (status == ENGINE_NO_MEMORY)
	{
		ops->memory(engine, &after);
		if (after.used != before.used || after.host_used != before.host_used)
			say(false, "a training that fails gives its memory back");
		if (run_kind(JOB_TRAIN) != ENGINE_OK || run_kind(JOB_LINK) != ENGINE_OK)
			say(false, "a training after one that failed ends well");
	}
	ops->close(engine);
	return status;
}

static void
test_scarcity(QuantizerKind quantizer)
{
	uint32_t refused = 0;
	bool over = false;

	/* each of the first calls, then every fifth */
	for (uint32_t calls = 0; !over; calls += calls < 30 ? 1 : 5)
	{
		EngineStatus status = train_scarcely(quantizer, calls, &over);

		refused += status == ENGINE_NO_MEMORY;
		if (over ? status != ENGINE_OK : status != ENGINE_NO_MEMORY && status != ENGINE_FAILED)
			say(false, "a training without memory ends otherwise");
	}
	say(refused > 20, "trainings whose calls find no memory");
}

/*
 * An engine that fails to open frees memory when the device has done with it.
 */
static void
test_scarce_opening(void)
{
	EngineConfig config = {};
	EngineError error = {};
	uint32_t refused = 0;
	bool all = false;

	config.device = -1;
	while (!all)
	{
		EngineStatus status;

		begin_scarcity(refused);
		status = ops->open(&config, &engine, &error);
		all = end_scarcity();
		refused += !all;
		if ((status == ENGINE_OK) != all)
			say(false, "an engine that finds no memory opens");
		if (status == ENGINE_OK)
			ops->close(engine);
	}
	say(refused > 2 * BATCH_STREAMS - 1, "openings whose calls find no memory");
}

/*
 * Reading rows fails when earlier copies, into memory that is freed, have come.
 */
static void
test_scarce_reading(void)
{
	uint32_t slots[] = {5, 3, 8};
	uint32_t numbers[3];
	uint32_t found[3];
	EngineError error = {};
	bool waited = true;

	for (uint32_t calls = 0; calls < 3; calls++)
	{
		EngineStatus status;

		begin(QUANTIZER_INT8);
		need(append(0, FEW_ROWS), &error);
		begin_scarcity(calls);
		status = ops->mirror_rows(engine, mirror_id, slots, 3, numbers, found, &error);
		(void) end_scarcity();
		waited &= status == ENGINE_FAILED && cudaStreamQuery(((CudaEngine *) (void *) engine)->
															 device.job_stream) == cudaSuccess;
		ops->close(engine);
	}
	say(waited, "rows whose reading finds no memory");
}

#endif /* EMULATED */

int
main()
{
	ops = gpuann_engine_ops();
	for (uint32_t slot = 0; slot < ROWS; slot++)
	{
		versions[slot] = 1;
		for (uint32_t i = 0; i < DIMS; i++)
			rows[slot][i] = (float) random_below(1000) / 100 + (float) (slot % 5 * 20);
	}
	test_pending();
#ifdef EMULATED
	test_scarcity(QUANTIZER_INT8);
	test_scarcity(QUANTIZER_PQ);
	test_scarce_opening();
	test_scarce_reading();
#endif
	printf("1..%u\n", tests);
	return failures > 0;
}
