/*
 * channel_search.c
 *		Searches by bulk channel: answers larger than a payload, and many
 *		queries at once.
 *
 * The engine gets a channel's queries in pieces, each after the previous one is
 * answered, so that single requests can start in between and a client that
 * leaves wastes one piece at most. Answers are collected in private memory and
 * written at the end, because the channel's data holds the vectors until then.
 */
#include <stdlib.h>
#include <string.h>

#include "server/server.h"

/*
 * Number of queries in a piece. For an engine that answers queries one at a
 * time, half of its threads remain free; but queries of several mirrors, which
 * one statement waits for, are launched as many at once as single requests are,
 * and rarely in more than one piece.
 */
static uint32_t
piece_size(const Server *server, const ChannelRequest *request)
{
	uint32_t	size = server->launch_at_once / 4;

	if (request->has_mirrors)
		size = server->launch_at_once > FEW_MIRRORS ? server->launch_at_once : FEW_MIRRORS;
	if (server->launch_at_once == 0 || size > CHANNEL_PIECE)
		return CHANNEL_PIECE;
	return size > 0 ? size : 1;
}

/* The mirror table's entry for a query. */
static uint32_t
channel_search_entry(const ChannelWork *work, uint32_t place)
{
	return work->search.entries == NULL ? work->request.mirror : work->search.entries[place];
}

/* The generation of its mirror. */
static uint32_t
channel_search_generation(const ChannelWork *work, uint32_t place)
{
	const uint32_t *entries = work->search.entries;

	return entries == NULL ? work->request.mirror_generation
						   : entries[work->request.count + place];
}

/* Free a search and its results. */
void
channel_search_forget(Server *server, ChannelWork *work)
{
	for (uint32_t i = 0; work->search.entries != NULL && i < work->request.count; i++)
		engine_work_end(server, work->search.entries[i]);
	free(work->search.entries);
	free(work->search.program_copy);
	free(work->search.found);
	free(work->search.results);
	work->search = (ChannelSearch) {.tickets = work->search.tickets};
}

/*
 * Copy entries and generations, because the client could change them after
 * the check, and count the engine's work for each.
 */
static EngineStatus
channel_search_take_mirrors(Server *server, uint32_t number, EngineError *error)
{
	ChannelWork *work = &server->channels[number];
	const ChannelRequest *request = &work->request;
	const unsigned char *data = server_channel_data(server, number);
	size_t		bytes = request->count * sizeof(uint32_t);
	uint32_t   *entries;

	if (!channel_holds(server, request->slots_offset, request->count, sizeof(uint32_t)) ||
		!channel_holds(server, request->versions_offset, request->count, sizeof(uint32_t)))
		return engine_error(error, ENGINE_INVALID, "%u mirrors do not fit the bulk channel",
							request->count);
	entries = malloc(2 * bytes);
	if (entries == NULL)
		return engine_error(error, ENGINE_NO_MEMORY, "out of memory for %u mirrors",
							request->count);
	memcpy(entries, data + request->slots_offset, bytes);
	memcpy(entries + request->count, data + request->versions_offset, bytes);
	work->search.entries = entries;
	for (uint32_t i = 0; i < request->count; i++)
		engine_work_begin(server, entries[i]);
	return ENGINE_OK;
}

/*
 * Look up a query's mirror, which may have been dropped since the last piece,
 * and fill the query from the request.
 */
static EngineStatus
channel_search_fill(Server *server, const ChannelWork *work, uint32_t place, EngineQuery *query,
					EngineError *error)
{
	HeldMirror *mirror = held_find(server, channel_search_entry(work, place),
								   channel_search_generation(work, place), error);
	uint32_t	max_k = (uint32_t) (server->layout.channel_data_bytes / sizeof(SearchResult));

	if (mirror == NULL ||
		query_fill(mirror, &work->request.query, max_k, query, error) != ENGINE_OK ||
		program_restrict(mirror, &work->search.program, query, error) != ENGINE_OK)
		return error->status;
	return set_restrict(server, &work->request.query.set, channel_search_entry(work, place), query,
						error);
}

/* Check that queries and answers fit the channel. */
static EngineStatus
channel_search_check(const Server *server, const ChannelRequest *request, EngineError *error)
{
	if (request->has_mirrors > 1)
		engine_error(error, ENGINE_INVALID, "the bulk channel's flags are invalid");
	else if (request->count < 1 || !channel_holds(server, request->body_offset, request->count,
												  request->query.vector_bytes))
		engine_error(error, ENGINE_INVALID, "%u queries of %u bytes do not fit the bulk channel",
					 request->count, request->query.vector_bytes);
	else if (!channel_holds(server, channel_found_bytes(request->count), request->count,
							(uint64_t) request->query.k * sizeof(SearchResult)))
		engine_error(error, ENGINE_INVALID, "%u answers of %u results do not fit the bulk channel",
					 request->count, request->query.k);
	return error->status;
}

/* Copy the program that the queries name, if any. */
static EngineStatus
channel_search_take_program(Server *server, uint32_t number, EngineError *error)
{
	ChannelSearch *search = &server->channels[number].search;
	const ChannelRequest *request = &server->channels[number].request;
	uint64_t	bytes =
		program_bytes_of(request->query.program_steps, request->query.program_values);

	if (request->query.program_steps == 0)
		return ENGINE_OK;
	if (!channel_holds(server, request->columns_offset, bytes, 1))
		return engine_error(error, ENGINE_INVALID, "the program does not fit the bulk channel");
	search->program_copy = malloc(PROGRAM_BYTES);
	if (search->program_copy == NULL)
		return engine_error(error, ENGINE_NO_MEMORY, "out of memory for a program");
	return program_take(&request->query,
						server_channel_data(server, number) + request->columns_offset,
						search->program_copy, &search->program, error);
}

/* Check a CHANNEL_SEARCH, and allocate memory for its results. */
EngineStatus
channel_search_begin(Server *server, uint32_t number, EngineError *error)
{
	ChannelWork *work = &server->channels[number];
	const ChannelRequest *request = &work->request;
	ChannelSearch *search = &work->search;
	EngineQuery query;

	atomic_fetch_add_explicit(&server->area->requests, 1, memory_order_relaxed);
	if (channel_search_check(server, request, error) != ENGINE_OK ||
		channel_search_take_program(server, number, error) != ENGINE_OK ||
		(request->has_mirrors &&
		 channel_search_take_mirrors(server, number, error) != ENGINE_OK))
		return error->status;
	for (uint32_t i = 0; i < (request->has_mirrors ? request->count : 1); i++)
		if (channel_search_fill(server, work, i, &query, error) != ENGINE_OK)
			return error->status;
	search->found = calloc(request->count, sizeof(ChannelFound));
	search->results = malloc((size_t) request->count * request->query.k * sizeof(SearchResult));
	if (search->found == NULL || search->results == NULL)
		engine_error(error, ENGINE_NO_MEMORY, "out of memory for %u answers of %u results",
					 request->count, request->query.k);
	search->posted_us = monotonic_us();
	return error->status;
}

/* Fill the ticket of a query. */
static EngineStatus
channel_search_ticket(Server *server, uint32_t number, uint32_t place, Ticket *ticket,
					  EngineError *error)
{
	ChannelWork *work = &server->channels[number];
	const ChannelRequest *request = &work->request;
	ChannelSearch *search = &work->search;

	if (channel_search_fill(server, work, place, &ticket->query, error) != ENGINE_OK)
		return error->status;
	ticket->query.vector = server_channel_data(server, number) + request->body_offset +
						   (size_t) place * request->query.vector_bytes;
	ticket->query.results = search->results + (size_t) place * request->query.k;
	ticket->query.user = ticket;
	ticket->entry = channel_search_entry(work, place);
	ticket->posted_us = search->posted_us;
	ticket->bytes = watchdog_query_bytes(&server->mirrors[ticket->entry], &ticket->query);
	return ENGINE_OK;
}

/* Submit the queries of some tickets, which are of one mirror. */
static EngineStatus
channel_search_launch(Server *server, ChannelSearch *search, Ticket *tickets, uint32_t count,
					  EngineError *error)
{
	EngineQuery *queries[CHANNEL_PIECE] = {NULL};
	EngineStatus status;

	for (uint32_t i = 0; i < count; i++)
		queries[i] = &tickets[i].query;
	status = server->ops->submit(server->engine, queries, count, error);
	if (status != ENGINE_OK)
		return status;
	for (uint32_t i = 0; i < count; i++)
	{
		tickets[i].state = TICKET_IN_FLIGHT;
		tickets[i].checks = 0;
	}
	search->next += count;
	search->outstanding += count;
	server->queries_in_flight += count;
	atomic_fetch_add_explicit(&server->area->batches, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&server_mirror(server, tickets->entry)->counters.batches, 1,
							  memory_order_relaxed);
	return ENGINE_OK;
}

/*
 * Submit the next piece to the engine, one mirror's queries after the other's.
 * What the engine does not take after it has taken some is submitted, or ends
 * the search, when these are answered.
 */
EngineStatus
channel_search_submit(Server *server, uint32_t number, EngineError *error)
{
	const ChannelRequest *request = &server->channels[number].request;
	ChannelSearch *search = &server->channels[number].search;
	uint32_t	left = request->count - search->next;
	uint32_t	count = piece_size(server, request);
	uint32_t	place = search->next;
	EngineStatus status = ENGINE_OK;

	if (count > left)
		count = left;
	for (uint32_t i = 0; i < count; i++)
		if (channel_search_ticket(server, number, place + i, &search->tickets[i], error) !=
			ENGINE_OK)
			return error->status;
	for (uint32_t i = 0, some; i < count && status == ENGINE_OK; i += some)
	{
		Ticket	   *tickets = &search->tickets[i];

		for (some = 1; i + some < count && tickets[some].query.mirror == tickets->query.mirror;)
			some++;
		status = channel_search_launch(server, search, tickets, some, error);
	}
	if (search->outstanding == 0 || status == ENGINE_FAILED)
		return status;
	if (status != ENGINE_OK && status != ENGINE_BUSY)
	{
		search->error = *error;
		search->error.status = status;
	}
	return ENGINE_OK;
}

/* Write the answers into the channel's data. */
static void
channel_search_answer(Server *server, uint32_t number)
{
	const ChannelRequest *request = &server->channels[number].request;
	const ChannelSearch *search = &server->channels[number].search;
	AreaChannel *channel = server_channel(server, number);
	unsigned char *data = server_channel_data(server, number);
	uint64_t	end = channel_found_bytes(request->count);

	memcpy(data, search->found, request->count * sizeof(ChannelFound));
	for (uint32_t i = 0; i < request->count; i++)
		memcpy(data + end + (uint64_t) i * request->query.k * sizeof(SearchResult),
			   search->results + (size_t) i * request->query.k,
			   search->found[i].count * sizeof(SearchResult));
	channel->out_count = request->count;
	channel->out_slots_offset = 0;
	channel->out_offset = end;
}

/*
 * Store the results of a query. The last query of a piece lets the next piece
 * be submitted, or answers the channel if there is none.
 */
void
channel_search_done(Server *server, Ticket *ticket)
{
	ChannelWork *work = &server->channels[ticket->number];
	ChannelSearch *search = &work->search;
	EngineQuery *query = &ticket->query;
	ChannelFound *found =
		&search->found[(size_t) (query->results - search->results) / work->request.query.k];
	EngineStatus status = query->status;

	ticket->state = TICKET_IDLE;
	if (status == ENGINE_OK && query->count > query->k)
		engine_error(&query->error, status = ENGINE_INVALID,
					 "the engine returned more results than were wanted");
	if (status != ENGINE_OK && search->error.status == ENGINE_OK)
	{
		search->error = query->error;
		search->error.status = status;
	}
	*found = (ChannelFound){.count = status == ENGINE_OK ? query->count : 0,
							.rows = query->rows,
							.position = query->position,
							.passing = query->passing,
							.counters = query->counters};
	work->done++;
	atomic_store_explicit(&server_channel(server, ticket->number)->done, work->done,
						  memory_order_relaxed);
	if (--search->outstanding > 0)
		return;
	work->phase = CHANNEL_SUBMITTING;
	if (search->error.status == ENGINE_OK && search->next < work->request.count)
		return;
	if (search->error.status == ENGINE_OK && channel_is_ours(server, ticket->number))
		channel_search_answer(server, ticket->number);
	channel_finish(server, ticket->number, search->error.status, search->error.text);
}
