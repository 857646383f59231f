/*
 * patience.h
 *		The time limit of a batch, after which its device counts as failed.
 *
 * A kernel that never ends blocks its clients, so it must be noticed within
 * seconds; a large batch may legitimately take long. Therefore the work of a
 * batch (elements computed, bytes read) is bounded from above, and the batch is
 * given the time that a slow device needs for it, plus a base for launches and
 * latencies. The rates below are those of the slowest device that the engine
 * supports; a data-centre GPU exceeds them ten- to a hundredfold.
 */
#ifndef GPUANN_CUDA_PATIENCE_H
#define GPUANN_CUDA_PATIENCE_H

#include <stdint.h>
#include <stdlib.h>

#define ELEMENTS_PER_US UINT64_C(100000)
#define BYTES_PER_US UINT64_C(10000)

#ifdef EMULATED
#define PATIENCE_BASE_US UINT64_C(120000000)
#define TIMES_SLOWER UINT64_C(10000)
#else
#define PATIENCE_BASE_US UINT64_C(10000000)
#define TIMES_SLOWER UINT64_C(1)
#endif

/* The base limit, in microseconds. Tests with a hanging device shorten it. */
static inline uint64_t
patience_base_us(void)
{
#ifdef EMULATED
	const char *ms = getenv("GPUANN_EMULATE_PATIENCE");

	if (ms != NULL)
		return (uint64_t) atol(ms) * 1000;
#endif
	return PATIENCE_BASE_US;
}

/* Upper bounds of a batch's work. */
typedef struct BatchWork
{
	uint64_t elements;	/* elements of rows or codes compared, over all queries */
	uint64_t longest;	/* bytes that one block reads row after row, as a lone walk does */
	uint64_t bus_bytes; /* bytes read from host memory */
} BatchWork;

/* Microseconds that the work explains on a slow device. */
static inline uint64_t
batch_work_us(const BatchWork *work)
{
	return (work->elements / ELEMENTS_PER_US + (work->longest + work->bus_bytes) / BYTES_PER_US) *
		   TIMES_SLOWER;
}

#endif /* GPUANN_CUDA_PATIENCE_H */
