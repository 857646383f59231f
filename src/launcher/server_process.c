/*
 * server_process.c
 *		Start, watch and end the gpuann-server process.
 *
 * The server is a child of the launcher that shares nothing with PostgreSQL but
 * the shared area: all other descriptors are closed, and signals have default
 * handlers. Only async-signal-safe functions are called between fork and exec.
 * The server ends with the launcher in any case, by the parent-death signal and
 * by a pipe of which it holds the read end.
 */
#include "base/base.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "client/shmem.h"
#include "launcher/server_process.h"

#include "miscadmin.h"
#include "storage/fd.h"

#define CHILD_AREA_FD	3
#define CHILD_DEATH_FD	4
#define CHILD_FIRST_UNUSED_FD	5
#define MAX_ARGUMENTS	16
#define STUCK_MS		10000	/* a killed process that has not ended by then hangs in a driver:
								 * continue without waiting for it */

/*
 * Arguments of the child, prepared before fork(), because the child must not
 * allocate memory.
 */
typedef struct ServerCommand
{
	char		program[MAXPGPATH];
	char		library[MAXPGPATH];
	char		lock[MAXPGPATH];
	char		memory[32];
	char		host_rows[32];
	const char *engine;
	char	   *arguments[MAX_ARGUMENTS];
	int			area_fd;
	int			death_fd;
	int			log_fd;
	int			highest_fd;
	pid_t		parent;
} ServerCommand;

/* The directory of gpuann.so, which also contains the server program. */
static void
library_directory(char *directory)
{
	Dl_info		info;

	strlcpy(directory, pkglib_path, MAXPGPATH);
	if (dladdr((void *) library_directory, &info) != 0 && info.dli_fname != NULL &&
		strchr(info.dli_fname, '/'))
	{
		strlcpy(directory, info.dli_fname, MAXPGPATH);
		get_parent_directory(directory);
	}
}

/* Prepare the command line. */
static void
make_command(ServerCommand *command)
{
	static const char *const engines[] = {"auto", "cuda", "cpu"};
	char		directory[MAXPGPATH];
	char	  **argument = command->arguments;

	library_directory(directory);
	snprintf(command->program, MAXPGPATH, "%s/%s", directory, SERVER_PROGRAM);
	if (gpuann_engine_library[0] != '\0')
		strlcpy(command->library, gpuann_engine_library, MAXPGPATH);
	else
		snprintf(command->library, MAXPGPATH, "%s/%s", directory, SERVER_CUDA_LIBRARY);
	snprintf(command->lock, MAXPGPATH, "%s/%s", DataDir, SERVER_LOCK_FILE);
	snprintf(command->memory, sizeof(command->memory), UINT64_FORMAT,
			 (uint64) gpuann_gpu_memory_limit << 20);
	snprintf(command->host_rows, sizeof(command->host_rows), UINT64_FORMAT,
			 (uint64) gpuann_host_rows_limit << 20);
	command->engine = engines[gpuann_engine];

	*argument++ = command->program;
	*argument++ = "--area-fd";
	*argument++ = "3";
	*argument++ = "--death-fd";
	*argument++ = "4";
	*argument++ = "--lock";
	*argument++ = command->lock;
	*argument++ = "--engine";
	*argument++ = unconstify(char *, command->engine);
	*argument++ = "--engine-library";
	*argument++ = command->library;
	*argument++ = "--memory-limit";
	*argument++ = command->memory;
	*argument++ = "--host-rows-limit";
	*argument++ = command->host_rows;
	*argument = NULL;
}

/*
 * In the child: set up the descriptors of the command line, close all others.
 * Standard error is the log pipe first of all.
 */
static bool
child_descriptors(const ServerCommand *command)
{
	bool		logs = dup2(command->log_fd, 2) == 2;
	int			area_fd = fcntl(command->area_fd, F_DUPFD, 10);
	int			death_fd = fcntl(command->death_fd, F_DUPFD, 10);
	int			log_fd = fcntl(command->log_fd, F_DUPFD, 10);
	int			null_fd = open("/dev/null", O_RDWR);

	if (!logs || area_fd < 0 || death_fd < 0 || log_fd < 0 || null_fd < 0)
		return false;
	if (dup2(null_fd, 0) < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0 ||
		dup2(area_fd, CHILD_AREA_FD) < 0 || dup2(death_fd, CHILD_DEATH_FD) < 0)
		return false;
#ifdef SYS_close_range
	if (syscall(SYS_close_range, (unsigned) CHILD_FIRST_UNUSED_FD, ~0u, 0u) == 0)
		return true;
#endif
	for (int fd = CHILD_FIRST_UNUSED_FD; fd < command->highest_fd; fd++)
		close(fd);
	return true;
}

/* In the child: execute the server, or exit with a line on the log pipe. */
static void
child_exec(const ServerCommand *command)
{
	static const char cannot_run[] = "FATAL: the server program cannot be run\n";
	static const char too_few[] =
		"FATAL: the server program cannot be run: too few file descriptors are left\n";
	bool		scarce;
	struct sigaction action;
	sigset_t	none;
	ssize_t		written;

	memset(&action, 0, sizeof(action));
	action.sa_handler = SIG_DFL;
	for (int signal = 1; signal < NSIG; signal++)
		(void) sigaction(signal, &action, NULL);
	sigemptyset(&none);

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == command->parent &&
		child_descriptors(command))
	{
		sigprocmask(SIG_SETMASK, &none, NULL);
		execv(command->program, command->arguments);
	}
	/* EINVAL: even the descriptor numbers requested are beyond the limit */
	scarce = errno == EMFILE || errno == ENFILE || errno == EINVAL;
	written = scarce ? write(2, too_few, sizeof(too_few) - 1)
					 : write(2, cannot_run, sizeof(cannot_run) - 1);
	_exit(written > 0 ? 127 : 126);
}

/*
 * Fork and exec with all signals blocked, so that no handler of ours runs in
 * the child. Returns the pid, or -1.
 */
static pid_t
server_spawn(const ServerCommand *command)
{
	sigset_t	all;
	sigset_t	before;
	pid_t		pid;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid = fork();
	if (pid == 0)
		child_exec(command);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return pid;
}

/*
 * Report why the server cannot be started, in the log and in
 * gpuann_server_status.
 */
static void
report_start_failure(const char *step)
{
	int			error = errno;

	snprintf(gpuann_area->last_error, sizeof(gpuann_area->last_error),
			 "could not %s for the server: %s", step, strerror(error));
	errno = error;
	ereport(LOG, (errmsg("could not %s for %s: %m", step, SERVER_PROGRAM)));
}

/* Close both ends of a pipe, as far as they are open. */
static void
close_pipe(int *ends)
{
	for (int i = 0; i < 2; i++)
	{
		if (ends[i] >= 0)
			close(ends[i]);
	}
}

bool
server_start(ServerProcess *server)
{
	ServerCommand command;
	struct rlimit files;
	int			death[2] = {-1, -1};
	int			log[2] = {-1, -1};

	memset(&command, 0, sizeof(command));
	memset(server, 0, sizeof(*server));
	make_command(&command);
	command.highest_fd =
		getrlimit(RLIMIT_NOFILE, &files) == 0 ? (int) Min(files.rlim_cur, 65536) : 65536;
	command.parent = MyProcPid;
	if (pipe2(death, O_CLOEXEC) < 0 || pipe2(log, O_CLOEXEC) < 0 ||
		fcntl(log[0], F_SETFL, O_NONBLOCK) < 0)
	{
		report_start_failure("make pipes");
		close_pipe(death);
		close_pipe(log);
		return false;
	}
	command.area_fd = gpuann_area_fd;
	command.death_fd = death[0];
	command.log_fd = log[1];

	server->pid = server_spawn(&command);
	if (server->pid < 0)
	{
		server->pid = 0;
		report_start_failure("fork");
		close_pipe(death);
		close_pipe(log);
		return false;
	}
	close(death[0]);
	close(log[1]);
	server->death_fd = death[1];
	server->log_fd = log[0];
	server->started_us = monotonic_us();
	return true;
}

/* Log a line that the server wrote, at its level. */
static void
relay_line(ServerProcess *server)
{
	char		text[sizeof(server->line) + 1];
	const char *message = text;
	int			level = LOG;

	shmem_copy_text(text, sizeof(text), server->line, server->line_length);
	server->line_length = 0;
	if (strncmp(text, "LOG: ", 5) == 0)
		message = text + 5;
	else if (strncmp(text, "WARNING: ", 9) == 0)
	{
		message = text + 9;
		level = WARNING;
	}
	else if (strncmp(text, "FATAL: ", 7) == 0)
	{
		message = text + 7;
		strlcpy(gpuann_area->last_error, message, sizeof(gpuann_area->last_error));
		server->fatal_logged = true;
	}
	if (message[0] != '\0')
		ereport(level, (errmsg("%s: %s", SERVER_PROGRAM, message), errhidestmt(true),
						errhidecontext(true)));
}

/* Split the bytes read into lines. */
static void
relay_bytes(ServerProcess *server, const char *bytes, ssize_t count)
{
	for (ssize_t i = 0; i < count; i++)
	{
		bool		end = bytes[i] == '\n';

		if (!end && server->line_length < sizeof(server->line))
			server->line[server->line_length++] = bytes[i];
		if (end)
			relay_line(server);
	}
}

void
server_relay(ServerProcess *server)
{
	char		buffer[4096];
	ssize_t		count;

	/* Limited, so that a flood of messages does not keep the launcher busy. */
	for (int i = 0; i < 4 && server->log_fd > 0; i++)
	{
		count = read(server->log_fd, buffer, sizeof(buffer));
		if (count > 0)
			relay_bytes(server, buffer, count);
		else if (count == 0)
		{
			/* the server has closed its end, and is ending */
			close(server->log_fd);
			server->log_fd = 0;
		}
		else
			break;
	}
}

bool
server_reap(ServerProcess *server, int *status)
{
	pid_t		pid = waitpid(server->pid, status, WNOHANG);
	bool		fatal_logged;

	if (pid == 0 || (pid < 0 && errno == EINTR))
		return false;
	if (pid < 0)
		*status = 0;
	server_relay(server);
	if (server->line_length > 0)
		relay_line(server);
	if (server->log_fd > 0)
		close(server->log_fd);
	close(server->death_fd);
	fatal_logged = server->fatal_logged;
	memset(server, 0, sizeof(*server));
	server->fatal_logged = fatal_logged;
	return true;
}

void
server_stop(ServerProcess *server, int patience_ms)
{
	int64		begun = monotonic_us() / 1000;
	bool		killed = false;
	int			status;

	if (server->pid == 0)
		return;
	kill(server->pid, SIGTERM);
	while (!server_reap(server, &status))
	{
		int64		waited = monotonic_us() / 1000 - begun;

		if (!killed && waited >= patience_ms)
			killed = kill(server->pid, SIGKILL) == 0;
		if (waited >= patience_ms + STUCK_MS)
		{
			ereport(LOG, (errmsg("%s (PID %d) does not end, not even killed", SERVER_PROGRAM,
								 (int) server->pid)));
			return;
		}
		pg_usleep(2000);
		server_relay(server);
	}
}
