/*
 * batch_stream.cu
 *		Lanes: a stream each, with pinned and device memory that is taken when
 *		the engine opens; and how a batch's end is seen.
 *
 * The last block of a batch writes the batch's generation to its lane's flag,
 * in pinned memory, when everything else that the batch wrote is there. The
 * owner finds it whenever it polls, without a call to the driver. For an owner
 * that sleeps the pulse looks every few microseconds while a batch is in
 * flight, and wakes it. Whether the device still works is asked of the driver
 * now and then (batches_end).
 */
#include <string.h>

#include "cuda/exact/exact.h"
#include "cuda/engine/internal.h"

#define PREFETCHED 16u /* results of a task */

/* Take `bytes` of memory from *at on. */
static unsigned char *
stream_carve(unsigned char **at, size_t bytes)
{
	unsigned char *place = *at;

	*at += round_up(bytes, 256);
	return place;
}

/* Lay the arrays of a lane out in pinned memory; at NULL measures. */
static size_t
lay_out_pinned(Lane *lane, unsigned char *at)
{
	unsigned char *start = at;

	lane->flag = (uint32_t *) stream_carve(&at, sizeof(uint32_t));
	lane->input = stream_carve(&at, INPUT_ROOM);
	lane->queries = (DeviceQuery *) lane->input;
	lane->bitmaps = stream_carve(&at, BITMAP_STAGED);
	lane->heads = (DeviceHead *) stream_carve(&at, LANE_QUERIES * sizeof(DeviceHead));
	lane->results = (SearchResult *) stream_carve(&at, RESULT_ROOM * sizeof(SearchResult));
	lane->traces = (uint32_t *) stream_carve(&at, TRACE_ROOM * sizeof(uint32_t));
	return (size_t) (at - start);
}

/* Lay out what a lane has in device memory, the state last. */
static size_t
lay_out_device(Lane *lane, unsigned char *at, size_t state_bytes)
{
	unsigned char *start = at;

	lane->view.queries = (const DeviceQuery *) stream_carve(&at, INPUT_ROOM);
	lane->view.ended = (uint32_t *) stream_carve(&at, sizeof(uint32_t));
	lane->table = stream_carve(&at, flow_table_bytes());
	lane->view.heads = (DeviceHead *) stream_carve(&at, LANE_QUERIES * sizeof(DeviceHead));
	lane->view.results = (SearchResult *) stream_carve(&at, RESULT_ROOM * sizeof(SearchResult));
	lane->view.state = stream_carve(&at, state_bytes);
	return (size_t) (at - start);
}

/* Give a lane its memory, stream and event. */
static bool
open_lane(CudaEngine *engine, Lane *lane, unsigned char *pinned, size_t state_bytes,
		  EngineError *error)
{
	Lane measured;
	size_t bytes = lay_out_device(&measured, (unsigned char *) 256, state_bytes);
	int least,
		greatest;

	lane->engine = engine;
	lay_out_pinned(lane, pinned);
	if (range_reserve(&engine->arena, &lane->memory, PART_STATE, bytes, error) != ENGINE_OK ||
		range_grow(&engine->arena, &lane->memory, bytes, error) != ENGINE_OK ||
		range_reserve(&engine->arena, &lane->bitmap_memory, PART_STATE,
					  (uint64_t) ENGINE_MAX_SLOTS / 8 + 64, error) != ENGINE_OK ||
		range_grow(&engine->arena, &lane->bitmap_memory, BITMAP_STAGED, error) != ENGINE_OK)
		return false;
	lay_out_device(lane, (unsigned char *) lane->memory.base, state_bytes);
	lane->view.bitmaps = (const uint32_t *) lane->bitmap_memory.base;
	lane->view.flag = lane->flag;
	*lane->flag = 0;
	/* queries before jobs, where both are ready */
	if (!GPU(&engine->failure, cudaDeviceGetStreamPriorityRange(&least, &greatest)) ||
		!GPU(&engine->failure,
			 cudaStreamCreateWithPriority(&lane->stream, cudaStreamNonBlocking, greatest)) ||
		!GPU(&engine->failure, cudaMemset(lane->view.ended, 0, sizeof(uint32_t))) ||
		!GPU(&engine->failure, cudaMemset(lane->table, 0xFF, flow_table_bytes())) ||
		!GPU(&engine->failure, cudaEventCreateWithFlags(&lane->done, cudaEventDisableTiming)))
	{
		gpu_failed(&engine->failure, error);
		return false;
	}
	return true;
}

/* Open all lanes. */
bool
lanes_open(CudaEngine *engine, EngineError *error)
{
	Lane measured;
	size_t pinned = lay_out_pinned(&measured, (unsigned char *) 256);
	size_t sort_bytes;

	if (!GPU(&engine->failure, exact_sort_bytes(&sort_bytes)) ||
		!GPU(&engine->failure,
			 cudaHostAlloc((void **) &engine->pinned, LANES * pinned + PIECES * PIECE_BYTES,
						   cudaHostAllocMapped)))
	{
		gpu_failed(&engine->failure, error);
		return false;
	}
	engine->host_pinned = LANES * pinned + PIECES * PIECE_BYTES;
	for (uint32_t i = 0; i < LANES; i++)
		if (!open_lane(engine, &engine->lanes[i], engine->pinned + i * pinned,
					   sort_bytes > STATE_ROOM ? sort_bytes : STATE_ROOM, error))
			return false;
	for (uint32_t i = 0; i < PIECES; i++)
		engine->pieces[i].staged = engine->pinned + LANES * pinned + i * PIECE_BYTES;
	return true;
}

/* Close them. Nothing is in flight. */
void
lanes_close(CudaEngine *engine)
{
	for (uint32_t i = 0; i < LANES; i++)
	{
		Lane *lane = &engine->lanes[i];

		for (uint32_t j = 0; lane->busy && lane->nasked == 0 && j < lane->ntasks; j++)
			task_free(engine, lane->tasks[j]);
		if (lane->stream != NULL)
			GPU(&engine->failure, cudaStreamDestroy(lane->stream));
		if (lane->done != NULL)
			GPU(&engine->failure, cudaEventDestroy(lane->done));
		if (lane->memory.base != 0)
			range_release(&engine->arena, &lane->memory);
		if (lane->bitmap_memory.base != 0)
			range_release(&engine->arena, &lane->bitmap_memory);
	}
	if (engine->pinned != NULL)
		GPU(&engine->failure, cudaFreeHost(engine->pinned));
}

EngineStatus
lanes_grow_bitmaps(CudaEngine *engine, uint64_t slots, EngineError *error)
{
	EngineStatus status = ENGINE_OK;

	for (uint32_t i = 0; i < LANES && status == ENGINE_OK; i++)
		status = range_grow(&engine->arena, &engine->lanes[i].bitmap_memory,
							(slots + 63) / 64 * sizeof(uint64_t), error);
	return status;
}

bool
lanes_wait(CudaEngine *engine, const CudaMirror *mirror)
{
	for (uint32_t i = 0; i < LANES; i++)
	{
		Lane *lane = &engine->lanes[i];

		if (lane->busy && lane->mirror == mirror &&
			(!GPU(&engine->failure, cudaEventRecord(lane->done, lane->stream)) ||
			 !GPU(&engine->failure, cudaStreamWaitEvent(engine->job_stream, lane->done, 0))))
			return false;
	}
	return true;
}

bool
lanes_watch(CudaEngine *engine)
{
	bool busy = false;

	for (uint32_t i = 0; i < LANES; i++)
	{
		Lane *lane = &engine->lanes[i];
		uint32_t watched = __atomic_load_n(&lane->watched, __ATOMIC_ACQUIRE);

		if (watched == 0)
			continue;
		if (__atomic_load_n(lane->flag, __ATOMIC_ACQUIRE) != watched)
			busy = true;
		else if (__atomic_compare_exchange_n(&lane->watched, &watched, 0, false, __ATOMIC_ACQ_REL,
											 __ATOMIC_RELAXED))
			engine_wake(engine);
	}
	return busy;
}

void
lane_prefetch(const Lane *lane, uint32_t i)
{
	const EngineQuery *query = lane->tasks[i]->query;
	const SearchResult *results = lane->results + lane->queries[i].results;

	__builtin_prefetch(&lane->heads[i]);
	for (uint32_t at = 0; at < lane->queries[i].k && at < PREFETCHED;
		 at += 64 / sizeof(SearchResult))
	{
		__builtin_prefetch(results + at);
		__builtin_prefetch(query->results + at, 1);
	}
	__builtin_prefetch(&query->status, 1);
	__builtin_prefetch(&query->error, 1);
}
