/*
 * row_checks.c
 *		Checks of a row against the table, whose executor passes over a row that
 *		an index names and the table has not.
 */
#include "postgres.h"

#include "access/relscan.h"
#include "access/tableam.h"
#include "scan/scan.h"
#include "utils/snapmgr.h"

/*
 * A row that is confirmed must lie in the table: what is beyond its end would
 * be an error of the table's. The length is asked for once in a session, and
 * again if a row seems to lie beyond.
 */
void
check_row_place(Relation index, Relation heap, BlockNumber *heap_blocks, BlockNumber block,
				const ItemPointerData *tid)
{
	BlockNumber wanted = ItemPointerGetBlockNumberNoCheck(tid);

	if (wanted < *heap_blocks || heap == NULL || heap->rd_tableam != GetHeapamTableAmRoutine())
		return;
	*heap_blocks = index_known_heap_blocks(index);
	if (wanted < *heap_blocks)
		return;
	*heap_blocks = index_ask_heap_blocks(index, heap);
	if (wanted >= *heap_blocks)
		report_corrupt(index, block, "a TID lies beyond the end of the table");
}

/*
 * Error out if the table may have lost the row that was returned last.
 *
 * Early pruning takes a row out of the table's page before VACUUM comes to the
 * index (or without that), and the executor passes over a row that its index
 * names and the table has not. So when it asks for another row, the page of the
 * one before is tested as a sequential scan would have done.
 */
void
check_row_age(IndexScanDesc desc)
{
#if PG_VERSION_NUM < 170000
	Relation	heap = desc->heapRelation;
	Buffer		buffer;

	if (old_snapshot_threshold < 0 || heap == NULL ||
		heap->rd_tableam != GetHeapamTableAmRoutine() || !ItemPointerIsValid(&desc->xs_heaptid))
		return;
	buffer = ReadBuffer(heap, ItemPointerGetBlockNumber(&desc->xs_heaptid));
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	TestForOldSnapshot(desc->xs_snapshot, heap, BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
#endif
}
