/*
 * local_engine.c
 *		A CPU engine in this process, for as long as a memory context lives.
 *
 * The engine's threads have all signals blocked and know nothing of PostgreSQL.
 * The process polls them and serves interrupts meanwhile.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "miscadmin.h"
#include "postmaster/autovacuum.h"

#include "engine/processors.h"
#include "link/local_engine.h"

#define POLL_MIN_US		20
#define POLL_MAX_US		10000

/* Whether this is a background process, several of which may link at once. */
static bool
one_of_many(void)
{
#if PG_VERSION_NUM >= 170000
	return AmAutoVacuumWorkerProcess() || IsParallelWorker();
#else
	return IsAutoVacuumWorkerProcess() || IsParallelWorker();
#endif
}

int
local_engine_threads(void)
{
	return one_of_many() ? 1 : (int) Min(max_parallel_maintenance_workers + 1, processors_usable());
}

void
local_engine_close(LocalEngine *local)
{
	if (local->engine == NULL)
		return;
	if (local->job != 0)
		local->ops->job_cancel(local->engine, local->job);
	local->ops->close(local->engine);
	local->engine = NULL;
	local->job = 0;
}

/* Memory context callback: close the engine. */
static void
close_with_context(void *arg)
{
	local_engine_close(arg);
}

LocalEngine *
local_engine_open(Relation index, const IndexFormat *format, uint32 rows, Size memory_limit)
{
	EngineConfig config = {
		.threads = local_engine_threads(), .device = -1, .memory_limit = memory_limit};
	MirrorSpec	spec = {.dims = format->dims,
					   .type = (ElementType) format->type,
					   .metric = (Metric) format->metric,
					   .method = METHOD_GRAPH,
					   .degree = format->degree,
					   .capacity = Max(rows, 1),
					   .residency = RESIDENCY_FULL,
					   .placement = PLACEMENT_SINGLE,
					   .device = -1};
	LocalEngine *local = palloc0(sizeof(LocalEngine));
	MemoryContextCallback *callback = palloc0(sizeof(MemoryContextCallback));
	EngineError error;
	EngineStatus status;

	local->index = index;
	local->ops = cpu_engine_ops();
	if (local->ops->abi_version != ENGINE_ABI_VERSION)
		elog(ERROR, "the CPU engine has ABI version %u, not %u", local->ops->abi_version,
			 ENGINE_ABI_VERSION);
	callback->func = close_with_context;
	callback->arg = local;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);

	if (local->ops->open(&config, &local->engine, &error) != ENGINE_OK)
	{
		local->engine = NULL;
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not start threads for index \"%s\"", RelationGetRelationName(index)),
				 errdetail("%s", error.text)));
	}
	status = local->ops->mirror_create(local->engine, &spec, &local->mirror, &error);
	if (status == ENGINE_OK)
		return local;
	if (status != ENGINE_NO_MEMORY)
		elog(ERROR, "the engine refused a mirror: %s", error.text);
	local_engine_close(local);
	return NULL;
}

bool
local_engine_submit(LocalEngine *local, EngineJob *job)
{
	EngineError error;
	EngineStatus status;

	job->mirror = local->mirror;
	while ((status = local->ops->job_submit(local->engine, job, &local->job, &error)) ==
		   ENGINE_BUSY)
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(POLL_MIN_US);
	}
	local->kind = job->kind;
	if (status != ENGINE_OK)
		local->job = 0;
	if (status != ENGINE_OK && status != ENGINE_NO_MEMORY)
		elog(ERROR, "the engine refused a job: %s", error.text);
	return status == ENGINE_OK;
}

bool
local_engine_wait(LocalEngine *local, void (*tell) (int64 done))
{
	JobProgress progress;
	long		pause = POLL_MIN_US;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (local->ops->job_poll(local->engine, local->job, &progress) != ENGINE_OK)
			elog(ERROR, "the engine lost a job");
		if (tell != NULL)
			tell(progress.done);
		if (progress.completed)
			break;
		pg_usleep(pause);
		pause = Min(pause * 2, POLL_MAX_US);
	}
	if (progress.status != ENGINE_OK && progress.status != ENGINE_NO_MEMORY)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR),
						errmsg("could not make the graph of index \"%s\"",
							   RelationGetRelationName(local->index)),
						errdetail("%s", progress.error.text)));
	if (progress.status != ENGINE_OK || local->kind != JOB_LINK)
	{
		local->ops->job_release(local->engine, local->job);
		local->job = 0;
	}
	return progress.status == ENGINE_OK;
}

bool
local_engine_run(LocalEngine *local, EngineJob *job)
{
	return local_engine_submit(local, job) && local_engine_wait(local, NULL);
}

void
local_engine_link_result(LocalEngine *local, LinkResult *result)
{
	if (local->job == 0 ||
		local->ops->job_link_result(local->engine, local->job, result) != ENGINE_OK)
		elog(ERROR, "the engine has no graph");
}
