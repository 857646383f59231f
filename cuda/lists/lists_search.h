/*
 * lists_search.h
 *		Searches of lists of codes: interface to the code that launches batches.
 *
 * The answer of a query is that of src/engine/cpu/lists_search.c: of the rows
 * of the nearest `probes` lists, those whose code bounds do not exclude them,
 * or the nearest `rerank` by estimate, are measured exactly; so are pending
 * rows. It depends neither on the batch nor on the order of codes. For a
 * filtered query with fewer than k answers the caller scans all rows.
 */
#ifndef GPUANN_CUDA_LISTS_SEARCH_H
#define GPUANN_CUDA_LISTS_SEARCH_H

#include "cuda/common/view.h"
#include "cuda/graph/graph_search.h"
#include "cuda/lists/lists_view.h"

#define LISTS_MAX_K 1024u		/* results of a search of lists */
#define LISTS_MAX_RERANK 4096u /* rows reranked by estimate: queries that ask for more measure all
								 * rows that certain bounds do not exclude; with rabitq all rows */

struct ListsLaunch
{
	MirrorView mirror;
	BatchView batch; /* queries have probes and rerank; heads and results may be pinned memory */
	ListsView lists;
	ListHalves halves; /* of the lists' centroids, in half precision */
	uint32_t queries;
	uint32_t max_k;		 /* at most LISTS_MAX_K */
	uint32_t max_probes; /* at most lists.lists */
	uint32_t max_rerank; /* of those below LISTS_MAX_RERANK */
	bool rows_on_host;	 /* some rows are in host memory, so few are measured to derive a limit */
	PendingLists pending; /* keys NULL: the search scans the pending rows itself */
	size_t state_bytes;	 /* of batch.state: a launch processes its queries in parts that fit */
	uint32_t products_queries; /* from how many queries on tensor cores choose lists; 0: default */
	uint32_t stages;	 /* of ListsLimits */
	uint32_t processors;
	cudaStream_t stream;
};

/*
 * Bytes of state that suffice for any launch on these lists, one query at a
 * time.
 */
extern size_t lists_search_min_bytes(const ListsView *lists, uint32_t max_probes, uint32_t max_k,
									   uint32_t max_rerank);

/*
 * Launch the search. When the stream has completed it, all answers and heads
 * are written, and the batch's flag, if it has one, is raised. Counters of a
 * head: expanded, lists probed; distances, rows measured exactly, pending ones
 * included; iterations, codes estimated; pending.
 * Nothing waits for the device, and no host memory is read but the batch's.
 */
extern cudaError_t lists_search_launch(const ListsLaunch *launch);

/* Raise the kernels' shared memory limits. */
extern cudaError_t lists_search_prepare(const cudaDeviceProp *device);

#endif /* GPUANN_CUDA_LISTS_SEARCH_H */
