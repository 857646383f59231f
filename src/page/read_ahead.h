/*
 * read_ahead.h
 *		Reading many pages in an order known beforehand: those that come next
 *		are asked for while this one is used.
 */
#ifndef GPUANN_READ_AHEAD_H
#define GPUANN_READ_AHEAD_H

#include "page/pages.h"

/*
 * The block after the one returned last, InvalidBlockNumber after the last one.
 */
typedef BlockNumber (*NextBlock) (void *state);

typedef struct ReadAhead ReadAhead;

/*
 * Begin to read blocks in this order, in the current memory context. An error
 * ends it too.
 */
extern ReadAhead *read_ahead_begin(Relation index, BufferAccessStrategy strategy, NextBlock next,
								   void *state);

/*
 * Read, lock (shared) and check a block, as read_page_in_bulk does. It is the
 * next one, or one after it: those before are left out.
 */
extern Buffer read_ahead_page(ReadAhead *ahead, BlockNumber block, PageKind kind, bool zero_ok);

extern void read_ahead_end(ReadAhead *ahead);

#endif							/* GPUANN_READ_AHEAD_H */
