/*
 * host_pool.cu
 *		Threads that help the owner with much of a kind.
 *
 * One number says which work is going on and which of its chunks is next, so a
 * helper takes a chunk only of the work whose function it has read: where the
 * owner has begun another meanwhile, the exchange fails. All chunks taken are
 * done before the owner goes on.
 *
 * That number is closed before the work is written, and opened behind it. The
 * stores of the work are relaxed, and a processor that reorders (ARM) may let a
 * helper see them before the closing, for an ordered store holds back what is
 * before it, not what is behind. The helper would then read the new work, find
 * the old number unchanged, and take a chunk that nobody has opened. So the
 * owner has a release fence behind the closing, and a helper an acquire fence
 * between reading the work and the exchange: if it has read anything of the new
 * work, the first is before the second, and the exchange meets the closing, or
 * what came after it, and fails. On x86 both are nothing but the order that the
 * compiler keeps.
 */
#include <sched.h>
#include <time.h>

#include "cuda/query/host_pool.h"
#include "cuda/graph/graph_search_codes.h"
#include "engine/processors.h"

#define PROCESSORS_EACH 2u /* of those that this process may use, for each helper */
#define HELPERS 7u
#define LINGER_NS (500u * 1000) /* a helper looks so long for more before it sleeps */
#define LOOKS 64u				/* between two looks at the clock */
#define CLOSED 0xFFFFFFFFu		/* as the next chunk: the work is being written */
#define PATIENCE 4096u			/* looks of the owner before it lets others have its processor */

static uint64_t
clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000000000u + (uint64_t) now.tv_nsec;
}

/* Whether there is a chunk to take. */
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

/* Sleep until there is work, unless there is. */
static void
sleep_until_called(HostPool *pool)
{
	pthread_mutex_lock(&pool->lock);
	__atomic_fetch_add(&pool->asleep, 1u, __ATOMIC_SEQ_CST);
	while (!has_chunk(pool) && !__atomic_load_n(&pool->stopping, __ATOMIC_ACQUIRE))
		pthread_cond_wait(&pool->called, &pool->lock);
	__atomic_fetch_sub(&pool->asleep, 1u, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&pool->lock);
}

static void *
pool_help(void *argument)
{
	HostPool *pool = (HostPool *) argument;
	uint64_t last = clock_ns();
	uint32_t looks = 0;

	while (!__atomic_load_n(&pool->stopping, __ATOMIC_ACQUIRE))
	{
		if (host_pool_step(pool))
		{
			looks = 0;
			last = 0;
			continue;
		}
		host_pool_pause();
		if (++looks % LOOKS != 0)
			continue;
		if (last == 0)
			last = clock_ns();
		else if (clock_ns() - last > LINGER_NS)
		{
			sleep_until_called(pool);
			last = 0;
		}
	}
	return NULL;
}

/* Call those who sleep. */
static void
pool_call(HostPool *pool)
{
	if (__atomic_load_n(&pool->asleep, __ATOMIC_SEQ_CST) == 0)
		return;
	pthread_mutex_lock(&pool->lock);
	pthread_cond_broadcast(&pool->called);
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
	pool_call(pool);
}

void
host_pool_end(HostPool *pool)
{
	uint32_t looks = 0;

	while (host_pool_step(pool))
		;
	while (__atomic_load_n(&pool->done, __ATOMIC_ACQUIRE) < pool->chunks)
	{
		host_pool_pause();
		if (++looks % PATIENCE == 0)
			sched_yield();
	}
}

/* How many helpers there are to be. */
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
	pthread_cond_init(&pool->called, NULL);
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
	pthread_cond_broadcast(&pool->called);
	pthread_mutex_unlock(&pool->lock);
	for (uint32_t i = 0; i < pool->nthreads; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_cond_destroy(&pool->called);
	pthread_mutex_destroy(&pool->lock);
	pool->opened = false;
}
