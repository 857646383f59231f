/*
 * mirror_feed.c
 *		CREATE INDEX and REINDEX load the mirror from the pages they have just
 *		written, before they commit, or complete the mirror whose rows the
 *		server has linked for them (build_server.c).
 *
 * Until the end of its transaction the builder owns the entry: workers ignore
 * it, and no other process knows the relation file. At commit the entry is
 * released to workers, and entries of the index's previous file are given up.
 * At abort the entry is removed, and the server drops its mirror. The build
 * succeeds whatever the server does; it waits for the server at most as long as
 * it took itself, plus SERVER_WAIT_MS.
 */
#include "base/handler.h"

#include "client/shmem.h"
#include "client/client.h"
#include "client/database_hook.h"
#include "client/mirror_table.h"
#include "page/pages.h"
#include "page/pending.h"
#include "mirror/worker.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define SERVER_WAIT_MS	10000	/* how long to wait for the server, plus the duration of the
								 * build */
#define CHANNEL_WAIT_MS		1000	/* how long to wait for a channel, if the build can do
									 * without */

/* A relation file built by this transaction; in the order of building. */
typedef struct BuiltFile
{
	Oid			index;
	uint32		relfile;
	uint32		tablespace;
	int			entry;			/* its mirror's entry, or -1 */
	uint32		identity;
	SubTransactionId subid;
} BuiltFile;

static List *built = NIL;		/* of BuiltFile, in TopTransactionContext */

/* ---- the entry ---- */

/* Record a file until the end of the transaction. */
static BuiltFile *
record_built_file(const MirrorKey *key)
{
	MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
	BuiltFile  *file = palloc(sizeof(BuiltFile));

	*file = (BuiltFile) {
		.index = key->index, .relfile = key->relfile, .tablespace = key->tablespace, .entry = -1,
		.subid = GetCurrentSubTransactionId()};
	built = lappend(built, file);
	MemoryContextSwitchTo(before);
	return file;
}

/*
 * Remove the entry of a file, if there is one: the index was rebuilt in the
 * same file (TRUNCATE of a table created in this transaction), or another file
 * has the same name.
 */
static void
remove_file_entry(const MirrorKey *key)
{
	int			entry;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	entry = mirror_find(key);
	if (entry >= 0)
		mirror_forget(entry);
	LWLockRelease(gpuann_mirror_lock());
}

/*
 * Create the entry of a file that no other process knows. Returns false if the
 * table is full or there is no server.
 */
static bool
create_entry(MirrorSlice *slice, BuiltFile *file)
{
	bool		claimed = false;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	slice->entry = mirror_make(&slice->key, MIRROR_STATISTICS);
	if (slice->entry >= 0)
	{
		slice->track = mirror_track(slice->entry);
		slice->track->builder = MyProcPid;
		slice->identity = atomic_load(&slice->track->identity);
		slice->generation = atomic_load(&mirror_area(slice->entry)->generation);
		file->entry = slice->entry;
		file->identity = slice->identity;
	}
	LWLockRelease(gpuann_mirror_lock());
	if (slice->entry >= 0)
		claimed = load_claim(slice);
	return claimed;
}

/* Remove a file's entry. The caller holds the mirror lock exclusively. */
static void
feed_remove_entry(BuiltFile *file)
{
	if (file->entry >= 0 && mirror_is_still(file->entry, file->identity))
		mirror_forget(file->entry);
	file->entry = -1;
}

/* ---- loading ---- */

bool
feed_allowed(Relation index)
{
	uint32		epoch;

	return gpuann_area != NULL && !RelationUsesLocalBuffers(index) && gpuann_server &&
		   gpuann_max_workers > 0 && gpuann_option_mirror(index) && shmem_server_ready(&epoch);
}

/*
 * Continue a load slice by slice until the mirror is ready, which returns
 * SLICE_IDLE.
 */
static SliceEnding
load_until_ready(MirrorSlice *slice, SliceEnding ending, int64 give_up_ms,
				 void (*progress) (int64 done))
{
	while (ending == SLICE_IDLE || ending == SLICE_MORE)
	{
		CHECK_FOR_INTERRUPTS();
		if (!mirror_is_generation(slice->entry, slice->generation) ||
			(slice->progress->phase == PHASE_SERVING && !progress_publish(slice->entry)))
			return slice_failed(slice, ENGINE_NOT_FOUND,
								"the server has stopped, or the mirror was evicted");
		if (slice->progress->phase == PHASE_SERVING)
			return SLICE_IDLE;
		if (monotonic_ms() >= give_up_ms)
			return slice_failed(slice, ENGINE_CANCELLED, "the server is too slow");
		slice->until_us = monotonic_us() + SLICE_US;
		if (slice->progress->phase == PHASE_ROWS)
			progress(slice->progress->next_slot);
		ending = slice->progress->phase < PHASE_CATCHUP ? load_step(slice) : catchup_step(slice);
	}
	return ending;
}

/* Load the mirror from the beginning. */
static SliceEnding
feed_load(MirrorSlice *slice, int64 give_up_ms, void (*progress) (int64 done))
{
	return load_until_ready(slice, load_begin(slice), give_up_ms, progress);
}

/* Load, with a channel that is released in any case. */
static SliceEnding
load_by_channel(MirrorSlice *slice, int64 give_up_ms, void (*progress) (int64 done))
{
	volatile SliceEnding ending = SLICE_LOST;

	slice->channel = channel_claim_until(give_up_ms);
	if (slice->channel < 0)
		return slice_failed(slice, ENGINE_CANCELLED, "no bulk channel is free");
	slice->spare = channel_claim_spare();
	PG_TRY();
	{
		ending = feed_load(slice, give_up_ms, progress);
		if (ending == SLICE_REFUSED && (slice->no_memory || slice->over_quota) &&
			mirror_evict_predecessor(slice))
		{
			slice->no_memory = slice->over_quota = false;
			ending = load_claim(slice) ? feed_load(slice, give_up_ms, progress) : SLICE_LOST;
		}
	}
	PG_FINALLY();
	{
		channel_release(slice->channel);
		if (slice->spare >= 0)
			channel_release(slice->spare);
	}
	PG_END_TRY();
	return ending;
}

void
mirror_feed(Relation index, TimestampTz begun, void (*progress) (int64 done))
{
	int64		lasted_ms = (GetCurrentTimestamp() - begun) / 1000;
	MirrorSlice slice;
	BuiltFile  *file;
	MetaPage	meta;
	PendingBounds bounds;

	if (gpuann_area == NULL || RelationUsesLocalBuffers(index))
		return;
	memset(&slice, 0, sizeof(slice));
	slice.index = index;
	slice.format = index_format(index);
	pending_bounds(index, slice.format, &meta, &bounds);
	mirror_key(index, meta.nonce, &slice.key);
	remove_file_entry(&slice.key);
	file = record_built_file(&slice.key);
	/*
	 * An empty index needs no mirror, and thousands of partitions should cost
	 * nothing.
	 */
	if (bounds.next_fresh == 0 || !feed_allowed(index))
		return;

	shmem_leave_at_exit();
	slice.blocks = RelationGetNumberOfBlocks(index);
	slice.primary = true;
	slice.strategy = GetAccessStrategy(BAS_BULKREAD);
	strlcpy(slice.reason, "no server runs, or too many indexes are in use", sizeof(slice.reason));
	if (!create_entry(&slice, file) ||
		load_by_channel(&slice, monotonic_ms() + lasted_ms + SERVER_WAIT_MS,
						progress) != SLICE_IDLE)
	{
		LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
		feed_remove_entry(file);
		LWLockRelease(gpuann_mirror_lock());
		ereport(LOG,
				(errmsg("the mirror of gpuann index \"%s\" was not loaded when it was built: %s",
						RelationGetRelationName(index), slice.reason),
				 errdetail("It is loaded when a scan asks for it.")));
	}
	FreeAccessStrategy(slice.strategy);
}

/* ---- a mirror that is filled while the index is built ---- */

bool
feed_begin(MirrorSlice *slice, uint64 nonce)
{
	BuiltFile  *file;

	slice->channel = slice->spare = -1;
	mirror_key(slice->index, nonce, &slice->key);
	remove_file_entry(&slice->key);
	file = record_built_file(&slice->key);
	shmem_leave_at_exit();
	slice->primary = true;
	strlcpy(slice->reason, "no server runs, or too many indexes are in use", sizeof(slice->reason));
	if (!create_entry(slice, file))
		return false;
	slice->progress->load_started_ms = monotonic_ms();
	strlcpy(slice->reason, "no bulk channel is free", sizeof(slice->reason));
	slice->channel = channel_claim_until(monotonic_ms() + CHANNEL_WAIT_MS);
	return slice->channel >= 0;
}

bool
feed_end(MirrorSlice *slice, int64 lasted_ms, void (*progress) (int64 done))
{
	MirrorProgress *to = slice->progress;
	MetaPage	meta;
	PendingBounds bounds;
	SliceEnding ending;

	/* set the progress to that of a load that has sent all graph rows */
	pending_bounds(slice->index, slice->format, &meta, &bounds);
	to->phase = PHASE_GRAPH;
	to->rows = to->next_slot = to->load_slots = bounds.next_fresh;
	to->position = bounds.end;
	to->change_seq = meta.change_seq;
	if (format_has_lists(slice->format))
		lists_note_sent(slice);
	/* the build may have taken longer than EVICT_IDLE_MS */
	atomic_store(&mirror_area(slice->entry)->last_used_ms, monotonic_ms());
	slice->blocks = RelationGetNumberOfBlocks(slice->index);
	slice->strategy = GetAccessStrategy(BAS_BULKREAD);
	slice->call_us = (lasted_ms + SERVER_WAIT_MS) * 1000;
	ending = load_until_ready(slice, SLICE_MORE, monotonic_ms() + lasted_ms + SERVER_WAIT_MS,
							  progress);
	FreeAccessStrategy(slice->strategy);
	return ending == SLICE_IDLE;
}

void
feed_forget(MirrorSlice *slice)
{
	ListCell   *cell;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	foreach(cell, built)
	{
		BuiltFile  *file = lfirst(cell);

		if (file->entry == slice->entry && file->identity == slice->identity)
			feed_remove_entry(file);
	}
	LWLockRelease(gpuann_mirror_lock());
}

/* ---- the end of the transaction ---- */

/*
 * The transaction has committed: this file is the index's only one. The caller
 * holds the mirror lock exclusively.
 */
static void
feed_publish(const BuiltFile *file)
{
	if (file->entry >= 0 && mirror_is_still(file->entry, file->identity))
	{
		mirror_track(file->entry)->builder = 0;
		/* Let the worker check whether the file or index has changed since. */
		atomic_store(&mirror_area(file->entry)->changed, 1);
		mirror_inherit(file->entry);
		atomic_fetch_add(&gpuann_control->table_version, 1);
		return;
	}
	/*
	 * There is no new entry: free the previous file's mirror; its counters
	 * remain until the index is used.
	 */
	for (uint32 i = 0; i < gpuann_control->high_water; i++)
	{
		MirrorTrack *track = mirror_track((int) i);
		uint32		state = atomic_load(&mirror_area((int) i)->state);

		if (track->in_use && track->key.index == file->index &&
			track->key.database == MyDatabaseId &&
			(track->key.relfile != file->relfile || track->key.tablespace != file->tablespace) &&
			state != MIRROR_STATISTICS)
			(void) mirror_invalidate((int) i, MIRROR_STATISTICS);
	}
}

/* Whether a later file of this transaction replaced the index's file. */
static bool
was_replaced(Oid index, int number)
{
	ListCell   *cell;

	for_each_from(cell, built, number + 1)
	{
		if (((const BuiltFile *) lfirst(cell))->index == index)
			return true;
	}
	return false;
}

static void
feed_at_transaction_end(XactEvent event, void *arg)
{
	ListCell   *cell;

	if (built == NIL ||
		(event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE))
		return;
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	foreach(cell, built)
	{
		BuiltFile  *file = lfirst(cell);

		/*
		 * A prepared transaction may be decided much later, and by another
		 * process.
		 */
		if (event == XACT_EVENT_COMMIT && !was_replaced(file->index, foreach_current_index(cell)))
			feed_publish(file);
		else
			feed_remove_entry(file);
	}
	LWLockRelease(gpuann_mirror_lock());
	built = NIL;
	if (event == XACT_EVENT_COMMIT)
		launcher_wake();
}

static void
feed_at_subtransaction_end(SubXactEvent event, SubTransactionId subid, SubTransactionId parent,
						   void *arg)
{
	ListCell   *cell;

	if (built == NIL || (event != SUBXACT_EVENT_ABORT_SUB && event != SUBXACT_EVENT_COMMIT_SUB))
		return;
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	foreach(cell, built)
	{
		BuiltFile  *file = lfirst(cell);

		if (file->subid != subid)
			continue;
		file->subid = parent;
		if (event == SUBXACT_EVENT_ABORT_SUB)
		{
			feed_remove_entry(file);
			built = foreach_delete_current(built, cell);
		}
	}
	LWLockRelease(gpuann_mirror_lock());
}

void
mirror_feed_init(void)
{
	RegisterXactCallback(feed_at_transaction_end, NULL);
	RegisterSubXactCallback(feed_at_subtransaction_end, NULL);
}
