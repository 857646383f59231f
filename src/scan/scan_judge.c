/*
 * scan_judge.c
 *		Judging in heap order: the caller's filter sees the rows of the table as
 *		a sequential scan gives them, and only those that pass are ranked.
 *
 * Rows in order of distance lie anywhere in the table: each one judged costs a
 * look-up of its page, which may have to be read. Where most rows are going to
 * be judged, it is several times cheaper to read the table once. Node pages
 * give (TID, slot) of all live slots, which tuplesort puts in the table's order
 * within work_mem; merged with the rows of a sequential scan that pass, they
 * give the slots of these (passing.c).
 *
 * An index names a HOT chain by its first line pointer, the scan gives the
 * member that the snapshot sees. The scan's pin keeps the page from being
 * pruned between the look at its rows and at their chains.
 *
 * A slot keeps its row from judging to ranking: the snapshot sees a row that
 * has passed, so VACUUM leaves it, or old_snapshot_threshold ends the scan
 * (check_snapshot_age). A slot that had another row is used again only for one
 * that the snapshot does not see, and the fetch by that snapshot drops it.
 */
#include "base/handler.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "engine/bits.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "scan/scan.h"
#include "storage/bufmgr.h"
#include "utils/tuplesort.h"

#define OFFSET_BITS		11		/* of an offset on a page of the table */

StaticAssertDecl(MaxHeapTuplesPerPage < (1 << OFFSET_BITS), "an offset has more bits");

/* The index's rows in the order of the table, beside a scan of it. */
typedef struct HeapOrder
{
	GpuannScan *scan;
	Relation	table;
	BlockNumber blocks;			/* of the table; a row beyond came after the snapshot */
	int			slot_bits;
	Tuplesortstate *sort;		/* of block, offset and slot in one int8 */
	bool		ended;
	int64		next;			/* of the sort */
	BlockNumber block;			/* that the scan is at: */
	bool		any;			/* some of its rows have passed, */
	uint64		passed[(1 << OFFSET_BITS) / 64];	/* in chains that begin there */
	bool		has_roots;		/* and roots are known: */
	OffsetNumber roots[MaxHeapTuplesPerPage];	/* where the chain of each row begins */
} HeapOrder;

/*
 * The next value of a sort.
 */
static bool
next_value(Tuplesortstate *sort, int64 *value)
{
	Datum		datum;
	bool		isnull;

#if PG_VERSION_NUM >= 160000
	if (!tuplesort_getdatum(sort, true, false, &datum, &isnull, NULL))
		return false;
#else
	if (!tuplesort_getdatum(sort, true, &datum, &isnull, NULL))
		return false;
#endif
	*value = DatumGetInt64(datum);
	return true;
}

/*
 * Take the live rows of a node page.
 */
static void
take_rows(void *state, const PageRow *rows, uint32 count)
{
	HeapOrder  *order = state;
	GpuannScan *scan = order->scan;
	Relation	index = scan->query.index;

	for (uint32 i = 0; i < count; i++)
	{
		BlockNumber node = node_block(scan->format, rows[i].slot);
		BlockNumber block = ItemPointerGetBlockNumberNoCheck(&rows[i].tid);
		OffsetNumber offset = ItemPointerGetOffsetNumberNoCheck(&rows[i].tid);

		if (!ItemPointerIsValid(&rows[i].tid) || offset >> OFFSET_BITS != 0)
			report_corrupt(index, node, "a live slot has no row");
		check_row_place(index, order->table, &scan->heap_blocks, node, &rows[i].tid);
		if (block >= order->blocks)
			continue;
		tuplesort_putdatum(order->sort,
						   Int64GetDatum((((int64) block << OFFSET_BITS | offset)
										  << order->slot_bits) |
										 rows[i].slot),
						   false);
	}
}

/*
 * Read what the index has, and sort it. NULL: a row does not fit into an int8,
 * or the table is not a heap, whose pages are known. Memory is the scan's.
 */
static HeapOrder *
begin_order(GpuannScan *scan)
{
	Relation	table = scan->wants.filter.table;
	HeapOrder  *order;
	BlockNumber blocks;
	int			slot_bits = pg_leftmost_one_pos32(Max(scan->bounds.next_fresh, 1)) + 1;

	if (table->rd_tableam != GetHeapamTableAmRoutine())
		return NULL;
	blocks = RelationGetNumberOfBlocks(table);
	if (pg_leftmost_one_pos32(Max(blocks, 1)) + 1 + OFFSET_BITS + slot_bits > 63)
		return NULL;
	order = palloc0(sizeof(HeapOrder));
	order->scan = scan;
	order->table = table;
	order->blocks = blocks;
	order->slot_bits = slot_bits;
	order->block = InvalidBlockNumber;
	order->sort = tuplesort_begin_datum(INT8OID, Int8LessOperator, InvalidOid, false, work_mem,
										NULL, TUPLESORT_NONE);
	page_live_rows(&scan->query, take_rows, order);
	/* A row that the pages do not have any more may have been there. */
	check_snapshot_age(scan->query.index, scan->snapshot);
	tuplesort_performsort(order->sort);
	order->ended = !next_value(order->sort, &order->next);
	return order;
}

/*
 * How many rows the columns let pass, if that is known: all are ranked before
 * they are judged.
 */
static bool
rows_left(const GpuannScan *scan, uint64 *count)
{
	*count = scan->passing != NULL ? passing_count(scan->passing) : scan->stats.chosen;
	return scan->passing != NULL || (scan_sends_program(scan) && scan->stats.by_columns);
}

bool
scan_should_judge(const GpuannScan *scan)
{
	uint64		left;

	if (scan->wants.filter.passes == NULL || scan->judged ||
		scan_is_small_part(scan->bounds.next_fresh,
						   scan->wants.filter.table->rd_rel->reltuples))
		return false;
	/* Of what columns let pass, few rows may be left to be judged. */
	if (rows_left(scan, &left))
		return (double) left * JUDGE_ROW_COST > scan->bounds.next_fresh;
	/* What was expected to pass has not, or an answer would have sufficed. */
	if (scan->ef > 0 || scan->stats.exact_passes > 0)
		return true;
	return (double) scan->wants.rows * JUDGE_ROW_COST > scan->bounds.next_fresh;
}

/*
 * Collect the slots of the rows that passed in the current block.
 */
static void
end_block(HeapOrder *order, PassingSlots *passing)
{
	while (order->any && !order->ended)
	{
		int64		tid = order->next >> order->slot_bits;

		if (tid >> OFFSET_BITS > order->block)
			break;
		if (tid >> OFFSET_BITS == order->block &&
			bit64_is_set(order->passed, (uint32) (tid & ((1 << OFFSET_BITS) - 1))))
			passing_add(passing, order->next & ((INT64CONST(1) << order->slot_bits) - 1));
		order->ended = !next_value(order->sort, &order->next);
	}
	if (order->any)
		memset(order->passed, 0, sizeof(order->passed));
	order->any = order->has_roots = false;
}

/*
 * Where the chain of a row of the current block begins, whose page is pinned.
 */
static OffsetNumber
root_of(HeapOrder *order, const TupleTableSlot *row)
{
	const BufferHeapTupleTableSlot *slot = (const BufferHeapTupleTableSlot *) row;
	OffsetNumber offset = ItemPointerGetOffsetNumber(&row->tts_tid);

	if (!HeapTupleIsHeapOnly(slot->base.tuple))
		return offset;
	if (!order->has_roots)
	{
		LockBuffer(slot->buffer, BUFFER_LOCK_SHARE);
		heap_get_root_tuples(BufferGetPage(slot->buffer), order->roots);
		LockBuffer(slot->buffer, BUFFER_LOCK_UNLOCK);
		order->has_roots = true;
	}
	return order->roots[offset - 1];
}

/*
 * Scan the table, and collect the slots of the rows that pass.
 */
static void
judge_table(HeapOrder *order, PassingSlots *passing, MemoryContext callers)
{
	GpuannScan *scan = order->scan;
	const ScanFilter *filter = &scan->wants.filter;
	TableScanDesc rows =
		table_beginscan_strat(order->table, scan->snapshot, 0, NULL, true, false);

	while (table_scan_getnextslot(rows, ForwardScanDirection, filter->row))
	{
		BlockNumber block = ItemPointerGetBlockNumber(&filter->row->tts_tid);
		bool		passes;

		CHECK_FOR_INTERRUPTS();
		scan->stats.heap_order++;
		MemoryContextSwitchTo(callers);
		passes = filter->passes(filter->caller);
		MemoryContextSwitchTo(scan->memory);
		if (!passes)
			continue;
		if (block != order->block)
			end_block(order, passing);
		order->block = block;
		order->any = true;
		bit64_set(order->passed, root_of(order, filter->row));
	}
	end_block(order, passing);
	ExecClearTuple(filter->row);
	table_endscan(rows);
}

void
scan_judge(GpuannScan *scan)
{
	MemoryContext callers = MemoryContextSwitchTo(scan->memory);
	HeapOrder  *order = begin_order(scan);

	if (order != NULL)
	{
		PassingSlots *passing = passing_begin(scan);

		judge_table(order, passing, callers);
		tuplesort_end(order->sort);
		pfree(order);
		passing_end(scan);
		scan->passing = passing;
		scan->judged = true;
		/* Whatever is ranked now is a row to be given. */
		scan->room = scan_exact_room(EXACT_FIRST_ROOM);
	}
	MemoryContextSwitchTo(callers);
}
