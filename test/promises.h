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

/* Let the running case fail; the first reason counts. */
extern void case_fails(const char *format,...) __attribute__((format(printf, 1, 2)));
extern bool case_failed(void);

#define CHECK(condition) \
	do \
	{ \
		if (!(condition)) \
			case_fails("%s, line %d: %s", __FILE__, __LINE__, #condition); \
	} while (0)

/* End a case, with a line of TAP. */
extern void report(const char *promise);

/* Likewise, without: the reason why it has failed, or NULL. */
extern const char *case_ends(void);

/* End all of them; the exit status. */
extern int	promises_end(void);

/* Memory, zeroed, aligned to a cache line. */
extern void *need(size_t bytes);

extern uint64_t random_state;

/* A whole number below a limit. */
extern uint32_t below(uint32_t limit);

#endif							/* GPUANN_PROMISES_H */
