/*
 * exact.cu
 *		Exact search: all rows, or the pending ones, in double precision, with the same answers as the CPU's to the last bit.
 *
 * k <= EXACT_SMALL_K, two kernels
 *		exact_scan_kernel	grid (ranges of rows, queries), 256 threads: 128 rows at a time, two threads each (distance.cuh). Shared: the
 *							query, the best k so far in two halves, a buffer of 512 entries; entries better than the k-th
 *							are appended, and a full buffer is sorted and merged in. Reads each row once per query; writes k
 *							entries per range. Bound: memory for one query, L2 and double arithmetic for many.
 *		exact_merge_kernel	grid (queries), 256 threads: the lists of a query, through the same buffer, to results.
 * Larger k, one query at a time
 *		exact_keys_kernel	grid (rows / 128), 256 threads: the keys of a tile of rows, NO_KEY for what is no answer, behind the best of the
 *							tiles before. A stable radix sort by key then orders equal keys by slot: earlier tiles have
 *							smaller slots and stand first. Writes 12 bytes a row, sorts them (about ten passes of 24 bytes).
 *		exact_emit_kernel	the first k to results.
 * Launched by batch.cu. State: exact_sort_bytes, about 40 MB whatever the number of rows.
 */
#include <math.h>

#ifdef EMULATED
#include <emulate_sort.h>
#else
#include <cub/device/device_radix_sort.cuh>
#endif

#include "distance.cuh"
#include "exact.h"

#define THREADS 256u
#define ROWS (THREADS / EXACT_TEAM) /* rows that a block measures at once */
#define BUFFER 512u					/* entries; at least 2 x ROWS */
#define RANGE_LEAST 1024u			/* rows that are worth a block */

/* A block's best entries of what it was shown. */
struct Selection
{
	BestList best;
	Entries buffer;
	uint32_t *buffered; /* shared */
};

/* Bytes of a selection's lists and buffer. */
__host__ __device__ static inline size_t
selection_bytes(uint32_t k)
{
	return 2 * entries_bytes((k + 1) & ~1u) + entries_bytes(BUFFER);
}

__device__ static inline void
begin_selection(Selection *selection, unsigned char *at, uint32_t k, uint32_t *buffered)
{
	uint32_t half = (k + 1) & ~1u;

	selection->best.now = entries_at(&at, half);
	selection->best.next = entries_at(&at, half);
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

/* Merge the buffer if another round of `more` entries might not fit. All threads, after a barrier. */
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

template <typename T, int TERM>
__global__ void __launch_bounds__(THREADS)
	exact_scan_kernel(const MirrorView mirror, const BatchView batch, const ExactLists lists, bool pending_only)
{
	__shared__ double norm;
	__shared__ uint32_t buffered;
	__shared__ uint32_t seen;
	DYNAMIC_SHARED(memory);
	const DeviceQuery asked = batch.queries[blockIdx.y];
	uint32_t total = pending_only ? mirror.npending : mirror.rows;
	uint32_t range = (total + gridDim.x - 1) / gridDim.x;
	uint32_t from = range * blockIdx.x < total ? range * blockIdx.x : total;
	uint32_t end = range < total - from ? from + range : total;
	uint32_t counted = 0;
	size_t out = ((size_t) blockIdx.y * lists.lists + blockIdx.x) * lists.length;
	Selection selection;
	QueryVector query;

	if (threadIdx.x == 0)
		seen = 0;
	begin_selection(&selection, memory + query_bytes(mirror), lists.length, &buffered);
	query = load_query<T>(mirror, batch.vectors + asked.vector, (float *) memory, &norm);
	for (uint32_t base = from; base < end; base += ROWS)
	{
		uint32_t i = base + threadIdx.x / EXACT_TEAM;
		uint32_t slot = i < end ? (pending_only ? mirror.pending[i] : i) : NO_SLOT;
		bool active = slot < mirror.rows && may_answer(mirror, batch, asked, slot);
		Key key = exact_key<T, TERM>(mirror, query, slot, active);

		if (active && threadIdx.x % EXACT_TEAM == 0)
		{
			counted++;
			if (is_beyond(asked, key, slot))
				show(&selection, key, slot);
		}
		__syncthreads();
		flush_if_full(&selection, ROWS);
	}
	flush(&selection);
	for (uint32_t i = threadIdx.x; i < lists.length; i += blockDim.x)
	{
		bool there = i < selection.best.count;

		lists.keys[out + i] = there ? selection.best.now.key[i] : NO_KEY;
		lists.slots[out + i] = there ? selection.best.now.slot[i] : NO_SLOT;
	}
	if (counted > 0)
		atomicAdd(&seen, counted);
	__syncthreads();
	if (threadIdx.x == 0)
		atomicAdd(pending_only ? &batch.heads[blockIdx.y].pending : &batch.heads[blockIdx.y].distances, seen);
}

__global__ void __launch_bounds__(THREADS)
	exact_merge_kernel(const MirrorView mirror, const BatchView batch, const ExactLists lists)
{
	__shared__ uint32_t buffered;
	DYNAMIC_SHARED(memory);
	const DeviceQuery asked = batch.queries[blockIdx.x];
	size_t first = (size_t) blockIdx.x * lists.lists * lists.length;
	uint32_t total = lists.lists * lists.length;
	Selection selection;

	begin_selection(&selection, memory, asked.k, &buffered);
	for (uint32_t base = 0; base < total; base += THREADS)
	{
		uint32_t i = base + threadIdx.x;

		if (i < total)
			show(&selection, lists.keys[first + i], lists.slots[first + i]);
		__syncthreads();
		flush_if_full(&selection, THREADS);
	}
	flush(&selection);
	for (uint32_t i = threadIdx.x; i < selection.best.count; i += blockDim.x)
	{
		SearchResult *result = &batch.results[asked.results + i];
		uint32_t slot = selection.best.now.slot[i];

		result->distance = distance_of(selection.best.now.key[i]);
		result->slot = slot;
		result->version = mirror.versions[slot];
	}
	if (threadIdx.x == 0)
		batch.heads[blockIdx.x].count = selection.best.count;
}

template <typename T, int TERM>
__global__ void __launch_bounds__(THREADS)
	exact_keys_kernel(const MirrorView mirror, const BatchView batch, const Entries out, uint32_t from, uint32_t end)
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

/* Results from sorted entries. head->count is the number of answers there are; it becomes the number given. */
__global__ void __launch_bounds__(THREADS)
	exact_emit_kernel(const MirrorView mirror, const BatchView batch, const Entries sorted, uint32_t entries)
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

typedef void (*ScanKernel)(const MirrorView, const BatchView, const ExactLists, bool);
typedef void (*KeysKernel)(const MirrorView, const BatchView, const Entries, uint32_t, uint32_t);

#define SCAN_KERNEL(T, TERM) exact_scan_kernel<T, TERM>
#define KEYS_KERNEL(T, TERM) exact_keys_kernel<T, TERM>

static const ScanKernel scan_kernels[TYPES_AND_TERMS_COUNT] = TYPES_AND_TERMS(SCAN_KERNEL);
static const KeysKernel keys_kernels[TYPES_AND_TERMS_COUNT] = TYPES_AND_TERMS(KEYS_KERNEL);

cudaError_t
exact_prepare(size_t shared_room)
{
	int bytes = (int) (shared_room - 64);
	cudaError_t error = cudaFuncSetAttribute((const void *) exact_merge_kernel,
											 cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);

	for (int i = 0; i < TYPES_AND_TERMS_COUNT && error == cudaSuccess; i++)
	{
		error = cudaFuncSetAttribute((const void *) scan_kernels[i],
									 cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
		if (error == cudaSuccess)
			error = cudaFuncSetAttribute((const void *) keys_kernels[i],
										 cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	}
	return error;
}

uint32_t
exact_scan_queries(size_t state_bytes, uint32_t max_k)
{
	return (uint32_t) (state_bytes / entries_bytes(max_k));
}

cudaError_t
exact_scan_launch(const ExactLaunch *launch, ExactLists *lists)
{
	uint32_t total = launch->pending_only ? launch->mirror.npending : launch->mirror.rows;
	uint32_t ranges = (launch->blocks + launch->queries - 1) / launch->queries;
	uint32_t useful = (total + RANGE_LEAST - 1) / RANGE_LEAST;
	uint32_t room = exact_scan_queries(launch->state_bytes, launch->max_k) / launch->queries;
	size_t bytes = query_bytes(launch->mirror) + selection_bytes(launch->max_k);
	ScanKernel kernel = scan_kernels[type_and_term(launch->type, launch->mirror.metric)];

	ranges = ranges < useful ? ranges : useful;
	ranges = ranges < room ? ranges : room;
	ranges = ranges > 0 ? ranges : 1;
	lists->lists = ranges;
	lists->length = launch->max_k;
	lists->keys = (Key *) launch->batch.state;
	lists->slots = (uint32_t *) (lists->keys + (size_t) launch->queries * ranges * launch->max_k);
	LAUNCH(kernel, dim3(ranges, launch->queries), THREADS, bytes, launch->stream, launch->mirror, launch->batch, *lists,
		   launch->pending_only);
	return cudaGetLastError();
}

cudaError_t
exact_merge_launch(const ExactLaunch *launch, const ExactLists *lists)
{
	LAUNCH(exact_merge_kernel, launch->queries, THREADS, selection_bytes(launch->max_k), launch->stream, launch->mirror,
		   launch->batch, *lists);
	return cudaGetLastError();
}

/* The state of a sort: two sets of entries, then what the sort itself wants. */
struct SortState
{
	Entries side[2];
	void *work;
	size_t work_bytes;
};

static cudaError_t
sort_work_bytes(size_t *bytes)
{
	cub::DoubleBuffer<Key> keys((Key *) NULL, (Key *) NULL);
	cub::DoubleBuffer<uint32_t> slots((uint32_t *) NULL, (uint32_t *) NULL);

	return cub::DeviceRadixSort::SortPairs(NULL, *bytes, keys, slots, (int) (EXACT_CHUNK + EXACT_TILE));
}

cudaError_t
exact_sort_bytes(size_t *bytes)
{
	cudaError_t error = sort_work_bytes(bytes);

	*bytes = round_up(*bytes, 256) + 2 * entries_bytes(EXACT_CHUNK + EXACT_TILE);
	return error;
}

/* Sort n entries of the current side; the sorted ones are then in *side. */
static cudaError_t
sort_entries(const SortState *state, uint32_t n, uint32_t *side, cudaStream_t stream)
{
	cub::DoubleBuffer<Key> keys(state->side[*side].key, state->side[*side ^ 1].key);
	cub::DoubleBuffer<uint32_t> slots(state->side[*side].slot, state->side[*side ^ 1].slot);
	size_t bytes = state->work_bytes;
	cudaError_t error =
		cub::DeviceRadixSort::SortPairs(state->work, bytes, keys, slots, (int) n, 0, (int) sizeof(Key) * 8, stream);

	/* keys and slots move together */
	if (error == cudaSuccess && keys.Current() != state->side[*side].key)
		*side ^= 1;
	return error;
}

cudaError_t
exact_sort_launch(const ExactLaunch *launch)
{
	const MirrorView &mirror = launch->mirror;
	uint32_t room = EXACT_CHUNK + EXACT_TILE;
	uint32_t side = 0,
			 kept = 0;
	size_t bytes = query_bytes(mirror);
	KeysKernel kernel = keys_kernels[type_and_term(launch->type, mirror.metric)];
	SortState state;
	cudaError_t error = sort_work_bytes(&state.work_bytes);

	state.side[0].key = (Key *) launch->batch.state;
	state.side[1].key = state.side[0].key + room;
	state.side[0].slot = (uint32_t *) (state.side[1].key + room);
	state.side[1].slot = state.side[0].slot + room;
	state.work = state.side[1].slot + room;
	for (uint32_t from = 0; from < mirror.rows && error == cudaSuccess; from += EXACT_TILE)
	{
		uint32_t rows = mirror.rows - from < EXACT_TILE ? mirror.rows - from : EXACT_TILE;
		Entries tile = {state.side[side].key + kept, state.side[side].slot + kept};

		LAUNCH(kernel, (rows + ROWS - 1) / ROWS, THREADS, bytes, launch->stream, mirror, launch->batch, tile, from,
			   from + rows);
		error = cudaGetLastError();
		if (error == cudaSuccess)
			error = sort_entries(&state, kept + rows, &side, launch->stream);
		kept = kept + rows < launch->max_k ? kept + rows : launch->max_k;
	}
	if (error != cudaSuccess)
		return error;
	LAUNCH(exact_emit_kernel, (launch->max_k + THREADS - 1) / THREADS, THREADS, 0, launch->stream, mirror,
		   launch->batch, state.side[side], kept);
	return cudaGetLastError();
}
