/*
 * paths.c
 *		The planner's side of the node: its paths in the order of a distance,
 *		and the plans of all.
 *
 * Other extensions' hooks may free a relation's paths, make them anew, or read
 * the relation by paths of their own. So nothing is remembered of paths from
 * one hook to another: indexes are hidden from PostgreSQL's own search for
 * ordered paths, and the node's are made from the relation's indexes, after all
 * other hooks, whichever were loaded first.
 */
#include "plan/plan.h"

#include "base/handler.h"

#include "nodes/extensible.h"
#include "nodes/makefuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/appendinfo.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/plancat.h"
#include "optimizer/restrictinfo.h"

static get_relation_info_hook_type prev_get_relation_info = NULL;
static set_rel_pathlist_hook_type prev_set_rel_pathlist = NULL;

/* Members of a path's custom_private. */
typedef enum PathPrivate
{
	PATH_INDEX,					/* oids: the index, and a NodeOrder */
	PATH_DISTANCE,				/* OpExpr: indexed expression, operator, query */
	PATH_LIMITS					/* float8 expressions: the operator's value is at most the least */
} PathPrivate;

bool
is_our_index(const IndexOptInfo *index)
{
	return index->amcostestimate == gpuanncostestimate && !index->hypothetical;
}

/*
 * Make a path of the node.
 */
Path *
make_node_path(const Path *figures, const IndexOptInfo *index, OpExpr *distance, List *limits,
			   NodeOrder order)
{
	CustomPath *path = makeNode(CustomPath);

	path->path = *figures;
	path->path.type = T_CustomPath;
	path->path.pathtype = T_CustomScan;
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	path->methods = &gpuann_path_methods;
	path->custom_private = list_make3(list_make2_oid(index->indexoid, order), distance, limits);
	return &path->path;
}

/*
 * Add a path of the node in the order of a distance. Tells what share of the
 * index is within thresholds of it, if there are any.
 */
static void
add_ordered_path(PlannerInfo *root, RelOptInfo *rel, const IndexOptInfo *index, OpExpr *distance,
				 PathKey *key, IndexShare *known)
{
	ParamPathInfo *param_info = get_baserel_parampathinfo(root, rel, rel->lateral_relids);
	Path		figures = {
		.type = T_Path,
		.parent = rel,
		.pathtarget = rel->reltarget,
		.param_info = param_info,
		/* Workers do not get parameters of an outer query. */
		.parallel_safe = rel->consider_parallel && is_parallel_safe(root, (Node *) distance),
		.rows = param_info != NULL ? param_info->ppi_rows : rel->rows,
		.pathkeys = list_make1(key),
	};
	NodeDemand	demand = plan_demand(root, &figures, index);
	List	   *thresholds = thresholds_of(root, rel, param_info, distance);

	if (thresholds != NIL)
	{
		double		share = threshold_share(root, index, distance, thresholds);

		*known = (IndexShare) {.distance = distance, .share = share};
		figures.rows = threshold_rows(root, rel, figures.rows, thresholds, share);
		demand.within = Min(share, 1);
		demand.passing = Min(figures.rows / Max(share * index->tuples, 1), 1);
	}
	plan_price(root, &figures, index, &demand);
	/*
	 * Beyond a threshold it does not go; and a scan without order is never to
	 * be preferred, for it cannot end earlier.
	 */
	if (thresholds != NIL && enable_indexscan)
	{
		figures.total_cost = Min(figures.total_cost,
								 range_price(root, index, demand.within * index->tuples, 1));
		figures.startup_cost = Min(figures.startup_cost, figures.total_cost);
	}
	/*
	 * A child's path that is priced for a LIMIT must not be drained, by a
	 * Parallel Append that knows of no order.
	 */
	if (demand.kind == DEMAND_BOUND && rel->top_parent_relids != NULL)
		figures.parallel_safe = false;
	add_path(rel, make_node_path(&figures, index, distance, threshold_limits(thresholds),
								 limit_is_planners(root) ? NODE_ORDERED_WHOLE : NODE_ORDERED));
}

/*
 * Whether PostgreSQL's own scans read a relation. Where an extension reads it
 * by paths of its own alone, some of its rows may be elsewhere, and not in our
 * index.
 */
static bool
is_read_as_usual(const RelOptInfo *rel)
{
	ListCell   *cell;

	foreach(cell, rel->pathlist)
	{
		switch (((const Path *) lfirst(cell))->pathtype)
		{
			case T_SeqScan:
			case T_IndexScan:
			case T_IndexOnlyScan:
			case T_BitmapHeapScan:
			case T_TidScan:
			case T_TidRangeScan:
				return true;
			default:
				break;
		}
	}
	return false;
}

/*
 * Add the node's paths to a relation, after all other hooks.
 */
static void
gpuann_set_rel_pathlist(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	ListCell   *cell;

	if (prev_set_rel_pathlist)
		prev_set_rel_pathlist(root, rel, rti, rte);
	if (!gpuann_plan_node || rte->rtekind != RTE_RELATION || rte->inh ||
		rte->tablesample != NULL || !is_read_as_usual(rel))
		return;
	foreach(cell, rel->indexlist)
	{
		IndexOptInfo *index = lfirst(cell);
		IndexShare	known = {0};
		OpExpr	   *distance;
		PathKey    *key;

		if (!is_our_index(index) || (index->indpred != NIL && !index->predOK))
			continue;
		key = ordering_key(root, index, &distance);
		if (key != NULL)
			add_ordered_path(root, rel, index, distance, key, &known);
		add_range_paths(root, rel, index, &known);
	}
}

/*
 * Hide indexes that the node reads from PostgreSQL's own search for ordered
 * paths.
 */
static void
gpuann_get_relation_info(PlannerInfo *root, Oid relation, bool inhparent, RelOptInfo *rel)
{
	static bool on_top = false;
	ListCell   *cell;

	if (prev_get_relation_info)
		prev_get_relation_info(root, relation, inhparent, rel);
	/*
	 * The hook called first is the one installed last; it calls the others
	 * before it does its work. So ours is installed when all libraries are
	 * loaded.
	 */
	if (!on_top)
	{
		prev_set_rel_pathlist = set_rel_pathlist_hook;
		set_rel_pathlist_hook = gpuann_set_rel_pathlist;
		on_top = true;
	}
	if (!gpuann_plan_node)
		return;
	foreach(cell, rel->indexlist)
	{
		IndexOptInfo *index = lfirst(cell);

		if (is_our_index(index))
			index->amcanorderbyop = false;
	}
}

/*
 * The clauses that a scan has to test: those that the index's predicate implies
 * need no test, but where the row may change under a lock.
 */
static List *
clauses_to_test(const RelOptInfo *rel, Oid index, List *clauses)
{
	List	   *tested = NIL;
	ListCell   *cell;
	const IndexOptInfo *partial = NULL;

	foreach(cell, rel->indexlist)
	{
		const IndexOptInfo *info = lfirst(cell);

		if (info->indexoid == index && info->indpred != NIL)
			partial = info;
	}
	if (partial == NULL)
		return clauses;
	foreach(cell, clauses)
	{
		if (!list_member_ptr(rel->baserestrictinfo, lfirst(cell)) ||
			list_member_ptr(partial->indrestrictinfo, lfirst(cell)))
			tested = lappend(tested, lfirst(cell));
	}
	return tested;
}

/*
 * The plan of a path.
 */
static Plan *
plan_path(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *targets, List *clauses,
		  List *custom_plans)
{
	CustomScan *plan = makeNode(CustomScan);

	plan->scan.scanrelid = rel->relid;
	plan->scan.plan.targetlist = targets;
	plan->scan.plan.qual = extract_actual_clauses(
		clauses_to_test(rel, linitial_oid(list_nth(path->custom_private, PATH_INDEX)), clauses),
		false);
	plan->flags = path->flags;
	plan->custom_private = list_nth(path->custom_private, PATH_INDEX);
	plan->custom_exprs = lcons(list_nth(path->custom_private, PATH_DISTANCE),
							   list_copy(list_nth(path->custom_private, PATH_LIMITS)));
	plan->methods = &gpuann_plan_methods;
	return &plan->scan.plan;
}

/*
 * The expressions of a path, for a partition.
 */
static List *
reparameterize(PlannerInfo *root, List *private, RelOptInfo *child)
{
	List	   *expressions = list_copy_tail(private, PATH_DISTANCE);

#if PG_VERSION_NUM >= 160000
	expressions = (List *) adjust_appendrel_attrs_multilevel(root, (Node *) expressions, child,
															 child->top_parent);
#else
	expressions = (List *) adjust_appendrel_attrs_multilevel(
		root, (Node *) expressions, child->relids, child->top_parent_relids);
#endif
	return lcons(list_nth(private, PATH_INDEX), expressions);
}

const CustomPathMethods gpuann_path_methods = {
	.CustomName = GPUANN_NODE_NAME,
	.PlanCustomPath = plan_path,
	.ReparameterizeCustomPathByChild = reparameterize,
};

const CustomScanMethods gpuann_plan_methods = {
	.CustomName = GPUANN_NODE_NAME,
	.CreateCustomScanState = gpuann_create_node,
};

/*
 * Called by _PG_init.
 */
void
gpuann_plan_init(void)
{
	RegisterCustomScanMethods(&gpuann_plan_methods);
	prev_get_relation_info = get_relation_info_hook;
	get_relation_info_hook = gpuann_get_relation_info;
	plan_bound_init();
}
