/*
 * prune.c
 *		Select the neighbours of a slot among candidates.
 *
 * Duplicates of the slot are handled first: at distance zero they would hide
 * every other candidate, and a row of duplicates leads nowhere. They take at
 * most max_equal places and hide no candidate. If the slot has that many
 * duplicates, its remaining places are filled at random: the duplicates can
 * fill a search's list, and if all their rows led to the same few neighbours,
 * the search would find nothing else.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/prune.h"
#include "engine/select.h"

#define RANDOM_CANDIDATES	4		/* in that case rows are filled from this many times the room,
									 * nearest first */

static int
compare_candidates(const void *left, const void *right)
{
	const Candidate *a = left;
	const Candidate *b = right;

	if (engine_before(a->distance, a->slot, b->distance, b->slot))
		return -1;
	return engine_before(b->distance, b->slot, a->distance, a->slot) ? 1 : 0;
}

/*
 * Sort candidates; remove the slot itself and repeated slots. Returns how many
 * are left.
 */
static uint32_t
sort_unique(const PruneRule *rule, Candidate *candidates, uint32_t count)
{
	uint32_t	kept = 0;

	qsort(candidates, count, sizeof(Candidate), compare_candidates);
	for (uint32_t i = 0; i < count; i++)
	{
		if (candidates[i].slot == rule->self)
			continue;
		if (kept > 0 && candidates[kept - 1].slot == candidates[i].slot)
			continue;
		candidates[kept++] = candidates[i];
	}
	return kept;
}

/* Candidates chosen so far, as indexes of the sorted candidates. */
typedef struct Choice
{
	uint32_t	chosen[ENGINE_MAX_DEGREE];
	double		margins[ENGINE_MAX_DEGREE]; /* prune_margin() of the kept ones */
	uint32_t	count;
	uint32_t	room;
} Choice;

/*
 * Choose a candidate if its random rank is among the lowest. choice->chosen is
 * ordered by rank from `first` on, and has up to room entries.
 */
static void
choose_by_rank(const PruneRule *rule, const Candidate *candidates, uint32_t i, uint32_t first,
			   uint32_t room, Choice *choice)
{
	uint32_t	rank = equal_rank(candidates[i].slot, rule->self);
	uint32_t	place;

	if (choice->count < room)
		place = choice->count++;
	else if (first < room &&
			 rank < equal_rank(candidates[choice->chosen[room - 1]].slot, rule->self))
		place = room - 1;
	else
		return;
	for (;
		 place > first && equal_rank(candidates[choice->chosen[place - 1]].slot, rule->self) > rank;
		 place--)
		choice->chosen[place] = choice->chosen[place - 1];
	choice->chosen[place] = i;
}

/* Choose duplicates of the slot, lowest rank first. */
static void
prune_choose_equals(const PruneRule *rule, const Candidate *candidates, uint32_t count,
					Choice *choice)
{
	uint32_t	room = rule->max_equal < choice->room ? rule->max_equal : choice->room;

	for (uint32_t i = 0; i < count && candidates[i].distance <= rule->equal_distance; i++)
		if (candidates[i].distance == rule->equal_distance)
			choose_by_rank(rule, candidates, i, 0, room, choice);
}

/*
 * Choose candidates that no chosen one hides. Duplicates of the slot do not
 * hide others, and are not chosen here.
 */
static void
choose_unhidden(const PruneRule *rule, const Candidate *candidates, uint32_t count,
				PairDistance pair,
				void *context, Choice *choice)
{
	uint32_t	first = choice->count;

	for (uint32_t i = 0; i < count && choice->count < choice->room; i++)
	{
		bool		hidden = candidates[i].distance == rule->equal_distance;

		for (uint32_t j = first; j < choice->count && !hidden; j++)
			hidden = pair(context, candidates[i].index, candidates[choice->chosen[j]].index) +
						 choice->margins[j] <
					 candidates[i].distance;
		if (hidden)
			continue;
		choice->margins[choice->count] = prune_margin(rule, context, candidates[i].index);
		choice->chosen[choice->count++] = i;
	}
}

/* Whether candidate i is among the first choices. */
static bool
is_chosen(const Choice *choice, uint32_t first, uint32_t i)
{
	for (uint32_t j = 0; j < first; j++)
		if (choice->chosen[j] == i)
			return true;
	return false;
}

/*
 * Fill the remaining places with the nearest other candidates; those as far as
 * their predecessor, mostly its duplicates, only after all others.
 */
static void
choose_nearest(const PruneRule *rule, const Candidate *candidates, uint32_t count, Choice *choice)
{
	uint32_t	first = choice->count;

	for (int copies = 0; copies < 2; copies++)
		for (uint32_t i = 0; i < count && choice->count < choice->room; i++)
		{
			bool		copy = i > 0 && candidates[i].distance == candidates[i - 1].distance;

			if (candidates[i].distance != rule->equal_distance && copy == (copies == 1) &&
				!is_chosen(choice, first, i))
				choice->chosen[choice->count++] = i;
		}
}

/*
 * Fill the remaining places with a random choice of the nearest other
 * candidates, ordered by distance like other fill. For slots with many
 * duplicates.
 */
static void
choose_random(const PruneRule *rule, const Candidate *candidates, uint32_t count,
			  PairDistance pair, void *context, Choice *choice)
{
	uint32_t	first = choice->count;
	uint32_t	most = RANDOM_CANDIDATES * choice->room;

	for (uint32_t i = 0, met = 0; i < count && met < most; i++)
	{
		/*
		 * skip duplicates of the preceding candidate, which could take all the
		 * places
		 */
		bool copy = i > 0 && candidates[i].distance == candidates[i - 1].distance &&
					pair(context, candidates[i].index, candidates[i - 1].index) ==
						pair(context, candidates[i].index, candidates[i].index);

		if (candidates[i].distance == rule->equal_distance || copy || is_chosen(choice, first, i))
			continue;
		choose_by_rank(rule, candidates, i, first, choice->room, choice);
		met++;
	}
	for (uint32_t i = first + 1; i < choice->count; i++)
	{
		uint32_t	index = choice->chosen[i];
		uint32_t	place = i;

		for (; place > first && choice->chosen[place - 1] > index; place--)
			choice->chosen[place] = choice->chosen[place - 1];
		choice->chosen[place] = index;
	}
}

/* Move the farthest of the fill to its front. */
static void
put_farthest_first(Choice *choice, uint32_t first)
{
	uint32_t	farthest = first;
	uint32_t	index;

	if (first == choice->count)
		return;
	for (uint32_t i = first; i < choice->count; i++)
		if (choice->chosen[i] > choice->chosen[farthest])
			farthest = i;
	index = choice->chosen[farthest];
	memmove(&choice->chosen[first + 1], &choice->chosen[first],
			(farthest - first) * sizeof(uint32_t));
	choice->chosen[first] = index;
}

/* Choose a slot's neighbours; *kept is how many of them are kept. */
uint32_t
prune_choose(const PruneRule *rule, Candidate *candidates, uint32_t count, PairDistance pair,
			 void *context, Candidate *chosen, uint32_t *kept)
{
	Choice		choice;
	bool		many_equal;

	choice.count = 0;
	choice.room = rule->degree < ENGINE_MAX_DEGREE ? rule->degree : ENGINE_MAX_DEGREE;
	count = sort_unique(rule, candidates, count);
	prune_choose_equals(rule, candidates, count, &choice);
	many_equal = choice.count == rule->max_equal && 2 * rule->max_equal < choice.room;
	choice.room -= many_equal ? rule->max_equal : 0;
	choose_unhidden(rule, candidates, count, pair, context, &choice);
	choice.room += many_equal ? rule->max_equal : 0;
	*kept = choice.count;
	if (many_equal)
		choose_random(rule, candidates, count, pair, context, &choice);
	choose_nearest(rule, candidates, count, &choice);
	put_farthest_first(&choice, *kept);
	for (uint32_t i = 0; i < choice.count; i++)
		chosen[i] = candidates[choice.chosen[i]];
	return choice.count;
}

uint32_t
row_kept(const double *distances, uint32_t count)
{
	uint32_t	fall = 1;

	while (fall < count && distances[fall] >= distances[fall - 1])
		fall++;
	if (fall >= count)
		return count;
	/*
	 * Normally the descent follows the fill's first entry, its farthest. If
	 * distances descend again, that entry is at the first descent.
	 */
	return fall + 1 < count && distances[fall + 1] >= distances[fall] ? fall - 1 : fall;
}

/* Number of seeds for a graph of linked slots. */
uint32_t
seed_count(uint32_t linked, uint32_t room)
{
	uint32_t	count = linked / SLOTS_PER_SEED;

	if (count == 0 && linked > 0)
		count = 1;
	return count < room ? count : room;
}

/*
 * Where below n to look for the i-th seed: n times the bit-reversed fraction of
 * i (van der Corput sequence).
 */
uint32_t
seed_place(uint32_t i, uint32_t n)
{
	double		value = 0;
	double		digit = 0.5;

	for (; i != 0; i >>= 1, digit /= 2)
		if (i & 1)
			value += digit;
	return (uint32_t) (value * n);
}
