/*
 * batch_end.cu
 *		The end of batches: polls the batch streams' flags, and copies answers
 *		out.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/query/cuda_engine.h"
#include "cuda/query/patience.h"
#include "cuda/query/query_fast.h"

#define LOOKAHEAD 4u	/* tasks ahead of the current one to prefetch */
#define ASK_US 2000u	/* interval of calls of cudaStreamQuery() per batch */

/* Put a task at the head of the waiting queue. */
static void
wait_again(CudaEngine *engine, CudaTask *task)
{
	task->next = engine->first_waiting;
	if (engine->first_waiting == NULL)
		engine->last_waiting = task;
	engine->first_waiting = task;
}

/*
 * Keep a task's results until poll copies them to its query. False: out of
 * memory.
 */
static bool
batch_keep(CudaTask *task, const SearchResult *results, uint32_t count)
{
	SearchResult *kept;

	if (task->kept == NULL)
		task->kept_from = task->found;
	kept = (SearchResult *) realloc(task->kept, (task->found - task->kept_from + count + 1) *
													sizeof(SearchResult));
	if (kept == NULL)
		return false;
	memcpy(kept + (task->found - task->kept_from), results, count * sizeof(SearchResult));
	task->kept = kept;
	return true;
}

/* Queue the next pass of an exact search: it begins after the last result. */
static void
wait_for_pass(CudaEngine *engine, CudaTask *task, const SearchResult *last)
{
	task->has_beyond = true;
	task->beyond_distance = last->distance;
	task->beyond_slot = last->slot;
	wait_again(engine, task);
}

/* Whether a filtered search of some of the lists found too few answers. */
static bool
filter_left_lists_few(const CudaTask *task, const DeviceHead *head)
{
	return task->method == METHOD_IVFPQ && task_is_filtered(task) &&
		   task->probes < task->mirror->spec.lists.lists &&
		   head->count < at_most(task_k(task), task->passing);
}

/*
 * Whether a filtered graph search found too few answers, or answers beyond the
 * distance that its search list has covered. A search with an iteration limit
 * is answered as it is.
 */
static bool
filter_left_few(const CudaTask *task, const DeviceHead *head)
{
	uint32_t k = at_most(task_k(task), task->passing);

	return task->method == METHOD_GRAPH && !task->reference && task->max_iterations == 0 &&
		   task_is_filtered(task) &&
		   (head->count < k || (uint64_t) head->reached * FILTER_TRUST < k);
}

/*
 * Copy a task's answer out of its batch stream, or queue the task again: for an
 * exact search of all rows where its filter left too few answers, or for the
 * next pass.
 */
static void
end_task(CudaEngine *engine, BatchStream *bstream, uint32_t i, bool polled)
{
	CudaTask *task = bstream->tasks[i];
	const DeviceHead *head = &bstream->heads[i];
	const DeviceQuery *query = &bstream->queries[i];
	const SearchResult *results = bstream->results + query->results;
	uint32_t count = at_most(head->count, query->k);
	bool more = task->in_passes && count == query->k && task_k(task) > count;

	task->counters.expanded += head->expanded;
	task->counters.distances += head->distances;
	task->counters.iterations += head->iterations;
	if (filter_left_few(task, head) || filter_left_lists_few(task, head))
	{
		task_searches_all(task);
		wait_again(engine, task);
		return;
	}
	if (polled && task->kept == NULL)
		memcpy(task->query->results + task->found, results, count * sizeof(SearchResult));
	else if (!batch_keep(task, results, count))
	{
		task->status = ENGINE_NO_MEMORY;
		engine_error(&task->error, ENGINE_NO_MEMORY, "out of memory for %u results", count);
		more = false;
	}
	task->found += count;
	task->counters.pending += head->pending;
	task->counters.engine_us += (uint32_t) (bstream->ended_us - bstream->started_us);
	if (more)
		wait_for_pass(engine, task, &results[count - 1]);
	else
		task_ended(engine, task);
}

/*
 * Whether a batch exceeds its time limit. It may have waited for batches in
 * flight beside it, so their work counts too.
 */
static bool
batch_is_overdue(const CudaEngine *engine, const BatchStream *bstream, uint64_t now)
{
	uint64_t explained = patience_base_us();

	if (now - bstream->launched_us <= explained)
		return false;
	for (uint32_t i = 0; i < BATCH_STREAMS; i++)
		if (engine->streams[i].busy && !engine->streams[i].ended)
			explained += engine->streams[i].work_us;
	return now - bstream->launched_us > explained;
}

/*
 * Whether a batch has finished: its flag is raised. Every ASK_US it asks the
 * driver, because a device that failed raises no flag. The flag is read again
 * after the stream was found idle, because it may have been raised between the
 * two looks; still unset, the batch ended without it, which is an error.
 */
static bool
batch_is_over(CudaEngine *engine, BatchStream *bstream)
{
	uint64_t now;
	cudaError_t state;

	if (__atomic_load_n(bstream->flag, __ATOMIC_ACQUIRE) == bstream->generation)
		return true;
	now = clock_us();
	if (now - bstream->asked_us < ASK_US)
		return false;
	bstream->asked_us = now;
	state = cudaStreamQuery(bstream->stream);
	if (state == cudaErrorNotReady)
	{
		if (batch_is_overdue(engine, bstream, now))
		{
			engine->device.failure.hangs = true;
			gpu_check(&engine->device.failure, cudaErrorUnknown, "a batch that does not end");
		}
		return false;
	}
	if (!gpu_check(&engine->device.failure, state, "a batch"))
		return false;
	if (__atomic_load_n(bstream->flag, __ATOMIC_ACQUIRE) == bstream->generation)
		return true;
	gpu_check(&engine->device.failure, cudaErrorUnknown, "a batch that ended without its flag");
	return false;
}

/*
 * Collect the batches that have finished, and hand their tasks to poll.
 * `watched` is cleared first, so that the poller does not wake the owner for a
 * batch that it already sees.
 */
void
batches_end(CudaEngine *engine, bool polled)
{
	for (uint32_t i = 0; i < BATCH_STREAMS; i++)
	{
		BatchStream *bstream = &engine->streams[i];
		uint32_t tiles;

		if (!bstream->busy || bstream->ended || engine->device.failure.failed ||
			!batch_is_over(engine, bstream))
			continue;
		__atomic_store_n(&bstream->watched, 0u, __ATOMIC_RELEASE);
		if (batch_continues(engine, bstream))
			continue;
		bstream->ended_us = clock_us();
		if (bstream->nasked > 0)
		{
			fast_end(engine, bstream);
			continue;
		}
		bstream->busy = false;
		tiles = is_stream(bstream->kind) ? host_rows_end(engine, bstream) : 0;
		for (uint32_t j = 0; j < bstream->ntasks; j++)
		{
			if (j + 2 * LOOKAHEAD < bstream->ntasks)
				task_prefetch(bstream->tasks[j + 2 * LOOKAHEAD]);
			if (j + LOOKAHEAD < bstream->ntasks)
				batch_stream_prefetch(bstream, j + LOOKAHEAD);
			bstream->tasks[j]->counters.iterations += tiles;
			end_task(engine, bstream, j, polled);
		}
	}
}
