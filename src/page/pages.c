/*
 * pages.c
 *		The page format: layout, checked access to pages, records and vectors,
 *		extension of the file.
 *
 * Everything read is checked before use; a damaged page raises
 * ERRCODE_INDEX_CORRUPTED with its block number. Readers hold one content lock
 * at a time.
 */
#include "postgres.h"

#include "page/pages.h"

#include "engine/prune.h"
#include "base/faults.h"
#include "page/buffer_hints.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#ifdef GPUANN_TEST_FAULTS
#define ROW_LIMIT	faults_row_limit
#else
#define ROW_LIMIT	ENGINE_MAX_SLOTS
#endif

/* What rd_amcache points to: one chunk, which the relation cache may free. */
typedef struct IndexCache
{
	const IndexFormat *format;	/* interned, lives as long as the process */
	uint64		nonce;			/* as read last */
	BlockNumber newest_pending;	/* a hint, like the metapage's */
	BlockNumber blocks;			/* file length of the index when asked last: asking is a system
								 * call, and files of relations that a scan can see do not shrink
								 * unnoticed */
	BlockNumber heap_blocks;	/* the same for the table */
	const ColumnTable *columns;	/* NULL: not read yet, or there are none */
} IndexCache;

/* Formats seen by this process. Few, because most indexes have similar ones. */
typedef struct InternedFormat
{
	struct InternedFormat *next;
	IndexFormat format;
} InternedFormat;

static InternedFormat *interned_formats = NULL;

/*
 * Report damage in a block.
 */
void
report_corrupt(Relation index, BlockNumber block, const char *what)
{
	ereport(ERROR, (errcode(ERRCODE_INDEX_CORRUPTED),
					errmsg("index \"%s\" is corrupted at block %u: %s",
						   RelationGetRelationName(index), block, what),
					errhint("Please REINDEX it.")));
}

/*
 * Number of pages of a superblock with this many slots, including its pending
 * and posting pages.
 */
static uint64
superblock_pages_of(const IndexFormat *format, uint64 slots)
{
	uint64		others = 1 + format_postings(format);
	uint64		node_pages = (slots + format->nodes_per_page - 1) / format->nodes_per_page;
	uint64		vector_pages = (slots * format->vector_bytes + GPUANN_PAYLOAD - 1) / GPUANN_PAYLOAD;

	if (format->column_bytes > 0)
		others += (slots + columns_per_page(format) - 1) / columns_per_page(format);
	return others + node_pages + vector_pages;
}

/*
 * Whether a method's own numbers are in range.
 */
static bool
method_is_valid(const IndexFormat *format)
{
	if (format_has_lists(format))
		return format->m == 0 && format->degree == 1 && format->posting_pages >= 1 &&
			   format->posting_pages < GPUANN_SUPERBLOCK_PAGES;
	return format->method == METHOD_GRAPH && format->degree == 2 * format->m &&
		   format->m >= GPUANN_MIN_M && format->m <= GPUANN_MAX_M;
}

/*
 * Compute the layout from dimensions, type and the method's numbers. Returns
 * false if these are out of range.
 */
static bool
format_layout(IndexFormat *format)
{
	uint64		slots;

	if (format->dims < 1 || !method_is_valid(format))
		return false;
	if (format->dims > engine_max_dims((ElementType) format->type) ||
		format->column_bytes > GPUANN_PAYLOAD)
		return false;

	format->vector_bytes = (uint32) engine_vector_bytes((ElementType) format->type, format->dims);
	format->node_bytes = sizeof(NodeRecord) + format->degree * sizeof(uint32);
	format->nodes_per_page = GPUANN_PAYLOAD / format->node_bytes;
	while (format->nodes_per_page > 0 && graph_rows_offset(format->nodes_per_page) +
												 format->nodes_per_page * graph_row_bytes(format) >
											 GPUANN_PAYLOAD)
		format->nodes_per_page--;
	if (format->nodes_per_page == 0)
		return false;

	/*
	 * A superblock's pending page must have room for all slots of the
	 * superblock.
	 */
	slots = 1;
	while (slots < GPUANN_PENDING_CAPACITY &&
		   superblock_pages_of(format, slots + 1) <= GPUANN_SUPERBLOCK_PAGES)
		slots++;
	format->superblock_slots = slots;
	format->superblock_pages = superblock_pages_of(format, slots);
	format->node_pages = (slots + format->nodes_per_page - 1) / format->nodes_per_page;
	format->vector_pages =
		(uint32) ((slots * format->vector_bytes + GPUANN_PAYLOAD - 1) / GPUANN_PAYLOAD);
	return true;
}

/* Fill a format. The seed area has room for four times the expected rows. */
void
format_compute(IndexFormat *format, const GpuannTypeInfo *info, uint32 dims, int m,
			   int ef_construction, uint32 column_bytes, double expected_rows)
{
	double		seeds = Min(expected_rows * 4 / SLOTS_PER_SEED, (double) SEEDS_MAX);

	if (ef_construction < 2 * m)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ef_construction must be greater than or equal to 2 * m")));
	memset(format, 0, sizeof(*format));
	format->dims = dims;
	format->type = info->type;
	format->metric = info->metric;
	format->method = METHOD_GRAPH;
	format->m = m;
	format->degree = 2 * m;
	format->ef_construction = ef_construction;
	format->column_bytes = column_bytes;
	format->seed_pages = Max((uint32) (seeds / GPUANN_SEEDS_PER_PAGE) + 1, GPUANN_MIN_SEED_PAGES);
	if (!format_layout(format))
		elog(ERROR, "no page layout for %u dimensions", dims);
}

bool
format_compute_lists(IndexFormat *format, const GpuannTypeInfo *info, uint32 dims,
					 uint32 column_bytes, uint32 postings, uint32 head_pages)
{
	memset(format, 0, sizeof(*format));
	format->dims = dims;
	format->type = info->type;
	format->metric = info->metric;
	format->method = METHOD_IVFPQ;
	format->degree = 1;
	format->column_bytes = column_bytes;
	format->posting_pages = postings;
	format->seed_pages = head_pages;
	return format_layout(format);
}

uint32
format_version(const IndexFormat *format)
{
	return (format_has_lists(format) ? GPUANN_LISTS_VERSION : GPUANN_FORMAT_VERSION) +
		   (format->column_bytes > 0 ? GPUANN_COLUMNS_VERSION : 0);
}

/*
 * Whether the number of pages before the first superblock is in range.
 */
static bool
head_is_valid(const IndexFormat *format)
{
	return format->seed_pages >= 1 &&
		   (format_has_lists(format) ||
			format->seed_pages <= SEEDS_MAX / GPUANN_SEEDS_PER_PAGE + 1);
}

/*
 * Whether this gpuann reads a metapage's version of the format.
 */
static bool
version_is_read(const MetaPage *meta)
{
	return meta->format_version >= GPUANN_FORMAT_VERSION &&
		   meta->format_version <= GPUANN_LISTS_VERSION + GPUANN_COLUMNS_VERSION;
}

/*
 * Raise an error if it does not.
 */
static void
check_format_version(Relation index, const MetaPage *meta)
{
	if (!version_is_read(meta))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("index \"%s\" has format version %u, this gpuann reads versions %u to %u",
							   RelationGetRelationName(index), meta->format_version,
							   GPUANN_FORMAT_VERSION,
							   GPUANN_LISTS_VERSION + GPUANN_COLUMNS_VERSION),
						errhint("Please REINDEX it.")));
}

/*
 * Whether a format matches the index's operator class.
 */
static bool
is_format_of(Relation index, const IndexFormat *format)
{
	const GpuannTypeInfo *info = gpuann_type_info(index);

	return format->type == info->type && format->metric == info->metric;
}

/*
 * Check a metapage whose version is supported. Returns the fault, or NULL.
 */
static const char *
meta_fault(Relation index, const MetaPage *meta)
{
	const IndexCache *cache = index->rd_amcache;
	IndexFormat layout = meta->format;
	bool		known = cache != NULL && memcmp(cache->format, &layout, sizeof(layout)) == 0;

	if (meta->format_version != format_version(&meta->format))
		return "the format version is not that of the method";
	if (!known &&
		(!engine_has_distance((ElementType) meta->format.type, (Metric) meta->format.metric) ||
		 !head_is_valid(&meta->format) || !format_layout(&layout) ||
		 memcmp(&layout, &meta->format, sizeof(layout)) != 0))
		return "the format is not consistent";
	if (!known && !is_format_of(index, &meta->format))
		return "the format is not that of the operator class";
	if (meta->trimmed_position > meta->linked_position)
		return "the pending list is trimmed beyond what is linked";
	if (meta->seeds >
		(format_has_lists(&meta->format) ? 0 : meta->format.seed_pages * GPUANN_SEEDS_PER_PAGE))
		return "there are more seeds than room";
	if (!is_pending_block(&meta->format, meta->oldest_pending) ||
		!is_pending_block(&meta->format, meta->newest_pending))
		return "the pending list begins or ends where no pending page can be";
	return NULL;
}

/*
 * Check a copy of the metapage.
 */
static void
check_meta(Relation index, const MetaPage *meta)
{
	const char *fault;

	if (meta->magic != GPUANN_MAGIC)
		report_corrupt(index, GPUANN_META_BLOCK, "this is not a metapage of gpuann");
	check_format_version(index, meta);
	fault = meta_fault(index, meta);
	if (fault != NULL)
		report_corrupt(index, GPUANN_META_BLOCK, fault);
}

/*
 * Return the permanent copy of a format.
 */
static const IndexFormat *
intern_format(const IndexFormat *format)
{
	InternedFormat *entry;

	for (entry = interned_formats; entry != NULL; entry = entry->next)
	{
		if (memcmp(&entry->format, format, sizeof(*format)) == 0)
			return &entry->format;
	}
	entry = MemoryContextAllocZero(TopMemoryContext, sizeof(*entry));
	entry->format = *format;
	entry->next = interned_formats;
	interned_formats = entry;
	return &entry->format;
}

/*
 * Cache what the metapage says in rd_amcache.
 */
static void
cache_meta(Relation index, const MetaPage *meta)
{
	IndexCache *cache = index->rd_amcache;

	if (cache == NULL)
	{
		cache = MemoryContextAllocZero(index->rd_indexcxt, sizeof(*cache));
		cache->format = intern_format(&meta->format);
		index->rd_amcache = cache;
	}
	else if (memcmp(cache->format, &meta->format, sizeof(IndexFormat)) != 0)
	{
		cache->format = intern_format(&meta->format);
		cache->columns = NULL;
	}
	cache->nonce = meta->nonce;
	cache->newest_pending = meta->newest_pending;
}

/*
 * Copy the metapage and check it.
 */
void
read_meta(Relation index, MetaPage *meta)
{
	Buffer		buffer;

	if (index_known_blocks(index) == 0 && RelationGetNumberOfBlocks(index) == 0)
		report_corrupt(index, GPUANN_META_BLOCK, "the file is empty");
	buffer = read_hinted_page(index, GPUANN_META_BLOCK, PAGE_META, false);
	memcpy(meta, MetaPageOf(BufferGetPage(buffer)), sizeof(*meta));
	UnlockReleaseBuffer(buffer);
	check_meta(index, meta);
	cache_meta(index, meta);
}

/*
 * Raise an error if VACUUM may have removed rows that a snapshot sees.
 *
 * With old_snapshot_threshold (PostgreSQL 15 and 16) VACUUM removes rows that
 * snapshots older than that still see, and a scan with such a snapshot must
 * raise an error instead of returning the remaining rows. VACUUM stamps the
 * metapage before it marks the first row dead (see lock_linker), which is after
 * any snapshot was taken that sees the row. So an answer that lacks the row, no
 * matter whether pages were read here or by a mirror worker, was read after
 * that stamp, and the metapage, if checked after the answer, has an LSN newer
 * than the snapshot's. Checking node pages would not suffice: an answer from a
 * mirror may read no page here, and a graph without edges to a row does not
 * lead to its page.
 */
void
check_snapshot_age(Relation index, Snapshot snapshot)
{
#if PG_VERSION_NUM < 170000
	Buffer		buffer;

	if (old_snapshot_threshold < 0)
		return;
	buffer = read_page(index, GPUANN_META_BLOCK, PAGE_META, BUFFER_LOCK_SHARE, false);
	TestForOldSnapshot(snapshot, index, BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
#endif
}

bool
index_cache_format(Relation index, const MetaPage *meta)
{
	if (meta->magic != GPUANN_MAGIC || !version_is_read(meta) || meta_fault(index, meta) != NULL)
		return false;
	cache_meta(index, meta);
	return true;
}

/*
 * Return the format of an index.
 */
const IndexFormat *
index_format(Relation index)
{
	if (index->rd_amcache == NULL)
	{
		MetaPage	meta;

		read_meta(index, &meta);
	}
	return ((IndexCache *) index->rd_amcache)->format;
}

/*
 * The nonce as cached; 0 may be out of date, other values cannot.
 */
uint64
index_cached_nonce(Relation index)
{
	(void) index_format(index);
	return ((IndexCache *) index->rd_amcache)->nonce;
}

/*
 * The block of the newest pending page, when last looked up.
 */
BlockNumber
index_newest_hint(Relation index)
{
	(void) index_format(index);
	return ((IndexCache *) index->rd_amcache)->newest_pending;
}

void
index_set_newest_hint(Relation index, BlockNumber block)
{
	if (index->rd_amcache != NULL)
		((IndexCache *) index->rd_amcache)->newest_pending = block;
}

const ColumnTable *
index_cached_columns(Relation index)
{
	(void) index_format(index);
	return ((IndexCache *) index->rd_amcache)->columns;
}

void
index_cache_columns(Relation index, const ColumnTable *columns)
{
	((IndexCache *) index->rd_amcache)->columns = columns;
}

/*
 * Length of the index's file when last asked; 0: never.
 */
BlockNumber
index_known_blocks(Relation index)
{
	return index->rd_amcache != NULL ? ((IndexCache *) index->rd_amcache)->blocks : 0;
}

/*
 * Ask for the length of the index's file.
 */
BlockNumber
index_ask_blocks(Relation index)
{
	BlockNumber blocks = RelationGetNumberOfBlocks(index);

	if (index->rd_amcache != NULL)
		((IndexCache *) index->rd_amcache)->blocks = blocks;
	return blocks;
}

/*
 * The same for the table.
 */
BlockNumber
index_known_heap_blocks(Relation index)
{
	return index->rd_amcache != NULL ? ((IndexCache *) index->rd_amcache)->heap_blocks : 0;
}

BlockNumber
index_ask_heap_blocks(Relation index, Relation heap)
{
	BlockNumber blocks = RelationGetNumberOfBlocks(heap);

	if (index->rd_amcache != NULL)
		((IndexCache *) index->rd_amcache)->heap_blocks = blocks;
	return blocks;
}

/*
 * Create a new identity for an index.
 */
uint64
random_nonce(void)
{
	uint64		nonce = 0;

	while (nonce == 0)
	{
		if (!pg_strong_random(&nonce, sizeof(nonce)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate a random number for the index's identity")));
	}
	return nonce;
}

/*
 * Initialize a page: header, tail, and pd_lower after what this kind contains
 * when empty.
 */
void
page_init(Page page, PageKind kind, uint32 superblock)
{
	PageTail   *tail;
	Size		used = 0;

	PageInit(page, BLCKSZ, sizeof(PageTail));
	tail = PageTailOf(page);
	tail->change_seq = 0;
	tail->superblock = superblock;
	tail->kind = kind;
	tail->page_id = GPUANN_PAGE_ID;

	switch (kind)
	{
		case PAGE_META:
			used = sizeof(MetaPage);
			break;
		case PAGE_PENDING:
			used = offsetof(PendingPage, slots);
			PendingPageOf(page)->state = PENDING_SPARE;
			PendingPageOf(page)->next = InvalidBlockNumber;
			PendingPageOf(page)->append.free_head = NO_SLOT;
			PendingPageOf(page)->append.spare_head = InvalidBlockNumber;
			break;
		case PAGE_SEED:
		case PAGE_CENTROID:
		case PAGE_DIRECTORY:
			used = GPUANN_PAYLOAD;
			break;
		case PAGE_NODE:
		case PAGE_VECTOR:
		case PAGE_POSTING:
		case PAGE_COLUMN:
			break;
	}
	page_reach(page, used);
}

const char *
page_fault(Page page, PageKind kind)
{
	const PageTail *tail;

	if (PageGetSpecialSize(page) != MAXALIGN(sizeof(PageTail)) || PageGetPageSize(page) != BLCKSZ)
		return "this is not a page of gpuann";
	tail = PageTailOf(page);
	if (tail->page_id != GPUANN_PAGE_ID)
		return "this is not a page of gpuann";
	if (tail->kind != kind)
		return "the page is of the wrong kind";
	return NULL;
}

/*
 * Check the page of a locked buffer. On failure unlocks and releases it, and
 * raises an error.
 */
void
check_page(Relation index, Buffer buffer, PageKind kind, bool zero_ok)
{
	Page		page = BufferGetPage(buffer);
	const char *fault;

	if (PageIsNew(page))
	{
		if (zero_ok)
			return;
		fault = "the page is all zero";
	}
	else
		fault = page_fault(page, kind);
	if (fault != NULL)
	{
		BlockNumber block = BufferGetBlockNumber(buffer);

		UnlockReleaseBuffer(buffer);
		report_corrupt(index, block, fault);
	}
}

/*
 * Read, lock and check a block.
 */
Buffer
read_page(Relation index, BlockNumber block, PageKind kind, int mode, bool zero_ok)
{
	return read_page_in_bulk(index, block, kind, mode, zero_ok, NULL);
}

/*
 * The same for reading the whole index, with a ring of buffers.
 */
Buffer
read_page_in_bulk(Relation index, BlockNumber block, PageKind kind, int mode, bool zero_ok,
				  BufferAccessStrategy strategy)
{
	Buffer		buffer;

	/*
	 * The block of a pending or posting page comes from other pages; those of
	 * other kinds are computed from slots below the append point's limit, whose
	 * pages exist.
	 */
	if ((kind == PAGE_PENDING || kind == PAGE_POSTING) && block >= RelationGetNumberOfBlocks(index))
		report_corrupt(index, block, "the file ends before this page");
	buffer = ReadBufferExtended(index, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
	LockBuffer(buffer, mode);
	check_page(index, buffer, kind, zero_ok);
	return buffer;
}

/*
 * Read, lock (shared) and check a block that this process reads repeatedly.
 */
Buffer
read_hinted_page(Relation index, BlockNumber block, PageKind kind, bool zero_ok)
{
	BufferHints hints;
	Buffer		buffer;

	hints_begin(&hints, index);
	/* as in read_page_in_bulk() */
	if ((kind == PAGE_PENDING || kind == PAGE_POSTING) && !hints_is_known(&hints, block) &&
		block >= RelationGetNumberOfBlocks(index))
		report_corrupt(index, block, "the file ends before this page");
	buffer = hints_pin(&hints, block);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	check_page(index, buffer, kind, zero_ok);
	return buffer;
}

/*
 * Copy a slot's node record and graph row from its page.
 */
void
copy_node(const IndexFormat *format, Page page, uint32 slot, NodeCopy *node)
{
	memcpy(node, node_record(format, page, slot), sizeof(NodeRecord));
	memcpy(node->neighbours, graph_row(format, page, slot), graph_row_bytes(format));
}

/*
 * Read a slot's node record and graph row. Returns false if the page was never
 * written.
 */
bool
read_node(Relation index, const IndexFormat *format, uint32 slot, NodeCopy *node)
{
	Buffer		buffer = read_hinted_page(index, node_block(format, slot), PAGE_NODE, true);
	Page		page = BufferGetPage(buffer);
	bool		written = !PageIsNew(page);

	if (written)
		copy_node(format, page, slot, node);
	UnlockReleaseBuffer(buffer);
	return written;
}

/*
 * Copy a slot's vector, locking one page at a time.
 */
void
read_vector(Relation index, const IndexFormat *format, uint32 slot, void *vector)
{
	VectorPlace place = vector_place(format, slot);
	char	   *out = vector;
	uint32		left = format->vector_bytes;

	while (left > 0)
	{
		uint32		part = Min(left, (uint32) GPUANN_PAYLOAD - place.offset);
		Buffer		buffer = read_hinted_page(index, place.block, PAGE_VECTOR, false);

		memcpy(out, VectorBytesOf(BufferGetPage(buffer)) + place.offset, part);
		UnlockReleaseBuffer(buffer);
		out += part;
		left -= part;
		vector_place_next(format, &place);
	}
}

/*
 * Copy `count` seeds, starting with number `first`.
 */
void
read_some_seeds(Relation index, uint32 first, uint32 count, uint32 *seeds)
{
	while (count > 0)
	{
		uint32		place = first % GPUANN_SEEDS_PER_PAGE;
		uint32		here = Min(count, GPUANN_SEEDS_PER_PAGE - place);
		Buffer		buffer =
			read_hinted_page(index, 1 + first / GPUANN_SEEDS_PER_PAGE, PAGE_SEED, false);

		memcpy(seeds, SeedSlotsOf(BufferGetPage(buffer)) + place, sizeof(uint32) * here);
		UnlockReleaseBuffer(buffer);
		seeds += here;
		first += here;
		count -= here;
	}
}

/*
 * Copy up to `most` seeds. The first ones are spread over the graph like all
 * seeds are; a regular sample would not be.
 */
uint32
read_seeds(Relation index, const MetaPage *meta, uint32 most, uint32 **seeds)
{
	uint32		wanted = Min(meta->seeds, most);

	*seeds = palloc(sizeof(uint32) * Max(wanted, 1));
	read_some_seeds(index, 0, wanted, *seeds);
	return wanted;
}

/*
 * Maximum number of superblocks, with slots below 2^31 and blocks below
 * MaxBlockNumber.
 */
static uint32
max_superblocks(const IndexFormat *format)
{
	uint64		by_slots = (uint64) ROW_LIMIT / format->superblock_slots;
	uint64		by_blocks =
		((uint64) MaxBlockNumber - 1 - format->seed_pages) / format->superblock_pages;

	return (uint32) Min(by_slots, by_blocks);
}

/*
 * Check that another superblock is allowed.
 */
void
check_row_limit(Relation index, const IndexFormat *format, uint32 superblock)
{
	uint32		most = max_superblocks(format);
	unsigned long long rows = (unsigned long long) most * format->superblock_slots;

	if (superblock >= most)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("index \"%s\" cannot hold more than %llu rows",
						RelationGetRelationName(index), rows),
				 errhint("Partition the table, or index a part of it with a partial index.")));
	if (superblock == (uint64) most * 9 / 10)
		ereport(WARNING,
				(errmsg("index \"%s\" has used nine tenths of the %llu rows that it can hold",
						RelationGetRelationName(index), rows),
				 errhint("Partition the table, or index a part of it with a partial index.")));
}

/*
 * Extend the file to include block. New pages are all zero.
 *
 * Larger files are extended by some more pages at a time, so that inserts take
 * the extension lock less often.
 */
void
extend_to(Relation index, BlockNumber block)
{
	BlockNumber blocks;

	if (block < index_known_blocks(index))
		return;
	blocks = index_ask_blocks(index);
	if (block < blocks)
		return;
	block += Min(blocks / 64, 15);
	if (block >= MaxBlockNumber)
		block = MaxBlockNumber - 1;
#if PG_VERSION_NUM >= 160000
	ReleaseBuffer(
		ExtendBufferedRelTo(BMR_REL(index), MAIN_FORKNUM, NULL, 0, block + 1, RBM_NORMAL));
#else
	{
		bool		local = RELATION_IS_LOCAL(index);

		if (!local)
			LockRelationForExtension(index, ExclusiveLock);
		for (blocks = RelationGetNumberOfBlocks(index); blocks <= block; blocks++)
			ReleaseBuffer(ReadBuffer(index, P_NEW));
		if (!local)
			UnlockRelationForExtension(index, ExclusiveLock);
	}
#endif
}
