/*
 * ask.c
 *		Many connections that do nothing but ask with a vector of their own,
 *		sent in binary as drivers send it: pgbench knows text only, and to read
 *		128 numbers costs more than all else that a query does.
 *
 * ask -f FILE -v VECTOR [-c CLIENTS] [-j THREADS] [-t QUERIES | -T SECONDS]
 *
 * FILE holds one statement with $1 for the vector, which is prepared; VECTOR is
 * its text. -t is how many queries each client asks. The server is found as
 * psql finds it. Prints what pgbench prints of these: the number of
 * transactions, and tps.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

#define MAX_CLIENTS	1024
#define DIMS_MAX		16000
#define BINARY			1

typedef struct Part				/* of a thread */
{
	pthread_t	thread;
	int			first;			/* clients */
	int			count;
	uint64_t	answered;
} Part;

static PGconn *connections[MAX_CLIENTS];
static Part parts[MAX_CLIENTS];
static char parameter[4 + 4 * DIMS_MAX];
static int	parameter_bytes;
static uint64_t queries_each = UINT64_MAX;
static double until = 0;		/* 0: no end */

static void
die(const char *what, PGconn *connection)
{
	fprintf(stderr, "ask: %s%s%s\n", what, connection ? ": " : "",
			connection ? PQerrorMessage(connection) : "");
	exit(1);
}

static double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/*
 * The vector as its type's receive function has it: dimensions, a zero, the
 * elements.
 */
static void
read_vector(const char *text)
{
	uint16_t	head[2] = {0, 0};
	int			dims = 0;

	for (const char *at = text + 1; *text == '[' && *at != '\0' && dims < DIMS_MAX; dims++)
	{
		char	   *end;
		float		element = strtof(at, &end);
		uint32_t	bits;

		if (end == at || (*end != ',' && *end != ']'))
			die("not a vector", NULL);
		memcpy(&bits, &element, sizeof(bits));
		bits = htonl(bits);
		memcpy(parameter + 4 + 4 * dims, &bits, sizeof(bits));
		at = *end == ',' ? end + 1 : end + strlen(end);
	}
	if (dims == 0)
		die("not a vector", NULL);
	head[0] = htons((uint16_t) dims);
	memcpy(parameter, head, sizeof(head));
	parameter_bytes = 4 + 4 * dims;
}

/* Connect, and prepare the statement. */
static void
begin(int client, const char *statement)
{
	PGconn	   *connection = connections[client] = PQconnectdb("");
	PGresult   *result;

	if (PQstatus(connection) != CONNECTION_OK)
		die("no connection", connection);
	result = PQprepare(connection, "q", statement, 0, NULL);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		die("not prepared", connection);
	PQclear(result);
}

static void
ask(PGconn *connection)
{
	const char *value = parameter;
	int			format = BINARY;

	if (!PQsendQueryPrepared(connection, "q", 1, &value, &parameter_bytes, &format, BINARY))
		die("not asked", connection);
}

/* Take what has come of an answer. True: it is complete. */
static bool
take(PGconn *connection)
{
	PGresult   *result;

	if (!PQconsumeInput(connection))
		die("no answer", connection);
	while (!PQisBusy(connection))
	{
		result = PQgetResult(connection);
		if (result == NULL)
			return true;
		if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) == 0)
			die("no rows", connection);
		PQclear(result);
	}
	return false;
}

/* A thread: its clients ask, each again as soon as it has its answer. */
static void *
run(void *arg)
{
	Part	   *part = arg;
	struct pollfd polled[MAX_CLIENTS];
	uint64_t	asked[MAX_CLIENTS];
	int			busy = part->count;

	for (int i = 0; i < part->count; i++)
	{
		polled[i] = (struct pollfd){.fd = PQsocket(connections[part->first + i]), .events = POLLIN};
		asked[i] = 1;
		ask(connections[part->first + i]);
	}
	while (busy > 0)
	{
		bool		over = until != 0 && now() >= until;

		if (poll(polled, (nfds_t) part->count, -1) < 0)
			die("poll failed", NULL);
		for (int i = 0; i < part->count; i++)
		{
			PGconn	   *connection = connections[part->first + i];

			if (polled[i].revents == 0 || !take(connection))
				continue;
			part->answered++;
			if (!over && asked[i]++ < queries_each)
				ask(connection);
			else
			{
				polled[i].fd = -1;
				busy--;
			}
		}
	}
	return NULL;
}

/* The statement in a file, without its line end. */
static char *
read_statement(const char *name)
{
	static char statement[65536];
	FILE	   *file = fopen(name, "r");

	if (file == NULL)
		die("no such file", NULL);
	statement[fread(statement, 1, sizeof(statement) - 1, file)] = '\0';
	fclose(file);
	return statement;
}

int
main(int argc, char **argv)
{
	const char *file = NULL;
	int			clients = 1;
	int			threads = 1;
	double		seconds = 0;
	double		began;
	uint64_t	answered = 0;
	int			option;

	while ((option = getopt(argc, argv, "f:v:c:j:t:T:")) != -1)
	{
		switch (option)
		{
			case 'f': file = optarg; break;
			case 'v': read_vector(optarg); break;
			case 'c': clients = atoi(optarg); break;
			case 'j': threads = atoi(optarg); break;
			case 't': queries_each = strtoull(optarg, NULL, 10); break;
			case 'T': seconds = atof(optarg); break;
			default:
				die("usage: ask -f FILE -v VECTOR [-c CLIENTS] [-j THREADS] [-t QUERIES | -T SECONDS]",
					NULL);
		}
	}
	if (file == NULL || parameter_bytes == 0 || clients < 1 || clients > MAX_CLIENTS ||
		threads < 1 || threads > clients || (seconds <= 0 && queries_each == UINT64_MAX))
		die("what is to be asked, by how many, for how long?", NULL);
	for (int i = 0; i < clients; i++)
		begin(i, read_statement(file));

	began = now();
	until = seconds > 0 ? began + seconds : 0;
	for (int i = 0, first = 0; i < threads; first += parts[i++].count)
	{
		parts[i].first = first;
		parts[i].count = (clients - first) / (threads - i);
		if (pthread_create(&parts[i].thread, NULL, run, &parts[i]) != 0)
			die("no thread", NULL);
	}
	for (int i = 0; i < threads; i++)
	{
		pthread_join(parts[i].thread, NULL);
		answered += parts[i].answered;
	}
	printf("number of transactions actually processed: %llu\n", (unsigned long long) answered);
	printf("tps = %f (without initial connection time)\n", answered / (now() - began));
	for (int i = 0; i < clients; i++)
		PQfinish(connections[i]);
	return 0;
}
