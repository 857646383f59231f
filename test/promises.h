/*
 * promises.h
 *		What tests in C share that print a line of TAP for each promise: the
 *		first reason why one is not kept, memory, numbers from a seed.
 */
#ifndef GPUANN_PROMISES_H
#define GPUANN_PROMISES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/quantizer/random.h"

/* What is tested: it stands before each promise. */
extern const char *promises_of;

/* Let the running test fail; the first reason counts. */
extern void test_fails(const char *format,...) __attribute__((format(printf, 1, 2)));

#define CHECK(condition) \
	do \
	{ \
		if (!(condition)) \
			test_fails("%s, line %d: %s", __FILE__, __LINE__, #condition); \
	} while (0)

/* End a test. */
extern void report(const char *promise);

/* End all of them; the exit status. */
extern int	promises_end(void);

/* Memory, zeroed, aligned to a cache line. */
extern void *need(size_t bytes);

extern uint64_t random_state;

/* A whole number below a limit. */
extern uint32_t below(uint32_t limit);

#endif							/* GPUANN_PROMISES_H */
