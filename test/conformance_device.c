/*
 * conformance_device.c
 *		Cases of the device itself: what an engine says where there is none that
 *		it can use, and that serving gets by with what is reserved.
 *
 * A device that lacks something is the emulated one, told so by the
 * environment; that case is not for others.
 */
#include <stdlib.h>
#include <string.h>

#include "conformance.h"

#define ROWS	2400
#define LINKED	1800			/* the others are pending */
#define KINDS	42				/* of queries */
#define K_MAX	1200			/* more than are selected as they are measured */

static bool
is_emulated(void)
{
	EngineInfo	info;

	ops->info(engine, &info);
	return strncmp(info.device, "emulated", 8) == 0;
}

/*
 * Whatever a device lacks, opening says so, and the next one that lacks nothing
 * is opened.
 */
static void
opening_says_what_is_missing(void)
{
	static const struct
	{
		const char *lack;
		const char *says;
	}			lacks[] = {
		{"driver", "there is no CUDA driver"},
		{"newer-driver", "no CUDA device can be used: "},
		{"device", "no CUDA device can be used: "},
		{"properties", "device 0 cannot be used: "},
		{"architecture", "device 0 has architecture 7.0: this engine needs 8.0 or newer"},
		{"code", "device 0 has architecture 9.0, which this engine was not built for"},
		{"virtual-memory", "the driver of device 0 lacks virtual memory management"}
	};

	if (!is_emulated())
		skip("only an emulated device lacks what it is told to");
	ops->close(engine);
	engine = NULL;
	for (size_t i = 0; i < sizeof(lacks) / sizeof(lacks[0]); i++)
	{
		EngineConfig config = {.device = options.device};
		EngineError error = {0};
		EngineStatus status;

		setenv("GPUANN_EMULATE_LACK", lacks[i].lack, 1);
		status = ops->open(&config, &engine, &error);
		unsetenv("GPUANN_EMULATE_LACK");
		CHECK(status == ENGINE_NO_DEVICE, "without %s: status %d: %s", lacks[i].lack, (int) status,
			  error.text);
		CHECK(strncmp(error.text, lacks[i].says, strlen(lacks[i].says)) == 0, "without %s: \"%s\"",
			  lacks[i].lack, error.text);
	}
	reopen(&(EngineConfig) {.device = options.device});
}

/*
 * A query of some kind: exact and by graph, of few and many results, broad,
 * filtered, bounded.
 */
static void
query_of_kind(EngineQuery *query, const World *world, uint32_t kind, const uint64_t *filter)
{
	static const uint32_t ks[] = {10, 1, 100, 1000, K_MAX};
	static const uint32_t efs[] = {10, 64, 400, K_MAX, K_MAX};
	bool		by_graph = kind % 2 == 0;

	query_init(query, world, by_graph ? METHOD_GRAPH : METHOD_EXACT, ks[kind / 2 % 5],
			   by_graph ? efs[kind / 2 % 5] : 0, world_vector(world, kind % ROWS));
	if (kind % 3 == 1)
	{
		query->filter = filter;
		query->filter_slots = ROWS;
	}
	if (kind % 7 == 3)
	{
		query->has_beyond = true;
		query->beyond_distance = 0.5;
		query->beyond_slot = 17;
	}
}

/*
 * What queries may want of memory is taken before they come: none of them fails
 * for want of it, and the figures stay.
 */
static void
serving_takes_no_memory(void)
{
	static const uint32_t batches[] = {KINDS, 1, 7};
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 24, ROWS, ROWS, SHAPE_CLUSTERED);
	uint64_t   *filter = allocate(ROWS / 8 + 8);
	EngineQuery *queries = allocate(KINDS * sizeof(EngineQuery));
	EngineMemory before;
	EngineMemory after;

	world_append(world, LINKED);
	world_link(world);
	world_append(world, ROWS - LINKED);
	for (uint32_t slot = 0; slot < ROWS; slot += 2)
		filter[slot / 64] |= UINT64_C(1) << (slot % 64);
	ops->memory(engine, &before);
	/*
	 * An emulated device refuses everything from here on; of another one the
	 * figures tell.
	 */
	setenv("GPUANN_EMULATE_ALLOCATIONS", "0", 1);
	for (uint32_t size = 0; size < (options.quick ? 1 : sizeof(batches) / sizeof(batches[0]));
		 size++)
	{
		for (uint32_t kind = 0; kind < KINDS; kind += batches[size])
		{
			for (uint32_t i = 0; i < batches[size]; i++)
				query_of_kind(&queries[i], world, kind + i, filter);
			queries_run(queries, batches[size]);
			for (uint32_t i = 0; i < batches[size]; i++)
			{
				must(queries[i].status, &queries[i].error, "query");
				check_sound(world, &queries[i]);
			}
		}
	}
	unsetenv("GPUANN_EMULATE_ALLOCATIONS");
	ops->memory(engine, &after);
	CHECK(after.used == before.used && after.host_used == before.host_used &&
			  after.host_rows == before.host_rows,
		  "%llu and %llu bytes, then %llu and %llu", (unsigned long long) before.used,
		  (unsigned long long) before.host_used, (unsigned long long) after.used,
		  (unsigned long long) after.host_used);
}

/*
 * A batch whose queries want more memory than is reserved for their state is
 * split: as broad as they may be, some of them filtered.
 */
static void
broad_batches_are_split(void)
{
	uint32_t	rows = 120;
	uint32_t	count = options.quick ? 250 : 1000;
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 8, rows, rows, SHAPE_UNIFORM);
	uint64_t   *filter = allocate(rows / 8 + 8);
	EngineQuery *queries = allocate(count * sizeof(EngineQuery));
	SearchResult expected[10];

	world_append(world, rows);
	world_link(world);
	for (uint32_t slot = 0; slot < rows; slot += 3)
		filter[slot / 64] |= UINT64_C(1) << (slot % 64);
	for (uint32_t i = 0; i < count; i++)
	{
		query_init(&queries[i], world, METHOD_GRAPH, 10, ENGINE_MAX_EF,
				   world_vector(world, i % rows));
		if (i % 4 == 3)
		{
			queries[i].filter = filter;
			queries[i].filter_slots = rows;
		}
	}
	queries_run(queries, count);
	/* A list longer than the table finds all that can be reached. */
	for (uint32_t i = 0; i < count; i++)
	{
		must(queries[i].status, &queries[i].error, "query");
		check_equal("a broad query", &queries[i], expected,
					model_exact(world, &queries[i], rows, expected));
	}
}

const Case device_cases[] = {
	{"opening_says_what_is_missing", opening_says_what_is_missing, false},
	{"serving_takes_no_memory", serving_takes_no_memory, false},
	{"serving_splits_broad_batches", broad_batches_are_split, false},
	{NULL, NULL, false}
};
