/*
 * scanahead.c
 *		What the next rows of a scan need is on its way before the executor asks for them.
 *
 * A row takes a record of a node page, then a buffer, a line pointer and a tuple of the table: a dozen lines of memory, each known only when the one before
 * is there, and hardly ever in this processor's cache. Of a row alone they are waited for one after another. So the records of as many rows are
 * read together as this session's last scan returned, and then their tuples are asked for, where this process remembers the table's buffers.
 *
 * A record read a little early is as good: who returns TIDs without pins relies on the snapshot, in which no row that it sees can go away, and
 * no row that has come into a freed place can be seen.
 */
#include "gpuann.h"

#include "access/heapam.h"
#include "access/relscan.h"
#include "hotlook.h"
#include "scan.h"

#define AHEAD_GROWTH	8		/* rows at once for who wants more than the last time, at most */
#define TUPLE_LINES		16		/* of a tuple's memory asked for, at most */
#define LINE			64

/* Rows that this process's last scan returned: the next one is likely to be the same statement. */
static uint32 usual_rows = 0;

void
scan_note_rows(uint32 rows)
{
	usual_rows = rows;
}

/* Rows of the answer that are likely to be wanted still, the next one included. */
static uint32
rows_expected(const GpuannScan *scan)
{
	uint32		given = scan->rows_given;
	uint32		wanted = usual_rows > given ? usual_rows - given : Min(given, AHEAD_GROWTH);

	return Min(Min(wanted, SCAN_AHEAD), scan->answer.count - scan->next);
}

/* Have some memory brought near. */
static inline void
touch(const char *from, Size bytes)
{
	for (Size i = 0; i < bytes; i += LINE)
		__builtin_prefetch(from + i);
}

/* Ask for what tells that a buffer holds a page, and for its header. */
static inline void
touch_buffer(Buffer buffer)
{
	__builtin_prefetch(GetBufferDescriptor(buffer - 1));
	__builtin_prefetch(BufferGetPage(buffer));
}

/* Ask for the records of results. */
static void
touch_records(const GpuannScan *scan, const HotBlocks *hot, const SearchResult *results, uint32 count)
{
	for (uint32 i = 0; i < count; i++)
	{
		Buffer		buffer = hot_hint(hot, node_block(scan->format, results[i].slot));

		if (!BufferIsValid(buffer))
			continue;
		touch_buffer(buffer);
		__builtin_prefetch(LOOK_TAIL(BufferGetPage(buffer), sizeof(PageTail)));
		__builtin_prefetch(node_record(scan->format, BufferGetPage(buffer), results[i].slot));
	}
}

/* Where the page of a row may be; 0 if nothing is known. */
static inline Buffer
table_hint(const HotBlocks *hot, const ItemPointerData *tid)
{
	return ItemPointerIsValid(tid) ? hot_hint(hot, ItemPointerGetBlockNumberNoCheck(tid)) : InvalidBuffer;
}

/* Ask for a tuple. What its line pointer seems to say is used for nothing else: the page may change, or be another, under our eyes. */
static void
touch_tuple(Page page, OffsetNumber offset)
{
	ItemIdData	item = *(volatile ItemIdData *) PageGetItemId(page, offset);

	if (ItemIdIsNormal(&item) && item.lp_off < BLCKSZ)
		touch(page + item.lp_off, Min(item.lp_len, Min(TUPLE_LINES * LINE, BLCKSZ - item.lp_off)));
}

/* Ask for the tuples of rows whose pages were read before. */
static void
touch_tuples(Relation table, const ItemPointerData *tids, uint32 count)
{
	HotBlocks	hot;

	hot_begin(&hot, table, 0);
	for (uint32 i = 0; i < count; i++)
	{
		Buffer		buffer = table_hint(&hot, &tids[i]);

		if (!BufferIsValid(buffer) || ItemPointerGetOffsetNumberNoCheck(&tids[i]) > MaxHeapTuplesPerPage)
			continue;
		touch_buffer(buffer);
		__builtin_prefetch(PageGetItemId(BufferGetPage(buffer), ItemPointerGetOffsetNumberNoCheck(&tids[i])));
	}
	for (uint32 i = 0; i < count; i++)
	{
		Buffer		buffer = table_hint(&hot, &tids[i]);

		if (BufferIsValid(buffer) && ItemPointerGetOffsetNumberNoCheck(&tids[i]) <= MaxHeapTuplesPerPage)
			touch_tuple(BufferGetPage(buffer), ItemPointerGetOffsetNumberNoCheck(&tids[i]));
	}
}

/* Whether a table is one whose rows lie in shared buffers as we know them. */
static bool
is_shared_heap(Relation table)
{
	return table != NULL && table->rd_tableam == GetHeapamTableAmRoutine() && !RelationUsesLocalBuffers(table);
}

void
scan_look_ahead(GpuannScan *scan, Relation table)
{
	RowsAhead  *ahead = &scan->ahead;
	const SearchResult *results = &scan->answer.results[scan->next];
	uint32		count = rows_expected(scan);
	HotBlocks	hot;

	ahead->begin = ahead->end = scan->next;
	if (scan->stage != STAGE_GRAPH || count < 2)
		return;
	hot_begin(&hot, scan->query.index, 0);
	touch_records(scan, &hot, results, count);
	for (uint32 i = 0; i < count; i++)
	{
		if ((scan->emitted != NULL && slot_set_has(scan->emitted, results[i].slot)) ||
			!scan_look_at_record(scan, &hot, &results[i], &ahead->tids[i]))
			ItemPointerSetInvalid(&ahead->tids[i]);
	}
	hot_end(&hot);
	ahead->end = scan->next + count;
	if (is_shared_heap(table))
		touch_tuples(table, ahead->tids, count);
}

/*
 * The table's fetch pins the page of its next row where it does not hold it already, after looking it up in the table of all buffers, which all sessions
 * share. This process knows better where it is.
 */
void
scan_find_table_page(IndexScanDesc desc)
{
	IndexFetchHeapData *fetch = (IndexFetchHeapData *) desc->xs_heapfetch;
	BlockNumber block = ItemPointerGetBlockNumber(&desc->xs_heaptid);
	HotBlocks	hot;

	if (fetch == NULL || !is_shared_heap(desc->heapRelation))
		return;
	if (BufferIsValid(fetch->xs_cbuf))
	{
		if (BufferGetBlockNumber(fetch->xs_cbuf) == block)
			return;
		ReleaseBuffer(fetch->xs_cbuf);
		fetch->xs_cbuf = InvalidBuffer;
	}
	hot_begin(&hot, desc->heapRelation, block);
	fetch->xs_cbuf = hot_pin(&hot, block);
	/* as it would, for a page that it was not on */
	heap_page_prune_opt(desc->heapRelation, fetch->xs_cbuf);
}
