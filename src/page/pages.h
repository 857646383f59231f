/*
 * pages.h
 *		The page format: kinds of pages, records on them, slot arithmetic.
 *
 * Block 0 is the metapage, followed by the seed pages, then by superblocks of
 * equal size. Superblock b has the slots [b * S, (b + 1) * S): one pending
 * page, posting pages if rows are in lists (src/lists), column pages if the
 * index includes columns (columns.h), then node and vector pages in the order
 * in which slots reach them.
 * Everything about a slot is located by arithmetic on IndexFormat.
 *
 * Lock order: pending pages (the newest first), column pages, node pages
 * ascending, vector pages ascending, seed, posting and directory pages,
 * metapage, extension lock, new page. Readers hold one content lock at a time.
 * See README.md.
 */
#ifndef GPUANN_PAGES_H
#define GPUANN_PAGES_H

#include "base/base.h"

#include "storage/block.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/itemptr.h"
#include "utils/snapshot.h"

#define GPUANN_MAGIC			0x6E6E6167	/* "gann" */
#define GPUANN_FORMAT_VERSION	4	/* of graphs */
#define GPUANN_LISTS_VERSION	5	/* of indexes with lists */
#define GPUANN_COLUMNS_VERSION	2	/* more, of either with columns: 6 and 7 */
#define GPUANN_PAGE_ID			0xFF9A	/* identifies pages to tools like pg_filedump */
#define GPUANN_META_BLOCK		0
#define GPUANN_SUPERBLOCK_PAGES 128 /* maximum pages of a superblock, unless one vector needs
									 * more */
#define GPUANN_MIN_SEED_PAGES	2

typedef enum PageKind
{
	PAGE_META = 1,
	PAGE_SEED = 2,
	PAGE_PENDING = 3,
	PAGE_NODE = 4,
	PAGE_VECTOR = 5,
	PAGE_DIRECTORY = 6,			/* where lists begin */
	PAGE_CENTROID = 7,			/* centroids of lists, and the codebook */
	PAGE_POSTING = 8,			/* entries of a list */
	PAGE_COLUMN = 9				/* values of the columns that the index includes */
} PageKind;

/* The special area of every page. */
typedef struct PageTail
{
	uint64		change_seq;		/* node pages: of the last change by the linker or VACUUM */
	uint32		superblock;		/* of pages of superblocks; else 0 */
	uint16		kind;			/* PageKind */
	uint16		page_id;		/* GPUANN_PAGE_ID */
} PageTail;

#define GPUANN_PAYLOAD		(BLCKSZ - MAXALIGN(SizeOfPageHeaderData) - MAXALIGN(sizeof(PageTail)))

#define PageTailOf(page)	((PageTail *) PageGetSpecialPointer(page))

/* Fixed at build time: stored on the metapage, cached in rd_amcache. */
typedef struct IndexFormat
{
	uint32		dims;
	uint16		type;			/* ElementType */
	uint16		metric;			/* Metric */
	uint16		method;			/* SearchMethod: METHOD_GRAPH or METHOD_IVFPQ */
	uint16		m;				/* lists: 0 */
	uint16		degree;			/* 2 * m; lists: 1, the graph row being the list's number */
	union
	{
		uint16		ef_construction;	/* graph */
		uint16		posting_pages;	/* lists: of a superblock */
	};
	uint32		vector_bytes;
	uint16		node_bytes;		/* per slot: record and graph row */
	uint16		column_bytes;	/* per slot on column pages; 0: the index includes no columns */
	uint16		nodes_per_page;
	uint16		node_pages;		/* per superblock */
	uint32		vector_pages;
	uint32		superblock_pages;	/* pending page, posting, column, node and vector pages */
	uint32		superblock_slots;	/* S */
	uint32		seed_pages;		/* lists: of the directory, centroids and codebook */
} IndexFormat;

typedef struct MetaPage
{
	uint32		magic;
	uint32		format_version;
	IndexFormat format;
	uint64		nonce;			/* identity of this build; 0: not to be mirrored (unlogged, just
								 * reset) */

	/* written by the linker and VACUUM, under the linker lock */
	uint64		change_seq;		/* last finished slice of linker or VACUUM */
	uint64		linked_position;	/* pending list entries before this are in the graph */
	uint64		trimmed_position;	/* pending list entries before this have been removed */
	BlockNumber oldest_pending;	/* the pending page that contains trimmed_position (or will) */
	uint32		linked_slots;	/* slots in the graph after the last pass, including dead ones */
	uint32		seeds;			/* number of seeds */

	/*
	 * A hint, updated when a pending page is closed; the page itself says
	 * whether it is the newest.
	 */
	BlockNumber newest_pending;
} MetaPage;

/*
 * Where formats 6 and 7 have the table of columns, in the contents of the
 * metapage. What is between the fields of 4 and 5 and it is reserved, and zero.
 */
#define GPUANN_META_COLUMNS		512

typedef enum PendingState
{
	PENDING_SPARE = 1,				/* empty; next is the next spare page */
	PENDING_NEWEST = 2,			/* its lock is the append lock */
	PENDING_CLOSED = 3				/* full; next is its successor */
} PendingState;

/*
 * Where the next row goes. Valid on the newest pending page only, and copied to
 * its successor when it is closed.
 */
typedef struct AppendPoint
{
	uint32		superblocks;	/* number of superblocks whose pending page is initialized */
	uint32		next_fresh;		/* slots from here on have never been used; pages of slots below
								 * exist */
	uint32		free_head;		/* head of the free list, which is linked by the first entry of the
								 * graph rows; NO_SLOT: empty */
	uint32		free_count;
	BlockNumber spare_head;		/* head of the list of spare pending pages, or InvalidBlockNumber */
	float		least_norm;		/* range of the Euclidean norms of all vectors since the build;
								 * +infinity and 0: there were none, or bits */
	float		most_norm;
} AppendPoint;

typedef struct PendingPage
{
	uint64		first_position; /* position of slots[0] */
	uint64		superblock_seq; /* highest change_seq of this superblock's node pages */
	uint32		count;
	uint32		state;			/* PendingState */
	BlockNumber next;
	AppendPoint append;
	uint32		slots[FLEXIBLE_ARRAY_MEMBER];
} PendingPage;

#define GPUANN_PENDING_CAPACITY	((GPUANN_PAYLOAD - offsetof(PendingPage, slots)) / sizeof(uint32))

/*
 * State of a slot, in the flags of its node record. ABSENT and FREE slots have
 * no row; LIVE rows are returned; searches pass through the others.
 */
#define NODE_STATE_MASK		0x000F
#define NODE_ABSENT			0	/* never used */
#define NODE_LIVE			1
#define NODE_DEAD			2	/* TID cleared, version advanced; still has edges and is named by
								 * edges */
#define NODE_DETACHED		3	/* no edge leads to it; still on the pending list, or about to be
								 * freed */
#define NODE_FREE			4	/* on the free list */
#define NODE_LINKED			0x0010	/* the graph row is valid (of a free slot only its first entry
									 * is) */

/*
 * A node page has the records of its slots first, then their graph rows. An
 * insert writes only a record, so WAL records and the images of pages that are
 * not linked yet are a tenth of the size.
 */
typedef struct NodeRecord
{
	ItemPointerData tid;
	uint16		flags;
	uint32		version;		/* advanced when the row dies, and when the slot is reused */
} NodeRecord;

/* A copy of a slot's record and graph row, of format->node_bytes bytes. */
typedef struct NodeCopy
{
	ItemPointerData tid;
	uint16		flags;
	uint32		version;
	uint32		neighbours[FLEXIBLE_ARRAY_MEMBER];	/* degree entries, NO_SLOT after the last */
} NodeCopy;

#define GRAPH_ROW_ALIGN		64		/* graph rows are aligned to cache lines within the page */

#define NodeState(node)		((node)->flags & NODE_STATE_MASK)

#define PendingPageOf(page)	((PendingPage *) PageGetContents(page))
#define MetaPageOf(page)	((MetaPage *) PageGetContents(page))
#define SeedSlotsOf(page)	((uint32 *) PageGetContents(page))
#define VectorBytesOf(page) ((unsigned char *) PageGetContents(page))
#define GPUANN_SEEDS_PER_PAGE	(GPUANN_PAYLOAD / sizeof(uint32))

/* ---- slot arithmetic ---- */

static inline BlockNumber
superblock_start(const IndexFormat *format, uint32 superblock)
{
	return (BlockNumber) (1 + format->seed_pages + (uint64) superblock * format->superblock_pages);
}

/* A superblock's pending page is its first page. */
static inline BlockNumber
pending_block(const IndexFormat *format, uint32 superblock)
{
	return superblock_start(format, superblock);
}

/* Whether a pending page can be at this block. */
static inline bool
is_pending_block(const IndexFormat *format, BlockNumber block)
{
	return block != InvalidBlockNumber && block > format->seed_pages &&
		(block - 1 - format->seed_pages) % format->superblock_pages == 0;
}

/* Whether rows are in lists rather than in a graph. */
static inline bool
format_has_lists(const IndexFormat *format)
{
	return format->method == METHOD_IVFPQ;
}

/*
 * Posting pages of a superblock, which follow its pending page. A graph has
 * none.
 */
static inline uint32
format_postings(const IndexFormat *format)
{
	return format_has_lists(format) ? format->posting_pages : 0;
}

/* The first of a superblock's node and vector pages. */
static inline BlockNumber
rows_start(const IndexFormat *format, uint32 superblock)
{
	return superblock_start(format, superblock) + format->superblock_pages - format->node_pages -
		   format->vector_pages;
}

/* Column pages of a superblock, which are in front of these. */
static inline uint32
format_column_pages(const IndexFormat *format)
{
	return format->superblock_pages - 1 - format_postings(format) - format->node_pages -
		   format->vector_pages;
}

static inline uint32
slot_superblock(const IndexFormat *format, uint32 slot)
{
	return slot / format->superblock_slots;
}

/*
 * The pages of a superblock are in the order in which slots reach them, so that
 * the file is only as long as its rows need. Node page k comes before the
 * vector of its first slot, and after the vector pages that earlier slots have
 * begun.
 */
static inline BlockNumber
node_block(const IndexFormat *format, uint32 slot)
{
	uint32		page = slot % format->superblock_slots / format->nodes_per_page;
	uint32		vector_bytes = page * format->nodes_per_page * format->vector_bytes;

	return rows_start(format, slot_superblock(format, slot)) + page +
		(vector_bytes + (uint32) GPUANN_PAYLOAD - 1) / (uint32) GPUANN_PAYLOAD;
}

/*
 * Number of node pages before a superblock's vector page of this number: those
 * of the slots up to the first that reaches it.
 */
static inline uint32
node_pages_before(const IndexFormat *format, uint32 vector_page)
{
	return vector_page * (uint32) GPUANN_PAYLOAD / (format->vector_bytes * format->nodes_per_page) +
		   1;
}

static inline uint32
node_index(const IndexFormat *format, uint32 slot)
{
	return slot % format->superblock_slots % format->nodes_per_page;
}

/*
 * The end of the slots that are on the same node page as this one; at most
 * `most`.
 */
static inline uint32
node_page_end(const IndexFormat *format, uint32 slot, uint32 most)
{
	uint64		page_end = (uint64) slot - node_index(format, slot) + format->nodes_per_page;
	uint64		superblock_end =
		((uint64) slot_superblock(format, slot) + 1) * format->superblock_slots;

	return (uint32) Min(Min(superblock_end, page_end), most);
}

/* The first slot of a node page. */
static inline uint32
node_page_first_slot(const IndexFormat *format, uint32 superblock, uint32 page)
{
	return superblock * format->superblock_slots + page * format->nodes_per_page;
}

/* Slots of a column page. All columns of a slot are on one page. */
static inline uint32
columns_per_page(const IndexFormat *format)
{
	return (uint32) GPUANN_PAYLOAD / format->column_bytes;
}

/* The page of a slot's columns, and its place there. */
static inline BlockNumber
column_block(const IndexFormat *format, uint32 slot)
{
	return superblock_start(format, slot_superblock(format, slot)) + 1 + format_postings(format) +
		   slot % format->superblock_slots / columns_per_page(format);
}

static inline uint32
column_index(const IndexFormat *format, uint32 slot)
{
	return slot % format->superblock_slots % columns_per_page(format);
}

static inline NodeRecord *
node_record(const IndexFormat *format, Page page, uint32 slot)
{
	return (NodeRecord *) PageGetContents(page) + node_index(format, slot);
}

/* Bytes of a graph row. */
static inline uint32
graph_row_bytes(const IndexFormat *format)
{
	return format->node_bytes - sizeof(NodeRecord);
}

/*
 * Offset in the payload at which the graph rows of a node page with this many
 * records begin.
 */
static inline uint32
graph_rows_offset(uint32 records)
{
	return TYPEALIGN(GRAPH_ROW_ALIGN,
					 MAXALIGN(SizeOfPageHeaderData) + records * sizeof(NodeRecord)) -
		   MAXALIGN(SizeOfPageHeaderData);
}

/*
 * A slot's graph row: degree neighbours, NO_SLOT after the last. In a free slot
 * the first neighbour is the next free slot.
 */
static inline uint32 *
graph_row(const IndexFormat *format, Page page, uint32 slot)
{
	return (uint32 *) (PageGetContents(page) + graph_rows_offset(format->nodes_per_page) +
					   (Size) node_index(format, slot) * graph_row_bytes(format));
}

/*
 * Location of a vector in a superblock's vector bytes. It may cross page ends.
 */
typedef struct VectorPlace
{
	BlockNumber block;
	uint32		offset;			/* offset in the page's payload */
	uint32		page;			/* index among the superblock's vector pages */
} VectorPlace;

static inline VectorPlace
vector_place(const IndexFormat *format, uint32 slot)
{
	uint32		start = slot % format->superblock_slots * format->vector_bytes;
	VectorPlace place;

	place.page = start / (uint32) GPUANN_PAYLOAD;
	place.offset = start % (uint32) GPUANN_PAYLOAD;
	place.block = rows_start(format, slot_superblock(format, slot)) + place.page +
		node_pages_before(format, place.page);
	return place;
}

/*
 * Advance to the start of the superblock's next vector page, which is not
 * always the next block.
 */
static inline void
vector_place_next(const IndexFormat *format, VectorPlace *place)
{
	place->block +=
		1 + node_pages_before(format, place->page + 1) - node_pages_before(format, place->page);
	place->page++;
	place->offset = 0;
}

/* ---- pages.c ---- */

/*
 * Fill a format for an index with this many expected rows (0: unknown), which
 * have column_bytes of columns each. Raises an error if one row does not fit.
 */
extern void format_compute(IndexFormat *format, const GpuannTypeInfo *info, uint32 dims, int m,
						   int ef_construction, uint32 column_bytes, double expected_rows);

/*
 * The same for an index with lists, which has this many posting pages in each
 * superblock and head_pages before the first. False: one row does not fit.
 */
extern bool format_compute_lists(IndexFormat *format, const GpuannTypeInfo *info, uint32 dims,
								 uint32 column_bytes, uint32 postings, uint32 head_pages);

/* The version of the format that an index has on its metapage. */
extern uint32 format_version(const IndexFormat *format);

/*
 * Return the format of an index, cached in rd_amcache; checks magic, version
 * and ranges. Stays valid for the life of the process.
 */
extern const IndexFormat *index_format(Relation index);

/*
 * Cache the format of a metapage that was read. False, and nothing is cached:
 * it is damaged or of another version.
 */
extern bool index_cache_format(Relation index, const MetaPage *meta);

/*
 * Other values cached in rd_amcache: the nonce as read last, and a hint for the
 * newest pending page.
 */
extern uint64 index_cached_nonce(Relation index);
extern BlockNumber index_newest_hint(Relation index);

/*
 * File lengths of an index and its table, when last asked (0: never), and asked
 * now. Blocks below them exist.
 */
extern BlockNumber index_known_blocks(Relation index);
extern BlockNumber index_ask_blocks(Relation index);
extern BlockNumber index_known_heap_blocks(Relation index);
extern BlockNumber index_ask_heap_blocks(Relation index, Relation heap);
extern void index_set_newest_hint(Relation index, BlockNumber block);

/*
 * The table of columns, as columns.c has cached it: it lives as long as the
 * process. NULL: not yet.
 */
typedef struct ColumnTable ColumnTable;

extern const ColumnTable *index_cached_columns(Relation index);
extern void index_cache_columns(Relation index, const ColumnTable *columns);

/* Create a new identity for an index: random, never 0. */
extern uint64 random_nonce(void);

/* Copy the metapage and check it. */
extern void read_meta(Relation index, MetaPage *meta);

/*
 * Initialize a page: header, tail, and pd_lower after what this kind contains
 * when empty.
 */
extern void page_init(Page page, PageKind kind, uint32 superblock);

/*
 * Raise pd_lower to include this many bytes of the payload. Node and vector
 * pages are filled from the start, so that their full-page images are short.
 * Records beyond pd_lower read as zeros, that is, absent.
 */
static inline void
page_reach(Page page, Size bytes)
{
	Size		lower = PageGetContents(page) - (char *) page + bytes;

	if (lower > ((PageHeader) page)->pd_lower || bytes == 0)
		((PageHeader) page)->pd_lower = lower;
}

/* The same for a slot's record, and for its graph row. */
static inline void
page_reach_record(const IndexFormat *format, Page page, uint32 slot)
{
	page_reach(page, (node_index(format, slot) + 1) * sizeof(NodeRecord));
}

static inline void
page_reach_row(const IndexFormat *format, Page page, uint32 slot)
{
	page_reach(page, graph_rows_offset(format->nodes_per_page) +
						 (node_index(format, slot) + 1) * (Size) graph_row_bytes(format));
}

/*
 * Read and lock a block (mode BUFFER_LOCK_SHARE or _EXCLUSIVE), and check that
 * it is an initialised page of this kind; errors out with
 * ERRCODE_INDEX_CORRUPTED and the block number if not. With zero_ok a new
 * (all-zero) page passes.
 */
extern Buffer read_page(Relation index, BlockNumber block, PageKind kind, int mode, bool zero_ok);

/* Read, lock (shared) and check a block that this process reads repeatedly. */
extern Buffer read_hinted_page(Relation index, BlockNumber block, PageKind kind, bool zero_ok);

/*
 * Check an initialized page that should be of a kind. Returns the fault, or
 * NULL.
 */
extern const char *page_fault(Page page, PageKind kind);

/* Check the page of a locked buffer, as read_page() does. */
extern void check_page(Relation index, Buffer buffer, PageKind kind, bool zero_ok);

/* The same for reading the whole index, with a ring of buffers. */
extern Buffer read_page_in_bulk(Relation index, BlockNumber block, PageKind kind, int mode,
								bool zero_ok, BufferAccessStrategy strategy);

/* Copy a slot's node record and graph row from its page. */
extern void copy_node(const IndexFormat *format, Page page, uint32 slot, NodeCopy *node);

/*
 * Read a slot's node record and graph row. Returns false if the page was never
 * written.
 */
extern bool read_node(Relation index, const IndexFormat *format, uint32 slot, NodeCopy *node);

/* Copy a slot's vector, locking one page at a time. */
extern void read_vector(Relation index, const IndexFormat *format, uint32 slot, void *vector);

/*
 * Copy the first seeds, up to `most`, into a palloc'd array; returns how many.
 * The caller must check that the slots exist.
 */
extern uint32 read_seeds(Relation index, const MetaPage *meta, uint32 most, uint32 **seeds);

/* Copy `count` seeds, starting with number `first`. */
extern void read_some_seeds(Relation index, uint32 first, uint32 count, uint32 *seeds);

/*
 * Check that another superblock, with this number, is allowed. Raises an error
 * if there would be too many slots or blocks, and warns once when nine tenths
 * are used. An index has fewer than 2^31 slots.
 */
extern void check_row_limit(Relation index, const IndexFormat *format, uint32 superblock);

/*
 * Extend the file to include block, under the extension lock. New pages are all
 * zero.
 */
extern void extend_to(Relation index, BlockNumber block);

/*
 * Raise an error if VACUUM may have removed rows that a snapshot sees. Call
 * after reading an answer, without holding a page lock.
 */
extern void check_snapshot_age(Relation index, Snapshot snapshot);

/* Gives the next slots, ascending, at most `most`; 0: there are no more. */
typedef uint32 (*NextSlots) (void *state, uint32 *slots, uint32 most);

/* ---- peek.c: for the planner, without errors ---- */

/*
 * Read and lock (shared) a block of a file of this length, if it is a page of
 * this kind. InvalidBuffer, and no error: it is not, or is damaged.
 */
extern Buffer peek_page(Relation index, BlockNumber blocks, BlockNumber block, PageKind kind);

/*
 * index_format() for the planner: NULL, and no error, if the metapage is
 * damaged or of another version. Until such an index is built anew other plans
 * answer.
 */
extern const IndexFormat *peek_format(Relation index);

/*
 * Copy the vector of a slot, if the slot is live and its pages are whole.
 */
extern bool peek_vector(Relation index, const IndexFormat *format, BlockNumber blocks, uint32 slot,
						void *vector);

/* Number of slots for which a file of this length has room. */
extern uint32 slots_of_file(const IndexFormat *format, BlockNumber blocks);

extern void report_corrupt(Relation index, BlockNumber block, const char *what)
	__attribute__((noreturn));

#endif							/* GPUANN_PAGES_H */
