/*
 * build_log.c
 *		WAL of a build: full-page images, many in one record.
 *
 * Node pages and vector pages alternate in the file and are logged at different
 * times, so log_newpage_range() cannot be used. The pages of a record stay
 * locked until it is written; no other process accesses them during a build.
 */
#include "postgres.h"

#include "build/build_parts.h"

#include "access/rmgr.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_control.h"
#include "miscadmin.h"

/*
 * Begin to log pages, or only to collect them if the index is not logged.
 */
void
page_log_begin(PageLog *log, Relation index, bool logged)
{
	log->index = index;
	log->logged = logged;
	log->count = 0;
}

/*
 * Add a complete page, pinned and locked exclusively. It is marked dirty and
 * released, now or by the next flush.
 */
void
page_log_add(PageLog *log, Buffer buffer)
{
	if (!log->logged)
	{
		MarkBufferDirty(buffer);
		UnlockReleaseBuffer(buffer);
		return;
	}
	log->buffers[log->count++] = buffer;
	if (log->count == lengthof(log->buffers))
		page_log_flush(log);
}

/*
 * Log the pages added.
 */
void
page_log_flush(PageLog *log)
{
	XLogRecPtr	lsn;

	if (log->count == 0)
		return;
	XLogEnsureRecordSpace(log->count, 0);
	START_CRIT_SECTION();
	XLogBeginInsert();
	for (int i = 0; i < log->count; i++)
	{
		MarkBufferDirty(log->buffers[i]);
		XLogRegisterBuffer(i, log->buffers[i], REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
	}
	lsn = XLogInsert(RM_XLOG_ID, XLOG_FPI);
	for (int i = 0; i < log->count; i++)
		PageSetLSN(BufferGetPage(log->buffers[i]), lsn);
	END_CRIT_SECTION();
	for (int i = 0; i < log->count; i++)
		UnlockReleaseBuffer(log->buffers[i]);
	log->count = 0;

	/*
	 * Wake the WAL writer, which writes WAL buffers in large pieces. A backend
	 * that finds them full writes one page at a time, while all others wait.
	 */
	XLogSetAsyncXactLSN(lsn);
	CHECK_FOR_INTERRUPTS();
}
