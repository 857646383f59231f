/*
 * local_engine.h
 *		A CPU engine in this process, which links graphs in memory. It is closed
 *		with a memory context.
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
	JobId		job;			/* the job in flight, or a completed link whose result is kept; or 0
								 */
	JobKind		kind;			/* of it */
} LocalEngine;

/*
 * Threads that a linker in this process may use:
 * max_parallel_maintenance_workers and itself, but no more than processors, and
 * where others run beside it only one.
 */
extern int	local_engine_threads(void);

/*
 * Open an engine with an empty mirror for this many rows. It is closed with the
 * current memory context, also after an error or cancel. NULL if memory_limit
 * does not suffice.
 */
extern LocalEngine *local_engine_open(Relation index, const IndexFormat *format, uint32 rows,
									  Size memory_limit);

/*
 * Run a job to its end, processing interrupts. Returns false if memory is
 * short. The result of a JOB_LINK is valid until the engine is closed.
 */
extern bool local_engine_run(LocalEngine *local, EngineJob *job);

/*
 * The same in two steps: arrays of the job must remain valid until it has
 * ended. Progress, if wanted, is reported in rows done.
 */
extern bool local_engine_submit(LocalEngine *local, EngineJob *job);
extern bool local_engine_wait(LocalEngine *local, void (*progress) (int64 done));

/* The result of the last JOB_LINK. */
extern void local_engine_link_result(LocalEngine *local, LinkResult *result);

/* Close the engine now. */
extern void local_engine_close(LocalEngine *local);

#endif							/* GPUANN_LOCAL_ENGINE_H */
