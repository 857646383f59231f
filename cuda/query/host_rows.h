/*
 * host_rows.h
 *		Exact searches of rows in host memory.
 */
#ifndef GPUANN_CUDA_HOST_ROWS_H
#define GPUANN_CUDA_HOST_ROWS_H

#include "cuda/exact/exact.h"
#include "cuda/query/batch_stream.h"

/*
 * Rows in host memory on their way through the device, for one batch stream at
 * a time: two buffers there, filled by a stream of their own while the batch
 * stream's searches the other.
 */
struct RowStream
{
	cudaStream_t copies;
	cudaEvent_t copied[2];	 /* a buffer is filled */
	cudaEvent_t searched[2]; /* and may be filled again */
	Range memory;
	size_t tile_bytes;	/* of a buffer; 0: not open */
	uint32_t forced;	/* rows of a tile; 0: as many as a buffer holds */

	BatchStream *bstream; /* whose batch it is at; NULL: none */
	ExactLaunch launch;
	ExactStream search;
	uint32_t near;	/* rows on the device */
	uint32_t next;	/* the first that is not launched */
	uint32_t tiles; /* launched */
};

extern EngineStatus host_rows_open(CudaEngine *engine, EngineError *error);
extern void host_rows_close(CudaEngine *engine);
/* Whether a task's search brings rows from host memory. */
extern bool host_rows_takes(const CudaTask *task);
/* Whether it has to wait for another's. */
extern bool host_rows_waits(const CudaEngine *engine, const CudaTask *task);
/* Queries of a batch, for so many results. */
extern uint32_t host_rows_queries(uint32_t max_k);
/*
 * Launch the first part of a batch stream's batch, and the next while there are
 * more; false: the device failed.
 */
extern bool host_rows_begin(CudaEngine *engine, BatchStream *bstream, const ExactLaunch *launch);
extern bool host_rows_more(const CudaEngine *engine);
extern bool host_rows_continue(CudaEngine *engine, BatchStream *bstream);
/*
 * Rows that a part of a batch in tiles searches, and bytes that it brings, at
 * most.
 */
extern void host_rows_part(const CudaEngine *engine, const CudaMirror *mirror, uint64_t *rows,
						   uint64_t *bytes);
/*
 * Bytes that a query whose filter lets few rows pass reads in host memory, at
 * most.
 */
extern uint64_t host_rows_passing_bytes(const CudaMirror *mirror);
/* A batch stream's batch is over; returns its tiles. */
extern uint32_t host_rows_end(CudaEngine *engine, BatchStream *bstream);

#endif /* GPUANN_CUDA_HOST_ROWS_H */
