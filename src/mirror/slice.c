/*
 * slice.c
 *		What every part of a mirror worker does in a slice: calls of its bulk
 *		channel, and pages of its index.
 */
#include "base/base.h"

#include "client/mirror_table.h"
#include "client/shmem.h"
#include "mirror/worker.h"

#include "storage/bufmgr.h"

#define CHANNEL_CALL_US	(5 * 1000000)	/* then a server is taken for hung: the index must not stay
										 * locked for it */
#define CHANNEL_LOOK_US	1000000 /* between looks at what it is waited for */

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
 * Whether somebody has the engine link or repair the mirror, after which the
 * slice's call comes.
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
 * Jobs of one mirror run in the order in which they came, and VACUUM's repair
 * may take longer than a call is waited for. Whoever asked for it looks whether
 * it gets on, and has the index locked meanwhile; so this waits as long as
 * that, and then as long as for any call.
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
