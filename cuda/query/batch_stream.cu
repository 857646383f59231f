/*
 * batch_stream.cu
 *		Batch streams: one stream each, with pinned and device memory that is
 *		allocated when the engine opens; and the detection of a batch's end.
 *
 * The last block of a batch writes the batch's generation to its stream's flag,
 * in pinned memory, after everything else that the batch wrote is visible. The
 * owner reads flags whenever it polls, without a call to the driver. For an
 * owner that sleeps the poller checks them every few microseconds while a batch
 * is in flight, and wakes it. The driver is only asked now and then whether the
 * device still works (batches_end).
 */
#include <string.h>

#include "cuda/query/cuda_engine.h"

#define PREFETCHED 16u /* results of a task that are prefetched */

/* Lay out a batch stream's arrays in pinned memory; returns their size. */
static size_t
lay_out_pinned(BatchStream *bstream, unsigned char *at)
{
	unsigned char *start = at;

	bstream->flag = carve<uint32_t>(&at, 1);
	bstream->input = carve(&at, INPUT_ROOM);
	bstream->queries = (DeviceQuery *) bstream->input;
	bstream->bitmaps = carve(&at, BITMAP_STAGED);
	bstream->heads = carve<DeviceHead>(&at, STREAM_QUERIES);
	bstream->results = carve<SearchResult>(&at, RESULT_ROOM);
	return (size_t) (at - start);
}

/* Lay out a batch stream's device memory, the state last; returns its size. */
static size_t
lay_out_device(BatchStream *bstream, unsigned char *at, size_t state_bytes)
{
	unsigned char *start = at;

	bstream->view.queries = (const DeviceQuery *) carve(&at, INPUT_ROOM);
	bstream->view.ended = carve<uint32_t>(&at, 1);
	bstream->table = carve(&at, fused_table_bytes());
	bstream->view.heads = carve<DeviceHead>(&at, STREAM_QUERIES);
	bstream->view.results = carve<SearchResult>(&at, RESULT_ROOM);
	bstream->view.state = carve(&at, state_bytes);
	return (size_t) (at - start);
}

/* Create a batch stream's memory, stream and event. */
static bool
open_batch_stream(CudaEngine *engine, BatchStream *bstream, unsigned char *pinned,
				  size_t state_bytes, EngineError *error)
{
	BatchStream measured;
	size_t bytes = lay_out_device(&measured, (unsigned char *) 256, state_bytes);
	int least,
		greatest;

	bstream->engine = engine;
	lay_out_pinned(bstream, pinned);
	if (range_take(&engine->device.arena, &bstream->memory, PART_STATE, bytes, error) !=
			ENGINE_OK ||
		range_reserve(&engine->device.arena, &bstream->bitmap_memory, PART_STATE,
					  (uint64_t) ENGINE_MAX_SLOTS / 8 + 64, error) != ENGINE_OK ||
		range_grow(&engine->device.arena, &bstream->bitmap_memory, BITMAP_STAGED, error) !=
			ENGINE_OK)
		return false;
	lay_out_device(bstream, (unsigned char *) bstream->memory.base, state_bytes);
	bstream->view.bitmaps = (const uint32_t *) bstream->bitmap_memory.base;
	bstream->view.flag = bstream->flag;
	*bstream->flag = 0;
	/*
	 * high priority: blocks of queries are scheduled before those of jobs. A
	 * non-blocking stream is not ordered after the default stream, so memory is
	 * initialised on the stream itself
	 */
	if (!GPU(&engine->device.failure, cudaDeviceGetStreamPriorityRange(&least, &greatest)) ||
		!GPU(&engine->device.failure,
			 cudaStreamCreateWithPriority(&bstream->stream, cudaStreamNonBlocking, greatest)) ||
		!GPU(&engine->device.failure,
			 cudaMemsetAsync(bstream->view.ended, 0, sizeof(uint32_t), bstream->stream)) ||
		!GPU(&engine->device.failure,
			 cudaMemsetAsync(bstream->table, 0xFF, fused_table_bytes(), bstream->stream)) ||
		!GPU(&engine->device.failure,
			 cudaEventCreateWithFlags(&bstream->done, cudaEventDisableTiming)))
	{
		gpu_failed(&engine->device.failure, error);
		return false;
	}
	return true;
}

/* Open all batch streams. */
bool
batch_streams_open(CudaEngine *engine, EngineError *error)
{
	BatchStream measured;
	size_t pinned = lay_out_pinned(&measured, (unsigned char *) 256);
	size_t bytes = BATCH_STREAMS * pinned;
	size_t sort_bytes;

	if (!GPU(&engine->device.failure, exact_sort_bytes(&sort_bytes)) ||
		!GPU(&engine->device.failure,
			 cudaHostAlloc((void **) &engine->pinned, bytes, cudaHostAllocMapped)))
	{
		gpu_failed(&engine->device.failure, error);
		return false;
	}
	engine->device.host_pinned += bytes;
	for (uint32_t i = 0; i < BATCH_STREAMS; i++)
		if (!open_batch_stream(engine, &engine->streams[i], engine->pinned + i * pinned,
					   sort_bytes > STATE_ROOM ? sort_bytes : STATE_ROOM, error))
			return false;
	return true;
}

/* Close all batch streams. Nothing is in flight. */
void
batch_streams_close(CudaEngine *engine)
{
	for (uint32_t i = 0; i < BATCH_STREAMS; i++)
	{
		BatchStream *bstream = &engine->streams[i];

		for (uint32_t j = 0; bstream->busy && bstream->nasked == 0 && j < bstream->ntasks; j++)
			task_free(engine, bstream->tasks[j]);
		if (bstream->stream != NULL)
			GPU(&engine->device.failure, cudaStreamDestroy(bstream->stream));
		if (bstream->done != NULL)
			GPU(&engine->device.failure, cudaEventDestroy(bstream->done));
		range_release(&engine->device.arena, &bstream->memory);
		range_release(&engine->device.arena, &bstream->bitmap_memory);
	}
	if (engine->pinned != NULL)
		GPU(&engine->device.failure, cudaFreeHost(engine->pinned));
}

EngineStatus
batch_streams_grow_bitmaps(CudaEngine *engine, uint64_t slots, EngineError *error)
{
	EngineStatus status = ENGINE_OK;

	for (uint32_t i = 0; i < BATCH_STREAMS && status == ENGINE_OK; i++)
		status = range_grow(&engine->device.arena, &engine->streams[i].bitmap_memory,
							(slots + 63) / 64 * sizeof(uint64_t), error);
	return status;
}

bool
batch_streams_wait(CudaEngine *engine, const CudaMirror *mirror)
{
	for (uint32_t i = 0; i < BATCH_STREAMS; i++)
	{
		BatchStream *bstream = &engine->streams[i];

		if (bstream->busy && bstream->mirror == mirror &&
			(!GPU(&engine->device.failure, cudaEventRecord(bstream->done, bstream->stream)) ||
			 !GPU(&engine->device.failure,
				  cudaStreamWaitEvent(engine->device.job_stream, bstream->done, 0))))
			return false;
	}
	return true;
}

bool
batch_streams_watch(CudaEngine *engine)
{
	bool busy = false;

	for (uint32_t i = 0; i < BATCH_STREAMS; i++)
	{
		BatchStream *bstream = &engine->streams[i];
		uint32_t watched = __atomic_load_n(&bstream->watched, __ATOMIC_ACQUIRE);

		if (watched == 0)
			continue;
		if (__atomic_load_n(bstream->flag, __ATOMIC_ACQUIRE) != watched)
			busy = true;
		else if (__atomic_compare_exchange_n(&bstream->watched, &watched, 0, false,
											 __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			engine_wake(engine);
	}
	return busy;
}

void
batch_stream_prefetch(const BatchStream *bstream, uint32_t i)
{
	const EngineQuery *query = bstream->tasks[i]->query;
	const SearchResult *results = bstream->results + bstream->queries[i].results;

	__builtin_prefetch(&bstream->heads[i]);
	for (uint32_t at = 0; at < bstream->queries[i].k && at < PREFETCHED;
		 at += 64 / sizeof(SearchResult))
	{
		__builtin_prefetch(results + at);
		__builtin_prefetch(query->results + at, 1);
	}
	__builtin_prefetch(&query->status, 1);
	__builtin_prefetch(&query->error, 1);
}
