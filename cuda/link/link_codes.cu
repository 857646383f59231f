/*
 * link_codes.cu
 *		Rows of the graph from candidates, where codes are measured instead of
 *		stored rows (link_codes.cuh); link_codes_back.cu adds reverse edges. The
 *		rules are those of link_rows.cu.
 *
 *		code_terms_kernel	a warp per row of the mirror: its term. Reads all
 *							codes once
 *		code_choose_kernel	a warp per row of the batch. Sixteen candidates at a
 *							time meet the kept ones, 32 a step, and each other:
 *							products by tensor cores, then bits that say who
 *							hides whom. Shared: kept entries and their terms, a
 *							bit per candidate. Reads every candidate's code
 *							once, the kept ones' again from L1 and L2.
 *		code_order_kernel	a warp per row that these wrote: puts it in the
 *							order of its distances as stored, as all others who
 *							read rows expect. Reads degree stored rows.
 * A row begins with its kept ones. Where distances fall the fill begins; but by
 * codes they may fall where by stored rows they do not. So while a link goes on
 * how many are kept is known of every row that was written here, and of any
 * other is found by distances as stored when it is first opened. Bound: latency
 * of some ten dependent steps a row, hidden by many warps. Launched by link.cu.
 */
#include <math.h>

#include "cuda/link/link_codes.cuh"
#include "cuda/link/link_rows.cuh"

/* --- terms ---------------------------------------------------------------- */

template <int TERM>
__global__ void
__launch_bounds__(LINK_THREADS, 8) code_terms_kernel(const MirrorView mirror, int32_t *terms)
{
	uint32_t lane = threadIdx.x % WARP;

#pragma unroll 1
	for (uint32_t slot = blockIdx.x * LINK_WARPS + threadIdx.x / WARP; slot < mirror.rows;
		 slot += gridDim.x * LINK_WARPS)
	{
		const int *row = (const int *) code_row(mirror, slot);
		float offsets = 0;
		int squares = 0;

		for (uint32_t word = lane; word < mirror.code_stride / 4; word += WARP)
		{
			int codes = __ldcg(row + word);

			if (TERM == TERM_SQUARE)
				squares = __dp4a(codes, codes, squares);
			else
				for (uint32_t j = 0; j < 4 && word * 4 + j < mirror.dims; j++)
					offsets += (float) (signed char) (codes >> (8 * j)) *
							   (mirror.code_offsets[word * 4 + j] * mirror.code_steps);
		}
		for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		{
			squares += __shfl_xor_sync(FULL_WARP, squares, (int) distance);
			offsets += __shfl_xor_sync(FULL_WARP, offsets, (int) distance);
		}
		if (lane == 0)
			terms[slot] = TERM == TERM_SQUARE ? squares : -(int) rintf(offsets);
	}
}

/* --- choosing a row's neighbours ------------------------------------------ */

/* Sixteen candidates: lane l has that of l % 16. */
struct Sixteen
{
	LinkEntry entry;
	uint32_t slot;
	int term;
	int hiding_term; /* with its margin, where it may hide others */
	bool open; /* eligible, and hidden by no kept one so far */
	TileRows rows;
	uint32_t hiders; /* a bit for each of the sixteen that would hide this one */
	uint32_t near;	 /* a bit for each of the sixteen that codes do not tell from the row itself; in
					  * every lane */
};

template <int TERM>
__device__ static inline Sixteen
take_sixteen(const MirrorView &mirror, const LinkBatch &batch, const LinkChoice &choice,
			 uint32_t base)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t i = base + lane % TILE_ROWS;
	Sixteen tile;

	tile.open = i < choice.ncandidates;
	tile.entry = tile.open ? choice.candidates[i] : 0;
	tile.slot = tile.open ? link_slot(tile.entry) : choice.self;
	tile.open = tile.open && is_eligible(mirror, choice, tile.entry);
	tile.term = batch.code_terms[tile.slot];
	tile.hiding_term = tile.term + code_margin<TERM>(mirror, choice.self, tile.slot);
	tile.hiders = 0;
	tile.near =
		__ballot_sync(FULL_WARP, tile.open && link_key_of(tile.entry) == choice.equal_key + 1) &
		0xFFFF;
#pragma unroll
	for (uint32_t h = 0; h < 2; h++)
	{
		int from = (int) (8 * h + lane / 4);

		tile.rows.slots[h] = __shfl_sync(FULL_WARP, tile.slot, from);
		tile.rows.terms[h] = __shfl_sync(FULL_WARP, tile.term, from);
		tile.rows.keys[h] = __shfl_sync(FULL_WARP, link_key_of(tile.entry), from);
	}
	return tile;
}

/*
 * Let the sixteen meet kept ones from a place on, and each other if OWN.
 * Whether near ones hide one another is_near_hidden() says.
 */
template <int TERM, bool OWN>
__device__ static inline void
meet_kept_codes(const MirrorView &mirror, const LinkChoice &choice, const int *kept_terms,
				uint32_t first, Sixteen *tile)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t columns[COLUMN_TILES];
	int sums[COLUMN_TILES + 2][4];
	bool hides[2] = {false, false};
	uint32_t hidden[2];

#pragma unroll
	for (uint32_t n = 0; n < COLUMN_TILES; n++)
	{
		uint32_t j = first + 8 * n + lane / 4;

		columns[n] = j < choice.count ? link_slot(choice.kept[j]) : choice.self;
	}
	code_products<COLUMN_TILES, OWN>(mirror, tile->rows.slots, columns, sums);
#pragma unroll
	for (uint32_t n = 0; n < COLUMN_TILES; n++)
#pragma unroll
		for (uint32_t c = 0; c < 4; c++)
		{
			uint32_t j = first + 8 * n + 2 * (lane % 4) + c % 2;

			if (j < choice.count &&
				code_key<TERM>(tile->rows.terms[c / 2], kept_terms[j], sums[n][c]) <
					tile->rows.keys[c / 2] &&
				!(tile->rows.keys[c / 2] == choice.equal_key + 1 &&
				  link_key_of(choice.kept[j]) == choice.equal_key + 1))
				hides[c / 2] = true;
		}
	hidden[0] = __ballot_sync(FULL_WARP, hides[0]);
	hidden[1] = __ballot_sync(FULL_WARP, hides[1]);
	if (((lane % TILE_ROWS < 8 ? hidden[0] : hidden[1]) >> (lane % 8 * 4) & 15) != 0)
		tile->open = false;
#pragma unroll
	for (uint32_t n = 0; OWN && n < 2; n++)
	{
		int terms[2] = {
			__shfl_sync(FULL_WARP, tile->hiding_term, (int) (8 * n + 2 * (lane % 4))),
			__shfl_sync(FULL_WARP, tile->hiding_term, (int) (8 * n + 2 * (lane % 4) + 1))};
		bool is[4];

#pragma unroll
		for (uint32_t c = 0; c < 4; c++)
			is[c] = code_key<TERM>(tile->rows.terms[c / 2], terms[c % 2],
								   sums[COLUMN_TILES + n][c]) < tile->rows.keys[c / 2];
		tile->hiders |= row_of_bits(is, lane % TILE_ROWS) << (8 * n);
	}
	if (OWN && (tile->near >> (lane % TILE_ROWS) & 1))
		tile->hiders &= ~tile->near;
}

/*
 * Whether a neighbour hides a slot, which has this key, by distances as stored.
 * Whole warps.
 */
template <typename T, int TERM>
__device__ static inline bool
hides_as_stored(const MirrorView &mirror, uint32_t self, uint32_t neighbour, uint32_t slot,
				uint32_t key)
{
	uint32_t between = pair_key<T, TERM>(mirror, slot, neighbour, true, fast_team(mirror.stride));

	return hiding_key<TERM>(mirror, self, neighbour, between) < key;
}

/*
 * Whether a kept one that codes do not tell from the row hides one of the
 * sixteen that they do not tell from it either: by distances as stored. By
 * codes any of them would hide all others, and nothing would lead to these.
 */
template <typename T, int TERM>
__device__ static inline bool
is_near_hidden(const MirrorView &mirror, const LinkChoice &choice, const Sixteen &tile,
			   uint32_t taken, uint32_t i)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t slot = __shfl_sync(FULL_WARP, tile.slot, (int) i);
	uint32_t key = pair_key<T, TERM>(mirror, choice.self, slot, true, fast_team(mirror.stride));

	for (uint32_t base = choice.nequals; base < choice.count; base += WARP)
	{
		LinkEntry kept = base + lane < choice.count ? choice.kept[base + lane] : 0;
		uint32_t near = __ballot_sync(FULL_WARP, base + lane < choice.count &&
													 link_key_of(kept) == choice.equal_key + 1);

		for (; near != 0; near &= near - 1)
			if (hides_as_stored<T, TERM>(
					mirror, choice.self,
					__shfl_sync(FULL_WARP, link_slot(kept), __ffs((int) near) - 1), slot, key))
				return true;
	}
	for (uint32_t near = taken & tile.near; near != 0; near &= near - 1)
		if (hides_as_stored<T, TERM>(mirror, choice.self,
									 __shfl_sync(FULL_WARP, tile.slot, __ffs((int) near) - 1), slot,
									 key))
			return true;
	return false;
}

/* Of the sixteen, take those that none hides, nearest first. */
template <typename T, int TERM>
__device__ static inline void
take_open(const MirrorView &mirror, const Sixteen &tile, uint32_t base, int *kept_terms,
		  LinkChoice *choice)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t open = __ballot_sync(FULL_WARP, tile.open) & 0xFFFF;
	uint32_t taken = 0;
	uint32_t room = choice->room - choice->count;

	while (open != 0 && (uint32_t) __popc(taken) < room)
	{
		uint32_t i = (uint32_t) __ffs((int) open) - 1;

		open &= ~(1u << i);
		if ((tile.near >> i & 1) && is_near_hidden<T, TERM>(mirror, *choice, tile, taken, i))
			continue;
		taken |= 1u << i;
		open &= ~__ballot_sync(FULL_WARP, tile.hiders >> i & 1);
	}
	if (lane < TILE_ROWS && (taken >> lane & 1))
	{
		uint32_t place = choice->count + (uint32_t) __popc(taken & ((1u << lane) - 1));

		choice->kept[place] = tile.entry;
		kept_terms[place] = tile.hiding_term;
	}
	if (lane == 0)
		choice->taken[base / 32] |= taken << (base % 32);
	choice->count += (uint32_t) __popc(taken);
	__syncwarp();
}

/* Take those that no kept one hides, nearest first. */
template <typename T, int TERM>
__device__ static inline void
choose_spread_codes(const MirrorView &mirror, const LinkBatch &batch, int *kept_terms,
					LinkChoice *choice)
{
#pragma unroll 1
	for (uint32_t base = 0; base < choice->ncandidates && choice->count < choice->room;
		 base += TILE_ROWS)
	{
		Sixteen tile = take_sixteen<TERM>(mirror, batch, *choice, base);

		meet_kept_codes<TERM, true>(mirror, *choice, kept_terms, choice->nequals, &tile);
#pragma unroll 1
		for (uint32_t first = choice->nequals + TILE_COLUMNS; first < choice->count;
			 first += TILE_COLUMNS)
			meet_kept_codes<TERM, false>(mirror, *choice, kept_terms, first, &tile);
		take_open<T, TERM>(mirror, tile, base, kept_terms, choice);
	}
}

template <typename T, int TERM>
__global__ void
__launch_bounds__(LINK_THREADS, LINK_CODE_BLOCKS)
	code_choose_kernel(const MirrorView mirror, const LinkBatch batch, uint32_t first, uint32_t end,
					   uint32_t warp_bytes)
{
	DYNAMIC_SHARED(memory);
	LinkChoice choice;
	int *kept_terms;

	choice.kept = (LinkEntry *) (memory + threadIdx.x / WARP * warp_bytes);
	kept_terms = (int *) (choice.kept + mirror.degree);
	choice.taken = (uint32_t *) (kept_terms + mirror.degree);
#pragma unroll 1
	for (uint32_t turn = first + blockIdx.x * LINK_WARPS + threadIdx.x / WARP; turn < end;
		 turn += gridDim.x * LINK_WARPS)
	{
		uint32_t item = link_item(batch, turn);

		choice.candidates = batch.candidates + (size_t) item * batch.room;
		choice.ncandidates = batch.ncandidates[item];
		choice.self = batch.slots[item];
		choice.equal_key = code_equal_key<TERM>(mirror, batch, choice.self);
		choice.nequals = choice.count = 0;
		for (uint32_t i = threadIdx.x % WARP; i < (batch.room + 31) / 32; i += WARP)
			choice.taken[i] = 0;
		__syncwarp();
		choose_duplicates(mirror, batch, batch.equals + (size_t) item * LINK_EQUALS, &choice);
		choose_spread_codes<T, TERM>(mirror, batch, kept_terms, &choice);
		choice.nkept = choice.farthest = choice.count;
		if (threadIdx.x % WARP == 0)
			batch.kept_counts[choice.self] = (uint8_t) choice.nkept;
		fill_row<T, TERM>(mirror, &choice);
		write_choice(mirror, batch, choice, item);
		__syncwarp();
	}
}

/* --- the order of rows ---------------------------------------------------- */

/*
 * Put a row in the order of its distances as stored, kept ones and fill apart.
 * One warp.
 */
template <typename T, int TERM>
__device__ static inline void
order_row(const MirrorView &mirror, const LinkBatch &batch, uint32_t slot, uint32_t kept,
		  LinkEntry *entries, uint32_t *slots, uint32_t *keys)
{
	uint32_t count = load_row(mirror, batch, slot, slots);

	kept = kept < count ? kept : count;
	stored_keys<T, TERM>(mirror, slot, slots, count, keys);
	sort_entries(keys, NULL, 0, kept, entries);
	sort_entries(keys, NULL, kept, count - kept, entries + kept);
	for (uint32_t i = threadIdx.x % WARP; i < count; i += WARP)
		batch.graph[(size_t) slot * mirror.degree + i] =
			slots[link_slot(entries[i < kept ? i : fill_place(i, kept, count - 1)])];
	if (threadIdx.x % WARP == 0)
		batch.kept_counts[slot] = LINK_UNKNOWN;
	__syncwarp();
}

template <typename T, int TERM>
__global__ void
__launch_bounds__(LINK_THREADS, 8)
	code_order_kernel(const MirrorView mirror, const LinkBatch batch, uint32_t first, uint32_t end,
					  uint32_t warp_bytes)
{
	DYNAMIC_SHARED(memory);
	LinkEntry *entries = (LinkEntry *) (memory + threadIdx.x / WARP * warp_bytes);
	uint32_t *slots = (uint32_t *) (entries + mirror.degree);

#pragma unroll 1
	for (uint32_t slot = first + blockIdx.x * LINK_WARPS + threadIdx.x / WARP; slot < end;
		 slot += gridDim.x * LINK_WARPS)
	{
		uint32_t kept = __shfl_sync(FULL_WARP, (uint32_t) batch.kept_counts[slot], 0);

		/*
		 * a row that was chosen, but not written because the link was
		 * cancelled, is left as it is
		 */
		if (kept != LINK_UNKNOWN && bit_of(batch.changed, slot))
			order_row<T, TERM>(mirror, batch, slot, kept, entries, slots, slots + mirror.degree);
	}
}

/* --- the host's part ------------------------------------------------------ */

typedef void (*TermsKernel)(const MirrorView, int32_t *);
typedef void (*RowsKernel)(const MirrorView, const LinkBatch, uint32_t, uint32_t, uint32_t);

#define CHOOSE_KERNEL(T, TERM) code_choose_kernel<T, TERM>
#define ORDER_KERNEL(T, TERM) code_order_kernel<T, TERM>

static const TermsKernel terms_kernels[2] = {code_terms_kernel<TERM_PRODUCT>,
											 code_terms_kernel<TERM_SQUARE>};
static const RowsKernel choose_kernels[CODED_PAIRS_COUNT] = CODED_PAIRS(CHOOSE_KERNEL);
static const RowsKernel order_kernels[CODED_PAIRS_COUNT] = CODED_PAIRS(ORDER_KERNEL);

/* Shared memory of a warp, for each kernel. */
static uint32_t
choose_bytes(uint32_t degree, uint32_t room)
{
	return (uint32_t) round_up(
		degree * (sizeof(LinkEntry) + sizeof(int)) + (room + 31) / 32 * sizeof(uint32_t), 16);
}

static uint32_t
order_bytes(uint32_t degree)
{
	return (uint32_t) round_up(degree * (sizeof(LinkEntry) + 2 * sizeof(uint32_t)), 16);
}

cudaError_t
link_codes_prepare(size_t shared_room)
{
	cudaError_t error = allow_shared(choose_kernels, shared_room);

	if (error == cudaSuccess)
		error = allow_shared(order_kernels, shared_room);
	return error == cudaSuccess ? link_back_codes_prepare(shared_room) : error;
}

bool
link_codes_serve(const MirrorView *mirror, const float *offsets)
{
	double sum = 0;

	if (mirror->code_stride == 0 || mirror->code_scales != NULL || mirror->metric == METRIC_L1 ||
		mirror->type == ELEMENT_BIT || !(mirror->code_steps > 0))
		return false;
	for (uint32_t i = 0; i < mirror->dims && mirror->metric != METRIC_L2; i++)
		sum += fabs((double) offsets[i] * mirror->code_steps) * 127;
	return sum < (1 << 28) && (uint64_t) mirror->dims * 127 * 127 < (1 << 28);
}

cudaError_t
link_terms_launch(const MirrorView *mirror, int32_t *terms, uint32_t blocks, cudaStream_t stream)
{
	LAUNCH(terms_kernels[mirror->metric == METRIC_L2], blocks, LINK_THREADS, 0, stream, *mirror,
		   terms);
	return cudaGetLastError();
}

cudaError_t
link_choose_codes_launch(const MirrorView *mirror, const LinkBatch *batch, CudaLinkPart part,
						 cudaStream_t stream)
{
	uint32_t bytes = choose_bytes(mirror->degree, batch->room);

	LAUNCH(choose_kernels[coded_pair(mirror)], blocks_of_part(part), LINK_THREADS,
		   LINK_WARPS * bytes, stream, *mirror, *batch, part.first, part.first + part.count, bytes);
	return cudaGetLastError();
}

cudaError_t
link_order_launch(const MirrorView *mirror, const LinkBatch *batch, CudaLinkPart part,
				  cudaStream_t stream)
{
	uint32_t bytes = order_bytes(mirror->degree);

	LAUNCH(order_kernels[coded_pair(mirror)], blocks_of_part(part), LINK_THREADS,
		   LINK_WARPS * bytes, stream, *mirror, *batch, part.first, part.first + part.count, bytes);
	return cudaGetLastError();
}
