/*
 * poller.h
 *		The completion poller: a thread that wakes the engine's owner when
 *		batches finish, and periodically while anything is in flight.
 */
#ifndef GPUANN_CUDA_POLLER_H
#define GPUANN_CUDA_POLLER_H

#include <pthread.h>

struct CudaEngine;

struct Poller
{
	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* lock and `changed` are created and destroyed by the engine */
	pthread_cond_t changed;
	bool stopping;
	bool in_flight; /* atomic; set without the lock */
	bool rests;		/* atomic; the thread sleeps until it is signalled */
};

/* Start the thread (false: that failed); stop it, if it was started. */
extern bool poller_open(CudaEngine *engine);
extern void poller_close(CudaEngine *engine);
/*
 * Call the owner's wake function: there may be something to poll. Any thread.
 */
extern void engine_wake(CudaEngine *engine);
/* Something is in flight: make the poller watch for it. */
extern void engine_set_in_flight(CudaEngine *engine);
/* Let the poller sleep after its next beat if nothing is in flight. */
extern void poller_rest(CudaEngine *engine);

#endif /* GPUANN_CUDA_POLLER_H */
