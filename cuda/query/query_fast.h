/*
 * query_fast.h
 *		Queries that need no tasks.
 */
#ifndef GPUANN_CUDA_QUERY_FAST_H
#define GPUANN_CUDA_QUERY_FAST_H

#include "cuda/query/batch_stream.h"

/*
 * Start queries without tasks, from the first on, as far as possible; returns
 * how many were started.
 */
extern uint32_t fast_submit(CudaEngine *engine, EngineQuery *const *queries, uint32_t count,
							  uint64_t now);
/* Record the end of a batch stream's fast batch. */
extern void fast_end(CudaEngine *engine, BatchStream *bstream);
/*
 * Hand back finished queries of fast batches, at most `room`; returns how many.
 */
extern uint32_t fast_poll(CudaEngine *engine, EngineQuery **completed, uint32_t room);

#endif /* GPUANN_CUDA_QUERY_FAST_H */
