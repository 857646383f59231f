/*
 * protocol_test_sets.c
 *		Sets of rows: sent in parts, searched, spoilt, and released by their
 *		sessions.
 */
#include <string.h>

#include "protocol_test.h"
#include "engine/bits.h"

#define ROWS		1000
#define SLOTS		4			/* request slots of a world */
#define BIG			(1u << 29)	/* slots of a set that takes all memory of sets */

/* A set of rows, as its session knows it. */
typedef struct TestSet
{
	SetName		name;
	uint64_t	bits[TEST_ROWS / 64 + 1];
	uint32_t	slots;
} TestSet;

/* Give a place an id that no set had before. */
static SetName
set_begin(World *world, uint32_t place)
{
	static uint64_t id = 1000;
	SetName		name = {++id, place, 0};

	atomic_store(&area_payload(world->area, place / REQUEST_SETS)->sets[place % REQUEST_SETS], id);
	return name;
}

static void
set_release(World *world, const TestSet *set)
{
	uint32_t	place = set->name.place;

	atomic_store(&area_payload(world->area, place / REQUEST_SETS)->sets[place % REQUEST_SETS], 0);
}

/* A part of a set that has no rows yet; the caller completes and posts it. */
static AreaChannel *
part_begin(World *world, int number, const TestSet *set, SetForm form)
{
	AreaChannel *channel = channel_prepare(world->area, number, CHANNEL_SET, 0);

	channel->request.query.set = set->name;
	channel->request.set_slots = set->slots;
	channel->request.arrays = form;
	return channel;
}

/* Send the bits [first, first + count) of a set. */
static EngineStatus
send_bits(World *world, int number, const TestSet *set, uint32_t first, uint32_t count)
{
	AreaChannel *channel = part_begin(world, number, set, SET_BITMAP);
	uint64_t   *bits = channel_array(world->area, number, &channel->request.body_offset, 0,
									 bits64_bytes(count));

	memcpy(bits, set->bits + first / 64, bits64_bytes(count));
	channel->request.first_slot = first;
	channel->request.count = count;
	return channel_call(world->area, number);
}

/* Send a set as lists, three slots a part; an empty one is one part. */
static EngineStatus
send_lists(World *world, int number, const TestSet *set)
{
	EngineStatus status = ENGINE_OK;
	uint32_t	slot = 0;

	do
	{
		AreaChannel *channel = part_begin(world, number, set, SET_SLOTS);
		uint32_t   *slots =
			channel_array(world->area, number, &channel->request.slots_offset, 64, 12);

		for (; slot < set->slots && channel->request.count < 3; slot++)
			if (bit64_is_set(set->bits, slot))
				slots[channel->request.count++] = slot;
		status = channel_call(world->area, number);
	} while (status == ENGINE_OK && slot < set->slots);
	return status;
}

/* Searches within a set, by request and by channel, are answered exactly. */
static void
expect_within(World *world, int number, const TestSet *set, const char *what)
{
	uint64_t	random = set->name.id;
	Search		search;
	Answer		answer;
	Client		client;
	const char *wrong;

	client_begin(&client, world->area, 0);
	for (uint32_t i = 0; i < 6 && !case_failed(); i++)
	{
		search_random(&search, world->area, 0, &random);
		search.set = set->name;
		search.within = set->bits;
		search.has_beyond &= i % 2;
		if (i % 3 == 2)
		{
			search.has_beyond = 0;
			channel_fill_searches(world->area, number, &search, 1);
			if (channel_call(world->area, number) != ENGINE_OK ||
				!channel_read_answer(world->area, number, 0, &answer))
				case_fails("%s: not answered by channel", what);
		}
		else if (client_search(&client, &search, LONG_MS * 1000, &answer) != OUTCOME_ANSWERED ||
				 answer.status != ENGINE_OK)
			case_fails("%s: not answered: %.100s", what, answer.error);
		if (!case_failed() && (wrong = answer_wrong(&search, &answer)) != NULL)
			case_fails("%s: %s", what, wrong);
	}
}

/* What a search within a set gets. */
static uint32_t
status_within(World *world, uint32_t entry, const SetName *name, uint32_t method)
{
	uint64_t	random = 7;
	Search		search;
	Answer		answer = {.status = 999};
	Client		client;

	search_random(&search, world->area, entry, &random);
	search.has_beyond = 0;
	search.method = method;
	search.set = *name;
	client_begin(&client, world->area, 0);
	(void) client_search(&client, &search, LONG_MS * 1000, &answer);
	return answer.status;
}

/* A world with a mirror, and a channel of ours. */
static World *
sets_world(int *number)
{
	World	   *world = world_make(SLOTS, 2);

	if (server_up(world, NULL) && entry_load(world->area, 0, ROWS))
		*number = channel_claim(world->area);
	return world;
}

/* Every third row from `first` on, below `slots`. */
static void
fill_thirds(TestSet *set, uint32_t first, uint32_t slots)
{
	memset(set->bits, 0, sizeof(set->bits));
	set->slots = slots;
	for (uint32_t slot = first; slot < slots; slot += 3)
		bit64_set(set->bits, slot);
}

/* Sets of no, one, some and all rows, and of rows that the mirror lacks. */
static void
sets_are_searched(void)
{
	int			number = 0;
	World	   *world = sets_world(&number);
	static TestSet set;

	for (uint32_t kind = 0; kind < 8 && !case_failed(); kind++)
	{
		EngineStatus status;
		bool		lists = kind % 2 == 1;

		fill_thirds(&set, kind / 2 == 0 ? ROWS : kind % 3, kind == 6 ? 192 : TEST_ROWS);
		if (kind / 2 == 1)
			fill_thirds(&set, 699, 700);
		if (kind == 5)
			memset(set.bits, 0xFF, TEST_ROWS / 8);
		set.name = set_begin(world, kind % REQUEST_SETS);
		if (lists)
			status = send_lists(world, number, &set);
		else
			status = send_bits(world, number, &set, 0, set.slots);
		if (status != ENGINE_OK)
			case_fails("set %u is refused: %.100s", kind,
					   area_channel(world->area, (uint32_t) number)->error);
		expect_within(world, number, &set, lists ? "a list" : "a bitmap");
	}
	fill_thirds(&set, 1, ROWS);
	set.name = set_begin(world, 3);
	for (uint32_t first = 0; first < ROWS && !case_failed(); first += 320)
		if (send_bits(world, number, &set, first, ROWS - first < 320 ? ROWS - first : 320) !=
			ENGINE_OK)
			case_fails("part from %u on is refused", first);
	expect_within(world, number, &set, "in parts");
	(void) works(world, 0, 1);
	world_free(world);
}

/* A set is for its mirror, its id and exact searches, until it is released. */
static void
sets_end(void)
{
	int			number = 0;
	World	   *world = sets_world(&number);
	static TestSet set;
	SetName		other;

	fill_thirds(&set, 0, ROWS);
	set.name = set_begin(world, 9);
	if (case_failed() || !entry_load(world->area, 1, 10) ||
		send_bits(world, number, &set, 0, ROWS) != ENGINE_OK)
		case_fails("no set");
	if (status_within(world, 0, &set.name, METHOD_EXACT) != ENGINE_OK)
		case_fails("a set is not found");
	if (status_within(world, 0, &set.name, METHOD_GRAPH) != ENGINE_INVALID)
		case_fails("a graph is searched within a set");
	if (status_within(world, 1, &set.name, METHOD_EXACT) != ENGINE_NOT_FOUND)
		case_fails("another mirror is searched within a set");
	other = set.name;
	other.id++;
	if (status_within(world, 0, &other, METHOD_EXACT) != ENGINE_NOT_FOUND)
		case_fails("another set is searched");
	other.place = SLOTS * REQUEST_SETS;
	if (status_within(world, 0, &other, METHOD_EXACT) != ENGINE_NOT_FOUND)
		case_fails("a place beyond the last has a set");
	other.place = UINT32_MAX;
	if (status_within(world, 0, &other, METHOD_EXACT) != ENGINE_NOT_FOUND)
		case_fails("a place far beyond the last has a set");
	set_release(world, &set);
	if (status_within(world, 0, &set.name, METHOD_EXACT) != ENGINE_NOT_FOUND)
		case_fails("a set is searched that was released");
	if (send_bits(world, number, &set, 0, ROWS) != ENGINE_NOT_FOUND)
		case_fails("a set is made that nobody needs");
	set.name = set_begin(world, 9);
	if (send_bits(world, number, &set, 0, ROWS) != ENGINE_OK ||
		status_within(world, 0, &set.name, METHOD_EXACT) != ENGINE_OK)
		case_fails("a place is not used again");
	if (!case_failed() && entry_load(world->area, 0, ROWS) &&
		status_within(world, 0, &set.name, METHOD_EXACT) != ENGINE_NOT_FOUND)
		case_fails("a set outlives its mirror");
	world_free(world);
}

/* What is bad about a part. */
typedef enum BadPart
{
	PART_NO_SLOTS,
	PART_MANY_SLOTS,
	PART_FORM,
	PART_UNALIGNED,
	PART_BEYOND,
	PART_FAR_BEYOND,
	PART_OFFSET,
	PART_LIST_OFFSET,
	PART_LONG_LIST,
	PART_SLOT,
	PART_OTHER_SIZE,			/* from here on, of a set that is there */
	BAD_PARTS
} BadPart;

static EngineStatus
send_badly(World *world, int number, const TestSet *set, BadPart badness)
{
	bool		list = badness >= PART_LIST_OFFSET && badness <= PART_SLOT;
	AreaChannel *channel = part_begin(world, number, set, list ? SET_SLOTS : SET_BITMAP);
	ChannelRequest *request = &channel->request;
	uint32_t   *slots = channel_array(world->area, number, &request->slots_offset, 0, 256);

	memset(slots, 0, 256);
	request->count = 64;
	switch (badness)
	{
		case PART_NO_SLOTS:
			request->set_slots = request->count = 0;
			break;
		case PART_MANY_SLOTS:
			request->set_slots = UINT32_MAX;
			break;
		case PART_FORM:
			request->arrays = 2;
			break;
		case PART_UNALIGNED:
			request->first_slot = 32;
			break;
		case PART_BEYOND:
			request->first_slot = (set->slots / 64) * 64;
			break;
		case PART_FAR_BEYOND:
			request->first_slot = 64;
			request->count = UINT32_MAX - 63;
			break;
		case PART_OFFSET:
			request->body_offset = CHANNEL_DATA_BYTES;
			break;
		case PART_LIST_OFFSET:
			request->slots_offset = UINT64_MAX - 63;
			break;
		case PART_LONG_LIST:
			request->count = SET_PART_SLOTS + 1;
			break;
		case PART_SLOT:
			slots[40] = set->slots;
			break;
		default:
			request->set_slots++;
	}
	return channel_call(world->area, number);
}

/* Spoilt parts are refused, and end the set; sets beyond the memory too. */
static void
spoilt_sets_are_refused(void)
{
	int			number = 0;
	World	   *world = sets_world(&number);
	static TestSet set;

	fill_thirds(&set, 0, ROWS);
	for (uint32_t i = 0; i < 2 * BAD_PARTS && !case_failed(); i++)
	{
		bool		there = i >= BAD_PARTS;
		BadPart		badness = i % BAD_PARTS;

		set.name = set_begin(world, i % 3);
		if ((there || badness == PART_OTHER_SIZE) &&
			send_bits(world, number, &set, 0, ROWS) != ENGINE_OK)
			case_fails("no set");
		if (send_badly(world, number, &set, badness) != ENGINE_INVALID)
			case_fails("spoilt part %u is taken", i);
	}
	set.name = set_begin(world, 0);
	set.slots = BIG;
	if (!case_failed() && send_bits(world, number, &set, 0, ROWS) != ENGINE_OK)
		case_fails("a set that has just room is refused");
	set.name = set_begin(world, 1);
	set.slots = ROWS;
	if (!case_failed() && send_bits(world, number, &set, 0, ROWS) != ENGINE_NO_MEMORY)
		case_fails("sets take more than their memory");
	atomic_store(&area_payload(world->area, 0)->sets[0], 0);
	if (!case_failed() && send_bits(world, number, &set, 0, ROWS) != ENGINE_OK)
		case_fails("memory of a set that was released is not used");
	set.name = set_begin(world, 1);
	set.slots = BIG + 64;
	if (!case_failed() && send_bits(world, number, &set, 0, ROWS) != ENGINE_NO_MEMORY)
		case_fails("a set takes more than all memory");
	(void) works(world, 0, 1);
	world_free(world);
}

const TestCase set_cases[] = {
	{"sets_are_searched", sets_are_searched},
	{"sets_end", sets_end},
	{"spoilt_sets_are_refused", spoilt_sets_are_refused},
	{NULL, NULL}
};
