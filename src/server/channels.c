/*
 * channels.c
 *		Bulk work: each lane carries one operation at a time through take, run and answer.
 *
 * Several lanes work at once; each step is short (a lane holds LANE_DATA_BYTES at most), and after LANE_SLICE_US of steps the loop
 * looks at the requests again.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/server.h"

#define JOB_POLL_US		200		/* between looks at running jobs, unless the engine wakes us */

/* The lane's word, while it is the server's. */
bool
lane_is_ours(const Server *server, uint32_t number)
{
	return atomic_load(&server_lane(server, number)->state) ==
		request_word(server->lanes[number].generation, REQUEST_TAKEN);
}

/*
 * Free a lane that its owner has abandoned; false if it is in another state. Nobody can claim it before the last step, and who finds
 * it after a server that died between two of them knows that it is nobody's.
 */
static bool
lane_free(AreaLane *lane, uint32_t generation, int32_t owner)
{
	int32_t		disowned = LANE_DISOWNED;

	if (atomic_load(&lane->state) != request_word(generation, REQUEST_ABANDONED))
		return false;
	(void) atomic_compare_exchange_strong(&lane->owner, &owner, LANE_DISOWNED);
	PROTOCOL_STEP(LANE_DISOWNED);
	if (!request_move(&lane->state, generation, REQUEST_ABANDONED, REQUEST_FREE))
		return false;
	PROTOCOL_STEP(LANE_FREED);
	(void) atomic_compare_exchange_strong(&lane->owner, &disowned, 0);
	return true;
}

/* Answer a lane's operation. A client that left gets nothing, and the lane is freed. */
void
lane_finish(Server *server, uint32_t number, EngineStatus status, const char *text)
{
	LaneWork   *work = &server->lanes[number];
	AreaLane   *lane = server_lane(server, number);

	work->phase = LANE_RESTS;
	lane_search_forget(work);
	server->lanes_busy--;
	engine_leaves(server, work->request.mirror);
	if (lane_is_ours(server, number))
	{
		lane->status = status;
		snprintf(lane->error, sizeof(lane->error), "%s", status == ENGINE_OK ? "" : text);
	}
	PROTOCOL_STEP(LANE_ANSWERS);
	if (request_move(&lane->state, work->generation, REQUEST_TAKEN, REQUEST_DONE))
	{
		PROTOCOL_STEP(LANE_DONE);
		area_futex_wake(&lane->state, 1);
	}
	else if (lane_free(lane, work->generation, work->owner))
		lane_link_forget(server, work);
	else
		process_warn("lane %u was changed while the server had it", number);
}

/* Hand a lane's job, or its next queries, to the engine; if it is busy, the lane comes again. */
static void
lane_submit(Server *server, uint32_t number)
{
	LaneWork   *work = &server->lanes[number];
	EngineError error = {ENGINE_OK, ""};
	EngineStatus status;
	bool		search = work->request.op == LANE_SEARCH;

	work->phase = LANE_SUBMITS;
	if (search)
		status = lane_search_submit(server, number, &error);
	else
		status = server->ops->job_submit(server->engine, &work->job, &work->job_id, &error);
	PROTOCOL_STEP(LANE_SUBMITTED);
	if (status == ENGINE_FAILED)
		server_fail(server, &error);
	if (status == ENGINE_BUSY)
		return;
	if (status != ENGINE_OK)
		lane_finish(server, number, status, error.text);
	else
		work->phase = search ? LANE_SEARCHES : LANE_RUNS;
}

/* Carry on with a LANE_CREATE or LANE_DROP: the entry's earlier mirror has to be gone first, its memory may be needed. */
static bool
lane_replace(Server *server, uint32_t number)
{
	LaneWork   *work = &server->lanes[number];
	const LaneRequest *request = &work->request;
	HeldMirror *mirror = &server->mirrors[request->mirror];
	EngineError error = {ENGINE_OK, ""};
	EngineStatus status = ENGINE_OK;

	if (held_leaving(server, work->mirror))
		return false;
	if (request->op == LANE_CREATE && mirror->id != 0)
	{
		work->mirror = mirror->id;
		work->phase = LANE_AWAITS_DROP;
		held_let_go(server, request->mirror);
		return true;
	}
	if (request->op == LANE_CREATE)
		status = held_make(server, request, &error);
	if (status == ENGINE_FAILED)
		server_fail(server, &error);
	if (status == ENGINE_NO_MEMORY)
	{
		/* Nobody is to be refused, or to make way, for mirrors that nobody can ask for any more. */
		held_sweep(server);
		if (server->drops != NULL)
			return false;
	}
	lane_finish(server, number, status, error.text);
	return true;
}

/* Begin a LANE_CREATE or LANE_DROP. */
static void
replace_begin(Server *server, uint32_t number)
{
	LaneWork   *work = &server->lanes[number];
	const LaneRequest *request = &work->request;
	EngineError error = {ENGINE_OK, ""};
	HeldMirror *mirror = held_find(server, request->mirror, request->mirror_generation, &error);

	work->phase = LANE_AWAITS_DROP;
	work->mirror = 0;
	if (request->op == LANE_CREATE && request->mirror < server->layout.mirrors &&
		atomic_load(&server_mirror(server, request->mirror)->generation) == request->mirror_generation)
		(void) lane_replace(server, number);
	else if (request->op == LANE_CREATE || mirror == NULL)
	{
		if (error.status == ENGINE_OK)
			engine_error(&error, ENGINE_NOT_FOUND, "mirror entry %u has moved on from generation %u", request->mirror,
						 request->mirror_generation);
		lane_finish(server, number, error.status, error.text);
	}
	else
	{
		work->mirror = mirror->id;
		held_let_go(server, request->mirror);
	}
}

/* Answer a LANE_INFO. */
static EngineStatus
lane_info(Server *server, uint32_t number, EngineError *error)
{
	const LaneRequest *request = &server->lanes[number].request;
	HeldMirror *mirror = held_find(server, request->mirror, request->mirror_generation, error);
	MirrorInfo	info;
	EngineStatus status;

	if (mirror == NULL)
		return error->status;
	status = server->ops->mirror_info(server->engine, mirror->id, &info, error);
	if (status == ENGINE_FAILED)
		server_fail(server, error);
	if (status == ENGINE_OK)
		server_lane(server, number)->info = info;
	return status;
}

/* Take what was posted in a lane, and begin it. */
static bool
lane_take(Server *server, uint32_t number)
{
	LaneWork   *work = &server->lanes[number];
	AreaLane   *lane = server_lane(server, number);
	EngineError error = {ENGINE_OK, ""};
	EngineStatus status = ENGINE_OK;
	uint32_t	word = atomic_load_explicit(&lane->state, memory_order_acquire);

	if (request_state(word) != REQUEST_POSTED ||
		!request_move(&lane->state, request_generation(word), REQUEST_POSTED, REQUEST_TAKEN))
		return false;
	PROTOCOL_STEP(LANE_TAKEN);
	work->generation = request_generation(word);
	work->owner = atomic_load(&lane->owner);
	work->phase = LANE_SUBMITS;
	work->cancelled = false;
	work->done = 0;
	server->lanes_busy++;
	work->request = *(const volatile LaneRequest *) &lane->request; /* read once: what is checked is the copy */
	engine_enters(server, work->request.mirror);
	atomic_store(&lane->done, 0);
	atomic_store(&lane->total, 0);
	if (work->link_owner != work->owner)
		lane_link_forget(server, work);

	switch (work->request.op)
	{
		case LANE_CREATE:
		case LANE_DROP:
			replace_begin(server, number);
			return true;
		case LANE_SEARCH:
			status = lane_search_begin(server, number, &error);
			if (status == ENGINE_OK)
			{
				lane_submit(server, number);
				return true;
			}
			break;
		case LANE_LINK_FETCH:
			status = lane_link_fetch(server, number, &error);
			break;
		case LANE_LINK_FORGET:
			lane_link_forget(server, work);
			break;
		case LANE_INFO:
			status = lane_info(server, number, &error);
			break;
		default:
			status = lane_job_make(server, number, &error);
			if (status == ENGINE_OK)
			{
				lane_submit(server, number);
				return true;
			}
	}
	lane_finish(server, number, status, error.text);
	return true;
}

/* Look at a lane's running job: progress, cancel, end. */
static bool
lane_watch(Server *server, uint32_t number)
{
	LaneWork   *work = &server->lanes[number];
	AreaLane   *lane = server_lane(server, number);
	JobProgress progress;
	EngineStatus status;

	memset(&progress, 0, sizeof(progress));
	status = server->ops->job_poll(server->engine, work->job_id, &progress);
	if (status == ENGINE_FAILED || (progress.completed && progress.status == ENGINE_FAILED))
		server_fail(server, &progress.error);
	if (status != ENGINE_OK)
	{
		lane_finish(server, number, status, "the engine has lost the job");
		return true;
	}
	work->done = progress.done;
	atomic_store_explicit(&lane->done, progress.done, memory_order_relaxed);
	atomic_store_explicit(&lane->total, progress.total, memory_order_relaxed);
	if (!progress.completed)
		return false;
	held_publish(server, work->request.mirror, work->mirror);
	memory_publish(server);
	if (engine_job_links(work->job.kind))
		lane_link_keep(server, number);
	else
		server->ops->job_release(server->engine, work->job_id);
	lane_finish(server, number, progress.status, progress.error.text);
	return true;
}

/* Honour a cancel: by the client's flag, or because it left. True if the lane is finished with it. */
static bool
lane_cancel(Server *server, uint32_t number)
{
	LaneWork   *work = &server->lanes[number];

	if (work->cancelled ||
		(lane_is_ours(server, number) && atomic_load_explicit(&server_lane(server, number)->cancel, memory_order_relaxed) == 0))
		return false;
	if (work->phase == LANE_RUNS)
	{
		work->cancelled = true;
		(void) server->ops->job_cancel(server->engine, work->job_id);
	}
	if (work->phase != LANE_SUBMITS)
		return false;
	lane_finish(server, number, ENGINE_CANCELLED, "cancelled");
	return true;
}

/* One step of one lane; true if it got on. */
static bool
lane_step(Server *server, uint32_t number, bool poll_jobs)
{
	LaneWork   *work = &server->lanes[number];

	if (work->phase == LANE_RESTS)
		return lane_take(server, number);
	if (lane_cancel(server, number))
		return true;
	if (work->phase == LANE_AWAITS_DROP)
		return lane_replace(server, number);
	if (work->phase == LANE_SUBMITS)
	{
		lane_submit(server, number);
		return work->phase != LANE_SUBMITS;
	}
	return work->phase == LANE_RUNS && poll_jobs && lane_watch(server, number);
}

/* Let each lane get on, in turn, for a slice of time. */
bool
lanes_step(Server *server)
{
	uint32_t	lanes = server->layout.lanes;
	int64_t		begun = 0;
	bool		poll_jobs = false;
	bool		worked = false;

	if (server->lanes_busy > 0)
	{
		begun = server_now_us();
		poll_jobs = atomic_exchange(&server->woken, false) || begun - server->last_job_poll_us >= JOB_POLL_US;
		if (poll_jobs)
			server->last_job_poll_us = begun;
	}
	for (uint32_t i = 0; i < lanes; i++)
	{
		uint32_t	number = (server->next_lane + i) % lanes;

		if (!lane_step(server, number, poll_jobs))
			continue;
		worked = true;
		if (begun == 0)
			begun = server_now_us();
		else if (server_now_us() - begun > LANE_SLICE_US)
		{
			server->next_lane = (number + 1) % lanes;
			break;
		}
	}
	return worked;
}

/* Whether a lane's job runs that may end soon: one that brings rows, not one that links. */
bool
lanes_brief(const Server *server)
{
	bool		brief = false;

	for (uint32_t i = 0; server->lanes_busy > 0 && i < server->layout.lanes && !brief; i++)
		brief = server->lanes[i].phase == LANE_RUNS && !engine_job_links(server->lanes[i].job.kind);
	return brief;
}

/* Look at the jobs that run. True: one has ended. */
bool
lanes_poll(Server *server)
{
	bool		ended = false;

	for (uint32_t i = 0; i < server->layout.lanes; i++)
		if (server->lanes[i].phase == LANE_RUNS)
			ended |= lane_watch(server, i);
	return ended;
}

/* Whether nobody lives under a pid that was found in an owner word. */
static bool
owner_is_dead(int32_t owner)
{
	return owner < 0 || (owner > 0 && kill(owner, 0) != 0 && errno == ESRCH);
}

/* Give back the lane of a dead owner; what the server has of it is abandoned, and freed when it ends. */
static void
lane_reclaim(Server *server, uint32_t number, int32_t owner)
{
	LaneWork   *work = &server->lanes[number];
	AreaLane   *lane = server_lane(server, number);
	uint32_t	word = atomic_load(&lane->state);
	uint32_t	generation = request_generation(word);

	if (work->phase != LANE_RESTS)
	{
		(void) request_move(&lane->state, work->generation, REQUEST_TAKEN, REQUEST_ABANDONED);
		return;
	}
	if (request_state(word) != REQUEST_FREE &&
		!atomic_compare_exchange_strong(&lane->state, &word, request_word(generation, REQUEST_FREE)))
		return;
	lane_link_forget(server, work);
	(void) atomic_compare_exchange_strong(&lane->owner, &owner, 0);
}

/* Reclaim the lanes of the dead, and what a released lane still keeps. */
void
lanes_sweep(Server *server, bool starting)
{
	for (uint32_t number = 0; number < server->layout.lanes; number++)
	{
		LaneWork   *work = &server->lanes[number];
		AreaLane   *lane = server_lane(server, number);
		int32_t		owner = atomic_load(&lane->owner);
		uint32_t	word = atomic_load(&lane->state);
		uint32_t	generation = request_generation(word);

		/* As requests_sweep: an earlier server's work is nobody's now. */
		if (starting && request_move(&lane->state, generation, REQUEST_TAKEN, REQUEST_FAILED))
			area_futex_wake(&lane->state, INT_MAX);
		if (work->phase == LANE_RESTS && request_state(word) == REQUEST_ABANDONED)
			(void) lane_free(lane, generation, owner);
		else if (owner_is_dead(owner))
			lane_reclaim(server, number, owner);
		if (work->phase == LANE_RESTS && work->link != 0 && atomic_load(&lane->owner) != work->link_owner)
			lane_link_forget(server, work);
	}
}
