/*
 * workers.c
 *		The worker threads' main loop.
 */
#include "engine/cpu/task_queue.h"

#define SPIN_US				100		/* about the time between two queries of one client */
#define JOB_TURN			8		/* queries have priority, but after this many parts a job
									 * runs */

/*
 * After a query, spin for the next one, unlocked: a wake-up takes as long as a
 * quarter of a search. Only a few workers do, and only with enough processors.
 * Returns false if it did not spin.
 */
static bool
spin_for_query(CpuEngine *engine)
{
	int64_t		until;

	if (engine->spinning >= engine->max_spinning)
		return false;
	engine->spinning++;
	pthread_mutex_unlock(&engine->lock);
	until = monotonic_us() + SPIN_US;
	do
	{
		for (int i = 0;
			 i < 16 && atomic_load_explicit(&engine->waiting_parts, memory_order_relaxed) == 0; i++)
			spin_pause();
	} while (atomic_load_explicit(&engine->waiting_parts, memory_order_relaxed) == 0 &&
			 monotonic_us() < until);
	pthread_mutex_lock(&engine->lock);
	engine->spinning--;
	return true;
}

/* Main loop: work until the engine stops. */
void *
worker_main(void *argument)
{
	CpuWorker  *worker = argument;
	CpuEngine  *engine = worker->engine;
	bool		has_spun = false;	/* has spun without result */
	bool		searched = false;	/* the last work was a query */

	pthread_mutex_lock(&engine->lock);
	while (!engine->stopping)
	{
		uint32_t	part;
		MirrorEntry *entry = engine->parts_since_job >= JOB_TURN ? entry_take(engine) : NULL;
		QueryTask  *task = entry == NULL ? tasks_take(engine, &part) : NULL;
		WorkerPhase *phase;

		if (task == NULL && entry == NULL)
			entry = entry_take(engine);
		phase = task == NULL && entry == NULL ? phase_needing_help(engine) : NULL;
		if (phase != NULL)
		{
			has_spun = false;
			phase_help(worker, phase);
			continue;
		}
		if (task == NULL && entry == NULL)
		{
			/*
			 * Check everything again after spinning, which is done without the
			 * lock.
			 */
			if (!has_spun && (phase_spin(engine) || (searched && spin_for_query(engine))))
				has_spun = true;
			else
			{
				pthread_cond_wait(&engine->work, &engine->lock);
				has_spun = false;
			}
			continue;
		}
		has_spun = false;
		searched = task != NULL;
		pthread_mutex_unlock(&engine->lock);
		if (task != NULL)
			tasks_run(worker, task, part);
		else
			jobs_run(worker, entry);
		pthread_mutex_lock(&engine->lock);
	}
	pthread_mutex_unlock(&engine->lock);
	return NULL;
}
