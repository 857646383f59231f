/*
 * shmem.c
 *		The shared area: settings of the server, making and mapping the area,
 *		waiting on its words.
 *
 * The postmaster makes the area as an anonymous file in memory, with every page
 * allocated (a sparse one would mean SIGBUS when memory is short) and its size
 * sealed, and maps it; children inherit the mapping, so it has one address
 * everywhere. A crash restart makes a new one. Without enough memory there is
 * no area, and every scan takes the page path.
 */
#include "base/handler.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "client/shmem.h"
#include "client/database_hook.h"
#include "client/mirror_table.h"
#include "server/spin_wait.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/pmsignal.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

#define AREA_SPARE_CHANNELS	4	/* for searches, beside two of each mirror worker */

StaticAssertDecl(AREA_WAIT_MS * 2 <= 100, "a cancel must be heeded within 100 ms");

AreaHeader *gpuann_area = NULL;
AreaHeader	gpuann_layout;
int			gpuann_area_fd = -1;

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
static LWLock *mirror_lock = NULL;

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
	RequestNamedLWLockTranche("gpuann", 1);
}

/* Say why there is no area; everything works without it, from pages. */
static void
area_refuse(const char *step, Size bytes)
{
	int			error = errno;

	if (gpuann_area_fd >= 0)
		close(gpuann_area_fd);
	gpuann_area_fd = -1;
	errno = error;
	ereport(
		WARNING,
		(errcode(error == ENOSPC || error == ENOMEM ? ERRCODE_OUT_OF_MEMORY : ERRCODE_SYSTEM_ERROR),
		 errmsg("gpuann runs without its server: could not %s a shared area of %zu MB: %m", step,
				bytes >> 20),
		 errdetail("Scans are answered from the pages of their indexes."),
		 errhint(
			 "The area has about 80 kB for each of max_connections, and 8 MB for each of gpuann.max_workers.")));
}

/*
 * Allocate every page of the file; signals are held, or a frequent one would
 * restart this forever.
 */
static int
allocate_all(int fd, Size bytes)
{
	sigset_t	all;
	sigset_t	before;
	int			result;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	do
		result = posix_fallocate(fd, 0, (off_t) bytes);
	while (result == EINTR);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return result;
}

/* Make the area, map it, and write its header. */
static void
area_create(void)
{
	AreaHeader	layout;
	void	   *address;

	memset(&layout, 0, sizeof(layout));
	area_layout(&layout, (uint32) MaxBackends,
				(uint32) (2 * gpuann_max_workers + AREA_SPARE_CHANNELS));

	gpuann_area_fd = memfd_create("gpuann", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (gpuann_area_fd < 0)
	{
		area_refuse("create", layout.total_bytes);
		return;
	}
	errno = allocate_all(gpuann_area_fd, layout.total_bytes);
	if (errno != 0)
	{
		area_refuse("allocate", layout.total_bytes);
		return;
	}
	if (fcntl(gpuann_area_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
	{
		area_refuse("seal", layout.total_bytes);
		return;
	}
	address = mmap(NULL, layout.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, gpuann_area_fd, 0);
	if (address == MAP_FAILED)
	{
		area_refuse("map", layout.total_bytes);
		return;
	}
	gpuann_layout = layout;
	gpuann_area = (AreaHeader *) address;
	memcpy(gpuann_area, &layout, sizeof(layout));
	atomic_store(&gpuann_area->epoch, 1);
}

/*
 * At start, and again after a crash restart: forget the old area, whose server
 * is dying with its launcher, and make one.
 */
static void
shmem_startup(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	if (gpuann_area != NULL)
		munmap(gpuann_area, gpuann_layout.total_bytes);
	if (gpuann_area_fd >= 0)
		close(gpuann_area_fd);
	gpuann_area = NULL;
	gpuann_area_fd = -1;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	mirrors_shmem_init();
	LWLockRelease(AddinShmemInitLock);
	mirror_lock = &GetNamedLWLockTranche("gpuann")->lock;

	/* A single-user server has nobody to start the server. */
	if (IsPostmasterEnvironment)
		area_create();
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

LWLock *
gpuann_mirror_lock(void)
{
	return mirror_lock;
}

/*
 * The wait event of a kind of wait; made on first use where events have names.
 */
uint32
shmem_wait_event(ShmemWaitEvent event)
{
#if PG_VERSION_NUM >= 170000
	static const char *const names[SHMEM_WAIT_EVENTS] = {"GpuannRequest",  "GpuannChannel",
														 "GpuannLauncher", "GpuannWorker",
														 "GpuannLeave",	   "GpuannMirror"};
	static uint32 events[SHMEM_WAIT_EVENTS];

	if (events[event] == 0)
		events[event] = WaitEventExtensionNew(names[event]);
	return events[event];
#else
	return PG_WAIT_EXTENSION;
#endif
}

int
shmem_my_slot(void)
{
	int			slot;

	if (gpuann_area == NULL || MyProc == NULL)
		return -1;
#if PG_VERSION_NUM >= 170000
	slot = MyProcNumber;
#else
	slot = MyProc->pgprocno;
#endif
	return slot >= 0 && slot < (int) gpuann_layout.slots ? slot : -1;
}

bool
shmem_server_ready(uint32 *epoch)
{
	/*
	 * The epoch first: if the server dies in between, what is posted under this
	 * epoch is found out.
	 */
	*epoch = atomic_load(&gpuann_area->epoch);
	return atomic_load(&gpuann_area->server_state) == SERVER_READY;
}

bool
shmem_no_gpu(void)
{
	return atomic_load(&gpuann_area->server_state) == SERVER_NO_GPU;
}

char *
shmem_last_error(void)
{
	char	   *text = palloc(sizeof(gpuann_area->last_error));

	shmem_copy_text(text, sizeof(gpuann_area->last_error), gpuann_area->last_error,
					sizeof(gpuann_area->last_error));
	return text;
}

int64
monotonic_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void
shmem_copy_text(char *to, Size size, const char *from, Size from_size)
{
	Size		i;

	for (i = 0; i + 1 < size && i < from_size; i++)
	{
		char		c = ((const volatile char *) from)[i];

		if (c == '\0')
			break;
		to[i] = c >= ' ' && c <= '~' ? c : '?';
	}
	to[i] = '\0';
}

bool
shmem_wait(_Atomic uint32_t *word, uint32 value, int64 deadline_us, uint32 wait_event,
		   _Atomic uint32_t *asleep)
{
	static WordWatch watches[2];	/* answers to single requests are nearer than those of
									 * channels */
	bool		differs = word_watch(&watches[asleep == NULL], word, value);

	if (differs)
		return true;
	if (asleep != NULL)
		atomic_store(asleep, 1);
	pgstat_report_wait_start(wait_event);
	while (!(differs = atomic_load(word) != value))
	{
		int64		left =
			deadline_us == NO_DEADLINE ? AREA_WAIT_MS * 1000 : deadline_us - monotonic_us();

		if (left <= 0)
			break;
		CHECK_FOR_INTERRUPTS();
		if (!PostmasterIsAlive())
			proc_exit(1);
		area_futex_wait(word, value, (int) Min(AREA_WAIT_MS, (left + 999) / 1000));
	}
	pgstat_report_wait_end();
	return differs;
}
