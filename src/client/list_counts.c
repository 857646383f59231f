/*
 * list_counts.c
 *		How often the lists of indexes are probed: the area's counts.
 *
 * The server adds to them (src/server/list_counts.c). Who makes a mirror
 * claims a range of counts for its index first; the range stays the index's
 * when the mirror goes, so that counts outlive mirrors and servers, and with
 * the launcher's file (src/launcher/counts_file.c) the cluster. A new relation
 * file is another entry and begins anew. If there are more lists than counts,
 * indexes that are not mirrored lose theirs, the least recently used first.
 */
#include "base/base.h"

#include <math.h>

#include "client/list_counts.h"
#include "client/shmem.h"

#include "storage/lwlock.h"
#include "utils/rel.h"

#define MOST_COUNT	1e15		/* none gets there; sums of these, times rows, are finite */

static uint32
grains_of(uint32 lists)
{
	return (lists + COUNT_GRAIN - 1) / COUNT_GRAIN;
}

/* Grains that may be used. */
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
grain_used(uint32 grain)
{
	return gpuann_control->counts_used[grain / 64] >> grain % 64 & 1;
}

/* Mark a range as used, or as free. */
static void
mark_grains(ListCountsRange range, bool used)
{
	uint32		first = range.first / COUNT_GRAIN;

	for (uint32 grain = first; grain < first + grains_of(range.lists); grain++)
	{
		uint64		bit = UINT64CONST(1) << grain % 64;

		if (used)
			gpuann_control->counts_used[grain / 64] |= bit;
		else
			gpuann_control->counts_used[grain / 64] &= ~bit;
	}
}

/*
 * Find free grains in [from, end) that follow each other; end: there are none.
 */
static uint32
find_grains(uint32 from, uint32 end, uint32 wanted)
{
	uint32		found = 0;

	for (uint32 grain = from; grain < end; grain++)
	{
		found = grain_used(grain) ? 0 : found + 1;
		if (found == wanted)
			return grain + 1 - wanted;
	}
	return end;
}

/*
 * Take counts behind those that were taken last, so that a range that was given
 * back is not another's at once: the server may be about to add to it.
 */
static bool
take_grains(uint32 lists, ListCountsRange *range)
{
	uint32		wanted = grains_of(lists);
	uint32		most = most_grains();
	uint32		first = find_grains(Min(gpuann_control->counts_next, most), most, wanted);

	if (first == most)
		first = find_grains(0, most, wanted);
	if (first == most)
		return false;
	gpuann_control->counts_next = first + wanted;
	*range = (ListCountsRange) {first * COUNT_GRAIN, lists};
	mark_grains(*range, true);
	return true;
}

/* Whether an entry has counts that it can do without: it has no mirror. */
static bool
can_spare(int entry)
{
	const MirrorTrack *track = mirror_track(entry);
	uint32		state = atomic_load(&mirror_area(entry)->state);

	return track->in_use && track->counts.lists > 0 && state != MIRROR_READY &&
		state != MIRROR_LOADING && track->builder == 0;
}

/*
 * Whether there is room if all counts are taken that can be spared; where not,
 * none is.
 */
static bool
could_have_room(uint32 wanted)
{
	uint32		room = 0;

	for (uint32 grain = 0; grain < most_grains(); grain++)
		room += !grain_used(grain);
	for (int i = 0; i < (int) gpuann_control->high_water; i++)
	{
		if (can_spare(i))
			room += grains_of(mirror_track(i)->counts.lists);
	}
	return room >= wanted;
}

/* Take the counts of the index that can best do without. False: of none. */
static bool
make_room(void)
{
	int			chosen = -1;

	for (int i = 0; i < (int) gpuann_control->high_water; i++)
	{
		if (!can_spare(i))
			continue;
		if (chosen < 0 || atomic_load(&mirror_area(i)->last_used_ms) <
			atomic_load(&mirror_area(chosen)->last_used_ms))
			chosen = i;
	}
	if (chosen >= 0)
		list_counts_release(chosen);
	return chosen >= 0;
}

bool
list_counts_claim(int entry, uint32 lists)
{
	MirrorTrack *track = mirror_track(entry);
	ListCountsRange range;

	if (track->counts.lists == lists)
		return true;
	list_counts_release(entry);
	if (lists == 0 || lists > ENGINE_MAX_LISTS || !could_have_room(grains_of(lists)))
		return false;
	while (!take_grains(lists, &range))
	{
		if (!make_room())
			return false;
	}
	for (uint32 i = 0; i < lists; i++)
		atomic_store_explicit(shared_list_counts(range.first) + i, 0, memory_order_relaxed);
	track->counts = range;
	atomic_store(&mirror_area(entry)->lists_counted_at, realtime_us());
	atomic_store(&mirror_area(entry)->list_counts, list_counts_word(range));
	return true;
}

void
list_counts_release(int entry)
{
	MirrorTrack *track = mirror_track(entry);

	atomic_store(&mirror_area(entry)->list_counts, 0);
	if (track->counts.lists > 0)
		mark_grains(track->counts, false);
	track->counts.lists = 0;
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

		counts[i] = count >= 0 && !isinf(count) ? Min(count, MOST_COUNT) : 0;
	}
}

/* Have the server bring a mirror's counts up to date. */
static void
ask_server(int entry, uint32 generation)
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
		ask_server(entry, generation);

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
