/*
 * protocol_test_links.c
 *		Channels: linking and repair, their results, and cancels.
 */
#include <string.h>

#include "protocol_test.h"

/*
 * Fetch a link in pieces; the whole of it must be ascending slots and rows of
 * other slots.
 */
static void
check_link_fetch(World *world, int number, uint32_t total, uint32_t piece)
{
	AreaChannel *channel = area_channel(world->area, (uint32_t) number);
	uint32_t	fetched = 0;
	int64_t		last = -1;

	while (fetched < total && !case_failed())
	{
		const unsigned char *data = area_channel_data(world->area, (uint32_t) number);
		const uint32_t *slots;
		const uint32_t *rows;

		channel = channel_prepare(world->area, number, CHANNEL_LINK_FETCH, 0);
		channel->request.first_slot = fetched;
		channel->request.count = piece;
		REQUIRE(channel_call(world->area, number) == ENGINE_OK, "fetch: %.100s", channel->error);
		REQUIRE(channel->out_count > 0 && channel->out_count <= total - fetched &&
					(piece == 0 || channel->out_count <= piece),
				"a fetch brings %u rows", channel->out_count);
		slots = (const uint32_t *) (data + channel->out_slots_offset);
		rows = (const uint32_t *) (data + channel->out_offset);
		for (uint32_t i = 0; i < channel->out_count; i++)
		{
			REQUIRE(slots[i] > last && slots[i] < TEST_ROWS, "slot %u after %lld", slots[i],
					(long long) last);
			last = slots[i];
			for (uint32_t j = 0; j < TEST_DEGREE; j++)
				REQUIRE(rows[i * TEST_DEGREE + j] == NO_SLOT ||
							rows[i * TEST_DEGREE + j] < TEST_ROWS,
						"an edge to slot %u", rows[i * TEST_DEGREE + j]);
		}
		fetched += channel->out_count;
	}
}

/* Fetch the seeds that a link or repair has chosen: there are some. */
static void
check_seeds_fetch(World *world, int number)
{
	AreaChannel *channel = channel_prepare(world->area, number, CHANNEL_LINK_FETCH, 0);

	channel->request.arrays = FETCH_SEEDS;
	REQUIRE(channel_call(world->area, number) == ENGINE_OK && channel->out_count > 0,
			"%u seeds: %.100s", channel->out_count, channel->error);
}

static void
links_are_fetched_in_pieces(void)
{
	World	   *world = world_make(4, 2);
	int			number;
	AreaChannel *channel;

	if (server_up(world, NULL) && entry_load(world->area, 0, TEST_ROWS))
	{
		uint32_t	total;

		number = channel_claim(world->area);
		channel = channel_prepare(world->area, number, CHANNEL_LINK_FETCH, 0);
		if (channel_call(world->area, number) != ENGINE_NOT_FOUND)
			case_fails("there is a link before any was made");
		channel = channel_prepare(world->area, number, CHANNEL_LINK, 0);
		channel->request.ef_construction = 32;
		REQUIRE(channel_call(world->area, number) == ENGINE_OK, "link: %.100s", channel->error);
		total = channel->out_count;
		REQUIRE(total == TEST_ROWS, "%u rows linked", total);
		check_link_fetch(world, number, total, 0);
		check_link_fetch(world, number, total, 333);
		check_seeds_fetch(world, number);
		channel = channel_prepare(world->area, number, CHANNEL_LINK_FETCH, 0);
		channel->request.first_slot = total + 1;
		if (channel_call(world->area, number) != ENGINE_INVALID)
			case_fails("rows beyond the last can be fetched");
		channel = channel_prepare(world->area, number, CHANNEL_LINK_FORGET, 0);
		if (channel_call(world->area, number) != ENGINE_OK)
			case_fails("a link cannot be forgotten");
		channel_prepare(world->area, number, CHANNEL_LINK_FETCH, 0);
		if (channel_call(world->area, number) != ENGINE_NOT_FOUND)
			case_fails("a forgotten link is still there");
		channel = channel_prepare(world->area, number, CHANNEL_LINK, 0);
		channel->request.ef_construction = 32;
		if (channel_call(world->area, number) != ENGINE_OK || channel->out_count != 0)
			case_fails("%u rows are still pending", channel->out_count);
		channel_release(world->area, number);
		works(world, 0, 0);
	}
	world_free(world);
}

/* Whether what a channel's last job changed names slots of a range. */
static bool
fetched_names(World *world, int number, uint32_t total, uint32_t first, uint32_t end)
{
	for (uint32_t fetched = 0; fetched < total && !case_failed();)
	{
		AreaChannel *channel = channel_prepare(world->area, number, CHANNEL_LINK_FETCH, 0);
		const uint32_t *rows;

		channel->request.first_slot = fetched;
		if (channel_call(world->area, number) != ENGINE_OK || channel->out_count == 0)
			case_fails("fetch: %.100s", channel->error);
		rows =
			(const uint32_t *) (const void *) (area_channel_data(world->area, (uint32_t) number) +
											   channel->out_offset);
		for (uint32_t i = 0; i < channel->out_count * TEST_DEGREE; i++)
			if (rows[i] >= first && rows[i] < end)
				return true;
		fetched += channel->out_count;
	}
	return false;
}

static void
repairs_are_fetched_like_links(void)
{
	World	   *world = world_make(4, 2);
	int			number;
	AreaChannel *channel;
	uint32_t   *slots;
	uint32_t   *versions;
	uint32_t	total;

	if (server_up(world, NULL) && entry_load(world->area, 0, TEST_ROWS))
	{
		number = channel_claim(world->area);
		channel = channel_prepare(world->area, number, CHANNEL_LINK, 0);
		channel->request.ef_construction = 32;
		REQUIRE(channel_call(world->area, number) == ENGINE_OK, "link: %.100s", channel->error);
		REQUIRE(fetched_names(world, number, channel->out_count, 20, 60),
				"nothing names the rows that are to die");
		channel = channel_prepare(world->area, number, CHANNEL_DEAD, 0);
		channel->request.count = 40;
		slots = channel_array(world->area, number, &channel->request.slots_offset, 0, 160);
		versions = channel_array(world->area, number, &channel->request.versions_offset, 192, 160);
		for (uint32_t i = 0; i < 40; i++)
		{
			slots[i] = 20 + i;
			versions[i] = 1000;
		}
		REQUIRE(channel_call(world->area, number) == ENGINE_OK, "dead: %.100s", channel->error);
		channel = channel_prepare(world->area, number, CHANNEL_REPAIR, 0);
		channel->request.ef_construction = 3;
		REQUIRE(channel_call(world->area, number) == ENGINE_INVALID,
				"a repair with ef_construction 3");
		for (int round = 0; round < 3; round++)
		{
			/* one slot, all, and all once more */
			channel = channel_prepare(world->area, number, CHANNEL_REPAIR, 0);
			channel->request.ef_construction = 32;
			channel->request.count = round == 0 ? 1 : 0;
			*(uint32_t *) channel_array(world->area, number, &channel->request.slots_offset, 0, 4) =
				19;
			REQUIRE(channel_call(world->area, number) == ENGINE_OK, "repair: %.100s",
					channel->error);
			total = channel->out_count;
			REQUIRE(round == 0 || (total > 0) == (round == 1), "round %d: %u rows repaired", round,
					total);
			check_link_fetch(world, number, total, 0);
			check_seeds_fetch(world, number);
			REQUIRE(round == 0 || !fetched_names(world, number, total, 20, 60),
					"a repaired row names dead slots");
		}
		channel_release(world->area, number);
	}
	world_free(world);
}

static void
cancel_ends_a_link(void)
{
	World	   *world = world_make(4, 2);
	int			number;
	AreaChannel *channel;
	int64_t		begun;
	EngineStatus status;

	if (server_up(world, NULL) && entry_load(world->area, 0, TEST_ROWS))
	{
		number = channel_claim(world->area);
		channel = channel_prepare(world->area, number, CHANNEL_LINK, 0);
		channel->request.ef_construction = 1000;
		channel_post(world->area, number);
		pause_us(20000);
		atomic_store(&channel->cancel, 1);
		begun = now_us();
		status = channel_wait(world->area, number, LONG_MS);
		if (status != ENGINE_CANCELLED && status != ENGINE_OK)
			case_fails("a cancelled link ends with status %d: %.100s", (int) status,
					   channel->error);
		if (now_us() - begun > 5000000)
			case_fails("the cancel took %lld ms", (long long) (now_us() - begun) / 1000);
		works(world, 0, 0);
		channel_release(world->area, number);
	}
	world_free(world);
}

const TestCase link_cases[] = {
	{"links_are_fetched_in_pieces", links_are_fetched_in_pieces},
	{"repairs_are_fetched_like_links", repairs_are_fetched_like_links},
	{"cancel_ends_a_link", cancel_ends_a_link},
	{NULL, NULL}
};
