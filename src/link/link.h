/*
 * link.h
 *		The linker: the only writer of edges. One per index at a time, by the
 *		linker lock.
 *
 * A pass: take the lock, collect what is not linked, compute rows (over pages
 * here, or by the mirror worker through the server), write them, advance
 * linked_position, trim what the previous pass had linked.
 */
#ifndef GPUANN_LINK_H
#define GPUANN_LINK_H

#include "page/pages.h"
#include "page/pending.h"

/* Rows changed by a pass, ascending by slot. */
typedef struct LinkedRows
{
	uint32		count;
	uint32	   *slots;
	uint32	   *rows;			/* count * degree, NO_SLOT after the last */
	uint32	   *places;			/* index in `rows` of each slot's row; NULL: in order */
	uint32		nseeds;			/* 0: leave the seed area as it is */
	uint32	   *seeds;
} LinkedRows;

/* Position of a slot of a pass. */
typedef struct LinkPlace
{
	uint32		offset;			/* in the pending list, from the start of the pass */
	uint32		live;			/* number of live slots listed before it in the pass */
} LinkPlace;

/* The rows that a pass is to link. */
typedef struct LinkPass
{
	uint64		from;			/* pending positions */
	uint64		to;
	uint32		count;			/* slots to link among them */
	uint32	   *slots;			/* in the order of the list */
	LinkPlace  *places;			/* of each slot, filled by link_collect */
	uint32		room;			/* allocated length of both arrays, if link_collect allocated them
								 */
	uint32		live;			/* live slots in [from, to): all are in the graph after a complete
								 * pass */
} LinkPass;

/*
 * Take the linker lock. At session level for workers, because it outlives the
 * transactions of their slices; else until the end of the transaction. Without
 * wait, returns false if another process holds it.
 */
extern bool linker_lock(Relation index, bool wait, bool session);
extern void linker_unlock(Relation index, bool session);

/*
 * Whether another process waits for the linker lock, which the caller holds and
 * should then release soon.
 */
extern bool linker_lock_wanted(Relation index, bool session);

/*
 * Count the rows written by an interrupted pass. The metapage counts them only
 * when linked_position has passed their list entries.
 */
extern uint32 linked_but_listed(Relation index, const IndexFormat *format);

/*
 * Collect up to most unlinked slots (0: all) that are listed before a pending
 * position. The arrays are palloc'd.
 */
extern void link_collect(Relation index, const IndexFormat *format, uint64 end, uint32 most,
						 LinkPass *pass);

/*
 * Add those listed since, up to a position before the end of the list.
 */
extern void link_collect_more(Relation index, const IndexFormat *format, uint64 end,
							  LinkPass *pass);

/*
 * Write a pass: rows by block, stamped with the change sequence; seeds; then
 * linked_position, trimming and change_seq. Rows of slots that no longer hold a
 * row are left out. Interrupts are processed between pages.
 */
extern void link_write(Relation index, const IndexFormat *format, const LinkPass *pass,
					   const LinkedRows *rows);

/*
 * Compute a pass over pages, in this process: candidates by page search,
 * within-batch distances, pruning, reverse edges.
 */
extern void link_over_pages(Relation index, const IndexFormat *format, const LinkPass *pass,
							LinkedRows *rows);

/*
 * Put seeds in the order described in engine/seeds.h, by their vectors in the
 * pages (seed_order.c). The first seeds, from which all rows are reachable,
 * remain the first.
 */
extern void order_seeds(Relation index, const IndexFormat *format, uint32 *seeds, uint32 count);

/*
 * A mirror of lists whose engine assigns and encodes rows for passes. It is
 * current to the pages except for list entries from a position on. The channel
 * belongs to the caller.
 */
typedef struct ListServer
{
	int			channel;
	uint32		entry;
	uint32		generation;
	uint64		position;
	int64		call_us;		/* time limit of a call */
	uint32		coded;			/* rows encoded so far */
	EngineStatus failed;		/* not ENGINE_OK: the server failed, rows are assigned in this
								 * process from then on; ... */
	const char *reason;			/* text, valid until the next call of a channel */
} ListServer;

/*
 * How a pass is computed, and a progress callback, which gets the number of
 * rows linked so far, including earlier passes. tell may be NULL.
 */
typedef struct LinkManner
{
	int			slice_ms;		/* begin no further batch after that; 0: no limit */
	ListServer *server;			/* or NULL; passes end where its mirror does */
	void		(*tell) (int64 linked);
	int64		before;			/* rows linked by the passes before */
} LinkManner;

/*
 * The same, but ends the pass early when the changed rows fill the memory
 * allowed or the time is up, and sets pass->to and pass->count accordingly.
 */
extern void link_part_over_pages(Relation index, const IndexFormat *format, LinkPass *pass,
								 const LinkManner *manner, LinkedRows *rows);

/*
 * The same in memory, in a CPU engine of this process. Returns false, without
 * effect, if the pass is too small for that or the index too large.
 */
extern bool link_in_memory(Relation index, const IndexFormat *format, const LinkPass *pass,
						   LinkedRows *rows);

/*
 * Run passes until no row is pending, telling the number of rows linked so far
 * (tell may be NULL). Returns the number of slots linked. The caller holds the
 * linker lock.
 */
extern uint32 link_pending(Relation index, const IndexFormat *format, void (*tell)(int64 linked));

/*
 * Link for slice_ms. Returns false, without effect, if another process holds
 * the linker lock.
 */
extern bool link_for(Relation index, const IndexFormat *format, int slice_ms);

/*
 * Run passes as manner says. The caller holds the linker lock. Returns the
 * number of slots linked.
 */
extern uint32 link_passes(Relation index, const IndexFormat *format, LinkManner *manner);

/*
 * For inserters: link for a slice if more than gpuann.pending_limit rows are
 * pending, no mirror worker links them, and the linker lock is free; the more
 * rows are pending, the longer the slice. If another process holds the lock and
 * far too many rows are pending, the insert backs off for a moment.
 */
extern void link_if_crowded(Relation index, const IndexFormat *format);

#endif							/* GPUANN_LINK_H */
