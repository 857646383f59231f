/*
 * lists_limit.cu
 *		Derives each query's limit from the rows that a phase of scans has
 *		found, and drops rows above it.
 *
 * One block of 256 threads per query. The limit is the k-th upper bound in the
 * query's buffer (by estimate: the estimate of rank `rerank`), found by radix
 * selection; the buffer is compacted in place. At the end a query whose buffer
 * has overflowed has all its lists scanned again, within the limit from the
 * rows in the buffer; if the buffer overflows again, lists_answer.cu reads the
 * codes itself.
 *
 * Where bounds are wide (rabitq of few bits, pq) some rows with the least upper
 * bounds are measured first: the k-th of the distances of k rows is a limit,
 * too. A lower bound that exceeds its row's distance replaces it
 * (README-search.md, Limits from distances). Bytes read: the buffer three to
 * six times, from L2; the measured rows.
 */
#include "cuda/lists/lists_estimate.cuh"
#include "cuda/lists/lists_measure.cuh"
#include "cuda/lists/lists_select.cuh"

#define THREADS (LIST_WARPS * WARP)
#define MEASURED 64u	   /* rows measured, unless 2 x need is more (with rows in host memory: just
						    * that); */
#define MAX_MEASURED 512u /* nothing is measured where that exceeds this */

/* Shared memory of a block. */
struct LimitShared
{
	SelectShared select;
	uint32_t of_warps[LIST_WARPS];
	double norm;
	uint32_t measured;
	Key key[MAX_MEASURED];
	uint32_t slot[MAX_MEASURED];
	float bound[MAX_MEASURED];
};

/*
 * Compact the buffer to rows with rank <= limit, in order; returns their
 * number. All threads.
 */
__device__ static inline uint32_t
drop_above(ListsFound *found, uint32_t n, float limit, uint32_t *of_warps)
{
	uint32_t kept = 0;

	for (uint32_t base = 0; base < n; base += THREADS)
	{
		uint32_t i = base + threadIdx.x;
		ListsFound row = {};
		bool keeps = false;
		uint32_t votes,
			place = kept;

		if (i < n)
		{
			row = found[i];
			keeps = row.rank <= limit;
		}
		votes = __ballot_sync(FULL_WARP, keeps);
		if (threadIdx.x % WARP == 0)
			of_warps[threadIdx.x / WARP] = (uint32_t) __popc(votes);
		__syncthreads();
		for (uint32_t warp = 0; warp < LIST_WARPS; warp++)
		{
			place += warp < threadIdx.x / WARP ? of_warps[warp] : 0;
			kept += of_warps[warp];
		}
		if (keeps)
			found[place + (uint32_t) __popc(votes & ((1u << threadIdx.x % WARP) - 1))] = row;
		__syncthreads();
	}
	return kept;
}

/*
 * A distance, to be compared with bounds: rounded up to single precision; for
 * cosine with the slack of normalised vectors.
 */
__device__ static inline float
bound_of_distance(Metric metric, double distance)
{
	return not_below_of(metric != METRIC_COSINE ? distance : distance - 1 + 2 * UNIT_SLACK);
}

/*
 * The k-th least distance of up to `most` rows with the least upper bounds;
 * infinity if fewer than k may be answers. All threads.
 */
template <typename T, int TERM>
__device__ static inline float
measure_some(const MirrorView &mirror, const ListsPart &part, const ListsFound *found, uint32_t n,
			 uint32_t k, uint32_t most, float *elements, LimitShared *shared)
{
	const float *raw = part.raw + (size_t) blockIdx.x * part.vector_stride;
	Entries entries = {shared->key, shared->slot};
	QueryVector vector;
	float least;

	most = most < 2 * k ? 2 * k : most;
	if (most > MAX_MEASURED)
		return HUGE_VALF;
	for (uint32_t i = threadIdx.x; i < part.vector_stride; i += THREADS)
		elements[i] = raw[i];
	if (threadIdx.x == 0)
		shared->measured = 0;
	__syncthreads();
	vector = query_of(mirror, elements, &shared->norm);
	least = kth_found(found, n, n < most ? n : most, true, &shared->select);
	for (uint32_t i = threadIdx.x; i < n; i += THREADS)
		if (found[i].other <= least && found[i].other < HUGE_VALF)
		{
			uint32_t place = atomicAdd(&shared->measured, 1u);

			if (place >= most)
				continue; /* of rows with equal bounds any may be measured */
			shared->slot[place] = found[i].slot;
			shared->bound[place] = found[i].rank;
		}
	__syncthreads();
	most = shared->measured < most ? shared->measured : most;
	if (most < k)
		return HUGE_VALF;
#pragma unroll 1
	for (uint32_t base = threadIdx.x / WARP * (WARP / EXACT_LANES); base < most;
		 base += THREADS / EXACT_LANES)
	{
		uint32_t i = base + threadIdx.x % WARP / EXACT_LANES;
		bool active = i < most;
		uint32_t slot = shared->slot[active ? i : 0];
		Key key = lanes_key<T, TERM>(mirror, vector, slot, active);

		if (active && threadIdx.x % EXACT_LANES == 0)
			shared->key[i] =
				!is_beyond(part.asked[blockIdx.x], key, slot)
					? NO_KEY
					: fast_key(fmaxf(shared->bound[i],
									 bound_of_distance(mirror.metric, distance_of(key))));
	}
	__syncthreads();
	block_fill(entries, most, power_of_two(most));
	__syncthreads();
	block_sort(entries, power_of_two(most));
	/*
	 * a row that is not an answer (before the bound `beyond`) may have an upper
	 * bound that claims it is
	 */
	return shared->key[k - 1] == NO_KEY ? HUGE_VALF
										: distance_of_key((uint32_t) shared->key[k - 1]);
}

/*
 * Set a query's limit and apply it. If the buffer has overflowed at the end
 * (`again`), schedule the query for another scan within the limit instead.
 */
__device__ static inline void
set_limit(const ListsPart &part, ListsQuery *query, ListsFound *found, uint32_t n, float limit,
		  bool again, uint32_t *of_warps)
{
	uint32_t kept;

	if (again && threadIdx.x == 0)
	{
		query->limit = fminf(query->limit, limit);
		query->found = 0;
		part.queries_again[atomicAdd(&part.again->queries, 1u)] = blockIdx.x;
	}
	if (again || !(limit < HUGE_VALF))
		return;
	kept = drop_above(found, n, limit, of_warps);
	if (threadIdx.x == 0)
	{
		query->found = kept;
		/* other rows may have been measured now: a limit never rises */
		query->limit = fminf(query->limit, limit);
	}
}

/*
 * Number of rows in a query's buffer from which to derive its limit; NO_SLOT:
 * there is nothing to do. After an overflow a limit is derived at the end only
 * (`last`), from what the buffer holds; until then the query counts as
 * FOUND_TOO_MANY. `last`: only queries with an overflow are processed.
 */
__device__ static inline uint32_t
rows_found(const ListsPart &part, ListsQuery *query, bool last, bool *again)
{
	uint32_t n = query->found;

	*again = last && n > part.room;
	__syncthreads();
	if (query->choice == LISTS_ALL || (last && !*again))
		return NO_SLOT;
	if (n > part.room && !last && threadIdx.x == 0)
		query->found = FOUND_TOO_MANY;
	return n <= part.room ? n : last ? part.room : NO_SLOT;
}

__global__ void __launch_bounds__(THREADS) lists_limit_kernel(const ListsPart part, bool last)
{
	__shared__ SelectShared select;
	__shared__ uint32_t of_warps[LIST_WARPS];
	ListsQuery *query = &part.query[blockIdx.x];
	ListsFound *found = part.found + (size_t) blockIdx.x * part.room;
	bool again;
	uint32_t n = rows_found(part, query, last, &again);

	if (n != NO_SLOT)
		set_limit(part, query, found, n,
				  kth_found(found, n, query->need, query->choice == LISTS_BY_BOUND, &select), again,
				  of_warps);
}

template <typename T, int TERM>
__global__ void __launch_bounds__(THREADS)
	lists_measure_kernel(const MirrorView mirror, const ListsPart part, uint32_t most, bool last)
{
	DYNAMIC_SHARED(memory);
	__shared__ LimitShared shared;
	ListsQuery *query = &part.query[blockIdx.x];
	ListsFound *found = part.found + (size_t) blockIdx.x * part.room;
	bool again;
	uint32_t n = rows_found(part, query, last, &again);
	bool by_bound = query->choice == LISTS_BY_BOUND;
	float limit;

	if (n == NO_SLOT)
		return;
	limit = kth_found(found, n, query->need, by_bound, &shared.select);
	if (by_bound && limit < HUGE_VALF)
		limit = fminf(limit, measure_some<T, TERM>(mirror, part, found, n, query->need, most,
												   (float *) memory, &shared));
	set_limit(part, query, found, n, limit, again, shared.of_warps);
}

typedef void (*MeasureKernel)(const MirrorView, const ListsPart, uint32_t, bool);

static const MeasureKernel measure_kernels[] = {
	lists_measure_kernel<float, TERM_PRODUCT>, lists_measure_kernel<float, TERM_SQUARE>,
	lists_measure_kernel<__half, TERM_PRODUCT>, lists_measure_kernel<__half, TERM_SQUARE>};

cudaError_t
lists_limit_launch(const ListsStep *step, bool last)
{
	const ListsLaunch *launch = step->launch;
	const ListsPart &part = step->part;
	const MirrorView &mirror = launch->mirror;
	MeasureKernel kernel =
		measure_kernels[(mirror.type == ELEMENT_HALF) * 2 + (mirror.metric == METRIC_L2)];

	if (lists_wide(launch->lists.shape))
		LAUNCH(kernel, part.queries, THREADS, query_bytes(mirror), launch->stream, mirror, part,
			   launch->rows_on_host ? 0 : MEASURED, last);
	else
		LAUNCH(lists_limit_kernel, part.queries, THREADS, 0, launch->stream, part, last);
	return cudaGetLastError();
}
