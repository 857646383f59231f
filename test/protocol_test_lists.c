/*
 * protocol_test_lists.c
 *		Mirrors of lists: filled, searched, and their probes counted.
 */
#include <math.h>
#include <signal.h>
#include <string.h>

#include "protocol_test.h"

#define LISTS	3
#define FIRST	128				/* count of the first list */
#define BESIDE	7.0				/* what stands before and behind the range */

/* Send floats of a codebook. */
static EngineStatus
send_floats(World *world, int number, uint32_t first, uint32_t count)
{
	AreaChannel *channel = channel_prepare(world->area, number, CHANNEL_CODEBOOK, 1);
	float	   *floats = channel_array(world->area, number, &channel->request.body_offset, 0,
									   count * sizeof(float));

	for (uint32_t i = 0; i < count; i++)
		floats[i] = (float) (first + i);
	channel->request.first_slot = first;
	channel->request.count = count;
	return channel_call(world->area, number);
}

/* A mirror of lists is filled and searched; what does not fit is refused. */
static void
lists_are_filled_and_searched(void)
{
	World	   *world = world_make(4, 2);
	const uint32_t floats = 3 * TEST_DIMS;
	AreaChannel *channel;
	int			number;

	if (!server_up(world, NULL) || !entry_load(world->area, 0, 10))
	{
		world_free(world);
		return;
	}
	number = channel_claim(world->area);
	(void) entry_claim(world->area, 1);
	channel = channel_prepare(world->area, number, CHANNEL_CREATE, 1);
	channel->request.spec = (MirrorSpec) {
		.dims = TEST_DIMS, .type = ELEMENT_FLOAT, .metric = METRIC_L2, .method = METHOD_IVFPQ,
		.degree = 1, .capacity = TEST_ROWS, .residency = RESIDENCY_FULL,
		.placement = PLACEMENT_SINGLE, .device = -1, .lists = {3, QUANTIZER_INT8, 8, 0, 5}
	};
	if (channel_call(world->area, number) != ENGINE_OK ||
		entry_append(world->area, number, 1, 0, 10) != ENGINE_OK)
		case_fails("no mirror of lists: %.100s", channel->error);
	else if (send_floats(world, number, 1, 1) != ENGINE_INVALID ||
			 send_floats(world, number, 0, floats + 1) != ENGINE_INVALID)
		case_fails("floats that do not follow are taken");
	else if (send_floats(world, number, 0, 5) != ENGINE_OK ||
			 send_floats(world, number, 5, floats - 5) != ENGINE_OK)
		case_fails("floats are refused: %.100s", channel->error);
	else if (send_floats(world, number, floats, 1) != ENGINE_INVALID)
		case_fails("floats behind the last are taken");
	channel = channel_prepare(world->area, number, CHANNEL_GRAPH, 1);
	for (uint32_t i = 0; i < 2; i++)
	{
		uint32_t   *slots =
			channel_array(world->area, number, &channel->request.slots_offset, 0, 4);
		uint32_t   *rows = channel_array(world->area, number, &channel->request.body_offset, 4, 4);

		*slots = 7;
		*rows = i == 0 ? 3 : 2;
		channel->request.count = 1;
		if (channel_call(world->area, number) != (i == 0 ? ENGINE_INVALID : ENGINE_OK))
			case_fails("list %u of 3: %.100s", *rows, channel->error);
		channel = channel_prepare(world->area, number, CHANNEL_GRAPH, 1);
	}
	channel_release(world->area, number);
	(void) works(world, 0, 0);
	(void) works(world, 1, 0);
	world_free(world);
}

/* Fetch arrays of entry 1's last link or training; all of them must come. */
static const unsigned char *
fetch_arrays(World *world, int number, FetchArrays arrays, uint32_t count)
{
	AreaChannel *channel = channel_prepare(world->area, number, CHANNEL_LINK_FETCH, 1);

	channel->request.arrays = arrays;
	if (channel_call(world->area, number) != ENGINE_OK || channel->out_count != count)
		case_fails("%u of %u elements come: %.100s", channel->out_count, count, channel->error);
	return area_channel_data(world->area, (uint32_t) number);
}

/* Train entry 1, link its rows, and fetch what both made. */
static void
train_and_link(World *world, int number)
{
	const uint32_t floats = 3 * TEST_DIMS;
	AreaChannel *channel = channel_prepare(world->area, number, CHANNEL_TRAIN, 1);
	const uint32_t *slots;
	const uint32_t *numbers;
	double		distance;

	channel->request.count = UINT32_MAX;
	if (channel_call(world->area, number) != ENGINE_OK || channel->out_count != floats)
		case_fails("%u floats are learned: %.100s", channel->out_count, channel->error);
	(void) fetch_arrays(world, number, FETCH_FLOATS, floats);
	channel = channel_prepare(world->area, number, CHANNEL_LINK_FETCH, 1);
	channel->request.arrays = FETCH_CODES;
	if (channel_call(world->area, number) != ENGINE_INVALID)
		case_fails("a training has codes");
	channel = channel_prepare(world->area, number, CHANNEL_LINK, 1);
	if (channel_call(world->area, number) != ENGINE_OK || channel->out_count != 10)
		case_fails("%u rows are linked: %.100s", channel->out_count, channel->error);
	distance = channel->out_distance;
	if (!(distance > 0))
		case_fails("rows are %g from their centroids", distance);
	slots = (const uint32_t *) (const void *) fetch_arrays(world, number, FETCH_CODES, 10);
	numbers = slots + channel->out_offset / sizeof(uint32_t);
	for (uint32_t i = 0; i < 10; i++)
		if (slots[i] != i || numbers[i] >= 3)
			case_fails("slot %u is in list %u", slots[i], numbers[i]);
	if (channel->out_codes_offset < channel->out_offset + 10 * sizeof(uint32_t))
		case_fails("codes begin within the numbers of lists");
}

/* Lists are trained and rows put into them; what both made can be fetched. */
static void
lists_are_trained_and_linked(void)
{
	World	   *world = world_make(4, 2);
	AreaChannel *channel;
	int			number;

	if (server_up(world, NULL) && entry_load(world->area, 0, 10))
	{
		number = channel_claim(world->area);
		(void) entry_claim(world->area, 1);
		channel = channel_prepare(world->area, number, CHANNEL_CREATE, 1);
		channel->request.spec = (MirrorSpec) {
			.dims = TEST_DIMS, .type = ELEMENT_FLOAT, .metric = METRIC_L2, .method = METHOD_IVFPQ,
			.degree = 1, .capacity = TEST_ROWS, .residency = RESIDENCY_FULL,
			.placement = PLACEMENT_SINGLE, .device = -1, .lists = {3, QUANTIZER_INT8, 8, 0, 5}
		};
		if (channel_call(world->area, number) != ENGINE_OK ||
			entry_append(world->area, number, 1, 0, 10) != ENGINE_OK)
			case_fails("no mirror of lists: %.100s", channel->error);
		else
			train_and_link(world, number);
		channel = channel_prepare(world->area, number, CHANNEL_TRAIN, 0);
		channel->request.ef_construction = 32;
		if (channel_call(world->area, number) != ENGINE_INVALID)
			case_fails("a mirror with a graph is trained");
		channel_release(world->area, number);
		(void) works(world, 0, 0);
		(void) works(world, 1, 0);
	}
	world_free(world);
}

/* A mirror of lists for entry 1, whose word says where its counts are. */
static void
create_counted(World *world, int number, uint64_t word)
{
	AreaChannel *channel;

	atomic_store(&area_mirror(world->area, 1)->list_counts, word);
	(void) entry_claim(world->area, 1);
	channel = channel_prepare(world->area, number, CHANNEL_CREATE, 1);
	channel->request.spec = (MirrorSpec) {
		.dims = TEST_DIMS, .type = ELEMENT_FLOAT, .metric = METRIC_L2, .method = METHOD_IVFPQ,
		.degree = 1, .capacity = TEST_ROWS, .residency = RESIDENCY_FULL,
		.placement = PLACEMENT_SINGLE, .device = -1, .lists = {LISTS, QUANTIZER_INT8, 8, 0, 5}
	};
	if (channel_call(world->area, number) != ENGINE_OK ||
		entry_append(world->area, number, 1, 0, 10) != ENGINE_OK ||
		send_floats(world, number, 0, LISTS * TEST_DIMS) != ENGINE_OK)
		case_fails("no mirror of lists: %.100s", channel->error);
}

static _Atomic double *
count_of(World *world, uint32_t list)
{
	return (_Atomic double *) ((char *) world->area + world->area->list_counts_offset) + FIRST +
		list;
}

static double
total(World *world)
{
	double		sum = 0;

	for (uint32_t i = 0; i < LISTS; i++)
		sum += atomic_load(count_of(world, i));
	return sum;
}

/* Search lists a few times: 2 probes each. */
static void
probe(World *world, uint32_t searches)
{
	Search		search = {.entry = 1, .method = METHOD_IVFPQ, .k = 3, .probes = 2};
	static Answer answer;
	Client		client;

	search.generation = atomic_load(&area_mirror(world->area, 1)->generation);
	client_begin(&client, world->area, 0);
	for (uint32_t i = 0; i < searches; i++)
		if (client_search(&client, &search, LONG_MS * 1000, &answer) != OUTCOME_ANSWERED ||
			answer.status != ENGINE_OK || answer.count != 3)
			case_fails("a search of lists is not answered: %.100s", answer.error);
}

/* Have counts taken: they are what is expected, within what aging takes. */
static void
expect_counts(World *world, int number, double expected, const char *what)
{
	(void) channel_prepare(world->area, number, CHANNEL_COUNT_LISTS, 1);
	if (channel_call(world->area, number) != ENGINE_OK)
		case_fails("%s: counts are not taken: %.100s", what,
				   area_channel(world->area, (uint32_t) number)->error);
	if (!(fabs(total(world) - expected) < .01 * (1 + expected)))
		case_fails("%s: %g probes are counted, not %g", what, total(world), expected);
	if (atomic_load(count_of(world, 0) - 1) != BESIDE ||
		atomic_load(count_of(world, LISTS)) != BESIDE)
		case_fails("%s: counts of other mirrors have changed", what);
}

/* A world with counts for entry 1. */
static World *
counted_world(int *number)
{
	World	   *world = world_make(4, 2);

	if (!server_up(world, NULL))
		return world;
	atomic_store(count_of(world, 0) - 1, BESIDE);
	atomic_store(count_of(world, LISTS), BESIDE);
	*number = channel_claim(world->area);
	create_counted(world, *number, list_counts_word((ListCountsRange) {FIRST, LISTS}));
	return world;
}

/* Probes are counted once, age, and go to no other mirror. */
static void
probes_are_counted(void)
{
	int			number = 0;
	World	   *world = counted_world(&number);
	AreaMirror *mirror = area_mirror(world->area, 1);

	if (!case_failed())
	{
		expect_counts(world, number, 0, "no search");
		probe(world, 20);
		expect_counts(world, number, 40, "20 searches");
		expect_counts(world, number, 40, "no more");
		atomic_fetch_sub(&mirror->lists_counted_at, LIST_COUNTS_HALF_LIFE_US);
		probe(world, 1);
		expect_counts(world, number, 22, "a day later");
		for (uint32_t i = 0; i < LISTS; i++)
			atomic_store(count_of(world, i), i == 0 ? NAN : i == 1 ? -5 : INFINITY);
		probe(world, 2);
		expect_counts(world, number, 4, "what is no number");
		atomic_store(&mirror->list_counts, list_counts_word((ListCountsRange) {256, LISTS}));
		probe(world, 2);
		expect_counts(world, number, 4, "another range");
	}
	world_free(world);
}

/* Mirrors without counts, or with such as cannot be, are searched as well. */
static void
probes_need_not_be_counted(void)
{
	static const ListCountsRange ranges[] = {
		{0, 0}, {FIRST, LISTS - 1}, {AREA_LIST_COUNTS - 1, LISTS}, {UINT32_MAX, UINT32_MAX}};
	int			number = 0;
	World	   *world = counted_world(&number);

	for (uint32_t i = 0; i < 4 && !case_failed(); i++)
	{
		create_counted(world, number, list_counts_word(ranges[i]));
		probe(world, 3);
		(void) channel_prepare(world->area, number, CHANNEL_COUNT_LISTS, 1);
		if (channel_call(world->area, number) != ENGINE_UNSUPPORTED)
			case_fails("probes of range %u are counted", i);
	}
	(void) channel_prepare(world->area, number, CHANNEL_COUNT_LISTS, 2);
	if (!case_failed() && channel_call(world->area, number) != ENGINE_NOT_FOUND)
		case_fails("probes of no mirror are counted");
	world_free(world);
}

/* Nothing is lost when a mirror is dropped, or the server told to end. */
static void
probes_outlive_their_mirror(void)
{
	int			number = 0;
	World	   *world = counted_world(&number);
	uint64_t	word = atomic_load(&area_mirror(world->area, 1)->list_counts);

	if (!case_failed())
	{
		probe(world, 10);
		(void) entry_claim(world->area, 1);
		for (int64_t until = now_us() + LONG_MS * 1000; total(world) < 19 && now_us() < until;)
			pause_us(10000);
		if (!(total(world) > 19))
			case_fails("a mirror that was given up leaves %g counts", total(world));
		create_counted(world, number, word);
		probe(world, 10);
		channel_release(world->area, number);
		kill(world->server, SIGTERM);
		if (server_reap(world, LONG_MS) != 0)
			case_fails("the server does not end");
		if (!(total(world) > 39 && total(world) < 40.01))
			case_fails("a server that ends leaves %g counts", total(world));
	}
	world_free(world);
}

const TestCase list_cases[] = {
	{"lists_are_filled_and_searched", lists_are_filled_and_searched},
	{"lists_are_trained_and_linked", lists_are_trained_and_linked},
	{"probes_are_counted", probes_are_counted},
	{"probes_need_not_be_counted", probes_need_not_be_counted},
	{"probes_outlive_their_mirror", probes_outlive_their_mirror},
	{NULL, NULL}
};
