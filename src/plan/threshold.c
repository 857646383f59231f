/*
 * threshold.c
 *		Quals that bound the distance from above.
 *
 * Beyond such a threshold no row passes, so a scan need not go there. The qual
 * stays in the plan and decides; of the threshold only the limit is taken, an
 * expression that is computed once for a scan. Recognised are comparisons of
 * float8 in either direction, of the distance itself, and of what people write
 * for a similarity: 1 - d, -d and d * -1, which fall as the distance rises. All
 * three are their own inverses: from f(d) > s follows d < f(s).
 *
 * Rows whose distance is NaN pass a falling form, and the limit does not let
 * them pass. Inner product and cosine give NaN where single precision
 * overflows, and where it may the limit is none (engine/operator_bounds.h); for
 * cosine also for zero vectors, which its indexes do not have: see range.c.
 */
#include "plan/plan.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/restrictinfo.h"
#include "utils/float.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

/*
 * Whether an expression is this constant.
 */
static bool
is_constant(Node *node, double value)
{
	Const	   *constant = (Const *) node;

	return IsA(node, Const) && constant->consttype == FLOAT8OID && !constant->constisnull &&
		   float8_eq(DatumGetFloat8(constant->constvalue), value);
}

/*
 * Which argument of an expression it falls with. -1: none that is known.
 */
static int
falls_with(Node *node)
{
	OpExpr	   *op = (OpExpr *) node;

	if (!IsA(node, OpExpr))
		return -1;
	switch (get_opcode(op->opno))
	{
		case F_FLOAT8UM:
			return 0;
		case F_FLOAT8MI:
			return is_constant(linitial(op->args), 1) ? 1 : -1;
		case F_FLOAT8MUL:
			if (is_constant(linitial(op->args), -1))
				return 1;
			return is_constant(lsecond(op->args), -1) ? 0 : -1;
		default:
			return -1;
	}
}

/*
 * Whether an expression can be computed before the rows of a relation are
 * known, with the same result for each.
 */
static bool
is_fixed(PlannerInfo *root, const RelOptInfo *rel, Node *node)
{
	return !bms_is_member(rel->relid, pull_varnos(root, node)) && !contain_subplans(node) &&
		   !contain_volatile_functions(node);
}

/*
 * What a qual says: the value is at most the limit. With `falling` the value is
 * what a falling expression is made of.
 */
static bool
take_apart(PlannerInfo *root, const RelOptInfo *rel, const OpExpr *clause, bool falling,
		   Threshold *threshold)
{
	Node	   *lesser = linitial(clause->args);
	Node	   *greater = lsecond(clause->args);
	OpExpr	   *inverse;
	int			at;

	switch (get_opcode(clause->opno))
	{
		case F_FLOAT8LT:
		case F_FLOAT8LE:
			break;
		case F_FLOAT8GT:
		case F_FLOAT8GE:
			lesser = lsecond(clause->args);
			greater = linitial(clause->args);
			break;
		default:
			return false;
	}
	if (!is_fixed(root, rel, falling ? lesser : greater))
		return false;
	threshold->falling = falling;
	threshold->value = lesser;
	threshold->limit = greater;
	if (!falling)
		return true;
	at = falls_with(greater);
	if (at < 0)
		return false;
	threshold->value = list_nth(((OpExpr *) greater)->args, at);
	inverse = copyObject((OpExpr *) greater);
	lfirst(list_nth_cell(inverse->args, at)) = copyObject(lesser);
	threshold->limit = eval_const_expressions(root, (Node *) inverse);
	return true;
}

bool
threshold_of(PlannerInfo *root, RelOptInfo *rel, RestrictInfo *restriction,
			 threshold_matches matches, void *context, Threshold *threshold)
{
	OpExpr	   *clause = (OpExpr *) restriction->clause;

	if (!IsA(clause, OpExpr) || list_length(clause->args) != 2 ||
		!restriction_is_securely_promotable(restriction, rel))
		return false;
	threshold->restriction = restriction;
	for (int falling = 0; falling <= 1; falling++)
		if (take_apart(root, rel, clause, falling, threshold) && matches(threshold, context))
			return true;
	return false;
}

/*
 * Whether the value of a threshold is a certain distance.
 */
static bool
matches_distance(Threshold *threshold, void *distance)
{
	return is_distance(threshold->value, distance);
}

List *
thresholds_of(PlannerInfo *root, RelOptInfo *rel, const ParamPathInfo *param_info,
			  const OpExpr *distance)
{
	List	   *restrictions = list_copy(rel->baserestrictinfo);
	List	   *thresholds = NIL;
	ListCell   *cell;

	if (param_info != NULL)
		restrictions = list_concat(restrictions, param_info->ppi_clauses);
	foreach(cell, restrictions)
	{
		Threshold	threshold;

		if (threshold_of(root, rel, lfirst_node(RestrictInfo, cell), matches_distance,
						 unconstify(OpExpr *, distance), &threshold))
			thresholds = lappend(thresholds, memcpy(palloc(sizeof(Threshold)), &threshold,
													sizeof(Threshold)));
	}
	return thresholds;
}

List *
threshold_limits(List *thresholds)
{
	List	   *limits = NIL;
	ListCell   *cell;

	foreach(cell, thresholds)
		limits = lappend(limits, ((Threshold *) lfirst(cell))->limit);
	return limits;
}
