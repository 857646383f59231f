/*
 * load_share.c
 *		Coordination of the readers of a load: which parts are claimed, whose
 *		turn to send it is, and whether one has failed.
 *
 * A part is the number of slots sent at once. Readers claim parts in slot
 * order, read them in parallel, and send versions and vectors in slot order
 * again, because rows are appended to a mirror; graph rows are sent in any
 * order. A reader that has to wait keeps its part; one that fails makes the
 * load fail, so no part is left out. The state belongs to one generation of the
 * mirror, which is checked under the mirror lock: readers of an older
 * generation stop.
 */
#include "base/base.h"

#include "mirror/worker.h"

#include "client/database_hook.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"

#define ROWS_PART_BYTES	(2 * 1024 * 1024)	/* of a part of rows, or one row */
#define GRAPH_PART_BYTES	(1024 * 1024)	/* of a part of graph rows, or one superblock */

StaticAssertDecl(ROWS_PART_BYTES <= CHANNEL_ROWS_BYTES, "a part fits a channel");
#define TURN_US		SLICE_US	/* how long a slice waits for its turn */
#define LOOK_MS		100			/* polling interval while waiting */
#define OWNER_GONE_MS	10000	/* helpers exit if a load has had no owner for this long */

/* Slots of the next part. Graph rows are taken by whole superblocks. */
static uint32
part_slots(const IndexFormat *format, const LoadShare *load)
{
	uint64		fit;

	if (load->phase == PHASE_ROWS)
		fit = Max(ROWS_PART_BYTES / channel_row_bytes(format), 1);
	else
		fit = Max(GRAPH_PART_BYTES / graph_row_bytes(format) / format->superblock_slots, 1) *
			  format->superblock_slots;
	return (uint32) Min(fit, load->slots - load->next);
}

/*
 * Check the shared state, and copy the load's progress. Returns the slice's
 * ending if it cannot continue. The mirror lock is held.
 */
static SliceEnding
share_look(MirrorSlice *slice)
{
	const LoadShare *load = &slice->track->load;
	MirrorProgress *progress = slice->progress;

	if (!mirror_is_generation(slice->entry, slice->generation))
		return SLICE_LOST;
	if (load->failure != 0)
	{
		strlcpy(slice->reason, load->reason, sizeof(slice->reason));
		slice->no_memory = load->no_memory;
		return (SliceEnding) load->failure;
	}
	progress->phase = load->phase;
	progress->next_slot = load->sent;
	progress->rows = load->phase == PHASE_ROWS ? load->sent : load->slots;
	return SLICE_IDLE;
}

void
load_share_begin(MirrorSlice *slice)
{
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	if (mirror_is_generation(slice->entry, slice->generation))
		slice->track->load = (LoadShare) {.slots = slice->progress->load_slots};
	LWLockRelease(gpuann_mirror_lock());
}

SliceEnding
load_share_take(MirrorSlice *slice)
{
	LoadShare  *load = &slice->track->load;
	LoadPart   *part = &slice->progress->part;
	SliceEnding ending;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	ending = share_look(slice);
	if (ending == SLICE_IDLE && part->count == 0 && load->next < load->slots)
	{
		part->first = load->next;
		part->count = part_slots(slice->format, load);
		load->next += part->count;
	}
	LWLockRelease(gpuann_mirror_lock());
	return ending;
}

/*
 * Wait until the mirror has the first `sent` slots of the phase, but no longer
 * than TURN_US. Then the slice must end and unlock the index: the reader whose
 * turn it is may wait for a process that waits for our lock.
 */
static SliceEnding
await_sent(MirrorSlice *slice, uint32 sent)
{
	ConditionVariable *moved = &slice->track->load_moved;
	int64		until_us = monotonic_us() + TURN_US;
	SliceEnding ending;

	ConditionVariablePrepareToSleep(moved);
	for (;;)
	{
		LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
		ending = share_look(slice);
		LWLockRelease(gpuann_mirror_lock());
		if (ending != SLICE_IDLE || slice->progress->next_slot == sent)
			break;
		ending = SLICE_MORE;
		if (monotonic_us() >= until_us)
			break;
		(void) ConditionVariableTimedSleep(moved, Max(TURN_US / 1000, 1),
										   shmem_wait_event(SHMEM_WAIT_CHANNEL));
	}
	ConditionVariableCancelSleep();
	return ending;
}

SliceEnding
load_share_await_turn(MirrorSlice *slice)
{
	return await_sent(slice, slice->progress->part.first);
}

SliceEnding
load_share_await_all(MirrorSlice *slice)
{
	return await_sent(slice, slice->progress->load_slots);
}

SliceEnding
load_share_sent(MirrorSlice *slice, uint32 count)
{
	LoadShare  *load = &slice->track->load;
	SliceEnding ending;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	if (mirror_is_generation(slice->entry, slice->generation))
	{
		load->sent += count;
		load->helped += slice->helps;
	}
	ending = share_look(slice);
	LWLockRelease(gpuann_mirror_lock());
	ConditionVariableBroadcast(&slice->track->load_moved);
	return ending;
}

SliceEnding
load_share_begin_graph(MirrorSlice *slice)
{
	LoadShare  *load = &slice->track->load;
	SliceEnding ending;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	if (mirror_is_generation(slice->entry, slice->generation))
	{
		load->phase = PHASE_GRAPH;
		load->next = load->sent = 0;
	}
	ending = share_look(slice);
	LWLockRelease(gpuann_mirror_lock());
	ConditionVariableBroadcast(&slice->track->load_moved);
	return ending;
}

void
load_share_fail(const MirrorSlice *slice, SliceEnding ending)
{
	LoadShare  *load = &slice->track->load;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	if (mirror_is_generation(slice->entry, slice->generation) && load->failure == 0)
	{
		load->failure = ending;
		load->no_memory = slice->no_memory;
		strlcpy(load->reason, slice->reason, sizeof(load->reason));
	}
	LWLockRelease(gpuann_mirror_lock());
	ConditionVariableBroadcast(&slice->track->load_moved);
}

bool
load_share_await_work(MirrorSlice *slice)
{
	const LoadShare *load = &slice->track->load;
	const LoadPart *part = &slice->progress->part;
	ConditionVariable *moved = &slice->track->load_moved;
	int64		owned_ms = monotonic_ms();
	bool		goes_on;
	bool		work;

	ConditionVariablePrepareToSleep(moved);
	for (;;)
	{
		LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
		goes_on = share_look(slice) == SLICE_IDLE && !database_barred(slice->key.database);
		/*
		 * A claimed part of rows: no slice begins before its turn to be sent.
		 */
		if (part->count > 0)
			work = load->phase == PHASE_GRAPH || load->sent == part->first;
		else
			work = load->next < load->slots;
		goes_on &= work || load->phase == PHASE_ROWS;
		if (slice->track->worker >= 0)
			owned_ms = monotonic_ms();
		goes_on &= monotonic_ms() - owned_ms < OWNER_GONE_MS;
		LWLockRelease(gpuann_mirror_lock());
		if (!goes_on || work)
			break;
		(void) ConditionVariableTimedSleep(moved, LOOK_MS, shmem_wait_event(SHMEM_WAIT_WORKER));
	}
	ConditionVariableCancelSleep();
	return goes_on;
}
