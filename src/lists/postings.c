/*
 * postings.c
 *		Pages of lists: reading chains, adding and removing entries.
 *
 * There is one writer at a time, the holder of the linker lock, so what it has
 * read from a page remains true without a content lock. Each change is one WAL
 * record of at most four pages: posting pages, then directory pages, which is
 * the lock order. Readers hold one content lock at a time. Between two pages of
 * a chain a page may become spare, or another list's; readers check that on
 * each page, and then restart the list.
 */
#include "postgres.h"

#include "lists/postings.h"

#include "access/generic_xlog.h"
#include "base/faults.h"
#include "miscadmin.h"
#include "page/pending.h"
#include "utils/rel.h"

/* Number of times that a reader restarts a list before it reports damage. */
#define MAX_RESTARTS	1000

bool
is_posting_block(const IndexFormat *format, BlockNumber block)
{
	uint32		place;

	if (block == InvalidBlockNumber || block <= format->seed_pages)
		return false;
	place = (block - 1 - format->seed_pages) % format->superblock_pages;
	return place >= 1 && place <= format_postings(format);
}

/* ---- reading ---- */

ListHead
read_list_head(Relation index, uint32 list)
{
	Buffer		buffer = read_hinted_page(index, directory_block(list), PAGE_DIRECTORY, false);
	ListHead	head = DirectoryOf(BufferGetPage(buffer))->heads[list % DIRECTORY_HEADS];

	UnlockReleaseBuffer(buffer);
	return head;
}

uint32
posting_pages_used(Relation index)
{
	Buffer		buffer = read_hinted_page(index, directory_block(0), PAGE_DIRECTORY, false);
	uint32		used = DirectoryOf(BufferGetPage(buffer))->used;

	UnlockReleaseBuffer(buffer);
	return used;
}

/*
 * The next block of a chain. Raises an error unless it is invalid (the end) or
 * that of a posting page.
 */
static BlockNumber
checked_next(Relation index, const IndexFormat *format, BlockNumber at, BlockNumber next)
{
	if (next != InvalidBlockNumber && !is_posting_block(format, next))
		report_corrupt(index, at, "a list goes on where no posting page can be");
	return next;
}

/* Raise an error if a chain has more pages than exist, that is, a cycle. */
static void
check_chain_length(Relation index, BlockNumber at, uint32 pages)
{
	if ((pages & 1023) == 0 && pages > RelationGetNumberOfBlocks(index))
		report_corrupt(index, at, "the pages of a list form a circle");
}

/*
 * Visit one page of a list. Returns false if the page no longer belongs to the
 * list. *next is the next block of the chain.
 */
static bool
visit_page(Relation index, const IndexFormat *format, const ListFormat *lists, uint32 list,
		   BlockNumber *next, const ListVisitor *visitor)
{
	BlockNumber block = *next;
	Buffer		buffer = read_hinted_page(index, block, PAGE_POSTING, false);
	Page		page = BufferGetPage(buffer);
	const PostingPage *posting = PostingOf(page);
	bool		ours = posting->list == list;

	if (ours && posting->count > lists->page_entries)
	{
		UnlockReleaseBuffer(buffer);
		report_corrupt(index, block, "the posting page holds more than it can");
	}
	if (ours)
		visitor->take(visitor->context, posting->entries, posting_codes(lists, page),
					  posting->count);
	*next = posting->next;
	UnlockReleaseBuffer(buffer);
	if (!ours)
		return false;
	*next = checked_next(index, format, block, *next);
	visitor->taken(visitor->context);
	return true;
}

void
list_visit(Relation index, const IndexFormat *format, const ListFormat *lists, uint32 list,
		   const ListVisitor *visitor)
{
	for (int restarts = 0; restarts < MAX_RESTARTS; restarts++)
	{
		BlockNumber first = read_list_head(index, list).first;
		BlockNumber next = checked_next(index, format, directory_block(list), first);
		uint32		pages = 0;
		bool		ours = true;

		if (visitor->begin != NULL)
			visitor->begin(visitor->context);
		while (ours && next != InvalidBlockNumber)
		{
			CHECK_FOR_INTERRUPTS();
			ours = visit_page(index, format, lists, list, &next, visitor);
			check_chain_length(index, next, ++pages);
		}
		if (ours)
			return;
	}
	report_corrupt(index, directory_block(list), "a list leads to pages of others");
}

/* ---- changing pages ---- */

/*
 * A change of pages: one WAL record or, during a build, unlogged changes of the
 * buffers.
 */
typedef struct PageChange
{
	GenericXLogState *xlog;		/* NULL: a build */
	Buffer		buffers[MAX_GENERIC_XLOG_PAGES];
	int			count;
} PageChange;

static void
change_begin(PageChange *change, const ListWriter *writer)
{
	change->xlog = writer->building ? NULL : GenericXLogStart(writer->index);
	change->count = 0;
}

/* Add a locked page to the change; first: it has no data yet. */
static Page
change_page(PageChange *change, Buffer buffer, bool first)
{
	change->buffers[change->count++] = buffer;
	if (change->xlog != NULL)
		return GenericXLogRegisterBuffer(change->xlog, buffer,
										 first ? GENERIC_XLOG_FULL_IMAGE : 0);
	return BufferGetPage(buffer);
}

static void
change_finish(PageChange *change)
{
	if (change->xlog != NULL)
		GenericXLogFinish(change->xlog);
	for (int i = change->count; i-- > 0;)
	{
		if (change->xlog == NULL)
			MarkBufferDirty(change->buffers[i]);
		UnlockReleaseBuffer(change->buffers[i]);
	}
}

/* Lock a page to change it. */
static Buffer
lock_page(const ListWriter *writer, BlockNumber block, PageKind kind)
{
	return read_page(writer->index, block, kind, BUFFER_LOCK_EXCLUSIVE, false);
}

/*
 * The directory pages of a change: a list's, and the first one, if it is needed
 * and is not the same. They are locked in ascending order, after the posting
 * pages.
 */
typedef struct DirectoryChange
{
	ListHead   *head;
	DirectoryPage *first;
} DirectoryChange;

static DirectoryChange
change_directory(PageChange *change, const ListWriter *writer, uint32 list, bool want_first)
{
	DirectoryChange directory = {NULL, NULL};
	BlockNumber block = directory_block(list);
	DirectoryPage *page;

	if (want_first || block == directory_block(0))
		directory.first = DirectoryOf(
			change_page(change, lock_page(writer, directory_block(0), PAGE_DIRECTORY), false));
	page = block == directory_block(0)
		? directory.first
		: DirectoryOf(change_page(change, lock_page(writer, block, PAGE_DIRECTORY), false));
	directory.head = &page->heads[list % DIRECTORY_HEADS];
	return directory;
}

/* ---- adding ---- */

/* Append entries to a posting page. */
static void
put_entries(const ListFormat *lists, Page page, const PostingEntry *entries,
			const unsigned char *codes, uint32 count)
{
	PostingPage *posting = PostingOf(page);

	memcpy(posting->entries + posting->count, entries, sizeof(PostingEntry) * count);
	memcpy(posting_codes(lists, page) + (Size) posting->count * lists->code_bytes, codes,
		   (Size) count * lists->code_bytes);
	posting->count += count;
	page_reach(page, codes_offset(lists) + (Size) posting->count * lists->code_bytes);
}

/*
 * Update the number of superblocks, which concurrent inserts may have added,
 * and add one if all posting pages are used.
 */
static void
more_superblocks(ListWriter *writer, uint32 used)
{
	const IndexFormat *format = writer->format;
	MetaPage	meta;
	PendingBounds bounds;

	if (writer->building)
		elog(ERROR, "the posting pages do not suffice");
	pending_bounds(writer->index, format, &meta, &bounds);
	writer->superblocks = bounds.superblocks;
	if (used / format_postings(format) >= writer->superblocks)
		writer->superblocks = pending_add_superblock(writer->index, format);
	if (used / format_postings(format) >= writer->superblocks)
		report_corrupt(writer->index, directory_block(0),
					   "more posting pages were used than there are");
}

/*
 * Find an unused posting page: the first spare one, whose successor becomes the
 * first; or the next one that was never used.
 */
static BlockNumber
find_unused(ListWriter *writer, BlockNumber *next_spare, bool *fresh)
{
	const IndexFormat *format = writer->format;
	Buffer		buffer = read_page(writer->index, directory_block(0), PAGE_DIRECTORY,
								   BUFFER_LOCK_SHARE, false);
	BlockNumber block = DirectoryOf(BufferGetPage(buffer))->spare;
	uint32		used = DirectoryOf(BufferGetPage(buffer))->used;

	UnlockReleaseBuffer(buffer);
	*fresh = block == InvalidBlockNumber;
	if (*fresh)
	{
		if (used / format_postings(format) >= writer->superblocks)
			more_superblocks(writer, used);
		*next_spare = InvalidBlockNumber;
		block = posting_block(format, used);
		extend_to(writer->index, block);
		return block;
	}
	if (!is_posting_block(format, block))
		report_corrupt(writer->index, directory_block(0),
					   "the spare posting page is where no posting page can be");
	buffer = read_page(writer->index, block, PAGE_POSTING, BUFFER_LOCK_SHARE, false);
	*next_spare = PostingOf(BufferGetPage(buffer))->next;
	if (PostingOf(BufferGetPage(buffer))->list != NO_LIST)
	{
		UnlockReleaseBuffer(buffer);
		report_corrupt(writer->index, block, "the posting page is not spare");
	}
	UnlockReleaseBuffer(buffer);
	return block;
}

/* Add a page with these entries at the head of a list's chain. */
static void
add_page(ListWriter *writer, uint32 list, const PostingEntry *entries, const unsigned char *codes,
		 uint32 count)
{
	const IndexFormat *format = writer->format;
	BlockNumber next_spare;
	bool		fresh;
	BlockNumber block = find_unused(writer, &next_spare, &fresh);
	Buffer		buffer = ReadBuffer(writer->index, block);
	PageChange	change;
	DirectoryChange directory;
	Page		page;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	/*
	 * `used` and the pages' contents change in the same WAL record, so a page
	 * beyond `used` has none
	 */
	if (fresh && !PageIsNew(BufferGetPage(buffer)))
	{
		UnlockReleaseBuffer(buffer);
		report_corrupt(writer->index, block, "a posting page that was never used has contents");
	}
	change_begin(&change, writer);
	page = change_page(&change, buffer, true);
	page_init(page, PAGE_POSTING,
			  (block - 1 - format->seed_pages) / format->superblock_pages);
	directory = change_directory(&change, writer, list, true);
	PostingOf(page)->list = list;
	PostingOf(page)->count = 0;
	PostingOf(page)->next = directory.head->first;
	put_entries(writer->lists, page, entries, codes, count);
	directory.head->first = block;
	directory.head->entries += count;
	if (fresh)
		directory.first->used++;
	else
		directory.first->spare = next_spare;
	FAULT_POINT("posting-page");
	change_finish(&change);
	FAULT_POINT("posting-paged");
}

/*
 * Add entries to a list's first page; returns the number for which it had room.
 */
static uint32
fill_page(ListWriter *writer, uint32 list, BlockNumber first, const PostingEntry *entries,
		  const unsigned char *codes, uint32 count)
{
	Buffer		buffer = lock_page(writer, first, PAGE_POSTING);
	const PostingPage *posting = PostingOf(BufferGetPage(buffer));
	PageChange	change;

	if (posting->list != list || posting->count > writer->lists->page_entries)
	{
		UnlockReleaseBuffer(buffer);
		report_corrupt(writer->index, first, "a list begins with a page that is not its own");
	}
	count = Min(count, writer->lists->page_entries - posting->count);
	if (count == 0)
	{
		UnlockReleaseBuffer(buffer);
		return 0;
	}
	change_begin(&change, writer);
	put_entries(writer->lists, change_page(&change, buffer, false), entries, codes, count);
	change_directory(&change, writer, list, false).head->entries += count;
	FAULT_POINT("posting-fill");
	change_finish(&change);
	return count;
}

void
list_append(ListWriter *writer, uint32 list, const PostingEntry *entries,
			const unsigned char *codes, uint32 count)
{
	while (count > 0)
	{
		ListHead	head = read_list_head(writer->index, list);
		uint32		done = 0;

		CHECK_FOR_INTERRUPTS();
		(void) checked_next(writer->index, writer->format, directory_block(list), head.first);
		if (head.first != InvalidBlockNumber)
			done = fill_page(writer, list, head.first, entries, codes, count);
		if (done == 0)
		{
			done = Min(count, writer->lists->page_entries);
			add_page(writer, list, entries, codes, done);
		}
		entries += done;
		codes += (Size) done * writer->lists->code_bytes;
		count -= done;
	}
}

void
list_note_added(ListWriter *writer, uint64 rows, double distance)
{
	PageChange	change;
	DirectoryChange directory;

	change_begin(&change, writer);
	directory = change_directory(&change, writer, 0, true);
	directory.first->added_rows += rows;
	directory.first->added_distance += distance;
	change_finish(&change);
}

/* ---- removing ---- */

/* The entries of a page that are to be removed. */
typedef struct PageHoles
{
	BlockNumber next;
	uint32		count;
	uint32		places[GPUANN_PAYLOAD / sizeof(PostingEntry)];	/* ascending */
} PageHoles;

/*
 * Find entries to remove on a page of a list. The callback is called without a
 * content lock, on a copy.
 */
static void
find_holes(const ListWriter *writer, uint32 list, BlockNumber block, EntryIsGone is_gone,
		   void *context, PageHoles *holes)
{
	Buffer		buffer =
		read_page(writer->index, block, PAGE_POSTING, BUFFER_LOCK_SHARE, false);
	PGAlignedBlock copy;
	const PostingPage *posting = PostingOf((Page) copy.data);

	memcpy(copy.data, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	if (posting->list != list || posting->count > writer->lists->page_entries)
		report_corrupt(writer->index, block, "a list leads to a page that is not its own");
	holes->next = checked_next(writer->index, writer->format, block, posting->next);
	holes->count = 0;
	for (uint32 i = 0; i < posting->count; i++)
		if (is_gone(context, &posting->entries[i]))
			holes->places[holes->count++] = i;
}

/* Move the last entry of a posting page to a place on another, or its own. */
static void
move_last(const ListFormat *lists, Page from, Page to, uint32 place)
{
	PostingPage *posting = PostingOf(from);
	uint32		last = --posting->count;

	if (from == to && last == place)
		return;
	PostingOf(to)->entries[place] = posting->entries[last];
	memcpy(posting_codes(lists, to) + (Size) place * lists->code_bytes,
		   posting_codes(lists, from) + (Size) last * lists->code_bytes, lists->code_bytes);
}

/* If a page of the list is empty now, make it spare. */
static void
release_if_empty(Page page, BlockNumber block, DirectoryChange *directory)
{
	PostingPage *posting = PostingOf(page);

	if (posting->count > 0)
		return;
	directory->head->first = posting->next;
	posting->list = NO_LIST;
	posting->next = directory->first->spare;
	directory->first->spare = block;
}

/*
 * Fill holes of a page with the last entries of the list's first page, which
 * has no holes or is this page, as far as that has entries. One WAL record.
 */
static void
fill_holes(const ListWriter *writer, uint32 list, BlockNumber block, PageHoles *holes)
{
	BlockNumber first = read_list_head(writer->index, list).first;
	Buffer		buffer = lock_page(writer, block, PAGE_POSTING);
	Buffer		first_buffer =
		first == block ? buffer : lock_page(writer, first, PAGE_POSTING);
	PageChange	change;
	DirectoryChange directory;
	Page		to,
				from;

	change_begin(&change, writer);
	to = from = change_page(&change, buffer, false);
	if (first != block)
		from = change_page(&change, first_buffer, false);
	directory = change_directory(&change, writer, list, true);
	while (holes->count > 0 && PostingOf(from)->count > 0)
	{
		move_last(writer->lists, from, to, holes->places[--holes->count]);
		directory.head->entries--;
	}
	release_if_empty(from, first, &directory);
	FAULT_POINT("posting-remove");
	change_finish(&change);
	FAULT_POINT("posting-removed");
}

uint32
list_remove(ListWriter *writer, uint32 list, EntryIsGone is_gone, void *context)
{
	BlockNumber block = read_list_head(writer->index, list).first;
	uint32		removed = 0;
	uint32		pages = 0;
	PageHoles	holes;

	(void) checked_next(writer->index, writer->format, directory_block(list), block);
	for (; block != InvalidBlockNumber; block = holes.next)
	{
		CHECK_FOR_INTERRUPTS();
		check_chain_length(writer->index, block, ++pages);
		find_holes(writer, list, block, is_gone, context, &holes);
		removed += holes.count;
		while (holes.count > 0)
			fill_holes(writer, list, block, &holes);
	}
	return removed;
}

/* ---- the first pages ---- */

void
list_init_page(const ListFormat *lists, Page page, BlockNumber block)
{
	DirectoryPage *directory;

	if (block > lists->directory_pages)
	{
		page_init(page, PAGE_CENTROID, 0);
		return;
	}
	page_init(page, PAGE_DIRECTORY, 0);
	directory = DirectoryOf(page);
	directory->spare = InvalidBlockNumber;
	for (uint32 i = 0; i < DIRECTORY_HEADS; i++)
		directory->heads[i].first = InvalidBlockNumber;
}
