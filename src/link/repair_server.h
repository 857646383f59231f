/*
 * repair_server.h
 *		VACUUM's repair by the server's engine, in the index's mirror.
 */
#ifndef GPUANN_REPAIR_SERVER_H
#define GPUANN_REPAIR_SERVER_H

#include "client/client.h"

/*
 * One repair. The linker lock is held from begin to end, so no other process
 * changes edges in pages or mirror.
 */
typedef struct RepairServer
{
	Relation	index;
	const IndexFormat *format;
	MirrorRef	mirror;
	int			channel;			/* -1: none */
	bool		ahead;			/* the mirror has changes that the pages do not have */
	bool		link_refused;	/* the engine refused to repair */
	uint32		refused;		/* number of fetched rows that were refused */
	uint32		pieces;			/* number of jobs, and of rows they changed */
	int64		came;
	int64		took_us;		/* engine time of the last piece */
	uint32		fetched;		/* rows fetched at once */
	uint32	   *slots;
	uint32	   *rows;
	char		reason[160];	/* why not */
} RepairServer;

/*
 * Take a row changed by the engine, of degree neighbours. Returns false if it
 * is not valid.
 */
typedef bool (*TakeRepaired) (void *arg, uint32 slot, const uint32 *row);

/*
 * Allocate the state. Call before registering repair_server_abandon() as an
 * exit callback.
 */
extern RepairServer *repair_server_make(void);

/*
 * Whether the server can repair the index: its engine is on a GPU and has the
 * mirror. `dead` of `all` rows have died. Waits until the mirror has
 * change_seq, with which the dead slots were marked.
 */
extern bool repair_server_begin(RepairServer *server, Relation index, const IndexFormat *format,
								uint32 dead, uint32 all, uint64 change_seq);

/*
 * Have slots below `slots` repaired, and pass changed rows to take. Returns
 * false, after a message, if some rows may not have been repaired.
 */
extern bool repair_server_run(RepairServer *server, uint32 slots, TakeRepaired take, void *arg);

/* End a repair whose changes are in the pages. */
extern void repair_server_end(RepairServer *server);

/*
 * End a repair whose changes will not get into the pages, after an error or
 * cancel or at process exit. A before_shmem_exit callback; arg is the
 * RepairServer.
 */
extern void repair_server_abandon(int code, Datum arg);

#endif							/* GPUANN_REPAIR_SERVER_H */
