/*
 * mirror_progress.c
 *		Progress of mirrors: the private copy of the process that updates a
 *		mirror, and its publication.
 *
 * Any process may give up a mirror at any time, even in the middle of its
 * worker's slice. So the worker (or builder) works on a private copy, which
 * belongs to one generation of the mirror. At the end of each slice the copy is
 * published in the table, for the next worker to take over, if the mirror still
 * has this generation. In the same way the limits against which answers are
 * checked are raised only while the mirror has the slice's generation.
 *
 * The mirror lock is held shared here: that excludes processes that give up
 * mirrors or create entries, and only one process writes the data of a mirror.
 */
#include "base/base.h"

#include "mirror/worker.h"

#include "miscadmin.h"
#include "storage/lwlock.h"

typedef struct OwnProgress
{
	bool		known;
	uint32		generation;		/* of the mirror */
	MirrorProgress progress;
} OwnProgress;

/* Only the memory pages of entries that this process serves are ever used. */
static OwnProgress own[AREA_MIRRORS];

const MirrorProgress *
progress_known(int entry)
{
	if (!own[entry].known || !mirror_is_generation(entry, own[entry].generation))
		return NULL;
	return &own[entry].progress;
}

void
progress_adopt(int entry)
{
	uint32		generation = atomic_load(&mirror_area(entry)->generation);

	if (own[entry].known && own[entry].generation == generation)
		return;
	own[entry].known = true;
	own[entry].generation = generation;
	own[entry].progress = mirror_track(entry)->progress;
}

bool
progress_begin_slice(MirrorSlice *slice, int worker)
{
	MirrorTrack *track = mirror_track(slice->entry);
	bool		ours;

	LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
	ours = track->in_use && track->worker == worker && track->key.database == MyDatabaseId;
	if (ours)
	{
		progress_adopt(slice->entry);
		slice->generation = own[slice->entry].generation;
		slice->identity = atomic_load(&track->identity);
		slice->key = track->key;
		slice->track = track;
		slice->progress = &own[slice->entry].progress;
	}
	LWLockRelease(gpuann_mirror_lock());
	return ours;
}

void
progress_begin(MirrorSlice *slice)
{
	OwnProgress *mine = &own[slice->entry];

	memset(mine, 0, sizeof(*mine));
	mine->known = true;
	mine->generation = slice->generation;
	slice->progress = &mine->progress;
}

bool
progress_publish(int entry)
{
	bool		ours;

	LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
	ours = progress_known(entry) != NULL;
	if (ours)
		mirror_track(entry)->progress = own[entry].progress;
	LWLockRelease(gpuann_mirror_lock());
	return ours;
}

bool
slice_note_sent(const MirrorSlice *slice, uint32 rows, uint64 position)
{
	MirrorTrack *track = slice->track;
	bool		ours;

	LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
	ours = mirror_is_generation(slice->entry, slice->generation);
	if (ours)
	{
		atomic_store(&track->rows_sent, Max(atomic_load(&track->rows_sent), rows));
		atomic_store(&track->position_sent, Max(atomic_load(&track->position_sent), position));
	}
	LWLockRelease(gpuann_mirror_lock());
	return ours;
}

void
slice_note_changes(const MirrorSlice *slice, uint64 change_seq)
{
	LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
	if (mirror_is_generation(slice->entry, slice->generation))
		atomic_store(&slice->track->changes_sent, change_seq);
	LWLockRelease(gpuann_mirror_lock());
}
