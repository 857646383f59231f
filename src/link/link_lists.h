/*
 * link_lists.h
 *		Linking where rows are in lists: adding rows to lists, taking them out.
 *		All under the linker lock.
 */
#ifndef GPUANN_LINK_LISTS_H
#define GPUANN_LINK_LISTS_H

#include "link/link.h"

/*
 * Put the rows of a pass into their lists, and end the pass. The server, unless
 * it is NULL or fails, assigns and encodes them.
 */
extern void link_into_lists(Relation index, const IndexFormat *format, const LinkPass *pass,
							ListServer *server);

/*
 * Remove the entries of dead slots, which have a bit in dead, of limit slots.
 */
extern void link_out_of_lists(Relation index, const IndexFormat *format,
							  const unsigned char *dead, uint32 limit);

/*
 * Remove entries of passes that were cut short, if nothing is pending: there
 * are more than linked rows then.
 */
extern void link_out_needless(Relation index, const IndexFormat *format);

#endif							/* GPUANN_LINK_LISTS_H */
