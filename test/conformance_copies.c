/*
 * conformance_copies.c
 *		Cases of many copies of a row among rows that are all different: these
 *		find themselves nearly as well as beside one copy, for every type and
 *		metric, though the copies, more than the list of a search holds, are
 *		nearer to each than all others. A query for the copies gives them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"

#define DIMS		64			/* bits: twice as many */
#define COMMON		3.625		/* the element that all rows share: about as long as the others */
#define COMMON_BITS	32
#define EF			40			/* fewer than there are copies */
/*
 * One row in 200 may be lost that is found beside a single copy. Half of all
 * are lost where copies fill the list of a search, one in 40 where they fill
 * the rows of a graph. With --cpu-graphs only the search is the tested engine's
 * and all rows are linked at once, the single copy later than many are: what
 * is to be seen then is whether the list is filled.
 */
#define MAX_LOST	(options.cpu_graphs ? 40 : 200)
#define STEP		(options.cpu_graphs ? 8 : options.quick ? 2 : 1) /* between rows asked for */
#define AT_ONCE		32

typedef struct Copies
{
	uint32_t	rows;			/* that are different */
	uint32_t	templates;
	uint32_t	copies;			/* of each template */
} Copies;

/* An element of a row that is like no other. */
static double
row_element(const World *world, uint32_t i)
{
	int			sum = -32;

	if (world->type == ELEMENT_BIT)
		return i < COMMON_BITS || random_below(4) == 0;
	if (i == 0)
		return COMMON;
	for (int part = 0; part < 4; part++)
		sum += (int) random_below(17);
	return sum / 16.0;
}

/*
 * An element of a template: it lies in the midst of the rows. By inner product
 * it is longer, so that it is nearer than others too.
 */
static double
template_element(const World *world, uint32_t template, uint32_t i)
{
	if (world->type == ELEMENT_BIT)
		return i < COMMON_BITS || i == COMMON_BITS + template;
	if (i == 0)
		return world->metric == METRIC_IP ? 5 : COMMON;
	return i == 1 + template ? 0.5 : 0;
}

/*
 * Make the rows, templates' copies spread among the others, and link them. Of a
 * single copy the place is the first: what the midst of all rows hides depends
 * on when it is linked, and one of many copies is early.
 */
static World *
make_copies(const Pair *pair, const Copies *copies)
{
	uint32_t	count = copies->rows + copies->templates * copies->copies;
	uint32_t	dims = pair->type == ELEMENT_BIT ? 2 * DIMS : DIMS;
	World *world = world_create(pair->type, pair->metric, dims, count, count, SHAPE_UNIFORM);

	for (uint32_t slot = 0, left = copies->rows; slot < count; slot++)
	{
		bool different = copies->copies == 1 ? slot >= copies->templates
											 : random_below(count - slot) < left;

		left -= different;
		for (uint32_t i = 0; i < dims; i++)
			world_set_element(world, slot, i,
							  different ? row_element(world, i)
										: template_element(world, slot % copies->templates, i));
	}
	if (copies->copies == 1 && !options.cpu_graphs)
	{
		world_append(world, copies->templates);
		world_link(world);
	}
	world_append(world, count - world->rows);
	world_link(world);
	return world;
}

/*
 * Whether some rows, asked for together, are found: `count` from `first` on,
 * STEP apart. Returns how many are not.
 */
static uint32_t
count_lost(const World *world, uint32_t first, uint32_t count, bool reference)
{
	EngineQuery queries[AT_ONCE];
	uint32_t	lost = 0;

	for (uint32_t i = 0; i < count; i++)
	{
		query_init(&queries[i], world, METHOD_GRAPH, EF, EF, world_vector(world, first + i * STEP));
		queries[i].reference = reference;
	}
	queries_run(queries, count);
	for (uint32_t i = 0; i < count; i++)
	{
		const void *vector = world_vector(world, first + i * STEP);

		must(queries[i].status, &queries[i].error, "graph query");
		check_sound(world, &queries[i]);
		lost += queries[i].count < EF ||
			queries[i].results[0].distance > model_distance(world, vector, vector);
	}
	return lost;
}

/* How many rows, asked for, are not found. */
static uint32_t
rows_lost(const World *world, bool reference)
{
	uint32_t	lost = 0;

	for (uint32_t first = 0; first + AT_ONCE * STEP <= world->rows; first += AT_ONCE * STEP)
		lost += count_lost(world, first, AT_ONCE, reference);
	return lost;
}

/* Who asks for a template gets copies of it alone. */
static void
check_copies_found(const World *world, const Copies *copies, const char *what)
{
	char	   *vector = allocate(world->vector_bytes);
	uint32_t	found = 0;
	EngineQuery query;

	for (uint32_t slot = 0; slot < world->rows; slot++)
	{
		const double distance =
			model_distance(world, world_vector(world, slot), world_vector(world, slot));
		uint32_t	equal = 0;

		for (uint32_t other = 0; other < world->rows && equal < EF; other++)
			equal += memcmp(world_vector(world, other), world_vector(world, slot),
							world->vector_bytes) == 0;
		if (equal < EF)
			continue;
		memcpy(vector, world_vector(world, slot), world->vector_bytes);
		query_init(&query, world, METHOD_GRAPH, EF, EF, vector);
		query_run(&query);
		check_sound(world, &query);
		for (uint32_t i = 0; i < query.count; i++)
			CHECK(query.results[i].distance == distance, "%s: result %u for a copy is none", what,
				  i);
		CHECK(query.count == EF, "%s: %u copies are found", what, query.count);
		if (++found == 2 * copies->templates)
			break;
	}
}

/*
 * Rows beside copies are found nearly as well as beside one copy: what a search
 * of this breadth loses there has other reasons.
 */
static void
check_plan(const Copies *copies)
{
	const Copies none = {copies->rows, copies->templates, 1};
	char		what[96];

	for (int i = 0; i < PAIRS; i++)
	{
		World	   *alone;
		World	   *world;

		/* Where everything is slow, a third of all for each plan. */
		if (options.cpu_graphs && i % 3 != (int) copies->templates % 3)
			continue;
		alone = make_copies(&pairs[i], &none);
		world = make_copies(&pairs[i], copies);
		snprintf(what, sizeof(what), "type %d, metric %d, %u copies of %u rows", pairs[i].type,
				 pairs[i].metric, copies->copies, copies->templates);
		for (int reference = 0; reference <= has_reference(world); reference++)
		{
			uint32_t	usual = rows_lost(alone, reference);
			uint32_t	lost = rows_lost(world, reference);

			CHECK(lost <= usual + copies->rows / MAX_LOST,
				  "%s%s: %u rows do not find themselves, %u without copies", what,
				  reference ? ", reference mode" : "", lost, usual);
		}
		check_copies_found(world, copies, what);
		world_drop(alone);
		world_drop(world);
	}
}

/* Copies of one row. */
static void
of_one_row(void)
{
	check_plan(&(Copies) {options.quick ? 600 : 1000, 1, options.quick ? 200 : 600});
}

/* Copies of a few. */
static void
of_few_rows(void)
{
	check_plan(&(Copies) {options.quick ? 600 : 1000, 4, options.quick ? 100 : 300});
}

/* Beside fewer copies than a list holds. */
static void
of_less_than_a_list(void)
{
	check_plan(&(Copies) {options.quick ? 600 : 1000, 2, EF});
}

const Case copy_cases[] = {
	{"copies_of_one_row", of_one_row, false},
	{"copies_of_few_rows", of_few_rows, false},
	{"copies_less_than_a_list", of_less_than_a_list, false},
	{NULL, NULL, false}
};
