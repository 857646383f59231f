/*
 * engine.cu
 *		Opening and closing the engine, and its table of functions.
 *
 * Some threads are not the owner's: CUDA's, which runs the functions at the end
 * of pieces of jobs, the poller, and the pool (host_pool.h). The poller looks
 * at the batch streams' flags while batches are in flight, and wakes the owner
 * when one is over that it has not seen; and every 250 ms while anything is in
 * flight, because a device that failed raises no flag and the owner must come
 * to notice. All are started with every signal blocked.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda/exact/exact.h"
#include "cuda/engine/internal.h"
#include "cuda/link/link.h"
#include "cuda/graph/graph_search.h"
#include "cuda/graph/graph_search_codes.h"
#include "cuda/lists/lists_code.h"
#include "cuda/lists/lists_search.h"

#define PULSE_US (250u * 1000)	 /* between beats */
#define LOOK_US 1u				 /* between looks at flags while a batch is in flight: the processor
								  * is only yielded */
#define LOOK_MOST_US 500u		 /* for so long; then there are naps of */
#define NAP_US 10u
#define LONG_NAP_US 200u		 /* the same, when batches have been in flight for */
#define LONG_AFTER_US (5u * 1000) /* so long */
#define LINGER_US 300u			 /* naps go on so long after the last batch: the next may follow */
#define LIMIT_PERCENT 80			  /* of the device, unless the configuration says otherwise */
#define LEAST_SHARED (96u << 10)	 /* of a block: what the longest vectors need */

bool
gpu_check(Failure *failure, cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return !failure->failed;
	if (!failure->failed)
		snprintf(failure->text, sizeof(failure->text), "%s: %s (%.120s)", cudaGetErrorName(error),
				 cudaGetErrorString(error), what);
	failure->failed = true;
	return false;
}

EngineStatus
gpu_failed(const Failure *failure, EngineError *error)
{
	engine_error(error, ENGINE_FAILED, "the device failed: %s", failure->text);
	return ENGINE_FAILED;
}

uint64_t
clock_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000000 + (uint64_t) now.tv_nsec / 1000;
}

/* Tell the owner that there may be something to poll. Any thread. */
void
engine_wake(CudaEngine *engine)
{
	if (engine->config.wake != NULL)
		engine->config.wake(engine->config.wake_arg);
}

static CudaEngine *
cuda(Engine *handle)
{
	return (CudaEngine *) (void *) handle;
}

CudaMirror *
engine_mirror(CudaEngine *engine, MirrorId id)
{
	CudaMirror *mirror = engine->mirrors;

	while (mirror != NULL && mirror->id != id)
		mirror = mirror->next;
	return mirror;
}

/* --- the completion poller ------------------------------------------------ */

static bool
is_in_flight(const CudaEngine *engine)
{
	return __atomic_load_n(&engine->in_flight, __ATOMIC_SEQ_CST);
}

/*
 * Let go of the lock until there is a signal, or for so long; a short while is
 * spent looking, because sleep takes longer.
 */
static void
poller_waits(CudaEngine *engine, uint32_t us)
{
	struct timespec until;

	if (us == LOOK_US)
	{
		pthread_mutex_unlock(&engine->poller_lock);
		sched_yield();
		pthread_mutex_lock(&engine->poller_lock);
		return;
	}
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += (long) us * 1000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	(void) pthread_cond_timedwait(&engine->poller_changed, &engine->poller_lock, &until);
}

/* How long the poller may wait now; 0: until it is signalled. */
static uint32_t
poller_pause(CudaEngine *engine, uint64_t now, uint64_t *watched_us, uint64_t *idle_us)
{
	if (batch_streams_watch(engine))
	{
		*idle_us = now;
		return now - *watched_us < LOOK_MOST_US	   ? LOOK_US
			   : now - *watched_us < LONG_AFTER_US ? NAP_US
												   : LONG_NAP_US;
	}
	*watched_us = now;
	if (now - *idle_us < LINGER_US)
		return NAP_US;
	return is_in_flight(engine) ? PULSE_US : 0;
}

static void *
poller_main(void *arg)
{
	CudaEngine *engine = (CudaEngine *) arg;
	uint64_t beat = clock_us();
	uint64_t watched_us = 0; /* when a batch was first seen in flight */
	uint64_t idle_us = 0;	 /* when one was last */

	/* a nap is not to last fifty microseconds more */
	(void) prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
	pthread_mutex_lock(&engine->poller_lock);
	while (!engine->stopping)
	{
		uint64_t now = clock_us();
		uint32_t pause;

		/*
		 * whoever starts something after this look sees that we rest, and
		 * signals
		 */
		__atomic_store_n(&engine->poller_rests, true, __ATOMIC_SEQ_CST);
		pause = poller_pause(engine, now, &watched_us, &idle_us);
		if (pause == 0)
		{
			pthread_cond_wait(&engine->poller_changed, &engine->poller_lock);
			beat = clock_us();
			continue;
		}
		__atomic_store_n(&engine->poller_rests, pause == PULSE_US, __ATOMIC_SEQ_CST);
		poller_waits(engine, pause);
		if (!is_in_flight(engine))
			beat = clock_us();
		else if (clock_us() - beat >= PULSE_US && !engine->stopping)
		{
			beat = clock_us();
			engine_wake(engine);
		}
	}
	pthread_mutex_unlock(&engine->poller_lock);
	return NULL;
}

/*
 * Let the poller look. It is signalled only if it rests: with queries coming
 * all the time that is never.
 */
void
engine_set_in_flight(CudaEngine *engine)
{
	__atomic_store_n(&engine->in_flight, true, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&engine->poller_rests, __ATOMIC_SEQ_CST))
		return;
	pthread_mutex_lock(&engine->poller_lock);
	pthread_cond_signal(&engine->poller_changed);
	pthread_mutex_unlock(&engine->poller_lock);
}

/* Let the poller rest, after its next beat, if nothing is in flight. */
static void
rest_poller(CudaEngine *engine)
{
	bool busy = engine->first_waiting != NULL;

	for (uint32_t i = 0; i < BATCH_STREAMS; i++)
		busy = busy || engine->streams[i].busy;
	for (CudaMirror *mirror = engine->mirrors; mirror != NULL; mirror = mirror->next)
		busy = busy || mirror->first_job != NULL;
	if (!busy)
		__atomic_store_n(&engine->in_flight, false, __ATOMIC_SEQ_CST);
}

/* --- opening -------------------------------------------------------------- */

static EngineStatus
no_device(EngineError *error, const char *what, cudaError_t reason)
{
	engine_error(error, ENGINE_NO_DEVICE, "%s: %s", what, cudaGetErrorString(reason));
	return ENGINE_NO_DEVICE;
}

/* Take one device: context, code, and whether it can run these kernels. */
static EngineStatus
take_device(CudaEngine *engine, int number, EngineError *error)
{
	uint64_t before,
			 own;
	cudaError_t result = cudaGetDeviceProperties(&engine->device, number);
	char what[96];

	snprintf(what, sizeof(what), "device %d cannot be used", number);
	if (result != cudaSuccess)
		return no_device(error, what, result);
	if (engine->device.sharedMemPerBlockOptin < LEAST_SHARED)
	{
		engine_error(error, ENGINE_NO_DEVICE,
					 "device %d has architecture %d.%d: this engine needs 8.0 or newer", number,
					 engine->device.major, engine->device.minor);
		return ENGINE_NO_DEVICE;
	}
	device_bytes_used(&engine->device, &before, &own);
	result = cudaSetDevice(number);
	if (result == cudaSuccess)
		result = cudaFree(NULL);
	if (result == cudaSuccess)
		result = graph_search_prepare(&engine->device);
	if (result == cudaSuccess)
		result = walk_prepare(&engine->device);
	if (result == cudaSuccess)
		result = exact_prepare(engine->device.sharedMemPerBlockOptin, &engine->config.forced);
	if (result == cudaSuccess)
		result = link_walk_prepare(engine->device.sharedMemPerBlockOptin);
	if (result == cudaSuccess)
		result = link_rows_prepare(engine->device.sharedMemPerBlockOptin);
	if (result == cudaSuccess)
		result = link_repair_prepare(engine->device.sharedMemPerBlockOptin);
	if (result == cudaSuccess)
		result = link_codes_prepare(engine->device.sharedMemPerBlockOptin);
	if (result == cudaSuccess)
		result = lists_code_prepare(&engine->device);
	if (result == cudaSuccess)
		result = lists_search_prepare(&engine->device);
	if (result == cudaErrorNoKernelImageForDevice || result == cudaErrorInvalidDeviceFunction)
	{
		(void) cudaGetLastError();
		engine_error(error, ENGINE_NO_DEVICE,
					 "device %d has architecture %d.%d, which this engine was not built for",
					 number, engine->device.major, engine->device.minor);
		return ENGINE_NO_DEVICE;
	}
	if (result != cudaSuccess)
		return no_device(error, what, result);
	if (arena_open(&engine->arena, number, error) != ENGINE_OK)
		return ENGINE_NO_DEVICE;
	engine->arena.context = context_bytes(&engine->device, number, before, own);
	return ENGINE_OK;
}

/* Find a device, the one asked for or the first that can be used. */
static EngineStatus
choose_device(CudaEngine *engine, EngineError *error)
{
	int count = 0,
		driver = 0;
	EngineStatus status = ENGINE_NO_DEVICE;
	cudaError_t result = cudaDriverGetVersion(&driver);

	if (result == cudaSuccess && driver == 0)
	{
		engine_error(error, ENGINE_NO_DEVICE, "there is no CUDA driver");
		return ENGINE_NO_DEVICE;
	}
	result = cudaGetDeviceCount(&count);
	if (result != cudaSuccess)
		return no_device(error, "no CUDA device can be used", result);
	if (count == 0 || engine->config.device >= count)
	{
		engine_error(error, ENGINE_NO_DEVICE, "there is no CUDA device %d: %d were found",
					 engine->config.device, count);
		return ENGINE_NO_DEVICE;
	}
	if (engine->config.device >= 0)
		return take_device(engine, engine->config.device, error);
	for (int i = 0; i < count && status != ENGINE_OK; i++)
		status = take_device(engine, i, error);
	return status;
}

/* Bytes of memory that the host has. */
static uint64_t
host_bytes(void)
{
	return (uint64_t) sysconf(_SC_PHYS_PAGES) * (uint64_t) sysconf(_SC_PAGESIZE);
}

/*
 * Let mirrors have rows in host memory, as the configuration says, but never
 * more than a quarter of it: pinned memory is not to be had by anybody else.
 */
static void
open_host_rows(CudaEngine *engine)
{
	uint64_t most = host_bytes() / 4;
	uint64_t wanted = engine->config.host_rows_limit;

	arena_open_host(&engine->arena, wanted < most ? wanted : most);
}

/* Give jobs their stream and device memory. */
static bool
open_pieces(CudaEngine *engine, EngineError *error)
{
	if (range_reserve(&engine->arena, &engine->piece_memory, PART_STATE, PIECES * PIECE_BYTES,
					  error) != ENGINE_OK ||
		range_grow(&engine->arena, &engine->piece_memory, PIECES * PIECE_BYTES, error) != ENGINE_OK)
		return false;
	if (!GPU(&engine->failure,
			 cudaStreamCreateWithFlags(&engine->job_stream, cudaStreamNonBlocking)) ||
		!GPU(&engine->failure,
			 cudaStreamCreateWithFlags(&engine->counts_stream, cudaStreamNonBlocking)) ||
		!GPU(&engine->failure, cudaStreamCreateWithFlags(&engine->job_bell, cudaStreamNonBlocking)))
	{
		gpu_failed(&engine->failure, error);
		return false;
	}
	for (uint32_t i = 0; i <= PIECES; i++)
	{
		engine->pieces[i].engine = engine;
		if (i < PIECES)
			engine->pieces[i].device =
				(unsigned char *) engine->piece_memory.base + i * PIECE_BYTES;
		if (!GPU(&engine->failure,
				 cudaEventCreateWithFlags(&engine->pieces[i].done, cudaEventDisableTiming)))
		{
			gpu_failed(&engine->failure, error);
			return false;
		}
	}
	return true;
}

/* CUDA's thread, once: so that it starts while signals are blocked. */
static void
first_function(void *arg)
{
	(void) arg;
}

/* Everything that open does with the device. */
static EngineStatus
open_device(CudaEngine *engine, EngineError *error)
{
	EngineStatus status = choose_device(engine, error);

	if (status != ENGINE_OK)
		return status;
	engine->arena.limit = engine->config.memory_limit > 0
							  ? engine->config.memory_limit
							  : engine->device.totalGlobalMem / 100 * LIMIT_PERCENT;
	open_host_rows(engine);
	if (!batch_streams_open(engine, error) || !open_pieces(engine, error))
		return error->status;
	if (!GPU(&engine->failure, cudaLaunchHostFunc(engine->job_stream, first_function, NULL)) ||
		!GPU(&engine->failure, cudaStreamSynchronize(engine->job_stream)))
		return gpu_failed(&engine->failure, error);
	if (pthread_create(&engine->poller, NULL, poller_main, engine) != 0)
	{
		engine_error(error, ENGINE_NO_MEMORY, "could not start a thread");
		return ENGINE_NO_MEMORY;
	}
	engine->has_poller = true;
	host_pool_open(&engine->pool);
	return ENGINE_OK;
}

/* Free everything. Nothing is in flight, or the device has failed. */
static void
free_engine(CudaEngine *engine)
{
	host_pool_close(&engine->pool);
	if (engine->has_poller)
	{
		pthread_mutex_lock(&engine->poller_lock);
		engine->stopping = true;
		pthread_cond_signal(&engine->poller_changed);
		pthread_mutex_unlock(&engine->poller_lock);
		pthread_join(engine->poller, NULL);
	}
	while (engine->jobs != NULL)
		job_free(engine, engine->jobs);
	while (engine->mirrors != NULL)
	{
		CudaMirror *mirror = engine->mirrors;

		engine->mirrors = mirror->next;
		mirror_free(engine, mirror);
	}
	host_rows_close(engine);
	batch_streams_close(engine);
	tasks_release(engine);
	for (uint32_t i = 0; i <= PIECES; i++)
		if (engine->pieces[i].done != NULL)
			GPU(&engine->failure, cudaEventDestroy(engine->pieces[i].done));
	if (engine->job_stream != NULL)
		GPU(&engine->failure, cudaStreamDestroy(engine->job_stream));
	if (engine->counts_stream != NULL)
		GPU(&engine->failure, cudaStreamDestroy(engine->counts_stream));
	if (engine->job_bell != NULL)
		GPU(&engine->failure, cudaStreamDestroy(engine->job_bell));
	if (engine->piece_memory.base != 0)
		range_release(&engine->arena, &engine->piece_memory);
	pthread_mutex_destroy(&engine->poller_lock);
	pthread_cond_destroy(&engine->poller_changed);
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
	{
		engine_error(error, ENGINE_NO_MEMORY, "out of memory");
		return ENGINE_NO_MEMORY;
	}
	engine->config = *config;
	pthread_mutex_init(&engine->poller_lock, NULL);
	pthread_cond_init(&engine->poller_changed, NULL);
	/* code is loaded now, not when the first query comes */
	setenv("CUDA_MODULE_LOADING", "EAGER", 0);
	/*
	 * each stream has a queue of the hardware of its own: of the usual eight,
	 * fewer than the streams of batches, jobs and copies with the default one,
	 * two would share one, and a batch wait behind a kernel of a job
	 */
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	/* threads inherit the mask of who starts them */
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

/* Wait for what is in flight, then free everything. */
static void
cuda_close(Engine *handle)
{
	CudaEngine *engine = cuda(handle);

	if (!engine->failure.failed)
		GPU(&engine->failure, cudaDeviceSynchronize());
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
	snprintf(info->device, sizeof(info->device), "%.64s, sm_%d%d%s", engine->device.name,
			 engine->device.major, engine->device.minor, exact_has_groups() ? "a" : "");
	info->max_batch = BATCH_QUERIES;
}

static void
cuda_memory(Engine *handle, EngineMemory *memory)
{
	const CudaEngine *engine = cuda(handle);
	const Arena *arena = &engine->arena;

	memset(memory, 0, sizeof(*memory));
	memory->limit = arena->limit;
	memory->used = arena_used(arena);
	memory->context = arena->context;
	memory->vectors = arena->used[PART_VECTORS];
	memory->graph = arena->used[PART_GRAPH];
	memory->norms = arena->used[PART_NORMS];
	memory->state = arena->used[PART_STATE];
	memory->host_used = engine->host_pinned + engine->host_arrays + arena->host_used;
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
	status = engine->failure.failed ? gpu_failed(&engine->failure, &reason)
									: mirror_create(engine, spec, id, &reason);
	if (status != ENGINE_OK && error != NULL)
		*error = reason;
	return status;
}

/* Find a mirror for a caller. */
static EngineStatus
find_mirror(CudaEngine *engine, MirrorId id, CudaMirror **mirror, EngineError *error)
{
	if (engine->failure.failed)
		return gpu_failed(&engine->failure, error);
	*mirror = engine_mirror(engine, id);
	if (*mirror != NULL)
		return ENGINE_OK;
	engine_error(error, ENGINE_NOT_FOUND, "no mirror %llu", (unsigned long long) id);
	return ENGINE_NOT_FOUND;
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
	info->host_bytes = mirror->vectors.mapped - mirror->vectors.near;
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
	return mirror_rows(cuda(handle), mirror, slots, count, rows, versions, error);
}

static EngineStatus
cuda_list_probes(Engine *handle, MirrorId id, uint64_t *counts, uint32_t count, EngineError *error)
{
	CudaEngine *engine = cuda(handle);
	CudaMirror *mirror = NULL;
	EngineStatus status = find_mirror(engine, id, &mirror, error);

	if (status == ENGINE_OK)
		status = engine_check_lists(mirror->lists == NULL ? 0 : mirror->lists->count, count, error);
	if (status == ENGINE_OK && !lists_copy_probes(engine, mirror, counts))
		status = gpu_failed(&engine->failure, error);
	return status;
}

/* Move everything on that does not touch a query's outputs. */
static void
engine_move_on(CudaEngine *engine)
{
	pieces_end(engine);
	if (!engine->failure.failed)
		jobs_run(engine);
	if (!engine->failure.failed)
		batches_start(engine);
	if (engine->failure.failed)
		engine_wake(engine);
}

static EngineStatus
cuda_submit(Engine *handle, EngineQuery *const *queries, uint32_t count, EngineError *error)
{
	CudaEngine *engine = cuda(handle);

	if (engine->failure.failed)
		return gpu_failed(&engine->failure, error);
	if (tasks_submit(engine, queries, count) != ENGINE_OK)
	{
		engine_error(error, ENGINE_NO_MEMORY, "out of memory for %u queries", count);
		return ENGINE_NO_MEMORY;
	}
	/* the queries are taken: a failure shows at the next poll */
	if (engine->failure.failed)
		engine_wake(engine);
	return ENGINE_OK;
}

static EngineStatus
cuda_poll(Engine *handle, EngineQuery **completed, uint32_t room, uint32_t *count,
		  EngineError *error)
{
	CudaEngine *engine = cuda(handle);

	*count = 0;
	if (!engine->failure.failed)
		batches_end(engine, true);
	if (!engine->failure.failed)
		engine_move_on(engine);
	if (engine->failure.failed)
		return gpu_failed(&engine->failure, error);
	*count = tasks_poll(engine, completed, room);
	rest_poller(engine);
	return ENGINE_OK;
}

static EngineStatus
cuda_job_submit(Engine *handle, const EngineJob *job, JobId *id, EngineError *error)
{
	CudaEngine *engine = cuda(handle);
	EngineStatus status;

	if (engine->failure.failed)
		return gpu_failed(&engine->failure, error);
	status = job_submit(engine, job, id, error);
	if (status == ENGINE_OK)
		engine_move_on(engine);
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
	if (!engine->failure.failed)
		engine_move_on(engine);
	progress->done = job->shown_done;
	progress->total = job->shown_total;
	progress->completed = job->stage == STAGE_DONE;
	progress->status = job->status;
	progress->error = job->error;
	if (engine->failure.failed && !progress->completed)
	{
		progress->completed = true;
		progress->status = gpu_failed(&engine->failure, &progress->error);
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
 * Forget a job. One that still runs, or waits behind others, is cancelled and
 * waited for; so are queries that it waits for, which are then polled as any.
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
	while (job->stage != STAGE_DONE && !engine->failure.failed)
	{
		batches_end(engine, false);
		engine_move_on(engine);
		if (job->stage != STAGE_DONE)
			nanosleep(&nap, NULL);
	}
	/* after a failure its mirror still names it: close frees both */
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
