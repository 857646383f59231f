/*
 * order.c
 *		The distance that a query orders rows by, if an index has that order.
 *
 * PostgreSQL looks for it only where an index says that it orders by operators,
 * and then makes plain index paths. Ours do not say so (paths.c), so it is
 * looked for here, as match_pathkeys_to_index() does.
 */
#include "plan/plan.h"

#include "access/stratnum.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"
#include "utils/lsyscache.h"
#if PG_VERSION_NUM >= 180000
#include "access/cmptype.h"
#endif

/*
 * Whether one side of a distance is what is indexed, and the other is known
 * before any row of the query level is.
 */
static bool
is_indexed_and_query(const IndexOptInfo *index, Node *indexed, Node *query)
{
	return match_index_to_operand(indexed, 0, unconstify(IndexOptInfo *, index)) &&
		   !contain_var_clause(query) && !contain_volatile_functions(query);
}

/*
 * An expression as a distance that the index orders by: indexed expression,
 * operator, query. NULL: it is none.
 */
static OpExpr *
as_distance(const IndexOptInfo *index, Expr *expr, Oid sort_family)
{
	OpExpr	   *op = (OpExpr *) expr;

	if (!IsA(op, OpExpr) || list_length(op->args) != 2 ||
		(OidIsValid(index->indexcollations[0]) && index->indexcollations[0] != op->inputcollid))
		return NULL;
	if (!is_indexed_and_query(index, linitial(op->args), lsecond(op->args)))
	{
		if (!is_indexed_and_query(index, lsecond(op->args), linitial(op->args)) ||
			!OidIsValid(get_commutator(op->opno)))
			return NULL;
		op = copyObject(op);
		CommuteOpExpr(op);
	}
	if (get_op_opfamily_sortfamily(op->opno, index->opfamily[0]) != sort_family)
		return NULL;
	set_opfuncid(op);
	return op;
}

/*
 * Whether a sort key is ascending, NULLs last: as the index has it.
 */
static bool
is_ascending(const PathKey *key)
{
#if PG_VERSION_NUM >= 180000
	return key->pk_cmptype == COMPARE_LT && !key->pk_nulls_first;
#else
	return key->pk_strategy == BTLessStrategyNumber && !key->pk_nulls_first;
#endif
}

PathKey *
ordering_key(PlannerInfo *root, const IndexOptInfo *index, OpExpr **distance)
{
	PathKey    *key = root->query_pathkeys == NIL ? NULL : linitial(root->query_pathkeys);
	EquivalenceMember *member;
#if PG_VERSION_NUM >= 180000
	EquivalenceMemberIterator members;
#else
	ListCell   *cell;
#endif

	if (key == NULL || !is_ascending(key) || key->pk_eclass->ec_has_volatile)
		return NULL;
#if PG_VERSION_NUM >= 180000
	setup_eclass_member_iterator(&members, key->pk_eclass, index->rel->relids);
	while ((member = eclass_member_iterator_next(&members)) != NULL)
	{
#else
	foreach(cell, key->pk_eclass->ec_members)
	{
		member = lfirst(cell);
#endif
		if (!bms_equal(member->em_relids, index->rel->relids))
			continue;
		*distance = as_distance(index, member->em_expr, key->pk_opfamily);
		if (*distance != NULL)
			return key;
	}
	return NULL;
}
