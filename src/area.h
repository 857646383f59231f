/*
 * area.h
 *		PostgreSQL's side of the shared area: made by the postmaster, mapped by everybody, looked after by the launcher.
 */
#ifndef GPUANN_AREA_H
#define GPUANN_AREA_H

#include "gpuann.h"
#include "server/protocol.h"

#include "storage/lwlock.h"

/* The area, or NULL when gpuann is not in shared_preload_libraries. The same address in every process. */
extern AreaHeader *gpuann_area;

/* Its descriptor, to pass to the server; -1 without an area. */
extern int	gpuann_area_fd;

/* Protects creating, claiming and emptying entries of the mirror table. */
extern LWLock *gpuann_mirror_lock(void);

/* This backend's request slot, or -1 for a process without one. */
extern int	area_my_slot(void);

/* Wait until *word differs from value, interruptibly; at most until deadline_us (CLOCK_MONOTONIC). True: it differs. */
extern bool area_wait(_Atomic uint32_t *word, uint32 value, int64 deadline_us, uint32 wait_event);

extern int64 monotonic_us(void);

/* Claim a lane for this process, or -1; release cancels and abandons what is in flight. */
extern int	lane_claim(void);
extern void lane_release(int lane);

/* Post what the lane holds and wait for the answer. ENGINE_OK, or the lane's status with *text; FALLBACK-like failures give ENGINE_FAILED. */
extern EngineStatus lane_call(int lane, const char **text);

extern PGDLLEXPORT void gpuann_launcher_main(Datum arg);
extern PGDLLEXPORT void gpuann_worker_main(Datum arg);

#endif							/* GPUANN_AREA_H */
