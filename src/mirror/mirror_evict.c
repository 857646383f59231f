/*
 * mirror_evict.c
 *		Room for mirrors: the quota of a database, and the choice of mirrors to
 *		evict.
 *
 * The engine enforces its memory limit by refusing. A worker whose mirror was
 * refused evicts the mirror, of any database, that was not used for the longest
 * time, and tries again; a worker whose database is over its quota evicts among
 * its own. Mirrors used within EVICT_IDLE_MS are not evicted: if more are in
 * use than fit, loading them in turn would help nobody. Then vectors may go to
 * host memory, as far as gpuann.host_rows_limit allows; otherwise the index is
 * served from its pages.
 */
#include "base/base.h"

#include "client/shmem.h"
#include "client/mirror_table.h"
#include "mirror/worker.h"

#include "miscadmin.h"
#include "storage/lwlock.h"

/* A mirror to evict. */
typedef struct Victim
{
	int			entry;			/* -1: none */
	uint32		generation;		/* of its mirror */
	Oid			index;
	uint64		bytes;
} Victim;

/*
 * Bytes of the mirrors of a database that are ready or loading, except one
 * entry.
 */
static uint64
database_bytes(Oid database, int except)
{
	uint64		bytes = 0;

	for (uint32 i = 0; i < gpuann_control->high_water; i++)
	{
		MirrorTrack *track = mirror_track((int) i);
		uint32		state = atomic_load(&mirror_area((int) i)->state);

		if (track->in_use && (int) i != except && track->key.database == database &&
			(state == MIRROR_READY || state == MIRROR_LOADING))
			bytes += atomic_load(&mirror_area((int) i)->bytes);
	}
	return bytes;
}

/*
 * Evict the mirror of a database (InvalidOid: any) that was used least
 * recently, if its last use was before a time. The caller holds the mirror lock
 * exclusively.
 */
static Victim
evict_least_recent(Oid database, int except, int64 before)
{
	Victim		victim = {.entry = -1};
	int64		oldest = before;

	for (uint32 i = 0; i < gpuann_control->high_water; i++)
	{
		MirrorTrack *track = mirror_track((int) i);
		AreaMirror *mirror = mirror_area((int) i);
		int64		used = atomic_load(&mirror->last_used_ms);

		if (!track->in_use || (int) i == except || atomic_load(&mirror->state) != MIRROR_READY ||
			used >= oldest || (OidIsValid(database) && track->key.database != database))
			continue;
		oldest = used;
		victim.entry = (int) i;
	}
	if (victim.entry >= 0)
	{
		AreaMirror *mirror = mirror_area(victim.entry);

		victim.generation = atomic_load(&mirror->generation);
		victim.bytes = atomic_load(&mirror->bytes);
		victim.index = mirror_track(victim.entry)->key.index;
		mirror_evict(victim.entry);
	}
	return victim;
}

/*
 * Let the server drop a mirror now; otherwise it would notice within a second.
 */
static void
server_drop(const MirrorSlice *slice, const Victim *victim)
{
	const char *text;

	(void) channel_prepare(slice->channel, CHANNEL_DROP, (uint32) victim->entry,
						   victim->generation);
	(void) channel_call(slice->channel, slice_call_deadline(slice), &text);
}

bool
mirror_evict_idle(const MirrorSlice *slice)
{
	Oid			database = slice->over_quota ? slice->key.database : InvalidOid;
	uint64		limit = atomic_load(&gpuann_area->memory_limit);
	Victim		victim;

	/* do not evict others for a mirror that can never fit */
	if (slice->over_quota)
		limit = (uint64) gpuann_database_memory_limit << 20;
	else
		limit -= Min(limit, atomic_load(&gpuann_area->memory_context));
	if (slice->least_bytes > limit)
		return false;

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	victim = evict_least_recent(database, slice->entry, monotonic_ms() - EVICT_IDLE_MS);
	LWLockRelease(gpuann_mirror_lock());
	if (victim.entry < 0)
		return false;
	ereport(DEBUG1, (errmsg("the mirror of gpuann index %u, " UINT64_FORMAT
							" kB, makes way for that of index %u",
							victim.index, victim.bytes >> 10, slice->key.index)));
	server_drop(slice, &victim);
	return true;
}

bool
mirror_try_host_memory(const MirrorSlice *slice)
{
	bool		first = false;

	if (slice->over_quota || atomic_load(&gpuann_area->host_rows_limit) == 0)
		return false;
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	/* if that was not enough, the next attempt is for device memory again */
	if (mirror_is_generation(slice->entry, slice->generation))
		slice->track->host_rows = first = !slice->track->host_rows;
	LWLockRelease(gpuann_mirror_lock());
	if (first)
		ereport(
			LOG,
			(errmsg(
				 "the mirror of gpuann index %u does not fit on the device: its vectors go on in host memory",
				 slice->key.index),
			 errdetail("%s", slice->reason)));
	return first;
}

bool
mirror_evict_predecessor(const MirrorSlice *slice)
{
	bool		any = false;

	for (uint32 i = 0; i < gpuann_control->high_water; i++)
	{
		MirrorTrack *track = mirror_track((int) i);
		AreaMirror *mirror = mirror_area((int) i);
		Victim		victim = {.entry = -1};

		LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
		if (track->in_use && (int) i != slice->entry && track->key.index == slice->key.index &&
			track->key.database == slice->key.database &&
			atomic_load(&mirror->state) == MIRROR_READY)
		{
			victim.entry = (int) i;
			victim.generation = atomic_load(&mirror->generation);
			(void) mirror_invalidate((int) i, MIRROR_WANTED);
		}
		LWLockRelease(gpuann_mirror_lock());
		if (victim.entry < 0)
			continue;
		any = true;
		server_drop(slice, &victim);
	}
	return any;
}

bool
mirror_within_quota(MirrorSlice *slice)
{
	uint64		quota = (uint64) gpuann_database_memory_limit << 20;
	uint64		others;

	if (quota == 0)
		return true;
	LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
	others = database_bytes(slice->key.database, slice->entry);
	LWLockRelease(gpuann_mirror_lock());
	if (others + slice->least_bytes <= quota)
		return true;
	slice->over_quota = true;
	snprintf(slice->reason, sizeof(slice->reason),
			 "gpuann.database_memory_limit is %d MB: " UINT64_FORMAT
			 " MB are used by other mirrors, this one needs " UINT64_FORMAT " MB or more",
			 gpuann_database_memory_limit, others >> 20,
			 (slice->least_bytes + (1 << 20) - 1) >> 20);
	return false;
}

void
mirror_enforce_quota(void)
{
	uint64		quota = (uint64) gpuann_database_memory_limit << 20;

	if (quota == 0)
		return;
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	if (database_bytes(MyDatabaseId, -1) > quota)
		(void) evict_least_recent(MyDatabaseId, -1, PG_INT64_MAX);
	LWLockRelease(gpuann_mirror_lock());
}
