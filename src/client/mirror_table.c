/*
 * mirror_table.c
 *		The mirror table: entries are found by relation file, created on first
 *		use, and emptied when their index is dropped.
 *
 * Relies on gpuann_mirror_lock() for every change; scans read an entry without
 * it (client.c says why that is safe).
 */
#include "base/base.h"

#include "client/shmem.h"
#include "base/faults.h"
#include "client/latency.h"
#include "client/mirror_table.h"
#include "engine/select.h"

#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/rel.h"

#define REFUSED_RETRY_MS		(30 * 1000) /* doubled with every refusal in a row */
#define REFUSED_RETRY_MAX_MS	(600 * 1000)
#define RECENTLY_USED_MS		(600 * 1000)	/* mirrors used within this time are loaded again
												 * when a server starts */
#define CRASH_MEMORY_MS			(3600 * 1000)	/* crashes longer ago are not counted */

/*
 * The part of a key by which entries are found: a relation file has one nonce
 * at a time.
 */
typedef struct FileKey
{
	uint32		database;
	uint32		tablespace;
	uint32		relfile;
} FileKey;

typedef struct FileEntry
{
	FileKey		key;
	int			entry;
} FileEntry;

MirrorControl *gpuann_control = NULL;
BarredDatabase *gpuann_barred = NULL;
static LatencyCounts *latencies = NULL; /* of each entry; cleared when it gets an index */
static HTAB *file_table = NULL;
static LWLock *mirror_lock = NULL;

static Size
latencies_size(void)
{
	return mul_size(AREA_MIRRORS, sizeof(LatencyCounts));
}

static Size
barred_size(void)
{
	return mul_size(MaxBackends, sizeof(BarredDatabase));
}

Size
mirrors_shmem_size(void)
{
	Size		size = add_size(MAXALIGN(sizeof(MirrorControl)), MAXALIGN(barred_size()));

	size = add_size(size, MAXALIGN(latencies_size()));
	return add_size(size, hash_estimate_size(AREA_MIRRORS, sizeof(FileEntry)));
}

/*
 * Initialize the table. Called in the postmaster, at start and after every
 * crash restart.
 */
void
mirrors_shmem_init(void)
{
	HASHCTL		info;
	bool		found;

	gpuann_control = ShmemInitStruct("gpuann mirrors", sizeof(MirrorControl), &found);
	if (!found)
	{
		memset(gpuann_control, 0, sizeof(MirrorControl));
		for (int i = 0; i < AREA_MIRRORS; i++)
		{
			gpuann_control->tracks[i].worker = -1;
			ConditionVariableInit(&gpuann_control->tracks[i].load_moved);
		}
	}
	gpuann_barred = ShmemInitStruct("gpuann barred databases", barred_size(), &found);
	if (!found)
		memset(gpuann_barred, 0, barred_size());
	latencies = ShmemInitStruct("gpuann latencies", latencies_size(), &found);
	memset(&info, 0, sizeof(info));
	info.keysize = sizeof(FileKey);
	info.entrysize = sizeof(FileEntry);
	file_table = ShmemInitHash("gpuann mirror files", AREA_MIRRORS, AREA_MIRRORS, &info,
							   HASH_ELEM | HASH_BLOBS);
	mirror_lock = &GetNamedLWLockTranche(MIRROR_LOCK_TRANCHE)->lock;
}

LWLock *
gpuann_mirror_lock(void)
{
	return mirror_lock;
}

LatencyCounts *
mirror_latency(int entry)
{
	return &latencies[entry];
}

bool
mirror_key_of(int entry, MirrorKey *key)
{
	bool		in_use;

	LWLockAcquire(mirror_lock, LW_SHARED);
	*key = mirror_track(entry)->key;
	in_use = mirror_track(entry)->in_use;
	LWLockRelease(mirror_lock);
	return in_use;
}

void
mirror_key(Relation index, uint64 nonce, MirrorKey *key)
{
#if PG_VERSION_NUM >= 160000
	key->database = index->rd_locator.dbOid;
	key->tablespace = index->rd_locator.spcOid;
	key->relfile = index->rd_locator.relNumber;
#else
	key->database = index->rd_node.dbNode;
	key->tablespace = index->rd_node.spcNode;
	key->relfile = index->rd_node.relNode;
#endif
	key->index = RelationGetRelid(index);
	key->nonce = nonce;
}

static FileKey
file_key(const MirrorKey *key)
{
	FileKey		file = {key->database, key->tablespace, key->relfile};

	return file;
}

int
mirror_find(const MirrorKey *key)
{
	FileKey		file = file_key(key);
	FileEntry  *found = hash_search(file_table, &file, HASH_FIND, NULL);

	return found ? found->entry : -1;
}

/*
 * Whether an index is quarantined, because the server crashed while working on
 * it.
 */
static bool
mirror_quarantined(int entry)
{
	return mirror_track(entry)->crashes >= MIRROR_MAX_CRASHES;
}

/*
 * Order in which entries are replaced. One in use is replaced only for another
 * database.
 */
typedef enum EntryWorth
{
	WORTH_COUNTERS,				/* no mirror: only counters, or wanted, or refused for a while */
	WORTH_MIRROR,
	WORTH_QUARANTINE,			/* without its entry, the index might crash the server again */
	WORTH_USED
} EntryWorth;

static EntryWorth
entry_worth(int entry, int64 idle_since)
{
	const MirrorTrack *track = mirror_track(entry);
	uint32		state = atomic_load(&mirror_area(entry)->state);
	bool		mirrored = state == MIRROR_READY || state == MIRROR_LOADING || track->worker >= 0 ||
					track->builder != 0;
	bool		quarantined = mirror_quarantined(entry);

	if (!mirrored && !quarantined)
		return WORTH_COUNTERS;
	if (state == MIRROR_LOADING || atomic_load(&mirror_area(entry)->last_used_ms) >= idle_since)
		return WORTH_USED;
	return quarantined ? WORTH_QUARANTINE : WORTH_MIRROR;
}

/* Number of usable entries. */
static int
most_entries(void)
{
#ifdef GPUANN_TEST_FAULTS
	return faults_mirror_limit;
#else
	return AREA_MIRRORS;
#endif
}

/*
 * When the table is full, the database that loses an entry to `asking`: the one
 * that holds most, if afterwards it holds at least as many as `asking`; else
 * `asking` itself. So no database takes an entry from one that holds fewer, and
 * two databases do not take the same entry from each other in turns.
 */
static uint32
losing_database(uint32 asking)
{
	uint32		databases[AREA_MIRRORS];
	int			count = most_entries();
	int			most = 0;
	int			own = 0;
	int			first = 0;
	uint32		loser = asking;

	for (int i = 0; i < count; i++)
		databases[i] = mirror_track(i)->key.database;
	qsort(databases, count, sizeof(uint32), compare_numbers);
	for (int i = 0; i < count; i++)
	{
		int			held;

		if (databases[i] != databases[first])
			first = i;
		held = i + 1 - first;
		if (databases[i] == asking)
			own = held;
		else if (held > most)
		{
			most = held;
			loser = databases[i];
		}
	}
	return most - 1 >= own + 1 ? loser : asking;
}

/* The first unused entry, or -1. */
static int
free_entry(void)
{
	for (int i = 0; i < most_entries(); i++)
		if (!mirror_track(i)->in_use)
			return i;
	return -1;
}

/*
 * Choose an unused entry for an index of this database; or, of the database
 * that has to lose one (losing_database), the entry of least worth, and among
 * those the least recently used. Entries in use are not taken from the database
 * itself; -1 if it has no others. From another database they are, or a database
 * that uses many entries often would keep all of them.
 */
static int
choose_entry(uint32 database)
{
	int64		idle_since = monotonic_ms() - EVICT_IDLE_MS;
	int			chosen = free_entry();
	uint32		loser;
	int64		chosen_used = 0;
	EntryWorth	chosen_worth = WORTH_USED;

	if (chosen >= 0)
		return chosen;
	loser = losing_database(database);
	for (int i = 0; i < most_entries(); i++)
	{
		int64		used = atomic_load(&mirror_area(i)->last_used_ms);
		EntryWorth	worth = entry_worth(i, idle_since);

		if (mirror_track(i)->key.database != loser ||
			(loser == database && worth == WORTH_USED))
			continue;
		if (chosen < 0 || worth < chosen_worth || (worth == chosen_worth && used < chosen_used))
		{
			chosen = i;
			chosen_worth = worth;
			chosen_used = used;
		}
	}
	if (chosen >= 0)
		mirror_forget(chosen);
	return chosen;
}

void
mirror_clear_counters(int entry)
{
	memset(&mirror_area(entry)->counters, 0, sizeof(MirrorCounters));
	memset(mirror_latency(entry), 0, sizeof(LatencyCounts));
}

void
mirror_inherit(int entry)
{
	const MirrorKey *key = &mirror_track(entry)->key;

	for (uint32 i = 0; i < gpuann_control->high_water; i++)
	{
		MirrorTrack *track = mirror_track((int) i);

		if (track->in_use && (int) i != entry && track->key.index == key->index &&
			track->key.database == key->database)
		{
			memcpy(&mirror_area(entry)->counters, &mirror_area((int) i)->counters,
				   sizeof(MirrorCounters));
			memcpy(mirror_latency(entry), mirror_latency((int) i), sizeof(LatencyCounts));
			mirror_forget((int) i);
		}
	}
}

int
mirror_make(const MirrorKey *key, MirrorState state)
{
	int			entry = choose_entry(key->database);
	FileKey		file = file_key(key);
	MirrorTrack *track;
	AreaMirror *mirror;
	bool		found;

	if (entry < 0)
		return -1;
	track = mirror_track(entry);
	mirror = mirror_area(entry);
	((FileEntry *) hash_search(file_table, &file, HASH_ENTER, &found))->entry = entry;
	Assert(!found);

	gpuann_control->high_water = Max(gpuann_control->high_water, (uint32) entry + 1);
	track->in_use = true;
	track->key = *key;
	track->worker = -1;
	track->builder = 0;
	track->failures = 0;
	track->host_rows = false;
	track->crashes = 0;
	track->looked_ms = monotonic_ms();
	atomic_store(&track->position_sent, 0);
	atomic_store(&track->rows_sent, 0);
	atomic_store(&track->changes_sent, 0);
	atomic_store(&track->link_wanted, 0);
	atomic_store(&track->link_again_ms, 0);
	memset(&track->progress, 0, sizeof(track->progress));
	mirror_clear_counters(entry);
	atomic_store(&mirror->wanted, 0);
	atomic_store(&mirror->changed, 0);
	atomic_store(&mirror->last_used_ms, monotonic_ms());
	atomic_store(&mirror->state, state);
	atomic_fetch_add(&gpuann_control->table_version, 1);
	return entry;
}

/* Clear the server's figures of an entry. */
static void
clear_figures(AreaMirror *mirror)
{
	atomic_store(&mirror->position, 0);
	atomic_store(&mirror->rows, 0);
	atomic_store(&mirror->bytes, 0);
	atomic_store(&mirror->host_bytes, 0);
	atomic_store(&mirror->epoch, 0);
}

uint32
mirror_invalidate(int entry, MirrorState next)
{
	AreaMirror *mirror = mirror_area(entry);
	uint32		generation;

	/*
	 * Order: state, generation, then everything that belongs to the mirror. The
	 * server drops mirrors whose entry's generation has moved on (held_sweep).
	 * A process that reads a number and then finds the generation unchanged
	 * knows that the number belongs to that mirror.
	 */
	atomic_store(&mirror->state, next);
	generation = atomic_fetch_add(&mirror->generation, 1) + 1;
	clear_figures(mirror);
	memset(&mirror_track(entry)->progress, 0, sizeof(MirrorProgress));
	memset(&mirror_track(entry)->load, 0, sizeof(LoadShare));
	ConditionVariableBroadcast(&mirror_track(entry)->load_moved);
	atomic_store(&mirror_track(entry)->changes_sent, 0);
	atomic_store(&mirror_track(entry)->link_wanted, 0);
	atomic_store(&mirror_track(entry)->link_again_ms, 0);
	atomic_fetch_add(&gpuann_control->table_version, 1);
	return generation;
}

void
grains_mark(GrainMap *map, ListCountsRange range, bool used)
{
	uint32		first = range.first / COUNT_GRAIN;

	for (uint32 grain = first; grain < first + grains_of(range.lists); grain++)
	{
		uint64		bit = UINT64CONST(1) << grain % 64;

		if (used)
			map->used[grain / 64] |= bit;
		else
			map->used[grain / 64] &= ~bit;
	}
}

void
mirror_release_counts(int entry)
{
	MirrorTrack *track = mirror_track(entry);

	atomic_store(&mirror_area(entry)->list_counts, 0);
	if (track->counts.lists > 0)
		grains_mark(&gpuann_control->counts_used, track->counts, false);
	track->counts.lists = 0;
}

void
mirror_forget(int entry)
{
	MirrorTrack *track = mirror_track(entry);
	FileKey		file = file_key(&track->key);

	hash_search(file_table, &file, HASH_REMOVE, NULL);
	/*
	 * The identity is advanced before the generation. A backend without the
	 * lock reads a generation, then the identity (client_mirror()): if the
	 * identity is unchanged, the generation is of this index, and not of the
	 * next one in this entry.
	 */
	atomic_fetch_add(&track->identity, 1);
	(void) mirror_invalidate(entry, MIRROR_EMPTY);
	mirror_release_counts(entry);
	track->in_use = false;
	track->worker = -1;
	track->builder = 0;
	atomic_store(&mirror_area(entry)->worker, 0);
}

void
mirror_evict(int entry)
{
	(void) mirror_invalidate(entry, MIRROR_STATISTICS);
	mirror_track(entry)->host_rows = false;
	atomic_fetch_add(&mirror_area(entry)->counters.evictions, 1);
}

void
mirror_refuse(int entry, const char *reason)
{
	MirrorTrack *track = mirror_track(entry);
	AreaMirror *mirror = mirror_area(entry);
	int64		delay = (int64) REFUSED_RETRY_MS << Min(track->failures, 10);

	/*
	 * A quarantined entry stays as it is: a time to retry would end the
	 * quarantine.
	 */
	if (mirror_quarantined(entry))
		return;
	track->failures++;
	strlcpy(mirror->reason, reason, sizeof(mirror->reason));
	atomic_store(&mirror->retry_at_ms, monotonic_ms() + Min(delay, REFUSED_RETRY_MAX_MS));
	atomic_store(&mirror->wanted, 0);
	(void) mirror_invalidate(entry, MIRROR_REFUSED);
}

bool
mirror_is_due(int entry, int64 now_ms)
{
	AreaMirror *mirror = mirror_area(entry);

	switch (atomic_load(&mirror->state))
	{
		case MIRROR_WANTED:
			return true;
		case MIRROR_REFUSED:
			return atomic_load(&mirror->wanted) > 0 && atomic_load(&mirror->retry_at_ms) <= now_ms;
		default:
			return false;
	}
}

/*
 * Count a server crash while the engine worked on this index. Returns true if
 * the index has to be quarantined.
 */
static bool
mirror_suspect(int entry, int64 now)
{
	MirrorTrack *track = mirror_track(entry);

	track->crashes = now - track->crashed_ms < CRASH_MEMORY_MS ? track->crashes + 1 : 1;
	track->crashed_ms = now;
	return track->crashes == MIRROR_MAX_CRASHES;
}

/* Quarantine an index: refuse its mirror until REINDEX or gpuann_prewarm(). */
static void
mirror_quarantine(int entry)
{
	AreaMirror *mirror = mirror_area(entry);

	snprintf(mirror->reason, sizeof(mirror->reason),
			 "the server crashed %d times while it worked on this index", MIRROR_MAX_CRASHES);
	atomic_store(&mirror->retry_at_ms, PG_INT64_MAX);
	(void) mirror_invalidate(entry, MIRROR_REFUSED);
	ereport(LOG, (errmsg("gpuann index %u is answered from its pages from now on: %s",
						 mirror_track(entry)->key.index, mirror->reason),
				  errhint("REINDEX or gpuann_prewarm gives it a new start.")));
}

void
mirrors_sweep(bool crashed)
{
	int64		now = monotonic_ms();

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	FAULT_POINT("launcher-sweep");
	for (uint32 i = 0; i < gpuann_control->high_water; i++)
	{
		MirrorTrack *track = mirror_track((int) i);
		AreaMirror *mirror = mirror_area((int) i);
		bool		recent = now - atomic_load(&mirror->last_used_ms) < RECENTLY_USED_MS;
		bool		at_work = atomic_exchange(&mirror->in_engine, 0) > 0;

		if (!track->in_use)
			continue;
		track->failures = 0;
		if (crashed && at_work && mirror_suspect((int) i, now))
			mirror_quarantine((int) i);
		if (mirror_quarantined((int) i))
			continue;
		switch (atomic_load(&mirror->state))
		{
			case MIRROR_STATISTICS:
			case MIRROR_WANTED:
				break;
			default:
				(void) mirror_invalidate((int) i, recent ? MIRROR_WANTED : MIRROR_STATISTICS);
		}
	}
	LWLockRelease(gpuann_mirror_lock());
}

void
mirrors_forget_database(Oid database)
{
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	for (uint32 i = 0; i < gpuann_control->high_water; i++)
	{
		if (mirror_track((int) i)->in_use && mirror_track((int) i)->key.database == database)
			mirror_forget((int) i);
	}
	LWLockRelease(gpuann_mirror_lock());
}

void
launcher_wake(void)
{
	Latch	   *latch = gpuann_control->launcher_latch;

	/*
	 * The latch is read without a lock. If its process has just ended, the
	 * latch may belong to another process by now, for which a spurious wake-up
	 * is harmless.
	 */
	if (latch != NULL)
		SetLatch(latch);
}

void
mirror_wake(int entry)
{
	int			worker = mirror_track(entry)->worker;
	Latch	   *latch =
		worker >= 0 && worker < GPUANN_MAX_WORKERS ? gpuann_control->workers[worker].latch : NULL;

	if (latch != NULL)
		SetLatch(latch);
	else
		launcher_wake();
}
