/*
 * link_begin.cu
 *		Begin and end of a link: the slots to link, and its memory.
 *
 * Batches are smaller where memory is short; a link is refused where not even
 * the smallest fits, and where rows are in host memory, unless it measures
 * codes.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/graph/entry_points.h"
#include "cuda/jobs/link_job.h"

extern "C"
{
#include "engine/link_order.h"
#include "engine/prune.h"
}

#define BATCH_ROWS_MAX 16384u  /* rows of a batch, where there is memory */
#define BATCH_ROWS_MIN 256u
#define CODES_DIVISOR 16u	   /* links of a smaller part of the rows measure rows as stored:
							    * codes take a pass over all, and few rows met were written by
							    * codes */

static bool
has_far_rows(const CudaMirror *mirror)
{
	return mirror->rows > mirror_device_rows(mirror);
}

/* Whether links of a mirror may measure codes. */
static bool
has_codes_to_link(const CudaMirror *mirror)
{
	return mirror->has_code_room && !mirror->codes_rotated && mirror->spec.metric != METRIC_L1;
}

/* Whether a link measures rows by codes once there are any that serve. */
static bool
may_use_codes(const CudaMirror *mirror, const CudaLinkWork *work)
{
	return !work->repairs && has_codes_to_link(mirror) &&
		   (has_far_rows(mirror) || (uint64_t) work->count * CODES_DIVISOR >= mirror->rows);
}

/* Lay a link's memory out from `at` on; returns its bytes. */
static size_t
link_lay_out(const CudaMirror *mirror, CudaLinkWork *work, unsigned char *at)
{
	unsigned char *start = at;
	LinkBatch *batch = &work->batch;
	size_t rows = work->most;
	size_t edges = rows * mirror->spec.degree;

	work->device_slots = carve<uint32_t>(&at, work->count);
	work->starts = carve<uint32_t>(&at, LINK_FROM);
	batch->changed = carve<uint32_t>(&at, ((size_t) mirror->rows + 31) / 32);
	batch->candidates = carve<LinkEntry>(&at, rows * batch->room);
	batch->ncandidates = carve<uint32_t>(&at, rows);
	batch->equals = carve<uint32_t>(&at, rows * LINK_EQUALS);
	batch->chosen = carve<uint32_t>(&at, edges);
	batch->groups = carve<uint32_t>(&at, edges);
	batch->group_places = carve<uint32_t>(&at, LINK_REGIONS + 1);
	batch->ngroups = batch->group_places + LINK_REGIONS;
	batch->regions = carve(&at, mirror->rows);
	batch->near = carve<uint32_t>(&at, rows * ENTRY_CHOICES);
	work->turns = carve<uint32_t>(&at, rows);
	for (int i = 0; i < 2; i++)
	{
		work->edges.side[i].key = carve<Key>(&at, edges);
		work->edges.side[i].slot = carve<uint32_t>(&at, edges);
	}
	work->edges.work = carve(&at, work->edges.work_bytes);
	work->terms = NULL;
	if (may_use_codes(mirror, work))
	{
		work->terms = carve<int32_t>(&at, mirror->rows);
		batch->kept_counts = carve(&at, mirror->rows);
	}
	at += link_reach_lay_out(&work->reach, mirror->rows, at);
	return (size_t) (at - start);
}

/* Take the device memory of a link, for smaller batches if need be. */
static EngineStatus
link_take_memory(CudaEngine *engine, CudaMirror *mirror, CudaLinkWork *work, EngineError *error)
{
	EngineStatus status = ENGINE_NO_MEMORY;
	uint32_t linked = mirror->linked + work->count;

	work->most = BATCH_ROWS_MAX;
	while (work->most > BATCH_ROWS_MIN && work->most / 2 >= work->count)
		work->most /= 2;
	/* no batch is larger than this part of what there will be */
	while (work->most > BATCH_ROWS_MIN && work->most / 2 >= linked / LINK_BATCH_DIVISOR)
		work->most /= 2;
	for (; work->most >= BATCH_ROWS_MIN && status == ENGINE_NO_MEMORY; work->most /= 2)
	{
		size_t bytes;

		if (!GPU(&engine->device.failure,
				 entry_sort_bytes(work->most * mirror->spec.degree, &work->edges.work_bytes)))
			return gpu_failed(&engine->device.failure, error);
		bytes = link_lay_out(mirror, work, (unsigned char *) 256);
		status = range_take(&engine->device.arena, &work->memory, PART_STATE, bytes, error);
		if (status == ENGINE_OK)
		{
			link_lay_out(mirror, work, (unsigned char *) work->memory.base);
			return ENGINE_OK;
		}
	}
	return status;
}

/*
 * Collect what a job links, each slot once, in the order in which it will be
 * linked.
 */
static bool
link_collect_slots(const CudaJob *job, CudaLinkWork *work)
{
	const CudaMirror *mirror = job->mirror;
	const uint32_t *from = job->in.slots != NULL ? job->in.slots : mirror->listed;
	uint32_t room = job->in.slots != NULL ? job->in.count : mirror->nlisted;

	if (work->repairs)
		return link_collect_repair(job, work);
	work->slots_room = room + 1;
	work->slots = (uint32_t *) malloc(((size_t) room + 1) * sizeof(uint32_t));
	if (work->slots == NULL)
		return false;
	for (uint32_t i = 0; i < room; i++)
		if (from[i] < mirror->rows && (mirror->states[from[i]] & SLOT_PENDING) &&
			!(mirror->states[from[i]] & SLOT_DEAD))
			work->bits[from[i] / 32] |= 1u << (from[i] % 32);
	for (uint32_t word = 0; word <= mirror->rows / 32; word++)
	{
		for (uint32_t bits = work->bits[word]; bits != 0; bits &= bits - 1)
			work->slots[work->count++] = word * 32 + (uint32_t) __builtin_ctz(bits);
		work->bits[word] = 0;
	}
	link_shuffle(work->slots, work->count);
	return true;
}

/*
 * Whether the device can link a mirror as it is; if not, job->error says why.
 */
static bool
link_can(const CudaEngine *engine, CudaJob *job)
{
	const CudaMirror *mirror = job->mirror;
	MirrorView view = mirror_view(mirror);
	size_t most = engine->device.properties.sharedMemPerBlockOptin;

	/*
	 * Over the bus, links by stored rows take longer than on processors: 42
	 * beside 28 us a row of 512 bytes, and repairs 17 us.
	 */
	if (has_far_rows(mirror) && (job->in.kind == JOB_REPAIR || !has_codes_to_link(mirror)))
		engine_error(&job->error, ENGINE_UNSUPPORTED,
					 job->in.kind == JOB_REPAIR
						 ? "rows of this mirror are in host memory: they are not repaired on the device"
						 : "rows of this mirror are in host memory and have no codes: they are not linked on the device");
	else if (link_walk_bytes(&view, job->in.ef_construction) > most - 1024 ||
			 (job->in.kind == JOB_REPAIR && link_repair_bytes(mirror->spec.degree) > most))
		engine_error(&job->error, ENGINE_UNSUPPORTED,
					 "rows of %u dimensions are not linked on the device with %u candidates",
					 mirror->spec.dims, job->in.ef_construction);
	else
		return true;
	return false;
}

EngineStatus
link_begin(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	CudaLinkWork *work;
	EngineStatus status;

	if (!link_can(engine, job))
		return ENGINE_UNSUPPORTED;
	engine_error(&job->error, ENGINE_NO_MEMORY, "out of memory");
	job->work = work = (CudaLinkWork *) calloc(1, sizeof(*work));
	if (work == NULL)
		return ENGINE_NO_MEMORY;
	work->batch.ef = job->in.ef_construction;
	work->repairs = work->batch.repairs = job->in.kind == JOB_REPAIR;
	work->batch.room = work->batch.ef + LINK_PATH + (work->repairs ? mirror->spec.degree : 0);
	work->batch.max_equal = PRUNE_MAX_EQUAL(mirror->spec.degree);
	work->linked_here = (uint8_t *) calloc((size_t) mirror->rows / 8 + 1, 1);
	work->bits = (uint32_t *) calloc((size_t) mirror->rows / 32 + 1, sizeof(uint32_t));
	if (work->linked_here == NULL || work->bits == NULL || !link_collect_slots(job, work))
		return ENGINE_NO_MEMORY;
	status = link_take_memory(engine, mirror, work, &job->error);
	if (status != ENGINE_OK)
		return status;
	work->left_out = (uint32_t *) malloc(work->most * sizeof(uint32_t));
	if (work->left_out == NULL)
		return ENGINE_NO_MEMORY;
	job_counts(engine, &job->work_bytes,
			   ((uint64_t) work->slots_room + work->most) * sizeof(uint32_t) +
				   2 * ((uint64_t) mirror->rows / 8));
	memset(&job->error, 0, sizeof(job->error));
	work->batch.graph = (uint32_t *) mirror->graph.base;
	job->shown_total = work->count;
	work->phase = work->repairs ? LINK_BROKEN : LINK_SLOTS;
	return ENGINE_OK;
}

/* Free all memory of a link but its result. */
void
link_end(CudaEngine *engine, CudaJob *job)
{
	CudaLinkWork *work = job->work;

	if (work == NULL)
		return;
	pieces_let_go(engine, work->fetches);
	range_release(&engine->device.arena, &work->memory);
	free(work->slots);
	free(work->left_out);
	free(work->bits);
	free(work->linked_here);
	free(work);
	job->work = NULL;
}
