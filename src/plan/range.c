/*
 * range.c
 *		Paths for thresholds without order: all rows within a distance, exactly.
 *
 * PostgreSQL makes paths of an index without search operators for an ORDER BY
 * only, so these are made here, from the index list; also for join clauses,
 * where query or limit is another relation's.
 *
 * Unlike a scan in the order of the distance, one without must not depend on
 * there being an index: it gives the rows that a sequential scan gives. Zero
 * vectors are not in an index for cosine. Their distance is NaN, which is
 * greater than all numbers, so they are within no limit that is a number; but 1
 * - NaN is greater than all numbers too. So for cosine a falling form makes no
 * range path, nor does <= with a limit that may be NaN.
 */
#include "plan/plan.h"

#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#define MAX_OUTERS		8		/* sets of outer relations that there are paths for */

/* What is looked for among the quals, and the paths made so far. */
typedef struct RangeSearch
{
	PlannerInfo *root;
	RelOptInfo *rel;
	IndexOptInfo *index;
	const PricedIndex *priced;	/* NULL: not examined yet */
	const OpExpr *ordered;		/* of an exact path in order, or NULL */
	OpExpr	   *distance;		/* found: indexed expression, operator, query */
	List	   *distances;		/* of paths that depend on no other relation */
	List	   *outers;			/* of paths that do */
} RangeSearch;

/*
 * How often a path is likely to be begun, for rows of other relations.
 */
static double
loops_of(PlannerInfo *root, Relids outer)
{
	double		loops = 1;
	int			relid = -1;

	while ((relid = bms_next_member(outer, relid)) >= 0)
		if (relid < root->simple_rel_array_size && root->simple_rel_array[relid] != NULL)
			loops = Max(loops, root->simple_rel_array[relid]->rows);
	return loops;
}

/*
 * Whether an index is one for cosine.
 */
static bool
is_for_cosine(const IndexOptInfo *info)
{
	Relation	index = index_open(info->indexoid, NoLock);
	bool		cosine = gpuann_type_info(index)->metric == METRIC_COSINE;

	index_close(index, NoLock);
	return cosine;
}

/*
 * Whether a row passes whose distance is NaN: by a falling form, or because
 * NaN is no greater than the limit if that is NaN too.
 */
static bool
may_let_nan_pass(const Threshold *threshold)
{
	Const	   *limit = (Const *) threshold->limit;

	return threshold->falling ||
		   (!threshold->strict && (!IsA(limit, Const) || limit->constisnull ||
								   isnan(DatumGetFloat8(limit->constvalue))));
}

/*
 * Whether the value of a threshold is one that the index orders by.
 */
static bool
matches_index(Threshold *threshold, void *context)
{
	RangeSearch *search = context;
	Oid			sort_family;

	search->distance = as_distance(search->root, search->index, (Expr *) threshold->value, true,
								   &sort_family);
	return search->distance != NULL &&
		   !(may_let_nan_pass(threshold) && is_for_cosine(search->index));
}

/*
 * The thresholds of the distance found. One whose query is another expression
 * has a path of its own.
 */
static List *
own_thresholds(const RangeSearch *search, const ParamPathInfo *param_info)
{
	List	   *thresholds =
		thresholds_of(search->root, search->rel, param_info, search->distance);
	ListCell   *cell;

	foreach(cell, thresholds)
		if (((Threshold *) lfirst(cell))->query != NULL)
			thresholds = foreach_delete_current(thresholds, cell);
	return thresholds;
}

/*
 * Add a path for the distance found, which these relations must be known for.
 */
static void
add_range_path(RangeSearch *search, Relids outer)
{
	PlannerInfo *root = search->root;
	RelOptInfo *rel = search->rel;
	const IndexOptInfo *index = search->index;
	double		loops = loops_of(root, outer);
	ParamPathInfo *param_info;
	List	   *thresholds;
	double		share;
	Path		figures = {.type = T_Path};
	static const PathBound range = {.kind = NODE_RANGE};

	if (search->priced == NULL)
		search->priced = gpuann_examine(index);
	/* Where no order is wanted other plans answer. */
	if (!gpuann_is_readable(search->priced))
		return;
	param_info = get_baserel_parampathinfo(root, rel, outer);
	thresholds = own_thresholds(search, param_info);
	figures.parent = rel;
	figures.pathtarget = rel->reltarget;
	figures.param_info = param_info;
	figures.parallel_safe = rel->consider_parallel;
	share = threshold_share(root, index, search->distance, thresholds);
	figures.rows = threshold_rows(root, rel, param_info != NULL ? param_info->ppi_rows : rel->rows,
								  thresholds, share);
	figures.total_cost =
		gpuann_range_price(root, search->priced, share * index->tuples, loops);
	/* Nothing comes before all rows were compared. */
	figures.startup_cost = gpuann_range_price(root, search->priced, 0, loops);
	if (!index_is_enabled(root, index))
		disable_path(&figures);
	add_path(rel, make_node_path(&figures, index, search->distance, threshold_limits(thresholds),
								 &range));
}

/*
 * Add a path for each distance that the relation's own quals bound. One in the
 * order of that distance costs no more, if there is one.
 */
static void
add_paths_of_filters(RangeSearch *search)
{
	RelOptInfo *rel = search->rel;
	ListCell   *cell;

	foreach(cell, rel->baserestrictinfo)
	{
		Threshold	threshold;

		if (!threshold_of(search->root, rel, lfirst_node(RestrictInfo, cell), matches_index,
						  search, &threshold) ||
			equal(search->ordered, search->distance) ||
			list_member(search->distances, search->distance))
			continue;
		search->distances = lappend(search->distances, search->distance);
		add_range_path(search, bms_copy(rel->lateral_relids));
	}
}

/*
 * Add a path for each set of relations that a join clause gets query or limit
 * from.
 */
static void
add_paths_of_joins(RangeSearch *search)
{
	RelOptInfo *rel = search->rel;
	ListCell   *cell;

	foreach(cell, rel->joininfo)
	{
		RestrictInfo *restriction = lfirst_node(RestrictInfo, cell);
		Threshold	threshold;
		Relids		outer;
		ListCell   *had;
		bool		known = false;

		if (list_length(search->outers) == MAX_OUTERS ||
			!join_clause_is_movable_to(restriction, rel) ||
			!threshold_of(search->root, rel, restriction, matches_index, search, &threshold))
			continue;
		outer = bms_union(restriction->clause_relids, rel->lateral_relids);
		outer = bms_del_member(outer, rel->relid);
		foreach(had, search->outers)
			known = known || bms_equal(lfirst(had), outer);
		if (known)
			continue;
		search->outers = lappend(search->outers, outer);
		add_range_path(search, outer);
	}
}

/*
 * Add paths of an index for thresholds, without order.
 */
void
add_range_paths(PlannerInfo *root, RelOptInfo *rel, IndexOptInfo *index, const OpExpr *ordered,
				const PricedIndex *priced)
{
	RangeSearch search = {
		.root = root, .rel = rel, .index = index, .ordered = ordered, .priced = priced};

	add_paths_of_filters(&search);
	add_paths_of_joins(&search);
}
