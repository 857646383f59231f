/*
 * link.cu
 *		The stage of a link that the device does: batch after batch, in pieces;
 *		at the end the rows it changed are copied to the host.
 *
 * The host decides everything by counts that it knows, so a link waits for the
 * device only at its end: batches follow each other on the job stream. A piece
 * is a part of one step of a batch, for a fixed number of blocks that leave
 * queries room on every SM, with a fixed number of rows each; while queries are
 * in flight, one block on every fourth SM, one row each, one piece at a time.
 * How a batch is cut changes nothing of what it computes.
 *
 * Rows are measured as stored until codes are known to serve, then by codes
 * (link_codes.cu); graph rows that these wrote are sorted at the end.
 *
 * Batches grow with the number of linked rows. Memory of a link:
 * link_begin.cu.
 */
#include "cuda/jobs/entry_points_job.h"
#include "cuda/jobs/link_job.h"
#include "cuda/jobs/quantizer_jobs.h"

#define BATCH_FIRST 64u	  /* rows of the first batch of an empty graph: candidates of one another */
#define BATCH_DOUBLING 256u /* up to here batches are as large as the graph */
#define BLOCKS_OF_SM 6u	   /* of a link, on an SM at a time: a fifth of its registers and more
						    * stays free for queries */
#define CODE_BLOCKS_OF_SM 5u /* likewise, of kernels that measure codes: these have 80 registers */
#define PASSES 4u		   /* units of a piece per block, one after the other; a walk takes half a
						    * millisecond */
#define SHORT_UNITS 8u	   /* steps by codes, but for walks, take a warp some 20 µs: this many count
						    * as one unit */
#define IN_FLIGHT 3u	   /* pieces */
#define BUSY_DIVISOR 4u	   /* while queries are in flight, blocks on 1 / this of the SMs; then one
						    * piece is in flight, of one unit each */
#ifdef EMULATED
#define CODES_FROM 256u		/* rows by whose neighbours codes can be judged */
#else
#define CODES_FROM 4096u
#endif
#define CODES_GROWTH 4u		/* they are judged again when the graph has grown by this factor */
#define ORDERED_ROWS 16u	/* of a warp, of a piece's unit */
#define EDGES_OF_GROUP 4u  /* reverse edges assumed per target */

/* --- pieces --------------------------------------------------------------- */

uint32_t
link_blocks(CudaEngine *engine, CudaLinkWork *work)
{
	uint32_t processors = (uint32_t) engine->device.properties.multiProcessorCount;

	if (queries_active(engine))
		return (processors + BUSY_DIVISOR - 1) / BUSY_DIVISOR;
	return processors * (work->batch.code_terms != NULL ? CODE_BLOCKS_OF_SM : BLOCKS_OF_SM);
}

/* A piece to send and the units and blocks it may have, or NULL: not now. */
static Piece *
link_next_piece(CudaEngine *engine, CudaJob *job, CudaLinkPart *part)
{
	const CudaLinkWork *work = job->work;
	bool busy = queries_active(engine);
	bool is_short =
		work->batch.code_terms != NULL &&
		(work->phase == LINK_CHOOSE || work->phase == LINK_BACK || work->phase == LINK_ORDER);

	part->blocks = link_blocks(engine, job->work);
	part->count = part->blocks * (busy ? 1 : PASSES) * (is_short ? SHORT_UNITS : 1);
	return job->in_flight < (busy ? 1 : IN_FLIGHT) ? piece_free(engine) : NULL;
}

/*
 * The next part of a step's `total` units: as many as it may have, of which
 * `each` make one.
 */
static CudaLinkPart
next_part(CudaLinkWork *work, CudaLinkPart part, uint32_t each, uint32_t total)
{
	part.first = work->done;
	part.count *= each;
	if (part.count > total - part.first)
		part.count = total - part.first;
	work->done += part.count;
	return part;
}

/* --- batches -------------------------------------------------------------- */

MirrorView
link_mirror(const CudaJob *job)
{
	MirrorView view = mirror_view(job->mirror);

	/* searches may not walk them yet */
	if (job->work->batch.code_terms != NULL)
		view.codes = (const signed char *) job->mirror->codes.base;
	return view;
}

/* The view of a mirror for candidate walks. */
static MirrorView
link_view(const CudaJob *job)
{
	const CudaLinkWork *work = job->work;
	MirrorView view = link_mirror(job);
	uint32_t starts = work->nstarts + (work->repairs ? 0 : work->first);

	view.seeds = work->starts;
	view.nseeds = starts < LINK_FROM ? starts : LINK_FROM;
	return view;
}

/* Point the batch at the current buffer of reverse edges. */
static void
show_edges(CudaLinkWork *work)
{
	const Entries &edges = work->edges.side[work->edges.current];

	work->batch.edge_keys = edges.key;
	work->batch.edge_sources = edges.slot;
}

/* Begin the next batch; false: there is none. */
static bool
begin_batch(CudaJob *job)
{
	CudaLinkWork *work = job->work;
	uint32_t linked = job->mirror->linked + work->first;
	uint32_t rows = work->repairs ? work->most : linked / LINK_BATCH_DIVISOR;

	if (rows < BATCH_DOUBLING)
		rows = linked < BATCH_FIRST		 ? BATCH_FIRST
			   : linked < BATCH_DOUBLING ? linked
										 : BATCH_DOUBLING;
	rows = rows < work->most ? rows : work->most;
	work->batch.count = rows < work->count - work->first ? rows : work->count - work->first;
	work->batch.slots = work->device_slots + work->first;
	work->batch.mates = !work->repairs;
	show_edges(work);
	work->done = 0;
	work->phase = work->repairs && !work->walks									 ? LINK_AROUND
				  : work->codes != CODES_NEVER && linked >= work->judge_at		 ? LINK_JUDGE
				  : work->codes == CODES_SERVE && work->batch.code_terms == NULL ? LINK_TERMS
																				 : LINK_WALK;
	return work->batch.count > 0;
}

/*
 * After the last batch: sort graph rows that are not sorted, or, if the job
 * goes on, repair again those with too few candidates.
 */
static void
end_batches(CudaLinkWork *work, bool goes_on)
{
	work->phase = work->batch.code_terms != NULL					? LINK_ORDER
				  : goes_on && work->repairs && !work->walks ? LINK_POOR
															 : LINK_DRAIN;
	work->batch.count = work->done = work->got = 0;
}

/* Send one part of walking, gathering or choosing. */
static bool
send_rows_part(CudaEngine *engine, CudaJob *job, Piece *piece, CudaLinkPart part,
			   const MirrorView *view, LinkPhase phase)
{
	CudaLinkWork *work = job->work;
	cudaError_t launched;

	part = next_part(work, part, phase == LINK_WALK ? 1 : LINK_WARPS, work->batch.count);
	launched = phase == LINK_WALK
				   ? link_walk_launch(view, &work->batch, part, engine->device.job_stream)
			   : phase == LINK_AROUND
				   ? link_gather_around_launch(view, &work->batch, part,
											   work->walks ? NULL : work->reach.selected,
											   engine->device.job_stream)
			   : work->batch.code_terms != NULL
				   ? link_choose_codes_launch(view, &work->batch, part, engine->device.job_stream)
				   : link_choose_launch(view, &work->batch, part, engine->device.job_stream);
	return GPU(&engine->device.failure, launched) && piece_send(engine, job, piece);
}

bool
link_send_walk(CudaEngine *engine, CudaJob *job, const MirrorView *view)
{
	CudaLinkPart part;
	Piece *piece = link_next_piece(engine, job, &part);

	return piece != NULL && send_rows_part(engine, job, piece, part, view, LINK_WALK);
}

/* Write a batch's rows, and sort and group the edges back. */
static bool
send_write(CudaEngine *engine, CudaJob *job, Piece *piece)
{
	CudaLinkWork *work = job->work;
	MirrorView view = link_view(job);
	uint32_t edges = work->batch.count * job->mirror->spec.degree;

	if (!GPU(&engine->device.failure,
			 link_write_launch(&view, &work->batch, engine->device.job_stream)) ||
		!GPU(&engine->device.failure, entry_sort(&work->edges, edges, engine->device.job_stream)))
		return false;
	show_edges(work);
	return GPU(&engine->device.failure,
			   link_group_launch(&work->batch, edges, engine->device.job_stream)) &&
		   piece_send(engine, job, piece);
}

/* Send one part of the edges back; parts are as equal as groups can be. */
static bool
send_back(CudaEngine *engine, CudaJob *job, Piece *piece, CudaLinkPart part)
{
	CudaLinkWork *work = job->work;
	MirrorView view = link_view(job);

	part = next_part(work, part, LINK_WARPS * EDGES_OF_GROUP,
					 work->batch.count * job->mirror->spec.degree);
	return GPU(&engine->device.failure,
			   work->batch.code_terms != NULL
				   ? link_back_codes_launch(&view, &work->batch, part, engine->device.job_stream)
				   : link_back_launch(&view, &work->batch, part, engine->device.job_stream)) &&
		   piece_send(engine, job, piece);
}

/* Measure rows by codes from now on. */
static bool
send_terms(CudaEngine *engine, CudaJob *job, Piece *piece)
{
	CudaLinkWork *work = job->work;
	MirrorView view;

	work->batch.code_terms = work->terms;
	view = link_mirror(job);
	return GPU(&engine->device.failure, cudaMemsetAsync(work->batch.kept_counts, LINK_UNKNOWN,
														view.rows, engine->device.job_stream)) &&
		   GPU(&engine->device.failure,
			   link_terms_launch(&view, work->terms, link_blocks(engine, work),
								 engine->device.job_stream)) &&
		   piece_send(engine, job, piece);
}

/* Send one part of putting rows in order. */
static bool
send_order(CudaEngine *engine, CudaJob *job, Piece *piece, CudaLinkPart part)
{
	MirrorView view = link_mirror(job);

	part = next_part(job->work, part, LINK_WARPS * ORDERED_ROWS, view.rows);
	return GPU(&engine->device.failure,
			   link_order_launch(&view, &job->work->batch, part, engine->device.job_stream)) &&
		   piece_send(engine, job, piece);
}

/* End a batch: its rows count as linked for the next. */
static void
link_end_batch(CudaJob *job)
{
	CudaLinkWork *work = job->work;

	for (uint32_t i = 0; i < work->batch.count; i++)
	{
		uint32_t slot = work->slots[work->first + i];

		work->linked_here[slot / 8] |= (uint8_t) (1u << (slot % 8));
	}
	work->first += work->batch.count;
	job->shown_done = work->first;
}

/* Send one piece of the batch's current step. False: not now. */
static bool
send_step(CudaEngine *engine, CudaJob *job)
{
	CudaLinkWork *work = job->work;
	MirrorView view = link_view(job);
	CudaLinkPart part;
	Piece *piece = link_next_piece(engine, job, &part);

	if (piece == NULL)
		return false;
	if (work->phase == LINK_WRITE)
		return send_write(engine, job, piece);
	if (work->phase == LINK_BACK)
		return send_back(engine, job, piece, part);
	if (work->phase == LINK_TERMS)
		return send_terms(engine, job, piece);
	if (work->phase == LINK_ORDER)
		return send_order(engine, job, piece, part);
	return send_rows_part(engine, job, piece, part, &view, work->phase);
}

/* The step that follows in a batch, or the next batch. */
static void
next_step(CudaJob *job)
{
	CudaLinkWork *work = job->work;
	uint32_t rows = work->batch.count;

	switch (work->phase)
	{
		case LINK_TERMS:
			work->phase = LINK_WALK;
			break;
		case LINK_ORDER:
			if (work->done < job->mirror->rows)
				return;
			work->phase = rows > 0 ? LINK_WALK : LINK_DRAIN;
			/*
			 * a link that goes on measures rows as stored; what is to be
			 * reached is walked by codes still
			 */
			if (rows > 0)
				work->batch.code_terms = NULL;
			break;
		case LINK_WALK:
			if (work->done < rows)
				return;
			work->phase = work->repairs ? LINK_AROUND : LINK_CHOOSE;
			break;
		case LINK_AROUND:
			if (work->done < rows)
				return;
			work->phase = LINK_CHOOSE;
			break;
		case LINK_CHOOSE:
			if (work->done < rows)
				return;
			work->phase = LINK_WRITE;
			break;
		case LINK_WRITE:
			work->phase = LINK_BACK;
			break;
		default:
			if (work->done < rows * job->mirror->spec.degree)
				return;
			link_end_batch(job);
			if (!begin_batch(job))
				end_batches(work, true);
			break;
	}
	work->done = 0;
}

/* Decide whether and when codes are judged. */
static void
look_at_codes(CudaJob *job)
{
	const CudaMirror *mirror = job->mirror;
	CudaLinkWork *work = job->work;
	MirrorView view = mirror_view(mirror);

	work->codes = CODES_NEVER;
	if (work->terms == NULL || mirror->coded != mirror->rows ||
		!link_codes_serve(&view, mirror->code_offsets))
		return;
	if (mirror->codes_good)
		work->codes = CODES_SERVE;
	else if (mirror->judged == 0)
		work->codes = CODES_UNJUDGED;
	work->judge_at =
		mirror->judged < UINT32_MAX / CODES_GROWTH ? mirror->judged * CODES_GROWTH : UINT32_MAX;
	work->judge_at = work->judge_at < CODES_FROM ? CODES_FROM : work->judge_at;
}

/*
 * Judge codes by the rows linked so far, those of this link if it has any. True
 * when that is over.
 */
static bool
judge_codes(CudaEngine *engine, CudaJob *job)
{
	CudaLinkWork *work = job->work;
	uint32_t linked = job->mirror->linked + work->first;
	bool here = work->first > 0;

	if (!work->judging)
	{
		if (!quantizer_send_judgement(engine, job, here ? work->device_slots : NULL,
								  here ? work->first : job->mirror->rows))
			return false;
		work->judging = true;
	}
	if (job->in_flight > 0)
		return false;
	work->judging = false;
	work->codes = quantizer_verdict(job) ? CODES_SERVE : CODES_NEVER;
	work->judge_at = linked < UINT32_MAX / CODES_GROWTH ? linked * CODES_GROWTH : UINT32_MAX;
	if (work->codes == CODES_SERVE)
		work->phase = work->batch.code_terms == NULL ? LINK_TERMS : LINK_WALK;
	else
		work->phase = work->batch.code_terms == NULL ? LINK_WALK : LINK_ORDER;
	return true;
}

/*
 * Put the slots that searches start from together: the mirror's seeds, then the
 * rows linked first.
 */
static bool
send_starts(CudaEngine *engine, CudaJob *job)
{
	CudaLinkWork *work = job->work;
	CudaMirror *mirror = job->mirror;
	MirrorView view = mirror_view(mirror);
	uint32_t more =
		LINK_FROM - work->nstarts < work->count ? LINK_FROM - work->nstarts : work->count;
	bool again = work->walks; /* the bitmap of changed rows is in use */

	if (work->repairs)
		more = 0;

	/* those of a mirror without seeds were sent by piece_slots */
	if (mirror->nseeds > 0 &&
		!GPU(&engine->device.failure,
			 cudaMemcpyAsync(work->starts, view.seeds, work->nstarts * sizeof(uint32_t),
							 cudaMemcpyDeviceToDevice, engine->device.job_stream)))
		return false;
	return (more == 0 || GPU(&engine->device.failure,
							 cudaMemcpyAsync(work->starts + work->nstarts, work->device_slots,
											 more * sizeof(uint32_t), cudaMemcpyDeviceToDevice,
											 engine->device.job_stream))) &&
		   GPU(&engine->device.failure,
			   cudaMemsetAsync(work->batch.regions, 0, mirror->rows, engine->device.job_stream)) &&
		   (again || GPU(&engine->device.failure,
						 cudaMemsetAsync(work->batch.changed, 0,
										 ((size_t) mirror->rows + 31) / 32 * sizeof(uint32_t),
										 engine->device.job_stream)));
}

/*
 * Let the rows of a batch choose the lists that their walks start from: of
 * lists that the mirror has, or of some made of the rows linked so far, once
 * there are enough and whenever they have doubled. So a row finds its cluster,
 * as a query does: seeds meet few of many clusters. A repair makes none.
 */
static bool
send_lists(CudaEngine *engine, CudaJob *job)
{
	CudaLinkWork *work = job->work;
	CudaMirror *mirror = job->mirror;
	uint32_t linked = mirror->linked + work->first;

	if (work->chosen == work->first + work->batch.count)
		return true;
	work->chosen = work->first + work->batch.count;
	work->batch.lists = NULL;
	work->batch.turns = NULL;
	if (!entry_points_may_be(mirror))
		return true;
	if (work->lists == 0 && mirror->nentries > 0)
		work->listed = mirror->linked;
	if (!work->repairs && linked / 2 >= work->listed &&
		entry_points_are_enough(mirror, work->first, linked))
	{
		work->lists = entry_points_make_of(engine, mirror, work->device_slots, work->first, linked);
		if (work->lists == 0)
			return false;
		work->listed = linked;
	}
	if (work->listed == 0)
		return true;
	work->batch.turns = work->turns;
	work->batch.lists = entry_points_choose(engine, mirror, work->lists, work->batch.slots,
									   work->batch.count, work->batch.near);
	return work->batch.lists != NULL &&
		   GPU(&engine->device.failure, link_turns_launch(&work->batch, engine->device.job_stream));
}

/* --- the stages ----------------------------------------------------------- */

/*
 * Send the slots of the link, and what searches start from. True when both are
 * on their way.
 */
static bool
link_send_slots(CudaEngine *engine, CudaJob *job)
{
	CudaLinkWork *work = job->work;
	CudaMirror *mirror = job->mirror;

	if (work->phase == LINK_SLOTS)
	{
		while (job->done < work->count)
			if (!piece_slots(engine, job, work->slots, work->count, work->device_slots))
				return false;
		job->done = 0;
		/* rows from pages may have come without any seeds */
		work->nstarts = mirror->nseeds < LINK_FROM ? mirror->nseeds : LINK_FROM;
		if (mirror->nseeds == 0 && mirror->linked > 0)
			work->nstarts = link_choose_seeds(mirror, work, LINK_FROM, job->seeds);
		work->phase = LINK_STARTS;
	}
	while (mirror->nseeds == 0 && job->done < work->nstarts)
		if (!piece_slots(engine, job, job->seeds, work->nstarts, work->starts))
			return false;
	job->done = 0;
	return send_starts(engine, job);
}

bool
link_stage(CudaEngine *engine, CudaJob *job)
{
	CudaLinkWork *work = job->work;

	while (work->phase < LINK_DRAIN)
	{
		/* a batch whose rows are not written yet can be forgotten */
		if (job->cancelled && work->phase >= LINK_TERMS && work->phase <= LINK_CHOOSE)
			end_batches(work, false);
		else if (work->phase == LINK_BROKEN || work->phase == LINK_POOR)
		{
			if (!(work->phase == LINK_BROKEN ? link_find_broken(engine, job)
											 : link_find_poor(engine, job)))
				return false;
			work->phase = LINK_SLOTS;
		}
		else if (work->phase <= LINK_STARTS)
		{
			if (!link_send_slots(engine, job))
				return false;
			look_at_codes(job);
			if (!begin_batch(job))
				end_batches(work, true);
		}
		else if (work->phase == LINK_JUDGE)
		{
			if (!judge_codes(engine, job))
				return false;
		}
		else if (work->phase == LINK_WALK && !send_lists(engine, job))
			return false;
		else if (send_step(engine, job))
			next_step(job);
		else
			return false;
	}
	return link_bring_result(engine, job);
}
