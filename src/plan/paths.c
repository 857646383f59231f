/*
 * paths.c
 *		The planner's side of the node: paths that replace ordered index paths,
 *		and the plans of those.
 */
#include "plan/plan.h"

#include "base/handler.h"
#include "scan/planned_paths.h"

#include "nodes/extensible.h"
#include "nodes/makefuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/appendinfo.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"

static set_rel_pathlist_hook_type prev_set_rel_pathlist = NULL;

/* Members of a path's custom_private. */
typedef enum PathPrivate
{
	PATH_INDEX,					/* oids: the index, its ordering operator */
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
			   bool ordered)
{
	CustomPath *path = makeNode(CustomPath);

	path->path = *figures;
	path->path.type = T_CustomPath;
	path->path.pathtype = T_CustomScan;
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	path->methods = &gpuann_path_methods;
	path->custom_private =
		list_make3(list_make2_oid(index->indexoid, ordered ? distance->opno : InvalidOid), distance,
				   limits);
	return &path->path;
}

/*
 * A path of the node in place of an ordered index path.
 */
static Path *
ordered_path(PlannerInfo *root, const IndexPath *plain)
{
	IndexOptInfo *index = plain->indexinfo;
	RelOptInfo *rel = index->rel;
	OpExpr	   *distance = linitial_node(OpExpr, plain->indexorderbys);
	Path		figures = plain->path;
	NodeDemand	demand = plan_demand(root, &figures, index);
	List	   *thresholds;

	thresholds = thresholds_of(root, rel, figures.param_info, distance);
	if (thresholds != NIL)
	{
		double		share = threshold_share(root, index, distance, thresholds);

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
	return make_node_path(&figures, index, distance, threshold_limits(thresholds), true);
}

/*
 * Replace the ordered index paths of a relation.
 */
static void
gpuann_set_rel_pathlist(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	List	   *ordered;
	ListCell   *cell;

	if (prev_set_rel_pathlist)
		prev_set_rel_pathlist(root, rel, rti, rte);
	if (!gpuann_plan_node || rte->rtekind != RTE_RELATION)
		return;
	ordered = planned_paths_take(root, rel);
	foreach(cell, ordered)
		rel->pathlist = list_delete_ptr(rel->pathlist, lfirst(cell));
	foreach(cell, ordered)
		add_path(rel, ordered_path(root, lfirst_node(IndexPath, cell)));
	if (!rte->inh && rte->tablesample == NULL && !IS_DUMMY_REL(rel))
		add_range_paths(root, rel);
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
	prev_set_rel_pathlist = set_rel_pathlist_hook;
	set_rel_pathlist_hook = gpuann_set_rel_pathlist;
	plan_bound_init();
}
