/*
 * scan_rounds.c
 *		The stages of a scan: which answers it asks for, round by round.
 *
 * A scan begins with one graph search. If the executor wants more rows than
 * that found, the search is continued or repeated with more breadth as long as
 * that is cheaper than comparing everything; then the rest is selected exactly.
 * See README.md, "Stages", for what gpuann.iterative_scan changes.
 *
 * gpuann.max_scan_tuples limits the rows that a scan visits. A row counts once,
 * however many searches of the scan visit it: a walk over pages continues where
 * it ended, and a search that starts again visits at least what the one before
 * did. Every row visited over pages is emitted once before the scan ends, even
 * if it is linked meanwhile; except for pending rows that exceed work_mem, for
 * which the ranges take as many others.
 */
#include "base/base.h"

#include <math.h>

#include "miscadmin.h"
#include "scan/scan.h"
#include "utils/memutils.h"

/*
 * Whether the set of emitted slots takes a quarter of work_mem.
 */
static bool
emitted_is_large(const GpuannScan *scan)
{
	return (Size) scan->emitted->mask * sizeof(uint32) > (Size) work_mem * 1024 / 4;
}

/*
 * Free the current answer.
 */
static void
drop_answer(GpuannScan *scan)
{
	if (scan->answer.results != NULL)
		pfree(scan->answer.results);
	scan->answer.results = NULL;
	scan->answer.count = 0;
	scan->next = 0;
}

/*
 * How many rows more gpuann.max_scan_tuples lets the scan visit.
 */
static uint32
visits_left(const GpuannScan *scan)
{
	if (scan->max_visited == GPUANN_UNSET)
		return PG_UINT32_MAX;
	return (uint32) (scan->max_visited - Min((uint64) scan->max_visited, scan->stats.visited));
}

/*
 * Whether gpuann.max_scan_tuples lets the scan compare every row, or it has
 * done so: rows visited before do not count again.
 */
static bool
may_visit_all(const GpuannScan *scan)
{
	return scan->compared_all || !scan_is_limited(&scan->bounds, scan->max_visited);
}

/*
 * How many rows the walk over pages may have visited in all, where they are
 * limited. It may visit what the first answer or the server's answers visited:
 * these are the same rows.
 */
static uint64
walk_most(const GpuannScan *scan)
{
	return Max(Min((uint64) scan->max_visited, scan_walk_room()), scan->stats.visited);
}

/*
 * How many rows a graph round is likely to visit, by those before.
 */
static double
visits_of(const GpuannScan *scan, uint32 ef)
{
	return (double) scan->stats.visited / scan->ef * ef;
}

/*
 * Whether the next graph round, of this breadth, is better done over pages,
 * where the rows that may be visited are limited.
 *
 * A server returns the nearest `ef` of the rows that it visits, and visits them
 * again when it is asked again. A walk over pages visits them too, but in the
 * end returns all that it visits. So the server is asked as long as the limit,
 * and the memory of the walk that follows, suffice for its next answer.
 */
static bool
is_time_to_walk(const GpuannScan *scan, uint32 ef)
{
	return ef > ENGINE_MAX_EF || emitted_is_large(scan) ||
		   visits_of(scan, ef) > Min((uint64) scan->max_visited, scan_walk_room());
}

/*
 * Whether a graph round of this breadth costs more than comparing every row, or
 * those that columns let pass.
 */
static bool
is_dearer(const GpuannScan *scan, uint32 ef)
{
	return scan_choosing_is_cheaper(scan, ef) || scan_graph_is_dearer(ef, scan->bounds.next_fresh,
								!scan->ask_server && !format_has_lists(scan->format) &&
								(scan->wants.filter.passes == NULL ||
								 !scan_is_leap(scan->ef, ef)));
}

/*
 * The breadth of the next graph round: twice the last one's. 0: another round
 * is not worth it, or not possible.
 */
static uint32
next_ef(const GpuannScan *scan)
{
	uint32		ef = Max(Min(scan->ef * 2, ENGINE_MAX_SLOTS), scan->least_ef);

	if (!scan->answer.more)
		return 0;
	if (may_visit_all(scan))
		return ef > ENGINE_MAX_EF || emitted_is_large(scan) || is_dearer(scan, ef) ? 0 : ef;
	if (scan->walk.scratch != NULL &&
		(emitted_is_large(scan) || scan->walk.visited >= walk_most(scan)))
		return 0;
	return ef;
}

/*
 * Set up a further graph round. Over pages it continues where the last one
 * ended, as long as half of work_mem holds what is visited. Beyond that a
 * limited scan has no more graph rounds; an unlimited one starts again.
 */
static void
prepare_round(GpuannScan *scan, uint32 ef)
{
	scan->round = (WalkRound) {.ef = ef, .go_on = true};
	if (!may_visit_all(scan))
	{
		scan->walks = scan->walks || is_time_to_walk(scan, ef);
		scan->round.most = walk_most(scan);
	}
	else if (visits_of(scan, ef) > scan_walk_room())
	{
		page_walk_end(&scan->walk);
		scan->round.go_on = false;
	}
}

/*
 * A round of the graph stage. False: it has no more rounds.
 */
static bool
graph_round(GpuannScan *scan)
{
	bool		first = scan->ef == 0;
	uint32		ef = first ? scan->first_ef : next_ef(scan);

	/*
	 * For many rows, or few that pass, an exact pass is cheaper from the start.
	 */
	if (first && scan->wants.ef == ef && may_visit_all(scan) &&
		(is_dearer(scan, ef) || scan_choosing_is_cheaper(scan, (double) scan->wants.rows)))
		ef = 0;
	if (ef == 0)
		return false;
	if (first)
		scan->round = (WalkRound) {.ef = ef, .go_on = scan->kind != SCAN_FIRST};
	else
		prepare_round(scan, ef);
	scan->ef = scan->stats.ef = ef;
	scan->stats.graph_rounds++;
	drop_answer(scan);
	source_by_graph(scan, &scan->answer);
	/*
	 * The last round would return all rows visited, far ones too: they are
	 * returned later, in order with those of a range.
	 */
	if (scan->round.most > 0 && scan->walk.scratch != NULL &&
		scan->walk.visited >= scan->round.most)
		scan->answer.count = 0;
	return true;
}

/*
 * A round of rows that the graph rounds have visited.
 */
static void
visited_round(GpuannScan *scan)
{
	drop_answer(scan);
	source_by_visited(scan, &scan->answer);
}

/*
 * Whether there are rows that no range has had, and they may be visited.
 */
static bool
has_range(const GpuannScan *scan)
{
	return visits_left(scan) > 0 && scan->range_next < scan->bounds.next_fresh;
}

/*
 * Search a range of rows that are not in skip: as many as may be visited and a
 * quarter of work_mem holds.
 */
static void
ask_for_range(GpuannScan *scan, const SlotSet *skip, ScanAnswer *answer)
{
	ExactRange	range = {.skip = skip, .from_slot = scan->range_next, .room = scan_range_room()};

	range.most = Min(visits_left(scan), range.room);
	source_exactly(scan, &range, answer);
	scan->range_next = answer->end_slot;
}

/*
 * A round of STAGE_RANGE.
 */
static void
range_round(GpuannScan *scan)
{
	drop_answer(scan);
	ask_for_range(scan, scan->emitted, &scan->answer);
}

/*
 * Begin to return what the graph rounds have visited. If rows are returned in
 * order, those of a range are merged with them: the walk has seen some of the
 * farthest rows, and after these a range would have nothing to return.
 */
static void
begin_visited(GpuannScan *scan)
{
	PageWalk   *walk = &scan->walk;
	SlotSet    *known = page_walk_collect(&scan->query, walk, scan->emitted);

	scan->stage = STAGE_VISITED;
	/* A range may visit what was neither returned nor will be. */
	scan->stats.visited = walk->visited;
	if (scan->kind == SCAN_ORDERED && has_range(scan))
	{
		ScanAnswer	others;

		ask_for_range(scan, known, &others);
		page_walk_add(walk, others.results, others.count);
		pfree(others.results);
	}
	slot_set_free(known);
	visited_round(scan);
}

/*
 * A round of STAGE_EXACT.
 *
 * After the graph an ordered scan continues beyond the last row emitted; one
 * that returns rows as they are found takes the nearest rows that were not
 * emitted. The first round of an ordered scan counts how many rows the graph
 * has missed, if it read the pages.
 */
static void
exact_round(GpuannScan *scan, bool first)
{
	bool		beyond_last = first && scan->kind == SCAN_ORDERED && scan->last.set;
	ExactRange	range = {.beyond = beyond_last ? scan->last : scan->cursor,
						 .skip = scan->emitted};

	if (scan_should_choose(scan))
		scan_choose(scan);
	else if (scan_should_judge(scan))
		scan_judge(scan);
	range.room = scan->room;
	if (scan->wants.set && !isinf(scan->wants.most_distance))
		range.until = (SearchBound){true, scan->wants.most_distance, NO_SLOT};
	scan->round_cursor = scan->cursor;
	scan->round_first = first;
	drop_answer(scan);
	source_exactly(scan, &range, &scan->answer);
	scan->compared_all = true;
	scan->stats.exact_passes++;
	if (beyond_last && scan->answer.before != PG_UINT32_MAX)
		scan->stats.tally.dropped += scan->answer.before;
	if (scan->answer.count > 0)
	{
		const SearchResult *end = &scan->answer.results[scan->answer.count - 1];

		scan->cursor = (SearchBound){true, end->distance, end->slot};
	}
	scan->room = scan_exact_room((uint64) scan->room * 8);
}

/*
 * A round of rows in any order.
 */
static void
any_round(GpuannScan *scan)
{
	uint32		room = scan_exact_room(EXACT_FIRST_ROOM);
	PageAnswer	pages;

	if (scan->answered)
		room = Min(room, visits_left(scan));
	drop_answer(scan);
	page_any_order(&scan->query, scan->cursor.slot, room, &pages);
	check_snapshot_age(scan->query.index, scan->snapshot);
	scan->answer = (ScanAnswer){.results = pages.results, .count = pages.count, .more = pages.more};
	scan->stats.visited += pages.count;
	if (pages.count > 0)
		scan->cursor.slot = pages.results[pages.count - 1].slot;
	scan->answered = true;
}

/*
 * Begin to compare every row.
 */
static void
begin_exact(GpuannScan *scan)
{
	scan->stage = STAGE_EXACT;
	page_walk_end(&scan->walk);
	/* From the nearest on: the caller forgets what it has gathered. */
	if (scan->kind == SCAN_GATHER)
		scan->emitted = NULL;
	/*
	 * The graph may have found any of the rows at the last distance: return the
	 * others.
	 */
	else if (scan->last.set)
		scan->last = (SearchBound) {true, nextafter(scan->last.distance, -INFINITY), NO_SLOT};
	exact_round(scan, true);
}

/*
 * Begin the next stage of a scan that may not visit all rows, with its first
 * round.
 */
static void
next_limited_stage(GpuannScan *scan)
{
	if (scan->stage == STAGE_GRAPH && scan->walk.scratch != NULL)
		begin_visited(scan);
	else if (has_range(scan))
	{
		scan->stage = STAGE_RANGE;
		page_walk_end(&scan->walk);
		range_round(scan);
	}
	else
		scan->stage = STAGE_DONE;
}

/*
 * Begin the next stage, with its first round.
 */
static void
next_stage(GpuannScan *scan)
{
	switch (scan->stage)
	{
		case STAGE_GRAPH:
			if (may_visit_all(scan))
				begin_exact(scan);
			else
				next_limited_stage(scan);
			break;
		case STAGE_VISITED:
		case STAGE_RANGE:
			next_limited_stage(scan);
			break;
		default:
			scan->stage = STAGE_DONE;
	}
}

/*
 * Get further answers. False: there are no more rows.
 */
bool
scan_next_round(GpuannScan *scan)
{
	bool		first = !scan->answered;

	switch (scan->stage)
	{
		case STAGE_GRAPH:
			if (!first && scan->kind == SCAN_FIRST)
				scan->stage = STAGE_DONE;
			else if (!graph_round(scan))
				next_stage(scan);
			break;
		case STAGE_VISITED:
			if (scan->answer.more)
				visited_round(scan);
			else
				next_stage(scan);
			break;
		case STAGE_EXACT:
			if (first || scan->answer.more)
				exact_round(scan, false);
			else
				next_stage(scan);
			break;
		case STAGE_ANY:
			if (first || (scan->answer.more && visits_left(scan) > 0))
				any_round(scan);
			else
				scan->stage = STAGE_DONE;
			break;
		case STAGE_RANGE:
			next_stage(scan);
			break;
		case STAGE_DONE:
			break;
	}
	return scan->stage != STAGE_DONE;
}

/*
 * The answer is false: repeat the round over pages, from the row on that was
 * not confirmed. What was emitted stays emitted.
 */
void
scan_redo_round(GpuannScan *scan)
{
	uint32		passed = scan->next - 1;

	source_leave_server(scan, FALLBACK_INVALID_ANSWER);
	if (scan->stage == STAGE_GRAPH)
	{
		drop_answer(scan);
		source_by_graph(scan, &scan->answer);
		return;
	}
	scan->cursor = scan->round_cursor;
	if (passed > 0)
		scan->cursor = (SearchBound){true, scan->answer.results[passed - 1].distance,
									 scan->answer.results[passed - 1].slot};
	exact_round(scan, scan->round_first && passed == 0);
}
