/*
 * build_threads.h
 *		Run threads for a build, while the process processes interrupts.
 */
#ifndef GPUANN_BUILD_THREADS_H
#define GPUANN_BUILD_THREADS_H

#include "postgres.h"

#include "engine/quantizer/kmeans.h"

/*
 * Run work in a thread, and return when it has ended. It distributes its work
 * over `count` threads by the control passed to it, which reports an interrupt
 * if this process raises an error meanwhile. No thread may call anything of
 * PostgreSQL.
 */
extern void build_in_threads(int count, void (*work) (const TrainControl *control, void *arg),
							 void *arg);

#endif							/* GPUANN_BUILD_THREADS_H */
