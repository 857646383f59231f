/*
 * local_engine.h
 *		A CPU engine in this process, for as long as a memory context lives: it
 *		makes graphs in memory.
 */
#ifndef GPUANN_LOCAL_ENGINE_H
#define GPUANN_LOCAL_ENGINE_H

#include "page/pages.h"

/* The engine and its one mirror. */
typedef struct LocalEngine
{
	Relation	index;
	const EngineOps *ops;
	Engine	   *engine;			/* NULL: closed */
	MirrorId	mirror;
	JobId		job;			/* the one in flight or, after a link, the one whose result is
								 * there; or 0 */
	JobKind		kind;			/* of it */
} LocalEngine;

/*
 * Threads that a linker in this process may use:
 * max_parallel_maintenance_workers and itself, but no more than processors, and
 * where others run beside it only one.
 */
extern int	local_engine_threads(void);

/*
 * Open an engine with an empty mirror of so many rows. It ends with the current
 * memory context, on error and cancel too. NULL if memory_limit does not
 * suffice.
 */
extern LocalEngine *local_engine_open(Relation index, const IndexFormat *format, uint32 rows,
									  Size memory_limit);

/*
 * Run a job to its end, serving interrupts. False if memory is short. A
 * JOB_LINK's result stays until the engine ends.
 */
extern bool local_engine_run(LocalEngine *local, EngineJob *job);

/*
 * The same in two steps: what the job names must stay until it has ended. The
 * progress, if wanted, is told in rows done.
 */
extern bool local_engine_submit(LocalEngine *local, EngineJob *job);
extern bool local_engine_wait(LocalEngine *local, void (*progress) (int64 done));

/* What the last JOB_LINK changed. */
extern void local_engine_link_result(LocalEngine *local, LinkResult *result);

/* End the engine now. */
extern void local_engine_close(LocalEngine *local);

#endif							/* GPUANN_LOCAL_ENGINE_H */
