/*
 * lists_probe.cu
 *		Chooses the lists that queries probe, and sorts pairs of query and list
 *		by list.
 *
 * Kernels:
 *		choose	a block of 256 threads per query: the nearest lists by the least
 *				values of 256 classes of lists, sorted; where these do not
 *				settle it, by radix selection; after products by error
 *				intervals. Then their exact distances, 8 lanes a list, each
 *				pair's rank in its list by an atomic, and the list's count of
 *				probes by an atomic without a result. Reads the query's values
 *				twice, from L2
 *		starts	prefix sums over all lists: a block for the pairs, and one for
 *				the items of each phase
 *		sort	scatter, a thread per pair: writes the pair to its list's range
 * The last two are skipped where few queries probe the same list.
 */
#include "cuda/lists/lists_estimate.cuh"
#include "cuda/lists/lists_halves.cuh"
#include "cuda/lists/lists_measure.cuh"
#include "cuda/lists/lists_select.cuh"

#define THREADS 256u
#define MAX_SORTED 1024u  /* maximum number of lists that are sorted to find the nearest */
#define STARTS_THREADS 1024u
#define OTHER_CLASS 0x80000000u /* in a rank: the list is not among the query's nearest */

/* ---- the nearest lists ---- */

/* Shared memory of a block that chooses lists. */
struct ChooseShared
{
	Key key[MAX_SORTED];
	uint32_t number[MAX_SORTED];
	SelectShared select;
	uint32_t found;
	Key least[THREADS / WARP];
	uint32_t nearest; /* of the chosen lists; the key of the greatest upper end */
	uint32_t blocks;  /* of lists; by intervals: how many lists are certain */
};

/* The key of a list's value in single precision. */
__device__ static inline Key
key_of_value(const ListsView &lists, uint32_t list, float single)
{
	double value = single;

	if (lists.shape.metric == METRIC_IP)
		value -= lists.half_norms[list];
	return key_of(value);
}

__device__ static inline Key
value_key(const ListsView &lists, const float *values, uint32_t list)
{
	return key_of_value(lists, list, values[list]);
}

/* Sort n lists by their keys. All threads; ends with a barrier. */
__device__ static inline void
sort_lists(const Entries &entries, uint32_t n)
{
	block_fill(entries, n, power_of_two(n));
	__syncthreads();
	block_sort(entries, power_of_two(n));
}

/* The value of a list in single precision, as the host computes it. */
__device__ static inline float
single_value(const ListsView &lists, const float *vector, uint32_t list)
{
	uint32_t dims = lists.shape.dims;
	const float *centroid = lists.centroids + (size_t) list * dims;
	float sum = 0;

	if (dims % 4 == 0)
	{
#pragma unroll 8
		for (uint32_t i = 0; i < dims; i += 4)
		{
			float4 some = __ldg((const float4 *) (centroid + i));

			sum = fmaf(vector[i], some.x, sum);
			sum = fmaf(vector[i + 1], some.y, sum);
			sum = fmaf(vector[i + 2], some.z, sum);
			sum = fmaf(vector[i + 3], some.w, sum);
		}
		return lists.half_norms[list] - sum;
	}
#pragma unroll 8
	for (uint32_t i = 0; i < dims; i++)
		sum = fmaf(vector[i], __ldg(centroid + i), sum);
	return lists.half_norms[list] - sum;
}

/* ---- by error intervals ---- */

/* The lower end of a list's interval; minus infinity if it is undefined. */
__device__ static inline float
low_of(float value)
{
	return fabsf(value) < HUGE_VALF ? value : -HUGE_VALF;
}

/* A list's interval as a key: of its lower end, then of the list. */
__device__ static inline Key
interval_key(float low, uint32_t list)
{
	return (Key) fast_key(low) << 32 | list;
}

/* The upper end of the interval of a list that begins at `low`. */
__device__ static inline float
high_of(const ListsProducts &products, const RowSpan &row, uint32_t list, float low)
{
	ListSpan span = products.lists.spans[list];
	float wide = fmaf(row.error, span.length, row.slack);
	float high = low + 1.001f * fmaf(span.high - span.low, row.scale, 2 * wide);

	return fabsf(high) < HUGE_VALF ? high : HUGE_VALF;
}

/*
 * An upper bound of the value of rank `probes`: of the 256 threads' lists those
 * with the least lower end have `probes` upper ends up to it. All threads.
 */
__device__ static inline float
limit_of_classes(const ListsView &lists, const ListsProducts &products, const RowSpan &row,
				 const float *values, uint32_t probes, ChooseShared *shared)
{
	float least = HUGE_VALF,
		  high = HUGE_VALF;
	uint32_t of = NO_SLOT;
	SelectedKey limit;

#pragma unroll 4
	for (uint32_t list = threadIdx.x; list < lists.lists; list += THREADS)
	{
		float low = low_of(values[list]);

		if (low < least)
		{
			least = low;
			of = list;
		}
	}
	if (of != NO_SLOT)
		high = high_of(products, row, of, least);
	limit = block_select<true>(THREADS, probes, 32, &shared->select, [&](uint32_t, Key *key) {
		*key = interval_key(high, 0);
		return true;
	});
	return distance_of_key((uint32_t) (limit.key >> 32));
}

/*
 * Of n sorted intervals, pass the lists on to `chosen` that are certainly among
 * the nearest `probes`, in order, and write those to shared->number whose
 * intervals reach the border: shared->found of them. Returns the number passed
 * on. All threads; ends with a barrier.
 *
 * Certain is a list whose upper end is below the lower end of rank probes + 1:
 * fewer than `probes` others can be nearer. A list that begins above the upper
 * ends of `probes` others is not among the nearest.
 */
__device__ static inline uint32_t
part_at_border(const ListsProducts &products, const RowSpan &row, uint32_t n, uint32_t probes,
			   ListsPair *chosen, ChooseShared *shared)
{
	uint32_t next = n > probes ? (uint32_t) (shared->key[probes] >> 32) : UINT32_MAX;
	uint32_t before = (1u << threadIdx.x % WARP) - 1;
	uint32_t sure = 0,
			 open = 0;

	if (threadIdx.x == 0)
		shared->nearest = 0;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < n; i += THREADS)
	{
		Key own = shared->key[i];
		float low = distance_of_key((uint32_t) (own >> 32));
		uint32_t high = fast_key(high_of(products, row, (uint32_t) own, low));

		shared->number[i] = high;
		if (i < probes)
			(void) atomicMax(&shared->nearest, high);
	}
	__syncthreads();
	/* one warp, whose upper ends make room for the lists at the border */
	for (uint32_t i = threadIdx.x; i / WARP * WARP < n && threadIdx.x < WARP; i += WARP)
	{
		Key own = i < n ? shared->key[i] : 0;
		bool is_sure = i < probes && i < n && shared->number[i] < next,
			 is_open = i < n && !is_sure && (uint32_t) (own >> 32) <= shared->nearest;
		uint32_t all_sure = __ballot_sync(FULL_WARP, is_sure),
				 all_open = __ballot_sync(FULL_WARP, is_open);

		if (is_sure)
			chosen[sure + __popc(all_sure & before)].number = (uint32_t) own;
		__syncwarp(); /* the place may be one that another lane has read */
		if (is_open)
			shared->number[open + __popc(all_open & before)] = (uint32_t) own;
		sure += __popc(all_sure);
		open += __popc(all_open);
	}
	if (threadIdx.x == 0)
	{
		shared->blocks = sure;
		shared->found = open;
	}
	__syncthreads();
	return shared->blocks;
}

/*
 * Choose a query's nearest lists by error intervals of their values; values in
 * single precision decide among lists at the border. Returns false if there are
 * too many of them.
 */
__device__ static inline bool
choose_by_intervals(const ListsView &lists, const ListsProducts &products, const float *values,
					const float *vector, uint32_t probes, ListsPair *chosen,
					ChooseShared *shared)
{
	Entries entries = {shared->key, shared->number};
	RowSpan row = products.spans[blockIdx.x];
	float limit;
	uint32_t n,
		sure;

	if (probes == 0)
		return true;
	if (threadIdx.x == 0)
		shared->found = 0;
	limit = limit_of_classes(lists, products, row, values, probes, shared);
	__syncthreads();
#pragma unroll 4
	for (uint32_t list = threadIdx.x; list < lists.lists; list += THREADS)
	{
		float low = low_of(values[list]);

		if (low <= limit)
		{
			uint32_t place = atomicAdd(&shared->found, 1u);

			if (place < MAX_SORTED)
			{
				shared->key[place] = interval_key(low, list);
				shared->number[place] = list;
			}
		}
	}
	__syncthreads();
	n = shared->found;
	__syncthreads();
	if (n > MAX_SORTED)
		return false;
	sort_lists(entries, n);
	sure = part_at_border(products, row, n, probes, chosen, shared);
	n = shared->found;
	for (uint32_t i = threadIdx.x; i < n; i += THREADS)
		entries.key[i] = key_of_value(lists, shared->number[i],
									  single_value(lists, vector, shared->number[i]));
	sort_lists(entries, n);
	for (uint32_t i = threadIdx.x; sure + i < probes; i += THREADS)
		chosen[sure + i].number = entries.slot[i];
	__syncthreads();
	return true;
}

/* ---- by values ---- */

/*
 * Choose a query's nearest lists by sorting the lists that are not above the
 * `probes`-th least of 256 class minima: at least `probes` lists qualify.
 * Returns false if there are too many for shared memory.
 */
__device__ static inline bool
choose_by_classes(const ListsView &lists, const float *values, uint32_t probes, ListsPair *chosen,
				  ChooseShared *shared)
{
	Entries entries = {shared->key, shared->number};
	Key least = NO_KEY,
		limit;

	if (probes > MAX_NEAR)
		return false;
	for (uint32_t list = threadIdx.x; list < lists.lists; list += THREADS)
	{
		Key key = value_key(lists, values, list);

		least = key < least ? key : least;
	}
	entries.key[threadIdx.x] = least;
	entries.slot[threadIdx.x] = threadIdx.x;
	if (threadIdx.x == 0)
		shared->found = 0;
	__syncthreads();
	block_sort(entries, THREADS);
	limit = probes > 0 ? entries.key[probes - 1] : 0;
	__syncthreads();
	for (uint32_t list = threadIdx.x; list < lists.lists; list += THREADS)
	{
		Key key = value_key(lists, values, list);

		if (key <= limit)
		{
			uint32_t place = atomicAdd(&shared->found, 1u);

			if (place < MAX_SORTED)
			{
				entries.key[place] = key;
				entries.slot[place] = list;
			}
		}
	}
	__syncthreads();
	if (shared->found > MAX_SORTED)
	{
		__syncthreads();
		return false;
	}
	sort_lists(entries, shared->found);
	for (uint32_t i = threadIdx.x; i < probes; i += THREADS)
		chosen[i].number = entries.slot[i];
	__syncthreads();
	return true;
}

/* The same for any number of probes, unsorted. */
__device__ static inline void
choose_by_digits(const ListsView &lists, const float *values, uint32_t probes, ListsPair *chosen,
				 ChooseShared *shared)
{
	if (threadIdx.x == 0)
		shared->found = 0;
	__syncthreads();
	block_choose(
		lists.lists, probes, &shared->select,
		[&](uint32_t i, Key *key) {
			*key = value_key(lists, values, i);
			return true;
		},
		[&](uint32_t i) { chosen[atomicAdd(&shared->found, 1u)].number = i; });
}

/*
 * Mark the nearest of the chosen lists, until they have `places` places: their
 * ranks become 0, those of the others OTHER_CLASS.
 */
__device__ static inline void
mark_nearest(const ListsView &lists, const ListsPart &part, const float *values,
			 const ListsPair *chosen, uint32_t probes, uint32_t places, uint32_t *ranks,
			 ChooseShared *shared)
{
	uint32_t wanted = (places + LIST_PLACES - 1) / LIST_PLACES;

	/* an empty list has nothing to scan, whatever its class */
	for (uint32_t i = threadIdx.x; i < probes; i += THREADS)
		ranks[i] = lists.first[chosen[i].number + 1] == lists.first[chosen[i].number]
					   ? 0
					   : OTHER_CLASS;
	if (threadIdx.x == 0)
		shared->blocks = 0;
	__syncthreads();
	for (uint32_t taken = 0; taken < probes && shared->blocks < wanted; taken++)
	{
		Key least = NO_KEY;

		__syncthreads();
		if (threadIdx.x == 0)
			shared->nearest = NO_SLOT;
		for (uint32_t i = threadIdx.x; i < probes; i += THREADS)
			if (ranks[i] != 0)
			{
				Key key = value_key(lists, values, chosen[i].number);

				least = key < least ? key : least;
			}
		for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		{
			Key other = __shfl_xor_sync(FULL_WARP, least, (int) distance);

			least = other < least ? other : least;
		}
		if (threadIdx.x % WARP == 0)
			shared->least[threadIdx.x / WARP] = least;
		__syncthreads();
		for (uint32_t i = 0; i < THREADS / WARP; i++)
			least = shared->least[i] < least ? shared->least[i] : least;
		for (uint32_t i = threadIdx.x; i < probes; i += THREADS)
			if (ranks[i] != 0 && value_key(lists, values, chosen[i].number) == least)
				(void) atomicMin(&shared->nearest, chosen[i].number);
		__syncthreads();
		if (shared->nearest == NO_SLOT)
			break;
		for (uint32_t i = threadIdx.x; i < probes; i += THREADS)
			if (chosen[i].number == shared->nearest)
			{
				uint32_t blocks = lists.first[shared->nearest + 1] - lists.first[shared->nearest];

				ranks[i] = 0;
				shared->blocks += phase_end(part, 0, 0, blocks);
			}
		__syncthreads();
	}
	__syncthreads();
}

/* The same for lists that are sorted by distance. */
__device__ static inline void
mark_first(const ListsView &lists, const ListsPart &part, const ListsPair *chosen, uint32_t probes,
		   uint32_t places, uint32_t *ranks, ChooseShared *shared)
{
	uint32_t wanted = (places + LIST_PLACES - 1) / LIST_PLACES;

	for (uint32_t i = threadIdx.x; i < probes; i += THREADS)
	{
		uint32_t list = chosen[i].number;

		shared->number[i] = phase_end(part, 0, 0, lists.first[list + 1] - lists.first[list]);
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < probes; i += THREADS)
	{
		uint32_t before = 0;

		for (uint32_t j = 0; j < i; j++)
			before += shared->number[j];
		ranks[i] = shared->number[i] == 0 || before < wanted ? 0 : OTHER_CLASS;
	}
	__syncthreads();
}

/* The exact distance of a query and a centroid, by eight lanes. Whole warps. */
__device__ static inline float
base_of(const ListsView &lists, const float *vector, uint32_t list, bool active)
{
	const float *centroid = lists.centroids + (size_t) list * lists.shape.dims;
	uint32_t dims = lists.shape.dims;

	return (float) (lists.shape.metric == METRIC_L2
						? lanes_sum<TERM_SQUARE>(vector, centroid, dims, active)
						: -lanes_sum<TERM_PRODUCT>(vector, centroid, dims, active));
}

/*
 * A small batch waits for what its few blocks do one after the other, so the
 * instance without products has none of their code. That with them is limited
 * to the registers of six blocks an SM.
 */
template <bool PRODUCTS>
__global__ void __launch_bounds__(THREADS, PRODUCTS ? 6 : 0)
	lists_choose_kernel(const ListsView lists, const ListsPart part, const ListsProducts products)
{
	__shared__ ChooseShared shared;
	__shared__ float vector[ENGINE_MAX_LIST_DIMS];
	float *values =
		part.values + (size_t) blockIdx.x * (PRODUCTS ? products.value_stride : lists.lists);
	size_t first = (size_t) blockIdx.x * part.max_list_probes;
	ListsPair *chosen = part.probes + first;
	uint32_t *ranks = part.ranks + first;
	ListsQuery *query = &part.query[blockIdx.x];
	uint32_t probes = query->probes;
	bool scanned = query->choice != LISTS_ALL; /* if not, lists_answer.cu reads all codes */
	uint32_t places;
	bool sorted = false;

	for (uint32_t i = threadIdx.x; i < lists.shape.dims; i += THREADS)
		vector[i] = part.vectors[(size_t) blockIdx.x * part.vector_stride + i];
	if (PRODUCTS)
		sorted = choose_by_intervals(lists, products, values, vector, probes, chosen, &shared);
	if (PRODUCTS && !sorted)
	{
		for (uint32_t list = threadIdx.x; list < lists.lists; list += THREADS)
			values[list] = single_value(lists, vector, list);
		__syncthreads();
	}
	if (!sorted)
		sorted = choose_by_classes(lists, values, probes, chosen, &shared);
	if (!sorted)
		choose_by_digits(lists, values, probes, chosen, &shared);
	__syncthreads();
	places = scanned ? first_places(part.room, query->need) : 0;
	if (sorted)
		mark_first(lists, part, chosen, probes, places, ranks, &shared);
	else
		mark_nearest(lists, part, values, chosen, probes, places, ranks, &shared);
	if (threadIdx.x == 0)
		shared.blocks = 0;
	__syncthreads();
	for (uint32_t begin = threadIdx.x / WARP * (WARP / EXACT_LANES); begin < probes;
		 begin += THREADS / EXACT_LANES)
	{
		uint32_t i = begin + threadIdx.x % WARP / EXACT_LANES;
		uint32_t list = i < probes ? chosen[i].number : 0;
		float base = base_of(lists, vector, list, i < probes);

		if (i >= probes || threadIdx.x % EXACT_LANES != 0)
			continue;
		chosen[i].base = base;
		if (lists.probed != NULL)
			(void) atomicAdd(&lists.probed[list], 1ull);
		(void) atomicAdd(&shared.blocks, lists.first[list + 1] - lists.first[list]);
		if (scanned && !part.direct)
			ranks[i] |= atomicAdd(&part.counts[(ranks[i] != 0) * lists.lists + list], 1u);
	}
	__syncthreads();
	if (threadIdx.x == 0)
		query->estimated = shared.blocks * LIST_PLACES;
}

/* ---- pairs by list ---- */

/* Exclusive prefix sum over the block's threads; *total is the sum over all. */
__device__ static inline uint32_t
sum_before(uint32_t own, uint32_t *of_warps, uint32_t *total)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t sum = own,
			 before = 0;

	for (uint32_t distance = 1; distance < WARP; distance <<= 1)
	{
		uint32_t other = __shfl_sync(FULL_WARP, sum, (int) (lane - distance) & 31);

		if (lane >= distance)
			sum += other;
	}
	__syncthreads();
	if (lane == WARP - 1)
		of_warps[threadIdx.x / WARP] = sum;
	__syncthreads();
	*total = 0;
	for (uint32_t i = 0; i < blockDim.x / WARP; i++)
	{
		before += i < threadIdx.x / WARP ? of_warps[i] : 0;
		*total += of_warps[i];
	}
	return before + sum - own;
}

/*
 * Number of items that a phase has of a list's pairs; for phase NO_SLOT the
 * number of pairs.
 */
__device__ static inline uint32_t
items_of(const ListsView &lists, const ListsPart &part, uint32_t phase, uint32_t at)
{
	uint32_t other = at >= lists.lists;
	uint32_t list = other ? at - lists.lists : at;
	uint32_t pairs = part.counts[at];
	uint32_t blocks = lists.first[list + 1] - lists.first[list];
	uint32_t begin,
		end;

	if (phase == NO_SLOT || pairs == 0)
		return pairs;
	begin = phase_begin(part, phase, other);
	end = phase_end(part, phase, other, blocks);
	if (begin >= end)
		return 0;
	return (pairs + part.group - 1) / part.group *
		   ((end - begin + part.item_blocks - 1) / part.item_blocks);
}

__global__ void __launch_bounds__(STARTS_THREADS)
	lists_starts_kernel(const ListsView lists, const ListsPart part)
{
	__shared__ uint32_t of_warps[STARTS_THREADS / WARP];
	uint32_t n = 2 * lists.lists;
	uint32_t each = (n + STARTS_THREADS - 1) / STARTS_THREADS;
	uint32_t begin = threadIdx.x * each < n ? threadIdx.x * each : n;
	uint32_t end = begin + each < n ? begin + each : n;

	for (uint32_t i = blockIdx.x; i <= part.phases; i += gridDim.x)
	{
		uint32_t phase = i == part.phases ? NO_SLOT : i;
		uint32_t *to = phase == NO_SLOT ? part.starts : part.items + (size_t) phase * (n + 1);
		uint32_t own = 0,
				 total,
				 at;

		for (uint32_t list = begin; list < end; list++)
			own += items_of(lists, part, phase, list);
		at = sum_before(own, of_warps, &total);
		for (uint32_t list = begin; list < end; list++)
		{
			to[list] = at;
			at += items_of(lists, part, phase, list);
		}
		if (threadIdx.x == 0)
			to[n] = total;
		__syncthreads();
	}
}

__global__ void __launch_bounds__(THREADS)
	lists_sort_kernel(const ListsView lists, const ListsPart part)
{
	uint32_t i = blockIdx.x * THREADS + threadIdx.x;
	uint32_t query = i / part.max_list_probes;
	uint32_t rank,
		other;

	if (query >= part.queries || i % part.max_list_probes >= part.query[query].probes ||
		part.query[query].choice == LISTS_ALL)
		return;
	rank = part.ranks[i];
	other = rank / OTHER_CLASS;
	part.sorted[part.starts[other * lists.lists + part.probes[i].number] + rank % OTHER_CLASS] = {
		query, part.probes[i].base};
}

cudaError_t
lists_probe_launch(const ListsStep *step)
{
	const ListsView &lists = step->launch->lists;
	const ListsPart &part = step->part;
	cudaStream_t stream = step->launch->stream;
	auto choose = step->products.used ? lists_choose_kernel<true> : lists_choose_kernel<false>;
	size_t bytes = (2 * (size_t) lists.lists + LISTS_MAX_PHASES) * sizeof(uint32_t);
	cudaError_t error =
		part.direct ? cudaSuccess : cudaMemsetAsync(part.counts, 0, bytes, stream);

	if (error != cudaSuccess)
		return error;
	LAUNCH(choose, part.queries, THREADS, 0, stream, lists, part, step->products);
	if (part.direct)
		return cudaGetLastError();
	LAUNCH(lists_starts_kernel, part.phases + 1, STARTS_THREADS, 0, stream, lists, part);
	LAUNCH(lists_sort_kernel, (part.queries * part.max_list_probes + THREADS - 1) / THREADS,
		   THREADS, 0, stream, lists, part);
	return cudaGetLastError();
}
