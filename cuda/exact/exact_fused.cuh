/*
 * exact_fused.cuh
 *		Parts of the fused searches (exact_fused.cu): plan and tables, state of
 *		a block, candidates and marks.
 */
#ifndef GPUANN_CUDA_EXACT_FUSED_CUH
#define GPUANN_CUDA_EXACT_FUSED_CUH

#include "cuda/exact/exact_cheap.cuh"
#include "cuda/exact/ring.cuh"

#define FUSED_QUERIES 16u /* maximum number of queries that share row reads, */
#define FUSED_SUMS 8u /* and whose sums are added without tensor cores */
#define CARRIED_QUERIES 4u /* maximum number of queries in the kernel's arguments, */
#define MAX_WARPS 11u	/* maximum of reading warps per block; with the serving warp, three per
						 * quarter of an SM */
#define MAX_THREADS ((MAX_WARPS + 1) * WARP)
#define MAX_STAGES 8u
#define MAX_ROWS 256u	/* per stage */
#define MIN_RING 65536u /* bytes */
#define MEASURED (WARP / EXACT_LANES) /* rows that a warp measures exactly at a time */
#define MAX_MARKS 2048u
#define RING_ALIGNED 128u /* bytes; copies to stages with less alignment take a quarter longer */
#define NO_PIECE 0xFFFFFFFFu
#define CARRIED 3072u	/* and of their bytes */

#ifdef EMULATED
#define PAUSE(ns)
#define APART inline
#else
#define APART __noinline__ /* rarely called, and large */
#define PAUSE(ns) __nanosleep(ns)
#endif

/*
 * State of a launch in device memory. Between launches all bits are set: no
 * bounds, no marks, and counters that the first increment makes 0.
 */
struct FusedTable
{
	alignas(16) uint32_t marks[FUSED_QUERIES][MAX_MARKS];
	Key bounds[FUSED_QUERIES];
	uint32_t found[FUSED_QUERIES]; /* entries written by blocks */
	uint32_t ended;				  /* number of blocks */
};

struct FusedPlan
{
	FusedTable *table;
	Key *keys; /* entries written by blocks, `max_found` per query */
	uint32_t *slots;
	double error;
	uint32_t max_found;
	uint32_t k;
	uint32_t room;	/* candidates per query and block */
	uint32_t marks; /* classes of slots, a power of two */
	uint32_t queries;
	uint32_t warps; /* reading warps; one more serves bounds */
	uint32_t team;
	uint32_t at_once; /* rows per team */
	uint32_t rows;	  /* per stage */
	uint32_t stages;
	uint32_t stage_bytes;
	uint32_t query_stride; /* bytes from one query in shared memory to the next */
	uint32_t dealt;		   /* pieces that a block's warps have from the beginning */
	/* multiplied by tensor cores (exact_fused_products.cu) */
	uint32_t chunks; /* stages that a piece needs; 0: sums are added without tensor cores */
	uint32_t chunk;	 /* bytes of a row in a stage, but for the last */
	uint32_t ring_bytes; /* per block */
	uint32_t carried;	 /* bytes of queries in the arguments */
	uint32_t mark_readers; /* blocks that compute bounds from the marks */
	uint32_t served_turns; /* turns of warps during which bounds are served; 0: there is only one
							* turn */
	uint32_t bound_polls; /* polls for a bound before a stage is measured without one */
	uint32_t few; /* up to this many entries a block writes without computing a bound first */
	uint32_t ranked; /* up to this many entries of a query the last block ranks at once */
};

/* Queries in the kernel's arguments, which saves waiting for a copy. */
struct FusedQueries
{
	DeviceQuery asked[CARRIED_QUERIES];
	uint32_t words[CARRIED / 4];
};

/* Rows that a warp samples for each of G queries. */
template <int G>
__host__ __device__ constexpr uint32_t
samples_of()
{
	return MEASURED > G ? MEASURED / G : 1;
}

/* State of a block. */
template <int G>
struct alignas(RING_ALIGNED) FusedBlock
{
	uint64_t filled[MAX_WARPS][MAX_STAGES];
	DeviceQuery asked[G];
	double norm[G];
	Key bound[G];	   /* as served */
	uint64_t limit[G]; /* the bits of a Limit */
	uint32_t buffered[G]; /* places of candidates taken */
	uint32_t written[G];  /* places of candidates written */
	uint32_t found[G];
	uint32_t first[G];
	uint32_t gathered[G];
	uint32_t piece[MAX_WARPS][MAX_STAGES];			/* piece in each stage, or NO_PIECE */
	uint32_t taken;									/* pieces taken by the block's warps */
	/* marks of the rows sampled by warps; all bits set if none */
	uint32_t sampled_marks[G][MAX_WARPS * samples_of<G>()];
	uint32_t sampled_warps;							/* number of warps that have sampled */
	uint32_t progress;								/* turns of the first warp */
	uint32_t selected;
	uint32_t last;
};

struct FusedMemory
{
	unsigned char *ring;
	unsigned char *queries;
	uint32_t *marks;
	unsigned char *candidates;
};

/* Layout of a block's shared memory. */
__host__ __device__ static inline FusedMemory
lay_out(const FusedPlan &plan, uint32_t group, unsigned char *at, size_t *bytes)
{
	FusedMemory memory;
	size_t queries = plan.ring_bytes;
	size_t marks = queries + group * plan.query_stride;
	size_t candidates = marks + plan.marks * sizeof(uint32_t);

	memory.ring = at;
	memory.queries = at + queries;
	memory.marks = (uint32_t *) (at + marks);
	memory.candidates = at + candidates;
	*bytes = candidates + group * entries_bytes(plan.room);
	return memory;
}

/* A query's candidates. */
__device__ static inline Entries
candidates_of(const FusedPlan &plan, const FusedMemory &memory, uint32_t g)
{
	unsigned char *at = memory.candidates + g * entries_bytes(plan.room);

	return entries_at(&at, plan.room);
}

__device__ static inline uint32_t
warp_sum(uint32_t value)
{
#if defined(__CUDA_ARCH__)
	return __reduce_add_sync(FULL_WARP, value);
#else
	for (int distance = 16; distance > 0; distance >>= 1)
		value += __shfl_xor_sync(FULL_WARP, value, distance);
	return value;
#endif
}

/*
 * The n-th least (from 1) of values of `bits` bits distributed over a warp.
 * below(x) returns how many of a lane's values are less than x. All bits are
 * set if there are fewer than n values. Called by a warp.
 */
template <typename V, typename Below>
__device__ static inline V
nth_least(uint32_t bits, uint32_t n, const Below &below)
{
	V found = 0;

#pragma unroll 1
	for (uint32_t bit = bits; bit-- > 0;)
	{
		V test = found | (V) 1 << bit;

		if (warp_sum(below(test)) < n)
			found = test;
	}
	return found;
}

/*
 * Lower the bound of a query to the k-th least of its n marks. Called by a
 * warp, with `work` as its shared memory.
 */
__device__ static APART void
bound_from_marks(const uint32_t *marks, uint32_t n, uint32_t k, uint32_t *work, Key *bound)
{
	uint32_t lane = threadIdx.x % WARP;
	uint4 *four = (uint4 *) work;
	uint32_t mark;

#pragma unroll 4
	for (uint32_t i = lane; i < n / 4; i += WARP)
		four[i] = __ldcg((const uint4 *) marks + i);
	__syncwarp();
	mark = nth_least<uint32_t>(32, k, [&](uint32_t test) {
		uint32_t less = 0;

#pragma unroll 2
		for (uint32_t i = lane; i < n / 4; i += WARP)
		{
			uint4 some = four[i];

			less += (some.x < test) + (some.y < test) + (some.z < test) + (some.w < test);
		}
		return less;
	});
	__syncwarp();
	if (lane == 0 && mark != 0xFFFFFFFFu)
		atomicMin(bound, (Key) mark << 32 | 0xFFFFFFFFu);
}

/*
 * A bound from the k-th least of n marks, at most two per lane; NO_KEY if there
 * are fewer. Called by a warp.
 */
__device__ static inline Key
bound_from_few_marks(const volatile uint32_t *marks, uint32_t n, uint32_t k)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t mine[2] = {lane < n ? marks[lane] : 0xFFFFFFFFu,
						lane + WARP < n ? marks[lane + WARP] : 0xFFFFFFFFu};
	uint32_t before[2] = {0, 0}; /* equal ones are ordered by place */
	uint32_t found = 0xFFFFFFFFu;

#pragma unroll
	for (uint32_t i = 0; i < 2; i++)
#pragma unroll 8
		for (uint32_t j = 0; j < WARP; j++)
		{
			uint32_t other = __shfl_sync(FULL_WARP, mine[i], (int) j);

			before[0] += other < mine[0] || (other == mine[0] && i == 0 && j < lane);
			before[1] += other < mine[1] || (other == mine[1] && (i == 0 || j < lane));
		}
#pragma unroll
	for (uint32_t i = 0; i < 2; i++)
	{
		uint32_t who = __ballot_sync(FULL_WARP, before[i] + 1 == k);

		if (who != 0)
			found = __shfl_sync(FULL_WARP, mine[i], __ffs((int) who) - 1);
	}
	return found == 0xFFFFFFFFu ? NO_KEY : (Key) found << 32 | 0xFFFFFFFFu;
}

/*
 * Keep the entries, of n, that are not after (key, slot). Returns how many.
 * Called by a warp.
 */
__device__ static inline uint32_t
keep_entries(const Entries &entries, uint32_t n, Key key, uint32_t slot)
{
	uint32_t lane = threadIdx.x % WARP;
	uint32_t kept = 0;

	for (uint32_t base = 0; base < n; base += WARP)
	{
		uint32_t i = base + lane;
		Key mine = i < n ? entries.key[i] : NO_KEY;
		uint32_t its = i < n ? entries.slot[i] : NO_SLOT;
		bool keep = i < n && !entry_before(key, slot, mine, its);
		uint32_t keepers = __ballot_sync(FULL_WARP, keep);

		if (keep)
		{
			uint32_t place = kept + (uint32_t) __popc(keepers & ((1u << lane) - 1));

			entries.key[place] = mine;
			entries.slot[place] = its;
		}
		kept += (uint32_t) __popc(keepers);
		__syncwarp();
	}
	return kept;
}

/*
 * Reduce a query's candidates, whose room is full, to the best k, and lower the
 * bound to the last of these. Called by a warp; others with more candidates
 * wait.
 */
__device__ static APART void
cut_candidates(Key *keys, uint32_t *slots, uint32_t room, uint32_t k, volatile uint32_t *buffered,
			   volatile uint32_t *written, Key *bound)
{
	uint32_t lane = threadIdx.x % WARP;
	Entries entries = {keys, slots};
	uint32_t less = 0;
	uint32_t slot;
	uint32_t kept;
	Key key;

	while (__ballot_sync(FULL_WARP, *written != room) != 0)
		PAUSE(100);
	__threadfence_block();
	key = nth_least<Key>(64, k, [&](Key test) {
		uint32_t n = 0;

		for (uint32_t i = lane; i < room; i += WARP)
			n += keys[i] < test;
		return n;
	});
	for (uint32_t i = lane; i < room; i += WARP)
		less += keys[i] < key;
	less = warp_sum(less);
	slot = nth_least<uint32_t>(32, k - less, [&](uint32_t test) {
		uint32_t n = 0;

		for (uint32_t i = lane; i < room; i += WARP)
			n += keys[i] == key && slots[i] < test;
		return n;
	});
	kept = keep_entries(entries, room, key, slot);
	__threadfence_block();
	if (lane == 0)
	{
		atomicMin(bound, key);
		*written = kept;
		__threadfence_block();
		*buffered = kept;
	}
	__syncwarp();
}

/*
 * Append entries, of lanes with `wanted`, to the candidates of their queries.
 * Called by a warp.
 */
template <int G>
__device__ static inline void
fused_append(const FusedPlan &plan, FusedBlock<G> *block, const FusedMemory &memory, bool wanted,
			 uint32_t g, Key key, uint32_t slot)
{
	while (__ballot_sync(FULL_WARP, wanted) != 0)
	{
		uint32_t place = wanted ? atomicAdd(&block->buffered[g], 1u) : 0;
		bool first = wanted && place == plan.room; /* the first that finds no room */
		uint32_t cutters;

		if (wanted && place < plan.room)
		{
			Entries entries = candidates_of(plan, memory, g);

			entries.key[place] = key;
			entries.slot[place] = slot;
			__threadfence_block();
			atomicAdd(&block->written[g], 1u);
			wanted = false;
		}
		for (cutters = __ballot_sync(FULL_WARP, first); cutters != 0; cutters &= cutters - 1)
		{
			uint32_t full = __shfl_sync(FULL_WARP, g, __ffs((int) cutters) - 1);
			Entries entries = candidates_of(plan, memory, full);

			cut_candidates(entries.key, entries.slot, plan.room, plan.k, &block->buffered[full],
						   &block->written[full], &plan.table->bounds[full]);
		}
		while (__ballot_sync(FULL_WARP, wanted && *(volatile uint32_t *) &block->buffered[g] >=
													  plan.room) != 0)
			PAUSE(100);
	}
}

typedef void (*FusedKernel)(const MirrorView, const BatchView, const FusedPlan, const FusedQueries);

/*
 * exact_fused_products.cu: the kernel that multiplies by tensor cores; whether
 * it takes a batch; planning a block with `room` bytes of shared memory, which
 * returns false if it does not fit
 */
extern cudaError_t products_prepare(size_t room);
extern bool products_take(const ExactLaunch *launch);
extern bool products_plan(const ExactLaunch *launch, size_t room, FusedPlan *plan, size_t *bytes);
extern FusedKernel products_kernel(const ExactLaunch *launch);

#endif /* GPUANN_CUDA_EXACT_FUSED_CUH */
