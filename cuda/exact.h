/*
 * exact.h
 *		Exact search: what the batch code needs to know to launch it.
 */
#ifndef GPUANN_CUDA_EXACT_H
#define GPUANN_CUDA_EXACT_H

#include "view.h"

#define EXACT_SMALL_K 1024u	   /* up to here a block keeps the best of its rows in shared memory */
#define EXACT_TILE (1u << 20)  /* rows sorted at once for larger k */
#define EXACT_CHUNK (1u << 18) /* results one pass over the rows finds; a larger k continues behind the last */

/* An exact search of a batch's queries over all rows, or over the pending ones. */
struct ExactLaunch
{
	MirrorView mirror;
	BatchView batch;
	ElementType type;
	uint32_t queries;
	uint32_t max_k;
	uint32_t blocks; /* blocks that keep the device busy */
	size_t state_bytes;
	bool pending_only;
	cudaStream_t stream;
};

/* Lists that a scan leaves in the batch's state: queries x lists x length keys, then as many slots. */
struct ExactLists
{
	Key *keys;
	uint32_t *slots;
	uint32_t lists;
	uint32_t length;
};

/* The best max_k of each of several ranges of rows, max_k <= EXACT_SMALL_K. */
extern cudaError_t exact_scan_launch(const ExactLaunch *launch, ExactLists *lists);
/* The answers of a batch, in whichever way is best for it. Heads have been cleared. */
extern cudaError_t exact_search_launch(const ExactLaunch *launch);
/* The first query of a batch, with any k up to EXACT_CHUNK: keys of all rows, sorted tile by tile. */
extern cudaError_t exact_sort_launch(const ExactLaunch *launch);
/* State that exact_sort_launch needs. */
extern cudaError_t exact_sort_bytes(size_t *bytes);
/* Queries of length k that a scan has room for in state_bytes. */
extern uint32_t exact_scan_queries(size_t state_bytes, uint32_t max_k);
extern cudaError_t exact_prepare(size_t shared_room);

#endif /* GPUANN_CUDA_EXACT_H */
