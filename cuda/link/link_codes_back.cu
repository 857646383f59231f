/*
 * link_codes_back.cu
 *		Reverse edges by codes: targets take in the rows that chose them
 *		(link_codes.cuh). The rules are those of link_rows.cu.
 *
 *		code_back_kernel	a warp per target. The target and fifteen newcomers
 *							(then sixteen at a time) meet the row and the
 *							newcomers as candidates meet kept ones in
 *							link_codes.cu. Shared: slots, terms and keys of all
 *							of these, bits of a tile, the row. Reads the codes
 *							of a row and its newcomers once.
 * What is kept of a row, and the bound: see link_codes.cu. Launched by link.cu.
 */
#include "cuda/link/link_codes.cuh"
#include "cuda/link/link_rows.cuh"

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
 * Whether a reverse edge is one too many: from a copy of the source before it,
 * or from one more duplicate of the target than there could be places for. A
 * crowd of equal rows in one batch would leave no column for anybody else.
 * Whole warps: a lane asks for its edge; *duplicates counts those so far.
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
			 uint32_t first, const TileRows &rows, Meeting *meeting)
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
	code_products<COLUMN_TILES, false>(mirror, rows.slots, columns, sums);
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

			hides[c] = j < end && code_key<TERM>(rows.terms[c / 2], term + margin, sums[n][c]) <
									  rows.keys[c / 2];
			is_hidden[c] =
				j < end && code_key<TERM>(rows.terms[c / 2] + rows.margins[c / 2], term,
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
__device__ static inline TileRows
meeting_rows(const Meeting &meeting, uint32_t target, uint32_t tile)
{
	TileRows rows;

#pragma unroll
	for (uint32_t h = 0; h < 2; h++)
	{
		uint32_t row = tile * TILE_ROWS + 8 * h + threadIdx.x % WARP / 4;
		bool has = row > 0 && row <= meeting.nnew;
		uint32_t column = meeting.nold + row - 1;

		rows.slots[h] = has ? meeting.slots[column] : target;
		rows.terms[h] = has ? meeting.terms[column] : meeting.target_term;
		rows.margins[h] = TERM == TERM_PRODUCT && has ? meeting.margins[column] : 0;
		rows.keys[h] = has ? meeting.keys[column] : 0;
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
		else if (!has_like<T, TERM>(mirror, *row, entry))
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

/* Give one target its reverse edges. One warp. */
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
		TileRows rows = meeting_rows<TERM>(*meeting, target, tile);
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

/* --- the host's part ------------------------------------------------------ */

typedef void (*BackKernel)(const MirrorView, const LinkBatch, uint32_t, uint32_t, uint32_t,
						   uint32_t);

#define BACK_KERNEL(T, TERM) code_back_kernel<T, TERM>

static const BackKernel back_kernels[CODED_PAIRS_COUNT] = CODED_PAIRS(BACK_KERNEL);

/* Shared memory of a warp. */
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

cudaError_t
link_back_codes_prepare(size_t shared_room)
{
	return allow_shared(back_kernels, shared_room);
}

cudaError_t
link_back_codes_launch(const MirrorView *mirror, const LinkBatch *batch, CudaLinkPart part,
					   cudaStream_t stream)
{
	uint32_t bytes = back_bytes(mirror->degree, mirror->metric != METRIC_L2);

	LAUNCH(back_kernels[coded_pair(mirror)], blocks_of_part(part), LINK_THREADS, LINK_WARPS * bytes,
		   stream, *mirror, *batch, batch->count * mirror->degree, part.first,
		   part.first + part.count, bytes);
	return cudaGetLastError();
}
