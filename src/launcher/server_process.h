/*
 * server_process.h
 *		The gpuann-server process, as seen by its parent, the launcher.
 */
#ifndef GPUANN_SERVER_PROCESS_H
#define GPUANN_SERVER_PROCESS_H

#include "client/shmem.h"

typedef struct ServerProcess
{
	pid_t		pid;			/* 0: not running */
	int			death_fd;		/* write end: closing it, also by our death, makes the server
								 * exit */
	int			log_fd;			/* read end of its standard error */
	int64		started_us;
	bool		fatal_logged;	/* its last FATAL message is in last_error */
	Size		line_length;
	char		line[1024];
} ServerProcess;

/*
 * Start a server. Returns false, with a log message and last_error, on failure.
 */
extern bool server_start(ServerProcess *server);

/* Relay its log lines to the server log. */
extern void server_relay(ServerProcess *server);

/*
 * Reap the server if it has ended, relaying its last lines; fatal_logged is
 * kept. *status is that of waitpid().
 */
extern bool server_reap(ServerProcess *server, int *status);

/*
 * Stop the server: SIGTERM, then SIGKILL after patience_ms. Returns when it has
 * ended. Does not process interrupts.
 */
extern void server_stop(ServerProcess *server, int patience_ms);

#endif							/* GPUANN_SERVER_PROCESS_H */
