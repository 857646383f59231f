/*
 * settings.c
 *		Settings of the server. Those that users need not tune are developer
 *		settings, as in options.c: GUC_NOT_IN_SAMPLE, in a separate table of
 *		docs/reference.md.
 */
#include "base/base.h"

#include "client/mirror_table.h"

#include "miscadmin.h"
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

void
server_settings_define(void)
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
		"A developer setting: a server that was stopped, not one that is busy, stands still. Zero lets it.",
		&gpuann_server_timeout, 10000, 0, INT_MAX / 2, PGC_SIGHUP, GUC_UNIT_MS | GUC_NOT_IN_SAMPLE,
		NULL, NULL, NULL);
	DefineCustomEnumVariable(
		"gpuann.fallback", "Sets what happens when the server cannot answer.",
		"The scan is answered from the index's pages: silently, with a notice, or not at all but with an error.",
		&gpuann_fallback, GPUANN_FALLBACK_ON, fallback_options, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable(
		"gpuann.engine_library", "Sets the file that the engine cuda is loaded from.",
		"A developer setting: empty is " SERVER_CUDA_LIBRARY " beside the extension's own library.",
		&gpuann_engine_library, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY | GUC_NOT_IN_SAMPLE, NULL, NULL,
		NULL);
	DefineCustomIntVariable(
		"gpuann.max_workers", "Sets how many mirror workers may run at once.",
		"Each serves one database at a time and needs one of max_worker_processes.",
		&gpuann_max_workers, 2, 0, GPUANN_MAX_WORKERS, at_start, 0, NULL, NULL, NULL);
}
