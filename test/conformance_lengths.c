/*
 * conformance_lengths.c
 *		Inner products of rows that differ in length: long rows are near to all
 *		others, and the rest must still be found.
 *
 * Floors are below what was measured, and above what pruning by inner products
 * alone came to.
 */
#include <math.h>
#include <string.h>

#include "conformance.h"

#define QUERIES		100
#define K			20

/* A number from 0 to 1. */
static double
share(void)
{
	return (random_below(1 << 20) + 1) / (double) ((1 << 20) + 1);
}

/*
 * An element of the three kinds of data: a cube's, or about normal of either
 * sign, or of positive ones.
 */
static double
element(uint32_t dims, bool positive)
{
	double		sum = 0;

	if (dims == 3)
		return share();
	for (int i = 0; i < 6; i++)
		sum += share() - 0.5;
	return positive ? fabs(sum) : sum;
}

/*
 * A world of inner products whose rows are as long as e^(spread x normal), and
 * queries behind them.
 */
static World *
make_world(uint32_t dims, uint32_t rows, bool positive, double spread)
{
	World *world =
		world_create(ELEMENT_FLOAT, METRIC_IP, dims, rows + QUERIES, rows, SHAPE_UNIFORM);

	for (uint32_t i = 0; i < rows + QUERIES; i++)
	{
		double		length = exp(spread * element(1, false));
		char	   *vector = world->vectors + i * world->vector_bytes;

		for (uint32_t d = 0; d < dims; d++)
		{
			float		value = (float) (element(dims, positive) * length);

			memcpy(vector + d * sizeof(value), &value, sizeof(value));
		}
	}
	return world;
}

/* Recall of the nearest K at an ef is at least so much. */
static void
need_recall(const World *world, uint32_t ef, double least)
{
	EngineQuery queries[QUERIES];
	double		recall;

	for (uint32_t i = 0; i < QUERIES; i++)
		query_init(&queries[i], world, METHOD_GRAPH, K, ef,
				   world->vectors + (world->rows + i) * world->vector_bytes);
	recall = sound_recall(world, queries, QUERIES);
	CHECK(recall >= least, "%u dimensions: recall %.4f at ef %u is below %.4f", world->dims, recall,
		  ef, least);
}

/* Append rows and link them, all at once or piece by piece. */
static void
fill(World *world, uint32_t rows, uint32_t first, uint32_t piece)
{
	while (world->rows < rows)
	{
		uint32_t	count = world->rows == 0 ? first : piece;

		world_append(world, rows - world->rows < count ? rows - world->rows : count);
		world_link(world);
	}
}

/* Linked at once. */
static void
lengths_built(void)
{
	uint32_t	rows = options.quick ? 3000 : 10000;
	World	   *world = make_world(3, rows, true, 0);

	fill(world, rows, rows, rows);
	need_recall(world, 40, 0.96);
	world = make_world(32, rows, true, 0.5);
	fill(world, rows, rows, rows);
	need_recall(world, 20, 0.985);
}

/* Grown by pieces. */
static void
lengths_grown(void)
{
	uint32_t	rows = options.quick ? 2400 : 6000;
	World	   *world = make_world(3, rows, true, 0);

	fill(world, rows, 600, 100);
	need_recall(world, 40, 0.96);
}

/* Half of the rows die, and the others are repaired. */
static void
lengths_repaired(void)
{
	uint32_t	rows = options.quick ? 3000 : 8000;
	World	   *world = make_world(32, rows, true, 0.5);

	fill(world, rows, rows, rows);
	for (uint32_t slot = 0; slot < rows; slot += 2)
		world_kill(world, slot);
	world_repair(world, NULL, 0);
	check_repaired(world);
	need_recall(world, 20, 0.985);
}

const Case length_cases[] = {
	{"lengths_built", lengths_built, false},
	{"lengths_grown", lengths_grown, false},
	{"lengths_repaired", lengths_repaired, false},
	{NULL, NULL, false}
};
