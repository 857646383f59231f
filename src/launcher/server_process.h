/*
 * server_process.h
 *		The gpuann-server process as its parent, the launcher, sees it.
 */
#ifndef GPUANN_SERVER_PROCESS_H
#define GPUANN_SERVER_PROCESS_H

#include "client/shmem.h"

typedef struct ServerProcess
{
	pid_t		pid;			/* 0: none runs */
	int			death_fd;		/* write end: closing it, or our own death, tells the server to
								 * end */
	int			log_fd;			/* read end of its standard error */
	int64		started_us;
	bool		said_why;		/* its last words, FATAL, are in last_error */
	Size		line_length;
	char		line[1024];
} ServerProcess;

/* Start one; false, with a log line and last_error, if that fails. */
extern bool server_start(ServerProcess *server);

/* Relay what it has logged so far to the server log. */
extern void server_relay(ServerProcess *server);

/*
 * Whether it has ended; then it is reaped, its last lines are relayed (said_why
 * stays), and *status is as waitpid gives it.
 */
extern bool server_reap(ServerProcess *server, int *status);

/*
 * End it: gently, and after patience_ms at once. Returns when it is gone,
 * without serving interrupts.
 */
extern void server_stop(ServerProcess *server, int patience_ms);

#endif							/* GPUANN_SERVER_PROCESS_H */
