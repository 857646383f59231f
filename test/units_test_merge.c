/*
 * units_test_merge.c
 *		Merges: what a full sort gives, with few pushes.
 */
#include "units_test.h"

typedef enum Order
{
	RANDOM, RISING, FALLING, EQUAL, ORDERS
} Order;

static double
number_of(Order order, uint32_t i, uint32_t count)
{
	if (order == RANDOM)
		return below(100000);
	return order == RISING ? i : order == FALLING ? count - i : 1;
}

/* Deal entries to parts, each of which keeps its k nearest. */
static void
deal(const SearchResult *entries, uint32_t count, TopK *parts, uint32_t nparts, uint32_t k)
{
	for (uint32_t i = 0; i < nparts; i++)
		parts[i] = (TopK) {.heap = need(k * sizeof(SearchResult)), .k = k};
	for (uint32_t i = 0; i < count; i++)
	{
		TopK	   *part = &parts[i % nparts];

		(void) farthest_offer(part->heap, &part->count, k, entries[i]);
	}
}

/* Merge in one of two ways and compare with the sorted entries. */
static uint64_t
merge(const SearchResult *entries, const SearchResult *sorted, uint32_t count, uint32_t nparts,
	  uint32_t k, bool in_turns)
{
	TopK	   *parts = need(nparts * sizeof(TopK));
	TopK		result = {.heap = need(k * sizeof(SearchResult)), .k = k};
	MergeCounters counters = {0};
	uint32_t	expected = count < k ? count : k;

	deal(entries, count, parts, nparts, k);
	if (in_turns)
		merge_parts(&result, parts, nparts, &counters);
	else
		for (uint32_t i = 0; i < nparts; i++)
			merge_one(&result, &parts[i], &counters);
	sort_results(result.heap, result.count);
	CHECK(result.count == expected);
	CHECK(memcmp(result.heap, sorted, expected * sizeof(SearchResult)) == 0);
	CHECK(counters.pushes + counters.dropped <= counters.entries);
	for (uint32_t i = 0; i < nparts; i++)
		free(parts[i].heap);
	free(parts);
	free(result.heap);
	return counters.pushes;
}

static void
test_sorts(void)
{
	static const uint32_t counts[] = {0, 1, 7, 500, 5000};

	for (uint32_t turn = 0; turn < 5 * ORDERS * 4; turn++)
	{
		uint32_t	count = counts[turn % 5];
		uint32_t	k = (uint32_t) pow(10, turn / 5 / ORDERS);
		SearchResult *entries = need(count * sizeof(SearchResult));
		SearchResult *sorted = need(count * sizeof(SearchResult));

		for (uint32_t i = 0; i < count; i++)
			entries[i] = (SearchResult) {.distance = number_of(turn / 5 % ORDERS, i, count),
										 .slot = i, .version = i * 3};
		memcpy(sorted, entries, count * sizeof(SearchResult));
		sort_results(sorted, count);
		for (uint32_t nparts = 1; nparts <= 32; nparts *= 2)
		{
			(void) merge(entries, sorted, count, nparts, k, false);
			(void) merge(entries, sorted, count, nparts, k, true);
		}
		free(entries);
		free(sorted);
	}
	report("a pruned merge is a full sort: random, rising, falling, equal, k from 1 to 1,000");
}

static void
test_pushes(void)
{
	static const uint32_t units[] = {2, 11, 32};
	static const uint32_t ks[] = {1, 10, 100};

	for (int i = 0; i < 9; i++)
	{
		uint32_t	nparts = units[i / 3];
		uint32_t	k = ks[i % 3];
		uint32_t	count = nparts * k * 20;
		double		pushes[2] = {0};
		double		harmonic = 0;
		SearchResult *entries = need(count * sizeof(SearchResult));
		SearchResult *sorted = need(count * sizeof(SearchResult));

		for (uint32_t j = 1; j <= nparts; j++)
			harmonic += 1.0 / j;
		for (int turn = 0; turn < 20; turn++)
		{
			for (uint32_t j = 0; j < count; j++)
				entries[j] = (SearchResult) {.distance = random_fraction(&random_state), .slot = j};
			memcpy(sorted, entries, count * sizeof(SearchResult));
			sort_results(sorted, count);
			for (int way = 0; way < 2; way++)
				pushes[way] += merge(entries, sorted, count, nparts, k, way) / 20.0;
		}
		printf("# %u parts, k = %u: %.0f pushes one after another, %.0f in turns, of %u\n", nparts, k,
			   pushes[0], pushes[1], nparts * k);
		CHECK(pushes[0] <= k * harmonic + nparts);
		CHECK(pushes[1] <= pushes[0] + nparts);
		free(entries);
		free(sorted);
	}
	report("a merge pushes no more than k times the harmonic number of its parts");
}

void
test_merge(void)
{
	test_sorts();
	test_pushes();
}
