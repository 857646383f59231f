/*
 * database_hook.h
 *		Sends mirror workers out of a database that is about to be dropped,
 *		moved or copied.
 */
#ifndef GPUANN_DATABASE_HOOK_H
#define GPUANN_DATABASE_HOOK_H

#include "base/base.h"

/* Install the hook; while preloading only. */
extern void database_hook_init(void);

/*
 * drop_hook.c: mirrors of dropped indexes are given up. Called by the
 * postmaster.
 */
extern void drop_hook_init(void);

/* Whether no worker may be started in a database. The mirror lock is held. */
extern bool database_barred(Oid database);

#endif							/* GPUANN_DATABASE_HOOK_H */
