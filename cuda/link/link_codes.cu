/*
 * link_codes.cu
 *		Rows of the graph from candidates, and edges back, where codes are
 *		measured instead of stored rows (link_codes.cuh). The rules are those of
 *		link_rows.cu.
 *
 *		code_terms_kernel	a warp per row of the mirror: its term. Reads all
 *							codes once
 *		code_choose_kernel	a warp per row of the batch. Sixteen candidates at a
 *							time meet the kept ones, 32 a step, and each other:
 *							products by tensor cores, then bits that say who
 *							hides whom. Shared: kept entries and their terms, a
 *							bit per candidate. Reads every candidate's code
 *							once, the kept ones' again from L1 and L2.
 *		code_back_kernel	a warp per target. The target and fifteen newcomers
 *							(then sixteen at a time) meet the row and the
 *							newcomers in the same way. Shared: slots, terms and
 *							keys of all of these, bits of a tile, the row. Reads
 *							the codes of a row and its newcomers once.
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

#define TILE_ROWS 16u
#define TILE_COLUMNS 32u
#define COLUMN_TILES 4

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

/*
 * Sixteen candidates: lane l has that of l % 16; rows as code_products has
 * them.
 */
struct Sixteen
{
	LinkEntry entry;
	uint32_t slot;
	int term;
	int hiding_term; /* with its margin, where it may hide others */
	bool open; /* eligible, and hidden by no kept one so far */
	uint32_t rows[2];
	uint32_t row_keys[2];
	int row_terms[2];
	int row_margins[2]; /* of newcomers */
	uint32_t hiders; /* a bit for each of the sixteen that would hide this one */
	uint32_t near;	 /* a bit for each of the sixteen that codes do not tell from the row itself; in
					  * every lane */
};

template <int TERM>
__device__ static inline Sixteen
take_sixteen(const MirrorView &mirror, const LinkBatch &batch, const Choice &choice, uint32_t base)
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

		tile.rows[h] = __shfl_sync(FULL_WARP, tile.slot, from);
		tile.row_terms[h] = __shfl_sync(FULL_WARP, tile.term, from);
		tile.row_keys[h] = __shfl_sync(FULL_WARP, link_key_of(tile.entry), from);
	}
	return tile;
}

/*
 * Let the sixteen meet kept ones from a place on, and each other if OWN.
 * Whether near ones hide one another is_near_hidden() says.
 */
template <int TERM, bool OWN>
__device__ static inline void
meet_kept_codes(const MirrorView &mirror, const Choice &choice, const int *kept_terms,
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
	code_products<COLUMN_TILES, OWN>(mirror, tile->rows, columns, sums);
#pragma unroll
	for (uint32_t n = 0; n < COLUMN_TILES; n++)
#pragma unroll
		for (uint32_t c = 0; c < 4; c++)
		{
			uint32_t j = first + 8 * n + 2 * (lane % 4) + c % 2;

			if (j < choice.count &&
				code_key<TERM>(tile->row_terms[c / 2], kept_terms[j], sums[n][c]) <
					tile->row_keys[c / 2] &&
				!(tile->row_keys[c / 2] == choice.equal_key + 1 &&
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
			is[c] = code_key<TERM>(tile->row_terms[c / 2], terms[c % 2],
								   sums[COLUMN_TILES + n][c]) < tile->row_keys[c / 2];
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
is_near_hidden(const MirrorView &mirror, const Choice &choice, const Sixteen &tile, uint32_t taken,
			   uint32_t i)
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
		  Choice *choice)
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
					Choice *choice)
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
	Choice choice;
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

/* --- edges back ----------------------------------------------------------- */

/*
 * A target and all that meets in its row: columns are its neighbours, then its
 * newcomers.
 */
struct Meeting
{
	uint32_t *slots; /* of columns */
	uint32_t *keys;	 /* of their distances to the target */
	int *terms;
	int *margins; /* of inner products: what a column's term is raised by where it may hide
				   * another */
	uint32_t *bits; /* of a tile: for each of sixteen rows a bit per column that hides it, then one
					 * per column that it hides */
	uint32_t words; /* of a row's bits */
	uint32_t nold;
	uint32_t nnew;
	uint32_t equal_key;
	int target_term;
};

/*
 * Whether an edge back is one too many: from a copy of the source before it, or
 * from one more duplicate of the target than there could be places for. A crowd
 * of equal rows in one batch would leave no column for anybody else. Whole
 * warps: a lane asks for its edge; *duplicates counts those so far.
 */
template <typename T, int TERM>
__device__ static inline bool
is_surplus(const MirrorView &mirror, const LinkBatch &batch, bool has, uint32_t i, uint32_t first,
		   uint32_t equal_key, uint32_t *duplicates)
{
	bool duplicate = has && (uint32_t) batch.edge_keys[i] == equal_key;
	bool tied = has && !duplicate && i > first && batch.edge_keys[i - 1] == batch.edge_keys[i];
	uint32_t all = __ballot_sync(FULL_WARP, duplicate);
	uint32_t before = *duplicates + (uint32_t) __popc(all & ((1u << threadIdx.x % WARP) - 1));
	bool surplus = duplicate && before >= 2 * batch.max_equal;

	for (uint32_t ask = __ballot_sync(FULL_WARP, tied); ask != 0; ask &= ask - 1)
	{
		int from = __ffs((int) ask) - 1;
		uint32_t edge = __shfl_sync(FULL_WARP, i, from);
		bool copies =
			are_copies<T, TERM>(mirror, batch.edge_sources[edge], batch.edge_sources[edge - 1]);

		surplus = surplus || ((int) (threadIdx.x % WARP) == from && copies);
	}
	*duplicates += (uint32_t) __popc(all);
	return surplus;
}

/*
 * Bring a target's neighbours and newcomers here; those that are neighbours
 * already are left out.
 */
template <typename T, int TERM>
__device__ static inline void
gather_columns(const MirrorView &mirror, const LinkBatch &batch, uint32_t target, uint32_t first,
			   uint32_t edges, Meeting *meeting)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t most = LINK_NEWCOMERS(mirror.degree);
	uint32_t same = FULL_WARP;
	uint32_t duplicates = 0;

	meeting->nold = load_row(mirror, batch, target, meeting->slots);
	meeting->nnew = 0;
	for (uint32_t base = first; meeting->nnew < most && same == FULL_WARP; base += WARP)
	{
		uint32_t i = base + lane;
		bool has = i < edges && (uint32_t) (batch.edge_keys[i] >> 32) == target;
		uint32_t source = has ? batch.edge_sources[i] : NO_SLOT;
		bool surplus =
			is_surplus<T, TERM>(mirror, batch, has, i, first, meeting->equal_key, &duplicates);
		uint32_t ballot,
			place;

		same = __ballot_sync(FULL_WARP, has);
		has = has && !surplus;
		for (uint32_t j = 0; j < meeting->nold; j++)
			has = has && meeting->slots[j] != source;
		ballot = __ballot_sync(FULL_WARP, has);
		place = meeting->nnew + (uint32_t) __popc(ballot & ((1u << lane) - 1));
		if (has && place < most)
		{
			meeting->slots[meeting->nold + place] = source;
			meeting->keys[meeting->nold + place] = (uint32_t) batch.edge_keys[i];
		}
		meeting->nnew += (uint32_t) __popc(ballot);
		meeting->nnew = meeting->nnew < most ? meeting->nnew : most;
	}
	__syncwarp();
	for (uint32_t i = lane; i < meeting->nold + meeting->nnew; i += WARP)
	{
		meeting->terms[i] = batch.code_terms[meeting->slots[i]];
		if (TERM == TERM_PRODUCT)
			meeting->margins[i] = code_margin<TERM>(mirror, target, meeting->slots[i]);
	}
	meeting->target_term = batch.code_terms[target];
	__syncwarp();
}

/*
 * Note the keys of the neighbours in 32 columns, from the target's row of the
 * first tile's products.
 */
template <typename T, int TERM>
__device__ static inline void
note_keys(const MirrorView &mirror, uint32_t target, uint32_t exact_key, uint32_t first,
		  const int (*sums)[4], Meeting *meeting)
{
	uint32_t lane = threadIdx.x % WARP;
	bool has = first + lane < meeting->nold;
	uint32_t key = 0;

#pragma unroll
	for (uint32_t n = 0; n < COLUMN_TILES; n++)
#pragma unroll
		for (uint32_t e = 0; e < 2; e++)
		{
			uint32_t j = first + 8 * n + 2 * lane + e;

			if (lane < 4 && j < meeting->nold)
				meeting->keys[j] =
					code_key<TERM>(meeting->target_term, meeting->terms[j], sums[n][e]);
		}
	__syncwarp();
	if (has)
		key = meeting->keys[first + lane];
	key = tell_duplicates<T, TERM>(mirror, target, meeting->equal_key, exact_key, has,
								   has ? meeting->slots[first + lane] : 0, key);
	__syncwarp();
	if (has)
		meeting->keys[first + lane] = key;
	__syncwarp();
}

/*
 * Let the target (in the first tile) and newcomers meet 32 columns: note who
 * hides whom.
 */
template <typename T, int TERM>
__device__ static inline void
meet_columns(const MirrorView &mirror, uint32_t target, uint32_t exact_key, uint32_t tile,
			 uint32_t first, const Sixteen &rows, Meeting *meeting)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t end = meeting->nold + meeting->nnew;
	uint32_t columns[COLUMN_TILES];
	int sums[COLUMN_TILES][4];
	uint32_t hide = 0,
			 hidden = 0;

#pragma unroll
	for (uint32_t n = 0; n < COLUMN_TILES; n++)
	{
		uint32_t j = first + 8 * n + lane / 4;

		columns[n] = j < end ? meeting->slots[j] : target;
	}
	code_products<COLUMN_TILES, false>(mirror, rows.rows, columns, sums);
	if (tile == 0)
		note_keys<T, TERM>(mirror, target, exact_key, first, sums, meeting);
#pragma unroll
	for (uint32_t n = 0; n < COLUMN_TILES; n++)
	{
		bool hides[4],
			is_hidden[4];

#pragma unroll
		for (uint32_t c = 0; c < 4; c++)
		{
			uint32_t j = first + 8 * n + 2 * (lane % 4) + c % 2;
			int term = j < end ? meeting->terms[j] : 0;
			int margin = TERM == TERM_PRODUCT && j < end ? meeting->margins[j] : 0;

			hides[c] = j < end && code_key<TERM>(rows.row_terms[c / 2], term + margin, sums[n][c]) <
									  rows.row_keys[c / 2];
			is_hidden[c] =
				j < end && code_key<TERM>(rows.row_terms[c / 2] + rows.row_margins[c / 2], term,
										  sums[n][c]) < meeting->keys[j];
		}
		hide |= row_of_bits(hides, lane % TILE_ROWS) << (8 * n);
		hidden |= row_of_bits(is_hidden, lane % TILE_ROWS) << (8 * n);
	}
	meeting->bits[lane * meeting->words + first / TILE_COLUMNS] = lane < TILE_ROWS ? hide : hidden;
	__syncwarp();
}

/* The rows of a tile: the target is the first of all, newcomers follow. */
template <int TERM>
__device__ static inline Sixteen
meeting_rows(const Meeting &meeting, uint32_t target, uint32_t tile)
{
	Sixteen rows;

#pragma unroll
	for (uint32_t h = 0; h < 2; h++)
	{
		uint32_t row = tile * TILE_ROWS + 8 * h + threadIdx.x % WARP / 4;
		bool has = row > 0 && row <= meeting.nnew;
		uint32_t column = meeting.nold + row - 1;

		rows.rows[h] = has ? meeting.slots[column] : target;
		rows.row_terms[h] = has ? meeting.terms[column] : meeting.target_term;
		rows.row_margins[h] = TERM == TERM_PRODUCT && has ? meeting.margins[column] : 0;
		rows.row_keys[h] = has ? meeting.keys[column] : 0;
	}
	return rows;
}

/* What a newcomer and a kept one mean to each other. */
struct Encounter
{
	bool before; /* the kept one is nearer to the target */
	bool hide;	 /* it is nearer to the newcomer than the target is */
	bool hides;	 /* the newcomer is nearer to it than the target is */
};

/*
 * The same by distances as stored, of the lanes of `near`: codes tell neither
 * of the two from the target.
 */
template <typename T, int TERM>
__device__ static inline Encounter
meet_near(const MirrorView &mirror, const OpenedRow &row, uint32_t near, LinkEntry entry,
		  LinkEntry other, Encounter met)
{
	uint32_t team = fast_team(mirror.stride);
	uint32_t key = pair_key<T, TERM>(mirror, row.target, row_slot(row, entry), true, team);

	for (; near != 0; near &= near - 1)
	{
		int from = __ffs((int) near) - 1;
		uint32_t slot = row_slot(row, __shfl_sync(FULL_WARP, other, from));
		uint32_t other_key = pair_key<T, TERM>(mirror, row.target, slot, true, team);
		uint32_t between = pair_key<T, TERM>(mirror, row_slot(row, entry), slot, true, team);

		if ((int) (threadIdx.x % WARP) == from)
			met = {other_key < key || (other_key == key && other < entry),
				   hiding_key<TERM>(mirror, row.target, slot, between) < key,
				   hiding_key<TERM>(mirror, row.target, row_slot(row, entry), between) < other_key};
	}
	return met;
}

/*
 * Take in a newcomer that is not equal to the target; `row` is its row in the
 * tile's bits.
 */
template <typename T, int TERM>
__device__ static inline void
take_other_codes(const MirrorView &mirror, const Meeting &meeting, uint32_t tile_row,
				 OpenedRow *row, LinkEntry entry)
{
	const uint32_t *hide = meeting.bits + tile_row * meeting.words;
	const uint32_t *hides = hide + TILE_ROWS * meeting.words;
	uint32_t lane = threadIdx.x % WARP;
	uint32_t marked = 0,
			 hidden = 0;

	for (uint32_t base = 0; base < row->nkept; base += WARP)
	{
		LinkEntry other = base + lane < row->nkept ? row->kept[base + lane] : 0;
		uint32_t column = link_slot(other);
		bool has = base + lane < row->nkept && link_key_of(other) != row->equal_key;
		bool near = has && link_key_of(entry) == row->equal_key + 1 &&
					link_key_of(other) == row->equal_key + 1;
		uint32_t all_near = __ballot_sync(FULL_WARP, near);
		Encounter met = {other < entry, (bool) (hide[column / 32] >> (column % 32) & 1),
						 (bool) (hides[column / 32] >> (column % 32) & 1)};

		if (all_near != 0)
			met = meet_near<T, TERM>(mirror, *row, all_near, entry, other, met);
		met.hides = has && !met.before && met.hides;
		if (met.hides)
			row->kept[base + lane] = other | 1;
		marked |= __ballot_sync(FULL_WARP, met.hides);
		hidden |= __ballot_sync(FULL_WARP, has && met.before && met.hide);
	}
	__syncwarp();
	if (marked != 0)
		settle_kept(row, hidden != 0);
	if (hidden != 0)
		insert_entry(row->fill, &row->nfill, entry);
	else
		insert_entry(row->kept, &row->nkept, entry);
}

/* Take in the newcomers of a tile, nearest first. */
template <typename T, int TERM>
__device__ static inline void
take_tile(const MirrorView &mirror, const LinkBatch &batch, const Meeting &meeting, uint32_t tile,
		  OpenedRow *row)
{
#pragma unroll 1
	for (uint32_t i = tile == 0 ? 1 : 0; i < TILE_ROWS && tile * TILE_ROWS + i <= meeting.nnew; i++)
	{
		uint32_t column = meeting.nold + tile * TILE_ROWS + i - 1;
		LinkEntry entry = (LinkEntry) meeting.keys[column] << 32 | (LinkEntry) (column << 1);

		if (meeting.keys[column] == row->equal_key)
			take_duplicate(batch, row, entry);
		else
			take_other_codes<T, TERM>(mirror, meeting, i, row, entry);
		drop_surplus(mirror, row);
	}
}

/*
 * How many neighbours of a row are kept: known, or found by distances as
 * stored. Leaves keys without a meaning.
 */
template <typename T, int TERM>
__device__ static inline uint32_t
kept_of_row(const MirrorView &mirror, const LinkBatch &batch, uint32_t target,
			const Meeting &meeting)
{
	uint32_t known = batch.kept_counts[target];

	if (known != LINK_UNKNOWN)
		return known < meeting.nold ? known : meeting.nold;
	stored_keys<T, TERM>(mirror, target, meeting.slots, meeting.nold, meeting.keys);
	return kept_by_keys(meeting.keys, meeting.nold);
}

/* Give one target its edges back. One warp. */
template <typename T, int TERM>
__device__ static inline void
give_back(const MirrorView &mirror, const LinkBatch &batch, uint32_t first, uint32_t edges,
		  Meeting *meeting, OpenedRow *row)
{
	uint32_t target = (uint32_t) (batch.edge_keys[first] >> 32);
	uint32_t exact_key = pair_key<T, TERM>(mirror, target, target, true, fast_team(mirror.stride));

	row->target = target;
	row->equal_key = meeting->equal_key = code_equal_key<TERM>(mirror, batch, target);
	gather_columns<T, TERM>(mirror, batch, target, first, edges, meeting);
	row->nkept = kept_of_row<T, TERM>(mirror, batch, target, *meeting);
	row->nfill = meeting->nold - row->nkept;
#pragma unroll 1
	for (uint32_t tile = 0; tile * TILE_ROWS <= meeting->nnew; tile++)
	{
		Sixteen rows = meeting_rows<TERM>(*meeting, target, tile);
		uint32_t met = tile * TILE_ROWS + TILE_ROWS - 1;

		met = meeting->nold + (met < meeting->nnew ? met : meeting->nnew);
#pragma unroll 1
		for (uint32_t column = 0; column < met; column += TILE_COLUMNS)
			meet_columns<T, TERM>(mirror, target, exact_key, tile, column, rows, meeting);
		if (tile == 0)
		{
			sort_entries(meeting->keys, NULL, 0, row->nkept, row->kept);
			sort_entries(meeting->keys, NULL, row->nkept, row->nfill, row->fill);
		}
		take_tile<T, TERM>(mirror, batch, *meeting, tile, row);
		__syncwarp();
	}
	link_close_row(mirror, batch, *row);
	if (threadIdx.x % WARP == 0)
		batch.kept_counts[target] = (uint8_t) row->nkept;
}

/* Columns that a row and its newcomers may have, whole tiles. */
__host__ __device__ static inline uint32_t
most_columns(uint32_t degree)
{
	return (degree + LINK_NEWCOMERS(degree) + TILE_COLUMNS - 1) / TILE_COLUMNS * TILE_COLUMNS;
}

template <typename T, int TERM>
__global__ void
__launch_bounds__(LINK_THREADS, LINK_CODE_BLOCKS)
	code_back_kernel(const MirrorView mirror, const LinkBatch batch, uint32_t edges,
					 uint32_t part_from, uint32_t part_to, uint32_t warp_bytes)
{
	DYNAMIC_SHARED(memory);
	uint32_t ngroups = *batch.ngroups;
	uint32_t from = (uint32_t) ((uint64_t) ngroups * part_from / edges);
	uint32_t to = (uint32_t) ((uint64_t) ngroups * part_to / edges);
	uint32_t columns = most_columns(mirror.degree);
	Meeting meeting;
	OpenedRow row;

	row.kept = (LinkEntry *) (memory + threadIdx.x / WARP * warp_bytes);
	row.fill = row.kept + mirror.degree + 1;
	meeting.slots = (uint32_t *) (row.fill + mirror.degree + 1);
	meeting.keys = meeting.slots + columns;
	meeting.terms = (int *) (meeting.keys + columns);
	meeting.margins = meeting.terms + columns;
	meeting.bits = (uint32_t *) (meeting.margins + (TERM == TERM_PRODUCT ? columns : 0));
	meeting.words = columns / TILE_COLUMNS;
	row.names = meeting.slots;
#pragma unroll 1
	for (uint32_t group = from + blockIdx.x * LINK_WARPS + threadIdx.x / WARP; group < to;
		 group += gridDim.x * LINK_WARPS)
		give_back<T, TERM>(mirror, batch, batch.groups[group], edges, &meeting, &row);
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
typedef void (*BackKernel)(const MirrorView, const LinkBatch, uint32_t, uint32_t, uint32_t,
						   uint32_t);

/* Pairs of a type and a term that have codes. */
#define CODED_PAIRS 4
#define CODED(of) \
	{ \
		of(float, TERM_PRODUCT), of(float, TERM_SQUARE), of(__half, TERM_PRODUCT), \
			of(__half, TERM_SQUARE) \
	}
#define CHOOSE_KERNEL(T, TERM) code_choose_kernel<T, TERM>
#define BACK_KERNEL(T, TERM) code_back_kernel<T, TERM>
#define ORDER_KERNEL(T, TERM) code_order_kernel<T, TERM>

static const TermsKernel terms_kernels[2] = {code_terms_kernel<TERM_PRODUCT>,
											 code_terms_kernel<TERM_SQUARE>};
static const RowsKernel choose_kernels[CODED_PAIRS] = CODED(CHOOSE_KERNEL);
static const BackKernel back_kernels[CODED_PAIRS] = CODED(BACK_KERNEL);
static const RowsKernel order_kernels[CODED_PAIRS] = CODED(ORDER_KERNEL);

static int
coded_pair(const MirrorView *mirror)
{
	return (mirror->type == ELEMENT_HALF ? 2 : 0) + (mirror->metric == METRIC_L2);
}

/* Shared memory of a warp, for each kernel. */
static uint32_t
choose_bytes(uint32_t degree, uint32_t room)
{
	return (uint32_t) round_up(
		degree * (sizeof(LinkEntry) + sizeof(int)) + (room + 31) / 32 * sizeof(uint32_t), 16);
}

static uint32_t
back_bytes(uint32_t degree, bool products)
{
	uint32_t columns = most_columns(degree);

	return (uint32_t) round_up(
		2 * (degree + 1) * sizeof(LinkEntry) +
			((products ? 4 : 3) * columns + 2 * TILE_ROWS * (columns / TILE_COLUMNS)) *
				sizeof(uint32_t),
		16);
}

static uint32_t
order_bytes(uint32_t degree)
{
	return (uint32_t) round_up(degree * (sizeof(LinkEntry) + 2 * sizeof(uint32_t)), 16);
}

cudaError_t
link_codes_prepare(size_t shared_room)
{
	for (int i = 0; i < 3 * CODED_PAIRS; i++)
	{
		const void *kernel = i % 3 == 0	  ? (const void *) choose_kernels[i / 3]
							 : i % 3 == 1 ? (const void *) back_kernels[i / 3]
										  : (const void *) order_kernels[i / 3];
		cudaError_t error = cudaFuncSetAttribute(
			kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) shared_room);

		if (error != cudaSuccess)
			return error;
	}
	return cudaSuccess;
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
link_choose_codes_launch(const MirrorView *mirror, const LinkBatch *batch, LinkPart part,
						 cudaStream_t stream)
{
	uint32_t bytes = choose_bytes(mirror->degree, batch->room);

	LAUNCH(choose_kernels[coded_pair(mirror)], blocks_of_part(part), LINK_THREADS,
		   LINK_WARPS * bytes, stream, *mirror, *batch, part.first, part.first + part.count, bytes);
	return cudaGetLastError();
}

cudaError_t
link_back_codes_launch(const MirrorView *mirror, const LinkBatch *batch, LinkPart part,
					   cudaStream_t stream)
{
	uint32_t bytes = back_bytes(mirror->degree, mirror->metric != METRIC_L2);

	LAUNCH(back_kernels[coded_pair(mirror)], blocks_of_part(part), LINK_THREADS, LINK_WARPS * bytes,
		   stream, *mirror, *batch, batch->count * mirror->degree, part.first,
		   part.first + part.count, bytes);
	return cudaGetLastError();
}

cudaError_t
link_order_launch(const MirrorView *mirror, const LinkBatch *batch, LinkPart part,
				  cudaStream_t stream)
{
	uint32_t bytes = order_bytes(mirror->degree);

	LAUNCH(order_kernels[coded_pair(mirror)], blocks_of_part(part), LINK_THREADS,
		   LINK_WARPS * bytes, stream, *mirror, *batch, part.first, part.first + part.count, bytes);
	return cudaGetLastError();
}
