/*
 * mirror_table.h
 *		The mirror table: which indexes have, want or had a mirror, and who
 *		looks after them.
 *
 * The table has two halves. AreaMirror (protocol.h) stands in the shared area,
 * where the server sees it and could overwrite it; MirrorTrack stands in
 * PostgreSQL's own shared memory and holds what must be true. Launcher and
 * workers find each other here too.
 *
 * gpuann_mirror_lock() protects the tracks, the worker slots, and the barred
 * databases; which field is written by whom, and what may be read without the
 * lock, is in README.md (Concurrency and locks).
 */
#ifndef GPUANN_MIRROR_TABLE_H
#define GPUANN_MIRROR_TABLE_H

#include "client/shmem.h"

#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lwlock.h"

#define GPUANN_MAX_WORKERS	64
#define MIRROR_MOST_CRASHES 3	/* of the server, each within the memory of the one before, on one
								 * index */
#define STANDBY_USED_MS		60000	/* on a standby a mirror used since is kept current by
									 * polling */
#define EVICT_IDLE_MS		10000	/* a mirror asked for since does not make way */

/* Which index an entry is of. */
typedef struct MirrorKey
{
	uint32		database;
	uint32		tablespace;
	uint32		relfile;
	uint32		index;			/* the index's oid, for who opens it; not part of the identity */
	uint64	nonce;			/* of the metapage */
} MirrorKey;

/*
 * Changes of pages that a scan is to bring to a mirror: it has when every
 * superblock was visited since.
 */
typedef struct ScanTarget
{
	uint64		change_seq;
	uint32		visited;
} ScanTarget;

#define SCAN_TARGETS	8

/* How far a mirror has come. */
typedef enum LoadPhase
{
	PHASE_ROWS = 0,				/* versions and vectors of the slots that existed at the start */
	PHASE_GRAPH,				/* then their graph rows */
	PHASE_CATCHUP,				/* then what has happened meanwhile, before queries are answered */
	PHASE_SERVING
} LoadPhase;

/*
 * A run of slots that a load reads and sends at once. count 0: none.
 */
typedef struct LoadPart
{
	uint32		first;
	uint32		count;
} LoadPart;

typedef struct MirrorProgress
{
	LoadPhase	phase;
	uint32		next_slot;		/* loading: the first slot not sent in this phase */
	uint32		load_slots;		/* loading: slots at the start */
	uint32		floats_sent;	/* loading lists: of centroids and codebook */
	LoadPart	part;			/* loading: taken by this process, and not sent yet */
	uint32		rows;			/* slots that the mirror knows */
	uint64		position;		/* list entries before this are in the mirror */
	uint64		ready_at;		/* pending position at which the load is complete */
	uint64		change_seq;		/* changes of pages up to this are in the mirror */
	ScanTarget	scan_targets[SCAN_TARGETS]; /* of the scan under way, oldest first */
	uint32		scan_ntargets;	/* 0: none is under way */
	uint32		scan_superblock;	/* to be visited next */
	uint64		seeds_sum;		/* of the seeds sent last; 0: they may not be those that the mirror
								 * has */
	uint64		end_seen;		/* end of the list at the last look, and when it last moved */
	int64		grown_ms;
	uint64		paced_end;		/* end of the list when its pace was last taken, and when that
								 * was */
	int64		paced_ms;
	uint32		pace;			/* entries per second */
	int64		load_started_ms;
	int64		look_at_ms;		/* when to look again without being told */
	uint64		replayed;		/* on a standby: everything replayed up to here is in the mirror */
} MirrorProgress;

/*
 * What the readers of a load share: the mirror's owner, and those that help it.
 * Each takes the next part of the slots.
 */
typedef struct LoadShare
{
	LoadPhase	phase;			/* PHASE_ROWS or PHASE_GRAPH */
	uint32		slots;			/* to be read in each phase */
	uint32		next;			/* in this phase, nobody has taken slots from here on */
	uint32		sent;			/* slots that the mirror has got in this phase */
	uint32		helped;			/* parts that were read by helpers */
	int			failure;		/* SliceEnding of a helper that failed; 0: none has */
	bool		no_memory;
	char		reason[160];
} LoadShare;

typedef struct MirrorTrack
{
	_Atomic uint32_t identity;	/* advanced, before the generation, when the entry changes its
								 * index */
	bool		in_use;
	MirrorKey	key;
	_Atomic int worker;			/* worker slot, or -1 */
	pid_t		builder;		/* whose transaction has made the index's file and is not over; 0:
								 * none. Workers leave it alone */
	int			failures;		/* in a row: stretches the time to the next try */
	bool		host_rows;		/* it did not fit: loaded next, it may have vectors in host
								 * memory */
	int			crashes;		/* of servers that were at work on it */
	int64		crashed_ms;		/* the last of them */
	_Atomic int64_t looked_ms;	/* when a worker last looked at the index */
	_Atomic uint64_t position_sent; /* no honest answer covers more, */
	_Atomic uint32_t rows_sent; /* or names slots from here on */
	_Atomic uint64_t link_wanted;	/* somebody waits for the list to be linked up to here; 0:
									 * nobody, or the linker has taken it on */
	_Atomic int64_t link_again_ms;	/* the engine has refused to link, and is not asked again
									 * before; 0: it has not */
	_Atomic uint64_t changes_sent;	/* nor what changes of pages up to this did away with; 0:
									 * nothing is known */
	ListCountsRange counts;		/* of how often its lists are probed; AreaMirror.list_counts says
								 * the same */
	MirrorProgress progress;	/* as published: its owner has a copy of his own */
	LoadShare	load;
	ConditionVariable load_moved;	/* what a reader may wait for in `load` has changed */
} MirrorTrack;

typedef struct WorkerSlot
{
	bool		in_use;			/* from before its start to its end */
	bool		connected;
	_Atomic bool leave;			/* asked to: the database is to be dropped, moved or copied */
	Oid			database;
	pid_t		pid;
	Latch	   *_Atomic latch;
	int64		started_ms;
} WorkerSlot;

/* A process that helps to load a mirror. database: InvalidOid: none. */
typedef struct ReaderSlot
{
	Oid			database;
	Latch	   *latch;
} ReaderSlot;

#define GPUANN_MAX_READERS 64

/* A database that is being dropped, moved, renamed or copied. */
typedef struct BarredDatabase
{
	Oid			database;
	pid_t		pid;			/* of the backend that bars it, */
	SubTransactionId subid;		/* and of its transaction that does */
} BarredDatabase;

/* When a fallback of one kind was last logged, and how many were not since. */
typedef struct FallbackLog
{
	_Atomic int64_t logged_ms;
	_Atomic uint32_t silent;
} FallbackLog;

#define COUNT_GRAIN		64		/* counts of lists are given out so many at once */
#define COUNT_GRAINS	(AREA_LIST_COUNTS / COUNT_GRAIN)

/* A bit for each grain of the area's counts: set where an index has it. */
typedef struct GrainMap
{
	uint64		used[COUNT_GRAINS / 64];
} GrainMap;

typedef struct MirrorControl
{
	_Atomic uint32_t table_version; /* advanced when entries come, go, or become wanted */
	_Atomic uint32_t databases_waiting; /* databases that want a worker and have none */
	bool		restored;		/* what the cluster before this one left */
	_Atomic uint32_t high_water;	/* entries from here on were never used */
	Latch	   *_Atomic launcher_latch;
	FallbackLog fallbacks[FALLBACK_REASONS];
	GrainMap	counts_used;
	uint32		counts_next;	/* grain from which on room is looked for */
	WorkerSlot	workers[GPUANN_MAX_WORKERS];
	ReaderSlot	readers[GPUANN_MAX_READERS];
	MirrorTrack tracks[AREA_MIRRORS];
} MirrorControl;

extern MirrorControl *gpuann_control;

/* What backends bar: one for each request slot, taken by any. */
extern BarredDatabase *gpuann_barred;

/*
 * Slots that a mirror is created for: it grows beyond, but that costs a copy.
 */
static inline uint32
mirror_capacity(uint32 rows)
{
	return Min(rows + rows / 8 + 64, ENGINE_MAX_SLOTS);
}

/* Protects creating, claiming and emptying entries. */
extern LWLock *gpuann_mirror_lock(void);

#define MIRROR_LOCK_TRANCHE	"gpuann"

extern Size mirrors_shmem_size(void);
extern void mirrors_shmem_init(void);

/* The identity of an index. */
extern void mirror_key(Relation index, uint64 nonce, MirrorKey *key);

static inline MirrorTrack *
mirror_track(int entry)
{
	return &gpuann_control->tracks[entry];
}

/*
 * Whether an entry is still the one that had this identity. The lock is held.
 */
static inline bool
mirror_is_still(int entry, uint32 identity)
{
	MirrorTrack *track = mirror_track(entry);

	return track->in_use && atomic_load(&track->identity) == identity;
}

static inline AreaMirror *
mirror_area(int entry)
{
	return shared_mirror((uint32) entry);
}

/*
 * Whether an entry's mirror is still the one that had this generation: an entry
 * that changes its index, or loses its mirror, gets another. While the lock is
 * held, for share too, that stays so.
 */
static inline bool
mirror_is_generation(int entry, uint32 generation)
{
	return atomic_load(&mirror_area(entry)->generation) == generation;
}

/*
 * The entry of this relation file, or -1. The nonce is the caller's to compare.
 * The lock is held.
 */
extern int	mirror_find(const MirrorKey *key);

/*
 * A new entry, or -1 if the table is full, no other database holds more entries
 * than this index's would, and all of its own are in use. The lock is held
 * exclusively.
 */
extern int	mirror_make(const MirrorKey *key, MirrorState state);

/*
 * An index that has got this entry with a new relation file keeps its counters:
 * those of its earlier entries, which are emptied. The lock is held
 * exclusively.
 */
extern void mirror_inherit(int entry);

/* The index is gone: empty the entry. The lock is held exclusively. */
extern void mirror_forget(int entry);

/*
 * What the server holds for an entry is no longer to be used, and the server
 * drops it; the entry goes on as MIRROR_WANTED, _REFUSED, _STATISTICS or
 * _LOADING. Returns the new generation. The lock is held exclusively.
 */
extern uint32 mirror_invalidate(int entry, MirrorState next);

/*
 * Give up a mirror; the next scan that asks gets it back. The lock is held
 * exclusively.
 */
extern void mirror_evict(int entry);

/*
 * Refuse an entry for a while; the more often in a row the longer. The lock is
 * held exclusively.
 */
extern void mirror_refuse(int entry, const char *reason);

/*
 * The entry of a table that is to be mirrored if it is not: wanted, or refused
 * long enough ago.
 */
extern bool mirror_is_due(int entry, int64 now_ms);

/*
 * All that the server held is gone with it. If it crashed, the indexes that its
 * engine was at work on are suspects: one that was so MIRROR_MOST_CRASHES times
 * is quarantined, refused until it gets a new relation file or somebody asks
 * for it by name. Takes the lock. Launcher only.
 */
extern void mirrors_sweep(bool crashed);

/* All entries of a database that no longer exists. Takes the lock. */
extern void mirrors_forget_database(Oid database);

/* Wake the worker of an entry, or the launcher if it has none. */
extern void mirror_wake(int entry);
extern void launcher_wake(void);

#endif							/* GPUANN_MIRROR_TABLE_H */
