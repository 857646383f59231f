/*
 * conformance_rows.c
 *		What holds of every graph: its rows are sound, and every live row is
 *		reached.
 */
#include "conformance.h"

/* All graph rows of a world. */
uint32_t *
world_graph(const World *world)
{
	uint32_t   *slots = allocate(world->rows * sizeof(uint32_t));
	uint32_t   *versions = allocate(world->rows * sizeof(uint32_t));
	uint32_t   *rows = allocate((size_t) world->rows * world->degree * sizeof(uint32_t));
	EngineError error = {0};

	for (uint32_t i = 0; i < world->rows; i++)
		slots[i] = i;
	must(ops->mirror_rows(engine, world->mirror, slots, world->rows, rows, versions, &error),
		 &error, "mirror_rows");
	return rows;
}

/*
 * Rows name published slots, others than their own, none twice, and nothing
 * after the first empty place.
 */
void
check_rows(const World *world, const uint32_t *rows)
{
	for (uint32_t slot = 0; slot < world->rows; slot++)
	{
		const uint32_t *row = rows + (size_t) slot * world->degree;
		uint32_t	count = 0;

		while (count < world->degree && row[count] != NO_SLOT)
			count++;
		for (uint32_t i = 0; i < world->degree; i++)
		{
			CHECK((row[i] == NO_SLOT) == (i >= count), "row %u goes on after its end", slot);
			CHECK(row[i] == NO_SLOT || (row[i] < world->rows && row[i] != slot),
				  "row %u names slot %u", slot, row[i]);
			for (uint32_t j = 0; j < i && i < count; j++)
				CHECK(row[i] != row[j], "row %u names slot %u twice", slot, row[i]);
		}
	}
}

/*
 * Which rows a walk over all edges reaches from the first seeds, but for one of
 * them (NO_SLOT: from all).
 */
static bool *
reached_from(const World *world, const uint32_t *rows, uint32_t nseeds, uint32_t except)
{
	bool	   *reached = allocate(world->rows);
	uint32_t   *queue = allocate(world->rows * sizeof(uint32_t));
	uint32_t	tail = 0;

	for (uint32_t i = 0; i < nseeds && i < world->nseeds; i++)
		if (world->seeds[i] != except && !reached[world->seeds[i]])
		{
			reached[world->seeds[i]] = true;
			queue[tail++] = world->seeds[i];
		}
	for (uint32_t head = 0; head < tail; head++)
		for (uint32_t i = 0; i < world->degree; i++)
		{
			uint32_t	slot = rows[(size_t) queue[head] * world->degree + i];

			if (slot != NO_SLOT && !reached[slot])
			{
				reached[slot] = true;
				queue[tail++] = slot;
			}
		}
	return reached;
}

/* How many live rows a walk over all edges from the first seeds reaches. */
uint32_t
count_reached(const World *world, const uint32_t *rows, uint32_t nseeds)
{
	const bool *reached = reached_from(world, rows, nseeds, NO_SLOT);
	uint32_t	live = 0;

	for (uint32_t slot = 0; slot < world->rows; slot++)
		live += reached[slot] && world->live[slot];
	return live;
}

/*
 * After a link: nothing is pending, rows are sound, every live row is reached
 * from the first seeds, and each of these from the others.
 */
void
check_linked(const World *world)
{
	uint32_t   *rows = world_graph(world);
	uint32_t	live = 0;

	CHECK(world_info(world).pending == 0, "%u rows are pending after a link",
		  world_info(world).pending);
	check_rows(world, rows);
	for (uint32_t slot = 0; slot < world->rows; slot++)
		live += world->live[slot];
	CHECK(count_reached(world, rows, 16) == live, "%u of %u rows are reached from the first seeds",
		  count_reached(world, rows, 16), live);
	for (uint32_t i = 0; i < 16 && i < world->nseeds && world->nseeds > 1; i++)
		CHECK(!world->live[world->seeds[i]] ||
				  reached_from(world, rows, 16, world->seeds[i])[world->seeds[i]],
			  "seed %u, slot %u, is not reached from the others", i, world->seeds[i]);
}

/*
 * After a repair of all rows: rows are sound, no live one names a dead slot,
 * seeds live, every live row is reached from the first of them.
 */
void
check_repaired(const World *world)
{
	uint32_t   *rows = world_graph(world);
	uint32_t	live = 0;

	check_linked(world);
	for (uint32_t slot = 0; slot < world->rows; slot++)
	{
		live += world->live[slot];
		for (uint32_t i = 0; i < world->degree && world->live[slot]; i++)
		{
			uint32_t	neighbour = rows[(size_t) slot * world->degree + i];

			CHECK(neighbour == NO_SLOT || world->live[neighbour], "slot %u names dead slot %u",
				  slot, neighbour);
		}
	}
	CHECK((world->nseeds > 0) == (live > 0), "%u seeds of %u live rows", world->nseeds, live);
	for (uint32_t i = 0; i < world->nseeds; i++)
		CHECK(world->live[world->seeds[i]], "seed %u is dead", world->seeds[i]);
}

/*
 * Every fiftieth row from the eighth on is found, and of the many equal ones,
 * of which the second is one, nearly all that are asked for.
 */
void
check_equals_found(World *world)
{
	EngineQuery query;

	for (uint32_t slot = 7; slot < world->room; slot += 50)
	{
		query_init(&query, world, METHOD_GRAPH, 5, 50, world_vector(world, slot));
		query_run(&query);
		check_sound(world, &query);
		CHECK(query.count == 5 && query.results[0].distance == 0,
			  "slot %u is not found among equal rows", slot);
	}
	query_init(&query, world, METHOD_GRAPH, 50, 100, world_vector(world, 1));
	query_run(&query);
	CHECK(recall_of(world, &query) >= 0.9, "%.2f of 50 equal rows are found",
		  recall_of(world, &query));
}
