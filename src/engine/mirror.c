/*
 * mirror.c
 *		Storage of a mirror: chunks, budget, and the changes that jobs make.
 *
 * A change writes its data first and publishes last: words and bits after
 * vectors, counts after words, the list position after everything.
 */
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/bits.h"
#include "engine/mirror.h"

#define CHUNK_BYTES			((size_t) 4 << 20)	/* a chunk is at most this large, where 64 slots
												 * allow it */
#define CHUNK_MIN_SHIFT		6		/* a chunk has whole words of the pending map */
#define CHUNK_MAX_SHIFT		16
#define TABLE_PAGE			4096
#define HUGE_PAGE			((size_t) 2 << 20)	/* searches jump about: fewer translations to
												 * miss */
#define PREFETCH_AHEAD		12		/* vectors asked for before the one that is read */
#define BREATHE_ROWS		256		/* rows a job copies between looks at waiting queries */

static size_t
slots_of_chunk(const Mirror *mirror)
{
	return (size_t) 1 << mirror->chunk_shift;
}

static size_t
chunk_vector_bytes(const Mirror *mirror)
{
	return align_up(slots_of_chunk(mirror) * mirror->vector_stride);
}

/* Graph rows, words, the pending map and the chunk's head. */
static size_t
chunk_graph_bytes(const Mirror *mirror)
{
	size_t		slots = slots_of_chunk(mirror);

	return align_up(slots * mirror->spec.degree * sizeof(uint32_t)) +
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
 * What an empty mirror takes: of its tables, which are made as large as they
 * can become, the first pages.
 */
static size_t
head_bytes(void)
{
	return sizeof(Mirror) + 2 * TABLE_PAGE;
}

/*
 * What a chunk adds to the pages of the tables in use: its pointer, and a seed
 * for 64 slots.
 */
static size_t
chunk_table_bytes(const Mirror *mirror)
{
	return sizeof(MirrorChunk *) + slots_of_chunk(mirror) / 64 * sizeof(uint32_t);
}

/*
 * A table of zeros whose pages take memory when they are first written:
 * thousands of small mirrors must not pay for what they could become. NULL: no
 * memory.
 */
static void *
table_make(size_t bytes)
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

/* The sum of all that a budget counts. */
uint64_t
budget_used(MemoryBudget *budget)
{
	return atomic_load(&budget->vectors) + atomic_load(&budget->graph) +
		   atomic_load(&budget->norms) + atomic_load(&budget->state);
}

/* Count so many chunks more (or fewer) of a mirror. */
static void
budget_count(Mirror *mirror, int64_t chunks)
{
	MemoryBudget *budget = mirror->budget;

	atomic_fetch_add(&budget->vectors, (uint64_t) (chunks * (int64_t) chunk_vector_bytes(mirror)));
	atomic_fetch_add(&budget->graph, (uint64_t) (chunks * (int64_t) chunk_graph_bytes(mirror)));
	atomic_fetch_add(&budget->norms, (uint64_t) (chunks * (int64_t) chunk_norm_bytes(mirror)));
	atomic_fetch_add(&budget->state, (uint64_t) (chunks * (int64_t) chunk_table_bytes(mirror)));
	mirror->charged = (uint32_t) (mirror->charged + chunks);
}

/*
 * Take chunks from the budget so that the mirror holds `chunks`; refuses with
 * figures. Two mirrors that grow at once could each pass the comparison, so it
 * is made on the sum after taking, and undone.
 */
static bool
budget_take(Mirror *mirror, uint32_t chunks, EngineError *error)
{
	MemoryBudget *budget = mirror->budget;
	uint32_t	more = chunks - mirror->charged;
	uint64_t	used;

	if (chunks <= mirror->charged)
		return true;
	used = budget_used(budget);
	budget_count(mirror, more);
	if (budget_used(budget) <= budget->limit)
		return true;
	budget_count(mirror, -(int64_t) more);
	engine_error(error, ENGINE_NO_MEMORY,
				 "%llu more bytes of mirror do not fit: %llu of %llu are in use",
				 (unsigned long long) more * chunk_bytes(mirror), (unsigned long long) used,
				 (unsigned long long) budget->limit);
	return false;
}

/* How many chunks hold so many slots. */
static uint32_t
chunks_for(const Mirror *mirror, uint64_t slots)
{
	return (uint32_t) ((slots + slots_of_chunk(mirror) - 1) >> mirror->chunk_shift);
}

/*
 * Choose how many slots a chunk has, and how many chunks there can be under the
 * limit.
 */
static void
choose_chunks(Mirror *mirror)
{
	uint64_t	most;

	mirror->chunk_shift = CHUNK_MIN_SHIFT;
	while (mirror->chunk_shift < CHUNK_MAX_SHIFT &&
		   slots_of_chunk(mirror) < mirror->spec.capacity && chunk_bytes(mirror) * 2 <= CHUNK_BYTES)
		mirror->chunk_shift++;
	/*
	 * a mirror that starts small may grow large: do not let its chunks be tiny
	 */
	while (mirror->chunk_shift < 10 && chunk_bytes(mirror) * 2 <= CHUNK_BYTES / 16)
		mirror->chunk_shift++;
	most = mirror->budget->limit / chunk_bytes(mirror) + 1;
	if (most > chunks_for(mirror, ENGINE_MAX_SLOTS))
		most = chunks_for(mirror, ENGINE_MAX_SLOTS);
	mirror->max_chunks = (uint32_t) most;
}

/*
 * Lay out a mirror of this specification: the strides, the size of its chunks.
 */
static void
shape_mirror(Mirror *mirror, const MirrorSpec *spec, MemoryBudget *budget)
{
	mirror->spec = *spec;
	mirror->budget = budget;
	mirror->vector_bytes = engine_vector_bytes(spec->type, spec->dims);
	mirror->vector_stride = mirror->vector_bytes >= 4 * ALIGNMENT ? align_up(mirror->vector_bytes) :
		(mirror->vector_bytes + 3) / 4 * 4;
	choose_chunks(mirror);
}

/*
 * Bytes that an empty mirror of this specification would count
 * (MirrorInfo.bytes).
 */
uint64_t
cpu_engine_mirror_bytes(const MirrorSpec *spec)
{
	MemoryBudget budget = {.limit = UINT64_MAX};
	Mirror		mirror = {0};

	shape_mirror(&mirror, spec, &budget);
	return (uint64_t) chunks_for(&mirror, spec->capacity) * chunk_bytes(&mirror);
}

/*
 * Create an empty mirror whose capacity is taken from the budget; NULL and
 * *error when it does not fit.
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
	shape_mirror(mirror, spec, budget);
	if (!budget_take(mirror, chunks_for(mirror, spec->capacity), error))
	{
		free(mirror);
		return NULL;
	}
	mirror->chunks = table_make(mirror->max_chunks * sizeof(*mirror->chunks));
	mirror->seeds = table_make(SEEDS_MAX * sizeof(*mirror->seeds));
	atomic_fetch_add(&budget->state, head_bytes());
	if (mirror->chunks == NULL || mirror->seeds == NULL)
	{
		mirror_free(mirror);
		engine_error(error, ENGINE_NO_MEMORY, "out of memory");
		return NULL;
	}
	return mirror;
}

/* Free a mirror that nobody uses any more. */
void
mirror_free(Mirror *mirror)
{
	for (uint32_t i = 0; mirror->chunks != NULL && i < mirror->nchunks; i++)
		free(atomic_load(&mirror->chunks[i]));
	budget_count(mirror, -(int64_t) mirror->charged);
	atomic_fetch_sub(&mirror->budget->state, head_bytes());
	table_free(mirror->chunks, mirror->max_chunks * sizeof(*mirror->chunks));
	table_free(mirror->seeds, SEEDS_MAX * sizeof(*mirror->seeds));
	free(mirror);
}

/* Bytes of vectors, graph, norms and versions, as the budget counts them. */
uint64_t
mirror_bytes(const Mirror *mirror)
{
	return (uint64_t) mirror->charged * chunk_bytes(mirror);
}

void *
mirror_memory(size_t bytes)
{
	void	   *memory;

	if (posix_memalign(&memory, bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT, bytes) != 0)
		return NULL;
	if (bytes >= HUGE_PAGE)
		(void) madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
	return memory;
}

/*
 * Allocate one chunk: every part of it zero, graph rows are emptied when slots
 * are published.
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
	memory += chunk_vector_bytes(mirror);
	chunk->rows = (_Atomic uint32_t *) memory;
	memory += rows_bytes;
	chunk->words = (_Atomic uint64_t *) memory;
	memory += words_bytes;
	chunk->pending_map = (_Atomic uint64_t *) memory;
	memory += align_up(slots / 8);
	if (metric_has_norms(mirror->spec.metric))
		chunk->scales = (_Atomic float *) memory;
	return chunk;
}

/* Make room for slots below `slots`. */
static EngineStatus
mirror_reserve(Mirror *mirror, uint64_t slots, EngineError *error)
{
	uint32_t	chunks = chunks_for(mirror, slots);

	if (chunks > mirror->max_chunks)
	{
		engine_error(error, ENGINE_NO_MEMORY, "%llu slots do not fit into %llu bytes",
					 (unsigned long long) slots, (unsigned long long) mirror->budget->limit);
		return ENGINE_NO_MEMORY;
	}
	if (!budget_take(mirror, chunks, error))
		return ENGINE_NO_MEMORY;
	while (mirror->nchunks < chunks)
	{
		MirrorChunk *chunk = chunk_create(mirror);

		if (chunk == NULL)
		{
			engine_error(error, ENGINE_NO_MEMORY, "out of memory for a chunk of %zu bytes",
						 chunk_bytes(mirror));
			return ENGINE_NO_MEMORY;
		}
		atomic_store_explicit(&mirror->chunks[mirror->nchunks++], chunk, memory_order_release);
	}
	return ENGINE_OK;
}

/*
 * What is kept of a vector's norm: for cosine its reciprocal (infinity for a
 * zero vector, whose distances then are infinite), for inner products the norm
 * itself (it bounds the fast distance's error), for the others nothing.
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
 * Fast distances of many slots; vectors are asked for well before they are
 * read.
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

/* Read a slot's exact distance to a vector and the word that goes with it. */
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
		sched_yield();			/* the writer is between two stores */
	}
}

/* Copy a graph row; returns how many neighbours, all below rows. */
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
		if (neighbour < rows)	/* a row written since may name slots that this reader does not
								 * know */
			neighbours[count++] = neighbour;
	}
	return count;
}

/*
 * Replace a graph row. A reader may see a mixture of old and new: each
 * neighbour is a good one.
 */
void
mirror_write_row(const Mirror *mirror, uint32_t slot, const uint32_t *neighbours, uint32_t count)
{
	_Atomic uint32_t *row = mirror_row(mirror, slot);

	for (uint32_t i = 0; i < mirror->spec.degree; i++)
		atomic_store_explicit(&row[i], i < count ? neighbours[i] : NO_SLOT, memory_order_relaxed);
}

static void
set_word(Mirror *mirror, uint32_t slot, uint64_t word)
{
	atomic_store_explicit(&mirror_chunk(mirror, slot)->words[mirror_place(mirror, slot)], word,
						  memory_order_release);
}

/* Set or clear a slot's bit in the pending map and keep the counts. */
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

/* Replace a slot's word and keep the counts of what its flags mean. */
static void
change_word(Mirror *mirror, uint32_t slot, uint64_t old, uint64_t word)
{
	bool		unpend = (old & WORD_PENDING) && !(word & WORD_PENDING);

	if (unpend)
		set_pending(mirror, slot, false);
	set_word(mirror, slot, word);
	if ((word & WORD_PENDING) && !(old & WORD_PENDING))
		set_pending(mirror, slot, true);
	if ((old ^ word) & WORD_LINKED)
		atomic_fetch_add(&mirror->linked, (word & WORD_LINKED) ? 1 : (uint32_t) -1);
	if ((old ^ word) & WORD_DEAD)
		atomic_fetch_add(&mirror->dead, (word & WORD_DEAD) ? 1 : (uint32_t) -1);
}

/* Store a slot's vector and norm. */
static void
write_vector(Mirror *mirror, uint32_t slot, const void *vector)
{
	MirrorChunk *chunk = mirror_chunk(mirror, slot);
	uint32_t	place = mirror_place(mirror, slot);

	memcpy(chunk->vectors + (size_t) place * mirror->vector_stride, vector, mirror->vector_bytes);
	if (chunk->scales != NULL)
		atomic_store_explicit(&chunk->scales[place], mirror_vector_scale(mirror, vector),
							  memory_order_relaxed);
}

static void
mirror_breathe(JobWatch *watch, uint32_t done)
{
	atomic_store_explicit(&watch->done, done, memory_order_relaxed);
	if (done % BREATHE_ROWS == 0)
		watch->breathe(watch->context);
}

static bool
is_marked(const uint64_t *bits, uint32_t i)
{
	return bits != NULL && bit64_is_set(bits, i);
}

/*
 * Append rows: written in full beyond the published count, then published by
 * it.
 */
EngineStatus
mirror_append(Mirror *mirror, const EngineJob *job, JobWatch *watch, EngineError *error)
{
	uint32_t	rows = atomic_load(&mirror->rows);
	uint64_t	end = (uint64_t) job->first_slot + job->count;
	EngineStatus status;

	if (job->first_slot < rows || end > ENGINE_MAX_SLOTS)
	{
		engine_error(error, ENGINE_INVALID, "rows %u to %llu cannot be appended to %u",
					 job->first_slot, (unsigned long long) end, rows);
		return ENGINE_INVALID;
	}
	status = mirror_reserve(mirror, end, error);
	if (status != ENGINE_OK)
		return status;
	for (uint32_t slot = rows; slot < end; slot++)
	{
		uint32_t	i = slot - job->first_slot;
		uint64_t	word = WORD_DEAD | WORD_ABSENT;

		if (slot >= job->first_slot)
		{
			write_vector(mirror, slot, (const char *) job->vectors + i * mirror->vector_bytes);
			word = job->versions[i] | (is_marked(job->dead, i) ? WORD_DEAD : WORD_PENDING);
			mirror_breathe(watch, i);
		}
		mirror_write_row(mirror, slot, NULL, 0);
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
		{
			engine_error(error, ENGINE_INVALID, "slot %u is not below the %u published",
						 job->slots[i], rows);
			return ENGINE_INVALID;
		}
	return ENGINE_OK;
}

/*
 * Give published slots new vectors and versions; they become pending. Their
 * graph rows stay and route until they are linked.
 */
EngineStatus
mirror_overwrite(Mirror *mirror, const EngineJob *job, JobWatch *watch, EngineError *error)
{
	EngineStatus status = check_slots(mirror, job, error);

	for (uint32_t i = 0; status == ENGINE_OK && i < job->count; i++)
	{
		uint32_t	slot = job->slots[i];
		uint64_t	old = mirror_word(mirror, slot);
		uint64_t	word = ((old & WORD_CHANGES) + WORD_CHANGE) | job->versions[i] | WORD_PENDING;

		set_word(mirror, slot, old | WORD_WRITING);
		write_fence();
		write_vector(mirror, slot, (const char *) job->vectors + i * mirror->vector_bytes);
		change_word(mirror, slot, old, word);
		mirror_breathe(watch, i);
	}
	return status;
}

/* Let slots die. */
EngineStatus
mirror_kill(Mirror *mirror, const EngineJob *job, JobWatch *watch, EngineError *error)
{
	EngineStatus status = check_slots(mirror, job, error);

	for (uint32_t i = 0; status == ENGINE_OK && i < job->count; i++)
	{
		uint64_t	old = mirror_word(mirror, job->slots[i]);

		change_word(mirror, job->slots[i], old,
					(old & (WORD_CHANGES | WORD_LINKED | WORD_ABSENT)) | WORD_DEAD |
						job->versions[i]);
		mirror_breathe(watch, i);
	}
	return status;
}

/* Take over graph rows that pages have. */
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
		mirror_breathe(watch, i);
	}
	return status;
}

/* A slot becomes linked, and is not pending any more. */
void
mirror_mark_linked(Mirror *mirror, uint32_t slot)
{
	uint64_t	old = mirror_word(mirror, slot);

	change_word(mirror, slot, old, (old | WORD_LINKED) & ~WORD_PENDING);
}

/* Replace the seeds; slots that are not published are left out. */
EngineStatus
mirror_set_seeds(Mirror *mirror, const uint32_t *slots, uint32_t count, EngineError *error)
{
	uint32_t	rows = atomic_load(&mirror->rows);
	uint32_t	old = atomic_load(&mirror->nseeds);
	uint32_t	kept = 0;

	if (count > SEEDS_MAX)
	{
		engine_error(error, ENGINE_INVALID, "%u seeds are more than %d", count, SEEDS_MAX);
		return ENGINE_INVALID;
	}
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
