/*
 * link_order.h
 *		The order in which a link takes its rows, the same in every engine.
 */
#ifndef GPUANN_LINK_ORDER_H
#define GPUANN_LINK_ORDER_H

#include <stdint.h>

#define LINK_SHUFFLE_FROM	1024	/* links of at least this many rows are in random order */

/*
 * Put the slots of a large link in random order: neighbours in a table are
 * often alike.
 */
static inline void
link_shuffle(uint32_t *slots, uint32_t count)
{
	uint64_t	random = 88172645463325252u;

	for (uint32_t i = count; i > 1 && count >= LINK_SHUFFLE_FROM; i--)
	{
		uint32_t	slot = slots[i - 1];
		uint32_t	other;

		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		other = (uint32_t) (random % i);
		slots[i - 1] = slots[other];
		slots[other] = slot;
	}
}

#endif							/* GPUANN_LINK_ORDER_H */
