/*
 * graph_search_codes.h
 *		The walk over codes: the fast graph search, for queries without bitmap
 *		or bound whose list fits into shared memory.
 */
#ifndef GPUANN_CUDA_GRAPH_SEARCH_CODES_H
#define GPUANN_CUDA_GRAPH_SEARCH_CODES_H

#include "cuda/graph/graph_search.h"

#define WALK_WIDTH 8u	   /* graph rows expanded per round, whatever the size of the batch */
#define WALK_MAX_WIDTH 8u
#define WALK_MAX_WARPS 16u /* per query */

/* A tunable constant: benchmark builds read it from the environment, once. */
#ifdef GPUANN_TUNING
#include <stdio.h>
#include <stdlib.h>
#define TUNED(name, value) \
	( \
		[&] \
		{ \
			static const char *text = getenv("GPUANN_" name); \
			return text != NULL ? (uint32_t) atoi(text) : (uint32_t) (value); \
		}())
#else
#define TUNED(name, value) ((uint32_t) (value))
#endif

/*
 * Whether the walk can answer a query; depends only on query and mirror. ef is
 * at least k.
 */
extern bool walk_takes(const GraphLimits *limits, const MirrorView *mirror, uint32_t k,
					   uint32_t ef);
/* Raise the kernels' shared memory limits. */
extern cudaError_t walk_prepare(const cudaDeviceProp *device, GraphLimits *limits);
/*
 * in_flight: queries on the device, these included; determines the warps per
 * query, which changes no answer.
 */
extern cudaError_t walk_launch(const GraphLaunch *launch, uint32_t in_flight);

#endif /* GPUANN_CUDA_GRAPH_SEARCH_CODES_H */
