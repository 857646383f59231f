/*
 * bound.c
 *		Tells each node what stands above it: a LIMIT with nothing between that
 *		wants more rows, a LIMIT farther up, or nothing.
 *
 * PostgreSQL pushes a LIMIT down to sorts only; so when an executor has been
 * started its plan tree is walked once, if one of our nodes is in it. The
 * number itself is read when the first row is asked for, because it may be a
 * parameter's.
 */
#include "plan/plan.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgroids.h"

static ExecutorStart_hook_type prev_executor_start = NULL;

/* What the walk knows of the nodes above. */
typedef struct Above
{
	PlanState  *parent;			/* whose inputs are next; NULL: the top of a plan */
	BoundKind	bound;
	LimitState *limit;			/* of the bound */
	MergeAppendState *merge;	/* with nothing between that might not want a first row */
	bool		shares_columns; /* from the top of the plan, or of a subquery, down to here nodes
								 * have one target list, and none of them reads junk columns */
} Above;

static const Above nothing_above = {NULL, BOUND_NONE, NULL, NULL, true};

/*
 * Whether a plan is one of the subplans of a node, not an input.
 */
static bool
is_subplan(const PlanState *parent, const PlanState *state)
{
	ListCell   *cell;

	foreach(cell, parent->initPlan)
		if (((SubPlanState *) lfirst(cell))->planstate == state)
			return true;
	foreach(cell, parent->subPlan)
		if (((SubPlanState *) lfirst(cell))->planstate == state)
			return true;
	return false;
}

/*
 * What stands above the inputs of a node that wants some rows more than are
 * wanted of it.
 */
static void
soften(Above *above)
{
	if (above->bound == BOUND_HARD)
		above->bound = BOUND_SOFT;
}

/*
 * Whether an input is the outer side of a join, and a row that it misses is
 * only a row less. On an inner side it would be a match less, and so a false
 * null-extended row.
 */
static bool
is_outer_side_streamed(PlanState *join, const PlanState *input)
{
	JoinType	type = ((JoinState *) join)->jointype;

	return input == outerPlanState(join) && (type == JOIN_INNER || type == JOIN_LEFT ||
											 type == JOIN_SEMI || type == JOIN_ANTI);
}

/*
 * Whether window functions number rows from the first on. Others may need every
 * row, if only to count them.
 */
static bool
numbers_rows_only(const WindowAggState *window)
{
	ListCell   *cell;

	foreach(cell, window->funcs)
	{
		Oid			function = ((WindowFuncExprState *) lfirst(cell))->wfunc->winfnoid;

		if (function != F_ROW_NUMBER && function != F_RANK_ && function != F_DENSE_RANK_)
			return false;
	}
	return true;
}

/*
 * The MergeAppend that wants a first row of an input of a node, or NULL.
 */
static MergeAppendState *
merge_above_input(PlanState *state, const Above *above)
{
	if (IsA(state, MergeAppendState))
		return castNode(MergeAppendState, state);
	return IsA(state, SubqueryScanState) || IsA(state, ResultState) ? above->merge : NULL;
}

/*
 * Whether the input of a node has its target list, up to the top of a plan or
 * subquery, and nothing there reads junk columns.
 */
static bool
shares_columns_below(PlanState *state, const Above *above)
{
	if (IsA(state, SubqueryScanState))
		return true;
	if (IsA(state, LimitState) &&
		castNode(LimitState, state)->limitOption == LIMIT_OPTION_WITH_TIES)
		return false;
	return (IsA(state, LimitState) || IsA(state, LockRowsState)) && above->shares_columns;
}

/*
 * What stands above an input of a node.
 */
static Above
above_input(PlanState *state, const PlanState *input, const Above *above)
{
	Above		below = *above;

	below.merge = merge_above_input(state, above);
	below.shares_columns = shares_columns_below(state, above);
	switch (nodeTag(state))
	{
		case T_LimitState:
			below.bound = BOUND_NONE;
			if (castNode(LimitState, state)->limitOption == LIMIT_OPTION_COUNT &&
				castNode(LimitState, state)->limitCount != NULL)
			{
				below.bound = BOUND_HARD;
				below.limit = castNode(LimitState, state);
			}
			break;
		case T_SubqueryScanState:
		case T_ResultState:
			if (state->plan->qual != NIL)
				below.bound = BOUND_NONE;
			break;
		case T_AppendState:
		case T_MergeAppendState:
		case T_GatherMergeState:
			break;
		case T_NestLoopState:
		case T_MergeJoinState:
		case T_HashJoinState:
			if (is_outer_side_streamed(state, input))
				soften(&below);
			else
				below.bound = BOUND_NONE;
			break;
		case T_WindowAggState:
			if (numbers_rows_only(castNode(WindowAggState, state)))
				soften(&below);
			else
				below.bound = BOUND_NONE;
			break;
		case T_LockRowsState:
		case T_ProjectSetState:
		case T_UniqueState:
		case T_GroupState:
		case T_IncrementalSortState:
			soften(&below);
			break;
		default:
			below.bound = BOUND_NONE;
	}
	return below;
}

/*
 * Walk a plan. What stands above a node is found out when the walk comes to it,
 * because it may differ from input to input.
 */
static bool
tell_bound(PlanState *state, void *context)
{
	const Above *parent = context;
	Above		above = nothing_above;

	if (parent->parent == NULL)
		/* In a worker the leader's Gather stands above. */
		above.shares_columns = !IsParallelWorker();
	else if (!is_subplan(parent->parent, state))
		above = above_input(parent->parent, state, parent);
	if (is_gpuann_node(state))
	{
		GpuannNode *node = (GpuannNode *) state;

		node->bound = node->unbounded ? BOUND_NONE : above.bound;
		node->limit = above.limit;
		node->merge = above.merge;
		if (!node->takes_values)
			node_take_values(node, above.shares_columns);
		node->takes_values = true;
	}
	above.parent = state;
	return planstate_tree_walker(state, tell_bound, &above);
}

static void
gpuann_executor_start(QueryDesc *query, int eflags)
{
	uint64		before = gpuann_nodes_without_bound;

	if (prev_executor_start)
		prev_executor_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
	if (gpuann_nodes_without_bound != before)
	{
		MemoryContext old = MemoryContextSwitchTo(query->estate->es_query_cxt);

		(void) tell_bound(query->planstate, (void *) &nothing_above);
		MemoryContextSwitchTo(old);
	}
}

void
plan_bound_init(void)
{
	prev_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = gpuann_executor_start;
}
