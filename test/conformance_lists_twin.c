/*
 * conformance_lists_twin.c
 *		Lists of the engine under test beside those of the CPU engine, made by
 *		the same centroids and codebook: the same lists, codes, and answers,
 *		wherever the rows are.
 */
#include <stdio.h>
#include <string.h>

#include "conformance_lists.h"

#define LISTS	12
#define DIMS	24
#define ROWS	1000
#define MORE	150		/* rows that come after the first link */
#define QUERIES	24
#define MANY	5200	/* rows, of which more than a device keeps by estimate are re-ranked */
#define TOP		10
#define HOST_ROWS	((uint64_t) 256 << 20)

/* A world here and the same in the CPU engine. */
typedef struct Twins
{
	World	   *worlds[2];		/* the CPU engine's is the second */
} Twins;

/* Rows in both engines, and what the CPU engine learns from them. */
static Twins
make_twins(const ListSpec *spec, Pair pair, uint32_t dims, uint32_t rows, uint32_t room)
{
	Twins		twins;
	LinkResult	trained = {0};

	for (int cpu = 1; cpu >= 0; cpu--)
	{
		act_on_cpu(cpu);
		twins.worlds[cpu] = world_create_lists(spec, pair.type, pair.metric, dims, room, rows,
											   SHAPE_CLUSTERED);
		world_append(twins.worlds[cpu], rows);
		if (cpu)
			world_train(twins.worlds[cpu], &trained);
		else
			world_load_floats(twins.worlds[cpu], trained.floats, trained.nfloats);
	}
	return twins;
}

/* Link what is pending in both: numbers of lists and codes are equal. */
static void
link_twins(const Twins *twins, const char *what)
{
	LinkResult	links[2];
	JobId		ids[2];

	for (int cpu = 0; cpu < 2; cpu++)
	{
		act_on_cpu(cpu);
		ids[cpu] = world_link_and_keep(twins->worlds[cpu], &links[cpu]);
	}
	CHECK(links[0].count == links[1].count && links[0].code_bytes == links[1].code_bytes,
		  "%s: %u rows are linked, not %u", what, links[0].count, links[1].count);
	CHECK(links[0].distance == links[1].distance, "%s: rows are %.17g from their centroids, not %.17g",
		  what, links[0].distance, links[1].distance);
	for (uint32_t i = 0; i < links[0].count; i++)
	{
		size_t		at = (size_t) i * links[0].code_bytes;

		CHECK(links[0].slots[i] == links[1].slots[i] && links[0].rows[i] == links[1].rows[i],
			  "%s: slot %u is in list %u, slot %u in list %u of the CPU engine", what,
			  links[0].slots[i], links[0].rows[i], links[1].slots[i], links[1].rows[i]);
		CHECK(memcmp(links[0].codes + at, links[1].codes + at, links[0].code_bytes) == 0,
			  "%s: slot %u has another code", what, links[0].slots[i]);
	}
	for (int cpu = 0; cpu < 2; cpu++)
	{
		act_on_cpu(cpu);
		ops->job_release(engine, ids[cpu]);
	}
}

/* Ask both the same. */
static void
ask_twins(const Twins *twins, EngineQuery (*queries)[QUERIES], uint32_t count)
{
	for (int cpu = 1; cpu >= 0; cpu--)
	{
		act_on_cpu(cpu);
		for (uint32_t i = 0; i < count && cpu; i++)
		{
			queries[1][i] = queries[0][i];
			queries[1][i].mirror = twins->worlds[1]->mirror;
			queries[1][i].results = allocate((queries[0][i].k + 1) * sizeof(SearchResult));
		}
		queries_run(queries[cpu], count);
		for (uint32_t i = 0; i < count; i++)
		{
			must(queries[cpu][i].status, &queries[cpu][i].error, "query");
			check_sound(twins->worlds[cpu], &queries[cpu][i]);
		}
	}
}

/* Queries that re-rank by bounds, by estimates, or all; filtered, bounded. */
static void
compare_answers(const Twins *twins, const char *what)
{
	static const uint32_t reranks[] = {0, ENGINE_RERANK_ALL, 15, 200};
	const World *world = twins->worlds[0];

	for (uint32_t r = 0; r < sizeof(reranks) / sizeof(reranks[0]); r++)
	{
		EngineQuery (*queries)[QUERIES] = allocate(2 * sizeof(*queries));

		for (uint32_t i = 0; i < QUERIES; i++)
		{
			void	   *vector = allocate(world->vector_bytes);

			make_vector(world, 2000000 + i, vector);
			list_query_init(&queries[0][i], world, 1 + i % 3 * TOP, 1 + i % (LISTS + 2), reranks[r],
							i % 2 == 0 ? world_vector(world, i * 37) : vector);
			list_query_vary(&queries[0][i], world, i / 2);
		}
		ask_twins(twins, queries, QUERIES);
		for (uint32_t i = 0; i < QUERIES; i++)
		{
			char		which[160];

			snprintf(which, sizeof(which), "%s, query %u of k %u, %u probes, rerank %u%s%s", what, i,
					 queries[0][i].k, queries[0][i].probes, reranks[r],
					 queries[0][i].filter != NULL ? ", filtered" : "",
					 queries[0][i].has_beyond ? ", bounded" : "");
			if (queries[0][i].counters.expanded == 0)
			{
				/* of few rows that a filter passes an engine may measure all */
				SearchResult *exact = allocate((queries[0][i].k + 1) * sizeof(SearchResult));

				check_equal(which, &queries[0][i], exact,
							model_exact(world, &queries[0][i], world->rows, exact));
				continue;
			}
			check_equal(which, &queries[0][i], queries[1][i].results, queries[1][i].count);
			CHECK(queries[0][i].counters.expanded == queries[1][i].counters.expanded,
				  "%s: %u lists are read, not %u", what, queries[0][i].counters.expanded,
				  queries[1][i].counters.expanded);
		}
	}
}

/* Deaths, new vectors and new rows, the same in both. */
static void
change_twins(const Twins *twins)
{
	for (int cpu = 0; cpu < 2; cpu++)
	{
		World	   *world = twins->worlds[cpu];

		act_on_cpu(cpu);
		world_append(world, MORE);
		for (uint32_t slot = 3; slot < world->rows; slot += 29)
			world_kill(world, slot);
		for (uint32_t slot = 3; slot < world->rows; slot += 58)
			world_overwrite(world, slot, 7000000 + slot);
	}
}

static const Pair twin_pairs[] = {
	{ELEMENT_FLOAT, METRIC_L2}, {ELEMENT_HALF, METRIC_IP}, {ELEMENT_FLOAT, METRIC_COSINE}};

/* Linked, changed, linked again: both are alike throughout. */
static void
live_alike(const Twins *twins, const char *what)
{
	link_twins(twins, what);
	change_twins(twins);
	compare_answers(twins, what);
	link_twins(twins, what);
	compare_answers(twins, what);
	for (int cpu = 0; cpu < 2; cpu++)
	{
		act_on_cpu(cpu);
		world_drop(twins->worlds[cpu]);
	}
	act_on_cpu(false);
}

static void
lists_equal_those_of_the_cpu(void)
{
	for (uint32_t number = 0; number < CODES; number++)
		for (uint32_t i = 0; i < 3; i++)
		{
			ListSpec	spec = lists_of(number, LISTS, DIMS);
			Twins		twins;
			char		what[80];

			if (options.quick && (number + i) % 3 != 0)
				continue;
			snprintf(what, sizeof(what), "codes %u, metric %d", number, (int) twin_pairs[i].metric);
			twins = make_twins(&spec, twin_pairs[i], DIMS, ROWS, ROWS + MORE);
			live_alike(&twins, what);
		}
}

/* ---- rows in host memory ---- */

/* A mirror of few bytes a row, in whose place a link's memory is later. */
static MirrorId
keep_room(uint32_t rows)
{
	MirrorSpec	kept = {.dims = 64, .type = ELEMENT_FLOAT, .metric = METRIC_L2,
						.method = METHOD_GRAPH, .degree = 16, .capacity = rows,
						.residency = RESIDENCY_FULL, .placement = PLACEMENT_SINGLE, .device = -1};
	EngineError error = {0};
	MirrorId	id;

	must(ops->mirror_create(engine, &kept, &id, &error), &error, "another mirror");
	return id;
}

/*
 * Open the engine so that half of the rows do not fit beside everything else,
 * and make the mirror, empty. An engine without memory for rows apart from its
 * own has no limit.
 */
static World *
make_far(const ListSpec *spec, Pair pair, uint32_t dims, uint32_t rows)
{
	EngineConfig config = {.device = options.device, .simd = options.simd,
						   .host_rows_limit = HOST_ROWS};
	EngineJob	drop = {.kind = JOB_DROP};

	for (uint32_t turn = 0;; turn++)
	{
		EngineMemory memory;
		World	   *world;

		reopen(&config);
		drop.mirror = keep_room(rows);
		world = world_create_lists_in(RESIDENCY_COMPRESSED, spec, pair.type, pair.metric, dims,
									  rows + MORE, rows + MORE, SHAPE_CLUSTERED);
		ops->memory(engine, &memory);
		if (memory.host_rows_limit == 0 || turn == 2)
		{
			CHECK(run_job(&drop, NULL) == ENGINE_OK, "drop");
			return world;
		}
		/* where the limit is, buffers are smaller: so it takes two turns */
		config.memory_limit = memory.used - (turn == 0 ? 0 : rows * world->vector_bytes / 2);
	}
}

/* Train the engine's world from as many rows; its twin loads the floats. */
static void
train_twins(const Twins *twins, uint32_t count)
{
	EngineJob	job = {.kind = JOB_TRAIN, .mirror = twins->worlds[0]->mirror, .count = count};
	LinkResult	trained;
	JobProgress progress;
	JobId		id = start_job(&job);

	must(end_job(id, &progress), &progress.error, "train");
	CHECK(ops->job_link_result(engine, id, &trained) == ENGINE_OK, "no result");
	act_on_cpu(true);
	world_load_floats(twins->worlds[1], trained.floats, trained.nfloats);
	act_on_cpu(false);
	ops->job_release(engine, id);
}

/*
 * Centroids that the engine learns are as near to rows as the CPU engine's,
 * within 1 %, in all of several trainings. Rows are uniform: with clusters the
 * inertia of one engine differs by more than that from seed to seed.
 */
static void
learned_lists_are_as_near(void)
{
	double		inertia[2] = {0};

	for (uint32_t i = 0; i < 6; i++)
	{
		ListSpec	spec = lists_of(i % 2, 20 + i, DIMS);
		uint32_t	sampled[2];

		for (int cpu = 0; cpu < 2; cpu++)
		{
			World	   *world;
			LinkResult	trained;

			act_on_cpu(cpu);
			world = world_create_lists(&spec, ELEMENT_FLOAT, METRIC_L2, DIMS, ROWS, ROWS,
									   SHAPE_UNIFORM);
			world_append(world, ROWS - i);
			world_train(world, &trained);
			inertia[cpu] += trained.inertia;
			sampled[cpu] = trained.sampled;
		}
		act_on_cpu(false);
		CHECK(sampled[0] == sampled[1], "%u rows are sampled, not %u", sampled[0], sampled[1]);
	}
	CHECK(inertia[0] <= inertia[1] * 1.01, "the inertia is %g, the CPU engine's %g", inertia[0],
		  inertia[1]);
}

/* Lists of a mirror whose rows do not all fit on the device. */
static void
lists_of_far_rows_equal_those_of_the_cpu(void)
{
	uint32_t	dims = options.quick ? DIMS : 200;
	uint32_t	rows = options.quick ? ROWS : 24000;

	for (uint32_t number = 0; number < CODES; number++)
	{
		ListSpec	spec = lists_of(number, LISTS, dims);
		Pair		pair = twin_pairs[number % 3];
		Twins		twins;
		EngineMemory memory;
		char		what[80];

		snprintf(what, sizeof(what), "far rows, codes %u", number);
		twins.worlds[0] = make_far(&spec, pair, dims, rows);
		act_on_cpu(true);
		twins.worlds[1] = world_create_lists(&spec, pair.type, pair.metric, dims, rows + MORE,
											 rows, SHAPE_CLUSTERED);
		world_append(twins.worlds[1], rows);
		act_on_cpu(false);
		world_append(twins.worlds[0], rows);
		ops->memory(engine, &memory);
		CHECK(memory.host_rows_limit == 0 || world_info(twins.worlds[0]).host_bytes > 0,
			  "%s: no row is in host memory", what);
		train_twins(&twins, rows / 2);
		live_alike(&twins, what);
		ops->memory(engine, &memory);
		CHECK(memory.host_rows == 0, "%s: rows of a dropped mirror are in host memory", what);
	}
}

/*
 * More rows to re-rank than a device keeps by estimate: it measures all that
 * certain bounds do not exclude, so its answers are those of all rows read, and
 * none is farther than the CPU engine's.
 */
static void
lists_rerank_many_rows(void)
{
	static const uint32_t numbers[] = {0, 1, 3, 4};

	for (uint32_t n = 0; n < 4; n++)
	{
		ListSpec	spec = lists_of(numbers[n], 3, 8);
		EngineQuery (*queries)[QUERIES] = allocate(2 * sizeof(*queries));
		EngineQuery every[QUERIES];
		Twins		twins = make_twins(&spec, (Pair) {ELEMENT_FLOAT, METRIC_L2}, 8, MANY, MANY);
		const World *world = twins.worlds[0];

		link_twins(&twins, "many rows");
		for (uint32_t i = 0; i < QUERIES; i++)
		{
			list_query_init(&queries[0][i], world, TOP, 2 + i % 2, 4097 + i % 3 * 300,
							world_vector(world, i * 31));
			list_query_init(&every[i], world, TOP, 2 + i % 2, ENGINE_RERANK_ALL,
							queries[0][i].vector);
		}
		ask_twins(&twins, queries, QUERIES);
		queries_run(every, QUERIES);
		for (uint32_t i = 0; i < QUERIES; i++)
		{
			CHECK(queries[0][i].count == queries[1][i].count, "%u answers, not %u",
				  queries[0][i].count, queries[1][i].count);
			for (uint32_t j = 0; j < queries[0][i].count; j++)
				CHECK(queries[0][i].results[j].distance <= queries[1][i].results[j].distance,
					  "codes %u, query %u: answer %u is %g away, the CPU engine's %g", numbers[n],
					  i, j, queries[0][i].results[j].distance,
					  queries[1][i].results[j].distance);
			CHECK(spec.quantizer != QUANTIZER_RABITQ ||
				  queries[0][i].counters.distances >= queries[1][i].counters.distances,
				  "codes %u, query %u: %u rows are measured, %u by the CPU engine", numbers[n], i,
				  queries[0][i].counters.distances, queries[1][i].counters.distances);
			if (ops != cpu_engine_ops())
				check_equal("all rows", &queries[0][i], every[i].results, every[i].count);
		}
	}
}

const Case list_twin_cases[] = {
	{"lists_equal_those_of_the_cpu", lists_equal_those_of_the_cpu, false},
	{"lists_of_far_rows_equal_those_of_the_cpu", lists_of_far_rows_equal_those_of_the_cpu, false},
	{"learned_lists_are_as_near", learned_lists_are_as_near, false},
	{"lists_rerank_many_rows", lists_rerank_many_rows, false},
	{NULL, NULL, false}};
