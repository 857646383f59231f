/*
 * build_threads.c
 *		Threads that compute for a build, while the process serves interrupts.
 *
 * All signals are blocked in them, and they call nothing of PostgreSQL. One
 * runs the work; others join it for as long as it spreads items.
 */
#include "build/build_threads.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "miscadmin.h"
#include "storage/ipc.h"

#define POLL_NS		(10 * 1000 * 1000)
#define MOST_HELPERS	1024

typedef struct Crew
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
} Crew;

/* Items that several threads take. */
typedef struct Items
{
	void		(*work) (void *argument, uint32_t item);
	void	   *argument;
	uint32_t	count;
	atomic_uint next;
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
	Crew	   *crew = context;
	Items		items = {.work = work, .argument = argument, .count = count};
	pthread_t	helpers[MOST_HELPERS];
	int			most = Min(Min(crew->threads, (int) Min(count, MOST_HELPERS)) - 1, MOST_HELPERS);
	int			started = 0;

	atomic_init(&items.next, 0);
	while (started < most && pthread_create(&helpers[started], NULL, take_items, &items) == 0)
		started++;
	(void) take_items(&items);
	while (started > 0)
		pthread_join(helpers[--started], NULL);
}

/* TrainControl: interrupted. */
static bool
is_stopped(void *context)
{
	return atomic_load(&((Crew *) context)->stop);
}

static void *
run_work(void *arg)
{
	Crew	   *crew = arg;

	crew->work(&crew->control, crew->arg);
	pthread_mutex_lock(&crew->mutex);
	crew->done = true;
	pthread_cond_signal(&crew->ended);
	pthread_mutex_unlock(&crew->mutex);
	return NULL;
}

/* Wait a moment for the work; whether it has ended. */
static bool
wait_for_work(Crew *crew)
{
	struct timespec until;
	bool		done;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += POLL_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&crew->mutex);
	if (!crew->done)
		pthread_cond_timedwait(&crew->ended, &crew->mutex, &until);
	done = crew->done;
	pthread_mutex_unlock(&crew->mutex);
	return done;
}

/* Start the thread that does the work, with all signals blocked. */
static void
start_work(Crew *crew)
{
	sigset_t	all,
				before;
	int			status;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	status = pthread_create(&crew->thread, NULL, run_work, crew);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (status != 0)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_RESOURCES),
						errmsg("could not start a thread: %s", strerror(status))));
}

/*
 * An error, or the end of this process: what the threads work on is about to
 * go.
 */
static void
stop_work(int code, Datum arg)
{
	Crew	   *crew = (Crew *) DatumGetPointer(arg);

	atomic_store(&crew->stop, true);
	pthread_join(crew->thread, NULL);
}

void
build_in_threads(int threads, void (*work) (const TrainControl *control, void *arg), void *arg)
{
	Crew		crew = {.threads = threads,
						.work = work,
						.arg = arg,
						.control = {spread_items, is_stopped, &crew},
						.mutex = PTHREAD_MUTEX_INITIALIZER,
						.ended = PTHREAD_COND_INITIALIZER};

	atomic_init(&crew.stop, false);
	start_work(&crew);
	PG_ENSURE_ERROR_CLEANUP(stop_work, PointerGetDatum(&crew));
	while (!wait_for_work(&crew))
		CHECK_FOR_INTERRUPTS();
	PG_END_ENSURE_ERROR_CLEANUP(stop_work, PointerGetDatum(&crew));
	pthread_join(crew.thread, NULL);
}
