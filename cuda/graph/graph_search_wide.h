/*
 * graph_search_wide.h
 *		The walk over codes for what graph_search_codes.cu does not take:
 *		bitmaps, bounds, long lists, L1, bits.
 */
#ifndef GPUANN_CUDA_GRAPH_SEARCH_WIDE_H
#define GPUANN_CUDA_GRAPH_SEARCH_WIDE_H

#include "cuda/graph/graph_search.h"

/*
 * Whether it takes a mirror's queries: it has codes, or is of bits. A function
 * of the mirror alone.
 */
extern bool wide_takes(const MirrorView *mirror);
/*
 * Bytes of the batch's state that one query of a launch wants; 0: all of it is
 * in shared memory.
 */
extern size_t wide_state_bytes(const MirrorView *mirror, uint32_t max_k, uint32_t max_ef,
							   bool apart);
/* Allow the kernels their shared memory. */
extern cudaError_t wide_prepare(const cudaDeviceProp *device);
extern cudaError_t wide_launch(const GraphLaunch *launch);

#endif /* GPUANN_CUDA_GRAPH_SEARCH_WIDE_H */
