/*
 * mirrors.c
 *		The mirrors that this server holds: create, look up, drop, publish.
 *
 * An entry of the mirror table stands for an index, and its generation for one
 * of that index's mirrors. A mirror is held for one entry and generation, and
 * dropped when the entry moves on. Its memory is free when its JOB_DROP has
 * completed, after the queries and jobs in flight.
 */
#include <stdlib.h>
#include <string.h>

#include "server/server.h"

/*
 * Look up the mirror of an entry and generation. Returns NULL and sets *error
 * if it is not held.
 */
HeldMirror *
held_find(Server *server, uint32_t entry, uint32_t generation, EngineError *error)
{
	HeldMirror *mirror;

	if (entry >= server->layout.mirrors)
	{
		engine_error(error, ENGINE_INVALID, "mirror entry %u does not exist", entry);
		return NULL;
	}
	mirror = &server->mirrors[entry];
	if (mirror->id == 0 || mirror->generation != generation)
	{
		engine_error(error, ENGINE_NOT_FOUND, "no mirror of entry %u, generation %u is held", entry,
					 generation);
		return NULL;
	}
	return mirror;
}

/*
 * Count work that the engine begins for an entry; out of range entries are
 * ignored.
 */
void
engine_work_begin(Server *server, uint32_t entry)
{
	if (entry < server->layout.mirrors)
		atomic_fetch_add_explicit(&server_mirror(server, entry)->in_engine, 1,
								  memory_order_relaxed);
}

/* Count the end of that work. */
void
engine_work_end(Server *server, uint32_t entry)
{
	if (entry < server->layout.mirrors)
		atomic_fetch_sub_explicit(&server_mirror(server, entry)->in_engine, 1,
								  memory_order_relaxed);
}

/* Create an empty mirror for an entry that has none. */
EngineStatus
held_create(Server *server, const ChannelRequest *request, EngineError *error)
{
	HeldMirror *mirror = &server->mirrors[request->mirror];
	EngineStatus status;

	if (atomic_load(&server_mirror(server, request->mirror)->generation) !=
		request->mirror_generation)
		return engine_error(error, ENGINE_NOT_FOUND,
							"mirror entry %u has moved on from generation %u", request->mirror,
							request->mirror_generation);
	status = engine_check_spec(&request->spec, error);
	if (status != ENGINE_OK)
		return status;
	status = server->ops->mirror_create(server->engine, &request->spec, &mirror->id, error);
	if (status != ENGINE_OK)
	{
		mirror->id = 0;
		return status;
	}
	mirror->generation = request->mirror_generation;
	mirror->spec = request->spec;
	mirror->vector_bytes = (uint32_t) engine_vector_bytes(request->spec.type, request->spec.dims);
	mirror->record_bytes = request->spec.columns == 0 ? 0
		: filter_record_bytes(request->spec.column_kinds, request->spec.columns);
	mirror->rows = mirror->pending = 0;
	mirror->in_flight = 0;
	mirror->last_batch = 0;
	list_counts_begin(server, mirror, request->mirror);
	server->held++;
	held_publish(server, request->mirror, mirror->id);
	memory_publish(server);
	return ENGINE_OK;
}

/*
 * Start to drop the mirror of an entry. It is no longer found, and its JOB_DROP
 * is submitted by drops_advance().
 */
void
held_drop(Server *server, uint32_t entry)
{
	HeldMirror *mirror = &server->mirrors[entry];
	Drop	   *drop = malloc(sizeof(Drop));

	if (drop == NULL)
	{
		process_log("FATAL", "out of memory");
		_exit(SERVER_EXIT_FAILED);
	}
	queries_refuse(server, mirror, ENGINE_NOT_FOUND, "the mirror was dropped");
	list_counts_end(server, mirror, entry);
	for (uint32_t i = 0; i < server->layout.channels; i++)
		if (server->channels[i].link != 0 && server->channels[i].link_mirror == mirror->id)
			channel_link_forget(server, &server->channels[i]);
	*drop = (Drop) {mirror->id, 0, server->drops};
	server->drops = drop;
	mirror->id = 0;
	server->held--;
}

/* Whether a mirror is being dropped. */
bool
held_is_dropping(const Server *server, MirrorId id)
{
	for (const Drop *drop = server->drops; drop != NULL; drop = drop->next)
		if (drop->mirror == id)
			return true;
	return false;
}

/* Advance one drop. Returns true when it has ended. */
static bool
drop_advance(Server *server, Drop *drop)
{
	EngineError error = {ENGINE_OK, ""};
	EngineStatus status = ENGINE_OK;
	JobProgress progress;

	if (drop->job == 0)
	{
		EngineJob	job = {.kind = JOB_DROP, .mirror = drop->mirror};

		status = server->ops->job_submit(server->engine, &job, &drop->job, &error);
		fail_if_failed(server, status, &error);
		if (status != ENGINE_OK)
			drop->job = 0;
		if (status == ENGINE_BUSY)
			return false;
		if (status != ENGINE_OK)
		{
			process_log("WARNING", "could not drop a mirror: %.255s", error.text);
			return true;
		}
	}
	memset(&progress, 0, sizeof(progress));
	status = server->ops->job_poll(server->engine, drop->job, &progress);
	if (status == ENGINE_FAILED || (progress.completed && progress.status == ENGINE_FAILED))
		server_fail(server, &progress.error);
	if (status == ENGINE_OK && !progress.completed)
		return false;
	server->ops->job_release(server->engine, drop->job);
	return true;
}

/* Advance all drops. Returns true if one has ended. */
bool
drops_advance(Server *server)
{
	Drop	  **link = &server->drops;
	bool		worked = false;

	while (*link != NULL)
	{
		Drop	   *drop = *link;

		if (drop_advance(server, drop))
		{
			*link = drop->next;
			free(drop);
			worked = true;
		}
		else
			link = &drop->next;
	}
	if (worked)
		memory_publish(server);
	return worked;
}

/*
 * Drop mirrors whose entries have moved on, because no request can name them
 * any more.
 */
void
held_sweep(Server *server)
{
	for (uint32_t entry = 0; server->held > 0 && entry < server->layout.mirrors; entry++)
		if (server->mirrors[entry].id != 0 &&
			atomic_load(&server_mirror(server, entry)->generation) !=
				server->mirrors[entry].generation)
			held_drop(server, entry);
}

/*
 * Publish a mirror's figures in its entry. If the entry moves on concurrently,
 * its new owner may read old figures until its first own ones. They are for
 * workers and views only; each answer carries its own position.
 */
void
held_publish(Server *server, uint32_t entry, MirrorId id)
{
	AreaMirror *shared = server_mirror(server, entry);
	HeldMirror *mirror = &server->mirrors[entry];
	MirrorInfo	info;
	EngineError error = {ENGINE_OK, ""};
	EngineStatus status;

	if (mirror->id != id || atomic_load(&shared->generation) != mirror->generation)
		return;
	status = server->ops->mirror_info(server->engine, id, &info, &error);
	fail_if_failed(server, status, &error);
	if (status != ENGINE_OK)
		return;
	mirror->rows = info.rows;
	mirror->pending = info.pending;
	atomic_store(&shared->rows, info.rows);
	atomic_store(&shared->bytes, info.bytes);
	atomic_store(&shared->host_bytes, info.host_bytes);
	atomic_store(&shared->position, info.position);
}

/* Publish the engine's memory figures. */
void
memory_publish(Server *server)
{
	EngineMemory memory;

	memset(&memory, 0, sizeof(memory));
	server->ops->memory(server->engine, &memory);
	atomic_store(&server->area->memory_limit, memory.limit);
	atomic_store(&server->area->memory_used, memory.used);
	atomic_store(&server->area->memory_context, memory.context);
	atomic_store(&server->area->host_rows_limit, memory.host_rows_limit);
	atomic_store(&server->area->host_rows_used, memory.host_rows);
}
