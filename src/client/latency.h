/*
 * latency.h
 *		How long scans took: a histogram for each index and path, in
 *		PostgreSQL's own shared memory.
 *
 * Buckets are log-linear: four to each power of two of microseconds, so a time
 * is known to a quarter of itself at worst. Like the counters beside them
 * (MirrorCounters) they are of an entry of the mirror table, and are cleared,
 * and passed on to the index's next file, with these; a scan that ends while
 * its entry is taken by another index may be counted there.
 */
#ifndef GPUANN_LATENCY_H
#define GPUANN_LATENCY_H

#include "port/pg_bitutils.h"

#include "client/shmem.h"

#define LATENCY_BUCKETS 96		/* the last from 29 seconds on */

typedef enum LatencyPath
{
	LATENCY_SERVER,
	LATENCY_PAGES
} LatencyPath;

#define LATENCY_PATHS	2

typedef struct LatencyCounts
{
	_Atomic uint64_t counts[LATENCY_PATHS][LATENCY_BUCKETS];
} LatencyCounts;

/* The bucket of a time. */
static inline int
latency_bucket(uint64 us)
{
	int			octave;

	if (us < 4)
		return (int) us;
	octave = pg_leftmost_one_pos64(us);
	return Min((octave - 1) * 4 + (int) ((us >> (octave - 2)) & 3), LATENCY_BUCKETS - 1);
}

/* The least time of a bucket, in microseconds. */
static inline double
latency_bucket_begin(int bucket)
{
	return bucket < 4 ? bucket : (double) ((uint64) (4 + bucket % 4) << (bucket / 4 - 1));
}

/* The histogram of an entry of the mirror table. */
extern LatencyCounts *mirror_latency(int entry);

#endif							/* GPUANN_LATENCY_H */
