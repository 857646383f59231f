/*
 * answer.c
 *		Write answers into request payloads and move the request words.
 *
 * A payload is written only while its word is TAKEN in this request's
 * generation, that is, while the server owns it. If the client leaves
 * meanwhile, the word becomes ABANDONED; the server still owns the payload, and
 * the answer is never read.
 */
#include <stdio.h>
#include <string.h>

#include "server/server.h"

/* Move the word of an answered or refused request, and end its ticket. */
static void
request_finish(Server *server, Ticket *ticket)
{
	_Atomic uint32_t *word = server_word(server, ticket->number);

	ticket->state = TICKET_IDLE;
	PROTOCOL_STEP(SERVER_ANSWERS);
	if (request_move(word, ticket->generation, REQUEST_TAKEN, REQUEST_DONE))
	{
		PROTOCOL_STEP(SERVER_DONE);
		/*
		 * Read `asleep` after the move: a client that sets it later finds the
		 * word changed and does not sleep.
		 */
		if (atomic_load(&server_payload(server, ticket->number)->asleep) != 0)
			client_wake(server, word);
	}
	else if (request_move(word, ticket->generation, REQUEST_ABANDONED, REQUEST_FREE))
		PROTOCOL_STEP(SERVER_FREED);
	else
		process_warn("request slot %u was changed while the server had it", ticket->number);
}

/* Whether the server still owns the payload for a client that waits. */
static bool
request_is_ours(const Server *server, const Ticket *ticket)
{
	return atomic_load(server_word(server, ticket->number)) ==
		   request_word(ticket->generation, REQUEST_TAKEN);
}

/* Answer a request with an error. */
void
request_refuse(Server *server, Ticket *ticket, EngineStatus status, const char *text)
{
	RequestPayload *payload = server_payload(server, ticket->number);

	if (request_is_ours(server, ticket))
	{
		payload->status = status;
		payload->count = 0;
		payload->position = 0;
		payload->rows = 0;
		payload->batch = 0;
		payload->passing = 0;
		memset(&payload->counters, 0, sizeof(payload->counters));
		snprintf(payload->error, sizeof(payload->error), "%s", text);
	}
	request_finish(server, ticket);
}

/* Answer a request with the results of its query. */
void
request_answer(Server *server, Ticket *ticket, const Batch *batch)
{
	RequestPayload *payload = server_payload(server, ticket->number);
	const EngineQuery *query = &ticket->query;

	if (query->status != ENGINE_OK)
	{
		request_refuse(server, ticket, query->status, query->error.text);
		return;
	}
	if (query->count > query->k)
	{
		request_refuse(server, ticket, ENGINE_INVALID,
					   "the engine returned more results than were wanted");
		return;
	}
	if (request_is_ours(server, ticket))
	{
		int64_t		waited = batch->submitted_us - ticket->posted_us;

		memcpy(payload->results, query->results, query->count * sizeof(SearchResult));
		PROTOCOL_STEP(SERVER_COPIED);
		payload->status = ENGINE_OK;
		payload->count = query->count;
		payload->position = query->position;
		payload->rows = query->rows;
		payload->batch = batch->queries;
		payload->passing = query->passing;
		payload->counters = query->counters;
		if (waited > 0 && waited < UINT32_MAX / 2)
			payload->counters.queue_us += (uint32_t) waited;
		payload->error[0] = '\0';
	}
	request_finish(server, ticket);
}
