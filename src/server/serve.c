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
#include "server/spin_wait.h"

#define IDLE_MS			50
#define IN_FLIGHT_MS	5		/* in case an engine misses a wake-up */
#define BUSY_MS			1		/* to report progress of jobs, and retry after ENGINE_BUSY */
#define POLL_US			4		/* interval of polling the engine while spinning */
#define MAINTENANCE_US	INT64_C(1000000)

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
		if (server->channels[i].phase != CHANNEL_IDLE)
			channel_finish(server, i, ENGINE_FAILED, text);
	}
	wakers_stop(server);
	process_log("FATAL", "the engine failed: %s", text);
	_exit(SERVER_EXIT_FAILED);
}

/* Timeout of the next sleep, in milliseconds. */
static int
sleep_timeout(const Server *server)
{
	if (server->channels_busy > 0 || server->drops != NULL)
		return BUSY_MS;
	if (server->ready_first != NO_ENTRY)
		return BUSY_MS;
	if (server->rest_ms > 0)
		return server->rest_ms;
	return server->queries_in_flight > 0 ? IN_FLIGHT_MS : IDLE_MS;
}

/* Whether nothing is to be done before the next request. */
static bool
is_idle(const Server *server)
{
	return server->queries_in_flight == 0 && server->channels_busy == 0;
}

/*
 * Spin before a sleep: answers and next requests often arrive within
 * microseconds, less than a sleep and a wake-up take. True: there may be work.
 */
static bool
serve_spin(Server *server, uint32_t seen, bool in_flight, bool short_job)
{
	_Atomic uint32_t *doorbell = &server->area->doorbell;
	int64_t		now = monotonic_us();
	int64_t		until =
		now + (in_flight || short_job ? server->spin_in_flight_us : server->spin_us);
	int64_t		next_poll = now + POLL_US;
	int			idle_us;

	do
	{
		if (atomic_load(doorbell) != seen)
			return true;
		/*
		 * Poll the engine: the end of a GPU's batch, or of a step of a job, is
		 * visible long before the thread that rings the doorbell runs.
		 */
		if ((in_flight || short_job) && now >= next_poll)
		{
			if ((in_flight && queries_poll(server)) ||
				(short_job && channels_poll_jobs(server)))
				return true;
			next_poll = now + POLL_US;
		}
#if defined(__x86_64__) || defined(__i386__)
		__builtin_ia32_pause();
#endif
	} while ((now = monotonic_us()) < until);
	idle_us = spin_idle_us(server->usual_gap_us, server->processors,
						   atomic_load_explicit(&server->area->asking, memory_order_relaxed));
	return is_idle(server) && idle_us > server->spin_us &&
		yield_until_changed(doorbell, seen, idle_us - server->spin_us);
}

/*
 * Sleep until the doorbell differs from `seen`, which was read before the last
 * check for work.
 */
static void
serve_sleep(Server *server, uint32_t seen)
{
	AreaHeader *area = server->area;
	bool		in_flight = server->queries_in_flight > 0 &&
		server->queries_in_flight <= server->spin_max_in_flight;
	bool		short_job = channels_run_short_job(server);
	bool		idle = is_idle(server);
	int64_t		began = monotonic_us();

	server->wakes = 0;
	if (server->spin_us == 0 || !serve_spin(server, seen, in_flight, short_job))
	{
		PROTOCOL_STEP(SERVER_RESTS);
		atomic_store(&area->sleeping, 1);
		PROTOCOL_STEP(SERVER_SLEEPS);
		area_futex_wait(&area->doorbell, seen, sleep_timeout(server));
		PROTOCOL_STEP(SERVER_WAKES);
		atomic_store(&area->sleeping, 0);
	}
	if (idle)
		spin_learn(&server->usual_gap_us, monotonic_us() - began);
}

/*
 * Publish the number of clients that were active in the last second, which
 * limits how long processes spin (spin_wait.h).
 */
static void
asking_publish(Server *server, int64_t now)
{
	uint32_t	asking = 0;

	for (uint32_t i = 0; i < server->layout.slots; i++)
		asking += now - server->tickets[i].posted_us < MAINTENANCE_US;
	atomic_store_explicit(&server->area->asking, asking, memory_order_relaxed);
}

/*
 * Maintenance, once a second: reclaim slots and channels of dead processes,
 * drop mirrors that nobody can name, publish figures and counts, run the
 * watchdog.
 */
static void
serve_maintenance(Server *server)
{
	int64_t		now = monotonic_us();

	if (now - server->last_maintenance_us < MAINTENANCE_US)
		return;
	server->last_maintenance_us = now;
	requests_sweep(server, false);
	channels_sweep(server, false);
	held_sweep(server);
	sets_sweep(server);
	memory_publish(server);
	asking_publish(server, now);
	list_counts_round(server);
	(void) queries_poll(server);
	watchdog_check(server);
}

/* Main loop, until SIGTERM. */
int
serve(Server *server)
{
	uint32_t	rounds = 0;

	while (!atomic_load(&server->terminate))
	{
		uint32_t	seen = atomic_load(&server->area->doorbell);
		bool		worked = requests_take(server);

		atomic_store_explicit(&server->rounds, ++rounds | 1u << 31, memory_order_relaxed);
		worked |= batches_launch(server);
		if (server->queries_in_flight > 0)
			worked |= queries_poll(server);
		worked |= channels_step(server);
		worked |= drops_advance(server);
		serve_maintenance(server);
		if (!worked)
			serve_sleep(server, seen);
	}
	process_log("LOG", "shutting down");
	list_counts_take_all(server);
	/*
	 * close waits for work in flight; the watch thread exits if that takes too
	 * long.
	 */
	server->ops->close(server->engine);
	wakers_stop(server);
	return 0;
}
