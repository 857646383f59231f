/*
 * exact_fused.cu
 *		Exact search of a few queries over all rows in one kernel launch: rows
 *		are streamed through shared memory, and the last block to finish writes
 *		the results. Five queries and more are multiplied by tensor cores where
 *		that is possible (exact_fused_products.cu).
 *
 * exact_fused_kernel
 *     grid    one block per SM; 7 or 11 warps that read rows, and one that
 *             serves bounds; instantiated for 1, 2, and up to 4 and 8 queries
 *     work    A block has a range of rows, in pieces that its warps take one
 *             at a time. Each warp has a ring of stages in shared memory
 *             (ring.cuh) and refills a stage as soon as it has read it, so
 *             memory is busy while a warp measures or waits. Teams of a warp
 *             sum several rows at a time in single precision, for all queries.
 *             Rows that pass a query's limit are measured exactly in place,
 *             with eight threads per row, one per accumulator of the
 *             definition, and appended to the block's candidates. At the end
 *             each block writes its candidates that are within the bound; the
 *             last block sorts them, writes the results to host memory and
 *             raises the flag.
 *     shared  rings (workspace of the last block at the end); queries;
 *             candidates, k + 768 per query (of more than 4 queries less)
 *     global  rows, once, in slot order; norms for products; writes little
 *             more than k candidates in total, at most what blocks have room
 *             for
 *     bound   memory
 *
 * Bounds. Slots are divided into classes (slot mod 256 to 2048), and device
 * memory has a mark for each class, the least key measured in it so far. The
 * k-th least mark is an upper bound of the k-th best key, because marks belong
 * to different rows; with many more classes than k it is close to the k-th best
 * of all rows seen so far by any block. The serving warps of some blocks
 * compute bounds from the marks. The serving warps of all blocks read these
 * bounds, and publish them with the limit that follows in shared memory.
 *
 * The first marks come from sampling: a warp measures four rows of its first
 * stage, in each quarter the one nearest by cheap sums, or one for each query
 * if there are more than four. Then the warps wait a little for a bound while
 * their rings fill. The first bound is computed from the block's own samples,
 * because an access to device memory takes several microseconds while all rings
 * are being filled. The same holds for the bits of dead slots, so those of the
 * first stage are loaded before its rows.
 *
 * When a block's candidates are full, one warp reduces them to the block's k
 * best while the others wait. This is rare unless rows are ordered from far to
 * near.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/exact/exact_fused_warps.cuh"

#define TEAM 8u			/* threads per row of ordinary length */
#define MAX_AT_ONCE 4u /* rows per team */
#define LONG_ROWS 2048u /* longer rows, in bytes, have larger stages and fewer warps */
#define WARPS_OF_LONG 7u
#define MIN_STAGES 2u
#define MAX_STRIDE 8192u
#define MIN_MARKS 256u
#define MARKS_PER_K 16u
#define MARK_READERS 16u /* blocks that compute bounds from the marks, per query */
#define SPARE 768u	/* candidates of a block above k, for each of up to 4 queries; */
#define SPARE_OF_MANY 3072u /* shared by more than 4 queries */
#define MAX_K_OF_MANY 256u /* of more than 4 queries */
#define ROWS_OF_MANY 32768u /* rows from which on more than 8 queries are faster than a scan */
#define BOUND_POLLS 64u /* polls for a bound before rows are measured without one */
#define FEW_OF_BLOCK 64u

/*
 * Add N chunks, `team` apart, of A rows to their sums with all queries. All
 * loads are issued first.
 */
template <typename T, int TERM, int G, int A, int N>
__device__ static inline void
add_chunks(typename Cheap<T, TERM>::Sum (&sums)[A][G], const uint4 *const (&rows)[A],
		   const unsigned char *queries, uint32_t bytes, uint32_t chunk, uint32_t team)
{
	uint4 raw[N][A];

#pragma unroll
	for (uint32_t i = 0; i < N; i++)
#pragma unroll
		for (uint32_t r = 0; r < A; r++)
			raw[i][r] = rows[r][chunk + i * team];
#pragma unroll
	for (uint32_t i = 0; i < N; i++)
#pragma unroll
		for (uint32_t g = 0; g < G; g++)
#pragma unroll
			for (uint32_t r = 0; r < A; r++)
				Cheap<T, TERM>::add(&sums[r][g], queries + g * bytes, chunk + i * team, raw[i][r]);
}

/* Lanes among whose rows one is sampled for a query. */
template <int G>
__device__ constexpr uint32_t
sample_span()
{
	return EXACT_LANES * G < WARP ? EXACT_LANES * G : WARP;
}

/*
 * For each query, find the row nearest by cheap sum among those of
 * sample_span() lanes; NO_SLOT if there is none. All of these lanes get the
 * result. Called by a warp.
 */
template <typename T, int TERM, int G>
__device__ static inline void
nearest_by_sums(const MirrorView &mirror, const FusedPlan &plan, const FusedMemory &memory,
				const unsigned char *at, uint32_t from, uint32_t rows, uint32_t (&nearest)[G])
{
	typedef Cheap<T, TERM> Way;
	uint32_t team = plan.team;
	uint32_t lane = threadIdx.x % WARP;
	float score[G];

#pragma unroll
	for (int g = 0; g < G; g++)
	{
		score[g] = HUGE_VALF;
		nearest[g] = NO_SLOT;
	}
	for (uint32_t base = 0; base < rows; base += WARP / team)
	{
		bool there = base + lane / team < rows;
		uint32_t row = there ? base + lane / team : 0;
		double norm = TERM == TERM_PRODUCT ? __ldg(mirror.norms + from + row) : 0;
		typename Way::Sum sums[1][G];
		const uint4 *raw[1] = {(const uint4 *) (at + row * mirror.stride)};

		memset(sums, 0, sizeof(sums));
		for (uint32_t chunk = lane & (team - 1); chunk < mirror.stride / 16; chunk += team)
			add_chunks<T, TERM, G, 1, 1>(sums, raw, memory.queries, plan.query_stride, chunk,
										 team);
#pragma unroll
		for (int g = 0; g < G; g++)
		{
			float its;

			for (uint32_t distance = team / 2; distance > 0; distance >>= 1)
				Way::join(&sums[0][g], distance);
			its = Way::score(mirror, sums[0][g], norm);
			if (there && (nearest[g] == NO_SLOT || its < score[g]))
			{
				nearest[g] = row;
				score[g] = its;
			}
		}
	}
#pragma unroll
	for (int g = 0; g < G; g++)
		for (uint32_t distance = team; distance < sample_span<G>(); distance <<= 1)
		{
			float other = __shfl_xor_sync(FULL_WARP, score[g], distance);
			uint32_t row = __shfl_xor_sync(FULL_WARP, nearest[g], distance);

			if (row != NO_SLOT && (nearest[g] == NO_SLOT || other < score[g] ||
								   (other == score[g] && row < nearest[g])))
			{
				score[g] = other;
				nearest[g] = row;
			}
		}
}

/*
 * Measure rows of a warp's first stage, nearest by cheap sums, four in total or
 * one for each query, and set their marks, so that there is a bound before rows
 * are filtered. Called by a warp; `dead` is the result of load_dead_words().
 */
template <typename T, int TERM, int G>
__device__ static inline void
sample_first_stage(const MirrorView &mirror, const FusedPlan &plan, FusedBlock<G> *block,
				   const FusedMemory &memory, const unsigned char *at, uint32_t from, uint32_t rows,
				   uint32_t dead)
{
	const uint32_t TOGETHER = G < MEASURED ? G : MEASURED; /* queries whose rows are measured so */
	uint32_t lane = threadIdx.x % WARP;
	uint32_t nearest[G];

	nearest_by_sums<T, TERM>(mirror, plan, memory, at, from, rows, nearest);
#pragma unroll
	for (uint32_t first = 0; first < G; first += TOGETHER)
	{
		uint32_t mine = first + lane / EXACT_LANES % TOGETHER;
		uint32_t chosen = NO_SLOT;

#pragma unroll
		for (uint32_t g = first; g < first + TOGETHER; g++)
			chosen = g == mine ? nearest[g] : chosen;

		/* a team larger than the span has one row */
		FusedSample sample = {chosen, mine,
							  threadIdx.x / WARP * samples_of<G>() + lane / sample_span<G>(),
							  mine < plan.queries && chosen != NO_SLOT &&
								  (lane & (plan.team - 1)) < sample_span<G>()};

		sample_row<T, TERM>(mirror, plan, block, memory, at, from, sample, dead);
	}
	samples_end(block);
}

/*
 * Filter the rows of a stage at `at`, A per team at a time. Called by a warp.
 */
template <typename T, int TERM, int G, int A>
__device__ static inline void
filter_rows(const MirrorView &mirror, const FusedPlan &plan, FusedBlock<G> *block,
			const FusedMemory &memory, const Limit *limit, const unsigned char *at, uint32_t from,
			uint32_t rows)
{
	typedef Cheap<T, TERM> Way;
	const uint32_t AHEAD = A == 4 && G > 1 ? 2 : 4; /* chunks */
	uint32_t team = plan.team;
	uint32_t teams = WARP / team;
	uint32_t lane = threadIdx.x & (team - 1);
	uint32_t bytes = plan.query_stride;
	uint32_t chunks = mirror.stride / 16;

#pragma unroll 1
	for (uint32_t base = 0; base < rows; base += teams * A)
	{
		uint32_t first = base + threadIdx.x % WARP / team;
		typename Way::Sum sums[A][G];
		const uint4 *raw_rows[A];
		double norm[A];
		uint32_t passed = 0;

		memset(sums, 0, sizeof(sums));
#pragma unroll
		for (uint32_t r = 0; r < A; r++)
		{
			uint32_t row = first + r * teams < rows ? first + r * teams : 0;

			raw_rows[r] = (const uint4 *) (at + row * mirror.stride);
			norm[r] = TERM == TERM_PRODUCT ? __ldg(mirror.norms + from + row) : 0;
		}
		uint32_t chunk = lane;

		for (; chunk + (AHEAD - 1) * team < chunks; chunk += AHEAD * team)
			add_chunks<T, TERM, G, A, AHEAD>(sums, raw_rows, memory.queries, bytes, chunk, team);
		for (; chunk < chunks; chunk += team)
			add_chunks<T, TERM, G, A, 1>(sums, raw_rows, memory.queries, bytes, chunk, team);
		for (uint32_t distance = team / 2; distance > 0; distance >>= 1)
#pragma unroll
			for (uint32_t r = 0; r < A; r++)
#pragma unroll
				for (uint32_t g = 0; g < G; g++)
					Way::join(&sums[r][g], distance);
#pragma unroll
		for (uint32_t r = 0; r < A; r++)
		{
			RowSide side = {0, 0};

			if (TERM == TERM_PRODUCT)
			{
				side = row_side(mirror.metric, norm[r]);
				side.height = 0;
			}
#pragma unroll
			for (uint32_t g = 0; g < G; g++)
				if (first + r * teams < rows && g < plan.queries &&
					Way::passes(mirror, limit[g], side, sums[r][g]))
					passed |= 1u << (r * G + g);
		}
		if (__ballot_sync(FULL_WARP, passed != 0) == 0)
			continue;
#pragma unroll 1
		for (uint32_t r = 0; r < A; r++)
		{
			uint32_t row = base + r * teams;

			measure_passed_rows<T, TERM>(mirror, plan, block, memory, at, from,
										 lane == 0 ? passed >> (r * G) & ((1u << G) - 1) : 0,
										 [row, &plan](uint32_t leader, uint32_t bit,
													  uint32_t *query) {
											 *query = bit;
											 return row + leader / plan.team;
										 });
		}
	}
}

template <typename T, int TERM, int G>
__device__ static inline void
filter_stage(const MirrorView &mirror, const FusedPlan &plan, FusedBlock<G> *block,
			 const FusedMemory &memory, const Limit *limit, const unsigned char *at, uint32_t from,
			 uint32_t rows)
{
	if (plan.at_once == 4)
		filter_rows<T, TERM, G, 4>(mirror, plan, block, memory, limit, at, from, rows);
	else if (plan.at_once == 2)
		filter_rows<T, TERM, G, 2>(mirror, plan, block, memory, limit, at, from, rows);
	else
		filter_rows<T, TERM, G, 1>(mirror, plan, block, memory, limit, at, from, rows);
}

/*
 * Start filling a stage with a piece of the block, if it has that many. Called
 * by a warp.
 */
template <int G>
__device__ static inline void
fill_stage(const MirrorView &mirror, const FusedPlan &plan, FusedBlock<G> *block,
		   const Pieces &pieces, unsigned char *ring, uint32_t stage, uint32_t number)
{
	uint32_t warp = threadIdx.x / WARP;
	bool there = number < pieces.end - pieces.first;
	uint32_t from = (pieces.first + number) * plan.rows;

	if (threadIdx.x % WARP == 0)
		block->piece[warp][stage] = there ? pieces.first + number : NO_PIECE;
	ring_fill(&block->filled[warp][stage], ring + stage * plan.stage_bytes,
			  mirror.vectors + (size_t) from * mirror.stride,
			  there ? piece_rows(mirror, plan, from) * mirror.stride : 0);
}

/* Start filling a stage with the block's next free piece. Called by a warp. */
template <int G>
__device__ static inline void
fill_next(const MirrorView &mirror, const FusedPlan &plan, FusedBlock<G> *block,
		  const Pieces &pieces, unsigned char *ring, uint32_t stage)
{
	uint32_t number = threadIdx.x % WARP == 0 ? atomicAdd(&block->taken, 1u) : 0;

	fill_stage(mirror, plan, block, pieces, ring, stage, __shfl_sync(FULL_WARP, number, 0));
}

/*
 * Search the pieces of a warp, and append what it finds to the block's
 * candidates.
 */
template <typename T, int TERM, int G>
__device__ static inline void
search_pieces(const MirrorView &mirror, const FusedPlan &plan, FusedBlock<G> *block,
			  const FusedMemory &memory, const Pieces &pieces, unsigned char *ring, uint32_t dead)
{
	uint32_t warp = threadIdx.x / WARP,
			 lane = threadIdx.x % WARP,
			 stage = 0,
			 parity = 0,
			 turn = 0,
			 piece;

	while ((piece = *(volatile uint32_t *) &block->piece[warp][stage]) != NO_PIECE)
	{
		const unsigned char *at = ring + stage * plan.stage_bytes;
		uint32_t from = piece * plan.rows;
		uint32_t rows = piece_rows(mirror, plan, from);
		Limit limit[G];

		ring_wait(&block->filled[warp][stage], parity);
		if (turn == 0)
		{
			if (plan.served_turns > 0)
				sample_first_stage<T, TERM>(mirror, plan, block, memory, at, from, rows, dead);
			wait_for_bounds(plan, *block);
		}
#pragma unroll
		for (int g = 0; g < G; g++)
			limit[g] = published_limit(&block->limit[g]);
		filter_stage<T, TERM>(mirror, plan, block, memory, limit, at, from, rows);
		__syncwarp();
		fill_next(mirror, plan, block, pieces, ring, stage);
		turn++;
		if (warp == 0 && lane == 0)
			*(volatile uint32_t *) &block->progress = turn;
		if (++stage == plan.stages)
		{
			stage = 0;
			parity ^= 1;
		}
	}
	if (warp == 0 && lane == 0)
		*(volatile uint32_t *) &block->progress = ALL_TURNS;
}

template <typename T, int TERM, int G>
__global__ void
__launch_bounds__(MAX_THREADS, 1) exact_fused_kernel(const MirrorView mirror, const BatchView batch,
													 const FusedPlan plan,
													 const FusedQueries carried)
{
	__shared__ FusedBlock<G> block;
	DYNAMIC_SHARED(at);

	run_fused_block<T, TERM>(
		mirror, batch, plan, carried, &block, at,
		[&](const Pieces &pieces, unsigned char *ring, uint32_t stage) {
			fill_stage(mirror, plan, &block, pieces, ring, stage,
					   threadIdx.x / WARP + stage * plan.warps);
		},
		[&](const FusedMemory &memory, const Pieces &pieces, unsigned char *ring, uint32_t dead) {
			search_pieces<T, TERM>(mirror, plan, &block, memory, pieces, ring, dead);
		});
}

/* --- launching ------------------------------------------------------------ */

#define ALONE_KERNEL(T, TERM) exact_fused_kernel<T, TERM, 1>
#define PAIR_KERNEL(T, TERM) exact_fused_kernel<T, TERM, 2>
#define FOUR_KERNEL(T, TERM) exact_fused_kernel<T, TERM, 4>
#define GROUPS 4

/*
 * For 1, 2, and up to 4 and 8 queries; of more than 4 where these are no
 * products.
 */
static const FusedKernel fused_kernels[GROUPS][TYPES_AND_TERMS_COUNT] = {
	TYPES_AND_TERMS(ALONE_KERNEL), TYPES_AND_TERMS(PAIR_KERNEL), TYPES_AND_TERMS(FOUR_KERNEL),
	{NULL, NULL, exact_fused_kernel<float, TERM_ABSOLUTE, 8>, NULL, NULL,
	 exact_fused_kernel<__half, TERM_ABSOLUTE, 8>, exact_fused_kernel<Bits, TERM_BITS, 8>}};

/* Number of queries that the kernel for this many is instantiated for. */
static uint32_t
group_of(uint32_t queries)
{
	return power_of_two(queries);
}

/* The kernel for a plan. */
static FusedKernel
kernel_of(const ExactLaunch *launch, const FusedPlan &plan)
{
	uint32_t number = 0;

	if (plan.chunks > 0)
		return products_kernel(launch);
	while (1u << number < group_of(launch->queries))
		number++;
	return fused_kernels[number][type_and_term(launch->type, launch->mirror.metric)];
}

cudaError_t
fused_prepare(size_t room, ExactLimits *limits)
{
	cudaFuncAttributes attributes;
	cudaError_t error = cudaFuncGetAttributes(&attributes, (const void *) fused_kernels[0][0]);

	room -= sizeof(FusedBlock<FUSED_QUERIES>) + RING_ALIGNED;
	limits->fused_shared = room / RING_ALIGNED * RING_ALIGNED;
	limits->fused_in_groups = error == cudaSuccess && attributes.ptxVersion < 90;
	if (error == cudaSuccess)
		error = allow_shared(fused_kernels, limits->fused_shared);
	return error == cudaSuccess ? products_prepare(limits->fused_shared) : error;
}

size_t
fused_table_bytes(void)
{
	return sizeof(FusedTable);
}

/*
 * Divide rows into pieces so that a stage has at most `most` bytes, if a row
 * fits.
 */
static void
plan_stage(const MirrorView &mirror, uint32_t most, FusedPlan *plan)
{
	plan->team = TEAM;
	plan->at_once = MAX_AT_ONCE;
	while (plan->team > 1 && plan->team * 32 > mirror.stride)
		plan->team /= 2;
	while (plan->at_once > 1 && WARP / plan->team * plan->at_once * mirror.stride > most)
		plan->at_once /= 2;
	while (plan->team < WARP && WARP / plan->team * mirror.stride > most)
		plan->team *= 2;
	plan->rows = WARP / plan->team * plan->at_once;
	while (plan->rows * 2 * mirror.stride <= most && plan->rows * 2 <= MAX_ROWS)
		plan->rows *= 2;
	plan->stage_bytes =
		(plan->rows * mirror.stride + RING_ALIGNED - 1) / RING_ALIGNED * RING_ALIGNED;
}

/*
 * Divide the ring into stages for this many warps. Returns false if it does not
 * fit. *bytes is the shared memory of a block.
 */
static bool
plan_ring(const ExactLaunch *launch, uint32_t warps, FusedPlan *plan, size_t *bytes)
{
	const MirrorView &mirror = launch->mirror;
	uint32_t group = group_of(launch->queries);
	bool in_groups = launch->limits->fused_in_groups;
	size_t shared_room = launch->limits->fused_shared;
	uint32_t least = in_groups ? RING_STAGES : MIN_STAGES;
	uint32_t ring;

	plan->warps = warps;
	plan->ring_bytes = 0;
	lay_out(*plan, group, NULL, bytes);
	if (*bytes + MIN_RING > shared_room)
		return false;
	ring = (uint32_t) (shared_room - *bytes);
	plan_stage(mirror, ring / warps / least / RING_ALIGNED * RING_ALIGNED, plan);
	plan->stages = ring / warps / plan->stage_bytes;
	plan->stages = plan->stages < MAX_STAGES ? plan->stages : MAX_STAGES;
	if (in_groups && plan->stages > RING_STAGES)
		plan->stages = RING_STAGES;
	plan->ring_bytes = warps * plan->stages * plan->stage_bytes;
	plan->ring_bytes = plan->ring_bytes < MIN_RING ? MIN_RING : plan->ring_bytes;
	lay_out(*plan, group, NULL, bytes);
	return plan->stages >= least;
}

/* Plan a block for `group` queries: what does not depend on the rows. */
static void
plan_queries(const ExactLaunch *launch, uint32_t group, FusedPlan *plan)
{
	uint32_t marks = power_of_two(launch->max_k * MARKS_PER_K);
	uint32_t most = MAX_MARKS < MIN_RING / 4 / group ? MAX_MARKS : MIN_RING / 4 / group;
	uint32_t spare = group <= 4 ? SPARE : SPARE_OF_MANY / group;

	memset(plan, 0, sizeof(*plan));
	plan->k = launch->max_k;
	plan->marks = marks < MIN_MARKS ? MIN_MARKS : marks > most ? most : marks;
	plan->room = list_room(launch->max_k + spare);
	plan->query_stride = query_bytes(launch->mirror);
	plan->error = (launch->mirror.dims + 16.0) / 16777216 * 1.1;
	plan->bound_polls = BOUND_POLLS;
}

/* Plan a block. Returns false if it does not fit. */
static bool
plan_block(const ExactLaunch *launch, FusedPlan *plan, size_t *bytes)
{
	uint32_t warps = launch->mirror.stride > LONG_ROWS ? WARPS_OF_LONG : MAX_WARPS;

	if (!launch->limits->fused_in_groups && products_take(launch))
	{
		plan_queries(launch, FUSED_QUERIES, plan);
		if (products_plan(launch, launch->limits->fused_shared, plan, bytes))
			return true;
	}
	if (launch->queries > FUSED_SUMS ||
		(launch->queries > 4 && has_norms(launch->type, launch->mirror.metric)))
		return false;
	plan_queries(launch, group_of(launch->queries), plan);
	while (warps > 0 && !plan_ring(launch, warps, plan, bytes))
		warps--;
	plan->dealt = warps * plan->stages;
	return warps > 0;
}

bool
fused_can(const ExactLaunch *launch)
{
	FusedPlan plan;
	size_t bytes;

	return launch->queries <= FUSED_QUERIES && launch->mirror.rows > 0 &&
		   launch->max_k <= (launch->queries > 4 ? MAX_K_OF_MANY : EXACT_SMALL_K) &&
		   !launch->filtered && !launch->in_place && !launch->pending_only &&
		   launch->mirror.stride <= MAX_STRIDE && plan_block(launch, &plan, &bytes);
}

/*
 * Faster than a scan wherever bulk copies are available; not measured
 * elsewhere.
 */
bool
fused_pays(const ExactLaunch *launch)
{
#ifdef EMULATED
	/* the emulator takes too long for many queries */
	if (launch->queries > 4)
		return false;
#endif
	/* for many queries on a short table a scan has less setup */
	return !launch->limits->fused_in_groups &&
		   (launch->queries <= 8 || launch->mirror.rows >= ROWS_OF_MANY);
}

bool
fused_carries(uint32_t queries, size_t bytes)
{
	return queries <= CARRIED_QUERIES && bytes <= CARRIED;
}

/*
 * Entries of a query that the last block ranks by counting: limited by the
 * ring's memory, which the other queries share, and by where sorting becomes
 * faster.
 */
static uint32_t
ranked_most(const FusedPlan &plan)
{
	uint32_t room = MIN_RING / (uint32_t) entries_bytes(1) / plan.queries;
	uint32_t most = 2 * plan.k + FEW;

	most = most < room ? most : room;
	return (most < (plan.warps + 1) * WARP ? most : (plan.warps + 1) * WARP) & ~1u;
}

/* Complete a plan of plan_block(): tables, and when to compute bounds. */
static void
plan_rest(const ExactLaunch *launch, uint32_t pieces, uint32_t blocks, FusedPlan *plan)
{
	uint32_t warps = blocks * plan->warps;
	uint32_t turns = pieces / warps;
	bool products = plan->chunks > 0;

	plan->table = (FusedTable *) launch->table;
	plan->max_found = blocks * plan->room;
	plan->keys = (Key *) launch->batch.state;
	plan->slots = (uint32_t *) (plan->keys + (size_t) launch->queries * plan->max_found);
	plan->queries = launch->queries;
	plan->mark_readers = MARK_READERS * launch->queries;
	/* measuring a piece for many queries takes longer than computing a bound */
	plan->served_turns = pieces > warps ? turns * 7 / 8 + 1 : products;
	/* a bound needs enough samples, and a reader for the marks of each query */
	if (plan->served_turns == 0 || (pieces < warps ? pieces : warps) < 2 * plan->k ||
		(products && blocks < launch->queries))
		plan->bound_polls = 0;
	plan->few = 2 * plan->k / blocks + FEW_OF_BLOCK;
	plan->ranked = ranked_most(*plan);
}

cudaError_t
fused_launch(const ExactLaunch *launch, const FusedInput *input)
{
	uint32_t blocks,
		pieces;
	size_t bytes;
	FusedPlan plan;
	FusedQueries carried;

	if (!plan_block(launch, &plan, &bytes))
		return cudaErrorInvalidValue;
	pieces = (launch->mirror.rows + plan.rows - 1) / plan.rows;
	blocks = (pieces + plan.warps - 1) / plan.warps;
	blocks = blocks < launch->processors ? blocks : launch->processors;
	plan_rest(launch, pieces, blocks, &plan);
	plan.carried = (uint32_t) input->bytes;
	memset(&carried, 0, sizeof(carried.asked));
	if (plan.carried > 0)
	{
		memcpy(carried.asked, input->queries, launch->queries * sizeof(DeviceQuery));
		memcpy(carried.words, input->vectors, input->bytes);
	}
	LAUNCH(kernel_of(launch, plan), blocks, (plan.warps + 1) * WARP, bytes, launch->stream,
		   launch->mirror, launch->batch, plan, carried);
	return cudaGetLastError();
}
