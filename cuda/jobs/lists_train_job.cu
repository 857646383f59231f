/*
 * lists_train_job.cu
 *		JOB_TRAIN: centroids and codebook from a sample of the mirror's rows.
 *
 * The sample is the CPU engine's (lists_draw_sample()). The device learns from
 * it in steps of a few milliseconds, so that queries do not wait.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/jobs/lists_jobs.h"
#include "cuda/lists/lists_learn.h"

typedef enum TrainPhase
{
	TRAIN_SAMPLE, /* rows are widened */
	TRAIN_BEGIN,
	TRAIN_LEARN,
	TRAIN_FETCH, /* the floats come here */
	TRAIN_OPEN,
	TRAIN_OVER
} TrainPhase;

struct ListsTrain
{
	TrainPhase phase;
	ListsTraining training;
	Range memory;
	uint32_t *slots; /* of the sample */
	uint32_t count;
	uint32_t sent;
	ListsLearn *learn;
	const float *learned; /* device memory */
	float *floats; /* and the inertia behind them */
	uint32_t first; /* of the floats in the piece that is held */
	uint32_t held;	/* and how many these are */
};

/* Rows that the sample has at most: as asked for, and as memory allows. */
static EngineStatus
train_size_sample(const CudaEngine *engine, CudaJob *job, uint32_t live)
{
	ListsTrain *train = job->train;
	const Arena *arena = &engine->device.arena;
	uint64_t used = arena_used(arena);
	uint64_t limit = used < arena->limit ? (arena->limit - used) / arena->unit * arena->unit : 0;

	if (job->in.memory > 0 && job->in.memory < limit)
		limit = job->in.memory;
	return lists_size_sample(&train->training, job->in.count, live, limit, lists_learn_bytes,
							 &train->count, &job->error);
}

/* A mirror whose sample is drawn, and what there is of it. */
struct SampleRows
{
	const CudaMirror *mirror;
	uint32_t *slots;
	uint32_t count;
};

/* Note a row for the sample, unless it is dead. */
static bool
train_take_row(void *context, uint32_t row)
{
	SampleRows *sampling = (SampleRows *) context;

	if (sampling->mirror->states[row] & SLOT_DEAD)
		return false;
	sampling->slots[sampling->count++] = row;
	return true;
}

/* Choose the sample. */
static void
choose_sample(const CudaMirror *mirror, ListsTrain *train)
{
	SampleRows sampling = {mirror, train->slots, 0};

	train->count = lists_draw_sample(mirror->spec.lists.seed, mirror->rows, train->count,
									 train_take_row, &sampling);
}

/* Floats that are fetched: those of the lists, and the inertia. */
static size_t
fetched_floats(const CudaJob *job)
{
	return lists_learn_inertia(job->mirror->lists->nfloats) + sizeof(double) / sizeof(float);
}

/* Take the memory of a training on the device and here. */
static EngineStatus
train_take_memory(CudaEngine *engine, CudaJob *job)
{
	ListsTrain *train = job->train;
	size_t bytes = lists_learn_bytes(&train->training, train->count);
	size_t fetched = fetched_floats(job) * sizeof(float);
	EngineStatus status =
		range_take(&engine->device.arena, &train->memory, PART_STATE, bytes, &job->error);

	if (status != ENGINE_OK)
		return status;
	train->slots = (uint32_t *) malloc(train->count * sizeof(uint32_t));
	job->link.floats = train->floats = (float *) malloc(fetched);
	if (train->slots != NULL && train->floats != NULL)
	{
		job_counts(engine, &job->work_bytes, train->count * sizeof(uint32_t));
		job_counts(engine, &job->result_bytes, fetched);
		return ENGINE_OK;
	}
	return engine_error(&job->error, ENGINE_NO_MEMORY, "out of memory for training from %u rows",
						train->count);
}

EngineStatus
lists_train_begin(CudaEngine *engine, CudaJob *job)
{
	const CudaMirror *mirror = job->mirror;
	const CudaLists *lists = mirror->lists;
	uint32_t live = mirror->rows - mirror->ndead;
	EngineStatus status;

	if (lists->received > 0 || live == 0)
		return engine_error(&job->error, ENGINE_INVALID,
							"the mirror has centroids already, or no rows to make them from");
	job->train = (ListsTrain *) calloc(1, sizeof(*job->train));
	if (job->train == NULL)
		return engine_error(&job->error, ENGINE_NO_MEMORY, "out of memory");
	job->train->training.shape = lists->shape;
	job->train->training.lists = lists->count;
	job->train->training.rounds = job->in.rounds > 0 ? job->in.rounds : LISTS_TRAIN_ROUNDS;
	job->train->training.balance = job->in.balance;
	status = train_size_sample(engine, job, live);
	if (status == ENGINE_OK)
		status = train_take_memory(engine, job);
	if (status == ENGINE_OK)
		choose_sample(mirror, job->train);
	return status;
}

void
lists_train_end(CudaEngine *engine, CudaJob *job)
{
	ListsTrain *train = job->train;

	if (train == NULL)
		return;
	lists_learn_end(train->learn);
	range_release(&engine->device.arena, &train->memory);
	free(train->slots);
	free(train);
	job->train = NULL;
}

/* Widen the sample, piece by piece. True when all of it was sent. */
static bool
train_send_sample(CudaEngine *engine, CudaJob *job)
{
	ListsTrain *train = job->train;
	MirrorView mirror = mirror_view(job->mirror);
	uint32_t dims = mirror.dims;
	uint32_t most = (uint32_t) (LISTS_PIECE / dims);

	while (train->sent < train->count)
	{
		uint32_t count =
			at_most(rows_of_piece(engine, sizeof(uint32_t), train->count - train->sent), most);
		Piece *piece = piece_free(engine);

		if (piece == NULL)
			return false;
		memcpy(piece->staged, train->slots + train->sent, count * sizeof(uint32_t));
		if (!upload_copy_in(engine, piece->device, piece->staged, count * sizeof(uint32_t)) ||
			!GPU(&engine->device.failure,
				 lists_widen(&mirror, (const uint32_t *) piece->device, 0, count,
							 (float *) train->memory.base + (size_t) train->sent * dims,
							 engine->device.job_stream)) ||
			!piece_send(engine, job, piece))
			return false;
		train->sent += count;
	}
	return true;
}

/* Cancel a training, or say that memory is short. */
static bool
fail_training(CudaJob *job, EngineStatus status)
{
	if (status == ENGINE_CANCELLED)
		engine_error(&job->error, status, "training was cancelled");
	else
		engine_error(&job->error, status, "out of memory for training from %u rows",
					 job->train->count);
	job->status = status;
	return false;
}

/* Launch a step of the training. True when it was the last. */
static bool
learn_step(CudaEngine *engine, CudaJob *job)
{
	Piece *piece = piece_free(engine);
	bool over = false;
	cudaError_t error;

	if (piece == NULL)
		return false;
	error = lists_learn_step(job->train->learn, &over, &job->shown_done, &job->shown_total);
	if (error == cudaErrorMemoryAllocation)
	{
		/* later launches are not to meet this error */
		(void) cudaGetLastError();
		return fail_training(job, ENGINE_NO_MEMORY);
	}
	if (!gpu_check(&engine->device.failure, error, "a step of a training"))
		return false;
	if (over)
		return true;
	(void) piece_send(engine, job, piece);
	return false;
}

/* The floats that were learned come here, by pieces. True when all are. */
static bool
train_fetch_floats(CudaEngine *engine, CudaJob *job)
{
	ListsTrain *train = job->train;
	uint32_t total = (uint32_t) fetched_floats(job);
	Piece *piece;

	if (train->held > 0)
	{
		memcpy(train->floats + train->first, job->held->staged, train->held * sizeof(float));
		train->first += train->held;
		train->held = 0;
		piece_release(job);
	}
	if (train->first == total)
	{
		memcpy(&job->link.inertia,
			   train->floats + lists_learn_inertia(job->mirror->lists->nfloats), sizeof(double));
		return true;
	}
	piece = piece_hold(engine, job);
	if (piece == NULL)
		return false;
	train->held = rows_of_piece(engine, sizeof(float), total - train->first);
	(void) (GPU(&engine->device.failure,
				cudaMemcpyAsync(piece->staged, train->learned + train->first,
								train->held * sizeof(float), cudaMemcpyDeviceToHost,
								engine->device.job_stream)) &&
			piece_send(engine, job, piece));
	return false;
}

/* Copy the floats to the mirror's lists. */
static bool
copy_floats(CudaEngine *engine, const CudaJob *job)
{
	CudaLists *lists = job->mirror->lists;

	return GPU(&engine->device.failure,
			   cudaMemcpyAsync((void *) lists->fixed.base, job->train->learned,
							   lists->nfloats * sizeof(float), cudaMemcpyDeviceToDevice,
							   engine->device.job_stream));
}

/* Begin the training. */
static bool
begin_learning(CudaEngine *engine, CudaJob *job)
{
	ListsTrain *train = job->train;

	train->learn =
		lists_learn_begin(&train->training, (void *) train->memory.base, train->count,
						  &engine->device.lists_limits, engine->device.job_stream);
	return train->learn != NULL || fail_training(job, ENGINE_NO_MEMORY);
}

/* A step that begins when those before are over. */
static bool
train_step(CudaEngine *engine, CudaJob *job)
{
	ListsTrain *train = job->train;

	switch (train->phase)
	{
		case TRAIN_SAMPLE:
			return train_send_sample(engine, job);
		case TRAIN_BEGIN:
			return begin_learning(engine, job);
		case TRAIN_LEARN:
			return learn_step(engine, job);
		case TRAIN_FETCH:
			train->learned = lists_learn_floats(train->learn);
			return train_fetch_floats(engine, job);
		case TRAIN_OPEN:
			return copy_floats(engine, job) && lists_open(engine, job);
		case TRAIN_OVER:
			break;
	}
	return false;
}

bool
lists_train_stage(CudaEngine *engine, CudaJob *job)
{
	ListsTrain *train = job->train;

	while (train->phase != TRAIN_OVER && job->in_flight == 0 && job->status == ENGINE_OK &&
		   !engine->device.failure.failed)
	{
		if (job->cancelled)
			return fail_training(job, ENGINE_CANCELLED);
		if (train_step(engine, job))
			train->phase = (TrainPhase) (train->phase + 1);
		else if (job->in_flight == 0)
			return false;
	}
	if (train->phase != TRAIN_OVER || job->in_flight > 0)
		return false;
	job->link.sampled = train->count;
	job->link.nfloats = (uint32_t) job->mirror->lists->nfloats;
	return true;
}
