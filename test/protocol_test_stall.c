/*
 * protocol_test_stall.c
 *		How long the server waits for an engine that does not get on: seconds
 *		for a search, for a job and a search of all rows as long as their work
 *		explains.
 *
 * A server of its own, which nothing runs, is looked at in a child process: as
 * often as it takes, a look for a second.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/server.h"

#include "protocol_test.h"

#define SURVIVED	77

/* A mirror of a million rows of 768 floats. */
static const HeldMirror large = {
	.id = 1, .spec = {.degree = 32}, .vector_bytes = 3072, .rows = 1000000};
static const HeldMirror small = {.id = 1, .spec = {.degree = 32}, .vector_bytes = 64, .rows = 100};

/* What a child does with its server in each second. */
typedef void (*Second) (Server *server, uint32_t number);

/*
 * Whether a server that has channels and tickets like these is still there
 * after so many looks.
 */
static bool
survives(const ChannelWork *channels, uint32_t nchannels, const Ticket *ticket, uint32_t looks,
		 Second second)
{
	int			status = 0;
	pid_t		child = fork();

	if (child == 0)
	{
		AreaHeader *area = calloc(1, 1 << 20);
		Server		server = {.area = area, .hang_ms = HANG_MS, .ready_first = NO_ENTRY};

		server.layout.channels = nchannels;
		server.layout.slots = ticket != NULL;
		server.queries_in_flight = ticket != NULL;
		server.tickets = calloc(1, sizeof(Ticket));
		if (ticket != NULL)
			server.tickets[0] = *ticket;
		server.channels = calloc(nchannels + 1, sizeof(ChannelWork));
		if (nchannels > 0)
			memcpy(server.channels, channels, nchannels * sizeof(ChannelWork));
		(void) close(STDERR_FILENO);
		for (uint32_t i = 0; i < looks; i++)
		{
			if (second != NULL)
				second(&server, i);
			watchdog_check(&server);
		}
		_exit(SURVIVED);
	}
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
		   WEXITSTATUS(status) == SURVIVED;
}

/* A search that the engine has had for so long. */
static bool
search_survives(const HeldMirror *mirror, SearchMethod method, uint32_t ef, uint32_t looks)
{
	const EngineQuery query = {.method = method, .k = 10, .ef = ef};
	const Ticket ticket = {.state = TICKET_IN_FLIGHT,
						   .bytes = watchdog_query_bytes(mirror, &query)};

	return survives(NULL, 0, &ticket, looks, NULL);
}

/* Other searches end all the time. */
static void
others_are_answered(Server *server, uint32_t number)
{
	server->queries_done = number + 1;
}

/* So are they beside a thousand tickets like the first. */
static void
a_crowd_is_in_flight(Server *server, uint32_t number)
{
	others_are_answered(server, number);
	if (number > 0)
		return;
	server->layout.slots = 1000;
	server->tickets = realloc(server->tickets, 1000 * sizeof(Ticket));
	if (server->tickets == NULL)
		_exit(1);
	for (uint32_t i = 1; i < 1000; i++)
		server->tickets[i] = server->tickets[0];
}

static void
searches_that_hang_are_noticed_beside_others(void)
{
	const EngineQuery walk = {.method = METHOD_GRAPH, .k = 10, .ef = 40};
	const EngineQuery exact = {.method = METHOD_EXACT, .k = 10, .ef = 1};
	Ticket		ticket = {.state = TICKET_IN_FLIGHT, .bytes = watchdog_query_bytes(&large, &walk)};

	if (!survives(NULL, 0, &ticket, 10, others_are_answered))
		case_fails("a walk has less than ten seconds beside others");
	if (survives(NULL, 0, &ticket, 20, others_are_answered))
		case_fails("a walk has more than twenty seconds, since others end");
	ticket.bytes = watchdog_query_bytes(&large, &exact);
	if (!survives(NULL, 0, &ticket, 25, others_are_answered) ||
		survives(NULL, 0, &ticket, 120, others_are_answered))
		case_fails("an exact search of 3 GB has not half a minute beside others, or more than two");
	/* behind 30 searches like it */
	ticket.checks = 1;
	ticket.ahead = 31 * ticket.bytes;
	if (!survives(NULL, 0, &ticket, 400, others_are_answered) ||
		survives(NULL, 0, &ticket, 1200, others_are_answered))
		case_fails("an exact search that waits for others has not their time, or any");
	ticket.checks = 0;
	if (!survives(NULL, 0, &ticket, 600, a_crowd_is_in_flight) ||
		survives(NULL, 0, &ticket, 700, a_crowd_is_in_flight))
		case_fails("an exact search in a crowd has less than ten minutes, or hours");
}

static void
searches_that_hang_free_their_callers_in_seconds(void)
{
	if (!search_survives(&large, METHOD_GRAPH, 40, 10))
		case_fails("a walk has less than ten seconds");
	if (search_survives(&large, METHOD_GRAPH, 40, 20))
		case_fails("a walk has more than twenty seconds");
	if (!search_survives(&large, METHOD_EXACT, 1, 25) ||
		search_survives(&large, METHOD_EXACT, 1, 120))
		case_fails("an exact search of 3 GB has not half a minute, or more than two");
	if (search_survives(&small, METHOD_EXACT, 1, 20))
		case_fails("an exact search of a few rows has more than twenty seconds");
}

/* A channel that runs a job. */
static ChannelWork
channel_of(const HeldMirror *mirror, JobKind kind, uint32_t count)
{
	const EngineJob job = {.kind = kind, .count = count, .ef_construction = 64};

	return (ChannelWork){
		.phase = CHANNEL_RUNNING, .generation = 1, .bytes = watchdog_job_bytes(mirror, &job)};
}

static void
jobs_have_as_long_as_their_work_explains(void)
{
	const ChannelWork link = channel_of(&large, JOB_LINK, 1000000);
	const ChannelWork one = channel_of(&small, JOB_DEAD, 1);
	const ChannelWork both[2] = {one, link};

	if (!survives(&link, 1, NULL, 400, NULL))
		case_fails("a link of a million rows is given up within 400 seconds");
	if (survives(&link, 1, NULL, 1200, NULL))
		case_fails("a link that does not get on is never given up");
	if (!survives(&one, 1, NULL, 50, NULL) || survives(&one, 1, NULL, 90, NULL))
		case_fails("one row that dies has less than 50 seconds, or more than 90");
	if (!survives(both, 2, NULL, 400, NULL))
		case_fails("a job that waits behind a long one is given up");
}

static void
link_gets_on(Server *server, uint32_t number)
{
	server->channels[1].done = number;
}

static void
jobs_wait_for_one_that_gets_on(void)
{
	const ChannelWork channels[2] = {channel_of(&small, JOB_DEAD, 1),
									 channel_of(&small, JOB_LINK, 100)};

	if (!survives(channels, 2, NULL, 1000, link_gets_on))
		case_fails("a job is given up while another gets on");
}

const TestCase stall_cases[] = {
	{"searches_that_hang_free_their_callers_in_seconds",
	 searches_that_hang_free_their_callers_in_seconds},
	{"searches_that_hang_are_noticed_beside_others", searches_that_hang_are_noticed_beside_others},
	{"jobs_have_as_long_as_their_work_explains", jobs_have_as_long_as_their_work_explains},
	{"jobs_wait_for_one_that_gets_on", jobs_wait_for_one_that_gets_on},
	{NULL, NULL}};
