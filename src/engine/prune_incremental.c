/*
 * prune_incremental.c
 *		Add neighbours to a graph row one at a time.
 */
#include <string.h>

#include "engine/prune_incremental.h"
#include "engine/select.h"

/* Insert an entry in order. */
static void
insert_entry(SearchResult *entries, uint32_t *count, SearchResult entry)
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

/* Open a row. */
void
incremental_read(IncrementalRow *row, const uint32_t *neighbours, const double *distances,
				 uint32_t count, uint32_t kept)
{
	row->nkept = row->nfill = 0;
	for (uint32_t i = 0; i < count; i++)
	{
		SearchResult entry = {distances[i], neighbours[i], 0};

		if (i < kept)
			insert_entry(row->kept, &row->nkept, entry);
		else
			insert_entry(row->fill, &row->nfill, entry);
	}
}

bool
incremental_has(const IncrementalRow *row, uint32_t slot)
{
	for (uint32_t i = 0; i < row->nkept; i++)
		if (row->kept[i].slot == slot)
			return true;
	for (uint32_t i = 0; i < row->nfill; i++)
		if (row->fill[i].slot == slot)
			return true;
	return false;
}

/*
 * Add a duplicate of the row's slot. Those with the lowest random ranks are
 * kept.
 */
static void
add_equal(const PruneRule *rule, IncrementalRow *row, SearchResult entry)
{
	uint32_t	equals = 0;
	uint32_t	worst = 0;

	for (uint32_t i = 0; i < row->nkept && row->kept[i].distance == entry.distance; i++, equals++)
		if (equal_rank(row->kept[i].slot, rule->self) >
			equal_rank(row->kept[worst].slot, rule->self))
			worst = i;
	if (equals >= rule->max_equal)
	{
		if (equals == 0 ||
			equal_rank(row->kept[worst].slot, rule->self) < equal_rank(entry.slot, rule->self))
			return;
		remove_at(row->kept, &row->nkept, worst);
	}
	insert_entry(row->kept, &row->nkept, entry);
}

/*
 * Whether a newcomer has the vector of one of these neighbours. Vectors are
 * compared only where distances are the same.
 */
static bool
has_like(const SearchResult *entries, uint32_t count, SearchResult entry, PairDistance pair,
		 void *context)
{
	for (uint32_t i = count; i > 0 && entries[i - 1].distance >= entry.distance; i--)
		if (entries[i - 1].distance == entry.distance &&
			pair(context, entry.slot, entries[i - 1].slot) == pair(context, entry.slot, entry.slot))
			return true;
	return false;
}

/* Add a neighbour that is not a duplicate of the row's slot. */
static void
add_other(const PruneRule *rule, IncrementalRow *row, SearchResult entry, PairDistance pair,
		  void *context)
{
	double		margin = prune_margin(rule, context, entry.slot);
	bool		hidden = false;
	uint32_t	i;

	/*
	 * Copies of a neighbour are not taken: of a row that many rows are near to,
	 * they would displace all other fill.
	 */
	if (has_like(row->kept, row->nkept, entry, pair, context) ||
		has_like(row->fill, row->nfill, entry, pair, context))
		return;
	for (i = 0; i < row->nkept && !hidden && result_before(&row->kept[i], &entry); i++)
		if (row->kept[i].distance != rule->equal_distance)
			hidden = pair(context, entry.slot, row->kept[i].slot) +
						 prune_margin(rule, context, row->kept[i].slot) <
					 entry.distance;
	while (!hidden && i < row->nkept)
		if (row->kept[i].distance != rule->equal_distance &&
			pair(context, entry.slot, row->kept[i].slot) + margin < row->kept[i].distance)
		{
			insert_entry(row->fill, &row->nfill, row->kept[i]);
			remove_at(row->kept, &row->nkept, i);
		}
		else
			i++;
	if (hidden)
		insert_entry(row->fill, &row->nfill, entry);
	else
		insert_entry(row->kept, &row->nkept, entry);
}

/* Add one neighbour. */
void
incremental_take(const PruneRule *rule, IncrementalRow *row, SearchResult entry, PairDistance pair,
				 void *context)
{
	if (entry.distance == rule->equal_distance)
		add_equal(rule, row, entry);
	else
		add_other(rule, row, entry, pair, context);
	while (row->nkept + row->nfill > rule->degree)
		if (row->nfill > 0)
			remove_at(row->fill, &row->nfill, prune_surplus(row->nfill));
		else
			row->nkept--;
}

uint32_t
incremental_write(const IncrementalRow *row, uint32_t *neighbours, float *distances)
{
	uint32_t	count = row->nkept + row->nfill;

	for (uint32_t i = 0; i < count; i++)
	{
		const SearchResult *entry = i < row->nkept ? &row->kept[i] :
			i == row->nkept ? &row->fill[row->nfill - 1] : &row->fill[i - row->nkept - 1];

		neighbours[i] = entry->slot;
		if (distances != NULL)
			distances[i] = (float) entry->distance;
	}
	return count;
}
