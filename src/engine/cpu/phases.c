/*
 * phases.c
 *		Phases: work on many items, shared by several workers.
 */
#include "engine/cpu/task_queue.h"

#define SPINS				4000	/* polls before sleeping, some 50 us */

/* A phase that can use another helper, or NULL; locked. */
WorkerPhase *
phase_needing_help(CpuEngine *engine)
{
	for (WorkerPhase *phase = engine->phases; phase != NULL; phase = phase->next)
		if (phase->helpers < phase->max_helpers && atomic_load(&phase->next_item) < phase->count)
			return phase;
	return NULL;
}

/*
 * Help a phase until it has no more items or a query waits; locked on entry and
 * return.
 */
void
phase_help(CpuWorker *worker, WorkerPhase *phase)
{
	CpuEngine  *engine = worker->engine;
	uint32_t	item;

	phase->helpers++;
	pthread_mutex_unlock(&engine->lock);
	while (atomic_load_explicit(&engine->waiting_parts, memory_order_relaxed) == 0 &&
		   (item = atomic_fetch_add(&phase->next_item, 1)) < phase->count)
		phase->work(phase->context, item, worker);
	pthread_mutex_lock(&engine->lock);
	phase->helpers--;
	if (phase->awaited)
		pthread_cond_broadcast(&engine->done);
}

/*
 * Run a phase on the calling worker and up to threads - 1 others. Returns when
 * all of its items are done.
 */
void
phase_run(CpuWorker *worker, WorkerPhase *phase, int threads)
{
	CpuEngine  *engine = worker->engine;
	WorkerPhase **place;
	uint32_t	item;

	atomic_store(&phase->helpers, 0);
	phase->awaited = false;
	phase->max_helpers = threads > 1 ? (uint32_t) threads - 1 : 0;
	atomic_store(&phase->next_item, 0);
	if (phase->max_helpers > 0 && phase->count > 1)
	{
		pthread_mutex_lock(&engine->lock);
		phase->next = engine->phases;
		engine->phases = phase;
		atomic_fetch_add(&engine->phases_begun, 1);
		/*
		 * Wake no more workers than can help: a worker woken without need spins
		 * for a while, which slows down those that work.
		 */
		if (threads >= engine->nthreads)
			pthread_cond_broadcast(&engine->work);
		else
			for (uint32_t i = 0; i < phase->max_helpers; i++)
				pthread_cond_signal(&engine->work);
		pthread_mutex_unlock(&engine->lock);
	}
	else
		phase->max_helpers = 0;
	while ((item = atomic_fetch_add(&phase->next_item, 1)) < phase->count)
	{
		phase->work(phase->context, item, worker);
		tasks_run_waiting(worker);
	}
	if (phase->max_helpers == 0)
		return;
	/*
	 * The helpers are at their last items: sleeping and waking would take
	 * longer than most of these.
	 */
	for (int i = 0; i < SPINS && atomic_load(&phase->helpers) > 0; i++)
		spin_pause();
	pthread_mutex_lock(&engine->lock);
	for (place = &engine->phases; *place != phase;)
		place = &(*place)->next;
	*place = phase->next;
	phase->awaited = true;
	while (atomic_load(&phase->helpers) > 0)
		pthread_cond_wait(&engine->done, &engine->lock);
	pthread_mutex_unlock(&engine->lock);
}

/*
 * While a link is in progress, spin for its next phase, unlocked. Returns false
 * if there is no link.
 */
bool
phase_spin(CpuEngine *engine)
{
	uint32_t	begun = atomic_load(&engine->phases_begun);
	bool		came = false;

	if (atomic_load(&engine->links) == 0)
		return false;
	pthread_mutex_unlock(&engine->lock);
	for (int i = 0; i < SPINS && !came; i++)
	{
		spin_pause();
		came = atomic_load(&engine->phases_begun) != begun ||
			atomic_load_explicit(&engine->waiting_parts, memory_order_relaxed) > 0;
	}
	pthread_mutex_lock(&engine->lock);
	return true;
}
