/*
 * cpu.h
 *		The CPU engine's own structures: workers, tasks, jobs, phases.
 *
 * Private to the CPU engine. One mutex guards queues and lifetimes; the data of
 * mirrors needs none (see mirror.h).
 */
#ifndef GPUANN_CPU_H
#define GPUANN_CPU_H

#include <pthread.h>

#include "engine/clock.h"
#include "engine/cpu/mirror.h"
#include "engine/cpu/row_filters.h"
#include "engine/repair_row.h"
#include "engine/search.h"

typedef struct CpuWorker CpuWorker;
typedef struct Lists Lists;
typedef struct CpuListSearch CpuListSearch;
typedef struct MirrorEntry MirrorEntry;

/* Results of one part of a query. */
typedef struct PartAnswer
{
	SearchResult *results;
	uint32_t	count;
	uint32_t	distances;
} PartAnswer;

/*
 * A query in the engine: a copy of its inputs, and its results until poll
 * returns them.
 */
typedef struct QueryTask
{
	struct QueryTask *next;
	EngineQuery *query;			/* the caller's; accessed in submit and poll only */
	EngineQuery in;				/* its copy; pointers refer to copies owned by the task */
	uint64_t	overwrites;		/* of the mirror's rows, before it was submitted */
	RowFilter  *row_filter;		/* of in.program, once evaluated; in.filter includes it */
	uint32_t	admitted;		/* bits of in.filter, once counted */
	MirrorEntry *entry;
	WideVector	wide;
	int64_t		submitted_us;
	int64_t		started_us;
	uint32_t	nparts;			/* exact: parts of the rows, one thread each */
	uint32_t	next_part;
	uint32_t	parts_done;
	PartAnswer *parts;
	_Atomic bool no_memory;		/* a part ran out of memory */
	struct QueryTask *group;	/* lists: the next of a group that is searched together */
	CpuListSearch *lists;			/* lists: a search in parts; else NULL */
	uint32_t	threads;		/* probably free when it was submitted */

	EngineStatus status;
	EngineError error;
	SearchResult *results;
	uint32_t	count;
	SearchCounters counters;
} QueryTask;

typedef struct CpuJob
{
	struct CpuJob *next_of_mirror;
	struct CpuJob *next;		/* in the list of all jobs */
	JobId		id;
	EngineJob	in;
	MirrorEntry *entry;
	JobWatch	watch;
	bool		completed;
	EngineStatus status;
	EngineError error;
	LinkResult	link;
	uint64_t	link_bytes;
} CpuJob;

/* A mirror and its queues. */
struct MirrorEntry
{
	MirrorEntry *next;
	MirrorEntry *next_ready;
	Mirror	   *mirror;
	uint32_t	queries;		/* in flight */
	CpuJob	   *first_job;
	CpuJob	   *last_job;
	bool		ready;			/* in the engine's queue of mirrors with a job to run */
	bool		running;		/* a worker runs its first job */
	bool		dropping;		/* takes no new queries or jobs */
};

/* `count` items of work, shared by several threads. */
typedef struct WorkerPhase
{
	struct WorkerPhase *next;
	void		(*work) (void *context, uint32_t item, CpuWorker *worker);
	void	   *context;
	uint32_t	count;
	_Atomic uint32_t next_item;
	_Atomic uint32_t helpers;	/* changed with the engine's lock held */
	uint32_t	max_helpers;
	bool		awaited;		/* the thread that runs it sleeps until helpers is 0 */
} WorkerPhase;

typedef struct TaskList
{
	QueryTask  *first;
	QueryTask  *last;			/* if there is a first */
} TaskList;

typedef struct CpuEngine
{
	EngineConfig config;
	SimdLevel	level;
	MemoryBudget budget;
	int			nthreads;
	CpuWorker  *workers;

	pthread_mutex_t lock;
	pthread_cond_t work;		/* something to do, or stopping */
	pthread_cond_t done;		/* a phase lost a helper, a job or query completed */
	bool		stopping;
	TaskList	waiting;		/* queries with parts not yet started */
	_Atomic uint32_t waiting_parts; /* not yet started, of queries in that list */
	uint32_t	spinning;		/* workers that spin for a query instead of sleeping */
	uint32_t	max_spinning;
	uint32_t	queries;		/* in flight */
	_Atomic int64_t last_query_us; /* when the last was submitted; 0: there was none */
	TaskList	completed;		/* not yet returned by poll */
	uint32_t	parts_since_job;	/* parts of queries started since the last job */
	MirrorEntry *first_ready;
	MirrorEntry *last_ready;
	WorkerPhase *phases;
	_Atomic uint32_t phases_begun;	/* count; a worker that spins for the next phase watches it
									 * change */
	_Atomic uint32_t links;		/* links in progress: another phase will start soon */
	MirrorEntry *mirrors;
	CpuJob	   *jobs;
	uint32_t	unfinished_jobs;
	MirrorId	last_mirror;
	JobId		last_job;

	/* used by the owner thread only */
	QueryTask  *lone;			/* query that the owner runs itself at its next poll, or NULL */
	CpuWorker  *owner;			/* scratch memory for that */
	uint32_t	graph_us;		/* duration of the last graph search */
} CpuEngine;

/* A worker's memory for linking, reused from row to row. */
typedef struct LinkScratch
{
	Candidate  *candidates;
	uint32_t	room;
	WideVector	wide;			/* the row being linked */
	WideVector	pair;			/* the candidate compared with others */
	const float *pair_elements;	/* its elements: pair.elements, or in the mirror */
	uint32_t	pair_slot;
	uint32_t	dims;
	double		near_centre;	/* walk over halves: distances within near_radius of near_centre are
								 * measured from the original rows */
	double		near_radius;	/* see near_centre */
	uint32_t	measured;		/* distances computed by that walk */
	uint32_t	near;			/* how many of them were measured from the original rows */
	RepairScratch repair;
	void	   *repair_memory;	/* allocation behind `repair` */
} LinkScratch;

struct CpuWorker
{
	CpuEngine  *engine;
	pthread_t	thread;
	SearchScratch *search;
	LinkScratch link;
};

/*
 * Run a phase on the calling worker and up to threads - 1 others; returns when
 * all of its items are done.
 */
extern void phase_run(CpuWorker *worker, WorkerPhase *phase, int threads);

/* An exact scan of slots, with the nearest found so far. */
typedef struct ExactScan
{
	const Mirror *mirror;
	const EngineQuery *query;
	WideVector	wide;
	SearchResult *results;		/* heap, farthest first */
	uint32_t	count;
	uint32_t	room;
	uint32_t	distances;
	double		relative;		/* bounds of the error of fast distances */
	double		absolute;
} ExactScan;

extern void exact_begin(ExactScan *scan, const QueryTask *task, SearchResult *results,
						uint32_t room);
/* A VisitSlot, of an ExactScan. */
extern void exact_consider(void *context, uint32_t slot);

/*
 * Run one part of a query. query_merge_exact() makes the result after the last
 * part.
 */
extern void query_run_graph(QueryTask *task, CpuWorker *worker);
extern void query_run_exact(QueryTask *task, uint32_t part);
extern void query_merge_exact(QueryTask *task);

/*
 * Merge npending results of pending rows with others, which lie anywhere behind
 * them in task->results or elsewhere: in order, each slot once, without slots
 * that have changed since.
 */
extern void query_merge(QueryTask *task, const SearchResult *others, uint32_t nothers,
						uint32_t npending);

/* Consider the slots of [first, end) that the query's filter, if any, has. */
extern void exact_scan(ExactScan *scan, uint32_t first, uint32_t end);

/* Answer a query by an exact scan of all rows, or all that its filter has. */
extern void query_scan_all(QueryTask *task);

/* filtered.c */
/* Count the rows that a task's filter has. */
extern void query_count_admitted(QueryTask *task);
/*
 * Evaluate a task's program into its filter, and count what that admits. Sets
 * the task's status.
 */
extern void query_evaluate(QueryTask *task);
/*
 * Whether so few rows are admitted that measuring these is cheaper, or more
 * certain, than a search.
 */
extern bool query_admits_few(const QueryTask *task);
/* Answer such a query. Sets the task's status. */
extern void query_run_few(QueryTask *task);
/* The breadth of a graph search: as many of its list are to be admitted as
 * without a filter. */
extern uint32_t query_breadth(const QueryTask *task);

/* Whether a slot with this state word may be a result of a query. */
extern bool query_admits(const EngineQuery *query, uint32_t slot, uint64_t word);

/*
 * Link a mirror's pending slots, or repair rows that name dead slots; fills
 * job->link.
 */
extern EngineStatus link_run(CpuJob *job, CpuWorker *worker);
extern void link_scratch_free(LinkScratch *scratch);

#endif							/* GPUANN_CPU_H */
