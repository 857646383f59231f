/*
 * startup.c
 *		What _PG_init declares and asks for: settings of the server, shared
 *		memory, hooks, the launcher.
 */
#include "base/handler.h"

#include "client/database_hook.h"
#include "client/mirror_table.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/guc.h"

int			gpuann_engine = GPUANN_ENGINE_AUTO;
int			gpuann_gpu_memory_limit = 0;
int			gpuann_database_memory_limit = 0;
int			gpuann_host_rows_limit = 0;
int			gpuann_request_timeout = 5000;
int			gpuann_server_timeout = 10000;
char	   *gpuann_engine_library = NULL;
int			gpuann_fallback = GPUANN_FALLBACK_ON;
int			gpuann_max_workers = 2;

static const struct config_enum_entry engine_options[] = {
	{"auto", GPUANN_ENGINE_AUTO, false},
	{"cuda", GPUANN_ENGINE_CUDA, false},
	{"cpu", GPUANN_ENGINE_CPU, false},
	{NULL, 0, false}
};

static const struct config_enum_entry fallback_options[] = {
	{"on", GPUANN_FALLBACK_ON, false},
	{"notice", GPUANN_FALLBACK_NOTICE, false},
	{"error", GPUANN_FALLBACK_ERROR, false},
	{NULL, 0, false}
};

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

/* Declare the settings of the server. */
static void
define_server_settings(void)
{
	/* A setting that needs a restart can only be declared while preloading. */
	GucContext	at_start =
		process_shared_preload_libraries_in_progress ? PGC_POSTMASTER : PGC_SIGHUP;

	DefineCustomEnumVariable(
		"gpuann.engine", "Sets which engine the server uses.",
		"auto is cuda where a usable GPU is found; elsewhere no server runs, and pages answer.",
		&gpuann_engine, GPUANN_ENGINE_AUTO, engine_options, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"gpuann.gpu_memory_limit", "Sets how much memory the mirrors of all indexes may use.",
		"Zero is 80 % of the device, or a quarter of the main memory for the CPU engine.",
		&gpuann_gpu_memory_limit, 0, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"gpuann.database_memory_limit",
		"Sets how much memory the mirrors of this database may use.",
		"To be set with ALTER DATABASE; zero is no limit but gpuann.gpu_memory_limit.",
		&gpuann_database_memory_limit, 0, 0, INT_MAX, PGC_SUSET, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"gpuann.host_rows_limit",
		"Sets how much main memory may hold vectors of mirrors that do not fit on the GPU.",
		"At most a quarter of the main memory is used. Zero is none: an index that does not fit is answered from its pages.",
		&gpuann_host_rows_limit, 0, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("gpuann.request_timeout", "Sets how long a scan waits for the server.",
							"After this time the scan is answered from the index's pages.",
							&gpuann_request_timeout, 5000, 1, INT_MAX, PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable(
		"gpuann.server_timeout", "Sets how long the server may stand still before it is replaced.",
		"A server that was stopped, not one that is busy, stands still. Zero lets it.",
		&gpuann_server_timeout, 10000, 0, INT_MAX / 2, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomEnumVariable(
		"gpuann.fallback", "Sets what happens when the server cannot answer.",
		"The scan is answered from the index's pages: silently, with a notice, or not at all but with an error.",
		&gpuann_fallback, GPUANN_FALLBACK_ON, fallback_options, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable(
		"gpuann.engine_library", "Sets the file that the engine cuda is loaded from.",
		"Empty is " SERVER_CUDA_LIBRARY " beside the extension's own library.",
		&gpuann_engine_library, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"gpuann.max_workers", "Sets how many mirror workers may run at once.",
		"Each serves one database at a time and needs one of max_worker_processes.",
		&gpuann_max_workers, 2, 0, GPUANN_MAX_WORKERS, at_start, 0, NULL, NULL, NULL);
}

/* Reserve what the area needs in PostgreSQL's own shared memory. */
static void
shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(mirrors_shmem_size());
	RequestNamedLWLockTranche(MIRROR_LOCK_TRANCHE, 1);
}

/* At start, and again after a crash restart. */
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
 * Ask for the launcher; it starts before recovery, so that the server is there
 * when the first query is.
 */
static void
register_launcher(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = 5;
	snprintf(worker.bgw_library_name, BGW_MAXLEN, "gpuann");
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "gpuann_launcher_main");
	snprintf(worker.bgw_name, BGW_MAXLEN, "gpuann launcher");
	snprintf(worker.bgw_type, BGW_MAXLEN, "gpuann launcher");
	RegisterBackgroundWorker(&worker);
}

/*
 * Called by _PG_init: settings always; hooks and launcher only when preloaded.
 */
void
gpuann_shmem_init(void)
{
	define_server_settings();
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
