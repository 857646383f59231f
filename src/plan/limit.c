/*
 * limit.c
 *		Queries for their nearest rows: paths that give as many as the LIMIT
 *		right above them wants, or go on as long as it asks (stream.c).
 *
 * Such a path is not exact, so nothing else may stand on it. It is made when
 * all paths of a query have been made, together with PostgreSQL's own Limit,
 * and never enters the list of a relation: the query has it as a whole, or
 * something else. The Limit stays what it is; the node below computes the same
 * expressions (node.c).
 */
#include "plan/plan.h"

#include "optimizer/appendinfo.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/paramassign.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/tlist.h"

/*
 * Rows that a LIMIT of unknown value wants: few, probably. The planner takes a
 * tenth of all, which is many for nearest rows.
 */
#define WANTED_IF_UNKNOWN	GPUANN_DEFAULT_EF_SEARCH

static create_upper_paths_hook_type prev_create_upper_paths = NULL;

bool
query_is_plain(const Query *query)
{
	return query->commandType == CMD_SELECT && query->setOperations == NULL &&
		   query->groupClause == NIL && query->groupingSets == NIL && !query->hasAggs &&
		   query->havingQual == NULL && query->distinctClause == NIL && !query->hasWindowFuncs &&
		   !query->hasTargetSRFs;
}

static bool
is_null_constant(const Node *node)
{
	return node == NULL || (IsA(node, Const) && ((const Const *) node)->constisnull);
}

/*
 * Whether an expression of a LIMIT has the same value when it is computed
 * again.
 */
static bool
is_repeatable(Node *node)
{
	return !contain_volatile_functions(node) && !contain_subplans(node);
}

bool
query_is_limited(const PlannerInfo *root)
{
	const Query *query = root->parse;

	return gpuann_plan_node && planning_of(root)->ordered != NIL && query_is_plain(query) &&
		   !is_null_constant(query->limitCount) && is_repeatable(query->limitCount) &&
		   is_repeatable(query->limitOffset);
}

/*
 * Whether an expression of a LIMIT can be computed inside a subquery.
 */
static bool
is_known_below(const Node *node)
{
	return node == NULL || IsA(node, Const) ||
		   (IsA(node, Param) && ((const Param *) node)->paramkind == PARAM_EXTERN);
}

static Path *make_query_path(PlannerInfo *root, RelOptInfo *upper, PathBound bound);

/*
 * The rows of a subquery that has an order and no LIMIT of its own. Its order
 * is that of the key; where there is none the outer query has no order, and
 * wants the subquery's first rows.
 */
static Path *
make_subquery_path(PlannerInfo *root, RelOptInfo *rel, const PathKey *key, const PathBound *bound)
{
	PlannerInfo *sub = rel->subroot;
	const Query *query = sub->parse;
	Path	   *path;
	List	   *keys;

	if (rel->baserestrictinfo != NIL || !bms_is_empty(rel->lateral_relids) ||
		!query_is_plain(query) || limit_needed(unconstify(Query *, query)) ||
		query->rowMarks != NIL || sub->sort_pathkeys == NIL || !is_known_below(bound->count) ||
		!is_known_below(bound->offset))
		return NULL;
	path = make_query_path(sub, fetch_upper_rel(sub, UPPERREL_FINAL, NULL), *bound);
	if (path == NULL)
		return NULL;
	keys = convert_subquery_pathkeys(root, rel, path->pathkeys,
									 make_tlist_from_pathtarget(path->pathtarget));
	if (key != NULL && !bound->as_found && (keys == NIL || linitial(keys) != key))
		return NULL;
	/* Parameters that it sets itself workers do not get. */
	path->parallel_safe = path->parallel_safe && sub->init_plans == NIL;
#if PG_VERSION_NUM >= 160000
	return (Path *) create_subqueryscan_path(root, rel, path, false, keys, NULL);
#else
	return (Path *) create_subqueryscan_path(root, rel, path, keys, NULL);
#endif
}

/*
 * The target of a child of a relation.
 */
static PathTarget *
child_target(PlannerInfo *root, RelOptInfo *child, PathTarget *target)
{
	PathTarget *translated = copy_pathtarget(target);

#if PG_VERSION_NUM >= 160000
	translated->exprs = (List *) adjust_appendrel_attrs_multilevel(
		root, (Node *) target->exprs, child, child->top_parent);
#else
	translated->exprs = (List *) adjust_appendrel_attrs_multilevel(
		root, (Node *) target->exprs, child->relids, child->top_parent_relids);
#endif
	return translated;
}

/*
 * The rows of a child that has no index of ours, by whatever is cheapest for
 * the first rows: the MergeAppend sorts what is not in order.
 */
static Path *
make_other_path(PlannerInfo *root, RelOptInfo *child, List *keys, const PathBound *bound)
{
	Path	   *cheapest = child->cheapest_total_path;
	Path	   *ordered = get_cheapest_fractional_path_for_pathkeys(
		child->pathlist, keys, NULL, Min(bound->wanted / Max(child->rows, 1), 1));
	Path		sorted = {.parent = child, .pathtarget = child->reltarget};

	if (ordered == NULL || ordered == cheapest)
		return cheapest;
	cost_sort(&sorted, root, keys,
#if PG_VERSION_NUM >= 180000
			  cheapest->disabled_nodes,
#endif
			  cheapest->total_cost, child->rows, child->reltarget->width, 0.0, work_mem,
			  bound->wanted);
	return compare_fractional_path_costs(ordered, &sorted,
										 Min(bound->wanted / Max(child->rows, 1), 1)) < 0
		? ordered
		: cheapest;
}

/*
 * Whether a relation is one of the tables or subqueries that an append relation
 * consists of, and is read.
 */
static bool
is_leaf(const PlannerInfo *root, const RelOptInfo *child, const RelOptInfo *parent)
{
	return child != NULL && child->reloptkind == RELOPT_OTHER_MEMBER_REL &&
		   bms_equal(child->top_parent_relids, parent->relids) && child->pathlist != NIL &&
		   !IS_DUMMY_REL((RelOptInfo *) child) && !root->simple_rte_array[child->relid]->inh;
}

/*
 * The rows of partitions, child tables or arms of a UNION ALL: the nearest ones
 * of each are merged.
 */
static Path *
make_append_path(PlannerInfo *root, RelOptInfo *rel, const PathKey *key, const PathBound *bound,
				 PathTarget *target)
{
	List	   *keys = list_make1(unconstify(PathKey *, key));
	PathBound	of_child = *bound;
	List	   *children = NIL;
	bool		any = false;
	MergeAppendPath *merge;

	if (!bms_is_empty(rel->lateral_relids))
		return NULL;
	of_child.as_found = false;
	for (int relid = 1; relid < root->simple_rel_array_size; relid++)
	{
		RelOptInfo *child = root->simple_rel_array[relid];
		PathTarget *of_target;
		Path	   *path;

		if (!is_leaf(root, child, rel))
			continue;
		of_target = child_target(root, child, target);
		path = make_ordered_path(root, child, key, &of_child, of_target);
		any = any || path != NULL;
		if (path == NULL)
			path = (Path *) create_projection_path(
				root, child, make_other_path(root, child, keys, bound), of_target);
		children = lappend(children, path);
	}
	if (!any)
		return NULL;
	merge = create_merge_append_path(root, rel, children, keys, NULL);
	merge->path.pathtarget = target;
	return make_group_path(merge, &of_child);
}

Path *
make_ordered_path(PlannerInfo *root, RelOptInfo *rel, const PathKey *key, const PathBound *bound,
				  PathTarget *target)
{
	const RangeTblEntry *rte = root->simple_rte_array[rel->relid];
	Path	   *path;

	if (rte->inh)
		return key == NULL ? NULL : make_append_path(root, rel, key, bound, target);
	if (rte->rtekind == RTE_RELATION)
		return make_bounded_path(root, rel, key, bound, target);
	if (rte->rtekind != RTE_SUBQUERY || rel->subroot == NULL)
		return NULL;
	path = make_subquery_path(root, rel, key, bound);
	return path == NULL ? NULL : (Path *) create_projection_path(root, rel, path, target);
}

/*
 * Sort rows that are in the order of their first key by all keys. The rows of a
 * stream must not be drained for that.
 */
static Path *
sort_further(PlannerInfo *root, RelOptInfo *upper, Path *path, const PathBound *bound)
{
	double		most = bound->kind == NODE_STREAM ? -1 : bound->wanted;

	if (enable_incremental_sort)
		return (Path *) create_incremental_sort_path(root, upper, path, root->sort_pathkeys, 1,
													 most);
	if (bound->kind == NODE_STREAM)
		return NULL;
	return (Path *) create_sort_path(root, upper, path, root->sort_pathkeys, most);
}

/*
 * All that a query wants below its LIMIT: rows in order, of one relation or of
 * joins, with its target list.
 */
static Path *
make_query_path(PlannerInfo *root, RelOptInfo *upper, PathBound bound)
{
	bool		further = list_length(root->sort_pathkeys) > 1;
	const PathKey *key = root->sort_pathkeys == NIL ? NULL : linitial(root->sort_pathkeys);
	PathTarget *target = root->upper_targets[further ? UPPERREL_WINDOW : UPPERREL_FINAL];
	int			relid;
	Path	   *path;

	bound.as_found = bound.as_found && !further;
	if (further && bound.kind == NODE_LIMIT)
		bound.kind = NODE_TIES;
	if (bms_get_singleton_member(root->all_baserels, &relid))
		path = make_ordered_path(root, root->simple_rel_array[relid], key, &bound, target);
	else
	{
#if PG_VERSION_NUM >= 160000
		RelOptInfo *join = find_join_rel(root, root->all_query_rels);
#else
		RelOptInfo *join = find_join_rel(root, root->all_baserels);
#endif

		path = join == NULL ? NULL : find_stream(root, join);
		if (path != NULL)
			path = (Path *) create_projection_path(root, join, path, target);
	}
	if (path != NULL && further)
		path = sort_further(root, upper, path, &bound);
	if (path == NULL || !further)
		return path;
	return apply_projection_to_path(root, upper, path, root->upper_targets[UPPERREL_FINAL]);
}

/*
 * The bound of a query.
 */
static PathBound
bound_of(const PlannerInfo *root)
{
	const Query *query = root->parse;
	bool		ties = query->limitOption == LIMIT_OPTION_WITH_TIES;
	bool		stream =
		query->rowMarks != NIL || bms_membership(root->all_baserels) == BMS_MULTIPLE;

	return (PathBound){
		.kind = stream ? NODE_STREAM : ties ? NODE_TIES : NODE_LIMIT,
		.count = stream ? NULL : query->limitCount,
		.offset = stream ? NULL : query->limitOffset,
		.wanted = root->limit_tuples > 0 ? root->limit_tuples : WANTED_IF_UNKNOWN,
		.as_found = gpuann_iterative_scan == GPUANN_ITERATIVE_RELAXED && !ties &&
					list_length(root->sort_pathkeys) <= 1,
	};
}

/*
 * A query's last paths: add one for its nearest rows.
 */
static void
gpuann_create_upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input,
						  RelOptInfo *output, void *extra)
{
	const FinalPathExtraData *final = extra;
	const Query *query = root->parse;
	Path	   *path;

	if (prev_create_upper_paths)
		prev_create_upper_paths(root, stage, input, output, extra);
	if (stage != UPPERREL_FINAL || !final->limit_needed || !query_is_limited(root))
		return;
	path = make_query_path(root, output, bound_of(root));
	if (path == NULL)
		return;
	if (query->rowMarks != NIL)
		path = (Path *) create_lockrows_path(root, output, path, root->rowMarks,
											 assign_special_exec_param(root));
	add_path(output, (Path *) create_limit_path(root, output, path, query->limitOffset,
												query->limitCount, query->limitOption,
												final->offset_est, final->count_est));
}

void
plan_limit_init(void)
{
	prev_create_upper_paths = create_upper_paths_hook;
	create_upper_paths_hook = gpuann_create_upper_paths;
}
