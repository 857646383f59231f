/*
 * units_test.h
 *		The parts of the test of units: placement, schedules, merges.
 */
#ifndef GPUANN_UNITS_TEST_H
#define GPUANN_UNITS_TEST_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quantizer/random.h"
#include "engine/units/search_units.h"

/* ---- units_test.c ---- */

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

extern void *need(size_t bytes);

extern uint64_t random_state;

/* A whole number below a limit. */
extern uint32_t below(uint32_t limit);

/* ---- units_test_placement.c ---- */

extern void test_placement(void);

/* ---- units_test_schedule.c ---- */

extern void test_schedule(void);

/* ---- units_test_merge.c ---- */

extern void test_merge(void);

#endif							/* GPUANN_UNITS_TEST_H */
