/*
 * worker_link.c
 *		A mirror worker without a usable GPU: there are no mirrors, so it links
 *		pending rows over the pages, which inserts then need not do.
 *
 * A slice takes the linker lock for its transaction, if it is free, and links
 * for LINK_SLICE_MS. Processes waiting for the lock or the index wait until it
 * has written what it has linked then.
 */
#include "base/base.h"

#include "client/shmem.h"
#include "mirror/worker.h"

#include "access/xlog.h"

#define CHECK_MS		1000	/* interval of checks while there is nothing to link */

/* When this worker checked an index, and what it found. */
typedef struct PendingCheck
{
	uint32		identity;		/* of the entry; with another identity this is invalid */
	bool		checked;
	int64		next_ms;
	uint64		end;			/* end of the pending list */
	int64		grown_ms;		/* when that last changed */
} PendingCheck;

static PendingCheck checks[AREA_MIRRORS];

bool
pending_is_due(int entry, int64 now, int *wait_ms)
{
	uint32		identity = atomic_load(&mirror_track(entry)->identity);
	PendingCheck *check = &checks[entry];

	*wait_ms = CHECK_MS;
	if (check->identity != identity)
	{
		memset(check, 0, sizeof(*check));
		check->identity = identity;
	}
	/* an index that failed is refused for a while, as its mirror would be */
	if (RecoveryInProgress() || !mirror_is_due(entry, now))
		return false;
	if (now < check->next_ms)
	{
		*wait_ms = (int) (check->next_ms - now);
		return false;
	}
	return atomic_load(&mirror_area(entry)->changed) != 0 || !check->checked;
}

/* Whether there is enough to link for a slice. */
static bool
enough_to_link(PendingCheck *check, const MetaPage *meta, const PendingBounds *bounds, int64 now)
{
	uint64		unlinked = bounds->end - bounds->linked;

	if (check->end != bounds->end)
	{
		check->end = bounds->end;
		check->grown_ms = now;
	}
	return unlinked >= link_threshold(meta->linked_slots) ||
		(unlinked >= LINK_MIN_WAITING && now - check->grown_ms >= LINK_WAITING_MS);
}

SliceEnding
pending_link(MirrorSlice *slice)
{
	PendingCheck *check = &checks[slice->entry];
	_Atomic uint32_t *changed = &mirror_area(slice->entry)->changed;
	int64		now = monotonic_ms();
	MetaPage	meta;
	PendingBounds bounds;

	/*
	 * Clear `changed` before reading pages: processes that find it set do not
	 * wake us.
	 */
	atomic_store(changed, 0);
	check->checked = true;
	pending_bounds(slice->index, slice->format, &meta, &bounds);
	if (!enough_to_link(check, &meta, &bounds, now))
	{
		check->next_ms = now + CHECK_MS;
		/*
		 * They are to be linked after waiting, by the next worker if this one
		 * exits.
		 */
		if (bounds.end - bounds.linked >= LINK_MIN_WAITING)
			atomic_store(changed, 1);
		return SLICE_IDLE;
	}
	/* keep checking until there is nothing to link */
	atomic_store(changed, 1);
	if (link_for(slice->index, slice->format, LINK_SLICE_MS))
		return SLICE_MORE;
	check->next_ms = now + CHECK_MS; /* another process links or vacuums */
	return SLICE_IDLE;
}
