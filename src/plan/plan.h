/*
 * plan.h
 *		The plan node. Planning: paths of relations (paths.c), the distance that
 *		orders them (order.c), queries with a LIMIT (limit.c, stream.c),
 *		thresholds of the distance (threshold.c, sample.c, range.c), filters on
 *		the index's columns (index_filter.c). Execution: node.c, gathering rows
 *		(gather.c), distances in expressions (distance.c), nodes that ask the
 *		server together (group.c).
 */
#ifndef GPUANN_PLAN_H
#define GPUANN_PLAN_H

#include "postgres.h"

#include "commands/explain.h"
#include "nodes/execnodes.h"
#include "nodes/extensible.h"
#include "nodes/pathnodes.h"
#include "nodes/plannodes.h"
#include "portability/instr_time.h"

#include "plan/index_filter.h"
#include "scan/cost.h"
#include "scan/scan.h"

/* The name of the node in EXPLAIN, and of its methods. */
#define GPUANN_NODE_NAME	"gpuann"

/* Rows gathered whose tuples are kept, so that they are not fetched again. */
#define GPUANN_KEPT_TUPLES	16

/* Which rows a path or plan gives. */
typedef enum NodeKind
{
	NODE_RANGE,					/* all within thresholds, in no order */
	NODE_EXACT,					/* all, in the order of the distance */
	NODE_LIMIT,					/* the nearest ones, as many as the LIMIT above wants */
	NODE_TIES,					/* these, and all whose distance is that of the last */
	NODE_STREAM					/* the nearest ones, as long as somebody asks */
} NodeKind;

/* What a path is to give. */
typedef struct PathBound
{
	NodeKind	kind;
	Node	   *count;			/* NODE_LIMIT, NODE_TIES: the LIMIT, */
	Node	   *offset;			/* and its OFFSET or NULL */
	double		wanted;			/* rows, as foreseen; 0: unknown, and not by a LIMIT alone */
	bool		as_found;		/* rows may come in the order in which they are found */
} PathBound;

/* The LIMIT of a plan, as it computes it itself. */
typedef struct NodeLimit
{
	ExprState  *count;			/* NULL: there is none */
	ExprState  *offset;
} NodeLimit;

typedef struct GpuannNode
{
	CustomScanState css;

	/* the plan: set once */
	Oid			index_oid;
	OpExpr	   *distance;		/* indexed expression, operator, query */
	List	   *threshold_lists;	/* threshold_limits(): the operator's value of a row that
									 * passes is at most the least of them */
	List	   *filter_clauses; /* quals that exclude rows by the index's columns */
	double		columns_share;	/* of the rows that the planner expects these to let pass */
	bool		secret;			/* row security applies: what they exclude is not told */
	NodeKind	kind;
	bool		as_found;		/* rows may come in the order in which they are found */
	bool		junk_is_unused; /* nothing reads columns that are only for order */
	bool		few;			/* few rows are asked for, where their number is unknown */
	ExprState  *query;
	List	   *thresholds;		/* NodeThresholds of these */
	ExprState  *row_filter;		/* the plan's quals, */
	ExprState  *filter;			/* ... as they are evaluated for rows of the index */
	bool		filter_has_value;	/* the quals, as compiled, take the distance from caseValue */
	bool		output_has_value;	/* and the target list */
	bool		output_changed;	/* a column that nothing reads is NULL */
	NodeLimit	limit;
	IndexFilter *index_filter;	/* filter_clauses, compiled; NULL: none */
	MergeAppendState *merge;	/* takes a first row from this node and its siblings; or NULL */

	/* opened */
	Relation	index;
	IndexScanDesc desc;
	GpuannScan *scan;
	ExprContext *runtime;		/* for query and limits */
	MemoryContext memory;		/* of the scan from one rescan to the next */
	Datum		query_value;
	bool		query_is_null;

	/* the scan under way */
	bool		prepared;		/* what it asks for is known */
	bool		nothing_passes; /* by the thresholds */
	bool		bounded;		/* one of these bounds the scan: its query is the scan's */
	FirstAnswer first;			/* asked for with those of its siblings */
	bool		begun;
	bool		in_order;		/* rows go through the operator's order */
	uint64		wanted;			/* rows, by the LIMIT; 0: there is none */
	uint64		skipped;		/* of these, by the OFFSET */
	uint64		given;			/* rows */
	double		last_value;		/* of the last of them, near the end of NODE_TIES */
	bool		in_steps;		/* rows are gathered as for the pages before this one (gather.c) */
	double		expected;		/* share of the rows judged that passes, by the planner */
	double		most_distance;	/* no row beyond it passes */
	bool		gathered;		/* rows come from passed, not from the scan */
	ScanRows	passed;			/* by distance */
	RowOrder	order;			/* of the rows that passed */
	uint64		streamed;		/* rows that passed, of a stream */
	bool		pushed_back;	/* stream: this row has been proposed and not judged */
	ScanRow		pushed;
	SlotSet    *settled_slots;	/* gather.c: rows that pages before have shown; NULL: none */
	uint32		fetched_slot;	/* whose row is in the scan slot; NO_SLOT: of none */
	int			kept_count;
	uint32		kept_slots[GPUANN_KEPT_TUPLES];
	TupleTableSlot *kept[GPUANN_KEPT_TUPLES];

	instr_time	spent;			/* in the node, if gpuann.log_min_duration asks for it */

	uint64		judged_before;	/* when this scan began */

	/* told by EXPLAIN, of all scans */
	uint64		judged;
	uint64		excluded;		/* of these, by columns, without being fetched */
	uint64		excluded_before;	/* when this scan began */
	uint64		passed_count;
} GpuannNode;

/* ---- paths.c ---- */

extern const CustomPathMethods gpuann_path_methods;
extern const CustomScanMethods gpuann_plan_methods;

/*
 * Whether enable_indexscan was on when PostgreSQL last made the index paths of
 * an index's relation: a hint may have said no.
 */
extern bool index_is_enabled(const PlannerInfo *root, const IndexOptInfo *index);

/*
 * Make a path of the node: of a path's figures, for an index, with a distance
 * and thresholds.
 */
extern Path *make_node_path(const Path *figures, const IndexOptInfo *index, OpExpr *distance,
							List *limits, const PathBound *bound);

/*
 * The cheapest path of the node that gives a relation's rows in the order of a
 * key, within a bound. NULL: no index has that order, or may be used.
 */
extern Path *make_bounded_path(PlannerInfo *root, RelOptInfo *rel, const PathKey *key,
							   const PathBound *bound, PathTarget *target);

/* Have a path only where there is no other, as enable_indexscan = off says. */
extern void disable_path(Path *path);

/*
 * What is known across the hooks of one planning: paths and expressions that
 * were made by it and that nobody else has. It is no planner_hook's, because
 * the library may be loaded while a session's first statement is planned.
 */
typedef struct Planning
{
	MemoryContext memory;		/* of one planning after the other; */
	const PlannerGlobal *glob;	/* of this one */
	List	   *ordered;		/* paths.c: OrderedRels */
	List	   *streams;		/* stream.c: Streams */
	List	   *shares;			/* sample.c: SampledShares */
	List	   *disabled;		/* paths.c: IndexOptInfos that are not to be scanned */
	struct Planning *next;
	MemoryContextCallback forget;
} Planning;

extern Planning *planning_of(const PlannerInfo *root);

/* ---- limit.c ---- */

/* Install the hooks that plan queries with a LIMIT. */
extern void plan_limit_init(void);

/* Whether nothing but sorts stands between a query's rows and its LIMIT. */
extern bool query_is_plain(const Query *query);

/* Whether a query wants its nearest rows, as far as the query says. */
extern bool query_is_limited(const PlannerInfo *root);

/*
 * A path that gives the rows of a base relation, its children or subquery in
 * the order of a key, within a bound. NULL: there is none.
 */
extern Path *make_ordered_path(PlannerInfo *root, RelOptInfo *rel, const PathKey *key,
							   const PathBound *bound, PathTarget *target);

/* ---- stream.c ---- */

/* Install the hook that follows streams through joins. */
extern void plan_stream_init(void);

/*
 * The cheapest path of a join that keeps the order of a stream below it, or
 * NULL.
 */
extern Path *find_stream(const PlannerInfo *root, const RelOptInfo *joinrel);

/* ---- group.c ---- */

/* Make a path of a group of nodes below a MergeAppend. */
extern Path *make_group_path(MergeAppendPath *merge, const PathBound *bound);

extern void plan_group_init(void);

/*
 * A node begins: ask for the first answers of all whose first rows its
 * MergeAppend is going to want, in one request.
 */
extern void ask_with_siblings(GpuannNode *node);

/* ---- order.c ---- */

/*
 * The first of a query's sort keys if an index has its order, which is that of
 * *distance: indexed expression, operator, query. NULL: it has not.
 */
extern PathKey *ordering_key(PlannerInfo *root, const IndexOptInfo *index, OpExpr **distance);

/*
 * An expression as a distance that an index orders by, in an operator family:
 * indexed expression, operator, query. NULL: it is none. `others`: the query
 * may be of other relations' rows.
 */
extern OpExpr *as_distance(PlannerInfo *root, const IndexOptInfo *index, Expr *expr, bool others,
						   Oid *sort_family);

/* ---- threshold.c ---- */

/*
 * A qual that bounds the distance from above: the value in it is at most the
 * limit; where it compares something that falls as the value rises, at most
 * `from` less the limit.
 */
typedef struct Threshold
{
	RestrictInfo *restriction;
	Node	   *value;
	Node	   *limit;			/* of type float8, float4 or numeric */
	Node	   *query;			/* the value's, if it is not the path's: the threshold holds where
								 * both are equal; else NULL */
	bool		falling;
	bool		strict;			/* less than, rather than at most */
	bool		folded;			/* the limit is a constant, with all that follows in it */
	double		from;
	double		shift;			/* what the qual compares may differ from the value by so much, */
	double		slack;			/* and so many times the value and 1 */
} Threshold;

/* Whether a threshold is one that the caller looks for. */
typedef bool (*threshold_matches) (Threshold *threshold, void *context);

/*
 * Whether a qual is a threshold that a caller looks for, may be evaluated out
 * of its turn, and has a limit that does not depend on rows of the relation.
 */
extern bool threshold_of(PlannerInfo *root, RelOptInfo *rel, RestrictInfo *restriction,
						 threshold_matches matches, void *context, Threshold *threshold);

/*
 * Those of a path's quals that are thresholds of a distance: of the relation's
 * own, and of the join clauses that the path is parameterised by.
 */
extern List *thresholds_of(PlannerInfo *root, RelOptInfo *rel, const ParamPathInfo *param_info,
						   const OpExpr *distance);

/* A float8, float4 or numeric as float8; infinite where it is too large. */
extern double threshold_float8(Datum value, Oid type);

/* What the limit's value, of this type, lets pass: the greatest distance. */
extern double threshold_limit(const Threshold *threshold, Datum value, Oid type);

/*
 * Their limits as a plan carries them, a list for each: limit, query or NULL,
 * `from` (NULL: it does not fall), shift, slack. And back.
 */
extern List *threshold_limits(List *thresholds);
extern void threshold_read_limit(List *limit, Threshold *threshold);

/* ---- sample.c ---- */

/*
 * The share of an index's rows that thresholds of a distance let pass. Of the
 * parts of a partitioned table those planned later are sampled less, and have
 * the mean of their own share and that of the first.
 */
extern double threshold_share(PlannerInfo *root, const IndexOptInfo *index,
							  const OpExpr *distance, List *thresholds);

/*
 * The planner's number of rows, with this share in place of the one that it has
 * assumed.
 */
extern double threshold_rows(PlannerInfo *root, const RelOptInfo *rel, double rows,
							 List *thresholds, double share);

/* ---- range.c ---- */

/*
 * Add paths of an index for thresholds, without order. `ordered` is the
 * distance of the path in order, `priced` what was examined for it; or NULL.
 */
extern void add_range_paths(PlannerInfo *root, RelOptInfo *rel, IndexOptInfo *index,
							const OpExpr *ordered, const PricedIndex *priced);

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

/* Keep the tuple in the scan slot, if there is room. */
extern void node_keep(GpuannNode *node);

/* Whether a row is there for the snapshot and passes the filters. */
extern bool node_judge(GpuannNode *node, ScanRow *row);

/* Which share is expected to pass of answers that columns have let pass. */
extern double node_share_sent(const GpuannNode *node);

/* Have the query, and what the scan asks for, if that was not done. */
extern void node_prepare(GpuannNode *node);

/* Compile a LIMIT: a list of count and offset, each of which may be NULL. */
extern void node_begin_limit(NodeLimit *limit, List *expressions, PlanState *state);

/*
 * How many rows a LIMIT wants, with those that it skips. 0: there is none, or
 * it is too large to be one.
 */
extern uint64 node_read_limit(const NodeLimit *limit, ExprContext *context, uint64 *skipped);

/* ---- gather.c ---- */

/*
 * Gather the wanted rows by rounds of the graph. False: they are better found
 * exactly, by the scan that has begun.
 */
extern bool gather_rows(GpuannNode *node);

/*
 * The next row that passes, by distance: what the node's RowOrder takes rows
 * from.
 */
extern bool next_passing(void *source, ScanRow *row, double *following);

/* ---- distance.c ---- */

/*
 * The query of an expression that is a distance, in either order of its
 * arguments, but perhaps for that. NULL: it is none.
 */
extern Node *query_of_distance(Node *node, const OpExpr *distance);

/*
 * Compile the node's quals and target list anew, with the operator's value
 * taken from econtext->caseValue wherever they contain the distance; where a
 * column of the target list is only for order, and nothing above reads it, it
 * is NULL.
 */
extern void node_take_values(GpuannNode *node);

/* ---- explain.c ---- */

/* Append how the scan went, in one line, each figure after a space. */
extern void describe_scan(const GpuannNode *node, StringInfo line);

extern void gpuann_explain_custom(CustomScanState *css, List *ancestors, ExplainState *es);

#endif							/* GPUANN_PLAN_H */
