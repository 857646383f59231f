/*
 * prune.c
 *		Which candidates become a slot's graph row.
 *
 * Duplicates of the slot are set apart first: at distance zero they would be
 * nearer to every other candidate than allowed, and a row of duplicates leads
 * nowhere. They take at most max_equal places and hide nobody. A row of a crowd
 * of duplicates fills its places at random: a crowd can fill a search's list,
 * and if all its rows led to the same few, to nothing else.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/prune.h"
#include "engine/select.h"

#define SCATTER_CANDIDATES	4		/* times the room: a crowd's rows are filled from so many of the
									 * nearest */

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
 * Sort, and drop the slot itself and all but the first mention of a slot;
 * returns how many are left.
 */
static uint32_t
sort_and_unite(const PruneRule *rule, Candidate *candidates, uint32_t count)
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

/* The places chosen so far, as indexes of the sorted candidates. */
typedef struct Choice
{
	uint32_t	chosen[ENGINE_MAX_DEGREE];
	double		margins[ENGINE_MAX_DEGREE]; /* of those that are kept */
	uint32_t	count;
	uint32_t	room;
} Choice;

/*
 * Choose a candidate if its random rank is among the lowest: of the choices
 * from `first` on, lowest rank first, up to room in all.
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
choose_equals(const PruneRule *rule, const Candidate *candidates, uint32_t count, Choice *choice)
{
	uint32_t	room = rule->max_equal < choice->room ? rule->max_equal : choice->room;

	for (uint32_t i = 0; i < count && candidates[i].distance <= rule->equal_distance; i++)
		if (candidates[i].distance == rule->equal_distance)
			choose_by_rank(rule, candidates, i, 0, room, choice);
}

/*
 * Choose those that no chosen one hides; duplicates of the slot neither hide
 * nor are chosen here.
 */
static void
choose_spread(const PruneRule *rule, const Candidate *candidates, uint32_t count, PairDistance pair,
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

/* Whether one of the first so many choices is i. */
static bool
is_chosen(const Choice *choice, uint32_t first, uint32_t i)
{
	for (uint32_t j = 0; j < first; j++)
		if (choice->chosen[j] == i)
			return true;
	return false;
}

/*
 * Fill places left with the nearest of the others: without, then with those as
 * far as the one before (mostly its copies).
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
 * Fill places left with others at random, those of the nearest: where the row
 * is one of a crowd. Nearest first, as all fill.
 */
static void
choose_scattered(const PruneRule *rule, const Candidate *candidates, uint32_t count,
				 PairDistance pair, void *context, Choice *choice)
{
	uint32_t	first = choice->count;
	uint32_t	most = SCATTER_CANDIDATES * choice->room;

	for (uint32_t i = 0, met = 0; i < count && met < most; i++)
	{
		/*
		 * copies of the one before, a crowd of their own, would take all the
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

/* Put the farthest of the fill before the rest of it. */
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

/* Choose a slot's neighbours, and say which of them are kept. */
uint32_t
prune_choose(const PruneRule *rule, Candidate *candidates, uint32_t count, PairDistance pair,
			 void *context, Candidate *chosen, uint32_t *kept)
{
	Choice		choice;
	bool		crowded;

	choice.count = 0;
	choice.room = rule->degree < ENGINE_MAX_DEGREE ? rule->degree : ENGINE_MAX_DEGREE;
	count = sort_and_unite(rule, candidates, count);
	choose_equals(rule, candidates, count, &choice);
	crowded = choice.count == rule->max_equal && 2 * rule->max_equal < choice.room;
	choice.room -= crowded ? rule->max_equal : 0;
	choose_spread(rule, candidates, count, pair, context, &choice);
	choice.room += crowded ? rule->max_equal : 0;
	*kept = choice.count;
	if (crowded)
		choose_scattered(rule, candidates, count, pair, context, &choice);
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
	/* the fill's farthest is before it, unless what follows falls again */
	return fall + 1 < count && distances[fall + 1] >= distances[fall] ? fall - 1 : fall;
}

/* How many seeds a graph of n linked slots has. */
uint32_t
seed_count(uint32_t linked, uint32_t room)
{
	uint32_t	count = linked / SEED_SHARE;

	if (count == 0 && linked > 0)
		count = 1;
	return count < room ? count : room;
}

/*
 * Where to look for a seed: n times the fraction whose binary digits are those
 * of i in reverse.
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
