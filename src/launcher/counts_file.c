/*
 * counts_file.c
 *		Save and restore probe counts of lists across restarts of the
 *		postmaster.
 *
 * One file, written by the launcher at intervals if something was counted, and
 * at exit, and read by the first launcher of a postmaster, after state_file.c
 * has made the entries of the table. Counts of an index without an entry are
 * forgotten, and so are those of a number of lists that the index no longer
 * has. It is at most as large as the area's counts and some bytes for each
 * index. Losing it, or the last minute of it in a crash, costs statistics
 * only.
 */
#include "base/base.h"

#include <math.h>
#include <unistd.h>

#include "client/list_counts.h"
#include "launcher/launcher.h"

#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"

#define COUNTS_FILE			"pg_stat/gpuann_lists.stat"
#define COUNTS_TEMPORARY	"pg_stat/gpuann_lists.tmp"
#define COUNTS_MAGIC		0x434C4E47	/* "GNLC" */
#define COUNTS_VERSION		1

typedef struct CountsHeader
{
	uint32		magic;
	uint32		version;
	uint32		entries;
	uint32		counts;			/* of all entries */
	pg_crc32c	crc;			/* of entries and counts */
	uint32		pad;
} CountsHeader;

/* One index. Its counts follow those of the one before. */
typedef struct CountsEntry
{
	MirrorKey	key;
	uint32		lists;
	uint32		pad;
	int64		counted_at;
} CountsEntry;

/* The file's contents. */
typedef struct CountsState
{
	CountsHeader header;
	CountsEntry *entries;		/* room for AREA_MIRRORS */
	double	   *counts;			/* room for AREA_LIST_COUNTS */
} CountsState;

/* Checksum of the file as last written by this process; valid if `written`. */
static pg_crc32c written_crc;
static bool written;

/*
 * Allocate memory; without it the launcher must still be able to exit, so this
 * raises no error.
 */
static void *
counts_allocate(Size bytes)
{
	return MemoryContextAllocExtended(TopMemoryContext, bytes,
									  MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
}

static void
state_free(CountsState *state)
{
	if (state->entries != NULL)
		pfree(state->entries);
	if (state->counts != NULL)
		pfree(state->counts);
}

/* Allocate memory for the largest possible file; false: out of memory. */
static bool
state_allocate(CountsState *state)
{
	memset(state, 0, sizeof(*state));
	state->entries = counts_allocate(AREA_MIRRORS * sizeof(CountsEntry));
	state->counts = counts_allocate(AREA_LIST_COUNTS * sizeof(double));
	if (state->entries != NULL && state->counts != NULL)
		return true;
	state_free(state);
	return false;
}

static pg_crc32c
state_crc(const CountsState *state)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, state->entries, state->header.entries * sizeof(CountsEntry));
	COMP_CRC32C(crc, state->counts, state->header.counts * sizeof(double));
	FIN_CRC32C(crc);
	return crc;
}

/* Copy the counts of all indexes. */
static void
gather(CountsState *state)
{
	CountsHeader *header = &state->header;

	*header = (CountsHeader) {.magic = COUNTS_MAGIC, .version = COUNTS_VERSION};
	LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
	for (uint32 i = 0; i < gpuann_control->high_water; i++)
	{
		const MirrorTrack *track = mirror_track((int) i);
		CountsEntry *entry = &state->entries[header->entries];

		if (!track->in_use || track->counts.lists == 0)
			continue;
		memset(entry, 0, sizeof(*entry));
		entry->key = track->key;
		entry->lists = track->counts.lists;
		list_counts_copy((int) i, state->counts + header->counts, &entry->counted_at);
		header->entries++;
		header->counts += entry->lists;
	}
	LWLockRelease(gpuann_mirror_lock());
	header->crc = state_crc(state);
}

/* Write the temporary file. */
static bool
counts_write_file(const CountsState *state)
{
	const CountsHeader *header = &state->header;
	FILE	   *file = AllocateFile(COUNTS_TEMPORARY, PG_BINARY_W);
	bool		done;

	if (file == NULL)
		return false;
	done = fwrite(header, sizeof(*header), 1, file) == 1 &&
		fwrite(state->entries, sizeof(CountsEntry), header->entries, file) == header->entries &&
		fwrite(state->counts, sizeof(double), header->counts, file) == header->counts;
	return FreeFile(file) == 0 && done;
}

void
counts_save(void)
{
	CountsState state;

	if (!state_allocate(&state))
		return;
	gather(&state);
	/*
	 * Skip if nothing has changed. Without counts, an existing file is
	 * overwritten all the same, or its outdated counts would be restored.
	 */
	if (written ? state.header.crc != written_crc
		: state.header.entries > 0 || access(COUNTS_FILE, F_OK) == 0)
	{
		written_crc = state.header.crc;
		written = counts_write_file(&state);
		if (!written)
			ereport(LOG, (errcode_for_file_access(),
						  errmsg("could not write \"%s\": %m", COUNTS_TEMPORARY)));
		else
			written = durable_rename(COUNTS_TEMPORARY, COUNTS_FILE, LOG) == 0;
		if (!written)
			(void) unlink(COUNTS_TEMPORARY);
	}
	state_free(&state);
}

/* Whether the entries' numbers of counts add up to the header's. */
static bool
adds_up(const CountsState *state)
{
	uint64		counts = 0;
	bool		sound = true;

	for (uint32 i = 0; i < state->header.entries; i++)
		counts += state->entries[i].lists;
	for (uint32 i = 0; i < state->header.counts; i++)
		sound &= state->counts[i] >= 0 && !isinf(state->counts[i]);
	return sound && counts == state->header.counts;
}

/* Read the file; false if it is missing or invalid. */
static bool
counts_read_file(CountsState *state)
{
	CountsHeader *header = &state->header;
	FILE	   *file = AllocateFile(COUNTS_FILE, PG_BINARY_R);
	bool		good;

	if (file == NULL)
	{
		if (errno != ENOENT)
			ereport(LOG, (errcode_for_file_access(),
						  errmsg("could not open \"%s\": %m", COUNTS_FILE)));
		return false;
	}
	good = fread(header, sizeof(*header), 1, file) == 1 && header->magic == COUNTS_MAGIC &&
		header->version == COUNTS_VERSION && header->entries <= AREA_MIRRORS &&
		header->counts <= AREA_LIST_COUNTS &&
		fread(state->entries, sizeof(CountsEntry), header->entries, file) == header->entries &&
		fread(state->counts, sizeof(double), header->counts, file) == header->counts &&
		getc(file) == EOF && header->crc == state_crc(state) && adds_up(state);
	FreeFile(file);
	if (!good)
		ereport(LOG, (errmsg("ignoring \"%s\": it is damaged, or of another version of gpuann",
							 COUNTS_FILE)));
	return good;
}

void
counts_restore(void)
{
	CountsState state;
	uint32		first = 0;

	if (!state_allocate(&state))
		return;
	if (counts_read_file(&state))
	{
		LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
		for (uint32 i = 0; i < state.header.entries; first += state.entries[i++].lists)
		{
			const CountsEntry *saved = &state.entries[i];
			int			entry = mirror_find(&saved->key);

			if (entry >= 0 && mirror_track(entry)->key.nonce == saved->key.nonce &&
				mirror_track(entry)->counts.lists == 0 && list_counts_claim(entry, saved->lists))
				list_counts_set(entry, state.counts + first, saved->counted_at);
		}
		LWLockRelease(gpuann_mirror_lock());
	}
	state_free(&state);
}
