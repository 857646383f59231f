/*
 * group.c
 *		Nodes below one MergeAppend: a node above it that knows them, and has
 *		the server give their first answers in one request.
 *
 * A MergeAppend begins by taking a row from each input that run-time pruning
 * has left, one after the other: with n partitions the server would be asked,
 * and waited for, n times. So the node that begins first prepares the others
 * too, and asks for all of them. The group tells them of the MergeAppend; else
 * it hands rows on, and the LIMIT, which PostgreSQL hands on to sorts of other
 * inputs.
 */
#include "plan/plan.h"

#include "executor/executor.h"
#include "nodes/nodeFuncs.h"

/* The name of the group in EXPLAIN, and of its methods. */
#define GROUP_NAME	"gpuann group"

typedef struct GroupNode
{
	CustomScanState css;
	NodeLimit	limit;
	bool		begun;
} GroupNode;

static const CustomPathMethods path_methods;
static const CustomScanMethods plan_methods;
static const CustomExecMethods node_methods;

Path *
make_group_path(MergeAppendPath *merge, const PathBound *bound)
{
	CustomPath *path = makeNode(CustomPath);

	path->path = merge->path;
	path->path.type = T_CustomPath;
	path->path.pathtype = T_CustomScan;
	path->methods = &path_methods;
	path->custom_paths = list_make1(merge);
	if (bound->kind == NODE_LIMIT)
		path->custom_private = list_make2(bound->count, bound->offset);
	return &path->path;
}

/*
 * The plan of a path. The quals are those of the inputs, too.
 */
static Plan *
plan_path(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *targets, List *clauses,
		  List *custom_plans)
{
	CustomScan *plan = makeNode(CustomScan);

	plan->scan.plan.targetlist = targets;
	plan->custom_scan_tlist = copyObject(targets);
	plan->custom_plans = custom_plans;
	plan->custom_exprs = path->custom_private;
	plan->methods = &plan_methods;
	return &plan->scan.plan;
}

static Node *
create_group(CustomScan *plan)
{
	GroupNode  *group = palloc0(sizeof(GroupNode));

	NodeSetTag(group, T_CustomScanState);
	group->css.methods = &node_methods;
	return (Node *) group;
}

/*
 * The input of nodes that hand rows on, one by one; NULL: it is none of these.
 */
static PlanState *
input_of(PlanState *state)
{
	if (IsA(state, SubqueryScanState))
		return castNode(SubqueryScanState, state)->subplan;
	if (IsA(state, ResultState) && castNode(ResultState, state)->resconstantqual == NULL)
		return outerPlanState(state);
	return NULL;
}

/*
 * Tell the inputs of a MergeAppend of it.
 */
static void
tell_inputs(MergeAppendState *merge)
{
	for (int i = 0; i < merge->ms_nplans; i++)
	{
		PlanState  *state = merge->mergeplans[i];

		while (state != NULL && !is_gpuann_node(state))
			state = input_of(state);
		if (state != NULL)
			((GpuannNode *) state)->merge = merge;
	}
}

static void
group_begin(CustomScanState *css, EState *estate, int eflags)
{
	GroupNode  *group = (GroupNode *) css;
	CustomScan *plan = castNode(CustomScan, css->ss.ps.plan);
	PlanState  *input = ExecInitNode(linitial(plan->custom_plans), estate, eflags);

	css->custom_ps = list_make1(input);
	if (plan->custom_exprs != NIL)
		node_begin_limit(&group->limit, plan->custom_exprs, &css->ss.ps);
	/* Rows are handed on in the slots of the inputs, of several kinds. */
	css->ss.ps.resultopsset = true;
	css->ss.ps.resultopsfixed = false;
	while (input != NULL && !IsA(input, MergeAppendState))
		input = input_of(input);
	/* Where one input is left there is no MergeAppend. */
	if (input != NULL)
		tell_inputs(castNode(MergeAppendState, input));
}

static TupleTableSlot *
group_execute(CustomScanState *css)
{
	GroupNode  *group = (GroupNode *) css;
	PlanState  *input = linitial(css->custom_ps);
	uint64		skipped;
	uint64		wanted;

	if (!group->begun)
	{
		wanted = node_read_limit(&group->limit, css->ss.ps.ps_ExprContext, &skipped);
		ExecSetTupleBound(wanted > 0 ? (int64) wanted : -1, input);
		group->begun = true;
	}
	return ExecProcNode(input);
}

static void
group_rescan(CustomScanState *css)
{
	PlanState  *input = linitial(css->custom_ps);

	((GroupNode *) css)->begun = false;
	if (css->ss.ps.chgParam != NULL)
		UpdateChangedParamSet(input, css->ss.ps.chgParam);
	if (input->chgParam == NULL)
		ExecReScan(input);
}

static void
group_end(CustomScanState *css)
{
	ExecEndNode(linitial(css->custom_ps));
}

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
		state = input_of(state);
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

static const CustomPathMethods path_methods = {
	.CustomName = GROUP_NAME,
	.PlanCustomPath = plan_path,
};

static const CustomScanMethods plan_methods = {
	.CustomName = GROUP_NAME,
	.CreateCustomScanState = create_group,
};

static const CustomExecMethods node_methods = {
	.CustomName = GROUP_NAME,
	.BeginCustomScan = group_begin,
	.ExecCustomScan = group_execute,
	.EndCustomScan = group_end,
	.ReScanCustomScan = group_rescan,
};

void
plan_group_init(void)
{
	RegisterCustomScanMethods(&plan_methods);
}
