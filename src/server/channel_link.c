/*
 * channel_link.c
 *		The result of a channel's last CHANNEL_LINK or CHANNEL_REPAIR, which the
 *		client fetches in parts.
 *
 * It is kept until the client forgets it or leaves, another link replaces it,
 * or its mirror is dropped.
 */
#include <string.h>

#include "server/server.h"

/*
 * Keep the result of the link that a channel has completed. A refused link
 * leaves the result of the link before it.
 */
void
channel_link_keep(Server *server, uint32_t number, EngineStatus status)
{
	ChannelWork *work = &server->channels[number];
	AreaChannel *channel = server_channel(server, number);
	LinkResult	result = {0};

	if (server->ops->job_link_result(server->engine, work->job_id, &result) != ENGINE_OK ||
		server->mirrors[work->request.mirror].id != work->mirror ||
		(status != ENGINE_OK && result.count == 0))
	{
		server->ops->job_release(server->engine, work->job_id);
		return;
	}
	channel_link_forget(server, work);
	work->linked = result;
	work->link = work->job_id;
	work->link_mirror = work->mirror;
	work->link_owner = work->owner;
	work->link_degree = server->mirrors[work->request.mirror].spec.degree;
	channel->out_count = work->linked.count;
}

/* Release a channel's link result, if it has one. */
void
channel_link_forget(Server *server, ChannelWork *work)
{
	if (work->link == 0)
		return;
	server->ops->job_release(server->engine, work->link);
	work->link = 0;
	memset(&work->linked, 0, sizeof(work->linked));
}

/*
 * Number of elements, starting at `first`, that fit into the channel; at most
 * `most`, unless that is 0.
 */
static uint32_t
fetch_count(uint32_t there, uint32_t first, uint32_t most, uint64_t room)
{
	uint64_t	count = there - first;

	if (most > 0 && count > most)
		count = most;
	return (uint32_t) (count < room ? count : room);
}

/* Answer a CHANNEL_LINK_FETCH: slots and rows, or seeds. */
EngineStatus
channel_link_fetch(Server *server, uint32_t number, EngineError *error)
{
	ChannelWork *work = &server->channels[number];
	AreaChannel *channel = server_channel(server, number);
	unsigned char *data = server_channel_data(server, number);
	const ChannelRequest *request = &work->request;
	uint32_t	first = request->first_slot;
	uint32_t	there = request->has_seeds ? work->linked.nseeds : work->linked.count;
	size_t		row_bytes = request->has_seeds ? 0 : work->link_degree * sizeof(uint32_t);
	size_t		count;

	if (work->link == 0 || work->link_owner != work->owner)
	{
		engine_error(error, ENGINE_NOT_FOUND, "this channel has no link to fetch");
		return ENGINE_NOT_FOUND;
	}
	if (first > there)
	{
		engine_error(error, ENGINE_INVALID, "row %u is beyond the %u that were linked", first,
					 there);
		return ENGINE_INVALID;
	}
	count = fetch_count(there, first, request->count,
						(server->layout.channel_data_bytes - AREA_ALIGN) /
							(sizeof(uint32_t) + row_bytes));
	channel->out_slots_offset = 0;
	channel->out_offset = area_align(count * sizeof(uint32_t));
	channel->out_count = (uint32_t) count;
	if (count == 0)
		return ENGINE_OK;
	if (request->has_seeds)
	{
		memcpy(data, work->linked.seeds + first, count * sizeof(uint32_t));
		return ENGINE_OK;
	}
	memcpy(data, work->linked.slots + first, count * sizeof(uint32_t));
	memcpy(data + area_align(count * sizeof(uint32_t)),
		   work->linked.rows + (size_t) first * work->link_degree, count * row_bytes);
	return ENGINE_OK;
}
