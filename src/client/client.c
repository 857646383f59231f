/*
 * client.c
 *		The backend's side of the server: post a request, wait, validate the
 *		answer.
 *
 * A request goes through this backend's slot, or through a channel if its
 * answer is large. Everything that the server wrote is copied once and checked
 * in the copy (architecture.md, I6). Every failure has a FallbackReason, upon
 * which the caller takes the page path.
 */
#include "base/base.h"

#include <math.h>

#include "client/shmem.h"
#include "client/client.h"
#include "client/latency.h"
#include "client/mirror_table.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

/* A private copy of the server's answer, not yet validated. */
typedef struct RawAnswer
{
	uint32		status;
	uint32		count;
	uint64		position;
	uint32		batch;
	uint32		passing;
	SearchCounters counters;
	SearchResult *results;
	char		error[128];		/* the engine's message, made printable */
} RawAnswer;

/*
 * Size of a hash table in which the slots of most answers have no collision,
 * and a multiplier (Fibonacci hashing) whose product's high bits spread
 * neighbouring slots evenly.
 */
#define SLOT_PLACES_LOG	13
#define SLOT_PLACES		(1 << SLOT_PLACES_LOG)
#define SLOT_SPREAD		0x9E3779B1u

/*
 * After a timeout this backend does not ask the server again until the server
 * has taken other requests, or for this long.
 */
#define HUNG_US		(10 * 1000000)

static struct
{
	int64		until_us;
	uint32		epoch;
	uint64		requests;		/* number of requests taken by the server when the request timed out
								 */
}			hung;

static void
note_timeout(uint32 epoch)
{
	hung.until_us = monotonic_us() + HUNG_US;
	hung.epoch = epoch;
	hung.requests = atomic_load(&gpuann_area->requests);
}

static bool
still_hung(uint32 epoch)
{
	if (hung.until_us == 0)
		return false;
	if (hung.epoch == epoch && hung.requests == atomic_load(&gpuann_area->requests) &&
		monotonic_us() < hung.until_us)
		return true;
	hung.until_us = 0;
	return false;
}

/*
 * Copy results into palloc'd memory; false if their count is impossible.
 */
static bool
copy_results(RawAnswer *raw, const SearchResult *results, uint32 k)
{
	if (raw->count > k)
		return false;
	raw->results =
		palloc_extended(mul_size(Max(raw->count, 1), sizeof(SearchResult)), MCXT_ALLOC_HUGE);
	memcpy(raw->results, results, raw->count * sizeof(SearchResult));
	return true;
}

/* Copy a query's program, if there is one, to where a request names it. */
static void
write_program(const ServerQuery *query, void *to)
{
	if (query->program == NULL)
		return;
	Assert(client_takes_program(query->program));
	program_write(query->program, to);
}

/* The query's fields in the shared area's format. */
static QueryRequest
query_request(const ServerQuery *query)
{
	return (QueryRequest){.method = query->method,
						  .k = query->k,
						  .ef = query->ef,
						  .probes = query->probes,
						  .rerank = query->rerank,
						  .vector_bytes = query->vector_bytes,
						  .has_beyond = query->beyond.set,
						  .beyond_slot = query->beyond.slot,
						  .beyond_distance = query->beyond.distance,
						  .set = query->set,
						  .program_steps = query->program ? query->program->nsteps : 0,
						  .program_values = query->program ? query->program->nvalues : 0};
}

/* Fill this backend's payload. */
static void
fill_payload(RequestPayload *payload, MirrorRef mirror, const ServerQuery *query)
{
	payload->mirror = (uint32) mirror.entry;
	payload->mirror_generation = mirror.generation;
	payload->query = query_request(query);
	payload->posted_us = monotonic_us();
	atomic_store_explicit(&payload->asleep, 0, memory_order_relaxed);
	memcpy(payload->vector, query->vector, query->vector_bytes);
	write_program(query, payload->program);
}

/*
 * Wait until this backend's request word is DONE. Called in PG_TRY, because
 * processing interrupts may raise an ERROR.
 */
static FallbackReason
wait_for_slot(_Atomic uint32_t *word, RequestPayload *payload, uint32 generation, uint32 epoch)
{
	int64		deadline = monotonic_us() + (int64) gpuann_request_timeout * 1000;
	uint32		event = shmem_wait_event(SHMEM_WAIT_REQUEST);

	for (;;)
	{
		uint32		value = atomic_load(word);
		uint32		now_epoch;
		int64		now;

		switch (request_look(value, generation))
		{
			case LOOK_DONE:
				return FALLBACK_NONE;
			case LOOK_FAILED:
				return FALLBACK_SERVER_DIED;
			case LOOK_FOREIGN:
				return FALLBACK_INVALID_ANSWER;
			case LOOK_PENDING:
				break;
		}
		/*
		 * If the server died and the launcher swept the words before this
		 * request was posted, no process will move the word. The waits are
		 * short so that this is noticed.
		 */
		if (!shmem_server_ready(&now_epoch) || now_epoch != epoch)
			return FALLBACK_SERVER_DIED;
		now = monotonic_us();
		if (now >= deadline)
			return FALLBACK_TIMEOUT;
		shmem_wait(word, value, Min(deadline, now + AREA_WAIT_MS * 1000), event, &payload->asleep);
	}
}

/* Ask through this backend's slot. */
static FallbackReason
search_by_slot(MirrorRef mirror, const ServerQuery *query, uint32 epoch, RawAnswer *raw)
{
	int			slot = shmem_my_slot();
	_Atomic uint32_t *word;
	RequestPayload *payload;
	uint32		generation;
	volatile FallbackReason why = FALLBACK_NONE;

	if (slot < 0)
		return FALLBACK_OFF;
	word = shared_word((uint32) slot);
	payload = shared_payload((uint32) slot);
	/*
	 * Between requests the word is FREE or ABANDONED. Any other value was
	 * written by a faulty server, and leaving it makes the slot usable again.
	 */
	if (request_state(atomic_load(word)) != REQUEST_FREE && !request_leave(word))
		return FALLBACK_SLOT_BUSY;

	fill_payload(payload, mirror, query);
	generation = request_post(gpuann_area, word);

	PG_TRY();
	{
		why = wait_for_slot(word, payload, generation, epoch);
		if (why == FALLBACK_NONE)
		{
			raw->status = *(volatile uint32_t *) &payload->status;
			raw->count = raw->status == ENGINE_OK ? *(volatile uint32_t *) &payload->count : 0;
			raw->position = payload->position;
			raw->batch = payload->batch;
			raw->passing = payload->passing;
			raw->counters = payload->counters;
			shmem_copy_text(raw->error, sizeof(raw->error), payload->error, sizeof(payload->error));
			if (!copy_results(raw, payload->results, query->k))
				why = FALLBACK_INVALID_ANSWER;
		}
	}
	PG_FINALLY();
	{
		shmem_leave_slot();
	}
	PG_END_TRY();
	return why;
}

/*
 * Queries that differ only in their vectors, for a channel; vectors are
 * consecutive.
 */
typedef struct ChannelBatch
{
	const MirrorRef *mirrors;	/* one for each, or one for all */
	bool		several;
	const ServerQuery *query;	/* except its vector */
	const void *vectors;
	uint32		count;
} ChannelBatch;

uint32
client_batch_room(const ServerQuery *query)
{
	Size		each = add_size(sizeof(ChannelFound), mul_size(query->k, sizeof(SearchResult)));

	Size		asked = query->vector_bytes + 2 * sizeof(uint32);	/* and its mirror's entry and
																	 * generation */

	return (uint32) ((CHANNEL_DATA_BYTES - PROGRAM_BYTES - 4 * AREA_ALIGN) / Max(each, asked));
}

/* Write each query's mirror into a channel; false if they do not fit. */
static bool
fill_mirrors(int number, ChannelRequest *request, const ChannelBatch *batch)
{
	Size		bytes = mul_size(batch->count, sizeof(uint32));
	uint32	   *entries = channel_array(number, bytes, &request->slots_offset);
	uint32	   *generations = channel_array(number, bytes, &request->versions_offset);

	if (entries == NULL || generations == NULL)
		return false;
	request->has_mirrors = 1;
	for (uint32 i = 0; i < batch->count; i++)
	{
		entries[i] = (uint32) batch->mirrors[i].entry;
		generations[i] = batch->mirrors[i].generation;
	}
	return true;
}

/* Write queries into a channel; false if vectors or answers do not fit. */
static bool
fill_channel(int number, const ChannelBatch *batch)
{
	const ServerQuery *query = batch->query;
	ChannelRequest *request = channel_prepare(
		number, CHANNEL_SEARCH, (uint32) batch->mirrors->entry, batch->mirrors->generation);
	void	   *vectors;
	void	   *program;

	if (batch->count > client_batch_room(query) ||
		(batch->several && !fill_mirrors(number, request, batch)))
		return false;
	vectors =
		channel_array(number, mul_size(batch->count, query->vector_bytes), &request->body_offset);
	program = channel_array(number, query->program != NULL ? PROGRAM_BYTES : 0,
							&request->columns_offset);
	if (vectors == NULL || program == NULL)
		return false;
	memcpy(vectors, batch->vectors, (Size) batch->count * query->vector_bytes);
	write_program(query, program);
	request->count = batch->count;
	request->query = query_request(query);
	return true;
}

/* Copy the answers out of a channel. */
static FallbackReason
read_channel(int number, const ChannelBatch *batch, RawAnswer *raws)
{
	AreaChannel *channel = shared_channel((uint32) number);
	uint32		count = *(volatile uint32_t *) &channel->out_count;
	uint32		k = batch->query->k;
	const ChannelFound *found = channel_answer_array(
		number, *(volatile uint64_t *) &channel->out_slots_offset, count, sizeof(ChannelFound));
	const SearchResult *results =
		channel_answer_array(number, *(volatile uint64_t *) &channel->out_offset,
							 (uint64) count * k, sizeof(SearchResult));

	if (count != batch->count || found == NULL || results == NULL)
		return FALLBACK_INVALID_ANSWER;
	for (uint32 i = 0; i < count; i++)
	{
		RawAnswer  *raw = &raws[i];

		raw->status = ENGINE_OK;
		raw->count = *(const volatile uint32_t *) &found[i].count;
		raw->position = found[i].position;
		raw->batch = count;
		raw->passing = found[i].passing;
		raw->counters = found[i].counters;
		if (!copy_results(raw, results + (Size) i * k, k))
			return FALLBACK_INVALID_ANSWER;
	}
	return FALLBACK_NONE;
}

FallbackReason
client_channel_failure(int channel, uint32 epoch)
{
	uint32		now_epoch;

	if (!shmem_server_ready(&now_epoch) || now_epoch != epoch)
		return FALLBACK_SERVER_DIED;
	return channel_has_answer(channel) ? FALLBACK_NONE : FALLBACK_TIMEOUT;
}

/*
 * Ask through a channel: several queries, or one whose answer is larger than
 * PAYLOAD_RESULTS. A failure is in raws[0].
 */
static FallbackReason
search_by_channel(const ChannelBatch *batch, uint32 epoch, RawAnswer *raws)
{
	volatile FallbackReason why = FALLBACK_TOO_LARGE;
	int64		patience = (int64) gpuann_request_timeout * 1000;
	int			channel = channel_claim();

	if (channel < 0)
		return FALLBACK_SLOT_BUSY;
	PG_TRY();
	{
		if (fill_channel(channel, batch))
		{
			int64		deadline = monotonic_us() + patience;
			const char *text;

			raws->status = channel_call_patiently(channel, deadline, patience, &text);
			strlcpy(raws->error, raws->status == ENGINE_OK ? "" : text, sizeof(raws->error));
			if (raws->status == ENGINE_OK)
				why = read_channel(channel, batch, raws);
			else
				why = client_channel_failure(channel, epoch);
		}
	}
	PG_FINALLY();
	{
		channel_release(channel);
	}
	PG_END_TRY();
	return why;
}

/*
 * Whether a slot occurs twice, exactly: a hash table with open addressing, at
 * most half full. All slots are below NO_SLOT.
 */
static bool
slot_repeated_surely(const SearchResult *results, uint32 count)
{
	uint32		mask = pg_nextpower2_32(count * 2) - 1;
	int			shift = 32 - pg_popcount32(mask);
	uint32 *places = palloc_extended(mul_size((Size) mask + 1, sizeof(uint32)), MCXT_ALLOC_HUGE);
	bool		repeated = false;

	memset(places, 0xFF, ((Size) mask + 1) * sizeof(uint32));
	for (uint32 i = 0; i < count && !repeated; i++)
	{
		uint32		slot = results[i].slot;
		uint32		place = (slot * SLOT_SPREAD) >> shift;

		while (places[place] != NO_SLOT && places[place] != slot)
			place = (place + 1) & mask;
		repeated = places[place] == slot;
		places[place] = slot;
	}
	pfree(places);
	return repeated;
}

/*
 * Whether a slot occurs twice. In most answers no two slots even have the same
 * hash value among SLOT_PLACES.
 */
static bool
slot_repeated(const SearchResult *results, uint32 count)
{
	uint64		met[SLOT_PLACES / 64];
	uint64		again = 0;

	if (count < 2)
		return false;
	if (count > SLOT_PLACES / 64)
		return slot_repeated_surely(results, count);
	memset(met, 0, sizeof(met));
	for (uint32 i = 0; i < count; i++)
	{
		uint32		place = (results[i].slot * SLOT_SPREAD) >> (32 - SLOT_PLACES_LOG);
		uint64		bit = UINT64CONST(1) << (place % 64);

		again |= met[place / 64] & bit;
		met[place / 64] |= bit;
	}
	return again != 0 && slot_repeated_surely(results, count);
}

/*
 * Whether an answer satisfies the protocol: within the limits of what was sent
 * to the mirror, in strictly ascending order of (distance, slot), no slot
 * twice. NaN is rejected, because it is ordered neither before nor after a
 * number.
 */
static bool
answer_is_valid(MirrorRef mirror, const ServerQuery *query, const RawAnswer *raw)
{
	const MirrorTrack *track = mirror_track(mirror.entry);
	uint32		rows = atomic_load(&track->rows_sent);
	double		last = query->beyond.set ? query->beyond.distance : -INFINITY;
	uint32		last_slot = query->beyond.set ? query->beyond.slot : NO_SLOT;

	if (raw->position > atomic_load(&track->position_sent) ||
		(query->program != NULL && raw->passing > rows))
		return false;
	for (uint32 i = 0; i < raw->count; i++)
	{
		const SearchResult *result = &raw->results[i];

		if (!engine_before(last, last_slot, result->distance, result->slot) || result->slot >= rows)
			return false;
		last = result->distance;
		last_slot = result->slot;
	}
	return !slot_repeated(raw->results, raw->count);
}

uint64
client_changes(MirrorRef mirror)
{
	uint64		changes = atomic_load(&mirror_track(mirror.entry)->changes_sent);

	/*
	 * Read the generation after the number: mirror_invalidate() advances it
	 * before resetting the number, so with an unchanged generation the number
	 * is this mirror's.
	 */
	return atomic_load(&mirror_area(mirror.entry)->generation) == mirror.generation ? changes : 0;
}

FallbackReason
client_may_ask(MirrorRef mirror, uint32 *epoch)
{
	if (gpuann_area == NULL || mirror.entry < 0)
		return FALLBACK_OFF;
	if (!shmem_server_ready(epoch))
		return shmem_no_gpu() ? FALLBACK_NO_GPU : FALLBACK_NO_SERVER;
	if (still_hung(*epoch))
		return FALLBACK_TIMEOUT;
	shmem_leave_at_exit();
	return FALLBACK_NONE;
}

/* The fallback reason of an answer's status. */
static FallbackReason
judge_status(const RawAnswer *raw)
{
	if (raw->status == ENGINE_OK)
		return FALLBACK_NONE;
	if (raw->status == ENGINE_NOT_FOUND)
		return FALLBACK_NOT_LOADED;
	fallback_detail(raw->error);
	return FALLBACK_ENGINE_ERROR;
}

/*
 * Ask through this backend's slot, which takes one query, or through a channel.
 */
static FallbackReason
client_ask(const ChannelBatch *batch, bool by_channel, RawAnswer *raws)
{
	uint32		epoch;
	FallbackReason why = client_may_ask(*batch->mirrors, &epoch);

	if (why != FALLBACK_NONE)
		return why;
	if (batch->query->vector_bytes > PAYLOAD_VECTOR || batch->query->k == 0)
		return FALLBACK_TOO_LARGE;
	if (by_channel)
		why = search_by_channel(batch, epoch, raws);
	else
		why = search_by_slot(*batch->mirrors, batch->query, epoch, raws);
	if (why == FALLBACK_TIMEOUT)
		note_timeout(epoch);
	return why == FALLBACK_NONE ? judge_status(raws) : why;
}

/* Validate an answer, and return it. */
static FallbackReason
client_hand_over(MirrorRef mirror, const ServerQuery *query, const RawAnswer *raw,
				 ServerAnswer *answer)
{
	if (!answer_is_valid(mirror, query, raw))
	{
		pfree(raw->results);
		/*
		 * If the generation has changed, the limits may be those of another
		 * mirror, so the answer says nothing about the server.
		 */
		if (!mirror_is_generation(mirror.entry, mirror.generation))
			return FALLBACK_NOT_LOADED;
		return FALLBACK_INVALID_ANSWER;
	}
	*answer = (ServerAnswer){.results = raw->results,
							 .count = raw->count,
							 .position = raw->position,
							 .batch = raw->batch,
							 .passing = raw->passing,
							 .counters = raw->counters};
	return FALLBACK_NONE;
}

FallbackReason
client_search(MirrorRef mirror, const ServerQuery *query, ServerAnswer *answer)
{
	ChannelBatch batch = {&mirror, false, query, query->vector, 1};
	RawAnswer	raw;
	FallbackReason why;

	memset(&raw, 0, sizeof(raw));
	memset(answer, 0, sizeof(*answer));
	why = client_ask(&batch, query->k > PAYLOAD_RESULTS, &raw);
	return why == FALLBACK_NONE ? client_hand_over(mirror, query, &raw, answer) : why;
}

/* Ask a batch, and return its answers. */
static FallbackReason
client_search_all(const ChannelBatch *batch, ServerAnswer *answers)
{
	RawAnswer  *raws = palloc0(mul_size(Max(batch->count, 1), sizeof(RawAnswer)));
	FallbackReason why = client_ask(batch, true, raws);

	for (uint32 i = 0; i < batch->count && why == FALLBACK_NONE; i++)
		why = client_hand_over(batch->mirrors[batch->several ? i : 0], batch->query, &raws[i],
							   &answers[i]);
	pfree(raws);
	return why;
}

FallbackReason
client_search_batch(MirrorRef mirror, const ServerQuery *query, const void *vectors, uint32 count,
					ServerAnswer *answers)
{
	ChannelBatch batch = {&mirror, false, query, vectors, count};

	return client_search_all(&batch, answers);
}

FallbackReason
client_search_several(const MirrorRef *mirrors, const ServerQuery *query, const void *vectors,
					  uint32 count, ServerAnswer *answers)
{
	ChannelBatch batch = {mirrors, true, query, vectors, count};

	return client_search_all(&batch, answers);
}

void
client_count_scan(MirrorRef mirror, const ScanTally *tally)
{
	MirrorCounters *counters;

	if (gpuann_area == NULL || mirror.entry < 0 ||
		atomic_load(&mirror_track(mirror.entry)->identity) != mirror.identity)
		return;
	counters = &mirror_area(mirror.entry)->counters;
	atomic_fetch_add(&counters->scans, 1);
	atomic_fetch_add(tally->server ? &counters->answers_server : &counters->answers_pages, 1);
	if (tally->timed)
		atomic_fetch_add_explicit(&mirror_latency(mirror.entry)
									   ->counts[tally->server ? LATENCY_SERVER : LATENCY_PAGES]
											   [latency_bucket(tally->first_us)],
								  1, memory_order_relaxed);
	if (tally->why > FALLBACK_NONE && tally->why < FALLBACK_COUNTED)
		atomic_fetch_add(&counters->fallbacks[tally->why], 1);
	if (tally->proposed)
		atomic_fetch_add(&counters->proposed, tally->proposed);
	if (tally->dropped)
		atomic_fetch_add(&counters->dropped, tally->dropped);
	if (tally->pending)
		atomic_fetch_add(&counters->pending_searched, tally->pending);
	if (tally->continuations)
		atomic_fetch_add(&counters->continuations, tally->continuations);
}
