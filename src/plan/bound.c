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

#include "executor/executor.h"
#include "nodes/nodeFuncs.h"

static ExecutorStart_hook_type prev_executor_start = NULL;

/* What the walk knows of the nodes above. */
typedef struct Above
{
	PlanState  *parent;			/* NULL: the top of a plan */
	BoundKind	bound;
	LimitState *limit;			/* of the bound */
	bool		shares_columns; /* from the top of the plan, or of a subquery, down to here nodes
								 * have one target list, and none of them reads junk columns */
} Above;

static const Above nothing_above = {NULL, BOUND_NONE, NULL, true};

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
 * What stands above the inputs of a node.
 */
static Above
above_inputs(PlanState *state, const Above *above)
{
	Above		below = *above;

	below.parent = state;
	switch (nodeTag(state))
	{
		case T_LimitState:
			if (castNode(LimitState, state)->limitOption == LIMIT_OPTION_WITH_TIES)
			{
				below.bound = BOUND_NONE;
				below.shares_columns = false;
			}
			else if (castNode(LimitState, state)->limitCount != NULL)
			{
				below.bound = BOUND_HARD;
				below.limit = castNode(LimitState, state);
			}
			else
				below.bound = BOUND_NONE;
			break;
		case T_LockRowsState:
			soften(&below);
			break;
		case T_SubqueryScanState:
			if (state->plan->qual != NIL)
				below.bound = BOUND_NONE;
			below.shares_columns = true;
			break;
		case T_ResultState:
			if (state->plan->qual != NIL)
				below.bound = BOUND_NONE;
			below.shares_columns = false;
			break;
		case T_AppendState:
		case T_MergeAppendState:
		case T_GatherMergeState:
			below.shares_columns = false;
			break;
		case T_NestLoopState:
		case T_MergeJoinState:
		case T_HashJoinState:
		case T_ProjectSetState:
		case T_UniqueState:
		case T_GroupState:
		case T_WindowAggState:
		case T_IncrementalSortState:
			soften(&below);
			below.shares_columns = false;
			break;
		default:
			below.bound = BOUND_NONE;
			below.shares_columns = false;
	}
	return below;
}

/*
 * Walk a plan.
 */
static bool
tell_bound(PlanState *state, void *context)
{
	const Above *above = context;
	Above		below;

	if (above->parent != NULL && is_subplan(above->parent, state))
		above = &nothing_above;
	if (is_gpuann_node(state))
	{
		GpuannNode *node = (GpuannNode *) state;

		node->bound = above->bound;
		node->limit = above->limit;
		node_take_values(node, above->shares_columns);
	}
	below = above_inputs(state, above);
	return planstate_tree_walker(state, tell_bound, &below);
}

static void
gpuann_executor_start(QueryDesc *query, int eflags)
{
	int			before = gpuann_nodes_without_bound;

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
