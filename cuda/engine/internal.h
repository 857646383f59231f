/*
 * internal.h
 *		The CUDA engine's own structures: engine, mirrors, batch streams, jobs.
 *
 * All of it belongs to the engine's owner thread. Others exist: CUDA's, which
 * runs the functions that end a piece's work (they wake the owner), the poller
 * (see engine.cu), and the pool (host_pool.h), which works only while the owner
 * is within submit or poll.
 */
#ifndef GPUANN_CUDA_INTERNAL_H
#define GPUANN_CUDA_INTERNAL_H

#include <pthread.h>
#include <stddef.h>

#include "cuda/engine/arena.h"
#include "cuda/engine/host_pool.h"
#include "cuda/engine/mirror_lists.h"
#include "cuda/exact/exact.h"
#include "cuda/lists/lists_learn.h"

#define BATCH_STREAMS 4u						/* batches in flight */
#ifndef BATCH_QUERIES
#define BATCH_QUERIES 2560u				/* queries of a batch with tasks: ten thousand are four */
#endif
/* of any batch: most of ten thousand (query_fast.cu) */
#define STREAM_QUERIES (BATCH_QUERIES > 6400u ? BATCH_QUERIES : 6400u)
#define VECTOR_ROOM ((size_t) 8 << 20)	/* bytes of a batch's query vectors */
#define INPUT_ROOM (STREAM_QUERIES * sizeof(DeviceQuery) + 256 + VECTOR_ROOM)
#define RESULT_ROOM (1u << 18)			/* results of a batch */
#define TRACE_ROOM (1u << 20)			/* entries of a batch's traces */
/* bytes of a batch's bitmaps that go through pinned memory at once */
#ifdef EMULATED
#define BITMAP_STAGED ((size_t) 4 << 10)
#else
#define BITMAP_STAGED ((size_t) 2 << 20)
#endif
#define STATE_ROOM ((size_t) 64 << 20)	/* bytes of lists, sets and tables of a batch */

#define LISTS_ROOM (STATE_ROOM / 4)	/* of it: lists that many pending rows leave */

#define SEEDS_ROOM 65536u /* seeds of a mirror, at most (src/engine/prune.h) */
#define PIECES 4u						/* pieces of jobs in flight */
#define PIECE_BYTES ((size_t) 4 << 20)	/* of a job, staged at once, */
#define BUSY_PIECE_BYTES ((size_t) 1 << 20) /* while queries are about */

/* A slot's state, on the host. */
#define SLOT_DEAD 1u   /* no answer */
#define SLOT_ABSENT 2u /* never had a row; always dead too */
#define SLOT_LINKED 4u
#define SLOT_PENDING 8u
#define SLOT_LISTED 16u /* in the list of pending slots that searches scan */
#define SLOT_MARKED 32u /* in the piece being filled */

struct CudaJob;
struct CudaEngine;
struct LinkWork;
struct LinkBatch;
struct ListsWork;
struct ListsTrain;
struct Piece;

struct CudaMirror
{
	CudaMirror *next;
	MirrorId id;
	MirrorSpec spec;
	uint32_t vector_bytes;
	uint32_t stride;
	uint32_t most;	   /* slots the reserved addresses hold */
	uint32_t capacity; /* slots mapped, but for the rows of some in host memory */
	bool may_be_far;   /* rows that do not fit go on in host memory */

	Range vectors;
	Range versions;
	Range dead;
	size_t dead_cleared; /* bytes of its memory that have been cleared */
	Range graph;
	Range norms;
	Range pending[2]; /* searches read one; a list without the linked slots is made in the other */
	Range seeds;	  /* two halves, likewise; behind them what codes are made with
					   * (quantizer_jobs.cu), and entries (entry_points.cu) */
	Range codes;	  /* may have less room than the others: then the mirror has no codes */
	Range scales;	  /* of rotated codes, likewise; else there are no addresses either */
	uint32_t pending_side;
	uint32_t seeds_side;
	uint32_t entries_side;

	/* on the host */
	uint8_t *states;
	uint32_t *listed; /* the list of pending slots that searches scan */
	uint32_t nlisted;
	uint32_t *deferred; /* bitmap: rows that repairs changed and no result has had; or NULL */
	uint32_t deferred_rows;

	/* published */
	uint32_t rows;
	uint32_t linked;
	uint32_t npending;
	uint32_t ndead;
	uint32_t nseeds;
	uint64_t seeds_sum; /* entry_points_sum() of them */
	uint32_t nentries;	/* seeds in lists; 0: there are none (entry_points.h) */
	uint64_t position;

	/* what lists of entries were made of */
	uint64_t entry_points_sum;
	uint32_t relinked; /* rows linked since */

	/* codes (quantizer.h) */
	float *code_offsets;   /* those in use */
	float code_steps;	   /* 0: there are none yet */
	uint32_t coded;		   /* rows below this have codes */
	bool has_code_room;	   /* there is memory for the codes of all slots */
	bool has_ranges;	   /* the ranges of values were begun */
	bool ranges_changed;   /* rows were measured since they were looked at */
	uint32_t judged;	   /* rows that were linked at the last judgement */
	uint32_t overwritten;  /* rows since then */
	bool codes_good;	   /* searches walk them */
	bool codes_rotated;	   /* they are of rotated rows, with a scale each */

	CudaLists *lists; /* METHOD_IVFPQ; else NULL */

	uint32_t queries; /* waiting or in flight */
	uint32_t passes;  /* of them, those that have begun and take several passes */
	cudaEvent_t changed; /* the last change in place: later batches wait for it */
	bool has_changed;
	CudaJob *first_job;
	CudaJob *last_job;
	bool dropping;
};

/* Bytes of the bitmap of rows that repairs have deferred. */
static inline size_t
mirror_deferred_bytes(const CudaMirror *mirror)
{
	return mirror->deferred == NULL
			   ? 0
			   : ((size_t) mirror->deferred_rows / 32 + 1) * sizeof(uint32_t);
}

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

/* What runs together in one batch stream. */
typedef enum BatchKind
{
	BATCH_WALK, /* graph searches that graph_search_codes.cu takes */
	BATCH_GRAPH, /* others */
	BATCH_REFERENCE, /* those in reference mode */
	BATCH_LISTS,	 /* searches of lists */
	BATCH_EXACT,	 /* small k */
	BATCH_EXACT_SORT, /* one query of a large k */
	BATCH_STREAM,	 /* small k, and rows are brought from host memory (host_rows.cu) */
	BATCH_STREAM_SORT /* the same for one query of a large k */
} BatchKind;

/* A stream with memory of its own: pinned on the host, and on the device. */
struct BatchStream
{
	CudaEngine *engine;
	cudaStream_t stream;
	cudaEvent_t done; /* recorded when a job is to wait for the batch stream */
	bool busy;
	uint32_t generation; /* of the batch */
	uint32_t *flag;		 /* pinned: becomes `generation` when the batch is over */
	uint32_t watched;	 /* `generation`, while the poller is to wake the owner for it; else 0.
						  * Atomic */
	uint64_t started_us;
	uint64_t launched_us; /* the same, or when its last part was launched (host_rows.cu) */
	uint64_t work_us; /* how long after that its work may take (patience.h) */
	uint64_t asked_us; /* when CUDA was last asked how the batch stream fares */
	uint64_t ended_us; /* when the owner saw it */
	CudaMirror *mirror;
	BatchKind kind;
	CudaTask *tasks[BATCH_QUERIES];
	uint32_t ntasks;
	uint32_t nresults;
	uint32_t beside; /* queries that the device is at with these, these included: few get more warps
					  * each */

	/*
	 * of a fast batch (query_fast.cu), which has no tasks: whose answers
	 * these are, and what all of them are told
	 */
	EngineQuery *asked[STREAM_QUERIES];
	uint32_t nasked; /* 0: the batch has tasks */
	uint32_t nback;	 /* handed back */
	bool ended;		 /* answers wait for poll; the mirror may be gone */
	uint32_t k;
	uint32_t rows;
	uint64_t position;
	uint64_t submitted_us;

	bool last_part;		/* of a batch in tiles, the last is on its way */
	size_t bitmaps_staged; /* bytes of the batch's bitmaps that have been staged: CUDA's thread */
	bool read_in_place; /* the device reads its input from pinned memory */

	/* pinned */
	unsigned char *input; /* the queries, then their vectors: one copy */
	DeviceQuery *queries;
	unsigned char *vectors;
	unsigned char *bitmaps;
	DeviceHead *heads;
	SearchResult *results;
	uint32_t *traces;

	bool at_once; /* an exact search that is one launch */
	unsigned char *table; /* on the device: of these */
	Range memory; /* on the device: input, then heads and results of exact searches, then the
				   * state */
	Range bitmap_memory;
	BatchView view;
};

/*
 * Rows in host memory on their way through the device, for one batch stream at
 * a time: two buffers there, filled by a stream of their own while the batch
 * stream's searches the other.
 */
struct RowStream
{
	cudaStream_t copies;
	cudaEvent_t copied[2];	 /* a buffer is filled */
	cudaEvent_t searched[2]; /* and may be filled again */
	Range memory;
	size_t tile_bytes;	/* of a buffer; 0: not open */
	uint32_t forced;	/* rows of a tile; 0: as many as a buffer holds */

	BatchStream *bstream; /* whose batch it is at; NULL: none */
	ExactLaunch launch;
	ExactStream search;
	uint32_t near;	/* rows on the device */
	uint32_t next;	/* the first that is not launched */
	uint32_t tiles; /* launched */
};

typedef enum JobStage
{
	STAGE_QUEUED,
	STAGE_CODES,   /* codes are made */
	STAGE_LINK,	   /* rows are linked or repaired, and the result brought to the host */
	STAGE_LISTS,   /* rows get into lists */
	STAGE_FLOATS,  /* centroids and codebook are on their way */
	STAGE_TRAIN,   /* or are made */
	STAGE_ROWS,	   /* rows are on their way */
	STAGE_STATES,  /* the host's states of appended rows are written */
	STAGE_SEEDS,   /* seeds are */
	STAGE_PENDING, /* the new list of pending slots is */
	STAGE_JUDGE,   /* codes are judged by the graph */
	STAGE_ENTRIES, /* lists of entries are made */
	STAGE_DRAIN,   /* the last pieces are */
	STAGE_DONE
} JobStage;

struct CudaJob
{
	CudaJob *next;			 /* of all */
	CudaJob *next_of_mirror; /* after this one */
	JobId id;
	EngineJob in;
	CudaMirror *mirror;
	JobStage stage;
	uint32_t done;		/* rows, of this stage */
	uint32_t shown_done; /* what JobProgress says */
	uint32_t shown_total;
	uint32_t in_flight; /* pieces */
	bool fenced;		/* one of them, or one before, stands for all that a failed job launched */
	uint32_t step;		/* of a stage that has several */
	Piece *held;		/* a piece whose memory is read when it has been applied */
	EngineStatus link_status; /* of a link: how it ended */
	LinkResult link;	/* its arrays are the job's own */
	LinkWork *work;		/* what it is at (link.cu) */
	ListsWork *lists;	/* likewise (lists_jobs.cu) */
	ListsTrain *train;	/* likewise (lists_train_job.cu) */
	uint32_t npending; /* slots: appended and on their way, or left on the list */
	bool has_pending;
	uint32_t marked;  /* slots that it links and that are called linked */
	uint32_t scanned; /* slots of the list, or appended rows, that were gone through */
	uint32_t ndead;	  /* of these rows */
	uint32_t *seeds;
	uint32_t nseeds;
	bool has_seeds;
	uint32_t nentries; /* as the mirror's, where has_entries */
	uint64_t entry_points_sum;
	bool has_entries;
	/*
	 * bytes of the host that are counted for it: until it is complete, and what
	 * its result has, until it is released
	 */
	uint64_t work_bytes;
	uint64_t result_bytes;
	bool cancelled;
	EngineStatus status;
	EngineError error;
};

/* What a batch takes of its batch stream's memory so far. */
typedef struct BatchFill
{
	size_t vectors;
	size_t bitmaps;
	uint64_t results;
	uint64_t traces;
	uint32_t max_k;
	uint32_t max_ef;
	uint32_t max_probes;
	uint32_t max_rerank; /* of those up to LISTS_MOST_RERANK */
	bool apart;
} BatchFill;

/* Pinned and device memory for one piece of a job. */
struct Piece
{
	CudaEngine *engine;
	CudaJob *job; /* in flight for it; NULL: not in flight */
	bool held;	  /* not free yet all the same */
	unsigned char *staged;
	unsigned char *device;
	cudaEvent_t done;
};

/* What a job has on its way here in a piece: units, from the first on. */
struct Fetch
{
	uint32_t first;
	uint32_t count; /* 0: nothing */
};

/*
 * The kind that the last graph query was found to be of: those that come
 * together are mostly alike.
 */
struct KindCache
{
	MirrorId mirror;
	bool codes;
	bool rotated;
	uint32_t k;
	uint32_t ef;
	bool apart;
	BatchKind kind;
};

struct CudaEngine
{
	EngineConfig config;
	Failure failure;
	Arena arena;
	cudaDeviceProp device;
	/* the host's memory: what is pinned, and the mirrors' arrays */
	uint64_t host_pinned;
	uint64_t host_arrays;
	RowStream stream;

	CudaMirror *mirrors;
	MirrorId last_mirror;
	BatchStream streams[BATCH_STREAMS];
	unsigned char *pinned; /* all pinned memory */
	unsigned char *learn_shared; /* of it, for the training of */
	CudaJob *learner;			 /* ... this job; NULL: none is at it */
	CudaTask *first_waiting;
	CudaTask *last_waiting;
	CudaTask *first_ended;
	CudaTask *last_ended;
	CudaTask **free_tasks; /* an array, so that it is known which come next */
	uint32_t nfree_tasks;
	uint32_t nqueries; /* taken, not ended */
	uint64_t asked_us; /* when queries were last submitted */
	bool borrows;	   /* the vectors of tasks that are taken now are copied at the end of submit,
					    * if they wait then */
	uint32_t free_room; /* of free_tasks */
	KindCache kinds;
	HostPool pool;

	cudaStream_t job_stream;
	cudaStream_t counts_stream; /* counts of probes: nothing else is waited for */
	cudaStream_t job_bell; /* as a batch stream's */
	Piece pieces[PIECES + 1]; /* the last has no memory: it only says what was launched before */
	Range piece_memory;
	CudaJob *jobs;
	JobId last_job;

	/* the poller: wakes the owner now and then while something is in flight */
	pthread_t poller;
	bool has_poller;
	pthread_mutex_t poller_lock;
	pthread_cond_t poller_changed;
	bool stopping;
	bool in_flight;	 /* set without the lock */
	bool poller_rests; /* it sleeps until it is signalled */
};

/* Bring what a task is cleared of nearer. */
static inline void
task_prefetch(const CudaTask *task)
{
	for (size_t i = 0; i < offsetof(CudaTask, error); i += 64)
		__builtin_prefetch((const char *) task + i, 1);
}

static inline uint32_t
at_most(uint32_t n, uint32_t most)
{
	return n < most ? n : most;
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

static inline bool
is_stream(BatchKind kind)
{
	return kind == BATCH_STREAM || kind == BATCH_STREAM_SORT;
}

/* engine.cu */
extern uint64_t clock_us(void);
extern void engine_wake(CudaEngine *engine);
extern void engine_set_in_flight(CudaEngine *engine);
extern CudaMirror *engine_mirror(CudaEngine *engine, MirrorId id);

/*
 * context.cu: bytes in use of a device, and of these by this process; what the
 * context has taken since. 0: not told
 */
extern void device_bytes_used(const cudaDeviceProp *device, uint64_t *all, uint64_t *own);
extern uint64_t context_bytes(const cudaDeviceProp *device, int number, uint64_t all_before,
							  uint64_t own_before);

/* mirror.cu */
extern EngineStatus mirror_create(CudaEngine *engine, const MirrorSpec *spec, MirrorId *id,
								  EngineError *error);
extern EngineStatus mirror_grow(CudaEngine *engine, CudaMirror *mirror, uint64_t slots,
								EngineError *error);
extern void mirror_free(CudaEngine *engine, CudaMirror *mirror);
extern MirrorView mirror_view(const CudaMirror *mirror);
extern uint64_t mirror_bytes(const CudaMirror *mirror);
/* Rows below this are on the device; the rest is in host memory. */
extern uint32_t mirror_near_rows(const CudaMirror *mirror);
/*
 * Copy rows to or from a mirror, wherever its rows are; `other` is device or
 * pinned memory.
 */
extern bool mirror_copy_rows(CudaEngine *engine, const CudaMirror *mirror, uint32_t slot,
							 uint32_t count, void *other, bool in, cudaStream_t stream);
extern EngineStatus mirror_rows(CudaEngine *engine, CudaMirror *mirror, const uint32_t *slots,
								uint32_t count, uint32_t *rows, uint32_t *versions,
								EngineError *error);

/* batch_stream.cu */
extern bool batch_streams_open(CudaEngine *engine, EngineError *error);
extern void batch_streams_close(CudaEngine *engine);
/* Make the batch streams' bitmaps large enough for mirrors of so many slots. */
extern EngineStatus batch_streams_grow_bitmaps(CudaEngine *engine, uint64_t slots,
											   EngineError *error);
/* Let the job stream wait for the batches in flight that read a mirror. */
extern bool batch_streams_wait(CudaEngine *engine, const CudaMirror *mirror);
/*
 * Wake the owner for batches that are over and that it has not seen: the
 * poller. Returns whether any is not over.
 */
extern bool batch_streams_watch(CudaEngine *engine);
/* Bring the answer of a batch stream's i-th task nearer, and where it goes. */
extern void batch_stream_prefetch(const BatchStream *bstream, uint32_t i);

/* batch.cu */
extern void batches_start(CudaEngine *engine);
/* Which kernel graph searches go to; apart: with a bitmap or a bound. */
extern BatchKind graph_kind(CudaEngine *engine, const CudaMirror *mirror, uint32_t k, uint32_t ef,
							bool apart);
/* A fill with a query of lists more. */
extern void fill_lists(BatchFill *fill, uint32_t probes, uint32_t rerank);
/* A batch stream has a batch from now on. */
extern void batch_begin(BatchStream *bstream);
/*
 * Launch graph searches whose queries and vectors, so many bytes, are staged in
 * a batch stream. False: the engine failed.
 */
extern bool batch_launch_staged(CudaEngine *engine, BatchStream *bstream, const BatchFill *fill,
								size_t bytes);
/*
 * Whether a batch stream whose flag was seen goes on with a part of its batch.
 */
extern bool batch_goes_on(CudaEngine *engine, BatchStream *bstream);

/*
 * batch_end.cu: take back what has ended. polled: the caller of poll waits, and
 * results may be written.
 */
extern void batches_end(CudaEngine *engine, bool polled);

/* query_fast.cu: queries that need no tasks */
/*
 * Start those of many queries that can be, from the first on; returns how many.
 */
extern uint32_t fast_submit(CudaEngine *engine, EngineQuery *const *queries, uint32_t count,
							  uint64_t now);
/* A batch stream's fast batch is over. */
extern void fast_end(CudaEngine *engine, BatchStream *bstream);
/* Hand back queries of those that are over, at most room. */
extern uint32_t fast_poll(CudaEngine *engine, EngineQuery **completed, uint32_t room);

/* host_rows.cu: exact searches of rows in host memory */
extern EngineStatus host_rows_open(CudaEngine *engine, EngineError *error);
extern void host_rows_close(CudaEngine *engine);
/* Whether a task's search brings rows from host memory. */
extern bool host_rows_takes(const CudaTask *task);
/* Whether it has to wait for another's. */
extern bool host_rows_waits(const CudaEngine *engine, const CudaTask *task);
/* Queries of a batch, for so many results. */
extern uint32_t host_rows_queries(uint32_t max_k);
/*
 * Launch the first part of a batch stream's batch, and the next while there are
 * more; false: the device failed.
 */
extern bool host_rows_begin(CudaEngine *engine, BatchStream *bstream, const ExactLaunch *launch);
extern bool host_rows_more(const CudaEngine *engine);
extern bool host_rows_continue(CudaEngine *engine, BatchStream *bstream);
/*
 * Rows that a part of a batch in tiles searches, and bytes that it brings, at
 * most.
 */
extern void host_rows_part(const CudaEngine *engine, const CudaMirror *mirror, uint64_t *rows,
						   uint64_t *bytes);
/*
 * Bytes that a query whose filter lets few rows pass reads in host memory, at
 * most.
 */
extern uint64_t host_rows_passing_bytes(const CudaMirror *mirror);
/* A batch stream's batch is over; returns its tiles. */
extern uint32_t host_rows_end(CudaEngine *engine, BatchStream *bstream);

/* query_task.cu */
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

/* jobs.cu */
extern EngineStatus job_submit(CudaEngine *engine, const EngineJob *in, JobId *id,
							   EngineError *error);
extern CudaJob *job_find(CudaEngine *engine, JobId id);
extern void jobs_run(CudaEngine *engine);
/* Count bytes of the host for a job, in its work_bytes or result_bytes. */
extern void job_counts(CudaEngine *engine, uint64_t *counted, uint64_t bytes);
extern void job_free(CudaEngine *engine, CudaJob *job);

/*
 * job_upload.cu: one piece of a job each; false when there is no free piece, or
 * the engine failed
 */
extern bool piece_append(CudaEngine *engine, CudaJob *job);
extern bool piece_overwrite(CudaEngine *engine, CudaJob *job);
extern bool piece_dead(CudaEngine *engine, CudaJob *job);
extern bool piece_graph(CudaEngine *engine, CudaJob *job);
extern bool piece_slots(CudaEngine *engine, CudaJob *job, const uint32_t *slots, uint32_t count,
						uint32_t *to);
extern bool piece_gap(CudaEngine *engine, CudaJob *job);
/* How many rows of so many bytes each a piece holds, of those left. */
extern uint32_t rows_of_piece(const CudaEngine *engine, size_t row_bytes, uint32_t left);
/* Copy to the device, on the job stream. */
extern bool upload_copy_in(CudaEngine *engine, void *to, const void *from, size_t bytes);
/* Set words of an array, at the indexes named; both are device memory. */
extern bool upload_words(CudaEngine *engine, uint32_t *to, const uint32_t *indexes,
						 const uint32_t *words, uint32_t count);
/*
 * Let batches of a mirror that start later wait for what the job stream holds
 * now.
 */
extern bool hold_later_batches(CudaEngine *engine, CudaMirror *mirror);
extern void pieces_end(CudaEngine *engine);
/*
 * A piece that stays the job's until piece_release, for what the device writes
 * into it; NULL: none is free.
 */
extern Piece *piece_hold(CudaEngine *engine, CudaJob *job);
extern void piece_release(CudaJob *job);
/*
 * Let a piece without memory stand for what the job stream holds now; false:
 * not now.
 */
extern bool piece_send_fence(CudaEngine *engine, CudaJob *job);
/* A piece that is not in flight, to be sent; NULL: there is none. */
extern Piece *piece_free(CudaEngine *engine);
/* Give up what was on its way here, one fetch for each piece. */
extern void pieces_let_go(CudaEngine *engine, const Fetch *fetches);
/* Note that a piece is on its way. */
extern bool piece_send(CudaEngine *engine, CudaJob *job, Piece *piece);

/* quantizer_jobs.cu: codes of a mirror's rows. The stages: true when over */
extern bool quantizer_stage(CudaEngine *engine, CudaJob *job);
extern bool quantizer_judge_stage(CudaEngine *engine, CudaJob *job);
/*
 * Have codes judged by the graph as the job stream leaves it, by slots (device
 * memory; NULL: all); and, when that is here, whether they serve.
 */
extern bool quantizer_send_judgement(CudaEngine *engine, CudaJob *job, const uint32_t *slots,
								 uint32_t count);
extern bool quantizer_verdict(CudaJob *job);
/* Encode slots that a piece overwrites. */
extern bool quantizer_overwrite(CudaEngine *engine, CudaMirror *mirror, const uint32_t *slots,
							uint32_t count);
/* Bytes that encoding wants behind a mirror's seeds. */
extern size_t quantizer_room(const MirrorSpec *spec);
/* Where the offsets are, on the device. */
extern const float *quantizer_offsets(const CudaMirror *mirror);
/* And the rotation, of rotated codes. */
extern const uint32_t *quantizer_rotation(const CudaMirror *mirror);

/* entry_points.cu: lists of slots to start from. The stage: true when over */
extern bool entry_points_stage(CudaEngine *engine, CudaJob *job);
/*
 * Whether a mirror has what lists are made from: codes of all rows, or rows of
 * bits on the device.
 */
extern bool entry_points_may_be(const CudaMirror *mirror);
/*
 * Whether a link that has linked `count` slots, of `linked` rows in all, can
 * have lists of its own.
 */
extern bool entry_points_are_enough(const CudaMirror *mirror, uint32_t count, uint32_t linked);
/*
 * Make lists for a link, of the mirror's seeds and the first `count` slots of
 * the link, `linked` rows in all, where no batch reads. Returns how many; 0:
 * the device failed.
 */
extern uint32_t entry_points_make_of(CudaEngine *engine, CudaMirror *mirror, const uint32_t *slots,
								uint32_t count, uint32_t linked);
/*
 * Let `count` rows that a link takes (slots in device memory) choose the
 * nearest of the lists made for it, `made` many, or (0) of those that searches
 * read. Into near, ENTRY_CHOICES x count; returns the lists, or NULL: the
 * device failed.
 */
extern const uint32_t *entry_points_choose(CudaEngine *engine, CudaMirror *mirror, uint32_t made,
									  const uint32_t *slots, uint32_t count, uint32_t *near);
/* A number that stands for the seeds that lists are made of. */
extern uint64_t entry_points_sum(const uint32_t *seeds, uint32_t nseeds);
/* Bytes of lists, behind what encoding wants. */
extern size_t entry_points_room(const CudaMirror *mirror, uint64_t slots);
/* Let a view have those that batches read. */
extern void entry_points_published(const CudaMirror *mirror, MirrorView *view);

#endif /* GPUANN_CUDA_INTERNAL_H */
