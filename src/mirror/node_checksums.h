/*
 * node_checksums.h
 *		Checksums of the nodes that mirrors have, local to a worker.
 */
#ifndef GPUANN_NODE_CHECKSUMS_H
#define GPUANN_NODE_CHECKSUMS_H

typedef struct NodeChecksums NodeChecksums;

/*
 * Get the checksums of a mirror with this many slots; NULL if there is no
 * memory for them.
 */
extern NodeChecksums *node_checksums(int entry, uint32 generation, uint32 slots);

/* Discard the checksums of a mirror, after an error. */
extern void node_checksums_forget_all(int entry);

/* Free the memory of mirrors that no longer exist. */
extern void node_checksums_sweep(void);

/*
 * Number of superblocks whose pages were read to compute checksums; advanced by
 * the caller.
 */
extern uint32 *node_checksums_learned(NodeChecksums *known);

/* Discard the checksum of a slot that is about to change; known may be NULL. */
extern void node_checksums_forget(NodeChecksums *known, uint32 slot);

/*
 * Set the checksum of a slot. Returns true if it is unchanged. known may be
 * NULL.
 */
extern bool node_checksums_note(NodeChecksums *known, uint32 slot, uint32 sum);

/*
 * The same for a node, given by its row and `start`, which stands for its other
 * data. slots is the number of slots in the mirror.
 */
extern bool node_checksums_note_row(NodeChecksums *known, uint32 slot, const uint32 *row,
									uint32 degree, uint32 slots, uint64 start);

/*
 * Checksum of a row and of the node's other data (start), in a mirror with this
 * many slots. 0: do not rely on it.
 */
extern uint32 node_checksum(const uint32 *row, uint32 degree, uint32 slots, uint64 start);

#endif							/* GPUANN_NODE_CHECKSUMS_H */
