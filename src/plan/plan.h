/*
 * plan.h
 *		The plan node: paths and plans (paths.c), execution (node.c), the bound
 *		above it (bound.c), gathering rows (gather.c), their order (order.c),
 *		distances in its expressions (distance.c).
 */
#ifndef GPUANN_PLAN_H
#define GPUANN_PLAN_H

#include "postgres.h"

#include "commands/explain.h"
#include "nodes/execnodes.h"
#include "nodes/extensible.h"
#include "nodes/plannodes.h"

#include "scan/scan.h"

/* The name of the node in EXPLAIN, and of its methods. */
#define GPUANN_NODE_NAME	"gpuann"

/* What stands above a node. */
typedef enum BoundKind
{
	BOUND_NONE,					/* rows may be drained */
	BOUND_SOFT,					/* a LIMIT, but some node between may want more rows than that */
	BOUND_HARD					/* a LIMIT: no more rows are wanted */
} BoundKind;

/* A row that passed the filters. */
typedef struct NodeRow
{
	double		distance;
	double		value;			/* the operator's, if valued */
	bool		valued;
	bool		null_value;		/* the operator gave NULL */
	uint32		slot;
	ItemPointerData tid;
} NodeRow;

/* Rows in an order, in memory of the scan. */
typedef struct NodeRows
{
	NodeRow    *rows;
	uint64		first;			/* rows before it have been taken */
	uint64		count;
	uint64		allocated;
} NodeRows;

typedef struct GpuannNode
{
	CustomScanState css;

	/* the plan: set once */
	Oid			index_oid;
	OpExpr	   *distance;		/* indexed expression, operator, query */
	List	   *limit_exprs;	/* float8 expressions: the operator's value of a row that passes is at
								 * most the least of them */
	bool		ordered;		/* rows are wanted in the order of the distance */
	ExprState  *query;
	List	   *limits;			/* ExprStates of limit_exprs */
	ExprState  *filter;			/* the plan's quals */
	FmgrInfo	operator_call;
	bool		filter_has_value;	/* the quals, as compiled, take the distance from caseValue */
	bool		output_has_value;	/* and the target list */
	bool		output_changed;	/* a column that nothing reads is NULL */

	/* the bound, from the plan tree */
	BoundKind	bound;
	LimitState *limit;

	/* opened */
	Relation	index;
	IndexScanDesc desc;
	GpuannScan *scan;
	ExprContext *runtime;		/* for query and limits */
	MemoryContext memory;		/* of the scan from one rescan to the next */
	void	   *value;			/* the value that the operator is called on: header and elements */
	void	   *elements;		/* in it */
	uint32		value_slot;		/* whose elements these are; NO_SLOT: of none */
	Datum		query_value;
	bool		query_is_null;

	/* the scan under way */
	bool		begun;
	bool		in_order;		/* rows go through the operator's order */
	uint64		wanted;			/* rows, of a hard bound; else 0 */
	double		most_distance;	/* no row beyond it passes */
	bool		gathered;		/* rows come from passed, not from the scan */
	NodeRows	passed;			/* in order of distance */
	NodeRows	held;			/* order.c: until no smaller value can follow; in order of value */
	double		next_least;		/* order.c: the least value that rows not pulled yet can have */
	bool		drained;		/* order.c: no more rows are to be pulled */
	bool		pushed_back;	/* stream: this row has been proposed and not judged */
	ScanRow		pushed;
	SlotSet    *passed_slots;	/* gather.c: of the rows that were judged, those that passed */
	uint32		fetched_slot;	/* whose row is in the scan slot; NO_SLOT: of none */

	/* told by EXPLAIN */
	uint64		judged;
	uint64		passed_count;
} GpuannNode;

/* ---- paths.c ---- */

extern const CustomPathMethods gpuann_path_methods;
extern const CustomScanMethods gpuann_plan_methods;

/* ---- node.c ---- */

extern Node *gpuann_create_node(CustomScan *plan);
extern const CustomExecMethods gpuann_node_methods;

/* Whether a plan state is one of ours. */
static inline bool
is_gpuann_node(const PlanState *state)
{
	return IsA(state, CustomScanState) &&
		   ((const CustomScanState *) state)->methods == &gpuann_node_methods;
}

/*
 * Fetch a row from the table into the scan slot. False: the snapshot does not
 * see it.
 */
extern bool node_fetch(GpuannNode *node, const ItemPointerData *tid, uint32 slot);

/* Whether a row is there for the snapshot and passes the filters. */
extern bool node_judge(GpuannNode *node, const ScanRow *row);

/* How many nodes were begun and not yet told what stands above them. */
extern int	gpuann_nodes_without_bound;

/* ---- bound.c ---- */

/* Install the hook that tells nodes what stands above them. */
extern void plan_bound_init(void);

/* ---- gather.c ---- */

/* Forget the rows of an array, or begin one. */
extern void rows_reset(NodeRows *rows);

/* Put a row into its place by (distance, slot), or by (value, slot). */
extern void rows_insert(NodeRows *rows, MemoryContext memory, const NodeRow *row, bool by_value);

/*
 * Gather the wanted rows by rounds of the graph. False: they are better found
 * exactly, by the stream that has begun.
 */
extern bool gather_rows(GpuannNode *node);

/*
 * The next row that passes, by distance. *following is a distance that no row
 * after it is nearer than.
 */
extern bool next_passing(GpuannNode *node, NodeRow *row, double *following);

/* ---- order.c ---- */

/* The next row in the order of the operator's values. */
extern bool next_in_order(GpuannNode *node, NodeRow *row);

/* ---- distance.c ---- */

/*
 * Compile the node's quals and target list anew, with the operator's value
 * taken from econtext->caseValue wherever they contain the distance; where a
 * column of the target list is only for order, and nothing above reads it, it
 * is NULL.
 */
extern void node_take_values(GpuannNode *node, bool junk_is_unused);

/* Have the operator's value of a row, computed from the stored elements. */
extern void node_value(GpuannNode *node, NodeRow *row);

/* ---- explain.c ---- */

extern void gpuann_explain_custom(CustomScanState *css, List *ancestors, ExplainState *es);

#endif							/* GPUANN_PLAN_H */
