/*
 * link_connectivity.cu
 *		The end of a link that is not small: every linked row can be reached
 *		from the first seeds. The rule is that of src/engine/connectivity.c.
 *
 * Rounds, until none is left out: sweeps mark what is reached and count edges
 * in; of the rows left out those are selected that name no other such row with
 * a smaller number, so that few rows of an island are; a walk from the first
 * seeds finds what is near to each, all of it reached; and the nearest that has
 * a place gets an edge to it, one after the other.
 *
 *		sweep	a warp per 32 rows: reads rows newly reached, two atomics per
 *				edge. Some ten sweeps for a million rows
 *		select	likewise: reads the rows left out
 *		attach	one warp, a few hundred rows a launch
 * Bound: memory (sweeps), latency (attach). The host waits for a flag after
 * every few sweeps and for a bitmap once a round.
 */
#include <string.h>

#include "cuda/link/link_measure.cuh"
#include "cuda/jobs/link_job.h"

extern "C"
{
#include "engine/connectivity.h"
}

#define MOST_ROUNDS 16u
#define SWEEPS 4u		 /* between two looks at the flag */
#define ATTACH_ROWS 128u /* of a launch */

/* Mark what a row newly reached leads to. One warp. */
__device__ static inline void
sweep_row(const MirrorView &mirror, const LinkReach &reach, uint32_t slot)
{
	for (uint32_t i = threadIdx.x % WARP; i < mirror.degree; i += WARP)
	{
		uint32_t neighbour = mirror.graph[(size_t) slot * mirror.degree + i];

		if (neighbour >= mirror.rows)
			continue;
		atomicAdd(&reach.edges_in[neighbour], 1u);
		if (!(atomicOr(&reach.reached[neighbour >> 5], 1u << (neighbour & 31)) >> (neighbour & 31) &
			  1))
			*reach.found = 1;
	}
}

/*
 * Mark what rows newly reached lead to. What is reached meanwhile may be taken
 * at once or by the next sweep: the end is the same.
 */
__global__ void
__launch_bounds__(LINK_THREADS, 8)
	reach_sweep_kernel(const MirrorView mirror, const LinkReach reach)
{
	uint32_t words = (mirror.rows + 31) / 32;

	for (uint32_t word = blockIdx.x * LINK_WARPS + threadIdx.x / WARP; word < words;
		 word += gridDim.x * LINK_WARPS)
	{
		uint32_t fresh = __shfl_sync(FULL_WARP, reach.reached[word] & ~reach.expanded[word], 0);

		__syncwarp();
		if (fresh != 0 && threadIdx.x % WARP == 0)
			reach.expanded[word] |= fresh;
		for (; fresh != 0; fresh &= fresh - 1)
			sweep_row(mirror, reach, word * 32 + (uint32_t) __ffs((int) fresh) - 1);
	}
}

__device__ static inline bool
is_left_out(const LinkReach &reach, uint32_t slot)
{
	return bit_of(reach.wanted, slot) && !bit_of(reach.reached, slot);
}

/*
 * Whether a row left out names another such row with a smaller number. One
 * warp.
 */
__device__ static inline bool
names_smaller(const MirrorView &mirror, const LinkReach &reach, uint32_t slot)
{
	bool smaller = false;

	for (uint32_t base = 0; base < mirror.degree; base += WARP)
	{
		uint32_t i = base + threadIdx.x % WARP;
		uint32_t neighbour =
			i < mirror.degree ? mirror.graph[(size_t) slot * mirror.degree + i] : NO_SLOT;

		smaller = smaller ||
				  __ballot_sync(FULL_WARP, neighbour < slot && is_left_out(reach, neighbour)) != 0;
	}
	return smaller;
}

/* Select the rows left out that name no other with a smaller number. */
__global__ void
__launch_bounds__(LINK_THREADS, 8)
	reach_select_kernel(const MirrorView mirror, const LinkReach reach)
{
	uint32_t words = (mirror.rows + 31) / 32;

	for (uint32_t word = blockIdx.x * LINK_WARPS + threadIdx.x / WARP; word < words;
		 word += gridDim.x * LINK_WARPS)
	{
		uint32_t selected = 0;

		for (uint32_t left = reach.wanted[word] & ~reach.reached[word]; left != 0; left &= left - 1)
			if (!names_smaller(mirror, reach, word * 32 + (uint32_t) __ffs((int) left) - 1))
				selected |= left & (0 - left);
		if (selected != 0 && threadIdx.x % WARP == 0)
			reach.selected[word] = selected;
	}
}

/* Mark the slots that walks start from. */
__global__ void
__launch_bounds__(WARP) reach_start_kernel(const MirrorView mirror, const LinkReach reach)
{
	if (threadIdx.x < mirror.nseeds && mirror.seeds[threadIdx.x] < mirror.rows)
		atomicOr(&reach.reached[mirror.seeds[threadIdx.x] >> 5],
				 1u << (mirror.seeds[threadIdx.x] & 31));
}

/*
 * Put an edge to a slot into a row: at its end, or in the farther half in the
 * place of the last that can be spared. One warp.
 */
__device__ static inline bool
put_edge(const MirrorView &mirror, const LinkBatch &batch, const LinkReach &reach, uint32_t row,
		 uint32_t slot)
{
	uint32_t *neighbours = batch.graph + (size_t) row * mirror.degree;
	uint32_t lane = threadIdx.x % WARP;
	uint32_t place = NO_SLOT;

	for (uint32_t base = 0; base < mirror.degree && place == NO_SLOT; base += WARP)
	{
		uint32_t empty = __ballot_sync(FULL_WARP, base + lane < mirror.degree &&
													  neighbours[base + lane] == NO_SLOT);

		if (empty != 0)
			place = base + (uint32_t) __ffs((int) empty) - 1;
	}
	for (uint32_t end = mirror.degree; end > mirror.degree / 2 && place == NO_SLOT;
		 end -= end < WARP ? end : WARP)
	{
		/* lane 0 looks at the last place */
		uint32_t i = end - 1 - lane;
		bool looks = lane < end && i >= mirror.degree / 2;
		uint32_t target = looks ? neighbours[i] : NO_SLOT;
		uint32_t spared =
			__ballot_sync(FULL_WARP, target < mirror.rows && reach.edges_in[target] > 1);

		if (spared != 0)
			place = end - (uint32_t) __ffs((int) spared);
	}
	if (place == NO_SLOT)
		return false;
	if (lane == 0)
	{
		if (neighbours[place] != NO_SLOT)
			reach.edges_in[neighbours[place]]--;
		neighbours[place] = slot;
		reach.edges_in[slot]++;
		atomicOr(&batch.changed[row >> 5], 1u << (row & 31));
	}
	__syncwarp();
	return true;
}

/*
 * Give rows an edge in each: from the nearest that was reached and has a place,
 * else from the one that got the last.
 */
__global__ void
__launch_bounds__(WARP) reach_attach_kernel(const MirrorView mirror, const LinkBatch batch,
											const LinkReach reach, uint32_t first, uint32_t count)
{
	uint32_t attached = *reach.attached;

	for (uint32_t item = first; item < first + count; item++)
	{
		const uint32_t *equals = batch.equals + (size_t) item * LINK_EQUALS;
		const LinkEntry *candidates = batch.candidates + (size_t) item * batch.room;
		uint32_t slot = batch.slots[item];
		uint32_t ncandidates = batch.ncandidates[item];
		bool done = false;

		for (uint32_t i = 0; i < LINK_EQUALS && !done; i++)
			if (equals[i] != NO_SLOT && equals[i] != slot)
				done = put_edge(mirror, batch, reach, equals[i], slot);
		for (uint32_t i = 0; i < ncandidates && !done; i++)
			if (link_slot(candidates[i]) != slot)
				done = put_edge(mirror, batch, reach, link_slot(candidates[i]), slot);
		if (!done && attached != NO_SLOT && attached != slot)
			done = put_edge(mirror, batch, reach, attached, slot);
		if (done)
			attached = slot;
	}
	if (threadIdx.x == 0)
		*reach.attached = attached;
}

/* --- the host's part ------------------------------------------------------ */

/* What a round does next. */
typedef enum ReachStep
{
	REACH_WANTED, /* which rows shall be reached is on its way */
	REACH_FROM,	  /* the seeds are */
	REACH_START,
	REACH_SWEEP,
	REACH_LOOK,	  /* at the flag */
	REACH_SELECT,
	REACH_SLOTS,  /* selected rows are on their way */
	REACH_WALK,
	REACH_ATTACH
} ReachStep;

/*
 * Blocks of a kernel that looks at all rows: no more than a link may have now.
 */
static uint32_t
row_blocks(CudaEngine *engine, const CudaJob *job)
{
	uint32_t blocks = (job->mirror->rows + 32 * LINK_WARPS - 1) / (32 * LINK_WARPS);
	uint32_t most = link_blocks(engine, job->work);

	return blocks < most ? blocks : most;
}

size_t
link_reach_lay_out(LinkReach *reach, uint32_t rows, unsigned char *at)
{
	unsigned char *start = at;
	size_t words = ((size_t) rows + 31) / 32;

	reach->reached = carve<uint32_t>(&at, words);
	reach->expanded = carve<uint32_t>(&at, words);
	reach->selected = carve<uint32_t>(&at, words);
	reach->wanted = carve<uint32_t>(&at, words);
	reach->found = carve<uint32_t>(&at, 2);
	reach->attached = reach->found + 1;
	reach->edges_in = carve<uint32_t>(&at, rows);
	return (size_t) (at - start);
}

/*
 * The mirror from the seeds that all rows shall be reached from. Near is what
 * differs little, if distances are inner products (src/engine/connectivity.h).
 */
static MirrorView
reach_view(const CudaJob *job)
{
	MirrorView view = link_mirror(job);

	if (view.metric == METRIC_IP)
		view.metric = METRIC_L2;
	view.seeds = job->work->starts;
	view.nseeds = job->link.nseeds < REACH_SEEDS ? job->link.nseeds : REACH_SEEDS;
	return view;
}

/* Start over: only the seeds are reached. */
static bool
send_start(CudaEngine *engine, CudaJob *job)
{
	LinkReach *reach = &job->work->reach;
	MirrorView view = reach_view(job);
	cudaStream_t stream = engine->job_stream;
	size_t bits = (size_t) ((unsigned char *) reach->wanted - (unsigned char *) reach->reached);

	if (!GPU(&engine->failure, cudaMemsetAsync(reach->reached, 0, bits, stream)) ||
		!GPU(&engine->failure, cudaMemsetAsync(reach->attached, 0xFF, sizeof(uint32_t), stream)) ||
		!GPU(&engine->failure,
			 cudaMemsetAsync(reach->edges_in, 0, (size_t) view.rows * sizeof(uint32_t), stream)))
		return false;
	LAUNCH(reach_start_kernel, 1, WARP, 0, stream, view, *reach);
	return GPU(&engine->failure, cudaGetLastError());
}

/* A few sweeps, and the flag that says whether they found any. */
static bool
send_sweeps(CudaEngine *engine, CudaJob *job)
{
	LinkReach *reach = &job->work->reach;
	MirrorView view = reach_view(job);
	Piece *piece = piece_hold(engine, job);

	if (piece == NULL || !GPU(&engine->failure, cudaMemsetAsync(reach->found, 0, sizeof(uint32_t),
																engine->job_stream)))
		return false;
	for (uint32_t i = 0; i < SWEEPS; i++)
		LAUNCH(reach_sweep_kernel, row_blocks(engine, job), LINK_THREADS, 0, engine->job_stream,
			   view, *reach);
	return GPU(&engine->failure, cudaGetLastError()) &&
		   GPU(&engine->failure, cudaMemcpyAsync(piece->staged, reach->found, sizeof(uint32_t),
												 cudaMemcpyDeviceToHost, engine->job_stream)) &&
		   piece_send(engine, job, piece);
}

/*
 * Put the selected rows, as many as a batch has, into work->slots; returns how
 * many.
 */
static uint32_t
collect_selected(LinkWork *work, uint32_t rows)
{
	uint32_t n = 0;

	for (uint32_t word = 0; word < (rows + 31) / 32; word++)
		for (uint32_t bits = work->bits[word]; bits != 0 && n < work->most; bits &= bits - 1)
			work->left_out[n++] = word * 32 + (uint32_t) __builtin_ctz(bits);
	return n;
}

/* Send some rows to attach. */
static bool
send_attach(CudaEngine *engine, CudaJob *job)
{
	LinkWork *work = job->work;
	MirrorView view = reach_view(job);
	uint32_t left = work->batch.count - work->done;
	uint32_t count = left < ATTACH_ROWS ? left : ATTACH_ROWS;
	Piece *piece = piece_free(engine);

	if (piece == NULL)
		return false;
	LAUNCH(reach_attach_kernel, 1, WARP, 0, engine->job_stream, view, work->batch, work->reach,
		   work->done, count);
	work->done += count;
	return GPU(&engine->failure, cudaGetLastError()) && piece_send(engine, job, piece);
}

static void
next_reach(LinkWork *work, ReachStep step)
{
	work->step = step;
	work->done = work->got = 0;
}

/*
 * Bring which rows are selected, and make a batch of them. False: not yet;
 * *over: there is none.
 */
static bool
take_selected(CudaEngine *engine, CudaJob *job, bool *over)
{
	LinkWork *work = job->work;
	uint32_t rows = job->mirror->rows;

	if (!link_fetch(engine, job, work->reach.selected, work->bits, (rows + 31) / 32))
		return false;
	work->batch.count = collect_selected(work, rows);
	work->batch.slots = work->batch.groups;
	*over = work->batch.count == 0 || ++work->rounds > MOST_ROUNDS;
	return true;
}

bool
link_reach(CudaEngine *engine, CudaJob *job)
{
	LinkWork *work = job->work;
	CudaMirror *mirror = job->mirror;
	MirrorView view = reach_view(job);
	uint32_t words = (mirror->rows + 31) / 32;
	bool over = false;

	while (!over && !engine->failure.failed)
		switch ((ReachStep) work->step)
		{
			case REACH_WANTED:
				while (job->done < words)
					if (!piece_slots(engine, job, work->bits, words, work->reach.wanted))
						return false;
				job->done = 0;
				next_reach(work, REACH_FROM);
				break;
			case REACH_FROM:
				while (job->done < view.nseeds)
					if (!piece_slots(engine, job, work->result_seeds, view.nseeds, work->starts))
						return false;
				job->done = 0;
				next_reach(work, REACH_START);
				break;
			case REACH_START:
				if (!send_start(engine, job))
					return false;
				next_reach(work, REACH_SWEEP);
				break;
			case REACH_SWEEP:
				if (!send_sweeps(engine, job))
					return false;
				next_reach(work, REACH_LOOK);
				break;
			case REACH_LOOK:
				if (job->in_flight > 0)
					return false;
				next_reach(work,
						   *(const uint32_t *) job->held->staged != 0 ? REACH_SWEEP : REACH_SELECT);
				piece_release(job);
				if (work->step == REACH_SELECT)
					LAUNCH(reach_select_kernel, row_blocks(engine, job), LINK_THREADS, 0,
						   engine->job_stream, view, work->reach);
				break;
			case REACH_SELECT:
				if (!take_selected(engine, job, &over))
					return false;
				next_reach(work, REACH_SLOTS);
				break;
			case REACH_SLOTS:
				while (job->done < work->batch.count)
					if (!piece_slots(engine, job, work->left_out, work->batch.count,
									 work->batch.groups))
						return false;
				job->done = 0;
				work->batch.mates = false;
				work->batch.lists = NULL;
				work->batch.turns = NULL;
				/* the terms of codes are of inner products */
				if (view.metric != mirror->spec.metric)
					work->batch.code_terms = NULL;
				next_reach(work, REACH_WALK);
				break;
			case REACH_WALK:
				while (work->done < work->batch.count)
					if (!link_send_walk(engine, job, &view))
						return false;
				next_reach(work, REACH_ATTACH);
				break;
			case REACH_ATTACH:
				while (work->done < work->batch.count)
					if (!send_attach(engine, job))
						return false;
				next_reach(work, REACH_START);
				break;
		}
	return over;
}
