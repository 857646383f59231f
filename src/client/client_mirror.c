/*
 * client_mirror.c
 *		Backend-local cache of mirror table entries, and notification of mirror
 *		workers.
 *
 * Every backend caches the entries of the indexes that it has used, so that a
 * scan or an insert usually takes no lock. A cached entry is valid as long as
 * the entry's identity is unchanged. Relcache invalidation of the index removes
 * it, so the cache does not grow with every index that the session ever used.
 * No function here may keep a pointer into the cache across
 * AcceptInvalidationMessages().
 */
#include "base/base.h"

#include "client/shmem.h"
#include "client/client.h"
#include "client/mirror_table.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"

#define USE_GRAIN_MS	20		/* granularity of last_used_ms */
#define FULL_RETRY_MS	1000	/* before retrying after the table was full */
#define ASK_TO_LINK_MS	2000	/* timeout for the worker to accept a request to link */
#define ASK_POLL_MS		1

/* A cached entry. */
typedef struct Remembered
{
	Oid			index;			/* hash key */
	MirrorKey	key;
	int			entry;			/* -1: the index had none */
	uint32		identity;
	uint32		table_version;	/* for entry -1: table_version of the lookup */
	int64		full_ms;		/* when the table was last full; 0: never */
} Remembered;

static HTAB *remembered = NULL;

/*
 * Relcache callback: remove the cached entry of an index; InvalidOid: of all.
 */
static void
forget_index(Datum arg, Oid relation)
{
	HASH_SEQ_STATUS all;
	Remembered *memory;

	if (OidIsValid(relation))
	{
		(void) hash_search(remembered, &relation, HASH_REMOVE, NULL);
		return;
	}
	hash_seq_init(&all, remembered);
	while ((memory = hash_seq_search(&all)) != NULL)
		(void) hash_search(remembered, &memory->index, HASH_REMOVE, NULL);
}

/* Find or create the cached entry of an index. */
static Remembered *
recall_index(Relation index)
{
	Oid			oid = RelationGetRelid(index);
	Remembered *memory;
	bool		found;

	if (remembered == NULL)
	{
		HASHCTL		info = {
			.keysize = sizeof(Oid), .entrysize = sizeof(Remembered), .hcxt = TopMemoryContext};

		remembered =
			hash_create("gpuann mirrors met", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		CacheRegisterRelcacheCallback(forget_index, (Datum) 0);
	}
	memory = hash_search(remembered, &oid, HASH_ENTER, &found);
	if (!found)
	{
		memset(&memory->key, 0, sizeof(memory->key));
		memory->entry = -1;
		memory->identity = 0;
		memory->table_version = 0;
		memory->full_ms = 0;
	}
	return memory;
}

static bool
same_file(const MirrorKey *a, const MirrorKey *b)
{
	return a->database == b->database && a->tablespace == b->tablespace && a->relfile == b->relfile;
}

/*
 * Whether a cached entry is still valid; a nonce of 0 in the key matches any.
 */
static bool
still_true(const Remembered *memory, const MirrorKey *key)
{
	if (!same_file(&memory->key, key) || (key->nonce != 0 && memory->key.nonce != key->nonce))
		return false;
	if (memory->entry < 0)
		return memory->table_version == atomic_load(&gpuann_control->table_version);
	return memory->identity == atomic_load(&mirror_track(memory->entry)->identity);
}

/*
 * An entry has become wanted. Without a GPU set its `changed`, so that a worker
 * checks the pending list once; later changes set it themselves.
 */
static void
note_wanted(int entry)
{
	if (shmem_no_gpu())
		atomic_store(&mirror_area(entry)->changed, 1);
}

/*
 * Look an index up in the table, and create an entry in the given state if
 * there is none and state is not MIRROR_EMPTY. A nonce of 0 in the key matches
 * any.
 */
static void
look_up(Remembered *memory, const MirrorKey *key, MirrorState state)
{
	LWLock	   *lock = gpuann_mirror_lock();
	int			entry;

	LWLockAcquire(lock, LW_SHARED);
	memory->table_version = atomic_load(&gpuann_control->table_version);
	entry = mirror_find(key);
	if (state != MIRROR_EMPTY && (entry < 0 || mirror_track(entry)->key.nonce != key->nonce))
	{
		LWLockRelease(lock);
		LWLockAcquire(lock, LW_EXCLUSIVE);
		entry = mirror_find(key);
		if (entry >= 0 && mirror_track(entry)->key.nonce != key->nonce)
		{
			mirror_forget(entry);
			entry = -1;
		}
		if (entry < 0 && (entry = mirror_make(key, state)) >= 0)
		{
			mirror_inherit(entry);
			note_wanted(entry);
		}
		memory->full_ms = entry < 0 ? monotonic_ms() : 0;
		memory->table_version = atomic_load(&gpuann_control->table_version);
	}
	else if (entry >= 0 && key->nonce != 0 && mirror_track(entry)->key.nonce != key->nonce)
		entry = -1;
	memory->key = entry >= 0 ? mirror_track(entry)->key : *key;
	memory->entry = entry;
	memory->identity = entry >= 0 ? atomic_load(&mirror_track(entry)->identity) : 0;
	LWLockRelease(lock);
}

/* Move an entry that only keeps statistics to wanted. */
static void
mirror_want(const Remembered *memory)
{
	AreaMirror *mirror = mirror_area(memory->entry);

	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	if (mirror_is_still(memory->entry, memory->identity) &&
		atomic_load(&mirror->state) == MIRROR_STATISTICS)
	{
		(void) mirror_invalidate(memory->entry, MIRROR_WANTED);
		note_wanted(memory->entry);
		mirror_wake(memory->entry);
	}
	LWLockRelease(gpuann_mirror_lock());
}

/*
 * The index is not to be mirrored (any more): have its worker drop the mirror,
 * or do so here if it has none.
 */
static void
mirror_unwant(const Remembered *memory)
{
	AreaMirror *mirror = mirror_area(memory->entry);
	uint32		state = atomic_load(&mirror->state);

	if (state != MIRROR_WANTED && state != MIRROR_LOADING && state != MIRROR_READY)
		return;
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	if (mirror_is_still(memory->entry, memory->identity))
	{
		if (mirror_track(memory->entry)->worker < 0)
			(void) mirror_invalidate(memory->entry, MIRROR_STATISTICS);
		else if (atomic_exchange(&mirror->changed, 1) == 0)
			mirror_wake(memory->entry);
	}
	LWLockRelease(gpuann_mirror_lock());
}

/*
 * Whether other sessions cannot see this index (or its file) yet: a worker
 * could not open it.
 */
static bool
made_here(Relation index)
{
#if PG_VERSION_NUM >= 160000
	return index->rd_createSubid != InvalidSubTransactionId ||
		index->rd_firstRelfilelocatorSubid != InvalidSubTransactionId;
#else
	return index->rd_createSubid != InvalidSubTransactionId ||
		index->rd_firstRelfilenodeSubid != InvalidSubTransactionId;
#endif
}

/* The fallback reason of an entry's state. */
static FallbackReason
reason_of_state(int entry)
{
	AreaMirror *mirror = mirror_area(entry);
	uint32		epoch;

	if (!shmem_server_ready(&epoch))
		return shmem_no_gpu() ? FALLBACK_NO_GPU : FALLBACK_NO_SERVER;
	switch (atomic_load(&mirror->state))
	{
		case MIRROR_READY:
			return atomic_load(&mirror->epoch) == epoch ? FALLBACK_NONE : FALLBACK_NOT_LOADED;
		case MIRROR_REFUSED:
			return FALLBACK_REFUSED;
		default:
			return FALLBACK_NOT_LOADED;
	}
}

/*
 * Update last_used_ms. The entry's cache line is read by every scan of every
 * session, so it is written at most once per USE_GRAIN_MS.
 */
static void
note_use(int entry)
{
	AreaMirror *mirror = mirror_area(entry);
	int64		now = monotonic_ms();
	int64		last = atomic_load_explicit(&mirror->last_used_ms, memory_order_relaxed);

	if (now - last >= USE_GRAIN_MS || now < last)
		atomic_store_explicit(&mirror->last_used_ms, now, memory_order_relaxed);
}

/*
 * Return the cached entry of an index, after looking it up if it is not valid.
 * `ours`: this transaction has created its file.
 */
static Remembered *
remember_entry(Relation index, const MetaPage *meta, bool ours, bool wanted)
{
	Remembered *memory;
	MirrorKey	key;

	mirror_key(index, meta->nonce, &key);
	memory = recall_index(index);
	if (!still_true(memory, &key) ||
		(memory->entry < 0 && monotonic_ms() - memory->full_ms >= FULL_RETRY_MS))
	{
		/*
		 * A file that an abort would remove gets no entry: mirror_inherit()
		 * would move the counters of the committed file to it.
		 */
		look_up(memory, &key, wanted ? MIRROR_WANTED : ours ? MIRROR_EMPTY : MIRROR_STATISTICS);
		if (memory->entry >= 0 && wanted)
			mirror_wake(memory->entry);
	}
	return memory;
}

MirrorRef
client_mirror(Relation index, const MetaPage *meta, FallbackReason *why)
{
	MirrorRef	ref = {-1, 0, 0};
	bool		allowed = gpuann_option_mirror(index);
	bool		ours = made_here(index);
	bool		wanted = gpuann_server && allowed && !ours;
	Remembered *memory;

	*why = FALLBACK_OFF;
	if (RelationUsesLocalBuffers(index))
		return ref;
	if (gpuann_area == NULL && gpuann_server && allowed)
		*why = gpuann_control == NULL ? FALLBACK_NOT_PRELOADED : FALLBACK_NO_SERVER;
	if (gpuann_area == NULL || meta->nonce == 0)
		return ref;

	memory = remember_entry(index, meta, ours, wanted);
	if (memory->entry < 0)
	{
		if (gpuann_server && allowed)
			*why = ours ? FALLBACK_NOT_LOADED : FALLBACK_REFUSED;
		return ref;
	}

	/*
	 * Read the generation before checking the identity. mirror_forget()
	 * advances them in the opposite order, so a generation of another index's
	 * mirror is never taken for ours.
	 */
	ref.entry = memory->entry;
	ref.generation = atomic_load(&mirror_area(ref.entry)->generation);
	ref.identity = memory->identity;
	if (atomic_load(&mirror_track(ref.entry)->identity) != ref.identity)
	{
		ref.entry = -1;
		*why = FALLBACK_NOT_LOADED;
		return ref;
	}
	if (!allowed)
		mirror_unwant(memory);
	if (!gpuann_server || !allowed)
		return ref;
	note_use(ref.entry);
	*why = reason_of_state(ref.entry);
	if (*why != FALLBACK_NONE && wanted)
	{
		atomic_fetch_add(&mirror_area(ref.entry)->wanted, 1);
		if (atomic_load(&mirror_area(ref.entry)->state) == MIRROR_STATISTICS)
			mirror_want(memory);
	}
	return ref;
}

MirrorRef
client_want(Relation index, const MetaPage *meta)
{
	MirrorRef	ref = {-1, 0, 0};
	Remembered *memory = recall_index(index);
	MirrorKey	key;
	uint32		state;

	if (made_here(index))
		return ref;
	mirror_key(index, meta->nonce, &key);
	look_up(memory, &key, MIRROR_WANTED);
	if (memory->entry < 0)
		return ref;
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	ref.entry = memory->entry;
	ref.identity = memory->identity;
	state = atomic_load(&mirror_area(ref.entry)->state);
	if (mirror_is_still(ref.entry, ref.identity))
	{
		mirror_track(ref.entry)->crashes = 0;
		mirror_track(ref.entry)->failures = 0;
		atomic_store(&mirror_area(ref.entry)->last_used_ms, monotonic_ms());
		if (state != MIRROR_READY && state != MIRROR_LOADING)
			(void) mirror_invalidate(ref.entry, MIRROR_WANTED);
		mirror_wake(ref.entry);
	}
	ref.generation = atomic_load(&mirror_area(ref.entry)->generation);
	LWLockRelease(gpuann_mirror_lock());
	return ref;
}

/*
 * Find the entry of an index without knowing its nonce, and optionally the
 * entry's identity; -1: none.
 */
static int
known_entry(Relation index, uint32 *identity)
{
	Remembered *memory;
	MirrorKey	key;

	if (gpuann_area == NULL || RelationUsesLocalBuffers(index))
		return -1;
	mirror_key(index, 0, &key);
	memory = recall_index(index);
	if (!still_true(memory, &key))
		look_up(memory, &key, MIRROR_EMPTY);
	if (identity != NULL)
		*identity = memory->identity;
	return memory->entry;
}

void
client_note_change(Relation index)
{
	int			entry = known_entry(index, NULL);
	AreaMirror *mirror;
	uint32		state;

	if (entry < 0)
		return;
	mirror = mirror_area(entry);
	state = atomic_load(&mirror->state);
	/* Without a GPU indexes have no mirrors, but workers link them. */
	if (state != MIRROR_READY && state != MIRROR_LOADING &&
		!(shmem_no_gpu() && (state == MIRROR_WANTED || state == MIRROR_REFUSED)))
		return;
	/*
	 * Only the process that sets `changed` wakes the worker, which clears it
	 * before reading pages. The load before the exchange keeps the cache line
	 * shared under many inserts.
	 */
	if (atomic_load(&mirror->changed) == 0 && atomic_exchange(&mirror->changed, 1) == 0)
		mirror_wake(entry);
}

bool
client_would_answer(Relation index)
{
	int			entry;

	if (!gpuann_server || !gpuann_option_mirror(index))
		return false;
	entry = known_entry(index, NULL);
	return entry >= 0 && reason_of_state(entry) == FALLBACK_NONE;
}

bool
client_engine_is_cuda(void)
{
	char		name[sizeof(gpuann_area->engine)];

	if (gpuann_area == NULL)
		return false;
	shmem_copy_text(name, sizeof(name), gpuann_area->engine, sizeof(gpuann_area->engine));
	return strcmp(name, "cuda") == 0;
}

/* Whether a worker serves an entry's mirror; the entry may be -1. */
static bool
worker_serves(int entry)
{
	uint32		epoch;

	if (entry < 0 || !shmem_server_ready(&epoch))
		return false;
	return atomic_load(&mirror_area(entry)->state) == MIRROR_READY &&
		atomic_load(&mirror_area(entry)->epoch) == epoch &&
		mirror_track(entry)->worker >= 0;
}

bool
client_worker_serves(Relation index)
{
	return worker_serves(known_entry(index, NULL));
}

bool
client_worker_links(Relation index)
{
	int			entry = known_entry(index, NULL);

	return worker_serves(entry) &&
		   monotonic_ms() >= atomic_load(&mirror_track(entry)->link_again_ms);
}

bool
client_ask_to_link(Relation index, uint64 position)
{
	uint32		identity;
	int			entry = known_entry(index, &identity);
	int64		until_ms = monotonic_ms() + ASK_TO_LINK_MS;
	_Atomic uint64_t *wanted;
	uint64		before = 0;
	bool		ours;

	if (!gpuann_server || !client_worker_links(index))
		return false;
	wanted = &mirror_track(entry)->link_wanted;
	/*
	 * Check the identity under the lock: a position of another index's list
	 * might never be reached.
	 */
	LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
	ours = mirror_is_still(entry, identity);
	while (ours && before < position && !atomic_compare_exchange_weak(wanted, &before, position))
		;
	LWLockRelease(gpuann_mirror_lock());
	if (!ours)
		return false;
	client_note_change(index);
	while (atomic_load(wanted) != 0)
	{
		if (monotonic_ms() >= until_ms || !client_worker_links(index))
		{
			atomic_store(wanted, 0);
			return false;
		}
		shmem_sleep(ASK_POLL_MS, SHMEM_WAIT_MIRROR);
	}
	return true;
}

bool
client_evict(Relation index)
{
	uint32		identity;
	int			entry = known_entry(index, &identity);
	bool		evicted = false;
	uint32		state;

	if (entry < 0)
		return false;
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	state = atomic_load(&mirror_area(entry)->state);
	if (mirror_is_still(entry, identity) && (state == MIRROR_READY || state == MIRROR_LOADING ||
											 (state == MIRROR_WANTED && !shmem_no_gpu())))
	{
		mirror_evict(entry);
		evicted = true;
	}
	LWLockRelease(gpuann_mirror_lock());
	return evicted;
}
