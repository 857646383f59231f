/*
 * bulk_channel.c
 *		Bulk channels, for what does not fit into a request's payload; and
 *		release of a process's request slot and channels.
 *
 * A channel is this process's while its owner word holds our pid and its state
 * is FREE; see protocol.h for the other states.
 */
#include "base/base.h"

#include "client/shmem.h"

#include "miscadmin.h"
#include "storage/ipc.h"

#define MAX_CHANNELS	256
#define CLAIM_POLL_MS	10		/* polling interval while all channels are in use */

/* State of the channels claimed by this process. */
static uint32 channel_epoch[MAX_CHANNELS];	/* epoch of the server to which the last request was
											 * posted */
static uint64 channel_used[MAX_CHANNELS];	/* bytes of data allocated since channel_prepare() */
static bool channel_held[MAX_CHANNELS];

int
channel_claim(void)
{
	if (gpuann_area == NULL)
		return -1;
	for (uint32 i = 0; i < gpuann_layout.channels && i < MAX_CHANNELS; i++)
	{
		if (!channel_take_ownership(shared_channel(i), MyProcPid))
			continue;
		channel_held[i] = true;
		return (int) i;
	}
	return -1;
}

int
channels_spare(void)
{
	int			spare = -AREA_SPARE_CHANNELS;

	for (uint32 i = 0; gpuann_area != NULL && i < gpuann_layout.channels; i++)
		spare += atomic_load(&shared_channel(i)->owner) == 0;
	return Max(spare, 0);
}

int
channel_claim_spare(void)
{
	return channels_spare() > 0 ? channel_claim() : -1;
}

int
channel_claim_until(int64 give_up_ms)
{
	int			number;

	while ((number = channel_claim()) < 0 && monotonic_ms() < give_up_ms)
		shmem_sleep(CLAIM_POLL_MS, SHMEM_WAIT_CHANNEL);
	return number;
}

void
channel_release(int number)
{
	/*
	 * after a FATAL error the exit callback has released all channels before
	 * memory contexts are deleted
	 */
	if (!channel_held[number])
		return;
	channel_held[number] = false;
	channel_leave(shared_channel((uint32) number));
}

ChannelRequest *
channel_prepare(int number, ChannelOp op, uint32 mirror, uint32 generation)
{
	AreaChannel *channel = shared_channel((uint32) number);

	Assert(channel_held[number]);
	Assert(request_state(atomic_load(&channel->state)) == REQUEST_FREE);

	memset((char *) channel + offsetof(AreaChannel, request), 0,
		   sizeof(AreaChannel) - offsetof(AreaChannel, request));
	atomic_store(&channel->cancel, 0);
	atomic_store(&channel->done, 0);
	channel->request.op = op;
	channel->request.mirror = mirror;
	channel->request.mirror_generation = generation;
	channel_used[number] = 0;
	return &channel->request;
}

void *
channel_array(int number, Size bytes, uint64_t *offset)
{
	if (bytes > CHANNEL_DATA_BYTES - channel_used[number])
		return NULL;
	*offset = channel_used[number];
	channel_used[number] = Min(area_align(channel_used[number] + bytes), CHANNEL_DATA_BYTES);
	return shared_channel_data((uint32) number) + *offset;
}

bool
channel_post(int number)
{
	if (!shmem_server_ready(&channel_epoch[number]))
		return false;
	channel_post_word(gpuann_area, shared_channel((uint32) number));
	return true;
}

bool
channel_has_answer(int number)
{
	RequestState state = request_state(atomic_load(&shared_channel((uint32) number)->state));
	uint32		epoch;

	if (state != REQUEST_POSTED && state != REQUEST_TAKEN)
		return true;
	return !shmem_server_ready(&epoch) || epoch != channel_epoch[number];
}

bool
channel_answered(int number, EngineStatus *status, const char **text)
{
	static char error[256];
	AreaChannel *channel = shared_channel((uint32) number);
	uint32		word = atomic_load(&channel->state);
	uint32		generation = request_generation(word);
	uint32		epoch;

	*status = ENGINE_FAILED;
	*text = "the server has stopped";
	switch (request_state(word))
	{
		case REQUEST_DONE:
			*status = (EngineStatus) *(volatile uint32_t *) &channel->status;
			shmem_copy_text(error, sizeof(error), channel->error, sizeof(channel->error));
			*text = error[0] ? error : "the engine gave no reason";
			atomic_store(&channel->state, request_word(generation, REQUEST_FREE));
			return true;
		case REQUEST_FAILED:
			atomic_store(&channel->state, request_word(generation, REQUEST_FREE));
			return true;
		case REQUEST_FREE:
			return true;
		default:
			if (shmem_server_ready(&epoch) && epoch == channel_epoch[number])
				return false;
			/*
			 * A request posted after the launcher's sweep is withdrawn; any
			 * other is moved to FAILED by the launcher.
			 */
			return request_withdraw(&channel->state, generation);
	}
}

EngineStatus
channel_call(int number, int64 deadline_us, const char **text)
{
	return channel_call_patiently(number, deadline_us, 0, text);
}

EngineStatus
channel_call_patiently(int number, int64 deadline_us, int64 patience_us, const char **text)
{
	*text = "no server runs";
	if (!channel_post(number))
		return ENGINE_FAILED;
	return channel_await(number, deadline_us, patience_us, NULL, text);
}

EngineStatus
channel_await(int number, int64 deadline_us, int64 patience_us, void (*tell)(int64 done),
			  const char **text)
{
	AreaChannel *channel = shared_channel((uint32) number);
	uint32		event = shmem_wait_event(SHMEM_WAIT_CHANNEL);
	uint32		done = 0;
	EngineStatus status;

	while (!channel_answered(number, &status, text))
	{
		int64		now = monotonic_us();
		uint32		progress = atomic_load(&channel->done);

		if (progress > done)
			deadline_us = Max(deadline_us, now + patience_us);
		done = Max(done, progress);
		if (tell != NULL)
			tell(done);
		if (now >= deadline_us)
		{
			*text = "the server does not answer";
			return ENGINE_FAILED;
		}
		/*
		 * Wait in short intervals: if the request was posted after the
		 * launcher's sweep of a dead server had passed this channel, no process
		 * wakes us.
		 */
		shmem_wait(&channel->state, atomic_load(&channel->state),
				   Min(deadline_us, now + AREA_WAIT_MS * 1000), event, NULL);
	}
	return status;
}

const void *
channel_answer_array(int number, uint64_t offset, uint64 count, Size width)
{
	if (offset % 8 != 0 || offset > CHANNEL_DATA_BYTES ||
		(width > 0 && count > (CHANNEL_DATA_BYTES - offset) / width))
		return NULL;
	return shared_channel_data((uint32) number) + offset;
}

EngineStatus
channel_fetch_linked(int number, const LinkWanted *wanted, int64 deadline_us, LinkPart *part,
					 const char **text)
{
	AreaChannel *channel = shared_channel((uint32) number);
	bool		rows = wanted->arrays == FETCH_ROWS || wanted->arrays == FETCH_CODES;
	bool		codes = wanted->arrays == FETCH_CODES;
	EngineStatus status;

	channel->request.first_slot = wanted->first;
	channel->request.count = wanted->most;
	channel->request.arrays = wanted->arrays;
	status = channel_call(number, deadline_us, text);
	if (status != ENGINE_OK)
		return status;
	part->count = *(const volatile uint32_t *) &channel->out_count;
	part->slots =
		channel_answer_array(number, *(const volatile uint64_t *) &channel->out_slots_offset,
							 part->count, sizeof(uint32));
	part->floats = (const float *) part->slots;
	part->rows = channel_answer_array(number, *(const volatile uint64_t *) &channel->out_offset,
									  rows ? part->count : 0, wanted->degree * sizeof(uint32));
	part->codes =
		channel_answer_array(number, *(const volatile uint64_t *) &channel->out_codes_offset,
							 codes ? part->count : 0, wanted->code_bytes);
	if (part->count <= wanted->most && part->slots != NULL && part->rows != NULL &&
		part->codes != NULL)
		return ENGINE_OK;
	*text = "the server's answer does not fit its bulk channel";
	return ENGINE_INVALID;
}

bool
channel_link_refused(int number, EngineStatus status)
{
	return (status == ENGINE_UNSUPPORTED || status == ENGINE_NO_MEMORY) &&
		   *(const volatile uint32_t *) &shared_channel((uint32) number)->out_count == 0;
}

void
shmem_leave_slot(void)
{
	int			slot = shmem_my_slot();

	if (slot >= 0)
		(void) request_leave(shared_word((uint32) slot));
}

void
shmem_leave(void)
{
	int			slot = shmem_my_slot();

	shmem_leave_slot();
	/* The server frees the sets of rows that no word of a payload names. */
	for (int i = 0; i < REQUEST_SETS && slot >= 0; i++)
		atomic_store(&shared_payload((uint32) slot)->sets[i], 0);
	for (int i = 0; i < MAX_CHANNELS; i++)
	{
		if (channel_held[i])
			channel_release(i);
	}
}

static void
leave_at_exit(int code, Datum arg)
{
	shmem_leave();
}

void
shmem_leave_at_exit(void)
{
	static bool registered = false;

	if (!registered)
		before_shmem_exit(leave_at_exit, (Datum) 0);
	registered = true;
}

void
shmem_sweep_requests(void)
{
	for (uint32 i = 0; i < gpuann_layout.slots; i++)
		(void) request_sweep(shared_word(i));
	for (uint32 i = 0; i < gpuann_layout.channels; i++)
		channel_sweep(shared_channel(i));
}
