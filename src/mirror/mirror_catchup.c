/*
 * mirror_catchup.c
 *		Keep a mirror current: send new pending list entries, then changed node
 *		pages, then perhaps start a pass of the linker.
 *
 * A step reads the metapage and then the newest pending page. Entries up to the
 * end found there are sent before the node pages changed up to the change
 * sequence found on the metapage, so every slot that those pages link is in the
 * mirror. A page is read completely and is at least as new as its change
 * sequence says; if it is newer it is sent again by the next step, which is
 * harmless.
 */
#include "base/base.h"

#include "base/faults.h"
#include "mirror/worker.h"

#include "access/xlogrecovery.h"
#include "engine/bits.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"

#define MAX_ENTRIES		2048	/* pending list entries in one operation */
#define POLL_MS			50		/* on a standby, where no process wakes the worker */
#define IDLE_CHECK_MS	10000	/* on the primary, in case a wake-up is missed */
#define GROWING_CHECK_MS 1000	/* while there are rows that may be linked soon */
#define RATE_MS			100		/* period over which the insert rate is measured */

/* A pending list entry, with the state of its slot in the pages. */
typedef struct Entry
{
	uint32		slot;
	uint32		version;
	bool		live;
} Entry;

static int
compare_entries(const void *a, const void *b)
{
	uint32		x = ((const Entry *) a)->slot;
	uint32		y = ((const Entry *) b)->slot;

	return x < y ? -1 : x > y;
}

/*
 * Read the next pending list entries, in slot order. Returns how many, or -1 if
 * they have been trimmed.
 */
static int
read_entries(const MirrorSlice *slice, const PendingBounds *bounds, Entry **entries)
{
	const IndexFormat *format = slice->format;
	uint64		from = slice->progress->position;
	uint64		fit = CHANNEL_ROWS_BYTES / (channel_row_bytes(format) + sizeof(uint32));
	uint64		to = Min(bounds->end, from + Min(fit, MAX_ENTRIES));
	NodeCopy   *node = palloc(format->node_bytes);
	uint32	   *slots;
	uint32		count;

	if (!pending_read(slice->index, format, bounds, from, to, &slots, &count))
		return -1;
	*entries = palloc(Max(count, 1) * sizeof(Entry));
	for (uint32 i = 0; i < count; i++)
	{
		bool		there = read_node(slice->index, format, slots[i], node);

		(*entries)[i].slot = slots[i];
		(*entries)[i].version = there ? node->version : 0;
		(*entries)[i].live = there && NodeState(node) == NODE_LIVE;
	}
	qsort(*entries, count, sizeof(Entry), compare_entries);
	if (slots != NULL)
		pfree(slots);
	pfree(node);
	return (int) count;
}

/* Send dead slots that the mirror has rows for. */
static SliceEnding
catchup_send_dead(MirrorSlice *slice, const Entry *entries, uint32 count, uint64 position)
{
	ChannelRequest *request = slice_prepare(slice, CHANNEL_DEAD);
	uint32 *slots = channel_array(slice->channel, count * sizeof(uint32), &request->slots_offset);
	uint32	   *versions =
		channel_array(slice->channel, count * sizeof(uint32), &request->versions_offset);
	uint32		sent = 0;		/* not counted in request->count, which others could overwrite */

	for (uint32 i = 0; i < count; i++)
	{
		if (entries[i].live)
			continue;
		node_checksums_forget(slice->sums, entries[i].slot);
		slots[sent] = entries[i].slot;
		versions[sent++] = entries[i].version;
	}
	request->count = sent;
	return sent > 0 ? slice_call_with_position(slice, request, position) : SLICE_IDLE;
}

/*
 * Read the vector of a slot, and its columns, into arrays. As of the vector,
 * those of the version that was read before do not change.
 */
static void
read_row(const MirrorSlice *slice, uint32 slot, unsigned char *vector, unsigned char *columns)
{
	read_vector(slice->index, slice->format, slot, vector);
	if (slice->format->column_bytes > 0)
		read_columns(slice->index, slice->format, slot, 1, columns);
}

/* Send new rows in slots that the mirror has already. */
static SliceEnding
send_overwritten(MirrorSlice *slice, const Entry *entries, uint32 count, uint64 position)
{
	Size		vector_bytes = slice->format->vector_bytes;
	Size		column_bytes = slice->format->column_bytes;
	ChannelRequest *request = slice_prepare(slice, CHANNEL_OVERWRITE);
	uint32 *slots = channel_array(slice->channel, count * sizeof(uint32), &request->slots_offset);
	uint32	   *versions =
		channel_array(slice->channel, count * sizeof(uint32), &request->versions_offset);
	unsigned char *vectors =
		channel_array(slice->channel, count * vector_bytes, &request->body_offset);
	unsigned char *columns =
		channel_array(slice->channel, count * column_bytes, &request->columns_offset);
	uint32		sent = 0;

	for (uint32 i = 0; i < count; i++)
	{
		if (!entries[i].live)
			continue;
		node_checksums_forget(slice->sums, entries[i].slot);
		slots[sent] = entries[i].slot;
		versions[sent] = entries[i].version;
		read_row(slice, entries[i].slot, vectors + sent * vector_bytes,
				 columns + sent * column_bytes);
		sent++;
	}
	request->count = sent;
	return sent > 0 ? slice_call_with_position(slice, request, position) : SLICE_IDLE;
}

/* Send a run of rows in consecutive slots that are new to the mirror. */
static SliceEnding
send_appended(MirrorSlice *slice, const Entry *entries, uint32 count, uint64 position)
{
	Size		vector_bytes = slice->format->vector_bytes;
	Size		column_bytes = slice->format->column_bytes;
	Size		dead_bytes = bits64_bytes(count);
	ChannelRequest *request = slice_prepare(slice, CHANNEL_APPEND);
	uint32	   *versions =
		channel_array(slice->channel, count * sizeof(uint32), &request->versions_offset);
	uint64	   *dead = channel_array(slice->channel, dead_bytes, &request->dead_offset);
	unsigned char *vectors =
		channel_array(slice->channel, count * vector_bytes, &request->body_offset);
	unsigned char *columns =
		channel_array(slice->channel, count * column_bytes, &request->columns_offset);
	uint32		end = entries[0].slot + count;
	SliceEnding ending;

	memset(dead, 0, dead_bytes);
	for (uint32 i = 0; i < count; i++)
	{
		node_checksums_forget(slice->sums, entries[i].slot);
		versions[i] = entries[i].version;
		if (!entries[i].live)
			bit64_set(dead, i);
		read_row(slice, entries[i].slot, vectors + i * vector_bytes, columns + i * column_bytes);
	}
	request->first_slot = entries[0].slot;
	request->count = count;
	request->has_dead = 1;
	if (!slice_note_sent(slice, end, 0))
		return SLICE_LOST;
	ending = slice_call_with_position(slice, request, position);
	if (ending == SLICE_IDLE)
		slice->progress->rows = end;
	return ending;
}

/*
 * Send the next pending list entries: dead slots among the known ones, then
 * overwritten ones, then runs of new ones; the last operation advances the
 * position.
 */
static SliceEnding
send_entries(MirrorSlice *slice, const PendingBounds *bounds)
{
	Entry	   *entries;
	int			count = read_entries(slice, bounds, &entries);
	int			known = 0;
	bool		any_live = false; /* among the known ones */
	uint64		position;
	SliceEnding ending = SLICE_IDLE;

	if (count < 0)
		return SLICE_RELOAD;
	FAULT_POINT("worker-entries");
	position = slice->progress->position + (uint64) count;
	for (; known < count && entries[known].slot < slice->progress->rows; known++)
		any_live |= entries[known].live;
	if (known > 0)
		ending = catchup_send_dead(slice, entries, (uint32) known,
								   known < count || any_live ? NO_POSITION : position);
	if (any_live && ending == SLICE_IDLE)
		ending = send_overwritten(slice, entries, (uint32) known,
								  known < count ? NO_POSITION : position);
	for (int run, begin = known; begin < count && ending == SLICE_IDLE; begin = run)
	{
		for (run = begin + 1; run < count && entries[run].slot == entries[run - 1].slot + 1; run++)
			;
		ending = send_appended(slice, entries + begin, (uint32) (run - begin),
							   run == count ? position : NO_POSITION);
	}
	pfree(entries);
	return ending;
}

/* Whether a superblock has changed since the last scan. */
static bool
superblock_changed(const MirrorSlice *slice, uint32 superblock)
{
	Buffer buffer = slice_read_page(slice, pending_block(slice->format, superblock), PAGE_PENDING);
	bool		changed;

	if (!BufferIsValid(buffer))
		return false;
	changed = PendingPageOf(BufferGetPage(buffer))->superblock_seq > slice->progress->change_seq;
	UnlockReleaseBuffer(buffer);
	return changed;
}

/*
 * Add a change sequence to the targets of the scan. If there are too many
 * targets, a later step does it.
 */
static void
add_scan_target(MirrorProgress *progress, uint64 change_seq)
{
	uint32		count = progress->scan_ntargets;
	uint64 newest = count > 0 ? progress->scan_targets[count - 1].change_seq : progress->change_seq;

	if (change_seq > newest && count < SCAN_TARGETS)
		progress->scan_targets[progress->scan_ntargets++] = (ScanTarget) {.change_seq = change_seq};
}

/* Finish the oldest target. */
static SliceEnding
finish_target(MirrorSlice *slice, const MetaPage *meta)
{
	MirrorProgress *progress = slice->progress;
	SliceEnding ending = load_seeds(slice, meta);

	if (ending != SLICE_IDLE)
		return ending;
	FAULT_POINT("worker-target");
	progress->change_seq = Max(progress->change_seq, progress->scan_targets[0].change_seq);
	slice_note_changes(slice, progress->change_seq);
	progress->scan_ntargets--;
	memmove(progress->scan_targets, progress->scan_targets + 1,
			progress->scan_ntargets * sizeof(ScanTarget));
	return SLICE_IDLE;
}

/*
 * Count superblocks that were visited and whose changes were sent. `next` is
 * the superblock to visit next.
 */
static SliceEnding
count_visits(MirrorSlice *slice, const MetaPage *meta, uint32 visited, uint32 next,
			 uint32 superblocks)
{
	MirrorProgress *progress = slice->progress;
	SliceEnding ending = SLICE_IDLE;

	progress->scan_superblock = next;
	for (uint32 i = 0; i < progress->scan_ntargets; i++)
		progress->scan_targets[i].visited += visited;
	while (ending == SLICE_IDLE && progress->scan_ntargets > 0 &&
		   progress->scan_targets[0].visited >= superblocks)
		ending = finish_target(slice, meta);
	return ending;
}

/*
 * Visit superblocks, round robin, and send what has changed in them since the
 * oldest target was set, until all targets are reached or the slice ends.
 * Collected rows are sent before anything else.
 */
static SliceEnding
scan_superblocks(MirrorSlice *slice, const MetaPage *meta, NodeGathering *gathering)
{
	MirrorProgress *progress = slice->progress;
	const IndexFormat *format = slice->format;
	uint32 superblocks = (progress->rows + format->superblock_slots - 1) / format->superblock_slots;
	uint32		next = progress->scan_superblock;
	uint32		visited = 0;	/* not counted yet */
	bool		time_up = false;

	for (;;)
	{
		SliceEnding ending = SLICE_IDLE;

		CHECK_FOR_INTERRUPTS();
		if (time_up || progress->scan_targets[0].visited + visited >= superblocks)
		{
			ending = gather_send(slice, gathering);
			if (ending == SLICE_IDLE)
				ending = count_visits(slice, meta, visited, next, superblocks);
			visited = 0;
			if (ending == SLICE_IDLE && progress->scan_ntargets == 0)
				return SLICE_IDLE;
			if (ending == SLICE_IDLE && time_up)
				return SLICE_MORE;
		}
		else if (!gather_has_room(gathering))
			ending = gather_post(slice, gathering);
		if (ending != SLICE_IDLE)
			return ending;
		if (next >= superblocks)
			next = 0;
		if (superblock_changed(slice, next))
			gather_superblock(slice, next, progress->change_seq, true, gathering);
		next++;
		visited++;
		/*
		 * Check the time after at least one superblock, so that continuous
		 * inserts cannot starve graph updates.
		 */
		time_up = slice_should_yield(slice);
	}
}

/*
 * Send what has changed since the last scan, until the slice ends. Changes that
 * arrive during a scan are complete one round later, without waiting for the
 * end of the current one first.
 */
static SliceEnding
scan_changes(MirrorSlice *slice, const MetaPage *meta)
{
	NodeGathering gathering;
	SliceEnding ending;

	add_scan_target(slice->progress, meta->change_seq);
	gather_begin(&gathering, slice->format, gather_few(slice->format));
	ending = scan_superblocks(slice, meta, &gathering);
	gather_end(&gathering);
	return ending;
}

/*
 * Compute checksums of what the mirror has, which another process may have
 * loaded, until the slice ends. Pages have not changed since.
 */
static SliceEnding
compute_checksums(MirrorSlice *slice)
{
	uint32	   *learned = node_checksums_learned(slice->sums);

	while ((uint64) *learned * slice->format->superblock_slots < slice->progress->rows)
	{
		CHECK_FOR_INTERRUPTS();
		gather_checksums(slice, (*learned)++, slice->progress->change_seq);
		if (slice_should_yield(slice))
			return SLICE_MORE;
	}
	return SLICE_IDLE;
}

/* The load is complete: let queries use the mirror. */
static void
become_ready(MirrorSlice *slice)
{
	MirrorProgress *progress = slice->progress;
	AreaMirror *mirror = mirror_area(slice->entry);
	uint32		helped = 0;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	if (mirror_is_generation(slice->entry, slice->generation))
	{
		helped = slice->track->load.helped;
		progress->phase = PHASE_SERVING;
		slice->track->progress = *progress;
		slice->track->failures = 0;
		atomic_store(&slice->track->changes_sent, progress->change_seq);
		atomic_store(&mirror->state, MIRROR_READY);
	}
	LWLockRelease(gpuann_mirror_lock());
	ereport(DEBUG1,
			(errmsg_internal("gpuann mirror of index %u loaded: %u slots in " INT64_FORMAT
							 " ms, %u parts by helpers",
							 slice->key.index, progress->rows,
							 monotonic_ms() - progress->load_started_ms, helped)));
}

/* Measure the rate at which the pending list grows. */
static void
measure_insert_rate(MirrorProgress *progress, uint64 end, int64 now)
{
	int64		passed = now - progress->paced_ms;

	if (passed < RATE_MS)
		return;
	progress->pace = progress->paced_ms == 0
						 ? 0
						 : (uint32) Min((end - progress->paced_end) * 1000 / passed, UINT32_MAX);
	progress->paced_end = end;
	progress->paced_ms = now;
}

/* Set when to check the index next, unless the worker is woken before. */
static void
schedule_check(MirrorSlice *slice, const PendingBounds *bounds)
{
	MirrorProgress *progress = slice->progress;
	int64		now = monotonic_ms();

	if (bounds->end != progress->end_seen || progress->grown_ms == 0)
	{
		progress->end_seen = bounds->end;
		progress->grown_ms = now;
	}
	measure_insert_rate(progress, bounds->end, now);
	if (!slice->primary)
		progress->look_at_ms = now + POLL_MS;
	else
		progress->look_at_ms =
			now +
			(bounds->end - bounds->linked >= LINK_MIN_WAITING ? GROWING_CHECK_MS : IDLE_CHECK_MS);
}

SliceEnding
catchup_step(MirrorSlice *slice)
{
	MirrorProgress *progress = slice->progress;
	MetaPage	meta;
	PendingBounds bounds;
	SliceEnding ending = SLICE_IDLE;
	uint64		replayed = slice->primary ? 0 : GetXLogReplayRecPtr(NULL);

	progress->replayed = 0;
	pending_bounds(slice->index, slice->format, &meta, &bounds);
	if (meta.nonce != slice->key.nonce)
		return SLICE_GONE;
	if (bounds.trimmed > progress->position || bounds.end < progress->position ||
		meta.change_seq < progress->change_seq)
		return SLICE_RELOAD;
	schedule_check(slice, &bounds);

	while (progress->position < bounds.end && ending == SLICE_IDLE)
	{
		CHECK_FOR_INTERRUPTS();
		ending = slice_time_is_up(slice) ? SLICE_MORE : send_entries(slice, &bounds);
	}
	if (progress->phase == PHASE_CATCHUP && progress->position >= progress->ready_at &&
		(ending == SLICE_IDLE || ending == SLICE_MORE))
		become_ready(slice);
	if (ending == SLICE_IDLE &&
		(progress->scan_ntargets > 0 || meta.change_seq > progress->change_seq))
		ending = scan_changes(slice, &meta);
	/* More changes may have arrived during the scan. */
	if (ending == SLICE_IDLE && meta.change_seq > progress->change_seq)
		ending = SLICE_MORE;
	if (ending == SLICE_IDLE)
		progress->replayed = replayed;
	if (ending == SLICE_IDLE && slice->sums != NULL && progress->phase == PHASE_SERVING &&
		!link_active(slice->entry))
		ending = compute_checksums(slice);
	if (ending == SLICE_IDLE && slice->may_link && progress->phase == PHASE_SERVING)
		ending = link_start_if_needed(slice, &meta, &bounds);
	return ending;
}
