/*
 * patience.h
 *		How long a batch may take before its device counts as failed.
 *
 * A kernel that never ends holds its clients up, so it is to be noticed in
 * seconds; a large batch may legitimately take long. What a batch computes and
 * reads is therefore bounded from above, and has the time that a small device
 * would take for it, beside a base that covers launches and latencies. The
 * figures below are of the slowest device that the engine supports; a data
 * centre's exceeds them ten- to a hundredfold.
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

/*
 * What every batch has, in microseconds. Tests, whose device is to hang, have
 * it shorter.
 */
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

/* What a batch may have to do, at most. */
typedef struct BatchWork
{
	uint64_t elements;	/* of rows, or of their codes, compared: once for each query */
	uint64_t longest;	/* bytes that one block reads, one row after another: of a lone walk */
	uint64_t bus_bytes; /* that come from the host's memory */
} BatchWork;

/* Microseconds that a batch's work explains. */
static inline uint64_t
batch_work_us(const BatchWork *work)
{
	return (work->elements / ELEMENTS_PER_US + (work->longest + work->bus_bytes) / BYTES_PER_US) *
		   TIMES_SLOWER;
}

#endif /* GPUANN_CUDA_PATIENCE_H */
