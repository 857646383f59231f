/*
 * workers.c
 *		Launcher: decide which databases need a mirror worker, and start it.
 *
 * At most gpuann.max_workers run. If more databases need one, those waiting
 * longest come first, and databases_waiting tells running workers to leave
 * after their turn (worker.c). A database gets at most one new worker per
 * second, which limits the cost if its workers exit at once for some reason.
 */
#include "base/base.h"

#include "client/shmem.h"
#include "client/database_hook.h"
#include "launcher/launcher.h"
#include "client/mirror_table.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/procarray.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#define REMEMBERED_DATABASES (2 * AREA_MIRRORS)	/* above this the hash table is cleared */
#define POLL_MS				1000
#define START_INTERVAL_MS	1000	/* minimum interval between starts of workers in one database */
#define NO_SLOT_DELAY_MS	10000	/* after max_worker_processes was reached */
#define EXISTENCE_CHECK_MS	(30 * 60 * 1000)	/* at this interval a worker checks whether a
												 * mirror's index still exists */
#define LOST_MS				60000	/* a worker that has not started after this time never will */

/* What the launcher knows about a database. */
typedef struct DatabaseRecord
{
	Oid			database;		/* hash key */
	uint32		round;			/* last round in which it needed a worker */
	int64		started_ms;		/* when a worker was last started; 0: never */
} DatabaseRecord;

static HTAB *database_table = NULL;
static uint32 this_round = 0;
static BackgroundWorkerHandle *handles[GPUANN_MAX_WORKERS];
static int64 no_slot_until_ms = 0;

/* Find or create the record of a database. */
static DatabaseRecord *
database_record(Oid database)
{
	DatabaseRecord *record;
	bool		found;

	record = hash_search(database_table, &database, HASH_ENTER, &found);
	if (!found)
	{
		record->round = 0;
		record->started_ms = 0;
	}
	return record;
}

/* Begin a round: create the hash table, or clear it if it is too large. */
static void
workers_begin_round(void)
{
	if (database_table != NULL && hash_get_num_entries(database_table) > REMEMBERED_DATABASES)
	{
		hash_destroy(database_table);
		database_table = NULL;
	}
	if (database_table == NULL)
	{
		HASHCTL		info = {
			.keysize = sizeof(Oid), .entrysize = sizeof(DatabaseRecord), .hcxt = TopMemoryContext};

		database_table = hash_create("gpuann databases served", 64, &info,
									 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	/* 0 is for new records */
	if (++this_round == 0)
		this_round = 1;
}

/*
 * Free the slots of workers that ended without doing so themselves. Returns how
 * many are running.
 */
static int
count_workers(int64 now)
{
	int			running = 0;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	for (int i = 0; i < GPUANN_MAX_WORKERS; i++)
	{
		WorkerSlot *slot = &gpuann_control->workers[i];
		pid_t		pid;
		bool		gone = false;

		if (!slot->in_use)
			continue;
		if (handles[i] != NULL)
			gone = GetBackgroundWorkerPid(handles[i], &pid) == BGWH_STOPPED;
		else					/* started by a previous launcher, so there is no handle */
			gone = slot->pid != 0 ? BackendPidGetProc(slot->pid) == NULL
								  : now - slot->started_ms > LOST_MS;
		if (gone)
			memset(slot, 0, sizeof(*slot));
		else
			running++;
	}
	LWLockRelease(gpuann_mirror_lock());
	return running;
}

/* Whether an entry needs a worker and has none. */
static bool
entry_needs_worker(int entry, int64 now, bool standby)
{
	MirrorTrack *track = mirror_track(entry);
	AreaMirror *mirror = mirror_area(entry);
	uint32		state = atomic_load(&mirror->state);

	if (!track->in_use || track->worker >= 0 || track->builder != 0)
		return false;
	/* without a GPU workers only link */
	if (shmem_no_gpu())
		return !standby && mirror_is_due(entry, now) &&
			   (atomic_load(&mirror->changed) != 0 || now - track->looked_ms > EXISTENCE_CHECK_MS);
	if (state == MIRROR_READY)
		return atomic_load(&mirror->changed) != 0 || now - track->looked_ms > EXISTENCE_CHECK_MS ||
			(standby && now - atomic_load(&mirror->last_used_ms) < STANDBY_USED_MS);
	return state == MIRROR_LOADING || mirror_is_due(entry, now);
}

/* Wake the worker of a database. Returns false if it has none. */
static bool
wake_worker_of(Oid database)
{
	for (int i = 0; i < GPUANN_MAX_WORKERS; i++)
	{
		WorkerSlot *slot = &gpuann_control->workers[i];

		if (slot->in_use && slot->database == database)
		{
			if (slot->latch != NULL)
				SetLatch(slot->latch);
			return true;
		}
	}
	return false;
}

/*
 * Find databases that need a worker and have none. There must be room for as
 * many as the table has entries.
 */
static int
databases_in_need(DatabaseRecord **databases, int64 now)
{
	bool		standby = RecoveryInProgress();
	int			count = 0;

	LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
	for (uint32 i = 0; i < gpuann_control->high_water; i++)
	{
		Oid			database = mirror_track((int) i)->key.database;
		DatabaseRecord *record;

		if (!entry_needs_worker((int) i, now, standby) || database_barred(database))
			continue;
		record = database_record(database);
		if (record->round == this_round)
			continue;
		record->round = this_round;
		if (!wake_worker_of(database))
			databases[count++] = record;
	}
	LWLockRelease(gpuann_mirror_lock());
	return count;
}

/*
 * Take a worker slot for a database. Returns -1 if there is none or the
 * database has just been barred.
 */
static int
claim_worker_slot(Oid database, int64 now)
{
	int			taken = -1;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	for (int i = 0; i < GPUANN_MAX_WORKERS && taken < 0 && !database_barred(database); i++)
	{
		WorkerSlot *slot = &gpuann_control->workers[i];

		if (slot->in_use)
			continue;
		memset(slot, 0, sizeof(*slot));
		slot->in_use = true;
		slot->database = database;
		slot->started_ms = now;
		taken = i;
	}
	LWLockRelease(gpuann_mirror_lock());
	return taken;
}

/* Start a worker in a database. */
static bool
start_worker(Oid database, int64 now)
{
	int			slot = claim_worker_slot(database, now);
	BackgroundWorker worker = {.bgw_type = "gpuann mirror worker",
							   .bgw_flags =
								   BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
							   .bgw_start_time = BgWorkerStart_ConsistentState,
							   .bgw_restart_time = BGW_NEVER_RESTART,
							   .bgw_library_name = "gpuann",
							   .bgw_function_name = "gpuann_worker_main",
							   .bgw_main_arg = Int32GetDatum(slot)};
	MemoryContext before;
	bool		registered;

	if (slot < 0)
		return false;
	snprintf(worker.bgw_name, BGW_MAXLEN, "gpuann mirror worker for database %u", database);
	if (handles[slot] != NULL)
		pfree(handles[slot]);
	handles[slot] = NULL;
	before = MemoryContextSwitchTo(TopMemoryContext);
	registered = RegisterDynamicBackgroundWorker(&worker, &handles[slot]);
	MemoryContextSwitchTo(before);
	if (registered)
		return true;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	memset(&gpuann_control->workers[slot], 0, sizeof(WorkerSlot));
	LWLockRelease(gpuann_mirror_lock());
	no_slot_until_ms = now + NO_SLOT_DELAY_MS;
	ereport(LOG,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("no background worker is free to serve gpuann mirrors"),
			 errhint("Increase max_worker_processes.")));
	return false;
}

int
workers_round(void)
{
	static DatabaseRecord *databases[AREA_MIRRORS];
	int64		now = monotonic_ms();
	int			again_ms = POLL_MS;
	uint32		epoch;
	int			running;
	int			waiting;

	if ((!shmem_server_ready(&epoch) && !shmem_no_gpu()) || now < no_slot_until_ms)
		return POLL_MS;
	workers_begin_round();
	running = count_workers(now);
	waiting = databases_in_need(databases, now);
	while (waiting > 0 && running < gpuann_max_workers)
	{
		int			next = 0;
		int64		since;

		for (int i = 1; i < waiting; i++)
		{
			if (databases[i]->started_ms < databases[next]->started_ms)
				next = i;
		}
		since = now - databases[next]->started_ms;
		if (databases[next]->started_ms != 0 && since < START_INTERVAL_MS)
		{
			again_ms = (int) (START_INTERVAL_MS - since);
			break;
		}
		if (start_worker(databases[next]->database, now))
		{
			databases[next]->started_ms = now;
			running++;
		}
		else if (now < no_slot_until_ms)
			break;
		databases[next] = databases[--waiting];
	}
	atomic_store(&gpuann_control->databases_waiting, (uint32) waiting);
	return again_ms;
}
