/*
 * read_ahead.c
 *		Read many pages in a known order, with prefetch of the next ones.
 *
 * PostgreSQL 17 and later use a read stream, which also combines neighbouring
 * blocks. Earlier versions prefetch blocks, at a distance that shrinks while
 * blocks are found in memory, and grows up to maintenance_io_concurrency while
 * they are not.
 */
#include "postgres.h"

#include "page/read_ahead.h"

#include "storage/bufmgr.h"
#include "utils/spccache.h"
#if PG_VERSION_NUM >= 170000
#include "storage/read_stream.h"
#endif

#define MAX_AHEAD	64
#define CACHED_RUN	64			/* after this many cached blocks in a row only every CACHED_STEP-th
								 * is prefetched */
#define CACHED_STEP	8

struct ReadAhead
{
	Relation	index;
	BufferAccessStrategy strategy;
	NextBlock	next;
	void	   *state;
#if PG_VERSION_NUM >= 170000
	ReadStream *stream;
#else
	BlockNumber blocks[MAX_AHEAD]; /* ring of prefetched blocks that are not read yet: `count`
									* entries from `first` on */
	int			first;
	int			count;
	int			distance;		/* current prefetch distance */
	int			max_distance;
	uint32		cached_run;		/* number of blocks in a row that were in memory */
	bool		finished;
#endif
};

#if PG_VERSION_NUM >= 170000

static BlockNumber
stream_next(ReadStream *stream, void *state, void *unused)
{
	ReadAhead  *ahead = state;

	return ahead->next(ahead->state);
}

static void
read_ahead_init(ReadAhead *ahead)
{
	ahead->stream = read_stream_begin_relation(READ_STREAM_MAINTENANCE, ahead->strategy,
											   ahead->index, MAIN_FORKNUM, stream_next, ahead, 0);
}

/* Return the buffer of a block, pinned. */
static Buffer
pin_block(ReadAhead *ahead, BlockNumber block)
{
	for (;;)
	{
		Buffer		buffer = read_stream_next_buffer(ahead->stream, NULL);

		if (!BufferIsValid(buffer))
			elog(ERROR, "block %u is not among those that were to be read", block);
		if (BufferGetBlockNumber(buffer) == block)
			return buffer;
		ReleaseBuffer(buffer);
	}
}

void
read_ahead_end(ReadAhead *ahead)
{
	read_stream_end(ahead->stream);
	pfree(ahead);
}

#else

static void
read_ahead_init(ReadAhead *ahead)
{
	ahead->max_distance = Min(
		get_tablespace_maintenance_io_concurrency(ahead->index->rd_rel->reltablespace), MAX_AHEAD);
	ahead->distance = Min(ahead->max_distance, 1);
}

/*
 * Whether to prefetch a block. If all blocks seem to be in memory, only some
 * are, to notice when that changes.
 */
static bool
should_prefetch(const ReadAhead *ahead, BlockNumber block)
{
	return ahead->cached_run < CACHED_RUN || block % CACHED_STEP == 0;
}

/* Prefetch a block, adapt the distance, and add the block to the ring. */
static void
ahead_prefetch_block(ReadAhead *ahead, BlockNumber block)
{
	if (should_prefetch(ahead, block))
	{
		PrefetchBufferResult prefetched = PrefetchBuffer(ahead->index, MAIN_FORKNUM, block);

		if (prefetched.initiated_io)
		{
			ahead->distance = Min(ahead->distance * 2, ahead->max_distance);
			ahead->cached_run = 0;
		}
		else
		{
			ahead->distance = Max(ahead->distance - 1, 1);
			ahead->cached_run++;
		}
	}
	ahead->blocks[(ahead->first + ahead->count++) % MAX_AHEAD] = block;
}

/* Return the next block, prefetched or not. */
static BlockNumber
take_next(ReadAhead *ahead)
{
	BlockNumber block;

	if (ahead->count == 0)
		return ahead->finished ? InvalidBlockNumber : ahead->next(ahead->state);
	block = ahead->blocks[ahead->first];
	ahead->first = (ahead->first + 1) % MAX_AHEAD;
	ahead->count--;
	return block;
}

static Buffer
pin_block(ReadAhead *ahead, BlockNumber block)
{
	BlockNumber next;

	do
	{
		next = take_next(ahead);
		if (next == InvalidBlockNumber)
			elog(ERROR, "block %u is not among those that were to be read", block);
	} while (next != block);
	while (ahead->count < ahead->distance && !ahead->finished)
	{
		next = ahead->next(ahead->state);
		if (next == InvalidBlockNumber)
			ahead->finished = true;
		else
			ahead_prefetch_block(ahead, next);
	}
	return ReadBufferExtended(ahead->index, MAIN_FORKNUM, block, RBM_NORMAL, ahead->strategy);
}

void
read_ahead_end(ReadAhead *ahead)
{
	pfree(ahead);
}

#endif

ReadAhead *
read_ahead_begin(Relation index, BufferAccessStrategy strategy, NextBlock next, void *state)
{
	ReadAhead  *ahead = palloc0(sizeof(ReadAhead));

	ahead->index = index;
	ahead->strategy = strategy;
	ahead->next = next;
	ahead->state = state;
	read_ahead_init(ahead);
	return ahead;
}

Buffer
read_ahead_page(ReadAhead *ahead, BlockNumber block, PageKind kind, bool zero_ok)
{
	Buffer		buffer = pin_block(ahead, block);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	check_page(ahead->index, buffer, kind, zero_ok);
	return buffer;
}
