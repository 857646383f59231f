/*
 * link_write.c
 *		Write the rows computed by a pass of the linker, or by VACUUM's repair.
 *
 * Order of writing: graph rows, seeds, then the metapage with the new linked
 * position, then trimming. A crash in between leaves rows that are linked and
 * still listed. Scans find them twice and drop the duplicate; the next pass
 * links them again.
 */
#include "postgres.h"

#include "access/generic_xlog.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "base/faults.h"
#include "client/client.h"
#include "engine/bits.h"
#include "engine/select.h"
#include "link/graph_edits.h"
#include "link/link_write.h"

/*
 * Which slots an edge may lead to; node pages are read when a slot on them is
 * first looked up.
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

/* Node pages, numbered in slot order. */
static uint64
node_page_number(const IndexFormat *format, uint32 slot)
{
	return (uint64) slot_superblock(format, slot) * format->node_pages +
		slot % format->superblock_slots / format->nodes_per_page;
}

/* Initialize, without any page read. */
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

/*
 * Whether an existing slot's bit is set in one of the bitmaps. Most are set,
 * and then the slot's page has been read; only for the others the page number
 * is computed.
 */
static bool
slot_has_bit(EdgeTargets *targets, const unsigned char *bits, uint32 slot)
{
	if (bit_is_set(bits, slot))
		return true;
	if (!bit_is_set(targets->known, node_page_number(targets->format, slot)))
		learn_node_page(targets, slot);
	return bit_is_set(bits, slot);
}

/* Whether an edge may lead to a slot. */
static bool
may_lead_to(EdgeTargets *targets, uint32 slot)
{
	return slot < targets->next_fresh && slot_has_bit(targets, targets->routes, slot);
}

/*
 * Copy a row without invalid neighbours (its own slot, duplicates, slots that
 * an edge must not lead to); returns the number left. Rows may come from the
 * server, so nothing in them is trusted.
 */
static uint32
clean_row(EdgeTargets *targets, uint32 slot, const uint32 *row, uint32 *clean)
{
	uint32		count = 0;

	for (uint32 i = 0; i < targets->format->degree && row[i] != NO_SLOT; i++)
	{
		if (row[i] != slot && may_lead_to(targets, row[i]) && !slot_is_among(clean, count, row[i]))
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

	/*
	 * Lock order: pending page, then node page. The superblock's stamp is in
	 * the same WAL record as the first change of its node pages, or in an
	 * earlier one of this slice, so a mirror that finds an old stamp misses no
	 * change. GenericXLog hands out copies of pages, and applies them in its
	 * own critical section; until then an ERROR leaves the buffers unchanged.
	 */
	change->state = GenericXLogStart(index);
	change->list = InvalidBuffer;
	if (change->stamped_superblock != superblock || change->stamped_seq != change_seq)
	{
		PendingPage *list;

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

/* Write the WAL record, and release the pages. */
void
node_change_finish(NodeChange *change)
{
	FAULT_POINT("change-node-page");
	GenericXLogFinish(change->state);
	UnlockReleaseBuffer(change->node);
	if (BufferIsValid(change->list))
		UnlockReleaseBuffer(change->list);
}

/* State of writing rows to their pages. */
struct RowWriter
{
	MemoryContext memory;
	EdgeTargets targets;
	NodeChange	change;
	uint64		change_seq;
	const LinkedRows *rows;
	uint32	   *clean;			/* of one page: neighbours, and their numbers */
	uint32	   *counts;
	uint32		count;			/* number of rows; those beyond are of slots that do not exist */
	bool		linked;			/* current phase: slots that are linked already, or new ones */
	uint32		next;			/* next row to write */
};

/*
 * Write the rows [start, end), which are on one page: those of slots that are
 * linked already, or those of the others.
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

		if (slot_has_bit(&writer->targets, writer->targets.linked, slots[i]) != linked)
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

/* The end of the rows that are on the same page as the one at start. */
static uint32
page_end(const IndexFormat *format, const LinkedRows *rows, uint32 count, uint32 start)
{
	BlockNumber block = node_block(format, rows->slots[start]);
	uint32		end = start + 1;

	while (end < count && node_block(format, rows->slots[end]) == block)
		end++;
	return end;
}

/* Initialize a row writer. */
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
 * Continue writing, at least one page, until over() says so. Returns true when
 * all is written.
 *
 * Slots that are in the graph already are written first. So the reverse edges
 * to a row from the previous graph are in WAL before the row is marked as
 * linked, also if a crash interrupts the writing.
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

/*
 * Write rows, ascending by slot. Slots that no longer hold a row are left out.
 */
void
link_write_rows(Relation index, const IndexFormat *format, const LinkedRows *rows,
				uint32 next_fresh, uint64 change_seq)
{
	RowWriter  *writer = row_writer_begin(format, rows, next_fresh, change_seq);

	(void) row_writer_go_on(writer, index, NULL, NULL);
	MemoryContextDelete(writer->memory);
}

/* Whether a slot is in the graph, as a seed has to be. */
static bool
in_graph(Relation index, const IndexFormat *format, uint32 slot, NodeCopy *node)
{
	return read_node(index, format, slot, node) && (node->flags & NODE_LINKED) != 0;
}

/* Whether the seed area has exactly these seeds. */
static bool
has_seeds(Relation index, const uint32 *seeds, uint32 nseeds)
{
	MetaPage	meta;
	uint32	   *there;
	bool		same;

	read_meta(index, &meta);
	if (meta.seeds != nseeds)
		return false;
	(void) read_seeds(index, &meta, nseeds, &there);
	same = memcmp(seeds, there, sizeof(uint32) * nseeds) == 0;
	pfree(there);
	return same;
}

/*
 * Write the seed area, ordered; slots that are not in the graph are left out.
 * Returns the new number of seeds.
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
	 * An engine returns the seeds that it was given, in their order, until it
	 * has chosen others.
	 */
	if (!has_seeds(index, seeds, nseeds))
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

/*
 * Whether every live slot of a pass is linked now, by this pass or an earlier
 * one.
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
									   compare_numbers) != NULL)
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
	PendingBounds bounds;

	pending_bounds(index, format, &meta, &bounds);
	FAULT_POINT("link-computed");
	link_write_rows(index, format, rows, bounds.next_fresh, meta.change_seq + 1);
	pending_trim(index, format, link_write_end(index, format, pass, rows));
}

/*
 * End a pass whose rows are written; returns the pending position up to which
 * the list may be trimmed.
 */
uint64
link_write_end(Relation index, const IndexFormat *format, const LinkPass *pass,
			   const LinkedRows *rows)
{
	MetaPage	meta;
	PendingBounds bounds;
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
		 * All live slots of the pass, because an interrupted pass may have
		 * written the rows of some of them, which were not counted then.
		 */
		end.newly_linked = end.has_linked_position ? pass->live : 0;
		if (!end.has_linked_position)
			ereport(
				WARNING,
				(errmsg("some rows of index \"%s\" were not linked, they stay on its pending list",
						RelationGetRelationName(index))));
	}
	link_finish_slice(index, &end);
	client_note_change(index);
	return meta.linked_position;
}
