/*
 * append_wal.h
 *		Generic WAL records of changes whose places are known.
 *
 * GenericXLogFinish() finds out what has changed by comparing pages byte by
 * byte, twelve microseconds and more, all of them under the append lock. Who
 * appends a row knows what he changes. So pages are changed in place, in a
 * critical section, and the record, of the same resource manager and the same
 * form, is made of the runs of bytes that were changed: replay and
 * wal_consistency_checking see no difference.
 */
#ifndef GPUANN_APPEND_WAL_H
#define GPUANN_APPEND_WAL_H

#include "page/pages.h"

#include "access/generic_xlog.h"

#define ROW_LOG_RUNS	96		/* bytes of the short runs of a page */

/* What changes of one page. */
typedef struct LoggedPage
{
	Buffer		buffer;
	bool		image;			/* logged as a whole */
	Page		page;
	uint16		lower;			/* pd_lower before */
	uint32		bytes;
	char		runs[ROW_LOG_RUNS];
	const char *tail;			/* bytes of the last run, if that is a long one */
	uint32		tail_bytes;
} LoggedPage;

/* The pages of a record, in lock order. */
typedef struct AppendWal
{
	Relation	index;
	int			count;
	LoggedPage	pages[MAX_GENERIC_XLOG_PAGES];
} AppendWal;

/* Begin a record, before the critical section. */
extern void append_wal_begin(AppendWal *log, Relation index);

/* Add a page, whose buffer is locked exclusively. */
extern LoggedPage *append_wal_page(AppendWal *log, Buffer buffer, bool image);

/* Bytes of a page have been changed: few, or the last ones of it. */
extern void append_wal_run(LoggedPage *logged, const void *from, Size bytes);
extern void append_wal_tail(LoggedPage *logged, const void *from, Size bytes);

/* Write the record, in the critical section in which the pages were changed. */
extern void append_wal_finish(AppendWal *log);

#endif							/* GPUANN_APPEND_WAL_H */
