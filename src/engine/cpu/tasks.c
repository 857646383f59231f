/*
 * tasks.c
 *		Queries of the CPU engine, from submit to poll.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/bits.h"
#include "engine/cpu/lists_search.h"
#include "engine/cpu/task_queue.h"

#define PART_ROWS			4096	/* minimum number of rows in a part of an exact search */
#define GROUP_QUERIES		256		/* most queries of a group that lists are searched for */
#define GROUP_PROBES		65536	/* most pairs of query and list of one */
#define LONE_US				500		/* the owner runs a lone query itself while searches take no
									 * longer */

/* Free a task and what it holds. */
void
task_free(QueryTask *task)
{
	for (uint32_t i = 0; task->parts != NULL && i < task->nparts; i++)
		free(task->parts[i].results);
	free(task->parts);
	free(task->results);
	free(task->wide.elements);
	free((void *) task->in.vector);
	free((void *) task->in.exclude);
	if (task->row_filter == NULL || task->in.filter != task->row_filter->bits)
		free((void *) task->in.filter);
	free((void *) task->in.program);
	row_filter_release(task->row_filter);
	free(task);
}

/* Copy memory; sets *failed if out of memory. */
static void *
task_copy_of(const void *memory, size_t size, bool *failed)
{
	void	   *copy;

	if (memory == NULL)
		return NULL;
	copy = malloc(size > 0 ? size : 1);
	if (copy == NULL)
		*failed = true;
	else
		memcpy(copy, memory, size);
	return copy;
}

/*
 * Copy a query's inputs. Returns false if out of memory; the task owns what was
 * copied.
 */
static bool
copy_inputs(QueryTask *task, const Mirror *mirror)
{
	const EngineQuery *query = task->query;
	bool		failed = false;

	task->in.vector = task_copy_of(query->vector, mirror->vector_bytes, &failed);
	task->in.exclude = task_copy_of(query->exclude, bits64_bytes(query->exclude_slots), &failed);
	task->in.filter = task_copy_of(query->filter, bits64_bytes(query->filter_slots), &failed);
	if (query->program != NULL)
	{
		task->in.program = program_copy(query->program);
		failed = failed || task->in.program == NULL;
	}
	task->wide.elements = wide_alloc(mirror->spec.dims);
	if (failed || task->wide.elements == NULL)
		return false;
	mirror->kernels->widen(task->in.vector, mirror->spec.dims, task->wide.elements);
	task->wide.scale = mirror_vector_scale(mirror, task->in.vector);
	return true;
}

/*
 * Create a task for a query; an invalid query becomes a failed task. Returns
 * NULL if out of memory.
 */
static QueryTask *
task_create(CpuEngine *engine, EngineQuery *query)
{
	QueryTask  *task = calloc(1, sizeof(*task));
	Mirror	   *mirror;

	if (task == NULL)
		return NULL;
	task->query = query;
	task->in = *query;
	task->in.vector = NULL;
	task->in.exclude = NULL;
	task->in.filter = NULL;
	task->in.program = NULL;
	task->in.passing = 0;
	task->submitted_us = monotonic_us();
	task->entry = entry_find(engine, query->mirror);
	if (task->entry == NULL)
	{
		task->status = ENGINE_NOT_FOUND;
		engine_error(&task->error, ENGINE_NOT_FOUND, "no mirror %llu",
					 (unsigned long long) query->mirror);
		return task;
	}
	mirror = task->entry->mirror;
	task->in.position = atomic_load(&mirror->position);	/* before rows: all it covers is below
														 * rows */
	task->in.rows = atomic_load(&mirror->rows);
	task->overwrites = row_filters_overwrites(mirror);
	task->status = engine_check_query(query, &mirror->spec, &task->error);
	if (task->status != ENGINE_OK)
		return task;
	if (copy_inputs(task, mirror))
		return task;
	task_free(task);
	return NULL;
}

/*
 * Divide an exact search of so many rows into parts, as many as threads are
 * probably free.
 */
static bool
split_exact(QueryTask *task, uint32_t rows)
{
	uint32_t	parts = rows / PART_ROWS;

	if (parts > task->threads)
		parts = task->threads;
	if (parts < 1)
		parts = 1;
	task->parts = calloc(parts, sizeof(PartAnswer));
	task->nparts = task->parts != NULL ? parts : 0;
	return task->parts != NULL;
}

/*
 * Divide a task into parts. One with a program has one part at first, which
 * evaluates it (begin_program()).
 */
static bool
task_split(CpuEngine *engine, QueryTask *task)
{
	task->threads = (uint32_t) engine->nthreads / (engine->queries + 1);
	task->nparts = 1;
	return task->in.method != METHOD_EXACT || task->in.program != NULL ||
		split_exact(task, task->in.rows);
}

/* Append a task to a list; locked. */
static void
tasks_append(TaskList *list, QueryTask *task)
{
	task->next = NULL;
	if (list->first == NULL)
		list->first = task;
	else
		list->last->next = task;
	list->last = task;
}

/* Queue a task for the workers; locked. */
static void
tasks_queue(CpuEngine *engine, QueryTask *task)
{
	tasks_append(&engine->waiting, task);
	atomic_fetch_add(&engine->waiting_parts, task->nparts);
}

/*
 * Take as many tasks off a list as are searched together with its first, and
 * let that lead them. Groups are as large as gives every thread one.
 */
static QueryTask *
take_group(const CpuEngine *engine, QueryTask **list, uint32_t count)
{
	QueryTask  *leader = *list;
	QueryTask **last = &leader->group;
	uint32_t	most = (count + (uint32_t) engine->nthreads - 1) / (uint32_t) engine->nthreads;
	uint64_t	probes;

	*list = leader->next;
	if (leader->status != ENGINE_OK || leader->in.method != METHOD_IVFPQ ||
		leader->in.program != NULL)
		return leader;
	probes = lists_probed(leader);
	if (most > GROUP_QUERIES)
		most = GROUP_QUERIES;
	for (; most > 1 && *list != NULL; most--)
	{
		QueryTask  *task = *list;

		if (task->status != ENGINE_OK || task->in.method != METHOD_IVFPQ ||
			task->in.program != NULL)
			break;
		probes += lists_probed(task);
		if (probes > GROUP_PROBES)
			break;
		*list = task->next;
		*last = task;
		last = &task->group;
	}
	return leader;
}

/*
 * Start a task and its group: keep it for the owner, or queue it, or if it has
 * failed pass it to poll; locked.
 */
static void
task_start(CpuEngine *engine, QueryTask *task, bool lone)
{
	if (task->status != ENGINE_OK)
	{
		tasks_append(&engine->completed, task);
		return;
	}
	if (lone)
		engine->lone = task;
	else
		tasks_queue(engine, task);
	for (; task != NULL; task = task->group)
	{
		engine->queries++;
		task->entry->queries++;
	}
}

/*
 * Whether the owner should run the query itself; locked. That saves two
 * wake-ups.
 */
static bool
owner_should_run(const CpuEngine *engine, EngineQuery *const *queries, uint32_t count,
				 const QueryTask *task)
{
	return count == 1 && queries[0]->lone && task->status == ENGINE_OK &&
		   task->in.method != METHOD_EXACT && task->in.program == NULL && engine->queries == 0 &&
		   engine->graph_us <= LONE_US;
}

/* Queue the query kept for the owner. */
void
tasks_queue_lone(CpuEngine *engine)
{
	QueryTask  *task = engine->lone;

	if (task == NULL)
		return;
	engine->lone = NULL;
	pthread_mutex_lock(&engine->lock);
	tasks_queue(engine, task);
	pthread_cond_signal(&engine->work);
	pthread_mutex_unlock(&engine->lock);
}

/* Start queries: all of them, or none on failure. */
EngineStatus
tasks_submit(CpuEngine *engine, EngineQuery *const *queries, uint32_t count, EngineError *error)
{
	QueryTask  *first = NULL;
	QueryTask **last = &first;
	uint32_t	parts = 0;
	bool		failed = false;
	bool		lone;
	bool		wake;

	tasks_queue_lone(engine);
	pthread_mutex_lock(&engine->lock);
	for (uint32_t i = 0; i < count && !failed; i++)
	{
		*last = task_create(engine, queries[i]);
		if (*last == NULL || ((*last)->status == ENGINE_OK && !task_split(engine, *last)))
			failed = true;
		else
		{
			parts += (*last)->nparts;
			last = &(*last)->next;
		}
	}
	if (first != NULL)
		atomic_store_explicit(&engine->last_query_us, first->submitted_us, memory_order_relaxed);
	lone = !failed && first != NULL && owner_should_run(engine, queries, count, first);
	if (lone)
		parts = 0;				/* wake no worker */
	while (first != NULL)
	{
		QueryTask  *task = first;

		if (failed)
		{
			first = task->next;
			task_free(task);
		}
		else
			task_start(engine, take_group(engine, &first, count), lone);
	}
	/*
	 * Spinning workers see new queries without being woken. Waking more workers
	 * than needed would make them contend for the lock.
	 */
	for (uint32_t i = engine->spinning; i < parts && i < (uint32_t) engine->nthreads; i++)
		pthread_cond_signal(&engine->work);
	wake = engine->config.wake != NULL && engine->completed.first != NULL;
	pthread_mutex_unlock(&engine->lock);
	if (failed)
		return engine_error(error, ENGINE_NO_MEMORY, "out of memory for %u queries", count);
	if (wake)
		engine->config.wake(engine->config.wake_arg);
	return ENGINE_OK;
}

/* Make a completed task visible to poll. */
static void
task_publish(CpuEngine *engine, QueryTask *task)
{
	MirrorEntry *entry = task->entry;

	task->counters.queue_us = (uint32_t) (task->started_us - task->submitted_us);
	task->counters.engine_us = (uint32_t) (monotonic_us() - task->started_us);
	pthread_mutex_lock(&engine->lock);
	tasks_append(&engine->completed, task);
	engine->queries--;
	if (--entry->queries == 0)
		entry_make_ready(engine, entry);
	if (engine->queries == 0)
		pthread_cond_broadcast(&engine->done);
	pthread_mutex_unlock(&engine->lock);
}

/* Publish a completed task and wake the owner. */
static void
task_complete(CpuEngine *engine, QueryTask *task)
{
	task_publish(engine, task);
	if (engine->config.wake != NULL)
		engine->config.wake(engine->config.wake_arg);
}

/* Run the query kept for the owner, in the owner's thread. */
static void
run_lone(CpuEngine *engine)
{
	QueryTask  *task = engine->lone;

	engine->lone = NULL;
	task->started_us = monotonic_us();
	if (task->in.method == METHOD_GRAPH)
		query_run_graph(task, engine->owner);
	else
		(void) query_run_lists(task, 1);
	task_publish(engine, task);
}

/* Copy a completed task's results to its query. */
static void
task_deliver(QueryTask *task)
{
	EngineQuery *query = task->query;

	query->status = task->status;
	query->count = task->status == ENGINE_OK ? task->count : 0;
	query->position = task->in.position;
	query->rows = task->in.rows;
	query->passing = task->in.passing;
	query->counters = task->counters;
	query->error = task->error;
	if (query->count > 0)
		memcpy(query->results, task->results, query->count * sizeof(SearchResult));
}

/* Return completed queries. */
uint32_t
tasks_poll(CpuEngine *engine, EngineQuery **completed, uint32_t room)
{
	QueryTask  *first;
	QueryTask **end;
	uint32_t	count = 0;

	if (engine->lone != NULL && room > 0)
		run_lone(engine);
	pthread_mutex_lock(&engine->lock);
	first = engine->completed.first;
	for (end = &first; *end != NULL && count < room; count++)
		end = &(*end)->next;
	engine->completed.first = *end;
	pthread_mutex_unlock(&engine->lock);
	*end = NULL;
	for (uint32_t i = 0; i < count; i++)
	{
		QueryTask  *task = first;

		first = task->next;
		completed[i] = task->query;
		if (task->in.method != METHOD_EXACT && task->status == ENGINE_OK)
			engine->graph_us = task->counters.engine_us;
		task_deliver(task);
		task_free(task);
	}
	return count;
}

/* Take the next part of a waiting query, or NULL; locked. */
QueryTask *
tasks_take(CpuEngine *engine, uint32_t *part)
{
	QueryTask  *task = engine->waiting.first;

	if (task == NULL)
		return NULL;
	*part = task->next_part++;
	if (task->started_us == 0)
		task->started_us = monotonic_us();
	if (task->next_part == task->nparts)
		engine->waiting.first = task->next;
	atomic_fetch_sub(&engine->waiting_parts, 1);
	engine->parts_since_job++;
	return task;
}

/* Complete a group's tasks. */
static void
complete_group(CpuEngine *engine, QueryTask *leader)
{
	int64_t		started_us = leader->started_us;

	for (QueryTask *task = leader, *next; task != NULL; task = next)
	{
		next = task->group;
		task->started_us = started_us;
		task_complete(engine, task);
	}
}

/* Queue a task that has begun again, in this many parts. */
static void
queue_parts(CpuEngine *engine, QueryTask *task, uint32_t parts)
{
	pthread_mutex_lock(&engine->lock);
	task->nparts = parts;
	task->next_part = 0;
	tasks_queue(engine, task);
	for (uint32_t i = engine->spinning + 1; i < parts; i++)
		pthread_cond_signal(&engine->work);
	pthread_mutex_unlock(&engine->lock);
}

/*
 * Evaluate a task's program, and choose how it is searched. Returns whether the
 * caller continues with the task's part; else it is complete, or in parts.
 */
static bool
begin_program(CpuEngine *engine, QueryTask *task)
{
	query_evaluate(task);
	if (task->status == ENGINE_OK && task->in.method == METHOD_EXACT &&
		!split_exact(task, task->admitted))
		task->status = engine_error(&task->error, ENGINE_NO_MEMORY, "out of memory for %u results",
									task->in.k);
	if (task->status == ENGINE_OK && task->nparts > 1)
	{
		queue_parts(engine, task, task->nparts);
		return false;
	}
	if (task->status == ENGINE_OK && !query_admits_few(task))
		return true;
	if (task->status == ENGINE_OK)
		query_run_few(task);
	task_complete(engine, task);
	return false;
}

/* Begin a search of lists; if it is worth more threads, queue its parts. */
static void
begin_lists(CpuEngine *engine, QueryTask *task)
{
	uint32_t	parts = query_run_lists(task, task->threads);

	if (parts == 0)
	{
		complete_group(engine, task);
		return;
	}
	queue_parts(engine, task, parts);
}

/* Run a part taken by tasks_take(). */
void
tasks_run(CpuWorker *worker, QueryTask *task, uint32_t part)
{
	CpuEngine  *engine = worker->engine;
	bool		last;

	if (task->in.program != NULL && task->row_filter == NULL && !begin_program(engine, task))
		return;
	if (task->in.method == METHOD_GRAPH)
	{
		query_run_graph(task, worker);
		task_complete(engine, task);
		return;
	}
	if (task->in.method == METHOD_IVFPQ && task->lists == NULL)
	{
		begin_lists(engine, task);
		return;
	}
	if (task->lists != NULL)
		query_run_lists_part(task, part);
	else
		query_run_exact(task, part);
	pthread_mutex_lock(&engine->lock);
	last = ++task->parts_done == task->nparts;
	pthread_mutex_unlock(&engine->lock);
	if (!last)
		return;
	if (task->lists != NULL)
		query_merge_lists(task);
	else
		query_merge_exact(task);
	task_complete(engine, task);
}

/* Run a part of a waiting query on this worker, if there is one. */
void
tasks_run_waiting(CpuWorker *worker)
{
	CpuEngine  *engine = worker->engine;
	QueryTask  *task;
	uint32_t	part;

	if (atomic_load_explicit(&engine->waiting_parts, memory_order_relaxed) == 0)
		return;
	pthread_mutex_lock(&engine->lock);
	task = tasks_take(engine, &part);
	pthread_mutex_unlock(&engine->lock);
	if (task != NULL)
		tasks_run(worker, task, part);
}
