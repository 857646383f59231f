/*
 * lists_learn.c
 *		JOB_TRAIN: centroids and codebook from a sample of the mirror's rows.
 *
 * The sample depends on the rows and the seed alone (lists_draw_sample()).
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/lists.h"

/* Context of a training that runs in phases of several workers. */
typedef struct Spread
{
	CpuJob	   *job;
	CpuWorker  *worker;
	void		(*work) (void *argument, uint32_t item);
	void	   *argument;
} Spread;

static void
spread_item(void *context, uint32_t item, CpuWorker *worker)
{
	const Spread *spread = context;

	spread->work(spread->argument, item);
	/* progress, for callers that watch it */
	atomic_fetch_add(&spread->job->watch.done, 1);
}

/* TrainControl: run items as a phase. */
static void
spread_work(void *context, void (*work) (void *argument, uint32_t item), void *argument,
			uint32_t count)
{
	Spread	   *spread = context;
	int			threads = spread->job->in.threads;
	WorkerPhase phase = {.work = spread_item, .context = spread, .count = count};

	spread->work = work;
	spread->argument = argument;
	atomic_fetch_add(&spread->job->watch.total, count);
	phase_run(spread->worker, &phase, threads > 0 ? threads : spread->worker->engine->nthreads);
}

/* TrainControl: whether the job was cancelled. */
static bool
spread_interrupted(void *context)
{
	return atomic_load(&((const Spread *) context)->job->watch.cancelled);
}

/* Bytes of a training with this many rows in its sample. */
static size_t
learn_bytes(const ListsTraining *training, uint32_t count)
{
	return (size_t) count * training->shape.dims * sizeof(float) +
		lists_train_bytes(training, count) +
		lists_floats(&training->shape, training->lists) * sizeof(float);
}

/* Source and destination of a sample's rows. */
typedef struct CpuSampling
{
	const Mirror *mirror;
	float	   *next;
} CpuSampling;

/* Copy a row into the sample, unless it is dead. */
static bool
take_row(void *context, uint32_t row)
{
	CpuSampling *sampling = context;

	if (mirror_word(sampling->mirror, row) & WORD_DEAD)
		return false;
	lists_read_row(sampling->mirror, row, sampling->next);
	sampling->next += sampling->mirror->spec.dims;
	return true;
}

/* Train from a sample of at most `most` rows, and open the lists. */
static EngineStatus
learn_from(CpuJob *job, const ListsTraining *training, uint32_t rows, uint32_t most)
{
	Mirror	   *mirror = job->entry->mirror;
	Lists	   *lists = mirror->lists;
	float	   *sample = mirror_memory(align_up((size_t) most * lists->shape.dims * sizeof(float)));
	float	   *floats = malloc(lists->nfloats * sizeof(float));
	EngineStatus status = ENGINE_NO_MEMORY;

	if (sample != NULL && floats != NULL)
	{
		CpuSampling	sampling = {mirror, sample};

		job->link.sampled =
			lists_draw_sample(mirror->spec.lists.seed, rows, most, take_row, &sampling);
		status = lists_train(training, sample, job->link.sampled, floats, &job->link.inertia);
	}
	free(sample);
	if (status == ENGINE_OK)
	{
		memcpy(lists->floats, floats, lists->nfloats * sizeof(float));
		status = lists_open(lists, &job->error);
	}
	if (status != ENGINE_OK)
	{
		free(floats);
		return status;
	}
	job->link.floats = floats;
	job->link.nfloats = (uint32_t) lists->nfloats;
	return ENGINE_OK;
}

/* Most rows of the sample: what was requested, limited by memory. */
static EngineStatus
size_sample(CpuJob *job, const ListsTraining *training, uint32_t live, uint32_t *most)
{
	MemoryBudget *budget = job->entry->mirror->budget;
	uint64_t	used = budget_used(budget);
	uint64_t	limit = used < budget->limit ? budget->limit - used : 0;

	if (job->in.memory > 0 && job->in.memory < limit)
		limit = job->in.memory;
	return lists_size_sample(training, job->in.count, live, limit, learn_bytes, most, &job->error);
}

EngineStatus
lists_learn(CpuJob *job, CpuWorker *worker)
{
	Mirror	   *mirror = job->entry->mirror;
	Lists	   *lists = mirror->lists;
	uint32_t	rows = atomic_load(&mirror->rows);
	uint32_t	live = rows - atomic_load(&mirror->dead);
	Spread		spread = {.job = job, .worker = worker};
	TrainControl control = {spread_work, spread_interrupted, &spread};
	ListsTraining training = {.shape = lists->shape,
							  .lists = lists->count,
							  .rounds = job->in.rounds > 0 ? job->in.rounds : LISTS_TRAIN_ROUNDS,
							  .balance = job->in.balance,
							  .control = &control};
	uint32_t	most;
	EngineStatus status;

	if (lists->received > 0 || live == 0)
		return engine_error(&job->error, ENGINE_INVALID,
							"the mirror has centroids already, or no rows to make them from");
	status = size_sample(job, &training, live, &most);
	if (status != ENGINE_OK)
		return status;
	job->link_bytes = learn_bytes(&training, most);
	atomic_fetch_add(&mirror->budget->state, job->link_bytes);
	status = learn_from(job, &training, rows, most);
	atomic_fetch_sub(&mirror->budget->state, job->link_bytes);
	job->link_bytes = status == ENGINE_OK ? lists->nfloats * sizeof(float) : 0;
	atomic_fetch_add(&mirror->budget->state, job->link_bytes);
	if (status == ENGINE_CANCELLED)
		engine_error(&job->error, status, "training was cancelled");
	else if (status != ENGINE_OK)
		engine_error(&job->error, status, "out of memory for training from %u rows", most);
	return status;
}
