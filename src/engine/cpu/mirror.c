/*
 * mirror.c
 *		Storage of a mirror: chunks, memory budget, and the changes that jobs
 *		make.
 *
 * A change writes data first and publishes last: state words and bits after
 * vectors, counts after words, the pending list position after everything.
 */
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/bits.h"
#include "engine/select.h"
#include "engine/cpu/lists.h"
#include "engine/cpu/row_filters.h"

#define CHUNK_BYTES			((size_t) 4 << 20)	/* most bytes of a chunk, if it has more than 64
												 * slots */
#define CHUNK_MIN_SHIFT		6		/* a chunk has whole words of the pending map */
#define CHUNK_MAX_SHIFT		16
#define TABLE_PAGE			4096
#define PREFETCH_AHEAD		12		/* prefetch distance, in vectors */
#define YIELD_ROWS			256		/* rows that a job copies between checks for waiting queries */

static size_t
slots_of_chunk(const Mirror *mirror)
{
	return (size_t) 1 << mirror->chunk_shift;
}

static size_t
chunk_record_bytes(const Mirror *mirror)
{
	return align_up(slots_of_chunk(mirror) * mirror->record_bytes);
}

/* Vectors and their columns. */
static size_t
chunk_vector_bytes(const Mirror *mirror)
{
	return align_up(slots_of_chunk(mirror) * mirror->vector_stride) + chunk_record_bytes(mirror);
}

/* Places in lists. */
static size_t
chunk_place_bytes(const Mirror *mirror)
{
	return mirror->spec.method == METHOD_IVFPQ ? align_up(slots_of_chunk(mirror) * sizeof(uint32_t))
											   : 0;
}

/* Graph rows, places, state words, pending map and chunk header. */
static size_t
chunk_graph_bytes(const Mirror *mirror)
{
	size_t		slots = slots_of_chunk(mirror);

	return align_up(slots * mirror->spec.degree * sizeof(uint32_t)) + chunk_place_bytes(mirror) +
		   align_up(slots * sizeof(uint64_t)) + align_up(slots / 8) + align_up(sizeof(MirrorChunk));
}

static size_t
chunk_norm_bytes(const Mirror *mirror)
{
	return metric_has_norms(mirror->spec.metric) ? align_up(slots_of_chunk(mirror) * sizeof(float))
												 : 0;
}

static size_t
chunk_bytes(const Mirror *mirror)
{
	return chunk_vector_bytes(mirror) + chunk_graph_bytes(mirror) + chunk_norm_bytes(mirror);
}

/*
 * Bytes of an empty mirror. Its tables are allocated at their maximum size, but
 * only their first pages are counted.
 */
static size_t
mirror_head_bytes(void)
{
	return sizeof(Mirror) + 2 * TABLE_PAGE;
}

/*
 * Bytes of the tables that a chunk makes use of: its pointer, and a seed per 64
 * slots.
 */
static size_t
chunk_table_bytes(const Mirror *mirror)
{
	return sizeof(MirrorChunk *) + slots_of_chunk(mirror) / 64 * sizeof(uint32_t);
}

/*
 * Map a zeroed table whose pages are allocated at the first write, so that
 * thousands of small mirrors do not pay for their maximum size. Returns NULL if
 * out of memory.
 */
static void *
table_map(size_t bytes)
{
	void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return table != MAP_FAILED ? table : NULL;
}

static void
table_free(void *table, size_t bytes)
{
	if (table != NULL)
		munmap(table, bytes);
}

/* Add a number of chunks, which may be negative, to the budget. */
static void
budget_add(Mirror *mirror, int64_t chunks)
{
	MemoryBudget *budget = mirror->budget;

	atomic_fetch_add(&budget->vectors, (uint64_t) (chunks * (int64_t) chunk_vector_bytes(mirror)));
	atomic_fetch_add(&budget->graph, (uint64_t) (chunks * (int64_t) chunk_graph_bytes(mirror)));
	atomic_fetch_add(&budget->norms, (uint64_t) (chunks * (int64_t) chunk_norm_bytes(mirror)));
	atomic_fetch_add(&budget->state, (uint64_t) (chunks * (int64_t) chunk_table_bytes(mirror)));
	mirror->charged = (uint32_t) (mirror->charged + chunks);
}

/*
 * Charge the budget so that the mirror may have `chunks` chunks; on failure
 * *error has the figures. Mirrors may grow concurrently, so the sum is compared
 * with the limit after charging, and the charge is undone if it exceeds it.
 */
static bool
budget_charge(Mirror *mirror, uint32_t chunks, EngineError *error)
{
	MemoryBudget *budget = mirror->budget;
	uint32_t	more = chunks - mirror->charged;
	uint64_t	used;

	if (chunks <= mirror->charged)
		return true;
	used = budget_used(budget);
	budget_add(mirror, more);
	/* What is cached gives way to rows. */
	if (budget_used(budget) <= budget->limit ||
		(row_filters_shrink(mirror) && budget_used(budget) <= budget->limit))
		return true;
	budget_add(mirror, -(int64_t) more);
	engine_error(error, ENGINE_NO_MEMORY,
				 "%llu more bytes of mirror do not fit: %llu of %llu are in use",
				 (unsigned long long) more * chunk_bytes(mirror), (unsigned long long) used,
				 (unsigned long long) budget->limit);
	return false;
}

/* Number of chunks for a number of slots. */
static uint32_t
chunks_for(const Mirror *mirror, uint64_t slots)
{
	return (uint32_t) ((slots + slots_of_chunk(mirror) - 1) >> mirror->chunk_shift);
}

/*
 * Choose the number of slots per chunk, and the maximum number of chunks under
 * the limit.
 */
static void
choose_chunks(Mirror *mirror)
{
	uint64_t	most;

	mirror->chunk_shift = CHUNK_MIN_SHIFT;
	while (mirror->chunk_shift < CHUNK_MAX_SHIFT &&
		   slots_of_chunk(mirror) < mirror->spec.capacity && chunk_bytes(mirror) * 2 <= CHUNK_BYTES)
		mirror->chunk_shift++;
	/* avoid tiny chunks, as a small mirror may grow large */
	while (mirror->chunk_shift < 10 && chunk_bytes(mirror) * 2 <= CHUNK_BYTES / 16)
		mirror->chunk_shift++;
	most = mirror->budget->limit / chunk_bytes(mirror) + 1;
	if (most > chunks_for(mirror, ENGINE_MAX_SLOTS))
		most = chunks_for(mirror, ENGINE_MAX_SLOTS);
	mirror->max_chunks = (uint32_t) most;
}

/* Compute the layout of a mirror: strides and chunk size. */
static void
mirror_layout(Mirror *mirror, const MirrorSpec *spec, MemoryBudget *budget)
{
	mirror->spec = *spec;
	mirror->budget = budget;
	mirror->vector_bytes = engine_vector_bytes(spec->type, spec->dims);
	mirror->vector_stride = mirror->vector_bytes >= 4 * ALIGNMENT ? align_up(mirror->vector_bytes) :
		(mirror->vector_bytes + 3) / 4 * 4;
	mirror->record_bytes =
		spec->columns > 0 ? filter_record_bytes(spec->column_kinds, spec->columns) : 0;
	choose_chunks(mirror);
}

/*
 * Bytes that an empty mirror of this specification is charged
 * (MirrorInfo.bytes).
 */
uint64_t
cpu_engine_mirror_bytes(const MirrorSpec *spec)
{
	MemoryBudget budget = {.limit = UINT64_MAX};
	Mirror		mirror = {0};

	mirror_layout(&mirror, spec, &budget);
	return (uint64_t) chunks_for(&mirror, spec->capacity) * chunk_bytes(&mirror) +
		   (spec->method == METHOD_IVFPQ ? lists_create_bytes(spec) : 0);
}

/*
 * Create an empty mirror and charge its capacity to the budget. Returns NULL
 * and sets *error if it does not fit.
 */
Mirror *
mirror_create(const MirrorSpec *spec, const DistanceKernels *kernels, MemoryBudget *budget,
			  EngineError *error)
{
	Mirror	   *mirror = calloc(1, sizeof(*mirror));

	if (mirror == NULL)
	{
		engine_error(error, ENGINE_NO_MEMORY, "out of memory");
		return NULL;
	}
	mirror->kernels = kernels;
	mirror_layout(mirror, spec, budget);
	if (!budget_charge(mirror, chunks_for(mirror, spec->capacity), error))
	{
		free(mirror);
		return NULL;
	}
	mirror->chunks = table_map(mirror->max_chunks * sizeof(*mirror->chunks));
	mirror->seeds = table_map(SEEDS_MAX * sizeof(*mirror->seeds));
	atomic_fetch_add(&budget->state, mirror_head_bytes());
	if (spec->method == METHOD_IVFPQ && !lists_create(mirror, error))
	{
		mirror_free(mirror);
		return NULL;
	}
	if (mirror->chunks == NULL || mirror->seeds == NULL ||
		(spec->columns > 0 && !row_filters_create(mirror)))
	{
		mirror_free(mirror);
		engine_error(error, ENGINE_NO_MEMORY, "out of memory");
		return NULL;
	}
	return mirror;
}

/* Free a mirror that is no longer in use. */
void
mirror_free(Mirror *mirror)
{
	for (uint32_t i = 0; mirror->chunks != NULL && i < mirror->nchunks; i++)
		free(atomic_load(&mirror->chunks[i]));
	lists_free(mirror);
	row_filters_free(mirror);
	budget_add(mirror, -(int64_t) mirror->charged);
	atomic_fetch_sub(&mirror->budget->state, mirror_head_bytes());
	table_free(mirror->chunks, mirror->max_chunks * sizeof(*mirror->chunks));
	table_free(mirror->seeds, SEEDS_MAX * sizeof(*mirror->seeds));
	free(mirror->deferred);
	free(mirror);
}

/* Bytes of vectors, columns, graph, norms and versions, as charged to the budget. */
uint64_t
mirror_bytes(const Mirror *mirror)
{
	return (uint64_t) mirror->charged * chunk_bytes(mirror) +
		   (mirror->lists != NULL ? lists_bytes(mirror->lists) : 0);
}

/*
 * Allocate one chunk, zeroed. Graph rows are initialized when slots are
 * published.
 */
static MirrorChunk *
chunk_create(const Mirror *mirror)
{
	size_t		slots = slots_of_chunk(mirror);
	size_t		rows_bytes = align_up(slots * mirror->spec.degree * sizeof(uint32_t));
	size_t		words_bytes = align_up(slots * sizeof(uint64_t));
	char	   *memory = mirror_memory(chunk_bytes(mirror));
	MirrorChunk *chunk;

	if (memory == NULL)
		return NULL;
	memset(memory, 0, chunk_bytes(mirror));
	chunk = (MirrorChunk *) memory;
	memory += align_up(sizeof(MirrorChunk));
	chunk->vectors = memory;
	if (mirror->record_bytes > 0)
		chunk->records = memory + (chunk_vector_bytes(mirror) - chunk_record_bytes(mirror));
	memory += chunk_vector_bytes(mirror);
	chunk->rows = (_Atomic uint32_t *) memory;
	memory += rows_bytes;
	if (chunk_place_bytes(mirror) > 0)
		chunk->places = (_Atomic uint32_t *) memory;
	memory += chunk_place_bytes(mirror);
	chunk->words = (_Atomic uint64_t *) memory;
	memory += words_bytes;
	chunk->pending_map = (_Atomic uint64_t *) memory;
	memory += align_up(slots / 8);
	if (metric_has_norms(mirror->spec.metric))
		chunk->scales = (_Atomic float *) memory;
	return chunk;
}

/* Allocate chunks for slots below `slots`. */
static EngineStatus
mirror_reserve(Mirror *mirror, uint64_t slots, EngineError *error)
{
	uint32_t	chunks = chunks_for(mirror, slots);

	if (chunks > mirror->max_chunks)
		return engine_error(error, ENGINE_NO_MEMORY, "%llu slots do not fit into %llu bytes",
							(unsigned long long) slots, (unsigned long long) mirror->budget->limit);
	if (!budget_charge(mirror, chunks, error))
		return ENGINE_NO_MEMORY;
	while (mirror->nchunks < chunks)
	{
		MirrorChunk *chunk = chunk_create(mirror);

		if (chunk == NULL)
			return engine_error(error, ENGINE_NO_MEMORY, "out of memory for a chunk of %zu bytes",
								chunk_bytes(mirror));
		atomic_store_explicit(&mirror->chunks[mirror->nchunks++], chunk, memory_order_release);
	}
	return ENGINE_OK;
}

/*
 * The scale stored with a vector: for cosine the reciprocal of its norm
 * (infinity for a zero vector, whose distances are infinite), for inner product
 * the norm, which bounds the fast distance's error, else 1.
 */
float
mirror_vector_scale(const Mirror *mirror, const void *vector)
{
	float		norm;

	if (!metric_has_norms(mirror->spec.metric))
		return 1.0f;
	norm = sqrtf(mirror->kernels->squared_norm(vector, mirror->spec.dims));
	return mirror->spec.metric == METRIC_COSINE ? 1.0f / norm : norm;
}

/*
 * Fast distances of many slots, prefetching vectors PREFETCH_AHEAD in advance.
 */
void
mirror_fast_many(const Mirror *mirror, const WideVector *query, const uint32_t *slots,
				 uint32_t count, double *out)
{
	const void *vectors[ENGINE_MAX_DEGREE];
	bool		norms = metric_has_norms(mirror->spec.metric);

	for (uint32_t i = 0; i < count + PREFETCH_AHEAD; i++)
	{
		if (i < count)
		{
			vectors[i] = mirror_vector(mirror, slots[i]);
			mirror_prefetch_vector(mirror, vectors[i]);
		}
		if (i >= PREFETCH_AHEAD)
		{
			uint32_t	ready = i - PREFETCH_AHEAD;
			float		scale = norms ? query->scale * mirror_scale(mirror, slots[ready]) : 1.0f;

			out[ready] =
				mirror->kernels->fast(query->elements, vectors[ready], mirror->spec.dims, scale);
		}
	}
}

/*
 * Compute a slot's exact distance to a vector, and return in *word the state
 * word of the version measured.
 */
double
mirror_exact(const Mirror *mirror, const void *vector, uint32_t slot, uint64_t *word)
{
	double		distance;

	for (;;)
	{
		*word = mirror_word(mirror, slot);
		distance = mirror->kernels->exact(vector, mirror_vector(mirror, slot), mirror->spec.dims);
		if (mirror_unchanged(mirror, slot, *word))
			return distance;
		sched_yield();			/* the slot is being overwritten */
	}
}

/*
 * Copy a graph row without neighbours at or above rows. Returns the number of
 * neighbours.
 */
uint32_t
mirror_read_row(const Mirror *mirror, uint32_t slot, uint32_t rows, uint32_t *neighbours)
{
	_Atomic uint32_t *row = mirror_row(mirror, slot);
	uint32_t	count = 0;

	for (uint32_t i = 0; i < mirror->spec.degree; i++)
	{
		uint32_t	neighbour = atomic_load_explicit(&row[i], memory_order_relaxed);

		if (neighbour == NO_SLOT)
			break;
		if (neighbour < rows)	/* the row may have been written since, with slots the reader does
								 * not know */
			neighbours[count++] = neighbour;
	}
	return count;
}

static void
mirror_set_word(Mirror *mirror, uint32_t slot, uint64_t word)
{
	atomic_store_explicit(&mirror_chunk(mirror, slot)->words[mirror_place(mirror, slot)], word,
						  memory_order_release);
}

/* Set or clear a slot's bit in the pending map, and maintain the counts. */
static void
set_pending(Mirror *mirror, uint32_t slot, bool pending)
{
	MirrorChunk *chunk = mirror_chunk(mirror, slot);
	uint32_t	place = mirror_place(mirror, slot);
	uint64_t	bit = UINT64_C(1) << (place & 63);

	if (pending)
	{
		atomic_fetch_add_explicit(&chunk->pending, 1, memory_order_relaxed);
		atomic_fetch_or_explicit(&chunk->pending_map[place / 64], bit, memory_order_release);
		atomic_fetch_add_explicit(&mirror->pending, 1, memory_order_release);
	}
	else
	{
		atomic_fetch_and_explicit(&chunk->pending_map[place / 64], ~bit, memory_order_release);
		atomic_fetch_sub_explicit(&chunk->pending, 1, memory_order_relaxed);
		atomic_fetch_sub_explicit(&mirror->pending, 1, memory_order_release);
	}
}

/* Replace a slot's state word, and maintain the counts of its flags. */
static void
change_word(Mirror *mirror, uint32_t slot, uint64_t old, uint64_t word)
{
	bool		unpend = (old & WORD_PENDING) && !(word & WORD_PENDING);

	if (unpend)
		set_pending(mirror, slot, false);
	mirror_set_word(mirror, slot, word);
	if ((word & WORD_PENDING) && !(old & WORD_PENDING))
		set_pending(mirror, slot, true);
	if ((old ^ word) & WORD_LINKED)
		atomic_fetch_add(&mirror->linked, (word & WORD_LINKED) ? 1 : (uint32_t) -1);
	if ((old ^ word) & WORD_DEAD)
		atomic_fetch_add(&mirror->dead, (word & WORD_DEAD) ? 1 : (uint32_t) -1);
}

/* Store row i of a job: its vector, norm and columns. */
static void
write_vector(Mirror *mirror, uint32_t slot, const EngineJob *job, uint32_t i)
{
	MirrorChunk *chunk = mirror_chunk(mirror, slot);
	uint32_t	place = mirror_place(mirror, slot);
	const char *vector = (const char *) job->vectors + i * mirror->vector_bytes;

	if (mirror->record_bytes > 0)
		memcpy(chunk->records + place * mirror->record_bytes,
			   (const char *) job->columns + i * mirror->record_bytes, mirror->record_bytes);
	memcpy(chunk->vectors + (size_t) place * mirror->vector_stride, vector, mirror->vector_bytes);
	if (chunk->scales != NULL)
		atomic_store_explicit(&chunk->scales[place], mirror_vector_scale(mirror, vector),
							  memory_order_relaxed);
}

static void
job_progress(JobWatch *watch, uint32_t done)
{
	atomic_store_explicit(&watch->done, done, memory_order_relaxed);
	if (done % YIELD_ROWS == 0)
		watch->yield(watch->context);
}

static bool
job_marks(const uint64_t *bits, uint32_t i)
{
	return bits != NULL && bit64_is_set(bits, i);
}

/*
 * Append rows. They are written beyond the published row count, then published
 * by raising it.
 */
EngineStatus
mirror_append(Mirror *mirror, const EngineJob *job, JobWatch *watch, EngineError *error)
{
	uint32_t	rows = atomic_load(&mirror->rows);
	uint64_t	end = (uint64_t) job->first_slot + job->count;
	EngineStatus status;

	if (job->first_slot < rows || end > ENGINE_MAX_SLOTS)
		return engine_error(error, ENGINE_INVALID, "rows %u to %llu cannot be appended to %u",
							job->first_slot, (unsigned long long) end, rows);
	status = mirror_reserve(mirror, end, error);
	if (status != ENGINE_OK)
		return status;
	for (uint32_t slot = rows; slot < end; slot++)
	{
		uint32_t	i = slot - job->first_slot;
		uint64_t	word = WORD_DEAD | WORD_ABSENT;

		if (slot >= job->first_slot)
		{
			write_vector(mirror, slot, job, i);
			word = job->versions[i] | (job_marks(job->dead, i) ? WORD_DEAD : WORD_PENDING);
			job_progress(watch, i);
		}
		mirror_write_row(mirror, slot, NULL, 0);
		if (mirror->lists != NULL)
			atomic_store_explicit(&mirror_chunk(mirror, slot)->places[mirror_place(mirror, slot)],
								  NO_PLACE, memory_order_relaxed);
		change_word(mirror, slot, 0, word);
	}
	if (end > rows)
		atomic_store_explicit(&mirror->rows, (uint32_t) end, memory_order_release);
	return ENGINE_OK;
}

/* Check that a job's slots are published. */
static EngineStatus
check_slots(const Mirror *mirror, const EngineJob *job, EngineError *error)
{
	uint32_t	rows = atomic_load(&mirror->rows);

	for (uint32_t i = 0; i < job->count; i++)
		if (job->slots[i] >= rows)
			return engine_error(error, ENGINE_INVALID, "slot %u is not below the %u published",
								job->slots[i], rows);
	return ENGINE_OK;
}

/*
 * Overwrite published slots with new vectors and versions. They become pending;
 * searches follow their old graph rows until they are linked.
 */
EngineStatus
mirror_overwrite(Mirror *mirror, const EngineJob *job, JobWatch *watch, EngineError *error)
{
	EngineStatus status = check_slots(mirror, job, error);

	if (status == ENGINE_OK)
		row_filters_overwriting(mirror, job->slots, job->count);
	for (uint32_t i = 0; status == ENGINE_OK && i < job->count; i++)
	{
		uint32_t	slot = job->slots[i];
		uint64_t	old = mirror_word(mirror, slot);
		uint64_t	word = ((old & WORD_CHANGES) + WORD_CHANGE) | job->versions[i] | WORD_PENDING;

		if (mirror->lists != NULL)
			lists_forget(mirror, slot);
		mirror_set_word(mirror, slot, old | WORD_WRITING);
		write_fence();
		write_vector(mirror, slot, job, i);
		change_word(mirror, slot, old, word);
		job_progress(watch, i);
	}
	if (status == ENGINE_OK)
		row_filters_overwritten(mirror);
	return status;
}

/* Mark slots dead. */
EngineStatus
mirror_kill(Mirror *mirror, const EngineJob *job, JobWatch *watch, EngineError *error)
{
	EngineStatus status = check_slots(mirror, job, error);

	for (uint32_t i = 0; status == ENGINE_OK && i < job->count; i++)
	{
		uint64_t	old = mirror_word(mirror, job->slots[i]);
		uint64_t	kept = WORD_CHANGES | WORD_ABSENT;

		if (mirror->lists != NULL)
			lists_forget(mirror, job->slots[i]);
		else
			kept |= WORD_LINKED;
		change_word(mirror, job->slots[i], old, (old & kept) | WORD_DEAD | job->versions[i]);
		job_progress(watch, i);
	}
	return status;
}

/* Store graph rows loaded from index pages. */
EngineStatus
mirror_load_graph(Mirror *mirror, const EngineJob *job, JobWatch *watch, EngineError *error)
{
	EngineStatus status = check_slots(mirror, job, error);
	uint32_t	rows = atomic_load(&mirror->rows);
	uint32_t	degree = mirror->spec.degree;

	for (uint32_t i = 0; status == ENGINE_OK && i < job->count; i++)
	{
		uint32_t	neighbours[ENGINE_MAX_DEGREE];
		uint32_t	count = 0;

		for (uint32_t j = 0; j < degree; j++)
		{
			uint32_t	neighbour = job->rows[(size_t) i * degree + j];

			if (neighbour == NO_SLOT)
				break;
			if (neighbour < rows && neighbour != job->slots[i])
				neighbours[count++] = neighbour;
		}
		mirror_write_row(mirror, job->slots[i], neighbours, count);
		mirror_mark_linked(mirror, job->slots[i]);
		job_progress(watch, i);
	}
	return status;
}

/* Mark a slot linked, and no longer pending. */
void
mirror_mark_linked(Mirror *mirror, uint32_t slot)
{
	uint64_t	old = mirror_word(mirror, slot);

	change_word(mirror, slot, old, (old | WORD_LINKED) & ~WORD_PENDING);
}

/* Replace the seeds. Unpublished slots are left out. */
EngineStatus
mirror_set_seeds(Mirror *mirror, const uint32_t *slots, uint32_t count, EngineError *error)
{
	uint32_t	rows = atomic_load(&mirror->rows);
	uint32_t	old = atomic_load(&mirror->nseeds);
	uint32_t	kept = 0;

	if (count > SEEDS_MAX)
		return engine_error(error, ENGINE_INVALID, "%u seeds are more than %d", count, SEEDS_MAX);
	for (uint32_t i = 0; i < count; i++)
	{
		if (slots[i] >= rows)
			continue;
		atomic_store_explicit(&mirror->seeds[kept++], slots[i], memory_order_relaxed);
		if (kept > old)
			atomic_store_explicit(&mirror->nseeds, kept, memory_order_release);
	}
	atomic_store_explicit(&mirror->nseeds, kept, memory_order_release);
	return ENGINE_OK;
}

/* Visit the pending slots of one chunk. */
static void
visit_chunk(const Mirror *mirror, uint32_t number, uint32_t rows, VisitSlot visit, void *context)
{
	MirrorChunk *chunk = atomic_load_explicit(&mirror->chunks[number], memory_order_acquire);
	uint32_t	first = number << mirror->chunk_shift;

	if (atomic_load_explicit(&chunk->pending, memory_order_relaxed) == 0)
		return;
	for (uint32_t i = 0; i < slots_of_chunk(mirror) / 64; i++)
	{
		uint64_t	bits = atomic_load_explicit(&chunk->pending_map[i], memory_order_acquire);

		for (; bits != 0; bits &= bits - 1)
		{
			uint32_t	slot = first + i * 64 + (uint32_t) __builtin_ctzll(bits);

			if (slot < rows)
				visit(context, slot);
		}
	}
}

/* Call visit for every pending slot below rows, in slot order. */
void
mirror_visit_pending(const Mirror *mirror, uint32_t rows, VisitSlot visit, void *context)
{
	uint32_t	chunks = chunks_for(mirror, rows);

	if (atomic_load_explicit(&mirror->pending, memory_order_acquire) == 0)
		return;
	for (uint32_t i = 0; i < chunks; i++)
		visit_chunk(mirror, i, rows, visit, context);
}

/* Slots to collect, and how many there are. */
typedef struct Collected
{
	uint32_t   *slots;
	uint32_t	count;
} Collected;

static void
collect_slot(void *context, uint32_t slot)
{
	Collected  *collected = context;

	collected->slots[collected->count++] = slot;
}

/* Collect pending slots, ascending, each once. */
uint32_t *
mirror_collect_pending(const Mirror *mirror, const uint32_t *slots, uint32_t nslots, uint32_t rows,
					   uint32_t *count)
{
	uint32_t	room = slots != NULL ? nslots : atomic_load(&mirror->pending);
	Collected	collected = {malloc((size_t) room * sizeof(uint32_t) + 1), 0};
	uint32_t	kept = 0;

	if (collected.slots == NULL)
		return NULL;
	if (slots == NULL)
	{
		mirror_visit_pending(mirror, rows, collect_slot, &collected);
		*count = collected.count;
		return collected.slots;
	}
	for (uint32_t i = 0; i < nslots; i++)
		if (slots[i] < rows && (mirror_word(mirror, slots[i]) & WORD_PENDING))
			collect_slot(&collected, slots[i]);
	qsort(collected.slots, collected.count, sizeof(uint32_t), compare_numbers);
	for (uint32_t i = 0; i < collected.count; i++)
		if (i == 0 || collected.slots[i] != collected.slots[i - 1])
			collected.slots[kept++] = collected.slots[i];
	*count = kept;
	return collected.slots;
}
