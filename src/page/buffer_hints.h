/*
 * buffer_hints.h
 *		Hints in which buffers a process found blocks last, and reads without
 *		pin.
 *
 * hints_pin() pins a block like ReadBuffer(), mostly without a lookup in the
 * buffer table. hints_peek() allows reading it without pin and lock ("a peek"),
 * for the distances of a walk only. The walk then writes to no shared cache
 * line; with many backends, pins and locks of the pages that all of them visit
 * cost more than the distances. Everything else is read with pin and share
 * lock.
 *
 * What a peek may do, and why it is safe
 *
 * 1. The memory is mapped. Shared buffers are one mapping of fixed size for
 *    the life of the postmaster (NBuffers does not change in 15 to 18), and a
 *    hint is a number that the buffer manager returned for a buffer of this
 *    cluster. Offsets and lengths come from the index's format, never from the
 *    page. So whatever the page contains, a peek reads mapped memory, and uses
 *    numbers from it: no pointer, no length, no slot.
 *
 * 2. A vector may be torn, or belong to another page: its slot may be
 *    overwritten, and the buffer given to another block, while it is read.
 *    hints_peeked() detects nearly all of that; the rest costs a detour, or a
 *    poor edge, because such a distance only orders candidates. In scans
 *    (page_search.c) graph_search() recomputes every distance of its result
 *    with exact_distances(), with pin and share lock and a page check; graph
 *    rows, states and versions are read with both; NaN counts as infinite. In
 *    linking (row_vectors.c) distances select among slots that the linker
 *    knows to exist, and any selection makes a valid graph.
 *
 * 3. The descriptor is only read, as a hint that the next lookup may
 *    overrule. In 15 to 18 the fields used are these, a buffer's tag changes
 *    only while its header is locked (BM_LOCKED) and before anything is read
 *    into it, and BM_VALID is set only when the page is complete (bufmgr.c:
 *    BufferAlloc, GetVictimBuffer, TerminateBufferIO).
 *
 * 4. Memory ordering: hints_holds() reads the tag, then the state.
 *
 *    Before the peek: our tag was stored under the header lock. So a state that
 *    is read after it (first pg_read_barrier) and is valid and not locked was
 *    stored after the block had been read in. The write barrier of
 *    UnlockBufHdr() orders that store after the block's bytes, and our second
 *    barrier orders our reads of them after the read of the state. So we read
 *    what was on the page then, or later.
 *
 *    After the peek: if we read a byte of another block, the tag had been
 *    changed before, and the header unlocked (write barrier). Our barrier in
 *    hints_peeked() orders the second read of the tag after that of the byte,
 *    so it finds the change. (Unless the buffer holds our block again by then.
 *    A buffer must be used three times to be peeked into, so the clock sweep
 *    would have to pass that often between two of our loads, twice. By 2 the
 *    result is a detour.)
 *
 *    A concurrent change of the vector itself needs no ordering, by 2.
 *
 * gpuann.debug_unpinned_distances = off disables peeks. This is needed under
 * Valgrind, to which PostgreSQL declares unpinned buffers inaccessible.
 */
#ifndef GPUANN_BUFFER_HINTS_H
#define GPUANN_BUFFER_HINTS_H

#include "postgres.h"

#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/*
 * A buffer with a lower usage count is pinned instead, so that the clock sweep
 * sees that it is in use.
 */
#define HINTS_USAGE	3

/* The hints, as used by one search of one index. */
typedef struct BufferHints
{
	Relation	index;
	BufferTag	tag;			/* of the index's main fork; blockNum is set for each access */
	Buffer	   *hints;			/* the table, which lives as long as the process; NULL: no hints,
								 * for local buffers or without memory */
	uint32		key;			/* distributes indexes over the table */
	uint32		mask;			/* size of the table - 1 */
	bool		unpinned;		/* gpuann.debug_unpinned_distances, when the search began */
	uint64		peeked;			/* blocks read by peeks, counted at the end */
	volatile char touched;		/* see unpinned_find() */
} BufferHints;

/*
 * Begin a search of an index. Searches may be nested, and need not be ended
 * after an error.
 */
extern void hints_begin(BufferHints *hints, Relation index);

/* End a search: count peeks as buffer hits in the statistics. */
extern void hints_end(BufferHints *hints);

/* Start reading a block that will be pinned, if it is not in memory. */
extern void hints_prefetch(BufferHints *hints, BlockNumber block);

/* Pin a block. */
extern Buffer hints_pin(BufferHints *hints, BlockNumber block);

/* Hint for a block, or InvalidBuffer. */
static inline Buffer
hint_of(const BufferHints *hints, BlockNumber block)
{
	return hints->hints != NULL ? hints->hints[(block + hints->key) & hints->mask] : InvalidBuffer;
}

/*
 * Whether a shared buffer holds the block of hints->tag and has a sufficient
 * usage count. Reads the tag before the state, see 4 above.
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

/* Whether the hint for a block is valid. */
static inline bool
hints_is_known(BufferHints *hints, BlockNumber block)
{
	Buffer		hint = hint_of(hints, block);

	hints->tag.blockNum = block;
	return hint != InvalidBuffer && hints_holds(hints, hint);
}

/*
 * The page of a block, to be read without a pin by a walk whose distances are
 * computed again for the result. NULL if it must be pinned.
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

/*
 * Whether the buffer has held the block since hints_peek(). Call after reading
 * it.
 */
static inline bool
hints_peeked(BufferHints *hints, BlockNumber block, Buffer hint)
{
	hints->tag.blockNum = block;
	pg_read_barrier();
	hints->peeked++;
	return hints_holds(hints, hint);
}

#endif							/* GPUANN_BUFFER_HINTS_H */
