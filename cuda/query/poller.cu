/*
 * poller.cu
 *		The completion poller: a thread that wakes the owner.
 *
 * While batches are in flight it polls the batch streams' flags, and wakes the
 * owner when a batch has finished that the owner has not seen. It also wakes
 * the owner every 250 ms while anything is in flight, because a device that
 * failed raises no flag: the owner then asks the driver.
 */
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include "cuda/query/cuda_engine.h"

#define PULSE_US (250u * 1000)	 /* between heartbeats */
#define YIELD_US 1u				 /* while batches are in flight: sched_yield() between two looks at
								  * flags */
#define YIELDS_MAX_US 500u		 /* for this long; then there are naps of */
#define NAP_US 10u
#define LONG_NAP_US 200u		 /* naps once batches have been in flight for */
#define LONG_AFTER_US (5u * 1000) /* this long */
#define LINGER_US 300u			 /* naps continue this long after the last batch: another may
								  * follow */

/* Call the owner's wake function. Any thread. */
void
engine_wake(CudaEngine *engine)
{
	if (engine->config.wake != NULL)
		engine->config.wake(engine->config.wake_arg);
}

static bool
is_in_flight(const CudaEngine *engine)
{
	return __atomic_load_n(&engine->poller.in_flight, __ATOMIC_SEQ_CST);
}

/*
 * Wait with the lock released, until signalled or for us microseconds. For the
 * shortest interval it only yields: sleeping takes longer than that.
 */
static void
poller_sleep(CudaEngine *engine, uint32_t us)
{
	struct timespec until;

	if (us == YIELD_US)
	{
		pthread_mutex_unlock(&engine->poller.lock);
		sched_yield();
		pthread_mutex_lock(&engine->poller.lock);
		return;
	}
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += (long) us * 1000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	(void) pthread_cond_timedwait(&engine->poller.changed, &engine->poller.lock, &until);
}

/* How long the poller may wait now, in us; 0: until it is signalled. */
static uint32_t
poller_pause(CudaEngine *engine, uint64_t now, uint64_t *watched_us, uint64_t *idle_us)
{
	if (batch_streams_watch(engine))
	{
		*idle_us = now;
		return now - *watched_us < YIELDS_MAX_US	   ? YIELD_US
			   : now - *watched_us < LONG_AFTER_US ? NAP_US
												   : LONG_NAP_US;
	}
	*watched_us = now;
	if (now - *idle_us < LINGER_US)
		return NAP_US;
	return is_in_flight(engine) ? PULSE_US : 0;
}

static void *
poller_main(void *arg)
{
	CudaEngine *engine = (CudaEngine *) arg;
	uint64_t beat = clock_us();
	uint64_t watched_us = 0; /* when batches were first seen in flight */
	uint64_t idle_us = 0;	 /* when one last was */

	/* the default timer slack would lengthen every nap by 50 us */
	(void) prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
	pthread_mutex_lock(&engine->poller.lock);
	while (!engine->poller.stopping)
	{
		uint64_t now = clock_us();
		uint32_t pause;

		/*
		 * `rests` is stored before in_flight is loaded (both SEQ_CST), and
		 * engine_set_in_flight() stores in_flight before it loads `rests`:
		 * either we see its batch, or it sees that we rest and signals. The
		 * signal cannot be lost, because we hold the lock until we wait
		 */
		__atomic_store_n(&engine->poller.rests, true, __ATOMIC_SEQ_CST);
		pause = poller_pause(engine, now, &watched_us, &idle_us);
		if (pause == 0)
		{
			pthread_cond_wait(&engine->poller.changed, &engine->poller.lock);
			beat = clock_us();
			continue;
		}
		__atomic_store_n(&engine->poller.rests, pause == PULSE_US, __ATOMIC_SEQ_CST);
		poller_sleep(engine, pause);
		if (!is_in_flight(engine))
			beat = clock_us();
		else if (clock_us() - beat >= PULSE_US && !engine->poller.stopping)
		{
			beat = clock_us();
			engine_wake(engine);
		}
	}
	pthread_mutex_unlock(&engine->poller.lock);
	return NULL;
}

/*
 * Make the poller watch. It is signalled only if it rests, which under a steady
 * load of queries is never, so that path costs no system call.
 */
void
engine_set_in_flight(CudaEngine *engine)
{
	__atomic_store_n(&engine->poller.in_flight, true, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&engine->poller.rests, __ATOMIC_SEQ_CST))
		return;
	pthread_mutex_lock(&engine->poller.lock);
	pthread_cond_signal(&engine->poller.changed);
	pthread_mutex_unlock(&engine->poller.lock);
}

/*
 * Clear in_flight if nothing is; the poller sees it at its next beat. The owner
 * alone starts work, so nothing can be started in between.
 */
void
poller_rest(CudaEngine *engine)
{
	bool busy = engine->first_waiting != NULL;

	for (uint32_t i = 0; i < BATCH_STREAMS; i++)
		busy = busy || engine->streams[i].busy;
	for (CudaMirror *mirror = engine->device.mirrors; mirror != NULL; mirror = mirror->next)
		busy = busy || mirror->first_job != NULL;
	if (!busy)
		__atomic_store_n(&engine->poller.in_flight, false, __ATOMIC_SEQ_CST);
}

bool
poller_open(CudaEngine *engine)
{
	Poller *poller = &engine->poller;

	poller->started = pthread_create(&poller->thread, NULL, poller_main, engine) == 0;
	return poller->started;
}

void
poller_close(CudaEngine *engine)
{
	Poller *poller = &engine->poller;

	if (!poller->started)
		return;
	pthread_mutex_lock(&poller->lock);
	poller->stopping = true;
	pthread_cond_signal(&poller->changed);
	pthread_mutex_unlock(&poller->lock);
	pthread_join(poller->thread, NULL);
	poller->started = false;
}
