/*
 * check.h
 *		gpuann_check: shared state of its parts.
 *
 * Pages are copied, then judged without any lock. Each function returns false
 * after violated(); what does not even look like a page of this index errors
 * out at once.
 */
#ifndef GPUANN_CHECK_H
#define GPUANN_CHECK_H

#include "link/link.h"
#include "lists/lists.h"
#include "base/sql_index.h"

#include "storage/bufmgr.h"
#include "utils/tuplesort.h"

/* State of a slot, in one byte: the node state and these flags. */
#define SLOT_LINKED			0x10
#define SLOT_LISTED			0x20
#define SLOT_PENDING		0x40	/* listed after linked_position */
#define SLOT_ON_FREE_LIST	0x80

/* A live row: what the rows are sorted by, so comparable byte by byte. */
typedef struct RowKey
{
	uint8		block[4];		/* highest byte first, as the others */
	uint8		offset[2];
	uint8		slot[4];
	uint8		filler[6];		/* it is sorted as a uuid */
} RowKey;

typedef struct IndexCheck
{
	Relation	index;
	Relation	heap;
	Snapshot	snapshot;		/* heapallindexed: registered before anything was read; else NULL */
	const IndexFormat *format;
	MetaPage	meta;
	BlockNumber blocks;			/* of the file */
	BufferAccessStrategy strategy;
	char	   *page;			/* copy of the current page */
	NodeCopy   *node;

	/*
	 * the pending list when its newest page was first read: the snapshot
	 * against which everything is checked
	 */
	AppendPoint append;
	uint64		end;			/* append position */
	BlockNumber *lists;			/* pending pages, oldest first; those that came later too */
	uint32		nlists;
	uint32		list_room;
	bool	   *list_seen;		/* per superblock: by the list, or spare */
	uint64	   *superblock_seq;
	uint8	   *slots;			/* state of each slot */
	float		least_norm;		/* range of the norms of the live slots met */
	float		most_norm;
	ListFormat	list_format;	/* of an index with lists; ... */
	uint32	   *list_of;		/* ... of each slot its list, or NO_LIST, ... */
	uint32	   *version_of;		/* ... and its version */
	uint32		last_used;		/* highest slot beyond append.next_fresh that is in use, or 0 */
	Tuplesortstate *rows;		/* RowKey of each live slot */

	/* the violation found */
	BlockNumber bad_block;		/* or InvalidBlockNumber */
	uint32		bad_slot;		/* or NO_SLOT */
	ItemPointerData bad_row;	/* if there is no bad block: a row of the table */
	const char *what;			/* a constant */
} IndexCheck;

/* check_page.c */

/* Record a violation; returns false, for the caller to return. */
extern bool violated(IndexCheck *check, BlockNumber block, uint32 slot, const char *what);

/*
 * Copy a page to check->page. Raises an error if it is not a page of this kind.
 */
extern bool check_fetch(IndexCheck *check, BlockNumber block, PageKind kind);

/*
 * Whether pd_lower covers this many bytes of the page's contents: WAL replay
 * clears the bytes behind it.
 */
extern bool check_reaches(IndexCheck *check, Size bytes);

/*
 * check_pending.c: metapage, pending pages, append point; before any slot is
 * looked at
 */
extern bool check_metapage(IndexCheck *check);
extern bool check_pending_chain(IndexCheck *check);
extern bool check_append_point(IndexCheck *check);
extern bool check_pending_entries(IndexCheck *check);
extern bool check_spare_pending(IndexCheck *check);
/* ... and what was appended meanwhile; free list */
extern bool check_late_entries(IndexCheck *check);
extern bool check_free_list(IndexCheck *check);
/*
 * Whether the linker and VACUUM have changed nothing since check->meta was
 * read.
 */
extern bool check_was_quiet(IndexCheck *check);

/* check_rows.c: node records, graph rows, seeds, vectors */
extern bool check_nodes(IndexCheck *check);
extern bool check_rows(IndexCheck *check);
extern bool check_seeds(IndexCheck *check);
extern bool check_vectors(IndexCheck *check);

/* check_columns.c: column pages; and the columns of a row of the table */
extern bool check_columns(IndexCheck *check);

/* The fault of a slot's columns, or NULL: they are those of the row. */
extern const char *check_row_columns(IndexCheck *check, uint32 slot, const Datum *values,
									 const bool *isnull, const ItemPointerData *tid);

/*
 * check_lists.c: list numbers of node records, in place of graph rows; then all
 * pages of lists
 */
extern bool check_list_number(IndexCheck *check, uint32 slot, const NodeCopy *node);
extern bool check_lists(IndexCheck *check);

/*
 * check_heap.c: TIDs, the table's rows, and with a snapshot whether all of them
 * are indexed
 */
extern void check_heap_note(IndexCheck *check, uint32 slot, const ItemPointerData *tid);
extern bool check_heap(IndexCheck *check);

#endif							/* GPUANN_CHECK_H */
