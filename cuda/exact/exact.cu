/*
 * exact.cu
 *		Exact search of all rows, or of the pending ones, in double precision.
 *		The results equal the CPU engine's to the last bit.
 *
 * k <= EXACT_SMALL_K, two kernels:
 *
 * exact_scan_kernel (exact_scan.cu)
 *     Leaves the best k of each range of rows and query as a list.
 * exact_merge_kernel
 *     grid    queries, 256 threads
 *     shared  the best k in two halves; a buffer of 512 entries. Entries
 *             better than the k-th are appended to the buffer; a full buffer
 *             is sorted and merged.
 *     global  reads the lists of a query, writes its results.
 *
 * Larger k, one query at a time:
 *
 * exact_keys_kernel
 *     grid    rows of a tile / 128, 256 threads
 *     global  computes the keys of a tile of rows, NO_KEY for rows that are
 *             not results; they follow the best of the previous tiles. Writes
 *             12 bytes per row.
 * radix sort (CUB)
 *     Each tile is sorted with the best so far: a stable sort by key orders
 *     equal keys by slot, because earlier tiles have smaller slots and come
 *     first (about ten passes of 24 bytes).
 * exact_emit_kernel
 *     Writes the first k as results.
 *
 * Launched by batch.cu. State: exact_sort_bytes(), about 40 MB for any number
 * of rows.
 */
#include <math.h>
#include <string.h>

#include "cuda/exact/exact_parts.h"
#include "cuda/common/sort.h"

/* Write the best of a query as its results. */
__device__ static inline void
write_results(const MirrorView &mirror, const BatchView &batch, uint32_t query,
			  const BestList &best)
{
	write_best(mirror, batch.results + batch.queries[query].results, best);
	if (threadIdx.x == 0)
		batch.heads[query].count = best.count;
}

/*
 * Write the best of a query to the tables, and the limit that follows from it.
 */
__device__ static inline void
write_tables(const MirrorView &mirror, const BatchView &batch, const TileTables &tables,
			 uint32_t query, const BestList &best)
{
	Key bound = selection_bound(best);

	for (uint32_t i = threadIdx.x; i < best.count; i += blockDim.x)
	{
		tables.best.key[(size_t) query * tables.length + i] = best.now.key[i];
		tables.best.slot[(size_t) query * tables.length + i] = best.now.slot[i];
	}
	if (threadIdx.x == 0)
	{
		tables.nbest[query] = best.count;
		tables.bounds[query] = bound < tables.bounds[query] ? bound : tables.bounds[query];
		if (!tables.spilled[query])
			tables.limits[query] = product_limit(mirror.metric, tables.norms[query],
												 tables.bounds[query], tables.error);
	}
}

__global__ void
__launch_bounds__(THREADS) exact_merge_kernel(const MirrorView mirror, const BatchView batch,
											  const ExactLists lists, const MergeTo to)
{
	__shared__ uint32_t buffered;
	DYNAMIC_SHARED(memory);
	uint32_t total = lists.lists * lists.length;
	size_t first = (size_t) blockIdx.x * total;
	uint32_t query = blockIdx.x;
	Selection selection;

	if (to.only && blockIdx.x >= to.tables.only[0])
		return;
	if (to.only)
		query = to.tables.only[1 + blockIdx.x];
	selection_begin(&selection, memory, batch.queries[query].k, &buffered);
	for (uint32_t base = 0; base < total; base += THREADS)
	{
		uint32_t i = base + threadIdx.x;

		if (i < total)
			selection_offer(&selection, lists.keys[first + i], lists.slots[first + i]);
		__syncthreads();
		selection_flush_if_full(&selection, THREADS);
	}
	selection_flush(&selection);
	if (to.results)
		write_results(mirror, batch, query, selection.best);
	else
		write_tables(mirror, batch, to.tables, query, selection.best);
}

template <typename T, int TERM>
__global__ void
__launch_bounds__(THREADS) exact_keys_kernel(const MirrorView mirror, const BatchView batch,
											 const Entries out, uint32_t from, uint32_t end)
{
	__shared__ double norm;
	__shared__ uint32_t answers;
	__shared__ uint32_t measured;
	DYNAMIC_SHARED(memory);
	const DeviceQuery asked = batch.queries[0];
	uint32_t slot = from + blockIdx.x * ROWS + threadIdx.x / EXACT_TEAM;
	bool active = slot < end && may_answer(mirror, batch, asked, slot);
	QueryVector query;
	Key key;

	if (threadIdx.x == 0)
		answers = measured = 0;
	query = load_query<T>(mirror, batch.vectors + asked.vector, (float *) memory, &norm);
	key = exact_key<T, TERM>(mirror, query, slot, active);
	if (slot < end && threadIdx.x % EXACT_TEAM == 0)
	{
		bool answer = active && is_beyond(asked, key, slot);

		out.key[slot - from] = answer ? key : NO_KEY;
		out.slot[slot - from] = slot;
		if (active)
			atomicAdd(&measured, 1);
		if (answer)
			atomicAdd(&answers, 1);
	}
	__syncthreads();
	if (threadIdx.x == 0)
	{
		atomicAdd(&batch.heads[0].distances, measured);
		atomicAdd(&batch.heads[0].count, answers);
	}
}

/*
 * Write the first k sorted entries as results. head->count is the number of
 * candidates before, and of results after.
 */
__global__ void
__launch_bounds__(THREADS) exact_emit_kernel(const MirrorView mirror, const BatchView batch,
											 const Entries sorted, uint32_t entries)
{
	const DeviceQuery asked = batch.queries[0];
	uint32_t i = blockIdx.x * THREADS + threadIdx.x;

	if (i >= asked.k || i >= entries || sorted.key[i] == NO_KEY)
		return;

	SearchResult *result = &batch.results[asked.results + i];

	result->distance = distance_of(sorted.key[i]);
	result->slot = sorted.slot[i];
	result->version = mirror.versions[sorted.slot[i]];
}

typedef void (*KeysKernel)(const MirrorView, const BatchView, const Entries, uint32_t, uint32_t);

#define KEYS_KERNEL(T, TERM) exact_keys_kernel<T, TERM>

static const KeysKernel keys_kernels[TYPES_AND_TERMS_COUNT] = TYPES_AND_TERMS(KEYS_KERNEL);

cudaError_t
exact_prepare(size_t shared_room, const EngineForced *forced, ExactLimits *limits)
{
	int bytes = (int) (shared_room - 1024); /* less than 1 KB is declared statically */
	cudaError_t error = allow_shared(exact_merge_kernel, (size_t) bytes);

	limits->way = forced->exact;
	limits->tiles_asked = forced->tiles_queries > 0;
	limits->tile_rows =
		forced->exact_tile > 0 && forced->exact_tile < EXACT_TILE ? forced->exact_tile : EXACT_TILE;
	if (error == cudaSuccess)
		error = allow_shared(keys_kernels, (size_t) bytes);
	if (error == cudaSuccess)
		error = scan_prepare(bytes);
	if (error == cudaSuccess)
		error = fused_prepare(shared_room, limits);
	return error == cudaSuccess ? tiles_prepare(bytes, forced, limits) : error;
}

uint32_t
exact_scan_queries(size_t state_bytes, uint32_t max_k)
{
	return (uint32_t) (state_bytes / (entries_bytes(max_k) + sizeof(Key) + 1));
}

cudaError_t
exact_scan_launch(const ExactLaunch *launch, ExactLists *lists)
{
	ScanPlan plan;
	cudaError_t error;

	memset(&plan, 0, sizeof(plan));
	plan.step = 1;
	plan.pending_only = launch->pending_only;
	error = scan_launch(launch, &plan, launch->batch.state, launch->state_bytes);
	*lists = plan.lists;
	return error;
}

cudaError_t
merge_launch(const ExactLaunch *launch, const ExactLists *lists, const MergeTo *to)
{
	LAUNCH(exact_merge_kernel, launch->queries, THREADS, selection_bytes(launch->max_k),
		   launch->stream, launch->mirror, launch->batch, *lists, *to);
	return cudaGetLastError();
}

bool
exact_at_once(const ExactLaunch *launch)
{
	ExactWay way = launch->limits->way;

	if (way == EXACT_SCAN || !fused_can(launch))
		return false;
	return way == EXACT_FUSED ||
		   (fused_pays(launch) && !((way == EXACT_TILES || launch->limits->tiles_asked) &&
									tiles_can(launch, way == EXACT_TILES)));
}

cudaError_t
exact_search_launch(const ExactLaunch *launch)
{
	ExactWay way = launch->limits->way;
	ExactLists lists;
	MergeTo to;
	cudaError_t error;

	if (launch->max_k > EXACT_SMALL_K)
		return exact_sort_launch(launch);
	if (way != EXACT_SCAN && way != EXACT_FUSED && !launch->in_place &&
		tiles_can(launch, way == EXACT_TILES))
		return tiles_launch(launch, way == EXACT_TILES);
	memset(&to, 0, sizeof(to));
	to.results = true;
	error = exact_scan_launch(launch, &lists);
	return error == cudaSuccess ? merge_launch(launch, &lists, &to) : error;
}

#define SORT_ROOM (EXACT_CHUNK + EXACT_TILE) /* entries of a side */

cudaError_t
exact_sort_bytes(size_t *bytes)
{
	cudaError_t error = entry_sort_bytes(SORT_ROOM, bytes);

	*bytes = round_up(*bytes, 256) + 2 * entries_bytes(SORT_ROOM);
	return error;
}

/*
 * Lay out the state of a search with a large k: two sides of entries, then the
 * temporary memory of sorts.
 */
static cudaError_t
lay_out_sort(const ExactLaunch *launch, const ExactStream *stream, EntrySort *sort)
{
	Entries *side = sort->side;

	side[0].key = (Key *) launch->batch.state;
	side[1].key = side[0].key + SORT_ROOM;
	side[0].slot = (uint32_t *) (side[1].key + SORT_ROOM);
	side[1].slot = side[0].slot + SORT_ROOM;
	sort->current = stream->side;
	sort->work = side[1].slot + SORT_ROOM;
	return entry_sort_bytes(SORT_ROOM, &sort->work_bytes);
}

/*
 * Process rows of a search with a large k: append their keys to the best so
 * far, and keep the best of all.
 */
cudaError_t
sort_rows(const ExactLaunch *launch, ExactStream *stream, uint32_t from, uint32_t end)
{
	uint32_t rows = end - from;
	EntrySort sort;
	cudaError_t error = lay_out_sort(launch, stream, &sort);
	const Entries &now = sort.side[stream->side];
	Entries tile = {now.key + stream->kept, now.slot + stream->kept};

	if (error != cudaSuccess)
		return error;
	LAUNCH(keys_kernels[type_and_term(launch->type, launch->mirror.metric)],
		   (rows + ROWS - 1) / ROWS, THREADS, query_bytes(launch->mirror), launch->stream,
		   launch->mirror, launch->batch, tile, from, end);
	error = cudaGetLastError();
	if (error == cudaSuccess)
		error = entry_sort(&sort, stream->kept + rows, launch->stream);
	stream->kept = stream->kept + rows < launch->max_k ? stream->kept + rows : launch->max_k;
	stream->side = sort.current;
	return error;
}

/* Write the results, after all rows were processed. */
cudaError_t
sort_end(const ExactLaunch *launch, ExactStream *stream)
{
	EntrySort sort;
	cudaError_t error = lay_out_sort(launch, stream, &sort);

	if (error != cudaSuccess)
		return error;
	LAUNCH(exact_emit_kernel, (launch->max_k + THREADS - 1) / THREADS, THREADS, 0, launch->stream,
		   launch->mirror, launch->batch, sort.side[sort.current], stream->kept);
	return cudaGetLastError();
}

cudaError_t
exact_sort_launch(const ExactLaunch *launch)
{
	uint32_t rows = launch->mirror.rows;
	uint32_t tile_rows = launch->limits->tile_rows;
	ExactStream stream;
	cudaError_t error = cudaSuccess;

	memset(&stream, 0, sizeof(stream));
	for (uint32_t from = 0; from < rows && error == cudaSuccess; from += tile_rows)
		error = sort_rows(launch, &stream, from, rows - from < tile_rows ? rows : from + tile_rows);
	return error == cudaSuccess ? sort_end(launch, &stream) : error;
}
