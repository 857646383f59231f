/*
 * siblings.c
 *		Nodes below one MergeAppend have the server give their first answers in
 *		one request.
 *
 * A MergeAppend begins by taking a row from each input that run-time pruning
 * has left, one after the other: with n partitions the server would be asked,
 * and waited for, n times. So the node that begins first prepares the others
 * too, and asks for all of them.
 *
 * An Append drains one input after the other. Those of its inputs that begin
 * with a round of the graph are under a LIMIT, which the first of them may
 * satisfy: so they ask for themselves.
 */
#include "plan/plan.h"

#include "executor/executor.h"

/*
 * The node that an input of a MergeAppend consists of, ready to be prepared; or
 * NULL.
 */
static GpuannNode *
node_of_input(PlanState *state)
{
	while (state != NULL)
	{
		/* As ExecProcNode() would: what has been prepared stays so. */
		if (state->chgParam != NULL)
			ExecReScan(state);
		if (is_gpuann_node(state))
			return (GpuannNode *) state;
		if (IsA(state, SubqueryScanState))
			state = castNode(SubqueryScanState, state)->subplan;
		else if (IsA(state, ResultState) && castNode(ResultState, state)->resconstantqual == NULL)
			state = outerPlanState(state);
		else
			return NULL;
	}
	return NULL;
}

void
ask_with_siblings(GpuannNode *node)
{
	const MergeAppendState *merge = node->merge;
	IndexScanDesc *scans;
	FirstAnswer **first;
	uint32		count = 0;
	int			input = -1;

	if (merge == NULL || merge->ms_nplans < 2)
		return;
	scans = palloc(sizeof(IndexScanDesc) * merge->ms_nplans);
	first = palloc(sizeof(FirstAnswer *) * merge->ms_nplans);
	while ((input = bms_next_member(merge->ms_valid_subplans, input)) >= 0)
	{
		GpuannNode *sibling = node_of_input(merge->mergeplans[input]);

		if (sibling == NULL || sibling->prepared)
			continue;
		node_prepare(sibling);
		if (sibling->nothing_passes)
			continue;
		scans[count] = sibling->desc;
		first[count++] = &sibling->first;
	}
	scan_batch_ask_several(scans, count, first);
	pfree(scans);
	pfree(first);
}
