/*
 * conformance_lists.c
 *		Searches of mirrors with lists.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance_lists.h"

#define LISTS		20
#define ROWS		2000
#define DIMS		37
#define QUERIES		30

const ListSpec codes[CODES] = {
	{.quantizer = QUANTIZER_INT8, .bits = 8},	{.quantizer = QUANTIZER_RABITQ, .bits = 1},
	{.quantizer = QUANTIZER_RABITQ, .bits = 3}, {.quantizer = QUANTIZER_RABITQ, .bits = 8},
	{.quantizer = QUANTIZER_PQ, .bits = 4},
	{.quantizer = QUANTIZER_PQ, .bits = 8, .cooc = COOC_ON},
	{.quantizer = QUANTIZER_PQ, .bits = 4}};

/* Metrics and types that lists are for. */
static const Pair list_pairs[] = {{ELEMENT_FLOAT, METRIC_L2},	{ELEMENT_FLOAT, METRIC_IP},
								  {ELEMENT_FLOAT, METRIC_COSINE}, {ELEMENT_HALF, METRIC_L2},
								  {ELEMENT_HALF, METRIC_IP},	{ELEMENT_HALF, METRIC_COSINE}};

#define LIST_PAIRS	(sizeof(list_pairs) / sizeof(list_pairs[0]))

/* Long cases take a fifth of all combinations where everything is slow. */
static bool
left_out(uint32_t number, uint32_t i)
{
	return options.quick && (number + i) % 5 != 0;
}

ListSpec
lists_of(uint32_t number, uint32_t lists, uint32_t dims)
{
	ListSpec	spec = codes[number];

	spec.lists = lists;
	spec.seed = 42 + number;
	if (spec.quantizer == QUANTIZER_PQ)
		spec.parts = number == CODES - 1 ? dims : (dims + 3) / 4;
	return spec;
}

void
world_train(World *world, LinkResult *result)
{
	EngineJob	job = {.kind = JOB_TRAIN, .mirror = world->mirror};
	JobProgress progress;
	JobId		id = start_job(&job);

	must(end_job(id, &progress), &progress.error, "train");
	if (result != NULL)
		CHECK(ops->job_link_result(engine, id, result) == ENGINE_OK, "no result of a training");
	else
		ops->job_release(engine, id);
}

void
world_link_lists(World *world)
{
	EngineJob	job = {.kind = JOB_LINK, .mirror = world->mirror};
	JobProgress progress;

	if (run_job(&job, &progress) != ENGINE_OK)
		must(progress.status, &progress.error, "link");
}

void
list_query_init(EngineQuery *query, const World *world, uint32_t k, uint32_t probes,
				uint32_t rerank, const void *vector)
{
	query_init(query, world, METHOD_IVFPQ, k, 0, vector);
	query->probes = probes;
	query->rerank = rerank;
}

void
list_query_vary(EngineQuery *query, const World *world, uint32_t number)
{
	uint32_t	words = world->rows / 64 + 1;
	uint64_t   *bits = allocate(words * sizeof(uint64_t));

	for (uint32_t i = 0; i < words; i++)
		bits[i] = (uint64_t) random_below(0xFFFFFFFF) << 32 | random_below(0xFFFFFFFF);
	if (number % 4 == 1)
	{
		query->filter = bits;
		query->filter_slots = world->rows;
	}
	else if (number % 4 == 2)
	{
		query->exclude = bits;
		query->exclude_slots = world->rows;
	}
	else if (number % 4 == 3)
	{
		uint32_t	slot = random_below(world->rows);

		query->has_beyond = true;
		query->beyond_slot = slot;
		query->beyond_distance = model_distance(world, query->vector, world_vector(world, slot));
	}
}

void
check_lists_exact(const World *world, uint32_t lists, const char *what)
{
	EngineQuery queries[QUERIES];

	for (uint32_t i = 0; i < QUERIES; i++)
	{
		void	   *vector = allocate(world->vector_bytes);

		make_vector(world, 1000000 + i, vector);
		list_query_init(&queries[i], world, i % 7 == 6 ? world->rows + 5 : 1 + i, lists + i % 2,
						ENGINE_RERANK_ALL,
						i % 3 == 0 ? world_vector(world, random_below(world->rows)) : vector);
		list_query_vary(&queries[i], world, i / 2);
	}
	queries_run(queries, QUERIES);
	for (uint32_t i = 0; i < QUERIES; i++)
	{
		SearchResult *expected = allocate((queries[i].k + 1) * sizeof(SearchResult));
		uint32_t	count = model_exact(world, &queries[i], world->rows, expected);

		must(queries[i].status, &queries[i].error, what);
		check_equal(what, &queries[i], expected, count);
	}
}

/* A world whose rows are in lists, but for some that are pending or dead. */
static World *
mixed_world(uint32_t number, Pair pair, uint32_t dims, Shape shape)
{
	ListSpec	spec = lists_of(number, LISTS, dims);
	World	   *world = world_create_lists(&spec, pair.type, pair.metric, dims, ROWS, ROWS / 2,
										   shape);

	world_append(world, ROWS * 3 / 4);
	world_train(world, NULL);
	world_link_lists(world);
	world_append(world, ROWS / 4 - 200);
	world_link_lists(world);
	world_append(world, 200);
	for (uint32_t i = 0; i < 40; i++)
		if (world->live[i * 47])
			world_kill(world, i * 47);
	return world;
}

/* All lists, everything re-ranked: the answers of exact search. */
static void
lists_all_probes_are_exact(void)
{
	for (uint32_t number = 0; number < CODES; number++)
		for (uint32_t i = 0; i < LIST_PAIRS; i++)
		{
			World	   *world;
			char		what[80];

			if (left_out(number, i))
				continue;
			world = mixed_world(number, list_pairs[i], DIMS, SHAPE_CLUSTERED);

			snprintf(what, sizeof(what), "codes %u, type %d, metric %d", number,
					 (int) world->type, (int) world->metric);
			check_lists_exact(world, LISTS, what);
			world_drop(world);
		}
}

/* The same of rows that are equal, or zero, or of a single dimension. */
static void
lists_of_strange_rows_are_exact(void)
{
	static const Shape shapes[] = {SHAPE_EQUAL, SHAPE_SMALL, SHAPE_UNIFORM};

	for (uint32_t number = 0; number < CODES; number++)
		for (uint32_t i = 0; i < 9; i++)
		{
			uint32_t	dims = i / 3 == 0 ? 2 : i / 3 == 1 ? 1 : 64;
			World	   *world;
			char		what[80];

			if (left_out(number, i + i / 3))
				continue;
			world = mixed_world(number, list_pairs[(i + number) % LIST_PAIRS], dims, shapes[i % 3]);
			snprintf(what, sizeof(what), "codes %u, shape %d, metric %d, %u dimensions", number,
					 (int) shapes[i % 3], (int) world->metric, dims);
			check_lists_exact(world, LISTS, what);
			world_drop(world);
		}
}

/* Every further list adds to what is found, and takes nothing away. */
static void
lists_recall_rises_with_probes(void)
{
	for (uint32_t number = 0; number < CODES; number++)
	{
		World	   *world = mixed_world(number, list_pairs[number % LIST_PAIRS], DIMS,
										SHAPE_CLUSTERED);
		double		before[QUERIES] = {0};
		double		sum = 0;

		for (uint32_t probes = 1; probes <= LISTS; probes += probes / 2 + 1)
		{
			EngineQuery queries[QUERIES];

			for (uint32_t i = 0; i < QUERIES; i++)
				list_query_init(&queries[i], world, 10, probes, ENGINE_RERANK_ALL,
								world_vector(world, i * 61));
			queries_run(queries, QUERIES);
			sum = 0;
			for (uint32_t i = 0; i < QUERIES; i++)
			{
				double		recall;

				must(queries[i].status, &queries[i].error, "query");
				check_sound(world, &queries[i]);
				recall = recall_of(world, &queries[i]);
				CHECK(recall >= before[i], "codes %u: %u probes find %.2f, fewer found %.2f",
					  number, probes, recall, before[i]);
				CHECK(queries[i].counters.expanded == probes, "%u lists were read, not %u",
					  queries[i].counters.expanded, probes);
				before[i] = recall;
				sum += recall;
			}
			CHECK(probes < 10 || sum / QUERIES > 0.9, "codes %u: %u of %d lists find %.3f", number,
				  probes, LISTS, sum / QUERIES);
		}
		world_drop(world);
	}
}

/*
 * Bounds alone find what exact search does, or with rabitq nearly; so do few
 * rows by estimate. Fewer rows are measured than were read.
 */
static void
lists_rerank_few_rows(void)
{
	for (uint32_t number = 0; number < CODES; number++)
		for (uint32_t rerank = 0; rerank <= 400; rerank += 400)
		{
			bool		certain = codes[number].quantizer != QUANTIZER_RABITQ && rerank == 0;
			World	   *world = mixed_world(number, list_pairs[(number + rerank / 400) % 3], 64,
											SHAPE_CLUSTERED);
			EngineQuery queries[QUERIES];
			double		recall = 0;

			for (uint32_t i = 0; i < QUERIES; i++)
				list_query_init(&queries[i], world, 10, LISTS, rerank, world_vector(world, i * 61));
			queries_run(queries, QUERIES);
			for (uint32_t i = 0; i < QUERIES; i++)
			{
				must(queries[i].status, &queries[i].error, "query");
				check_sound(world, &queries[i]);
				recall += recall_of(world, &queries[i]) / QUERIES;
				CHECK(rerank == 0 || queries[i].counters.distances <= rerank + 200,
					  "%u rows were measured, not %u and 200 pending ones at most",
					  queries[i].counters.distances, rerank);
				CHECK(queries[i].counters.distances < ROWS / 2 ||
					  codes[number].quantizer == QUANTIZER_PQ,
					  "codes %u: %u rows were measured", number, queries[i].counters.distances);
			}
			CHECK(recall > (certain ? 0.999999 : 0.97), "codes %u, rerank %u: recall %.4f", number,
				  rerank, recall);
			world_drop(world);
		}
}

/*
 * A search that goes on behind an answer finds the answers after it: the same
 * where bounds are certain, others only where they are not or few rows are
 * measured.
 */
static void
lists_go_on_behind_an_answer(void)
{
	for (uint32_t number = 0; number < CODES; number++)
		for (uint32_t i = 0; i < 12; i++)
		{
			World	   *world;
			uint32_t	rerank = i / LIST_PAIRS * 50;
			EngineQuery all;
			EngineQuery rest;

			if (left_out(number, i))
				continue;
			world = mixed_world(number, list_pairs[i % LIST_PAIRS], DIMS, SHAPE_CLUSTERED);
			list_query_init(&all, world, 10, LISTS, rerank, world_vector(world, 300 + i));
			query_run(&all);
			CHECK(all.count == 10, "%u results", all.count);
			list_query_init(&rest, world, 5, LISTS, rerank, all.vector);
			rest.has_beyond = true;
			rest.beyond_distance = all.results[4].distance;
			rest.beyond_slot = all.results[4].slot;
			query_run(&rest);
			check_sound(world, &rest);
			CHECK(rest.count == 5 && engine_before(rest.beyond_distance, rest.beyond_slot,
												   rest.results[0].distance, rest.results[0].slot),
				  "%u results behind a bound", rest.count);
			if (codes[number].quantizer != QUANTIZER_RABITQ && rerank == 0)
				check_equal("behind an answer", &rest, all.results + 5, 5);
			world_drop(world);
		}
}

/* Answers of searches with bounds and estimates, one by one or together. */
static void
answers_of(const World *world, bool together, SearchResult (*results)[10], uint32_t *counts)
{
	EngineQuery *queries = allocate(300 * sizeof(EngineQuery));

	for (uint32_t i = 0; i < 300; i++)
		list_query_init(&queries[i], world, 10, 1 + i % LISTS, i % 3 == 0 ? 0 : 10 * (i % 3),
						world_vector(world, (i * 31) % world->rows));
	if (together)
		queries_run(queries, 300);
	for (uint32_t i = 0; i < 300; i++)
	{
		queries[i].lone = i % 2 == 0;
		if (!together)
			queries_run(&queries[i], 1);
		must(queries[i].status, &queries[i].error, "query");
		counts[i] = queries[i].count;
		memcpy(results[i], queries[i].results, queries[i].count * sizeof(SearchResult));
	}
}

/*
 * Neither the number of threads nor the queries beside it change an answer, not
 * even one that codes have cut short.
 */
static void
lists_do_not_depend_on_threads(void)
{
	static const int threads[] = {1, 4};

	for (uint32_t number = 0; number < CODES; number++)
	{
		SearchResult (*results)[10] = allocate(4 * 300 * sizeof(*results));
		uint32_t   *counts = allocate(4 * 300 * sizeof(uint32_t));

		for (int t = 0; t < 2; t++)
		{
			EngineConfig config = {.device = options.device, .simd = options.simd,
				.threads = threads[t]};
			World	   *world;

			reopen(&config);
			world = mixed_world(number, list_pairs[number % LIST_PAIRS], DIMS, SHAPE_CLUSTERED);
			answers_of(world, false, results + t * 600, counts + t * 600);
			answers_of(world, true, results + t * 600 + 300, counts + t * 600 + 300);
		}
		for (uint32_t i = 0; i < 900; i++)
			CHECK(counts[i] == counts[i + 300] &&
				  memcmp(results[i], results[i + 300], counts[i] * sizeof(SearchResult)) == 0,
				  "codes %u: query %u is answered otherwise", number, i % 300);
	}
}

/* A query alone that is worth several threads is answered as by one. */
static void
lists_parts_find_the_same(void)
{
	static const int threads[] = {1, 3};
	ListSpec	spec = lists_of(1, 3, 8);
	SearchResult first[2][6][20];

	for (int t = 0; t < 2; t++)
	{
		EngineConfig config = {.device = options.device, .simd = options.simd,
			.threads = threads[t]};
		World	   *world;

		reopen(&config);
		world = world_create_lists(&spec, ELEMENT_FLOAT, METRIC_L2, 8, 100000, 100000,
								   SHAPE_UNIFORM);
		world_append(world, 100000);
		world_train(world, NULL);
		world_link_lists(world);
		for (uint32_t i = 0; i < 6; i++)
		{
			EngineQuery query;

			list_query_init(&query, world, 20, 1 + i % 3, i < 3 ? 0 : 100,
							world_vector(world, i * 7919));
			query_run(&query);
			check_sound(world, &query);
			CHECK(query.count == 20, "%u results", query.count);
			memcpy(first[t][i], query.results, sizeof(first[t][i]));
		}
	}
	CHECK(memcmp(first[0], first[1], sizeof(first[0])) == 0, "parts have found other rows");
}

const Case list_cases[] = {
	{"lists_all_probes_are_exact", lists_all_probes_are_exact, false},
	{"lists_of_strange_rows_are_exact", lists_of_strange_rows_are_exact, false},
	{"lists_recall_rises_with_probes", lists_recall_rises_with_probes, false},
	{"lists_rerank_few_rows", lists_rerank_few_rows, false},
	{"lists_go_on_behind_an_answer", lists_go_on_behind_an_answer, false},
	{"lists_do_not_depend_on_threads", lists_do_not_depend_on_threads, false},
	{"lists_parts_find_the_same", lists_parts_find_the_same, true},
	{NULL, NULL, false}};
