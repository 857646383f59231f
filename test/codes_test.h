/*
 * codes_test.h
 *		The parts of the test of quantizers and k-means.
 */
#ifndef GPUANN_CODES_TEST_H
#define GPUANN_CODES_TEST_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quantizer/kmeans.h"
#include "engine/quantizer/nearest.h"
#include "engine/quantizer/quantizer.h"
#include "promises.h"

/* ---- codes_test.c ---- */

/* About normal. */
extern double normal(void);

extern double square_of(const float *a, const float *b, uint32_t dims);
extern double product_of(const float *a, const float *b, uint32_t dims);

/* What estimates stand for. */
extern double distance_of(Metric metric, const float *a, const float *b, uint32_t dims);

/* Rows in clusters, whose sizes differ by far. */
extern void make_clusters(float *rows, uint32_t count, uint32_t dims, uint32_t clusters,
						  double width);

/* ---- codes_test_kmeans.c ---- */

extern void test_kmeans_threads(void);
extern void test_kmeans(void);

/* ---- codes_test_estimates.c ---- */

extern void test_estimates(void);

/* ---- codes_test_blocks.c ---- */

extern void test_blocks(void);

/* ---- codes_test_golden.c ---- */

extern void test_golden(void);

/* ---- codes_test_cooc.c ---- */

extern void test_cooc(void);

/* ---- codes_test_recall.c ---- */

extern void test_recall(void);

#endif							/* GPUANN_CODES_TEST_H */
