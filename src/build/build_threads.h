/*
 * build_threads.h
 *		Threads that compute for a build, while the process serves interrupts.
 */
#ifndef GPUANN_BUILD_THREADS_H
#define GPUANN_BUILD_THREADS_H

#include "postgres.h"

#include "engine/quantizer/kmeans.h"

/*
 * Run work in a thread, which spreads what it has to do over `count` of them
 * by the control that it gets, and return when it has ended. The control says
 * that it is interrupted when this process raises an error meanwhile. No thread
 * calls anything of PostgreSQL.
 */
extern void build_in_threads(int count, void (*work) (const TrainControl *control, void *arg),
							 void *arg);

#endif							/* GPUANN_BUILD_THREADS_H */
