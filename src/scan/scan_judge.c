/*
 * scan_judge.c
 *		Judging in heap order: the caller's filter sees the rows of the index in
 *		the order of the table's blocks, and only those that pass are ranked.
 *
 * Rows in order of distance lie anywhere in the table: each one judged costs a
 * look-up of its page, which may have to be read. Where most rows are going to
 * be judged, it is several times cheaper to visit the table once, block by
 * block. Node pages give (TID, slot) of all live slots, tuplesort puts them in
 * order within work_mem, and slots that pass go into a bitmap, or into a second
 * sort where work_mem does not hold that. The server is sent them as a set of
 * rows, and ranks them; or pages do.
 *
 * A slot keeps its row from judging to ranking: the snapshot sees a row that
 * has passed, so VACUUM leaves it, or old_snapshot_threshold ends the scan
 * (check_snapshot_age). A slot that had another row is used again only for one
 * that the snapshot does not see, and the fetch by that snapshot drops it.
 */
#include "base/handler.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "engine/bits.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "scan/scan.h"
#include "storage/bufmgr.h"
#include "utils/spccache.h"
#include "utils/tuplesort.h"

#define AHEAD			1024	/* rows known in advance, for the sake of their blocks */
#define BITMAP_DIVISOR	16		/* of work_mem, for a bitmap of the slots that pass */
#define OFFSET_BITS		11		/* of an offset on a page of the table */

StaticAssertDecl(MaxHeapTuplesPerPage < (1 << OFFSET_BITS), "an offset has more bits");

/* The slots that passed: in the bitmap, or in the sort if there is none. */
struct PassingSlots
{
	uint64	   *bits;
	uint32		slots;			/* bits of it */
	uint32		next;			/* the first that was not read */
	Tuplesortstate *sort;
	uint64		count;
	bool		sent;			/* to the server, or that was tried */
	SetName		set;			/* as the server knows them; id 0: it does not */
	MemoryContextCallback ended;	/* releases the set, also after an error */
};

/* Rows of the index on their way into the table's order. */
typedef struct HeapOrder
{
	GpuannScan *scan;
	Relation	table;
	BlockNumber blocks;			/* of the table; a row beyond came after the snapshot */
	int			slot_bits;
	Tuplesortstate *sort;		/* of block, offset and slot in one int8 */
	bool		ended;
	int			most_ahead;		/* blocks to be asked for beforehand */
	int			ahead;			/* blocks asked for and not yet reached */
	BlockNumber asked;			/* asked for last */
	BlockNumber reached;
	uint64		read;			/* of the rows known, those read from the sort, */
	uint64		looked;			/* those whose blocks were asked for, */
	uint64		next;			/* and those visited */
	PageRow		rows[AHEAD];
} HeapOrder;

/*
 * A sort of int8 values. Memory in kB, as tuplesort wants it.
 */
static Tuplesortstate *
begin_sort(int memory, int options)
{
	return tuplesort_begin_datum(INT8OID, Int8LessOperator, InvalidOid, false, Max(memory, 64),
								 NULL, options);
}

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
 * Know rows in advance, and ask for their blocks.
 */
static void
look_ahead(HeapOrder *order)
{
	int64		value;

	while (!order->ended && order->read - order->next < AHEAD)
	{
		PageRow    *row = &order->rows[order->read % AHEAD];
		int64		tid;

		order->ended = !next_value(order->sort, &value);
		if (order->ended)
			break;
		tid = value >> order->slot_bits;
		row->slot = (uint32) (value & ((INT64CONST(1) << order->slot_bits) - 1));
		ItemPointerSet(&row->tid, (BlockNumber) (tid >> OFFSET_BITS),
					   (OffsetNumber) (tid & ((1 << OFFSET_BITS) - 1)));
		order->read++;
	}
	for (; order->looked < order->read && order->ahead < order->most_ahead; order->looked++)
	{
		BlockNumber block =
			ItemPointerGetBlockNumber(&order->rows[order->looked % AHEAD].tid);

		if (block == order->asked)
			continue;
		PrefetchBuffer(order->table, MAIN_FORKNUM, block);
		order->asked = block;
		order->ahead++;
	}
}

/*
 * The next row in the table's order.
 */
static bool
next_in_table(HeapOrder *order, PageRow *row)
{
	BlockNumber block;

	look_ahead(order);
	if (order->next == order->read)
		return false;
	*row = order->rows[order->next % AHEAD];
	block = ItemPointerGetBlockNumber(&row->tid);
	if (block != order->reached && order->next < order->looked)
		order->ahead--;
	order->next++;
	order->looked = Max(order->looked, order->next);
	order->reached = block;
	return true;
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
	order->most_ahead = get_tablespace_io_concurrency(table->rd_rel->reltablespace);
	order->asked = order->reached = InvalidBlockNumber;
	order->sort = begin_sort(work_mem, TUPLESORT_NONE);
	page_live_rows(&scan->query, take_rows, order);
	/* A row that the pages do not have any more may have been there. */
	check_snapshot_age(scan->query.index, scan->snapshot);
	tuplesort_performsort(order->sort);
	return order;
}

bool
scan_should_judge(const GpuannScan *scan)
{
	if (scan->wants.filter.passes == NULL || scan->passing != NULL)
		return false;
	/* What was expected to pass has not, or an answer would have sufficed. */
	if (scan->ef > 0 || scan->stats.exact_passes > 0)
		return true;
	return (double) scan->wants.rows * JUDGE_ROW_COST > scan->bounds.next_fresh;
}

/*
 * The scan's memory goes, perhaps because of an error.
 */
static void
release_set(void *arg)
{
	client_set_release(&((PassingSlots *) arg)->set);
}

/*
 * Begin to collect what passes.
 */
static PassingSlots *
begin_passing(GpuannScan *scan)
{
	PassingSlots *passing = MemoryContextAllocZero(scan->memory, sizeof(PassingSlots));
	Size		bytes = bits64_bytes(scan->bounds.next_fresh);

	passing->slots = scan->bounds.next_fresh;
	if (bytes <= (Size) work_mem * 1024 / BITMAP_DIVISOR)
		passing->bits = MemoryContextAllocExtended(scan->memory, Max(bytes, 1),
												   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	else
		passing->sort = begin_sort(work_mem / 4, TUPLESORT_RANDOMACCESS);
	passing->ended = (MemoryContextCallback) {.func = release_set, .arg = passing};
	MemoryContextRegisterResetCallback(scan->memory, &passing->ended);
	return passing;
}

/*
 * Collect a slot. Each comes once.
 */
static void
add_passing(PassingSlots *passing, uint32 slot)
{
	if (passing->bits != NULL)
		bit64_set(passing->bits, slot);
	else
		tuplesort_putdatum(passing->sort, Int64GetDatum((int64) slot), false);
	passing->count++;
}

/*
 * Have the slots that passed read from the first on.
 */
static void
rescan_passing(PassingSlots *passing)
{
	passing->next = 0;
	if (passing->sort != NULL)
		tuplesort_rescan(passing->sort);
}

void
scan_judge(GpuannScan *scan)
{
	const ScanFilter *filter = &scan->wants.filter;
	MemoryContext callers = MemoryContextSwitchTo(scan->memory);
	HeapOrder  *order = begin_order(scan);
	PassingSlots *passing;
	PageRow		next;

	if (order != NULL)
	{
		passing = begin_passing(scan);
		while (next_in_table(order, &next))
		{
			ScanRow		row = {.slot = next.slot, .tid = next.tid};
			bool		passes;

			CHECK_FOR_INTERRUPTS();
			scan->stats.heap_order++;
			MemoryContextSwitchTo(callers);
			passes = filter->passes(filter->caller, &row);
			MemoryContextSwitchTo(scan->memory);
			if (passes)
				add_passing(passing, row.slot);
		}
		if (passing->sort != NULL)
			tuplesort_performsort(passing->sort);
		tuplesort_end(order->sort);
		pfree(order);
		scan->passing = passing;
		/* Whatever is ranked now is a row to be given. */
		scan->room = scan_exact_room(EXACT_FIRST_ROOM);
	}
	MemoryContextSwitchTo(callers);
}

/*
 * The next slots that passed.
 */
static uint32
next_passing_slots(void *state, uint32 *slots, uint32 most)
{
	PassingSlots *passing = state;
	uint32		count = 0;
	int64		slot;

	while (passing->bits != NULL && count < most && passing->next < passing->slots)
	{
		uint64		word = passing->bits[passing->next / 64] >> (passing->next % 64);

		if (word == 0)
			passing->next = (passing->next / 64 + 1) * 64;
		else
		{
			passing->next += (uint32) pg_rightmost_one_pos64(word);
			slots[count++] = passing->next++;
		}
	}
	while (passing->sort != NULL && count < most && next_value(passing->sort, &slot))
		slots[count++] = (uint32) slot;
	return count;
}

FallbackReason
scan_passing_set(GpuannScan *scan, const SetName **set)
{
	PassingSlots *passing = scan->passing;
	FallbackReason why = FALLBACK_NONE;

	if (!passing->sent && passing->count > 0)
	{
		passing->sent = true;
		rescan_passing(passing);
		why = client_set_send(scan->mirror, scan->bounds.next_fresh, passing->count,
							  next_passing_slots, passing, &passing->set);
	}
	*set = passing->set.id != 0 ? &passing->set : NULL;
	return why;
}

uint32
scan_keep_passing(GpuannScan *scan, uint32 *slots, uint32 count)
{
	PassingSlots *passing = scan->passing;
	uint32		kept = 0;
	int64		next = -1;

	rescan_passing(passing);
	for (uint32 i = 0; i < count && passing->bits != NULL; i++)
		if (slots[i] < passing->slots && bit64_is_set(passing->bits, slots[i]))
			slots[kept++] = slots[i];
	for (uint32 i = 0; i < count && passing->sort != NULL; i++)
	{
		while (next < (int64) slots[i])
		{
			CHECK_FOR_INTERRUPTS();
			if (!next_value(passing->sort, &next))
				return kept;
		}
		if (next == (int64) slots[i])
			slots[kept++] = slots[i];
	}
	return kept;
}

void
scan_rank_passing(GpuannScan *scan, const ExactRange *range, PageAnswer *answer)
{
	rescan_passing(scan->passing);
	page_chosen_search(&scan->query, next_passing_slots, scan->passing, range, answer);
}

void
scan_judge_end(GpuannScan *scan)
{
	if (scan->passing != NULL)
	{
		client_set_release(&scan->passing->set);
		if (scan->passing->sort != NULL)
			tuplesort_end(scan->passing->sort);
	}
	scan->passing = NULL;
}
