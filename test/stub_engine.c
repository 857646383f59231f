/*
 * stub_engine.c
 *		An engine for tests and benchmarks of everything around engines: a
 *		shared object with faults on demand.
 *
 * It answers exactly (L2 of floats, one row after another), at once and in the
 * caller's thread, unless GPUANN_STUB says otherwise: a list of name=number,
 * separated by commas.
 *
 *	fixed=1			answer k live slots of rising distance without looking at a
 *					vector: the cost of everything but the search
 *	delay_us=N		answers become visible N microseconds after their submit
 *	error_every=N	each Nth query fails with ENGINE_NO_MEMORY
 *	busy_every=N	each Nth submit of queries, and of jobs, returns ENGINE_BUSY
 *	garbage=1		random slots, versions, distances and order, sometimes more
 *					results than wanted
 *	fail_after=N	from the Nth query on, poll returns ENGINE_FAILED
 *	crash_after=N	at the Nth query, a segmentation fault
 *	hang_after=N	at the Nth query, submit never returns
 *	open_fails=1	there is no device
 *	abi=N			an engine of another interface version
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/engine.h"

#define STUB_MIRRORS	65536
#define STUB_JOBS		4096
#define STUB_MAX_CELLS	(UINT64_C(1) << 28)	/* slots * dims of one mirror */

typedef struct StubFaults
{
	unsigned long fixed;
	unsigned long delay_us;
	unsigned long error_every;
	unsigned long busy_every;
	unsigned long garbage;
	unsigned long fail_after;
	unsigned long crash_after;
	unsigned long hang_after;
	unsigned long open_fails;
	unsigned long abi;
} StubFaults;

typedef struct StubMirror
{
	MirrorSpec	spec;
	MirrorInfo	info;
	uint32_t	room;
	float	   *vectors;
	uint32_t   *versions;
	uint32_t   *rows;			/* degree each */
	bool	   *live;
	bool	   *linked;
} StubMirror;

typedef struct StubJob
{
	bool		used;
	EngineStatus status;
	EngineError error;
	uint32_t	count;
	uint32_t	nseeds;
	uint32_t   *slots;
	uint32_t   *rows;
	uint32_t   *seeds;
} StubJob;

typedef struct Answer
{
	EngineQuery *query;
	int64_t		visible_us;
	struct Answer *next;
} Answer;

struct Engine
{
	EngineConfig config;
	StubFaults	faults;
	StubMirror *mirrors[STUB_MIRRORS];
	uint64_t	next_mirror;
	StubJob		jobs[STUB_JOBS];
	Answer	   *first;
	Answer	   *last;
	uint64_t	queries;
	uint64_t	submits;
	uint64_t	used;
	uint64_t	random;

	/* the thread that wakes the owner when a delayed answer becomes visible */
	pthread_t	waker;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int64_t		wake_at_us;
	bool		ending;
};

static int64_t
now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static EngineStatus
fail(EngineError *error, EngineStatus status, const char *format,...)
{
	va_list		arguments;

	error->status = status;
	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	return status;
}

static uint64_t
next_random(Engine *engine)
{
	engine->random ^= engine->random << 13;
	engine->random ^= engine->random >> 7;
	engine->random ^= engine->random << 17;
	return engine->random;
}

/* Read the faults asked for. */
static void
read_faults(StubFaults *faults)
{
	const struct
	{
		const char *name;
		unsigned long *value;
	} known[] = {
		{"fixed", &faults->fixed},
		{"delay_us", &faults->delay_us},
		{"error_every", &faults->error_every},
		{"busy_every", &faults->busy_every},
		{"garbage", &faults->garbage},
		{"fail_after", &faults->fail_after},
		{"crash_after", &faults->crash_after},
		{"hang_after", &faults->hang_after},
		{"open_fails", &faults->open_fails},
		{"abi", &faults->abi},
	};
	const char *setting = getenv("GPUANN_STUB");
	char	   *copy = strdup(setting != NULL ? setting : "");
	char	   *rest = copy;
	char	   *word;

	memset(faults, 0, sizeof(*faults));
	while ((word = strsep(&rest, ",")) != NULL)
	{
		char	   *value = strchr(word, '=');

		for (size_t i = 0; value != NULL && i < sizeof(known) / sizeof(known[0]); i++)
			if (strncmp(word, known[i].name, (size_t) (value - word)) == 0 &&
				known[i].name[value - word] == '\0')
				*known[i].value = strtoul(value + 1, NULL, 10);
	}
	free(copy);
}

/* Wake the owner whenever the next delayed answer becomes visible. */
static void *
waker_main(void *arg)
{
	Engine	   *engine = arg;

	pthread_mutex_lock(&engine->lock);
	while (!engine->ending)
	{
		int64_t		at = engine->wake_at_us;
		struct timespec until = {at / 1000000, at % 1000000 * 1000};

		if (at == 0)
			pthread_cond_wait(&engine->changed, &engine->lock);
		else if (now_us() < at)
			pthread_cond_timedwait(&engine->changed, &engine->lock, &until);
		else
		{
			engine->wake_at_us = 0;
			if (engine->config.wake != NULL)
				engine->config.wake(engine->config.wake_arg);
		}
	}
	pthread_mutex_unlock(&engine->lock);
	return NULL;
}

static EngineStatus
stub_open(const EngineConfig *config, Engine **opened, EngineError *error)
{
	Engine	   *engine = calloc(1, sizeof(Engine));
	pthread_condattr_t monotonic;

	if (engine == NULL)
		return fail(error, ENGINE_NO_MEMORY, "out of memory");
	engine->config = *config;
	read_faults(&engine->faults);
	if (engine->faults.open_fails)
	{
		free(engine);
		return fail(error, ENGINE_NO_DEVICE, "the stub was told to have no device");
	}
	engine->random = 88172645463325252u;
	pthread_mutex_init(&engine->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&engine->changed, &monotonic);
	if (pthread_create(&engine->waker, NULL, waker_main, engine) != 0)
	{
		free(engine);
		return fail(error, ENGINE_NO_MEMORY, "could not start a thread");
	}
	*opened = engine;
	return ENGINE_OK;
}

/* Free a mirror. */
static void
mirror_free(Engine *engine, MirrorId id)
{
	StubMirror *mirror = engine->mirrors[id % STUB_MIRRORS];

	engine->used -= mirror->info.bytes;
	free(mirror->vectors);
	free(mirror->versions);
	free(mirror->rows);
	free(mirror->live);
	free(mirror->linked);
	free(mirror);
	engine->mirrors[id % STUB_MIRRORS] = NULL;
}

static void
stub_close(Engine *engine)
{
	pthread_mutex_lock(&engine->lock);
	engine->ending = true;
	pthread_cond_signal(&engine->changed);
	pthread_mutex_unlock(&engine->lock);
	pthread_join(engine->waker, NULL);
	for (MirrorId id = 0; id < STUB_MIRRORS; id++)
		if (engine->mirrors[id] != NULL)
			mirror_free(engine, id);
	free(engine);
}

static void
stub_info(Engine *engine, EngineInfo *info)
{
	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "stub");
	snprintf(info->device, sizeof(info->device), "no device%s",
			 engine->faults.fixed ? ", fixed answers" : "");
	info->max_batch = 1024;
}

static void
stub_memory(Engine *engine, EngineMemory *memory)
{
	memset(memory, 0, sizeof(*memory));
	memory->limit = engine->config.memory_limit ? engine->config.memory_limit : UINT64_C(1) << 30;
	memory->used = memory->vectors = engine->used;
}

/* Make room for so many slots. */
static bool
mirror_grow(Engine *engine, StubMirror *mirror, uint32_t slots)
{
	uint32_t	room = mirror->room ? mirror->room : 64;

	while (room < slots)
		room *= 2;
	if ((uint64_t) slots * mirror->spec.dims > STUB_MAX_CELLS)
		return false;
	if (room == mirror->room)
		return true;
	mirror->vectors =
		reallocarray(mirror->vectors, (size_t) room * mirror->spec.dims, sizeof(float));
	mirror->versions = reallocarray(mirror->versions, room, sizeof(uint32_t));
	mirror->rows =
		reallocarray(mirror->rows, (size_t) room * mirror->spec.degree, sizeof(uint32_t));
	mirror->live = reallocarray(mirror->live, room, sizeof(bool));
	mirror->linked = reallocarray(mirror->linked, room, sizeof(bool));
	if (!mirror->vectors || !mirror->versions || !mirror->rows || !mirror->live || !mirror->linked)
		abort();
	mirror->room = room;
	engine->used -= mirror->info.bytes;
	mirror->info.bytes = (uint64_t) room * (mirror->spec.dims + mirror->spec.degree + 1) * 4;
	engine->used += mirror->info.bytes;
	return true;
}

static EngineStatus
stub_mirror_create(Engine *engine, const MirrorSpec *spec, MirrorId *id, EngineError *error)
{
	StubMirror *mirror;

	if (spec->type != ELEMENT_FLOAT)
		return fail(error, ENGINE_UNSUPPORTED, "the stub has floats only");
	for (uint32_t tries = 0; tries < STUB_MIRRORS; tries++)
	{
		uint32_t	place = (uint32_t) (++engine->next_mirror % STUB_MIRRORS);

		if (place == 0 || engine->mirrors[place] != NULL)
			continue;
		mirror = calloc(1, sizeof(StubMirror));
		if (mirror == NULL)
			break;
		mirror->spec = *spec;
		engine->mirrors[place] = mirror;
		*id = engine->next_mirror;
		return ENGINE_OK;
	}
	return fail(error, ENGINE_NO_MEMORY, "too many mirrors");
}

/* A mirror by its id, or NULL with *error. */
static StubMirror *
find(Engine *engine, MirrorId id, EngineError *error)
{
	StubMirror *mirror = id == 0 ? NULL : engine->mirrors[id % STUB_MIRRORS];

	if (mirror == NULL)
		fail(error, ENGINE_NOT_FOUND, "no such mirror");
	return mirror;
}

static EngineStatus
stub_mirror_info(Engine *engine, MirrorId id, MirrorInfo *info, EngineError *error)
{
	StubMirror *mirror = find(engine, id, error);

	if (mirror == NULL)
		return ENGINE_NOT_FOUND;
	*info = mirror->info;
	info->linked = info->pending = info->dead = 0;
	for (uint32_t slot = 0; slot < info->rows; slot++)
	{
		info->linked += mirror->linked[slot];
		info->dead += !mirror->live[slot];
		info->pending += mirror->live[slot] && !mirror->linked[slot];
	}
	return ENGINE_OK;
}

static EngineStatus
stub_mirror_rows(Engine *engine, MirrorId id, const uint32_t *slots, uint32_t count, uint32_t *rows,
				 uint32_t *versions, EngineError *error)
{
	StubMirror *mirror = find(engine, id, error);

	if (mirror == NULL)
		return ENGINE_NOT_FOUND;
	for (uint32_t i = 0; i < count; i++)
	{
		if (slots[i] >= mirror->info.rows)
			return fail(error, ENGINE_INVALID, "slot %u is not published", slots[i]);
		versions[i] = mirror->versions[slots[i]];
		memcpy(rows + (size_t) i * mirror->spec.degree,
			   mirror->rows + (size_t) slots[i] * mirror->spec.degree,
			   mirror->spec.degree * sizeof(uint32_t));
	}
	return ENGINE_OK;
}

static EngineStatus
stub_list_probes(Engine *engine, MirrorId id, uint64_t *counts, uint32_t count, EngineError *error)
{
	return fail(error, ENGINE_UNSUPPORTED, "there are no lists");
}

/* The square of the distance of a query from a row. */
static double
distance(const StubMirror *mirror, const float *query, uint32_t slot)
{
	const float *row = mirror->vectors + (size_t) slot * mirror->spec.dims;
	double		sum = 0;

	for (uint32_t i = 0; i < mirror->spec.dims; i++)
		sum += ((double) query[i] - (double) row[i]) * ((double) query[i] - (double) row[i]);
	return sum;
}

/* Put a candidate at its place among the results so far. */
static void
keep(EngineQuery *query, SearchResult candidate)
{
	uint32_t	at;

	if (query->count == query->k)
	{
		if (!engine_before(candidate.distance, candidate.slot,
						   query->results[query->k - 1].distance,
						   query->results[query->k - 1].slot))
			return;
		query->count--;
	}
	for (at = query->count;
		 at > 0 && engine_before(candidate.distance, candidate.slot,
								 query->results[at - 1].distance, query->results[at - 1].slot);
		 at--)
		query->results[at] = query->results[at - 1];
	query->results[at] = candidate;
	query->count++;
}

/* Answer a query, truly, fixedly or with garbage. */
static void
answer(Engine *engine, const StubMirror *mirror, EngineQuery *query)
{
	query->count = 0;
	query->position = mirror->info.position;
	query->rows = mirror->info.rows;
	memset(&query->counters, 0, sizeof(query->counters));
	if (engine->faults.garbage)
	{
		query->count = query->k;
		for (uint32_t i = 0; i < query->k; i++)
			query->results[i] =
				(SearchResult){(double) (int64_t) next_random(engine),
							   (uint32_t) next_random(engine), (uint32_t) next_random(engine)};
		if (next_random(engine) % 4 == 0)
			query->results[0].distance = (double) NAN;
		if (next_random(engine) % 8 == 0)
			query->count += 1 + (uint32_t) (next_random(engine) % 1000000);
		return;
	}
	for (uint32_t slot = 0; slot < mirror->info.rows; slot++)
	{
		SearchResult candidate = {slot, slot, mirror->versions[slot]};

		if (engine->faults.fixed && query->count == query->k)
			break;
		if (!mirror->live[slot])
			continue;
		if (!engine->faults.fixed)
			candidate.distance = distance(mirror, query->vector, slot);
		if (!query->has_beyond ||
			engine_before(query->beyond_distance, query->beyond_slot, candidate.distance, slot))
			keep(query, candidate);
		query->counters.distances++;
	}
}

/*
 * A segmentation fault that a sanitizer does not take for one of the server's
 * own.
 */
static void
crash(void)
{
	signal(SIGSEGV, SIG_DFL);
	raise(SIGSEGV);
}

/* The faults that strike at a query. */
static void
strike(Engine *engine, EngineQuery *query)
{
	const StubFaults *faults = &engine->faults;

	engine->queries++;
	if (faults->crash_after && engine->queries >= faults->crash_after)
		crash();
	while (faults->hang_after && engine->queries >= faults->hang_after)
		continue;
	query->status = ENGINE_OK;
	if (faults->error_every && engine->queries % faults->error_every == 0)
		query->status = fail(&query->error, ENGINE_NO_MEMORY, "the stub was told to fail");
}

static EngineStatus
stub_submit(Engine *engine, EngineQuery *const *queries, uint32_t count, EngineError *error)
{
	if (engine->faults.busy_every && ++engine->submits % engine->faults.busy_every == 0)
		return fail(error, ENGINE_BUSY, "the stub was told to be busy");
	for (uint32_t i = 0; i < count; i++)
	{
		EngineQuery *query = queries[i];
		StubMirror *mirror = find(engine, query->mirror, &query->error);
		Answer	   *made = malloc(sizeof(Answer));

		if (made == NULL)
			abort();
		query->count = 0;
		strike(engine, query);
		if (mirror == NULL)
			query->status = ENGINE_NOT_FOUND;
		else if (query->status == ENGINE_OK)
			answer(engine, mirror, query);
		*made = (Answer){query,
						 engine->faults.delay_us ? now_us() + (int64_t) engine->faults.delay_us : 0,
						 NULL};
		if (engine->first == NULL)
			engine->first = made;
		else
			engine->last->next = made;
		engine->last = made;
	}
	if (engine->faults.delay_us)
	{
		pthread_mutex_lock(&engine->lock);
		if (engine->wake_at_us == 0)
			engine->wake_at_us = engine->first->visible_us;
		pthread_cond_signal(&engine->changed);
		pthread_mutex_unlock(&engine->lock);
	}
	return ENGINE_OK;
}

static EngineStatus
stub_poll(Engine *engine, EngineQuery **completed, uint32_t room, uint32_t *count,
		  EngineError *error)
{
	int64_t		now = engine->faults.delay_us ? now_us() : 0;

	*count = 0;
	if (engine->faults.fail_after && engine->queries >= engine->faults.fail_after)
		return fail(error, ENGINE_FAILED, "the stub was told to break");
	while (*count < room && engine->first != NULL && engine->first->visible_us <= now)
	{
		Answer	   *made = engine->first;

		completed[(*count)++] = made->query;
		engine->first = made->next;
		free(made);
	}
	if (engine->faults.delay_us && engine->first != NULL)
	{
		pthread_mutex_lock(&engine->lock);
		engine->wake_at_us = engine->first->visible_us;
		pthread_cond_signal(&engine->changed);
		pthread_mutex_unlock(&engine->lock);
	}
	return ENGINE_OK;
}

/* Put a row of a job into its slot. */
static void
put_row(StubMirror *mirror, const EngineJob *job, uint32_t slot, uint32_t i)
{
	bool		dead = job->dead != NULL && (job->dead[i / 64] >> (i % 64) & 1) != 0;

	memcpy(mirror->vectors + (size_t) slot * mirror->spec.dims,
		   (const float *) job->vectors + (size_t) i * mirror->spec.dims,
		   mirror->spec.dims * sizeof(float));
	mirror->versions[slot] = job->versions[i];
	mirror->live[slot] = !dead;
	mirror->linked[slot] = dead;
}

/* JOB_APPEND. */
static EngineStatus
append(Engine *engine, StubMirror *mirror, const EngineJob *job, EngineError *error)
{
	uint32_t	end = job->first_slot + job->count;

	if (job->count == 0)
		return ENGINE_OK;
	if (job->first_slot < mirror->info.rows)
		return fail(error, ENGINE_INVALID, "slot %u is published already", job->first_slot);
	if (!mirror_grow(engine, mirror, end))
		return fail(error, ENGINE_NO_MEMORY, "%u rows are too many for the stub", end);
	for (uint32_t slot = mirror->info.rows; slot < end; slot++)
	{
		memset(mirror->rows + (size_t) slot * mirror->spec.degree, 0xFF,
			   mirror->spec.degree * sizeof(uint32_t));
		memset(mirror->vectors + (size_t) slot * mirror->spec.dims, 0,
			   mirror->spec.dims * sizeof(float));
		mirror->versions[slot] = 0;
		mirror->live[slot] = false;
		mirror->linked[slot] = true;
	}
	for (uint32_t i = 0; i < job->count; i++)
		put_row(mirror, job, job->first_slot + i, i);
	mirror->info.rows = end;
	return ENGINE_OK;
}

/*
 * Link a slot with its neighbours by number that live, which is a graph as good
 * as any for who only carries it.
 */
static void
link_slot(StubMirror *mirror, StubJob *made, uint32_t slot)
{
	uint32_t   *row = mirror->rows + (size_t) slot * mirror->spec.degree;
	uint32_t	degree = mirror->spec.degree;

	memset(row, 0xFF, degree * sizeof(uint32_t));
	for (uint32_t other = slot + 1, i = 0; i < degree && other < mirror->info.rows; other++)
		if (mirror->live[other])
			row[i++] = other;
	mirror->linked[slot] = true;
	made->slots = reallocarray(made->slots, made->count + 1, sizeof(uint32_t));
	made->rows = reallocarray(made->rows, (size_t) (made->count + 1) * degree, sizeof(uint32_t));
	if (made->slots == NULL || made->rows == NULL)
		abort();
	made->slots[made->count] = slot;
	memcpy(made->rows + (size_t) made->count * degree, row, degree * sizeof(uint32_t));
	made->count++;
}

/* Whether a slot is one that the job gives a row. */
static bool
is_due(const StubMirror *mirror, const EngineJob *job, uint32_t slot)
{
	const uint32_t *row = mirror->rows + (size_t) slot * mirror->spec.degree;

	if (job->kind == JOB_LINK || !mirror->live[slot])
		return mirror->live[slot] && !mirror->linked[slot];
	for (uint32_t i = 0; i < mirror->spec.degree && row[i] != NO_SLOT; i++)
		if (!mirror->live[row[i]])
			return mirror->linked[slot];
	return false;
}

/* JOB_LINK and JOB_REPAIR. */
static void
link_rows(StubMirror *mirror, const EngineJob *job, StubJob *made)
{
	for (uint32_t slot = 0; slot < mirror->info.rows; slot++)
	{
		bool		wanted = job->slots == NULL;

		for (uint32_t i = 0; job->slots != NULL && i < job->count && !wanted; i++)
			wanted = job->slots[i] == slot;
		if (wanted && is_due(mirror, job, slot))
			link_slot(mirror, made, slot);
	}
	made->nseeds = mirror->info.rows < 8 ? mirror->info.rows : 8;
	made->seeds = calloc(8, sizeof(uint32_t));
	if (made->seeds == NULL)
		abort();
	for (uint32_t i = 0; i < made->nseeds; i++)
		made->seeds[i] = i;
	mirror->info.seeds = made->nseeds;
}

/* Do a job, at once. */
static EngineStatus
run(Engine *engine, const EngineJob *job, StubJob *made)
{
	StubMirror *mirror = find(engine, job->mirror, &made->error);

	if (mirror == NULL)
		return ENGINE_NOT_FOUND;
	for (uint32_t i = 0; job->kind != JOB_APPEND && job->slots != NULL && i < job->count; i++)
		if (job->slots[i] >= mirror->info.rows)
			return fail(&made->error, ENGINE_INVALID, "slot %u is not published", job->slots[i]);
	if (job->kind == JOB_APPEND && append(engine, mirror, job, &made->error) != ENGINE_OK)
		return made->error.status;
	if (engine_job_links(job->kind))
		link_rows(mirror, job, made);
	for (uint32_t i = 0; i < job->count; i++)
	{
		if (job->kind == JOB_OVERWRITE)
			put_row(mirror, job, job->slots[i], i);
		if (job->kind == JOB_GRAPH)
		{
			memcpy(mirror->rows + (size_t) job->slots[i] * mirror->spec.degree,
				   job->rows + (size_t) i * mirror->spec.degree,
				   mirror->spec.degree * sizeof(uint32_t));
			mirror->linked[job->slots[i]] = true;
		}
		if (job->kind == JOB_DEAD)
		{
			mirror->versions[job->slots[i]] = job->versions[i];
			mirror->live[job->slots[i]] = false;
		}
	}
	if (job->kind == JOB_SEEDS)
		mirror->info.seeds = job->count;
	if (job->has_position)
		mirror->info.position = job->position;
	if (job->kind == JOB_DROP)
		mirror_free(engine, job->mirror);
	return ENGINE_OK;
}

static EngineStatus
stub_job_submit(Engine *engine, const EngineJob *job, JobId *id, EngineError *error)
{
	if (engine->faults.busy_every && ++engine->submits % engine->faults.busy_every == 0)
		return fail(error, ENGINE_BUSY, "the stub was told to be busy");
	for (uint32_t i = 1; i < STUB_JOBS; i++)
	{
		StubJob    *made = &engine->jobs[i];

		if (made->used)
			continue;
		memset(made, 0, sizeof(*made));
		made->used = true;
		made->status = run(engine, job, made);
		*id = i;
		if (engine->config.wake != NULL)
			engine->config.wake(engine->config.wake_arg);
		return ENGINE_OK;
	}
	return fail(error, ENGINE_BUSY, "too many jobs");
}

static EngineStatus
stub_job_poll(Engine *engine, JobId id, JobProgress *progress)
{
	StubJob    *job = &engine->jobs[id % STUB_JOBS];

	memset(progress, 0, sizeof(*progress));
	if (!job->used)
		return ENGINE_NOT_FOUND;
	progress->completed = true;
	progress->status = job->status;
	progress->error = job->error;
	return ENGINE_OK;
}

static EngineStatus
stub_job_cancel(Engine *engine, JobId id)
{
	return engine->jobs[id % STUB_JOBS].used ? ENGINE_OK : ENGINE_NOT_FOUND;
}

static EngineStatus
stub_job_link_result(Engine *engine, JobId id, LinkResult *result)
{
	StubJob    *job = &engine->jobs[id % STUB_JOBS];

	if (!job->used || job->seeds == NULL)
		return ENGINE_NOT_FOUND;
	*result = (LinkResult) {.count = job->count, .slots = job->slots, .rows = job->rows,
							.nseeds = job->nseeds, .seeds = job->seeds};
	return ENGINE_OK;
}

static void
stub_job_release(Engine *engine, JobId id)
{
	StubJob    *job = &engine->jobs[id % STUB_JOBS];

	free(job->slots);
	free(job->rows);
	free(job->seeds);
	memset(job, 0, sizeof(*job));
}

extern const EngineOps *gpuann_engine_ops(void);

/* The entry of the shared object. */
__attribute__((visibility("default"))) const EngineOps *
gpuann_engine_ops(void)
{
	static EngineOps ops = {
		.abi_version = ENGINE_ABI_VERSION,
		.open = stub_open,
		.close = stub_close,
		.info = stub_info,
		.memory = stub_memory,
		.mirror_create = stub_mirror_create,
		.mirror_info = stub_mirror_info,
		.mirror_rows = stub_mirror_rows,
		.list_probes = stub_list_probes,
		.submit = stub_submit,
		.poll = stub_poll,
		.job_submit = stub_job_submit,
		.job_poll = stub_job_poll,
		.job_cancel = stub_job_cancel,
		.job_link_result = stub_job_link_result,
		.job_release = stub_job_release,
	};
	StubFaults	faults;

	read_faults(&faults);
	if (faults.abi)
		ops.abi_version = (uint32_t) faults.abi;
	return &ops;
}
