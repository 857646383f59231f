/*
 * jobs.c
 *		Jobs of the CPU engine: one queue per mirror, run one at a time, in
 *		order.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/lists.h"
#include "engine/cpu/task_queue.h"

/* Find a job; the engine must be locked. */
static CpuJob *
find_job(CpuEngine *engine, JobId id)
{
	CpuJob	   *job = engine->jobs;

	while (job != NULL && job->id != id)
		job = job->next;
	return job;
}

/* Free a job and its result. */
void
job_free(CpuEngine *engine, CpuJob *job)
{
	free((void *) job->link.slots);
	free((void *) job->link.rows);
	free((void *) job->link.linked);
	free((void *) job->link.seeds);
	free((void *) job->link.codes);
	free((void *) job->link.floats);
	atomic_fetch_sub(&engine->budget.state, job->link_bytes);
	free(job);
}

static void
job_yield(void *context)
{
	tasks_run_waiting(context);
}

/* Queue a job. */
EngineStatus
jobs_submit(CpuEngine *engine, const EngineJob *in, JobId *id, EngineError *error)
{
	EngineStatus status;
	MirrorEntry *entry;
	CpuJob	   *job;

	job = calloc(1, sizeof(*job));
	if (job == NULL)
		return engine_error(error, ENGINE_NO_MEMORY, "out of memory");
	pthread_mutex_lock(&engine->lock);
	entry = entry_find(engine, in->mirror);
	if (entry == NULL)
		status = engine_error(error, ENGINE_NOT_FOUND, "no mirror %llu",
							  (unsigned long long) in->mirror);
	else
		status = engine_check_job(in, &entry->mirror->spec, error);
	if (status != ENGINE_OK)
	{
		pthread_mutex_unlock(&engine->lock);
		free(job);
		return status;
	}
	job->in = *in;
	job->entry = entry;
	atomic_store(&job->watch.total, in->count);
	job->id = *id = ++engine->last_job;
	job->next = engine->jobs;
	engine->jobs = job;
	engine->unfinished_jobs++;
	if (entry->first_job == NULL)
		entry->first_job = job;
	else
		entry->last_job->next_of_mirror = job;
	entry->last_job = job;
	entry->dropping = in->kind == JOB_DROP;
	entry_make_ready(engine, entry);
	pthread_mutex_unlock(&engine->lock);
	return ENGINE_OK;
}

/* Execute a job. */
static EngineStatus
job_perform(CpuJob *job, CpuWorker *worker)
{
	Mirror	   *mirror = job->entry->mirror;

	job->watch.yield = job_yield;
	job->watch.context = worker;
	switch (job->in.kind)
	{
		case JOB_APPEND:
			return mirror_append(mirror, &job->in, &job->watch, &job->error);
		case JOB_OVERWRITE:
			return mirror_overwrite(mirror, &job->in, &job->watch, &job->error);
		case JOB_DEAD:
			return mirror_kill(mirror, &job->in, &job->watch, &job->error);
		case JOB_GRAPH:
			if (mirror->lists != NULL)
				return lists_load(job, worker);
			return mirror_load_graph(mirror, &job->in, &job->watch, &job->error);
		case JOB_SEEDS:
			return mirror_set_seeds(mirror, job->in.slots, job->in.count, &job->error);
		case JOB_LINK:
		case JOB_REPAIR:
			return mirror->lists != NULL ? lists_link(job, worker) : link_run(job, worker);
		case JOB_CODEBOOK:
			return lists_receive(mirror, &job->in, &job->error);
		case JOB_TRAIN:
			return lists_learn(job, worker);
		case JOB_DROP:
			return ENGINE_OK;
	}
	return ENGINE_INVALID;
}

/* Remove a mirror from the engine's list; locked. */
static void
unlink_mirror(CpuEngine *engine, MirrorEntry *entry)
{
	MirrorEntry **place = &engine->mirrors;

	while (*place != entry)
		place = &(*place)->next;
	*place = entry->next;
}

/* Record the end of a job; locked. */
static void
job_finish(CpuEngine *engine, CpuJob *job, EngineStatus status)
{
	job->status = status;
	if (status == ENGINE_OK && !engine_job_links(job->in.kind))
		atomic_store(&job->watch.done, job->in.count);
	job->completed = true;
	engine->unfinished_jobs--;
	pthread_cond_broadcast(&engine->done);
}

/* Run the first job of a mirror taken by entry_take(). */
void
jobs_run(CpuWorker *worker, MirrorEntry *entry)
{
	CpuEngine  *engine = worker->engine;
	CpuJob	   *job = entry->first_job;
	bool		drop = job->in.kind == JOB_DROP;
	EngineStatus status;

	if (atomic_load(&job->watch.cancelled) && !drop)
	{
		status = ENGINE_CANCELLED;
		engine_error(&job->error, status, "the job was cancelled before it began");
	}
	else
		status = job_perform(job, worker);
	if (status == ENGINE_OK && job->in.has_position && !drop)
		atomic_store_explicit(&entry->mirror->position, job->in.position, memory_order_release);
	pthread_mutex_lock(&engine->lock);
	entry->first_job = job->next_of_mirror;
	entry->running = false;
	if (drop)
		unlink_mirror(engine, entry);
	else
		entry_make_ready(engine, entry);
	if (drop)
	{
		mirror_free(entry->mirror);
		free(entry);
	}
	job_finish(engine, job, status);
	pthread_mutex_unlock(&engine->lock);
	if (engine->config.wake != NULL)
		engine->config.wake(engine->config.wake_arg);
}

/* Report a job's progress. */
EngineStatus
jobs_poll(CpuEngine *engine, JobId id, JobProgress *progress)
{
	CpuJob	   *job;

	memset(progress, 0, sizeof(*progress));
	pthread_mutex_lock(&engine->lock);
	job = find_job(engine, id);
	if (job != NULL)
	{
		progress->completed = job->completed;
		progress->done = atomic_load(&job->watch.done);
		progress->total = atomic_load(&job->watch.total);
		if (job->completed)
		{
			progress->status = job->status;
			progress->error = job->error;
		}
	}
	pthread_mutex_unlock(&engine->lock);
	return job != NULL ? ENGINE_OK : ENGINE_NOT_FOUND;
}

/* Cancel a job; one that has not started will not run. */
EngineStatus
jobs_cancel(CpuEngine *engine, JobId id)
{
	CpuJob	   *job;

	pthread_mutex_lock(&engine->lock);
	job = find_job(engine, id);
	if (job != NULL)
		atomic_store(&job->watch.cancelled, true);
	pthread_mutex_unlock(&engine->lock);
	return job != NULL ? ENGINE_OK : ENGINE_NOT_FOUND;
}

/* The result of a completed link or repair. */
EngineStatus
jobs_link_result(CpuEngine *engine, JobId id, LinkResult *result)
{
	CpuJob	   *job;
	bool		found;

	memset(result, 0, sizeof(*result));
	pthread_mutex_lock(&engine->lock);
	job = find_job(engine, id);
	found = job != NULL && job->completed && engine_job_links(job->in.kind);
	if (found)
		*result = job->link;
	pthread_mutex_unlock(&engine->lock);
	return found ? ENGINE_OK : ENGINE_NOT_FOUND;
}

/* Release a job; one that still runs is cancelled and waited for. */
void
jobs_release(CpuEngine *engine, JobId id)
{
	CpuJob	   *job;
	CpuJob	  **place;

	pthread_mutex_lock(&engine->lock);
	job = find_job(engine, id);
	if (job != NULL)
	{
		atomic_store(&job->watch.cancelled, true);
		while (!job->completed)
			pthread_cond_wait(&engine->done, &engine->lock);
		for (place = &engine->jobs; *place != job;)
			place = &(*place)->next;
		*place = job->next;
		job_free(engine, job);
	}
	pthread_mutex_unlock(&engine->lock);
}
