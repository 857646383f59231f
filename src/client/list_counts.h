/*
 * list_counts.h
 *		Probe counts of lists, in the shared area: claiming and reading them.
 */
#ifndef GPUANN_LIST_COUNTS_H
#define GPUANN_LIST_COUNTS_H

#include "client/mirror_table.h"

/*
 * Claim counts for an entry with this many lists: those that it holds, if the
 * number matches, or new ones, all zero. Returns false if there is no room or
 * there are too many lists; then the entry has no counts. The mirror lock is
 * held exclusively.
 */
extern bool list_counts_claim(int entry, uint32 lists);

/*
 * Set or copy the counts of an entry that has some, and the time as of which
 * they are aged. Values that the server could not have written correctly are
 * replaced. The mirror lock is held, exclusively to set them.
 */
extern void list_counts_set(int entry, const double *counts, int64 counted_at);
extern void list_counts_copy(int entry, double *counts, int64 *counted_at);

/*
 * How often each list of an index was probed, as of now. The server is asked to
 * update the counts; if it does not answer within gpuann.request_timeout, they
 * are some seconds old. Returns false if this index has no counts, or for
 * another number of lists.
 */
extern bool client_list_counts(Relation index, uint64 nonce, uint32 lists, double *counts);

#endif							/* GPUANN_LIST_COUNTS_H */
