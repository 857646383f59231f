/*
 * database_hook.h
 *		Have mirror workers leave a database that is about to be dropped,
 *		renamed, moved or copied.
 */
#ifndef GPUANN_DATABASE_HOOK_H
#define GPUANN_DATABASE_HOOK_H

#include "base/base.h"

/* Install the hook; only while preloading. */
extern void database_hook_init(void);

/*
 * drop_hook.c: install the hook that drops mirrors of dropped indexes. Called
 * by the postmaster.
 */
extern void drop_hook_init(void);

/* Whether no worker may be started in a database. The mirror lock is held. */
extern bool database_barred(Oid database);

#endif							/* GPUANN_DATABASE_HOOK_H */
