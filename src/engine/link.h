/*
 * link.h
 *		Linking, between its batches (link.c) and its rows (linkrow.c). Private to the CPU engine.
 */
#ifndef GPUANN_LINK_H
#define GPUANN_LINK_H

#include "cpu.h"

#define BATCH_MAX			512

/* An edge back: target shall know source. */
typedef struct BackEdge
{
	uint32_t	target;
	uint32_t	source;
} BackEdge;

/* A link under way. */
typedef struct Linking
{
	CpuJob	   *job;
	Mirror	   *mirror;
	PruneRule	rule;
	uint32_t	rows;			/* published when it began */
	uint32_t   *slots;			/* to link, in order */
	uint32_t	count;
	uint32_t	first;			/* the batch */
	uint32_t	batch;
	uint32_t   *chosen;			/* batch * degree */
	uint32_t   *nchosen;
	BackEdge   *edges;
	BackEdge   *sorted;
	uint32_t	nedges;
	uint32_t   *groups;			/* where each target's edges begin, and the end */
	uint32_t	ngroups;
	uint32_t   *seeds;			/* of the candidate searches */
	uint32_t	nseeds;
	uint64_t   *changed;		/* bitmap of rows */
	_Atomic bool no_memory;
} Linking;

/* Items of the two phases of a batch: a row of it, a group of edges. */
extern void link_choose_row(void *linking, uint32_t item, Worker *worker);
extern void link_update_target(void *linking, uint32_t group, Worker *worker);

#endif							/* GPUANN_LINK_H */
