/*
 * seed_order.c
 *		Order the seeds before they are written, as described in engine/seeds.h,
 *		by vectors in the pages. All linkers write seeds this way, and mirrors
 *		load them from the pages.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "link/link.h"
#include "link/graph_edits.h"
#include "link/row_vectors.h"
#include "engine/seeds.h"

#define POOL_BYTES			(32 * 1024 * 1024)	/* of vectors: limits the number of seeds measured
												 */
#define POOL_MIN			(2 * ENGINE_SEEDS_TRIED)

/* Vectors of seeds, copied. */
typedef struct SeedVectors
{
	const IndexFormat *format;
	const DistanceKernels *kernels;
	char	   *vectors;
	Size		stride;
	float	   *inverse_norms;	/* METRIC_COSINE: 1 / |vector|; else 0 */
	float	   *wide;
	uint32		pool;
} SeedVectors;

/* Copy the vectors of the first seeds. */
static void
copy_vectors(SeedVectors *copied, Relation index, const uint32 *seeds)
{
	RowVectors *vectors = row_vectors_begin(index, copied->format, 0, 0);

	for (uint32 i = 0; i < copied->pool; i++)
	{
		link_pause();
		memcpy(copied->vectors + i * copied->stride,
			   row_vectors_get(vectors, seeds[i], &copied->inverse_norms[i]),
			   copied->format->vector_bytes);
	}
	row_vectors_end(vectors);
}

/* SeedMeasure */
static void
measure_seeds(void *context, uint32_t seed, float *out)
{
	const SeedVectors *copied = context;
	uint32		dims = copied->format->dims;

	link_pause();
	copied->kernels->widen(copied->vectors + seed * copied->stride, dims, copied->wide);
	for (uint32 i = 0; i < copied->pool; i++)
		out[i] = copied->kernels->fast(copied->wide, copied->vectors + i * copied->stride, dims,
									   copied->inverse_norms[seed] * copied->inverse_norms[i]);
}

void
order_seeds(Relation index, const IndexFormat *format, uint32 *seeds, uint32 count)
{
	SeedVectors copied = {.format = format, .stride = MAXALIGN(format->vector_bytes)};
	SeedMeasure measure = {.context = &copied, .distances = measure_seeds};
	MemoryContext memory;
	MemoryContext caller;

	if (count <= ENGINE_SEEDS_TRIED)
		return;
	memory = AllocSetContextCreate(CurrentMemoryContext, "gpuann seeds", ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(memory);
	copied.kernels = seeds_kernels(format->type, format->metric);
	copied.pool = measure.pool =
		Min(Min(count, SEEDS_ORDERED),
			Max(Min(link_memory() / 2, POOL_BYTES) / copied.stride, POOL_MIN));
	copied.vectors = palloc(copied.pool * copied.stride);
	copied.inverse_norms = palloc(copied.pool * sizeof(float));
	copied.wide =
		(float *) CACHELINEALIGN(palloc(sizeof(float) * format->dims + PG_CACHE_LINE_SIZE));
	copy_vectors(&copied, index, seeds);
	seeds_order(seeds, count, &measure, palloc(seeds_order_bytes()));
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(memory);
}
