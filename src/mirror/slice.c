/*
 * slice.c
 *		Functions shared by the parts of a mirror worker: channel calls, opening
 *		the index, reading pages.
 */
#include "base/base.h"

#include "mirror/worker.h"

#include "access/relation.h"
#include "postmaster/bgworker.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/guc.h"

#define CHANNEL_CALL_US	(5 * 1000000)	/* timeout of a call, after which the server is considered
										 * hung, so that the index does not stay locked */
#define CHANNEL_LOOK_US	1000000 /* interval of checking why the server has not answered */

/*
 * Connecting locks the database, which ALTER DATABASE may hold until it
 * commits. A process waits this long for the lock, because other databases may
 * need it.
 */
#define CONNECT_LOCK_MS	"5000"

void
worker_connect(Oid database)
{
	SetConfigOption("lock_timeout", CONNECT_LOCK_MS, PGC_SUSET, PGC_S_OVERRIDE);
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	SetConfigOption("statement_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	/*
	 * settings of the database, possibly by its owner, must not end the worker
	 */
	SetConfigOption("exit_on_error", "off", PGC_USERSET, PGC_S_OVERRIDE);
#if PG_VERSION_NUM >= 170000
	SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
#endif
	SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE);
}

SliceEnding
slice_open(MirrorSlice *slice)
{
	MirrorKey	key;
	Oid			oid = slice->key.index;

	if (!ConditionalLockRelationOid(oid, AccessShareLock))
		return SLICE_LATER;
	slice->index = try_relation_open(oid, NoLock);
	if (slice->index == NULL)
	{
		UnlockRelationOid(oid, AccessShareLock);
		return SLICE_GONE;
	}
	mirror_key(slice->index, 0, &key);
	if (!is_gpuann_index(slice->index) || key.database != slice->key.database)
	{
		relation_close(slice->index, AccessShareLock);
		return SLICE_GONE;
	}
	/*
	 * Same index with another file: the entry of that file inherits the
	 * counters.
	 */
	if (key.tablespace != slice->key.tablespace || key.relfile != slice->key.relfile)
	{
		relation_close(slice->index, AccessShareLock);
		return SLICE_UNWANTED;
	}
	slice->format = index_format(slice->index);
	slice->blocks = RelationGetNumberOfBlocks(slice->index);
	slice->least_bytes =
		mirror_least_bytes(slice->format, Max(slice->progress->load_slots, slice->progress->rows));
	slice->strategy = GetAccessStrategy(BAS_BULKREAD);
	return SLICE_IDLE;
}

bool
slice_was_cancelled(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED ||
		   error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED ||
		   error->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE;
}

SliceEnding
slice_failed(MirrorSlice *slice, EngineStatus status, const char *text)
{
	strlcpy(slice->reason, text, sizeof(slice->reason));
	switch (status)
	{
		case ENGINE_OK:
			return SLICE_IDLE;
		case ENGINE_FAILED:
		case ENGINE_NOT_FOUND:
		case ENGINE_CANCELLED:
			return SLICE_LOST;
		case ENGINE_NO_MEMORY:
			slice->no_memory = true;
			return SLICE_REFUSED;
		default:
			return SLICE_REFUSED;
	}
}

int64
slice_call_deadline(const MirrorSlice *slice)
{
	return monotonic_us() + (slice->call_us > 0 ? slice->call_us : CHANNEL_CALL_US);
}

/*
 * Whether the engine links or repairs the mirror for another process, which the
 * slice's call has to wait for.
 */
static bool
waits_for_linking(const MirrorSlice *slice)
{
	bool		linking = false;

	for (uint32 i = 0; i < gpuann_layout.channels && !linking; i++)
	{
		const AreaChannel *channel = shared_channel(i);
		RequestState state = request_state(atomic_load(&channel->state));

		linking = (state == REQUEST_POSTED || state == REQUEST_TAKEN) &&
				  (channel->request.op == CHANNEL_LINK || channel->request.op == CHANNEL_REPAIR) &&
				  channel->request.mirror == (uint32) slice->entry &&
				  channel->request.mirror_generation == slice->generation;
	}
	return linking;
}

/*
 * Wait for the answer to a posted operation.
 *
 * Jobs of a mirror run in order, and VACUUM's repair may take longer than the
 * usual limit. The process that requested the repair watches its progress, and
 * has the index locked anyway; so wait for the repair to end, and then for the
 * usual time.
 */
SliceEnding
slice_await(MirrorSlice *slice)
{
	int64		give_up_us = slice_call_deadline(slice);
	const char *text;
	EngineStatus status;

	for (;;)
	{
		status = channel_await(slice->channel, Min(give_up_us, monotonic_us() + CHANNEL_LOOK_US), 0,
							   NULL, &text);
		if (status != ENGINE_FAILED || channel_has_answer(slice->channel))
			break;
		if (waits_for_linking(slice))
			give_up_us = slice_call_deadline(slice);
		else if (monotonic_us() >= give_up_us)
			break;
	}
	return slice_failed(slice, status, text);
}

SliceEnding
slice_post(MirrorSlice *slice)
{
	return channel_post(slice->channel) ? SLICE_IDLE
										: slice_failed(slice, ENGINE_FAILED, "no server runs");
}

SliceEnding
slice_call(MirrorSlice *slice)
{
	SliceEnding ending = slice_post(slice);

	return ending == SLICE_IDLE ? slice_await(slice) : ending;
}

SliceEnding
slice_call_with_position(MirrorSlice *slice, ChannelRequest *request, uint64 position)
{
	SliceEnding ending;

	if (position != NO_POSITION)
	{
		request->has_position = 1;
		request->position = position;
		if (!slice_note_sent(slice, 0, position))
			return SLICE_LOST;
	}
	ending = slice_call(slice);
	if (ending == SLICE_IDLE && position != NO_POSITION)
		slice->progress->position = position;
	return ending;
}

Buffer
slice_read_page(const MirrorSlice *slice, BlockNumber block, PageKind kind)
{
	Buffer		buffer;

	if (block >= slice->blocks)
		return InvalidBuffer;
	if (slice->ahead != NULL)
		buffer = read_ahead_page(slice->ahead, block, kind, true);
	else
		buffer =
			read_page_in_bulk(slice->index, block, kind, BUFFER_LOCK_SHARE, true, slice->strategy);
	if (!PageIsNew(BufferGetPage(buffer)))
		return buffer;
	UnlockReleaseBuffer(buffer);
	return InvalidBuffer;
}
