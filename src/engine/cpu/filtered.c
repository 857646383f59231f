/*
 * filtered.c
 *		Queries under conditions: a program's rows as the query's filter, and by
 *		their number the way of search.
 *
 * A graph search is as good as its breadth, of which only admitted rows count:
 * it is made broader as there are fewer of them. It then computes some
 * DISTANCES_EXPANDED distances for each slot of the breadth, at addresses far
 * apart, while a scan of the admitted rows computes each one's. Where the scan
 * is not dearer it is run: its answer is exact, wherever the rows lie.
 */
#include <stdlib.h>

#include "engine/bits.h"
#include "engine/cpu/lists_search.h"

#define DISTANCES_EXPANDED	16		/* of a graph search for each slot expanded: half its row has
									 * been visited */
#define CODES_ESTIMATED		8		/* in the time of one row's distance */
#define ANSWERS_EXPECTED	4		/* in the lists probed there are so many times k */

void
query_count_admitted(QueryTask *task)
{
	const EngineQuery *in = &task->in;
	uint32_t	slots = in->filter_slots < in->rows ? in->filter_slots : in->rows;
	uint32_t	admitted = 0;

	for (uint32_t i = 0; i < slots / 64; i++)
		admitted += (uint32_t) __builtin_popcountll(in->filter[i]);
	if (slots % 64 != 0)
		admitted += (uint32_t) __builtin_popcountll(in->filter[slots / 64] &
													((UINT64_C(1) << slots % 64) - 1));
	task->admitted = admitted;
}

/*
 * Set the rows that pass the program as the query's filter, or remove the others
 * from the filter that it has.
 */
static void
apply_filter(QueryTask *task)
{
	EngineQuery *in = &task->in;
	const RowFilter *passing = task->row_filter;
	uint64_t   *filter = (uint64_t *) in->filter;
	uint32_t	slots = in->filter_slots < in->rows ? in->filter_slots : in->rows;

	if (filter == NULL)
	{
		in->filter = passing->bits;
		in->filter_slots = in->rows;
		return;
	}
	for (uint32_t i = 0; i < (slots + 63) / 64; i++)
		filter[i] &= passing->bits[i];
	in->filter_slots = slots;
}

void
query_evaluate(QueryTask *task)
{
	const EngineQuery *in = &task->in;
	RowFilter  *passing = row_filters_find(task->entry->mirror, in->program, in->rows,
										   task->overwrites);

	task->row_filter = passing;
	if (passing == NULL)
	{
		task->status = engine_error(&task->error, ENGINE_NO_MEMORY,
									"out of memory for a condition on %u rows", in->rows);
		return;
	}
	task->in.passing = passing->passing;
	for (uint32_t slot = in->rows; slot < passing->rows; slot++)
		task->in.passing -= bit64_is_set(passing->bits, slot);
	apply_filter(task);
	query_count_admitted(task);
}

uint32_t
query_breadth(const QueryTask *task)
{
	const EngineQuery *in = &task->in;
	uint64_t	breadth = in->ef > in->k ? in->ef : in->k;

	if (in->filter == NULL || in->reference || in->max_iterations > 0 || task->admitted == 0)
		return (uint32_t) breadth;
	breadth = breadth * in->rows / task->admitted;
	return breadth < ENGINE_MAX_EF ? (uint32_t) breadth : ENGINE_MAX_EF;
}

bool
query_admits_few(const QueryTask *task)
{
	const EngineQuery *in = &task->in;
	uint64_t	lists;
	uint64_t	probes;

	if (in->filter == NULL || in->method == METHOD_EXACT || in->reference ||
		in->max_iterations > 0)
		return false;
	if (in->method == METHOD_GRAPH)
		return task->admitted <= (uint64_t) query_breadth(task) * DISTANCES_EXPANDED;
	lists = task->entry->mirror->spec.lists.lists;
	probes = lists_probed(task);
	return (uint64_t) task->admitted * lists * CODES_ESTIMATED <= in->rows * probes ||
		task->admitted * probes < (uint64_t) in->k * lists * ANSWERS_EXPECTED;
}

void
query_run_few(QueryTask *task)
{
	task->results = malloc(task->in.k * sizeof(SearchResult));
	if (task->results == NULL)
	{
		task->status = engine_error(&task->error, ENGINE_NO_MEMORY, "out of memory for %u results",
									task->in.k);
		return;
	}
	query_scan_all(task);
	task->status = ENGINE_OK;
}
