/*
 * lists_jobs.h
 *		Stages of the jobs of mirrors with lists.
 */
#ifndef GPUANN_CUDA_LISTS_JOBS_H
#define GPUANN_CUDA_LISTS_JOBS_H

#include "cuda/jobs/job.h"

/* lists_jobs.cu: JOB_LINK, JOB_GRAPH. Stages: true when over */
extern EngineStatus lists_link_begin(CudaEngine *engine, CudaJob *job);
extern bool lists_link_stage(CudaEngine *engine, CudaJob *job);
/* Free what a job has allocated. */
extern void lists_job_end(CudaEngine *engine, CudaJob *job);

/* lists_floats_job.cu: JOB_CODEBOOK, likewise */
extern EngineStatus lists_floats_begin(CudaJob *job);
extern bool lists_floats_stage(CudaEngine *engine, CudaJob *job);
/* Compute on the device what is derived from the floats there. */
extern bool lists_open(CudaEngine *engine, CudaJob *job);

/* lists_train_job.cu: JOB_TRAIN, likewise */
extern EngineStatus lists_train_begin(CudaEngine *engine, CudaJob *job);
extern bool lists_train_stage(CudaEngine *engine, CudaJob *job);
extern void lists_train_end(CudaEngine *engine, CudaJob *job);

#endif /* GPUANN_CUDA_LISTS_JOBS_H */
