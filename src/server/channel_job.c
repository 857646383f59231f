/*
 * channel_job.c
 *		Convert a request in a bulk channel to an engine job, checking every
 *		offset, count and slot.
 *
 * What has to be checked is copied first, because the client could change it
 * between check and use. Vectors, floats and records of columns need no check
 * and stay in the channel, which the server owns until it answers.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/bits.h"
#include "server/server.h"

/* Which arrays an operation carries. */
typedef struct ChannelShape
{
	JobKind		kind;
	bool		slots;
	bool		versions;
	bool		vectors;		/* and records of columns */
	bool		rows;
	bool		floats;
} ChannelShape;

static const ChannelShape channel_shapes[] = {
	[CHANNEL_APPEND] = {JOB_APPEND, false, true, true, false, false},
	[CHANNEL_OVERWRITE] = {JOB_OVERWRITE, true, true, true, false, false},
	[CHANNEL_DEAD] = {JOB_DEAD, true, true, false, false, false},
	[CHANNEL_GRAPH] = {JOB_GRAPH, true, false, false, true, false},
	[CHANNEL_SEEDS] = {JOB_SEEDS, true, false, false, false, false},
	/* An empty change, so that the position is ordered with the other jobs. */
	[CHANNEL_POSITION] = {JOB_DEAD, false, false, false, false, false},
	[CHANNEL_LINK] = {JOB_LINK, true, false, false, false, false},
	[CHANNEL_REPAIR] = {JOB_REPAIR, true, false, false, false, false},
	[CHANNEL_CODEBOOK] = {JOB_CODEBOOK, false, false, false, false, true},
	/* no arrays: its count is of the sample */
	[CHANNEL_TRAIN] = {JOB_TRAIN, false, false, false, false, false},
};

/*
 * Whether count elements of a size lie within a channel's data, at this offset.
 */
bool
channel_holds(const Server *server, uint64_t offset, uint64_t count, uint64_t bytes)
{
	uint64_t	room = server->layout.channel_data_bytes;

	return offset % AREA_ALIGN == 0 && offset <= room &&
		   (bytes == 0 || count <= (room - offset) / bytes);
}

/* Check the fields of a request, and that its arrays lie within the channel. */
static EngineStatus
request_check(const Server *server, const ChannelRequest *request, const ChannelShape *shape,
			  const HeldMirror *mirror, EngineError *error)
{
	uint64_t	count = request->count;
	bool		inside = true;

	if (shape->slots && count > 0)
		inside &= channel_holds(server, request->slots_offset, count, sizeof(uint32_t));
	if (shape->versions && count > 0)
		inside &= channel_holds(server, request->versions_offset, count, sizeof(uint32_t));
	if (shape->vectors && count > 0)
		inside &= channel_holds(server, request->body_offset, count, mirror->vector_bytes) &&
			channel_holds(server, request->columns_offset, count, mirror->record_bytes);
	if (shape->rows && count > 0)
		inside &= channel_holds(server, request->body_offset, count,
								mirror->spec.degree * sizeof(uint32_t));
	if (shape->floats && count > 0)
		inside &= channel_holds(server, request->body_offset, count, sizeof(float));
	if (shape->kind == JOB_APPEND && request->has_dead && count > 0)
		inside &= channel_holds(server, request->dead_offset, bits64_bytes(count), 1);
	if (!inside)
		engine_error(error, ENGINE_INVALID, "arrays of %u rows do not fit the bulk channel",
					 request->count);
	else if (request->has_dead > 1 || request->has_position > 1 || request->defers > 1)
		engine_error(error, ENGINE_INVALID, "the bulk channel's flags are invalid");
	else if (request->op == CHANNEL_POSITION && !request->has_position)
		engine_error(error, ENGINE_INVALID, "the channel carries no position");
	else if (shape->kind == JOB_APPEND && (uint64_t) request->first_slot + count > ENGINE_MAX_SLOTS)
		engine_error(error, ENGINE_INVALID, "slot %u is too large", request->first_slot);
	else if (mirror->spec.method == METHOD_GRAPH && engine_job_links(shape->kind) &&
			 (request->ef_construction < 4 || request->ef_construction > 1000))
		engine_error(error, ENGINE_INVALID, "ef_construction %u is outside 4 .. 1000",
					 request->ef_construction);
	else
		return ENGINE_OK;
	return ENGINE_INVALID;
}

/* Copy an array out of the channel, behind the copies made so far. */
static const void *
copy_array(ChannelWork *work, size_t *used, const unsigned char *data, uint64_t offset,
		   size_t bytes)
{
	unsigned char *copy = (unsigned char *) work->copies + *used;

	memcpy(copy, data + offset, bytes);
	*used += area_align(bytes);
	return copy;
}

/* Make room for copies. Returns false if out of memory. */
static bool
copies_reserve(ChannelWork *work, size_t bytes)
{
	if (bytes <= work->copies_room)
		return true;
	free(work->copies);
	work->copies_room = 0;
	work->copies = aligned_alloc(AREA_ALIGN, area_align(bytes));
	if (work->copies == NULL)
		return false;
	work->copies_room = bytes;
	return true;
}

/* Copy the arrays of a checked request and set them in its job. */
static EngineStatus
arrays_copy(Server *server, uint32_t number, const ChannelShape *shape, const HeldMirror *mirror,
			EngineError *error)
{
	ChannelWork *work = &server->channels[number];
	const ChannelRequest *request = &work->request;
	const unsigned char *data = server_channel_data(server, number);
	EngineJob  *job = &work->job;
	size_t		count = request->count;
	size_t		numbers = count * sizeof(uint32_t);
	size_t		dead = bits64_bytes(count);
	size_t		rows = shape->rows ? numbers * mirror->spec.degree : 0;
	size_t		used = 0;

	if (!copies_reserve(work, 2 * area_align(numbers) + area_align(dead) + area_align(rows)))
		return engine_error(error, ENGINE_NO_MEMORY, "out of memory for %u rows of a bulk channel",
							request->count);
	if (shape->slots)
		job->slots = copy_array(work, &used, data, request->slots_offset, numbers);
	if (shape->versions)
		job->versions = copy_array(work, &used, data, request->versions_offset, numbers);
	if (shape->kind == JOB_APPEND && request->has_dead)
		job->dead = copy_array(work, &used, data, request->dead_offset, dead);
	if (shape->rows)
		job->rows = copy_array(work, &used, data, request->body_offset, rows);
	if (shape->vectors || shape->floats)
		job->vectors = data + request->body_offset;
	if (shape->vectors && mirror->record_bytes > 0)
		job->columns = data + request->columns_offset;
	for (size_t i = 0; shape->slots && i < count; i++)
		if (job->slots[i] >= ENGINE_MAX_SLOTS)
			return engine_error(error, ENGINE_INVALID, "slot %u is too large", job->slots[i]);
	return ENGINE_OK;
}

/* Check a channel's request and make its job, with copied arrays. */
EngineStatus
channel_job_make(Server *server, uint32_t number, EngineError *error)
{
	ChannelWork *work = &server->channels[number];
	ChannelRequest *request = &work->request;
	const ChannelShape *shape;
	HeldMirror *mirror;
	EngineStatus status;

	if (request->op >= sizeof(channel_shapes) / sizeof(channel_shapes[0]) ||
		channel_shapes[request->op].kind == 0)
		return engine_error(error, ENGINE_INVALID, "channel operation %u is unknown", request->op);
	shape = &channel_shapes[request->op];
	mirror = held_find(server, request->mirror, request->mirror_generation, error);
	if (mirror == NULL)
		return error->status;
	if (request->op == CHANNEL_POSITION)
		request->count = 0;
	status = request_check(server, request, shape, mirror, error);
	if (status != ENGINE_OK)
		return status;
	work->mirror = mirror->id;
	work->job = (EngineJob) {
		.kind = shape->kind,
		.mirror = mirror->id,
		.count = request->count,
		.first_slot = request->first_slot,
		.has_position = request->has_position == 1,
		.position = request->position,
		.ef_construction = request->ef_construction,
		.defers = request->defers == 1,
	};
	work->bytes = watchdog_job_bytes(mirror, &work->job);
	if (request->count == 0 || shape->kind == JOB_TRAIN)
		return ENGINE_OK;
	return arrays_copy(server, number, shape, mirror, error);
}
