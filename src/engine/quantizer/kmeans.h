/*
 * kmeans.h
 *		Centroids of rows by k-means: seeds, then rounds of exact assignment and
 *		means.
 *
 * The same rows, numbers and seed give the same centroids, whatever the number
 * of threads and the processor: assignment is exact (nearest.h), means and
 * distances are summed in double in the order of rows. A device learns other
 * ones, as good on average (cuda/lists).
 *
 * A round over n rows costs n x lists x dims multiplications, at 30 to 60
 * thousand million a second and core with AVX-512.
 */
#ifndef GPUANN_KMEANS_H
#define GPUANN_KMEANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

#define KMEANS_SEEDS_SAMPLE	4u	/* seeds are chosen from so many rows for each */
#define KMEANS_SMALL_LIST	4u	/* with balance: a list with less than this part of the mean */

/* How a training uses threads and is interrupted. NULL members are left out. */
typedef struct TrainControl
{
	/*
	 * Run work(argument, item) for items from 0 to before count, in any order
	 * and on any threads, and return when all are done. NULL: one after another.
	 */
	void		(*spread) (void *context, void (*work) (void *argument, uint32_t item),
						   void *argument, uint32_t count);

	/* Whether to stop; called every few milliseconds, by the threads that work. */
	bool		(*interrupted) (void *context);
	void	   *context;
} TrainControl;

typedef struct KmeansTask
{
	const float *rows;
	size_t		stride;			/* floats from one row to the next */
	uint32_t	count;			/* at least 1 */
	uint32_t	dims;
	uint32_t	lists;			/* at least 1 */
	uint32_t	rounds;
	uint64_t	seed;
	bool		balance;		/* give up lists of less than a quarter of the mean for seeds in
								 * large ones; inertia may rise */
	const TrainControl *control; /* NULL: this thread, uninterrupted */
	double	   *inertia;		/* NULL, or places for rounds: of each round's assignment, the sum of
								 * squared distances; without balance it does not rise */
} KmeansTask;

/* Bytes that kmeans_run() allocates. */
extern size_t kmeans_bytes(const KmeansTask *task);

/*
 * Find centroids (lists x dims). ENGINE_NO_MEMORY, or ENGINE_CANCELLED if the
 * control interrupted. Where fewer rows differ than there are lists, some
 * centroids are equal.
 */
extern EngineStatus kmeans_run(const KmeansTask *task, float *centroids);

#endif							/* GPUANN_KMEANS_H */
