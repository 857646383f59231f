/*
 * mirror_link.c
 *		Linking through the server: the engine computes graph rows in pieces,
 *		then the worker writes them, a slice at a time.
 *
 * A pass holds the linker lock (session level) from collecting the pending
 * slots to writing their rows. The engine links a piece of about PIECE_MS at a
 * time, and between pieces the mirror is kept current; rows that several pieces
 * changed are kept once, as the last piece left them. When somebody waits for
 * the lock, or memory for rows is used up, what there is gets written, and the
 * pending position stays: the next pass goes on behind rows that are linked
 * already. Who waits for the rows to be linked (gpuann_link) has said so, and
 * the pass goes on to that position: the engine has the graph, and need not
 * load it as that session would.
 *
 * Where rows come so fast that there will soon be enough to write, a pass
 * begins before there are, and stays open for those that come: every query
 * searches exactly what the engine has not linked, whatever the pages say.
 *
 * An engine may refuse: a GPU links no mirror with rows in host memory, nor
 * where it lacks memory to. What it has linked of the pass is written, and for
 * REFUSED_MS rows are linked over pages, from where the mirror takes the graph.
 */
#include "base/base.h"

#include "client/shmem.h"
#include "base/faults.h"
#include "link/link_write.h"
#include "mirror/worker.h"

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

/*
 * A pass is opened for so many rows if at their pace there are enough to write
 * within OPEN_MS; it is closed then, or when no more have come for a while.
 */
#define EARLY_ENTRIES		64
#define OPEN_MS				10000
#define CLOSE_MS			200

/*
 * How long a piece is to take, with fetching what it changed: no longer,
 * because the mirror cannot follow meanwhile. Smaller ones cost the engine no
 * more (10,000 rows onto 20,000 x 128 on two cores: 2.5 s of processor time by
 * pieces of 50 ms, 2.2 to 2.4 s by those of 4 ms), down to a number of rows at
 * which what each piece costs would show.
 */
#define PIECE_MS			4
#define PIECE_MOST_MS		50		/* but not less than twice what comes meanwhile, up to this, or
									 * the engine would never come to the end */
#define FIRST_PIECE			64
#define LEAST_PIECE			32
#define MOST_PIECE			16384
#define PIECE_DEADLINE_US	(60 * 1000000)
#define REFUSED_MS			60000	/* an engine that refused to link is not asked again for so
									 * long */

/* Where a slot's row stands among the rows collected. */
typedef struct ChangedRow
{
	uint32		slot;			/* hash key */
	uint32		place;
} ChangedRow;

typedef struct LinkWork
{
	int			entry;			/* -1: no pass is under way */
	uint32		generation;
	MemoryContext memory;
	int			channel;
	bool		in_flight;
	bool		refused;		/* the engine links no more */
	bool		linked_any;		/* the mirror has rows that the pages have not */
	int64		opened_ms;
	uint64		wanted;			/* somebody waits for the list to be linked up to here: the pass
								 * does not yield before; 0: nobody */
	LinkPass	pass;
	uint32	   *todo;			/* the slots of the pass, as they are sent */
	uint32		done;			/* of todo, sent */
	uint32		sent;			/* of these, with the last piece */
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
	RowWriter  *writer;			/* NULL: not yet */
	bool		whole;			/* the pass is linked to its end */
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
link_outlived(void)
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
link_rests(int entry)
{
	return work.entry == entry && !work.in_flight && work.writer == NULL && work.done > 0 &&
		   work.done == work.pass.count;
}

/* Forget the pass. The lock is let go by its owner. */
static void
forget_work(void)
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
	 * The index may be gone, and this process holds no other lock over
	 * transactions.
	 */
	LockReleaseAll(DEFAULT_LOCKMETHOD, true);
	forget_work();
}

/* List entries that are enough to write. */
static uint64
crowd(const MirrorSlice *slice)
{
	return link_crowd(slice->progress->rows);
}

/* Whether so many entries will be enough to write within a time. */
static bool
will_be_crowd(const MirrorSlice *slice, uint64 unlinked, int64 ms)
{
	return unlinked + (uint64) slice->progress->pace * (uint64) Max(ms, 0) / 1000 >= crowd(slice);
}

/* Whether there is enough to write, or it has waited. */
static bool
is_enough(const MirrorSlice *slice, const PendingBounds *bounds)
{
	uint64		unlinked = bounds->end - bounds->linked;

	return unlinked >= crowd(slice) ||
		   (unlinked >= LINK_LEAST_WAITING &&
			monotonic_ms() - slice->progress->grown_ms >= LINK_WAITING_MS);
}

/* Whether a pass of the engine is worth it now. */
static bool
worth_it(const MirrorSlice *slice, const PendingBounds *bounds)
{
	uint64		unlinked = bounds->end - bounds->linked;

	return is_enough(slice, bounds) || atomic_load(&slice->track->link_wanted) > bounds->linked ||
		   (unlinked >= EARLY_ENTRIES && will_be_crowd(slice, unlinked, OPEN_MS));
}

/* Link over pages for a slice, if nobody else links: the engine refuses to. */
static void
consider_pages(MirrorSlice *slice, const PendingBounds *bounds)
{
	if (is_enough(slice, bounds) && link_for(slice->index, slice->format, LINK_SLICE_MS))
		slice->progress->look_at_ms = 0;
}

/*
 * Have the slots of the pass linked, those from one on behind those before. In
 * random order: rows that were inserted together are often alike, and pieces of
 * likes make poor edges.
 */
static void
choose_todo(uint32 first)
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

/* Take on what somebody waits for. */
static void
take_on_wanted(const MirrorSlice *slice)
{
	uint64		wanted = atomic_exchange(&slice->track->link_wanted, 0);

	work.wanted = Max(work.wanted, wanted);
}

/* Begin a pass, with the lock held. */
static void
begin_pass(const MirrorSlice *slice)
{
	HASHCTL		info;
	MemoryContext before;

	work.degree = slice->format->degree;
	work.piece = FIRST_PIECE;
	work.memory =
		AllocSetContextCreate(TopMemoryContext, "gpuann link pass", ALLOCSET_DEFAULT_SIZES);
	memset(&info, 0, sizeof(info));
	info.keysize = sizeof(uint32);
	info.entrysize = sizeof(ChangedRow);
	info.hcxt = work.memory;
	work.changed =
		hash_create("gpuann changed rows", 1024, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	work.room = 1024;
	work.rows = MemoryContextAllocHuge(work.memory, work.room * work.degree * sizeof(uint32));

	slice->progress->seeds_sum = 0; /* the engine will choose some */
	before = MemoryContextSwitchTo(work.memory);
	work.opened_ms = monotonic_ms();
	link_collect(slice->index, slice->format, 0, &work.pass);
	work.todo = palloc(sizeof(uint32));
	choose_todo(0);
	MemoryContextSwitchTo(before);
	take_on_wanted(slice);
}

/* Whether the rows collected fill the memory allowed. */
static bool
memory_used_up(void)
{
	return (Size) work.nrows * (work.degree * sizeof(uint32) + 64) >
		   (Size) maintenance_work_mem * 1024;
}

/* Whether rows that somebody waits for are not in the pass yet. */
static bool
lacks_wanted(void)
{
	return work.wanted > work.pass.to && !memory_used_up();
}

/* Whether a pass without anything to do waits for rows that come. */
static bool
stays_open(const MirrorSlice *slice)
{
	int64		now = monotonic_ms();

	return work.done > 0 && !memory_used_up() && now - slice->progress->grown_ms < CLOSE_MS &&
		   !linker_lock_wanted(slice->index, true) &&
		   work.pass.to - work.pass.from < crowd(slice) &&
		   will_be_crowd(slice, work.pass.to - work.pass.from, work.opened_ms + OPEN_MS - now);
}

/*
 * Take rows that have come into the pass, if they are enough for a piece or
 * somebody waits for them.
 */
static void
take_more(const MirrorSlice *slice)
{
	uint32		first = work.pass.count;
	MemoryContext before;

	if (slice->progress->position < work.pass.to + (work.wanted > work.pass.to ? 1 : EARLY_ENTRIES))
		return;
	before = MemoryContextSwitchTo(work.memory);
	link_collect_more(slice->index, slice->format, slice->progress->position, &work.pass);
	choose_todo(first);
	MemoryContextSwitchTo(before);
}

void
link_consider(MirrorSlice *slice, const MetaPage *meta, const PendingBounds *bounds)
{
	MetaPage	now;

	if (work.entry >= 0)
		return;
	if (monotonic_ms() < atomic_load(&slice->track->link_again_ms))
	{
		consider_pages(slice, bounds);
		return;
	}
	if (!worth_it(slice, bounds) || !linker_lock(slice->index, false, true))
		return;
	/* From here on an error finds the pass, and lets go of the lock. */
	work.entry = slice->entry;
	work.generation = slice->generation;
	read_meta(slice->index, &now);
	work.channel = channel_claim();
	if (work.channel < 0 || now.change_seq != meta->change_seq ||
		now.linked_position != bounds->linked)
	{
		/* Somebody linked or vacuumed until just now: follow first. */
		linker_unlock(slice->index, true);
		forget_work();
		slice->progress->look_at_ms = 0;
		return;
	}
	begin_pass(slice);
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

/* Keep one row that the engine changed. */
static void
keep_row(const MirrorSlice *slice, uint32 slot, const uint32 *row)
{
	uint32	   *kept;
	bool		found;
	ChangedRow *changed = hash_search(work.changed, &slot, HASH_ENTER, &found);

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
 * Fetch a part of the result, from an element on; SLICE_IDLE with *count 0 is
 * the end.
 */
static SliceEnding
fetch_part(MirrorSlice *slice, uint32 first, bool seeds, uint32 *count)
{
	ChannelRequest *request =
		channel_prepare(work.channel, CHANNEL_LINK_FETCH, (uint32) slice->entry, slice->generation);
	uint32		rows = slice->progress->rows;
	LinkPart	part;
	const char *text;
	EngineStatus status;

	request->first_slot = first;
	request->has_seeds = seeds;
	status = channel_fetch_linked(work.channel, UINT32_MAX, seeds, work.degree,
								  monotonic_us() + PIECE_DEADLINE_US, &part, &text);
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
		keep_row(slice, slot, part.rows + (Size) i * work.degree);
	}
	return SLICE_IDLE;
}

/* How large the next piece is to be, if the last one took so long. */
static uint32
next_piece(const MirrorSlice *slice, int64 took_us)
{
	int64		in_time = (int64) work.piece * PIECE_MS * 1000 / took_us;
	int64		in_most_time = (int64) work.piece * PIECE_MOST_MS * 1000 / took_us;
	int64		keeps_up = 2 * (int64) slice->progress->pace * took_us / 1000000;

	return (uint32) Max(LEAST_PIECE, Min(Max(in_time, Min(keeps_up, in_most_time)),
										 (int64) Min(MOST_PIECE, work.piece * 4)));
}

/* The engine refused a piece, and is not asked for others for a while. */
static void
piece_refused(const MirrorSlice *slice, const char *text)
{
	_Atomic int64_t *again_ms = &slice->track->link_again_ms;

	ereport(atomic_load(again_ms) == 0 ? LOG : DEBUG1,
			(errmsg("rows of gpuann index %u are linked over pages", slice->key.index),
			 errdetail("%s", text)));
	atomic_store(again_ms, monotonic_ms() + REFUSED_MS);
	work.done -= work.sent;
	work.refused = true;
}

/* Take over what a piece changed; seeds only of the last piece. */
static SliceEnding
take_piece(MirrorSlice *slice)
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
	 * It was answered before the slice began, in which the mirror has caught up
	 * since.
	 */
	took_us += monotonic_us() - began_us;
	work.piece = next_piece(slice, Max(took_us, 1));
	return ending;
}

/* Fetch the seeds that the last piece left. */
static SliceEnding
take_seeds(MirrorSlice *slice)
{
	uint32		count = 1;
	SliceEnding ending = SLICE_IDLE;

	while (count > 0 && ending == SLICE_IDLE && work.nseeds < slice->progress->rows)
		ending = fetch_part(slice, work.nseeds, true, &count);
	return ending;
}

#define ST_SORT sort_changed
#define ST_ELEMENT_TYPE ChangedRow
#define ST_COMPARE(a, b) ((a)->slot < (b)->slot ? -1 : (a)->slot > (b)->slot)
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/* The collected rows in the order of their slots. */
static void
sort_rows(LinkedRows *linked)
{
	ChangedRow *order =
		MemoryContextAllocHuge(work.memory, Max(work.nrows, 1) * sizeof(ChangedRow));
	HASH_SEQ_STATUS scan;
	ChangedRow *changed;
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

static int
compare_slots(const void *a, const void *b)
{
	uint32		x = *(const uint32 *) a;
	uint32		y = *(const uint32 *) b;

	return x < y ? -1 : x > y;
}

/*
 * Slots of the pass for which the engine gave no row: its mirror had them as
 * linked, or as dead.
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
	qsort(missing->slots, missing->count, sizeof(uint32), compare_slots);
}

/* Begin to write what was linked. */
static void
begin_writing(MirrorSlice *slice, bool whole)
{
	MemoryContext before = MemoryContextSwitchTo(work.memory);
	MetaPage	meta;
	PendingBounds	bounds;

	pending_bounds(slice->index, slice->format, &meta, &bounds);
	sort_rows(&work.linked);
	find_missing(&work.missing);
	work.whole = whole;
	work.writer =
		row_writer_begin(slice->format, &work.linked, bounds.next_fresh, meta.change_seq + 1);
	MemoryContextSwitchTo(before);
}

static bool
time_is_over(const void *slice)
{
	return slice_over_for_news(slice);
}

/*
 * The rows are written: if that is the whole pass, say how far the list is
 * linked now.
 */
static void
end_writing(MirrorSlice *slice)
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

	/* What the engine wrote is what the mirror has; only the number is new. */
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
link_take(MirrorSlice *slice)
{
	SliceEnding ending;

	if (!work.in_flight)
		return SLICE_IDLE;
	ending = take_piece(slice);
	/*
	 * To fetch many rows takes a while: what came meanwhile is not to wait for
	 * the next piece too.
	 */
	return ending == SLICE_IDLE && slice_over_for_news(slice) ? SLICE_MORE : ending;
}

/* The pass is over. */
static void
end_pass(MirrorSlice *slice)
{
	linker_unlock(slice->index, true);
	forget_work();
	slice->progress->look_at_ms = 0;
}

/*
 * Write as long as the slice lasts; between slices whoever has locked the index
 * ends the pass.
 */
static SliceEnding
go_on_writing(MirrorSlice *slice)
{
	if (!row_writer_go_on(work.writer, slice->index, time_is_over, slice))
		return SLICE_MORE;
	end_writing(slice);
	end_pass(slice);
	return SLICE_IDLE;
}

SliceEnding
link_go_on(MirrorSlice *slice)
{
	SliceEnding ending = SLICE_IDLE;
	bool		whole;

	if (work.writer != NULL)
		return go_on_writing(slice);
	if (work.refused && !work.linked_any)
	{
		end_pass(slice);
		return SLICE_IDLE;
	}
	take_on_wanted(slice);
	if (!work.refused && work.done == work.pass.count && (lacks_wanted() || stays_open(slice)))
	{
		take_more(slice);
		if (work.done == work.pass.count)
			return SLICE_IDLE;
	}
	whole = work.done == work.pass.count;
	if (!whole && !work.refused && !memory_used_up() &&
		(work.done == 0 || work.wanted > 0 || !linker_lock_wanted(slice->index, true)))
		return post_piece(slice);

	if (work.done > 0)
		ending = take_seeds(slice);
	if (ending != SLICE_IDLE)
		return ending;
	begin_writing(slice, whole);
	return go_on_writing(slice);
}
