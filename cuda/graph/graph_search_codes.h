/*
 * graph_search_codes.h
 *		The walk over codes: graph search as fast as it gets, for what most
 *		queries ask.
 */
#ifndef GPUANN_CUDA_GRAPH_SEARCH_CODES_H
#define GPUANN_CUDA_GRAPH_SEARCH_CODES_H

#include "cuda/graph/graph_search.h"

#define WALK_WIDTH 8u	   /* graph rows read per round, whatever the batch */
#define WALK_MOST_WIDTH 8u
#define WALK_MOST_WARPS 16u /* of a query */

/* A number that a benchmark build takes from the environment, read once. */
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
 * Whether the walk takes a query: a function of query and mirror alone. ef is
 * what the query asks, raised to k.
 */
extern bool walk_takes(const GraphLimits *limits, const MirrorView *mirror, uint32_t k,
					   uint32_t ef);
/* Allow the kernels their shared memory. */
extern cudaError_t walk_prepare(const cudaDeviceProp *device, GraphLimits *limits);
/*
 * in_flight: queries on the device, these included; they say how many warps
 * each gets, which changes no answer.
 */
extern cudaError_t walk_launch(const GraphLaunch *launch, uint32_t in_flight);

#endif /* GPUANN_CUDA_GRAPH_SEARCH_CODES_H */
