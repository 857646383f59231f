/*
 * jobs_open.cu
 *		What jobs share, their pieces, is taken when the engine opens: to take
 *		pinned memory later would make all streams wait.
 */
#include <stdlib.h>

#include "cuda/jobs/job.h"

/* Give jobs their memory. */
static bool
open_memory(CudaEngine *engine, EngineError *error)
{
	CudaJobs *jobs = engine->jobs;
	CudaDevice *device = &engine->device;
	size_t bytes = PIECES * PIECE_BYTES;

	if (range_take(&device->arena, &jobs->piece_memory, PART_STATE, bytes, error) != ENGINE_OK)
		return false;
	if (!GPU(&device->failure, cudaHostAlloc((void **) &jobs->pinned, bytes, cudaHostAllocMapped)))
	{
		gpu_failed(&device->failure, error);
		return false;
	}
	device->host_pinned += bytes;
	return true;
}

bool
jobs_open(CudaEngine *engine, EngineError *error)
{
	CudaJobs *jobs = (CudaJobs *) calloc(1, sizeof(*jobs));

	engine->jobs = jobs;
	if (jobs == NULL)
	{
		engine_error(error, ENGINE_NO_MEMORY, "out of memory");
		return false;
	}
	if (!open_memory(engine, error))
		return false;
	for (uint32_t i = 0; i <= PIECES; i++)
	{
		Piece *piece = &jobs->pieces[i];

		piece->engine = engine;
		if (i < PIECES)
		{
			piece->staged = jobs->pinned + i * PIECE_BYTES;
			piece->device = (unsigned char *) jobs->piece_memory.base + i * PIECE_BYTES;
		}
		if (!GPU(&engine->device.failure,
				 cudaEventCreateWithFlags(&piece->done, cudaEventDisableTiming)))
		{
			gpu_failed(&engine->device.failure, error);
			return false;
		}
	}
	return true;
}

void
jobs_close(CudaEngine *engine)
{
	CudaJobs *jobs = engine->jobs;
	Failure *failure = &engine->device.failure;

	if (jobs == NULL)
		return;
	for (uint32_t i = 0; i <= PIECES; i++)
		if (jobs->pieces[i].done != NULL)
			GPU(failure, cudaEventDestroy(jobs->pieces[i].done));
	range_release(&engine->device.arena, &jobs->piece_memory);
	if (jobs->pinned != NULL)
		GPU(failure, cudaFreeHost(jobs->pinned));
	free(jobs);
	engine->jobs = NULL;
}
