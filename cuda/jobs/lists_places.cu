/*
 * lists_places.cu
 *		Choose the places of a pass's rows, make their directory, and write
 *		codes to them.
 *
 * The new directory is written to the buffer that batches do not read. Then,
 * atomically between the batches in flight and those that start later, codes
 * are written to their places and slots leave the list of pending ones.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/jobs/lists_work.h"

/*
 * Leave rows of a load's pass where they are that are dead, in their list
 * already, or named again later.
 */
static void
leave_out(const CudaMirror *mirror, ListsWork *work)
{
	const uint32_t *slots = work->slots + work->first;
	uint32_t *numbers = work->numbers + work->first;

	for (uint32_t i = work->rows; i-- > 0;)
	{
		uint8_t *state = &mirror->states[slots[i]];

		if (numbers[i] != NO_SLOT && (*state & SLOT_MARKED))
			numbers[i] = NO_SLOT;
		if (numbers[i] != NO_SLOT)
			*state |= SLOT_MARKED;
	}
	for (uint32_t i = 0; i < work->rows; i++)
	{
		uint8_t *state = &mirror->states[slots[i]];

		*state &= (uint8_t) ~SLOT_MARKED;
		if (numbers[i] != NO_SLOT &&
			((*state & SLOT_DEAD) || lists_number(mirror, slots[i]) == numbers[i]))
			numbers[i] = NO_SLOT;
	}
}

/* Make the directory that the places chosen ask for. False: no memory. */
static bool
make_directory(CudaEngine *engine, CudaJob *job)
{
	const CudaLists *lists = job->mirror->lists;
	ListsWork *work = job->lists;
	uint32_t words = lists_directory_words(lists);

	if (words > work->words_room)
	{
		uint32_t *more = (uint32_t *) realloc(work->directory, (size_t) words * sizeof(uint32_t));

		if (more == NULL)
			return false;
		job_counts(engine, &job->work_bytes,
				   (uint64_t) (words - work->words_room) * sizeof(uint32_t));
		work->directory = more;
		work->words_room = words;
	}
	work->nwords = words;
	lists_make_directory(lists, work->directory);
	return true;
}

/*
 * Reserve blocks for the rows of a pass; a load's first pass reserves them for
 * all its rows, so later passes leave the directory unchanged.
 */
static bool
reserve_for_pass(CudaEngine *engine, CudaJob *job)
{
	CudaLists *lists = job->mirror->lists;
	ListsWork *work = job->lists;
	uint32_t count = work->links ? work->rows : work->count;

	if (!work->links && work->first > 0)
		return true;
	memset(work->more, 0, lists->count * sizeof(uint32_t));
	for (uint32_t i = 0; i < count; i++)
	{
		uint32_t number = work->numbers[work->first + i];

		if (number != NO_SLOT &&
			(work->links || lists_number(job->mirror, work->slots[i]) != number))
			work->more[number]++;
	}
	return lists_reserve(&engine->device, job->mirror, work->more, &job->error);
}

bool
lists_plan_pass(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	CudaLists *lists = mirror->lists;
	ListsWork *work = job->lists;
	const uint32_t *slots = work->slots + work->first;
	const uint32_t *numbers = work->numbers + work->first;

	if (!reserve_for_pass(engine, job))
		return false;
	if (!work->links)
	{
		work->rows = at_most(work->count - work->first, work->most);
		leave_out(mirror, work);
	}
	if (lists->moved && !make_directory(engine, job))
	{
		engine_error(&job->error, ENGINE_NO_MEMORY, "out of memory for a directory of lists");
		return false;
	}
	work->nleft = 0;
	for (uint32_t i = 0; i < work->rows && !work->links; i++)
		if (numbers[i] != NO_SLOT)
			work->nleft += lists_forget(mirror, &slots[i], 1, work->left + work->nleft);
	for (uint32_t i = 0; i < work->rows; i++)
		work->places[i] = numbers[i] == NO_SLOT ? NO_SLOT : lists_take_place(lists, numbers[i]);
	return true;
}

/* The slots of the pass are linked, on the host; returns how many moved. */
static uint32_t
publish_pass(CudaMirror *mirror, const ListsWork *work, uint32_t *moved, uint32_t *movers)
{
	const uint32_t *slots = work->slots + work->first;
	CudaLists *lists = mirror->lists;
	uint32_t nmoved = 0;

	for (uint32_t i = 0; i < work->rows; i++)
	{
		uint32_t slot = slots[i];

		if (work->places[i] == NO_SLOT)
			continue;
		if (mirror->states[slot] & SLOT_LISTED)
			lists_unlist(mirror, slot, moved, &nmoved);
		mirror->npending -= (mirror->states[slot] & SLOT_PENDING) != 0;
		mirror->linked++;
		mirror->states[slot] = (uint8_t) ((mirror->states[slot] | SLOT_LINKED) & ~SLOT_PENDING);
		lists->where[slot] = work->places[i];
	}
	nmoved = lists_moved(mirror, moved, nmoved, movers);
	if (!lists->moved)
		return nmoved;
	lists->moved = false;
	lists->side ^= 1;
	lists->longest = lists->all_blocks = 0;
	for (uint32_t i = 0; i < lists->count; i++)
	{
		lists->all_blocks += lists->lists[i].blocks;
		if (lists->lists[i].blocks > lists->longest)
			lists->longest = lists->lists[i].blocks;
	}
	return nmoved;
}

/* Mark all places of new blocks as free. */
static bool
clear_new_memory(CudaEngine *engine, CudaLists *lists)
{
	size_t from = lists->memory_cleared;

	lists->memory_cleared = lists->memory.mapped;
	return from == lists->memory.mapped ||
		   GPU(&engine->device.failure,
			   cudaMemsetAsync((unsigned char *) lists->memory.base + from, 0xFF,
							   lists->memory.mapped - from, engine->device.job_stream));
}

/* Widen and encode a load's pass, in a piece. */
static bool
encode_in_piece(CudaEngine *engine, const CudaJob *job, const uint32_t *slots,
				const uint32_t *numbers, float *rows, uint32_t *codes)
{
	MirrorView mirror = mirror_view(job->mirror);
	ListsView lists = lists_view(job->mirror);
	uint32_t count = job->lists->rows;

	return GPU(&engine->device.failure,
			   lists_widen(&mirror, slots, 0, count, rows, engine->device.job_stream)) &&
		   GPU(&engine->device.failure,
			   lists_encode(&lists, rows, numbers, count, codes, engine->device.job_stream));
}

bool
lists_place_pass(CudaEngine *engine, CudaJob *job)
{
	CudaMirror *mirror = job->mirror;
	CudaLists *lists = mirror->lists;
	ListsWork *work = job->lists;
	Piece *piece = piece_free(engine);
	uint32_t rows = work->rows;
	uint32_t *staged;
	uint32_t *device;
	ListsView view;
	uint32_t nmoved;

	if (piece == NULL)
		return false;
	staged = (uint32_t *) piece->staged;
	device = (uint32_t *) piece->device;
	memcpy(staged, work->slots + work->first, rows * sizeof(uint32_t));
	memcpy(staged + rows, work->numbers + work->first, rows * sizeof(uint32_t));
	memcpy(staged + 2 * rows, work->places, rows * sizeof(uint32_t));
	memcpy(staged + 3 * rows, work->left, work->nleft * sizeof(uint32_t));
	nmoved = publish_pass(mirror, work, staged + 4 * rows, staged + 5 * rows);
	view = lists_view(mirror);
	if (!upload_copy_in(engine, device, staged, ROW_WORDS * rows * sizeof(uint32_t)) ||
		!clear_new_memory(engine, lists))
		return false;
	if (!work->links)
	{
		work->device_slots = device;
		work->device_rows = (float *) (device + round_up(ROW_WORDS * rows, 64));
		work->device_codes = (uint32_t *) work->device_rows + round_up(rows * view.shape.dims, 64);
		if (!encode_in_piece(engine, job, device, device + rows, work->device_rows,
							 work->device_codes))
			return false;
	}
	return batch_streams_wait(engine, mirror) &&
		   (work->nleft == 0 ||
			GPU(&engine->device.failure,
				lists_clear_places(&view, (uint32_t *) lists->memory.base, device + 3 * rows,
								   work->nleft, engine->device.job_stream))) &&
		   GPU(&engine->device.failure,
			   lists_place(&view, (uint32_t *) lists->memory.base, work->device_codes,
						   work->device_slots, device + 2 * rows, rows,
						   engine->device.job_stream)) &&
		   upload_words(engine, (uint32_t *) mirror->pending[mirror->pending_side].base,
						device + 4 * rows, device + 5 * rows, nmoved) &&
		   hold_later_batches(engine, mirror) && piece_send(engine, job, piece);
}
