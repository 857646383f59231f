/*
 * task.h
 *		A query between submit and poll.
 */
#ifndef GPUANN_CUDA_TASK_H
#define GPUANN_CUDA_TASK_H

#include "cuda/memory/mirror.h"

struct CudaEngine;
struct Condition;

/*
 * A query from submit to poll, where batches of its own kind, copies of its
 * inputs or several passes are needed; others take the fast path
 * (query_fast.h).
 */
struct CudaTask
{
	CudaTask *next;
	EngineQuery *query; /* the caller's query: read in submit, written in poll */
	CudaMirror *mirror;
	EngineStatus status;
	uint64_t submitted_us;
	uint64_t started_us;

	/* copies of the query's fields */
	SearchMethod method;
	uint32_t k;
	uint32_t ef;
	uint32_t seeds;
	uint32_t max_iterations;
	uint32_t probes;
	uint32_t rerank;
	bool reference;
	bool has_beyond;
	double beyond_distance;
	uint32_t beyond_slot;
	unsigned char *vector; /* its memory stays with the task on the free list */
	size_t vector_room;
	uint64_t *admitted; /* copy of the bitmap of admitted slots, or NULL */
	uint32_t admitted_slots;
	uint32_t passing; /* upper bound of the slots admitted: number of bits set in it */
	bool admit_others;
	/*
	 * copy of the query's program, or NULL; it waits until it is assigned its
	 * condition (conditions.h), which leaves it when it ends
	 */
	FilterProgram *program;
	Condition *condition;
	uint64_t overwrites; /* of the mirror when it was submitted */
	uint32_t passing_rows; /* rows that the program may let pass */

	/*
	 * results that were found outside poll, which alone may write to the query:
	 * from `kept_from` on
	 */
	SearchResult *kept;
	uint32_t kept_from;

	/* exact searches of many results run in passes */
	uint32_t found;
	bool in_passes; /* it takes several passes, and the first has begun */
	uint64_t position;
	uint32_t rows;
	SearchCounters counters;

	EngineError error; /* set if status is not ENGINE_OK. Last, because task_new() clears only the
					    * fields before it */
};

/* Prefetch the part of a task that task_new() clears. */
static inline void
task_prefetch(const CudaTask *task)
{
	for (size_t i = 0; i < offsetof(CudaTask, error); i += 64)
		__builtin_prefetch((const char *) task + i, 1);
}

/* Whether a task has a program and not yet its condition. */
static inline bool
task_waits_for_condition(const CudaTask *task)
{
	return task->program != NULL && task->condition == NULL;
}

/* Whether only slots are answers that a bitmap names. */
static inline bool
task_is_filtered(const CudaTask *task)
{
	return task->condition != NULL || (task->admitted != NULL && !task->admit_others);
}

/*
 * Rows that a task sees in a batch that starts now: in passes, those of its
 * first pass.
 */
static inline uint32_t
task_rows(const CudaTask *task)
{
	return task->in_passes ? task->rows : task->mirror->rows;
}

/*
 * Results that a task asks of a batch: at most as many as there are rows, at
 * least one, less those of earlier passes.
 */
static inline uint32_t
task_k(const CudaTask *task)
{
	uint32_t rows = task_rows(task);

	return at_most(task->k, rows > 0 ? rows : 1) - task->found;
}

/*
 * Whether queries are in flight or came recently; jobs then use small pieces,
 * and little of the owner's time per call.
 */
extern bool queries_active(const CudaEngine *engine);
/* Whether a query is answered from lists; if not, all rows are searched. */
extern bool lists_answer(const CudaMirror *mirror, const EngineQuery *query);
extern EngineStatus tasks_submit(CudaEngine *engine, EngineQuery *const *queries, uint32_t count);
extern uint32_t tasks_poll(CudaEngine *engine, EngineQuery **completed, uint32_t room);
/*
 * Turn a graph search or search of lists that found too little into an exact
 * search of all rows.
 */
extern void task_searches_all(CudaTask *task);
/* A task's program has been evaluated: choose how the task is searched. */
extern void task_has_condition(CudaTask *task, Condition *condition);
/* Put a task on the free list, or free it where that is long. */
extern void task_free(CudaEngine *engine, CudaTask *task);
extern void tasks_release(CudaEngine *engine);
extern void task_ended(CudaEngine *engine, CudaTask *task);
/*
 * Of `count` graph searches that are submitted together, how many are launched
 * before the next are staged.
 */
extern uint32_t queries_of_share(const CudaMirror *mirror, uint32_t count);

#endif /* GPUANN_CUDA_TASK_H */
