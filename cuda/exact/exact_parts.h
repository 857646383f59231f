/*
 * exact_parts.h
 *		What the parts of exact search share: the filter's limits, the tables of
 *		a batch, selections kept by a block.
 *
 * A *limit* says, of a cheap product or sum in single precision, that the row
 * behind it cannot be among the k best: it follows from a bound (the k-th best
 * distance known) and from the largest error the cheap value can have. What
 * passes is measured exactly. So a limit may let too much pass, never too
 * little. NaN makes a limit, or a row, that lets everything pass.
 */
#ifndef GPUANN_CUDA_EXACT_PARTS_H
#define GPUANN_CUDA_EXACT_PARTS_H

#include "cuda/common/distance.cuh"
#include "cuda/exact/exact.h"

#define THREADS 256u
#define ROWS (THREADS / EXACT_TEAM) /* rows that a block measures exactly at once */
#define BUFFER 512u					/* entries; at least 2 x ROWS */

/* Norms beyond these are not trusted to single precision. */
#define MOST_NORM 1e30
#define LEAST_NORM 1e-30
#define TINY 1e-30			/* above what underflow can take away */
#define MARGIN (1.0 / 524288) /* for the filter's own arithmetic: 32 units in the last place */

/*
 * Of products, a row is turned away if product + scale x length + shift <
 * height, the latter two its own; of sums of squared or absolute differences,
 * if the sum > shift.
 */
struct Limit
{
	float scale;
	float shift;
};

/* A row's part of a limit's test of products. */
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

/* The limit of sums whose relative error is at most `error`. */
__device__ static inline Limit
sum_limit(Key bound, double error)
{
	double most = distance_of(bound);
	Limit limit = no_limit();

	if (most < MOST_NORM) /* not NO_KEY, which is NaN */
		limit.shift = (float) (most * (1 + error + MARGIN) + TINY);
	return limit;
}

/*
 * The limit of products whose error is at most `error` times both lengths. For
 * L2 it is |q|^2 + |x|^2 - 2 qx that is compared; its cancellation is in the
 * margins of shift and height.
 */
__device__ static inline Limit
product_limit(Metric metric, double query_norm, Key bound, double error)
{
	double most = distance_of(bound);
	double length = __dsqrt_rn(query_norm);
	Limit limit = no_limit();

	if (!(fabs(most) < MOST_NORM) || query_norm > MOST_NORM ||
		(metric == METRIC_COSINE && query_norm < LEAST_NORM))
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

/* A row's side, from its squared norm. */
__device__ static inline RowSide
row_side(Metric metric, double norm)
{
	RowSide side = {NAN, 0};

	if (norm > MOST_NORM || (metric == METRIC_COSINE && norm < LEAST_NORM))
		return side;
	side.length = sqrtf((float) (norm > LEAST_NORM ? norm : LEAST_NORM));
	if (metric == METRIC_L2)
		side.height = (float) (norm * (0.5 - MARGIN));
	return side;
}

/* Whether a row with this product may be one of the k best. */
__device__ static inline bool
product_passes(const Limit &limit, const RowSide &row, float product)
{
	return !(fmaf(limit.scale, row.length, product) + limit.shift < row.height);
}

/* A block's best entries of what it was shown. */
struct Selection
{
	BestList best;
	Entries buffer;
	uint32_t *buffered; /* shared */
};

/* Room of one of the two halves of a list of k. */
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
begin_selection(Selection *selection, unsigned char *at, uint32_t k, uint32_t *buffered)
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

/* Merge the buffer into the best. All threads, after a barrier. */
__device__ static inline void
flush(Selection *selection)
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
 * Merge the buffer if another round of `more` entries might not fit. All
 * threads, after a barrier.
 */
__device__ static inline void
flush_if_full(Selection *selection, uint32_t more)
{
	bool full = *selection->buffered + more > BUFFER;

	__syncthreads();
	if (full)
		flush(selection);
}

__device__ static inline void
show(Selection *selection, Key key, uint32_t slot)
{
	if (selection->best.takes(key, slot))
	{
		uint32_t place = atomicAdd(selection->buffered, 1);

		selection->buffer.key[place] = key;
		selection->buffer.slot[place] = slot;
	}
}

/* The k-th best, or NO_KEY. */
__device__ static inline Key
bound_of(const BestList &best)
{
	return best.count == best.room ? best.now.key[best.room - 1] : NO_KEY;
}

/*
 * Measure rows exactly and show those that may be answers to a selection. All
 * threads; the selection is merged at the end. Slots of what a query must not
 * answer have been left out, rows before its bound (beyond) have not.
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
			show(selection, key, slot);
		__syncthreads();
		flush_if_full(selection, ROWS);
	}
	flush(selection);
}

/* How a scan reads rows, and where its lists go. */
struct ScanPlan
{
	ExactLists lists;
	Key *bounds;		  /* of each query: no answer is behind it */
	const uint32_t *only; /* NULL, or how many queries and which */
	uint32_t queries;
	uint32_t first; /* rows first, first + step, ... */
	uint32_t step;
	uint32_t ranges; /* whose lists come first among those of a query; 0: chosen, and the lists laid
					  * out, by the launch */
	uint32_t pending_only;
	double error; /* of sums, or of products by lengths, in single precision */
};

/* Tables of a batch that is searched by tiles. */
struct TileTables
{
	Key *bounds;
	double *norms;		  /* of queries, squared */
	Limit *limits;		  /* padded to whole tiles of queries */
	uint32_t *counts;	  /* of candidates, which may be more than there is room for */
	uint32_t *spilled;	  /* whether that has happened, or the query is none for tiles */
	uint32_t *only;		  /* how many queries are left to the scan, and which */
	uint32_t *candidates; /* slots: `room` of each query */
	uint32_t room;
	Entries best; /* `length` of each query */
	uint32_t *nbest;
	uint32_t length;
	unsigned char *prepared; /* queries, as tensor cores take them */
	uint32_t prepared_stride;
	uint32_t queries;
	uint32_t phases;
	double error;
};

/*
 * Where merged lists go: the tables, from which a next phase gets its limits,
 * or results.
 */
struct MergeTo
{
	TileTables tables;
	bool results;
	bool only; /* the queries named in tables.only */
};

/*
 * exact_scan.cu: launch a scan; the lists' memory begins at `state`, after 8
 * bytes per query if plan->bounds is NULL.
 */
extern cudaError_t scan_launch(const ExactLaunch *launch, ScanPlan *plan, unsigned char *state,
							   size_t state_bytes);
extern cudaError_t scan_prepare(int bytes);
/* The most ranges that a scan of so many rows is cut into. */
extern uint32_t scan_ranges(const ExactLaunch *launch, uint32_t rows);
/*
 * exact_fused.cu: whether it can run a batch, and whether it is faster than a
 * scan
 */
extern bool flow_can(const ExactLaunch *launch);
extern bool flow_pays(const ExactLaunch *launch);
extern cudaError_t flow_prepare(size_t shared_room);
/* exact.cu */
extern cudaError_t sort_rows(const ExactLaunch *launch, ExactStream *stream, uint32_t from,
							 uint32_t end);
extern cudaError_t sort_end(const ExactLaunch *launch, ExactStream *stream);
extern cudaError_t merge_launch(const ExactLaunch *launch, const ExactLists *lists,
								const MergeTo *to);
/* exact_tiles.cu: whether it can run a batch, and running it */
extern bool tiles_can(const ExactLaunch *launch, bool forced);
extern cudaError_t tiles_launch(const ExactLaunch *launch, bool forced);
extern cudaError_t tiles_prepare(int bytes, const EngineForced *forced);

#endif /* GPUANN_CUDA_EXACT_PARTS_H */
