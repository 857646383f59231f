/*
 * pages.h
 *		The page format (design, section 4): kinds of pages, records on them,
 *		slot arithmetic.
 *
 * Block 0 is the metapage, then come the seed pages, then equal superblocks.
 * Superblock b holds slots [b * S, (b + 1) * S): one pending page, then node
 * and vector pages in the order in which slots reach them. Everything about a
 * slot is found by arithmetic on IndexFormat.
 *
 * Lock order: pending pages (the newest first), node pages ascending, vector
 * pages ascending, seed pages ascending, metapage, extension lock, new page.
 * Readers hold one content lock at a time. See README.md.
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
#define GPUANN_FORMAT_VERSION	3
#define GPUANN_PAGE_ID			0xFF9A	/* in every page's tail, for pg_filedump and the like */
#define GPUANN_META_BLOCK		0
#define GPUANN_SUPERBLOCK_PAGES 128 /* most pages of a superblock, unless one vector needs more */
#define GPUANN_MIN_SEED_PAGES	2

typedef enum PageKind
{
	PAGE_META = 1,
	PAGE_SEED = 2,
	PAGE_PENDING = 3,
	PAGE_NODE = 4,
	PAGE_VECTOR = 5
} PageKind;

/* The special area of every page. */
typedef struct PageTail
{
	uint64		change_seq;		/* node pages: of the last link or vacuum change */
	uint32		superblock;		/* list, node, vector pages; else 0 */
	uint16		kind;			/* PageKind */
	uint16		page_id;		/* GPUANN_PAGE_ID */
} PageTail;

#define GPUANN_PAYLOAD		(BLCKSZ - MAXALIGN(SizeOfPageHeaderData) - MAXALIGN(sizeof(PageTail)))

#define PageTailOf(page)	((PageTail *) PageGetSpecialPointer(page))

/*
 * What never changes after the build: found on the metapage, cached in
 * rd_amcache.
 */
typedef struct IndexFormat
{
	uint32		dims;
	uint16		type;			/* ElementType */
	uint16		metric;			/* Metric */
	uint16		method;			/* SearchMethod: METHOD_GRAPH */
	uint16		m;
	uint16		degree;			/* 2 * m */
	uint16		ef_construction;
	uint32		vector_bytes;
	uint16		node_bytes;		/* of a slot on its node page: record, graph row and key */
	uint16		key_bytes;		/* of filter columns in a node record: 0 in this version */
	uint16		nodes_per_page;
	uint16		node_pages;		/* per superblock */
	uint32		vector_pages;
	uint32		superblock_pages;	/* 1 + node_pages + vector_pages */
	uint32		superblock_slots;	/* S */
	uint32		seed_pages;
} IndexFormat;

typedef struct MetaPage
{
	uint32		magic;
	uint32		format_version;
	IndexFormat format;
	uint64		nonce;			/* identity of this build; 0: never to be mirrored (unlogged, just
								 * reset) */

	/* written by linker and vacuum, under the linker lock */
	uint64		change_seq;		/* last finished slice of link or vacuum */
	uint64		linked_position;	/* list entries before this are in the graph */
	uint64		trimmed_position;	/* list entries before this are gone */
	BlockNumber oldest_pending;	/* the pending page that holds trimmed_position (or will) */
	uint32		linked_slots;	/* slots in the graph at the last pass, dead ones included */
	uint32		seeds;			/* entries of the seed area */

	/*
	 * a hint, written when pending pages succeed each other; the page itself
	 * says whether it is the newest
	 */
	BlockNumber newest_pending;
} MetaPage;

typedef enum PendingState
{
	PENDING_SPARE = 1,				/* holds nothing; next is the next spare page */
	PENDING_NEWEST = 2,			/* the append lock */
	PENDING_CLOSED = 3				/* full; next is its successor */
} PendingState;

/*
 * Where the next row goes. Meaningful on the newest pending page only; moves
 * along when it is succeeded.
 */
typedef struct AppendPoint
{
	uint32		superblocks;	/* whose pending page is initialised */
	uint32		next_fresh;		/* slots from here on were never used; slots below it exist */
	uint32		free_head;		/* first of the free list, linked by the first entry of their graph
								 * rows; NO_SLOT: empty */
	uint32		free_count;
	BlockNumber spare_head;		/* first spare pending page, or InvalidBlockNumber */
} AppendPoint;

typedef struct PendingPage
{
	uint64		first_position; /* of slots[0] */
	uint64		superblock_seq; /* highest change_seq of this superblock's node pages */
	uint32		count;
	uint32		state;			/* PendingState */
	BlockNumber next;
	AppendPoint append;
	uint32		slots[FLEXIBLE_ARRAY_MEMBER];
} PendingPage;

#define GPUANN_PENDING_CAPACITY	((GPUANN_PAYLOAD - offsetof(PendingPage, slots)) / sizeof(uint32))

/*
 * A node record's state, in its flags. ABSENT and FREE slots hold no row; LIVE
 * rows are answers; the others only route.
 */
#define NODE_STATE_MASK		0x000F
#define NODE_ABSENT			0	/* never used */
#define NODE_LIVE			1
#define NODE_DEAD			2	/* TID cleared, version advanced; still has edges in and out */
#define NODE_DETACHED		3	/* no edge leads to it; still listed, or about to be freed */
#define NODE_FREE			4	/* on the free list */
#define NODE_LINKED			0x0010	/* the graph row means something (of a free slot its first entry
									 * does) */

/*
 * A node page has the records of its slots first, one after another, then their
 * graph rows: an insert writes a record only, so what it logs and what an image
 * of a page not linked yet holds is a tenth of both.
 */
typedef struct NodeRecord
{
	ItemPointerData tid;
	uint16		flags;
	uint32		version;		/* advanced when the row dies and when the slot is reused */
} NodeRecord;

/* A copy of a slot's record and graph row together: format->node_bytes. */
typedef struct NodeCopy
{
	ItemPointerData tid;
	uint16		flags;
	uint32		version;
	uint32		neighbours[FLEXIBLE_ARRAY_MEMBER];	/* degree of them, NO_SLOT after the last; then
													 * the key */
} NodeCopy;

#define GRAPH_ROW_ALIGN		64		/* graph rows begin on a cache line of their page */

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

static inline uint32
slot_superblock(const IndexFormat *format, uint32 slot)
{
	return slot / format->superblock_slots;
}

/*
 * Pages of a superblock lie in the order in which slots reach them, so that a
 * file is only as long as its rows need: node page k before its first slot's
 * vector, and before it the vector pages that slots before it have begun.
 */
static inline BlockNumber
node_block(const IndexFormat *format, uint32 slot)
{
	uint32		page = slot % format->superblock_slots / format->nodes_per_page;
	uint32		vector_bytes = page * format->nodes_per_page * format->vector_bytes;

	return superblock_start(format, slot_superblock(format, slot)) + 1 + page +
		(vector_bytes + (uint32) GPUANN_PAYLOAD - 1) / (uint32) GPUANN_PAYLOAD;
}

/*
 * Node pages that lie before a superblock's vector page of this number: those
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

/* The first slot of a node page. */
static inline uint32
node_page_first_slot(const IndexFormat *format, uint32 superblock, uint32 page)
{
	return superblock * format->superblock_slots + page * format->nodes_per_page;
}

static inline NodeRecord *
node_record(const IndexFormat *format, Page page, uint32 slot)
{
	return (NodeRecord *) PageGetContents(page) + node_index(format, slot);
}

/* Bytes of a graph row, key included. */
static inline uint32
graph_row_bytes(const IndexFormat *format)
{
	return format->node_bytes - sizeof(NodeRecord);
}

/*
 * Where the graph rows of a node page with so many records begin, in its
 * payload.
 */
static inline uint32
graph_rows_offset(uint32 records)
{
	return TYPEALIGN(GRAPH_ROW_ALIGN,
					 MAXALIGN(SizeOfPageHeaderData) + records * sizeof(NodeRecord)) -
		   MAXALIGN(SizeOfPageHeaderData);
}

/*
 * A slot's graph row: degree neighbours, NO_SLOT after the last; then the key.
 * Of a free slot the first is the next free one.
 */
static inline uint32 *
graph_row(const IndexFormat *format, Page page, uint32 slot)
{
	return (uint32 *) (PageGetContents(page) + graph_rows_offset(format->nodes_per_page) +
					   (Size) node_index(format, slot) * graph_row_bytes(format));
}

/* A vector is a run of a superblock's vector bytes; it may cross page ends. */
typedef struct VectorPlace
{
	BlockNumber block;
	uint32		offset;			/* in the page's payload */
	uint32		page;			/* number among the superblock's vector pages */
} VectorPlace;

static inline VectorPlace
vector_place(const IndexFormat *format, uint32 slot)
{
	uint32		start = slot % format->superblock_slots * format->vector_bytes;
	VectorPlace place;

	place.page = start / (uint32) GPUANN_PAYLOAD;
	place.offset = start % (uint32) GPUANN_PAYLOAD;
	place.block = superblock_start(format, slot_superblock(format, slot)) + 1 + place.page +
		node_pages_before(format, place.page);
	return place;
}

/*
 * Go on to the beginning of the superblock's next vector page: not always the
 * next block.
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
 * Fill a format for an index that is expected to hold so many rows (0: not
 * known). Errors out if one row cannot fit.
 */
extern void format_compute(IndexFormat *format, const GpuannTypeInfo *info, uint32 dims, int m,
						   int ef_construction, double expected_rows);

/*
 * The format of an index, cached with the relation; checks magic, version and
 * ranges. It stays valid, whatever becomes of the relation.
 */
extern const IndexFormat *index_format(Relation index);

/*
 * What rd_amcache knows besides: the nonce as last seen, and where the newest
 * pending page was.
 */
extern uint64 index_cached_nonce(Relation index);
extern BlockNumber index_newest_hint(Relation index);

/*
 * Lengths of the files of an index and its table, as last asked (0: never), and
 * asked now. What lies within is there.
 */
extern BlockNumber index_known_blocks(Relation index);
extern BlockNumber index_ask_blocks(Relation index);
extern BlockNumber index_known_heap_blocks(Relation index);
extern BlockNumber index_ask_heap_blocks(Relation index, Relation heap);
extern void index_set_newest_hint(Relation index, BlockNumber block);

/* A fresh identity for an index: random, never 0. */
extern uint64 random_nonce(void);

/* A copy of the metapage, checked. */
extern void read_meta(Relation index, MetaPage *meta);

/*
 * Initialise a page: header, tail, pd_lower past what its kind holds when
 * empty.
 */
extern void page_init(Page page, PageKind kind, uint32 superblock);

/*
 * Let pd_lower be at least so many payload bytes in. Node and vector pages are
 * filled from the start, so their images in WAL need no more than that; a
 * record beyond it reads as zeros, absent.
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

/*
 * Read, lock (shared) and check a block that this process reads again and
 * again.
 */
extern Buffer read_hinted_page(Relation index, BlockNumber block, PageKind kind, bool zero_ok);

/* Check the page of a buffer that is locked already, as read_page does. */
extern void check_page(Relation index, Buffer buffer, PageKind kind, bool zero_ok);

/* The same for those who read the whole index, through a ring of buffers. */
extern Buffer read_page_in_bulk(Relation index, BlockNumber block, PageKind kind, int mode,
								bool zero_ok, BufferAccessStrategy strategy);

/* Copy a slot's node record and graph row. */
extern void copy_node(const IndexFormat *format, Page page, uint32 slot, NodeCopy *node);

/*
 * Copy a slot's node record and graph row from its page. False if the page was
 * never written.
 */
extern bool read_node(Relation index, const IndexFormat *format, uint32 slot, NodeCopy *node);

/* Copy a slot's vector, one content lock at a time. */
extern void read_vector(Relation index, const IndexFormat *format, uint32 slot, void *vector);

/*
 * Copy the seeds (at most SEEDS_MAX) into a palloc'd array; returns how many.
 * Whether they exist is for the caller to check.
 */
extern uint32 read_seeds(Relation index, const MetaPage *meta, uint32 most, uint32 **seeds);

/* Copy these of them. */
extern void read_some_seeds(Relation index, uint32 first, uint32 count, uint32 *seeds);

/*
 * Whether one more superblock, with this number, can be: errors out if there
 * would be too many slots or blocks, and warns once when nine tenths are used.
 * An index holds fewer than 2^31 rows.
 */
extern void check_row_limit(Relation index, const IndexFormat *format, uint32 superblock);

/*
 * Make the file reach block, under the extension lock; new pages are all zero.
 */
extern void extend_to(Relation index, BlockNumber block);

/*
 * Error out if VACUUM may have taken rows out of the index that a snapshot
 * sees: call it after an answer has been read, with no page locked.
 */
extern void check_snapshot_age(Relation index, Snapshot snapshot);

extern void report_corrupt(Relation index, BlockNumber block, const char *what)
	__attribute__((noreturn));

#endif							/* GPUANN_PAGES_H */
