/*
 * pending.c
 *		The pending list and the append lock: assigns slots to new rows, and
 *		lists rows that are not in the graph yet.
 *
 * The exclusive lock on the newest pending page is the append lock. A process
 * that waited for it and finds the page closed follows its link. Appends, new
 * superblocks, closing of pages, frees and trims all hold it; see README.md for
 * the lock order.
 */
#include "postgres.h"

#include "page/pending.h"

#include "access/generic_xlog.h"
#include "base/faults.h"
#include "miscadmin.h"
#include "page/append_wal.h"
#include "page/columns.h"
#include "utils/rel.h"

/* Maximum number of pages that a vector can touch. */
#define MAX_VECTOR_PARTS	(ENGINE_MAX_DIMS * sizeof(float) / GPUANN_PAYLOAD + 2)

/*
 * How often a reader restarts from the metapage before it reports the list as
 * damaged.
 */
#define MAX_RESTARTS	100

/* Part of a vector on one page. */
typedef struct VectorPart
{
	BlockNumber block;
	uint32		offset;			/* offset in the page's payload */
	uint32		bytes;
	const char *from;
	bool		first;			/* first data on the page, which has to be initialized */
} VectorPart;

/* A row being inserted. */
typedef struct AppendedRow
{
	uint32		slot;
	bool		fresh;			/* slot never used before */
	ItemPointer tid;
	const ColumnRecord *columns;	/* NULL: the index includes none */
	float		least_norm;		/* range that the vector's norm is in */
	float		most_norm;
	VectorPart	parts[MAX_VECTOR_PARTS];
	int			nparts;
} AppendedRow;

/*
 * Whether a file of this many blocks contains all superblocks and all slots
 * that were used.
 */
static bool
file_holds(const IndexFormat *format, const AppendPoint *append, BlockNumber blocks)
{
	uint32		last = append->next_fresh - 1;
	VectorPlace place;

	if (superblock_start(format, 0) +
			(uint64) (append->superblocks - 1) * format->superblock_pages >=
		blocks)
		return false;
	if (append->next_fresh == 0)
		return true;
	place = vector_place(format, last);
	for (uint32 end = place.offset + format->vector_bytes; end > GPUANN_PAYLOAD;
		 end -= GPUANN_PAYLOAD)
		vector_place_next(format, &place);
	return place.block < blocks && node_block(format, last) < blocks;
}

/*
 * Check the newest pending page. Returns the fault, or NULL. The file of this
 * many blocks must contain everything the page refers to, because callers do
 * not check it again.
 */
static const char *
newest_page_fault(const IndexFormat *format, const PendingPage *pending, BlockNumber blocks)
{
	const AppendPoint *append = &pending->append;

	if (pending->count > GPUANN_PENDING_CAPACITY)
		return "the pending page holds more than it can";
	if (append->superblocks < 1 || append->next_fresh > ENGINE_MAX_SLOTS ||
		append->next_fresh > (uint64) append->superblocks * format->superblock_slots)
		return "the next fresh slot is beyond the superblocks";
	if (append->free_count > append->next_fresh ||
		(append->free_count == 0) != (append->free_head == NO_SLOT) ||
		(append->free_head != NO_SLOT && append->free_head >= append->next_fresh))
		return "the free list is not consistent";
	if (append->spare_head != InvalidBlockNumber && !is_pending_block(format, append->spare_head))
		return "the spare pending page is where no pending page can be";
	if (!(append->least_norm >= 0 && append->most_norm >= 0))	/* also excludes NaN */
		return "the range of norms is not consistent";
	if (!file_holds(format, append, blocks))
		return "the file ends before its last slot";
	return NULL;
}

/* Find and lock the newest pending page, starting from the cached hint. */
static Buffer
lock_newest(Relation index, const IndexFormat *format, int mode)
{
	BlockNumber block = index_newest_hint(index);
	int			restarts = 0;
	uint32		hops = 0;

	for (;;)
	{
		Buffer		buffer;
		PendingPage *pending;
		BlockNumber next;

		CHECK_FOR_INTERRUPTS();
		buffer = mode == BUFFER_LOCK_SHARE ? read_hinted_page(index, block, PAGE_PENDING, false) :
			read_page(index, block, PAGE_PENDING, mode, false);
		pending = PendingPageOf(BufferGetPage(buffer));
		if (pending->state == PENDING_NEWEST)
		{
			const char *fault = newest_page_fault(format, pending, index_known_blocks(index));

			/* the file may have been extended since its length was cached */
			if (fault != NULL)
				fault = newest_page_fault(format, pending, index_ask_blocks(index));
			if (fault != NULL)
				report_corrupt(index, block, fault);
			index_set_newest_hint(index, block);
			return buffer;
		}
		next = pending->state == PENDING_CLOSED ? pending->next : InvalidBlockNumber;
		UnlockReleaseBuffer(buffer);

		if (is_pending_block(format, next))
		{
			/* A chain cannot be longer than the file. */
			if (++hops > 64 &&
				hops > 64 + RelationGetNumberOfBlocks(index) / format->superblock_pages)
				report_corrupt(index, block, "the pending pages form a circle");
			block = next;
		}
		else if (++restarts > MAX_RESTARTS)
			report_corrupt(index, block, "the newest pending page cannot be found");
		else
		{
			MetaPage	meta;

			read_meta(index, &meta);
			block = meta.newest_pending;
		}
	}
}

/*
 * Lock the newest pending page (the append lock); returns its buffer, pinned
 * and exclusively locked.
 */
static Buffer
append_lock(Relation index, const IndexFormat *format)
{
	return lock_newest(index, format, BUFFER_LOCK_EXCLUSIVE);
}

/*
 * Read the end of the list and the limits of slots.
 */
void
pending_end(Relation index, const IndexFormat *format, PendingBounds *bounds)
{
	Buffer		buffer = lock_newest(index, format, BUFFER_LOCK_SHARE);
	const PendingPage *pending = PendingPageOf(BufferGetPage(buffer));

	bounds->end = pending->first_position + pending->count;
	bounds->next_fresh = pending->append.next_fresh;
	bounds->free_count = pending->append.free_count;
	bounds->superblocks = pending->append.superblocks;
	bounds->least_norm = pending->append.least_norm;
	bounds->most_norm = pending->append.most_norm;
	bounds->newest_count = Min(pending->count, PENDING_NEWEST_SLOTS);
	memcpy(bounds->newest, pending->slots + pending->count - bounds->newest_count,
		   bounds->newest_count * sizeof(uint32));
	UnlockReleaseBuffer(buffer);
}

/*
 * Copy the beginning of the list from the metapage.
 */
static void
bounds_set_begin(const MetaPage *meta, PendingBounds *bounds)
{
	bounds->trimmed = meta->trimmed_position;
	bounds->linked = meta->linked_position;
	bounds->oldest_pending = meta->oldest_pending;
}

/*
 * Read the beginning of the list after its end. Meanwhile more may have been
 * linked than the end covers, so `linked` is limited to it.
 */
void
pending_begin(Relation index, MetaPage *meta, PendingBounds *bounds)
{
	read_meta(index, meta);
	bounds_set_begin(meta, bounds);
	bounds->linked = Min(bounds->linked, bounds->end);
}

/*
 * Read the bounds of the list: `linked` before `end`, so that no row is missed.
 */
void
pending_bounds(Relation index, const IndexFormat *format, MetaPage *meta, PendingBounds *bounds)
{
	read_meta(index, meta);
	bounds_set_begin(meta, bounds);
	FAULT_POINT("bounds-begun");
	pending_end(index, format, bounds);
	if (bounds->linked > bounds->end)
		report_corrupt(index, GPUANN_META_BLOCK,
					   "more of the pending list is linked than there is");
}

/*
 * Add a superblock. The caller holds the append lock. Its pending page becomes
 * spare.
 */
static void
add_superblock(Relation index, const IndexFormat *format, Buffer newest)
{
	uint32		superblock = PendingPageOf(BufferGetPage(newest))->append.superblocks;
	BlockNumber block;
	Buffer		buffer;
	GenericXLogState *xlog;
	AppendPoint *append;
	Page		page;

	check_row_limit(index, format, superblock);
	block = pending_block(format, superblock);
	extend_to(index, block);
	buffer = ReadBuffer(index, block);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);

	xlog = GenericXLogStart(index);
	append = &PendingPageOf(GenericXLogRegisterBuffer(xlog, newest, 0))->append;
	page = GenericXLogRegisterBuffer(xlog, buffer, GENERIC_XLOG_FULL_IMAGE);
	page_init(page, PAGE_PENDING, superblock);
	PendingPageOf(page)->next = append->spare_head;
	append->spare_head = block;
	append->superblocks++;
	FAULT_POINT("superblock-begin");
	GenericXLogFinish(xlog);
	UnlockReleaseBuffer(buffer);
	FAULT_POINT("superblock-begun");
}

/*
 * The same for callers that need its posting pages.
 */
uint32
pending_add_superblock(Relation index, const IndexFormat *format)
{
	Buffer		newest = append_lock(index, format);
	uint32		superblocks;

	add_superblock(index, format, newest);
	superblocks = PendingPageOf(BufferGetPage(newest))->append.superblocks;
	UnlockReleaseBuffer(newest);
	return superblocks;
}

/*
 * Close a full newest pending page and make a spare one the newest. Returns
 * that buffer, locked; the old one is released.
 */
static Buffer
append_next_page(Relation index, const IndexFormat *format, Buffer old)
{
	BlockNumber block;
	Buffer		new,
				meta;
	GenericXLogState *xlog;
	PendingPage   *from,
			   *to;

	if (PendingPageOf(BufferGetPage(old))->append.spare_head == InvalidBlockNumber)
		add_superblock(index, format, old);
	block = PendingPageOf(BufferGetPage(old))->append.spare_head;
	if (block == BufferGetBlockNumber(old))
		report_corrupt(index, block, "the newest pending page is on the list of spare ones");
	new = read_page(index, block, PAGE_PENDING, BUFFER_LOCK_EXCLUSIVE, false);
	to = PendingPageOf(BufferGetPage(new));
	if (to->state != PENDING_SPARE ||
		(to->next != InvalidBlockNumber && !is_pending_block(format, to->next)))
		report_corrupt(index, block, "the pending page is not spare");
	meta = read_page(index, GPUANN_META_BLOCK, PAGE_META, BUFFER_LOCK_EXCLUSIVE, false);

	xlog = GenericXLogStart(index);
	from = PendingPageOf(GenericXLogRegisterBuffer(xlog, old, 0));
	to = PendingPageOf(GenericXLogRegisterBuffer(xlog, new, 0));
	MetaPageOf(GenericXLogRegisterBuffer(xlog, meta, 0))->newest_pending = block;
	to->append = from->append;
	to->append.spare_head = to->next;
	to->first_position = from->first_position + from->count;
	to->count = 0;
	to->next = InvalidBlockNumber;
	to->state = PENDING_NEWEST;
	from->state = PENDING_CLOSED;
	from->next = block;
	FAULT_POINT("list-succeed");
	GenericXLogFinish(xlog);
	FAULT_POINT("list-succeeded");

	UnlockReleaseBuffer(meta);
	UnlockReleaseBuffer(old);
	index_set_newest_hint(index, block);
	return new;
}

/*
 * Split a vector into the parts on its pages.
 */
static void
split_vector(const IndexFormat *format, AppendedRow *row, const void *vector)
{
	VectorPlace place = vector_place(format, row->slot);
	const char *from = vector;
	uint32		left = format->vector_bytes;

	row->nparts = 0;
	while (left > 0)
	{
		VectorPart *part = &row->parts[row->nparts++];

		part->block = place.block;
		part->offset = place.offset;
		part->bytes = Min(left, (uint32) GPUANN_PAYLOAD - place.offset);
		part->from = from;
		part->first = row->fresh && place.offset == 0;
		from += part->bytes;
		left -= part->bytes;
		vector_place_next(format, &place);
	}
}

/*
 * Lock a page that a row is written to. A page without data yet is not checked,
 * because it may contain anything after a crash.
 */
static Buffer
lock_for_row(Relation index, BlockNumber block, PageKind kind, bool first)
{
	Buffer		buffer;

	if (!first)
		return read_page(index, block, kind, BUFFER_LOCK_EXCLUSIVE, false);
	buffer = ReadBuffer(index, block);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	return buffer;
}

/*
 * Register a page with a WAL record, and initialize it if it has no data yet.
 */
static Page
register_for_row(GenericXLogState *xlog, Buffer buffer, PageKind kind, bool first,
				 uint32 superblock)
{
	Page		page = GenericXLogRegisterBuffer(xlog, buffer, first ? GENERIC_XLOG_FULL_IMAGE : 0);

	if (first)
		page_init(page, kind, superblock);
	return page;
}

/*
 * Write a part of a vector to its page.
 */
static void
write_part(GenericXLogState *xlog, Buffer buffer, const VectorPart *part, uint32 superblock)
{
	Page		page = register_for_row(xlog, buffer, PAGE_VECTOR, part->first, superblock);

	page_reach(page, part->offset + part->bytes);
	memcpy(VectorBytesOf(page) + part->offset, part->from, part->bytes);
}

/*
 * Write a vector of more than two pages, in separate WAL records. Nothing
 * refers to it yet.
 */
static void
write_long_vector(Relation index, const IndexFormat *format, const AppendedRow *row)
{
	uint32		superblock = slot_superblock(format, row->slot);

	for (int done = 0; done < row->nparts; done += MAX_GENERIC_XLOG_PAGES)
	{
		int			count = Min(row->nparts - done, MAX_GENERIC_XLOG_PAGES);
		Buffer		buffers[MAX_GENERIC_XLOG_PAGES];
		GenericXLogState *xlog;

		for (int i = 0; i < count; i++)
			buffers[i] = lock_for_row(index, row->parts[done + i].block, PAGE_VECTOR,
									  row->parts[done + i].first);
		xlog = GenericXLogStart(index);
		for (int i = 0; i < count; i++)
			write_part(xlog, buffers[i], &row->parts[done + i], superblock);
		GenericXLogFinish(xlog);
		for (int i = 0; i < count; i++)
			UnlockReleaseBuffer(buffers[i]);
		FAULT_POINT("append-long-vector");
	}
}

/*
 * Check the record of the first slot of the free list.
 */
static void
check_free_slot(Relation index, const IndexFormat *format, const AppendPoint *append, Buffer buffer,
				uint32 slot)
{
	BlockNumber block = BufferGetBlockNumber(buffer);
	uint32		next = *graph_row(format, BufferGetPage(buffer), slot);

	if (NodeState(node_record(format, BufferGetPage(buffer), slot)) != NODE_FREE)
		report_corrupt(index, block, "a slot of the free list is not free");
	if ((next == NO_SLOT) != (append->free_count == 1) ||
		(next != NO_SLOT && next >= append->next_fresh))
		report_corrupt(index, block, "the free list is broken");
}

/*
 * Add a page to an AppendWal record, and initialize it if it has no data yet.
 */
static LoggedPage *
log_page(AppendWal *log, Buffer buffer, PageKind kind, bool first, uint32 superblock)
{
	LoggedPage *logged = append_wal_page(log, buffer, first);

	if (first)
		page_init(logged->page, kind, superblock);
	return logged;
}

/*
 * Log pd_lower if it has changed.
 */
static void
log_lower(LoggedPage *logged)
{
	const PageHeader header = (PageHeader) logged->page;

	if (header->pd_lower != logged->lower)
		append_wal_run(logged, &header->pd_lower, sizeof(header->pd_lower));
}

/*
 * Write the columns of a row, in a WAL record of their own: that of the row has
 * no room for a fifth page. Nothing refers to them yet.
 */
static void
write_columns(Relation index, const IndexFormat *format, const AppendedRow *row)
{
	uint32		place = column_index(format, row->slot);
	bool		first = row->fresh && place == 0;
	Buffer		buffer =
		lock_for_row(index, column_block(format, row->slot), PAGE_COLUMN, first);
	AppendWal	log;
	LoggedPage *logged;
	ColumnRecord *to;

	/* As in append_write_row(): nothing can fail from here on. */
	append_wal_begin(&log, index);
	START_CRIT_SECTION();
	logged = log_page(&log, buffer, PAGE_COLUMN, first, slot_superblock(format, row->slot));
	to = column_record(format, logged->page, row->slot);
	page_reach(logged->page, (place + 1) * (Size) format->column_bytes);
	memcpy(to, row->columns, format->column_bytes);
	log_lower(logged);
	append_wal_tail(logged, to, format->column_bytes);
	append_wal_finish(&log);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
	FAULT_POINT("append-columns");
}

/*
 * Widen the append point's range of norms to include a row's. Most rows are
 * within it, and log nothing.
 */
static void
change_norms(LoggedPage *logged, AppendPoint *append, const AppendedRow *row)
{
	if (row->least_norm >= append->least_norm && row->most_norm <= append->most_norm)
		return;
	append->least_norm = Min(append->least_norm, row->least_norm);
	append->most_norm = Max(append->most_norm, row->most_norm);
	append_wal_run(logged, &append->least_norm, 2 * sizeof(float));
}

/*
 * Add a row to the newest pending page, and advance the append point: by a
 * fresh slot, or to the next free slot, which is in the row's graph row.
 */
static void
change_pending_page(AppendWal *log, const IndexFormat *format, Buffer newest,
					const AppendedRow *row, Page node_page)
{
	LoggedPage *logged = log_page(log, newest, PAGE_PENDING, false, 0);
	PendingPage *pending = PendingPageOf(logged->page);

	pending->slots[pending->count] = row->slot;
	append_wal_run(logged, &pending->slots[pending->count], sizeof(uint32));
	pending->count++;
	append_wal_run(logged, &pending->count, sizeof(pending->count));
	page_reach(logged->page, offsetof(PendingPage, slots) + pending->count * sizeof(uint32));
	if (row->fresh)
	{
		pending->append.next_fresh++;
		append_wal_run(logged, &pending->append.next_fresh, sizeof(uint32));
	}
	else
	{
		pending->append.free_head = *graph_row(format, node_page, row->slot);
		pending->append.free_count--;
		append_wal_run(logged, &pending->append.free_head, 2 * sizeof(uint32));
	}
	change_norms(logged, &pending->append, row);
	log_lower(logged);
}

/*
 * Make a node record live. Its graph row is not valid until the row is linked,
 * so it is not changed, and on a new page pd_lower does not include it, because
 * most of the cost of an insert is WAL.
 */
static void
change_node(AppendWal *log, const IndexFormat *format, Buffer buffer, const AppendedRow *row,
			bool first)
{
	LoggedPage *logged =
		log_page(log, buffer, PAGE_NODE, first, slot_superblock(format, row->slot));
	NodeRecord *node = node_record(format, logged->page, row->slot);

	page_reach_record(format, logged->page, row->slot);
	node->tid = *row->tid;
	node->flags = NODE_LIVE;
	node->version++;
	append_wal_run(logged, node, sizeof(NodeRecord));
	log_lower(logged);
}

/*
 * Write a part of a vector in place.
 */
static void
change_vector(AppendWal *log, Buffer buffer, const VectorPart *part, uint32 superblock)
{
	LoggedPage *logged = log_page(log, buffer, PAGE_VECTOR, part->first, superblock);
	unsigned char *to = VectorBytesOf(logged->page) + part->offset;

	page_reach(logged->page, part->offset + part->bytes);
	memcpy(to, part->from, part->bytes);
	log_lower(logged);
	append_wal_tail(logged, to, part->bytes);
}

/*
 * Write pending list entry, node record, and a vector of at most two pages in
 * one WAL record, which makes the row exist.
 */
static void
append_write_row(Relation index, const IndexFormat *format, Buffer newest, const AppendedRow *row)
{
	uint32		superblock = slot_superblock(format, row->slot);
	BlockNumber block = node_block(format, row->slot);
	bool		first = row->fresh && node_index(format, row->slot) == 0;
	int			nparts = row->nparts <= 2 ? row->nparts : 0;
	Buffer		node_buffer,
				buffers[2];
	AppendWal	log;

	node_buffer = lock_for_row(index, block, PAGE_NODE, first);
	if (!row->fresh)
		check_free_slot(index, format, &PendingPageOf(BufferGetPage(newest))->append, node_buffer,
						row->slot);
	for (int i = 0; i < nparts; i++)
		buffers[i] = lock_for_row(index, row->parts[i].block, PAGE_VECTOR, row->parts[i].first);
	FAULT_POINT("append-row");

	/*
	 * Everything that can fail is above: pages are locked and checked, the file
	 * is long enough, and append_wal_begin() may allocate. In the critical
	 * section pages are changed in place, so an ERROR must become a PANIC, or
	 * buffers would have changes that are not in WAL. append_wal_finish() marks
	 * the buffers dirty, inserts the record and sets the LSNs; locks are held
	 * until then, so no process sees a change whose record does not exist yet.
	 */
	append_wal_begin(&log, index);
	START_CRIT_SECTION();
	change_pending_page(&log, format, newest, row, BufferGetPage(node_buffer));
	change_node(&log, format, node_buffer, row, first);
	for (int i = 0; i < nparts; i++)
		change_vector(&log, buffers[i], &row->parts[i], superblock);
	append_wal_finish(&log);
	END_CRIT_SECTION();

	for (int i = 0; i < nparts; i++)
		UnlockReleaseBuffer(buffers[i]);
	UnlockReleaseBuffer(node_buffer);
}

/*
 * Set a new nonce in an index that was reset to its init fork.
 */
static void
set_nonce(Relation index)
{
	Buffer buffer = read_page(index, GPUANN_META_BLOCK, PAGE_META, BUFFER_LOCK_EXCLUSIVE, false);
	MetaPage	meta;

	if (MetaPageOf(BufferGetPage(buffer))->nonce == 0)
	{
		GenericXLogState *xlog = GenericXLogStart(index);

		MetaPageOf(GenericXLogRegisterBuffer(xlog, buffer, 0))->nonce = random_nonce();
		GenericXLogFinish(xlog);
	}
	UnlockReleaseBuffer(buffer);
	FAULT_POINT("nonce-set");
	read_meta(index, &meta);
}

/*
 * Insert a row.
 */
void
append_row(Relation index, const IndexFormat *format, const void *vector,
		   const ColumnRecord *columns, ItemPointer tid)
{
	AppendedRow	row = {.tid = tid,
					   .columns = columns,
					   .least_norm = GPUANN_NO_LEAST_NORM,
					   .most_norm = GPUANN_NO_MOST_NORM};
	Buffer		newest;
	const AppendPoint *append;

	if (index_cached_nonce(index) == 0)
		set_nonce(index);
	gpuann_widen_norms((ElementType) format->type, format->dims, vector, &row.least_norm,
					   &row.most_norm);

	newest = append_lock(index, format);
	FAULT_POINT("append-locked");
	if (PendingPageOf(BufferGetPage(newest))->count >= GPUANN_PENDING_CAPACITY)
		newest = append_next_page(index, format, newest);

	append = &PendingPageOf(BufferGetPage(newest))->append;
	row.fresh = append->free_head == NO_SLOT;
	if (row.fresh && append->next_fresh == append->superblocks * format->superblock_slots)
		add_superblock(index, format, newest);
	row.slot = row.fresh ? append->next_fresh : append->free_head;

	split_vector(format, &row, vector);
	if (row.fresh)
		extend_to(index, Max(node_block(format, row.slot), row.parts[row.nparts - 1].block));
	FAULT_POINT("append-extended");
	if (row.columns != NULL)
		write_columns(index, format, &row);
	if (row.nparts > 2)
		write_long_vector(index, format, &row);
	append_write_row(index, format, newest, &row);
	UnlockReleaseBuffer(newest);
	FAULT_POINT("append-done");
}

/*
 * Free the slots of one node page, in one WAL record with the newest pending
 * page, the superblock's pending page and the node page.
 *
 * Slots are sorted. Returns how many of them are on this page.
 */
static uint32
free_on_page(Relation index, const IndexFormat *format, const uint32 *slots, uint32 count,
			 uint64 change_seq)
{
	BlockNumber block = node_block(format, slots[0]);
	BlockNumber stamp_block = pending_block(format, slot_superblock(format, slots[0]));
	Buffer		newest,
				node_buffer,
				stamp_buffer = InvalidBuffer;
	GenericXLogState *xlog;
	PendingPage *pending,
			   *stamped;
	Page		page;
	uint32		done;

	/*
	 * Lock order: the append lock (the newest pending page), the superblock's
	 * own pending page unless it is the same, the node page. Inserts take the
	 * append lock first too, so none reads free_head before this record.
	 */
	newest = append_lock(index, format);
	if (slots[0] >= PendingPageOf(BufferGetPage(newest))->append.next_fresh)
		elog(ERROR, "cannot free slot %u, which does not exist", slots[0]);
	if (stamp_block != BufferGetBlockNumber(newest))
		stamp_buffer = read_page(index, stamp_block, PAGE_PENDING, BUFFER_LOCK_EXCLUSIVE, false);
	node_buffer = read_page(index, block, PAGE_NODE, BUFFER_LOCK_EXCLUSIVE, false);

	xlog = GenericXLogStart(index);
	pending = stamped = PendingPageOf(GenericXLogRegisterBuffer(xlog, newest, 0));
	if (BufferIsValid(stamp_buffer))
		stamped = PendingPageOf(GenericXLogRegisterBuffer(xlog, stamp_buffer, 0));
	page = GenericXLogRegisterBuffer(xlog, node_buffer, 0);

	for (done = 0; done < count && node_block(format, slots[done]) == block; done++)
	{
		NodeRecord *node = node_record(format, page, slots[done]);

		if (NodeState(node) != NODE_DETACHED)
			report_corrupt(index, block, "a slot about to be freed is not detached");
		node->flags = NODE_FREE;
		page_reach_row(format, page, slots[done]);
		*graph_row(format, page, slots[done]) = pending->append.free_head;
		pending->append.free_head = slots[done];
		pending->append.free_count++;
	}
	PageTailOf(page)->change_seq = Max(PageTailOf(page)->change_seq, change_seq);
	stamped->superblock_seq = Max(stamped->superblock_seq, change_seq);
	FAULT_POINT("free-page");
	GenericXLogFinish(xlog);

	UnlockReleaseBuffer(node_buffer);
	if (BufferIsValid(stamp_buffer))
		UnlockReleaseBuffer(stamp_buffer);
	UnlockReleaseBuffer(newest);
	return done;
}

/*
 * Put detached slots that are not on the pending list on the free list.
 */
void
free_slots(Relation index, const IndexFormat *format, const uint32 *slots, uint32 count,
		   uint64 change_seq)
{
	for (uint32 done = 0; done < count;)
	{
		CHECK_FOR_INTERRUPTS();
		done += free_on_page(index, format, slots + done, count - done, change_seq);
		FAULT_POINT("freed-page");
	}
}

/*
 * Turn the oldest pending page into a spare one if all its entries are before
 * position. Returns false if it is not.
 */
static bool
trim_page(Relation index, const IndexFormat *format, BlockNumber oldest, uint64 position,
		  BlockNumber *next)
{
	Buffer		newest = append_lock(index, format);
	Buffer		buffer,
				meta;
	GenericXLogState *xlog;
	PendingPage *pending,
			   *trimmed;
	uint64		end;

	if (BufferGetBlockNumber(newest) == oldest)
	{
		UnlockReleaseBuffer(newest);
		return false;
	}
	buffer = read_page(index, oldest, PAGE_PENDING, BUFFER_LOCK_EXCLUSIVE, false);
	trimmed = PendingPageOf(BufferGetPage(buffer));
	if (trimmed->state != PENDING_CLOSED || !is_pending_block(format, trimmed->next))
		report_corrupt(index, oldest, "the oldest pending page is not part of the list");
	end = trimmed->first_position + trimmed->count;
	if (end > position)
	{
		UnlockReleaseBuffer(buffer);
		UnlockReleaseBuffer(newest);
		return false;
	}
	/*
	 * The page becomes spare, and the metapage's beginning of the list moves
	 * past it, in one WAL record. A reader of the list that has read the old
	 * beginning finds a page that is not PENDING_CLOSED, or another position,
	 * and starts again from the metapage (pending_read).
	 */
	*next = trimmed->next;
	meta = read_page(index, GPUANN_META_BLOCK, PAGE_META, BUFFER_LOCK_EXCLUSIVE, false);

	xlog = GenericXLogStart(index);
	pending = PendingPageOf(GenericXLogRegisterBuffer(xlog, newest, 0));
	trimmed = PendingPageOf(GenericXLogRegisterBuffer(xlog, buffer, 0));
	trimmed->state = PENDING_SPARE;
	trimmed->count = 0;
	trimmed->next = pending->append.spare_head;
	pending->append.spare_head = oldest;
	{
		MetaPage   *changed = MetaPageOf(GenericXLogRegisterBuffer(xlog, meta, 0));

		changed->oldest_pending = *next;
		changed->trimmed_position = end;
	}
	FAULT_POINT("trim-page");
	GenericXLogFinish(xlog);

	UnlockReleaseBuffer(meta);
	UnlockReleaseBuffer(buffer);
	UnlockReleaseBuffer(newest);
	return true;
}

/*
 * Remove list entries before position. The caller holds the linker lock.
 */
void
pending_trim(Relation index, const IndexFormat *format, uint64 position)
{
	MetaPage	meta;
	BlockNumber oldest;
	Buffer		buffer;

	read_meta(index, &meta);
	if (position > meta.linked_position)
		elog(ERROR, "cannot trim the pending list beyond what is linked");
	if (position <= meta.trimmed_position)
		return;
	oldest = meta.oldest_pending;
	while (trim_page(index, format, oldest, position, &oldest))
	{
		CHECK_FOR_INTERRUPTS();
		FAULT_POINT("trimmed-page");
	}

	buffer = read_page(index, GPUANN_META_BLOCK, PAGE_META, BUFFER_LOCK_EXCLUSIVE, false);
	if (MetaPageOf(BufferGetPage(buffer))->trimmed_position < position)
	{
		GenericXLogState *xlog = GenericXLogStart(index);

		MetaPageOf(GenericXLogRegisterBuffer(xlog, buffer, 0))->trimmed_position = position;
		GenericXLogFinish(xlog);
	}
	UnlockReleaseBuffer(buffer);
	FAULT_POINT("trimmed");
}
