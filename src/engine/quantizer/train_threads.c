/*
 * train_threads.c
 *		Threads for who trains and has no engine.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "engine/quantizer/train_threads.h"

#define MOST_HELPERS	1024

struct TrainThreads
{
	int			threads;
	void		(*work) (const TrainControl *control, void *arg);
	void	   *arg;
	TrainControl control;
	atomic_bool stop;
	pthread_t	thread;

	pthread_mutex_t mutex;		/* protects done */
	pthread_cond_t ended;
	bool		done;
};

/* Items that several threads take. */
typedef struct Items
{
	void		(*work) (void *argument, uint32_t item);
	void	   *argument;
	uint32_t	count;
	_Atomic uint32_t next;
} Items;

static void *
take_items(void *arg)
{
	Items	   *items = arg;
	uint32_t	item;

	while ((item = atomic_fetch_add(&items->next, 1)) < items->count)
		items->work(items->argument, item);
	return NULL;
}

/* TrainControl: spread. Helpers that cannot be started are done without. */
static void
spread_items(void *context, void (*work) (void *argument, uint32_t item), void *argument,
			 uint32_t count)
{
	TrainThreads *threads = context;
	Items		items = {.work = work, .argument = argument, .count = count};
	pthread_t	helpers[MOST_HELPERS];
	uint32_t	most = threads->threads > 1 ? (uint32_t) threads->threads - 1 : 0;
	uint32_t	started = 0;

	most = most < MOST_HELPERS ? most : MOST_HELPERS;
	while (started < most && started + 1 < count &&
		   pthread_create(&helpers[started], NULL, take_items, &items) == 0)
		started++;
	(void) take_items(&items);
	while (started > 0)
		pthread_join(helpers[--started], NULL);
}

/* TrainControl: interrupted. */
static bool
is_stopped(void *context)
{
	return atomic_load(&((TrainThreads *) context)->stop);
}

static void *
run_work(void *arg)
{
	TrainThreads *threads = arg;

	threads->work(&threads->control, threads->arg);
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
	threads->threads = count;
	threads->work = work;
	threads->arg = arg;
	threads->control = (TrainControl) {spread_items, is_stopped, threads};
	pthread_mutex_init(&threads->mutex, NULL);
	pthread_cond_init(&threads->ended, NULL);
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
