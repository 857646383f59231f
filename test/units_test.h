/*
 * units_test.h
 *		The parts of the test of units: placement, merges.
 */
#ifndef GPUANN_UNITS_TEST_H
#define GPUANN_UNITS_TEST_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/units/merge.h"
#include "engine/units/placement.h"
#include "promises.h"

/* ---- units_test_placement.c ---- */

extern void test_placement(void);

/* ---- units_test_merge.c ---- */

extern void test_merge(void);

#endif							/* GPUANN_UNITS_TEST_H */
