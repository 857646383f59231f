/*
 * exact_fused_end.cuh
 *		The end of a fused search (exact_fused.cu): write the candidates of all
 *		blocks, and make the results from them.
 */
#ifndef GPUANN_CUDA_EXACT_FUSED_END_CUH
#define GPUANN_CUDA_EXACT_FUSED_END_CUH

#include "cuda/exact/exact_fused.cuh"

#define FEW 96u		   /* up to 2 k + this many entries need no better bound in the end */
#define GATHERED 2048u /* entries sorted at a time in the end */

/*
 * List the places of a block's candidates that are within its bounds, in the
 * memory of the ring. Called by all threads. Returns whether some query has
 * more than a few.
 */
template <int G>
__device__ static inline bool
list_candidates(const FusedPlan &plan, FusedBlock<G> *block, const FusedMemory &memory)
{
	bool much = false;

	if (threadIdx.x < G)
		block->found[threadIdx.x] = 0;
	__syncthreads();
#pragma unroll
	for (uint32_t g = 0; g < G; g++)
	{
		Entries entries = candidates_of(plan, memory, g);
		uint32_t n = g < plan.queries ? block->buffered[g] : 0;

		for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
			if (entries.key[i] <= block->bound[g])
				((uint32_t *) memory.ring)[g * plan.room + atomicAdd(&block->found[g], 1u)] = i;
	}
	__syncthreads();
	for (uint32_t g = 0; g < plan.queries; g++)
		much = much || block->found[g] > plan.few;
	return much;
}

/*
 * Write a block's candidates that are within the bounds. Called by all threads.
 * Returns whether this is the last block to do so.
 */
template <int G>
__device__ static inline bool
write_candidates(const FusedPlan &plan, FusedBlock<G> *block, const FusedMemory &memory)
{
	__syncthreads();
	if (list_candidates(plan, block, memory))
	{
		for (uint32_t g = threadIdx.x / WARP; g < plan.queries; g += blockDim.x / WARP)
		{
			bound_from_marks(plan.table->marks[g], plan.marks, plan.k,
							 (uint32_t *) memory.ring + g * plan.marks, &plan.table->bounds[g]);
			if (threadIdx.x % WARP == 0)
				block->bound[g] = *(volatile Key *) &plan.table->bounds[g];
		}
		__syncthreads();
		list_candidates(plan, block, memory);
	}
	if (threadIdx.x < plan.queries && block->found[threadIdx.x] > 0)
		block->first[threadIdx.x] =
			atomicAdd(&plan.table->found[threadIdx.x], block->found[threadIdx.x]) + 1;
	__syncthreads();
#pragma unroll
	for (uint32_t g = 0; g < G; g++)
	{
		Entries entries = candidates_of(plan, memory, g);

		for (uint32_t j = threadIdx.x; j < block->found[g]; j += blockDim.x)
		{
			uint32_t i = ((const uint32_t *) memory.ring)[g * plan.room + j];
			size_t out = (size_t) g * plan.max_found + block->first[g] + j;

			plan.keys[out] = entries.key[i];
			plan.slots[out] = entries.slot[i];
		}
	}
	__syncthreads();
	if (threadIdx.x == 0)
	{
		__threadfence();
		block->last = atomicAdd(&plan.table->ended, 1u) + 2 == gridDim.x;
		__threadfence();
	}
	__syncthreads();
	return block->last;
}

/*
 * Threads that rank a query's entries: all queries together if there are enough
 * for a warp each, else so many queries at a time.
 */
__device__ static inline uint32_t
threads_each(const FusedPlan &plan)
{
	uint32_t each = blockDim.x / plan.queries / WARP * WARP;

	return each > 0 ? each : WARP;
}

/* Where a query's entries are gathered to be ranked. */
__device__ static inline Entries
ranked_entries_of(const FusedPlan &plan, const FusedMemory &memory, uint32_t g)
{
	unsigned char *at = memory.ring + g * entries_bytes(plan.ranked);

	return entries_at(&at, plan.ranked);
}

/*
 * Write the entries of a query: the place of each is the number of those before
 * it.
 */
template <int G>
__device__ static inline void
rank_entries(const MirrorView &mirror, const BatchView &batch, const FusedPlan &plan,
			 FusedBlock<G> *block, const FusedMemory &memory, uint32_t g, uint32_t first)
{
	Entries entries = ranked_entries_of(plan, memory, g);
	uint32_t n = block->gathered[g];

	for (uint32_t i = first; i < n; i += threads_each(plan))
	{
		Key key = entries.key[i];
		uint32_t slot = entries.slot[i];
		uint32_t place = 0;
		SearchResult result;

		result.distance = distance_of(key);
		result.slot = slot;
		result.version = mirror.versions[slot];
#pragma unroll 4
		for (uint32_t j = 0; j < n; j++)
			place += entry_before(entries.key[j], entries.slot[j], key, slot);
		if (place < block->asked[g].k)
			batch.results[block->asked[g].results + place] = result;
	}
}

/*
 * Answer the queries by comparing each one's entries with each other. Called by
 * all threads. Returns false if some query has too many entries.
 */
template <int G>
__device__ static inline bool
answer_few(const MirrorView &mirror, const BatchView &batch, const FusedPlan &plan,
		   FusedBlock<G> *block, const FusedMemory &memory)
{
	uint32_t each = threads_each(plan);
	uint32_t together = blockDim.x / each;
	uint32_t i = threadIdx.x % each;

	for (uint32_t g = threadIdx.x / each; g < plan.queries; g += together)
	{
		Entries entries = ranked_entries_of(plan, memory, g);
		Key bound = *(volatile Key *) &plan.table->bounds[g];

		for (uint32_t j = i; j < block->found[g]; j += each)
		{
			Key key = __ldcg(plan.keys + (size_t) g * plan.max_found + j);
			uint32_t slot = __ldcg(plan.slots + (size_t) g * plan.max_found + j);
			uint32_t to = key <= bound ? atomicAdd(&block->gathered[g], 1u) : plan.ranked;

			if (to < plan.ranked)
			{
				entries.key[to] = key;
				entries.slot[to] = slot;
			}
		}
	}
	__syncthreads();
	for (uint32_t g = 0; g < plan.queries; g++)
		if (block->gathered[g] > plan.ranked)
			return false;
	for (uint32_t g = threadIdx.x / each; g < plan.queries; g += together)
		rank_entries(mirror, batch, plan, block, memory, g, i);
	return true;
}

/* Answer a query with many entries. Called by all threads. */
template <int G>
__device__ static inline void
answer_many(const MirrorView &mirror, const BatchView &batch, const FusedPlan &plan,
			FusedBlock<G> *block, const FusedMemory &memory, uint32_t g)
{
	size_t first = (size_t) g * plan.max_found;
	uint32_t n = block->found[g];
	Key bound = *(volatile Key *) &plan.table->bounds[g];
	unsigned char *at = memory.ring;
	Selection selection;

	selection.best.now = entries_at(&at, list_room(plan.k));
	selection.best.next = entries_at(&at, list_room(plan.k));
	selection.best.count = 0;
	selection.best.room = block->asked[g].k;
	selection.buffer = entries_at(&at, GATHERED);
	selection.buffered = &block->selected;
	__syncthreads();
	if (threadIdx.x == 0)
		block->selected = 0;
	__syncthreads();
	for (uint32_t base = 0; base < n; base += blockDim.x)
	{
		uint32_t i = base + threadIdx.x;
		Key key = i < n ? __ldcg(plan.keys + first + i) : NO_KEY;
		bool full;

		if (key != NO_KEY && key <= bound)
			selection_offer(&selection, key, __ldcg(plan.slots + first + i));
		__syncthreads();
		full = block->selected + blockDim.x > GATHERED;
		__syncthreads();
		if (full)
			selection_flush(&selection);
	}
	selection_flush(&selection);
	write_best(mirror, batch.results + block->asked[g].results, selection.best);
}

/* Reset the table for the next launch. Called by all threads. */
__device__ static inline void
clear_table(const FusedPlan &plan)
{
	for (uint32_t g = 0; g < plan.queries; g++)
	{
		for (uint32_t i = threadIdx.x; i < plan.marks; i += blockDim.x)
			plan.table->marks[g][i] = 0xFFFFFFFFu;
		if (threadIdx.x == 0)
		{
			plan.table->bounds[g] = NO_KEY;
			plan.table->found[g] = 0xFFFFFFFFu;
		}
	}
	if (threadIdx.x == 0)
		plan.table->ended = 0xFFFFFFFFu;
}

/*
 * Write the results of all queries to host memory. Called by all threads of the
 * last block.
 */
template <int G>
__device__ static inline void
fused_answer(const MirrorView &mirror, const BatchView &batch, const FusedPlan &plan,
			 FusedBlock<G> *block, const FusedMemory &memory)
{
	bool much = false;

	if (threadIdx.x < plan.queries)
	{
		uint32_t g = threadIdx.x;
		uint32_t n = *(volatile uint32_t *) &plan.table->found[g] + 1;
		DeviceHead head = {
			n < block->asked[g].k ? n : block->asked[g].k, 0, mirror.rows, 1, 0, 0};

		block->found[g] = n;
		block->gathered[g] = 0;
		batch.heads[g] = head;
	}
	__syncthreads();
	for (uint32_t g = 0; g < plan.queries; g++)
		much = much || block->found[g] > 2 * plan.k + FEW;
	if (much)
	{
		for (uint32_t g = threadIdx.x / WARP; g < plan.queries; g += blockDim.x / WARP)
			bound_from_marks(plan.table->marks[g], plan.marks, plan.k,
							 (uint32_t *) memory.ring + g * plan.marks, &plan.table->bounds[g]);
		__syncthreads();
	}
	if (!answer_few(mirror, batch, plan, block, memory))
		for (uint32_t g = 0; g < plan.queries; g++)
			answer_many(mirror, batch, plan, block, memory, g);
	end_query(batch, 1);
	clear_table(plan);
}

#endif /* GPUANN_CUDA_EXACT_FUSED_END_CUH */
