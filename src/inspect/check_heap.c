/*
 * check_heap.c
 *		gpuann_check: verify that index and table agree.
 *
 * Live slots are sorted by TID and processed block by block, so the table is
 * read once and in order. Each must have a used line pointer there: VACUUM sets
 * one unused only after it has marked the slot dead, for which it needs the
 * linker lock, held here. With heapallindexed the table is scanned by a
 * snapshot taken before the index was read, and every row that the index is to
 * have is looked up among the slots of its block, its vector and the columns
 * that the index includes compared byte for byte.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/uuid.h"

#include "inspect/check.h"

/* A live slot and its row. */
typedef struct RowSlot
{
	ItemPointerData tid;
	uint32		slot;
} RowSlot;

/* The live slots of one table block after the other. */
typedef struct RowCursor
{
	IndexCheck *check;
	RowSlot		next;			/* read ahead */
	bool		ended;
	BlockNumber block;			/* of those in `rows` */
	RowSlot    *rows;			/* ascending by offset */
	uint32		count;
	uint32		room;
	BlockNumber heap_blocks;
	bool		is_heap;		/* the table access method is heap, whose pages we know */

	/* heapallindexed */
	const GpuannTypeInfo *type;
	MemoryContext row_memory;
	void	   *vector;
	bool		right;
} RowCursor;

static uint32
read_big_endian(const uint8 *bytes, int count)
{
	uint32		value = 0;

	for (int i = 0; i < count; i++)
		value = (value << 8) | bytes[i];
	return value;
}

static void
write_big_endian(uint8 *bytes, int count, uint32 value)
{
	for (int i = count; i-- > 0; value >>= 8)
		bytes[i] = (uint8) value;
}

/* Note a live slot. */
void
check_heap_note(IndexCheck *check, uint32 slot, const ItemPointerData *tid)
{
	RowKey		key;

	StaticAssertStmt(sizeof(RowKey) == UUID_LEN, "a row key is sorted as a uuid");
	memset(&key, 0, sizeof(key));
	write_big_endian(key.block, sizeof(key.block), ItemPointerGetBlockNumberNoCheck(tid));
	write_big_endian(key.offset, sizeof(key.offset), ItemPointerGetOffsetNumberNoCheck(tid));
	write_big_endian(key.slot, sizeof(key.slot), slot);
	tuplesort_putdatum(check->rows, PointerGetDatum(&key), false);
}

/* Read the next live slot ahead. */
static void
read_ahead(RowCursor *cursor)
{
	Datum		value;
	bool		isnull;
	const RowKey *key;

	CHECK_FOR_INTERRUPTS();
#if PG_VERSION_NUM >= 160000
	cursor->ended = !tuplesort_getdatum(cursor->check->rows, true, false, &value, &isnull, NULL);
#else
	cursor->ended = !tuplesort_getdatum(cursor->check->rows, true, &value, &isnull, NULL);
#endif
	if (cursor->ended)
		return;
	key = (const RowKey *) DatumGetPointer(value);
	ItemPointerSet(&cursor->next.tid, read_big_endian(key->block, sizeof(key->block)),
				   (OffsetNumber) read_big_endian(key->offset, sizeof(key->offset)));
	cursor->next.slot = read_big_endian(key->slot, sizeof(key->slot));
#if PG_VERSION_NUM < 160000
	pfree(DatumGetPointer(value));
#endif
}

/*
 * Whether the rows of the cursor's block have line pointers, of rows that an
 * index may point to.
 */
static bool
rows_are_there(RowCursor *cursor)
{
	Buffer		buffer;
	Page		page;
	const char *fault = NULL;
	uint32		i;

	if (!cursor->is_heap)
		return true;
	if (cursor->block >= cursor->heap_blocks)
		return violated(cursor->check, node_block(cursor->check->format, cursor->rows[0].slot),
						cursor->rows[0].slot, "a TID lies beyond the end of the table");
	buffer = ReadBufferExtended(cursor->check->heap, MAIN_FORKNUM, cursor->block, RBM_NORMAL,
								cursor->check->strategy);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	for (i = 0; i < cursor->count; i++)
	{
		OffsetNumber offset = ItemPointerGetOffsetNumberNoCheck(&cursor->rows[i].tid);
		ItemId		line;

		if (PageIsNew(page) || offset < FirstOffsetNumber || offset > PageGetMaxOffsetNumber(page))
			fault = "a TID lies beyond the end of its page of the table";
		else if (!ItemIdIsUsed(line = PageGetItemId(page, offset)))
			fault = "there is no row at a slot's TID";
		else if (ItemIdIsNormal(line) &&
				 HeapTupleHeaderIsHeapOnly((HeapTupleHeader) PageGetItem(page, line)))
			fault = "a slot's TID is that of a heap-only row";
		if (fault != NULL)
			break;
	}
	UnlockReleaseBuffer(buffer);
	if (fault == NULL)
		return true;
	return violated(cursor->check, node_block(cursor->check->format, cursor->rows[i].slot),
					cursor->rows[i].slot, fault);
}

/*
 * Go to the next table block with rows of slots. False: there is none, or a
 * check failed (cursor->right).
 */
static bool
next_block(RowCursor *cursor)
{
	cursor->count = 0;
	if (cursor->ended)
		return false;
	cursor->block = ItemPointerGetBlockNumberNoCheck(&cursor->next.tid);
	while (!cursor->ended && ItemPointerGetBlockNumberNoCheck(&cursor->next.tid) == cursor->block)
	{
		if (cursor->count == cursor->room)
		{
			cursor->room *= 2;
			cursor->rows = repalloc_huge(cursor->rows, sizeof(RowSlot) * cursor->room);
		}
		if (cursor->count > 0 &&
			ItemPointerEquals(&cursor->rows[cursor->count - 1].tid, &cursor->next.tid))
		{
			cursor->right =
				violated(cursor->check, node_block(cursor->check->format, cursor->next.slot),
						 cursor->next.slot, "two live slots have the same TID");
			return false;
		}
		cursor->rows[cursor->count++] = cursor->next;
		read_ahead(cursor);
	}
	cursor->right = rows_are_there(cursor);
	return cursor->right;
}

/* ---- heapallindexed ---- */

/* The slot of a row of the cursor's block, or NO_SLOT. */
static uint32
slot_of(const RowCursor *cursor, ItemPointer tid)
{
	uint32		low = 0;
	uint32		high = cursor->count;

	while (low < high)
	{
		uint32		middle = (low + high) / 2;
		int			order = ItemPointerCompare(&cursor->rows[middle].tid, tid);

		if (order == 0)
			return cursor->rows[middle].slot;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NO_SLOT;
}

/* Check that a row of the table is in the index. */
static void
judge_table_row(RowCursor *cursor, ItemPointer tid, const void *elements, const Datum *values,
				const bool *isnull)
{
	IndexCheck *check = cursor->check;
	MemoryContext old;
	const char *fault;
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(tid);
	uint32		slot = NO_SLOT;

	while (cursor->right && (cursor->count == 0 || cursor->block < block) && next_block(cursor))
		;
	if (!cursor->right)
		return;
	if (cursor->count > 0 && cursor->block == block)
		slot = slot_of(cursor, tid);
	if (slot == NO_SLOT)
	{
		check->bad_row = *tid;
		cursor->right =
			violated(check, InvalidBlockNumber, NO_SLOT, "a row of the table is not in it");
		return;
	}
	read_vector(check->index, check->format, slot, cursor->vector);
	if (memcmp(cursor->vector, elements, check->format->vector_bytes) != 0)
		cursor->right = violated(check, vector_place(check->format, slot).block, slot,
								 "the vector is not that of the slot's row");
	old = MemoryContextSwitchTo(cursor->row_memory);
	fault = check_row_columns(check, slot, values, isnull, tid);
	MemoryContextSwitchTo(old);
	if (fault != NULL)
		cursor->right = violated(check, column_block(check->format, slot), slot, fault);
}

/*
 * Called for each row of the table that the snapshot sees and the predicate
 * lets in.
 */
static void
take_table_row(Relation index, ItemPointer tid, Datum *values, bool *isnull, bool alive, void *arg)
{
	RowCursor  *cursor = arg;
	MemoryContext old;
	const void *elements;
	Pointer		copy;

	CHECK_FOR_INTERRUPTS();
	if (!cursor->right)
		return;
	old = MemoryContextSwitchTo(cursor->row_memory);
	if (gpuann_value_elements(cursor->type, cursor->check->format->dims, values[0], isnull[0],
							  &elements, &copy))
	{
		MemoryContextSwitchTo(old);
		judge_table_row(cursor, tid, elements, values, isnull);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(cursor->row_memory);
}

/* Scan the table in block order by the snapshot. */
static void
scan_table(RowCursor *cursor)
{
	IndexCheck *check = cursor->check;
	IndexInfo  *info = BuildIndexInfo(check->index);
	TableScanDesc scan = table_beginscan_strat(check->heap, check->snapshot, 0, NULL, true, false);

	/*
	 * Scan as CREATE INDEX CONCURRENTLY does: by an MVCC snapshot, without
	 * waiting for row locks.
	 */
	info->ii_Concurrent = true;
	cursor->type = gpuann_type_info(check->index);
	cursor->row_memory =
		AllocSetContextCreate(CurrentMemoryContext, "gpuann check row", ALLOCSET_DEFAULT_SIZES);
	cursor->vector = palloc(check->format->vector_bytes);
	table_index_build_scan(check->heap, check->index, info, true, false, take_table_row, cursor,
						   scan);
}

/*
 * Check that no TID belongs to two live slots, that each is a row's, and, with
 * a snapshot, that every row has a slot.
 */
bool
check_heap(IndexCheck *check)
{
	RowCursor	cursor = {.check = check, .room = MaxHeapTuplesPerPage, .right = true};

	tuplesort_performsort(check->rows);
	cursor.heap_blocks = RelationGetNumberOfBlocks(check->heap);
	cursor.is_heap = check->heap->rd_tableam == GetHeapamTableAmRoutine();
	cursor.rows = palloc(sizeof(RowSlot) * cursor.room);
	read_ahead(&cursor);
	if (check->snapshot != NULL)
		scan_table(&cursor);
	while (cursor.right && next_block(&cursor))
		;
	return cursor.right;
}
