/*
 * engine.cu
 *		Opening and closing the engine, and its table of functions.
 *
 * Threads other than the owner: CUDA's callback thread, which runs the host
 * functions at the end of pieces of jobs, the poller (poller.h), and the pool
 * (host_pool.h). All are started with every signal blocked, so that signals go
 * to the server's threads.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/jobs/job.h"
#include "cuda/query/mirror_room.h"

static CudaEngine *
cuda(Engine *handle)
{
	return (CudaEngine *) (void *) handle;
}

/* --- opening -------------------------------------------------------------- */

/*
 * A no-op host function, run once while signals are blocked, so that CUDA's
 * callback thread inherits that mask.
 */
static void
first_function(void *arg)
{
	(void) arg;
}

/* Open the device and allocate everything that stays until close. */
static EngineStatus
open_device(CudaEngine *engine, EngineError *error)
{
	EngineStatus status = device_open(&engine->device, &engine->config, error);

	if (status != ENGINE_OK)
		return status;
	if (!batch_streams_open(engine, error) || !conditions_open(engine, error) ||
		!jobs_open(engine, error))
		return error->status;
	if (!GPU(&engine->device.failure,
			 cudaLaunchHostFunc(engine->device.job_stream, first_function, NULL)) ||
		!GPU(&engine->device.failure, cudaStreamSynchronize(engine->device.job_stream)))
		return gpu_failed(&engine->device.failure, error);
	if (!poller_open(engine))
		return engine_error(error, ENGINE_NO_MEMORY, "could not start a thread");
	host_pool_open(&engine->pool);
	return ENGINE_OK;
}

/*
 * Wait for everything in flight, then free everything. A call that failed, on a
 * device that works, says nothing of what was launched before it, which uses
 * the memory that is freed here. A device that failed answers at once; only one
 * that hangs is not waited for.
 */
static void
free_engine(CudaEngine *engine)
{
	if (engine->device.job_stream != NULL && !engine->device.failure.hangs)
		GPU(&engine->device.failure, cudaDeviceSynchronize());
	host_pool_close(&engine->pool);
	poller_close(engine);
	while (engine->jobs != NULL && engine->jobs->first != NULL)
		job_free(engine, engine->jobs->first);
	while (engine->device.mirrors != NULL)
	{
		CudaMirror *mirror = engine->device.mirrors;

		engine->device.mirrors = mirror->next;
		mirror_free(&engine->device, mirror);
	}
	host_rows_close(engine);
	conditions_close(engine);
	batch_streams_close(engine);
	tasks_release(engine);
	jobs_close(engine);
	device_close(&engine->device);
	pthread_mutex_destroy(&engine->poller.lock);
	pthread_cond_destroy(&engine->poller.changed);
	free(engine);
}

static EngineStatus
cuda_open(const EngineConfig *config, Engine **result, EngineError *error)
{
	CudaEngine *engine = (CudaEngine *) calloc(1, sizeof(*engine));
	EngineError reason;
	sigset_t all,
		old;
	EngineStatus status;

	memset(&reason, 0, sizeof(reason));
	if (engine == NULL)
		return engine_error(error, ENGINE_NO_MEMORY, "out of memory");
	engine->config = *config;
	pthread_mutex_init(&engine->poller.lock, NULL);
	pthread_cond_init(&engine->poller.changed, NULL);
	/* load all kernels now, not at the first query that needs one */
	setenv("CUDA_MODULE_LOADING", "EAGER", 0);
	/*
	 * give each stream a hardware queue of its own. The default are eight,
	 * fewer than the streams of batches, jobs and copies with the default one:
	 * two streams would share a queue, and a batch could wait behind a kernel
	 * of a job
	 */
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	/* threads inherit the mask of the thread that creates them */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	status = open_device(engine, &reason);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (status != ENGINE_OK)
	{
		free_engine(engine);
		if (error != NULL)
			*error = reason;
		return status;
	}
	*result = (Engine *) (void *) engine;
	return ENGINE_OK;
}

/* Give up the queries that were not answered, and free everything. */
static void
cuda_close(Engine *handle)
{
	CudaEngine *engine = cuda(handle);

	while (engine->first_waiting != NULL)
	{
		CudaTask *task = engine->first_waiting;

		engine->first_waiting = task->next;
		task_free(engine, task);
	}
	while (engine->first_ended != NULL)
	{
		CudaTask *task = engine->first_ended;

		engine->first_ended = task->next;
		task_free(engine, task);
	}
	free_engine(engine);
}

/* --- the table ------------------------------------------------------------ */

static void
cuda_info(Engine *handle, EngineInfo *info)
{
	CudaEngine *engine = cuda(handle);

	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "cuda");
	snprintf(info->device, sizeof(info->device), "%.64s, sm_%d%d%s", engine->device.properties.name,
			 engine->device.properties.major, engine->device.properties.minor,
			 exact_has_groups(&engine->device.exact_limits) ? "a" : "");
	info->max_batch = BATCH_QUERIES;
}

static void
cuda_memory(Engine *handle, EngineMemory *memory)
{
	const CudaEngine *engine = cuda(handle);
	const Arena *arena = &engine->device.arena;

	memset(memory, 0, sizeof(*memory));
	memory->limit = arena->limit;
	memory->used = arena_used(arena);
	memory->context = arena->context;
	memory->vectors = arena->used[PART_VECTORS];
	memory->graph = arena->used[PART_GRAPH];
	memory->norms = arena->used[PART_NORMS];
	memory->state = arena->used[PART_STATE];
	memory->host_used = engine->device.host_pinned + engine->device.host_arrays + arena->host_used;
	memory->host_rows_limit = arena->host_limit;
	memory->host_rows = arena->host_used;
}

static EngineStatus
cuda_mirror_create(Engine *handle, const MirrorSpec *spec, MirrorId *id, EngineError *error)
{
	CudaEngine *engine = cuda(handle);
	EngineError reason;
	EngineStatus status;

	memset(&reason, 0, sizeof(reason));
	status = engine->device.failure.failed ? gpu_failed(&engine->device.failure, &reason)
										   : mirror_open(engine, spec, id, &reason);
	if (status != ENGINE_OK && error != NULL)
		*error = reason;
	return status;
}

/* Find a mirror by the number that a caller passed. */
static EngineStatus
find_mirror(CudaEngine *engine, MirrorId id, CudaMirror **mirror, EngineError *error)
{
	if (engine->device.failure.failed)
		return gpu_failed(&engine->device.failure, error);
	*mirror = device_mirror(&engine->device, id);
	if (*mirror != NULL)
		return ENGINE_OK;
	return engine_error(error, ENGINE_NOT_FOUND, "no mirror %llu", (unsigned long long) id);
}

static EngineStatus
cuda_mirror_info(Engine *handle, MirrorId id, MirrorInfo *info, EngineError *error)
{
	CudaMirror *mirror = NULL;
	EngineStatus status = find_mirror(cuda(handle), id, &mirror, error);

	if (status != ENGINE_OK)
		return status;
	memset(info, 0, sizeof(*info));
	info->rows = mirror->rows;
	info->linked = mirror->linked;
	info->pending = mirror->npending;
	info->dead = mirror->ndead;
	info->seeds = mirror->nseeds;
	info->position = mirror->position;
	info->bytes = mirror_bytes(mirror);
	info->host_bytes = mirror->vectors.mapped - mirror->vectors.device_bytes;
	return ENGINE_OK;
}

static EngineStatus
cuda_mirror_rows(Engine *handle, MirrorId id, const uint32_t *slots, uint32_t count, uint32_t *rows,
				 uint32_t *versions, EngineError *error)
{
	CudaMirror *mirror = NULL;
	EngineStatus status = find_mirror(cuda(handle), id, &mirror, error);

	if (status != ENGINE_OK)
		return status;
	return mirror_rows(&cuda(handle)->device, mirror, slots, count, rows, versions, error);
}

static EngineStatus
cuda_list_probes(Engine *handle, MirrorId id, uint64_t *counts, uint32_t count, EngineError *error)
{
	CudaEngine *engine = cuda(handle);
	CudaMirror *mirror = NULL;
	EngineStatus status = find_mirror(engine, id, &mirror, error);

	if (status == ENGINE_OK)
		status = engine_check_lists(mirror->lists == NULL ? 0 : mirror->lists->count, count, error);
	if (status == ENGINE_OK && !lists_copy_probes(&engine->device, mirror, counts))
		status = gpu_failed(&engine->device.failure, error);
	return status;
}

/*
 * Advance pieces, jobs and batches: everything but answers, which only poll may
 * write to queries.
 */
static void
engine_advance(CudaEngine *engine)
{
	pieces_end(engine);
	if (!engine->device.failure.failed)
		jobs_run(engine);
	if (!engine->device.failure.failed)
		conditions_advance(engine);
	if (!engine->device.failure.failed)
		batches_start(engine);
	if (engine->device.failure.failed)
		engine_wake(engine);
}

static EngineStatus
cuda_submit(Engine *handle, EngineQuery *const *queries, uint32_t count, EngineError *error)
{
	CudaEngine *engine = cuda(handle);

	if (engine->device.failure.failed)
		return gpu_failed(&engine->device.failure, error);
	if (tasks_submit(engine, queries, count) != ENGINE_OK)
		return engine_error(error, ENGINE_NO_MEMORY, "out of memory for %u queries", count);
	/* the queries have been accepted: report a failure at the next poll */
	if (engine->device.failure.failed)
		engine_wake(engine);
	return ENGINE_OK;
}

static EngineStatus
cuda_poll(Engine *handle, EngineQuery **completed, uint32_t room, uint32_t *count,
		  EngineError *error)
{
	CudaEngine *engine = cuda(handle);

	*count = 0;
	if (!engine->device.failure.failed)
		batches_end(engine, true);
	if (!engine->device.failure.failed)
		engine_advance(engine);
	if (engine->device.failure.failed)
		return gpu_failed(&engine->device.failure, error);
	*count = tasks_poll(engine, completed, room);
	poller_rest(engine);
	return ENGINE_OK;
}

static EngineStatus
cuda_job_submit(Engine *handle, const EngineJob *job, JobId *id, EngineError *error)
{
	CudaEngine *engine = cuda(handle);
	EngineStatus status;

	if (engine->device.failure.failed)
		return gpu_failed(&engine->device.failure, error);
	status = job_submit(engine, job, id, error);
	if (status == ENGINE_OK)
		engine_advance(engine);
	return status;
}

static EngineStatus
cuda_job_poll(Engine *handle, JobId id, JobProgress *progress)
{
	CudaEngine *engine = cuda(handle);
	CudaJob *job = job_find(engine, id);

	memset(progress, 0, sizeof(*progress));
	if (job == NULL)
		return ENGINE_NOT_FOUND;
	if (!engine->device.failure.failed)
		engine_advance(engine);
	progress->done = job->shown_done;
	progress->total = job->shown_total;
	progress->completed = job->stage == STAGE_DONE;
	progress->status = job->status;
	progress->error = job->error;
	if (engine->device.failure.failed && !progress->completed)
	{
		progress->completed = true;
		progress->status = gpu_failed(&engine->device.failure, &progress->error);
	}
	return ENGINE_OK;
}

static EngineStatus
cuda_job_cancel(Engine *handle, JobId id)
{
	CudaEngine *engine = cuda(handle);
	CudaJob *job = job_find(engine, id);

	if (job == NULL)
		return ENGINE_NOT_FOUND;
	job->cancelled = true;
	return ENGINE_OK;
}

static EngineStatus
cuda_job_link_result(Engine *handle, JobId id, LinkResult *result)
{
	CudaJob *job = job_find(cuda(handle), id);

	memset(result, 0, sizeof(*result));
	if (job == NULL || !engine_job_links(job->in.kind) || job->stage != STAGE_DONE)
		return ENGINE_NOT_FOUND;
	*result = job->link;
	return ENGINE_OK;
}

/*
 * Release a job. One that runs, or is queued behind others, is cancelled and
 * waited for; batches that it waits for are collected meanwhile, and their
 * queries returned by a later poll.
 */
static void
cuda_job_release(Engine *handle, JobId id)
{
	CudaEngine *engine = cuda(handle);
	CudaJob *job = job_find(engine, id);
	struct timespec nap = {0, 100 * 1000};

	if (job == NULL)
		return;
	if (job->stage != STAGE_DONE)
		cuda_job_cancel(handle, id);
	while (job->stage != STAGE_DONE && !engine->device.failure.failed)
	{
		batches_end(engine, false);
		engine_advance(engine);
		if (job->stage != STAGE_DONE)
			nanosleep(&nap, NULL);
	}
	/* after a failure the mirror still refers to the job: close frees both */
	if (job->stage == STAGE_DONE)
		job_free(engine, job);
}

extern "C" __attribute__((visibility("default"))) const EngineOps *
gpuann_engine_ops(void)
{
	static EngineOps ops;

	ops.abi_version = ENGINE_ABI_VERSION;
	ops.open = cuda_open;
	ops.close = cuda_close;
	ops.info = cuda_info;
	ops.memory = cuda_memory;
	ops.mirror_create = cuda_mirror_create;
	ops.mirror_info = cuda_mirror_info;
	ops.mirror_rows = cuda_mirror_rows;
	ops.list_probes = cuda_list_probes;
	ops.submit = cuda_submit;
	ops.poll = cuda_poll;
	ops.job_submit = cuda_job_submit;
	ops.job_poll = cuda_job_poll;
	ops.job_cancel = cuda_job_cancel;
	ops.job_link_result = cuda_job_link_result;
	ops.job_release = cuda_job_release;
	return &ops;
}
