/*
 * measurement.h
 *		Measure how many of the true nearest rows an index finds, with rows of
 *		its table as queries.
 */
#ifndef GPUANN_MEASUREMENT_H
#define GPUANN_MEASUREMENT_H

#include "inspect/near_rows.h"

#define MAX_SAMPLES		100000

/* A row drawn as a query, and what its exact answer was. */
typedef struct Sample
{
	uint32		slot;
	ItemPointerData tid;
	uint32		nearest;		/* rows of the exact answer */
	double		farthest;		/* distance of the last of them */
} Sample;

/* Sums over the answers to all samples. */
typedef struct AnswerSums
{
	uint32		asked;
	uint64		hits;
	uint64		wanted;
	double		least;			/* recall of the worst query */
	double		visited;
	double		ms;
	uint32		by_server;
} AnswerSums;

typedef struct Measurement
{
	NearRows	near;
	uint32		k;
	const char *max_scan_tuples;	/* the caller's */
	MemoryContext query_memory;
	Sample	   *samples;
	uint32		count;			/* of samples: as many as asked for, or as there are */
	uint64		live_rows;		/* of the index */
	AnswerSums	exact;
} Measurement;

/*
 * An argument of a SQL function, which errors out unless it lies between 1 and
 * most.
 */
extern uint32 measurement_argument(const char *name, int32 value, int32 most);

/*
 * Open an index to ask for the k nearest rows. Errors out unless the caller has
 * the privileges of SQL_INDEX_READ.
 */
extern void measurement_open(Oid index, uint32 k, Measurement *measurement);

/* Draw this many rows as queries, and ask for the nearest of each exactly. */
extern void measurement_begin(Measurement *measurement, uint32 samples);

/* Ask for the same approximately, as the settings are now. */
extern void measurement_ask(Measurement *measurement, AnswerSums *sums);

extern void measurement_end(Measurement *measurement);

/* The part of the rows of all exact answers that were found. */
static inline double
answer_recall(const AnswerSums *sums)
{
	return (double) sums->hits / Max(sums->wanted, 1);
}

/* A sum as a mean of the samples; 0 if there are none. */
static inline double
answer_mean(const AnswerSums *sums, double sum)
{
	return sum / Max(sums->asked, 1);
}

#endif							/* GPUANN_MEASUREMENT_H */
