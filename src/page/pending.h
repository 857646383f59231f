/*
 * pending.h
 *		The pending list and the append lock: where rows get their slots, and
 *		which rows the graph has not seen.
 */
#ifndef GPUANN_PENDING_H
#define GPUANN_PENDING_H

#include "page/pages.h"

#define PENDING_NEWEST_SLOTS	32	/* of the newest pending page that its reader keeps: more than
									 * come while a mirror takes in those before */

/*
 * The ends of the list, as one scan sees them. Entries in [trimmed, end) can be
 * read; those before linked are in the graph.
 */
typedef struct PendingBounds
{
	uint64		trimmed;
	uint64		linked;
	uint64		end;			/* the append position */
	uint32		next_fresh;		/* slots below it exist */
	uint32		free_count;
	uint32		superblocks;	/* whose pending page is initialised */
	BlockNumber oldest_pending;
	uint32		newest_count;	/* slots of the last entries before end, not yet checked */
	uint32		newest[PENDING_NEWEST_SLOTS];
} PendingBounds;

/*
 * Read the bounds: `linked` before `end`, so that no row falls between. meta is
 * filled too.
 */
extern void pending_bounds(Relation index, const IndexFormat *format, MetaPage *meta,
						   PendingBounds *bounds);

/*
 * The same in two steps, for who may not need the metapage: where the list
 * ends, and which rows there are; then, later, where it begins. More may be
 * linked then than at the end that was read, so whatever is to find the linked
 * rows comes after the second.
 */
extern void pending_end(Relation index, const IndexFormat *format, PendingBounds *bounds);
extern void pending_begin(Relation index, MetaPage *meta, PendingBounds *bounds);

/*
 * Read the slots at positions [from, to) into a palloc'd array. False if some
 * of them have been trimmed meanwhile (start over with new bounds).
 */
extern bool pending_read(Relation index, const IndexFormat *format, const PendingBounds *bounds,
						 uint64 from, uint64 to, uint32 **slots, uint32 *count);

/*
 * Add a row: takes the append lock, a free or fresh slot, writes vector, node
 * record and list entry (one WAL record if the vector lies on at most two
 * pages). After it returns the row is found by every scan; edges come later.
 */
extern void append_row(Relation index, const IndexFormat *format, const void *vector,
					   ItemPointer tid);

/*
 * Put detached, unlisted slots on the free list (sorted ascending). Takes the
 * append lock, in slices. WAL-logged.
 */
extern void free_slots(Relation index, const IndexFormat *format, const uint32 *slots, uint32 count,
					   uint64 change_seq);

/*
 * Forget list entries before position (at most linked_position), giving wholly
 * trimmed pending pages back as spare.
 */
extern void pending_trim(Relation index, const IndexFormat *format, uint64 position);

#endif							/* GPUANN_PENDING_H */
