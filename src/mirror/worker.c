/*
 * worker.c
 *		The mirror worker: serves the mirrors of one database, slice by slice,
 *		and leaves when it is not needed.
 *
 * It goes round the mirrors of its database. On the primary its latch is set by
 * whoever changes pages, on a standby it polls. An ERROR costs the mirror it
 * came from, which is refused for a while, never the worker; SIGTERM ends the
 * worker and the launcher starts another where one is needed.
 */
#include "base/base.h"

#include "client/shmem.h"
#include "base/faults.h"
#include "client/mirror_table.h"
#include "mirror/worker.h"

#include "access/relation.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#define LOCKED_MS		100		/* when somebody else has locked the index */
#define LINK_POLL_MS	1		/* while the engine links, for other mirrors */
#define STANDBY_POLL_MS 50
#define REST_MS			1000
#define CROWD_PACE		1000	/* rows per second, of which each would be sent alone: */
#define CROWD_MS		1		/* they are looked for so often only */
#define QUICK_TRIES		3		/* failures of a mirror, since it or the server last worked, before
								 * it is refused */
#define NO_SERVER_MS	100
#define INVALIDATION_MS 10000	/* at least so often, catalog changes are taken note of: files of
								 * dropped relations are closed */

/*
 * When to leave: others wait and we had our time or have had nothing to do, or
 * nothing was to do for long.
 */
#define TURN_MS			60000
#define IDLE_TURN_MS	200
#define IDLE_MS			300000
#define EMPTY_MS		5000	/* where there is no mirror */

/*
 * To connect takes a lock on the database, which an ALTER DATABASE may hold
 * until it commits. A worker waits so long for it: other databases may need
 * the worker's slot.
 */
#define CONNECT_LOCK_MS	"5000"

typedef struct Worker
{
	int			number;			/* of its slot */
	WorkerSlot *slot;
	int			channel;			/* -1: none */
	uint32		table_version;	/* that the list is of */
	int			entries[AREA_MIRRORS];
	int			count;
	int64		started_ms;
	int64		busy_ms;		/* when there last was something to do */
	bool		idle;			/* it leaves because there is no work */
	int			current;		/* the entry a slice is at work on, or -1 */
	int64		invalidated_ms;
	MemoryContext memory;		/* reset with each slice */
} Worker;

static Worker me;

/*
 * Whether our channel holds a job that nobody waits for any more: its mirror is
 * not what its progress says.
 */
static bool
channel_in_flight(void)
{
	return me.channel >= 0 &&
		   request_state(atomic_load(&shared_channel((uint32) me.channel)->state)) != REQUEST_FREE;
}

/*
 * Give up the mirrors of this worker. A database that could not be connected to
 * keeps its indexes waiting for a while.
 */
static void
release_entries(bool refuse)
{
	for (uint32 i = 0; i < gpuann_control->high_water; i++)
	{
		MirrorTrack *track = mirror_track((int) i);
		bool		ours;

		LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
		ours = track->in_use && track->key.database == me.slot->database && track->builder == 0 &&
			atomic_load(&mirror_area((int) i)->state) != MIRROR_STATISTICS;
		if (track->in_use && track->worker == me.number)
		{
			/*
			 * A worker that was asked to leave may leave work undone: the
			 * launcher starts another.
			 */
			if (!me.idle)
				atomic_store(&mirror_area((int) i)->changed, 1);
			track->worker = -1;
			atomic_store(&mirror_area((int) i)->worker, 0);
		}
		if (ours && refuse)
			mirror_refuse((int) i, "no mirror worker could connect to the database");
		LWLockRelease(gpuann_mirror_lock());
	}
}

/* Give everything back; runs on SIGTERM and on FATAL errors too. */
static void
worker_exit(int code, Datum arg)
{
	/*
	 * An ERROR between slices comes here with what it held: we want some of it
	 * ourselves.
	 */
	LWLockReleaseAll();
	link_abandon();
	if (me.current >= 0 && channel_in_flight())
	{
		LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
		if (mirror_track(me.current)->worker == me.number && progress_known(me.current) != NULL)
			(void) mirror_invalidate(me.current, MIRROR_WANTED);
		LWLockRelease(gpuann_mirror_lock());
	}
	else if (me.current >= 0)
		(void) progress_publish(me.current);
	shmem_leave();
	release_entries(!me.slot->connected && !me.slot->leave);
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	memset(me.slot, 0, sizeof(*me.slot));
	LWLockRelease(gpuann_mirror_lock());
	launcher_wake();
}

/*
 * Claim the mirrors of this database that came since the last look at the
 * table.
 */
static void
refresh_entries(void)
{
	uint32		version = atomic_load(&gpuann_control->table_version);

	if (version == me.table_version)
		return;
	me.count = 0;
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	FAULT_POINT("worker-claim");
	for (uint32 i = 0; i < gpuann_control->high_water; i++)
	{
		MirrorTrack *track = mirror_track((int) i);

		if (!track->in_use || track->key.database != MyDatabaseId || track->builder != 0 ||
			atomic_load(&mirror_area((int) i)->state) == MIRROR_STATISTICS)
			continue;
		track->worker = me.number;
		atomic_store(&mirror_area((int) i)->worker, MyProcPid);
		progress_adopt((int) i);
		me.entries[me.count++] = (int) i;
	}
	LWLockRelease(gpuann_mirror_lock());
	me.table_version = version;
}

/*
 * Open a mirror's index if nobody holds it exclusively. SLICE_IDLE: it is open.
 */
static SliceEnding
open_index(MirrorSlice *slice)
{
	MirrorKey	key;
	Oid			oid = slice->key.index;

	if (!ConditionalLockRelationOid(oid, AccessShareLock))
		return SLICE_LATER;
	slice->index = try_relation_open(oid, NoLock);
	if (slice->index == NULL)
	{
		UnlockRelationOid(oid, AccessShareLock);
		return SLICE_GONE;
	}
	mirror_key(slice->index, 0, &key);
	if (!is_gpuann_index(slice->index) || key.database != slice->key.database)
	{
		relation_close(slice->index, AccessShareLock);
		return SLICE_GONE;
	}
	/*
	 * With another file it is the same index: the entry that it gets inherits
	 * the counters.
	 */
	if (key.tablespace != slice->key.tablespace || key.relfile != slice->key.relfile)
	{
		relation_close(slice->index, AccessShareLock);
		return SLICE_UNWANTED;
	}
	slice->format = index_format(slice->index);
	slice->blocks = RelationGetNumberOfBlocks(slice->index);
	slice->least_bytes =
		mirror_least_bytes(slice->format, Max(slice->progress->load_slots, slice->progress->rows));
	slice->strategy = GetAccessStrategy(BAS_BULKREAD);
	return SLICE_IDLE;
}

/*
 * Whether an index that is not valid is on its way to be: its table is locked
 * as for CREATE INDEX CONCURRENTLY. What a failed one left is of no use to
 * anybody. This is seen from the locks that are held: one of our own, tried for
 * a moment, would have a user's statement wait or fail.
 */
static bool
becomes_valid(Relation index)
{
	Oid			table = index->rd_index->indrelid;
	LOCKMASK	conflicting = 0;
	LockData   *locks;
	LOCKTAG		tag;
	int			holders;
	bool		held = false;

	for (LOCKMODE mode = ShareUpdateExclusiveLock; mode <= AccessExclusiveLock; mode++)
		conflicting |= LOCKBIT_ON(mode);
	SET_LOCKTAG_RELATION(tag, MyDatabaseId, table);
	FAULT_POINT("worker-valid");
	pfree(GetLockConflicts(&tag, ShareUpdateExclusiveLock, &holders));
	if (holders > 0)
		return true;

	/*
	 * Between its transactions the command holds its lock for the session, and
	 * shows in the table of all locks only.
	 */
	locks = GetLockStatusData();
	for (int i = 0; i < locks->nelements && !held; i++)
		held = memcmp(&locks->locks[i].locktag, &tag, sizeof(tag)) == 0 &&
			(locks->locks[i].holdMask & conflicting) != 0;
	return held;
}

/* Whether an index is to have a mirror. */
static bool
is_wanted(const MirrorSlice *slice)
{
	Relation	index = slice->index;

	return gpuann_option_mirror(index) &&
		   (index->rd_index->indisvalid || !slice->primary || becomes_valid(index));
}

/* What is next for a mirror whose index is open. */
static SliceEnding
work_on(MirrorSlice *slice)
{
	uint32		state = atomic_load(&mirror_area(slice->entry)->state);
	SliceEnding ending;

	if (slice->no_gpu)
		return pending_link(slice);
	if (!mirror_is_generation(slice->entry, slice->generation))
		return SLICE_LOST;		/* given up since the slice began */
	if (state == MIRROR_WANTED || state == MIRROR_REFUSED)
	{
		if (!load_claim(slice))
			return SLICE_LOST;
		ending = load_begin(slice);
		return ending == SLICE_IDLE ? SLICE_MORE : ending;
	}
	if (slice->progress->phase < PHASE_CATCHUP)
		return load_step(slice);
	if (!link_active(slice->entry))
		return catchup_step(slice);

	/*
	 * Between two pieces of a link the mirror catches up, for it cannot while
	 * the engine links: at once, what was linked is not needed yet.
	 */
	ending = catchup_step(slice);
	if (ending == SLICE_IDLE || ending == SLICE_MORE)
	{
		SliceEnding linking = link_take(slice);

		if (linking == SLICE_IDLE)
			linking = link_go_on(slice);
		return linking != SLICE_IDLE ? linking : ending;
	}
	return ending;
}

/* One transaction's worth of work. */
static SliceEnding
run_slice(MirrorSlice *slice)
{
	SliceEnding ending;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	MemoryContextSwitchTo(me.memory);
	slice->until_us = monotonic_us() + SLICE_US;
	ending = open_index(slice);
	FAULT_POINT("worker-slice");
	if (ending == SLICE_IDLE)
	{
		ending = is_wanted(slice) ? work_on(slice) : SLICE_UNWANTED;
		FreeAccessStrategy(slice->strategy);
		relation_close(slice->index, AccessShareLock);
	}
	CommitTransactionCommand();
	MemoryContextReset(me.memory);
	MemoryContextSwitchTo(TopMemoryContext);
	return ending;
}

/*
 * An ERROR came out of a slice: log it, and end the transaction. Its message is
 * the reason for refusing the mirror.
 */
static SliceEnding
slice_error(MirrorSlice *slice)
{
	ErrorData  *error;
	bool		cancelled;
	bool		torn = channel_in_flight();

	MemoryContextSwitchTo(TopMemoryContext);
	HOLD_INTERRUPTS();
	error = CopyErrorData();
	cancelled = error->sqlerrcode == ERRCODE_QUERY_CANCELED ||
				error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED ||
				error->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE;
	shmem_copy_text(slice->reason, sizeof(slice->reason), error->message ? error->message : "",
					PG_INT32_MAX);
	FreeErrorData(error);
	EmitErrorReport();
	AbortCurrentTransaction();
	FlushErrorState();
	RESUME_INTERRUPTS();
	MemoryContextReset(me.memory);
	MemoryContextSwitchTo(TopMemoryContext);
	if (me.channel >= 0)
		channel_release(me.channel);
	me.channel = -1;
	/* A pass of the linker may have been left in the middle of anything. */
	if (link_active(slice->entry))
		link_abandon();
	/* Recovery conflicts and cancels are nobody's fault. */
	return !cancelled ? SLICE_REFUSED : torn ? SLICE_RELOAD : SLICE_LATER;
}

/* Says in the log whose mirror an error is about. */
static void
slice_context(void *arg)
{
	errcontext("serving the mirror of index %u", ((MirrorSlice *) arg)->key.index);
}

/* Run a slice; whatever goes wrong in it ends here. */
static SliceEnding
run_slice_safely(MirrorSlice *slice)
{
	volatile SliceEnding ending = SLICE_LOST;
	ErrorContextCallback context = {
		.previous = error_context_stack, .callback = slice_context, .arg = slice};

	me.current = slice->entry;
	PG_TRY();
	{
		error_context_stack = &context;
		ending = run_slice(slice);
		error_context_stack = context.previous;
	}
	PG_CATCH();
	{
		ending = slice_error(slice);
	}
	PG_END_TRY();
	me.current = -1;
	/* A call that was given up leaves its channel to the server. */
	if (channel_in_flight())
	{
		channel_release(me.channel);
		me.channel = -1;
	}
	return ending;
}

/*
 * Go on with a mirror in another state. Not if somebody has given it up since
 * the slice began: what the slice found was of the one before, and the entry's
 * state is that of the next.
 */
static void
worker_invalidate(const MirrorSlice *slice, MirrorState next)
{
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	if (mirror_is_generation(slice->entry, slice->generation))
	{
		if (next == MIRROR_STATISTICS)
		{
			slice->track->worker = -1;
			atomic_store(&mirror_area(slice->entry)->worker, 0);
		}
		if (next == MIRROR_EMPTY)
			mirror_forget(slice->entry);
		else
			(void) mirror_invalidate(slice->entry, next);
	}
	LWLockRelease(gpuann_mirror_lock());
}

/*
 * A mirror failed: a server that has just come or gone may be why, so try again
 * before it is refused for a while. The same holds of one given up.
 */
static void
worker_give_up(const MirrorSlice *slice)
{
	bool		again = false;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	if (mirror_is_generation(slice->entry, slice->generation))
	{
		again = !slice->no_memory && !slice->over_quota && slice->track->failures < QUICK_TRIES;
		if (again)
		{
			slice->track->failures++;
			(void) mirror_invalidate(slice->entry, MIRROR_WANTED);
		}
		else
			mirror_refuse(slice->entry, slice->reason);
	}
	LWLockRelease(gpuann_mirror_lock());
	if (again)
		ereport(LOG, (errmsg("loading the mirror of gpuann index %u again: %s", slice->key.index,
							 slice->reason)));
}

/* Draw the consequence of how a slice ended. */
static void
worker_conclude(MirrorSlice *slice, SliceEnding ending)
{
	uint32		epoch;

	/*
	 * A locked index too ends a pass: who has locked it may go on to wait for
	 * the linker lock, which we hold.
	 */
	if (ending != SLICE_IDLE && ending != SLICE_MORE && link_active(slice->entry))
		link_abandon();
	switch (ending)
	{
		case SLICE_GONE:
			worker_invalidate(slice, MIRROR_EMPTY);
			break;
		case SLICE_UNWANTED:
			worker_invalidate(slice, MIRROR_STATISTICS);
			break;
		case SLICE_RELOAD:
			worker_invalidate(slice, MIRROR_WANTED);
			break;
		case SLICE_REFUSED:
			if (!mirror_is_generation(slice->entry, slice->generation))
				break;
			if ((slice->no_memory || slice->over_quota) &&
				(mirror_evict_idle(slice) || mirror_try_host_memory(slice)))
				worker_invalidate(slice, MIRROR_WANTED);
			else
				worker_give_up(slice);
			break;
		case SLICE_LOST:
			/*
			 * If it was the server, the launcher says so; if the server lost
			 * only this mirror, we do; others may have let it go.
			 */
			if (shmem_server_ready(&epoch) && epoch == slice->epoch)
				worker_give_up(slice);
			break;
		default:
			break;
	}
}

/*
 * Whether it is time to look at a mirror about which nobody has said anything;
 * if not, *wait_ms says when. On a standby nobody says anything: a mirror in
 * use is looked at after every bit of replay, others now and then, and without
 * replay none.
 */
static bool
time_to_look(int entry, const MirrorProgress *progress, int64 now, int *wait_ms)
{
	*wait_ms = (int) Max(Min(progress->look_at_ms - now, REST_MS), 1);
	if (now < progress->look_at_ms)
		return false;
	if (!RecoveryInProgress() || progress->look_at_ms == 0)
		return true;
	*wait_ms = STANDBY_POLL_MS;
	if (progress->replayed == GetXLogReplayRecPtr(NULL))
		return false;
	return now - atomic_load(&mirror_area(entry)->last_used_ms) < STANDBY_USED_MS ||
		now - mirror_track(entry)->looked_ms >= REST_MS;
}

/* Whether a mirror has to be looked at now; if not, *wait_ms says when. */
static bool
needs_look(int entry, uint32 epoch, int64 now, int *wait_ms)
{
	AreaMirror *mirror = mirror_area(entry);
	const MirrorProgress *progress = progress_known(entry);
	uint32		state = atomic_load(&mirror->state);

	*wait_ms = REST_MS;
	if (state != MIRROR_LOADING && state != MIRROR_READY)
		return mirror_is_due(entry, now);
	if (atomic_load(&mirror->epoch) != epoch)
	{
		*wait_ms = NO_SERVER_MS;	/* of a server before this one: the launcher is about to sweep
									 * it */
		return false;
	}
	if (link_in_flight(entry))
	{
		*wait_ms = LINK_POLL_MS;
		return false;
	}
	/* The flag stays up meanwhile, so that who inserts need not wake us. */
	if (progress != NULL && progress->pace >= CROWD_PACE && state == MIRROR_READY &&
		now < progress->look_at_ms && now - mirror_track(entry)->looked_ms < CROWD_MS &&
		(!link_active(entry) || link_rests(entry)))
	{
		*wait_ms = CROWD_MS;
		return false;
	}
	/*
	 * The flag goes down before pages are read, by whatever look: who finds it
	 * up does not wake us.
	 */
	if (atomic_exchange(&mirror->changed, 0) != 0 || state == MIRROR_LOADING ||
		link_active(entry) || progress == NULL)
		return true;
	return time_to_look(entry, progress, now, wait_ms);
}

/*
 * What a slice's ending means for the next one; returns the milliseconds after
 * which to come again.
 */
static int
plan_next(MirrorSlice *slice, SliceEnding ending)
{
	switch (ending)
	{
		case SLICE_MORE:
		case SLICE_RELOAD:
			slice->progress->look_at_ms = 0;
			return 0;
		case SLICE_LATER:
			slice->progress->look_at_ms = 0;
			return LOCKED_MS;
		default:
			if (link_active(slice->entry) || slice->progress->look_at_ms == 0)
				return LINK_POLL_MS;
			return slice->primary ? REST_MS : STANDBY_POLL_MS;
	}
}

/* Serve one mirror; returns the milliseconds after which to come again. */
static int
worker_serve(int entry)
{
	int64		now = monotonic_ms();
	MirrorProgress before;
	MirrorSlice slice;
	SliceEnding ending;
	int			wait_ms;

	memset(&slice, 0, sizeof(slice));
	slice.no_gpu = shmem_no_gpu();
	if (!shmem_server_ready(&slice.epoch) && !slice.no_gpu)
		return NO_SERVER_MS;
	if (slice.no_gpu ? !pending_is_due(entry, now, &wait_ms)
					 : !needs_look(entry, slice.epoch, now, &wait_ms))
		return wait_ms;
	if (me.channel < 0 && !slice.no_gpu)
		me.channel = channel_claim();
	if (me.channel < 0 && !slice.no_gpu)
		return LOCKED_MS;

	slice.entry = entry;
	slice.channel = me.channel;
	slice.primary = slice.may_link = !RecoveryInProgress();
	if (!progress_take(&slice, me.number))
		return LOCKED_MS;		/* it has just become another index's entry */
	before = *slice.progress;
	slice.track->looked_ms = now;
	slice.sums = node_checksums(entry, slice.generation, before.rows);
	ending = run_slice_safely(&slice);
	if (ending != SLICE_IDLE && ending != SLICE_MORE)
		node_checksums_forget_all(entry);
	if (ending != SLICE_IDLE || before.phase != PHASE_SERVING ||
		before.position != slice.progress->position ||
		before.change_seq != slice.progress->change_seq || link_active(entry))
		me.busy_ms = now;
	wait_ms = slice.no_gpu && ending == SLICE_IDLE ? REST_MS : plan_next(&slice, ending);
	(void) progress_publish(entry);
	worker_conclude(&slice, ending);
	return wait_ms;
}

/* Whether this database has a mirror, or one on its way. */
static bool
anything_resident(void)
{
	for (int i = 0; i < me.count; i++)
	{
		uint32		state = atomic_load(&mirror_area(me.entries[i])->state);

		if (state == MIRROR_WANTED || state == MIRROR_LOADING || state == MIRROR_READY)
			return true;
	}
	return false;
}

/*
 * Whether it is time to make room for a worker in another database, or nothing
 * is to do here.
 */
static bool
time_to_leave(int64 now)
{
	bool		others = atomic_load(&gpuann_control->databases_waiting) > 0;
	int64		idle_ms = now - me.busy_ms;

	if (me.slot->leave)
		return true;
	if (link_active(-1))
		return false;
	/* A standby's mirrors are only current while somebody polls. */
	me.idle = (idle_ms >= EMPTY_MS && !anything_resident()) ||
		(others && idle_ms >= IDLE_TURN_MS) || idle_ms >= IDLE_MS;
	return me.idle || (others && now - me.started_ms >= TURN_MS);
}

/* Take note of catalog changes even if nothing else is to do. */
static void
process_invalidations(int64 now)
{
	if (now - me.invalidated_ms < INVALIDATION_MS)
		return;
	me.invalidated_ms = now;
	mirror_keep_quota();
	node_checksums_sweep();
	StartTransactionCommand();
	CommitTransactionCommand();
	pgstat_report_stat(true);
}

/* Connect to the database that the launcher chose. */
static void
worker_start(int number)
{
	me.number = number;
	me.slot = &gpuann_control->workers[number];
	me.channel = me.current = -1;
	me.table_version = atomic_load(&gpuann_control->table_version) - 1;
	me.started_ms = me.busy_ms = me.invalidated_ms = monotonic_ms();

	before_shmem_exit(worker_exit, (Datum) 0);
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	me.slot->pid = MyProcPid;
	me.slot->latch = MyLatch;
	LWLockRelease(gpuann_mirror_lock());
	if (me.slot->leave)
		proc_exit(0);

	SetConfigOption("lock_timeout", CONNECT_LOCK_MS, PGC_SUSET, PGC_S_OVERRIDE);
	BackgroundWorkerInitializeConnectionByOid(me.slot->database, InvalidOid, 0);
	me.slot->connected = true;
	me.memory =
		AllocSetContextCreate(TopMemoryContext, "gpuann mirror slice", ALLOCSET_DEFAULT_SIZES);
	SetConfigOption("statement_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	/* What is set for a database, perhaps by its owner, must not end us. */
	SetConfigOption("exit_on_error", "off", PGC_USERSET, PGC_S_OVERRIDE);
#if PG_VERSION_NUM >= 170000
	SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
#endif
	SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE);
	pgstat_report_appname("gpuann mirror worker");
}

void
gpuann_worker_main(Datum arg)
{
	int			number = DatumGetInt32(arg);

	if (gpuann_area == NULL || number < 0 || number >= GPUANN_MAX_WORKERS)
		proc_exit(0);
	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	worker_start(number);

	for (;;)
	{
		int			wait_ms = REST_MS;

		ResetLatch(MyLatch);
		if (ProcDiePending)
			break;				/* between slices nothing is lost, so nothing needs saying */
		QueryCancelPending = false; /* there is nothing to cancel here */
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		refresh_entries();
		FAULT_POINT("worker-round");
		/*
		 * What it has linked is not written without the mirror that has it too,
		 * and others wait for its lock.
		 */
		if (link_outlived())
			link_abandon();
		for (int i = 0; i < me.count; i++)
		{
			CHECK_FOR_INTERRUPTS();
			wait_ms = Min(wait_ms, worker_serve(me.entries[i]));
		}
		if (time_to_leave(monotonic_ms()))
			break;
		process_invalidations(monotonic_ms());
		if (wait_ms > 0 && !link_await(Min(wait_ms, LINK_POLL_MS)))
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, wait_ms,
							 shmem_wait_event(SHMEM_WAIT_WORKER));
	}
	proc_exit(0);
}
