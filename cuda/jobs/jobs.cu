/*
 * jobs.cu
 *		Jobs: what each kind does in what order, a piece at a time.
 *
 * One job per mirror runs, those after it wait. JOB_LINK and JOB_REPAIR run on
 * the device (link.cu; of lists: lists_jobs.cu), or are refused before anything
 * has changed.
 *
 * Nothing is published before all of a job is there, but for overwritten and
 * dead slots, which change in place, piece by piece; these jobs are checked
 * before they begin and then cannot fail or be cancelled.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda/jobs/entry_points_job.h"
#include "cuda/jobs/link_job.h"
#include "cuda/jobs/lists_jobs.h"
#include "cuda/jobs/quantizer_jobs.h"
#include "cuda/query/mirror_room.h"

#define STAGES_MAX 10
#define LARGE_PAGE ((size_t) 2 << 20)
/* slots that the owner goes through at once, for 0.3 ms: queries wait */
#ifdef EMULATED
#define SLICE 64u
#else
#define SLICE 65536u
#endif
/* a list of pending slots that is not longer is always made anew */
#ifdef EMULATED
#define SHORT_LIST 256u
#else
#define SHORT_LIST 65536u
#endif

/* The stages of each kind of job, in order. */
static const JobStage stages[][STAGES_MAX] = {
	{STAGE_DONE},
	{STAGE_QUEUED, STAGE_ROWS, STAGE_STATES, STAGE_DRAIN, STAGE_DONE}, /* JOB_APPEND */
	{STAGE_QUEUED, STAGE_ROWS, STAGE_DRAIN, STAGE_DONE}, /* JOB_OVERWRITE */
	{STAGE_QUEUED, STAGE_ROWS, STAGE_DRAIN, STAGE_DONE}, /* JOB_DEAD */
	{STAGE_QUEUED, STAGE_CODES, STAGE_ROWS, STAGE_PENDING, STAGE_JUDGE, STAGE_ENTRIES, STAGE_DRAIN,
	 STAGE_DONE}, /* JOB_GRAPH */
	/* JOB_SEEDS */
	{STAGE_QUEUED, STAGE_SEEDS, STAGE_PENDING, STAGE_ENTRIES, STAGE_DRAIN, STAGE_DONE},
	{STAGE_QUEUED, STAGE_CODES, STAGE_LINK, STAGE_SEEDS, STAGE_PENDING, STAGE_JUDGE, STAGE_ENTRIES,
	 STAGE_DRAIN, STAGE_DONE}, /* JOB_LINK */
	{STAGE_QUEUED, STAGE_CODES, STAGE_LINK, STAGE_SEEDS, STAGE_PENDING, STAGE_JUDGE, STAGE_ENTRIES,
	 STAGE_DRAIN, STAGE_DONE},	 /* JOB_REPAIR */
	{STAGE_QUEUED, STAGE_DONE}, /* JOB_DROP */
	{STAGE_DONE},				/* JOB_CODEBOOK, JOB_TRAIN */
	{STAGE_DONE}};

/* The same of mirrors with lists. */
static const JobStage list_stages[][STAGES_MAX] = {
	{STAGE_DONE},
	{STAGE_QUEUED, STAGE_ROWS, STAGE_STATES, STAGE_DRAIN, STAGE_DONE}, /* JOB_APPEND */
	{STAGE_QUEUED, STAGE_ROWS, STAGE_DRAIN, STAGE_DONE},  /* JOB_OVERWRITE */
	{STAGE_QUEUED, STAGE_ROWS, STAGE_DRAIN, STAGE_DONE},  /* JOB_DEAD */
	{STAGE_QUEUED, STAGE_LISTS, STAGE_DRAIN, STAGE_DONE}, /* JOB_GRAPH */
	{STAGE_DONE},										  /* JOB_SEEDS */
	{STAGE_QUEUED, STAGE_LISTS, STAGE_DRAIN, STAGE_DONE}, /* JOB_LINK */
	{STAGE_DONE},										  /* JOB_REPAIR */
	{STAGE_QUEUED, STAGE_DONE},							  /* JOB_DROP */
	{STAGE_QUEUED, STAGE_FLOATS, STAGE_DRAIN, STAGE_DONE}, /* JOB_CODEBOOK */
	{STAGE_QUEUED, STAGE_TRAIN, STAGE_DRAIN, STAGE_DONE}}; /* JOB_TRAIN */

CudaJob *
job_find(CudaEngine *engine, JobId id)
{
	CudaJob *job = engine->jobs->first;

	while (job != NULL && job->id != id)
		job = job->next;
	return job;
}

void
job_counts(CudaEngine *engine, uint64_t *counted, uint64_t bytes)
{
	*counted += bytes;
	engine->device.host_arrays += bytes;
}

void *
job_allocate_result(size_t bytes, bool large)
{
	void *memory;

	if (posix_memalign(&memory, LARGE_PAGE, bytes + 1) != 0)
		return NULL;
	if (large && bytes >= LARGE_PAGE)
		(void) madvise(memory, bytes, MADV_HUGEPAGE);
	return memory;
}

/* Stop counting a job's bytes of host memory. */
static void
discount(CudaEngine *engine, uint64_t *counted)
{
	engine->device.host_arrays -= *counted;
	*counted = 0;
}

/* Forget a completed job. */
void
job_free(CudaEngine *engine, CudaJob *job)
{
	CudaJob **place = &engine->jobs->first;

	while (*place != job)
		place = &(*place)->next;
	*place = job->next;
	link_end(engine, job);
	lists_job_end(engine, job);
	lists_train_end(engine, job);
	free((void *) job->link.slots);
	free((void *) job->link.rows);
	free((void *) job->link.linked);
	free((void *) job->link.seeds);
	free((void *) job->link.codes);
	free((void *) job->link.floats);
	discount(engine, &job->work_bytes);
	discount(engine, &job->result_bytes);
	free(job->seeds);
	free(job);
}

EngineStatus
job_submit(CudaEngine *engine, const EngineJob *in, JobId *id, EngineError *error)
{
	CudaMirror *mirror = device_mirror(&engine->device, in->mirror);
	EngineStatus status;
	CudaJob *job;

	if (mirror == NULL || mirror->dropping)
		return engine_error(error, ENGINE_NOT_FOUND, "no mirror %llu",
							(unsigned long long) in->mirror);
	status = engine_check_job(in, &mirror->spec, error);
	if (status != ENGINE_OK)
		return status;
	job = (CudaJob *) calloc(1, sizeof(*job));
	if (job == NULL)
		return engine_error(error, ENGINE_NO_MEMORY, "out of memory");
	job->in = *in;
	job->shown_total = in->count;
	job->mirror = mirror;
	job->id = *id = ++engine->jobs->last_job;
	job->next = engine->jobs->first;
	engine->jobs->first = job;
	if (mirror->first_job == NULL)
		mirror->first_job = job;
	else
		mirror->last_job->next_of_mirror = job;
	mirror->last_job = job;
	mirror->dropping = in->kind == JOB_DROP;
	engine_set_in_flight(engine);
	return ENGINE_OK;
}

static bool
job_fail(CudaJob *job, EngineStatus status)
{
	job->status = status;
	return false;
}

/*
 * Take the memory that a job's seeds will need: once something has changed,
 * nothing but the device may fail.
 */
static bool
take_seeds(CudaEngine *engine, CudaJob *job)
{
	if (job->in.kind != JOB_SEEDS && !engine_job_links(job->in.kind))
		return true;
	job->seeds = (uint32_t *) malloc(SEEDS_ROOM * sizeof(uint32_t));
	if (job->seeds != NULL)
	{
		job_counts(engine, &job->result_bytes, SEEDS_ROOM * sizeof(uint32_t));
		return true;
	}
	return job_fail(job, engine_error(&job->error, ENGINE_NO_MEMORY, "out of memory"));
}

/* Begin a job of a mirror with lists that has stages of its own. */
static EngineStatus
job_begin_lists(CudaEngine *engine, CudaJob *job)
{
	switch (job->in.kind)
	{
		case JOB_LINK:
		case JOB_GRAPH:
			return lists_link_begin(engine, job);
		case JOB_CODEBOOK:
			return lists_floats_begin(job);
		case JOB_TRAIN:
			return lists_train_begin(engine, job);
		default:
			return ENGINE_OK;
	}
}

/* Check a job against its mirror, and make room. False: it fails. */
static bool
job_begin(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	const EngineJob *in = &job->in;
	uint64_t end = (uint64_t) in->first_slot + in->count;

	if (job->cancelled && in->kind != JOB_DROP)
		return job_fail(job, engine_error(&job->error, ENGINE_CANCELLED,
										  "the job was cancelled before it began"));
	if (in->kind == JOB_APPEND)
	{
		if (in->first_slot < mirror->rows || end > ENGINE_MAX_SLOTS)
			return job_fail(job, engine_error(&job->error, ENGINE_INVALID,
											  "rows %u to %llu cannot be appended to %u",
											  in->first_slot, (unsigned long long) end,
											  mirror->rows));
		if (mirror_grow(engine, mirror, end, &job->error) != ENGINE_OK)
			return job_fail(job, ENGINE_NO_MEMORY);
		return end == mirror->rows || piece_gap(engine, job);
	}
	if (in->kind == JOB_SEEDS && in->count > SEEDS_ROOM)
		return job_fail(job, engine_error(&job->error, ENGINE_INVALID, "%u seeds are more than %u",
										  in->count, SEEDS_ROOM));
	if (in->kind == JOB_OVERWRITE || in->kind == JOB_DEAD ||
		(in->kind == JOB_GRAPH && mirror->lists == NULL))
		for (uint32_t i = 0; i < in->count; i++)
			if (in->slots[i] >= mirror->rows)
				return job_fail(job, engine_error(&job->error, ENGINE_INVALID,
												  "slot %u is not below the %u published",
												  in->slots[i], mirror->rows));
	if (mirror->lists != NULL)
	{
		EngineStatus status = job_begin_lists(engine, job);

		return status == ENGINE_OK || job_fail(job, status);
	}
	if (engine_job_links(in->kind))
	{
		EngineStatus status = link_begin(engine, job);

		if (status != ENGINE_OK)
			return job_fail(job, status);
	}
	return take_seeds(engine, job);
}

/* Collect the seeds that a job sets: published ones. */
static void
collect_seeds(CudaJob *job)
{
	const uint32_t *seeds = engine_job_links(job->in.kind) ? job->link.seeds : job->in.slots;
	uint32_t count = engine_job_links(job->in.kind) ? job->link.nseeds : job->in.count;

	if (job->has_seeds)
		return;
	job->has_seeds = true;
	for (uint32_t i = 0; i < count; i++)
		if (seeds[i] < job->mirror->rows)
			job->seeds[job->nseeds++] = seeds[i];
}

/* Mark a slot as linked in the host's states. */
static void
mark_linked(CudaMirror *mirror, uint32_t slot)
{
	uint8_t old = mirror->states[slot];

	mirror->linked += (old & SLOT_LINKED) == 0;
	mirror->relinked += (old & SLOT_LINKED) == 0;
	mirror->npending -= (old & SLOT_PENDING) != 0;
	mirror->states[slot] = (uint8_t) ((old | SLOT_LINKED) & ~SLOT_PENDING);
}

/*
 * Call linked, a slice of them, the slots that a job links: all that JOB_GRAPH
 * names; of a link, which may have been cut short, those that its result says.
 * True when all are.
 */
static bool
link_slots(CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	const LinkResult *link = &job->link;
	uint32_t count = job->in.kind == JOB_GRAPH ? job->in.count : link->count;
	uint32_t end = at_most(count, job->marked + SLICE);

	for (; job->marked < end; job->marked++)
	{
		uint32_t i = job->marked;

		if (job->in.kind == JOB_GRAPH)
			mark_linked(mirror, job->in.slots[i]);
		else if ((link->linked[i / 64] >> (i % 64) & 1) &&
				 (mirror->states[link->slots[i]] & SLOT_PENDING))
			mark_linked(mirror, link->slots[i]);
	}
	return job->marked == count;
}

/*
 * Whether the list of pending slots is to be rebuilt.
 *
 * A load sends the graph rows of millions of slots in jobs of some thousand,
 * and all these slots are on the list: rebuilt by each job, the cost would be
 * quadratic in the rows. So jobs with graph rows leave slots on the list that
 * are linked already, up to half of it; searches find these twice and return
 * them once. The seeds, which are sent last, rebuild it.
 */
static bool
list_is_due(const CudaJob *job)
{
	const CudaMirror *mirror = job->mirror;

	if (job->in.kind == JOB_SEEDS)
		return mirror->nlisted != mirror->npending;
	return job->in.kind != JOB_GRAPH || mirror->nlisted <= SHORT_LIST ||
		   mirror->npending <= mirror->nlisted / 2;
}

/*
 * Take those that are no longer pending off the host's list of pending slots, a
 * slice at a time. Batches read the device's, whose length is published at the
 * end. True when it is done.
 */
static bool
collect_pending(CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	uint32_t end;

	if (job->step == 0)
	{
		if (!link_slots(job))
			return false;
		job->has_pending = list_is_due(job);
		job->step = 1;
	}
	if (!job->has_pending)
		return true;
	end = at_most(mirror->nlisted, job->scanned + SLICE);
	for (; job->scanned < end; job->scanned++)
	{
		uint32_t slot = mirror->listed[job->scanned];

		if (mirror->states[slot] & SLOT_PENDING)
			mirror->listed[job->npending++] = slot;
		else
			mirror->states[slot] &= (uint8_t) ~SLOT_LISTED;
	}
	return job->scanned == mirror->nlisted;
}

/*
 * Write the host's states of appended rows, a slice at a time: they are beyond
 * the published ones. True when all are written.
 */
static bool
append_states(CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	uint32_t count = job->in.first_slot + job->in.count - mirror->rows;
	uint32_t end = at_most(count, job->scanned + SLICE);

	for (; job->scanned < end; job->scanned++)
	{
		uint32_t slot = mirror->rows + job->scanned;
		uint32_t i = slot - job->in.first_slot;
		bool absent = slot < job->in.first_slot;
		bool dead = absent || (job->in.dead != NULL && (job->in.dead[i / 64] >> (i % 64) & 1));

		mirror->states[slot] = absent ? SLOT_DEAD | SLOT_ABSENT
							   : dead ? SLOT_DEAD
									  : SLOT_PENDING | SLOT_LISTED;
		if (!dead)
		{
			uint32_t at = mirror->nlisted + job->scanned - job->ndead;

			if (mirror->lists != NULL)
				mirror->lists->where[slot] = at;
			mirror->listed[at] = slot;
		}
		job->ndead += dead;
	}
	return job->scanned == count;
}

/* Make appended rows visible to batches that start from now on. */
static void
publish_append(CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	uint32_t alive = job->scanned - job->ndead;

	mirror->ndead += job->ndead;
	mirror->nlisted += alive;
	mirror->npending += alive;
	mirror->rows += job->scanned;
}

/* Replace the list of pending slots by the new one. */
static void
publish_pending(CudaJob *job)
{
	CudaMirror *mirror = job->mirror;

	mirror->nlisted = job->npending;
	mirror->pending_side ^= 1;
}

/* Forget a mirror. Its jobs have ended. */
static void
drop_mirror(CudaEngine *engine, CudaMirror *mirror)
{
	CudaMirror **place = &engine->device.mirrors;

	while (*place != mirror)
		place = &(*place)->next;
	*place = mirror->next;
	conditions_forget(engine, mirror->id);
	mirror_free(&engine->device, mirror);
}

/* Publish a job, all of which is on the device. */
static void
job_publish(CudaJob *job)
{
	CudaMirror *mirror = job->mirror;

	if (job->in.kind == JOB_APPEND)
		publish_append(job);
	if (job->in.kind == JOB_CODEBOOK)
		mirror->lists->received += job->in.count;
	if (job->in.kind == JOB_TRAIN && job->link_status == ENGINE_OK)
		mirror->lists->received = mirror->lists->nfloats;
	if (mirror->lists != NULL)
		mirror->lists->open = mirror->lists->received == mirror->lists->nfloats;
	if (job->has_seeds)
	{
		mirror->seeds_side ^= 1;
		mirror->nseeds = job->nseeds;
		mirror->seeds_sum = entry_points_sum(job->seeds, job->nseeds);
	}
	if (job->has_entries)
	{
		mirror->entries_side ^= 1;
		mirror->nentries = job->nentries;
		mirror->entry_points_sum = job->entry_points_sum;
	}
	if (job->has_pending)
		publish_pending(job);
	job->status = engine_job_links(job->in.kind) ? job->link_status : ENGINE_OK;
	if (!engine_job_links(job->in.kind))
		job->shown_done = job->in.count;
	if (job->in.has_position && job->status == ENGINE_OK)
		mirror->position = job->in.position;
}

/*
 * Copy a list of slots to the half that batches do not read. True when all of
 * it is on its way.
 */
static bool
job_send_slots(CudaEngine *engine, CudaJob *job, const uint32_t *slots, uint32_t count,
			   uint32_t *to)
{
	while (job->done < count)
		if (!piece_slots(engine, job, slots, count, to))
			return false;
	return true;
}

/* Send rows while there are free pieces. True when all were sent. */
static bool
send_rows(CudaEngine *engine, CudaJob *job)
{
	uint32_t count = job->in.count;
	bool sent = true;

	/*
	 * a search in several passes sees its rows unchanged from the first to the
	 * last
	 */
	if ((job->in.kind == JOB_OVERWRITE || job->in.kind == JOB_DEAD) && job->mirror->passes > 0)
		return false;
	while (sent && job->done < count)
		sent = job->in.kind == JOB_APPEND	   ? piece_append(engine, job)
			   : job->in.kind == JOB_OVERWRITE ? piece_overwrite(engine, job)
			   : job->in.kind == JOB_DEAD	   ? piece_dead(engine, job)
											   : piece_graph(engine, job);
	job->shown_done = job->done;
	return sent;
}

/* Have the owner return soon, after a slice of the host's work. */
static bool
go_on(CudaEngine *engine)
{
	engine_wake(engine);
	return false;
}

/*
 * Do what can be done now of a job's stage: true when the stage is over. A job
 * that fails has its status set.
 */
static bool
run_stage(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;

	switch (job->stage)
	{
		case STAGE_QUEUED:
			if (job->in.kind == JOB_DROP && mirror->queries > 0)
				return false;
			return job_begin(engine, job);
		case STAGE_LINK:
			return link_stage(engine, job);
		case STAGE_LISTS:
			return lists_link_stage(engine, job);
		case STAGE_FLOATS:
			return lists_floats_stage(engine, job);
		case STAGE_TRAIN:
			return lists_train_stage(engine, job);
		case STAGE_ROWS:
			if (job->cancelled && job->in.kind == JOB_APPEND)
				return job_fail(job, engine_error(&job->error, ENGINE_CANCELLED,
												  "the job was cancelled"));
			return send_rows(engine, job);
		case STAGE_STATES:
			return append_states(job) || go_on(engine);
		case STAGE_SEEDS:
			/* a link that never began says nothing of seeds */
			if (engine_job_links(job->in.kind) && job->link_status != ENGINE_OK &&
				job->link.nseeds == 0)
				return true;
			collect_seeds(job);
			return job_send_slots(engine, job, job->seeds, job->nseeds,
								  (uint32_t *) mirror->seeds.base +
									  (mirror->seeds_side ^ 1) * SEEDS_ROOM);
		case STAGE_PENDING:
			if (!collect_pending(job))
				return go_on(engine);
			return job_send_slots(engine, job, mirror->listed, job->npending,
								  (uint32_t *) mirror->pending[mirror->pending_side ^ 1].base);
		case STAGE_CODES:
			return quantizer_stage(engine, job);
		case STAGE_JUDGE:
			return quantizer_judge_stage(engine, job);
		case STAGE_ENTRIES:
			return entry_points_stage(engine, job);
		case STAGE_DRAIN:
			return job->in_flight == 0;
		case STAGE_DONE:
			break;
	}
	return false;
}

/* Take a job off its mirror's queue. */
static void
job_complete(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	bool drop = job->in.kind == JOB_DROP && job->status == ENGINE_OK;

	job->stage = STAGE_DONE;
	piece_release(job);
	link_end(engine, job);
	lists_job_end(engine, job);
	lists_train_end(engine, job);
	discount(engine, &job->work_bytes);
	mirror->first_job = job->next_of_mirror;
	mirror->changes_in_place = false;
	if (drop)
		drop_mirror(engine, mirror);
	job->mirror = NULL;
	engine_wake(engine);
}

/*
 * Whether the device is done with a failed job, whose memory can be freed then.
 * Its last launches may lack a piece that shows their completion: a fence is
 * sent.
 */
static bool
failed_job_is_over(CudaEngine *engine, CudaJob *job)
{
	if (job->stage != STAGE_QUEUED && !job->fenced)
		job->fenced = piece_send_fence(engine, job);
	return (job->stage == STAGE_QUEUED || job->fenced) && job->in_flight == 0;
}

/*
 * Whether a job changes rows in place now: it would wait long for a search in
 * passes, so none may begin.
 */
static bool
changes_in_place(const CudaJob *job)
{
	return job->stage == STAGE_ROWS && (job->in.kind == JOB_OVERWRITE || job->in.kind == JOB_DEAD);
}

/*
 * Advance a mirror's first job as far as it goes now. True when it completed.
 */
static bool
job_advance(CudaEngine *engine, CudaJob *job)
{
	while (job->status == ENGINE_OK && run_stage(engine, job))
	{
		const JobStage *at =
			job->mirror->lists != NULL ? list_stages[job->in.kind] : stages[job->in.kind];

		while (*at != job->stage)
			at++;
		job->stage = at[1];
		job->done = job->step = 0;
		job->mirror->changes_in_place = changes_in_place(job);
		if (job->stage == STAGE_DONE)
		{
			job_publish(job);
			job_complete(engine, job);
			return true;
		}
	}
	if (engine->device.failure.failed || job->status == ENGINE_OK ||
		!failed_job_is_over(engine, job))
		return false;
	job_complete(engine, job);
	return true;
}

/* Run jobs: the first of every mirror, and those after it as they complete. */
void
jobs_run(CudaEngine *engine)
{
	CudaMirror *next;

	for (CudaMirror *mirror = engine->device.mirrors; mirror != NULL; mirror = next)
	{
		bool more = mirror->first_job != NULL;

		next = mirror->next;
		while (more && !engine->device.failure.failed)
		{
			bool last = mirror->first_job->next_of_mirror == NULL;

			more = job_advance(engine, mirror->first_job) && !last;
		}
	}
}
