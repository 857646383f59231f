/*
 * build.h
 *		Phases of CREATE INDEX, as pg_stat_progress_create_index names them.
 */
#ifndef GPUANN_BUILD_H
#define GPUANN_BUILD_H

/* 1 is "initializing" (PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE) */
#define BUILD_PHASE_LOAD	2
#define BUILD_PHASE_LINK	3
#define BUILD_PHASE_WRITE	4

#endif							/* GPUANN_BUILD_H */
