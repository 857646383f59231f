/*
 * link_rows.cu
 *		Rows of the graph from candidates, and reverse edges.
 *
 *		link_choose_kernel	a warp per row of the batch. prune.c's rule:
 *							duplicates first, then in order of distance whatever
 *							no kept one is nearer to than the row is, then the
 *							nearest of the others. A candidate meets the kept
 *							ones in a few steps, a team of lanes per pair.
 *							Shared: kept entries, a bit per candidate. Reads
 *							some ten rows per candidate, from L1 and L2 mostly.
 *							Writes chosen slots, and a reverse edge for each:
 *							(target, distance), source.
 *		link_write_kernel	a warp per row: the chosen slots to the graph
 *		link_turns_kernel	one block: rows of a batch by regions, a counting
 *							sort. Rows of a region read the same rows, which L2
 *							then has
 *		link_heads_kernel	a thread per edge, after a sort of the edges by
 *							target and distance: where each target's edges
 *							begin, by regions too; a launch counts, one warp
 *							(link_places_kernel) makes places of the counts, a
 *							launch writes
 *		link_back_kernel	a warp per target: its row is opened into kept ones
 *							and fill, takes in the nearest newcomers one by one,
 *							and is written. prune_incremental.c's rule. Shared:
 *							the row, slots and keys. Reads degree + newcomers x
 *							kept rows.
 *		link_gather_kernel	a warp per row: graph rows to a contiguous place
 * Bound: latency of dependent steps in a warp, hidden by many warps. Launched
 * by link.cu.
 */
#include "cuda/link/link_rows.cuh"

#define TURN_THREADS 1024u

/* --- choosing a row's neighbours ------------------------------------------ */

/*
 * Whether a kept one is nearer to a slot than `key`: one that is as near does
 * not hide. Duplicates of the row hide nobody.
 */
template <typename T, int TERM>
__device__ static inline bool
is_hidden(const MirrorView &mirror, const LinkChoice &choice, uint32_t slot, uint32_t key)
{
	uint32_t team = fast_team(mirror.stride);
	uint32_t lane = threadIdx.x % WARP;
	uint32_t hides = 0;

#pragma unroll 1
	for (uint32_t base = choice.nequals; base < choice.count && hides == 0;
		 base += 2 * (WARP / team))
	{
		uint32_t first = base + lane / team;
		uint32_t second = first + WARP / team;
		bool has[2] = {first < choice.count, second < choice.count};
		uint32_t others[2] = {has[0] ? link_slot(choice.kept[first]) : 0,
							  has[1] ? link_slot(choice.kept[second]) : 0};
		uint32_t keys[2];

		pair_keys<T, TERM, 2>(mirror, slot, others, has, team, keys);
		for (uint32_t r = 0; r < 2; r++)
			keys[r] = hiding_key<TERM>(mirror, choice.self, others[r], keys[r]);
		hides = __ballot_sync(FULL_WARP, (has[0] && keys[0] < key) || (has[1] && keys[1] < key));
	}
	return hides != 0;
}

/* Take those that no kept one hides, nearest first. */
template <typename T, int TERM>
__device__ static inline void
choose_spread(const MirrorView &mirror, LinkChoice *choice)
{
#pragma unroll 1
	for (uint32_t i = 0; i < choice->ncandidates && choice->count < choice->room; i++)
	{
		LinkEntry entry = choice->candidates[i];

		if (!is_eligible(mirror, *choice, entry) ||
			is_hidden<T, TERM>(mirror, *choice, link_slot(entry), link_key_of(entry)))
			continue;
		if (threadIdx.x % WARP == 0)
		{
			choice->kept[choice->count] = entry;
			choice->taken[i / 32] |= 1u << (i % 32);
		}
		choice->count++;
		__syncwarp();
	}
}

/*
 * What of a repaired row's candidates may fill it: 0, one of its own that is
 * hidden; 1, another; 2, a copy of the one before; 3, none.
 */
__device__ static inline uint32_t
fill_rank(const MirrorView &mirror, const LinkChoice &choice, uint32_t i)
{
	LinkEntry entry = i < choice.ncandidates ? choice.candidates[i] : 0;

	if (i >= choice.ncandidates || (choice.taken[i / 32] >> (i % 32) & 1) ||
		!is_eligible(mirror, choice, entry))
		return 3;
	return entry & 1															  ? 0
		   : i > 0 && link_key_of(choice.candidates[i - 1]) == link_key_of(entry) ? 2
																				  : 1;
}

/*
 * Fill the places left in a row that is repaired: with its own, the farthest if
 * these are too many, as a far one may be the only way to where it leads; then
 * as choose_fill() does. In order of distance.
 */
__device__ static inline void
choose_own_fill(const MirrorView &mirror, LinkChoice *choice)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t left = mirror.degree - choice->count;
	uint32_t totals[3] = {0, 0, 0};
	uint32_t met[3] = {0, 0, 0};
	uint32_t from[3],
		to[3];

	for (uint32_t base = 0; base < choice->ncandidates; base += WARP)
	{
		uint32_t rank = fill_rank(mirror, *choice, base + lane);

		for (uint32_t r = 0; r < 3; r++)
			totals[r] += (uint32_t) __popc(__ballot_sync(FULL_WARP, rank == r));
	}
	for (uint32_t r = 0; r < 3; r++)
	{
		uint32_t some = totals[r] < left ? totals[r] : left;

		from[r] = r == 0 ? totals[r] - some : 0;
		to[r] = from[r] + some;
		left -= some;
	}
	for (uint32_t base = 0; base < choice->ncandidates; base += WARP)
	{
		uint32_t rank = fill_rank(mirror, *choice, base + lane);
		bool has = false;
		uint32_t ballot;

		for (uint32_t r = 0; r < 3; r++)
		{
			uint32_t of_rank = __ballot_sync(FULL_WARP, rank == r);
			uint32_t place = met[r] + (uint32_t) __popc(of_rank & ((1u << lane) - 1));

			has = has || (rank == r && place >= from[r] && place < to[r]);
			met[r] += (uint32_t) __popc(of_rank);
		}
		ballot = __ballot_sync(FULL_WARP, has);
		if (has)
			choice->kept[choice->count + (uint32_t) __popc(ballot & ((1u << lane) - 1))] =
				choice->candidates[base + lane];
		choice->count += (uint32_t) __popc(ballot);
	}
	choice->farthest = choice->count > choice->nkept ? choice->count - 1 : choice->nkept;
	__syncwarp();
}

/* Choose one row's neighbours. One warp. */
template <typename T, int TERM>
__device__ static inline void
choose_for_row(const MirrorView &mirror, const LinkBatch &batch, unsigned char *memory,
			   uint32_t item)
{
	LinkChoice choice;

	choice.kept = (LinkEntry *) memory;
	choice.taken = (uint32_t *) (choice.kept + mirror.degree);
	choice.candidates = batch.candidates + (size_t) item * batch.room;
	choice.ncandidates = batch.ncandidates[item];
	choice.self = batch.slots[item];
	choice.equal_key =
		pair_key<T, TERM>(mirror, choice.self, choice.self, true, fast_team(mirror.stride));
	choice.nequals = choice.count = 0;
	for (uint32_t i = threadIdx.x % WARP; i < (batch.room + 31) / 32; i += WARP)
		choice.taken[i] = 0;
	__syncwarp();
	choose_duplicates(mirror, batch, batch.equals + (size_t) item * LINK_EQUALS, &choice);
	choose_spread<T, TERM>(mirror, &choice);
	choice.nkept = choice.farthest = choice.count;
	if (batch.repairs)
		choose_own_fill(mirror, &choice);
	else
		fill_row<T, TERM>(mirror, &choice);
	write_choice(mirror, batch, choice, item);
	__syncwarp();
}

template <typename T, int TERM>
__global__ void
__launch_bounds__(LINK_THREADS, 8)
	link_choose_kernel(const MirrorView mirror, const LinkBatch batch, uint32_t first, uint32_t end,
					   uint32_t warp_bytes)
{
	DYNAMIC_SHARED(memory);
	uint32_t warp = threadIdx.x / WARP;

#pragma unroll 1
	for (uint32_t turn = first + blockIdx.x * LINK_WARPS + warp; turn < end;
		 turn += gridDim.x * LINK_WARPS)
		choose_for_row<T, TERM>(mirror, batch, memory + warp * warp_bytes, link_item(batch, turn));
}

/* --- rows and groups ------------------------------------------------------ */

/*
 * Make places of counts, one for each region; returns their sum, in every lane.
 * One warp.
 */
__device__ static inline uint32_t
places_of_counts(uint32_t *counts)
{
	uint32_t before = 0;

	for (uint32_t base = 0; base < LINK_REGIONS; base += WARP)
	{
		uint32_t lane = threadIdx.x % WARP;
		uint32_t count = counts[base + lane];
		uint32_t sum = count;

		for (uint32_t distance = 1; distance < WARP; distance *= 2)
		{
			uint32_t other = __shfl_sync(FULL_WARP, sum, (int) ((lane - distance) % WARP));

			sum += lane >= distance ? other : 0;
		}
		counts[base + lane] = before + sum - count;
		before += __shfl_sync(FULL_WARP, sum, WARP - 1);
	}
	return before;
}

__global__ void __launch_bounds__(TURN_THREADS) link_turns_kernel(const LinkBatch batch)
{
	__shared__ uint32_t places[LINK_REGIONS];

	if (threadIdx.x < LINK_REGIONS)
		places[threadIdx.x] = 0;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < batch.count; i += TURN_THREADS)
		atomicAdd(&places[batch.near[i] % LINK_REGIONS], 1u);
	__syncthreads();
	if (threadIdx.x < WARP)
		places_of_counts(places);
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < batch.count; i += TURN_THREADS)
	{
		uint32_t region = batch.near[i] % LINK_REGIONS;

		batch.turns[atomicAdd(&places[region], 1u)] = i;
		batch.regions[batch.slots[i]] = (uint8_t) region;
	}
}

__global__ void
__launch_bounds__(LINK_THREADS) link_write_kernel(const LinkBatch batch, uint32_t degree)
{
	uint32_t item = blockIdx.x * LINK_WARPS + threadIdx.x / WARP;
	uint32_t slot;

	if (item >= batch.count)
		return;
	slot = batch.slots[item];
	for (uint32_t i = threadIdx.x % WARP; i < degree; i += WARP)
		batch.graph[(size_t) slot * degree + i] = batch.chosen[(size_t) item * degree + i];
	if (threadIdx.x % WARP == 0)
		mark_changed(batch, slot);
}

/* Count the groups of each region, or (WRITE) note where they begin. */
template <bool WRITE>
__global__ void
__launch_bounds__(LINK_THREADS) link_heads_kernel(const LinkBatch batch, uint32_t edges)
{
	__shared__ uint32_t places[LINK_REGIONS];
	uint32_t i = blockIdx.x * LINK_THREADS + threadIdx.x;
	bool is_head = i < edges && batch.edge_keys[i] != LINK_NO_ENTRY &&
				   (i == 0 || batch.edge_keys[i - 1] >> 32 != batch.edge_keys[i] >> 32);
	uint32_t region = is_head ? batch.regions[batch.edge_sources[i]] : 0;
	uint32_t own = 0;

	for (uint32_t r = threadIdx.x; r < LINK_REGIONS; r += LINK_THREADS)
		places[r] = 0;
	__syncthreads();
	if (is_head)
		own = atomicAdd(&places[region], 1u);
	__syncthreads();
	for (uint32_t r = threadIdx.x; r < LINK_REGIONS; r += LINK_THREADS)
		if (places[r] > 0)
			places[r] = atomicAdd(&batch.group_places[r], places[r]);
	__syncthreads();
	if (WRITE && is_head)
		batch.groups[places[region] + own] = i;
}

__global__ void __launch_bounds__(WARP) link_places_kernel(const LinkBatch batch)
{
	uint32_t groups = places_of_counts(batch.group_places);

	if (threadIdx.x == 0)
		*batch.ngroups = groups;
}

__global__ void __launch_bounds__(LINK_THREADS, 8)
	link_gather_kernel(const MirrorView mirror, const uint32_t *slots, uint32_t count, uint32_t *to)
{
	uint32_t i = blockIdx.x * LINK_WARPS + threadIdx.x / WARP;

	if (i >= count)
		return;
	for (uint32_t j = threadIdx.x % WARP; j < mirror.degree; j += WARP)
		to[(size_t) i * mirror.degree + j] = mirror.graph[(size_t) slots[i] * mirror.degree + j];
}

/* --- reverse edges -------------------------------------------------------- */

/*
 * Read a row: kept ones and fill. Slots and keys are room for `degree` of each.
 */
template <typename T, int TERM>
__device__ static inline void
open_row(const MirrorView &mirror, const LinkBatch &batch, uint32_t *slots, uint32_t *keys,
		 OpenedRow *row)
{
	uint32_t count = load_row(mirror, batch, row->target, slots);

	stored_keys<T, TERM>(mirror, row->target, slots, count, keys);
	row->nkept = kept_by_keys(keys, count);
	row->nfill = count - row->nkept;
	sort_entries(keys, slots, 0, row->nkept, row->kept);
	sort_entries(keys, slots, row->nkept, row->nfill, row->fill);
}

/*
 * Compare a newcomer with kept ones [base, ...), two for each team: which of
 * those hide it, and which of them it hides.
 */
template <typename T, int TERM>
__device__ static inline bool
meet_kept(const MirrorView &mirror, const OpenedRow &row, LinkEntry entry, uint32_t base)
{
	uint32_t team = fast_team(mirror.stride);
	uint32_t lane = threadIdx.x % WARP;
	LinkEntry others[2];
	uint32_t slots[2],
		keys[2];
	bool has[2];
	bool hidden = false;

#pragma unroll
	for (uint32_t r = 0; r < 2; r++)
	{
		uint32_t i = base + r * (WARP / team) + lane / team;

		others[r] = i < row.nkept ? row.kept[i] : 0;
		has[r] = i < row.nkept && link_key_of(others[r]) != row.equal_key;
		slots[r] = link_slot(others[r]);
	}
	pair_keys<T, TERM, 2>(mirror, link_slot(entry), slots, has, team, keys);
	__syncwarp();
#pragma unroll
	for (uint32_t r = 0; r < 2; r++)
	{
		bool before = others[r] < entry;
		uint32_t key =
			hiding_key<TERM>(mirror, row.target, before ? slots[r] : link_slot(entry), keys[r]);

		if (has[r] && !before && lane % team == 0 && key < link_key_of(others[r]))
			row.kept[base + r * (WARP / team) + lane / team] = others[r] | 1;
		hidden = hidden || (has[r] && before && key < link_key_of(entry));
	}
	__syncwarp();
	return __ballot_sync(FULL_WARP, hidden) != 0;
}

/* Take in another that is not equal to the target. */
template <typename T, int TERM>
__device__ static inline void
take_other(const MirrorView &mirror, OpenedRow *row, LinkEntry entry)
{
	bool hidden = false;

#pragma unroll 1
	for (uint32_t base = 0; base < row->nkept && !hidden;
		 base += 2 * (WARP / fast_team(mirror.stride)))
		hidden = meet_kept<T, TERM>(mirror, *row, entry, base);
	settle_kept(row, hidden);
	if (hidden)
		insert_entry(row->fill, &row->nfill, entry);
	else
		insert_entry(row->kept, &row->nkept, entry);
}

/* Take in one more neighbour, dropping another where the row overflows. */
template <typename T, int TERM>
__device__ static inline void
link_take_in(const MirrorView &mirror, const LinkBatch &batch, OpenedRow *row, LinkEntry entry)
{
	if (link_key_of(entry) == row->equal_key)
		take_duplicate(batch, row, entry);
	else if (!has_like<T, TERM>(mirror, *row, entry))
		take_other<T, TERM>(mirror, row, entry);
	drop_surplus(mirror, row);
}

/*
 * Take in the newcomers of a group, nearest first, LINK_NEWCOMERS at most.
 * Copies of the one before are left out, and duplicates of the target do not
 * count: a crowd of equal rows in one batch would leave no place for anybody
 * else.
 */
template <typename T, int TERM>
__device__ static inline void
take_newcomers(const MirrorView &mirror, const LinkBatch &batch, uint32_t first, uint32_t edges,
			   OpenedRow *row)
{
#pragma unroll 1
	for (uint32_t i = first, met = 0; i < edges && met < LINK_NEWCOMERS(mirror.degree); i++)
	{
		LinkEntry key = batch.edge_keys[i];
		uint32_t source = batch.edge_sources[i];
		bool duplicate = (uint32_t) key == row->equal_key;

		if ((uint32_t) (key >> 32) != row->target)
			break;
		if (!duplicate && i > first && batch.edge_keys[i - 1] == key &&
			are_copies<T, TERM>(mirror, source, batch.edge_sources[i - 1]))
			continue;
		met += !duplicate;
		if (!has_entry(row->kept, row->nkept, source) && !has_entry(row->fill, row->nfill, source))
			link_take_in<T, TERM>(mirror, batch, row, key << 32 | (LinkEntry) (source << 1));
	}
}

template <typename T, int TERM>
__global__ void
__launch_bounds__(LINK_THREADS, 8)
	link_back_kernel(const MirrorView mirror, const LinkBatch batch, uint32_t edges,
					 uint32_t part_from, uint32_t part_to, uint32_t warp_bytes)
{
	DYNAMIC_SHARED(memory);
	uint32_t ngroups = *batch.ngroups;
	uint32_t from = (uint32_t) ((uint64_t) ngroups * part_from / edges);
	uint32_t to = (uint32_t) ((uint64_t) ngroups * part_to / edges);
	OpenedRow row;
	uint32_t *slots;

	row.kept = (LinkEntry *) (memory + threadIdx.x / WARP * warp_bytes);
	row.fill = row.kept + mirror.degree + 1;
	slots = (uint32_t *) (row.fill + mirror.degree + 1);
	row.names = NULL;
#pragma unroll 1
	for (uint32_t group = from + blockIdx.x * LINK_WARPS + threadIdx.x / WARP; group < to;
		 group += gridDim.x * LINK_WARPS)
	{
		uint32_t first = batch.groups[group];

		row.target = (uint32_t) (batch.edge_keys[first] >> 32);
		row.equal_key =
			pair_key<T, TERM>(mirror, row.target, row.target, true, fast_team(mirror.stride));
		open_row<T, TERM>(mirror, batch, slots, slots + mirror.degree, &row);
		take_newcomers<T, TERM>(mirror, batch, first, edges, &row);
		link_close_row(mirror, batch, row);
	}
}

/* --- the host's part ------------------------------------------------------ */

typedef void (*ChooseKernel)(const MirrorView, const LinkBatch, uint32_t, uint32_t, uint32_t);
typedef void (*BackKernel)(const MirrorView, const LinkBatch, uint32_t, uint32_t, uint32_t,
						   uint32_t);

#define CHOOSE_KERNEL(T, TERM) link_choose_kernel<T, TERM>
#define BACK_KERNEL(T, TERM) link_back_kernel<T, TERM>

static const ChooseKernel choose_kernels[TYPES_AND_TERMS_COUNT] = TYPES_AND_TERMS(CHOOSE_KERNEL);
static const BackKernel back_kernels[TYPES_AND_TERMS_COUNT] = TYPES_AND_TERMS(BACK_KERNEL);

/*
 * Shared memory of a warp that takes reverse edges: the row, its slots and
 * their keys.
 */
static uint32_t
back_bytes(uint32_t degree)
{
	return (uint32_t) round_up(2 * (degree + 1) * sizeof(LinkEntry) + 2 * degree * sizeof(uint32_t),
							   16);
}

/* Shared memory of a warp that chooses. */
static uint32_t
choose_bytes(uint32_t degree, uint32_t room)
{
	return (uint32_t) round_up(degree * sizeof(LinkEntry) + (room + 31) / 32 * sizeof(uint32_t),
							   16);
}

cudaError_t
link_rows_prepare(size_t shared_room)
{
	cudaError_t error = allow_shared(choose_kernels, shared_room);

	return error == cudaSuccess ? allow_shared(back_kernels, shared_room) : error;
}

cudaError_t
link_choose_launch(const MirrorView *mirror, const LinkBatch *batch, CudaLinkPart part,
				   cudaStream_t stream)
{
	uint32_t bytes = choose_bytes(mirror->degree, batch->room);

	LAUNCH(choose_kernels[type_and_term(mirror->type, mirror->metric)], blocks_of_part(part),
		   LINK_THREADS, LINK_WARPS * bytes, stream, *mirror, *batch, part.first,
		   part.first + part.count, bytes);
	return cudaGetLastError();
}

cudaError_t
link_write_launch(const MirrorView *mirror, const LinkBatch *batch, cudaStream_t stream)
{
	LAUNCH(link_write_kernel, blocks_of_warps(batch->count), LINK_THREADS, 0, stream, *batch,
		   mirror->degree);
	return cudaGetLastError();
}

cudaError_t
link_group_launch(const LinkBatch *batch, uint32_t edges, cudaStream_t stream)
{
	cudaError_t error =
		cudaMemsetAsync(batch->group_places, 0, LINK_REGIONS * sizeof(uint32_t), stream);

	if (error != cudaSuccess)
		return error;
	LAUNCH(link_heads_kernel<false>, (edges + LINK_THREADS - 1) / LINK_THREADS, LINK_THREADS, 0,
		   stream, *batch, edges);
	LAUNCH(link_places_kernel, 1, WARP, 0, stream, *batch);
	LAUNCH(link_heads_kernel<true>, (edges + LINK_THREADS - 1) / LINK_THREADS, LINK_THREADS, 0,
		   stream, *batch, edges);
	return cudaGetLastError();
}

cudaError_t
link_turns_launch(const LinkBatch *batch, cudaStream_t stream)
{
	LAUNCH(link_turns_kernel, 1, TURN_THREADS, 0, stream, *batch);
	return cudaGetLastError();
}

cudaError_t
link_back_launch(const MirrorView *mirror, const LinkBatch *batch, CudaLinkPart part,
				 cudaStream_t stream)
{
	uint32_t bytes = back_bytes(mirror->degree);

	LAUNCH(back_kernels[type_and_term(mirror->type, mirror->metric)], blocks_of_part(part),
		   LINK_THREADS, LINK_WARPS * bytes, stream, *mirror, *batch, batch->count * mirror->degree,
		   part.first, part.first + part.count, bytes);
	return cudaGetLastError();
}

cudaError_t
link_gather_launch(const MirrorView *mirror, const uint32_t *slots, uint32_t count, uint32_t *to,
				   cudaStream_t stream)
{
	LAUNCH(link_gather_kernel, blocks_of_warps(count), LINK_THREADS, 0, stream, *mirror, slots,
		   count, to);
	return cudaGetLastError();
}
