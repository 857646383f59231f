/*
 * lists_search.h
 *		Searches of lists of codes: what the batch code needs to know to launch
 *		them.
 *
 * The answer of a query is that of src/engine/cpu/lists_search.c. Of the rows
 * of the nearest `probes` lists those are measured that the bounds of their
 * codes do not exclude, or the nearest `rerank` by estimate; pending rows are
 * measured too. It depends neither on the batch nor on the order of codes. Who
 * calls scans all rows for a filtered query with fewer than k answers.
 */
#ifndef GPUANN_CUDA_LISTS_SEARCH_H
#define GPUANN_CUDA_LISTS_SEARCH_H

#include "cuda/common/view.h"
#include "cuda/graph/graph_search.h"
#include "cuda/lists/lists_view.h"

#define LISTS_MOST_K 1024u		/* results of a search of lists, */
#define LISTS_MOST_RERANK 4096u /* and rows re-ranked by estimate: who wants more gets all that
								 * certain bounds do not exclude; by rabitq, all */

struct ListsLaunch
{
	MirrorView mirror;
	BatchView batch; /* queries have probes and rerank; heads and results may be pinned memory */
	ListsView lists;
	uint32_t queries;
	uint32_t max_k;		 /* at most LISTS_MOST_K */
	uint32_t max_probes; /* at most lists.lists */
	uint32_t max_rerank; /* of those below LISTS_MOST_RERANK */
	bool rows_on_host;	 /* some are in the host's memory: few are measured for a limit */
	PendingLists pending; /* keys NULL: the search scans the pending rows itself */
	size_t state_bytes;	 /* of batch.state: a launch takes its queries in parts that this serves */
	uint32_t processors;
	cudaStream_t stream;
};

/*
 * Bytes of state that serve one query at a time of any launch on these lists.
 */
extern size_t lists_search_least_bytes(const ListsView *lists, uint32_t max_probes, uint32_t max_k,
									   uint32_t max_rerank);

/*
 * Launch the search: all answers and heads are written when the stream has done
 * it, and the batch's flag is raised, if it has one. A head counts: expanded,
 * lists read; distances, rows measured for answers with the pending ones;
 * iterations, codes estimated; pending.
 * Nothing waits for the device, and no host memory is read but the batch's.
 */
extern cudaError_t lists_search_launch(const ListsLaunch *launch);

/* Allow the kernels their shared memory. */
extern cudaError_t lists_search_prepare(const cudaDeviceProp *device);

#endif /* GPUANN_CUDA_LISTS_SEARCH_H */
