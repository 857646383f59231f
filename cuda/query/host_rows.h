/*
 * host_rows.h
 *		Exact searches of mirrors with rows in host memory.
 */
#ifndef GPUANN_CUDA_HOST_ROWS_H
#define GPUANN_CUDA_HOST_ROWS_H

#include "cuda/exact/exact.h"
#include "cuda/query/batch_stream.h"

/*
 * Streams host rows through two device buffers, for one batch stream at a time:
 * a copy stream fills one buffer while the batch stream searches the other.
 */
struct RowStream
{
	cudaStream_t copies;
	cudaEvent_t copied[2];	 /* the buffer is filled: the search waits for it */
	cudaEvent_t searched[2]; /* its search has finished: the next copy waits for it */
	Range memory;
	size_t tile_bytes;	/* bytes of one buffer; 0: not open */
	uint32_t forced;	/* rows of a tile that a test forces; 0: as many as a buffer holds */

	BatchStream *bstream; /* batch being served; NULL if idle */
	ExactLaunch launch;
	ExactStream search;
	uint32_t near;	/* rows below this are on the device */
	uint32_t next;	/* first row whose tile is not launched yet */
	uint32_t tiles; /* tiles launched */
};

extern EngineStatus host_rows_open(CudaEngine *engine, EngineError *error);
extern void host_rows_close(CudaEngine *engine);
/* Whether a task's search streams rows from host memory. */
extern bool host_rows_takes(const CudaTask *task);
/* Whether it must wait because another batch uses the buffers. */
extern bool host_rows_waits(const CudaEngine *engine, const CudaTask *task);
/* Maximum number of queries of a batch with max_k results each. */
extern uint32_t host_rows_queries(uint32_t max_k);
/*
 * Start a batch: launch its first part. host_rows_more() says whether rows are
 * left, which host_rows_continue() launches, part by part. False: the device
 * failed.
 */
extern bool host_rows_begin(CudaEngine *engine, BatchStream *bstream, const ExactLaunch *launch);
extern bool host_rows_more(const CudaEngine *engine);
extern bool host_rows_continue(CudaEngine *engine, const BatchStream *bstream);
/*
 * Upper bounds of a part of a batch: rows searched, bytes copied from host
 * memory.
 */
extern void host_rows_part(const CudaEngine *engine, const CudaMirror *mirror, uint64_t *rows,
						   uint64_t *bytes);
/*
 * Upper bound of the bytes that a query reads singly from host memory when its
 * filter is too selective for streaming.
 */
extern uint64_t host_rows_passing_bytes(const CudaMirror *mirror);
/*
 * End a batch: free the buffers for the next one; returns the number of its
 * tiles.
 */
extern uint32_t host_rows_end(CudaEngine *engine, BatchStream *bstream);

#endif /* GPUANN_CUDA_HOST_ROWS_H */
