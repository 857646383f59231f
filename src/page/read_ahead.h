/*
 * read_ahead.h
 *		Read many pages in a known order, with prefetch of the next ones.
 */
#ifndef GPUANN_READ_AHEAD_H
#define GPUANN_READ_AHEAD_H

#include "page/pages.h"

/* Returns the next block, or InvalidBlockNumber after the last one. */
typedef BlockNumber (*NextBlock) (void *state);

typedef struct ReadAhead ReadAhead;

/*
 * Begin to read the blocks that `next` returns. Allocates in the current memory
 * context; need not be ended after an error.
 */
extern ReadAhead *read_ahead_begin(Relation index, BufferAccessStrategy strategy, NextBlock next,
								   void *state);

/*
 * Read, lock (shared) and check a block, as read_page_in_bulk() does. Blocks
 * must be requested in order; blocks may be skipped.
 */
extern Buffer read_ahead_page(ReadAhead *ahead, BlockNumber block, PageKind kind, bool zero_ok);

extern void read_ahead_end(ReadAhead *ahead);

#endif							/* GPUANN_READ_AHEAD_H */
