/*
 * mirror_link.c
 *		Linking by the server: the engine computes graph rows in pieces, then
 *		the worker writes them to the pages, slice by slice.
 *
 * A pass holds the linker lock (session level) from collecting the pending
 * slots to writing their rows. The engine links a piece of about PIECE_MS at a
 * time, and the mirror is kept current between pieces. Rows changed by several
 * pieces are written once, in their last state. If another process waits for
 * the lock, or the memory for rows is used up, the rows linked so far are
 * written without advancing the linked position; the next pass skips them. If a
 * session waits for the rows themselves (gpuann_link()), the pass continues to
 * the position it waits for, because the engine has the graph loaded and that
 * session has not.
 *
 * If rows arrive so fast that there will soon be enough to write, a pass starts
 * early and stays open for them, because queries scan rows exactly until the
 * engine has linked them, whether or not the pages have their graph rows.
 *
 * Rows of an index with lists depend on no others: a pass asks the engine for
 * lists and codes and writes them in one slice (link_lists.c).
 *
 * An engine may refuse: a GPU where it lacks memory to, or where rows are in
 * host memory and have no codes. What it has linked of the pass is written, and
 * for REFUSED_MS rows are linked over pages, from where the mirror takes the
 * graph.
 */
#include "base/base.h"

#include "client/shmem.h"
#include "base/faults.h"
#include "base/sorts.h"
#include "link/link_write.h"
#include "mirror/worker.h"

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

/*
 * A pass starts early with this many rows, if at the current rate there will be
 * enough to write within OPEN_MS. It ends then, or when no rows have arrived
 * for CLOSE_MS.
 */
#define EARLY_ENTRIES		64
#define OPEN_MS				10000
#define CLOSE_MS			200

/*
 * Duration of a piece, including fetching its results. It is short because the
 * mirror is not updated meanwhile. Smaller pieces cost the engine no more
 * (10,000 rows onto 20,000 x 128 on two cores: 2.5 s of processor time in
 * pieces of 50 ms, 2.2 to 2.4 s in pieces of 4 ms), until the overhead per
 * piece becomes visible.
 */
#define PIECE_MS			4
#define PIECE_MAX_MS		50		/* up to this, a piece has at least twice the rows that arrive
									 * meanwhile, or the engine would never catch up */
#define FIRST_PIECE			64
#define MIN_PIECE			32
#define MAX_PIECE			16384
#define PIECE_DEADLINE_US	(60 * 1000000)
#define REFUSED_MS			60000	/* after a refusal the engine is not asked again for this long
									 */

/* Place of a slot's row among the collected rows. */
typedef struct LinkChangedRow
{
	uint32		slot;			/* hash key */
	uint32		place;
} LinkChangedRow;

typedef struct LinkWork
{
	int			entry;			/* -1: no pass in progress */
	uint32		generation;
	MemoryContext memory;
	int			channel;
	bool		in_flight;
	bool		refused;		/* the engine refused to link more */
	bool		linked_any;		/* the mirror has linked rows that the pages do not have */
	int64		opened_ms;
	uint64		wanted;			/* a session waits until the list is linked up to here, so the pass
								 * does not end before; 0: none */
	LinkPass	pass;
	uint32	   *todo;			/* slots of the pass, in the order of sending */
	uint32		done;			/* number of slots of todo sent */
	uint32		sent;			/* number of these in the last piece */
	uint32		piece;
	int64		posted_us;
	uint32		degree;
	HTAB	   *changed;
	uint32		nrows;
	Size		room;
	uint32	   *rows;
	uint32		nseeds;
	uint32	   *seeds;

	/* writing, in slices */
	RowWriter  *writer;			/* NULL: not writing yet */
	bool		whole;			/* the pass was linked completely */
	LinkedRows	linked;
	LinkPass	missing;
} LinkWork;

static LinkWork work = {.entry = -1, .channel = -1};

bool
link_active(int entry)
{
	return entry < 0 ? work.entry >= 0 : work.entry == entry;
}

bool
link_lost_mirror(void)
{
	uint32		epoch;

	return work.entry >= 0 &&
		(!shmem_server_ready(&epoch) || !mirror_is_generation(work.entry, work.generation));
}

bool
link_in_flight(int entry)
{
	return work.entry == entry && work.in_flight && !channel_has_answer(work.channel) &&
		monotonic_us() - work.posted_us < PIECE_DEADLINE_US;
}

bool
link_waits_for_rows(int entry)
{
	return work.entry == entry && !work.in_flight && work.writer == NULL && work.done > 0 &&
		   work.done == work.pass.count;
}

/* Discard the pass. The caller releases the lock. */
static void
discard_pass(void)
{
	if (work.channel >= 0)
		channel_release(work.channel);
	if (work.memory != NULL)
		MemoryContextDelete(work.memory);
	memset(&work, 0, sizeof(work));
	work.entry = work.channel = -1;
}

void
link_abandon(void)
{
	if (work.entry < 0)
		return;
	if (work.linked_any || work.in_flight)
	{
		LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
		if (mirror_is_generation(work.entry, work.generation))
			(void) mirror_invalidate(work.entry, MIRROR_WANTED);
		LWLockRelease(gpuann_mirror_lock());
	}
	/*
	 * The index may not exist any more, so release all locks; this process
	 * holds no other session lock.
	 */
	LockReleaseAll(DEFAULT_LOCKMETHOD, true);
	discard_pass();
}

/* Number of pending list entries that make writing worthwhile. */
static uint64
write_threshold(const MirrorSlice *slice)
{
	return link_threshold(slice->progress->rows);
}

/*
 * Whether there will be enough entries to write within a time, at the current
 * rate.
 */
static bool
will_reach_threshold(const MirrorSlice *slice, uint64 unlinked, int64 ms)
{
	return unlinked + (uint64) slice->progress->pace * (uint64) Max(ms, 0) / 1000 >=
		   write_threshold(slice);
}

/* The engine refuses to link, and is not asked again for a while. */
static void
note_refusal(const MirrorSlice *slice, const char *text)
{
	_Atomic int64_t *again_ms = &slice->track->link_again_ms;

	ereport(atomic_load(again_ms) == 0 ? LOG : DEBUG1,
			(errmsg("rows of gpuann index %u are linked over pages", slice->key.index),
			 errdetail("%s", text)));
	atomic_store(again_ms, monotonic_ms() + REFUSED_MS);
}

/* Whether there is enough to write, or it has waited long enough. */
static bool
is_enough(const MirrorSlice *slice, const PendingBounds *bounds)
{
	uint64		unlinked = bounds->end - bounds->linked;

	return unlinked >= write_threshold(slice) ||
		   (unlinked >= LINK_MIN_WAITING &&
			monotonic_ms() - slice->progress->grown_ms >= LINK_WAITING_MS);
}

/*
 * Whether to start a pass of the engine now. One of lists does not stay open,
 * so it has no reason to start early.
 */
static bool
should_start_pass(const MirrorSlice *slice, const PendingBounds *bounds)
{
	uint64		unlinked = bounds->end - bounds->linked;

	return is_enough(slice, bounds) || atomic_load(&slice->track->link_wanted) > bounds->linked ||
		   (!format_has_lists(slice->format) && unlinked >= EARLY_ENTRIES &&
			will_reach_threshold(slice, unlinked, OPEN_MS));
}

/*
 * Link over pages for a slice, unless another process links, because the engine
 * refuses to.
 */
static void
consider_pages(MirrorSlice *slice, const PendingBounds *bounds)
{
	if (is_enough(slice, bounds) && link_for(slice->index, slice->format, LINK_SLICE_MS))
		slice->progress->look_at_ms = 0;
}

/*
 * Put rows into lists for a slice, unless another process links: the engine
 * assigns and encodes them, and they are written to the pages at once. The pass
 * takes what the mirror is current to, and is left to the next slice if the
 * linker or VACUUM was active until now.
 */
static SliceEnding
link_lists(MirrorSlice *slice, const MetaPage *meta)
{
	ListServer	server = {.channel = slice->channel, .entry = (uint32) slice->entry,
						  .generation = slice->generation,
						  .position = slice->progress->position,
						  .call_us = slice_call_deadline(slice) - monotonic_us()};
	LinkManner	manner = {.slice_ms = LINK_SLICE_MS, .server = &server};
	MetaPage	now;

	if (!linker_lock(slice->index, false, false))
		return SLICE_IDLE;
	/*
	 * from now on a session that waits for the rows waits for the linker lock,
	 * which this slice holds
	 */
	(void) atomic_exchange(&slice->track->link_wanted, 0);
	read_meta(slice->index, &now);
	if (now.change_seq == meta->change_seq)
		(void) link_passes(slice->index, slice->format, &manner);
	linker_unlock(slice->index, false);
	slice->progress->look_at_ms = 0;
	ereport(DEBUG1, (errmsg_internal("the server put %u rows of gpuann index %u into lists",
									 server.coded, slice->key.index)));
	if (server.failed == ENGINE_NO_MEMORY || server.failed == ENGINE_UNSUPPORTED)
		note_refusal(slice, server.reason);
	else if (server.failed != ENGINE_OK)
		return slice_failed(slice, server.failed, server.reason);
	return SLICE_IDLE;
}

/*
 * Append the slots of the pass from index `first` on to todo, in random order:
 * rows inserted together are often similar, and pieces of similar rows get poor
 * edges.
 */
static void
shuffle_todo(uint32 first)
{
	work.todo = repalloc_huge(work.todo, Max(work.pass.count, 1) * sizeof(uint32));
	memcpy(work.todo + first, work.pass.slots + first, (work.pass.count - first) * sizeof(uint32));
	for (uint32 i = work.pass.count; i > first + 1; i--)
	{
		uint32		other = (uint32) pg_prng_uint64_range(&pg_global_prng_state, first, i - 1);
		uint32		slot = work.todo[i - 1];

		work.todo[i - 1] = work.todo[other];
		work.todo[other] = slot;
	}
}

/* Take over the position that a session waits for. */
static void
take_wanted_position(const MirrorSlice *slice)
{
	uint64		wanted = atomic_exchange(&slice->track->link_wanted, 0);

	work.wanted = Max(work.wanted, wanted);
}

/* Start a pass; the linker lock is held. */
static void
begin_pass(const MirrorSlice *slice)
{
	HASHCTL		info = {.keysize = sizeof(uint32), .entrysize = sizeof(LinkChangedRow)};
	MemoryContext before;

	work.degree = slice->format->degree;
	work.piece = FIRST_PIECE;
	work.memory =
		AllocSetContextCreate(TopMemoryContext, "gpuann link pass", ALLOCSET_DEFAULT_SIZES);
	info.hcxt = work.memory;
	work.changed =
		hash_create("gpuann changed rows", 1024, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	work.room = 1024;
	work.rows = MemoryContextAllocHuge(work.memory, work.room * work.degree * sizeof(uint32));

	slice->progress->seeds_sum = 0; /* the engine will choose some */
	before = MemoryContextSwitchTo(work.memory);
	work.opened_ms = monotonic_ms();
	link_collect(slice->index, slice->format, PG_UINT64_MAX, 0, &work.pass);
	work.todo = palloc(sizeof(uint32));
	shuffle_todo(0);
	MemoryContextSwitchTo(before);
	take_wanted_position(slice);
}

/* Whether the collected rows use up the allowed memory. */
static bool
memory_used_up(void)
{
	return (Size) work.nrows * (work.degree * sizeof(uint32) + 64) >
		   (Size) maintenance_work_mem * 1024;
}

/* Whether the pass does not include all rows that a session waits for. */
static bool
lacks_wanted_rows(void)
{
	return work.wanted > work.pass.to && !memory_used_up();
}

/* Whether a pass without work waits for more rows. */
static bool
stays_open(const MirrorSlice *slice)
{
	int64		now = monotonic_ms();

	return work.done > 0 && !memory_used_up() && now - slice->progress->grown_ms < CLOSE_MS &&
		   !linker_lock_wanted(slice->index, true) &&
		   work.pass.to - work.pass.from < write_threshold(slice) &&
		   will_reach_threshold(slice, work.pass.to - work.pass.from,
								work.opened_ms + OPEN_MS - now);
}

/*
 * Add new rows to the pass, if they are enough for a piece or a session waits
 * for them.
 */
static void
extend_pass(const MirrorSlice *slice)
{
	uint32		first = work.pass.count;
	MemoryContext before;

	if (slice->progress->position < work.pass.to + (work.wanted > work.pass.to ? 1 : EARLY_ENTRIES))
		return;
	before = MemoryContextSwitchTo(work.memory);
	link_collect_more(slice->index, slice->format, slice->progress->position, &work.pass);
	shuffle_todo(first);
	MemoryContextSwitchTo(before);
}

SliceEnding
link_start_if_needed(MirrorSlice *slice, const MetaPage *meta, const PendingBounds *bounds)
{
	MetaPage	now;

	if (work.entry >= 0)
		return SLICE_IDLE;
	if (monotonic_ms() < atomic_load(&slice->track->link_again_ms))
	{
		consider_pages(slice, bounds);
		return SLICE_IDLE;
	}
	if (!should_start_pass(slice, bounds))
		return SLICE_IDLE;
	if (format_has_lists(slice->format))
		return link_lists(slice, meta);
	if (!linker_lock(slice->index, false, true))
		return SLICE_IDLE;
	/* from here on link_abandon() releases the lock after an error */
	work.entry = slice->entry;
	work.generation = slice->generation;
	read_meta(slice->index, &now);
	work.channel = channel_claim();
	if (work.channel < 0 || now.change_seq != meta->change_seq ||
		now.linked_position != bounds->linked)
	{
		/* the linker or VACUUM was active until now: catch up first */
		linker_unlock(slice->index, true);
		discard_pass();
		slice->progress->look_at_ms = 0;
		return SLICE_IDLE;
	}
	begin_pass(slice);
	return SLICE_IDLE;
}

/* Send the next piece to the engine. */
static SliceEnding
post_piece(MirrorSlice *slice)
{
	uint32		count = Min(work.piece, work.pass.count - work.done);
	ChannelRequest *request =
		channel_prepare(work.channel, CHANNEL_LINK, (uint32) slice->entry, slice->generation);
	uint32	   *slots = channel_array(work.channel, count * sizeof(uint32), &request->slots_offset);

	memcpy(slots, work.todo + work.done, count * sizeof(uint32));
	request->count = count;
	request->ef_construction = slice->format->ef_construction;
	work.posted_us = monotonic_us();
	work.in_flight = channel_post(work.channel);
	work.done += count;
	work.sent = count;
	return work.in_flight ? SLICE_IDLE : SLICE_LOST;
}

/* Keep a row that the engine changed, replacing an earlier version. */
static void
pass_keep_row(const MirrorSlice *slice, uint32 slot, const uint32 *row)
{
	uint32	   *kept;
	bool		found;
	LinkChangedRow *changed = hash_search(work.changed, &slot, HASH_ENTER, &found);

	if (!found)
	{
		if (work.nrows == work.room)
		{
			work.room *= 2;
			work.rows = repalloc_huge(work.rows, work.room * work.degree * sizeof(uint32));
		}
		changed->place = work.nrows++;
	}
	kept = work.rows + (Size) changed->place * work.degree;
	memcpy(kept, row, work.degree * sizeof(uint32));
	(void) node_checksums_note(slice->sums, slot,
							   node_checksum(kept, work.degree, slice->progress->rows, 0));
}

/*
 * Fetch a part of the result, starting at element `first`. At the end *count is
 * 0.
 */
static SliceEnding
fetch_part(MirrorSlice *slice, uint32 first, bool seeds, uint32 *count)
{
	uint32		rows = slice->progress->rows;
	LinkWanted	wanted = {.arrays = seeds ? FETCH_SEEDS : FETCH_ROWS, .first = first,
						  .most = UINT32_MAX, .degree = work.degree};
	LinkPart	part;
	const char *text;
	EngineStatus status;

	(void) channel_prepare(work.channel, CHANNEL_LINK_FETCH, (uint32) slice->entry,
						   slice->generation);
	status = channel_fetch_linked(work.channel, &wanted, monotonic_us() + PIECE_DEADLINE_US, &part,
								  &text);
	if (status != ENGINE_OK)
		return slice_failed(slice, status, text);
	*count = part.count;
	if (seeds && *count > 0)
	{
		work.seeds = work.seeds
						 ? repalloc_huge(work.seeds, ((Size) first + *count) * sizeof(uint32))
						 : MemoryContextAllocHuge(work.memory, *count * sizeof(uint32));
		memcpy(work.seeds + first, part.slots, *count * sizeof(uint32));
		work.nseeds = first + *count;
	}
	for (uint32 i = 0; i < *count && !seeds; i++)
	{
		uint32		slot = *(const volatile uint32 *) &part.slots[i];

		if (slot >= rows)
			return slice_failed(slice, ENGINE_INVALID,
								"the server linked a slot that does not exist");
		pass_keep_row(slice, slot, part.rows + (Size) i * work.degree);
	}
	return SLICE_IDLE;
}

/* Size of the next piece, from the duration of the last one. */
static uint32
next_piece(const MirrorSlice *slice, int64 took_us)
{
	int64		in_time = (int64) work.piece * PIECE_MS * 1000 / took_us;
	int64		in_most_time = (int64) work.piece * PIECE_MAX_MS * 1000 / took_us;
	int64		keeps_up = 2 * (int64) slice->progress->pace * took_us / 1000000;

	return (uint32) Max(MIN_PIECE, Min(Max(in_time, Min(keeps_up, in_most_time)),
									   (int64) Min(MAX_PIECE, work.piece * 4)));
}

/* The engine refused a piece, and is not asked for others for a while. */
static void
piece_refused(const MirrorSlice *slice, const char *text)
{
	note_refusal(slice, text);
	work.done -= work.sent;
	work.refused = true;
}

/*
 * Fetch the rows that a piece changed. Seeds are fetched after the last piece
 * only.
 */
static SliceEnding
fetch_piece(MirrorSlice *slice)
{
	EngineStatus status;
	const char *text;
	uint32		wanted;
	uint32		fetched = 0;
	uint32		count;
	int64		began_us = monotonic_us();
	int64		took_us = slice->until_us - SLICE_US - work.posted_us;
	SliceEnding ending = SLICE_IDLE;

	if (!channel_answered(work.channel, &status, &text))
		return slice_failed(slice, ENGINE_FAILED, "the server does not answer");
	work.in_flight = false;
	if (status != ENGINE_OK && channel_link_refused(work.channel, status))
	{
		piece_refused(slice, text);
		return SLICE_IDLE;
	}
	work.linked_any = true;
	if (status != ENGINE_OK)
		return slice_failed(slice, status, text);
	FAULT_POINT("worker-piece");
	wanted = *(volatile uint32_t *) &shared_channel((uint32) work.channel)->out_count;
	if (wanted > slice->progress->rows)
		return slice_failed(slice, ENGINE_INVALID, "the server changed more rows than there are");
	while (fetched < wanted && ending == SLICE_IDLE)
	{
		ending = fetch_part(slice, fetched, false, &count);
		if (ending == SLICE_IDLE && count == 0)
			break;
		fetched += ending == SLICE_IDLE ? count : 0;
	}
	/*
	 * The piece was answered before this slice began, part of which was spent
	 * on catching up.
	 */
	took_us += monotonic_us() - began_us;
	work.piece = next_piece(slice, Max(took_us, 1));
	return ending;
}

/* Fetch the seeds after the last piece. */
static SliceEnding
pass_fetch_seeds(MirrorSlice *slice)
{
	uint32		count = 1;
	SliceEnding ending = SLICE_IDLE;

	while (count > 0 && ending == SLICE_IDLE && work.nseeds < slice->progress->rows)
		ending = fetch_part(slice, work.nseeds, true, &count);
	return ending;
}

#define ST_SORT sort_changed
#define ST_ELEMENT_TYPE LinkChangedRow
#define ST_COMPARE(a, b) ((a)->slot < (b)->slot ? -1 : (a)->slot > (b)->slot)
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/* Sort the collected rows by slot. */
static void
sort_rows(LinkedRows *linked)
{
	LinkChangedRow *order =
		MemoryContextAllocHuge(work.memory, Max(work.nrows, 1) * sizeof(LinkChangedRow));
	HASH_SEQ_STATUS scan;
	LinkChangedRow *changed;
	uint32		count = 0;

	hash_seq_init(&scan, work.changed);
	while ((changed = hash_seq_search(&scan)) != NULL)
		order[count++] = *changed;
	sort_changed(order, count);

	linked->count = count;
	linked->slots = MemoryContextAllocHuge(work.memory, Max(count, 1) * sizeof(uint32));
	linked->places = MemoryContextAllocHuge(work.memory, Max(count, 1) * sizeof(uint32));
	linked->rows = work.rows;
	for (uint32 i = 0; i < count; i++)
	{
		linked->slots[i] = order[i].slot;
		linked->places[i] = order[i].place;
	}
	linked->nseeds = work.nseeds;
	linked->seeds = work.seeds;
}

/*
 * Find slots of the pass for which the engine returned no row, because its
 * mirror has them as linked or dead.
 */
static void
find_missing(LinkPass *missing)
{
	missing->from = work.pass.from;
	missing->to = work.pass.to;
	missing->live = work.pass.live;
	missing->count = 0;
	missing->slots = MemoryContextAllocHuge(work.memory, Max(work.pass.count, 1) * sizeof(uint32));
	for (uint32 i = 0; i < work.pass.count; i++)
	{
		if (hash_search(work.changed, &work.todo[i], HASH_FIND, NULL) == NULL)
			missing->slots[missing->count++] = work.todo[i];
	}
	sort_slots(missing->slots, missing->count);
}

/* Start writing the linked rows. */
static void
start_writing(MirrorSlice *slice, bool whole)
{
	MemoryContext before = MemoryContextSwitchTo(work.memory);
	MetaPage	meta;
	PendingBounds bounds;

	pending_bounds(slice->index, slice->format, &meta, &bounds);
	sort_rows(&work.linked);
	find_missing(&work.missing);
	work.whole = whole;
	work.writer =
		row_writer_begin(slice->format, &work.linked, bounds.next_fresh, meta.change_seq + 1);
	MemoryContextSwitchTo(before);
}

static bool
write_time_is_up(const void *slice)
{
	return slice_should_yield(slice);
}

/*
 * Finish writing. If the pass was linked completely, advance the linked
 * position.
 */
static void
finish_writing(MirrorSlice *slice)
{
	MemoryContext before = MemoryContextSwitchTo(work.memory);
	LinkPass	pass = work.pass;
	LinkedRows	rows;
	MetaPage	meta;
	uint64		trimmable;

	if (!work.whole || work.missing.count > 0)
	{
		pass.to = pass.from;
		pass.count = pass.live = 0;
	}
	trimmable = link_write_end(slice->index, slice->format, &pass, &work.linked);
	work.linked_any = false;

	/* The mirror has the rows written; only the change sequence is new. */
	read_meta(slice->index, &meta);
	if (!work.whole || work.missing.count == 0)
	{
		slice->progress->change_seq = meta.change_seq;
		slice_note_changes(slice, meta.change_seq);
	}
	pending_trim(slice->index, slice->format, trimmable);
	if (work.whole && work.missing.count > 0)
	{
		memset(&rows, 0, sizeof(rows));
		link_over_pages(slice->index, slice->format, &work.missing, &rows);
		link_write(slice->index, slice->format, &work.missing, &rows);
	}
	MemoryContextSwitchTo(before);
}

bool
link_await(int most_ms)
{
	_Atomic uint32_t *word;
	uint32		value;

	if (work.entry < 0 || !work.in_flight)
		return false;
	word = &shared_channel((uint32) work.channel)->state;
	value = atomic_load(word);
	if (!channel_has_answer(work.channel))
		(void) shmem_wait(word, value, monotonic_us() + most_ms * 1000,
						  shmem_wait_event(SHMEM_WAIT_CHANNEL), NULL);
	return true;
}

SliceEnding
link_fetch(MirrorSlice *slice)
{
	SliceEnding ending;

	if (!work.in_flight)
		return SLICE_IDLE;
	ending = fetch_piece(slice);
	/*
	 * Fetching many rows takes a while, so check for new rows before sending
	 * the next piece.
	 */
	return ending == SLICE_IDLE && slice_should_yield(slice) ? SLICE_MORE : ending;
}

/* The pass is over. */
static void
end_pass(MirrorSlice *slice)
{
	linker_unlock(slice->index, true);
	discard_pass();
	slice->progress->look_at_ms = 0;
}

/*
 * Write until the slice ends. Between slices, a lock on the index by another
 * process ends the pass.
 */
static SliceEnding
continue_writing(MirrorSlice *slice)
{
	if (!row_writer_go_on(work.writer, slice->index, write_time_is_up, slice))
		return SLICE_MORE;
	finish_writing(slice);
	end_pass(slice);
	return SLICE_IDLE;
}

SliceEnding
link_continue(MirrorSlice *slice)
{
	SliceEnding ending = SLICE_IDLE;
	bool		whole;

	if (work.writer != NULL)
		return continue_writing(slice);
	if (work.refused && !work.linked_any)
	{
		end_pass(slice);
		return SLICE_IDLE;
	}
	take_wanted_position(slice);
	if (!work.refused && work.done == work.pass.count && (lacks_wanted_rows() || stays_open(slice)))
	{
		extend_pass(slice);
		if (work.done == work.pass.count)
			return SLICE_IDLE;
	}
	whole = work.done == work.pass.count;
	if (!whole && !work.refused && !memory_used_up() &&
		(work.done == 0 || work.wanted > 0 || !linker_lock_wanted(slice->index, true)))
		return post_piece(slice);

	if (work.done > 0)
		ending = pass_fetch_seeds(slice);
	if (ending != SLICE_IDLE)
		return ending;
	start_writing(slice, whole);
	return continue_writing(slice);
}
