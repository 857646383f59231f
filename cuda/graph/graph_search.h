/*
 * graph_search.h
 *		Graph search: what the batch code needs to know to launch it.
 */
#ifndef GPUANN_CUDA_GRAPH_SEARCH_H
#define GPUANN_CUDA_GRAPH_SEARCH_H

#include "cuda/common/view.h"

/*
 * Graph rows read per round in walks that are not in reference mode: the same
 * for every batch size.
 */
#define SEARCH_WIDTH 2u

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
	uint32_t max_table;
	bool any_admitted;
	bool reference;
	cudaStream_t stream;
};

/*
 * Bytes of lists and set that one query of a launch keeps, and whether they go
 * to shared memory.
 */
extern size_t graph_state_bytes(uint32_t ef, uint32_t table, bool admitted);
extern bool graph_state_shared(const MirrorView *mirror, size_t state_bytes, bool reference);
/*
 * Places of the set of slots seen that a query wants: a function of the query
 * and the mirror alone.
 */
extern uint32_t graph_table_places(uint32_t ef, uint32_t degree, bool admitted);
/*
 * Allow the kernels their shared memory, and check that this device has code
 * for them; room is what a block may have.
 */
extern cudaError_t graph_search_prepare(size_t shared_room);
extern cudaError_t graph_search_launch(const GraphLaunch *launch);

#endif /* GPUANN_CUDA_GRAPH_SEARCH_H */
