/*
 * link_connectivity_job.cu
 *		The end of a link that is not small: rounds of
 *		cuda/link/link_connectivity.cu, until one attaches nothing. The host
 *		waits for a flag after every few sweeps, and once a round for a bitmap
 *		and for the slot attached last.
 */
#include "cuda/jobs/link_job.h"

extern "C"
{
#include "engine/connectivity.h"
}

#define MAX_ROUNDS 16u
#define SWEEPS 4u		 /* between two looks at the flag */
#define ATTACH_ROWS 128u /* of a launch */

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
	REACH_ATTACH,
	REACH_ATTACHED /* the slot attached last is on its way */
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

/* Start over from the seeds. */
static bool
send_start(CudaEngine *engine, CudaJob *job)
{
	LinkReach *reach = &job->work->reach;
	MirrorView view = reach_view(job);
	cudaStream_t stream = engine->device.job_stream;
	size_t bits = (size_t) ((unsigned char *) reach->wanted - (unsigned char *) reach->reached);

	if (!GPU(&engine->device.failure, cudaMemsetAsync(reach->reached, 0, bits, stream)) ||
		!GPU(&engine->device.failure,
			 cudaMemsetAsync(reach->attached, 0xFF, sizeof(uint32_t), stream)) ||
		!GPU(&engine->device.failure,
			 cudaMemsetAsync(reach->edges_in, 0, (size_t) view.rows * sizeof(uint32_t), stream)))
		return false;
	return GPU(&engine->device.failure, link_reach_start(&view, reach, stream));
}

/* A few sweeps, and the flag that says whether they found any. */
static bool
send_sweeps(CudaEngine *engine, CudaJob *job)
{
	LinkReach *reach = &job->work->reach;
	MirrorView view = reach_view(job);
	Piece *piece = piece_hold(engine, job);

	if (piece == NULL ||
		!GPU(&engine->device.failure,
			 cudaMemsetAsync(reach->found, 0, sizeof(uint32_t), engine->device.job_stream)))
		return false;
	for (uint32_t i = 0; i < SWEEPS; i++)
		if (!GPU(&engine->device.failure, link_reach_sweep(&view, reach, row_blocks(engine, job),
														   engine->device.job_stream)))
			return false;
	return GPU(&engine->device.failure,
			   cudaMemcpyAsync(piece->staged, reach->found, sizeof(uint32_t),
							   cudaMemcpyDeviceToHost, engine->device.job_stream)) &&
		   piece_send(engine, job, piece);
}

/*
 * Put the selected rows, as many as a batch has, into work->slots; returns how
 * many.
 */
static uint32_t
collect_selected(CudaLinkWork *work, uint32_t rows)
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
	CudaLinkWork *work = job->work;
	MirrorView view = reach_view(job);
	uint32_t left = work->batch.count - work->done;
	uint32_t count = left < ATTACH_ROWS ? left : ATTACH_ROWS;
	Piece *piece = piece_free(engine);

	if (piece == NULL)
		return false;
	work->done += count;
	return GPU(&engine->device.failure,
			   link_reach_attach(&view, &work->batch, &work->reach, work->done - count, count,
								 engine->device.job_stream)) &&
		   piece_send(engine, job, piece);
}

static void
next_reach(CudaLinkWork *work, ReachStep step)
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
	CudaLinkWork *work = job->work;
	uint32_t rows = job->mirror->rows;

	if (!link_fetch(engine, job, work->reach.selected, work->bits, (rows + 31) / 32))
		return false;
	work->batch.count = collect_selected(work, rows);
	work->batch.slots = work->batch.groups;
	*over = work->batch.count == 0 || ++work->rounds > MAX_ROUNDS;
	return true;
}

bool
link_reach(CudaEngine *engine, CudaJob *job)
{
	CudaLinkWork *work = job->work;
	CudaMirror *mirror = job->mirror;
	MirrorView view = reach_view(job);
	uint32_t words = (mirror->rows + 31) / 32;
	bool over = false;

	while (!over && !engine->device.failure.failed)
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
				if (work->step == REACH_SELECT &&
					!GPU(&engine->device.failure,
						 link_reach_select(&view, &work->reach, row_blocks(engine, job),
										   engine->device.job_stream)))
					return false;
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
				next_reach(work, REACH_ATTACHED);
				break;
			case REACH_ATTACHED:
				if (!link_fetch(engine, job, work->reach.attached, work->bits, 1))
					return false;
				over = work->bits[0] == NO_SLOT;
				next_reach(work, REACH_START);
				break;
		}
	return over;
}
