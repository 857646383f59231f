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
	CudaLinkWork *work;		/* what it is at (link_job.h) */
	ListsWork *lists;	/* likewise (lists_work.h) */
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

/* Of an engine; jobs_open makes it. */
struct CudaJobs
{
	CudaJob *first; /* of all */
	JobId last_job;
	Piece pieces[PIECES + 1]; /* the last has no memory: it only says what was launched before */
	Range piece_memory;
	unsigned char *pinned; /* of pieces */
};

/*
 * jobs_open.cu: take what jobs share, and give it back, after an error too; no
 * job is left by then
 */
extern bool jobs_open(CudaEngine *engine, EngineError *error);
extern void jobs_close(CudaEngine *engine);

extern EngineStatus job_submit(CudaEngine *engine, const EngineJob *in, JobId *id,
							   EngineError *error);
extern CudaJob *job_find(CudaEngine *engine, JobId id);
extern void jobs_run(CudaEngine *engine);
/* Count bytes of the host for a job, in its work_bytes or result_bytes. */
extern void job_counts(CudaEngine *engine, uint64_t *counted, uint64_t bytes);
extern void job_free(CudaEngine *engine, CudaJob *job);

#endif /* GPUANN_CUDA_JOB_H */
