/*
 * exact_parts.h
 *		Shared by the parts of exact search: limits of the filter, tables of a
 *		batch, selections in a block's shared memory.
 *
 * A *limit* tells from a cheap product or sum in single precision that a row
 * cannot be among the k best. It follows from a bound (the k-th best distance
 * known) and the maximum error of the cheap value. Rows that pass are measured
 * exactly, so a limit may let too many rows pass, but never too few. With NaN
 * in the limit or the row, everything passes.
 */
#ifndef GPUANN_CUDA_EXACT_PARTS_H
#define GPUANN_CUDA_EXACT_PARTS_H

#include "cuda/common/distance.cuh"
#include "cuda/exact/exact.h"

#define THREADS 256u
#define ROWS (THREADS / EXACT_TEAM) /* rows that a block measures exactly at a time */
#define BUFFER 512u					/* entries; at least 2 x ROWS */

/* larger norms are not used in single precision */
#define MAX_NORM 1e30
#define MIN_NORM 1e-30
#define TINY 1e-30			/* more than underflow can remove */
#define MARGIN (1.0 / 524288) /* allowance for the filter's own arithmetic: 32 units in the last
							   * place */

/*
 * Products: a row is rejected if product + scale * length + shift < height,
 * where length and height are the row's. Sums of squared or absolute
 * differences: if sum > shift.
 */
struct Limit
{
	float scale;
	float shift;
};

/* A row's values in the test of products. */
struct RowSide
{
	float length;
	float height;
};

__device__ static inline Limit
no_limit()
{
	Limit limit = {0, NAN};

	return limit;
}

/* The limit for sums with a relative error of at most `error`. */
__device__ static inline Limit
sum_limit(Key bound, double error)
{
	double most = distance_of(bound);
	Limit limit = no_limit();

	if (most < MAX_NORM) /* not NO_KEY, which is NaN */
		limit.shift = (float) (most * (1 + error + MARGIN) + TINY);
	return limit;
}

/*
 * The limit for products with an error of at most `error` times both lengths.
 * For L2, |q|^2 + |x|^2 - 2 qx is compared; its cancellation is covered by the
 * margins of shift and height.
 */
__device__ static inline Limit
product_limit(Metric metric, double query_norm, Key bound, double error)
{
	double most = distance_of(bound);
	double length = __dsqrt_rn(query_norm);
	Limit limit = no_limit();

	if (!(fabs(most) < MAX_NORM) || query_norm > MAX_NORM ||
		(metric == METRIC_COSINE && query_norm < MIN_NORM))
		return limit;
	error += MARGIN;
	if (metric == METRIC_COSINE)
	{
		limit.scale = (float) (-(1 - most - error - MARGIN * fabs(1 - most)) * length);
		limit.shift = (float) TINY;
	}
	else
	{
		limit.scale = (float) (error * length * (1 + MARGIN));
		limit.shift = (float) (metric == METRIC_IP ? most + MARGIN * fabs(most) + TINY
												   : (most - query_norm) / 2 +
														 MARGIN * (fabs(most) + query_norm) + TINY);
	}
	return limit;
}

/* A row's values, from its squared norm. */
__device__ static inline RowSide
row_side(Metric metric, double norm)
{
	RowSide side = {NAN, 0};

	if (norm > MAX_NORM || (metric == METRIC_COSINE && norm < MIN_NORM))
		return side;
	side.length = sqrtf((float) (norm > MIN_NORM ? norm : MIN_NORM));
	if (metric == METRIC_L2)
		side.height = (float) (norm * (0.5 - MARGIN));
	return side;
}

/* Whether a row with this product may be among the k best. */
__device__ static inline bool
product_passes(const Limit &limit, const RowSide &row, float product)
{
	return !(fmaf(limit.scale, row.length, product) + limit.shift < row.height);
}

/* The best entries that a block has been offered. */
struct Selection
{
	BestList best;
	Entries buffer;
	uint32_t *buffered; /* shared */
};

/* Entries per half of a list of k. */
__host__ __device__ static inline uint32_t
list_room(uint32_t k)
{
	return (k + 1) & ~1u;
}

/* Bytes of a selection's lists and buffer. */
__host__ __device__ static inline size_t
selection_bytes(uint32_t k)
{
	return 2 * entries_bytes(list_room(k)) + entries_bytes(BUFFER);
}

__device__ static inline void
selection_begin(Selection *selection, unsigned char *at, uint32_t k, uint32_t *buffered)
{
	selection->best.now = entries_at(&at, list_room(k));
	selection->best.next = entries_at(&at, list_room(k));
	selection->best.count = 0;
	selection->best.room = k;
	selection->buffer = entries_at(&at, BUFFER);
	selection->buffered = buffered;
	if (threadIdx.x == 0)
		*buffered = 0;
	__syncthreads();
}

/* Merge the buffer into the best. Called by all threads, after a barrier. */
__device__ static inline void
selection_flush(Selection *selection)
{
	uint32_t n = *selection->buffered;
	uint32_t sorted = power_of_two(n);

	block_fill(selection->buffer, n, sorted);
	__syncthreads();
	block_sort(selection->buffer, sorted);
	selection->best.merge(selection->buffer, n);
	if (threadIdx.x == 0)
		*selection->buffered = 0;
	__syncthreads();
}

/*
 * Merge the buffer if `more` entries might not fit. Called by all threads,
 * after a barrier.
 */
__device__ static inline void
selection_flush_if_full(Selection *selection, uint32_t more)
{
	bool full = *selection->buffered + more > BUFFER;

	__syncthreads();
	if (full)
		selection_flush(selection);
}

__device__ static inline void
selection_offer(Selection *selection, Key key, uint32_t slot)
{
	if (selection->best.takes(key, slot))
	{
		uint32_t place = atomicAdd(selection->buffered, 1);

		selection->buffer.key[place] = key;
		selection->buffer.slot[place] = slot;
	}
}

/* The k-th best key, or NO_KEY. */
__device__ static inline Key
selection_bound(const BestList &best)
{
	return best.count == best.room ? best.now.key[best.room - 1] : NO_KEY;
}

/*
 * Measure rows exactly and offer possible results to a selection, which is
 * merged at the end. Called by all threads. The caller has removed slots that
 * the query does not admit; rows before its bound (beyond) are removed here.
 */
template <typename T, int TERM>
__device__ static inline void
measure_rows(const MirrorView &mirror, const DeviceQuery &asked, const QueryVector &query,
			 const uint32_t *slots, uint32_t n, Key bound, Selection *selection)
{
	for (uint32_t base = 0; base < n; base += ROWS)
	{
		uint32_t i = base + threadIdx.x / EXACT_TEAM;
		bool active = i < n;
		uint32_t slot = active ? slots[i] : 0;
		Key key = exact_key<T, TERM>(mirror, query, slot, active);

		if (active && threadIdx.x % EXACT_TEAM == 0 && key <= bound && is_beyond(asked, key, slot))
			selection_offer(selection, key, slot);
		__syncthreads();
		selection_flush_if_full(selection, ROWS);
	}
	selection_flush(selection);
}

/* Which rows a scan reads, and where its lists are. */
struct ScanPlan
{
	ExactLists lists;
	Key *bounds;		  /* per query: upper bound of its k-th best key */
	const uint32_t *only; /* NULL, or a count followed by the numbers of the queries to scan */
	uint32_t queries;
	uint32_t first; /* rows first, first + step, ... */
	uint32_t step;
	uint32_t ranges; /* number of ranges, whose lists come first among those of a query; 0: the
					  * launch chooses it and lays out the lists */
	uint32_t pending_only;
	double error; /* relative error of sums, or of products in terms of lengths, in single
				   * precision */
};

/* Tables of a batch that is searched by tiles. */
struct TileTables
{
	Key *bounds;
	double *norms;		  /* squared norms of queries */
	Limit *limits;		  /* padded to whole tiles of queries */
	uint32_t *counts;	  /* number of candidates, may exceed room */
	uint32_t *spilled;	  /* candidates exceeded room, or the query is not searched by tiles */
	uint32_t *only;		  /* number of queries left to the scan, followed by their numbers */
	uint32_t *candidates; /* slots, `room` per query */
	uint32_t room;
	Entries best; /* `length` per query */
	uint32_t *nbest;
	uint32_t length;
	unsigned char *prepared; /* queries in the format of the tensor cores */
	uint32_t prepared_stride;
	uint32_t queries;
	uint32_t phases;
	double error;
};

/*
 * Destination of merged lists: the tables, from which the next phase gets its
 * limits, or the results.
 */
struct MergeTo
{
	TileTables tables;
	bool results;
	bool only; /* only the queries listed in tables.only */
};

/*
 * exact_scan.cu: launch a scan. The lists are laid out at `state`, after 8
 * bytes per query if plan->bounds is NULL.
 */
extern cudaError_t scan_launch(const ExactLaunch *launch, ScanPlan *plan, unsigned char *state,
							   size_t state_bytes);
extern cudaError_t scan_prepare(int bytes);
/* Maximum number of ranges for a scan of this many rows. */
extern uint32_t scan_ranges(const ExactLaunch *launch, uint32_t rows);
/*
 * exact_fused.cu: whether it can run a batch, and whether it is faster than a
 * scan
 */
extern bool fused_can(const ExactLaunch *launch);
extern bool fused_pays(const ExactLaunch *launch);
extern cudaError_t fused_prepare(size_t shared_room, ExactLimits *limits);
/* exact.cu */
extern cudaError_t sort_rows(const ExactLaunch *launch, ExactStream *stream, uint32_t from,
							 uint32_t end);
extern cudaError_t sort_end(const ExactLaunch *launch, ExactStream *stream);
extern cudaError_t merge_launch(const ExactLaunch *launch, const ExactLists *lists,
								const MergeTo *to);
/* exact_tiles.cu: whether it can run a batch, and running it */
extern bool tiles_can(const ExactLaunch *launch, bool forced);
extern cudaError_t tiles_launch(const ExactLaunch *launch, bool forced);
extern cudaError_t tiles_prepare(int bytes, const EngineForced *forced, ExactLimits *limits);

#endif /* GPUANN_CUDA_EXACT_PARTS_H */
