/*
 * buffer_hints.h
 *		Blocks that a graph search reads again and again: this process remembers
 *		in which buffers they were.
 *
 * hints_pin() pins a block, as ReadBuffer does, mostly without a look-up in the
 * buffer table. hints_peek() reads it without pin and lock ("a peek"), for the
 * distances of a walk only: the walk then writes to no shared cache line, and
 * with many backends the pins and locks of the pages that all of them cross
 * cost more than the distances. Everything else is read under pin and share
 * lock.
 *
 * What a peek may do, and why that is sound
 *
 * 1. The memory is there. Shared buffers are one mapping of fixed size for the
 *	  life of the postmaster (NBuffers does not change in 15 to 18), and a hint
 *	  is a number that the buffer manager gave us for a buffer of this cluster.
 *	  Offsets and lengths come from the index's format, never from the page. So
 *	  whatever the page has become, a peek reads mapped memory, and takes
 *	  numbers from it: no pointer, no length, no slot.
 *
 * 2. A vector may be torn, or another page's: its slot may be overwritten, and
 *    the buffer given to another block, while it is read. hints_peeked()
 *    rejects nearly all that: what is left costs a detour, or a poor edge. A
 *    distance read so ranks candidates and nothing else. In scans
 *    (page_search.c) graph_search() computes every distance of its answer anew,
 *    by exact_distances(), under pin and share lock with the page checked;
 *    graph rows, states and versions are read under both; a distance that is
 *    NaN counts as infinite. In linking (row_vectors.c) distances choose among
 *    slots that the linker knows to exist, and any choice makes a right graph.
 *
 * 3. The descriptor is only read, and what is read of it is a hint that the
 *	  next look-up may overrule. Which fields these are, and that a buffer's
 *	  tag changes only while its header is locked (BM_LOCKED), before anything
 *	  is read into it, and BM_VALID is set only when it is full, holds in 15 to
 *	  18 (bufmgr.c: BufferAlloc, GetVictimBuffer, TerminateBufferIO).
 *
 * 4. Processors that reorder: hints_holds() reads the tag, then the state.
 *
 *	  Before: "tag is ours" was stored under the header lock, so a state read
 *	  later (1st pg_read_barrier) that is valid and not locked was stored after
 *	  the block had come in; the write barrier of UnlockBufHdr() orders that
 *	  store behind the block's bytes, our 2nd barrier orders our reads of them
 *	  behind the read of the state. So we read what was on the page then, or
 *	  later.
 *
 *	  After: if we read a byte that came with another block, the tag had been
 *	  changed before, and the header unlocked (write barrier); our barrier in
 *	  hints_peeked() orders the second read of the tag behind that of the byte,
 *	  so it shows the change. (Unless the buffer had our block again by then.
 *	  It has to be used three times in each of its lives to be peeked into, so
 *	  the clock sweep would have to come by that often between two of our
 *	  loads, twice. See 2: a detour.)
 *
 *	  A change of the vector itself needs no order: it is never looked for.
 *
 * gpuann.debug_unpinned_distances turns peeks off. Under Valgrind, to which
 * PostgreSQL declares unpinned buffers out of bounds, they have to be.
 */
#ifndef GPUANN_BUFFER_HINTS_H
#define GPUANN_BUFFER_HINTS_H

#include "postgres.h"

#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/*
 * A buffer used less than this is pinned instead of peeked into, so that the
 * clock sweep learns that it is in use.
 */
#define HINTS_USAGE	3

/* What is remembered, seen by one search of one index. */
typedef struct BufferHints
{
	Relation	index;
	BufferTag	tag;			/* of the index's main fork; the block is filled in */
	Buffer	   *hints;			/* lives as long as the process; NULL: nothing is remembered (of
								 * local buffers, say) */
	uint32		key;			/* spreads indexes over the hints */
	uint32		mask;			/* hints - 1 */
	bool		unpinned;		/* gpuann.debug_unpinned_distances, as the search began */
	uint64		peeked;			/* blocks, to be counted at the end */
	volatile char touched;		/* see unpinned_find() */
} BufferHints;

/*
 * Begin a search of an index. Others may begin and end meanwhile, of this
 * index or another; a search that an error ends is simply forgotten.
 */
extern void hints_begin(BufferHints *hints, Relation index);

/* End it: what was peeked into counts as read and found, for the statistics. */
extern void hints_end(BufferHints *hints);

/* Begin to read a block that is going to be pinned, if it has to be read. */
extern void hints_prefetch(BufferHints *hints, BlockNumber block);

/* Pin a block. */
extern Buffer hints_pin(BufferHints *hints, BlockNumber block);

/* Where a block may be; 0 if nothing is known. */
static inline Buffer
hint_of(const BufferHints *hints, BlockNumber block)
{
	return hints->hints != NULL ? hints->hints[(block + hints->key) & hints->mask] : InvalidBuffer;
}

/*
 * Whether a shared buffer holds the block of hints->tag, and is in use enough:
 * the tag first, then the state (see 4. above).
 */
static inline bool
hints_holds(const BufferHints *hints, Buffer hint)
{
	BufferDesc *buffer = GetBufferDescriptor(hint - 1);
	uint32		state;

	if (memcmp(&buffer->tag, &hints->tag, sizeof(BufferTag)) != 0)
		return false;
	pg_read_barrier();
	state = pg_atomic_read_u32(&buffer->state);
	return (state & (BM_VALID | BM_LOCKED)) == BM_VALID &&
		   BUF_STATE_GET_USAGECOUNT(state) >= HINTS_USAGE;
}

/* Whether a block is where it was last. */
static inline bool
hints_is_known(BufferHints *hints, BlockNumber block)
{
	Buffer		hint = hint_of(hints, block);

	hints->tag.blockNum = block;
	return hint != InvalidBuffer && hints_holds(hints, hint);
}

/*
 * The page of a block, to be read without a pin by a walk whose distances are
 * ranked again; NULL if it has to be pinned.
 */
static inline const char *
hints_peek(BufferHints *hints, BlockNumber block, Buffer hint)
{
	if (!hints->unpinned || hint == InvalidBuffer)
		return NULL;
	hints->tag.blockNum = block;
	if (!hints_holds(hints, hint))
		return NULL;
	pg_read_barrier();
	return BufferBlocks + (Size) (hint - 1) * BLCKSZ;
}

/* Whether the block was there while it was read. */
static inline bool
hints_peeked(BufferHints *hints, BlockNumber block, Buffer hint)
{
	hints->tag.blockNum = block;
	pg_read_barrier();
	hints->peeked++;
	return hints_holds(hints, hint);
}

#endif							/* GPUANN_BUFFER_HINTS_H */
