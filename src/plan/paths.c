/*
 * paths.c
 *		The planner's side of the node: its paths of a relation, and the plans
 *		of all.
 *
 * A path in a relation's list may end up below anything: a join, an aggregate,
 * a Parallel Append. So those that are put there are exact. Paths that give no
 * more rows than a LIMIT wants are made later (limit.c), right below it, of
 * what is remembered here of each relation.
 *
 * Other extensions' hooks may free a relation's paths, make them anew, or read
 * the relation by paths of their own. So no path of the list is remembered:
 * PostgreSQL is kept from making paths of our indexes, and the node's are made
 * from the relation's indexes, after all other hooks, whichever were loaded
 * first.
 */
#include "plan/plan.h"

#include "base/handler.h"

#include "catalog/pg_type.h"
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
#include "utils/float.h"

static get_relation_info_hook_type prev_get_relation_info = NULL;
static set_rel_pathlist_hook_type prev_set_rel_pathlist = NULL;

/* An index that has a query's order, as its relation's paths were made. */
typedef struct OrderedRel
{
	RelOptInfo *rel;
	const IndexOptInfo *index;
	const PricedIndex *priced;
	const PathKey *key;
	OpExpr	   *distance;
	List	   *limits;			/* of thresholds of the distance */
	NodeDemand	demand;			/* but for its kind, and the rows wanted */
	double		rows;
	Cost		most;			/* what comparing everything within thresholds costs */
	bool		enabled;		/* by enable_indexscan, as it was for this relation */
} OrderedRel;

/* Members of a path's custom_private. */
typedef enum PathPrivate
{
	PATH_INDEX,					/* oids: the index, a NodeKind, as_found */
	PATH_DISTANCE,				/* OpExpr: indexed expression, operator, query */
	PATH_BOUND,					/* count and offset of a LIMIT */
	PATH_LIMITS					/* float8 expressions: the operator's value is at most the least */
} PathPrivate;

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
 * Make a path of the node.
 */
Path *
make_node_path(const Path *figures, const IndexOptInfo *index, OpExpr *distance, List *limits,
			   const PathBound *bound)
{
	CustomPath *path = makeNode(CustomPath);

	path->path = *figures;
	path->path.type = T_CustomPath;
	path->path.pathtype = T_CustomScan;
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	path->methods = &gpuann_path_methods;
	path->custom_private =
		list_make4(list_make3_oid(index->indexoid, bound->kind, bound->as_found), distance,
				   list_make2(bound->count, bound->offset), limits);
	return &path->path;
}

static const PathBound exact_bound = {.kind = NODE_EXACT};
static Planning *plannings = NULL;	/* one for each memory context */

/*
 * Forget a planning whose memory goes.
 */
static void
forget_planning(void *arg)
{
	Planning  **link = &plannings;

	while (*link != arg)
		link = &(*link)->next;
	*link = (*link)->next;
}

Planning *
planning_of(const PlannerInfo *root)
{
	Planning   *planning = plannings;

	while (planning != NULL && planning->memory != root->planner_cxt)
		planning = planning->next;
	if (planning == NULL)
	{
		planning = MemoryContextAllocZero(root->planner_cxt, sizeof(Planning));
		planning->memory = root->planner_cxt;
		planning->next = plannings;
		planning->forget = (MemoryContextCallback) {.func = forget_planning, .arg = planning};
		plannings = planning;
		MemoryContextRegisterResetCallback(root->planner_cxt, &planning->forget);
	}
	if (planning->glob != root->glob)
		planning->ordered = planning->streams = planning->shares = planning->disabled = NIL;
	planning->glob = root->glob;
	return planning;
}

/*
 * The cost estimate of an index that only the node reads: core asks for it
 * whenever it makes a relation's index paths, and makes none of it. A hint sets
 * enable_indexscan for one relation while its paths are made anew, and has
 * reset it when ours are.
 */
static void
estimate_nothing(PlannerInfo *root, IndexPath *path, double loop_count, Cost *startup, Cost *total,
				 Selectivity *selectivity, double *correlation, double *pages)
{
	Planning   *planning = planning_of(root);

	planning->disabled = list_delete_ptr(planning->disabled, path->indexinfo);
	if (!enable_indexscan)
		planning->disabled = lappend(planning->disabled, path->indexinfo);
	*startup = *total = *selectivity = *correlation = *pages = 0;
}

bool
index_is_enabled(const PlannerInfo *root, const IndexOptInfo *index)
{
	return !list_member_ptr(planning_of(root)->disabled, index);
}

/*
 * Have only the node read an index: PostgreSQL estimates the cost of one with a
 * useful predicate, even of one without any, but adds no path of an index that
 * cannot return tuples (get_index_paths).
 */
static void
take_index(IndexOptInfo *index)
{
	index->amcanorderbyop = false;
	index->amhasgettuple = false;
	if (index->indpred == NIL)
		index->predOK = true;
	index->amcostestimate = estimate_nothing;
}

/*
 * Whether a setting asks for an answer that ends early or is not exact, where a
 * LIMIT would be answered exactly at less cost.
 */
static bool
less_is_wanted(void)
{
	return !gpuann_exact && (gpuann_iterative_scan != GPUANN_ITERATIVE_COMPLETE ||
							 gpuann_max_scan_tuples != GPUANN_UNSET);
}

/*
 * Price a path in the order of a distance, without its target.
 */
static void
price_scan(PlannerInfo *root, const OrderedRel *ordered, const PathBound *bound, Cost *startup,
		   Cost *total)
{
	NodeDemand	demand = ordered->demand;

	demand.wanted = bound->wanted;
	demand.kind = bound->kind == NODE_EXACT ? DEMAND_ALL
				  : bound->kind == NODE_STREAM ? DEMAND_STREAM
											   : DEMAND_BOUND;
	gpuann_price(root, ordered->priced, &demand, startup, total);
	*total = Min(*total, ordered->most);
	/* No more than the exact path; add_path() sees no smaller difference. */
	if (bound->kind != NODE_EXACT && (gpuann_exact || less_is_wanted()))
	{
		const RelOptInfo *rel = ordered->rel;
		Cost		begin;
		Cost		end;

		price_scan(root, ordered, &exact_bound, &begin, &end);
		if (rel->top_parent_relids != NULL)
			rel = find_base_rel(root, bms_singleton_member(rel->top_parent_relids));
		*total = Min(*total,
					 0.98 * (begin + (end - begin) * Min(bound->wanted / Max(rel->rows, 1), 1)));
	}
	*startup = Min(*startup, *total);
}

/*
 * Make a path in the order of a distance.
 */
static Path *
ordered_path(PlannerInfo *root, const OrderedRel *ordered, ParamPathInfo *param_info,
			 const PathBound *bound, PathTarget *target)
{
	RelOptInfo *rel = ordered->rel;
	double		rows = ordered->rows;
	Path		figures = {
		.type = T_Path,
		.parent = rel,
		.pathtarget = target,
		.param_info = param_info,
		/* Workers do not get parameters of an outer query. */
		.parallel_safe = rel->consider_parallel &&
						 is_parallel_safe(root, (Node *) ordered->distance) &&
						 is_parallel_safe(root, bound->count) &&
						 is_parallel_safe(root, bound->offset),
		.rows = rows,
		.pathkeys = bound->as_found ? NIL : list_make1(unconstify(PathKey *, ordered->key)),
	};

	price_scan(root, ordered, bound, &figures.startup_cost, &figures.total_cost);
	/* Rows of a LIMIT are all paid for before the first one. */
	if (bound->kind == NODE_LIMIT || bound->kind == NODE_TIES)
	{
		rows = Min(bound->wanted, rows);
		figures.startup_cost += target->cost.per_tuple * rows;
	}
	figures.startup_cost += target->cost.startup;
	figures.total_cost += target->cost.startup + target->cost.per_tuple * rows;
	if (!ordered->enabled)
		disable_path(&figures);
	return make_node_path(&figures, ordered->index, ordered->distance, ordered->limits, bound);
}

Path *
make_bounded_path(PlannerInfo *root, RelOptInfo *rel, const PathKey *key, const PathBound *bound,
				  PathTarget *target)
{
	Path	   *best = NULL;
	ListCell   *cell;

	if (!bms_is_empty(rel->lateral_relids))
		return NULL;
	foreach(cell, planning_of(root)->ordered)
	{
		const OrderedRel *ordered = lfirst(cell);
		Path	   *path;

		if (ordered->rel != rel || ordered->key != key)
			continue;
		/* What a stream misses is lost; and there is the exact path. */
		if (bound->kind == NODE_STREAM && !less_is_wanted() &&
			gpuann_exact_is_near(ordered->priced))
			continue;
		path = ordered_path(root, ordered, NULL, bound, target);
		if (best == NULL || compare_path_costs(path, best, TOTAL_COST) < 0)
			best = path;
	}
	return best;
}

/*
 * The share of an index's rows that some clauses on its columns let pass; more
 * than 0.
 */
static double
columns_share(PlannerInfo *root, const RelOptInfo *rel, List *clauses)
{
	if (clauses == NIL)
		return 1;
	return Max(clauselist_selectivity(root, clauses, (int) rel->relid, JOIN_INNER, NULL),
			   1.0 / ENGINE_MAX_SLOTS);
}

/*
 * Add an exact path of the node in the order of a distance, and remember what
 * others can be made of. Returns what was examined of the index.
 */
static const PricedIndex *
add_ordered_path(PlannerInfo *root, RelOptInfo *rel, const IndexOptInfo *index, OpExpr *distance,
				 const PathKey *key)
{
	Planning   *planning = planning_of(root);
	ParamPathInfo *param_info = get_baserel_parampathinfo(root, rel, rel->lateral_relids);
	List	   *thresholds = thresholds_of(root, rel, param_info, distance);
	List	   *filters;
	OrderedRel	ordered = {
		.rel = rel,
		.index = index,
		.priced = gpuann_examine(index),
		.key = key,
		.distance = distance,
		.limits = threshold_limits(thresholds),
		.demand.within = 1,
		.demand.columns = 1,
		.rows = param_info != NULL ? param_info->ppi_rows : rel->rows,
		.most = get_float8_infinity(),
		.enabled = index_is_enabled(root, index),
	};

	if (thresholds != NIL)
	{
		double		share = threshold_share(root, index, distance, thresholds);

		ordered.rows = threshold_rows(root, rel, ordered.rows, thresholds, share);
		ordered.demand.within = Min(share, 1);
		/*
		 * Beyond a threshold it does not go; and a scan without order is never
		 * to be preferred, for it cannot end earlier.
		 */
		ordered.most = gpuann_range_price(root, ordered.priced,
										  ordered.demand.within * index->tuples, 1);
	}
	filters = param_info != NULL ? list_concat_copy(rel->baserestrictinfo, param_info->ppi_clauses)
								 : rel->baserestrictinfo;
	filters = index_filter_clauses(root, rel, index, filters);
	ordered.demand.columns = columns_share(root, rel, filters);
	ordered.demand.passing =
		Min(ordered.rows / Max(ordered.demand.within * index->tuples, 1), 1);
	add_path(rel, ordered_path(root, &ordered, param_info, &exact_bound, rel->reltarget));
	planning->ordered = lappend(planning->ordered,
								memcpy(palloc(sizeof(OrderedRel)), &ordered, sizeof(OrderedRel)));
	return ordered.priced;
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
	if (rte->rtekind != RTE_RELATION || rte->inh || rte->tablesample != NULL ||
		!is_read_as_usual(rel))
		return;
	foreach(cell, rel->indexlist)
	{
		IndexOptInfo *index = lfirst(cell);
		const PricedIndex *priced = NULL;
		OpExpr	   *distance;
		PathKey    *key;

		if (index->amcostestimate != estimate_nothing || !index->predOK)
			continue;
		key = ordering_key(root, index, &distance);
		if (key != NULL)
			priced = add_ordered_path(root, rel, index, distance, key);
		add_range_paths(root, rel, index, key != NULL ? distance : NULL, priced);
	}
}

/*
 * Take our indexes from PostgreSQL, but for hypothetical ones.
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

		if (index->amcostestimate == gpuanncostestimate && !index->hypothetical)
			take_index(index);
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
 * Those of a scan's clauses that its index evaluates on its columns, and the
 * share that they let pass, as a plan carries them.
 */
static List *
columns_filter(PlannerInfo *root, const RelOptInfo *rel, Oid index, List *clauses)
{
	List	   *found = NIL;
	ListCell   *cell;

	foreach(cell, rel->indexlist)
	{
		const IndexOptInfo *info = lfirst(cell);

		if (info->indexoid == index)
			found = index_filter_clauses(root, rel, info, clauses);
	}
	return list_make2(extract_actual_clauses(found, false),
					  makeConst(FLOAT8OID, -1, InvalidOid, sizeof(float8),
								Float8GetDatum(columns_share(root, rel, found)), false,
								FLOAT8PASSBYVAL));
}

/*
 * Whether no plan node reads resjunk columns of the scan's target list. One
 * that is marked resjunk there was in the query's target list: nodes in between
 * have the same one.
 */
static bool
is_junk_unused(const PlannerInfo *root, const RelOptInfo *rel, NodeKind kind)
{
	return kind != NODE_RANGE && rel->reloptkind == RELOPT_BASEREL &&
		   bms_membership(root->all_baserels) == BMS_SINGLETON && query_is_plain(root->parse) &&
		   root->parse->limitOption == LIMIT_OPTION_COUNT && list_length(root->sort_pathkeys) == 1;
}

/*
 * The plan of a path.
 */
static Plan *
plan_path(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *targets, List *clauses,
		  List *custom_plans)
{
	CustomScan *plan = makeNode(CustomScan);
	List	   *oids = list_nth(path->custom_private, PATH_INDEX);

	clauses = clauses_to_test(rel, linitial_oid(oids), clauses);
	plan->scan.scanrelid = rel->relid;
	plan->scan.plan.targetlist = targets;
	plan->scan.plan.qual = extract_actual_clauses(clauses, false);
	plan->flags = path->flags;
	plan->custom_private =
		list_concat_copy(oids, list_make3_oid(is_junk_unused(root, rel, lsecond_oid(oids)),
											  gpuann_few_are_wanted(root),
											  root->qual_security_level > 0));
	plan->custom_exprs =
		list_concat(list_copy_tail(path->custom_private, PATH_DISTANCE),
					columns_filter(root, rel, linitial_oid(oids), clauses));
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
	plan_limit_init();
	plan_stream_init();
	plan_group_init();
}
