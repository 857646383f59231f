/*
 * vacuum.c
 *		VACUUM: from dead rows to free slots.
 *
 * A pass over the node pages marks slots dead whose TIDs the heap is about to
 * remove. Then, under the linker lock, in this order: graph rows with dead
 * neighbours are pruned again (repaired), dead seeds are replaced, dead slots
 * are detached, pending rows are linked (after the repair, because among dead
 * rows a search finds few candidates), and detached slots that no pending list
 * entry names any more are freed. A crash between any two of these steps leaves
 * a valid index: the next VACUUM finds dead and detached slots by their states,
 * and continues.
 */
#include "base/handler.h"
#include "postgres.h"

#include "catalog/catalog.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "client/client.h"
#include "base/faults.h"
#include "link/link_lists.h"
#include "link/link_write.h"
#include "link/repair_server.h"
#include "link/graph_edits.h"
#include "engine/bits.h"
#include "engine/repair_row.h"

#define OFFERS_AT_ONCE		100000	/* reverse edges collected before they are applied, so that each
									 * row is pruned once for many of them */

/* One VACUUM of one index. */
typedef struct IndexVacuum
{
	IndexVacuumInfo *info;
	IndexBulkDeleteResult *stats;
	IndexBulkDeleteCallback callback;
	void	   *callback_state;
	Relation	index;
	const IndexFormat *format;
	PendingBounds bounds;			/* renewed once the linker lock is held */
	uint32		limit;			/* number of slots at the start: the bitmaps' size */
	uint64		change_seq;		/* of the current slice */
	bool		locked;
	char	   *page;			/* a copy of the current node page */
	uint32		live;			/* rows seen */
	uint32		ndead;			/* slots in dead */
	uint32		ndetached;		/* slots found detached, by an earlier VACUUM */
	unsigned char *dead;		/* bit per slot, allocated when needed */
	unsigned char *detached;
	NodeChange	change;
} IndexVacuum;

/*
 * Whether a slot's bit is set. Slots added since the start are beyond the
 * bitmap.
 */
static bool
test_slot(const IndexVacuum *vacuum, const unsigned char *bits, uint32 slot)
{
	return bits != NULL && slot < vacuum->limit && bit_is_set(bits, slot);
}

/* Set a slot's bit; the first call allocates the bitmap. */
static void
set_slot(const IndexVacuum *vacuum, unsigned char **bits, uint32 slot)
{
	if (*bits == NULL)
		*bits = palloc_extended((Size) vacuum->limit / 8 + 1, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	bit_set(*bits, slot);
}

/* End a slice: publish its change sequence, and wake the mirror's worker. */
static void
end_slice(IndexVacuum *vacuum, SliceEnd *end)
{
	end->change_seq = vacuum->change_seq++;
	link_finish_slice(vacuum->index, end);
	client_note_change(vacuum->index);
}

/*
 * Take the linker lock unless this VACUUM holds it, and number the next slice.
 * Waits interruptibly.
 *
 * With old_snapshot_threshold, rows may be removed that snapshots still see.
 * Then an empty slice is written first: it gives the metapage an LSN newer than
 * those snapshots before any row is marked dead, which check_snapshot_age()
 * tests. Otherwise a mirror that receives marked pages before their slice ends
 * would hide the rows from a scan that still finds an old metapage LSN.
 */
static void
lock_linker(IndexVacuum *vacuum)
{
	MetaPage	meta;

	if (vacuum->locked)
		return;
	(void) linker_lock(vacuum->index, true, false);
	vacuum->locked = true;
	read_meta(vacuum->index, &meta);
	vacuum->change_seq = meta.change_seq + 1;
#if PG_VERSION_NUM < 170000
	if (EarlyPruningEnabled(vacuum->index))
	{
		SliceEnd	empty = {0};

		end_slice(vacuum, &empty);
	}
#endif
}

/* Slots [first, last) of a node page that exist. */
static void
page_slots(const IndexVacuum *vacuum, uint32 superblock, uint32 page, uint32 *first, uint32 *last)
{
	const IndexFormat *format = vacuum->format;

	*first = node_page_first_slot(format, superblock, page);
	*last = Min(*first + format->nodes_per_page, (superblock + 1) * format->superblock_slots);
	*last = Min(*last, vacuum->bounds.next_fresh);
}

/* Copy a node page. Returns false if it was never written. */
static bool
copy_node_page(IndexVacuum *vacuum, uint32 slot)
{
	Buffer buffer = read_page_in_bulk(vacuum->index, node_block(vacuum->format, slot), PAGE_NODE,
									  BUFFER_LOCK_SHARE, true, vacuum->info->strategy);
	bool		written = !PageIsNew(BufferGetPage(buffer));

	if (written)
		memcpy(vacuum->page, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	return written;
}

/*
 * Call visit for every node page, with its slots, after copying the page to
 * vacuum->page.
 */
static void
for_each_node_page(IndexVacuum *vacuum,
				   void (*visit)(IndexVacuum *vacuum, uint32 first, uint32 last, void *state),
				   void *state)
{
	const IndexFormat *format = vacuum->format;

	for (uint32 superblock = 0;
		 (uint64) superblock * format->superblock_slots < vacuum->bounds.next_fresh; superblock++)
	{
		for (uint32 page = 0; page < format->node_pages; page++)
		{
			uint32		first,
						last;

			page_slots(vacuum, superblock, page, &first, &last);
			if (first >= last)
				break;
			link_pause();
			if (copy_node_page(vacuum, first))
				visit(vacuum, first, last, state);
		}
	}
}

/* ---- marking ---- */

/* Mark rows of one page dead, those for which the callback returns true. */
static void
mark_page(IndexVacuum *vacuum, uint32 first, uint32 last)
{
	lock_linker(vacuum);
	node_change_begin(&vacuum->change, vacuum->index, vacuum->format, first, vacuum->change_seq);
	for (uint32 slot = first; slot < last; slot++)
	{
		NodeRecord *node = node_record(vacuum->format, vacuum->change.page, slot);

		if (NodeState(node) != NODE_LIVE || !test_slot(vacuum, vacuum->dead, slot))
			continue;
		node->flags = (node->flags & ~NODE_STATE_MASK) | NODE_DEAD;
		node->version++;
		ItemPointerSetInvalid(&node->tid);
	}
	node_change_finish(&vacuum->change);
	FAULT_POINT("vacuum-marked-page");
}

/* Count the rows of one page, and mark dead ones. */
static void
visit_for_marking(IndexVacuum *vacuum, uint32 first, uint32 last, void *state)
{
	bool		died = false;

	for (uint32 slot = first; slot < last; slot++)
	{
		NodeRecord *node = node_record(vacuum->format, (Page) vacuum->page, slot);

		switch (NodeState(node))
		{
			case NODE_LIVE:
				/* The callback must not get an invalid TID. */
				if (!ItemPointerIsValid(&node->tid))
					report_corrupt(vacuum->index, node_block(vacuum->format, slot),
								   "a live slot has no TID");
				if (!vacuum->callback(&node->tid, vacuum->callback_state))
				{
					vacuum->live++;
					break;
				}
				died = true;
				vacuum->stats->tuples_removed++;
				/* FALLTHROUGH */
			case NODE_DEAD:
				set_slot(vacuum, &vacuum->dead, slot);
				vacuum->ndead++;
				break;
			case NODE_DETACHED:
				set_slot(vacuum, &vacuum->detached, slot);
				vacuum->ndetached++;
				break;
			default:
				break;
		}
	}

	/*
	 * The page was copied, and the callback called without its lock. A row that
	 * was live and whose TID is dead stays so until VACUUM ends: only VACUUM
	 * frees its slot, and the heap reuses the TID only afterwards.
	 */
	if (died)
		mark_page(vacuum, first, last);
}

/* ---- repair ---- */

/* State of the repair. */
typedef struct Repair
{
	IndexVacuum *vacuum;
	GraphEdits *edits;
	RepairScratch scratch;
	uint32		slot;			/* whose row is being repaired */
	unsigned char *in_graph;	/* bit per slot, for rows from the server: live and linked */
	uint32	   *new_seeds;		/* a sample of live slots to replace dead seeds */
	uint32		new_seed_room;
	uint32		new_seed_count;
	uint64		linked_seen;
	pg_prng_state random;
} Repair;

/* Write the rows repaired so far, as a slice of their own. */
static void
write_repaired(IndexVacuum *vacuum, Repair *repair)
{
	LinkedRows	rows;
	SliceEnd	end = {0};

	graph_edits_apply_offers(repair->edits);
	graph_edits_take(repair->edits, &rows);
	if (rows.count > 0)
	{
		link_write_rows(vacuum->index, vacuum->format, &rows, vacuum->bounds.next_fresh,
						vacuum->change_seq);
		end_slice(vacuum, &end);
		FAULT_POINT("vacuum-repaired-part");
	}
	pfree(rows.slots);
	pfree(rows.rows);
	if (rows.places != NULL)
		pfree(rows.places);
}

/* RepairAccess: a row, changes included. */
static uint32
vacuum_read_row(void *context, uint32 slot, uint32 *neighbours)
{
	SlotState	state;

	return graph_edits_get(((Repair *) context)->edits, slot, neighbours, &state);
}

static bool
access_dead(void *context, uint32 slot)
{
	IndexVacuum *vacuum = ((Repair *) context)->vacuum;

	return test_slot(vacuum, vacuum->dead, slot);
}

static void
access_distances(void *context, const uint32 *slots, uint32 count, double *out)
{
	Repair	   *repair = context;

	for (uint32 i = 0; i < count; i++)
		out[i] = graph_edits_distance(repair->edits, repair->slot, slots[i]);
}

static uint32
access_search(void *context, Candidate *candidates)
{
	Repair	   *repair = context;

	return graph_edits_search(repair->edits, repair->slot, repair->scratch.ef, false, candidates);
}

static uint32
access_choose(void *context, Candidate *candidates, uint32 count, Candidate *chosen, uint32 *kept)
{
	Repair	   *repair = context;

	return graph_edits_choose(repair->edits, repair->slot, candidates, count, chosen, kept);
}

/* The callbacks of repair_row.c over pages. */
static RepairAccess
repair_access(Repair *repair)
{
	return (RepairAccess){.context = repair,
						  .row = vacuum_read_row,
						  .dead = access_dead,
						  .distances = access_distances,
						  .search = access_search,
						  .choose = access_choose};
}

/* Choose new neighbours for a row that names dead slots. */
static void
repair_over_pages(Repair *repair, uint32 slot)
{
	RepairAccess access = repair_access(repair);
	Candidate	row[ENGINE_MAX_DEGREE + 1];
	uint32		count;
	uint32		kept;

	repair->slot = slot;
	count = repair_row(&access, &repair->scratch, slot,
					   graph_edits_distance(repair->edits, slot, slot), row, &kept);
	graph_edits_set_chosen(repair->edits, slot, row, count);
}

/*
 * Whether a graph row from the server is valid: it names existing slots other
 * than its own, each once. It may name dead slots, if it got a reverse edge and
 * has not been repaired itself yet; rows that name dead slots in the end are
 * repaired over pages.
 *
 * Millions of rows are checked, so neighbours are compared with each other only
 * if a filter of 256 bits does not already exclude a duplicate.
 */
static bool
is_repaired(const IndexVacuum *vacuum, uint32 slot, const uint32 *row, uint32 *count)
{
	uint64		seen[4] = {0};

	for (*count = 0; *count < vacuum->format->degree && row[*count] != NO_SLOT; (*count)++)
	{
		uint32		neighbour = row[*count];
		uint32		hash = neighbour * 0x9E3779B1u >> 24;
		uint64		bit = UINT64CONST(1) << (hash & 63);

		if (neighbour >= vacuum->bounds.next_fresh || neighbour == slot)
			return false;
		if ((seen[hash >> 6] & bit) != 0 && slot_is_among(row, *count, neighbour))
			return false;
		seen[hash >> 6] |= bit;
	}
	return true;
}

/*
 * TakeRepaired: keep a row as if it had been repaired in this process. Slots
 * that are not in the graph according to the pages get no row.
 */
static bool
take_repaired(void *arg, uint32 slot, const uint32 *row)
{
	Repair	   *repair = arg;
	IndexVacuum *vacuum = repair->vacuum;
	uint32		count;

	if (slot >= vacuum->bounds.next_fresh || !bit_is_set(repair->in_graph, slot) ||
		!is_repaired(vacuum, slot, row, &count))
		return false;
	link_pause();
	if (!graph_edits_have_room(repair->edits, 1))
		write_repaired(vacuum, repair);
	graph_edits_set_live(repair->edits, slot, row, count);
	return true;
}

/* Record which slots of one page are live and linked. */
static void
visit_for_states(IndexVacuum *vacuum, uint32 first, uint32 last, void *state)
{
	Repair	   *repair = state;

	for (uint32 slot = first; slot < last; slot++)
	{
		NodeRecord *node = node_record(vacuum->format, (Page) vacuum->page, slot);

		if (NodeState(node) == NODE_LIVE && (node->flags & NODE_LINKED) != 0)
			bit_set(repair->in_graph, slot);
	}
}

/*
 * Have the server repair, if it can. The set of linked slots is read once
 * before, because it does not change under the linker lock.
 */
static void
repair_by_server(IndexVacuum *vacuum, Repair *repair, RepairServer *server)
{
	if (!repair_server_begin(server, vacuum->index, vacuum->format, vacuum->ndead,
							 vacuum->ndead + vacuum->live, vacuum->change_seq - 1))
		return;
	repair->in_graph = palloc_extended((Size) vacuum->bounds.next_fresh / 8 + 1,
									   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for_each_node_page(vacuum, visit_for_states, repair);
	(void) repair_server_run(server, vacuum->bounds.next_fresh, take_repaired, repair);
	pfree(repair->in_graph);
}

/*
 * Reservoir sample of live linked slots, to replace dead seeds.
 */
static void
sample_seed(Repair *repair, uint32 slot)
{
	uint64		place = repair->linked_seen++;

	if (repair->new_seed_room == 0)
		return;
	if (repair->new_seed_count < repair->new_seed_room)
		place = repair->new_seed_count++;
	else
		place = pg_prng_uint64_range(&repair->random, 0, place);
	if (place < repair->new_seed_room)
		repair->new_seeds[place] = slot;
}

/*
 * Repair the rows of one page that name dead slots. The copy of the page may
 * lack reverse edges that were added and written since it was made; these name
 * no dead slots.
 */
static void
visit_for_repair(IndexVacuum *vacuum, uint32 first, uint32 last, void *state)
{
	Repair	   *repair = state;
	RepairAccess access = repair_access(repair);

	for (uint32 slot = first; slot < last; slot++)
	{
		NodeRecord *node = node_record(vacuum->format, (Page) vacuum->page, slot);
		uint32		row[ENGINE_MAX_DEGREE];
		uint32		count;

		if (NodeState(node) != NODE_LIVE || (node->flags & NODE_LINKED) == 0)
			continue;
		sample_seed(repair, slot);
		count = graph_edits_get_from(repair->edits, slot,
									 graph_row(vacuum->format, (Page) vacuum->page, slot), row);
		if (!repair_needed(&access, row, count))
			continue;
		link_pause();
		if (!graph_edits_have_room(repair->edits,
								   graph_edits_offered(repair->edits) + vacuum->format->degree + 1))
			write_repaired(vacuum, repair);
		else if (graph_edits_offered(repair->edits) >= OFFERS_AT_ONCE)
			graph_edits_apply_offers(repair->edits);
		repair_over_pages(repair, slot);
	}
}

/* Replace dead seeds by sampled slots; returns the new number of seeds. */
static uint32
choose_live_seeds(const IndexVacuum *vacuum, const Repair *repair, uint32 *seeds, uint32 nseeds)
{
	uint32		kept = 0;
	uint32		replaced = 0;

	for (uint32 i = 0; i < nseeds; i++)
	{
		if (!test_slot(vacuum, vacuum->dead, seeds[i]))
			seeds[kept++] = seeds[i];
		else if (replaced < repair->new_seed_count)
			seeds[kept++] = repair->new_seeds[replaced++];
	}
	return kept;
}

/* Write new seeds, in a slice of their own. */
static void
replace_seeds(IndexVacuum *vacuum, const uint32 *seeds, uint32 nseeds)
{
	SliceEnd	end = {.has_seeds = true};

	end.seeds =
		link_write_seeds(vacuum->index, vacuum->format, seeds, nseeds, vacuum->bounds.next_fresh);
	FAULT_POINT("vacuum-seeds-written");
	end_slice(vacuum, &end);
}

/*
 * Remove dead slots from all live rows and from the seeds: by the server if it
 * can, then over pages for rows that still name dead slots.
 */
static void
repair_graph_with(IndexVacuum *vacuum, RepairServer *server)
{
	const IndexFormat *format = vacuum->format;
	Size		memory = link_memory();
	Repair		repair = {.vacuum = vacuum};
	MetaPage	meta;
	uint32	   *seeds;
	uint32		nseeds;

	read_meta(vacuum->index, &meta);
	nseeds = read_seeds(vacuum->index, &meta, SEEDS_MAX, &seeds);
	for (uint32 i = 0; i < nseeds; i++)
	{
		if (seeds[i] >= vacuum->bounds.next_fresh)
			report_corrupt(vacuum->index, 1 + i / GPUANN_SEEDS_PER_PAGE, "a seed does not exist");
		repair.new_seed_room += test_slot(vacuum, vacuum->dead, seeds[i]);
	}
	repair.edits = graph_edits_begin(vacuum->index, format, vacuum->bounds.next_fresh, memory);
	graph_edits_seeds(repair.edits, seeds, nseeds);
	repair_scratch_init(&repair.scratch,
						palloc(repair_scratch_bytes(format->degree, format->ef_construction)),
						format->degree, format->ef_construction);
	repair.new_seeds = palloc(sizeof(uint32) * Max(repair.new_seed_room, 1));
	pg_prng_seed(&repair.random, meta.change_seq);

	repair_by_server(vacuum, &repair, server);
	for_each_node_page(vacuum, visit_for_repair, &repair);
	nseeds = choose_live_seeds(vacuum, &repair, seeds, nseeds);
	graph_edits_seeds(repair.edits, seeds, nseeds);
	graph_edits_apply_offers(repair.edits);
	graph_edits_connect(repair.edits, vacuum->ndead, memory);
	write_repaired(vacuum, &repair);
	graph_edits_end(repair.edits);
	if (repair.new_seed_room > 0)
		replace_seeds(vacuum, seeds, nseeds);
	repair_server_end(server);
}

/*
 * The same. After an ERROR, or at process exit, a mirror that is ahead of the
 * pages is invalidated.
 */
static void
repair_graph(IndexVacuum *vacuum)
{
	RepairServer *server = repair_server_make();

	PG_ENSURE_ERROR_CLEANUP(repair_server_abandon, PointerGetDatum(server));
	repair_graph_with(vacuum, server);
	PG_END_ENSURE_ERROR_CLEANUP(repair_server_abandon, PointerGetDatum(server));
	pfree(server);
}

/* ---- detaching and freeing ---- */

/*
 * Detach the dead slots of one page: no live row names them now, and their own
 * rows are not needed any more. Count the other linked slots.
 */
static void
visit_for_detaching(IndexVacuum *vacuum, uint32 first, uint32 last, void *state)
{
	uint32	   *linked = state;
	bool		any = false;

	for (uint32 slot = first; slot < last; slot++)
	{
		if (test_slot(vacuum, vacuum->dead, slot))
			any = true;
		else if (node_record(vacuum->format, (Page) vacuum->page, slot)->flags & NODE_LINKED)
			(*linked)++;
	}
	if (!any)
		return;
	node_change_begin(&vacuum->change, vacuum->index, vacuum->format, first, vacuum->change_seq);
	for (uint32 slot = first; slot < last; slot++)
	{
		NodeRecord *node = node_record(vacuum->format, vacuum->change.page, slot);

		if (!test_slot(vacuum, vacuum->dead, slot) || NodeState(node) != NODE_DEAD)
			continue;
		if (node->flags & NODE_LINKED)
			memset(graph_row(vacuum->format, vacuum->change.page, slot), 0xFF,
				   sizeof(uint32) * vacuum->format->degree);
		node->flags = NODE_DETACHED;
	}
	node_change_finish(&vacuum->change);
	FAULT_POINT("vacuum-detached-page");
}

/*
 * Free the slots detached by this VACUUM or an earlier one that the pending
 * list does not name any more.
 */
static void
free_detached(IndexVacuum *vacuum)
{
	MetaPage	meta;
	PendingBounds bounds;
	uint32	   *listed;
	uint32		nlisted;
	uint32	   *slots;
	uint32		count = 0;

	do
	{
		pending_bounds(vacuum->index, vacuum->format, &meta, &bounds);
	} while (!pending_read(vacuum->index, vacuum->format, &bounds, bounds.trimmed, bounds.end,
						   &listed, &nlisted));
	for (uint32 i = 0; i < nlisted; i++)
	{
		uint32		slot = listed[i];

		if (slot >= vacuum->limit)
			continue;
		if (vacuum->dead != NULL)
			bit_clear(vacuum->dead, slot);
		if (vacuum->detached != NULL)
			bit_clear(vacuum->detached, slot);
	}

	slots = palloc_extended(sizeof(uint32) * ((Size) vacuum->ndead + vacuum->ndetached),
							MCXT_ALLOC_HUGE);
	for (uint32 slot = 0; slot < vacuum->limit; slot++)
	{
		if (slot % 65536 == 0)
			link_pause();
		if (test_slot(vacuum, vacuum->dead, slot) || test_slot(vacuum, vacuum->detached, slot))
			slots[count++] = slot;
	}
	if (count > 0)
	{
		SliceEnd	end = {0};

		free_slots(vacuum->index, vacuum->format, slots, count, vacuum->change_seq);
		end_slice(vacuum, &end);
	}
	pfree(slots);
}

/*
 * Whether pending rows are left to a mirror worker. Not in an index with lists,
 * where VACUUM compares numbers of entries and rows.
 */
static bool
worker_links(Relation index, const IndexFormat *format)
{
	return !format_has_lists(format) && client_worker_links(index);
}

/*
 * Link pending rows, unless a worker does; trim the list in any case.
 */
static void
link_for_vacuum(Relation index, const IndexFormat *format)
{
	MetaPage	meta;

	if (!worker_links(index, format))
	{
		(void) link_pending(index, format, NULL);
		return;
	}
	read_meta(index, &meta);
	pending_trim(index, format, meta.linked_position);
}

/* Advance dead and detached slots: repair, detach, free. */
static void
vacuum_bury(IndexVacuum *vacuum)
{
	MetaPage	meta;
	SliceEnd	end = {0};

	lock_linker(vacuum);
	end_slice(vacuum, &end);
	FAULT_POINT("vacuum-marked");
	pending_bounds(vacuum->index, vacuum->format, &meta, &vacuum->bounds);
	if (vacuum->ndead > 0)
	{
		if (format_has_lists(vacuum->format))
			link_out_of_lists(vacuum->index, vacuum->format, vacuum->dead, vacuum->limit);
		else
			repair_graph(vacuum);
		FAULT_POINT("vacuum-repaired");
	}
	/*
	 * An interrupted VACUUM may have detached slots without updating
	 * linked_slots.
	 */
	memset(&end, 0, sizeof(end));
	for_each_node_page(vacuum, visit_for_detaching, &end.linked_slots);
	end.linked_slots -= linked_but_listed(vacuum->index, vacuum->format);
	end.has_linked_slots = true;
	end_slice(vacuum, &end);
	FAULT_POINT("vacuum-detached");
	link_for_vacuum(vacuum->index, vacuum->format);
	read_meta(vacuum->index, &meta);
	vacuum->change_seq = meta.change_seq + 1;
	free_detached(vacuum);
	FAULT_POINT("vacuum-freed");
}

/* ambulkdelete */
IndexBulkDeleteResult *
gpuannbulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
				 IndexBulkDeleteCallback callback, void *callback_state)
{
	MemoryContext memory =
		AllocSetContextCreate(CurrentMemoryContext, "gpuann vacuum", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller;
	IndexVacuum vacuum = {0};
	MetaPage	meta;

	if (stats == NULL)
		stats = palloc0(sizeof(IndexBulkDeleteResult));
	caller = MemoryContextSwitchTo(memory);
	vacuum.info = info;
	vacuum.stats = stats;
	vacuum.callback = callback;
	vacuum.callback_state = callback_state;
	vacuum.index = info->index;
	vacuum.format = index_format(info->index);
	vacuum.page = palloc(BLCKSZ);
	vacuum.change.stamped_superblock = NO_SLOT;
	pending_bounds(vacuum.index, vacuum.format, &meta, &vacuum.bounds);
	vacuum.limit = vacuum.bounds.next_fresh;

	for_each_node_page(&vacuum, visit_for_marking, NULL);
	if (vacuum.ndead > 0 || vacuum.ndetached > 0)
		vacuum_bury(&vacuum);
	if (vacuum.locked)
		linker_unlock(vacuum.index, false);

	stats->num_pages = RelationGetNumberOfBlocks(vacuum.index);
	stats->num_index_tuples = vacuum.live;
	stats->estimated_count = false;
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(memory);
	return stats;
}

/*
 * amvacuumcleanup: link an insert-only table, unless a worker does or the
 * linker lock is taken, and remove list entries left by interrupted passes.
 */
IndexBulkDeleteResult *
gpuannvacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	const IndexFormat *format;

	if (info->analyze_only)
		return stats;
	format = index_format(info->index);
	if (!worker_links(info->index, format) && linker_lock(info->index, false, false))
	{
		(void) link_pending(info->index, format, NULL);
		if (format_has_lists(format))
			link_out_needless(info->index, format);
		linker_unlock(info->index, false);
	}
	if (stats == NULL)
	{
		stats = palloc0(sizeof(IndexBulkDeleteResult));
		stats->num_index_tuples = info->num_heap_tuples;
		stats->estimated_count = true;
	}
	stats->num_pages = RelationGetNumberOfBlocks(info->index);
	return stats;
}
