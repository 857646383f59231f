/*
 * peek.c
 *		Reading pages for the planner, without errors.
 *
 * The planner considers all indexes of a query's tables, also those that the
 * query will not use, and while an index is damaged other plans must remain
 * possible. So no page may raise an error here; pages that cannot be read are
 * skipped. Pages are share-locked one at a time, as by scans; a writer holds a
 * content lock for one WAL record only.
 */
#include "postgres.h"

#include "page/pages.h"

#include "storage/bufmgr.h"
#include "storage/smgr.h"
#include "utils/rel.h"

#if PG_VERSION_NUM >= 160000
typedef PGIOAlignedBlock FileBlock;
#else
typedef PGAlignedBlock FileBlock;
#endif

/*
 * Whether ReadBuffer() would take a block as it is in the file.
 *
 * ReadBuffer() raises an error if header or checksum are invalid, and
 * RBM_ZERO_ON_ERROR would leave a zeroed page in shared buffers, visible to all
 * processes. So the block is read from the file first, without a buffer. That
 * races with a process that writes or extends the block concurrently: then a
 * valid block may be refused, which costs the planner a sample.
 */
static bool
file_block_is_sound(Relation index, BlockNumber block)
{
	FileBlock	page;

	smgrread(RelationGetSmgr(index), MAIN_FORKNUM, block, page.data);
#if PG_VERSION_NUM >= 180000
	{
		bool		checksum_failed;

		return PageIsVerified((Page) page.data, block, 0, &checksum_failed);
	}
#else
	return PageIsVerifiedExtended((Page) page.data, block, 0);
#endif
}

/*
 * Pin an existing block, unless that would raise an error.
 */
static Buffer
pin_quietly(Relation index, BlockNumber block)
{
	Buffer		found = PrefetchBuffer(index, MAIN_FORKNUM, block).recent_buffer;

#if PG_VERSION_NUM >= 160000
	if (BufferIsValid(found) && ReadRecentBuffer(index->rd_locator, MAIN_FORKNUM, block, found))
#else
	if (BufferIsValid(found) && ReadRecentBuffer(index->rd_node, MAIN_FORKNUM, block, found))
#endif
		return found;
	return file_block_is_sound(index, block) ? ReadBuffer(index, block) : InvalidBuffer;
}

Buffer
peek_page(Relation index, BlockNumber blocks, BlockNumber block, PageKind kind)
{
	Buffer		buffer = block < blocks ? pin_quietly(index, block) : InvalidBuffer;
	Page		page;

	if (!BufferIsValid(buffer))
		return InvalidBuffer;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	if (!PageIsNew(page) && page_fault(page, kind) == NULL)
		return buffer;
	UnlockReleaseBuffer(buffer);
	return InvalidBuffer;
}

const IndexFormat *
peek_format(Relation index)
{
	if (index->rd_amcache == NULL)
	{
		Buffer		buffer =
			peek_page(index, RelationGetNumberOfBlocks(index), GPUANN_META_BLOCK, PAGE_META);
		MetaPage	meta;

		if (!BufferIsValid(buffer))
			return NULL;
		memcpy(&meta, MetaPageOf(BufferGetPage(buffer)), sizeof(meta));
		UnlockReleaseBuffer(buffer);
		if (!index_cache_format(index, &meta))
			return NULL;
	}
	return index_format(index);
}

bool
peek_vector(Relation index, const IndexFormat *format, BlockNumber blocks, uint32 slot,
			void *vector)
{
	VectorPlace place = vector_place(format, slot);
	char	   *out = vector;
	uint32		left = format->vector_bytes;
	Buffer		buffer = peek_page(index, blocks, node_block(format, slot), PAGE_NODE);
	bool		live;

	if (!BufferIsValid(buffer))
		return false;
	live = NodeState(node_record(format, BufferGetPage(buffer), slot)) == NODE_LIVE;
	UnlockReleaseBuffer(buffer);
	while (live && left > 0)
	{
		uint32		part = Min(left, (uint32) GPUANN_PAYLOAD - place.offset);

		buffer = peek_page(index, blocks, place.block, PAGE_VECTOR);
		if (!BufferIsValid(buffer))
			return false;
		memcpy(out, VectorBytesOf(BufferGetPage(buffer)) + place.offset, part);
		UnlockReleaseBuffer(buffer);
		out += part;
		left -= part;
		vector_place_next(format, &place);
	}
	return live;
}

uint32
slots_of_file(const IndexFormat *format, BlockNumber blocks)
{
	uint64		superblocks = (uint64) blocks / format->superblock_pages + 1;
	uint64		least = 0;
	uint64		most = Min(superblocks * format->superblock_slots, ENGINE_MAX_SLOTS);

	/* Slots reach the pages of the file in their order. */
	while (least < most)
	{
		uint32		slot = (uint32) ((least + most) / 2);

		if (node_block(format, slot) < blocks && vector_place(format, slot).block < blocks)
			least = slot + 1;
		else
			most = slot;
	}
	return (uint32) least;
}
