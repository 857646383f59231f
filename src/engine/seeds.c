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

#define SEEDS_SAMPLED		1024	/* chosen by farthest-point sampling: those tried, then the
									 * first entries of lists */
#define SEED_LIST_CHOICES	4		/* a seed goes to the list of one of this many nearest tried
									 * seeds */

/* A seed of the pool that has not been chosen. */
typedef struct UnchosenSeed
{
	uint32_t	slot;
	uint32_t	number;			/* index in the pool */
	float		min_distance;	/* distance to the nearest chosen seed */
	uint32_t	lists[SEED_LIST_CHOICES]; /* nearest first */
	float		distances[SEED_LIST_CHOICES];
} UnchosenSeed;

typedef struct SeedOrder
{
	UnchosenSeed others[SEEDS_ORDERED];
	UnchosenSeed listed_first[SEEDS_SAMPLED - ENGINE_SEEDS_TRIED];
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
	const UnchosenSeed *a = left;
	const UnchosenSeed *b = right;

	if (a->min_distance != b->min_distance)
		return a->min_distance > b->min_distance ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

/* Record the distance to a tried seed, if that is among the nearest. */
static void
seeds_note_list(UnchosenSeed *other, uint32_t tried, float distance)
{
	uint32_t	place = SEED_LIST_CHOICES;

	for (; place > 0 && distance < other->distances[place - 1]; place--)
		if (place < SEED_LIST_CHOICES)
		{
			other->distances[place] = other->distances[place - 1];
			other->lists[place] = other->lists[place - 1];
		}
	if (place == SEED_LIST_CHOICES)
		return;
	other->distances[place] = distance;
	other->lists[place] = tried;
}

/*
 * Choose seeds far from each other: first those that are tried, then, unless
 * tried_only, those that come first in lists. others keeps the rest; returns
 * how many.
 */
static uint32_t
choose_farthest(SeedOrder *order, const uint32_t *seeds, const SeedMeasure *measure)
{
	UnchosenSeed *others = order->others;
	uint32_t	nothers = measure->pool;
	uint32_t	most = measure->tried_only ? ENGINE_SEEDS_TRIED : SEEDS_SAMPLED;

	for (uint32_t i = 0; i < nothers; i++)
	{
		others[i] = (UnchosenSeed) {.slot = seeds[i], .number = i, .min_distance = HUGE_VALF};
		for (uint32_t n = 0; n < SEED_LIST_CHOICES; n++)
			others[i].distances[n] = HUGE_VALF;
	}
	for (uint32_t i = 0; i < most && nothers > 0; i++)
	{
		UnchosenSeed chosen;
		uint32_t	place = 0;

		/*
		 * others keeps the order of the pool, so the first REACH_SEEDS stay
		 * first
		 */
		for (uint32_t j = 1; i >= REACH_SEEDS && j < nothers; j++)
			if (others[j].min_distance > others[place].min_distance)
				place = j;
		chosen = others[place];
		memmove(&others[place], &others[place + 1], (--nothers - place) * sizeof(UnchosenSeed));
		if (i < ENGINE_SEEDS_TRIED)
			order->ordered[i] = chosen.slot;
		else
			order->listed_first[i - ENGINE_SEEDS_TRIED] = chosen;
		measure->distances(measure->context, chosen.number, order->distances);
		for (uint32_t j = 0; j < nothers; j++)
		{
			float		distance = order->distances[others[j].number];

			if (distance < others[j].min_distance)
				others[j].min_distance = distance;
			if (i < ENGINE_SEEDS_TRIED)
				seeds_note_list(&others[j], i, distance);
		}
	}
	return nothers;
}

/*
 * Put a seed into the first of its lists that has room. Returns false if none
 * has.
 */
static bool
put_in_list(SeedOrder *order, const UnchosenSeed *seed, uint32_t count)
{
	for (uint32_t n = 0; n < SEED_LIST_CHOICES; n++)
	{
		uint32_t	list = seed->lists[n];

		if (seed->distances[n] == HUGE_VALF || order->listed[list] >= seed_list_length(count))
			continue;
		order->ordered[seed_list_start(list, count) + order->listed[list]++] = seed->slot;
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
	qsort(order->others, nothers, sizeof(UnchosenSeed), compare_others);
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
	uint32_t	nothers = choose_farthest(order, seeds, measure);

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
