/*
 * planned_paths.h
 *		The ordered index paths that the planner has made (planned_paths.c).
 */
#ifndef GPUANN_PLANNED_PATHS_H
#define GPUANN_PLANNED_PATHS_H

#include "postgres.h"

#include "nodes/pathnodes.h"

/* Remember a path, until it is taken or its planning ends. */
extern void planned_path_add(PlannerInfo *root, IndexPath *path);

/* The paths remembered of a relation, in the order in which they were made. */
extern List *planned_paths_take(PlannerInfo *root, const RelOptInfo *rel);

#endif							/* GPUANN_PLANNED_PATHS_H */
