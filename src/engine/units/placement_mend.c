/*
 * placement_mend.c
 *		Adjust a placement by a few moves when lists are probed otherwise than
 *		expected. (Not in the paper.)
 *
 * A move takes load from the most loaded unit, and leaves the loads of both
 * units below its former load. So the loads, sorted in descending order,
 * decrease lexicographically with every move, and the algorithm terminates.
 */
#include <string.h>

#include "engine/units/placement.h"

/* State of an adjustment. */
typedef struct Mend
{
	UnitPlacement *placement;
	const ListLoad *lists;
	UnitMove   *moves;
	uint32_t	room;
	uint32_t	count;
} Mend;

/* The work of each copy of a list. */
static double
share_of(const Mend *mend, uint32_t list)
{
	return mend->lists[list].probes * mend->lists[list].cost / mend->placement->lists[list].count;
}

/* Add to, or take from, the loads of a list's units its share. */
static void
shift_loads(Mend *mend, uint32_t list, double sign)
{
	const ListUnits *at = &mend->placement->lists[list];

	for (uint32_t i = 0; i < at->count; i++)
		mend->placement->load[at->units[i]] += sign * share_of(mend, list);
}

/* Replace a unit of a list; by NO_UNIT: remove it. */
static void
replace_unit(ListUnits *at, uint32_t from, uint32_t to)
{
	uint32_t	i = 0;

	while (at->units[i] != from)
		i++;
	if (to != NO_UNIT)
		at->units[i] = to;
	else
		memmove(&at->units[i], &at->units[i + 1], (--at->count - i) * sizeof(uint32_t));
}

/* Make a move; false: out of memory. */
static bool
make_move(Mend *mend, uint32_t list, uint32_t to, uint32_t from)
{
	UnitPlacement *placement = mend->placement;
	bool		made = true;

	shift_loads(mend, list, -1);
	if (from != NO_UNIT)
		replace_unit(&placement->lists[list], from, to);
	else
		made = placement_add(placement, list, to);
	shift_loads(mend, list, 1);
	if (!made)
		return false;
	if (to != NO_UNIT)
		placement->stored[to] += mend->lists[list].bytes;
	if (from != NO_UNIT)
		placement->stored[from] -= mend->lists[list].bytes;
	mend->moves[mend->count++] = (UnitMove) {.list = list, .to = to, .from = from};
	return true;
}

/* Of a list's units the one with the greatest load. */
static uint32_t
most_loaded_of(const UnitPlacement *placement, uint32_t list)
{
	const ListUnits *at = &placement->lists[list];
	uint32_t	most = at->units[0];

	for (uint32_t i = 1; i < at->count; i++)
		if (placement->load[at->units[i]] > placement->load[most])
			most = at->units[i];
	return most;
}

/*
 * Add copies, or with `drop` remove copies, until every list has as many as the
 * rule says; spare copies stay.
 */
static bool
mend_copies(Mend *mend, bool drop)
{
	UnitPlacement *placement = mend->placement;

	for (uint32_t i = 0; i < placement->nlists; i++)
	{
		uint32_t	wanted = placement_copies(placement, &mend->lists[i]);

		while (mend->count < mend->room && placement->lists[i].count != wanted &&
			   drop == (placement->lists[i].count > wanted))
		{
			uint32_t	to = drop ? NO_UNIT : placement_least(placement, i, &mend->lists[i]);
			uint32_t	from = drop ? most_loaded_of(placement, i) : NO_UNIT;

			if (to == from)
				break;
			if (!make_move(mend, i, to, from))
				return false;
		}
	}
	return true;
}

/* The greater of both loads when a list moves. */
static double
load_after_move(const Mend *mend, uint32_t list, uint32_t from, uint32_t to)
{
	double		share = share_of(mend, list);
	double		left = mend->placement->load[from] - share;
	double		other = mend->placement->load[to] + share;

	return left > other ? left : other;
}

/*
 * The move from a unit that leaves the greater of both loads least; false if
 * none makes the unit's load less than that.
 */
static bool
best_move(const Mend *mend, uint32_t from, UnitMove *best)
{
	const UnitPlacement *placement = mend->placement;
	double		least = placement->load[from];
	bool		found = false;

	for (uint32_t i = 0; i < placement->nlists; i++)
	{
		uint32_t	to;
		double		after;

		if (share_of(mend, i) <= 0 || !placement_holds(placement, i, from))
			continue;
		to = placement_least(placement, i, &mend->lists[i]);
		if (to == NO_UNIT)
			continue;
		after = load_after_move(mend, i, from, to);
		if (after < least)
		{
			least = after;
			*best = (UnitMove) {.list = i, .to = to, .from = from};
			found = true;
		}
	}
	return found;
}

/* Move lists until loads are within a limit of the mean. */
static void
move_lists(Mend *mend, double limit)
{
	const UnitPlacement *placement = mend->placement;

	while (mend->count < mend->room && placement_balance(placement) > limit)
	{
		uint32_t	most = 0;
		UnitMove	move;

		for (uint32_t unit = 1; unit < placement->units; unit++)
			if (placement->load[unit] > placement->load[most])
				most = unit;
		if (!best_move(mend, most, &move) || !make_move(mend, move.list, move.to, move.from))
			break;
	}
}

uint32_t
placement_mend(UnitPlacement *placement, const ListLoad *lists, double limit, UnitMove *moves,
			   uint32_t room)
{
	Mend		mend = {.placement = placement, .lists = lists, .moves = moves, .room = room};
	bool		spare = placement->copies == COPIES_SPARE;

	if (!placement_predict(placement, lists))
		return 0;
	if ((placement->copies != COPIES_BY_WORK || mend_copies(&mend, true)) &&
		(placement->copies == COPIES_SCATTERED || mend_copies(&mend, false)) && !spare)
		move_lists(&mend, limit);
	(void) placement_predict(placement, lists);
	placement->threshold = placement_balance(placement);
	return mend.count;
}
