/*
 * lists_learn.c
 *		JOB_TRAIN: centroids and codebook from a sample of the mirror's rows.
 *
 * The rows are cut into as many ranges as the sample has rows, of each of which
 * one live row is taken, chosen by the seed. So the sample depends on the rows
 * and the seed alone.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/lists.h"
#include "engine/quantizer/random.h"

/* How a training spreads its work over workers. */
typedef struct Spread
{
	CpuJob	   *job;
	Worker	   *worker;
	void		(*work) (void *argument, uint32_t item);
	void	   *argument;
} Spread;

static void
spread_item(void *context, uint32_t item, Worker *worker)
{
	const Spread *spread = context;

	spread->work(spread->argument, item);
}

/* TrainControl: run items as a phase. */
static void
spread_work(void *context, void (*work) (void *argument, uint32_t item), void *argument,
			uint32_t count)
{
	Spread	   *spread = context;
	int			threads = spread->job->in.threads;
	Phase		phase = {.work = spread_item, .context = spread, .count = count};

	spread->work = work;
	spread->argument = argument;
	phase_run(spread->worker, &phase, threads > 0 ? threads : spread->worker->engine->nthreads);
}

/* TrainControl: whether the job was cancelled. */
static bool
spread_interrupted(void *context)
{
	return atomic_load(&((const Spread *) context)->job->watch.cancelled);
}

/* Bytes of a training with so many rows in its sample. */
static uint64_t
learn_bytes(const ListsTraining *training, uint32_t count)
{
	return (uint64_t) count * training->shape.dims * sizeof(float) +
		lists_train_bytes(training, count) +
		lists_floats(&training->shape, training->lists) * sizeof(float);
}

/* The most rows, up to `most`, whose training takes no more than a limit. */
static uint32_t
rows_under(const ListsTraining *training, uint32_t most, uint64_t limit)
{
	uint32_t	least = 0;		/* so many do fit */

	if (learn_bytes(training, most) <= limit)
		return most;
	while (most - least > 1)
	{
		uint32_t	middle = least + (most - least) / 2;

		if (learn_bytes(training, middle) <= limit)
			least = middle;
		else
			most = middle;
	}
	return least;
}

/* Copy the sample; returns how many rows it has. */
static uint32_t
take_sample(const Mirror *mirror, uint32_t rows, uint32_t most, float *sample)
{
	uint64_t	random = mirror->spec.lists.seed;
	uint32_t	count = 0;

	for (uint32_t i = 0; i < most; i++)
	{
		uint32_t	begin = (uint32_t) ((uint64_t) rows * i / most);
		uint32_t	length = (uint32_t) ((uint64_t) rows * (i + 1) / most) - begin;
		uint32_t	offset = (uint32_t) (random_fraction(&random) * length);
		uint32_t	tried = 0;

		while (tried < length &&
			   mirror_word(mirror, begin + (offset + tried) % length) & WORD_DEAD)
			tried++;
		if (tried < length)
			lists_read_row(mirror, begin + (offset + tried) % length,
						   sample + (size_t) count++ * mirror->spec.dims);
	}
	return count;
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
		job->link.sampled = take_sample(mirror, rows, most, sample);
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

/* Rows that the sample has at most: what was asked for, and what memory allows. */
static EngineStatus
size_sample(CpuJob *job, const ListsTraining *training, uint32_t live, uint32_t *most)
{
	MemoryBudget *budget = job->entry->mirror->budget;
	uint64_t	used = budget_used(budget);
	uint64_t	limit = used < budget->limit ? budget->limit - used : 0;
	uint64_t	wanted = job->in.count > 0 ? job->in.count :
		(uint64_t) training->lists * LISTS_TRAIN_ROWS;
	uint32_t	needed = live < training->lists ? live : training->lists;

	if (job->in.memory > 0 && job->in.memory < limit)
		limit = job->in.memory;
	*most = rows_under(training, wanted < live ? (uint32_t) wanted : live, limit);
	if (*most >= needed || *most == wanted)
		return ENGINE_OK;
	engine_error(&job->error, ENGINE_NO_MEMORY,
				 "training of %u lists takes %llu bytes or more, not %llu", training->lists,
				 (unsigned long long) learn_bytes(training, needed), (unsigned long long) limit);
	return ENGINE_NO_MEMORY;
}

EngineStatus
lists_learn(CpuJob *job, Worker *worker)
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
	{
		engine_error(&job->error, ENGINE_INVALID,
					 "the mirror has centroids already, or no rows to make them from");
		return ENGINE_INVALID;
	}
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
