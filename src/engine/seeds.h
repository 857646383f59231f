/*
 * seeds.h
 *		The order of a graph's seeds, from which searches start.
 *
 * A search tries the first ENGINE_SEEDS_TRIED. Each of these has a list of
 * others: the lists lie behind them, one after another, all of one length; a
 * search looks at the lists of the nearest, too. Seeds in any other order are
 * no error: what the lists then hold is no nearer than other seeds, and costs a
 * search a few distances.
 */
#ifndef GPUANN_SEEDS_H
#define GPUANN_SEEDS_H

#include <stddef.h>

#include "engine/distance.h"

#define SEEDS_ORDERED		4096u	/* at most so many are put in order, those behind them lie as
									 * they come */
#define SEED_LISTS_TRIED	24u
#define SEED_LIST_MAX		(SEEDS_ORDERED / ENGINE_SEEDS_TRIED - 1)

/* The length of each list when there are so many seeds. */
static inline uint32_t
seed_list_length(uint32_t nseeds)
{
	return nseeds < SEEDS_ORDERED
			   ? (nseeds > ENGINE_SEEDS_TRIED ? nseeds / ENGINE_SEEDS_TRIED - 1 : 0)
			   : SEED_LIST_MAX;
}

/* Where the list of the i-th seed tried begins. */
static inline uint32_t
seed_list_start(uint32_t i, uint32_t nseeds)
{
	return ENGINE_SEEDS_TRIED + i * seed_list_length(nseeds);
}

/*
 * How seeds are measured: the distances of one to all of the pool, the seeds
 * that those tried are chosen from. May leave by longjmp.
 */
typedef struct SeedMeasure
{
	void	   *context;
	void		(*distances) (void *context, uint32_t seed, float *out);
	uint32_t	pool;			/* the first so many: more than ENGINE_SEEDS_TRIED, at most
								 * SEEDS_ORDERED and as there are */
	bool		tried_only;		/* the others follow those tried as they come: a quarter of the
								 * work */
} SeedMeasure;

/*
 * What seeds are measured with: of inner products, which say nothing of who is
 * near whom, the rows' differences.
 */
extern const DistanceKernels *seeds_kernels(ElementType type, Metric metric);

/*
 * Put seeds in order; memory has room for seeds_order_bytes(). Those that all
 * rows shall be reached from (connectivity.h) stay the first.
 */
extern size_t seeds_order_bytes(void);
extern void seeds_order(uint32_t *seeds, uint32_t count, const SeedMeasure *measure, void *memory);

#endif							/* GPUANN_SEEDS_H */
