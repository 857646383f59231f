/*
 * buffer_hints.c
 *		Blocks that a graph search reads again and again.
 *
 * A graph search would spend much of its time looking blocks up in the buffer
 * table. We remember where blocks were; the buffer itself tells whether it
 * still holds this one. What is remembered may be wrong at any time.
 */
#include "page/buffer_hints.h"

#include "base/base.h"

#include "executor/instrument.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_bitutils.h"

#define HINTS_MIN		8192		/* blocks remembered by a process: at least, ... */
#define HINTS_MAX		1048576		/* ... and at most: 8 GB of index, in 4 MB */

/* Shared by all indexes that this process searches. */
static Buffer *hint_table = NULL;
static uint32 hint_count = 0;

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
hints_make_table(void)
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
		hints_make_table();
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
 * Begin to read a block, if we do not know where it is and the user lets
 * several reads be under way: one look-up in the table finds it, or starts the
 * kernel's read.
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
 * ReadRecentBuffer does not count as use for the clock sweep: a buffer that
 * seems little used is looked up in the table, which does.
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
