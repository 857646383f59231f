/*
 * link_repair_job.cu
 *		Which rows a repair looks at, and seeds in place of dead ones; the
 *		kernels are in cuda/link/link_repair.cu.
 *
 * The host waits for a bitmap before the first batch, and for another after the
 * last: rows with few candidates are repaired once more then, behind a walk.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/jobs/link_job.h"

/* Whether a slot's row is one that a repair looks at. */
static bool
may_be_repaired(const CudaMirror *mirror, uint32_t slot)
{
	return slot < mirror->rows &&
		   (mirror->states[slot] & (SLOT_LINKED | SLOT_PENDING | SLOT_DEAD)) == SLOT_LINKED;
}

bool
link_collect_repair(const CudaJob *job, CudaLinkWork *work)
{
	const CudaMirror *mirror = job->mirror;
	const uint32_t *from = job->in.slots;
	uint32_t room = from != NULL ? job->in.count : mirror->rows;

	room = room < mirror->rows ? room : mirror->rows;
	work->slots_room = room + 1;
	work->slots = (uint32_t *) malloc(((size_t) room + 1) * sizeof(uint32_t));
	if (work->slots == NULL)
		return false;
	for (uint32_t i = 0; from != NULL && i < job->in.count; i++)
		if (may_be_repaired(mirror, from[i]))
			work->bits[from[i] / 32] |= 1u << (from[i] % 32);
	for (uint32_t slot = 0; slot < mirror->rows; slot++)
		if (from != NULL ? (work->bits[slot / 32] >> (slot % 32) & 1) != 0
						 : may_be_repaired(mirror, slot))
			work->slots[work->count++] = slot;
	memset(work->bits, 0, ((size_t) mirror->rows + 31) / 32 * sizeof(uint32_t));
	return true;
}

/* Keep the slots whose bit the device has set, and clear the bits. */
static void
keep_found(CudaJob *job)
{
	CudaLinkWork *work = job->work;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < work->count; i++)
		if (work->bits[work->slots[i] / 32] >> (work->slots[i] % 32) & 1)
			work->slots[kept++] = work->slots[i];
	work->count = kept;
	work->first = work->done = work->got = 0;
	memset(work->bits, 0, ((size_t) job->mirror->rows + 31) / 32 * sizeof(uint32_t));
}

/* Clear the bitmap of marked rows. */
static bool
clear_marks(CudaEngine *engine, CudaJob *job)
{
	return GPU(&engine->device.failure,
			   cudaMemsetAsync(job->work->reach.selected, 0,
							   ((size_t) job->mirror->rows + 31) / 32 * sizeof(uint32_t),
							   engine->device.job_stream));
}

/* Launch the kernel that finds rows with dead neighbours. */
static bool
send_find(CudaEngine *engine, CudaJob *job)
{
	CudaLinkWork *work = job->work;
	MirrorView view = mirror_view(job->mirror);
	Piece *piece = piece_free(engine);

	if (piece == NULL || !clear_marks(engine, job))
		return false;
	if (work->count > 0 &&
		!GPU(&engine->device.failure,
			 link_find_launch(&view, work->reach.selected, work->slots[0],
							  work->slots[work->count - 1] + 1, link_blocks(engine, work),
							  engine->device.job_stream)))
		return false;
	return piece_send(engine, job, piece);
}

bool
link_find_broken(CudaEngine *engine, CudaJob *job)
{
	CudaLinkWork *work = job->work;
	uint32_t words = (job->mirror->rows + 31) / 32;

	if (work->step == 0)
	{
		if (!send_find(engine, job))
			return false;
		work->step = 1;
	}
	if (!link_fetch(engine, job, work->reach.selected, work->bits, words) ||
		!clear_marks(engine, job))
		return false;
	work->step = 0;
	keep_found(job);
	job->shown_total = work->count;
	return true;
}

bool
link_find_poor(CudaEngine *engine, CudaJob *job)
{
	CudaLinkWork *work = job->work;

	if (!link_fetch(engine, job, work->reach.selected, work->bits, (job->mirror->rows + 31) / 32))
		return false;
	keep_found(job);
	work->walks = true;
	return true;
}

void
link_replace_dead_seeds(CudaJob *job)
{
	CudaLinkWork *work = job->work;
	const CudaMirror *mirror = job->mirror;
	uint32_t have = job->link.nseeds;
	uint32_t *fresh = (uint32_t *) malloc((size_t) have * sizeof(uint32_t) + 1);
	uint32_t nfresh = fresh != NULL ? link_choose_seeds(mirror, work, have, fresh) : 0;
	uint32_t kept = 0,
			 next = 0;

	for (uint32_t i = 0; i < have; i++)
		work->bits[work->result_seeds[i] / 32] |= 1u << (work->result_seeds[i] % 32);
	for (uint32_t i = 0; i < have; i++)
	{
		uint32_t seed = work->result_seeds[i];

		if (mirror->states[seed] & SLOT_DEAD)
		{
			while (next < nfresh && (work->bits[fresh[next] / 32] >> (fresh[next] % 32) & 1))
				next++;
			if (next == nfresh)
				continue;
			seed = fresh[next++];
		}
		work->result_seeds[kept++] = seed;
	}
	job->link.nseeds = kept;
	memset(work->bits, 0, ((size_t) mirror->rows + 31) / 32 * sizeof(uint32_t));
	free(fresh);
}
