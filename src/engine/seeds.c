/*
 * seeds.c
 *		The order of a graph's seeds. See seeds.h.
 *
 * Those tried are chosen one after another, each the farthest from those before it, so a cluster far from others has
 * one among them, however few its rows: a walk hardly gets there from elsewhere. Every other seed belongs to the list
 * of the nearest of them; those farthest from it come first, for what has no seed near that is tried needs its place
 * there most.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reach.h"
#include "seeds.h"

/* A seed of the pool, not chosen yet. */
typedef struct OtherSeed
{
	uint32_t	slot;
	uint32_t	number;			/* among the pool */
	uint32_t	list;			/* of the nearest that was chosen */
	float		nearest;		/* the distance to that */
} OtherSeed;

typedef struct SeedOrder
{
	OtherSeed	others[SEEDS_ORDERED];
	float		distances[SEEDS_ORDERED];
	uint32_t	ordered[SEEDS_ORDERED];
	uint32_t	listed[ENGINE_SEEDS_TRIED]; /* seeds that each list has */
} SeedOrder;

const DistanceKernels *
seeds_kernels(ElementType type, Metric metric)
{
	return distance_kernels(type, metric == METRIC_IP ? METRIC_L2 : metric, SIMD_BEST);
}

size_t
seeds_order_bytes(void)
{
	return sizeof(SeedOrder);
}

static int
compare_others(const void *left, const void *right)
{
	const OtherSeed *a = left;
	const OtherSeed *b = right;

	if (a->nearest != b->nearest)
		return a->nearest > b->nearest ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

/* Choose the seeds that are tried; others keeps those that are left. Returns how many these are. */
static uint32_t
choose_tried(SeedOrder *order, const uint32_t *seeds, const SeedMeasure *measure)
{
	OtherSeed  *others = order->others;
	uint32_t	nothers = measure->pool;

	for (uint32_t i = 0; i < nothers; i++)
		others[i] = (OtherSeed) {seeds[i], i, 0, HUGE_VALF};
	for (uint32_t i = 0; i < ENGINE_SEEDS_TRIED; i++)
	{
		OtherSeed	chosen;
		uint32_t	place = 0;

		/* they stay in the order of their numbers: the first ones are chosen first */
		for (uint32_t j = 1; i >= REACH_SEEDS && j < nothers; j++)
			if (others[j].nearest > others[place].nearest)
				place = j;
		chosen = others[place];
		memmove(&others[place], &others[place + 1], (--nothers - place) * sizeof(OtherSeed));
		order->ordered[i] = chosen.slot;
		measure->distances(measure->context, chosen.number, order->distances);
		for (uint32_t j = 0; j < nothers; j++)
			if (order->distances[others[j].number] < others[j].nearest)
			{
				others[j].nearest = order->distances[others[j].number];
				others[j].list = i;
			}
	}
	return nothers;
}

/* Fill the lists with what belongs there, and the places left with what found none; the last seeds found are not of the pool. */
static void
fill_lists(SeedOrder *order, uint32_t nothers, const uint32_t *seeds, uint32_t pool, uint32_t count)
{
	uint32_t	length = seed_list_length(count);
	uint32_t	placed = count < SEEDS_ORDERED ? count : SEEDS_ORDERED;
	uint32_t	left = 0;
	uint32_t	next = 0;

	for (uint32_t i = ENGINE_SEEDS_TRIED; i < placed; i++)
		order->ordered[i] = NO_SLOT;
	memset(order->listed, 0, sizeof(order->listed));
	qsort(order->others, nothers, sizeof(OtherSeed), compare_others);
	for (uint32_t i = 0; i < nothers; i++)
	{
		OtherSeed	other = order->others[i];

		if (order->listed[other.list] < length)
			order->ordered[seed_list_start(other.list, count) + order->listed[other.list]++] = other.slot;
		else
			order->others[left++] = other;
	}
	for (uint32_t i = ENGINE_SEEDS_TRIED; i < placed; i++)
		if (order->ordered[i] == NO_SLOT)
			order->ordered[i] = next < left ? order->others[next++].slot : seeds[pool++];
}

void
seeds_order(uint32_t *seeds, uint32_t count, const SeedMeasure *measure, void *memory)
{
	SeedOrder  *order = memory;
	uint32_t	nothers = choose_tried(order, seeds, measure);

	fill_lists(order, nothers, seeds, measure->pool, count);
	memcpy(seeds, order->ordered, (count < SEEDS_ORDERED ? count : SEEDS_ORDERED) * sizeof(uint32_t));
}
