/*
 * seeds.c
 *		Order the seeds of a graph, see seeds.h.
 *
 * The tried seeds are chosen by farthest-point sampling, so that a cluster far
 * from others gets one, however few its rows are; walks hardly get there from
 * elsewhere. More seeds are chosen the same way, then the others follow, those
 * farthest from all chosen first. Each goes to the list of the nearest tried
 * seed whose list has room. So each cluster gets a seed in a list before
 * another gets its second, and tried seeds in the centre, which many seeds are
 * nearest to, do not take all of them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/connectivity.h"
#include "engine/seeds.h"

#define SEEDS_APART			1024	/* chosen by farthest-point sampling: those tried, then the
									 * first entries of lists */
#define SEED_HOMES			4		/* a seed goes to the list of one of this many nearest tried
									 * seeds */

/* A seed of the pool that has not been chosen. */
typedef struct OtherSeed
{
	uint32_t	slot;
	uint32_t	number;			/* index in the pool */
	float		apart;			/* distance to the nearest chosen seed */
	uint32_t	homes[SEED_HOMES];	/* nearest first */
	float		distances[SEED_HOMES];
} OtherSeed;

typedef struct SeedOrder
{
	OtherSeed	others[SEEDS_ORDERED];
	OtherSeed	listed_first[SEEDS_APART - ENGINE_SEEDS_TRIED];
	float		distances[SEEDS_ORDERED];
	uint32_t	ordered[SEEDS_ORDERED];
	uint32_t	listed[ENGINE_SEEDS_TRIED]; /* length of each list */
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

	if (a->apart != b->apart)
		return a->apart > b->apart ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

/* Record the distance to a tried seed, if that is among the nearest. */
static void
note_home(OtherSeed *other, uint32_t tried, float distance)
{
	uint32_t	place = SEED_HOMES;

	for (; place > 0 && distance < other->distances[place - 1]; place--)
		if (place < SEED_HOMES)
		{
			other->distances[place] = other->distances[place - 1];
			other->homes[place] = other->homes[place - 1];
		}
	if (place == SEED_HOMES)
		return;
	other->distances[place] = distance;
	other->homes[place] = tried;
}

/*
 * Choose seeds far from each other: first those that are tried, then, unless
 * tried_only, those that come first in lists. others keeps the rest; returns
 * how many.
 */
static uint32_t
choose_apart(SeedOrder *order, const uint32_t *seeds, const SeedMeasure *measure)
{
	OtherSeed  *others = order->others;
	uint32_t	nothers = measure->pool;
	uint32_t	most = measure->tried_only ? ENGINE_SEEDS_TRIED : SEEDS_APART;

	for (uint32_t i = 0; i < nothers; i++)
	{
		others[i] = (OtherSeed) {.slot = seeds[i], .number = i, .apart = HUGE_VALF};
		for (uint32_t n = 0; n < SEED_HOMES; n++)
			others[i].distances[n] = HUGE_VALF;
	}
	for (uint32_t i = 0; i < most && nothers > 0; i++)
	{
		OtherSeed	chosen;
		uint32_t	place = 0;

		/*
		 * others keeps the order of the pool, so the first REACH_SEEDS stay
		 * first
		 */
		for (uint32_t j = 1; i >= REACH_SEEDS && j < nothers; j++)
			if (others[j].apart > others[place].apart)
				place = j;
		chosen = others[place];
		memmove(&others[place], &others[place + 1], (--nothers - place) * sizeof(OtherSeed));
		if (i < ENGINE_SEEDS_TRIED)
			order->ordered[i] = chosen.slot;
		else
			order->listed_first[i - ENGINE_SEEDS_TRIED] = chosen;
		measure->distances(measure->context, chosen.number, order->distances);
		for (uint32_t j = 0; j < nothers; j++)
		{
			float		distance = order->distances[others[j].number];

			if (distance < others[j].apart)
				others[j].apart = distance;
			if (i < ENGINE_SEEDS_TRIED)
				note_home(&others[j], i, distance);
		}
	}
	return nothers;
}

/*
 * Put a seed into the first of its lists that has room. Returns false if none
 * has.
 */
static bool
put_in_list(SeedOrder *order, const OtherSeed *seed, uint32_t count)
{
	for (uint32_t n = 0; n < SEED_HOMES; n++)
	{
		uint32_t	home = seed->homes[n];

		if (seed->distances[n] == HUGE_VALF || order->listed[home] >= seed_list_length(count))
			continue;
		order->ordered[seed_list_start(home, count) + order->listed[home]++] = seed->slot;
		return true;
	}
	return false;
}

/*
 * Fill the lists, and the remaining places with seeds that found no list,
 * finally with seeds beyond the pool.
 */
static void
fill_lists(SeedOrder *order, uint32_t nothers, const uint32_t *seeds, uint32_t pool, uint32_t count)
{
	uint32_t	placed = count < SEEDS_ORDERED ? count : SEEDS_ORDERED;
	uint32_t	nfirst = pool - ENGINE_SEEDS_TRIED - nothers;
	uint32_t	left = 0;
	uint32_t	next = 0;

	for (uint32_t i = ENGINE_SEEDS_TRIED; i < placed; i++)
		order->ordered[i] = NO_SLOT;
	memset(order->listed, 0, sizeof(order->listed));
	qsort(order->others, nothers, sizeof(OtherSeed), compare_others);
	for (uint32_t i = 0; i < nfirst; i++)
		if (put_in_list(order, &order->listed_first[i], count))
			order->listed_first[i].slot = NO_SLOT;
	for (uint32_t i = 0; i < nothers; i++)
		if (!put_in_list(order, &order->others[i], count))
			order->others[left++] = order->others[i];
	for (uint32_t i = 0; i < nfirst; i++)
		if (order->listed_first[i].slot != NO_SLOT)
			order->others[left++] = order->listed_first[i];
	for (uint32_t i = ENGINE_SEEDS_TRIED; i < placed; i++)
		if (order->ordered[i] == NO_SLOT)
			order->ordered[i] = next < left ? order->others[next++].slot : seeds[pool++];
}

void
seeds_order(uint32_t *seeds, uint32_t count, const SeedMeasure *measure, void *memory)
{
	SeedOrder  *order = memory;
	uint32_t	nothers = choose_apart(order, seeds, measure);

	if (measure->tried_only)
	{
		memcpy(seeds, order->ordered, ENGINE_SEEDS_TRIED * sizeof(uint32_t));
		for (uint32_t i = 0; i < nothers; i++)
			seeds[ENGINE_SEEDS_TRIED + i] = order->others[i].slot;
		return;
	}
	fill_lists(order, nothers, seeds, measure->pool, count);
	memcpy(seeds, order->ordered,
		   (count < SEEDS_ORDERED ? count : SEEDS_ORDERED) * sizeof(uint32_t));
}
