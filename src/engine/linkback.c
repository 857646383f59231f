/*
 * linkback.c
 *		Edges back: an old row takes in the new ones that chose it.
 *
 * A row is opened into its kept neighbours and its fill, takes in one newcomer after the other, and is written again. A long link remembers
 * the distances of rows, so that most of what is computed is between newcomers and kept neighbours.
 */
#include <string.h>

#include "link.h"
#include "select.h"

#define PREFETCH_KEPT		4		/* kept neighbours whose vectors are asked for before the first is compared */

/*
 * A graph row that takes in new neighbours one at a time. Kept ones are hidden by no nearer kept one; the others fill the row. Both
 * nearest first.
 */
typedef struct OpenRow
{
	SearchResult kept[ENGINE_MAX_DEGREE + 1];
	uint32_t	nkept;
	SearchResult fill[ENGINE_MAX_DEGREE + 1];
	uint32_t	nfill;
} OpenRow;

/* Put an entry in its place. */
static void
insert_sorted(SearchResult *entries, uint32_t *count, SearchResult entry)
{
	uint32_t	place = (*count)++;

	for (; place > 0 && result_before(&entry, &entries[place - 1]); place--)
		entries[place] = entries[place - 1];
	entries[place] = entry;
}

static void
remove_at(SearchResult *entries, uint32_t *count, uint32_t place)
{
	memmove(&entries[place], &entries[place + 1], (*count - place - 1) * sizeof(SearchResult));
	(*count)--;
}

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
			insert_sorted(row->kept, &row->nkept, entry);
		else
			insert_sorted(row->fill, &row->nfill, entry);
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
		SearchResult entry = {distances[i], neighbours[i], 0};

		if (row->nfill == 0 && (row->nkept == 0 || entry.distance >= row->kept[row->nkept - 1].distance))
			insert_sorted(row->kept, &row->nkept, entry);
		else
			insert_sorted(row->fill, &row->nfill, entry);
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

static bool
row_has(const OpenRow *row, uint32_t slot)
{
	for (uint32_t i = 0; i < row->nkept; i++)
		if (row->kept[i].slot == slot)
			return true;
	for (uint32_t i = 0; i < row->nfill; i++)
		if (row->fill[i].slot == slot)
			return true;
	return false;
}

/* Take in a duplicate of the target: of these the lowest random ranks stay. */
static void
take_in_equal(const PruneRule *rule, OpenRow *row, SearchResult entry)
{
	uint32_t	equals = 0;
	uint32_t	worst = 0;

	for (uint32_t i = 0; i < row->nkept && row->kept[i].distance == entry.distance; i++, equals++)
		if (equal_rank(row->kept[i].slot, rule->self) > equal_rank(row->kept[worst].slot, rule->self))
			worst = i;
	if (equals >= rule->max_equal)
	{
		if (equals == 0 || equal_rank(row->kept[worst].slot, rule->self) < equal_rank(entry.slot, rule->self))
			return;
		remove_at(row->kept, &row->nkept, worst);
	}
	insert_sorted(row->kept, &row->nkept, entry);
}

/*
 * Take in one more neighbour. The rule is prune_candidates', but only what the newcomer changes is computed: is it hidden by a kept
 * one, and which kept ones does it hide.
 */
static void
take_in(const PruneRule *rule, LinkAccess *access, OpenRow *row, SearchResult entry)
{
	bool		hidden = false;
	uint32_t	i = 0;

	if (entry.distance == rule->equal_distance)
		take_in_equal(rule, row, entry);
	else
	{
		for (; i < row->nkept && i < PREFETCH_KEPT; i++)
			mirror_prefetch(access->linking->mirror, row->kept[i].slot);
		for (i = 0; i < row->nkept && !hidden && result_before(&row->kept[i], &entry); i++)
			if (row->kept[i].distance != rule->equal_distance)
				hidden = link_pair_distance(access, entry.slot, row->kept[i].slot) <= entry.distance;
		while (!hidden && i < row->nkept)
			if (row->kept[i].distance != rule->equal_distance &&
				link_pair_distance(access, entry.slot, row->kept[i].slot) <= row->kept[i].distance)
			{
				insert_sorted(row->fill, &row->nfill, row->kept[i]);
				remove_at(row->kept, &row->nkept, i);
			}
			else
				i++;
		if (hidden)
			insert_sorted(row->fill, &row->nfill, entry);
		else
			insert_sorted(row->kept, &row->nkept, entry);
	}
	/* the nearest fill is the least missed: what hides it leads to it, but a far one may be the only way in */
	while (row->nkept + row->nfill > rule->degree)
		if (row->nfill > 0)
			remove_at(row->fill, &row->nfill, 0);
		else
			row->nkept--;
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

		if (!row_has(&row, edge->source))
			take_in(&rule, &access, &row, (SearchResult) {edge->distance, edge->source, 0});
	}
	close_row(linking, target, &row);
}
