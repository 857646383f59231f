/*
 * state_file.c
 *		State kept across restarts of the postmaster: the counters of
 *		pg_stat_gpuann, which mirrors were loaded, and probe counts of lists.
 *
 * One file, written by the launcher at intervals, if anything in it has
 * changed, and at exit, and read by the first launcher of a postmaster. It is
 * only a hint: keys contain relation file and nonce, so a stale file (of a base
 * backup, or after pg_rewind) requests mirrors of indexes that still match, and
 * the worker that finds a mismatch removes the entry. A damaged or missing file
 * requests none. Without probe counts it is small; with them it is at most as
 * large as the area's.
 */
#include "base/base.h"

#include <math.h>
#include <unistd.h>

#include "client/list_counts.h"
#include "client/shmem.h"
#include "launcher/launcher.h"
#include "client/mirror_table.h"

#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"

#define STATE_FILE		"pg_stat/gpuann.stat"
#define STATE_TEMPORARY	"pg_stat/gpuann.tmp"
#define STATE_MAGIC		0x53414E47	/* "GNAS" */
#define STATE_VERSION	2
#define COUNTS_FILE_0_2	"pg_stat/gpuann_lists.stat" /* probe counts of version 0.2 */

typedef struct StateHeader
{
	uint32		magic;
	uint32		version;
	uint32		entry_bytes;
	uint32		count;
	pg_crc32c	crc;			/* of entries and numbers */
	uint32		numbers;		/* behind the entries; 0 in files of version 0.2 */
} StateHeader;

/* One index. */
typedef struct StateEntry
{
	MirrorKey	key;
	uint32		resident;
	uint32		lists;			/* lists with probe counts, see state_numbers() */
	int64		idle_ms;		/* time since last use */
	MirrorCounters counters;
} StateEntry;

/* The file's contents, with room for the largest. */
typedef struct State
{
	StateHeader header;
	StateEntry	entries[AREA_MIRRORS];
	double		numbers[AREA_MIRRORS + AREA_LIST_COUNTS];
} State;

/*
 * Returns NULL if out of memory, which must not keep the launcher from exiting.
 */
static State *
state_allocate(void)
{
	return MemoryContextAllocExtended(TopMemoryContext, sizeof(State),
									  MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
}

/*
 * How many numbers an entry has: if it has lists, the time as of which their
 * probe counts are aged, and these.
 */
static uint32
state_numbers(const StateEntry *entry)
{
	return entry->lists > 0 ? 1 + entry->lists : 0;
}

static pg_crc32c
state_crc(const State *state)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, state->entries, state->header.count * sizeof(StateEntry));
	COMP_CRC32C(crc, state->numbers, state->header.numbers * sizeof(double));
	FIN_CRC32C(crc);
	return crc;
}

/*
 * Copy what is to be saved, but the time of the last use in place of that since
 * then, and compute the checksum of this.
 */
static void
state_gather(State *state)
{
	StateHeader *header = &state->header;

	*header = (StateHeader) {
		.magic = STATE_MAGIC, .version = STATE_VERSION, .entry_bytes = sizeof(StateEntry)};
	LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
	for (int i = 0; i < (int) gpuann_control->high_water; i++)
	{
		AreaMirror *mirror = mirror_area(i);
		uint32		state_now = atomic_load(&mirror->state);
		StateEntry *entry = &state->entries[header->count];
		double	   *numbers = &state->numbers[header->numbers];
		int64		counted_at;

		if (!mirror_track(i)->in_use)
			continue;
		memset(entry, 0, sizeof(StateEntry));
		entry->key = mirror_track(i)->key;
		entry->resident = state_now == MIRROR_READY || state_now == MIRROR_LOADING ||
			state_now == MIRROR_WANTED;
		entry->idle_ms = atomic_load(&mirror->last_used_ms);
		memcpy(&entry->counters, &mirror->counters, sizeof(MirrorCounters));
		entry->lists = mirror_track(i)->counts.lists;
		if (entry->lists > 0)
		{
			list_counts_copy(i, numbers + 1, &counted_at);
			numbers[0] = (double) counted_at;
		}
		header->count++;
		header->numbers += state_numbers(entry);
	}
	LWLockRelease(gpuann_mirror_lock());
	header->crc = state_crc(state);
}

/* Write the temporary file. */
static bool
state_write_file(const State *state)
{
	const StateHeader *header = &state->header;
	FILE	   *file = AllocateFile(STATE_TEMPORARY, PG_BINARY_W);
	bool		written;

	if (file == NULL)
		return false;
	written = fwrite(header, sizeof(*header), 1, file) == 1 &&
		fwrite(state->entries, sizeof(StateEntry), header->count, file) == header->count &&
		fwrite(state->numbers, sizeof(double), header->numbers, file) == header->numbers;
	return FreeFile(file) == 0 && written;
}

void
state_save(bool if_changed)
{
	static pg_crc32c saved = 0; /* checksum of what was saved last, 0: nothing */
	State	   *state = state_allocate();
	pg_crc32c	gathered;

	if (state == NULL)
		return;
	state_gather(state);
	gathered = state->header.crc;
	if (if_changed && gathered == saved)
	{
		pfree(state);
		return;
	}
	for (uint32 i = 0; i < state->header.count; i++)
		state->entries[i].idle_ms = monotonic_ms() - state->entries[i].idle_ms;
	state->header.crc = state_crc(state);
	if (!state_write_file(state))
		ereport(LOG,
				(errcode_for_file_access(), errmsg("could not write \"%s\": %m", STATE_TEMPORARY)));
	else if (durable_rename(STATE_TEMPORARY, STATE_FILE, LOG) == 0)
		saved = gathered;
	pfree(state);
}

/* Whether the entries' numbers are as many as there are, and counts. */
static bool
state_adds_up(const State *state)
{
	uint64		numbers = 0;
	bool		sound = true;

	for (uint32 i = 0; i < state->header.count; i++)
		numbers += state_numbers(&state->entries[i]);
	for (uint32 i = 0; i < state->header.numbers; i++)
		sound &= state->numbers[i] >= 0 && !isinf(state->numbers[i]);
	return sound && numbers == state->header.numbers;
}

/* Read the file; false if it is missing or invalid. */
static bool
state_read_file(State *state)
{
	StateHeader *header = &state->header;
	FILE	   *file = AllocateFile(STATE_FILE, PG_BINARY_R);
	bool		good;

	if (file == NULL)
		return false;
	good = fread(header, sizeof(*header), 1, file) == 1 && header->magic == STATE_MAGIC &&
		header->version == STATE_VERSION && header->entry_bytes == sizeof(StateEntry) &&
		header->count <= lengthof(state->entries) && header->numbers <= lengthof(state->numbers) &&
		fread(state->entries, sizeof(StateEntry), header->count, file) == header->count &&
		fread(state->numbers, sizeof(double), header->numbers, file) == header->numbers &&
		getc(file) == EOF && header->crc == state_crc(state) && state_adds_up(state);
	FreeFile(file);
	if (!good)
		ereport(LOG, (errmsg("ignoring \"%s\": it is damaged, or of another version of gpuann",
							 STATE_FILE)));
	return good;
}

/*
 * Restore an index. A backend may have created its entry before us: then only
 * its probe counts are restored, if it has none. False: the table is full.
 */
static bool
restore_entry(const StateEntry *saved, const double *numbers)
{
	int			entry = mirror_find(&saved->key);

	if (entry < 0)
	{
		entry = mirror_make(&saved->key, saved->resident ? MIRROR_WANTED : MIRROR_STATISTICS);
		if (entry < 0)
			return false;
		memcpy(&mirror_area(entry)->counters, &saved->counters, sizeof(MirrorCounters));
		atomic_store(&mirror_area(entry)->last_used_ms, monotonic_ms() - Max(saved->idle_ms, 0));
	}
	if (saved->lists > 0 && mirror_track(entry)->key.nonce == saved->key.nonce &&
		mirror_track(entry)->counts.lists == 0 && list_counts_claim(entry, saved->lists))
		list_counts_set(entry, numbers + 1, (int64) Min(numbers[0], (double) PG_INT64_MAX / 2));
	return true;
}

void
state_restore(void)
{
	State	   *state;
	uint32		number = 0;

	if (gpuann_control->restored)
		return;
	gpuann_control->restored = true;
	(void) unlink(COUNTS_FILE_0_2);
	state = state_allocate();
	if (state == NULL)
		return;
	if (state_read_file(state))
	{
		LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
		for (uint32 i = 0; i < state->header.count; i++)
		{
			if (!restore_entry(&state->entries[i], &state->numbers[number]))
				break;
			number += state_numbers(&state->entries[i]);
		}
		LWLockRelease(gpuann_mirror_lock());
	}
	pfree(state);
}
