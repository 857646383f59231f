/*
 * conformance_equals.c
 *		Cases of many equal rows that are linked in parts, beside dead ones:
 *		they hide nobody.
 *
 * The other rows lie on a grid, where many are as near as others. What is asked
 * is that each row near the equal ones is found by a graph search for it,
 * though the equal ones, which are more than the search's list holds, fill this
 * list: with the engine's own walk, and in reference mode, which starts from
 * seeds alone. The worker that links through a server makes such parts of rows
 * that come, in an order of its own; the rows of a transaction that was rolled
 * back are linked as any others, and die when somebody finds out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"

#define DIMS		4
#define NEAR		16.0	/* squared distance from the equal ones */
#define EF			100		/* fewer than there are equal rows */
#define MIN_PART	32

/* Which of the equal rows die: the first of them, so many of four. */
#define DYING		3
#define OF_ROWS		4

typedef enum Deaths
{
	NOBODY_DIES,
	DIE_PENDING,				/* before any of the equal rows is linked */
	DIE_BETWEEN,				/* they are linked, die, and then the others are linked */
	DIE_LINKED,					/* when all are linked */
	DIE_REPAIRED				/* likewise, and the graph is repaired */
} Deaths;

typedef struct Plan
{
	uint32_t	rows;			/* on the grid */
	uint32_t	equals;
	uint32_t	degree;
	uint32_t	part;			/* rows linked at once; 0: MIN_PART, then ever more */
	bool		in_order;		/* else as they come at random */
	bool		at_once;		/* all rows come before the first link */
	Deaths		deaths;
} Plan;

static const float place[DIMS] = {1, 1, 1, 1};

/* The rows of a plan: the grid, then the equal ones. */
static World *
make_rows(const Plan *plan)
{
	uint32_t	all = plan->rows + plan->equals;
	World *world = world_create_of_degree(plan->degree, ELEMENT_FLOAT, METRIC_L2, DIMS, all, all,
										  SHAPE_UNIFORM);

	for (uint32_t slot = 0; slot < all; slot++)
	{
		float	   *vector = (float *) (void *) (world->vectors + slot * world->vector_bytes);
		uint32_t	i = slot + 1;
		const float grid[DIMS] = {(float) (i % 10), (float) (i % 7), (float) (i % 13),
								  (float) (i % 11)};

		memcpy(vector, slot < plan->rows ? grid : place, sizeof(grid));
	}
	return world;
}

/* Link rows [first, first + count), part by part. */
static void
link_parts(World *world, const Plan *plan, uint32_t first, uint32_t count)
{
	uint32_t   *slots = allocate((count + 1) * sizeof(uint32_t));
	uint32_t	part = plan->part > 0 ? plan->part : MIN_PART;

	for (uint32_t i = 0; i < count; i++)
	{
		uint32_t	other = plan->in_order ? i : random_below(i + 1);

		slots[i] = slots[other];
		slots[other] = first + i;
	}
	for (uint32_t done = 0; done < count;)
	{
		EngineJob link = {.kind = JOB_LINK,
						  .mirror = world->mirror,
						  .ef_construction = 64,
						  .slots = slots + done};
		JobProgress progress;

		link.count = count - done < part ? count - done : part;
		if (run_job(&link, &progress) != ENGINE_OK)
			must(progress.status, &progress.error, "link");
		done += link.count;
		part = plan->part > 0 ? plan->part : part * 2;
	}
}

/* Let rows die, all at once. */
static void
kill_rows(World *world, uint32_t first, uint32_t count)
{
	uint32_t   *slots = allocate((count + 1) * sizeof(uint32_t));
	EngineJob job = {.kind = JOB_DEAD,
					 .mirror = world->mirror,
					 .count = count,
					 .slots = slots,
					 .versions = world->versions + first};

	for (uint32_t i = 0; i < count; i++)
	{
		slots[i] = first + i;
		world->versions[first + i]++;
		world->live[first + i] = false;
	}
	CHECK(run_job(&job, NULL) == ENGINE_OK, "rows cannot die");
}

/* Carry out a plan. */
static World *
carry_out(const Plan *plan)
{
	World	   *world = make_rows(plan);
	uint32_t	dying = plan->deaths == NOBODY_DIES ? 0 : plan->equals / OF_ROWS * DYING;

	if (!plan->at_once)
	{
		world_append(world, plan->rows);
		world_link(world);
	}
	world_append(world, plan->rows + plan->equals - world->rows);
	if (plan->deaths == DIE_PENDING)
		kill_rows(world, plan->rows, dying);
	if (plan->at_once)
		link_parts(world, plan, 0, world->rows);
	else if (plan->deaths == DIE_BETWEEN || plan->deaths == DIE_PENDING)
	{
		if (plan->deaths == DIE_BETWEEN)
		{
			link_parts(world, plan, plan->rows, dying);
			kill_rows(world, plan->rows, dying);
		}
		link_parts(world, plan, plan->rows + dying, plan->equals - dying);
	}
	else
		link_parts(world, plan, plan->rows, plan->equals);
	if (plan->deaths == DIE_LINKED || plan->deaths == DIE_REPAIRED)
		kill_rows(world, plan->rows, dying);
	if (plan->deaths == DIE_REPAIRED)
		(void) world_repair(world, NULL, 0);
	return world;
}

/* How many of the rows near the equal ones a search for them does not find. */
static uint32_t
count_unfound(const World *world, const Plan *plan, bool reference, uint32_t *asked)
{
	EngineQuery *queries = allocate(plan->rows * sizeof(EngineQuery));
	uint32_t	lost = 0;

	*asked = 0;
	for (uint32_t slot = 0; slot < plan->rows; slot++)
	{
		double		distance = model_distance(world, world_vector(world, slot), place);

		if (distance == 0 || distance >= NEAR)
			continue;
		query_init(&queries[*asked], world, METHOD_GRAPH, 1, EF, world_vector(world, slot));
		queries[(*asked)++].reference = reference;
	}
	queries_run(queries, *asked);
	for (uint32_t i = 0; i < *asked; i++)
	{
		must(queries[i].status, &queries[i].error, "graph query");
		check_sound(world, &queries[i]);
		lost += !(queries[i].count == 1 && queries[i].results[0].distance == 0);
	}
	return lost;
}

/* Of the equal rows that live a search for all of them finds all. */
static void
check_equals(const World *world, const Plan *plan, const char *what)
{
	uint32_t	living = 0;
	uint32_t	found = 0;
	EngineQuery query;

	for (uint32_t slot = plan->rows; slot < world->rows; slot++)
		living += world->live[slot];
	query_init(&query, world, METHOD_GRAPH, living, world->rows, place);
	query_run(&query);
	check_sound(world, &query);
	for (uint32_t i = 0; i < query.count; i++)
		found += query.results[i].distance == 0;
	CHECK(found == living, "%s: %u of %u equal rows are found", what, found, living);
}

static const char *const death_names[] = {"nobody dies", "some die pending", "some die in between",
										  "some die linked", "some die, repaired"};

/*
 * The row of the grid farthest from the equal ones that is not marked; marks
 * it.
 */
static uint32_t
take_farthest(const World *world, uint32_t rows, bool *marked)
{
	uint32_t	farthest = 0;
	double		most = -1;

	for (uint32_t slot = 0; slot < rows; slot++)
	{
		double		distance = model_distance(world, world_vector(world, slot), place);

		if (!marked[slot] && distance > most)
		{
			most = distance;
			farthest = slot;
		}
	}
	marked[farthest] = true;
	return farthest;
}

/*
 * The edges to equal rows come from the rows that are farthest from them. A
 * search whose list holds all rows finds all of them, as it has met them.
 */
static void
named_from_afar(void)
{
	const Plan	plan = {.rows = 600, .equals = 100, .degree = 16};
	World	   *world = make_rows(&plan);
	uint32_t	all = plan.rows + plan.equals;
	uint32_t   *rows = allocate((size_t) all * plan.degree * sizeof(uint32_t));
	bool	   *marked = allocate(plan.rows);

	world_append(world, all);
	memset(rows, 0xFF, (size_t) all * plan.degree * sizeof(uint32_t));
	for (uint32_t slot = 0; slot < all; slot++)
		for (uint32_t i = 0; i < 4; i++)
			rows[slot * plan.degree + i] =
				(slot + (i == 0 ? 1 : random_below(plan.rows))) % plan.rows;
	for (uint32_t i = 0; i < plan.equals; i++)
		rows[take_farthest(world, plan.rows, marked) * plan.degree + 4] = plan.rows + i;
	world_set_graph(world, rows, &(uint32_t){0}, 1);
	check_equals(world, &plan, "named from afar");
	world_drop(world);
}

/* Carry out a plan and look for what is near the equal rows. */
static void
check_plan(const Plan *plan)
{
	World	   *world = carry_out(plan);
	uint32_t	asked;
	uint32_t	lost;
	char		what[128];

	snprintf(what, sizeof(what), "%u equal rows beside %u, degree %u, %u at a time%s%s, %s",
			 plan->equals, plan->rows, plan->degree, plan->part, plan->in_order ? " in order" : "",
			 plan->at_once ? ", all together" : "", death_names[plan->deaths]);
	for (int reference = 0; reference <= has_reference(world); reference++)
	{
		lost = count_unfound(world, plan, reference, &asked);
		CHECK(lost == 0, "%s: %u of %u rows near them are not found%s", what, lost, asked,
			  reference ? " in reference mode" : "");
	}
	/*
	 * Beside dead equal rows new ones have few living ones to name, and a link
	 * of less than a 128th of the graph does not look whom it leaves out: of
	 * the equal rows themselves, which answer for one another, not all are
	 * reached then until the graph is repaired.
	 */
	if (plan->deaths == NOBODY_DIES && plan->part != MIN_PART)
		check_equals(world, plan, what);
	world_drop(world);
}

/*
 * Carry out plans with as many rows as the engine links in little time, in
 * several random orders where that is quick.
 */
static void
check_plans(const Plan *plans, uint32_t count)
{
	uint32_t	orders = options.quick || strcmp(options.engine, "cpu") == 0 ? 1 : 4;

	for (uint32_t order = 0; order < orders; order++)
		for (uint32_t i = 0; i < count; i++)
		{
			Plan		plan = plans[i];

			plan.rows = options.quick ? 600 : 3000;
			plan.equals = options.quick ? 200 : 1335;
			plan.degree = 16;
			check_plan(&plan);
		}
}

/* Linked in parts of any size, in any order. */
static void
in_parts(void)
{
	static const Plan plans[] = {
		{.part = 1335}, {.part = 400}, {.part = 200},		{.part = 100, .in_order = true},
		{.part = 64},	{.part = 0},   {.part = MIN_PART}};

	check_plans(plans, options.quick ? 3 : sizeof(plans) / sizeof(plans[0]));
}

/* Beside rows that die before, between or behind the links. */
static void
beside_dead(void)
{
	static const Plan plans[] = {
		{.part = 64, .deaths = DIE_BETWEEN},   {.part = 100, .deaths = DIE_PENDING},
		{.part = 0, .deaths = DIE_LINKED},	   {.part = 200, .deaths = DIE_REPAIRED},
		{.part = 1335, .deaths = DIE_BETWEEN}, {.part = 64, .deaths = DIE_LINKED},
		{.part = 100, .deaths = DIE_REPAIRED}};

	check_plans(plans, options.quick ? 2 : sizeof(plans) / sizeof(plans[0]));
}

/* Linked together with all others, from the first row on. */
static void
all_together(void)
{
	static const Plan plans[] = {{.part = 5000, .at_once = true},
								 {.part = 400, .at_once = true, .deaths = DIE_LINKED},
								 {.part = 0, .at_once = true}};

	check_plans(plans, options.quick ? 1 : sizeof(plans) / sizeof(plans[0]));
}

const Case equal_cases[] = {
	{"equals_linked_in_parts", in_parts, false},
	{"equals_beside_dead", beside_dead, false},
	{"equals_linked_all_together", all_together, false},
	{"equals_named_from_afar", named_from_afar, false},
	{NULL, NULL, false}
};
