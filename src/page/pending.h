/*
 * pending.h
 *		The pending list and the append lock: assigns slots to new rows, and
 *		lists rows that are not in the graph yet.
 */
#ifndef GPUANN_PENDING_H
#define GPUANN_PENDING_H

#include "page/pages.h"

struct ColumnRecord;

#define PENDING_NEWEST_SLOTS	32	/* entries of the newest pending page that its readers copy:
									 * more than arrive while a mirror processes those before */

/*
 * The bounds of the list, as seen by one scan. Entries in [trimmed, end) can be
 * read; those before linked are in the graph.
 */
typedef struct PendingBounds
{
	uint64		trimmed;
	uint64		linked;
	uint64		end;			/* append position */
	uint32		next_fresh;		/* slots below it exist */
	uint32		free_count;
	uint32		superblocks;	/* number of superblocks whose pending page is initialized */
	float		least_norm;		/* range of the norms of all vectors listed before end */
	float		most_norm;
	BlockNumber oldest_pending;
	uint32		newest_count;	/* number of entries in newest[], the last ones before end,
								 * unchecked */
	uint32		newest[PENDING_NEWEST_SLOTS];
} PendingBounds;

/*
 * Read the bounds: `linked` before `end`, so that no row is missed. Fills meta
 * too.
 */
extern void pending_bounds(Relation index, const IndexFormat *format, MetaPage *meta,
						   PendingBounds *bounds);

/*
 * The same in two steps, for callers that may not need the metapage: first the
 * end and the limits of slots, later the beginning. More rows may be linked by
 * then than the end covers, so search for linked rows after the second step.
 */
extern void pending_end(Relation index, const IndexFormat *format, PendingBounds *bounds);
extern void pending_begin(Relation index, MetaPage *meta, PendingBounds *bounds);

/*
 * Read the slots at positions [from, to) into a palloc'd array. Returns false
 * if some of them have been trimmed meanwhile; the caller must start again with
 * new bounds.
 */
extern bool pending_read(Relation index, const IndexFormat *format, const PendingBounds *bounds,
						 uint64 from, uint64 to, uint32 **slots, uint32 *count);

/*
 * Add a row: takes the append lock, a free or fresh slot, writes its columns
 * (of format->column_bytes bytes; NULL if the index includes none), vector,
 * node record and list entry: one WAL record, before which are those of the
 * columns and of a vector on more than two pages. After it returns the row is
 * found by every scan; edges come later.
 */
extern void append_row(Relation index, const IndexFormat *format, const void *vector,
					   const struct ColumnRecord *columns, ItemPointer tid);

/*
 * Begin another superblock, for its posting pages; returns how many there are
 * then. WAL-logged.
 */
extern uint32 pending_add_superblock(Relation index, const IndexFormat *format);

/*
 * Put detached slots that are not on the pending list on the free list. slots
 * are sorted ascending. Takes the append lock once per node page. WAL-logged.
 */
extern void free_slots(Relation index, const IndexFormat *format, const uint32 *slots, uint32 count,
					   uint64 change_seq);

/*
 * Remove list entries before position (at most linked_position), turning
 * completely trimmed pages into spare ones. The caller holds the linker lock.
 */
extern void pending_trim(Relation index, const IndexFormat *format, uint64 position);

#endif							/* GPUANN_PENDING_H */
