/*
 * linkrow.c
 *		Linking of single rows: choosing the neighbours of a new one, and taking a new one into an old one's row.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "link.h"
#include "select.h"

#define BATCH_CANDIDATES	32		/* nearest of the own batch that a row considers */

/* What the callbacks of a candidate search need. */
typedef struct LinkAccess
{
	const Linking *linking;
	Worker	   *worker;
} LinkAccess;

/* Free what a worker keeps for linking. */
void
link_scratch_free(LinkScratch *scratch)
{
	free(scratch->candidates);
	free(scratch->wide.elements);
	free(scratch->pair.elements);
}

/* Make room for candidates and wide vectors. */
static bool
scratch_reserve(LinkScratch *scratch, uint32_t candidates, uint32_t dims)
{
	if (scratch->room < candidates)
	{
		void	   *grown = realloc(scratch->candidates, candidates * sizeof(Candidate));

		if (grown == NULL)
			return false;
		scratch->candidates = grown;
		scratch->room = candidates;
	}
	if (scratch->dims < dims)
	{
		free(scratch->wide.elements);
		free(scratch->pair.elements);
		scratch->wide.elements = malloc(dims * sizeof(float));
		scratch->pair.elements = malloc(dims * sizeof(float));
		scratch->dims = scratch->wide.elements != NULL && scratch->pair.elements != NULL ? dims : 0;
	}
	return scratch->dims >= dims;
}

static void
widen_slot(const Mirror *mirror, uint32_t slot, WideVector *wide)
{
	mirror->kernels->widen(mirror_vector(mirror, slot), mirror->spec.dims, wide->elements);
	wide->scale = mirror_scale(mirror, slot);
}

/* PairDistance: candidates are known by their slots; the first one stays wide while it meets the others. */
static double
pair_distance(void *context, uint32_t slot_a, uint32_t slot_b)
{
	const LinkAccess *access = context;
	LinkScratch *scratch = &access->worker->link;

	if (scratch->pair_slot != slot_a)
	{
		widen_slot(access->linking->mirror, slot_a, &scratch->pair);
		scratch->pair_slot = slot_a;
	}
	return mirror_fast(access->linking->mirror, &scratch->pair, slot_b);
}

/* GraphAccess: read a row and the slot's state. */
static uint32_t
access_row(void *context, uint32_t slot, uint32_t *neighbours, SlotState *state)
{
	const LinkAccess *access = context;
	uint64_t	word = mirror_word(access->linking->mirror, slot);

	state->version = WORD_VERSION(word);
	state->live = !(word & WORD_DEAD);
	return mirror_read_row(access->linking->mirror, slot, access->linking->rows, neighbours);
}

/* GraphAccess: fast distances to the row that is linked. */
static void
access_fast(void *context, const uint32_t *slots, uint32_t count, double *out)
{
	const LinkAccess *access = context;

	mirror_fast_many(access->linking->mirror, &access->worker->link.wide, slots, count, out);
}

/* Make a slot the one that is worked on: wide in the scratch, known to the rule. False: cancelled, or no memory. */
static bool
begin_slot(Linking *linking, LinkScratch *scratch, uint32_t slot, PruneRule *rule)
{
	if (atomic_load_explicit(&linking->job->watch.cancelled, memory_order_relaxed))
		return false;
	if (!scratch_reserve(scratch, 0, linking->mirror->spec.dims))
	{
		atomic_store(&linking->no_memory, true);
		return false;
	}
	scratch->pair_slot = NO_SLOT;
	widen_slot(linking->mirror, slot, &scratch->wide);
	rule->self = slot;
	rule->equal_distance = mirror_fast(linking->mirror, &scratch->wide, slot);
	return true;
}

/* Search the graph for candidates of a slot, which is wide in the worker's scratch. */
static EngineStatus
find_candidates(LinkAccess *access, uint32_t slot, double equal_distance, GraphAnswer *answer)
{
	const Linking *linking = access->linking;
	const GraphAccess graph = {access, access_row, access_fast, NULL, NULL, NULL};
	const GraphQuery query = {
		.ef = linking->job->in.ef_construction,
		.seeds = linking->seeds,
		.nseeds = linking->nseeds,
		.max_equal = linking->rule.max_equal,
		.equal_distance = equal_distance,
		.salt = slot,
		.all_expanded = true
	};

	return graph_search(&graph, &query, access->worker->search, answer);
}

/* The nearest of a row's own batch, farthest first, and its duplicates there, a few at random. */
typedef struct BatchNearest
{
	SearchResult nearest[BATCH_CANDIDATES];
	uint32_t	count;
	SearchResult equals[SEARCH_MAX_EQUAL];	/* distance is the random rank, highest first */
	uint32_t	nequals;
} BatchNearest;

/* Look through the batch; `bound` is the farthest that is of use. */
static void
search_batch(const LinkAccess *access, uint32_t item, double bound, double equal_distance, BatchNearest *found)
{
	const Linking *linking = access->linking;
	const uint32_t *batch = linking->slots + linking->first;
	uint32_t	slot = batch[item];

	found->count = found->nequals = 0;
	for (uint32_t i = 0; i < linking->batch; i++)
	{
		SearchResult entry = {0, batch[i], 0};

		if (i == item)
			continue;
		entry.distance = mirror_fast(linking->mirror, &access->worker->link.wide, batch[i]);
		if (entry.distance == equal_distance)
		{
			entry.distance = equal_rank(batch[i], slot);
			(void) farthest_offer(found->equals, &found->nequals, linking->rule.max_equal, entry);
		}
		else if (entry.distance <= bound)
			(void) farthest_offer(found->nearest, &found->count, BATCH_CANDIDATES, entry);
	}
}

static void
add_candidate(LinkScratch *scratch, uint32_t *count, double distance, uint32_t slot)
{
	scratch->candidates[(*count)++] = (Candidate) {distance, slot, slot};
}

/* Choose the neighbours of one row of the batch. */
void
link_choose_row(void *context, uint32_t item, Worker *worker)
{
	Linking    *linking = context;
	LinkScratch *scratch = &worker->link;
	uint32_t	slot = linking->slots[linking->first + item];
	uint32_t	ef = linking->job->in.ef_construction;
	LinkAccess	access = {linking, worker};
	PruneRule	rule = linking->rule;
	BatchNearest batch;
	GraphAnswer answer;
	uint32_t	count = 0;

	linking->nchosen[item] = 0;
	if (!begin_slot(linking, scratch, slot, &rule))
		return;
	if (find_candidates(&access, slot, rule.equal_distance, &answer) != ENGINE_OK ||
		!scratch_reserve(scratch, answer.count + BATCH_CANDIDATES + SEARCH_MAX_EQUAL, linking->mirror->spec.dims))
	{
		atomic_store(&linking->no_memory, true);
		return;
	}
	for (uint32_t i = 0; i < answer.count; i++)
		add_candidate(scratch, &count, answer.results[i].distance, answer.results[i].slot);
	search_batch(&access, item, answer.count >= ef ? answer.results[ef - 1].distance : INFINITY,
				 rule.equal_distance, &batch);
	for (uint32_t i = 0; i < batch.count; i++)
		add_candidate(scratch, &count, batch.nearest[i].distance, batch.nearest[i].slot);
	for (uint32_t i = 0; i < batch.nequals; i++)
		add_candidate(scratch, &count, rule.equal_distance, batch.equals[i].slot);
	linking->nchosen[item] = prune_candidates(&rule, scratch->candidates, count, pair_distance, &access,
											  linking->chosen + (size_t) item * rule.degree);
}

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

/* Read a target's row: the kept come first, and where distances fall the fill begins (see prune.h). */
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

		if (row->nfill == 0 && (row->nkept == 0 || !result_before(&entry, &row->kept[row->nkept - 1])))
			row->kept[row->nkept++] = entry;
		else
			insert_sorted(row->fill, &row->nfill, entry);
	}
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
		for (; i < row->nkept && !hidden && result_before(&row->kept[i], &entry); i++)
			if (row->kept[i].distance != rule->equal_distance)
				hidden = pair_distance(access, entry.slot, row->kept[i].slot) <= entry.distance;
		while (!hidden && i < row->nkept)
			if (row->kept[i].distance != rule->equal_distance &&
				pair_distance(access, entry.slot, row->kept[i].slot) <= row->kept[i].distance)
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
	uint32_t	neighbours[ENGINE_MAX_DEGREE];
	OpenRow		row;

	if (!begin_slot(linking, scratch, target, &rule))
		return;
	open_row(linking, &scratch->wide, target, &row);
	for (uint32_t i = linking->groups[group]; i < linking->groups[group + 1]; i++)
	{
		uint32_t	source = linking->sorted[i].source;

		if (!row_has(&row, source))
			take_in(&rule, &access, &row,
					(SearchResult) {mirror_fast(linking->mirror, &scratch->wide, source), source, 0});
	}
	for (uint32_t i = 0; i < row.nkept; i++)
		neighbours[i] = row.kept[i].slot;
	for (uint32_t i = 0; i < row.nfill; i++)
		neighbours[row.nkept + i] = row.fill[i].slot;
	mirror_write_row(linking->mirror, target, neighbours, row.nkept + row.nfill);
}
