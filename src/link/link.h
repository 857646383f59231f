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

/* Rows that a pass changed, ascending by slot. */
typedef struct LinkedRows
{
	uint32		count;
	uint32	   *slots;
	uint32	   *rows;			/* count * degree, NO_SLOT after the last */
	uint32	   *places;			/* where among rows each slot's row is; NULL: in order */
	uint32		nseeds;			/* 0: leave the seed area as it is */
	uint32	   *seeds;
} LinkedRows;

/* Where a slot of a pass stands. */
typedef struct LinkPlace
{
	uint32		offset;			/* in the list, from where the pass begins */
	uint32		live;			/* live slots listed before it there */
} LinkPlace;

/* What a pass is about to link. */
typedef struct LinkPass
{
	uint64		from;			/* pending positions */
	uint64		to;
	uint32		count;			/* slots to link among them */
	uint32	   *slots;			/* in the order of the list */
	LinkPlace  *places;			/* theirs, as link_collect fills them */
	uint32		room;			/* of both, if link_collect made them */
	uint32		live;			/* live slots in [from, to): these are in the graph when the pass is
								 * whole */
} LinkPass;

/*
 * Take the linker lock. Session level for workers (it outlives the transactions
 * of their slices), else until the end of the transaction. Without wait, false
 * if somebody else has it.
 */
extern bool linker_lock(Relation index, bool wait, bool session);
extern void linker_unlock(Relation index, bool session);

/* Whether somebody waits for the linker lock that we hold: yield then. */
extern bool linker_lock_wanted(Relation index, bool session);

/*
 * Count the rows that an interrupted pass has written: the metapage counts them
 * when the list entries that name them have been dealt with.
 */
extern uint32 linked_but_listed(Relation index, const IndexFormat *format);

/* Collect up to most unlinked slots (0: all). The arrays are palloc'd. */
extern void link_collect(Relation index, const IndexFormat *format, uint32 most, LinkPass *pass);

/*
 * Add those of list entries that came since, up to a position that the list has
 * reached.
 */
extern void link_collect_more(Relation index, const IndexFormat *format, uint64 end,
							  LinkPass *pass);

/*
 * Write a pass: rows by block, stamped; seeds; then linked_position, trimming
 * and change_seq. Rows of slots that are no longer live or whose page says
 * otherwise are handled; interrupts are served between pages.
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
 * Put seeds in the order that engine/seeds.h tells, by their vectors in the
 * pages (seed_order.c). The first ones, from which all rows were made to be
 * reached, stay the first.
 */
extern void order_seeds(Relation index, const IndexFormat *format, uint32 *seeds, uint32 count);

/*
 * A mirror of lists whose engine assigns and encodes rows for passes. It is
 * current to the pages but for list entries from a position on. The channel is
 * the caller's.
 */
typedef struct ListServer
{
	int			channel;
	uint32		entry;
	uint32		generation;
	uint64		position;
	int64		call_us;		/* time limit of a call */
	uint32		coded;			/* rows so far */
	EngineStatus failed;		/* not ENGINE_OK: why rows are assigned here from then on; ... */
	const char *reason;			/* ... until the next call of a channel */
} ListServer;

/*
 * How a pass is computed, and who is told: so many rows are linked now, those
 * of the passes before it included. tell may be NULL.
 */
typedef struct LinkManner
{
	int			slice_ms;		/* begin no further batch after that; 0: no limit */
	ListServer *server;			/* or NULL; passes end where its mirror does */
	void		(*tell) (int64 linked);
	int64		before;			/* rows linked by the passes before */
} LinkManner;

/*
 * The same, but it ends the pass where the changed rows fill the memory
 * allowed, or the time is up: pass->to and pass->count say where that is.
 */
extern void link_part_over_pages(Relation index, const IndexFormat *format, LinkPass *pass,
								 const LinkManner *manner, LinkedRows *rows);

/*
 * The same in memory, in a CPU engine of this process: false, with nothing
 * done, if it is too small for that or the index too large.
 */
extern bool link_in_memory(Relation index, const IndexFormat *format, const LinkPass *pass,
						   LinkedRows *rows);

/* Passes until nothing is left. Returns slots linked. Caller holds the lock. */
extern uint32 link_pending(Relation index, const IndexFormat *format);

/*
 * Passes until nothing is left, telling how many rows are linked now and then.
 */
extern uint32 link_pending_telling(Relation index, const IndexFormat *format,
								   void (*tell)(int64 linked));

/*
 * Link for so long, if nobody else links: false, with nothing done, if somebody
 * does.
 */
extern bool link_for(Relation index, const IndexFormat *format, int slice_ms);

/* Passes in a manner. The caller holds the lock. Returns slots linked. */
extern uint32 link_passes(Relation index, const IndexFormat *format, LinkManner *manner);

/*
 * For inserters: link a slice if the pending list has crossed
 * gpuann.pending_limit, no worker links the index's rows, and nobody else does;
 * the more rows wait, the longer. Where somebody does and far too many wait,
 * the insert waits a moment.
 */
extern void link_if_crowded(Relation index, const IndexFormat *format);

#endif							/* GPUANN_LINK_H */
