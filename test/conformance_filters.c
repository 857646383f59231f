/*
 * conformance_filters.c
 *		Graph searches under filters that are hard for a graph: few rows pass,
 *		or those that pass are far from the query.
 *
 * A filtered graph search never gives fewer answers than there are, and most of
 * them are the nearest that pass, wherever these lie.
 */
#include <stdlib.h>
#include <string.h>

#include "conformance.h"

#define ROWS	4000
#define TRIED	12

static const Pair filtered_pairs[] = {{ELEMENT_FLOAT, METRIC_L2},
									  {ELEMENT_HALF, METRIC_COSINE},
									  {ELEMENT_FLOAT, METRIC_L1},
									  {ELEMENT_BIT, METRIC_HAMMING}};

#define FILTERED_PAIRS	(sizeof(filtered_pairs) / sizeof(filtered_pairs[0]))

/* A linked world of clustered rows, some of them dead. */
static World *
filtered_world(const Pair *pair)
{
	World *world = world_create(pair->type, pair->metric, pair->type == ELEMENT_BIT ? 128 : 24,
								ROWS + TRIED, ROWS, SHAPE_CLUSTERED);

	world_append(world, ROWS);
	world_link(world);
	for (uint32_t slot = 0; slot < ROWS; slot += 37)
		world_kill(world, slot);
	return world;
}

/* How many answers there are for a query under its filter. */
static uint32_t
answers_there_are(const World *world, const EngineQuery *query)
{
	uint32_t	passing = 0;

	for (uint32_t slot = 0; slot < world->rows; slot++)
		passing += world->live[slot] && (query->filter[slot / 64] >> (slot % 64) & 1);
	return passing < query->k ? passing : query->k;
}

/* Run filtered queries one by one and together; returns their mean recall. */
static double
run_filtered(const World *world, uint64_t *const *filters, uint32_t k, uint32_t ef)
{
	EngineQuery *queries = allocate(TRIED * sizeof(EngineQuery));
	SearchResult *alone = allocate(TRIED * (size_t) k * sizeof(SearchResult));
	double		sum = 0;

	for (uint32_t i = 0; i < TRIED; i++)
	{
		query_init(&queries[i], world, METHOD_GRAPH, k, ef, world_vector(world, ROWS + i));
		queries[i].filter = filters[i];
		queries[i].filter_slots = ROWS;
		query_run(&queries[i]);
		CHECK(queries[i].count == answers_there_are(world, &queries[i]),
			  "%u answers of %u, metric %d", queries[i].count,
			  answers_there_are(world, &queries[i]), (int) world->metric);
		for (uint32_t j = 0; j < queries[i].count; j++)
		{
			uint32_t	slot = queries[i].results[j].slot;

			CHECK(filters[i][slot / 64] >> (slot % 64) & 1, "slot %u is filtered out", slot);
		}
		sum += recall_of(world, &queries[i]);
		memcpy(alone + i * (size_t) k, queries[i].results, queries[i].count * sizeof(SearchResult));
	}
	for (uint32_t i = 0; i < TRIED; i++)
	{
		query_init(&queries[i], world, METHOD_GRAPH, k, ef, world_vector(world, ROWS + i));
		queries[i].filter = filters[i];
		queries[i].filter_slots = ROWS;
	}
	queries_run(queries, TRIED);
	for (uint32_t i = 0; i < TRIED; i++)
		CHECK(memcmp(alone + i * (size_t) k, queries[i].results,
					 queries[i].count * sizeof(SearchResult)) == 0,
			  "query %u of a batch is answered otherwise than alone", i);
	return sum / TRIED;
}

/* Filters that few rows pass, at random: down to one, down to none. */
static void
few_pass(void)
{
	static const uint32_t passing[] = {0, 1, 9, 10, 11, 150};

	for (size_t pair = 0; pair < FILTERED_PAIRS; pair++)
	{
		World	   *world = filtered_world(&filtered_pairs[pair]);

		for (size_t p = 0; p < sizeof(passing) / sizeof(passing[0]); p++)
		{
			uint64_t   *filters[TRIED];
			double		recall;

			for (uint32_t i = 0; i < TRIED; i++)
			{
				filters[i] = allocate(ROWS / 8 + 8);
				for (uint32_t j = 0; j < passing[p]; j++)
				{
					uint32_t	slot = random_below(ROWS);

					filters[i][slot / 64] |= UINT64_C(1) << (slot % 64);
				}
			}
			recall = run_filtered(world, filters, 10, 40);
			CHECK(recall >= 0.95, "recall %.3f where %u rows pass, metric %d", recall, passing[p],
				  (int) world->metric);
		}
		world_drop(world);
	}
}

/* The distance that so many in a hundred of all rows exceed. */
static double
distance_exceeded(const World *world, const void *vector, uint32_t percent)
{
	SearchResult *all = allocate(ROWS * sizeof(SearchResult));
	EngineQuery query;
	uint32_t	count;

	memset(&query, 0, sizeof(query));
	query.k = ROWS;
	query.vector = vector;
	count = model_exact(world, &query, ROWS, all);
	return all[count - 1 - count / 100 * percent].distance;
}

/* Filters that only rows far from the query pass. */
static void
against_query(void)
{
	for (size_t pair = 0; pair < FILTERED_PAIRS; pair++)
	{
		World	   *world = filtered_world(&filtered_pairs[pair]);

		for (uint32_t percent = 10; percent <= 90; percent += 40)
		{
			uint64_t   *filters[TRIED];
			double		recall;

			for (uint32_t i = 0; i < TRIED; i++)
			{
				const void *vector = world_vector(world, ROWS + i);
				double		least = distance_exceeded(world, vector, percent);

				filters[i] = allocate(ROWS / 8 + 8);
				for (uint32_t slot = 0; slot < ROWS; slot++)
					if (model_distance(world, vector, world_vector(world, slot)) > least)
						filters[i][slot / 64] |= UINT64_C(1) << (slot % 64);
			}
			recall = run_filtered(world, filters, 10, 64);
			CHECK(recall >= 0.9, "recall %.3f where the farthest %u %% pass, metric %d", recall,
				  percent, (int) world->metric);
		}
		world_drop(world);
	}
}

const Case filter_cases[] = {
	{"graph_filters_that_few_rows_pass", few_pass, false},
	{"graph_filters_against_the_query", against_query, false},
	{NULL}
};
