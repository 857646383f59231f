/*
 * conformance_outliers.c
 *		Rows of which a few elements are much larger than the others, or that
 *		are of very different lengths: an engine that searches by something
 *		coarser than the rows must not lose the small elements, or the short
 *		rows, for them.
 *
 * Factors are powers of two, so that they are exact in halves too.
 */
#include <math.h>
#include <string.h>

#include "conformance.h"

#define FIRST_QUERY		5000000 /* variants of queries, apart from those of rows */
#define QUERIES			50

/* What is done to a world's vectors. */
typedef struct Outliers
{
	uint32_t	large;			/* elements, spread over the vector */
	int			factor;			/* theirs, as a power of two */
	int			lengths;		/* rows are longer or shorter by up to this power of two */
	float		shift;			/* added to the large elements: alike in all rows */
} Outliers;

/* Multiply element i of a vector by a power of two, and add to it. */
static void
change_element(const World *world, char *vector, uint32_t i, int power, float shift)
{
	if (world->type == ELEMENT_FLOAT)
	{
		float		value;

		memcpy(&value, vector + i * sizeof(value), sizeof(value));
		value = ldexpf(value, power) + shift;
		memcpy(vector + i * sizeof(value), &value, sizeof(value));
	}
	else
	{
		uint16_t	half;

		memcpy(&half, vector + i * sizeof(half), sizeof(half));
		/* zeros and denormal numbers become zero */
		half = (half >> 10 & 31) == 0 ? 0 : (uint16_t) (half + power * 1024);
		memcpy(vector + i * sizeof(half), &half, sizeof(half));
	}
}

/* Let a vector be as the others are. */
static void
change_vector(const World *world, const Outliers *outliers, uint64_t variant, char *vector)
{
	int			length = 0;

	if (outliers->lengths > 0)
		length = (int) (variant * 2654435761u / 65536 % (2 * (uint32_t) outliers->lengths + 1)) -
			outliers->lengths;
	for (uint32_t i = 0; i < world->dims; i++)
		change_element(world, vector, i, length, 0);
	for (uint32_t j = 0; j < outliers->large; j++)
		change_element(world, vector, (2 * j + 1) * world->dims / (2 * outliers->large),
					   outliers->factor, outliers->shift);
}

static World *
make_world(ElementType type, Metric metric, uint32_t dims, uint32_t rows, const Outliers *outliers)
{
	World	   *world = world_create(type, metric, dims, rows, rows, SHAPE_CLUSTERED);

	for (uint32_t slot = 0; slot < rows; slot++)
		change_vector(world, outliers, slot, world->vectors + slot * world->vector_bytes);
	return world;
}

/* Queries as the rows are. */
static EngineQuery *
make_queries(const World *world, const Outliers *outliers, uint32_t count, uint32_t k, uint32_t ef)
{
	EngineQuery *queries = allocate(count * sizeof(EngineQuery));

	for (uint32_t i = 0; i < count; i++)
	{
		char	   *vector = allocate(world->vector_bytes);

		make_vector(world, FIRST_QUERY + i, vector);
		change_vector(world, outliers, FIRST_QUERY + i, vector);
		query_init(&queries[i], world, METHOD_GRAPH, k, ef, vector);
	}
	return queries;
}

static void
need_recall(const World *world, const Outliers *outliers, uint32_t ef, double least)
{
	EngineQuery *queries = make_queries(world, outliers, QUERIES, 10, ef);
	double		recall = sound_recall(world, queries, QUERIES);

	CHECK(recall >= least,
		  "metric %d, %u dimensions, %u large by 2^%d, lengths 2^%d: recall %.3f at ef %u is below %.3f",
		  (int) world->metric, world->dims, outliers->large, outliers->factor, outliers->lengths,
		  recall, ef, least);
}

static uint32_t
some_rows(void)
{
	return options.quick ? 600 : 3000;
}

/* Linked at once, of a type and a metric: few and many large elements. */
static void
large_elements(ElementType type, Metric metric)
{
	static const Outliers outliers[] = {{1, 6, 0, 0}, {4, 5, 0, 0}, {8, 7, 0, 0}};
	static const uint32_t dims[] = {128, 100, 48};

	for (int i = 0; i < (options.quick ? 2 : 3); i++)
	{
		World	   *world = make_world(type, metric, dims[i], some_rows(), &outliers[i]);

		world_append(world, world->room);
		world_link(world);
		need_recall(world, &outliers[i], 64, 0.93);
		need_recall(world, &outliers[i], 200, 0.97);
		world_drop(world);
	}
}

static void
outliers_l2(void)
{
	large_elements(ELEMENT_FLOAT, METRIC_L2);
}

static void
outliers_ip(void)
{
	large_elements(ELEMENT_FLOAT, METRIC_IP);
}

static void
outliers_cosine(void)
{
	large_elements(ELEMENT_FLOAT, METRIC_COSINE);
}

static void
outliers_halves(void)
{
	large_elements(ELEMENT_HALF, METRIC_L2);
	large_elements(ELEMENT_HALF, METRIC_IP);
}

static void
outliers_l1(void)
{
	large_elements(ELEMENT_FLOAT, METRIC_L1);
}

/* Large elements that hardly differ, as embeddings have them. */
static void
outliers_shared(void)
{
	static const Outliers outliers = {3, 4, 0, 60};
	static const Metric metrics[] = {METRIC_L2, METRIC_IP, METRIC_COSINE};

	for (int i = 0; i < 3; i++)
	{
		World	   *world = make_world(ELEMENT_FLOAT, metrics[i], 96, some_rows(), &outliers);

		world_append(world, world->room);
		world_link(world);
		need_recall(world, &outliers, 64, 0.9);
		need_recall(world, &outliers, 300, 0.97);
		world_drop(world);
	}
}

/* Lengths from 2^-10 to 2^10. */
static void
outliers_lengths(void)
{
	static const Outliers outliers[] = {{0, 0, 10, 0}, {2, 5, 10, 0}};
	static const Metric metrics[] = {METRIC_L2, METRIC_IP, METRIC_COSINE};

	for (int i = 0; i < 6; i++)
	{
		World *world =
			make_world(ELEMENT_FLOAT, metrics[i / 2], 64, some_rows(), &outliers[i % 2]);

		world_append(world, world->room);
		world_link(world);
		need_recall(world, &outliers[i % 2], 100, 0.9);
		need_recall(world, &outliers[i % 2], 400, 0.95);
		world_drop(world);
	}
}

/* Rows without large elements come first, then pieces of rows with them. */
static void
outliers_appear(void)
{
	static const Outliers none = {0, 0, 0, 0};
	static const Outliers outliers = {2, 6, 0, 0};
	uint32_t	rows = some_rows();
	World	   *world = make_world(ELEMENT_FLOAT, METRIC_L2, 48, rows, &none);

	world_append(world, rows / 3);
	world_link(world);
	need_recall(world, &none, 64, 0.93);
	for (uint32_t slot = rows / 3; slot < rows; slot++)
		change_vector(world, &outliers, slot, world->vectors + slot * world->vector_bytes);
	for (int piece = 0; piece < 4; piece++)
	{
		world_append(world, (rows - world->rows) / (4 - (uint32_t) piece));
		/* pending rows are exact meanwhile */
		need_recall(world, &outliers, 200, 0.9);
		world_link(world);
	}
	need_recall(world, &none, 200, 0.93);
	need_recall(world, &outliers, 200, 0.95);
}

/* Rows are overwritten, die and are repaired. */
static void
outliers_change(void)
{
	static const Outliers outliers = {4, 5, 3, 0};
	uint32_t	rows = some_rows() / 2;
	World	   *world = make_world(ELEMENT_FLOAT, METRIC_L2, 64, rows, &outliers);
	uint32_t   *slots = allocate(rows * sizeof(uint32_t));
	uint32_t   *versions = allocate(rows * sizeof(uint32_t));
	char	   *vectors = allocate(rows * world->vector_bytes);
	EngineJob	job = {.kind = JOB_OVERWRITE, .mirror = world->mirror, .slots = slots,
		.versions = versions, .vectors = vectors};
	JobProgress progress;

	world_append(world, rows);
	world_link(world);
	for (uint32_t slot = 0; slot < rows; slot += 7, job.count++)
	{
		char	   *vector = world->vectors + slot * world->vector_bytes;

		world_set_vector(world, slot, 100000 + slot);
		change_vector(world, &outliers, slot, vector);
		memcpy(vectors + job.count * world->vector_bytes, vector, world->vector_bytes);
		slots[job.count] = slot;
		versions[job.count] = ++world->versions[slot];
	}
	must(run_job(&job, &progress), &progress.error, "overwrite");
	need_recall(world, &outliers, 100, 0.93);
	world_link(world);
	need_recall(world, &outliers, 200, 0.93);
	for (uint32_t slot = 1; slot < rows; slot += 5)
		world_kill(world, slot);
	world_repair(world, NULL, 0);
	check_repaired(world);
	need_recall(world, &outliers, 200, 0.93);
}

/* Filters, bounds, lists longer than most, and few iterations. */
static void
outliers_filtered(void)
{
	static const Outliers outliers = {3, 6, 2, 0};
	uint32_t	rows = some_rows();
	World	   *world = make_world(ELEMENT_FLOAT, METRIC_L2, 72, rows, &outliers);
	uint64_t   *filter = allocate(rows / 8 + 8);
	EngineQuery *queries = make_queries(world, &outliers, 4 * QUERIES, 10, 200);
	double		recall;

	world_append(world, rows);
	world_link(world);
	for (uint32_t slot = 0; slot < rows; slot += 3)
		filter[slot / 64] |= UINT64_C(1) << (slot % 64);
	for (uint32_t i = 0; i < 4 * QUERIES; i++)
	{
		if (i % 4 == 0)
		{
			queries[i].filter = filter;
			queries[i].filter_slots = rows;
		}
		if (i % 4 == 1)
		{
			queries[i].has_beyond = true;
			queries[i].beyond_distance = 0.01;
			queries[i].beyond_slot = 0;
		}
		if (i % 4 == 2)
			queries[i].ef = 2000;
	}
	recall = sound_recall(world, queries, 4 * QUERIES);
	CHECK(recall >= 0.93, "recall %.3f under filters and bounds", recall);
	queries = make_queries(world, &outliers, QUERIES, 10, 200);
	for (uint32_t i = 0; i < QUERIES; i++)
		queries[i].max_iterations = 1 + i;
	(void) sound_recall(world, queries, QUERIES);
}

/* Answers do not depend on the batch that a query comes in. */
static void
outliers_batches(void)
{
	static const Outliers outliers = {2, 6, 4, 0};
	static const uint32_t sizes[] = {2, 17, 64, 300, 1500};
	static const Metric metrics[] = {METRIC_L2, METRIC_IP};

	for (int i = 0; i < 2; i++)
	{
		World	   *world = make_world(ELEMENT_FLOAT, metrics[i], 80, some_rows(), &outliers);
		EngineQuery *single = make_queries(world, &outliers, 100, 10, 50);

		world_append(world, world->room);
		world_link(world);
		for (uint32_t j = 0; j < 100; j++)
			query_run(&single[j]);
		for (int s = 0; s < (options.quick ? 3 : 5); s++)
		{
			EngineQuery *queries = allocate(sizes[s] * sizeof(EngineQuery));

			for (uint32_t j = 0; j < sizes[s]; j++)
				query_init(&queries[j], world, METHOD_GRAPH, 10, 50, single[j % 100].vector);
			queries_run(queries, sizes[s]);
			for (uint32_t j = 0; j < sizes[s]; j++)
				check_equal("batch", &queries[j], single[j % 100].results, single[j % 100].count);
		}
		world_drop(world);
	}
}

const Case outlier_cases[] = {
	{"outliers_l2", outliers_l2, false},
	{"outliers_ip", outliers_ip, false},
	{"outliers_cosine", outliers_cosine, false},
	{"outliers_halves", outliers_halves, false},
	{"outliers_l1", outliers_l1, false},
	{"outliers_shared", outliers_shared, false},
	{"outliers_lengths", outliers_lengths, false},
	{"outliers_appear", outliers_appear, false},
	{"outliers_change", outliers_change, false},
	{"outliers_filtered", outliers_filtered, false},
	{"outliers_batches", outliers_batches, false},
	{NULL, NULL, false}
};
