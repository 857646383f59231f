/*
 * channels.c
 *		Bulk channels: take an operation, run it, answer it; one at a time per
 *		channel.
 *
 * Several channels work at once. Each step is short (a channel holds at most
 * CHANNEL_DATA_BYTES), and after CHANNEL_SLICE_US the main loop checks for
 * requests again.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/server.h"

#define JOB_POLL_US		200		/* interval of polling jobs, unless the engine wakes the server */

/* Whether the server owns the channel for a client that waits. */
bool
channel_is_ours(const Server *server, uint32_t number)
{
	return atomic_load(&server_channel(server, number)->state) ==
		request_word(server->channels[number].generation, REQUEST_TAKEN);
}

/*
 * Free a channel that its owner has abandoned. Returns false if it is in
 * another state. The owner word is cleared last, so that no client claims the
 * channel before it is FREE. CHANNEL_DISOWNED marks it as unowned if the server
 * dies in between.
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

/* Answer a channel's operation, or free the channel if the client left. */
void
channel_finish(Server *server, uint32_t number, EngineStatus status, const char *text)
{
	ChannelWork *work = &server->channels[number];
	AreaChannel *channel = server_channel(server, number);

	work->phase = CHANNEL_IDLE;
	channel_search_forget(server, work);
	server->channels_busy--;
	engine_work_end(server, work->request.mirror);
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
 * Submit a channel's job or its next queries to the engine. If the engine is
 * busy, the phase stays CHANNEL_SUBMITTING and the step is repeated.
 */
static void
channel_submit(Server *server, uint32_t number)
{
	ChannelWork *work = &server->channels[number];
	EngineError error = {ENGINE_OK, ""};
	EngineStatus status;
	bool		search = work->request.op == CHANNEL_SEARCH;

	work->phase = CHANNEL_SUBMITTING;
	if (search)
		status = channel_search_submit(server, number, &error);
	else
		status = server->ops->job_submit(server->engine, &work->job, &work->job_id, &error);
	PROTOCOL_STEP(CHANNEL_SUBMITTED);
	fail_if_failed(server, status, &error);
	if (status == ENGINE_BUSY)
		return;
	if (status != ENGINE_OK)
		channel_finish(server, number, status, error.text);
	else
		work->phase = search ? CHANNEL_SEARCHING : CHANNEL_RUNNING;
}

/*
 * Continue a CHANNEL_CREATE or CHANNEL_DROP. The entry's previous mirror is
 * dropped first, because its memory may be needed. Returns whether there was
 * progress.
 */
static bool
channel_replace(Server *server, uint32_t number)
{
	ChannelWork *work = &server->channels[number];
	const ChannelRequest *request = &work->request;
	HeldMirror *mirror = &server->mirrors[request->mirror];
	EngineError error = {ENGINE_OK, ""};
	EngineStatus status = ENGINE_OK;

	if (held_is_dropping(server, work->mirror))
		return false;
	if (request->op == CHANNEL_CREATE && mirror->id != 0)
	{
		work->mirror = mirror->id;
		work->phase = CHANNEL_WAITS_FOR_DROP;
		held_drop(server, request->mirror);
		return true;
	}
	if (request->op == CHANNEL_CREATE)
		status = held_create(server, request, &error);
	fail_if_failed(server, status, &error);
	if (status == ENGINE_NO_MEMORY)
	{
		/*
		 * Before refusing, drop mirrors whose entries have moved on, and wait
		 * for their memory.
		 */
		held_sweep(server);
		if (server->drops != NULL)
			return false;
	}
	channel_finish(server, number, status, error.text);
	return true;
}

/* Start a CHANNEL_CREATE or CHANNEL_DROP. */
static void
replace_begin(Server *server, uint32_t number)
{
	ChannelWork *work = &server->channels[number];
	const ChannelRequest *request = &work->request;
	EngineError error = {ENGINE_OK, ""};
	HeldMirror *mirror = held_find(server, request->mirror, request->mirror_generation, &error);

	work->phase = CHANNEL_WAITS_FOR_DROP;
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
		held_drop(server, request->mirror);
	}
}

/* Run a CHANNEL_COUNT_LISTS. */
static EngineStatus
channel_count_lists(Server *server, const ChannelRequest *request, EngineError *error)
{
	HeldMirror *mirror = held_find(server, request->mirror, request->mirror_generation, error);

	return mirror == NULL ? error->status
		: list_counts_take(server, mirror, request->mirror, error);
}

/* Take what was posted in a channel, and begin it. */
static bool
channel_take(Server *server, uint32_t number)
{
	ChannelWork *work = &server->channels[number];
	AreaChannel *channel = server_channel(server, number);
	EngineError error = {ENGINE_OK, ""};
	EngineStatus status = ENGINE_OK;
	uint32_t	word = atomic_load_explicit(&channel->state, memory_order_acquire);

	if (request_state(word) != REQUEST_POSTED ||
		!request_move(&channel->state, request_generation(word), REQUEST_POSTED, REQUEST_TAKEN))
		return false;
	PROTOCOL_STEP(CHANNEL_TAKEN);
	work->generation = request_generation(word);
	work->owner = atomic_load(&channel->owner);
	work->phase = CHANNEL_SUBMITTING;
	work->cancelled = false;
	work->done = 0;
	server->channels_busy++;
	/* Read once; only the copy is checked and used. */
	work->request = *(const volatile ChannelRequest *) &channel->request;
	engine_work_begin(server, work->request.mirror);
	atomic_store(&channel->done, 0);
	channel->out_count = 0;
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
		case CHANNEL_SET:
			status = set_take_part(server, number, &error);
			break;
		case CHANNEL_COUNT_LISTS:
			status = channel_count_lists(server, &work->request, &error);
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

/*
 * Poll a channel's running job: report progress, and answer when it ends.
 * Returns whether it has ended.
 */
static bool
channel_poll_job(Server *server, uint32_t number)
{
	ChannelWork *work = &server->channels[number];
	AreaChannel *channel = server_channel(server, number);
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
 * Cancel an operation if the client asked for it or left. Returns true if the
 * channel was answered.
 */
static bool
channel_cancel(Server *server, uint32_t number)
{
	ChannelWork *work = &server->channels[number];

	if (work->cancelled ||
		(channel_is_ours(server, number) &&
		 atomic_load_explicit(&server_channel(server, number)->cancel, memory_order_relaxed) == 0))
		return false;
	if (work->phase == CHANNEL_RUNNING)
	{
		work->cancelled = true;
		(void) server->ops->job_cancel(server->engine, work->job_id);
	}
	if (work->phase != CHANNEL_SUBMITTING)
		return false;
	channel_finish(server, number, ENGINE_CANCELLED, "cancelled");
	return true;
}

/* Run one step of a channel. Returns whether there was progress. */
static bool
channel_step(Server *server, uint32_t number, bool poll_jobs)
{
	ChannelWork *work = &server->channels[number];

	if (work->phase == CHANNEL_IDLE)
		return channel_take(server, number);
	if (channel_cancel(server, number))
		return true;
	if (work->phase == CHANNEL_WAITS_FOR_DROP)
		return channel_replace(server, number);
	if (work->phase == CHANNEL_SUBMITTING)
	{
		channel_submit(server, number);
		return work->phase != CHANNEL_SUBMITTING;
	}
	return work->phase == CHANNEL_RUNNING && poll_jobs && channel_poll_job(server, number);
}

/* Run a step of each channel, round robin, for at most CHANNEL_SLICE_US. */
bool
channels_step(Server *server)
{
	uint32_t	channels = server->layout.channels;
	int64_t		begun = 0;
	bool		poll_jobs = false;
	bool		worked = false;

	if (server->channels_busy > 0)
	{
		begun = monotonic_us();
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
			begun = monotonic_us();
		else if (monotonic_us() - begun > CHANNEL_SLICE_US)
		{
			server->next_channel = (number + 1) % channels;
			break;
		}
	}
	return worked;
}

/* Whether a job runs that may end soon: any but links and repairs. */
bool
channels_run_short_job(const Server *server)
{
	bool		short_job = false;

	for (uint32_t i = 0;
		 server->channels_busy > 0 && i < server->layout.channels && !short_job; i++)
		short_job = server->channels[i].phase == CHANNEL_RUNNING &&
			!engine_job_links(server->channels[i].job.kind);
	return short_job;
}

/* Poll running jobs. Returns whether one has ended. */
bool
channels_poll_jobs(Server *server)
{
	bool		ended = false;

	for (uint32_t i = 0; i < server->layout.channels; i++)
		if (server->channels[i].phase == CHANNEL_RUNNING)
			ended |= channel_poll_job(server, i);
	return ended;
}

/* Whether an owner word names no live process. */
static bool
owner_is_dead(int32_t owner)
{
	return owner < 0 || (owner > 0 && kill(owner, 0) != 0 && errno == ESRCH);
}

/*
 * Reclaim the channel of a dead owner. An operation in the server is abandoned,
 * and the channel freed when it ends.
 */
static void
channel_reclaim(Server *server, uint32_t number, int32_t owner)
{
	ChannelWork *work = &server->channels[number];
	AreaChannel *channel = server_channel(server, number);
	uint32_t	word = atomic_load(&channel->state);
	uint32_t	generation = request_generation(word);

	if (work->phase != CHANNEL_IDLE)
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

/*
 * Reclaim the channels of dead owners, and link results of channels that were
 * released.
 */
void
channels_sweep(Server *server, bool starting)
{
	for (uint32_t number = 0; number < server->layout.channels; number++)
	{
		ChannelWork *work = &server->channels[number];
		AreaChannel *channel = server_channel(server, number);
		int32_t		owner = atomic_load(&channel->owner);
		uint32_t	word = atomic_load(&channel->state);
		uint32_t	generation = request_generation(word);

		/* As in requests_sweep(): the server that took it is dead. */
		if (starting && request_move(&channel->state, generation, REQUEST_TAKEN, REQUEST_FAILED))
			area_futex_wake(&channel->state, INT_MAX);
		if (work->phase == CHANNEL_IDLE && request_state(word) == REQUEST_ABANDONED)
			(void) channel_free(channel, generation, owner);
		else if (owner_is_dead(owner))
			channel_reclaim(server, number, owner);
		if (work->phase == CHANNEL_IDLE && work->link != 0 &&
			atomic_load(&channel->owner) != work->link_owner)
			channel_link_forget(server, work);
	}
}
