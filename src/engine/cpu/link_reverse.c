/*
 * link_reverse.c
 *		Reverse edges: add the edges from existing rows to the new rows that
 *		chose them.
 *
 * A row is read into its kept neighbours and its fill, takes in the new
 * neighbours one at a time, and is written back. A long link caches the
 * distances of rows, so that most distances computed are between new and kept
 * neighbours.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/link.h"
#include "engine/prune_incremental.h"

#define PREFETCH_KEPT		4		/* kept neighbours whose vectors are prefetched before the first
									 * comparison */

/* Write the row of a slot of the batch, and cache its distances. */
static void
write_new_row(const Linking *linking, uint32_t item)
{
	uint32_t	slot = linking->slots[linking->first + item];
	uint32_t	degree = linking->rule.degree;
	uint32_t	count = linking->nchosen[item];
	const Chosen *chosen = linking->chosen + (size_t) item * degree;
	uint32_t	neighbours[ENGINE_MAX_DEGREE] = {0};

	for (uint32_t i = 0; i < count; i++)
		neighbours[i] = chosen[i].slot;
	mirror_write_row(linking->mirror, slot, neighbours, count);
	if (linking->cache.distances == NULL)
		return;
	for (uint32_t i = 0; i < count; i++)
		linking->cache.distances[(size_t) slot * degree + i] = chosen[i].distance;
	linking->cache.kept[slot] = linking->nkept[item];
}

/* Read a row whose distances are cached. */
static void
read_cached_row(const Linking *linking, uint32_t target, IncrementalRow *row)
{
	uint32_t	neighbours[ENGINE_MAX_DEGREE];
	uint32_t	count = mirror_read_row(linking->mirror, target, linking->rows, neighbours);
	const float *cached = linking->cache.distances + (size_t) target * linking->rule.degree;
	double		distances[ENGINE_MAX_DEGREE];

	for (uint32_t i = 0; i < count; i++)
		distances[i] = cached[i];
	incremental_read(row, neighbours, distances, count, linking->cache.kept[target]);
}

/* Read a row, computing its distances. */
static void
read_measured_row(const Linking *linking, const WideVector *wide, uint32_t target,
				  IncrementalRow *row)
{
	uint32_t	neighbours[ENGINE_MAX_DEGREE];
	uint32_t	count = mirror_read_row(linking->mirror, target, linking->rows, neighbours);
	double		distances[ENGINE_MAX_DEGREE];

	mirror_fast_many(linking->mirror, wide, neighbours, count, distances);
	incremental_read(row, neighbours, distances, count, row_kept(distances, count));
}

/* Write a row back, and cache its distances. */
static void
write_old_row(const Linking *linking, uint32_t target, const IncrementalRow *row)
{
	uint32_t	neighbours[ENGINE_MAX_DEGREE];
	float      *distances = linking->cache.distances;

	if (distances != NULL)
	{
		distances += (size_t) target * linking->rule.degree;
		linking->cache.kept[target] = (uint8_t) row->nkept;
	}
	mirror_write_row(linking->mirror, target, neighbours,
					 incremental_write(row, neighbours, distances));
}

/* Add one neighbour to a row. */
static void
add_reverse_edge(const PruneRule *rule, LinkAccess *access, IncrementalRow *row, SearchResult entry)
{
	for (uint32_t i = 0;
		 entry.distance != rule->equal_distance && i < row->nkept && i < PREFETCH_KEPT; i++)
		mirror_prefetch(access->linking->mirror, row->kept[i].slot);
	incremental_take(rule, row, entry, link_pair_distance, access);
}

/* Prefetch what updating a target reads first. */
static void
prefetch_target(const Linking *linking, uint32_t target)
{
	const char *distances;

	mirror_prefetch_row(linking->mirror, target);
	if (linking->cache.distances == NULL)
		return;
	distances = (const char *) (linking->cache.distances + (size_t) target * linking->rule.degree);
	__builtin_prefetch(&linking->cache.kept[target]);
	for (size_t at = 0; at < linking->rule.degree * sizeof(float); at += 64)
		__builtin_prefetch(distances + at);
}

/* Add the reverse edges of one target. */
static void
update_target(Linking *linking, const BackEdge *edges, uint32_t count, CpuWorker *worker)
{
	LinkScratch *scratch = &worker->link;
	uint32_t	target = edges->target;
	LinkAccess	access = {linking, worker};
	PruneRule	rule = linking->rule;
	bool cached =
		linking->cache.distances != NULL && linking->cache.kept[target] != NOT_CACHED;
	IncrementalRow row;

	if (!link_begin_slot(linking, scratch, target, !cached, &rule))
		return;
	if (cached)
		read_cached_row(linking, target, &row);
	else
		read_measured_row(linking, &scratch->wide, target, &row);
	for (uint32_t i = 0; i < count; i++)
	{
		uint32_t	source = linking->slots[linking->first + (uint32_t) edges[i].item];

		if (!incremental_has(&row, source))
			add_reverse_edge(&rule, &access, &row, (SearchResult) {edges[i].distance, source, 0});
	}
	write_old_row(linking, target, &row);
}

/* Order: by target, the target's own row first, then by index in the batch. */
static int
compare_edges(const void *left, const void *right)
{
	const BackEdge *a = left;
	const BackEdge *b = right;

	if (a->target != b->target)
		return a->target < b->target ? -1 : 1;
	return a->item < b->item ? -1 : a->item > b->item;
}

/*
 * Update the targets of a range: write those in the batch first, then add
 * reverse edges.
 */
void
link_update_range(void *context, uint32_t range, CpuWorker *worker)
{
	Linking    *linking = context;
	BackEdge   *edges = linking->edges + linking->ranges[range];
	uint32_t	count = linking->ranges[range + 1] - linking->ranges[range];
	uint32_t	end;

	qsort(edges, count, sizeof(BackEdge), compare_edges);
	for (uint32_t i = 0; i < count; i = end)
	{
		for (end = i + 1; end < count && edges[end].target == edges[i].target;)
			end++;
		if (end < count)
			prefetch_target(linking, edges[end].target);
		link_mark_changed(linking, edges[i].target);
		if (edges[i].item < 0)
			write_new_row(linking, (uint32_t) ~edges[i++].item);
		if (i < end)
			update_target(linking, edges + i, end - i, worker);
	}
}
