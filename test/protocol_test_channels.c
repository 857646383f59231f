/*
 * protocol_test_channels.c
 *		Channels: loading, replacing, large answers, and whatever a client may
 *		write into them.
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "protocol_test.h"

#define FUZZED_REQUESTS	20000
#define FUZZED_CHANNELS	3000

/* Whether an ordinary search of an entry is answered rightly. */
bool
works(World *world, uint32_t entry, uint32_t slot)
{
	static uint64_t random = 99;
	Client		client;
	Search		search;
	Answer		answer;
	const char *wrong;

	client_begin(&client, world->area, slot);
	search_random(&search, world->area, entry, &random);
	if (client_search(&client, &search, LONG_MS * 1000, &answer) != OUTCOME_ANSWERED)
		case_fails("a good request is not answered");
	else if (answer.status != ENGINE_OK)
		case_fails("a good request is refused: %s", answer.error);
	else if ((wrong = answer_wrong(&search, &answer)) != NULL)
		case_fails("wrong answer: %s", wrong);
	return !case_failed();
}

static void
entry_generations_are_kept_apart(void)
{
	World	   *world = world_make(4, 2);
	AreaMirror *mirror = area_mirror(world->area, 3);
	uint32_t	old;
	int			channel;

	if (server_up(world, NULL) && entry_load(world->area, 3, 100) && works(world, 3, 0))
	{
		if (atomic_load(&mirror->rows) != 100 || atomic_load(&mirror->position) != 100 ||
			atomic_load(&mirror->bytes) == 0)
			case_fails("the entry's figures are not published");
		channel = channel_claim(world->area);
		old = atomic_load(&mirror->generation);
		if (entry_claim(world->area, 3) == old ||
			entry_append(world->area, channel, 3, 100, 10) != ENGINE_NOT_FOUND)
			case_fails("a new generation finds the old mirror");
		if (entry_create(world->area, channel, 3) != ENGINE_OK ||
			entry_append(world->area, channel, 3, 0, 20) != ENGINE_OK)
			case_fails("the mirror is not replaced: %.100s",
					   area_channel(world->area, (uint32_t) channel)->error);
		channel_prepare(world->area, channel, CHANNEL_APPEND, 3)->request.mirror_generation = old;
		if (channel_call(world->area, channel) != ENGINE_NOT_FOUND)
			case_fails("the old generation is still found");
		channel_prepare(world->area, channel, CHANNEL_CREATE, 3)->request.mirror_generation = old;
		if (channel_call(world->area, channel) != ENGINE_NOT_FOUND)
			case_fails("an old generation can be created");
		works(world, 3, 0);
		channel_prepare(world->area, channel, CHANNEL_DROP, 3);
		if (channel_call(world->area, channel) != ENGINE_OK ||
			channel_call(world->area, channel) != ENGINE_NOT_FOUND)
			case_fails("a drop does not drop once");
		channel_release(world->area, channel);
	}
	world_free(world);
}

static void
dropped_mirrors_give_their_memory_back(void)
{
	World	   *world = world_make(4, 2);
	uint64_t	before;
	uint64_t	after = 0;

	if (server_up(world, NULL) && entry_load(world->area, 0, 1500))
	{
		before = atomic_load(&world->area->memory_used);
		for (int i = 0; i < 300 && !case_failed(); i++)
		{
			uint32_t	entry = (uint32_t) i % 7;

			/* Some are replaced in place, some orphaned and swept. */
			entry_load(world->area, entry, 1500);
			if (!works(world, entry, 0))
				break;
			if (entry != 0)
				entry_claim(world->area, entry);
		}
		for (int64_t until = now_us() + LONG_MS * 1000; now_us() < until; pause_us(10000))
			if ((after = atomic_load(&world->area->memory_used)) <= before)
				break;
		if (after > before)
			case_fails("memory grew from %llu to %llu", (unsigned long long) before,
					   (unsigned long long) after);
	}
	world_free(world);
}

/* Post a request with one field spoilt and return the answer's status. */
static EngineStatus
spoilt_status(World *world, void (*spoil) (RequestPayload *, uint64_t), uint64_t value)
{
	static uint64_t random = 5;
	Client		client;
	Search		search;
	Answer		answer;
	_Atomic uint32_t *word = area_word(world->area, 1);

	client_begin(&client, world->area, 1);
	search_random(&search, world->area, 0, &random);
	search.method = METHOD_GRAPH;
	if (!client_post(&client, &search) ||
		client_wait(&client, LONG_MS * 1000, &answer) != OUTCOME_ANSWERED)
		return ENGINE_FAILED;
	/* Now again with the payload as it is, but for the spoilt field. */
	spoil(area_payload(world->area, 1), value);
	client.generation++;
	atomic_store(word, request_word(client.generation, REQUEST_POSTED));
	area_ring(world->area);
	if (client_wait(&client, LONG_MS * 1000, &answer) != OUTCOME_ANSWERED)
		return ENGINE_FAILED;
	return (EngineStatus) answer.status;
}

#define SPOILER(name, field) \
	static void spoil_##name(RequestPayload *payload, uint64_t value) \
	{ \
		payload->field = (uint32_t) value; \
	}
SPOILER(mirror, mirror)
SPOILER(mirror_generation, mirror_generation)
SPOILER(method, query.method)
SPOILER(k, query.k)
SPOILER(ef, query.ef)
SPOILER(vector_bytes, query.vector_bytes)
SPOILER(has_beyond, query.has_beyond)

static void
spoil_beyond(RequestPayload *payload, uint64_t value)
{
	payload->query.has_beyond = 1;
	payload->query.beyond_distance = (double) NAN;
}

static void
spoilt_requests_are_refused(void)
{
	static const struct
	{
		const char *name;
		void		(*spoil) (RequestPayload *, uint64_t);
		uint64_t	value;
		EngineStatus status;
	}			spoilt[] = {
		{"mirror", spoil_mirror, AREA_MIRRORS, ENGINE_INVALID},
		{"mirror", spoil_mirror, UINT32_MAX, ENGINE_INVALID},
		{"mirror", spoil_mirror, 17, ENGINE_NOT_FOUND},
		{"mirror_generation", spoil_mirror_generation, 12345, ENGINE_NOT_FOUND},
		{"method", spoil_method, 0, ENGINE_INVALID},
		{"method", spoil_method, METHOD_IVFPQ, ENGINE_INVALID},
		{"method", spoil_method, UINT32_MAX, ENGINE_INVALID},
		{"k", spoil_k, 0, ENGINE_INVALID},
		{"k", spoil_k, PAYLOAD_RESULTS + 1, ENGINE_INVALID},
		{"k", spoil_k, UINT32_MAX, ENGINE_INVALID},
		{"ef", spoil_ef, 0, ENGINE_INVALID},
		{"ef", spoil_ef, ENGINE_MAX_EF + 1, ENGINE_INVALID},
		{"vector_bytes", spoil_vector_bytes, 0, ENGINE_INVALID},
		{"vector_bytes", spoil_vector_bytes, TEST_DIMS * 4 + 4, ENGINE_INVALID},
		{"vector_bytes", spoil_vector_bytes, UINT32_MAX, ENGINE_INVALID},
		{"has_beyond", spoil_has_beyond, 2, ENGINE_INVALID},
		{"beyond_distance", spoil_beyond, 0, ENGINE_INVALID},
	};
	World	   *world = world_make(4, 2);

	if (server_up(world, NULL) && entry_load(world->area, 0, 100))
		for (size_t i = 0; i < sizeof(spoilt) / sizeof(spoilt[0]) && !case_failed(); i++)
		{
			EngineStatus status = spoilt_status(world, spoilt[i].spoil, spoilt[i].value);

			if (status != spoilt[i].status)
				case_fails("%s = %llu gives status %d", spoilt[i].name,
						   (unsigned long long) spoilt[i].value, (int) status);
			works(world, 0, 0);
		}
	world_free(world);
}

/*
 * Random bytes, with some fields right, so that the checks behind the first
 * ones are met too.
 */
static void
fuzz_payload(World *world, RequestPayload *payload, uint64_t *random)
{
	uint64_t	right = next_random(random);

	for (size_t i = 0; i < offsetof(RequestPayload, results) / 4; i++)
		((uint32_t *) payload)[i] = (uint32_t) next_random(random);
	for (size_t i = 0; i < TEST_DIMS; i++)
		((uint32_t *) payload->vector)[i] = (uint32_t) next_random(random);
	if ((right & 0xf) != 0)
		payload->mirror = 0;
	if ((right & 0xf0) != 0)
		payload->mirror_generation = atomic_load(&area_mirror(world->area, 0)->generation);
	if ((right & 0xf00) != 0)
		payload->query.method = right & (1 << 20) ? METHOD_EXACT : METHOD_GRAPH;
	if ((right & 0xf000) != 0)
		payload->query.k = 1 + payload->query.k % PAYLOAD_RESULTS;
	if ((right & 0xf0000) != 0)
		payload->query.ef = 1 + payload->query.ef % 200;
	if ((right & 0xf00000) != 0)
		payload->query.vector_bytes = TEST_DIMS * 4;
	if ((right & 0xf000000) != 0)
		payload->query.has_beyond &= 1;
	if ((right & 0xf0000000) != 0)
		payload->query.set.id = 0;
	if ((right & 0xf00000000) != 0)
	{
		payload->query.program_steps %= 3;
		payload->query.program_values %= 4;
	}
}

static void
random_requests_do_no_harm(void)
{
	World	   *world = world_make(4, 2);
	uint64_t	random = 31;
	uint32_t	answered = 0;
	Client		client;

	if (server_up(world, NULL) && entry_load(world->area, 0, 200))
	{
		client_begin(&client, world->area, 2);
		for (int i = 0; i < FUZZED_REQUESTS && !case_failed(); i++)
		{
			Answer		answer;
			_Atomic uint32_t *word = area_word(world->area, 2);

			fuzz_payload(world, area_payload(world->area, 2), &random);
			client.generation =
				request_generation(request_word(client.generation + 1, REQUEST_FREE));
			atomic_store(word, request_word(client.generation, REQUEST_POSTED));
			area_ring(world->area);
			if (client_wait(&client, LONG_MS * 1000, &answer) != OUTCOME_ANSWERED)
				case_fails("a random request is not answered");
			else if (answer.status == ENGINE_OK && answer.count > PAYLOAD_RESULTS)
				case_fails("%u results", answer.count);
			answered += answer.status == ENGINE_OK;
			if (i % 1000 == 0)
				works(world, 0, 0);
		}
		if (!case_failed() && answered < FUZZED_REQUESTS / 20)
			case_fails("only %u of the random requests were good: the fuzzing is too shallow",
					   answered);
	}
	world_free(world);
}

static void
random_words_do_no_harm(void)
{
	World	   *world = world_make(4, 2);
	uint64_t	random = 32;

	if (server_up(world, "delay_us=300") && entry_load(world->area, 0, 200))
	{
		for (int i = 0; i < 2000 && !case_failed(); i++)
		{
			/* Whatever the word says, even while the server has the slot. */
			atomic_store(area_word(world->area, 2), (uint32_t) next_random(&random));
			area_ring(world->area);
			pause_us((int64_t) (next_random(&random) % 200));
			if (i % 50 == 0)
				works(world, 0, 0);
		}
		for (int64_t until = now_us() + 100000; now_us() < until;)
			pause_us(1000);
		atomic_store(area_word(world->area, 2), request_word(1, REQUEST_FREE));
		works(world, 0, 2);
	}
	world_free(world);
}

/* Random channel fields, many of them right. */
static void
fuzz_channel(World *world, AreaChannel *channel, uint64_t *random)
{
	uint64_t	right = next_random(random);

	for (size_t i = offsetof(AreaChannel, request) / 4; i < offsetof(AreaChannel, status) / 4; i++)
		((uint32_t *) channel)[i] = (uint32_t) next_random(random);
	if ((right & 0xf) != 0)
		channel->request.op = 1 + channel->request.op % CHANNEL_SET;
	if ((right & 0xf0) != 0)
		channel->request.mirror = next_random(random) % 2 == 0 ? 0 : 1;
	if ((right & 0xf00) != 0)
		channel->request.mirror_generation = atomic_load(
			&area_mirror(world->area, channel->request.mirror % AREA_MIRRORS)->generation);
	if ((right & 0xf000) != 0)
		channel->request.count %= 300;
	if ((right & 0xf0000) != 0)
		channel->request.first_slot %= 5000;
	if ((right & 0x300000) != 0)
	{
		channel->request.slots_offset %= CHANNEL_DATA_BYTES / 64 * 64;
		channel->request.slots_offset = channel->request.slots_offset / 64 * 64;
		channel->request.versions_offset =
			channel->request.versions_offset % CHANNEL_DATA_BYTES / 64 * 64;
		channel->request.dead_offset = channel->request.dead_offset % CHANNEL_DATA_BYTES / 64 * 64;
		channel->request.body_offset = channel->request.body_offset % CHANNEL_DATA_BYTES / 64 * 64;
		channel->request.columns_offset =
			channel->request.columns_offset % CHANNEL_DATA_BYTES / 64 * 64;
	}
	if ((right & 0xc00000) != 0)
	{
		channel->request.has_dead &= 1;
		channel->request.arrays %= 5;
		channel->request.has_position &= 1;
		channel->request.query.has_beyond &= 1;
		channel->request.ef_construction = 4 + channel->request.ef_construction % 100;
		channel->request.query.vector_bytes = TEST_DIMS * 4;
		channel->request.query.method = METHOD_EXACT;
		channel->request.query.k = 1 + channel->request.query.k % 5000;
		channel->request.query.program_steps %= 3;
		channel->request.query.program_values %= 4;
	}
	if ((right & 0xf000000) != 0)
		channel->request.spec =
			(MirrorSpec){TEST_DIMS,		 ELEMENT_FLOAT,	   METRIC_L2,
						 METHOD_GRAPH,	 TEST_DEGREE,	   (uint32_t) right % 1000,
						 RESIDENCY_FULL, PLACEMENT_SINGLE, -1,
						 {0},			 (uint32_t) right % 3,
						 {FILTER_I32, FILTER_F64}};
	if ((right & 0x30000000) == 0)
	{
		channel->request.spec.method = METHOD_IVFPQ;
		channel->request.spec.degree = 1;
		channel->request.spec.lists =
			(ListSpec){1 + (uint32_t) right % 20, QUANTIZER_RABITQ, 1, 0, right, COOC_AUTO};
	}
	/* Few ids and places, so that sets are made, added to and searched. */
	if ((right & 0x3000000000) != 0)
	{
		SetName    *set = &channel->request.query.set;

		*set = (SetName) {channel->request.op == CHANNEL_SET ? 1 + right % 3 : right % 4,
						  (uint32_t) (right >> 8) % (4 * REQUEST_SETS), 0};
		channel->request.set_slots %= 5000;
		atomic_store(&area_payload(world->area, set->place / REQUEST_SETS)
					 ->sets[set->place % REQUEST_SETS], set->id);
	}
	/* Entry 0 must keep its mirror and rows. */
	if (channel->request.mirror == 0 && channel->request.op != CHANNEL_SEARCH &&
		channel->request.op != CHANNEL_LINK_FORGET && channel->request.op != CHANNEL_SET)
		channel->request.mirror = 1;
	for (int i = 0; i < 400; i++)
		((uint32_t *) area_channel_data(
			world->area,
			0))[channel->request.slots_offset % CHANNEL_DATA_BYTES / 4 / 512 + (uint32_t) i] =
			(uint32_t) (right & 0x10000000 ? next_random(random) : next_random(random) % 100);
}

static void
random_channels_do_no_harm(void)
{
	World	   *world = world_make(4, 2);
	uint64_t	random = 33;
	uint32_t	done = 0;
	uint64_t	statuses = 0;

	if (server_up(world, NULL) && entry_load(world->area, 0, 200) &&
		entry_load(world->area, 1, 100))
	{
		int			channel = channel_claim(world->area);

		for (int i = 0; i < FUZZED_CHANNELS && !case_failed(); i++)
		{
			EngineStatus status;

			fuzz_channel(world, area_channel(world->area, (uint32_t) channel), &random);
			channel_post(world->area, channel);
			status = channel_wait(world->area, channel, LONG_MS);
			if (status == ENGINE_FAILED || status > ENGINE_FAILED)
				case_fails("a random channel operation is not answered, op %u",
						   area_channel(world->area, (uint32_t) channel)->request.op);
			done += status == ENGINE_OK;
			statuses |= UINT64_C(1) << status;
			if (i % 100 == 0)
				works(world, 0, 0);
		}
		if (!case_failed() &&
			(done < FUZZED_CHANNELS / 20 || (statuses & 1 << ENGINE_INVALID) == 0))
			case_fails("only %u of the random channels were good: the fuzzing is too shallow",
					   done);
		channel_release(world->area, channel);
	}
	world_free(world);
}

static void
large_answers_go_through_channels(void)
{
	World	   *world = world_make(4, 2);
	int			number;
	AreaChannel *channel;
	Search		search;
	Answer		answer;
	uint64_t	random = 11;
	uint32_t	first = 0;

	if (server_up(world, NULL) && entry_load(world->area, 0, TEST_ROWS))
	{
		search_random(&search, world->area, 0, &random);
		search.has_beyond = 0;
		search.k = 100000;
		number = channel_claim(world->area);
		channel = area_channel(world->area, (uint32_t) number);
		channel_fill_searches(world->area, number, &search, 1);
		REQUIRE(channel_call(world->area, number) == ENGINE_OK, "channel search: %.100s",
				channel->error);
		REQUIRE(channel_read_answer(world->area, number, 0, &answer),
				"the answer is not in the channel");
		REQUIRE(answer.count == TEST_ROWS && answer.rows == TEST_ROWS &&
					answer.position == TEST_ROWS,
				"%u results, %u rows", answer.count, answer.rows);
		for (const SearchResult *result =
				 (const SearchResult *) (area_channel_data(world->area, (uint32_t) number) +
										 channel->out_offset);
			 first + 1 < TEST_ROWS; first++)
			if (!engine_before(result[first].distance, result[first].slot,
							   result[first + 1].distance, result[first + 1].slot))
				case_fails("results %u and %u are not in order", first, first + 1);
		search.k = answer.count = PAYLOAD_RESULTS;
		if (answer_wrong(&search, &answer) != NULL)
			case_fails("%s", answer_wrong(&search, &answer));
		search.k = 1u << 30;
		channel_fill_searches(world->area, number, &search, 1);
		if (channel_call(world->area, number) != ENGINE_INVALID)
			case_fails("an answer larger than a channel is promised");
		channel_release(world->area, number);
	}
	world_free(world);
}

/*
 * Post so many searches in a channel; the status, and with ENGINE_OK every
 * answer is right.
 */
static EngineStatus
batch_status(World *world, int number, uint32_t count, uint32_t k)
{
	static Search searches[MAX_CHANNEL_SEARCHES];
	uint64_t	random = count;
	EngineStatus status;
	Answer		answer;
	const char *wrong;

	for (uint32_t i = 0; i < count; i++)
	{
		search_random(&searches[i], world->area, 0, &random);
		searches[i].has_beyond = 0;
		searches[i].k = k;
	}
	channel_fill_searches(world->area, number, searches, count);
	status = channel_call(world->area, number);
	for (uint32_t i = 0; i < count && status == ENGINE_OK && !case_failed(); i++)
	{
		if (!channel_read_answer(world->area, number, i, &answer))
			case_fails("answer %u is not in the channel", i);
		else if ((wrong = answer_wrong(&searches[i], &answer)) != NULL)
			case_fails("answer %u of %u: %s", i, count, wrong);
	}
	return status;
}

static void
batches_go_through_channels(void)
{
	static const uint32_t counts[] = {1, 2, 3, 17, 64, 65, MAX_CHANNEL_SEARCHES};
	World	   *world = world_make(4, 2);
	int			number;
	AreaChannel *channel;

	if (server_up(world, NULL) && entry_load(world->area, 0, TEST_ROWS))
	{
		number = channel_claim(world->area);
		channel = area_channel(world->area, (uint32_t) number);
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && !case_failed(); i++)
		{
			if (batch_status(world, number, counts[i], 10) != ENGINE_OK)
				case_fails("a batch of %u: %.100s", counts[i], channel->error);
			if (atomic_load(&channel->done) != counts[i])
				case_fails("%u of %u answers are counted", atomic_load(&channel->done), counts[i]);
			works(world, 0, 0);
		}
		/*
		 * What is impossible is refused, and the channel is as good as before.
		 */
		if (batch_status(world, number, MAX_CHANNEL_SEARCHES,
						 CHANNEL_DATA_BYTES / sizeof(SearchResult) / 50) != ENGINE_INVALID)
			case_fails("answers larger than a channel are promised");
		channel_fill_searches(world->area, number, &(Search) {.entry = 0, .k = 1}, 1);
		channel->request.mirror_generation = atomic_load(&area_mirror(world->area, 0)->generation);
		channel->request.count = 0;
		if (channel_call(world->area, number) != ENGINE_INVALID)
			case_fails("no queries at all are answered");
		channel->request.count = UINT32_MAX;
		if (channel_call(world->area, number) != ENGINE_INVALID)
			case_fails("more queries than fit are answered");
		if (batch_status(world, number, 5, 10) != ENGINE_OK)
			case_fails("a batch afterwards: %.100s", channel->error);
		channel_release(world->area, number);
	}
	world_free(world);
}

/*
 * A batch is left or cancelled in the middle, its mirror goes, the server dies:
 * the channel comes free, and others are served meanwhile.
 */
static void
batches_can_be_left(void)
{
	World	   *world = world_make(4, 2);
	Search		searches[MAX_CHANNEL_SEARCHES];
	uint64_t	random = 5;
	AreaChannel *channel;
	int			number;
	EngineStatus status;

	/*
	 * A batch is two pieces, so there is something left to do when the first
	 * answers are counted.
	 */
	if (!server_up(world, "delay_us=100000") || !entry_load(world->area, 0, 100))
	{
		world_free(world);
		return;
	}
	for (uint32_t i = 0; i < MAX_CHANNEL_SEARCHES; i++)
	{
		search_random(&searches[i], world->area, 0, &random);
		searches[i].k = 5;
	}
	number = channel_claim(world->area);
	channel = area_channel(world->area, (uint32_t) number);
	channel_fill_searches(world->area, number, searches, MAX_CHANNEL_SEARCHES);
	channel_post(world->area, number);
	while (atomic_load(&channel->done) == 0)
		pause_us(1000);
	works(world, 0, 0);
	atomic_store(&channel->cancel, 1);
	status = channel_wait(world->area, number, LONG_MS);
	if (status != ENGINE_CANCELLED && status != ENGINE_OK)
		case_fails("a cancelled batch ends with status %d", (int) status);

	channel_fill_searches(world->area, number, searches, MAX_CHANNEL_SEARCHES);
	channel_post(world->area, number);
	while (atomic_load(&channel->done) == 0)
		pause_us(1000);
	channel_release(world->area, number);
	for (int64_t until = now_us() + LONG_MS * 1000;
		 atomic_load(&channel->owner) != 0 && now_us() < until;)
		pause_us(1000);
	if (atomic_load(&channel->owner) != 0 ||
		request_state(atomic_load(&channel->state)) != REQUEST_FREE)
		case_fails("a channel that was left in the middle of a batch does not come free");

	number = channel_claim(world->area);
	channel_fill_searches(world->area, number, searches, MAX_CHANNEL_SEARCHES);
	channel_post(world->area, number);
	while (atomic_load(&area_channel(world->area, (uint32_t) number)->done) == 0)
		pause_us(1000);
	server_kill(world);
	status = channel_wait(world->area, number, LONG_MS);
	if (status != ENGINE_FAILED && status != ENGINE_OK)
		case_fails("a batch whose server dies ends with status %d", (int) status);
	channel_release(world->area, number);
	world_free(world);
}

/*
 * Dead and overwritten rows, seeds, positions: each operation reaches the
 * engine as it was meant.
 */
static void
operations_change_the_mirror(void)
{
	World	   *world = world_make(4, 2);
	int			number;
	AreaChannel *channel;
	uint32_t   *slots;
	uint32_t   *versions;
	Client		client;
	Search		search = {.method = METHOD_EXACT, .k = 5};
	Answer		answer;

	if (server_up(world, NULL) && entry_load(world->area, 0, 50))
	{
		number = channel_claim(world->area);
		channel = channel_prepare(world->area, number, CHANNEL_DEAD, 0);
		channel->request.count = 1;
		slots = channel_array(world->area, number, &channel->request.slots_offset, 0, 4);
		versions = channel_array(world->area, number, &channel->request.versions_offset, 4, 4);
		slots[0] = 7;
		versions[0] = 1000;
		REQUIRE(channel_call(world->area, number) == ENGINE_OK, "dead: %.100s", channel->error);
		client_begin(&client, world->area, 0);
		search.generation = atomic_load(&area_mirror(world->area, 0)->generation);
		memcpy(search.vector, oracle_row(7), sizeof(search.vector));
		REQUIRE(client_search(&client, &search, LONG_MS * 1000, &answer) == OUTCOME_ANSWERED,
				"no answer");
		REQUIRE(answer.count == 5 && answer.results[0].slot != 7, "a dead row is found");

		channel = channel_prepare(world->area, number, CHANNEL_OVERWRITE, 0);
		channel->request.count = 1;
		slots = channel_array(world->area, number, &channel->request.slots_offset, 0, 4);
		versions = channel_array(world->area, number, &channel->request.versions_offset, 4, 4);
		memcpy(channel_array(world->area, number, &channel->request.body_offset, 128,
							 sizeof(search.vector)),
			   oracle_row(7), sizeof(search.vector));
		slots[0] = 7;
		versions[0] = 1001;
		REQUIRE(channel_call(world->area, number) == ENGINE_OK, "overwrite: %.100s",
				channel->error);
		REQUIRE(client_search(&client, &search, LONG_MS * 1000, &answer) == OUTCOME_ANSWERED,
				"no answer");
		REQUIRE(answer.results[0].slot == 7 && answer.results[0].version == 1001,
				"the new row is not found");

		channel = channel_prepare(world->area, number, CHANNEL_POSITION, 0);
		REQUIRE(channel_call(world->area, number) == ENGINE_INVALID, "a position without one");
		channel->request.has_position = 1;
		channel->request.position = 4711;
		REQUIRE(channel_call(world->area, number) == ENGINE_OK, "position: %.100s", channel->error);
		REQUIRE(atomic_load(&area_mirror(world->area, 0)->position) == 4711,
				"the position is not published");
		REQUIRE(client_search(&client, &search, LONG_MS * 1000, &answer) == OUTCOME_ANSWERED,
				"no answer");
		REQUIRE(answer.position == 4711, "the answer's position is %llu",
				(unsigned long long) answer.position);

		channel = channel_prepare(world->area, number, CHANNEL_DEAD, 0);
		channel->request.count = 1;
		slots = channel_array(world->area, number, &channel->request.slots_offset, 0, 4);
		(void) channel_array(world->area, number, &channel->request.versions_offset, 4, 4);
		slots[0] = 50;
		REQUIRE(channel_call(world->area, number) == ENGINE_INVALID,
				"a slot that is not published dies");
		channel_release(world->area, number);
	}
	world_free(world);
}

/* In a child: claim a channel, get it into some state, and be killed there. */
static void
die_with_channel(World *world, int state)
{
	int			number = channel_claim(world->area);
	AreaChannel *channel = channel_prepare(world->area, number, CHANNEL_LINK, 0);

	if (state == 1 || state == 2)
	{
		channel->request.ef_construction = 1000;
		channel_post(world->area, number);
		if (state == 2)
			pause_us(5000);
	}
	if (state == 3)
	{
		channel->request.op = CHANNEL_LINK_FORGET;
		channel_post(world->area, number);
		while (request_state(atomic_load(&channel->state)) != REQUEST_DONE)
			pause_us(100);
	}
	if (state == 4)
	{
		channel->request.ef_construction = 4;
		channel_post(world->area, number);
		channel_release(world->area, number);
	}
	kill(getpid(), SIGKILL);
}

static void
channels_of_the_dead_come_free(void)
{
	World	   *world = world_make(4, 5);

	if (server_up(world, NULL) && entry_load(world->area, 0, TEST_ROWS))
	{
		for (int state = 0; state < 5; state++)
		{
			pid_t		pid = fork();

			if (pid == 0)
				die_with_channel(world, state);
			waitpid(pid, NULL, 0);
		}
		for (uint32_t number = 0; number < 5; number++)
		{
			AreaChannel *channel = area_channel(world->area, number);
			int64_t		until = now_us() + LONG_MS * 1000;

			while ((atomic_load(&channel->owner) != 0 ||
					request_state(atomic_load(&channel->state)) != REQUEST_FREE) &&
				   now_us() < until)
				pause_us(1000);
			if (now_us() >= until)
				case_fails("channel %u has owner %d, state %u", number,
						   (int) atomic_load(&channel->owner),
						   (uint32_t) request_state(atomic_load(&channel->state)));
		}
		works(world, 0, 0);
	}
	world_free(world);
}

const TestCase channel_cases[] = {
	{"entry_generations_are_kept_apart", entry_generations_are_kept_apart},
	{"dropped_mirrors_give_their_memory_back", dropped_mirrors_give_their_memory_back},
	{"operations_change_the_mirror", operations_change_the_mirror},
	{"large_answers_go_through_channels", large_answers_go_through_channels},
	{"batches_go_through_channels", batches_go_through_channels},
	{"batches_can_be_left", batches_can_be_left},
	{"channels_of_the_dead_come_free", channels_of_the_dead_come_free},
	{"spoilt_requests_are_refused", spoilt_requests_are_refused},
	{"random_requests_do_no_harm", random_requests_do_no_harm},
	{"random_words_do_no_harm", random_words_do_no_harm},
	{"random_channels_do_no_harm", random_channels_do_no_harm},
	{NULL, NULL}
};
