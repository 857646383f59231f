/*
 * gather.c
 *		Rows that pass the filters: gathered for a LIMIT, or one after the
 *		other as the scan gives them.
 *
 * A LIMIT says how many rows are wanted. Rounds of the graph search give
 * proposals, from the nearest on; each is judged once, and the rounds end when
 * one has as many passing rows as are wanted. Only then rows are given, sorted.
 * With an OFFSET they are gathered in steps, as for the pages before (node.c,
 * first_breadth). A round that goes beyond a threshold is the last: it found
 * the rows within as well as any round finds the nearest ones. Where rounds
 * would go on to compare everything the scan begins anew, exactly and in order,
 * and rows are given as they come.
 */
#include "plan/plan.h"

#include "miscadmin.h"
#include "utils/float.h"
#include "utils/memutils.h"

/*
 * Whether as many rows as wanted have passed, and nothing that the current
 * answer is still to propose can have a smaller value than the last of them; or
 * the same one, where these are wanted too.
 */
static bool
round_is_enough(const GpuannNode *node)
{
	const OperatorBounds *bounds = &node->scan->bounds_of_value;
	double		distance;
	double		most;

	if (node->passed.count < node->wanted)
		return false;
	if (!scan_peek(node->scan, &distance))
		return node->kind != NODE_TIES;
	most = operator_most(bounds, node->passed.rows[node->wanted - 1].distance);
	if (node->kind == NODE_TIES)
		return !value_not_after(operator_least(bounds, distance), most);
	return value_not_after(most, operator_least(bounds, distance));
}

/*
 * Before a further round: foresee how broad it has to be, from the share of
 * rows that passed.
 *
 * In steps it is as broad as the first page's next round while that has too few
 * rows; then twice as broad as the last, unless the share leaves nothing but to
 * compare everything.
 */
static void
foresee(GpuannNode *node)
{
	GpuannScan *scan = node->scan;
	uint64		page = node->wanted - node->skipped;
	bool		first_page = node->in_steps && node->passed.count < page;
	double		share = scan_share_seen((double) node->passed.count,
										(double) (node->judged - node->judged_before),
										node->expected);
	double		needed =
		scan_rows_needed((double) (first_page ? page : node->wanted), Min(share, 1));

	scan->least_ef = (uint32) Min(needed, ENGINE_MAX_SLOTS);
	if (node->in_steps && !first_page && !scan_round_is_dearer(scan, scan->least_ef))
		scan->least_ef = 0;
	scan->room = scan_room_for(Max(needed, EXACT_NEXT_ROOM));
}

/*
 * Before a further round, in steps: what whole pages before this one have shown
 * stays theirs. A row that a broader round finds among them comes on the first
 * page that this round answers.
 */
static void
settle(GpuannNode *node)
{
	uint64		page = node->wanted - node->skipped;

	if (node->in_steps)
		node->passed.settled = Min(node->passed.count / page * page, node->skipped);
}

/*
 * Gather the wanted rows by rounds of the graph.
 */
bool
gather_rows(GpuannNode *node)
{
	GpuannScan *scan = node->scan;
	ScanRow		row;

	while (!round_is_enough(node))
	{
		double		distance;
		bool		more = scan_peek(scan, &distance);

		if (more && distance > node->most_distance)
		{
			if (scan->stage == STAGE_GRAPH)
				return true;
			scan_end_answer(scan);
		}
		else if (!more && scan->stage == STAGE_GRAPH && scan->answered)
		{
			foresee(node);
			settle(node);
		}
		if (!scan_next_row(node->desc, &row))
			break;
		if (scan->stage == STAGE_EXACT || scan->stage == STAGE_ANY)
		{
			/* The stream begins with this row. */
			node->pushed = row;
			node->pushed_back = true;
			return false;
		}
		if (node_judge(node, &row))
		{
			node_keep(node);
			scan_rows_insert(scan, &node->passed, &row);
		}
	}
	return true;
}

/*
 * The next row of the scan that passes.
 */
static bool
next_streamed(GpuannNode *node, ScanRow *row, double *following)
{
	for (;;)
	{
		if (node->pushed_back)
			*row = node->pushed;
		else if (!scan_next_row(node->desc, row))
			return false;
		node->pushed_back = false;
		if (row->distance > node->most_distance)
		{
			if (node->scan->kind != SCAN_AS_FOUND || node->scan->stage == STAGE_EXACT ||
				node->wanted > 0)
				return false;
			scan_end_answer(node->scan);
			continue;
		}
		/* In heap order all were judged before the scan ranked them. */
		if (node->scan->passing == NULL && !node_judge(node, row))
			continue;
		node->streamed++;
		if (scan_peek(node->scan, following))
			return true;
		/* A last row need not wait for a further round of the graph. */
		*following = node->streamed == node->wanted && node->scan->stage == STAGE_GRAPH
						 ? get_float8_infinity()
						 : row->distance;
		return true;
	}
}

/*
 * The next row that passes.
 */
bool
next_passing(void *source, ScanRow *row, double *following)
{
	GpuannNode *node = source;
	ScanRows   *passed = &node->passed;

	if (!node->gathered)
		return next_streamed(node, row, following);
	if (passed->first == passed->count)
		return false;
	*row = passed->rows[passed->first++];
	*following = passed->first < passed->count ? passed->rows[passed->first].distance
											   : get_float8_infinity();
	return true;
}
