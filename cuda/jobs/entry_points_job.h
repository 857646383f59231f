/*
 * entry_points_job.h
 *		Lists of slots to start from: when they are made, and for links.
 */
#ifndef GPUANN_CUDA_ENTRY_POINTS_JOB_H
#define GPUANN_CUDA_ENTRY_POINTS_JOB_H

#include "cuda/jobs/job.h"

/* The stage: true when over. */
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
/* A checksum of the seeds that lists are made of. */
extern uint64_t entry_points_sum(const uint32_t *seeds, uint32_t nseeds);

#endif /* GPUANN_CUDA_ENTRY_POINTS_JOB_H */
