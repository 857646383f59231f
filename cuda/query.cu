/*
 * query.cu
 *		Queries between submit and poll: checked and copied here, run by batch.cu, handed back here.
 *
 * What a caller's pointers name is copied at submit. Outputs and results are written in poll only.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Free a task and its copies. */
void
task_free(CudaTask *task)
{
	free(task->vector);
	free(task->admitted);
	free(task->kept);
	free(task->kept_trace);
	free(task);
}

/* Hand a task over to poll. */
void
task_ended(CudaEngine *engine, CudaTask *task)
{
	task->next = NULL;
	if (engine->first_ended == NULL)
		engine->first_ended = task;
	else
		engine->last_ended->next = task;
	engine->last_ended = task;
	if (task->mirror != NULL)
	{
		task->mirror->queries--;
		if (task->in_passes)
			task->mirror->passes--;
		task->mirror = NULL;
	}
}

/* Word i of a bitmap of `slots` bits, with nothing set beyond them. */
static uint64_t
word_of(const uint64_t *bits, uint32_t slots, uint32_t i)
{
	uint64_t first = (uint64_t) i * 64;

	if (bits == NULL || first >= slots)
		return 0;
	return slots - first >= 64 ? bits[i] : bits[i] & ((1ull << (slots - first)) - 1);
}

/* Make one bitmap of what may be answers out of exclusion and filter. */
static bool
copy_bitmaps(CudaTask *task, const EngineQuery *query)
{
	uint32_t slots = query->filter != NULL ? query->filter_slots : query->exclude_slots;
	uint32_t words;

	if (query->filter == NULL && query->exclude == NULL)
		return true;
	slots = slots < ENGINE_MAX_SLOTS ? slots : ENGINE_MAX_SLOTS;
	words = slots / 64 + 1;
	task->admitted = (uint64_t *) malloc(words * sizeof(uint64_t));
	if (task->admitted == NULL)
		return false;
	task->admitted_slots = slots;
	task->admit_others = query->filter == NULL;
	for (uint32_t i = 0; i < words; i++)
		task->admitted[i] = (query->filter != NULL ? word_of(query->filter, slots, i) : ~0ull) &
							~word_of(query->exclude, query->exclude != NULL ? query->exclude_slots : 0, i);
	return true;
}

/* Copy what a query names. */
static bool
copy_query(CudaTask *task, const EngineQuery *query)
{
	uint32_t bytes = task->mirror->vector_bytes;

	task->method = query->method;
	task->k = query->k;
	task->ef = query->ef > query->k ? query->ef : query->k;
	task->seeds = query->seeds > 0 ? query->seeds : ENGINE_SEEDS_TRIED;
	task->max_iterations = query->max_iterations;
	task->reference = query->method == METHOD_GRAPH && query->reference;
	task->trace_room = task->reference && query->trace != NULL ? query->trace_room : 0;
	task->has_beyond = query->has_beyond;
	task->beyond_distance = query->beyond_distance;
	task->beyond_slot = query->beyond_slot;
	task->vector = (unsigned char *) malloc(bytes);
	if (task->vector == NULL)
		return false;
	memcpy(task->vector, query->vector, bytes);
	return copy_bitmaps(task, query);
}

/* Take one query: it waits for a batch, or has ended already. */
static void
take_query(CudaEngine *engine, CudaTask *task, EngineQuery *query)
{
	CudaMirror *mirror = engine_mirror(engine, query->mirror);

	task->query = query;
	task->submitted_us = clock_us();
	task->status = engine_check_query(query, &task->error);
	if (task->status == ENGINE_OK && (mirror == NULL || mirror->dropping))
	{
		task->status = ENGINE_NOT_FOUND;
		engine_error(&task->error, ENGINE_NOT_FOUND, "no mirror %llu", (unsigned long long) query->mirror);
	}
	if (task->status == ENGINE_OK)
	{
		task->mirror = mirror;
		mirror->queries++;
		if (!copy_query(task, query))
		{
			task->status = ENGINE_NO_MEMORY;
			engine_error(&task->error, ENGINE_NO_MEMORY, "out of memory for a query");
		}
	}
	if (task->status != ENGINE_OK)
	{
		task_ended(engine, task);
		engine_wake(engine);
		return;
	}
	if (engine->first_waiting == NULL)
		engine->first_waiting = task;
	else
		engine->last_waiting->next = task;
	engine->last_waiting = task;
}

/* Take queries, all or none of them. */
EngineStatus
tasks_submit(CudaEngine *engine, EngineQuery *const *queries, uint32_t count)
{
	CudaTask *taken = NULL;

	for (uint32_t i = 0; i < count; i++)
	{
		CudaTask *task = (CudaTask *) calloc(1, sizeof(*task));

		if (task == NULL)
		{
			while (taken != NULL)
			{
				task = taken;
				taken = task->next;
				free(task);
			}
			return ENGINE_NO_MEMORY;
		}
		task->next = taken;
		taken = task;
	}
	for (uint32_t i = 0; i < count; i++)
	{
		CudaTask *task = taken;

		taken = task->next;
		task->next = NULL;
		take_query(engine, task, queries[i]);
	}
	return ENGINE_OK;
}

/* Write a task's outputs to its query. */
static void
write_outputs(const CudaTask *task)
{
	EngineQuery *query = task->query;

	query->status = task->status;
	query->error = task->error;
	query->count = task->status == ENGINE_OK ? task->found : 0;
	query->traced = task->traced;
	query->position = task->position;
	query->rows = task->rows;
	query->counters = task->counters;
	if (task->kept != NULL && task->status == ENGINE_OK)
		memcpy(query->results + task->kept_from, task->kept, (task->found - task->kept_from) * sizeof(SearchResult));
	if (task->kept_trace != NULL && task->status == ENGINE_OK)
		memcpy(query->trace, task->kept_trace,
			   (task->traced < task->trace_room ? task->traced : task->trace_room) * sizeof(uint32_t));
}

/* Hand back queries that have ended. */
uint32_t
tasks_poll(CudaEngine *engine, EngineQuery **completed, uint32_t room)
{
	uint32_t count = 0;

	while (count < room && engine->first_ended != NULL)
	{
		CudaTask *task = engine->first_ended;

		engine->first_ended = task->next;
		write_outputs(task);
		completed[count++] = task->query;
		task_free(task);
	}
	return count;
}
