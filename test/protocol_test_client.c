/*
 * protocol_test_client.c
 *		A client of the server, as src/client/client.c and
 *		src/client/bulk_channel.c are, and the oracle that judges its answers.
 *
 * All elements are small whole numbers, so every distance is exact and equal in
 * whatever order it is summed.
 */
#include <errno.h>
#include <string.h>

#include "engine/bits.h"
#include "protocol_test.h"

int			channel_slice_ms = AREA_WAIT_MS;

const FilterKind oracle_kinds[TEST_COLUMNS] = {FILTER_I32, FILTER_F64, FILTER_BYTES16};

#define RECORD_BYTES	(FILTER_RECORD_VALUES + 28)	/* of these */

static float oracle_rows[TEST_ROWS][TEST_DIMS];
static unsigned char oracle_records[TEST_ROWS][RECORD_BYTES];

/* Random columns of a row: few values, and NULLs. */
static void
make_record(unsigned char *record, uint64_t *random)
{
	uint16_t	nulls = next_random(random) % 4 == 0 ? next_random(random) % 8 : 0;
	int32_t		number = (int32_t) (next_random(random) % 9) - 4;
	double		real = (double) (next_random(random) % 5) / 4;

	memset(record, 0, RECORD_BYTES);
	memcpy(record + FILTER_RECORD_NULLS, &nulls, sizeof(nulls));
	memcpy(record + FILTER_RECORD_VALUES, &number, sizeof(number));
	memcpy(record + FILTER_RECORD_VALUES + 4, &real, sizeof(real));
	record[FILTER_RECORD_VALUES + 12] = next_random(random) % 3;
}

void
oracle_make(void)
{
	uint64_t	random = 42;

	for (uint32_t slot = 0; slot < TEST_ROWS; slot++)
		for (uint32_t i = 0; i < TEST_DIMS; i++)
			oracle_rows[slot][i] = (float) (next_random(&random) % 33) - 16;
	for (uint32_t slot = 0; slot < TEST_ROWS; slot++)
		make_record(oracle_records[slot], &random);
}

/* A constant that a column of a kind is compared with. */
static FilterValue
random_constant(FilterKind kind, uint64_t *random)
{
	FilterValue value = {{{0, 0}}};

	if (kind == FILTER_BYTES16)
		value.bytes[0] = next_random(random) % 3;
	else if (kind == FILTER_F64)
		value.low = value.high = filter_real((double) (next_random(random) % 5) / 4);
	else
		value.low = value.high = (int64_t) (next_random(random) % 9) - 4;
	return value;
}

/* Add a step that compares a column, or none. */
static void
add_leaf(TestProgram *program, uint64_t *random)
{
	FilterStep *step = &program->steps[program->nsteps++];
	uint32_t	column = (uint32_t) (next_random(random) % TEST_COLUMNS);
	FilterOp	op;

	/* None of the columns is a set. */
	do
		op = (FilterOp) (next_random(random) % FILTER_AND);
	while (op == FILTER_ANY_TAG || op == FILTER_ALL_TAGS);
	*step = (FilterStep) {.op = (uint8_t) op,
						  .column = (uint8_t) column,
						  .value = program->nvalues,
						  .has_null = next_random(random) % 4 == 0};
	if (step->op >= FILTER_IS_NULL)
		return;
	step->count = step->op == FILTER_IN ? 3 : 1;
	for (uint32_t i = 0; i < step->count; i++)
		program->values[program->nvalues++] = random_constant(oracle_kinds[column], random);
	filter_sort(oracle_kinds[column], &program->values[step->value], step->count);
}

void
program_random(TestProgram *program, uint64_t *random)
{
	uint32_t	leaves = 1 + (uint32_t) (next_random(random) % 4);

	memset(program, 0, sizeof(*program));
	for (uint32_t i = 0; i < leaves; i++)
	{
		add_leaf(program, random);
		if (next_random(random) % 4 == 0)
			program->steps[program->nsteps++] = (FilterStep) {.op = FILTER_NOT};
		if (i > 0)
			program->steps[program->nsteps++] =
				(FilterStep) {.op = next_random(random) % 2 ? FILTER_AND : FILTER_OR};
	}
}

void
test_program_write(const TestProgram *program, QueryRequest *request, void *to)
{
	request->program_steps = program->nsteps;
	request->program_values = program->nvalues;
	memcpy(to, program->values, program->nvalues * sizeof(FilterValue));
	memcpy((char *) to + program->nvalues * sizeof(FilterValue), program->steps,
		   program->nsteps * sizeof(FilterStep));
}

/* Which of the first rows a program lets pass; returns how many. */
static uint32_t
oracle_passing(const TestProgram *made, uint32_t rows, uint64_t *passes)
{
	FilterProgram program = {made->steps, made->values, made->nsteps, made->nvalues};
	FilterRows	columns;
	uint32_t	count = 0;

	filter_record_rows(oracle_kinds, TEST_COLUMNS, oracle_records, rows, &columns);
	filter_run(&program, &columns, FILTER_MAY, passes);
	for (uint32_t slot = 0; slot < rows; slot++)
		count += bit64_is_set(passes, slot);
	return count;
}

const float *
oracle_row(uint32_t slot)
{
	return oracle_rows[slot];
}

uint32_t
oracle_version(uint32_t slot)
{
	return slot * 7 + 1;
}

/* An exact search for random numbers. */
void
search_random(Search *search, const AreaHeader *area, uint32_t entry, uint64_t *random)
{
	memset(search, 0, sizeof(*search));
	search->entry = entry;
	search->generation = atomic_load(&area_mirror((AreaHeader *) area, entry)->generation);
	search->method = METHOD_EXACT;
	search->k = 1 + (uint32_t) (next_random(random) % TEST_MAX_K);
	search->ef = 40;
	for (uint32_t i = 0; i < TEST_DIMS; i++)
		search->vector[i] = (float) (next_random(random) % 33) - 16;
	if (next_random(random) % 4 == 0)
	{
		search->has_beyond = 1;
		search->beyond_distance = (double) (next_random(random) % 1000);
		search->beyond_slot = (uint32_t) (next_random(random) % TEST_ROWS);
	}
}

/* The nearest rows of the first `rows`, in order; returns how many. */
static uint32_t
oracle_search(const Search *search, uint32_t rows, SearchResult *best)
{
	uint64_t	passes[TEST_ROWS / 64 + 1];
	uint32_t	count = 0;

	if (search->program.nsteps > 0)
		(void) oracle_passing(&search->program, rows, passes);
	for (uint32_t slot = 0; slot < rows; slot++)
	{
		double		distance = 0;
		uint32_t	at;

		if (search->program.nsteps > 0 && !bit64_is_set(passes, slot))
			continue;
		if (search->within != NULL && !bit64_is_set(search->within, slot))
			continue;
		for (uint32_t i = 0; i < TEST_DIMS; i++)
		{
			double		difference = (double) search->vector[i] - (double) oracle_rows[slot][i];

			distance += difference * difference;
		}
		if (search->has_beyond &&
			!engine_before(search->beyond_distance, search->beyond_slot, distance, slot))
			continue;
		if (count == search->k &&
			!engine_before(distance, slot, best[count - 1].distance, best[count - 1].slot))
			continue;
		if (count < search->k)
			count++;
		for (at = count - 1;
			 at > 0 && engine_before(distance, slot, best[at - 1].distance, best[at - 1].slot);
			 at--)
			best[at] = best[at - 1];
		best[at] = (SearchResult) {distance, slot, oracle_version(slot)};
	}
	return count;
}

/*
 * NULL, or what is wrong with an exact answer about the first answer->rows
 * rows.
 */
const char *
answer_wrong(const Search *search, const Answer *answer)
{
	static _Thread_local char text[160];
	SearchResult best[PAYLOAD_RESULTS];
	uint64_t	passes[TEST_ROWS / 64 + 1];
	uint32_t	count;

	if (answer->rows > TEST_ROWS || answer->position > TEST_ROWS || answer->position > answer->rows)
	{
		snprintf(text, sizeof(text), "%u rows, position %llu", answer->rows,
				 (unsigned long long) answer->position);
		return text;
	}
	count = search->program.nsteps > 0 ? oracle_passing(&search->program, answer->rows, passes) : 0;
	if (count != answer->passing && search->program.nsteps > 0)
	{
		snprintf(text, sizeof(text), "%u rows pass, not %u", count, answer->passing);
		return text;
	}
	count = oracle_search(search, answer->rows, best);
	if (count != answer->count)
	{
		snprintf(text, sizeof(text), "%u results instead of %u of %u rows", answer->count, count,
				 answer->rows);
		return text;
	}
	for (uint32_t i = 0; i < count; i++)
		if (best[i].slot != answer->results[i].slot ||
			best[i].version != answer->results[i].version ||
			best[i].distance != answer->results[i].distance)
		{
			snprintf(text, sizeof(text),
					 "result %u of %u is (%g, %u, version %u) instead of (%g, %u)", i, count,
					 answer->results[i].distance, answer->results[i].slot,
					 answer->results[i].version, best[i].distance, best[i].slot);
			return text;
		}
	return NULL;
}

void
client_begin(Client *client, AreaHeader *area, uint32_t slot)
{
	*client = (Client){.area = area,
					   .slot = slot,
					   .generation = request_generation(atomic_load(area_word(area, slot))),
					   .slice_ms = AREA_WAIT_MS,
					   .watches = slot % 2 == 1};
}

/* Post a search; false: the slot is still the server's. */
bool
client_post(Client *client, const Search *search)
{
	RequestPayload *payload = area_payload(client->area, client->slot);
	_Atomic uint32_t *word = area_word(client->area, client->slot);

	if (request_state(atomic_load(word)) != REQUEST_FREE)
		return false;
	payload->mirror = search->entry;
	payload->mirror_generation = search->generation;
	payload->query.method = search->method;
	payload->query.k = search->k;
	payload->query.ef = search->ef;
	payload->query.probes = search->probes;
	payload->query.vector_bytes = sizeof(search->vector);
	payload->query.has_beyond = search->has_beyond;
	payload->query.beyond_distance = search->beyond_distance;
	payload->query.beyond_slot = search->beyond_slot;
	payload->query.set = search->set;
	payload->posted_us = now_us();
	atomic_store_explicit(&payload->asleep, 0, memory_order_relaxed);
	memcpy(payload->vector, search->vector, sizeof(search->vector));
	test_program_write(&search->program, &payload->query, payload->program);
	/* A late answer must not look like this one's. */
	payload->status = 999;
	payload->count = payload->passing = 999999;
	client->epoch = atomic_load(&client->area->epoch);
	if (atomic_load(&client->area->server_state) != SERVER_READY)
		client->epoch = 0;
	client->generation = request_post(client->area, word);
	return true;
}

/* Copy an answer out. */
static void
answer_copy(const RequestPayload *payload, Answer *answer)
{
	answer->status = payload->status;
	answer->count = payload->count;
	answer->rows = payload->rows;
	answer->batch = payload->batch;
	answer->passing = payload->passing;
	answer->position = payload->position;
	memcpy(answer->error, payload->error, sizeof(answer->error));
	answer->error[sizeof(answer->error) - 1] = '\0';
	if (answer->count <= PAYLOAD_RESULTS)
		memcpy(answer->results, payload->results, answer->count * sizeof(SearchResult));
}

/* Wait for the answer of what was posted, then leave it. */
Outcome
client_wait(Client *client, int64_t timeout_us, Answer *answer)
{
	_Atomic uint32_t *word = area_word(client->area, client->slot);
	int64_t		deadline = now_us() + timeout_us;

	for (;;)
	{
		uint32_t	value = atomic_load(word);
		int64_t		left = deadline - now_us();
		int64_t		slice = left / 1000 + 1;
		RequestLook look = request_look(value, client->generation);
		int			ran_out;

		if (look == LOOK_DONE)
		{
			PROTOCOL_STEP(CLIENT_SEES);
			answer_copy(area_payload(client->area, client->slot), answer);
			PROTOCOL_STEP(CLIENT_COPIED);
		}
		if (look != LOOK_PENDING)
		{
			(void) request_leave(word);
			return look == LOOK_DONE ? OUTCOME_ANSWERED : OUTCOME_SERVER_DIED;
		}
		if (client->epoch != 0 && atomic_load(&client->area->epoch) != client->epoch)
		{
			(void) request_leave(word);
			return OUTCOME_SERVER_DIED;
		}
		if (left <= 0)
		{
			(void) request_leave(word);
			return OUTCOME_TIMEOUT;
		}
		if (client->watches && word_watch(&client->watch, word, value, 1))
			continue;
		errno = 0;
		request_sleep(word, value, area_payload(client->area, client->slot),
					  (int) (slice < client->slice_ms ? slice : client->slice_ms));
		ran_out = errno;
		if (ran_out == ETIMEDOUT && slice >= client->slice_ms &&
			request_state(atomic_load(word)) == REQUEST_DONE)
			client->late++;
	}
}

Outcome
client_search(Client *client, const Search *search, int64_t timeout_us, Answer *answer)
{
	if (!client_post(client, search))
		return OUTCOME_SLOT_BUSY;
	return client_wait(client, timeout_us, answer);
}

/* What becomes of a slot whose client is gone. False: it did not come free. */
bool
slot_recover(AreaHeader *area, uint32_t slot)
{
	_Atomic uint32_t *word = area_word(area, slot);

	(void) request_leave(word);
	for (int64_t until = now_us() + LONG_MS * 1000; now_us() < until; pause_us(200))
		if (request_state(atomic_load(word)) == REQUEST_FREE)
			return true;
	return false;
}

/* Claim a channel, or -1. */
int
channel_claim(AreaHeader *area)
{
	for (uint32_t number = 0; number < area->channels; number++)
		if (channel_take_ownership(area_channel(area, number), (int32_t) getpid()))
			return (int) number;
	return -1;
}

void
channel_release(AreaHeader *area, int number)
{
	channel_leave(area_channel(area, (uint32_t) number));
}

/* Begin an operation on a mirror entry as it is now. */
AreaChannel *
channel_prepare(AreaHeader *area, int number, ChannelOp op, uint32_t entry)
{
	AreaChannel *channel = area_channel(area, (uint32_t) number);

	memset((char *) channel + offsetof(AreaChannel, request), 0,
		   sizeof(AreaChannel) - offsetof(AreaChannel, request));
	atomic_store(&channel->cancel, 0);
	atomic_store(&channel->done, 0);
	channel->request.op = op;
	channel->request.mirror = entry;
	channel->request.mirror_generation = atomic_load(&area_mirror(area, entry)->generation);
	return channel;
}

/*
 * Where an array stands in a channel, the previous one having ended at `after`.
 */
void *
channel_array(AreaHeader *area, int number, uint64_t *offset, uint64_t after, size_t bytes)
{
	*offset = area_align(after);
	if (*offset + bytes > CHANNEL_DATA_BYTES)
		return NULL;
	return area_channel_data(area, (uint32_t) number) + *offset;
}

void
channel_post(AreaHeader *area, int number)
{
	channel_post_word(area, area_channel(area, (uint32_t) number));
}

EngineStatus
channel_wait(AreaHeader *area, int number, int ms)
{
	AreaChannel *channel = area_channel(area, (uint32_t) number);

	for (int64_t until = now_us() + (int64_t) ms * 1000; now_us() < until;)
	{
		uint32_t	word = atomic_load(&channel->state);

		if (request_state(word) == REQUEST_DONE || request_state(word) == REQUEST_FAILED)
		{
			EngineStatus status = request_state(word) == REQUEST_DONE
									  ? (EngineStatus) channel->status
									  : ENGINE_FAILED;

			atomic_store(&channel->state, request_word(request_generation(word), REQUEST_FREE));
			return status;
		}
		/* Posted behind the sweep of a dead server. */
		if (atomic_load(&area->server_state) == SERVER_ABSENT &&
			request_withdraw(&channel->state, request_generation(word)))
			return ENGINE_FAILED;
		area_futex_wait(&channel->state, word, channel_slice_ms);
	}
	return ENGINE_FAILED;
}

EngineStatus
channel_call(AreaHeader *area, int number)
{
	channel_post(area, number);
	return channel_wait(area, number, LONG_MS);
}

/* Put searches into a channel; k is that of the first. */
void
channel_fill_searches(AreaHeader *area, int number, const Search *searches, uint32_t count)
{
	AreaChannel *channel = channel_prepare(area, number, CHANNEL_SEARCH, searches[0].entry);
	unsigned char *vectors = channel_array(area, number, &channel->request.body_offset, 64,
										   count * sizeof(searches[0].vector));

	for (uint32_t i = 0; i < count; i++)
		memcpy(vectors + i * sizeof(searches[0].vector), searches[i].vector,
			   sizeof(searches[0].vector));
	channel->request.mirror_generation = searches[0].generation;
	channel->request.count = count;
	test_program_write(&searches[0].program, &channel->request.query,
					   channel_array(area, number, &channel->request.columns_offset,
									 64 + count * sizeof(searches[0].vector), PROGRAM_BYTES));
	channel->request.query.method = METHOD_EXACT;
	channel->request.query.k = searches[0].k;
	channel->request.query.set = searches[0].set;
	channel->request.query.vector_bytes = sizeof(searches[0].vector);
}

/*
 * Copy the answer of one of a channel's searches, as many results as an Answer
 * holds; false if it does not lie in the channel.
 */
bool
channel_read_answer(AreaHeader *area, int number, uint32_t place, Answer *answer)
{
	const AreaChannel *channel = area_channel(area, (uint32_t) number);
	const unsigned char *data = area_channel_data(area, (uint32_t) number);
	uint64_t results =
		channel->out_offset + (uint64_t) place * channel->request.query.k * sizeof(SearchResult);
	ChannelFound found;

	memset(answer, 0, sizeof(*answer));
	if (place >= channel->out_count ||
		channel->out_slots_offset + channel->out_count * sizeof(ChannelFound) > channel->out_offset)
		return false;
	memcpy(&found, data + channel->out_slots_offset + place * sizeof(ChannelFound), sizeof(found));
	if (found.count > channel->request.query.k ||
		results + found.count * sizeof(SearchResult) > CHANNEL_DATA_BYTES)
		return false;
	answer->rows = found.rows;
	answer->position = found.position;
	answer->passing = found.passing;
	answer->count = found.count;
	memcpy(answer->results, data + results,
		   (found.count < PAYLOAD_RESULTS ? found.count : PAYLOAD_RESULTS) * sizeof(SearchResult));
	return true;
}

/* Give an entry a new generation: nobody finds its earlier mirror any more. */
uint32_t
entry_claim(AreaHeader *area, uint32_t entry)
{
	AreaMirror *mirror = area_mirror(area, entry);
	uint32_t	generation = atomic_fetch_add(&mirror->generation, 1) + 1;

	atomic_store(&mirror->position, 0);
	atomic_store(&mirror->rows, 0);
	atomic_store(&mirror->epoch, atomic_load(&area->epoch));
	atomic_store(&mirror->state, MIRROR_LOADING);
	return generation;
}

EngineStatus
entry_create(AreaHeader *area, int number, uint32_t entry)
{
	AreaChannel *channel = channel_prepare(area, number, CHANNEL_CREATE, entry);
	EngineStatus status;

	channel->request.spec = (MirrorSpec) {
		.dims = TEST_DIMS,
		.type = ELEMENT_FLOAT,
		.metric = METRIC_L2,
		.method = METHOD_GRAPH,
		.degree = TEST_DEGREE,
		.capacity = TEST_ROWS,
		.residency = RESIDENCY_FULL,
		.placement = PLACEMENT_SINGLE,
		.device = -1,
		.columns = TEST_COLUMNS,
	};
	memcpy(channel->request.spec.column_kinds, oracle_kinds, sizeof(oracle_kinds));
	status = channel_call(area, number);
	/* An engine without columns: only searches without programs are for it. */
	if (status == ENGINE_UNSUPPORTED)
	{
		channel->request.spec.columns = 0;
		status = channel_call(area, number);
	}
	return status;
}

EngineStatus
entry_append(AreaHeader *area, int number, uint32_t entry, uint32_t first, uint32_t count)
{
	AreaChannel *channel = channel_prepare(area, number, CHANNEL_APPEND, entry);
	uint32_t *versions =
		channel_array(area, number, &channel->request.versions_offset, 0, count * sizeof(uint32_t));
	float *vectors = channel_array(area, number, &channel->request.body_offset,
								   count * sizeof(uint32_t), count * sizeof(oracle_rows[0]));
	uint64_t	end = channel->request.body_offset + count * sizeof(oracle_rows[0]);
	void	   *records = channel_array(area, number, &channel->request.columns_offset, end,
										count * RECORD_BYTES);

	channel->request.first_slot = first;
	channel->request.count = count;
	channel->request.has_position = 1;
	channel->request.position = first + count;
	for (uint32_t i = 0; i < count; i++)
		versions[i] = oracle_version(first + i);
	memcpy(vectors, oracle_rows[first], count * sizeof(oracle_rows[0]));
	memcpy(records, oracle_records[first], count * RECORD_BYTES);
	return channel_call(area, number);
}

bool
entry_load(AreaHeader *area, uint32_t entry, uint32_t rows)
{
	int			channel = channel_claim(area);
	EngineStatus status = ENGINE_FAILED;

	if (channel < 0)
		case_fails("no channel is free");
	else
	{
		entry_claim(area, entry);
		status = entry_create(area, channel, entry);
		if (status == ENGINE_OK && rows > 0)
			status = entry_append(area, channel, entry, 0, rows);
		if (status != ENGINE_OK)
			case_fails("a mirror could not be loaded: status %d, %.100s", (int) status,
					   area_channel(area, (uint32_t) channel)->error);
		else
			atomic_store(&area_mirror(area, entry)->state, MIRROR_READY);
		channel_release(area, channel);
	}
	return status == ENGINE_OK;
}
