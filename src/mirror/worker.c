/*
 * worker.c
 *		The mirror worker: serves the mirrors of one database in slices, and
 *		exits when it is not needed.
 *
 * It visits the mirrors of its database round robin. On the primary, processes
 * that change pages set its latch; on a standby it polls. An ERROR in a slice
 * does not end the worker: the mirror concerned is refused for a while. SIGTERM
 * ends the worker, and the launcher starts another where one is needed.
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

#define LOCKED_MS		100		/* retry interval while the index is locked by another process */
#define LINK_POLL_MS	1		/* while the engine links, to serve other mirrors */
#define STANDBY_POLL_MS 50
#define CHECK_MS		1000
#define HIGH_INSERT_RATE 1000	/* inserts per second above which rows are not sent one by one
								 * ... */
#define HIGH_RATE_MS	1		/* ... but at this interval */
#define MAX_QUICK_RETRIES 3		/* failures of a mirror, since it or the server last worked, before
								 * it is refused */
#define NO_SERVER_MS	100
#define INVALIDATION_MS 10000	/* interval at which catalog invalidations are processed, so that
								 * files of dropped relations are closed */

/*
 * When to exit: other databases wait, and this worker had its turn or nothing
 * to do; or it had nothing to do for a long time.
 */
#define TURN_MS			60000
#define IDLE_TURN_MS	200
#define IDLE_MS			300000
#define EMPTY_MS		5000	/* if the database has no mirror */

typedef struct Worker
{
	int			number;			/* index of its WorkerSlot */
	WorkerSlot *slot;
	int			channel;			/* -1: none */
	int			spare;			/* another one while a mirror is loaded; -1: none */
	uint32		table_version;	/* table_version of entries[] */
	int			entries[AREA_MIRRORS];
	int			count;
	int64		started_ms;
	int64		busy_ms;		/* last time there was work */
	bool		idle;			/* exits because there is no work */
	int			current;		/* entry of the current slice, or -1 */
	int64		invalidated_ms;
	MemoryContext memory;		/* reset after each slice */
} Worker;

static Worker me;

/* Whether a channel has an operation that is no longer waited for. */
static bool
in_flight(int channel)
{
	return channel >= 0 &&
		   request_state(atomic_load(&shared_channel((uint32) channel)->state)) != REQUEST_FREE;
}

/* Whether one of ours has. The mirror may then differ from its progress. */
static bool
channel_in_flight(void)
{
	return in_flight(me.channel) || in_flight(me.spare);
}

/* Give a channel back. */
static void
give_back(int *channel)
{
	if (*channel >= 0)
		channel_release(*channel);
	*channel = -1;
}

/*
 * Release the mirrors of this worker. With refuse, when the database could not
 * be connected to, its indexes are refused for a while.
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
			 * a worker asked to leave may leave work undone; let the launcher
			 * start another
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

/*
 * before_shmem_exit callback: release everything, also on SIGTERM and FATAL
 * errors.
 */
static void
worker_exit(int code, Datum arg)
{
	/*
	 * An ERROR between slices gets here with locks held, some of which are
	 * taken below.
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
	FAULT_POINT("worker-exit");
}

/*
 * on_shmem_exit callback, registered before the connection and so called after
 * this process has left the process array: a command that waits for a
 * database's workers goes on when core does not see them any more either. DROP
 * DATABASE WITH (FORCE) by its owner fails for one that it sees.
 */
static void
worker_gone(int code, Datum arg)
{
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	memset(me.slot, 0, sizeof(*me.slot));
	LWLockRelease(gpuann_mirror_lock());
	launcher_wake();
}

/* If the mirror table has changed, claim the mirrors of this database. */
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
 * Whether an index that is not valid may become so: its table is locked as by
 * CREATE INDEX CONCURRENTLY. (The remains of a failed one are useless.) Examine
 * the locks held instead of trying to take one, because even a lock held
 * briefly could make a user's statement wait or fail.
 */
static bool
may_become_valid(Relation index)
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
	 * Between its transactions the command holds a session lock, which only the
	 * list of all locks shows.
	 */
	locks = GetLockStatusData();
	for (int i = 0; i < locks->nelements && !held; i++)
		held = memcmp(&locks->locks[i].locktag, &tag, sizeof(tag)) == 0 &&
			(locks->locks[i].holdMask & conflicting) != 0;
	return held;
}

/* Whether an index should have a mirror. */
static bool
index_is_wanted(const MirrorSlice *slice)
{
	Relation	index = slice->index;

	return gpuann_option_mirror(index) &&
		   (index->rd_index->indisvalid || !slice->primary || may_become_valid(index));
}

/* Do the next work for a mirror whose index is open. */
static SliceEnding
do_next_step(MirrorSlice *slice)
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
		if (ending == SLICE_IDLE)
			load_readers_start(slice);
		return ending == SLICE_IDLE ? SLICE_MORE : ending;
	}
	if (slice->progress->phase < PHASE_CATCHUP)
	{
		if (me.spare < 0)
			slice->spare = me.spare = channel_claim_spare();
		return load_step(slice);
	}
	if (!link_active(slice->entry))
		return catchup_step(slice);

	/*
	 * Between two pieces of a link the mirror catches up, because it cannot
	 * while the engine links. This comes before fetching the results, which are
	 * not needed yet.
	 */
	ending = catchup_step(slice);
	if (ending == SLICE_IDLE || ending == SLICE_MORE)
	{
		SliceEnding linking = link_fetch(slice);

		if (linking == SLICE_IDLE)
			linking = link_continue(slice);
		return linking != SLICE_IDLE ? linking : ending;
	}
	return ending;
}

/* Run one slice, in a transaction. */
static SliceEnding
run_slice(MirrorSlice *slice)
{
	SliceEnding ending;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	MemoryContextSwitchTo(me.memory);
	slice->until_us = monotonic_us() + SLICE_US;
	ending = slice_open(slice);
	FAULT_POINT("worker-slice");
	if (ending == SLICE_IDLE)
	{
		ending = index_is_wanted(slice) ? do_next_step(slice) : SLICE_UNWANTED;
		FreeAccessStrategy(slice->strategy);
		relation_close(slice->index, AccessShareLock);
	}
	CommitTransactionCommand();
	MemoryContextReset(me.memory);
	MemoryContextSwitchTo(TopMemoryContext);
	return ending;
}

/*
 * Handle an ERROR in a slice: log it and end the transaction. Its message
 * becomes the reason of the mirror's refusal.
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
	cancelled = slice_was_cancelled(error);
	shmem_copy_text(slice->reason, sizeof(slice->reason), error->message ? error->message : "",
					PG_INT32_MAX);
	FreeErrorData(error);
	EmitErrorReport();
	AbortCurrentTransaction();
	FlushErrorState();
	RESUME_INTERRUPTS();
	MemoryContextReset(me.memory);
	MemoryContextSwitchTo(TopMemoryContext);
	give_back(&me.channel);
	give_back(&me.spare);
	/* a pass of the linker may be in any state */
	if (link_active(slice->entry))
		link_abandon();
	return !cancelled ? SLICE_REFUSED : torn ? SLICE_RELOAD : SLICE_LATER;
}

/* Error context callback: names the index. */
static void
slice_context(void *arg)
{
	errcontext("serving the mirror of index %u", ((MirrorSlice *) arg)->key.index);
}

/* Run a slice and catch errors. */
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
	/* after a call that timed out leave the channel to the server */
	if (in_flight(me.channel))
		give_back(&me.channel);
	if (in_flight(me.spare))
		give_back(&me.spare);
	return ending;
}

/*
 * Invalidate a mirror and set its next state, unless another process has given
 * it up since the slice began; what the slice found then applies to the
 * previous mirror only.
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
 * Handle a failed or lost mirror: the cause may be a server that just started
 * or died, so try again some times before refusing it for a while.
 */
static void
retry_or_refuse(const MirrorSlice *slice)
{
	bool		again = false;
	bool		refused = false;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	if (mirror_is_generation(slice->entry, slice->generation))
	{
		again = !slice->no_memory && !slice->over_quota &&
			slice->track->failures < MAX_QUICK_RETRIES;
		if (again)
		{
			slice->track->failures++;
			(void) mirror_invalidate(slice->entry, MIRROR_WANTED);
		}
		else
		{
			mirror_refuse(slice->entry, slice->reason);
			refused = true;
		}
	}
	LWLockRelease(gpuann_mirror_lock());
	if (again)
		ereport(LOG, (errmsg("loading the mirror of gpuann index %u again: %s", slice->key.index,
							 slice->reason)));
	if (refused)
		ereport(LOG, (errmsg("the mirror of gpuann index %u is refused for a while",
							 slice->key.index),
					  errdetail("%s", slice->reason)));
}

/* Act on the result of a slice. */
static void
handle_slice_ending(MirrorSlice *slice, SliceEnding ending)
{
	uint32		epoch;

	/*
	 * A locked index ends a pass too, because the process that locked it may
	 * then wait for the linker lock, which we hold.
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
				retry_or_refuse(slice);
			break;
		case SLICE_LOST:
			/*
			 * If the server died, the launcher reports it. If it lost only this
			 * mirror, we do, unless another process gave it up.
			 */
			if (shmem_server_ready(&epoch) && epoch == slice->epoch)
				retry_or_refuse(slice);
			break;
		default:
			break;
	}
}

/*
 * Whether it is time to check a mirror for which the worker was not woken; if
 * not, *wait_ms is set. On a standby no process wakes the worker: a mirror in
 * use is checked after any replay, others at intervals, and none without
 * replay.
 */
static bool
check_is_due(int entry, const MirrorProgress *progress, int64 now, int *wait_ms)
{
	*wait_ms = (int) Max(Min(progress->look_at_ms - now, CHECK_MS), 1);
	if (now < progress->look_at_ms)
		return false;
	if (!RecoveryInProgress() || progress->look_at_ms == 0)
		return true;
	*wait_ms = STANDBY_POLL_MS;
	if (progress->replayed == GetXLogReplayRecPtr(NULL))
		return false;
	return now - atomic_load(&mirror_area(entry)->last_used_ms) < STANDBY_USED_MS ||
		now - mirror_track(entry)->looked_ms >= CHECK_MS;
}

/* Whether a mirror has to be checked now; if not, *wait_ms is set. */
static bool
needs_check(int entry, uint32 epoch, int64 now, int *wait_ms)
{
	AreaMirror *mirror = mirror_area(entry);
	const MirrorProgress *progress = progress_known(entry);
	uint32		state = atomic_load(&mirror->state);

	*wait_ms = CHECK_MS;
	if (state != MIRROR_LOADING && state != MIRROR_READY)
		return mirror_is_due(entry, now);
	if (atomic_load(&mirror->epoch) != epoch)
	{
		*wait_ms = NO_SERVER_MS;	/* belongs to a previous server: the launcher is about to sweep
									 * it */
		return false;
	}
	if (link_in_flight(entry))
	{
		*wait_ms = LINK_POLL_MS;
		return false;
	}
	/* `changed` remains set meanwhile, so that inserters need not wake us. */
	if (progress != NULL && progress->pace >= HIGH_INSERT_RATE && state == MIRROR_READY &&
		now < progress->look_at_ms && now - mirror_track(entry)->looked_ms < HIGH_RATE_MS &&
		(!link_active(entry) || link_waits_for_rows(entry)))
	{
		*wait_ms = HIGH_RATE_MS;
		return false;
	}
	/*
	 * Clear `changed` before reading pages, whatever the reason for reading
	 * them: processes that find it set do not wake us.
	 */
	if (atomic_exchange(&mirror->changed, 0) != 0 || state == MIRROR_LOADING ||
		link_active(entry) || progress == NULL)
		return true;
	return check_is_due(entry, progress, now, wait_ms);
}

/*
 * Delay in milliseconds until a mirror's next slice, given how the last one
 * ended.
 */
static int
next_slice_delay(MirrorSlice *slice, SliceEnding ending)
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
			return slice->primary ? CHECK_MS : STANDBY_POLL_MS;
	}
}

/*
 * Serve one mirror. Returns the delay in milliseconds until it should be served
 * again.
 */
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
					 : !needs_check(entry, slice.epoch, now, &wait_ms))
		return wait_ms;
	if (me.channel < 0 && !slice.no_gpu)
		me.channel = channel_claim();
	if (me.channel < 0 && !slice.no_gpu)
		return LOCKED_MS;

	slice.entry = entry;
	slice.channel = me.channel;
	slice.spare = me.spare;
	slice.primary = slice.may_link = !RecoveryInProgress();
	if (!progress_begin_slice(&slice, me.number))
		return LOCKED_MS;		/* the entry was given to another index just now */
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
	wait_ms = slice.no_gpu && ending == SLICE_IDLE ? CHECK_MS : next_slice_delay(&slice, ending);
	(void) progress_publish(entry);
	handle_slice_ending(&slice, ending);
	if (ending != SLICE_MORE)
		give_back(&me.spare);
	return wait_ms;
}

/* Whether this database has a mirror, or one is requested or loading. */
static bool
has_any_mirror(void)
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
 * Whether to exit, to make room for another database's worker or because there
 * is no work.
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
	/* on a standby mirrors are current only while a worker polls */
	me.idle = (idle_ms >= EMPTY_MS && !has_any_mirror()) ||
		(others && idle_ms >= IDLE_TURN_MS) || idle_ms >= IDLE_MS;
	return me.idle || (others && now - me.started_ms >= TURN_MS);
}

/* Process catalog invalidations, even if there is nothing else to do. */
static void
process_invalidations(int64 now)
{
	if (now - me.invalidated_ms < INVALIDATION_MS)
		return;
	me.invalidated_ms = now;
	mirror_enforce_quota();
	node_checksums_sweep();
	StartTransactionCommand();
	CommitTransactionCommand();
	pgstat_report_stat(true);
}

/* Connect to the database that the launcher has chosen. */
static void
worker_start(int number)
{
	me.number = number;
	me.slot = &gpuann_control->workers[number];
	me.channel = me.spare = me.current = -1;
	me.table_version = atomic_load(&gpuann_control->table_version) - 1;
	me.started_ms = me.busy_ms = me.invalidated_ms = monotonic_ms();

	on_shmem_exit(worker_gone, (Datum) 0);
	before_shmem_exit(worker_exit, (Datum) 0);
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	me.slot->pid = MyProcPid;
	me.slot->latch = MyLatch;
	LWLockRelease(gpuann_mirror_lock());
	if (me.slot->leave)
		proc_exit(0);

	worker_connect(me.slot->database);
	me.slot->connected = true;
	me.memory =
		AllocSetContextCreate(TopMemoryContext, "gpuann mirror slice", ALLOCSET_DEFAULT_SIZES);
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
		int			wait_ms = CHECK_MS;

		ResetLatch(MyLatch);
		if (ProcDiePending)
			break;				/* nothing is lost between slices, so exit without a message */
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
		 * If a pass has lost its mirror, its rows cannot be written, and other
		 * processes wait for its lock.
		 */
		if (link_lost_mirror())
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
