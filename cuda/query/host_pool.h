/*
 * host_pool.h
 *		A few threads that help the owner with what there is much of: staging
 *		queries, taking answers out.
 *
 * Work is a number of chunks. The owner begins it, takes chunks itself, and
 * ends it when all are done: a helper that comes late, or not at all, costs
 * nothing but its help. Helpers look for more for a moment after the last
 * chunk, then sleep.
 */
#ifndef GPUANN_CUDA_HOST_POOL_H
#define GPUANN_CUDA_HOST_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define POOL_MAX 15u /* helpers */

typedef void (*PoolWork)(void *arg, uint32_t chunk);

typedef struct HostPool
{
	pthread_t threads[POOL_MAX];
	uint32_t nthreads;
	pthread_mutex_t lock;
	pthread_cond_t called;
	bool opened;

	/*
	 * atomic, all of them: read by helpers while the owner writes the next work
	 */
	uint64_t ticket; /* number of the work << 32 | the next chunk */
	PoolWork work;
	void *arg;
	uint32_t chunks;
	uint32_t done;
	uint32_t asleep;
	bool stopping;
} HostPool;

/*
 * Start helpers, as many as the processors that this process may use allow;
 * none is no error.
 */
extern void host_pool_open(HostPool *pool);
extern void host_pool_close(HostPool *pool);
/* Begin work. The one before has ended. */
extern void host_pool_begin(HostPool *pool, PoolWork work, void *arg, uint32_t chunks);
/* Do one chunk; false: all are taken. */
extern bool host_pool_step(HostPool *pool);
/* Do what is left, and wait for helpers that are still at it. */
extern void host_pool_end(HostPool *pool);

/* Tell the processor that this is a loop that waits. */
static inline void
host_pool_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

#endif /* GPUANN_CUDA_HOST_POOL_H */
