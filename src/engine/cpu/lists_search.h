/*
 * lists_search.h
 *		Searches of mirrors with lists. Private to the CPU engine.
 */
#ifndef GPUANN_LISTS_SEARCH_H
#define GPUANN_LISTS_SEARCH_H

#include "engine/cpu/cpu.h"

/* Lists that a query probes. */
static inline uint32_t
lists_probed(const QueryTask *task)
{
	uint32_t	lists = task->entry->mirror->spec.lists.lists;

	return task->in.probes < lists ? task->in.probes : lists;
}

/*
 * Search lists for a task and its group. Returns 0 when that is done, or into
 * how many parts, at most threads, the search is cut; these are then run, on any
 * threads, and merged.
 */
extern uint32_t query_run_lists(QueryTask *leader, uint32_t threads);
extern void query_run_lists_part(QueryTask *task, uint32_t part);
extern void query_merge_lists(QueryTask *task);

#endif							/* GPUANN_LISTS_SEARCH_H */
