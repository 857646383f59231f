/*
 * view.h
 *		Kernel arguments: a mirror's arrays with the counts captured for a
 *		batch, and the queries of the batch.
 */
#ifndef GPUANN_CUDA_VIEW_H
#define GPUANN_CUDA_VIEW_H

#include "cuda/common/order.cuh"

/*
 * A mirror as one batch sees it: device pointers, and counts captured when the
 * batch starts, so rows published later are invisible to it. Rows are padded
 * with zeros to 16 bytes. Passed to kernels by value.
 */
struct MirrorView
{
	const unsigned char *vectors;
	const uint32_t *versions;
	const uint32_t *dead; /* bitmap over slots: dead or absent */
	const uint32_t *graph;
	const double *norms; /* squared norms, summed as I10 says; only if has_norms() */
	const uint32_t *seeds;
	const uint32_t *pending; /* slots outside graph and lists, each at most once; may include dead
							  * ones */
	uint32_t rows;
	uint32_t nseeds;
	uint32_t npending;
	uint32_t stride; /* bytes from one row to the next */
	uint32_t dims;
	uint32_t degree;
	ElementType type;
	Metric metric;
	const signed char *codes; /* a byte per element (quantizer.h); NULL: searches have no codes to
							   * walk */
	const float *code_offsets;
	float code_steps;
	uint32_t code_stride;
	const float2 *code_scales; /* rotated codes: step and term (Int8Scale) of each row; NULL: codes
							    * are not rotated and share one scale */
	const uint32_t *rotation;  /* src/engine/quantizer/rotation.h */
	const uint32_t *pivots; /* numbers 0 to npivots - 1, then a list of `degree` slots for each
							 * pivot (entry_points.h) */
	const signed char *pivot_codes; /* of code_stride bytes each */
	const float2 *pivot_scales;
	uint32_t npivots;		/* 0: no lists of entry points */
};

/*
 * Whether a mirror stores squared norms: cosine distances and the error bounds
 * of cheap products need them.
 */
static inline bool
has_norms(ElementType type, Metric metric)
{
	return type != ELEMENT_BIT && metric != METRIC_L1;
}

/*
 * One query of a batch, copied by kernels as 32-bit words. Offsets are into the
 * batch's arrays.
 */
struct alignas(16) DeviceQuery
{
	Key beyond_key;
	uint64_t vector;   /* bytes */
	uint64_t admitted; /* words; bit s set: slot s may be an answer */
	uint32_t beyond_slot;
	uint32_t has_beyond;
	uint32_t has_admitted;
	uint32_t admitted_slots; /* bits in the bitmap */
	uint32_t admit_others;	 /* whether slots at or above admitted_slots may be answers */
	uint32_t k;
	union
	{
		uint32_t ef;
		uint32_t probes; /* searches of lists */
	};
	union
	{
		uint32_t seeds;
		uint32_t rerank; /* searches of lists: as in EngineQuery */
	};
	uint32_t max_iterations;
	uint32_t results; /* index of its first place in the batch's results */
};

/* Counters that a kernel returns for one query. */
struct DeviceHead
{
	uint32_t count;
	uint32_t expanded;
	uint32_t distances;
	uint32_t iterations;
	uint32_t pending;
	uint32_t reached; /* with answers in a list of their own (a bitmap or a bound): those within the
					   * distance that the search list reached */
};

/*
 * The arrays of a batch, in device memory; graph searches have heads and
 * results in mapped pinned memory instead, and write them there.
 */
struct BatchView
{
	const DeviceQuery *queries;
	const unsigned char *vectors;
	const uint32_t *bitmaps;
	DeviceHead *heads;
	SearchResult *results;
	uint32_t *ended;	/* device memory: queries of this batch that have finished; 0 between
						 * batches */
	uint32_t *flag;		/* pinned: set to `generation` when all have finished and their answers are
						 * visible to the host */
	uint32_t generation;
	unsigned char *state; /* lists and visited sets beyond shared memory; tables of exact
						   * searches */
	uint64_t state_stride;
};

__device__ static inline bool
bit_of(const uint32_t *words, uint32_t slot)
{
	return (words[slot >> 5] >> (slot & 31)) & 1;
}

/*
 * Whether a slot may be an answer of a query: alive, and admitted by its bitmap
 * if it has one.
 */
__device__ static inline bool
may_answer(const MirrorView &mirror, const BatchView &batch, const DeviceQuery &query,
		   uint32_t slot)
{
	if (bit_of(mirror.dead, slot))
		return false;
	if (!query.has_admitted)
		return true;
	if (slot >= query.admitted_slots)
		return query.admit_others;
	return bit_of(batch.bitmaps + query.admitted, slot);
}

/*
 * Copy the block's query (blockIdx.x) into shared memory. All threads of a
 * block; the caller synchronises before anybody reads it.
 */
__device__ static inline void
load_device_query(const BatchView &batch, DeviceQuery *asked)
{
	for (uint32_t i = threadIdx.x; i < sizeof(DeviceQuery) / sizeof(uint32_t); i += blockDim.x)
		((uint32_t *) asked)[i] = ((const uint32_t *) &batch.queries[blockIdx.x])[i];
}

/*
 * Write the entries of a sorted list, with their slots' versions, to a query's
 * results. All threads of a block.
 */
__device__ static inline void
write_best(const MirrorView &mirror, SearchResult *results, const BestList &best)
{
	for (uint32_t i = threadIdx.x; i < best.count; i += blockDim.x)
	{
		uint32_t slot = best.now.slot[i];

		results[i].distance = distance_of(best.now.key[i]);
		results[i].slot = slot;
		results[i].version = mirror.versions[slot];
	}
}

/*
 * Count the block's query as finished; the block that finishes the last of
 * `queries` raises the batch's flag. The host polls the flag in pinned memory:
 * the first fence makes this block's answers visible to it before the query is
 * counted, the second orders the other blocks' answers, which the atomic
 * counter has shown to be fenced, before the flag. `ended` is back at 0 by
 * then, for the stream's next batch. All threads of a block.
 */
__device__ static inline void
end_query(const BatchView &batch, uint32_t queries)
{
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	__threadfence_system();
	if (queries > 1)
	{
		if (atomicAdd(batch.ended, 1u) != queries - 1)
			return;
		*batch.ended = 0;
		__threadfence_system();
	}
	*(volatile uint32_t *) batch.flag = batch.generation;
}

/* Whether an entry comes after the query's (distance, slot) bound. */
__device__ static inline bool
is_beyond(const DeviceQuery &query, Key key, uint32_t slot)
{
	return !query.has_beyond || entry_before(query.beyond_key, query.beyond_slot, key, slot);
}

#endif /* GPUANN_CUDA_VIEW_H */
