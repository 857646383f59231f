/*
 * mirror.h
 *		A mirror in the CPU engine's memory: chunks of slots that never move,
 *		one writer, any number of readers.
 *
 * Private to the CPU engine. All data of a slot is in its chunk: vector, graph
 * row, state word, norm, and its bit in the pending map. A chunk is not moved
 * or freed before the mirror is dropped, so a mirror can grow during searches.
 * Jobs of a mirror run one at a time and are its only writer (linking writes
 * graph rows from several threads, each row from one).
 */
#ifndef GPUANN_MIRROR_H
#define GPUANN_MIRROR_H

#include <stdatomic.h>
#include <string.h>

#include "engine/distance.h"
#include "engine/engine.h"
#include "engine/equal_rows.h"
#include "engine/prune.h"

/*
 * A slot's state word: version, flags, and a count of overwrites. A reader that
 * finds the same word before and after reading the vector, apart from LINKED
 * and PENDING, has read a consistent vector of that version.
 */
#define WORD_DEAD			(UINT64_C(1) << 32) /* searches pass through it, but do not return it */
#define WORD_ABSENT			(UINT64_C(1) << 33) /* never had a row; always with WORD_DEAD */
#define WORD_LINKED			(UINT64_C(1) << 34)
#define WORD_PENDING		(UINT64_C(1) << 35)
#define WORD_WRITING		(UINT64_C(1) << 36) /* its vector is being overwritten */
#define WORD_CHANGE			(UINT64_C(1) << 40) /* one overwrite */
#define WORD_CHANGES		(~(WORD_CHANGE - 1))
#define WORD_VERSION(word)	((uint32_t) (word))
#define WORD_IDENTITY		(WORD_CHANGES | WORD_WRITING | UINT64_C(0xFFFFFFFF))

/* Order the reads of a vector before the second read of its state word. */
#ifdef __SANITIZE_THREAD__
/* the thread sanitizer does not know fences; x86 needs none */
#define read_fence()		atomic_signal_fence(memory_order_acquire)
#define write_fence()		atomic_signal_fence(memory_order_release)
#else
#define read_fence()		atomic_thread_fence(memory_order_acquire)
#define write_fence()		atomic_thread_fence(memory_order_release)
#endif

typedef struct MirrorChunk
{
	char	   *vectors;
	char	   *records;		/* columns (filter.h); NULL: there are none */
	_Atomic uint32_t *rows;
	_Atomic uint64_t *words;
	_Atomic float *scales;		/* METRIC_COSINE: 1 / norm; METRIC_IP: norm; else NULL */
	_Atomic uint64_t *pending_map;
	_Atomic uint32_t pending;	/* bits set in it */
	_Atomic uint32_t *places;	/* in lists (lists.h); NULL: a graph */
} MirrorChunk;

/* Memory limit of an engine, and its use by kind. */
typedef struct MemoryBudget
{
	uint64_t	limit;
	_Atomic uint64_t vectors;
	_Atomic uint64_t graph;
	_Atomic uint64_t norms;
	_Atomic uint64_t state;
} MemoryBudget;

struct Lists;
struct RowFilters;

typedef struct Mirror
{
	MirrorId	id;
	MirrorSpec	spec;
	const DistanceKernels *kernels;
	MemoryBudget *budget;

	size_t		vector_bytes;
	size_t		vector_stride;
	size_t		record_bytes;	/* of a slot's columns; 0: there are none */
	uint32_t	chunk_shift;	/* slots of a chunk: 1 << chunk_shift */
	uint32_t	max_chunks;
	uint32_t	nchunks;		/* allocated; written by the mirror's writer only */
	uint32_t	charged;		/* chunks charged to the budget, at least nchunks */
	_Atomic(MirrorChunk *) *chunks;

	_Atomic uint32_t rows;		/* published */
	_Atomic uint32_t linked;
	_Atomic uint32_t pending;
	_Atomic uint32_t dead;
	_Atomic uint64_t position;

	_Atomic uint32_t nseeds;
	_Atomic uint32_t *seeds;	/* SEEDS_MAX; replaced in place, so a reader may see old and new
								 * seeds mixed */

	uint64_t   *deferred;		/* bit per slot: rows that repairs changed and no result has had; or
								 * NULL */
	uint32_t	deferred_slots;

	struct Lists *lists;		/* METHOD_IVFPQ; else NULL */
	struct RowFilters *filters; /* with columns; else NULL */
} Mirror;

static inline MirrorChunk *
mirror_chunk(const Mirror *mirror, uint32_t slot)
{
	return atomic_load_explicit(&mirror->chunks[slot >> mirror->chunk_shift], memory_order_acquire);
}

static inline uint32_t
mirror_place(const Mirror *mirror, uint32_t slot)
{
	return slot & (((uint32_t) 1 << mirror->chunk_shift) - 1);
}

static inline const void *
mirror_vector(const Mirror *mirror, uint32_t slot)
{
	return mirror_chunk(mirror, slot)->vectors +
		   (size_t) mirror_place(mirror, slot) * mirror->vector_stride;
}

/* Whether two slots have the same vector, bit for bit. */
static inline bool
mirror_equal(const Mirror *mirror, uint32_t slot_a, uint32_t slot_b)
{
	return memcmp(mirror_vector(mirror, slot_a), mirror_vector(mirror, slot_b),
				  mirror->vector_bytes) == 0;
}

/* A sketch of a slot's vector (equal_rows.h). */
static inline uint32_t
mirror_sketch(const Mirror *mirror, uint32_t slot)
{
	return vector_sketch(mirror_vector(mirror, slot), mirror->vector_bytes);
}

#define ALIGNMENT			64		/* a cache line */

static inline size_t
align_up(size_t bytes)
{
	return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

#define PREFETCH_BYTES		1024	/* of a vector; hardware prefetching continues from there */

/* Prefetch a vector of this many bytes. */
static inline void
prefetch_bytes(const char *vector, size_t bytes)
{
	bytes = bytes < PREFETCH_BYTES ? bytes : PREFETCH_BYTES;
	for (size_t at = 0; at < bytes; at += 64)
		__builtin_prefetch(vector + at);
}

static inline void
mirror_prefetch_vector(const Mirror *mirror, const char *vector)
{
	prefetch_bytes(vector, mirror->vector_bytes);
}

static inline void
mirror_prefetch(const Mirror *mirror, uint32_t slot)
{
	mirror_prefetch_vector(mirror, mirror_vector(mirror, slot));
}

static inline _Atomic uint32_t *
mirror_row(const Mirror *mirror, uint32_t slot)
{
	return mirror_chunk(mirror, slot)->rows +
		   (size_t) mirror_place(mirror, slot) * mirror->spec.degree;
}

/*
 * Replace a graph row. A concurrent reader may see a mixture of old and new
 * neighbours, all of which are valid.
 */
static inline void
mirror_write_row(const Mirror *mirror, uint32_t slot, const uint32_t *neighbours, uint32_t count)
{
	_Atomic uint32_t *row = mirror_row(mirror, slot);

	for (uint32_t i = 0; i < mirror->spec.degree; i++)
		atomic_store_explicit(&row[i], i < count ? neighbours[i] : NO_SLOT, memory_order_relaxed);
}

static inline void
mirror_prefetch_word(const Mirror *mirror, uint32_t slot)
{
	__builtin_prefetch(&mirror_chunk(mirror, slot)->words[mirror_place(mirror, slot)]);
}

/* Prefetch a graph row and its state word. */
static inline void
mirror_prefetch_row(const Mirror *mirror, uint32_t slot)
{
	const char *row = (const char *) mirror_row(mirror, slot);

	mirror_prefetch_word(mirror, slot);
	for (size_t at = 0; at < mirror->spec.degree * sizeof(uint32_t); at += 64)
		__builtin_prefetch(row + at);
}

static inline uint64_t
mirror_word(const Mirror *mirror, uint32_t slot)
{
	return atomic_load_explicit(&mirror_chunk(mirror, slot)->words[mirror_place(mirror, slot)],
								memory_order_acquire);
}

static inline bool
mirror_is_dead(const Mirror *mirror, uint32_t slot)
{
	return (mirror_word(mirror, slot) & WORD_DEAD) != 0;
}

/* Whether a slot is linked and alive. */
static inline bool
mirror_in_graph(const Mirror *mirror, uint32_t slot)
{
	return (mirror_word(mirror, slot) & (WORD_LINKED | WORD_DEAD)) == WORD_LINKED;
}

/*
 * The scale stored with a slot (mirror_vector_scale()); 1 for metrics without
 * norms.
 */
static inline float
mirror_scale(const Mirror *mirror, uint32_t slot)
{
	const MirrorChunk *chunk = mirror_chunk(mirror, slot);

	if (chunk->scales == NULL)
		return 1.0f;
	return atomic_load_explicit(&chunk->scales[mirror_place(mirror, slot)], memory_order_relaxed);
}

/* The inner product of a slot's vector with itself; METRIC_IP only. */
static inline double
mirror_square(const Mirror *mirror, uint32_t slot)
{
	double		norm = mirror_scale(mirror, slot);

	return norm * norm;
}

/*
 * Whether a vector read after `word` belongs to it: no overwrite has begun
 * since.
 */
static inline bool
mirror_unchanged(const Mirror *mirror, uint32_t slot, uint64_t word)
{
	read_fence();
	return ((word ^ mirror_word(mirror, slot)) & WORD_IDENTITY) == 0 && (word & WORD_WRITING) == 0;
}

/*
 * A vector converted for fast distances (single precision, or bits), and its
 * scale.
 */
typedef struct WideVector
{
	float	   *elements;
	float		scale;
} WideVector;

extern float mirror_vector_scale(const Mirror *mirror, const void *vector);

/* Fast distance of a widened vector to a slot. */
static inline float
mirror_fast(const Mirror *mirror, const WideVector *query, uint32_t slot)
{
	return mirror->kernels->fast(query->elements, mirror_vector(mirror, slot), mirror->spec.dims,
								 query->scale * mirror_scale(mirror, slot));
}

/* Fast distances of many slots, prefetching their vectors. */
extern void mirror_fast_many(const Mirror *mirror, const WideVector *query, const uint32_t *slots,
							 uint32_t count, double *out);

/*
 * Compute a slot's exact distance to a vector, and return in *word the state
 * word of the version measured.
 */
extern double mirror_exact(const Mirror *mirror, const void *vector, uint32_t slot, uint64_t *word);

/*
 * Copy a graph row without neighbours at or above rows. Returns the number of
 * neighbours.
 */
extern uint32_t mirror_read_row(const Mirror *mirror, uint32_t slot, uint32_t rows,
								uint32_t *neighbours);

extern Mirror *mirror_create(const MirrorSpec *spec, const DistanceKernels *kernels,
							 MemoryBudget *budget, EngineError *error);
extern void mirror_free(Mirror *mirror);
extern uint64_t mirror_bytes(const Mirror *mirror);

/* memory.c: bytes in use, of all kinds */
extern uint64_t budget_used(MemoryBudget *budget);

/*
 * Allocate memory aligned to a cache line, in huge pages if it is large; to be
 * freed with free(). NULL if out of memory.
 */
extern void *mirror_memory(size_t bytes);

/* Progress and control of a running job. */
typedef struct JobWatch
{
	_Atomic uint32_t done;
	_Atomic uint32_t total;
	_Atomic bool cancelled;
	void		(*yield) (void *context); /* called now and then: runs a waiting query */
	void	   *context;
} JobWatch;

/* The changes that jobs make. */
extern EngineStatus mirror_append(Mirror *mirror, const EngineJob *job, JobWatch *watch,
								  EngineError *error);
extern EngineStatus mirror_overwrite(Mirror *mirror, const EngineJob *job, JobWatch *watch,
									 EngineError *error);
extern EngineStatus mirror_kill(Mirror *mirror, const EngineJob *job, JobWatch *watch,
								EngineError *error);
extern EngineStatus mirror_load_graph(Mirror *mirror, const EngineJob *job, JobWatch *watch,
									  EngineError *error);
extern EngineStatus mirror_set_seeds(Mirror *mirror, const uint32_t *slots, uint32_t count,
									 EngineError *error);
/*
 * The pending ones among slots (NULL: all there are) below rows, ascending, each
 * once; to be freed. NULL: out of memory.
 */
extern uint32_t *mirror_collect_pending(const Mirror *mirror, const uint32_t *slots,
										uint32_t nslots, uint32_t rows, uint32_t *count);
/* Mark a pending slot linked. */
extern void mirror_mark_linked(Mirror *mirror, uint32_t slot);

/* Call visit for every pending slot below rows, in slot order. */
typedef void (*VisitSlot) (void *context, uint32_t slot);
extern void mirror_visit_pending(const Mirror *mirror, uint32_t rows, VisitSlot visit,
								 void *context);

#endif							/* GPUANN_MIRROR_H */
