/*
 * link.c
 *		The linker: lock, collecting what is not linked, writing what a pass
 *		computed.
 *
 * Whoever holds the linker lock is the only writer of edges, of dead and
 * detached states, of the seed area and of the metapage's positions. Inserters
 * go on meanwhile: they touch free and fresh slots only, to which no edge
 * leads.
 *
 * Order of writing: graph rows, seeds, then the metapage with the new linked
 * position, then trimming. A crash in between leaves rows that are linked and
 * still listed: scans meet them twice and drop one, the next pass links them
 * again.
 */
#include "postgres.h"

#include "access/generic_xlog.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "client/client.h"
#include "engine/bits.h"
#include "base/faults.h"
#include "link/link_write.h"
#include "client/mirror_table.h"
#include "link/graph_edits.h"
#include "base/signature.h"
#include "base/sql_index.h"

#define SLICE_MIN_MS		50		/* an inserter links so long where just too many rows wait, */
#define SLICE_MAX_MS		1000	/* and so long where twice as many do: the more rows a pass has,
									 * the less each costs */
#define SLICE_ROWS_MS		8		/* rows that can be linked over pages in a millisecond, at
									 * most */
#define FAR_TOO_MANY		4		/* times the limit: inserters that cannot link wait */
#define WAIT_MS				10		/* so long each time, */
#define WAIT_FOR_MS			2000	/* unless nothing was linked for so long: who has the lock then
									 * does something else */
#define COLLECTED_SHARE		64		/* of memory in bytes: the most slots collected for a pass */
#define COLLECT_CHUNK		65536	/* list entries read at once */

/*
 * Which slots an edge may lead to, read from node pages as they are asked for.
 */
typedef struct EdgeTargets
{
	Relation	index;
	const IndexFormat *format;
	uint32		next_fresh;
	unsigned char *known;		/* bit per node page, in slot order */
	unsigned char *routes;		/* bit per slot */
	unsigned char *linked;		/* bit per slot: has a row already */
} EdgeTargets;

/* ---- the lock ---- */

/*
 * The linker lock. Its tag is made of the identity that lmgr.c's own locks of a
 * relation use, rd_lockInfo, which is read only. It is an object lock on the
 * index (sub-object 1): a page lock must not be held while others are taken,
 * which a worker's slices do.
 */
static void
linker_locktag(Relation index, LOCKTAG *tag)
{
	SET_LOCKTAG_OBJECT(*tag, index->rd_lockInfo.lockRelId.dbId, RelationRelationId,
					   index->rd_lockInfo.lockRelId.relId, 1);
}

/* Take the linker lock. */
bool
linker_lock(Relation index, bool wait, bool session)
{
	LOCKTAG		tag;

	linker_locktag(index, &tag);
	return LockAcquire(&tag, ExclusiveLock, session, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

void
linker_unlock(Relation index, bool session)
{
	LOCKTAG		tag;

	linker_locktag(index, &tag);
	LockRelease(&tag, ExclusiveLock, session);
}

/* Whether somebody waits for the linker lock that we hold. */
bool
linker_lock_wanted(Relation index, bool session)
{
	LOCKTAG		tag;

	linker_locktag(index, &tag);
	return LockHasWaiters(&tag, ExclusiveLock, session);
}

/* ---- collecting ---- */

/*
 * Whether a listed slot is live, and whether it is to be linked. An earlier
 * pass may have yielded before it came to the end of its list entries: the rows
 * that it wrote stay as they are. What a crash or an error cut short is stamped
 * with the number of a slice that never ended, and is linked again.
 */
static bool
look_at_listed(Relation index, const IndexFormat *format, uint32 slot, uint64 change_seq,
			   bool *to_link)
{
	Buffer buffer = read_page(index, node_block(format, slot), PAGE_NODE, BUFFER_LOCK_SHARE, true);
	Page		page = BufferGetPage(buffer);
	bool		live = false;

	if (!PageIsNew(page))
	{
		const NodeRecord *node = node_record(format, page, slot);

		live = NodeState(node) == NODE_LIVE;
		*to_link = (node->flags & NODE_LINKED) == 0 || PageTailOf(page)->change_seq > change_seq;
	}
	UnlockReleaseBuffer(buffer);
	return live;
}

/* Take a slot into a pass. */
static void
pass_add(LinkPass *pass, uint32 slot)
{
	if (pass->count == pass->room)
	{
		pass->room *= 2;
		pass->slots = repalloc_huge(pass->slots, sizeof(uint32) * pass->room);
		pass->places = repalloc_huge(pass->places, sizeof(LinkPlace) * pass->room);
	}
	pass->places[pass->count] = (LinkPlace) {(uint32) (pass->to - pass->from), pass->live};
	pass->slots[pass->count++] = slot;
}

/* Collect the slots of a pass from where it ends so far. */
static void
collect_on(Relation index, const IndexFormat *format, const MetaPage *meta,
		   const PendingBounds *bounds, uint64 end, uint32 most, LinkPass *pass)
{
	while (pass->to < end && (most == 0 || pass->count < most))
	{
		uint64		chunk_end = Min(end, pass->to + COLLECT_CHUNK);
		uint32	   *slots;
		uint32		count;

		if (!pending_read(index, format, bounds, pass->to, chunk_end, &slots, &count) ||
			count != chunk_end - pass->to)
			report_corrupt(index, meta->oldest_pending,
						   "the pending list was trimmed beyond what is linked");
		for (uint32 i = 0; i < count && (most == 0 || pass->count < most); i++)
		{
			bool		to_link;

			CHECK_FOR_INTERRUPTS();
			if (slots[i] >= bounds->next_fresh)
				report_corrupt(index, bounds->oldest_pending,
							   "the pending list names a slot that does not exist");
			if (look_at_listed(index, format, slots[i], meta->change_seq, &to_link))
			{
				if (to_link)
					pass_add(pass, slots[i]);
				pass->live++;
			}
			pass->to++;
		}
		pfree(slots);
	}
}

/* Collect up to most slots that are listed and not yet linked. */
void
link_collect(Relation index, const IndexFormat *format, uint32 most, LinkPass *pass)
{
	MetaPage	meta;
	PendingBounds	bounds;

	pending_bounds(index, format, &meta, &bounds);
	pass->from = pass->to = bounds.linked;
	pass->count = pass->live = 0;
	pass->room = 1024;
	pass->slots = palloc(sizeof(uint32) * pass->room);
	pass->places = palloc(sizeof(LinkPlace) * pass->room);
	collect_on(index, format, &meta, &bounds, bounds.end, most, pass);
}

/*
 * Let a pass take in what was listed since it was collected, up to a pending
 * position.
 */
void
link_collect_more(Relation index, const IndexFormat *format, uint64 end, LinkPass *pass)
{
	MetaPage	meta;
	PendingBounds	bounds;

	pending_bounds(index, format, &meta, &bounds);
	collect_on(index, format, &meta, &bounds, Min(end, bounds.end), 0, pass);
}

/* ---- writing rows ---- */

/* Node pages, numbered in slot order. */
static uint64
node_page_number(const IndexFormat *format, uint32 slot)
{
	return (uint64) slot_superblock(format, slot) * format->node_pages +
		slot % format->superblock_slots / format->nodes_per_page;
}

/* Start with nothing known. */
static void
edge_targets_begin(EdgeTargets *targets, Relation index, const IndexFormat *format,
				   uint32 next_fresh)
{
	targets->index = index;
	targets->format = format;
	targets->next_fresh = next_fresh;
	targets->known = palloc0(node_page_number(format, next_fresh) / 8 + 1);
	targets->routes = palloc_extended((Size) next_fresh / 8 + 1, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	targets->linked = palloc_extended((Size) next_fresh / 8 + 1, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

/* Learn the states of the slots on one node page. */
static void
learn_node_page(EdgeTargets *targets, uint32 slot)
{
	const IndexFormat *format = targets->format;
	uint32		first = slot - node_index(format, slot);
	uint32		last = Min(first + format->nodes_per_page, targets->next_fresh);
	Buffer		buffer =
		read_page(targets->index, node_block(format, slot), PAGE_NODE, BUFFER_LOCK_SHARE, true);

	last = Min(last, (slot_superblock(format, slot) + 1) * format->superblock_slots);
	if (!PageIsNew(BufferGetPage(buffer)))
	{
		for (uint32 s = first; s < last; s++)
		{
			NodeRecord *node = node_record(format, BufferGetPage(buffer), s);

			if (NodeState(node) == NODE_LIVE || NodeState(node) == NODE_DEAD)
				bit_set(targets->routes, s);
			if (node->flags & NODE_LINKED)
				bit_set(targets->linked, s);
		}
	}
	UnlockReleaseBuffer(buffer);
	bit_set(targets->known, node_page_number(format, slot));
}

/* Whether a slot that exists has its bit set in one of the bitmaps. */
static bool
link_ask_server(EdgeTargets *targets, const unsigned char *bits, uint32 slot)
{
	if (!bit_is_set(targets->known, node_page_number(targets->format, slot)))
		learn_node_page(targets, slot);
	return bit_is_set(bits, slot);
}

/* Whether an edge may lead to a slot. */
static bool
may_lead_to(EdgeTargets *targets, uint32 slot)
{
	return slot < targets->next_fresh && link_ask_server(targets, targets->routes, slot);
}

/*
 * Copy a row without what must not be in it; returns how many neighbours are
 * left. Rows may come from the server: nothing is trusted.
 */
static uint32
clean_row(EdgeTargets *targets, uint32 slot, const uint32 *row, uint32 *clean)
{
	uint32		count = 0;

	for (uint32 i = 0; i < targets->format->degree && row[i] != NO_SLOT; i++)
	{
		bool		known = row[i] == slot || !may_lead_to(targets, row[i]);

		for (uint32 j = 0; j < count && !known; j++)
			known = clean[j] == row[i];
		if (!known)
			clean[count++] = row[i];
	}
	return count;
}

/*
 * Begin a record on a node page: locks pending page (unless the superblock is
 * stamped with this sequence number already) and node page, and stamps both.
 */
void
node_change_begin(NodeChange *change, Relation index, const IndexFormat *format, uint32 slot,
				  uint64 change_seq)
{
	uint32		superblock = slot_superblock(format, slot);

	change->state = GenericXLogStart(index);
	change->list = InvalidBuffer;
	if (change->stamped_superblock != superblock || change->stamped_seq != change_seq)
	{
		PendingPage   *list;

		change->list = read_page(index, pending_block(format, superblock), PAGE_PENDING,
								 BUFFER_LOCK_EXCLUSIVE, false);
		list = PendingPageOf(GenericXLogRegisterBuffer(change->state, change->list, 0));
		list->superblock_seq = change_seq;
	}
	change->node =
		read_page(index, node_block(format, slot), PAGE_NODE, BUFFER_LOCK_EXCLUSIVE, false);
	change->page = GenericXLogRegisterBuffer(change->state, change->node, 0);
	PageTailOf(change->page)->change_seq = change_seq;
	change->stamped_superblock = superblock;
	change->stamped_seq = change_seq;
}

/* Finish the record and let the pages go. */
void
node_change_finish(NodeChange *change)
{
	FAULT_POINT("change-node-page");
	GenericXLogFinish(change->state);
	UnlockReleaseBuffer(change->node);
	if (BufferIsValid(change->list))
		UnlockReleaseBuffer(change->list);
}

/* Rows on their way to their pages. */
struct RowWriter
{
	MemoryContext memory;
	EdgeTargets targets;
	NodeChange	change;
	uint64		change_seq;
	const LinkedRows *rows;
	uint32	   *clean;			/* of one page: their neighbours, and how many */
	uint32	   *counts;
	uint32		count;			/* of rows: what lies beyond is of slots that do not exist */
	bool		linked;			/* the part under way: rows of slots that have one already, or the
								 * others */
	uint32		next;			/* row to go on with */
};

/*
 * Write the rows [start, end), which lie on one page: those of slots that have
 * a row already, or the others.
 */
static void
write_page_rows(RowWriter *writer, uint32 start, uint32 end, bool linked)
{
	const IndexFormat *format = writer->targets.format;
	const uint32 *slots = writer->rows->slots;
	bool		any = false;

	for (uint32 i = start; i < end; i++)
	{
		uint32		place;

		if (link_ask_server(&writer->targets, writer->targets.linked, slots[i]) != linked)
			continue;
		any = true;
		place = writer->rows->places != NULL ? writer->rows->places[i] : i;
		writer->counts[i - start] = clean_row(&writer->targets, slots[i],
											  writer->rows->rows + (Size) place * format->degree,
											  writer->clean + (Size) (i - start) * format->degree);
	}
	if (!any)
		return;

	link_pause();
	node_change_begin(&writer->change, writer->targets.index, format, slots[start],
					  writer->change_seq);
	for (uint32 i = start; i < end; i++)
	{
		NodeRecord *node = node_record(format, writer->change.page, slots[i]);
		uint32	   *row = graph_row(format, writer->change.page, slots[i]);
		uint32		count = writer->counts[i - start];

		if (((node->flags & NODE_LINKED) != 0) != linked ||
			(NodeState(node) != NODE_LIVE && NodeState(node) != NODE_DEAD))
			continue;
		node->flags |= NODE_LINKED;
		page_reach_row(format, writer->change.page, slots[i]);
		memcpy(row, writer->clean + (Size) (i - start) * format->degree, sizeof(uint32) * count);
		for (uint32 j = count; j < format->degree; j++)
			row[j] = NO_SLOT;
	}
	node_change_finish(&writer->change);
	if (linked)
		FAULT_POINT("link-reverse-rows");
	else
		FAULT_POINT("link-new-rows");
}

/* The end of the rows that lie on the same page as that at start. */
static uint32
page_end(const IndexFormat *format, const LinkedRows *rows, uint32 count, uint32 start)
{
	BlockNumber block = node_block(format, rows->slots[start]);
	uint32		end = start + 1;

	while (end < count && node_block(format, rows->slots[end]) == block)
		end++;
	return end;
}

/* Begin to write rows. */
RowWriter *
row_writer_begin(const IndexFormat *format, const LinkedRows *rows, uint32 next_fresh,
				 uint64 change_seq)
{
	MemoryContext memory =
		AllocSetContextCreate(CurrentMemoryContext, "gpuann row writer", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(memory);
	RowWriter  *writer = palloc0(sizeof(RowWriter));

	writer->memory = memory;
	writer->change.stamped_superblock = NO_SLOT;
	writer->change_seq = change_seq;
	writer->rows = rows;
	writer->count = rows->count;
	writer->linked = true;
	for (uint32 i = 1; i < writer->count; i++)
		if (rows->slots[i] <= rows->slots[i - 1])
			ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR),
							errmsg("linked rows are not in order of their slots")));
	while (writer->count > 0 && rows->slots[writer->count - 1] >= next_fresh)
		writer->count--;
	writer->clean = palloc(sizeof(uint32) * format->nodes_per_page * format->degree);
	writer->counts = palloc0(sizeof(uint32) * format->nodes_per_page);
	edge_targets_begin(&writer->targets, NULL, format, next_fresh);
	MemoryContextSwitchTo(caller);
	return writer;
}

/*
 * Write on, page by page, at least one, until the time is over; true: all is
 * written.
 *
 * Slots that are in the graph come first: so whatever is marked as linked has
 * the edges that lead to it from the graph as it was, even if a crash cuts the
 * writing short.
 */
bool
row_writer_go_on(RowWriter *writer, Relation index, bool (*over) (const void *arg), const void *arg)
{
	writer->targets.index = index;	/* opened anew in each transaction */
	for (;;)
	{
		uint32		end;

		if (writer->next == writer->count)
		{
			if (!writer->linked)
				return true;
			writer->linked = false;
			writer->next = 0;
			continue;
		}
		end = page_end(writer->targets.format, writer->rows, writer->count, writer->next);
		write_page_rows(writer, writer->next, end, writer->linked);
		writer->next = end;
		if (over != NULL && over(arg))
			return false;
	}
}

void
row_writer_end(RowWriter *writer)
{
	MemoryContextDelete(writer->memory);
}

/*
 * Write rows (ascending by slot). Rows of slots that hold no row any more are
 * left out.
 */
void
link_write_rows(Relation index, const IndexFormat *format, const LinkedRows *rows,
				uint32 next_fresh, uint64 change_seq)
{
	RowWriter  *writer = row_writer_begin(format, rows, next_fresh, change_seq);

	(void) row_writer_go_on(writer, index, NULL, NULL);
	row_writer_end(writer);
}

/* Whether a slot is in the graph: only such ones can be seeds. */
static bool
in_graph(Relation index, const IndexFormat *format, uint32 slot, NodeCopy *node)
{
	return read_node(index, format, slot, node) && (node->flags & NODE_LINKED) != 0;
}

/* Whether the seed area has just these. */
static bool
has_seeds(Relation index, const IndexFormat *format, const uint32 *seeds, uint32 nseeds)
{
	MetaPage	meta;
	uint32	   *there;
	bool		same;

	read_meta(index, &meta);
	if (meta.seeds != nseeds)
		return false;
	(void) read_seeds(index, format, &meta, nseeds, &there);
	same = memcmp(seeds, there, sizeof(uint32) * nseeds) == 0;
	pfree(there);
	return same;
}

/*
 * Write the seed area, in good order: slots that are not in the graph are left
 * out. Returns how many seeds there are now.
 */
uint32
link_write_seeds(Relation index, const IndexFormat *format, const uint32 *proposed,
				 uint32 nproposed, uint32 next_fresh)
{
	NodeCopy   *node = palloc(format->node_bytes);
	uint32	   *seeds = palloc(sizeof(uint32) * Max(nproposed, 1));
	uint32		nseeds = 0;
	uint32		room = Min(format->seed_pages * (uint32) GPUANN_SEEDS_PER_PAGE, SEEDS_MAX);
	uint32		written = 0;

	for (uint32 i = 0; i < nproposed && nseeds < room; i++)
		if (proposed[i] < next_fresh && in_graph(index, format, proposed[i], node))
			seeds[nseeds++] = proposed[i];
	/*
	 * An engine hands back those that it got, in their order, until it has
	 * chosen others.
	 */
	if (!has_seeds(index, format, seeds, nseeds))
		order_seeds(index, format, seeds, nseeds);
	for (BlockNumber block = 1; written < nseeds; block++)
	{
		Buffer		buffer = read_page(index, block, PAGE_SEED, BUFFER_LOCK_EXCLUSIVE, false);
		GenericXLogState *state = GenericXLogStart(index);
		uint32	   *slots = SeedSlotsOf(GenericXLogRegisterBuffer(state, buffer, 0));
		uint32		here = Min(nseeds - written, GPUANN_SEEDS_PER_PAGE);

		memcpy(slots, seeds + written, sizeof(uint32) * here);
		written += here;
		GenericXLogFinish(state);
		UnlockReleaseBuffer(buffer);
		FAULT_POINT("link-seed-page");
		CHECK_FOR_INTERRUPTS();
	}
	pfree(seeds);
	pfree(node);
	return nseeds;
}

/* Write the metapage at the end of a slice. */
void
link_finish_slice(Relation index, const SliceEnd *end)
{
	Buffer buffer = read_page(index, GPUANN_META_BLOCK, PAGE_META, BUFFER_LOCK_EXCLUSIVE, false);
	GenericXLogState *state = GenericXLogStart(index);
	MetaPage   *meta = MetaPageOf(GenericXLogRegisterBuffer(state, buffer, 0));

	meta->change_seq = end->change_seq;
	meta->linked_slots =
		end->has_linked_slots ? end->linked_slots : meta->linked_slots + end->newly_linked;
	if (end->has_seeds)
		meta->seeds = end->seeds;
	if (end->has_linked_position)
		meta->linked_position = end->linked_position;
	FAULT_POINT("slice-finish");
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
	FAULT_POINT("slice-finished");
}

static int
compare_slots(const void *left, const void *right)
{
	uint32		a = *(const uint32 *) left;
	uint32		b = *(const uint32 *) right;

	return a < b ? -1 : a > b;
}

/*
 * Whether every live slot of a pass has its row now: one of those just written,
 * or one from before.
 */
static bool
pass_is_linked(Relation index, const IndexFormat *format, const LinkPass *pass,
			   const LinkedRows *rows)
{
	NodeCopy   *node = palloc(format->node_bytes);
	bool		complete = true;

	for (uint32 i = 0; i < pass->count && complete; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (rows->count > 0 && bsearch(&pass->slots[i], rows->slots, rows->count, sizeof(uint32),
									   compare_slots) != NULL)
			continue;
		complete = !read_node(index, format, pass->slots[i], node) ||
				   NodeState(node) != NODE_LIVE || (node->flags & NODE_LINKED) != 0;
	}
	pfree(node);
	return complete;
}

/* Write a pass. */
void
link_write(Relation index, const IndexFormat *format, const LinkPass *pass, const LinkedRows *rows)
{
	MetaPage	meta;
	PendingBounds	bounds;

	pending_bounds(index, format, &meta, &bounds);
	FAULT_POINT("link-computed");
	link_write_rows(index, format, rows, bounds.next_fresh, meta.change_seq + 1);
	pending_trim(index, format, link_write_end(index, format, pass, rows));
}

/*
 * End a pass whose rows are written; returns the pending position up to which
 * it may be trimmed.
 */
uint64
link_write_end(Relation index, const IndexFormat *format, const LinkPass *pass,
			   const LinkedRows *rows)
{
	MetaPage	meta;
	PendingBounds	bounds;
	SliceEnd	end;

	pending_bounds(index, format, &meta, &bounds);
	memset(&end, 0, sizeof(end));
	end.change_seq = meta.change_seq + 1;
	FAULT_POINT("link-rows-written");
	if (rows->nseeds > 0)
	{
		end.seeds = link_write_seeds(index, format, rows->seeds, rows->nseeds, bounds.next_fresh);
		end.has_seeds = true;
	}
	if (pass->from == meta.linked_position && pass->to >= pass->from && pass->to <= bounds.end)
	{
		end.has_linked_position = pass_is_linked(index, format, pass, rows);
		end.linked_position = pass->to;
		/*
		 * Not those that got a row just now: a pass that was cut short may have
		 * given it to some.
		 */
		end.newly_linked = end.has_linked_position ? pass->live : 0;
		if (!end.has_linked_position)
			ereport(
				WARNING,
				(errmsg("some rows of index \"%s\" were not linked, they stay on its pending list",
						RelationGetRelationName(index))));
	}
	link_finish_slice(index, &end);
	client_note_change(index, format);
	return meta.linked_position;
}

/* ---- passes ---- */

/* The most slots worth collecting for the next pass. */
static uint32
most_slots(const LinkManner *manner)
{
	uint32		most = Max(link_memory() / COLLECTED_SHARE, 1024);

	return manner->slice_ms == 0 ? most : Min(most, (uint32) (manner->slice_ms * SLICE_ROWS_MS));
}

/*
 * Passes until nothing is left, or the time of manner is up: in memory, or over
 * pages.
 */
static uint32
run_passes(Relation index, const IndexFormat *format, LinkManner *manner)
{
	MemoryContext memory =
		AllocSetContextCreate(CurrentMemoryContext, "gpuann link pass", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(memory);
	int			slice_ms = manner->slice_ms;
	int64		began_ms = monotonic_ms();
	uint32		total = 0;
	bool		more = true;

	while (more)
	{
		MetaPage	meta;
		PendingBounds	bounds;
		LinkPass	pass;
		LinkedRows	rows;

		pending_bounds(index, format, &meta, &bounds);
		link_collect(index, format, most_slots(manner), &pass);
		if (pass.count == 0)
			memset(&rows, 0, sizeof(rows));
		else if (slice_ms > 0 || !link_in_memory(index, format, &pass, &rows))
			link_part_over_pages(index, format, &pass, manner, &rows);

		/*
		 * With nothing to link a pass still trims what the one before has
		 * linked.
		 */
		if (pass.to > pass.from)
			link_write(index, format, &pass, &rows);
		else if (total == 0)
			pending_trim(index, format, meta.linked_position);
		total += pass.live;
		manner->before = total;
		if (manner->tell != NULL)
			manner->tell(total);
		more = pass.to > pass.from && pass.to < bounds.end;
		if (slice_ms > 0)
		{
			manner->slice_ms = slice_ms - (int) (monotonic_ms() - began_ms);
			more &= manner->slice_ms > 0;
		}
		MemoryContextReset(memory);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(memory);
	return total;
}

uint32
link_pending(Relation index, const IndexFormat *format)
{
	return link_pending_telling(index, format, NULL);
}

uint32
link_pending_telling(Relation index, const IndexFormat *format, void (*tell) (int64 linked))
{
	LinkManner	manner = {.tell = tell};

	return run_passes(index, format, &manner);
}

/* How long an inserter links that finds so many rows waiting. */
static int
slice_length(uint64 waiting)
{
	uint64		limit = Max(gpuann_pending_limit, 1);
	uint64		beyond = Min(waiting - gpuann_pending_limit, limit);

	return SLICE_MIN_MS + (int) ((SLICE_MAX_MS - SLICE_MIN_MS) * beyond / limit);
}

/*
 * Somebody links, and far too many rows wait: inserters wait a moment, or as
 * many of them as there are processors would outrun him. But who holds the lock
 * may be a VACUUM, and link nothing for hours: the rows linked must have become
 * more lately, as far as this process has seen.
 */
static void
wait_for_linker(Relation index, uint64 linked)
{
	static Oid	seen_index = InvalidOid;
	static uint64 seen_linked = 0;
	static int64 seen_ms = 0;
	int64		now = monotonic_ms();

	if (seen_index != RelationGetRelid(index) || seen_linked != linked)
	{
		seen_index = RelationGetRelid(index);
		seen_linked = linked;
		seen_ms = now;
	}
	if (now - seen_ms < WAIT_FOR_MS)
		pg_usleep(WAIT_MS * 1000L);
	CHECK_FOR_INTERRUPTS();
}

bool
link_for(Relation index, const IndexFormat *format, int slice_ms)
{
	LinkManner	manner = {.slice_ms = slice_ms};

	if (!linker_lock(index, false, false))
		return false;
	(void) run_passes(index, format, &manner);
	linker_unlock(index, false);
	return true;
}

/* For inserters: link a slice if too much is pending. */
void
link_if_crowded(Relation index, const IndexFormat *format)
{
	MetaPage	meta;
	PendingBounds	bounds;
	uint64		waiting;

	if (client_worker_links(index))
		return;
	pending_bounds(index, format, &meta, &bounds);
	waiting = bounds.end - bounds.linked;
	if (waiting <= (uint64) gpuann_pending_limit)
		return;
	if (!link_for(index, format, slice_length(waiting)) &&
		waiting / FAR_TOO_MANY > (uint64) gpuann_pending_limit)
		wait_for_linker(index, bounds.linked);
}

/*
 * Let the worker link what is listed now, if one serves the index: the server
 * has the graph in memory already. As often as it takes, for a pass ends when
 * the worker has no more memory for it. Returns how many rows joined the graph
 * meanwhile.
 */
static uint32
let_worker_link(Relation index, const IndexFormat *format)
{
	MetaPage	meta;
	PendingBounds	bounds;
	uint64		end;
	uint64		change_seq;
	uint32		linked_before;

	pending_bounds(index, format, &meta, &bounds);
	end = bounds.end;
	linked_before = meta.linked_slots;
	while (bounds.linked < end && client_ask_to_link(index, format, end))
	{
		change_seq = meta.change_seq;
		(void) linker_lock(index, true, false);
		linker_unlock(index, false);
		pending_bounds(index, format, &meta, &bounds);
		if (meta.change_seq == change_seq)
			break;
	}
	/* A VACUUM in between may have taken some out. */
	return meta.linked_slots > linked_before ? meta.linked_slots - linked_before : 0;
}

PG_FUNCTION_INFO_V1(gpuann_link);

/*
 * gpuann_link(index): link everything pending now; returns how many rows that
 * were.
 */
Datum
gpuann_link(PG_FUNCTION_ARGS)
{
	SqlIndex	opened;
	uint32		linked;

	signature_check(fcinfo, "regclass", "int8");
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("recovery is in progress"),
				 errhint("Rows are linked on the primary.")));
	sql_index_open(PG_GETARG_OID(0), RowExclusiveLock, SQL_INDEX_MAINTAIN, &opened);
	linked = let_worker_link(opened.index, index_format(opened.index));
	(void) linker_lock(opened.index, true, false);
	linked += link_pending(opened.index, index_format(opened.index));
	linker_unlock(opened.index, false);
	sql_index_close(&opened);
	PG_RETURN_INT64(linked);
}
