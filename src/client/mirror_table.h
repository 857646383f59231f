/*
 * mirror_table.h
 *		The mirror table: which indexes have, want or had a mirror, and which
 *		workers serve them.
 *
 * The table has two halves. AreaMirror (protocol.h) is in the shared area,
 * where the server reads it and could overwrite it. MirrorTrack is in
 * PostgreSQL's own shared memory, and holds what PostgreSQL relies on. The
 * latches of launcher and workers are here too.
 *
 * gpuann_mirror_lock() protects the tracks, the worker slots, and the barred
 * databases. README.md (Concurrency and locks) says which process writes which
 * field, and what may be read without the lock.
 */
#ifndef GPUANN_MIRROR_TABLE_H
#define GPUANN_MIRROR_TABLE_H

#include "client/shmem.h"

#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lwlock.h"

#define GPUANN_MAX_WORKERS	64
#define MIRROR_MAX_CRASHES 3	/* number of server crashes on one index, each within
								 * CRASH_MEMORY_MS of the previous one, after which it is
								 * quarantined */
#define STANDBY_USED_MS		60000	/* on a standby a mirror used since is kept current by
									 * polling */
#define EVICT_IDLE_MS		10000	/* a mirror used within this time is not evicted */

/* The index of an entry. */
typedef struct MirrorKey
{
	uint32		database;
	uint32		tablespace;
	uint32		relfile;
	uint32		index;			/* the index's OID, for opening it; not part of the identity */
	uint64	nonce;			/* the metapage's nonce */
} MirrorKey;

/*
 * A change sequence that a scan of superblocks has to reach: it is reached when
 * every superblock has been visited since the target was set.
 */
typedef struct ScanTarget
{
	uint64		change_seq;
	uint32		visited;
} ScanTarget;

#define SCAN_TARGETS	8

/* Phases of a mirror's load. */
typedef enum LoadPhase
{
	PHASE_ROWS = 0,				/* versions and vectors of the slots that existed at the start */
	PHASE_GRAPH,				/* then their graph rows */
	PHASE_CATCHUP,				/* then changes made meanwhile; queries are answered after that */
	PHASE_SERVING
} LoadPhase;

/*
 * A run of slots that is read and sent in one operation of a load. count 0:
 * none.
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
	LoadPart	part;			/* loading: claimed by this process, not sent yet */
	uint32		rows;			/* slots that the mirror has */
	uint64		position;		/* list entries before this are in the mirror */
	uint64		ready_at;		/* pending position at which the load is complete */
	uint64		change_seq;		/* changes of pages up to this are in the mirror */
	ScanTarget	scan_targets[SCAN_TARGETS]; /* of the current scan, oldest first */
	uint32		scan_ntargets;	/* 0: no scan */
	uint32		scan_superblock;	/* the superblock to visit next */
	uint64		seeds_sum;		/* checksum of the seeds sent last; 0: the mirror may have others */
	uint64		end_seen;		/* end of the list at the last check, and when it last advanced */
	int64		grown_ms;
	uint64		paced_end;		/* end of the list when the insert rate was last measured, and when
								 * that was */
	int64		paced_ms;
	uint32		pace;			/* insert rate, in entries per second */
	int64		load_started_ms;
	int64		look_at_ms;		/* when to check again without a wake-up */
	uint64		replayed;		/* on a standby: the replay position up to which the mirror has all
								 * changes */
} MirrorProgress;

/*
 * Shared state of the processes that read for a load: the mirror's owner and
 * its helpers. Each claims the next part of the slots.
 */
typedef struct LoadShare
{
	LoadPhase	phase;			/* PHASE_ROWS or PHASE_GRAPH */
	uint32		slots;			/* to be read in each phase */
	uint32		next;			/* first slot not claimed in this phase */
	uint32		sent;			/* slots sent in this phase */
	uint32		helped;			/* number of parts read by helpers */
	int			failure;		/* SliceEnding of a helper that failed; 0: none */
	bool		no_memory;
	char		reason[160];
} LoadShare;

typedef struct MirrorTrack
{
	_Atomic uint32_t identity;	/* advanced when the entry gets another index, before the generation
								 */
	bool		in_use;
	MirrorKey	key;
	_Atomic int worker;			/* worker slot, or -1 */
	pid_t		builder;		/* process whose transaction has created the index's file and has
								 * not ended; 0: none. Workers ignore the entry */
	int			failures;		/* consecutive failures, which increase the retry interval */
	bool		host_rows;		/* it did not fit; the next load may put vectors in host memory */
	int			crashes;		/* server crashes while the engine worked on it */
	int64		crashed_ms;		/* time of the last of them */
	_Atomic int64_t looked_ms;	/* when a worker last checked the index */
	_Atomic uint64_t position_sent; /* limit of the position that a valid answer covers, */
	_Atomic uint32_t rows_sent; /* and of its slots */
	_Atomic uint64_t link_wanted;	/* a session waits until the list is linked up to here; 0: none,
									 * or the linker has accepted the request */
	_Atomic int64_t link_again_ms;	/* when to ask an engine again that has refused to link; 0: it
									 * has not */
	_Atomic uint64_t changes_sent;	/* change sequence up to which the mirror has page changes; 0:
									 * unknown */
	ListCountsRange counts;		/* its probe counts of lists; a copy of AreaMirror.list_counts that
								 * the server cannot overwrite */
	MirrorProgress progress;	/* as published; the owner works on a private copy */
	LoadShare	load;
	ConditionVariable load_moved;	/* broadcast when `load` changes */
} MirrorTrack;

typedef struct WorkerSlot
{
	bool		in_use;			/* from before the worker starts until it has ended */
	bool		connected;
	_Atomic bool leave;			/* asked to exit: the database is to be dropped, renamed, moved or
								 * copied */
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
	pid_t		pid;			/* of the backend that barred it, */
	SubTransactionId subid;		/* and its subtransaction that did */
} BarredDatabase;

/*
 * When a fallback with one reason was last logged, and how many were not logged
 * since.
 */
typedef struct FallbackLog
{
	_Atomic int64_t logged_ms;
	_Atomic uint32_t silent;
} FallbackLog;

#define COUNT_GRAIN		64		/* counts of lists are allocated in units of this many */
#define COUNT_GRAINS	(AREA_LIST_COUNTS / COUNT_GRAIN)

/* Grains that the counts of this many lists take. */
static inline uint32
grains_of(uint32 lists)
{
	return (lists + COUNT_GRAIN - 1) / COUNT_GRAIN;
}

/* A bit for each grain of the area's counts: set if allocated. */
typedef struct GrainMap
{
	uint64		used[COUNT_GRAINS / 64];
} GrainMap;

typedef struct MirrorControl
{
	_Atomic uint32_t table_version; /* advanced when entries are created, emptied, or become wanted
									 */
	_Atomic uint32_t databases_waiting; /* number of databases that need a worker and have none */
	bool		restored;		/* the state file has been read */
	_Atomic uint32_t high_water;	/* entries from here on have never been used */
	Latch	   *_Atomic launcher_latch;
	FallbackLog fallbacks[FALLBACK_REASONS];
	GrainMap	counts_used;
	uint32		counts_next;	/* grain from which the next search for free grains starts */
	WorkerSlot	workers[GPUANN_MAX_WORKERS];
	ReaderSlot	readers[GPUANN_MAX_READERS];
	MirrorTrack tracks[AREA_MIRRORS];
} MirrorControl;

extern MirrorControl *gpuann_control;

/*
 * Barred databases: as many places as request slots, each usable by any
 * backend.
 */
extern BarredDatabase *gpuann_barred;

/*
 * Number of slots for which a mirror is created. It can grow beyond, at the
 * cost of a copy.
 */
static inline uint32
mirror_capacity(uint32 rows)
{
	return Min(rows + rows / 8 + 64, ENGINE_MAX_SLOTS);
}

/* The mirror lock: protects creating, claiming and emptying entries. */
extern LWLock *gpuann_mirror_lock(void);

#define MIRROR_LOCK_TRANCHE	"gpuann"

extern Size mirrors_shmem_size(void);
extern void mirrors_shmem_init(void);

/* The index of an entry; false: it has none. Takes the mirror lock. */
extern bool mirror_key_of(int entry, MirrorKey *key);

/* The identity of an index. */
extern void mirror_key(Relation index, uint64 nonce, MirrorKey *key);

static inline MirrorTrack *
mirror_track(int entry)
{
	return &gpuann_control->tracks[entry];
}

/*
 * Whether an entry still has this identity. The mirror lock is held.
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
 * Whether an entry's mirror still has this generation, which changes with the
 * entry's index, and when the mirror is dropped. While the mirror lock is held,
 * also in shared mode, that does not change.
 */
static inline bool
mirror_is_generation(int entry, uint32 generation)
{
	return atomic_load(&mirror_area(entry)->generation) == generation;
}

/*
 * Find the entry of this relation file, or -1. The caller compares the nonce.
 * The mirror lock is held.
 */
extern int	mirror_find(const MirrorKey *key);

/*
 * Create an entry. Returns -1 if the table is full, no other database holds
 * more entries than this index's would, and all entries of this database are in
 * use. The mirror lock is held exclusively.
 */
extern int	mirror_make(const MirrorKey *key, MirrorState state);

/*
 * Clear the counters of an entry. The mirror lock is held exclusively, or the
 * entry is not in use.
 */
extern void mirror_clear_counters(int entry);

/*
 * Move the counters of an index's earlier entries, for other relation files, to
 * this one, and empty those entries. The mirror lock is held exclusively.
 */
extern void mirror_inherit(int entry);

/* Mark the grains of a range of counts as used, or as free. */
extern void grains_mark(GrainMap *map, ListCountsRange range, bool used);

/*
 * Release the probe counts that an entry holds (list_counts_claim()), if it
 * does. The mirror lock is held exclusively.
 */
extern void mirror_release_counts(int entry);

/*
 * Empty the entry of an index that no longer exists. The mirror lock is held
 * exclusively.
 */
extern void mirror_forget(int entry);

/*
 * Invalidate an entry's mirror by advancing its generation, upon which the
 * server drops it. The next state is MIRROR_WANTED, _REFUSED, _STATISTICS or
 * _LOADING. Returns the new generation. The mirror lock is held exclusively.
 */
extern uint32 mirror_invalidate(int entry, MirrorState next);

/*
 * Evict a mirror; the next scan requests it again. The mirror lock is held
 * exclusively.
 */
extern void mirror_evict(int entry);

/*
 * Refuse an entry's mirror for a while, which gets longer with every
 * consecutive refusal. The mirror lock is held exclusively.
 */
extern void mirror_refuse(int entry, const char *reason);

/*
 * Whether an entry's mirror should be loaded now: it is wanted, or was refused
 * long enough ago.
 */
extern bool mirror_is_due(int entry, int64 now_ms);

/*
 * Invalidate all mirrors after the end of a server. If it crashed, the crash is
 * counted for the indexes on which its engine was working. After
 * MIRROR_MAX_CRASHES crashes an index is quarantined, that is, refused until
 * it gets a new relation file or gpuann_prewarm() is called. Takes the mirror
 * lock. Launcher only.
 */
extern void mirrors_sweep(bool crashed);

/*
 * Empty all entries of a database that no longer exists. Takes the mirror lock.
 */
extern void mirrors_forget_database(Oid database);

/* Wake the worker of an entry, or the launcher if it has none. */
extern void mirror_wake(int entry);
extern void launcher_wake(void);

#endif							/* GPUANN_MIRROR_TABLE_H */
