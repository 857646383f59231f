/*
 * scan_columns.c
 *		Filtering by the columns that the index includes: of all rows before
 *		any is ranked, or of a row before it is fetched from the table.
 *
 * Column pages are read without node pages. What they say of a slot is true of
 * every row that the snapshot sees (page/columns.h); of other rows it need not
 * be, and these are dropped when they are confirmed or fetched. So the set of
 * slots is complete, and its count an upper bound.
 *
 * A server whose mirror has the columns does both, if the program is short
 * enough to go with a query. Then nothing is read here but the columns of rows
 * that its mirror had not received.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "page/columns.h"
#include "page/read_ahead.h"
#include "port/pg_bitutils.h"
#include "scan/scan.h"
#include "storage/bufmgr.h"

#define PAGE_WORDS	((BLCKSZ / sizeof(ColumnRecord) + 63) / 64)	/* of a bitmap of its rows */

/* Column pages in slot order. */
typedef struct ColumnPages
{
	const GpuannScan *scan;
	uint32		asked;			/* the first slot of the page that is read ahead next */
} ColumnPages;

/*
 * The end of the slots that are on the same column page as this one and below
 * the scan's limit.
 */
static uint32
column_page_end(const GpuannScan *scan, uint32 slot)
{
	const IndexFormat *format = scan->format;
	uint32		next = (slot_superblock(format, slot) + 1) * format->superblock_slots;
	uint32		end = slot - column_index(format, slot) + columns_per_page(format);

	return Min(Min(end, next), scan->bounds.next_fresh);
}

static BlockNumber
next_column_block(void *state)
{
	ColumnPages *pages = state;
	uint32		slot = pages->asked;

	if (slot >= pages->scan->bounds.next_fresh)
		return InvalidBlockNumber;
	pages->asked = column_page_end(pages->scan, slot);
	return column_block(pages->scan->format, slot);
}

/*
 * Run the program on records of a page, which is locked.
 */
static void
run_on_records(const GpuannScan *scan, const ColumnTable *table, const ColumnRecord *records,
			   uint32 count, uint64 *passes)
{
	FilterKind	kinds[GPUANN_MAX_COLUMNS];
	FilterRows	rows;

	column_kinds(table, kinds);
	filter_record_rows(kinds, table->count, records, count, &rows);
	filter_run(scan->wants.columns.program, &rows, FILTER_MAY, passes);
}

/*
 * Add the slots of a page, from this one on, whose columns let them pass. What
 * was never used has no TID.
 */
static void
add_page(const GpuannScan *scan, const ColumnTable *table, Page page, uint32 slot, uint32 end,
		 PassingSlots *passing)
{
	uint64		passes[PAGE_WORDS];

	run_on_records(scan, table, column_record(scan->format, page, slot), end - slot, passes);
	for (uint32 word = 0; word < (end - slot + 63) / 64; word++)
	{
		for (uint64 left = passes[word]; left != 0; left &= left - 1)
		{
			uint32		passed = slot + word * 64 + (uint32) pg_rightmost_one_pos64(left);

			if (ItemPointerIsValid(&column_record(scan->format, page, passed)->tid))
				passing_add(passing, passed);
		}
	}
}

bool
scan_choosing_is_cheaper(const GpuannScan *scan, double ef)
{
	const ColumnFilter *columns = &scan->wants.columns;
	double		share = columns->share;

	if (columns->program == NULL || scan->chosen || ef == 0 || scan_sends_program(scan))
		return false;
	/* After rounds that were to suffice another share is likelier. */
	if (scan->ef > 0)
		share = Min((double) columns->wanted / ef, share);
	return scan_columns_are_cheaper(ef, scan->bounds.next_fresh, share, scan->ask_server);
}

bool
scan_should_choose(const GpuannScan *scan)
{
	const ColumnFilter *columns = &scan->wants.columns;

	if (columns->program == NULL || scan->chosen || scan->judged || scan_sends_program(scan))
		return false;
	/* Fewer pass than was expected, or an answer would have sufficed. */
	if (scan->ef > 0 || scan->stats.exact_passes > 0)
		return true;
	/* A server compares all rows in less time than their columns take here. */
	if (scan->ask_server && scan->wants.rows > 0)
		return scan_choosing_is_cheaper(scan, (double) scan->wants.rows);
	return columns->share <= MOST_CHOSEN;
}

void
scan_choose(GpuannScan *scan)
{
	MemoryContext old = MemoryContextSwitchTo(scan->memory);
	Relation	index = scan->query.index;
	const ColumnTable *table = index_columns(index);
	ColumnPages pages = {.scan = scan};
	BufferAccessStrategy strategy = NULL;
	PassingSlots *passing = passing_begin(scan);
	ReadAhead  *ahead;
	uint32		end;

	if (RelationGetNumberOfBlocks(index) > (BlockNumber) NBuffers / 4)
		strategy = GetAccessStrategy(BAS_BULKREAD);
	ahead = read_ahead_begin(index, strategy, next_column_block, &pages);
	for (uint32 slot = 0; slot < scan->bounds.next_fresh; slot = end)
	{
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		end = column_page_end(scan, slot);
		buffer = read_ahead_page(ahead, column_block(scan->format, slot), PAGE_COLUMN, true);
		if (!PageIsNew(BufferGetPage(buffer)))
			add_page(scan, table, BufferGetPage(buffer), slot, end, passing);
		UnlockReleaseBuffer(buffer);
	}
	read_ahead_end(ahead);
	if (strategy != NULL)
		FreeAccessStrategy(strategy);
	scan->passing = passing;
	scan->chosen = true;
	scan->stats.by_columns = true;
	scan->stats.chosen = passing_count(passing);
	MemoryContextSwitchTo(old);
}

bool
scan_columns_pass(const GpuannScan *scan, uint32 slot)
{
	const ColumnTable *table = index_columns(scan->query.index);
	uint64		passes;
	Buffer		buffer;

	buffer = read_hinted_page(scan->query.index, column_block(scan->format, slot), PAGE_COLUMN,
							  false);
	run_on_records(scan, table, column_record(scan->format, BufferGetPage(buffer), slot), 1,
				   &passes);
	UnlockReleaseBuffer(buffer);
	/* The slot may be another row's by now: then VACUUM came before. */
	if (passes == 0)
		check_snapshot_age(scan->query.index, scan->snapshot);
	return passes != 0;
}
