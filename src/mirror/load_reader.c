/*
 * load_reader.c
 *		Background workers that help a mirror's owner to read a large index
 *		while it is loaded.
 *
 * They are started once per load, claim parts of it like the owner, each with
 * its own channel, and exit when none is left. Like a mirror worker they work
 * in slices: short transactions with the index locked conditionally. The owner
 * does not wait for them to start, and the load completes without them; a
 * helper that gets no channel, or starts late, exits. If one exits with a part
 * that it has claimed and not sent, the load fails and is restarted.
 */
#include "base/base.h"

#include "mirror/worker.h"

#include "access/relation.h"
#include "access/xact.h"
#include "client/database_hook.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"

#define READER_BYTES	(32 * 1024 * 1024)	/* of vectors, for each of which another reader is
											 * started */
#define LOCKED_MS		100			/* retry interval while another process has the index locked */

/* Arguments of a reader (bgw_extra). */
typedef struct ReaderOrder
{
	int			entry;
	uint32		generation;
	Oid			database;
} ReaderOrder;

StaticAssertDecl(sizeof(ReaderOrder) <= BGW_EXTRALEN, "a reader's order fits");

/* A reader's own state. */
static MirrorSlice reader = {.channel = -1, .spare = -1, .helps = true};
static MirrorProgress reader_progress;
static bool reader_works = false;	/* this process may have claimed parts */
static ReaderSlot *reader_slot = NULL;

void
load_readers_start(const MirrorSlice *slice)
{
	uint64		bytes = (uint64) slice->progress->load_slots * slice->format->vector_bytes;
	uint64		readers = Min(bytes / READER_BYTES, (uint64) max_parallel_maintenance_workers);
	ReaderOrder order = {.database = slice->key.database,
						 .entry = slice->entry,
						 .generation = slice->generation};
	BackgroundWorker worker = {.bgw_type = "gpuann mirror reader",
							   .bgw_flags =
								   BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
							   .bgw_start_time = BgWorkerStart_ConsistentState,
							   .bgw_restart_time = BGW_NEVER_RESTART,
							   .bgw_library_name = "gpuann",
							   .bgw_function_name = "gpuann_reader_main"};

	/* one of the spare channels is for the owner */
	readers = Min(readers, (uint64) Max(channels_spare() - 1, 0));
	snprintf(worker.bgw_name, BGW_MAXLEN, "gpuann mirror reader for index %u", slice->key.index);
	memcpy(worker.bgw_extra, &order, sizeof(order));
	for (uint64 i = 0; i < readers; i++)
	{
		if (!RegisterDynamicBackgroundWorker(&worker, NULL))
			break;
	}
}

/*
 * before_shmem_exit callback: fail the load, because claimed parts will not be
 * sent.
 */
static void
reader_exit(int code, Datum arg)
{
	LWLockReleaseAll();
	shmem_leave();
	if (!reader_works && reader_progress.part.count == 0)
		return;
	if (reader.reason[0] == '\0')
		strlcpy(reader.reason, "a process that helped to read it has ended",
				sizeof(reader.reason));
	load_share_fail(&reader, SLICE_RELOAD);
}

/*
 * on_shmem_exit callback: free the slot when core does not see this process in
 * the database any more, as worker_gone() does.
 */
static void
reader_gone(int code, Datum arg)
{
	if (reader_slot == NULL)
		return;
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	reader_slot->database = InvalidOid;
	LWLockRelease(gpuann_mirror_lock());
}

/*
 * Claim a reader slot, by which commands that need the database without
 * sessions find this process (database_hook.c). The mirror lock is held. False:
 * none is free.
 */
static bool
claim_reader_slot(Oid database)
{
	for (int i = 0; i < GPUANN_MAX_READERS && reader_slot == NULL; i++)
		if (gpuann_control->readers[i].database == InvalidOid)
			reader_slot = &gpuann_control->readers[i];
	if (reader_slot != NULL)
		*reader_slot = (ReaderSlot) {database, MyLatch};
	return reader_slot != NULL;
}

/*
 * Whether the reader's load is still in progress; initializes the slice's
 * mirror.
 */
static bool
reader_begin(const ReaderOrder *order)
{
	bool		wanted;

	reader.entry = order->entry;
	reader.generation = order->generation;
	reader.track = mirror_track(order->entry);
	reader.progress = &reader_progress;
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	wanted = mirror_is_generation(order->entry, order->generation) &&
			 !database_barred(order->database) && claim_reader_slot(order->database);
	reader.key = reader.track->key;
	reader_progress.load_slots = reader.track->load.slots;
	LWLockRelease(gpuann_mirror_lock());
	return wanted;
}

/* Read and send parts for one slice, in a transaction. */
static SliceEnding
reader_slice(MemoryContext memory)
{
	SliceEnding ending;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	MemoryContextSwitchTo(memory);
	reader.until_us = monotonic_us() + SLICE_US;
	ending = slice_open(&reader);
	if (ending == SLICE_IDLE)
	{
		ending = load_parts(&reader);
		FreeAccessStrategy(reader.strategy);
		relation_close(reader.index, AccessShareLock);
	}
	CommitTransactionCommand();
	MemoryContextReset(memory);
	MemoryContextSwitchTo(TopMemoryContext);
	return ending;
}

/*
 * The same; an ERROR ends this process, and its text becomes the reason of the
 * load's failure.
 */
static SliceEnding
reader_slice_safely(MemoryContext memory)
{
	volatile SliceEnding ending = SLICE_LOST;

	reader_works = true;
	PG_TRY();
	{
		ending = reader_slice(memory);
	}
	PG_CATCH();
	{
		MemoryContext caught = MemoryContextSwitchTo(TopMemoryContext);
		ErrorData  *error = CopyErrorData();

		shmem_copy_text(reader.reason, sizeof(reader.reason), error->message ? error->message : "",
						PG_INT32_MAX);
		LWLockReleaseAll();
		load_share_fail(&reader, slice_was_cancelled(error) ? SLICE_RELOAD : SLICE_REFUSED);
		MemoryContextSwitchTo(caught);
		PG_RE_THROW();
	}
	PG_END_TRY();
	reader_works = false;
	return ending;
}

/* Main loop: help until no part is left. */
static void
reader_help(void)
{
	MemoryContext memory =
		AllocSetContextCreate(TopMemoryContext, "gpuann mirror slice", ALLOCSET_DEFAULT_SIZES);

	while (load_share_await_work(&reader))
	{
		SliceEnding ending;

		CHECK_FOR_INTERRUPTS();
		ending = reader_slice_safely(memory);
		if (ending == SLICE_LATER)
			shmem_sleep(LOCKED_MS, SHMEM_WAIT_WORKER);
		else if (ending != SLICE_IDLE && ending != SLICE_MORE)
		{
			load_share_fail(&reader, ending);
			reader_progress.part.count = 0;
			return;
		}
	}
}

void
gpuann_reader_main(Datum arg)
{
	ReaderOrder order;

	memcpy(&order, MyBgworkerEntry->bgw_extra, sizeof(order));
	if (gpuann_area == NULL || order.entry < 0 || order.entry >= AREA_MIRRORS)
		proc_exit(0);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	on_shmem_exit(reader_gone, (Datum) 0);
	before_shmem_exit(reader_exit, (Datum) 0);
	if (!reader_begin(&order))
		proc_exit(0);
	worker_connect(order.database);
	pgstat_report_appname("gpuann mirror reader");
	reader.channel = channel_claim_spare();
	if (reader.channel >= 0)
		reader_help();
	proc_exit(0);
}
