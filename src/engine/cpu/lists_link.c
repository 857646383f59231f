/*
 * lists_link.c
 *		Linking a mirror with lists: rows are assigned to the nearest
 *		centroids and encoded.
 *
 * Passes of some 2 million floats: first blocks of rows are assigned to lists,
 * then one thread per list adds its rows. A row leaves the pending map after it
 * is in its list, so a search that reads pending rows first misses none. The
 * result depends neither on threads nor on passes.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/bits.h"
#include "engine/cpu/lists.h"

#define PASS_FLOATS		((uint32_t) 1 << 21)
#define PASS_ROWS_MIN	1024	/* rows of a pass */
#define PASS_ROWS_MAX	16384
#define ENCODE_ROWS		64		/* rows encoded together */

/* Rows being added to lists. */
typedef struct Placing
{
	CpuJob	   *job;
	Mirror	   *mirror;
	const uint32_t *slots;
	uint32_t   *numbers;		/* of their lists, or NO_SLOT */
	unsigned char *codes;		/* of all, for the result; or NULL */
	double	   *distances;		/* of a link's pass, from their centroids */
	uint32_t	first;			/* the pass: slots[first .. first + count - 1] */
	uint32_t	count;
	uint32_t   *begins;			/* of each list in order, and the end */
	uint32_t   *order;			/* places of the pass by list */
	uint32_t   *used;			/* lists that rows are added to */
	uint32_t	nused;
	_Atomic bool no_memory;
} Placing;

static uint32_t
pass_rows(const Placing *placing)
{
	uint32_t	rows = PASS_FLOATS / placing->mirror->spec.dims;

	return rows < PASS_ROWS_MIN ? PASS_ROWS_MIN : rows > PASS_ROWS_MAX ? PASS_ROWS_MAX : rows;
}

/* Memory for rows as floats, aligned for kernels. */
static float *
rows_alloc(uint32_t rows, uint32_t dims)
{
	return aligned_alloc(WIDE_ALIGNMENT, align_up((size_t) rows * dims * sizeof(float)));
}

/* WorkerPhase: assign a block of rows to lists. */
static void
assign_block(void *context, uint32_t item, CpuWorker *worker)
{
	Placing    *placing = context;
	uint32_t	first = item * NEAREST_ROWS;
	uint32_t	left = placing->count - first;
	uint32_t	count = left < NEAREST_ROWS ? left : NEAREST_ROWS;
	uint32_t	dims = placing->mirror->spec.dims;
	float	   *rows;

	if (atomic_load(&placing->job->watch.cancelled))
		return;
	rows = rows_alloc(NEAREST_ROWS, dims);
	if (rows == NULL)
	{
		atomic_store(&placing->no_memory, true);
		return;
	}
	for (uint32_t i = 0; i < count; i++)
		lists_read_row(placing->mirror, placing->slots[placing->first + first + i],
					   rows + (size_t) i * dims);
	(void) centroids_nearest(&placing->mirror->lists->set, rows, dims, count,
							 placing->numbers + placing->first + first,
							 placing->distances + first);
	free(rows);
}

/*
 * Sort the pass by list. A slot that is named twice is added where it is named
 * last: its row has that list until it has a place.
 */
static void
sort_pass(Placing *placing)
{
	Mirror	   *mirror = placing->mirror;
	const uint32_t *numbers = placing->numbers + placing->first;
	uint32_t   *begins = placing->begins;
	uint32_t	lists = mirror->lists->count;

	memset(begins, 0, (lists + 1) * sizeof(uint32_t));
	placing->nused = 0;
	for (uint32_t i = 0; i < placing->count; i++)
	{
		uint32_t	slot = placing->slots[placing->first + i];

		if (numbers[i] == NO_SLOT)
			continue;
		lists_forget(mirror, slot);
		mirror_write_row(mirror, slot, &numbers[i], 1);
		begins[numbers[i]]++;
	}
	for (uint32_t i = 0; i < lists; i++)
	{
		if (begins[i] > 0)
			placing->used[placing->nused++] = i;
		begins[i + 1] += begins[i];
	}
	for (uint32_t i = placing->count; i-- > 0;)
		if (numbers[i] != NO_SLOT)
			placing->order[--begins[numbers[i]]] = i;
}

/*
 * Encode some rows of a list and add those that belong there and have no place
 * yet.
 */
static void
fill_list(Placing *placing, uint32_t number, const uint32_t *order, uint32_t count, float *rows,
		  unsigned char *codes)
{
	Mirror	   *mirror = placing->mirror;
	Lists	   *lists = mirror->lists;
	uint32_t	dims = mirror->spec.dims;

	for (uint32_t i = 0; i < count; i++)
		lists_read_row(mirror, placing->slots[placing->first + order[i]], rows + (size_t) i * dims);
	quantizer_encode(lists->quantizer, lists->floats + (size_t) number * dims, rows, count, codes);
	for (uint32_t i = 0; i < count; i++)
	{
		uint32_t	at = placing->first + order[i];
		uint32_t	slot = placing->slots[at];
		unsigned char *code = codes + i * lists->code_bytes;

		if (placing->codes != NULL)
			memcpy(placing->codes + at * lists->code_bytes, code, lists->code_bytes);
		if (atomic_load(mirror_row(mirror, slot)) == number && !lists_has_place(mirror, slot))
			lists_add(mirror, number, slot, code);
	}
}

/* WorkerPhase: add its rows to a list. */
static void
place_list(void *context, uint32_t item, CpuWorker *worker)
{
	Placing    *placing = context;
	const Lists *lists = placing->mirror->lists;
	uint32_t	number = placing->used[item];
	uint32_t	begin = placing->begins[number];
	uint32_t	end = placing->begins[number + 1];
	float	   *rows = rows_alloc(ENCODE_ROWS, placing->mirror->spec.dims);
	unsigned char *codes = malloc(ENCODE_ROWS * lists->code_bytes);

	if (rows == NULL || codes == NULL || !lists_reserve(placing->mirror, number, end - begin))
		atomic_store(&placing->no_memory, true);
	else
		for (uint32_t at = begin; at < end; at += ENCODE_ROWS)
			fill_list(placing, number, placing->order + at,
					  end - at < ENCODE_ROWS ? end - at : ENCODE_ROWS, rows, codes);
	free(rows);
	free(codes);
}

static int
placing_threads(const CpuJob *job, const CpuWorker *worker)
{
	return job->in.threads > 0 ? job->in.threads : worker->engine->nthreads;
}

/*
 * Add the rows of a pass to their lists: then they are linked. If memory is
 * short none is, and all stay pending.
 */
static EngineStatus
place_pass(Placing *placing, CpuWorker *worker)
{
	Mirror	   *mirror = placing->mirror;
	WorkerPhase phase = {.work = place_list, .context = placing};

	sort_pass(placing);
	phase.count = placing->nused;
	phase_run(worker, &phase, placing_threads(placing->job, worker));
	for (uint32_t i = 0; i < placing->count; i++)
	{
		uint32_t	slot = placing->slots[placing->first + i];

		if (placing->numbers[placing->first + i] == NO_SLOT)
			continue;
		if (atomic_load(&placing->no_memory))
			lists_forget(mirror, slot);
		else
			mirror_mark_linked(mirror, slot);
	}
	return atomic_load(&placing->no_memory) ? ENGINE_NO_MEMORY : ENGINE_OK;
}

/* Allocate the memory of passes. */
static bool
placing_begin(Placing *placing)
{
	size_t		lists = placing->mirror->lists->count;

	placing->begins = malloc((lists + 1) * sizeof(uint32_t));
	placing->used = malloc(lists * sizeof(uint32_t));
	placing->order = malloc(pass_rows(placing) * sizeof(uint32_t));
	placing->distances = malloc(pass_rows(placing) * sizeof(double));
	return placing->begins != NULL && placing->used != NULL && placing->order != NULL &&
		placing->distances != NULL;
}

static void
placing_end(Placing *placing)
{
	free(placing->begins);
	free(placing->used);
	free(placing->order);
	free(placing->distances);
}

/* All passes; returns how many rows were done in *done. */
static EngineStatus
place_all(Placing *placing, uint32_t total, bool assign, CpuWorker *worker, uint32_t *done)
{
	CpuJob	   *job = placing->job;
	EngineStatus status = ENGINE_OK;

	*done = 0;
	while (status == ENGINE_OK && *done < total)
	{
		WorkerPhase phase = {.work = assign_block, .context = placing};
		uint32_t	left = total - *done;

		placing->first = *done;
		placing->count = left < pass_rows(placing) ? left : pass_rows(placing);
		phase.count = (placing->count + NEAREST_ROWS - 1) / NEAREST_ROWS;
		if (assign)
			phase_run(worker, &phase, placing_threads(job, worker));
		if (atomic_load(&placing->no_memory))
			return ENGINE_NO_MEMORY;
		if (atomic_load(&job->watch.cancelled))
			return ENGINE_CANCELLED;
		status = place_pass(placing, worker);
		for (uint32_t i = 0; assign && status == ENGINE_OK && i < placing->count; i++)
			job->link.distance += placing->distances[i];
		if (status == ENGINE_OK)
			*done += placing->count;
		atomic_store(&job->watch.done, *done);
	}
	return status;
}

/* Allocate the result of a link of count rows. */
static bool
result_begin(CpuJob *job, uint32_t count)
{
	const Lists *lists = job->entry->mirror->lists;
	MemoryBudget *budget = job->entry->mirror->budget;
	uint64_t	bytes = (uint64_t) count * (2 * sizeof(uint32_t) + lists->code_bytes);

	atomic_fetch_add(&budget->state, bytes);
	job->link_bytes = bytes;
	if (budget_used(budget) > budget->limit)
		return false;
	job->link.rows = malloc((size_t) count * sizeof(uint32_t) + 1);
	job->link.codes = calloc((size_t) count * lists->code_bytes + 1, 1);
	job->link.linked = calloc((size_t) count / 64 + 1, sizeof(uint64_t));
	job->link.code_bytes = (uint32_t) lists->code_bytes;
	return job->link.rows != NULL && job->link.codes != NULL && job->link.linked != NULL;
}

/* Check that rows can be linked. */
static EngineStatus
check_open(CpuJob *job)
{
	if (atomic_load(&job->entry->mirror->lists->open))
		return ENGINE_OK;
	return engine_error(&job->error, ENGINE_INVALID, "the mirror has no centroids yet");
}

/*
 * JOB_LINK: assign and encode pending slots. The result, also of a link that
 * was cut short, has those that are in lists now.
 */
EngineStatus
lists_link(CpuJob *job, CpuWorker *worker)
{
	Mirror	   *mirror = job->entry->mirror;
	Placing		placing = {.job = job, .mirror = mirror};
	uint32_t	count = 0;
	EngineStatus status = check_open(job);

	if (status != ENGINE_OK)
		return status;
	job->link.slots = placing.slots =
		mirror_collect_pending(mirror, job->in.slots, job->in.count, atomic_load(&mirror->rows),
							   &count);
	status = ENGINE_NO_MEMORY;
	atomic_store(&job->watch.total, count);
	if (placing.slots != NULL && result_begin(job, count) && placing_begin(&placing))
	{
		placing.numbers = (uint32_t *) job->link.rows;
		placing.codes = (unsigned char *) job->link.codes;
		status = place_all(&placing, count, true, worker, &job->link.count);
		for (uint32_t i = 0; i < job->link.count; i++)
			bit64_set((uint64_t *) job->link.linked, i);
	}
	if (status == ENGINE_OK)
		lists_encode(job, worker);
	placing_end(&placing);
	if (status != ENGINE_OK)
		engine_error(&job->error, status, "linking of %u rows ended after %u, %s", count,
					 job->link.count,
					 status == ENGINE_CANCELLED ? "cancelled" : "for lack of memory");
	return status;
}

/* Copy the lists that the caller names; dead slots are in none. */
static EngineStatus
copy_numbers(const CpuJob *job, Placing *placing, EngineError *error)
{
	const Mirror *mirror = placing->mirror;
	uint32_t	rows = atomic_load(&mirror->rows);

	for (uint32_t i = 0; i < job->in.count; i++)
	{
		uint32_t	slot = job->in.slots[i];
		uint32_t	number = job->in.rows[i];

		if (slot >= rows || (number >= mirror->lists->count && number != NO_SLOT))
			return engine_error(error, ENGINE_INVALID, "slot %u or list %u is not below %u or %u",
								slot, number, rows, mirror->lists->count);
		/* one that has a place already has */
		if ((mirror_word(mirror, slot) & WORD_DEAD) ||
			(atomic_load(mirror_row(mirror, slot)) == number && lists_has_place(mirror, slot)))
			number = NO_SLOT;
		placing->numbers[i] = number;
	}
	return ENGINE_OK;
}

/* JOB_GRAPH: add slots to the lists in which the pages have them. */
EngineStatus
lists_load(CpuJob *job, CpuWorker *worker)
{
	Placing		placing = {.job = job, .mirror = job->entry->mirror, .slots = job->in.slots};
	EngineStatus status = check_open(job);
	uint32_t	done;

	if (status != ENGINE_OK)
		return status;
	placing.numbers = malloc((size_t) job->in.count * sizeof(uint32_t) + 1);
	status = placing.numbers != NULL && placing_begin(&placing) ? ENGINE_OK : ENGINE_NO_MEMORY;
	if (status == ENGINE_OK)
		status = copy_numbers(job, &placing, &job->error);
	if (status == ENGINE_OK)
		status = place_all(&placing, job->in.count, false, worker, &done);
	if (status == ENGINE_OK)
		lists_encode(job, worker);
	if (status == ENGINE_NO_MEMORY || status == ENGINE_CANCELLED)
		engine_error(&job->error, status, "%u rows did not get into lists", job->in.count);
	placing_end(&placing);
	free(placing.numbers);
	return status;
}
