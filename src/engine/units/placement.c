/*
 * placement.c
 *		Placement with replication. (MemANNS, algorithm 1)
 *
 * Corrections of the published algorithm: the cursor starts at unit 0; a full
 * cycle is counted instead of comparing the cursor with n, which it never
 * equals; copies of a list are on different units; the threshold is per list;
 * and a list for which no unit has room is an error instead of an infinite
 * loop.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/units/placement.h"

static double
work_of(const ListLoad *list)
{
	return list->probes * list->cost;
}

/* A list and its sort key. */
typedef struct Ranked
{
	double		rank;
	uint32_t	list;
} Ranked;

/* The greater rank first, then the lower number. */
static int
compare_ranked(const void *a, const void *b)
{
	const Ranked *x = a;
	const Ranked *y = b;

	if (x->rank != y->rank)
		return x->rank > y->rank ? -1 : 1;
	return x->list < y->list ? -1 : x->list > y->list;
}

/* Check what is to be placed. */
static bool
check_spec(const PlacementSpec *spec, EngineError *error)
{
	if (spec->units < 1 || spec->units > UNITS_MAX)
	{
		engine_error(error, ENGINE_INVALID, "%u units are not between 1 and %u", spec->units,
					 UNITS_MAX);
		return false;
	}
	for (uint32_t i = 0; i < spec->nlists; i++)
		if (!(spec->lists[i].probes >= 0) || !(spec->lists[i].cost >= 0) ||
			!isfinite(work_of(&spec->lists[i])))
		{
			engine_error(error, ENGINE_INVALID, "probes or cost of list %u are out of range", i);
			return false;
		}
	return true;
}

static UnitPlacement *
allocate(const PlacementSpec *spec)
{
	UnitPlacement *placement = calloc(1, sizeof(*placement));

	if (placement == NULL)
		return NULL;
	placement->nlists = spec->nlists;
	placement->units = spec->units;
	placement->capacity = spec->capacity;
	placement->copies = spec->copies;
	placement->interrupted = spec->interrupted;
	placement->context = spec->context;
	placement->threshold = 1;
	placement->lists = calloc((size_t) spec->nlists + 1, sizeof(ListUnits));
	placement->load = calloc(spec->units, sizeof(double));
	placement->stored = calloc(spec->units, sizeof(uint64_t));
	if (placement->lists != NULL && placement->load != NULL && placement->stored != NULL)
		return placement;
	placement_free(placement);
	return NULL;
}

void
placement_free(UnitPlacement *placement)
{
	if (placement == NULL)
		return;
	for (uint32_t i = 0; placement->lists != NULL && i < placement->nlists; i++)
		free(placement->lists[i].units);
	free(placement->lists);
	free(placement->load);
	free(placement->stored);
	free(placement);
}

bool
placement_holds(const UnitPlacement *placement, uint32_t list, uint32_t unit)
{
	const ListUnits *at = &placement->lists[list];

	for (uint32_t i = 0; i < at->count; i++)
		if (at->units[i] == unit)
			return true;
	return false;
}

/*
 * Whether the caller interrupts the placement. Checked once for each copy of
 * each list; between two checks every unit is examined.
 */
static bool
stopped(UnitPlacement *placement)
{
	if (!placement->stopped && placement->interrupted != NULL)
		placement->stopped = placement->interrupted(placement->context);
	return placement->stopped;
}

double
placement_balance(const UnitPlacement *placement)
{
	double		most = 0;

	for (uint32_t unit = 0; unit < placement->units; unit++)
		most = placement->load[unit] > most ? placement->load[unit] : most;
	return placement->mean > 0 ? most / placement->mean : 1;
}

/* Number of copies of a list by the rule. */
uint32_t
placement_copies(const UnitPlacement *placement, const ListLoad *list)
{
	double		copies;

	if ((placement->copies != COPIES_BY_WORK && placement->copies != COPIES_SPARE) ||
		placement->mean <= 0)
		return 1;
	copies = ceil(work_of(list) / placement->mean);
	return copies < 1 ? 1 : copies < placement->units ? (uint32_t) copies : placement->units;
}

bool
placement_room(const UnitPlacement *placement, uint32_t unit, const ListLoad *list)
{
	return placement->capacity == 0 || (placement->stored[unit] <= placement->capacity &&
		list->bytes <= placement->capacity - placement->stored[unit]);
}

/* Record that a unit holds a list; false: out of memory. */
bool
placement_add(UnitPlacement *placement, uint32_t list, uint32_t unit)
{
	ListUnits  *at = &placement->lists[list];

	if (at->count == at->room)
	{
		uint32_t	room = at->room > 0 ? at->room * 2 : 1;
		uint32_t   *units = realloc(at->units, room * sizeof(uint32_t));

		if (units == NULL)
			return false;
		at->units = units;
		at->room = room;
	}
	at->units[at->count++] = unit;
	return true;
}

/*
 * The threshold, in steps from 1, at which a unit takes a share of a list; 0 if
 * none has room for it. Equivalent to raising it step by step, with a cycle
 * over all units for each step.
 */
static double
threshold_for(const UnitPlacement *placement, uint32_t list, const ListLoad *load, double share)
{
	double		least = INFINITY;
	double		steps;

	for (uint32_t unit = 0; unit < placement->units; unit++)
		if (placement_room(placement, unit, load) && !placement_holds(placement, list, unit) &&
			placement->load[unit] + share < least)
			least = placement->load[unit] + share;
	if (isinf(least))
		return 0;
	if (least <= placement->mean)
		return 1;
	steps = floor((least / placement->mean - 1) / PLACEMENT_STEP);
	while (placement->mean * (1 + steps * PLACEMENT_STEP) < least)
		steps++;
	return 1 + steps * PLACEMENT_STEP;
}

/* Find units for the copies of a list, round robin from the cursor. */
static EngineStatus
place_list_copies(UnitPlacement *placement, uint32_t list, const ListLoad *load, uint32_t *cursor)
{
	uint32_t	copies = placement_copies(placement, load);
	double		share = work_of(load) / copies;
	double		threshold = 1;

	while (placement->lists[list].count < copies)
	{
		double		needed = threshold_for(placement, list, load, share);
		uint32_t	unit = *cursor;

		if (stopped(placement))
			return ENGINE_CANCELLED;
		if (needed == 0)
			break;
		threshold = needed > threshold ? needed : threshold;
		while (!placement_room(placement, unit, load) || placement_holds(placement, list, unit) ||
			   placement->load[unit] + share > placement->mean * threshold)
			unit = (unit + 1) % placement->units;
		*cursor = (unit + 1) % placement->units;
		if (!placement_add(placement, list, unit))
			return ENGINE_NO_MEMORY;
		placement->load[unit] += share;
		placement->stored[unit] += load->bytes;
	}
	if (threshold > placement->threshold)
		placement->threshold = threshold;
	return placement->lists[list].count > 0 ? ENGINE_OK : ENGINE_UNSUPPORTED;
}

/* Sort units, the least load first. */
static void
sort_by_load(const UnitPlacement *placement, uint32_t *units, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++)
	{
		uint32_t	unit = units[i];
		uint32_t	j = i;

		for (; j > 0 && placement->load[units[j - 1]] > placement->load[unit]; j--)
			units[j] = units[j - 1];
		units[j] = unit;
	}
}

/*
 * Distribute a list's work as if each probe went to the copy on the least
 * loaded unit, which raises the lowest loads to a common level (water filling).
 */
static void
pour(UnitPlacement *placement, const ListUnits *at, double work)
{
	uint32_t	units[UNITS_MAX];
	uint32_t	level = 1;

	memcpy(units, at->units, at->count * sizeof(uint32_t));
	sort_by_load(placement, units, at->count);
	for (; level < at->count; level++)
	{
		double		rise = placement->load[units[level]] - placement->load[units[0]];

		if (rise * level >= work)
			break;
		for (uint32_t i = 0; i < level; i++)
			placement->load[units[i]] = placement->load[units[level]];
		work -= rise * level;
	}
	for (uint32_t i = 0; i < level; i++)
		placement->load[units[i]] += work / level;
}

/*
 * Predict loads: a list's work in equal shares, as in the paper. With
 * COPIES_SPARE: lists with one copy first, then the others in this order, each
 * distributed to its least loaded units.
 */
static void
predict(UnitPlacement *placement, const ListLoad *lists, const Ranked *order)
{
	double		total = 0;

	memset(placement->load, 0, placement->units * sizeof(double));
	for (uint32_t i = 0; i < placement->nlists; i++)
	{
		const ListUnits *at = &placement->lists[i];

		total += work_of(&lists[i]);
		for (uint32_t j = 0; j < at->count; j++)
			if (at->count == 1 || placement->copies != COPIES_SPARE)
				placement->load[at->units[j]] += work_of(&lists[i]) / at->count;
	}
	placement->mean = total / placement->units;
	for (uint32_t i = 0; placement->copies == COPIES_SPARE && i < placement->nlists; i++)
		if (placement->lists[order[i].list].count > 1 && !stopped(placement))
			pour(placement, &placement->lists[order[i].list], work_of(&lists[order[i].list]));
}

/* Lists in the order of their work. */
static void
order_by_work(const ListLoad *lists, uint32_t count, Ranked *order)
{
	for (uint32_t i = 0; i < count; i++)
		order[i] = (Ranked) {work_of(&lists[i]), i};
	qsort(order, count, sizeof(Ranked), compare_ranked);
}

bool
placement_predict(UnitPlacement *placement, const ListLoad *lists)
{
	Ranked	   *order = malloc(((size_t) placement->nlists + 1) * sizeof(Ranked));

	if (order == NULL)
		return false;
	order_by_work(lists, placement->nlists, order);
	predict(placement, lists, order);
	free(order);
	if (placement->stopped)
		return false;
	memset(placement->stored, 0, placement->units * sizeof(uint64_t));
	for (uint32_t i = 0; i < placement->nlists; i++)
		for (uint32_t j = 0; j < placement->lists[i].count; j++)
			placement->stored[placement->lists[i].units[j]] += lists[i].bytes;
	return true;
}

/* A unit drawn by the number of a list. */
static uint32_t
scattered_unit(uint32_t list, uint32_t units)
{
	uint64_t	x = (list + UINT64_C(1)) * UINT64_C(0x9E3779B97F4A7C15);

	x = (x ^ (x >> 32)) * UINT64_C(0xD6E8FEB86659FD93);
	return (uint32_t) ((x >> 32) % units);
}

static EngineStatus
place_scattered(UnitPlacement *placement, uint32_t list, const ListLoad *load)
{
	uint32_t	unit = scattered_unit(list, placement->units);

	for (uint32_t tried = 0; tried < placement->units; tried++)
	{
		if (placement_room(placement, unit, load))
		{
			placement->load[unit] += work_of(load);
			placement->stored[unit] += load->bytes;
			return placement_add(placement, list, unit) ? ENGINE_OK : ENGINE_NO_MEMORY;
		}
		unit = (unit + 1) % placement->units;
	}
	return ENGINE_UNSUPPORTED;
}

uint32_t
placement_least(const UnitPlacement *placement, uint32_t list, const ListLoad *load)
{
	uint32_t	least = NO_UNIT;

	for (uint32_t unit = 0; unit < placement->units; unit++)
		if ((least == NO_UNIT || placement->load[unit] < placement->load[least]) &&
			placement_room(placement, unit, load) && !placement_holds(placement, list, unit))
			least = unit;
	return least;
}

/*
 * The unit of the least bytes that has room for a list and not the list, or
 * NO_UNIT: where the least load decided, the last units with room would get all
 * of the last lists.
 */
static uint32_t
emptiest(const UnitPlacement *placement, uint32_t list, const ListLoad *load)
{
	uint32_t	least = NO_UNIT;

	for (uint32_t unit = 0; unit < placement->units; unit++)
		if ((least == NO_UNIT || placement->stored[unit] < placement->stored[least]) &&
			placement_room(placement, unit, load) && !placement_holds(placement, list, unit))
			least = unit;
	return least;
}

/*
 * Use the remaining memory: passes over the lists by descending work per byte,
 * each of which adds one copy of a list.
 */
static bool
place_spare(UnitPlacement *placement, const ListLoad *lists, Ranked *order)
{
	bool		added = true;

	for (uint32_t i = 0; i < placement->nlists; i++)
		order[i] = (Ranked) {work_of(&lists[i]) / ((double) lists[i].bytes + 1), i};
	qsort(order, placement->nlists, sizeof(Ranked), compare_ranked);
	while (added)
	{
		added = false;
		for (uint32_t i = 0; i < placement->nlists && !stopped(placement); i++)
		{
			uint32_t	list = order[i].list;
			uint32_t	unit = emptiest(placement, list, &lists[list]);

			if (unit == NO_UNIT)
				continue;
			if (!placement_add(placement, list, unit))
				return false;
			placement->stored[unit] += lists[list].bytes;
			added = true;
		}
	}
	return true;
}

/* Place all lists in the order of their work. */
static EngineStatus
place_all_lists(UnitPlacement *placement, const PlacementSpec *spec, Ranked *order, EngineError *error)
{
	uint32_t	cursor = 0;
	double		total = 0;

	for (uint32_t i = 0; i < spec->nlists; i++)
		total += work_of(&spec->lists[i]);
	placement->mean = total / spec->units;
	order_by_work(spec->lists, spec->nlists, order);
	for (uint32_t i = 0; i < spec->nlists; i++)
	{
		uint32_t	list = order[i].list;
		const ListLoad *load = &spec->lists[list];
		EngineStatus status = spec->copies == COPIES_SCATTERED
			? place_scattered(placement, list, load)
			: place_list_copies(placement, list, load, &cursor);

		if (status == ENGINE_UNSUPPORTED)
			engine_error(error, status,
						 "list %u of %llu bytes fits on none of %u units of %llu bytes", list,
						 (unsigned long long) load->bytes, spec->units,
						 (unsigned long long) spec->capacity);
		else if (status == ENGINE_CANCELLED)
			engine_error(error, status, "the placement was interrupted");
		else if (status != ENGINE_OK)
			engine_error(error, status, "out of memory for a placement");
		if (status != ENGINE_OK)
			return status;
	}
	return ENGINE_OK;
}

/* Add copies that the rule asks for, where units have room. */
static EngineStatus
add_copies(UnitPlacement *placement, const ListLoad *lists, const Ranked *order, EngineError *error)
{
	for (uint32_t i = 0; i < placement->nlists; i++)
	{
		uint32_t	list = order[i].list;
		uint32_t	wanted = placement_copies(placement, &lists[list]);

		while (placement->lists[list].count < wanted && !stopped(placement))
		{
			uint32_t	unit = placement_least(placement, list, &lists[list]);

			if (unit == NO_UNIT)
				break;
			if (!placement_add(placement, list, unit))
				return engine_error(error, ENGINE_NO_MEMORY, "out of memory for a placement");
			placement->stored[unit] += lists[list].bytes;
			predict(placement, lists, order);
		}
	}
	return ENGINE_OK;
}

/* Place with a rule for copies in this pass. */
static UnitPlacement *
place_with(const PlacementSpec *spec, CopyRule rule, Ranked *order, EngineError *error)
{
	UnitPlacement *placement = allocate(spec);

	if (placement == NULL)
	{
		engine_error(error, ENGINE_NO_MEMORY, "out of memory for a placement");
		return NULL;
	}
	placement->copies = rule;
	if (place_all_lists(placement, spec, order, error) == ENGINE_OK)
		return placement;
	placement_free(placement);
	return NULL;
}

/*
 * Copies may have used the memory needed by a later list. Then place one copy
 * of every list first, and further copies in the remaining memory.
 */
static UnitPlacement *
place_all_first(const PlacementSpec *spec, Ranked *order, EngineError *error)
{
	UnitPlacement *placement = place_with(spec, COPIES_ONE, order, error);

	if (placement == NULL)
		return NULL;
	placement->copies = spec->copies;
	if (add_copies(placement, spec->lists, order, error) == ENGINE_OK)
		return placement;
	placement_free(placement);
	return NULL;
}

UnitPlacement *
placement_create(const PlacementSpec *spec, EngineError *error)
{
	bool		several = spec->copies == COPIES_BY_WORK || spec->copies == COPIES_SPARE;
	UnitPlacement *placement;
	Ranked	   *order;

	if (!check_spec(spec, error))
		return NULL;
	order = malloc(((size_t) spec->nlists + 1) * sizeof(Ranked));
	if (order == NULL)
	{
		engine_error(error, ENGINE_NO_MEMORY, "out of memory for a placement");
		return NULL;
	}
	placement = place_with(spec, spec->copies, order, error);
	if (placement == NULL && several && spec->capacity > 0)
		placement = place_all_first(spec, order, error);
	if (placement != NULL && spec->copies == COPIES_SPARE &&
		!place_spare(placement, spec->lists, order))
	{
		engine_error(error, ENGINE_NO_MEMORY, "out of memory for a placement");
		placement_free(placement);
		placement = NULL;
	}
	if (placement != NULL)
	{
		order_by_work(spec->lists, spec->nlists, order);
		predict(placement, spec->lists, order);
		placement->threshold = fmax(placement->threshold, placement_balance(placement));
	}
	free(order);
	if (placement == NULL || !placement->stopped)
		return placement;
	engine_error(error, ENGINE_CANCELLED, "the placement was interrupted");
	placement_free(placement);
	return NULL;
}
