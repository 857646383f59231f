/*
 * node_checksums.h
 *		What a worker remembers of the nodes that its mirrors have.
 */
#ifndef GPUANN_NODE_CHECKSUMS_H
#define GPUANN_NODE_CHECKSUMS_H

typedef struct NodeChecksums NodeChecksums;

/*
 * What is known of a mirror of so many slots; NULL if there is no memory for
 * it.
 */
extern NodeChecksums *node_checksums(int entry, uint32 generation, uint32 slots);

/* Something went wrong: nothing is known of the mirror any more. */
extern void node_checksums_forget_all(int entry);

/* Give back the memory of mirrors that are no more. */
extern void node_checksums_sweep(void);

/*
 * How many superblocks' pages were read to know what the mirror has: the
 * caller's to advance.
 */
extern uint32 *node_checksums_learned(NodeChecksums *known);

/* A slot is about to change in another way; known may be NULL. */
extern void node_checksums_forget(NodeChecksums *known, uint32 slot);

/*
 * Note what the mirror has of a slot from now on; true if that is what it had.
 * known may be NULL.
 */
extern bool node_checksums_note(NodeChecksums *known, uint32 slot, uint32 sum);

/*
 * The same of a node's row, and of what else there is to tell of it, in a
 * mirror of so many slots.
 */
extern bool node_checksums_note_row(NodeChecksums *known, uint32 slot, const uint32 *row,
									uint32 degree, uint32 slots, uint64 start);

/*
 * The sum of a row, of a mirror that has so many slots, and of what else there
 * is to tell of its node; 0: not to be relied on.
 */
extern uint32 node_checksum(const uint32 *row, uint32 degree, uint32 slots, uint64 start);

#endif							/* GPUANN_NODE_CHECKSUMS_H */
