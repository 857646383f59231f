/*
 * host_pool.cu
 *		Helper threads: a lock-free ticket hands out chunks.
 *
 * The ticket holds the number of the current work and its next chunk, so a
 * helper that read one work's function cannot take a chunk of another: if the
 * owner has published new work meanwhile, the compare-and-exchange fails. The
 * owner continues only when all chunks taken are done.
 *
 * The owner closes the ticket before it writes the work, and opens it
 * afterwards. The stores of the work are relaxed, and a weakly ordered
 * processor (ARM) may make them visible before the closing store, since a
 * release store orders only what precedes it. A helper could then read the new
 * work, find the old ticket unchanged, and take a chunk that was never opened.
 * Therefore the owner issues a release fence after closing, and a helper an
 * acquire fence between reading the work and the exchange: if it read any part
 * of the new work, the fences synchronise, so the exchange sees the closed
 * ticket or a later one, and fails. On x86 both fences only restrain the
 * compiler.
 */
#include <sched.h>
#include <time.h>

#include "cuda/query/host_pool.h"
#include "cuda/graph/graph_search_codes.h"
#include "engine/processors.h"

#define PROCESSORS_EACH 2u /* processors available to this process, per helper */
#define HELPERS 7u
#define LINGER_NS (500u * 1000) /* how long an idle helper spins before it sleeps */
#define SPINS_PER_CLOCK 64u				/* spins between two readings of the clock */
#define CLOSED 0xFFFFFFFFu		/* as the next chunk: the work is being written */
#define SPINS_PER_YIELD 4096u			/* spins of the owner between two calls of sched_yield() */

static uint64_t
clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000000000u + (uint64_t) now.tv_nsec;
}

/* Whether a chunk is left to take. */
static bool
has_chunk(const HostPool *pool)
{
	return (uint32_t) __atomic_load_n(&pool->ticket, __ATOMIC_SEQ_CST) <
		   __atomic_load_n(&pool->chunks, __ATOMIC_RELAXED);
}

bool
host_pool_step(HostPool *pool)
{
	uint64_t ticket = __atomic_load_n(&pool->ticket, __ATOMIC_ACQUIRE);

	for (;;)
	{
		PoolWork work = __atomic_load_n(&pool->work, __ATOMIC_RELAXED);
		void *arg = __atomic_load_n(&pool->arg, __ATOMIC_RELAXED);

		if ((uint32_t) ticket >= __atomic_load_n(&pool->chunks, __ATOMIC_RELAXED))
			return false;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);	/* what was read of the work before the
													 * exchange: see above */
		if (!__atomic_compare_exchange_n(&pool->ticket, &ticket, ticket + 1, false,
										 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			continue;
		work(arg, (uint32_t) ticket);
		__atomic_fetch_add(&pool->done, 1u, __ATOMIC_RELEASE);
		return true;
	}
}

/*
 * Sleep until there is work, unless there is. `asleep` is raised before the
 * ticket is read, and pool_wake() reads `asleep` after the new ticket is
 * stored, all SEQ_CST: either the helper sees the work, or the owner sees the
 * sleeper and signals. The owner signals with the lock held, which the helper
 * keeps until it waits.
 */
static void
sleep_until_woken(HostPool *pool)
{
	pthread_mutex_lock(&pool->lock);
	__atomic_fetch_add(&pool->asleep, 1u, __ATOMIC_SEQ_CST);
	while (!has_chunk(pool) && !__atomic_load_n(&pool->stopping, __ATOMIC_ACQUIRE))
		pthread_cond_wait(&pool->wake, &pool->lock);
	__atomic_fetch_sub(&pool->asleep, 1u, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&pool->lock);
}

static void *
pool_help(void *argument)
{
	HostPool *pool = (HostPool *) argument;
	uint64_t last = clock_ns();
	uint32_t spins = 0;

	while (!__atomic_load_n(&pool->stopping, __ATOMIC_ACQUIRE))
	{
		if (host_pool_step(pool))
		{
			spins = 0;
			last = 0;
			continue;
		}
		host_pool_pause();
		if (++spins % SPINS_PER_CLOCK != 0)
			continue;
		if (last == 0)
			last = clock_ns();
		else if (clock_ns() - last > LINGER_NS)
		{
			sleep_until_woken(pool);
			last = 0;
		}
	}
	return NULL;
}

/* Wake sleeping helpers. Costs no system call while none sleeps. */
static void
pool_wake(HostPool *pool)
{
	if (__atomic_load_n(&pool->asleep, __ATOMIC_SEQ_CST) == 0)
		return;
	pthread_mutex_lock(&pool->lock);
	pthread_cond_broadcast(&pool->wake);
	pthread_mutex_unlock(&pool->lock);
}

void
host_pool_begin(HostPool *pool, PoolWork work, void *arg, uint32_t chunks)
{
	uint64_t number = (__atomic_load_n(&pool->ticket, __ATOMIC_RELAXED) >> 32) + 1;

	__atomic_store_n(&pool->ticket, number << 32 | CLOSED, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE); /* closed before anything of the work is written: see
											  * above */
	__atomic_store_n(&pool->work, work, __ATOMIC_RELAXED);
	__atomic_store_n(&pool->arg, arg, __ATOMIC_RELAXED);
	__atomic_store_n(&pool->chunks, chunks, __ATOMIC_RELAXED);
	__atomic_store_n(&pool->done, 0u, __ATOMIC_RELAXED);
	__atomic_store_n(&pool->ticket, (number + 1) << 32, __ATOMIC_SEQ_CST);
	pool_wake(pool);
}

void
host_pool_end(HostPool *pool)
{
	uint32_t spins = 0;

	while (host_pool_step(pool))
		;
	while (__atomic_load_n(&pool->done, __ATOMIC_ACQUIRE) < pool->chunks)
	{
		host_pool_pause();
		if (++spins % SPINS_PER_YIELD == 0)
			sched_yield();
	}
}

/* Number of helpers to start. */
static uint32_t
pool_helpers(void)
{
	uint32_t count = 2;
#ifndef EMULATED
	count = (uint32_t) processors_usable() / PROCESSORS_EACH;
	count = TUNED("HELPERS", count < HELPERS ? count : HELPERS);
#endif
	return count < POOL_MAX ? count : POOL_MAX;
}

void
host_pool_open(HostPool *pool)
{
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->wake, NULL);
	pool->opened = true;
	while (pool->nthreads < pool_helpers() &&
		   pthread_create(&pool->threads[pool->nthreads], NULL, pool_help, pool) == 0)
		pool->nthreads++;
}

void
host_pool_close(HostPool *pool)
{
	if (!pool->opened)
		return;
	pthread_mutex_lock(&pool->lock);
	__atomic_store_n(&pool->stopping, true, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&pool->wake);
	pthread_mutex_unlock(&pool->lock);
	for (uint32_t i = 0; i < pool->nthreads; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_cond_destroy(&pool->wake);
	pthread_mutex_destroy(&pool->lock);
	pool->opened = false;
}
