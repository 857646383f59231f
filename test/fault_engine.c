/*
 * fault_engine.c
 *		A real engine with faults on demand: a shared object around the CPU
 *		engine, or around another engine's library.
 *
 * GPUANN_FAULT_ENGINE names the library (none: the CPU engine),
 * GPUANN_FAULT_NAME what the engine calls itself (none: as the real one),
 * GPUANN_FAULT_FILE a file with the faults wanted now: words name=number. The
 * file is looked at with every call and may change (by rename) while the engine
 * runs. Without a fault every call is the real engine's. The first time that a
 * job or an answer is held, a file of the same name with ".held" appears.
 *
 *	hold_append=1	jobs that bring rows do not complete
 *	hold_link=1		jobs that link do not complete, nor trainings
 *	hold_place=1	jobs that link do not complete
 *	create_memory=1	mirrors cannot be created for want of memory
 *	append_memory=1	nor can rows be added
 *	append_error=1	jobs that bring rows fail with another error
 *	crash_append=1	a segmentation fault when rows are brought
 *	link_memory=1	links and repairs are refused for want of memory
 *	lie_link=N		of what a link made, (1) the last row names itself, (2) a
 *					slot that does not exist, or (3) a slot twice, (4) comes for
 *					the slot before it once more, (5) does not come, (6) the
 *					first seed does not exist, (7) the first row and the
 *					last change places; of lists, (8) their distance is not
 *					a number, of a training, (9) nor is the first float,
 *					(10) one float does not come; of lists, (11) the last
 *					code does not end in a number, (12) their distance is
 *					infinite
 *	query_error=N	each Nth query fails
 *	query_memory=N	each Nth query fails for want of memory
 *	unfiltered=1	queries are not restricted to their sets of rows
 *	busy=1			no query is taken
 *	delay_ms=N		answers come N milliseconds late
 *	mute=1			answers do not come while this lasts
 *	fail=1			the engine says that it is broken
 *	hang=1			submit does not return while this lasts
 *	hang_poll=1		nor does poll
 *	crash=1			a segmentation fault at a query
 *
 * and in answers, each Nth result of which (many, position, reverse: the whole
 * answer)
 *
 *	range=N			names a slot that does not exist
 *	huge=N			names a slot beyond all that can exist
 *	repeat=N		names the slot before it once more
 *	dead=N			names a slot that died, with the version it died with
 *	older=N			has the version before
 *	newer=N			has the version after
 *	nan=N			is not a number away
 *	many=1			more results than wanted
 *	reverse=1		the nearest last
 *	position=1		claims to know list entries that do not exist
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/quantizer/quantizer.h"

#define FAULT_DEAD		4096	/* dead slots remembered */
#define FAULT_HELD		8192	/* answers kept back at once */
#define FAULT_JOBS		8192	/* jobs whose kinds are remembered */

#define FAULTS(F) \
	F(hold_append) \
	F(hold_link) F(hold_place) F(create_memory) F(append_memory) F(append_error) F(crash_append) \
		F(link_memory) F(lie_link) \
		F(query_error) F(query_memory) F(unfiltered) F(busy) F(delay_ms) F(mute) F(fail) \
			F(hang) F(hang_poll) F(crash) F(range) F(huge) F(repeat) F(dead) F(older) \
				F(newer) F(nan) F(many) F(reverse) F(position)

typedef struct Faults
{
#define FAULT_MEMBER(name) unsigned long name;
	FAULTS(FAULT_MEMBER)
} Faults;

/* An answer kept back. */
typedef struct Held
{
	EngineQuery *query;
	int64_t		visible_us;
} Held;

struct Engine
{
	const EngineOps *ops;		/* the real one's */
	Engine	   *real;
	const char *path;			/* of the file; NULL: there are no faults */
	struct stat seen;			/* when it was last read */
	Faults		faults;
	uint64_t	queries;
	Held		held[FAULT_HELD];
	uint32_t	nheld;
	struct
	{
		JobId		id;
		JobKind		kind;
	}			jobs[FAULT_JOBS];
	uint32_t	next_job;
	struct
	{
		uint32_t	slot;
		uint32_t	version;
	}			dead[FAULT_DEAD];
	uint32_t	ndead;
	uint32_t	degree;			/* of the mirror made last, ... */
	size_t		code_bytes;		/* ... which has lists if not 0 */
};

static int64_t
now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
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

/* As engine_error, which is not every engine's to share. */
static EngineStatus
fault(EngineError *error, EngineStatus status, const char *text)
{
	error->status = status;
	snprintf(error->text, sizeof(error->text), "%s", text);
	return status;
}

/* Take the value of a word "name=number". */
static void
read_word(Faults *faults, const char *word)
{
	const char *value = strchr(word, '=');
	size_t		length = value == NULL ? 0 : (size_t) (value - word);

	if (value == NULL)
		return;
#define FAULT_READ(name) \
	if (length == strlen(#name) && strncmp(word, #name, length) == 0) \
		faults->name = strtoul(value + 1, NULL, 10);
	FAULTS(FAULT_READ)
}

/* The faults wanted now. */
static const Faults *
wanted(Engine *engine)
{
	struct stat now;
	char		text[1024];
	char	   *rest = text;
	char	   *word;
	ssize_t		length;
	int			fd;

	if (engine->path == NULL || stat(engine->path, &now) != 0)
		return &engine->faults;
	if (now.st_ino == engine->seen.st_ino && now.st_mtim.tv_sec == engine->seen.st_mtim.tv_sec &&
		now.st_mtim.tv_nsec == engine->seen.st_mtim.tv_nsec && now.st_size == engine->seen.st_size)
		return &engine->faults;
	fd = open(engine->path, O_RDONLY | O_CLOEXEC);
	length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (length < 0)
		return &engine->faults;
	text[length] = '\0';
	engine->seen = now;
	memset(&engine->faults, 0, sizeof(engine->faults));
	while ((word = strsep(&rest, " ,\n")) != NULL)
		read_word(&engine->faults, word);
	return &engine->faults;
}

/* Tell the test that something is held. */
static void
tell_held(const Engine *engine)
{
	char		path[1024];
	int			fd;

	snprintf(path, sizeof(path), "%s.held", engine->path);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
}

/* The engine around which this one is. */
static const EngineOps *
real_ops(void)
{
	const char *library = getenv("GPUANN_FAULT_ENGINE");
	void	   *handle;
	void	   *symbol;
	EngineEntry entry;

	if (library == NULL || *library == '\0')
		return cpu_engine_ops();
	handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	symbol = handle == NULL ? NULL : dlsym(handle, ENGINE_ENTRY_SYMBOL);
	if (symbol == NULL)
		return NULL;
	memcpy(&entry, &symbol, sizeof(entry));
	return entry();
}

static EngineStatus
fault_open(const EngineConfig *config, Engine **opened, EngineError *error)
{
	Engine	   *engine = calloc(1, sizeof(Engine));
	EngineStatus status;

	if (engine == NULL)
		return fault(error, ENGINE_NO_MEMORY, "out of memory");
	engine->ops = real_ops();
	engine->path = getenv("GPUANN_FAULT_FILE");
	status = engine->ops == NULL ? fault(error, ENGINE_UNSUPPORTED,
										 "the engine to put faults into cannot be loaded")
								 : engine->ops->open(config, &engine->real, error);
	if (status == ENGINE_OK)
		*opened = engine;
	else
		free(engine);
	return status;
}

static void
fault_close(Engine *engine)
{
	engine->ops->close(engine->real);
	free(engine);
}

static void
fault_info(Engine *engine, EngineInfo *info)
{
	const char *name = getenv("GPUANN_FAULT_NAME");

	engine->ops->info(engine->real, info);
	if (name != NULL)
		snprintf(info->name, sizeof(info->name), "%s", name);
}

static void
fault_memory(Engine *engine, EngineMemory *memory)
{
	engine->ops->memory(engine->real, memory);
}

static EngineStatus
fault_mirror_create(Engine *engine, const MirrorSpec *spec, MirrorId *id, EngineError *error)
{
	QuantizerShape shape = quantizer_shape_of(spec);

	if (wanted(engine)->create_memory)
		return fault(error, ENGINE_NO_MEMORY, "the test leaves 0 MB for a mirror");
	engine->degree = spec->degree;
	engine->code_bytes = spec->method == METHOD_IVFPQ ? quantizer_code_bytes(&shape) : 0;
	return engine->ops->mirror_create(engine->real, spec, id, error);
}

static EngineStatus
fault_mirror_info(Engine *engine, MirrorId id, MirrorInfo *info, EngineError *error)
{
	return engine->ops->mirror_info(engine->real, id, info, error);
}

static EngineStatus
fault_mirror_rows(Engine *engine, MirrorId id, const uint32_t *slots, uint32_t count,
				  uint32_t *rows, uint32_t *versions, EngineError *error)
{
	return engine->ops->mirror_rows(engine->real, id, slots, count, rows, versions, error);
}

static EngineStatus
fault_list_probes(Engine *engine, MirrorId id, uint64_t *counts, uint32_t count,
				  EngineError *error)
{
	return engine->ops->list_probes(engine->real, id, counts, count, error);
}

static EngineStatus
fault_submit(Engine *engine, EngineQuery *const *queries, uint32_t count, EngineError *error)
{
	struct timespec pause = {0, 10000000};

	if (wanted(engine)->crash)
		crash();
	while (wanted(engine)->hang)
		nanosleep(&pause, NULL);
	if (wanted(engine)->busy)
		return fault(error, ENGINE_BUSY, "the test keeps the engine busy");
	/* The server sets the filter whenever it submits a query. */
	for (uint32_t i = 0; i < count && wanted(engine)->unfiltered; i++)
		queries[i]->filter = NULL;
	return engine->ops->submit(engine->real, queries, count, error);
}

/* Whether place i is one of each Nth, counted from 0. */
static bool
strikes(unsigned long every, uint64_t i)
{
	return every > 0 && (i + 1) % every == 0;
}

/* Falsify one result. */
static void
falsify_result(const Engine *engine, EngineQuery *query, uint32_t i)
{
	const Faults *faults = &engine->faults;
	SearchResult *result = &query->results[i];

	if (strikes(faults->range, i))
		result->slot = query->rows + 1000000 + i;
	if (strikes(faults->huge, i))
		result->slot = 0x80000000u + i;
	if (strikes(faults->repeat, i) && i > 0)
		result->slot = query->results[i - 1].slot;
	if (strikes(faults->dead, i) && i < engine->ndead)
	{
		result->slot = engine->dead[i].slot;
		result->version = engine->dead[i].version;
	}
	if (strikes(faults->older, i))
		result->version--;
	if (strikes(faults->newer, i))
		result->version++;
	if (strikes(faults->nan, i))
		result->distance = (double) NAN;
}

/* Falsify an answer. */
static void
falsify(Engine *engine, EngineQuery *query)
{
	const Faults *faults = &engine->faults;
	uint64_t	number = engine->queries++;

	if (strikes(faults->query_error, number))
		query->status = fault(&query->error, ENGINE_UNSUPPORTED, "the test let this query fail");
	if (strikes(faults->query_memory, number))
		query->status =
			fault(&query->error, ENGINE_NO_MEMORY, "the test left no memory for this query");
	if (query->status != ENGINE_OK)
		return;
	for (uint32_t i = 0; i < query->count; i++)
		falsify_result(engine, query, i);
	for (uint32_t i = 0; faults->reverse && i < query->count / 2; i++)
	{
		SearchResult kept = query->results[i];

		query->results[i] = query->results[query->count - 1 - i];
		query->results[query->count - 1 - i] = kept;
	}
	if (faults->many)
		query->count = query->k + 1;
	if (faults->position)
		query->position += 1000000;
}

/* Take what the real engine has completed into what is kept back. */
static EngineStatus
take_completed(Engine *engine, EngineError *error)
{
	EngineQuery *completed[64];
	uint32_t	count = 64;
	EngineStatus status = ENGINE_OK;

	while (status == ENGINE_OK && count == 64 && engine->nheld + 64 <= FAULT_HELD)
	{
		status = engine->ops->poll(engine->real, completed, 64, &count, error);
		for (uint32_t i = 0; status == ENGINE_OK && i < count; i++)
		{
			falsify(engine, completed[i]);
			engine->held[engine->nheld++] =
				(Held){completed[i], now_us() + (int64_t) engine->faults.delay_ms * 1000};
		}
	}
	return status;
}

static EngineStatus
fault_poll(Engine *engine, EngineQuery **completed, uint32_t room, uint32_t *count,
		   EngineError *error)
{
	struct timespec pause = {0, 10000000};
	int64_t		now = now_us();
	uint32_t	kept = 0;
	EngineStatus status;

	*count = 0;
	if (wanted(engine)->fail)
		return fault(error, ENGINE_FAILED, "the test broke the engine");
	while (wanted(engine)->hang_poll)
		nanosleep(&pause, NULL);
	status = take_completed(engine, error);
	if (status != ENGINE_OK)
		return status;
	if (engine->faults.mute && engine->nheld > 0)
		tell_held(engine);
	for (uint32_t i = 0; i < engine->nheld; i++)
	{
		if (*count < room && !engine->faults.mute && engine->held[i].visible_us <= now)
			completed[(*count)++] = engine->held[i].query;
		else
			engine->held[kept++] = engine->held[i];
	}
	engine->nheld = kept;
	return ENGINE_OK;
}

/* Whether a job brings rows. */
static bool
brings_rows(JobKind kind)
{
	return kind == JOB_APPEND || kind == JOB_OVERWRITE;
}

/* Remember who died. */
static void
note_dead(Engine *engine, const EngineJob *job)
{
	for (uint32_t i = 0; i < job->count && engine->ndead < FAULT_DEAD; i++)
	{
		engine->dead[engine->ndead].slot = job->slots[i];
		engine->dead[engine->ndead++].version = job->versions[i];
	}
}

static EngineStatus
fault_job_submit(Engine *engine, const EngineJob *job, JobId *id, EngineError *error)
{
	const Faults *faults = wanted(engine);
	EngineStatus status;

	if (brings_rows(job->kind) && faults->crash_append)
		crash();
	if (brings_rows(job->kind) && faults->append_memory)
		return fault(error, ENGINE_NO_MEMORY, "the test leaves 0 MB for rows");
	if (brings_rows(job->kind) && faults->append_error)
		return fault(error, ENGINE_UNSUPPORTED, "the test lets no row in");
	if (engine_job_links(job->kind) && faults->link_memory)
		return fault(error, ENGINE_NO_MEMORY, "the test leaves 0 MB for links");
	status = engine->ops->job_submit(engine->real, job, id, error);
	if (status == ENGINE_OK)
	{
		engine->jobs[engine->next_job % FAULT_JOBS].id = *id;
		engine->jobs[engine->next_job++ % FAULT_JOBS].kind = job->kind;
	}
	if (status == ENGINE_OK && job->kind == JOB_DEAD)
		note_dead(engine, job);
	return status;
}

/* The kind of a job under way. */
static JobKind
job_kind(const Engine *engine, JobId id)
{
	for (uint32_t i = 0; i < FAULT_JOBS; i++)
	{
		uint32_t	at = (engine->next_job - 1 - i) % FAULT_JOBS;

		if (engine->jobs[at].id == id)
			return engine->jobs[at].kind;
	}
	return 0;
}

static EngineStatus
fault_job_poll(Engine *engine, JobId id, JobProgress *progress)
{
	const Faults *faults = wanted(engine);
	EngineStatus status = engine->ops->job_poll(engine->real, id, progress);
	bool		holds = faults->hold_append || faults->hold_link || faults->hold_place;
	JobKind		kind = holds ? job_kind(engine, id) : 0;

	if ((faults->hold_append && brings_rows(kind)) ||
		(faults->hold_link && engine_job_links(kind)) ||
		(faults->hold_place && kind == JOB_LINK))
	{
		progress->completed = false;
		tell_held(engine);
	}
	return status;
}

static EngineStatus
fault_job_cancel(Engine *engine, JobId id)
{
	return engine->ops->job_cancel(engine->real, id);
}

/* Exchange two arrays of numbers. */
static void
exchange(uint32_t *left, uint32_t *right, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
	{
		uint32_t	kept = left[i];

		left[i] = right[i];
		right[i] = kept;
	}
}

/* Put a number where the last code ends. */
static void
end_code(const Engine *engine, float number, LinkResult *result)
{
	if (result->codes != NULL)
		memcpy((unsigned char *) (uintptr_t) result->codes + result->count * engine->code_bytes -
				   sizeof(number),
			   &number, sizeof(number));
}

/*
 * Falsify what a link made. Its arrays are the engine's, which has no further
 * use for them.
 */
static void
lie_of_link(const Engine *engine, unsigned long lie, LinkResult *result)
{
	uint32_t	last = result->count - 1;
	uint32_t   *row = (uint32_t *) result->rows + (size_t) last * engine->degree;
	uint32_t   *slots = (uint32_t *) result->slots;

	switch (lie)
	{
		case 1:
			row[0] = slots[last];
			break;
		case 2:
			row[0] = slots[last] + 1;
			break;
		case 3:
			row[1] = row[0];
			break;
		case 4:
			slots[last] = slots[last - 1];
			break;
		case 5:
			result->count--;
			break;
		case 7:
			exchange(slots, slots + last, 1);
			exchange((uint32_t *) result->rows, row, engine->degree);
			break;
		case 8:
			result->distance = (double) NAN;
			break;
		case 11:
			end_code(engine, NAN, result);
			break;
		case 12:
			result->distance = (double) INFINITY;
			break;
		default:
			if (result->nseeds > 0)
				*(uint32_t *) result->seeds = ENGINE_MAX_SLOTS;
	}
}

/* Falsify what a training has learned. */
static void
lie_of_training(unsigned long lie, LinkResult *result)
{
	if (lie == 9)
		*(float *) result->floats = NAN;
	if (lie == 10)
		result->nfloats--;
}

static EngineStatus
fault_job_link_result(Engine *engine, JobId id, LinkResult *result)
{
	EngineStatus status = engine->ops->job_link_result(engine->real, id, result);
	unsigned long lie = wanted(engine)->lie_link;

	if (status == ENGINE_OK && lie > 0 && result->count > 1 &&
		(result->nseeds > 0 || result->codes != NULL))
		lie_of_link(engine, lie, result);
	if (status == ENGINE_OK && result->nfloats > 0)
		lie_of_training(lie, result);
	return status;
}

static void
fault_job_release(Engine *engine, JobId id)
{
	engine->ops->job_release(engine->real, id);
}

extern const EngineOps *gpuann_engine_ops(void);

/* The entry of the shared object. */
__attribute__((visibility("default"))) const EngineOps *
gpuann_engine_ops(void)
{
	static const EngineOps ops = {
		.abi_version = ENGINE_ABI_VERSION,
		.open = fault_open,
		.close = fault_close,
		.info = fault_info,
		.memory = fault_memory,
		.mirror_create = fault_mirror_create,
		.mirror_info = fault_mirror_info,
		.mirror_rows = fault_mirror_rows,
		.list_probes = fault_list_probes,
		.submit = fault_submit,
		.poll = fault_poll,
		.job_submit = fault_job_submit,
		.job_poll = fault_job_poll,
		.job_cancel = fault_job_cancel,
		.job_link_result = fault_job_link_result,
		.job_release = fault_job_release,
	};

	return &ops;
}
