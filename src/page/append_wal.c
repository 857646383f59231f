/*
 * append_wal.c
 *		Write generic WAL records for changes whose byte ranges are known.
 *
 * A record of the generic resource manager contains, for each page without
 * full-page image, a list of fragments: offset and length, two bytes each, then
 * the new bytes. Replay copies them, zeroes the hole between pd_lower and
 * pd_upper, and sets the LSN.
 *
 * That format is internal to generic_xlog.c. It is the same in PostgreSQL 15 to
 * 18, and no minor release can change it, because standbys and crash recovery
 * must replay records written by other minor releases of the same major
 * version. Everything else here is the interface of xloginsert.h.
 * t/165_append_records_are_the_servers.pl compares these records with what the
 * server writes and replays, and fails if the format differs.
 */
#include "postgres.h"

#include "page/append_wal.h"

#include "access/xloginsert.h"
#include "base/faults.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#ifdef GPUANN_TEST_FAULTS

/* Copies of the current record's pages before the change. */
static PGAlignedBlock before[MAX_GENERIC_XLOG_PAGES];

/* Memory context for GenericXLog, which allocates in our critical section. */
static MemoryContext generic_memory = NULL;

/*
 * Write the same change by GenericXLog: restore the old pages, and let it apply
 * the new ones.
 */
static void
finish_by_generic(AppendWal *log)
{
	MemoryContext caller = MemoryContextSwitchTo(generic_memory);
	GenericXLogState *state = GenericXLogStart(log->index);

	for (int i = 0; i < log->count; i++)
	{
		LoggedPage *logged = &log->pages[i];
		PGAlignedBlock after;

		memcpy(after.data, logged->page, BLCKSZ);
		memcpy(logged->page, before[i].data, BLCKSZ);
		memcpy(GenericXLogRegisterBuffer(state, logged->buffer,
										 logged->image ? GENERIC_XLOG_FULL_IMAGE : 0),
			   after.data, BLCKSZ);
	}
	GenericXLogFinish(state);
	MemoryContextSwitchTo(caller);
}

#define KEEP_BEFORE(number, page)	memcpy(before[number].data, (page), BLCKSZ)

/*
 * A wrong offset is within the page's contents: a header that is overwritten,
 * or a byte beyond the page, would let recovery crash instead of complaining.
 */
static int
faulty_offset(Size at, Size bytes)
{
	return faults_row_log == ROW_LOG_BROKEN && at >= SizeOfPageHeaderData && at + bytes < BLCKSZ;
}

#define FAULTY_OFFSET(at, bytes)	faulty_offset(at, bytes)
#else
#define KEEP_BEFORE(number, page)	((void) 0)
#define FAULTY_OFFSET(at, bytes)	0
#endif

void
append_wal_begin(AppendWal *log, Relation index)
{
	log->index = index;
	log->count = 0;
#ifdef GPUANN_TEST_FAULTS
	if (generic_memory != NULL || faults_row_log != ROW_LOG_GENERIC)
		return;
	generic_memory =
		AllocSetContextCreate(TopMemoryContext, "gpuann row log", ALLOCSET_DEFAULT_SIZES);
	MemoryContextAllowInCriticalSection(generic_memory, true);
#endif
}

LoggedPage *
append_wal_page(AppendWal *log, Buffer buffer, bool image)
{
	LoggedPage *logged = &log->pages[log->count++];

	Assert(log->count <= MAX_GENERIC_XLOG_PAGES);
	logged->buffer = buffer;
	logged->image = image;
	logged->page = BufferGetPage(buffer);
	logged->lower = ((PageHeader) logged->page)->pd_lower;
	logged->bytes = 0;
	logged->tail_bytes = 0;
	KEEP_BEFORE(log->count - 1, logged->page);
	return logged;
}

/* Add the header of a fragment. */
static void
add_fragment_header(LoggedPage *logged, const void *from, Size bytes)
{
	Size		at = (const char *) from - logged->page;
	uint16		head[2] = {(uint16) (at + FAULTY_OFFSET(at, bytes)), (uint16) bytes};

	Assert(logged->tail_bytes == 0 && logged->bytes + sizeof(head) <= ROW_LOG_RUNS);
	memcpy(logged->runs + logged->bytes, head, sizeof(head));
	logged->bytes += sizeof(head);
}

void
append_wal_run(LoggedPage *logged, const void *from, Size bytes)
{
	if (logged->image)
		return;
	add_fragment_header(logged, from, bytes);
	Assert(logged->bytes + bytes <= ROW_LOG_RUNS);
	memcpy(logged->runs + logged->bytes, from, bytes);
	logged->bytes += bytes;
}

void
append_wal_tail(LoggedPage *logged, const void *from, Size bytes)
{
	if (logged->image)
		return;
	add_fragment_header(logged, from, bytes);
	logged->tail = from;
	logged->tail_bytes = bytes;
}

/* Register a page with the record. */
static void
register_page(const LoggedPage *logged, uint8 number)
{
	if (logged->image)
	{
		XLogRegisterBuffer(number, logged->buffer, REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
		return;
	}
	XLogRegisterBuffer(number, logged->buffer, REGBUF_STANDARD);
	XLogRegisterBufData(number, (char *) logged->runs, logged->bytes);
	if (logged->tail_bytes > 0)
		XLogRegisterBufData(number, (char *) logged->tail, logged->tail_bytes);
}

void
append_wal_finish(AppendWal *log)
{
	XLogRecPtr	lsn;

	Assert(CritSectionCount > 0);
#ifdef GPUANN_TEST_FAULTS
	if (faults_row_log == ROW_LOG_GENERIC)
	{
		finish_by_generic(log);
		return;
	}
#endif
	/*
	 * Mark the buffers dirty before XLogInsert(): a checkpoint that begins in
	 * between, and whose redo pointer is behind the record, must write them.
	 */
	for (int i = 0; i < log->count; i++)
		MarkBufferDirty(log->pages[i].buffer);
	if (!RelationNeedsWAL(log->index))
		return;
	XLogBeginInsert();
	for (int i = 0; i < log->count; i++)
		register_page(&log->pages[i], (uint8) i);
	lsn = XLogInsert(RM_GENERIC_ID, 0);
	for (int i = 0; i < log->count; i++)
		PageSetLSN(log->pages[i].page, lsn);
}
