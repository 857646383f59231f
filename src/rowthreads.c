/*
 * rowthreads.c
 *		Threads that help with linking over pages.
 *
 * A thread has all signals blocked, calls nothing of PostgreSQL's and touches three kinds of memory: its own, that of the items under way, and
 * shared buffers, to read. So while it works this process must neither free the former nor detach from the latter: an error, and the end of the
 * process, first bring the threads to rest. A thread at rest touches only what is allocated here by malloc.
 */
#include "postgres.h"

#include <pthread.h>
#include <signal.h>

#include "miscadmin.h"
#include "storage/ipc.h"

#include "rowthreads.h"

#define STACK_BYTES		(1024 * 1024)
#define MOST_THREADS	256

/* What is shared; by malloc. */
typedef struct Pool
{
	pthread_mutex_t lock;
	pthread_cond_t begun;
	pthread_cond_t done;
	RowWork		work;			/* NULL: none */
	void	   *context;
	uint32		count;
	atomic_uint next;			/* item */
	bool	   *failed;			/* per item */
	unsigned	run;			/* number of the run under way */
	int			busy;			/* threads at work */
	bool		ending;
	atomic_bool stop;
	int			nthreads;
	pthread_t	threads[MOST_THREADS];
	RowReader  *readers[MOST_THREADS];
} Pool;

struct RowThreads
{
	Pool	   *pool;			/* NULL: ended */
};

/* What one thread is told. */
typedef struct Start
{
	Pool	   *pool;
	int			number;
} Start;

/* Take items until none is left, or it is to stop. */
static void
take_items(Pool *pool, RowWork work, void *context, uint32 count, RowReader *reader)
{
	uint32		item;

	while (!atomic_load_explicit(&pool->stop, memory_order_relaxed) && (item = atomic_fetch_add(&pool->next, 1)) < count)
	{
		work(context, item, reader);
		if (row_reader_failed(reader))
			pool->failed[item] = true;
	}
}

/* A thread. */
static void *
thread_main(void *argument)
{
	Start		start = *(Start *) argument;
	Pool	   *pool = start.pool;
	unsigned	seen = 0;

	free(argument);
	pthread_mutex_lock(&pool->lock);
	for (;;)
	{
		RowWork		work;
		void	   *context;
		uint32		count;

		while (!pool->ending && pool->run == seen)
			pthread_cond_wait(&pool->begun, &pool->lock);
		if (pool->ending)
			break;
		seen = pool->run;
		work = pool->work;
		context = pool->context;
		count = pool->count;
		if (work == NULL)
			continue;			/* over already */
		pool->busy++;
		pthread_mutex_unlock(&pool->lock);
		take_items(pool, work, context, count, pool->readers[start.number]);
		pthread_mutex_lock(&pool->lock);
		if (--pool->busy == 0)
			pthread_cond_signal(&pool->done);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

/* Let nobody begin to work any more, and wait for those who do: each looks at `stop` once per row that it reads. */
static void
come_to_rest(Pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->work = NULL;
	while (pool->busy > 0)
		pthread_cond_wait(&pool->done, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}

/* The same at an error or the end of the process. */
static void
stop_and_rest(int code, Datum argument)
{
	Pool	   *pool = (Pool *) DatumGetPointer(argument);

	atomic_store(&pool->stop, true);
	come_to_rest(pool);
	atomic_store(&pool->stop, false);
}

/* End the threads. */
static void
end_pool(Pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->ending = true;
	pthread_cond_broadcast(&pool->begun);
	pthread_mutex_unlock(&pool->lock);
	for (int i = 0; i < pool->nthreads; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_cond_destroy(&pool->begun);
	pthread_cond_destroy(&pool->done);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

void
row_threads_end(RowThreads *threads)
{
	Pool	   *pool;

	if (threads == NULL || threads->pool == NULL)
		return;
	pool = threads->pool;
	for (int i = 0; i < MOST_THREADS && pool->readers[i] != NULL; i++)
		row_reader_end(pool->readers[i]);
	threads->pool = NULL;
	end_pool(pool);
}

/* The memory context goes: readers with it, but for what they allocated themselves. */
static void
end_with_context(void *argument)
{
	RowThreads *threads = argument;

	if (threads->pool == NULL)
		return;
	for (int i = 0; i < MOST_THREADS && threads->pool->readers[i] != NULL; i++)
		row_reader_free(threads->pool->readers[i]);
	end_pool(threads->pool);
	threads->pool = NULL;
}

/* Start one more thread; false if that cannot be. */
static bool
start_thread(Pool *pool, const pthread_attr_t *attributes)
{
	Start	   *start = malloc(sizeof(Start));

	if (start == NULL)
		return false;
	*start = (Start) {pool, pool->nthreads};
	if (pthread_create(&pool->threads[pool->nthreads], attributes, thread_main, start) != 0)
	{
		free(start);
		return false;
	}
	pool->nthreads++;
	return true;
}

RowThreads *
row_threads_start(RowReader *own, int count)
{
	RowThreads *threads = palloc0(sizeof(RowThreads));
	MemoryContextCallback *callback = palloc0(sizeof(MemoryContextCallback));
	Pool	   *pool;
	pthread_attr_t attributes;
	sigset_t	all,
				before;

	if (count <= 1 || !row_vectors_can_peek(row_reader_vectors(own)) || (pool = calloc(1, sizeof(Pool))) == NULL)
		return NULL;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->begun, NULL);
	pthread_cond_init(&pool->done, NULL);
	threads->pool = pool;
	callback->func = end_with_context;
	callback->arg = threads;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);
	count = Min(count - 1, MOST_THREADS);
	for (int i = 0; i < count; i++)
		pool->readers[i] = row_reader_create_for_thread(own, &pool->stop);

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	while (pool->nthreads < count && start_thread(pool, &attributes))
		continue;
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return threads;
}

/* Share the items with the threads. */
static void
run_shared(Pool *pool, RowReader *own, RowWork work, void *context, uint32 count)
{
	pthread_mutex_lock(&pool->lock);
	pool->work = work;
	pool->context = context;
	pool->count = count;
	atomic_store(&pool->next, 0);
	pool->run++;
	pthread_cond_broadcast(&pool->begun);
	pthread_mutex_unlock(&pool->lock);
	PG_ENSURE_ERROR_CLEANUP(stop_and_rest, PointerGetDatum(pool));
	{
		uint32		item;

		while ((item = atomic_fetch_add(&pool->next, 1)) < count)
			work(context, item, own);
		come_to_rest(pool);
	}
	PG_END_ENSURE_ERROR_CLEANUP(stop_and_rest, PointerGetDatum(pool));
}

void
row_threads_run(RowThreads *threads, RowReader *own, RowWork work, void *context, uint32 count)
{
	if (threads == NULL || count < 2)
	{
		for (uint32 item = 0; item < count; item++)
			work(context, item, own);
		return;
	}
	threads->pool->failed = palloc0(sizeof(bool) * count);
	run_shared(threads->pool, own, work, context, count);
	for (uint32 item = 0; item < count; item++)
		if (threads->pool->failed[item])
			work(context, item, own);
	pfree(threads->pool->failed);
}
