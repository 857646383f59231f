/*
 * batch.h
 *		Batches: which waiting queries run together, and taking their answers
 *		out.
 */
#ifndef GPUANN_CUDA_BATCH_H
#define GPUANN_CUDA_BATCH_H

#include "cuda/query/batch_stream.h"

/* What a batch takes of its batch stream's memory so far. */
typedef struct BatchFill
{
	size_t vectors;
	size_t bitmaps;
	uint64_t results;
	uint64_t traces;
	uint32_t max_k;
	uint32_t max_ef;
	uint32_t max_probes;
	uint32_t max_rerank; /* of those up to LISTS_MOST_RERANK */
	bool apart;
} BatchFill;

/*
 * The kind that the last graph query was found to be of: those that come
 * together are mostly alike.
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
/* Which kernel graph searches go to; apart: with a bitmap or a bound. */
extern BatchKind graph_kind(CudaEngine *engine, const CudaMirror *mirror, uint32_t k, uint32_t ef,
							bool apart);
/* A fill with a query of lists more. */
extern void fill_lists(BatchFill *fill, uint32_t probes, uint32_t rerank);
/* A batch stream has a batch from now on. */
extern void batch_begin(BatchStream *bstream);
/*
 * Launch graph searches whose queries and vectors, so many bytes, are staged in
 * a batch stream. False: the engine failed.
 */
extern bool batch_launch_staged(CudaEngine *engine, BatchStream *bstream, const BatchFill *fill,
								size_t bytes);
/*
 * Whether a batch stream whose flag was seen goes on with a part of its batch.
 */
extern bool batch_goes_on(CudaEngine *engine, BatchStream *bstream);

/*
 * batch_end.cu: take back what has ended. polled: the caller of poll waits, and
 * results may be written.
 */
extern void batches_end(CudaEngine *engine, bool polled);

#endif /* GPUANN_CUDA_BATCH_H */
