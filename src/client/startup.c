/*
 * startup.c
 *		Initialization for _PG_init: shared memory, hooks, the launcher.
 */
#include "base/handler.h"

#include "client/database_hook.h"
#include "client/mirror_table.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

/* shmem_request_hook: reserve PostgreSQL shared memory and locks. */
static void
shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(mirrors_shmem_size());
	RequestNamedLWLockTranche(MIRROR_LOCK_TRANCHE, 1);
}

/* shmem_startup_hook: called at start, and again after a crash restart. */
static void
shmem_startup(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	mirrors_shmem_init();
	LWLockRelease(AddinShmemInitLock);
	shmem_make();
}

/*
 * Register the launcher. It starts before recovery, so that the server is ready
 * for the first query.
 */
static void
register_launcher(void)
{
	BackgroundWorker worker = {.bgw_name = "gpuann launcher",
							   .bgw_type = "gpuann launcher",
							   .bgw_flags = BGWORKER_SHMEM_ACCESS,
							   .bgw_start_time = BgWorkerStart_PostmasterStart,
							   .bgw_restart_time = 5,
							   .bgw_library_name = "gpuann",
							   .bgw_function_name = "gpuann_launcher_main"};

	RegisterBackgroundWorker(&worker);
}

/*
 * Called by _PG_init: settings always; hooks and launcher only when preloaded.
 */
void
gpuann_shmem_init(void)
{
	server_settings_define();
	if (!process_shared_preload_libraries_in_progress)
		return;

	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = shmem_startup;
	database_hook_init();
	drop_hook_init();
	register_launcher();
}
