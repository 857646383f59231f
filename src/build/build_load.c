/*
 * build_load.c
 *		Rows of the heap into pages: each process gathers a superblock's worth,
 *		claims a superblock, and writes it in one go.
 *
 * So a loading process takes one lock per page instead of two per row, and
 * superblocks are completed almost in order. Vector and column pages are logged
 * as soon as they are filled, by the process that fills them; node pages once,
 * later, with their edges. The last superblock of each process is filled in part; what is
 * left of it becomes free slots (build.c).
 */
#include "postgres.h"

#include "build/build_parts.h"

#include "access/tableam.h"
#include "access/xloginsert.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "base/faults.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "storage/smgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define COUNT_ROWS	64			/* rows between two updates of the shared count: one per row would
								 * be contended for */

/*
 * Announce a superblock. False if the ring is full.
 */
static bool
try_put_loaded(BuildShared *shared, uint32 superblock, uint32 rows)
{
	bool		room;

	SpinLockAcquire(&shared->mutex);
	room = shared->next_loaded - shared->first_loaded < LOADED_RING;
	if (room)
	{
		LoadedSuperblock *loaded = &shared->ring[shared->next_loaded++ % LOADED_RING];

		loaded->superblock = superblock;
		loaded->rows = rows;
	}
	SpinLockRelease(&shared->mutex);
	return room;
}

/*
 * Announce a loaded superblock. If the ring is full, the leader empties it, and
 * a worker waits.
 */
static void
build_put_loaded(Loader *loader, uint32 superblock, uint32 rows)
{
	BuildShared *shared = loader->shared;

	while (!try_put_loaded(shared, superblock, rows))
	{
		if (loader->loaded != NULL)
			loader->loaded(loader->context);
		else
			ConditionVariableSleep(&shared->changed, PG_WAIT_EXTENSION);
	}
	if (loader->loaded != NULL)
		loader->loaded(loader->context);
	else
	{
		ConditionVariableCancelSleep();
		ConditionVariableBroadcast(&shared->changed);
	}
}

/*
 * Take the next announced superblock. False if there is none.
 */
bool
build_take_loaded(BuildShared *shared, LoadedSuperblock *loaded)
{
	bool		found;
	bool		full;

	SpinLockAcquire(&shared->mutex);
	found = shared->first_loaded != shared->next_loaded;
	full = shared->next_loaded - shared->first_loaded == LOADED_RING;
	if (found)
		*loaded = shared->ring[shared->first_loaded++ % LOADED_RING];
	SpinLockRelease(&shared->mutex);
	if (full)
		ConditionVariableBroadcast(&shared->changed);	/* workers may be waiting for room */
	return found;
}

/*
 * Initialize fields that cannot be copied.
 */
void
build_shared_init(BuildShared *shared)
{
	pg_atomic_init_u64(&shared->rows, 0);
	ConditionVariableInit(&shared->changed);
	SpinLockInit(&shared->mutex);
	shared->least_norm = GPUANN_NO_LEAST_NORM;
	shared->most_norm = GPUANN_NO_MOST_NORM;
}

/*
 * Begin to load, in the current memory context.
 */
void
loader_begin(Loader *loader, Relation index, BuildShared *shared)
{
	const IndexFormat *format = &shared->format;

	*loader = (Loader) {
		.index = index,
		.type = gpuann_type_info(index),
		.format = format,
		.shared = shared,
		.least_norm = GPUANN_NO_LEAST_NORM,
		.most_norm = GPUANN_NO_MOST_NORM,
	};
	loader->row_memory =
		AllocSetContextCreate(CurrentMemoryContext, "gpuann build row", ALLOCSET_DEFAULT_SIZES);
	loader->vectors =
		palloc_extended((Size) format->superblock_slots * format->vector_bytes, MCXT_ALLOC_HUGE);
	column_table_plan(index, &loader->table);
	if (format->column_bytes > 0)
		loader->columns = palloc((Size) format->superblock_slots * format->column_bytes);
	loader->tids = palloc(sizeof(ItemPointerData) * format->superblock_slots);
}

/*
 * Extend the file by one page, which must be this block, because no other
 * process extends it now.
 */
Buffer
build_new_block(Relation index, ForkNumber fork, BlockNumber expected)
{
#if PG_VERSION_NUM >= 160000
	Buffer		buffer = ExtendBufferedRel(BMR_REL(index), fork, NULL, EB_SKIP_EXTENSION_LOCK);
#else
	Buffer		buffer = ReadBufferExtended(index, fork, P_NEW, RBM_NORMAL, NULL);
#endif

	if (BufferGetBlockNumber(buffer) != expected)
		elog(ERROR, "block %u of index \"%s\" should have been %u", BufferGetBlockNumber(buffer),
			 RelationGetRelationName(index), expected);
	return buffer;
}

/*
 * Number of pages of a superblock up to the last that this many rows reach.
 */
static uint32
pages_needed(const IndexFormat *format, uint32 rows)
{
	VectorPlace place = vector_place(format, 0);

	if (rows == 0)
		return 1;				/* the pending page */
	if (rows == format->superblock_slots)
		return format->superblock_pages;
	for (uint64 left = (uint64) rows * format->vector_bytes; left > GPUANN_PAYLOAD;
		 left -= GPUANN_PAYLOAD)
		vector_place_next(format, &place);
	/*
	 * with small vectors, the last node page comes after its rows' vector page
	 */
	return Max(place.block, node_block(format, rows - 1)) - pending_block(format, 0) + 1;
}

/*
 * Extend the file by zero pages, without buffers, because processes wait for
 * each other here. Pages are written although they will be written again soon,
 * so that a full disk is an error of the build and not of a checkpoint. One
 * sync request per segment is enough.
 */
static void
lengthen_file(Relation index, BlockNumber first, uint32 pages)
{
#if PG_VERSION_NUM >= 160000
	smgrzeroextend(RelationGetSmgr(index), MAIN_FORKNUM, first, (int) pages, false);
#else
	static PGAlignedBlock zero_page;

	for (uint32 i = 1; i <= pages; i++)
	{
		bool		last = i == pages || (first + i) % RELSEG_SIZE == 0;

		smgrextend(RelationGetSmgr(index), MAIN_FORKNUM, first + i - 1, zero_page.data, !last);
	}
#endif
}

/*
 * Claim the next superblock, and extend the file by its pages, all zero: those
 * that this many rows need or, in a parallel build, where other processes claim
 * the next one meanwhile, all of them.
 */
static uint32
build_claim_superblock(BuildShared *shared, Relation index, uint32 rows)
{
	const IndexFormat *format = &shared->format;
	bool		whole = shared->parallel;
	uint32		superblock;
	uint32		pages = format->superblock_pages;

	if (!whole)
		pages = pages_needed(format, rows);
	if (whole)
		LockRelationForExtension(index, ExclusiveLock);
	superblock = shared->superblocks;
	check_row_limit(index, format, superblock);
	lengthen_file(index, pending_block(format, superblock), pages);
	shared->superblocks++;
	if (whole)
		UnlockRelationForExtension(index, ExclusiveLock);
	return superblock;
}

/*
 * Lock a page of a superblock that is being written, and initialise it.
 */
static Buffer
begin_page(const Loader *loader, BlockNumber block, PageKind kind, uint32 superblock)
{
	Buffer		buffer =
		ReadBufferExtended(loader->index, MAIN_FORKNUM, block, RBM_ZERO_AND_LOCK, NULL);

	page_init(BufferGetPage(buffer), kind, superblock);
	return buffer;
}

static void
end_page(Buffer buffer)
{
	MarkBufferDirty(buffer);
	UnlockReleaseBuffer(buffer);
}

/*
 * Write the node records: live, without edges.
 */
static void
write_nodes(const Loader *loader, uint32 superblock)
{
	const IndexFormat *format = loader->format;
	uint32		first_slot = superblock * format->superblock_slots;

	for (uint32 first = 0; first < loader->count; first += format->nodes_per_page)
	{
		uint32		end = Min(first + format->nodes_per_page, loader->count);
		Buffer		buffer =
			begin_page(loader, node_block(format, first_slot + first), PAGE_NODE, superblock);
		Page		page = BufferGetPage(buffer);

		page_reach_record(format, page, first_slot + end - 1);
		for (uint32 i = first; i < end; i++)
		{
			NodeRecord *node = node_record(format, page, first_slot + i);

			node->tid = loader->tids[i];
			node->flags = NODE_LIVE;
			node->version = 1;
		}
		end_page(buffer);
	}
}

/*
 * Write the vectors, one after another across pages, and log them.
 */
static void
write_vectors(const Loader *loader, uint32 superblock)
{
	const IndexFormat *format = loader->format;
	VectorPlace place = vector_place(format, superblock * format->superblock_slots);
	Size		bytes = (Size) loader->count * format->vector_bytes;
	PageLog		log;

	page_log_begin(&log, loader->index, loader->shared->logged);
	for (Size done = 0; done < bytes; done += GPUANN_PAYLOAD, vector_place_next(format, &place))
	{
		Size		part = Min(bytes - done, (Size) GPUANN_PAYLOAD);
		Buffer		buffer = begin_page(loader, place.block, PAGE_VECTOR, superblock);

		page_reach(BufferGetPage(buffer), part);
		memcpy(VectorBytesOf(BufferGetPage(buffer)), loader->vectors + done, part);
		page_log_add(&log, buffer);
	}
	page_log_flush(&log);
}

/*
 * Write and log the column pages, those too that no row reaches yet: slots that
 * are left over become free, and whoever takes one finds its page initialized.
 */
static void
write_columns(const Loader *loader, uint32 superblock)
{
	const IndexFormat *format = loader->format;
	uint32		first_slot = superblock * format->superblock_slots;
	PageLog		log;

	page_log_begin(&log, loader->index, loader->shared->logged);
	for (uint32 i = 0; i < format_column_pages(format); i++)
	{
		uint32		first = i * columns_per_page(format);
		uint32		end = Min(first + columns_per_page(format), loader->count);
		Buffer		buffer = begin_page(loader, column_block(format, first_slot + first),
										PAGE_COLUMN, superblock);

		if (first < end)
		{
			Size		bytes = (Size) (end - first) * format->column_bytes;

			page_reach(BufferGetPage(buffer), bytes);
			memcpy(column_record(format, BufferGetPage(buffer), first_slot + first),
				   loader->columns + (Size) first * format->column_bytes, bytes);
		}
		page_log_add(&log, buffer);
	}
	page_log_flush(&log);
}

/*
 * Write the gathered rows into a new superblock.
 */
static void
write_superblock(Loader *loader)
{
	uint32		superblock;

	if (loader->count == 0)
		return;
	CHECK_FOR_INTERRUPTS();
	superblock = build_claim_superblock(loader->shared, loader->index, loader->count);
	write_columns(loader, superblock);
	write_nodes(loader, superblock);
	write_vectors(loader, superblock);
	build_put_loaded(loader, superblock, loader->count);
	loader->count = 0;
}

/*
 * Add the rows since the last call to the shared count, from which the leader
 * updates the progress view.
 */
static void
count_rows(Loader *loader)
{
	pg_atomic_fetch_add_u64(&loader->shared->rows, loader->uncounted);
	loader->uncounted = 0;
	if (loader->loaded != NULL)
		build_progress(pg_atomic_read_u64(&loader->shared->rows));
}

/*
 * Heap scan callback: gather a row.
 */
static void
load_row(Relation index, ItemPointer tid, Datum *values, bool *isnull, bool alive, void *arg)
{
	Loader	   *loader = arg;
	const IndexFormat *format = loader->format;
	MemoryContext old = MemoryContextSwitchTo(loader->row_memory);
	const void *elements;
	Pointer		copy;

	if (gpuann_value_elements(loader->type, format->dims, values[0], isnull[0], &elements, &copy))
	{
		memcpy(loader->vectors + (Size) loader->count * format->vector_bytes, elements,
			   format->vector_bytes);
		gpuann_widen_norms(loader->type->type, format->dims, elements, &loader->least_norm,
						   &loader->most_norm);
		if (format->column_bytes > 0)
			column_record_form(index, &loader->table, values, isnull, tid,
							   (ColumnRecord *) (loader->columns +
												 (Size) loader->count * format->column_bytes));
		loader->tids[loader->count++] = *tid;
		if (++loader->uncounted == COUNT_ROWS)
			count_rows(loader);
		FAULT_POINT("build-row");
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(loader->row_memory);
	if (loader->count == format->superblock_slots)
		write_superblock(loader);
}

/*
 * Add the norms of this process's rows to the shared range.
 */
static void
share_norms(const Loader *loader)
{
	BuildShared *shared = loader->shared;

	SpinLockAcquire(&shared->mutex);
	shared->least_norm = Min(shared->least_norm, loader->least_norm);
	shared->most_norm = Max(shared->most_norm, loader->most_norm);
	SpinLockRelease(&shared->mutex);
}

/*
 * Scan the heap, or this process's share of it, and load its rows. Returns the
 * number of heap rows scanned.
 */
double
loader_scan(Loader *loader, Relation heap, IndexInfo *info, bool progress, TableScanDesc scan)
{
	double		rows =
		table_index_build_scan(heap, loader->index, info, true, progress, load_row, loader, scan);

	count_rows(loader);
	write_superblock(loader);
	share_norms(loader);
	return rows;
}
