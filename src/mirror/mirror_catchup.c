/*
 * mirror_catchup.c
 *		Keeping a mirror current: new list entries first, then changed node
 *		pages, then perhaps a pass of the linker.
 *
 * A look reads metapage and newest pending page, in this order. Entries up to
 * the end that it saw are sent before the node pages that have changed up to
 * the number that it saw, so every slot that those pages link is in the mirror.
 * A page is read whole and at least as new as the number says; what is newer is
 * sent again by the next look, which does no harm.
 */
#include "base/base.h"

#include "base/faults.h"
#include "mirror/worker.h"

#include "access/xlogrecovery.h"
#include "engine/bits.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"

#define MOST_ENTRIES	2048	/* list entries in one step */
#define POLL_MS			50		/* on a standby, where nobody tells */
#define RELOOK_MS		10000	/* elsewhere, in case nobody did */
#define GROWING_LOOK_MS	1000	/* while there are rows that may be linked soon */
#define PACE_MS			100		/* over which the pace of inserts is taken */

/* A list entry, with what its page says. */
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
 * The next list entries in slot order; their number, or -1 if they have been
 * trimmed.
 */
static int
read_entries(const MirrorSlice *slice, const PendingBounds *bounds, Entry **entries)
{
	const IndexFormat *format = slice->format;
	uint64		from = slice->progress->position;
	uint64		fit =
		(CHANNEL_DATA_BYTES - 4 * AREA_ALIGN) / (format->vector_bytes + 2 * sizeof(uint32) + 1);
	uint64		to = Min(bounds->end, from + Min(fit, MOST_ENTRIES));
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

/* Send the death of slots that the mirror knows. */
static SliceEnding
send_dead(MirrorSlice *slice, const Entry *entries, uint32 count, uint64 position)
{
	ChannelRequest *request = slice_prepare(slice, CHANNEL_DEAD);
	uint32 *slots = channel_array(slice->channel, count * sizeof(uint32), &request->slots_offset);
	uint32	   *versions =
		channel_array(slice->channel, count * sizeof(uint32), &request->versions_offset);
	uint32		sent = 0;		/* not counted in the channel: whoever writes there would say where
								 * we write */

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

/* Send rows that came into slots which the mirror knows. */
static SliceEnding
send_overwritten(MirrorSlice *slice, const Entry *entries, uint32 count, uint64 position)
{
	Size		vector_bytes = slice->format->vector_bytes;
	ChannelRequest *request = slice_prepare(slice, CHANNEL_OVERWRITE);
	uint32 *slots = channel_array(slice->channel, count * sizeof(uint32), &request->slots_offset);
	uint32	   *versions =
		channel_array(slice->channel, count * sizeof(uint32), &request->versions_offset);
	unsigned char *vectors =
		channel_array(slice->channel, count * vector_bytes, &request->body_offset);
	uint32		sent = 0;

	for (uint32 i = 0; i < count; i++)
	{
		if (!entries[i].live)
			continue;
		node_checksums_forget(slice->sums, entries[i].slot);
		slots[sent] = entries[i].slot;
		versions[sent] = entries[i].version;
		read_vector(slice->index, slice->format, entries[i].slot, vectors + sent++ * vector_bytes);
	}
	request->count = sent;
	return sent > 0 ? slice_call_with_position(slice, request, position) : SLICE_IDLE;
}

/* Send a run of rows in consecutive slots that the mirror does not know. */
static SliceEnding
send_appended(MirrorSlice *slice, const Entry *entries, uint32 count, uint64 position)
{
	Size		vector_bytes = slice->format->vector_bytes;
	Size		dead_bytes = bits64_bytes(count);
	ChannelRequest *request = slice_prepare(slice, CHANNEL_APPEND);
	uint32	   *versions =
		channel_array(slice->channel, count * sizeof(uint32), &request->versions_offset);
	uint64	   *dead = channel_array(slice->channel, dead_bytes, &request->dead_offset);
	unsigned char *vectors =
		channel_array(slice->channel, count * vector_bytes, &request->body_offset);
	uint32		end = entries[0].slot + count;
	SliceEnding ending;

	memset(dead, 0, dead_bytes);
	for (uint32 i = 0; i < count; i++)
	{
		node_checksums_forget(slice->sums, entries[i].slot);
		versions[i] = entries[i].version;
		if (!entries[i].live)
			bit64_set(dead, i);
		read_vector(slice->index, slice->format, entries[i].slot, vectors + i * vector_bytes);
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
 * Send the next list entries: known slots, those that died first, then runs of
 * new ones; with the last of them the position.
 */
static SliceEnding
send_entries(MirrorSlice *slice, const PendingBounds *bounds)
{
	Entry	   *entries;
	int			count = read_entries(slice, bounds, &entries);
	int			known = 0;
	bool		living = false; /* of the known */
	uint64		position;
	SliceEnding ending = SLICE_IDLE;

	if (count < 0)
		return SLICE_RELOAD;
	FAULT_POINT("worker-entries");
	position = slice->progress->position + (uint64) count;
	for (; known < count && entries[known].slot < slice->progress->rows; known++)
		living |= entries[known].live;
	if (known > 0)
		ending = send_dead(slice, entries, (uint32) known,
						   known < count || living ? NO_POSITION : position);
	if (living && ending == SLICE_IDLE)
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

/* Whether something has changed in a superblock since the last scan. */
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
 * What pages have changed by now is to come to the mirror too; where too many
 * such numbers wait already, a later look takes it up.
 */
static void
aim_at(MirrorProgress *progress, uint64 change_seq)
{
	uint32		count = progress->scan_ntargets;
	uint64 newest = count > 0 ? progress->scan_targets[count - 1].change_seq : progress->change_seq;

	if (change_seq > newest && count < SCAN_TARGETS)
		progress->scan_targets[progress->scan_ntargets++] = (ScanTarget) {.change_seq = change_seq};
}

/* The oldest target is reached. */
static SliceEnding
reach_target(MirrorSlice *slice, const MetaPage *meta)
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
 * So many superblocks more were visited, and what they had to tell was told;
 * `next` comes next.
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
		ending = reach_target(slice, meta);
	return ending;
}

/*
 * Go round the superblocks, and send what has changed in them since the oldest
 * target was reached, as far as time allows. What was gathered is sent before
 * anything else is.
 */
static SliceEnding
scan_superblocks(MirrorSlice *slice, const MetaPage *meta, NodeGathering *gathering)
{
	MirrorProgress *progress = slice->progress;
	const IndexFormat *format = slice->format;
	uint32 superblocks = (progress->rows + format->superblock_slots - 1) / format->superblock_slots;
	uint32		next = progress->scan_superblock;
	uint32		visited = 0;	/* since they were counted */
	bool		over = false;

	for (;;)
	{
		SliceEnding ending = SLICE_IDLE;

		CHECK_FOR_INTERRUPTS();
		if (over || progress->scan_targets[0].visited + visited >= superblocks)
		{
			ending = gather_send(slice, gathering);
			if (ending == SLICE_IDLE)
				ending = count_visits(slice, meta, visited, next, superblocks);
			visited = 0;
			if (ending == SLICE_IDLE && progress->scan_ntargets == 0)
				return SLICE_IDLE;
			if (ending == SLICE_IDLE && over)
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
		 * looked at after one at least: rows that come all the time must not
		 * keep edges from the mirror
		 */
		over = slice_over_for_news(slice);
	}
}

/*
 * Send what has changed since the last scan, as far as time allows. Changes
 * that come while it goes on wait for one round, not for the end of this one
 * first.
 */
static SliceEnding
scan_changes(MirrorSlice *slice, const MetaPage *meta)
{
	NodeGathering gathering;
	SliceEnding ending;

	aim_at(slice->progress, meta->change_seq);
	gather_begin(&gathering, slice->format);
	ending = scan_superblocks(slice, meta, &gathering);
	gather_end(&gathering);
	return ending;
}

/*
 * Learn what the mirror has, which others may have brought there, as far as
 * time allows. Nothing has changed since.
 */
static SliceEnding
learn_nodes(MirrorSlice *slice)
{
	uint32	   *learned = node_checksums_learned(slice->sums);

	while ((uint64) *learned * slice->format->superblock_slots < slice->progress->rows)
	{
		CHECK_FOR_INTERRUPTS();
		gather_learn(slice, (*learned)++, slice->progress->change_seq);
		if (slice_over_for_news(slice))
			return SLICE_MORE;
	}
	return SLICE_IDLE;
}

/* The load is complete: queries may come. */
static void
become_ready(MirrorSlice *slice)
{
	MirrorProgress *progress = slice->progress;
	AreaMirror *mirror = mirror_area(slice->entry);

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	if (mirror_is_generation(slice->entry, slice->generation))
	{
		progress->phase = PHASE_SERVING;
		slice->track->progress = *progress;
		slice->track->failures = 0;
		atomic_store(&slice->track->changes_sent, progress->change_seq);
		atomic_store(&mirror->state, MIRROR_READY);
	}
	LWLockRelease(gpuann_mirror_lock());
	ereport(DEBUG1,
			(errmsg_internal("gpuann mirror of index %u loaded: %u slots in " INT64_FORMAT " ms",
							 slice->key.index, progress->rows,
							 monotonic_ms() - progress->load_started_ms)));
}

/* How fast the list grows. */
static void
take_pace(MirrorProgress *progress, uint64 end, int64 now)
{
	int64		passed = now - progress->paced_ms;

	if (passed < PACE_MS)
		return;
	progress->pace = progress->paced_ms == 0
						 ? 0
						 : (uint32) Min((end - progress->paced_end) * 1000 / passed, UINT32_MAX);
	progress->paced_end = end;
	progress->paced_ms = now;
}

/* When to look again, unless somebody says that there is something to see. */
static void
plan_look(MirrorSlice *slice, const PendingBounds *bounds)
{
	MirrorProgress *progress = slice->progress;
	int64		now = monotonic_ms();

	if (bounds->end != progress->end_seen || progress->grown_ms == 0)
	{
		progress->end_seen = bounds->end;
		progress->grown_ms = now;
	}
	take_pace(progress, bounds->end, now);
	if (!slice->primary)
		progress->look_at_ms = now + POLL_MS;
	else
		progress->look_at_ms =
			now +
			(bounds->end - bounds->linked >= LINK_LEAST_WAITING ? GROWING_LOOK_MS : RELOOK_MS);
}

SliceEnding
catchup_step(MirrorSlice *slice)
{
	MirrorProgress *progress = slice->progress;
	MetaPage	meta;
	PendingBounds	bounds;
	SliceEnding ending = SLICE_IDLE;
	uint64		replayed = slice->primary ? 0 : GetXLogReplayRecPtr(NULL);

	progress->replayed = 0;
	pending_bounds(slice->index, slice->format, &meta, &bounds);
	if (meta.nonce != slice->key.nonce)
		return SLICE_GONE;
	if (bounds.trimmed > progress->position || bounds.end < progress->position ||
		meta.change_seq < progress->change_seq)
		return SLICE_RELOAD;
	plan_look(slice, &bounds);

	while (progress->position < bounds.end && ending == SLICE_IDLE)
	{
		CHECK_FOR_INTERRUPTS();
		ending = slice_over(slice) ? SLICE_MORE : send_entries(slice, &bounds);
	}
	if (progress->phase == PHASE_CATCHUP && progress->position >= progress->ready_at &&
		(ending == SLICE_IDLE || ending == SLICE_MORE))
		become_ready(slice);
	if (ending == SLICE_IDLE &&
		(progress->scan_ntargets > 0 || meta.change_seq > progress->change_seq))
		ending = scan_changes(slice, &meta);
	/* Something newer may have come while the scan under way went on. */
	if (ending == SLICE_IDLE && meta.change_seq > progress->change_seq)
		ending = SLICE_MORE;
	if (ending == SLICE_IDLE)
		progress->replayed = replayed;
	if (ending == SLICE_IDLE && slice->sums != NULL && progress->phase == PHASE_SERVING &&
		!link_active(slice->entry))
		ending = learn_nodes(slice);
	if (ending == SLICE_IDLE && slice->may_link && progress->phase == PHASE_SERVING)
		link_consider(slice, &meta, &bounds);
	return ending;
}
