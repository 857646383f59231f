/*
 * query_fast.h
 *		Queries that need no tasks.
 */
#ifndef GPUANN_CUDA_QUERY_FAST_H
#define GPUANN_CUDA_QUERY_FAST_H

#include "cuda/query/batch_stream.h"

/*
 * Start those of many queries that can be, from the first on; returns how many.
 */
extern uint32_t fast_submit(CudaEngine *engine, EngineQuery *const *queries, uint32_t count,
							  uint64_t now);
/* A batch stream's fast batch is over. */
extern void fast_end(CudaEngine *engine, BatchStream *bstream);
/* Hand back queries of those that are over, at most room. */
extern uint32_t fast_poll(CudaEngine *engine, EngineQuery **completed, uint32_t room);

#endif /* GPUANN_CUDA_QUERY_FAST_H */
