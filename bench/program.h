/*
 * program.h
 *		What plain programs over engine.h share: the clock, giving up, and the
 *		engine of a library.
 */
#ifndef GPUANN_BENCH_PROGRAM_H
#define GPUANN_BENCH_PROGRAM_H

#include <dlfcn.h>
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

/*
 * The engine of a library, or (NULL) the CPU engine; ends the program if there
 * is none.
 */
static inline const EngineOps *
engine_of(const char *library)
{
	void	   *object;
	void	   *symbol;
	EngineEntry entry;

	if (library == NULL)
		return cpu_engine_ops();
	object = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	symbol = object != NULL ? dlsym(object, ENGINE_ENTRY_SYMBOL) : NULL;
	if (symbol == NULL)
	{
		fprintf(stderr, "%s: %s\n", library, dlerror());
		exit(2);
	}
	*(void **) &entry = symbol;
	return entry();
}

/* The order of doubles, for qsort(). */
static inline int
compare_doubles(const void *left, const void *right)
{
	double		a = *(const double *) left;
	double		b = *(const double *) right;

	return a < b ? -1 : a > b;
}

#endif							/* GPUANN_BENCH_PROGRAM_H */
