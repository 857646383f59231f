/*
 * list_counts.c
 *		Probe counts of lists, in the shared area.
 *
 * The server adds to them (src/server/list_counts.c). The process that creates
 * a mirror first claims a range of counts for its index. The index keeps the
 * range when the mirror is dropped, so counts survive mirrors, servers and, by
 * the launcher's file (src/launcher/state_file.c), restarts. A new relation
 * file has another entry, with new counts.
 *
 * If there are more lists than counts, a claim takes the ranges of other
 * indexes, provided that this yields a large enough range: first of those
 * without a mirror, least recently used first, then of those of other databases
 * that have one. A database loses counts only to one that holds fewer.
 */
#include "base/base.h"

#include <math.h>

#include "client/list_counts.h"
#include "client/shmem.h"

#include "storage/lwlock.h"
#include "utils/rel.h"

#define COUNT_MAX	1e15		/* never reached; ensures that sums of counts, times rows, are
								 * finite */

/* An index that holds counts. */
typedef struct Holder
{
	int			entry;
	uint32		holding;		/* index of its database's holding */
	bool		mirrored;
	bool		loses;			/* its counts may be taken */
	int64		used_ms;
} Holder;

/* Grains held by the indexes of a database, or after taking some. */
typedef struct Holding
{
	Oid			database;
	uint32		grains;
} Holding;

/* All holders, in the order in which they lose counts. */
typedef struct HolderTable
{
	uint32		nholders;
	uint32		nholdings;
	Holder		holders[AREA_MIRRORS];
	Holding		holdings[AREA_MIRRORS + 1]; /* the first is the claiming database's */
} HolderTable;

/* Number of usable grains. */
static uint32
most_grains(void)
{
#ifdef GPUANN_TEST_FAULTS
	return (uint32) faults_count_limit / COUNT_GRAIN;
#else
	return COUNT_GRAINS;
#endif
}

static bool
grain_used(const GrainMap *map, uint32 grain)
{
	return map->used[grain / 64] >> grain % 64 & 1;
}

/*
 * Find adjacent free grains in [from, end); returns end if there are none.
 */
static uint32
find_grains(const GrainMap *map, uint32 from, uint32 end, uint32 wanted)
{
	uint32		found = 0;

	for (uint32 grain = from; grain < end; grain++)
	{
		found = grain_used(map, grain) ? 0 : found + 1;
		if (found == wanted)
			return grain + 1 - wanted;
	}
	return end;
}

/* Allocate grains from `first` on. */
static ListCountsRange
take_grains(uint32 first, uint32 lists)
{
	ListCountsRange range = {first * COUNT_GRAIN, lists};

	gpuann_control->counts_next = first + grains_of(lists);
	grains_mark(&gpuann_control->counts_used, range, true);
	return range;
}

/*
 * Find free grains after those allocated last (next fit), so that a released
 * range is not reused at once: the server may be about to add to it, as it
 * checks the entry before adding, without a lock.
 */
static bool
find_free(uint32 wanted, uint32 *first)
{
	const GrainMap *map = &gpuann_control->counts_used;
	uint32		most = most_grains();

	*first = find_grains(map, Min(gpuann_control->counts_next, most), most, wanted);
	if (*first == most)
		*first = find_grains(map, 0, most, wanted);
	return *first < most;
}

/* Order: holders without a mirror first, then by last use. */
static int
compare_holders(const void *left, const void *right)
{
	const Holder *a = left;
	const Holder *b = right;

	if (a->mirrored != b->mirrored)
		return a->mirrored ? 1 : -1;
	return a->used_ms < b->used_ms ? -1 : a->used_ms > b->used_ms;
}

/* Find or create the holding of a database. */
static uint32
holding_of(HolderTable *table, Oid database)
{
	uint32		i = 0;

	while (i < table->nholdings && table->holdings[i].database != database)
		i++;
	if (i == table->nholdings)
		table->holdings[table->nholdings++] = (Holding) {database, 0};
	return i;
}

/*
 * Collect the indexes that hold counts. An index of `database` claims `wanted`
 * grains, which count as held already.
 */
static void
list_holders(HolderTable *table, Oid database, uint32 wanted)
{
	table->nholders = 0;
	table->nholdings = 1;
	table->holdings[0] = (Holding) {database, wanted};
	for (int i = 0; i < (int) gpuann_control->high_water; i++)
	{
		const MirrorTrack *track = mirror_track(i);
		uint32		state = atomic_load(&mirror_area(i)->state);
		Holder	   *holder = &table->holders[table->nholders];

		if (!track->in_use || track->counts.lists == 0)
			continue;
		*holder = (Holder) {
			.entry = i,
			.holding = holding_of(table, track->key.database),
			.mirrored = state == MIRROR_READY || state == MIRROR_LOADING || track->builder != 0,
			.used_ms = atomic_load(&mirror_area(i)->last_used_ms)
		};
		table->holdings[holder->holding].grains += grains_of(track->counts.lists);
		table->nholders++;
	}
	qsort(table->holders, table->nholders, sizeof(Holder), compare_holders);
}

/*
 * Whether an index may lose its counts. One of another database may, if that
 * holds more than the claiming one would; if the index has a mirror, only if
 * its database still holds as many afterwards. So databases do not take the
 * same counts from each other in turns.
 */
static bool
may_lose(const HolderTable *table, const Holder *holder, uint32 grains)
{
	uint32		own = table->holdings[0].grains;
	uint32		theirs = table->holdings[holder->holding].grains;

	if (holder->holding == 0)
		return !holder->mirrored;
	return holder->mirrored ? theirs - grains >= own : theirs > own;
}

/*
 * Free the ranges of holders, in their order, on a copy of the map, until
 * `wanted` adjacent grains are free. False: there is no such range even then.
 * The caller releases only holders that overlap the range found, so none is
 * deducted from what the claiming database holds.
 */
static bool
plan_room(HolderTable *table, uint32 wanted, uint32 *first)
{
	GrainMap	map = gpuann_control->counts_used;

	for (uint32 i = 0; i < table->nholders; i++)
	{
		Holder	   *holder = &table->holders[i];
		ListCountsRange range = mirror_track(holder->entry)->counts;
		uint32		from = range.first / COUNT_GRAIN;
		uint32		grains = grains_of(range.lists);
		uint32		end = Min(from + grains + wanted - 1, most_grains());

		holder->loses = may_lose(table, holder, grains);
		if (!holder->loses)
			continue;
		if (holder->holding != 0)
			table->holdings[holder->holding].grains -= grains;
		grains_mark(&map, range, false);
		*first = find_grains(&map, from - Min(from, wanted - 1), end, wanted);
		if (*first < end)
			return true;
	}
	return false;
}

/*
 * Make room by taking the counts of other holders that overlap the range found,
 * if there is one.
 */
static bool
counts_make_room(Oid database, uint32 wanted, uint32 *first)
{
	HolderTable *table = palloc_extended(sizeof(HolderTable), MCXT_ALLOC_NO_OOM);
	bool		planned;

	if (table == NULL)
		return false;
	list_holders(table, database, wanted);
	planned = plan_room(table, wanted, first);
	for (uint32 i = 0; planned && i < table->nholders; i++)
	{
		const Holder *holder = &table->holders[i];
		ListCountsRange range = mirror_track(holder->entry)->counts;
		uint32		from = range.first / COUNT_GRAIN;

		if (holder->loses && from < *first + wanted && *first < from + grains_of(range.lists))
			mirror_release_counts(holder->entry);
	}
	pfree(table);
	return planned;
}

bool
list_counts_claim(int entry, uint32 lists)
{
	MirrorTrack *track = mirror_track(entry);
	uint32		wanted = grains_of(lists);
	uint32		first;
	ListCountsRange range;

	if (track->counts.lists == lists)
		return true;
	mirror_release_counts(entry);
	if (lists == 0 || lists > ENGINE_MAX_LISTS ||
		(!find_free(wanted, &first) && !counts_make_room(track->key.database, wanted, &first)))
		return false;
	range = take_grains(first, lists);
	for (uint32 i = 0; i < lists; i++)
		atomic_store_explicit(shared_list_counts(range.first) + i, 0, memory_order_relaxed);
	track->counts = range;
	atomic_store(&mirror_area(entry)->lists_counted_at, realtime_us());
	atomic_store(&mirror_area(entry)->list_counts, list_counts_word(range));
	return true;
}

void
list_counts_set(int entry, const double *counts, int64 counted_at)
{
	ListCountsRange range = mirror_track(entry)->counts;

	for (uint32 i = 0; i < range.lists; i++)
		atomic_store_explicit(shared_list_counts(range.first) + i, counts[i],
							  memory_order_relaxed);
	atomic_store(&mirror_area(entry)->lists_counted_at, counted_at);
}

void
list_counts_copy(int entry, double *counts, int64 *counted_at)
{
	ListCountsRange range = mirror_track(entry)->counts;

	*counted_at = Min(atomic_load(&mirror_area(entry)->lists_counted_at), realtime_us());
	for (uint32 i = 0; i < range.lists; i++)
	{
		double		count =
			atomic_load_explicit(shared_list_counts(range.first) + i, memory_order_relaxed);

		counts[i] = count >= 0 && !isinf(count) ? Min(count, COUNT_MAX) : 0;
	}
}

/* Ask the server to update a mirror's counts. */
static void
counts_ask_server(int entry, uint32 generation)
{
	int			channel;

	shmem_leave_at_exit();
	channel = channel_claim_until(monotonic_ms() + gpuann_request_timeout);
	if (channel < 0)
		return;
	PG_TRY();
	{
		const char *text;

		(void) channel_prepare(channel, CHANNEL_COUNT_LISTS, (uint32) entry, generation);
		(void) channel_call(channel, monotonic_us() + (int64) gpuann_request_timeout * 1000, &text);
	}
	PG_FINALLY();
	{
		channel_release(channel);
	}
	PG_END_TRY();
}

bool
client_list_counts(Relation index, uint64 nonce, uint32 lists, double *counts)
{
	MirrorKey	key;
	int			entry;
	uint32		identity = 0;
	uint32		generation = 0;
	uint32		epoch;
	int64		counted_at = 0;
	double		aging;
	bool		ready = false;
	bool		found = false;

	if (gpuann_area == NULL || RelationUsesLocalBuffers(index))
		return false;
	mirror_key(index, nonce, &key);
	LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
	entry = mirror_find(&key);
	if (entry >= 0)
	{
		identity = atomic_load(&mirror_track(entry)->identity);
		generation = atomic_load(&mirror_area(entry)->generation);
		ready = atomic_load(&mirror_area(entry)->state) == MIRROR_READY;
	}
	LWLockRelease(gpuann_mirror_lock());
	if (entry < 0)
		return false;
	if (ready && shmem_server_ready(&epoch))
		counts_ask_server(entry, generation);

	LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
	if (mirror_is_still(entry, identity) && mirror_track(entry)->key.nonce == nonce &&
		mirror_track(entry)->counts.lists == lists)
	{
		list_counts_copy(entry, counts, &counted_at);
		found = true;
	}
	LWLockRelease(gpuann_mirror_lock());
	aging = found ? list_counts_aging(counted_at, realtime_us()) : 1;
	for (uint32 i = 0; found && i < lists; i++)
		counts[i] *= aging;
	return found;
}
