/*
 * conformance_grow.c
 *		Cases of linking: a graph grown in batches is as good as one built at
 *		once, and every row is reached.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"

#define FIRST_QUERY		7000000 /* variants of queries, apart from those of rows */
#define GROWN_ROWS		5000
#define PIVOTS			32
#define QUERIES			300
#define NARROW_EF		16
#define BROAD_EF		24

/* Mean recall@10 at an ef. */
static double
recall_at(const World *world, uint32_t ef)
{
	EngineQuery *queries = allocate(QUERIES * sizeof(EngineQuery));
	double		sum = 0;

	for (uint32_t i = 0; i < QUERIES; i++)
	{
		void	   *vector = allocate(world->vector_bytes);

		make_vector(world, FIRST_QUERY + i, vector);
		query_init(&queries[i], world, METHOD_GRAPH, 10, ef, vector);
		queries[i].seeds = 16;		/* the graph is to lead there, not the seeds */
	}
	queries_run(queries, QUERIES);
	for (uint32_t i = 0; i < QUERIES; i++)
	{
		must(queries[i].status, &queries[i].error, "graph query");
		sum += recall_of(world, &queries[i]);
	}
	return sum / QUERIES;
}

/* Share of the rows that edges lead to from the seeds. */
static double
reached_share(const World *world)
{
	uint32_t	degree = world->degree;
	uint32_t   *slots = allocate(world->rows * sizeof(uint32_t));
	uint32_t   *versions = allocate(world->rows * sizeof(uint32_t));
	uint32_t   *rows = allocate((size_t) world->rows * degree * sizeof(uint32_t));
	uint32_t   *stack = allocate(world->rows * sizeof(uint32_t));
	bool	   *seen = allocate(world->rows * sizeof(bool));
	uint32_t	depth = 0;
	uint32_t	reached = 0;
	EngineError error;

	for (uint32_t slot = 0; slot < world->rows; slot++)
		slots[slot] = slot;
	must(ops->mirror_rows(engine, world->mirror, slots, world->rows, rows, versions, &error),
		 &error, "mirror_rows");
	memset(seen, 0, world->rows * sizeof(bool));
	for (uint32_t i = 0; i < world->nseeds; i++)
		if (!seen[world->seeds[i]])
		{
			seen[world->seeds[i]] = true;
			stack[depth++] = world->seeds[i];
		}
	while (depth > 0)
	{
		const uint32_t *row = rows + (size_t) stack[--depth] * degree;

		reached++;
		for (uint32_t i = 0; i < degree && row[i] != NO_SLOT; i++)
			if (!seen[row[i]])
			{
				seen[row[i]] = true;
				stack[depth++] = row[i];
			}
	}
	return (double) reached / world->rows;
}

static uint32_t *pivot_of;		/* by variant, while variants are sorted */

static int
compare_pivots(const void *left, const void *right)
{
	uint32_t	a = *(const uint32_t *) left;
	uint32_t	b = *(const uint32_t *) right;

	if (pivot_of[a] != pivot_of[b])
		return pivot_of[a] < pivot_of[b] ? -1 : 1;
	return a < b ? -1 : a > b;
}

/*
 * Put a world's rows in the order of the pivot that each is nearest to, so that
 * they come cluster by cluster.
 */
static void
sort_by_cluster(World *world)
{
	uint32_t   *variants = allocate(world->room * sizeof(uint32_t));
	char	   *pivots = allocate(PIVOTS * world->vector_bytes);

	pivot_of = allocate(world->room * sizeof(uint32_t));
	for (uint32_t i = 0; i < PIVOTS; i++)
		make_vector(world, FIRST_QUERY - 1 - i, pivots + i * world->vector_bytes);
	for (uint32_t slot = 0; slot < world->room; slot++)
	{
		double		nearest = 0;

		variants[slot] = slot;
		for (uint32_t i = 0; i < PIVOTS; i++)
		{
			double distance =
				model_distance(world, world_vector(world, slot), pivots + i * world->vector_bytes);

			if (i == 0 || distance < nearest)
			{
				nearest = distance;
				pivot_of[slot] = i;
			}
		}
	}
	qsort(variants, world->room, sizeof(uint32_t), compare_pivots);
	for (uint32_t slot = 0; slot < world->room; slot++)
		world_set_vector(world, slot, variants[slot]);
}

/* Recall at two breadths of a world linked in batches of so many rows. */
static void
grow(bool by_cluster, uint32_t batch, double *narrow, double *broad)
{
	World *world =
		world_create(ELEMENT_FLOAT, METRIC_L2, 48, GROWN_ROWS, GROWN_ROWS, SHAPE_CLUSTERED);
	double		reached;

	for (uint32_t slot = 0; slot < GROWN_ROWS; slot++)
		world_set_vector(world, slot, slot);
	if (by_cluster)
		sort_by_cluster(world);
	while (world->rows < GROWN_ROWS)
	{
		world_append(world, batch);
		world_link(world);
	}
	*narrow = recall_at(world, NARROW_EF);
	*broad = recall_at(world, BROAD_EF);
	reached = reached_share(world);
	printf(
		"# %s order, batches of %u: recall %.4f at ef %d, %.4f at ef %d, %.4f of the rows are reached\n",
		by_cluster ? "cluster" : "random", batch, *narrow, NARROW_EF, *broad, BROAD_EF, reached);
	CHECK(reached >= 0.999, "only %.4f of the rows are reached", reached);
	world_drop(world);
}

/*
 * Linking in increments of 1 % and 10 %, in random and in cluster order, is as
 * good as linking at once.
 */
static void
grown_in_batches(void)
{
	double		narrow,
				broad;

	grow(false, GROWN_ROWS, &narrow, &broad);
	for (int by_cluster = 0; by_cluster <= 1; by_cluster++)
		for (int share = 10; share <= 100; share *= 10)
		{
			double		grown_narrow,
						grown_broad;

			grow(by_cluster, GROWN_ROWS / (uint32_t) share, &grown_narrow, &grown_broad);
			CHECK(grown_narrow >= narrow - 0.005, "recall %.4f at ef %d, %.4f when linked at once",
				  grown_narrow, NARROW_EF, narrow);
			CHECK(grown_broad >= broad - 0.005, "recall %.4f at ef %d, %.4f when linked at once",
				  grown_broad, BROAD_EF, broad);
		}
}

/* Every row is reached from the seeds, whatever the data. */
static void
all_are_reached(void)
{
	static const Shape shapes[] = {SHAPE_UNIFORM, SHAPE_CLUSTERED, SHAPE_SMALL};
	static const char *const names[] = {"uniform", "clustered", "of small integers"};

	for (int i = 0; i < 3; i++)
	{
		World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 16, 3000, 3000, shapes[i]);
		double		reached;

		world_append(world, 3000);
		world_link(world);
		reached = reached_share(world);
		printf("# %s: %.4f of the rows are reached\n", names[i], reached);
		CHECK(reached >= 0.999, "%s: only %.4f of the rows are reached", names[i], reached);
		world_drop(world);
	}
}

const Case grow_cases[] = {
	{"grow_in_batches", grown_in_batches, true},
	{"grow_all_are_reached", all_are_reached, false},
	{NULL, NULL, false}
};
