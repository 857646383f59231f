/*
 * batch.h
 *		Batches: which waiting queries run together, and copying their answers
 *		out.
 */
#ifndef GPUANN_CUDA_BATCH_H
#define GPUANN_CUDA_BATCH_H

#include "cuda/query/batch_stream.h"

/* Resources of a batch stream that a batch uses so far. */
typedef struct BatchFill
{
	size_t vectors;
	size_t bitmaps;
	uint64_t results;
	uint32_t max_k;
	uint32_t max_ef;
	uint32_t max_probes;
	uint32_t max_rerank; /* maximum over queries whose rerank is at most LISTS_MAX_RERANK */
	bool apart;
} BatchFill;

/*
 * The batch kind of the last graph query that was classified: consecutive
 * queries are usually alike.
 */
struct KindCache
{
	MirrorId mirror;
	bool codes;
	bool rotated;
	uint32_t k;
	uint32_t ef;
	bool apart;
	BatchKind kind;
};

extern void batches_start(CudaEngine *engine);
/* Which kernel a graph search runs in; apart: it has a bitmap or a bound. */
extern BatchKind graph_kind(CudaEngine *engine, const CudaMirror *mirror, uint32_t k, uint32_t ef,
							bool apart);
/* Add a list query to the batch's resource counts. */
extern void fill_lists(BatchFill *fill, uint32_t probes, uint32_t rerank);
/* Mark a batch stream as busy with a new batch. */
extern void batch_begin(BatchStream *bstream);
/*
 * Launch graph searches or searches of lists whose descriptions and vectors,
 * `bytes` in all, are staged in a batch stream. False: the device failed.
 */
extern bool batch_launch_staged(CudaEngine *engine, BatchStream *bstream, const BatchFill *fill,
								size_t bytes);
/*
 * Whether a batch stream, whose flag was raised, continues with another part of
 * its batch; if so, launches it.
 */
extern bool batch_continues(CudaEngine *engine, BatchStream *bstream);

/*
 * batch_end.cu: collect batches that have ended. polled: called from poll, so
 * results may be written to the callers' queries.
 */
extern void batches_end(CudaEngine *engine, bool polled);

#endif /* GPUANN_CUDA_BATCH_H */
