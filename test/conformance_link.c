/*
 * conformance_link.c
 *		Cases of linking: hard data, what a link reports, that every row can be
 *		reached, that pruning serves.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"

#define QUERIES			40

/*
 * Mean recall at an ef, from so many seeds (0: as usual), of vectors near rows
 * spread over the table; every answer is checked.
 */
static double
mean_recall(const World *world, uint32_t ef, uint32_t seeds)
{
	EngineQuery *queries = allocate(QUERIES * sizeof(EngineQuery));

	for (uint32_t i = 0; i < QUERIES; i++)
	{
		query_init(&queries[i], world, METHOD_GRAPH, 10, ef,
				   world_vector(world, i * (world->rows / QUERIES)));
		queries[i].seeds = seeds;
	}
	return sound_recall(world, queries, QUERIES);
}

/*
 * Rows of few whole numbers: equal distances everywhere, equal rows among them.
 */
static void
integers(void)
{
	static const Pair kinds[] = {{ELEMENT_FLOAT, METRIC_L2},
								 {ELEMENT_HALF, METRIC_IP},
								 {ELEMENT_FLOAT, METRIC_COSINE},
								 {ELEMENT_BIT, METRIC_HAMMING}};

	for (int i = 0; i < (options.quick ? 2 : 4); i++)
	{
		World	   *world = world_create(kinds[i].type, kinds[i].metric, 8, 600, 600, SHAPE_SMALL);

		world_append(world, 600);
		world_link(world);
		check_linked(world);
		CHECK(mean_recall(world, 200, 0) >= 0.9, "recall %.3f among whole numbers",
			  mean_recall(world, 200, 0));
		world_drop(world);
	}
}

/* All rows but a few are one vector: the few are found, and the many are. */
static void
collapsed(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 16, 700, 700, SHAPE_UNIFORM);

	for (uint32_t slot = 0; slot < 700; slot++)
		if (slot % 50 != 7)
			world_set_vector(world, slot, 1);
	world_append(world, 700);
	world_link(world);
	check_linked(world);
	check_equals_found(world);
}

/*
 * Rows far from the origin, which inner products and cosines hardly tell from
 * each other: each is reached all the same.
 */
static void
far_off(void)
{
	static const Metric metrics[] = {METRIC_L2, METRIC_IP, METRIC_COSINE};
	uint32_t	rows = options.quick ? 500 : 4000;

	for (int metric = 0; metric < 3; metric++)
	{
		World *world =
			world_create(ELEMENT_FLOAT, metrics[metric], 72, rows, rows, SHAPE_CLUSTERED);

		for (uint32_t slot = 0; slot < rows; slot++)
			for (uint32_t i = 0; i < 72; i++)
			{
				float *element =
					(float *) (void *) (world->vectors + slot * world->vector_bytes) + i;

				*element = *element * 0.1f + (float) (slot * 31 + i * 17) * 1e-8f + 1000;
			}
		world_append(world, rows);
		world_link(world);
		check_linked(world);
		world_drop(world);
	}
}

/*
 * Groups of rows that differ by less than a byte per element tells, few among
 * many others: they find each other, and others find them.
 */
static void
near_equals(void)
{
	uint32_t	rows = options.quick ? 600 : 6000;
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 16, rows, rows, SHAPE_CLUSTERED);

	for (uint32_t slot = 0; slot < rows; slot++)
		if (slot % 300 > 0 && slot % 300 < 10)
		{
			float	   *vector = (float *) (void *) (world->vectors + slot * world->vector_bytes);

			memcpy(vector, world_vector(world, slot - slot % 300), world->vector_bytes);
			vector[0] += 1e-5f * (float) (slot % 300);
		}
	world_append(world, rows);
	world_link(world);
	check_linked(world);
	for (uint32_t slot = 0; slot < rows; slot += 100)
	{
		EngineQuery query;

		query_init(&query, world, METHOD_GRAPH, 10, 64, world_vector(world, slot));
		query_run(&query);
		check_sound(world, &query);
		CHECK(recall_of(world, &query) >= 0.9, "%.2f of the neighbours of slot %u are found",
			  recall_of(world, &query), slot);
	}
	world_drop(world);
}

/* A world of clusters far apart, one after the other. */
static World *
make_islands(uint32_t rows)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 12, rows, rows, SHAPE_UNIFORM);

	for (uint32_t slot = 0; slot < rows; slot++)
	{
		float	   *vector = (float *) (void *) (world->vectors + slot * world->vector_bytes);

		vector[slot / 100] += 1000;
	}
	return world;
}

/*
 * Clusters far apart, linked one after the other: each is reached from one
 * seed.
 */
static void
islands(void)
{
	World	   *world = make_islands(600);

	for (int i = 0; i < 2; i++)
	{
		world_append(world, 300);
		world_link(world);
		check_linked(world);
	}
	for (uint32_t slot = 50; slot < 600; slot += 100)
	{
		EngineQuery query;

		query_init(&query, world, METHOD_GRAPH, 10, 60, world_vector(world, slot));
		query_run(&query);
		check_sound(world, &query);
		CHECK(recall_of(world, &query) >= 0.9, "%.2f of the neighbours of slot %u are found",
			  recall_of(world, &query), slot);
	}
}

/*
 * Overwritten rows are linked where they are now, and dead ones are nobody's
 * new neighbour.
 */
static void
overwritten(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 16, 500, 500, SHAPE_UNIFORM);
	uint32_t   *before;
	uint32_t   *after;

	world_append(world, 500);
	world_link(world);
	before = world_graph(world);
	for (uint32_t slot = 0; slot < 500; slot += 5)
		world_kill(world, slot);
	for (uint32_t slot = 0; slot < 500; slot += 10)
	{
		EngineJob job = {
			.kind = JOB_OVERWRITE, .mirror = world->mirror, .count = 1, .slots = &slot};

		world->versions[slot]++;
		world->live[slot] = true;
		world_set_vector(world, slot, 900000 + slot);
		job.versions = &world->versions[slot];
		job.vectors = world_vector(world, slot);
		CHECK(run_job(&job, NULL) == ENGINE_OK, "slot %u cannot be overwritten", slot);
	}
	world_link(world);
	check_linked(world);
	after = world_graph(world);
	for (uint32_t slot = 0; slot < 500; slot += 10)
		for (uint32_t i = 0; i < world->degree; i++)
		{
			uint32_t	neighbour = after[(size_t) slot * world->degree + i];

			CHECK(neighbour == NO_SLOT || world->live[neighbour],
				  "slot %u was linked to dead slot %u", slot, neighbour);
		}
	CHECK(memcmp(before, after, (size_t) 500 * world->degree * sizeof(uint32_t)) != 0,
		  "overwritten rows were not linked");
	CHECK(mean_recall(world, 150, 0) >= 0.93, "recall %.3f after overwrites",
		  mean_recall(world, 150, 0));
}

/*
 * The graph that a link prunes finds more than that of each row's nearest
 * neighbours, at the same breadth, from one seed.
 */
static void
beats_nearest(void)
{
	uint32_t	rows = 600;
	World	   *world = make_islands(rows);
	double		pruned;
	double		nearest;
	uint32_t   *graph;

	world_append(world, rows);
	world_link(world);
	pruned = mean_recall(world, 20, 1);
	graph = allocate((size_t) rows * world->degree * sizeof(uint32_t));
	for (uint32_t slot = 0; slot < rows; slot++)
	{
		EngineQuery query;
		SearchResult *found = allocate((world->degree + 1) * sizeof(SearchResult));
		uint32_t	count = 0;
		uint32_t	n;

		query_init(&query, world, METHOD_EXACT, world->degree + 1, 0, world_vector(world, slot));
		n = model_exact(world, &query, rows, found);
		for (uint32_t i = 0; i < n && count < world->degree; i++)
			if (found[i].slot != slot)
				graph[(size_t) slot * world->degree + count++] = found[i].slot;
	}
	world_set_graph(world, graph, world->seeds, world->nseeds);
	nearest = mean_recall(world, 20, 1);
	CHECK(pruned > nearest, "recall %.3f with pruned rows, %.3f with nearest neighbours", pruned,
		  nearest);
}

/*
 * What the engine says it took for a mirror and gave back is what the driver
 * says, within a twentieth.
 */
static void
driver_agrees(void)
{
	EngineInfo	info;
	EngineMemory before;
	EngineMemory after;
	uint64_t	used;
	uint64_t	more;
	double		said;
	World	   *world;

	ops->info(engine, &info);
	if (strcmp(info.name, "cuda") != 0 || strstr(info.device, "emulated") != NULL)
		skip("not on a device");
	if (!driver_bytes_used(&used))
		skip("no driver that counts");
	ops->memory(engine, &before);
	world = world_create(ELEMENT_FLOAT, METRIC_L2, 128, 1000, 1000000, SHAPE_UNIFORM);
	world_append(world, 1000);
	ops->memory(engine, &after);
	CHECK(driver_bytes_used(&more), "the driver does not count any more");
	more -= used;
	said = (double) (after.used - before.used);
	CHECK(after.used == after.context + after.vectors + after.graph + after.norms + after.state,
		  "memory figures do not add up");
	CHECK(fabs((double) more - said) <= 0.05 * said,
		  "the engine says %.0f bytes more, the driver %.0f", said, (double) more);
	world_link(world);
	ops->memory(engine, &before);
	CHECK(before.used == after.used, "a link keeps %lld bytes",
		  (long long) (before.used - after.used));
	world_drop(world);
	CHECK(driver_bytes_used(&more), "the driver does not count any more");
	more -= used;
	CHECK((double) more <= 0.05 * said, "the driver counts %.0f bytes after a drop", (double) more);
}

/*
 * Rows along a closed line, whose neighbours but two only fill, and rows far
 * from all of them that come among others: each is found as soon as it is
 * linked, however few are linked at once. (Where fill passes for kept ones, a
 * row that they hide has no edge in but one.)
 */
static void
off_a_line(uint32_t turn)
{
	uint32_t	rows = 2500;
	uint32_t	arriving = 250;
	uint32_t	piece = 62;
	uint32_t	apart = 10;
	World *world =
		world_create(ELEMENT_FLOAT, METRIC_L2, 8, rows + arriving, rows + arriving, SHAPE_UNIFORM);
	uint32_t   *slots = allocate(arriving * sizeof(uint32_t));
	EngineQuery query;

	for (uint32_t slot = 0; slot < rows + arriving; slot++)
		for (uint32_t i = 0; i < 8; i++)
			((float *) world_vector(world, slot))[i] =
				slot < rows + arriving - apart
					? (float) sin((slot < rows ? slot + 1 : slot + 3 + turn) * 12.9898 +
								  (i + 1) * 78.233)
					: 0;
	world_append(world, rows);
	world_link(world);
	world_append(world, arriving);
	random_seed(turn);
	for (uint32_t i = 0; i < arriving; i++)
	{
		uint32_t	other = random_below(i + 1);

		slots[i] = slots[other];
		slots[other] = rows + i;
	}
	for (uint32_t done = 0; done < arriving; done += piece)
	{
		EngineJob link = {.kind = JOB_LINK,
						  .mirror = world->mirror,
						  .ef_construction = 64,
						  .slots = slots + done};
		JobProgress progress;

		link.count = arriving - done < piece ? arriving - done : piece;
		if (run_job(&link, &progress) != ENGINE_OK)
			must(progress.status, &progress.error, "link");
		query_init(&query, world, METHOD_GRAPH, apart, 40, world_vector(world, world->rows - 1));
		query_run(&query);
		CHECK(recall_of(world, &query) == 1,
			  "turn %u: after %u rows %.0f of %u rows off the line are found", turn,
			  done + link.count, apart * recall_of(world, &query), apart);
	}
	world_drop(world);
}

static void
rows_off_a_line(void)
{
	for (uint32_t turn = 0; turn < (options.quick ? 1u : 6u); turn++)
		off_a_line(turn);
}

const Case link_cases[] = {
	{"link_off_a_line", rows_off_a_line, false},
	{"link_integers", integers, false},
	{"link_collapsed", collapsed, false},
	{"link_far_off", far_off, false},
	{"link_near_equals", near_equals, false},
	{"link_islands", islands, false},
	{"link_overwritten", overwritten, false},
	{"link_beats_nearest", beats_nearest, false},
	{"memory_as_the_driver_counts", driver_agrees, false},
	{NULL, NULL, false}
};
