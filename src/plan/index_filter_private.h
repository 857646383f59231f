/*
 * index_filter_private.h
 *		A compiled filter, for index_filter.c and index_filter_bind.c alone.
 */
#ifndef GPUANN_INDEX_FILTER_PRIVATE_H
#define GPUANN_INDEX_FILTER_PRIVATE_H

#include "plan/index_filter.h"

/* A value of a step: known when a scan begins. */
typedef struct LateValue
{
	uint32		step;
	Expr	   *expression;
	ExprState  *state;
	Oid			type;			/* of the value, or of an array's elements */
	bool		is_array;
	Oid			column;			/* type of the column */
	FilterKind	kind;
	Oid			function;		/* enums have an order of their own: the operator's */
} LateValue;

struct IndexFilter
{
	/* what the columns are */
	const PlannerInfo *root;	/* NULL: in the executor */
	Index		relid;
	uint32		columns;
	AttrNumber	attnos[FILTER_MAX_COLUMNS];
	FilterKind	kinds[FILTER_MAX_COLUMNS];	/* as they are stored */

	uint32		alternatives;	/* ORs and NOTs around what is being compiled */

	/* the program, but for its values */
	FilterStep *steps;
	uint32		nsteps;
	uint32		room;
	List	   *values;			/* LateValues, in the order of their steps */
};

#endif							/* GPUANN_INDEX_FILTER_PRIVATE_H */
