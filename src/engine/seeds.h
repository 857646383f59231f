/*
 * seeds.h
 *		The order of a graph's seeds, from which searches start.
 *
 * A search tries the first ENGINE_SEEDS_TRIED seeds. Each of these has a list
 * of others; the lists follow the tried seeds, one after another, all of the
 * same length. A search also visits the lists of the nearest tried seeds. Other
 * orders are no error: the lists then contain arbitrary seeds, which cost a
 * search a few distances.
 */
#ifndef GPUANN_SEEDS_H
#define GPUANN_SEEDS_H

#include <stddef.h>

#include "engine/distance.h"

#define SEEDS_ORDERED		4096u	/* at most this many are ordered; the rest follows unordered */
#define SEED_LISTS_TRIED	24u
#define SEED_LIST_MAX		(SEEDS_ORDERED / ENGINE_SEEDS_TRIED - 1)

/* Length of each list, for this number of seeds. */
static inline uint32_t
seed_list_length(uint32_t nseeds)
{
	return nseeds < SEEDS_ORDERED
			   ? (nseeds > ENGINE_SEEDS_TRIED ? nseeds / ENGINE_SEEDS_TRIED - 1 : 0)
			   : SEED_LIST_MAX;
}

/* Index at which the list of the i-th tried seed begins. */
static inline uint32_t
seed_list_start(uint32_t i, uint32_t nseeds)
{
	return ENGINE_SEEDS_TRIED + i * seed_list_length(nseeds);
}

/*
 * Distances of one seed to the seeds of the pool, from which the tried seeds
 * are chosen. The callback may longjmp.
 */
typedef struct SeedMeasure
{
	void	   *context;
	void		(*distances) (void *context, uint32_t seed, float *out);
	uint32_t	pool;			/* the first this many seeds: more than ENGINE_SEEDS_TRIED, at most
								 * SEEDS_ORDERED and the number of seeds */
	bool		tried_only;		/* leave the others unordered: a quarter of the work */
} SeedMeasure;

/*
 * Distance kernels for ordering seeds: L2 instead of inner product, which does
 * not tell what is near.
 */
extern const DistanceKernels *seeds_kernels(ElementType type, Metric metric);

/*
 * Order the seeds, using seeds_order_bytes() of memory. The first REACH_SEEDS,
 * from which all rows are reachable (connectivity.h), stay first.
 */
extern size_t seeds_order_bytes(void);
extern void seeds_order(uint32_t *seeds, uint32_t count, const SeedMeasure *measure, void *memory);

#endif							/* GPUANN_SEEDS_H */
