/*
 * serve.c
 *		The loop: look everywhere, work on what is there, else sleep on the
 *		doorbell.
 *
 * No wake-up is lost (README, Waiting): the doorbell is read before the places
 * it stands for, and slept on with that value.
 */
#include <stdlib.h>
#include <string.h>

#include "server/server.h"

#define IDLE_MS			50
#define FLYING_MS		5		/* in case an engine forgets to wake us */
#define BUSY_MS			1		/* progress of jobs; retries after ENGINE_BUSY */
#define LOOK_US			4		/* between looks at the engine meanwhile */
#define CHORES_US		INT64_C(1000000)

/*
 * The engine broke: answer everything in flight with ENGINE_FAILED, and end the
 * process.
 */
void
server_fail(Server *server, const EngineError *error)
{
	char		text[sizeof(error->text)];

	memcpy(text, error->text, sizeof(text));
	text[sizeof(text) - 1] = '\0';
	if (text[0] == '\0')
		strcpy(text, "the engine failed without saying why");
	server_last_error(server, text);
	atomic_store(&server->area->server_state, SERVER_FAILED);
	for (uint32_t i = 0; i < server->layout.slots; i++)
		if (server->tickets[i].state != TICKET_IDLE)
			request_refuse(server, &server->tickets[i], ENGINE_FAILED, text);
	for (uint32_t i = 0; i < server->layout.channels; i++)
	{
		server->channels[i].link = 0;
		if (server->channels[i].phase != CHANNEL_RESTS)
			channel_finish(server, i, ENGINE_FAILED, text);
	}
	wakers_stop(server);
	process_log("FATAL", "the engine failed: %s", text);
	_exit(SERVER_EXIT_FAILED);
}

/* How long a sleep may take, in milliseconds. */
static int
longest_sleep(const Server *server)
{
	if (server->channels_busy > 0 || server->drops != NULL)
		return BUSY_MS;
	if (server->ready_first != NO_ENTRY)
		return BUSY_MS;
	if (server->rest_ms > 0)
		return server->rest_ms;
	return server->queries_flying > 0 ? FLYING_MS : IDLE_MS;
}

/*
 * Sleep until the doorbell moves on from `seen`, which was read before the last
 * look.
 */
static void
serve_rest(Server *server, uint32_t seen)
{
	AreaHeader *area = server->area;

	server->wakes = 0;
	/*
	 * Answers and next requests often come within microseconds; a sleep and a
	 * wake-up cost more.
	 */
	if (server->spin_us > 0)
	{
		bool flying =
			server->queries_flying > 0 && server->queries_flying <= server->spin_flying_most;
		bool		brief = channels_brief(server);
		int64_t		now = monotonic_us();
		int64_t		until = now + (flying || brief ? server->spin_flying_us : server->spin_us);
		int64_t		look = now + LOOK_US;

		do
		{
			if (atomic_load(&area->doorbell) != seen)
				return;
			/*
			 * a GPU's batch, or a job's piece, can be seen to end long before
			 * the thread that rings for it runs
			 */
			if ((flying || brief) && now >= look)
			{
				if ((flying && queries_poll(server)) || (brief && channels_poll(server)))
					return;
				look = now + LOOK_US;
			}
#if defined(__x86_64__) || defined(__i386__)
			__builtin_ia32_pause();
#endif
		} while ((now = monotonic_us()) < until);
	}
	PROTOCOL_STEP(SERVER_RESTS);
	atomic_store(&area->sleeping, 1);
	PROTOCOL_STEP(SERVER_SLEEPS);
	area_futex_wait(&area->doorbell, seen, longest_sleep(server));
	PROTOCOL_STEP(SERVER_WAKES);
	atomic_store(&area->sleeping, 0);
}

/*
 * What is done once a second: give back what the dead left, drop mirrors that
 * nobody names, publish figures, ask the engine how it is.
 */
static void
serve_chores(Server *server)
{
	int64_t		now = monotonic_us();

	if (now - server->last_chores_us < CHORES_US)
		return;
	server->last_chores_us = now;
	requests_sweep(server, false);
	channels_sweep(server, false);
	held_sweep(server);
	memory_publish(server);
	(void) queries_poll(server);
	watchdog_look(server);
}

/* Serve until told to end. */
int
serve(Server *server)
{
	uint32_t	beats = 0;

	while (!atomic_load(&server->terminate))
	{
		uint32_t	seen = atomic_load(&server->area->doorbell);
		bool		worked = requests_take(server);

		atomic_store_explicit(&server->beats, ++beats | 1u << 31, memory_order_relaxed);
		worked |= batches_launch(server);
		if (server->queries_flying > 0)
			worked |= queries_poll(server);
		worked |= channels_step(server);
		worked |= drops_step(server);
		serve_chores(server);
		if (!worked)
			serve_rest(server, seen);
	}
	process_log("LOG", "shutting down");
	/*
	 * Closing waits for what flies; the watch thread ends us if that takes too
	 * long.
	 */
	server->ops->close(server->engine);
	wakers_stop(server);
	return 0;
}
