/*
 * lists_jobs.cu
 *		Rows get into lists: JOB_LINK assigns and encodes pending ones,
 *		JOB_GRAPH says which list is whose. JOB_CODEBOOK brings the centroids.
 *
 * In passes. Of a link the device widens, assigns and encodes a pass; numbers
 * of lists and codes come to the host, which chooses places. Then (a load
 * begins here) the new directory goes to the side that batches do not read, and
 * in one go, between the batches in flight and those that start later, codes
 * are put into their places and slots taken off the list of pending ones. What
 * a load encodes it encodes in the piece that brings it.
 *
 * A pass that finds no memory changes nothing: those before it stay.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda/engine/internal.h"
#include "cuda/lists/lists_code.h"

#ifdef EMULATED
#define PASS_ROWS 700u /* so that tests have several passes */
#else
#define PASS_ROWS 131072u /* of a pass, at most: what a piece has room to say of them */
#endif
#define PASS_LEAST 64u	  /* rows that memory must do for */
#define BUSY_SHARE 8u	  /* of a pass, while queries are about */
#define LARGE_PAGE ((size_t) 2 << 20)
#define ROW_WORDS 6u /* what a piece says of a row: slot, list, place, place left, index and slot of
					  * a pending one */

typedef enum ListsPhase
{
	LISTS_SEND,		 /* a link: a pass is assigned and encoded */
	LISTS_FETCH,	 /* and brought here */
	LISTS_PLAN,		 /* places are chosen */
	LISTS_DIRECTORY, /* the directory is on its way */
	LISTS_PLACE,	 /* the pass gets there */
	LISTS_OVER
} ListsPhase;

/* Rows on their way here. */
struct ListsFetch
{
	uint32_t first; /* of the pass */
	uint32_t count; /* 0: none */
};

struct ListsWork
{
	ListsPhase phase;
	bool links;
	const uint32_t *slots; /* of all rows */
	uint32_t *numbers;	   /* of their lists; a load's own */
	unsigned char *codes;  /* a link's result */
	uint32_t count;
	uint32_t most;	/* rows of a pass */
	uint32_t first; /* the pass */
	uint32_t rows;
	uint32_t sent; /* rows of the pass that have been asked for, */
	uint32_t got;  /* and are here */
	ListsFetch fetches[PIECES];

	/* of the pass, on the host */
	uint32_t *places; /* NO_SLOT: left out */
	uint32_t *left;	  /* places that rows leave for others */
	uint32_t nleft;
	uint32_t *more; /* rows of each list */
	uint32_t *directory;
	uint32_t nwords;

	/* a link's, on the device */
	Range memory;
	float *device_rows;
	uint32_t *device_slots;
	uint32_t *device_numbers;
	uint32_t *device_codes;
	void *scratch;
};

static unsigned char *
work_carve(unsigned char **at, size_t bytes)
{
	unsigned char *place = *at;

	*at += round_up(bytes, 256);
	return place;
}

/* Lay out what a link's passes of so many rows need; at NULL measures. */
static size_t
lay_out_pass(ListsWork *work, const CudaLists *lists, uint32_t rows, unsigned char *at)
{
	unsigned char *start = at;
	uint32_t dims = lists->shape.dims;

	work->device_rows = (float *) work_carve(&at, (size_t) rows * dims * sizeof(float));
	work->device_slots = (uint32_t *) work_carve(&at, rows * sizeof(uint32_t));
	work->device_numbers = (uint32_t *) work_carve(&at, rows * sizeof(uint32_t));
	work->device_codes =
		(uint32_t *) work_carve(&at, (size_t) rows * lists->code_words * sizeof(uint32_t));
	work->scratch = work_carve(&at, lists_assign_bytes(lists->count, dims, rows));
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

		status = range_reserve(&engine->arena, &work->memory, PART_STATE, bytes, error);
		if (status == ENGINE_OK)
			status = range_grow(&engine->arena, &work->memory, bytes, error);
		if (status == ENGINE_OK)
			break;
		if (work->memory.base != 0)
			range_release(&engine->arena, &work->memory);
		if (rows / 2 < PASS_LEAST)
			return status;
	}
	lay_out_pass(work, lists, rows, (unsigned char *) work->memory.base);
	work->most = rows;
	return ENGINE_OK;
}

static int
compare_slots(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *) a;
	uint32_t y = *(const uint32_t *) b;

	return x < y ? -1 : x > y;
}

/* The pending slots among those named, or all; ascending. False: no memory. */
static bool
collect_slots(CudaJob *job, ListsWork *work)
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
	for (uint32_t slot = 0; named == NULL && slot < mirror->rows && count < room; slot++)
		if (mirror->states[slot] & SLOT_PENDING)
			slots[count++] = slot;
	for (uint32_t i = 0; named != NULL && i < room; i++)
		if (named[i] < mirror->rows && (mirror->states[named[i]] & SLOT_PENDING))
			slots[count++] = named[i];
	if (named != NULL)
		qsort(slots, count, sizeof(uint32_t), compare_slots);
	for (uint32_t i = 0; i < count; i++)
		if (i == 0 || slots[i] != slots[i - 1])
			slots[kept++] = slots[i];
	work->count = kept;
	return true;
}

/*
 * Memory of a large result, in large pages: to take it page by page costs more
 * than to fill it.
 */
static void *
allocate_result(size_t bytes)
{
	void *memory;

	if (posix_memalign(&memory, LARGE_PAGE, bytes + 1) != 0)
		return NULL;
	if (bytes >= LARGE_PAGE)
		(void) madvise(memory, bytes, MADV_HUGEPAGE);
	return memory;
}

/* Begin a link: its slots, result and memory. */
static EngineStatus
begin_link(CudaEngine *engine, CudaJob *job, ListsWork *work)
{
	const CudaLists *lists = job->mirror->lists;
	size_t code_bytes = lists->code_words * sizeof(uint32_t);

	if (!collect_slots(job, work))
		return ENGINE_NO_MEMORY;
	job->shown_total = work->count;
	job->link.code_bytes = (uint32_t) code_bytes;
	work->numbers = (uint32_t *) allocate_result(work->count * sizeof(uint32_t));
	work->codes = (unsigned char *) allocate_result(work->count * code_bytes);
	job->link.rows = work->numbers;
	job->link.codes = work->codes;
	job->link.linked = (uint64_t *) calloc((size_t) work->count / 64 + 1, sizeof(uint64_t));
	if (work->numbers == NULL || work->codes == NULL || job->link.linked == NULL)
		return ENGINE_NO_MEMORY;
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
begin_load(CudaJob *job, ListsWork *work)
{
	const CudaMirror *mirror = job->mirror;
	const EngineJob *in = &job->in;

	for (uint32_t i = 0; i < in->count; i++)
		if (in->slots[i] >= mirror->rows ||
			(in->rows[i] >= mirror->lists->count && in->rows[i] != NO_SLOT))
		{
			engine_error(&job->error, ENGINE_INVALID, "slot %u or list %u is not below %u or %u",
						 in->slots[i], in->rows[i], mirror->rows, mirror->lists->count);
			return ENGINE_INVALID;
		}
	work->slots = in->slots;
	work->count = in->count;
	work->most = load_rows(mirror->lists);
	work->numbers = (uint32_t *) malloc(work->count * sizeof(uint32_t) + 1);
	if (work->numbers == NULL)
		return ENGINE_NO_MEMORY;
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
	{
		engine_error(&job->error, ENGINE_INVALID, "the mirror has no centroids yet");
		return ENGINE_INVALID;
	}
	engine_error(&job->error, ENGINE_NO_MEMORY, "out of memory");
	job->lists = work = (ListsWork *) calloc(1, sizeof(*work));
	if (work == NULL)
		return ENGINE_NO_MEMORY;
	work->links = job->in.kind == JOB_LINK;
	status = work->links ? begin_link(engine, job, work) : begin_load(job, work);
	if (status != ENGINE_OK)
		return status;
	work->places = (uint32_t *) malloc(work->most * sizeof(uint32_t) + 1);
	work->left = (uint32_t *) malloc(work->most * sizeof(uint32_t) + 1);
	work->more = (uint32_t *) malloc(lists->count * sizeof(uint32_t));
	if (work->places == NULL || work->left == NULL || work->more == NULL)
		return ENGINE_NO_MEMORY;
	memset(&job->error, 0, sizeof(job->error));
	return ENGINE_OK;
}

void
lists_job_end(CudaEngine *engine, CudaJob *job)
{
	ListsWork *work = job->lists;

	if (work == NULL)
		return;
	for (uint32_t i = 0; i < PIECES; i++)
		if (work->fetches[i].count > 0)
			engine->pieces[i].held = false;
	if (work->memory.base != 0)
		range_release(&engine->arena, &work->memory);
	if (!work->links)
		free(work->numbers);
	free(work->places);
	free(work->left);
	free(work->more);
	free(work->directory);
	free(work);
	job->lists = NULL;
}

/* --- a pass of a link ----------------------------------------------------- */

/* Have the next pass assigned and encoded. False: not now. */
static bool
send_pass(CudaEngine *engine, CudaJob *job)
{
	ListsWork *work = job->lists;
	MirrorView mirror = mirror_view(job->mirror);
	ListsView lists = lists_view(job->mirror);
	uint32_t most = queries_about(engine) ? work->most / BUSY_SHARE + 1 : work->most;
	Piece *piece = piece_free(engine);
	ListsAssign assign;

	if (piece == NULL)
		return false;
	work->rows = at_most(work->count - work->first, most);
	work->sent = work->got = 0;
	memcpy(piece->staged, work->slots + work->first, work->rows * sizeof(uint32_t));
	assign.centroids = lists.centroids;
	assign.half_norms = lists.half_norms;
	assign.lists = lists.lists;
	assign.dims = lists.shape.dims;
	assign.rows = work->device_rows;
	assign.count = work->rows;
	assign.nearest = work->device_numbers;
	assign.distances = NULL;
	assign.scratch = work->scratch;
	assign.processors = (uint32_t) engine->device.multiProcessorCount;
	assign.stream = engine->job_stream;
	return upload_copy_in(engine, work->device_slots, piece->staged,
						  work->rows * sizeof(uint32_t)) &&
		   GPU(&engine->failure, lists_widen(&mirror, work->device_slots, 0, work->rows,
											 work->device_rows, engine->job_stream)) &&
		   GPU(&engine->failure, lists_assign(&assign)) &&
		   GPU(&engine->failure,
			   lists_encode(&lists, work->device_rows, work->device_numbers, work->rows,
							work->device_codes, engine->job_stream)) &&
		   piece_send(engine, job, piece);
}

/* Take rows that have come: their lists, then their codes. */
static void
take_fetched(const CudaLists *lists, ListsWork *work, const Piece *piece, ListsFetch fetch)
{
	size_t code_bytes = lists->code_words * sizeof(uint32_t);
	size_t at = work->first + fetch.first;

	memcpy(work->numbers + at, piece->staged, fetch.count * sizeof(uint32_t));
	memcpy(work->codes + at * code_bytes, piece->staged + fetch.count * sizeof(uint32_t),
		   fetch.count * code_bytes);
	work->got += fetch.count;
}

/* Ask for rows of the pass. */
static bool
send_fetch(CudaEngine *engine, CudaJob *job, Piece *piece, uint32_t count)
{
	ListsWork *work = job->lists;
	size_t words = job->mirror->lists->code_words;

	return GPU(&engine->failure,
			   cudaMemcpyAsync(piece->staged, work->device_numbers + work->sent,
							   count * sizeof(uint32_t), cudaMemcpyDeviceToHost,
							   engine->job_stream)) &&
		   GPU(&engine->failure,
			   cudaMemcpyAsync(piece->staged + count * sizeof(uint32_t),
							   work->device_codes + work->sent * words,
							   count * words * sizeof(uint32_t), cudaMemcpyDeviceToHost,
							   engine->job_stream)) &&
		   piece_send(engine, job, piece);
}

/* Bring the pass here, several pieces at a time. True when all has come. */
static bool
fetch_pass(CudaEngine *engine, CudaJob *job)
{
	ListsWork *work = job->lists;
	const CudaLists *lists = job->mirror->lists;

	for (uint32_t i = 0; i < PIECES; i++)
	{
		if (work->fetches[i].count == 0 || engine->pieces[i].job != NULL)
			continue;
		take_fetched(lists, work, &engine->pieces[i], work->fetches[i]);
		work->fetches[i].count = 0;
		engine->pieces[i].held = false;
	}
	while (work->sent < work->rows)
	{
		Piece *piece = piece_free(engine);
		uint32_t count = rows_of_piece(engine, (1 + lists->code_words) * sizeof(uint32_t),
									   work->rows - work->sent);

		if (piece == NULL || !send_fetch(engine, job, piece, count))
			return false;
		piece->held = true;
		work->fetches[piece - engine->pieces] = {work->sent, count};
		work->sent += count;
	}
	return work->got == work->rows;
}

/* --- places --------------------------------------------------------------- */

/*
 * Which rows of a load's pass go where: one that is dead, or there already, or
 * named again later, stays where it is.
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
make_directory(const CudaLists *lists, ListsWork *work)
{
	uint32_t words = lists_directory_words(lists);
	uint32_t *directory =
		(uint32_t *) realloc(work->directory, (size_t) words * sizeof(uint32_t));

	if (directory == NULL)
		return false;
	work->directory = directory;
	work->nwords = words;
	lists_make_directory(lists, directory);
	return true;
}

/*
 * Have blocks for the rows of a pass, or at first for all that a load brings:
 * then its passes leave the directory as it is.
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
	return lists_reserve(engine, job->mirror, work->more, &job->error);
}

/*
 * Choose the places of the pass. Nothing changes but that lists have more
 * blocks, if there is no memory.
 */
static bool
plan_pass(CudaEngine *engine, CudaJob *job)
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
	if (lists->moved && !make_directory(lists, work))
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

/*
 * Take a slot off the list of pending ones: the last takes its index. Those
 * that have come to be elsewhere are noted.
 */
static void
unlist(CudaMirror *mirror, uint32_t slot, uint32_t *moved, uint32_t *nmoved)
{
	uint32_t *where = mirror->lists->where;
	uint32_t at = where[slot];
	uint32_t last = mirror->listed[--mirror->nlisted];

	mirror->states[slot] &= (uint8_t) ~SLOT_LISTED;
	if (at == mirror->nlisted)
		return;
	mirror->listed[at] = last;
	where[last] = at;
	moved[(*nmoved)++] = at;
}

/* Nothing is pending: what is listed still is dead. */
static void
unlist_all(CudaMirror *mirror)
{
	while (mirror->nlisted > 0)
		mirror->states[mirror->listed[--mirror->nlisted]] &= (uint8_t) ~SLOT_LISTED;
}

/* The slots of the pass are linked, on the host; returns how many moved. */
static uint32_t
publish_pass(CudaMirror *mirror, const ListsWork *work, uint32_t *moved, uint32_t *movers)
{
	const uint32_t *slots = work->slots + work->first;
	CudaLists *lists = mirror->lists;
	uint32_t nmoved = 0;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < work->rows; i++)
	{
		uint32_t slot = slots[i];

		if (work->places[i] == NO_SLOT)
			continue;
		if (mirror->states[slot] & SLOT_LISTED)
			unlist(mirror, slot, moved, &nmoved);
		mirror->npending -= (mirror->states[slot] & SLOT_PENDING) != 0;
		mirror->linked++;
		mirror->states[slot] = (uint8_t) ((mirror->states[slot] | SLOT_LINKED) & ~SLOT_PENDING);
		lists->where[slot] = work->places[i];
	}
	if (mirror->npending == 0)
		unlist_all(mirror);
	for (uint32_t i = 0; i < nmoved; i++)
		if (moved[i] < mirror->nlisted)
		{
			movers[kept] = mirror->listed[moved[i]];
			moved[kept++] = moved[i];
		}
	if (!lists->moved)
		return kept;
	lists->moved = false;
	lists->side ^= 1;
	lists->longest = lists->all_blocks = 0;
	for (uint32_t i = 0; i < lists->count; i++)
	{
		lists->all_blocks += lists->lists[i].blocks;
		if (lists->lists[i].blocks > lists->longest)
			lists->longest = lists->lists[i].blocks;
	}
	return kept;
}

/* Make the places of blocks that nobody has had free. */
static bool
clear_new_memory(CudaEngine *engine, CudaLists *lists)
{
	size_t from = lists->memory_cleared;

	lists->memory_cleared = lists->memory.mapped;
	return from == lists->memory.mapped ||
		   GPU(&engine->failure,
			   cudaMemsetAsync((unsigned char *) lists->memory.base + from, 0xFF,
							   lists->memory.mapped - from, engine->job_stream));
}

/* Widen and encode a load's pass, in a piece. */
static bool
encode_in_piece(CudaEngine *engine, const CudaJob *job, const uint32_t *slots,
				const uint32_t *numbers, float *rows, uint32_t *codes)
{
	MirrorView mirror = mirror_view(job->mirror);
	ListsView lists = lists_view(job->mirror);
	uint32_t count = job->lists->rows;

	return GPU(&engine->failure,
			   lists_widen(&mirror, slots, 0, count, rows, engine->job_stream)) &&
		   GPU(&engine->failure,
			   lists_encode(&lists, rows, numbers, count, codes, engine->job_stream));
}

/*
 * The pass gets to its places. All of it is on its way before batches are told:
 * later ones wait for it.
 */
static bool
place_pass(CudaEngine *engine, CudaJob *job)
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
			GPU(&engine->failure,
				lists_clear_places(&view, (uint32_t *) lists->memory.base, device + 3 * rows,
								   work->nleft, engine->job_stream))) &&
		   GPU(&engine->failure,
			   lists_place(&view, (uint32_t *) lists->memory.base, work->device_codes,
						   work->device_slots, device + 2 * rows, rows, engine->job_stream)) &&
		   upload_words(engine, (uint32_t *) mirror->pending[mirror->pending_side].base,
						device + 4 * rows, device + 5 * rows, nmoved) &&
		   hold_later_batches(engine, mirror) && piece_send(engine, job, piece);
}

/* The job has ended, after all rows or before. */
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
			if (!send_pass(engine, job))
				return false;
			work->phase = LISTS_FETCH;
			return true;
		case LISTS_FETCH:
			if (!fetch_pass(engine, job))
				return false;
			work->phase = LISTS_PLAN;
			return true;
		case LISTS_PLAN:
			job->done = 0;
			if (plan_pass(engine, job))
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
			if (!place_pass(engine, job))
				return false;
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
	while (work->phase != LISTS_OVER && !engine->failure.failed && step_pass(engine, job))
		;
	return work->phase == LISTS_OVER && job->status == ENGINE_OK && !engine->failure.failed;
}

/* --- centroids and codebook ----------------------------------------------- */

EngineStatus
lists_floats_begin(CudaJob *job)
{
	const CudaLists *lists = job->mirror->lists;
	const EngineJob *in = &job->in;

	if (in->first_slot == lists->received && in->count <= lists->nfloats - lists->received)
		return ENGINE_OK;
	engine_error(&job->error, ENGINE_INVALID, "floats %u to %llu do not follow the %zu of %zu",
				 in->first_slot, (unsigned long long) in->first_slot + in->count, lists->received,
				 lists->nfloats);
	return ENGINE_INVALID;
}

/* All lists are empty: batches may look before a pass has made a directory. */
static bool
clear_directories(CudaEngine *engine, const CudaLists *lists)
{
	for (uint32_t side = 0; side < 2; side++)
		if (!GPU(&engine->failure,
				 cudaMemsetAsync((void *) lists->directory[side].base, 0,
								 (lists->count + 1) * sizeof(uint32_t), engine->job_stream)))
			return false;
	return true;
}

bool
lists_open(CudaEngine *engine, CudaJob *job)
{
	const CudaLists *lists = job->mirror->lists;
	ListsView view = lists_view(job->mirror);
	uint32_t dims = lists->shape.dims;
	uint32_t rotations = lists->shape.kind == QUANTIZER_PQ		 ? 0
						 : lists->shape.kind == QUANTIZER_RABITQ ? 2
																 : 1;
	Piece *piece = piece_free(engine);
	uint32_t *staged;

	if (piece == NULL)
		return false;
	staged = (uint32_t *) piece->staged;
	for (uint32_t i = 0; i < rotations; i++)
		rotation_make(lists->shape.seed + i, dims, staged + (size_t) i * dims);
	return upload_copy_in(engine, (void *) view.rotation, staged,
						  (size_t) rotations * dims * sizeof(uint32_t)) &&
		   clear_directories(engine, lists) &&
		   GPU(&engine->failure,
			   lists_half_norms(view.centroids, lists->count, dims, (float *) view.half_norms,
								engine->job_stream)) &&
		   piece_send(engine, job, piece);
}

bool
lists_floats_stage(CudaEngine *engine, CudaJob *job)
{
	const CudaLists *lists = job->mirror->lists;
	const EngineJob *in = &job->in;
	uint32_t *to = (uint32_t *) lists->fixed.base + in->first_slot;

	/* no batch reads them yet */
	while (job->done < in->count)
		if (!piece_slots(engine, job, (const uint32_t *) in->vectors, in->count, to))
			return false;
	return lists->received + in->count < lists->nfloats || in->count == 0 ||
		   lists_open(engine, job);
}
