/*
 * conformance_graph.c
 *		Cases of graph search: recall floors, small sizes, equal vectors,
 *		disconnected graphs, and the reference walk.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"

#define FIRST_QUERY		5000000 /* variants of queries, apart from those of rows */

/* Mean recall of so many queries at an ef; every answer is checked. */
static double
mean_recall(const World *world, uint32_t count, uint32_t k, uint32_t ef)
{
	EngineQuery *queries = allocate(count * sizeof(EngineQuery));

	for (uint32_t i = 0; i < count; i++)
	{
		void	   *vector = allocate(world->vector_bytes);

		make_vector(world, FIRST_QUERY + i, vector);
		query_init(&queries[i], world, METHOD_GRAPH, k, ef, vector);
	}
	return sound_recall(world, queries, count);
}

static void
need_recall(const World *world, uint32_t ef, double floor_at_least)
{
	double		recall = mean_recall(world, 50, 10, ef);

	CHECK(recall >= floor_at_least, "recall %.3f at ef %u is below %.3f", recall, ef,
		  floor_at_least);
}

/* 10,000 clustered rows of 128 dimensions. */
static void
recall_10000(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 128, 10000, 10000, SHAPE_CLUSTERED);

	world_append(world, 10000);
	world_link(world);
	CHECK(world_info(world).linked == 10000 && world_info(world).pending == 0,
		  "not everything is linked");
	need_recall(world, 40, 0.88);
	need_recall(world, 100, 0.95);
	need_recall(world, 300, 0.985);
}

/* Every type and metric. */
static void
recall_every_pair(void)
{
	for (int i = 0; i < PAIRS; i++)
	{
		uint32_t	rows = options.quick ? 400 : 2000;
		World *world =
			world_create(pairs[i].type, pairs[i].metric, 48, rows, rows, SHAPE_CLUSTERED);

		world_append(world, rows);
		world_link(world);
		need_recall(world, 100, 0.93);
		if (!options.quick)
			need_recall(world, 400, 0.98);
		world_drop(world);
	}
}

/* Large dimensions, few rows. */
static void
recall_large_dims(void)
{
	static const uint32_t dims[] = {1, 3, 2000, 16000};

	for (int i = 0; i < 4; i++)
	{
		World *world = world_create(ELEMENT_HALF, METRIC_L2, dims[i], dims[i] < 16000 ? 200 : 40,
									10, SHAPE_UNIFORM);

		world_append(world, world->room);
		world_link(world);
		need_recall(world, 200, 0.99);
		world_drop(world);
	}
}

/*
 * One row far from all others, in every element: what an engine walks beside
 * the rows must not lose the others' differences for it.
 */
static void
recall_beside_outlier(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 16, 2000, 2000, SHAPE_UNIFORM);
	float	   *far = (float *) (void *) (world->vectors + 777 * world->vector_bytes);

	for (uint32_t i = 0; i < world->dims; i++)
		far[i] = i % 2 ? -10000.0f : 10000.0f;
	world_append(world, 2000);
	world_link(world);
	need_recall(world, 200, 0.95);
}

/*
 * A table smaller than ef is found in full: 0, 1, k - 1, k, k + 1, 33 rows,
 * linked one batch or several.
 */
static void
small_tables(void)
{
	static const uint32_t rows[] = {0, 1, 9, 10, 11, 33};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (int pieces = 1; pieces <= 2; pieces++)
		{
			World *world =
				world_create(ELEMENT_FLOAT, METRIC_COSINE, 16, rows[i] + 1, rows[i], SHAPE_UNIFORM);

			world_append(world, rows[i] / (uint32_t) pieces);
			world_link(world);
			world_append(world, rows[i] - world->rows);
			world_link(world);
			CHECK(mean_recall(world, 10, 10, 40) == 1.0, "not everything is found of %u rows",
				  rows[i]);
			CHECK(mean_recall(world, 10, 40, 40) == 1.0, "not everything is found of %u rows",
				  rows[i]);
			world_drop(world);
		}
}

/*
 * ef - 1, ef and ef + 1 rows on a connected graph: ef answers, as long as there
 * are so many.
 */
static void
rows_around_ef(void)
{
	static const uint32_t efs[] = {1, 10, 64, 200};

	for (size_t i = 0; i < sizeof(efs) / sizeof(efs[0]); i++)
		for (uint32_t rows = efs[i] - 1; rows <= efs[i] + 1; rows++)
		{
			World *world = world_create(ELEMENT_FLOAT, METRIC_L2, 8, rows + 1, rows, SHAPE_UNIFORM);
			EngineQuery query;

			world_append(world, rows);
			if (rows > 0)
				world_ring(world, 1);
			query_init(&query, world, METHOD_GRAPH, efs[i], efs[i], world_vector(world, 0));
			query_run(&query);
			check_sound(world, &query);
			CHECK(query.count == (rows < efs[i] ? rows : efs[i]), "%u answers of %u rows at ef %u",
				  query.count, rows, efs[i]);
			world_drop(world);
		}
}

/*
 * Rows that are pending are found exactly, with and without a graph beside
 * them.
 */
static void
pending_is_exact(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 24, 1200, 1200, SHAPE_UNIFORM);
	EngineQuery query;

	world_append(world, 600);
	CHECK(mean_recall(world, 10, 20, 20) == 1.0, "pending rows are missed");
	world_link(world);
	world_append(world, 600);
	for (uint32_t slot = 600; slot < 1200; slot += 13)
	{
		query_init(&query, world, METHOD_GRAPH, 1, 10, world_vector(world, slot));
		query_run(&query);
		check_sound(world, &query);
		CHECK(query.count == 1 && query.results[0].distance == 0, "a pending row is missed");
		CHECK(query.counters.pending == 600, "%u pending rows searched, not 600",
			  query.counters.pending);
	}
}

/*
 * Equal vectors alone, and in the midst of others: the graph is built in
 * reasonable time and nobody is lost.
 */
static void
equal_vectors(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 16, 10000, 10000, SHAPE_EQUAL);
	double		start = clock_seconds();
	EngineQuery query;

	world_append(world, 10000);
	world_link(world);
	CHECK(clock_seconds() - start < 60, "10,000 equal vectors take %.0f s",
		  clock_seconds() - start);
	query_init(&query, world, METHOD_GRAPH, 10, 40, world_vector(world, 5));
	query_run(&query);
	check_sound(world, &query);
	CHECK(query.count == 10, "%u of 10 equal vectors found", query.count);
	world_drop(world);
}

static void
equals_amid_others(void)
{
	for (int i = PAIRS / 2 - 1; i < PAIRS; i++)
	{
		World *world =
			world_create(pairs[i].type, pairs[i].metric, 32, 6000, 6000, SHAPE_CLUSTERED);
		EngineQuery query;
		double		recall;

		for (uint32_t slot = 1; slot < 6000; slot += 2)
			world_set_vector(world, slot, 1);
		world_append(world, 6000);
		world_link(world);
		recall = mean_recall(world, 50, 10, 150);
		CHECK(recall >= 0.93, "metric %d: recall %.3f among duplicates", (int) world->metric,
			  recall);
		query_init(&query, world, METHOD_GRAPH, 100, 150, world_vector(world, 1));
		query_run(&query);
		check_sound(world, &query);
		CHECK(recall_of(world, &query) >= 0.9, "metric %d: %.3f of 100 duplicates found",
			  (int) world->metric, recall_of(world, &query));
		world_drop(world);
	}
}

/*
 * A graph in two halves without an edge between: only the half with a seed is
 * reached, and the search ends.
 */
static void
disconnected(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 8, 1000, 1000, SHAPE_UNIFORM);
	uint32_t   *rows;
	uint32_t	seed = 3;
	EngineQuery query;

	world_append(world, 1000);
	rows = allocate(1000 * world->degree * sizeof(uint32_t));
	for (uint32_t slot = 0; slot < 1000; slot++)
		for (uint32_t i = 0; i < world->degree; i++)
			rows[slot * world->degree + i] =
				i < 4 ? slot / 500 * 500 + (slot + i + 1) % 500 : NO_SLOT;
	world_set_graph(world, rows, &seed, 1);
	query_init(&query, world, METHOD_GRAPH, 1000, 1000, world_vector(world, 800));
	query_run(&query);
	check_sound(world, &query);
	CHECK(query.count == 500, "%u rows reached, not 500", query.count);
	for (uint32_t i = 0; i < query.count; i++)
		CHECK(query.results[i].slot < 500, "slot %u cannot be reached", query.results[i].slot);
	query_init(&query, world, METHOD_EXACT, 1000, 0, world_vector(world, 800));
	query_run(&query);
	CHECK(query.count == 1000, "exact search found %u of 1000", query.count);
}

/*
 * Rows that name a neighbour twice, seeds that come twice: no slot twice in the
 * answer.
 */
static void
no_slot_twice(void)
{
	World	   *world = world_create(ELEMENT_HALF, METRIC_L2, 4, 300, 300, SHAPE_SMALL);
	uint32_t   *rows;
	uint32_t	seeds[40];

	world_append(world, 300);
	rows = allocate(300 * world->degree * sizeof(uint32_t));
	for (uint32_t slot = 0; slot < 300; slot++)
		for (uint32_t i = 0; i < world->degree; i++)
			rows[slot * world->degree + i] = (slot + 1 + random_below(8)) % 300;
	for (int i = 0; i < 40; i++)
		seeds[i] = random_below(5) * 60;
	world_set_graph(world, rows, seeds, 40);
	(void) mean_recall(world, 40, 30, 60);
	(void) mean_recall(world, 5, 300, 300);
}

/* A capped search ends in time, and what it has is sound. */
static void
iteration_cap(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 16, 2000, 2000, SHAPE_UNIFORM);
	EngineQuery query;

	world_append(world, 2000);
	world_ring(world, 4);
	for (uint32_t cap = 1; cap <= 100; cap += 9)
	{
		query_init(&query, world, METHOD_GRAPH, 10, 100, world_vector(world, cap));
		query.max_iterations = cap;
		query_run(&query);
		check_sound(world, &query);
		CHECK(query.count > 0, "a capped search found nothing");
		CHECK(query.counters.expanded <= cap, "%u expansions with a cap of %u",
			  query.counters.expanded, cap);
	}
}

/* Graph answers do not depend on the batch they come in. */
static void
batches(void)
{
	static const uint32_t sizes_of[] = {2, 3, 17, 64, 300, 1500};
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_COSINE, 48, 3300, 3000, SHAPE_CLUSTERED);
	EngineQuery *single = allocate(300 * sizeof(EngineQuery));

	world_append(world, 2900);
	world_link(world);
	world_append(world, 100);
	for (uint32_t j = 0; j < 300; j++)
	{
		query_init(&single[j], world, METHOD_GRAPH, 10, 50, world_vector(world, 3000 + j));
		query_run(&single[j]);
	}
	for (size_t i = 0; i < sizeof(sizes_of) / sizeof(sizes_of[0]) - (options.quick ? 1 : 0); i++)
	{
		EngineQuery *queries = allocate(sizes_of[i] * sizeof(EngineQuery));

		for (uint32_t j = 0; j < sizes_of[i]; j++)
			query_init(&queries[j], world, METHOD_GRAPH, 10, 50,
					   world_vector(world, 3000 + j % 300));
		queries_run(queries, sizes_of[i]);
		for (uint32_t j = 0; j < sizes_of[i]; j++)
			check_equal("batch", &queries[j], single[j % 300].results, single[j % 300].count);
	}
}

/*
 * Filtered and bounded graph search: sound, within filter and bound, and most
 * of what there is.
 */
static void
filtered(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 32, 4000, 4000, SHAPE_CLUSTERED);
	uint64_t   *filter = allocate(4000 / 8 + 8);
	double		sum = 0;

	world_append(world, 4000);
	world_link(world);
	for (uint32_t slot = 0; slot < 4000; slot += 3)
		filter[slot / 64] |= UINT64_C(1) << (slot % 64);
	for (uint32_t i = 0; i < 30; i++)
	{
		void	   *vector = allocate(world->vector_bytes);
		EngineQuery query;

		make_vector(world, FIRST_QUERY + i, vector);
		query_init(&query, world, METHOD_GRAPH, 10, 200, vector);
		if (i % 2)
		{
			query.filter = filter;
			query.filter_slots = 4000;
		}
		else
		{
			query.exclude = filter;
			query.exclude_slots = 4000;
		}
		query_run(&query);
		check_sound(world, &query);
		for (uint32_t j = 0; j < query.count; j++)
			CHECK((query.results[j].slot % 3 == 0) == (i % 2 == 1), "slot %u is filtered out",
				  query.results[j].slot);
		sum += recall_of(world, &query);
		query.has_beyond = true;
		query.beyond_distance = query.results[4].distance;
		query.beyond_slot = query.results[4].slot;
		query_run(&query);
		check_sound(world, &query);
		CHECK(query.count > 0 && engine_before(query.beyond_distance, query.beyond_slot,
											   query.results[0].distance, query.results[0].slot),
			  "an answer is not beyond the bound");
		sum += recall_of(world, &query);
	}
	CHECK(sum / 60 >= 0.9, "recall %.3f under filters and bounds", sum / 60);
}

/*
 * Graph rows that come in parts, as a load sends them: what has none yet is
 * found exactly, nothing is found twice, and once the seeds are there no more
 * rows are searched than wait.
 */
static void
graph_in_parts(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 16, 3000, 3000, SHAPE_UNIFORM);
	uint32_t   *rows = allocate((size_t) 3000 * world->degree * sizeof(uint32_t));
	uint32_t   *slots = allocate(3000 * sizeof(uint32_t));
	EngineJob	graph = {.kind = JOB_GRAPH, .mirror = world->mirror, .count = 50};
	EngineJob	seeds = {.kind = JOB_SEEDS, .mirror = world->mirror, .count = 1, .slots = slots};
	EngineQuery query;

	world_append(world, 3000);
	for (uint32_t slot = 0; slot < 3000; slot++)
	{
		slots[slot] = slot;
		for (uint32_t i = 0; i < world->degree; i++)
			rows[slot * world->degree + i] = (slot + 1 + random_below(2999)) % 3000;
	}
	for (uint32_t first = 0; first < 2000; first += graph.count)
	{
		graph.slots = slots + first;
		graph.rows = rows + (size_t) first * world->degree;
		CHECK(run_job(&graph, NULL) == ENGINE_OK, "graph rows are refused");
		query_init(&query, world, METHOD_GRAPH, 30, 60, world_vector(world, 2999 - first / 3));
		query_run(&query);
		check_sound(world, &query);
		CHECK(query.results[0].distance == 0, "a row without a graph row is missed");
		CHECK(world_info(world).pending == 2950 - first, "%u rows pending, not %u",
			  world_info(world).pending, 2950 - first);
	}
	CHECK(run_job(&seeds, NULL) == ENGINE_OK, "seeds are refused");
	query_run(&query);
	check_sound(world, &query);
	CHECK(query.counters.pending == 1000, "%u pending rows searched, not 1000",
		  query.counters.pending);
}

/* Dead rows route but are no answers; the living are still found. */
static void
dead_rows_route(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 32, 3000, 3000, SHAPE_CLUSTERED);

	world_append(world, 3000);
	world_link(world);
	for (uint32_t slot = 0; slot < 3000; slot += 3)
		world_kill(world, slot);
	CHECK(world_info(world).dead == 1000, "%u dead rows, not 1000", world_info(world).dead);
	need_recall(world, 150, 0.93);
}

const Case graph_cases[] = {
	{"graph_recall_10000", recall_10000, true},
	{"graph_recall_every_pair", recall_every_pair, false},
	{"graph_recall_dims", recall_large_dims, true},
	{"graph_recall_beside_outlier", recall_beside_outlier, false},
	{"graph_small_tables", small_tables, false},
	{"graph_rows_around_ef", rows_around_ef, false},
	{"graph_pending_is_exact", pending_is_exact, false},
	{"graph_equal_vectors", equal_vectors, true},
	{"graph_equals_amid_others", equals_amid_others, true},
	{"graph_disconnected", disconnected, false},
	{"graph_no_slot_twice", no_slot_twice, false},
	{"graph_iteration_cap", iteration_cap, false},
	{"graph_batches", batches, false},
	{"graph_filtered", filtered, false},
	{"graph_in_parts", graph_in_parts, false},
	{"graph_dead_rows_route", dead_rows_route, false},
	{NULL, NULL, false}
};

/* ---- reference mode, step for step ---- */

bool
has_reference(const World *world)
{
	EngineQuery query;

	query_init(&query, world, METHOD_GRAPH, 1, 1, world_vector(world, 0));
	query.reference = true;
	queries_run(&query, 1);
	return query.status != ENGINE_UNSUPPORTED;
}

/*
 * Run a query in reference mode, and compare the answer and the number of steps
 * with the model's. Returns that number.
 */
static uint32_t
follow(const World *world, EngineQuery *query)
{
	ModelWalk	walk;

	query->reference = true;
	query_run(query);
	model_walk(world, query, &walk);
	CHECK(query->counters.expanded == walk.expanded, "%u steps, not %u", query->counters.expanded,
		  walk.expanded);
	check_equal("reference", query, walk.results, walk.count);
	return walk.expanded;
}

/*
 * The same, stopped after some of the steps: had another slot been expanded,
 * the list would be another, which is answered whole.
 */
static void
follow_steps(const World *world, const EngineQuery *whole, uint32_t steps)
{
	uint32_t	ef = whole->ef > whole->k ? whole->ef : whole->k;

	for (uint32_t step = 1; step < steps; step += 1 + random_below(step + 1))
	{
		EngineQuery query = *whole;

		query.k = ef;
		query.results = allocate(((size_t) ef + 1) * sizeof(SearchResult));
		query.max_iterations = step;
		CHECK(follow(world, &query) == step, "not %u steps", step);
	}
}

void
reference_variations(const World *world, uint32_t rounds)
{
	uint64_t   *bits = allocate(world->rows / 8 + 8);

	if (!has_reference(world))
		skip("only a test build has reference mode");
	for (uint32_t slot = 0; slot < world->rows; slot += 2)
		bits[slot / 64] |= UINT64_C(1) << (slot % 64);
	for (uint32_t i = 0; i < rounds; i++)
	{
		void	   *vector = allocate(world->vector_bytes);
		uint32_t	steps;
		EngineQuery query;

		make_vector(world, FIRST_QUERY + i, vector);
		query_init(&query, world, METHOD_GRAPH, 1 + random_below(20), 1 + random_below(60), vector);
		if (i % 2)
			query.seeds = 1 + random_below(20);
		if (i % 3 == 2)
			query.max_iterations = 1 + random_below(30);
		if (i % 4 == 2)
		{
			query.exclude = bits;
			query.exclude_slots = world->rows;
		}
		if (i % 8 == 6)
		{
			query.filter = bits;
			query.filter_slots = world->rows / 2;
		}
		if (i % 5 == 4)
		{
			query.has_beyond = true;
			query.beyond_slot = random_below(world->rows);
			query.beyond_distance =
				model_distance(world, vector, world_vector(world, query.beyond_slot));
		}
		steps = follow(world, &query);
		if (!options.quick || random_below(6) == 0)
			follow_steps(world, &query, steps);
	}
}

static void
reference_pairs(void)
{
	for (int i = 0; i < PAIRS; i++)
		for (int shape = 0; shape < 2; shape++)
		{
			World *world = world_create(pairs[i].type, pairs[i].metric, 10, 400, 400,
										shape == 0 ? SHAPE_UNIFORM : SHAPE_SMALL);

			world_append(world, 400);
			world_ring(world, 20);
			for (uint32_t slot = 0; slot < 400; slot += 9)
				world_kill(world, slot);
			reference_variations(world, 24);
			world_drop(world);
		}
}

/* On a graph that the engine linked itself. */
static void
reference_linked(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 128, 2000, 2000, SHAPE_CLUSTERED);

	world_append(world, 2000);
	world_link(world);
	reference_variations(world, 24);
}

const Case reference_cases[] = {
	{"reference_every_pair", reference_pairs, false},
	{"reference_linked_graph", reference_linked, false},
	{NULL, NULL, false}
};
