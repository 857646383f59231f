/*
 * row_set.c
 *		Sets of rows that the server keeps for this session: sent by a bulk
 *		channel, released by a word of the session's payload (protocol.h, "sets
 *		of rows").
 */
#include "base/base.h"

#include "client/client.h"
#include "client/shmem.h"
#include "engine/bits.h"

#include "miscadmin.h"

#define SOURCE_ROOM		1024	/* slots asked for at a time */

/* The places that hold a set. */
static bool place_used[REQUEST_SETS];

/* The slots of a set on their way, ascending. */
typedef struct SetSource
{
	NextSlots	next;
	void	   *state;
	uint32		count;
	uint32		at;
	bool		ended;
	uint32		slots[SOURCE_ROOM];
} SetSource;

/*
 * Choose a place and an id for a set, and say in the shared area that it is
 * needed. False: there is no place.
 */
static bool
set_begin(SetName *set)
{
	static uint64 last_id = 0;
	int			slot = shmem_my_slot();
	RequestPayload *payload;

	if (slot < 0)
		return false;
	payload = shared_payload((uint32) slot);
	for (uint32 i = 0; i < REQUEST_SETS; i++)
	{
		if (place_used[i])
			continue;
		last_id = Max(last_id + 1, (uint64) monotonic_us());
		place_used[i] = true;
		*set = (SetName) {last_id, (uint32) slot * REQUEST_SETS + i, 0};
		atomic_store(&payload->sets[i], last_id);
		return true;
	}
	return false;
}

void
client_set_release(SetName *set)
{
	int			slot = shmem_my_slot();
	uint32		i = set->place % REQUEST_SETS;

	if (set->id == 0)
		return;
	/* At exit the slot may be gone: shmem_leave() has cleared its words. */
	if (slot >= 0)
		atomic_store(&shared_payload((uint32) slot)->sets[i], 0);
	place_used[i] = false;
	*set = (SetName) {0};
}

/* Whether a slot is left, which *slot is set to. */
static bool
source_peek(SetSource *source, uint32 *slot)
{
	if (source->at == source->count && !source->ended)
	{
		CHECK_FOR_INTERRUPTS();
		source->count = source->next(source->state, source->slots, SOURCE_ROOM);
		source->at = 0;
		source->ended = source->count == 0;
	}
	if (source->ended)
		return false;
	*slot = source->slots[source->at];
	return true;
}

/* Write a part that is a list into a channel; false: there is no room. */
static bool
fill_slots(int channel, ChannelRequest *request, SetSource *source)
{
	uint32	   *slots =
		channel_array(channel, SET_PART_SLOTS * sizeof(uint32), &request->slots_offset);
	uint32		slot;

	if (slots == NULL)
		return false;
	request->arrays = SET_SLOTS;
	while (request->count < SET_PART_SLOTS && source_peek(source, &slot))
	{
		slots[request->count++] = slot;
		source->at++;
	}
	return true;
}

/* The same, of a bitmap; request->first_slot is set. */
static bool
fill_bitmap(int channel, ChannelRequest *request, SetSource *source)
{
	uint32		count =
		Min(request->set_slots - request->first_slot, (uint32) CHANNEL_DATA_BYTES * 8);
	unsigned char *bits = channel_array(channel, bits64_bytes(count), &request->body_offset);
	uint32		slot;

	if (bits == NULL)
		return false;
	memset(bits, 0, bits64_bytes(count));
	request->arrays = SET_BITMAP;
	request->count = count;
	while (source_peek(source, &slot) && slot - request->first_slot < count)
	{
		bit_set(bits, slot - request->first_slot);
		source->at++;
	}
	return true;
}

/* Send the parts of a set. */
static FallbackReason
send_parts(int channel, MirrorRef mirror, uint32 slots, bool as_list, SetSource *source,
		   const SetName *set, uint32 epoch)
{
	uint32		first = 0;
	uint32		slot;

	do
	{
		ChannelRequest *request =
			channel_prepare(channel, CHANNEL_SET, (uint32) mirror.entry, mirror.generation);
		int64		patience = (int64) gpuann_request_timeout * 1000;
		const char *text;
		EngineStatus status;
		FallbackReason why;

		request->query.set = *set;
		request->set_slots = slots;
		request->first_slot = first;
		if (!(as_list ? fill_slots : fill_bitmap) (channel, request, source))
			return FALLBACK_TOO_LARGE;
		first += request->count;
		status = channel_call_patiently(channel, monotonic_us() + patience, patience, &text);
		if (status == ENGINE_OK)
			continue;
		why = client_channel_failure(channel, epoch);
		if (why != FALLBACK_NONE)
			return why;
		fallback_detail(text);
		return status == ENGINE_NO_MEMORY ? FALLBACK_TOO_LARGE
			: status == ENGINE_NOT_FOUND ? FALLBACK_NOT_LOADED : FALLBACK_ENGINE_ERROR;
	} while (source_peek(source, &slot));
	return FALLBACK_NONE;
}

FallbackReason
client_set_send(MirrorRef mirror, uint32 slots, uint64 count, NextSlots next, void *state,
				SetName *set)
{
	SetSource  *source;
	uint32		epoch;
	int			channel;
	volatile FallbackReason why = client_may_ask(mirror, &epoch);

	if (why != FALLBACK_NONE)
		return why;
	source = palloc0(sizeof(SetSource));
	source->next = next;
	source->state = state;
	channel = channel_claim();
	if (channel < 0 || !set_begin(set))
		why = FALLBACK_SLOT_BUSY;
	PG_TRY();
	{
		if (why == FALLBACK_NONE)
			why = send_parts(channel, mirror, slots, count * 32 < slots, source, set, epoch);
	}
	PG_FINALLY();
	{
		if (channel >= 0)
			channel_release(channel);
		if (why != FALLBACK_NONE)
			client_set_release(set);
	}
	PG_END_TRY();
	pfree(source);
	return why;
}
