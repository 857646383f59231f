/*
 * batch_stream.h
 *		Batch streams: the stream and memory that a batch runs in.
 */
#ifndef GPUANN_CUDA_BATCH_STREAM_H
#define GPUANN_CUDA_BATCH_STREAM_H

#include "cuda/query/task.h"

#define BATCH_STREAMS 4u						/* batches in flight, at most */
#ifndef BATCH_QUERIES
#define BATCH_QUERIES 2560u				/* queries of a batch of tasks: 10,000 make four batches */
#endif
/* queries of any batch: the largest share of 10,000 (query_fast.cu) */
#define STREAM_QUERIES (BATCH_QUERIES > 6400u ? BATCH_QUERIES : 6400u)
#define VECTOR_ROOM ((size_t) 8 << 20)	/* bytes of a batch's query vectors */
#define INPUT_ROOM (STREAM_QUERIES * sizeof(DeviceQuery) + 256 + VECTOR_ROOM)
#define RESULT_ROOM (1u << 18)			/* results of a batch, over all queries */
/* bytes of a batch's bitmaps that are staged in pinned memory at a time */
#ifdef EMULATED
#define BITMAP_STAGED ((size_t) 4 << 10)
#else
#define BITMAP_STAGED ((size_t) 2 << 20)
#endif
#define STATE_ROOM ((size_t) 64 << 20)	/* bytes of a batch's lists, visited sets and tables */

#define LISTS_ROOM (STATE_ROOM / 4)	/* of these, for lists that scans of many pending rows leave */

/* The kind of a batch: queries of different kinds do not share one. */
typedef enum BatchKind
{
	BATCH_WALK, /* graph searches of graph_search_codes.cu */
	BATCH_GRAPH, /* other graph searches */
	BATCH_REFERENCE, /* graph searches in reference mode */
	BATCH_LISTS,	 /* searches of lists */
	BATCH_EXACT,	 /* exact, small k */
	BATCH_EXACT_SORT, /* exact, one query of a large k */
	BATCH_STREAM,	 /* exact, small k, with rows streamed from host memory (host_rows.cu) */
	BATCH_STREAM_SORT /* the same for one query of a large k */
} BatchKind;

static inline bool
is_stream(BatchKind kind)
{
	return kind == BATCH_STREAM || kind == BATCH_STREAM_SORT;
}

/* A stream with pinned host memory and device memory of its own. */
struct BatchStream
{
	CudaEngine *engine;
	cudaStream_t stream;
	cudaEvent_t done; /* recorded when a job has to wait for the batch in flight */
	bool busy;
	uint32_t generation; /* of the batch */
	uint32_t *flag;		 /* pinned: the device sets it to `generation` when the batch, or a part,
						  * has finished */
	uint32_t watched;	 /* `generation` while the poller has to wake the owner for it, else 0.
						  * Atomic: the poller exchanges it for 0 before it wakes, so a batch causes
						  * one wake at most */
	uint64_t started_us;
	uint64_t launched_us; /* started_us, or when the last part was launched (host_rows.cu) */
	uint64_t work_us; /* time that its work may take from then on (patience.h) */
	uint64_t asked_us; /* when cudaStreamQuery() was last called */
	uint64_t ended_us; /* when the owner saw the flag */
	CudaMirror *mirror;
	BatchKind kind;
	CudaTask *tasks[BATCH_QUERIES];
	uint32_t ntasks;
	uint32_t nresults;
	uint32_t beside; /* queries in flight on the device with this batch, its own included: few get
					  * more warps each */

	/*
	 * of a fast batch (query_fast.cu), which has no tasks: the callers'
	 * queries, and the fields that all of their answers share
	 */
	EngineQuery *asked[STREAM_QUERIES];
	uint32_t nasked; /* 0: a batch of tasks */
	uint32_t nback;	 /* answers handed back so far */
	bool ended;		 /* answers wait for poll; the mirror may have been dropped */
	uint32_t k;
	uint32_t rows;
	uint64_t position;
	uint64_t submitted_us;

	bool last_part;		/* of a batch in tiles, the last part has been launched */
	size_t bitmaps_staged; /* bytes of the batch's bitmaps staged so far; advanced by
						    * stage_bitmaps() in CUDA's callback thread */
	bool read_in_place; /* kernels read queries and vectors from pinned memory */

	/* pinned */
	unsigned char *input; /* queries, then their vectors: one copy */
	DeviceQuery *queries;
	unsigned char *vectors;
	unsigned char *bitmaps;
	DeviceHead *heads;
	SearchResult *results;

	bool at_once; /* an exact search in a single launch */
	unsigned char *table; /* on the device: table of fused exact searches (fused_table_bytes()) */
	Range memory; /* on the device: input, then heads and results of exact searches, then state */
	Range bitmap_memory;
	BatchView view;
};

extern bool batch_streams_open(CudaEngine *engine, EngineError *error);
extern void batch_streams_close(CudaEngine *engine);
/*
 * Grow the batch streams' bitmaps to one bit per slot for mirrors of `slots`
 * slots.
 */
extern EngineStatus batch_streams_grow_bitmaps(CudaEngine *engine, uint64_t slots,
											   EngineError *error);
/* Make the job stream wait for the batches in flight that read a mirror. */
extern bool batch_streams_wait(CudaEngine *engine, const CudaMirror *mirror);
/*
 * Called by the poller: wake the owner for batches that have finished and that
 * it has not seen. Returns whether any has not finished.
 */
extern bool batch_streams_watch(CudaEngine *engine);
/* Prefetch the i-th answer and its destination. */
extern void batch_stream_prefetch(const BatchStream *bstream, uint32_t i);

#endif /* GPUANN_CUDA_BATCH_STREAM_H */
