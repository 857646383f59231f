/*
 * units_test_placement.c
 *		Placement, beside the algorithm step by step, its balance under queries
 *		that were not known, and its mending.
 */
#include "units_test.h"

#define WORLD_DIMS	8

/* Lists of given works; a list's bytes are its number plus one. */
static ListLoad *
loads_of(const double *works, uint32_t count)
{
	ListLoad   *loads = need(count * sizeof(ListLoad));

	for (uint32_t i = 0; i < count; i++)
		loads[i] = (ListLoad) {.probes = works[i], .cost = 1, .bytes = i + 1};
	return loads;
}

static ListLoad *
random_loads(uint32_t count, double skew)
{
	ListLoad   *loads = need(count * sizeof(ListLoad));

	for (uint32_t i = 0; i < count; i++)
		loads[i] = (ListLoad) {.probes = floor(1000 / pow(i + 1, skew)),
							   .cost = list_probe_cost(below(5000)),
							   .bytes = 1 + below(1000)};
	return loads;
}

static UnitPlacement *
place(const ListLoad *loads, uint32_t count, uint32_t units, uint64_t capacity, CopyRule copies)
{
	PlacementSpec spec = {loads, count, units, capacity, copies, NULL, NULL};
	EngineError error = {0};

	return placement_create(&spec, &error);
}

static void
test_golden(void)
{
	static const double works[] = {6, 4, 2, 2, 1, 1};
	static const uint32_t units[] = {0, 1, 0, 1, 1, 1};
	ListLoad   *loads = loads_of(works, 6);
	UnitPlacement *placement = place(loads, 6, 2, 0, COPIES_BY_WORK);

	CHECK(placement != NULL && placement->mean == 8 && placement->threshold == 1);
	for (uint32_t i = 0; i < 6; i++)
		CHECK(placement->lists[i].count == 1 && placement->lists[i].units[0] == units[i]);
	CHECK(placement->load[0] == 8 && placement->load[1] == 8);
	CHECK(placement->stored[0] == 1 + 3 && placement->stored[1] == 2 + 4 + 5 + 6);
	placement_free(placement);
	free(loads);
	report("lists are placed by work, round the units, as by hand");
}

static void
test_copies(void)
{
	double		works[25];
	ListLoad   *loads;
	UnitPlacement *placement;

	works[0] = 40;
	for (int i = 1; i < 25; i++)
		works[i] = 1;
	loads = loads_of(works, 25);
	placement = place(loads, 25, 8, 0, COPIES_BY_WORK);
	CHECK(placement != NULL && placement->mean == 8 && placement->lists[0].count == 5);
	for (uint32_t i = 1; i < 25; i++)
		CHECK(placement->lists[i].count == 1);
	CHECK(placement_balance(placement) == 1);
	placement_free(placement);
	placement = place(loads, 25, 4, 0, COPIES_BY_WORK);
	CHECK(placement != NULL && placement->lists[0].count == 3);
	placement_free(placement);
	free(loads);
	report("a list of five times a unit's work has five copies");
}

/* The algorithm step by step: the units of each list, in order. */
static void
place_by_steps(const ListLoad *loads, uint32_t count, uint32_t units, uint64_t capacity,
			   const uint32_t *order, uint32_t *places, uint32_t *copies)
{
	double	   *load = need(units * sizeof(double));
	uint64_t   *stored = need(units * sizeof(uint64_t));
	double		mean = 0;
	uint32_t	cursor = 0;

	for (uint32_t i = 0; i < count; i++)
		mean += loads[i].probes * loads[i].cost;
	mean /= units;
	for (uint32_t i = 0; i < count; i++)
	{
		const ListLoad *list = &loads[order[i]];
		uint32_t   *at = &places[order[i] * units];
		uint32_t   *n = &copies[order[i]];
		double		work = list->probes * list->cost;
		uint32_t	wanted = (uint32_t) fmin(fmax(ceil(work / mean), 1), units);

		*n = 0;
		for (uint32_t step = 0, tried = 0; *n < wanted;)
		{
			uint32_t	unit = cursor;
			bool		held = false;

			for (uint32_t j = 0; j < *n; j++)
				held |= at[j] == unit;
			cursor = (cursor + 1) % units;
			if (!held && load[unit] + work / wanted <= mean * (1 + step * PLACEMENT_STEP) &&
				stored[unit] + list->bytes <= capacity)
			{
				at[(*n)++] = unit;
				load[unit] += work / wanted;
				stored[unit] += list->bytes;
				tried = 0;
			}
			else if (++tried == units)
			{
				step++;
				tried = 0;
				if (step > 100 * units)
					break;
			}
		}
	}
	free(load);
	free(stored);
}

static const ListLoad *ordered;

static int
by_work(const void *a, const void *b)
{
	uint32_t	x = *(const uint32_t *) a;
	uint32_t	y = *(const uint32_t *) b;
	double		difference =
		ordered[y].probes * ordered[y].cost - ordered[x].probes * ordered[x].cost;

	return difference != 0 ? (difference > 0 ? 1 : -1) : x < y ? -1 : 1;
}

/* What every placement keeps. */
static void
check_rules(const UnitPlacement *placement, const ListLoad *loads)
{
	double		most = 0;
	uint64_t   *stored = need(placement->units * sizeof(uint64_t));

	for (uint32_t i = 0; i < placement->nlists; i++)
	{
		const ListUnits *at = &placement->lists[i];

		CHECK(at->count >= 1 && at->count <= placement->units);
		for (uint32_t j = 0; j < at->count; j++)
		{
			CHECK(at->units[j] < placement->units);
			stored[at->units[j]] += loads[i].bytes;
			for (uint32_t l = 0; l < j; l++)
				CHECK(at->units[l] != at->units[j]);
		}
	}
	for (uint32_t unit = 0; unit < placement->units; unit++)
	{
		CHECK(stored[unit] == placement->stored[unit]);
		CHECK(placement->capacity == 0 || stored[unit] <= placement->capacity);
		most = fmax(most, placement->load[unit]);
	}
	CHECK(most <= placement->mean * placement->threshold * (1 + 1e-9));
	free(stored);
}

static void
test_rules(void)
{
	static const uint32_t units[] = {1, 2, 3, 8, 61, 896};

	for (uint32_t turn = 0; turn < 24; turn++)
	{
		uint32_t	n = units[turn % 6];
		uint32_t	count = 1 + below(turn < 18 ? 200 : 2000);
		ListLoad   *loads = random_loads(count, 0.4 * (turn % 5));
		uint64_t	capacity = 1000 + 1000 * (uint64_t) count / n;
		uint32_t   *order = need(count * sizeof(uint32_t));
		uint32_t   *places = need((size_t) count * n * sizeof(uint32_t));
		uint32_t   *copies = need(count * sizeof(uint32_t));
		UnitPlacement *placement = place(loads, count, n, capacity, COPIES_BY_WORK);

		CHECK(placement != NULL);
		for (uint32_t i = 0; i < count; i++)
			order[i] = i;
		ordered = loads;
		qsort(order, count, sizeof(uint32_t), by_work);
		if (placement != NULL)
			check_rules(placement, loads);
		place_by_steps(loads, count, n, capacity, order, places, copies);
		for (uint32_t i = 0; placement != NULL && i < count; i++)
		{
			CHECK(placement->lists[i].count == copies[i]);
			CHECK(memcmp(placement->lists[i].units, &places[i * n], copies[i] * 4) == 0);
		}
		placement_free(placement);
		free(loads);
		free(order);
		free(places);
		free(copies);
	}
	report("a list is on units of its own within capacity and threshold, as step by step");
}

static void
test_capacity(void)
{
	static const double works[] = {100, 1, 1, 1};
	ListLoad   *loads = loads_of(works, 4);
	PlacementSpec spec = {loads, 4, 3, 3, COPIES_BY_WORK, NULL, NULL};
	EngineError error = {0};
	UnitPlacement *placement;

	CHECK(placement_create(&spec, &error) == NULL && error.status == ENGINE_UNSUPPORTED);
	CHECK(strstr(error.text, "list 3 of 4 bytes fits on none of 3 units of 3 bytes") != NULL);
	spec.units = 0;
	CHECK(placement_create(&spec, &error) == NULL && error.status == ENGINE_INVALID);
	spec.units = UNITS_MAX + 1;
	CHECK(placement_create(&spec, &error) == NULL && error.status == ENGINE_INVALID);
	spec.units = 3;
	loads[2].probes = NAN;
	CHECK(placement_create(&spec, &error) == NULL && error.status == ENGINE_INVALID);
	loads[2].probes = 1;
	loads[0].bytes = 7;
	/* three copies of the first list would take the room of the last one */
	placement = place(loads, 4, 3, 10, COPIES_BY_WORK);
	CHECK(placement != NULL && placement->lists[0].count == 2);
	if (placement != NULL)
		check_rules(placement, loads);
	placement_free(placement);
	for (int i = 0; i < 4; i++)
		loads[i].probes = 0;
	placement = place(loads, 4, 3, 0, COPIES_BY_WORK);
	CHECK(placement != NULL && placement_balance(placement) == 1);
	placement_free(placement);
	placement = place(loads, 0, 3, 0, COPIES_SPARE);
	CHECK(placement != NULL);
	placement_free(placement);
	free(loads);
	report("too little capacity is an error with figures, never a loop");
}

static void
test_spare(void)
{
	ListLoad   *loads = random_loads(300, 1);
	UnitPlacement *all = place(loads, 300, 8, 0, COPIES_SPARE);
	UnitPlacement *one = place(loads, 300, 8, 40000, COPIES_ONE);
	UnitPlacement *spare = place(loads, 300, 8, 40000, COPIES_SPARE);
	uint32_t	copies = 0;

	CHECK(all != NULL && one != NULL && spare != NULL);
	for (uint32_t i = 0; i < 300; i++)
	{
		CHECK(all->lists[i].count == 8 && one->lists[i].count == 1);
		copies += spare->lists[i].count;
	}
	CHECK(fabs(placement_balance(all) - 1) < 1e-9 && copies > 450);
	check_rules(spare, loads);
	CHECK(placement_balance(spare) <= placement_balance(one) * (1 + 1e-9));
	placement_free(all);
	placement_free(one);
	placement_free(spare);
	free(loads);
	report("spare memory is used for further copies, and without a limit every unit has all");
}

/*
 * Count the probes of queries: the centroids of lists are random points, a
 * query is near one of them, by Zipf's law of their popularity, and probes the
 * lists nearest to it.
 */
static void
count_probes(ListLoad *loads, const float *centres, uint32_t lists, uint32_t probes, double zipf,
			 uint32_t queries)
{
	SearchResult *heap = need(probes * sizeof(SearchResult));
	double		sum = 0;

	for (uint32_t i = 0; i < lists; i++)
	{
		loads[i].probes = 0.5;
		sum += 1 / pow(i + 1, zipf);
	}
	for (uint32_t query = 0; query < queries; query++)
	{
		double		left = random_fraction(&random_state) * sum;
		uint32_t	centre = 0;
		uint32_t	count = 0;
		float		vector[WORLD_DIMS];

		while (centre < lists - 1 && (left -= 1 / pow(centre + 1, zipf)) > 0)
			centre++;
		for (uint32_t i = 0; i < WORLD_DIMS; i++)
			vector[i] = centres[centre * WORLD_DIMS + i] +
				0.2f * (float) (random_fraction(&random_state) - 0.5);
		for (uint32_t i = 0; i < lists; i++)
		{
			SearchResult entry = {.slot = i};

			for (uint32_t j = 0; j < WORLD_DIMS; j++)
				entry.distance += pow(vector[j] - centres[i * WORLD_DIMS + j], 2);
			(void) farthest_offer(heap, &count, probes, entry);
		}
		for (uint32_t i = 0; i < count; i++)
			loads[heap[i].slot].probes++;
	}
	free(heap);
}

/*
 * The greatest load over the mean by each of two rules, for queries other than
 * those that lists were placed by.
 */
static void
balances(uint32_t lists, uint32_t probes, double zipf, uint32_t units, const CopyRule rules[2],
		 double result[2])
{
	float	   *centres = need(lists * WORLD_DIMS * sizeof(float));
	ListLoad   *loads = random_loads(lists, 0);
	UnitPlacement *placements[2];

	for (uint32_t i = 0; i < lists * WORLD_DIMS; i++)
		centres[i] = (float) (random_fraction(&random_state) + random_fraction(&random_state));
	for (uint32_t i = 0; i < lists; i++)
	{
		double		rows = 400 * exp(2 * random_fraction(&random_state) - 1);

		loads[i].cost = list_probe_cost((uint64_t) rows);
	}
	count_probes(loads, centres, lists, probes, zipf, 6000);
	for (int i = 0; i < 2; i++)
		placements[i] = place(loads, lists, units, 0, rules[i]);
	count_probes(loads, centres, lists, probes, zipf, 1000);
	for (int i = 0; i < 2; i++)
	{
		CHECK(placements[i] != NULL && placement_predict(placements[i], loads));
		result[i] = placement_balance(placements[i]);
		placement_free(placements[i]);
	}
	free(centres);
	free(loads);
}

static void
test_balance(void)
{
	static const CopyRule scattered[] = {COPIES_SCATTERED, COPIES_BY_WORK};
	static const CopyRule single[] = {COPIES_ONE, COPIES_BY_WORK};
	double		load[2];

	balances(1024, 32, 1.0, 8, scattered, load);
	printf("# 8 units, 1,024 lists, Zipf 1: greatest load over mean %.3f scattered, %.3f placed\n",
		   load[0], load[1]);
	CHECK(load[1] <= 1.10 && load[0] > load[1] * 1.1);
	/* few lists for a unit, very skewed: where copies by work are made */
	balances(256, 8, 1.6, 64, single, load);
	printf("# 64 units, 256 lists, Zipf 1.6: %.3f with one copy of each, %.3f with copies by work\n",
		   load[0], load[1]);
	CHECK(load[1] <= 1.35 && load[0] > 1.5 * load[1]);
	report("units have even loads where a scattered placement's are not");
}

/* Apply moves to a placement: no list is ever without a unit. */
static void
check_moves(UnitPlacement *before, const UnitPlacement *after, const UnitMove *moves,
			uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
	{
		ListUnits  *at = &before->lists[moves[i].list];

		if (moves[i].to != NO_UNIT)
		{
			CHECK(!placement_holds(before, moves[i].list, moves[i].to));
			CHECK(placement_add(before, moves[i].list, moves[i].to));
		}
		for (uint32_t j = 0; moves[i].from != NO_UNIT && j < at->count; j++)
			if (at->units[j] == moves[i].from)
				at->units[j] = at->units[--at->count];
		CHECK(at->count > 0);
	}
	for (uint32_t i = 0; i < after->nlists; i++)
	{
		CHECK(before->lists[i].count == after->lists[i].count);
		for (uint32_t j = 0; j < after->lists[i].count; j++)
			CHECK(placement_holds(before, i, after->lists[i].units[j]));
	}
}

static void
test_mend(void)
{
	static const CopyRule rules[] = {COPIES_ONE, COPIES_BY_WORK, COPIES_SPARE};

	for (uint32_t turn = 0; turn < 12; turn++)
	{
		uint32_t	count = 400;
		uint32_t	n = 2 + turn;
		uint64_t	capacity = turn % 2 ? 400 * 1000 * 2 / n : 0;
		ListLoad   *loads = random_loads(count, 0.9);
		UnitPlacement *placement;
		UnitPlacement *before;
		UnitMove	moves[2000];
		uint32_t	moved;
		uint32_t	rest;
		double		most = 1.1; /* or a single list's work */

		capacity = rules[turn % 3] == COPIES_SPARE && capacity == 0 ? 60000 : capacity;
		placement = place(loads, count, n, capacity, rules[turn % 3]);
		before = place(loads, count, n, capacity, rules[turn % 3]);
		CHECK(placement != NULL && before != NULL);
		CHECK(placement_balance(placement) > 1.1 ||
			  placement_mend(placement, loads, 1.1, moves, 2000) == 0);
		/* a third of the ranks changes */
		for (uint32_t i = 0; i < count; i += 3)
		{
			uint32_t	other = below(count);
			double		probes = loads[i].probes;

			loads[i].probes = loads[other].probes;
			loads[other].probes = probes;
		}
		moved = placement_mend(placement, loads, 1.1, moves, 3);
		CHECK(moved <= 3);
		rest = placement_mend(placement, loads, 1.1, moves + moved, 2000 - moved);
		for (uint32_t i = 0; i < count; i++)
			most = fmax(most, loads[i].probes * loads[i].cost / placement->lists[i].count /
						placement->mean);
		CHECK(placement_balance(placement) <= most * (1 + 1e-9));
		check_rules(placement, loads);
		check_moves(before, placement, moves, moved + rest);
		CHECK(placement_mend(placement, loads, 1.1, moves, 2000) == 0);
		placement_free(placement);
		placement_free(before);
		free(loads);
	}
	report("moves mend a placement after drift, and no list is ever without a unit");
}

void
test_placement(void)
{
	test_golden();
	test_copies();
	test_rules();
	test_capacity();
	test_spare();
	test_balance();
	test_mend();
}
