/*
 * order.c
 *		Rows in the order of the operator's values.
 *
 * The index orders by double-precision distances, the operator returns single
 * precision: rows whose distances lie within rounding of each other may have
 * their values the other way round. A row is given when its value is at most
 * the least value that any row after it can have (engine/operator_bounds.h). So
 * the operator is called only where neighbours are that near.
 */
#include "plan/plan.h"

#include "utils/float.h"

/*
 * The next row in the order of the operator's values.
 */
bool
next_in_order(GpuannNode *node, NodeRow *row)
{
	const OperatorBounds *bounds = &node->scan->bounds_of_value;
	double		following;

	for (;;)
	{
		NodeRows   *held = &node->held;

		if (held->first < held->count &&
			(node->drained ||
			 value_not_after(held->rows[held->first].value, node->next_least)))
		{
			*row = held->rows[held->first++];
			return true;
		}
		if (node->drained)
			return false;
		if (!next_passing(node, row, &following))
		{
			node->drained = true;
			continue;
		}
		if (node->scan->stage == STAGE_ANY)
			return true;
		node->next_least = operator_least(bounds, following);
		if (held->first == held->count)
		{
			rows_reset(held);
			if (value_not_after(operator_most(bounds, row->distance), node->next_least))
				return true;
		}
		node_value(node, row);
		rows_insert(held, node->memory, row, true);
	}
}
