/*
 * filter_program.h
 *		Programs that are kept or sent: copies, and whether two are the same.
 */
#ifndef GPUANN_FILTER_PROGRAM_H
#define GPUANN_FILTER_PROGRAM_H

#include <stddef.h>

#include "engine/filter.h"

/*
 * Copy a program into one allocation, which is freed with free(). NULL: out of
 * memory.
 */
extern FilterProgram *program_copy(const FilterProgram *program);

/* Whether two programs have the same steps and values. */
extern bool program_same(const FilterProgram *a, const FilterProgram *b);

/* Bytes of a program of so many steps and values. */
static inline size_t
program_bytes_of(uint32_t steps, uint32_t values)
{
	return steps * sizeof(FilterStep) + values * sizeof(FilterValue);
}

static inline size_t
program_bytes(const FilterProgram *program)
{
	return program_bytes_of(program->nsteps, program->nvalues);
}

/* Write values, then steps, one behind the other: program_bytes(). */
extern void program_write(const FilterProgram *program, void *to);

#endif							/* GPUANN_FILTER_PROGRAM_H */
