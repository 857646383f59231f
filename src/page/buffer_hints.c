/*
 * buffer_hints.c
 *		Cache of the buffers in which blocks were found last.
 *
 * Graph searches access the same blocks repeatedly, and looking them up in the
 * buffer table takes much of their time. A hint may be wrong at any time; the
 * buffer's tag tells whether it still holds the block.
 */
#include "page/buffer_hints.h"

#include "base/base.h"

#include "executor/instrument.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_bitutils.h"

#define HINTS_MIN		8192		/* entries of a process: at least, ... */
#define HINTS_MAX		1048576		/* ... and at most; 8 GB of index, in 4 MB */

/* Shared by all indexes that this process searches. */
static Buffer *hint_table = NULL;
static uint32 hint_count = 0;

/*
 * Create the table of hints, with an entry per shared buffer.
 *
 * It is never moved or freed, because searches keep pointers to it across
 * anything that may begin another search (nested queries, open cursors), and
 * across errors. It is allocated by calloc instead of in a memory context, so
 * that the kernel allocates pages only as hints are stored; a session that
 * searches small indexes uses a few kB. Without memory there are no hints.
 */
static void
hints_create_table(void)
{
	uint32		wanted = pg_nextpower2_32(Max(Min(NBuffers, HINTS_MAX), HINTS_MIN));

	hint_table = calloc(wanted, sizeof(Buffer));
	hint_count = hint_table != NULL ? wanted : 0;
}

/*
 * Begin a search.
 */
void
hints_begin(BufferHints *hints, Relation index)
{
	memset(hints, 0, sizeof(*hints));
	hints->index = index;
	hints->unpinned = gpuann_debug_unpinned_distances;
	if (RelationUsesLocalBuffers(index))
		return;
	if (hint_table == NULL)
		hints_create_table();
	hints->hints = hint_table;
	hints->mask = hint_count - 1;
#if PG_VERSION_NUM >= 160000
	InitBufferTag(&hints->tag, &index->rd_locator, MAIN_FORKNUM, 0);
	hints->key = index->rd_locator.relNumber * 0x9E3779B1u;
#else
	INIT_BUFFERTAG(hints->tag, index->rd_node, MAIN_FORKNUM, 0);
	hints->key = index->rd_node.relNode * 0x9E3779B1u;
#endif
}

/*
 * End a search.
 */
void
hints_end(BufferHints *hints)
{
	pgBufferUsage.shared_blks_hit += hints->peeked;
	if (pgstat_should_count_relation(hints->index))
	{
#if PG_VERSION_NUM >= 160000
		hints->index->pgstat_info->counts.blocks_fetched += hints->peeked;
		hints->index->pgstat_info->counts.blocks_hit += hints->peeked;
#else
		hints->index->pgstat_info->t_counts.t_blocks_fetched += hints->peeked;
		hints->index->pgstat_info->t_counts.t_blocks_hit += hints->peeked;
#endif
	}
	hints->peeked = 0;
}

/*
 * Start reading a block if no hint is valid for it, and the user allows
 * concurrent reads: one lookup in the buffer table either finds the block or
 * starts the kernel's read.
 */
void
hints_prefetch(BufferHints *hints, BlockNumber block)
{
	Buffer		hint = hint_of(hints, block);
	PrefetchBufferResult begun;

	hints->tag.blockNum = block;
	if (hints->hints == NULL || effective_io_concurrency < 2 ||
		(hint != InvalidBuffer && hints_holds(hints, hint)))
		return;
	begun = PrefetchBuffer(hints->index, MAIN_FORKNUM, block);
	if (BufferIsValid(begun.recent_buffer))
		hints->hints[(block + hints->key) & hints->mask] = begun.recent_buffer;
}

/*
 * Pin a block.
 *
 * ReadRecentBuffer() does not increase the usage count, so buffers with a low
 * one are read by ReadBuffer(), which does.
 */
Buffer
hints_pin(BufferHints *hints, BlockNumber block)
{
	Buffer		hint = hint_of(hints, block);

	if (hint != InvalidBuffer)
	{
		hints->tag.blockNum = block;
#if PG_VERSION_NUM >= 160000
		if (hints_holds(hints, hint) &&
			ReadRecentBuffer(hints->index->rd_locator, MAIN_FORKNUM, block, hint))
#else
		if (hints_holds(hints, hint) &&
			ReadRecentBuffer(hints->index->rd_node, MAIN_FORKNUM, block, hint))
#endif
		{
			pgstat_count_buffer_read(hints->index);
			pgstat_count_buffer_hit(hints->index);
			return hint;
		}
	}
	hint = ReadBuffer(hints->index, block);
	if (hints->hints != NULL)
		hints->hints[(block + hints->key) & hints->mask] = hint;
	return hint;
}
