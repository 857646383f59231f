/*
 * shmem.c
 *		The shared area: creating and mapping it, and futex waits on its words.
 *
 * The postmaster creates the area as a memfd, with all pages allocated (access
 * to an unallocated page would be SIGBUS when memory is short) and its size
 * sealed, and maps it. Children inherit the mapping, so it has the same address
 * in all processes. A crash restart creates a new one. Without enough memory
 * there is no area, and every scan takes the page path.
 */
#include "base/base.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "base/faults.h"
#include "client/shmem.h"
#include "server/spin_wait.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

StaticAssertDecl(AREA_WAIT_MS * 2 <= 100, "a cancel must be heeded within 100 ms");

AreaHeader *gpuann_area = NULL;
AreaHeader	gpuann_layout;
int			gpuann_area_fd = -1;

/* Log why there is no area. Without it every scan takes the page path. */
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
 * Allocate all pages of the file. Signals are blocked, because a frequent one
 * would restart the call forever.
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

/* Create the area, map it, and write its header. */
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

void
shmem_make(void)
{
	if (gpuann_area != NULL)
		munmap(gpuann_area, gpuann_layout.total_bytes);
	if (gpuann_area_fd >= 0)
		close(gpuann_area_fd);
	gpuann_area = NULL;
	gpuann_area_fd = -1;

	/* in single-user mode there is no launcher */
	if (IsPostmasterEnvironment)
		area_create();
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

void
shmem_sleep(int ms, ShmemWaitEvent event)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
					 shmem_wait_event(event));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
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
	 * Read the epoch before the state. If the server dies in between, the epoch
	 * has changed when the caller checks it again after posting, and the
	 * request is withdrawn.
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
	static WordWatch watches[2];	/* spinning succeeds more often for single requests than for
									 * channels */
	WordWatch  *watch = &watches[asleep == NULL];
	uint32		asking = atomic_load_explicit(&gpuann_area->asking, memory_order_relaxed);
	bool		differs = word_watch(watch, word, value, asking);

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
	if (differs)
		word_watch_ended(watch);
	return differs;
}
