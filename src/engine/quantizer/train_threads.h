/*
 * train_threads.h
 *		Threads for who trains and has no engine: one runs the work, others join
 *		it for as long as it spreads items.
 *
 * All signals are blocked in them.
 */
#ifndef GPUANN_TRAIN_THREADS_H
#define GPUANN_TRAIN_THREADS_H

#include "engine/quantizer/kmeans.h"

typedef struct TrainThreads TrainThreads;

/*
 * Begin work in a thread, which spreads what it has to do over `threads` of them
 * by the control that it gets; fewer where they cannot be started. NULL: out of
 * memory, or not one could be.
 */
extern TrainThreads *train_threads_begin(int threads,
										 void (*work) (const TrainControl *control, void *arg),
										 void *arg);

/* Wait for its end, so many milliseconds at most; whether it has ended. */
extern bool train_threads_wait(TrainThreads *threads, int milliseconds);

/*
 * Interrupt the work, if it has not ended; wait for its end, and free the
 * threads.
 */
extern void train_threads_end(TrainThreads *threads);

#endif							/* GPUANN_TRAIN_THREADS_H */
