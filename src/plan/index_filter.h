/*
 * index_filter.h
 *		The part of a node's quals that is evaluated on the columns that its
 *		index includes: which quals, and their program (engine/filter.h).
 */
#ifndef GPUANN_INDEX_FILTER_H
#define GPUANN_INDEX_FILTER_H

#include "postgres.h"

#include "nodes/execnodes.h"
#include "nodes/pathnodes.h"

#include "engine/filter.h"

/*
 * Those of some clauses (RestrictInfos) that exclude rows by columns that an
 * index includes.
 */
extern List *index_filter_clauses(PlannerInfo *root, const RelOptInfo *rel,
								  const IndexOptInfo *index, List *clauses);

/* Compiled clauses of a node; NULL: they exclude nothing. */
typedef struct IndexFilter IndexFilter;

extern IndexFilter *index_filter_begin(List *clauses, Relation index, Index relid,
									   PlanState *state);

/*
 * The program, with the values that its expressions have now, in the current
 * memory context. NULL: a value is beyond what a program expresses.
 */
extern const FilterProgram *index_filter_bind(const IndexFilter *filter, ExprContext *context);

#endif							/* GPUANN_INDEX_FILTER_H */
