/*
 * train_threads.c
 *		Threads for who trains and has no engine.
 *
 * Helpers stay from the first items to the last: a training spreads items for
 * each of thousands of seeds, and where others want the processors too a thread
 * that has just been started may not run for milliseconds. Nobody waits for a
 * helper that has not come to the items yet.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "engine/quantizer/train_threads.h"

#define MAX_HELPERS	1024

/* Items that several threads take. */
typedef struct Items
{
	void		(*work) (void *argument, uint32_t item);
	void	   *argument;
	uint32_t	count;
	_Atomic uint32_t next;
} Items;

struct TrainThreads
{
	uint32_t	most;			/* helpers */
	void		(*work) (const TrainControl *control, void *arg);
	void	   *arg;
	TrainControl control;
	atomic_bool stop;
	pthread_t	thread;

	pthread_mutex_t mutex;		/* protects what follows */
	pthread_cond_t ended;
	bool		done;

	pthread_cond_t called;		/* there are items, or there will be no more */
	pthread_cond_t left;		/* no helper is at the items any more */
	Items	   *items;			/* NULL: none */
	uint32_t	inside;			/* helpers that are at them */
	bool		over;
	uint32_t	started;
	pthread_t	helpers[MAX_HELPERS];
};

static void
take_items(Items *items)
{
	uint32_t	item;

	while ((item = atomic_fetch_add(&items->next, 1)) < items->count)
		items->work(items->argument, item);
}

static void *
help(void *arg)
{
	TrainThreads *threads = arg;

	pthread_mutex_lock(&threads->mutex);
	while (!threads->over)
	{
		Items	   *items = threads->items;

		if (items == NULL || atomic_load(&items->next) >= items->count)
		{
			pthread_cond_wait(&threads->called, &threads->mutex);
			continue;
		}
		threads->inside++;
		pthread_mutex_unlock(&threads->mutex);
		take_items(items);
		pthread_mutex_lock(&threads->mutex);
		if (--threads->inside == 0)
			pthread_cond_signal(&threads->left);
	}
	pthread_mutex_unlock(&threads->mutex);
	return NULL;
}

/* TrainControl: spread. Helpers that cannot be started are done without. */
static void
spread_items(void *context, void (*work) (void *argument, uint32_t item), void *argument,
			 uint32_t count)
{
	TrainThreads *threads = context;
	Items		items = {.work = work, .argument = argument, .count = count};

	while (threads->started < threads->most && threads->started + 1 < count &&
		   pthread_create(&threads->helpers[threads->started], NULL, help, threads) == 0)
		threads->started++;
	pthread_mutex_lock(&threads->mutex);
	threads->items = &items;
	pthread_cond_broadcast(&threads->called);
	pthread_mutex_unlock(&threads->mutex);
	take_items(&items);
	pthread_mutex_lock(&threads->mutex);
	threads->items = NULL;
	while (threads->inside > 0)
		pthread_cond_wait(&threads->left, &threads->mutex);
	pthread_mutex_unlock(&threads->mutex);
}

/* Let the helpers go. */
static void
end_helpers(TrainThreads *threads)
{
	pthread_mutex_lock(&threads->mutex);
	threads->over = true;
	pthread_cond_broadcast(&threads->called);
	pthread_mutex_unlock(&threads->mutex);
	while (threads->started > 0)
		pthread_join(threads->helpers[--threads->started], NULL);
}

/* TrainControl: interrupted. */
static bool
train_is_stopped(void *context)
{
	return atomic_load(&((TrainThreads *) context)->stop);
}

static void *
run_work(void *arg)
{
	TrainThreads *threads = arg;

	threads->work(&threads->control, threads->arg);
	end_helpers(threads);
	pthread_mutex_lock(&threads->mutex);
	threads->done = true;
	pthread_cond_signal(&threads->ended);
	pthread_mutex_unlock(&threads->mutex);
	return NULL;
}

static void
free_threads(TrainThreads *threads)
{
	pthread_cond_destroy(&threads->ended);
	pthread_cond_destroy(&threads->called);
	pthread_cond_destroy(&threads->left);
	pthread_mutex_destroy(&threads->mutex);
	free(threads);
}

TrainThreads *
train_threads_begin(int count, void (*work) (const TrainControl *control, void *arg), void *arg)
{
	TrainThreads *threads = calloc(1, sizeof(TrainThreads));
	sigset_t	all,
				before;
	int			status;

	if (threads == NULL)
		return NULL;
	threads->most = count > MAX_HELPERS ? MAX_HELPERS : count > 1 ? (uint32_t) count - 1 : 0;
	threads->work = work;
	threads->arg = arg;
	threads->control = (TrainControl) {spread_items, train_is_stopped, threads};
	pthread_mutex_init(&threads->mutex, NULL);
	pthread_cond_init(&threads->ended, NULL);
	pthread_cond_init(&threads->called, NULL);
	pthread_cond_init(&threads->left, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	status = pthread_create(&threads->thread, NULL, run_work, threads);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (status == 0)
		return threads;
	free_threads(threads);
	return NULL;
}

bool
train_threads_wait(TrainThreads *threads, int milliseconds)
{
	struct timespec until;
	bool		done;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += (long) (milliseconds % 1000) * 1000000;
	until.tv_sec += milliseconds / 1000 + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&threads->mutex);
	if (!threads->done)
		pthread_cond_timedwait(&threads->ended, &threads->mutex, &until);
	done = threads->done;
	pthread_mutex_unlock(&threads->mutex);
	return done;
}

void
train_threads_end(TrainThreads *threads)
{
	atomic_store(&threads->stop, true);
	pthread_join(threads->thread, NULL);
	free_threads(threads);
}
