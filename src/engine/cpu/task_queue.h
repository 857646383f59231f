/*
 * task_queue.h
 *		Queues of the CPU engine: mirrors (entries.c), queries (tasks.c), phases
 *		(phases.c), jobs (jobs.c), and the workers that process them
 *		(workers.c). Each of these calls only those before it.
 *
 * "Locked" means that the caller holds the engine's lock.
 */
#ifndef GPUANN_ENGINE_TASK_QUEUE_H
#define GPUANN_ENGINE_TASK_QUEUE_H

#include "engine/cpu/cpu.h"

/* entries.c */
/* Find a mirror, unless it is being dropped; locked. */
extern MirrorEntry *entry_find(CpuEngine *engine, MirrorId id);
/* Queue a mirror if its first job can run now; locked. */
extern void entry_make_ready(CpuEngine *engine, MirrorEntry *entry);
/* Take a mirror whose first job can run, or NULL; locked. */
extern MirrorEntry *entry_take(CpuEngine *engine);

/* tasks.c */
extern EngineStatus tasks_submit(CpuEngine *engine, EngineQuery *const *queries, uint32_t count,
								 EngineError *error);
extern uint32_t tasks_poll(CpuEngine *engine, EngineQuery **completed, uint32_t room);
/*
 * Give the query kept for the owner, if there is one, to the workers: the owner
 * does something other than poll.
 */
extern void tasks_queue_lone(CpuEngine *engine);
extern void task_free(QueryTask *task);
/* Take the next part of a waiting query, or NULL; locked. */
extern QueryTask *tasks_take(CpuEngine *engine, uint32_t *part);
/* Run a part taken by tasks_take(); not locked. */
extern void tasks_run(CpuWorker *worker, QueryTask *task, uint32_t part);
/* Run a part of a waiting query on this worker, if there is one. */
extern void tasks_run_waiting(CpuWorker *worker);

/* phases.c; phase_run() is in cpu.h */
/* A phase that can use another helper, or NULL; locked. */
extern WorkerPhase *phase_needing_help(CpuEngine *engine);
/*
 * Help a phase until it has no more items or a query waits; locked on entry and
 * return.
 */
extern void phase_help(CpuWorker *worker, WorkerPhase *phase);
/*
 * While a link is in progress, spin for its next phase, unlocked. Returns false
 * if there is no link.
 */
extern bool phase_spin(CpuEngine *engine);

/* jobs.c */
extern EngineStatus jobs_submit(CpuEngine *engine, const EngineJob *job, JobId *id,
								EngineError *error);
extern EngineStatus jobs_poll(CpuEngine *engine, JobId id, JobProgress *progress);
extern EngineStatus jobs_cancel(CpuEngine *engine, JobId id);
extern EngineStatus jobs_link_result(CpuEngine *engine, JobId id, LinkResult *result);
extern void jobs_release(CpuEngine *engine, JobId id);
extern void job_free(CpuEngine *engine, CpuJob *job);
/* Run the first job of a mirror taken by entry_take(); not locked. */
extern void jobs_run(CpuWorker *worker, MirrorEntry *entry);

/* workers.c */
extern void *worker_main(void *worker);

/* For loops that poll. */
static inline void
spin_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

#endif							/* GPUANN_ENGINE_TASK_QUEUE_H */
