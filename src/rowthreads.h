/*
 * rowthreads.h
 *		Several threads of this process that work on items of linking over pages. They know nothing of PostgreSQL (rowreader.h).
 */
#ifndef GPUANN_ROWTHREADS_H
#define GPUANN_ROWTHREADS_H

#include "rowreader.h"

typedef struct RowThreads RowThreads;

/* Start threads, one less than count; they end with the current memory context at the latest. NULL if there are none to be had. */
extern RowThreads *row_threads_start(RowReader *own, int count);
extern void row_threads_end(RowThreads *threads);

/* Work on item: what it writes is of that item only. */
typedef void (*RowWork) (void *context, uint32 item, RowReader *reader);

/*
 * Do the work for items 0 .. count - 1, this process with its own reader among the threads (threads may be NULL); what a thread failed to do
 * is done again. Interrupts are served, and errors may leave: the threads are at rest then.
 */
extern void row_threads_run(RowThreads *threads, RowReader *own, RowWork work, void *context, uint32 count);

#endif							/* GPUANN_ROWTHREADS_H */
