/*
 * link_connectivity.cu
 *		The end of a link that is not small: every linked row can be reached
 *		from the first seeds. The rule is that of src/engine/connectivity.c.
 *
 * Rounds, until one attaches nothing: sweeps mark what is reached and count
 * edges in; of the rows left out those are selected that name no other such row
 * with a smaller number, so that few rows of an island are, and the first seeds
 * are; a walk from the first seeds, but not from the row itself, finds what is
 * near to each, all of it reached; and the nearest that has a place gets an
 * edge to it, one after the other, except to a seed that a row found names.
 *
 *		sweep	a warp per 32 rows: reads rows newly reached, two atomics per
 *				edge. Some ten sweeps for a million rows
 *		select	likewise: reads the rows left out
 *		attach	one warp, a few hundred rows a launch
 * Bound: memory (sweeps), latency (attach). Driven by
 * cuda/jobs/link_connectivity_job.cu.
 */
#include "cuda/link/link_measure.cuh"

/* Mark what a row newly reached leads to. One warp. */
__device__ static inline void
sweep_row(const MirrorView &mirror, const LinkReach &reach, uint32_t slot)
{
	for (uint32_t i = threadIdx.x % WARP; i < mirror.degree; i += WARP)
	{
		uint32_t neighbour = mirror.graph[(size_t) slot * mirror.degree + i];

		if (neighbour >= mirror.rows)
			continue;
		atomicAdd(&reach.edges_in[neighbour], 1u);
		if (!(atomicOr(&reach.reached[neighbour >> 5], 1u << (neighbour & 31)) >> (neighbour & 31) &
			  1))
			*reach.found = 1;
	}
}

/*
 * Mark what rows newly reached lead to. What is reached meanwhile may be taken
 * at once or by the next sweep: the end is the same.
 */
__global__ void
__launch_bounds__(LINK_THREADS, 8)
	reach_sweep_kernel(const MirrorView mirror, const LinkReach reach)
{
	uint32_t words = (mirror.rows + 31) / 32;

	for (uint32_t word = blockIdx.x * LINK_WARPS + threadIdx.x / WARP; word < words;
		 word += gridDim.x * LINK_WARPS)
	{
		uint32_t fresh = __shfl_sync(FULL_WARP, reach.reached[word] & ~reach.expanded[word], 0);

		__syncwarp();
		if (fresh != 0 && threadIdx.x % WARP == 0)
			reach.expanded[word] |= fresh;
		for (; fresh != 0; fresh &= fresh - 1)
			sweep_row(mirror, reach, word * 32 + (uint32_t) __ffs((int) fresh) - 1);
	}
}

__device__ static inline bool
is_left_out(const LinkReach &reach, uint32_t slot)
{
	return bit_of(reach.wanted, slot) && !bit_of(reach.reached, slot);
}

/*
 * Whether a row left out names another such row with a smaller number. One
 * warp.
 */
__device__ static inline bool
names_smaller(const MirrorView &mirror, const LinkReach &reach, uint32_t slot)
{
	bool smaller = false;

	for (uint32_t base = 0; base < mirror.degree; base += WARP)
	{
		uint32_t i = base + threadIdx.x % WARP;
		uint32_t neighbour =
			i < mirror.degree ? mirror.graph[(size_t) slot * mirror.degree + i] : NO_SLOT;

		smaller = smaller ||
				  __ballot_sync(FULL_WARP, neighbour < slot && is_left_out(reach, neighbour)) != 0;
	}
	return smaller;
}

/* Select the rows left out that name no other with a smaller number. */
__global__ void
__launch_bounds__(LINK_THREADS, 8)
	reach_select_kernel(const MirrorView mirror, const LinkReach reach)
{
	uint32_t words = (mirror.rows + 31) / 32;

	for (uint32_t word = blockIdx.x * LINK_WARPS + threadIdx.x / WARP; word < words;
		 word += gridDim.x * LINK_WARPS)
	{
		uint32_t selected = 0;

		for (uint32_t left = reach.wanted[word] & ~reach.reached[word]; left != 0; left &= left - 1)
			if (!names_smaller(mirror, reach, word * 32 + (uint32_t) __ffs((int) left) - 1))
				selected |= left & (0 - left);
		if (selected != 0 && threadIdx.x % WARP == 0)
			reach.selected[word] = selected;
	}
}

/* Select the first seeds, which are reached without an edge. One warp. */
__global__ void
__launch_bounds__(WARP) reach_select_seeds_kernel(const MirrorView mirror, const LinkReach reach)
{
	uint32_t slot = threadIdx.x < mirror.nseeds ? mirror.seeds[threadIdx.x] : NO_SLOT;

	if (slot < mirror.rows && bit_of(reach.wanted, slot))
		atomicOr(&reach.selected[slot >> 5], 1u << (slot & 31));
}

/* Mark the slots that walks start from. */
__global__ void
__launch_bounds__(WARP) reach_start_kernel(const MirrorView mirror, const LinkReach reach)
{
	if (threadIdx.x < mirror.nseeds && mirror.seeds[threadIdx.x] < mirror.rows)
		atomicOr(&reach.reached[mirror.seeds[threadIdx.x] >> 5],
				 1u << (mirror.seeds[threadIdx.x] & 31));
}

/*
 * Put an edge to a slot into a row: at its end, or in the farther half in the
 * place of the last that can be spared. One warp.
 */
__device__ static inline bool
put_edge(const MirrorView &mirror, const LinkBatch &batch, const LinkReach &reach, uint32_t row,
		 uint32_t slot)
{
	uint32_t *neighbours = batch.graph + (size_t) row * mirror.degree;
	uint32_t lane = threadIdx.x % WARP;
	uint32_t place = NO_SLOT;

	for (uint32_t base = 0; base < mirror.degree && place == NO_SLOT; base += WARP)
	{
		uint32_t empty = __ballot_sync(FULL_WARP, base + lane < mirror.degree &&
													  neighbours[base + lane] == NO_SLOT);

		if (empty != 0)
			place = base + (uint32_t) __ffs((int) empty) - 1;
	}
	for (uint32_t end = mirror.degree; end > mirror.degree / 2 && place == NO_SLOT;
		 end -= end < WARP ? end : WARP)
	{
		/* lane 0 looks at the last place */
		uint32_t i = end - 1 - lane;
		bool looks = lane < end && i >= mirror.degree / 2;
		uint32_t target = looks ? neighbours[i] : NO_SLOT;
		uint32_t spared =
			__ballot_sync(FULL_WARP, target < mirror.rows && reach.edges_in[target] > 1);

		if (spared != 0)
			place = end - (uint32_t) __ffs((int) spared);
	}
	if (place == NO_SLOT)
		return false;
	if (lane == 0)
	{
		if (neighbours[place] != NO_SLOT)
			reach.edges_in[neighbours[place]]--;
		neighbours[place] = slot;
		reach.edges_in[slot]++;
		atomicOr(&batch.changed[row >> 5], 1u << (row & 31));
	}
	__syncwarp();
	return true;
}

/* Whether one of 32 rows, a lane's or NO_SLOT, names a slot. One warp. */
__device__ static inline bool
one_names(const MirrorView &mirror, const LinkBatch &batch, uint32_t row, uint32_t slot)
{
	const uint32_t *neighbours = batch.graph + (size_t) row * mirror.degree;
	bool names = false;

	for (uint32_t i = 0; row != NO_SLOT && i < mirror.degree; i++)
		names |= neighbours[i] == slot;
	return __ballot_sync(FULL_WARP, names) != 0;
}

/*
 * Whether a row that an item's walk has found names its slot. The walk did not
 * pass through the slot: so it is reached from the other seeds. One warp.
 */
__device__ static inline bool
found_names(const MirrorView &mirror, const LinkBatch &batch, uint32_t item)
{
	const uint32_t *equals = batch.equals + (size_t) item * LINK_EQUALS;
	const LinkEntry *candidates = batch.candidates + (size_t) item * batch.room;
	uint32_t lane = threadIdx.x % WARP;
	bool names = false;

	for (uint32_t base = 0; base < LINK_EQUALS && !names; base += WARP)
		names = one_names(mirror, batch, base + lane < LINK_EQUALS ? equals[base + lane] : NO_SLOT,
						  batch.slots[item]);
	for (uint32_t base = 0; base < batch.ncandidates[item] && !names; base += WARP)
		names = one_names(mirror, batch,
						  base + lane < batch.ncandidates[item] ? link_slot(candidates[base + lane])
																: NO_SLOT,
						  batch.slots[item]);
	return names;
}

/*
 * Give rows an edge in each: from the nearest that was reached and has a place,
 * else from the one that got the last. A seed gets none where a row found names
 * it, and none from the last, which may be reached from this seed alone.
 */
__global__ void
__launch_bounds__(WARP) reach_attach_kernel(const MirrorView mirror, const LinkBatch batch,
											const LinkReach reach, uint32_t first, uint32_t count)
{
	uint32_t attached = *reach.attached;

	for (uint32_t item = first; item < first + count; item++)
	{
		const uint32_t *equals = batch.equals + (size_t) item * LINK_EQUALS;
		const LinkEntry *candidates = batch.candidates + (size_t) item * batch.room;
		uint32_t slot = batch.slots[item];
		uint32_t ncandidates = batch.ncandidates[item];
		bool seed = bit_of(reach.reached, slot);
		bool done = false;

		if (seed && found_names(mirror, batch, item))
			continue;
		for (uint32_t i = 0; i < LINK_EQUALS && !done; i++)
			if (equals[i] != NO_SLOT && equals[i] != slot)
				done = put_edge(mirror, batch, reach, equals[i], slot);
		for (uint32_t i = 0; i < ncandidates && !done; i++)
			if (link_slot(candidates[i]) != slot)
				done = put_edge(mirror, batch, reach, link_slot(candidates[i]), slot);
		if (!done && !seed && attached != NO_SLOT && attached != slot)
			done = put_edge(mirror, batch, reach, attached, slot);
		if (done)
			attached = slot;
	}
	if (threadIdx.x == 0)
		*reach.attached = attached;
}

size_t
link_reach_lay_out(LinkReach *reach, uint32_t rows, unsigned char *at)
{
	unsigned char *start = at;
	size_t words = ((size_t) rows + 31) / 32;

	reach->reached = carve<uint32_t>(&at, words);
	reach->expanded = carve<uint32_t>(&at, words);
	reach->selected = carve<uint32_t>(&at, words);
	reach->wanted = carve<uint32_t>(&at, words);
	reach->found = carve<uint32_t>(&at, 2);
	reach->attached = reach->found + 1;
	reach->edges_in = carve<uint32_t>(&at, rows);
	return (size_t) (at - start);
}

cudaError_t
link_reach_start(const MirrorView *mirror, const LinkReach *reach, cudaStream_t stream)
{
	LAUNCH(reach_start_kernel, 1, WARP, 0, stream, *mirror, *reach);
	return cudaGetLastError();
}

cudaError_t
link_reach_sweep(const MirrorView *mirror, const LinkReach *reach, uint32_t blocks,
				 cudaStream_t stream)
{
	LAUNCH(reach_sweep_kernel, blocks, LINK_THREADS, 0, stream, *mirror, *reach);
	return cudaGetLastError();
}

cudaError_t
link_reach_select(const MirrorView *mirror, const LinkReach *reach, uint32_t blocks,
				  cudaStream_t stream)
{
	LAUNCH(reach_select_kernel, blocks, LINK_THREADS, 0, stream, *mirror, *reach);
	LAUNCH(reach_select_seeds_kernel, 1, WARP, 0, stream, *mirror, *reach);
	return cudaGetLastError();
}

cudaError_t
link_reach_attach(const MirrorView *mirror, const LinkBatch *batch, const LinkReach *reach,
				  uint32_t first, uint32_t count, cudaStream_t stream)
{
	LAUNCH(reach_attach_kernel, 1, WARP, 0, stream, *mirror, *batch, *reach, first, count);
	return cudaGetLastError();
}
