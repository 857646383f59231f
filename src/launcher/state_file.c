/*
 * state_file.c
 *		State kept across restarts of the postmaster: the counters of
 *		pg_stat_gpuann, and which mirrors were loaded.
 *
 * One small file, written by the launcher at intervals and at exit, and read by
 * the first launcher of a postmaster. It is only a hint: keys contain relation
 * file and nonce, so a stale file (of a base backup, or after pg_rewind)
 * requests mirrors of indexes that still match, and the worker that finds a
 * mismatch removes the entry. A damaged or missing file requests none.
 */
#include "base/base.h"

#include <unistd.h>

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

typedef struct StateHeader
{
	uint32		magic;
	uint32		version;
	uint32		entry_bytes;
	uint32		count;
	pg_crc32c	crc;			/* of the entries */
	uint32		pad;
} StateHeader;

/* One index. */
typedef struct StateEntry
{
	MirrorKey	key;
	uint32		resident;
	uint32		pad;
	int64		idle_ms;		/* time since last use */
	MirrorCounters counters;
} StateEntry;

/*
 * Allocate as many entries as the table has. Returns NULL if out of memory,
 * which must not keep the launcher from exiting.
 */
static StateEntry *
allocate_entries(void)
{
	return MemoryContextAllocExtended(TopMemoryContext, AREA_MIRRORS * sizeof(StateEntry),
									  MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
}

static pg_crc32c
entries_crc(const StateEntry *entries, uint32 count)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, entries, count * sizeof(StateEntry));
	FIN_CRC32C(crc);
	return crc;
}

/*
 * Copy the entries to save; there must be room for as many as the table has.
 * Returns how many.
 */
static uint32
state_gather(StateEntry *entries)
{
	int64		now = monotonic_ms();
	uint32		count = 0;

	LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
	for (uint32 i = 0; i < gpuann_control->high_water; i++)
	{
		AreaMirror *mirror = mirror_area((int) i);
		uint32		state = atomic_load(&mirror->state);

		if (!mirror_track((int) i)->in_use)
			continue;
		memset(&entries[count], 0, sizeof(StateEntry));
		entries[count].key = mirror_track((int) i)->key;
		entries[count].resident =
			state == MIRROR_READY || state == MIRROR_LOADING || state == MIRROR_WANTED;
		entries[count].idle_ms = now - atomic_load(&mirror->last_used_ms);
		memcpy(&entries[count++].counters, &mirror->counters, sizeof(MirrorCounters));
	}
	LWLockRelease(gpuann_mirror_lock());
	return count;
}

/* Write header and entries to the temporary file. */
static bool
state_write_file(const StateHeader *header, const StateEntry *entries)
{
	FILE	   *file = AllocateFile(STATE_TEMPORARY, PG_BINARY_W);
	bool		written;

	if (file == NULL)
		return false;
	written = fwrite(header, sizeof(*header), 1, file) == 1 &&
			  (header->count == 0 ||
			   fwrite(entries, sizeof(StateEntry), header->count, file) == header->count);
	return FreeFile(file) == 0 && written;
}

void
state_save(void)
{
	StateEntry *entries = allocate_entries();
	StateHeader header = {STATE_MAGIC, STATE_VERSION, sizeof(StateEntry), 0, 0, 0};

	if (entries == NULL)
		return;
	header.count = state_gather(entries);
	header.crc = entries_crc(entries, header.count);
	if (state_write_file(&header, entries))
		(void) durable_rename(STATE_TEMPORARY, STATE_FILE, LOG);
	else
		ereport(LOG,
				(errcode_for_file_access(), errmsg("could not write \"%s\": %m", STATE_TEMPORARY)));
	pfree(entries);
}

/*
 * Read the file. Returns the number of entries, 0 if the file is missing or
 * invalid.
 */
static uint32
state_read_file(StateEntry *entries)
{
	FILE	   *file = AllocateFile(STATE_FILE, PG_BINARY_R);
	StateHeader header;
	bool		good;

	if (file == NULL)
		return 0;
	good = fread(&header, sizeof(header), 1, file) == 1 && header.magic == STATE_MAGIC &&
		   header.version == STATE_VERSION && header.entry_bytes == sizeof(StateEntry) &&
		   header.count <= AREA_MIRRORS &&
		   fread(entries, sizeof(StateEntry), header.count, file) == header.count &&
		   header.crc == entries_crc(entries, header.count);
	FreeFile(file);
	if (!good)
		ereport(LOG, (errmsg("ignoring \"%s\": it is damaged, or of another version of gpuann",
							 STATE_FILE)));
	return good ? header.count : 0;
}

void
state_restore(void)
{
	StateEntry *entries;
	uint32		count;
	int64		now = monotonic_ms();

	if (gpuann_control->restored)
		return;
	gpuann_control->restored = true;
	entries = allocate_entries();
	if (entries == NULL)
		return;
	count = state_read_file(entries);
	LWLockAcquire(gpuann_mirror_lock(), LW_EXCLUSIVE);
	for (uint32 i = 0; i < count; i++)
	{
		int			entry;

		/* a backend may have created it before us */
		if (mirror_find(&entries[i].key) >= 0)
			continue;
		entry =
			mirror_make(&entries[i].key, entries[i].resident ? MIRROR_WANTED : MIRROR_STATISTICS);
		if (entry < 0)
			break;
		memcpy(&mirror_area(entry)->counters, &entries[i].counters, sizeof(MirrorCounters));
		atomic_store(&mirror_area(entry)->last_used_ms, now - Max(entries[i].idle_ms, 0));
	}
	LWLockRelease(gpuann_mirror_lock());
	pfree(entries);
	counts_restore();
}
