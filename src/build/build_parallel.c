/*
 * build_parallel.c
 *		Parallel workers of CREATE INDEX: they scan the heap with the leader and
 *		load rows into pages.
 *
 * Each announces the superblocks that it has filled in a ring. The leader,
 * which scans too, takes them from there at intervals, and feeds their rows to
 * the engine. Workers end with the load; linking is done by the leader's
 * threads.
 */
#include "postgres.h"

#include "build/build_parts.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "pgstat.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#define KEY_SHARED		UINT64CONST(0xA000000000000001)
#define KEY_SCAN		UINT64CONST(0xA000000000000002)
#define KEY_QUERY		UINT64CONST(0xA000000000000003)
#define KEY_WAL_USAGE	UINT64CONST(0xA000000000000004)
#define KEY_BUFFER_USAGE UINT64CONST(0xA000000000000005)

struct ParallelLoad
{
	ParallelContext *context;
	BuildShared *shared;
	ParallelTableScanDesc scan;
	Snapshot	snapshot;
	WalUsage   *wal_usage;
	BufferUsage *buffer_usage;
};

PGDLLEXPORT void gpuann_build_worker_main(dsm_segment *segment, shm_toc *toc);

/*
 * Number of workers that scan the heap besides the leader.
 *
 * The planner decides whether workers may be used at all (temporary tables,
 * unsafe expressions, a small table). The number that it would choose is for
 * sorting, with a minimum of memory for each, which does not apply here.
 */
int
build_workers(Relation heap, Relation index, const IndexInfo *info)
{
	int			workers;

	if (IsolationIsSerializable())
		return 0;
#if PG_VERSION_NUM >= 170000
	workers = info->ii_ParallelWorkers;
#else
	workers = plan_create_index_workers(RelationGetRelid(heap), RelationGetRelid(index));
#endif
	if (workers == 0)
		return 0;
	workers = RelationGetParallelWorkers(heap, max_parallel_maintenance_workers);
	return Min(workers, max_parallel_maintenance_workers);
}

/*
 * Put the workers' arguments into dynamic shared memory, and start them. NULL
 * if none can be started. *shared is copied.
 */
ParallelLoad *
parallel_load_begin(Relation heap, const BuildShared *shared, int workers)
{
	ParallelLoad *load = palloc0(sizeof(ParallelLoad));
	ParallelContext *context;
	Size		scan_size;
	char	   *query;

	EnterParallelMode();
	load->context = context = CreateParallelContext("gpuann", "gpuann_build_worker_main", workers);
	load->snapshot = shared->concurrent ? RegisterSnapshot(GetTransactionSnapshot()) : SnapshotAny;
	scan_size = table_parallelscan_estimate(heap, load->snapshot);
	shm_toc_estimate_chunk(&context->estimator, sizeof(BuildShared));
	shm_toc_estimate_chunk(&context->estimator, scan_size);
	shm_toc_estimate_chunk(&context->estimator, mul_size(sizeof(WalUsage), context->nworkers));
	shm_toc_estimate_chunk(&context->estimator, mul_size(sizeof(BufferUsage), context->nworkers));
	shm_toc_estimate_chunk(&context->estimator,
						   debug_query_string ? strlen(debug_query_string) + 1 : 1);
	shm_toc_estimate_keys(&context->estimator, 5);
	InitializeParallelDSM(context);
	if (context->seg == NULL)
	{
		if (IsMVCCSnapshot(load->snapshot))
			UnregisterSnapshot(load->snapshot);
		DestroyParallelContext(context);
		ExitParallelMode();
		return NULL;
	}

	load->shared = shm_toc_allocate(context->toc, sizeof(BuildShared));
	memcpy(load->shared, shared, sizeof(BuildShared));
	load->shared->parallel = true;
	build_shared_init(load->shared);
	shm_toc_insert(context->toc, KEY_SHARED, load->shared);
	load->scan = shm_toc_allocate(context->toc, scan_size);
	table_parallelscan_initialize(heap, load->scan, load->snapshot);
	shm_toc_insert(context->toc, KEY_SCAN, load->scan);
	query = shm_toc_allocate(context->toc, debug_query_string ? strlen(debug_query_string) + 1 : 1);
	strcpy(query, debug_query_string ? debug_query_string : "");
	shm_toc_insert(context->toc, KEY_QUERY, query);
	load->wal_usage = shm_toc_allocate(context->toc, mul_size(sizeof(WalUsage), context->nworkers));
	shm_toc_insert(context->toc, KEY_WAL_USAGE, load->wal_usage);
	load->buffer_usage =
		shm_toc_allocate(context->toc, mul_size(sizeof(BufferUsage), context->nworkers));
	shm_toc_insert(context->toc, KEY_BUFFER_USAGE, load->buffer_usage);
	LaunchParallelWorkers(context);
	ereport(DEBUG1,
			(errmsg_internal("using %d parallel workers", context->nworkers_launched)));
	return load;
}

BuildShared *
parallel_load_shared(ParallelLoad *load)
{
	return load->shared;
}

/*
 * The leader's own part in the scan.
 */
TableScanDesc
parallel_load_scan(ParallelLoad *load, Relation heap)
{
	return table_beginscan_parallel(heap, load->scan);
}

/*
 * Wait until all workers have loaded their share; loaded is called whenever
 * there may be new superblocks. A worker's error is raised here.
 */
void
parallel_load_wait(ParallelLoad *load, void (*loaded) (void *context), void *context)
{
	BuildShared *shared = load->shared;
	bool		done = false;

	/*
	 * A worker that failed to start raises an error here; else we would wait
	 * for it forever.
	 */
	WaitForParallelWorkersToAttach(load->context);
	while (!done)
	{
		bool		idle;

		SpinLockAcquire(&shared->mutex);
		done = shared->workers_done == load->context->nworkers_launched;
		SpinLockRelease(&shared->mutex);
		loaded(context);
		SpinLockAcquire(&shared->mutex);
		idle = !done && shared->workers_done < load->context->nworkers_launched &&
			shared->first_loaded == shared->next_loaded;
		SpinLockRelease(&shared->mutex);
		/*
		 * with a timeout, to update the progress view, which counts rows of
		 * incomplete superblocks too
		 */
		if (idle)
			(void) ConditionVariableTimedSleep(&shared->changed, 100, PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();
	WaitForParallelWorkersToFinish(load->context);
	for (int i = 0; i < load->context->nworkers_launched; i++)
		InstrAccumParallelQuery(&load->buffer_usage[i], &load->wal_usage[i]);
}

/*
 * Destroy the parallel context; the caller has copied what it needs of the
 * shared state.
 */
void
parallel_load_end(ParallelLoad *load)
{
	if (IsMVCCSnapshot(load->snapshot))
		UnregisterSnapshot(load->snapshot);
	DestroyParallelContext(load->context);
	ExitParallelMode();
	pfree(load);
}

/*
 * Main function of a worker.
 */
void
gpuann_build_worker_main(dsm_segment *segment, shm_toc *toc)
{
	BuildShared *shared = shm_toc_lookup(toc, KEY_SHARED, false);
	char	   *query = shm_toc_lookup(toc, KEY_QUERY, false);
	WalUsage   *wal_usage = shm_toc_lookup(toc, KEY_WAL_USAGE, false);
	BufferUsage *buffer_usage = shm_toc_lookup(toc, KEY_BUFFER_USAGE, false);
	LOCKMODE	heap_lock = shared->concurrent ? ShareUpdateExclusiveLock : ShareLock;
	LOCKMODE	index_lock = shared->concurrent ? RowExclusiveLock : AccessExclusiveLock;
	Relation	heap;
	Relation	index;
	IndexInfo  *info;
	Loader		loader;
	double		rows;

	debug_query_string = query;
	pgstat_report_activity(STATE_RUNNING, debug_query_string);
	heap = table_open(shared->heap, heap_lock);
	index = index_open(shared->index, index_lock);
	info = BuildIndexInfo(index);
	info->ii_Concurrent = shared->concurrent;

	InstrStartParallelQuery();
	loader_begin(&loader, index, shared);
	rows = loader_scan(&loader, heap, info, false,
					   table_beginscan_parallel(heap, shm_toc_lookup(toc, KEY_SCAN, false)));
	InstrEndParallelQuery(&buffer_usage[ParallelWorkerNumber], &wal_usage[ParallelWorkerNumber]);

	SpinLockAcquire(&shared->mutex);
	shared->workers_done++;
	shared->heap_rows += rows;
	shared->broken_hot_chain |= info->ii_BrokenHotChain;
	SpinLockRelease(&shared->mutex);
	ConditionVariableBroadcast(&shared->changed);

	index_close(index, index_lock);
	table_close(heap, heap_lock);
}
