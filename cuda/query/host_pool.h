/*
 * host_pool.h
 *		A pool of helper threads for bulk staging and result copy-out.
 *
 * Work is divided into chunks. The owner publishes it, takes chunks itself, and
 * ends it when all are done; a helper that wakes late, or not at all, delays
 * nothing. After the last chunk helpers spin briefly for more work, then sleep.
 */
#ifndef GPUANN_CUDA_HOST_POOL_H
#define GPUANN_CUDA_HOST_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define POOL_MAX 15u /* upper bound of the helpers */

typedef void (*PoolWork)(void *arg, uint32_t chunk);

typedef struct HostPool
{
	pthread_t threads[POOL_MAX];
	uint32_t nthreads;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool opened;

	/* atomic, all of them: helpers read while the owner writes the next work */
	uint64_t ticket; /* number of the work << 32 | next chunk */
	PoolWork work;
	void *arg;
	uint32_t chunks;
	uint32_t done;
	uint32_t asleep;
	bool stopping;
} HostPool;

/*
 * Start helpers, as many as the processors available to this process allow; it
 * is no error if none can be started.
 */
extern void host_pool_open(HostPool *pool);
extern void host_pool_close(HostPool *pool);
/* Publish work. The previous work must have ended. */
extern void host_pool_begin(HostPool *pool, PoolWork work, void *arg, uint32_t chunks);
/* Take and run one chunk; false: none is left. */
extern bool host_pool_step(HostPool *pool);
/* Run the remaining chunks, and wait for helpers that are still running one. */
extern void host_pool_end(HostPool *pool);

/* Hint for spin loops: the PAUSE instruction. */
static inline void
host_pool_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

#endif /* GPUANN_CUDA_HOST_POOL_H */
