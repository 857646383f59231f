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
 * before any row of the query level is, or of the relation, if others may come
 * before it.
 */
static bool
is_indexed_and_query(PlannerInfo *root, const IndexOptInfo *index, Node *indexed, Node *query,
					 bool others)
{
	return match_index_to_operand(indexed, 0, unconstify(IndexOptInfo *, index)) &&
		   !contain_volatile_functions(query) &&
		   (others ? !bms_is_member(index->rel->relid, pull_varnos(root, query)) &&
						 !contain_subplans(query)
				   : !contain_var_clause(query));
}

OpExpr *
as_distance(PlannerInfo *root, const IndexOptInfo *index, Expr *expr, bool others,
			Oid *sort_family)
{
	OpExpr	   *op = (OpExpr *) expr;

	if (!IsA(op, OpExpr) || list_length(op->args) != 2 ||
		(OidIsValid(index->indexcollations[0]) && index->indexcollations[0] != op->inputcollid))
		return NULL;
	if (!is_indexed_and_query(root, index, linitial(op->args), lsecond(op->args), others))
	{
		if (!is_indexed_and_query(root, index, lsecond(op->args), linitial(op->args), others) ||
			!OidIsValid(get_commutator(op->opno)))
			return NULL;
		op = copyObject(op);
		CommuteOpExpr(op);
	}
	*sort_family = get_op_opfamily_sortfamily(op->opno, index->opfamily[0]);
	if (!OidIsValid(*sort_family))
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
	Oid			sort_family;
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
		*distance = as_distance(root, index, member->em_expr, false, &sort_family);
		if (*distance != NULL && sort_family == key->pk_opfamily)
			return key;
	}
	return NULL;
}
