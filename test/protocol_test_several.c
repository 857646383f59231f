/*
 * protocol_test_several.c
 *		Batches whose queries go to several mirrors.
 */
#include <string.h>

#include "protocol_test.h"

/*
 * Put searches of several mirrors into a channel; entries and generations of
 * their mirrors are at *entries and *generations.
 */
static AreaChannel *
fill_several(World *world, int number, uint32_t count, uint32_t **entries, uint32_t **generations)
{
	static Search searches[MAX_CHANNEL_SEARCHES];
	AreaChannel *channel = area_channel(world->area, (uint32_t) number);
	uint64_t	after = 64 + sizeof(searches[0].vector) * count;
	uint64_t	random = count;

	for (uint32_t i = 0; i < count; i++)
	{
		search_random(&searches[i], world->area, i % 3, &random);
		searches[i].k = 10;
		searches[i].has_beyond = 0;
	}
	channel_fill_searches(world->area, number, searches, count);
	channel->request.has_mirrors = 1;
	*entries =
		channel_array(world->area, number, &channel->request.slots_offset, after, 4 * count);
	*generations = channel_array(world->area, number, &channel->request.versions_offset,
								 channel->request.slots_offset + 4 * count, 4 * count);
	for (uint32_t i = 0; i < count; i++)
	{
		(*entries)[i] = searches[i].entry;
		(*generations)[i] = searches[i].generation;
	}
	return channel;
}

/* Answers of three mirrors are right, each of its own rows. */
static void
expect_several(World *world, int number, uint32_t count)
{
	uint32_t   *entries;
	uint32_t   *generations;
	AreaChannel *channel = fill_several(world, number, count, &entries, &generations);
	const float *vectors =
		(const float *) (area_channel_data(world->area, (uint32_t) number) + 64);
	static Search searches[MAX_CHANNEL_SEARCHES];
	Answer		answer;
	const char *wrong;

	for (uint32_t i = 0; i < count; i++)
	{
		searches[i] = (Search){.method = METHOD_EXACT, .k = 10, .entry = i % 3};
		memcpy(searches[i].vector, vectors + (size_t) i * TEST_DIMS, sizeof(searches[i].vector));
	}
	if (channel_call(world->area, number) != ENGINE_OK)
		case_fails("%u queries of several mirrors: %.100s", count, channel->error);
	for (uint32_t i = 0; i < count && !case_failed(); i++)
	{
		if (!channel_read_answer(world->area, number, i, &answer))
			case_fails("answer %u is not in the channel", i);
		else if (answer.rows != 40 + 30 * (i % 3))
			case_fails("answer %u of %u is of a mirror of %u rows", i, count, answer.rows);
		else if ((wrong = answer_wrong(&searches[i], &answer)) != NULL)
			case_fails("answer %u of %u: %s", i, count, wrong);
	}
}

/* What is bad about the queries of several mirrors. */
typedef enum Badness
{
	BAD_ENTRY,					/* there is none of this number */
	BAD_OTHER_ENTRY,			/* or none with a mirror */
	BAD_GENERATION,
	BAD_OFFSET,
	BAD_ALIGNMENT,
	BAD_FLAG,
	BAD_COUNT,
	BADNESSES
} Badness;

/* Post eight queries of which something is bad; what becomes of them. */
static EngineStatus
several_badly(World *world, int number, Badness badness)
{
	uint32_t   *entries;
	uint32_t   *generations;
	AreaChannel *channel = fill_several(world, number, 8, &entries, &generations);

	switch (badness)
	{
		case BAD_ENTRY:
			entries[7] = UINT32_MAX;
			break;
		case BAD_OTHER_ENTRY:
			entries[4] = 3;
			break;
		case BAD_GENERATION:
			generations[5]++;
			break;
		case BAD_OFFSET:
			channel->request.versions_offset = CHANNEL_DATA_BYTES;
			break;
		case BAD_ALIGNMENT:
			channel->request.slots_offset += 4;
			break;
		case BAD_FLAG:
			channel->request.has_mirrors = 2;
			break;
		default:
			channel->request.count = UINT32_MAX;
	}
	return channel_call(world->area, number);
}

static void
batches_go_to_several_mirrors(void)
{
	static const uint32_t counts[] = {1, 2, 3, 8, 64, 65, MAX_CHANNEL_SEARCHES};
	World	   *world = world_make(4, 2);
	int			number;

	if (server_up(world, NULL) && entry_load(world->area, 0, 40) &&
		entry_load(world->area, 1, 70) && entry_load(world->area, 2, 100))
	{
		number = channel_claim(world->area);
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && !case_failed(); i++)
			expect_several(world, number, counts[i]);
		for (int bad = 0; bad < BADNESSES; bad++)
		{
			bool		gone = bad == BAD_OTHER_ENTRY || bad == BAD_GENERATION;

			if (several_badly(world, number, (Badness) bad) !=
				(gone ? ENGINE_NOT_FOUND : ENGINE_INVALID))
				case_fails("bad mirrors, %d, are not refused", bad);
		}
		expect_several(world, number, 8);
		/* A channel's work has ended when its answer is there. */
		for (uint32_t entry = 0; entry < 3; entry++)
			if (atomic_load(&area_mirror(world->area, entry)->in_engine) != 0)
				case_fails("the engine's work for entry %u is counted further on", entry);
		for (uint32_t entry = 0; entry < 3; entry++)
			works(world, entry, 0);
		channel_release(world->area, number);
	}
	world_free(world);
}

/*
 * An engine that is busy in the middle of a piece gets the rest afterwards; one
 * that fails a query fails the batch, and no other.
 */
static void
several_mirrors_meet_faults(void)
{
	World	   *world = world_make(4, 2);
	uint32_t   *entries;
	uint32_t   *generations;
	int			number;

	if (server_up(world, "busy_every=3,error_every=151,delay_us=200") &&
		entry_load(world->area, 0, 40) && entry_load(world->area, 1, 70) &&
		entry_load(world->area, 2, 100))
	{
		number = channel_claim(world->area);
		expect_several(world, number, 3);
		expect_several(world, number, 8);
		expect_several(world, number, 100);
		(void) fill_several(world, number, 70, &entries, &generations);
		if (channel_call(world->area, number) != ENGINE_NO_MEMORY)
			case_fails("a query that failed does not fail its batch");
		expect_several(world, number, 64);
		channel_release(world->area, number);
	}
	world_free(world);
}

const TestCase several_cases[] = {
	{"batches_go_to_several_mirrors", batches_go_to_several_mirrors},
	{"several_mirrors_meet_faults", several_mirrors_meet_faults},
	{NULL, NULL}
};
