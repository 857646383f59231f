/*
 * link_lists.h
 *		Linking of indexes with lists: adding rows to lists, and removing them.
 *		The caller holds the linker lock.
 */
#ifndef GPUANN_LINK_LISTS_H
#define GPUANN_LINK_LISTS_H

#include "link/link.h"

/*
 * Add the rows of a pass to their lists, and end the pass. The server assigns
 * and encodes them, unless it is NULL or fails.
 */
extern void link_into_lists(Relation index, const IndexFormat *format, const LinkPass *pass,
							ListServer *server);

/*
 * Remove the entries of dead slots. dead is a bitmap of limit slots.
 */
extern void link_out_of_lists(Relation index, const IndexFormat *format,
							  const unsigned char *dead, uint32 limit);

/*
 * Remove entries left by interrupted passes, if nothing is pending and there
 * are more entries than linked rows.
 */
extern void link_out_needless(Relation index, const IndexFormat *format);

#endif							/* GPUANN_LINK_LISTS_H */
