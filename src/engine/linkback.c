/*
 * linkback.c
 *		Edges back: an old row takes in the new ones that chose it.
 *
 * A row is opened into its kept neighbours and its fill, takes in one newcomer after the other, and is written again. A long link remembers
 * the distances of rows, so that most of what is computed is between newcomers and kept neighbours.
 */
#include <string.h>

#include "link.h"
#include "openrow.h"

#define PREFETCH_KEPT		4		/* kept neighbours whose vectors are asked for before the first is compared */

/* Open a row that is remembered. */
static void
open_remembered(const Linking *linking, uint32_t target, OpenRow *row)
{
	uint32_t	neighbours[ENGINE_MAX_DEGREE];
	uint32_t	count = mirror_read_row(linking->mirror, target, linking->rows, neighbours);
	const float *distances = linking->memory.distances + (size_t) target * linking->rule.degree;

	row->nkept = row->nfill = 0;
	for (uint32_t i = 0; i < count; i++)
	{
		SearchResult entry = {distances[i], neighbours[i], 0};

		if (i < linking->memory.kept[target])
			open_row_insert(row->kept, &row->nkept, entry);
		else
			open_row_insert(row->fill, &row->nfill, entry);
	}
}

/* Open another: the kept come first, and where distances fall the fill begins (see prune.h). */
static void
open_row(const Linking *linking, const WideVector *wide, uint32_t target, OpenRow *row)
{
	uint32_t	neighbours[ENGINE_MAX_DEGREE];
	uint32_t	count = mirror_read_row(linking->mirror, target, linking->rows, neighbours);
	double		distances[ENGINE_MAX_DEGREE];

	row->nkept = row->nfill = 0;
	mirror_fast_many(linking->mirror, wide, neighbours, count, distances);
	for (uint32_t i = 0; i < count; i++)
	{
		open_row_read(row, (SearchResult) {distances[i], neighbours[i], 0});
	}
}

/* Write a row back, and remember it. */
static void
close_row(const Linking *linking, uint32_t target, const OpenRow *row)
{
	uint32_t	neighbours[ENGINE_MAX_DEGREE];
	float	   *distances = linking->memory.distances;

	for (uint32_t i = 0; i < row->nkept; i++)
		neighbours[i] = row->kept[i].slot;
	for (uint32_t i = 0; i < row->nfill; i++)
		neighbours[row->nkept + i] = row->fill[i].slot;
	mirror_write_row(linking->mirror, target, neighbours, row->nkept + row->nfill);
	if (distances == NULL)
		return;
	distances += (size_t) target * linking->rule.degree;
	for (uint32_t i = 0; i < row->nkept; i++)
		distances[i] = (float) row->kept[i].distance;
	for (uint32_t i = 0; i < row->nfill; i++)
		distances[row->nkept + i] = (float) row->fill[i].distance;
	linking->memory.kept[target] = (uint8_t) row->nkept;
}

/* Take in one more neighbour. */
static void
take_in(const PruneRule *rule, LinkAccess *access, OpenRow *row, SearchResult entry)
{
	for (uint32_t i = 0; entry.distance != rule->equal_distance && i < row->nkept && i < PREFETCH_KEPT; i++)
		mirror_prefetch(access->linking->mirror, row->kept[i].slot);
	open_row_take(rule, row, entry, link_pair_distance, access);
}

/* Give one target the edges back of a batch. */
void
link_update_target(void *context, uint32_t group, Worker *worker)
{
	Linking    *linking = context;
	LinkScratch *scratch = &worker->link;
	uint32_t	target = linking->sorted[linking->groups[group]].target;
	LinkAccess	access = {linking, worker};
	PruneRule	rule = linking->rule;
	bool		remembered = linking->memory.distances != NULL && linking->memory.kept[target] != ROW_UNKNOWN;
	OpenRow		row;

	if (!link_begin_slot(linking, scratch, target, &rule))
		return;
	if (remembered)
		open_remembered(linking, target, &row);
	else
		open_row(linking, &scratch->wide, target, &row);
	for (uint32_t i = linking->groups[group]; i < linking->groups[group + 1]; i++)
	{
		const BackEdge *edge = &linking->sorted[i];

		if (!open_row_has(&row, edge->source))
			take_in(&rule, &access, &row, (SearchResult) {edge->distance, edge->source, 0});
	}
	close_row(linking, target, &row);
}
