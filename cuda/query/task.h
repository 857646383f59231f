/*
 * task.h
 *		A query between submit and poll.
 */
#ifndef GPUANN_CUDA_TASK_H
#define GPUANN_CUDA_TASK_H

#include "cuda/memory/mirror.h"

struct CudaEngine;

/* A query from submit to poll. */
struct CudaTask
{
	CudaTask *next;
	EngineQuery *query; /* the caller's: read in submit, written in poll */
	CudaMirror *mirror;
	EngineStatus status;
	uint64_t submitted_us;
	uint64_t started_us;

	/* copies of what the query named */
	SearchMethod method;
	uint32_t k;
	uint32_t ef;
	uint32_t seeds;
	uint32_t max_iterations;
	uint32_t probes;
	uint32_t rerank;
	uint32_t trace_room;
	bool reference;
	bool has_beyond;
	double beyond_distance;
	uint32_t beyond_slot;
	const unsigned char *borrowed; /* the caller's vector, until its submit returns; NULL: it has
								    * been copied */
	unsigned char *vector;		   /* kept with the task when it is put back */
	size_t vector_room;
	uint64_t *admitted; /* NULL, or the bitmap of what may be answers */
	uint32_t admitted_slots;
	uint32_t passing; /* bits set among these */
	bool admit_others;

	/*
	 * what ended outside poll, which alone may write to the query: results from
	 * `kept_from` on, and the trace
	 */
	SearchResult *kept;
	uint32_t *kept_trace;
	uint32_t kept_from;

	/* exact searches of many results go in passes */
	uint32_t found;
	bool in_passes; /* begun, and it takes several passes */
	uint64_t position;
	uint32_t rows;
	SearchCounters counters;
	uint32_t traced;

	EngineError error; /* where status is not ENGINE_OK; last: it is not cleared */
};

/* Bring what a task is cleared of nearer. */
static inline void
task_prefetch(const CudaTask *task)
{
	for (size_t i = 0; i < offsetof(CudaTask, error); i += 64)
		__builtin_prefetch((const char *) task + i, 1);
}

/* Rows that a task sees in a batch that starts now. */
static inline uint32_t
task_rows(const CudaTask *task)
{
	return task->in_passes ? task->rows : task->mirror->rows;
}

/*
 * Results that a task wants of a batch: no more than there are rows, at least
 * one.
 */
static inline uint32_t
task_k(const CudaTask *task)
{
	uint32_t rows = task_rows(task);

	return at_most(task->k, rows > 0 ? rows : 1) - task->found;
}

/*
 * Whether queries are about: then jobs take little of the device, and of the
 * owner's time, at once.
 */
extern bool queries_about(const CudaEngine *engine);
/* Whether lists answer a query, or all rows are searched. */
extern bool lists_answer(const CudaMirror *mirror, const EngineQuery *query);
extern EngineStatus tasks_submit(CudaEngine *engine, EngineQuery *const *queries, uint32_t count);
extern uint32_t tasks_poll(CudaEngine *engine, EngineQuery **completed, uint32_t room);
/*
 * Let a graph search that found too little be answered by all rows; vector is
 * its query's. False: there is no memory.
 */
extern bool task_searches_all(CudaTask *task, const unsigned char *vector);
/* Put a task back for the next query; free it if there are many. */
extern void task_free(CudaEngine *engine, CudaTask *task);
extern void tasks_release(CudaEngine *engine);
extern void task_ended(CudaEngine *engine, CudaTask *task);
/*
 * Of so many graph searches that come together, how many begin to run before
 * the next are taken.
 */
extern uint32_t queries_of_share(const CudaMirror *mirror, uint32_t count);

#endif /* GPUANN_CUDA_TASK_H */
