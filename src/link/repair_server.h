/*
 * repair_server.h
 *		VACUUM's repair by the server's engine, in the index's mirror.
 */
#ifndef GPUANN_REPAIR_SERVER_H
#define GPUANN_REPAIR_SERVER_H

#include "client/client.h"

/*
 * One repair. The linker lock is held from begin to end, so that nobody else
 * changes edges, of pages or mirror.
 */
typedef struct RepairServer
{
	Relation	index;
	const IndexFormat *format;
	MirrorRef	mirror;
	int			channel;			/* -1: none */
	bool		ahead;			/* the mirror has rows that the pages have not */
	bool		link_refused;	/* the engine does not link this mirror, or not now */
	uint32		refused;		/* rows that came back and are not to be had */
	uint32		pieces;			/* jobs of the engine, and rows that they changed */
	int64		came;
	int64		took_us;		/* the engine for the last piece */
	uint32		fetched;		/* rows that come back at once */
	uint32	   *slots;
	uint32	   *rows;
	char		reason[160];	/* why not */
} RepairServer;

/*
 * Take a row that the engine changed: degree neighbours. False: it is not one
 * that the pages may have.
 */
typedef bool (*TakeRepaired) (void *arg, uint32 slot, const uint32 *row);

/*
 * One that has nothing yet. To be made before repair_server_abandon is called
 * for at the end of the process.
 */
extern RepairServer *repair_server_make(void);

/*
 * Whether the server is to repair the index: its engine has a device, and the
 * mirror is there. `dead` rows have died, of `all`; change_seq is that of their
 * marks, which the mirror is waited for.
 */
extern bool repair_server_begin(RepairServer *server, Relation index, const IndexFormat *format,
								uint32 dead, uint32 all, uint64 change_seq);

/*
 * Have slots below `slots` repaired, and what has changed handed to take.
 * False, with a message: a part of it at most.
 */
extern bool repair_server_run(RepairServer *server, uint32 slots, TakeRepaired take, void *arg);

/* The pages have what came. */
extern void repair_server_end(RepairServer *server);

/*
 * They will not have it: an error, a cancel, the end of the process. As
 * before_shmem_exit wants it; arg is the RepairServer.
 */
extern void repair_server_abandon(int code, Datum arg);

#endif							/* GPUANN_REPAIR_SERVER_H */
