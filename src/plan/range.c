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

#include "access/stratnum.h"
#include "catalog/pg_am.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/spccache.h"

/*
 * What other plans pay for a distance and its comparison, however long the
 * vectors are.
 */
#define ROW_OPERATORS	2
#define MAX_OUTERS		8		/* sets of outer relations that there are paths for */

/* What is looked for among the quals, and the paths made so far. */
typedef struct RangeSearch
{
	PlannerInfo *root;
	RelOptInfo *rel;
	IndexOptInfo *index;
	const IndexShare *known;
	OpExpr	   *distance;		/* found: indexed expression, operator, query */
	List	   *distances;		/* of paths that depend on no other relation */
	List	   *outers;			/* of paths that do */
} RangeSearch;

/*
 * The price of a pass over an index. Reading is paid for once in loops.
 *
 * Where vectors are out of line the table looks small, and no other plan is
 * charged for fetching the vectors of the rows that it compares. So that the
 * prices can be compared, here no more pages are charged than the table has,
 * and those of its rows at the price of a sequential scan.
 */
Cost
range_price(PlannerInfo *root, const IndexOptInfo *index, double rows, double loops)
{
	double		table_pages = Max(index->rel->pages, 1);
	double		pages = Min(index->pages, table_pages);
	double		fetched = index_pages_fetched(rows * loops, index->rel->pages, index->pages, root);
	double		random_page;
	double		sequential_page;
	Relation	relation = index_open(index->indexoid, NoLock);
	const IndexFormat *format = peek_format(relation);

	get_tablespace_page_costs(index->reltablespace, &random_page, &sequential_page);
	if (format != NULL && table_pages * BLCKSZ < index->tuples * format->vector_bytes)
		random_page = sequential_page;
	if (client_would_answer(relation))
		pages = 0;
	index_close(relation, NoLock);
	return (START_OPERATORS + ROW_OPERATORS * index->tuples) * cpu_operator_cost +
		   (pages * sequential_page + fetched * random_page) / loops +
		   rows * (cpu_index_tuple_cost + cpu_tuple_cost);
}

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
 * Whether a scan of an index would not fail at once. Where no order is wanted
 * other plans answer.
 */
static bool
is_readable(const IndexOptInfo *info)
{
	Relation	index = index_open(info->indexoid, NoLock);
	bool		readable = peek_format(index) != NULL;

	index_close(index, NoLock);
	return readable;
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
 * The query of a distance, if one side is what is indexed.
 */
static Node *
query_of(const RangeSearch *search, Node *indexed, Node *query)
{
	if (!match_index_to_operand(indexed, 0, search->index) ||
		bms_is_member(search->rel->relid, pull_varnos(search->root, query)) ||
		contain_volatile_functions(query) || contain_subplans(query))
		return NULL;
	return query;
}

/*
 * Whether the value of a threshold is one that the index orders by.
 */
static bool
matches_index(Threshold *threshold, void *context)
{
	RangeSearch *search = context;
	const IndexOptInfo *index = search->index;
	OpExpr	   *op = (OpExpr *) threshold->value;

	if (!IsA(op, OpExpr) || list_length(op->args) != 2 ||
		(OidIsValid(index->indexcollations[0]) && index->indexcollations[0] != op->inputcollid) ||
		(may_let_nan_pass(threshold) && is_for_cosine(index)))
		return false;
	op = copyObject(op);
	if (query_of(search, linitial(op->args), lsecond(op->args)) == NULL)
	{
		if (query_of(search, lsecond(op->args), linitial(op->args)) == NULL ||
			!OidIsValid(get_commutator(op->opno)))
			return false;
		CommuteOpExpr(op);
	}
	if (!OidIsValid(get_op_opfamily_sortfamily(op->opno, index->opfamily[0])))
		return false;
	set_opfuncid(op);
	search->distance = op;
	return true;
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
	RelOptInfo *rel = search->rel;
	ParamPathInfo *param_info;
	double		loops = loops_of(search->root, outer);
	List	   *thresholds;
	double		share;
	Path		figures = {.type = T_Path};
	static const PathBound range = {.kind = NODE_RANGE};

	if (!is_readable(search->index))
		return;
	param_info = get_baserel_parampathinfo(search->root, rel, outer);
	thresholds = own_thresholds(search, param_info);
	figures.parent = rel;
	figures.pathtarget = rel->reltarget;
	figures.param_info = param_info;
	figures.parallel_safe = rel->consider_parallel;
	if (bms_equal(outer, rel->lateral_relids) && equal(search->known->distance, search->distance))
		share = search->known->share;
	else
		share = threshold_share(search->root, search->index, search->distance, thresholds);
	figures.rows =
		threshold_rows(search->root, rel, param_info != NULL ? param_info->ppi_rows : rel->rows,
					   thresholds, share);
	figures.total_cost =
		range_price(search->root, search->index, share * search->index->tuples, loops);
	/* Nothing comes before all rows were compared. */
	figures.startup_cost = range_price(search->root, search->index, 0, loops);
	if (!enable_indexscan)
		disable_path(&figures);
	add_path(rel, make_node_path(&figures, search->index, search->distance,
								 threshold_limits(thresholds), &range));
}

/*
 * Whether a list of distances has one.
 */
static bool
has_distance(List *distances, OpExpr *distance)
{
	ListCell   *cell;

	foreach(cell, distances)
		if (is_distance((Node *) distance, lfirst_node(OpExpr, cell)))
			return true;
	return false;
}

/*
 * Add a path for each distance that the relation's own quals bound.
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
			has_distance(search->distances, search->distance))
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
add_range_paths(PlannerInfo *root, RelOptInfo *rel, IndexOptInfo *index, const IndexShare *known)
{
	RangeSearch search = {.root = root, .rel = rel, .index = index, .known = known};

	add_paths_of_filters(&search);
	add_paths_of_joins(&search);
}
