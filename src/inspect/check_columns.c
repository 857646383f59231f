/*
 * check_columns.c
 *		gpuann_check: the column pages of an index that includes columns.
 *
 * A live slot keeps its row under the linker lock, and its record was written
 * before the row existed: so what is read here of the slots that were live when
 * the node pages were read is theirs. Records of other slots may be of any row.
 */
#include "postgres.h"

#include "inspect/check.h"
#include "page/columns.h"

/*
 * How many records of a column page from slot `first` on are in use: free slots
 * may never have had a row.
 */
static uint32
records_used(const IndexCheck *check, uint32 first, uint32 end)
{
	while (end > first && (check->slots[end - 1] & NODE_STATE_MASK) == NODE_FREE)
		end--;
	return end - first;
}

/* One record, of a live slot. */
static bool
judge_columns(IndexCheck *check, const ColumnTable *table, uint32 slot, const ColumnRecord *record)
{
	BlockNumber block = column_block(check->format, slot);

	if (!read_node(check->index, check->format, slot, check->node) ||
		!ItemPointerEquals(&check->node->tid, unconstify(ItemPointerData *, &record->tid)))
		return violated(check, block, slot, "the slot's columns are of another row");
	if (record->nulls >> table->count != 0)
		return violated(check, block, slot, "a column is NULL that does not exist");
	for (uint32 i = 0; i < table->count; i++)
	{
		double		bounds[2];

		if (table->columns[i].kind != FILTER_BOUNDS || (record->nulls >> i & 1) != 0)
			continue;
		memcpy(bounds, (const char *) record + table->columns[i].offset, sizeof(bounds));
		if (filter_real(bounds[0]) > filter_real(bounds[1]))
			return violated(check, block, slot, "a column's bounds are the wrong way round");
	}
	return true;
}

/* The column page of the slots from `first` to `end`. */
static bool
judge_column_page(IndexCheck *check, const ColumnTable *table, uint32 first, uint32 end)
{
	const IndexFormat *format = check->format;
	BlockNumber block = column_block(format, first);
	uint32		used = records_used(check, first, end);

	if (!check_fetch(check, block, PAGE_COLUMN))
		return false;
	if (PageTailOf(check->page)->superblock != slot_superblock(format, first))
		return violated(check, block, NO_SLOT, "the page says it belongs to another superblock");
	if (!check_reaches(check, (Size) used * format->column_bytes))
		return violated(check, block, NO_SLOT, "the page's data reach beyond pd_lower");
	for (uint32 slot = first; slot < first + used; slot++)
		if ((check->slots[slot] & NODE_STATE_MASK) == NODE_LIVE &&
			!judge_columns(check, table, slot, column_record(format, (Page) check->page, slot)))
			return false;
	return true;
}

bool
check_columns(IndexCheck *check)
{
	const IndexFormat *format = check->format;
	const ColumnTable *table;
	uint32		end;

	if (format->column_bytes == 0)
		return true;
	table = index_columns(check->index);
	for (uint32 first = 0; first < check->append.next_fresh; first = end)
	{
		uint32		next = (slot_superblock(format, first) + 1) * format->superblock_slots;

		end = Min(Min(first + columns_per_page(format), next), check->append.next_fresh);
		if (!judge_column_page(check, table, first, end))
			return false;
	}
	return true;
}

const char *
check_row_columns(IndexCheck *check, uint32 slot, const Datum *values, const bool *isnull,
				  const ItemPointerData *tid)
{
	const IndexFormat *format = check->format;
	union
	{
		ColumnRecord record;
		char		bytes[GPUANN_MAX_RECORD_BYTES];
	}			columns;
	Buffer		buffer;
	bool		equal;

	if (format->column_bytes == 0)
		return NULL;
	column_record_form(check->index, index_columns(check->index), values, isnull, tid,
					   &columns.record);
	buffer = read_page(check->index, column_block(format, slot), PAGE_COLUMN, BUFFER_LOCK_SHARE,
					   false);
	equal = memcmp(column_record(format, BufferGetPage(buffer), slot), &columns,
				   format->column_bytes) == 0;
	UnlockReleaseBuffer(buffer);
	return equal ? NULL : "the columns are not those of the slot's row";
}
