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

/*
 * What a device allows graph searches: found once, by graph_search_prepare and
 * walk_prepare.
 */
struct GraphLimits
{
	uint32_t search_shared; /* bytes of a block's shared memory, of graph_search.cu */
	uint32_t walk_shared;	/* and of graph_search_codes.cu */
	uint32_t processors;
};

struct GraphLaunch
{
	const GraphLimits *limits;
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
extern size_t graph_search_state_bytes(const GraphLimits *limits, const MirrorView *mirror,
									   bool reference, uint32_t max_k, uint32_t max_ef, bool apart);
/*
 * Allow the kernels their shared memory, and check that this device has code
 * for them.
 */
extern cudaError_t graph_search_prepare(const cudaDeviceProp *device, GraphLimits *limits);
extern cudaError_t graph_search_launch(const GraphLaunch *launch);

#endif /* GPUANN_CUDA_GRAPH_SEARCH_H */
