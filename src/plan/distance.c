/*
 * distance.c
 *		The operator's value in the node's expressions.
 *
 * A query that selects its distance, or filters by it, would have the executor
 * call the operator on the table's value, which is often out of line. The index
 * has the same elements. So wherever a target list or a qual contains the
 * distance, a CaseTestExpr stands in its place, which reads
 * econtext->caseValue_datum: the operator's value of the stored elements.
 */
#include "plan/plan.h"

#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"

/* What is replaced. */
typedef struct Replacement
{
	const OpExpr *distance;
	bool		any;			/* something was */
} Replacement;

Node *
query_of_distance(Node *node, const OpExpr *distance)
{
	OpExpr	   *op = (OpExpr *) node;

	if (!IsA(node, OpExpr) || list_length(op->args) != 2 ||
		op->inputcollid != distance->inputcollid)
		return NULL;
	if (op->opno == distance->opno && equal(linitial(op->args), linitial(distance->args)))
		return lsecond(op->args);
	if (get_commutator(op->opno) == distance->opno &&
		equal(lsecond(op->args), linitial(distance->args)))
		return linitial(op->args);
	return NULL;
}

/*
 * Whether an expression is the distance, in either order of its arguments.
 */
static bool
is_distance(Node *node, const OpExpr *distance)
{
	return equal(query_of_distance(node, distance), lsecond(distance->args));
}

/*
 * Put the place of a value instead of the distance. What has places of its own
 * for CaseTestExpr is left alone.
 */
static Node *
take_value(Node *node, void *context)
{
	Replacement *replacement = context;

	if (node == NULL)
		return NULL;
	if (is_distance(node, replacement->distance))
	{
		CaseTestExpr *value = makeNode(CaseTestExpr);

		value->typeId = exprType(node);
		value->typeMod = exprTypmod(node);
		value->collation = exprCollation(node);
		replacement->any = true;
		return (Node *) value;
	}
	if (IsA(node, CaseExpr) || IsA(node, ArrayCoerceExpr) || IsA(node, CoerceToDomain) ||
		IsA(node, FieldStore) || IsA(node, SubscriptingRef) || IsA(node, SubPlan) ||
		IsA(node, AlternativeSubPlan))
		return node;
	return expression_tree_mutator(node, take_value, context);
}

/*
 * The target list with values in it.
 */
static List *
take_output_values(GpuannNode *node, List *targets, Replacement *replacement)
{
	List	   *taken = NIL;
	ListCell   *cell;

	foreach(cell, targets)
	{
		TargetEntry *target = lfirst_node(TargetEntry, cell);

		if (node->junk_is_unused && target->resjunk &&
			is_distance((Node *) target->expr, node->distance))
		{
			target = flatCopyTargetEntry(target);
			target->expr = (Expr *) makeNullConst(exprType((Node *) target->expr), -1, InvalidOid);
			node->output_changed = true;
		}
		else
			target = castNode(TargetEntry, take_value((Node *) target, replacement));
		taken = lappend(taken, target);
	}
	return taken;
}

void
node_take_values(GpuannNode *node)
{
	ScanState  *ss = &node->css.ss;
	Plan	   *plan = ss->ps.plan;
	Replacement replacement = {node->distance, false};
	List	   *quals = (List *) take_value((Node *) plan->qual, &replacement);
	List	   *targets;

	if (replacement.any)
		node->filter = ExecInitQual(quals, &ss->ps);
	node->filter_has_value = replacement.any;

	replacement.any = false;
	targets = take_output_values(node, plan->targetlist, &replacement);
	node->output_has_value = replacement.any;
	if (node->output_has_value || node->output_changed)
		ss->ps.ps_ProjInfo =
			ExecBuildProjectionInfo(targets, ss->ps.ps_ExprContext, ss->ps.ps_ResultTupleSlot,
									&ss->ps, ss->ss_ScanTupleSlot->tts_tupleDescriptor);
}
