/*
 * row_vectors.c
 *		Vectors for linking over pages: read in shared buffers without a pin if
 *		this process has a hint for the buffer, else through a cache.
 *
 * Under the linker lock vectors of the graph do not change. So the only race of
 * an unpinned read is that the buffer is given to another block meanwhile,
 * which hints_peeked() detects. The cache is direct-mapped, by slot modulo its
 * size, so slots do not collide if it is as large as the index. It is only for
 * vectors that are not in shared buffers, or that cross pages, because copying
 * every vector into it took longer than all distances.
 */
#include "postgres.h"

#include <math.h>

#include "utils/memutils.h"

#include "page/unpinned_vectors.h"
#include "link/row_vectors.h"

#define MIN_CACHED_VECTORS	64

/*
 * A cache entry. Vectors are in a separate array, so that memory is touched
 * only for those that are read.
 */
typedef struct CachedVector
{
	uint32		slot;			/* NO_SLOT: empty */
	float		inverse_norm;	/* cosine: 1 / |vector| */
} CachedVector;

struct RowVectors
{
	Relation	index;
	const IndexFormat *format;
	const DistanceKernels *kernels;
	BufferHints hints;			/* where vectors are found */
	CachedVector *cache;
	char	   *cached_elements;
	uint32		cache_places;
	Size		cache_stride;

	/*
	 * the vector that distances are computed from, widened, so that its cache
	 * entry may be replaced
	 */
	uint32		from_slot;
	float	   *from;
	float		from_inverse_norm;

	void	   *other;			/* a copy of one that is compared with another */
};

/* Allocate an empty cache of this many entries. */
static void
make_cache(RowVectors *vectors, uint32 places)
{
	vectors->cache_places = places;
	vectors->cache = MemoryContextAllocHuge(CurrentMemoryContext, places * sizeof(CachedVector));
	vectors->cached_elements =
		MemoryContextAllocHuge(CurrentMemoryContext, places * vectors->cache_stride);
	for (uint32 i = 0; i < places; i++)
		vectors->cache[i].slot = NO_SLOT;
}

/*
 * Allocate the vector that distances are computed from, aligned to a cache
 * line, where reading it is faster.
 */
static void
make_from(RowVectors *vectors)
{
	vectors->from_slot = NO_SLOT;
	vectors->from = (float *) CACHELINEALIGN(
		palloc(sizeof(float) * vectors->format->dims + PG_CACHE_LINE_SIZE));
}

RowVectors *
row_vectors_begin(Relation index, const IndexFormat *format, uint32 next_fresh, Size memory)
{
	RowVectors *vectors = palloc0(sizeof(RowVectors));

	vectors->index = index;
	vectors->format = format;
	vectors->kernels = distance_kernels(format->type, format->metric, SIMD_BEST);
	if (vectors->kernels == NULL)
		report_corrupt(index, GPUANN_META_BLOCK, "element type or metric is unknown");
	hints_begin(&vectors->hints, index);
	vectors->cache_stride = MAXALIGN(format->vector_bytes);
	make_cache(vectors,
			   Max(Min(memory / (vectors->cache_stride + sizeof(CachedVector)), next_fresh),
				   MIN_CACHED_VECTORS));
	make_from(vectors);
	vectors->other = palloc(format->vector_bytes);
	return vectors;
}

/*
 * End, and count the unpinned reads. The memory is freed with its context.
 */
void
row_vectors_end(RowVectors *vectors)
{
	hints_end(&vectors->hints);
}

/* 1 / |vector| for cosine, else 0. */
static inline float
inverse_norm(const RowVectors *vectors, const void *elements)
{
	float		squared;

	if (vectors->format->metric != METRIC_COSINE)
		return 0;
	squared = vectors->kernels->squared_norm(elements, vectors->format->dims);
	return squared > 0 ? 1.0f / sqrtf(squared) : 0;
}

/* A slot's vector, through the cache. */
const void *
row_vectors_get(RowVectors *vectors, uint32 slot, float *norm)
{
	uint32		place = slot % vectors->cache_places;
	CachedVector *cached = &vectors->cache[place];
	char	   *elements = vectors->cached_elements + place * vectors->cache_stride;

	if (cached->slot != slot)
	{
		cached->slot = NO_SLOT; /* stays empty if reading raises an error */
		read_vector(vectors->index, vectors->format, slot, elements);
		cached->inverse_norm = inverse_norm(vectors, elements);
		cached->slot = slot;
	}
	*norm = cached->inverse_norm;
	return elements;
}

/* Whether two slots have the same vector. */
bool
row_vectors_equal(RowVectors *vectors, uint32 slot_a, uint32 slot_b)
{
	uint32		bytes = vectors->format->vector_bytes;
	float		norm;

	memcpy(vectors->other, row_vectors_get(vectors, slot_a, &norm), bytes);
	return memcmp(vectors->other, row_vectors_get(vectors, slot_b, &norm), bytes) == 0;
}

/*
 * Widen a vector by an unpinned read. Returns false if it has to be read
 * through the cache.
 */
static bool
peek_from(RowVectors *vectors, uint32 slot)
{
	UnpinnedVector at;

	unpinned_find(&vectors->hints, vectors->format, &slot, 1, &at);
	if (!hints_vector_is_whole(vectors->format, &at))
		return false;
	vectors->kernels->widen(hints_vector_elements(&at), vectors->format->dims, vectors->from);
	vectors->from_inverse_norm = inverse_norm(vectors, hints_vector_elements(&at));
	return hints_peeked(&vectors->hints, at.place.block, at.hint);
}

void
row_vectors_from(RowVectors *vectors, uint32 slot)
{
	if (vectors->from_slot == slot)
		return;
	vectors->from_slot = NO_SLOT;
	if (!peek_from(vectors, slot))
		vectors->kernels->widen(row_vectors_get(vectors, slot, &vectors->from_inverse_norm),
								vectors->format->dims, vectors->from);
	vectors->from_slot = slot;
}

/* The distance of a vector from the one set by row_vectors_from(). */
static inline double
distance_from(const RowVectors *vectors, const void *elements, float norm)
{
	double		distance = vectors->kernels->fast(vectors->from, elements, vectors->format->dims,
											 vectors->from_inverse_norm * norm);

	return isnan(distance) ? INFINITY : distance;
}

double
row_vectors_distance(const RowVectors *vectors, const void *elements, float norm)
{
	return distance_from(vectors, elements, norm);
}

double
row_vectors_square(RowVectors *vectors, uint32 slot)
{
	uint32		dims = vectors->format->dims;
	UnpinnedVector at;
	float		norm;

	unpinned_find(&vectors->hints, vectors->format, &slot, 1, &at);
	if (hints_vector_is_whole(vectors->format, &at))
	{
		double		square = vectors->kernels->squared_norm(hints_vector_elements(&at), dims);

		if (hints_peeked(&vectors->hints, at.place.block, at.hint))
			return square;
	}
	return vectors->kernels->squared_norm(row_vectors_get(vectors, slot, &norm), dims);
}

/* The distances of at most UNPINNED_MAX slots. */
static void
cached_distances_of_few(RowVectors *vectors, const uint32 *slots, uint32 count, double *out)
{
	UnpinnedVector places[UNPINNED_MAX];

	unpinned_find(&vectors->hints, vectors->format, slots, count, places);
	for (uint32 i = 0; i < count; i++)
	{
		const void *elements;
		float		norm;

		if (hints_vector_is_whole(vectors->format, &places[i]))
		{
			elements = hints_vector_elements(&places[i]);
			out[i] = distance_from(vectors, elements, inverse_norm(vectors, elements));
			if (hints_peeked(&vectors->hints, places[i].place.block, places[i].hint))
				continue;
		}
		elements = row_vectors_get(vectors, slots[i], &norm);
		out[i] = distance_from(vectors, elements, norm);
	}
}

void
row_vectors_expect(RowVectors *vectors, const uint32 *slots, uint32 count)
{
	UnpinnedVector places[UNPINNED_MAX];

	unpinned_find(&vectors->hints, vectors->format, slots, Min(count, UNPINNED_MAX), places);
}

void
row_vectors_distances(RowVectors *vectors, const uint32 *slots, uint32 count, double *out)
{
	for (uint32 done = 0; done < count; done += UNPINNED_MAX)
		cached_distances_of_few(vectors, slots + done, Min(count - done, UNPINNED_MAX), out + done);
}
