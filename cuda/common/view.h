/*
 * view.h
 *		What kernels get to see: a mirror's arrays with the counts captured for
 *		a batch, and the queries of the batch.
 */
#ifndef GPUANN_CUDA_VIEW_H
#define GPUANN_CUDA_VIEW_H

#include "cuda/common/order.cuh"

/*
 * A mirror as a batch sees it. Rows are padded with zeros to 16 bytes. Passed
 * to kernels by value.
 */
struct MirrorView
{
	const unsigned char *vectors;
	const uint32_t *versions;
	const uint32_t *dead; /* bitmap: dead or absent */
	const uint32_t *graph;
	const double *norms; /* where has_norms: squared norms, as I10 sums them */
	const uint32_t *seeds;
	const uint32_t *pending; /* each slot at most once; dead ones may be among them */
	uint32_t rows;
	uint32_t nseeds;
	uint32_t npending;
	uint32_t stride; /* bytes from one row to the next */
	uint32_t dims;
	uint32_t degree;
	ElementType type;
	Metric metric;
	const signed char *codes; /* a byte per element (quantizer.h); NULL: none that may be walked */
	const float *code_offsets;
	float code_steps;
	uint32_t code_stride;
	const float2 *code_scales; /* of rotated codes: a row's step and term (Int8Scale); NULL: codes
							    * are not rotated and have one scale */
	const uint32_t *rotation;  /* src/engine/quantizer/rotation.h */
	const uint32_t *pivots; /* npivots numbers from 0 on, then a list of `degree` slots for each
							 * (entry_points.h) */
	const signed char *pivot_codes; /* of code_stride bytes each */
	const float2 *pivot_scales;
	uint32_t npivots;		/* 0: there are none */
};

/*
 * Whether a mirror has norms: distances of cosine, and limits of what is
 * cheaply compared.
 */
static inline bool
has_norms(ElementType type, Metric metric)
{
	return type != ELEMENT_BIT && metric != METRIC_L1;
}

/*
 * One query of a batch. Offsets are into the batch's arrays. Read 16 bytes at a
 * time.
 */
struct alignas(16) DeviceQuery
{
	Key beyond_key;
	uint64_t vector;   /* bytes */
	uint64_t admitted; /* words of the batch's bitmaps: bit s set: slot s may be an answer */
	uint32_t beyond_slot;
	uint32_t has_beyond;
	uint32_t has_admitted;
	uint32_t admitted_slots; /* bits there are */
	uint32_t admit_others;	 /* whether slots at and above these may be answers */
	uint32_t k;
	union
	{
		uint32_t ef;
		uint32_t probes; /* of lists */
	};
	union
	{
		uint32_t seeds;
		uint32_t rerank; /* of lists: as EngineQuery's */
	};
	uint32_t max_iterations;
	uint32_t results; /* first place in the batch's results */
	uint32_t trace;	  /* first place in the batch's traces */
	uint32_t trace_room;
};

/* What a kernel says of one query. */
struct DeviceHead
{
	uint32_t count;
	uint32_t traced;
	uint32_t expanded;
	uint32_t distances;
	uint32_t iterations;
	uint32_t pending;
	uint32_t reached; /* with answers apart: of these, how many lie within what the list has
					   * reached */
};

/*
 * The arrays of a batch, in device memory; what graph searches write (heads,
 * results, traces) is pinned memory of the host.
 */
struct BatchView
{
	const DeviceQuery *queries;
	const unsigned char *vectors;
	const uint32_t *bitmaps;
	DeviceHead *heads;
	SearchResult *results;
	uint32_t *traces;
	uint32_t *ended;	/* device memory: queries of the batch that have ended; 0 between batches */
	uint32_t *flag;		/* pinned: becomes `generation` when all have, and what they wrote is
						 * there */
	uint32_t generation;
	unsigned char *state; /* lists and sets that shared memory does not hold; tables of exact
						   * searches */
	uint64_t state_stride;
};

__device__ static inline bool
bit_of(const uint32_t *words, uint32_t slot)
{
	return (words[slot >> 5] >> (slot & 31)) & 1;
}

/*
 * Whether a slot may be an answer of a query: alive, not excluded, not filtered
 * out.
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
 * Bring a block's query into shared memory. All threads of a block; a barrier
 * is to follow.
 */
__device__ static inline void
bring_query(const BatchView &batch, DeviceQuery *asked)
{
	for (uint32_t i = threadIdx.x; i < sizeof(DeviceQuery) / sizeof(uint32_t); i += blockDim.x)
		((uint32_t *) asked)[i] = ((const uint32_t *) &batch.queries[blockIdx.x])[i];
}

/* Write the entries of a list to a query's results. All threads of a block. */
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
 * A block's query has been answered: all that it wrote is there before the
 * batch's flag is raised. All threads of a block.
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

/* Whether an entry is behind the query's bound. */
__device__ static inline bool
is_beyond(const DeviceQuery &query, Key key, uint32_t slot)
{
	return !query.has_beyond || entry_before(query.beyond_key, query.beyond_slot, key, slot);
}

#endif /* GPUANN_CUDA_VIEW_H */
