/*
 * protocol_test_programs.c
 *		Conditions on columns that go with queries: searched, spoilt, and
 *		changed by another process while the server reads them.
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "protocol_test.h"

#define ROWS		1000
#define SEARCHES	40			/* of each kind */
#define RANDOM_PROGRAMS	300

/* A world with a mirror, and a channel of ours. */
static World *
programs_world(int *number)
{
	World	   *world = world_make(4, 2);

	if (server_up(world, NULL) && entry_load(world->area, 0, ROWS))
		*number = channel_claim(world->area);
	return world;
}

/* A search with a program, of rows that are all pending, so it is exact. */
static void
restricted_search(World *world, Search *search, uint64_t *random)
{
	search_random(search, world->area, 0, random);
	program_random(&search->program, random);
	search->ef = 40;
	if (!search->has_beyond && next_random(random) % 2)
		search->method = METHOD_GRAPH;
}

static void
programs_are_searched(void)
{
	int			number = 0;
	World	   *world = programs_world(&number);
	uint64_t	random = 11;
	Search		search;
	Answer		answer;
	Client		client;
	const char *wrong;

	client_begin(&client, world->area, 0);
	for (uint32_t i = 0; i < SEARCHES && !case_failed(); i++)
	{
		restricted_search(world, &search, &random);
		if (client_search(&client, &search, LONG_MS * 1000, &answer) != OUTCOME_ANSWERED ||
			answer.status != ENGINE_OK)
			case_fails("search %u is not answered: %.100s", i, answer.error);
		else if ((wrong = answer_wrong(&search, &answer)) != NULL)
			case_fails("search %u: %s", i, wrong);
	}
	world_free(world);
}

/* Batches, whose queries have one program. */
static void
batches_have_programs(void)
{
	int			number = 0;
	World	   *world = programs_world(&number);
	Search		searches[MAX_CHANNEL_SEARCHES];
	uint64_t	random = 12;
	Answer		answer;
	const char *wrong;

	for (uint32_t i = 0; i < SEARCHES / 4 && !case_failed(); i++)
	{
		for (uint32_t j = 0; j < MAX_CHANNEL_SEARCHES; j++)
		{
			search_random(&searches[j], world->area, 0, &random);
			searches[j].has_beyond = 0;
			searches[j].k = 5;
			if (j == 0)
				program_random(&searches[0].program, &random);
			searches[j].program = searches[0].program;
		}
		channel_fill_searches(world->area, number, searches, MAX_CHANNEL_SEARCHES);
		if (channel_call(world->area, number) != ENGINE_OK)
			case_fails("batch %u is not answered: %.100s", i,
					   area_channel(world->area, (uint32_t) number)->error);
		for (uint32_t j = 0; j < MAX_CHANNEL_SEARCHES && !case_failed(); j++)
		{
			if (!channel_read_answer(world->area, number, j, &answer))
				case_fails("batch %u has no answer %u", i, j);
			else if ((wrong = answer_wrong(&searches[j], &answer)) != NULL)
				case_fails("answer %u of batch %u: %s", j, i, wrong);
		}
	}
	world_free(world);
}

/* A row in a slot that had another one has its own columns. */
static void
columns_change_with_rows(void)
{
	int			number = 0;
	World	   *world = programs_world(&number);
	Search		search = {.method = METHOD_EXACT, .k = 1};
	int32_t		value = 77;
	AreaChannel *channel = channel_prepare(world->area, number, CHANNEL_OVERWRITE, 0);
	ChannelRequest *request = &channel->request;
	Answer		answer;
	Client		client;

	client_begin(&client, world->area, 0);
	search.generation = request->mirror_generation;
	search.program = (TestProgram) {.steps = {{.op = FILTER_EQ}}, .nsteps = 1, .nvalues = 1};
	search.program.values[0].low = search.program.values[0].high = value;
	REQUIRE(!case_failed() &&
			client_search(&client, &search, LONG_MS * 1000, &answer) == OUTCOME_ANSWERED &&
			answer.status == ENGINE_OK && answer.count == 0 && answer.passing == 0,
			"a row has what no row has");
	request->count = 1;
	*(uint32_t *) channel_array(world->area, number, &request->slots_offset, 0, 4) = 500;
	*(uint32_t *) channel_array(world->area, number, &request->versions_offset, 64, 4) = 9;
	memset(channel_array(world->area, number, &request->body_offset, 128, 64), 0, 64);
	memset(channel_array(world->area, number, &request->columns_offset, 256, 64), 0, 64);
	memcpy(area_channel_data(world->area, (uint32_t) number) + request->columns_offset +
		   FILTER_RECORD_VALUES, &value, sizeof(value));
	REQUIRE(channel_call(world->area, number) == ENGINE_OK, "overwrite: %.100s", channel->error);
	REQUIRE(client_search(&client, &search, LONG_MS * 1000, &answer) == OUTCOME_ANSWERED &&
			answer.count == 1 && answer.passing == 1 && answer.results[0].slot == 500 &&
			answer.results[0].version == 9, "the new row's columns are not searched");
	request->columns_offset = CHANNEL_DATA_BYTES;
	REQUIRE(channel_call(world->area, number) == ENGINE_INVALID, "columns beyond the channel");
	world_free(world);
}

/* What is bad about a program. */
typedef enum BadProgram
{
	PROGRAM_LONG,
	PROGRAM_FAR_TOO_LONG,
	PROGRAM_MANY_VALUES,
	PROGRAM_UNKNOWN_STEP,
	PROGRAM_OTHER_COLUMN,
	PROGRAM_OTHER_VALUE,
	PROGRAM_LIST_BEYOND,
	PROGRAM_FLAG,
	PROGRAM_LACKS_RESULT,
	PROGRAM_TWO_RESULTS,
	PROGRAM_DEEP,
	BAD_PROGRAMS
} BadProgram;

/* Spoil a program as it lies in the area. */
static void
spoil(BadProgram badness, QueryRequest *request, unsigned char *program)
{
	FilterStep *steps = (FilterStep *) (program + sizeof(FilterValue));

	*request = (QueryRequest) {.program_steps = 1, .program_values = 1};
	memset(program, 0, PROGRAM_BYTES);
	steps[0].op = FILTER_EQ;
	switch (badness)
	{
		case PROGRAM_LONG:
			request->program_steps = (PROGRAM_BYTES - 16) / sizeof(FilterStep) + 1;
			break;
		case PROGRAM_FAR_TOO_LONG:
			request->program_steps = UINT32_MAX;
			break;
		case PROGRAM_MANY_VALUES:
			request->program_values = UINT32_MAX;
			break;
		case PROGRAM_UNKNOWN_STEP:
			steps[0].op = FILTER_OPS;
			break;
		case PROGRAM_OTHER_COLUMN:
			steps[0].column = TEST_COLUMNS;
			break;
		case PROGRAM_OTHER_VALUE:
			steps[0].value = 1;
			break;
		case PROGRAM_LIST_BEYOND:
			steps[0].op = FILTER_IN;
			steps[0].count = UINT32_MAX;
			break;
		case PROGRAM_FLAG:
			memset(&steps[0].has_null, 2, 1);
			break;
		case PROGRAM_LACKS_RESULT:
			steps[0].op = FILTER_AND;
			break;
		case PROGRAM_TWO_RESULTS:
			request->program_steps = 2;
			break;
		default:
			request->program_steps = FILTER_MAX_DEPTH + 1;
	}
}

/* Ask with a spoilt program, by request and by channel. */
static void
ask_spoilt(World *world, int number, BadProgram badness)
{
	Search		search = {.method = METHOD_EXACT, .k = 1};
	AreaChannel *channel = area_channel(world->area, (uint32_t) number);
	RequestPayload *payload = area_payload(world->area, 0);
	QueryRequest bad;
	Answer		answer = {.status = 999};
	Client		client;

	search.generation = atomic_load(&area_mirror(world->area, 0)->generation);
	client_begin(&client, world->area, 0);
	if (client_search(&client, &search, LONG_MS * 1000, &answer) != OUTCOME_ANSWERED)
		case_fails("no answer");
	/* Posted again, as it lies there. */
	spoil(badness, &bad, payload->program);
	payload->query.program_steps = bad.program_steps;
	payload->query.program_values = bad.program_values;
	client.generation = request_post(world->area, area_word(world->area, 0));
	if (client_wait(&client, LONG_MS * 1000, &answer) != OUTCOME_ANSWERED ||
		answer.status != ENGINE_INVALID)
		case_fails("spoilt program %d has status %u", (int) badness, answer.status);

	channel_fill_searches(world->area, number, &search, 1);
	spoil(badness, &bad, area_channel_data(world->area, (uint32_t) number) +
		  channel->request.columns_offset);
	channel->request.query.program_steps = bad.program_steps;
	channel->request.query.program_values = bad.program_values;
	if (channel_call(world->area, number) != ENGINE_INVALID)
		case_fails("spoilt program %d is taken from a channel", (int) badness);
}

static void
spoilt_programs_are_refused(void)
{
	int			number = 0;
	World	   *world = programs_world(&number);
	Search		search = {.method = METHOD_EXACT, .k = 1};
	AreaChannel *channel;

	for (int i = 0; i < BAD_PROGRAMS && !case_failed(); i++)
		ask_spoilt(world, number, (BadProgram) i);
	search.program = (TestProgram) {.steps = {{.op = FILTER_TRUE}}, .nsteps = 1};
	search.generation = atomic_load(&area_mirror(world->area, 0)->generation);
	channel_fill_searches(world->area, number, &search, 1);
	channel = area_channel(world->area, (uint32_t) number);
	channel->request.columns_offset = CHANNEL_DATA_BYTES;
	if (!case_failed() && channel_call(world->area, number) != ENGINE_INVALID)
		case_fails("a program beyond the channel is taken");
	for (uint32_t i = 0; i < 2 && !case_failed(); i++)
	{
		channel = channel_prepare(world->area, number, CHANNEL_CREATE, 0);
		channel->request.spec = (MirrorSpec) {
			.dims = TEST_DIMS, .type = ELEMENT_FLOAT, .metric = METRIC_L2, .method = METHOD_GRAPH,
			.degree = TEST_DEGREE, .residency = RESIDENCY_FULL, .placement = PLACEMENT_SINGLE,
			.device = -1, .columns = i == 0 ? UINT32_MAX : 2,
			.column_kinds = {FILTER_I32, FILTER_KINDS}
		};
		if (channel_call(world->area, number) != ENGINE_INVALID)
			case_fails("a mirror with impossible columns is made");
	}
	if (!case_failed() && entry_load(world->area, 0, ROWS))
		(void) works(world, 0, 1);
	world_free(world);
}

/* Write random bytes over the program of a slot until killed. */
static void
spoil_for_ever(World *world, uint32_t slot)
{
	volatile unsigned char *program = area_payload(world->area, slot)->program;
	uint64_t	random = 5;

	for (;;)
		program[next_random(&random) % 400] = (unsigned char) (next_random(&random) % 20);
}

/* Programs of random bytes, which change meanwhile, stop no server. */
static void
random_programs_do_no_harm(void)
{
	int			number = 0;
	World	   *world = programs_world(&number);
	uint64_t	random = 13;
	Search		search;
	Answer		answer;
	Client		client;
	pid_t		pid = fork();

	if (pid == 0)
		spoil_for_ever(world, 0);
	client_begin(&client, world->area, 0);
	for (uint32_t i = 0; i < RANDOM_PROGRAMS && !case_failed(); i++)
	{
		restricted_search(world, &search, &random);
		if (client_search(&client, &search, LONG_MS * 1000, &answer) != OUTCOME_ANSWERED ||
			(answer.status != ENGINE_OK && answer.status != ENGINE_INVALID))
			case_fails("random program %u is not answered", i);
	}
	kill(pid, SIGKILL);
	(void) waitpid(pid, NULL, 0);
	(void) works(world, 0, 1);
	world_free(world);
}

const TestCase program_cases[] = {
	{"programs_are_searched", programs_are_searched},
	{"batches_have_programs", batches_have_programs},
	{"columns_change_with_rows", columns_change_with_rows},
	{"spoilt_programs_are_refused", spoilt_programs_are_refused},
	{"random_programs_do_no_harm", random_programs_do_no_harm},
	{NULL, NULL}
};
