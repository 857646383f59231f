/*
 * job.h
 *		A job, its stages, and what all jobs share.
 */
#ifndef GPUANN_CUDA_JOB_H
#define GPUANN_CUDA_JOB_H

#include "cuda/jobs/piece.h"
#include "cuda/query/cuda_engine.h"

struct CudaLinkWork;
struct ListsWork;
struct ListsTrain;

typedef enum JobStage
{
	STAGE_QUEUED,
	STAGE_CODES,   /* encode rows */
	STAGE_LINK,	   /* link or repair rows, and copy the result to the host */
	STAGE_LISTS,   /* put rows into lists */
	STAGE_FLOATS,  /* copy centroids and codebook to the device, */
	STAGE_TRAIN,   /* or train them there */
	STAGE_ROWS,	   /* copy rows to the device */
	STAGE_STATES,  /* write the host's states of appended rows */
	STAGE_SEEDS,   /* copy the seeds */
	STAGE_PENDING, /* copy the new list of pending slots */
	STAGE_JUDGE,   /* judge codes by the graph */
	STAGE_ENTRIES, /* make lists of entry points */
	STAGE_DRAIN,   /* wait for the last pieces */
	STAGE_DONE
} JobStage;

struct CudaJob
{
	CudaJob *next;			 /* of all jobs */
	CudaJob *next_of_mirror; /* the mirror's job after this one */
	JobId id;
	EngineJob in;
	CudaMirror *mirror;
	JobStage stage;
	uint32_t done;		/* rows, of this stage */
	uint32_t shown_done; /* what JobProgress says */
	uint32_t shown_total;
	uint32_t in_flight; /* pieces */
	bool fenced;		/* failed: a piece has been sent whose completion implies that all launches
						 * of the job are done */
	uint32_t step;		/* of a stage that has several */
	Piece *held;		/* a piece whose memory is read after its completion */
	EngineStatus link_status; /* of a link: how it ended */
	LinkResult link;	/* its arrays are the job's own */
	CudaLinkWork *work; /* state of a running link (link_job.h), */
	ListsWork *lists;	/* of rows put into lists (lists_work.h), */
	ListsTrain *train;	/* of a training (lists_train_job.cu) */
	uint32_t npending; /* slots: appended, not yet published; or left on the list */
	bool has_pending;
	uint32_t marked;  /* slots linked by it that are marked as linked so far */
	uint32_t scanned; /* slots of the list, or appended rows, processed so far */
	uint32_t ndead;	  /* of these rows, the dead ones */
	uint32_t *seeds;
	uint32_t nseeds;
	bool has_seeds;
	uint32_t nentries; /* as the mirror's, where has_entries */
	uint64_t entry_points_sum;
	bool has_entries;
	/*
	 * bytes of host memory counted for it: of its work, until it is complete,
	 * and of its result, until it is released
	 */
	uint64_t work_bytes;
	uint64_t result_bytes;
	bool cancelled;
	EngineStatus status;
	EngineError error;
};

/* An engine's jobs; created by jobs_open(). */
struct CudaJobs
{
	CudaJob *first; /* of all jobs */
	JobId last_job;
	Piece pieces[PIECES + 1]; /* the last has no memory: a fence */
	Range piece_memory;
	unsigned char *pinned; /* memory of the pieces */
};

/*
 * jobs_open.cu: allocate what jobs share, and free it, also after an error; no
 * job is left by then
 */
extern bool jobs_open(CudaEngine *engine, EngineError *error);
extern void jobs_close(CudaEngine *engine);

extern EngineStatus job_submit(CudaEngine *engine, const EngineJob *in, JobId *id,
							   EngineError *error);
extern CudaJob *job_find(CudaEngine *engine, JobId id);
extern void jobs_run(CudaEngine *engine);
/* Count bytes of host memory for a job: its work_bytes or result_bytes. */
extern void job_counts(CudaEngine *engine, uint64_t *counted, uint64_t bytes);
/*
 * Allocate memory for a result, in huge pages if it is large and they are
 * wanted: faults of small pages cost more than the copy, but clearing a huge
 * page delays a query. The caller frees it.
 */
extern void *job_allocate_result(size_t bytes, bool large);
extern void job_free(CudaEngine *engine, CudaJob *job);

#endif /* GPUANN_CUDA_JOB_H */
