/*
 * lists_jobs.cu
 *		Put rows into lists: JOB_LINK assigns and encodes pending ones,
 *		JOB_GRAPH names each row's list.
 *
 * In passes. Of a link the device widens, assigns and encodes a pass; numbers
 * of lists and codes are copied to the host. Then (a load begins here) places
 * are chosen and written (lists_places.cu). A load encodes rows in the piece
 * that copies them to the device.
 *
 * A pass that finds no memory changes nothing: those before it stay.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/jobs/lists_jobs.h"
#include "cuda/jobs/lists_work.h"

extern "C"
{
#include "engine/select.h"
}

#ifdef EMULATED
#define PASS_ROWS 700u /* so that tests have several passes */
#else
#define PASS_ROWS 131072u /* of a pass, at most: what a piece has room to say of them */
#endif
#define PASS_ROWS_MIN 64u	  /* rows that memory must do for */
#define BUSY_DIVISOR 8u	  /* of a pass, while queries are in flight */

/* Lay out the memory of a link's passes of `rows` rows; at NULL: its size. */
static size_t
lay_out_pass(ListsWork *work, const CudaLists *lists, uint32_t rows, unsigned char *at)
{
	unsigned char *start = at;
	uint32_t dims = lists->shape.dims;

	work->device_rows = carve<float>(&at, (size_t) rows * dims);
	work->device_numbers = carve<uint32_t>(&at, rows);
	work->device_distances = carve<double>(&at, rows);
	for (int side = 0; side < 2; side++)
	{
		work->side_slots[side] = carve<uint32_t>(&at, rows);
		work->side_codes[side] = carve<uint32_t>(&at, (size_t) rows * lists->code_words);
	}
	work->scratch = carve(&at, lists_assign_bytes(lists->count, dims, rows));
	return (size_t) (at - start);
}

/*
 * Take device memory for passes as large as is good, or as there is room for.
 */
static EngineStatus
take_pass_memory(CudaEngine *engine, CudaMirror *mirror, ListsWork *work, EngineError *error)
{
	CudaLists *lists = mirror->lists;
	size_t most = LISTS_PIECE / lists->shape.dims;
	uint32_t rows = at_most(work->count, most < PASS_ROWS ? (uint32_t) most : PASS_ROWS);
	EngineStatus status;

	for (;; rows /= 2)
	{
		size_t bytes = lay_out_pass(work, lists, rows, (unsigned char *) 256);

		status = range_take(&engine->device.arena, &work->memory, PART_STATE, bytes, error);
		if (status == ENGINE_OK)
			break;
		if (rows / 2 < PASS_ROWS_MIN)
			return status;
	}
	lay_out_pass(work, lists, rows, (unsigned char *) work->memory.base);
	work->most = rows;
	return ENGINE_OK;
}

/* The pending slots among those named, or all; ascending. False: no memory. */
static bool
lists_collect_slots(CudaEngine *engine, CudaJob *job, ListsWork *work)
{
	const CudaMirror *mirror = job->mirror;
	const uint32_t *named = job->in.slots;
	uint32_t room = named != NULL ? job->in.count : mirror->npending;
	uint32_t *slots = (uint32_t *) malloc((size_t) room * sizeof(uint32_t) + 1);
	uint32_t count = 0;
	uint32_t kept = 0;

	job->link.slots = work->slots = slots;
	if (slots == NULL)
		return false;
	job_counts(engine, &job->result_bytes, room * sizeof(uint32_t));
	for (uint32_t slot = 0; named == NULL && slot < mirror->rows && count < room; slot++)
		if (mirror->states[slot] & SLOT_PENDING)
			slots[count++] = slot;
	for (uint32_t i = 0; named != NULL && i < room; i++)
		if (named[i] < mirror->rows && (mirror->states[named[i]] & SLOT_PENDING))
			slots[count++] = named[i];
	if (named != NULL)
		qsort(slots, count, sizeof(uint32_t), compare_numbers);
	for (uint32_t i = 0; i < count; i++)
		if (i == 0 || slots[i] != slots[i - 1])
			slots[kept++] = slots[i];
	work->count = kept;
	return true;
}

/* Begin a link: its slots, result and memory. */
static EngineStatus
begin_link(CudaEngine *engine, CudaJob *job, ListsWork *work)
{
	const CudaLists *lists = job->mirror->lists;
	size_t code_bytes = lists->code_words * sizeof(uint32_t);

	if (!lists_collect_slots(engine, job, work))
		return ENGINE_NO_MEMORY;
	job->shown_total = work->count;
	job->link.code_bytes = (uint32_t) code_bytes;
	work->numbers = 
		(uint32_t *) job_allocate_result(work->count * sizeof(uint32_t), true);
	work->codes = (unsigned char *) job_allocate_result(work->count * code_bytes, true);
	job->link.rows = work->numbers;
	job->link.codes = work->codes;
	job->link.linked = (uint64_t *) calloc((size_t) work->count / 64 + 1, sizeof(uint64_t));
	if (work->numbers == NULL || work->codes == NULL || job->link.linked == NULL)
		return ENGINE_NO_MEMORY;
	job_counts(engine, &job->result_bytes,
			   work->count * (sizeof(uint32_t) + code_bytes) + work->count / 8);
	return work->count == 0 ? ENGINE_OK
							: take_pass_memory(engine, job->mirror, work, &job->error);
}

/* Rows that a load encodes in one piece. */
static uint32_t
load_rows(const CudaLists *lists)
{
	size_t row = (ROW_WORDS + lists->shape.dims + lists->code_words) * sizeof(uint32_t);

	return at_most((uint32_t) ((PIECE_BYTES - 4096) / row), PASS_ROWS);
}

/* Begin a load: check what the caller names. */
static EngineStatus
begin_load(CudaEngine *engine, CudaJob *job, ListsWork *work)
{
	const CudaMirror *mirror = job->mirror;
	const EngineJob *in = &job->in;

	for (uint32_t i = 0; i < in->count; i++)
		if (in->slots[i] >= mirror->rows ||
			(in->rows[i] >= mirror->lists->count && in->rows[i] != NO_SLOT))
			return engine_error(&job->error, ENGINE_INVALID,
								"slot %u or list %u is not below %u or %u", in->slots[i],
								in->rows[i], mirror->rows, mirror->lists->count);
	work->slots = in->slots;
	work->count = in->count;
	work->most = load_rows(mirror->lists);
	work->numbers = (uint32_t *) malloc(work->count * sizeof(uint32_t) + 1);
	if (work->numbers == NULL)
		return ENGINE_NO_MEMORY;
	job_counts(engine, &job->work_bytes, work->count * sizeof(uint32_t));
	memcpy(work->numbers, in->rows, work->count * sizeof(uint32_t));
	work->phase = LISTS_PLAN;
	return ENGINE_OK;
}

EngineStatus
lists_link_begin(CudaEngine *engine, CudaJob *job)
{
	CudaLists *lists = job->mirror->lists;
	ListsWork *work;
	EngineStatus status;

	if (!lists->open)
		return engine_error(&job->error, ENGINE_INVALID, "the mirror has no centroids yet");
	engine_error(&job->error, ENGINE_NO_MEMORY, "out of memory");
	job->lists = work = (ListsWork *) calloc(1, sizeof(*work));
	if (work == NULL)
		return ENGINE_NO_MEMORY;
	work->links = job->in.kind == JOB_LINK;
	status = work->links ? begin_link(engine, job, work) : begin_load(engine, job, work);
	if (status != ENGINE_OK)
		return status;
	work->places = (uint32_t *) malloc(work->most * sizeof(uint32_t) + 1);
	work->left = (uint32_t *) malloc(work->most * sizeof(uint32_t) + 1);
	work->more = (uint32_t *) malloc(lists->count * sizeof(uint32_t));
	work->distances = (double *) malloc(work->most * sizeof(double) + 1);
	if (work->places == NULL || work->left == NULL || work->more == NULL ||
		work->distances == NULL)
		return ENGINE_NO_MEMORY;
	job_counts(engine, &job->work_bytes,
			   (2 * (uint64_t) work->most + lists->count) * sizeof(uint32_t) +
				   work->most * sizeof(double));
	memset(&job->error, 0, sizeof(job->error));
	return ENGINE_OK;
}

void
lists_job_end(CudaEngine *engine, CudaJob *job)
{
	ListsWork *work = job->lists;

	if (work == NULL)
		return;
	pieces_let_go(engine, work->fetches);
	range_release(&engine->device.arena, &work->memory);
	if (!work->links)
		free(work->numbers);
	free(work->places);
	free(work->left);
	free(work->more);
	free(work->distances);
	free(work->directory);
	free(work);
	job->lists = NULL;
}

/* --- a pass of a link ----------------------------------------------------- */

/*
 * Have the pass that begins there assigned and encoded, on the side that the
 * present one leaves. False: not now.
 */
static bool
send_pass(CudaEngine *engine, CudaJob *job, uint32_t first)
{
	ListsWork *work = job->lists;
	uint32_t *slots = work->side_slots[work->side ^ 1];
	MirrorView mirror = mirror_view(job->mirror);
	ListsView lists = lists_view(job->mirror);
	uint32_t most = queries_active(engine) ? work->most / BUSY_DIVISOR + 1 : work->most;
	uint32_t rows = at_most(work->count - first, most);
	Piece *piece = piece_free(engine);
	ListsAssign assign;

	if (piece == NULL)
		return false;
	work->ahead = rows;
	memcpy(piece->staged, work->slots + first, rows * sizeof(uint32_t));
	assign.centroids = lists.centroids;
	assign.lists = lists.lists;
	assign.dims = lists.shape.dims;
	assign.rows = work->device_rows;
	assign.count = rows;
	assign.nearest = work->device_numbers;
	assign.distances = work->device_distances;
	assign.scratch = work->scratch;
	assign.limits = &engine->device.lists_limits;
	assign.stream = engine->device.job_stream;
	return upload_copy_in(engine, slots, piece->staged, rows * sizeof(uint32_t)) &&
		   GPU(&engine->device.failure, lists_widen(&mirror, slots, 0, rows, work->device_rows,
													engine->device.job_stream)) &&
		   GPU(&engine->device.failure, lists_assign(&assign)) &&
		   GPU(&engine->device.failure,
			   lists_encode(&lists, work->device_rows, work->device_numbers, rows,
							work->side_codes[work->side ^ 1], engine->device.job_stream)) &&
		   piece_send(engine, job, piece);
}

/* Make the pass that was sent the current one. */
static void
begin_fetch(ListsWork *work)
{
	work->side ^= 1;
	work->device_slots = work->side_slots[work->side];
	work->device_codes = work->side_codes[work->side];
	work->rows = work->ahead;
	work->sent = work->got = work->ahead = 0;
	work->phase = LISTS_FETCH;
}

/* Copy fetched rows out: their lists, their codes, then their distances. */
static void
take_fetched(const CudaLists *lists, ListsWork *work, const Piece *piece, Fetch fetch)
{
	size_t code_bytes = lists->code_words * sizeof(uint32_t);
	size_t at = work->first + fetch.first;

	memcpy(work->numbers + at, piece->staged, fetch.count * sizeof(uint32_t));
	memcpy(work->codes + at * code_bytes, piece->staged + fetch.count * sizeof(uint32_t),
		   fetch.count * code_bytes);
	memcpy(work->distances + fetch.first,
		   piece->staged + fetch.count * (sizeof(uint32_t) + code_bytes),
		   fetch.count * sizeof(double));
	work->got += fetch.count;
}

/* Send a copy of rows of the pass to the host. */
static bool
lists_send_fetch(CudaEngine *engine, CudaJob *job, Piece *piece, uint32_t count)
{
	ListsWork *work = job->lists;
	size_t words = job->mirror->lists->code_words;

	return GPU(&engine->device.failure,
			   cudaMemcpyAsync(piece->staged, work->device_numbers + work->sent,
							   count * sizeof(uint32_t), cudaMemcpyDeviceToHost,
							   engine->device.job_stream)) &&
		   GPU(&engine->device.failure,
			   cudaMemcpyAsync(piece->staged + count * sizeof(uint32_t),
							   work->device_codes + work->sent * words,
							   count * words * sizeof(uint32_t), cudaMemcpyDeviceToHost,
							   engine->device.job_stream)) &&
		   GPU(&engine->device.failure,
			   cudaMemcpyAsync(piece->staged + count * (1 + words) * sizeof(uint32_t),
							   work->device_distances + work->sent, count * sizeof(double),
							   cudaMemcpyDeviceToHost, engine->device.job_stream)) &&
		   piece_send(engine, job, piece);
}

/*
 * Copy the pass to the host, several pieces at a time. True when done.
 * Meanwhile the device works on the next pass; but not beside queries, which
 * would wait for it.
 */
static bool
fetch_pass(CudaEngine *engine, CudaJob *job)
{
	ListsWork *work = job->lists;
	const CudaLists *lists = job->mirror->lists;

	for (uint32_t i = 0; i < PIECES; i++)
	{
		if (work->fetches[i].count == 0 || engine->jobs->pieces[i].job != NULL)
			continue;
		take_fetched(lists, work, &engine->jobs->pieces[i], work->fetches[i]);
		work->fetches[i].count = 0;
		engine->jobs->pieces[i].held = false;
	}
	while (work->sent < work->rows)
	{
		Piece *piece = piece_free(engine);
		uint32_t count = rows_of_piece(
			engine, (1 + lists->code_words) * sizeof(uint32_t) + sizeof(double),
			work->rows - work->sent);

		if (piece == NULL || !lists_send_fetch(engine, job, piece, count))
			return false;
		piece->held = true;
		work->fetches[piece - engine->jobs->pieces] = {work->sent, count};
		work->sent += count;
	}
	if (work->ahead == 0 && work->first + work->rows < work->count && !job->cancelled &&
		!queries_active(engine))
		(void) send_pass(engine, job, work->first + work->rows);
	return work->got == work->rows;
}

/* --- the job -------------------------------------------------------------- */

/* End the job, after all rows or before. */
static void
end_lists(CudaJob *job, EngineStatus status)
{
	ListsWork *work = job->lists;

	work->phase = LISTS_OVER;
	for (uint32_t i = 0; i < work->first && work->links; i++)
		((uint64_t *) job->link.linked)[i / 64] |= UINT64_C(1) << (i % 64);
	job->link.count = work->links ? work->first : 0;
	if (status == ENGINE_OK)
		return;
	if (!work->links)
	{
		job->status = status;
		engine_error(&job->error, status, "%u rows did not get into lists",
					 work->count - work->first);
		return;
	}
	job->link_status = status;
	engine_error(&job->error, status, "linking of %u rows ended after %u, %s", work->count,
				 work->first, status == ENGINE_CANCELLED ? "cancelled" : "for lack of memory");
}

/* The next pass, or the end. */
static void
next_pass(CudaJob *job)
{
	ListsWork *work = job->lists;

	if (work->first == work->count)
		end_lists(job, ENGINE_OK);
	else if (job->cancelled)
		end_lists(job, ENGINE_CANCELLED);
	else
		work->phase = work->links ? LISTS_SEND : LISTS_PLAN;
}

/* A step of the pass: true if the next can follow now. */
static bool
step_pass(CudaEngine *engine, CudaJob *job)
{
	CudaLists *lists = job->mirror->lists;
	ListsWork *work = job->lists;

	switch (work->phase)
	{
		case LISTS_SEND:
			if (work->ahead == 0 && !send_pass(engine, job, work->first))
				return false;
			begin_fetch(work);
			return true;
		case LISTS_FETCH:
			if (!fetch_pass(engine, job))
				return false;
			work->phase = LISTS_PLAN;
			return true;
		case LISTS_PLAN:
			job->done = 0;
			if (lists_plan_pass(engine, job))
				work->phase = lists->moved ? LISTS_DIRECTORY : LISTS_PLACE;
			else
				end_lists(job, ENGINE_NO_MEMORY);
			return true;
		case LISTS_DIRECTORY:
			while (job->done < work->nwords)
				if (!piece_slots(engine, job, work->directory, work->nwords,
								 (uint32_t *) lists->directory[lists->side ^ 1].base))
					return false;
			work->phase = LISTS_PLACE;
			return true;
		case LISTS_PLACE:
			if (!lists_place_pass(engine, job))
				return false;
			for (uint32_t i = 0; work->links && i < work->rows; i++)
				job->link.distance += work->distances[i];
			work->first += work->rows;
			job->shown_done = work->first;
			next_pass(job);
			return true;
		case LISTS_OVER:
			break;
	}
	return false;
}

bool
lists_link_stage(CudaEngine *engine, CudaJob *job)
{
	ListsWork *work = job->lists;

	if (work->count == 0)
		work->phase = LISTS_OVER;
	while (work->phase != LISTS_OVER && !engine->device.failure.failed && step_pass(engine, job))
		;
	return work->phase == LISTS_OVER && job->status == ENGINE_OK && !engine->device.failure.failed;
}
