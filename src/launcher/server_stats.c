/*
 * server_stats.c
 *		Statistics of server, mirrors and scans: pg_stat_gpuann and
 *		gpuann_server_status.
 *
 * Counters are in the shared area, for the life of the postmaster. Text that
 * the server could have written is copied and made printable.
 */
#include "base/base.h"

#include "client/shmem.h"
#include "client/client.h"
#include "client/mirror_table.h"
#include "page/pending.h"
#include "base/signature.h"
#include "base/sql_row.h"

#include "access/relation.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "common/int.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#define STATUS_COLUMNS	18

PG_FUNCTION_INFO_V1(gpuann_server_status);
PG_FUNCTION_INFO_V1(gpuann_stat_indexes);
PG_FUNCTION_INFO_V1(gpuann_stat_indexes_0_2);
PG_FUNCTION_INFO_V1(gpuann_stat_reset);
PG_FUNCTION_INFO_V1(gpuann_stat_reset_index);

/* Add a text of the shared area, or NULL if it is empty. */
static void
put_text(SqlRow *row, const char *text, Size size)
{
	char		copy[512];

	shmem_copy_text(copy, sizeof(copy), text, size);
	row_put_if(row, copy[0] != '\0', CStringGetTextDatum(copy));
}

static void
put_counter(SqlRow *row, const _Atomic uint64_t *counter)
{
	row_put(row, Int64GetDatum((int64) atomic_load(counter)));
}

/* Add a time in milliseconds, as in core's statistics views. */
static void
put_ms(SqlRow *row, const _Atomic uint64_t *microseconds)
{
	row_put(row, Float8GetDatum((double) atomic_load(microseconds) / 1000.0));
}

/*
 * Add a timestamp, given in microseconds since 1970; NULL for 0 and for values
 * out of range, which would make every query of the view fail, also after a
 * restart, by way of the counters' file.
 */
static void
put_time(SqlRow *row, int64 us)
{
	TimestampTz at = 0;
	bool		known =
		us != 0 &&
		!pg_sub_s64_overflow(
			us, (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY, &at) &&
		IS_VALID_TIMESTAMP(at);

	row_put_if(row, known, TimestampTzGetDatum(at));
}

/* Seconds in microseconds; 0 if they are too many. */
static int64
seconds_as_us(int64 seconds)
{
	int64		us;

	return pg_mul_s64_overflow(seconds, USECS_PER_SEC, &us) ? 0 : us;
}

static const char *
server_state_name(uint32 state)
{
	switch (state)
	{
		case SERVER_ABSENT:
			return "absent";
		case SERVER_STARTING:
			return "starting";
		case SERVER_READY:
			return "ready";
		case SERVER_FAILED:
			return "failed";
		case SERVER_NO_GPU:
			return "no_gpu";
		default:
			return "invalid";
	}
}

static const char *
mirror_state_name(uint32 state)
{
	switch (state)
	{
		case MIRROR_WANTED:
			return "wanted";
		case MIRROR_LOADING:
			return "loading";
		case MIRROR_READY:
			return "ready";
		case MIRROR_REFUSED:
			return "refused";
		default:
			return "none";
	}
}

/* Number of mirrors in a state. */
static int32
count_mirrors(MirrorState state)
{
	int32		count = 0;

	for (uint32 i = 0; i < gpuann_control->high_water; i++)
	{
		if (mirror_track((int) i)->in_use &&
			atomic_load(&mirror_area((int) i)->state) == (uint32) state)
			count++;
	}
	return count;
}

/* Add memory and work of the server. */
static void
put_server_figures(SqlRow *row)
{
	put_counter(row, &gpuann_area->memory_limit);
	put_counter(row, &gpuann_area->memory_used);
	put_counter(row, &gpuann_area->memory_context);
	put_counter(row, &gpuann_area->host_rows_limit);
	put_counter(row, &gpuann_area->host_rows_used);
	row_put(row, Int32GetDatum(count_mirrors(MIRROR_READY)));
	row_put(row, Int32GetDatum(count_mirrors(MIRROR_LOADING)));
	put_counter(row, &gpuann_area->requests);
	put_counter(row, &gpuann_area->batches);
}

/* The state of the server, in one row. */
Datum
gpuann_server_status(PG_FUNCTION_ARGS)
{
	SqlRow		row = {0};

	signature_check(
		fcinfo, "",
		"text,int4,int8,int8,timestamptz,text,text,int8,int8,int8,int8,int8,int8,int4,int4,int8,int8,text");
	if (gpuann_area == NULL)
	{
		row_put(&row, CStringGetTextDatum("off"));
		while (row.count < STATUS_COLUMNS - 1)
			row_put_if(&row, false, (Datum) 0);
		row_put(&row, CStringGetTextDatum(
							 gpuann_control == NULL
								 ? "gpuann is not in shared_preload_libraries"
								 : "the shared area could not be made, see the server log"));
	}
	else
	{
		uint32		state = atomic_load(&gpuann_area->server_state);
		int32		pid = atomic_load(&gpuann_area->server_pid);

		row_put(&row, CStringGetTextDatum(server_state_name(state)));
		row_put_if(&row, pid != 0, Int32GetDatum(pid));
		row_put(&row, Int64GetDatum((int64) atomic_load(&gpuann_area->epoch)));
		row_put(&row, Int64GetDatum((int64) atomic_load(&gpuann_area->restarts)));
		put_time(&row, pid != 0 ? seconds_as_us(atomic_load(&gpuann_area->started_at)) : 0);
		put_text(&row, state == SERVER_READY ? gpuann_area->engine : "",
				 sizeof(gpuann_area->engine));
		put_text(&row, state == SERVER_READY ? gpuann_area->device : "",
				 sizeof(gpuann_area->device));
		row_put(&row, Int64GetDatum((int64) gpuann_layout.total_bytes));
		put_server_figures(&row);
		put_text(&row, gpuann_area->last_error, sizeof(gpuann_area->last_error));
	}
	return row_return(fcinfo, &row);
}

/* Figures read from an index's pages: its rows, and the lag of its mirror. */
typedef struct IndexRows
{
	bool		known;			/* false: the index is locked, has another file, or cannot be
								 * read */
	int64		rows;			/* slots that are not free */
	int64		pending;		/* of them, not linked */
	int64		lag;			/* entries of the pending list that the mirror has not seen */
	int64		change_lag;		/* and change sequences of linker and VACUUM */
} IndexRows;

/*
 * Read the bounds of an index's pending list; false if the pages are damaged or
 * of another format version. One such index must not hide all others from the
 * view, so the error ends here, and what was pinned and locked is released. A
 * subtransaction would do the same, but parallel queries allow none.
 */
static bool
try_pending_bounds(Relation index, MetaPage *meta, PendingBounds *bounds)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ResourceOwner reading = ResourceOwnerCreate(owner, "gpuann statistics");
	volatile bool sound = true;

	CurrentResourceOwner = reading;
	PG_TRY();
	{
		pending_bounds(index, index_format(index), meta, bounds);
	}
	PG_CATCH();
	{
		int			code = geterrcode();

		CurrentResourceOwner = owner;
		if (code != ERRCODE_INDEX_CORRUPTED && code != ERRCODE_DATA_CORRUPTED &&
			code != ERRCODE_FEATURE_NOT_SUPPORTED)
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
		LWLockReleaseAll();
#if PG_VERSION_NUM < 160000
		/* in later versions the resource owner aborts a failed read */
		AbortBufferIO();
#endif
		sound = false;
	}
	PG_END_TRY();
	CurrentResourceOwner = owner;
	ResourceOwnerRelease(reading, RESOURCE_RELEASE_BEFORE_LOCKS, false, false);
	ResourceOwnerRelease(reading, RESOURCE_RELEASE_LOCKS, false, false);
	ResourceOwnerRelease(reading, RESOURCE_RELEASE_AFTER_LOCKS, false, false);
	ResourceOwnerDelete(reading);
	return sound;
}

/*
 * Whether this process may read the index, and the entry is still of its
 * relation file.
 */
static bool
can_be_read(Relation index, const MirrorKey *key)
{
	MirrorKey	now;

	mirror_key(index, 0, &now);
	return is_gpuann_index(index) && now.relfile == key->relfile &&
		now.tablespace == key->tablespace && !RELATION_IS_OTHER_TEMP(index) &&
		!(RecoveryInProgress() && index->rd_rel->relpersistence == RELPERSISTENCE_UNLOGGED);
}

/* Read an index's figures from its pages, without waiting for a lock. */
static IndexRows
index_rows(const MirrorKey *key, uint64 position, uint64 change_seq)
{
	Relation	index;
	MetaPage	meta;
	PendingBounds bounds;
	IndexRows	found = {false};

	if (!ConditionalLockRelationOid(key->index, AccessShareLock))
		return found;
	index = try_relation_open(key->index, NoLock);
	if (index == NULL)
	{
		UnlockRelationOid(key->index, AccessShareLock);
		return found;
	}
	if (can_be_read(index, key) && try_pending_bounds(index, &meta, &bounds))
	{
		found.known = true;
		found.rows = (int64) bounds.next_fresh - bounds.free_count;
		found.pending = (int64) (bounds.end - bounds.linked);
		found.lag = bounds.end > position ? (int64) (bounds.end - position) : 0;
		found.change_lag =
			meta.change_seq > change_seq ? (int64) (meta.change_seq - change_seq) : 0;
	}
	relation_close(index, AccessShareLock);
	return found;
}

/*
 * Number of rows in a mirror. The server's figure counts slots, including free
 * ones. The mirror has all rows of the index except those within its lag.
 */
static int64
mirror_rows(const IndexRows *found, int64 slots, bool ready)
{
	if (!found->known)
		return slots;
	return ready ? Max(found->rows - found->lag, 0) : Min(slots, found->rows);
}

/* Add the data of an index's mirror. */
static void
put_mirror(SqlRow *row, int entry, const MirrorKey *key, IndexRows *found)
{
	AreaMirror *mirror = mirror_area(entry);
	uint64		position = atomic_load(&mirror->position);
	bool		ready;
	uint64		changes;
	int32		worker;

	LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
	ready = atomic_load(&mirror->state) == MIRROR_READY;
	changes = mirror_track(entry)->progress.change_seq;
	LWLockRelease(gpuann_mirror_lock());
	*found = index_rows(key, position, changes);
	row_put(row, Int64GetDatum(mirror_rows(found, (int64) atomic_load(&mirror->rows), ready)));
	put_counter(row, &mirror->bytes);
	put_counter(row, &mirror->host_bytes);
	put_counter(row, &mirror->position);
	row_put_if(row, ready && found->known, Int64GetDatum(found->lag));
	row_put(row, Int64GetDatum((int64) changes));
	row_put_if(row, ready && found->known, Int64GetDatum(found->change_lag));
	worker = atomic_load(&mirror->worker);
	row_put_if(row, worker != 0, Int32GetDatum(worker));
}

/* Add the columns of one index, in version 0.1 of the extension or later. */
static void
put_index(SqlRow *row, int entry, const MirrorKey *key, bool first_version)
{
	FallbackReason reasons = first_version ? FALLBACK_NO_GPU : FALLBACK_COUNTED;
	IndexRows	found;
	AreaMirror *mirror = mirror_area(entry);
	MirrorCounters *counters = &mirror->counters;
	uint32		state = atomic_load(&mirror->state);
	bool		no_gpu = state == MIRROR_WANTED && shmem_no_gpu();

	row_put(row, ObjectIdGetDatum(key->index));
	row_put(row, ObjectIdGetDatum(key->relfile));
	row_put(row, CStringGetTextDatum(no_gpu ? "none" : mirror_state_name(state)));
	if (no_gpu)
		row_put(row, CStringGetTextDatum("no usable GPU is found"));
	else
		put_text(row, state == MIRROR_REFUSED ? mirror->reason : "", sizeof(mirror->reason));
	put_counter(row, &counters->scans);
	put_counter(row, &counters->answers_server);
	put_counter(row, &counters->answers_pages);
	for (int why = FALLBACK_NONE + 1; why < (int) reasons; why++)
		put_counter(row, &counters->fallbacks[why]);
	put_counter(row, &counters->proposed);
	put_counter(row, &counters->dropped);
	put_counter(row, &counters->pending_searched);
	put_counter(row, &counters->continuations);
	put_counter(row, &counters->batches);
	put_counter(row, &counters->batched_queries);
	put_ms(row, &counters->queue_us);
	put_ms(row, &counters->engine_us);
	put_counter(row, &counters->evictions);
	put_time(row, atomic_load(&counters->reset_at));
	put_mirror(row, entry, key, &found);
	if (!first_version)
	{
		row_put_if(row, found.known, Int64GetDatum(found.rows));
		row_put_if(row, found.known, Int64GetDatum(found.pending));
	}
}

/* One row for each index of this database in the mirror table. */
static Datum
stat_indexes(FunctionCallInfo fcinfo, bool first_version)
{
	SqlRow		row = {0};

	InitMaterializedSRF(fcinfo, 0);
	for (uint32 i = 0; gpuann_area != NULL && i < gpuann_control->high_water; i++)
	{
		MirrorKey	key;

		if (!mirror_key_of((int) i, &key) || key.database != MyDatabaseId)
			continue;
		put_index(&row, (int) i, &key, first_version);
		row_add(fcinfo, &row);
	}
	return (Datum) 0;
}

/* As in version 0.1 of the extension. */
Datum
gpuann_stat_indexes(PG_FUNCTION_ARGS)
{
	signature_check(
		fcinfo, "",
		"oid,oid,text,text,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,"
		"int8,int8,int8,float8,float8,int8,timestamptz,int8,int8,int8,int8,int8,int8,int8,int4");
	return stat_indexes(fcinfo, true);
}

/* With fallback_no_gpu, index_rows and pending_rows. */
Datum
gpuann_stat_indexes_0_2(PG_FUNCTION_ARGS)
{
	signature_check(
		fcinfo, "",
		"oid,oid,text,text,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,int8,"
		"int8,int8,int8,float8,float8,int8,timestamptz,int8,int8,int8,int8,int8,int8,int8,int4,int8,int8");
	return stat_indexes(fcinfo, false);
}

/* Reset the counters of one index of this database, or (InvalidOid) of all. */
static void
reset_counters(Oid index)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	for (uint32 i = 0; gpuann_area != NULL && i < gpuann_control->high_water; i++)
	{
		MirrorTrack *track = mirror_track((int) i);

		if (!track->in_use || track->key.database != MyDatabaseId ||
			(OidIsValid(index) && track->key.index != index))
			continue;
		mirror_clear_counters((int) i);
		atomic_store(&mirror_area((int) i)->counters.reset_at,
					 (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000);
	}
	LWLockRelease(gpuann_mirror_lock());
}

/*
 * Reset the counters of all indexes of this database. Permission is by GRANT,
 * as for core's reset functions.
 */
Datum
gpuann_stat_reset(PG_FUNCTION_ARGS)
{
	signature_check(fcinfo, "", "void");
	reset_counters(InvalidOid);
	PG_RETURN_VOID();
}

/* Reset the counters of one index. */
Datum
gpuann_stat_reset_index(PG_FUNCTION_ARGS)
{
	signature_check(fcinfo, "regclass", "void");
	reset_counters(PG_GETARG_OID(0));
	PG_RETURN_VOID();
}
