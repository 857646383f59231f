/*
 * watchdog.c
 *		Detect an engine that makes no progress: a kernel that never ends, or a
 *		query that is never completed.
 *
 * Calls into such an engine return, so the watch thread does not notice it,
 * while clients time out. Searches are judged by the age of the oldest, too,
 * because others may go on beside it. The limit depends on the work: a search
 * takes milliseconds unless it scans a large table; a job may link millions of
 * rows and reports progress only now and then. So each kind of work has a base
 * limit, to which the time is added for reading, at a rate that every engine
 * exceeds by far, the bytes that have to be read before there is progress.
 * Limits count checks, at least a second apart, instead of time, so that a
 * process that was stopped and continued does not count as stalled.
 */
#include "server/server.h"

/* Base limits, in quarters of the limit of a call (hang_ms). */
#define QUERY_QUARTERS	3
#define JOB_QUARTERS	12

#define SLOWEST_PACE	200000000	/* bytes per second */

/*
 * Bytes that a search may wait for beside the longest in flight: ten minutes at
 * that pace, which engines exceed by far.
 */
#define AHEAD_MAX		(UINT64_C(600) * SLOWEST_PACE)
#define WALK_SLACK		8		/* a graph search reads at most this many times ef graph rows, and
								 * the vectors of their neighbours */
#define LINK_BATCH		16384	/* rows that an engine may link between two progress reports */
#define SEEDS_COMPARED	4096	/* seeds compared with each other at the end of a link */

uint64_t
watchdog_query_bytes(const HeldMirror *mirror, const EngineQuery *query)
{
	uint64_t	list = query->ef > query->k ? query->ef : query->k;
	uint64_t	walked = WALK_SLACK * list * mirror->spec.degree + mirror->pending;

	/* With a program all columns are read, and perhaps all rows that pass. */
	if (query->method != METHOD_GRAPH || query->program != NULL || walked > mirror->rows)
		walked = mirror->rows;
	return walked * (mirror->vector_bytes + (query->program != NULL ? mirror->record_bytes : 0));
}

uint64_t
watchdog_job_bytes(const HeldMirror *mirror, const EngineJob *job)
{
	uint64_t	row_bytes = mirror->vector_bytes + mirror->record_bytes +
		mirror->spec.degree * sizeof(uint32_t);
	uint64_t	batch = job->count < LINK_BATCH ? job->count : LINK_BATCH;
	uint64_t	seeds = mirror->rows < SEEDS_COMPARED ? mirror->rows : SEEDS_COMPARED;
	uint64_t	bytes = (mirror->rows + job->count) * row_bytes;

	if (engine_job_links(job->kind))
		bytes += batch * job->ef_construction * mirror->spec.degree * mirror->vector_bytes +
				 seeds * seeds * mirror->vector_bytes;
	return bytes;
}

/*
 * Number of checks without progress that are too many, if this many bytes have
 * to be read.
 */
static uint64_t
max_checks(const Server *server, uint32_t quarters, uint64_t bytes)
{
	return ((uint64_t) server->hang_ms * quarters / 4 + 999) / 1000 + bytes / SLOWEST_PACE;
}

/* Exit: the work in the engine will not complete. */
static void
watchdog_fail(Server *server, const char *what, uint32_t checks)
{
	EngineError error;

	engine_error(&error, ENGINE_FAILED, "the engine made no progress with %s for %u s", what,
				 checks);
	server_fail(server, &error);
}

/* Searches in the engine, as a check finds them. */
typedef struct InFlight
{
	uint64_t	longest;		/* bytes that one has to read, */
	uint64_t	all;			/* and all together */
} InFlight;

/* What a check does with tickets that are in flight. */
typedef void (*TicketCheck) (Server *server, Ticket *ticket, InFlight *found);

/* Check all tickets in flight, of request slots and of channels. */
static void
for_each_in_flight(Server *server, TicketCheck check, InFlight *found)
{
	for (uint32_t i = 0; i < server->layout.slots; i++)
		if (server->tickets[i].state == TICKET_IN_FLIGHT)
			check(server, &server->tickets[i], found);
	for (uint32_t i = 0; i < server->layout.channels; i++)
		for (uint32_t j = 0; server->channels[i].phase == CHANNEL_SEARCHING && j < CHANNEL_PIECE;
			 j++)
		{
			Ticket	   *ticket = &server->channels[i].search.tickets[j];

			if (ticket->state == TICKET_IN_FLIGHT)
				check(server, ticket, found);
		}
}

static void
add_bytes(Server *server, Ticket *ticket, InFlight *found)
{
	found->all += ticket->bytes;
	if (ticket->bytes > found->longest)
		found->longest = ticket->bytes;
}

/*
 * A search may have to wait for everything that was in the engine when it was
 * submitted, so its limit is for the sum of their bytes. Later searches do not
 * extend it, because they may be answered indefinitely beside one that never
 * ends. The sum is limited to AHEAD_MAX; with an exact search in every session
 * it would be hours.
 */
static void
check_age(Server *server, Ticket *ticket, InFlight *found)
{
	if (ticket->checks++ == 0)
	{
		uint64_t	others = found->all - found->longest;

		ticket->ahead = found->longest + (others < AHEAD_MAX ? others : AHEAD_MAX);
	}
	if (ticket->checks > max_checks(server, QUERY_QUARTERS, ticket->ahead))
		watchdog_fail(server, "a query", ticket->checks);
}

/*
 * Check the progress of queries: of all together, and the age of each. If the
 * engine does not accept queries, the limit of jobs applies, because a job may
 * block them.
 */
static void
check_queries(Server *server)
{
	bool		in_flight = server->queries_in_flight > 0;
	bool		waiting = in_flight || server->ready_first != NO_ENTRY;
	uint32_t	quarters = in_flight ? QUERY_QUARTERS : JOB_QUARTERS;
	InFlight	found = {0, 0};

	server->stalled_checks =
		waiting && server->queries_done == server->seen_done ? server->stalled_checks + 1 : 0;
	server->seen_done = server->queries_done;
	if (in_flight)
	{
		for_each_in_flight(server, add_bytes, &found);
		for_each_in_flight(server, check_age, &found);
	}
	if (server->stalled_checks > max_checks(server, quarters, found.longest))
		watchdog_fail(server, "any query", server->stalled_checks);
}

/* Whether a channel has made no progress since the last check. */
static bool
channel_stalled(ChannelWork *work)
{
	bool stalled = work->phase != CHANNEL_IDLE && work->phase != CHANNEL_SEARCHING &&
				  work->seen_phase == work->phase && work->seen_generation == work->generation &&
				  work->seen_done == work->done;

	work->seen_phase = work->phase;
	work->seen_generation = work->generation;
	work->seen_done = work->done;
	return stalled;
}

/*
 * Check the progress of jobs. Jobs of a mirror run one after another, and all
 * share threads, so progress of one resets all, and the limit is for the sum of
 * their bytes.
 */
static void
check_jobs(Server *server)
{
	bool		any_progress = false;
	uint64_t	bytes = 0;

	for (uint32_t i = 0; i < server->layout.channels; i++)
	{
		ChannelWork *work = &server->channels[i];
		bool		stalled = channel_stalled(work);

		work->stalled_checks = stalled ? work->stalled_checks + 1 : 0;
		any_progress |= !stalled && work->phase == CHANNEL_RUNNING;
		bytes += work->phase == CHANNEL_RUNNING ? work->bytes : 0;
	}
	for (uint32_t i = 0; i < server->layout.channels; i++)
	{
		ChannelWork *work = &server->channels[i];

		if (any_progress)
			work->stalled_checks = 0;
		else if (work->stalled_checks > max_checks(server, JOB_QUARTERS, bytes))
			watchdog_fail(server, "a job", work->stalled_checks);
	}
}

/* Check the progress of queries and jobs. Called about once a second. */
void
watchdog_check(Server *server)
{
	check_queries(server);
	check_jobs(server);
}
