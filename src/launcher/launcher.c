/*
 * launcher.c
 *		The launcher: a background worker that keeps one gpuann-server running,
 *		and starts mirror workers where they are needed.
 *
 * It is not connected to a database and takes no heavyweight locks. When a
 * server dies, the launcher reaps it, advances the epoch, and fails the
 * requests in flight (protocol.h), so that no process waits for a dead server.
 */
#include "base/base.h"

#include <signal.h>
#include <sys/wait.h>

#include "client/shmem.h"
#include "base/faults.h"
#include "launcher/launcher.h"
#include "client/mirror_table.h"
#include "launcher/server_process.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#define FIRST_DELAY_MS		200 /* before the first restart; doubled after each quick death */
#define MAX_DELAY_MS		30000
#define NO_ENGINE_DELAY_MS	60000	/* after an exit that a quick restart would repeat; also the
									 * interval of looking for a GPU */
#define STEADY_MS			60000	/* a server that ran this long resets the backoff */
#define RELOAD_PATIENCE_MS	5000	/* from SIGTERM to SIGKILL, after a change of settings */
#define EXIT_PATIENCE_MS	1000	/* the same, when the launcher exits */
#define STARTING_POLL_MS	20
#define RUNNING_POLL_MS		1000
#define IDLE_POLL_MS		10000
#define SAVE_MS				60000
#define HEARTBEAT_CHECKS	3	/* checks that must find the heartbeat unchanged before the server
								 * can count as hung */

typedef struct Launcher
{
	ServerProcess server;
	int			delay_ms;		/* of the last restart */
	int64		start_at_ms;	/* when to start the next server */
	int64		kill_at_ms;		/* when to send SIGKILL to a server that was sent SIGTERM; 0: it was
								 * not */
	bool		hung;			/* it hung and was killed */
	bool		no_gpu;			/* engine auto found no usable GPU last time, which has been logged
								 */
	uint32		heartbeat;		/* as read last */
	int64		heartbeat_ms;	/* when it last changed */
	int64		checked_ms;		/* when it was last read */
	int			heartbeat_checks; /* checks since it changed, at least a heartbeat apart */
	int64		saved_ms;		/* when counters and mirrors were last saved */
	int			engine;			/* settings of the running server */
	int			memory_limit;
	int			host_rows_limit;
	char		engine_library[MAXPGPATH];
} Launcher;

static Launcher launcher;

/* SIGCHLD handler: a child has ended, perhaps the server. */
static void
handle_sigchld(SIGNAL_ARGS)
{
	int			save_errno = errno;

	SetLatch(MyLatch);
	errno = save_errno;
}

/* Update the shared area after the server has ended, and wake waiters. */
static void
publish_server_end(ServerState state, bool crashed)
{
	atomic_store(&gpuann_area->server_state, state);
	atomic_store(&gpuann_area->server_pid, 0);
	atomic_fetch_add(&gpuann_area->epoch, 1);
	atomic_store(&gpuann_area->memory_used, 0);
	shmem_sweep_requests();
	mirrors_sweep(crashed);
}

/* How long the state file waits for the next write, in ms. */
static int
save_interval(void)
{
#ifdef GPUANN_TEST_FAULTS
	return faults_save_interval;
#else
	return SAVE_MS;
#endif
}

/* before_shmem_exit callback: the server ends with the launcher. */
static void
launcher_exit(int code, Datum arg)
{
	/*
	 * after an ERROR this process may still hold the mirror lock, which is
	 * acquired below
	 */
	LWLockReleaseAll();
	gpuann_control->launcher_latch = NULL;
	server_stop(&launcher.server, EXIT_PATIENCE_MS);
	state_save(false);
	publish_server_end(SERVER_ABSENT, false);
	shmem_leave();
}

/* Start a server. */
static void
start_server(void)
{
	int64		now = monotonic_ms();

	launcher.kill_at_ms = 0;
	launcher.hung = false;
	launcher.heartbeat_ms = now;
	launcher.heartbeat_checks = 0;
	launcher.engine = gpuann_engine;
	launcher.memory_limit = gpuann_gpu_memory_limit;
	launcher.host_rows_limit = gpuann_host_rows_limit;
	strlcpy(launcher.engine_library, gpuann_engine_library, MAXPGPATH);
	launcher.start_at_ms = now + MAX_DELAY_MS;
	atomic_store(&gpuann_area->started_at, (int64) time(NULL));
	launcher.no_gpu = launcher.no_gpu && launcher.engine == GPUANN_ENGINE_AUTO;
	/*
	 * Keep SERVER_NO_GPU until a GPU was found, so that scans do not expect a
	 * server.
	 */
	if (!launcher.no_gpu)
		atomic_store(&gpuann_area->server_state, SERVER_STARTING);
	if (server_start(&launcher.server))
		atomic_store(&gpuann_area->server_pid, (int32) launcher.server.pid);
	else if (!launcher.no_gpu)
		atomic_store(&gpuann_area->server_state, SERVER_ABSENT);
}

/* Report how the server ended, in the log and in gpuann_server_status. */
static void
report_death(int status, int delay_ms)
{
	char		how[64];

	if (WIFSIGNALED(status))
		snprintf(how, sizeof(how), "was ended by signal %d", WTERMSIG(status));
	else
		snprintf(how, sizeof(how), "ended with status %d", WEXITSTATUS(status));
	if (launcher.hung)
		strlcpy(gpuann_area->last_error, "the server stood still and was ended",
				sizeof(gpuann_area->last_error));
	else if (WIFSIGNALED(status) || !launcher.server.fatal_logged)
		snprintf(gpuann_area->last_error, sizeof(gpuann_area->last_error), "the server %s", how);
	ereport(LOG, (errmsg("%s %s; scans are answered from pages until it runs again", SERVER_PROGRAM,
						 how),
				  errdetail("It is started again in %d ms.", delay_ms)));
}

/*
 * Whether the server crashed by itself: SIGKILL and SIGTERM come from outside.
 */
static bool
is_crash(int status)
{
	if (WIFSIGNALED(status))
		return WTERMSIG(status) != SIGKILL && WTERMSIG(status) != SIGTERM;
	return WEXITSTATUS(status) == SERVER_EXIT_FAILED;
}

/*
 * The server looked for a GPU and found none. It held nothing, so this does not
 * count as a death.
 */
static void
handle_no_gpu(void)
{
	atomic_store(&gpuann_area->server_pid, 0);
	launcher.delay_ms = 0;
	launcher.start_at_ms = monotonic_ms() + NO_ENGINE_DELAY_MS;
	if (launcher.no_gpu)
		return;
	launcher.no_gpu = true;
	publish_server_end(SERVER_NO_GPU, false);
	ereport(
		LOG,
		(errmsg("%s", shmem_last_error()),
		 errdetail(
			 "gpuann indexes are answered from their pages. A GPU is looked for again every %d s.",
			 NO_ENGINE_DELAY_MS / 1000),
		 errhint("gpuann.engine = 'cpu' asks for a server on CPU threads.")));
}

/* Handle the end of the server: plan the next start. */
static void
handle_death(int status, int64 ran_ms)
{
	int			code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	bool		no_quick_restart =
		code == SERVER_EXIT_NO_ENGINE || code == SERVER_EXIT_REFUSED || code == 127;

	if (code == SERVER_EXIT_NO_GPU && launcher.kill_at_ms == 0)
	{
		handle_no_gpu();
		return;
	}
	launcher.no_gpu = false;
	publish_server_end(no_quick_restart ? SERVER_FAILED : SERVER_ABSENT,
					   launcher.kill_at_ms == 0 && is_crash(status));
	atomic_fetch_add(&gpuann_area->restarts, 1);
	if (launcher.kill_at_ms != 0)
		launcher.delay_ms = 0;	/* it was sent SIGTERM: no backoff */
	else if (no_quick_restart)
		launcher.delay_ms = NO_ENGINE_DELAY_MS;
	else if (ran_ms >= STEADY_MS || launcher.delay_ms == 0)
		launcher.delay_ms = FIRST_DELAY_MS;
	else
		launcher.delay_ms = Min(launcher.delay_ms * 2, MAX_DELAY_MS);
	if (launcher.kill_at_ms == 0)
		report_death(status, launcher.delay_ms);
	launcher.kill_at_ms = 0;
	launcher.start_at_ms = monotonic_ms() + launcher.delay_ms;
}

/*
 * Watchdog: kill a hung server (stopped, or hanging in the kernel), so that
 * waiting processes continue at once. Checks are counted besides time, so that
 * after a suspension of launcher or machine the server is not mistaken for
 * hung.
 */
static void
check_heartbeat(int64 now)
{
	uint32		heartbeat = atomic_load(&gpuann_area->heartbeat);

	if (heartbeat != launcher.heartbeat)
	{
		launcher.heartbeat = heartbeat;
		launcher.heartbeat_ms = now;
		launcher.heartbeat_checks = 0;
		return;
	}
	if (now - launcher.checked_ms >= AREA_HEARTBEAT_MS)
	{
		launcher.checked_ms = now;
		launcher.heartbeat_checks++;
	}
	if (gpuann_server_timeout == 0 || launcher.hung ||
		launcher.heartbeat_checks <= HEARTBEAT_CHECKS ||
		now - launcher.heartbeat_ms < gpuann_server_timeout)
		return;
	launcher.hung = true;
	ereport(LOG, (errmsg("%s (PID %d) has stood still for %d ms and is ended", SERVER_PROGRAM,
						 (int) launcher.server.pid, (int) (now - launcher.heartbeat_ms))));
	kill(launcher.server.pid, SIGKILL);
}

/* Interval of checking a running server. */
static int
check_interval(void)
{
	if (gpuann_server_timeout == 0)
		return IDLE_POLL_MS;
	return Max(gpuann_server_timeout / (HEARTBEAT_CHECKS + 1), AREA_HEARTBEAT_MS);
}

/* Check the server. Returns the milliseconds until the next check. */
static int
launcher_check_server(void)
{
	int64		now = monotonic_ms();
	int64		started_ms = launcher.server.started_us / 1000;
	int			status;

	if (launcher.server.pid != 0)
	{
		server_relay(&launcher.server);
		if (server_reap(&launcher.server, &status))
			handle_death(status, now - started_ms);
		else if (launcher.kill_at_ms != 0 && now >= launcher.kill_at_ms)
		{
			kill(launcher.server.pid, SIGKILL);
			launcher.kill_at_ms = now + RELOAD_PATIENCE_MS;
		}
		else
			check_heartbeat(now);
	}
	if (launcher.server.pid == 0 && monotonic_ms() >= launcher.start_at_ms)
		start_server();

	if (launcher.server.pid == 0)
		return (int) Max(launcher.start_at_ms - monotonic_ms(), 1);
	if (launcher.kill_at_ms != 0)
		return (int) Max(launcher.kill_at_ms - monotonic_ms(), 1);
	return atomic_load(&gpuann_area->server_state) == SERVER_READY ? check_interval()
																   : STARTING_POLL_MS;
}

/* Whether settings differ from those of the running server. */
static bool
has_other_settings(void)
{
	return gpuann_engine != launcher.engine || gpuann_gpu_memory_limit != launcher.memory_limit ||
		   gpuann_host_rows_limit != launcher.host_rows_limit ||
		   strcmp(gpuann_engine_library, launcher.engine_library) != 0;
}

/*
 * Reload settings: restart the server if its settings have changed, and retry
 * at once if it could not start.
 */
static void
handle_reload(void)
{
	ProcessConfigFile(PGC_SIGHUP);
	if (launcher.server.pid == 0)
	{
		launcher.delay_ms = 0;
		launcher.start_at_ms = 0;
	}
	else if (has_other_settings())
	{
		ereport(LOG, (errmsg("%s is restarted with changed settings", SERVER_PROGRAM)));
		kill(launcher.server.pid, SIGTERM);
		launcher.kill_at_ms = monotonic_ms() + RELOAD_PATIENCE_MS;
	}
}

/* Wait on the latch. */
static void
launcher_wait(int timeout_ms)
{
	int			events = WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH;
	uint32		wait_event = shmem_wait_event(SHMEM_WAIT_LAUNCHER);

	if (launcher.server.pid != 0 && launcher.server.log_fd > 0)
		(void) WaitLatchOrSocket(MyLatch, events | WL_SOCKET_READABLE, launcher.server.log_fd,
								 timeout_ms, wait_event);
	else
		(void) WaitLatch(MyLatch, events, timeout_ms, wait_event);
	ResetLatch(MyLatch);
}

/*
 * Wait forever: without a shared area there is nothing to launch. Exiting would
 * be wrong, because after a crash restart of PostgreSQL there may be an area,
 * and the exited launcher would not be restarted then.
 */
static void
idle_without_area(void)
{
	while (!ShutdownRequestPending)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH, -1,
						 shmem_wait_event(SHMEM_WAIT_LAUNCHER));
		ResetLatch(MyLatch);
	}
	proc_exit(1);
}

void
gpuann_launcher_main(Datum arg)
{
	MemoryContext round_context;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGCHLD, handle_sigchld);
	BackgroundWorkerUnblockSignals();
	if (gpuann_area == NULL)
		idle_without_area();

	before_shmem_exit(launcher_exit, (Datum) 0);
	publish_server_end(SERVER_ABSENT, false); /* clean up after a previous launcher */
	state_restore();
	gpuann_control->launcher_latch = MyLatch;
	round_context =
		AllocSetContextCreate(TopMemoryContext, "gpuann launcher", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(round_context);

	while (!ShutdownRequestPending)
	{
		int			timeout_ms;

		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			handle_reload();
		}
		FAULT_POINT("launcher-round");
		timeout_ms = launcher_check_server();
		timeout_ms = Min(timeout_ms, workers_round());
		if (gpuann_control->high_water > 0 && monotonic_ms() - launcher.saved_ms >= save_interval())
		{
			launcher.saved_ms = monotonic_ms();
			state_save(true);
		}
		timeout_ms =
			Min(timeout_ms, gpuann_control->high_water > 0 ? RUNNING_POLL_MS : IDLE_POLL_MS);
		MemoryContextReset(round_context);
		launcher_wait(timeout_ms);
	}

	/*
	 * not 0: if only the launcher was terminated, the postmaster must restart
	 * it
	 */
	proc_exit(1);
}
