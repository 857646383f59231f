/*
 * poller.h
 *		The completion poller, a thread that wakes the engine's owner now and
 *		then while something is in flight.
 */
#ifndef GPUANN_CUDA_POLLER_H
#define GPUANN_CUDA_POLLER_H

#include <pthread.h>

struct CudaEngine;

struct Poller
{
	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* with `changed` made and destroyed by who has the engine */
	pthread_cond_t changed;
	bool stopping;
	bool in_flight; /* set without the lock */
	bool rests;		/* it sleeps until it is signalled */
};

/* Start the thread (false: that failed) and end it, if it was started. */
extern bool poller_open(CudaEngine *engine);
extern void poller_close(CudaEngine *engine);
/* Tell the owner that there may be something to poll. Any thread. */
extern void engine_wake(CudaEngine *engine);
/* Something is in flight: let the poller look. */
extern void engine_set_in_flight(CudaEngine *engine);
/* Let the poller rest, after its next beat, if nothing is in flight. */
extern void poller_rest(CudaEngine *engine);

#endif /* GPUANN_CUDA_POLLER_H */
