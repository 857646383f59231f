/*
 * scratch.h
 *		Memory contexts as allocators of the engine's routines, so that an error
 *		frees what they took.
 */
#ifndef GPUANN_SCRATCH_H
#define GPUANN_SCRATCH_H

#include "postgres.h"

#include "engine/search.h"

/* Takes memory from this context; out of memory is an ERROR. */
extern ScratchAllocator scratch_in(MemoryContext context);

#endif							/* GPUANN_SCRATCH_H */
