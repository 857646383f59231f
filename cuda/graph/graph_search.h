/*
 * graph_search.h
 *		Graph search: what the batch code needs to know to launch it.
 */
#ifndef GPUANN_CUDA_GRAPH_SEARCH_H
#define GPUANN_CUDA_GRAPH_SEARCH_H

#include "cuda/common/view.h"

/*
 * Entries that exact searches of the pending rows, made before, hand to a graph
 * search: lists of each query, in turn.
 */
struct PendingLists
{
	const Key *keys; /* queries x lists x length, each list sorted; NULL: the search scans the
					  * pending rows itself */
	const uint32_t *slots;
	uint32_t lists;
	uint32_t length;
	const DeviceHead *heads; /* say how many pending rows each query was shown */
};

struct GraphLaunch
{
	MirrorView mirror;
	BatchView batch;
	PendingLists pending;
	ElementType type;
	uint32_t queries;
	uint32_t max_k;
	uint32_t max_ef;
	bool any_admitted; /* or bounded */
	bool reference;
	cudaStream_t stream;
};

/*
 * Bytes of the batch's state that one query of a launch wants; 0: all of it is
 * in shared memory.
 */
extern size_t graph_search_state_bytes(const MirrorView *mirror, bool reference, uint32_t max_k,
									   uint32_t max_ef, bool apart);
/*
 * Allow the kernels their shared memory, and check that this device has code
 * for them.
 */
extern cudaError_t graph_search_prepare(const cudaDeviceProp *device);
extern cudaError_t graph_search_launch(const GraphLaunch *launch);

#endif /* GPUANN_CUDA_GRAPH_SEARCH_H */
