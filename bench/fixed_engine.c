/*
 * fixed_engine.c
 *		An engine that searches nothing: each query gets live slots of its
 *		mirror, at rising distances, at once.
 *
 * What is measured with it is everything but the search: SQL, requests, the
 * server, node records. Queries take turns through a list of live slots in a
 * fixed, scattered order: given the same slots, all sessions would pin and lock
 * the same few pages of index and table, which answers of a search do not make
 * them do. The engine keeps of a mirror what answers need, versions and which
 * slots are dead, and loses graph rows. Backends measure the first row of an
 * answer now and then, so that one has its true distance, and the others rise
 * from there. Loaded as an engine library (gpuann.engine_library).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/distance.h"
#include "engine/engine.h"

#define FIXED_MIRRORS	64
#define FIXED_PENDING	65536	/* completed queries that poll has not returned */
#define FIXED_SLOTS		16384	/* slots that answers are taken from, if they are live; their
								 * vectors are kept */
#define FIXED_TURNS		1024	/* places that answers begin at, whose vectors stay in the
								 * processor's cache */

typedef struct FixedMirror
{
	MirrorId	id;				/* 0: unused */
	MirrorInfo	info;
	MirrorSpec	spec;
	const DistanceKernels *kernels;
	char	   *vectors;		/* of the first FIXED_SLOTS slots */
	uint32_t	room;
	uint32_t   *versions;
	bool	   *live;
	uint32_t	turn;			/* where the next query's answer begins */
	uint32_t	list_count;		/* live slots in their scattered order; 0: to be made again */
	struct
	{
		uint32_t	slot;
		uint32_t	version;
	}			list[FIXED_SLOTS];
} FixedMirror;

struct Engine
{
	EngineConfig config;
	MirrorId	last_id;
	JobId		last_job;
	EngineStatus job_status;	/* of the last job: each is done when it has been submitted */
	FixedMirror *mirrors[FIXED_MIRRORS];
	EngineQuery *completed[FIXED_PENDING];
	uint32_t	completed_count;
};

static EngineStatus
fixed_open(const EngineConfig *config, Engine **opened, EngineError *error)
{
	Engine	   *engine = calloc(1, sizeof(Engine));

	if (engine == NULL)
	{
		engine_error(error, ENGINE_NO_MEMORY, "out of memory");
		return ENGINE_NO_MEMORY;
	}
	engine->config = *config;
	*opened = engine;
	return ENGINE_OK;
}

/* Free a mirror. */
static void
mirror_free(Engine *engine, uint32_t place)
{
	FixedMirror *mirror = engine->mirrors[place];

	if (mirror == NULL)
		return;
	free(mirror->vectors);
	free(mirror->versions);
	free(mirror->live);
	free(mirror);
	engine->mirrors[place] = NULL;
}

static void
fixed_close(Engine *engine)
{
	for (uint32_t i = 0; i < FIXED_MIRRORS; i++)
		mirror_free(engine, i);
	free(engine);
}

static void
fixed_info(Engine *engine, EngineInfo *info)
{
	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "fixed");
	snprintf(info->device, sizeof(info->device), "no device: fixed answers");
	info->max_batch = 1024;
}

static void
fixed_memory(Engine *engine, EngineMemory *memory)
{
	memset(memory, 0, sizeof(*memory));
	memory->limit = engine->config.memory_limit ? engine->config.memory_limit : UINT64_C(1) << 30;
	for (uint32_t i = 0; i < FIXED_MIRRORS; i++)
		if (engine->mirrors[i] != NULL)
			memory->state += engine->mirrors[i]->info.bytes;
	memory->used = memory->state;
}

static EngineStatus
fixed_mirror_create(Engine *engine, const MirrorSpec *spec, MirrorId *id, EngineError *error)
{
	for (uint32_t i = 0; i < FIXED_MIRRORS; i++)
	{
		FixedMirror *mirror;

		if (engine->mirrors[i] != NULL)
			continue;
		mirror = calloc(1, sizeof(FixedMirror));
		if (mirror == NULL)
			break;
		mirror->id = *id = ++engine->last_id;
		mirror->info.bytes = sizeof(FixedMirror);
		mirror->spec = *spec;
		mirror->kernels = distance_kernels(spec->type, spec->metric, SIMD_BEST);
		mirror->vectors = calloc(FIXED_SLOTS, engine_vector_bytes(spec->type, spec->dims));
		engine->mirrors[i] = mirror;
		if (mirror->kernels != NULL && mirror->vectors != NULL)
			return ENGINE_OK;
		mirror_free(engine, i);
		break;
	}
	engine_error(error, ENGINE_NO_MEMORY, "no room for another mirror");
	return ENGINE_NO_MEMORY;
}

/* The place of a mirror, or FIXED_MIRRORS. */
static uint32_t
find(const Engine *engine, MirrorId id)
{
	uint32_t	i = 0;

	while (i < FIXED_MIRRORS && (engine->mirrors[i] == NULL || engine->mirrors[i]->id != id))
		i++;
	return i;
}

static EngineStatus
fixed_mirror_info(Engine *engine, MirrorId id, MirrorInfo *info, EngineError *error)
{
	uint32_t	place = find(engine, id);

	if (place == FIXED_MIRRORS)
	{
		engine_error(error, ENGINE_NOT_FOUND, "no such mirror");
		return ENGINE_NOT_FOUND;
	}
	*info = engine->mirrors[place]->info;
	return ENGINE_OK;
}

static EngineStatus
fixed_mirror_rows(Engine *engine, MirrorId id, const uint32_t *slots, uint32_t count,
				  uint32_t *rows, uint32_t *versions, EngineError *error)
{
	engine_error(error, ENGINE_UNSUPPORTED, "graph rows are not kept");
	return ENGINE_UNSUPPORTED;
}

static EngineStatus
fixed_list_probes(Engine *engine, MirrorId id, uint64_t *counts, uint32_t count,
				  EngineError *error)
{
	engine_error(error, ENGINE_UNSUPPORTED, "there are no lists");
	return ENGINE_UNSUPPORTED;
}

/*
 * Make the list that answers are taken from. An odd multiplier visits each of
 * the slots, a power of two, once.
 */
static void
make_list(FixedMirror *mirror)
{
	for (uint32_t i = 0; i < FIXED_SLOTS; i++)
	{
		uint32_t	slot = (i * 0x9E3779B1u) % FIXED_SLOTS;

		if (slot < mirror->info.rows && mirror->live[slot])
		{
			mirror->list[mirror->list_count].slot = slot;
			mirror->list[mirror->list_count++].version = mirror->versions[slot];
		}
	}
}

/* The distance of a slot whose vector is kept. */
static double
true_distance(const FixedMirror *mirror, const EngineQuery *query, uint32_t slot)
{
	return mirror->kernels->exact(
		query->vector,
		mirror->vectors + slot * engine_vector_bytes(mirror->spec.type, mirror->spec.dims),
		mirror->spec.dims);
}

/* Answer a query. */
static void
answer(FixedMirror *mirror, EngineQuery *query)
{
	uint32_t	begin;
	uint32_t	passed = 0;
	double		nearest;

	memset(&query->counters, 0, sizeof(query->counters));
	query->status = ENGINE_OK;
	query->position = mirror->info.position;
	query->rows = mirror->info.rows;
	query->count = 0;
	if (mirror->list_count == 0)
		make_list(mirror);
	if (mirror->list_count == 0)
		return;
	begin = mirror->turn++ % FIXED_TURNS % mirror->list_count;
	nearest = true_distance(mirror, query, mirror->list[begin].slot);
	while (query->has_beyond && passed < mirror->list_count &&
		   nearest + passed <= query->beyond_distance)
		passed++;
	for (uint32_t i = passed; i < mirror->list_count && query->count < query->k; i++)
	{
		uint32_t at = begin + i < mirror->list_count ? begin + i : begin + i - mirror->list_count;

		query->results[query->count++] =
			(SearchResult){nearest + i, mirror->list[at].slot, mirror->list[at].version};
	}
}

static EngineStatus
fixed_submit(Engine *engine, EngineQuery *const *queries, uint32_t count, EngineError *error)
{
	uint32_t	place = find(engine, queries[0]->mirror);

	if (engine->completed_count + count > FIXED_PENDING)
	{
		engine_error(error, ENGINE_BUSY, "too many queries");
		return ENGINE_BUSY;
	}
	for (uint32_t i = 0; i < count; i++)
	{
		if (place < FIXED_MIRRORS)
			answer(engine->mirrors[place], queries[i]);
		else
			engine_error(&queries[i]->error, queries[i]->status = ENGINE_NOT_FOUND,
						 "no such mirror");
		engine->completed[engine->completed_count++] = queries[i];
	}
	return ENGINE_OK;
}

static EngineStatus
fixed_poll(Engine *engine, EngineQuery **completed, uint32_t room, uint32_t *count,
		   EngineError *error)
{
	*count = engine->completed_count < room ? engine->completed_count : room;
	engine->completed_count -= *count;
	memcpy(completed, engine->completed + engine->completed_count, *count * sizeof(EngineQuery *));
	return ENGINE_OK;
}

/* Keep a vector if answers may begin with it. */
static void
keep_vector(FixedMirror *mirror, uint32_t slot, const EngineJob *job, uint32_t i)
{
	size_t		bytes = engine_vector_bytes(mirror->spec.type, mirror->spec.dims);

	if (slot < FIXED_SLOTS)
		memcpy(mirror->vectors + slot * bytes, (const char *) job->vectors + i * bytes, bytes);
}

/* JOB_APPEND. False: out of memory. */
static bool
append(FixedMirror *mirror, const EngineJob *job)
{
	uint32_t	end = job->first_slot + job->count;

	if (end > mirror->room)
	{
		uint32_t	room = end + end / 2 + 1024;
		uint32_t   *versions = reallocarray(mirror->versions, room, sizeof(uint32_t));
		bool	   *live = versions != NULL ? reallocarray(mirror->live, room, sizeof(bool)) : NULL;

		if (versions != NULL)
			mirror->versions = versions;
		if (live == NULL)
			return false;
		mirror->live = live;
		mirror->room = room;
		mirror->info.bytes = sizeof(FixedMirror) + room * (sizeof(uint32_t) + sizeof(bool));
	}
	for (uint32_t slot = mirror->info.rows; slot < job->first_slot; slot++)
		mirror->live[slot] = false;
	for (uint32_t i = 0; i < job->count; i++)
	{
		keep_vector(mirror, job->first_slot + i, job, i);
		mirror->versions[job->first_slot + i] = job->versions[i];
		mirror->live[job->first_slot + i] =
			job->dead == NULL || (job->dead[i / 64] >> (i % 64) & 1) == 0;
	}
	if (end > mirror->info.rows)
		mirror->info.rows = end;
	return true;
}

/* Do a job. */
static EngineStatus
work(FixedMirror *mirror, const EngineJob *job)
{
	for (uint32_t i = 0; job->kind != JOB_APPEND && job->slots != NULL && i < job->count; i++)
		if (job->slots[i] >= mirror->info.rows)
			return ENGINE_INVALID;
	if (job->kind == JOB_APPEND && !append(mirror, job))
		return ENGINE_NO_MEMORY;
	for (uint32_t i = 0; (job->kind == JOB_OVERWRITE || job->kind == JOB_DEAD) && i < job->count;
		 i++)
	{
		if (job->kind == JOB_OVERWRITE)
			keep_vector(mirror, job->slots[i], job, i);
		mirror->versions[job->slots[i]] = job->versions[i];
		mirror->live[job->slots[i]] = job->kind == JOB_OVERWRITE;
	}
	if (job->kind == JOB_SEEDS)
		mirror->info.seeds = job->count;
	if (job->has_position)
		mirror->info.position = job->position;
	mirror->info.linked = mirror->info.rows;
	mirror->list_count = 0;
	return ENGINE_OK;
}

static EngineStatus
fixed_job_submit(Engine *engine, const EngineJob *job, JobId *id, EngineError *error)
{
	uint32_t	place = find(engine, job->mirror);

	*id = ++engine->last_job;
	engine->job_status = ENGINE_NOT_FOUND;
	if (place < FIXED_MIRRORS && job->kind == JOB_DROP)
	{
		mirror_free(engine, place);
		engine->job_status = ENGINE_OK;
	}
	else if (place < FIXED_MIRRORS)
		engine->job_status = work(engine->mirrors[place], job);
	if (engine->job_status != ENGINE_OK)
	{
		engine_error(error, engine->job_status, "the job cannot be done");
		return engine->job_status;
	}
	if (engine->config.wake != NULL)
		engine->config.wake(engine->config.wake_arg);
	return ENGINE_OK;
}

static EngineStatus
fixed_job_poll(Engine *engine, JobId id, JobProgress *progress)
{
	memset(progress, 0, sizeof(*progress));
	progress->completed = true;
	progress->status = ENGINE_OK;
	return ENGINE_OK;
}

static EngineStatus
fixed_job_cancel(Engine *engine, JobId id)
{
	return ENGINE_OK;
}

/* A link changes nothing here. */
static EngineStatus
fixed_job_link_result(Engine *engine, JobId id, LinkResult *result)
{
	memset(result, 0, sizeof(*result));
	return ENGINE_OK;
}

static void
fixed_job_release(Engine *engine, JobId id)
{
}

extern const EngineOps *gpuann_engine_ops(void);

/* The entry of the shared object. */
__attribute__((visibility("default"))) const EngineOps *
gpuann_engine_ops(void)
{
	static const EngineOps ops = {
		.abi_version = ENGINE_ABI_VERSION,
		.open = fixed_open,
		.close = fixed_close,
		.info = fixed_info,
		.memory = fixed_memory,
		.mirror_create = fixed_mirror_create,
		.mirror_info = fixed_mirror_info,
		.mirror_rows = fixed_mirror_rows,
		.list_probes = fixed_list_probes,
		.submit = fixed_submit,
		.poll = fixed_poll,
		.job_submit = fixed_job_submit,
		.job_poll = fixed_job_poll,
		.job_cancel = fixed_job_cancel,
		.job_link_result = fixed_job_link_result,
		.job_release = fixed_job_release,
	};

	return &ops;
}
