/*
 * link_walk.cu
 *		Candidates of rows that are linked: a walk over the graph for each, then
 *		a look at the rows of its own batch.
 *
 * The walk is that of graph_search_codes.cuh with another measure: the distance
 * between two stored rows, for every type and metric, or where codes serve
 * between their codes (link_codes.cuh). What differs from a query: rows at the
 * distance of the row to itself (its duplicates) do not enter the list. A
 * quarter of the degree of them is kept, a random one in each place, and a few
 * are expanded; so thousands of equal rows cost no more than others. Copies of
 * other rows are kept out of the list where they are many (equal_rows.cuh), for
 * they would leave the row no other candidates. Candidates
 * are the list, and of the first expansions those that left it: far rows, some
 * of which become the graph's long edges.
 *
 * Map: grid = blocks of a part, each of which takes row after row; block = 128
 * threads.
 *		shared		the list twice (8 bytes an entry), a round's candidates (8
 *					bytes) and slots (4), the set of slots seen (4 a place)
 *		L2, HBM		stored rows or codes, graph rows
 * Reads per row: (expanded x degree + mates) x bytes of a row or code, at most.
 * Writes 8 x (ef + 64) + 256. Bound: random reads of rows. Launched by link.cu.
 */
#include "cuda/graph/entry_points.h"
#include "cuda/graph/equal_rows.cuh"
#include "cuda/graph/nearest_candidates.cuh"
#include "cuda/link/link_codes.cuh"

#define MIN_TILE 64u
#define MIN_PLACES 1024u
#define EXPANDED_EQUALS 8u /* duplicates whose rows are read */
#define FIRST_MATES 64u	   /* rows of the batch that tell whether more are worth a look */
#define MAX_MATES 2048u
#define CODED 4u		   /* codes that a team measures at a time */
#define CODED_CHUNKS 3u	   /* of each, chunks of 16 bytes that a lane has on their way */

/* What the threads of a block share besides the large arrays. */
struct LinkShared
{
	WalkShared walk;
	LinkEntry equals[LINK_EQUALS]; /* rank << 32 | slot << 1 | expanded; each the least of its
								    * place */
	LinkEntry path[LINK_PATH];
	uint32_t equal_key;
	uint32_t exact_key; /* the same of rows as stored, where codes are measured */
	const uint4 *code;	/* the row's, in shared memory */
	int term;
	uint32_t noted; /* duplicates met */
	uint32_t left;	/* of the path, what the list does not hold any more */
};

/*
 * Where this round's slots come from: graph rows of parents (or seeds, as if
 * they were), or rows of the batch.
 */
struct LinkSource
{
	Parents parents;
	const uint32_t *mates; /* NULL: the parents' rows */
	uint32_t start;
	uint32_t batch;
	uint32_t nequals; /* parents that are duplicates: lane j holds where the j-th is kept, and what
					   * it was */
	uint32_t equal_place;
	LinkEntry equal;
};

__device__ static inline uint32_t
source_slot(const MirrorView &mirror, const LinkSource &source, uint32_t i, bool has)
{
	if (source.mates != NULL)
		return has ? source.mates[(source.start + i) % source.batch] : NO_SLOT;
	return neighbour(mirror, source.parents, i, has);
}

/* Keep a duplicate of the row if its rank is the least of its place. */
__device__ static inline void
note_equal(LinkShared *shared, uint32_t slot, uint32_t self, uint32_t places)
{
	uint32_t rank = link_equal_rank(slot, self);

	atomicMin(&shared->equals[rank % places], (LinkEntry) rank << 32 | (LinkEntry) (slot << 1));
	shared->noted = 1;
}

/*
 * Offer measured slots (one per lane that has one) to the list, or to the
 * duplicates. Whole warps.
 */
__device__ static inline void
offer_row(const MirrorView &mirror, const LinkBatch &batch, const Walk &walk, LinkShared *shared,
		  uint32_t self, bool has, uint32_t key, uint32_t slot)
{
	if (has && key == shared->equal_key)
	{
		note_equal(shared, slot, self, batch.max_equal);
		has = false;
	}
	codes_offer(mirror, walk, &shared->walk, has, key, slot, false);
}

/* Measure n slots of walk.fresh as stored, one warp, two per team at a time. */
template <typename T, int TERM>
__device__ static inline void
measure_stored(const MirrorView &mirror, const LinkBatch &batch, const Walk &walk,
			   LinkShared *shared, uint32_t self, uint32_t n)
{
	uint32_t team = fast_team(mirror.stride);
	uint32_t teams = WARP / team;
	uint32_t lane = threadIdx.x % WARP;

#pragma unroll 1
	for (uint32_t base = 0; base < n; base += 2 * teams)
	{
		uint32_t first = base + lane / team;
		bool active[2] = {first < n, first + teams < n};
		uint32_t slots[2] = {active[0] ? walk.fresh[first] : 0,
							 active[1] ? walk.fresh[first + teams] : 0};
		uint32_t keys[2];
		/* the first two lanes of a team speak, each for one */
		uint32_t own = lane % team;
		bool has = own == 0 ? active[0] : own == 1 && active[1];

		pair_keys<T, TERM, 2>(mirror, self, slots, active, team, keys);
		offer_row(mirror, batch, walk, shared, self, has, own == 0 ? keys[0] : keys[1],
				  own == 0 ? slots[0] : slots[1]);
	}
}

/* Lanes that measure a code. */
__device__ static inline uint32_t
code_team(uint32_t code_stride)
{
	return code_stride <= 128 ? 4 : code_stride <= 256 ? 8 : 16;
}

/*
 * Measure n > 0 slots of walk.fresh by their codes, one warp, CODED per team at
 * a time.
 */
template <typename T, int TERM>
__device__ static inline void
measure_codes(const MirrorView &mirror, const LinkBatch &batch, const Walk &walk,
			  LinkShared *shared, uint32_t self, uint32_t n)
{
	uint32_t team = code_team(mirror.code_stride);
	uint32_t lane = threadIdx.x % WARP;
	uint32_t lanes = team / CODED; /* per row, once summed */

	pad_fresh(walk, n);
#pragma unroll 1
	for (uint32_t base = 0; base < n; base += WARP / lanes)
	{
		const uint32_t *slots = walk.fresh + base;
		const uint4 *row[CODED];
		uint32_t slot = slots[lane / lanes];
		bool has = lane % lanes == 0 && base + lane / lanes < n;
		int term = __ldg(batch.code_terms + slot);
		uint32_t key;
		int own;

#pragma unroll
		for (uint32_t r = 0; r < CODED; r++)
			row[r] = code_row(mirror, slots[lane / team * CODED + r]);
		own = sum_of_own_row<CODED, CODED_CHUNKS>(row, shared->code, mirror.code_stride / 16, team,
												  [](int before, const uint4 &x, const uint4 &q)
												  { return dot16(x, q, before); }) *
			  (TERM == TERM_SQUARE ? -2 : -1);
		key = (uint32_t) (own + shared->term + term) ^ 0x80000000u;
		key = tell_duplicates<T, TERM>(mirror, self, shared->equal_key, shared->exact_key, has,
									   slot, key);
		offer_row(mirror, batch, walk, shared, self, has, key, slot);
	}
}

/* Take `total` slots of a source to candidates: every warp an equal share. */
template <typename T, int TERM, bool CODES>
__device__ static inline void
look_at_rows(const MirrorView &mirror, const LinkBatch &batch, const Walk &walk, LinkShared *shared,
			 uint32_t self, const LinkSource &source, uint32_t total)
{
	uint32_t n = gather_fresh(mirror, walk, &shared->walk, false, total, [&](uint32_t i, bool has) {
		uint32_t slot = source_slot(mirror, source, i, has);

		return slot == self ? NO_SLOT : slot;
	});

	if (CODES && n > 0)
		measure_codes<T, TERM>(mirror, batch, walk, shared, self, n);
	if (!CODES)
		measure_stored<T, TERM>(mirror, batch, walk, shared, self, n);
	__syncwarp();
}

/* One round, from slots to the list. All threads; ends with a barrier. */
template <typename T, int TERM, bool CODES>
__device__ static inline void
walk_round(const MirrorView &mirror, const LinkBatch &batch, const WalkLayout &layout, Walk *walk,
		   LinkShared *shared, uint32_t self, const LinkSource &source, uint32_t total)
{
	/* every warp has chosen before duplicates change */
	__syncthreads();
	list_make_room(walk, total);
	look_at_rows<T, TERM, CODES>(mirror, batch, *walk, shared, self, source, total);
	__syncthreads();
	if (threadIdx.x < source.nequals && shared->equals[source.equal_place] == source.equal)
		shared->equals[source.equal_place] |= 1;
	if (shared->walk.part == WALK_DISTINCT)
		drop_copies(CODES ? coded_rows(mirror) : stored_rows(mirror), walk->list, walk->count,
					walk->candidates, &shared->walk.found[walk->round & 1]);
	merge_round(walk, &shared->walk, source.parents,
				nearest_candidates(layout, *walk, &shared->walk, walk->ef));
	walk->round++;
	__syncthreads();
}

/*
 * Choose duplicates whose rows have not been read, at most `most`. Every warp
 * comes to the same.
 */
__device__ static inline void
choose_equals(const MirrorView &mirror, const Walk &walk, const LinkShared *shared, uint32_t most,
			  LinkSource *source)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t chosen = 0;

	for (uint32_t base = 0; base < LINK_EQUALS && chosen < most; base += WARP)
	{
		LinkEntry entry = shared->equals[base + lane];
		bool open = entry != LINK_NO_ENTRY && !(entry & 1);
		uint32_t ballot = __ballot_sync(FULL_WARP, open);
		uint32_t rank = chosen + (uint32_t) __popc(ballot & ((1u << lane) - 1));

		if (open && rank < most)
			walk.fresh[rank] = base + lane;
		chosen += (uint32_t) __popc(ballot);
	}
	__syncwarp();
	source->nequals = chosen < most ? chosen : most;
	if (lane < source->nequals)
	{
		source->equal_place = walk.fresh[lane];
		source->equal = shared->equals[source->equal_place];
		source->parents.row = mirror.graph + (size_t) link_slot(source->equal) * mirror.degree;
	}
	__syncwarp();
}

/*
 * The next round's source; returns how many slots it has, 0: the walk is over.
 */
__device__ static inline uint32_t
next_source(const MirrorView &mirror, Walk *walk, LinkShared *shared, uint32_t *seeded,
			uint32_t *equals_left, LinkSource *source)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t most = WALK_WIDTH * mirror.degree;
	uint32_t total = mirror.nseeds - *seeded;

	*source = {
		{0, mirror.seeds + *seeded + lane * mirror.degree, NO_SLOT, shared->walk.open_from, false},
		NULL,
		0,
		0,
		0,
		0,
		0};
	if (total > 0)
	{
		total = total < most ? total : most;
		*seeded += total;
		return total;
	}
	if (*equals_left > 0)
	{
		choose_equals(mirror, *walk, shared, *equals_left < WALK_WIDTH ? *equals_left : WALK_WIDTH,
					  source);
		*equals_left -= source->nequals;
		if (source->nequals > 0)
			return source->nequals * mirror.degree;
	}
	source->parents = choose_parents(mirror, *walk, shared->walk.open_from, WALK_WIDTH);
	if (threadIdx.x < source->parents.count && walk->expanded + threadIdx.x < LINK_PATH)
		shared->path[walk->expanded + threadIdx.x] = walk->list[source->parents.place];
	walk->expanded += source->parents.count;
	return source->parents.count * mirror.degree;
}

static_assert(ENTRY_CHOICES <= WALK_WIDTH, "a round has no room for so many lists");

/*
 * The lists nearest to a row, as if they were graph rows; returns how many
 * slots they have at most.
 */
__device__ static inline uint32_t
list_source(const MirrorView &mirror, const LinkBatch &batch, const LinkShared *shared,
			uint32_t item, LinkSource *source)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t list = lane < ENTRY_CHOICES ? batch.near[(size_t) lane * batch.count + item] : NO_SLOT;

	*source = {{0, list != NO_SLOT ? batch.lists + (size_t) list * mirror.degree : NULL, NO_SLOT,
				shared->walk.open_from, false},
			   NULL,
			   0,
			   0,
			   0,
			   0,
			   0};
	return (uint32_t) __popc(__ballot_sync(FULL_WARP, list != NO_SLOT)) * mirror.degree;
}

/* Look at rows of the own batch: a few, and if any of these is near, more. */
template <typename T, int TERM, bool CODES>
__device__ static inline void
look_at_mates(const MirrorView &mirror, const LinkBatch &batch, const WalkLayout &layout,
			  Walk *walk, LinkShared *shared, uint32_t item)
{
	uint32_t most = batch.count - 1 < MAX_MATES ? batch.count - 1 : MAX_MATES;
	uint32_t tile =
		WALK_WIDTH * mirror.degree < MIN_TILE ? MIN_TILE : WALK_WIDTH * mirror.degree;
	uint32_t looked = 0;
	bool near = true;

	while (looked < most && near)
	{
		uint32_t total = looked == 0 && FIRST_MATES < tile ? FIRST_MATES : tile;
		LinkSource source = {{0, NULL, NO_SLOT, shared->walk.open_from, false},
							 batch.slots,
							 item + 1 + looked,
							 batch.count,
							 0,
							 0,
							 0};

		total = total < most - looked ? total : most - looked;
		if (threadIdx.x == 0)
			shared->noted = 0;
		walk_round<T, TERM, CODES>(mirror, batch, layout, walk, shared, batch.slots[item], source,
								   total);
		near = shared->walk.found[(walk->round & 1) ^ 1] > 0 || shared->noted > 0;
		looked += total;
		__syncthreads();
	}
}

/*
 * Write the candidates: the list, then what of the path has left it, in order.
 */
__device__ static inline void
write_candidates(const LinkBatch &batch, const Walk &walk, LinkShared *shared, uint32_t item)
{
	LinkEntry *to = batch.candidates + (size_t) item * batch.room;
	uint32_t npath = walk.expanded < LINK_PATH ? walk.expanded : LINK_PATH;
	LinkEntry last = walk.count == walk.ef ? walk.list[walk.count - 1] | 1 : LINK_NO_ENTRY;

	for (uint32_t i = threadIdx.x; i < walk.count; i += LINK_THREADS)
		to[i] = walk.list[i] & ~1ull;
	if (threadIdx.x < npath && shared->path[threadIdx.x] > last)
	{
		LinkEntry own = shared->path[threadIdx.x];
		uint32_t before = 0;

		for (uint32_t j = 0; j < npath; j++)
			before += shared->path[j] > last && shared->path[j] < own;
		to[walk.count + before] = own;
		atomicAdd(&shared->left, 1u);
	}
	if (threadIdx.x < LINK_EQUALS)
		batch.equals[(size_t) item * LINK_EQUALS + threadIdx.x] =
			shared->equals[threadIdx.x] == LINK_NO_ENTRY ? NO_SLOT
														 : link_slot(shared->equals[threadIdx.x]);
	__syncthreads();
	if (threadIdx.x == 0)
		batch.ncandidates[item] = walk.count + shared->left;
}

/* Empty what the block keeps. */
__device__ static inline void
begin_walk(const WalkLayout &layout, const LinkBatch &batch, unsigned char *memory, WalkPart part,
		   Walk *walk, LinkShared *shared)
{
	uint32_t share = fresh_share(layout.tile, LINK_WARPS);

	walk->list = (Entry *) (memory + layout.list);
	walk->other = (Entry *) (memory + layout.list + layout.list_bytes);
	walk->candidates = (Entry *) (memory + layout.candidates);
	walk->fresh = (uint32_t *) (memory + layout.fresh) + threadIdx.x / WARP * share;
	walk->table = (uint32_t *) (memory + layout.table);
	walk->places = layout.places;
	walk->count = walk->measured = walk->forgotten = walk->round = walk->expanded =
		walk->iterations = 0;
	walk->ef = walk->room = batch.ef;
	walk->scale = 0;
	for (uint32_t i = threadIdx.x; i < walk->places / 4; i += LINK_THREADS)
		((uint4 *) walk->table)[i] = make_uint4(NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT);
	if (threadIdx.x < LINK_EQUALS)
		shared->equals[threadIdx.x] = LINK_NO_ENTRY;
	if (threadIdx.x == 0)
	{
		shared->walk.found[0] = shared->walk.found[1] = shared->walk.fresh = 0;
		shared->walk.bound = 0;
		shared->walk.open_from = shared->walk.gathered = 0;
		shared->walk.part = part;
		shared->noted = shared->left = 0;
	}
}

/*
 * Walk from the seeds, or from the lists nearest to the row, to a list without
 * unexpanded slots; `part` says whether it is to have copies of other rows.
 * All threads, after a barrier.
 */
template <typename T, int TERM, bool CODES>
__device__ static inline void
walk_from_seeds(const MirrorView &mirror, const LinkBatch &batch, const WalkLayout &layout,
				unsigned char *memory, WalkPart part, Walk *walk, LinkShared *shared, uint32_t item)
{
	uint32_t self = batch.slots[item];
	uint32_t seeded = 0,
			 equals_left = EXPANDED_EQUALS,
			 total;
	LinkSource source;

	begin_walk(layout, batch, memory, part, walk, shared);
	__syncthreads();
	if (batch.lists != NULL)
	{
		total = list_source(mirror, batch, shared, item, &source);
		walk_round<T, TERM, CODES>(mirror, batch, layout, walk, shared, self, source, total);
		seeded = mirror.nseeds;
	}
#pragma unroll 1
	while ((total = next_source(mirror, walk, shared, &seeded, &equals_left, &source)) > 0)
		walk_round<T, TERM, CODES>(mirror, batch, layout, walk, shared, self, source, total);
}

/* Find one row's candidates. All threads; ends with a barrier. */
template <typename T, int TERM, bool CODES>
__device__ static inline void
walk_for_row(const MirrorView &mirror, const LinkBatch &batch, const WalkLayout &layout,
			 unsigned char *memory, LinkShared *shared, uint32_t item)
{
	const ComparedRows compared = CODES ? coded_rows(mirror) : stored_rows(mirror);
	uint32_t self = batch.slots[item];
	uint32_t key = pair_key<T, TERM>(mirror, self, self, true, fast_team(mirror.stride));
	uint32_t coded = CODES ? code_equal_key<TERM>(mirror, batch, self) : key;
	WalkPart part = WALK_PLAIN;
	Walk walk;

	for (uint32_t i = threadIdx.x; CODES && i < mirror.code_stride / 16; i += LINK_THREADS)
		((uint4 *) (memory + layout.codes))[i] = __ldcg(code_row(mirror, self) + i);
	if (threadIdx.x == 0)
	{
		shared->equal_key = coded;
		shared->exact_key = key;
		shared->code = (const uint4 *) (memory + layout.codes);
		shared->term = CODES ? batch.code_terms[self] : 0;
	}
#pragma unroll 1
	for (;;)
	{
		walk_from_seeds<T, TERM, CODES>(mirror, batch, layout, memory, part, &walk, shared, item);
		if (part == WALK_DISTINCT || !has_many_copies(compared, walk, &shared->walk))
			break;
		part = WALK_DISTINCT;
		__syncthreads();
	}
	if (batch.mates)
		look_at_mates<T, TERM, CODES>(mirror, batch, layout, &walk, shared, item);
	__syncthreads();
	write_candidates(batch, walk, shared, item);
	__syncthreads();
}

template <typename T, int TERM, bool CODES>
__global__ void
__launch_bounds__(LINK_THREADS, CODES ? LINK_CODE_BLOCKS : 8)
	link_walk_kernel(const MirrorView mirror, const LinkBatch batch, const WalkLayout layout,
					 uint32_t first, uint32_t end)
{
	__shared__ LinkShared shared;
	DYNAMIC_SHARED(memory);

#pragma unroll 1
	for (uint32_t turn = first + blockIdx.x; turn < end; turn += gridDim.x)
		walk_for_row<T, TERM, CODES>(mirror, batch, layout, memory, &shared,
									 link_item(batch, turn));
}

/* --- the host's part ------------------------------------------------------ */

typedef void (*LinkWalkKernel)(const MirrorView, const LinkBatch, const WalkLayout, uint32_t,
							   uint32_t);

#define LINK_WALK_KERNEL(T, TERM) link_walk_kernel<T, TERM, false>

static const LinkWalkKernel link_walk_kernels[TYPES_AND_TERMS_COUNT] =
	TYPES_AND_TERMS(LINK_WALK_KERNEL);

/* Of the same pairs, those that have codes. */
static const LinkWalkKernel code_walk_kernels[TYPES_AND_TERMS_COUNT] = {
	link_walk_kernel<float, TERM_PRODUCT, true>,
	link_walk_kernel<float, TERM_SQUARE, true>,
	NULL,
	link_walk_kernel<__half, TERM_PRODUCT, true>,
	link_walk_kernel<__half, TERM_SQUARE, true>,
	NULL,
	NULL};

/*
 * Lay out a block's shared memory: where rows are measured by codes, with room
 * for the row's own.
 */
static WalkLayout
lay_out_link_walk(const MirrorView *mirror, uint32_t ef)
{
	WalkLayout layout = {};
	uint32_t tile = (WALK_WIDTH * mirror->degree + 31) / 32 * 32;

	layout.width = WALK_WIDTH;
	layout.tile = tile < MIN_TILE ? MIN_TILE : tile;
	layout.places = power_of_two(2 * (ef + layout.tile));
	layout.places = layout.places < MIN_PLACES ? MIN_PLACES : layout.places;
	layout.list = mirror->code_stride;
	layout.list_bytes = (ef + 1) / 2 * 2 * (uint32_t) sizeof(Entry);
	layout.candidates = layout.list + 2 * layout.list_bytes;
	layout.fresh = layout.candidates + layout.tile * (uint32_t) sizeof(Entry);
	layout.table = layout.fresh + (LINK_WARPS * fresh_share(layout.tile, LINK_WARPS) + WARP) *
									  (uint32_t) sizeof(uint32_t);
	layout.bytes = layout.table + layout.places * (uint32_t) sizeof(uint32_t);
	return layout;
}

size_t
link_walk_bytes(const MirrorView *mirror, uint32_t ef)
{
	return lay_out_link_walk(mirror, ef).bytes + sizeof(LinkShared);
}

cudaError_t
link_walk_prepare(size_t shared_room)
{
	size_t room = shared_room - sizeof(LinkShared) - 64;
	cudaError_t error = allow_shared(link_walk_kernels, room);

	return error == cudaSuccess ? allow_shared(code_walk_kernels, room) : error;
}

cudaError_t
link_walk_launch(const MirrorView *mirror, const LinkBatch *batch, CudaLinkPart part,
				 cudaStream_t stream)
{
	WalkLayout layout = lay_out_link_walk(mirror, batch->ef);
	const LinkWalkKernel *kernels =
		batch->code_terms != NULL ? code_walk_kernels : link_walk_kernels;
	LinkWalkKernel kernel = kernels[type_and_term(mirror->type, mirror->metric)];

	LAUNCH(kernel, part.count < part.blocks ? part.count : part.blocks, LINK_THREADS, layout.bytes,
		   stream, *mirror, *batch, layout, part.first, part.first + part.count);
	return cudaGetLastError();
}
