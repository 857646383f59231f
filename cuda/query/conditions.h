/*
 * conditions.h
 *		Programs of queries on the device, each with the bitmap of the rows that
 *		may pass it, cached by program.
 */
#ifndef GPUANN_CUDA_CONDITIONS_H
#define GPUANN_CUDA_CONDITIONS_H

#include "cuda/query/task.h"

#define CONDITIONS 32u /* programs cached, of all mirrors */
#define EVALUATIONS 4u /* in flight, at most */
#define PROGRAM_ROOM ((size_t) 128 << 10) /* bytes of a program, at most */

/*
 * A program in device memory, and behind it the rows that pass it. The bitmap
 * is written in place when it is brought up to date: batches in flight may read
 * it then, and all that differs are rows that they ignore, or of which either
 * record will do.
 */
struct Condition
{
	MirrorId mirror; /* 0: free */
	FilterProgram *program;
	Range memory;
	size_t bits_at; /* where in `memory` the bitmap begins */
	uint32_t users; /* queries between its assignment and poll: the program stays */
	bool running;	/* an evaluation is in flight */
	bool evaluated; /* one has completed */
	uint64_t used;	/* when it was evaluated or assigned last, by a count of both */

	/* covered by the last evaluation that has completed */
	uint32_t rows;
	uint32_t passing;
	uint64_t overwrites;
};

/* An evaluation in flight. */
struct Evaluation
{
	Condition *condition; /* NULL: none */
	unsigned char *staged; /* pinned: PROGRAM_ROOM */
	uint32_t *passing; /* pinned */
	cudaEvent_t done;
	uint32_t rows;
	uint64_t overwrites;
};

/* Of an engine. */
struct Conditions
{
	Condition all[CONDITIONS];
	Evaluation evaluations[EVALUATIONS];
	unsigned char *pinned;
	cudaStream_t stream;
	uint32_t waiting; /* tasks that wait for their condition */
	uint64_t uses;
};

extern bool conditions_open(CudaEngine *engine, EngineError *error);
/* Also after an error; nothing is in flight. */
extern void conditions_close(CudaEngine *engine);
/*
 * Make room for the bitmap of at least one program, for mirrors of `slots`
 * slots.
 */
extern EngineStatus conditions_grow(CudaEngine *engine, uint64_t slots, EngineError *error);
/*
 * Free the memory of programs that are not in use, but for that one. Returns
 * whether there was any.
 */
extern bool conditions_shrink(CudaEngine *engine);
/* Forget the programs of a mirror that is dropped. */
extern void conditions_forget(CudaEngine *engine, MirrorId mirror);
/*
 * Collect evaluations that have completed, begin those that tasks wait for, and
 * assign conditions to tasks: these may then start. A task that gets none for
 * lack of memory ends.
 */
extern void conditions_advance(CudaEngine *engine);
extern void condition_release(Condition *condition);

static inline uint32_t *
condition_bits(const Condition *condition)
{
	return (uint32_t *) (condition->memory.base + condition->bits_at);
}

#endif /* GPUANN_CUDA_CONDITIONS_H */
