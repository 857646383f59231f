/*
 * launcher.h
 *		The launcher's parts: launcher.c watches the server, workers.c the
 *		mirror workers.
 */
#ifndef GPUANN_LAUNCHER_H
#define GPUANN_LAUNCHER_H

#include "client/shmem.h"

extern PGDLLEXPORT void gpuann_launcher_main(Datum arg);

/*
 * Notice mirror workers that have ended, and start some for databases that want
 * one. Returns the milliseconds after which to look again.
 */
extern int	workers_round(void);

/*
 * state_file.c: counters and resident mirrors, for the next start. Restoring
 * does nothing but in the first launcher of a cluster.
 */
extern void state_save(void);
extern void state_restore(void);

#endif							/* GPUANN_LAUNCHER_H */
