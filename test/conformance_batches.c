/*
 * conformance_batches.c
 *		Conformance cases: many queries at once, most of them alike.
 *
 * An engine may take queries that differ in their vectors only another way than others, or several threads may take them. None of it shows.
 */
#include <string.h>
#include <unistd.h>

#include "conformance.h"

#define MANY	300u
#define ROWS	1000u
#define ROOM	7u
#define ALONE	50u				/* vectors that are asked alone */

/* What each of some vectors finds when it is asked alone. */
static EngineQuery *
ask_alone(const World *world, uint32_t k, uint32_t ef)
{
	EngineQuery *single = allocate(MANY * sizeof(EngineQuery));

	for (uint32_t i = 0; i < MANY; i++)
	{
		query_init(&single[i], world, METHOD_GRAPH, k, ef, world_vector(world, ROWS + i % ALONE));
		if (i < ALONE)
			query_run(&single[i]);
		else
			single[i] = single[i % ALONE];
	}
	return single;
}

/* Take some back, a few at a time. */
static void
take_back(uint32_t count)
{
	double		start = clock_seconds();
	EngineQuery *completed[ROOM];

	for (uint32_t done = 0; done < count;)
	{
		uint32_t	some = queries_poll(completed, ROOM);

		done += some;
		CHECK(some > 0 || clock_seconds() - start < 120, "%u of %u queries hang", count - done, count);
		if (some == 0)
			usleep(50);
	}
}

/* Make a query another than those around it, in one of several ways; returns what becomes of it. */
static EngineStatus
make_odd(EngineQuery *query, uint32_t way, const uint64_t *filter)
{
	if (way == 0)
		query->k = 0;
	else if (way == 1)
		query->vector = NULL;
	else if (way == 2)
		query->mirror += 1000;
	else if (way == 3)
		query->ef = 20;
	else if (way == 4)
		query->method = METHOD_EXACT;
	else
	{
		query->filter = filter;
		query->filter_slots = ROWS;
	}
	return way == 2 ? ENGINE_NOT_FOUND : way < 2 ? ENGINE_INVALID : ENGINE_OK;
}

/* Wherever one stands that is not as the others, or is not valid, all are answered, each for itself. */
static void
like_and_odd(void)
{
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 40, ROWS + ALONE, ROWS, SHAPE_CLUSTERED);
	uint64_t   *filter = allocate(ROWS / 8 + 8);
	EngineQuery *queries = allocate(MANY * sizeof(EngineQuery));
	EngineQuery *single;

	memset(filter, 0x55, ROWS / 8 + 8);
	world_append(world, ROWS - 50);
	world_link(world);
	world_append(world, 50);
	single = ask_alone(world, 10, 50);
	for (uint32_t round = 0; round < 12; round++)
	{
		uint32_t	odd = round % 2 == 0 ? random_below(MANY) : round * 3;
		EngineStatus status;

		for (uint32_t i = 0; i < MANY; i++)
			query_init(&queries[i], world, METHOD_GRAPH, 10, 50, single[i].vector);
		status = make_odd(&queries[odd], round / 2, filter);
		queries_submit(queries, MANY);
		take_back(MANY);
		for (uint32_t i = 0; i < MANY; i++)
		{
			CHECK(queries[i].status == (i == odd ? status : ENGINE_OK), "status %d of query %u", (int) queries[i].status, i);
			if (i != odd)
				check_equal("beside an odd one", &queries[i], single[i].results, single[i].count);
			else if (status == ENGINE_OK)
				check_sound(world, &queries[i]);
			CHECK(i == odd || queries[i].rows == ROWS, "%u rows seen", queries[i].rows);
		}
	}
}

/* Answers that nobody has taken yet outlive their mirror, and other queries are answered meanwhile. */
static void
outlive_a_mirror(void)
{
	World	   *other = world_create(ELEMENT_HALF, METRIC_COSINE, 24, ROWS + ALONE, ROWS, SHAPE_CLUSTERED);
	World	   *world = world_create(ELEMENT_FLOAT, METRIC_L2, 40, ROWS + ALONE, ROWS, SHAPE_CLUSTERED);
	EngineJob	drop = {.kind = JOB_DROP, .mirror = world->mirror};
	EngineQuery *queries = allocate(MANY * sizeof(EngineQuery));
	EngineQuery more;
	EngineQuery *single;
	JobId		id;

	world_append(world, ROWS);
	world_link(world);
	world_append(other, ROWS);
	world_link(other);
	single = ask_alone(world, 5, 40);
	for (uint32_t i = 0; i < MANY; i++)
		query_init(&queries[i], world, METHOD_GRAPH, 5, 40, single[i].vector);
	query_init(&more, other, METHOD_GRAPH, 10, 60, world_vector(other, 3));
	queries_submit(queries, MANY);
	id = start_job(&drop);
	ops->job_release(engine, id);	/* waits for the queries */
	queries_submit(&more, 1);
	take_back(MANY + 1);
	check_sound(other, &more);
	for (uint32_t i = 0; i < MANY; i++)
		check_equal("after a drop", &queries[i], single[i].results, single[i].count);
}

const Case batch_cases[] = {
	{"batches_of_like_and_odd", like_and_odd, false},
	{"batches_outlive_a_mirror", outlive_a_mirror, false},
	{NULL, NULL, false}
};
