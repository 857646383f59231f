/*
 * build.c
 *		CREATE INDEX: the rows are appended to pages and fed to a CPU engine in this process, which makes the graph.
 *
 * The pages are written through buffers without WAL, and logged once at the end. The engine holds as many rows as
 * maintenance_work_mem allows; rows beyond stay on the pending list and are linked over pages afterwards, which takes longer. The
 * engine's threads know nothing of PostgreSQL, and end with the memory context of the build, on error and cancel too.
 */
#include "gpuann.h"

#include <math.h>

#include "access/tableam.h"
#include "access/xloginsert.h"
#include "build.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "engine/prune.h"
#include "faults.h"
#include "link.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "pages.h"
#include "pending.h"
#include "pgstat.h"
#include "utils/memutils.h"

#define FEED_ROWS			4096	/* most rows handed to the engine at once ... */
#define FEED_BYTES			(1024 * 1024)	/* ... and of their vectors, unless one is larger */
#define ENGINE_CHUNK_MB		5		/* memory that the engine takes at once, and its tables */
#define POLL_MIN_US			50
#define POLL_MAX_US			20000

/* A page being filled. */
typedef struct FilledPage
{
	BlockNumber block;			/* InvalidBlockNumber: none */
	Buffer		buffer;			/* pinned */
} FilledPage;

typedef struct BuildState
{
	Relation	heap;
	Relation	index;
	IndexInfo  *info;
	const GpuannTypeInfo *type;
	IndexFormat format;
	MemoryContext memory;		/* of the build */
	MemoryContext row_memory;	/* of one row */
	double		heap_rows;

	/* rows in pages */
	uint32		rows;
	uint32		superblocks;
	FilledPage	node_page;
	FilledPage	vector_page;

	/* rows in the engine */
	const EngineOps *ops;
	Engine	   *engine;			/* NULL: not opened, or closed */
	MirrorId	mirror;
	JobId		job;			/* in flight, or 0 */
	char	   *batch;			/* vectors not yet handed over */
	uint32	   *batch_versions;
	uint32		batch_rows;
	uint32		batch_room;
	uint32		fed;			/* slots below this are in the engine */
	uint32		most_fed;		/* rows that fit into maintenance_work_mem */
	bool		feeding;
} BuildState;

/*
 * End the engine, whatever it does.
 */
static void
close_engine(void *arg)
{
	BuildState *build = arg;

	if (build->engine == NULL)
		return;
	if (build->job != 0)
		build->ops->job_cancel(build->engine, build->job);
	build->ops->close(build->engine);
	build->engine = NULL;
}

/*
 * Memory that a row takes in the engine: vector, graph row and the link's copy of it, candidates, what is kept beside.
 */
static double
row_memory(const IndexFormat *format)
{
	return format->vector_bytes + 3.0 * format->degree * sizeof(uint32) + 64;
}

/*
 * maintenance_work_mem that a build of so many rows needs to make the whole graph in memory, in bytes.
 */
double
build_memory(const IndexFormat *format, double rows)
{
	return rows * row_memory(format) * 1.1 + ENGINE_CHUNK_MB * 1024 * 1024;
}

/*
 * Open an engine for the build, within maintenance_work_mem.
 */
static void
open_engine(BuildState *build, double expected_rows)
{
	uint64		limit = (uint64) maintenance_work_mem * 1024;
	EngineConfig config = {.threads = max_parallel_maintenance_workers + 1, .device = -1, .memory_limit = limit};
	MirrorSpec	spec = {
		.dims = build->format.dims, .type = (ElementType) build->format.type, .metric = (Metric) build->format.metric,
		.method = METHOD_GRAPH, .degree = build->format.degree, .residency = RESIDENCY_FULL,
		.placement = PLACEMENT_SINGLE, .device = -1
	};
	MemoryContextCallback *callback;
	EngineError error;

	build->most_fed = (uint32) Min(limit / row_memory(&build->format), (double) ENGINE_MAX_SLOTS);
	spec.capacity = Max((uint32) Min(expected_rows * 1.1, (double) build->most_fed), 1);
	build->ops = cpu_engine_ops();
	if (build->ops->abi_version != ENGINE_ABI_VERSION)
		elog(ERROR, "the CPU engine has ABI version %u, not %u", build->ops->abi_version, ENGINE_ABI_VERSION);

	callback = MemoryContextAllocZero(build->memory, sizeof(*callback));
	callback->func = close_engine;
	callback->arg = build;
	MemoryContextRegisterResetCallback(build->memory, callback);

	if (build->ops->open(&config, &build->engine, &error) != ENGINE_OK)
	{
		build->engine = NULL;
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not start threads to build index \"%s\"", RelationGetRelationName(build->index)),
				 errdetail("%s", error.text)));
	}
	/* The estimate of rows may be far too high: a mirror grows, so begin with what there is room for. */
	do
		build->feeding = build->ops->mirror_create(build->engine, &spec, &build->mirror, &error) == ENGINE_OK;
	while (!build->feeding && (spec.capacity /= 2) > 0);
	build->batch_room = Max(Min(FEED_ROWS, FEED_BYTES / build->format.vector_bytes), 1);
	build->batch = MemoryContextAlloc(build->memory, (Size) build->batch_room * build->format.vector_bytes);
	build->batch_versions = MemoryContextAlloc(build->memory, sizeof(uint32) * build->batch_room);
	for (uint32 i = 0; i < build->batch_room; i++)
		build->batch_versions[i] = 1;
}

/*
 * Wait for the job in flight, serving interrupts; reports its progress if asked to.
 */
static EngineStatus
wait_for_job(BuildState *build, bool report)
{
	JobProgress progress;
	long		pause = POLL_MIN_US;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (build->ops->job_poll(build->engine, build->job, &progress) != ENGINE_OK)
			elog(ERROR, "the engine lost a job");
		if (report)
			pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, progress.done);
		if (progress.completed)
			break;
		pg_usleep(pause);
		pause = Min(pause * 2, POLL_MAX_US);
	}
	if (progress.status != ENGINE_OK && progress.status != ENGINE_NO_MEMORY)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not build the graph of index \"%s\"", RelationGetRelationName(build->index)),
				 errdetail("%s", progress.error.text)));
	return progress.status;
}

/*
 * Hand a job to the engine and wait for it. True if it was done, false if memory was short; then the job is released.
 */
static bool
run_job(BuildState *build, const EngineJob *job, bool report)
{
	EngineError error;
	EngineStatus status;

	while ((status = build->ops->job_submit(build->engine, job, &build->job, &error)) == ENGINE_BUSY)
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(POLL_MIN_US);
	}
	if (status == ENGINE_OK)
	{
		status = wait_for_job(build, report);
		if (status != ENGINE_OK)
			build->ops->job_release(build->engine, build->job);
	}
	else if (status != ENGINE_NO_MEMORY)
		elog(ERROR, "the engine refused a job: %s", error.text);
	if (status != ENGINE_OK)
		build->job = 0;
	return status == ENGINE_OK;
}

/*
 * Hand the rows of the batch to the engine.
 */
static void
feed_batch(BuildState *build)
{
	EngineJob	job = {
		.kind = JOB_APPEND, .mirror = build->mirror, .count = build->batch_rows, .first_slot = build->fed,
		.versions = build->batch_versions, .vectors = build->batch
	};

	if (build->batch_rows == 0)
		return;
	build->feeding = run_job(build, &job, false);
	if (build->feeding)
	{
		build->ops->job_release(build->engine, build->job);
		build->job = 0;
		build->fed += build->batch_rows;
	}
	build->batch_rows = 0;
}

/*
 * Let the engine have a row too, as long as memory lasts.
 */
static void
feed_row(BuildState *build, const void *vector)
{
	if (!build->feeding)
		return;
	if (build->fed + build->batch_rows >= build->most_fed)
	{
		feed_batch(build);
		build->feeding = false;
		return;
	}
	memcpy(build->batch + (Size) build->batch_rows * build->format.vector_bytes, vector, build->format.vector_bytes);
	if (++build->batch_rows == build->batch_room)
		feed_batch(build);
}

/*
 * Make the file one page longer; the block is the one expected, because nobody else extends it.
 */
static Buffer
new_block(Relation index, ForkNumber fork, BlockNumber expected)
{
	Buffer		buffer = ReadBufferExtended(index, fork, P_NEW, RBM_NORMAL, NULL);

	if (BufferGetBlockNumber(buffer) != expected)
		elog(ERROR, "block %u of index \"%s\" should have been %u", BufferGetBlockNumber(buffer),
			 RelationGetRelationName(index), expected);
	return buffer;
}

/*
 * Begin a superblock: its list page is made, all zero.
 */
static void
begin_superblock(BuildState *build)
{
	const IndexFormat *format = &build->format;
	BlockNumber block = list_block(format, build->superblocks);

	if (((uint64) build->superblocks + 1) * format->superblock_slots > ENGINE_MAX_SLOTS ||
		1 + format->seed_pages + ((uint64) build->superblocks + 1) * format->superblock_pages > MaxBlockNumber)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("index \"%s\" cannot hold more than %u rows", RelationGetRelationName(build->index), build->rows)));
	ReleaseBuffer(new_block(build->index, MAIN_FORKNUM, block));
	build->superblocks++;
}

/*
 * Lock a page for writing, keeping it pinned until another takes its place; a new one is initialised.
 */
static Page
fill_page(BuildState *build, FilledPage *filled, BlockNumber block, PageKind kind, bool extend)
{
	if (filled->block != block)
	{
		if (filled->block != InvalidBlockNumber)
			ReleaseBuffer(filled->buffer);
		filled->block = InvalidBlockNumber;
		filled->buffer = extend ? new_block(build->index, MAIN_FORKNUM, block) : ReadBuffer(build->index, block);
		filled->block = block;
	}
	LockBuffer(filled->buffer, BUFFER_LOCK_EXCLUSIVE);
	if (PageIsNew(BufferGetPage(filled->buffer)))
		page_init(BufferGetPage(filled->buffer), kind, build->superblocks - 1);
	return BufferGetPage(filled->buffer);
}

static void
unlock_page(FilledPage *filled)
{
	MarkBufferDirty(filled->buffer);
	LockBuffer(filled->buffer, BUFFER_LOCK_UNLOCK);
}

static void
release_page(FilledPage *filled)
{
	if (filled->block != InvalidBlockNumber)
		ReleaseBuffer(filled->buffer);
	filled->block = InvalidBlockNumber;
}

/*
 * Write a row into its pages: the next slot.
 */
static void
write_row(BuildState *build, const void *vector, ItemPointer tid)
{
	const IndexFormat *format = &build->format;
	uint32		slot = build->rows;
	VectorPlace place;
	NodeRecord *node;
	Page		page;
	const char *from = vector;
	uint32		left = format->vector_bytes;

	if (slot == (uint64) build->superblocks * format->superblock_slots)
		begin_superblock(build);

	page = fill_page(build, &build->node_page, node_block(format, slot), PAGE_NODE, node_index(format, slot) == 0);
	page_reach(page, (node_index(format, slot) + 1) * (Size) format->node_bytes);
	node = node_record(format, page, slot);
	node->tid = *tid;
	node->flags = NODE_LIVE;
	node->version = 1;
	memset(node->neighbours, 0xFF, format->degree * sizeof(uint32));
	unlock_page(&build->node_page);

	for (place = vector_place(format, slot); left > 0; vector_place_next(format, &place))
	{
		uint32		part = Min(left, (uint32) GPUANN_PAYLOAD - place.offset);

		page = fill_page(build, &build->vector_page, place.block, PAGE_VECTOR, place.offset == 0);
		page_reach(page, place.offset + part);
		memcpy(VectorBytesOf(page) + place.offset, from, part);
		unlock_page(&build->vector_page);
		from += part;
		left -= part;
	}
	build->rows++;
}

/*
 * Take a row of the heap.
 */
static void
add_heap_row(Relation index, ItemPointer tid, Datum *values, bool *isnull, bool alive, void *arg)
{
	BuildState *build = arg;
	MemoryContext old = MemoryContextSwitchTo(build->row_memory);
	const void *elements;
	Pointer		copy;

	if (gpuann_value_elements(build->type, build->format.dims, values[0], isnull[0], &elements, &copy))
	{
		write_row(build, elements, tid);
		feed_row(build, elements);
		FAULT_POINT("build-row");
		pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, build->rows);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(build->row_memory);
}

/*
 * Write the engine's graph rows, which are sorted by slot, into the node pages.
 */
static void
write_graph_rows(BuildState *build, const LinkResult *link)
{
	const IndexFormat *format = &build->format;
	Size		row_bytes = format->degree * sizeof(uint32);

	for (uint32 i = 0; i < link->count;)
	{
		BlockNumber block = node_block(format, link->slots[i]);
		Page		page = fill_page(build, &build->node_page, block, PAGE_NODE, false);

		for (; i < link->count && node_block(format, link->slots[i]) == block; i++)
		{
			NodeRecord *node = node_record(format, page, link->slots[i]);

			node->flags |= NODE_LINKED;
			memcpy(node->neighbours, link->rows + (Size) i * format->degree, row_bytes);
		}
		unlock_page(&build->node_page);
		FAULT_POINT("build-graph-page");
		pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, i);
		CHECK_FOR_INTERRUPTS();
	}
	release_page(&build->node_page);
}

/*
 * Write the seeds, evenly thinned out if there is not room for all. Returns how many.
 */
static uint32
write_seeds(BuildState *build, const LinkResult *link)
{
	uint32		room = build->format.seed_pages * GPUANN_SEEDS_PER_PAGE;
	uint32		count = Min(link->nseeds, room);

	for (uint32 done = 0; done < count;)
	{
		Buffer		buffer = ReadBuffer(build->index, 1 + done / GPUANN_SEEDS_PER_PAGE);
		uint32	   *seeds = SeedSlotsOf(BufferGetPage(buffer));
		uint32		here = Min(count - done, (uint32) GPUANN_SEEDS_PER_PAGE);

		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		for (uint32 i = 0; i < here; i++)
			seeds[i] = link->seeds[(uint64) (done + i) * link->nseeds / count];
		MarkBufferDirty(buffer);
		UnlockReleaseBuffer(buffer);
		done += here;
	}
	return count;
}

/*
 * Link what the engine has, and write it. Returns the number of seeds; rows stay on the list if memory does not suffice.
 */
static uint32
link_fed(BuildState *build)
{
	EngineJob	job = {
		.kind = JOB_LINK, .mirror = build->mirror, .ef_construction = build->format.ef_construction,
		.threads = max_parallel_maintenance_workers + 1
	};
	LinkResult	link;
	uint32		seeds;

	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, BUILD_PHASE_LINK);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, 0);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_TOTAL, build->fed);
	if (build->fed == 0)
		return 0;
	if (!run_job(build, &job, true))
	{
		build->fed = 0;
		return 0;
	}
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, BUILD_PHASE_WRITE);
	if (build->ops->job_link_result(build->engine, build->job, &link) != ENGINE_OK)
		elog(ERROR, "the engine has no graph");
	for (uint32 i = 0; i < link.count; i++)
	{
		if (link.slots[i] >= build->fed || (i > 0 && link.slots[i] <= link.slots[i - 1]))
			elog(ERROR, "the engine linked rows that it was not given");
	}
	write_graph_rows(build, &link);
	seeds = write_seeds(build, &link);
	build->ops->job_release(build->engine, build->job);
	build->job = 0;
	return seeds;
}

/*
 * Write a superblock's list page. Rows that are not linked, slots from first on, are listed one after another.
 */
static void
write_list_page(Buffer buffer, const BuildState *build, uint32 superblock)
{
	const IndexFormat *format = &build->format;
	uint32		listed = build->rows - build->fed;
	uint64		first = (uint64) superblock * GPUANN_LIST_CAPACITY;
	uint32		newest = listed == 0 ? 0 : (listed - 1) / GPUANN_LIST_CAPACITY;
	bool		last = superblock + 1 == build->superblocks;
	Page		page = BufferGetPage(buffer);
	ListPage   *list = ListPageOf(page);

	page_init(page, PAGE_LIST, superblock);
	if (superblock > newest)
		list->next = last ? InvalidBlockNumber : list_block(format, superblock + 1);
	else
	{
		list->first_position = first;
		list->count = Min(listed - first, GPUANN_LIST_CAPACITY);
		for (uint32 i = 0; i < list->count; i++)
			list->slots[i] = build->fed + first + i;
		page_reach(page, offsetof(ListPage, slots) + list->count * sizeof(uint32));
		list->state = LIST_CLOSED;
		list->next = list_block(format, superblock + 1);
	}
	if (superblock == newest)
	{
		list->state = LIST_NEWEST;
		list->next = InvalidBlockNumber;
		list->append.superblocks = build->superblocks;
		list->append.next_fresh = build->rows;
		list->append.spare_head = last ? InvalidBlockNumber : list_block(format, superblock + 1);
	}
	MarkBufferDirty(buffer);
}

/*
 * Write the metapage.
 */
static void
write_meta(Buffer buffer, const BuildState *build, uint64 nonce, uint32 seeds)
{
	const IndexFormat *format = &build->format;
	uint32		listed = build->rows - build->fed;
	MetaPage   *meta = MetaPageOf(BufferGetPage(buffer));

	page_init(BufferGetPage(buffer), PAGE_META, 0);
	meta->magic = GPUANN_MAGIC;
	meta->format_version = GPUANN_FORMAT_VERSION;
	meta->format = *format;
	meta->nonce = nonce;
	meta->linked_slots = build->fed;
	meta->seeds = seeds;
	meta->oldest_list = list_block(format, 0);
	meta->newest_list = list_block(format, listed == 0 ? 0 : (listed - 1) / GPUANN_LIST_CAPACITY);
	MarkBufferDirty(buffer);
}

/*
 * Make metapage, seed pages and, for an empty index, the first list page. In the init fork they are logged at once.
 */
static void
write_first_pages(BuildState *build, ForkNumber fork, uint64 nonce)
{
	BlockNumber blocks = 1 + build->format.seed_pages + (fork == INIT_FORKNUM ? 1 : 0);

	for (BlockNumber block = 0; block < blocks; block++)
	{
		Buffer		buffer = new_block(build->index, fork, block);

		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		if (fork == INIT_FORKNUM)
			START_CRIT_SECTION();
		if (block == GPUANN_META_BLOCK)
			write_meta(buffer, build, nonce, 0);
		else if (block <= build->format.seed_pages)
			page_init(BufferGetPage(buffer), PAGE_SEED, 0);
		else
			write_list_page(buffer, build, 0);
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
 * Write list pages and metapage, when everything else is in place.
 */
static void
write_last_pages(BuildState *build, uint32 seeds)
{
	Buffer		buffer;

	if (build->superblocks == 0)
		begin_superblock(build);
	for (uint32 i = 0; i < build->superblocks; i++)
	{
		CHECK_FOR_INTERRUPTS();
		buffer = ReadBuffer(build->index, list_block(&build->format, i));
		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		write_list_page(buffer, build, i);
		UnlockReleaseBuffer(buffer);
		FAULT_POINT("build-list-page");
	}
	buffer = ReadBuffer(build->index, GPUANN_META_BLOCK);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	write_meta(buffer, build, random_nonce(), seeds);
	UnlockReleaseBuffer(buffer);
}

/*
 * Check what is to be indexed, and lay out its pages.
 */
static void
init_build(BuildState *build, Relation heap, Relation index, IndexInfo *info, double expected_rows)
{
	int			m = gpuann_option_m(index);
	int			ef_construction = gpuann_option_ef_construction(index);

	memset(build, 0, sizeof(*build));
	build->heap = heap;
	build->index = index;
	build->info = info;
	build->type = gpuann_type_info(index);
	build->node_page.block = build->vector_page.block = InvalidBlockNumber;

	if (ef_construction < 2 * m)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ef_construction must be greater than or equal to 2 * m")));
	format_compute(&build->format, build->type, gpuann_column_dims(build->type, index), m, ef_construction, expected_rows);
}

/*
 * Link over pages the rows that did not fit into memory, and say what would have sufficed.
 */
static void
link_rest(BuildState *build)
{
	double		needed = build_memory(&build->format, build->rows) / (1024 * 1024);

	if (build->rows == build->fed)
		return;
	ereport(NOTICE,
			(errmsg("gpuann graph no longer fits into maintenance_work_mem after %u rows", build->fed),
			 errdetail("The other %u rows are linked in the index's pages, which takes longer.", build->rows - build->fed),
			 errhint("Set maintenance_work_mem to %.0f MB or more to build the whole graph in memory.", ceil(needed))));
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, BUILD_PHASE_LINK);

	/* Without the linker lock: nobody else can have this file open, and a worker that links the one before it would never let go. */
	link_pending(build->index, index_format(build->index), 0);
}

/*
 * The number of rows that the heap seems to have.
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
	double		expected_rows = estimate_rows(heap);
	MemoryContext memory = AllocSetContextCreate(CurrentMemoryContext, "gpuann build", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(memory);
	BuildState *build = palloc(sizeof(BuildState));
	IndexBuildResult *result;
	uint32		seeds;

	if (RelationGetNumberOfBlocks(index) != 0)
		elog(ERROR, "index \"%s\" already contains data", RelationGetRelationName(index));
	/* What was cached is of a file that is gone. */
	if (index->rd_amcache != NULL)
		pfree(index->rd_amcache);
	index->rd_amcache = NULL;

	init_build(build, heap, index, info, expected_rows);
	build->memory = memory;
	build->row_memory = AllocSetContextCreate(memory, "gpuann build row", ALLOCSET_DEFAULT_SIZES);
	write_first_pages(build, MAIN_FORKNUM, 0);
	open_engine(build, expected_rows);

	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, BUILD_PHASE_LOAD);
	MemoryContextSwitchTo(old);
	build->heap_rows = table_index_build_scan(heap, index, info, true, true, add_heap_row, build, NULL);
	MemoryContextSwitchTo(memory);
	if (build->feeding)
		feed_batch(build);
	release_page(&build->node_page);
	release_page(&build->vector_page);

	seeds = link_fed(build);
	close_engine(build);
	write_last_pages(build, seeds);
	FAULT_POINT("build-written");
	if (RelationNeedsWAL(index))
		log_newpage_range(index, MAIN_FORKNUM, 0, RelationGetNumberOfBlocks(index), true);
	FAULT_POINT("build-logged");
	link_rest(build);

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

	init_build(&build, NULL, index, NULL, 0);
	build.superblocks = 1;
	write_first_pages(&build, INIT_FORKNUM, 0);
}
