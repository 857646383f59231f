/*
 * query_task.cu
 *		Queries between submit and poll: checked and copied here, run by
 *		batch.cu, handed back here.
 *
 * What a caller's pointers name is copied at submit. Outputs and results are
 * written in poll only.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/lists/lists_search.h"
#include "cuda/query/cuda_engine.h"
#include "cuda/query/query_fast.h"

extern "C"
{
#include "engine/filter_program.h"
}

#define LOOKAHEAD 4u			/* queries */
#define MIN_BATCH_QUERIES 64u	/* graph searches that are worth a batch of their own, */
#define SHARE_BYTES (64u << 10) /* if their vectors are so long together */
#define FREE_TASKS 16384u		/* tasks kept for later queries */
#ifdef EMULATED
#define FEW_MIN 32u /* so that small tables are searched by their graph */
#define FEW_BYTES 0u
#else
#define FEW_MIN 2048u	 /* rows that pass a filter: this many, or */
#define FEW_BYTES (40u << 20) /* of a program: rows of so many bytes, or */
#endif
#define FEW_DIVISOR 64u	 /* 1 / this of all, are searched exactly */
#define MOST_BREADTH 16u /* under a program: at most so many times as broad */
#define ANSWERS_EXPECTED 4u /* in the lists probed under a program there are so many times k */
#define BUSY_US 10000u	   /* queries are about so long after the last came */
#define KEPT_VECTOR 65536u /* bytes of a vector's memory that is kept with them */

bool
queries_active(const CudaEngine *engine)
{
	return engine->nqueries > 0 ||
		   (engine->asked_us != 0 && clock_us() - engine->asked_us < BUSY_US);
}

/* Have tasks for so many new queries. False: no memory. */
static bool
tasks_for(CudaEngine *engine, uint32_t count)
{
	uint32_t room = count < FREE_TASKS ? FREE_TASKS : count;

	if (room > engine->free_room)
	{
		CudaTask **tasks = (CudaTask **) realloc(engine->free_tasks, room * sizeof(CudaTask *));

		if (tasks == NULL)
			return false;
		engine->free_tasks = tasks;
		engine->free_room = room;
	}
	while (engine->nfree_tasks < count)
	{
		CudaTask *task = (CudaTask *) calloc(1, sizeof(*task));

		if (task == NULL)
			return false;
		engine->free_tasks[engine->nfree_tasks++] = task;
	}
	return true;
}

/* A task for a new query. There is one. */
static CudaTask *
task_new(CudaEngine *engine)
{
	CudaTask *task = engine->free_tasks[--engine->nfree_tasks];
	unsigned char *vector;
	size_t vector_room;

	if (engine->nfree_tasks >= LOOKAHEAD)
		task_prefetch(engine->free_tasks[engine->nfree_tasks - LOOKAHEAD]);
	vector = task->vector;
	vector_room = task->vector_room;
	memset(task, 0, offsetof(CudaTask, error));
	task->vector = vector;
	task->vector_room = vector_room;
	return task;
}

/* Free a task and its copies, but for what the next query can use. */
void
task_free(CudaEngine *engine, CudaTask *task)
{
	free(task->admitted);
	free(task->kept);
	free(task->program);
	if (engine->nfree_tasks < FREE_TASKS && task->vector_room <= KEPT_VECTOR)
	{
		engine->free_tasks[engine->nfree_tasks++] = task;
		return;
	}
	free(task->vector);
	free(task);
}

/* Free the tasks that were kept. */
void
tasks_release(CudaEngine *engine)
{
	while (engine->nfree_tasks > 0)
	{
		CudaTask *task = engine->free_tasks[--engine->nfree_tasks];

		free(task->vector);
		free(task);
	}
	free(engine->free_tasks);
	engine->free_tasks = NULL;
	engine->free_room = 0;
}

/* Hand a task over to poll. */
void
task_ended(CudaEngine *engine, CudaTask *task)
{
	task->next = NULL;
	engine->nqueries--;
	condition_release(task->condition);
	task->condition = NULL;
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
	/* with a program no slot beyond the bitmap is admitted */
	if (query->filter == NULL && query->program != NULL && slots < task->mirror->rows)
		slots = task->mirror->rows;
	slots = slots < ENGINE_MAX_SLOTS ? slots : ENGINE_MAX_SLOTS;
	words = slots / 64 + 1;
	task->admitted = (uint64_t *) malloc(words * sizeof(uint64_t));
	if (task->admitted == NULL)
		return false;
	task->admitted_slots = slots;
	task->admit_others = query->filter == NULL;
	for (uint32_t i = 0; i < words; i++)
	{
		task->admitted[i] =
			(query->filter != NULL ? word_of(query->filter, slots, i) : ~0ull) &
			~word_of(query->exclude, query->exclude != NULL ? query->exclude_slots : 0, i);
		if (query->filter != NULL)
			task->passing += (uint32_t) __builtin_popcountll(task->admitted[i]);
	}
	return true;
}

/*
 * Whether so few rows pass the filter of a search of graph or lists that
 * looking at all of these is cheaper than to find them there.
 */
static bool
few_pass(const CudaTask *task)
{
	uint32_t few = task->mirror->rows / FEW_DIVISOR;

	few = few > FEW_MIN ? few : FEW_MIN;
	if (task->condition != NULL && !task->mirror->host_rows &&
		few < FEW_BYTES / task->mirror->stride)
		few = FEW_BYTES / task->mirror->stride;
	return task->method != METHOD_EXACT && !task->reference && task_is_filtered(task) &&
		   task->passing <= few;
}

/* Whether too few of the rows that pass are in the lists probed. */
static bool
few_in_lists(const CudaTask *task)
{
	uint64_t lists = task->mirror->spec.lists.lists;

	return task->method == METHOD_IVFPQ && (uint64_t) task->passing * task->probes <
		   lists * task->k * ANSWERS_EXPECTED;
}

/*
 * The breadth of a graph search: as many of its list are to pass as without a
 * condition.
 */
static uint32_t
broadened(const CudaTask *task)
{
	uint64_t breadth = (uint64_t) task->ef * task->rows / task->passing;

	breadth = breadth < (uint64_t) task->ef * MOST_BREADTH ? breadth
														   : (uint64_t) task->ef * MOST_BREADTH;
	return breadth < ENGINE_MAX_EF ? (uint32_t) breadth : ENGINE_MAX_EF;
}

void
task_has_condition(CudaTask *task, Condition *condition)
{
	bool own = task_is_filtered(task); /* it has a filter beside the program */

	task->condition = condition;
	task->passing_rows = at_most(condition->passing, task->rows);
	task->passing = own ? at_most(task->passing, task->passing_rows) : task->passing_rows;
	task->admit_others = false;
	if (few_pass(task) || few_in_lists(task))
		task->method = METHOD_EXACT;
	else if (task->method == METHOD_GRAPH && !task->reference && task->max_iterations == 0)
		task->ef = broadened(task);
}

/* Copy a query's program, and capture what it must cover. */
static bool
copy_program(CudaTask *task, const FilterProgram *program)
{
	if (program == NULL)
		return true;
	task->program = program_copy(program);
	task->rows = task->mirror->rows;
	task->position = task->mirror->position;
	task->overwrites = task->mirror->overwrites;
	return task->program != NULL;
}

/*
 * Lists answer up to LISTS_MAX_K results, once there are centroids: until then
 * every row is pending.
 */
bool
lists_answer(const CudaMirror *mirror, const EngineQuery *query)
{
	ListsView view;

	if (!mirror->lists->open || query->k > LISTS_MAX_K)
		return false;
	view = lists_view(mirror);
	return lists_search_min_bytes(&view, at_most(query->probes, view.lists), query->k,
									query->rerank <= LISTS_MAX_RERANK ? query->rerank : 0) <=
		   STATE_ROOM - LISTS_ROOM;
}

/* Copy a query's vector. */
static bool
copy_vector(CudaTask *task, const void *vector, size_t bytes)
{
	if (task->vector_room < bytes)
	{
		free(task->vector);
		task->vector_room = 0;
		task->vector = (unsigned char *) malloc(bytes);
		if (task->vector == NULL)
			return false;
		task->vector_room = bytes;
	}
	memcpy(task->vector, vector, bytes);
	return true;
}

/* Copy what a query names. */
static bool
copy_query(CudaTask *task, const EngineQuery *query)
{
	task->method = query->method;
	task->k = query->k;
	task->ef = query->ef > query->k ? query->ef : query->k;
	task->seeds = query->seeds > 0 ? query->seeds : ENGINE_SEEDS_TRIED;
	task->max_iterations = query->max_iterations;
	task->reference = query->method == METHOD_GRAPH && query->reference;
	task->has_beyond = query->has_beyond;
	task->beyond_distance = query->beyond_distance;
	task->beyond_slot = query->beyond_slot;
	if (!copy_vector(task, query->vector, task->mirror->vector_bytes) ||
		!copy_bitmaps(task, query) || !copy_program(task, query->program))
		return false;
	task->probes = query->probes;
	task->rerank = query->rerank;
	if (few_pass(task) ||
		(task->method == METHOD_IVFPQ && !lists_answer(task->mirror, query)))
		task->method = METHOD_EXACT;
	return true;
}

void
task_searches_all(CudaTask *task)
{
	task->method = METHOD_EXACT;
	task->started_us = 0; /* it sees what is published when it starts again */
}

/* Take one query: it waits for a batch, or has ended already. */
static void
take_query(CudaEngine *engine, CudaTask *task, EngineQuery *query, uint64_t now)
{
	CudaMirror *mirror = device_mirror(&engine->device, query->mirror);

	task->query = query;
	task->submitted_us = now;
	task->status = mirror == NULL ? ENGINE_NOT_FOUND
								  : engine_check_query(query, &mirror->spec, &task->error);
	if (mirror == NULL || (task->status == ENGINE_OK && mirror->dropping))
	{
		task->status = ENGINE_NOT_FOUND;
		engine_error(&task->error, ENGINE_NOT_FOUND, "no mirror %llu",
					 (unsigned long long) query->mirror);
	}
	if (task->status == ENGINE_OK && query->method == METHOD_GRAPH && query->reference &&
		!graph_has_reference())
	{
		task->status = ENGINE_UNSUPPORTED;
		engine_error(&task->error, ENGINE_UNSUPPORTED, "only a test build has reference mode");
	}
	if (task->status == ENGINE_OK)
	{
		task->mirror = mirror;
		mirror->queries++;
		if (query->program != NULL && program_bytes(query->program) > PROGRAM_ROOM)
			task->status =
				engine_error(&task->error, ENGINE_UNSUPPORTED, "a condition of %zu bytes is too long",
							 program_bytes(query->program));
		else if (!copy_query(task, query))
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
	engine->conditions.waiting += task->program != NULL;
}

/* Bring the beginning of a vector nearer. */
static inline void
prefetch_bytes(const void *vector)
{
	for (uint32_t i = 0; vector != NULL && i < 512; i += 64)
		__builtin_prefetch((const char *) vector + i);
}

/*
 * While the device is at a share, the next is staged. All batch streams get
 * some, if these take longer to stage than a launch does.
 */
uint32_t
queries_of_share(const CudaMirror *mirror, uint32_t count)
{
	uint32_t share = (count + BATCH_STREAMS - 1) / BATCH_STREAMS;
	uint32_t least = mirror != NULL && mirror->stride * MIN_BATCH_QUERIES < SHARE_BYTES
						 ? SHARE_BYTES / mirror->stride
						 : MIN_BATCH_QUERIES;

	share = TUNED("SHARE", share < least ? least : share);
	return share < BATCH_QUERIES ? share : BATCH_QUERIES;
}

/*
 * Take queries, all or none of them. Many begin to run before the last are
 * taken.
 */
EngineStatus
tasks_submit(CudaEngine *engine, EngineQuery *const *queries, uint32_t count)
{
	uint64_t now = clock_us();
	uint32_t share =
		count > MIN_BATCH_QUERIES
			? queries_of_share(device_mirror(&engine->device, queries[0]->mirror), count)
			: BATCH_QUERIES;
	uint32_t started;

	if (!tasks_for(engine, count))
		return ENGINE_NO_MEMORY;
	engine->nqueries += count;
	engine->asked_us = now;
	started = fast_submit(engine, queries, count, now);
	if (started == count)
		return ENGINE_OK;
	for (uint32_t i = started; i < count; i++)
	{
		if (i + 2 * LOOKAHEAD < count)
		{
			__builtin_prefetch(queries[i + 2 * LOOKAHEAD]);
			__builtin_prefetch(&queries[i + 2 * LOOKAHEAD]->results);
		}
		if (i + LOOKAHEAD < count)
			prefetch_bytes(queries[i + LOOKAHEAD]->vector);
		take_query(engine, task_new(engine), queries[i], now);
		/* exact searches are the cheaper the more of them go together */
		if ((i + 1 - started) % (queries[i]->method != METHOD_EXACT ? share : BATCH_QUERIES) == 0 &&
			!engine->device.failure.failed)
			batches_start(engine);
	}
	/* once for all, because it goes through all tasks that wait */
	if (!engine->device.failure.failed)
		conditions_advance(engine);
	if (!engine->device.failure.failed)
		batches_start(engine);
	return ENGINE_OK;
}

/* Write a task's outputs to its query. */
static void
write_outputs(const CudaTask *task)
{
	EngineQuery *query = task->query;

	query->status = task->status;
	query->error.status = task->status;
	if (task->status == ENGINE_OK)
		query->error.text[0] = 0;
	else
		query->error = task->error;
	query->count = task->status == ENGINE_OK ? task->found : 0;
	query->position = task->position;
	query->rows = task->rows;
	query->passing = task->passing_rows;
	query->counters = task->counters;
	if (task->kept != NULL && task->status == ENGINE_OK)
		memcpy(query->results + task->kept_from, task->kept,
			   (task->found - task->kept_from) * sizeof(SearchResult));
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
		task_free(engine, task);
	}
	return count + fast_poll(engine, completed + count, room - count);
}
