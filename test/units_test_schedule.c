/*
 * units_test_schedule.c
 *		Schedules: golden ones, rules, and loads of a skewed workload.
 */
#include "units_test.h"

static const CopyRule rules[] = {COPIES_ONE, COPIES_BY_WORK, COPIES_SPARE, COPIES_SCATTERED};

static void
test_golden(void)
{
	/* lists 0 and 1 are on both units, 2 on the first, 3 on the second */
	uint32_t	both[] = {0, 1};
	uint32_t	first[] = {0};
	uint32_t	second[] = {1};
	ListUnits	units[] = {{both, 2, 2}, {both, 2, 2}, {first, 1, 1}, {second, 1, 1}};
	UnitPlacement placement = {.nlists = 4, .units = 2, .lists = units};
	ListLoad	loads[] = {{.cost = 5}, {.cost = 7}, {.cost = 10}, {.cost = 1}};
	UnitPair	pairs[] = {{0, 0}, {0, 2}, {1, 3}, {1, 1}, {2, 1}, {2, 0}, {3, 2}};
	/*
	 * One unit: 2 twice on unit 0 (20), 3 on unit 1 (1). Then list 1: queries 1
	 * and 2 on unit 1 (8, 15). List 0: query 0 on 1 (20); query 2 on 0, the
	 * lower of two at 20.
	 */
	UnitPair	expected[] = {{2, 0}, {0, 2}, {3, 2}, {0, 0}, {1, 1}, {2, 1}, {1, 3}};
	EngineError error;
	Schedule   *schedule = schedule_create(&placement, loads, pairs, 7, &error);

	CHECK(schedule != NULL && schedule->begins[1] == 3 && schedule->begins[2] == 7);
	CHECK(memcmp(schedule->pairs, expected, sizeof(expected)) == 0);
	CHECK(schedule->load[0] == 25 && schedule->load[1] == 20);
	CHECK(schedule_balance(schedule) == 25 / 22.5);
	CHECK(schedule->partials == 3 + 3);
	schedule_free(schedule);
	pairs[3].list = 4;
	CHECK(schedule_create(&placement, loads, pairs, 7, &error) == NULL &&
		  error.status == ENGINE_INVALID);
	report("a schedule is as by hand: lists of one unit first, then the costliest");
}

/* A workload: centres of lists, queries near popular ones. */
typedef struct World
{
	uint32_t	lists;
	uint32_t	probes;
	float	   *centres;		/* lists x 8 */
	double	   *popular;		/* the sum of the weights so far */
	ListLoad   *loads;
} World;

#define WORLD_DIMS	8

static void
world_make(World *world, uint32_t lists, uint32_t probes, double zipf)
{
	double		sum = 0;

	*world = (World) {.lists = lists, .probes = probes};
	world->centres = need(lists * WORLD_DIMS * sizeof(float));
	world->popular = need(lists * sizeof(double));
	world->loads = need(lists * sizeof(ListLoad));
	for (uint32_t i = 0; i < lists * WORLD_DIMS; i++)
		world->centres[i] = (float) (random_fraction(&random_state) +
									 random_fraction(&random_state));
	for (uint32_t i = 0; i < lists; i++)
	{
		uint32_t	rows = (uint32_t) (400 * exp(2 * random_fraction(&random_state) - 1));

		world->popular[i] = sum += 1 / pow(i + 1, zipf);
		world->loads[i] = (ListLoad) {.cost = list_probe_cost(rows), .bytes = 16 * rows};
	}
}

static void
world_free(World *world)
{
	free(world->centres);
	free(world->popular);
	free(world->loads);
}

static double
distance(const float *a, const float *b)
{
	double		sum = 0;

	for (int i = 0; i < WORLD_DIMS; i++)
		sum += (a[i] - b[i]) * (a[i] - b[i]);
	return sum;
}

/* The pairs of a query. */
static void
world_query(const World *world, uint32_t query, UnitPair *pairs)
{
	double		at = random_fraction(&random_state) * world->popular[world->lists - 1];
	uint32_t	count = 0;
	uint32_t	centre = 0;
	float		vector[WORLD_DIMS];
	SearchResult *heap = need(world->probes * sizeof(SearchResult));

	while (world->popular[centre] < at)
		centre++;
	for (int i = 0; i < WORLD_DIMS; i++)
		vector[i] = world->centres[centre * WORLD_DIMS + i] +
			0.2f * (float) (random_fraction(&random_state) - 0.5);
	for (uint32_t i = 0; i < world->lists; i++)
		(void) farthest_offer(heap, &count, world->probes, (SearchResult) {
			.distance = distance(vector, world->centres + i * WORLD_DIMS), .slot = i});
	for (uint32_t i = 0; i < count; i++)
		pairs[i] = (UnitPair) {query, heap[i].slot};
	free(heap);
}

static void
world_batch(const World *world, uint32_t queries, UnitPair *pairs)
{
	for (uint32_t i = 0; i < queries; i++)
		world_query(world, i, pairs + (size_t) i * world->probes);
}

/* Learn how often lists are probed. */
static void
world_learn(World *world, uint32_t queries)
{
	UnitPair   *pairs = need(world->probes * sizeof(UnitPair));

	for (uint32_t i = 0; i < world->lists; i++)
		world->loads[i].probes = 0.5;
	for (uint32_t i = 0; i < queries; i++)
	{
		world_query(world, 0, pairs);
		for (uint32_t j = 0; j < world->probes; j++)
			world->loads[pairs[j].list].probes++;
	}
	free(pairs);
}

/* Every pair is once in a schedule, on a unit that holds its list. */
static void
check_schedule(const Schedule *schedule, const UnitPlacement *placement, const ListLoad *loads,
			   uint32_t queries)
{
	unsigned char *seen = need((size_t) queries * placement->nlists);
	uint64_t	partials = 0;

	for (uint32_t unit = 0; unit < schedule->units; unit++)
	{
		unsigned char *asked = need(queries);
		double		load = 0;

		for (uint32_t i = schedule->begins[unit]; i < schedule->begins[unit + 1]; i++)
		{
			UnitPair	pair = schedule->pairs[i];

			CHECK(placement_holds(placement, pair.list, unit));
			CHECK(i == schedule->begins[unit] || schedule->pairs[i - 1].list <= pair.list);
			CHECK(!seen[(size_t) pair.query * placement->nlists + pair.list]++);
			partials += !asked[pair.query];
			asked[pair.query] = 1;
			load += loads[pair.list].cost;
		}
		CHECK(fabs(load - schedule->load[unit]) <= load * 1e-9);
		free(asked);
	}
	CHECK(schedule->begins[schedule->units] == schedule->npairs);
	CHECK(partials == schedule->partials);
	free(seen);
}

/* The balance of a batch's schedule. */
static double
balance(const World *world, uint32_t units, CopyRule rule, uint64_t capacity,
		const UnitPair *pairs, uint32_t queries)
{
	PlacementSpec spec = {world->loads, world->lists, units, capacity, rule};
	EngineError error;
	UnitPlacement *placement = placement_create(&spec, &error);
	Schedule   *schedule = placement == NULL ? NULL
		: schedule_create(placement, world->loads, pairs, queries * world->probes, &error);
	double		result = INFINITY;

	CHECK(schedule != NULL);
	if (schedule != NULL)
	{
		check_schedule(schedule, placement, world->loads, queries);
		result = schedule_balance(schedule);
	}
	schedule_free(schedule);
	placement_free(placement);
	return result;
}

static void
test_balance(void)
{
	World		world;
	UnitPair   *pairs = need(1000 * 32 * sizeof(UnitPair));
	double		scattered;
	double		placed;
	double		few;

	world_make(&world, 1024, 32, 1.0);
	world_learn(&world, 6000);
	world_batch(&world, 1000, pairs);
	scattered = balance(&world, 8, COPIES_SCATTERED, 0, pairs, 1000);
	placed = balance(&world, 8, COPIES_BY_WORK, 0, pairs, 1000);
	printf("# 8 units, 1,000 queries, Zipf 1: greatest load over mean %.3f scattered, %.3f placed\n",
		   scattered, placed);
	CHECK(placed <= 1.10);
	CHECK(scattered > placed * 1.1);
	CHECK(balance(&world, 8, COPIES_SPARE, 0, pairs, 1000) <= 1.01);
	/* of a small batch, spare copies even out what placement alone does not */
	few = balance(&world, 8, COPIES_ONE, 0, pairs, 16);
	CHECK(balance(&world, 8, COPIES_SPARE, 2 * 1024 * 16 * 500 / 8, pairs, 16) < few);
	world_free(&world);
	/* few lists for a unit, very skewed: where copies by work are made */
	world_make(&world, 256, 8, 1.6);
	world_learn(&world, 6000);
	world_batch(&world, 1000, pairs);
	scattered = balance(&world, 64, COPIES_ONE, 0, pairs, 1000);
	placed = balance(&world, 64, COPIES_BY_WORK, 0, pairs, 1000);
	printf("# 64 units, 256 lists, Zipf 1.6: %.3f with one copy of each, %.3f with copies by work\n",
		   scattered, placed);
	CHECK(placed <= 1.35 && scattered > 1.5 * placed);
	world_free(&world);
	free(pairs);
	report("units have even loads where a scattered placement's are not");
}

static void
test_rules(void)
{
	World		world;
	UnitPair   *pairs = need(200 * 10 * sizeof(UnitPair));

	world_make(&world, 100, 10, 1.3);
	world_learn(&world, 500);
	world_batch(&world, 200, pairs);
	for (uint32_t units = 1; units <= 40; units = units * 2 + 1)
		for (int rule = 0; rule < 4; rule++)
			(void) balance(&world, units, rules[rule], 0, pairs, 200);
	(void) balance(&world, 3, COPIES_BY_WORK, 0, pairs, 0);
	world_free(&world);
	free(pairs);
	report("every pair is scheduled once, on a unit that holds its list");
}

/* Rows of lists, with many equal distances. */
typedef struct Rows
{
	const World *world;
	uint32_t	moduli;
} Rows;

static void
scan_list(void *context, uint32_t unit, const UnitPair *pair, TopK *nearest)
{
	const Rows *rows = context;
	uint32_t	count = (uint32_t) rows->world->loads[pair->list].bytes / 16;

	for (uint32_t i = 0; i < count; i++)
	{
		uint32_t	slot = pair->list * 2000 + i;
		uint32_t	number = (slot ^ pair->query * 0x9E3779B1u) * 0x85EBCA77u;

		(void) farthest_offer(nearest->heap, &nearest->count, nearest->k, (SearchResult) {
			.distance = number % rows->moduli, .slot = slot, .version = slot % 7});
	}
}

/* The answers of a batch on some units. */
static void
answer(const World *world, uint32_t units, CopyRule rule, const UnitPair *pairs, uint32_t k,
	   SearchResult *results, uint32_t *counts)
{
	PlacementSpec spec = {world->loads, world->lists, units, 0, rule};
	EngineError error;
	UnitPlacement *placement = placement_create(&spec, &error);
	Schedule   *schedule = schedule_create(placement, world->loads, pairs, 50 * world->probes,
										   &error);
	Rows		rows = {world, 5000};
	UnitScan	scan = {scan_list, &rows, 50, k};
	UnitCounters counters;

	CHECK(units_search(schedule, &scan, results, counts, &counters));
	CHECK(counters.partials == schedule->partials);
	CHECK(counters.returned <= counters.partials * k);
	CHECK(counters.merge.entries == counters.returned);
	CHECK(counters.merge.pushes >= counts[0] && counters.merge.pushes <= counters.returned);
	/* rows of lists abound: each unit gives k */
	if (k <= 100)
		CHECK(counters.returned == counters.partials * k);
	schedule_free(schedule);
	placement_free(placement);
}

static void
test_same_answers(void)
{
	static const uint32_t units[] = {2, 4, 8, 100};
	World		world;
	UnitPair   *pairs = need(50 * 6 * sizeof(UnitPair));

	world_make(&world, 40, 6, 1.2);
	world_learn(&world, 500);
	world_batch(&world, 50, pairs);
	for (uint32_t k = 1; k <= 10000; k *= 10)
	{
		SearchResult *one = need(50 * k * sizeof(SearchResult));
		SearchResult *other = need(50 * k * sizeof(SearchResult));
		uint32_t	count_one[50];
		uint32_t	count_other[50];

		answer(&world, 1, COPIES_ONE, pairs, k, one, count_one);
		for (int i = 0; i < 16; i++)
		{
			answer(&world, units[i / 4], rules[i % 4], pairs, k, other, count_other);
			CHECK(memcmp(count_one, count_other, sizeof(count_one)) == 0);
			for (uint32_t q = 0; q < 50; q++)
				CHECK(memcmp(one + q * k, other + q * k, count_one[q] * sizeof(SearchResult)) == 0);
		}
		free(one);
		free(other);
	}
	world_free(&world);
	free(pairs);
	report("answers are those of one unit, to the byte, for any units and copies");
}

void
test_schedule(void)
{
	test_golden();
	test_rules();
	test_balance();
	test_same_answers();
}
