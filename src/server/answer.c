/*
 * answer.c
 *		Answers into payloads, and the words they turn.
 *
 * A payload is written only while its word says that this request is TAKEN,
 * that is, while it is the server's. If the client leaves while it is written,
 * the word is ABANDONED, the payload still the server's, and the answer is for
 * nobody.
 */
#include <stdio.h>
#include <string.h>

#include "server/server.h"

/* Turn the word of an answered or refused request, and forget the request. */
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
		 * Looked at after the move: who says so later finds the word moved, and
		 * does not sleep.
		 */
		if (atomic_load(&server_payload(server, ticket->number)->asleep) != 0)
			client_wake(server, word);
	}
	else if (request_move(word, ticket->generation, REQUEST_ABANDONED, REQUEST_FREE))
		PROTOCOL_STEP(SERVER_FREED);
	else
		process_warn("request slot %u was changed while the server had it", ticket->number);
}

/* Whether the payload is still to be written. */
static bool
request_is_ours(const Server *server, const Ticket *ticket)
{
	return atomic_load(server_word(server, ticket->number)) ==
		   request_word(ticket->generation, REQUEST_TAKEN);
}

/* Answer a request with a status and a text instead of results. */
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
		memset(&payload->counters, 0, sizeof(payload->counters));
		snprintf(payload->error, sizeof(payload->error), "%s", text);
	}
	request_finish(server, ticket);
}

/* Answer a request with what its query found. */
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
		payload->counters = query->counters;
		if (waited > 0 && waited < UINT32_MAX / 2)
			payload->counters.queue_us += (uint32_t) waited;
		payload->error[0] = '\0';
	}
	request_finish(server, ticket);
}
