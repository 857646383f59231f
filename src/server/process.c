/*
 * process.c
 *		The server process: descriptors, signals, lock file, termination, log.
 *
 * The process ends with its launcher even if the main thread is busy or hangs:
 * the kernel kills it when its parent dies, and the watch thread exits when the
 * death pipe closes.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include "server/server.h"

#ifdef __SANITIZE_ADDRESS__
#define TERMINATE_MS		900	/* the leak check runs at exit; the launcher waits for a second */
#else
#define TERMINATE_MS		80	/* time for an orderly shutdown */
#endif
#define LOCK_FILE_MODE		0640	/* less the umask */
#define LOCK_RETRY_MS		100
#define LOCK_LOG_EVERY		50	/* retries */
#define WARN_INTERVAL_US	INT64_C(1000000)

/*
 * Write one log line. Never blocks: if nobody reads the pipe and it is full,
 * the line is lost.
 */
static void
log_line(const char *level, const char *format, va_list arguments)
{
	char		line[1024];
	int			length = snprintf(line, sizeof(line), "%s: ", level);

	length += vsnprintf(line + length, sizeof(line) - (size_t) length, format, arguments);
	if (length > (int) sizeof(line) - 2)
		length = (int) sizeof(line) - 2;
	for (int i = 0; i < length; i++)
		if (line[i] == '\n' || line[i] == '\r')
			line[i] = ' ';
	line[length++] = '\n';
	if (write(STDERR_FILENO, line, (size_t) length) < 0)
		return;
}

/* Log one line; level is "LOG", "WARNING" or "FATAL". */
void
process_log(const char *level, const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	log_line(level, format, arguments);
	va_end(arguments);
}

/*
 * Log a warning that clients could cause repeatedly; at most one per second is
 * logged, others are dropped. Main thread only.
 */
void
process_warn(const char *format,...)
{
	static int64_t last_us = -WARN_INTERVAL_US;
	int64_t		now = monotonic_us();
	va_list		arguments;

	if (now - last_us < WARN_INTERVAL_US)
		return;
	last_us = now;
	va_start(arguments, format);
	log_line("WARNING", format, arguments);
	va_end(arguments);
}

/*
 * Close all descriptors but the standard ones and two, and make stderr
 * non-blocking if it is a pipe.
 */
void
process_close_descriptors(int keep_a, int keep_b)
{
	DIR		   *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	struct stat st;

	while (dir != NULL && (entry = readdir(dir)) != NULL)
	{
		int			fd = atoi(entry->d_name);

		if (fd > STDERR_FILENO && fd != keep_a && fd != keep_b && fd != dirfd(dir))
			close(fd);
	}
	if (dir != NULL)
		closedir(dir);
	if (fstat(STDERR_FILENO, &st) == 0 && S_ISFIFO(st.st_mode))
		(void) fcntl(STDERR_FILENO, F_SETFL, fcntl(STDERR_FILENO, F_GETFL) | O_NONBLOCK);
}

/*
 * Ignore signals that the launcher handles or that are meaningless here, and
 * block all others but faults, in this thread and those created later. The
 * watch thread reads SIGTERM by signalfd.
 */
void
process_block_signals(void)
{
	static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM};
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
	sigset_t	blocked;

	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_IGN);
	sigfillset(&blocked);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
	{
		signal(faults[i], SIG_DFL);
		sigdelset(&blocked, faults[i]);
	}
	pthread_sigmask(SIG_SETMASK, &blocked, NULL);
}

/*
 * Have the kernel kill this process when the launcher dies. If the launcher is
 * dead already, the death pipe is closed.
 */
void
process_die_with_parent(void)
{
	(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/*
 * Open the lock file, with the mode of the data directory's files (group access
 * as in PostgreSQL's umask). An existing file gets that mode too, because
 * earlier versions created it with another. Returns -1 if it cannot be opened.
 */
static int
open_lock_file(const char *path)
{
	mode_t		mask = umask(077);
	int			fd;

	(void) umask(mask);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, LOCK_FILE_MODE);
	if (fd >= 0 && fchmod(fd, LOCK_FILE_MODE & ~mask) != 0)
		process_log("WARNING", "could not set the mode of lock file \"%.500s\": %s", path,
					strerror(errno));
	return fd;
}

/*
 * Lock the lock file for the lifetime of the process, waiting while another
 * server holds it. Exits if it cannot be opened.
 */
void
process_take_lock(const char *path)
{
	int			fd = open_lock_file(path);
	char		pid[16];

	if (fd < 0)
	{
		process_log("FATAL", "could not open lock file \"%.500s\": %s", path, strerror(errno));
		exit(SERVER_EXIT_FAILED);
	}
	for (uint32_t tries = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++)
	{
		struct timespec pause = {0, LOCK_RETRY_MS * 1000000L};

		if (errno != EWOULDBLOCK && errno != EINTR)
		{
			process_log("FATAL", "could not lock \"%.500s\": %s", path, strerror(errno));
			exit(SERVER_EXIT_FAILED);
		}
		if (tries % LOCK_LOG_EVERY == 0)
			process_log("LOG", "waiting for an older server to release \"%.500s\"", path);
		nanosleep(&pause, NULL);
	}
	/*
	 * The pid is for administrators; only the lock counts. The descriptor stays
	 * open until the process ends.
	 */
	snprintf(pid, sizeof(pid), "%d\n", (int) getpid());
	if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, strlen(pid), 0) < 0)
		process_log("WARNING", "could not write lock file \"%.500s\": %s", path, strerror(errno));
}

typedef struct Watch
{
	Server	   *server;
	int			death_fd;
	int			signal_fd;
	int			hang_ms;
	int			interval_ms;	/* interval of checks */
	uint32_t	rounds;			/* Server.rounds at the last check */
	int			stalled_checks;	/* consecutive checks without progress */
} Watch;

/*
 * Exit if the main loop does not advance, because a call into the engine does
 * not return. Counts checks instead of time, so that a process that was stopped
 * and continued does not count as hung.
 */
static void
check_main_loop(Watch *watch)
{
	uint32_t	rounds = atomic_load(&watch->server->rounds);

	watch->stalled_checks = rounds == watch->rounds && rounds != 0 ? watch->stalled_checks + 1 : 0;
	watch->rounds = rounds;
	if (watch->stalled_checks <= watch->hang_ms / watch->interval_ms)
		return;
	server_last_error(watch->server, "a call into the engine did not return");
	process_log("FATAL", "a call into the engine did not return within %d ms", watch->hang_ms);
	_exit(SERVER_EXIT_FAILED);
}

/*
 * Main function of the watch thread: wait for the end of the launcher or
 * SIGTERM, and check the main loop.
 */
static void *
watch_main(void *arg)
{
	Watch		watch = *(Watch *) arg;
	struct pollfd fds[2] = {{watch.death_fd, POLLIN, 0}, {watch.signal_fd, POLLIN, 0}};
	struct timespec pause = {0, TERMINATE_MS * 1000000L};

	free(arg);
	for (;;)
	{
		int			ready = poll(fds, 2, watch.interval_ms);

		atomic_fetch_add(&watch.server->area->heartbeat, 1);
		if (ready < 0 && errno != EINTR)
			_exit(SERVER_EXIT_FAILED);
		if (ready <= 0)
		{
			check_main_loop(&watch);
			continue;
		}
		if (fds[0].revents != 0)
		{
			char		byte;

			/* Nothing is ever written to it: readable means end of file. */
			if (read(watch.death_fd, &byte, 1) <= 0)
				_exit(SERVER_EXIT_FAILED);
		}
		if (fds[1].revents != 0)
		{
			atomic_store(&watch.server->terminate, true);
			area_ring(watch.server->area);
			nanosleep(&pause, NULL);
			_exit(0);
		}
	}
}

/* Start the watch thread. Signals must be blocked already. */
void
process_watch(Server *server, const ServerOptions *options)
{
	Watch	   *watch = calloc(1, sizeof(Watch));
	sigset_t	terminate;
	pthread_t	thread;

	sigemptyset(&terminate);
	sigaddset(&terminate, SIGTERM);
	if (watch != NULL)
	{
		watch->server = server;
		watch->death_fd = options->death_fd;
		watch->hang_ms = server_hang_ms(options);
		watch->interval_ms =
			watch->hang_ms < 8 * AREA_HEARTBEAT_MS ? watch->hang_ms / 8 + 1 : AREA_HEARTBEAT_MS;
		watch->signal_fd = signalfd(-1, &terminate, SFD_CLOEXEC);
		if (watch->signal_fd >= 0 && pthread_create(&thread, NULL, watch_main, watch) == 0)
			return;
	}
	process_log("FATAL", "could not start the watch thread");
	exit(SERVER_EXIT_FAILED);
}
