/*
 * check_pending.c
 *		gpuann_check: the metapage, the pending list and its pages, the append
 *		point, the free list.
 *
 * The first look at the newest pending page is the snapshot: end of the list,
 * fresh slots, head of the free list, all of one moment. Later looks may find
 * more entries, pages that were spare then, slots that were free then; each of
 * them must be accounted for by an entry after that moment
 * (check_late_entries).
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "inspect/check.h"

#define SPARE_WALKS		1000	/* restarted because an insert took a spare pending page */

/* The metapage: what read_meta does not check. */
bool
check_metapage(IndexCheck *check)
{
	if (!check_fetch(check, GPUANN_META_BLOCK, PAGE_META))
		return false;
	if (!check_reaches(check, sizeof(MetaPage)))
		return violated(check, GPUANN_META_BLOCK, NO_SLOT, "the page's data reach beyond pd_lower");
	if (PageTailOf(check->page)->superblock != 0)
		return violated(check, GPUANN_META_BLOCK, NO_SLOT,
						"the page says it belongs to another superblock");
	read_meta(check->index, &check->meta);
	check->format = index_format(check->index);
	return true;
}

/*
 * Copy the pending page at block and check what every pending page must keep.
 */
static bool
fetch_pending(IndexCheck *check, BlockNumber block)
{
	const IndexFormat *format = check->format;
	PendingPage *list;

	if (!is_pending_block(format, block))
		return violated(check, block, NO_SLOT, "no pending page can be here");
	if (!check_fetch(check, block, PAGE_PENDING))
		return false;
	list = PendingPageOf(check->page);
	if (list->count > GPUANN_PENDING_CAPACITY)
		return violated(check, block, NO_SLOT, "the pending page holds more than it can");
	if (!check_reaches(check, offsetof(PendingPage, slots) + list->count * sizeof(uint32)))
		return violated(check, block, NO_SLOT, "the page's data reach beyond pd_lower");
	if (pending_block(format, PageTailOf(check->page)->superblock) != block)
		return violated(check, block, NO_SLOT, "the page says it belongs to another superblock");
	if (list->superblock_seq > check->meta.change_seq + 1)
		return violated(check, block, NO_SLOT,
						"the superblock is stamped with a change still to come");
	return true;
}

/* Keep the block of a page of the list. */
static void
keep_list(IndexCheck *check, BlockNumber block)
{
	if (check->nlists == check->list_room)
	{
		check->list_room = Max(check->list_room * 2, 64);
		check->lists = check->lists == NULL ? palloc(sizeof(BlockNumber) * check->list_room) :
			repalloc_huge(check->lists, sizeof(BlockNumber) * check->list_room);
	}
	check->lists[check->nlists++] = block;
}

/*
 * Walk the list from a page on to its newest, which is left in check->page:
 * states and positions. A closed page is full, so positions rise from page to
 * page, and a circle breaks their order.
 */
static bool
walk_chain(IndexCheck *check, BlockNumber block, bool first, uint64 expected)
{
	for (;; first = false)
	{
		PendingPage *list;

		if (!fetch_pending(check, block))
			return false;
		list = PendingPageOf(check->page);
		if (list->state != PENDING_CLOSED && list->state != PENDING_NEWEST)
			return violated(check, block, NO_SLOT, "a page of the list is spare");
		if (!first && list->first_position != expected)
			return violated(check, block, NO_SLOT, "pending positions are not contiguous");
		if (list->state == PENDING_CLOSED && list->count != GPUANN_PENDING_CAPACITY)
			return violated(check, block, NO_SLOT, "a page of the list is closed and not full");
		if (first && check->nlists == 0 &&
			(check->meta.trimmed_position < list->first_position ||
			 check->meta.trimmed_position > list->first_position + list->count))
			return violated(check, block, NO_SLOT,
							"the oldest pending page does not hold the trimmed position");
		keep_list(check, block);
		if (list->state == PENDING_NEWEST)
			return list->next == InvalidBlockNumber ||
				violated(check, block, NO_SLOT, "the newest pending page has a successor");
		expected = list->first_position + list->count;
		block = list->next;
	}
}

/* The list as it is now, from its oldest page to its newest: the snapshot. */
bool
check_pending_chain(IndexCheck *check)
{
	if (!walk_chain(check, check->meta.oldest_pending, true, 0))
		return false;
	check->append = PendingPageOf(check->page)->append;
	check->end = PendingPageOf(check->page)->first_position + PendingPageOf(check->page)->count;
	check->blocks = RelationGetNumberOfBlocks(check->index);
	if (check->meta.linked_position > check->end)
		return violated(check, GPUANN_META_BLOCK, NO_SLOT,
						"more of the list is linked than there is");
	for (uint32 i = 0; i < check->nlists; i++)
		if (check->lists[i] == check->meta.newest_pending)
			return true;
	return violated(check, GPUANN_META_BLOCK, NO_SLOT,
					"the list does not come by the page that was its newest");
}

/* The newest pending page's account of superblocks, slots and free list. */
bool
check_append_point(IndexCheck *check)
{
	const AppendPoint *append = &check->append;
	BlockNumber newest = check->lists[check->nlists - 1];

	if (append->superblocks < 1 ||
		superblock_start(check->format, 0) +
				(uint64) (append->superblocks - 1) * check->format->superblock_pages >=
			check->blocks)
		return violated(check, newest, NO_SLOT, "there are more superblocks than the file holds");
	if (append->next_fresh > ENGINE_MAX_SLOTS ||
		append->next_fresh > (uint64) append->superblocks * check->format->superblock_slots)
		return violated(check, newest, NO_SLOT, "the next fresh slot is beyond the superblocks");
	if (append->free_count > append->next_fresh ||
		(append->free_count == 0) != (append->free_head == NO_SLOT))
		return violated(check, newest, NO_SLOT, "the free list is not consistent");
	if (check->end - check->meta.trimmed_position > append->next_fresh)
		return violated(check, newest, NO_SLOT, "the list is longer than there are slots");
	if (!(append->least_norm >= 0 && append->most_norm >= 0))	/* nor NaN */
		return violated(check, newest, NO_SLOT, "the range of norms is not consistent");
	return true;
}

/*
 * Note a pending page; false if it was met before. Superblocks that came later
 * are not looked at.
 */
static bool
see_pending_page(IndexCheck *check, BlockNumber block)
{
	uint32		superblock = PageTailOf(check->page)->superblock;

	if (superblock >= check->append.superblocks)
		return true;
	if (check->list_seen[superblock])
		return violated(check, block, NO_SLOT, "the pending page is met twice");
	check->list_seen[superblock] = true;
	check->superblock_seq[superblock] = PendingPageOf(check->page)->superblock_seq;
	return true;
}

/* The entries of the list up to the snapshot's end. */
bool
check_pending_entries(IndexCheck *check)
{
	for (uint32 i = 0; i < check->nlists; i++)
	{
		PendingPage *list;

		if (!fetch_pending(check, check->lists[i]) || !see_pending_page(check, check->lists[i]))
			return false;
		list = PendingPageOf(check->page);
		for (uint32 j = 0; j < list->count; j++)
		{
			uint64		position = list->first_position + j;
			uint32		slot = list->slots[j];

			if (position < check->meta.trimmed_position || position >= check->end)
				continue;
			if (slot >= check->append.next_fresh)
				return violated(check, check->lists[i], slot,
								"the list names a slot that does not exist");
			if (check->slots[slot] & SLOT_LISTED)
				return violated(check, check->lists[i], slot, "the list names a slot twice");
			check->slots[slot] |=
				SLOT_LISTED | (position >= check->meta.linked_position ? SLOT_PENDING : 0);
		}
	}
	return true;
}

/*
 * Go on along the list to its newest page, which is left in check->page.
 * *moved: there were more pages.
 */
static bool
follow_list(IndexCheck *check, bool *moved)
{
	uint32		known = check->nlists;
	BlockNumber block = check->lists[--check->nlists];
	uint64		first;

	*moved = false;
	if (!fetch_pending(check, block))
		return false;
	first = PendingPageOf(check->page)->first_position;
	if (!walk_chain(check, block, false, first))
		return false;
	*moved = check->nlists > known;
	return true;
}

/*
 * Walk the spare pending pages. *taken: one of them is not spare, and the
 * append point has moved since spare_head was read, so an insert took it.
 */
static bool
walk_spare_lists(IndexCheck *check, BlockNumber head, bool *taken)
{
	uint32		superblocks = check->append.superblocks;
	bool	   *seen = palloc_extended(superblocks, MCXT_ALLOC_HUGE);
	BlockNumber block = head;
	uint32		steps = 0;
	bool		right = true;

	memcpy(seen, check->list_seen, superblocks);
	*taken = false;
	while (block != InvalidBlockNumber && right)
	{
		right = fetch_pending(check, block);
		if (right && (PendingPageOf(check->page)->state != PENDING_SPARE ||
					  PendingPageOf(check->page)->count != 0))
			right = violated(check, block, NO_SLOT, "a spare pending page is in use");
		if (right)
		{
			BlockNumber next = PendingPageOf(check->page)->next;

			right = see_pending_page(check, block) ||
				violated(check, block, NO_SLOT, "the spare pending pages form a circle");
			if (right && ++steps > check->blocks / check->format->superblock_pages + 1)
				right = violated(check, block, NO_SLOT, "the spare pending pages form a circle");
			block = next;
		}
	}
	if (!right)
	{
		IndexCheck	violation = *check;
		bool		moved;

		if (!follow_list(check, &moved))
			return false;
		if (moved)
			memcpy(check->list_seen, seen, superblocks);
		else
			violated(check, violation.bad_block, violation.bad_slot, violation.what);
		*taken = moved;
	}
	pfree(seen);
	return right;
}

/*
 * Spare pending pages; with them every superblock's pending page has been met.
 *
 * An insert takes spare pages from the head of their list, and then they are
 * part of the list of entries. So each walk begins with the append point of
 * now, and the pages that joined the list since the walk before are noted
 * first.
 */
bool
check_spare_pending(IndexCheck *check)
{
	uint32		met = check->nlists;
	bool		taken = true;

	for (int walks = 0; taken; walks++)
	{
		BlockNumber head;
		bool		moved;

		if (walks == SPARE_WALKS)
			return violated(check, check->append.spare_head, NO_SLOT,
							"the spare pending pages do not end");
		if (!follow_list(check, &moved))
			return false;
		head = PendingPageOf(check->page)->append.spare_head;
		for (; met < check->nlists; met++)
			if (!fetch_pending(check, check->lists[met]) ||
				!see_pending_page(check, check->lists[met]))
				return false;
		if (!walk_spare_lists(check, head, &taken) && !taken)
			return false;
	}
	for (uint32 superblock = 0; superblock < check->append.superblocks; superblock++)
		if (!check->list_seen[superblock])
			return violated(check, pending_block(check->format, superblock), NO_SLOT,
							"the pending page is neither in use nor spare");
	return true;
}

/* ---- after the node pages ---- */

/*
 * One entry that came after the snapshot: its slot was fresh then, or free and
 * nowhere listed.
 */
static bool
late_entry(IndexCheck *check, BlockNumber block, uint32 slot, uint32 next_fresh)
{
	uint8		known;

	if (slot >= next_fresh)
		return violated(check, block, slot, "the list names a slot that does not exist");
	if (slot >= check->append.next_fresh)
		return true;
	known = check->slots[slot];
	if (known & SLOT_LISTED)
		return violated(check, block, slot, "the list names a slot twice");
	if ((known & SLOT_LINKED) != 0 ||
		((known & NODE_STATE_MASK) != NODE_LIVE && (known & NODE_STATE_MASK) != NODE_FREE))
		return violated(check, block, slot, "the list names a slot that was in use already");
	check->slots[slot] |= SLOT_LISTED | SLOT_PENDING;
	return true;
}

/*
 * Entries appended since the snapshot, read after the node pages: an insert
 * makes its node record and its list entry visible together, so every slot seen
 * on node pages is listed by now. With them every live slot is linked or
 * pending.
 */
bool
check_late_entries(IndexCheck *check)
{
	uint32		next_fresh;
	uint64		end;
	bool		moved;

	if (!follow_list(check, &moved))
		return false;
	/* The list continues to grow, into slots that are fresh now. */
	next_fresh = PendingPageOf(check->page)->append.next_fresh;
	end = PendingPageOf(check->page)->first_position + PendingPageOf(check->page)->count;
	check->least_norm = PendingPageOf(check->page)->append.least_norm;
	check->most_norm = PendingPageOf(check->page)->append.most_norm;
	if (!(check->least_norm <= check->append.least_norm &&
		  check->most_norm >= check->append.most_norm))
		return violated(check, check->lists[check->nlists - 1], NO_SLOT,
						"the range of norms has become narrower");
	if (next_fresh < check->append.next_fresh)
		return violated(check, check->lists[check->nlists - 1], NO_SLOT,
						"the next fresh slot has gone back");
	if (check->last_used >= next_fresh && check->last_used > 0)
		return violated(check, node_block(check->format, check->last_used), check->last_used,
						"a slot beyond the next fresh one holds something");
	for (uint32 i = 0; i < check->nlists; i++)
	{
		BlockNumber block = check->lists[i];
		PendingPage *list;

		if (!fetch_pending(check, block))
			return false;
		list = PendingPageOf(check->page);
		for (uint32 j = 0; j < list->count; j++)
		{
			uint64		position = list->first_position + j;

			if (position >= check->end && position < end &&
				!late_entry(check, block, list->slots[j], next_fresh))
				return false;
		}
	}
	for (uint32 slot = 0; slot < check->append.next_fresh; slot++)
	{
		uint8		known = check->slots[slot];

		if ((known & NODE_STATE_MASK) == NODE_LIVE && (known & (SLOT_LINKED | SLOT_PENDING)) == 0)
			return violated(check, node_block(check->format, slot), slot,
							"a live slot is neither linked nor pending");
	}
	return true;
}

/*
 * The free list of the snapshot: as long as it says, without a circle, and
 * nothing free is missing from it. A slot taken from it since keeps its place
 * in the chain, because an insert leaves its graph row alone; it is pending
 * now.
 */
bool
check_free_list(IndexCheck *check)
{
	uint32		slot = check->append.free_head;
	uint32		count = 0;
	BlockNumber newest = check->lists[check->nlists - 1];

	while (slot != NO_SLOT)
	{
		uint8		known;

		CHECK_FOR_INTERRUPTS();
		if (slot >= check->append.next_fresh)
			return violated(check, newest, slot, "the free list names a slot that does not exist");
		known = check->slots[slot];
		if (known & SLOT_ON_FREE_LIST)
			return violated(check, node_block(check->format, slot), slot,
							"the free list is a circle");
		if ((known & NODE_STATE_MASK) != NODE_FREE &&
			(known & (NODE_STATE_MASK | SLOT_PENDING)) != (NODE_LIVE | SLOT_PENDING))
			return violated(check, node_block(check->format, slot), slot,
							"a slot of the free list is not free");
		check->slots[slot] |= SLOT_ON_FREE_LIST;
		count++;
		(void) read_node(check->index, check->format, slot, check->node);
		slot = check->node->neighbours[0];
	}
	if (count != check->append.free_count)
		return violated(check, newest, NO_SLOT, "the free list is not as long as it says");
	for (slot = 0; slot < check->append.next_fresh; slot++)
		if ((check->slots[slot] & (NODE_STATE_MASK | SLOT_ON_FREE_LIST)) == NODE_FREE)
			return violated(check, node_block(check->format, slot), slot,
							"a free slot is not on the free list");
	return true;
}

/* ---- standbys ---- */

/*
 * Whether the linker and VACUUM have changed nothing since check->meta was
 * read. Every change of theirs to a node page stamps the superblock's pending
 * page above that change_seq in the same record, and each slice ends with the
 * metapage; so does every trim.
 */
bool
check_was_quiet(IndexCheck *check)
{
	MetaPage	now;
	BlockNumber block;

	if (check->format == NULL)
		return true;
	check->blocks = RelationGetNumberOfBlocks(check->index);
	for (uint32 superblock = 0; (block = pending_block(check->format, superblock)) < check->blocks;
		 superblock++)
	{
		Buffer		buffer = read_page_in_bulk(check->index, block, PAGE_PENDING, BUFFER_LOCK_SHARE,
										  true, check->strategy);
		bool		stamped = !PageIsNew(BufferGetPage(buffer)) &&
			PendingPageOf(BufferGetPage(buffer))->superblock_seq > check->meta.change_seq;

		UnlockReleaseBuffer(buffer);
		CHECK_FOR_INTERRUPTS();
		if (stamped)
			return false;
	}
	read_meta(check->index, &now);
	return now.change_seq == check->meta.change_seq &&
		   now.linked_position == check->meta.linked_position &&
		   now.trimmed_position == check->meta.trimmed_position &&
		   now.oldest_pending == check->meta.oldest_pending && now.nonce == check->meta.nonce;
}
