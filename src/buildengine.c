/*
 * buildengine.c
 *		The engine of a build: a CPU engine in the leader, which is fed with rows from the pages and makes the graph.
 *
 * It holds as many rows as maintenance_work_mem allows. Its threads know nothing of PostgreSQL, and end with the memory context in which it
 * was opened, on error and cancel too. While the engine takes in one superblock the next is copied from its pages.
 */
#include "postgres.h"

#include "buildparts.h"

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define ENGINE_CHUNK_MB		5		/* memory that the engine takes at once, and its tables */
#define POLL_MIN_US			20
#define POLL_MAX_US			10000

struct BuildEngine
{
	Relation	index;
	const IndexFormat *format;
	const EngineOps *ops;
	Engine	   *engine;			/* NULL: closed */
	MirrorId	mirror;
	JobId		job;			/* in flight, or 0 */

	char	   *batches[2];		/* rows of a superblock: one in flight, one being filled */
	int			filling;
	uint32		in_flight;		/* rows of the job */
	uint32		flight_end;		/* slots below this are in the engine when the job is done */
	uint32	   *versions;		/* of a batch: all 1 */

	bool		feeding;		/* there is room for more */
	uint32		most;			/* rows that fit into maintenance_work_mem */
	uint32		rows;			/* in the engine */
	uint32		end;			/* rows in slots below this are in the engine */
};

/*
 * End the engine, whatever it does.
 */
static void
close_engine(void *arg)
{
	BuildEngine *build = arg;

	if (build->engine == NULL)
		return;
	if (build->job != 0)
		build->ops->job_cancel(build->engine, build->job);
	build->ops->close(build->engine);
	build->engine = NULL;
}

void
build_engine_close(BuildEngine *build)
{
	close_engine(build);
}

/*
 * Memory that a row takes in the engine: vector, graph row and its distances or, later, its copy in the result; what is kept beside.
 */
static double
row_memory(const IndexFormat *format)
{
	return format->vector_bytes + 2.0 * format->degree * sizeof(uint32) + 64;
}

/*
 * maintenance_work_mem that a build of so many rows needs to make the whole graph in memory, in bytes.
 */
double
build_memory(const IndexFormat *format, double rows)
{
	return rows * row_memory(format) * 1.1 + ENGINE_CHUNK_MB * 1024 * 1024;
}

/*
 * Open an engine for a build, within maintenance_work_mem; it is closed with the current memory context at the latest.
 */
BuildEngine *
build_engine_open(Relation index, const IndexFormat *format, double expected_rows)
{
	uint64		limit = (uint64) maintenance_work_mem * 1024;
	EngineConfig config = {.threads = max_parallel_maintenance_workers + 1, .device = -1, .memory_limit = limit};
	MirrorSpec	spec = {
		.dims = format->dims, .type = (ElementType) format->type, .metric = (Metric) format->metric,
		.method = METHOD_GRAPH, .degree = format->degree, .residency = RESIDENCY_FULL,
		.placement = PLACEMENT_SINGLE, .device = -1
	};
	BuildEngine *build = palloc0(sizeof(BuildEngine));
	MemoryContextCallback *callback = palloc0(sizeof(*callback));
	EngineError error;

	build->index = index;
	build->format = format;
	build->most = (uint32) Min(limit / row_memory(format), (double) ENGINE_MAX_SLOTS);
	spec.capacity = Max((uint32) Min(expected_rows * 1.1, (double) build->most), 1);
	build->ops = cpu_engine_ops();
	if (build->ops->abi_version != ENGINE_ABI_VERSION)
		elog(ERROR, "the CPU engine has ABI version %u, not %u", build->ops->abi_version, ENGINE_ABI_VERSION);

	callback->func = close_engine;
	callback->arg = build;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);
	if (build->ops->open(&config, &build->engine, &error) != ENGINE_OK)
	{
		build->engine = NULL;
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not start threads to build index \"%s\"", RelationGetRelationName(index)),
				 errdetail("%s", error.text)));
	}
	/* The estimate of rows may be far too high: a mirror grows, so begin with what there is room for. */
	do
		build->feeding = build->ops->mirror_create(build->engine, &spec, &build->mirror, &error) == ENGINE_OK;
	while (!build->feeding && (spec.capacity /= 2) > 0);
	for (int i = 0; i < 2; i++)
		build->batches[i] = palloc_extended((Size) format->superblock_slots * format->vector_bytes, MCXT_ALLOC_HUGE);
	build->versions = palloc(sizeof(uint32) * format->superblock_slots);
	for (uint32 i = 0; i < format->superblock_slots; i++)
		build->versions[i] = 1;
	return build;
}

/*
 * Wait for the job in flight, serving interrupts; reports its progress if asked to. False if memory was short.
 */
static bool
wait_for_job(BuildEngine *build, bool report)
{
	JobProgress progress;
	long		pause = POLL_MIN_US;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (build->ops->job_poll(build->engine, build->job, &progress) != ENGINE_OK)
			elog(ERROR, "the engine lost a job");
		if (report)
			build_progress(progress.done);
		if (progress.completed)
			break;
		pg_usleep(pause);
		pause = Min(pause * 2, POLL_MAX_US);
	}
	if (progress.status != ENGINE_OK && progress.status != ENGINE_NO_MEMORY)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not build the graph of index \"%s\"", RelationGetRelationName(build->index)),
				 errdetail("%s", progress.error.text)));
	return progress.status == ENGINE_OK;
}

/*
 * Hand a job to the engine. False if memory was short.
 */
static bool
submit_job(BuildEngine *build, const EngineJob *job)
{
	EngineError error;
	EngineStatus status;

	while ((status = build->ops->job_submit(build->engine, job, &build->job, &error)) == ENGINE_BUSY)
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(POLL_MIN_US);
	}
	if (status != ENGINE_OK)
		build->job = 0;
	if (status != ENGINE_OK && status != ENGINE_NO_MEMORY)
		elog(ERROR, "the engine refused a job: %s", error.text);
	return status == ENGINE_OK;
}

static void
release_job(BuildEngine *build)
{
	build->ops->job_release(build->engine, build->job);
	build->job = 0;
}

/*
 * Let the rows in flight arrive.
 */
static void
finish_append(BuildEngine *build)
{
	if (build->job == 0)
		return;
	build->feeding &= wait_for_job(build, false);
	release_job(build);
	if (build->feeding)
	{
		build->rows += build->in_flight;
		build->end = build->flight_end;
	}
}

/*
 * Copy the vectors of a superblock's first rows from its pages.
 */
static void
copy_vectors(BuildEngine *build, uint32 superblock, uint32 rows, char *out)
{
	const IndexFormat *format = build->format;
	VectorPlace place = vector_place(format, superblock * format->superblock_slots);
	Size		left = (Size) rows * format->vector_bytes;

	for (; left > 0; vector_place_next(format, &place))
	{
		Size		part = Min(left, (Size) GPUANN_PAYLOAD);
		Buffer		buffer = read_page(build->index, place.block, PAGE_VECTOR, BUFFER_LOCK_SHARE, false);

		memcpy(out, VectorBytesOf(BufferGetPage(buffer)), part);
		UnlockReleaseBuffer(buffer);
		out += part;
		left -= part;
	}
}

/*
 * Feed the rows of the next superblock, as long as memory lasts. Superblocks come in order.
 */
void
build_engine_feed(BuildEngine *build, uint32 superblock, uint32 rows)
{
	uint32		first_slot = superblock * build->format->superblock_slots;
	char	   *batch = build->batches[build->filling];
	uint32		fit;

	if (!build->feeding)
		return;
	fit = build->most - Min(build->rows + (build->job != 0 ? build->in_flight : 0), build->most);
	fit = Min(rows, fit);
	if (fit > 0)
		copy_vectors(build, superblock, fit, batch);
	finish_append(build);
	if (build->feeding && fit > 0)
	{
		EngineJob	job = {
			.kind = JOB_APPEND, .mirror = build->mirror, .count = fit, .first_slot = first_slot,
			.versions = build->versions, .vectors = batch
		};

		build->in_flight = fit;
		build->flight_end = fit == rows ? first_slot + build->format->superblock_slots : first_slot + fit;
		build->filling = 1 - build->filling;
		build->feeding = submit_job(build, &job);
	}
	if (fit < rows)
	{
		finish_append(build);
		build->feeding = false;
	}
}

/*
 * All superblocks have been fed.
 */
void
build_engine_fed(BuildEngine *build)
{
	finish_append(build);
	for (int i = 0; i < 2; i++)
		pfree(build->batches[i]);
}

/*
 * The slot from which on rows are not in the engine, and how many rows are.
 */
uint32
build_engine_end(const BuildEngine *build)
{
	return build->end;
}

uint32
build_engine_rows(const BuildEngine *build)
{
	return build->rows;
}

/*
 * Link what the engine has. False, and then it has nothing, if memory does not suffice; else *link is valid until the engine is closed.
 */
bool
build_engine_link(BuildEngine *build, LinkResult *link)
{
	EngineJob	job = {
		.kind = JOB_LINK, .mirror = build->mirror, .ef_construction = build->format->ef_construction,
		.threads = max_parallel_maintenance_workers + 1
	};

	if (build->rows == 0)
		return false;
	if (!submit_job(build, &job) || !wait_for_job(build, true))
	{
		build->rows = build->end = 0;
		return false;
	}
	if (build->ops->job_link_result(build->engine, build->job, link) != ENGINE_OK)
		elog(ERROR, "the engine has no graph");
	for (uint32 i = 0; i < link->count; i++)
	{
		if (link->slots[i] >= build->end || (i > 0 && link->slots[i] <= link->slots[i - 1]))
			elog(ERROR, "the engine linked rows that it was not given");
	}
	return true;
}
