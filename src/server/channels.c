/*
 * channels.c
 *		Bulk work: each channel carries one operation at a time through take,
 *		run and answer.
 *
 * Several channels work at once; each step is short (a channel holds
 * CHANNEL_DATA_BYTES at most), and after CHANNEL_SLICE_US of steps the loop
 * looks at the requests again.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/server.h"

#define JOB_POLL_US		200		/* between looks at running jobs, unless the engine wakes us */

/* The channel's word, while it is the server's. */
bool
channel_is_ours(const Server *server, uint32_t number)
{
	return atomic_load(&server_channel(server, number)->state) ==
		request_word(server->channels[number].generation, REQUEST_TAKEN);
}

/*
 * Free a channel that its owner has abandoned; false if it is in another state.
 * Nobody can claim it before the last step, and who finds it after a server
 * that died between two of them knows that it is nobody's.
 */
static bool
channel_free(AreaChannel *channel, uint32_t generation, int32_t owner)
{
	int32_t		disowned = CHANNEL_DISOWNED;

	if (atomic_load(&channel->state) != request_word(generation, REQUEST_ABANDONED))
		return false;
	(void) atomic_compare_exchange_strong(&channel->owner, &owner, CHANNEL_DISOWNED);
	PROTOCOL_STEP(CHANNEL_DISOWNED);
	if (!request_move(&channel->state, generation, REQUEST_ABANDONED, REQUEST_FREE))
		return false;
	PROTOCOL_STEP(CHANNEL_FREED);
	(void) atomic_compare_exchange_strong(&channel->owner, &disowned, 0);
	return true;
}

/*
 * Answer a channel's operation. A client that left gets nothing, and the
 * channel is freed.
 */
void
channel_finish(Server *server, uint32_t number, EngineStatus status, const char *text)
{
	ChannelWork   *work = &server->channels[number];
	AreaChannel   *channel = server_channel(server, number);

	work->phase = CHANNEL_RESTS;
	channel_search_forget(work);
	server->channels_busy--;
	engine_leaves(server, work->request.mirror);
	if (channel_is_ours(server, number))
	{
		channel->status = status;
		snprintf(channel->error, sizeof(channel->error), "%s", status == ENGINE_OK ? "" : text);
	}
	PROTOCOL_STEP(CHANNEL_ANSWERS);
	if (request_move(&channel->state, work->generation, REQUEST_TAKEN, REQUEST_DONE))
	{
		PROTOCOL_STEP(CHANNEL_DONE);
		area_futex_wake(&channel->state, 1);
	}
	else if (channel_free(channel, work->generation, work->owner))
		channel_link_forget(server, work);
	else
		process_warn("channel %u was changed while the server had it", number);
}

/*
 * Hand a channel's job, or its next queries, to the engine; if it is busy, the
 * channel comes again.
 */
static void
channel_submit(Server *server, uint32_t number)
{
	ChannelWork   *work = &server->channels[number];
	EngineError error = {ENGINE_OK, ""};
	EngineStatus status;
	bool		search = work->request.op == CHANNEL_SEARCH;

	work->phase = CHANNEL_SUBMITS;
	if (search)
		status = channel_search_submit(server, number, &error);
	else
		status = server->ops->job_submit(server->engine, &work->job, &work->job_id, &error);
	PROTOCOL_STEP(CHANNEL_SUBMITTED);
	if (status == ENGINE_FAILED)
		server_fail(server, &error);
	if (status == ENGINE_BUSY)
		return;
	if (status != ENGINE_OK)
		channel_finish(server, number, status, error.text);
	else
		work->phase = search ? CHANNEL_SEARCHES : CHANNEL_RUNS;
}

/*
 * Carry on with a CHANNEL_CREATE or CHANNEL_DROP: the entry's earlier mirror
 * has to be gone first, its memory may be needed.
 */
static bool
channel_replace(Server *server, uint32_t number)
{
	ChannelWork   *work = &server->channels[number];
	const ChannelRequest *request = &work->request;
	HeldMirror *mirror = &server->mirrors[request->mirror];
	EngineError error = {ENGINE_OK, ""};
	EngineStatus status = ENGINE_OK;

	if (held_leaving(server, work->mirror))
		return false;
	if (request->op == CHANNEL_CREATE && mirror->id != 0)
	{
		work->mirror = mirror->id;
		work->phase = CHANNEL_AWAITS_DROP;
		held_let_go(server, request->mirror);
		return true;
	}
	if (request->op == CHANNEL_CREATE)
		status = held_make(server, request, &error);
	if (status == ENGINE_FAILED)
		server_fail(server, &error);
	if (status == ENGINE_NO_MEMORY)
	{
		/*
		 * Nobody is to be refused, or to make way, for mirrors that nobody can
		 * ask for any more.
		 */
		held_sweep(server);
		if (server->drops != NULL)
			return false;
	}
	channel_finish(server, number, status, error.text);
	return true;
}

/* Begin a CHANNEL_CREATE or CHANNEL_DROP. */
static void
replace_begin(Server *server, uint32_t number)
{
	ChannelWork   *work = &server->channels[number];
	const ChannelRequest *request = &work->request;
	EngineError error = {ENGINE_OK, ""};
	HeldMirror *mirror = held_find(server, request->mirror, request->mirror_generation, &error);

	work->phase = CHANNEL_AWAITS_DROP;
	work->mirror = 0;
	if (request->op == CHANNEL_CREATE && request->mirror < server->layout.mirrors &&
		atomic_load(&server_mirror(server, request->mirror)->generation) ==
			request->mirror_generation)
		(void) channel_replace(server, number);
	else if (request->op == CHANNEL_CREATE || mirror == NULL)
	{
		if (error.status == ENGINE_OK)
			engine_error(&error, ENGINE_NOT_FOUND,
						 "mirror entry %u has moved on from generation %u", request->mirror,
						 request->mirror_generation);
		channel_finish(server, number, error.status, error.text);
	}
	else
	{
		work->mirror = mirror->id;
		held_let_go(server, request->mirror);
	}
}

/* Answer a CHANNEL_INFO. */
static EngineStatus
channel_info(Server *server, uint32_t number, EngineError *error)
{
	const ChannelRequest *request = &server->channels[number].request;
	HeldMirror *mirror = held_find(server, request->mirror, request->mirror_generation, error);
	MirrorInfo	info;
	EngineStatus status;

	if (mirror == NULL)
		return error->status;
	status = server->ops->mirror_info(server->engine, mirror->id, &info, error);
	if (status == ENGINE_FAILED)
		server_fail(server, error);
	if (status == ENGINE_OK)
		server_channel(server, number)->info = info;
	return status;
}

/* Take what was posted in a channel, and begin it. */
static bool
channel_take(Server *server, uint32_t number)
{
	ChannelWork   *work = &server->channels[number];
	AreaChannel   *channel = server_channel(server, number);
	EngineError error = {ENGINE_OK, ""};
	EngineStatus status = ENGINE_OK;
	uint32_t	word = atomic_load_explicit(&channel->state, memory_order_acquire);

	if (request_state(word) != REQUEST_POSTED ||
		!request_move(&channel->state, request_generation(word), REQUEST_POSTED, REQUEST_TAKEN))
		return false;
	PROTOCOL_STEP(CHANNEL_TAKEN);
	work->generation = request_generation(word);
	work->owner = atomic_load(&channel->owner);
	work->phase = CHANNEL_SUBMITS;
	work->cancelled = false;
	work->done = 0;
	server->channels_busy++;
	/* read once: what is checked is the copy */
	work->request = *(const volatile ChannelRequest *) &channel->request;
	engine_enters(server, work->request.mirror);
	atomic_store(&channel->done, 0);
	atomic_store(&channel->total, 0);
	channel->out_count = channel->out_seeds = 0;
	if (work->link_owner != work->owner)
		channel_link_forget(server, work);

	switch (work->request.op)
	{
		case CHANNEL_CREATE:
		case CHANNEL_DROP:
			replace_begin(server, number);
			return true;
		case CHANNEL_SEARCH:
			status = channel_search_begin(server, number, &error);
			if (status == ENGINE_OK)
			{
				channel_submit(server, number);
				return true;
			}
			break;
		case CHANNEL_LINK_FETCH:
			status = channel_link_fetch(server, number, &error);
			break;
		case CHANNEL_LINK_FORGET:
			channel_link_forget(server, work);
			break;
		case CHANNEL_INFO:
			status = channel_info(server, number, &error);
			break;
		default:
			status = channel_job_make(server, number, &error);
			if (status == ENGINE_OK)
			{
				channel_submit(server, number);
				return true;
			}
	}
	channel_finish(server, number, status, error.text);
	return true;
}

/* Look at a channel's running job: progress, cancel, end. */
static bool
channel_watch(Server *server, uint32_t number)
{
	ChannelWork   *work = &server->channels[number];
	AreaChannel   *channel = server_channel(server, number);
	JobProgress progress;
	EngineStatus status;

	memset(&progress, 0, sizeof(progress));
	status = server->ops->job_poll(server->engine, work->job_id, &progress);
	if (status == ENGINE_FAILED || (progress.completed && progress.status == ENGINE_FAILED))
		server_fail(server, &progress.error);
	if (status != ENGINE_OK)
	{
		channel_finish(server, number, status, "the engine has lost the job");
		return true;
	}
	work->done = progress.done;
	atomic_store_explicit(&channel->done, progress.done, memory_order_relaxed);
	atomic_store_explicit(&channel->total, progress.total, memory_order_relaxed);
	if (!progress.completed)
		return false;
	held_publish(server, work->request.mirror, work->mirror);
	memory_publish(server);
	if (engine_job_links(work->job.kind))
		channel_link_keep(server, number, progress.status);
	else
		server->ops->job_release(server->engine, work->job_id);
	channel_finish(server, number, progress.status, progress.error.text);
	return true;
}

/*
 * Honour a cancel: by the client's flag, or because it left. True if the
 * channel is finished with it.
 */
static bool
channel_cancel(Server *server, uint32_t number)
{
	ChannelWork   *work = &server->channels[number];

	if (work->cancelled ||
		(channel_is_ours(server, number) &&
		 atomic_load_explicit(&server_channel(server, number)->cancel, memory_order_relaxed) == 0))
		return false;
	if (work->phase == CHANNEL_RUNS)
	{
		work->cancelled = true;
		(void) server->ops->job_cancel(server->engine, work->job_id);
	}
	if (work->phase != CHANNEL_SUBMITS)
		return false;
	channel_finish(server, number, ENGINE_CANCELLED, "cancelled");
	return true;
}

/* One step of one channel; true if it got on. */
static bool
channel_step(Server *server, uint32_t number, bool poll_jobs)
{
	ChannelWork   *work = &server->channels[number];

	if (work->phase == CHANNEL_RESTS)
		return channel_take(server, number);
	if (channel_cancel(server, number))
		return true;
	if (work->phase == CHANNEL_AWAITS_DROP)
		return channel_replace(server, number);
	if (work->phase == CHANNEL_SUBMITS)
	{
		channel_submit(server, number);
		return work->phase != CHANNEL_SUBMITS;
	}
	return work->phase == CHANNEL_RUNS && poll_jobs && channel_watch(server, number);
}

/* Let each channel get on, in turn, for a slice of time. */
bool
channels_step(Server *server)
{
	uint32_t	channels = server->layout.channels;
	int64_t		begun = 0;
	bool		poll_jobs = false;
	bool		worked = false;

	if (server->channels_busy > 0)
	{
		begun = server_now_us();
		poll_jobs = atomic_exchange(&server->woken, false) ||
					begun - server->last_job_poll_us >= JOB_POLL_US;
		if (poll_jobs)
			server->last_job_poll_us = begun;
	}
	for (uint32_t i = 0; i < channels; i++)
	{
		uint32_t	number = (server->next_channel + i) % channels;

		if (!channel_step(server, number, poll_jobs))
			continue;
		worked = true;
		if (begun == 0)
			begun = server_now_us();
		else if (server_now_us() - begun > CHANNEL_SLICE_US)
		{
			server->next_channel = (number + 1) % channels;
			break;
		}
	}
	return worked;
}

/*
 * Whether a channel's job runs that may end soon: one that brings rows, not one
 * that links.
 */
bool
channels_brief(const Server *server)
{
	bool		brief = false;

	for (uint32_t i = 0; server->channels_busy > 0 && i < server->layout.channels && !brief; i++)
		brief = server->channels[i].phase == CHANNEL_RUNS &&
				!engine_job_links(server->channels[i].job.kind);
	return brief;
}

/* Look at the jobs that run. True: one has ended. */
bool
channels_poll(Server *server)
{
	bool		ended = false;

	for (uint32_t i = 0; i < server->layout.channels; i++)
		if (server->channels[i].phase == CHANNEL_RUNS)
			ended |= channel_watch(server, i);
	return ended;
}

/* Whether nobody lives under a pid that was found in an owner word. */
static bool
owner_is_dead(int32_t owner)
{
	return owner < 0 || (owner > 0 && kill(owner, 0) != 0 && errno == ESRCH);
}

/*
 * Give back the channel of a dead owner; what the server has of it is
 * abandoned, and freed when it ends.
 */
static void
channel_reclaim(Server *server, uint32_t number, int32_t owner)
{
	ChannelWork   *work = &server->channels[number];
	AreaChannel   *channel = server_channel(server, number);
	uint32_t	word = atomic_load(&channel->state);
	uint32_t	generation = request_generation(word);

	if (work->phase != CHANNEL_RESTS)
	{
		(void) request_move(&channel->state, work->generation, REQUEST_TAKEN, REQUEST_ABANDONED);
		return;
	}
	if (request_state(word) != REQUEST_FREE &&
		!atomic_compare_exchange_strong(&channel->state, &word,
										request_word(generation, REQUEST_FREE)))
		return;
	channel_link_forget(server, work);
	(void) atomic_compare_exchange_strong(&channel->owner, &owner, 0);
}

/* Reclaim the channels of the dead, and what a released channel still keeps. */
void
channels_sweep(Server *server, bool starting)
{
	for (uint32_t number = 0; number < server->layout.channels; number++)
	{
		ChannelWork   *work = &server->channels[number];
		AreaChannel   *channel = server_channel(server, number);
		int32_t		owner = atomic_load(&channel->owner);
		uint32_t	word = atomic_load(&channel->state);
		uint32_t	generation = request_generation(word);

		/* As requests_sweep: an earlier server's work is nobody's now. */
		if (starting && request_move(&channel->state, generation, REQUEST_TAKEN, REQUEST_FAILED))
			area_futex_wake(&channel->state, INT_MAX);
		if (work->phase == CHANNEL_RESTS && request_state(word) == REQUEST_ABANDONED)
			(void) channel_free(channel, generation, owner);
		else if (owner_is_dead(owner))
			channel_reclaim(server, number, owner);
		if (work->phase == CHANNEL_RESTS && work->link != 0 &&
			atomic_load(&channel->owner) != work->link_owner)
			channel_link_forget(server, work);
	}
}
