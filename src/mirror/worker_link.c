/*
 * worker_link.c
 *		A mirror worker without a usable GPU: there are no mirrors, so it links
 *		pending rows over the pages, which inserts then need not do.
 *
 * A slice takes the linker lock for its transaction, if it is free, and links
 * for SLICE_MS, so that processes waiting for the lock or the index wait no
 * longer than that.
 */
#include "base/base.h"

#include "client/shmem.h"
#include "mirror/worker.h"

#include "access/xlog.h"

#define SLICE_MS		200
#define LOOK_MS			1000	/* interval of checks while there is nothing to link */

/* When this worker checked an index, and what it found. */
typedef struct PendingLook
{
	uint32		identity;		/* of the entry; with another identity this is invalid */
	bool		looked;
	int64		next_ms;
	uint64		end;			/* end of the pending list */
	int64		grown_ms;		/* when that last changed */
} PendingLook;

static PendingLook looks[AREA_MIRRORS];

bool
pending_is_due(int entry, int64 now, int *wait_ms)
{
	uint32		identity = atomic_load(&mirror_track(entry)->identity);
	PendingLook *look = &looks[entry];

	*wait_ms = LOOK_MS;
	if (look->identity != identity)
	{
		memset(look, 0, sizeof(*look));
		look->identity = identity;
	}
	/* an index that failed is refused for a while, as its mirror would be */
	if (RecoveryInProgress() || !mirror_is_due(entry, now))
		return false;
	if (now < look->next_ms)
	{
		*wait_ms = (int) (look->next_ms - now);
		return false;
	}
	return atomic_load(&mirror_area(entry)->changed) != 0 || !look->looked;
}

/* Whether there is enough to link for a slice. */
static bool
is_worth_it(PendingLook *look, const MetaPage *meta, const PendingBounds *bounds, int64 now)
{
	uint64		unlinked = bounds->end - bounds->linked;

	if (look->end != bounds->end)
	{
		look->end = bounds->end;
		look->grown_ms = now;
	}
	return unlinked >= link_crowd(meta->linked_slots) ||
		(unlinked >= LINK_LEAST_WAITING && now - look->grown_ms >= LINK_WAITING_MS);
}

SliceEnding
pending_link(MirrorSlice *slice)
{
	PendingLook *look = &looks[slice->entry];
	_Atomic uint32_t *changed = &mirror_area(slice->entry)->changed;
	int64		now = monotonic_ms();
	MetaPage	meta;
	PendingBounds	bounds;

	/*
	 * Clear `changed` before reading pages: processes that find it set do not
	 * wake us.
	 */
	atomic_store(changed, 0);
	look->looked = true;
	pending_bounds(slice->index, slice->format, &meta, &bounds);
	if (!is_worth_it(look, &meta, &bounds, now))
	{
		look->next_ms = now + LOOK_MS;
		/*
		 * They are to be linked after waiting, by the next worker if this one
		 * exits.
		 */
		if (bounds.end - bounds.linked >= LINK_LEAST_WAITING)
			atomic_store(changed, 1);
		return SLICE_IDLE;
	}
	/* keep checking until there is nothing to link */
	atomic_store(changed, 1);
	if (link_for(slice->index, slice->format, SLICE_MS))
		return SLICE_MORE;
	look->next_ms = now + LOOK_MS;	/* another process links or vacuums */
	return SLICE_IDLE;
}
