/*
 * link_result.cu
 *		The end of a link on the device: which rows changed, these rows and the
 *		seeds come to the host.
 *
 * A bitmap of rows comes first, then the rows that it names, gathered by a
 * kernel, several pieces on their way at a time. Bound: the bus.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/jobs/link_job.h"

extern "C"
{
#include "engine/prune.h"
#include "engine/connectivity.h"
}

#define BUSY_BYTES ((size_t) 1 << 16) /* of a piece while queries are in flight */

/* --- device to host ------------------------------------------------------- */

/* Whether a slot is in the graph, as this link leaves it. */
static bool
is_linked(const CudaMirror *mirror, const CudaLinkWork *work, uint32_t slot)
{
	return (mirror->states[slot] & SLOT_LINKED) != 0 ||
		   (work->linked_here[slot / 8] >> (slot % 8) & 1);
}

uint32_t
link_choose_seeds(const CudaMirror *mirror, const CudaLinkWork *work, uint32_t want,
				  uint32_t *seeds)
{
	uint8_t *taken = (uint8_t *) calloc((size_t) mirror->rows / 8 + 1, 1);
	uint32_t count = 0;

	for (uint64_t i = 0; taken != NULL && i < (uint64_t) want * 4 && count < want; i++)
	{
		uint32_t start = seed_place((uint32_t) i, mirror->rows);

		for (uint32_t slot = start; slot < start + SLOTS_PER_SEED && slot < mirror->rows; slot++)
		{
			if (!is_linked(mirror, work, slot) || (mirror->states[slot] & SLOT_DEAD) ||
				(taken[slot / 8] >> (slot % 8) & 1))
				continue;
			taken[slot / 8] |= (uint8_t) (1u << (slot % 8));
			seeds[count++] = slot;
			break;
		}
	}
	free(taken);
	return count;
}

/*
 * Units (words of the bitmap, seeds, rows) of a phase per piece: few while
 * queries are in flight, because the owner copies them and queries wait.
 */
static uint32_t
fetch_units(CudaEngine *engine, const CudaJob *job)
{
	size_t bytes = queries_active(engine) ? BUSY_BYTES : PIECE_BYTES;

	if (job->work->phase == LINK_ROWS)
		return (uint32_t) ((bytes - 256) / ((job->mirror->spec.degree + 1) * sizeof(uint32_t)));
	return (uint32_t) (bytes / sizeof(uint32_t));
}

/* Where the rows of a piece are, behind the slots that name them. */
static uint32_t *
rows_in_piece(unsigned char *piece, uint32_t count)
{
	return (uint32_t *) (piece + round_up(count * sizeof(uint32_t), 256));
}

/* Send a copy of units [first, first + count) to the host. */
static bool
result_send_fetch(CudaEngine *engine, CudaJob *job, Piece *piece, uint32_t first, uint32_t count)
{
	CudaLinkWork *work = job->work;
	MirrorView view = mirror_view(job->mirror);
	size_t row_bytes = view.degree * sizeof(uint32_t);
	cudaStream_t stream = engine->device.job_stream;

	if (work->phase != LINK_ROWS)
		return GPU(&engine->device.failure,
				   cudaMemcpyAsync(piece->staged, work->fetch_from + first,
								   count * sizeof(uint32_t), cudaMemcpyDeviceToHost, stream));
	memcpy(piece->staged, work->result_slots + first, count * sizeof(uint32_t));
	return GPU(&engine->device.failure,
			   cudaMemcpyAsync(piece->device, piece->staged, count * sizeof(uint32_t),
							   cudaMemcpyHostToDevice, stream)) &&
		   GPU(&engine->device.failure,
			   link_gather_launch(&view, (const uint32_t *) piece->device, count,
								  rows_in_piece(piece->device, count), stream)) &&
		   GPU(&engine->device.failure,
			   cudaMemcpyAsync(rows_in_piece(piece->staged, count),
							   rows_in_piece(piece->device, count), count * row_bytes,
							   cudaMemcpyDeviceToHost, stream));
}

/* Copy fetched units out of a piece. */
static void
take_fetch(CudaJob *job, const Piece *piece, Fetch fetch)
{
	CudaLinkWork *work = job->work;
	uint32_t degree = job->mirror->spec.degree;

	if (work->phase != LINK_ROWS)
		memcpy(work->fetch_to + fetch.first, piece->staged, fetch.count * sizeof(uint32_t));
	else
		memcpy(work->result_rows + (size_t) fetch.first * degree,
			   rows_in_piece(piece->staged, fetch.count),
			   (size_t) fetch.count * degree * sizeof(uint32_t));
	work->got += fetch.count;
}

/*
 * Bring `total` units here, several pieces at a time. True when all have come.
 */
static bool
result_fetch(CudaEngine *engine, CudaJob *job, uint32_t total)
{
	CudaLinkWork *work = job->work;

	for (uint32_t i = 0; i < PIECES; i++)
	{
		if (work->fetches[i].count == 0 || engine->jobs->pieces[i].job != NULL)
			continue;
		take_fetch(job, &engine->jobs->pieces[i], work->fetches[i]);
		work->fetches[i].count = 0;
		engine->jobs->pieces[i].held = false;
	}
	while (work->done < total && !engine->device.failure.failed)
	{
		/*
		 * for each the owner copies, and turns to the driver: no more than one
		 * of them is to be in a query's way
		 */
		Piece *piece = queries_active(engine) && job->in_flight > 0 ? NULL : piece_free(engine);
		uint32_t most = fetch_units(engine, job);
		uint32_t count = total - work->done < most ? total - work->done : most;

		if (piece == NULL)
			return false;
		if (!result_send_fetch(engine, job, piece, work->done, count) ||
			!piece_send(engine, job, piece))
			return false;
		piece->held = true;
		work->fetches[piece - engine->jobs->pieces] = {work->done, count};
		work->done += count;
	}
	return work->got == total;
}

bool
link_fetch(CudaEngine *engine, CudaJob *job, const uint32_t *from, uint32_t *to, uint32_t words)
{
	job->work->fetch_from = from;
	job->work->fetch_to = to;
	return result_fetch(engine, job, words);
}

static void
next_fetch(CudaLinkWork *work, LinkPhase phase)
{
	work->phase = phase;
	work->done = work->got = 0;
}

/*
 * Make room for the result, now that the bitmap says how large it is. False: no
 * memory.
 */
static bool
begin_result(CudaEngine *engine, CudaJob *job)
{
	CudaLinkWork *work = job->work;
	const CudaMirror *mirror = job->mirror;
	uint32_t count = 0,
			 at = 0;

	for (uint32_t i = 0; i <= mirror->rows / 32; i++)
		count += (uint32_t) __builtin_popcount(work->bits[i]);
	job->link.slots = work->result_slots =
		(uint32_t *) malloc((size_t) count * sizeof(uint32_t) + 1);
	job->link.rows = work->result_rows = (uint32_t *) job_allocate_result(
		(size_t) count * mirror->spec.degree * sizeof(uint32_t), !queries_active(engine));
	job->link.linked = work->result_linked =
		(uint64_t *) calloc((size_t) count / 64 + 1, sizeof(uint64_t));
	if (work->result_slots == NULL || work->result_rows == NULL || work->result_linked == NULL)
		return false;
	job_counts(engine, &job->result_bytes,
			   (uint64_t) count * (mirror->spec.degree + 1) * sizeof(uint32_t) + count / 8);
	for (uint32_t word = 0; word <= mirror->rows / 32; word++)
		for (uint32_t bits = work->bits[word]; bits != 0; bits &= bits - 1, at++)
		{
			uint32_t slot = word * 32 + (uint32_t) __builtin_ctz(bits);

			if (is_linked(mirror, work, slot))
				work->result_linked[at / 64] |= UINT64_C(1) << (at % 64);
			work->result_slots[at] = slot;
		}
	job->link.count = count;
	return true;
}

/*
 * Whether the mirror's seeds stay; if not, choose others. Rows inserted cluster
 * by cluster need seeds in each, as over pages.
 */
static bool
keeps_seeds(CudaJob *job)
{
	CudaLinkWork *work = job->work;
	const CudaMirror *mirror = job->mirror;
	uint32_t want = seed_count(mirror->linked + (work->repairs ? 0 : work->first), SEEDS_ROOM);

	if (mirror->nseeds > 0 &&
		(work->repairs || want <= mirror->nseeds + mirror->nseeds / REACH_DIVISOR))
	{
		job->link.nseeds = mirror->nseeds;
		return true;
	}
	job->link.nseeds = link_choose_seeds(mirror, work, want, work->result_seeds);
	if (job->link.nseeds > 0 || mirror->nseeds == 0)
		return false;
	/* out of memory: the old ones still lead into the graph */
	job->link.nseeds = mirror->nseeds;
	return true;
}

/* End the link, and set its status. */
static void
end_link(CudaEngine *engine, CudaJob *job)
{
	CudaLinkWork *work = job->work;

	work->phase = LINK_OVER;
	range_release(&engine->device.arena, &work->memory);
	if (work->first == work->count && !(work->repairs && job->cancelled))
		return;
	job->link_status = ENGINE_CANCELLED;
	engine_error(&job->error, ENGINE_CANCELLED, "%s was cancelled after %u of %u rows",
				 work->repairs ? "repair" : "linking", work->first, work->count);
}

/*
 * The link fails: the host has no memory for its result. Rows have changed, so
 * this is no refusal.
 */
static bool
fail_result(CudaJob *job)
{
	engine_error(&job->error, ENGINE_CANCELLED, "out of memory for the result of linking %u rows",
				 job->work->count);
	job->status = ENGINE_CANCELLED;
	return false;
}

/*
 * Begin to search for unreachable rows, unless the link is small or empty, or
 * was cancelled.
 */
static void
begin_reach(CudaJob *job)
{
	CudaLinkWork *work = job->work;
	const CudaMirror *mirror = job->mirror;

	next_fetch(work, LINK_BITS);
	if (job->link.nseeds == 0 || work->first < work->count || job->cancelled ||
		(work->repairs ? job->in.slots != NULL
					   : work->count == 0 || (uint64_t) work->count * REACH_DIVISOR <
												 (uint64_t) mirror->linked + work->count))
		return;
	for (uint32_t slot = 0; slot < mirror->rows; slot++)
		if (is_linked(mirror, work, slot) && !(mirror->states[slot] & SLOT_DEAD))
			work->bits[slot / 32] |= 1u << (slot % 32);
	work->phase = LINK_REACH;
}

/*
 * Defer rows that a repair has changed to the result of a later one, or take
 * over those deferred by earlier ones. If they are many, or memory is short,
 * they are in this one's result.
 */
static void
result_settle_deferred(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	uint32_t *bits = job->work->bits;
	uint32_t count = 0;
	bool defers = job->in.defers;

	if (defers && mirror->deferred_rows < mirror->rows)
	{
		uint32_t *more =
			(uint32_t *) calloc((size_t) mirror->rows / 32 + 1, sizeof(uint32_t));

		if (more == NULL)
			return;
		if (mirror->deferred != NULL)
			memcpy(more, mirror->deferred, mirror_deferred_bytes(mirror));
		free(mirror->deferred);
		engine->device.host_arrays -= mirror_deferred_bytes(mirror);
		mirror->deferred = more;
		mirror->deferred_rows = mirror->rows;
		engine->device.host_arrays += mirror_deferred_bytes(mirror);
	}
	if (mirror->deferred == NULL)
		return;
	for (uint32_t i = 0; i <= mirror->deferred_rows / 32; i++)
	{
		bits[i] |= mirror->deferred[i];
		count += (uint32_t) __builtin_popcount(bits[i]);
	}
	if (defers && count <= ENGINE_DEFERRED_MAX)
	{
		size_t bytes = mirror_deferred_bytes(mirror);

		memcpy(mirror->deferred, bits, bytes);
		memset(bits, 0, bytes);
		return;
	}
	engine->device.host_arrays -= mirror_deferred_bytes(mirror);
	free(mirror->deferred);
	mirror->deferred = NULL;
	mirror->deferred_rows = 0;
}

/* Begin to copy the rows that changed, now that they are known. */
static bool
begin_rows(CudaEngine *engine, CudaJob *job)
{
	if (job->work->repairs)
		result_settle_deferred(engine, job);
	if (!begin_result(engine, job))
		return fail_result(job);
	next_fetch(job->work, LINK_ROWS);
	return true;
}

bool
link_bring_result(CudaEngine *engine, CudaJob *job)
{
	CudaLinkWork *work = job->work;
	MirrorView view = mirror_view(job->mirror);

	if (work->phase == LINK_DRAIN)
	{
		if (job->in_flight > 0)
			return false;
		job->link.seeds = work->result_seeds = (uint32_t *) malloc(SEEDS_ROOM * sizeof(uint32_t));
		if (work->result_seeds == NULL)
			return fail_result(job);
		job_counts(engine, &job->result_bytes, SEEDS_ROOM * sizeof(uint32_t));
		next_fetch(work, LINK_SEEDS);
		work->keeps_seeds = keeps_seeds(job);
	}
	if (work->phase == LINK_SEEDS)
	{
		if (work->keeps_seeds &&
			!link_fetch(engine, job, view.seeds, work->result_seeds, job->link.nseeds))
			return false;
		if (work->repairs)
			link_replace_dead_seeds(job);
		begin_reach(job);
	}
	if (work->phase == LINK_REACH)
	{
		if (!link_reach(engine, job))
			return false;
		next_fetch(work, LINK_BITS);
	}
	if (work->phase == LINK_BITS &&
		(!link_fetch(engine, job, work->batch.changed, work->bits, (view.rows + 31) / 32) ||
		 !begin_rows(engine, job)))
		return false;
	if (work->phase == LINK_ROWS)
	{
		if (!result_fetch(engine, job, job->link.count))
			return false;
		end_link(engine, job);
	}
	return true;
}
