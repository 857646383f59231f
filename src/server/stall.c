/*
 * stall.c
 *		An engine that takes work and gives nothing back: a kernel that never ends, an answer that was forgotten.
 *
 * Its calls return, so the watch thread sees nothing wrong, while clients time out one after another. Looks are counted, a second
 * apart at least, not time: a process that was stopped and continued has not stalled.
 */
#include "server.h"

#define STALL_PER_HANG	6		/* patience with work under way, in that with a call */

/* How many looks without progress are too many. */
static uint32_t
most_looks(const Server *server)
{
	uint32_t	looks = (uint32_t) ((int64_t) server->hang_ms * STALL_PER_HANG / 1000);

	return looks > 0 ? looks : 1;
}

/* End the process: what the engine has in hand will not come back. */
static void
give_up(Server *server, const char *what)
{
	EngineError error;

	engine_error(&error, ENGINE_FAILED, "the engine has not got on with %s for %u s", what, most_looks(server));
	server_fail(server, &error);
}

/* Whether a lane has been where it is since the last look. */
static bool
lane_stands(LaneWork *work)
{
	bool		stands = work->phase != LANE_RESTS && work->phase != LANE_SEARCHES && work->seen_phase == work->phase &&
		work->seen_generation == work->generation && work->seen_done == work->done;

	work->seen_phase = work->phase;
	work->seen_generation = work->generation;
	work->seen_done = work->done;
	return stands;
}

/* Look whether queries and jobs get on. Called about once a second. */
void
stall_look(Server *server)
{
	bool		waiting = server->queries_flying > 0 || server->ready_first != NO_ENTRY;

	server->still_looks = waiting && server->queries_done == server->seen_done ? server->still_looks + 1 : 0;
	server->seen_done = server->queries_done;
	if (server->still_looks > most_looks(server))
		give_up(server, "any query");
	for (uint32_t i = 0; i < server->layout.lanes; i++)
	{
		LaneWork   *work = &server->lanes[i];

		work->still_looks = lane_stands(work) ? work->still_looks + 1 : 0;
		if (work->still_looks > most_looks(server))
			give_up(server, "a job");
	}
}
