/*
 * hotblocks.c
 *		Blocks that a graph search reads again and again.
 *
 * A graph search would spend much of its time looking blocks up in the buffer table. We remember where blocks were; the buffer itself
 * tells whether it still holds this one. What is remembered may be wrong at any time.
 */
#include "hotblocks.h"

#include "executor/instrument.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"

#define HOT_MIN		8192		/* blocks remembered by a process: at least, ... */
#define HOT_MAX		1048576		/* ... and at most: 8 GB of index, in 4 MB */

/* Shared by all indexes that this process searches. */
static Buffer *hot_hints = NULL;
static uint32 hot_count = 0;

/*
 * Make room for an index of so many blocks.
 */
static void
hot_reserve(BlockNumber blocks)
{
	uint32		wanted = pg_nextpower2_32(Max(Min(Min(blocks, (uint32) NBuffers), HOT_MAX), HOT_MIN));

	if (wanted <= hot_count)
		return;
	if (hot_hints != NULL)
	{
		hot_count = 0;
		pfree(hot_hints);
		hot_hints = NULL;
	}
	hot_hints = MemoryContextAllocZero(TopMemoryContext, sizeof(Buffer) * wanted);
	hot_count = wanted;
}

/*
 * Begin a search.
 */
void
hot_begin(HotBlocks *hot, Relation index, BlockNumber blocks)
{
	memset(hot, 0, sizeof(*hot));
	hot->index = index;
	if (RelationUsesLocalBuffers(index))
		return;
	hot_reserve(blocks);
	hot->hints = hot_hints;
	hot->mask = hot_count - 1;
#if PG_VERSION_NUM >= 160000
	InitBufferTag(&hot->tag, &index->rd_locator, MAIN_FORKNUM, 0);
	hot->key = index->rd_locator.relNumber * 0x9E3779B1u;
#else
	INIT_BUFFERTAG(hot->tag, index->rd_node, MAIN_FORKNUM, 0);
	hot->key = index->rd_node.relNode * 0x9E3779B1u;
#endif
}

/*
 * The bit of a lock's state that says that somebody has it to himself: versions of PostgreSQL differ in it, so a lock of our own tells.
 */
static uint32
exclusive_bit(void)
{
	static uint32 bit = 0;

	if (bit == 0)
	{
		LWLock		lock;
		uint32		before;

		LWLockInitialize(&lock, LWTRANCHE_BUFFER_CONTENT);
		before = pg_atomic_read_u32(&lock.state);
		LWLockAcquire(&lock, LW_EXCLUSIVE);
		bit = before ^ pg_atomic_read_u32(&lock.state);
		LWLockRelease(&lock);
	}
	return bit;
}

/*
 * Whether somebody may be changing a page.
 */
static inline bool
is_changing(Buffer buffer)
{
	LWLock	   *lock = BufferDescriptorGetContentLock(GetBufferDescriptor(buffer - 1));

	return (pg_atomic_read_u32(&lock->state) & exclusive_bit()) != 0;
}

/*
 * Begin a look.
 */
const char *
hot_look(HotBlocks *hot, BlockNumber block, PageLook *look)
{
	Buffer		buffer = hot_hint(hot, block);
	const char *page = RelationNeedsWAL(hot->index) ? hot_peek(hot, block, buffer) : NULL;

	if (page == NULL || is_changing(buffer))
		return NULL;
	pg_read_barrier();
	*look = (PageLook) {buffer, block, PageGetLSN((Page) page)};
	pg_read_barrier();
	return page;
}

/*
 * End it: first whether somebody changes the page, then its LSN, for who has changed it set that before he let go.
 */
bool
hot_looked(HotBlocks *hot, const PageLook *look)
{
	pg_read_barrier();
	if (is_changing(look->buffer))
		return false;
	pg_read_barrier();
	return PageGetLSN(BufferGetPage(look->buffer)) == look->lsn && hot_peeked(hot, look->block, look->buffer);
}

/*
 * End a search.
 */
void
hot_end(HotBlocks *hot)
{
	pgBufferUsage.shared_blks_hit += hot->peeked;
	if (pgstat_should_count_relation(hot->index))
	{
#if PG_VERSION_NUM >= 160000
		hot->index->pgstat_info->counts.blocks_fetched += hot->peeked;
		hot->index->pgstat_info->counts.blocks_hit += hot->peeked;
#else
		hot->index->pgstat_info->t_counts.t_blocks_fetched += hot->peeked;
		hot->index->pgstat_info->t_counts.t_blocks_hit += hot->peeked;
#endif
	}
	hot->peeked = 0;
}

/*
 * Begin to read a block, if we do not know where it is and the user lets several reads be under way: one look-up in the table finds it,
 * or starts the kernel's read.
 */
void
hot_prefetch(HotBlocks *hot, BlockNumber block)
{
	Buffer		hint = hot_hint(hot, block);
	PrefetchBufferResult begun;

	hot->tag.blockNum = block;
	if (hot->hints == NULL || effective_io_concurrency < 2 || (hint != InvalidBuffer && hot_holds(hot, hint)))
		return;
	begun = PrefetchBuffer(hot->index, MAIN_FORKNUM, block);
	if (BufferIsValid(begun.recent_buffer))
		hot->hints[(block + hot->key) & hot->mask] = begun.recent_buffer;
}

/*
 * Pin a block.
 *
 * ReadRecentBuffer does not count as use for the clock sweep: a buffer that seems little used is looked up in the table, which does.
 */
Buffer
hot_pin(HotBlocks *hot, BlockNumber block)
{
	Buffer		hint = hot_hint(hot, block);

	if (hint != InvalidBuffer)
	{
		hot->tag.blockNum = block;
#if PG_VERSION_NUM >= 160000
		if (hot_holds(hot, hint) && ReadRecentBuffer(hot->index->rd_locator, MAIN_FORKNUM, block, hint))
#else
		if (hot_holds(hot, hint) && ReadRecentBuffer(hot->index->rd_node, MAIN_FORKNUM, block, hint))
#endif
		{
			pgstat_count_buffer_read(hot->index);
			pgstat_count_buffer_hit(hot->index);
			return hint;
		}
	}
	hint = ReadBuffer(hot->index, block);
	if (hot->hints != NULL)
		hot->hints[(block + hot->key) & hot->mask] = hint;
	return hint;
}
