/*
 * link_write.h
 *		Write graph rows, seeds and the end of a slice: shared by linker and
 *		VACUUM. The caller holds the linker lock.
 */
#ifndef GPUANN_LINK_WRITE_H
#define GPUANN_LINK_WRITE_H

#include "access/generic_xlog.h"

#include "link/link.h"

/*
 * One WAL record on a node page. Zero it, with stamped_superblock NO_SLOT,
 * before the first of a slice.
 */
typedef struct NodeChange
{
	GenericXLogState *state;
	Buffer		list;
	Buffer		node;
	Page		page;			/* the node page to change */
	uint32		stamped_superblock;
	uint64		stamped_seq;
} NodeChange;

/*
 * Begin a change of the node page that holds slot. Between begin and finish
 * content locks are held, so nothing may fail or wait.
 */
extern void node_change_begin(NodeChange *change, Relation index, const IndexFormat *format,
							  uint32 slot, uint64 change_seq);
extern void node_change_finish(NodeChange *change);

extern void link_write_rows(Relation index, const IndexFormat *format, const LinkedRows *rows,
							uint32 next_fresh, uint64 change_seq);

/*
 * The same in parts, which may be in separate transactions under one linker
 * lock. rows must remain valid until the end.
 */
typedef struct RowWriter RowWriter;

extern RowWriter *row_writer_begin(const IndexFormat *format, const LinkedRows *rows,
								   uint32 next_fresh, uint64 change_seq);
extern bool row_writer_go_on(RowWriter *writer, Relation index, bool (*over)(const void *arg),
							 const void *arg);

/*
 * The rest of link_write(), after the rows are written: seeds and positions.
 * The list may then be trimmed up to the position returned.
 */
extern uint64 link_write_end(Relation index, const IndexFormat *format, const LinkPass *pass,
							 const LinkedRows *rows);

extern uint32 link_write_seeds(Relation index, const IndexFormat *format, const uint32 *proposed,
							   uint32 nproposed, uint32 next_fresh);

/* Changes of the metapage at the end of a slice. */
typedef struct SliceEnd
{
	uint64		change_seq;
	uint32		newly_linked;	/* slots that joined the graph */
	bool		has_linked_slots;	/* linked_slots is set, instead of adding newly_linked */
	uint32		linked_slots;
	bool		has_seeds;
	uint32		seeds;
	bool		has_linked_position;
	uint64		linked_position;
} SliceEnd;

extern void link_finish_slice(Relation index, const SliceEnd *end);

#endif							/* GPUANN_LINK_WRITE_H */
