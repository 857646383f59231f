/*
 * build.h
 *		Phases of CREATE INDEX, as pg_stat_progress_create_index names them, and
 *		the memory it needs.
 */
#ifndef GPUANN_BUILD_H
#define GPUANN_BUILD_H

#include "page/pages.h"

#include "nodes/execnodes.h"

/* 1 is "initializing" (PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE) */
#define BUILD_PHASE_LOAD	2
#define BUILD_PHASE_LINK	3
#define BUILD_PHASE_WRITE	4
#define BUILD_PHASE_LOG		5
#define BUILD_PHASE_PAGES	6
#define BUILD_PHASE_MIRROR	7
#define BUILD_PHASE_TRAIN	8
#define BUILD_PHASE_LISTS	9

/*
 * maintenance_work_mem, in bytes, that a build of this many rows needs to make
 * the whole graph in memory.
 */
extern double build_memory(const IndexFormat *format, double rows);

#endif							/* GPUANN_BUILD_H */
