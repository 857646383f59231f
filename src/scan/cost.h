/*
 * cost.h
 *		What a scan by the plan node costs (cost.c).
 */
#ifndef GPUANN_COST_H
#define GPUANN_COST_H

#include "postgres.h"

#include "nodes/pathnodes.h"

/* What a query wants of a node, as far as the planner knows. */
typedef enum DemandKind
{
	DEMAND_BOUND,				/* ordered, a number of rows that pass; no more */
	DEMAND_STREAM,				/* ordered, as many rows as the node above wants: probably few */
	DEMAND_ALL					/* every row that passes */
} DemandKind;

typedef struct NodeDemand
{
	DemandKind	kind;
	double		wanted;			/* DEMAND_BOUND: rows; DEMAND_STREAM: those that the LIMIT wants,
								 * 0: unknown */
	double		within;			/* share of the index's rows that lie within the thresholds; 1:
								 * there are none */
	double		passing;		/* share of those that pass all filters */
	double		columns;		/* share of the index's rows that filters on its columns let pass;
								 * 1: there are none */
} NodeDemand;

/* What prices of an index depend on: read once, for it opens the index. */
typedef struct PricedIndex PricedIndex;

extern const PricedIndex *gpuann_examine(const IndexOptInfo *info);

/*
 * Whether a query wants so few rows that an exact scan in it, which knows no
 * number, begins with few: its LIMIT counts rows that joins and filters leave.
 */
extern bool gpuann_few_are_wanted(const PlannerInfo *root);

/*
 * Cost of a scan by the node: before its first row, and before its last.
 * Fetching rows from the table and evaluating the relation's filters is in it,
 * the target list is not.
 */
extern void gpuann_price(PlannerInfo *root, const PricedIndex *index, const NodeDemand *demand,
						 Cost *startup, Cost *total);

/*
 * The price of comparing all rows of an index and fetching `rows` of them, in
 * each of `loops` scans; reading is paid for once.
 */
extern Cost gpuann_range_price(PlannerInfo *root, const PricedIndex *index, double rows,
							   double loops);

/* Whether comparing all rows costs no more than a few graph rounds. */
extern bool gpuann_exact_is_near(const PricedIndex *index);

/* Whether a scan would not fail at once, by the metapage. */
extern bool gpuann_is_readable(const PricedIndex *index);

#endif							/* GPUANN_COST_H */
