/*
 * filter_program.h
 *		Programs that are kept: copies, and whether two are the same.
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

/* Whether two programs are the same; equal ones may be taken for different. */
extern bool program_same(const FilterProgram *a, const FilterProgram *b);

/* Bytes of a program's values and steps. */
extern size_t program_bytes(const FilterProgram *program);

/* Write values, then steps, one behind the other: program_bytes(). */
extern void program_write(const FilterProgram *program, void *to);

#endif							/* GPUANN_FILTER_PROGRAM_H */
