/*
 * conformance_columns.c
 *		Conditions on columns: random programs over random columns, while rows
 *		are appended, overwritten and killed; searches under conditions that
 *		many, some and few rows pass; memory, and what is refused.
 */
#include <stdlib.h>
#include <string.h>

#include "conformance.h"
#include "random_columns.h"

#define ROWS		300
#define PROGRAMS	16
#define TOGETHER	8

/* A world with random columns, and their table. */
typedef struct Columns
{
	World	   *world;
	Table	   *table;
} Columns;

/* Make a world whose mirror has the columns of a table; skipped without. */
static World *
world_with(MirrorSpec spec, const Table *table, uint32_t room, Shape shape)
{
	EngineError error = {0};
	EngineStatus status;
	MirrorId	id;
	World	   *world;

	spec.columns = table->columns;
	memcpy(spec.column_kinds, table->kinds, sizeof(spec.column_kinds));
	status = ops->mirror_create(engine, &spec, &id, &error);
	if (status == ENGINE_UNSUPPORTED)
		skip("%s", error.text);
	must(status, &error, "mirror_create");
	must(run_job(&(EngineJob) {.kind = JOB_DROP, .mirror = id}, &(JobProgress) {0}), &error,
		 "drop");
	world = world_create_of(&spec, room, shape);
	world->records = table->records;
	return world;
}

static MirrorSpec
graph_spec(ElementType type, Metric metric, uint32_t dims)
{
	return (MirrorSpec) {.dims = dims, .type = type, .metric = metric, .method = METHOD_GRAPH,
						 .degree = 16, .capacity = 100, .residency = RESIDENCY_FULL,
						 .placement = PLACEMENT_SINGLE, .device = -1};
}

static Columns
random_world(ElementType type, Metric metric)
{
	Columns		columns;

	columns.table = table_create(ROWS + TOGETHER, allocate, random_below);
	columns.world = world_with(graph_spec(type, metric, type == ELEMENT_BIT ? 64 : 8),
							   columns.table, ROWS + TOGETHER, SHAPE_CLUSTERED);
	return columns;
}

/* Published rows that pass a program, the dead and absent ones among them. */
static uint32_t
passing_rows(const World *world, const FilterProgram *program)
{
	uint32_t	passing = 0;

	for (uint32_t slot = 0; slot < world->rows; slot++)
		passing += model_passes(world, program, slot);
	return passing;
}

/* A bitmap with about half of the slots, and not of all rows, or of more. */
static const uint64_t *
some_slots(uint32_t *slots)
{
	uint64_t   *bits;

	*slots = ROWS / 2 + random_below(ROWS);
	bits = allocate((*slots + 63) / 64 * sizeof(uint64_t));
	for (uint32_t slot = 0; slot < *slots; slot++)
		bits[slot / 64] |= (uint64_t) random_below(2) << (slot % 64);
	return bits;
}

/*
 * Run queries under random programs, some of which are equal, and compare exact
 * answers with the model's; graph searches answer with as many rows, all of
 * which pass.
 */
static void
check_programs(const Columns *columns, uint32_t rounds)
{
	const World *world = columns->world;
	EngineQuery queries[TOGETHER];
	Made	   *made = allocate(TOGETHER * sizeof(Made));
	FilterProgram programs[TOGETHER];
	SearchResult expected[40];

	for (uint32_t round = 0; round < rounds; round++)
	{
		for (uint32_t i = 0; i < TOGETHER; i++)
		{
			uint32_t	k = 1 + random_below(40);

			if (i == 0 || random_below(3) > 0)
				program_make(columns->table, &made[i]);
			else
				made[i] = made[i - 1];
			programs[i] = program_of(&made[i]);
			query_init(&queries[i], world, random_below(2) == 0 ? METHOD_EXACT : METHOD_GRAPH, k,
					   40, world_vector(world, ROWS + i));
			queries[i].program = &programs[i];
			if (random_below(3) == 0)
				queries[i].filter = some_slots(&queries[i].filter_slots);
			if (random_below(3) == 0)
				queries[i].exclude = some_slots(&queries[i].exclude_slots);
			if (random_below(3) == 0)
			{
				queries[i].has_beyond = true;
				queries[i].beyond_slot = random_below(ROWS);
				queries[i].beyond_distance = model_distance(
					world, queries[i].vector, world_vector(world, queries[i].beyond_slot));
			}
		}
		queries_run(queries, TOGETHER);
		for (uint32_t i = 0; i < TOGETHER; i++)
		{
			uint32_t	count = model_exact(world, &queries[i], world->rows, expected);

			CHECK(queries[i].passing == passing_rows(world, &programs[i]),
				  "%u of %u rows may pass, not %u", passing_rows(world, &programs[i]), world->rows,
				  queries[i].passing);
			if (queries[i].method == METHOD_EXACT)
				check_equal("a query under a program", &queries[i], expected, count);
			CHECK(queries[i].status == ENGINE_OK && queries[i].count == count,
				  "%u rows of %u, status %d", queries[i].count, count, (int) queries[i].status);
			for (uint32_t j = 0; j < queries[i].count; j++)
				CHECK(model_passes(world, &programs[i], queries[i].results[j].slot),
					  "slot %u does not pass", queries[i].results[j].slot);
		}
	}
}

/* Random programs over random columns of every kind. */
static void
random_programs(void)
{
	static const Pair types[] = {{ELEMENT_FLOAT, METRIC_L2}, {ELEMENT_BIT, METRIC_HAMMING}};

	for (uint32_t round = 0; round < 4; round++)
	{
		Columns		columns = random_world(types[round % 2].type, types[round % 2].metric);

		world_append(columns.world, ROWS);
		if (round >= 2)
			world_link(columns.world);
		for (uint32_t slot = 0; slot < ROWS; slot += 13)
			world_kill(columns.world, slot);
		check_programs(&columns, PROGRAMS / 4);
		world_drop(columns.world);
	}
}

/* Start to overwrite slots with new vectors and columns. */
static JobId
start_overwrite(const Columns *columns, uint32_t *slots, uint32_t count)
{
	World	   *world = columns->world;
	uint32_t	bytes = columns->table->record_bytes;
	char	   *vectors = allocate(count * world->vector_bytes);
	unsigned char *records = allocate((size_t) count * bytes);
	uint32_t   *versions = allocate(count * sizeof(uint32_t));
	EngineJob	job = {.kind = JOB_OVERWRITE, .mirror = world->mirror, .count = count,
					   .slots = slots, .versions = versions, .vectors = vectors,
					   .columns = records};

	for (uint32_t i = 0; i < count; i++)
	{
		uint32_t	slot = slots[i];

		world_set_vector(world, slot, 100000 + random_below(100000));
		table_make_row(columns->table, slot);
		versions[i] = ++world->versions[slot];
		world->live[slot] = true;
		memcpy(vectors + i * world->vector_bytes, world_vector(world, slot), world->vector_bytes);
		memcpy(records + (size_t) i * bytes, columns->table->records + (size_t) slot * bytes,
			   bytes);
	}
	return start_job(&job);
}

/*
 * The same program before and after rows are appended and overwritten: none,
 * few and all of them, while queries are in flight.
 */
static void
changes(void)
{
	Columns		columns = random_world(ELEMENT_FLOAT, METRIC_L2);
	World	   *world = columns.world;
	uint32_t   *slots = allocate(ROWS * sizeof(uint32_t));
	Made	   *made = allocate(sizeof(Made));
	EngineQuery queries[4];
	FilterProgram program;
	SearchResult expected[20];

	program_make(columns.table, made);
	program = program_of(made);
	for (uint32_t step = 0; step < 12; step++)
	{
		uint32_t	count = 0;
		bool		all = step % 4 == 3;
		bool		none = step % 4 == 1;
		JobProgress progress;

		world_append(world, step == 0 ? ROWS / 3 + 7 : 15);
		if (step == 5)
			world_link(world);
		for (uint32_t slot = 0; slot < world->rows; slot++)
			if (all || (!none && random_below(40) == 0))
				slots[count++] = slot;
		for (uint32_t i = 0; i < 4; i++)
		{
			query_init(&queries[i], world, i < 2 ? METHOD_EXACT : METHOD_GRAPH, 20, 40,
					   world_vector(world, ROWS + i));
			queries[i].program = &program;
		}
		queries_submit(queries, 4);
		/* all, then some of them so often that an engine cannot note each */
		for (uint32_t i = 0; i < (all ? 30 : none ? 0 : 1); i++)
		{
			JobId		job = start_overwrite(&columns, slots, i == 0 ? count : count / 3);

			CHECK(end_job(job, &progress) == ENGINE_OK, "overwrite: %s", progress.error.text);
			ops->job_release(engine, job);
		}
		for (uint32_t completed = 0; completed < 4;)
		{
			EngineQuery *done[4];

			completed += queries_poll(done, 4);
		}
		for (uint32_t i = 0; i < 4; i++)
			CHECK(queries[i].status == ENGINE_OK, "status %d", (int) queries[i].status);
		queries_run(queries, 4);
		for (uint32_t i = 0; i < 4; i++)
		{
			uint32_t	there = model_exact(world, &queries[i], world->rows, expected);

			CHECK(queries[i].passing == passing_rows(world, &program),
				  "step %u: %u of %u rows may pass, not %u", step, passing_rows(world, &program),
				  world->rows, queries[i].passing);
			CHECK(queries[i].count == there, "step %u: %u answers of %u", step, queries[i].count,
				  there);
			if (i < 2)
				check_equal("after an overwrite", &queries[i], expected, there);
		}
		if (step % 3 == 0)
			check_programs(&columns, 1);
	}
	world_drop(world);
}

/* A gap of absent slots is not among the answers, whatever passes. */
static void
gaps(void)
{
	Columns		columns = random_world(ELEMENT_FLOAT, METRIC_L2);
	World	   *world = columns.world;
	uint32_t	gap = 90;

	world_append(world, 50);
	for (uint32_t slot = 50; slot < 50 + gap; slot++)
		world->live[slot] = false;
	world->rows += gap;
	world_append(world, 100);
	for (uint32_t round = 0; round < PROGRAMS; round++)
	{
		Made	   *made = allocate(sizeof(Made));
		FilterProgram program;
		EngineQuery query;
		SearchResult *expected = allocate(ROWS * sizeof(SearchResult));

		program_make(columns.table, made);
		program = program_of(made);
		query_init(&query, world, METHOD_EXACT, ROWS, 40, world_vector(world, ROWS));
		query.program = &program;
		query_run(&query);
		check_equal("with a gap", &query, expected,
					model_exact(world, &query, world->rows, expected));
		CHECK(query.passing >= query.count && query.passing <= world->rows, "%u rows may pass",
			  query.passing);
	}
	world_drop(world);
}

/* A table with a number below 1,000 in each row. */
static Table *
numbers(uint32_t rows)
{
	Table	   *table = table_create(rows, allocate, random_below);

	table->columns = 1;
	table->kinds[0] = FILTER_I32;
	table->record_bytes = filter_record_bytes(table->kinds, 1);
	for (uint32_t row = 0; row < rows; row++)
	{
		int32_t		number = (int32_t) random_below(1000);
		unsigned char *record = table->records + (size_t) row * table->record_bytes;

		memset(record, 0, table->record_bytes);
		memcpy(record + FILTER_RECORD_VALUES, &number, sizeof(number));
	}
	return table;
}

/* Searches under `number < bound`: complete, and nearly always right. */
static void
check_shares(World *world, SearchMethod method, uint32_t ef, uint32_t probes)
{
	static const int64_t bounds[] = {0, 5, 20, 200, 600, 1000};

	for (size_t b = 0; b < sizeof(bounds) / sizeof(bounds[0]); b++)
	{
		FilterStep	step = {.op = FILTER_LT};
		FilterValue value = {.low = bounds[b], .high = bounds[b]};
		FilterProgram program = {&step, &value, 1, 1};
		EngineQuery queries[TOGETHER];
		SearchResult expected[10];
		double		recall = 0;

		for (uint32_t i = 0; i < TOGETHER; i++)
		{
			query_init(&queries[i], world, method, 10, ef,
					   world_vector(world, world->rows + i));
			queries[i].probes = probes;
			queries[i].rerank = ENGINE_RERANK_ALL;
			queries[i].program = &program;
		}
		queries_run(queries, TOGETHER);
		for (uint32_t i = 0; i < TOGETHER; i++)
		{
			uint32_t	there = model_exact(world, &queries[i], world->rows, expected);

			check_sound(world, &queries[i]);
			CHECK(queries[i].count == there, "%u answers of %u below %d", queries[i].count, there,
				  (int) bounds[b]);
			for (uint32_t j = 0; j < there; j++)
				CHECK(model_passes(world, &program, queries[i].results[j].slot),
					  "slot %u does not pass", queries[i].results[j].slot);
			recall += there > 0 ? recall_of(world, &queries[i]) : 1;
		}
		CHECK(recall >= 0.9 * TOGETHER, "recall %.3f below %d", recall / TOGETHER,
			  (int) bounds[b]);
	}
}

#define SHARED_ROWS		1200

static void
graph_shares(void)
{
	Table	   *table = numbers(SHARED_ROWS + TOGETHER);
	World	   *world = world_with(graph_spec(ELEMENT_FLOAT, METRIC_L2, 8), table,
								   SHARED_ROWS + TOGETHER, SHAPE_CLUSTERED);

	world_append(world, SHARED_ROWS);
	world_link_by_cpu(world);
	check_shares(world, METHOD_GRAPH, 40, 0);
	world_drop(world);
}

static void
list_shares(void)
{
	MirrorSpec	spec = graph_spec(ELEMENT_FLOAT, METRIC_L2, 8);
	Table	   *table = numbers(SHARED_ROWS + TOGETHER);
	World	   *world;
	EngineJob	job = {.kind = JOB_TRAIN};
	JobProgress progress;

	spec.method = METHOD_IVFPQ;
	spec.degree = 1;
	spec.lists = (ListSpec) {.lists = 20, .quantizer = QUANTIZER_INT8, .bits = 8, .seed = 1};
	world = world_with(spec, table, SHARED_ROWS + TOGETHER, SHAPE_CLUSTERED);
	world_append(world, SHARED_ROWS);
	check_shares(world, METHOD_IVFPQ, 0, 8);	/* nothing is in a list yet */
	job.mirror = world->mirror;
	CHECK(run_job(&job, &progress) == ENGINE_OK, "training: %s", progress.error.text);
	job.kind = JOB_LINK;
	CHECK(run_job(&job, &progress) == ENGINE_OK, "link: %s", progress.error.text);
	check_shares(world, METHOD_IVFPQ, 0, 8);
	world_drop(world);
}

#define MANY	35				/* more programs than an engine keeps for queries in flight */

/* Ask under many programs at once. */
static void
ask_many(const World *world)
{
	EngineQuery queries[MANY];
	FilterStep	steps[MANY];
	FilterValue values[MANY][2];
	FilterProgram programs[MANY];
	SearchResult expected[5];

	for (uint32_t i = 0; i < MANY; i++)
	{
		steps[i] = (FilterStep) {.op = FILTER_IN, .count = 2};
		values[i][0] = (FilterValue) {.low = random_below(500)};
		values[i][1] = (FilterValue) {.low = 500 + random_below(500)};
		for (uint32_t j = 0; j < 2; j++)
			values[i][j].high = values[i][j].low;
		programs[i] = (FilterProgram) {&steps[i], values[i], 1, 2};
		query_init(&queries[i], world, METHOD_EXACT, 5, 0, world_vector(world, i));
		queries[i].program = &programs[i];
	}
	queries_run(queries, MANY);
	for (uint32_t i = 0; i < MANY; i++)
		check_equal("one of many programs", &queries[i], expected,
					model_exact(world, &queries[i], world->rows, expected));
}

/*
 * Programs by the hundred stay within the memory limit, and give way to rows
 * that are appended.
 */
static void
memory(void)
{
	MirrorSpec	spec = graph_spec(ELEMENT_FLOAT, METRIC_L2, 64);
	Table	   *table = numbers(4 * ROWS);
	EngineConfig config = {.device = options.device, .simd = options.simd};
	EngineMemory before;
	EngineMemory figures;
	World	   *world;

	ops->memory(engine, &before);
	(void) world_with(spec, table, 4 * ROWS, SHAPE_UNIFORM);
	ops->memory(engine, &figures);
	/* as much again, of a device; a processor's mirrors are smaller */
	config.memory_limit = figures.used + figures.used - before.used;
	if (config.memory_limit < figures.used + (UINT64_C(2) << 20))
		config.memory_limit = figures.used + (UINT64_C(2) << 20);
	reopen(&config);
	world = world_with(spec, table, 4 * ROWS, SHAPE_UNIFORM);
	for (uint32_t round = 0; round < 4; round++)
	{
		world_append(world, ROWS - 10);
		for (uint32_t i = 0; i < 2; i++)
		{
			ask_many(world);
			ops->memory(engine, &figures);
			CHECK(figures.used <= figures.limit, "%llu bytes used of %llu",
				  (unsigned long long) figures.used, (unsigned long long) figures.limit);
		}
	}
	world_drop(world);
}

/* Rows beyond the device's memory are in the host's, their columns are not. */
static void
rows_on_host(void)
{
	MirrorSpec	spec = graph_spec(ELEMENT_FLOAT, METRIC_L2, 1000);
	Columns		columns = {.table = table_create(ROWS + TOGETHER, allocate, random_below)};
	EngineConfig config = {.device = options.device, .simd = options.simd,
						   .host_rows_limit = UINT64_C(64) << 20};
	EngineMemory figures;

	reopen(&config);
	ops->memory(engine, &figures);
	if (figures.host_rows_limit == 0)
		skip("this engine has no memory for rows apart from its own");
	spec.residency = RESIDENCY_COMPRESSED;
	spec.capacity = ROWS;
	/* twice, because what else is used depends on the limit */
	for (uint32_t i = 0; i < 3; i++)
	{
		columns.world = world_with(spec, columns.table, ROWS + TOGETHER, SHAPE_UNIFORM);
		world_append(columns.world, ROWS);
		if (i == 2)
			break;
		ops->memory(engine, &figures);
		config.memory_limit = i == 0 ? figures.used : figures.used - figures.vectors / 2;
		reopen(&config);
	}
	if (world_info(columns.world).host_bytes == 0)
		skip("the device's figures vary: all rows are there");
	check_programs(&columns, 4);
	world_drop(columns.world);
}

/* What is refused: columns, rows without them, programs with faults. */
static void
refused(void)
{
	Table	   *table = numbers(20);
	MirrorSpec	spec = graph_spec(ELEMENT_FLOAT, METRIC_L2, 8);
	World	   *world = world_with(spec, table, 20, SHAPE_UNIFORM);
	World	   *plain = world_create_of(&spec, 20, SHAPE_UNIFORM);
	FilterStep	step = {.op = FILTER_LT, .column = 1};
	FilterValue value = {.low = 1, .high = 1};
	FilterProgram program = {&step, &value, 1, 1};
	EngineJob	job = {.kind = JOB_APPEND, .mirror = world->mirror, .count = 1,
					   .versions = world->versions, .vectors = world->vectors};
	EngineQuery query;
	EngineError error = {0};
	MirrorId	id;

	spec.columns = FILTER_MAX_COLUMNS + 1;
	CHECK(ops->mirror_create(engine, &spec, &id, &error) == ENGINE_INVALID, "17 columns");
	spec.columns = 1;
	spec.column_kinds[0] = FILTER_KINDS;
	CHECK(ops->mirror_create(engine, &spec, &id, &error) == ENGINE_INVALID, "a kind that is none");
	CHECK(ops->job_submit(engine, &job, &id, &error) == ENGINE_INVALID, "rows without columns");
	CHECK(world_info(world).bytes > world_info(plain).bytes, "columns take no memory");
	world_append(world, 10);
	world_append(plain, 10);
	for (uint32_t i = 0; i < 3; i++)
	{
		query_init(&query, i < 2 ? world : plain, METHOD_EXACT, 5, 0, world_vector(world, 0));
		query.program = &program;
		if (i > 0)
			step = (FilterStep) {.op = i == 1 ? FILTER_AND : FILTER_TRUE};
		queries_run(&query, 1);
		CHECK(query.status == ENGINE_INVALID && query.count == 0, "program %u is status %d", i,
			  (int) query.status);
	}
	world_drop(world);
	world_drop(plain);
}

const Case column_cases[] = {
	{"columns_random_programs", random_programs, false},
	{"columns_changes", changes, false},
	{"columns_gaps", gaps, false},
	{"columns_graph_shares", graph_shares, false},
	{"columns_list_shares", list_shares, false},
	{"columns_memory", memory, false},
	{"columns_of_rows_on_host", rows_on_host, false},
	{"columns_refused", refused, false},
	{NULL}
};
