/*
 * batch_stream.h
 *		Batch streams: what a batch runs in.
 */
#ifndef GPUANN_CUDA_BATCH_STREAM_H
#define GPUANN_CUDA_BATCH_STREAM_H

#include "cuda/query/task.h"

#define BATCH_STREAMS 4u						/* batches in flight */
#ifndef BATCH_QUERIES
#define BATCH_QUERIES 2560u				/* queries of a batch with tasks: ten thousand are four */
#endif
/* of any batch: most of ten thousand (query_fast.cu) */
#define STREAM_QUERIES (BATCH_QUERIES > 6400u ? BATCH_QUERIES : 6400u)
#define VECTOR_ROOM ((size_t) 8 << 20)	/* bytes of a batch's query vectors */
#define INPUT_ROOM (STREAM_QUERIES * sizeof(DeviceQuery) + 256 + VECTOR_ROOM)
#define RESULT_ROOM (1u << 18)			/* results of a batch */
#define TRACE_ROOM (1u << 20)			/* entries of a batch's traces */
/* bytes of a batch's bitmaps that go through pinned memory at once */
#ifdef EMULATED
#define BITMAP_STAGED ((size_t) 4 << 10)
#else
#define BITMAP_STAGED ((size_t) 2 << 20)
#endif
#define STATE_ROOM ((size_t) 64 << 20)	/* bytes of lists, sets and tables of a batch */

#define LISTS_ROOM (STATE_ROOM / 4)	/* of it: lists that many pending rows leave */

/* What runs together in one batch stream. */
typedef enum BatchKind
{
	BATCH_WALK, /* graph searches that graph_search_codes.cu takes */
	BATCH_GRAPH, /* others */
	BATCH_REFERENCE, /* those in reference mode */
	BATCH_LISTS,	 /* searches of lists */
	BATCH_EXACT,	 /* small k */
	BATCH_EXACT_SORT, /* one query of a large k */
	BATCH_STREAM,	 /* small k, and rows are brought from host memory (host_rows.cu) */
	BATCH_STREAM_SORT /* the same for one query of a large k */
} BatchKind;

static inline bool
is_stream(BatchKind kind)
{
	return kind == BATCH_STREAM || kind == BATCH_STREAM_SORT;
}

/* A stream with memory of its own: pinned on the host, and on the device. */
struct BatchStream
{
	CudaEngine *engine;
	cudaStream_t stream;
	cudaEvent_t done; /* recorded when a job is to wait for the batch stream */
	bool busy;
	uint32_t generation; /* of the batch */
	uint32_t *flag;		 /* pinned: becomes `generation` when the batch is over */
	uint32_t watched;	 /* `generation`, while the poller is to wake the owner for it; else 0.
						  * Atomic */
	uint64_t started_us;
	uint64_t launched_us; /* the same, or when its last part was launched (host_rows.cu) */
	uint64_t work_us; /* how long after that its work may take (patience.h) */
	uint64_t asked_us; /* when CUDA was last asked how the batch stream fares */
	uint64_t ended_us; /* when the owner saw it */
	CudaMirror *mirror;
	BatchKind kind;
	CudaTask *tasks[BATCH_QUERIES];
	uint32_t ntasks;
	uint32_t nresults;
	uint32_t beside; /* queries that the device is at with these, these included: few get more warps
					  * each */

	/*
	 * of a fast batch (query_fast.cu), which has no tasks: whose answers
	 * these are, and what all of them are told
	 */
	EngineQuery *asked[STREAM_QUERIES];
	uint32_t nasked; /* 0: the batch has tasks */
	uint32_t nback;	 /* handed back */
	bool ended;		 /* answers wait for poll; the mirror may be gone */
	uint32_t k;
	uint32_t rows;
	uint64_t position;
	uint64_t submitted_us;

	bool last_part;		/* of a batch in tiles, the last is on its way */
	size_t bitmaps_staged; /* bytes of the batch's bitmaps that have been staged: CUDA's thread */
	bool read_in_place; /* the device reads its input from pinned memory */

	/* pinned */
	unsigned char *input; /* the queries, then their vectors: one copy */
	DeviceQuery *queries;
	unsigned char *vectors;
	unsigned char *bitmaps;
	DeviceHead *heads;
	SearchResult *results;
	uint32_t *traces;

	bool at_once; /* an exact search that is one launch */
	unsigned char *table; /* on the device: of these */
	Range memory; /* on the device: input, then heads and results of exact searches, then the
				   * state */
	Range bitmap_memory;
	BatchView view;
};

extern bool batch_streams_open(CudaEngine *engine, EngineError *error);
extern void batch_streams_close(CudaEngine *engine);
/* Make the batch streams' bitmaps large enough for mirrors of so many slots. */
extern EngineStatus batch_streams_grow_bitmaps(CudaEngine *engine, uint64_t slots,
											   EngineError *error);
/* Let the job stream wait for the batches in flight that read a mirror. */
extern bool batch_streams_wait(CudaEngine *engine, const CudaMirror *mirror);
/*
 * Wake the owner for batches that are over and that it has not seen: the
 * poller. Returns whether any is not over.
 */
extern bool batch_streams_watch(CudaEngine *engine);
/* Bring the answer of a batch stream's i-th task nearer, and where it goes. */
extern void batch_stream_prefetch(const BatchStream *bstream, uint32_t i);

#endif /* GPUANN_CUDA_BATCH_STREAM_H */
