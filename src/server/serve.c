/*
 * serve.c
 *		The main loop: check all sources of work, process what there is, else
 *		sleep on the doorbell.
 *
 * Wake-ups are not lost (README, Waiting): the doorbell is read before the
 * sources are checked, and the futex wait uses that value.
 */
#include <stdlib.h>
#include <string.h>

#include "server/server.h"

#define IDLE_MS			50
#define FLYING_MS		5		/* in case an engine misses a wake-up */
#define BUSY_MS			1		/* to report progress of jobs, and retry after ENGINE_BUSY */
#define LOOK_US			4		/* interval of polling the engine while spinning */
#define CHORES_US		INT64_C(1000000)

/* CLOCK_MONOTONIC in microseconds. */
int64_t
server_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/*
 * Handle an engine failure: answer everything in flight with ENGINE_FAILED, and
 * exit.
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

/* Timeout of the next sleep, in milliseconds. */
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
 * Sleep until the doorbell differs from `seen`, which was read before the last
 * check for work.
 */
static void
serve_rest(Server *server, uint32_t seen)
{
	AreaHeader *area = server->area;

	server->wakes = 0;
	/*
	 * Spin first: answers and next requests often arrive within microseconds,
	 * less than a sleep and a wake-up take.
	 */
	if (server->spin_us > 0)
	{
		bool flying =
			server->queries_flying > 0 && server->queries_flying <= server->spin_flying_most;
		bool		brief = channels_brief(server);
		int64_t		now = server_now_us();
		int64_t		until = now + (flying || brief ? server->spin_flying_us : server->spin_us);
		int64_t		look = now + LOOK_US;

		do
		{
			if (atomic_load(&area->doorbell) != seen)
				return;
			/*
			 * Poll the engine: the end of a GPU's batch, or of a step of a job,
			 * is visible long before the thread that rings the doorbell runs.
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
		} while ((now = server_now_us()) < until);
	}
	PROTOCOL_STEP(SERVER_RESTS);
	atomic_store(&area->sleeping, 1);
	PROTOCOL_STEP(SERVER_SLEEPS);
	area_futex_wait(&area->doorbell, seen, longest_sleep(server));
	PROTOCOL_STEP(SERVER_WAKES);
	atomic_store(&area->sleeping, 0);
}

/*
 * Maintenance, once a second: reclaim slots and channels of dead processes,
 * drop mirrors that nobody can name, publish figures, run the watchdog.
 */
static void
serve_chores(Server *server)
{
	int64_t		now = server_now_us();

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

/* Main loop, until SIGTERM. */
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
	 * close waits for work in flight; the watch thread exits if that takes too
	 * long.
	 */
	server->ops->close(server->engine);
	wakers_stop(server);
	return 0;
}
