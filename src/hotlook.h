/*
 * hotlook.h
 *		Optimistic reads ("looks"): read a page without pin and lock, and know afterwards whether that was as good as both.
 *
 * A look counts if the page was at rest: before and after what was read nobody
 * had its lock exclusively, its LSN was the same, and its buffer held it. Every
 * change of a page under WAL is made under that lock and gives the page another
 * LSN before the lock is released; replay does the same. Relations without WAL
 * are never looked at.
 *
 * Order. Begin: LSN, then lock, then the bytes; end: lock, then LSN, then tag,
 * a read barrier between each two. If we read a byte that a writer stored, the
 * lock's word that he stored before (LWLockAcquire is a full barrier) is seen
 * at the end: either he still has the lock, or he has released it, which is
 * ordered behind his LSN, and the LSN that we read last is his. That it is not
 * the one that we read first: had that been his already, the lock read after
 * it would have been his too (rejected), or released, and then all his bytes
 * were there before ours were read. The tag is read as hotblocks.h says.
 *
 * One thing is only unlikely, not excluded: that the buffer went to another
 * page and came back between our first and our last load, and that the bytes
 * in between were of the other page. The clock sweep would have to come by
 * three times, twice, while this process does not run.
 *
 * gpuann.debug_optimistic_records turns looks off.
 */
#ifndef GPUANN_HOTLOOK_H
#define GPUANN_HOTLOOK_H

#include "hotblocks.h"

/* What a page has behind everything else begins here, whatever its header says: that may change under the eyes of who looks without a lock. */
#define LOOK_TAIL(page, bytes)	((page) + BLCKSZ - MAXALIGN(bytes))

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

#endif							/* GPUANN_HOTLOOK_H */
