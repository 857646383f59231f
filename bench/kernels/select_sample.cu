/*
 * select_sample.cu
 *		Selection by a sample: k up to 1,024 of long rows. (Splitters: Ribizel,
 *		Anzt 2020; one pass behind them, buffers: Hanák 2023, 4.)
 *
 * 1 votes		A row is cut into strata of equal length, and eight neighbours
 *				are read at a hashed place in each. A vote is the least item of
 *				what a thread or some threads read; strata go to votes in turn,
 *				so neighbours never share one. 128 votes per row.
 * 2 pass		The threshold is the vote of a rank such that fewer than k items
 *				up to it are improbable: of k items, how many were read is at
 *				most Poisson's with the mean 8 strata k / n, and the rank is
 *				where its tail is below 10^-9; never more than k, for k votes
 *				are k items. Blocks read all numbers and keep the items up to
 *				the threshold: in shared memory, then with one addition a block
 *				in the row's places. The last block of a row cuts what was kept
 *				down to little more than k, by bins between the least and the
 *				threshold, and again between the edges of a bin, and ranks these
 *				by counting (select_sample.cuh).
 * 3 rescue		A row of which fewer than k items or more than there are places
 *				for were kept is selected from anew, by queues of a block.
 *				Others cost this launch only. Nothing waits for the host.
 *
 * The threshold is an item: of equal numbers those at lower places are before
 * it, so they are as few as others. It is a finite number, so NaN is never
 * compared; a row with fewer than k finite numbers is for the rescue. Hashed
 * places in strata: rows that rise or fall have the same number in each, and
 * pass at most eight times as many as random ones; places are for that.
 *
 * Map: 1: grid rows x members, 128 threads, up to four units of two loads of 16
 * bytes in flight each. 2: grid rows x parts, 256 threads, four loads of 16
 * bytes in flight, 40 warps on an SM; a part takes every parts-th tile. 3: grid
 * rows x parts, 128 or 256 threads. Loads begin at the row's first multiple of
 * 16 bytes.
 *		registers	16 numbers of a tile, and what comes of it
 *		shared		2: a queue of 1,536 items, 256 bins: 13 KB. 3:
 *					select_block.cu
 *		global		128 votes, places for what is kept, a state of 24 bytes per
 *					row; 3: k items per part
 * Reads each number once, and 32 bytes of each 512 to 1,024 numbers before.
 * Bound: memory. Each launch begins while the one before it ends, where the
 * device can do so. Launched by select_ways.cu.
 */
#include <math.h>

#include "select_block.cuh"
#include "select_sample.cuh"

#define VOTERS 128u /* threads of a block that votes */
#define VOTES 128u	/* of a row */
#define UNIT 8u		/* neighbours that are read at a place */
#define UNITS_MAX 4u
#define STRATUM 1024u /* numbers that a row grows by for each further place, up to so many places */
#define PLACES_MAX 65536u
#define TAIL 1e-9 /* probability that a row of random numbers is for the rescue */
#define RANK_MAX 64u

#define READS 4u
#define TILE (THREADS * AT_A_TIME * READS)
#define PASS_BLOCKS 5u /* on an SM */
#define PASS_WAVES 4u  /* of blocks, of rows that are too many for one */
#define PASS_TILES 8u  /* of a block, then, at least */

/* The greatest item of a finite number. */
#define LAST_FINITE 0xFF7FFFFFFFFFFFFFull

/* --- launches that overlap ------------------------------------------------ */

/*
 * Let the next kernel of this stream begin; it waits where it needs what this
 * one writes.
 */
__device__ static INLINE void
let_next_begin()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/*
 * Wait until the kernel before has ended and what it wrote is there. All
 * threads.
 */
__device__ static INLINE void
wait_for_last()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	cudaGridDependencySynchronize();
#endif
}

/* --- votes ---------------------------------------------------------------- */

/* How many numbers of a row are before its first multiple of 16 bytes. */
__device__ static INLINE uint32_t
head_of(const SamplePlan &plan, uint32_t row)
{
	uint32_t head =
		(uint32_t) (0 - ((size_t) (plan.rows.values + row * plan.rows.stride) >> 2)) & 3;

	return head < plan.n ? head : plan.n;
}

/* Where the unit of a stratum begins. */
__device__ static INLINE uint32_t
unit_place(uint32_t stratum, uint32_t strata, uint32_t numbers)
{
	uint32_t first = (uint32_t) ((uint64_t) stratum * numbers / strata) & ~(UNIT - 1);
	uint32_t places = numbers / strata / UNIT;
	uint32_t hash = (stratum + 1) * 2654435769u;

	hash = (hash ^ (hash >> 15)) * 2246822519u;
	hash ^= hash >> 13;
	return first + (uint32_t) ((uint64_t) hash * places >> 32) * UNIT;
}

/*
 * The votes of a row. Of VOTES x members threads of a row each reads its units;
 * those with the same vote are neighbours.
 */
__global__ void __launch_bounds__(VOTERS) sample_votes_kernel(const SamplePlan plan)
{
	__shared__ Item least_of[VOTERS / WARP];
	uint32_t row = blockIdx.x / plan.members;
	uint32_t voter = blockIdx.x % plan.members * VOTERS + threadIdx.x;
	uint32_t vote = voter / plan.members,
			 member = voter % plan.members;
	uint32_t head = head_of(plan, row);
	Item least = NO_ITEM;
	NumberRows::Four four[UNITS_MAX][2];
	uint32_t place[UNITS_MAX];

	let_next_begin();
	if (voter == 0)
		plan.state[row] = {NO_ITEM, 0, 0, 0, 0};
#pragma unroll
	for (uint32_t i = 0; i < UNITS_MAX; i++)
		if (i < plan.units)
		{
			place[i] = head + unit_place((member * plan.units + i) * VOTES + vote,
										 VOTES * plan.members * plan.units, plan.n - head);
			four[i][0] = plan.rows.read(row, place[i], plan.n);
			four[i][1] = plan.rows.read(row, place[i] + AT_A_TIME, plan.n);
		}
#pragma unroll
	for (uint32_t i = 0; i < UNITS_MAX; i++)
		if (i < plan.units)
		{
#pragma unroll
			for (uint32_t j = 0; j < UNIT; j++)
				least = keep_item(least,
								  NumberRows::item(four[i][j / AT_A_TIME], j % AT_A_TIME,
												   place[i] + j / AT_A_TIME * AT_A_TIME),
								  true);
		}
#pragma unroll
	for (uint32_t distance = WARP / 2; distance > 0; distance >>= 1)
	{
		Item other = __shfl_xor_sync(FULL_WARP, least, (int) distance);

		if (distance < plan.members)
			least = keep_item(least, other, true);
	}
	if (plan.members > WARP)
	{
		if (threadIdx.x % WARP == 0)
			least_of[threadIdx.x / WARP] = least;
		__syncthreads();
		for (uint32_t i = 1; i < plan.members / WARP; i++)
			least = keep_item(least, least_of[(threadIdx.x / WARP + i) % (VOTERS / WARP)], true);
	}
	if (member == 0)
		plan.votes[(size_t) row * VOTES + vote] = least;
}

/*
 * The vote of the wanted rank, or the greatest finite number. All threads; ends
 * with a barrier.
 */
__device__ static INLINE Item
find_threshold(const SamplePlan &plan, uint32_t row, PassShared *shared)
{
	if (threadIdx.x < WARP)
	{
		Item votes[VOTES / WARP];
		Item threshold;

#pragma unroll
		for (uint32_t i = 0; i < VOTES / WARP; i++)
			votes[i] = __ldcg(&plan.votes[(size_t) row * VOTES + i * WARP + threadIdx.x]);
		sort_items<0, VOTES / WARP>(votes);
		threshold = item_at(votes, plan.rank - 1);
		if (threadIdx.x == 0)
			shared->threshold = threshold < LAST_FINITE ? threshold : LAST_FINITE;
	}
	__syncthreads();
	return shared->threshold;
}

/* --- the pass ------------------------------------------------------------- */

/* A thread's numbers of a tile; those that are not there are NaN. */
__device__ static INLINE void
read_tile(const SamplePlan &plan, uint32_t row, uint32_t first, NumberRows::Four (&four)[READS])
{
	const float *at = plan.rows.values + row * plan.rows.stride + first;

	if (first <= plan.n - ((READS - 1) * THREADS * AT_A_TIME + AT_A_TIME))
	{
#pragma unroll
		for (uint32_t r = 0; r < READS; r++)
		{
			float4 raw = __ldg((const float4 *) (at + r * THREADS * AT_A_TIME));

			four[r] = {{raw.x, raw.y, raw.z, raw.w}};
		}
		return;
	}
#pragma unroll
	for (uint32_t r = 0; r < READS; r++)
		four[r] = plan.rows.read(row, first + r * THREADS * AT_A_TIME, plan.n);
}

/*
 * Whether any of them is up to a limit; in four chains, for each waits for its
 * comparison before.
 */
__device__ static INLINE bool
any_passes(const NumberRows::Four (&four)[READS], float limit)
{
	bool any[READS];

#pragma unroll
	for (uint32_t r = 0; r < READS; r++)
		any[r] = (four[r].value[0] <= limit) | (four[r].value[1] <= limit) |
				 (four[r].value[2] <= limit) | (four[r].value[3] <= limit);
	return any[0] | any[1] | any[2] | any[3];
}

/* Keep an item: in the block's queue, else at once in the row's places. */
__device__ static INLINE void
keep_passing(const SamplePlan &plan, uint32_t row, Item item, PassShared *shared)
{
	uint32_t place = atomicAdd(&shared->queued, 1u);

	if (place < QUEUE)
	{
		shared->queue[place] = item;
		return;
	}
	place = atomicAdd(&plan.state[row].kept, 1u);
	if (place < plan.room)
		plan.kept[(size_t) row * plan.room + place] = item;
}

/*
 * Keep what of a thread's numbers is not behind the threshold. Numbers are read
 * again: these are few, and registers have no index.
 */
__device__ static INLINE void
keep_tile(const SamplePlan &plan, uint32_t row, const NumberRows::Four (&four)[READS],
		  uint32_t first, Item threshold, PassShared *shared)
{
	float limit = select_value(threshold);
	uint32_t passing = 0;

#pragma unroll
	for (uint32_t i = 0; i < READS * AT_A_TIME; i++)
		passing |= (four[i / AT_A_TIME].value[i % AT_A_TIME] <= limit ? 1u : 0u) << i;
#pragma unroll 1
	while (passing != 0)
	{
		uint32_t bit = (uint32_t) __ffs((int) passing) - 1;
		uint32_t i = first + bit / AT_A_TIME * THREADS * AT_A_TIME + bit % AT_A_TIME;
		Item item = select_item(__ldg(plan.rows.values + row * plan.rows.stride + i), i);

		if (item <= threshold)
			keep_passing(plan, row, item, shared);
		passing &= passing - 1;
	}
}

/*
 * Put the block's queue into the row's places. All threads, after a barrier.
 * Returns whether this was the row's last block.
 */
__device__ static INLINE bool
end_block(const SamplePlan &plan, uint32_t row, PassShared *shared)
{
	uint32_t n = shared->queued < QUEUE ? shared->queued : QUEUE;

	if (threadIdx.x == 0 && n > 0)
		shared->base = atomicAdd(&plan.state[row].kept, n);
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < n; i += THREADS)
		if (shared->base + i < plan.room)
			plan.kept[(size_t) row * plan.room + shared->base + i] = shared->queue[i];
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0)
		shared->last = atomicAdd(&plan.state[row].ended, 1u) == plan.parts - 1;
	__syncthreads();
	return shared->last;
}

__global__ void __launch_bounds__(THREADS, PASS_BLOCKS) sample_pass_kernel(const SamplePlan plan)
{
	__shared__ PassShared shared;
	uint32_t row = blockIdx.x / plan.parts,
			 part = blockIdx.x % plan.parts;
	uint32_t head = head_of(plan, row);
	uint32_t first = head + part * TILE + threadIdx.x * AT_A_TIME;
	NumberRows::Four four[READS];
	Item threshold;
	float limit;

	let_next_begin();
	if (threadIdx.x == 0)
		shared.queued = 0;
	/* the first tile is on its way before the threshold is known */
	read_tile(plan, row, first, four);
	wait_for_last();
	threshold = find_threshold(plan, row, &shared);
	limit = select_value(threshold);
	if (part == 0 && threadIdx.x < head)
	{
		Item item = select_item(__ldg(plan.rows.values + row * plan.rows.stride + threadIdx.x),
								threadIdx.x);

		if (item <= threshold)
			keep_passing(plan, row, item, &shared);
	}
#pragma unroll 1
	for (uint32_t tile = part;;)
	{
		if (any_passes(four, limit))
			keep_tile(plan, row, four, first, threshold, &shared);
		tile += plan.parts;
		if (tile >= (plan.n - head + TILE - 1) / TILE)
			break;
		first = head + tile * TILE + threadIdx.x * AT_A_TIME;
		read_tile(plan, row, first, four);
	}
	if (threadIdx.x == 0 && part == 0)
		COUNT(plan.events, read, plan.n + VOTES * plan.members * plan.units * UNIT);
	__syncthreads();
	if (!end_block(plan, row, &shared))
		return;
	__threadfence();
	finish_row(plan, row, threshold, &shared);
}

/* --- the rescue ----------------------------------------------------------- */

/*
 * Rows that failed, by queues: a block per part, and the last of a row merges
 * them.
 */
template <int BLOCK, int ITEMS>
__global__ void
__launch_bounds__(BLOCK, (ITEMS > 1 ? 768 : 1024) / BLOCK)
	sample_rescue_kernel(const SamplePlan plan)
{
	__shared__ BlockQueue<BLOCK, ITEMS> shared;
	__shared__ bool last;
	uint32_t row = blockIdx.x / plan.rescue_parts;
	SampleRow *state = &plan.state[row];
	Item *out = plan.out + (size_t) row * plan.k;
	Item *lists = plan.lists + (size_t) row * plan.rescue_parts * plan.k;
	QueuePlan queue = {plan.n, plan.k, plan.rescue_parts, NULL, NULL, plan.events};

	wait_for_last();
	if (state->failed == 0)
		return;
	if (threadIdx.x == 0 && blockIdx.x % plan.rescue_parts == 0)
		COUNT(plan.events, rescues, 1);
	block_queue_part(
		plan.rows, queue, row, &state->bound,
		plan.rescue_parts == 1 ? out : lists + (size_t) (blockIdx.x % plan.rescue_parts) * plan.k,
		&shared);
	if (plan.rescue_parts == 1)
		return;
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0)
		last = atomicAdd(&state->rescued, 1u) == plan.rescue_parts - 1;
	__syncthreads();
	if (!last)
		return;
	__threadfence();

	ItemRows items = {plan.lists, (size_t) plan.rescue_parts * plan.k};

	queue.n = plan.rescue_parts * plan.k;
	queue.parts = 1;
	block_queue_part(items, queue, row, NULL, out, &shared);
}

/* --- launching ------------------------------------------------------------ */

#ifndef EMULATED
static bool overlapping;
#endif

/*
 * Whether kernels as they run here wait by themselves for the one before: not
 * those made from older code when they were loaded.
 */
cudaError_t
sample_prepare()
{
#ifdef EMULATED
	return cudaSuccess;
#else
	cudaFuncAttributes attributes;
	cudaError_t error = cudaFuncGetAttributes(&attributes, sample_pass_kernel);

	overlapping = error == cudaSuccess && attributes.ptxVersion >= 90;
	return error;
#endif
}

/* Launch a kernel that may begin while the one before it ends. */
static cudaError_t
launch_early(void (*kernel)(SamplePlan), uint32_t blocks, uint32_t threads, cudaStream_t stream,
			 const SamplePlan &plan)
{
#ifndef EMULATED
	if (overlapping)
	{
		cudaLaunchConfig_t config = {};
		cudaLaunchAttribute attribute = {};

		attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
		attribute.val.programmaticStreamSerializationAllowed = 1;
		config.gridDim = blocks;
		config.blockDim = threads;
		config.stream = stream;
		config.attrs = &attribute;
		config.numAttrs = 1;
		return cudaLaunchKernelEx(&config, kernel, plan);
	}
#endif
	LAUNCH(kernel, blocks, threads, 0, stream, plan);
	return cudaGetLastError();
}

/* Places of a row that are read for votes: a power of two. */
static uint32_t
places_of(uint32_t n)
{
	uint32_t places = VOTES;

	while (places < n / STRATUM && places < PLACES_MAX)
		places *= 2;
	return places;
}

/*
 * The least rank for which the probability that more than that many of the k
 * nearest items are among those read is less than TAIL.
 */
static uint32_t
rank_of(uint32_t n, uint32_t k)
{
	double mean = (double) places_of(n) * UNIT * k / n;
	double term = exp(-mean);
	double rest = 1 - term;
	uint32_t rank = 1;

	while (rest > TAIL && rank < k)
	{
		term *= mean / rank;
		rest -= term;
		rank++;
	}
	return rank;
}

bool
sample_serves(uint32_t n, uint32_t k)
{
	return n >= SELECT_SAMPLE_MIN && rank_of(n, k) <= RANK_MAX;
}

/*
 * As many blocks as run at once, because the fixed cost of a block is then paid
 * once; for more rows than that, enough blocks that the last ones to end are a
 * small part of all.
 */
uint32_t
sample_parts(uint32_t rows, uint32_t n, uint32_t processors)
{
	uint32_t blocks = processors * PASS_BLOCKS;
	uint64_t tiles = ((uint64_t) n + TILE - 1) / TILE;
	uint64_t parts = blocks / rows;

	if (parts == 0)
	{
		uint64_t each = rows * tiles / (blocks * PASS_WAVES);

		each = each > PASS_TILES ? each : PASS_TILES;
		parts = (tiles + each - 1) / each;
	}
	return (uint32_t) (parts < tiles ? parts : tiles);
}

/* A plan of a launch in its state; returns how many bytes of that it takes. */
static size_t
plan_of(const SelectLaunch *launch, uint32_t rescue_parts, SamplePlan *plan)
{
	uint32_t places = places_of(launch->n),
			 rank = rank_of(launch->n, launch->k);
	uint64_t room = (uint64_t) (rank * 5 / 4 + 4) * (launch->n / places + 1);
	size_t at = 0;

	memset((void *) plan, 0, sizeof(*plan));
	plan->rows.values = launch->values;
	plan->rows.stride = launch->stride;
	plan->n = launch->n;
	plan->k = launch->k;
	plan->out = launch->out;
	plan->units = places / VOTES < UNITS_MAX ? places / VOTES : UNITS_MAX;
	plan->members = places / VOTES / plan->units;
	plan->rank = rank;
	plan->room = (uint32_t) (room < launch->n ? room : launch->n);
	if (launch->places > 0 && launch->places < plan->room)
		plan->room = launch->places;
	plan->parts = launch->parts;
	plan->rescue_parts = rescue_parts;
	plan->events = launch->events;
	plan->state = (SampleRow *) launch->state;
	at += round_up(launch->rows * sizeof(SampleRow), 256);
	plan->votes = (Item *) (launch->state + at);
	at += launch->rows * VOTES * sizeof(Item);
	plan->kept = (Item *) (launch->state + at);
	at += round_up((size_t) launch->rows * plan->room * sizeof(Item), 256);
	plan->lists = (Item *) (launch->state + at);
	at += rescue_parts > 1 ? (size_t) launch->rows * rescue_parts * launch->k * sizeof(Item) : 0;
	return at;
}

size_t
sample_bytes(const SelectLaunch *launch, uint32_t rescue_parts)
{
	SamplePlan plan;

	return plan_of(launch, rescue_parts, &plan);
}

cudaError_t
sample_launch(const SelectLaunch *launch, uint32_t rescue_parts)
{
	SamplePlan plan;
	cudaError_t error;
	uint32_t blocks = launch->rows * rescue_parts;

	plan_of(launch, rescue_parts, &plan);
	LAUNCH(sample_votes_kernel, launch->rows * plan.members, VOTERS, 0, launch->stream, plan);
	error = cudaGetLastError();
	if (error == cudaSuccess)
		error = launch_early(sample_pass_kernel, launch->rows * launch->parts, THREADS,
							 launch->stream, plan);
	if (error != cudaSuccess)
		return error;
	if (launch->k <= 128)
		return launch_early(sample_rescue_kernel<128, 1>, blocks, 128, launch->stream, plan);
	if (launch->k <= 256)
		return launch_early(sample_rescue_kernel<128, 2>, blocks, 128, launch->stream, plan);
	if (launch->k <= 512)
		return launch_early(sample_rescue_kernel<128, 4>, blocks, 128, launch->stream, plan);
	return launch_early(sample_rescue_kernel<256, 4>, blocks, 256, launch->stream, plan);
}
