/*
 * conformance_starts.c
 *		Cases of where a graph search starts: a table of many clusters without
 *		an edge between, each with one seed, and more seeds than a search tries.
 *
 * A cluster is found if the search starts in it. An engine tries
 * ENGINE_SEEDS_TRIED seeds, and may find more of them to be worth a look;
 * reference mode tries no others. So searches are to find no less than
 * reference mode does, and those of an engine that looks at all of them (any
 * but the CPU's, which believes the order that it is given) nearly all.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"
#include "engine/connectivity.h"
#include "engine/seeds.h"

#define MEMBERS			6		/* rows of a cluster */
#define QUERIES			60
#define CENTRE			1000000 /* variants of clusters' vectors, apart from those of rows */
#define MIN_FOUND		0.9
#define TRIED_ROWS		30000
#define TRIED_CLUSTERS	128u
/* dims that are copied at once */
#define ELEMENT_BITS(world) ((world)->type == ELEMENT_BIT ? 8 : 1)

/* A vector of a cluster: its centre's, but for a few elements. */
static void
member_vector(const World *world, uint32_t cluster, uint32_t member, char *out)
{
	size_t		parts = world->dims / ELEMENT_BITS(world);
	size_t		bytes = world->vector_bytes / parts;
	char	   *other = malloc(world->vector_bytes);

	make_vector(world, CENTRE + cluster, out);
	make_vector(world, CENTRE * 2 + cluster * 64 + member, other);
	for (uint32_t i = 0; i < 3; i++)
	{
		size_t		at = (member * 7 + i * 5 + cluster) % parts * bytes;

		memcpy(out + at, other + at, bytes);
	}
	free(other);
}

/* The clusters of `count` rows from first on. */
static void
set_members(World *world, uint32_t first, uint32_t count, uint32_t cluster)
{
	for (uint32_t slot = first; slot < first + count; slot++)
		member_vector(world, cluster + (slot - first) / MEMBERS, (slot - first) % MEMBERS,
					  world->vectors + slot * world->vector_bytes);
}

/*
 * Give rows the others of their cluster as neighbours, and the mirror a seed of
 * each cluster, in an order of its own.
 */
static void
set_clusters(World *world, uint32_t nseeds)
{
	uint32_t   *rows = allocate((size_t) world->rows * world->degree * sizeof(uint32_t));
	uint32_t   *seeds = allocate(world->rows / MEMBERS * sizeof(uint32_t));
	uint32_t	clusters = world->rows / MEMBERS;

	memset(rows, 0xFF, (size_t) world->rows * world->degree * sizeof(uint32_t));
	for (uint32_t slot = 0; slot < world->rows; slot++)
		for (uint32_t i = 0; i < MEMBERS - 1; i++)
			rows[(size_t) slot * world->degree + i] =
				slot / MEMBERS * MEMBERS + (slot + 1 + i) % MEMBERS;
	for (uint32_t i = 0; i < clusters; i++)
	{
		uint32_t	j = random_below(i + 1);

		seeds[i] = seeds[j];
		seeds[j] = i * MEMBERS + random_below(MEMBERS);
	}
	world_set_graph(world, rows, seeds, nseeds < clusters ? nseeds : clusters);
}

/* Queries near to clusters. */
static EngineQuery *
make_queries(const World *world, uint32_t k, uint32_t ef)
{
	EngineQuery *queries = allocate(QUERIES * sizeof(EngineQuery));

	for (uint32_t i = 0; i < QUERIES; i++)
	{
		char	   *vector = allocate(world->vector_bytes);
		uint32_t	slot = i * world->rows / QUERIES;
		size_t at = i % (world->dims / ELEMENT_BITS(world)) *
					(world->vector_bytes / (world->dims / ELEMENT_BITS(world)));

		/* a row, but for one element */
		memcpy(vector, world_vector(world, slot), world->vector_bytes);
		memcpy(vector + at, (const char *) world_vector(world, (slot + MEMBERS) % world->rows) + at,
			   world->vector_bytes / (world->dims / ELEMENT_BITS(world)));
		query_init(&queries[i], world, METHOD_GRAPH, k, ef, vector);
	}
	return queries;
}

/*
 * Searches find no less than reference mode, and nearly all where the engine
 * looks at more seeds than that.
 */
static void
check_found(const char *what, const World *world, EngineQuery *queries)
{
	bool		reference = has_reference(world);
	double		plain = 0;
	double		found;

	for (uint32_t i = 0; i < QUERIES; i++)
		queries[i].reference = reference;
	if (reference)
		plain = sound_recall(world, queries, QUERIES);
	for (uint32_t i = 0; i < QUERIES; i++)
		queries[i].reference = false;
	found = sound_recall(world, queries, QUERIES);
	CHECK(found >= plain - 0.01, "%s: %.3f found, %.3f in reference mode", what, found, plain);
	CHECK(plain < MIN_FOUND, "%s: reference mode finds %.3f, so nothing is seen here", what,
		  plain);
	/* entry points are measured by codes */
	if (strcmp(options.engine, "cpu") != 0 && !options.search_by_rows)
		CHECK(found >= MIN_FOUND, "%s: %.3f found, %.3f in reference mode", what, found, plain);
}

/* A world of clusters, with one seed each. */
static World *
make_clusters(ElementType type, Metric metric, uint32_t room, uint32_t rows)
{
	World *world = world_create(type, metric, type == ELEMENT_BIT ? 256 : 32, room * MEMBERS,
								room * MEMBERS, SHAPE_UNIFORM);

	set_members(world, 0, room * MEMBERS, 0);
	world_append(world, rows * MEMBERS);
	set_clusters(world, UINT32_MAX);
	return world;
}

/* Every type and metric. */
static void
every_pair(void)
{
	for (int i = 0; i < PAIRS; i++)
	{
		World	   *world = make_clusters(pairs[i].type, pairs[i].metric, 600, 600);
		char		what[64];

		snprintf(what, sizeof(what), "type %d, metric %d", (int) pairs[i].type,
				 (int) pairs[i].metric);
		check_found(what, world, make_queries(world, 4, 32));
		world_drop(world);
	}
}

/*
 * Few tiny clusters far from a crowd that has nearly all rows and seeds: these
 * are found too. The crowd is of clusters whose vectors are like one another,
 * but for MEMBERS elements.
 */
static void
beside_a_crowd(void)
{
	World *world =
		world_create(ELEMENT_FLOAT, METRIC_L2, 32, 1500 * MEMBERS, 1500 * MEMBERS, SHAPE_UNIFORM);
	EngineQuery *queries;

	for (uint32_t cluster = 0; cluster < 1500; cluster++)
		set_members(world, cluster * MEMBERS, MEMBERS, cluster);
	for (uint32_t cluster = 0; cluster < 1500; cluster++)
		for (uint32_t member = 0; member < MEMBERS && cluster % 15 != 0; member++)
		{
			float *vector =
				(float *) (world->vectors + (cluster * MEMBERS + member) * world->vector_bytes);

			for (uint32_t i = 0; i < world->dims; i++)
				vector[i] = vector[i] / 4 + 1;
		}
	world_append(world, 1500 * MEMBERS);
	set_clusters(world, UINT32_MAX);
	queries = make_queries(world, 4, 32);
	for (uint32_t i = 0; i < QUERIES; i++)
	{
		uint32_t	slot = i * 15 % 1500 * MEMBERS + i % MEMBERS;

		query_init(&queries[i], world, METHOD_GRAPH, 4, 32, world_vector(world, slot));
	}
	check_found("beside a crowd", world, queries);
}

/*
 * More clusters than any engine has lists for in small memory: some thousands.
 */
static void
many_clusters(void)
{
	World	   *world = make_clusters(ELEMENT_FLOAT, METRIC_L2, 6000, 6000);

	check_found("many clusters", world, make_queries(world, 4, 32));
}

/*
 * Filters, bounds, long lists: what goes other ways in an engine starts as
 * well.
 */
static void
other_ways(void)
{
	World	   *world = make_clusters(ELEMENT_FLOAT, METRIC_L2, 700, 700);
	uint64_t   *filter = allocate((world->rows / 64 + 1) * sizeof(uint64_t));
	EngineQuery *queries = make_queries(world, 3, 32);

	for (uint32_t slot = 0; slot < world->rows; slot++)
		filter[slot / 64] |= (uint64_t) (slot % 5 != 0) << (slot % 64);
	for (uint32_t i = 0; i < QUERIES; i++)
	{
		queries[i].filter = filter;
		queries[i].filter_slots = world->rows;
	}
	check_found("filter", world, queries);
	queries = make_queries(world, 3, 32);
	for (uint32_t i = 0; i < QUERIES; i++)
	{
		queries[i].has_beyond = true;
		queries[i].beyond_distance = 0;
	}
	check_found("bound", world, queries);
	check_found("long list", world, make_queries(world, 4, 1500));
}

/* The same answer in any batch. */
static void
any_batch(void)
{
	static const uint32_t sizes_of[] = {2, 40, 300, 700};
	World	   *world = make_clusters(ELEMENT_FLOAT, METRIC_COSINE, 600, 600);
	EngineQuery *single = make_queries(world, 5, 40);

	for (uint32_t i = 0; i < QUERIES; i++)
		query_run(&single[i]);
	for (size_t i = 0; i < sizeof(sizes_of) / sizeof(sizes_of[0]); i++)
	{
		EngineQuery *queries = allocate(sizes_of[i] * sizeof(EngineQuery));

		for (uint32_t j = 0; j < sizes_of[i]; j++)
			query_init(&queries[j], world, METHOD_GRAPH, 5, 40, single[j % QUERIES].vector);
		queries_run(queries, sizes_of[i]);
		for (uint32_t j = 0; j < sizes_of[i]; j++)
			check_equal("batch", &queries[j], single[j % QUERIES].results,
						single[j % QUERIES].count);
	}
}

/* Growth, deaths, overwritten rows, other seeds, few seeds. */
static void
changes(void)
{
	World	   *world = make_clusters(ELEMENT_HALF, METRIC_L2, 900, 500);
	uint32_t	slots[100 * MEMBERS];
	EngineJob job = {
		.kind = JOB_OVERWRITE, .mirror = world->mirror, .count = 100 * MEMBERS, .slots = slots};
	EngineQuery *queries;
	double		found;

	check_found("before", world, make_queries(world, 4, 32));
	for (uint32_t cluster = 0; cluster < 4; cluster++)
		world_append(world, 100 * MEMBERS);
	check_found("rows pending", world, make_queries(world, 4, 32));
	set_clusters(world, UINT32_MAX);
	check_found("grown", world, make_queries(world, 4, 32));
	/* a third of the rows, among them seeds, die: they lead on all the same */
	for (uint32_t slot = 0; slot < world->rows; slot += 3)
		world_kill(world, slot);
	check_found("dead rows", world, make_queries(world, 3, 32));
	/* some rows come back in other clusters */
	for (uint32_t i = 0; i < job.count; i++)
	{
		slots[i] = 60 * MEMBERS + i;
		world->versions[slots[i]]++;
		world->live[slots[i]] = true;
	}
	set_members(world, slots[0], job.count, 2000);
	job.versions = world->versions + slots[0];
	job.vectors = world_vector(world, slots[0]);
	CHECK(run_job(&job, NULL) == ENGINE_OK, "overwriting failed");
	set_clusters(world, UINT32_MAX);
	check_found("overwritten", world, make_queries(world, 3, 32));
	/* values far beyond those of before, so that codes are others */
	for (uint32_t slot = 800 * MEMBERS; slot < world->rows; slot++)
	{
		uint16_t   *vector = (uint16_t *) (world->vectors + slot * world->vector_bytes);

		/* halves: twice as much */
		for (uint32_t i = 0; i < world->dims; i++)
			vector[i] += (vector[i] & 0x7C00) != 0 ? 1 << 10 : 0;
		world->versions[slot]++;
		world->live[slot] = true;
	}
	job.versions = world->versions + 800 * MEMBERS;
	job.vectors = world_vector(world, 800 * MEMBERS);
	for (uint32_t i = 0; i < job.count; i++)
		slots[i] = 800 * MEMBERS + i;
	CHECK(run_job(&job, NULL) == ENGINE_OK, "overwriting failed");
	set_clusters(world, UINT32_MAX);
	check_found("values of another size", world, make_queries(world, 3, 32));
	/* nothing is left of the seeds before */
	queries = make_queries(world, 4, 32);
	set_clusters(world, 1);
	found = sound_recall(world, queries, QUERIES);
	CHECK(found < 0.1, "%.3f found from one seed", found);
}

/*
 * Rows that came with a graph but no seeds, or few: a link finds where to start
 * all the same, and new rows are found afterwards.
 */
static void
few_seeds(void)
{
	for (uint32_t nseeds = 0; nseeds < 40; nseeds += 39)
	{
		World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 12, 3600, 3600, SHAPE_UNIFORM);
		uint32_t	found = 0;

		world_append(world, 2800);
		world_ring(world, nseeds);
		world_append(world, 800);
		world_link(world);
		for (uint32_t slot = 2800; slot < world->rows; slot += 20)
		{
			EngineQuery query;

			query_init(&query, world, METHOD_GRAPH, 1, 64, world_vector(world, slot));
			query_run(&query);
			found += query.count == 1 && query.results[0].slot == slot;
		}
		CHECK(found >= 36, "%u of 40 linked rows are found, of a graph that had %u seeds", found,
			  nseeds);
		world_drop(world);
	}
}

/*
 * Of the seeds that a link chooses those that searches try come first: of each
 * of some tiny clusters far from a crowd, if it has any seed, one is among
 * them. (A device chooses no such order: it has lists.)
 */
static void
tried_seeds(void)
{
	World	   *world;
	bool		has[TRIED_CLUSTERS] = {false};
	bool		tried[TRIED_CLUSTERS] = {false};
	uint32_t	several = 0;

	if (strcmp(options.engine, "cpu") != 0)
		return;
	world = world_create(ELEMENT_FLOAT, METRIC_L2, 8, TRIED_ROWS, TRIED_ROWS, SHAPE_UNIFORM);
	for (uint32_t slot = 0; slot < TRIED_ROWS; slot++)
	{
		float	   *vector = (float *) (world->vectors + slot * world->vector_bytes);

		/* one row in ten is of a cluster, in no order */
		for (uint32_t i = 0; i < world->dims; i++)
			vector[i] = vector[i] / 16 +
						(slot % 10 == 0 && (slot / 10 % TRIED_CLUSTERS >> i & 1) != 0 ? 8 : 0) +
						(slot % 10 == 0 ? 8 : 0);
	}
	world_append(world, TRIED_ROWS);
	world_link(world);
	for (uint32_t i = 0; i < world->nseeds; i++)
		if (world->seeds[i] % 10 == 0)
		{
			uint32_t	cluster = world->seeds[i] / 10 % TRIED_CLUSTERS;

			has[cluster] = true;
			tried[cluster] = tried[cluster] || i < ENGINE_SEEDS_TRIED;
		}
	for (uint32_t i = 0; i < TRIED_CLUSTERS; i++)
	{
		CHECK(tried[i] || !has[i], "cluster %u has seeds, none of which is tried", i);
		several += tried[i];
	}
	CHECK(world->nseeds > ENGINE_SEEDS_TRIED && several > TRIED_CLUSTERS / 4,
		  "%u seeds, of %u clusters", world->nseeds, several);
}

/* Seeds on a line, cluster by cluster. */
#define LINE_MEMBERS	8u
#define LINE_PLACE(seed) ((float) ((seed) / LINE_MEMBERS * 1000 + (seed) % LINE_MEMBERS))

typedef struct LineSeeds
{
	const uint32_t *seeds;
	uint32_t	pool;
} LineSeeds;

/* SeedMeasure */
static void
measure_line(void *context, uint32_t seed, float *out)
{
	const LineSeeds *line = context;

	for (uint32_t i = 0; i < line->pool; i++)
		out[i] = fabsf(LINE_PLACE(line->seeds[seed]) - LINE_PLACE(line->seeds[i]));
}

static int
compare_numbers(const void *left, const void *right)
{
	uint32_t	a = *(const uint32_t *) left;
	uint32_t	b = *(const uint32_t *) right;

	return a < b ? -1 : a > b;
}

/*
 * What searches find: of each cluster a seed that is tried, or listed with one
 * of the nearest that are. Returns how many clusters are missed.
 */
static uint32_t
line_missed(const uint32_t *seeds, uint32_t count)
{
	uint32_t	missed = 0;

	for (uint32_t cluster = 0; cluster < count / LINE_MEMBERS; cluster++)
	{
		bool		found = false;
		bool		looked[ENGINE_SEEDS_TRIED] = {false};

		for (uint32_t i = 0; i < ENGINE_SEEDS_TRIED; i++)
			found |= seeds[i] / LINE_MEMBERS == cluster;
		for (uint32_t lists = 0; lists < SEED_LISTS_TRIED; lists++)
		{
			uint32_t	nearest = ENGINE_SEEDS_TRIED;

			for (uint32_t i = 0; i < ENGINE_SEEDS_TRIED; i++)
				if (!looked[i] && (nearest == ENGINE_SEEDS_TRIED ||
								   fabsf(LINE_PLACE(seeds[i]) - cluster * 1000.0f) <
									   fabsf(LINE_PLACE(seeds[nearest]) - cluster * 1000.0f)))
					nearest = i;
			looked[nearest] = true;
			for (uint32_t j = 0; j < seed_list_length(count); j++)
				found |= seeds[seed_list_start(nearest, count) + j] / LINE_MEMBERS == cluster;
		}
		missed += !found;
	}
	return missed;
}

/*
 * Seeds put in order: none is lost, those that all rows are reached from and
 * those beyond what is ordered stay, and clusters are found though they are
 * more than are tried.
 */
static void
seeds_in_order(void)
{
	static const struct
	{
		uint32_t	count,
					pool,
					most_missed;
	} ways[] = {{257, 257, 0},	 {400, 400, 0},		{3200, 3200, 2},
				{4096, 4096, 8}, {4096, 1024, 256}, {4800, 4096, 600}};
	void	   *memory = allocate(seeds_order_bytes());

	for (size_t way = 0; way < sizeof(ways) / sizeof(ways[0]); way++)
	{
		uint32_t	count = ways[way].count;
		uint32_t   *before = allocate(count * sizeof(uint32_t));
		uint32_t   *seeds = allocate(count * sizeof(uint32_t));
		LineSeeds	line = {before, ways[way].pool};
		uint32_t   *tried = allocate(count * sizeof(uint32_t));
		SeedMeasure measure = {&line, measure_line, ways[way].pool, false};
		SeedMeasure of_tried = {&line, measure_line, ways[way].pool, true};
		uint32_t	ordered = count < SEEDS_ORDERED ? count : SEEDS_ORDERED;
		uint32_t	missed;

		for (uint32_t i = 0; i < count; i++)
		{
			uint32_t	j = random_below(i + 1);

			before[i] = before[j];
			before[j] = i;
		}
		memcpy(seeds, before, count * sizeof(uint32_t));
		seeds_order(seeds, count, &measure, memory);
		CHECK(memcmp(seeds, before, REACH_SEEDS * sizeof(uint32_t)) == 0,
			  "%u seeds: the first were moved", count);
		CHECK(memcmp(seeds + ordered, before + ordered, (count - ordered) * sizeof(uint32_t)) == 0,
			  "%u seeds: the last were moved", count);
		memcpy(tried, before, count * sizeof(uint32_t));
		seeds_order(tried, count, &of_tried, memory);
		CHECK(memcmp(tried, seeds, ENGINE_SEEDS_TRIED * sizeof(uint32_t)) == 0,
			  "%u seeds: others are tried when only these are put in order", count);
		missed = line_missed(seeds, count);
		CHECK(missed <= ways[way].most_missed,
			  "%u seeds, %u measured: %u clusters of %u are missed", count, ways[way].pool, missed,
			  count / LINE_MEMBERS);
		qsort(seeds, count, sizeof(uint32_t), compare_numbers);
		qsort(tried, count, sizeof(uint32_t), compare_numbers);
		for (uint32_t i = 0; i < count; i++)
			CHECK(seeds[i] == i && tried[i] == i, "%u seeds, %u measured: one is lost", count,
				  ways[way].pool);
	}
}

const Case start_cases[] = {
	{"starts_seeds_in_order", seeds_in_order, false},
	{"starts_find_far_clusters", every_pair, false},
	{"starts_beside_a_crowd", beside_a_crowd, false},
	{"starts_find_many_clusters", many_clusters, true},
	{"starts_in_other_ways", other_ways, false},
	{"starts_in_any_batch", any_batch, false},
	{"starts_after_changes", changes, false},
	{"starts_after_few_seeds", few_seeds, false},
	{"starts_tried_are_far_apart", tried_seeds, false},
	{NULL, NULL, false}
};
