/*
 * launcher.h
 *		The parts of the launcher: launcher.c watches the server, workers.c the
 *		mirror workers.
 */
#ifndef GPUANN_LAUNCHER_H
#define GPUANN_LAUNCHER_H

#include "client/shmem.h"

extern PGDLLEXPORT void gpuann_launcher_main(Datum arg);

/*
 * Notice mirror workers that have ended, and start workers for databases that
 * need one. Returns the milliseconds until the next call.
 */
extern int	workers_round(void);

/*
 * state_file.c: save and restore counters, the list of loaded mirrors and probe
 * counts of lists. Saving if_changed writes nothing if all of them are as they
 * were saved last. Only the first launcher of a postmaster restores.
 */
extern void state_save(bool if_changed);
extern void state_restore(void);

#endif							/* GPUANN_LAUNCHER_H */
