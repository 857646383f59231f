/*
 * conformance_lists_jobs.c
 *		Jobs of mirrors with lists: training, loading, linking, deaths, memory.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conformance_lists.h"
#include "decode.h"
#include "engine/quantizer/quantizer.h"

#define LISTS	20
#define DIMS	24
#define FLIGHT	200
#define FIRST_LINKS	20

/* The rows of a world as lists have them. */
static float *
rows_as_floats(const World *world)
{
	float	   *rows = allocate((size_t) world->rows * world->dims * sizeof(float));

	for (uint32_t slot = 0; slot < world->rows; slot++)
	{
		float	   *row = rows + (size_t) slot * world->dims;

		memcpy(row, world_vector(world, slot), world->dims * sizeof(float));
		if (world->metric == METRIC_COSINE)
			quantizer_make_unit(row, world->dims);
	}
	return rows;
}

static double
square_between(const float *a, const float *b, uint32_t dims)
{
	double		sum = 0;

	for (uint32_t i = 0; i < dims; i++)
		sum += ((double) a[i] - b[i]) * ((double) a[i] - b[i]);
	return sum;
}

/*
 * A link's codes are the quantizer's of the nearest centroid, and stand for
 * rows near their own.
 */
static void
check_codes(const World *world, const ListSpec *spec, const LinkResult *link, const float *floats)
{
	MirrorSpec	mirror = {.dims = world->dims, .metric = world->metric, .lists = *spec};
	QuantizerShape shape = quantizer_shape_of(&mirror);
	Quantizer  *quantizer = quantizer_open(&shape, floats + (size_t) spec->lists * world->dims);
	const float *rows = rows_as_floats(world);
	unsigned char *code = allocate(quantizer_code_bytes(&shape));
	float	   *decoded = allocate(world->dims * sizeof(float));
	double		residuals = 0;
	double		errors = 0;
	bool		equal = true;
	bool		nearest = true;

	for (uint32_t i = 0; i < link->count; i++)
	{
		const float *row = rows + (size_t) link->slots[i] * world->dims;
		const float *centroid = floats + (size_t) link->rows[i] * world->dims;

		for (uint32_t list = 0; list < spec->lists; list++)
		{
			const float *other = floats + (size_t) list * world->dims;

			nearest &= square_between(row, centroid, world->dims) <=
				square_between(row, other, world->dims) * (1 + 1e-12);
		}
		quantizer_encode(quantizer, centroid, row, 1, code);
		equal &= memcmp(code, link->codes + (size_t) i * link->code_bytes, link->code_bytes) == 0;
		decode_code(quantizer, code, decoded);
		for (uint32_t d = 0; d < world->dims; d++)
			decoded[d] += centroid[d];
		errors += square_between(row, decoded, world->dims);
		residuals += square_between(row, centroid, world->dims);
	}
	quantizer_close(quantizer);
	CHECK(link->code_bytes == quantizer_code_bytes(&shape), "codes of %u bytes", link->code_bytes);
	CHECK(nearest, "a row is not in the list of its nearest centroid");
	CHECK(equal, "a link's code is not the quantizer's");
	CHECK(fabs(link->distance - residuals) <= residuals * 1e-12,
		  "the rows are %.17g from their centroids, not %.17g", residuals, link->distance);
	CHECK(errors < residuals * (spec->quantizer == QUANTIZER_RABITQ && spec->bits == 1 ? 1 : 0.5),
		  "decoded rows are %g from theirs, centroids %g", errors, residuals);
}

JobId
world_link_and_keep(const World *world, LinkResult *result)
{
	EngineJob	job = {.kind = JOB_LINK, .mirror = world->mirror};
	JobProgress progress;
	JobId		id = start_job(&job);

	must(end_job(id, &progress), &progress.error, "link");
	CHECK(ops->job_link_result(engine, id, result) == ENGINE_OK, "no result of a link");
	return id;
}

static void
lists_codes_are_the_quantizers(void)
{
	for (uint32_t number = 0; number < CODES; number++)
	{
		ListSpec	spec = lists_of(number, LISTS, DIMS);
		Metric		metric = (Metric) (1 + number % 3);
		World	   *world = world_create_lists(&spec, ELEMENT_FLOAT, metric, DIMS, 2000, 100,
											   SHAPE_CLUSTERED);
		LinkResult	trained;
		LinkResult	link;
		JobId		id;

		world_append(world, 2000);
		world_train(world, &trained);
		id = world_link_and_keep(world, &link);
		CHECK(link.count == 2000 && world_info(world).pending == 0 &&
			  world_info(world).linked == 2000, "%u of 2000 rows were linked", link.count);
		for (uint32_t i = 0; i < link.count; i++)
			CHECK(link.slots[i] == i && link.rows[i] < LISTS &&
				  link.linked[i / 64] >> i % 64 & 1, "row %u of the link is slot %u of list %u", i,
				  link.slots[i], link.rows[i]);
		check_codes(world, &spec, &link, trained.floats);
		ops->job_release(engine, id);
		world_drop(world);
	}
}

/* Read what a mirror says of all rows; it must be sound. */
static void
read_rows(const World *world, const uint32_t *slots, uint32_t *rows, uint32_t *versions)
{
	EngineError error = {0};

	must(ops->mirror_rows(engine, world->mirror, slots, world->rows, rows, versions, &error),
		 &error, "mirror_rows");
	for (uint32_t slot = 0; slot < world->rows; slot++)
		CHECK(versions[slot] == 1 && (rows[slot] < LISTS || rows[slot] == NO_SLOT),
			  "slot %u is of version %u in list %u", slot, versions[slot], rows[slot]);
}

/*
 * Rows of mirrors can be read while codes of links are on their way: neither
 * sees the other's.
 */
static void
lists_rows_read_beside_links(void)
{
	ListSpec	spec = lists_of(0, LISTS, DIMS);
	uint32_t   *slots = allocate(2000 * sizeof(uint32_t));
	uint32_t   *rows = allocate(2000 * sizeof(uint32_t));
	uint32_t   *versions = allocate(2000 * sizeof(uint32_t));
	World	   *worlds[3];
	LinkResult	trained[3];
	JobId		ids[3];
	uint32_t	left = 3;

	for (uint32_t slot = 0; slot < 2000; slot++)
		slots[slot] = slot;
	for (uint32_t i = 0; i < 3; i++)
	{
		worlds[i] = world_create_lists(&spec, ELEMENT_FLOAT, METRIC_L2, DIMS, 2000, 2000,
									   SHAPE_CLUSTERED);
		world_append(worlds[i], 2000);
		world_train(worlds[i], &trained[i]);
	}
	for (uint32_t i = 0; i < 3; i++)
	{
		EngineJob	job = {.kind = JOB_LINK, .mirror = worlds[i]->mirror};

		ids[i] = start_job(&job);
	}
	while (left > 0)
	{
		left = 0;
		for (uint32_t i = 0; i < 3; i++)
		{
			JobProgress progress;

			CHECK(ops->job_poll(engine, ids[i], &progress) == ENGINE_OK, "a job is unknown");
			left += !progress.completed;
			read_rows(worlds[i], slots, rows, versions);
		}
	}
	for (uint32_t i = 0; i < 3; i++)
	{
		JobProgress progress;
		LinkResult	link;

		must(end_job(ids[i], &progress), &progress.error, "link");
		CHECK(ops->job_link_result(engine, ids[i], &link) == ENGINE_OK, "no result of a link");
		check_codes(worlds[i], &spec, &link, trained[i].floats);
		ops->job_release(engine, ids[i]);
	}
}

void
world_load_floats(const World *world, const float *floats, uint32_t count)
{
	for (uint32_t first = 0, part; first < count; first += part)
	{
		EngineJob	job = {.kind = JOB_CODEBOOK, .mirror = world->mirror, .first_slot = first,
			.vectors = floats + first};
		JobProgress progress;

		part = count - first < 777 ? count - first : 777;
		job.count = part;
		if (run_job(&job, &progress) != ENGINE_OK)
			must(progress.status, &progress.error, "codebook");
	}
}

/* A mirror that is loaded from what made another answers as that does. */
static void
loaded_lists_answer_alike(void)
{
	for (uint32_t number = 0; number < CODES; number++)
	{
		ListSpec	spec = lists_of(number, LISTS, DIMS);
		World	   *world[2];
		LinkResult	trained;
		LinkResult	link;
		JobProgress progress;
		EngineJob	load = {.kind = JOB_GRAPH};

		for (int i = 0; i < 2; i++)
		{
			world[i] = world_create_lists(&spec, ELEMENT_FLOAT, METRIC_L2, DIMS, 2000, 2000,
										  SHAPE_CLUSTERED);
			world_append(world[i], 2000);
		}
		world_train(world[0], &trained);
		(void) world_link_and_keep(world[0], &link);
		world_load_floats(world[1], trained.floats, trained.nfloats);
		load.mirror = world[1]->mirror;
		load.count = link.count;
		load.slots = link.slots;
		load.rows = link.rows;
		for (int i = 0; i < 2; i++)	/* the second time nothing changes */
			must(run_job(&load, &progress), &progress.error, "lists");
		CHECK(world_info(world[1]).linked == 2000, "%u of 2000 rows were loaded",
			  world_info(world[1]).linked);
		for (uint32_t i = 0; i < 60; i++)
		{
			EngineQuery queries[2];

			for (int j = 0; j < 2; j++)
			{
				list_query_init(&queries[j], world[j], 5, 1 + i % 9, i % 3 * 10,
								world_vector(world[0], i * 31));
				query_run(&queries[j]);
			}
			check_equal("a loaded mirror", &queries[1], queries[0].results, queries[0].count);
		}
		world_drop(world[0]);
		world_drop(world[1]);
	}
}

void
world_overwrite(World *world, uint32_t slot, uint64_t variant)
{
	EngineJob	job = {.kind = JOB_OVERWRITE, .mirror = world->mirror, .count = 1, .slots = &slot,
		.versions = &world->versions[slot]};
	JobProgress progress;

	world_set_vector(world, slot, variant);
	world->versions[slot]++;
	world->live[slot] = true;
	job.vectors = world_vector(world, slot);
	must(run_job(&job, &progress), &progress.error, "overwrite");
}

/* Inserts, deaths, reuse and links in any order: all lists find all rows. */
static void
lists_follow_changes(void)
{
	for (uint32_t number = 0; number < CODES; number++)
	{
		ListSpec	spec = lists_of(number, LISTS, DIMS);
		World	   *world = world_create_lists(&spec, number % 2 ? ELEMENT_HALF : ELEMENT_FLOAT,
											   (Metric) (1 + number % 3), DIMS, 4000, 64,
											   SHAPE_CLUSTERED);

		world_append(world, 600);
		check_lists_exact(world, LISTS, "before training");
		world_train(world, NULL);
		for (uint32_t round = 0; round < 12; round++)
		{
			if (round % 2 == 0)
				world_link_lists(world);
			for (uint32_t i = 0; i < 60; i++)
			{
				uint32_t	slot = random_below(world->rows);

				if (world->live[slot])
					world_kill(world, slot);
				else
					world_overwrite(world, slot, 5000000 + round * 1000 + i);
			}
			world_append(world, round == 5 ? 1500 : 100);
			check_lists_exact(world, LISTS, "after changes");
		}
		world_drop(world);
	}
}

/*
 * Rows that are linked while queries run, before the first link a training too,
 * are missed by none.
 */
static void
lists_searched_beside_links(void)
{
	EngineQuery *queries = allocate(FLIGHT * sizeof(EngineQuery));
	ListSpec	spec = lists_of(1, LISTS, DIMS);
	World	   *world = world_create_lists(&spec, ELEMENT_FLOAT, METRIC_L2, DIMS, 20000, 20000,
										   SHAPE_CLUSTERED);

	for (uint32_t round = 0; round < 7; round++)
	{
		EngineJob	job = {.kind = JOB_LINK, .mirror = world->mirror};
		EngineJob	train = {.kind = JOB_TRAIN, .mirror = world->mirror, .count = 500};
		JobProgress progress;
		uint32_t	done = 0;
		JobId		id;
		JobId		trained = 0;

		world_append(world, 2000);
		for (uint32_t i = 0; i < FLIGHT; i++)
			list_query_init(&queries[i], world, 10, LISTS, ENGINE_RERANK_ALL,
							world_vector(world, random_below(world->rows)));
		if (round == 0)
			trained = start_job(&train);
		id = start_job(&job);
		for (uint32_t first = 0; first < FLIGHT; first += FLIGHT / 10)
			queries_submit(queries + first, FLIGHT / 10);
		while (done < FLIGHT)
		{
			EngineQuery *completed[16];

			done += queries_poll(completed, 16);
		}
		if (round == 0)
			must(end_job(trained, &progress), &progress.error, "train");
		must(end_job(id, &progress), &progress.error, "link");
		ops->job_release(engine, id);
		for (uint32_t i = 0; i < FLIGHT; i++)
		{
			SearchResult expected[10];
			uint32_t	count = model_exact(world, &queries[i], world->rows, expected);

			check_equal("beside a link", &queries[i], expected, count);
		}
	}
}

/*
 * Nor by queries that begin before there are centroids and reach the pending
 * rows when a link has taken these into lists.
 */
static void
lists_searched_beside_first_links(void)
{
	EngineQuery *queries = allocate(FLIGHT * sizeof(EngineQuery));
	ListSpec	spec = lists_of(1, 4, DIMS);

	for (uint32_t round = 0; round < FIRST_LINKS; round++)
	{
		World	   *world = world_create_lists(&spec, ELEMENT_FLOAT, METRIC_L2, DIMS, 600, 600,
											   SHAPE_CLUSTERED);
		EngineJob	link = {.kind = JOB_LINK, .mirror = world->mirror};
		EngineJob	train = {.kind = JOB_TRAIN, .mirror = world->mirror, .count = 50, .rounds = 1};
		JobProgress progress;
		JobId		trained;
		JobId		linked;

		world_append(world, 600);
		for (uint32_t i = 0; i < FLIGHT; i++)
			list_query_init(&queries[i], world, 1, 4, ENGINE_RERANK_ALL,
							world_vector(world, random_below(world->rows)));
		trained = start_job(&train);
		linked = start_job(&link);
		queries_run(queries, FLIGHT);
		must(end_job(trained, &progress), &progress.error, "train");
		must(end_job(linked, &progress), &progress.error, "link");
		ops->job_release(engine, linked);
		for (uint32_t i = 0; i < FLIGHT; i++)
		{
			SearchResult expected;
			uint32_t	count = model_exact(world, &queries[i], world->rows, &expected);

			check_equal("beside a first link", &queries[i], &expected, count);
		}
		world_drop(world);
	}
}

/* The same rows and seed give the same floats, whatever the threads. */
static void
training_is_reproducible(void)
{
	static const int threads[] = {1, 4};
	ListSpec	spec = lists_of(5, LISTS, DIMS);
	LinkResult	trained[2];
	float	   *floats[2];

	for (int i = 0; i < 2; i++)
	{
		EngineConfig config = {.device = options.device, .simd = options.simd,
			.threads = threads[i]};
		World	   *world;

		reopen(&config);
		world = world_create_lists(&spec, ELEMENT_FLOAT, METRIC_L2, DIMS, 3000, 3000,
								   SHAPE_CLUSTERED);
		world_append(world, 3000);
		world_train(world, &trained[i]);
		CHECK(trained[i].nfloats == LISTS * DIMS + 256 * DIMS, "%u floats", trained[i].nfloats);
		CHECK(trained[i].sampled == 3000 && trained[i].inertia > 0, "a sample of %u rows",
			  trained[i].sampled);
		floats[i] = allocate(trained[i].nfloats * sizeof(float));
		memcpy(floats[i], trained[i].floats, trained[i].nfloats * sizeof(float));
	}
	CHECK(trained[0].nfloats == trained[1].nfloats &&
		  memcmp(floats[0], floats[1], trained[0].nfloats * sizeof(float)) == 0,
		  "four threads train otherwise than one");
}

/* Run a job that must end with a status. */
static void
must_end(EngineJob job, const World *world, EngineStatus expected, const char *what)
{
	JobProgress progress = {0};
	EngineError error = {0};
	EngineStatus status;
	JobId		id;

	job.mirror = world->mirror;
	status = ops->job_submit(engine, &job, &id, &error);
	if (status == ENGINE_OK)
	{
		status = end_job(id, &progress);
		error = progress.error;
		ops->job_release(engine, id);
	}
	CHECK(status == expected, "%s: status %d, not %d: %s", what, (int) status, (int) expected,
		  error.text);
	CHECK(status == ENGINE_OK || error.text[0] != 0, "%s: no reason", what);
}

/* What cannot be done is refused, with a reason, and changes nothing. */
static void
lists_refuse_what_is_wrong(void)
{
	ListSpec	spec = lists_of(0, LISTS, DIMS);
	World	   *world = world_create_lists(&spec, ELEMENT_FLOAT, METRIC_L2, DIMS, 200, 200,
										   SHAPE_CLUSTERED);
	World	   *graph = world_create(ELEMENT_FLOAT, METRIC_L2, DIMS, 10, 10, SHAPE_CLUSTERED);
	uint32_t	slot = 3;
	uint32_t	list = LISTS;
	float		one = 1;
	EngineQuery query;

	must_end((EngineJob) {.kind = JOB_TRAIN}, world, ENGINE_INVALID, "training without rows");
	must_end((EngineJob) {.kind = JOB_TRAIN, .ef_construction = 10}, graph, ENGINE_INVALID,
			 "training a graph");
	must_end((EngineJob) {.kind = JOB_REPAIR, .ef_construction = 10}, world, ENGINE_INVALID,
			 "repair of lists");
	must_end((EngineJob) {.kind = JOB_SEEDS, .count = 1, .slots = &slot}, world, ENGINE_INVALID,
			 "seeds of lists");
	world_append(world, 200);
	must_end((EngineJob) {.kind = JOB_LINK}, world, ENGINE_INVALID, "a link without centroids");
	must_end((EngineJob) {.kind = JOB_CODEBOOK, .first_slot = 1, .count = 1, .vectors = &one},
			 world, ENGINE_INVALID, "floats out of order");
	must_end((EngineJob) {.kind = JOB_TRAIN, .memory = 1000}, world, ENGINE_NO_MEMORY,
			 "training in 1000 bytes");
	must_end((EngineJob) {.kind = JOB_TRAIN, .memory = 40000}, world, ENGINE_OK,
			 "training in 40000 bytes");
	must_end((EngineJob) {.kind = JOB_TRAIN}, world, ENGINE_INVALID, "a second training");
	must_end((EngineJob) {.kind = JOB_CODEBOOK, .count = 1, .vectors = &one}, world, ENGINE_INVALID,
			 "a second codebook");
	must_end((EngineJob) {.kind = JOB_GRAPH, .count = 1, .slots = &slot, .rows = &list}, world,
			 ENGINE_INVALID, "a list that there is not");
	query_init(&query, world, METHOD_GRAPH, 1, 10, world_vector(world, 0));
	queries_run(&query, 1);
	CHECK(query.status == ENGINE_UNSUPPORTED, "a graph search of lists: status %d", query.status);
	list_query_init(&query, graph, 1, 1, 0, world_vector(world, 0));
	queries_run(&query, 1);
	CHECK(query.status == ENGINE_UNSUPPORTED, "lists of a graph: status %d", query.status);
	list_query_init(&query, world, 1, 0, 0, world_vector(world, 0));
	queries_run(&query, 1);
	CHECK(query.status == ENGINE_INVALID, "no probes: status %d", query.status);
	world_link_lists(world);
	check_lists_exact(world, LISTS, "after all that");
}

/*
 * A mirror is not made of a quantizer that there is not; one whose lists have
 * centroids and no rows yet answers from the pending ones.
 */
static void
lists_take_quantizers_that_there_are(void)
{
	static const ListSpec none[] = {
		{.lists = 4, .quantizer = QUANTIZER_PQ, .bits = 6, .parts = 4},
		{.lists = 4, .quantizer = QUANTIZER_PQ, .bits = 4, .parts = 1u << 30},
		{.lists = 4, .quantizer = QUANTIZER_PQ, .bits = 8, .parts = 0},
		{.lists = 4, .quantizer = QUANTIZER_PQ, .bits = 8, .parts = DIMS + 1},
		{.lists = 4, .quantizer = QUANTIZER_RABITQ, .bits = 9},
		{.lists = 4, .quantizer = QUANTIZER_RABITQ, .bits = 0},
		{.lists = 4, .quantizer = (QuantizerKind) 4, .bits = 8}};
	ListSpec	spec = lists_of(0, LISTS, DIMS);
	World	   *world = world_create_lists(&spec, ELEMENT_FLOAT, METRIC_L2, DIMS, 300, 300,
										   SHAPE_CLUSTERED);

	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
	{
		MirrorSpec	wrong = {.dims = DIMS, .type = ELEMENT_FLOAT, .metric = METRIC_L2,
			.method = METHOD_IVFPQ, .degree = 1, .capacity = 100, .residency = RESIDENCY_FULL,
			.placement = PLACEMENT_SINGLE, .device = -1, .lists = none[i]};
		MirrorId	id;
		EngineError error;

		CHECK(ops->mirror_create(engine, &wrong, &id, &error) == ENGINE_INVALID,
			  "quantizer %zu: %s", i, error.text);
	}
	world_append(world, 300);
	world_train(world, NULL);
	check_lists_exact(world, LISTS, "centroids and pending rows");
}

/*
 * Memory is counted, given back, limited; a link that does not fit says so. A
 * device's memory comes in large units, and lists have theirs with their rows:
 * there nothing is left for what a link needs on its way.
 */
static void
lists_keep_to_memory(void)
{
	ListSpec	spec = lists_of(3, LISTS, 64);
	EngineConfig config = {.device = options.device, .simd = options.simd};
	float	   *floats = NULL;
	EngineMemory before;
	EngineMemory after;
	LinkResult	trained;
	World	   *world;

	for (uint64_t room = 0; room < 2; room++)
	{
		ops->memory(engine, &before);
		world = world_create_lists(&spec, ELEMENT_FLOAT, METRIC_L2, 64, 5000, 64, SHAPE_CLUSTERED);
		world_append(world, 5000);
		if (room == 0)
		{
			world_train(world, &trained);
			floats = allocate(trained.nfloats * sizeof(float));
			memcpy(floats, trained.floats, trained.nfloats * sizeof(float));
		}
		else
			world_load_floats(world, floats, trained.nfloats);
		ops->memory(engine, &after);
		if (room == 0)
			world_link_lists(world);
		else
			must_end((EngineJob) {.kind = JOB_LINK}, world, ENGINE_NO_MEMORY, "a large link");
		check_lists_exact(world, LISTS, "under a limit");
		CHECK(room > 0 || world_info(world).bytes > 5000 * (64 * 4 + 84), "%llu bytes in all",
			  (unsigned long long) world_info(world).bytes);
		config.memory_limit = after.used + (after.host_used > 0 ? 0 : 200000);
		world_drop(world);
		ops->memory(engine, &after);
		CHECK(room == 0 || after.used == before.used, "%llu bytes are still in use, not %llu",
			  (unsigned long long) after.used, (unsigned long long) before.used);
		if (room == 0)
			reopen(&config);
	}
}

/* Memory of the host that an engine says it uses. */
static uint64_t
host_memory(void)
{
	EngineMemory memory;

	ops->memory(engine, &memory);
	return memory.host_used > 0 ? memory.host_used : memory.used;
}

/*
 * What a job's result holds is counted until it is released: floats of a
 * training, numbers and codes of a link, edges of a graph.
 */
static void
results_are_counted(void)
{
	ListSpec	spec = lists_of(0, LISTS, DIMS);
	World	   *world = world_create_lists(&spec, ELEMENT_FLOAT, METRIC_L2, DIMS, 1500, 1500,
										   SHAPE_CLUSTERED);
	World	   *graph = world_create(ELEMENT_FLOAT, METRIC_L2, 8, 200, 200, SHAPE_CLUSTERED);
	EngineJob	jobs[] = {{.kind = JOB_TRAIN, .mirror = world->mirror},
						  {.kind = JOB_LINK, .mirror = world->mirror},
						  {.kind = JOB_LINK, .mirror = graph->mirror, .ef_construction = 16}};

	world_append(world, 1500);
	world_append(graph, 200);
	for (uint32_t i = 0; i < 3; i++)
	{
		uint64_t	before = host_memory();
		uint64_t	bytes;
		JobProgress progress;
		LinkResult	result;
		JobId		id = start_job(&jobs[i]);

		must(end_job(id, &progress), &progress.error, "a job with a result");
		CHECK(ops->job_link_result(engine, id, &result) == ENGINE_OK, "no result");
		bytes = result.nfloats * sizeof(float) +
			(uint64_t) result.count * (sizeof(uint32_t) * (i == 2 ? 32 : 1) + result.code_bytes);
		CHECK(bytes > 0 && host_memory() >= before + bytes,
			  "job %u: %llu bytes are in use, %llu before, its result has %llu", i,
			  (unsigned long long) host_memory(), (unsigned long long) before,
			  (unsigned long long) bytes);
		ops->job_release(engine, id);
		CHECK(host_memory() < before + bytes, "job %u: its result is counted still", i);
	}
}

/* A training that is cancelled ends soon, and the mirror can be trained. */
static void
training_can_be_cancelled(void)
{
	ListSpec	spec = lists_of(5, 500, 64);
	EngineJob	job = {.kind = JOB_TRAIN, .rounds = 1000};
	World	   *world = world_create_lists(&spec, ELEMENT_FLOAT, METRIC_L2, 64, 20000, 20000,
										   SHAPE_UNIFORM);
	JobProgress progress;
	double		start;
	JobId		id;

	world_append(world, 20000);
	job.mirror = world->mirror;
	id = start_job(&job);
	for (start = clock_seconds(); clock_seconds() - start < 0.2;)
		;
	start = clock_seconds();
	(void) ops->job_cancel(engine, id);
	CHECK(end_job(id, &progress) == ENGINE_CANCELLED, "status %d", (int) progress.status);
	CHECK(clock_seconds() - start < 2, "it took %.1f s to end", clock_seconds() - start);
	ops->job_release(engine, id);
	must_end((EngineJob) {.kind = JOB_TRAIN, .rounds = 1, .count = 1000}, world, ENGINE_OK,
			 "training after that");
}

const Case list_job_cases[] = {
	{"lists_codes_are_the_quantizers", lists_codes_are_the_quantizers, false},
	{"lists_rows_read_beside_links", lists_rows_read_beside_links, false},
	{"lists_loaded_answer_alike", loaded_lists_answer_alike, false},
	{"lists_follow_changes", lists_follow_changes, false},
	{"lists_searched_beside_links", lists_searched_beside_links, false},
	{"lists_searched_beside_first_links", lists_searched_beside_first_links, false},
	{"lists_training_is_reproducible", training_is_reproducible, false},
	{"lists_refuse_what_is_wrong", lists_refuse_what_is_wrong, false},
	{"lists_take_quantizers_that_there_are", lists_take_quantizers_that_there_are, false},
	{"lists_keep_to_memory", lists_keep_to_memory, false},
	{"lists_results_are_counted", results_are_counted, false},
	{"lists_training_can_be_cancelled", training_can_be_cancelled, false},
	{NULL, NULL, false}};
