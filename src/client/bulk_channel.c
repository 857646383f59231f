/*
 * bulk_channel.c
 *		Lanes: what is too large for a request's payload, and giving back what a process holds of the area.
 *
 * A lane is this process's while its owner word holds our pid and its state is FREE; see protocol.h for the other states.
 */
#include "base/base.h"

#include "client/shmem.h"

#include "miscadmin.h"
#include "storage/ipc.h"

#define MOST_LANES	256

/* Of the lanes this process has claimed. */
static uint32 lane_epoch[MOST_LANES];	/* of the server that the last request was posted to */
static uint64 lane_used[MOST_LANES];	/* bytes of data given out since lane_prepare */
static bool lane_held[MOST_LANES];

int
lane_claim(void)
{
	if (gpuann_area == NULL)
		return -1;
	for (uint32 i = 0; i < gpuann_layout.lanes && i < MOST_LANES; i++)
	{
		if (!lane_take_ownership(shared_lane(i), MyProcPid))
			continue;
		lane_held[i] = true;
		return (int) i;
	}
	return -1;
}

void
lane_release(int number)
{
	/* who ends with a FATAL error has left all lanes before its memory contexts go */
	if (!lane_held[number])
		return;
	lane_held[number] = false;
	lane_leave(shared_lane((uint32) number));
}

LaneRequest *
lane_prepare(int number, LaneOp op, uint32 mirror, uint32 generation)
{
	AreaLane   *lane = shared_lane((uint32) number);

	Assert(lane_held[number]);
	Assert(request_state(atomic_load(&lane->state)) == REQUEST_FREE);

	memset((char *) lane + offsetof(AreaLane, request), 0, sizeof(AreaLane) - offsetof(AreaLane, request));
	atomic_store(&lane->cancel, 0);
	atomic_store(&lane->done, 0);
	atomic_store(&lane->total, 0);
	lane->request.op = op;
	lane->request.mirror = mirror;
	lane->request.mirror_generation = generation;
	lane_used[number] = 0;
	return &lane->request;
}

void *
lane_array(int number, Size bytes, uint64_t *offset)
{
	if (bytes > LANE_DATA_BYTES - lane_used[number])
		return NULL;
	*offset = lane_used[number];
	lane_used[number] = Min(area_align(lane_used[number] + bytes), LANE_DATA_BYTES);
	return shared_lane_data((uint32) number) + *offset;
}

bool
lane_post(int number)
{
	if (!area_server_ready(&lane_epoch[number]))
		return false;
	lane_post_word(gpuann_area, shared_lane((uint32) number));
	return true;
}

bool
lane_has_answer(int number)
{
	RequestState state = request_state(atomic_load(&shared_lane((uint32) number)->state));
	uint32		epoch;

	if (state != REQUEST_POSTED && state != REQUEST_TAKEN)
		return true;
	return !area_server_ready(&epoch) || epoch != lane_epoch[number];
}

bool
lane_answered(int number, EngineStatus *status, const char **text)
{
	static char error[256];
	AreaLane   *lane = shared_lane((uint32) number);
	uint32		word = atomic_load(&lane->state);
	uint32		generation = request_generation(word);
	uint32		epoch;

	*status = ENGINE_FAILED;
	*text = "the server has stopped";
	switch (request_state(word))
	{
		case REQUEST_DONE:
			*status = (EngineStatus) *(volatile uint32_t *) &lane->status;
			area_copy_text(error, sizeof(error), lane->error, sizeof(lane->error));
			*text = error[0] ? error : "the engine gave no reason";
			atomic_store(&lane->state, request_word(generation, REQUEST_FREE));
			return true;
		case REQUEST_FAILED:
			atomic_store(&lane->state, request_word(generation, REQUEST_FREE));
			return true;
		case REQUEST_FREE:
			return true;
		default:
			if (area_server_ready(&epoch) && epoch == lane_epoch[number])
				return false;
			/* Posted after the launcher's sweep it goes back; anything else is the launcher's to turn into FAILED. */
			return request_withdraw(&lane->state, generation);
	}
}

EngineStatus
lane_call(int number, int64 deadline_us, const char **text)
{
	return lane_call_patiently(number, deadline_us, 0, text);
}

EngineStatus
lane_call_patiently(int number, int64 deadline_us, int64 patience_us, const char **text)
{
	*text = "no server runs";
	if (!lane_post(number))
		return ENGINE_FAILED;
	return lane_await(number, deadline_us, patience_us, NULL, text);
}

EngineStatus
lane_await(int number, int64 deadline_us, int64 patience_us, void (*tell) (int64 done), const char **text)
{
	AreaLane   *lane = shared_lane((uint32) number);
	uint32		event = area_wait_event(AREA_WAIT_LANE);
	uint32		done = 0;
	EngineStatus status;

	while (!lane_answered(number, &status, text))
	{
		int64		now = monotonic_us();
		uint32		progress = atomic_load(&lane->done);

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
		/* In short waits, because a server may die after the launcher's sweep has passed this lane. */
		area_wait(&lane->state, atomic_load(&lane->state), Min(deadline_us, now + AREA_WAIT_MS * 1000), event, NULL);
	}
	return status;
}

const void *
lane_answer_array(int number, uint64_t offset, uint64 count, Size width)
{
	if (offset % 8 != 0 || offset > LANE_DATA_BYTES || count > (LANE_DATA_BYTES - offset) / width)
		return NULL;
	return shared_lane_data((uint32) number) + offset;
}

EngineStatus
lane_fetch_linked(int number, uint32 most, bool seeds, uint32 degree, int64 deadline_us, LinkPart *part, const char **text)
{
	const AreaLane *lane = shared_lane((uint32) number);
	EngineStatus status = lane_call(number, deadline_us, text);

	if (status != ENGINE_OK)
		return status;
	part->count = *(const volatile uint32_t *) &lane->out_count;
	part->slots = lane_answer_array(number, *(const volatile uint64_t *) &lane->out_slots_offset, part->count, sizeof(uint32));
	part->rows = lane_answer_array(number, *(const volatile uint64_t *) &lane->out_offset, seeds ? 0 : part->count, degree * sizeof(uint32));
	if (part->count <= most && part->slots != NULL && part->rows != NULL)
		return ENGINE_OK;
	*text = "the server's answer does not fit its lane";
	return ENGINE_INVALID;
}

void
area_leave_slot(void)
{
	int			slot = area_my_slot();

	if (slot >= 0)
		(void) request_leave(shared_word((uint32) slot));
}

void
area_leave(void)
{
	area_leave_slot();
	for (int i = 0; i < MOST_LANES; i++)
	{
		if (lane_held[i])
			lane_release(i);
	}
}

static void
leave_at_exit(int code, Datum arg)
{
	area_leave();
}

void
area_leave_at_exit(void)
{
	static bool registered = false;

	if (!registered)
		before_shmem_exit(leave_at_exit, (Datum) 0);
	registered = true;
}

void
area_sweep_requests(void)
{
	for (uint32 i = 0; i < gpuann_layout.slots; i++)
		(void) request_sweep(shared_word(i));
	for (uint32 i = 0; i < gpuann_layout.lanes; i++)
		lane_sweep(shared_lane(i));
}
