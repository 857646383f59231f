/*
 * worker_link.c
 *		A mirror worker where no GPU is usable: it has no mirrors to serve, and
 *		links pending rows over pages, so that inserts need not.
 *
 * A slice takes the linker lock for its transaction, if it is free, and links
 * for LINK_SLICE_MS: who waits for the lock, or for the index, waits no longer.
 */
#include "base/base.h"

#include "client/shmem.h"
#include "mirror/worker.h"

#include "access/xlog.h"

#define LOOK_MS			1000	/* between looks at an index that has nothing to link */

/* When this worker looked at an index, and what it saw. */
typedef struct PendingLook
{
	uint32		identity;		/* of the entry; another one's counts for nothing */
	bool		looked;
	int64		next_ms;
	uint64		end;			/* of the pending list, */
	int64		grown_ms;		/* and since when it ends there */
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
	/* An index that failed is refused for a while, as its mirror would be. */
	if (RecoveryInProgress() || !mirror_is_due(entry, now))
		return false;
	if (now < look->next_ms)
	{
		*wait_ms = (int) (look->next_ms - now);
		return false;
	}
	return atomic_load(&mirror_area(entry)->changed) != 0 || !look->looked;
}

/* Whether what is pending is worth a slice now. */
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
	 * The flag goes down before pages are read: who finds it up does not wake
	 * us.
	 */
	atomic_store(changed, 0);
	look->looked = true;
	pending_bounds(slice->index, slice->format, &meta, &bounds);
	if (!is_worth_it(look, &meta, &bounds, now))
	{
		look->next_ms = now + LOOK_MS;
		/*
		 * They are to be linked when they have waited: by the next worker,
		 * should this one leave.
		 */
		if (bounds.end - bounds.linked >= LINK_LEAST_WAITING)
			atomic_store(changed, 1);
		return SLICE_IDLE;
	}
	/* Until a look finds nothing to link. */
	atomic_store(changed, 1);
	if (link_for(slice->index, slice->format, LINK_SLICE_MS))
		return SLICE_MORE;
	look->next_ms = now + LOOK_MS;	/* somebody links, or vacuums */
	return SLICE_IDLE;
}
