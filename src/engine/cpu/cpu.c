/*
 * cpu.c
 *		The CPU engine: EngineOps over worker threads.
 *
 * Workers take, in this order: parts of queries (with an occasional job in
 * between), the first job of a mirror, items of a phase (linking). Long work
 * checks for waiting queries between items. The owner's calls and the workers
 * synchronize by one mutex; see README.md, Concurrency.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/lists.h"
#include "engine/quantizer/quantizer.h"
#include "engine/processors.h"
#include "engine/cpu/task_queue.h"

#define MAX_THREADS			1024
#define SPIN_MIN_CORES		8		/* with fewer cores, spinning workers would slow down working
									 * ones */
#define WORKER_STACK		((size_t) 1 << 20)

static CpuEngine *
cpu(Engine *engine)
{
	return (CpuEngine *) (void *) engine;
}

/* The processor's model, as the kernel names it. */
static void
processor_name(char *name, size_t size)
{
	FILE	   *file = fopen("/proc/cpuinfo", "r");
	char		line[256];

	snprintf(name, size, "processor");
	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
	{
		char	   *colon = strchr(line, ':');

		if (strncmp(line, "model name", 10) == 0 && colon != NULL)
		{
			line[strcspn(line, "\n")] = 0;
			snprintf(name, size, "%.60s", colon + 2);
			break;
		}
	}
	if (file != NULL)
		fclose(file);
}

/* Parse the SIMD level of a configuration. */
static EngineStatus
choose_level(const EngineConfig *config, SimdLevel *level, EngineError *error)
{
	*level = SIMD_BEST;
	if (config->simd == NULL)
		return ENGINE_OK;
	if (strcmp(config->simd, "portable") == 0)
		*level = SIMD_PORTABLE;
	else if (strcmp(config->simd, "avx2") == 0)
		*level = SIMD_AVX2;
	else if (strcmp(config->simd, "avx512") == 0)
		*level = SIMD_AVX512;
	else
		return engine_error(error, ENGINE_INVALID, "no SIMD level is called \"%.40s\"",
							config->simd);
	if (!simd_available(*level))
		return engine_error(error, ENGINE_UNSUPPORTED, "this processor lacks SIMD level \"%s\"",
							config->simd);
	return ENGINE_OK;
}

/*
 * Start the workers, with every signal blocked. On failure nthreads is how many
 * did start.
 */
static bool
start_workers(CpuEngine *engine)
{
	pthread_attr_t attributes;
	sigset_t	all,
				before;
	int			started = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, WORKER_STACK);
	for (; started < engine->nthreads; started++)
	{
		CpuWorker  *worker = &engine->workers[started];

		worker->engine = engine;
		worker->search = search_scratch_create(NULL);
		if (worker->search == NULL ||
			pthread_create(&worker->thread, &attributes, worker_main, worker) != 0)
		{
			search_scratch_free(worker->search);
			break;
		}
	}
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (started == engine->nthreads)
		return true;
	engine->nthreads = started;
	return false;
}

/* Stop the workers and free an engine that has no work left. */
static void
free_engine(CpuEngine *engine)
{
	pthread_mutex_lock(&engine->lock);
	engine->stopping = true;
	pthread_cond_broadcast(&engine->work);
	pthread_mutex_unlock(&engine->lock);
	for (int i = 0; i < engine->nthreads; i++)
	{
		pthread_join(engine->workers[i].thread, NULL);
		search_scratch_free(engine->workers[i].search);
		link_scratch_free(&engine->workers[i].link);
	}
	while (engine->completed.first != NULL)
	{
		QueryTask  *task = engine->completed.first;

		engine->completed.first = task->next;
		task_free(task);
	}
	while (engine->jobs != NULL)
	{
		CpuJob	   *job = engine->jobs;

		engine->jobs = job->next;
		job_free(engine, job);
	}
	while (engine->mirrors != NULL)
	{
		MirrorEntry *entry = engine->mirrors;

		engine->mirrors = entry->next;
		mirror_free(entry->mirror);
		free(entry);
	}
	pthread_mutex_destroy(&engine->lock);
	pthread_cond_destroy(&engine->work);
	pthread_cond_destroy(&engine->done);
	if (engine->owner != NULL)
		search_scratch_free(engine->owner->search);
	free(engine->owner);
	free(engine->workers);
	free(engine);
}

static EngineStatus
cpu_open(const EngineConfig *config, Engine **result, EngineError *error)
{
	long		cores = processors_usable();
	CpuEngine  *engine;
	pthread_mutexattr_t attributes;
	SimdLevel	level;
	EngineStatus status = choose_level(config, &level, error);

	if (status != ENGINE_OK)
		return status;
	if (config->threads < 0 || config->threads > MAX_THREADS)
		return engine_error(error, ENGINE_INVALID, "%d threads are not between 0 and %d",
							config->threads, MAX_THREADS);
	engine = calloc(1, sizeof(*engine));
	if (engine == NULL)
		return engine_error(error, ENGINE_NO_MEMORY, "out of memory");
	engine->config = *config;
	engine->level = level;
	engine->nthreads = config->threads > 0	 ? config->threads
					   : cores < 1			 ? 1
					   : cores < MAX_THREADS ? (int) cores
											 : MAX_THREADS;
	engine->max_spinning = cores >= SPIN_MIN_CORES ? ((uint32_t) engine->nthreads + 7) / 8 : 0;
	engine->budget.limit = config->memory_limit;
	if (engine->budget.limit == 0)
		engine->budget.limit =
			(uint64_t) sysconf(_SC_PHYS_PAGES) * (uint64_t) sysconf(_SC_PAGESIZE) / 4;
	pthread_mutexattr_init(&attributes);
	/* held briefly, by many threads: spinning beats sleeping */
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(&engine->lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
	pthread_cond_init(&engine->work, NULL);
	pthread_cond_init(&engine->done, NULL);
	engine->workers = calloc((size_t) engine->nthreads, sizeof(CpuWorker));
	if (engine->workers == NULL)
		engine->nthreads = 0;
	engine->owner = calloc(1, sizeof(CpuWorker));
	if (engine->owner != NULL)
	{
		engine->owner->engine = engine;
		engine->owner->search = search_scratch_create(NULL);
	}
	if (engine->workers == NULL || engine->owner == NULL || engine->owner->search == NULL ||
		!start_workers(engine))
	{
		free_engine(engine);
		return engine_error(error, ENGINE_NO_MEMORY, "could not start worker threads");
	}
	*result = (Engine *) (void *) engine;
	return ENGINE_OK;
}

/*
 * Wait for queries and jobs in flight (links and repairs are cancelled), then
 * free everything.
 */
static void
cpu_close(Engine *handle)
{
	CpuEngine  *engine = cpu(handle);

	tasks_queue_lone(engine);
	pthread_mutex_lock(&engine->lock);
	for (CpuJob *job = engine->jobs; job != NULL; job = job->next)
		if (engine_job_links(job->in.kind))
			atomic_store(&job->watch.cancelled, true);
	while (engine->queries > 0 || engine->unfinished_jobs > 0)
		pthread_cond_wait(&engine->done, &engine->lock);
	pthread_mutex_unlock(&engine->lock);
	free_engine(engine);
}

static void
cpu_info(Engine *handle, EngineInfo *info)
{
	CpuEngine  *engine = cpu(handle);
	char		name[64];

	memset(info, 0, sizeof(*info));
	processor_name(name, sizeof(name));
	snprintf(info->name, sizeof(info->name), "cpu");
	snprintf(info->device, sizeof(info->device), "%s, %s", name, simd_name(engine->level));
	info->max_batch = (uint32_t) engine->nthreads;
}

static void
cpu_memory(Engine *handle, EngineMemory *memory)
{
	MemoryBudget *budget = &cpu(handle)->budget;

	memset(memory, 0, sizeof(*memory));
	memory->limit = budget->limit;
	memory->vectors = atomic_load(&budget->vectors);
	memory->graph = atomic_load(&budget->graph);
	memory->norms = atomic_load(&budget->norms);
	memory->state = atomic_load(&budget->state);
	memory->used = memory->vectors + memory->graph + memory->norms + memory->state;
}

static EngineStatus
cpu_mirror_create(Engine *handle, const MirrorSpec *spec, MirrorId *id, EngineError *error)
{
	CpuEngine  *engine = cpu(handle);
	EngineError ignored;
	EngineStatus status = quantizer_check_spec(spec, error != NULL ? error : &ignored);
	const DistanceKernels *kernels;
	MirrorEntry *entry;

	if (status != ENGINE_OK)
		return status;
	kernels = distance_kernels(spec->type, spec->metric, engine->level);
	if (kernels == NULL)
		return engine_error(error, ENGINE_UNSUPPORTED,
							"no distance for element type %d and metric %d", (int) spec->type,
							(int) spec->metric);
	entry = calloc(1, sizeof(*entry));
	if (entry == NULL)
		return engine_error(error, ENGINE_NO_MEMORY, "out of memory");
	entry->mirror = mirror_create(spec, kernels, &engine->budget, error);
	if (entry->mirror == NULL)
	{
		free(entry);
		return ENGINE_NO_MEMORY;
	}
	pthread_mutex_lock(&engine->lock);
	entry->mirror->id = *id = ++engine->last_mirror;
	entry->next = engine->mirrors;
	engine->mirrors = entry;
	pthread_mutex_unlock(&engine->lock);
	return ENGINE_OK;
}

/*
 * Lock the engine and find a mirror that is not being dropped. On failure
 * *error is set, and the lock is not held.
 */
static MirrorEntry *
lock_mirror(CpuEngine *engine, MirrorId id, EngineError *error)
{
	MirrorEntry *entry;

	pthread_mutex_lock(&engine->lock);
	entry = entry_find(engine, id);
	if (entry != NULL)
		return entry;
	pthread_mutex_unlock(&engine->lock);
	engine_error(error, ENGINE_NOT_FOUND, "no mirror %llu", (unsigned long long) id);
	return NULL;
}

static EngineStatus
cpu_mirror_info(Engine *handle, MirrorId id, MirrorInfo *info, EngineError *error)
{
	CpuEngine  *engine = cpu(handle);
	MirrorEntry *entry = lock_mirror(engine, id, error);
	Mirror	   *mirror;

	if (entry == NULL)
		return ENGINE_NOT_FOUND;
	mirror = entry->mirror;
	*info = (MirrorInfo) {
		.position = atomic_load(&mirror->position),
		.rows = atomic_load(&mirror->rows),
		.linked = atomic_load(&mirror->linked),
		.pending = atomic_load(&mirror->pending),
		.dead = atomic_load(&mirror->dead),
		.seeds = atomic_load(&mirror->nseeds),
		.bytes = mirror_bytes(mirror),
	};
	pthread_mutex_unlock(&engine->lock);
	return ENGINE_OK;
}

static EngineStatus
cpu_mirror_rows(Engine *handle, MirrorId id, const uint32_t *slots, uint32_t count, uint32_t *rows,
				uint32_t *versions, EngineError *error)
{
	CpuEngine  *engine = cpu(handle);
	MirrorEntry *entry = lock_mirror(engine, id, error);
	EngineStatus status = ENGINE_OK;
	Mirror	   *mirror;
	uint32_t	published;

	if (entry == NULL)
		return ENGINE_NOT_FOUND;
	mirror = entry->mirror;
	published = atomic_load(&mirror->rows);
	for (uint32_t i = 0; i < count && status == ENGINE_OK; i++)
	{
		uint32_t   *row = rows + (size_t) i * mirror->spec.degree;
		uint32_t	neighbours;

		if (slots[i] >= published)
		{
			status = engine_error(error, ENGINE_INVALID, "slot %u is not below the %u published",
								  slots[i], published);
			break;
		}
		neighbours = mirror_read_row(mirror, slots[i], published, row);
		for (; neighbours < mirror->spec.degree; neighbours++)
			row[neighbours] = NO_SLOT;
		versions[i] = WORD_VERSION(mirror_word(mirror, slots[i]));
	}
	pthread_mutex_unlock(&engine->lock);
	return status;
}

static EngineStatus
cpu_list_probes(Engine *handle, MirrorId id, uint64_t *counts, uint32_t count, EngineError *error)
{
	CpuEngine  *engine = cpu(handle);
	MirrorEntry *entry = lock_mirror(engine, id, error);
	const Lists *lists;
	EngineStatus status;

	if (entry == NULL)
		return ENGINE_NOT_FOUND;
	lists = entry->mirror->lists;
	status = engine_check_lists(lists == NULL ? 0 : lists->count, count, error);
	for (uint32_t i = 0; i < count && status == ENGINE_OK; i++)
		counts[i] = atomic_load_explicit(&lists->probed[i], memory_order_relaxed);
	pthread_mutex_unlock(&engine->lock);
	return status;
}

static EngineStatus
cpu_submit(Engine *handle, EngineQuery *const *queries, uint32_t count, EngineError *error)
{
	return tasks_submit(cpu(handle), queries, count, error);
}

static EngineStatus
cpu_poll(Engine *handle, EngineQuery **completed, uint32_t room, uint32_t *count,
		 EngineError *error)
{
	*count = tasks_poll(cpu(handle), completed, room);
	return ENGINE_OK;
}

static EngineStatus
cpu_job_submit(Engine *handle, const EngineJob *job, JobId *id, EngineError *error)
{
	tasks_queue_lone(cpu(handle));
	return jobs_submit(cpu(handle), job, id, error);
}

static EngineStatus
cpu_job_poll(Engine *handle, JobId id, JobProgress *progress)
{
	tasks_queue_lone(cpu(handle));
	return jobs_poll(cpu(handle), id, progress);
}

static EngineStatus
cpu_job_cancel(Engine *handle, JobId id)
{
	return jobs_cancel(cpu(handle), id);
}

static EngineStatus
cpu_job_link_result(Engine *handle, JobId id, LinkResult *result)
{
	return jobs_link_result(cpu(handle), id, result);
}

static void
cpu_job_release(Engine *handle, JobId id)
{
	jobs_release(cpu(handle), id);
}

/* The CPU engine's table. */
const EngineOps *
cpu_engine_ops(void)
{
	static const EngineOps ops = {
		.abi_version = ENGINE_ABI_VERSION,
		.open = cpu_open,
		.close = cpu_close,
		.info = cpu_info,
		.memory = cpu_memory,
		.mirror_create = cpu_mirror_create,
		.mirror_info = cpu_mirror_info,
		.mirror_rows = cpu_mirror_rows,
		.list_probes = cpu_list_probes,
		.submit = cpu_submit,
		.poll = cpu_poll,
		.job_submit = cpu_job_submit,
		.job_poll = cpu_job_poll,
		.job_cancel = cpu_job_cancel,
		.job_link_result = cpu_job_link_result,
		.job_release = cpu_job_release,
	};

	return &ops;
}
