/*
 * run.h
 *		What the parts of bench/build/engine share: what the command line chose,
 *		the engine, and the mirror that is asked.
 */
#ifndef GPUANN_BENCH_RUN_H
#define GPUANN_BENCH_RUN_H

#include "../program.h"

#define MAX_LIST		16

/* What the command line chose. */
typedef struct Settings
{
	const char *library;
	const char *base;
	const char *query;
	const char *graph;			/* read if it is there, else written */
	ElementType type;
	Metric		metric;
	uint32_t	rows;
	uint32_t	dims;
	uint32_t	degree;
	uint32_t	ef_construction;
	uint32_t	k;
	uint32_t	seeds;			/* tried per query; 0: the engine's default */
	uint32_t	truths;			/* queries whose recall is measured */
	uint32_t	more;			/* rows that are linked in a job of their own, after all others */
	uint32_t	candidates;		/* rows whose candidates are compared with their nearest rows */
	bool		beside;			/* measure lone queries beside that job */
	uint32_t	dead;			/* this many rows in a hundred die when all are linked */
	uint32_t	repair;			/* and the others are repaired: 1, in one job; more, in so many, and
								 * one of all; 0: not */
	uint32_t	filter;			/* this many rows in a hundred pass; 0: no filter */
	bool		by_rows;		/* graph searches measure stored rows, not codes */
	bool		cold;			/* before each batch that is measured all rows are read */
	uint64_t	memory_limit;	/* bytes of the engine's memory; 0: its default */
	uint64_t	host_rows;		/* bytes of host memory that rows may go on in */
	uint32_t	efs[MAX_LIST];
	uint32_t	nefs;
	uint32_t	batches[MAX_LIST];
	uint32_t	nbatches;
} Settings;

extern Settings set;
extern const EngineOps *ops;
extern Engine *engine;
extern MirrorId mirror;
extern volatile uint32_t wakes; /* of the engine */

/* load.c */
extern void *read_file(const char *path, size_t bytes);
extern JobId run_job(EngineJob job, const char *what, bool keep);
extern void load(void);

/* lone.c */
extern double ask_row(const void *vector, SearchMethod method, uint32_t ef, SearchResult *results,
					  uint32_t k, uint32_t *count, SearchCounters *counters);
extern void lone_queries(const char *vectors, JobId job, const char *what);

#endif							/* GPUANN_BENCH_RUN_H */
