/*
 * conditions.cu
 *		Programs of queries: evaluated on a stream of their own, whose end wakes
 *		the owner, and cached.
 *
 * A query with a program is a task, which waits until its program has been
 * evaluated for the rows that were published, and after the overwrites that had
 * been launched, when it was submitted. It covers these rows, and its position
 * is the one of then. All rows are evaluated anew where something has changed:
 * that is a fraction of what a search reads. Rows that are overwritten while a
 * query is under way are dead in its view, or beyond its position; so neither
 * their bits nor their records are waited for.
 *
 * The first condition's memory grows with the mirrors, so that one program can
 * always be evaluated; others take memory when they are needed and there is
 * some, and give it back when a mirror needs it.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/filter/filter.h"
#include "cuda/query/cuda_engine.h"

extern "C"
{
#include "engine/filter_program.h"
}

#define ALIGNED 256u

static bool
is_idle(const Condition *condition)
{
	return condition->users == 0 && !condition->running;
}

/* Forget a condition's program; its memory stays. */
static void
forget(Condition *condition)
{
	free(condition->program);
	condition->program = NULL;
	condition->mirror = 0;
	condition->evaluated = false;
	condition->used = 0;
}

bool
conditions_open(CudaEngine *engine, EngineError *error)
{
	Conditions *conditions = &engine->conditions;
	size_t each = PROGRAM_ROOM + ALIGNED;
	int least,
		greatest;

	if (!GPU(&engine->device.failure, cudaHostAlloc((void **) &conditions->pinned,
													EVALUATIONS * each, cudaHostAllocMapped)) ||
		!GPU(&engine->device.failure, cudaDeviceGetStreamPriorityRange(&least, &greatest)) ||
		!GPU(&engine->device.failure,
			 cudaStreamCreateWithPriority(&conditions->stream, cudaStreamNonBlocking, greatest)))
	{
		gpu_failed(&engine->device.failure, error);
		return false;
	}
	engine->device.host_pinned += EVALUATIONS * each;
	for (uint32_t i = 0; i < EVALUATIONS; i++)
	{
		Evaluation *evaluation = &conditions->evaluations[i];

		evaluation->staged = conditions->pinned + i * each;
		evaluation->passing = (uint32_t *) (evaluation->staged + PROGRAM_ROOM);
		if (!GPU(&engine->device.failure,
				 cudaEventCreateWithFlags(&evaluation->done, cudaEventDisableTiming)))
		{
			gpu_failed(&engine->device.failure, error);
			return false;
		}
	}
	return true;
}

void
conditions_close(CudaEngine *engine)
{
	Conditions *conditions = &engine->conditions;

	for (uint32_t i = 0; i < CONDITIONS; i++)
	{
		free(conditions->all[i].program);
		range_release(&engine->device.arena, &conditions->all[i].memory);
	}
	for (uint32_t i = 0; i < EVALUATIONS; i++)
		if (conditions->evaluations[i].done != NULL)
			GPU(&engine->device.failure, cudaEventDestroy(conditions->evaluations[i].done));
	if (conditions->stream != NULL)
		GPU(&engine->device.failure, cudaStreamDestroy(conditions->stream));
	if (conditions->pinned != NULL)
		GPU(&engine->device.failure, cudaFreeHost(conditions->pinned));
}

/*
 * Bytes of a condition's memory: the program, the count of rows that pass, and
 * a bitmap of `slots` slots.
 */
static uint64_t
memory_bytes(size_t program, uint64_t slots)
{
	return round_up(program, ALIGNED) + ALIGNED + (slots + 63) / 64 * sizeof(uint64_t);
}

/*
 * Map memory for a condition; its first reserves addresses for the largest
 * mirror.
 */
static EngineStatus
grow_memory(CudaEngine *engine, Condition *condition, uint64_t bytes, EngineError *error)
{
	Arena *arena = &engine->device.arena;
	EngineStatus status = ENGINE_OK;

	if (condition->memory.reserved == 0)
		status = range_reserve(arena, &condition->memory, PART_STATE,
							   memory_bytes(PROGRAM_ROOM, ENGINE_MAX_SLOTS), error);
	return status == ENGINE_OK ? range_grow(arena, &condition->memory, bytes, error) : status;
}

EngineStatus
conditions_grow(CudaEngine *engine, uint64_t slots, EngineError *error)
{
	return grow_memory(engine, &engine->conditions.all[0], memory_bytes(PROGRAM_ROOM, slots),
					   error);
}

bool
conditions_shrink(CudaEngine *engine)
{
	bool any = false;

	for (uint32_t i = 1; i < CONDITIONS; i++)
	{
		Condition *condition = &engine->conditions.all[i];

		if (!is_idle(condition) || condition->memory.mapped == 0)
			continue;
		any = true;
		forget(condition);
		range_release(&engine->device.arena, &condition->memory);
	}
	return any;
}

void
conditions_forget(CudaEngine *engine, MirrorId mirror)
{
	for (uint32_t i = 0; i < CONDITIONS; i++)
		if (engine->conditions.all[i].mirror == mirror && is_idle(&engine->conditions.all[i]))
			forget(&engine->conditions.all[i]);
}

void
condition_release(Condition *condition)
{
	if (condition != NULL)
		condition->users--;
}

/* Collect the evaluations that have completed. */
static void
end_evaluations(CudaEngine *engine)
{
	for (uint32_t i = 0; i < EVALUATIONS; i++)
	{
		Evaluation *evaluation = &engine->conditions.evaluations[i];
		Condition *condition = evaluation->condition;
		cudaError_t state;

		if (condition == NULL || engine->device.failure.failed)
			continue;
		state = cudaEventQuery(evaluation->done);
		if (state == cudaErrorNotReady)
			continue;
		if (!gpu_check(&engine->device.failure, state, "the evaluation of a condition"))
			return;
		condition->rows = evaluation->rows;
		condition->overwrites = evaluation->overwrites;
		condition->passing = *evaluation->passing;
		condition->running = false;
		condition->evaluated = true;
		evaluation->condition = NULL;
	}
}

/* Called by CUDA's thread: an evaluation has completed. */
static void
evaluation_completed(void *arg)
{
	engine_wake((CudaEngine *) arg);
}

/* Launch an evaluation, which is staged; `first`: so is the program. */
static bool
launch_evaluation(CudaEngine *engine, const CudaMirror *mirror, Evaluation *evaluation, bool first)
{
	const Condition *condition = evaluation->condition;
	const FilterProgram *program = condition->program;
	cudaStream_t stream = engine->conditions.stream;
	Failure *failure = &engine->device.failure;
	unsigned char *memory = (unsigned char *) condition->memory.base;
	FilterView view;

	memset(&view, 0, sizeof(view));
	filter_columns(&view, &mirror->spec);
	view.records = (const uint32_t *) mirror->records.base;
	view.values = (const FilterValue *) memory;
	view.steps = (const FilterStep *) (memory + program->nvalues * sizeof(FilterValue));
	view.nsteps = program->nsteps;
	view.rows = evaluation->rows;
	view.bits = condition_bits(condition);
	view.passing = (uint32_t *) (memory + condition->bits_at - ALIGNED);
	return (!first || GPU(failure, cudaMemcpyAsync(memory, evaluation->staged,
												   program_bytes(program),
												   cudaMemcpyHostToDevice, stream))) &&
		   (!mirror->has_changed ||
			GPU(failure, cudaStreamWaitEvent(stream, mirror->changed, 0))) &&
		   GPU(failure, filter_launch(&view, stream)) &&
		   GPU(failure, cudaMemcpyAsync(evaluation->passing, view.passing, sizeof(uint32_t),
										cudaMemcpyDeviceToHost, stream)) &&
		   GPU(failure, cudaEventRecord(evaluation->done, stream)) &&
		   GPU(failure, cudaLaunchHostFunc(stream, evaluation_completed, engine));
}

/*
 * Begin to evaluate a condition for the rows that are published now, unless too
 * many evaluations are in flight.
 */
static void
evaluate(CudaEngine *engine, const CudaMirror *mirror, Condition *condition, bool first)
{
	for (uint32_t i = 0; i < EVALUATIONS; i++)
	{
		Evaluation *evaluation = &engine->conditions.evaluations[i];

		if (evaluation->condition != NULL)
			continue;
		evaluation->condition = condition;
		evaluation->rows = mirror->rows;
		evaluation->overwrites = mirror->overwrites;
		condition->running = true;
		condition->used = ++engine->conditions.uses;
		if (first)
			program_write(condition->program, evaluation->staged);
		(void) launch_evaluation(engine, mirror, evaluation, first);
		return;
	}
}

/* Whether an evaluation can begin. */
static bool
can_evaluate(const CudaEngine *engine)
{
	for (uint32_t i = 0; i < EVALUATIONS; i++)
		if (engine->conditions.evaluations[i].condition == NULL)
			return true;
	return false;
}

/*
 * The idle condition that was used longest ago, a free one first, of those that
 * have memory for `bytes` or get it; NULL: there is none.
 */
static Condition *
find_idle(CudaEngine *engine, uint64_t bytes, EngineError *error)
{
	Condition *best = NULL;

	for (uint32_t i = 0; i < CONDITIONS; i++)
	{
		Condition *condition = &engine->conditions.all[i];

		if (is_idle(condition) && (best == NULL || condition->used < best->used) &&
			grow_memory(engine, condition, bytes, error) == ENGINE_OK)
			best = condition;
	}
	return best;
}

/* The same; *never: there is none, nor will one become idle. */
static Condition *
take_idle(CudaEngine *engine, uint64_t bytes, bool *never, EngineError *error)
{
	Condition *condition = find_idle(engine, bytes, error);
	bool busy = false;

	if (condition == NULL && conditions_shrink(engine))
		condition = find_idle(engine, bytes, error);
	for (uint32_t i = 0; i < CONDITIONS; i++)
		busy = busy || !is_idle(&engine->conditions.all[i]);
	*never = condition == NULL && !busy;
	return condition;
}

/* The condition of a task's program, or NULL. */
static Condition *
find_condition(CudaEngine *engine, const CudaTask *task)
{
	for (uint32_t i = 0; i < CONDITIONS; i++)
	{
		Condition *condition = &engine->conditions.all[i];

		if (condition->mirror == task->mirror->id &&
			program_same(condition->program, task->program))
			return condition;
	}
	return NULL;
}

/* Give a condition the program of a task. False: out of memory. */
static bool
set_program(Condition *condition, const CudaTask *task)
{
	forget(condition);
	condition->program = program_copy(task->program);
	if (condition->program == NULL)
		return false;
	condition->mirror = task->mirror->id;
	condition->bits_at = round_up(program_bytes(task->program), ALIGNED) + ALIGNED;
	return true;
}

/*
 * Assign a task its condition, or bring that nearer. False: it ends, with its
 * status.
 */
static bool
advance_task(CudaEngine *engine, CudaTask *task)
{
	CudaMirror *mirror = task->mirror;
	Condition *condition = find_condition(engine, task);
	uint64_t bytes = memory_bytes(program_bytes(task->program), mirror->capacity);
	bool first;
	bool never = false;

	if (condition != NULL && condition->evaluated && condition->rows >= task->rows &&
		condition->overwrites >= task->overwrites)
	{
		condition->users++;
		condition->used = ++engine->conditions.uses;
		task_has_condition(task, condition);
		return true;
	}
	if ((condition != NULL && condition->running) || !can_evaluate(engine))
		return true;
	/* the mirror may have grown */
	if (condition != NULL &&
		grow_memory(engine, condition, bytes, &task->error) != ENGINE_OK)
	{
		if (!is_idle(condition))
			return true;
		forget(condition);
		condition = NULL;
	}
	first = condition == NULL;
	if (first)
	{
		condition = take_idle(engine, bytes, &never, &task->error);
		if (condition != NULL && !set_program(condition, task))
			never = engine_error(&task->error, ENGINE_NO_MEMORY, "out of memory") != ENGINE_OK;
	}
	if (never)
		task->status = ENGINE_NO_MEMORY;
	else if (condition != NULL)
		evaluate(engine, mirror, condition, first);
	return !never;
}

void
conditions_advance(CudaEngine *engine)
{
	CudaTask **place = &engine->first_waiting;
	CudaTask *last = NULL;

	if (engine->conditions.waiting == 0)
		return;
	end_evaluations(engine);
	while (*place != NULL && !engine->device.failure.failed)
	{
		CudaTask *task = *place;

		if (task_waits_for_condition(task))
		{
			bool goes_on = advance_task(engine, task);

			if (!goes_on || !task_waits_for_condition(task))
				engine->conditions.waiting--;
			if (!goes_on)
			{
				*place = task->next;
				task_ended(engine, task);
				engine_wake(engine);
				continue;
			}
		}
		last = task;
		place = &task->next;
	}
	if (*place == NULL)
		engine->last_waiting = last;
}
