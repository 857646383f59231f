/*
 * link_repair.cu
 *		Repair on the device: live rows that name dead slots choose anew. The
 *		rule is that of src/engine/repair_row.c.
 *
 *		find	a warp per row of a range: whether it names a dead slot, a bit
 *				each. Reads graph rows once, and their dead bits from L2
 *		gather	a warp per row of a batch: its live neighbours, an heir for each
 *				dead one, and the live rows that are reached over dead ones
 *				only, nearest circles first; or what a walk found, with these.
 *				Measured, sorted, the row's own and the nearest of the others
 *				are its candidates: then link_rows.cu chooses, writes, and gives
 *				reverse edges, as of rows that are linked. Shared, per warp: the
 *				set of slots seen (8 KB), what was found (8 KB), dead rows to
 *				read (8 bytes x degree), duplicates (512 bytes). Reads (2 degree
 *				+ 1) graph rows and GATHER_MAX rows at most
 * Bound: latency, of dependent reads of graph rows (four at a time) and of
 * rows; many warps hide it. Driven by cuda/jobs/link.cu and link_repair_job.cu.
 */
#include "cuda/link/link_measure.cuh"

#define GATHER_MAX 1024u  /* rows looked at for one */
#define GATHER_SEEN 2048u  /* places: GATHER_MAX, 2 x 200 dead ones, and what a few rows more
						    * bring */
#define GATHER_AHEAD 4u	   /* dead rows read at a time */
#define REPAIR_DIVISOR 2u  /* a row that finds fewer than degree / this is repaired again behind a
						    * walk */

/* --- which rows ----------------------------------------------------------- */

/* Mark rows of [first, end) that name dead slots. */
__global__ void __launch_bounds__(LINK_THREADS, 8)
	repair_find_kernel(const MirrorView mirror, uint32_t *found, uint32_t first, uint32_t end)
{
	uint32_t lane = threadIdx.x % WARP;

#pragma unroll 1
	for (uint32_t slot = first + blockIdx.x * LINK_WARPS + threadIdx.x / WARP; slot < end;
		 slot += gridDim.x * LINK_WARPS)
	{
		bool dead = false;

		for (uint32_t i = lane; i < mirror.degree; i += WARP)
		{
			uint32_t neighbour = mirror.graph[(size_t) slot * mirror.degree + i];

			dead = dead || (neighbour < mirror.rows && bit_of(mirror.dead, neighbour));
		}
		if (__ballot_sync(FULL_WARP, dead) != 0 && lane == 0)
			atomicOr(&found[slot >> 5], 1u << (slot & 31));
	}
}

/* --- candidates of a row -------------------------------------------------- */

/*
 * What a warp knows of the rows around one. What is found is an entry without a
 * distance at first; its flag says that it is the row's own.
 */
struct Around
{
	uint32_t *seen;
	LinkEntry *found; /* GATHER_MAX */
	uint32_t *dead;	  /* rows to read: 2 x degree */
	LinkEntry *equals; /* LINK_EQUALS; rank << 32 | slot, each the least of its place */
	uint32_t nfound;
	uint32_t ndead;
	uint32_t most_dead;
	uint32_t self;
};

__host__ __device__ static inline uint32_t
gather_bytes(uint32_t degree)
{
	return GATHER_SEEN * 4 + GATHER_MAX * 8 + 2 * degree * 4 + LINK_EQUALS * 8;
}

/* Whether a slot had not been seen. */
__device__ static inline bool
is_news(const Around &around, uint32_t slot)
{
	for (uint32_t place = slot * 0x9E3779B1u % GATHER_SEEN;; place = (place + 1) % GATHER_SEEN)
	{
		uint32_t old = atomicCAS(&around.seen[place], NO_SLOT, slot);

		if (old == NO_SLOT)
			return true;
		if (old == slot)
			return false;
	}
}

/* Note live slots that lanes have. */
__device__ static inline void
note_live(Around *around, bool has, uint32_t slot, bool own)
{
	uint32_t lane = threadIdx.x % WARP;
	bool fresh = has && around->nfound < GATHER_MAX && is_news(*around, slot);
	uint32_t ballot = __ballot_sync(FULL_WARP, fresh);
	uint32_t place = around->nfound + (uint32_t) __popc(ballot & ((1u << lane) - 1));

	if (fresh && place < GATHER_MAX)
		around->found[place] = (LinkEntry) (slot << 1 | (own ? 1u : 0u));
	around->nfound += (uint32_t) __popc(ballot);
	around->nfound = around->nfound < GATHER_MAX ? around->nfound : GATHER_MAX;
	__syncwarp();
}

/*
 * Note dead slots that lanes have: their rows will be read, of as many as there
 * is room for.
 */
__device__ static inline void
note_dead(Around *around, bool has, uint32_t slot)
{
	uint32_t lane = threadIdx.x % WARP;
	bool fresh = has && around->ndead < around->most_dead && is_news(*around, slot);
	uint32_t ballot = __ballot_sync(FULL_WARP, fresh);
	uint32_t place = around->ndead + (uint32_t) __popc(ballot & ((1u << lane) - 1));

	if (fresh && place < around->most_dead)
		around->dead[place] = slot;
	around->ndead += (uint32_t) __popc(ballot);
	around->ndead = around->ndead < around->most_dead ? around->ndead : around->most_dead;
	__syncwarp();
}

/*
 * Take a part of a row: its dead slots, and its live ones; the first of these
 * that is news is the heir, if one is wanted.
 */
__device__ static inline void
take_part(const MirrorView &mirror, Around *around, uint32_t slot, bool dead, bool own,
		  bool *wants_heir)
{
	bool has = slot < mirror.rows && slot != around->self;
	uint32_t before = around->nfound;

	note_dead(around, has && dead, slot);
	note_live(around, has && !dead, slot, own);
	if (*wants_heir && around->nfound > before)
	{
		if (threadIdx.x % WARP == 0)
			around->found[before] |= 1;
		*wants_heir = false;
		__syncwarp();
	}
}

/*
 * Read the row's own neighbours, then the rows of dead ones, a few at a time,
 * in their order.
 */
__device__ static inline void
look_around(const MirrorView &mirror, Around *around)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t own_dead;
	bool no_heir = false;

	for (uint32_t base = 0; base < mirror.degree; base += WARP)
	{
		uint32_t i = base + lane;
		uint32_t slot =
			i < mirror.degree ? mirror.graph[(size_t) around->self * mirror.degree + i] : NO_SLOT;

		take_part(mirror, around, slot, slot < mirror.rows && bit_of(mirror.dead, slot), true,
				  &no_heir);
	}
	own_dead = around->ndead;
#pragma unroll 1
	for (uint32_t next = 0, ahead; next < around->ndead && around->nfound < GATHER_MAX;
		 next += ahead)
	{
		bool wants_heir[GATHER_AHEAD];

		ahead = around->ndead - next < GATHER_AHEAD ? around->ndead - next : GATHER_AHEAD;

#pragma unroll
		for (uint32_t r = 0; r < GATHER_AHEAD; r++)
			wants_heir[r] = next + r < own_dead;
#pragma unroll 1
		for (uint32_t base = 0; base < mirror.degree; base += WARP)
		{
			uint32_t i = base + lane;
			uint32_t slots[GATHER_AHEAD];
			bool dead[GATHER_AHEAD];

#pragma unroll
			for (uint32_t r = 0; r < GATHER_AHEAD; r++)
				slots[r] = i < mirror.degree && r < ahead
							   ? mirror.graph[(size_t) around->dead[next + r] * mirror.degree + i]
							   : NO_SLOT;
#pragma unroll
			for (uint32_t r = 0; r < GATHER_AHEAD; r++)
				dead[r] = slots[r] < mirror.rows && bit_of(mirror.dead, slots[r]);
#pragma unroll
			for (uint32_t r = 0; r < GATHER_AHEAD; r++)
				take_part(mirror, around, slots[r], dead[r], false, &wants_heir[r]);
		}
	}
}

/* Note what a walk has found, and its duplicates. */
__device__ static inline void
take_walk(const MirrorView &mirror, const LinkBatch &batch, Around *around, uint32_t item)
{
	uint32_t lane = threadIdx.x % WARP;
	const LinkEntry *candidates = batch.candidates + (size_t) item * batch.room;
	const uint32_t *equals = batch.equals + (size_t) item * LINK_EQUALS;
	uint32_t ncandidates = batch.ncandidates[item];

	for (uint32_t base = 0; base < ncandidates; base += WARP)
	{
		uint32_t slot = base + lane < ncandidates ? link_slot(candidates[base + lane]) : NO_SLOT;

		note_live(around, slot < mirror.rows && slot != around->self && !bit_of(mirror.dead, slot),
				  slot, false);
	}
	for (uint32_t base = 0; base < LINK_EQUALS; base += WARP)
	{
		uint32_t slot = equals[base + lane];

		note_live(around, slot < mirror.rows && slot != around->self && !bit_of(mirror.dead, slot),
				  slot, false);
	}
}

/* Measure what was found, and take out the row's duplicates. */
template <typename T, int TERM>
__device__ static inline void
measure_around(const MirrorView &mirror, const LinkBatch &batch, Around *around)
{
	uint32_t team = fast_team(mirror.stride);
	uint32_t teams = WARP / team;
	uint32_t lane = threadIdx.x % WARP;
	uint32_t equal_key = pair_key<T, TERM>(mirror, around->self, around->self, true, team);

#pragma unroll 1
	for (uint32_t base = 0; base < around->nfound; base += 2 * teams)
	{
		uint32_t first = base + lane / team;
		bool active[2] = {first < around->nfound, first + teams < around->nfound};
		uint32_t slots[2] = {active[0] ? link_slot(around->found[first]) : 0,
							 active[1] ? link_slot(around->found[first + teams]) : 0};
		uint32_t keys[2];
		/* the first two lanes of a team speak, each for one */
		uint32_t own = lane % team;
		uint32_t place = first + own * teams;

		pair_keys<T, TERM, 2>(mirror, around->self, slots, active, team, keys);
		__syncwarp();
		if (own < 2 && active[own])
		{
			uint32_t slot = slots[own];
			uint32_t rank = link_equal_rank(slot, around->self);

			if (keys[own] == equal_key)
				atomicMin(&around->equals[rank % batch.max_equal],
						  (LinkEntry) rank << 32 | (LinkEntry) slot);
			around->found[place] = keys[own] == equal_key
									   ? LINK_NO_ENTRY
									   : (LinkEntry) keys[own] << 32 | around->found[place];
		}
	}
	__syncwarp();
}

/*
 * Sort what was found: a bitonic network over the next power of two. Returns
 * how many entries there are, duplicates left out.
 */
__device__ static inline uint32_t
sort_around(Around *around)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t size = power_of_two(around->nfound);
	uint32_t count = 0;

	for (uint32_t i = around->nfound + lane; i < size; i += WARP)
		around->found[i] = LINK_NO_ENTRY;
	__syncwarp();
#pragma unroll 1
	for (uint32_t length = 2; length <= size; length <<= 1)
#pragma unroll 1
		for (uint32_t distance = length / 2; distance > 0; distance >>= 1)
		{
			for (uint32_t i = lane; i < size / 2; i += WARP)
			{
				uint32_t low = 2 * i - (i & (distance - 1));
				LinkEntry a = around->found[low];
				LinkEntry b = around->found[low + distance];

				if ((a > b) == ((low & length) == 0))
				{
					around->found[low] = b;
					around->found[low + distance] = a;
				}
			}
			__syncwarp();
		}
	for (uint32_t i = lane; i < around->nfound; i += WARP)
		count += around->found[i] != LINK_NO_ENTRY;
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
		count += __shfl_xor_sync(FULL_WARP, count, (int) distance);
	return count;
}

/* Write the row's own and the nearest `most` of the others, in order. */
__device__ static inline void
write_around(const LinkBatch &batch, const Around &around, uint32_t count, uint32_t most,
			 uint32_t item)
{
	uint32_t lane = threadIdx.x % WARP;
	LinkEntry *to = batch.candidates + (size_t) item * batch.room;
	uint32_t written = 0,
			 others = 0;

	for (uint32_t base = 0; base < count; base += WARP)
	{
		bool has = base + lane < count;
		LinkEntry entry = has ? around.found[base + lane] : 0;
		bool other = has && !(entry & 1);
		uint32_t other_ballot = __ballot_sync(FULL_WARP, other);
		uint32_t ballot;

		has =
			has && (!other || others + (uint32_t) __popc(other_ballot & ((1u << lane) - 1)) < most);
		ballot = __ballot_sync(FULL_WARP, has);
		if (has)
			to[written + (uint32_t) __popc(ballot & ((1u << lane) - 1))] = entry;
		written += (uint32_t) __popc(ballot);
		others += (uint32_t) __popc(other_ballot);
	}
	for (uint32_t i = lane; i < LINK_EQUALS; i += WARP)
		batch.equals[(size_t) item * LINK_EQUALS + i] =
			around.equals[i] == LINK_NO_ENTRY ? NO_SLOT : (uint32_t) around.equals[i];
	if (lane == 0)
		batch.ncandidates[item] = written;
}

template <typename T, int TERM>
__global__ void
__launch_bounds__(LINK_THREADS) repair_gather_kernel(const MirrorView mirror, const LinkBatch batch,
													 uint32_t *poor, uint32_t first, uint32_t end)
{
	DYNAMIC_SHARED(memory);
	uint32_t lane = threadIdx.x % WARP;
	Around around;

	around.found = (LinkEntry *) (memory + threadIdx.x / WARP * gather_bytes(mirror.degree));
	around.equals = around.found + GATHER_MAX;
	around.seen = (uint32_t *) (around.equals + LINK_EQUALS);
	around.dead = around.seen + GATHER_SEEN;
	around.most_dead = 2 * mirror.degree;
#pragma unroll 1
	for (uint32_t item = first + blockIdx.x * LINK_WARPS + threadIdx.x / WARP; item < end;
		 item += gridDim.x * LINK_WARPS)
	{
		uint32_t count;

		around.self = batch.slots[item];
		around.nfound = around.ndead = 0;
		for (uint32_t i = lane; i < GATHER_SEEN; i += WARP)
			around.seen[i] = NO_SLOT;
		for (uint32_t i = lane; i < LINK_EQUALS; i += WARP)
			around.equals[i] = LINK_NO_ENTRY;
		__syncwarp();
		look_around(mirror, &around);
		if (poor == NULL)
			take_walk(mirror, batch, &around, item);
		else if (around.nfound < mirror.degree / REPAIR_DIVISOR && lane == 0)
			atomicOr(&poor[around.self >> 5], 1u << (around.self & 31));
		measure_around<T, TERM>(mirror, batch, &around);
		count = sort_around(&around);
		write_around(batch, around, count, poor == NULL ? batch.ef + LINK_PATH : batch.ef, item);
		__syncwarp();
	}
}

/* --- launches ------------------------------------------------------------- */

typedef void (*GatherKernel)(const MirrorView, const LinkBatch, uint32_t *, uint32_t, uint32_t);

#define GATHER_KERNEL(T, TERM) repair_gather_kernel<T, TERM>

static const GatherKernel gather_kernels[TYPES_AND_TERMS_COUNT] = TYPES_AND_TERMS(GATHER_KERNEL);

cudaError_t
link_repair_prepare(size_t shared_room)
{
	return allow_shared(gather_kernels, shared_room);
}

size_t
link_repair_bytes(uint32_t degree)
{
	return LINK_WARPS * (size_t) gather_bytes(degree);
}

cudaError_t
link_gather_around_launch(const MirrorView *mirror, const LinkBatch *batch, CudaLinkPart part,
						  uint32_t *poor, cudaStream_t stream)
{
	uint32_t blocks = (part.count + LINK_WARPS - 1) / LINK_WARPS;

	LAUNCH(gather_kernels[type_and_term(mirror->type, mirror->metric)],
		   blocks < part.blocks ? blocks : part.blocks, LINK_THREADS,
		   link_repair_bytes(mirror->degree), stream, *mirror, *batch, poor, part.first,
		   part.first + part.count);
	return cudaGetLastError();
}

cudaError_t
link_find_launch(const MirrorView *mirror, uint32_t *found, uint32_t first, uint32_t end,
				 uint32_t blocks, cudaStream_t stream)
{
	LAUNCH(repair_find_kernel, blocks, LINK_THREADS, 0, stream, *mirror, found, first, end);
	return cudaGetLastError();
}
