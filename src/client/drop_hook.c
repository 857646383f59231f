/*
 * drop_hook.c
 *		Drop the mirrors of dropped indexes when the transaction commits.
 *
 * Without this, a worker's periodic check would find them half an hour later at
 * most. So drops that are not seen here (replay on a standby) are no leak.
 */
#include "base/base.h"

#include "client/shmem.h"
#include "client/database_hook.h"
#include "client/mirror_table.h"

#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"

/* An index that is dropped if this transaction commits. */
typedef struct DroppedIndex
{
	int			entry;
	uint32		identity;
	SubTransactionId subid;
} DroppedIndex;

static object_access_hook_type prev_object_access = NULL;
static List *dropped = NIL;		/* of DroppedIndex, in TopTransactionContext */

/* Remember an entry for the end of the transaction. */
static void
drop_hook_remember(int entry)
{
	MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
	DroppedIndex *index = palloc(sizeof(DroppedIndex));

	*index = (DroppedIndex) {entry, atomic_load(&mirror_track(entry)->identity),
							 GetCurrentSubTransactionId()};
	dropped = lappend(dropped, index);
	MemoryContextSwitchTo(before);
}

/*
 * Object access hook: record the entries of a relation that is being dropped.
 */
static void
note_drop(Oid relation)
{
	LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
	for (uint32 i = 0; i < gpuann_control->high_water; i++)
	{
		MirrorTrack *track = mirror_track((int) i);

		/*
		 * No exit at the first match: a file created by this transaction has an
		 * entry besides that of the previous file.
		 */
		if (track->in_use && track->key.index == relation && track->key.database == MyDatabaseId)
			drop_hook_remember((int) i);
	}
	LWLockRelease(gpuann_mirror_lock());
}

static void
gpuann_object_access(ObjectAccessType access, Oid class, Oid object, int subobject, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, class, object, subobject, arg);
	if (access == OAT_DROP && class == RelationRelationId && subobject == 0 &&
		gpuann_area != NULL && gpuann_control->high_water > 0)
		note_drop(object);
}

/*
 * The drops are committed: empty their entries. The server then drops their
 * mirrors.
 */
static void
forget_dropped(void)
{
	ListCell   *cell;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	foreach(cell, dropped)
	{
		DroppedIndex *index = lfirst(cell);

		if (mirror_is_still(index->entry, index->identity))
			mirror_forget(index->entry);
	}
	LWLockRelease(gpuann_mirror_lock());
}

static void
drop_hook_at_transaction_end(XactEvent event, void *arg)
{
	if (dropped == NIL)
		return;
	if (event == XACT_EVENT_COMMIT)
		forget_dropped();
	/*
	 * A prepared transaction may still be rolled back; if it is committed, the
	 * periodic check finds the entry.
	 */
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		dropped = NIL;
}

static void
drop_hook_at_subtransaction_end(SubXactEvent event, SubTransactionId subid, SubTransactionId parent,
								void *arg)
{
	ListCell   *cell;

	if (event != SUBXACT_EVENT_ABORT_SUB && event != SUBXACT_EVENT_COMMIT_SUB)
		return;
	foreach(cell, dropped)
	{
		DroppedIndex *index = lfirst(cell);

		if (index->subid != subid)
			continue;
		if (event == SUBXACT_EVENT_ABORT_SUB)
			dropped = foreach_delete_current(dropped, cell);
		else
			index->subid = parent;
	}
}

void
drop_hook_init(void)
{
	prev_object_access = object_access_hook;
	object_access_hook = gpuann_object_access;
	RegisterXactCallback(drop_hook_at_transaction_end, NULL);
	RegisterSubXactCallback(drop_hook_at_subtransaction_end, NULL);
}
