/*
 * list_counts.h
 *		How often the lists of indexes are probed: the area's counts, who has
 *		which, and reading them.
 */
#ifndef GPUANN_LIST_COUNTS_H
#define GPUANN_LIST_COUNTS_H

#include "client/mirror_table.h"

/*
 * Have counts for so many lists of an entry: those it has, if they are as many,
 * or new ones, all zero. False: the area has no room, or no mirror can have so
 * many, and the entry no counts. The lock is held exclusively.
 */
extern bool list_counts_claim(int entry, uint32 lists);

/* Give them back. The lock is held exclusively. */
extern void list_counts_release(int entry);

/*
 * Set or copy the counts of an entry that has some, and the time as of which
 * they are aged. What the server may have written is made sound. The lock is
 * held, exclusively to set them.
 */
extern void list_counts_set(int entry, const double *counts, int64 counted_at);
extern void list_counts_copy(int entry, double *counts, int64 *counted_at);

/*
 * How often each list of an index was probed, as of now: the server is asked
 * to bring its counts up to date, if it answers within gpuann.request_timeout;
 * else they are some seconds old. False: nothing was ever counted of this
 * index, or of one with as many lists.
 */
extern bool client_list_counts(Relation index, uint64 nonce, uint32 lists, double *counts);

#endif							/* GPUANN_LIST_COUNTS_H */
