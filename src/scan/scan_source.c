/*
 * scan_source.c
 *		Where a scan's answers come from: the server, completed by the list
 *		entries that it had not seen; or the pages.
 *
 * Once the server has failed a scan, the scan stays with the pages.
 */
#include "postgres.h"

#include "scan/scan.h"

#include "client/shmem.h"
#include "engine/select.h"
#include "utils/memutils.h"

#define MAX_SERVER_ROOM 65536	/* of an exact round */

/*
 * Read the metapage, unless that was done. A nonce other than 0 cannot have
 * changed since it was cached.
 */
void
scan_read_meta(GpuannScan *scan)
{
	if (!scan->meta_read)
		pending_begin(scan->query.index, &scan->meta, &scan->bounds);
	scan->meta_read = true;
}

/*
 * Determine whether to ask the server.
 */
void
source_begin(GpuannScan *scan)
{
	FallbackReason why = FALLBACK_NONE;

	scan->mirror = client_mirror(scan->query.index, &scan->meta, &why);
	scan->ask_server = why == FALLBACK_NONE;
	if (why != FALLBACK_NONE)
	{
		scan->stats.tally.why = why;
		fallback_report(scan->query.index, why);
	}
}

/*
 * Take the page path from here on.
 */
void
source_leave_server(GpuannScan *scan, FallbackReason why)
{
	scan->ask_server = false;
	scan->stats.tally.why = why;
	fallback_report(scan->query.index, why);
}

/*
 * Count the rows that a search of the scan has visited. Each search visits what
 * the one before did, and more, so the last count is that of all; a range adds
 * to it.
 */
static void
note_visited(GpuannScan *scan, uint64 rows)
{
	scan->stats.visited = Max(scan->stats.visited, rows);
}

/*
 * How many of ordered results are not after a bound.
 */
static uint32
count_until(const SearchResult *results, uint32 count, const SearchResult *bound)
{
	while (count > 0 && result_before(bound, &results[count - 1]))
		count--;
	return count;
}

/*
 * Merge two ordered answers, at most room. A full answer does not cover rows
 * after its last, so the merged one ends there. A mirror that is behind may
 * name the row that a slot had before: then both are proposed.
 */
static void
source_merge(const ServerAnswer *server, bool server_full, const PageAnswer *pending, uint32 room,
			 ScanAnswer *answer)
{
	uint32		na = server->count;
	uint32		nb = pending->count;

	if (server_full && na > 0)
		nb = count_until(pending->results, nb, &server->results[na - 1]);
	if (pending->more && pending->count > 0)
		na = count_until(server->results, na, &pending->results[pending->count - 1]);
	answer->results =
		palloc_extended(sizeof(SearchResult) * (Size) Max(Min(na + nb, room), 1), MCXT_ALLOC_HUGE);
	answer->more = !merge_results(server->results, na, pending->results, nb, room,
								  answer->results, &answer->count) ||
		server_full || pending->more;
}

/*
 * Keep those of some slots whose columns let their rows pass; returns how many.
 */
static uint32
columns_keep(const GpuannScan *scan, uint32 *slots, uint32 count)
{
	uint32		kept = 0;

	for (uint32 i = 0; i < count; i++)
		if (scan_columns_pass(scan, slots[i]))
			slots[kept++] = slots[i];
	return kept;
}

/*
 * The same of an answer that leaves nothing out.
 */
static void
columns_keep_rows(const GpuannScan *scan, PageAnswer *answer)
{
	uint32		kept = 0;

	Assert(!answer->more);
	for (uint32 i = 0; i < answer->count; i++)
		if (scan_columns_pass(scan, answer->results[i].slot))
			answer->results[kept++] = answer->results[i];
	answer->count = kept;
}

/*
 * Search those list entries that the server's mirror had not seen and that are
 * in the set, or that the columns let pass. False: they have been trimmed.
 */
static bool
search_unseen_passing(GpuannScan *scan, uint64 from, const ExactRange *range, PageAnswer *pending)
{
	ExactRange	unseen = *range;
	uint32	   *slots;
	uint32		count;

	scan_read_meta(scan);
	unseen.skip = NULL;
	if (!page_pending_slots(&scan->query, from, &slots, &count))
		return false;
	count = scan->passing != NULL ? passing_keep(scan, slots, count)
								  : columns_keep(scan, slots, count);
	page_listed_search(&scan->query, slots, count, &unseen, pending);
	if (slots != NULL)
		pfree(slots);
	return true;
}

/*
 * Search the list entries that the server's mirror had not seen; `full`: its
 * answer does not cover rows after its last; `by_columns`: only what the
 * columns let pass. False: they have been trimmed.
 */
static bool
search_unseen(GpuannScan *scan, const ServerAnswer *server, bool full, const ExactRange *range,
			  bool by_columns, PageAnswer *pending)
{
	ExactRange	unseen = *range;
	SearchBound until = {.set = false};

	memset(pending, 0, sizeof(*pending));
	if (server->position >= scan->bounds.end)
		return true;
	if (scan->passing != NULL)
		return search_unseen_passing(scan, server->position, range, pending);
	if (full && server->count > 0)
		until = (SearchBound){true, server->results[server->count - 1].distance,
							  server->results[server->count - 1].slot};
	if (!range->beyond.set &&
		scan_unmirrored_search(scan, server->position, &until, pending))
	{
		if (by_columns)
			columns_keep_rows(scan, pending);
		return true;
	}
	if (by_columns)
		return search_unseen_passing(scan, server->position, range, pending);
	scan_read_meta(scan);
	/*
	 * All that the mirror returns is checked against its node record, rows
	 * newer than our bounds too.
	 */
	unseen.skip = NULL;
	return page_pending_search(&scan->query, server->position, &unseen, pending);
}

/*
 * If the index has lists, make a query of the graph stage one of lists.
 */
void
source_plan_query(Relation index, const IndexFormat *format, ServerQuery *query, uint32 *lists)
{
	ListsPlan	plan;

	*lists = 0;
	if (query->method != METHOD_GRAPH || !format_has_lists(format))
		return;
	page_lists_plan(index, format, query->ef, &plan);
	query->method = METHOD_IVFPQ;
	query->probes = plan.probes;
	query->rerank = plan.rerank;
	*lists = plan.lists;
}

/*
 * Whether an answer may leave out rows after its last. One of few rows that a
 * program lets pass is exact, however it was asked for; then no list is read.
 */
static bool
answer_is_full(const ServerQuery *query, const ServerAnswer *server, uint32 lists)
{
	if (query->program != NULL &&
		(query->method != METHOD_IVFPQ || server->counters.expanded == 0))
		return server->count >= query->k;
	return server->count >= query->k ||
		   (query->method == METHOD_GRAPH && server->counters.expanded >= query->ef) ||
		   (query->method == METHOD_IVFPQ && query->probes < lists);
}

/*
 * Take the answer that was requested in a batch before the scan began, if its
 * query is the one that the scan has now.
 */
static bool
take_first_answer(GpuannScan *scan, const ServerQuery *query, ServerAnswer *answer, uint64 *changes)
{
	FirstAnswer *first = scan->first;

	if (first == NULL || !first->set || scan->answered || query->beyond.set ||
		query->method != first->query.method || query->k != first->query.k ||
		query->ef != first->query.ef || query->probes != first->query.probes ||
		query->rerank != first->query.rerank || query->program != first->query.program ||
		scan->mirror.entry != first->mirror.entry ||
		scan->mirror.generation != first->mirror.generation)
		return false;
	*answer = first->answer;
	*changes = first->changes;
	first->set = false;
	return true;
}

/*
 * Whether all that the server names is in the set: a filter that rows have
 * passed in heap order is not shown them again.
 */
static bool
all_passed(GpuannScan *scan, const ServerAnswer *server)
{
	uint32	   *slots =
		palloc_extended(mul_size(Max(server->count, 1), sizeof(uint32)), MCXT_ALLOC_HUGE);
	uint32		passed;

	for (uint32 i = 0; i < server->count; i++)
		slots[i] = server->results[i].slot;
	passed = passing_keep(scan, slots, server->count);
	pfree(slots);
	return passed == server->count;
}

/*
 * Count what an answer of the server, completed by list entries, has cost.
 */
static void
count_server(GpuannScan *scan, const ServerQuery *query, const ServerAnswer *server,
			 const PageAnswer *pending)
{
	LastScan   *stats = &scan->stats;

	stats->queue_us += server->counters.queue_us;
	stats->engine_us += server->counters.engine_us;
	note_visited(scan, server->counters.distances + pending->visited);
	if (query->method == METHOD_IVFPQ)
		stats->probes = Max(stats->probes, server->counters.expanded);
	stats->pending += pending->pending + server->counters.pending;
	stats->tally.pending += pending->pending;
	if (scan->answered)
		return;
	stats->tally.server = true;
	stats->batch = server->batch;
	shmem_copy_text(stats->engine, sizeof(stats->engine), gpuann_area->engine,
					sizeof(gpuann_area->engine));
}

/*
 * Ask the server, and search the list entries that its mirror had not seen.
 * False: take the page path.
 */
static bool
ask_server(GpuannScan *scan, SearchMethod method, uint32 ef, const ExactRange *range,
		   ScanAnswer *answer)
{
	const SetName *set = NULL;
	ServerQuery query = {
		.vector = scan->query.vector, .vector_bytes = scan->format->vector_bytes, .method = method,
		.k = range->room, .ef = ef, .beyond = range->beyond
	};
	ServerAnswer server;
	PageAnswer	pending;
	uint64		changes = client_changes(scan->mirror);
	FallbackReason why = FALLBACK_NONE;
	uint32		lists;
	bool		full;

	if (scan->passing != NULL)
	{
		why = passing_send(scan, &set);
		if (why != FALLBACK_NONE)
			source_leave_server(scan, why);
		if (set == NULL)
			return false;
		query.set = *set;
	}
	else if (scan_sends_program(scan) &&
			 !(scan->wants.columns.late && method == METHOD_GRAPH && !scan->answered))
		query.program = scan->wants.columns.program;
	source_plan_query(scan->query.index, scan->format, &query, &lists);
	if (!take_first_answer(scan, &query, &server, &changes))
		why = client_search(scan->mirror, &query, &server);
	if (why == FALLBACK_NONE && set != NULL && !all_passed(scan, &server))
		why = FALLBACK_INVALID_ANSWER;
	full = answer_is_full(&query, &server, lists);
	if (why == FALLBACK_NONE &&
		!search_unseen(scan, &server, full, range, query.program != NULL, &pending))
		why = FALLBACK_BEHIND;
	if (why != FALLBACK_NONE)
	{
		source_leave_server(scan, why);
		return false;
	}
	if (pending.count == 0 && !pending.more)
	{
		/* The usual case: the server's answer is complete. */
		answer->results = server.results;
		answer->count = server.count;
		answer->more = full;
	}
	else
		source_merge(&server, full && server.count > 0, &pending, range->room, answer);
	answer->more = answer->more || full;
	answer->before = PG_UINT32_MAX;
	answer->of_server = true;
	answer->changes = changes;
	answer->position = server.position;
	answer->by_columns = query.program != NULL;
	scan->stats.server_ranked = set != NULL || query.program != NULL;
	if (query.program != NULL)
	{
		scan->stats.by_columns = true;
		scan->stats.chosen = server.passing;
	}
	count_server(scan, &query, &server, &pending);
	if (server.results != NULL && server.results != answer->results)
		pfree(server.results);
	return true;
}

/*
 * Store the pages' answer.
 */
static void
take_pages(GpuannScan *scan, const PageAnswer *pages, ScanAnswer *answer)
{
	answer->results = pages->results;
	answer->count = pages->count;
	answer->more = pages->more;
	answer->before = pages->before;
	answer->end_slot = pages->end_slot;
	answer->of_server = answer->by_columns = false;
	note_visited(scan, pages->added > 0 ? scan->stats.visited + pages->added : pages->visited);
	scan->stats.probes = Max(scan->stats.probes, pages->probes);
	scan->stats.pending += pages->pending;
	scan->stats.server_ranked = false;
	scan->stats.by_columns = scan->chosen;
	scan->stats.tally.pending += pages->pending;
}

/*
 * Whether the server is asked for this answer.
 */
static bool
is_for_server(const GpuannScan *scan, SearchMethod method, const ExactRange *range)
{
	if (method == METHOD_GRAPH)
		return scan->ask_server && !scan->walks;
	return scan->ask_server && range->most == 0;
}

/*
 * Ask the server, if it is to be asked, and search the pages if it does not
 * answer.
 */
static void
source_ask_server(GpuannScan *scan, SearchMethod method, uint32 ef, const ExactRange *range,
				  ScanAnswer *answer)
{
	MemoryContext old = MemoryContextSwitchTo(scan->memory);
	ExactRange	asked = *range;
	PageAnswer	pages;

	asked.room = Min(asked.room, MAX_SERVER_ROOM);
	if (!is_for_server(scan, method, range) || !ask_server(scan, method, ef, &asked, answer))
	{
		scan_read_meta(scan);
		/* The server was to evaluate the columns. */
		if (method == METHOD_EXACT && scan->wants.columns.sent && scan_should_choose(scan))
			scan_choose(scan);
		if (method == METHOD_GRAPH && format_has_lists(scan->format))
			page_lists_round(&scan->query, &scan->round, &pages);
		else if (method == METHOD_GRAPH)
			page_walk_round(&scan->query, &scan->walk, &scan->round, &pages);
		else if (scan->passing != NULL)
			passing_rank(scan, range, &pages);
		else
			page_exact_search(&scan->query, range, &pages);
		take_pages(scan, &pages, answer);
	}
	/* After everything was read, here or by the mirror's worker before. */
	check_snapshot_age(scan->query.index, scan->snapshot);
	scan->stats.tally.continuations += scan->answered;
	scan->answered = true;
	MemoryContextSwitchTo(old);
}

/*
 * Run the graph round that was set up.
 */
void
source_by_graph(GpuannScan *scan, ScanAnswer *answer)
{
	ExactRange	nearest = {.room = scan->round.ef};

	source_ask_server(scan, METHOD_GRAPH, scan->round.ef, &nearest, answer);
}

/*
 * Get the rows that the walk over pages has visited and the scan has not
 * emitted.
 */
void
source_by_visited(GpuannScan *scan, ScanAnswer *answer)
{
	MemoryContext old = MemoryContextSwitchTo(scan->memory);
	PageAnswer	pages;

	page_walk_rest(&scan->query, &scan->walk, scan->emitted, VISITED_ROOM, &pages);
	take_pages(scan, &pages, answer);
	scan->stats.tally.continuations++;
	MemoryContextSwitchTo(old);
}

/*
 * Search a range exactly.
 */
void
source_exactly(GpuannScan *scan, const ExactRange *range, ScanAnswer *answer)
{
	source_ask_server(scan, METHOD_EXACT, 1, range, answer);
}
