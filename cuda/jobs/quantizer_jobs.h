/*
 * quantizer_jobs.h
 *		Codes of a mirror's rows: when they are made and judged.
 */
#ifndef GPUANN_CUDA_QUANTIZER_JOBS_H
#define GPUANN_CUDA_QUANTIZER_JOBS_H

#include "cuda/jobs/job.h"

/* The stages: true when over. */
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

#endif /* GPUANN_CUDA_QUANTIZER_JOBS_H */
