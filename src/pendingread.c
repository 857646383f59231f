/*
 * pendingread.c
 *		Reading entries of the pending list, page after page, while others append and trim.
 */
#include "postgres.h"

#include "pending.h"

#include "miscadmin.h"
#include "utils/memutils.h"

/* A walk along the list. */
typedef struct ListWalk
{
	Relation	index;
	const IndexFormat *format;
	uint32		next_fresh;
	uint64		position;		/* the next one wanted */
	uint64		to;
	uint32	   *slots;
	uint32		count;
} ListWalk;

/*
 * Take what is wanted from the pages that start at block, holding one lock at a time. False when a page is not what it should be:
 * trimmed meanwhile, or damaged.
 */
static bool
walk_list(ListWalk *walk, BlockNumber block)
{
	uint64		expected = 0;
	bool		first = true;

	while (walk->position < walk->to)
	{
		Buffer		buffer;
		ListPage   *list;
		uint64		end;
		bool		newest;

		CHECK_FOR_INTERRUPTS();
		if (!is_list_block(walk->format, block))
			return false;
		buffer = read_page(walk->index, block, PAGE_LIST, BUFFER_LOCK_SHARE, false);
		list = ListPageOf(BufferGetPage(buffer));
		end = list->first_position + list->count;
		newest = list->state == LIST_NEWEST;
		if ((list->state != LIST_CLOSED && !newest) || list->count > GPUANN_LIST_CAPACITY ||
			list->first_position > walk->position || (!first && list->first_position != expected) ||
			(end < walk->to && newest) || (list->count == 0 && !newest))
		{
			UnlockReleaseBuffer(buffer);
			return false;
		}
		for (; walk->position < Min(end, walk->to); walk->position++)
		{
			uint32		slot = list->slots[walk->position - list->first_position];

			if (slot >= walk->next_fresh)
				report_corrupt(walk->index, block, "the list names a slot that does not exist");
			walk->slots[walk->count++] = slot;
		}
		block = list->next;
		UnlockReleaseBuffer(buffer);
		expected = end;
		first = false;
	}
	return true;
}

/*
 * Read the slots at positions [from, to).
 */
bool
list_read(Relation index, const IndexFormat *format, const ListBounds *bounds, uint64 from, uint64 to,
		  uint32 **slots, uint32 *count)
{
	BlockNumber oldest = bounds->oldest_list;
	uint64		trimmed = bounds->trimmed;
	ListWalk	walk = {.index = index, .format = format, .next_fresh = bounds->next_fresh, .position = from, .to = to};

	*slots = NULL;
	*count = 0;
	if (from < trimmed || to > bounds->end)
		return false;
	if (from >= to)
		return true;
	/* A listed slot is not listed again. */
	if (to - from > bounds->next_fresh)
		report_corrupt(index, GPUANN_META_BLOCK, "the pending list is longer than there are slots");
	walk.slots = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(uint32) * (to - from));

	while (!walk_list(&walk, oldest))
	{
		MetaPage	meta;

		read_meta(index, &meta);
		if (from < meta.trimmed_position)
		{
			pfree(walk.slots);
			return false;
		}
		/* Trimming moved the beginning, but not past us: start over there. */
		if (meta.trimmed_position == trimmed && meta.oldest_list == oldest)
			report_corrupt(index, oldest, "the list pages do not lead to the newest");
		trimmed = meta.trimmed_position;
		oldest = meta.oldest_list;
		walk.position = from;
		walk.count = 0;
	}
	*slots = walk.slots;
	*count = walk.count;
	return true;
}
