/*
 * build_threads.c
 *		Run threads for a build, while the process processes interrupts.
 */
#include "build/build_threads.h"

#include "engine/quantizer/train_threads.h"
#include "miscadmin.h"
#include "storage/ipc.h"

#define POLL_MS		10

/*
 * Error cleanup, also at process exit: end the threads before their data is
 * freed.
 */
static void
end_threads(int code, Datum arg)
{
	train_threads_end((TrainThreads *) DatumGetPointer(arg));
}

void
build_in_threads(int count, void (*work) (const TrainControl *control, void *arg), void *arg)
{
	TrainThreads *threads = train_threads_begin(count, work, arg);

	if (threads == NULL)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_RESOURCES),
						errmsg("could not start a thread")));
	PG_ENSURE_ERROR_CLEANUP(end_threads, PointerGetDatum(threads));
	while (!train_threads_wait(threads, POLL_MS))
		CHECK_FOR_INTERRUPTS();
	PG_END_ENSURE_ERROR_CLEANUP(end_threads, PointerGetDatum(threads));
	train_threads_end(threads);
}
