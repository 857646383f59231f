/*
 * pending_read.c
 *		Read entries of the pending list during concurrent appends and trims.
 */
#include "postgres.h"

#include "page/pending.h"

#include "miscadmin.h"
#include "utils/memutils.h"

/* A traversal of the list. */
typedef struct PendingWalk
{
	Relation	index;
	const IndexFormat *format;
	uint32		next_fresh;
	uint64		position;		/* next position to read */
	uint64		to;
	uint32	   *slots;
	uint32		count;
} PendingWalk;

/*
 * Read entries from the pages that start at block, locking one page at a time.
 * Returns false if a page is not as expected: trimmed meanwhile, or damaged.
 */
static bool
walk_pending_pages(PendingWalk *walk, BlockNumber block)
{
	uint64		expected = 0;
	bool		first = true;

	while (walk->position < walk->to)
	{
		Buffer		buffer;
		PendingPage *pending;
		uint64		end;
		bool		newest;

		CHECK_FOR_INTERRUPTS();
		if (!is_pending_block(walk->format, block))
			return false;
		buffer = read_page(walk->index, block, PAGE_PENDING, BUFFER_LOCK_SHARE, false);
		pending = PendingPageOf(BufferGetPage(buffer));
		end = pending->first_position + pending->count;
		newest = pending->state == PENDING_NEWEST;
		if ((pending->state != PENDING_CLOSED && !newest) ||
			pending->count > GPUANN_PENDING_CAPACITY ||
			pending->first_position > walk->position ||
			(!first && pending->first_position != expected) ||
			(end < walk->to && newest) || (pending->count == 0 && !newest))
		{
			UnlockReleaseBuffer(buffer);
			return false;
		}
		for (; walk->position < Min(end, walk->to); walk->position++)
		{
			uint32		slot = pending->slots[walk->position - pending->first_position];

			if (slot >= walk->next_fresh)
				report_corrupt(walk->index, block, "the list names a slot that does not exist");
			walk->slots[walk->count++] = slot;
		}
		block = pending->next;
		UnlockReleaseBuffer(buffer);
		expected = end;
		first = false;
	}
	return true;
}

/*
 * Read the entries. Returns false if the list is not as expected, which is no
 * error if it was trimmed since the bounds were read.
 *
 * The beginning of the list is usually read before its end. If much is trimmed
 * in between, slots have been freed, reused and listed again, so that there are
 * more positions than slots. Entries that have not been trimmed name different
 * slots, because a slot is listed again only after its previous entry was
 * trimmed.
 */
static bool
collect_entries(PendingWalk *walk, BlockNumber oldest)
{
	if (walk->to - walk->position > walk->next_fresh)
		return false;
	walk->slots =
		MemoryContextAllocHuge(CurrentMemoryContext, sizeof(uint32) * (walk->to - walk->position));
	return walk_pending_pages(walk, oldest);
}

static void
discard_entries(PendingWalk *walk)
{
	if (walk->slots != NULL)
		pfree(walk->slots);
	walk->slots = NULL;
	walk->count = 0;
}

/*
 * Read the slots at positions [from, to).
 *
 * An inconsistency is reported as damage only if the metapage still agrees with
 * the caller's bounds, that is, nothing was trimmed meanwhile.
 */
bool
pending_read(Relation index, const IndexFormat *format, const PendingBounds *bounds, uint64 from,
			 uint64 to, uint32 **slots, uint32 *count)
{
	BlockNumber oldest = bounds->oldest_pending;
	uint64		trimmed = bounds->trimmed;
	PendingWalk walk = {.index = index,
						.format = format,
						.next_fresh = bounds->next_fresh,
						.position = from,
						.to = to};

	*slots = NULL;
	*count = 0;
	if (from < trimmed || to > bounds->end)
		return false;
	if (from >= to)
		return true;

	while (!collect_entries(&walk, oldest))
	{
		bool		too_long = walk.slots == NULL;
		MetaPage	meta;

		read_meta(index, &meta);
		if (from < meta.trimmed_position)
		{
			discard_entries(&walk);
			return false;
		}
		if (meta.trimmed_position == trimmed && meta.oldest_pending == oldest)
			report_corrupt(index, too_long ? GPUANN_META_BLOCK : oldest,
						   too_long ? "the pending list is longer than there are slots"
									: "the pending pages do not lead to the newest");
		/* trimmed, but not past `from`: start again at the new beginning */
		trimmed = meta.trimmed_position;
		oldest = meta.oldest_pending;
		discard_entries(&walk);
		walk.position = from;
	}
	*slots = walk.slots;
	*count = walk.count;
	return true;
}
