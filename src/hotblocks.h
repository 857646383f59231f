/*
 * hotblocks.h
 *		Blocks that a graph search reads again and again: this process remembers in which buffers they were.
 *
 * Three ways to use what is remembered. hot_pin() pins, as ReadBuffer does, mostly without a look-up in the buffer table. hot_peek()
 * reads without a pin and without a lock: what it finds may change, or the buffer go to another block, under the
 * reader's eyes. It is for the walk of a graph search only, where a wrong distance costs a detour at worst. hot_look() reads
 * so too, and hot_looked() says afterwards whether that is as good as pin and lock: for what becomes an answer. Graph rows are read only under both. In return the walk writes to no shared cache line:
 * with many backends the pins and locks of the pages that all of them cross cost more than the distances.
 */
#ifndef GPUANN_HOTBLOCKS_H
#define GPUANN_HOTBLOCKS_H

#include "postgres.h"

#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* What a page has behind everything else begins here, whatever its header says: that may change under the eyes of who looks without a lock. */
#define LOOK_TAIL(page, bytes)	((page) + BLCKSZ - MAXALIGN(bytes))

/* A buffer used less than this is pinned instead of peeked into, so that the clock sweep learns that it is in use. */
#define HOT_USAGE	3

/* What is remembered, seen by one search of one index. */
typedef struct HotBlocks
{
	Relation	index;
	BufferTag	tag;			/* of the index's main fork; the block is filled in */
	Buffer	   *hints;			/* NULL: nothing is remembered of local buffers */
	uint32		key;			/* spreads indexes over the hints */
	uint32		mask;			/* hints - 1 */
	uint64		peeked;			/* blocks, to be counted at the end */
	volatile char touched;		/* see hot_find_vectors() */
} HotBlocks;

/* Begin a search of an index that has so many blocks. It ends, or is forgotten, before another begins. */
extern void hot_begin(HotBlocks *hot, Relation index, BlockNumber blocks);

/* End it: what was peeked into counts as read and found, for the statistics. */
extern void hot_end(HotBlocks *hot);

/* Begin to read a block that is going to be pinned, if it has to be read. */
extern void hot_prefetch(HotBlocks *hot, BlockNumber block);

/* Pin a block. */
extern Buffer hot_pin(HotBlocks *hot, BlockNumber block);

/* Where a block may be; 0 if nothing is known. */
static inline Buffer
hot_hint(const HotBlocks *hot, BlockNumber block)
{
	return hot->hints != NULL ? hot->hints[(block + hot->key) & hot->mask] : InvalidBuffer;
}

/* Whether a shared buffer holds the block of hot->tag, and is in use enough. */
static inline bool
hot_holds(const HotBlocks *hot, Buffer hint)
{
	BufferDesc *buffer = GetBufferDescriptor(hint - 1);
	uint64		state = pg_atomic_read_u32(&buffer->state);

	return (state & BM_VALID) != 0 && BUF_STATE_GET_USAGECOUNT(state) >= HOT_USAGE &&
		memcmp(&buffer->tag, &hot->tag, sizeof(BufferTag)) == 0;
}

/* Whether a block is where it was last. */
static inline bool
hot_is_known(HotBlocks *hot, BlockNumber block)
{
	Buffer		hint = hot_hint(hot, block);

	hot->tag.blockNum = block;
	return hint != InvalidBuffer && hot_holds(hot, hint);
}

/* The page of a block, to be read without a pin; NULL if it has to be pinned. */
static inline const char *
hot_peek(HotBlocks *hot, BlockNumber block, Buffer hint)
{
	if (hint == InvalidBuffer)
		return NULL;
	hot->tag.blockNum = block;
	if (!hot_holds(hot, hint))
		return NULL;
	pg_read_barrier();
	return BufferBlocks + (Size) (hint - 1) * BLCKSZ;
}

/* Whether the block was there while it was read. */
static inline bool
hot_peeked(HotBlocks *hot, BlockNumber block, Buffer hint)
{
	hot->tag.blockNum = block;
	pg_read_barrier();
	hot->peeked++;
	return hot_holds(hot, hint);
}

/*
 * A look at a page of a relation under WAL, without pin and lock, that tells afterwards whether the page was at rest: nobody had it locked to change it, its LSN
 * is the same, and its buffer holds it still. Every change of such a page is made under that lock and gives it another LSN before the lock is let go.
 * (A buffer that went to another page and came back would have to do so between two neighbouring loads, twice, with three rounds of the clock sweep each
 * time, for it must have been in use before and be so after.) What is read in between is as good as read under pin and share lock.
 */
typedef struct PageLook
{
	Buffer		buffer;
	BlockNumber block;
	XLogRecPtr	lsn;
} PageLook;

/* Begin a look; NULL: the page has to be pinned and locked. */
extern const char *hot_look(HotBlocks *hot, BlockNumber block, PageLook *look);

/* End it. False: what was read counts for nothing. */
extern bool hot_looked(HotBlocks *hot, const PageLook *look);

#endif							/* GPUANN_HOTBLOCKS_H */
