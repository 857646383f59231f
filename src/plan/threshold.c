/*
 * threshold.c
 *		Quals that bound the distance from above.
 *
 * Beyond such a threshold no row passes, so a scan need not go there. The qual
 * stays in the plan and decides; of the threshold only the limit is taken, an
 * expression that is computed once for a scan. Recognised are comparisons in
 * either direction, of float8, float4 and numeric, of the distance itself, and
 * of what people make of it: a similarity (1 - d, -d and d * -1, which fall as
 * the distance rises: from c - d > s follows d < c - s), casts, and round().
 * How much these may be off is added to the limit.
 *
 * The query of the distance in the qual may be another expression than that of
 * the order, a second parameter for the same vector; then the threshold holds
 * where a scan finds their values equal.
 *
 * Rows whose distance is NaN pass a falling form, and the limit does not let
 * them pass. Inner product and cosine give NaN where single precision
 * overflows, and where it may the limit is none (engine/operator_bounds.h); for
 * cosine also for zero vectors, which its indexes do not have: see range.c.
 */
#include "plan/plan.h"

#include <float.h>
#include <math.h>

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/restrictinfo.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

/*
 * How much a cast may change a value, in proportion: PostgreSQL makes numerics
 * of so many digits.
 */
#define NUMERIC_OF_FLOAT8	1e-14	/* of DBL_DIG digits */
#define NUMERIC_OF_FLOAT4	1e-5	/* of FLT_DIG digits */

/* Comparisons, and what they have in common. */
static const struct
{
	RegProcedure compare;
	bool		rising;			/* the left side is the lesser one */
	bool		strict;
}			comparisons[] = {
	{F_FLOAT8LT, true, true},
	{F_FLOAT8LE, true, false},
	{F_FLOAT8GT, false, true},
	{F_FLOAT8GE, false, false},
	{F_FLOAT84LT, true, true},
	{F_FLOAT84LE, true, false},
	{F_FLOAT84GT, false, true},
	{F_FLOAT84GE, false, false},
	{F_FLOAT48LT, true, true},
	{F_FLOAT48LE, true, false},
	{F_FLOAT48GT, false, true},
	{F_FLOAT48GE, false, false},
	{F_FLOAT4LT, true, true},
	{F_FLOAT4LE, true, false},
	{F_FLOAT4GT, false, true},
	{F_FLOAT4GE, false, false},
	{F_NUMERIC_LT, true, true},
	{F_NUMERIC_LE, true, false},
	{F_NUMERIC_GT, false, true},
	{F_NUMERIC_GE, false, false},
};

double
threshold_float8(Datum value, Oid type)
{
	switch (type)
	{
		case FLOAT4OID:
			return DatumGetFloat4(value);
		case NUMERICOID:
			return DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, value));
		default:
			return DatumGetFloat8(value);
	}
}

/*
 * Whether an expression is this constant.
 */
static bool
is_constant(Node *node, double value)
{
	Const	   *constant = (Const *) node;

	return IsA(node, Const) && !constant->constisnull &&
		   (constant->consttype == FLOAT8OID || constant->consttype == NUMERICOID) &&
		   threshold_float8(constant->constvalue, constant->consttype) == value;
}

/*
 * Which argument of an expression it falls with, so that it is *from minus
 * that. -1: none that is known.
 */
static int
falls_with(OpExpr *op, double *from)
{
	*from = 0;
	switch (get_opcode(op->opno))
	{
		case F_FLOAT8UM:
		case F_FLOAT4UM:
		case F_NUMERIC_UMINUS:
			return 0;
		case F_FLOAT8MI:
		case F_FLOAT84MI:
		case F_NUMERIC_SUB:
			*from = 1;
			return is_constant(linitial(op->args), 1) ? 1 : -1;
		case F_FLOAT8MUL:
		case F_FLOAT84MUL:
		case F_FLOAT48MUL:
		case F_NUMERIC_MUL:
			if (is_constant(linitial(op->args), -1))
				return 1;
			return is_constant(lsecond(op->args), -1) ? 0 : -1;
		default:
			return -1;
	}
}

/*
 * Whether a function leaves a number of decimals that is known; add half a unit
 * of the last.
 */
static bool
rounds_decimals(const FuncExpr *call, Threshold *threshold)
{
	const Const *second = lsecond(call->args);
	int32		decimals;

	if (!IsA(second, Const) || second->constisnull)
		return false;
	decimals = DatumGetInt32(second->constvalue);
	/* A type modifier has the scale in its lower 11 bits, with a sign. */
	if (call->funcid == F_NUMERIC_NUMERIC_INT4)
		decimals = (((decimals - VARHDRSZ) & 0x7FF) ^ 1024) - 1024;
	threshold->shift += 0.5 * pow(10, -decimals);
	return true;
}

/*
 * Whether a function's value is its first argument, but for rounding, which is
 * added to what the threshold allows for.
 */
static bool
keeps_argument(const FuncExpr *call, Threshold *threshold)
{
	switch (call->funcid)
	{
		case F_FLOAT8_FLOAT4:
			return true;
		case F_FLOAT4_FLOAT8:
		case F_FLOAT4_NUMERIC:
			threshold->slack += FLT_EPSILON;
			return true;
		case F_FLOAT8_NUMERIC:
			threshold->slack += DBL_EPSILON;
			return true;
		case F_NUMERIC_FLOAT8:
			threshold->slack += NUMERIC_OF_FLOAT8;
			return true;
		case F_NUMERIC_FLOAT4:
			threshold->slack += NUMERIC_OF_FLOAT4;
			return true;
		case F_ROUND_FLOAT8:
			threshold->shift += 0.5;
			return true;
		case F_ROUND_NUMERIC_INT4:
		case F_NUMERIC_NUMERIC_INT4:
			return rounds_decimals(call, threshold);
		default:
			return false;
	}
}

/*
 * Find what an expression is made of, by steps that rise with it and at most
 * one that falls.
 */
static Node *
peel(Node *node, Threshold *threshold)
{
	for (;;)
	{
		if (IsA(node, FuncExpr))
		{
			if (!keeps_argument((FuncExpr *) node, threshold))
				return node;
			node = linitial(((FuncExpr *) node)->args);
		}
		else if (IsA(node, OpExpr) && !threshold->falling)
		{
			OpExpr	   *op = (OpExpr *) node;
			int			at = falls_with(op, &threshold->from);

			if (at < 0)
				return node;
			threshold->falling = true;
			node = list_nth(op->args, at);
		}
		else
			return node;
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

double
threshold_limit(const Threshold *threshold, Datum value, Oid type)
{
	double		limit = threshold_float8(value, type);

	if (threshold->falling)
		limit = threshold->from - limit;
	if (isinf(limit))
		return limit;
	/* Twice, for the slack of a slack. */
	return limit + threshold->shift + 2 * threshold->slack * (1 + fabs(limit) + threshold->shift);
}

/* A number in a plan. */
static Const *
number(double value, bool isnull)
{
	return makeConst(FLOAT8OID, -1, InvalidOid, sizeof(float8), Float8GetDatum(value), isnull,
					 FLOAT8PASSBYVAL);
}

/*
 * Compute the limit now, if it is a constant.
 */
static void
fold_limit(Threshold *threshold)
{
	const Const *constant = (const Const *) threshold->limit;

	if (!IsA(constant, Const) || constant->constisnull)
		return;
	threshold->limit = (Node *) number(
		threshold_limit(threshold, constant->constvalue, constant->consttype), false);
	threshold->folded = true;
}

/*
 * What a qual says: the value is at most the limit. The value is made from the
 * left or the right side.
 */
static bool
take_apart(PlannerInfo *root, const RelOptInfo *rel, const OpExpr *clause, bool left,
		   Threshold *threshold)
{
	RegProcedure compare = get_opcode(clause->opno);

	for (size_t i = 0; i < lengthof(comparisons); i++)
	{
		if (comparisons[i].compare != compare)
			continue;
		threshold->falling = threshold->folded = false;
		threshold->from = threshold->shift = threshold->slack = 0;
		threshold->query = NULL;
		threshold->strict = comparisons[i].strict;
		threshold->limit = left ? lsecond(clause->args) : linitial(clause->args);
		threshold->value = peel(left ? linitial(clause->args) : lsecond(clause->args), threshold);
		if (threshold->falling != (left != comparisons[i].rising) ||
			!is_fixed(root, rel, threshold->limit))
			return false;
		fold_limit(threshold);
		return true;
	}
	return false;
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
	for (int left = 0; left <= 1; left++)
		if (take_apart(root, rel, clause, left, threshold) && matches(threshold, context))
			return true;
	return false;
}

/* Where thresholds of a distance are looked for. */
typedef struct DistanceSearch
{
	PlannerInfo *root;
	const RelOptInfo *rel;
	const OpExpr *distance;
} DistanceSearch;

/*
 * Whether the value of a threshold is a certain distance, or may turn out to
 * be.
 */
static bool
matches_distance(Threshold *threshold, void *context)
{
	const DistanceSearch *search = context;
	Node	   *query = lsecond(search->distance->args);

	threshold->query = query_of_distance(threshold->value, search->distance);
	if (equal(threshold->query, query))
	{
		threshold->query = NULL;
		return true;
	}
	return threshold->query != NULL && !(IsA(threshold->query, Const) && IsA(query, Const)) &&
		   is_fixed(search->root, search->rel, threshold->query);
}

List *
thresholds_of(PlannerInfo *root, RelOptInfo *rel, const ParamPathInfo *param_info,
			  const OpExpr *distance)
{
	DistanceSearch search = {root, rel, distance};
	List	   *restrictions = list_copy(rel->baserestrictinfo);
	List	   *thresholds = NIL;
	ListCell   *cell;

	if (param_info != NULL)
		restrictions = list_concat(restrictions, param_info->ppi_clauses);
	foreach(cell, restrictions)
	{
		Threshold	threshold;

		if (threshold_of(root, rel, lfirst_node(RestrictInfo, cell), matches_distance, &search,
						 &threshold))
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
	{
		const Threshold *threshold = lfirst(cell);
		bool		falls = threshold->falling && !threshold->folded;

		limits = lappend(limits,
						 list_make5(threshold->limit, threshold->query,
									number(threshold->from, !falls),
									number(threshold->folded ? 0 : threshold->shift, false),
									number(threshold->folded ? 0 : threshold->slack, false)));
	}
	return limits;
}

void
threshold_read_limit(List *limit, Threshold *threshold)
{
	const Const *from = lthird_node(Const, limit);

	*threshold = (Threshold){
		.limit = linitial(limit),
		.query = lsecond(limit),
		.falling = !from->constisnull,
		.shift = DatumGetFloat8(lfourth_node(Const, limit)->constvalue),
		.slack = DatumGetFloat8(castNode(Const, llast(limit))->constvalue),
	};
	if (threshold->falling)
		threshold->from = DatumGetFloat8(from->constvalue);
}
