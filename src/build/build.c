/*
 * build.c
 *		CREATE INDEX: append the rows to pages and feed them to an engine, which
 *		links the graph: the server's, if it is on a GPU and has room, else a
 *		CPU engine in this process. Lists are trained and encoded by the
 *		server's engine or by threads.
 *
 * The pages are written through buffers; vector pages are logged as they are
 * filled, all others once at the end. The engine in this process holds as many
 * rows as maintenance_work_mem allows; rows beyond stay on the pending list and
 * are linked over pages afterwards, which takes longer.
 */
#include "base/handler.h"
#include "postgres.h"

#include "build/build_parts.h"

#include <math.h>

#include "access/tableam.h"
#include "access/xloginsert.h"
#include "client/client.h"
#include "commands/progress.h"
#include "engine/prune.h"
#include "base/faults.h"
#include "link/link.h"
#include "lists/postings.h"
#include "miscadmin.h"
#include "page/pending.h"
#include "pgstat.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

typedef struct BuildState
{
	Relation	heap;
	Relation	index;
	IndexFormat format;
	ListFormat	lists;			/* if the format has lists */
	ColumnTable columns;
	uint64		nonce;
	BuildShared *shared;		/* while rows are loaded */
	double		expected_rows;
	double		heap_rows;
	MemoryContext memory;
	BuildServer *server;		/* NULL: this process links the graph, or trains and encodes lists
								 */
	BuildEngine *engine;		/* NULL: the server links */

	/* rows in pages */
	uint32		rows;
	uint32		superblocks;
	uint32	   *loaded;			/* per superblock: slots that hold rows, the first ones; 0: not
								 * written yet */
	uint32		loaded_room;
	uint32		fed;			/* superblocks below this have been offered to the engine */

	/* rows that are not linked: those in slots from unlinked_from on */
	uint32		unlinked;
	uint32		unlinked_from;

	/* slots to put on the free list */
	uint32		free_head;
	uint32		free_count;
	uint32		next_fresh;

	float		least_norm;		/* range of the norms of all rows */
	float		most_norm;
} BuildState;

/*
 * Continue without the server: this process links the graph, from the first row
 * on. Lists need no engine here.
 */
static void
go_on_here(BuildState *build)
{
	MemoryContext old = MemoryContextSwitchTo(build->memory);

	if (build->server != NULL)
		build_server_close(build->server);
	build->server = NULL;
	if (!format_has_lists(&build->format))
		build->engine =
			build_engine_open(build->index, &build->format, Max(build->expected_rows, build->rows));
	for (uint32 i = 0; build->engine != NULL && i < build->fed; i++)
		build_engine_feed(build->engine, i, build->loaded[i]);
	MemoryContextSwitchTo(old);
}

/*
 * Feed a superblock to the engine.
 */
static void
build_feed(BuildState *build, uint32 superblock, uint32 rows)
{
	if (build->server != NULL && build_server_feed(build->server, superblock, rows))
		return;
	if (build->server != NULL)
		go_on_here(build);
	if (build->engine != NULL)
		build_engine_feed(build->engine, superblock, rows);
}

/*
 * End feeding: all superblocks are loaded.
 */
static void
end_feeding(BuildState *build)
{
	if (build->server != NULL && !build_server_fed(build->server))
		go_on_here(build);
	if (build->engine != NULL)
		build_engine_fed(build->engine);
}

/*
 * Collect the superblocks loaded since the last call, and feed those that are
 * next in order, because slots ascend in the engine.
 */
static void
take_loaded(void *context)
{
	BuildState *build = context;
	LoadedSuperblock loaded;

	while (build_take_loaded(build->shared, &loaded))
	{
		if (loaded.superblock >= build->loaded_room)
		{
			uint32		room = Max(loaded.superblock + 1, build->loaded_room * 2);

			build->loaded = repalloc_huge(build->loaded, sizeof(uint32) * room);
			memset(build->loaded + build->loaded_room, 0,
				   sizeof(uint32) * (room - build->loaded_room));
			build->loaded_room = room;
		}
		build->loaded[loaded.superblock] = loaded.rows;
		build->rows += loaded.rows;
	}
	build_progress(pg_atomic_read_u64(&build->shared->rows));
	for (; build->fed < build->loaded_room && build->loaded[build->fed] > 0; build->fed++)
		build_feed(build, build->fed, build->loaded[build->fed]);
}

/*
 * Load all rows of the heap, with parallel workers if possible.
 */
static void
build_load_rows(BuildState *build, IndexInfo *info)
{
	int			workers = build_workers(build->heap, build->index, info);
	BuildShared *alone = palloc0(sizeof(BuildShared));
	ParallelLoad *load = NULL;
	Loader		loader;

	alone->heap = RelationGetRelid(build->heap);
	alone->index = RelationGetRelid(build->index);
	alone->concurrent = info->ii_Concurrent;
	alone->logged = RelationNeedsWAL(build->index);
	alone->format = build->format;
	build_shared_init(alone);
	if (workers > 0)
		load = parallel_load_begin(build->heap, alone, workers);
	build->shared = load != NULL ? parallel_load_shared(load) : alone;

	build_phase(BUILD_PHASE_LOAD, 0);
	loader_begin(&loader, build->index, build->shared);
	loader.loaded = take_loaded;
	loader.context = build;
	build->heap_rows = loader_scan(&loader, build->heap, info, true,
								   load != NULL ? parallel_load_scan(load, build->heap) : NULL);
	if (load != NULL)
		parallel_load_wait(load, take_loaded, build);
	build->heap_rows += build->shared->heap_rows;
	build->superblocks = build->shared->superblocks;
	build->least_norm = build->shared->least_norm;
	build->most_norm = build->shared->most_norm;
	info->ii_BrokenHotChain |= build->shared->broken_hot_chain;
	build->shared = NULL;
	if (load != NULL)
		parallel_load_end(load);
	pfree(alone);
	end_feeding(build);
	if (build->fed != build->superblocks)
		elog(ERROR, "%u superblocks were loaded, not %u", build->fed, build->superblocks);
}

/*
 * Write an engine's graph rows, which are sorted by slot, into the node pages;
 * `before` counts those written earlier, for progress.
 */
static void
write_graph_rows(BuildState *build, const LinkResult *link, uint32 written)
{
	const IndexFormat *format = &build->format;
	Size		row_bytes = format->degree * sizeof(uint32);

	for (uint32 i = 0; i < link->count;)
	{
		BlockNumber block = node_block(format, link->slots[i]);
		Buffer buffer = read_page(build->index, block, PAGE_NODE, BUFFER_LOCK_EXCLUSIVE, false);

		for (; i < link->count && node_block(format, link->slots[i]) == block; i++)
		{
			NodeRecord *node = node_record(format, BufferGetPage(buffer), link->slots[i]);

			node->flags |= NODE_LINKED;
			page_reach_row(format, BufferGetPage(buffer), link->slots[i]);
			memcpy(graph_row(format, BufferGetPage(buffer), link->slots[i]),
				   link->rows + (Size) i * format->degree, row_bytes);
		}
		MarkBufferDirty(buffer);
		UnlockReleaseBuffer(buffer);
		FAULT_POINT("build-graph-page");
		build_progress(written + i);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Undo graph rows written before the server failed: this process links again
 * from the first row, and may not have memory for all rows.
 */
static void
unwrite_graph_rows(BuildState *build)
{
	const IndexFormat *format = &build->format;

	for (uint32 superblock = 0; superblock < build->superblocks; superblock++)
	{
		uint32		slot = superblock * format->superblock_slots;
		uint32		end = slot + build->loaded[superblock];

		while (slot < end)
		{
			BlockNumber block = node_block(format, slot);
			Buffer buffer = read_page(build->index, block, PAGE_NODE, BUFFER_LOCK_EXCLUSIVE, false);

			for (; slot < end && node_block(format, slot) == block; slot++)
			{
				node_record(format, BufferGetPage(buffer), slot)->flags &= ~NODE_LINKED;
				memset(graph_row(format, BufferGetPage(buffer), slot), 0, graph_row_bytes(format));
			}
			MarkBufferDirty(buffer);
			UnlockReleaseBuffer(buffer);
		}
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Write the seeds, ordered; if there is not room for all, the first ones, which
 * are spread over the graph like all seeds. Returns their number.
 */
static uint32
write_seeds(BuildState *build, const LinkResult *link)
{
	uint32		room = build->format.seed_pages * GPUANN_SEEDS_PER_PAGE;
	uint32		count = Min(link->nseeds, room);
	uint32	   *ordered = palloc(sizeof(uint32) * Max(count, 1));

	memcpy(ordered, link->seeds, sizeof(uint32) * count);
	order_seeds(build->index, &build->format, ordered, count);
	for (uint32 done = 0; done < count;)
	{
		Buffer		buffer = ReadBuffer(build->index, 1 + done / GPUANN_SEEDS_PER_PAGE);
		uint32	   *seeds = SeedSlotsOf(BufferGetPage(buffer));
		uint32		here = Min(count - done, (uint32) GPUANN_SEEDS_PER_PAGE);

		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		memcpy(seeds, ordered + done, sizeof(uint32) * here);
		MarkBufferDirty(buffer);
		UnlockReleaseBuffer(buffer);
		done += here;
	}
	pfree(ordered);
	return count;
}

/*
 * Have the server link all rows, and write the result. False: nothing is
 * written.
 */
static bool
link_on_server(BuildState *build, uint32 *seeds)
{
	uint32		written = 0;
	LinkResult	seeded;
	LinkResult	part;

	if (build->server == NULL || build->rows == 0)
		return false;
	build_phase(BUILD_PHASE_LINK, build->rows);
	if (!build_server_link(build->server, build->loaded, &seeded))
		return false;
	build_phase(BUILD_PHASE_WRITE, build->rows);
	while (written < build->rows)
	{
		if (!build_server_fetch(build->server, &part))
		{
			unwrite_graph_rows(build);
			return false;
		}
		write_graph_rows(build, &part, written);
		written += part.count;
	}
	*seeds = write_seeds(build, &seeded);
	return true;
}

/*
 * Link the engine's rows, and write the result. Returns the number of seeds;
 * rows stay on the pending list if memory does not suffice.
 */
static uint32
link_fed(BuildState *build)
{
	uint32		seeds = 0;
	LinkResult	link;

	if (link_on_server(build, &seeds))
		return seeds;
	if (build->server != NULL)
	{
		go_on_here(build);
		build_engine_fed(build->engine);
	}
	build_phase(BUILD_PHASE_LINK, build_engine_rows(build->engine));
	if (build_engine_link(build->engine, &link))
	{
		build_phase(BUILD_PHASE_WRITE, link.count);
		write_graph_rows(build, &link, 0);
		seeds = write_seeds(build, &link);
	}
	build->unlinked = build->rows - build_engine_rows(build->engine);
	build->unlinked_from = build_engine_end(build->engine);
	build_engine_close(build->engine);
	return seeds;
}

/*
 * Put a superblock's unused slots, from number `rows` on, on the free list:
 * write their records, and initialize pages for their vectors.
 */
static void
free_leftover(BuildState *build, uint32 superblock, uint32 rows)
{
	const IndexFormat *format = &build->format;
	uint32		first_slot = superblock * format->superblock_slots;
	VectorPlace place = vector_place(format, first_slot + rows);
	Buffer		buffer = InvalidBuffer;
	PageLog		log;

	/*
	 * From last to first, because the free list is a stack: inserts then take
	 * the first ones first, and vector pages are filled without gaps, as
	 * gpuann_check expects.
	 */
	for (uint32 slot = first_slot + format->superblock_slots; slot-- > first_slot + rows;)
	{
		NodeRecord *node;

		if (!BufferIsValid(buffer) || BufferGetBlockNumber(buffer) != node_block(format, slot))
		{
			if (BufferIsValid(buffer))
				UnlockReleaseBuffer(buffer);
			buffer = ReadBuffer(build->index, node_block(format, slot));
			LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
			if (PageIsNew(BufferGetPage(buffer)))
				page_init(BufferGetPage(buffer), PAGE_NODE, superblock);
			MarkBufferDirty(buffer);
		}
		page_reach_row(format, BufferGetPage(buffer), slot);
		node = node_record(format, BufferGetPage(buffer), slot);
		memset(node, 0, sizeof(NodeRecord));
		ItemPointerSetInvalid(&node->tid);
		node->flags = NODE_FREE;
		node->version = 1;		/* never used, but versions start at 1 */
		*graph_row(format, BufferGetPage(buffer), slot) = build->free_head;
		build->free_head = slot;
		build->free_count++;
	}
	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
	/* initialized already if the vector of a loaded row reaches it */
	page_log_begin(&log, build->index, RelationNeedsWAL(build->index));
	if (place.offset > 0)
		vector_place_next(format, &place);
	for (; place.page < format->vector_pages; vector_place_next(format, &place))
	{
		buffer = ReadBuffer(build->index, place.block);
		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		page_init(BufferGetPage(buffer), PAGE_VECTOR, superblock);
		page_log_add(&log, buffer);
	}
	page_log_flush(&log);
}

/*
 * Free the unused slots of the superblocks that processes filled last. Those of
 * the index's last superblock stay fresh.
 */
static void
free_leftovers(BuildState *build)
{
	uint32		slots = build->format.superblock_slots;

	build->free_head = NO_SLOT;
	if (build->superblocks == 0)
		return;
	build->next_fresh = (build->superblocks - 1) * slots + build->loaded[build->superblocks - 1];
	for (uint32 i = build->superblocks - 1; i-- > 0;)
	{
		CHECK_FOR_INTERRUPTS();
		if (build->loaded[i] < slots)
			free_leftover(build, i, build->loaded[i]);
	}
}

/*
 * List rows that are not linked, from *slot on, on a pending page; advances
 * *slot.
 */
static void
list_unlinked(const BuildState *build, Page page, uint32 *slot)
{
	const IndexFormat *format = &build->format;
	PendingPage *list = PendingPageOf(page);

	while (build->unlinked > 0 && list->count < GPUANN_PENDING_CAPACITY &&
		   slot_superblock(format, *slot) < build->superblocks)
	{
		uint32		superblock = slot_superblock(format, *slot);

		if (*slot % format->superblock_slots < build->loaded[superblock])
			list->slots[list->count++] = (*slot)++;
		else
			*slot = (superblock + 1) * format->superblock_slots;
	}
	page_reach(page, offsetof(PendingPage, slots) + list->count * sizeof(uint32));
}

/*
 * The superblock whose pending page is the newest after all unlinked rows have
 * been listed.
 */
static uint32
newest_pending(const BuildState *build)
{
	return build->unlinked == 0 ? 0 : (build->unlinked - 1) / GPUANN_PENDING_CAPACITY;
}

/*
 * Write a superblock's pending page; called in order of superblocks. Lists
 * unlinked rows from *slot on.
 */
static void
write_pending_page(Buffer buffer, const BuildState *build, uint32 superblock, uint32 *slot)
{
	const IndexFormat *format = &build->format;
	uint32		newest = newest_pending(build);
	bool		last = superblock + 1 >= build->superblocks;
	Page		page = BufferGetPage(buffer);
	PendingPage *list = PendingPageOf(page);

	page_init(page, PAGE_PENDING, superblock);
	if (superblock > newest)
		list->next = last ? InvalidBlockNumber : pending_block(format, superblock + 1);
	else
	{
		list->first_position = (uint64) superblock * GPUANN_PENDING_CAPACITY;
		list_unlinked(build, page, slot);
		list->state = PENDING_CLOSED;
		list->next = pending_block(format, superblock + 1);
	}
	if (superblock == newest)
	{
		list->state = PENDING_NEWEST;
		list->next = InvalidBlockNumber;
		list->append.superblocks = build->superblocks;
		list->append.next_fresh = build->next_fresh;
		list->append.free_head = build->free_head;
		list->append.free_count = build->free_count;
		list->append.spare_head = last ? InvalidBlockNumber : pending_block(format, superblock + 1);
		list->append.least_norm = build->least_norm;
		list->append.most_norm = build->most_norm;
	}
	MarkBufferDirty(buffer);
}

/*
 * Put all rows into lists.
 */
static void
build_fill_lists(BuildState *build)
{
	ListsBuild	lists = {.index = build->index,
						 .format = &build->format,
						 .lists = &build->lists,
						 .rows = build->rows,
						 .superblocks = build->superblocks,
						 .loaded = build->loaded,
						 .server = build->server};

	build_lists(&lists);
	build->server = lists.server;
}

/*
 * Write the metapage.
 */
static void
write_meta(Buffer buffer, const BuildState *build, uint64 nonce, uint32 seeds)
{
	const IndexFormat *format = &build->format;
	MetaPage   *meta = MetaPageOf(BufferGetPage(buffer));

	page_init(BufferGetPage(buffer), PAGE_META, 0);
	meta->magic = GPUANN_MAGIC;
	meta->format_version = format_version(format);
	if (format_has_lists(format))
	{
		*ListFormatOf(BufferGetPage(buffer)) = build->lists;
		page_reach(BufferGetPage(buffer), LIST_FORMAT_END);
	}
	if (format->column_bytes > 0)
		column_table_write(BufferGetPage(buffer), &build->columns);
	meta->format = *format;
	meta->nonce = nonce;
	meta->linked_slots = build->rows - build->unlinked;
	meta->seeds = seeds;
	meta->oldest_pending = pending_block(format, 0);
	meta->newest_pending = pending_block(format, newest_pending(build));
	MarkBufferDirty(buffer);
}

/*
 * Create the metapage, the pages before the first superblock and, for an empty
 * index, the first pending page. In the init fork they are logged at once.
 */
static void
write_first_pages(BuildState *build, ForkNumber fork)
{
	uint32		slot = 0;
	BlockNumber blocks = 1 + build->format.seed_pages + (fork == INIT_FORKNUM ? 1 : 0);

	for (BlockNumber block = 0; block < blocks; block++)
	{
		Buffer		buffer = build_new_block(build->index, fork, block);

		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		if (fork == INIT_FORKNUM)
			START_CRIT_SECTION();
		if (block == GPUANN_META_BLOCK)
			write_meta(buffer, build, 0, 0);
		else if (block <= build->format.seed_pages && format_has_lists(&build->format))
			list_init_page(&build->lists, BufferGetPage(buffer), block);
		else if (block <= build->format.seed_pages)
			page_init(BufferGetPage(buffer), PAGE_SEED, 0);
		else
			write_pending_page(buffer, build, 0, &slot);
		MarkBufferDirty(buffer);
		if (fork == INIT_FORKNUM)
		{
			log_newpage_buffer(buffer, true);
			END_CRIT_SECTION();
		}
		UnlockReleaseBuffer(buffer);
		if (fork == INIT_FORKNUM)
			FAULT_POINT("init-fork-page");
		else
			FAULT_POINT("build-first-page");
	}
}

/*
 * Write pending pages and metapage, after everything else.
 */
static void
write_last_pages(BuildState *build, uint32 seeds)
{
	uint32		slot = build->unlinked_from;
	Buffer		buffer;

	free_leftovers(build);
	if (build->superblocks == 0)
	{
		ReleaseBuffer(
			build_new_block(build->index, MAIN_FORKNUM, pending_block(&build->format, 0)));
		build->superblocks = 1;
	}
	for (uint32 i = 0; i < build->superblocks; i++)
	{
		CHECK_FOR_INTERRUPTS();
		buffer = ReadBuffer(build->index, pending_block(&build->format, i));
		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		write_pending_page(buffer, build, i, &slot);
		UnlockReleaseBuffer(buffer);
		FAULT_POINT("build-pending-page");
	}
	buffer = ReadBuffer(build->index, GPUANN_META_BLOCK);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	write_meta(buffer, build, build->nonce, seeds);
	UnlockReleaseBuffer(buffer);
}

/*
 * Add a block to the pages to be logged.
 */
static void
log_block(PageLog *log, BlockNumber block)
{
	Buffer		buffer = ReadBuffer(log->index, block);

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	page_log_add(log, buffer);
}

/*
 * Log what has not been logged yet: all pages but those of vectors and columns.
 */
static void
log_pages(BuildState *build)
{
	const IndexFormat *format = &build->format;
	PageLog		log;

	if (!RelationNeedsWAL(build->index))
	{
		FAULT_POINT("build-log-page");
		return;
	}
	build_phase(BUILD_PHASE_LOG, build->rows);
	page_log_begin(&log, build->index, true);
	for (BlockNumber block = 0; block <= format->seed_pages; block++)
		log_block(&log, block);
	for (uint32 i = 0; i < build->superblocks; i++)
	{
		uint32		first = i * format->superblock_slots;
		uint32		end = Min(first + format->superblock_slots, build->next_fresh);

		log_block(&log, pending_block(format, i));
		build_log_postings(&log, format, i);
		for (uint32 slot = first; slot < end; slot += format->nodes_per_page)
			log_block(&log, node_block(format, slot));
		page_log_flush(&log);
		build_progress(end);
		FAULT_POINT("build-log-page");
	}
}

/*
 * Check column and options, and compute the page layout. Defaults of list
 * options depend on whether a GPU will serve the index.
 */
static void
plan_format(BuildState *build, bool served)
{
	Relation	index = build->index;
	const GpuannTypeInfo *type = gpuann_type_info(index);
	uint32		dims = gpuann_column_dims(type, index);

	column_table_plan(index, &build->columns);
	if (gpuann_option_method(index) == GPUANN_METHOD_IVFPQ)
		list_format_plan(index, type, dims, build->expected_rows, build->nonce, served,
						 &build->format, &build->lists);
	else
		format_compute(&build->format, type, dims, gpuann_option_m(index),
					   gpuann_option_ef_construction(index), build->columns.row_bytes,
					   build->expected_rows);
}

static void
init_build(BuildState *build, Relation heap, Relation index, double expected_rows, uint64 nonce)
{
	*build = (BuildState) {
		.heap = heap,
		.index = index,
		.expected_rows = expected_rows,
		.nonce = nonce,
		.free_head = NO_SLOT,
		.least_norm = GPUANN_NO_LEAST_NORM,
		.most_norm = GPUANN_NO_MOST_NORM,
	};
}

/*
 * Plan the index, and choose the engine of the build.
 */
static void
begin_build(BuildState *build)
{
	bool		served = build_server_allowed(build->index, build->expected_rows);

	plan_format(build, served);
	if (served)
		build->server = build_server_open(build->heap, build->index, &build->format, &build->lists,
										  build->expected_rows, build->nonce);
	if (build->server != NULL)
		return;
	if (served)
		plan_format(build, false);
	go_on_here(build);
}

/*
 * Link over pages the rows that did not fit into memory, and report how much
 * memory would have sufficed.
 */
static void
link_rest(BuildState *build)
{
	if (build->unlinked == 0)
		return;
	ereport(
		NOTICE,
		(errmsg("gpuann graph no longer fits into maintenance_work_mem after %u rows",
				build->rows - build->unlinked),
		 errdetail("The other %u rows are linked in the index's pages, which takes longer.",
				   build->unlinked),
		 errhint("Set maintenance_work_mem to %.0f MB or more to build the whole graph in memory.",
				 ceil(build_memory(&build->format, build->rows) / (1024 * 1024)))));
	build_phase(BUILD_PHASE_PAGES, build->unlinked);

	/*
	 * Without the linker lock: no other process can have this file open, and a
	 * worker that links the index's previous file may hold the lock until this
	 * transaction ends.
	 */
	link_pending(build->index, index_format(build->index), build_progress);
	build_progress(build->unlinked);
}

/*
 * Estimated number of rows of the heap.
 */
static double
estimate_rows(Relation heap)
{
	BlockNumber pages;
	double		rows,
				all_visible;

	table_relation_estimate_size(heap, NULL, &pages, &rows, &all_visible);
	return Max(rows, 0);
}

/*
 * Build an index.
 */
IndexBuildResult *
gpuannbuild(Relation heap, Relation index, IndexInfo *info)
{
	TimestampTz begun = GetCurrentTimestamp();
	double		expected_rows = estimate_rows(heap);
	MemoryContext memory =
		AllocSetContextCreate(CurrentMemoryContext, "gpuann build", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(memory);
	BuildState *build = palloc(sizeof(BuildState));
	IndexBuildResult *result;
	uint32		seeds = 0;

	if (RelationGetNumberOfBlocks(index) != 0)
		elog(ERROR, "index \"%s\" already contains data", RelationGetRelationName(index));
	/* rd_amcache is of the previous file. */
	if (index->rd_amcache != NULL)
		pfree(index->rd_amcache);
	index->rd_amcache = NULL;

	init_build(build, heap, index, expected_rows, random_nonce());
	build->memory = memory;
	build->loaded = palloc0(sizeof(uint32));
	build->loaded_room = 1;
	begin_build(build);
	write_first_pages(build, MAIN_FORKNUM);
	build_load_rows(build, info);
	if (format_has_lists(&build->format))
		build_fill_lists(build);
	else
		seeds = link_fed(build);
	write_last_pages(build, seeds);
	FAULT_POINT("build-written");
	log_pages(build);
	FAULT_POINT("build-logged");
	link_rest(build);
	build_phase(BUILD_PHASE_MIRROR, build->rows);
	if (build->server == NULL ||
		!build_server_keep(build->server, (GetCurrentTimestamp() - begun) / 1000))
		mirror_feed(index, begun, build_progress);

	MemoryContextSwitchTo(old);
	result = palloc(sizeof(IndexBuildResult));
	result->heap_tuples = build->heap_rows;
	result->index_tuples = build->rows;
	MemoryContextDelete(memory);
	return result;
}

/*
 * Build the init fork of an unlogged index: an empty index without an identity.
 */
void
gpuannbuildempty(Relation index)
{
	BuildState	build;

	init_build(&build, NULL, index, 0, 0);
	plan_format(&build, false);
	build.lists.lists = 1;
	build.superblocks = 1;
	write_first_pages(&build, INIT_FORKNUM);
}
