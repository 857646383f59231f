/*
 * conformance_far.c
 *		Mirrors whose rows do not all fit on the device and go on in host
 *		memory: they answer as any, whatever their tiles' size.
 *
 * How much fits is a matter of the limit that the engine is opened with: it is
 * measured with a mirror that fits. An engine without such memory (the CPU's,
 * whose rows are in host memory anyway) runs the same cases without a limit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"

#define HOST_ROWS		((uint64_t) 256 << 20)
#define QUERIES			9
#define PATIENCE		120.0

/*
 * What a world is made of, and which part of its rows is to have no room on the
 * device.
 */
typedef struct FarSpec
{
	ElementType type;
	Metric		metric;
	uint32_t	dims;
	uint32_t	rows;
	uint32_t	capacity;		/* of the mirror, when it is made; 0: all rows */
	Shape		shape;
	double		share;
	uint32_t	kept;			/* rows of another mirror, of as many dimensions, that is there
								 * until it is dropped: so much memory is free then */
} FarSpec;

static MirrorId kept_mirror;

static EngineConfig
far_config(uint64_t memory_limit, uint32_t tile)
{
	return (EngineConfig){.device = options.device,
						  .simd = options.simd,
						  .memory_limit = memory_limit,
						  .host_rows_limit = HOST_ROWS,
						  .forced = {.stream_tile = tile}};
}

static EngineMemory
memory_now(void)
{
	EngineMemory memory;

	ops->memory(engine, &memory);
	CHECK(memory.used ==
			  memory.context + memory.vectors + memory.graph + memory.norms + memory.state,
		  "the parts are not the sum");
	CHECK(memory.used <= memory.limit, "more is used than the limit allows");
	CHECK(memory.host_rows <= memory.host_rows_limit && memory.host_rows <= memory.host_used,
		  "more of the host is used than its limit allows, or than is said");
	return memory;
}

/* Whether the engine has memory for rows apart from its own. */
static bool
has_far_rows(void)
{
	return memory_now().host_rows_limit > 0;
}

static World *
make_far(const FarSpec *spec)
{
	MirrorSpec	kept = {.dims = spec->dims, .type = ELEMENT_FLOAT, .metric = METRIC_L2,
						.method = METHOD_GRAPH, .degree = 16, .capacity = spec->kept,
						.residency = RESIDENCY_FULL, .placement = PLACEMENT_SINGLE, .device = -1};
	EngineError error = {0};

	if (spec->kept > 0)
		must(ops->mirror_create(engine, &kept, &kept_mirror, &error), &error, "another mirror");
	return world_create_in(RESIDENCY_COMPRESSED, spec->type, spec->metric, spec->dims, spec->rows,
						   spec->capacity > 0 ? spec->capacity : spec->rows, spec->shape);
}

/*
 * Open the engine with a limit under which a part of the rows do not fit, tiles
 * of so many rows (0: its own choice), and make the world, empty.
 */
static World *
far_world(const FarSpec *spec, uint32_t tile)
{
	EngineConfig config = far_config(0, tile);
	FarSpec		whole = *spec;
	uint64_t	used;
	World	   *world;

	whole.capacity = spec->rows;
	reopen(&config);
	world = make_far(&whole);
	if (!has_far_rows())
		return world;
	CHECK(world_info(world).host_bytes == 0, "rows that fit are in host memory");
	/*
	 * once more near the limit to come: buffers are smaller where the limit is
	 */
	config = far_config(memory_now().used, tile);
	reopen(&config);
	world = make_far(&whole);
	used = memory_now().used;
	config = far_config(
		used - (uint64_t) (spec->share * spec->rows * (double) world->vector_bytes), tile);
	reopen(&config);
	return make_far(spec);
}

/* Append all rows, and see that some went to host memory. */
static void
fill_far(World *world)
{
	while (world->rows < world->room)
		world_append(world, world->room - world->rows < 700 ? world->room - world->rows : 700);
	if (has_far_rows())
	{
		CHECK(world_info(world).host_bytes > 0, "no row is in host memory");
		CHECK(world_info(world).host_bytes == memory_now().host_rows,
			  "host memory of the mirror and of the engine differ");
	}
}

/* Prepare queries of all kinds. Returns a bitmap for reuse. */
static void
make_queries(const World *world, SearchMethod method, EngineQuery *queries)
{
	static const uint32_t ks[QUERIES] = {1, 10, 100, 10, 10, 33, 10, 5, 1};
	uint64_t   *most = allocate(((size_t) world->rows / 64 + 1) * sizeof(uint64_t));
	uint64_t   *few = allocate(((size_t) world->rows / 64 + 1) * sizeof(uint64_t));

	for (uint32_t i = 0; i < world->rows; i++)
	{
		most[i / 64] |= (uint64_t) (random_below(4) != 0) << (i % 64);
		few[i / 64] |= (uint64_t) (i % 61 == 3) << (i % 64);
	}
	for (uint32_t i = 0; i < QUERIES; i++)
	{
		uint32_t	near = i * world->rows / QUERIES;

		query_init(&queries[i], world, method, ks[i], 100, world_vector(world, near));
		if (i == 3)
		{
			queries[i].has_beyond = true;
			queries[i].beyond_distance = model_distance(
				world, queries[i].vector, world_vector(world, (near + 500) % world->rows));
			queries[i].beyond_slot = (near + 500) % world->rows;
		}
		if (i == 4 || i == 5)
		{
			queries[i].filter = i == 4 ? most : few;
			queries[i].filter_slots = world->rows;
		}
		if (i == 6)
		{
			queries[i].exclude = most;
			queries[i].exclude_slots = world->rows / 2;
		}
	}
}

/* All kinds of exact queries, one by one and together. */
static void
check_exact(const char *what, const World *world, uint32_t least_tiles)
{
	EngineQuery queries[QUERIES];
	SearchResult *expected = allocate(101 * sizeof(SearchResult));

	make_queries(world, METHOD_EXACT, queries);
	queries_run(queries, QUERIES);
	for (uint32_t i = 0; i < QUERIES; i++)
	{
		check_equal(what, &queries[i], expected,
					model_exact(world, &queries[i], world->rows, expected));
		CHECK(queries[i].rows == world->rows, "%s: a query saw %u of %u rows", what,
			  queries[i].rows, world->rows);
		/* few rows that pass are read where they are */
		CHECK(i == 5 || !has_far_rows() || queries[i].counters.iterations >= least_tiles,
			  "%s: query %u took %u tiles", what, i, queries[i].counters.iterations);
	}
	query_run(&queries[1]);
	check_equal(what, &queries[1], expected,
				model_exact(world, &queries[1], world->rows, expected));
}

/* Every type and metric, tiles of a row, of some, of all. */
static void
exact_any_tile(void)
{
	static const struct
	{
		uint32_t	rows;
		uint32_t	least_tiles;
	} tiles[] = {{0, 1}, {1, 50}, {11, 20}, {400, 2}};

	for (uint32_t i = 0; i < PAIRS; i++)
		for (size_t tile = 0; tile < sizeof(tiles) / sizeof(tiles[0]); tile++)
		{
			/*
			 * bits in long rows, so that there is something that does not fit
			 */
			FarSpec spec = {pairs[i].type,
							pairs[i].metric,
							pairs[i].type == ELEMENT_BIT ? 2500 : 77,
							tile == 1 ? 800 : 1300,
							0,
							i % 3 == 0 ? SHAPE_SMALL : SHAPE_CLUSTERED,
							tile == 1 ? 0.2 : 0.6, 0};
			char		what[64];
			World	   *world;

			/* tiles of one row take long */
			if (tile == 1 && i != 0 && (i != PAIRS - 1 || options.quick))
				continue;
			if (options.quick && tile != 1 && i % 3 != tile % 3)
				continue;
			snprintf(what, sizeof(what), "type %d, metric %d, tiles of %u rows", (int) spec.type,
					 (int) spec.metric, tiles[tile].rows);
			world = far_world(&spec, tiles[tile].rows);
			fill_far(world);
			for (uint32_t slot = 0; slot < world->rows; slot += 17)
				world_kill(world, slot);
			check_exact(what, world, tiles[tile].least_tiles);
		}
}

/* More results than a block keeps, and more than a tile has rows. */
static void
exact_many_results(void)
{
	static const uint32_t tiles[] = {0, 1000};
	FarSpec		spec = {ELEMENT_FLOAT, METRIC_L2, 16, 6000, 0, SHAPE_SMALL, 0.7, 0};

	for (size_t tile = 0; tile < sizeof(tiles) / sizeof(tiles[0]); tile++)
	{
		World	   *world = far_world(&spec, tiles[tile]);
		SearchResult *expected = allocate(6001 * sizeof(SearchResult));
		static const uint32_t ks[] = {1030, 1900, 6000};

		fill_far(world);
		for (size_t i = 0; i < sizeof(ks) / sizeof(ks[0]); i++)
		{
			EngineQuery query;

			query_init(&query, world, METHOD_EXACT, ks[i], 0, world_vector(world, 99));
			query_run(&query);
			check_equal("many results", &query, expected,
						model_exact(world, &query, world->rows, expected));
		}
	}
}

/* Give a mirror so many seeds. */
static void
set_seeds(World *world, uint32_t count)
{
	uint32_t   *slots = allocate(count * sizeof(uint32_t));
	EngineJob	job = {.kind = JOB_SEEDS, .mirror = world->mirror, .count = count, .slots = slots};

	for (uint32_t i = 0; i < count; i++)
		slots[i] = (uint32_t) ((uint64_t) i * world->rows / count);
	CHECK(run_job(&job, NULL) == ENGINE_OK, "seeds were refused");
}

/*
 * A graph is searched as on any mirror: with filters, bounds, long lists,
 * pending rows, and with more seeds than are tried.
 */
static void
graph(void)
{
	FarSpec spec = {
		ELEMENT_FLOAT, METRIC_COSINE, 60, options.quick ? 1500 : 4000, 0, SHAPE_CLUSTERED, 0.8, 0};
	World	   *world = far_world(&spec, 0);
	EngineQuery queries[QUERIES];
	double		recall;

	for (uint32_t i = 0; i < 2; i++)
	{
		while (world->rows < world->room / 10 * (9 + i))
			world_append(world, 50);
		if (i == 0)
			world_link(world);
	}
	fill_far(world);
	for (uint32_t nseeds = 0; nseeds <= 500; nseeds += 500)
	{
		if (nseeds > 0)
			set_seeds(world, nseeds);
		make_queries(world, METHOD_GRAPH, queries);
		queries[7].ef = 1200;
		queries_run(queries, QUERIES);
		recall = 0;
		for (uint32_t i = 0; i < QUERIES; i++)
		{
			must(queries[i].status, &queries[i].error, "graph query");
			check_sound(world, &queries[i]);
			recall += i != 3 ? recall_of(world, &queries[i]) / (QUERIES - 1) : 0;
		}
		CHECK(recall >= 0.95, "recall %.3f with %u seeds", recall, nseeds);
	}
	query_init(&queries[0], world, METHOD_GRAPH, 10, 60, world_vector(world, 5));
	queries[0].reference = has_reference(world);
	query_run(&queries[0]);
	check_sound(world, &queries[0]);
}

/*
 * A mirror made for few rows grows: in place, past what the device has room
 * for.
 */
static void
grows_out(void)
{
	FarSpec		spec = {ELEMENT_FLOAT, METRIC_L2, 120, 3000, 500, SHAPE_UNIFORM, 0.4, 0};
	World	   *world = far_world(&spec, 100);
	EngineInfo	info;

	world_append(world, 500);
	ops->info(engine, &info);
	CHECK(strncmp(info.device, "emulated", 8) != 0 || world_info(world).host_bytes == 0,
		  "500 rows do not fit");
	world_link(world);
	check_exact("before it grows", world, 0);
	while (world->rows < 3000)
	{
		world_append(world, 250);
		if (world->rows % 1000 == 0)
			check_exact("while it grows", world, 0);
	}
	fill_far(world);
	world_link(world);
	check_exact("after it has grown", world, 2);
}

/* Ask for the places of every so many rows; returns how many were there. */
static uint32_t
rows_found(const World *world, uint32_t step)
{
	uint32_t	found = 0;

	for (uint32_t slot = 0; slot < world->rows; slot += step)
	{
		EngineQuery query;

		query_init(&query, world, METHOD_GRAPH, 1, 40, world_vector(world, slot));
		query_run(&query);
		check_sound(world, &query);
		found += query.count == 1 && query.results[0].distance == 0;
	}
	return found;
}

/*
 * Rows in host memory are linked by their codes, all of them or few. Links of
 * rows without codes and repairs are refused, and change nothing.
 */
static void
links(void)
{
	EngineInfo	info;
	uint32_t	rows;

	ops->info(engine, &info);
	/* real devices map megabytes at once */
	rows = strcmp(info.name, "cpu") == 0 || strncmp(info.device, "emulated", 8) == 0 ? 1500 : 60000;
	for (uint32_t way = 0; way < 2; way++)
	{
		FarSpec		spec = {ELEMENT_FLOAT, way == 0 ? METRIC_L2 : METRIC_L1, 60, rows, 0,
							SHAPE_CLUSTERED, 0.5, 2 * rows + 9000};
		World	   *world = far_world(&spec, 0);
		EngineJob	drop = {.kind = JOB_DROP, .mirror = kept_mirror};
		EngineJob	link = {.kind = JOB_LINK, .ef_construction = 64};
		EngineJob	repair = {.kind = JOB_REPAIR, .ef_construction = 64};

		while (world->rows < rows / 10 * 9)
			world_append(world, rows / 10);
		CHECK(!has_far_rows() || world_info(world).host_bytes > 0, "no row is in host memory");
		CHECK(run_job(&drop, NULL) == ENGINE_OK, "the other mirror is not dropped");
		CHECK(links_or_refuses(world, &link) == (way == 0 || !has_far_rows()), "the first link");
		fill_far(world);
		CHECK(links_or_refuses(world, &link) == (way == 0 || !has_far_rows()),
			  "a link of few rows");
		if (way == 0)
			CHECK(rows_found(world, rows / 300) >= 285, "rows that were linked are not found");
		for (uint32_t slot = 1; slot < world->rows; slot += 5)
			world_kill(world, slot);
		CHECK(links_or_refuses(world, &repair) == !has_far_rows(), "a repair");
	}
}

/* Whether an answer is that of the table as it is now. */
static bool
is_answer(const World *world, const EngineQuery *query)
{
	SearchResult expected[10];
	uint32_t	count = model_exact(world, query, world->rows, expected);

	if (query->count != count)
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (expected[i].slot != query->results[i].slot ||
			expected[i].version != query->results[i].version ||
			expected[i].distance != query->results[i].distance)
			return false;
	return true;
}

/* Whether a result is a row of the table as it is now. */
static bool
is_row(const World *world, const EngineQuery *query, const SearchResult *result)
{
	return result->slot < world->rows && world->live[result->slot] &&
		   result->version == world->versions[result->slot] &&
		   result->distance ==
			   model_distance(world, query->vector, world_vector(world, result->slot));
}

/*
 * Whether every result is a row as it was before a change or as it is after it.
 */
static bool
is_of_either(const World *before, const World *after, const EngineQuery *query)
{
	for (uint32_t i = 0; i < query->count; i++)
		if (!is_row(before, query, &query->results[i]) && !is_row(after, query, &query->results[i]))
			return false;
	return true;
}

/*
 * Rows overwritten, killed and appended during searches. Where rows are in host
 * memory each search sees all of a change or nothing; an engine without such
 * rows may change one after the other, and promises it of each row only.
 */
static void
changes_meanwhile(void)
{
	FarSpec		spec = {ELEMENT_HALF, METRIC_L2, 100, 2500, 0, SHAPE_UNIFORM, 0.5, 0};
	World	   *world;
	World	   *before = allocate(sizeof(*before));
	EngineQuery queries[8];
	uint32_t	rounds = options.quick ? 3 : 30;

	/* an emulated device shows at once what waits for too little */
	setenv("GPUANN_EMULATE_LATE", "1", 1);
	world = far_world(&spec, 50);
	unsetenv("GPUANN_EMULATE_LATE");
	while (world->rows < 2400)
		world_append(world, 400);
	for (uint32_t round = 0; round < rounds; round++)
	{
		uint32_t	slots[64];
		uint32_t	changed[64];
		char	   *vectors = allocate(64 * world->vector_bytes);
		EngineJob job = {.kind = round % 3 == 2 ? JOB_DEAD : JOB_OVERWRITE,
						 .mirror = world->mirror,
						 .count = 64,
						 .slots = slots,
						 .versions = changed,
						 .vectors = vectors};
		uint32_t	done = 0;
		uint32_t	old = 0;
		JobProgress progress;
		double		start = clock_seconds();
		JobId		id = 0;

		*before = *world;
		before->vectors = allocate(world->room * world->vector_bytes);
		before->versions = allocate((world->room + 1) * sizeof(uint32_t));
		before->live = allocate(world->room + 1);
		memcpy(before->vectors, world->vectors, world->room * world->vector_bytes);
		memcpy(before->versions, world->versions, (world->room + 1) * sizeof(uint32_t));
		memcpy(before->live, world->live, world->room + 1);
		for (uint32_t i = 0; i < 64; i++)
		{
			slots[i] = (round * 7 + i * 37) % world->rows;
			changed[i] = ++world->versions[slots[i]];
			world->live[slots[i]] = job.kind == JOB_OVERWRITE;
			/* what was far from the query is near, and the other way round */
			if (job.kind == JOB_OVERWRITE)
				world_set_vector(world, slots[i], 90000 + round * 64 + i);
			memcpy(vectors + i * world->vector_bytes, world_vector(world, slots[i]),
				   world->vector_bytes);
		}
		for (uint32_t i = 0; i < 8; i++)
		{
			/*
			 * among the new rows, and among the old: the first that changed,
			 * and two of the first tiles if the rows before are on the device.
			 * The copies of these may come too early
			 */
			uint32_t	slot = slots[i < 4 ? i / 2 : 7 + i / 2];

			query_init(&queries[i], world, METHOD_EXACT, 10, 0,
					   i % 2 ? world_vector(world, slot) : world_vector(before, slot));
			queries_submit(&queries[i], 1);
			if (i == 3)
				id = start_job(&job);
		}
		while (done < 8)
		{
			EngineQuery *completed[8];

			done += queries_poll(completed, 8);
			CHECK(clock_seconds() - start < PATIENCE, "queries hang beside changes");
		}
		must(end_job(id, &progress), &progress.error, "a change");
		ops->job_release(engine, id);
		for (uint32_t i = 0; i < 8; i++)
		{
			bool		is_old = is_answer(before, &queries[i]);

			CHECK(is_old || is_answer(world, &queries[i]) ||
					  (!has_far_rows() && is_of_either(before, world, &queries[i])),
				  "round %u: query %u saw a part of a change", round, i);
			old += is_old;
		}
		CHECK(!has_far_rows() || old >= 1, "round %u: no search came before the change", round);
		if (world->rows < world->room && round % 2 == 0)
			world_append(world, 10);
	}
	check_exact("after changes", world, 10);
}

/*
 * What does not fit into host memory either is refused with figures, and
 * nothing has changed.
 */
static void
refused(void)
{
	FarSpec		spec = {ELEMENT_FLOAT, METRIC_L2, 500, 3000, 1000, SHAPE_UNIFORM, 0.9, 0};
	World	   *world = far_world(&spec, 0);
	EngineConfig config = far_config(memory_now().limit, 500);
	MirrorSpec large = {.dims = 500,
						.type = ELEMENT_FLOAT,
						.metric = METRIC_L2,
						.method = METHOD_GRAPH,
						.degree = 32,
						.capacity = 3000,
						.residency = RESIDENCY_COMPRESSED,
						.placement = PLACEMENT_SINGLE,
						.device = -1};
	EngineError error = {0};
	MirrorId	id;
	EngineJob	job;
	JobProgress progress;

	if (!has_far_rows())
		skip("this engine has no memory for rows apart from its own");
	config.host_rows_limit = 3 << 20;
	reopen(&config);
	CHECK(ops->mirror_create(engine, &large, &id, &error) == ENGINE_NO_MEMORY,
		  "rows fit nowhere, and are taken");
	CHECK(strstr(error.text, "in host memory") != NULL, "no figures: %s", error.text);
	world = make_far(&spec);
	world_append(world, 1000);
	job = (EngineJob){.kind = JOB_APPEND,
					  .mirror = world->mirror,
					  .count = 2000,
					  .first_slot = 1000,
					  .versions = world->versions + 1000,
					  .vectors = world_vector(world, 1000)};
	CHECK(run_job(&job, &progress) == ENGINE_NO_MEMORY, "an append of what fits nowhere: status %d",
		  (int) progress.status);
	check_exact("after a refusal", world, 0);
	/* nobody gives host memory: then it is a mirror as any */
	config = far_config(0, 0);
	config.host_rows_limit = 0;
	reopen(&config);
	config.memory_limit = memory_now().used + ((uint64_t) 4 << 20);
	reopen(&config);
	CHECK(ops->mirror_create(engine, &large, &id, &error) == ENGINE_NO_MEMORY,
		  "host memory is used that nobody gave");
}

/*
 * The driver refuses memory at each step of making and filling a mirror: it is
 * said, nothing is lost, and what has been there answers.
 */
static void
refused_at_each_step(void)
{
	FarSpec		spec = {ELEMENT_FLOAT, METRIC_IP, 100, 1000, 200, SHAPE_UNIFORM, 0.9, 0};
	World	   *world = far_world(&spec, 0);
	MirrorSpec wanted = {.dims = 100,
						 .type = ELEMENT_FLOAT,
						 .metric = METRIC_IP,
						 .method = METHOD_GRAPH,
						 .degree = 32,
						 .capacity = 200,
						 .residency = RESIDENCY_COMPRESSED,
						 .placement = PLACEMENT_SINGLE,
						 .device = -1};
	EngineInfo	info;
	EngineMemory empty;
	uint32_t	refusals = 0;

	ops->info(engine, &info);
	if (strncmp(info.device, "emulated", 8) != 0)
		skip("only an emulated device refuses memory when it is told to");
	world_drop(world);
	empty = memory_now();
	for (uint32_t step = 0; step < 40; step++)
	{
		char		number[16];
		EngineError error = {0};
		EngineStatus status;
		EngineJob job = {.kind = JOB_APPEND,
						 .count = 1000,
						 .versions = world->versions,
						 .vectors = world->vectors};
		JobProgress progress;
		EngineJob	drop = {.kind = JOB_DROP};

		snprintf(number, sizeof(number), "%u", step);
		setenv("GPUANN_EMULATE_ALLOCATIONS", number, 1);
		status = ops->mirror_create(engine, &wanted, &job.mirror, &error);
		CHECK(status == ENGINE_OK || (status == ENGINE_NO_MEMORY && error.text[0] != 0),
			  "step %u: status %d", step, (int) status);
		refusals += status != ENGINE_OK;
		if (status == ENGINE_OK)
		{
			refusals += run_job(&job, &progress) != ENGINE_OK;
			unsetenv("GPUANN_EMULATE_ALLOCATIONS");
			CHECK(progress.status == ENGINE_OK || progress.status == ENGINE_NO_MEMORY,
				  "step %u: append has status %d", step, (int) progress.status);
			world->mirror = drop.mirror = job.mirror;
			world->rows = progress.status == ENGINE_OK ? 1000 : 0;
			while (world->rows < 1000)
				world_append(world, 100);
			check_exact("after refusals", world, 0);
			CHECK(run_job(&drop, NULL) == ENGINE_OK, "drop");
		}
		unsetenv("GPUANN_EMULATE_ALLOCATIONS");
		CHECK(memory_now().vectors == 0 && memory_now().graph == 0 && memory_now().host_rows == 0,
			  "step %u: memory is left", step);
		CHECK(memory_now().used <= empty.used, "step %u: %llu bytes are left", step,
			  (unsigned long long) (memory_now().used - empty.used));
		if (status == ENGINE_OK && progress.status == ENGINE_OK)
			break;
	}
	CHECK(refusals >= 5, "only %u refusals", refusals);
}

/*
 * Mirrors are dropped, and engines closed, with searches under way; a device
 * fails among them.
 */
static void
ended_meanwhile(void)
{
	FarSpec		spec = {ELEMENT_FLOAT, METRIC_L2, 100, 2000, 0, SHAPE_UNIFORM, 0.5, 0};
	World	   *world = far_world(&spec, 40);
	uint64_t	limit = memory_now().limit;
	EngineConfig config = far_config(has_far_rows() ? limit : 0, 0);
	EngineQuery queries[QUERIES];
	EngineQuery *completed[QUERIES];
	EngineInfo	info;
	uint32_t	done = 0;
	JobProgress progress;
	JobId		id;
	EngineJob	drop = {.kind = JOB_DROP};

	fill_far(world);
	make_queries(world, METHOD_EXACT, queries);
	queries_submit(queries, QUERIES);
	drop.mirror = world->mirror;
	id = start_job(&drop);
	while (done < QUERIES)
		done += queries_poll(completed, QUERIES);
	must(end_job(id, &progress), &progress.error, "drop");
	ops->job_release(engine, id);
	for (uint32_t i = 0; i < QUERIES; i++)
		check_sound(world, &queries[i]);
	CHECK(memory_now().host_rows == 0, "a dropped mirror's rows are left in host memory");

	ops->info(engine, &info);
	for (uint32_t work = 0; work < 400; work = work * 4 + 1)
	{
		double		start = clock_seconds();
		char		number[16];

		/*
		 * close, and where it can be told to the device fails: while rows come,
		 * or while they are searched
		 */
		snprintf(number, sizeof(number), "%u", work);
		if (work >= 40 && strncmp(info.device, "emulated", 8) == 0)
			setenv("GPUANN_EMULATE_FAILURE", number, 1);
		reopen(&config);
		unsetenv("GPUANN_EMULATE_FAILURE");
		world = make_far(&spec);
		if (work >= 40 && strncmp(info.device, "emulated", 8) == 0)
		{
			EngineJob append = {.kind = JOB_APPEND,
								.mirror = world->mirror,
								.count = 2000,
								.versions = world->versions,
								.vectors = world->vectors};
			EngineStatus status = ENGINE_OK;
			EngineQuery *pointers[1] = {&queries[0]};
			EngineError error = {0};
			uint32_t	count;

			while (status != ENGINE_FAILED)
			{
				if (ops->job_submit(engine, &append, &id, &error) == ENGINE_OK)
					ops->job_release(engine, id);
				queries[0].mirror = world->mirror;
				status = ops->submit(engine, pointers, 1, &error);
				while (status == ENGINE_OK)
				{
					status = ops->poll(engine, completed, 1, &count, &error);
					if (count > 0)
						break;
					CHECK(clock_seconds() - start < PATIENCE,
						  "nobody notices that the device has failed");
				}
			}
			continue;
		}
		while (world->rows < 2000)
			world_append(world, 500);
		make_queries(world, METHOD_EXACT, queries);
		queries_submit(queries, QUERIES);
		for (uint32_t i = 0; i < work; i++)
			(void) queries_poll(completed, QUERIES);
	}
}

const Case far_cases[] = {
	{"far_exact_any_tile", exact_any_tile, false},
	{"far_exact_many_results", exact_many_results, false},
	{"far_graph", graph, false},
	{"far_grows_out", grows_out, false},
	{"far_links", links, false},
	{"far_changes_meanwhile", changes_meanwhile, false},
	{"far_refused", refused, false},
	{"far_refused_at_each_step", refused_at_each_step, false},
	{"far_ended_meanwhile", ended_meanwhile, false},
	{NULL, NULL, false}
};
