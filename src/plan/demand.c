/*
 * demand.c
 *		What the planner knows of the bound above a node, and the price of its
 *		paths by that.
 *
 * bound.c finds the bound in the plan; this foresees it from the query.
 */
#include "plan/plan.h"

#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"

/*
 * Rows that a LIMIT of unknown value wants: few, probably. The planner takes a
 * tenth of all, which is many for nearest rows.
 */
#define WANTED_IF_UNKNOWN	GPUANN_DEFAULT_EF_SEARCH

/*
 * Whether a query has a LIMIT. LIMIT ALL is none.
 */
static bool
has_any_limit(const Query *query)
{
	return query->limitCount != NULL &&
		   !(IsA(query->limitCount, Const) && ((Const *) query->limitCount)->constisnull);
}

/*
 * Whether it is one that its nearest rows suffice for, or that some node below
 * it wants more rows for.
 */
static bool
has_limit(const Query *query)
{
	return has_any_limit(query) && query->limitOption == LIMIT_OPTION_COUNT;
}

/*
 * Whether a query level is the one that the planner makes of min() or max(): an
 * ordered scan with LIMIT 1. It is planned before any relation of the level
 * that has the aggregate; a subquery after these were set up, and one in an
 * expression before aggregates were looked for.
 */
static bool
is_of_min_or_max(const PlannerInfo *root)
{
	const PlannerInfo *parent = root->parent_root;

	return parent != NULL && parent->agginfos != NIL && parent->simple_rel_array == NULL;
}

/*
 * Whether the next LIMIT above a relation's scan will be one that the planner
 * made and nobody wrote: of min() or max(), or of DISTINCT (ON) where all rows
 * are one group (from PostgreSQL 16 on). The nearest row is then to be the true
 * one.
 */
bool
limit_is_planners(const PlannerInfo *root)
{
	for (; root != NULL; root = root->parent_root)
	{
		const Query *query = root->parse;

		if (is_of_min_or_max(root) ||
			(query->distinctClause != NIL && root->distinct_pathkeys == NIL))
			return true;
		if (has_any_limit(query))
			return false;
	}
	return false;
}

/*
 * Whether nothing stands between the LIMIT of a query and an ordered path that
 * wants more rows.
 */
static bool
is_right_below(const PlannerInfo *root, const Path *path)
{
	const Query *query = root->parse;

	return query->groupClause == NIL && query->havingQual == NULL && query->distinctClause == NIL &&
		   !query->hasWindowFuncs && !query->hasTargetSRFs && query->rowMarks == NIL &&
		   bms_membership(root->all_baserels) == BMS_SINGLETON &&
		   pathkeys_contained_in(root->query_pathkeys, path->pathkeys);
}

/*
 * What is wanted of an ordered path. A subquery may stand below the LIMIT of
 * the query around it, whose value it is told.
 */
NodeDemand
plan_demand(const PlannerInfo *root, const Path *path, const IndexOptInfo *index)
{
	NodeDemand	demand = {.kind = DEMAND_ALL, .within = 1};
	const Query *query = root->parse;
	bool		known = root->tuple_fraction >= 1;

	demand.passing = Min(path->rows / Max(index->tuples, 1), 1);
	if (query->hasAggs || query->groupingSets != NIL || limit_is_planners(root))
		return demand;
	if (has_limit(query) && is_right_below(root, path))
	{
		demand.kind = DEMAND_BOUND;
		demand.wanted = root->limit_tuples > 0 ? root->limit_tuples : WANTED_IF_UNKNOWN;
	}
	else if (has_limit(query) || (query->limitCount == NULL && root->parent_root != NULL && known))
	{
		demand.kind = DEMAND_STREAM;
		demand.wanted = known ? root->tuple_fraction : 0;
	}
	return demand;
}

/*
 * Have a path only where there is no other, as enable_indexscan = off says.
 */
void
disable_path(Path *path)
{
#if PG_VERSION_NUM >= 180000
	path->disabled_nodes++;
#else
	path->startup_cost += disable_cost;
	path->total_cost += disable_cost;
#endif
}

/*
 * Price a path of the node.
 */
void
plan_price(PlannerInfo *root, Path *path, const IndexOptInfo *index, const NodeDemand *demand)
{
	gpuann_price(root, index, demand, &path->startup_cost, &path->total_cost);
	path->startup_cost += path->pathtarget->cost.startup;
	path->total_cost +=
		path->pathtarget->cost.startup + path->pathtarget->cost.per_tuple * path->rows;
	if (!enable_indexscan)
		disable_path(path);
}
