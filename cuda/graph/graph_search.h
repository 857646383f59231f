/*
 * graph_search.h
 *		Graph search: interface to the code that launches batches.
 */
#ifndef GPUANN_CUDA_GRAPH_SEARCH_H
#define GPUANN_CUDA_GRAPH_SEARCH_H

#include "cuda/common/view.h"

/*
 * Results of exact scans of the pending rows that ran before the graph search:
 * several sorted lists per query, which the search merges into its answers.
 */
struct PendingLists
{
	const Key *keys; /* queries x lists x length, each list sorted; NULL: the search scans the
					  * pending rows itself */
	const uint32_t *slots;
	uint32_t lists;
	uint32_t length;
	const DeviceHead *heads; /* `pending`: how many pending rows were compared with each query */
};

/*
 * Shared memory limits of a device, determined by graph_search_prepare() and
 * walk_prepare().
 */
struct GraphLimits
{
	uint32_t search_shared; /* maximum dynamic shared memory of a block, in bytes:
							 * graph_search.cu */
	uint32_t walk_shared;	/* graph_search_codes.cu */
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
	bool any_admitted; /* some query has a bitmap or a bound */
	bool reference;
	cudaStream_t stream;
};

/*
 * Bytes of the batch's state per query of a launch; 0: everything fits into
 * shared memory.
 */
extern size_t graph_search_state_bytes(const GraphLimits *limits, const MirrorView *mirror,
									   bool reference, uint32_t max_k, uint32_t max_ef, bool apart);
/*
 * Raise the kernels' shared memory limits; fails if this device has no code for
 * them.
 */
extern cudaError_t graph_search_prepare(const cudaDeviceProp *device, GraphLimits *limits);
/* Whether searches may be in reference mode: only where tests link it. */
extern bool graph_has_reference(void);
extern cudaError_t graph_search_launch(const GraphLaunch *launch);

#endif /* GPUANN_CUDA_GRAPH_SEARCH_H */
