/*
 * lists_probe.cu
 *		Chooses the lists that queries probe, and sorts pairs of query and list
 *		by list.
 *
 * Kernels:
 *		coarse	half the centroids' squared norms less their products with
 *				queries: tiles of 128 centroids x 64 queries (few queries: 32 x
 *				8; where these would leave most of the device idle: 32 x 32),
 *				256 threads, sums in registers, elements in shared memory, 16
 *				(128, 64) of a vector at a time, the next prefetched
 *				meanwhile. Elements are added in their order, fused, as the
 *				host's processors do. Bound: arithmetic (single precision); of
 *				few queries reading centroids once
 *		choose	a block of 256 threads per query: the nearest lists by the least
 *				values of 256 classes of lists, sorted; where these do not
 *				settle it, by radix selection. Then their exact distances, 8
 *				lanes a list, each pair's rank in its list by an atomic, and the
 *				list's count of probes by an atomic without a result. Reads the
 *				query's values twice, from L2
 *		starts	prefix sums over all lists: a block for the pairs, and one for
 *				the items of each phase
 *		sort	scatter, a thread per pair: writes the pair to its list's range
 * The last two are skipped where few queries probe the same list.
 */
#include "cuda/lists/lists_estimate.cuh"
#include "cuda/lists/lists_measure.cuh"
#include "cuda/lists/lists_select.cuh"

#define THREADS 256u
#define FEW_QUERIES 16u	   /* up to this many the small tiles are used, which give more blocks */
#define MAX_SORTED 1024u  /* maximum number of lists that are sorted to find the nearest */
#define MAX_NEAR 128u	   /* maximum number of probes chosen that way; more are chosen by radix */
#define STARTS_THREADS 1024u
#define OTHER_CLASS 0x80000000u /* in a rank: the list is not among the query's nearest */

/* Shared memory of the coarse kernel. */
template <uint32_t ACROSS, uint32_t M, uint32_t N, uint32_t DEPTH>
struct CoarseTile
{
	static const uint32_t lists = ACROSS * M;
	static const uint32_t queries = THREADS / ACROSS * N;
	static const uint32_t pad = M > 1 ? 4 : 1;
	float centroids[DEPTH][lists + pad];
	float vectors[DEPTH][queries + pad];
};

/*
 * Elements [from, from + DEPTH) of a tile's rows, loaded by all threads: the
 * next ones are prefetched to registers while the current ones are processed.
 */
template <uint32_t DEPTH, uint32_t WIDTH>
struct Columns
{
	static const uint32_t each = DEPTH * WIDTH / THREADS;
	float next[each];

	__device__ inline void
	ask(const float *rows, size_t stride, uint32_t count, uint32_t dims, uint32_t from)
	{
#pragma unroll
		for (uint32_t j = 0; j < each; j++)
		{
			uint32_t i = threadIdx.x + j * THREADS;
			uint32_t row = i / DEPTH,
					 element = from + i % DEPTH;

			next[j] = row < count && element < dims ? __ldg(rows + row * stride + element) : 0.0f;
		}
	}

	template <uint32_t STRIDE>
	__device__ inline void
	put(float (*to)[STRIDE]) const
	{
#pragma unroll
		for (uint32_t j = 0; j < each; j++)
		{
			uint32_t i = threadIdx.x + j * THREADS;

			to[i % DEPTH][i / DEPTH] = next[j];
		}
	}
};

template <uint32_t ACROSS, uint32_t M, uint32_t N, uint32_t DEPTH>
__global__ void __launch_bounds__(THREADS)
	lists_coarse_kernel(const ListsView lists, const ListsPart part)
{
	typedef CoarseTile<ACROSS, M, N, DEPTH> Tile;
	__shared__ Tile tile;
	uint32_t dims = lists.shape.dims;
	uint32_t list = blockIdx.x * Tile::lists,
			 query = blockIdx.y * Tile::queries;
	uint32_t x = threadIdx.x % ACROSS * M,
			 y = threadIdx.x / ACROSS * N;
	const float *centroids = lists.centroids + (size_t) list * dims,
				*vectors = part.vectors + (size_t) query * part.vector_stride;
	float sums[M][N] = {};
	Columns<DEPTH, Tile::lists> of_lists;
	Columns<DEPTH, Tile::queries> of_queries;

	of_lists.ask(centroids, dims, lists.lists - list, dims, 0);
	of_queries.ask(vectors, part.vector_stride, part.queries - query, dims, 0);
	for (uint32_t from = 0; from < dims; from += DEPTH)
	{
		uint32_t depth = dims - from < DEPTH ? dims - from : DEPTH;

		of_lists.put(tile.centroids);
		of_queries.put(tile.vectors);
		__syncthreads();
		of_lists.ask(centroids, dims, lists.lists - list, dims, from + DEPTH);
		of_queries.ask(vectors, part.vector_stride, part.queries - query, dims, from + DEPTH);
		/*
		 * in small tiles, warps whose query does not exist have nothing to add
		 */
		if (query + y >= part.queries)
			depth = 0;
#pragma unroll 4
		for (uint32_t i = 0; i < depth; i++)
		{
			float a[M],
				b[N];

#pragma unroll
			for (uint32_t m = 0; m < M; m++)
				a[m] = tile.centroids[i][x + m];
#pragma unroll
			for (uint32_t n = 0; n < N; n++)
				b[n] = tile.vectors[i][y + n];
#pragma unroll
			for (uint32_t m = 0; m < M; m++)
#pragma unroll
				for (uint32_t n = 0; n < N; n++)
					sums[m][n] = fmaf(b[n], a[m], sums[m][n]);
		}
		__syncthreads();
	}
#pragma unroll
	for (uint32_t n = 0; n < N; n++)
#pragma unroll
		for (uint32_t m = 0; m < M; m++)
			if (list + x + m < lists.lists && query + y + n < part.queries)
				part.values[(size_t) (query + y + n) * lists.lists + list + x + m] =
					lists.half_norms[list + x + m] - sums[m][n];
}

/* ---- the nearest lists ---- */

/* Shared memory of a block that chooses lists. */
struct ChooseShared
{
	Key key[MAX_SORTED];
	uint32_t number[MAX_SORTED];
	SelectShared select;
	uint32_t found;
	Key least[THREADS / WARP];
	uint32_t nearest;
	uint32_t blocks;
};

/* The key of a list's coarse value. */
__device__ static inline Key
value_key(const ListsView &lists, const float *values, uint32_t list)
{
	double value = values[list];

	if (lists.shape.metric == METRIC_IP)
		value -= lists.half_norms[list];
	return key_of(value);
}

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
	block_fill(entries, shared->found, power_of_two(shared->found));
	__syncthreads();
	block_sort(entries, power_of_two(shared->found));
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

__global__ void __launch_bounds__(THREADS)
	lists_choose_kernel(const ListsView lists, const ListsPart part)
{
	__shared__ ChooseShared shared;
	__shared__ float vector[ENGINE_MAX_LIST_DIMS];
	const float *values = part.values + (size_t) blockIdx.x * lists.lists;
	size_t first = (size_t) blockIdx.x * part.max_list_probes;
	ListsPair *chosen = part.probes + first;
	uint32_t *ranks = part.ranks + first;
	ListsQuery *query = &part.query[blockIdx.x];
	uint32_t probes = query->probes;
	bool scanned = query->choice != LISTS_ALL; /* if not, lists_answer.cu reads all codes */
	uint32_t places;
	bool sorted;

	for (uint32_t i = threadIdx.x; i < lists.shape.dims; i += THREADS)
		vector[i] = part.vectors[(size_t) blockIdx.x * part.vector_stride + i];
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

/* Launch the coarse kernel with one tile size. */
template <uint32_t ACROSS, uint32_t M, uint32_t N, uint32_t DEPTH>
static void
launch_coarse(const ListsView &lists, const ListsPart &part, cudaStream_t stream)
{
	typedef CoarseTile<ACROSS, M, N, DEPTH> Tile;

	LAUNCH((lists_coarse_kernel<ACROSS, M, N, DEPTH>),
		   dim3((lists.lists + Tile::lists - 1) / Tile::lists,
				(part.queries + Tile::queries - 1) / Tile::queries),
		   THREADS, 0, stream, lists, part);
}

/* Number of blocks with the largest tiles. */
static uint32_t
large_tiles(const ListsView &lists, const ListsPart &part)
{
	typedef CoarseTile<16, 8, 4, 16> Tile;

	return (lists.lists + Tile::lists - 1) / Tile::lists *
		   ((part.queries + Tile::queries - 1) / Tile::queries);
}

cudaError_t
lists_probe_launch(const ListsStep *step)
{
	const ListsView &lists = step->launch->lists;
	const ListsPart &part = step->part;
	cudaStream_t stream = step->launch->stream;
	size_t bytes = (2 * (size_t) lists.lists + LISTS_MAX_PHASES) * sizeof(uint32_t);
	cudaError_t error =
		part.direct ? cudaSuccess : cudaMemsetAsync(part.counts, 0, bytes, stream);

	if (error != cudaSuccess)
		return error;
	if (part.queries <= FEW_QUERIES)
		launch_coarse<32, 1, 1, 128>(lists, part, stream);
	else if (large_tiles(lists, part) * 2 <= step->launch->processors)
		launch_coarse<16, 2, 2, 64>(lists, part, stream);
	else
		launch_coarse<16, 8, 4, 16>(lists, part, stream);
	LAUNCH(lists_choose_kernel, part.queries, THREADS, 0, stream, lists, part);
	if (part.direct)
		return cudaGetLastError();
	LAUNCH(lists_starts_kernel, part.phases + 1, STARTS_THREADS, 0, stream, lists, part);
	LAUNCH(lists_sort_kernel, (part.queries * part.max_list_probes + THREADS - 1) / THREADS,
		   THREADS, 0, stream, lists, part);
	return cudaGetLastError();
}
