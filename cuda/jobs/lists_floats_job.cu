/*
 * lists_floats_job.cu
 *		JOB_CODEBOOK: centroids and codebook are brought; and what is made of
 *		them before rows can be linked, also of those that a training made.
 */
#include "cuda/jobs/lists_jobs.h"

EngineStatus
lists_floats_begin(CudaJob *job)
{
	const CudaLists *lists = job->mirror->lists;
	const EngineJob *in = &job->in;

	if (in->first_slot == lists->received && in->count <= lists->nfloats - lists->received)
		return ENGINE_OK;
	return engine_error(&job->error, ENGINE_INVALID,
						"floats %u to %llu do not follow the %zu of %zu", in->first_slot,
						(unsigned long long) in->first_slot + in->count, lists->received,
						lists->nfloats);
}

/* Make all lists empty: batches may read them before the first pass. */
static bool
clear_directories(CudaEngine *engine, const CudaLists *lists)
{
	for (uint32_t side = 0; side < 2; side++)
		if (!GPU(&engine->device.failure,
				 cudaMemsetAsync((void *) lists->directory[side].base, 0,
								 (lists->count + 1) * sizeof(uint32_t), engine->device.job_stream)))
			return false;
	return true;
}

bool
lists_open(CudaEngine *engine, CudaJob *job)
{
	const CudaLists *lists = job->mirror->lists;
	ListsView view = lists_view(job->mirror);
	ListHalves halves = lists_halves(job->mirror);
	uint32_t dims = lists->shape.dims;
	uint32_t rotations = lists_rotations(&lists->shape);
	Piece *piece = piece_free(engine);
	uint32_t *staged;

	if (piece == NULL)
		return false;
	view.lists = lists->count; /* not open yet */
	staged = (uint32_t *) piece->staged;
	for (uint32_t i = 0; i < rotations; i++)
		rotation_make(lists->shape.seed + i, dims, staged + (size_t) i * dims);
	return upload_copy_in(engine, (void *) view.rotation, staged,
						  (size_t) rotations * dims * sizeof(uint32_t)) &&
		   clear_directories(engine, lists) &&
		   GPU(&engine->device.failure,
			   lists_half_norms(view.centroids, lists->count, dims, (float *) view.half_norms,
								engine->device.job_stream)) &&
		   GPU(&engine->device.failure,
			   lists_make_halves(&view, &halves, engine->device.job_stream)) &&
		   piece_send(engine, job, piece);
}

bool
lists_floats_stage(CudaEngine *engine, CudaJob *job)
{
	const CudaLists *lists = job->mirror->lists;
	const EngineJob *in = &job->in;
	uint32_t *to = (uint32_t *) lists->fixed.base + in->first_slot;

	/* no batch reads them yet */
	while (job->done < in->count)
		if (!piece_slots(engine, job, (const uint32_t *) in->vectors, in->count, to))
			return false;
	return lists->received + in->count < lists->nfloats || in->count == 0 ||
		   lists_open(engine, job);
}
