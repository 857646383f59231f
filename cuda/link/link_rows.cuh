/*
 * link_rows.cuh
 *		What a warp does with one row of the graph, however distances are
 *		measured: choosing neighbours (prune.c's rule), and taking in newcomers
 *		(prune_incremental.c's). link_rows.cu has kernels that measure stored
 *		rows, link_codes.cu and link_codes_back.cu those that measure codes.
 */
#ifndef GPUANN_CUDA_LINK_ROWS_CUH
#define GPUANN_CUDA_LINK_ROWS_CUH

#include "cuda/link/link_measure.cuh"

#define NO_KEPT 0xFFFFFFFFu
#define OPENED 4u /* neighbours of a row measured as stored, for each team at a time */
#define SCATTER_CANDIDATES 4u /* times the degree: the rows of a crowd of duplicates are filled from
							   * so many of the nearest */

static inline uint32_t
blocks_of_warps(uint32_t warps)
{
	return (warps + LINK_WARPS - 1) / LINK_WARPS;
}

/* Blocks of a part whose units are warps'. */
static inline uint32_t
blocks_of_part(CudaLinkPart part)
{
	uint32_t blocks = blocks_of_warps(part.count);

	return blocks < part.blocks ? blocks : part.blocks;
}

/* Put an entry in its place. */
__device__ static inline void
insert_entry(LinkEntry *entries, uint32_t *count, LinkEntry entry)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t place = 0;

	for (uint32_t base = 0; base < *count; base += WARP)
		place += (uint32_t) __popc(
			__ballot_sync(FULL_WARP, base + lane < *count && entries[base + lane] < entry));
	for (uint32_t base = (*count + WARP - 1) / WARP * WARP; base > 0; base -= WARP)
	{
		uint32_t i = base - WARP + lane;
		LinkEntry moved = i < *count ? entries[i] : 0;

		__syncwarp();
		if (i >= place && i < *count)
			entries[i + 1] = moved;
		__syncwarp();
	}
	if (lane == 0)
		entries[place] = entry;
	(*count)++;
	__syncwarp();
}

/* --- choosing a row's neighbours ------------------------------------------ */

/* A row that is chosen, as the lanes of its warp agree on it. */
struct LinkChoice
{
	LinkEntry *kept; /* degree of them, in the row's order */
	uint32_t *taken; /* a bit per candidate that is kept */
	const LinkEntry *candidates;
	uint32_t ncandidates;
	uint32_t self;
	uint32_t equal_key;
	uint32_t nequals;
	uint32_t room;	/* places of kept ones: where the row is one of a crowd of duplicates, the rest
					 * is for its fill */
	uint32_t nkept; /* the others fill: nearest first here, copies last */
	uint32_t farthest; /* place of the farthest of these, if there are any */
	uint32_t count;
};

/*
 * Where that of the fill which is i-th of the row stands among what is sorted:
 * the farthest comes first (see src/engine/prune.h).
 */
__device__ static inline uint32_t
fill_place(uint32_t i, uint32_t kept, uint32_t farthest)
{
	return i == kept ? farthest : i <= farthest ? i - 1 : i;
}

/* Whether a candidate may be a neighbour at all, other than as a duplicate. */
__device__ static inline bool
is_eligible(const MirrorView &mirror, const LinkChoice &choice, LinkEntry entry)
{
	uint32_t slot = link_slot(entry);

	return slot != choice.self && link_key_of(entry) != choice.equal_key &&
		   !bit_of(mirror.dead, slot);
}

/*
 * Take the row's duplicates. Where they take most of the places they may have,
 * the row is one of a crowd (prune.c's rule; a place that none of a few
 * duplicates falls into stays empty here), and as many places again are kept
 * for its fill.
 */
__device__ static inline void
choose_duplicates(const MirrorView &mirror, const LinkBatch &batch, const uint32_t *equals,
				  LinkChoice *choice)
{
	uint32_t lane = threadIdx.x % WARP;

	for (uint32_t base = 0; base < LINK_EQUALS; base += WARP)
	{
		uint32_t slot = equals[base + lane];
		bool has = slot != NO_SLOT && slot != choice->self && !bit_of(mirror.dead, slot);
		uint32_t ballot = __ballot_sync(FULL_WARP, has);
		uint32_t place = choice->count + (uint32_t) __popc(ballot & ((1u << lane) - 1));

		if (has && place < mirror.degree)
			choice->kept[place] = (LinkEntry) choice->equal_key << 32 | (LinkEntry) (slot << 1);
		choice->count += (uint32_t) __popc(ballot);
	}
	choice->count = choice->count < mirror.degree ? choice->count : mirror.degree;
	choice->nequals = choice->count;
	choice->room = 2 * choice->nequals > batch.max_equal && 2 * batch.max_equal < mirror.degree
					   ? mirror.degree - batch.max_equal
					   : mirror.degree;
	__syncwarp();
}

/*
 * Fill places left with the nearest of the others: without, then with those as
 * far as the one before (mostly its copies).
 */
__device__ static inline void
choose_fill(const MirrorView &mirror, LinkChoice *choice)
{
	uint32_t lane = threadIdx.x % WARP;

	for (uint32_t copies = 0; copies < 2; copies++)
		for (uint32_t base = 0; base < choice->ncandidates && choice->count < mirror.degree;
			 base += WARP)
		{
			uint32_t i = base + lane;
			bool has = i < choice->ncandidates && !(choice->taken[i / 32] >> (i % 32) & 1);
			LinkEntry entry = has ? choice->candidates[i] : 0;
			bool copy =
				has && i > 0 && link_key_of(choice->candidates[i - 1]) == link_key_of(entry);
			uint32_t ballot,
				place;

			has = has && copy == (copies == 1) && is_eligible(mirror, *choice, entry);
			ballot = __ballot_sync(FULL_WARP, has);
			place = choice->count + (uint32_t) __popc(ballot & ((1u << lane) - 1));
			if (has && place < mirror.degree)
				choice->kept[place] = entry;
			choice->count += (uint32_t) __popc(ballot);
			choice->count = choice->count < mirror.degree ? choice->count : mirror.degree;
			choice->farthest =
				copies == 0 && choice->count > choice->nkept ? choice->count - 1 : choice->farthest;
		}
	__syncwarp();
}

/*
 * Whether two slots' rows, as far from a third, are equal: then one stands for
 * both. One warp.
 */
template <typename T, int TERM>
__device__ static inline bool
are_copies(const MirrorView &mirror, uint32_t a, uint32_t b)
{
	uint32_t team = fast_team(mirror.stride);

	return pair_key<T, TERM>(mirror, a, b, true, team) ==
		   pair_key<T, TERM>(mirror, a, a, true, team);
}

/* Whether a candidate is a copy of the one before. One warp. */
template <typename T, int TERM>
__device__ static inline bool
is_copy(const MirrorView &mirror, const LinkChoice &choice, uint32_t i)
{
	return i > 0 && link_key_of(choice.candidates[i - 1]) == link_key_of(choice.candidates[i]) &&
		   are_copies<T, TERM>(mirror, link_slot(choice.candidates[i]),
							   link_slot(choice.candidates[i - 1]));
}

/*
 * Fill places left in a row of a crowd with others at random, those of the
 * nearest: a crowd can fill a search's list, and if all its rows led to the
 * same few, to nothing else. In order of distance; one warp. (prune.c's
 * choose_scattered)
 */
template <typename T, int TERM>
__device__ static inline void
choose_scattered(const MirrorView &mirror, LinkChoice *choice)
{
	LinkEntry *drawn = choice->kept + choice->count; /* rank << 32 | candidate << 1, lowest rank
													  * first */
	uint32_t room = mirror.degree - choice->count;
	uint32_t count = 0,
			 sorted = 0;

#pragma unroll 1
	for (uint32_t i = 0, met = 0;
		 i < choice->ncandidates && met < SCATTER_CANDIDATES * mirror.degree && room > 0; i++)
	{
		LinkEntry entry = choice->candidates[i];
		LinkEntry drawing = (LinkEntry) link_equal_rank(link_slot(entry), choice->self) << 32 |
							(LinkEntry) (i << 1);

		if ((choice->taken[i / 32] >> (i % 32) & 1) || !is_eligible(mirror, *choice, entry) ||
			is_copy<T, TERM>(mirror, *choice, i))
			continue;
		met++;
		if (count == room && drawn[count - 1] < drawing)
			continue;
		count -= count == room;
		__syncwarp();
		insert_entry(drawn, &count, drawing);
	}
#pragma unroll 1
	for (uint32_t n = 0; n < count; n++)
	{
		uint32_t i = link_slot(drawn[n]);

		__syncwarp();
		if (threadIdx.x % WARP == 0)
			choice->taken[i / 32] |= 1u << (i % 32);
		insert_entry(drawn, &sorted, choice->candidates[i]);
	}
	choice->count += count;
}

/* Fill a row that is linked, behind the kept ones. */
template <typename T, int TERM>
__device__ static inline void
fill_row(const MirrorView &mirror, LinkChoice *choice)
{
	if (choice->room == mirror.degree)
	{
		choose_fill(mirror, choice);
		return;
	}
	choose_scattered<T, TERM>(mirror, choice);
	choose_fill(mirror, choice);
	choice->farthest = choice->nkept;
	for (uint32_t i = choice->nkept + 1; i < choice->count; i++)
		choice->farthest = choice->kept[i] > choice->kept[choice->farthest] ? i : choice->farthest;
}

/* Whether a row has an edge already. */
__device__ static inline bool
link_names(const MirrorView &mirror, uint32_t row, uint32_t slot)
{
	bool named = false;

	for (uint32_t i = 0; i < mirror.degree && !named; i++)
		named = mirror.graph[(size_t) row * mirror.degree + i] == slot;
	return named;
}

/*
 * Write what was chosen, and reverse edges: from a row that is repaired, of
 * those that it did not have.
 */
__device__ static inline void
write_choice(const MirrorView &mirror, const LinkBatch &batch, const LinkChoice &choice,
			 uint32_t item)
{
	size_t first = (size_t) item * mirror.degree;

	for (uint32_t i = threadIdx.x % WARP; i < mirror.degree; i += WARP)
	{
		bool has = i < choice.count;
		LinkEntry entry =
			has ? choice.kept[i < choice.nkept ? i : fill_place(i, choice.nkept, choice.farthest)]
				: 0;
		bool back = has && !(batch.repairs && link_names(mirror, choice.self, link_slot(entry)));

		batch.chosen[first + i] = has ? link_slot(entry) : NO_SLOT;
		batch.edge_keys[first + i] =
			back ? (LinkEntry) link_slot(entry) << 32 | link_key_of(entry) : LINK_NO_ENTRY;
		batch.edge_sources[first + i] = choice.self;
	}
}

/* --- rows as stored ------------------------------------------------------- */

/* Keys of the distances as stored between a slot's row and others. One warp. */
template <typename T, int TERM>
__device__ static inline void
stored_keys(const MirrorView &mirror, uint32_t slot, const uint32_t *others, uint32_t count,
			uint32_t *keys)
{
	uint32_t team = fast_team(mirror.stride);
	uint32_t teams = WARP / team;
	uint32_t lane = threadIdx.x % WARP;

#pragma unroll 1
	for (uint32_t base = 0; base < count; base += OPENED * teams)
	{
		uint32_t slots[OPENED],
			found[OPENED];
		bool has[OPENED];

#pragma unroll
		for (uint32_t r = 0; r < OPENED; r++)
		{
			uint32_t i = base + r * teams + lane / team;

			has[r] = i < count;
			slots[r] = has[r] ? others[i] : 0;
		}
		pair_keys<T, TERM, OPENED>(mirror, slot, slots, has, team, found);
#pragma unroll
		for (uint32_t r = 0; r < OPENED; r++)
			if (has[r] && lane % team == 0)
				keys[base + r * teams + lane / team] = found[r];
	}
	__syncwarp();
}

/* Bring a graph row's slots to shared memory; returns how many. One warp. */
__device__ static inline uint32_t
load_row(const MirrorView &mirror, const LinkBatch &batch, uint32_t slot, uint32_t *to)
{
	const uint32_t *stored = batch.graph + (size_t) slot * mirror.degree;
	uint32_t lane = threadIdx.x % WARP;
	uint32_t count = 0;

	for (uint32_t base = 0; base < mirror.degree; base += WARP)
	{
		uint32_t one = base + lane < mirror.degree ? stored[base + lane] : NO_SLOT;
		uint32_t there = __ballot_sync(FULL_WARP, one < mirror.rows);

		if (one < mirror.rows)
			to[count + (uint32_t) __popc(there & ((1u << lane) - 1))] = one;
		count += (uint32_t) __popc(there);
	}
	__syncwarp();
	return count;
}

/*
 * How many of a row's slots are kept ones, by the keys of their distances as
 * stored (row_kept() of src/engine/prune.h). One warp.
 */
__device__ static inline uint32_t
kept_by_keys(const uint32_t *keys, uint32_t count)
{
	uint32_t fall = 1;
	bool rises;

	while (fall < count && keys[fall] >= keys[fall - 1])
		fall++;
	rises = fall + 1 < count && keys[fall + 1] >= keys[fall];
	__syncwarp();
	if (fall >= count)
		return count;
	/* the fill's farthest is before it, unless what follows falls again */
	return rises ? fall - 1 : fall;
}

/*
 * Sort entries [first, first + count) into `to`: of these keys and slots, or
 * (slots NULL) of keys and their places. One warp.
 */
__device__ static inline void
sort_entries(const uint32_t *keys, const uint32_t *slots, uint32_t first, uint32_t count,
			 LinkEntry *to)
{
	for (uint32_t i = first + threadIdx.x % WARP; i < first + count; i += WARP)
	{
		uint32_t key = keys[i];
		uint32_t name = slots != NULL ? slots[i] : i;
		uint32_t place = 0;

		for (uint32_t j = first; j < first + count; j++)
			place += keys[j] < key || (keys[j] == key && (slots != NULL ? slots[j] : j) < name);
		to[place] = (LinkEntry) key << 32 | (LinkEntry) (name << 1);
	}
	__syncwarp();
}

/* --- reverse edges -------------------------------------------------------- */

/* Note that a slot's graph row is another now. */
__device__ static inline void
mark_changed(const LinkBatch &batch, uint32_t slot)
{
	atomicOr(&batch.changed[slot >> 5], 1u << (slot & 31));
}

/*
 * A row that takes in newcomers: kept ones and fill, each sorted. What the
 * lanes of its warp agree on.
 */
struct OpenedRow
{
	LinkEntry *kept; /* degree + 1 places */
	LinkEntry *fill; /* likewise */
	uint32_t nkept;
	uint32_t nfill;
	uint32_t target;
	uint32_t equal_key;
	const uint32_t *names; /* NULL: entries name slots; else places in this table of slots */
};

/* The slot that an entry stands for; `names` is as in OpenedRow. */
__device__ static inline uint32_t
named_slot(const uint32_t *names, LinkEntry entry)
{
	return names == NULL ? link_slot(entry) : names[link_slot(entry)];
}

/* The slot that an entry of a row stands for. */
__device__ static inline uint32_t
row_slot(const OpenedRow &row, LinkEntry entry)
{
	return named_slot(row.names, entry);
}

/* Take an entry out. */
__device__ static inline void
remove_entry(LinkEntry *entries, uint32_t *count, uint32_t place)
{
	for (uint32_t base = place; base + 1 < *count; base += WARP)
	{
		uint32_t i = base + threadIdx.x % WARP;
		LinkEntry moved = i + 1 < *count ? entries[i + 1] : 0;

		__syncwarp();
		if (i + 1 < *count)
			entries[i] = moved;
		__syncwarp();
	}
	(*count)--;
}

/* Whether a slot is among entries. */
__device__ static inline bool
has_entry(const LinkEntry *entries, uint32_t count, uint32_t slot)
{
	for (uint32_t base = 0; base < count; base += WARP)
	{
		uint32_t i = base + threadIdx.x % WARP;

		if (__ballot_sync(FULL_WARP, i < count && link_slot(entries[i]) == slot) != 0)
			return true;
	}
	return false;
}

/*
 * What distances between stored rows take of a mirror. A routine that is called
 * takes this by value: a reference to the mirror, or to the row that is opened,
 * would put all of it into local memory, for its caller too.
 */
struct MeasuredRows
{
	const unsigned char *vectors;
	const double *norms;
	uint32_t stride;
	Metric metric;
};

/*
 * Whether a newcomer has the vector of one of the neighbours that a lane asks
 * for. `names` is as in OpenedRow. One warp.
 */
template <typename T, int TERM>
__device__ static CALLED bool
is_like_asked(MeasuredRows rows, const uint32_t *names, uint32_t newcomer, const LinkEntry *asked,
			  uint32_t ask)
{
	MirrorView mirror = {};

	mirror.vectors = rows.vectors;
	mirror.norms = rows.norms;
	mirror.stride = rows.stride;
	mirror.metric = rows.metric;
	for (; ask != 0; ask &= ask - 1)
		if (are_copies<T, TERM>(mirror, newcomer,
								named_slot(names, asked[__ffs((int) ask) - 1])))
			return true;
	return false;
}

/*
 * Whether a row has a neighbour with the vector of a newcomer, which is not
 * taken in then: copies of one row would take all places. Keys are compared
 * first, so vectors hardly ever are. One warp. (prune_incremental.c's has_like)
 */
template <typename T, int TERM>
__device__ static inline bool
has_like(const MirrorView &mirror, const OpenedRow &row, LinkEntry entry)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t most = row.nkept > row.nfill ? row.nkept : row.nfill;

	for (uint32_t base = 0; base < most; base += WARP)
	{
		uint32_t i = base + lane;
		uint32_t kept = __ballot_sync(
			FULL_WARP, i < row.nkept && link_key_of(row.kept[i]) == link_key_of(entry));
		uint32_t fill = __ballot_sync(
			FULL_WARP, i < row.nfill && link_key_of(row.fill[i]) == link_key_of(entry));

		if ((kept | fill) != 0)
		{
			MeasuredRows rows = {mirror.vectors, mirror.norms, mirror.stride, mirror.metric};
			uint32_t newcomer = row_slot(row, entry);

			if (is_like_asked<T, TERM>(rows, row.names, newcomer, row.kept + base, kept) ||
				is_like_asked<T, TERM>(rows, row.names, newcomer, row.fill + base, fill))
				return true;
		}
	}
	return false;
}

/*
 * Move the kept ones that are marked to the fill; or, where the newcomer is
 * hidden after all, just take the marks away.
 */
__device__ static inline void
settle_kept(OpenedRow *row, bool hidden)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t out = 0;

	for (uint32_t base = 0; base < row->nkept; base += WARP)
	{
		bool has = base + lane < row->nkept;
		LinkEntry entry = has ? row->kept[base + lane] : 0;
		bool stays = has && (hidden || !(entry & 1));
		uint32_t ballot = __ballot_sync(FULL_WARP, stays);
		uint32_t moved = __ballot_sync(FULL_WARP, has && !stays);

		entry &= ~1ull;
		__syncwarp();
		if (stays)
			row->kept[out + (uint32_t) __popc(ballot & ((1u << lane) - 1))] = entry;
		__syncwarp();
		out += (uint32_t) __popc(ballot);
		for (; moved != 0; moved &= moved - 1)
			insert_entry(row->fill, &row->nfill,
						 __shfl_sync(FULL_WARP, entry, __ffs((int) moved) - 1));
	}
	row->nkept = out;
}

/* Take in a duplicate of the target: of these the lowest random ranks stay. */
__device__ static inline void
take_duplicate(const LinkBatch &batch, OpenedRow *row, LinkEntry entry)
{
	uint32_t rank = link_equal_rank(row_slot(*row, entry), row->target);
	uint32_t equals = 0,
			 worst = NO_KEPT,
			 worst_rank = 0;

	for (uint32_t i = 0; i < row->nkept; i++)
		if (link_key_of(row->kept[i]) == row->equal_key)
		{
			uint32_t other = link_equal_rank(row_slot(*row, row->kept[i]), row->target);

			equals++;
			if (worst == NO_KEPT || other > worst_rank)
			{
				worst = i;
				worst_rank = other;
			}
		}
	if (equals >= batch.max_equal)
	{
		if (worst_rank < rank)
			return;
		remove_entry(row->kept, &row->nkept, worst);
	}
	insert_entry(row->kept, &row->nkept, entry);
}

/*
 * Drop neighbours from a row that overflows: which of the fill, prune_surplus()
 * of src/engine/prune.h says.
 */
__device__ static inline void
drop_surplus(const MirrorView &mirror, OpenedRow *row)
{
	while (row->nkept + row->nfill > mirror.degree)
		if (row->nfill > 0)
			remove_entry(row->fill, &row->nfill, row->nfill * 3 / 4);
		else
			row->nkept--;
}

/* Write a row back. */
__device__ static inline void
link_close_row(const MirrorView &mirror, const LinkBatch &batch, const OpenedRow &row)
{
	uint32_t *stored = batch.graph + (size_t) row.target * mirror.degree;

	uint32_t count = row.nkept + row.nfill;

	for (uint32_t i = threadIdx.x % WARP; i < mirror.degree; i += WARP)
		stored[i] = i < row.nkept ? row_slot(row, row.kept[i])
					: i < count
						? row_slot(row, row.fill[fill_place(i, row.nkept, count - 1) - row.nkept])
						: NO_SLOT;
	if (threadIdx.x % WARP == 0)
		mark_changed(batch, row.target);
	__syncwarp();
}

#endif /* GPUANN_CUDA_LINK_ROWS_CUH */
