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
 * Whether a LIMIT of known value stands right above an ordered path.
 */
static bool
is_bound(const PlannerInfo *root, const Path *path)
{
	const Query *query = root->parse;

	return root->limit_tuples > 0 && query->limitOption == LIMIT_OPTION_COUNT &&
		   query->rowMarks == NIL && bms_membership(root->all_baserels) == BMS_SINGLETON &&
		   pathkeys_contained_in(root->query_pathkeys, path->pathkeys);
}

/*
 * Whether a LIMIT stands anywhere above: in this query, or, where that has
 * none, in the one around it.
 */
static bool
is_limited(const PlannerInfo *root)
{
	const Query *query = root->parse;

	if (query->hasAggs || query->groupingSets != NIL)
		return false;
	if (query->limitCount == NULL)
		return root->parent_root != NULL && root->tuple_fraction >= 1;
	return query->limitOption == LIMIT_OPTION_COUNT &&
		   !(IsA(query->limitCount, Const) && ((Const *) query->limitCount)->constisnull);
}

/*
 * What is wanted of an ordered path.
 */
NodeDemand
plan_demand(const PlannerInfo *root, const Path *path, const IndexOptInfo *index)
{
	NodeDemand	demand = {.kind = DEMAND_ALL, .within = 1};

	demand.passing = Min(path->rows / Max(index->tuples, 1), 1);
	if (is_bound(root, path))
	{
		demand.kind = DEMAND_BOUND;
		demand.wanted = root->limit_tuples;
	}
	else if (is_limited(root))
		demand.kind = DEMAND_STREAM;
	return demand;
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
#if PG_VERSION_NUM < 180000
	/* Later versions count disabled nodes: those of the index path replaced. */
	if (!enable_indexscan)
	{
		path->startup_cost += disable_cost;
		path->total_cost += disable_cost;
	}
#endif
}
