/*
 * append_wal.h
 *		Write generic WAL records for changes whose byte ranges are known.
 *
 * GenericXLogFinish() finds changes by comparing pages byte by byte, which
 * takes twelve microseconds and more under the append lock. An insert knows
 * what it changes. So it changes pages in place, in a critical section, and
 * builds a record of the same resource manager and format from the changed
 * ranges. Replay and wal_consistency_checking see no difference.
 */
#ifndef GPUANN_APPEND_WAL_H
#define GPUANN_APPEND_WAL_H

#include "page/pages.h"

#include "access/generic_xlog.h"

#define ROW_LOG_RUNS	96		/* maximum bytes of the short fragments of a page */

/* The changes of one page. */
typedef struct LoggedPage
{
	Buffer		buffer;
	bool		image;			/* log a full-page image */
	Page		page;
	uint16		lower;			/* pd_lower before the change */
	uint32		bytes;
	char		runs[ROW_LOG_RUNS];
	const char *tail;			/* data of the last fragment, if it was added by
								 * append_wal_tail() */
	uint32		tail_bytes;
} LoggedPage;

/* The pages of a record, in lock order. */
typedef struct AppendWal
{
	Relation	index;
	int			count;
	LoggedPage	pages[MAX_GENERIC_XLOG_PAGES];
} AppendWal;

/* Begin a record. Call before the critical section. */
extern void append_wal_begin(AppendWal *log, Relation index);

/* Add a page, whose buffer is locked exclusively. Call before changing it. */
extern LoggedPage *append_wal_page(AppendWal *log, Buffer buffer, bool image);

/*
 * Log changed bytes of a page. append_wal_tail() does not copy them and may be
 * used once per page, as the last one; append_wal_run() is for a few bytes.
 */
extern void append_wal_run(LoggedPage *logged, const void *from, Size bytes);
extern void append_wal_tail(LoggedPage *logged, const void *from, Size bytes);

/*
 * Write the record. Call in the critical section in which the pages were
 * changed.
 */
extern void append_wal_finish(AppendWal *log);

#endif							/* GPUANN_APPEND_WAL_H */
