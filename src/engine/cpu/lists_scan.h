/*
 * lists_scan.h
 *		One query's scan of lists' codes, and the re-ranking of the rows it
 *		chose. Private to the CPU engine.
 *
 * Which rows are chosen depends on their codes alone, not on their order: parts
 * of a query may scan lists in any order on any threads, and are merged.
 */
#ifndef GPUANN_LISTS_SCAN_H
#define GPUANN_LISTS_SCAN_H

#include "engine/cpu/lists.h"

typedef enum ListChoice
{
	CHOOSE_BY_BOUND,			/* rows whose lower bound is not above the k-th upper bound */
	CHOOSE_BY_ESTIMATE,			/* a given number of rows, the nearest by estimate */
	CHOOSE_ALL
} ListChoice;

typedef struct ListScan
{
	QueryTask  *task;
	const void *tables;
	ListChoice	choice;
	float		limit;			/* bounds, or estimates, above it are not chosen */
	_Atomic float *shared;		/* the least limit of all parts; or NULL */
	SearchResult *near;			/* heap, farthest first: the k least upper bounds; or the least
								 * estimates, with the bits of their lower bounds as versions */
	uint32_t	nnear;
	uint32_t	near_room;
	SearchResult *chosen;		/* lower bounds and slots; not by estimate */
	uint32_t	nchosen;
	uint32_t	chosen_room;
	uint32_t	estimated;		/* codes */
	bool		no_memory;
} ListScan;

/*
 * Begin a scan of at most this many places; false: out of memory. The end frees
 * its memory.
 */
extern bool list_scan_begin(ListScan *scan, QueryTask *task, const void *tables, uint64_t places,
							_Atomic float *shared);
extern void list_scan_end(ListScan *scan);

/*
 * Scan `places` codes of a block of a list at this distance; by its
 * co-occurrence codes, if the block has not changed since they were made. words
 * may be NULL.
 */
extern void list_scan_block(ListScan *scan, const ListBlock *block, uint32_t places, float base,
							const BlockWords *words, uint32_t words_changes);

/* Merge the rows chosen by another part of the query, which is emptied. */
extern void list_scan_merge(ListScan *scan, ListScan *other);

/*
 * Compute the exact distances of the rows chosen, nearest lower bounds first,
 * until these exclude the rest. The answers, up to k, are in task->results
 * behind the first k places, of which the pending rows have npending. Returns
 * how many.
 */
extern uint32_t list_scan_rerank(ListScan *scan, uint32_t npending);

#endif							/* GPUANN_LISTS_SCAN_H */
