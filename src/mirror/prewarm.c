/*
 * prewarm.c
 *		SQL functions gpuann_prewarm() and gpuann_evict(): load or drop a
 *		mirror.
 */
#include "base/base.h"

#include "client/shmem.h"
#include "client/client.h"
#include "client/mirror_table.h"
#include "base/signature.h"
#include "base/sql_index.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lwlock.h"

#define POLL_MS	20

PG_FUNCTION_INFO_V1(gpuann_prewarm);
PG_FUNCTION_INFO_V1(gpuann_evict);

/* Raise an error unless the index can have a mirror. */
static void
check_can_mirror(Relation index, const MetaPage *meta)
{
	const char *name = RelationGetRelationName(index);

	if (gpuann_area == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("gpuann runs without its server"),
						errhint("Add gpuann to shared_preload_libraries and restart PostgreSQL.")));
	if (RelationUsesLocalBuffers(index))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("temporary index \"%s\" cannot be mirrored", name)));
	if (!gpuann_option_mirror(index))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("index \"%s\" is not to be mirrored", name),
						errhint("Its option mirror is off.")));
	if (meta->nonce == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" has been empty since it was reset", name)));
}

/* Raise an error if there is no server to wait for. */
static void
require_server(Relation index)
{
	if (shmem_no_gpu())
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("index \"%s\" cannot be mirrored: %s", RelationGetRelationName(index),
					shmem_last_error()),
			 errhint("Its pages answer. gpuann.engine = 'cpu' asks for a server on CPU threads.")));
	if (atomic_load(&gpuann_area->server_state) == SERVER_FAILED)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s does not run: %s", SERVER_PROGRAM, shmem_last_error())));
}

/* The state of an entry, and the reason if it is refused. */
static uint32
state_and_reason(AreaMirror *mirror, char *reason, Size size)
{
	uint32		state;

	LWLockAcquire(gpuann_mirror_lock(), LW_SHARED);
	state = atomic_load(&mirror->state);
	shmem_copy_text(reason, size, mirror->reason, sizeof(mirror->reason));
	LWLockRelease(gpuann_mirror_lock());
	return state;
}

/*
 * Wait until the mirror is ready; raises an error if it is refused or given up.
 */
static void
await_ready(Relation index, MirrorRef ref)
{
	AreaMirror *mirror = mirror_area(ref.entry);
	char		reason[sizeof(mirror->reason)];

	for (;;)
	{
		uint32		state = state_and_reason(mirror, reason, sizeof(reason));
		bool		ours = atomic_load(&mirror_track(ref.entry)->identity) == ref.identity;

		if (ours && state == MIRROR_READY)
			return;
		/* if not ours: another file or index has the entry */
		if (!ours || state == MIRROR_STATISTICS || state == MIRROR_EMPTY)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
							errmsg("the mirror of index \"%s\" was given up meanwhile",
								   RelationGetRelationName(index))));
		if (state == MIRROR_REFUSED)
			ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_RESOURCES),
							errmsg("index \"%s\" was not mirrored: %s",
								   RelationGetRelationName(index), reason)));
		require_server(index);
		shmem_sleep(POLL_MS, SHMEM_WAIT_MIRROR);
	}
}

/*
 * Load an index's mirror and wait for it; returns its size in bytes. Clears an
 * earlier refusal or quarantine.
 */
Datum
gpuann_prewarm(PG_FUNCTION_ARGS)
{
	SqlIndex	opened;
	MetaPage	meta;
	MirrorRef	ref;
	int64		bytes;

	signature_check(fcinfo, "regclass", "int8");
	sql_index_open(PG_GETARG_OID(0), AccessShareLock, SQL_INDEX_MAINTAIN, &opened);
	read_meta(opened.index, &meta);
	check_can_mirror(opened.index, &meta);
	ref = client_want(opened.index, &meta);
	if (ref.entry < 0)
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("index \"%s\" cannot be mirrored now", RelationGetRelationName(opened.index)),
			 errdetail("It was made in this transaction, or too many indexes are in use.")));
	await_ready(opened.index, ref);
	bytes = (int64) atomic_load(&mirror_area(ref.entry)->bytes);
	sql_index_close(&opened);
	PG_RETURN_INT64(bytes);
}

/*
 * Drop an index's mirror; returns whether there was one, or one was being
 * loaded. The next scan requests it again.
 */
Datum
gpuann_evict(PG_FUNCTION_ARGS)
{
	SqlIndex	opened;
	bool		evicted;

	signature_check(fcinfo, "regclass", "bool");
	sql_index_open(PG_GETARG_OID(0), AccessShareLock, SQL_INDEX_MAINTAIN, &opened);
	evicted = gpuann_area != NULL && client_evict(opened.index);
	sql_index_close(&opened);
	PG_RETURN_BOOL(evicted);
}
