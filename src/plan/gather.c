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
 * and rows are given as they come: behind those that pages before have shown.
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
 * rows; then twice as broad as the last, as for every other page: what a page
 * itself lacks must not decide which rounds come before it.
 */
static void
foresee(GpuannNode *node)
{
	GpuannScan *scan = node->scan;
	uint64		page = node->wanted - node->skipped;
	bool		first_page = node->in_steps && node->passed.count < page;
	uint64		judged = node->judged - node->judged_before;
	double		expected = node->expected;
	double		share;
	double		needed;

	/* What columns exclude is no more among the answers. */
	if (scan_sends_program(scan) && scan->wants.columns.late)
	{
		judged -= node->excluded - node->excluded_before;
		expected = node_share_sent(node);
	}
	share = scan_share_seen((double) node->passed.count, (double) judged, expected);
	needed = scan_rows_needed((double) (first_page ? page : node->wanted), Min(share, 1));
	scan->least_ef = (uint32) Min(needed, ENGINE_MAX_SLOTS);
	if (node->in_steps && !first_page)
		scan->least_ef = 0;
	scan->room = scan_room_for(Max(needed, EXACT_NEXT_ROOM));
}

/*
 * The next of the rows that were gathered.
 */
static bool
next_gathered(void *source, ScanRow *row, double *following)
{
	ScanRows   *passed = source;

	if (passed->first == passed->count)
		return false;
	*row = passed->rows[passed->first++];
	*following = passed->first < passed->count ? passed->rows[passed->first].distance
											   : get_float8_infinity();
	return true;
}

/*
 * Before a further round, or an exact pass, in steps: what whole pages before
 * this one have shown stays theirs, in the order in which they have shown it.
 * A row that comes later and is nearer is on the first page that its round
 * answers.
 */
static void
settle(GpuannNode *node)
{
	ScanRows   *passed = &node->passed;
	uint64		page = node->wanted - node->skipped;
	uint64		settled = passed->settled;
	uint64		rest = passed->count;
	RowOrder	order = {.next = next_gathered, .source = passed};
	ScanRow    *shown;
	uint64		count;

	if (!node->in_steps)
		return;
	count = Min(passed->count / page * page, node->skipped) - settled;
	if (count == 0)
		return;
	if (node->settled_slots == NULL)
		node->settled_slots = slot_set_create(node->memory);
	shown = MemoryContextAllocHuge(node->memory, count * sizeof(ScanRow));
	passed->first = settled;
	for (uint64 i = 0; i < count; i++)
	{
		bool		there PG_USED_FOR_ASSERTS_ONLY =
			scan_next_in_order(node->desc, &order, &shown[i]);

		Assert(there);
		slot_set_add(node->settled_slots, shown[i].slot);
	}
	passed->first = 0;
	/* The others keep their order, by distance, behind these. */
	for (uint64 i = passed->count; i-- > settled;)
		if (!slot_set_has(node->settled_slots, passed->rows[i].slot))
			passed->rows[--rest] = passed->rows[i];
	memcpy(passed->rows + settled, shown, count * sizeof(ScanRow));
	pfree(shown);
	passed->settled += count;
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

		if (scan_peek(scan, &distance) && distance > node->most_distance)
		{
			if (scan->stage == STAGE_GRAPH)
				return true;
			scan_end_answer(scan);
		}
		/*
		 * The results left may all be rows that rounds before had found, so
		 * only now it is known that this round is over.
		 */
		if (!scan_next_in_answer(node->desc, &row))
		{
			if (round_is_enough(node))
				break;
			if (scan->stage == STAGE_GRAPH && scan->answered)
			{
				foresee(node);
				settle(node);
			}
			if (!scan_next_row(node->desc, &row))
				break;
		}
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
		if (node->settled_slots != NULL && slot_set_has(node->settled_slots, row->slot))
			continue;
		/* In heap order all were judged before the scan ranked them. */
		if (!node->scan->judged && !node_judge(node, row))
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
 * The next row that passes. A stream follows what rounds before have settled.
 */
bool
next_passing(void *source, ScanRow *row, double *following)
{
	GpuannNode *node = source;
	const ScanRows *passed = &node->passed;

	if (!node->gathered && passed->first == passed->settled)
		return next_streamed(node, row, following);
	return next_gathered(&node->passed, row, following);
}
