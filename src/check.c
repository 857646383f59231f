/*
 * check.c
 *		gpuann_check(index): whether an index keeps every rule of its format.
 *
 * On a primary the table is locked against writing and the linker is kept out, so whatever is wrong is damage. On a standby
 * nothing can be locked against replay: when something looks wrong and a page read was changed after the check began, the check
 * starts again. Pages are copied, then judged without any lock.
 */
#include "postgres.h"

#include <math.h>

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"

#include "link.h"
#include "sqlindex.h"

#define STANDBY_TRIES		20		/* checks begun anew because replay changed the index */
#define STANDBY_PAUSE_US	100000

/* What is known of a slot, in one byte: its state and these. */
#define SLOT_LINKED			0x10
#define SLOT_LISTED			0x20
#define SLOT_PENDING		0x40	/* listed after linked_position */
#define SLOT_ON_FREE_LIST	0x80

typedef struct IndexCheck
{
	Relation	index;
	Relation	heap;
	const IndexFormat *format;
	MetaPage	meta;
	BlockNumber blocks;			/* of the file */
	BufferAccessStrategy strategy;
	char	   *page;			/* the copy under judgement */
	NodeRecord *node;
	void	   *vector;

	AppendPoint append;			/* of the newest list page */
	uint64		end;			/* append position */
	BlockNumber *lists;			/* list pages, oldest first */
	uint32		nlists;
	bool	   *list_seen;		/* per superblock */
	uint64	   *superblock_seq;
	uint8	   *slots;			/* what is known of each */
	Tuplesortstate *tids;

	bool		replaying;		/* pages may change while we look */
	XLogRecPtr	began;			/* replayed until then */
	XLogRecPtr	newest_page;	/* newest change of a page we read */

	/* the violation found */
	BlockNumber bad_block;
	uint32		bad_slot;		/* or NO_SLOT */
	const char *what;
} IndexCheck;

/* Note what is wrong; false, for the caller to return. */
static bool
violated(IndexCheck *check, BlockNumber block, uint32 slot, const char *what)
{
	check->bad_block = block;
	check->bad_slot = slot;
	check->what = what;
	return false;
}

/* Copy a page to check->page. What is not a page of this kind at all errors out. */
static bool
fetch(IndexCheck *check, BlockNumber block, PageKind kind)
{
	Buffer		buffer;

	CHECK_FOR_INTERRUPTS();
	if (block >= check->blocks)
		return violated(check, block, NO_SLOT, "the file ends before this page");
	buffer = read_page_in_bulk(check->index, block, kind, BUFFER_LOCK_SHARE, true, check->strategy);
	memcpy(check->page, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	if (PageIsNew((Page) check->page))
		return violated(check, block, NO_SLOT, "the page is all zero");
	check->newest_page = Max(check->newest_page, PageGetLSN((Page) check->page));
	return true;
}

/* Whether pd_lower is past so many bytes of the page's contents: WAL replay clears what is behind it. */
static bool
reaches(IndexCheck *check, Size bytes)
{
	PageHeader	header = (PageHeader) check->page;

	return header->pd_lower >= (char *) PageGetContents(check->page) + bytes - check->page &&
		header->pd_lower <= header->pd_upper;
}

/* ---- metapage and lists ---- */

/* The metapage: what read_meta does not check. */
static bool
check_metapage(IndexCheck *check)
{
	if (!fetch(check, GPUANN_META_BLOCK, PAGE_META))
		return false;
	if (!reaches(check, sizeof(MetaPage)))
		return violated(check, GPUANN_META_BLOCK, NO_SLOT, "the page's data reach beyond pd_lower");
	read_meta(check->index, &check->meta);
	check->format = index_format(check->index);
	return true;
}

/* Copy the list page at block and check what every list page must keep. */
static bool
fetch_list(IndexCheck *check, BlockNumber block)
{
	const IndexFormat *format = check->format;
	ListPage   *list;

	if (!is_list_block(format, block))
		return violated(check, block, NO_SLOT, "no list page can be here");
	if (!fetch(check, block, PAGE_LIST))
		return false;
	list = ListPageOf(check->page);
	if (list->count > GPUANN_LIST_CAPACITY)
		return violated(check, block, NO_SLOT, "the list page holds more than it can");
	if (!reaches(check, offsetof(ListPage, slots) + list->count * sizeof(uint32)))
		return violated(check, block, NO_SLOT, "the page's data reach beyond pd_lower");
	if (list_block(format, PageTailOf(check->page)->superblock) != block)
		return violated(check, block, NO_SLOT, "the page says it belongs to another superblock");
	if (list->superblock_seq > check->meta.change_seq + 1)
		return violated(check, block, NO_SLOT, "the superblock is stamped with a change still to come");
	return true;
}

/* Walk the list from its oldest page to its newest: states and positions. */
static bool
check_list_chain(IndexCheck *check)
{
	uint32		superblocks = (check->blocks - superblock_start(check->format, 0)) / check->format->superblock_pages + 1;
	BlockNumber block = check->meta.oldest_list;
	uint64		expected = 0;

	check->lists = palloc_extended(sizeof(BlockNumber) * superblocks, MCXT_ALLOC_HUGE);
	for (check->nlists = 0;; check->nlists++)
	{
		ListPage   *list;

		if (check->nlists >= superblocks)
			return violated(check, block, NO_SLOT, "the list pages form a circle");
		if (!fetch_list(check, block))
			return false;
		list = ListPageOf(check->page);
		if (list->state != LIST_CLOSED && list->state != LIST_NEWEST)
			return violated(check, block, NO_SLOT, "a page of the list is spare");
		if (check->nlists > 0 && list->first_position != expected)
			return violated(check, block, NO_SLOT, "list positions are not contiguous");
		if (check->nlists == 0 && (check->meta.trimmed_position < list->first_position ||
								   check->meta.trimmed_position > list->first_position + list->count))
			return violated(check, block, NO_SLOT, "the oldest list page does not hold the trimmed position");
		check->lists[check->nlists] = block;
		expected = list->first_position + list->count;
		if (list->state == LIST_NEWEST)
			break;
		block = list->next;
	}
	check->nlists++;
	check->append = ListPageOf(check->page)->append;
	check->end = expected;
	if (check->meta.linked_position > check->end)
		return violated(check, GPUANN_META_BLOCK, NO_SLOT, "more of the list is linked than there is");
	return true;
}

/* The newest list page's account of superblocks, slots and free list. */
static bool
check_append_point(IndexCheck *check)
{
	const AppendPoint *append = &check->append;
	BlockNumber newest = check->lists[check->nlists - 1];

	if (append->superblocks < 1 ||
		superblock_start(check->format, 0) + (uint64) (append->superblocks - 1) * check->format->superblock_pages >= check->blocks)
		return violated(check, newest, NO_SLOT, "there are more superblocks than the file holds");
	if (append->next_fresh > ENGINE_MAX_SLOTS ||
		append->next_fresh > (uint64) append->superblocks * check->format->superblock_slots)
		return violated(check, newest, NO_SLOT, "the next fresh slot is beyond the superblocks");
	if (append->free_count > append->next_fresh || (append->free_count == 0) != (append->free_head == NO_SLOT))
		return violated(check, newest, NO_SLOT, "the free list is not consistent");
	return true;
}

/* Note a list page; false if it was met before. */
static bool
see_list_page(IndexCheck *check, BlockNumber block)
{
	uint32		superblock = PageTailOf(check->page)->superblock;

	if (superblock >= check->append.superblocks)
		return violated(check, block, NO_SLOT, "the list page is of a superblock that does not exist");
	if (check->list_seen[superblock])
		return violated(check, block, NO_SLOT, "the list page is reached twice");
	check->list_seen[superblock] = true;
	check->superblock_seq[superblock] = ListPageOf(check->page)->superblock_seq;
	return true;
}

/* The entries of the list: slots that exist, each once. */
static bool
check_list_entries(IndexCheck *check)
{
	for (uint32 i = 0; i < check->nlists; i++)
	{
		ListPage   *list;

		if (!fetch_list(check, check->lists[i]) || !see_list_page(check, check->lists[i]))
			return false;
		list = ListPageOf(check->page);
		for (uint32 j = 0; j < list->count; j++)
		{
			uint64		position = list->first_position + j;
			uint32		slot = list->slots[j];

			if (position < check->meta.trimmed_position || position >= check->end)
				continue;
			if (slot >= check->append.next_fresh)
				return violated(check, check->lists[i], slot, "the list names a slot that does not exist");
			if (check->slots[slot] & SLOT_LISTED)
				return violated(check, check->lists[i], slot, "the list names a slot twice");
			check->slots[slot] |= SLOT_LISTED | (position >= check->meta.linked_position ? SLOT_PENDING : 0);
		}
	}
	return true;
}

/* Spare list pages; with them every superblock's list page has been met. */
static bool
check_spare_lists(IndexCheck *check)
{
	BlockNumber block = check->append.spare_head;

	while (block != InvalidBlockNumber)
	{
		if (!fetch_list(check, block))
			return false;
		if (ListPageOf(check->page)->state != LIST_SPARE || ListPageOf(check->page)->count != 0)
			return violated(check, block, NO_SLOT, "a spare list page is in use");
		if (!see_list_page(check, block))
			return false;
		block = ListPageOf(check->page)->next;
	}
	for (uint32 superblock = 0; superblock < check->append.superblocks; superblock++)
		if (!check->list_seen[superblock])
			return violated(check, list_block(check->format, superblock), NO_SLOT, "the list page is neither in use nor spare");
	return true;
}

/* ---- node pages ---- */

/* One node record by itself. */
static bool
check_node(IndexCheck *check, uint32 slot, const NodeRecord *node)
{
	BlockNumber block = node_block(check->format, slot);
	uint16		state = NodeState(node);

	if (slot >= check->append.next_fresh)
		return state == NODE_ABSENT || violated(check, block, slot, "a slot beyond the next fresh one holds something");
	if (state < NODE_LIVE || state > NODE_FREE || (node->flags & ~(NODE_STATE_MASK | NODE_LINKED)) != 0)
		return violated(check, block, slot, "the slot's state is unknown");
	if ((node->flags & NODE_LINKED) != 0 && state != NODE_LIVE && state != NODE_DEAD)
		return violated(check, block, slot, "a slot without a row is linked");
	if (node->version == 0)
		return violated(check, block, slot, "the slot has no version");
	if ((state == NODE_LIVE) != ItemPointerIsValid(&node->tid))
		return violated(check, block, slot, state == NODE_LIVE ? "a live slot has no TID" : "a slot without a row has a TID");

	check->slots[slot] |= state | ((node->flags & NODE_LINKED) ? SLOT_LINKED : 0);
	if (state == NODE_LIVE)
		tuplesort_putdatum(check->tids,
						   Int64GetDatum(((int64) ItemPointerGetBlockNumber(&node->tid) << 16) |
										 ItemPointerGetOffsetNumber(&node->tid)), false);
	if (state == NODE_FREE && (check->slots[slot] & SLOT_LISTED))
		return violated(check, block, slot, "a free slot is listed");
	if (state == NODE_LIVE && !(node->flags & NODE_LINKED) && !(check->slots[slot] & SLOT_PENDING))
		return violated(check, block, slot, "a live slot is neither linked nor pending");
	return true;
}

/* Whether slot is among the first so many neighbours. */
static bool
named_before(const NodeRecord *node, uint32 count, uint32 slot)
{
	for (uint32 i = 0; i < count; i++)
		if (node->neighbours[i] == slot)
			return true;
	return false;
}

/* The graph row of a linked slot. A dead slot's may lead to detached ones while VACUUM is between its steps. */
static bool
check_row(IndexCheck *check, uint32 slot, const NodeRecord *node)
{
	BlockNumber block = node_block(check->format, slot);
	bool		ended = false;

	if (slot >= check->append.next_fresh || (node->flags & NODE_LINKED) == 0)
		return true;
	for (uint32 i = 0; i < check->format->degree; i++)
	{
		uint32		neighbour = node->neighbours[i];
		uint8		state;

		if (neighbour == NO_SLOT)
		{
			ended = true;
			continue;
		}
		if (ended)
			return violated(check, block, slot, "the graph row has gaps");
		if (neighbour >= check->append.next_fresh)
			return violated(check, block, slot, "the graph row names a slot that does not exist");
		if (neighbour == slot)
			return violated(check, block, slot, "the graph row names its own slot");
		if (named_before(node, i, neighbour))
			return violated(check, block, slot, "the graph row names a slot twice");
		state = check->slots[neighbour] & NODE_STATE_MASK;
		if (state != NODE_LIVE && state != NODE_DEAD && !(state == NODE_DETACHED && NodeState(node) == NODE_DEAD))
			return violated(check, block, slot, "the graph row leads to a slot that is detached, free or absent");
	}
	return true;
}

/* Every node page of a superblock that has slots in use: the page, and each of its records by `one`. */
static bool
check_node_pages(IndexCheck *check, uint32 superblock, bool (*one) (IndexCheck *check, uint32 slot, const NodeRecord *node))
{
	const IndexFormat *format = check->format;

	for (uint32 page = 0; page < format->node_pages; page++)
	{
		uint32		first = node_page_first_slot(format, superblock, page);
		uint32		last = Min(first + format->nodes_per_page, (superblock + 1) * format->superblock_slots);
		uint32		used = Min(last, check->append.next_fresh);
		BlockNumber block = node_block(format, first);
		PageTail   *tail;

		if (first >= used)
			break;
		if (!fetch(check, block, PAGE_NODE))
			return false;
		tail = PageTailOf(check->page);
		if (tail->superblock != superblock)
			return violated(check, block, NO_SLOT, "the page says it belongs to another superblock");
		if (tail->change_seq > check->superblock_seq[superblock])
			return violated(check, block, NO_SLOT, "the node page has changed later than its superblock is stamped");
		if (!reaches(check, (Size) (used - first) * format->node_bytes))
			return violated(check, block, NO_SLOT, "the page's data reach beyond pd_lower");
		for (uint32 slot = first; slot < last; slot++)
			if (!one(check, slot, node_record(format, (Page) check->page, slot)))
				return false;
	}
	return true;
}

/* Call check_node_pages for all superblocks. */
static bool
check_all_nodes(IndexCheck *check, bool (*one) (IndexCheck *check, uint32 slot, const NodeRecord *node))
{
	for (uint32 superblock = 0; superblock < check->append.superblocks; superblock++)
		if (!check_node_pages(check, superblock, one))
			return false;
	return true;
}

/* The free list: as long as it says, without a circle, and nothing free is missing from it. */
static bool
check_free_list(IndexCheck *check)
{
	uint32		slot = check->append.free_head;
	uint32		count = 0;
	uint32		free = 0;
	BlockNumber newest = check->lists[check->nlists - 1];

	while (slot != NO_SLOT)
	{
		CHECK_FOR_INTERRUPTS();
		if (slot >= check->append.next_fresh)
			return violated(check, newest, slot, "the free list names a slot that does not exist");
		if ((check->slots[slot] & NODE_STATE_MASK) != NODE_FREE)
			return violated(check, node_block(check->format, slot), slot, "a slot of the free list is not free");
		if (check->slots[slot] & SLOT_ON_FREE_LIST)
			return violated(check, node_block(check->format, slot), slot, "the free list is a circle");
		check->slots[slot] |= SLOT_ON_FREE_LIST;
		count++;
		(void) read_node(check->index, check->format, slot, check->node);
		slot = check->node->neighbours[0];
	}
	for (slot = 0; slot < check->append.next_fresh; slot++)
		free += (check->slots[slot] & NODE_STATE_MASK) == NODE_FREE;
	if (count != check->append.free_count)
		return violated(check, newest, NO_SLOT, "the free list is not as long as it says");
	if (free != count)
		return violated(check, newest, NO_SLOT, "some free slots are not on the free list");
	return true;
}

/* No TID belongs to two live slots, and each lies in the table. */
static bool
check_tids(IndexCheck *check)
{
	BlockNumber heap_blocks = RelationGetNumberOfBlocks(check->heap);
	int64		before = -1;
	Datum		value;
	bool		isnull;

	tuplesort_performsort(check->tids);
#if PG_VERSION_NUM >= 160000
	while (tuplesort_getdatum(check->tids, true, false, &value, &isnull, NULL))
#else
	while (tuplesort_getdatum(check->tids, true, &value, &isnull, NULL))
#endif
	{
		int64		tid = DatumGetInt64(value);

		CHECK_FOR_INTERRUPTS();
		if (tid == before)
			return violated(check, InvalidBlockNumber, NO_SLOT, "two live slots have the same TID");
		if ((tid >> 16) >= heap_blocks)
			return violated(check, InvalidBlockNumber, NO_SLOT, "a TID lies beyond the end of the table");
		before = tid;
	}
	return true;
}

/* ---- seeds and vectors ---- */

/* Seeds are slots of the graph. */
static bool
check_seeds(IndexCheck *check)
{
	for (uint32 i = 0; i < check->meta.seeds; i++)
	{
		BlockNumber block = 1 + i / GPUANN_SEEDS_PER_PAGE;
		uint32		seed;
		uint8		known;

		if (i % GPUANN_SEEDS_PER_PAGE == 0)
		{
			if (!fetch(check, block, PAGE_SEED))
				return false;
			if (!reaches(check, Min(check->meta.seeds - i, GPUANN_SEEDS_PER_PAGE) * sizeof(uint32)))
				return violated(check, block, NO_SLOT, "the page's data reach beyond pd_lower");
		}
		seed = SeedSlotsOf(check->page)[i % GPUANN_SEEDS_PER_PAGE];
		if (seed >= check->append.next_fresh)
			return violated(check, block, seed, "a seed does not exist");
		known = check->slots[seed];
		if (((known & NODE_STATE_MASK) != NODE_LIVE && (known & NODE_STATE_MASK) != NODE_DEAD) || !(known & SLOT_LINKED))
			return violated(check, block, seed, "a seed is not in the graph");
	}
	return true;
}

/* Whether every element is a number, and no bit is set beyond the last. */
static bool
vector_is_sound(const IndexCheck *check)
{
	const float *floats = check->vector;
	const uint16 *halves = check->vector;
	const uint8 *bytes = check->vector;

	if (check->format->type == ELEMENT_BIT)
	{
		uint32		used = check->format->dims % BITS_PER_BYTE;

		return used == 0 || (bytes[check->format->vector_bytes - 1] & (0xFF >> used)) == 0;
	}
	for (uint32 i = 0; i < check->format->dims; i++)
	{
		if (check->format->type == ELEMENT_FLOAT && !isfinite(floats[i]))
			return false;
		if (check->format->type == ELEMENT_HALF && (halves[i] & 0x7C00) == 0x7C00)
			return false;
	}
	return true;
}

/* Vectors of the slots that distances are computed of. */
static bool
check_vectors(IndexCheck *check)
{
	for (uint32 slot = 0; slot < check->append.next_fresh; slot++)
	{
		uint8		state = check->slots[slot] & NODE_STATE_MASK;
		VectorPlace place;

		if (state != NODE_LIVE && state != NODE_DEAD)
			continue;
		CHECK_FOR_INTERRUPTS();
		place = vector_place(check->format, slot);
		for (uint32 end = place.offset + check->format->vector_bytes; end > GPUANN_PAYLOAD; end -= GPUANN_PAYLOAD)
			vector_place_next(check->format, &place);
		if (place.block >= check->blocks)
			return violated(check, place.block, slot, "the file ends before the vector");
		read_vector(check->index, check->format, slot, check->vector);
		if (!vector_is_sound(check))
			return violated(check, place.block, slot, check->format->type == ELEMENT_BIT ?
							"a bit is set beyond the last dimension" : "the vector has an element that is not finite");
	}
	return true;
}

/* Headers of the vector pages in use. */
static bool
check_vector_pages(IndexCheck *check)
{
	for (uint32 slot = 0; slot < check->append.next_fresh; slot += check->format->superblock_slots)
	{
		uint32		superblock = slot_superblock(check->format, slot);
		uint32		slots = Min(check->append.next_fresh - slot, check->format->superblock_slots);
		uint64		bytes = (uint64) slots * check->format->vector_bytes;
		VectorPlace place = vector_place(check->format, slot);

		for (; bytes > 0; vector_place_next(check->format, &place))
		{
			Size		here = Min(bytes, GPUANN_PAYLOAD);
			BlockNumber block = place.block;

			if (!fetch(check, block, PAGE_VECTOR))
				return false;
			if (PageTailOf(check->page)->superblock != superblock)
				return violated(check, block, NO_SLOT, "the page says it belongs to another superblock");
			if (!reaches(check, here))
				return violated(check, block, NO_SLOT, "the page's data reach beyond pd_lower");
			bytes -= here;
		}
	}
	return true;
}

/* ---- the whole ---- */

/* Check everything, in an order in which each part relies only on what has been found right. */
static bool
check_parts(IndexCheck *check)
{
	if (!check_metapage(check) || !check_list_chain(check) || !check_append_point(check))
		return false;
	check->node = palloc(check->format->node_bytes);
	check->vector = palloc(check->format->vector_bytes);
	check->list_seen = palloc0(sizeof(bool) * check->append.superblocks);
	check->superblock_seq = palloc0(sizeof(uint64) * check->append.superblocks);
	check->slots = palloc_extended(Max(check->append.next_fresh, 1), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	check->tids = tuplesort_begin_datum(INT8OID, Int8LessOperator, InvalidOid, false, maintenance_work_mem, NULL,
										TUPLESORT_NONE);
	return check_list_entries(check) && check_spare_lists(check) &&
		check_all_nodes(check, check_node) && check_all_nodes(check, check_row) &&
		check_free_list(check) && check_seeds(check) && check_vector_pages(check) && check_vectors(check) &&
		check_tids(check);
}

/* One check. True if nothing is wrong, false if replay may have made it look so. Errors out on damage. */
static bool
check_once(const SqlIndex *opened, bool replaying)
{
	MemoryContext memory = AllocSetContextCreate(CurrentMemoryContext, "gpuann check", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(memory);
	IndexCheck	check = {0};
	bool		right;

	check.index = opened->index;
	check.heap = opened->heap;
	check.strategy = GetAccessStrategy(BAS_BULKREAD);
	check.page = palloc(BLCKSZ);
	check.replaying = replaying;
	check.began = replaying ? GetXLogReplayRecPtr(NULL) : InvalidXLogRecPtr;
	check.blocks = RelationGetNumberOfBlocks(check.index);
	right = check_parts(&check);
	if (check.tids != NULL)
		tuplesort_end(check.tids);
	if (!right && !(replaying && check.newest_page > check.began))
	{
		if (check.bad_slot != NO_SLOT)
			ereport(ERROR,
					(errcode(ERRCODE_INDEX_CORRUPTED),
					 errmsg("index \"%s\" is corrupted at block %u, slot %u: %s", RelationGetRelationName(check.index),
							check.bad_block, check.bad_slot, check.what)));
		if (check.bad_block != InvalidBlockNumber)
			ereport(ERROR,
					(errcode(ERRCODE_INDEX_CORRUPTED),
					 errmsg("index \"%s\" is corrupted at block %u: %s", RelationGetRelationName(check.index),
							check.bad_block, check.what)));
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("index \"%s\" is corrupted: %s", RelationGetRelationName(check.index), check.what)));
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(memory);
	return right;
}

PG_FUNCTION_INFO_V1(gpuann_check);

/* gpuann_check(index): errors out at the first violation of the format. */
Datum
gpuann_check(PG_FUNCTION_ARGS)
{
	bool		replaying = RecoveryInProgress();
	SqlIndex	opened;
	int			tries = 0;

	sql_index_open(PG_GETARG_OID(0), replaying ? AccessShareLock : ShareLock, &opened);
	if (!replaying)
		(void) linker_lock(opened.index, true, false);
	while (!check_once(&opened, replaying))
	{
		if (++tries == STANDBY_TRIES)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("index \"%s\" changed whenever it was checked", RelationGetRelationName(opened.index)),
					 errhint("Check it when the primary writes less to it.")));
		CHECK_FOR_INTERRUPTS();
		pg_usleep(STANDBY_PAUSE_US);
	}
	if (!replaying)
		linker_unlock(opened.index, false);
	sql_index_close(&opened);
	PG_RETURN_VOID();
}
