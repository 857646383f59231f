/*
 * program.h
 *		What plain programs over engine.h share: the clock, and giving up.
 */
#ifndef GPUANN_BENCH_PROGRAM_H
#define GPUANN_BENCH_PROGRAM_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "engine/engine.h"

/* Seconds since some moment. */
static inline double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

/* End the program with what the engine says, unless it succeeded. */
static inline void
must(EngineStatus status, const EngineError *error, const char *what)
{
	if (status == ENGINE_OK)
		return;
	fprintf(stderr, "%s: %s\n", what, error->text);
	exit(1);
}

/* Memory that was asked for; ends the program if there is none. */
static inline void *
need(void *memory)
{
	if (memory != NULL)
		return memory;
	fprintf(stderr, "out of memory\n");
	exit(1);
}

#endif							/* GPUANN_BENCH_PROGRAM_H */
