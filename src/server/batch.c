/*
 * batch.c
 *		Take requests, queue them as tickets per mirror, and submit each
 *		mirror's queue as a batch.
 *
 * A mirror's queue is submitted when none of its batches is in flight, or when
 * fewer than BATCHES_PER_MIRROR are and the queue is at least half as long as
 * the last batch. So a single query never waits, and under load queries
 * accumulate while earlier batches run. An engine that answers queries one at a
 * time (the CPU engine) gets them at once, until twice as many are in flight as
 * it has threads. A query that is alone in the server is submitted as lone: the
 * CPU engine then runs it in the main thread, which saves waking a worker.
 */
#include <math.h>
#include <string.h>

#include "server/server.h"

/* Counts of completed queries of one mirror, to be added to its counters. */
typedef struct Tally
{
	uint32_t	entry;
	MirrorId	mirror;
	uint32_t	queries;
	uint64_t	queue_us;
	uint64_t	engine_us;
} Tally;

EngineStatus
query_fill(const HeldMirror *mirror, const QueryRequest *request, uint32_t max_k,
		   EngineQuery *query, EngineError *error)
{
	if (request->method != METHOD_EXACT && request->method != mirror->spec.method)
		engine_error(error, ENGINE_INVALID, "the mirror has no search method %u", request->method);
	else if (request->k < 1 || request->k > max_k)
		engine_error(error, ENGINE_INVALID, "%u results are outside 1 .. %u", request->k, max_k);
	else if (request->method == METHOD_GRAPH && (request->ef < 1 || request->ef > ENGINE_MAX_EF))
		engine_error(error, ENGINE_INVALID, "ef %u is outside 1 .. %u", request->ef, ENGINE_MAX_EF);
	else if (request->method != METHOD_EXACT && request->k > ENGINE_MAX_EF)
		engine_error(error, ENGINE_INVALID, "a search of graph or lists cannot return %u results",
					 request->k);
	else if (request->method == METHOD_IVFPQ && request->probes < 1)
		engine_error(error, ENGINE_INVALID, "a search of lists needs probes");
	else if (request->vector_bytes != mirror->vector_bytes)
		engine_error(error, ENGINE_INVALID, "a query of %u bytes does not fit vectors of %u bytes",
					 request->vector_bytes, mirror->vector_bytes);
	else if (request->set.id != 0 && request->method != METHOD_EXACT)
		engine_error(error, ENGINE_INVALID, "only an exact search is restricted to a set of rows");
	else if (request->has_beyond > 1 || (request->has_beyond && isnan(request->beyond_distance)))
		engine_error(error, ENGINE_INVALID, "the bound of the search is invalid");
	else
	{
		*query = (EngineQuery) {
			.mirror = mirror->id,
			.method = (SearchMethod) request->method,
			.k = request->k,
			.ef = request->method == METHOD_GRAPH ? request->ef : 1,
			.probes = request->probes,
			.rerank = request->rerank,
			.has_beyond = request->has_beyond == 1,
			.beyond_distance = request->beyond_distance,
			.beyond_slot = request->beyond_slot,
		};
		return ENGINE_OK;
	}
	return ENGINE_INVALID;
}

/* Append a mirror to the list of those with waiting queries. */
static void
ready_append(Server *server, uint32_t entry)
{
	server->mirrors[entry].ready = true;
	server->mirrors[entry].next_ready = NO_ENTRY;
	if (server->ready_first == NO_ENTRY)
		server->ready_first = entry;
	else
		server->mirrors[server->ready_last].next_ready = entry;
	server->ready_last = entry;
}

/* Append a ticket to its mirror's queue. */
static void
ticket_queue(Server *server, HeldMirror *mirror, Ticket *ticket)
{
	ticket->state = TICKET_WAITING;
	ticket->next = NULL;
	if (mirror->waiting++ > 0)
		mirror->last->next = ticket;
	else
		mirror->first = ticket;
	mirror->last = ticket;
	if (!mirror->ready)
		ready_append(server, ticket->entry);
}

/*
 * Take one posted request: copy its fields once, check the copies, queue or
 * refuse it. Returns true if it was taken.
 */
static bool
request_take(Server *server, uint32_t slot, uint32_t word)
{
	const volatile RequestPayload *payload = server_payload(server, slot);
	Ticket	   *ticket = &server->tickets[slot];
	EngineError error;
	HeldMirror *mirror;
	QueryRequest request;
	uint32_t	generation;

	if (ticket->state != TICKET_IDLE)
	{
		process_warn("request slot %u was posted before its last request was answered", slot);
		return false;
	}
	ticket->generation = request_generation(word);
	PROTOCOL_STEP(SERVER_SAW);
	if (!request_move(server_word(server, slot), ticket->generation, REQUEST_POSTED, REQUEST_TAKEN))
		return false;
	PROTOCOL_STEP(SERVER_TOOK);
	ticket->entry = payload->mirror;
	generation = payload->mirror_generation;
	request = payload->query;
	ticket->posted_us = payload->posted_us;
	/*
	 * The client's clock is not trusted, but this only chooses the thread that
	 * searches.
	 */
	if (ticket->posted_us < server->lone_ended_us)
		server->not_lone_batches = NOT_LONE_BATCHES;

	mirror = held_find(server, ticket->entry, generation, &error);
	if (mirror == NULL ||
		query_fill(mirror, &request, PAYLOAD_RESULTS, &ticket->query, &error) != ENGINE_OK ||
		program_take(&request, (const void *) payload->program,
					 server->programs + (size_t) slot * PROGRAM_BYTES, &ticket->program,
					 &error) != ENGINE_OK ||
		program_restrict(mirror, &ticket->program, &ticket->query, &error) != ENGINE_OK)
	{
		request_refuse(server, ticket, error.status, error.text);
		return true;
	}
	/*
	 * submit reads the vector from the payload, which the server owns until the
	 * word leaves TAKEN.
	 */
	ticket->query.vector = (const void *) server_payload(server, slot)->vector;
	ticket->query.results = server->results + (size_t) slot * PAYLOAD_RESULTS;
	ticket->query.user = ticket;
	ticket->set = request.set;
	ticket->bytes = watchdog_query_bytes(mirror, &ticket->query);
	ticket_queue(server, mirror, ticket);
	PROTOCOL_STEP(SERVER_QUEUED);
	return true;
}

/*
 * Take all posted requests. They are collected first, so that the cache misses
 * of their payloads overlap.
 */
bool
requests_take(Server *server)
{
	_Atomic uint32_t *words = server_word(server, 0);
	uint32_t	found = 0;
	uint32_t	taken = 0;

	for (uint32_t slot = 0; slot < server->layout.slots; slot++)
	{
		if (request_state(atomic_load_explicit(&words[slot], memory_order_relaxed)) !=
			REQUEST_POSTED)
			continue;
		server->posted[found++] = slot;
		__builtin_prefetch(server_payload(server, slot));
	}
	for (uint32_t i = 0; i < found; i++)
	{
		uint32_t	slot = server->posted[i];
		uint32_t	word = atomic_load_explicit(&words[slot], memory_order_acquire);

		if (request_state(word) == REQUEST_POSTED)
			taken += request_take(server, slot, word);
	}
	if (taken > 0)
		atomic_fetch_add_explicit(&server->area->requests, taken, memory_order_relaxed);
	return taken > 0;
}

/*
 * Move words that no other process would move. When the server starts no other
 * server lives (the lock file), so TAKEN requests have lost their server.
 * ABANDONED requests without a ticket are no longer in the engine.
 */
void
requests_sweep(Server *server, bool starting)
{
	for (uint32_t slot = 0; slot < server->layout.slots; slot++)
	{
		_Atomic uint32_t *word = server_word(server, slot);
		uint32_t	value = atomic_load(word);
		uint32_t	generation = request_generation(value);

		if (starting)
			PROTOCOL_STEP(SERVER_SWEEPS);
		if (starting && request_state(value) == REQUEST_TAKEN)
		{
			if (request_move(word, generation, REQUEST_TAKEN, REQUEST_FAILED))
				area_futex_wake(word, INT_MAX);
			value = atomic_load(word);
		}
		if (request_state(value) == REQUEST_ABANDONED && server->tickets[slot].state == TICKET_IDLE)
			(void) request_move(word, generation, REQUEST_ABANDONED, REQUEST_FREE);
	}
}

/* Empty a mirror's queue and return its tickets. */
static Ticket *
queue_detach(HeldMirror *mirror)
{
	Ticket	   *first = mirror->first;

	mirror->first = mirror->last = NULL;
	mirror->waiting = 0;
	return first;
}

/* Refuse all queries that wait for a mirror. */
void
queries_refuse(Server *server, HeldMirror *mirror, EngineStatus status, const char *text)
{
	Ticket	   *ticket = queue_detach(mirror);

	while (ticket != NULL)
	{
		Ticket	   *next = ticket->next;

		request_refuse(server, ticket, status, text);
		ticket = next;
	}
}

/*
 * Collect a mirror's waiting queries in server->gathered; abandoned ones, and
 * those whose set of rows has gone, are removed. Returns how many.
 */
static uint32_t
queue_gather(Server *server, HeldMirror *mirror)
{
	Ticket	   *ticket = queue_detach(mirror);
	EngineError error = {ENGINE_OK, ""};
	uint32_t	count = 0;

	while (ticket != NULL)
	{
		Ticket	   *next = ticket->next;

		if (atomic_load(server_word(server, ticket->number)) ==
			request_word(ticket->generation, REQUEST_ABANDONED))
			request_refuse(server, ticket, ENGINE_CANCELLED, "");
		else if (set_restrict(server, &ticket->set, ticket->entry, &ticket->query, &error) !=
				 ENGINE_OK)
			request_refuse(server, ticket, error.status, error.text);
		else
		{
			server->gathered[count++] = &ticket->query;
			ticket->next = NULL;
			if (mirror->last == NULL)
				mirror->first = ticket;
			else
				mirror->last->next = ticket;
			mirror->last = ticket;
		}
		ticket = next;
	}
	mirror->waiting = count;
	return count;
}

/* Index of an unused batch, or BATCHES. */
static uint32_t
batch_find_unused(const Server *server)
{
	uint32_t	batch = 0;

	while (batch < BATCHES && server->batches[batch].mirror != 0)
		batch++;
	return batch;
}

/*
 * Whether a query is alone in the server, and lately none was posted while such
 * a query was running.
 */
static bool
is_lone(Server *server, uint32_t count)
{
	if (count > 1 || server->queries_in_flight > 0 || server->channels_busy > 0 ||
		server->drops != NULL)
		return false;
	if (server->not_lone_batches == 0)
		return true;
	server->not_lone_batches--;
	return false;
}

/*
 * Submit a mirror's waiting queries as one batch. Returns false if it has to be
 * retried.
 */
static bool
batch_submit(Server *server, uint32_t entry)
{
	HeldMirror *mirror = &server->mirrors[entry];
	uint32_t	number = batch_find_unused(server);
	uint32_t	count;
	Batch	   *batch;
	EngineError error = {ENGINE_OK, ""};
	EngineStatus status;

	if (number == BATCHES)
		return false;
	count = queue_gather(server, mirror);
	if (count == 0)
		return true;
	engine_work_begin(server, entry);
	server->gathered[0]->lone = server->lone_in_flight = is_lone(server, count);
	PROTOCOL_STEP(SERVER_SUBMITS);
	status = server->ops->submit(server->engine, server->gathered, count, &error);
	PROTOCOL_STEP(SERVER_SUBMITTED);
	fail_if_failed(server, status, &error);
	if (status != ENGINE_OK)
		engine_work_end(server, entry);
	if (status == ENGINE_BUSY)
		return false;
	if (status != ENGINE_OK)
	{
		queries_refuse(server, mirror, status, error.text);
		return true;
	}
	batch = &server->batches[number];
	*batch = (Batch) {mirror->id, entry, count, count, monotonic_us()};
	for (Ticket *ticket = queue_detach(mirror); ticket != NULL; ticket = ticket->next)
	{
		ticket->state = TICKET_IN_FLIGHT;
		ticket->checks = 0;
		ticket->batch = number;
	}
	mirror->in_flight++;
	mirror->last_batch = count;
	server->queries_in_flight += count;
	atomic_fetch_add_explicit(&server->area->batches, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&server_mirror(server, entry)->counters.batches, 1,
							  memory_order_relaxed);
	return true;
}

/* Submit the batches that may start now, in turn by mirror. */
bool
batches_launch(Server *server)
{
	uint32_t	entry = server->ready_first;
	bool		worked = false;

	server->ready_first = server->ready_last = NO_ENTRY;
	while (entry != NO_ENTRY)
	{
		HeldMirror *mirror = &server->mirrors[entry];
		uint32_t	next = mirror->next_ready;

		if (mirror->waiting > 0 &&
			(mirror->in_flight == 0 || server->queries_in_flight < server->launch_at_once ||
			 (mirror->in_flight < BATCHES_PER_MIRROR && mirror->waiting * 2 >= mirror->last_batch)))
			worked |= batch_submit(server, entry);
		mirror->ready = false;
		if (mirror->waiting > 0)
			ready_append(server, entry);
		entry = next;
	}
	return worked;
}

/* Add the counts to the mirror's counters. */
static void
tally_flush(Server *server, Tally *tally)
{
	MirrorCounters *counters = &server_mirror(server, tally->entry)->counters;

	/*
	 * If the entry has another mirror by now, its counters may belong to
	 * another index.
	 */
	if (tally->queries > 0 && server->mirrors[tally->entry].id == tally->mirror)
	{
		atomic_fetch_add_explicit(&counters->batched_queries, tally->queries, memory_order_relaxed);
		atomic_fetch_add_explicit(&counters->queue_us, tally->queue_us, memory_order_relaxed);
		atomic_fetch_add_explicit(&counters->engine_us, tally->engine_us, memory_order_relaxed);
		server->mirrors[tally->entry].counts_due = true;
	}
	*tally = (Tally) {0};
}

/*
 * Count a completed query. Its queue time is from post to the start of its
 * search.
 */
static void
tally_query(Server *server, Tally *tally, const EngineQuery *query)
{
	const Ticket *ticket = query->user;
	int64_t submitted_us =
		ticket->of_channel ? ticket->posted_us : server->batches[ticket->batch].submitted_us;
	int64_t		waited = submitted_us - ticket->posted_us;

	if (tally->entry != ticket->entry || tally->mirror != query->mirror)
		tally_flush(server, tally);
	tally->entry = ticket->entry;
	tally->mirror = query->mirror;
	tally->queries++;
	/* The client's clock is not trusted. */
	if (waited > 0 && waited < INT64_C(3600) * 1000000)
		tally->queue_us += (uint64_t) waited;
	tally->queue_us += query->counters.queue_us;
	tally->engine_us += query->counters.engine_us;
}

/* Answer a completed query, and end its batch with the last one. */
static void
query_done(Server *server, EngineQuery *query)
{
	Ticket	   *ticket = query->user;
	Batch	   *batch;

	fail_if_failed(server, query->status, &query->error);
	server->queries_in_flight--;
	server->queries_done++;
	if (ticket->of_channel)
	{
		channel_search_done(server, ticket);
		return;
	}
	batch = &server->batches[ticket->batch];
	PROTOCOL_STEP(SERVER_COMPLETED);
	request_answer(server, ticket, batch);
	if (--batch->outstanding == 0)
	{
		HeldMirror *mirror = &server->mirrors[batch->entry];

		if (mirror->id == batch->mirror)
			mirror->in_flight--;
		engine_work_end(server, batch->entry);
		batch->mirror = 0;
	}
}

/* Answer the queries that the engine has completed. */
bool
queries_poll(Server *server)
{
	EngineQuery *completed[POLL_ROOM];
	EngineError error = {ENGINE_OK, ""};
	Tally		tally = {0};
	uint32_t	count = 0;
	bool		worked = false;

	do
	{
		EngineStatus status =
			server->ops->poll(server->engine, completed, POLL_ROOM, &count, &error);

		fail_if_failed(server, status, &error);
		if (status != ENGINE_OK)
			return worked;
		if (server->lone_in_flight)
		{
			server->lone_in_flight = false;
			server->lone_ended_us = monotonic_us();
		}
		/*
		 * Count before answering, so that a client that has its answer is
		 * included in the counters; add to the shared counters once per round,
		 * because their cache lines are contended.
		 */
		for (uint32_t i = 0; i < count; i++)
			tally_query(server, &tally, completed[i]);
		tally_flush(server, &tally);
		for (uint32_t i = 0; i < count; i++)
			query_done(server, completed[i]);
		worked |= count > 0;
	} while (count == POLL_ROOM);
	return worked;
}
