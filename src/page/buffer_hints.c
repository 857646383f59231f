/*
 * buffer_hints.c
 *		Blocks that a graph search reads again and again.
 *
 * A graph search would spend much of its time looking blocks up in the buffer table. We remember where blocks were; the buffer itself
 * tells whether it still holds this one. What is remembered may be wrong at any time.
 */
#include "page/buffer_hints.h"

#include "base/base.h"

#include "executor/instrument.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_bitutils.h"

#define HOT_MIN		8192		/* blocks remembered by a process: at least, ... */
#define HOT_MAX		1048576		/* ... and at most: 8 GB of index, in 4 MB */

/* Shared by all indexes that this process searches. */
static Buffer *hot_hints = NULL;
static uint32 hot_count = 0;

/*
 * Make the table of hints, with a place for each shared buffer.
 *
 * It is made once and then neither moved nor freed: searches hold it over
 * anything that may begin another one (a look at the list's end, a nested
 * query, a cursor that stays open for hours), and over errors. Memory of
 * calloc's rather than a context's: the kernel gives it page by page as hints
 * are noted, so a session that reads small indexes takes a few kB of it. If
 * there is none, nothing is remembered.
 */
static void
hot_make_table(void)
{
	uint32		wanted = pg_nextpower2_32(Max(Min(NBuffers, HOT_MAX), HOT_MIN));

	hot_hints = calloc(wanted, sizeof(Buffer));
	hot_count = hot_hints != NULL ? wanted : 0;
}

/*
 * Begin a search.
 */
void
hot_begin(HotBlocks *hot, Relation index)
{
	memset(hot, 0, sizeof(*hot));
	hot->index = index;
	hot->unpinned = gpuann_debug_unpinned_distances;
	if (RelationUsesLocalBuffers(index))
		return;
	if (hot_hints == NULL)
		hot_make_table();
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
