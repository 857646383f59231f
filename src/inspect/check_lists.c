/*
 * check_lists.c
 *		gpuann_check: verify directory, centroids and chains of posting pages
 *		against the node records.
 *
 * An interrupted pass leaves entries of rows that are still pending, and later
 * second entries of slots; both are valid. An interrupted VACUUM leaves dead
 * rows without entries.
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/memutils.h"

#include "engine/bits.h"
#include "inspect/check.h"
#include "lists/postings.h"

/* State of the check of lists. */
typedef struct ListsCheck
{
	IndexCheck *check;
	ListFormat	lists;
	BlockNumber spare;			/* from the directory */
	uint32		used;
	ListHead   *heads;
	unsigned char *seen;		/* bit per posting page that was ever used */
	uint32		nseen;
	unsigned char *entered;		/* bit per slot: it has an entry of its version */
} ListsCheck;

/* The number of a posting page. */
static uint32
posting_number(const IndexFormat *format, BlockNumber block)
{
	uint32		place = block - 1 - format->seed_pages;

	return place / format->superblock_pages * format_postings(format) +
		place % format->superblock_pages - 1;
}

/* A list number, and the version, of a linked slot: kept for its entry. */
bool
check_list_number(IndexCheck *check, uint32 slot, const NodeCopy *node)
{
	if (check->list_of == NULL)
	{
		Size		bytes = sizeof(uint32) * ((Size) check->append.next_fresh + 1);

		list_format_read(check->index, check->format, &check->list_format);
		check->list_of = palloc_extended(bytes, MCXT_ALLOC_HUGE);
		check->version_of = palloc_extended(bytes, MCXT_ALLOC_HUGE);
	}
	if (slot >= check->append.next_fresh)
		return true;
	check->list_of[slot] = NO_LIST;
	check->version_of[slot] = node->version;
	if ((check->slots[slot] & SLOT_LINKED) == 0)
		return true;
	if (node->neighbours[0] >= check->list_format.lists)
		return violated(check, node_block(check->format, slot), slot,
						"the slot is of a list that does not exist");
	check->list_of[slot] = node->neighbours[0];
	return true;
}

/* ---- the pages before the first superblock ---- */

/* Fetch one of them. */
static bool
fetch_head(IndexCheck *check, BlockNumber block, PageKind kind)
{
	if (!check_fetch(check, block, kind))
		return false;
	if (!check_reaches(check, GPUANN_PAYLOAD))
		return violated(check, block, NO_SLOT, "the page's data reach beyond pd_lower");
	if (PageTailOf(check->page)->superblock != 0)
		return violated(check, block, NO_SLOT, "the page says it belongs to another superblock");
	return true;
}

/* Copy the directory. */
static bool
take_directory(ListsCheck *state)
{
	IndexCheck *check = state->check;
	uint64		postings = (uint64) check->append.superblocks * format_postings(check->format);

	state->heads = palloc(sizeof(ListHead) * state->lists.lists);
	for (uint32 list = 0; list < state->lists.lists; list++)
	{
		DirectoryPage *page = DirectoryOf((Page) check->page);

		if (list % DIRECTORY_HEADS == 0 &&
			!fetch_head(check, directory_block(list), PAGE_DIRECTORY))
			return false;
		if (list == 0)
		{
			state->spare = page->spare;
			state->used = page->used;
			if (!(page->added_distance >= 0))
				return violated(check, 1, NO_SLOT, "the distance of added rows is not a number");
		}
		state->heads[list] = page->heads[list % DIRECTORY_HEADS];
	}
	if (state->used > postings)
		return violated(check, 1, NO_SLOT, "more posting pages are in use than there are");
	state->seen = palloc0(state->used / 8 + 1);
	return true;
}

/* Centroids and codewords are numbers. */
static bool
check_centroids(ListsCheck *state)
{
	IndexCheck *check = state->check;
	BlockNumber first = centroid_start(&state->lists);

	for (BlockNumber block = first; block <= check->format->seed_pages; block++)
	{
		const float *floats = (const float *) PageGetContents((Page) check->page);

		if (!fetch_head(check, block, PAGE_CENTROID))
			return false;
		for (uint32 i = 0; i < GPUANN_PAYLOAD / sizeof(float); i++)
			if (!isfinite(floats[i]))
				return violated(check, block, NO_SLOT,
								"a centroid or codeword is not finite");
	}
	return true;
}

/* ---- chains ---- */

/* Fetch a posting page that no chain has had. */
static bool
fetch_posting(ListsCheck *state, BlockNumber block, uint32 list)
{
	IndexCheck *check = state->check;
	const PostingPage *posting = PostingOf((Page) check->page);
	uint32		number;

	if (!is_posting_block(check->format, block) ||
		(number = posting_number(check->format, block)) >= state->used)
		return violated(check, block, NO_SLOT, "no posting page can be here");
	if (bit_is_set(state->seen, number))
		return violated(check, block, NO_SLOT, "a posting page is chained twice");
	bit_set(state->seen, number);
	state->nseen++;
	if (!check_fetch(check, block, PAGE_POSTING))
		return false;
	if (PageTailOf(check->page)->superblock != number / format_postings(check->format))
		return violated(check, block, NO_SLOT, "the page says it belongs to another superblock");
	if (posting->list != list)
		return violated(check, block, NO_SLOT, "the posting page is another list's");
	if (posting->count > state->lists.page_entries)
		return violated(check, block, NO_SLOT, "the posting page holds more than it can");
	if (!check_reaches(check, posting->count == 0 ? offsetof(PostingPage, entries) :
					   codes_offset(&state->lists) +
					   (Size) posting->count * state->lists.code_bytes))
		return violated(check, block, NO_SLOT, "the page's data reach beyond pd_lower");
	return true;
}

/* One entry. */
static bool
judge_entry(ListsCheck *state, BlockNumber block, uint32 list, const PostingEntry *entry)
{
	IndexCheck *check = state->check;
	uint8		known;
	uint16		slot_state;

	if (entry->slot >= check->append.next_fresh)
		return violated(check, block, entry->slot, "a list has a slot that does not exist");
	known = check->slots[entry->slot];
	slot_state = known & NODE_STATE_MASK;
	if (slot_state != NODE_LIVE && slot_state != NODE_DEAD)
		return violated(check, block, entry->slot,
						"a list has a slot that is detached, free or absent");
	if ((known & SLOT_LINKED) == 0)
	{
		if (slot_state == NODE_LIVE && (known & SLOT_PENDING) == 0)
			return violated(check, block, entry->slot,
							"a list has a slot that is neither linked nor pending");
		return true;
	}
	if (check->list_of[entry->slot] != list)
		return violated(check, block, entry->slot, "a slot is in another list than its own");
	if (slot_state == NODE_LIVE && check->version_of[entry->slot] == entry->version)
		bit_set(state->entered, entry->slot);
	return true;
}

/* One list. Its pages are full, but for the first. */
static bool
check_chain(ListsCheck *state, uint32 list)
{
	IndexCheck *check = state->check;
	BlockNumber block = state->heads[list].first;
	uint64		entries = 0;

	while (block != InvalidBlockNumber)
	{
		const PostingPage *posting = PostingOf((Page) check->page);
		bool		first = block == state->heads[list].first;

		if (!fetch_posting(state, block, list))
			return false;
		if (posting->count == 0 || (!first && posting->count < state->lists.page_entries))
			return violated(check, block, NO_SLOT, "a posting page that is not the first has room");
		for (uint32 i = 0; i < posting->count; i++)
			if (!judge_entry(state, block, list, &posting->entries[i]))
				return false;
		entries += posting->count;
		block = posting->next;
	}
	if (entries != state->heads[list].entries)
		return violated(check, directory_block(list), NO_SLOT,
						"a list has not as many entries as the directory says");
	return true;
}

/* Spare posting pages; then every page that was ever used is in a chain. */
static bool
check_spare_postings(ListsCheck *state)
{
	IndexCheck *check = state->check;
	BlockNumber block = state->spare;

	while (block != InvalidBlockNumber)
	{
		const PostingPage *posting = PostingOf((Page) check->page);

		if (!fetch_posting(state, block, NO_LIST))
			return false;
		if (posting->count != 0)
			return violated(check, block, NO_SLOT, "a spare posting page has entries");
		block = posting->next;
	}
	if (state->nseen != state->used)
		return violated(check, 1, NO_SLOT, "a posting page is in no list, and not spare");
	return true;
}

/* Every live slot that has a list has an entry there. */
static bool
check_entered(ListsCheck *state)
{
	IndexCheck *check = state->check;

	for (uint32 slot = 0; slot < check->append.next_fresh; slot++)
	{
		uint8		known = check->slots[slot];

		if ((known & NODE_STATE_MASK) == NODE_LIVE && (known & SLOT_LINKED) != 0 &&
			!bit_is_set(state->entered, slot))
			return violated(check, node_block(check->format, slot), slot,
							"a slot is missing from its list");
	}
	return true;
}

bool
check_lists(IndexCheck *check)
{
	ListsCheck	state = {.check = check};

	if (!check_fetch(check, GPUANN_META_BLOCK, PAGE_META))
		return false;
	if (!check_reaches(check, LIST_FORMAT_END))
		return violated(check, GPUANN_META_BLOCK, NO_SLOT, "the page's data reach beyond pd_lower");
	list_format_read(check->index, check->format, &state.lists);
	if (!take_directory(&state) || !check_centroids(&state))
		return false;
	state.entered = palloc_extended((Size) check->append.next_fresh / 8 + 1,
									MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (uint32 list = 0; list < state.lists.lists; list++)
		if (!check_chain(&state, list))
			return false;
	return check_spare_postings(&state) && check_entered(&state);
}
