/*
 * postings.h
 *		Pages of lists: the directory, chains of posting pages.
 *
 * Only the holder of the linker lock writes them. A list's first page is the
 * only one that is not full: entries are added there, and an entry that is
 * removed elsewhere is replaced by the last entry of the first page. So entries
 * move only away from the first page, and a reader, which starts there, may see
 * a moved entry twice but misses none.
 */
#ifndef GPUANN_POSTINGS_H
#define GPUANN_POSTINGS_H

#include "lists/lists.h"

#define NO_LIST		0xFFFFFFFF	/* of spare pages */

/* The head of a list. */
typedef struct ListHead
{
	BlockNumber first;			/* InvalidBlockNumber: it is empty */
	uint32		entries;
} ListHead;

typedef struct DirectoryPage
{
	/* on the first one only: */
	BlockNumber spare;			/* the first spare posting page */
	uint32		used;			/* posting pages that were ever used: the first ones */
	uint64		added_rows;		/* number of entries added since the build, ... */
	double		added_distance;	/* ... and the sum of their squared distances */
	ListHead	heads[FLEXIBLE_ARRAY_MEMBER];
} DirectoryPage;

#define DIRECTORY_HEADS \
	((uint32) ((GPUANN_PAYLOAD - offsetof(DirectoryPage, heads)) / sizeof(ListHead)))

typedef struct PostingEntry
{
	uint32		slot;
	uint32		version;
} PostingEntry;

typedef struct PostingPage
{
	uint32		list;			/* or NO_LIST */
	uint32		count;
	BlockNumber next;			/* of the list, or the next spare one */
	uint32		filler;
	PostingEntry entries[FLEXIBLE_ARRAY_MEMBER];	/* page_entries; then as many codes */
} PostingPage;

#define DirectoryOf(page)	((DirectoryPage *) PageGetContents(page))
#define PostingOf(page)		((PostingPage *) PageGetContents(page))

/* Offset of codes in a posting page's payload, and the codes of a page. */
static inline uint32
codes_offset(const ListFormat *lists)
{
	return offsetof(PostingPage, entries) + lists->page_entries * sizeof(PostingEntry);
}

static inline unsigned char *
posting_codes(const ListFormat *lists, Page page)
{
	return (unsigned char *) PageGetContents(page) + codes_offset(lists);
}

/* The block of a posting page by its number. */
static inline BlockNumber
posting_block(const IndexFormat *format, uint32 number)
{
	return superblock_start(format, number / format_postings(format)) + 1 +
		   number % format_postings(format);
}

/* Whether a posting page can be at this block. */
extern bool is_posting_block(const IndexFormat *format, BlockNumber block);

/* The directory page of a list's head. */
static inline BlockNumber
directory_block(uint32 list)
{
	return 1 + list / DIRECTORY_HEADS;
}

extern ListHead read_list_head(Relation index, uint32 list);

/* Number of posting pages ever used, including spare ones. */
extern uint32 posting_pages_used(Relation index);

/*
 * Callbacks of a list's reader. If the list changes concurrently, an entry may
 * be seen twice: one that was moved to a later page, or all, if a page no
 * longer belongs to the list and reading restarts.
 */
typedef struct ListVisitor
{
	/* called before the first page, also after a restart; or NULL */
	void		(*begin) (void *context);
	/* takes the entries of a page, under its lock; codes are aligned to 4 */
	void		(*take) (void *context, const PostingEntry *entries, const unsigned char *codes,
						 uint32 count);
	/* after each page, with no lock held */
	void		(*taken) (void *context);
	void	   *context;
} ListVisitor;

extern void list_visit(Relation index, const IndexFormat *format, const ListFormat *lists,
					   uint32 list, const ListVisitor *visitor);

/* State of a writer of lists. */
typedef struct ListWriter
{
	Relation	index;
	const IndexFormat *format;
	const ListFormat *lists;
	uint32		superblocks;	/* number of superblocks whose posting pages can be used */
	bool		building;		/* pages are logged when the build ends */
} ListWriter;

/* Add entries to a list. */
extern void list_append(ListWriter *writer, uint32 list, const PostingEntry *entries,
						const unsigned char *codes, uint32 count);

/*
 * Remove the entries of a list for which the function, called once for each,
 * returns true. Returns their number.
 */
typedef bool (*EntryIsGone) (void *context, const PostingEntry *entry);

extern uint32 list_remove(ListWriter *writer, uint32 list, EntryIsGone is_gone, void *context);

/*
 * Add to the statistics of rows added since the build: their number, and the
 * sum of squared distances from their centroids.
 */
extern void list_note_added(ListWriter *writer, uint64 rows, double distance);

/* Initialize a page before the first superblock, with all lists empty. */
extern void list_init_page(const ListFormat *lists, Page page, BlockNumber block);

#endif							/* GPUANN_POSTINGS_H */
