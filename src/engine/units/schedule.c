/*
 * schedule.c
 *		Scheduling the pairs of a batch. (MemANNS, algorithm 2)
 *
 * O(pairs x copies + lists x log lists + units).
 */
#include <stdlib.h>

#include "engine/units/schedule.h"

/* What a schedule is made with. */
typedef struct Work
{
	const UnitPlacement *placement;
	const ListLoad *lists;
	UnitPair   *sorted;			/* pairs by list */
	uint32_t   *begins;			/* of each list's pairs, and the end */
	uint32_t   *assigned;		/* the unit of each sorted pair */
	uint32_t   *several;		/* lists on several units */
	uint32_t	nseveral;
	uint32_t   *last;			/* of each unit: scratch */
} Work;

static void
work_free(Work *work)
{
	free(work->sorted);
	free(work->begins);
	free(work->assigned);
	free(work->several);
	free(work->last);
}

static bool
work_begin(Work *work, uint32_t npairs)
{
	size_t		lists = (size_t) work->placement->nlists + 2;

	work->sorted = malloc(((size_t) npairs + 1) * sizeof(UnitPair));
	work->begins = calloc(lists, sizeof(uint32_t));
	work->assigned = malloc(((size_t) npairs + 1) * sizeof(uint32_t));
	work->several = malloc(lists * sizeof(uint32_t));
	work->last = malloc(((size_t) work->placement->units + 1) * sizeof(uint32_t));
	return work->sorted != NULL && work->begins != NULL && work->assigned != NULL &&
		work->several != NULL && work->last != NULL;
}

/* Sort pairs by list, in their order. */
static void
sort_by_list(Work *work, const UnitPair *pairs, uint32_t npairs)
{
	uint32_t	lists = work->placement->nlists;

	for (uint32_t i = 0; i < npairs; i++)
		work->begins[pairs[i].list + 2]++;
	for (uint32_t i = 2; i <= lists; i++)
		work->begins[i] += work->begins[i - 1];
	for (uint32_t i = 0; i < npairs; i++)
		work->sorted[work->begins[pairs[i].list + 1]++] = pairs[i];
}

/* The costlier list first, then the lower number. */
static int
compare_cost(const void *a, const void *b, void *argument)
{
	const ListLoad *lists = argument;
	uint32_t	x = *(const uint32_t *) a;
	uint32_t	y = *(const uint32_t *) b;

	if (lists[x].cost != lists[y].cost)
		return lists[x].cost > lists[y].cost ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* Of a list's units the one with the least load, of equal ones the lowest. */
static uint32_t
least_loaded(const ListUnits *at, const double *load)
{
	uint32_t	least = at->units[0];

	for (uint32_t i = 1; i < at->count; i++)
		if (load[at->units[i]] < load[least] ||
			(load[at->units[i]] == load[least] && at->units[i] < least))
			least = at->units[i];
	return least;
}

/* Assign the pairs of a list. */
static void
assign_list(Work *work, uint32_t list, double *load)
{
	const ListUnits *at = &work->placement->lists[list];

	for (uint32_t i = work->begins[list]; i < work->begins[list + 1]; i++)
	{
		uint32_t	unit = least_loaded(at, load);

		work->assigned[i] = unit;
		load[unit] += work->lists[list].cost;
	}
}

/* Both passes. */
static void
assign_all(Work *work, double *load)
{
	for (uint32_t i = 0; i < work->placement->nlists; i++)
	{
		if (work->begins[i + 1] == work->begins[i])
			continue;
		if (work->placement->lists[i].count == 1)
			assign_list(work, i, load);
		else
			work->several[work->nseveral++] = i;
	}
	qsort_r(work->several, work->nseveral, sizeof(uint32_t), compare_cost,
			(void *) (uintptr_t) work->lists);
	for (uint32_t i = 0; i < work->nseveral; i++)
		assign_list(work, work->several[i], load);
}

/* Sort pairs by unit, those of a unit by list, and count its queries. */
static bool
collect(Schedule *schedule, Work *work, uint32_t queries)
{
	uint32_t   *seen = calloc((size_t) queries + 1, sizeof(uint32_t));

	if (seen == NULL)
		return false;
	for (uint32_t i = 0; i < schedule->npairs; i++)
		schedule->begins[work->assigned[i] + 1]++;
	for (uint32_t unit = 0; unit < schedule->units; unit++)
	{
		schedule->begins[unit + 1] += schedule->begins[unit];
		work->last[unit] = schedule->begins[unit];
	}
	for (uint32_t i = 0; i < schedule->npairs; i++)
		schedule->pairs[work->last[work->assigned[i]]++] = work->sorted[i];
	for (uint32_t unit = 0; unit < schedule->units; unit++)
		for (uint32_t i = schedule->begins[unit]; i < schedule->begins[unit + 1]; i++)
			if (seen[schedule->pairs[i].query] != unit + 1)
			{
				seen[schedule->pairs[i].query] = unit + 1;
				schedule->partials++;
			}
	free(seen);
	return true;
}

/* Check the pairs; returns how many queries there are, or UINT32_MAX. */
static uint32_t
check_pairs(const UnitPlacement *placement, const UnitPair *pairs, uint32_t npairs, EngineError *error)
{
	uint32_t	queries = 0;

	for (uint32_t i = 0; i < npairs; i++)
	{
		if (pairs[i].list >= placement->nlists || placement->lists[pairs[i].list].count == 0 ||
			pairs[i].query >= ENGINE_MAX_SLOTS)
		{
			engine_error(error, ENGINE_INVALID, "list %u of query %u is on no unit", pairs[i].list,
						 pairs[i].query);
			return UINT32_MAX;
		}
		queries = pairs[i].query >= queries ? pairs[i].query + 1 : queries;
	}
	return queries;
}

static Schedule *
allocate(uint32_t units, uint32_t npairs)
{
	Schedule   *schedule = calloc(1, sizeof(*schedule));

	if (schedule == NULL)
		return NULL;
	schedule->units = units;
	schedule->npairs = npairs;
	schedule->begins = calloc((size_t) units + 1, sizeof(uint32_t));
	schedule->pairs = malloc(((size_t) npairs + 1) * sizeof(UnitPair));
	schedule->load = calloc(units, sizeof(double));
	if (schedule->begins != NULL && schedule->pairs != NULL && schedule->load != NULL)
		return schedule;
	schedule_free(schedule);
	return NULL;
}

Schedule *
schedule_create(const UnitPlacement *placement, const ListLoad *lists, const UnitPair *pairs,
				uint32_t npairs, EngineError *error)
{
	Work		work = {.placement = placement, .lists = lists};
	uint32_t	queries = check_pairs(placement, pairs, npairs, error);
	Schedule   *schedule;

	if (queries == UINT32_MAX)
		return NULL;
	schedule = allocate(placement->units, npairs);
	if (schedule != NULL && work_begin(&work, npairs))
	{
		sort_by_list(&work, pairs, npairs);
		assign_all(&work, schedule->load);
		if (collect(schedule, &work, queries))
		{
			work_free(&work);
			return schedule;
		}
	}
	engine_error(error, ENGINE_NO_MEMORY, "out of memory for a schedule of %u pairs", npairs);
	work_free(&work);
	schedule_free(schedule);
	return NULL;
}

void
schedule_free(Schedule *schedule)
{
	if (schedule == NULL)
		return;
	free(schedule->begins);
	free(schedule->pairs);
	free(schedule->load);
	free(schedule);
}

double
schedule_balance(const Schedule *schedule)
{
	double		most = 0;
	double		total = 0;

	for (uint32_t unit = 0; unit < schedule->units; unit++)
	{
		most = schedule->load[unit] > most ? schedule->load[unit] : most;
		total += schedule->load[unit];
	}
	return total > 0 ? most * schedule->units / total : 1;
}
