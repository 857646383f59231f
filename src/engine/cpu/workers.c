/*
 * workers.c
 *		The worker threads' main loop, and phases: work on many items shared by
 *		several workers.
 */
#include "engine/cpu/task_queue.h"

#define SPINS				4000	/* polls before sleeping, some 50 us */
#define SPIN_US				100		/* about the time between two queries of one client */
#define JOB_TURN			8		/* queries have priority, but after this many parts a job
									 * runs */

/* Find a mirror, unless it is being dropped; locked. */
MirrorEntry *
find_mirror(CpuEngine *engine, MirrorId id)
{
	for (MirrorEntry *entry = engine->mirrors; entry != NULL; entry = entry->next)
		if (entry->mirror->id == id)
			return entry->dropping ? NULL : entry;
	return NULL;
}

/* A phase that can use another helper, or NULL; locked. */
static WorkerPhase *
phase_needing_help(CpuEngine *engine)
{
	for (WorkerPhase *phase = engine->phases; phase != NULL; phase = phase->next)
		if (phase->helpers < phase->max_helpers && atomic_load(&phase->next_item) < phase->count)
			return phase;
	return NULL;
}

static inline void
spin_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/*
 * Help a phase until it has no more items or a query waits; locked on entry and
 * return.
 */
static void
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
	WorkerPhase	  **place;
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
		worker_run_waiting(worker);
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

/* Run a part of a waiting query on this worker, if there is one. */
void
worker_run_waiting(CpuWorker *worker)
{
	CpuEngine  *engine = worker->engine;
	QueryTask  *task;
	uint32_t	part;

	if (atomic_load_explicit(&engine->waiting_parts, memory_order_relaxed) == 0)
		return;
	pthread_mutex_lock(&engine->lock);
	task = tasks_take(engine, &part);
	pthread_mutex_unlock(&engine->lock);
	if (task != NULL)
		tasks_run(worker, task, part);
}

/*
 * While a link is in progress, spin for its next phase, unlocked. Returns false
 * if there is no link.
 */
static bool
spin_for_phase(CpuEngine *engine)
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
	CpuWorker	   *worker = argument;
	CpuEngine  *engine = worker->engine;
	bool		has_spun = false;	/* has spun without result */
	bool		searched = false;	/* the last work was a query */

	pthread_mutex_lock(&engine->lock);
	while (!engine->stopping)
	{
		uint32_t	part;
		MirrorEntry *entry = engine->parts_since_job >= JOB_TURN ? jobs_take(engine) : NULL;
		QueryTask  *task = entry == NULL ? tasks_take(engine, &part) : NULL;
		WorkerPhase	   *phase;

		if (task == NULL && entry == NULL)
			entry = jobs_take(engine);
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
			if (!has_spun && (spin_for_phase(engine) || (searched && spin_for_query(engine))))
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
