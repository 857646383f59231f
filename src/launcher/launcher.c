/*
 * launcher.c
 *		The launcher: a background worker that keeps one gpuann-server running
 *		and mirror workers where they are wanted.
 *
 * It has no database and takes no heavyweight lock. When a server dies the
 * launcher reaps it, advances the epoch, and fails what was in flight
 * (protocol.h), so nobody waits for a process that is gone.
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

#define FIRST_DELAY_MS		200 /* before a restart; doubled with every quick death */
#define MOST_DELAY_MS		30000
#define NO_ENGINE_DELAY_MS	60000	/* after an exit that a quick retry cannot cure, and between
									 * looks for a GPU */
#define STEADY_MS			60000	/* who ran so long did not die quickly */
#define RELOAD_PATIENCE_MS	5000	/* from SIGTERM to SIGKILL, when settings have changed */
#define EXIT_PATIENCE_MS	1000	/* the same, when we end */
#define STARTING_POLL_MS	20
#define RUNNING_POLL_MS		1000
#define IDLE_POLL_MS		10000
#define SAVE_MS				60000
#define HEARTBEAT_LOOKS		3	/* that found the server's heartbeat unchanged, before it may count
								 * as standing still */

typedef struct Launcher
{
	ServerProcess server;
	int			delay_ms;		/* of the last restart */
	int64		start_at_ms;	/* when to start the next server */
	int64		kill_at_ms;		/* when to kill one that was asked to end; 0: none was */
	bool		stood_still;	/* and was killed for it */
	bool		no_gpu;			/* auto found no usable GPU when it last looked: everybody has been
								 * told */
	uint32		heartbeat;		/* as last seen, */
	int64		beaten_ms;		/* when it was new, */
	int64		looked_ms;		/* when it was last looked at, */
	int			looks;			/* and how often since it was new, at least a heartbeat apart */
	int64		saved_ms;		/* when counters and resident mirrors were last written */
	int			engine;			/* settings it was started with */
	int			memory_limit;
	int			host_rows_limit;
	char		engine_library[MAXPGPATH];
} Launcher;

static Launcher launcher;

/* A child has ended, perhaps ours. */
static void
handle_sigchld(SIGNAL_ARGS)
{
	int			save_errno = errno;

	SetLatch(MyLatch);
	errno = save_errno;
}

/* Nothing of the server runs any more: let everybody know. */
static void
announce_death(ServerState state, bool crashed)
{
	atomic_store(&gpuann_area->server_state, state);
	atomic_store(&gpuann_area->server_pid, 0);
	atomic_fetch_add(&gpuann_area->epoch, 1);
	atomic_store(&gpuann_area->memory_used, 0);
	shmem_sweep_requests();
	mirrors_sweep(crashed);
}

/* Whatever ends the launcher ends the server. */
static void
launcher_exit(int code, Datum arg)
{
	/* After an ERROR we may hold the lock that we are about to take. */
	LWLockReleaseAll();
	gpuann_control->launcher_latch = NULL;
	server_stop(&launcher.server, EXIT_PATIENCE_MS);
	state_save();
	announce_death(SERVER_ABSENT, false);
	shmem_leave();
}

/* Start a server now. */
static void
start_server(void)
{
	int64		now = monotonic_ms();

	launcher.kill_at_ms = 0;
	launcher.stood_still = false;
	launcher.beaten_ms = now;
	launcher.looks = 0;
	launcher.engine = gpuann_engine;
	launcher.memory_limit = gpuann_gpu_memory_limit;
	launcher.host_rows_limit = gpuann_host_rows_limit;
	strlcpy(launcher.engine_library, gpuann_engine_library, MAXPGPATH);
	launcher.start_at_ms = now + MOST_DELAY_MS;
	atomic_store(&gpuann_area->started_at, (int64) time(NULL));
	launcher.no_gpu = launcher.no_gpu && launcher.engine == GPUANN_ENGINE_AUTO;
	/*
	 * Until another look has found a GPU there is none: scans need not think
	 * that a server is about to come.
	 */
	if (!launcher.no_gpu)
		atomic_store(&gpuann_area->server_state, SERVER_STARTING);
	if (server_start(&launcher.server))
		atomic_store(&gpuann_area->server_pid, (int32) launcher.server.pid);
	else if (!launcher.no_gpu)
		atomic_store(&gpuann_area->server_state, SERVER_ABSENT);
}

/* Say how it ended, for the log and gpuann_server_status. */
static void
report_death(int status, int delay_ms)
{
	char		how[64];

	if (WIFSIGNALED(status))
		snprintf(how, sizeof(how), "was ended by signal %d", WTERMSIG(status));
	else
		snprintf(how, sizeof(how), "ended with status %d", WEXITSTATUS(status));
	if (launcher.stood_still)
		strlcpy(gpuann_area->last_error, "the server stood still and was ended",
				sizeof(gpuann_area->last_error));
	else if (WIFSIGNALED(status) || !launcher.server.said_why)
		snprintf(gpuann_area->last_error, sizeof(gpuann_area->last_error), "the server %s", how);
	ereport(LOG, (errmsg("%s %s; scans are answered from pages until it runs again", SERVER_PROGRAM,
						 how),
				  errdetail("It is started again in %d ms.", delay_ms)));
}

/*
 * Whether it is the server's own fault: SIGKILL and SIGTERM come from outside.
 */
static bool
is_crash(int status)
{
	if (WIFSIGNALED(status))
		return WTERMSIG(status) != SIGKILL && WTERMSIG(status) != SIGTERM;
	return WEXITSTATUS(status) == SERVER_EXIT_FAILED;
}

/*
 * The server has looked for a GPU, and ended without one: it held nothing, and
 * its end is no death.
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
	announce_death(SERVER_NO_GPU, false);
	ereport(
		LOG,
		(errmsg("%s", shmem_last_error()),
		 errdetail(
			 "gpuann indexes are answered from their pages. A GPU is looked for again every %d s.",
			 NO_ENGINE_DELAY_MS / 1000),
		 errhint("gpuann.engine = 'cpu' asks for a server on CPU threads.")));
}

/* The server has ended: plan the next. */
static void
handle_death(int status, int64 ran_ms)
{
	int			code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	bool hopeless = code == SERVER_EXIT_NO_ENGINE || code == SERVER_EXIT_REFUSED || code == 127;

	if (code == SERVER_EXIT_NO_GPU && launcher.kill_at_ms == 0)
	{
		handle_no_gpu();
		return;
	}
	launcher.no_gpu = false;
	announce_death(hopeless ? SERVER_FAILED : SERVER_ABSENT,
				   launcher.kill_at_ms == 0 && is_crash(status));
	atomic_fetch_add(&gpuann_area->restarts, 1);
	if (launcher.kill_at_ms != 0)
		launcher.delay_ms = 0;	/* we wanted it to end */
	else if (hopeless)
		launcher.delay_ms = NO_ENGINE_DELAY_MS;
	else if (ran_ms >= STEADY_MS || launcher.delay_ms == 0)
		launcher.delay_ms = FIRST_DELAY_MS;
	else
		launcher.delay_ms = Min(launcher.delay_ms * 2, MOST_DELAY_MS);
	if (launcher.kill_at_ms == 0)
		report_death(status, launcher.delay_ms);
	launcher.kill_at_ms = 0;
	launcher.start_at_ms = monotonic_ms() + launcher.delay_ms;
}

/*
 * Kill a server that stands still: stopped, or hanging in the kernel; whoever
 * waits for it goes on at once. Looks are counted too, so that we do not take
 * our own sleep, or that of the machine, for its.
 */
static void
watch_heartbeat(int64 now)
{
	uint32		heartbeat = atomic_load(&gpuann_area->heartbeat);

	if (heartbeat != launcher.heartbeat)
	{
		launcher.heartbeat = heartbeat;
		launcher.beaten_ms = now;
		launcher.looks = 0;
		return;
	}
	if (now - launcher.looked_ms >= AREA_HEARTBEAT_MS)
	{
		launcher.looked_ms = now;
		launcher.looks++;
	}
	if (gpuann_server_timeout == 0 || launcher.stood_still || launcher.looks <= HEARTBEAT_LOOKS ||
		now - launcher.beaten_ms < gpuann_server_timeout)
		return;
	launcher.stood_still = true;
	ereport(LOG, (errmsg("%s (PID %d) has stood still for %d ms and is ended", SERVER_PROGRAM,
						 (int) launcher.server.pid, (int) (now - launcher.beaten_ms))));
	kill(launcher.server.pid, SIGKILL);
}

/* How often a running server is looked at. */
static int
watch_interval(void)
{
	if (gpuann_server_timeout == 0)
		return IDLE_POLL_MS;
	return Max(gpuann_server_timeout / (HEARTBEAT_LOOKS + 1), AREA_HEARTBEAT_MS);
}

/* Look after the server; returns the milliseconds after which to look again. */
static int
server_round(void)
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
			watch_heartbeat(now);
	}
	if (launcher.server.pid == 0 && monotonic_ms() >= launcher.start_at_ms)
		start_server();

	if (launcher.server.pid == 0)
		return (int) Max(launcher.start_at_ms - monotonic_ms(), 1);
	if (launcher.kill_at_ms != 0)
		return (int) Max(launcher.kill_at_ms - monotonic_ms(), 1);
	return atomic_load(&gpuann_area->server_state) == SERVER_READY ? watch_interval()
																   : STARTING_POLL_MS;
}

/* Whether the server was started with other settings than those of now. */
static bool
has_other_settings(void)
{
	return gpuann_engine != launcher.engine || gpuann_gpu_memory_limit != launcher.memory_limit ||
		   gpuann_host_rows_limit != launcher.host_rows_limit ||
		   strcmp(gpuann_engine_library, launcher.engine_library) != 0;
}

/*
 * Settings were reloaded: a server with others must go, and one that could not
 * start may try again.
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

/* Sleep until something happens. */
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
 * Without an area there is nothing to launch. But if PostgreSQL restarts after
 * a crash there may be one, and a launcher that had ended would not be started
 * again by then.
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
	announce_death(SERVER_ABSENT, false);	/* what a launcher before this one may have left */
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
		timeout_ms = server_round();
		timeout_ms = Min(timeout_ms, workers_round());
		if (gpuann_control->high_water > 0 && monotonic_ms() - launcher.saved_ms >= SAVE_MS)
		{
			launcher.saved_ms = monotonic_ms();
			state_save();
		}
		timeout_ms =
			Min(timeout_ms, gpuann_control->high_water > 0 ? RUNNING_POLL_MS : IDLE_POLL_MS);
		MemoryContextReset(round_context);
		launcher_wait(timeout_ms);
	}

	/* Not 0: if only we were ended, the postmaster is to start us again. */
	proc_exit(1);
}
