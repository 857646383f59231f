/*
 * watchdog.c
 *		An engine that takes work and gives nothing back: a kernel that never
 *		ends, an answer that was forgotten.
 *
 * Its calls return, so the watch thread sees nothing wrong, while clients time
 * out one after another. How long is too long depends on the work. A search
 * takes milliseconds, unless it reads all rows of a large table; a job may link
 * millions of rows, and says how far it is only now and then. So there is a
 * patience with each kind, and to it is added what the bytes explain that have
 * to be read before there is news, at a pace which every engine exceeds by far.
 * Looks are counted, a second apart at least, not time: a process that was
 * stopped and continued has not stalled.
 */
#include "server/server.h"

/* Patience before any work is counted, in quarters of that with a call. */
#define QUERY_QUARTERS	3
#define JOB_QUARTERS	12

#define SLOWEST_PACE	200000000	/* bytes in a second */
#define WALK_SLACK		8		/* times ef rows of the graph, and what these name, are what a walk
								 * reads at most */
#define LINK_BATCH		16384	/* rows that an engine may link without saying how far it is */
#define SEEDS_COMPARED	4096	/* with each other, at the end of a link */

uint64_t
watchdog_query_bytes(const HeldMirror *mirror, const EngineQuery *query)
{
	uint64_t	list = query->ef > query->k ? query->ef : query->k;
	uint64_t	walked = WALK_SLACK * list * mirror->spec.degree + mirror->pending;

	return (query->method == METHOD_EXACT || walked > mirror->rows ? mirror->rows : walked) *
		   mirror->vector_bytes;
}

uint64_t
watchdog_job_bytes(const HeldMirror *mirror, const EngineJob *job)
{
	uint64_t	row_bytes = mirror->vector_bytes + mirror->spec.degree * sizeof(uint32_t);
	uint64_t	batch = job->count < LINK_BATCH ? job->count : LINK_BATCH;
	uint64_t	seeds = mirror->rows < SEEDS_COMPARED ? mirror->rows : SEEDS_COMPARED;
	uint64_t	bytes = (mirror->rows + job->count) * row_bytes;

	if (engine_job_links(job->kind))
		bytes += batch * job->ef_construction * mirror->spec.degree * mirror->vector_bytes +
				 seeds * seeds * mirror->vector_bytes;
	return bytes;
}

/* How many looks without progress are too many, for so many bytes. */
static uint64_t
most_looks(const Server *server, uint32_t quarters, uint64_t bytes)
{
	return ((uint64_t) server->hang_ms * quarters / 4 + 999) / 1000 + bytes / SLOWEST_PACE;
}

/* End the process: what the engine has in hand will not come back. */
static void
watchdog_give_up(Server *server, const char *what, uint32_t looks)
{
	EngineError error;

	engine_error(&error, ENGINE_FAILED, "the engine has not got on with %s for %u s", what, looks);
	server_fail(server, &error);
}

/*
 * What the longest of the searches has to read that the engine has; the others
 * may wait for it.
 */
static uint64_t
longest_query(const Server *server)
{
	uint64_t	most = 0;

	for (uint32_t i = 0; i < server->layout.slots; i++)
		if (server->tickets[i].state == TICKET_FLYING && server->tickets[i].bytes > most)
			most = server->tickets[i].bytes;
	for (uint32_t i = 0; i < server->layout.channels; i++)
		for (uint32_t j = 0; server->channels[i].phase == CHANNEL_SEARCHES && j < CHANNEL_PIECE;
			 j++)
		{
			const Ticket *ticket = &server->channels[i].search.tickets[j];

			if (ticket->state == TICKET_FLYING && ticket->bytes > most)
				most = ticket->bytes;
		}
	return most;
}

/*
 * Look whether searches get on. What the engine does not take has the patience
 * of a job, for one may be what keeps it.
 */
static void
look_at_queries(Server *server)
{
	bool		flying = server->queries_flying > 0;
	bool		waiting = flying || server->ready_first != NO_ENTRY;
	uint32_t	quarters = flying ? QUERY_QUARTERS : JOB_QUARTERS;

	server->still_looks =
		waiting && server->queries_done == server->seen_done ? server->still_looks + 1 : 0;
	server->seen_done = server->queries_done;
	if (server->still_looks > most_looks(server, quarters, 0) &&
		server->still_looks > most_looks(server, quarters, longest_query(server)))
		watchdog_give_up(server, "any query", server->still_looks);
}

/* Whether a channel has been where it is since the last look. */
static bool
channel_stands(ChannelWork *work)
{
	bool stands = work->phase != CHANNEL_RESTS && work->phase != CHANNEL_SEARCHES &&
				  work->seen_phase == work->phase && work->seen_generation == work->generation &&
				  work->seen_done == work->done;

	work->seen_phase = work->phase;
	work->seen_generation = work->generation;
	work->seen_done = work->done;
	return stands;
}

/*
 * Look whether jobs get on. Those of a mirror wait for each other, and threads
 * are shared: one that gets on excuses all, and what all have to do counts.
 */
static void
look_at_jobs(Server *server)
{
	bool		any_moves = false;
	uint64_t	bytes = 0;

	for (uint32_t i = 0; i < server->layout.channels; i++)
	{
		ChannelWork   *work = &server->channels[i];
		bool		stands = channel_stands(work);

		work->still_looks = stands ? work->still_looks + 1 : 0;
		any_moves |= !stands && work->phase == CHANNEL_RUNS;
		bytes += work->phase == CHANNEL_RUNS ? work->bytes : 0;
	}
	for (uint32_t i = 0; i < server->layout.channels; i++)
	{
		ChannelWork   *work = &server->channels[i];

		if (any_moves)
			work->still_looks = 0;
		else if (work->still_looks > most_looks(server, JOB_QUARTERS, bytes))
			watchdog_give_up(server, "a job", work->still_looks);
	}
}

/* Look whether queries and jobs get on. Called about once a second. */
void
watchdog_look(Server *server)
{
	look_at_queries(server);
	look_at_jobs(server);
}
