/*
 * channel_link.c
 *		The result of a channel's last CHANNEL_LINK, CHANNEL_REPAIR or
 *		CHANNEL_TRAIN, which the client fetches in parts.
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
		(status != ENGINE_OK && result.count == 0 && result.nfloats == 0))
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
	channel->out_count = work->job.kind == JOB_TRAIN ? result.nfloats : result.count;
	channel->out_distance = result.distance;
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

/* Arrays of a result that a fetch brings, as many elements of each. */
typedef struct LinkFetch
{
	uint32_t	there;			/* elements */
	const void *arrays[3];		/* NULL: not brought; in the order of the answer's offsets */
	size_t		bytes[3];		/* of an element */
} LinkFetch;

/* What a fetch wants of a channel's result. False: there is no such thing. */
static bool
fetch_arrays(const ChannelWork *work, LinkFetch *fetch)
{
	const LinkResult *linked = &work->linked;
	size_t		row_bytes = work->link_degree * sizeof(uint32_t);

	*fetch = (LinkFetch) {linked->count, {linked->slots, linked->rows, NULL},
						  {sizeof(uint32_t), row_bytes, 0}};
	switch (work->request.arrays)
	{
		case FETCH_ROWS:
			return true;
		case FETCH_SEEDS:
			*fetch = (LinkFetch) {linked->nseeds, {linked->seeds}, {sizeof(uint32_t)}};
			return true;
		case FETCH_CODES:
			fetch->arrays[2] = linked->codes;
			fetch->bytes[2] = linked->code_bytes;
			return linked->codes != NULL;
		case FETCH_FLOATS:
			*fetch = (LinkFetch) {linked->nfloats, {linked->floats}, {sizeof(float)}};
			return linked->floats != NULL;
		default:
			return false;
	}
}

/* Copy elements from first on into the channel, array by array. */
static void
fetch_copy(const LinkFetch *fetch, uint32_t first, size_t count, AreaChannel *channel,
		   unsigned char *data)
{
	uint64_t   *offsets[] = {&channel->out_slots_offset, &channel->out_offset,
							 &channel->out_codes_offset};
	uint64_t	offset = 0;

	channel->out_count = (uint32_t) count;
	for (int i = 0; i < 3; i++)
	{
		*offsets[i] = offset;
		if (fetch->arrays[i] == NULL || count == 0)
			continue;
		memcpy(data + offset, (const char *) fetch->arrays[i] + first * fetch->bytes[i],
			   count * fetch->bytes[i]);
		offset = area_align(offset + count * fetch->bytes[i]);
	}
}

/* Answer a CHANNEL_LINK_FETCH. */
EngineStatus
channel_link_fetch(Server *server, uint32_t number, EngineError *error)
{
	ChannelWork *work = &server->channels[number];
	const ChannelRequest *request = &work->request;
	uint32_t	first = request->first_slot;
	LinkFetch	fetch;
	size_t		bytes;

	if (work->link == 0 || work->link_owner != work->owner)
		return engine_error(error, ENGINE_NOT_FOUND, "this channel has no link to fetch");
	if (!fetch_arrays(work, &fetch))
		return engine_error(error, ENGINE_INVALID, "the link has no arrays %u", request->arrays);
	if (first > fetch.there)
		return engine_error(error, ENGINE_INVALID, "row %u is beyond the %u that were linked",
							first, fetch.there);
	bytes = fetch.bytes[0] + fetch.bytes[1] + fetch.bytes[2];
	fetch_copy(&fetch, first,
			   fetch_count(fetch.there, first, request->count,
						   (server->layout.channel_data_bytes - 2 * AREA_ALIGN) / bytes),
			   server_channel(server, number), server_channel_data(server, number));
	return ENGINE_OK;
}
