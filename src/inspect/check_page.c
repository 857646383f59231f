/*
 * check_page.c
 *		Copies of an index's pages for gpuann_check, and noting what is wrong.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "inspect/check.h"

/* Note what is wrong. */
bool
violated(IndexCheck *check, BlockNumber block, uint32 slot, const char *what)
{
	check->bad_block = block;
	check->bad_slot = slot;
	check->what = what;
	return false;
}

/* Copy a page to check->page. */
bool
check_fetch(IndexCheck *check, BlockNumber block, PageKind kind)
{
	Buffer		buffer;

	CHECK_FOR_INTERRUPTS();
	if (block >= check->blocks)
	{
		check->blocks = RelationGetNumberOfBlocks(check->index);
		if (block >= check->blocks)
			return violated(check, block, NO_SLOT, "the file ends before this page");
	}
	buffer = read_page_in_bulk(check->index, block, kind, BUFFER_LOCK_SHARE, true, check->strategy);
	memcpy(check->page, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	if (PageIsNew((Page) check->page))
		return violated(check, block, NO_SLOT, "the page is all zero");
	return true;
}

/* Whether pd_lower covers this many bytes of the page's contents. */
bool
check_reaches(IndexCheck *check, Size bytes)
{
	PageHeader	header = (PageHeader) check->page;

	return header->pd_lower >= (char *) PageGetContents(check->page) + bytes - check->page &&
		header->pd_lower <= header->pd_upper && header->pd_upper == header->pd_special;
}
